// Several replicas at once: each with its own part of the data, all running while any of them is measured. Replicas
// that fail are reported beside those that ran.
#include <math.h>
#include <sched.h>
#include <stdatomic.h>

#include "engine/engine_lazy.h"
#include "measure/measure_int.h"
#include "workload/fixture.h"

enum { REPLICAS = 3 };

// Static, because a workload's table has no context. The pointer to its state identifies a replica.
static struct {
  const brim_workload_table *inner;
  void *state[REPLICAS];
  atomic_int steps[REPLICAS];
  int fail_configure;  // this replica fails; -1 = none
  brim_status configure_status;
  int fail_step;  // this replica fails in its third step; -1 = none
  brim_status step_status;
  bool chained;        // a step of replica 1 waits for a step of replica 0
  atomic_int starved;  // steps that waited in vain
  volatile sig_atomic_t stop;
  int stop_at;  // stop after this many steps of replica 0; 0 = never
  int rank[REPLICAS], world[REPLICAS];
  int64_t delay_ns[REPLICAS];  // added to each step
} seen;

static int replica_of(const void *work) {
  for (int i = 0; i < REPLICAS; i++) {
    if (seen.state[i] == work) return i;
  }
  abort();
}

// Waits for the next step of replica 0, at most two seconds: when all replicas stop, there is none.
static void wait_for_first(void) {
  int before = atomic_load(&seen.steps[0]);
  brim_time start = brim_clock_now();
  while (atomic_load(&seen.steps[0]) == before) {
    if (brim_time_since_ns(start, brim_clock_now()) > 2000000000) {
      atomic_fetch_add(&seen.starved, 1);
      return;
    }
    sched_yield();
  }
}

static brim_status watched_step(void *work, const brim_spans *spans, brim_step_info *out) {
  int i = replica_of(work);
  int step = atomic_fetch_add(&seen.steps[i], 1) + 1;
  if (i == seen.fail_step && step == 3) return brim_fail(seen.step_status, "step of replica %d", i);
  if (i == 1 && seen.chained) wait_for_first();
  if (seen.delay_ns[i]) brim_clock_sleep_ns(seen.delay_ns[i]);
  return seen.inner->step(work, spans, out);
}

// Stops like a signal, in the thread that checks for one.
static void on_wait(void *ctx) {
  (void)ctx;
  if (seen.stop_at && atomic_load(&seen.steps[0]) >= seen.stop_at) seen.stop = 1;
}

static brim_status watched_configure(void *work, const brim_setting *setting) {
  int i = replica_of(work);
  if (i == seen.fail_configure) return brim_fail(seen.configure_status, "no room on %d", i);
  return seen.inner->configure(work, setting);
}

static void watched_share(void *work, int rank, int world) {
  int i = replica_of(work);
  seen.rank[i] = rank;
  seen.world[i] = world;
  seen.inner->ranks->share(work, rank, world);
}

typedef struct team {
  fixture f[REPLICAS];
  brim_replica replicas[REPLICAS];
  brim_setting setting;
  brim_scaling_options options;
  brim_scaling out;
} team;

static void team_open(team *t) {
  static brim_workload_table table;
  static const char *const specs[REPLICAS] = {"ref:0", "ref:1", "ref:2"};
  memset(t, 0, sizeof *t);
  memset(&seen, 0, sizeof seen);
  seen.fail_configure = seen.fail_step = -1;
  for (int i = 0; i < REPLICAS; i++) {
    assert_ok(fixture_open(&t->f[i], "ref", fixture_yaml, NULL, 0));
    seen.inner = t->f[i].work->table;
    seen.state[i] = t->f[i].work->state;
    t->replicas[i] =
        (brim_replica){.spec = specs[i], .work = t->f[i].work, .device = t->f[i].device};
  }
  table = *seen.inner;
  table.step = watched_step;
  table.configure = watched_configure;
  static brim_work_ranks_table ranks;
  ranks = *seen.inner->ranks;
  ranks.share = watched_share;
  table.ranks = &ranks;
  for (int i = 0; i < REPLICAS; i++) t->f[i].work->table = &table;
  t->setting = brim_work_setting(t->f[0].work);
  t->options = (brim_scaling_options){.config = t->f[0].config,
                                      .seconds = 0.02,
                                      .max_warmup = 5,
                                      .stop = &seen.stop,
                                      .on_wait = on_wait};
}

static void team_close(team *t) {
  brim_scaling_deinit(&t->out);
  for (int i = 0; i < REPLICAS; i++) {
    t->f[i].work->table = seen.inner;
    fixture_close(&t->f[i]);
  }
}

static void assert_replica(const brim_scaling_replica *r) {
  double sum = 0;
  assert_int_equal(r->failure, BRIM_FAILURE_NONE);
  assert_true(r->samples_per_s > 0 && r->step_ms > 0);
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) sum += isnan(r->phase_ms[p]) ? 0 : r->phase_ms[p];
  assert_true(fabs(sum - r->step_ms) <= 1e-6 * r->step_ms);
}

static void test_all_run_while_one_is_measured(void **state) {
  (void)state;
  team t;
  team_open(&t);
  seen.chained = true;
  assert_ok(brim_scaling_run(t.replicas, 2, &t.setting, &t.options, &t.out));
  assert_int_equal(t.out.devices, 2);
  assert_int_equal(t.out.ran, 2);
  assert_true(atomic_load(&seen.starved) <= 1);  // the step in which all stopped
  for (int i = 0; i < 2; i++) {
    assert_replica(&t.out.replicas[i]);
    assert_int_equal(seen.rank[i], i);
    assert_int_equal(seen.world[i], 2);
    brim_work_info info;
    t.f[i].work->table->info(t.f[i].work->state, &info);
    assert_int_equal(info.samples_per_epoch, 250);  // half of 500
  }
  const brim_result *r = &t.out.result;
  assert_string_equal(r->kind, "scaling");
  assert_string_equal(r->workload, "supervised");
  assert_int_equal(r->failure, BRIM_FAILURE_NONE);
  double total = t.out.replicas[0].samples_per_s + t.out.replicas[1].samples_per_s;
  assert_true(fabs(r->samples_per_s - total) <= 1e-9 * total);
  assert_true(fabs(t.out.each - total / 2) <= 1e-9 * total);
  assert_float_equal(t.out.effective_batch, 2 * 250.0 / 8, 1e-9);  // eight steps an epoch
  assert_true(isnan(t.out.efficiency));
  assert_true(r->phase_used[BRIM_PHASE_FORWARD] && r->phase_ms[BRIM_PHASE_FORWARD].mean > 0);
  team_close(&t);
}

static void test_one_alone(void **state) {
  (void)state;
  team t;
  team_open(&t);
  assert_ok(brim_scaling_run(t.replicas, 1, &t.setting, &t.options, &t.out));
  assert_int_equal(t.out.ran, 1);
  assert_replica(&t.out.replicas[0]);
  assert_int_equal(atomic_load(&seen.steps[1]), 0);
  team_close(&t);
}

static void test_a_replica_without_memory(void **state) {
  (void)state;
  team t;
  team_open(&t);
  seen.fail_configure = 1;
  seen.configure_status = BRIM_EOOM;
  assert_ok(brim_scaling_run(t.replicas, 3, &t.setting, &t.options, &t.out));
  assert_int_equal(t.out.ran, 2);
  assert_int_equal(t.out.result.failure, BRIM_FAILURE_NONE);
  assert_int_equal(t.out.replicas[1].failure, BRIM_FAILURE_OOM_DEVICE);
  assert_non_null(strstr(t.out.replicas[1].message, "no room on 1"));
  assert_true(isnan(t.out.replicas[1].samples_per_s));
  assert_replica(&t.out.replicas[0]);
  assert_replica(&t.out.replicas[2]);
  // the replica takes part again as soon as there is room
  assert_int_equal(t.replicas[1].status, BRIM_OK);
  // one of two that is left does not count as a measurement of two
  brim_scaling_deinit(&t.out);
  assert_ok(brim_scaling_run(t.replicas, 2, &t.setting, &t.options, &t.out));
  assert_int_equal(t.out.ran, 0);
  assert_int_equal(t.out.result.failure, BRIM_FAILURE_OOM_DEVICE);
  assert_non_null(strstr(t.out.result.message, "ref:1: "));
  team_close(&t);
}

static void test_a_plan_that_does_not_fit(void **state) {
  (void)state;
  team t;
  team_open(&t);
  t.options.memory_limit = 1;
  assert_ok(brim_scaling_run(t.replicas, 2, &t.setting, &t.options, &t.out));
  assert_int_equal(t.out.ran, 0);
  assert_int_equal(t.out.result.failure, BRIM_FAILURE_OOM_PLANNED);
  assert_int_equal(atomic_load(&seen.steps[0]), 0);
  team_close(&t);
}

static void test_a_replica_that_crashes(void **state) {
  (void)state;
  team t;
  team_open(&t);
  seen.fail_step = 2;
  seen.step_status = BRIM_EDEVICE;
  assert_ok(brim_scaling_run(t.replicas, 3, &t.setting, &t.options, &t.out));
  assert_int_equal(t.out.ran, 2);
  assert_int_equal(t.out.replicas[2].failure, BRIM_FAILURE_CRASH);
  assert_false(t.out.result.stable);
  assert_int_equal(t.replicas[2].status, BRIM_EDEVICE);  // and is not tried again
  brim_scaling_deinit(&t.out);
  atomic_store(&seen.steps[2], 0);
  assert_ok(brim_scaling_run(t.replicas, 3, &t.setting, &t.options, &t.out));
  assert_int_equal(t.out.ran, 2);
  assert_int_equal(atomic_load(&seen.steps[2]), 0);
  assert_int_equal(t.out.replicas[2].failure, BRIM_FAILURE_CRASH);
  team_close(&t);
}

static void test_a_device_that_is_not_there(void **state) {
  (void)state;
  team t;
  team_open(&t);
  t.replicas[1] =
      (brim_replica){.spec = "cuda:9", .status = BRIM_EDEVICE, .message = "there is none"};
  assert_ok(brim_scaling_run(t.replicas, 3, &t.setting, &t.options, &t.out));
  assert_int_equal(t.out.ran, 2);
  assert_int_equal(t.out.replicas[1].failure, BRIM_FAILURE_OTHER);
  assert_int_equal(t.out.replicas[1].failure_status, BRIM_EDEVICE);
  assert_string_equal(t.out.replicas[1].message, "there is none");
  assert_string_equal(t.out.replicas[1].spec, "cuda:9");
  team_close(&t);
}

static void test_parts_that_fill_no_step(void **state) {
  (void)state;
  team t;
  team_open(&t);
  // more than the 166 samples of each replica
  t.setting.value[brim_work_knob(t.f[0].work, "batch_size")] = 200;
  assert_ok(brim_scaling_run(t.replicas, 3, &t.setting, &t.options, &t.out));
  assert_int_equal(t.out.ran, 0);
  assert_int_equal(t.out.result.failure, BRIM_FAILURE_BAD_CONFIG);
  assert_non_null(strstr(t.out.result.message, "166 samples"));
  team_close(&t);
}

static void test_stopped(void **state) {
  (void)state;
  static const int when[] = {1, 7, 40};
  for (size_t i = 0; i < sizeof when / sizeof *when; i++) {
    team t;
    team_open(&t);
    seen.stop_at = when[i];
    t.options.seconds = 600;
    assert_status(brim_scaling_run(t.replicas, 3, &t.setting, &t.options, &t.out),
                  BRIM_EINTERRUPTED);
    team_close(&t);
  }
}

static void test_too_many(void **state) {
  (void)state;
  team t;
  team_open(&t);
  assert_status(brim_scaling_run(t.replicas, 0, &t.setting, &t.options, &t.out), BRIM_EINVAL);
  assert_status(brim_scaling_run(t.replicas, BRIM_SCALING_MAX + 1, &t.setting, &t.options, &t.out),
                BRIM_EINVAL);
  team_close(&t);
}

static void test_no_memory_for_it(void **state) {
  (void)state;
  team t;
  team_open(&t);
  t.options.seconds = 1e-4;
  for (uint64_t n = 1; n < 60; n += 3) {
    brim_alloc_fail_nth(n, 0);
    brim_status status = brim_scaling_run(t.replicas, 2, &t.setting, &t.options, &t.out);
    brim_alloc_fail_nth(0, 0);
    if (status) assert_int_equal(status, BRIM_ENOMEM);
    brim_scaling_deinit(&t.out);
  }
  assert_ok(brim_scaling_run(t.replicas, 2, &t.setting, &t.options, &t.out));
  assert_int_equal(t.out.ran, 2);
  team_close(&t);
}

// Devices that run on their own: computing is one phase, and the remaining time of a step is waiting.
static void test_on_gpus(void **state) {
  (void)state;
  fixture f[2];
  brim_replica replicas[2];
  for (int i = 0; i < 2; i++) {
    memset(&f[i], 0, sizeof f[i]);
    brim_config_options options = {.text = fixture_yaml, .text_name = "test.yaml"};
    assert_ok(brim_config_load(&options, &f[i].config));
    assert_ok(brim_registry_create(&f[i].registry));
    f[i].device = lazy_open(0);
    brim_work_context context = {.registry = f[i].registry, .device = f[i].device};
    assert_ok(brim_work_open(&context, f[i].config, &f[i].work));
    replicas[i] =
        (brim_replica){.spec = i ? "cuda:1" : "cuda:0", .work = f[i].work, .device = f[i].device};
  }
  brim_setting setting = brim_work_setting(f[0].work);
  brim_scaling_options how = {.seconds = 0.05, .max_warmup = 5};
  brim_scaling out;
  assert_ok(brim_scaling_run(replicas, 2, &setting, &how, &out));
  brim_scaling_deinit(&out);
  int events = lazy_count(f[0].device)->events;
  assert_ok(brim_scaling_run(replicas, 2, &setting, &how, &out));
  assert_int_equal(out.ran, 2);
  for (int i = 0; i < 2; i++) {
    assert_replica(&out.replicas[i]);
    assert_true(out.replicas[i].phase_ms[BRIM_PHASE_COMPUTE] > 0);
    assert_true(isnan(out.replicas[i].phase_ms[BRIM_PHASE_FORWARD]));
    assert_int_equal(lazy_count(f[i].device)->waiting, 0);  // nothing still runs
    assert_int_equal(lazy_count(f[i].device)->events, events);
  }
  // exchanges run through the host, beside the computation
  assert_ok(brim_scaling_exchange_run(replicas, 2, &setting, &how, &out));
  assert_int_equal(out.exchange.failure, BRIM_FAILURE_NONE);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(lazy_count(f[i].device)->waiting, 0);
    assert_int_equal(brim_device_ranks(f[i].device), 1);  // and no longer a rank
  }
  brim_scaling_deinit(&out);
  // a device without a second stream is reported
  for (int i = 0; i < 2; i++) lazy_without_streams(f[i].device);
  assert_ok(brim_scaling_exchange_run(replicas, 2, &setting, &how, &out));
  assert_int_equal(out.exchange.failure, BRIM_FAILURE_UNSUPPORTED);
  assert_non_null(strstr(out.exchange.message, "no streams for ranks"));
  brim_scaling_deinit(&out);
  for (int i = 0; i < 2; i++) {
    brim_work_close(f[i].work);
    lazy_close(f[i].device);
    brim_registry_destroy(f[i].registry);
    brim_config_close(f[i].config);
  }
}

//---------------------------------- with the exchange of gradients ----------------------------------

// Runs without exchanges first, as the program always does. Those steps do not count.
static void run_first(team *t, size_t count) {
  assert_ok(brim_scaling_run(t->replicas, count, &t->setting, &t->options, &t->out));
  assert_int_equal(t->out.ran, (int)count);
  for (int i = 0; i < REPLICAS; i++) atomic_store(&seen.steps[i], 0);
}

static void assert_no_ranks(const team *t) {
  for (int i = 0; i < REPLICAS; i++) assert_false(brim_device_exchanges(t->f[i].device));
}

static void assert_same_steps(int count) {
  for (int i = 1; i < count; i++) {
    assert_int_equal(atomic_load(&seen.steps[i]), atomic_load(&seen.steps[0]));
  }
}

static void assert_exchanged(const brim_scaling_exchange *e) {
  assert_int_equal(e->failure, BRIM_FAILURE_NONE);
  assert_string_equal(e->by, "shm");
  assert_true(e->gradient_bytes > 0 && e->sums >= 1);
  assert_true(e->bucket_bytes > 0 && e->bucket_bytes <= e->gradient_bytes);
  assert_true(e->small_ms > 0 && e->bucket_ms > 0);
  assert_true(e->samples_per_s > 0 && e->step_ms > 0);
  assert_true(e->waited_ms > 0 && e->busy_ms >= e->waited_ms);
}

static void test_ranks(void **state) {
  (void)state;
  for (size_t count = 2; count <= REPLICAS; count++) {
    team t;
    team_open(&t);
    run_first(&t, count);
    assert_ok(brim_scaling_exchange_run(t.replicas, count, &t.setting, &t.options, &t.out));
    assert_exchanged(&t.out.exchange);
    assert_same_steps((int)count);
    assert_true(atomic_load(&seen.steps[0]) > 5);
    // each replica has the setting's batch: the samples of a step grow with their number
    const double rows = 500.0 / (double)count / ceil(500.0 / (double)count / 32) * (double)count;
    double made = t.out.exchange.samples_per_s * t.out.exchange.step_ms * 1e-3;
    assert_true(made > 0.98 * rows && made < 1.02 * rows);
    assert_no_ranks(&t);
    // later measurements are as before
    brim_scaling_deinit(&t.out);
    assert_ok(brim_scaling_run(t.replicas, count, &t.setting, &t.options, &t.out));
    assert_int_equal(t.out.ran, (int)count);
    assert_string_equal(t.out.exchange.by, "");
    team_close(&t);
  }
}

// The number of exchanges that wait in a step is known beforehand: two for each batch norm, and one for the embeddings.
static void test_what_waits(void **state) {
  (void)state;
  static const struct {
    const char *yaml;
    int calls;
  } rows[] = {
      {"dataset: synthetic(shape=(4, 4, 3), classes=4, samples=64)\nmodel: resnet18(width=2)\n"
       "data: {batch_size: 8, num_workers: 0}\n",
       2 * 20},
      {"workload: contrastive\ndataset: synthetic(shape=(4, 4, 3), classes=4, samples=64)\n"
       "model: resnet18(width=2)\ntransform: views\n"
       "data: {batch_size: 8, num_workers: 0}\ntraining: {epochs: 1, sync_batchnorm: false}\n",
       1}};
  for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
    fixture f[2];
    brim_replica replicas[2];
    for (int i = 0; i < 2; i++) {
      assert_ok(fixture_open(&f[i], "ref", rows[k].yaml, NULL, 0));
      replicas[i] = (brim_replica){.spec = "ref", .work = f[i].work, .device = f[i].device};
    }
    brim_setting setting = brim_work_setting(f[0].work);
    brim_scaling_options how = {.seconds = 0.01, .max_warmup = 2};
    brim_scaling out;
    assert_ok(brim_scaling_run(replicas, 2, &setting, &how, &out));
    assert_ok(brim_scaling_exchange_run(replicas, 2, &setting, &how, &out));
    assert_exchanged(&out.exchange);
    assert_int_equal(out.exchange.calls, rows[k].calls);
    assert_true(out.exchange.call_bytes > 0);
    brim_scaling_deinit(&out);
    for (int i = 0; i < 2; i++) fixture_close(&f[i]);
  }
}

static void test_ranks_of_different_speeds(void **state) {
  (void)state;
  team t;
  team_open(&t);
  run_first(&t, 3);
  seen.delay_ns[0] = 1000000;
  seen.delay_ns[2] = 4000000;
  assert_ok(brim_scaling_exchange_run(t.replicas, 3, &t.setting, &t.options, &t.out));
  assert_exchanged(&t.out.exchange);
  assert_same_steps(3);
  assert_true(t.out.exchange.step_ms >= 4);  // the slowest replica's
  team_close(&t);
}

static void test_a_rank_that_fails(void **state) {
  (void)state;
  static const brim_status how[] = {BRIM_EDEVICE, BRIM_EIO};
  for (int rank = 0; rank < 3; rank++) {
    team t;
    team_open(&t);
    run_first(&t, 3);
    seen.fail_step = rank;
    seen.step_status = how[rank % 2];
    t.options.seconds = 600;  // the others would continue
    assert_ok(brim_scaling_exchange_run(t.replicas, 3, &t.setting, &t.options, &t.out));
    const brim_scaling_exchange *e = &t.out.exchange;
    char message[64];
    snprintf(message, sizeof message, "ref:%d: step of replica %d", rank, rank);
    assert_string_equal(e->message, message);
    assert_int_equal(e->failure_status, how[rank % 2]);
    assert_int_not_equal(e->failure, BRIM_FAILURE_NONE);
    assert_true(isnan(e->samples_per_s));
    assert_true(e->bucket_ms > 0);  // the exchange itself was timed
    // a crashed replica is not tried again; the others exchange without it
    assert_int_equal(t.replicas[rank].status, rank % 2 ? BRIM_OK : BRIM_EDEVICE);
    assert_no_ranks(&t);
    team_close(&t);
  }
}

static void test_a_rank_without_memory(void **state) {
  (void)state;
  team t;
  team_open(&t);
  run_first(&t, 2);
  seen.fail_configure = 1;
  seen.configure_status = BRIM_EOOM;
  assert_ok(brim_scaling_exchange_run(t.replicas, 2, &t.setting, &t.options, &t.out));
  assert_int_equal(t.out.exchange.failure, BRIM_FAILURE_OOM_DEVICE);
  assert_non_null(strstr(t.out.exchange.message, "ref:1: "));
  assert_int_equal(atomic_load(&seen.steps[0]), 0);
  assert_no_ranks(&t);
  team_close(&t);
}

static void test_ranks_are_stopped(void **state) {
  (void)state;
  static const int when[] = {1, 7, 40};
  for (size_t i = 0; i < sizeof when / sizeof *when; i++) {
    team t;
    team_open(&t);
    run_first(&t, 3);
    seen.stop_at = when[i];
    seen.delay_ns[1] = 2000000;
    t.options.seconds = 600;
    assert_status(brim_scaling_exchange_run(t.replicas, 3, &t.setting, &t.options, &t.out),
                  BRIM_EINTERRUPTED);
    assert_same_steps(3);
    assert_true(isnan(t.out.exchange.samples_per_s));
    assert_no_ranks(&t);
    team_close(&t);
  }
}

static void test_ranks_of_those_that_ran(void **state) {
  (void)state;
  team t;
  team_open(&t);
  t.replicas[1] = (brim_replica){.spec = "cuda:9", .status = BRIM_EDEVICE, .message = "none"};
  assert_ok(brim_scaling_run(t.replicas, 3, &t.setting, &t.options, &t.out));
  assert_ok(brim_scaling_exchange_run(t.replicas, 3, &t.setting, &t.options, &t.out));
  assert_exchanged(&t.out.exchange);
  // a single replica exchanges nothing
  t.replicas[2].status = BRIM_EDEVICE;
  brim_scaling_deinit(&t.out);
  assert_ok(brim_scaling_run(t.replicas, 1, &t.setting, &t.options, &t.out));
  assert_ok(brim_scaling_exchange_run(t.replicas, 3, &t.setting, &t.options, &t.out));
  assert_string_equal(t.out.exchange.by, "");
  team_close(&t);
}

// A workload that trains on one device only, and a device that cannot exchange.
static void test_no_ranks(void **state) {
  (void)state;
  team t;
  team_open(&t);
  run_first(&t, 2);
  brim_workload_table table = *t.f[0].work->table;
  table.ranks = NULL;
  for (int i = 0; i < REPLICAS; i++) t.f[i].work->table = &table;
  assert_ok(brim_scaling_exchange_run(t.replicas, 2, &t.setting, &t.options, &t.out));
  assert_string_equal(t.out.exchange.by, "");
  assert_int_equal(t.out.exchange.failure, BRIM_FAILURE_NONE);
  team_close(&t);
}

static void test_no_memory_for_ranks(void **state) {
  (void)state;
  team t;
  team_open(&t);
  t.options.seconds = 1e-4;
  run_first(&t, 2);
  // fails first: ranks would wait for one that never comes
  for (uint64_t n = 20; n < 140; n += 17) {
    brim_alloc_fail_nth(n, 0);
    brim_status status = brim_scaling_exchange_run(t.replicas, 2, &t.setting, &t.options, &t.out);
    brim_alloc_fail_nth(0, 0);
    if (status) assert_int_equal(status, BRIM_ENOMEM);
    assert_no_ranks(&t);
  }
  t.out.exchange.failure = BRIM_FAILURE_NONE;
  assert_ok(brim_scaling_exchange_run(t.replicas, 2, &t.setting, &t.options, &t.out));
  assert_exchanged(&t.out.exchange);
  team_close(&t);
}

int main(void) {
  brim_json_own_memory();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all_run_while_one_is_measured),
      cmocka_unit_test(test_one_alone),
      cmocka_unit_test(test_a_replica_without_memory),
      cmocka_unit_test(test_a_plan_that_does_not_fit),
      cmocka_unit_test(test_a_replica_that_crashes),
      cmocka_unit_test(test_a_device_that_is_not_there),
      cmocka_unit_test(test_parts_that_fill_no_step),
      cmocka_unit_test(test_stopped),
      cmocka_unit_test(test_too_many),
      cmocka_unit_test(test_no_memory_for_it),
      cmocka_unit_test(test_on_gpus),
      cmocka_unit_test(test_ranks),
      cmocka_unit_test(test_what_waits),
      cmocka_unit_test(test_ranks_of_different_speeds),
      cmocka_unit_test(test_a_rank_that_fails),
      cmocka_unit_test(test_a_rank_without_memory),
      cmocka_unit_test(test_ranks_are_stopped),
      cmocka_unit_test(test_ranks_of_those_that_ran),
      cmocka_unit_test(test_no_ranks),
      cmocka_unit_test(test_no_memory_for_ranks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
