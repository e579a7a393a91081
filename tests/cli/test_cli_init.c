// `brim init` over every kind of source: the config that it writes is valid, names the data, and trains unchanged: one
// kind in five, all with BRIM_TEST_FULL.
#include "cli_test.h"

typedef struct kind {
  const char *make;  // makes the data; PATH is init's argument
  const char *path, *dataset, *model, *more;
} kind;

static const kind kinds[] = {
    {"brim data make s.h5 --shape 120,2 --dtype f32 --targets 4 --samples 96 --test-samples 32",
     "s.h5", "dataset: hdf5", "model: transformer(", "loss: mse"},
    {"brim data make c.h5 --shape 120,2 --dtype f32 --classes 3 --samples 96", "c.h5",
     "dataset: hdf5", "model: transformer(", "loss: cross_entropy"},
    {"brim data make w.h5 --shape 100,40 --dtype f32 --classes 3 --samples 96", "w.h5",
     "dataset: hdf5", "model: transformer(", "loss: cross_entropy"},
    {"brim data make p.h5 --shape 257,2 --dtype f32 --classes 3 --samples 96", "p.h5",
     "train: center_crop(size=(256, 2))", "val: center_crop(size=(256, 2))",
     "Cuts signals to a length"},
    {"brim data make v.h5 --shape 20 --dtype f32 --classes 3 --samples 96 --test-samples 0", "v.h5",
     "dataset: hdf5", "model: mlp(", "val_fraction: 0.2"},
    {"brim data make r.h5 --shape 12 --dtype f32 --targets 2 --samples 96", "r.h5", "dataset: hdf5",
     "model: mlp(", "loss: mse"},
    {"brim data make i.h5 --shape 24,24,3 --samples 64", "i.h5", "dataset: hdf5", "model: resnet18",
     "random_crop(size=24, padding=3) | random_flip"},
    {"brim data make mnist --format idx --samples 64 --test-samples 32", "mnist", "dataset: idx",
     "model: resnet18", "train: random_crop(size=28, padding=3)\n"},
    {"brim data make one --format idx --samples 64 --test-samples 32",
     "one/train-images-idx3-ubyte", "dataset: idx", "model: resnet18", "random_crop(size=28"},
    {"brim data make cifar --shape 32,32,3 --format cifar --samples 64 --test-samples 32", "cifar",
     "dataset: cifar10", "model: resnet18", "random_flip"},
    {"brim data make stl --shape 96,96,3 --format stl10 --samples 40 --test-samples 20", "stl",
     "dataset: stl10", "model: resnet18", "val: resize(size=104) | center_crop(size=96)"},
    {"brim data make photos --shape 96,80,3 --format folder --samples 30 --classes 3 "
     "--test-samples 9",
     "photos", "dataset: folder", "model: resnet18", "random_resized_crop(size=64"},
    {"brim data make flat --shape 40,40,3 --format folder --samples 30 --classes 2 "
     "--test-samples 0 && mv flat/train/* flat/ && rmdir flat/train",
     "flat", "dataset: folder", "model: resnet18", "val_fraction"},
};

static char *read_text(const char *path) {
  char *text = NULL;
  size_t size;
  assert_ok(brim_fs_read(path, 0, &text, &size));
  return text;
}

static void test_kinds(void **state) {
  (void)state;
  expect(0, NULL, "rm -rf work && mkdir work");
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    const kind *k = &kinds[i];
    shell_result r = shell("cd work && %s && brim init %s --output k%zu.yaml", k->make, k->path, i);
    if (r.code != 0) fail_msg("%s\n%s%s", k->make, r.out, r.err);
    assert_non_null(strstr(r.out, "brim bench k"));
    assert_non_null(strstr(r.out, "brim train k"));
    assert_non_null(strstr(r.out, "brim sweep k"));
    shell_free(&r);
    char file[64];
    snprintf(file, sizeof file, "work/k%zu.yaml", i);
    char *text = read_text(file);
    const char *const parts[] = {k->dataset, k->model, k->more, "batch_size: ", "# "};
    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
      if (!strstr(text, parts[p])) fail_msg("%s: no '%s' in\n%s", k->path, parts[p], text);
    }
    brim_free(text);
    r = shell("cd work && brim config check k%zu.yaml", i);
    if (r.code != 0) fail_msg("%s is refused\n%s%s", file, r.out, r.err);
    assert_null(strstr(r.err, "no effect"));
    shell_free(&r);
    if (!test_is_sampled(i, 5)) continue;
    r = shell("cd work && brim train k%zu.yaml --epochs 1 --max-steps 2 --output-dir run%zu -q", i,
              i);
    if (r.code != 0) fail_msg("%s does not train\n%s%s", file, r.out, r.err);
    assert_string_equal(r.err, "");  // every written key is read
    shell_free(&r);
  }
}

// A comment beside each value that a sweep may change names that value, so that an edit removes the comment too.
static void test_comments(void **state) {
  (void)state;
  expect(0, NULL,
         "rm -rf notes && mkdir notes && cd notes && brim data make n.h5 --shape 12 --dtype f32 "
         "--samples 640 -q && brim init n.h5");
  char *text = read_text("notes/n.yaml");
  static const char *const keys[] = {"batch_size: ", "precision: "};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    const char *at = strstr(text, keys[i]);
    assert_non_null(at);
    char value[32], comment[256];
    at += strlen(keys[i]);
    if (sscanf(at, "%31[a-z0-9] # %255[^\n]", value, comment) != 2) fail_msg("no comment: %s", at);
    if (!strstr(comment, value)) fail_msg("'%s' does not name %s", comment, value);
  }
  brim_free(text);
}

// Images without labels, and of different sizes.
static void test_images(void **state) {
  (void)state;
  expect(
      0, NULL,
      "rm -rf mix && mkdir mix && cd mix && for s in 48,64,3 90,70,3; do "
      "brim data make p$s --shape $s --format folder --samples 12 --classes 2 --test-samples 0 "
      "-q; done && mkdir photos && for c in 0 1; do mkdir photos/$c && for s in 48,64,3 90,70,3; "
      "do for f in p$s/train/$c/*; do cp $f photos/$c/$s-$(basename $f); done; done; done");
  expect(0, "48 x 64 to 90 x 70, median 90 x 70, by area", "cd mix && brim data info photos");
  says_lines(0, "width=16", "cd mix && brim init photos && cat photos.yaml");
  expect(0, NULL, "cd mix && brim train photos.yaml --max-steps 1 --epochs 1 --output-dir r -q");
  says_lines(0, "backbone=resnet18",
             "cd mix && mkdir bare && cp photos/*/* bare && brim init bare && "
             "cat bare.yaml && brim config check bare.yaml");
  expect(0, NULL, "cd mix && brim train bare.yaml --max-steps 1 --epochs 1 --output-dir b -q");
}

// Advice for three cases: nothing can be evaluated, images are broken, and the command names data instead of a config.
// Runs after test_images.
static void test_advice(void **state) {
  (void)state;
  says_lines(0, "dataset.val",
             "cd mix && brim train bare.yaml --max-steps 1 --batch-size 4 --output-dir c1");
  says_lines(0, "data.val_fraction",
             "cd mix && brim train bare.yaml --max-steps 1 --batch-size 4 --output-dir c2 "
             "data.val_fraction=0.2");
  says(2,
       "cd mix && brim train bare.yaml --data-path photos --output-dir c3 "
       "data.val_fraction=0.2");
  says(2, "cd mix && brim train photos");
  says(2,
       "cd mix && brim data make here.h5 --shape 8 --dtype f32 --samples 64 -q --force && "
       "brim train here.h5");
  says(2, "cd mix && brim train --data-path photos 'model=mlp(depth=1)' --output-dir c4");
  says(2, "cd mix && brim train photos.yaml --data-path nowhere --output-dir c4");
  expect(2, "--dataset NAME (init",
         "cd mix && mkdir -p tiff/a && printf II > tiff/a/1.tiff && brim init tiff");
  says(2,
       "cd mix && cp -r photos torn && printf x > torn/0/zz.png && brim train photos.yaml "
       "--data-path torn --output-dir c5 data.val_fraction=0 precision=fp32 "
       "'dataset.val=folder(path=photos, split=train)'");
  assert_false(has_file("mix/c5/last.safetensors"));
  expect(0, NULL,
         "cd mix && brim train photos.yaml --data-path torn --output-dir c5 "
         "--max-steps 1 --batch-size 4 data.on_error=skip -q");
}

// The current folder with more than class folders in it; and the folder above the right one.
static void test_working_folder(void **state) {
  (void)state;
  expect(0, NULL,
         "rm -rf pets && brim data make pets --shape 24,24,3 --format folder --samples 30 "
         "--classes 3 --test-samples 0 -q && mv pets/train/* pets/ && rmdir pets/train && "
         "mkdir -p pets/runs/a pets/scripts pets/docs && touch pets/docs/notes.txt");
  says_lines(0, "width=16", "cd pets && brim init");
  expect(0, NULL,
         "cd pets && brim train pets.yaml --max-steps 2 --epochs 1 --output-dir "
         "runs/b -q && brim eval runs/b/last.safetensors");
  says_lines(0, "brim: warning: ", "brim init pets -o pets3.yaml --force");
  says_lines(0, "'pets'",
             "rm -rf up && mkdir -p up/notes && cp -r pets up/pets && rm -rf up/pets/runs && "
             "brim init up -o up.yaml --force");
  expect(0, "\"classes\":3", "cd pets && brim init --force --json");
}

// Splits with names other than train and test; and test images alone.
static void test_split_names(void **state) {
  (void)state;
  says_lines(0, "width=16",
             "rm -rf sn && mkdir sn && cd sn && brim data make p --shape 24,24,3 --format folder "
             "--samples 16 --classes 2 --test-samples 8 -q && mv p/train p/Training && "
             "mv p/test p/Testing && brim init p && ! grep -e split= -e val_fraction p.yaml");
  says(2, "cd sn && mv p/Training gone && brim init p --force");
  expect(0, "dataset: folder(split=test)",
         "cd sn && brim init p --dataset 'folder(split=test)' --force && cat p.yaml");
}

static void test_mistakes(void **state) {
  (void)state;
  expect(0, NULL, "rm -rf *.yaml odd_run");
  expect(0, NULL, "brim data make here.h5 --shape 8 --dtype f32 --samples 64 -q --force");
  expect(0, NULL, "rm -f here.yaml && brim init here.h5");
  says(2, "brim init here.h5");
  says_lines(0, "depth=3", "brim init here.h5 --force");
  expect(2, "nowhere", "brim init nowhere");
  says(2, "brim init a b");
  says(2, "mkdir -p sub && brim init here.h5 --output sub");
  expect(2, "targets", "brim init here.h5 --dataset 'hdf5(targets=none)' --output n.yaml");
  expect(3, "cuda", "BRIM_PLUGIN_PATH=/nonexistent brim init here.h5 --device cuda -o d.yaml");
  assert_false(has_file("n.yaml"));
  assert_false(has_file("d.yaml"));
  // A path that YAML would read as another type, and the current folder.
  expect(0, NULL,
         "rm -rf 'odd: #1' && mkdir 'odd: #1' && cp here.h5 'odd: #1/train.h5' && "
         "brim init 'odd: #1' -o odd.yaml && brim config check odd.yaml && "
         "brim train odd.yaml --max-steps 1 --output-dir odd_run -q");
  expect(0, "\"event\":\"init\"", "cd 'odd: #1' && brim init --json");
  // --lang ko writes Korean comments and the same config.
  expect(0, NULL,
         "brim init here.h5 -o en.yaml --force && "
         "brim --lang ko init here.h5 -o ko.yaml --force && "
         "brim config show en.yaml > en.txt && brim config show ko.yaml > ko.txt && "
         "cmp en.txt ko.txt");
}

// A length without a good divisor: train and bench warn of it, init cuts the length.
static void test_prime_length(void **state) {
  (void)state;
  expect(0, NULL,
         "brim data make prime.h5 --shape 257,2 --dtype f32 --classes 3 --samples 16 -q --force && "
         "brim data make even.h5 --shape 256,2 --dtype f32 --classes 3 --samples 16 -q --force");
#define SMALL "--device ref --plan 'model=transformer(depth=1, hidden=8)' data.batch_size=2 "
  says_lines(0, "brim: warning: ", "brim bench --data-path prime.h5 " SMALL);
  static const char *const fine[] = {
      "brim bench --data-path even.h5 " SMALL,
      "brim bench --data-path prime.h5 " SMALL "'transform=center_crop(size=(256, 2))'",
      "brim bench --data-path prime.h5 --device ref --plan data.batch_size=2 "
      "'model=transformer(depth=1, hidden=8, patch=257)'"};
  for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
    shell_result r = shell("%s", fine[i]);
    if (r.code) fail_msg("%s: %s", fine[i], r.err);
    assert_null(strstr(r.err, "tokens"));
    shell_free(&r);
  }
#undef SMALL
}

int main(void) {
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_prime_length), cmocka_unit_test(test_kinds),
      cmocka_unit_test(test_comments),     cmocka_unit_test(test_images),
      cmocka_unit_test(test_advice),       cmocka_unit_test(test_working_folder),
      cmocka_unit_test(test_split_names),  cmocka_unit_test(test_mistakes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
