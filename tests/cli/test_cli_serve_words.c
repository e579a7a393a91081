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

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup(test_client_only, fresh),
                                     cmocka_unit_test_setup(test_stop_text, fresh),
                                     cmocka_unit_test_setup(test_token_of_no_store, fresh)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
