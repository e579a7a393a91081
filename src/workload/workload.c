// The list of workloads, brim_work_open, and functions over a workload's table that its callers share.

#include "workload/workload.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "workload/workload_env.h"
#include "workload/workload_int.h"

//-------------------------------------------- calls --------------------------------------------

// True for keys of transforms: their list looks like one pipeline but is an axis of alternatives.
static bool is_pipeline(const char *key) {
  static const char *const keys[] = {"transform", "transform.train", "transform.val",
                                     "transform.test"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    if (strcmp(key, keys[i]) == 0) return true;
  }
  return false;
}

brim_status brim_work_refuse_grid(const brim_config *config) {
  size_t points = brim_config_grid_count(config);
  if (points == 1) return BRIM_OK;
  brim_str axes;
  brim_str_init(&axes);
  bool transform = false;
  for (size_t i = 0; i < brim_config_axis_count(config); i++) {
    const char *key = brim_config_axis_at(config, i).key;
    brim_str_printf(&axes, "%s%s", i ? ", " : "", key);
    transform = transform || is_pipeline(key);
  }
  brim_status status = brim_str_status(&axes);
  if (!status) {
    status = brim_fail(BRIM_EINVAL,
                       "this config is a grid of %zu points over %s; run all of them with brim "
                       "sweep, or choose one with key=value for each axis%s",
                       points, axes.data,
                       transform ? brim_tr(" (a pipeline is written a | b, not as a list)") : "");
  }
  brim_str_deinit(&axes);
  return status;
}

brim_status brim_work_evaluate(const brim_work *work, brim_work_metrics *out) {
  const brim_work_evaluation_table *evaluation = work->table->evaluation;
  if (evaluation) return evaluation->evaluate(work->state, out);
  return brim_fail(BRIM_ESTATE, "workload %s has no evaluation", work->table->name);
}

brim_status brim_work_use(const brim_work *work, const char *path, bool averaged) {
  const brim_work_evaluation_table *evaluation = work->table->evaluation;
  if (evaluation) return evaluation->use(work->state, path, averaged);
  return brim_fail(BRIM_ESTATE, "workload %s has no evaluation", work->table->name);
}

//---------------------------------- fitting ----------------------------------

static uint64_t bytes_needed(const brim_work *work, const brim_plan *plan) {
  uint64_t need = plan->bytes[BRIM_PLACE_DEVICE];
  if (work->context.device->info.host_memory) need += plan->bytes[BRIM_PLACE_HOST];
  return need;
}

// The largest batch_size with which a step still fits into the training set; INT64_MAX if the set is unknown.
// A step has `steps` micro-batches. *samples: the size of the set, 0 or less if unknown.
static int64_t most_of_set(const brim_work *work, const brim_setting *setting, int64_t *samples) {
  brim_work_info info;
  int knob = brim_work_knob_as(work, BRIM_ROLE_ACCUMULATION);
  int64_t steps = knob >= 0 && setting->value[knob] > 0 ? setting->value[knob] : 1;
  memset(&info, 0, sizeof info);
  work->table->info(work->state, &info);
  *samples = info.set_samples;
  if (info.set_samples <= 0) return INT64_MAX;
  return info.set_samples < steps ? 1 : info.set_samples / steps;
}

int64_t brim_work_largest_batch(const brim_work *work, const brim_setting *setting, uint64_t limit,
                                int64_t *set_samples) {
  int64_t samples = 0;
  if (set_samples) *set_samples = 0;
  int knob = brim_work_knob_as(work, BRIM_ROLE_BATCH);
  if (knob < 0) return 0;
  brim_setting s = *setting;
  int64_t fits = 0, fails = setting->value[knob], most = most_of_set(work, setting, &samples);
  bool capped = most < fails - 1;
  if (capped) fails = most + 1;
  while (fails - fits > 1) {
    brim_plan plan;
    s.value[knob] = fits + (fails - fits) / 2;
    bool ok =
        work->table->plan(work->state, &s, &plan) == BRIM_OK && bytes_needed(work, &plan) <= limit;
    if (ok) {
      fits = s.value[knob];
    } else {
      fails = s.value[knob];
    }
  }
  brim_status_clear();  // drop the details of plans that failed
  if (set_samples && capped && fits == most) *set_samples = samples;
  return fits;
}

// Shrinks a setting until its plan needs at most `limit` bytes; false if no setting does.
static bool brim_work_shrink_to(const brim_work *work, brim_setting *setting, uint64_t limit) {
  const brim_work_shrink_table *shrinking = work->table->shrinking;
  if (!shrinking) return false;
  while (shrinking->shrink(work->state, setting)) {
    brim_plan plan;
    if (work->table->plan(work->state, setting, &plan) == BRIM_OK &&
        bytes_needed(work, &plan) <= limit) {
      return true;
    }
    brim_status_clear();
  }
  return false;
}

void brim_work_setting_change(const brim_work *work, const brim_setting *was,
                              const brim_setting *now, char *out, size_t size) {
  size_t used = 0;
  out[0] = 0;
  for (size_t i = 0; i < work->knob_count; i++) {
    char before[32], after[32];
    if (was->value[i] == now->value[i]) continue;
    brim_knob_format(&work->knobs[i], was->value[i], before);
    brim_knob_format(&work->knobs[i], now->value[i], after);
    int n = snprintf(out + used, size - used, "%s%s %s -> %s", used ? ", " : "",
                     work->knobs[i].name, before, after);
    if (n < 0 || (size_t)n >= size - used) return;
    used += (size_t)n;
  }
}

bool brim_work_fits(const brim_work *work, const brim_plan *plan, uint64_t limit) {
  uint64_t free_bytes = 0, total_bytes = 0, need = bytes_needed(work, plan);
  if (limit > 0 && need > limit) return false;
  // free memory unknown: building the setting will show if it fits
  if (brim_device_memory(work->context.device, &free_bytes, &total_bytes)) return true;
  return need <= free_bytes;
}

void brim_work_batch_text(int64_t batch, int64_t set_samples, char out[160]) {
  if (set_samples > 0) {
    snprintf(out, 160,
             brim_tr("batch_size %lld is the largest that fits the training set of %lld samples"),
             (long long)batch, (long long)set_samples);
  } else {
    snprintf(out, 160, brim_tr("batch_size %lld is the largest that fits"), (long long)batch);
  }
}

void brim_work_shrink_text(const brim_work *work, const brim_setting *setting, uint64_t limit,
                           char *out, size_t size) {
  brim_setting less = *setting;
  char change[160];
  bool fits = brim_work_shrink_to(work, &less, limit);
  brim_work_setting_change(work, setting, &less, change, sizeof change);
  snprintf(out, size, fits ? brim_tr("%s would fit") : brim_tr("not even %s would fit"), change);
}

// Describes the largest row of the plan in the memory that does not suffice.
static void largest_row_text(const brim_work *work, const brim_plan *plan, char out[160]) {
  bool both = work->context.device->info.host_memory;  // both places share this memory
  const brim_plan_row *most = NULL;
  char bytes[32];
  out[0] = '\0';
  for (size_t i = 0; i < plan->row_count; i++) {
    const brim_plan_row *row = &plan->rows[i];
    if (row->place != BRIM_PLACE_DEVICE && !both) continue;
    if (!most || row->bytes > most->bytes) most = row;
  }
  if (!most) return;
  brim_format_bytes(most->bytes, bytes);
  snprintf(out, 160, brim_tr("most of it is %s: %s; "), brim_tr(most->name), bytes);
}

brim_status brim_work_check_fit(const brim_work *work, const brim_setting *setting,
                                const brim_plan *plan, uint64_t limit) {
  uint64_t free_bytes = 0, total_bytes = 0;
  BRIM_TRY(brim_device_memory(work->context.device, &free_bytes, &total_bytes));
  bool limited = limit > 0 && limit <= free_bytes;
  if (!limited) limit = free_bytes;
  uint64_t need = bytes_needed(work, plan);
  if (need <= limit) return BRIM_OK;
  int64_t samples = 0, batch = brim_work_largest_batch(work, setting, limit, &samples);
  char a[32], b[32], advice[320];
  brim_format_bytes(need, a);
  brim_format_bytes(limit, b);
  if (strcmp(a, b) == 0) {  // the rounded numbers are equal: print all digits
    snprintf(a, sizeof a, "%" PRIu64 " B", need);
    snprintf(b, sizeof b, "%" PRIu64 " B", limit);
  }
  if (work->table->shrinking) {
    brim_work_shrink_text(work, setting, limit, advice, sizeof advice);
  } else if (batch > 0) {
    brim_work_batch_text(batch, samples, advice);
  } else {
    bool segments = plan->segments > plan->recomputed;
    char most[160];
    largest_row_text(work, plan, most);
    snprintf(advice, sizeof advice, "%s%s%s%s", most,
             brim_tr("no batch_size fits; use a smaller model"),
             segments ? brim_tr(", or training.checkpointing=true") : "",
             limited ? brim_tr(", or a higher limit") : "");
  }
  if (limited) {
    return brim_fail(BRIM_EOOM,
                     "this setting needs %s of memory, above the gpu.memory_limit of %s; %s", a, b,
                     advice);
  }
  return brim_fail(BRIM_EOOM, "this setting needs %s of memory, but %s are available; %s", a, b,
                   advice);
}

brim_setting brim_work_setting(const brim_work *work) {
  brim_setting setting;
  memset(&setting, 0, sizeof setting);
  for (size_t i = 0; i < work->knob_count; i++) setting.value[i] = work->knobs[i].value;
  return setting;
}

int brim_work_knob(const brim_work *work, const char *name) {
  for (size_t i = 0; i < work->knob_count; i++) {
    if (strcmp(work->knobs[i].name, name) == 0 || strcmp(work->knobs[i].key, name) == 0) {
      return (int)i;
    }
  }
  return -1;
}

int brim_work_knob_as(const brim_work *work, brim_knob_role role) {
  const brim_knob_row *row = brim_knob_find_as(work->table->knob_set, role);
  return row ? brim_work_knob(work, row->name) : -1;
}

int64_t brim_work_value_as(const brim_work *work, const brim_setting *setting, brim_knob_role role,
                           int64_t fallback) {
  int knob = brim_work_knob_as(work, role);
  return knob < 0 ? fallback : setting->value[knob];
}

static void put_once(int64_t value, int64_t *values, size_t *count) {
  if (*count == 0 || values[*count - 1] != value) values[(*count)++] = value;
}

size_t brim_knob_with_own(int64_t own, const int64_t *from, size_t count, int64_t most,
                          int64_t *values) {
  size_t n = 0, i = 0;
  while (i < count && from[i] < own) put_once(from[i++], values, &n);
  put_once(own, values, &n);
  while (i < count) put_once(from[i++], values, &n);
  while (n > 0 && values[n - 1] > most) n--;
  if (n == 0) values[n++] = most;
  return n;
}

void brim_knob_format(const brim_knob *knob, int64_t value, char out[32]) {
  switch (knob->kind) {
    case BRIM_KNOB_BOOL:
      snprintf(out, 32, "%s", value ? "true" : "false");
      return;
    case BRIM_KNOB_CHOICE:
      snprintf(out, 32, "%s", knob->choices[value]);
      return;
    case BRIM_KNOB_INT:
      break;
  }
  snprintf(out, 32, "%" PRId64, value);
}

//--------------------------------------------- list ---------------------------------------------
// The list of workloads, and opening one by its name.

static const brim_workload_table *const workloads[] = {&brim_workload_supervised,
                                                       &brim_workload_contrastive,
                                                       &brim_workload_ars, &brim_workload_mappo};

enum { BUILT_IN = sizeof workloads / sizeof *workloads, MAX_ADDED = 8 };

// Workloads that main registered. Written before threads start, read-only afterwards.
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

// Adds brim's own workloads and environments. Runs before main, so that every program knows their config keys: a
// user of libbrim calls nothing before brim_config_open. A failure here is a bug in a row of brim.
static __attribute__((constructor)) void add_built_in(void) {
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

// Finds NAME in `env=NAME(...)` or `env=plugin:NAME` and returns its length; 0 = none, or no valid folder name.
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
  // the name has the workload too, since another workload may have run in this environment
  snprintf(out->name, sizeof out->name, "%.*s-%s", (int)length, name, table->name);
  return true;
}

//---------------------------------- opening ----------------------------------

// Reports with --verbose that gpu.empty_cache_freq has no effect, unless a preset set it.
static void say_nothing_to_empty(const brim_config *config) {
  const char *key = "gpu.empty_cache_freq";
  if (brim_config_int(config, key) == 0) return;
  if (brim_config_layer_of(config, key) == BRIM_CONFIG_FROM_PRESET) return;
  brim_log_info("workload", "%s: no cache to empty: brim allocates its planned memory once", key);
}

// Fails if the option of a knob does not begin with dashes: `bench` would never find it.
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

void brim_work_metrics_clear(const brim_metric_set *set, brim_work_metrics *out) {
  memset(out, 0, sizeof *out);
  out->set = set;
  brim_metric_unknown(out->values);
  brim_metric_unknown(out->baseline);
}

brim_work_trouble *brim_work_trouble_begin(brim_work_trouble *t, int kind, int64_t count) {
  memset(t, 0, sizeof *t);
  t->kind = kind;
  t->count = count;
  return t;
}
