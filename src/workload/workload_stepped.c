// Rows of the tables of workloads that step a network over a data set: what their stepper does.
#include "workload/workload_stepped.h"

#include "workload/workload_cache.h"

static brim_stepper *stepper_of(const void *work) { return ((const brim_stepped *)work)->stepper; }

static brim_checkpoint_facts facts_of(const void *work) {
  return ((const brim_stepped *)work)->facts(work);
}

//---------------------------------- stepping ----------------------------------

brim_status brim_stepped_step(void *work, const brim_spans *spans, brim_step_info *out) {
  BRIM_TRY(brim_stepper_tell(stepper_of(work), BRIM_CALL_STEP, 0));
  return brim_stepper_step(stepper_of(work), spans, out);
}

void brim_stepped_stops(void *work, const volatile sig_atomic_t *stop) {
  stepper_of(work)->stop = stop;
}

brim_status brim_stepped_metrics(void *work, bool reset, brim_work_metrics *out) {
  BRIM_TRY(brim_stepper_tell(stepper_of(work), BRIM_CALL_METRICS, reset));
  return brim_stepper_metrics(stepper_of(work), reset, out);
}

void brim_stepped_figures(void *work, const double *sums, double *values) {
  brim_stepper_figures(stepper_of(work), sums, values);
}

brim_status brim_stepped_snapshot(void *work) {
  BRIM_TRY(brim_stepper_tell(stepper_of(work), BRIM_CALL_SNAPSHOT, 0));
  return brim_stepper_snapshot(stepper_of(work));
}

brim_status brim_stepped_restore(void *work) {
  BRIM_TRY(brim_stepper_tell(stepper_of(work), BRIM_CALL_RESTORE, 0));
  return brim_stepper_restore(stepper_of(work));
}

//---------------------------------- loading ----------------------------------

static brim_status load_only(void *work, brim_step_info *out) {
  BRIM_TRY(brim_stepper_tell(stepper_of(work), BRIM_CALL_LOAD_ONLY, 0));
  return brim_stepper_load_only(stepper_of(work), out);
}

static brim_status compute_only(void *work, int steps, int64_t *ns, brim_step_info *out) {
  BRIM_TRY(brim_stepper_tell(stepper_of(work), BRIM_CALL_COMPUTE_ONLY, steps));
  return brim_stepper_compute_only(stepper_of(work), steps, ns, out);
}

static void loader_stats(void *work, brim_work_loading *out) {
  brim_stepper_stats(stepper_of(work), ((const brim_stepped *)work)->data, out);
}

const brim_work_loading_table brim_stepped_loading = {
    .load_only = load_only, .compute_only = compute_only, .stats = loader_stats};

static void share(void *work, int rank, int world) {
  const brim_stepped *s = (const brim_stepped *)work;
  s->loader->rank = rank;
  s->loader->world = world;
  s->data->has_planned = false;  // less memory may be another place for the data
}

static void drop(void *work) {
  brim_stepper_drop(stepper_of(work));
  brim_work_drop_residents(((const brim_stepped *)work)->data);
}

static brim_status give(void *work, bool weights_only) {
  return brim_stepper_give(stepper_of(work), weights_only);
}

const brim_work_ranks_table brim_stepped_ranks = {.share = share,
                                                  .drop = drop,
                                                  .give = give,
                                                  .lead = brim_stepped_lead,
                                                  .follow = brim_stepped_follow};

//---------------------------------- checkpoints ----------------------------------

brim_status brim_stepped_save(void *work, const char *path, const json_t *extra,
                              bool weights_only) {
  const brim_checkpoint_facts facts = facts_of(work);
  return brim_stepper_save(stepper_of(work), &facts, path, extra, weights_only);
}

static brim_status hold(void *work, const json_t *extra, bool weights_only, brim_work_held *out) {
  const brim_checkpoint_facts facts = facts_of(work);
  return brim_stepper_hold(stepper_of(work), &facts, extra, weights_only, out);
}

const brim_work_background_table brim_stepped_background = {.hold = hold};

brim_status brim_stepped_load(void *work, const char *path, json_t **extra) {
  const brim_checkpoint_facts facts = facts_of(work);
  return brim_stepper_load(stepper_of(work), &facts, path, extra);
}

brim_status brim_stepped_use(void *work, const char *path, bool averaged) {
  return brim_stepper_use(stepper_of(work), path, averaged);
}

//---------------------------------- diagnoses ----------------------------------

static size_t watch_take(void *work, const brim_work_moment *at,
                         brim_work_trouble out[BRIM_WORK_MAX_TROUBLES]) {
  return brim_net_watch_take(&stepper_of(work)->watch, at, out);
}

static void watch_advice(void *work, const int64_t *counts, double lr, char *out, size_t size) {
  brim_net_watch_advice(&stepper_of(work)->watch, counts, lr, out, size);
}

static brim_status watch_lost(void *work, int64_t epoch, double lr) {
  return brim_net_watch_lost(&stepper_of(work)->watch, epoch, lr);
}

static brim_status watch_put(void *work, const int64_t *times, json_t *metadata) {
  return brim_net_watch_put(&stepper_of(work)->watch, times, metadata);
}

static void watch_get(void *work, const json_t *metadata, int64_t skipped, int64_t *times) {
  brim_net_watch_get(&stepper_of(work)->watch, metadata, skipped, times);
}

const brim_work_diagnosis brim_stepped_diagnosis = {.rows = brim_net_troubles,
                                                    .count = BRIM_NET_TROUBLES,
                                                    .take = watch_take,
                                                    .advice = watch_advice,
                                                    .lost = watch_lost,
                                                    .put = watch_put,
                                                    .get = watch_get};

//---------------------------------- knobs ----------------------------------

static bool loader_matters(void *work, const brim_setting *setting) {
  const brim_stepped *s = (const brim_stepped *)work;
  return brim_learn_loader_matters(s->data->context.device, setting, s->cache_of, work);
}

static bool pin_matters(void *work, const brim_setting *setting) {
  const brim_stepped *s = (const brim_stepped *)work;
  return !s->data->context.device->info.host_memory && loader_matters(work, setting);
}

static bool prefetch_matters(void *work, const brim_setting *setting) {
  return setting->value[BRIM_LEARN_WORKERS] > 0 && loader_matters(work, setting);
}

const brim_learn_matters brim_stepped_matters = {
    .workers = loader_matters, .pin = pin_matters, .prefetch = prefetch_matters};
