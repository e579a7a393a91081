// Slots: the CPU's, one experiment per GPU, several GPUs for one, and the devices that a text names.
#include "lab/place/lab_place_int.h"
#include "place_test.h"

static const brim_lab_place_want A = {.exp = "a"}, B = {.exp = "b"}, C = {.exp = "c"};

static int setup(void **state) {
  (void)state;
  memset(&pt, 0, sizeof pt);
  fake_reset(0);
  return 0;
}
static int teardown(void **state) {
  (void)state;
  pt_close();
  return 0;
}

//---------------------------------- CPU ----------------------------------

static void test_cpu_slots(void **state) {
  (void)state;
  pt_open((brim_lab_place_options){.jobs = 2, .cores = 9});
  int slots = 0, taken = 0;
  assert_int_equal(brim_lab_place_count(pt.place), 0);
  assert_int_equal(pt_choose(&A, 1), 0);
  assert_string_equal(pt.slot.devices, "cpu");
  assert_true(pt.slot.cpu);
  assert_int_equal(pt.slot.threads, 4);
  assert_int_equal(pt.slot.fd_count, 0);
  assert_int_equal(pt_choose(&B, 1), 0);
  assert_int_equal(pt_choose(&C, 1), -1);
  pt_assert_why(C, "all 2 CPU slots are taken");
  brim_lab_place_cpu(pt.place, &slots, &taken);
  assert_int_equal(slots, 2);
  assert_int_equal(taken, 2);
  pt_end("a", BRIM_LAB_PLACE_FAILED, BRIM_FAILURE_CRASH);
  assert_int_equal(pt_choose(&C, 1), 0);
  // an experiment that was never started gives its slot back, an unknown one changes nothing
  pt_end("b", BRIM_LAB_PLACE_UNUSED, BRIM_FAILURE_NONE);
  pt_end("zzz", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  brim_lab_place_cpu(pt.place, &slots, &taken);
  assert_int_equal(taken, 1);
  assert_status(brim_lab_place_started(pt.place, "b", 7), BRIM_ENOENT);
  assert_ok(brim_lab_place_started(pt.place, "c", 7));
}

static void test_cpu_slots_have_a_thread_at_least(void **state) {
  (void)state;
  pt_open((brim_lab_place_options){.jobs = 16, .cores = 2});
  assert_int_equal(pt_choose(&A, 1), 0);
  assert_int_equal(pt.slot.threads, 1);
}

static void test_one_place_per_experiment(void **state) {
  (void)state;
  pt_open((brim_lab_place_options){.jobs = 2});
  assert_int_equal(pt_choose(&A, 1), 0);
  assert_int_equal(pt_choose(&A, 1), -1);
  pt_assert_why(A, "its last process has not ended");
  int slots = 0, taken = 0;
  brim_lab_place_cpu(pt.place, &slots, &taken);
  assert_int_equal(taken, 1);
}

static void test_several_gpus_on_the_cpu_is_never(void **state) {
  (void)state;
  char why[256];
  pt_open((brim_lab_place_options){.jobs = 2});
  assert_true(brim_lab_place_never(pt.place, &W(.exp = "a", .gpus = 2), why, sizeof why));
  assert_string_equal(why, "no device that it may use is here");
  assert_false(brim_lab_place_never(pt.place, &A, NULL, 0));
  assert_int_equal(pt_choose(&W(.exp = "a", .gpus = 2), 1), -1);
  assert_int_equal(pt_choose(&(brim_lab_place_want){.exp = "a", .gpus = 1}, 1), 0);
}

static void test_threads_of_gpus(void **state) {
  (void)state;
  fake_reset(4);
  pt_open((brim_lab_place_options){.cores = 30});
  assert_int_equal(pt_choose(&A, 1), 0);
  assert_int_equal(pt.slot.threads, 7);
  assert_int_equal(pt_choose(&W(.exp = "b", .gpus = 2), 1), 0);
  assert_int_equal(pt.slot.threads, 14);
}

//---------------------------------- GPUs ----------------------------------

static void test_one_experiment_per_gpu(void **state) {
  (void)state;
  fake_reset(2);
  pt_open((brim_lab_place_options){0});
  assert_int_equal(brim_lab_place_count(pt.place), 2);
  const brim_lab_place_want queue[] = {A, B, C};
  assert_int_equal(pt_choose(queue, 3), 0);
  assert_string_equal(pt.slot.devices, fake.gpu[0].uuid);
  assert_false(pt.slot.cpu);
  assert_int_equal(pt.slot.fd_count, 1);
  assert_string_equal(pt.slot.mps_pipe, "");
  assert_int_equal(pt_choose(queue + 1, 2), 0);
  assert_string_equal(pt.slot.devices, fake.gpu[1].uuid);
  assert_int_equal(pt_choose(queue + 2, 1), -1);
  pt_assert_why(C, "waits for a free GPU");
  pt_assert_state(0, BUSY);
  pt_end("a", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  pt_assert_state(0, RETURNING);
  assert_int_equal(pt_choose(queue + 2, 1), -1);  // no reading has shown the memory yet
  pt_pass(300);
  pt_assert_state(0, FREE);
  assert_int_equal(pt_choose(queue + 2, 1), 0);
  assert_string_equal(pt.slot.devices, fake.gpu[0].uuid);
}

// Guide 003's grid: six experiments, four devices; two wait.
static void test_four_of_six_run(void **state) {
  (void)state;
  fake_reset(8);
  pt_open((brim_lab_place_options){.devices = "[0, 1, 2, 3]"});
  assert_int_equal(brim_lab_place_count(pt.place), 4);
  static const char *const names[] = {"e0", "e1", "e2", "e3", "e4", "e5"};
  int running = 0;
  for (int i = 0; i < 6; i++) {
    bool got = pt_start(names[i], 100 + i);
    if (got) assert_string_equal(pt.slot.devices, fake.gpu[i].uuid);
    running += got;
  }
  assert_int_equal(running, 4);
  for (int i = 0; i < 4; i++) pt_end(names[i], BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  pt_pass(1000);
  assert_true(pt_start("e4", 104));
  assert_true(pt_start("e5", 105));
}

static void test_an_experiment_names_its_devices(void **state) {
  (void)state;
  fake_reset(4);
  pt_open((brim_lab_place_options){.devices = "0,1,2"});
  assert_int_equal(pt_choose(&W(.exp = "a", .device = "cuda:2"), 1), 0);
  assert_string_equal(pt.slot.devices, fake.gpu[2].uuid);
  assert_int_equal(pt_choose(&W(.exp = "b", .device = "2"), 1), -1);
  // the sweep may not use the fourth
  assert_int_equal(pt_choose(&W(.exp = "b", .device = "3"), 1), -1);
  assert_true(brim_lab_place_never(pt.place, &W(.exp = "b", .device = "3"), NULL, 0));
  assert_true(brim_lab_place_never(pt.place, &W(.exp = "b", .device = "nonsense"), NULL, 0));
  // an experiment that waits for its device does not stop the others
  const brim_lab_place_want queue[] = {{.exp = "b", .device = "2"}, {.exp = "c"}};
  assert_int_equal(pt_choose(queue, 2), 1);
}

static void test_names_of_devices(void **state) {
  (void)state;
  fake_reset(3);
  static const struct {
    const char *text;
    size_t gpus;
    int cpu;
  } good[] = {{"auto", 3, 0},          {"", 3, 0},          {"cuda", 3, 0},
              {"cpu", 0, 1},           {"ref", 0, 1},       {"1", 1, 0},
              {"cuda:2,cuda:0", 2, 0}, {"[0, 0, 1]", 2, 0}, {"cpu, 1", 1, 1},
              {"GPU-000000a2", 1, 0}};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    int slots = 0, taken = 0;
    pt_open((brim_lab_place_options){.devices = good[i].text});
    brim_lab_place_cpu(pt.place, &slots, &taken);
    assert_int_equal(brim_lab_place_count(pt.place), good[i].gpus);
    assert_int_equal(slots, good[i].cpu);
    pt_close();
  }
  static const char *const bad[] = {"cuda:-1", "gpu", "GPU-0", ",", "0,x", "cuda:", "3", "GPU-ff"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    brim_status expected = i < 6 ? BRIM_EINVAL : BRIM_EDEVICE;
    assert_status(pt_try_open((brim_lab_place_options){.devices = bad[i]}), expected);
    assert_null(pt.place);
    assert_true(strlen(brim_status_detail()) > 0);
  }
  assert_status(pt_try_open((brim_lab_place_options){.devices = "7"}), BRIM_EDEVICE);
  assert_string_equal(brim_status_detail(), "cannot use device 7: this machine has GPUs 0 to 2");
}

static void test_no_gpu_here(void **state) {
  (void)state;
  assert_status(pt_try_open((brim_lab_place_options){.devices = "cuda"}), BRIM_EDEVICE);
  assert_string_equal(
      brim_status_detail(),
      "cannot use device cuda: this machine has no NVIDIA GPU; run with --device cpu");
  pt_open((brim_lab_place_options){.devices = "auto"});
  assert_int_equal(pt_choose(&A, 1), 0);
  assert_true(pt.slot.cpu);
}

// A driver that answers, but has no list: as without GPUs.
static void test_no_list(void **state) {
  (void)state;
  fake_reset(2);
  fake.count_code = BRIM_NVML_UNKNOWN_ERROR;
  pt_open((brim_lab_place_options){0});
  assert_int_equal(brim_lab_place_count(pt.place), 0);
  assert_int_equal(pt_choose(&A, 1), 0);
  assert_true(pt.slot.cpu);
}

static void test_visible_devices(void **state) {
  (void)state;
  fake_reset(4);
  static const struct {
    const char *visible;
    const int expected[4];
    size_t count;
  } rows[] = {{"2,0", {2, 0}, 2},
              {" 1 , 3", {1, 3}, 2},
              {"1,9,2", {1}, 1},  // CUDA stops at the first one that is missing
              {"GPU-000000a3,1", {3, 1}, 2},
              {"1,1", {1}, 1},
              {"", {0}, 0},
              {"-1", {0}, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    pt_open((brim_lab_place_options){.visible = rows[i].visible});
    assert_int_equal(brim_lab_place_count(pt.place), rows[i].count);
    for (size_t k = 0; k < rows[i].count; k++) {
      assert_string_equal(pt_gpu(k).uuid, fake.gpu[rows[i].expected[k]].uuid);
      assert_int_equal(pt_gpu(k).index, (int)k);
    }
    pt_close();
  }
}

static void test_slices(void **state) {
  (void)state;
  fake_reset(2);
  fake.gpu[0].mig = true;
  fake.gpu[0].slices = fake.slice;
  fake.gpu[0].slice_count = 2;
  fake_gpu_init(&fake.slice[0], "MIG-11111111-aaaa", 10 * FAKE_GIB);
  fake_gpu_init(&fake.slice[1], "MIG-22222222-bbbb", 20 * FAKE_GIB);
  pt_open((brim_lab_place_options){0});
  assert_int_equal(brim_lab_place_count(pt.place), 3);
  assert_string_equal(pt_gpu(1).uuid, "MIG-22222222-bbbb");
  assert_string_equal(pt_gpu(2).uuid, fake.gpu[1].uuid);
  // the memory of the slice counts
  assert_int_equal(pt_choose(&W(.exp = "a", .need_bytes = 15.0 * FAKE_GIB), 1), 0);
  assert_string_equal(pt.slot.devices, "MIG-22222222-bbbb");
}

static void test_eight_gpus_and_more_than_one_each_never(void **state) {
  (void)state;
  fake_reset(8);
  pt_open((brim_lab_place_options){0});
  char names[40][8];
  int running = 0;
  bool used[8] = {false};
  for (int i = 0; i < 40; i++) {
    snprintf(names[i], sizeof names[i], "e%d", i);
    if (!pt_start(names[i], 100 + i)) continue;
    running++;
    for (int k = 0; k < 8; k++) {
      if (strcmp(pt.slot.devices, fake.gpu[k].uuid) != 0) continue;
      assert_false(used[k]);
      used[k] = true;
    }
  }
  assert_int_equal(running, 8);
}

//---------------------------------- several at once ----------------------------------

static void test_several_gpus(void **state) {
  (void)state;
  fake_reset(4);
  pt_open((brim_lab_place_options){0});
  assert_int_equal(pt_choose(&W(.exp = "a", .gpus = 3), 1), 0);
  char expected[256];
  snprintf(expected, sizeof expected, "%s,%s,%s", fake.gpu[0].uuid, fake.gpu[1].uuid,
           fake.gpu[2].uuid);
  assert_string_equal(pt.slot.devices, expected);
  assert_int_equal(pt.slot.fd_count, 3);
  pt_assert_state(2, BUSY);
  pt_assert_state(3, FREE);
  assert_int_equal(pt_choose(&W(.exp = "b", .gpus = 2), 1), -1);
  pt_assert_why(W(.gpus = 2), "needs 2 GPUs, 1 is free");
  pt_assert_why(W(.gpus = 5), "needs 5 GPUs, and the sweep may use 4");
  assert_true(brim_lab_place_never(pt.place, &W(.gpus = 5), NULL, 0));
  assert_false(brim_lab_place_never(pt.place, &W(.gpus = 4), NULL, 0));
  pt_end("a", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  pt_pass(1000);
  assert_int_equal(pt_choose(&W(.exp = "b", .gpus = 4), 1), 0);
}

// An experiment that waits for several GPUs gets them: later ones of one GPU do not take GPUs that become free.
static void test_waiting_for_several_reserves(void **state) {
  (void)state;
  fake_reset(2);
  pt_open((brim_lab_place_options){0});
  assert_true(pt_start("a", 1001));
  assert_true(pt_start("b", 1002));
  const brim_lab_place_want queue[] = {{.exp = "wide", .gpus = 2}, {.exp = "c"}, {.exp = "d"}};
  for (int round = 0; round < 5; round++) {
    assert_int_equal(pt_choose(queue, 3), -1);
    pt_pass(1000);
  }
  pt_end("a", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  pt_pass(1000);
  assert_int_equal(pt_choose(queue, 3), -1);
  pt_assert_state(0, FREE);
  pt_assert_why(W(.exp = "wide", .gpus = 2), "needs 2 GPUs, 1 is free");
  pt_assert_why(W(.exp = "c"), "a free GPU is reserved for an experiment that needs several");
  pt_end("b", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  pt_pass(1000);
  assert_int_equal(pt_choose(queue, 3), 0);
  // behind one of higher priority it waits, and does not reserve a GPU that this one needs
  pt_end("wide", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  pt_pass(1000);
  const brim_lab_place_want first[] = {{.exp = "c"}, {.exp = "wide2", .gpus = 2}};
  assert_int_equal(pt_choose(first, 2), 0);
}

// An experiment that can never get its GPUs, or only after another process has ended, blocks no other experiment.
static void test_impossible_ones_reserve_nothing(void **state) {
  (void)state;
  fake_reset(3);
  fake_process(4711, 1, "python");
  fake_use(&fake.gpu[2], 4711, FAKE_GIB);
  pt_open((brim_lab_place_options){0});
  const brim_lab_place_want queue[] = {
      {.exp = "x", .gpus = 9}, {.exp = "y", .gpus = 3}, {.exp = "c"}, {.exp = "d"}};
  assert_int_equal(pt_choose(queue, 4), 2);
  assert_int_equal(pt_choose(queue + 3, 1), 0);
  // the foreign process ends: now waiting helps
  fake_unuse(&fake.gpu[2], 4711);
  pt_pass(1000);
  const brim_lab_place_want rest[] = {{.exp = "y", .gpus = 3}, {.exp = "e"}};
  assert_int_equal(pt_choose(rest, 2), -1);
}

static void test_two_wide_ones_take_turns(void **state) {
  (void)state;
  fake_reset(4);
  pt_open((brim_lab_place_options){0});
  assert_true(pt_start("a", 1001));
  const brim_lab_place_want queue[] = {
      {.exp = "wide", .gpus = 4}, {.exp = "two", .gpus = 2}, {.exp = "c"}};
  assert_int_equal(pt_choose(queue, 3), -1);
  pt_end("a", BRIM_LAB_PLACE_STOPPED, BRIM_FAILURE_NONE);
  pt_pass(1000);
  assert_int_equal(pt_choose(queue, 3), 0);
}

//---------------------------------- memory ----------------------------------

static void test_too_large_for_a_gpu(void **state) {
  (void)state;
  fake_reset(2);
  fake.gpu[0].total = 24 * FAKE_GIB;
  pt_open((brim_lab_place_options){0});
  assert_int_equal(pt_choose(&W(.exp = "a", .need_bytes = 60.0 * FAKE_GIB), 1), 0);
  assert_string_equal(pt.slot.devices, fake.gpu[1].uuid);
  assert_int_equal(pt_choose(&W(.exp = "b", .need_bytes = 60.0 * FAKE_GIB), 1), -1);
  char why[256];
  brim_lab_place_want huge = {.exp = "c", .need_bytes = 100.0 * FAKE_GIB};
  assert_int_equal(pt_choose(&huge, 1), -1);
  assert_true(brim_lab_place_never(pt.place, &huge, why, sizeof why));
  assert_string_equal(why, "needs 100.0 GiB on each GPU, and the largest has 80.0 GiB");
  // the small experiment runs beside it
  const brim_lab_place_want queue[] = {huge, {.exp = "d", .need_bytes = 1.0 * FAKE_GIB}};
  assert_int_equal(pt_choose(queue, 2), 1);
}

//---------------------------------- no memory ----------------------------------

static brim_status whole_round(void) {
  brim_lab_place *place = NULL;
  brim_lab_place_slot slot;
  size_t chosen = 0;
  const brim_lab_place_want queue[] = {{.exp = "w", .gpus = 2}, {.exp = "a"}, {.exp = "b"}};
  brim_lab_place_options o = {.monitor = pt.monitor,
                              .root = FAKE_ROOT,
                              .lock_dir = "locks",
                              .visible = "0,1,2",
                              .store = "s",
                              .devices = "0,1,2"};
  brim_status status = brim_lab_place_open(&o, &place);
  if (!status) status = brim_lab_place_tick(place, 1000);
  for (size_t i = 0; i < 3 && !status; i++) {
    status = brim_lab_place_choose(place, 1000, queue + i, 3 - i, &chosen, &slot);
  }
  if (!status) status = brim_lab_place_tick(place, 3000);
  brim_lab_place_close(place);
  return status;
}

static void test_out_of_memory(void **state) {
  (void)state;
  fake_reset(3);
  fake_process(71, 1, "python");
  fake_use(&fake.gpu[2], 71, FAKE_GIB);
  pt.monitor = fake_monitor();
  brim_status status = BRIM_ENOMEM;
  brim_alloc_stats before, after;
  int tries = 0;
  for (uint64_t n = 1; status; n++, tries++) {
    brim_alloc_get_stats(&before);
    brim_alloc_fail_nth(n, 0);
    status = whole_round();
    brim_alloc_fail_nth(0, 0);
    if (status) assert_int_equal(status, BRIM_ENOMEM);
    brim_alloc_get_stats(&after);
    assert_memory_equal(before.live_bytes, after.live_bytes, sizeof before.live_bytes);
    // no lock is left
    brim_lab_place_holder holder;
    for (int i = 0; i < 3; i++) {
      assert_ok(brim_lab_place_lock_probe("locks", fake.gpu[i].uuid, &holder));
    }
  }
  assert_true(tries >= 8);
}

int main(void) {
  const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
      T(test_cpu_slots),
      T(test_cpu_slots_have_a_thread_at_least),
      T(test_one_place_per_experiment),
      T(test_several_gpus_on_the_cpu_is_never),
      T(test_threads_of_gpus),
      T(test_one_experiment_per_gpu),
      T(test_four_of_six_run),
      T(test_an_experiment_names_its_devices),
      T(test_names_of_devices),
      T(test_no_gpu_here),
      T(test_no_list),
      T(test_visible_devices),
      T(test_slices),
      T(test_eight_gpus_and_more_than_one_each_never),
      T(test_several_gpus),
      T(test_waiting_for_several_reserves),
      T(test_impossible_ones_reserve_nothing),
      T(test_two_wide_ones_take_turns),
      T(test_too_large_for_a_gpu),
      T(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
