// Which values of its knobs a sweep tries for a workload that trains a network on data, where the user
// names none: powers of two that the plan allows, few workers, mixed precision where it works. With
// `all`, a few values of every knob that makes a difference here.
#include <string.h>

#include "workload/workload_cache.h"
#include "workload/workload_learn.h"

enum { MAX_BATCHES = 10, BATCHES_OF_ALL = 3, STEP_OF_ALL = 3 };
_Static_assert((int)MAX_BATCHES <= (int)BRIM_KNOB_AXIS, "all default batches fit an axis");

//---------------------------------- plans ----------------------------------

static bool has_plan(const brim_knob_sweep *sweep, int knob, int64_t value, brim_plan *plan) {
  const brim_work *work = sweep->work;
  brim_setting setting = brim_work_setting(work);
  setting.value[knob] = value;
  bool fine = !work->table->plan(work->state, &setting, plan);
  brim_status_clear();
  return fine;
}

// Does a batch's plan exist and fit in what is free?
static bool batch_fits(const brim_knob_sweep *sweep, int64_t batch) {
  brim_device *device = sweep->work->context.device;
  brim_plan plan;
  uint64_t free_bytes = 0, total_bytes = 0;
  if (!has_plan(sweep, BRIM_LEARN_BATCH, batch, &plan)) return false;
  if (sweep->card_bytes > 0) {
    return (double)plan.bytes[BRIM_PLACE_DEVICE] < 0.9 * sweep->card_bytes;
  }
  if (brim_device_memory(device, &free_bytes, &total_bytes)) return false;
  uint64_t need = plan.bytes[BRIM_PLACE_DEVICE];
  if (device->info.host_memory) need += plan.bytes[BRIM_PLACE_HOST];
  return (double)need < 0.9 * (double)free_bytes;
}

// Two values of a knob, where both have a plan.
static size_t two_of(const brim_knob_sweep *sweep, int knob, int64_t a, int64_t b,
                     int64_t *values) {
  brim_plan plan;
  if (!has_plan(sweep, knob, a, &plan) || !has_plan(sweep, knob, b, &plan)) return 0;
  values[0] = a;
  values[1] = b;
  return 2;
}

//---------------------------------- axes ----------------------------------

size_t brim_learn_batches(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  size_t count = 0;
  brim_work_info info;
  memset(&info, 0, sizeof info);
  sweep->work->table->info(state, &info);
  int64_t all = info.samples_per_epoch, top = sweep->gpu ? 32768 : 4096;
  int64_t least = sweep->gpu ? 64 : 32;
  for (int64_t batch = least; batch <= top && count < MAX_BATCHES; batch *= 2) {
    if ((all > 0 && batch > all) || !batch_fits(sweep, batch)) break;
    values[count++] = batch;
  }
  // a set that fills none of them is one batch
  if (count == 0 && all > 0 && all < least) values[count++] = all;
  brim_status_clear();  // a plan that does not exist was an answer, not an error
  if (count == 0 || !sweep->all) return count;
  // with everything else varied a few have to do: the largest, 1/8 and 1/64 of it
  size_t n = (count - 1) / STEP_OF_ALL + 1;
  if (n > BATCHES_OF_ALL) n = BATCHES_OF_ALL;
  for (size_t i = 0; i < n; i++) values[i] = values[count - 1 - (n - 1 - i) * STEP_OF_ALL];
  return n;
}

size_t brim_learn_workers(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  static const int64_t cpu[] = {0, 1, 2}, gpu[] = {2, 4, 8, 16};
  const int64_t *from = sweep->gpu ? gpu : cpu;
  size_t max = sweep->gpu ? 4 : 3, count = 0;
  int64_t cores = brim_cpu_count();
  (void)state;
  for (; count < max && from[count] <= cores; count++) values[count] = from[count];
  if (count == 0) values[count++] = from[0];
  if (!sweep->all || count <= 2) return count;
  values[1] = values[count - 1];  // the ends of them
  return 2;
}

static int64_t precision_of(const brim_knob_sweep *sweep, const char *name) {
  const char *const *choices = sweep->work->knobs[BRIM_LEARN_PRECISION].choices;
  int64_t i = 0;
  while (choices[i] && strcmp(choices[i], name) != 0) i++;
  return i;
}

size_t brim_learn_precisions(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  if (!sweep->all && !brim_config_bool(sweep->config, "benchmark.test_mixed_precision")) return 0;
  values[0] = precision_of(sweep, "fp32");
  values[1] = precision_of(sweep, "bf16");
  brim_setting setting = brim_work_setting(sweep->work);
  setting.value[BRIM_LEARN_PRECISION] = values[1];
  brim_plan plan;
  if (!sweep->work->table->plan(state, &setting, &plan)) return 2;
  if (sweep->note) {
    snprintf(sweep->note, sweep->note_size, brim_tr("no mixed precision: %s\n"),
             brim_status_detail());
  }
  brim_status_clear();
  return 0;
}

size_t brim_learn_pinned(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  (void)state;
  if (!sweep->all && !brim_config_bool(sweep->config, "benchmark.test_pin_memory")) return 0;
  if (sweep->work->context.device->info.host_memory) {
    brim_log_info("bench", "pinned memory makes no difference on this device; not swept");
    return 0;
  }
  values[0] = 1;
  values[1] = 0;
  return 2;
}

size_t brim_learn_compiled(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  (void)state;
  if (!sweep->all || !brim_device_has_graphs(sweep->work->context.device)) return 0;
  return two_of(sweep, BRIM_LEARN_COMPILE, 1, 0, values);
}

// Of a model that has something to recompute.
size_t brim_learn_checkpointed(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  brim_plan plan;
  (void)state;
  if (!sweep->all) return 0;
  bool planned = has_plan(sweep, BRIM_LEARN_CHECKPOINTING, BRIM_RECOMPUTE_ALL, &plan);
  if (!planned || plan.recomputed <= 0) return 0;
  return two_of(sweep, BRIM_LEARN_CHECKPOINTING, BRIM_RECOMPUTE_NONE, BRIM_RECOMPUTE_ALL, values);
}

size_t brim_learn_cached(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  (void)state;
  if (!sweep->all) return 0;
  bool host = sweep->work->context.device->info.host_memory;
  return two_of(sweep, BRIM_LEARN_CACHE, BRIM_CACHE_NONE, host ? BRIM_CACHE_RAM : BRIM_CACHE_GPU,
                values);
}

// One, half and all; a number that the user gave stays.
size_t brim_learn_threads(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  const brim_device *device = sweep->work->context.device;
  const int64_t all = device->info.threads;
  (void)state;
  if (sweep->gpu || !device->backend->set_threads || all < 2 ||
      brim_config_int(sweep->config, "threads") > 0) {
    return 0;
  }
  size_t count = 0;
  values[count++] = 1;
  if (all > 2 && !sweep->all) values[count++] = all / 2;
  values[count++] = all;
  return count;
}

size_t brim_learn_prefetches(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  (void)state;
  if (!sweep->all) return 0;
  values[0] = 2;
  values[1] = 4;
  return 2;
}

size_t brim_learn_accumulations(void *state, const brim_knob_sweep *sweep, int64_t *values) {
  (void)state;
  if (!sweep->all) return 0;
  values[0] = 1;
  values[1] = 4;
  return 2;
}
