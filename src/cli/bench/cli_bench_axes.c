// Which settings bench tries: what the config's benchmark section says (options are overrides of
// it), else powers of two that the plan allows, few workers, and mixed precision where it works.
// --benchmark-batch tries batch sizes alone, --all every knob that makes a difference here.
#include "cli/bench/cli_bench.h"

#include <string.h>

enum { MAX_DEFAULT_BATCHES = 10, BATCHES_OF_ALL = 3, STEP_OF_ALL = 3 };

static bool all_knobs(const bench *b) { return brim_option_flag(&b->cli->parse, "all", false); }

// `list`: the key the values come from, NULL when they were chosen here.
static brim_status check_value(bench *b, const brim_knob *knob, const char *list, int64_t value) {
  char typed[64];
  const char *name = list ? brim_cli_typed(b->cli, list, typed) : NULL;
  if (value >= knob->min && value <= knob->max) return BRIM_OK;
  if (name) b->cli->usage_error = true;
  return brim_fail(BRIM_EINVAL, "%s: %lld is not between %lld and %lld",
                   name   ? name
                   : list ? list
                          : knob->name,
                   (long long)value, (long long)knob->min, (long long)knob->max);
}

// A value that is given twice is measured once.
static brim_status add_axis(bench *b, int knob, const char *list, const int64_t *values,
                            size_t count) {
  const brim_knob *row = &b->job->work->knobs[knob];
  for (size_t i = 0; i < count; i++) BRIM_TRY(check_value(b, row, list, values[i]));
  int64_t *copy = brim_alloc(count * sizeof *copy);
  if (!copy) return brim_fail(BRIM_ENOMEM, "out of memory while choosing settings");
  size_t n = 0;
  for (size_t i = 0; i < count; i++) {
    bool known = false;
    for (size_t k = 0; k < n; k++) known = known || copy[k] == values[i];
    if (!known) copy[n++] = values[i];
  }
  // a list that was given, or a command whose name asks for it
  b->axes.named[knob] = list || brim_option_flag(&b->cli->parse, "benchmark-batch", false);
  b->axes.values[b->axes.count] = copy;
  b->axes.axis[b->axes.count++] = (brim_sweep_axis){knob, copy, n};
  return BRIM_OK;
}

void brim_cli_bench_axes_free(bench *b) {
  for (size_t i = 0; i < b->axes.count; i++) brim_free(b->axes.values[i]);
  memset(&b->axes, 0, sizeof b->axes);
  brim_sweep_settings_free(&b->settings);
}

// Does a setting's plan exist and fit in what is free?
static bool plan_fits(const bench *b, const brim_setting *setting) {
  const brim_cli_job *job = b->job;
  brim_plan plan;
  uint64_t free_bytes = 0, total_bytes = 0;
  if (job->work->table->plan(job->work->state, setting, &plan)) return false;
  if (brim_device_memory(job->device, &free_bytes, &total_bytes)) return false;
  uint64_t need = plan.bytes[BRIM_PLACE_DEVICE];
  if (job->device->info.host_memory) need += plan.bytes[BRIM_PLACE_HOST];
  return (double)need < 0.9 * (double)free_bytes;
}

static brim_status default_batches(bench *b, int knob) {
  int64_t values[MAX_DEFAULT_BATCHES];
  size_t count = 0;
  brim_setting setting = brim_work_setting(b->job->work);
  brim_work_info info;
  memset(&info, 0, sizeof info);
  b->job->work->table->info(b->job->work->state, &info);
  bool gpu = b->job->device->info.kind == BRIM_DEVICE_GPU;
  int64_t top = gpu ? 32768 : 4096;
  for (int64_t batch = gpu ? 64 : 32; batch <= top && count < MAX_DEFAULT_BATCHES; batch *= 2) {
    if (info.samples_per_epoch > 0 && batch > info.samples_per_epoch) break;
    setting.value[knob] = batch;
    if (!plan_fits(b, &setting)) break;
    values[count++] = batch;
  }
  // a set that fills none of them is one batch
  int64_t all = info.samples_per_epoch;
  if (count == 0 && all > 0 && all < (gpu ? 64 : 32)) values[count++] = all;
  brim_status_clear();  // a plan that does not exist was an answer, not an error
  if (count == 0) return BRIM_OK;
  if (all_knobs(
          b)) {  // with everything else varied a few have to do: the largest, 1/8 and 1/64 of it
    size_t n = (count - 1) / STEP_OF_ALL + 1;
    if (n > BATCHES_OF_ALL) n = BATCHES_OF_ALL;
    for (size_t i = 0; i < n; i++) values[i] = values[count - 1 - (n - 1 - i) * STEP_OF_ALL];
    count = n;
  }
  return add_axis(b, knob, NULL, values, count);
}

static brim_status default_workers(bench *b, int knob) {
  static const int64_t cpu[] = {0, 1, 2}, gpu[] = {2, 4, 8, 16};
  bool is_gpu = b->job->device->info.kind == BRIM_DEVICE_GPU;
  const int64_t *from = is_gpu ? gpu : cpu;
  size_t max = is_gpu ? 4 : 3, count = 0;
  int64_t cores = brim_cpu_count();
  while (count < max && from[count] <= cores) count++;
  if (all_knobs(b) && count > 2) {
    const int64_t ends[] = {from[0], from[count - 1]};
    return add_axis(b, knob, NULL, ends, 2);
  }
  return add_axis(b, knob, NULL, from, count ? count : 1);
}

static int choice_index(const brim_knob *knob, const char *name) {
  for (int i = 0; knob->choices && knob->choices[i]; i++) {
    if (strcmp(knob->choices[i], name) == 0) return i;
  }
  return -1;
}

static brim_status given_precisions(bench *b, int knob, const char *const *names, size_t count) {
  const brim_knob *row = &b->job->work->knobs[knob];
  int64_t values[16];
  size_t n = 0;
  for (size_t i = 0; i < count && n < 16; i++) {
    // auto is what the workload chose from the config for this device
    int index = strcmp(names[i], "auto") == 0 ? (int)row->value : choice_index(row, names[i]);
    if (index < 0) return brim_fail(BRIM_EINVAL, "precision %s is not known here", names[i]);
    values[n++] = index;
  }
  return add_axis(b, knob, "benchmark.precisions", values, n);
}

static brim_status precisions(bench *b, int knob) {
  const brim_config *config = b->job->config;
  const char *const *names;
  size_t count;
  BRIM_TRY(brim_config_get_strings(config, "benchmark.precisions", &names, &count));
  if (count > 0) return given_precisions(b, knob, names, count);
  if (!all_knobs(b) && !brim_config_bool(config, "benchmark.test_mixed_precision")) return BRIM_OK;
  const brim_knob *row = &b->job->work->knobs[knob];
  int full = choice_index(row, "fp32"), mixed = choice_index(row, "bf16");
  if (full < 0 || mixed < 0) return BRIM_OK;
  brim_setting setting = brim_work_setting(b->job->work);
  setting.value[knob] = mixed;
  brim_plan plan;
  if (b->job->work->table->plan(b->job->work->state, &setting, &plan)) {
    brim_cli_note(b->cli, brim_tr("no mixed precision: %s\n"), brim_status_detail());
    brim_status_clear();
    return BRIM_OK;
  }
  const int64_t values[] = {full, mixed};
  return add_axis(b, knob, NULL, values, 2);
}

static brim_status pinned(bench *b, int knob) {
  if (!all_knobs(b) && !brim_config_bool(b->job->config, "benchmark.test_pin_memory")) {
    return BRIM_OK;
  }
  if (b->job->device->info.host_memory) {
    brim_log_info("bench", "pinned memory makes no difference on this device; not swept");
    return BRIM_OK;
  }
  static const int64_t values[] = {1, 0};
  return add_axis(b, knob, NULL, values, 2);
}

static int64_t named_value(const brim_knob *knob, const char *name) {
  bool on = false;
  if (knob->kind == BRIM_KNOB_CHOICE) return choice_index(knob, name);
  return knob->kind == BRIM_KNOB_BOOL && brim_parse_bool(name, &on) ? on : -1;
}

// An axis of names, given by an option alone: --compile true false. The last one given counts.
static brim_status names(bench *b, const char *key, const char *option) {
  int knob = brim_work_knob(b->job->work, key);
  const brim_option_value *given = brim_option_find(&b->cli->parse, option);
  int64_t values[16];
  size_t n = 0;
  if (!given) return BRIM_OK;
  if (knob < 0) {
    return brim_cli_usage(b->cli, BRIM_N_("--%s: this workload has no such knob"), option);
  }
  for (size_t i = 0; i < given->count && n < 16; i++) {
    values[n] = named_value(&b->job->work->knobs[knob], given->values[i]);
    if (values[n++] >= 0) continue;
    return brim_cli_usage(b->cli, BRIM_N_("--%s: %.100s is not known here"), option,
                          given->values[i]);
  }
  BRIM_TRY(add_axis(b, knob, NULL, values, n));
  b->axes.named[knob] = true;
  return BRIM_OK;
}

// An axis of whole numbers from a list-typed key; `fallback` when the list is empty.
static brim_status ints(bench *b, const char *key, const char *list,
                        brim_status (*fallback)(bench *b, int knob)) {
  int knob = brim_work_knob(b->job->work, key);
  const int64_t *values;
  size_t count;
  if (knob < 0) return BRIM_OK;
  BRIM_TRY(brim_config_get_ints(b->job->config, list, &values, &count));
  if (count > 0) return add_axis(b, knob, list, values, count);
  return fallback ? fallback(b, knob) : BRIM_OK;
}

//---------------------------------- --all ----------------------------------

static bool has_plan(bench *b, int knob, int64_t value, brim_plan *plan) {
  brim_setting setting = brim_work_setting(b->job->work);
  setting.value[knob] = value;
  bool fine = !b->job->work->table->plan(b->job->work->state, &setting, plan);
  brim_status_clear();
  return fine;
}

// Two values of a knob that is not given by an option; those without a plan are left out.
static brim_status two_of(bench *b, const char *key, const char *const *words) {
  int knob = brim_work_knob(b->job->work, key);
  int64_t values[2];
  size_t n = 0;
  brim_plan plan;
  if (knob < 0) return BRIM_OK;
  for (size_t i = 0; i < 2; i++) {
    int64_t value = named_value(&b->job->work->knobs[knob], words[i]);
    if (value >= 0 && has_plan(b, knob, value, &plan)) values[n++] = value;
  }
  return n == 2 ? add_axis(b, knob, NULL, values, n) : BRIM_OK;
}

// The knobs that are swept only when asked for. One that changes nothing here is left alone.
static brim_status rest_of_all(bench *b) {
  static const char *const on_off[] = {"true", "false"}, *const off_on[] = {"false", "true"};
  static const char *const gpu[] = {"none", "gpu"}, *const host[] = {"none", "ram"};
  const brim_option_parse *parse = &b->cli->parse;
  brim_device *device = b->job->device;
  int knob = brim_work_knob(b->job->work, "training.checkpointing");
  if (!brim_option_find(parse, "compile") && brim_device_has_graphs(device)) {
    BRIM_TRY(two_of(b, "training.compile", on_off));
  }
  if (!brim_option_find(parse, "checkpointing") && knob >= 0) {
    brim_plan plan;
    int64_t on = named_value(&b->job->work->knobs[knob], "true");
    if (on >= 0 && has_plan(b, knob, on, &plan) && plan.recomputed > 0) {
      BRIM_TRY(two_of(b, "training.checkpointing", off_on));
    }
  }
  if (brim_option_find(parse, "cache")) return BRIM_OK;
  return two_of(b, "data.cache", device->info.host_memory ? host : gpu);
}

static brim_status two_prefetches(bench *b, int knob) {
  static const int64_t values[] = {2, 4};
  return all_knobs(b) ? add_axis(b, knob, NULL, values, 2) : BRIM_OK;
}

static brim_status two_accumulations(bench *b, int knob) {
  static const int64_t values[] = {1, 4};
  return all_knobs(b) ? add_axis(b, knob, NULL, values, 2) : BRIM_OK;
}

//---------------------------------- the workload's own ----------------------------------

static bool has_own_axes(const brim_work *work) {
  for (size_t i = 0; i < work->knob_count; i++) {
    if (work->knobs[i].axis) return true;
  }
  return false;
}

// The values of a knob: those of its list, else the workload's.
static brim_status own_axis(bench *b, int knob, brim_knob_sweep *sweep) {
  const brim_work *work = b->job->work;
  const brim_knob *row = &work->knobs[knob];
  int64_t values[BRIM_KNOB_AXIS];
  const int64_t *given = NULL;
  size_t count = 0;
  if (row->list) BRIM_TRY(brim_config_get_ints(b->job->config, row->list, &given, &count));
  if (count > 0) {
    BRIM_TRY(add_axis(b, knob, row->list, given, count));
  } else {
    size_t n = row->axis(work->state, sweep, values);
    if (n == 0) return BRIM_OK;
    BRIM_TRY(add_axis(b, knob, NULL, values, n));
  }
  const brim_sweep_axis *axis = &b->axes.axis[b->axes.count - 1];
  sweep->most.value[knob] = axis->values[0];
  for (size_t i = 1; i < axis->count; i++) {
    if (axis->values[i] > sweep->most.value[knob]) sweep->most.value[knob] = axis->values[i];
  }
  return BRIM_OK;
}

// A workload that knows its axes: by their order. Its batch is all of them together, so that
// --benchmark-batch is the same sweep.
static brim_status own_axes(bench *b) {
  const brim_work *work = b->job->work;
  brim_knob_sweep sweep = {.gpu = b->job->device->info.kind == BRIM_DEVICE_GPU,
                           .most = brim_work_setting(work)};
  bool taken[BRIM_KNOB_MAX] = {false};
  for (;;) {
    int next = -1;
    for (size_t i = 0; i < work->knob_count; i++) {
      if (!work->knobs[i].axis || taken[i]) continue;
      if (next < 0 || work->knobs[i].order < work->knobs[next].order) next = (int)i;
    }
    if (next < 0) return BRIM_OK;
    taken[next] = true;
    BRIM_TRY(own_axis(b, next, &sweep));
  }
}

//---------------------------------- --benchmark-batch ----------------------------------

// What asks for another axis on the same command line contradicts it; a config's lists do not.
static brim_status batch_alone(bench *b) {
  static const char *const others[] = {"num-workers",   "precisions", "compile",
                                       "checkpointing", "cache",      "all"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    if (!brim_option_find(&b->cli->parse, others[i])) continue;
    return brim_cli_usage(b->cli, BRIM_N_("--benchmark-batch and --%s contradict each other"),
                          others[i]);
  }
  if (has_own_axes(b->job->work)) return own_axes(b);
  if (brim_work_knob(b->job->work, "data.batch_size") < 0) {
    return brim_cli_usage(b->cli, BRIM_N_("--%s: this workload has no such knob"),
                          "benchmark-batch");
  }
  return ints(b, "data.batch_size", "benchmark.batch_sizes", default_batches);
}

static brim_status choose_axes(bench *b) {
  const brim_work *work = b->job->work;
  if (brim_option_flag(&b->cli->parse, "benchmark-batch", false)) return batch_alone(b);
  if (has_own_axes(work)) return own_axes(b);
  int precision = brim_work_knob(work, "training.precision");
  int pin = brim_work_knob(work, "data.pin_memory");
  if (precision >= 0) BRIM_TRY(precisions(b, precision));
  if (pin >= 0) BRIM_TRY(pinned(b, pin));
  BRIM_TRY(names(b, "training.compile", "compile"));
  BRIM_TRY(names(b, "training.checkpointing", "checkpointing"));
  BRIM_TRY(names(b, "data.cache", "cache"));
  if (all_knobs(b)) BRIM_TRY(rest_of_all(b));
  BRIM_TRY(ints(b, "data.prefetch_factor", "benchmark.prefetch_options", two_prefetches));
  BRIM_TRY(ints(b, "training.gradient_accumulation_steps", "benchmark.accumulation_options",
                two_accumulations));
  BRIM_TRY(ints(b, "data.num_workers", "benchmark.num_workers_options", default_workers));
  return ints(b, "data.batch_size", "benchmark.batch_sizes", default_batches);
}

brim_status brim_cli_bench_axes(bench *b) {
  brim_status status = choose_axes(b);
  if (!status) {
    status =
        brim_sweep_settings_make(b->job->work, b->axes.axis, b->axes.count, true, &b->settings);
  }
  if (status) brim_cli_bench_axes_free(b);
  return status;
}
