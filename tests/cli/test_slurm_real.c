// `brim sweep --engine slurm` over a real Slurm of one node (tests/lab/with_slurm): an array of six runs. The sweep is
// stopped and continued, one element is preempted and resumes, and every result equals an undisturbed run's. Called
// with "sqlite", or with "postgres" beside a server.
#include <math.h>
#include <signal.h>
#include <unistd.h>

#include "cli_test.h"
#include "mpi_run.h"

#include "base/base_child.h"
#include "same_file.h"

static const char *place_option = "";  // the --store option, if there is a database
static char status_place[600] = "runs/small";

static const char head[] =
    "name: small\n"
    "backend: ref\n"
    "device: cpu\n"
    "threads: 1\n"
    "dataset: synthetic(shape=(6,), classes=3, samples=96)\n"
    "model: mlp(depth=1, hidden=8)\n"
    "data: {num_workers: 0}\n"
    "batch_size: 16\n";

static int64_t long_epochs;  // epochs of an experiment that runs for about 15 s on this machine

static void fresh(const char *axes) {
  char text[1024];
  snprintf(text, sizeof text, "%s%s", head, axes);
  shell_result r = shell("rm -rf runs undisturbed bin *.log *.yaml");
  shell_free(&r);
  write_file("grid.yaml", text);
}

// The first one runs for seconds, the others for a moment.
static void fresh_six(void) {
  enum { SAMPLE = 200, SECONDS = 15 };
  char axes[128];
  if (long_epochs == 0) {
    fresh("epochs: 200\n");
    brim_time begin = brim_clock_now();
    expect(0, NULL, "brim train grid.yaml --output-dir runs/sample");
    double took = (double)brim_time_since_ns(begin, brim_clock_now()) * 1e-9;
    double epochs = SAMPLE * SECONDS / took;
    long_epochs = epochs < 1000 ? 1000 : epochs > 100000 ? 100000 : (int64_t)epochs;
  }
  snprintf(axes, sizeof axes, "epochs: [%lld, 2, 3, 4, 5, 6]\n", (long long)long_epochs);
  fresh(axes);
}

//---------------------------------- the sweep ----------------------------------

static brim_child *start_sweep(void) {
  char line[2000];
  brim_child *child = NULL;
  snprintf(
      line, sizeof line,
      "exec %s sweep grid.yaml --engine slurm --slurm-poll 0.5 --partition low --backoff 0.1 %s "
      ">>sweep.log 2>&1",
      BRIM_BINARY, place_option);
  const char *const argv[] = {"/bin/sh", "-c", line, NULL};
  const brim_child_options how = {.argv = argv,
                                  .in = BRIM_CHILD_NULL,
                                  .out = BRIM_CHILD_NULL,
                                  .err = BRIM_CHILD_NULL,
                                  .die_with_parent = true};
  assert_ok(brim_child_start(&how, &child));
  return child;
}

static void show_log(void) {
  shell_result r = shell("cat sweep.log runs/small/slurm/*.log; squeue --states=all --array");
  fprintf(stderr, "%s%s", r.out, r.err);
  shell_free(&r);
}

static int end_sweep(brim_child *child) {
  bool ended = false;
  assert_ok(brim_child_wait(child, 170000, &ended));
  if (!ended) {
    show_log();
    fail_msg("the sweep did not end");
  }
  int code = brim_child_get_result(child)->exit_code;
  brim_child_close(child);
  return code;
}

//---------------------------------- what it did ----------------------------------

// The line of `brim sweep export` for the experiment with this many epochs. json_decref.
static json_t *exported(int64_t epochs) {
  shell_result r = shell("brim sweep export %s", status_place);
  json_t *found = NULL;
  if (r.code) {  // the store is not there yet
    shell_free(&r);
    return NULL;
  }
  for (char *line = r.out, *next; line && *line; line = next) {
    next = strchr(line, '\n');
    if (next) *next++ = '\0';
    json_t *value = NULL;
    assert_ok(brim_json_parse(line, strlen(line), "export", &value));
    if (!found && json_integer_value(json_object_get(value, "epochs")) == epochs) {
      found = json_incref(value);
    }
    json_decref(value);
  }
  shell_free(&r);
  return found;
}

static int64_t number(const json_t *value, const char *key) {
  return json_integer_value(json_object_get(value, key));
}

static bool is_state(const json_t *value, const char *state) {
  const char *is = json_string_value(json_object_get(value, "state"));
  return is && strcmp(is, state) == 0;
}

// Waits until the long experiment has made more than these steps, in a later attempt than this.
static void wait_for_progress(int64_t step, size_t attempts) {
  for (int i = 0; i < 600; i++) {
    json_t *exp = exported(long_epochs);
    bool there = is_state(exp, "running") && number(exp, "step") > step &&
                 json_array_size(json_object_get(exp, "attempts")) >= attempts;
    bool over = is_state(exp, "done") || is_state(exp, "failed");
    json_decref(exp);
    if (there) return;
    if (over) break;
    usleep(200 * 1000);
  }
  show_log();
  fail_msg("the long experiment is not seen running");
}

static int64_t count_live(void) {
  shell_result r = shell("squeue --noheader --array --format=%%T | grep -c .");
  int64_t n = atoll(r.out);
  shell_free(&r);
  return n;
}

static const json_t *attempt_of(const json_t *exp, size_t at) {
  return json_array_get(json_object_get(exp, "attempts"), at);
}

static bool ended_as(const json_t *attempt, const char *outcome) {
  const char *is = json_string_value(json_object_get(attempt, "outcome"));
  return is && strcmp(is, outcome) == 0;
}

static void assert_all_done(int count) {
  shell_result r = shell("brim sweep export %s | grep -c '\"state\":\"done\"'", status_place);
  if (atoi(r.out) != count) {
    show_log();
    fail_msg("done: %s of %d", r.out, count);
  }
  shell_free(&r);
}

// Every model equals that of an undisturbed sweep on this machine.
static void assert_undisturbed(int expected) {
  int compared = 0;
  char **names = NULL;
  size_t count = 0;
  shell_result r = shell("brim sweep grid.yaml --jobs 2 --output-dir undisturbed");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  shell_free(&r);
  assert_ok(brim_fs_list("undisturbed/exp", &names, &count));
  for (size_t i = 0; i < count; i++, compared++) {
    char a[512], b[512];
    snprintf(a, sizeof a, "undisturbed/exp/%s/model.safetensors", names[i]);
    snprintf(b, sizeof b, "runs/small/exp/%s/model.safetensors", names[i]);
    assert_same_file(a, b);
  }
  brim_fs_list_free(names, count);
  assert_int_equal(compared, expected);
}

//---------------------------------- tests ----------------------------------

static void test_six_runs(void **state) {
  (void)state;
  fresh_six();
  brim_child *sweep = start_sweep();
  // Ctrl-C: the element saves and ends, and Slurm's queue is empty
  wait_for_progress(0, 1);
  assert_ok(brim_child_signal(sweep, SIGINT));
  assert_int_equal(end_sweep(sweep), 130);
  assert_int_equal(count_live(), 0);
  json_t *exp = exported(long_epochs);
  assert_true(is_state(exp, "queued"));
  assert_true(ended_as(attempt_of(exp, 0), "stopped"));
  json_decref(exp);
  // the same command continues; a job of a higher partition preempts the node
  sweep = start_sweep();
  wait_for_progress(0, 2);
  expect(0, NULL, "sbatch --wait --partition=high --ntasks=4 --output=/dev/null --wrap 'sleep 1'");
  assert_int_equal(end_sweep(sweep), 0);
  assert_all_done(6);
  exp = exported(long_epochs);
  assert_int_equal(json_array_size(json_object_get(exp, "attempts")), 3);
  assert_true(ended_as(attempt_of(exp, 1), "stopped"));
  assert_true(ended_as(attempt_of(exp, 2), "ok"));
  int64_t first = number(attempt_of(exp, 1), "from_step");
  assert_true(first > 0);
  assert_true(number(attempt_of(exp, 2), "from_step") > first);
  // the same element of the same array ran again
  assert_string_equal(json_string_value(json_object_get(attempt_of(exp, 1), "devices")),
                      json_string_value(json_object_get(attempt_of(exp, 2), "devices")));
  json_decref(exp);
  assert_undisturbed(6);
}

// The sweep is killed: with a database the elements continue alone. The next sweep submits nothing twice.
static void test_a_killed_sweep(void **state) {
  (void)state;
  fresh_six();
  brim_child *sweep = start_sweep();
  wait_for_progress(0, 1);
  assert_ok(brim_child_signal(sweep, SIGKILL));
  bool ended = false;
  assert_ok(brim_child_wait(sweep, 60000, &ended));
  brim_child_close(sweep);
  sweep = start_sweep();
  assert_int_equal(end_sweep(sweep), 0);
  assert_all_done(6);
  json_t *exp = exported(long_epochs);
  assert_int_equal(json_array_size(json_object_get(exp, "attempts")), 1);
  json_decref(exp);
  expect(
      0, "arrays 1 submitted 1\n",
      "echo arrays $(squeue --noheader --states=all --array --format=%j | grep brim- | sort -u | "
      "wc -l) submitted $(grep -c 'experiments are Slurm job' sweep.log)");
}

// Shows the command that starts an experiment of two ranks. This srun runs one of them.
static void test_the_command_of_two_ranks(void **state) {
  (void)state;
  fresh("gpus: 2\nepochs: 2\nlr: [0.1]\n");
  expect(0, NULL, "mkdir bin");
  write_file(
      "bin/srun",
      "#!/bin/sh\n"
      "case \"$*\" in *--mpi=list*) echo 'MPI plugin types are... pmix none'; exit 0 ;; esac\n"
      "echo \"$*\" >>srun.log\n"
      "while [ \"${1#--}\" != \"$1\" ]; do shift; done\n"
      "exec \"$@\"\n");
  shell_result r = shell("chmod +x bin/srun && pwd");
  assert_int_equal(r.code, 0);
  r.out[strcspn(r.out, "\n")] = '\0';
  char path[8192], *before = brim_strdup(getenv("PATH"));
  snprintf(path, sizeof path, "%s/bin:%s", r.out, before);
  shell_free(&r);
  setenv("PATH", path, 1);
  brim_child *sweep = start_sweep();
  int code = end_sweep(sweep);
  setenv("PATH", before, 1);
  brim_free(before);
  if (code) show_log();
  assert_int_equal(code, 0);
  assert_all_done(1);
  r = shell("cat srun.log");
  has(r.out, "--mpi=pmix --ntasks=2 --kill-on-bad-exit=1 " BRIM_BINARY " train ");
  has(r.out, "--device cpu");
  shell_free(&r);
}

// The last value of a metric of the experiment with three epochs.
static double last_value(const char *place, const char *key) {
  char saved[sizeof status_place];
  memcpy(saved, status_place, sizeof saved);
  snprintf(status_place, sizeof status_place, "%s", place);
  json_t *exp = exported(3);
  memcpy(status_place, saved, sizeof saved);
  const json_t *rows = json_object_get(json_object_get(exp, "metrics"), key);
  const json_t *last = json_array_get(rows, json_array_size(rows) - 1);
  assert_true(json_is_number(json_array_get(last, 1)));
  double value = json_number_value(json_array_get(last, 1));
  json_decref(exp);
  return value;
}

// Two ranks of srun with half the batch each end at the same values as one rank with the whole batch.
static void test_two_ranks(void **state) {
  (void)state;
  const char *why;
  if (!mpi_is_here(BRIM_BUILD_DIR "/lib/brim/ranks/libbrim_mpi.so", &why)) BRIM_SKIP(why);
  fresh("gpus: 2\nepochs: [3]\nlr: 0.1\n");
  brim_child *sweep = start_sweep();
  int code = end_sweep(sweep);
  if (code) show_log();
  assert_int_equal(code, 0);
  assert_all_done(1);
  json_t *exp = exported(3);
  assert_int_equal(json_array_size(json_object_get(exp, "attempts")), 1);
  assert_int_equal(number(exp, "step"), number(exp, "steps"));
  json_decref(exp);
  shell_result r =
      shell("sed -i '/^gpus/d' grid.yaml && brim sweep grid.yaml --output-dir undisturbed");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  shell_free(&r);
  double two = last_value("runs/small", "eval_loss"), one = last_value("undisturbed", "eval_loss");
  if (!(fabs(two - one) <= 1e-4 * fabs(one)))
    fail_msg("%.9g with two ranks, %.9g with one", two, one);
}

int main(int argc, char **argv) {
  static char option[1024];
  const char *url = getenv("BRIM_TEST_POSTGRES");
  bool postgres = argc > 1 && strcmp(argv[1], "postgres") == 0;
  if (postgres) {
    if (!url) BRIM_SKIP_ALL("there is no PostgreSQL server");
    snprintf(option, sizeof option, "--store '%s' --output-dir runs/small", url);
    snprintf(status_place, sizeof status_place, "'%s'", url);
    place_option = option;
  }
  test_filter();
  const struct CMUnitTest sqlite_tests[] = {
      cmocka_unit_test(test_six_runs),
      cmocka_unit_test(test_the_command_of_two_ranks),
      cmocka_unit_test(test_two_ranks),
  };
  const struct CMUnitTest postgres_tests[] = {
      cmocka_unit_test(test_a_killed_sweep),
  };
  return postgres ? cmocka_run_group_tests(postgres_tests, NULL, NULL)
                  : cmocka_run_group_tests(sqlite_tests, NULL, NULL);
}
