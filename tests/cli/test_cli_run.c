// The program at work: training, resuming, Ctrl-C, sweeping.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli_test.h"
#include "record/record.h"

static const char small[] =
    "model: mlp(depth=2, hidden=16)\ndataset: synthetic(samples=512)\n"
    "data:\n  batch_size: 64\ntraining:\n  epochs: 2\n";

static void remove_all(const char *names) {
  shell_result r = shell("rm -rf %s", names);
  shell_free(&r);
}

static void test_train(void **state) {
  (void)state;
  remove_all("runs");
  write_file("small.yaml", small);
  shell_result r = shell("brim train small.yaml --device ref");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_non_null(strstr(r.out, "parameters"));
  assert_non_null(strstr(r.out, "epoch 1/2  loss "));
  assert_non_null(strstr(r.out, "epoch 2/2  loss "));
  assert_non_null(strstr(r.out, "done: 16 steps"));
  assert_non_null(strstr(r.out, "runs/small/last.safetensors"));
  shell_free(&r);
  assert_true(has_file("runs/small/last.safetensors"));
  assert_true(has_file("runs/small/model.safetensors"));
  assert_true(has_file("runs/small/config.yaml"));
  // a second run does not overwrite the first
  expect(2, "--resume", "brim train small.yaml --device ref");
  expect(0, "done: 24 steps", "brim train small.yaml --device ref --resume --epochs 3");
  expect(0, "done: 32 steps", "brim train small.yaml --device ref --resume auto --epochs 4");
  expect(0, "done: 40 steps",
         "brim train small.yaml --device ref --output-dir other --epochs 5 "
         "--resume-from runs/small/last.safetensors");
  remove_all("other");
  r = shell("brim train small.yaml --device ref --quiet --output-dir other lr=0.01");
  assert_int_equal(r.code, 0);
  assert_null(strstr(r.out, "epoch 1/2"));
  assert_non_null(strstr(r.out, "done: 16 steps"));
  assert_string_equal(r.err, "");
  shell_free(&r);
  remove_all("other");
  expect(0, "done: 3 steps", "brim train small.yaml --device ref --output-dir other --max-steps 3");
  remove_all("other");
}

static pid_t start(const char *const *argv) {
  unlink("child.out");  // what an earlier child wrote must not be taken for this one's
  unlink("child.err");
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid > 0) return pid;
  int out = open("child.out", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  int err = open("child.err", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  dup2(out, 1);
  dup2(err, 2);
  setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
  execv(argv[0], (char *const *)(uintptr_t)argv);
  _exit(127);
}

// Waits until a file holds a text; false when the child ended before.
static bool wait_for(pid_t pid, const char *path, const char *part) {
  for (int i = 0; i < 6000; i++) {
    char *text = NULL;
    size_t size;
    bool found = !brim_fs_read(path, 0, &text, &size) && strstr(text, part);
    brim_free(text);
    if (found) return true;
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid) {
      return false;
    }
    brim_clock_sleep_ns(10000000);
  }
  return false;
}

// The first Ctrl-C finishes the step, saves and exits 130; the run can go on from there.
static void test_interrupt(void **state) {
  (void)state;
  static const int signals[] = {SIGINT, SIGTERM};
  write_file("small.yaml", small);
  for (size_t i = 0; i < 2; i++) {
    remove_all("stopped");
    const char *const argv[] = {BRIM_BINARY, "train",   "small.yaml",   "--device", "ref",
                                "--epochs",  "1000000", "--output-dir", "stopped",  NULL};
    pid_t pid = start(argv);
    assert_true(wait_for(pid, "child.out", "epoch 1/"));
    assert_int_equal(kill(pid, signals[i]), 0);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 130);
    assert_true(has_file("stopped/last.safetensors"));
    char *out;
    size_t size;
    assert_ok(brim_fs_read("child.out", 0, &out, &size));
    assert_non_null(strstr(out, "interrupted after"));
    assert_non_null(strstr(out, "--resume"));
    brim_free(out);
    expect(0, "from step",
           "brim train small.yaml --device ref --epochs 1 --output-dir stopped --resume");
  }
}

// A second Ctrl-C ends a step that takes too long at once.
static void test_interrupt_twice(void **state) {
  (void)state;
  remove_all("stopped");
  write_file("slow.yaml",
             "model: mlp(depth=4, hidden=1024)\ndataset: synthetic(samples=8192)\n"
             "data:\n  batch_size: 8192\ntraining:\n  epochs: 1\n");
  const char *const argv[] = {BRIM_BINARY, "train",        "slow.yaml", "--device",
                              "ref",       "--output-dir", "stopped",   NULL};
  pid_t pid = start(argv);
  assert_true(wait_for(pid, "child.out", "parameters"));
  assert_int_equal(kill(pid, SIGINT), 0);
  assert_true(wait_for(pid, "child.err", "press Ctrl-C again"));
  assert_int_equal(kill(pid, SIGINT), 0);
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFSIGNALED(status));
  assert_int_equal(WTERMSIG(status), SIGINT);
}

static void test_bench(void **state) {
  (void)state;
  remove_all("runs swept.jsonl swept.html");
  write_file("small.yaml", small);
  shell_result r = shell(
      "brim bench small.yaml --device ref --batch-sizes 16 64 --num-workers 0 1 --precisions fp32 "
      "--steps 3 --output swept.jsonl --report swept.html");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_non_null(strstr(r.out, "BENCHMARK SUMMARY"));
  assert_non_null(strstr(r.out, "OPTIMAL CONFIGURATION"));
  assert_non_null(strstr(r.out, "swept.jsonl"));
  shell_free(&r);
  brim_result *results;
  size_t count;
  assert_ok(brim_results_read("swept.jsonl", &results, &count));
  assert_int_equal(count, 4);
  for (size_t i = 0; i < count; i++) {
    assert_int_equal(results[i].failure, BRIM_FAILURE_NONE);
    assert_true(results[i].samples_per_s > 0);
    brim_result_deinit(&results[i]);
  }
  brim_free(results);
  char *page;
  size_t size;
  assert_ok(brim_fs_read("swept.html", 0, &page, &size));
  assert_non_null(strstr(page, "<polyline"));
  assert_non_null(strstr(page, "--batch-sizes 16 64"));
  assert_non_null(strstr(page, "</html>"));
  brim_free(page);
}

// best.yaml is a config that trains as it stands. Whether something is recommended depends on how
// steady this machine is, so the file is looked at only where it is there.
static void test_best(void **state) {
  (void)state;
  remove_all("runs");
  write_file("small.yaml", small);
  expect(0, "BENCHMARK SUMMARY",
         "brim bench small.yaml --device ref --batch-sizes 32 64 128 --num-workers 0 --precisions "
         "fp32 --steps 10 seed=7");
  assert_true(has_file("runs/bench/results.jsonl"));
  assert_true(has_file("runs/bench/report.html"));
  if (!has_file("runs/bench/best.yaml")) BRIM_SKIP("no setting was steady enough here");
  expect(0, "seed: 7", "brim config show runs/bench/best.yaml");
  expect(0, "done:", "brim train runs/bench/best.yaml --epochs 1");
  assert_true(has_file("runs/best/last.safetensors"));
}

static void test_plan(void **state) {
  (void)state;
  remove_all("runs");
  write_file("small.yaml", small);
  shell_result r = shell(
      "brim bench small.yaml --device ref --plan --batch-sizes 64 16777216 --num-workers 0 "
      "--precisions fp32 model='mlp(depth=8, hidden=4096)'");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_non_null(strstr(r.out, "fits"));
  assert_non_null(strstr(r.out, "OOM (planned)"));
  assert_non_null(strstr(r.out, "16777216"));
  assert_false(has_file("runs"));  // nothing ran, nothing is written
  shell_free(&r);
  expect(2, "batch_size", "brim bench small.yaml --device ref --plan --batch-sizes 99999999999");
  expect(2, "batch_sizes", "brim bench small.yaml --device ref --plan --batch-sizes 0");
}

int main(void) {
  brim_json_setup();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_train),
      cmocka_unit_test(test_interrupt),
      cmocka_unit_test(test_interrupt_twice),
      cmocka_unit_test(test_bench),
      cmocka_unit_test(test_best),
      cmocka_unit_test(test_plan),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
