// The list of workloads, and opening one by its name.
#include <assert.h>
#include <string.h>

#include "workload/workload.h"
#include "workload/workload_env.h"
#include "workload/workload_int.h"

static const brim_workload_table *const workloads[] = {&brim_workload_supervised,
                                                       &brim_workload_contrastive,
                                                       &brim_workload_ars, &brim_workload_mappo};

enum { BUILT_IN = sizeof workloads / sizeof *workloads, MAX_ADDED = 8 };

// Written by main before threads start, read only afterwards.
static const brim_workload_table *added[MAX_ADDED];
static size_t added_count;

const brim_workload_table *brim_workload_at(size_t index) {
  if (index < BUILT_IN) return workloads[index];
  return index - BUILT_IN < added_count ? added[index - BUILT_IN] : NULL;
}

brim_status brim_workload_register(const brim_workload_table *table) {
  if (added_count == MAX_ADDED) {
    return brim_fail(BRIM_EINVAL, "too many workloads for %s", table->name);
  }
  BRIM_TRY(brim_config_add_workload(table->name, table->section));
  if (table->korean_count > 0 && !brim_msg_add(table->korean, table->korean_count)) {
    return brim_fail(BRIM_EINVAL, "too many workloads for %s", table->name);
  }
  added[added_count++] = table;
  return BRIM_OK;
}

// Before main, so that whatever has workloads reads configs with their keys: a program of libbrim calls
// nothing else before brim_config_open. What fails here is a row of brim itself.
__attribute__((constructor)) static void add_built_in(void) {
  brim_status status = brim_work_env_register();
  for (size_t i = 0; !status && i < BUILT_IN; i++) {
    status = brim_config_add_workload(workloads[i]->name, workloads[i]->section);
  }
  assert(!status && "rows of a workload");
  (void)status;
}

static brim_status no_workload(const char *name) {
  brim_str names;
  brim_str_init(&names);
  for (size_t i = 0; brim_workload_at(i); i++) {
    const char *gap = i == 0 ? "" : brim_workload_at(i + 1) ? ", " : brim_tr(" or ");
    brim_str_printf(&names, "%s%s", gap, brim_workload_at(i)->name);
  }
  brim_status status =
      brim_fail(BRIM_EUNSUPPORTED, "workload '%s' is not supported in this version; choose %s",
                name, names.data ? names.data : "");
  brim_str_deinit(&names);
  return status;
}

const brim_workload_table *brim_workload_find(const char *name) {
  for (size_t i = 0; brim_workload_at(i); i++) {
    if (strcmp(brim_workload_at(i)->name, name) == 0) return brim_workload_at(i);
  }
  (void)no_workload(name);
  return NULL;
}

//---------------------------------- shipped configs ----------------------------------

// The name in `env=NAME(...)`, which a folder can have too; 0 = there is none. Of plugin:NAME it is NAME.
static size_t env_name(const char *override, const char **out) {
  static const char *const keys[] = {"env=", "environment="};
  static const char plugin[] = "plugin:";
  const char *at = NULL;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    if (brim_str_starts(override, keys[i])) at = override + strlen(keys[i]);
  }
  if (!at) return 0;
  at += strspn(at, " ");
  if (brim_str_starts(at, plugin)) at += sizeof plugin - 1;
  *out = at;
  size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
  return at[length] == 0 || at[length] == '(' || at[length] == ' ' ? length : 0;
}

bool brim_workload_start(const brim_workload_table *table, const char *override,
                         brim_work_start *out) {
  const char *name = NULL;
  const size_t length = table->shipped ? env_name(override, &name) : 0;
  if (length == 0 || length + strlen(table->name) + 2 > sizeof out->name) return false;
  memset(out, 0, sizeof *out);
  const bool plugin = strstr(override, "plugin:") != NULL;
  for (size_t i = 0; !plugin && i < table->shipped_count; i++) {
    const brim_work_shipped *row = &table->shipped[i];
    if (strlen(row->env) == length && !memcmp(row->env, name, length)) out->config = row->config;
  }
  // of the workload too: another one may have run in this environment
  snprintf(out->name, sizeof out->name, "%.*s-%s", (int)length, name, table->name);
  return true;
}

//---------------------------------- opening ----------------------------------

// Nothing to do about it, so no warning: --verbose says it. A preset's own value is no wish, and
// not worth a line.
static void say_nothing_to_empty(const brim_config *config) {
  const char *key = "gpu.empty_cache_freq";
  if (brim_config_int(config, key) == 0) return;
  if (brim_config_layer_of(config, key) == BRIM_CONFIG_FROM_PRESET) return;
  brim_log_info("workload", "%s: no cache to empty: brim allocates its planned memory once", key);
}

// `bench` looks for the option of a knob by its name behind the dashes: one without would never be found.
static brim_status check_knobs(const brim_work *work) {
  for (size_t i = 0; i < work->knob_count; i++) {
    const brim_knob *knob = &work->knobs[i];
    if (!knob->option || (brim_str_starts(knob->option, "--") && knob->option[2])) continue;
    return brim_fail(BRIM_EINVAL, "workload %s: the option of knob %s is '%s', expected '--NAME'",
                     work->table->name, knob->name, knob->option);
  }
  return BRIM_OK;
}

brim_status brim_work_open(const brim_work_context *context, const brim_config *config,
                           brim_work **out) {
  const char *name = brim_config_string(config, "workload");
  const brim_workload_table *table = brim_workload_find(name ? name : "supervised");
  if (!table) return BRIM_EUNSUPPORTED;
  brim_work *work = (brim_work *)brim_calloc(1, sizeof *work);
  if (!work) return brim_fail(BRIM_ENOMEM, "out of memory while opening the workload");
  work->table = table;
  work->context = *context;
  brim_status status = table->open(context, config, &work->state);
  if (status) {
    brim_free(work);
    return status;
  }
  work->knob_count = table->knobs(work->state, &work->knobs);
  work->metrics = table->metric_set_of ? table->metric_set_of(work->state) : table->metric_set;
  status = check_knobs(work);
  if (status) {
    brim_work_close(work);
    return status;
  }
  say_nothing_to_empty(config);
  *out = work;
  return BRIM_OK;
}

void brim_work_close(brim_work *work) {
  if (!work) return;
  work->table->close(work->state);
  brim_free(work);
}
