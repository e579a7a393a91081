// `brim sweep` on PostgreSQL, as several machines use it: two sweeps share one queue, one of them is killed, and a
// store moves from a file into the database. with_postgres starts the server.
#include <signal.h>
#include <unistd.h>

#include "cli_test.h"

#include "base/base_child.h"

static const char grid[] =
    "name: shared\n"
    "backend: ref\n"
    "device: cpu\n"
    "threads: 1\n"
    "dataset: synthetic(shape=(6,), classes=3, samples=96)\n"
    "model: mlp(depth=1, hidden=8)\n"
    "data: {num_workers: 0, batch_size: 8}\n"
    "lr: [0.1, 0.03, 0.01, 0.003]\n"
    "seeds: 2\n"
    "epochs: 40\n";

static const char *url(void) {
  const char *text = getenv("BRIM_TEST_POSTGRES");
  if (!text) BRIM_SKIP("BRIM_TEST_POSTGRES names no server");
  return text;
}

static int64_t count_state(const char *state) {
  shell_result r = shell("brim sweep status --json --store '%s'", url());
  json_t *view = NULL;
  if (strstr(r.err, "has no store")) {  // not created yet
    shell_free(&r);
    return 0;
  }
  if (r.code) fail_msg("status: exit %d: %s", r.code, r.err);
  assert_ok(brim_json_parse(r.out, strlen(r.out), "status", &view));
  int64_t count = json_integer_value(json_object_get(json_object_get(view, "counts"), state));
  json_decref(view);
  shell_free(&r);
  return count;
}

static brim_child *start(const char *folder) {
  const char *const argv[] = {BRIM_BINARY,    "sweep", "grid.yaml", "--store", url(),
                              "--output-dir", folder,  "--lease",   "2",       NULL};
  const brim_child_options how = {.argv = argv,
                                  .in = BRIM_CHILD_NULL,
                                  .out = BRIM_CHILD_NULL,
                                  .err = BRIM_CHILD_NULL,
                                  .die_with_parent = true};
  brim_child *child = NULL;
  assert_ok(brim_child_start(&how, &child));
  return child;
}

static int end(brim_child *child) {
  bool ended = false;
  assert_ok(brim_child_wait(child, 170000, &ended));
  if (!ended) fail_msg("a sweep did not end");
  int code = brim_child_get_result(child)->exit_code;
  brim_child_close(child);
  return code;
}

static int count_folders(const char *folder) {
  shell_result r = shell("ls %s/exp 2>/dev/null | wc -l", folder);
  int n = atoi(r.out);
  shell_free(&r);
  return n;
}

static void test_two_sweeps_share_a_queue(void **state) {
  (void)state;
  expect(0, NULL, "rm -rf machine-* moved refused");
  write_file("grid.yaml", grid);
  brim_child *a = start("machine-a"), *b = start("machine-b");
  for (int i = 0; i < 1500 && count_state("running") < 2; i++) usleep(50 * 1000);
  // a second sweep command in the folder of a running sweep hands its grid over
  shell_result r = shell("brim sweep grid.yaml --store '%s' --output-dir machine-b 2>&1", url());
  assert_int_equal(r.code, 0);
  said(&r);
  shell_free(&r);
  // one machine is gone; the other one finishes its experiments
  assert_ok(brim_child_signal(a, SIGKILL));
  (void)end(a);
  assert_int_equal(end(b), 0);
  assert_int_equal(count_state("done"), 8);
  assert_true(count_folders("machine-b") > 0);
  // the first machine has nothing left to do, and its folder has no result that the database lacks
  expect(1, NULL, "ls machine-*/exp/*/*.spool 2>/dev/null | grep -q .");
  a = start("machine-a");
  assert_int_equal(end(a), 0);
  r = shell("brim sweep export --store '%s'", url());
  assert_int_equal(r.code, 0);
  assert_int_equal(json_lines(r.out), 8);
  shell_free(&r);
  // a sweep is found by its folder
  r = shell("brim sweep stop --store '%s'", url());
  assert_int_equal(r.code, 2);
  has(r.err, "--output-dir");
  shell_free(&r);
  says(1, "brim sweep stop --output-dir machine-a");
  // a database has experiments of its own, so the chaos test refuses it
  r = shell("brim sweep chaos --minutes 0.01 --store '%s' --output-dir refused", url());
  assert_int_equal(r.code, 2);
  said(&r);
  shell_free(&r);
}

// A password in a config appears in no list of processes and in no output.
static void test_a_password_stays_secret(void **state) {
  (void)state;
  char text[2048];
  snprintf(text, sizeof text,
           "%s"
           "store: \"%s&password=hush-hush\"\n",
           grid, url());
  write_file("secret.yaml", text);
  shell_result r = shell(
      "rm -f seen.txt; brim sweep secret.yaml seeds=1 epochs=41 --output-dir secret >said.txt 2>&1 "
      "& pid=$!; "
      "n=0; while kill -0 $pid 2>/dev/null; do "
      "  grep -als 'folder=secret/ex[p]' /proc/[0-9]*/cmdline 2>/dev/null | grep -q . && n=1; "
      "  grep -als 'hus[h]-hush' /proc/[0-9]*/cmdline 2>/dev/null >>seen.txt; sleep 0.02; "
      "done; wait $pid; echo code $? saw $n; cat seen.txt said.txt");
  has(r.out, "code 0 saw 1");
  has(r.out, "brim report");
  has_not(r.out, "hush-hush");
  has_not(r.out, "/cmdline");
  shell_free(&r);
}

static void test_a_store_moves_out_of_the_database(void **state) {
  (void)state;
  shell_result r = shell("brim sweep move '%s' moved", url());
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  said(&r);
  shell_free(&r);
  expect(0, "12 of 12 done", "brim sweep status moved");
  // the old store is no longer used
  r = shell("brim sweep status --store '%s'", url());
  assert_true(r.code != 0);
  shell_free(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_two_sweeps_share_a_queue),
      cmocka_unit_test(test_a_password_stays_secret),
      cmocka_unit_test(test_a_store_moves_out_of_the_database),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
