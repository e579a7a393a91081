// Large rows that are written past the caches, by the source and through the loader: the same bytes as by plain
// reading.
#include "hdf5_test.h"

enum { LONG = 1503 };  // floats per row: more than a page, no multiple of a cache line

static void test_long_rows(void **state) {
  (void)state;
  const hid_t types[] = {H5T_IEEE_F32LE, H5T_IEEE_F32BE, H5T_STD_U8LE, H5T_STD_I16LE};
  for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
    // contiguous; chunks of whole rows, of parts of rows; packed
    for (int layout = 0; layout < 4; layout++) {
      set x = floats("x", ROWS, LONG * 4);
      x.type = types[t];
      if (layout) x.chunk[0] = 5;
      x.chunk[1] = layout == 2 ? 1000 : LONG * 4;
      x.deflate = layout == 3;
      x.grows = layout == 1;
      x.written = layout == 1 ? ROWS / 2 : 0;  // the rest is fill
      hid_t file = create("long.h5", layout % 2 ? 512 : 0, false);
      put_set(file, &x, NULL);
      H5Fclose(file);
      compare_file("long.h5", "x", NULL);
    }
  }
}

// Two inputs side by side in one sample: the second does not start on a cache line.
static void test_two_inputs(void **state) {
  (void)state;
  hid_t file = create("two.h5", 0, false);
  set a = floats("a", ROWS, LONG), b = floats("b", ROWS, LONG + 2);
  put_set(file, &a, NULL);
  put_set(file, &b, NULL);
  H5Fclose(file);
  opened o;
  assert_ok(try_open("two.h5", "train", "{\"inputs\": [\"a\", \"b\"]}", &o));
  float *one = whole("two.h5", "a"), *two = whole("two.h5", "b");
  float *both = malloc((size_t)ROWS * (2 * LONG + 2) * sizeof *both);
  assert_non_null(both);
  for (size_t i = 0; i < ROWS; i++) {
    memcpy(both + i * (2 * LONG + 2), one + i * LONG, LONG * sizeof *both);
    memcpy(both + i * (2 * LONG + 2) + LONG, two + i * (LONG + 2), (LONG + 2) * sizeof *both);
  }
  compare(&o, both);
  shut(&o);
  free(one);
  free(two);
  free(both);
}

//---------------------------------- the loader ----------------------------------

enum { BATCH = 1600, SAMPLES = 2000 };  // 9.6 MB a batch, the second one not full

static brim_source *open_big(const char *path, const char *part) {
  brim_argument arg = {.name = "indices",
                       .value = {.kind = BRIM_VALUE_STRING, .string = part ? part : ""}};
  brim_component c = {.name = "hdf5", .args = &arg, .arg_count = part ? 1 : 0};
  brim_source *source;
  assert_ok(brim_source_open(NULL, &c, path, "train", 1, &source));
  return source;
}

static void big_file(const char *path) {
  hid_t file = create(path, 0, false);
  set x = floats("x", SAMPLES, LONG), y = floats("y", SAMPLES, 3);
  put_set(file, &x, NULL);
  put_set(file, &y, NULL);
  H5Fclose(file);
}

static brim_loader_options options(int workers) {
  return (brim_loader_options){.batch = BATCH,
                               .num_workers = workers,
                               .prefetch_factor = 1,
                               .shuffle = true,
                               .seed = 3,
                               .world = 1};
}

static void check_batch(brim_source *source, const brim_loaded *b, float *row) {
  float target[3];
  for (int64_t r = 0; r < b->rows; r++) {
    assert_ok(brim_source_read(source, b->index[r], 1, row, target, NULL, NULL));
    const float *got = (const float *)b->input + (size_t)r * LONG;
    if (memcmp(got, row, LONG * sizeof *row) != 0) fail_msg("row %lld differs", (long long)r);
    assert_memory_equal((const float *)b->target + r * 3, target, sizeof target);
  }
  for (size_t e = (size_t)b->rows * LONG; e < (size_t)BATCH * LONG; e++) {
    if (((const float *)b->input)[e] != 0) fail_msg("the rest of a batch is not zero");
  }
}

static void test_loader(void **state) {
  (void)state;
  float row[LONG];
  big_file("big.h5");
  FILE *list = fopen("part.txt", "w");  // the last sample is also the file's last row
  assert_non_null(list);
  for (int i = 1; i < SAMPLES; i += 2) fprintf(list, "%d\n", i);
  fclose(list);
  for (int k = 0; k < 6; k++) {
    brim_source *source = open_big("big.h5", k % 2 ? "part.txt" : NULL);
    if (k == 4) assert_ok(brim_source_keep(source));
    brim_loader_options o = options(k / 2 == 1 ? 3 : 0);
    brim_loader *l;
    const brim_loaded *b;
    assert_ok(brim_loader_create(NULL, source, &o, &l));
    for (int64_t n = 2 * brim_loader_batches(l); n > 0; n--) {
      assert_ok(brim_loader_next(l, &b));
      check_batch(source, b, row);
      brim_loader_release(l, b);
    }
    brim_loader_destroy(l);
    brim_source_close(source);
  }
}

// The file is cut short while it is in use: the batch fails with the place, and the process continues.
static void test_cut(void **state) {
  (void)state;
  for (int workers = 0; workers < 3; workers += 2) {
    big_file("cut.h5");
    brim_source *source = open_big("cut.h5", NULL);
    brim_loader_options o = options(workers);
    brim_loader *l;
    const brim_loaded *b;
    assert_ok(brim_loader_create(NULL, source, &o, &l));
    assert_int_equal(truncate("cut.h5", 1 << 20), 0);
    brim_status status = BRIM_OK;
    for (int i = 0; i < 6 && !status; i++) {
      status = brim_loader_next(l, &b);
      if (!status) brim_loader_release(l, b);
    }
    assert_int_equal(status, BRIM_EIO);
    assert_detail("cut.h5");
    brim_loader_destroy(l);
    brim_source_close(source);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_long_rows),
      cmocka_unit_test(test_two_inputs),
      cmocka_unit_test(test_loader),
      cmocka_unit_test(test_cut),
  };
  return cmocka_run_group_tests(tests, hdf5_setup, NULL);
}
