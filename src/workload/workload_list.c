// The list of workloads, and opening one by its name.
#include <string.h>

#include "workload/workload.h"
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
  BRIM_TRY(brim_config_add_workload(table->name, table->keys, table->key_count));
  if (table->korean_count > 0 && !brim_msg_add(table->korean, table->korean_count)) {
    return brim_fail(BRIM_EINVAL, "too many workloads for %s", table->name);
  }
  added[added_count++] = table;
  return BRIM_OK;
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

// Nothing to do about it, so no warning: --verbose says it. A preset's own value is nobody's wish, and
// not worth a line.
static void say_nothing_to_empty(const brim_config *config) {
  const char *key = "gpu.empty_cache_freq";
  if (brim_config_int(config, key) == 0) return;
  if (brim_config_layer_of(config, key) == BRIM_CONFIG_FROM_PRESET) return;
  brim_log_info("workload", "%s: no cache to empty: brim allocates its planned memory once", key);
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
  say_nothing_to_empty(config);
  *out = work;
  return BRIM_OK;
}

void brim_work_close(brim_work *work) {
  if (!work) return;
  work->table->close(work->state);
  brim_free(work);
}
