// Automatic choices as a user sees them: what init and info make of small, odd and partly unused
// data, and that what was chosen trains, evaluates and predicts.
#include "cli_test.h"

// A folder of small images: tiny/0 and tiny/1 with `each` files.
static void make_images(const char *name, int each) {
  shell_result r = shell(
      "rm -rf %s made && brim data make made --shape 12,12,3 --format folder --samples 40 "
      "--classes 2 --test-samples 0 -q && mkdir -p %s && for c in 0 1; do mkdir -p %s/$c; "
      "ls made/train/$c | head -n %d | while read f; do cp made/train/$c/$f %s/$c/; done; done",
      name, name, name, each, name);
  if (r.code != 0) fail_msg("%s%s", r.out, r.err);
  shell_free(&r);
}

static void test_tiny_sets_train(void **state) {
  (void)state;
  for (int each = 1; each <= 6; each++) {
    make_images("tiny", each);
    expect(0, "wrote tiny.yaml", "rm -f tiny.yaml && brim init tiny --device cpu");
    expect(0, "done:",
           "rm -rf run_tiny && brim train tiny.yaml --epochs 1 --device cpu --output-dir run_tiny");
  }
  expect(0, "too few samples to hold out some for validation",
         "rm -rf two && mkdir two && cp -r tiny/0 tiny/1 two/ && for c in 0 1; do "
         "cd two/$c && ls | tail -n +2 | xargs rm && cd ../..; done; brim init two --force "
         "&& cat two.yaml");
  expect(2, "1 sample; training needs at least 2",
         "rm -rf lone && mkdir -p lone && cp -r two/0 lone/ && brim init lone --force");
}

static void test_unused_is_named(void **state) {
  (void)state;
  make_images("left", 6);
  expect(0, NULL, "echo x > left/0/notes.txt && cp left/0/*.png left/ && ls left/*.png > list");
  expect(0, "not used: 0/notes.txt, ", "brim data info left");
  expect(0, "not used: 0/notes.txt, ", "brim init left --force");
  shell_result r = shell("brim data info left --json | head -n 1");
  assert_int_equal(r.code, 0);
  assert_non_null(strstr(r.out, "\"unused_count\":7"));
  shell_free(&r);
  r = shell("rm -f left/0/notes.txt left/*.png; brim data info left; brim init left --force");
  assert_int_equal(r.code, 0);
  assert_null(strstr(r.out, "not used"));
  shell_free(&r);
}

// A class name that is not UTF-8 trains, evaluates and predicts under one name.
static void test_class_names_of_any_bytes(void **state) {
  (void)state;
  make_images("latin", 6);
  expect(0, NULL, "mv latin/0 \"latin/$(printf 'caf\\351')\" && mv latin/1 latin/tea");
  expect(0, NULL,
         "rm -rf run_latin latin.csv; brim init latin --force --device cpu && brim train "
         "latin.yaml --epochs 1 --device cpu "
         "--output-dir run_latin -q");
  expect(0, "caf\\xE9", "brim eval run_latin/model.safetensors --device cpu");
  expect(0, "\"caf\\\\xE9\"", "brim eval run_latin/model.safetensors --device cpu --json");
  expect(0, "caf\\xE9",
         "brim predict --force run_latin/model.safetensors --device cpu --data-path latin -o "
         "latin.csv "
         "&& cat latin.csv");
}

// data.limit: the header counts what is trained on, and every class has its share.
static void test_limit(void **state) {
  (void)state;
  make_images("some", 20);
  expect(0, NULL, "rm -rf run_some run_drop run_drop2; brim init some --force --device cpu");
  expect(0, "data       12 samples to train on",
         "brim train some.yaml --epochs 1 --device cpu --output-dir run_some "
         "data.limit=12 data.batch_size=4 data.val_fraction=0");
  // data.drop_last leaves out others in every epoch: all of them are trained on
  expect(0, "data       12 samples to train on, 10 per epoch (drop_last)",
         "brim train some.yaml --epochs 1 --device cpu --output-dir run_drop "
         "data.limit=12 data.batch_size=5 data.val_fraction=0 data.drop_last=true");
  expect(0, "12 samples to train on, 10 per epoch (drop_last), 9 to evaluate on",
         "brim train some.yaml --epochs 1 --device cpu --output-dir run_drop2 "
         "data.limit=12 data.batch_size=5 data.val_fraction=0.25 data.drop_last=true");
}

// The configs of the benchmark guide take signals of any length: patch=auto.
static void test_any_signal_length(void **state) {
  (void)state;
  static const int lengths[] = {5160, 1000, 997, 31, 1};
  static const char *const configs[] = {"default", "checking_gpu_optimization", "signal-small"};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    for (size_t c = 0; c < 3; c++) {
      char line[512];
      snprintf(line, sizeof line,
               "rm -rf run_signal && brim train '" BRIM_SOURCE_DIR
               "/configs/%s.yaml' --device cpu --output-dir run_signal --max-steps 1 "
               "data.batch_size=4 data.num_workers=0 'dataset=synthetic(shape=(%d, 2), classes=0, "
               "targets=4, samples=8, val_samples=4, dtype=f32)' -q",
               configs[c], lengths[i]);
      expect(0, NULL, line);
    }
  }
  expect(2, "'patch'", "brim train '" BRIM_SOURCE_DIR "/configs/default.yaml' model.patch=some");
}

// The figures of the header multiply: a short last micro-batch is one of its own.
static void test_batch_figures(void **state) {
  (void)state;
  static const struct {
    int samples, batch, accumulation;
    const char *text;
  } cases[] = {{246, 128, 4, "batch      128 x 1 + 118 accumulated = 246, fp32"},
               {246, 100, 4, "batch      100 x 2 + 46 accumulated = 246, fp32"},
               {256, 128, 4, "batch      128 x 2 accumulated = 256, fp32"},
               {300, 128, 2, "batch      128 x 2 accumulated = 256, fp32"},
               {100, 128, 1, "batch      128 rows for 100 samples, fp32"},
               {100, 128, 4, "batch      128 rows for 100 samples, fp32"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char line[512];
    snprintf(line, sizeof line,
             "rm -rf run_batch && brim train 'dataset=synthetic(shape=(4,), samples=%d, "
             "val_samples=4)' 'model=mlp(depth=1, hidden=4)' --device cpu --max-steps 1 "
             "--output-dir run_batch data.batch_size=%d "
             "training.gradient_accumulation_steps=%d training.precision=fp32",
             cases[i].samples, cases[i].batch, cases[i].accumulation);
    expect(0, cases[i].text, line);
  }
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tiny_sets_train),          cmocka_unit_test(test_unused_is_named),
      cmocka_unit_test(test_class_names_of_any_bytes), cmocka_unit_test(test_limit),
      cmocka_unit_test(test_any_signal_length),        cmocka_unit_test(test_batch_figures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
