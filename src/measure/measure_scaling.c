// One setting on several devices at once: a thread for each, which warms up, continues stepping, is
// measured when all of them are warm, and continues until all were measured. No device waits for
// another in a step: measure_exchange.c has the same with the exchange of gradients.
//
// The calling thread leads by one number that only grows (stage); each thread answers with one that
// only grows, too (reached).
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "measure/measure_int.h"

enum { STEADY = 5, LEAST_GROUPS = 3, MAX_GROUP = 10000 };
// On a GPU the clock is looked at when so much work is done: looking costs a wait.
#define GROUP_MS 50.0
#define POLL_NS 2000000

typedef enum stage { WARMING, MEASURING, COMPUTING, LEAVING } stage;
typedef enum reached { COLD, WARM, MEASURED, COMPUTED, LEFT } reached;

typedef struct lane {
  const brim_replica *replica;
  brim_scaling_replica *out;
  const brim_scaling_options *options;
  const atomic_int *stage;
  atomic_int reached;
  brim_thread *thread;
  bool gpu;
  int ring;  // steps whose data the loader may have ready
  double per_epoch_rows;
  brim_phase_timer timer;
  brim_event *mark;
  int group;       // steps between two looks at the clock
  brim_time seen;  // when the device had done all but the last step
  int64_t waited_ns;
  // measured
  int64_t steps, rows, ns, first_half_steps, first_half_ns;
  double device_ms;  // a step of the device alone; NaN = unknown
  brim_status status;
  char detail[512];
  brim_result parts;  // scratch: what was waited for is computed from a result
} lane;

typedef struct crew {
  lane *lanes;
  size_t count;
  atomic_int stage;
  const brim_scaling_options *options;
} crew;

//---------------------------------- stepping ----------------------------------

static stage asked(const lane *l) { return (stage)atomic_load(l->stage); }

static brim_status one_step(lane *l, brim_step_info *info) {
  const brim_work *work = l->replica->work;
  return work->table->step(work->state, &l->timer.spans, info);
}

// A GPU is left with its last step running, as in training; the host's steps end with themselves.
static brim_status group_of_steps(lane *l, int64_t *rows) {
  brim_device *device = l->replica->device;
  brim_step_info info;
  *rows = 0;
  for (int i = 0; i < l->group && (i == 0 || asked(l) != LEAVING); i++) {
    bool last = i + 1 == l->group;
    if (l->gpu && last) BRIM_TRY(brim_event_record(device, l->mark));
    BRIM_TRY(one_step(l, &info));
    *rows += info.samples;
  }
  brim_time from = brim_clock_now();
  BRIM_TRY(l->gpu ? brim_event_sync(device, l->mark) : brim_device_sync(device));
  l->seen = brim_clock_now();
  l->waited_ns += brim_time_since_ns(from, l->seen);
  return BRIM_OK;
}

static brim_status warm_up(lane *l) {
  double last[STEADY] = {0};
  const brim_scaling_options *o = l->options;
  double most_s = o->max_seconds > 0 ? o->max_seconds : 15;
  int least = l->ring + 2 > STEADY ? l->ring + 2 : STEADY;
  int most = o->max_warmup > 0 ? o->max_warmup : 20;
  brim_time start = brim_clock_now();
  for (int i = 0; i < (most > least ? most : least) && asked(l) == WARMING; i++) {
    brim_step_info info;
    brim_time from = brim_clock_now();
    BRIM_TRY(one_step(l, &info));
    BRIM_TRY(brim_device_sync(l->replica->device));
    brim_time now = brim_clock_now();
    last[i % STEADY] = (double)brim_time_since_ns(from, now) * 1e-6;
    if (l->gpu) {
      double step_ms = fmax(last[i % STEADY], 1e-6);
      l->group = (int)fmin(MAX_GROUP, fmax(1, ceil(GROUP_MS / step_ms)));
    }
    if ((double)brim_time_since_ns(start, now) * 1e-9 > most_s && i > 0) break;
    if (i + 1 < least) continue;
    double low = last[0], high = last[0];
    for (int k = 1; k < STEADY; k++) {
      low = fmin(low, last[k]);
      high = fmax(high, last[k]);
    }
    if (high <= 1.05 * low) break;
  }
  return BRIM_OK;
}

static brim_status keep_on(lane *l, stage until) {
  int64_t rows;
  while (asked(l) < until) BRIM_TRY(group_of_steps(l, &rows));
  return BRIM_OK;
}

static brim_status measure(lane *l) {
  int64_t rows, window_ns = (int64_t)(1e9 * (l->options->seconds > 0 ? l->options->seconds : 1.5));
  BRIM_TRY(group_of_steps(l, &rows));  // on a GPU the clock starts with a group behind it
  brim_time start = l->seen;
  brim_phase_timer_reset(&l->timer);
  l->waited_ns = 0;
  for (int i = 0; (i < LEAST_GROUPS || l->ns < window_ns) && asked(l) == MEASURING; i++) {
    BRIM_TRY(group_of_steps(l, &rows));
    l->rows += rows;
    l->steps += l->group;
    l->ns = brim_time_since_ns(start, l->seen);
    if (2 * l->ns <= window_ns || i == 0) {
      l->first_half_steps = l->steps;
      l->first_half_ns = l->ns;
    }
  }
  return BRIM_OK;
}

// The device alone, while all the others compute alone, too: what a step takes beyond that was waited
// for, and what that takes more than on one device is the devices' own (power, clocks).
static brim_status compute(lane *l) {
  const brim_work *work = l->replica->work;
  brim_step_info info;
  int64_t ns = 0;
  int steps = l->group;
  const brim_work_loading_table *loading = work->table->loading;
  if (!loading) return BRIM_OK;
  BRIM_TRY(loading->compute_only(work->state, 2, &ns, &info));
  BRIM_TRY(loading->compute_only(work->state, steps, &ns, &info));
  if (ns > 0) l->device_ms = (double)ns * 1e-6 / steps;
  atomic_store(&l->reached, COMPUTED);
  while (asked(l) == COMPUTING) {
    BRIM_TRY(loading->compute_only(work->state, steps, &ns, &info));
  }
  return BRIM_OK;
}

static brim_status run_lane(lane *l) {
  BRIM_TRY(warm_up(l));
  atomic_store(&l->reached, WARM);
  BRIM_TRY(keep_on(l, MEASURING));
  if (asked(l) == LEAVING) return brim_device_sync(l->replica->device);
  BRIM_TRY(measure(l));
  // taken before the steps that only keep the others company
  memcpy(l->parts.phase_used, l->timer.used, sizeof l->timer.used);
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    l->parts.phase_ms[p].mean = (double)l->timer.ns[p] * 1e-6;
  }
  l->parts.seconds = (double)l->waited_ns * 1e-9;
  atomic_store(&l->reached, MEASURED);
  BRIM_TRY(keep_on(l, COMPUTING));
  BRIM_TRY(brim_device_sync(l->replica->device));
  return l->gpu && asked(l) == COMPUTING ? compute(l) : BRIM_OK;
}

static void lane_main(void *ctx) {
  lane *l = ctx;
  l->status = run_lane(l);
  if (l->status) snprintf(l->detail, sizeof l->detail, "%s", brim_status_detail());
  atomic_store(&l->reached, LEFT);
}

//---------------------------------- leading ----------------------------------

static bool all_reached(const crew *c, reached at) {
  for (size_t i = 0; i < c->count; i++) {
    if (c->lanes[i].thread && atomic_load(&c->lanes[i].reached) < (int)at) return false;
  }
  return true;
}

static bool stopped(const crew *c) { return c->options->stop && *c->options->stop; }

// False when it was stopped.
static bool wait_for(const crew *c, reached at) {
  for (int polls = 0; !all_reached(c, at); polls++) {
    if (stopped(c)) return false;
    if (c->options->on_wait && polls % 100 == 0) c->options->on_wait(c->options->ctx);
    brim_clock_sleep_ns(POLL_NS);
  }
  return true;
}

static brim_status lead(crew *c) {
  bool gpus = false;
  for (size_t i = 0; i < c->count; i++) {
    lane *l = &c->lanes[i];
    if (!l->replica) continue;
    gpus = gpus || l->gpu;
    brim_status status = brim_thread_start(lane_main, l, "brim-replica", &l->thread);
    if (status) {  // it is reported as this replica's
      l->status = status;
      snprintf(l->detail, sizeof l->detail, "%s", brim_status_detail());
    }
  }
  bool on = wait_for(c, WARM);
  if (on) {
    atomic_store(&c->stage, MEASURING);
    on = wait_for(c, MEASURED);
  }
  if (on && gpus) {
    atomic_store(&c->stage, COMPUTING);
    on = wait_for(c, COMPUTED);
  }
  atomic_store(&c->stage, LEAVING);
  for (size_t i = 0; i < c->count; i++) {
    brim_thread_join(c->lanes[i].thread);
    c->lanes[i].thread = NULL;
  }
  return on ? BRIM_OK : brim_fail(BRIM_EINTERRUPTED, "interrupted");
}

//---------------------------------- building ----------------------------------

// Steps that a part of the data cannot fill compute other rows than the setting says.
static brim_status check_filled(const brim_work *work, const brim_setting *setting,
                                const brim_work_info *info, size_t count) {
  double rows = (double)brim_work_value_as(work, setting, BRIM_ROLE_BATCH, 0) *
                (double)brim_work_value_as(work, setting, BRIM_ROLE_ACCUMULATION, 1);
  if (info->samples_per_epoch <= 0 || rows <= (double)info->samples_per_epoch) return BRIM_OK;
  return brim_fail(BRIM_EINVAL,
                   "each of %zu devices has %lld samples of an epoch, fewer than one step of %.0f",
                   count, (long long)info->samples_per_epoch, rows);
}

brim_status brim_replica_build(brim_replica *r, size_t rank, size_t count,
                               const brim_setting *setting, const brim_scaling_options *o,
                               brim_replica_built *b) {
  const brim_workload_table *table = r->work->table;
  brim_plan *plan = &b->plan;
  brim_work_info *info = &b->info;
  if (table->ranks) table->ranks->share(r->work->state, (int)rank, (int)count);
  memset(plan, 0, sizeof *plan);
  BRIM_TRY(table->plan(r->work->state, setting, plan));
  brim_fit fit = {.work = r->work,
                  .config = o->config,
                  .setting = setting,
                  .plan = plan,
                  .limit = o->memory_limit,
                  .watch = r->memory};
  b->refused = true;  // nothing was asked of the device yet
  BRIM_TRY(brim_fit_check(&fit));
  b->refused = false;
  if (r->memory) r->memory->held = 0;
  brim_status status = table->configure(r->work->state, setting);
  if (status == BRIM_EOOM) return brim_fit_explain(&fit, true);
  if (status) return status;
  if (r->memory && r->memory->uuid[0]) r->memory->held = plan->bytes[BRIM_PLACE_DEVICE];
  memset(info, 0, sizeof *info);
  table->info(r->work->state, info);
  return check_filled(r->work, setting, info, count);
}

int brim_replica_ring(const brim_work *work, const brim_setting *setting) {
  return (int)(brim_work_value_as(work, setting, BRIM_ROLE_WORKERS, 0) *
               brim_work_value_as(work, setting, BRIM_ROLE_PREFETCH, 1) /
               brim_work_value_as(work, setting, BRIM_ROLE_ACCUMULATION, 1));
}

static brim_status begin_lane(lane *l, brim_replica *r, const brim_work_info *info,
                              const brim_setting *setting) {
  l->gpu = !r->device->info.host_memory;
  l->group = 1;
  l->device_ms = (double)NAN;
  l->ring = brim_replica_ring(r->work, setting);
  if (info->steps_per_epoch > 0) {
    l->per_epoch_rows = (double)info->samples_per_epoch / (double)info->steps_per_epoch;
  }
  brim_phase_timer_init(&l->timer);
  l->timer.spans.exact = !l->gpu;
  brim_result_init(&l->parts);
  return l->gpu ? brim_event_create(r->device, &l->mark) : BRIM_OK;
}

static void fail_replica(brim_scaling_replica *out, brim_failure failure, brim_status status,
                         const char *message) {
  out->failure = failure;
  out->failure_status = status;
  snprintf(out->message, sizeof out->message, "%s", message);
}

static brim_status build_all(crew *c, brim_replica *replicas, const brim_setting *setting,
                             brim_scaling *out) {
  for (size_t i = 0; i < c->count; i++) {
    brim_replica_built b = {.refused = false};
    brim_replica *r = &replicas[i];
    brim_scaling_replica *o = &out->replicas[i];
    lane *l = &c->lanes[i];
    snprintf(o->spec, sizeof o->spec, "%s", r->spec);
    if (r->device) snprintf(o->device, sizeof o->device, "%s", r->device->info.name);
    if (r->device) snprintf(o->device_id, sizeof o->device_id, "%s", r->device->info.id);
    if (stopped(c)) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
    if (r->status || !r->work) {
      // one that is not there has not crashed
      brim_failure failure = brim_trial_class(r->status);
      bool memory = failure == BRIM_FAILURE_OOM_DEVICE || failure == BRIM_FAILURE_OOM_HOST;
      fail_replica(o, memory || r->work ? failure : BRIM_FAILURE_OTHER, r->status, r->message);
      continue;
    }
    l->out = o;
    l->options = c->options;
    l->stage = &c->stage;
    brim_status status = brim_replica_build(r, i, c->count, setting, c->options, &b);
    if (i == 0 && !status) out->result.plan = b.plan;
    if (!status) status = begin_lane(l, r, &b.info, setting);
    if (status == BRIM_EINTERRUPTED) return status;
    if (status) {
      bool planned = status == BRIM_EOOM && b.refused;
      fail_replica(o, planned ? BRIM_FAILURE_OOM_PLANNED : brim_trial_class(status), status,
                   brim_status_detail());
      brim_status_clear();
      continue;
    }
    l->replica = r;
  }
  return BRIM_OK;
}

//---------------------------------- summing up ----------------------------------

static bool computes(int phase) {
  return phase == BRIM_PHASE_FORWARD || phase == BRIM_PHASE_BACKWARD ||
         phase == BRIM_PHASE_OPTIMIZER || phase == BRIM_PHASE_COMPUTE;
}

// Of a GPU all that it computes is one phase here: telling it apart would need steps that wait.
static void take_phases(lane *l) {
  brim_result *r = &l->parts;
  double steps = (double)l->steps, total = (double)l->ns * 1e-6, waited = r->seconds * 1e3;
  double covered = 0, compute_ms = l->gpu ? waited : 0;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    covered += r->phase_ms[p].mean;
    if (!l->gpu || !(computes(p) || p == BRIM_PHASE_TRANSFORM)) continue;
    compute_ms += r->phase_ms[p].mean;
    r->phase_ms[p].mean = 0;
    r->phase_used[p] = false;
  }
  if (l->gpu) {
    covered += waited;
    r->phase_ms[BRIM_PHASE_COMPUTE].mean = compute_ms;
    r->phase_used[BRIM_PHASE_COMPUTE] = true;
  }
  r->phase_ms[BRIM_PHASE_OTHER].mean += fmax(0, total - covered);
  r->phase_used[BRIM_PHASE_OTHER] = true;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) r->phase_ms[p].mean /= steps;
  r->total_ms.mean = r->total_ms.median = total / steps;
  if (!(l->device_ms > 0)) return;
  r->plan.samples_per_step = l->out->rows;
  r->compute_samples_per_s = l->out->rows / (l->device_ms * 1e-3);
  brim_ceilings_expose(r);
}

static void take_lane(lane *l) {
  brim_scaling_replica *o = l->out;
  if (l->steps == 0 || l->ns <= 0) return;
  double steps = (double)l->steps, first = (double)l->first_half_steps;
  o->rows = l->per_epoch_rows > 0 ? l->per_epoch_rows : (double)l->rows / steps;
  take_phases(l);
  o->step_ms = l->parts.total_ms.mean;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    if (l->parts.phase_used[p]) o->phase_ms[p] = l->parts.phase_ms[p].mean;
  }
  o->samples_per_s = o->rows / (o->step_ms * 1e-3);
  double early = first / (double)l->first_half_ns;
  double late = (steps - first) / (double)(l->ns - l->first_half_ns);
  o->stable = l->steps == l->first_half_steps || (early <= 1.1 * late && late <= 1.1 * early);
}

static void take_failure(lane *l, brim_replica *r) {
  if (!l->status || l->status == BRIM_EINTERRUPTED) return;
  brim_failure failure = brim_trial_class(l->status);
  if (failure == BRIM_FAILURE_BAD_CONFIG) failure = BRIM_FAILURE_OTHER;  // the setting stood
  l->out->samples_per_s = l->out->step_ms = (double)NAN;
  fail_replica(l->out, failure, l->status, l->detail);
  if (failure != BRIM_FAILURE_CRASH) return;
  r->status = l->status;
  snprintf(r->message, sizeof r->message, "%s", l->detail);
}

// Means over the replicas that ran; `stable` when all were, and none fell out on the way.
static void sum_up(crew *c, brim_scaling *out) {
  brim_result *r = &out->result;
  double total = 0, batch = 0, step_ms = 0, phase_ms[BRIM_PHASE_COUNT] = {0};
  r->stable = true;
  for (size_t i = 0; i < c->count; i++) {
    const brim_scaling_replica *o = &out->replicas[i];
    const lane *l = &c->lanes[i];
    if (l->replica && !(o->samples_per_s > 0)) r->stable = false;
    if (!(o->samples_per_s > 0)) continue;
    out->ran++;
    total += o->samples_per_s;
    batch += o->rows;
    step_ms += o->step_ms;
    r->stable = r->stable && o->stable;
    r->steps += (int)l->steps;
    r->seconds = isnan(r->seconds) ? (double)l->ns * 1e-9 : fmax(r->seconds, (double)l->ns * 1e-9);
    for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
      if (isnan(o->phase_ms[p])) continue;
      r->phase_used[p] = true;
      phase_ms[p] += o->phase_ms[p];
    }
  }
  r->repeats = 1;
  if (out->ran == 0) return;
  r->samples_per_s = total;
  out->each = total / out->ran;
  out->effective_batch = batch;
  r->total_ms.mean = step_ms / out->ran;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    if (r->phase_used[p]) r->phase_ms[p].mean = phase_ms[p] / out->ran;
  }
}

// The setting as such failed when nothing ran, or nothing beside the first.
static void class_result(brim_scaling *out) {
  if (out->ran == out->devices || (out->ran > 1 && out->devices > 1)) return;
  brim_result *r = &out->result;
  for (int i = 0; i < out->devices; i++) {
    const brim_scaling_replica *o = &out->replicas[i];
    if (!o->failure) continue;
    r->failure = o->failure;
    r->failure_status = o->failure_status;
    snprintf(r->message, sizeof r->message, "%s: %s", o->spec, o->message);
    return;
  }
}

static size_t standing(const crew *c) {
  size_t count = 0;
  for (size_t i = 0; i < c->count; i++) count += c->lanes[i].replica != NULL;
  return count;
}

static brim_status run_crew(crew *c, brim_replica *replicas, const brim_setting *setting,
                            brim_scaling *out) {
  brim_status status = build_all(c, replicas, setting, out);
  // one that is left of several is what one alone was
  bool worth = standing(c) > (c->count > 1 ? 1 : 0);
  if (!status && worth) status = lead(c);
  for (size_t i = 0; i < c->count; i++) {
    lane *l = &c->lanes[i];
    if (!l->replica) continue;
    brim_event_destroy(l->replica->device, l->mark);
    if (status || !worth) continue;
    take_lane(l);
    take_failure(l, &replicas[i]);
  }
  if (status) return status;
  sum_up(c, out);
  class_result(out);
  return BRIM_OK;
}

// What and where: of the first that is there.
static brim_status identify(brim_replica *replicas, size_t count, const brim_setting *setting,
                            const brim_scaling_options *o, brim_result *out) {
  for (size_t i = 0; i < count; i++) {
    if (!replicas[i].work) continue;
    BRIM_TRY(brim_trial_identify(replicas[i].work, o->config, replicas[i].device, setting, out));
    snprintf(out->kind, sizeof out->kind, "scaling");
    return BRIM_OK;
  }
  return BRIM_OK;
}

brim_status brim_scaling_run(brim_replica *replicas, size_t count, const brim_setting *setting,
                             const brim_scaling_options *options, brim_scaling *out) {
  brim_scaling_init(out);
  if (count < 1 || count > BRIM_SCALING_MAX) {
    return brim_fail(BRIM_EINVAL, "scaling is measured on 1 to %d devices, not %zu",
                     BRIM_SCALING_MAX, count);
  }
  out->devices = (int)count;
  BRIM_TRY(identify(replicas, count, setting, options, &out->result));
  crew c = {.count = count, .options = options};
  c.lanes = (lane *)brim_calloc(count, sizeof *c.lanes);
  if (!c.lanes) return brim_fail(BRIM_ENOMEM, "out of memory for %zu replicas", count);
  atomic_init(&c.stage, WARMING);
  brim_status status = run_crew(&c, replicas, setting, out);
  brim_free(c.lanes);
  return status;
}
