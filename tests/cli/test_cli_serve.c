// `brim serve` and `brim worker` from the command line, with the built program: a grid is submitted to a
// server and run by two workers, one of which is killed; tokens and addresses are checked.
#include <signal.h>
#include <unistd.h>

#include "cli_test.h"

#include "base/base_child.h"

enum { TRIES = 1500, PAUSE_US = 100 * 1000 };

static const char head[] =
    "backend: ref\n"
    "device: cpu\n"
    "threads: 1\n"
    "dataset: synthetic(shape=(6,), classes=3, samples=96)\n"
    "model: mlp(depth=1, hidden=8)\n"
    "data: {num_workers: 0}\n"
    "lr: [0.1, 0.01]\n"
    "seed: [0, 1]\n"
    "batch_size: 8\n";

static void write_grid(const char *path, const char *name, int epochs) {
  char text[1024];
  snprintf(text, sizeof text, "name: %s\nepochs: %d\n%s", name, epochs, head);
  write_file(path, text);
}

static int fresh(void **state) {
  (void)state;
  shell_result r = shell("rm -rf pool w1 w2 runs token* *.yaml *.out *.err *.pem");
  shell_free(&r);
  return 0;
}

//---------------------------------- programs in the background ----------------------------------

typedef struct told {
  int port;
  char pin[64];
} told;

// What a server prints: {"event":"serving",...,"port":N,...}
static brim_status take_line(void *ctx, const brim_child_line *line) {
  told *t = ctx;
  const char *at = strstr(line->text, "\"port\":"), *pin = strstr(line->text, "sha256//");
  if (pin) snprintf(t->pin, sizeof t->pin, "%.*s", (int)strcspn(pin, "\""), pin);
  if (at) t->port = atoi(at + strlen("\"port\":"));
  return BRIM_OK;
}

static brim_child *start(const char *const *words, told *out) {
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

static pool serve_with(const char *const *words) {
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

static pool serve(const char *lease) {
  return serve_with((const char *const[]){"serve", "--server-only", "--port", "0", "--json",
                                          "--store", "pool", "--lease", lease, NULL});
}

static brim_child *work(const pool *p, const char *folder) {
  return start((const char *const[]){"--quiet", "worker", "--url", p->url, "--device", "cpu",
                                     "--output-dir", folder, NULL},
               NULL);
}

// With SIGTERM, as a system that shuts down does.
static int end(brim_child *child) {
  bool ended = false;
  assert_ok(brim_child_signal(child, SIGTERM));
  assert_ok(brim_child_wait(child, 120000, &ended));
  if (!ended) fail_msg("process %ld does not end", (long)brim_child_pid(child));
  int code = brim_child_get_result(child)->exit_code;
  brim_child_close(child);
  return code;
}

//---------------------------------- what the server says ----------------------------------

static int64_t count_state(const pool *p, const char *state) {
  shell_result r = shell("brim sweep status %s --json", p->url);
  json_t *view = NULL;
  if (r.code) fail_msg("status: exit %d: %s", r.code, r.err);
  assert_ok(brim_json_parse(r.out, strlen(r.out), "status", &view));
  json_t *n = json_object_get(json_object_get(view, "counts"), state);
  assert_true(json_is_integer(n));
  int64_t count = json_integer_value(n);
  json_decref(view);
  shell_free(&r);
  return count;
}

static void wait_until(const pool *p, const char *state, int64_t at_least) {
  for (int i = 0; i < TRIES; i++) {
    if (count_state(p, state) >= at_least) return;
    usleep(PAUSE_US);
  }
  fail_msg("%s experiments: fewer than %lld for too long", state, (long long)at_least);
}

static size_t folders_in(const char *path) {
  char **names = NULL;
  size_t count = 0;
  if (brim_fs_list(path, &names, &count)) {
    brim_status_clear();
    return 0;
  }
  brim_fs_list_free(names, count);
  return count;
}

static void submit(const pool *p, const char *grid) {
  shell_result r = shell("brim sweep %s --store %s", grid, p->url);
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  has(r.err, "4 experiments new");
  has(r.err, "the server's workers run them");
  shell_free(&r);
}

//---------------------------------- tests ----------------------------------

static void test_two_workers(void **state) {
  (void)state;
  write_grid("small.yaml", "small", 3);
  pool p = serve("60");
  submit(&p, "small.yaml");
  assert_int_equal(count_state(&p, "queued"), 4);
  brim_child *one = work(&p, "w1"), *two = work(&p, "w2");
  wait_until(&p, "done", 4);
  shell_result r = shell("brim sweep status %s", p.url);
  assert_int_equal(r.code, 0);
  has(r.out, "4 of 4 done");
  has_not(r.out, "no sweep is running");
  shell_free(&r);
  r = shell("brim report %s", p.url);
  assert_int_not_equal(r.code, 0);
  has(r.err, "name what http://127.0.0.1");
  shell_free(&r);
  // they wait for more
  bool ended = true;
  assert_ok(brim_child_poll(one, &ended));
  assert_false(ended);
  end(one);
  end(two);
  assert_int_equal(folders_in("w1/exp") + folders_in("w2/exp"), 4);  // each ran once
  assert_int_equal(end(p.server), 0);
}

// The worker and what it runs, with no chance to say anything.
static void kill_whole(brim_child *worker) {
  char path[96], *text = NULL;
  pid_t pid = brim_child_pid(worker);
  assert_ok(brim_child_signal(worker, SIGSTOP));
  snprintf(path, sizeof path, "/proc/%ld/task/%ld/children", (long)pid, (long)pid);
  if (brim_fs_read(path, 4096, &text, NULL)) {  // not of every kernel: its executors then live on
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

static void test_a_killed_worker(void **state) {
  (void)state;
  write_grid("slow.yaml", "slow", 200);
  pool p = serve("3");
  submit(&p, "slow.yaml");
  brim_child *one = work(&p, "w1");
  wait_until(&p, "running", 1);
  kill_whole(one);
  assert_true(count_state(&p, "done") < 4);
  brim_child *two = work(&p, "w2");
  wait_until(&p, "done", 4);
  end(two);
  assert_true(folders_in("w1/exp") >= 1);
  assert_true(folders_in("w2/exp") >= 1);
  assert_int_equal(end(p.server), 0);
}

// A server that is killed has lost nothing when it is there again.
static void test_a_killed_server(void **state) {
  (void)state;
  write_grid("small.yaml", "small", 3);
  pool p = serve("3");
  submit(&p, "small.yaml");
  brim_child_close(p.server);  // SIGKILL
  p = serve("3");
  assert_int_equal(count_state(&p, "queued"), 4);
  brim_child *one = work(&p, "w1");
  wait_until(&p, "done", 4);
  end(one);
  assert_int_equal(end(p.server), 0);
}

// Trainings of the server's own machine outlive it: the next server takes their results, and none runs twice.
static void test_a_killed_server_with_a_worker(void **state) {
  (void)state;
  write_grid("slow.yaml", "slow", 200);
  const char *words[] = {"serve", "--port",       "0",    "--json", "--store",
                         "pool",  "--output-dir", "pool", NULL};
  pool p = serve_with(words);
  submit(&p, "slow.yaml");
  wait_until(&p, "running", 1);
  brim_child_close(p.server);  // SIGKILL
  words[2] = strrchr(p.url, ':') + 1;
  pool again = serve_with(words);
  wait_until(&again, "done", 4);
  shell_result r = shell("brim sweep status %s --json", again.url);
  assert_int_equal(r.code, 0);
  has(r.out, "\"attempt\":1,");
  has_not(r.out, "\"attempt\":2,");
  shell_free(&r);
  expect(0, "600", "stat -c %a pool/local.token");
  assert_int_equal(end(again.server), 0);
}

// A worker that starts before its server waits for it.
static void test_a_worker_comes_first(void **state) {
  (void)state;
  write_grid("small.yaml", "small", 2);
  pool p = serve("60");
  submit(&p, "small.yaml");
  assert_int_equal(end(p.server), 0);
  brim_child *one = work(&p, "w1");
  bool ended = false;
  for (int i = 0; i < TRIES && !brim_fs_exists("w1"); i++) usleep(PAUSE_US);
  assert_ok(brim_child_wait(one, 1000, &ended));
  assert_false(ended);
  pool again =
      serve_with((const char *const[]){"serve", "--server-only", "--port", strrchr(p.url, ':') + 1,
                                       "--json", "--store", "pool", NULL});
  wait_until(&again, "done", 4);
  end(one);
  assert_int_equal(end(again.server), 0);
  // and leaves when it is asked to
  one = work(&p, "w2");
  for (int i = 0; i < TRIES && !brim_fs_exists("w2"); i++) usleep(PAUSE_US);
  assert_int_equal(end(one), 130);
}

// The worker of the server's own machine trusts a certificate that no authority signed, and that is for
// another name.
static void test_own_worker_over_tls(void **state) {
  (void)state;
  shell_result r = shell(
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
      "-keyout key.pem -out cert.pem -subj /CN=elsewhere");
  const bool made = r.code == 0;
  shell_free(&r);
  if (!made) BRIM_SKIP("openssl makes no certificate");
  write_grid("small.yaml", "small", 3);
  pool p = serve_with((const char *const[]){"serve", "--port", "0", "--json", "--store", "pool",
                                            "--output-dir", "pool", "--cert", "cert.pem", "--key",
                                            "key.pem", NULL});
  r = shell("brim sweep small.yaml --store %s", p.url);
  assert_int_not_equal(r.code, 0);
  has(r.err, "certificate");
  shell_free(&r);
  setenv("BRIM_PIN", p.pin, 1);
  submit(&p, "small.yaml");
  wait_until(&p, "done", 4);
  unsetenv("BRIM_PIN");
  assert_int_equal(folders_in("pool/exp"), 4);
  assert_int_equal(end(p.server), 0);
}

static void test_tokens(void **state) {
  (void)state;
  write_grid("small.yaml", "small", 3);
  expect(0, NULL, "brim serve token add lab --role worker --store pool > token-worker");
  expect(0, "brim_", "cat token-worker");
  expect(0, NULL, "brim serve token add me --role submit --store pool > token-submit");
  expect(2, "already", "brim serve token add me --role submit --store pool");
  expect(0, "worker", "brim serve token list --store pool");
  expect(2, "--role", "brim serve token add you --role king --store pool");
  expect(2, "a-z", "brim serve token add 'Y/u' --store pool");
  expect(2, "not local", "brim serve token add local --store pool");
  pool p = serve("60");
  shell_result r = shell(
      "export URL=%s; ! brim sweep small.yaml --store $URL 2>&1; ! BRIM_TOKEN=brim_wrong brim "
      "sweep "
      "small.yaml --store $URL 2>&1",
      p.url);
  assert_int_equal(r.code, 0);
  has(r.out, "the server does not know the token");
  shell_free(&r);
  r = shell("BRIM_TOKEN=$(cat token-worker) brim sweep small.yaml --store %s", p.url);
  assert_int_not_equal(r.code, 0);
  has(r.err, "role does not allow");
  shell_free(&r);
  r = shell("BRIM_TOKEN=$(cat token-submit) brim sweep small.yaml --store %s", p.url);
  assert_int_equal(r.code, 0);
  shell_free(&r);
  r = shell("brim serve token add third --store pool");
  assert_int_not_equal(r.code, 0);
  has(r.err, "a running server has the store pool open");
  shell_free(&r);
  assert_int_equal(end(p.server), 0);
}

static void test_addresses(void **state) {
  (void)state;
  expect(2, "--cert", "brim serve --address 0.0.0.0 --store pool");
  expect(2, "--port", "brim serve --port 70000 --store pool");
  expect(2, "--lease", "brim serve --lease 0 --store pool");
  expect(2, "is no store", "brim serve --store http://127.0.0.1:8000");
  assert_false(has_file("http:"));
  expect(2, "--url", "brim worker");
  expect(2, "no address of a server", "brim worker --url pool");
  expect(2, "--jobs", "brim worker --url http://127.0.0.1:1 --jobs 0");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_two_workers, fresh),
      cmocka_unit_test_setup(test_a_killed_worker, fresh),
      cmocka_unit_test_setup(test_a_killed_server, fresh),
      cmocka_unit_test_setup(test_a_killed_server_with_a_worker, fresh),
      cmocka_unit_test_setup(test_a_worker_comes_first, fresh),
      cmocka_unit_test_setup(test_own_worker_over_tls, fresh),
      cmocka_unit_test_setup(test_tokens, fresh),
      cmocka_unit_test_setup(test_addresses, fresh)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
