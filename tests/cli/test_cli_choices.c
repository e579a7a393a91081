// Automatic choices as a user sees them: the configs and reports of init and info for small, odd and partly unused
// data. A config with these choices trains, evaluates and predicts.
#include "cli_test.h"

// Makes a folder of small images: tiny/0 and tiny/1 with `each` files.
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
    says_lines(0, "width=16", "rm -f tiny.yaml && brim init tiny --device cpu");
    says_rows(
        0, "done: ",
        "rm -rf run_tiny && brim train tiny.yaml --epochs 1 --device cpu --output-dir run_tiny");
  }
  says_lines(0, "val_fraction",
             "rm -rf two && mkdir two && cp -r tiny/0 tiny/1 two/ && for c in 0 1; do "
             "cd two/$c && ls | tail -n +2 | xargs rm && cd ../..; done; brim init two --force "
             "&& cat two.yaml");
  says(2, "rm -rf lone && mkdir -p lone && cp -r two/0 lone/ && brim init lone --force");
}

static void test_unused_is_named(void **state) {
  (void)state;
  make_images("left", 6);
  expect(0, NULL, "echo x > left/0/notes.txt && cp left/0/*.png left/ && ls left/*.png > list");
  says_lines(0, "0/notes.txt", "brim data info left");
  says_lines(0, "0/notes.txt", "brim init left --force");
  shell_result r = shell("brim data info left --json | head -n 1");
  assert_int_equal(r.code, 0);
  assert_non_null(strstr(r.out, "\"unused_count\":7"));
  shell_free(&r);
  r = shell("rm -f left/0/notes.txt left/*.png; brim data info left; brim init left --force");
  assert_int_equal(r.code, 0);
  assert_null(strstr(r.out, "not used"));
  shell_free(&r);
}

// A class name that is not UTF-8 is the same in train, eval and predict.
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

// data.limit: the header counts the samples used for training, and every class has its share.
static void test_limit(void **state) {
  (void)state;
  make_images("some", 20);
  expect(0, NULL, "rm -rf run_some run_drop run_drop2; brim init some --force --device cpu");
  says_rows(0, "  data  ",
            "brim train some.yaml --epochs 1 --device cpu --output-dir run_some "
            "data.limit=12 data.batch_size=4 data.val_fraction=0");
  // data.drop_last leaves out other samples in every epoch: all of them are used
  says_lines(0, "drop_last",
             "brim train some.yaml --epochs 1 --device cpu --output-dir run_drop "
             "data.limit=12 data.batch_size=5 data.val_fraction=0 data.drop_last=true");
  says_lines(0, "drop_last",
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

// The figures in the header multiply: a short last micro-batch is listed separately.
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
    says_rows(0, "  batch  ", line);
  }
}

// A file or a command line without a workload, as in the guides: its keys decide.
static void test_workload_by_content(void **state) {
  (void)state;
  expect(0, NULL,
         "printf 'data:\\n  batch_size: 96\\ngpu:\\n  gradient_accumulation: 5\\n' > "
         "stl10_config.yaml");
  expect(0, "workload: contrastive", "brim config show stl10_config.yaml data.path=x");
  expect(0, "batch_size: 96", "brim config show stl10_config.yaml");
  expect(0, "workload: supervised", "brim config show stl10_config.yaml workload=supervised");
  expect(0, "workload: supervised", "brim config show ./stl10_config.yaml model=resnet18");
  shell_result r = shell("brim config show stl10_config.yaml");
  said_lines(&r, "brim: warning: ");
  shell_free(&r);
  expect(0, "\"workload\":\"contrastive\"", "brim config check stl10_config.yaml --json");
  expect(0, NULL, "printf 'num_envs: [4, 8]\\ngamma: 0.5\\n' > few.yaml");
  expect(0, "\"workload\":\"mappo\"", "brim config check few.yaml --json");
  expect(0, "\"workload\":\"supervised\"", "brim config check few.yaml model=mlp --json");
  expect(0, "workload: mappo", "brim sweep few.yaml --dry-run --device ref --json");
  // a dict copied from Python
  expect(0, NULL,
         "printf '# a comment\\n\\nBASE_CONFIG = {\\n    \"episodes_per_batch\": 20,  # more\\n"
         "    '\"'batch_size'\"': 1024,\\n    \"use_amp\": True,\\n}\\n' > base.yaml");
  expect(0, "episodes_per_batch: 20", "brim config show base.yaml");
  expect(0, "workload: mappo", "brim config show base.yaml");
  expect(0, "use_amp: true", "brim config show base.yaml");
  expect(2, "base.yaml:5:", "sed -i 's/1024/many/' base.yaml && brim config show base.yaml");
  // options and phases of a workload
  expect(0, "num_envs: 64", "brim config show num_envs=64 num_dirs=16");
  expect(0, "workload: ars", "brim config show num_envs=64 num_dirs=16");
  expect(0, "workload: mappo", "brim config show num_envs=64 gamma=0.5");
  expect(0, "phase: phase2", "brim config show phase2");
  expect(0, "workload: ars", "brim config show phase1");
  says_rows(0, "  model  ",
            "rm -rf run_opt && brim train --num-envs 8 --num-dirs 4 --dir-chunk 16 --max-steps 1 "
            "--device cpu --output-dir run_opt env=cartpole ars.eval_episodes=2");
  expect(0, "\"workload\":\"ars\"", "brim bench --num-envs 8 --plan --device cpu --json");
  expect(0, "\"workload\":\"mappo\"",
         "brim bench --num-envs 8 --rollout-steps 4 --plan --device cpu --json");
  // a key of another workload
  r = shell(
      "rm -rf run_opt && brim train ars mappo.gamma=0.5 num_envs=8 num_dirs=4 env=cartpole "
      "ars.eval_episodes=2 --max-steps 1 --device cpu --output-dir run_opt");
  assert_int_equal(r.code, 0);
  said_lines(&r, "mappo.gamma");
  assert_null(strstr(strstr(r.err, "mappo.gamma") + 1, "mappo.gamma"));
  shell_free(&r);
  // a list of devices that are not here is a single failure
  r = shell(
      "CUDA_VISIBLE_DEVICES= brim train 'device=[6,7,8,9]' dataset=synthetic --output-dir no");
  assert_int_equal(r.code, 3);
  assert_non_null(strstr(r.err, "device names cuda:6, but this machine has "));
  assert_null(strstr(r.err, "rank"));
  shell_free(&r);
  // a set made as STL-10 has the split that contrastive training reads
  expect(0, "unlabeled 5",
         "rm -rf stl && brim data make stl --format stl10 --samples 5 --test-samples 2");
  says(2, "rm stl/unlabeled_X.bin; brim train contrastive --data-path stl --output-dir no");
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tiny_sets_train),          cmocka_unit_test(test_unused_is_named),
      cmocka_unit_test(test_class_names_of_any_bytes), cmocka_unit_test(test_limit),
      cmocka_unit_test(test_any_signal_length),        cmocka_unit_test(test_batch_figures),
      cmocka_unit_test(test_workload_by_content),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
