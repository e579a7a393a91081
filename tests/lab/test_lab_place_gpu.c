// GPUs in a bad state: other users' processes, memory that is not returned, experiments that fail in a row, lost GPUs,
// a driver that reports wrongly.
#include "lab/place/lab_place_int.h"
#include "place_test.h"

#define UNKNOWN BRIM_NVML_UNKNOWN

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

// The executor 1001 and its training 1002 on a GPU.
static void start_training(const char *exp, fake_gpu *g, unsigned long long bytes) {
  assert_true(pt_start(exp, 1001));
  fake_process(1001, 1, "brim");
  fake_process(1002, 1001, "brim");
  fake_use(g, 1002, bytes);
  pt_pass(1000);
}

static void end_training(const char *exp, fake_gpu *g) {
  fake_unuse(g, 1002);
  fake_process_ends(1002);
  fake_process_ends(1001);
  pt_end(exp, BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
}

//---------------------------------- other processes ----------------------------------

static void test_foreign_is_left_alone(void **state) {
  (void)state;
  fake_process(71, 1, "/usr/bin/python3");
  fake_use(&fake.gpu[0], 71, 5 * FAKE_GIB);
  pt_open((brim_lab_place_options){0});
  pt_assert_state(0, FOREIGN);
  assert_false(pt_start("a", 1));
  char why[256];
  brim_lab_place_why(pt.place, &W(.exp = "a"), why, sizeof why);
  assert_true(brim_str_starts(why, "GPU 0 is held by pid 71 python3 ("));
  assert_true(brim_str_starts(pt_gpu(0).reason, "pid 71 python3 ("));
  fake_unuse(&fake.gpu[0], 71);
  pt_pass(1000);
  pt_assert_state(0, FREE);
  assert_true(pt_start("a", 1));
}

static void test_foreign_of_another_container(void **state) {
  (void)state;
  fake_use(&fake.gpu[0], 4242, UNKNOWN);
  pt_open((brim_lab_place_options){0});
  pt_assert_why(W(.exp = "a"), "GPU 0 is held by another container's process (pid 4242)");
  assert_false(pt_start("a", 1));
}

// The driver lists no process, but half of the memory is in use: by another container.
static void test_memory_of_a_process_that_is_not_listed(void **state) {
  (void)state;
  fake.gpu[0].used = 40 * FAKE_GIB;
  pt_open((brim_lab_place_options){0});
  pt_assert_why(W(.exp = "a"),
                "GPU 0 is held by a process that the driver does not list (40.0 GiB)");
  assert_false(pt_start("a", 1));
  fake.gpu[0].used = 2 * FAKE_GIB;  // typical for a desktop
  pt_pass(1000);
  assert_true(pt_start("a", 1));
  pt_close();
  // listed processes may own the whole memory if their sizes are unknown
  fake.gpu[0].used = 40 * FAKE_GIB;
  fake_process(50, 1, "Xorg");
  fake_use(&fake.gpu[0], 50, UNKNOWN);
  fake.gpu[0].graphics = 1;
  pt_open((brim_lab_place_options){0});
  pt_assert_state(0, FREE);
  pt_close();
  fake.gpu[0].used = 40 * FAKE_GIB;
  fake.gpu[0].process_count = fake.gpu[0].graphics = 0;
  pt_open((brim_lab_place_options){.share = true});
  pt_assert_state(0, FREE);
}

static void test_share(void **state) {
  (void)state;
  fake_process(71, 1, "python3");
  fake_use(&fake.gpu[0], 71, 60 * FAKE_GIB);
  pt_open((brim_lab_place_options){.share = true});
  pt_assert_state(0, FREE);
  // by the remaining memory
  assert_int_equal(pt_choose(&W(.exp = "b", .need_bytes = 30.0 * FAKE_GIB), 1), -1);
  pt_assert_why(W(.exp = "b", .need_bytes = 30.0 * FAKE_GIB),
                "needs 30.0 GiB, more than the free GPUs have left");
  assert_int_equal(pt_choose(&W(.exp = "a", .need_bytes = 10.0 * FAKE_GIB), 1), 0);
}

// A desktop is always on the GPU, but computes nothing.
static void test_a_desktop_is_not_foreign(void **state) {
  (void)state;
  fake_process(50, 1, "Xorg");
  fake_use(&fake.gpu[0], 50, FAKE_GIB / 2);
  fake.gpu[0].graphics = 1;
  pt_open((brim_lab_place_options){0});
  pt_assert_state(0, FREE);
  assert_true(pt_start("a", 1001));
}

static void test_our_training_is_not_foreign(void **state) {
  (void)state;
  pt_open((brim_lab_place_options){0});
  start_training("a", &fake.gpu[0], 10 * FAKE_GIB);
  pt_assert_state(0, BUSY);
  end_training("a", &fake.gpu[0]);
  pt_pass(1000);
  pt_assert_state(0, FREE);
}

// A foreign process arrives while our experiment runs: the GPU counts as taken afterwards.
static void test_foreign_comes_later(void **state) {
  (void)state;
  pt_open((brim_lab_place_options){0});
  start_training("a", &fake.gpu[0], 10 * FAKE_GIB);
  fake_process(71, 1, "python3");
  fake_use(&fake.gpu[0], 71, 20 * FAKE_GIB);
  pt_pass(1000);
  pt_assert_state(0, BUSY);
  end_training("a", &fake.gpu[0]);
  pt_pass(1000);
  // our experiment does not have to return its 20 GiB
  pt_assert_state(0, FOREIGN);
  pt_pass(120000);
  pt_assert_state(0, FOREIGN);
  fake_unuse(&fake.gpu[0], 71);
  pt_pass(1000);
  pt_assert_state(0, FREE);
}

// The driver reports process ids of the host, which the container's /proc does not have.
static void test_numbers_of_another_namespace(void **state) {
  (void)state;
  pt_open((brim_lab_place_options){0});
  assert_true(pt_start("a", 1001));
  fake_use(&fake.gpu[0], 987654, 10 * FAKE_GIB);
  pt_pass(1000);
  pt_assert_state(0, BUSY);
  pt_end("a", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  pt_pass(1000);
  pt_assert_state(0, RETURNING);  // the process is still there
  fake_unuse(&fake.gpu[0], 987654);
  pt_pass(1000);
  pt_assert_state(0, FREE);
}

// The executor was killed, and its training runs a moment longer: it is not foreign.
static void test_a_training_that_outlives_its_executor(void **state) {
  (void)state;
  pt_open((brim_lab_place_options){0});
  start_training("a", &fake.gpu[0], 10 * FAKE_GIB);
  fake_process_ends(1001);
  fake_process(1002, 1, "brim");
  pt_end("a", BRIM_LAB_PLACE_FAILED, BRIM_FAILURE_KILLED);
  pt_pass(1000);
  pt_assert_state(0, RETURNING);
  fake_unuse(&fake.gpu[0], 1002);
  pt_pass(1000);
  pt_assert_state(0, FREE);
}

// A loop of parents exists only in a test; a process that is its own parent must not hang the search.
static void test_odd_parents(void **state) {
  (void)state;
  fake_process(71, 72, "x");
  fake_process(72, 71, "y");
  fake_process(73, 73, "z");
  fake_use(&fake.gpu[0], 71, 1);
  fake_use(&fake.gpu[0], 73, 1);
  pt_open((brim_lab_place_options){0});
  pt_assert_state(0, FOREIGN);
}

//---------------------------------- memory ----------------------------------

static void test_memory_comes_back_slowly(void **state) {
  (void)state;
  pt_open((brim_lab_place_options){0});
  start_training("a", &fake.gpu[0], 10 * FAKE_GIB);
  end_training("a", &fake.gpu[0]);
  fake.gpu[0].used += 10 * FAKE_GIB;  // the process has ended, but its memory is still in use
  pt_assert_state(0, RETURNING);
  assert_true(brim_lab_place_wait_ms(pt.place, pt.now) <= 200);
  for (int i = 0; i < 40; i++) {
    pt_pass(1000);
    pt_assert_state(0, RETURNING);
    assert_false(pt_start("b", 1));
  }
  fake.gpu[0].used -= 10 * FAKE_GIB - (100 << 20);  // a driver keeps a little of it
  pt_pass(1000);
  pt_assert_state(0, FREE);
  assert_true(pt_start("b", 1));
}

static void test_memory_not_returned(void **state) {
  (void)state;
  pt_open((brim_lab_place_options){.return_ms = 30000});
  start_training("a", &fake.gpu[0], 10 * FAKE_GIB);
  end_training("a", &fake.gpu[0]);
  fake.gpu[0].used += 4 * FAKE_GIB;
  for (int i = 0; i < 29; i++) pt_pass(1000);
  pt_assert_state(0, RETURNING);
  pt_pass(1000);
  pt_assert_state(0, OUT);
  assert_string_equal(pt_gpu(0).reason, "memory not returned: 4.0 GiB in use 30 s after the end");
  assert_false(pt_start("b", 1));
  pt_assert_why(W(.exp = "b"),
                "GPU 0 is out of service: memory not returned: 4.0 GiB in use 30 s after the end");
  assert_false(brim_lab_place_never(pt.place, &W(.exp = "b"), NULL, 0));
  // a GPU that is not used is not locked
  brim_lab_place_holder holder;
  assert_ok(brim_lab_place_lock_probe("locks", fake.gpu[0].uuid, &holder));
  assert_status(brim_lab_place_restore(pt.place, "5"), BRIM_EDEVICE);
  assert_ok(brim_lab_place_restore(pt.place, "0"));
  pt_pass(1000);
  pt_assert_state(0, FREE);
  assert_true(pt_start("b", 1));
}

static void test_a_process_that_stays(void **state) {
  (void)state;
  pt_open((brim_lab_place_options){.return_ms = 30000});
  start_training("a", &fake.gpu[0], 10 * FAKE_GIB);
  pt_end("a", BRIM_LAB_PLACE_FAILED, BRIM_FAILURE_HUNG);
  fake_process_ends(1001);
  fake_process(1002, 1, "brim");
  for (int i = 0; i < 31; i++) pt_pass(1000);
  pt_assert_state(0, OUT);
}

// Without readings of memory the list of processes alone decides.
static void test_memory_unknown(void **state) {
  (void)state;
  fake.gpu[0].memory_code = BRIM_NVML_NOT_SUPPORTED;
  pt_open((brim_lab_place_options){0});
  pt_assert_state(0, FREE);
  start_training("a", &fake.gpu[0], 10 * FAKE_GIB);
  pt_end("a", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  pt_pass(1000);
  pt_assert_state(0, RETURNING);
  fake_unuse(&fake.gpu[0], 1002);
  pt_pass(1000);
  pt_assert_state(0, FREE);
  for (int i = 0; i < 20; i++) pt_pass(1000);
  pt_assert_state(0, FREE);  // a GPU that was never read does not count as lost
}

static void test_no_list_of_processes(void **state) {
  (void)state;
  fake.gpu[0].list_code = BRIM_NVML_NO_PERMISSION;
  pt_open((brim_lab_place_options){0});
  start_training("a", &fake.gpu[0], 10 * FAKE_GIB);
  pt_end("a", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  pt_pass(1000);
  pt_assert_state(0, RETURNING);  // its memory alone shows that it is used
  fake_unuse(&fake.gpu[0], 1002);
  pt_pass(1000);
  pt_assert_state(0, FREE);
}

// A list that fails once does not open a GPU that others use, and does not end the wait for memory.
static void test_a_list_that_fails_once(void **state) {
  (void)state;
  fake_process(71, 1, "python3");
  fake_use(&fake.gpu[0], 71, FAKE_GIB);
  pt_open((brim_lab_place_options){0});
  for (int i = 0; i < 2; i++) {
    fake.gpu[0].list_code = BRIM_NVML_UNKNOWN_ERROR;
    pt_pass(1000);
    pt_assert_state(0, FOREIGN);
    assert_false(pt_start("a", 1));
  }
  fake.gpu[0].list_code = 0;
  pt_pass(1000);
  pt_assert_state(0, FOREIGN);
  fake_unuse(&fake.gpu[0], 71);
  pt_pass(1000);
  pt_assert_state(0, FREE);
}

static void test_a_lying_driver(void **state) {
  (void)state;
  fake.gpu[0].lies = true;
  pt_open((brim_lab_place_options){.per_gpu = 4});
  assert_true(pt_gpu(0).free_bytes != pt_gpu(0).free_bytes);
  assert_int_equal(pt_choose(&W(.exp = "a", .need_bytes = 1.0 * FAKE_GIB), 1), 0);
  // a GPU in an unknown state is not packed
  pt_pass(1000);
  assert_int_equal(pt_choose(&W(.exp = "b", .need_bytes = 1.0 * FAKE_GIB), 1), -1);
  pt_end("a", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  pt_pass(1000);
  pt_assert_state(0, FREE);
}

// Only the GPU of the ended experiment waits.
static void test_each_gpu_for_itself(void **state) {
  (void)state;
  fake_reset(2);
  pt_open((brim_lab_place_options){0});
  start_training("a", &fake.gpu[0], FAKE_GIB);
  end_training("a", &fake.gpu[0]);
  fake.gpu[0].used += 9 * FAKE_GIB;
  pt_pass(1000);
  pt_assert_state(0, RETURNING);
  assert_true(pt_start("b", 2001));
  assert_string_equal(pt.slot.devices, fake.gpu[1].uuid);
}

//---------------------------------- service ----------------------------------

static void run_one(const char *exp, brim_lab_place_end end, brim_failure failure) {
  assert_true(pt_start(exp, 1001));
  pt_end(exp, end, failure);
  pt_pass(1000);
}

static void test_three_in_a_row(void **state) {
  (void)state;
  pt_open((brim_lab_place_options){0});
  run_one("a", BRIM_LAB_PLACE_FAILED, BRIM_FAILURE_CRASH);
  run_one("b", BRIM_LAB_PLACE_FAILED, BRIM_FAILURE_HUNG);
  assert_int_equal(pt_gpu(0).failures, 2);
  run_one("c", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);  // a success between the failures
  assert_int_equal(pt_gpu(0).failures, 0);
  run_one("d", BRIM_LAB_PLACE_FAILED, BRIM_FAILURE_INFRASTRUCTURE);
  run_one("e", BRIM_LAB_PLACE_FAILED, BRIM_FAILURE_OOM_DEVICE);
  pt_assert_state(0, FREE);
  run_one("f", BRIM_LAB_PLACE_FAILED, BRIM_FAILURE_CRASH);
  pt_assert_state(0, OUT);
  assert_string_equal(pt_gpu(0).reason, "3 experiments in a row failed on it, the last by: crash");
  assert_false(pt_start("g", 1));
  assert_ok(brim_lab_place_restore(pt.place, fake.gpu[0].uuid));
  pt_pass(1000);
  assert_int_equal(pt_gpu(0).failures, 0);
  assert_true(pt_start("g", 1));
}

static void test_failures_of_the_experiment_do_not_count(void **state) {
  (void)state;
  static const brim_failure own[] = {BRIM_FAILURE_NAN,        BRIM_FAILURE_DATA,
                                     BRIM_FAILURE_BAD_CONFIG, BRIM_FAILURE_OOM_PLANNED,
                                     BRIM_FAILURE_KILLED,     BRIM_FAILURE_UNSUPPORTED,
                                     BRIM_FAILURE_OOM_HOST,   BRIM_FAILURE_INTERRUPTED};
  char name[16];
  pt_open((brim_lab_place_options){0});
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    snprintf(name, sizeof name, "e%zu", i);
    run_one(name, BRIM_LAB_PLACE_FAILED, own[i]);
    assert_int_equal(pt_gpu(0).failures, 0);
  }
  // nor do they end a row of failures
  run_one("x", BRIM_LAB_PLACE_FAILED, BRIM_FAILURE_CRASH);
  run_one("y", BRIM_LAB_PLACE_FAILED, BRIM_FAILURE_NAN);
  run_one("z", BRIM_LAB_PLACE_STOPPED, BRIM_FAILURE_NONE);
  assert_int_equal(pt_gpu(0).failures, 1);
}

// Three attempts of one experiment count as one.
static void test_the_same_experiment_again(void **state) {
  (void)state;
  pt_open((brim_lab_place_options){0});
  for (int i = 0; i < 5; i++) run_one("a", BRIM_LAB_PLACE_FAILED, BRIM_FAILURE_CRASH);
  assert_int_equal(pt_gpu(0).failures, 1);
  pt_assert_state(0, FREE);
}

// Experiments that crash on every GPU take no GPU out of service.
static void test_experiments_that_fail_everywhere(void **state) {
  (void)state;
  fake_reset(2);
  pt_open((brim_lab_place_options){0});
  static const char *const names[] = {"a", "b", "c", "d", "e"};
  for (int i = 0; i < 5; i++) {
    brim_lab_place_want first = {.exp = names[i], .device = "0"};
    brim_lab_place_want second = {.exp = names[i], .device = "1"};
    assert_int_equal(pt_choose(&first, 1), 0);
    pt_end(names[i], BRIM_LAB_PLACE_FAILED, BRIM_FAILURE_CRASH);
    pt_pass(1000);
    assert_int_equal(pt_choose(&second, 1), 0);
    pt_end(names[i], BRIM_LAB_PLACE_FAILED, BRIM_FAILURE_CRASH);
    pt_pass(1000);
  }
  pt_assert_state(0, FREE);
  pt_assert_state(1, FREE);
  assert_int_equal(pt_gpu(0).failures, 0);
  assert_int_equal(pt_gpu(1).failures, 0);
}

static void test_a_lost_gpu(void **state) {
  (void)state;
  fake_reset(2);
  pt_open((brim_lab_place_options){0});
  assert_true(pt_start("a", 1001));
  fake.gpu[0].memory_code = BRIM_NVML_GPU_IS_LOST;
  pt_pass(1000);
  fake.gpu[0].memory_code = 0;  // one failed reading does not make it lost
  pt_pass(1000);
  pt_assert_state(0, BUSY);
  fake.gpu[0].memory_code = BRIM_NVML_GPU_IS_LOST;
  for (int i = 0; i < 3; i++) pt_pass(1000);
  pt_assert_state(0, OUT);
  assert_string_equal(pt_gpu(0).reason, "NVML: memory: GPU is lost (15)");
  pt_end("a", BRIM_LAB_PLACE_FAILED, BRIM_FAILURE_INFRASTRUCTURE);
  for (int i = 0; i < 100; i++) pt_pass(1000);
  pt_assert_state(0, OUT);
  assert_string_equal(pt_gpu(0).reason, "NVML: memory: GPU is lost (15)");
  assert_true(pt_start("b", 1));
  assert_string_equal(pt.slot.devices, fake.gpu[1].uuid);
  // one GPU is out of service: an experiment for two cannot start, and nothing is reserved for it
  pt_assert_why(W(.exp = "w", .gpus = 2),
                "GPU 0 is out of service: NVML: memory: GPU is lost (15)");
}

static void test_a_gpu_that_disappears(void **state) {
  (void)state;
  pt_open((brim_lab_place_options){0});
  fake.gpu[0].uuid_code = BRIM_NVML_NOT_FOUND;
  for (int i = 0; i < 3; i++) pt_pass(1000);
  pt_assert_state(0, OUT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
      T(test_foreign_is_left_alone),
      T(test_foreign_of_another_container),
      T(test_memory_of_a_process_that_is_not_listed),
      T(test_share),
      T(test_a_desktop_is_not_foreign),
      T(test_our_training_is_not_foreign),
      T(test_foreign_comes_later),
      T(test_numbers_of_another_namespace),
      T(test_a_training_that_outlives_its_executor),
      T(test_odd_parents),
      T(test_memory_comes_back_slowly),
      T(test_memory_not_returned),
      T(test_a_process_that_stays),
      T(test_memory_unknown),
      T(test_no_list_of_processes),
      T(test_a_list_that_fails_once),
      T(test_a_lying_driver),
      T(test_each_gpu_for_itself),
      T(test_three_in_a_row),
      T(test_failures_of_the_experiment_do_not_count),
      T(test_the_same_experiment_again),
      T(test_experiments_that_fail_everywhere),
      T(test_a_lost_gpu),
      T(test_a_gpu_that_disappears),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
