// Servers and workers in the background, for the tests of `brim serve`.
#ifndef BRIM_TESTS_SERVE_TEST_H_
#define BRIM_TESTS_SERVE_TEST_H_

#include <signal.h>
#include <unistd.h>

#include "cli_test.h"

#include "base/base_child.h"
#include "lab/wire/lab_wire_link.h"

enum { TRIES = 1500, PAUSE_US = 100 * 1000 };

// Removes the files of earlier tests.
static inline int fresh(void **state) {
  (void)state;
  shell_result r =
      shell("rm -rf pool w1 w2 plain runs token* *.yaml *.out *.err *.pem *.safetensors");
  shell_free(&r);
  return 0;
}

//---------------------------------- programs in the background ----------------------------------

typedef struct told {
  int port;
  char pin[64];
} told;

// Takes the port and the pin from a server's first line: {"event":"serving",...,"port":N,...}
static inline brim_status take_line(void *ctx, const brim_child_line *line) {
  told *t = ctx;
  const char *at = strstr(line->text, "\"port\":"), *pin = strstr(line->text, "sha256//");
  if (pin) snprintf(t->pin, sizeof t->pin, "%.*s", (int)strcspn(pin, "\""), pin);
  if (at) t->port = atoi(at + strlen("\"port\":"));
  return BRIM_OK;
}

static inline brim_child *start(const char *const *words, told *out) {
  const char *argv[24] = {BRIM_BINARY};
  size_t n = 1;
  for (; *words; words++) argv[n++] = *words;
  argv[n] = NULL;
  brim_child *child = NULL;
  const brim_child_options how = {.argv = argv,
                                  .in = BRIM_CHILD_NULL,
                                  .out = out ? BRIM_CHILD_PIPE : BRIM_CHILD_NULL,
                                  .err = BRIM_CHILD_INHERIT,
                                  .die_with_parent = true,
                                  .on_line = take_line,
                                  .ctx = out};
  assert_ok(brim_child_start(&how, &child));
  return child;
}

typedef struct pool {
  brim_child *server;
  char url[64], pin[64];
} pool;

static inline pool serve_with(const char *const *words) {
  told t = {0};
  bool ended = false;
  pool p = {.server = start(words, &t)};
  for (int i = 0; i < TRIES && t.port == 0 && !ended; i++) {
    assert_ok(brim_child_wait(p.server, 100, &ended));
  }
  if (t.port == 0) fail_msg("the server does not tell its port");
  memcpy(p.pin, t.pin, sizeof p.pin);
  snprintf(p.url, sizeof p.url, "%s://127.0.0.1:%d", t.pin[0] ? "https" : "http", t.port);
  return p;
}

static inline pool serve(const char *lease) {
  return serve_with((const char *const[]){"serve", "--server-only", "--port", "0", "--json",
                                          "--store", "pool", "--lease", lease, NULL});
}

static inline brim_child *work(const pool *p, const char *folder) {
  return start((const char *const[]){"--quiet", "worker", "--url", p->url, "--device", "cpu",
                                     "--output-dir", folder, NULL},
               NULL);
}

// Ends the process with SIGTERM, as a system that shuts down does.
static inline int end(brim_child *child) {
  bool ended = false;
  assert_ok(brim_child_signal(child, SIGTERM));
  assert_ok(brim_child_wait(child, 120000, &ended));
  if (!ended) fail_msg("process %ld does not end", (long)brim_child_pid(child));
  int code = brim_child_get_result(child)->exit_code;
  brim_child_close(child);
  return code;
}

// Makes a key and a certificate that no authority signed, for another name; false without openssl.
static inline bool make_certificate(const char *days) {
  shell_result r = shell(
      "openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem -out "
      "csr.pem -subj /CN=elsewhere && openssl x509 -req -in csr.pem -signkey key.pem -days %s -out "
      "cert.pem",
      days);
  const bool made = r.code == 0;
  shell_free(&r);
  return made;
}

//---------------------------------- grids ----------------------------------

// A grid of four experiments.
static inline void write_grid(const char *path, const char *name, int epochs) {
  char text[1024];
  snprintf(text, sizeof text,
           "name: %s\nepochs: %d\n" CLI_SMALL_TRAINING
           "lr: [0.1, 0.01]\n"
           "seed: [0, 1]\n"
           "batch_size: 8\n",
           name, epochs);
  write_file(path, text);
}

// Submits it; fails the test unless the server accepts. Returns brim's output.
static inline shell_result submit_grid(const pool *p, const char *grid) {
  shell_result r = shell("brim sweep %s --store %s", grid, p->url);
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  return r;
}

//---------------------------------- what the server says ----------------------------------

// Free it with json_decref.
static inline json_t *status_of(const pool *p, const char *options) {
  shell_result r = shell("brim sweep status %s %s --json", p->url, options);
  json_t *view = NULL;
  if (r.code) fail_msg("status: exit %d: %s", r.code, r.err);
  assert_ok(brim_json_parse(r.out, strlen(r.out), "status", &view));
  shell_free(&r);
  return view;
}

static inline int64_t count_state(const pool *p, const char *state) {
  json_t *view = status_of(p, "");
  json_t *n = json_object_get(json_object_get(view, "counts"), state);
  assert_true(json_is_integer(n));
  int64_t count = json_integer_value(n);
  json_decref(view);
  return count;
}

// Asks from this process: a hundred processes for asking would take longer than the wait itself.
static inline void wait_until(const pool *p, const char *state, int64_t at_least) {
  brim_lab_link *link = NULL;
  int wanted = 0;
  const brim_lab_link_options how = {.timeout_ms = 10000};
  while (wanted < BRIM_EXP_STATE_COUNT &&
         strcmp(brim_exp_state_name((brim_exp_state)wanted), state) != 0) {
    wanted++;
  }
  assert_true(wanted < BRIM_EXP_STATE_COUNT);
  assert_ok(brim_lab_link_open(p->url, &how, &link));
  for (int i = 0; i < TRIES; i++) {
    brim_store_counts counts = {0};
    assert_ok(brim_lab_count(link, NULL, &counts));
    if (counts.states[wanted] >= at_least) {
      brim_lab_link_close(link);
      return;
    }
    usleep(PAUSE_US);
  }
  fail_msg("%s experiments: fewer than %lld for too long", state, (long long)at_least);
}

static inline size_t folders_in(const char *path) {
  char **names = NULL;
  size_t count = 0;
  if (brim_fs_list(path, &names, &count)) {
    brim_status_clear();
    return 0;
  }
  brim_fs_list_free(names, count);
  return count;
}

// Kills the worker and its children, so that they cannot report anything.
static inline void kill_whole(brim_child *worker) {
  char path[96], *text = NULL;
  pid_t pid = brim_child_pid(worker);
  assert_ok(brim_child_signal(worker, SIGSTOP));
  snprintf(path, sizeof path, "/proc/%ld/task/%ld/children", (long)pid, (long)pid);
  // not every kernel lists children: executors live on there
  if (brim_fs_read(path, 4096, &text, NULL)) {
    brim_status_clear();
  } else {
    for (char *at = text, *next; *at; at = next) {
      long child = strtol(at, &next, 10);
      if (next == at) break;
      kill((pid_t)child, SIGKILL);
    }
  }
  brim_free(text);
  brim_child_close(worker);  // SIGKILL
}

#endif  // BRIM_TESTS_SERVE_TEST_H_
