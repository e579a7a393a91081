// MPS with a test program in place of NVIDIA's: started before the first experiment, alive as long as a process holds
// its descriptor, and gone afterwards, however the sweep ends.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "lab/place/lab_place_int.h"
#include "place_test.h"

#define RUN "run"

// Like the real daemon: -f runs it with its socket in its folder; "quit" on stdin ends it.
static const char DAEMON[] =
    "#!/bin/sh\n"
    "d=$CUDA_MPS_PIPE_DIRECTORY\n"
    "if [ \"$1\" != -f ]; then read word; [ \"$word\" = quit ] && : > $d/quit; exit; fi\n"
    "echo \"$CUDA_VISIBLE_DEVICES $CUDA_MPS_LOG_DIRECTORY\" > seen.txt\n"
    "echo $$ > daemon.txt\n"
    "while [ -e hold ]; do sleep 0.05; done\n"
    ": > $d/log || exit 1\n"
    ": > $d/control\n"
    "while [ ! -e $d/quit ]; do sleep 0.05; echo tick; done\n";
static const char FAILS[] = "#!/bin/sh\necho no device found\nexit 1\n";
static const char HANGS[] = "#!/bin/sh\n[ \"$1\" = -f ] && echo $$ > daemon.txt\nexec sleep 600\n";

static void write_program(const char *text) {
  assert_ok(brim_fs_write("mps-program", text, strlen(text)));
  assert_int_equal(chmod("mps-program", 0755), 0);
}

static int setup(void **state) {
  (void)state;
  memset(&pt, 0, sizeof pt);
  fake_reset(1);
  assert_int_equal(system("rm -rf run seen.txt daemon.txt hold"), 0);
  write_program(DAEMON);
  return 0;
}

static brim_lab_place_options packing(void) {
  return (brim_lab_place_options){.per_gpu = 4, .run_dir = RUN, .mps_program = "./mps-program"};
}

static int64_t daemon_pid(void) {
  char *text = NULL;
  if (brim_fs_read("daemon.txt", 0, &text, NULL)) return 0;
  int64_t pid = strtoll(text, NULL, 10);
  brim_free(text);
  return pid;
}

// Waits with the test's own time limit.
static void until_gone(int64_t pid) {
  assert_true(pid > 0);
  while (kill((pid_t)pid, 0) == 0) {
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
    brim_clock_sleep_ns(10000000);
  }
}

static size_t folders(void) {
  char **list = NULL;
  size_t count = 0;
  if (brim_fs_list(RUN, &list, &count)) return 0;
  brim_fs_list_free(list, count);
  return count;
}

static void until_no_folder(void) {
  while (folders() > 0) brim_clock_sleep_ns(10000000);
}

static int teardown(void **state) {
  (void)state;
  pt_close();
  until_no_folder();
  return 0;
}

// The placement's clock does not advance with the daemon's time unless a test advances it.
static void start_with_mps(const char *exp) {
  const brim_lab_place_want want = {.exp = exp, .need_bytes = (double)FAKE_GIB};
  while (pt_choose(&want, 1) < 0) {
    assert_false(pt_gpu(0).jobs > 0);
    brim_clock_sleep_ns(10000000);
  }
  assert_ok(brim_lab_place_started(pt.place, exp, 1001));
}

static void test_started_before_the_first(void **state) {
  (void)state;
  pt_open(packing());
  assert_ok(brim_fs_write("hold", "", 0));
  const brim_lab_place_want want = {.exp = "a", .need_bytes = (double)FAKE_GIB};
  for (int i = 0; i < 5; i++) assert_int_equal(pt_choose(&want, 1), -1);  // the daemon is not ready
  assert_true(brim_lab_place_wait_ms(pt.place, pt.now) <= 200);
  assert_int_equal(unlink("hold"), 0);
  start_with_mps("a");
  assert_true(pt_gpu(0).mps);
  assert_true(brim_str_starts(pt.slot.mps_pipe, RUN "/brim-mps-"));
  assert_int_equal(pt.slot.fd_count, 2);
  char *seen = NULL, expected[512];
  assert_ok(brim_fs_read("seen.txt", 0, &seen, NULL));
  snprintf(expected, sizeof expected, "%s %s/brim-log\n", fake.gpu[0].uuid, pt.slot.mps_pipe);
  assert_string_equal(seen, expected);
  brim_free(seen);
  struct stat about;
  assert_int_equal(stat(pt.slot.mps_pipe, &about), 0);
  assert_int_equal(about.st_mode & 0777, 0700);
  // the second experiment is a client of the same daemon
  char pipe_of_a[BRIM_LAB_PLACE_PATH];
  memcpy(pipe_of_a, pt.slot.mps_pipe, sizeof pipe_of_a);
  start_with_mps("b");
  assert_string_equal(pt.slot.mps_pipe, pipe_of_a);
  int64_t pid = daemon_pid();
  pt_close();
  until_gone(pid);
  until_no_folder();
}

// The sweep has ended, but an executor has not: the daemon stays for it, and ends with it.
static void test_lives_with_the_last_executor(void **state) {
  (void)state;
  pt_open(packing());
  start_with_mps("a");
  const char *argv[] = {"sh", "-c", "read x", NULL};
  brim_child *executor = NULL;
  bool ended = false;
  assert_ok(brim_child_start(&(brim_child_options){.argv = argv,
                                                   .in = BRIM_CHILD_PIPE,
                                                   .pass_fds = pt.slot.fds,
                                                   .pass_count = pt.slot.fd_count},
                             &executor));
  int64_t pid = daemon_pid();
  pt_close();
  brim_clock_sleep_ns(300000000);
  assert_int_equal(kill((pid_t)pid, 0), 0);
  assert_int_equal(folders(), 1);
  brim_child_close_input(executor);
  assert_ok(brim_child_wait(executor, -1, &ended));
  brim_child_close(executor);
  until_gone(pid);
  until_no_folder();
}

static void test_its_processes_are_ours(void **state) {
  (void)state;
  pt_open(packing());
  start_with_mps("a");
  // the server is a child of the daemon's keeper, and still holds memory after the experiment's end
  int64_t keeper = 0;
  char path[64], text[256];
  snprintf(path, sizeof path, "/proc/%lld/stat", (long long)daemon_pid());
  if (brim_machine_read_text("", path, text, sizeof text)) {
    keeper = strtoll(strrchr(text, ')') + 4, NULL, 10);
  }
  assert_true(keeper > 1);
  fake_process(5001, (int)keeper, "nvidia-cuda-mps-server");
  fake_use(&fake.gpu[0], 5001, FAKE_GIB);
  pt_pass(1000);
  pt_end("a", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  pt_pass(1000);
  pt_assert_state(0, FREE);  // the server is neither foreign nor unreturned memory
  start_with_mps("b");
}

// The multiprocessors are divided equally among the most experiments that may run, from the first one on.
static void test_equal_parts(void **state) {
  (void)state;
  pt_open(packing());
  start_with_mps("a");
  assert_int_equal(pt.slot.mps_percent, 25);
  start_with_mps("b");
  assert_int_equal(pt.slot.mps_percent, 25);
}

// The server's process id is not in a container's /proc, or the server is on no list at all.
static void test_its_server_is_elsewhere(void **state) {
  (void)state;
  pt_open(packing());
  start_with_mps("a");
  fake_use(&fake.gpu[0], 987001, FAKE_GIB);  // the server
  fake_use(&fake.gpu[0], 987002, FAKE_GIB);  // the training
  pt_pass(1000);
  pt_end("a", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  pt_pass(1000);
  pt_assert_state(0, RETURNING);
  fake_unuse(&fake.gpu[0], 987002);
  pt_pass(1000);
  pt_assert_state(0, FREE);
  for (int i = 0; i < 3; i++) pt_pass(1000);
  pt_assert_state(0, FREE);
  start_with_mps("b");
  fake_use(&fake.gpu[0], 987003, FAKE_GIB);
  pt_pass(1000);
  fake_unuse(&fake.gpu[0], 987003);
  pt_end("b", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  pt_pass(1000);
  pt_assert_state(0, FREE);
  // a second unknown process is foreign
  fake_use(&fake.gpu[0], 987004, FAKE_GIB);
  pt_pass(1000);
  pt_assert_state(0, FOREIGN);
}

static void test_its_server_is_not_listed(void **state) {
  (void)state;
  pt_open(packing());
  start_with_mps("a");
  fake.gpu[0].used += 3 * FAKE_GIB / 2;  // the server's context, which stays
  pt_pass(1000);
  pt_end("a", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  pt_pass(1000);
  pt_assert_state(0, FREE);
  // the context is part of the baseline now: the same amount again counts as unreturned memory
  start_with_mps("b");
  fake.gpu[0].used += 3 * FAKE_GIB / 2;
  pt_pass(1000);
  pt_end("b", BRIM_LAB_PLACE_OK, BRIM_FAILURE_NONE);
  pt_pass(1000);
  pt_assert_state(0, RETURNING);
}

static void test_not_for_one_at_a_time(void **state) {
  (void)state;
  brim_lab_place_options o = packing();
  o.per_gpu = 1;
  pt_open(o);
  assert_true(pt_start("a", 1001));
  assert_string_equal(pt.slot.mps_pipe, "");
  assert_int_equal(folders(), 0);
  pt_close();
  o = packing();
  o.no_mps = true;
  pt_open(o);
  assert_true(pt_start("a", 1001));
  assert_int_equal(folders(), 0);
  pt_close();
  fake_reset(2);
  pt_open(packing());
  assert_int_equal(pt_choose(&W(.exp = "w", .gpus = 2), 1), 0);
  assert_string_equal(pt.slot.mps_pipe, "");
  assert_int_equal(folders(), 0);
}

//---------------------------------- failures ----------------------------------

static void assert_without_mps(void) {
  assert_string_equal(pt.slot.mps_pipe, "");
  assert_false(pt_gpu(0).mps);
  // without MPS they take turns, but they run
  assert_int_equal(pt_choose(&W(.exp = "z", .need_bytes = (double)FAKE_GIB), 1), 0);
  assert_string_equal(pt.slot.mps_pipe, "");
}

static void test_not_installed(void **state) {
  (void)state;
  brim_lab_place_options o = packing();
  o.mps_program = "no-such-program-of-brim";
  pt_open(o);
  assert_int_equal(pt_choose(&W(.exp = "a", .need_bytes = (double)FAKE_GIB), 1), 0);
  assert_without_mps();
  assert_int_equal(folders(), 0);
}

static void test_it_ends_at_once(void **state) {
  (void)state;
  write_program(FAILS);
  pt_open(packing());
  start_with_mps("a");
  pt_pass(1000);
  assert_without_mps();
  until_no_folder();
}

static void test_it_never_answers(void **state) {
  (void)state;
  write_program(HANGS);
  pt_open(packing());
  const brim_lab_place_want want = {.exp = "a", .need_bytes = (double)FAKE_GIB};
  for (int i = 0; i < 9; i++) {
    assert_int_equal(pt_choose(&want, 1), -1);
    pt_pass(1000);
  }
  while (daemon_pid() == 0) brim_clock_sleep_ns(10000000);
  int64_t pid = daemon_pid();
  pt_pass(2000);
  assert_int_equal(pt_choose(&want, 1), 0);
  assert_without_mps();
  until_gone(pid);  // the daemon ignores quit, and is killed
  until_no_folder();
}

static void test_a_folder_that_cannot_be(void **state) {
  (void)state;
  brim_lab_place_options o = packing();
  char longer[200];
  memset(longer, 'x', sizeof longer - 1);
  longer[sizeof longer - 1] = '\0';
  o.run_dir = longer;
  pt_open(o);
  assert_int_equal(pt_choose(&W(.exp = "a", .need_bytes = (double)FAKE_GIB), 1), 0);
  assert_without_mps();
  pt_close();
  assert_ok(brim_fs_write(RUN, "a file", 6));
  pt_open(packing());
  assert_int_equal(pt_choose(&W(.exp = "a", .need_bytes = (double)FAKE_GIB), 1), 0);
  assert_without_mps();
}

// One experiment's fault ends all clients of a server: from then on experiments run without MPS and alone.
static void test_a_failure_under_mps(void **state) {
  (void)state;
  pt_open(packing());
  start_with_mps("a");
  start_with_mps("b");
  int64_t pid = daemon_pid();
  pt_end("a", BRIM_LAB_PLACE_FAILED, BRIM_FAILURE_CRASH);
  pt_end("b", BRIM_LAB_PLACE_FAILED, BRIM_FAILURE_CRASH);
  until_gone(pid);
  // the first one failed beside another, the second one alone
  assert_int_equal(pt_gpu(0).failures, 1);
  pt_pass(1000);
  assert_int_equal(pt_choose(&W(.exp = "c", .need_bytes = (double)FAKE_GIB), 1), 0);
  assert_string_equal(pt.slot.mps_pipe, "");
  assert_int_equal(pt_choose(&W(.exp = "d", .need_bytes = (double)FAKE_GIB), 1), -1);
  until_no_folder();
}

int main(void) {
  const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
      T(test_started_before_the_first), T(test_lives_with_the_last_executor),
      T(test_its_processes_are_ours),   T(test_equal_parts),
      T(test_its_server_is_elsewhere),  T(test_its_server_is_not_listed),
      T(test_not_for_one_at_a_time),    T(test_not_installed),
      T(test_it_ends_at_once),          T(test_it_never_answers),
      T(test_a_folder_that_cannot_be),  T(test_a_failure_under_mps),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
