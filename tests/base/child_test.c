// This program as a child of its own tests, and the tests' common helpers.
#include "child_test.h"

#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_fs.h"
#include "base/base_thread.h"

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

// Fills both streams at once, each far beyond the size of a pipe.
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

// Starts a child that has to end with this process, from a thread that ends at once.
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

void as_child(int argc, char **argv) {
  const char *what = argv[1];
  if (!strcmp(what, "descriptors")) print_descriptors();
  if (!strcmp(what, "signals")) print_signals();
  if (!strcmp(what, "flood")) flood();
  if (!strcmp(what, "memory") && argc > 2) use_memory(argv[2]);
  if (!strcmp(what, "time")) use_time();
  if (!strcmp(what, "parent")) be_a_parent();
  (void)fflush(NULL);
  _exit(0);
}

//---------------------------------- what the tests have in common ----------------------------------

brim_status on_line(void *ctx, const brim_child_line *line) {
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

brim_child *start(brim_child_options o, heard *h, const char *const *argv) {
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

brim_child *shell(brim_child_options o, heard *h, const char *script) {
  const char *argv[] = {"/bin/sh", "-c", script, NULL};
  return start(o, h, argv);
}

void expect(brim_child *c, heard *h, int exit_code, const char *lines) {
  bool ended = false;
  assert_ok(brim_child_wait(c, -1, &ended));
  assert_true(ended);
  if (lines) assert_string_equal(h->text.data ? h->text.data : "", lines);
  assert_int_equal(brim_child_get_result(c)->exit_code, exit_code);
  brim_child_close(c);
  brim_str_deinit(&h->text);
}

void until_lines(brim_child *c, const heard *h, int count) {
  bool ended = false;
  while (h->lines[BRIM_CHILD_OUT] < count && !ended) {
    brim_child_wait_any(&c, 1, 1000);
    assert_ok(brim_child_poll(c, &ended));
  }
  assert_true(h->lines[BRIM_CHILD_OUT] >= count);
}

bool is_gone(long pid) {
  char path[64], *text = NULL;
  snprintf(path, sizeof path, "/proc/%ld/stat", pid);
  bool gone = brim_fs_read(path, 0, &text, NULL) != BRIM_OK || strstr(text, ") Z ") != NULL;
  brim_free(text);
  return gone;
}

void until_gone(long pid) {
  for (int i = 0; i < 3000 && !is_gone(pid); i++) brim_clock_sleep_ns(10000000);
  assert_true(is_gone(pid));
}

int open_count(void) {
  int n = 0;
  for (int fd = 0; fd < 1024; fd++) n += fcntl(fd, F_GETFD) >= 0;
  return n;
}
