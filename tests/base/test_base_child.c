// Child processes that run beside the caller: their lines, their end, signals, descriptors, memory.
// What has to be exact about a child is tried with this program itself as the child (see main).
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
#include <time.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_fs.h"
#include "base/base_status.h"
#include "base/base_str.h"
#include "base/base_thread.h"
#include "test.h"

enum { FLOOD_LINES = 40000, FORTY_MS = 40000000 };
static const char SELF[] = "/proc/self/exe";

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

//---------------------------------- this program as a child ----------------------------------

static void print_descriptors(void) {
  for (int fd = 0; fd < 300; fd++) {
    if (fcntl(fd, F_GETFD) >= 0) printf("%d ", fd);
  }
  printf("\n");
}

static void print_signals(void) {
  sigset_t mask;
  sigprocmask(SIG_SETMASK, NULL, &mask);
  for (int n = 1; n < NSIG; n++) {
    struct sigaction now;
    if (sigismember(&mask, n) == 1) printf("blocked %d\n", n);
    if (sigaction(n, NULL, &now) == 0 && now.sa_handler == SIG_IGN) printf("ignored %d\n", n);
  }
  printf("group %d\n", getpgrp() == getpid());
}

// Both streams at once, each far beyond what a pipe holds.
static void flood(void) {
  for (int i = 0; i < FLOOD_LINES; i++) {
    fprintf(stderr, "err %d of the stream that a careless reader leaves full\n", i);
    printf("out %d\n", i);
  }
}

static void use_memory(const char *bytes) {
  size_t n = strtoull(bytes, NULL, 10);
  volatile char *block = malloc(n);
  for (size_t i = 0; block && i < n; i += 1024) block[i] = 1;
  free((void *)(uintptr_t)block);
}

static void use_time(void) {
  struct timespec used = {0};
  while (used.tv_sec == 0 && used.tv_nsec < FORTY_MS)
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
}

// Starts a child that is to end with this process, in a thread that ends at once.
static void start_kept(void *ctx) {
  const char *argv[] = {"sleep", "1000", NULL};
  (void)brim_child_start(&(brim_child_options){.argv = argv, .die_with_parent = true}, ctx);
}

static void be_a_parent(void) {
  brim_thread *thread = NULL;
  brim_child *c = NULL;
  if (brim_thread_start(start_kept, &c, "", &thread)) return;
  brim_thread_join(thread);
  printf("%ld\n", c ? (long)brim_child_pid(c) : 0L);
  fflush(stdout);
  for (;;) pause();
}

static int as_child(int argc, char **argv) {
  const char *what = argv[1];
  if (!strcmp(what, "descriptors")) print_descriptors();
  if (!strcmp(what, "signals")) print_signals();
  if (!strcmp(what, "flood")) flood();
  if (!strcmp(what, "memory") && argc > 2) use_memory(argv[2]);
  if (!strcmp(what, "time")) use_time();
  if (!strcmp(what, "parent")) be_a_parent();
  return 0;
}

//---------------------------------- what the tests have in common ----------------------------------

// Lines as text: "o:" or "e:" before each, "+" after a piece, "|" after a line without newline.
typedef struct heard {
  brim_str text;
  int lines[BRIM_CHILD_STREAM_COUNT];
  int fail_at;  // the n-th line is refused
} heard;

static brim_status on_line(void *ctx, const brim_child_line *line) {
  heard *h = ctx;
  h->lines[line->stream]++;
  if (h->fail_at && h->lines[line->stream] == h->fail_at) return BRIM_ELIMIT;
  assert_int_equal(line->text[line->size], 0);
  brim_str_printf(&h->text, "%c:", line->stream == BRIM_CHILD_OUT ? 'o' : 'e');
  for (size_t i = 0; i < line->size; i++)
    brim_str_printf(&h->text, "%c", line->text[i] ? line->text[i] : '0');
  brim_str_append(&h->text, line->more ? "+\n" : line->cut ? "|\n" : "\n");
  return BRIM_OK;
}

static brim_child *start(brim_child_options o, heard *h, const char *const *argv) {
  brim_child *c = NULL;
  memset(h, 0, sizeof *h);
  brim_str_init(&h->text);
  o.argv = argv;
  o.out = BRIM_CHILD_PIPE;
  if (o.err == BRIM_CHILD_NULL) o.err = BRIM_CHILD_PIPE;
  if (!o.on_line) o.on_line = on_line;
  o.ctx = h;
  assert_ok(brim_child_start(&o, &c));
  assert_true(brim_child_pid(c) > 1);
  return c;
}

static brim_child *shell(brim_child_options o, heard *h, const char *script) {
  const char *argv[] = {"/bin/sh", "-c", script, NULL};
  return start(o, h, argv);
}

// To its end; the result's exit code and the lines.
static void expect(brim_child *c, heard *h, int exit_code, const char *lines) {
  bool ended = false;
  assert_ok(brim_child_wait(c, -1, &ended));
  assert_true(ended);
  if (lines) assert_string_equal(h->text.data ? h->text.data : "", lines);
  assert_int_equal(brim_child_get_result(c)->exit_code, exit_code);
  brim_child_close(c);
  brim_str_deinit(&h->text);
}

static void until_lines(brim_child *c, const heard *h, int count) {
  bool ended = false;
  while (h->lines[BRIM_CHILD_OUT] < count && !ended) {
    brim_child_wait_any(&c, 1, 1000);
    assert_ok(brim_child_poll(c, &ended));
  }
  assert_true(h->lines[BRIM_CHILD_OUT] >= count);
}

// Not there any more, or a zombie that its new parent has not reaped yet.
static bool is_gone(long pid) {
  char path[64], *text = NULL;
  snprintf(path, sizeof path, "/proc/%ld/stat", pid);
  bool gone = brim_fs_read(path, 0, &text, NULL) != BRIM_OK || strstr(text, ") Z ") != NULL;
  brim_free(text);
  return gone;
}

static void until_gone(long pid) {
  for (int i = 0; i < 3000 && !is_gone(pid); i++) brim_clock_sleep_ns(10000000);
  assert_true(is_gone(pid));
}

static int open_count(void) {
  int n = 0;
  for (int fd = 0; fd < 1024; fd++) n += fcntl(fd, F_GETFD) >= 0;
  return n;
}

//---------------------------------- output ----------------------------------

static void lines_of_both_streams(void **state) {
  (void)state;
  heard h;
  brim_child *c = shell((brim_child_options){0}, &h, "echo one; echo; echo two words; exit 3");
  expect(c, &h, 3, "o:one\no:\no:two words\n");
  c = shell((brim_child_options){0}, &h, "echo wrong >&2; exit 1");
  expect(c, &h, 1, "e:wrong\n");
  c = shell((brim_child_options){.err = BRIM_CHILD_MERGE}, &h, "echo a; echo b >&2; echo c");
  expect(c, &h, 0, "o:a\no:b\no:c\n");
  c = shell((brim_child_options){0}, &h, "true");
  expect(c, &h, 0, "");
}

static void last_line_without_newline(void **state) {
  (void)state;
  heard h;
  brim_child *c = shell((brim_child_options){0}, &h, "printf 'a\\nb'; printf c >&2");
  expect(c, &h, 0, "o:a\no:b|\ne:c|\n");
}

static void long_lines_come_in_pieces(void **state) {
  (void)state;
  heard h;
  brim_child_options o = {.max_line = 4};
  brim_child *c = shell(o, &h, "echo 1234; echo 12345; echo 123456789; printf 12345678");
  expect(c, &h, 0, "o:1234\no:1234+\no:5\no:1234+\no:5678+\no:9\no:1234+\no:5678|\n");
  c = shell(o, &h, "printf 'a\\000b\\n'");
  expect(c, &h, 0, "o:a0b\n");
}

static void progress_bars(void **state) {
  (void)state;
  heard h;
  const char script[] = "printf '10%%\\r20%%\\r\\n'; printf '\\r\\r\\nend'";
  brim_child *c = shell((brim_child_options){.split_returns = true}, &h, script);
  expect(c, &h, 0, "o:10%\no:20%\no:\no:\no:end|\n");
  c = shell((brim_child_options){0}, &h, "printf '10%%\\r20%%\\n'");
  expect(c, &h, 0, "o:10%\r20%\n");
}

typedef struct flooded {
  int next[BRIM_CHILD_STREAM_COUNT];
  bool wrong;
} flooded;

static brim_status on_flood(void *ctx, const brim_child_line *line) {
  flooded *f = ctx;
  char wanted[32];
  int n = snprintf(wanted, sizeof wanted, "%s %d", line->stream == BRIM_CHILD_OUT ? "out" : "err",
                   f->next[line->stream]++);
  f->wrong |= line->size < (size_t)n || memcmp(line->text, wanted, (size_t)n) != 0 || line->more;
  return BRIM_OK;
}

static void much_output_on_both_streams(void **state) {
  (void)state;
  const char *argv[] = {SELF, "flood", NULL};
  flooded f = {{0}, false};
  brim_child *c = NULL;
  bool ended = false;
  assert_ok(brim_child_start(&(brim_child_options){.argv = argv,
                                                   .out = BRIM_CHILD_PIPE,
                                                   .err = BRIM_CHILD_PIPE,
                                                   .on_line = on_flood,
                                                   .ctx = &f},
                             &c));
  assert_ok(brim_child_wait(c, -1, &ended));
  assert_int_equal(f.next[BRIM_CHILD_OUT], FLOOD_LINES);
  assert_int_equal(f.next[BRIM_CHILD_ERR], FLOOD_LINES);
  assert_false(f.wrong);
  brim_child_close(c);
}

static void callback_that_fails(void **state) {
  (void)state;
  heard h;
  bool ended = false;
  brim_child *c = shell((brim_child_options){0}, &h, "echo a; echo b; sleep 1000");
  h.fail_at = 2;
  brim_status status = BRIM_OK;
  while (!status) status = brim_child_wait(c, 1000, &ended);
  assert_int_equal(status, BRIM_ELIMIT);
  assert_false(ended);
  assert_string_equal(h.text.data, "o:a\n");
  brim_str_deinit(&h.text);
  brim_child_close(c);  // and the child with it
}

// A process left behind holds the pipe and writes on: its output is not waited for.
static void background_writer_does_not_hold_us(void **state) {
  (void)state;
  heard h;
  brim_child *c = shell((brim_child_options){.err = BRIM_CHILD_INHERIT}, &h,
                        "echo first; (trap '' PIPE; while :; do sleep 0.01; echo on 2>/dev/null || "
                        "exit; done) & exit 5");
  bool ended = false;
  assert_ok(brim_child_wait(c, -1, &ended));
  assert_int_equal(brim_child_get_result(c)->exit_code, 5);
  assert_int_equal(strncmp(h.text.data, "o:first\n", 8), 0);
  brim_child_close(c);
  brim_str_deinit(&h.text);
}

//---------------------------------- several in one loop ----------------------------------

static void many_in_one_loop(void **state) {
  (void)state;
  enum { COUNT = 24 };  // more than brim_child_wait_any keeps on its stack
  static heard h[COUNT];
  brim_child *children[COUNT + 1] = {NULL};
  int running = COUNT;
  bool ended[COUNT] = {false};
  for (int i = 0; i < COUNT; i++) {
    char script[64];
    snprintf(script, sizeof script, "echo %d; echo e%d >&2; exit %d", i, i, i);
    children[i] = shell((brim_child_options){.die_with_parent = i % 2}, &h[i], script);
  }
  while (running) {
    brim_child_wait_any(children, COUNT + 1, -1);
    for (int i = 0; i < COUNT; i++) {
      if (ended[i]) continue;
      assert_ok(brim_child_poll(children[i], &ended[i]));
      running -= ended[i];
    }
  }
  brim_child_wait_any(children, COUNT + 1, -1);  // all have ended: at once
  for (int i = 0; i < COUNT; i++) {
    char lines[64];
    snprintf(lines, sizeof lines, "o:%d\n", i);
    assert_non_null(strstr(h[i].text.data, lines));
    snprintf(lines, sizeof lines, "e:e%d\n", i);
    assert_non_null(strstr(h[i].text.data, lines));
    expect(children[i], &h[i], i, NULL);
  }
}

static void own_loop(void **state) {
  (void)state;
  heard h;
  bool ended = false;
  brim_child *c = shell((brim_child_options){0}, &h, "echo a; sleep 0.05; echo b; exit 4");
  while (!ended) {
    struct pollfd fds[BRIM_CHILD_FDS];
    int limit;
    size_t n = brim_child_fds(c, fds, &limit);
    assert_true(n <= BRIM_CHILD_FDS && (n > 0 || limit >= 0));
    assert_true(poll(fds, (nfds_t)n, limit) >= 0);
    assert_ok(brim_child_poll(c, &ended));
  }
  expect(c, &h, 4, "o:a\no:b\n");
}

//---------------------------------- end ----------------------------------

static void waiting_has_a_limit(void **state) {
  (void)state;
  heard h;
  bool ended = true;
  brim_child *c = shell((brim_child_options){0}, &h, "echo up; exec sleep 1000");
  until_lines(c, &h, 1);
  assert_ok(brim_child_wait(c, 20, &ended));
  assert_false(ended);
  assert_ok(brim_child_signal(c, SIGKILL));
  assert_ok(brim_child_wait(c, -1, &ended));
  assert_true(ended);
  assert_int_equal(brim_child_get_result(c)->signal, SIGKILL);
  assert_status(brim_child_signal(c, SIGKILL), BRIM_ESTATE);
  assert_status(brim_child_stop(c, 0), BRIM_ESTATE);
  expect(c, &h, -1, "o:up\n");
}

static void stop_ends_the_group(void **state) {
  (void)state;
  heard h;
  bool ended = false;
  brim_child *c = shell((brim_child_options){0}, &h, "sleep 1000 & echo $!; wait");
  until_lines(c, &h, 1);
  long helper = strtol(h.text.data + 2, NULL, 10);
  assert_true(helper > 1);
  assert_ok(brim_child_stop(c, 600000));
  assert_ok(brim_child_wait(c, -1, &ended));
  assert_int_equal(brim_child_get_result(c)->signal, SIGTERM);
  until_gone(helper);
  expect(c, &h, -1, NULL);
}

static void stubborn_child_is_killed(void **state) {
  (void)state;
  heard h;
  bool ended = false;
  brim_child *c =
      shell((brim_child_options){0}, &h, "trap '' TERM; echo deaf; while :; do sleep 0.05; done");
  until_lines(c, &h, 1);
  assert_ok(brim_child_stop(c, 50));
  assert_ok(brim_child_wait(c, -1, &ended));
  assert_int_equal(brim_child_get_result(c)->signal, SIGKILL);
  expect(c, &h, -1, "o:deaf\n");
}

static void graceful_child_cleans_up(void **state) {
  (void)state;
  heard h;
  brim_child *c = shell((brim_child_options){.err = BRIM_CHILD_INHERIT}, &h,
                        "trap 'echo saved; exit 75' TERM; echo up; while :; do sleep 0.05; done");
  until_lines(c, &h, 1);
  assert_ok(brim_child_stop(c, 600000));
  expect(c, &h, 75, "o:up\no:saved\n");
}

static void close_ends_it(void **state) {
  (void)state;
  heard h;
  brim_child *c = shell((brim_child_options){0}, &h, "sleep 1000 & echo $!; wait");
  until_lines(c, &h, 1);
  long helper = strtol(h.text.data + 2, NULL, 10), pid = (long)brim_child_pid(c);
  brim_child_close(c);
  brim_child_close(NULL);
  until_gone(pid);
  until_gone(helper);
  brim_str_deinit(&h.text);
}

static void child_dies_with_its_parent(void **state) {
  (void)state;
  heard h;
  const char *argv[] = {SELF, "parent", NULL};
  brim_child *c = start((brim_child_options){0}, &h, argv);
  until_lines(c, &h, 1);
  long pid = strtol(h.text.data + 2, NULL, 10);
  assert_true(pid > 1);
  brim_clock_sleep_ns(20000000);  // the thread that started it has ended
  assert_false(is_gone(pid));
  assert_ok(brim_child_signal(c, SIGKILL));
  until_gone(pid);
  expect(c, &h, -1, NULL);
}

static void lost_exit_code(void **state) {
  (void)state;
  heard h;
  bool ended = false;
  signal(SIGCHLD, SIG_IGN);
  brim_child *c = shell((brim_child_options){0}, &h, "echo x; exit 0");
  brim_status status = brim_child_wait(c, -1, &ended);
  signal(SIGCHLD, SIG_DFL);
  assert_status(status, BRIM_ECHILD);
  assert_true(ended);
  assert_string_equal(h.text.data, "o:x\n");
  assert_int_equal(brim_child_get_result(c)->exit_code, -1);
  assert_true(brim_child_get_result(c)->lost);
  brim_child_close(c);
  brim_str_deinit(&h.text);
  c = shell((brim_child_options){0}, &h, "exit 3");
  assert_ok(brim_child_wait(c, -1, &ended));
  assert_false(brim_child_get_result(c)->lost);
  brim_child_close(c);
  brim_str_deinit(&h.text);
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
    o.argv = (const char *[]){"./plain.txt", NULL};  // root, too, needs an x
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

// In a process of its own, as nobody: root may start any number. 0: told apart; 2: no such limit.
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
  // One that closes its input: no SIGPIPE comes here.
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
  // A small one of a large parent: no more than was seen while it ran.
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
  assert_true(r->user_ns + r->system_ns >= FORTY_MS / 2);  // of ticks, on some kernels
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
    void *block = malloc(1000 + (size_t)i);  // the allocator is busy in all threads
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
  struct sigaction handler = {.sa_handler = on_alarm}, before;  // no SA_RESTART
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
  if (argc > 1) return as_child(argc, argv);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lines_of_both_streams),
      cmocka_unit_test(last_line_without_newline),
      cmocka_unit_test(long_lines_come_in_pieces),
      cmocka_unit_test(progress_bars),
      cmocka_unit_test(much_output_on_both_streams),
      cmocka_unit_test(callback_that_fails),
      cmocka_unit_test(background_writer_does_not_hold_us),
      cmocka_unit_test(many_in_one_loop),
      cmocka_unit_test(own_loop),
      cmocka_unit_test(waiting_has_a_limit),
      cmocka_unit_test(stop_ends_the_group),
      cmocka_unit_test(stubborn_child_is_killed),
      cmocka_unit_test(graceful_child_cleans_up),
      cmocka_unit_test(close_ends_it),
      cmocka_unit_test(child_dies_with_its_parent),
      cmocka_unit_test(lost_exit_code),
      cmocka_unit_test(environment_and_folder),
      cmocka_unit_test(program_from_the_childs_path),
      cmocka_unit_test(what_cannot_be_run),
      cmocka_unit_test(no_process_left),
      cmocka_unit_test(descriptors_and_signals_of_a_child),
      cmocka_unit_test(input_through_a_pipe),
      cmocka_unit_test(memory_and_time_of_a_child),
      cmocka_unit_test(old_kernels),
      cmocka_unit_test(thousands_of_starts),
      cmocka_unit_test(interrupted_calls),
      cmocka_unit_test(out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
