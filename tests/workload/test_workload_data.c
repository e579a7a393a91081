// Data of the supervised workload: the component that brim chooses for a path, a share kept for validation, HDF5 files
// and their dataset names, broken images, two views with ntxent, resuming, refusals.
#include <hdf5.h>
#include <math.h>
#include <png.h>

#include "same_file.h"
#include "workload/fixture.h"
#include "workload/learn/learn.h"

static const brim_learn *inside(const fixture *f) { return (const brim_learn *)f->work->state; }

static void steps(fixture *f, int n, brim_step_info *last) {
  for (int i = 0; i < n; i++) assert_ok(f->work->table->step(f->work->state, NULL, last));
}

static char logged[4096];
static int log_lines;

static void remember(void *ctx, brim_log_level level, const char *module, const char *text) {
  (void)ctx;
  (void)level;
  (void)module;
  log_lines++;
  size_t n = strlen(logged);
  snprintf(logged + n, sizeof logged - n, "%s\n", text);
}

static void listen(void) {
  logged[0] = 0;
  log_lines = 0;
  brim_log_set_sink(remember, NULL, BRIM_LOG_INFO);
}

static void hush(void) { brim_log_set_sink(NULL, NULL, BRIM_LOG_ERROR); }

//---------------------------------- files ----------------------------------

static void put_array(hid_t file, const char *name, int rank, const hsize_t *dim, hid_t type,
                      const void *data) {
  hid_t space = H5Screate_simple(rank, dim, NULL);
  hid_t set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(set >= 0);
  assert_true(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
  H5Dclose(set);
  H5Sclose(space);
}

enum { ROWS = 120, WIDTH = 12 };

// Writes signals x (ROWS, WIDTH) f32, their sums y (ROWS) f32, and classes by sign; names as given.
static void write_signals(const char *path, const char *x_name, const char *y_name, bool labels) {
  static float x[ROWS][WIDTH], y[ROWS][1];
  static int64_t label[ROWS];
  uint32_t r = 1;
  for (int i = 0; i < ROWS; i++) {
    y[i][0] = 0;
    for (int k = 0; k < WIDTH; k++) {
      r = r * 1664525u + 1013904223u;
      x[i][k] = (float)(r >> 8) / (float)(1 << 24) - 0.5f;
      y[i][0] += x[i][k];
    }
    label[i] = y[i][0] > 0;
  }
  hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  assert_true(file >= 0);
  const hsize_t dim[] = {ROWS, WIDTH}, one[] = {ROWS, 1};
  put_array(file, x_name, 2, dim, H5T_NATIVE_FLOAT, x);
  if (y_name && labels) put_array(file, y_name, 1, dim, H5T_NATIVE_INT64, label);
  if (y_name && !labels) put_array(file, y_name, 2, one, H5T_NATIVE_FLOAT, y);
  H5Fclose(file);
}

static void write_png(const char *path, int side, uint8_t shade, uint32_t noise) {
  uint8_t pixels[64 * 64 * 3];
  for (int i = 0; i < side * side * 3; i++) {
    noise = noise * 1664525u + 1013904223u;
    pixels[i] = (uint8_t)(shade + (noise >> 28));
  }
  png_image image = {.version = PNG_IMAGE_VERSION,
                     .width = (png_uint_32)side,
                     .height = (png_uint_32)side,
                     .format = PNG_FORMAT_RGB};
  assert_int_not_equal(png_image_write_to_file(&image, path, 0, pixels, 0, NULL), 0);
}

// Writes images/{dark,light}/NN.png, 20 each; `broken` of the dark ones contain no image.
static void write_folder(int broken, bool sizes) {
  static const char *const classes[] = {"dark", "light"};
  for (int c = 0; c < 2; c++) {
    char path[64];
    snprintf(path, sizeof path, "images/%s", classes[c]);
    assert_ok(brim_fs_mkdirs(path));
    for (int i = 0; i < 20; i++) {
      snprintf(path, sizeof path, "images/%s/%02d.png", classes[c], i);
      write_png(path, sizes ? 8 + i % 3 : 8, c ? 200 : 20, (uint32_t)(100 * c + i));
      // the start of a PNG file, so that only decoding notices
      if (c == 0 && i >= 5 && i < 5 + broken) {
        char *data = NULL;
        size_t size = 0;
        assert_ok(brim_fs_read(path, 0, &data, &size));
        assert_ok(brim_fs_write(path, data, size / 2));
        brim_free(data);
      }
    }
  }
}

static const char small_yaml[] =
    "model: mlp(depth=1, hidden=16)\n"
    "optimizer: adamw(lr=1e-2)\n"
    "data: {batch_size: 8, num_workers: 2}\n"
    "seed: 3\n";

static double loss_over(fixture *f, int n) {
  brim_step_info info;
  brim_work_metrics m;
  steps(f, n, &info);
  assert_ok(f->work->table->metrics(f->work->state, true, &m));
  return figure(m, "loss");
}

//---------------------------------- a path alone ----------------------------------

// brim train --data-path FILE.h5: the file's signature gives its format, its datasets give inputs and targets.
static void test_hdf5_by_path(void **state) {
  (void)state;
  write_signals("signals.h5", "x", "y", false);
  const char *const path[] = {"data.path=signals.h5", "data.val_fraction=0.25"};
  fixture f;
  brim_work_info info;
  brim_work_metrics eval;
  assert_ok(fixture_open(&f, "ref", small_yaml, path, 2));
  assert_ok(fixture_configure(&f));
  f.work->table->info(f.work->state, &info);
  assert_int_equal(info.samples_per_epoch, 90);
  assert_int_equal(info.eval_samples, 30);
  assert_int_equal(info.classes, 0);
  double first = loss_over(&f, 12), last = 0;
  for (int i = 0; i < 5; i++) last = loss_over(&f, 12);
  assert_true(last < first);
  assert_ok(brim_work_evaluate(f.work, &eval));
  assert_true(isfinite(figure(eval, "loss")));
  assert_true(isnan(figure(eval, "accuracy")));
  fixture_close(&f);
}

// Targets of 0 and 1 are several labels per sample: a loss for labels, and an accuracy.
static void test_multi_label(void **state) {
  (void)state;
  enum { LABELS = 3 };
  static float x[ROWS][WIDTH];
  static uint8_t y[ROWS][LABELS];
  uint32_t r = 1;
  for (int i = 0; i < ROWS; i++) {
    for (int k = 0; k < WIDTH; k++) {
      r = r * 1664525u + 1013904223u;
      x[i][k] = (float)(r >> 8) / (float)(1 << 24) - 0.5f;
    }
    for (int k = 0; k < LABELS; k++) y[i][k] = x[i][k] > 0;
  }
  hid_t file = H5Fcreate("labels.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  put_array(file, "x", 2, (const hsize_t[]){ROWS, WIDTH}, H5T_NATIVE_FLOAT, x);
  put_array(file, "y", 2, (const hsize_t[]){ROWS, LABELS}, H5T_NATIVE_UINT8, y);
  H5Fclose(file);
  const char *const plain[] = {"data.path=labels.h5", "data.val_fraction=0.25"};
  const char *const mse[] = {"data.path=labels.h5", "data.val_fraction=0.25", "loss=mse"};
  const char *const numbers[] = {"data.path=labels.h5", "dataset=hdf5(classes=0)"};
  fixture f;
  brim_work_info info;
  brim_work_metrics eval;
  assert_ok(fixture_open(&f, "ref", small_yaml, plain, 2));
  assert_ok(fixture_configure(&f));
  f.work->table->info(f.work->state, &info);
  assert_string_equal(info.loss, "bce");
  assert_int_equal(info.classes, 0);
  assert_int_equal(info.target_dim, LABELS);
  for (int i = 0; i < 30; i++) (void)loss_over(&f, 12);
  assert_ok(brim_work_evaluate(f.work, &eval));
  assert_true(figure(eval, "accuracy") > 0.6);
  assert_string_equal(deciding_key(eval), "accuracy");
  fixture_close(&f);
  for (int i = 0; i < 2; i++) {
    assert_ok(fixture_open(&f, "ref", small_yaml, i ? numbers : mse, i ? 2 : 3));
    assert_ok(fixture_configure(&f));
    f.work->table->info(f.work->state, &info);
    assert_string_equal(info.loss, "mse");
    fixture_close(&f);
  }
}

// Opening reports bad values: NaN by sample, and numbers far from 1.
static void test_looks_at_values(void **state) {
  (void)state;
  enum { MANY = 1000 };
  static float x[MANY][WIDTH];
  static int16_t sound[MANY][WIDTH];
  static float y[MANY];
  for (int i = 0; i < MANY; i++) {
    for (int k = 0; k < WIDTH; k++) {
      x[i][k] = (float)((i * 7 + k) % 13) / 13;
      sound[i][k] = (int16_t)((i * 97 + k * 31) % 8000 - 4000);
    }
    y[i] = x[i][0];
  }
  x[137][5] = NAN;
  x[700][1] = INFINITY;
  hid_t file = H5Fcreate("odd.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hsize_t dim[] = {MANY, WIDTH};
  put_array(file, "x", 2, dim, H5T_NATIVE_FLOAT, x);
  put_array(file, "y", 1, dim, H5T_NATIVE_FLOAT, y);
  H5Fclose(file);
  const char *const odd[] = {"data.path=odd.h5"};
  const char *const filled[] = {"data.path=odd.h5", "dataset=hdf5(nan=0.25)"};
  fixture f;
  listen();
  assert_ok(fixture_open(&f, "ref", small_yaml, odd, 1));
  assert_non_null(strstr(logged, "2 of 1000 samples checked hold NaN or infinite inputs"));
  assert_non_null(strstr(logged, "odd.h5:/x[137]"));
  assert_non_null(strstr(logged, "nan=0"));
  fixture_close(&f);
  listen();
  assert_ok(fixture_open(&f, "ref", small_yaml, filled, 2));
  assert_null(strstr(logged, "NaN"));
  float row[WIDTH], target;
  assert_ok(brim_source_read(inside(&f)->data.train.source, 137, 1, row, &target, NULL, NULL));
  assert_true(row[5] == 0.25f && row[4] == x[137][4]);
  fixture_close(&f);
  // NaN at both ends of every 125 targets: a check of every n-th target could see all of them, or none
  for (int i = 0; i < MANY; i++) {
    if (i % 125 == 0 || i % 125 == 124) y[i] = NAN;
  }
  file = H5Fcreate("odd.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  put_array(file, "x", 2, dim, H5T_NATIVE_INT16, sound);
  put_array(file, "y", 1, dim, H5T_NATIVE_FLOAT, y);
  H5Fclose(file);
  listen();
  assert_ok(fixture_open(&f, "ref", small_yaml, odd, 1));
  assert_non_null(strstr(logged, "16 of 1000 samples checked hold NaN or infinite targets"));
  assert_non_null(strstr(logged, "/y[0]"));
  assert_non_null(strstr(logged, "and are not normalised; transform: normalize(mean="));
  fixture_close(&f);
  const char *const scaled[] = {"data.path=odd.h5", "transform=normalize(mean=0, std=2000)"};
  listen();
  assert_ok(fixture_open(&f, "ref", small_yaml, scaled, 2));
  assert_null(strstr(logged, "not normalised"));
  assert_null(strstr(logged, "targets range"));
  fixture_close(&f);
  hush();
}

// Targets far from 0, the first output of a network: the message has numbers to scale a single one.
static void test_large_targets(void **state) {
  enum { MANY = 40 };
  (void)state;
  static float x[MANY][WIDTH], years[MANY], two[MANY][2];
  for (int i = 0; i < MANY; i++) {
    years[i] = i % 2 ? 1980 : 2000;
    two[i][0] = (float)(i % 7);
    two[i][1] = 300 + (float)(i % 5);
  }
  fixture f;
  const hsize_t dim[] = {MANY, WIDTH}, pairs[] = {MANY, 2};
  const char *const given[] = {"data.path=years.h5", "loss=mse"};
  hid_t file = H5Fcreate("years.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  put_array(file, "x", 2, dim, H5T_NATIVE_FLOAT, x);
  put_array(file, "y", 1, dim, H5T_NATIVE_FLOAT, years);
  H5Fclose(file);
  listen();
  assert_ok(fixture_open(&f, "ref", small_yaml, given, 2));
  assert_non_null(strstr(logged, "targets range from 1980 to 2000"));
  assert_non_null(strstr(logged, "(y - 1990) / 10"));
  fixture_close(&f);
  file = H5Fcreate("years.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  put_array(file, "x", 2, dim, H5T_NATIVE_FLOAT, x);
  put_array(file, "y", 2, pairs, H5T_NATIVE_FLOAT, two);
  H5Fclose(file);
  listen();
  assert_ok(fixture_open(&f, "ref", small_yaml, given, 2));
  assert_non_null(strstr(logged, "targets range from 0 to 304"));
  assert_null(strstr(logged, "(y - "));
  fixture_close(&f);
  hush();
}

static void test_hdf5_names(void **state) {
  (void)state;
  write_signals("odd.h5", "voltage", "verdict", true);
  fixture f;
  const char *const given[] = {"data.path=odd.h5", "data.inputs=[voltage]",
                               "data.targets=[verdict]", "data.val_fraction=0.25"};
  assert_ok(fixture_open(&f, "ref", small_yaml, given, 4));
  assert_int_equal(inside(&f)->data.train.source->info.classes, 2);
  assert_int_equal(inside(&f)->data.train.source->info.dim[0], WIDTH);
  fixture_close(&f);
  const char *const wrong[] = {"data.path=odd.h5", "data.inputs=[current]"};
  assert_true(fixture_open(&f, "ref", small_yaml, wrong, 2) != BRIM_OK);
  assert_non_null(strstr(brim_status_detail(), "current"));
  fixture_close(&f);
  // the component's own argument counts; for a set where it has no effect, brim reports that
  const char *const other[] = {"dataset=synthetic(samples=50)", "data.inputs=[voltage]"};
  listen();
  assert_ok(fixture_open(&f, "ref", small_yaml, other, 2));
  hush();
  assert_non_null(strstr(logged, "data.inputs has no effect"));
  fixture_close(&f);
}

static void test_nothing_there(void **state) {
  (void)state;
  const char *const path[] = {"data.path=no/such/place"};
  fixture f;
  assert_status(fixture_open(&f, "ref", small_yaml, path, 1), BRIM_ENOENT);
  assert_non_null(strstr(brim_status_detail(), "no/such/place"));
  fixture_close(&f);
}

//---------------------------------- validation ----------------------------------

// Collects every sample of both sets, as bytes; all samples differ.
static size_t gather(brim_source *source, uint8_t *out) {
  int32_t target[4];
  for (uint64_t i = 0; i < source->info.count; i++) {
    assert_true(source->target_bytes <= sizeof target);
    assert_ok(brim_source_read(source, i, 1, out + i * source->input_bytes, target, NULL, NULL));
  }
  return (size_t)source->info.count;
}

static bool contains(const uint8_t *all, size_t count, size_t bytes, const uint8_t *sample) {
  for (size_t i = 0; i < count; i++) {
    if (memcmp(all + i * bytes, sample, bytes) == 0) return true;
  }
  return false;
}

static void test_val_fraction(void **state) {
  (void)state;
  enum { BYTES = 75, COUNT = 200 };
  static uint8_t train[COUNT * BYTES], eval[COUNT * BYTES], other[COUNT * BYTES];
  static const char set[] = "dataset=synthetic(shape=(5, 5, 3), samples=200, noise=1)";
  const char *const overrides[] = {set, "data.val_fraction=0.2", "seed=4"};
  fixture f;
  assert_ok(fixture_open(&f, "ref", small_yaml, overrides, 2));
  assert_int_equal(inside(&f)->data.train.source->input_bytes, BYTES);
  size_t a = gather(inside(&f)->data.train.source, train),
         b = gather(inside(&f)->data.eval.source, eval);
  assert_int_equal(a, 160);
  assert_int_equal(b, 40);
  for (size_t i = 0; i < b; i++) assert_false(contains(train, a, BYTES, eval + i * BYTES));
  for (size_t i = 1; i < a; i++) assert_false(contains(train, i, BYTES, train + i * BYTES));
  fixture_close(&f);
  // the set consists of exactly these samples
  assert_ok(fixture_open(&f, "ref", small_yaml, overrides, 1));
  size_t all = gather(inside(&f)->data.train.source, other);
  assert_int_equal(all, COUNT);
  for (size_t i = 0; i < all; i++) {
    const uint8_t *sample = other + i * BYTES;
    assert_true(contains(train, a, BYTES, sample) || contains(eval, b, BYTES, sample));
  }
  assert_int_equal(inside(&f)->data.eval.source->info.count, 40);  // its own evaluation set
  fixture_close(&f);
  // an evaluation set that the config names takes precedence
  const char *const named[] = {"dataset.train=synthetic(shape=(5, 5, 3), samples=200)",
                               "dataset.val=synthetic(shape=(5, 5, 3), samples=60, split=train)",
                               "data.val_fraction=0.2"};
  assert_ok(fixture_open(&f, "ref", small_yaml, named, 3));
  assert_int_equal(inside(&f)->data.train.source->info.count, 200);
  assert_int_equal(inside(&f)->data.eval.source->info.count, 60);
  fixture_close(&f);
}

// part= and indices= apply to training: the evaluation set stays complete.
static void test_parts(void **state) {
  (void)state;
  assert_ok(brim_fs_write("some.txt", "3\n1\n4\n15\n9\n26\n5\n35\n8\n", 21));
  static const char *const sets[] = {
      "dataset=synthetic(shape=(5, 5, 3), samples=200, part=(0, 0.5))",
      "dataset=synthetic(shape=(5, 5, 3), samples=200, indices=some.txt)"};
  static const uint64_t counts[] = {100, 9};
  for (int i = 0; i < 2; i++) {
    fixture f;
    assert_ok(fixture_open(&f, "ref", small_yaml, &sets[i], 1));
    assert_int_equal(inside(&f)->data.train.source->info.count, counts[i]);
    assert_int_equal(inside(&f)->data.eval.source->info.count, 40);
    fixture_close(&f);
  }
}

//---------------------------------- broken samples ----------------------------------

static void test_broken_images(void **state) {
  (void)state;
  write_folder(3, false);
  const char *const overrides[] = {"data.path=images", "data.val_fraction=0.1",
                                   "data.on_error=skip"};
  fixture f;
  brim_step_info info;
  brim_status status = fixture_open(&f, "ref", small_yaml, overrides, 2);
  if (!status) status = fixture_configure(&f);
  for (int i = 0; !status && i < 5; i++) {
    status = f.work->table->step(f.work->state, NULL, &info);
  }
  assert_true(status != BRIM_OK);
  assert_non_null(strstr(brim_status_detail(), ".png"));
  fixture_close(&f);

  assert_ok(fixture_open(&f, "ref", small_yaml, overrides, 3));
  assert_ok(fixture_configure(&f));
  brim_work_loading loading;
  steps(&f, 10, &info);  // two epochs
  f.work->table->loading->stats(f.work->state, &loading);
  assert_in_range(loading.broken, 1, 3);
  assert_int_equal(loading.broken_reads, 2 * loading.broken);
  assert_non_null(strstr(loading.first_broken, ".png"));
  assert_true(loading.samples >= 72);
  assert_true(loading.read_ns > 0);
  fixture_close(&f);
}

// Images of different sizes need a transform to one size, for evaluation too.
static void test_sizes(void **state) {
  (void)state;
  write_folder(0, true);
  fixture f;
  brim_step_info info;
  const char *const bare[] = {"data.path=images", "data.val_fraction=0.1"};
  assert_status(fixture_open(&f, "ref", small_yaml, bare, 2), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "resize"));
  fixture_close(&f);
  const char *const drawn[] = {"data.path=images", "data.val_fraction=0.1",
                               "transform=random_resized_crop(size=8)"};
  assert_status(fixture_open(&f, "ref", small_yaml, drawn, 3), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "transform.val"));
  fixture_close(&f);
  const char *const both[] = {"data.path=images", "data.val_fraction=0.1",
                              "transform.train=random_resized_crop(size=8)",
                              "transform.val=resize(size=8)"};
  brim_work_metrics eval;
  assert_ok(fixture_open(&f, "ref", small_yaml, both, 4));
  assert_ok(fixture_configure(&f));
  steps(&f, 3, &info);
  assert_ok(brim_work_evaluate(f.work, &eval));
  assert_int_equal(eval.samples, 4);
  brim_work_loading loading;
  f.work->table->loading->stats(f.work->state, &loading);
  assert_int_equal(loading.stage_count, 1);
  assert_string_equal(loading.stage[0], "random_resized_crop");
  assert_true(loading.stage_ns[0] > 0);
  brim_plan plan;
  brim_setting setting = brim_work_setting(f.work);
  setting.value[brim_work_knob(f.work, "cache")] = BRIM_CACHE_RAM;
  assert_status(f.work->table->plan(f.work->state, &setting, &plan), BRIM_EUNSUPPORTED);
  assert_non_null(strstr(brim_status_detail(), "data.cache=ram"));
  fixture_close(&f);
}

//---------------------------------- two views ----------------------------------

static const char views_yaml[] =
    "dataset: synthetic(shape=(8, 8, 3), classes=4, samples=70, noise=0.95)\n"
    "transform: {train: 'views(views=2) | cutout(size=3)'}\n"
    "model: simclr(backbone=resnet18(width=4), hidden=16, dim=8)\n"
    "loss: ntxent(temperature=0.5)\n"
    "optimizer: adamw(lr=1e-2)\n"
    "data: {batch_size: 16, num_workers: 2}\n"
    "seed: 5\n";

static void test_ntxent(void **state) {
  (void)state;
  fixture f;
  brim_work_info info;
  brim_step_info step;
  brim_work_metrics m;
  assert_ok(fixture_open(&f, "ref", views_yaml, NULL, 0));
  assert_ok(fixture_configure(&f));
  f.work->table->info(f.work->state, &info);
  assert_int_equal(info.samples_per_epoch, 64);  // only whole batches
  assert_int_equal(info.steps_per_epoch, 4);
  assert_int_equal(info.eval_samples, 0);
  assert_int_equal(info.classes, 0);
  steps(&f, 4, &step);
  assert_true(step.epoch_end);
  assert_int_equal(step.samples, 16);
  assert_ok(f.work->table->metrics(f.work->state, true, &m));
  assert_int_equal(m.samples, 64);
  assert_true(isnan(figure(m, "accuracy")));
  double first = figure(m, "loss"), last = 0;
  assert_true(first > 0 && first < 2 * log(32));
  for (int i = 0; i < 6; i++) last = loss_over(&f, 4);
  assert_true(last < 0.95 * first);
  assert_status(brim_work_evaluate(f.work, &m), BRIM_ESTATE);
  fixture_close(&f);
}

// Weights do not depend on workers or interruptions.
static void test_ntxent_resumes(void **state) {
  (void)state;
  const char *const workers[] = {"data.num_workers=0"};
  fixture f;
  brim_step_info step;
  assert_ok(fixture_open(&f, "ref", views_yaml, NULL, 0));
  assert_ok(fixture_configure(&f));
  steps(&f, 3, &step);
  assert_ok(f.work->table->save(f.work->state, "mid.safetensors", NULL, false));
  steps(&f, 3, &step);
  assert_ok(f.work->table->save(f.work->state, "whole.safetensors", NULL, false));
  fixture_close(&f);
  assert_ok(fixture_open(&f, "ref", views_yaml, workers, 1));
  assert_ok(fixture_configure(&f));
  assert_ok(f.work->table->load(f.work->state, "mid.safetensors", NULL));
  steps(&f, 3, &step);
  assert_ok(f.work->table->save(f.work->state, "part.safetensors", NULL, false));
  fixture_close(&f);
  assert_same_file("whole.safetensors", "part.safetensors");
}

static void refused(const char *yaml, const char *const *overrides, size_t count,
                    const char *words) {
  fixture f;
  brim_status status = fixture_open(&f, "ref", yaml, overrides, count);
  if (!status) status = fixture_configure(&f);
  assert_status(status, BRIM_EINVAL);
  if (!strstr(brim_status_detail(), words)) {
    fail_msg("'%s' does not say '%s'", brim_status_detail(), words);
  }
  fixture_close(&f);
}

static void test_views_are_checked(void **state) {
  (void)state;
  const char *const one[] = {"transform.train=random_flip"};
  refused(views_yaml, one, 1, "loss ntxent compares two views");
  const char *const three[] = {"transform.train=views(views=3) | random_flip"};
  refused(views_yaml, three, 1, "makes 3");
  const char *const labels[] = {"loss=cross_entropy"};
  refused(views_yaml, labels, 1, "use loss ntxent");
  const char *const supervised[] = {"loss=cross_entropy", "transform.train=random_flip"};
  refused(views_yaml, supervised, 2, "use its backbone as the model");
  const char *const large[] = {"data.batch_size=71"};
  refused(views_yaml, large, 1, "batch");
  write_signals("bare.h5", "x", NULL, false);
  const char *const bare[] = {"data.path=bare.h5", "loss=cross_entropy"};
  refused(small_yaml, bare, 2, "no labels");
  refused(small_yaml, bare, 1, "no targets");
}

//---------------------------------- resuming, the rest ----------------------------------

static void resume_equals(const char *const *overrides, size_t count) {
  fixture f;
  brim_step_info info;
  assert_ok(fixture_open(&f, "ref", small_yaml, overrides, count));
  assert_ok(fixture_configure(&f));
  steps(&f, 7, &info);
  assert_ok(f.work->table->save(f.work->state, "mid.safetensors", NULL, false));
  steps(&f, 9, &info);
  assert_ok(f.work->table->save(f.work->state, "whole.safetensors", NULL, false));
  fixture_close(&f);
  assert_ok(fixture_open(&f, "ref", small_yaml, overrides, count));
  assert_ok(fixture_configure(&f));
  assert_ok(f.work->table->load(f.work->state, "mid.safetensors", NULL));
  steps(&f, 9, &info);
  assert_ok(f.work->table->save(f.work->state, "part.safetensors", NULL, false));
  fixture_close(&f);
  assert_same_file("whole.safetensors", "part.safetensors");
}

static void test_resume(void **state) {
  (void)state;
  write_signals("signals.h5", "x", "y", false);
  const char *const hdf5[] = {"data.path=signals.h5", "data.val_fraction=0.25"};
  resume_equals(hdf5, 2);
  write_folder(2, true);
  const char *const folder[] = {"data.path=images", "data.val_fraction=0.1", "data.on_error=skip",
                                "transform.train=random_resized_crop(size=8) | random_flip",
                                "transform.val=resize(size=8)"};
  resume_equals(folder, 5);
}

static void test_small_keys(void **state) {
  (void)state;
  const char *const overrides[] = {"dataset=synthetic(samples=50)", "data.persistent_workers=false",
                                   "data.num_workers=-1"};
  fixture f;
  listen();
  assert_ok(fixture_open(&f, "ref", small_yaml, overrides, 3));
  hush();
  assert_int_equal(log_lines, 1);
  assert_non_null(strstr(logged, "data.persistent_workers"));
  int64_t cores = brim_cpu_count(), workers = inside(&f)->knobs[BRIM_LEARN_WORKERS].value;
  assert_true(workers >= 1 && 4 * workers >= cores && (2 * workers <= cores || workers == 1));
  fixture_close(&f);
}

// Evaluation has workers too if its samples need work. The figures are the same with any number of them, every time,
// and memory is as planned.
static void test_evaluation_has_workers(void **state) {
  (void)state;
  double losses[3] = {0, 0, 0};
  static const char *const workers[] = {"data.num_workers=0", "data.num_workers=1",
                                        "data.num_workers=3"};
  for (int i = 0; i < 3; i++) {
    fixture f;
    brim_work_metrics m;
    brim_step_info info;
    const char *const how[] = {workers[i],
                               "dataset=synthetic(shape=(6, 6, 3), classes=4, samples=64, "
                               "val_samples=51, dtype=u8)",
                               "transform.train=resize(size=8)", "transform.val=resize(size=8)"};
    assert_ok(fixture_open(&f, "ref", small_yaml, how, 4));
    brim_alloc_stats before, after;
    brim_alloc_get_stats(&before);
    assert_ok(fixture_configure(&f));
    brim_alloc_get_stats(&after);
    brim_setting setting = brim_work_setting(f.work);
    brim_plan plan;
    memset(&plan, 0, sizeof plan);
    assert_ok(f.work->table->plan(f.work->state, &setting, &plan));
    assert_int_equal(after.live_bytes[BRIM_MEM_PLANNED] - before.live_bytes[BRIM_MEM_PLANNED],
                     plan.bytes[BRIM_PLACE_HOST] + plan.bytes[BRIM_PLACE_DEVICE]);
    for (int k = 0; k < 3; k++) {
      assert_ok(brim_work_evaluate(f.work, &m));
      assert_int_equal(m.samples, 51);
      if (i == 0 && k == 0) losses[0] = figure(m, "loss");
      if (k == 0) assert_true(figure(m, "loss") == losses[0]);  // before any step
      if (i > 0 && k > 0) assert_true(figure(m, "loss") == losses[k]);
      losses[k] = figure(m, "loss");
      steps(&f, 2, &info);
    }
    assert_int_equal(inside(&f)->data.eval.source->info.count, 51);
    fixture_close(&f);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_evaluation_has_workers),
      cmocka_unit_test(test_hdf5_by_path),
      cmocka_unit_test(test_multi_label),
      cmocka_unit_test(test_looks_at_values),
      cmocka_unit_test(test_large_targets),
      cmocka_unit_test(test_hdf5_names),
      cmocka_unit_test(test_nothing_there),
      cmocka_unit_test(test_val_fraction),
      cmocka_unit_test(test_parts),
      cmocka_unit_test(test_broken_images),
      cmocka_unit_test(test_sizes),
      cmocka_unit_test(test_ntxent),
      cmocka_unit_test(test_ntxent_resumes),
      cmocka_unit_test(test_views_are_checked),
      cmocka_unit_test(test_resume),
      cmocka_unit_test(test_small_keys),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
