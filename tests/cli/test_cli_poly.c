// A workload that exists only in the tests (tests/workload/poly), through the whole program: it trains, logs, resumes
// bit for bit, is evaluated, swept, recommended, compared and reported, in English and in Korean. No source of brim has
// its name, its metric or its knobs.
#include <stdlib.h>

#include "cli_test.h"
#include "same_file.h"

#define POLY "'" BRIM_BUILD_DIR "/tests/brim_poly' "

static const char yaml[] =
    "workload: poly\n"
    "poly: {iterations: 20, interval: 5, fit_points: 64, fit_slice: 16, rate: 0.3}\n"
    "log: {interval: 4, tensorboard: true}\n"
    "backend: ref\n"
    "seed: 3\n";

static char *slurp(const char *path) {
  char *text = NULL;
  size_t size;
  assert_ok(brim_fs_read(path, 0, &text, &size));
  return text;
}

static void file_has(const char *path, const char *part) {
  char *text = slurp(path);
  if (!strstr(text, part)) fail_msg("%s has no '%s':\n%s", path, part, text);
  brim_free(text);
}

// True if the bytes of a run's event file, whatever its name, contain this tag.
static void has_tag(const char *folder, const char *tag) {
  shell_result r = shell("cat %s/events.out.tfevents.* | grep -c -a -F '%s'", folder, tag);
  if (r.code != 0) fail_msg("%s has no tag %s", folder, tag);
  shell_free(&r);
}

static void test_train(void **state) {
  (void)state;
  shell_result r = shell("rm -rf whole; " POLY "train poly.yaml --output-dir whole");
  assert_int_equal(r.code, 0);
  static const char *const parts[] = {"polynomial of degree 3",
                                      "curve      20 steps of 64 points",
                                      "step 4  misfit ",
                                      "points/s",
                                      "epoch 4/4  misfit ",
                                      "  held-out misfit ",
                                      ", farthest ",
                                      "best ",
                                      "whole/best.safetensors"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    if (!strstr(r.out, parts[i])) fail_msg("no '%s' in\n%s", parts[i], r.out);
  }
  assert_null(strstr(r.out, "loss"));
  assert_null(strstr(r.out, "acc"));
  shell_free(&r);
  file_has("whole/log.csv",
           "epoch,step,lr,train_misfit,eval_misfit,eval_farthest,seconds,samples_per_s\n");
  file_has("whole/log.jsonl", "{\"event\":\"steps\",\"epoch\":1,\"step\":4,\"lr\":0.3,\"misfit\":");
  file_has("whole/log.jsonl", "\"slope\":");
  file_has("whole/log.jsonl", "\"eval_farthest\":");
  has_tag("whole", "train_misfit");
  has_tag("whole", "eval_misfit");
  has_tag("whole", "eval_farthest");
  has_tag("whole", "slope");
}

static void test_events(void **state) {
  (void)state;
  shell_result r = shell("rm -rf events; " POLY "train poly.yaml --output-dir events --json");
  assert_int_equal(r.code, 0);
  assert_true(json_lines(r.out) > 8);
  assert_non_null(strstr(r.out, "\"event\":\"epoch\""));
  assert_non_null(strstr(r.out, "\"eval_misfit\":"));
  assert_non_null(strstr(r.out, "\"best_misfit\":"));
  assert_null(strstr(r.out, "accuracy"));
  shell_free(&r);
}

static void test_resume(void **state) {
  (void)state;
  expect(0, NULL, "rm -rf one; " POLY "train poly.yaml --output-dir one --quiet");
  static const int cuts[] = {1, 5, 7, 13, 19};
  for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
    shell_result r =
        shell("rm -rf cut; " POLY "train poly.yaml --output-dir cut --max-steps %d --quiet && " POLY
              "train poly.yaml --output-dir cut --resume --quiet",
              cuts[i]);
    if (r.code != 0) fail_msg("after %d steps: %s", cuts[i], r.err);
    shell_free(&r);
    assert_same_file("one/last.safetensors", "cut/last.safetensors");
    assert_same_file("one/best.safetensors", "cut/best.safetensors");
    assert_same_file("one/model.safetensors", "cut/model.safetensors");
  }
  says_lines(0, "--max-steps", POLY "train poly.yaml --output-dir cut --resume");
  // another value of one of its keys is reported
  says_lines(0, "poly.rate",
             POLY "train poly.yaml --output-dir cut --resume poly.rate=0.1 poly.iterations=25");
  // the keys of a sweep do not count for a run
  shell_result again = shell(POLY
                             "train poly.yaml --output-dir cut --resume poly.rate=0.1 "
                             "poly.iterations=30 'poly.fit_slice_options=[4]'");
  assert_int_equal(again.code, 0);
  assert_null(strstr(again.err, "fit_slice_options"));
  shell_free(&again);
}

static void test_best(void **state) {
  (void)state;
  says_rows(0, "checkpoint.best",
            "rm -rf best; " POLY "train poly.yaml --output-dir best checkpoint.best=accuracy");
  says(2, POLY "train poly.yaml --output-dir none checkpoint.best=nonsense");
  // lower is better: on a curve that rises the first evaluation is the best, and patience ends the run
  says_rows(0, "  stopped  ",
            "rm -rf worse; " POLY
            "train poly.yaml --output-dir worse poly.rate=1.1 "
            "poly.fit_points=512 training.early_stopping_patience=2");
  file_has("worse/log.jsonl", "\"event\":\"early_stop\"");
  file_has("worse/log.jsonl", "\"best_epoch\":1");
}

static void test_diagnosis(void **state) {
  (void)state;
  shell_result r = shell("rm -rf rose; " POLY
                         "train poly.yaml --output-dir rose poly.rate=1.1 poly.fit_points=512");
  assert_int_equal(r.code, 0);
  said_rows(&r, "poly.rate");
  said_rows(&r, "  warning  ");
  said_rows(&r, "  advice  ");
  shell_free(&r);
  file_has("rose/log.jsonl", "\"kind\":\"misfit_rose\",\"count\":1,\"value\":");
  says_rows(0, "  경고  ",
            "rm -rf rose; " POLY
            "--lang ko train poly.yaml --output-dir rose poly.rate=1.1 poly.fit_points=512");
  // not finite: the run is lost, and no checkpoint of it replaces a good one
  says_lines(1, "brim: error: ",
             "rm -rf lost; " POLY
             "train poly.yaml --output-dir lost poly.rate=90 poly.iterations=400");
}

// A workload without texts of its own gets brim's. They mention no batches, because this workload has none.
static void test_bare(void **state) {
  (void)state;
  shell_result r = shell("rm -rf bare; " POLY "train poly.yaml workload=bare --output-dir bare");
  assert_int_equal(r.code, 0);
  said_rows(&r, "  data  ");
  assert_null(strstr(r.out, "batch"));
  shell_free(&r);
}

static void test_evaluate(void **state) {
  (void)state;
  expect(0, NULL, "rm -rf evaluated; " POLY "train poly.yaml --output-dir evaluated --quiet");
  expect(0, "misfit ", POLY "eval evaluated/best.safetensors");
  expect(0, "farthest ", POLY "eval evaluated/best.safetensors");
  expect(0, "the curve stays within half a unit of every point",
         "rm -rf fitted; " POLY
         "train poly.yaml --output-dir fitted --quiet poly.iterations=400 && " POLY
         "eval fitted/best.safetensors");
  expect(0, "\"misfit\":", POLY "eval evaluated/best.safetensors --json");
  expect(0, NULL, POLY "eval evaluated/best.safetensors --output figures.csv");
  file_has("figures.csv", "farthest,");
  says_rows(0, "  어긋남  ", POLY "--lang ko eval evaluated/best.safetensors");
  // this workload has no data: options about data are refused
  says(2, POLY "eval evaluated/best.safetensors --batch-size 4");
  // as are options of other workloads
  says(2, POLY "eval evaluated/best.safetensors --episodes 4");
  // reports contain only facts of this workload: no counts it lacks, no commands that refuse it
  shell_result r = shell(POLY "eval evaluated/best.safetensors");
  said_rows(&r, "  model  ");
  shell_free(&r);
  says(2, POLY "export evaluated/best.safetensors");
  says(2, POLY "predict evaluated/best.safetensors");
}

static void test_bench(void **state) {
  (void)state;
  shell_result r = shell("rm -rf swept; " POLY
                         "bench poly.yaml --output-dir swept "
                         "benchmark.repeats=1 --steps 3");
  assert_int_equal(r.code, 0);
  static const char *const parts[] = {"fit_points 256 2048",
                                      "the config's own setting",
                                      " points/s",
                                      "swept/report.html",
                                      "Points/s",
                                      "Points of a step"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    if (strstr(r.out, parts[i]) || strstr(r.err, parts[i])) continue;
    fail_msg("no '%s' in\n%s%s", parts[i], r.out, r.err);
  }
  shell_free(&r);
  file_has("swept/results.jsonl", "\"unit\":\"points\"");
  file_has("swept/report.html", "fit_points");
  file_has("swept/best.yaml", "fit_slice:");
  // values that the command names are swept, and may be recommended
  expect(0, "fit_points 32 512",
         "rm -rf named; " POLY
         "bench poly.yaml --output-dir named benchmark.repeats=1 --steps 3 "
         "'poly.fit_points_options=[32, 512]' 'poly.fit_slice_options=[16]'");
  expect(0, "settings only in A", POLY "compare swept/results.jsonl named/results.jsonl");
  expect(0, "  A points/s ", POLY "compare swept/results.jsonl named/results.jsonl");
  // the lists of a sweep are no difference between two configs
  r = shell(POLY "compare swept/results.jsonl named/results.jsonl");
  assert_null(strstr(r.out, "differ in more than speed"));
  shell_free(&r);
  expect(0, "parameters 32 B", POLY "bench poly.yaml --plan --output-dir planned");
  // one point a step is far slower, so that even a loaded machine recommends the other
  expect(0, NULL,
         "sed 's/fit_points: 64/fit_points: 1/' poly.yaml >applied.yaml; " POLY
         "bench applied.yaml --output-dir swept2 --apply "
         "benchmark.repeats=1 --steps 3 'poly.fit_points_options=[512]'");
  file_has("applied.yaml", "512");
}

// The size of a slice changes no bit, and sizes of all points and more are one setting.
static void test_knobs(void **state) {
  (void)state;
  expect(0, NULL, "rm -rf s1 s2; " POLY "train poly.yaml --output-dir s1 --quiet poly.fit_slice=5");
  expect(0, NULL, POLY "train poly.yaml --output-dir s2 --quiet poly.fit_slice=64");
  // four coefficients end the file
  expect(0, NULL,
         "for d in s1 s2; do tail -c 32 $d/model.safetensors >$d/values; done; "
         "cmp s1/values s2/values");
  // 64 points in slices of 64 and of 100 are the same step: measured once
  says_lines(0, "fit_points",
             "rm -rf once; " POLY
             "bench poly.yaml --output-dir once --plan "
             "poly.fit_slice=64 'poly.fit_points_options=[64]' 'poly.fit_slice_options=[64]'");
}

static void test_keys(void **state) {
  (void)state;
  says(0, POLY "config explain poly.degree");
  says(0, POLY "--lang ko config explain poly.degree");
  says(2, POLY "train poly.yaml workload=polly");
  expect(2, "poly.degree", POLY "train poly.yaml poly.degree=99");
  says(2, POLY "train poly.yaml poly.degre=2");
  // without the plug-in the workload is unknown
  expect(2, "poly", "brim train poly.yaml");
  expect(2, "poly", "brim config explain poly.degree");
}

// Help of a command has the workload's text behind its own.
static void test_help(void **state) {
  (void)state;
  expect(0, "A curve is compared with points of a grid.", POLY "eval --help");
  expect(0, "--degree N", POLY "eval --help");
  expect(0, "  # a curve\n  brim eval curve.safetensors --degree 3\n", POLY "eval --help");
  expect(0, "곡선을 격자의 점과 비교합니다.", POLY "--lang ko eval --help");
  expect(0, "brim eval curve.safetensors", POLY "help --man");
  expect(1, NULL, POLY "train --help | grep -e degree");
}

static void test_korean(void **state) {
  (void)state;
  shell_result r = shell("rm -rf ko; " POLY "--lang ko train poly.yaml --output-dir ko");
  assert_int_equal(r.code, 0);
  static const char *const parts[] = {"곡선       점 64개씩 20스텝", "검증 어긋남", "최대 거리",
                                      " 점/s"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    if (!strstr(r.out, parts[i])) fail_msg("no '%s' in\n%s", parts[i], r.out);
  }
  assert_null(strstr(r.out, "misfit"));
  shell_free(&r);
  file_has("ko/log.csv", "train_misfit");  // files for programs are not translated
  r = shell(POLY "--lang ko bench poly.yaml --output-dir ko2 benchmark.repeats=1 --steps 3");
  assert_int_equal(r.code, 0);
  assert_non_null(strstr(r.out, "적합 점"));
  shell_free(&r);
}

static int setup(void **state) {
  (void)state;
  write_file("poly.yaml", yaml);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_train),     cmocka_unit_test(test_events),
      cmocka_unit_test(test_resume),    cmocka_unit_test(test_best),
      cmocka_unit_test(test_diagnosis), cmocka_unit_test(test_evaluate),
      cmocka_unit_test(test_bench),     cmocka_unit_test(test_knobs),
      cmocka_unit_test(test_keys),      cmocka_unit_test(test_help),
      cmocka_unit_test(test_korean),    cmocka_unit_test(test_bare),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
