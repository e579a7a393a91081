// One setting as one training of several ranks, one for each device: gradients are exchanged. Every step is
// an exchange, so all ranks make the same steps: before each group of them rank 0 says how many follow, over
// a communicator of its own. It ends the measurement, too, so no rank waits for one that has left. Where a
// rank fails, the calling thread abandons the communicators of all, and their calls end.
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "measure/measure_int.h"

enum { STEADY = 5, LEAST_GROUPS = 3, MAX_GROUP = 10000, PROBE_WINDOWS = 5, SMALL = 256 };
#define GPU_GROUP_MS 50.0
#define CPU_GROUP_MS 10.0  // to agree takes a moment, which many short steps share
#define PROBE_MS 10.0      // of a window
#define POLL_NS 2000000
#define PATIENCE_NS (10 * (int64_t)1000000000)  // of ranks that open their communicators

// What rank 0 says before a group of steps.
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
  _Atomic(brim_comm *) comm;     // of the device
  _Atomic(brim_comm *) control;  // of orders
  atomic_bool ended;             // its thread has nothing more to do
  brim_status status;
  char detail[512];
  bool gpu;
  brim_event *mark;
  double rows;  // of a step of all ranks, the mean of an epoch
  // rank 0's
  double last[STEADY];
  brim_time warming;
  int warm_steps, group;
  bool warm;
  // measured
  brim_time seen;
  int64_t steps, ns, first_half_steps, first_half_ns;
  brim_comm_stats before, after;
} member;

typedef struct party {
  member *members;
  size_t count;
  const brim_scaling_options *options;
  brim_setting setting;  // the batch is that of all ranks
  char name[64];
  bool own;  // the devices' backend may carry the exchange
  atomic_bool stopping;
  int ring, failed;  // failed: the member that did first; -1 = none
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

// Device communicators besides: devices are ranks from here on.
static void abandon_devices(party *p) {
  for (size_t i = 0; i < p->count; i++) brim_device_abandon_ranks(p->members[i].replica->device);
}

static void look(party *p, bool ranks, bool *all) {
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
    look(p, ranks, &all);
    if (all) return;
    if (o->stop && *o->stop) atomic_store(&p->stopping, true);
    if (o->on_wait && polls % 100 == 0) o->on_wait(o->ctx);
    brim_clock_sleep_ns(POLL_NS);
  }
}

// Every member in a thread. BRIM_EINTERRUPTED when stopped; else the first failure.
static brim_status each(party *p, member_fn fn, bool ranks) {
  task tasks[BRIM_SCALING_MAX];
  for (size_t i = 0; i < p->count; i++) {
    member *m = &p->members[i];
    tasks[i] = (task){m, fn};
    atomic_store(&m->ended, false);
    m->status = BRIM_OK;
    brim_status status = brim_thread_start(task_main, &tasks[i], "brim-rank", &m->thread);
    if (!status) continue;  // from now on it is the thread's
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

// The backend's own communicator joins devices of its own, each once. All ranks have to say the same.
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

// Rank 0's value is all ranks'.
static brim_status agree(member *m, void *value, size_t bytes) {
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

// Of one sum, the median of windows; the first ones do not count.
static brim_status time_sums(member *m, const brim_op_call *call, double *out) {
  double ms[PROBE_WINDOWS], once;
  BRIM_TRY(run_sums(m, call, 3, &once));
  BRIM_TRY(run_sums(m, call, 1, &once));
  int64_t times = (int64_t)fmin(1000, fmax(1, ceil(PROBE_MS / fmax(once, 1e-6))));
  BRIM_TRY(agree(m, &times, sizeof times));
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

// What is exchanged, by the plan of a rank.
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

// A GPU keeps its last step running while the ranks agree on the next.
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

// Rank 0's.
static void look_if_warm(member *m, double ms) {
  const brim_scaling_options *o = m->party->options;
  double most_s = o->max_seconds > 0 ? o->max_seconds : 15, low, high;
  int most = o->max_warmup > 0 ? o->max_warmup : 20;
  int least = m->party->ring + 2 > STEADY ? m->party->ring + 2 : STEADY;
  m->last[m->warm_steps++ % STEADY] = ms;
  m->group =
      (int)fmin(MAX_GROUP, fmax(1, ceil((m->gpu ? GPU_GROUP_MS : CPU_GROUP_MS) / fmax(ms, 1e-6))));
  bool late = (double)brim_time_since_ns(m->warming, m->seen) * 1e-9 > most_s;
  m->warm = (late && m->warm_steps > 1) || m->warm_steps >= (most > least ? most : least);
  if (m->warm || m->warm_steps < least) return;
  low = high = m->last[0];
  for (int k = 1; k < STEADY; k++) {
    low = fmin(low, m->last[k]);
    high = fmax(high, m->last[k]);
  }
  m->warm = high <= 1.05 * low;
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

// The first group after warming up is the one that the clock starts behind.
static brim_status train(member *m) {
  brim_time start = brim_clock_now();
  brim_comm *comm = atomic_load(&m->comm);
  m->warming = m->seen = start;
  for (int groups = -1;;) {
    order o = {0, 0};
    if (m->rank == 0) o = decide(m, groups);
    BRIM_TRY(agree(m, &o, sizeof o));
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

//---------------------------------- what comes out ----------------------------------

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
  // A GPU waits for its exchanges itself: what they cost is what a step takes longer. What its own
  // communicator does is not counted.
  double without = scaling->result.total_ms.mean;
  bool counted = p->members[0].after.calls > p->members[0].before.calls;
  out->busy_ms = counted ? busy : (double)NAN;
  out->waited_ms = gpu ? fmax(0, step - without) : waited;
  // until a thread that waited runs again is part of an exchange
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
  BRIM_TRY(each(p, become_rank, false));
  snprintf(p->out->by, sizeof p->out->by, "%s",
           brim_device_exchange(p->members[0].replica->device));
  BRIM_TRY(plan_exchange(p));
  BRIM_TRY(each(p, probe, true));
  for (size_t i = 0; i < p->count; i++) {
    if (o->stop && *o->stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
    BRIM_TRY(build_member(p, &p->members[i]));
  }
  p->ring = brim_replica_ring(work, &p->setting);
  BRIM_TRY(each(p, train, true));
  sum_up(p, scaling);
  return BRIM_OK;
}

// Networks before what they were built on.
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
