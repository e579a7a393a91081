// Allocations of commands fail in turn, in this process: the exit code means out of memory, nothing crashes, nothing
// stays allocated. The first ones all fail, of the others one in 150, drawn by the seed; with BRIM_TEST_FULL all of
// them if that does not take minutes.
#include <fcntl.h>
#include <unistd.h>

#include "cli/cli.h"
#include "record/record.h"
#include "test.h"

static const char *const train_words[] = {
    "brim",
    "train",
    "--device",
    "ref",
    "--threads",
    "1",
    "--max-steps",
    "2",
    "--output-dir",
    "alloc-run",
    "--num-workers",
    "1",
    "--batch-size",
    "16",
    "model=mlp(depth=1, hidden=8)",
    "dataset=synthetic(samples=64, val_samples=16, shape=(4, 4, 3))",
    "epochs=1"};

static const char *const bench_words[] = {
    "brim",
    "bench",
    "--device",
    "ref",
    "--steps",
    "2",
    "--output-dir",
    "alloc-run",
    "--num-workers",
    "0",
    "--batch-sizes",
    "16",
    "--precisions",
    "fp32",
    "--no-ceilings",
    "model=mlp(depth=1, hidden=8)",
    "dataset=synthetic(samples=64, val_samples=16, shape=(4, 4, 3))"};

static const char *const version_words[] = {"brim", "version", "--json"};
static const char *const config_words[] = {"brim", "config", "show", "model=mlp", "--origins"};
static const char *const help_words[] = {"brim", "help", "--man"};

static void clean(void) {
  char **names;
  size_t count;
  if (brim_fs_list("alloc-run", &names, &count)) return;
  for (size_t i = 0; i < count; i++) {
    char path[512];
    snprintf(path, sizeof path, "alloc-run/%s", names[i]);
    unlink(path);
  }
  brim_fs_list_free(names, count);
  rmdir("alloc-run");
}

// Output of the commands is discarded while they run.
static int run_quietly(int argc, const char *const *argv) {
  fflush(stdout);
  fflush(stderr);
  int out = dup(1), err = dup(2), null = open("/dev/null", O_WRONLY);
  dup2(null, 1);
  dup2(null, 2);
  int code = brim_cli_main(argc, argv);
  fflush(stdout);
  fflush(stderr);
  dup2(out, 1);
  dup2(err, 2);
  close(out);
  close(err);
  close(null);
  return code;
}

// A command that reports success has written the same files as without a failure.
static void expect_whole(uint64_t n, const char *path, const char *want, size_t size) {
  char *have = NULL;
  size_t bytes;
  assert_ok(brim_fs_read(path, 0, &have, &bytes));
  if (bytes != size || memcmp(have, want, size) != 0) {
    fail_msg("allocation %llu: %s is not what it should be", (unsigned long long)n, path);
  }
  brim_free(have);
}

enum { SAMPLED_FROM = 60 };

// `prepare` restores the state before the first run.
// Allocations 1 to `every` are made to fail one by one, later ones are sampled. `written`: a file that the command
// writes identically each time, or NULL.
static void inject_into(void (*prepare)(void), uint64_t every, const char *written, int argc,
                        const char *const *argv) {
  brim_alloc_stats before, after;
  char *want = NULL;
  size_t size = 0;
  prepare();
  assert_int_equal(run_quietly(argc, argv), 0);
  if (written) assert_ok(brim_fs_read(written, 0, &want, &size));
  uint64_t absorbed = 0;
  if (!test_is_full() && every > SAMPLED_FROM) every = SAMPLED_FROM;
  for (uint64_t n = 1;; n++) {
    prepare();
    if (n > every && test_is_full()) n += n % 13 + 1;
    while (n > every && !test_is_sampled(n, 150)) n++;
    brim_alloc_get_stats(&before);
    uint64_t failures = brim_alloc_failures();
    brim_alloc_fail_nth(n, 0);
    int code = run_quietly(argc, argv);
    brim_alloc_fail_nth(0, 0);
    bool failed = brim_alloc_failures() > failures;
    brim_alloc_get_stats(&after);
    if (after.live_blocks[0] != before.live_blocks[0] ||
        after.live_blocks[1] != before.live_blocks[1]) {
      fail_msg("allocation %llu of %s: blocks were not freed", (unsigned long long)n, argv[1]);
    }
    if (!failed) {
      assert_int_equal(code, 0);
      printf("%s: up to %llu allocations, %llu failures went without harm\n", argv[1],
             (unsigned long long)(n - 1), (unsigned long long)absorbed);
      assert_true(n > 20);
      break;
    }
    // A progress line that could not be drawn does not stop the command; any other failure exits with 4.
    if (code == 0) absorbed++;
    if (code == 0 && written) expect_whole(n, written, want, size);
    if (code != 0 && code != 4) {
      fail_msg("allocation %llu of %s: exit %d", (unsigned long long)n, argv[1], code);
    }
  }
  brim_free(want);
  clean();
}

static void inject_from(void (*prepare)(void), uint64_t every, int argc, const char *const *argv) {
  inject_into(prepare, every, NULL, argc, argv);
}

static void inject(int argc, const char *const *argv) {
  inject_from(clean, UINT64_MAX, argc, argv);
}

#define WORDS(words) (int)(sizeof(words) / sizeof(words)[0]), words

static void test_train(void **state) {
  (void)state;
  inject(WORDS(train_words));
}
static void test_bench(void **state) {
  (void)state;
  inject(WORDS(bench_words));
}
// A sweep with a record for every setting: it only reads them and applies the result.
static const char *const resume_words[] = {
    "brim",      "bench", "alloc.yaml",   "--device",  "ref",           "--steps",  "2",
    "--repeats", "1",     "--output-dir", "alloc-run", "--num-workers", "0",        "--batch-sizes",
    "8",         "16",    "--precisions", "fp32",      "--no-ceilings", "--resume", "--apply"};

static void put_sweep(void) {
  static const char config[] =
      "model: mlp(depth=1, hidden=8)\ndataset: synthetic(samples=64, shape=(4, 4, 3))\n"
      "precision: fp32\n"
      "data:\n  batch_size: 8\n  num_workers: 0\n";
  clean();
  assert_ok(brim_fs_write("alloc.yaml", config, sizeof config - 1));
  if (!brim_fs_exists("alloc-kept.jsonl")) return;
  assert_ok(brim_fs_mkdirs("alloc-run"));
  assert_ok(brim_fs_copy("alloc-kept.jsonl", "alloc-run/results.jsonl"));
}

static void test_resume(void **state) {
  (void)state;
  brim_result *results;
  size_t count;
  unlink("alloc-kept.jsonl");
  put_sweep();
  assert_int_equal(run_quietly(19, resume_words), 0);
  assert_ok(brim_results_read("alloc-run/results.jsonl", &results, &count, NULL));
  assert_int_equal(count, 2);
  for (size_t i = 0; i < count; i++) {
    results[i].stable = true;
    results[i].throttled = false;
    results[i].repeats = 3;
  }
  assert_ok(brim_results_write("alloc-kept.jsonl", results, count));
  for (size_t i = 0; i < count; i++) brim_result_deinit(&results[i]);
  brim_free(results);
  inject_from(put_sweep, 200, WORDS(resume_words));
  const char *const compare[] = {"brim", "compare", "alloc-kept.jsonl", "alloc-kept.jsonl"};
  const char *const by[] = {"brim", "compare", "alloc-kept.jsonl", "--by", "batch_size", "--json"};
  inject_from(clean, 500, WORDS(compare));
  inject_from(clean, 500, WORDS(by));
}

static void nothing(void) {}

// Commands that use a trained network. The checkpoint is made once.
static void test_trained(void **state) {
  (void)state;
  const char *const words[] = {"brim",
                               "train",
                               "--device",
                               "ref",
                               "--max-steps",
                               "2",
                               "--batch-size",
                               "16",
                               "--output-dir",
                               "alloc-run",
                               "model=resnet18(width=1)",
                               "dataset=synthetic(samples=32, val_samples=20, shape=(8, 8, 3))",
                               "epochs=1"};
  const char *const checkpoint = "alloc-kept.safetensors";
  clean();
  assert_int_equal(run_quietly(WORDS(words)), 0);
  assert_ok(brim_fs_copy("alloc-run/last.safetensors", checkpoint));
  const char *const eval[] = {"brim",      "eval",   checkpoint, "--device",       "ref",
                              "--threads", "1",      "--output", "alloc-out.json", "--num-workers",
                              "1",         "--force"};
  const char *const csv[] = {"brim", "predict",  checkpoint,      "--device", "ref",    "--threads",
                             "1",    "--output", "alloc-out.csv", "--proba",  "--force"};
  const char *const hdf5[] = {"brim",         "predict",    checkpoint, "--device",
                              "ref",          "--threads",  "1",        "--output",
                              "alloc-out.h5", "--features", "--force"};
  const char *const onnx[] = {"brim",           "export", checkpoint, "--output",
                              "alloc-out.onnx", "--json", "--force"};
  inject_from(nothing, 400, WORDS(eval));
  inject_into(nothing, 400, "alloc-out.csv", WORDS(csv));
  inject_into(nothing, 400, "alloc-out.h5", WORDS(hdf5));
  inject_into(nothing, UINT64_MAX, "alloc-out.onnx", WORDS(onnx));
}

static void test_rest(void **state) {
  (void)state;
  inject(WORDS(version_words));
  inject(WORDS(config_words));
  inject(WORDS(help_words));
}

int main(void) {
  test_filter();
  // Only linked-in code: plug-ins have their own tests.
  setenv("BRIM_PLUGIN_PATH", "/nonexistent", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rest),  cmocka_unit_test(test_resume),  cmocka_unit_test(test_train),
      cmocka_unit_test(test_bench), cmocka_unit_test(test_trained),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
