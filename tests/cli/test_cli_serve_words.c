// Words and options of `brim serve` and of commands about a server, with the built program.
#include "serve_test.h"

static void write_grid(const char *path, const char *name, int epochs) {
  char text[1024];
  snprintf(text, sizeof text,
           "name: %s\nepochs: %d\n"
           "backend: ref\n"
           "device: cpu\n"
           "threads: 1\n"
           "dataset: synthetic(shape=(6,), classes=3, samples=96)\n"
           "model: mlp(depth=1, hidden=8)\n"
           "data: {num_workers: 0}\n"
           "lr: [0.1, 0.01]\n"
           "seed: [0, 1]\n"
           "batch_size: 8\n",
           name, epochs);
  write_file(path, text);
}

static int fresh(void **state) {
  (void)state;
  shell_result r = shell("rm -rf pool w1 w2 runs token* *.yaml *.out *.err *.pem");
  shell_free(&r);
  return 0;
}

static void submit_with(const pool *p, const char *grid, const char *line) {
  shell_result r = shell("brim sweep %s --store %s", grid, p->url);
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  if (line) has(r.err, line);
  shell_free(&r);
}

// `brim serve --client-only --url` is `brim worker --url`.
static void test_client_only(void **state) {
  (void)state;
  write_grid("small.yaml", "small", 3);
  expect(2, "name the server with --url", "brim serve --client-only");
  expect(2, "--store is for a server", "brim serve --client-only --url http://x --store pool");
  expect(2, "--server-only is for a server", "brim serve --client-only --server-only");
  expect(2, "--url needs --client-only", "brim serve --url http://127.0.0.1:1 --store pool");
  expect(2, "--pin needs --client-only", "brim serve --pin sha256//x --store pool");
  expect(2, "--device is for a worker", "brim serve --server-only --device cpu --store pool");
  expect(2, "--jobs must be from", "brim serve --jobs 0 --store pool");
  expect(2, "brim serve --client-only --url http://127.0.0.1:1 joins",
         "brim serve --store http://127.0.0.1:1");
  assert_false(brim_fs_exists("pool"));
  pool p = serve("60");
  submit_with(&p, "small.yaml", NULL);
  brim_child *one =
      start((const char *const[]){"--quiet", "serve", "--client-only", "--url", p.url, "--device",
                                  "cpu", "--jobs", "2", "--output-dir", "w1", NULL},
            NULL);
  wait_until(&p, "done", 4);
  end(one);
  assert_int_equal(folders_in("w1/exp"), 4);
  assert_int_equal(end(p.server), 0);
}

// Ctrl-C of a server says what a server does.
static void test_stop_text(void **state) {
  (void)state;
  shell_result r = shell(  // the program itself: the process of a function is a shell's
      "'" BRIM_BINARY
      "' serve --server-only --port 0 --store pool 2> serve.err & pid=$!; "
      "until grep -q 'brim serves' serve.err; do sleep 0.1; done; kill -TERM $pid; wait $pid; "
      "cat serve.err");
  assert_int_equal(r.code, 0);
  has(r.out, "stopping the server; workers continue their trainings");
  has_not(r.out, "finishing the step");
  shell_free(&r);
}

// A mistyped store is no new one.
static void test_token_of_no_store(void **state) {
  (void)state;
  expect(2, "typo holds no store; name the server's with --store",
         "brim serve token list --store typo");
  expect(2, "typo holds no store", "brim serve token rotate me --store typo");
  expect(2, "typo holds no store", "brim serve token end me --store typo");
  assert_false(brim_fs_exists("typo"));
}

// A worker that drains takes nothing more.
static void test_drain(void **state) {
  (void)state;
  write_grid("small.yaml", "small", 3);
  pool p = serve("60");
  brim_child *one = work(&p, "w1");
  char name[128] = "";
  for (int i = 0; i < TRIES && !name[0]; i++) {
    shell_result r = shell("brim sweep status %s --json", p.url);
    json_t *view = NULL;
    assert_int_equal(r.code, 0);
    assert_ok(brim_json_parse(r.out, strlen(r.out), "status", &view));
    const json_t *worker = json_array_get(json_object_get(view, "workers"), 0);
    const char *text = json_string_value(json_object_get(worker, "id"));
    if (text) snprintf(name, sizeof name, "%s", text);
    json_decref(view);
    shell_free(&r);
    if (!name[0]) usleep(PAUSE_US);
  }
  shell_result r =
      shell("brim sweep drain --store %s '%s' && brim sweep drain %s nobody", p.url, name, p.url);
  assert_int_equal(r.code, 2);
  has(r.out, "finishes its experiments and takes no more");
  has(r.err, "nobody");
  shell_free(&r);
  submit_with(&p, "small.yaml", "they wait: every worker of the server drains");
  r = shell("brim sweep status %s", p.url);
  assert_int_equal(r.code, 0);
  has(r.out, "every worker drains");
  has(r.out, "draining");
  shell_free(&r);
  r = shell("brim sweep undrain %s '%s'", p.url, name);
  assert_int_equal(r.code, 0);
  has(r.out, "takes experiments again");
  shell_free(&r);
  wait_until(&p, "done", 4);
  end(one);
  assert_int_equal(end(p.server), 0);
}

static size_t count_of(const char *text, const char *part) {
  size_t n = 0;
  for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) n++;
  return n;
}

// Several grids in one store: each row says of which it is, and --grid chooses one.
static void test_status_of_grids(void **state) {
  (void)state;
  write_grid("small.yaml", "small", 3);
  write_grid("large.yaml", "large", 4);
  pool p = serve("60");
  submit_with(&p, "small.yaml", NULL);
  shell_result r = shell("brim sweep status %s", p.url);
  has(r.out, "small  http://");
  has_not(r.out, "Grid");
  has(r.out, "nothing runs: no worker is connected");
  has(r.out, "the server has no worker; brim worker --url adds one");
  shell_free(&r);
  submit_with(&p, "large.yaml", NULL);
  r = shell("brim sweep status %s", p.url);
  has(r.out, "2 grids  http://");
  has(r.out, "Grid");
  has(r.out, "0 of 8 done");
  assert_int_equal(count_of(r.out, " large "), 4);
  shell_free(&r);
  r = shell("brim sweep status %s --grid small", p.url);
  has(r.out, "small  http://");
  has(r.out, "0 of 4 done");
  has_not(r.out, "large");
  shell_free(&r);
  r = shell("brim sweep status %s --grid other", p.url);
  assert_int_equal(r.code, 2);
  has(r.err, "the store has no grid other");
  shell_free(&r);
  assert_int_equal(end(p.server), 0);
}

static json_t *status_of(const pool *p, const char *options) {
  shell_result r = shell("brim sweep status %s %s --json", p->url, options);
  json_t *view = NULL;
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_ok(brim_json_parse(r.out, strlen(r.out), "status", &view));
  shell_free(&r);
  return view;
}

// --limit is a limit, whatever states the experiments are in.
static void test_status_limit(void **state) {
  (void)state;
  write_grid("small.yaml", "small", 3);
  pool p = serve("60");
  submit_with(&p, "small.yaml", NULL);
  json_t *view = status_of(&p, "");
  char ids[2][64];
  for (size_t i = 0; i < 2; i++) {
    const json_t *row = json_array_get(json_object_get(view, "rows"), i);
    snprintf(ids[i], sizeof ids[i], "%s", json_string_value(json_object_get(row, "id")));
  }
  json_decref(view);
  shell_result r = shell("brim sweep cancel %s --store %s && brim sweep pause %s --store %s",
                         ids[0], p.url, ids[1], p.url);
  assert_int_equal(r.code, 0);
  shell_free(&r);
  // what is so already is not said to be done
  r = shell(
      "export URL=%s; brim sweep pause %s --store $URL; brim sweep retry %s --store $URL; brim "
      "sweep "
      "retry %s --store $URL; brim sweep cancel %s --store $URL",
      p.url, ids[1], ids[0], ids[0], ids[0]);
  assert_int_equal(r.code, 0);
  assert_string_equal(r.out,
                      "paused already, or being paused: 1\nqueued 1 experiment again\nqueued "
                      "already: 1\ncancelled 1 experiment\n");
  shell_free(&r);
  view = status_of(&p, "--limit 1");
  assert_int_equal(json_array_size(json_object_get(view, "rows")), 1);
  json_decref(view);
  assert_int_equal(end(p.server), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup(test_client_only, fresh),
                                     cmocka_unit_test_setup(test_stop_text, fresh),
                                     cmocka_unit_test_setup(test_token_of_no_store, fresh),
                                     cmocka_unit_test_setup(test_drain, fresh),
                                     cmocka_unit_test_setup(test_status_of_grids, fresh),
                                     cmocka_unit_test_setup(test_status_limit, fresh)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
