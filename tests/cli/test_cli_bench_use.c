// Uses of a finished sweep: --resume, --apply, --verify, --all, --benchmark-batch. Measured rates differ from machine
// to machine. A test that needs a recommendation rewrites the sweep's records as steady ones, and a resumed sweep takes
// them over.
#include <math.h>
#include <unistd.h>

#include "cli_test.h"
#include "fake_rates.h"
#include "quiet_machine.h"
#include "record/record.h"

// The ceilings of the machine and the price of findings take longer than the sweep, so they are off here
// (test_cli_bench_ceilings and test_cli_bench_findings have them).
#define SWEEP                                                                                   \
  "brim bench small.yaml --device ref --batch-sizes 16 64 --num-workers 0 1 --precisions fp32 " \
  "--steps 2 --repeats 1 --no-ceilings --no-price --output-dir out data.batch_size=16 "         \
  "data.num_workers=0 training.use_amp=false "

static const char small[] =
    "# small\nmodel: mlp(depth=2, hidden=16)\ndataset: synthetic(samples=512, shape=(8,))\n"
    "data:\n  batch_size: 32  # to be tuned\ntraining:\n  epochs: 2\n  use_amp: true\n";

static void remove_all(const char *names) {
  shell_result r = shell("rm -rf %s", names);
  shell_free(&r);
}

static brim_result *read_all(const char *path, size_t expected) {
  brim_result *results;
  size_t count;
  assert_ok(brim_results_read(path, &results, &count, NULL));
  if (count != expected) fail_msg("%s has %zu records, not %zu", path, count, expected);
  return results;
}

static void free_all(brim_result *results, size_t count) {
  for (size_t i = 0; i < count; i++) brim_result_deinit(&results[i]);
  brim_free(results);
}

// Makes a sweep with the records that a test needs: all steady, rates in the order of the sweep.
static void make_sweep_with(const char *config, const char *more, const double *rates) {
  static bool made;  // the sweep of `small` is in "made"
  const bool usual = config == small && !more[0];
  remove_all("out");
  write_file("small.yaml", config);
  shell_result r = shell(usual && made ? "cp -R made out" : SWEEP "%s", more);
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  if (!usual || !made) assert_non_null(strstr(r.out, "BENCHMARK SUMMARY"));
  shell_free(&r);
  if (usual && !made) expect(0, NULL, "rm -rf made && cp -R out made");
  made = made || usual;
  fake_rates("out/results.jsonl", 4, rates);
}

static void make_sweep(const char *config, const double *rates) {
  make_sweep_with(config, "", rates);
}

static const double rising[4] = {1000, 4000, 1000,
                                 8000};  // batch 16, 64 with 0 workers, then with 1

//---------------------------------- --resume ----------------------------------

static void test_resume_takes_over(void **state) {
  (void)state;
  make_sweep(small, rising);
  brim_result *results = read_all("out/results.jsonl", 4);
  assert_ok(brim_results_write("out/results.jsonl", results, 2));
  free_all(results, 4);
  // a line that was cut short
  expect(0, NULL, "printf '{\"schema\": \"brim.res' >>out/results.jsonl");
  shell_result r = shell(SWEEP "--resume");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  said_lines(&r, "out/results.jsonl");
  assert_non_null(strstr(r.err, "broken lines: 1"));
  shell_free(&r);
  results = read_all("out/results.jsonl", 4);
  assert_true(results[0].samples_per_s == rising[0]);
  assert_true(results[1].samples_per_s == rising[1]);
  static const char *const batches[] = {"16", "64", "16", "64"};
  for (size_t i = 0; i < 4; i++) {
    assert_string_equal(brim_result_knob_find(&results[i], "batch_size")->value, batches[i]);
    assert_string_equal(brim_result_knob_find(&results[i], "num_workers")->value,
                        i < 2 ? "0" : "1");
  }
  free_all(results, 4);
  assert_false(has_file("out/results-1.jsonl"));  // the sweep continued in its own file
}

// A record of a version without a key was measured at the key's default.
static void test_resume_lacks_new_keys(void **state) {
  (void)state;
  make_sweep(small, rising);
  brim_result *results = read_all("out/results.jsonl", 4);
  for (size_t i = 0; i < 4; i++) {
    json_t *data = json_object_get(results[i].config, "data");
    assert_int_equal(json_object_del(data, "allow_external"), 0);
    if (i == 0) assert_int_equal(json_object_del(results[i].config, "log"), 0);
  }
  assert_ok(brim_results_write("out/results.jsonl", results, 4));
  says_lines(0, "out/results.jsonl", SWEEP "--resume");
  assert_false(has_file("out/results-1.jsonl"));
  // a value other than the default is another config
  assert_ok(brim_results_write("out/results.jsonl", results, 4));
  free_all(results, 4);
  expect(0, "another config", SWEEP "--resume data.allow_external=true");
}

// Settings that failed to run are tried again. A record that does not belong to the sweep makes brim rename the file.
static void test_resume_leaves_out(void **state) {
  (void)state;
  make_sweep(small, rising);
  brim_result *results = read_all("out/results.jsonl", 4);
  results[0].failure = BRIM_FAILURE_INTERRUPTED;
  results[1].failure = BRIM_FAILURE_OOM_DEVICE;
  snprintf(results[2].kind, sizeof results[2].kind, "verify");
  assert_ok(brim_results_write("out/results.jsonl", results, 4));
  shell_result r = shell(SWEEP "--resume");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  said_lines(&r, "out/results.jsonl");
  assert_non_null(strstr(r.err, "tried again: 2"));
  shell_free(&r);
  assert_false(has_file("out/results-1.jsonl"));
  free_all(read_all("out/results.jsonl", 4), 4);
  // Another version, machine, device and config in turn.
  static const char *const why[] = {"another version of brim", "another machine", "another device",
                                    "another config", "a setting that is not swept now"};
  for (int i = 0; i < 5; i++) {
    remove_all("out/results-1.jsonl out/best-1.yaml out/report-1.html");
    brim_result changed = results[3];
    if (i == 0) snprintf(changed.version, sizeof changed.version, "0.0.1");
    if (i == 1) snprintf(changed.host, sizeof changed.host, "elsewhere");
    if (i == 2) snprintf(changed.device_id, sizeof changed.device_id, "GPU-1");
    if (i == 3) changed.seed = 77;
    if (i == 4) changed.knobs[0].number = 17;
    brim_result both[] = {results[3], changed};
    assert_ok(brim_results_write("out/results.jsonl", both, i % 2 ? 1 : 2));
    if (i % 2) assert_ok(brim_results_write("out/results.jsonl", &changed, 1));
    r = shell(SWEEP "--resume");
    if (r.code) fail_msg("exit %d: %s", r.code, r.err);
    if (!strstr(r.err, why[i])) fail_msg("no '%s' in: %s", why[i], r.err);
    said_lines(&r, "out/results-1.jsonl");
    assert_non_null(strstr(r.err, i % 2 ? "nothing to resume" : "1 setting of"));
    shell_free(&r);
    free_all(read_all("out/results.jsonl", 4), 4);
  }
  free_all(results, 4);
}

// Figures that no measurement can give are not believed: those settings are measured again.
static void test_resume_doubts(void **state) {
  (void)state;
  make_sweep(small, rising);
  brim_result *results = read_all("out/results.jsonl", 4);
  results[0].samples_per_s = results[0].samples_per_s_high = 1e308;
  results[1].samples_per_s_low = 2 * results[1].samples_per_s;
  results[1].samples_per_s_high = 3 * results[1].samples_per_s;
  results[2].samples_per_s = NAN;
  assert_ok(brim_results_write("out/results.jsonl", results, 4));
  free_all(results, 4);
  shell_result r = shell(SWEEP "--resume");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  said_lines(&r, "out/results.jsonl");
  assert_non_null(strstr(r.err, "impossible figures, measured again: 3"));
  shell_free(&r);
  results = read_all("out/results.jsonl", 4);
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(results[i].repeats, 1);
    assert_true(results[i].samples_per_s > 0 && results[i].samples_per_s < 1e12);
  }
  assert_true(results[3].samples_per_s == rising[3]);
  free_all(results, 4);
}

// The config's own setting is not among the values of the command line. It is measured too, but recommended only if it
// is the fastest.
static void test_own_setting_beside_the_named(void **state) {
  (void)state;
#define NAMED                                                                                   \
  "brim bench small.yaml --device ref --batch-sizes 32 --num-workers 0 --precisions fp32 "      \
  "--no-ceilings --steps 2 --repeats 1 --output-dir out data.batch_size=32 data.num_workers=1 " \
  "training.use_amp=false "
  remove_all("out");
  write_file("small.yaml", small);
  shell_result r = shell(NAMED);
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_non_null(strstr(r.err, "2 settings:"));
  assert_non_null(strstr(r.err, ", and the config's own setting"));
  assert_non_null(strstr(r.out, "samples/s (measured once)"));
  assert_non_null(strstr(r.out, "(provisional: another may be faster)"));
  shell_free(&r);
  for (int fastest = 0; fastest < 2; fastest++) {
    fake_rates("out/results.jsonl", 2,
               fastest ? (const double[]){1000, 2000} : (const double[]){2000, 1000});
    r = shell(NAMED "--resume");
    if (r.code) fail_msg("exit %d: %s", r.code, r.err);
    bool own = strstr(r.out, "keep your setting: it is already the fastest") != NULL;
    assert_true(own == (fastest == 0));
    assert_non_null(strstr(r.out, own ? "  Workers:          1" : "  Workers:          0"));
    shell_free(&r);
  }
#undef NAMED
}

// Repeated reading of the same records gives the same words.
static void test_resume_changes_nothing(void **state) {
  (void)state;
#define REPEATED SWEEP "--repeats 2 "
  remove_all("out");
  write_file("small.yaml", small);
  expect(0, NULL, REPEATED);
  brim_result *first = read_all("out/results.jsonl", 4);
  for (int i = 0; i < 2; i++) {
    expect(0, NULL, REPEATED "--resume");
    brim_result *again = read_all("out/results.jsonl", 4);
    for (size_t k = 0; k < 4; k++) {
      assert_true(first[k].visit_count > 0);
      assert_int_equal(again[k].visit_count, first[k].visit_count);
      assert_int_equal(again[k].repeats, first[k].repeats);
      assert_memory_equal(&again[k].samples_per_s, &first[k].samples_per_s, sizeof(double));
      assert_memory_equal(&again[k].samples_per_s_low, &first[k].samples_per_s_low, sizeof(double));
      assert_memory_equal(&again[k].samples_per_s_high, &first[k].samples_per_s_high,
                          sizeof(double));
      assert_int_equal(again[k].stable, first[k].stable);
    }
    free_all(again, 4);
  }
  free_all(first, 4);
#undef REPEATED
}

// A sweep that runs out of budget succeeds: it recommends a setting, and --resume measures the rest.
static void test_a_budget_ends_a_sweep(void **state) {
  (void)state;
  remove_all("out");
  write_file("small.yaml", "model: mlp(depth=2, hidden=64)\ndataset: synthetic(samples=8192)\n");
#define BUDGET                                                                                    \
  "brim bench small.yaml --device ref --batch-sizes 256 512 1024 2048 4096 8192 --num-workers 0 " \
  "--precisions fp32 --no-ceilings --output-dir out data.batch_size=256 data.num_workers=0 "      \
  "training.use_amp=false "
  shell_result r = shell(BUDGET "--budget 1 --json");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_non_null(strstr(r.out, "\"grid\":6"));
  assert_non_null(strstr(r.out, "\"budget_ended\":true"));
  assert_non_null(strstr(r.out, "\"recommended\":{"));
  shell_free(&r);
  says(2, BUDGET "--budget 0");
#undef BUDGET
}

// Plans for a card that this machine lacks are compared with that card's memory.
static void test_a_card_that_is_not_here(void **state) {
  (void)state;
#define PLAN \
  "brim bench 'model=mlp(depth=2, hidden=16)' 'dataset=synthetic(samples=512)' --device ref "
  expect(0, "planned for rtx3060-12gb with 12.0 GiB", PLAN "--plan --gpu 'RTX 3060-12GB'");
  says(2, PLAN "--plan --gpu rtx3060");
  expect(2, "add --plan", PLAN "--gpu rtx3060-12gb");
  shell_result r = shell(
      "brim bench 'model=mlp(depth=4, hidden=30000)' 'dataset=synthetic(samples=512)' "
      "--device ref --plan --gpu rtx2060-6gb --batch-sizes 16 --json");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_non_null(strstr(r.out, "oom_planned"));
  shell_free(&r);
  // The size of the named card decides which batches are tried, not this machine's memory.
  for (int large = 0; large < 2; large++) {
    r = shell(
        "brim bench 'model=mlp(depth=32, hidden=2048)' 'dataset=synthetic(samples=65536)' "
        "--device ref --plan --gpu %s --num-workers 2 --precisions fp32 --json",
        large ? "b200-180gb" : "rtx2060-6gb");
    if (r.code) fail_msg("exit %d: %s", r.code, r.err);
    assert_null(strstr(r.out, "oom_planned"));
    assert_int_equal(strstr(r.out, "\"batch_size\":32768") != NULL, large);
    shell_free(&r);
  }
#undef PLAN
}

static void test_resume_of_nothing(void **state) {
  (void)state;
  remove_all("out");
  write_file("small.yaml", small);
  says_lines(0, "out/results.jsonl", SWEEP "--resume");
  free_all(read_all("out/results.jsonl", 4), 4);
}

// Interrupted again, within a slow setting: records that were not reached yet stay in the file.
static void test_resume_interrupted(void **state) {
  (void)state;
  shell_result r = {0};
  // The first signal comes while the machine is measured. The others wait longer each time. A signal before the first
  // setting begins loses nothing, because nothing was measured yet.
  for (int i = 0; !r.out || !strstr(r.out, "continues from there"); i++) {
    if (i == 10) fail_msg("no setting was interrupted: %s", r.out);
    if (r.out) free_all(read_all("out/results.jsonl", 4), 4);
    shell_free(&r);
    make_sweep("model: mlp(depth=2, hidden=16)\ndataset: synthetic(samples=200000)\n", rising);
    // files of an earlier run: told.txt would be read before it is replaced, and noisy/ remembers the machine
    remove_all("told.txt noisy");
    char command[512];
    snprintf(
        command, sizeof command,
        "XDG_CACHE_HOME=$PWD/noisy " BRIM_BINARY
        " bench small.yaml --device ref --batch-sizes 32768 16 64 --num-workers 0 1 "
        "--precisions fp32 --steps 2 --repeats 1 --output-dir out --resume %s 2>told.txt & pid=$!; "
        "until grep -qs '4 settings of' told.txt; do sleep 0.01; done; sleep %.2f; "
        "kill -TERM $pid; wait $pid",
        i == 0 ? "" : "--no-ceilings", i < 2 ? 0 : 0.05 * (1 << (i - 2)));
    r = shell("%s", command);
    if (r.code != 130) fail_msg("exit %d: %s", r.code, r.err);
  }
  // the command had --resume already
  assert_non_null(strstr(r.out, "the same command continues from there"));
  assert_null(strstr(r.out, "--resume"));
  shell_free(&r);
  // Usually 5. On a busy machine the signal may come as late as in the second of the two new settings.
  brim_result *results;
  size_t count;
  assert_ok(brim_results_read("out/results.jsonl", &results, &count, NULL));
  if (count < 5 || count > 6) fail_msg("out/results.jsonl has %zu records", count);
  // A signal between two settings interrupts neither.
  const brim_failure last = results[count - 5].failure;
  assert_true(last == BRIM_FAILURE_INTERRUPTED || last == BRIM_FAILURE_NONE);
  for (size_t i = 0; i < 4; i++) assert_true(results[count - 4 + i].samples_per_s == rising[i]);
  free_all(results, count);
}

// The advice after an interrupt names --resume if the command lacked it, and no option that the command already has.
static void test_interrupted_advice(void **state) {
  (void)state;
  remove_all("out");
  write_file("small.yaml", "model: mlp(depth=2, hidden=16)\ndataset: synthetic(samples=200000)\n");
  shell_result r = shell(
      BRIM_BINARY
      " bench small.yaml --device ref --batch-sizes 65536 --num-workers 0 1 --precisions fp32 "
      "--steps 2 --repeats 1 --output-dir out --verbose --no-ceilings data.batch_size=16 "
      "data.num_workers=0 2>/dev/null & pid=$!; "
      "until grep -qs brim.result out/results.jsonl; do sleep 0.01; done; kill -TERM $pid; "
      "wait $pid");
  if (r.code != 130) fail_msg("exit %d: %s", r.code, r.err);
  static const char *const told[] = {"interrupted: 1 setting was done",
                                     "the same command with --resume continues",
                                     "workers: the sweep ended with one number alone measured"};
  for (size_t i = 0; i < 3; i++) {
    if (!strstr(r.out, told[i])) fail_msg("no '%s' in: %s", told[i], r.out);
  }
  assert_null(strstr(r.out, "--num-workers"));
  assert_null(strstr(r.out, "--batch-sizes"));
  // the setting that one was compared with is missing
  expect(0, "(provisional: another may be faster)", "cat out/report.html");
  shell_free(&r);
}

// Every setting fails: the table and the exit code show the reason, and there is nothing to use.
static void test_no_setting_ran(void **state) {
  (void)state;
#define NONE_RUNS                                                                             \
  "brim bench small.yaml --device ref --batch-sizes 16 32 --num-workers 0 --precisions fp32"  \
  " --cache gpu data.cache=gpu data.batch_size=16 data.num_workers=0 training.use_amp=false " \
  "--steps 2 --repeats 1 --output-dir out "
  remove_all("out");
  write_file("small.yaml", small);
  shell_result r = shell(NONE_RUNS);
  if (r.code != 3) fail_msg("exit %d: %s", r.code, r.err);
  assert_non_null(strstr(r.out, "No setting ran, so there is nothing to recommend."));
  said_lines(&r, "best.yaml");
  assert_non_null(strstr(r.err, "no setting ran: data.cache=gpu is not possible"));
  shell_free(&r);
  assert_false(has_file("out/best.yaml"));
  brim_result *results = read_all("out/results.jsonl", 2);
  for (size_t i = 0; i < 2; i++) {
    assert_int_equal(results[i].failure, BRIM_FAILURE_UNSUPPORTED);
  }
  free_all(results, 2);
  expect(3, "no setting ran", NONE_RUNS "--apply");
  says(0, "cat small.yaml");
#undef NONE_RUNS
}

//---------------------------------- --apply ----------------------------------

static void expect_file(const char *path, const char *text) {
  char *got;
  size_t size;
  assert_ok(brim_fs_read(path, 0, &got, &size));
  assert_string_equal(got, text);
  brim_free(got);
}

static const char applied[] =
    "# small\nmodel: mlp(depth=2, hidden=16)\ndataset: synthetic(samples=512, shape=(8,))\n"
    "data:\n  batch_size: 64  # to be tuned\n  num_workers: 1\ntraining:\n  epochs: 2\n"
    "  use_amp: false\n  learning_rate: 0.001414\n";

static void test_apply(void **state) {
  (void)state;
  make_sweep(small, rising);
  shell_result r = shell(SWEEP "--resume --apply");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_non_null(
      strstr(r.out,
             "applied       small.yaml\nlearning rate 0.001 -> 0.001414, --keep-lr keeps "
             "it (square-root rule, effective batch 32 -> 64)\n--- small.yaml\n"
             "+++ small.yaml\n@@ "));
  assert_non_null(strstr(r.out, "-  batch_size: 32  # to be tuned\n"));
  assert_non_null(strstr(r.out, "+  batch_size: 64  # to be tuned\n+  num_workers: 1\n"));
  shell_free(&r);
  expect_file("small.yaml", applied);
  // The config has the recommended values now: the records are still valid, and nothing is left to write.
  says_lines(0, "small.yaml", SWEEP "--resume --apply seed=0");
  expect_file("small.yaml", applied);
}

// A larger batch scales the learning rate by the rule for its optimizer. The basis is the rate that the file has for
// its own batch, not the one of the command line. --keep-lr keeps the rate.
static void test_apply_learning_rate(void **state) {
  (void)state;
  static const char sgd[] =
      "model: mlp(depth=2, hidden=16)\ndataset: synthetic(samples=512, shape=(8,))\n"
      "optimizer: sgd(lr=0.1)  # 0.1 for 32\ndata:\n  batch_size: 32  # 32 fits\n"
      "  num_workers: 1  # one core is free\ntraining:\n  use_amp: false\n";
  make_sweep(sgd, rising);
  shell_result r = shell(SWEEP "--resume --apply --keep-lr");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  said_lines(&r, "--keep-lr");
  shell_free(&r);
  expect(0, "sgd(lr=0.1)  # 0.1 for 32", "cat small.yaml");
  expect(0, "batch_size: 64\n", "cat small.yaml");
  make_sweep(sgd, rising);
  r = shell(SWEEP "--resume --apply");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  said_lines(&r, "--keep-lr");
  shell_free(&r);
  expect_file("small.yaml",
              "model: mlp(depth=2, hidden=16)\ndataset: synthetic(samples=512, shape=(8,))\n"
              "optimizer: sgd(lr=0.2)\ndata:\n  batch_size: 64\n"
              "  num_workers: 1  # one core is free\ntraining:\n  use_amp: false\n");
  // the config has this batch now: the records are still valid, and nothing is left to scale
  says_lines(0, "out/results.jsonl", SWEEP "--resume");
  says_lines(0, "small.yaml", SWEEP "--resume --apply");
  expect(0, "sgd(lr=0.2)", "cat small.yaml");
}

// best.yaml has the learning rate that --apply writes, and mentions it.
static void test_best_learning_rate(void **state) {
  (void)state;
  make_sweep(small, rising);
  expect(0, "BENCHMARK SUMMARY", SWEEP "--resume");
  expect(0,
         "# learning rate 0.001 -> 0.001414, --keep-lr keeps it (square-root rule, effective "
         "batch 32 -> 64)\n",
         "cat out/best.yaml");
  expect(0, "\n  learning_rate: 0.001414\n", "cat out/best.yaml");
  expect(0, "learning_rate: 0.001414", "brim config show out/best.yaml");
  make_sweep(small, rising);
  expect(0, "BENCHMARK SUMMARY", SWEEP "--resume --keep-lr");
  expect(0, "# learning rate 0.001 stays (--keep-lr); it would be 0.001414", "cat out/best.yaml");
  expect(0, "learning_rate: 0.001\n", "brim config show out/best.yaml");
  // a rate from the command line belongs to the command line's batch of 16
  make_sweep_with(small, "training.learning_rate=0.01", rising);
  expect(0, "BENCHMARK SUMMARY", SWEEP "--resume training.learning_rate=0.01");
  expect(0, "# learning rate 0.01 -> 0.02, ", "cat out/best.yaml");
  // a rate among the optimizer's own arguments
  static const char sgd[] =
      "model: mlp(depth=2, hidden=16)\ndataset: synthetic(samples=512, shape=(8,))\n"
      "optimizer: sgd(lr=0.1)\ndata:\n  batch_size: 32\n";
  make_sweep(sgd, rising);
  expect(0, "BENCHMARK SUMMARY", SWEEP "--resume");
  expect(0, "# learning rate 0.1 -> 0.2, ", "cat out/best.yaml");
  expect(0, "learning_rate: 0.2\n", "brim config show out/best.yaml");
  remove_all("run");
  expect(0, NULL, "brim train out/best.yaml --epochs 1 --device ref -q --output-dir run");
}

static void test_apply_elsewhere(void **state) {
  (void)state;
  make_sweep(small, rising);
  write_file("other.yaml", "batch_size: [8, 16]\r\n");
  shell_result r = shell(SWEEP "--resume --apply other.yaml --json");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_true(json_lines(r.out) > 1);
  assert_non_null(strstr(r.out, "\"event\":\"apply\""));
  assert_non_null(strstr(r.out, "\"changed\":true"));
  assert_non_null(strstr(r.out, "\"data.batch_size\":\"64\""));
  assert_non_null(strstr(r.out, "-batch_size: [8, 16]"));
  shell_free(&r);
  expect_file("small.yaml", small);
  expect_file("other.yaml",
              "batch_size: 64\r\n\r\ntraining:\r\n  precision: fp32\r\n\r\ndata:\r\n"
              "  num_workers: 1\r\n");
  // --apply with a file alone also measures.
  write_file("small.yaml", small);
  expect(0, "applied       small.yaml",
         "brim bench --apply small.yaml --device ref --batch-sizes 16 64 --num-workers 0 1 "
         "--precisions fp32 --steps 2 --repeats 1 --output-dir out --resume");
}

// A config that cannot be edited is refused before anything is measured.
static void test_apply_refused(void **state) {
  (void)state;
  remove_all("out");
  write_file("small.yaml", small);
  says(2, "brim bench --apply --device ref");
  says(2, "brim bench small.yaml --device ref --plan --apply");
  says(2, "brim bench small.yaml --device ref --plan --verify");
  expect(2, "missing.yaml", SWEEP "--apply missing.yaml");
  write_file("shared.yaml", "batch_size: &b 64\neval_batch_size: *b\n");
  says(2, SWEEP "--apply shared.yaml");
  assert_false(has_file("out"));
}

// Noise and full memory widen or mark a recommendation; they do not prevent it. Only if noise leaves nothing certain,
// the config keeps its setting.
static void test_apply_of_noisy_results(void **state) {
  (void)state;
  make_sweep(small, rising);
  brim_result *results = read_all("out/results.jsonl", 4);
  for (size_t i = 0; i < 4; i++) {
    results[i].stable = false;
    results[i].samples_per_s_low = 0.1 * rising[i];
    results[i].samples_per_s_high = 9 * rising[i];
  }
  assert_ok(brim_results_write("out/results.jsonl", results, 4));
  shell_result r = shell(SWEEP "--resume --json");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_non_null(strstr(r.out, "\"keep\":true"));
  shell_free(&r);
  for (size_t i = 0; i < 4; i++) {
    results[i].samples_per_s_low = 0.6 * rising[i];
    results[i].samples_per_s_high = 1.6 * rising[i];
  }
  assert_ok(brim_results_write("out/results.jsonl", results, 4));
  r = shell(SWEEP "--resume --apply");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_non_null(strstr(r.out, "provisional"));
  assert_non_null(strstr(r.out, "+  batch_size: 64"));
  assert_non_null(strstr(r.out, "recommended:"));  // now -> recommended
  shell_free(&r);
  for (size_t i = 0; i < 4; i++) results[i].free_bytes = 1;
  assert_ok(brim_results_write("out/results.jsonl", results, 4));
  says_lines(0, "small.yaml", SWEEP "--resume --apply");
  free_all(results, 4);
}

// --apply writes a knob that changes learning only if the command names it. Otherwise brim only reports its gain.
static void test_learning_is_kept(void **state) {
  (void)state;
  make_sweep(small, rising);
  write_file("small.yaml", small);
  // the same grid without named batch sizes: they are defaults of the plan
  remove_all("kept");
  shell_result r = shell(
      "brim bench small.yaml --device ref --num-workers 0 --precisions fp32 --steps 3 --repeats 1 "
      "--no-price --output-dir kept data.num_workers=0 training.use_amp=false --apply --json");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  shell_free(&r);
  expect(0, "batch_size: 32", "cat small.yaml");
  expect(0, "batch_size: 32", "cat kept/best.yaml");
}

// The config's own setting stays as the file has it: values that the file leaves to brim are not written.
static void test_apply_keeps_automatic_values(void **state) {
  static const char automatic[] =
      "model: mlp(depth=2, hidden=16)\ndataset: synthetic(samples=512, shape=(8,))\ndevice: ref\n"
      "data:\n  batch_size: 32\n  num_workers: 0\ntraining:\n  precision: auto  # as fast as can "
      "be\n";
  (void)state;
  remove_all("kept");
  write_file("automatic.yaml", automatic);
  says_lines(
      0, "automatic.yaml",
      "brim bench automatic.yaml --batch-sizes 32 --num-workers 0 --precisions fp32 --steps 2 "
      "--repeats 1 --no-ceilings --no-price --output-dir kept --apply");
  expect_file("automatic.yaml", automatic);
  // the same file under another name
  says_lines(
      0, "automatic.yaml",
      "brim bench automatic.yaml --batch-sizes 32 --num-workers 0 --precisions fp32 --steps 2 "
      "--repeats 1 --no-ceilings --no-price --output-dir kept --apply ./automatic.yaml");
  expect_file("automatic.yaml", automatic);
  // a value from the command line is not written to the file
  expect(0, "+  num_workers: 1",
         "brim bench automatic.yaml --batch-sizes 32 --num-workers 1 --precisions fp32 --steps 2 "
         "--repeats 1 --no-ceilings --no-price --output-dir kept --apply data.num_workers=1");
  expect(0, "precision: fp32", "cat kept/best.yaml");
  expect(0, "precision: auto", "cat automatic.yaml");
}

//---------------------------------- --verify ----------------------------------

static void test_verify(void **state) {
  (void)state;
  make_sweep(small, rising);
  shell_result r = shell(SWEEP "--resume --verify");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_non_null(strstr(r.out, "verified      predicted 8,000 samples/s, achieved "));
  assert_non_null(strstr(r.out, "epoch"));
  assert_true(strstr(r.out, "that were expected") || strstr(r.out, "too unsteady to predict"));
  // The advice compares with the user's config, not with the config of the verifying run.
  assert_non_null(strstr(r.out, "The effective batch goes from 16 to 64."));
  shell_free(&r);
  expect(0, "Verified in training</b> predicted 8,000 samples/s, achieved ",
         "grep -v color out/report.html");
  expect(0, "short epochs (", "grep -v color out/report.html");
  expect(0, "The effective batch goes from 16 to 64.", "grep -v color out/report.html");
  brim_result *results = read_all("out/results.jsonl", 5);
  assert_string_equal(results[4].kind, "verify");
  assert_true(results[4].samples_per_s > 0);
  assert_true(isnan(results[4].samples_per_s_low));
  assert_string_equal(brim_result_knob_find(&results[4], "batch_size")->value, "64");
  assert_string_equal(brim_result_knob_find(&results[4], "num_workers")->value, "1");
  assert_non_null(results[4].config);
  free_all(results, 5);
  expect(1, NULL, "ls out | grep verify");  // the folder of the training is gone
  expect(1, NULL, "ls out | grep safetensors");
  r = shell(SWEEP "--resume --verify --json");
  assert_int_equal(r.code, 0);
  assert_non_null(strstr(r.out, "\"event\":\"verify\""));
  assert_non_null(strstr(r.out, "\"predicted_samples_per_s\":8000"));
  assert_non_null(strstr(r.out, "\"partial\":false"));
  shell_free(&r);
}

// An epoch that takes longer than allowed is measured in part, and the report mentions it.
static void test_verify_in_part(void **state) {
  (void)state;
  static const char slow[] =
      "model: mlp(depth=3, hidden=64)\ndataset: synthetic(samples=500000)\n"
      "data:\n  batch_size: 64\n";
  make_sweep(slow, rising);
  shell_result r;
  if (test_is_sampled(0, 4)) {  // skipped in most runs, because it takes another second
    r = shell(SWEEP "--resume --verify --verify-seconds 1 --json");
    if (r.code) fail_msg("exit %d: %s", r.code, r.err);
    assert_non_null(strstr(r.out, "\"partial\":true"));
    assert_non_null(strstr(r.out, "\"epochs\":0"));
    shell_free(&r);
  }
  says_lines(0, "--verify-seconds", SWEEP "--resume --verify --verify-seconds 1");
  expect(0, "steps): --verify-seconds ended it after 1 s", "grep verified out/report.html");
  says(2, SWEEP "--verify --verify-seconds 0");
  // Ctrl-C removes the verifying run, and no message promises to continue from it.
  r = shell(
      BRIM_BINARY
      " bench small.yaml --device ref --batch-sizes 16 64 --num-workers 0 1 --precisions fp32 "
      "--steps 2 --repeats 1 --output-dir out data.batch_size=16 data.num_workers=0 "
      "training.use_amp=false --resume --verify & pid=$!; "
      "until ls out | grep -q verify; do sleep 0.01; done; kill -TERM $pid; wait $pid");
  if (r.code != 130) fail_msg("exit %d: %s", r.code, r.err);
  assert_non_null(strstr(r.err, "interrupted while verifying"));
  assert_non_null(strstr(r.out, "Recommended for training"));  // the part that is done
  assert_null(strstr(r.out, "verified "));
  shell_free(&r);
  free_all(read_all("out/results.jsonl", 4), 4);
  expect(1, NULL, "grep 'Verified in training' out/report.html");
  expect(1, NULL, "ls out | grep verify");
}

//---------------------------------- --all, --benchmark-batch ----------------------------------

static void test_axes(void **state) {
  (void)state;
  write_file("small.yaml",
             "model: mlp(depth=2, hidden=16)\ndataset: synthetic(samples=4096)\n"
             "benchmark:\n  num_workers_options: [0, 1]\n  prefetch_options: [2, 3]\n");
  shell_result r = shell("brim bench small.yaml --device ref --benchmark-batch --plan");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  said_lines(&r, "batch_size");
  shell_free(&r);
  says_lines(0, "batch_size",
             "brim bench small.yaml --device ref --benchmark_batch --batch-sizes 8 16 --plan");
  says(2, "brim bench small.yaml --device ref --benchmark-batch --all --plan");
  says(2, "brim bench small.yaml --device ref --benchmark-batch --num-workers 2 --plan");
  r = shell("brim bench small.yaml --device ref --all --plan --precisions fp32");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  static const char *const axes[] = {"precision fp32,",  "cache none ram",
                                     "prefetch 2 3",     "accumulation 1 4",
                                     "num_workers 0 1,", "batch_size 64 512 4096"};
  for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
    if (!strstr(r.err, axes[i])) fail_msg("no '%s' in: %s", axes[i], r.err);
  }
  assert_null(strstr(r.err, "pin_memory"));  // no effect on a CPU
  assert_null(strstr(r.err, "compile"));     // no effect either
  shell_free(&r);
  // A model with blocks to recompute has one more axis.
  write_file("deep.yaml",
             "model: transformer(depth=2, hidden=16, heads=2, patch=4)\n"
             "dataset: synthetic(shape=(64, 2), samples=256, dtype=f32)\n");
  expect(0, "checkpointing false true",
         "brim bench deep.yaml --device ref --all --plan --precisions fp32 --batch-sizes 8");
}

// Threads are a knob on the CPU: 1 and all by default, a list from the config, or the number the config sets.
static void test_threads(void **state) {
  (void)state;
  write_file("small.yaml",
             "model: mlp(depth=2, hidden=16)\ndataset: synthetic(samples=256, shape=(8,))\n"
             "benchmark:\n  batch_sizes: [64]\n  num_workers_options: [0]\n"
             "  precisions: [fp32]\n  threads_options: [1, 2]\n");
  remove_all("out");
  shell_result r = shell(
      "brim bench small.yaml --device cpu --steps 2 --repeats 1 --no-ceilings "
      "--no-price threads=2 data.batch_size=64 data.num_workers=0 --output-dir out");
  if (r.code == 2 && strstr(r.err, "cpu")) {
    shell_free(&r);
    BRIM_SKIP("no cpu plug-in");
  }
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_non_null(strstr(r.err, "threads 1 2"));
  shell_free(&r);
  brim_result *results = read_all("out/results.jsonl", 2);
  int seen = 0;
  for (int i = 0; i < 2; i++) {
    const brim_result_knob *knob = brim_result_knob_find(&results[i], "threads");
    assert_non_null(knob);
    assert_int_equal(atoi(knob->value), results[i].threads);  // the setting ran with its own number
    seen |= 1 << results[i].threads;
  }
  assert_int_equal(seen, 1 << 1 | 1 << 2);
  free_all(results, 2);
  // Records of both numbers are reused, whatever number this device was opened with.
  says_lines(0, "out/results.jsonl",
             "brim bench small.yaml --device cpu --steps 2 --repeats 1 --no-ceilings --no-price "
             "threads=2 data.batch_size=64 data.num_workers=0 --output-dir out --resume");
  // A number that the user set is not swept.
  write_file(
      "one.yaml",
      "model: mlp(depth=2, hidden=16)\ndataset: synthetic(samples=256, shape=(8,))\nthreads: 1\n");
  r = shell("brim bench one.yaml --device cpu --plan --batch-sizes 64 --num-workers 0");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_null(strstr(r.err, "threads 1"));
  shell_free(&r);
  // Policies have the knob as well. Environments step with the same number of threads.
  static const char *const policies[] = {"ars", "mappo"};
  for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
    char command[512];
    snprintf(command, sizeof command,
             "brim bench %s env=cartpole --device cpu --steps 1 --repeats 1 --no-ceilings "
             "--no-price threads=2 benchmark.threads_options='[1,2]' --num-envs 4 "
             "%s.num_envs=4 %s --output-dir out",
             policies[p], policies[p],
             p == 0 ? "ars.num_dirs=2 ars.dir_chunk=2" : "mappo.rollout_steps=8");
    remove_all("out");
    r = shell("%s", command);
    if (r.code) fail_msg("%s: exit %d: %s", policies[p], r.code, r.err);
    shell_free(&r);
    results = read_all("out/results.jsonl", 2);
    seen = 0;
    for (int i = 0; i < 2; i++) {
      assert_true(brim_result_knob_number(&results[i], "threads", 0) == results[i].threads);
      assert_true(brim_result_knob_number(&results[i], "num_workers", -1) == -1);
      seen |= 1 << results[i].threads;
    }
    assert_int_equal(seen, 1 << 1 | 1 << 2);
    free_all(results, 2);
  }
}

//---------------------------------- --min-steps ----------------------------------

static void expect_steps(const char *command, int steps) {
  remove_all("out");
  expect(0, "BENCHMARK SUMMARY", command);
  brim_result *results = read_all("out/results.jsonl", 1);
  assert_int_equal(results[0].steps, steps);
  free_all(results, 1);
}

// --min-steps raises the most steps, wherever each was given; its default does not.
static void test_min_steps(void **state) {
  (void)state;
#define ONE                                                                               \
  "brim bench small.yaml --device ref --batch-sizes 16 --num-workers 0 --precisions fp32" \
  " --no-ceilings --output-dir out data.batch_size=16 data.num_workers=0 "
  static const char config[] =
      "model: mlp(depth=2, hidden=16)\ndataset: synthetic(samples=256, shape=(8,))\n";
  write_file("small.yaml", config);
  expect_steps(ONE "--steps 3", 3);
  expect_steps(ONE "--steps 3 --min-steps 12", 12);
  expect_steps(ONE "--min-steps 14", 14);
  expect(2, "min_steps", ONE "--min-steps 0");
  char more[256];
  snprintf(more, sizeof more, "%sbenchmark: {steps_per_test: 4, min_steps: 7}\n", config);
  write_file("small.yaml", more);
  expect_steps(ONE, 7);
  expect_steps(ONE "--min-steps 4", 4);
#undef ONE
}

// One sample cannot show steadiness: the report mentions it, and the recommendation is provisional.
static void test_one_sample(void **state) {
  (void)state;
#define ONE                                                                                  \
  "brim bench small.yaml --device ref --batch-sizes 16 32 --num-workers 0 --precisions fp32" \
  " --no-ceilings --steps 1 --repeats 1 --output-dir out --verbose data.num_workers=0 "      \
  "training.use_amp=false "
  remove_all("out");
  write_file("small.yaml", small);
  shell_result r = shell(ONE);
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  static const char *const parts[] = {"one sample", "Recommended for training",
                                      "2 of 2 settings were measured by one sample"};
  for (size_t i = 0; i < 3; i++) {
    if (!strstr(r.out, parts[i])) fail_msg("no '%s' in: %s", parts[i], r.out);
  }
  assert_null(strstr(r.out, "unstable"));
  shell_free(&r);
  brim_result *results = read_all("out/results.jsonl", 2);
  for (size_t i = 0; i < 2; i++) {
    assert_true(brim_result_one_sample(&results[i]) && !results[i].stable);
    assert_true(isnan(results[i].total_ms.mad) && isnan(results[i].total_ms.ci_low));
  }
  free_all(results, 2);
  expect(0, "one sample</", "grep 'one sample' out/report.html");
  expect(0, "no interval: 2", "brim compare out out");
  expect(0, "applied", ONE "--apply");
#undef ONE
}

//---------------------------------- configs ----------------------------------

// The guide's commands unchanged, with the configs that come with brim.
static void test_configs(void **state) {
  (void)state;
  remove_all("out runs mine.yaml");
  expect(0, "hdf5",
         "brim data make signals.h5 --shape 516,2 --dtype f32 --targets 4 --samples 24 --force");
  shell_result r =
      shell("brim bench --config '" BRIM_SOURCE_DIR
            "/configs/checking_gpu_optimization.yaml' "
            "--data-path signals.h5 --batch-sizes 2 4 --num-workers 0 1 --steps 2 --device ref "
            "--repeats 1 --no-price --output-dir out data.batch_size=2 data.num_workers=0");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  assert_non_null(
      strstr(r.err, "8 settings: precision fp32 bf16, num_workers 0 1, batch_size 2 4"));
  assert_null(strstr(r.err, "has no effect"));
  shell_free(&r);
  free_all(read_all("out/results.jsonl", 8), 8);
  // as many settings as the config lists and the data can fill
  r = shell("brim bench '" BRIM_SOURCE_DIR
            "/configs/signal-small.yaml' --data-path signals.h5 --device ref --plan");
  assert_int_equal(r.code, 0);
  said_lines(&r, "num_workers");
  shell_free(&r);
  // the demo starts where a new user starts: its gain is above one
  r = shell("brim bench '" BRIM_SOURCE_DIR
            "/configs/demo.yaml' --data-path signals.h5 --device ref --plan --json");
  assert_int_equal(r.code, 0);
  // the config's own setting is among the four: none is added
  assert_non_null(strstr(r.out, "\"grid\":4"));
  shell_free(&r);
  expect(0, "batch_size: 8", "brim config show '" BRIM_SOURCE_DIR "/configs/demo.yaml'");
  expect(0, "use_amp: false", "brim config show '" BRIM_SOURCE_DIR "/configs/demo.yaml'");
  expect(0, "num_workers: 0", "brim config show '" BRIM_SOURCE_DIR "/configs/demo.yaml'");
  says_rows(0, "done: ",
            "brim train --config '" BRIM_SOURCE_DIR
            "/configs/default.yaml' --data-path signals.h5 "
            "--epochs 1 --max-steps 1 --device ref --batch-size 4 --output-dir runs/default");
}

static int begin(void **state) {
  (void)state;
  quiet_machine("ref");
  return 0;
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_resume_takes_over),
      cmocka_unit_test(test_resume_lacks_new_keys),
      cmocka_unit_test(test_resume_leaves_out),
      cmocka_unit_test(test_resume_doubts),
      cmocka_unit_test(test_own_setting_beside_the_named),
      cmocka_unit_test(test_resume_changes_nothing),
      cmocka_unit_test(test_a_budget_ends_a_sweep),
      cmocka_unit_test(test_a_card_that_is_not_here),
      cmocka_unit_test(test_resume_of_nothing),
      cmocka_unit_test(test_resume_interrupted),
      cmocka_unit_test(test_interrupted_advice),
      cmocka_unit_test(test_no_setting_ran),
      cmocka_unit_test(test_apply),
      cmocka_unit_test(test_apply_learning_rate),
      cmocka_unit_test(test_best_learning_rate),
      cmocka_unit_test(test_apply_elsewhere),
      cmocka_unit_test(test_apply_refused),
      cmocka_unit_test(test_apply_of_noisy_results),
      cmocka_unit_test(test_apply_keeps_automatic_values),
      cmocka_unit_test(test_learning_is_kept),
      cmocka_unit_test(test_verify),
      cmocka_unit_test(test_verify_in_part),
      cmocka_unit_test(test_axes),
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_min_steps),
      cmocka_unit_test(test_one_sample),
      cmocka_unit_test(test_configs),
  };
  return cmocka_run_group_tests(tests, begin, NULL);
}
