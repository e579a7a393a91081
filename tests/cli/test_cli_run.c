// The program in use: training, resuming, Ctrl-C, sweeping.
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/train/cli_train.h"
#include "cli_test.h"
#include "quiet_machine.h"
#include "record/record.h"
#include "tune/tune.h"

static const char small[] =
    "model: mlp(depth=2, hidden=16)\ndataset: synthetic(samples=512, shape=(8,))\n"
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
  said_rows(&r, "epoch 1/2  ");
  said_rows(&r, "epoch 2/2  ");
  said_rows(&r, "done: ");
  assert_non_null(strstr(r.out, "runs/small/last.safetensors"));
  shell_free(&r);
  assert_true(has_file("runs/small/last.safetensors"));
  assert_true(has_file("runs/small/model.safetensors"));
  assert_true(has_file("runs/small/config.yaml"));
  // a second run does not overwrite the first
  expect(2, "--resume", "brim train small.yaml --device ref");
  says_lines(0, "--epochs", "brim train small.yaml --device ref --resume");
  says_rows(0, "done: ", "brim train small.yaml --device ref --resume --epochs 3");
  says_rows(0, "done: ", "brim train small.yaml --device ref --resume auto --epochs 4");
  says_rows(0, "done: ",
            "brim train small.yaml --device ref --output-dir other --epochs 5 "
            "--resume-from runs/small/last.safetensors");
  remove_all("other");
  r = shell("brim train small.yaml --device ref --quiet --output-dir other lr=0.01");
  assert_int_equal(r.code, 0);
  assert_null(strstr(r.out, "epoch 1/2"));
  said_rows(&r, "done: ");
  assert_string_equal(r.err, "");
  shell_free(&r);
  remove_all("other");
  says_rows(0, "done: ", "brim train small.yaml --device ref --output-dir other --max-steps 1");
  remove_all("other");
  says_rows(0, "done: ", "brim train small.yaml --device ref --output-dir other --max-steps 3");
  remove_all("other");
}

// A limit on the size of files is an error like a full disk: it is reported, and no temporary file stays.
static void test_file_size_limit(void **state) {
  (void)state;
  remove_all("limited");
  write_file("wide.yaml",
             "model: mlp(depth=2, hidden=512)\ndataset: synthetic(samples=64)\n"
             "data:\n  batch_size: 64\ntraining:\n  epochs: 1\n");
  says_lines(
      1, "brim: error: ", "ulimit -f 256; brim train wide.yaml --device ref --output-dir limited");
  assert_true(has_file("limited/config.yaml"));
  expect(1, NULL, "ls limited | grep tmp");
}

// Settings that are allowed but seldom intended get one line.
static void test_train_says_what_is_seldom_meant(void **state) {
  (void)state;
  remove_all("odd");
  write_file("small.yaml", small);
  says_lines(0, "brim: warning: ",
             "brim train small.yaml --device ref --output-dir odd --batch-size 1000 --epochs 1");
  says_lines(0, "odd/model.safetensors",
             "brim train small.yaml --device ref --output-dir odd --batch-size 64 --resume "
             "--weights odd/model.safetensors");
  says(2,
       "brim train small.yaml --device ref --output-dir odd2 "
       "transform='[random_flip, normalize]'");
  remove_all("odd");
}

static pid_t start(const char *const *argv) {
  unlink("child.out");  // the output of an earlier child must not be taken for this one's
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

// Waits until a file contains a text; false if the child ended first.
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

// The first Ctrl-C finishes the step, saves and exits 130; the run can continue from there.
static void test_interrupt(void **state) {
  (void)state;
  static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
  write_file("small.yaml", small);
  for (size_t i = 0; i < 3; i++) {
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

// Two signals at once count as one. A later one ends a slow step at once.
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
  assert_int_equal(kill(pid, SIGTERM), 0);
  assert_true(wait_for(pid, "child.err", "press Ctrl-C again"));
  brim_clock_sleep_ns(1200000000);
  int status;
  assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
  assert_int_equal(kill(pid, SIGINT), 0);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFSIGNALED(status));
  assert_int_equal(WTERMSIG(status), SIGINT);
  char *err;
  size_t size;
  assert_ok(brim_fs_read("child.err", 0, &err, &size));
  assert_non_null(strstr(err, "stopped immediately; nothing saved since the last checkpoint"));
  brim_free(err);
}

// True once the child has a handler for the signal. Waits at most ten seconds.
static bool wait_for_handler(pid_t pid, int number) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%ld/status", (long)pid);
  for (int i = 0; i < 1000; i++) {
    char *text = NULL;
    size_t size;
    if (brim_fs_read(path, 0, &text, &size) == BRIM_OK) {
      const char *at = strstr(text, "SigCgt:");
      bool caught = at && (strtoull(at + 7, NULL, 16) >> (number - 1) & 1);
      brim_free(text);
      if (caught) return true;
    }
    brim_clock_sleep_ns(10000000);
  }
  return false;
}

static void stop_eval(const char *const *argv) {
  pid_t pid = start(argv);
  assert_true(wait_for_handler(pid, SIGINT));
  assert_int_equal(kill(pid, SIGINT), 0);
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 130);
  char *err;
  size_t size;
  assert_ok(brim_fs_read("child.err", 0, &err, &size));
  assert_non_null(strstr(err, "brim: stopping; press Ctrl-C again"));
  assert_null(strstr(err, "saving"));
  brim_free(err);
}

// A command that only reads stops without a word about saving. Both commands would run for minutes.
static void test_interrupt_eval(void **state) {
  (void)state;
  remove_all("evaluated");
  write_file("evaluate.yaml",
             "model: mlp(depth=4, hidden=256)\ndataset: synthetic(samples=64, val_samples=64)\n"
             "data:\n  batch_size: 32\ntraining:\n  epochs: 1\n");
  says_rows(0, "done: ", "brim train evaluate.yaml --device ref --output-dir evaluated");
  const char *const many[] = {
      BRIM_BINARY, "eval", "evaluated/model.safetensors",
      "--device",  "ref",  "dataset=synthetic(samples=64, val_samples=1000000)",
      NULL};
  stop_eval(many);
  write_file("views.yaml",
             "workload: contrastive\n"
             "dataset: synthetic(shape=(8, 8, 3), classes=4, samples=64, val_samples=32)\n"
             "transform: {train: 'views | random_flip'}\n"
             "model: simclr(backbone=resnet18(width=4), hidden=16, dim=8)\n"
             "data: {batch_size: 32}\ntraining: {epochs: 1}\n"
             "contrastive: {knn_k: 5, probe_epochs: 0}\n");
  remove_all("evaluated");
  says_rows(0, "done: ", "brim train views.yaml --device ref --output-dir evaluated");
  const char *const probed[] = {BRIM_BINARY, "eval", "evaluated/model.safetensors",
                                "--device",  "ref",  "contrastive.probe_epochs=1000000",
                                NULL};
  stop_eval(probed);
}

static void test_bench(void **state) {
  (void)state;
  remove_all("runs swept.jsonl swept.html");
  write_file("small.yaml", small);
  shell_result r = shell(
      "brim bench small.yaml --device ref --batch-sizes 16 64 --num-workers 0 1 --precisions fp32 "
      "--steps 3 --output swept.jsonl --report swept.html data.num_workers=0");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_non_null(strstr(r.out, "BENCHMARK SUMMARY"));
  assert_non_null(strstr(r.out, "OPTIMAL CONFIGURATION"));
  assert_non_null(strstr(r.out, "swept.jsonl"));
  shell_free(&r);
  brim_result *results;
  size_t count;
  assert_ok(brim_results_read("swept.jsonl", &results, &count, NULL));
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
  assert_non_null(strstr(page, "<svg"));
  assert_non_null(strstr(page, "--batch-sizes 16 64"));
  assert_non_null(strstr(page, "</html>"));
  brim_free(page);
}

// Knobs without a list in the config are swept by options of their own.
static void test_bench_names(void **state) {
  (void)state;
  remove_all("runs named.jsonl");
  write_file("small.yaml", small);
  shell_result r = shell(
      "brim bench small.yaml --device ref --batch-sizes 64 --num-workers 0 --precisions fp32 fp16 "
      "--compile true false --checkpointing false --steps 2 --no-ceilings --output named.jsonl "
      "data.batch_size=64 "
      "data.num_workers=0 training.precision=fp32 training.checkpointing=false");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_non_null(strstr(r.out, "Comp"));
  assert_null(strstr(r.out, "CUDA context"));  // a CPU has none
  shell_free(&r);
  brim_result *results;
  size_t count;
  assert_ok(brim_results_read("named.jsonl", &results, &count, NULL));
  assert_int_equal(count, 4);
  for (size_t i = 0; i < count; i++) {
    assert_int_equal(results[i].failure, BRIM_FAILURE_NONE);
    assert_string_equal(brim_result_knob_find(&results[i], "precision")->value,
                        i < 2 ? "fp32" : "fp16");
    assert_string_equal(brim_result_knob_find(&results[i], "compile")->value,
                        i % 2 ? "false" : "true");
    assert_string_equal(brim_result_knob_find(&results[i], "checkpointing")->value, "false");
    brim_result_deinit(&results[i]);
  }
  brim_free(results);
  expect(2, "compile", "brim bench small.yaml --device ref --compile maybe");
  says(2, "brim bench small.yaml --backend cuda --device ref --plan");
  says(2, "brim train small.yaml --device cpu --backend cuda --output-dir together");
  expect(0, "ref", "brim bench small.yaml --device cpu --backend ref --plan");
  expect(0, "ref:", "brim bench small.yaml --device ref --backend auto --plan");
}

// best.yaml is a config that trains unchanged. A recommendation depends on how steady this machine is, so the test
// reads the file only if it exists.
static void test_best(void **state) {
  (void)state;
  remove_all("runs");
  write_file("small.yaml", small);
  expect(0, "BENCHMARK SUMMARY",
         "brim bench small.yaml --device ref --batch-sizes 32 64 128 --num-workers 0 --precisions "
         "fp32 --steps 10 --no-ceilings seed=7");
  assert_true(has_file("runs/bench/results.jsonl"));
  assert_true(has_file("runs/bench/report.html"));
  if (!has_file("runs/bench/best.yaml")) BRIM_SKIP("no setting was steady enough here");
  expect(0, "seed: 7", "brim config show runs/bench/best.yaml");
  shell_result r = shell("brim train runs/bench/best.yaml --epochs 1");
  assert_int_equal(r.code, 0);
  assert_non_null(strstr(r.out, "done:"));
  assert_string_equal(r.err, "");
  shell_free(&r);
  assert_true(has_file("runs/best/last.safetensors"));
  char *text;
  size_t size;
  assert_ok(brim_fs_read("runs/bench/best.yaml", 0, &text, &size));
  assert_non_null(strstr(text, "\ndata:\n  batch_size: "));
  assert_null(strstr(text, "output_dir"));
  assert_null(strstr(text, "benchmark"));
  assert_null(strstr(text, "checkpoint:"));  // a default is not written
  brim_free(text);
}

// The same from a made-up result, independent of the machine. The data are found from any folder.
static void no_info(void *work, brim_work_info *out) {
  (void)work;
  *out = (brim_work_info){.learning_rate = (double)NAN};
}

static void test_best_yaml(void **state) {
  (void)state;
  brim_config *config;
  brim_result result;
  assert_ok(brim_fs_mkdirs("it's data"));
  write_file("based.yaml",
             "preset: h200\nmodel: mlp(depth=2, hidden=16)\ndataset: synthetic(samples=512)\n"
             "tags: [one]\noutput_dir: somewhere\ndata:\n  path: it's data\n  batch_size: 64\n"
             "benchmark:\n  batch_sizes: [16, 32]\nlog:\n  interval: 3\n");
  static const brim_knob knobs[] = {{.name = "batch_size", .key = "data.batch_size"}};
  static const brim_workload_table table = {.info = no_info};
  brim_work made = {.table = &table, .knobs = knobs, .knob_count = 1}, *work = &made;
  brim_result_init(&result);
  result.knob_count = 1;
  strcpy(result.knobs[0].name, "batch_size");
  strcpy(result.knobs[0].value, "32");
  brim_config_options how = {.path = "based.yaml"};
  assert_ok(brim_config_load(&how, &config));
  brim_work_subject of = {.config = config, .work = &work, .path = "based.yaml"};
  brim_subject subject;
  assert_ok(brim_work_subject_begin(&of, NULL, 0));
  brim_work_subject_open(&of, &subject);
  brim_tuning session = {.subject = &subject, .results = &result, .count = 1};
  assert_ok(subject.table->write_best(&session, "made.yaml"));
  char *text;
  size_t size;
  assert_ok(brim_fs_read("made.yaml", 0, &text, &size));
  assert_non_null(strstr(text, "batch_size: 32\n"));
  assert_non_null(strstr(text, "/it's data\"\n"));
  assert_non_null(strstr(text, "preset: h200\n"));
  assert_null(strstr(text, "output_dir"));
  assert_null(strstr(text, "batch_sizes"));
  brim_free(text);
  shell_result r = shell(
      "cd / && brim train \"$OLDPWD/made.yaml\" --device ref --max-steps 1 "
      "--output-dir \"$OLDPWD/made-run\" precision=fp32");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_string_equal(r.err, "");
  shell_free(&r);
  remove_all("made-run");
  brim_work_subject_end(&of);
  brim_config_close(config);
  brim_result_deinit(&result);
}

static size_t count_lines(const char *path) {
  char *text;
  size_t size, lines = 0;
  if (brim_fs_read(path, 0, &text, &size)) return 0;
  for (const char *c = text; *c; c++) lines += *c == '\n';
  brim_free(text);
  return lines;
}

// A sweep that is killed has its records on disk; a second sweep keeps the first one's.
static void test_bench_records(void **state) {
  (void)state;
  remove_all("runs");
  write_file("small.yaml", small);
  const char *const argv[] = {BRIM_BINARY,
                              "bench",
                              "small.yaml",
                              "--device",
                              "ref",
                              "--steps",
                              "3",
                              "--batch-sizes",
                              "16",
                              "8192",
                              "--num-workers",
                              "0",
                              "--precisions",
                              "fp32",
                              "--no-ceilings",
                              "dataset=synthetic(samples=8192)",
                              "model=mlp(depth=4, hidden=256)",
                              NULL};
  pid_t pid = start(argv);
  bool there = false;
  for (int i = 0; i < 6000 && !there; i++) {
    there = count_lines("runs/bench/results.jsonl") > 0;
    brim_clock_sleep_ns(10000000);
  }
  assert_int_equal(kill(pid, SIGKILL), 0);
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(there);
  assert_true(WIFSIGNALED(status));
  brim_result *results;
  size_t count;
  assert_ok(brim_results_read("runs/bench/results.jsonl", &results, &count, NULL));
  assert_int_equal(count, 1);
  brim_result_deinit(&results[0]);
  brim_free(results);
  static const char again[] =
      "brim bench small.yaml --device ref --steps 2 --batch-sizes 16,16,32 --num-workers 0 "
      "--no-ceilings --precisions fp32 data.batch_size=16 data.num_workers=0 "
      "training.precision=fp32";
  says_lines(0, "runs/bench/results-1.jsonl", again);
  assert_int_equal(count_lines("runs/bench/results-1.jsonl"), 1);
  assert_int_equal(count_lines("runs/bench/results.jsonl"), 2);  // 16 is measured once
  expect(0, "results-2.jsonl", again);
  assert_true(has_file("runs/bench/report-2.html"));
  assert_int_equal(count_lines("runs/bench/results-2.jsonl"), 2);
  // A name that this run also writes by an option is not free.
  shell_result r = shell("%s --report runs/bench/results-3.jsonl", again);
  said_lines(&r, "runs/bench/results-4.jsonl");
  shell_free(&r);
  assert_int_equal(count_lines("runs/bench/results-4.jsonl"), 2);
  expect(0, NULL, "cp runs/bench/best.yaml best.before");
  r = shell("%s --output runs/bench/best-1.yaml", again);
  assert_int_equal(r.code, 0);
  shell_free(&r);
  expect(0, NULL, "cmp best.before runs/bench/best-3.yaml");
}

// Errors before the measurement: exit code 2. After it: the table, then the error, exit code 1.
static void test_bench_unwritable(void **state) {
  (void)state;
  remove_all("runs blocked");
  write_file("small.yaml", small);
  write_file("blocked", "a file");
#define BENCH \
  "brim bench small.yaml --device ref --steps 2 --batch-sizes 16 --num-workers 0 --no-ceilings "
  static const char *const words[] = {"--report blocked/x.html", "--output blocked/x.jsonl",
                                      "--output-dir blocked", "--report .", "--report /dev/null"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    shell_result r = shell(BENCH "%s", words[i]);
    if (r.code != 2) fail_msg("%s: exit %d: %s", words[i], r.code, r.err);
    assert_string_equal(r.out, "");
    assert_null(strstr(r.err, "brim bench  "));  // not begun
    shell_free(&r);
  }
  if (!has_file("/dev/full")) BRIM_SKIP("no /dev/full here");
  shell_result r = shell(BENCH "--output /dev/full");
  assert_int_equal(r.code, 1);
  assert_non_null(strstr(r.out, "OPTIMAL CONFIGURATION"));
  said_lines(&r, "brim: error: ");
  shell_free(&r);
}

static void test_plan(void **state) {
  (void)state;
  remove_all("runs");
  write_file("small.yaml", small);
  shell_result r = shell(
      "brim bench small.yaml --device ref --plan --batch-sizes 64 16777216 --num-workers 0 "
      "--precisions fp32 model='mlp(depth=8, hidden=4096)' "
      "dataset='synthetic(samples=16777216)'");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_non_null(strstr(r.out, "fits"));
  assert_non_null(strstr(r.out, "OOM (planned)"));
  assert_non_null(strstr(r.out, "16777216"));
  assert_false(has_file("runs"));  // nothing ran, nothing is written
  shell_free(&r);
  // the option is named as it was typed
  expect(2, "error: --batch-sizes: ",
         "brim bench small.yaml --device ref --plan --batch-sizes 99999999999");
  expect(2, "error: --batch-size: ", "brim bench small.yaml --device ref --plan --batch-size 0");
  expect(2, "error: --workers: ", "brim bench small.yaml --device ref --plan --workers=-3");
  says_lines(
      0, "num_workers",
      "brim bench small.yaml --device ref --plan --batch-sizes=64,128,64 --num-workers 0,0 "
      "--precisions fp32,fp32 data.batch_size=64 data.num_workers=0 training.precision=fp32");
  says_lines(
      0, "num_workers",
      "brim bench --batch-sizes 64, small.yaml --device ref --plan --num-workers 0 --precisions "
      "fp32 data.batch_size=64 data.num_workers=0 training.precision=fp32");
  says_lines(
      2, "brim: error: ",
      "brim bench small.yaml --device ref --plan --batch-sizes 64 --num-workers 0 --precisions "
      "fp32 model='wideresnet(depth=27)' 'dataset=synthetic(samples=64)'");
}

// A sweep in which nothing ran has failed, and names the cause.
static void test_nothing_ran(void **state) {
  (void)state;
  remove_all("runs");
  write_file("small.yaml", small);
  says_lines(
      4, "brim: error: ",
      "brim bench small.yaml --backend ref --batch-sizes 16 32 --num-workers 0 --precisions fp32 "
      "gpu.memory_limit=1KiB --output-dir none");
  // the config's own setting runs beside one that does not
  expect(0, "Keep your setting",
         "brim bench small.yaml --device ref --batch-sizes 16 --num-workers 0 --precisions tf32 "
         "--no-ceilings --output-dir none");
  says(4, "brim train small.yaml --device ref gpu.memory_limit=1KiB --output-dir none");
}

// data.cache=auto stays within gpu.memory_limit; the cache of these images is 7 MiB. And --resume
// without a checkpoint reports that it starts again.
static void test_cache_within_limit(void **state) {
  (void)state;
  remove_all("pix");
  remove_all("lim");
  expect(0, NULL,
         "brim data make pix --format folder --shape 64,64,3 --samples 600 --classes 2 "
         "--test-samples 0 -q");
  write_file("lim.yaml",
             "dataset: folder\ndata: {path: pix, batch_size: 4, num_workers: 0}\n"
             "model: mlp(depth=1, hidden=8)\noptimizer: sgd(lr=0.1)\ntraining: {epochs: 1}\n");
  expect(0, NULL,
         "brim train lim.yaml --device ref --max-steps 1 gpu.memory_limit=5MiB --output-dir lim");
  says_rows(4, "gpu.memory_limit",
            "brim train lim.yaml --device ref --max-steps 1 gpu.memory_limit=5MiB data.cache=ram "
            "--output-dir lim2");
  remove_all("lim");
  says_lines(0, "brim: warning: ",
             "brim train lim.yaml --device ref --max-steps 1 --resume --output-dir lim");
}

static void test_start_from_weights(void **state) {
  (void)state;
  remove_all("w1");
  remove_all("w2");
  remove_all("w4");
  write_file("small.yaml", small);
  shell_result r = shell("brim train small.yaml --device ref --max-steps 3 --output-dir w1");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  said_rows(&r, "  loss  ");
  assert_non_null(strstr(r.out, "w1/model.safetensors"));
  shell_free(&r);
  r = shell(
      "brim train small.yaml --device ref --weights w1/model.safetensors --max-steps 1 "
      "--compile false --checkpointing true --output-dir w2");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  shell_free(&r);
  // for other classes: all but the last layer
  says_lines(0, "brim: warning: ",
             "brim train small.yaml --device ref --weights w1/model.safetensors --max-steps 1 "
             "'dataset=synthetic(samples=512, shape=(8,), classes=5)' --output-dir w4");
  expect(2, "none.safetensors",
         "brim train small.yaml --device ref pretrained=none.safetensors "
         "--output-dir w3");
  assert_false(has_file("w3"));
  // the weights a run was started from may be gone when it continues
  r = shell(
      "brim train small.yaml --device ref --weights none.safetensors --max-steps 2 --resume "
      "--output-dir w2");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  shell_free(&r);
}

// Reports about loading: time per sample, broken samples, and why pageable memory is slower.
static void test_loading_texts(void **state) {
  (void)state;
  brim_run_loading l = {.samples = 10,
                        .read_ms = 0.5,
                        .stage_count = 3,
                        .stage = {"random_flip", "cutout", "random_flip"},
                        .stage_ms = {0.25, 2, 0.5},
                        .broken = 3,
                        .first_broken = "cat/01.png: cut off"};
  brim_str text;
  brim_str_init(&text);
  assert_true(brim_cli_loading_text(&l, &text));
  assert_non_null(strstr(text.data, "read 500 us, random_flip 250 us, cutout 2 ms"));
  brim_str_clear(&text);
  assert_true(brim_cli_broken_text(&l, &text));
  assert_string_equal(
      text.data, "3 samples could not be read and were skipped; the first: cat/01.png: cut off");
  json_t *o = brim_cli_loading_json(&l);
  const json_t *stages = json_object_get(o, "transforms_ms");
  assert_int_equal(json_object_size(stages), 2);
  assert_true(json_number_value(json_object_get(stages, "random_flip")) == 0.75);
  assert_int_equal(json_integer_value(json_object_get(o, "broken")), 3);
  json_decref(o);
  brim_str_clear(&text);
  l.broken_reads = 24;
  assert_true(brim_cli_broken_text(&l, &text));
  assert_non_null(strstr(text.data, "3 samples could not be read and were skipped, in 24 reads; "));
  o = brim_cli_loading_json(&l);
  assert_int_equal(json_integer_value(json_object_get(o, "broken_reads")), 24);
  json_decref(o);
  brim_str_clear(&text);
  memset(&l, 0, sizeof l);
  assert_false(brim_cli_loading_text(&l, &text));
  assert_false(brim_cli_broken_text(&l, &text));
  brim_str_deinit(&text);
  brim_device device;
  memset(&device, 0, sizeof device);
  assert_non_null(strstr(brim_cli_pageable_text(&device), "staging"));
  device.info.host_memory = true;
  assert_null(brim_cli_pageable_text(&device));
}

static int begin(void **state) {
  (void)state;
  quiet_machine("ref");
  return 0;
}

int main(void) {
  brim_json_setup();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_train),
      cmocka_unit_test(test_interrupt),
      cmocka_unit_test(test_interrupt_twice),
      cmocka_unit_test(test_interrupt_eval),
      cmocka_unit_test(test_file_size_limit),
      cmocka_unit_test(test_train_says_what_is_seldom_meant),
      cmocka_unit_test(test_bench),
      cmocka_unit_test(test_bench_names),
      cmocka_unit_test(test_best),
      cmocka_unit_test(test_best_yaml),
      cmocka_unit_test(test_bench_records),
      cmocka_unit_test(test_bench_unwritable),
      cmocka_unit_test(test_plan),
      cmocka_unit_test(test_nothing_ran),
      cmocka_unit_test(test_cache_within_limit),
      cmocka_unit_test(test_start_from_weights),
      cmocka_unit_test(test_loading_texts),
  };
  return cmocka_run_group_tests(tests, begin, NULL);
}
