// The last words of the train command: after a run, after one that continued, after one that has nothing left to do.
// And the messages for a damaged checkpoint.
#include <math.h>
#include <unistd.h>

#include "cli_changed.h"
#include "cli_test.h"

static const char classes[] =
    "name: classes\n"
    "dataset: synthetic(shape=(6,), classes=3, samples=96)\n"
    "model: mlp(depth=1, hidden=8)\n"
    "optimizer: sgd(lr=0.1)\n"
    "data: {batch_size: 32, num_workers: 0}\n"
    "training: {epochs: 4}\n";

static const char values[] =
    "name: values\n"
    "dataset: synthetic(shape=(6,), classes=0, targets=2, samples=96)\n"
    "model: mlp(depth=1, hidden=8)\n"
    "loss: mse\n"
    "optimizer: sgd(lr=0.01)\n"
    "data: {batch_size: 32, num_workers: 0}\n"
    "training: {epochs: 2}\n";

static void remove_runs(void) {
  shell_result r = shell("rm -rf runs");
  shell_free(&r);
}

static void test_a_regression_tells_its_loss(void **state) {
  (void)state;
  remove_runs();
  write_file("values.yaml", values);
  shell_result r = shell("brim train values.yaml --device ref");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  const char *line = strstr(r.out, "\n  val loss   ");
  assert_non_null(line);
  assert_non_null(strstr(line, ", best "));
  assert_non_null(strstr(line, " in epoch 2"));
  assert_null(strstr(r.out, "val acc"));
  shell_free(&r);
  remove_runs();
  expect(0, "\"best_loss\": 0.", "brim train values.yaml --device ref --json | sed 's/\":/\": /g'");
  // if another figure chose the best checkpoint, the evaluations have no best
  remove_runs();
  r = shell("brim train values.yaml --device ref checkpoint.best=train_loss");
  line = strstr(r.out, "\n  val loss   ");
  assert_non_null(line);
  assert_null(strstr(line, ", best "));
  shell_free(&r);
}

// The README shows the start of a run on a CPU: each fact once. The composition of a step has a check mark on any
// device.
static void test_the_start_on_a_cpu(void **state) {
  (void)state;
  remove_runs();
  write_file("classes.yaml", classes);
  shell_result r = shell("brim train classes.yaml --device cpu --max-steps 1");
  if (strstr(r.err, "libbrim_cpu.so was not found")) {
    shell_free(&r);
    BRIM_SKIP("the cpu plug-in is not built");
  }
  assert_int_equal(r.code, 0);
  assert_non_null(strstr(r.out, "brim train\n  device     cpu"));
  assert_null(strstr(r.out, "CPU: "));
  assert_null(strstr(r.out, "RAM: "));
  shell_free(&r);
  remove_runs();
  expect(0, "Gradient Accumulation: 2 steps (effective batch = 64)",
         "brim train classes.yaml --device cpu --max-steps 1 "
         "training.gradient_accumulation_steps=2");
}

// The steps are the run's, time and rate are this process's: the line names both.
static void test_a_resumed_run_names_its_own_steps(void **state) {
  (void)state;
  remove_runs();
  write_file("classes.yaml", classes);
  says_rows(0, "done: ", "brim train classes.yaml --device ref --max-steps 5");
  says_rows(0, "done: ", "brim train classes.yaml --device ref --resume");
  says_lines(0, "--epochs", "brim train classes.yaml --device ref --resume");
}

// A run with nothing left to do made no evaluation: it reports the best of the earlier ones.
static void test_a_finished_run_tells_its_best(void **state) {
  (void)state;
  static const struct {
    const char *config, *row;
  } cases[] = {
      {"classes.yaml", "\n  val acc    best "},
      {"values.yaml", "\n  val loss   best "},
      {"contrastive.yaml", "\n  knn        best "},
  };
  write_file("classes.yaml", classes);
  write_file("values.yaml", values);
  write_file("contrastive.yaml",
             "name: contrastive\n"
             "workload: contrastive\n"
             "dataset: synthetic(shape=(8, 8, 3), samples=64, classes=3)\n"
             "transform: {train: views | random_flip}\n"
             "model: simclr(backbone=resnet18(width=2, stem=cifar), hidden=4, dim=4)\n"
             "data: {batch_size: 16, num_workers: 0}\n"
             "training: {epochs: 1, precision: fp32}\n"
             "contrastive: {knn_k: 5, probe_epochs: 0}\n");
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    remove_runs();
    shell_result r = shell("brim train %s --device ref", cases[i].config);
    assert_int_equal(r.code, 0);
    assert_null(strstr(r.out, cases[i].row));  // this process resumed after the last one
    shell_free(&r);
    r = shell("brim train %s --device ref --resume", cases[i].config);
    assert_int_equal(r.code, 0);
    said_lines(&r, "--epochs");
    if (!strstr(r.out, cases[i].row)) fail_msg("no '%s' in: %s", cases[i].row, r.out);
    shell_free(&r);
  }
}

// The report names the real size of a step if the config asks for more samples than the set has. A run without an
// evaluation gives the reason.
static void test_less_than_was_asked_for(void **state) {
  (void)state;
  remove_runs();
  write_file("classes.yaml", classes);
  shell_result r = shell(
      "brim train classes.yaml 'dataset=synthetic(shape=(8,), samples=40, classes=3)' --device ref "
      "--batch-size 16 training.gradient_accumulation_steps=8 --max-steps 1 --epochs 9 "
      "training.eval_interval=9 2>&1");
  assert_int_equal(r.code, 0);
  static const char *const parts[] = {
      "a step of 128 samples is larger than the epoch of 40; every step uses all of them",
      "Gradient Accumulation: 3 steps (effective batch = 40)", "16 x 2 + 8 accumulated = 40, fp32",
      "val loss   none: --max-steps (training.steps) ended the run before an evaluation"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    if (!strstr(r.out, parts[i])) fail_msg("no '%s' in: %s", parts[i], r.out);
  }
  shell_free(&r);
  remove_runs();
  // a run that was evaluated earlier: by an earlier process, by this one, or before its last end
  static const char *const evaluated[] = {
      "brim train classes.yaml --device ref training.eval_interval=2 --max-steps 8",
      "brim train classes.yaml --device ref training.eval_interval=2 --max-steps 9 --resume",
      "brim train classes.yaml --device ref training.eval_interval=2 --resume"};
  for (size_t i = 0; i < sizeof evaluated / sizeof *evaluated; i++) {
    r = shell("%s", evaluated[i]);
    assert_int_equal(r.code, 0);
    said_rows(&r, "done: ");
    assert_null(strstr(r.out, "none: "));
    shell_free(&r);
  }
}

// Checkpoints that a run is to start from, or to continue from.
static void test_files_that_are_no_checkpoints(void **state) {
  (void)state;
  remove_runs();
  write_file("classes.yaml", classes);
  says(2, "brim train classes.yaml --device ref --weights absent.safetensors");
  says(2, "brim train classes.yaml --device ref --weights classes.yaml");
  says(2, "brim train classes.yaml --device ref --resume-from classes.yaml");
  says(2, "brim train classes.yaml --device ref --resume-from absent.safetensors");
  expect(0, NULL, "brim train classes.yaml --device ref --epochs 1 -q");
  says(2,
       "brim train classes.yaml 'model=mlp(depth=1, hidden=9)' --device ref --output-dir again "
       "--weights runs/classes/last.safetensors");
}

static void test_early_stopping_says_what_goes_on(void **state) {
  (void)state;
  remove_runs();
  static const char command[] =
      "brim train classes.yaml --device ref training.early_stopping_delta=10 "
      "training.early_stopping_patience=%d --epochs %d --resume";
  char text[256];
  snprintf(text, sizeof text, command, 1, 8);
  says_rows(0, "  stopped  ", text);
  shell_result r = shell("%s", text);
  assert_int_equal(r.code, 0);
  said_lines(&r, "training.early_stopping_patience");
  assert_null(strstr(r.out, "--epochs"));
  shell_free(&r);
  // stopped at the end of the epochs too: a remedy for only one of the two is not enough
  snprintf(text, sizeof text, command, 1, 2);
  says_lines(0, "--epochs", text);
  snprintf(text, sizeof text, command, 3, 8);
  says_rows(0, "  stopped  ", text);  // with the words of the first report
}

// A checkpoint every three steps. Without an interval, the one at an epoch's end is left out if writing takes long.
#define KEEPING "checkpoint.keep=3 checkpoint.interval=3"

// Overwrites eight bytes of a tensor.
static void damage(const char *path) {
  shell_result r = shell(
      "printf '\\124\\322\\150\\123\\124\\322\\150\\123' | dd of=%s bs=1 "
      "seek=$(($(stat -c %%s %s) - 64)) conv=notrunc 2>/dev/null",
      path, path);
  assert_int_equal(r.code, 0);
  shell_free(&r);
}

static void test_a_damaged_checkpoint_is_not_used(void **state) {
  (void)state;
  remove_runs();
  says_rows(0, "done: ", "brim train classes.yaml --device ref " KEEPING);
  says_rows(0, "  accuracy  ", "brim eval runs/classes/best.safetensors --device ref");
  damage("runs/classes/best.safetensors");
  damage("runs/classes/last.safetensors");
  says(2, "brim eval runs/classes/best.safetensors --device ref");
  says(2, "brim export --force runs/classes/best.safetensors --output out.onnx");
  assert_int_not_equal(access("out.onnx", F_OK), 0);
  says(2,
       "brim train classes.yaml --device ref --output-dir runs/other "
       "--weights runs/classes/best.safetensors");
  shell_result r = shell("brim train classes.yaml --device ref --resume " KEEPING);
  assert_int_equal(r.code, 0);
  said_lines(&r, "brim.checksum");
  said_lines(&r, "step-00000009.safetensors");
  said_rows(&r, "done: ");
  shell_free(&r);
}

static void test_a_diverged_checkpoint_is_not_used(void **state) {
  (void)state;
  write_file("classes.yaml", classes);
  remove_runs();
  says_rows(0, "done: ", "brim train classes.yaml --device ref " KEEPING);
  static const char *const files[] = {"runs/classes/last.safetensors",
                                      "runs/classes/model.safetensors"};
  for (int i = 0; i < 2; i++) write_changed(files[i], files[i], "layers.0.weight", 7, NAN);
  says(2, "brim export --force runs/classes/model.safetensors --output out.onnx");
  assert_false(has_file("out.onnx"));
  shell_result r = shell("brim train classes.yaml --device ref --resume " KEEPING);
  assert_int_equal(r.code, 0);
  said_lines(&r, "'layers.0.weight'");
  said_lines(&r, "step-00000009.safetensors");
  said_rows(&r, "done: ");
  shell_free(&r);
}

// Keeping another part for evaluation puts trained samples into the evaluation.
static void test_another_part_is_told(void **state) {
  (void)state;
  static const char train[] =
      "brim train classes.yaml --device ref data.val_fraction=0.25 --epochs %d %s 2>&1";
  write_file("classes.yaml", classes);
  remove_runs();
  shell_result r = shell(train, 1, "");
  assert_int_equal(r.code, 0);
  shell_free(&r);
  r = shell(train, 2, "--resume");
  assert_int_equal(r.code, 0);
  assert_null(strstr(r.out, "look too good"));
  shell_free(&r);
  r = shell(train, 3, "--resume --seed 5");
  assert_int_equal(r.code, 0);
  said_lines(&r, "data.val_fraction");
  shell_free(&r);
  // some of the kept checkpoints
  r = shell(
      "brim train classes.yaml --device ref data.val_fraction=0.125 --epochs 4 --seed 5 "
      "--resume 2>&1");
  assert_int_equal(r.code, 0);
  said_rows(&r, "data.val_fraction");
  assert_null(strstr(r.out, "look too good"));
  shell_free(&r);
}

// A folder with only the model still counts as a run: its checkpoints were removed to save room.
static void test_a_model_is_not_written_over(void **state) {
  (void)state;
  write_file("classes.yaml", classes);
  const char *const command =
      "brim train classes.yaml --device ref --max-steps 2 --output-dir kept";
  assert_int_equal(system("rm -rf kept"), 0);
  says_rows(0, "done: ", command);
  says(2, command);
  assert_int_equal(system("rm kept/last.safetensors kept/step-*.safetensors kept/best.safetensors "
                          "2>/dev/null; true"),
                   0);
  says(2, command);
  says(2, "brim train classes.yaml --device ref --max-steps 2 --output-dir kept --resume");
  assert_int_equal(system("rm kept/model.safetensors"), 0);
  says_rows(0, "done: ", command);
}

static void test_shares_of_nothing(void **state) {
  (void)state;
  write_file("classes.yaml", classes);
  remove_runs();
  says_rows(2, "data.val_fraction", "brim train classes.yaml --device ref data.val_fraction=1e-6");
}

// Programs that run many trainings need the class of a failure, and the steps that a run would make.
static void expect_class(const char *name, const char *command) {
  shell_result r = shell("%s", command);
  char part[64];
  snprintf(part, sizeof part, "\"class\":\"%s\"", name);
  assert_int_not_equal(r.code, 0);
  has(r.out, "{\"event\":\"error\"");
  has(r.out, part);
  shell_free(&r);
}

static void test_the_error_event_has_a_class(void **state) {
  (void)state;
  remove_runs();
  write_file("classes.yaml", classes);
  expect_class("nan",
               "brim train classes.yaml --device ref --json 'optimizer=sgd(lr=1e9)' "
               "training.epochs=40");
  expect_class("bad_config",
               "brim train classes.yaml --device ref --json optimizer=nothing --output-dir runs/b");
  expect_class("bad_config", "brim train missing.yaml --json");
  expect_class("data", "brim train mnist-mlp --device ref --json --data-path nowhere");
  expect_class(
      "oom_planned",
      "brim train classes.yaml --device ref --json gpu.memory_limit=1KB --output-dir runs/c");
  // Hardware that this machine lacks is no reason to retry.
  expect_class("unsupported",
               "BRIM_PLUGIN_PATH=/nonexistent brim train classes.yaml --device cuda --json "
               "--output-dir runs/d");
  expect_class("infrastructure",
               "touch taken; brim train classes.yaml --device ref --json --output-dir taken");
  expect_class("infrastructure",
               "mkdir -p runs/held; exec 9>runs/held/lock; flock 9; "
               "brim train classes.yaml --device ref --json --output-dir runs/held");
}

static void test_the_start_event_says_how_far(void **state) {
  (void)state;
  remove_runs();
  write_file("classes.yaml", classes);
  expect(0, "\"epochs\":4,\"steps\":12,", "brim train classes.yaml --device ref --json");
  remove_runs();
  expect(0, "\"epochs\":4,\"steps\":5,",
         "brim train classes.yaml --device ref --json --max-steps 5");
}

// The records that only an executor reads (record_channel.h).
static void test_an_executor_hears_of_checkpoints(void **state) {
  (void)state;
  remove_runs();
  write_file("classes.yaml", classes);
  shell_result r = shell("brim train classes.yaml --device ref --json");
  assert_null(strstr(r.out, "\"event\":\"checkpoint\""));
  assert_null(strstr(r.out, "\"total\":3,\"epoch\":"));
  shell_free(&r);
  remove_runs();
  r = shell("BRIM_CHANNEL=1 brim train classes.yaml --device ref --json");
  const char *last = NULL;
  for (const char *at = r.out; (at = strstr(at, "\"event\":\"checkpoint\"")) != NULL; at++)
    last = at;
  assert_non_null(last);
  assert_non_null(strstr(last, "\"step\":12}"));
  assert_non_null(strstr(r.out, "\"total\":3,\"epoch\":1,\"epochs\":4,\"step\":"));
  shell_free(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_an_executor_hears_of_checkpoints),
      cmocka_unit_test(test_a_regression_tells_its_loss),
      cmocka_unit_test(test_the_start_on_a_cpu),
      cmocka_unit_test(test_a_resumed_run_names_its_own_steps),
      cmocka_unit_test(test_a_finished_run_tells_its_best),
      cmocka_unit_test(test_less_than_was_asked_for),
      cmocka_unit_test(test_files_that_are_no_checkpoints),
      cmocka_unit_test(test_early_stopping_says_what_goes_on),
      cmocka_unit_test(test_a_damaged_checkpoint_is_not_used),
      cmocka_unit_test(test_a_diverged_checkpoint_is_not_used),
      cmocka_unit_test(test_another_part_is_told),
      cmocka_unit_test(test_a_model_is_not_written_over),
      cmocka_unit_test(test_shares_of_nothing),
      cmocka_unit_test(test_the_error_event_has_a_class),
      cmocka_unit_test(test_the_start_event_says_how_far),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
