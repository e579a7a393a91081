// `brim sweep --dry-run` and its planning child `brim sweep plan`, with the built program.
#include "cli_test.h"

static const char head[] =
    "name: dry\nbackend: ref\ndevice: cpu\nthreads: 1\n"
    "dataset: synthetic(shape=(6,), classes=3, samples=100)\nmodel: mlp(depth=1, hidden=8)\n"
    "data: {num_workers: 0}\nepochs: 3\n";

static void write_grid(const char *axes) {
  char text[1024];
  snprintf(text, sizeof text, "%s%s", head, axes);
  write_file("grid.yaml", text);
  shell_result r = shell("rm -rf runs");
  shell_free(&r);
}

static json_t *line_at(const char *text, size_t index) {
  for (; index > 0; index--) text = strchr(text, '\n') + 1;
  json_t *value;
  assert_ok(brim_json_parse(text, strcspn(text, "\n"), "line", &value));
  return value;
}

static double number(const json_t *object, const char *key) {
  return json_number_value(json_object_get(object, key));
}

static void points_memory_and_steps(void **state) {
  (void)state;
  write_grid("batch_size: [32, 64]\nlr: [0.1, 0.2]\nseeds: 2\n");
  shell_result r = shell("brim sweep grid.yaml --dry-run");
  assert_int_equal(r.code, 0);
  has(r.out, "batch_size=32 lr=0.1 seed=0");
  said_rows(&r, "experiments  ");
  said_lines(&r, "--measure");
  has(r.out, "nothing was submitted");
  assert_false(has_file("runs"));
  shell_free(&r);
  r = shell("brim sweep grid.yaml --dry-run --json");
  assert_int_equal(r.code, 0);
  assert_int_equal(json_lines(r.out), 9);
  json_t *first = line_at(r.out, 0), *last = line_at(r.out, 7), *sums = line_at(r.out, 8);
  const json_t *plan = json_array_get(json_object_get(first, "plans"), 0);
  const json_t *other = json_array_get(json_object_get(last, "plans"), 0);
  assert_string_equal(json_string_value(json_object_get(plan, "failure")), "none");
  assert_true(number(plan, "steps") == 12);  // 100 samples in batches of 32: 4 steps an epoch
  assert_true(number(other, "steps") == 6);
  assert_true(number(plan, "planned_device") > 0);
  assert_true(number(plan, "planned_device") < number(other, "planned_device"));
  assert_true(json_is_null(json_object_get(plan, "run_s")));
  assert_true(number(sums, "new") == 8 && number(sums, "time_unknown") == 8);
  assert_false(has_file("runs"));
  json_decref(first);
  json_decref(last);
  json_decref(sums);
  shell_free(&r);
  // --threads sets the config's threads in every experiment, as in brim train.
  r = shell("brim sweep grid.yaml --threads 1 --dry-run");
  assert_int_equal(r.code, 0);
  said_rows(&r, "experiments  ");
  shell_free(&r);
}

static void what_cannot_run(void **state) {
  (void)state;
  write_file("grid.yaml",  // more than any machine has
             "name: dry\nbackend: ref\ndevice: cpu\nthreads: 1\nmodel: mlp(depth=1, hidden=8)\n"
             "dataset: synthetic(shape=(10000,), classes=3, samples=100)\n"
             "data: {num_workers: 0}\nepochs: 3\nbatch_size: [32, 200000000]\n");
  shell_result r = shell("brim sweep grid.yaml --dry-run");
  assert_int_equal(r.code, 0);
  said_rows(&r, "batch_size=");
  said_rows(&r, "cannot run  ");
  shell_free(&r);
  write_grid("dataset: [synthetic(samples=9), idx]\ndata.path: not-here\n");
  r = shell("brim sweep grid.yaml --dry-run --json");
  assert_int_equal(r.code, 0);
  json_t *sums = line_at(r.out, 2);
  assert_true(number(sums, "cannot_run") == 1);
  has(r.out, "not-here");
  json_decref(sums);
  shell_free(&r);
  says(2, "brim sweep grid.yaml --dry-run nonsense=3");
}

static void times_by_measuring_and_by_results(void **state) {
  (void)state;
  write_grid("batch_size: [32, 64]\nlr: [0.1, 0.2]\n");
  shell_result r = shell("brim sweep grid.yaml --dry-run --measure --json");
  assert_int_equal(r.code, 0);
  json_t *sums = line_at(r.out, 4);
  assert_true(number(sums, "time_unknown") == 0 && number(sums, "run_s") > 0);
  json_decref(sums);
  shell_free(&r);
  // One point of each batch size is run: the others take its time.
  expect(0, NULL, "brim sweep grid.yaml lr=0.1 --quiet");
  r = shell("brim sweep grid.yaml --dry-run --json");
  assert_int_equal(r.code, 0);
  sums = line_at(r.out, 4);
  assert_true(number(sums, "new") == 2 && number(sums, "done") == 2);
  assert_true(number(sums, "time_unknown") == 0 && number(sums, "run_s") > 0);
  json_decref(sums);
  json_t *point = line_at(r.out, 1);  // lr=0.2
  const json_t *plan = json_array_get(json_object_get(point, "plans"), 0);
  assert_true(json_is_true(json_object_get(plan, "run_known")));
  json_decref(point);
  shell_free(&r);
}

// The child answers every line, even an invalid one.
static void the_child_answers(void **state) {
  (void)state;
  write_file(
      "q",
      "{\"id\": \"a\", \"device\": \"ref\", \"config\": \"dataset: synthetic(samples=9)\"}\n"
      "garbage\n\n[]\n{\"id\": \"b\"}\n"
      "{\"id\": \"c\", \"device\": \"ref\", \"config\": \"lr: [1, 2]\"}\n"
      "{\"id\": \"d\", \"device\": \"warp\", \"config\": \"\"}\n"
      "{\"id\": \"e\", \"device\": \"ref\", \"config\": \"workload: ars\\nenv: cartpole\"}\n");
  shell_result r = shell("brim sweep plan < q");
  assert_int_equal(r.code, 0);
  assert_int_equal(json_lines(r.out), 7);
  static const char *const failures[] = {"none",       "bad_config", "bad_config", "bad_config",
                                         "bad_config", "bad_config", "none"};
  for (size_t i = 0; i < 7; i++) {
    json_t *line = line_at(r.out, i);
    assert_string_equal(json_string_value(json_object_get(line, "failure")), failures[i]);
    json_decref(line);
  }
  shell_free(&r);
  expect(0, "", "brim sweep plan < /dev/null");
}

// A device that is not here, and plug-ins that only the config names.
static void the_child_needs_device_and_consent(void **state) {
  (void)state;
  write_file("q", "{\"id\": \"a\", \"device\": \"cuda\", \"config\": \"dataset: synthetic\"}\n");
  expect(0, "\"failure\":\"unsupported\"", "BRIM_PLUGIN_PATH=/nonexistent brim sweep plan < q");
  write_file("q",
             "{\"id\": \"a\", \"device\": \"ref\", \"config\": "
             "\"dataset: synthetic\\nplugins: [not-here.so]\"}\n");
  expect(0, "--allow-plugins", "brim sweep plan < q");
  expect(0, "not-here.so", "brim sweep plan --allow-plugins < q");
  // The dry run passes the user's consent on to its child.
  write_grid("plugins: [not-here.so]\nlr: [0.1, 0.2]\n");
  expect(0, "--allow-plugins", "brim sweep grid.yaml --dry-run --json");
  shell_result r = shell("brim sweep grid.yaml --dry-run --json --allow-plugins");
  assert_int_equal(r.code, 0);
  has_not(r.out, "--allow-plugins");
  has(r.out, "not-here.so");
  shell_free(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(points_memory_and_steps),
      cmocka_unit_test(what_cannot_run),
      cmocka_unit_test(times_by_measuring_and_by_results),
      cmocka_unit_test(the_child_answers),
      cmocka_unit_test(the_child_needs_device_and_consent),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
