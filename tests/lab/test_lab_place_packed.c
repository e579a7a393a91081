// Several experiments on one GPU: only if every plan is known and all of them fit, as many as raise the throughput, and
// one at a time again after a failure beside others.
#include "place_test.h"

#define GIB ((double)FAKE_GIB)

static int setup(void **state) {
  (void)state;
  memset(&pt, 0, sizeof pt);
  fake_reset(1);
  return 0;
}
static int teardown(void **state) {
  (void)state;
  pt_close();
  return 0;
}

static bool start(const char *exp, double gib, int pid) {
  if (pt_choose(&W(.exp = exp, .need_bytes = gib * GIB), 1) < 0) return false;
  assert_ok(brim_lab_place_started(pt.place, exp, pid));
  fake_process(pid, 1, "brim");
  return true;
}

//---------------------------------- memory ----------------------------------

static void test_empty_gpus_first(void **state) {
  (void)state;
  fake_reset(2);
  pt_open((brim_lab_place_options){.per_gpu = 2});
  static const char *const names[] = {"a", "b", "c", "d"};
  for (int i = 0; i < 4; i++) {
    assert_true(start(names[i], 1, 1001 + i));
    assert_string_equal(pt.slot.devices, fake.gpu[i % 2].uuid);
    assert_int_equal(pt.slot.fd_count, 1);
  }
  assert_false(start("e", 1, 1005));
  assert_int_equal(pt_gpu(0).jobs, 2);
  assert_int_equal(pt_gpu(0).limit, 2);
  // a place beside others is free at once, without waiting for memory to return
  pt_end("a", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  pt_assert_state(0, BUSY);
  assert_true(start("e", 1, 1005));
}

static void test_only_what_fits(void **state) {
  (void)state;
  pt_open((brim_lab_place_options){.per_gpu = 8});
  // 80 GiB without the driver's reserve and a margin: two of 30, and one of 15
  assert_true(start("a", 30, 1001));
  assert_true(start("b", 30, 1002));
  assert_false(start("c", 30, 1003));
  assert_true(start("d", 15, 1004));
  assert_false(start("e", 3, 1005));
  // b has a plan of 30 and uses 5 so far: the difference stays reserved
  fake_use(&fake.gpu[0], 1002, 5 * FAKE_GIB);
  pt_pass(1000);
  assert_false(start("e", 3, 1005));
  pt_end("d", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  assert_true(start("e", 3, 1005));
}

static void test_more_than_planned(void **state) {
  (void)state;
  pt_open((brim_lab_place_options){.per_gpu = 8});
  assert_true(start("a", 10, 1001));
  fake_use(&fake.gpu[0], 1001, 60 * FAKE_GIB);  // its plan was wrong
  pt_pass(1000);
  assert_false(start("b", 20, 1002));
  assert_true(start("c", 10, 1003));
}

// One uses more than planned, another has not begun: the first one's excess must not hide the memory promised to the
// second.
static void test_more_than_planned_beside_one_that_starts(void **state) {
  (void)state;
  pt_open((brim_lab_place_options){.per_gpu = 8});
  assert_true(start("a", 10, 1001));
  fake_use(&fake.gpu[0], 1001, 40 * FAKE_GIB);
  pt_pass(1000);
  assert_true(start("b", 25, 1002));
  pt_pass(1000);
  assert_false(start("c", 14, 1003));  // 39 GiB are free, 25 of them are promised
  assert_true(start("d", 8, 1004));
}

// The driver still counts the memory of an ended experiment as used.
static void test_memory_of_one_that_ended(void **state) {
  (void)state;
  pt_open((brim_lab_place_options){.per_gpu = 2});
  assert_true(start("a", 10, 1001));
  assert_true(start("b", 60, 1002));
  fake_use(&fake.gpu[0], 1002, 60 * FAKE_GIB);
  pt_pass(1000);
  pt_end("b", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  pt_pass(1000);
  assert_false(start("c", 60, 1003));
  fake_unuse(&fake.gpu[0], 1002);
  pt_pass(1000);
  assert_true(start("c", 60, 1003));
}

static void test_unknown_plans_run_alone(void **state) {
  (void)state;
  pt_open((brim_lab_place_options){.per_gpu = 4});
  assert_true(pt_start("a", 1001));
  assert_false(start("b", 1, 1002));  // beside an experiment of unknown size
  pt_end("a", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  pt_pass(1000);
  assert_true(start("b", 1, 1002));
  assert_false(pt_start("c", 1003));
  assert_true(start("d", 1, 1004));
}

static void test_not_beside_strangers_or_several(void **state) {
  (void)state;
  fake_reset(2);
  pt_open((brim_lab_place_options){.per_gpu = 4, .share = true});
  const brim_lab_place_want wide = {.exp = "w", .gpus = 2, .need_bytes = GIB};
  assert_int_equal(pt_choose(&wide, 1), 0);
  assert_false(start("a", 1, 1001));
  pt_end("w", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  pt_pass(1000);
  fake_process(71, 1, "python");
  fake_use(&fake.gpu[0], 71, FAKE_GIB);
  fake_use(&fake.gpu[1], 71, FAKE_GIB);
  pt_pass(1000);
  assert_true(start("a", 1, 1001));
  assert_true(start("b", 1, 1002));
  assert_false(start("c", 1, 1003));  // the other process may take more
}

// Nothing joins a GPU that another experiment waits for.
static void test_reserved_gpus_are_not_packed(void **state) {
  (void)state;
  fake_reset(2);
  pt_open((brim_lab_place_options){.per_gpu = 4});
  assert_true(start("a", 1, 1001));
  const brim_lab_place_want queue[] = {{.exp = "w", .gpus = 2, .need_bytes = GIB},
                                       {.exp = "b", .need_bytes = GIB}};
  assert_int_equal(pt_choose(queue, 2), -1);
  pt_end("a", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  pt_pass(1000);
  assert_int_equal(pt_choose(queue, 2), 0);
}

static void test_adopted_gpus_are_not_packed(void **state) {
  (void)state;
  pt_open((brim_lab_place_options){.per_gpu = 4});
  assert_true(start("a", 1, 1001));
  int executor = dup(pt.slot.fds[0]);
  pt_close();
  pt_open((brim_lab_place_options){.per_gpu = 4});
  assert_ok(brim_lab_place_adopt(pt.place, pt.now, &W(.exp = "a", .need_bytes = GIB),
                                 fake.gpu[0].uuid, 1001));
  assert_false(start("b", 1, 1002));  // another process holds the lock
  close(executor);
}

typedef struct ramp {
  char exp[8];
  int pid;
  bool runs;
  unsigned long long need, used;
} ramp;

// Random starts and ends: the planned memory never exceeds the GPU.
static void test_never_out_of_memory(void **state) {
  (void)state;
  uint64_t random = 3;
#define RANDOM(n) ((random = random * 6364136223846793005u + 1442695040888963407u) >> 33) % (n)
  pt_open((brim_lab_place_options){.per_gpu = 12});
  ramp jobs[12] = {{{0}, 0, false, 0, 0}};
  int started = 0, together = 0;
  for (int round = 0; round < 3000; round++) {
    ramp *j = &jobs[RANDOM(12)];
    fake_gpu *g = &fake.gpu[0];
    if (!j->runs) {
      j->need = (1 + RANDOM(30)) * FAKE_GIB;
      j->pid = 2000 + (int)(j - jobs);
      snprintf(j->exp, sizeof j->exp, "e%d", j->pid);
      j->runs = start(j->exp, (double)j->need / GIB, j->pid);
      j->used = 0;
      started += j->runs;
    } else if (RANDOM(4) == 0) {
      if (j->used) fake_unuse(g, j->pid);
      pt_end(j->exp, BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
      j->runs = false;
    } else {  // grows up to its plan
      if (j->used) fake_unuse(g, j->pid);
      j->used += (j->need - j->used) / 2 + 1;
      if (j->used > j->need) j->used = j->need;
      fake_use(g, j->pid, j->used);
    }
    unsigned long long sum = 0;
    int n = 0;
    for (int i = 0; i < 12; i++) {
      sum += jobs[i].runs ? jobs[i].need : 0;
      n += jobs[i].runs;
    }
    if (n > together) together = n;
    assert_true(sum + g->reserved + g->used <= g->total);
    if (RANDOM(3) == 0) pt_pass(1000);
  }
  assert_true(started > 200 && together > 3);
}

//---------------------------------- by measuring ----------------------------------

static char names[64][8];

// Runs experiments that make `rate` steps/s when n run; 0 = 100
// n.
static void simulate(int seconds, double rate, int *most) {
  static double steps[64];
  static bool runs[64];
  if (!most) {
    memset(steps, 0, sizeof steps);
    memset(runs, 0, sizeof runs);
    return;
  }
  for (int t = 0; t < seconds; t++) {
    int n = pt_gpu(0).jobs;
    for (int i = 0; i < 64; i++) {
      if (!runs[i]) continue;
      steps[i] += rate > 0 ? rate : 100.0 / n;
      brim_lab_place_progress(pt.place, pt.now, names[i], (int64_t)steps[i]);
    }
    for (int i = 0; i < 64; i++) {
      snprintf(names[i], sizeof names[i], "e%d", i);
      if (!runs[i]) runs[i] = start(names[i], 1, 3000 + i);
      if (!runs[i]) break;
    }
    const char *excess = brim_lab_place_excess(pt.place, pt.now);
    for (int i = 0; excess && i < 64; i++) {
      if (strcmp(names[i], excess) != 0) continue;
      for (int k = i + 1; k < 64; k++) assert_false(runs[k]);  // the youngest
      pt_end(names[i], BRIM_LAB_PLACE_STOPPED, BRIM_FAILURE_NONE);
      runs[i] = false;
      break;
    }
    if (pt_gpu(0).jobs > *most) *most = pt_gpu(0).jobs;
    pt_pass(1000);
  }
}

static void test_auto_packs_where_it_pays(void **state) {
  (void)state;
  int most = 0;
  simulate(0, 0, NULL);
  pt_open((brim_lab_place_options){.per_gpu = BRIM_LAB_PLACE_AUTO, .no_mps = true});
  simulate(20, 100, &most);
  assert_int_equal(most, 1);
  assert_true(pt_gpu(0).measuring);
  simulate(300, 100, &most);
  assert_int_equal(pt_gpu(0).jobs, 48);  // MPS allows no more clients
  assert_true(pt_gpu(0).gain > 40);
}

static void test_auto_stays_alone_where_it_does_not(void **state) {
  (void)state;
  int most = 0;
  simulate(0, 0, NULL);
  pt_open((brim_lab_place_options){.per_gpu = BRIM_LAB_PLACE_AUTO, .no_mps = true});
  simulate(300, 0, &most);
  assert_int_equal(most, 2);
  assert_int_equal(pt_gpu(0).jobs, 1);
  assert_false(pt_gpu(0).measuring);
  assert_int_equal(pt_gpu(0).limit, 1);
}

static void test_auto_stops_where_memory_does(void **state) {
  (void)state;
  int most = 0;
  simulate(0, 0, NULL);
  fake.gpu[0].total = 9 * FAKE_GIB;
  pt_open((brim_lab_place_options){.per_gpu = BRIM_LAB_PLACE_AUTO, .no_mps = true});
  simulate(600, 100, &most);
  assert_int_equal(most, 7);
  assert_true(pt_gpu(0).gain > 6.5 &&
              pt_gpu(0).gain < 7.5);  // the measured gain, although four more would pay
}

static void test_one_per_gpu_is_the_default(void **state) {
  (void)state;
  int most = 0;
  simulate(0, 0, NULL);
  pt_open((brim_lab_place_options){0});
  simulate(300, 100, &most);
  assert_int_equal(most, 1);
  assert_false(pt_gpu(0).measuring);
}

static void test_a_failure_beside_others(void **state) {
  (void)state;
  pt_open((brim_lab_place_options){.per_gpu = 3});
  assert_true(start("a", 1, 1001));
  assert_true(start("b", 1, 1002));
  assert_true(start("c", 1, 1003));
  pt_end("b", BRIM_LAB_PLACE_FAILED, BRIM_FAILURE_NAN);  // a failure of its own
  assert_true(start("b", 1, 1002));
  pt_end("b", BRIM_LAB_PLACE_FAILED, BRIM_FAILURE_OOM_DEVICE);
  assert_int_equal(pt_gpu(0).limit, 1);
  assert_int_equal(pt_gpu(0).failures, 0);  // the others may have caused it
  assert_false(start("d", 1, 1004));
  pt_end("a", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  assert_false(start("d", 1, 1004));
  pt_end("c", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  pt_pass(1000);
  assert_true(start("d", 1, 1004));
  pt_end("d", BRIM_LAB_PLACE_FAILED, BRIM_FAILURE_CRASH);  // alone on the GPU, so it counts
  assert_int_equal(pt_gpu(0).failures, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
      T(test_empty_gpus_first),
      T(test_only_what_fits),
      T(test_more_than_planned),
      T(test_more_than_planned_beside_one_that_starts),
      T(test_memory_of_one_that_ended),
      T(test_unknown_plans_run_alone),
      T(test_not_beside_strangers_or_several),
      T(test_reserved_gpus_are_not_packed),
      T(test_adopted_gpus_are_not_packed),
      T(test_never_out_of_memory),
      T(test_auto_packs_where_it_pays),
      T(test_auto_stays_alone_where_it_does_not),
      T(test_auto_stops_where_memory_does),
      T(test_one_per_gpu_is_the_default),
      T(test_a_failure_beside_others),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
