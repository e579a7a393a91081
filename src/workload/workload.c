// The small things every caller needs of a workload object.
#include "workload/workload.h"

#include <inttypes.h>
#include <string.h>

#include "workload/workload_int.h"

// A list of transforms reads like one pipeline, and is so many alternatives.
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

// The largest batch_size that a step of the training set can have; INT64_MAX where it is not known.
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
  brim_status_clear();  // of plans that failed
  if (set_samples && capped && fits == most) *set_samples = samples;
  return fits;
}

bool brim_work_shrink_to(const brim_work *work, brim_setting *setting, uint64_t limit) {
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
  // a device that does not know is asked when it is built
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

// The row of the plan that takes most of the memory in question.
static void largest_row_text(const brim_work *work, const brim_plan *plan, char out[160]) {
  bool both = work->context.device->info.host_memory;
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
  if (strcmp(a, b) == 0) {  // they differ by less than this shows
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
