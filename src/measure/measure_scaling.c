// One setting on several devices at once, without and with exchange of gradients.

#include "measure/measure_int.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static brim_status brim_replica_build(brim_replica *r, size_t rank, size_t count,
                                      const brim_setting *setting, const brim_scaling_options *o,
                                      brim_replica_built *b);
static int brim_replica_ring(const brim_work *work, const brim_setting *setting);

//---------------------------------------- with exchange ----------------------------------------
// One setting as one training, a rank for each device, with gradients exchanged. All ranks have to make the same
// steps: before each group of steps rank 0 broadcasts their number or the end, over a second communicator. If a
// rank fails, the calling thread abandons all communicators, which ends the other ranks' calls.

// SMALL: number of values in the probe of the latency.
enum { LEAST_GROUPS = 3, MAX_GROUP = 10000, PROBE_WINDOWS = 5, SMALL = 256 };
#define GPU_GROUP_MS 50.0
#define CPU_GROUP_MS 10.0  // long enough that agreeing on a group takes little of its time
#define PROBE_MS 10.0      // length of a window
#define POLL_NS 2000000
#define PATIENCE_NS (10 * (int64_t)1000000000)  // for ranks to open their communicators

// Rank 0's message before a group of steps.
typedef struct order {
  int32_t steps;  // 0 = all leave
  int32_t measured;
} order;

struct party;
typedef struct member {
  struct party *party;
  int rank;
  brim_replica *replica;
  brim_thread *thread;
  _Atomic(brim_comm *) comm;     // the device's exchanges
  _Atomic(brim_comm *) control;  // carries orders
  atomic_bool ended;             // its thread is done
  brim_status status;
  char detail[512];
  bool gpu;
  brim_event *mark;  // recorded before the last step of a group
  double rows;       // samples of a step of all ranks, the mean over an epoch
  // used by rank 0 only
  double last[BRIM_STEADY_STEPS];  // times of the last steps of the warm-up, in ms
  brim_time warming;               // when the warm-up began
  int warm_steps, group;
  bool warm;
  // measured
  brim_time seen;  // when the device had finished all steps but the last
  int64_t steps, ns, first_half_steps, first_half_ns;
  brim_comm_stats before, after;
} member;

typedef struct party {
  member *members;
  size_t count;
  const brim_scaling_options *options;
  brim_setting setting;  // its batch is that of all ranks together
  char name[64];
  bool own;  // the devices' backend may carry the exchange
  atomic_bool stopping;
  // ring: steps that the loader may prefetch; failed: the first member that failed; -1 = none
  int ring, failed;
  int64_t probe_values;
  brim_scaling_exchange *out;
} party;

//---------------------------------- threads ----------------------------------

typedef brim_status (*member_fn)(member *m);
typedef struct task {
  member *m;
  member_fn fn;
} task;

static void task_main(void *ctx) {
  const task *t = ctx;
  member *m = t->m;
  m->status = t->fn(m);
  if (m->status) snprintf(m->detail, sizeof m->detail, "%s", brim_status_detail());
  atomic_store(&m->ended, true);
}

static void abandon_all(party *p) {
  for (size_t i = 0; i < p->count; i++) {
    member *m = &p->members[i];
    brim_comm_abandon(atomic_load(&m->comm));
    brim_comm_abandon(atomic_load(&m->control));
  }
}

// Abandons the communicators that the devices' backend created, too. Call it only after all threads of
// become_rank have ended.
static void abandon_devices(party *p) {
  for (size_t i = 0; i < p->count; i++) brim_device_abandon_ranks(p->members[i].replica->device);
}

static void check_members(party *p, bool ranks, bool *all) {
  *all = true;
  for (size_t i = 0; i < p->count; i++) {
    const member *m = &p->members[i];
    bool ended = !m->thread || atomic_load(&m->ended);
    *all = *all && ended;
    if (!ended || !m->status || p->failed >= 0) continue;
    p->failed = (int)i;
    abandon_all(p);
    if (ranks) abandon_devices(p);
  }
}

static void wait_for_all(party *p, bool ranks) {
  const brim_scaling_options *o = p->options;
  bool all = false;
  for (int polls = 0;; polls++) {
    check_members(p, ranks, &all);
    if (all) return;
    if (o->stop && *o->stop) atomic_store(&p->stopping, true);
    if (o->on_wait && polls % 100 == 0) o->on_wait(o->ctx);
    brim_clock_sleep_ns(POLL_NS);
  }
}

// Runs every member in a thread. BRIM_EINTERRUPTED when stopped, else the first failure.
static brim_status run_members(party *p, member_fn fn, bool ranks) {
  task tasks[BRIM_SCALING_MAX];
  for (size_t i = 0; i < p->count; i++) {
    member *m = &p->members[i];
    tasks[i] = (task){m, fn};
    atomic_store(&m->ended, false);
    m->status = BRIM_OK;
    brim_status status = brim_thread_start(task_main, &tasks[i], "brim-rank", &m->thread);
    if (!status) continue;  // the thread uses the member from here on
    m->status = status;
    snprintf(m->detail, sizeof m->detail, "%s", brim_status_detail());
  }
  wait_for_all(p, ranks);
  for (size_t i = 0; i < p->count; i++) {
    brim_thread_join(p->members[i].thread);
    p->members[i].thread = NULL;
  }
  if (atomic_load(&p->stopping)) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
  if (p->failed < 0) return BRIM_OK;
  return brim_fail(p->members[p->failed].status, "%s", p->members[p->failed].detail);
}

//---------------------------------- becoming ranks ----------------------------------

static brim_status open_one(member *m, const char *kind, _Atomic(brim_comm *) *out) {
  char name[96];
  brim_comm *comm = NULL;
  snprintf(name, sizeof name, "%s%s", m->party->name, kind);
  BRIM_TRY(brim_comm_open_shm(name, m->rank, (int)m->party->count, PATIENCE_NS, &comm));
  atomic_store(out, comm);
  return BRIM_OK;
}

static brim_status become_rank(member *m) {
  BRIM_TRY(open_one(m, "-c", &m->control));
  BRIM_TRY(open_one(m, "-d", &m->comm));
  return brim_device_set_ranks(m->replica->device, atomic_load(&m->comm), m->party->own, NULL);
}

// A backend's own communicator needs distinct devices of that backend. All ranks have to agree.
static bool may_own(const party *p) {
  const brim_device *first = p->members[0].replica->device;
  for (size_t i = 0; i < p->count; i++) {
    const brim_device *device = p->members[i].replica->device;
    if (device->backend != first->backend) return false;
    for (size_t k = 0; k < i; k++) {
      const brim_device *other = p->members[k].replica->device;
      if (strcmp(device->info.id, other->info.id) == 0) return false;
    }
  }
  return true;
}

//---------------------------------- the exchange alone ----------------------------------

// Broadcasts rank 0's value.
static brim_status broadcast(member *m, void *value, size_t bytes) {
  return brim_comm_broadcast(atomic_load(&m->control), value, bytes, 0);
}

static brim_status run_sums(member *m, const brim_op_call *call, int64_t times, double *ms) {
  brim_device *device = m->replica->device;
  brim_time from = brim_clock_now();
  for (int64_t i = 0; i < times; i++) BRIM_TRY(brim_op_run(device, call));
  BRIM_TRY(brim_device_sync(device));
  BRIM_TRY(brim_exchange_check(device));
  *ms = (double)brim_time_since_ns(from, brim_clock_now()) * 1e-6 / (double)times;
  return BRIM_OK;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// Measures the milliseconds of one sum: the median of windows, after a warm-up.
static brim_status time_sums(member *m, const brim_op_call *call, double *out) {
  double ms[PROBE_WINDOWS], once;
  BRIM_TRY(run_sums(m, call, 3, &once));
  BRIM_TRY(run_sums(m, call, 1, &once));
  int64_t times = (int64_t)fmin(1000, fmax(1, ceil(PROBE_MS / fmax(once, 1e-6))));
  BRIM_TRY(broadcast(m, &times, sizeof times));
  for (int i = 0; i < PROBE_WINDOWS; i++) BRIM_TRY(run_sums(m, call, times, &ms[i]));
  qsort(ms, PROBE_WINDOWS, sizeof *ms, by_size);
  *out = ms[PROBE_WINDOWS / 2];
  return BRIM_OK;
}

static brim_status time_values(member *m, int64_t values, void *data, double *out) {
  brim_op_call call = {.op = BRIM_OP_ALL_REDUCE, .in_count = 1, .out_count = 1};
  call.in[0] = call.out[0] = brim_tensor_make(data, BRIM_F32, 1, &values);
  BRIM_TRY(brim_op_prepare(m->replica->device, &call));
  brim_status status = time_sums(m, &call, out);
  brim_op_release(m->replica->device, &call);
  return status;
}

static brim_status probe(member *m) {
  brim_device *device = m->replica->device;
  double small = (double)NAN, large = (double)NAN;
  int64_t values = m->party->probe_values;
  size_t bytes = sizeof(float) * (size_t)(values > SMALL ? values : SMALL);
  void *data = NULL;
  BRIM_TRY(brim_device_alloc(device, BRIM_BUFFER_DEVICE, bytes, &data));
  brim_status status = brim_device_fill(device, data, 0, bytes);
  if (!status) status = time_values(m, SMALL, data, &small);
  if (!status) status = time_values(m, values, data, &large);
  brim_device_free(device, BRIM_BUFFER_DEVICE, data);
  if (status || m->rank > 0) return status;
  m->party->out->small_bytes = SMALL * (double)sizeof(float);
  m->party->out->small_ms = small;
  m->party->out->bucket_bytes = (double)values * (double)sizeof(float);
  m->party->out->bucket_ms = large;
  return BRIM_OK;
}

// Reads the sizes of the exchanges from the plan of rank 0.
static brim_status plan_exchange(party *p) {
  const brim_replica *r = p->members[0].replica;
  brim_scaling_exchange *out = p->out;
  brim_plan plan = {.row_count = 0};
  BRIM_TRY(r->work->table->plan(r->work->state, &p->setting, &plan));
  for (size_t i = 0; i < plan.row_count; i++) {
    if (strcmp(plan.rows[i].name, "gradients") == 0)
      out->gradient_bytes = (double)plan.rows[i].bytes;
  }
  out->sums = plan.gradient_sums;
  out->calls = plan.exchanges;
  out->call_bytes = plan.exchange_bytes;
  if (!(out->gradient_bytes > 0) || out->sums < 1) {
    return brim_fail(BRIM_EUNSUPPORTED, "the plan of the workload has no gradients to exchange");
  }
  p->probe_values = (int64_t)(out->gradient_bytes / out->sums / sizeof(float));
  if (p->probe_values < 1) p->probe_values = 1;
  return BRIM_OK;
}

//---------------------------------- steps ----------------------------------

static double step_ms(const member *m, const order *o, brim_time from) {
  return (double)brim_time_since_ns(from, m->seen) * 1e-6 / o->steps;
}

// Runs a group of steps. On a GPU the last step keeps running while the ranks agree on the next group.
static brim_status make_steps(member *m, int32_t steps) {
  const brim_work *work = m->replica->work;
  brim_device *device = m->replica->device;
  for (int32_t i = 0; i < steps; i++) {
    brim_step_info info;
    if (m->gpu && i + 1 == steps) BRIM_TRY(brim_event_record(device, m->mark));
    BRIM_TRY(work->table->step(work->state, NULL, &info));
  }
  BRIM_TRY(m->gpu ? brim_event_sync(device, m->mark) : brim_device_sync(device));
  m->seen = brim_clock_now();
  return BRIM_OK;
}

// Called by rank 0: decides whether the warm-up is over, and sets the length of a group.
static void look_if_warm(member *m, double ms) {
  const brim_scaling_options *o = m->party->options;
  double most_s = o->max_seconds > 0 ? o->max_seconds : 15;
  int most = o->max_warmup > 0 ? o->max_warmup : 20;
  int least = m->party->ring + 2 > BRIM_STEADY_STEPS ? m->party->ring + 2 : BRIM_STEADY_STEPS;
  m->last[m->warm_steps++ % BRIM_STEADY_STEPS] = ms;
  m->group =
      (int)fmin(MAX_GROUP, fmax(1, ceil((m->gpu ? GPU_GROUP_MS : CPU_GROUP_MS) / fmax(ms, 1e-6))));
  bool late = (double)brim_time_since_ns(m->warming, m->seen) * 1e-9 > most_s;
  m->warm = (late && m->warm_steps > 1) || m->warm_steps >= (most > least ? most : least);
  if (m->warm || m->warm_steps < least) return;
  m->warm = brim_steps_are_steady(m->last);
}

static order decide(const member *m, int groups) {
  const brim_scaling_options *o = m->party->options;
  int64_t window_ns = (int64_t)(1e9 * (o->seconds > 0 ? o->seconds : 1.5));
  bool done = m->warm && groups >= LEAST_GROUPS && m->ns >= window_ns;
  if (done || atomic_load(&m->party->stopping)) return (order){0, 0};
  return (order){m->warm ? m->group : 1, m->warm};
}

static void count_group(member *m, const order *o, brim_time start) {
  int64_t window_ns =
      (int64_t)(1e9 * (m->party->options->seconds > 0 ? m->party->options->seconds : 1.5));
  m->steps += o->steps;
  m->ns = brim_time_since_ns(start, m->seen);
  if (2 * m->ns > window_ns && m->first_half_steps > 0) return;
  m->first_half_steps = m->steps;
  m->first_half_ns = m->ns;
}

// Trains until rank 0 ends it. The clock starts after the first group that follows the warm-up.
static brim_status train(member *m) {
  brim_time start = brim_clock_now();
  brim_comm *comm = atomic_load(&m->comm);
  m->warming = m->seen = start;
  for (int groups = -1;;) {
    order o = {0, 0};
    if (m->rank == 0) o = decide(m, groups);
    BRIM_TRY(broadcast(m, &o, sizeof o));
    if (o.steps == 0) break;
    brim_time from = m->seen;
    BRIM_TRY(make_steps(m, o.steps));
    BRIM_TRY(brim_exchange_check(m->replica->device));
    if (!o.measured) {
      if (m->rank == 0) look_if_warm(m, step_ms(m, &o, from));
      continue;
    }
    if (++groups == 0) {
      start = m->seen;
      brim_comm_read_stats(comm, &m->before);
      continue;
    }
    count_group(m, &o, start);
    brim_comm_read_stats(comm, &m->after);
  }
  return brim_device_sync(m->replica->device);
}

//---------------------------------- results ----------------------------------

// Computes the means over all ranks.
static void sum_up(const party *p, brim_scaling *scaling) {
  brim_scaling_exchange *out = p->out;
  double step = 0, busy = 0, waited = 0, count = (double)p->count;
  bool stable = true, gpu = false;
  for (size_t i = 0; i < p->count; i++) {
    const member *m = &p->members[i];
    if (m->steps == 0 || m->ns <= 0) return;
    double steps = (double)m->steps, first = (double)m->first_half_steps;
    step += (double)m->ns * 1e-6 / steps / count;
    busy += (double)(m->after.busy_ns - m->before.busy_ns) * 1e-6 / steps / count;
    waited += (double)(m->after.waited_ns - m->before.waited_ns) * 1e-6 / steps / count;
    double early = first / (double)m->first_half_ns;
    double late = (steps - first) / (double)(m->ns - m->first_half_ns);
    stable = stable && (steps == first || (early <= 1.1 * late && late <= 1.1 * early));
    gpu = gpu || m->gpu;
  }
  out->step_ms = step;
  out->samples_per_s = p->members[0].rows / (step * 1e-3);
  out->stable = stable;
  // no host thread waits for a GPU's exchanges: their cost is what they add to a step
  double without = scaling->result.total_ms.mean;
  bool counted = p->members[0].after.calls > p->members[0].before.calls;
  out->busy_ms = counted ? busy : (double)NAN;
  out->waited_ms = gpu ? fmax(0, step - without) : waited;
  // an exchange includes the time until the waiting thread runs again
  if (counted && !gpu) out->busy_ms = fmax(busy, waited);
}

static void fail_exchange(party *p, brim_status status) {
  brim_scaling_exchange *out = p->out;
  out->failure = brim_trial_class(status);
  if (out->failure == BRIM_FAILURE_BAD_CONFIG) out->failure = BRIM_FAILURE_OTHER;
  out->failure_status = status;
  const char *spec = p->failed >= 0 ? p->members[p->failed].replica->spec : "";
  snprintf(out->message, sizeof out->message, "%s%s%s", spec, spec[0] ? ": " : "",
           brim_status_detail());
  if (p->failed >= 0 && out->failure == BRIM_FAILURE_CRASH) {
    brim_replica *r = p->members[p->failed].replica;
    r->status = status;
    snprintf(r->message, sizeof r->message, "%s", brim_status_detail());
  }
}

static void drop(const brim_replica *r) {
  r->work->table->ranks->drop(r->work->state);
  if (r->memory) r->memory->held = 0;
}

static brim_status build_member(party *p, member *m) {
  brim_replica_built built = {.refused = false};
  brim_status status =
      brim_replica_build(m->replica, (size_t)m->rank, p->count, &p->setting, p->options, &built);
  if (!status) {
    m->gpu = !m->replica->device->info.host_memory;
    m->rows = built.info.steps_per_epoch > 0
                  ? (double)built.info.samples_per_epoch / (double)built.info.steps_per_epoch
                  : (double)NAN;
    if (m->gpu) status = brim_event_create(m->replica->device, &m->mark);
  }
  if (status && p->failed < 0) p->failed = m->rank;
  return status;
}

static brim_status measure(party *p, brim_scaling *scaling) {
  const brim_work *work = p->members[0].replica->work;
  const brim_scaling_options *o = p->options;
  for (size_t i = 0; i < p->count; i++) drop(p->members[i].replica);
  BRIM_TRY(run_members(p, become_rank, false));
  snprintf(p->out->by, sizeof p->out->by, "%s",
           brim_device_exchange(p->members[0].replica->device));
  BRIM_TRY(plan_exchange(p));
  BRIM_TRY(run_members(p, probe, true));
  for (size_t i = 0; i < p->count; i++) {
    if (o->stop && *o->stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
    BRIM_TRY(build_member(p, &p->members[i]));
  }
  p->ring = brim_replica_ring(work, &p->setting);
  BRIM_TRY(run_members(p, train, true));
  sum_up(p, scaling);
  return BRIM_OK;
}

// Closes networks before the communicators they were built on.
static void leave(party *p) {
  for (size_t i = 0; i < p->count; i++) {
    const member *m = &p->members[i];
    brim_event_destroy(m->replica->device, m->mark);
    drop(m->replica);
    brim_device_leave_ranks(m->replica->device);
  }
  for (size_t i = 0; i < p->count; i++) {
    brim_comm_destroy(atomic_load(&p->members[i].comm));
    brim_comm_destroy(atomic_load(&p->members[i].control));
  }
}

brim_status brim_scaling_exchange_run(brim_replica *replicas, size_t count,
                                      const brim_setting *setting,
                                      const brim_scaling_options *options, brim_scaling *out) {
  party p = {.options = options, .setting = *setting, .failed = -1, .out = &out->exchange};
  p.members = (member *)brim_calloc(count, sizeof *p.members);
  if (!p.members) return brim_fail(BRIM_ENOMEM, "out of memory for %zu ranks", count);
  for (size_t i = 0; i < count && i < BRIM_SCALING_MAX; i++) {
    bool ran = out->replicas[i].samples_per_s > 0 && !replicas[i].status;
    if (!ran || !replicas[i].work->table->ranks) continue;
    member *m = &p.members[p.count];
    *m = (member){.party = &p, .rank = (int)p.count++, .replica = &replicas[i], .group = 1};
  }
  brim_status status = BRIM_OK;
  if (p.count > 1) {
    int knob = brim_work_knob_as(p.members[0].replica->work, BRIM_ROLE_BATCH);
    if (knob >= 0) p.setting.value[knob] *= (int64_t)p.count;
    snprintf(p.name, sizeof p.name, "/brim-scale-%d-%lld", (int)getpid(),
             (long long)brim_clock_now().ns);
    p.own = may_own(&p);
    status = measure(&p, out);
    if (status && status != BRIM_EINTERRUPTED) {
      fail_exchange(&p, status);
      brim_status_clear();
      status = BRIM_OK;
    }
    char why[512];
    snprintf(why, sizeof why, "%s", brim_status_detail());
    leave(&p);
    if (status) status = brim_fail(status, "%s", why);
  }
  brim_free(p.members);
  return status;
}

//--------------------------------------- without exchange ---------------------------------------
// One setting on several devices at once, without exchanging anything. Each device has a thread: it warms up, is
// measured when all are warm, and keeps stepping until all were measured.
//
// The calling thread sets a growing `stage`; each thread reports the stage that it has finished in `reached`.

enum { SCALING_LEAST_GROUPS = 3, SCALING_MAX_GROUP = 10000 };
// Work between two looks at the clock on a GPU, where each look waits for the device.
#define GROUP_MS 50.0

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
  int ring;               // steps that the loader may prefetch
  double per_epoch_rows;  // samples of a step, the mean over an epoch
  brim_phase_timer timer;
  brim_event *mark;
  int group;       // steps between two looks at the clock
  brim_time seen;  // when the device had finished all steps but the last
  int64_t waited_ns;
  // measured
  int64_t steps, rows, ns, first_half_steps, first_half_ns;
  double device_ms;  // a step of the device alone; NaN = unknown
  brim_status status;
  char detail[512];
  brim_result parts;  // scratch for brim_result_remove_overlap; seconds: the time waited
} lane;

typedef struct crew {
  lane *lanes;
  size_t count;
  atomic_int stage;
  const brim_scaling_options *options;
} crew;

//---------------------------------- stepping ----------------------------------

static stage asked_stage(const lane *l) { return (stage)atomic_load(l->stage); }

static brim_status run_step(lane *l, brim_step_info *info) {
  const brim_work *work = l->replica->work;
  return work->table->step(work->state, &l->timer.spans, info);
}

// Runs a group of steps. On a GPU the last step keeps running at the end, as in training.
static brim_status run_group(lane *l, int64_t *rows) {
  brim_device *device = l->replica->device;
  brim_step_info info;
  *rows = 0;
  for (int i = 0; i < l->group && (i == 0 || asked_stage(l) != LEAVING); i++) {
    bool last = i + 1 == l->group;
    if (l->gpu && last) BRIM_TRY(brim_event_record(device, l->mark));
    BRIM_TRY(run_step(l, &info));
    *rows += info.samples;
  }
  brim_time from = brim_clock_now();
  BRIM_TRY(l->gpu ? brim_event_sync(device, l->mark) : brim_device_sync(device));
  l->seen = brim_clock_now();
  l->waited_ns += brim_time_since_ns(from, l->seen);
  return BRIM_OK;
}

static brim_status warm_up(lane *l) {
  double last[BRIM_STEADY_STEPS] = {0};
  const brim_scaling_options *o = l->options;
  double most_s = o->max_seconds > 0 ? o->max_seconds : 15;
  int least = l->ring + 2 > BRIM_STEADY_STEPS ? l->ring + 2 : BRIM_STEADY_STEPS;
  int most = o->max_warmup > 0 ? o->max_warmup : 20;
  brim_time start = brim_clock_now();
  for (int i = 0; i < (most > least ? most : least) && asked_stage(l) == WARMING; i++) {
    brim_step_info info;
    brim_time from = brim_clock_now();
    BRIM_TRY(run_step(l, &info));
    BRIM_TRY(brim_device_sync(l->replica->device));
    brim_time now = brim_clock_now();
    last[i % BRIM_STEADY_STEPS] = (double)brim_time_since_ns(from, now) * 1e-6;
    if (l->gpu) {
      double step_ms = fmax(last[i % BRIM_STEADY_STEPS], 1e-6);
      l->group = (int)fmin(SCALING_MAX_GROUP, fmax(1, ceil(GROUP_MS / step_ms)));
    }
    if ((double)brim_time_since_ns(start, now) * 1e-9 > most_s && i > 0) break;
    if (i + 1 < least) continue;
    if (brim_steps_are_steady(last)) break;
  }
  return BRIM_OK;
}

static brim_status keep_on(lane *l, stage until) {
  int64_t rows;
  while (asked_stage(l) < until) BRIM_TRY(run_group(l, &rows));
  return BRIM_OK;
}

static brim_status scaling_measure(lane *l) {
  int64_t rows, window_ns = (int64_t)(1e9 * (l->options->seconds > 0 ? l->options->seconds : 1.5));
  BRIM_TRY(run_group(l, &rows));  // a GPU's clock starts while the last step of this group runs
  brim_time start = l->seen;
  brim_phase_timer_reset(&l->timer);
  l->waited_ns = 0;
  for (int i = 0; (i < SCALING_LEAST_GROUPS || l->ns < window_ns) && asked_stage(l) == MEASURING;
       i++) {
    BRIM_TRY(run_group(l, &rows));
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

// Measures steps that compute without loading, while all other devices do the same. The rest of a normal step is
// waiting for data. If such steps take longer than on one device alone, the devices slow each other down (power,
// clocks).
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
  while (asked_stage(l) == COMPUTING) {
    BRIM_TRY(loading->compute_only(work->state, steps, &ns, &info));
  }
  return BRIM_OK;
}

static brim_status run_lane(lane *l) {
  BRIM_TRY(warm_up(l));
  atomic_store(&l->reached, WARM);
  BRIM_TRY(keep_on(l, MEASURING));
  if (asked_stage(l) == LEAVING) return brim_device_sync(l->replica->device);
  BRIM_TRY(scaling_measure(l));
  // read the timer before the steps that only keep up the load for other devices
  memcpy(l->parts.phase_used, l->timer.used, sizeof l->timer.used);
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    l->parts.phase_ms[p].mean = (double)l->timer.ns[p] * 1e-6;
  }
  l->parts.seconds = (double)l->waited_ns * 1e-9;
  atomic_store(&l->reached, MEASURED);
  BRIM_TRY(keep_on(l, COMPUTING));
  BRIM_TRY(brim_device_sync(l->replica->device));
  return l->gpu && asked_stage(l) == COMPUTING ? compute(l) : BRIM_OK;
}

static void lane_main(void *ctx) {
  lane *l = ctx;
  l->status = run_lane(l);
  if (l->status) snprintf(l->detail, sizeof l->detail, "%s", brim_status_detail());
  atomic_store(&l->reached, LEFT);
}

//---------------------------------- stages ----------------------------------

static bool all_reached(const crew *c, reached at) {
  for (size_t i = 0; i < c->count; i++) {
    if (c->lanes[i].thread && atomic_load(&c->lanes[i].reached) < (int)at) return false;
  }
  return true;
}

static bool stopped(const crew *c) { return c->options->stop && *c->options->stop; }

// Waits until all lanes have reached a stage. False if stopped.
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
    if (status) {  // report it as this replica's failure
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

// Fails if this replica's part of the data has fewer samples than one step needs.
static brim_status check_filled(const brim_work *work, const brim_setting *setting,
                                const brim_work_info *info, size_t count) {
  double rows = (double)brim_work_value_as(work, setting, BRIM_ROLE_BATCH, 0) *
                (double)brim_work_value_as(work, setting, BRIM_ROLE_ACCUMULATION, 1);
  if (info->samples_per_epoch <= 0 || rows <= (double)info->samples_per_epoch) return BRIM_OK;
  return brim_fail(BRIM_EINVAL,
                   "each of %zu devices has %lld samples of an epoch, fewer than one step of %.0f",
                   count, (long long)info->samples_per_epoch, rows);
}

// Configures the replica as one of `count`. BRIM_EINVAL if its part of the data fills no step.
static brim_status brim_replica_build(brim_replica *r, size_t rank, size_t count,
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
  b->refused = true;  // until the check passes, the device has allocated nothing
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

// Steps that the loader may prefetch.
static int brim_replica_ring(const brim_work *work, const brim_setting *setting) {
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
      // a device that did not open has not crashed: class its failure as OTHER
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

// Takes the phases per step. On a GPU all computing is one phase: dividing it would need steps that wait.
static void take_phases(lane *l) {
  brim_result *r = &l->parts;
  double steps = (double)l->steps, total = (double)l->ns * 1e-6, waited = r->seconds * 1e3;
  double covered = 0, compute_ms = l->gpu ? waited : 0;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    covered += r->phase_ms[p].mean;
    if (!l->gpu || !(brim_phase_computes(p) || p == BRIM_PHASE_TRANSFORM)) continue;
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
  brim_result_remove_overlap(r);
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
  if (failure == BRIM_FAILURE_BAD_CONFIG) failure = BRIM_FAILURE_OTHER;  // the setting ran
  l->out->samples_per_s = l->out->step_ms = (double)NAN;
  fail_replica(l->out, failure, l->status, l->detail);
  if (failure != BRIM_FAILURE_CRASH) return;
  r->status = l->status;
  snprintf(r->message, sizeof r->message, "%s", l->detail);
}

// Computes the figures of the replicas that ran: rate and batch are totals, times of a step are means. The result is
// stable if all replicas were and none failed.
static void scaling_sum_up(crew *c, brim_scaling *out) {
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

// Classes the setting as failed if no replica ran, or only one of several.
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

static size_t count_built(const crew *c) {
  size_t count = 0;
  for (size_t i = 0; i < c->count; i++) count += c->lanes[i].replica != NULL;
  return count;
}

static brim_status run_crew(crew *c, brim_replica *replicas, const brim_setting *setting,
                            brim_scaling *out) {
  brim_status status = build_all(c, replicas, setting, out);
  // one remaining replica of several is not worth measuring: one device alone has its own measurement
  bool worth = count_built(c) > (c->count > 1 ? 1 : 0);
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
  scaling_sum_up(c, out);
  class_result(out);
  return BRIM_OK;
}

// Takes the identity of the result from the first open replica.
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
