// Starting child processes: environment, descriptors, memory, and many threads that start them.
#include "base/base_child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_fs.h"
#include "base/base_status.h"
#include "base/base_str.h"
#include "base/base_thread.h"
#include "child_test.h"

// Older kernels have neither of these calls.
static bool old_kernel;
long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f) {
  if (old_kernel && (number == SYS_close_range || number == SYS_pidfd_open)) {
    errno = ENOSYS;
    return -1;
  }
  return __real_syscall(number, a, b, c, d, e, f);
}

//---------------------------------- surroundings ----------------------------------

static void environment_and_folder(void **state) {
  (void)state;
  heard h;
  setenv("BRIM_TEST_KEPT", "kept", 1);
  setenv("BRIM_TEST_GONE", "gone", 1);
  setenv("BRIM_TEST_SET", "old", 1);
  const char *change[] = {"BRIM_TEST_SET=new", "BRIM_TEST_GONE", "BRIM_TEST_NONE",
                          "BRIM_TEST_B=", NULL};
  const char *script =
      "echo $BRIM_TEST_KEPT ${BRIM_TEST_GONE-none} $BRIM_TEST_SET ${BRIM_TEST_B-x}.; pwd";
  brim_child *c = shell((brim_child_options){.env_change = change, .cwd = "/"}, &h, script);
  expect(c, &h, 0, "o:kept none new .\no:/\n");
  const char *whole[] = {"BRIM_TEST_KEPT=other", NULL};
  c = shell((brim_child_options){.env = whole, .env_change = change}, &h, script);
  until_lines(c, &h, 1);
  assert_int_equal(strncmp(h.text.data, "o:other none new .\n", 19), 0);
  expect(c, &h, 0, NULL);
}

static void program_from_the_childs_path(void **state) {
  (void)state;
  heard h;
  static const char script[] = "#!/bin/sh\necho here\n";
  assert_ok(brim_fs_mkdirs("programs of mine"));
  assert_ok(brim_fs_write("programs of mine/brim-test-program", script, sizeof script - 1));
  assert_int_equal(chmod("programs of mine/brim-test-program", 0755), 0);
  const char *change[] = {"PATH=/no/such/folder:programs of mine:/usr/bin:/bin", NULL};
  const char *argv[] = {"brim-test-program", NULL};
  brim_child *c = start((brim_child_options){.env_change = change}, &h, argv);
  expect(c, &h, 0, "o:here\n");
}

static void expect_refused(const brim_child_options *o, brim_status status, const char *text) {
  brim_child *c = (brim_child *)(uintptr_t)1;
  int before = open_count();
  assert_status(brim_child_start(o, &c), status);
  assert_null(c);
  assert_non_null(strstr(brim_status_detail(), text));
  assert_int_equal(open_count(), before);
}

static void what_cannot_be_run(void **state) {
  (void)state;
  const char *change[] = {"PATH=/usr/bin:/bin", NULL};
  for (int kept = 0; kept < 2; kept++) {
    brim_child_options o = {.env_change = change, .out = BRIM_CHILD_PIPE, .die_with_parent = kept};
    o.argv = (const char *[]){"brim-no-such-program", NULL};
    expect_refused(&o, BRIM_ENOENT, "brim-no-such-program");
    o.argv = (const char *[]){"/no/such/program", NULL};
    expect_refused(&o, BRIM_ENOENT, "/no/such/program");
    assert_ok(brim_fs_write("plain.txt", "text\n", 5));
    o.argv = (const char *[]){"./plain.txt", NULL};  // root needs an x as well
    expect_refused(&o, brim_errno_status(EACCES), "plain.txt");
    assert_int_equal(chmod("plain.txt", 0755), 0);
    expect_refused(&o, brim_errno_status(ENOEXEC), "plain.txt");
    assert_int_equal(remove("plain.txt"), 0);
    o.argv = (const char *[]){"true", NULL};
    o.cwd = "/no/such/folder";
    expect_refused(&o, BRIM_ENOENT, "/no/such/folder");
    o.cwd = NULL;
    o.argv = (const char *[]){NULL};
    expect_refused(&o, BRIM_EINVAL, "");
    o.argv = (const char *[]){"true", NULL};
    o.in = BRIM_CHILD_MERGE;
    expect_refused(&o, BRIM_EINVAL, "true");
  }
}

// Runs in a separate process as another user, because root may start any number. 0: the limit was reported; 2: no such
// limit.
static int without_processes(void) {
  const struct rlimit none = {0};
  brim_child *c = NULL;
  if (geteuid() == 0 && setuid(65534) != 0) return 2;
  if (setrlimit(RLIMIT_NPROC, &none) != 0) return 2;
  pid_t pid = fork();
  if (pid == 0) _exit(0);
  if (pid > 0) return 2;
  const brim_child_options o = {.argv = (const char *[]){"/no/such/program", NULL}};
  return brim_child_start(&o, &c) == BRIM_ELIMIT && !c ? 0 : 1;
}

static void no_process_left(void **state) {
  (void)state;
  int how = 0;
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) _exit(without_processes());
  while (waitpid(pid, &how, 0) < 0) assert_int_equal(errno, EINTR);
  assert_true(WIFEXITED(how));
  if (WEXITSTATUS(how) == 2) skip();
  assert_int_equal(WEXITSTATUS(how), 0);
}

static void descriptors_and_signals_of_a_child(void **state) {
  (void)state;
  heard h;
  int high = open("/dev/null", O_RDONLY), ours = fcntl(high, F_DUPFD, 200);
  int passed[] = {dup(0), high};
  assert_true(ours >= 200 && passed[0] >= 0);
  const char *descriptors[] = {SELF, "descriptors", NULL}, *signals[] = {SELF, "signals", NULL};
  for (int round = 0; round < 2; round++) {
    old_kernel = round;
    brim_child *c = start((brim_child_options){0}, &h, descriptors);
    expect(c, &h, 0, "o:0 1 2 \n");
    c = start((brim_child_options){.pass_fds = passed, .pass_count = 2}, &h, descriptors);
    expect(c, &h, 0, "o:0 1 2 3 4 \n");
  }
  old_kernel = false;
  sigset_t block, before;
  sigemptyset(&block);
  sigaddset(&block, SIGTERM);
  sigaddset(&block, SIGUSR1);
  sigprocmask(SIG_BLOCK, &block, &before);
  signal(SIGPIPE, SIG_IGN);
  brim_child *c = start((brim_child_options){0}, &h, signals);
  signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &before, NULL);
  expect(c, &h, 0, "o:group 1\n");
  close(passed[0]);
  close(ours);
  close(high);
}

static void as_many_descriptors_as_allowed(void **state) {
  (void)state;
  heard h;
  int passed[BRIM_CHILD_PASS + 1];
  brim_child *c = NULL;
  const char *argv[] = {SELF, "descriptors", NULL};
  for (int i = 0; i <= BRIM_CHILD_PASS; i++) passed[i] = open("/dev/null", O_RDONLY);
  c = start((brim_child_options){.pass_fds = passed, .pass_count = BRIM_CHILD_PASS}, &h, argv);
  expect(c, &h, 0, "o:0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 \n");
  brim_child_options more = {.argv = argv, .pass_fds = passed, .pass_count = BRIM_CHILD_PASS + 1};
  assert_status(brim_child_start(&more, &c), BRIM_EINVAL);
  for (int i = 0; i <= BRIM_CHILD_PASS; i++) close(passed[i]);
}

// A detached child survives, and ends here with the pipe that it inherited.
static void left_running(void **state) {
  (void)state;
  int to[2], from[2], passed[2];
  char c = 0;
  brim_child *child = NULL;
  assert_int_equal(pipe2(to, O_CLOEXEC), 0);
  assert_int_equal(pipe2(from, O_CLOEXEC), 0);
  passed[0] = to[0];
  passed[1] = from[1];
  const char *argv[] = {"sh", "-c", "read x <&3; echo still here >&4", NULL};
  brim_alloc_stats before, after;
  brim_alloc_get_stats(&before);
  assert_ok(brim_child_start(
      &(brim_child_options){.argv = argv, .pass_fds = passed, .pass_count = 2}, &child));
  pid_t pid = brim_child_pid(child);
  brim_child_detach(child);
  brim_child_detach(NULL);
  brim_alloc_get_stats(&after);
  assert_memory_equal(before.live_bytes, after.live_bytes, sizeof before.live_bytes);
  close(to[0]);
  close(from[1]);
  close(to[1]);
  assert_int_equal(read(from[0], &c, 1), 1);
  assert_int_equal(c, 's');
  close(from[0]);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void input_through_a_pipe(void **state) {
  (void)state;
  enum { SIZE = 300000 };
  heard h;
  bool ended = false;
  size_t total = 0, n = 0;
  char *data = calloc(1, SIZE);
  for (size_t i = 0; i < SIZE; i++) data[i] = i % 100 == 99 ? '\n' : 'x';
  brim_child *c = shell((brim_child_options){.in = BRIM_CHILD_PIPE}, &h, "cat; echo end");
  while (total < SIZE) {
    struct pollfd fd = {.fd = brim_child_input_fd(c), .events = POLLOUT};
    assert_true(poll(&fd, 1, 1) >= 0);
    assert_ok(brim_child_write(c, data + total, SIZE - total, &n));
    total += n;
    assert_ok(brim_child_poll(c, &ended));
    assert_false(ended);
  }
  brim_child_close_input(c);
  assert_int_equal(brim_child_input_fd(c), -1);
  assert_status(brim_child_write(c, data, 1, &n), BRIM_EEND);
  assert_ok(brim_child_wait(c, -1, &ended));
  assert_int_equal(h.lines[BRIM_CHILD_OUT], SIZE / 100 + 1);
  expect(c, &h, 0, NULL);
  free(data);
  // A child that closes its input: this process gets no SIGPIPE.
  c = shell((brim_child_options){.in = BRIM_CHILD_PIPE}, &h, "exec <&-; echo closed; sleep 1000");
  until_lines(c, &h, 1);
  assert_status(brim_child_write(c, "x", 1, &n), BRIM_EEND);
  brim_child_close(c);
  brim_str_deinit(&h.text);
}

//---------------------------------- use of the machine ----------------------------------

static void memory_and_time_of_a_child(void **state) {
  (void)state;
  heard h;
  struct rusage own;
  bool ended = false;
  char bytes[32];
  assert_int_equal(getrusage(RUSAGE_SELF, &own), 0);
  int64_t wanted = (int64_t)own.ru_maxrss * 1024 + (64 << 20);
  snprintf(bytes, sizeof bytes, "%lld", (long long)wanted);
  const char *memory[] = {SELF, "memory", bytes, NULL}, *seconds[] = {SELF, "time", NULL};
  brim_child *c = start((brim_child_options){0}, &h, memory);
  assert_ok(brim_child_wait(c, -1, &ended));
  assert_true(brim_child_get_result(c)->peak_exact);
  assert_true(brim_child_get_result(c)->peak_bytes >= wanted);
  expect(c, &h, 0, NULL);
  // a small child of a large parent: only the sampled peak is known
  size_t large = (size_t)200 << 20;
  volatile char *block = malloc(large);
  assert_non_null((void *)(uintptr_t)block);
  for (size_t i = 0; i < large; i += 1024) block[i] = 1;
  c = shell((brim_child_options){0}, &h, "echo up; sleep 1000");
  until_lines(c, &h, 1);
  int64_t seen = brim_child_sample(c);
  assert_true(seen > 0 && seen < (int64_t)large / 2);
  assert_ok(brim_child_stop(c, 600000));
  assert_ok(brim_child_wait(c, -1, &ended));
  assert_false(brim_child_get_result(c)->peak_exact);
  assert_true(brim_child_get_result(c)->peak_bytes >= seen);
  assert_true(brim_child_get_result(c)->peak_bytes < (int64_t)large / 2);
  expect(c, &h, -1, NULL);
  free((void *)(uintptr_t)block);
  c = start((brim_child_options){0}, &h, seconds);
  assert_ok(brim_child_wait(c, -1, &ended));
  const brim_child_result *r = brim_child_get_result(c);
  assert_true(r->user_ns + r->system_ns >= FORTY_MS / 2);  // some kernels count in ticks
  assert_true(r->elapsed_ns > 0);
  expect(c, &h, 0, NULL);
}

static void old_kernels(void **state) {
  (void)state;
  heard h;
  old_kernel = true;
  brim_child *c = shell((brim_child_options){0}, &h, "echo a; sleep 0.05; exit 2");
  expect(c, &h, 2, "o:a\n");
  old_kernel = false;
}

//---------------------------------- threads, interruptions, memory ----------------------------------

typedef struct starter {
  int count, id;
  int bad;
} starter;

static brim_status count_line(void *ctx, const brim_child_line *line) {
  (*(int *)ctx) += line->size == 5 && memcmp(line->text, "hello", 5) == 0;
  return BRIM_OK;
}

static void start_many(void *ctx) {
  starter *s = ctx;
  for (int i = 0; i < s->count; i++) {
    const char *argv[] = {"/bin/echo", "hello", NULL};
    int lines = 0;
    bool ended = false;
    brim_child *c = NULL;
    brim_child_options o = {.argv = argv,
                            .out = BRIM_CHILD_PIPE,
                            .err = BRIM_CHILD_PIPE,
                            .in = i % 3 ? BRIM_CHILD_NULL : BRIM_CHILD_PIPE,
                            .on_line = count_line,
                            .die_with_parent = i % 2,
                            .ctx = &lines};
    void *block = malloc(1000 + (size_t)i);  // every thread uses the allocator
    s->bad += brim_child_start(&o, &c) != BRIM_OK;
    if (c) s->bad += brim_child_wait(c, -1, &ended) != BRIM_OK || lines != 1;
    brim_child_close(c);
    free(block);
  }
}

static void thousands_of_starts(void **state) {
  (void)state;
  enum { THREADS = 4 };
#ifdef BRIM_TSAN
  const int each = 40;
#else
  const int each = test_is_full() ? 2000 : 500;
#endif
  starter starters[THREADS];
  brim_thread *threads[THREADS];
  int before = open_count();
  for (int i = 0; i < THREADS; i++) {
    starters[i] = (starter){.count = each, .id = i};
    assert_ok(brim_thread_start(start_many, &starters[i], "", &threads[i]));
  }
  for (int i = 0; i < THREADS; i++) {
    brim_thread_join(threads[i]);
    assert_int_equal(starters[i].bad, 0);
  }
  assert_int_equal(open_count(), before);
}

static atomic_int alarms;
static void on_alarm(int number) {
  (void)number;
  alarms++;
}

static void interrupted_calls(void **state) {
  (void)state;
  struct sigaction handler = {.sa_handler = on_alarm}, before;  // without SA_RESTART
  const struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
  sigaction(SIGALRM, &handler, &before);
  assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
  starter s = {.count = 30};
  start_many(&s);
  heard h;
  brim_child *c = shell((brim_child_options){0}, &h, "sleep 0.05; echo a");
  bool ended = false;
  brim_status status = brim_child_wait(c, -1, &ended);
  setitimer(ITIMER_REAL, &never, NULL);
  sigaction(SIGALRM, &before, NULL);
  assert_int_equal(s.bad, 0);
  assert_ok(status);
  assert_true(alarms > 0);
  expect(c, &h, 0, "o:a\n");
}

static void out_of_memory(void **state) {
  (void)state;
  const char *argv[] = {"/bin/echo", "hello", NULL};
  const char *change[] = {"A=b", NULL};
  brim_alloc_stats before, after;
  int descriptors = open_count();
  brim_alloc_get_stats(&before);
  for (int kept = 0; kept < 2; kept++) {
    brim_status status = BRIM_ENOMEM;
    int tries = 0;
    for (uint64_t n = 1; status == BRIM_ENOMEM && n < 30; n++, tries++) {
      int lines = 0;
      brim_child *c = NULL;
      bool ended = false;
      brim_child_options o = {.argv = argv,
                              .env_change = change,
                              .out = BRIM_CHILD_PIPE,
                              .err = BRIM_CHILD_PIPE,
                              .on_line = count_line,
                              .die_with_parent = kept,
                              .ctx = &lines};
      brim_alloc_fail_nth(n, 0);
      status = brim_child_start(&o, &c);
      brim_alloc_fail_nth(0, 0);
      if (!status) assert_ok(brim_child_wait(c, -1, &ended));
      brim_child_close(c);
      brim_alloc_get_stats(&after);
      assert_memory_equal(before.live_bytes, after.live_bytes, sizeof before.live_bytes);
      assert_int_equal(open_count(), descriptors);
    }
    assert_ok(status);
    assert_true(tries >= 6);
  }
}

int main(int argc, char **argv) {
  if (argc > 1) as_child(argc, argv);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(environment_and_folder),
      cmocka_unit_test(program_from_the_childs_path),
      cmocka_unit_test(what_cannot_be_run),
      cmocka_unit_test(no_process_left),
      cmocka_unit_test(descriptors_and_signals_of_a_child),
      cmocka_unit_test(as_many_descriptors_as_allowed),
      cmocka_unit_test(left_running),
      cmocka_unit_test(input_through_a_pipe),
      cmocka_unit_test(memory_and_time_of_a_child),
      cmocka_unit_test(old_kernels),
      cmocka_unit_test(thousands_of_starts),
      cmocka_unit_test(interrupted_calls),
      cmocka_unit_test(out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
