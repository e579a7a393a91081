// The writers below `brim data`, in this process: a packed file as libhdf5 reads it, the order of calls, and memory
// that runs out at every allocation.
#include <hdf5.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "data/pack/data_pack.h"
#include "data/source/data_verify.h"
#include "same_file.h"

enum { COUNT = 13, HEIGHT = 4, WIDTH = 3, CHANNELS = 2, BYTES = HEIGHT * WIDTH * CHANNELS };

static brim_source_info image_info(void) {
  brim_source_info info;
  memset(&info, 0, sizeof info);
  info.count = COUNT;
  info.type = BRIM_SAMPLE_U8;
  info.rank = 3;
  info.dim[0] = HEIGHT;
  info.dim[1] = WIDTH;
  info.dim[2] = CHANNELS;
  info.classes = 3;
  info.channels = 2;
  info.mean[0] = 0.25f;
  info.mean[1] = 0.5f;
  info.std[0] = 0.125f;
  info.std[1] = 1.0f;
  return info;
}

static uint8_t value_at(size_t i) { return (uint8_t)(i * 37 + i / 29); }

// Writes COUNT samples in two blocks into `path`; returns the first failure.
static brim_status write_set(const char *path, brim_pack_options *options) {
  static const char *const names[] = {"ant", "bee", "mole rat"};
  uint8_t inputs[COUNT * BYTES];
  int32_t labels[COUNT];
  for (size_t i = 0; i < sizeof inputs; i++) inputs[i] = value_at(i);
  for (int i = 0; i < COUNT; i++) labels[i] = i % 3;
  brim_source_info info = image_info();
  options->class_names = names;
  options->class_count = 3;
  brim_pack *pack = NULL;
  const char *temporary;
  BRIM_TRY(brim_pack_create(path, options, &pack));
  brim_status status = brim_pack_begin(pack, "train", &info);
  uint64_t first = status ? 0 : 8 / brim_pack_granule(pack) * brim_pack_granule(pack);
  if (!status && first) status = brim_pack_put(pack, inputs, labels, first);
  if (!status) {
    status = brim_pack_put(pack, inputs + first * BYTES, labels + first, COUNT - first);
  }
  if (!status) status = brim_pack_end(pack);
  if (!status) status = brim_pack_seal(pack, &temporary);
  if (!status) return brim_pack_commit(pack);
  brim_pack_abort(pack);
  return status;
}

static void read_with_library(const char *path) {
  hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  assert_true(file >= 0);
  hid_t x = H5Dopen2(file, "/train/x", H5P_DEFAULT), y = H5Dopen2(file, "/train/y", H5P_DEFAULT);
  assert_true(x >= 0 && y >= 0);
  uint8_t inputs[COUNT * BYTES] = {0};
  int32_t labels[COUNT] = {0};
  assert_true(H5Dread(x, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, inputs) >= 0);
  assert_true(H5Dread(y, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, labels) >= 0);
  for (size_t i = 0; i < sizeof inputs; i++) assert_int_equal(inputs[i], value_at(i));
  for (int i = 0; i < COUNT; i++) assert_int_equal(labels[i], i % 3);
  float mean[2] = {0};
  hid_t a = H5Aopen(x, "mean", H5P_DEFAULT);
  assert_true(H5Aread(a, H5T_NATIVE_FLOAT, mean) >= 0);
  assert_true(mean[0] == 0.25f && mean[1] == 0.5f);
  H5Aclose(a);
  int64_t classes = 0;
  a = H5Aopen(y, "classes", H5P_DEFAULT);
  assert_true(H5Aread(a, H5T_NATIVE_INT64, &classes) >= 0);
  assert_int_equal(classes, 3);
  H5Aclose(a);
  H5Dclose(x);
  H5Dclose(y);
  H5Fclose(file);
}

// No object has a time of creation, so the same data always give the same bytes.
static void has_no_times(const char *path) {
  static const char *const names[] = {"/", "/train", "/train/x", "/train/y"};
  hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  assert_true(file >= 0);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
#if H5_VERSION_GE(1, 12, 0)
    H5O_info2_t info;
    assert_true(H5Oget_info_by_name3(file, names[i], &info, H5O_INFO_TIME, H5P_DEFAULT) >= 0);
#else
    H5O_info_t info;
    assert_true(H5Oget_info_by_name2(file, names[i], &info, H5O_INFO_TIME, H5P_DEFAULT) >= 0);
#endif
    assert_int_equal(info.atime, 0);
    assert_int_equal(info.mtime, 0);
    assert_int_equal(info.ctime, 0);
    assert_int_equal(info.btime, 0);
  }
  H5Fclose(file);
}

static void test_hdf5(void **state) {
  (void)state;
  static const struct {
    int64_t chunk;
    int deflate;
    bool shuffle;
    const char *storage;
  } ways[] = {{0, 0, false, "contiguous"},
              {4, 0, false, "chunked (4, 4, 3, 2)"},
              {4, 7, false, "chunked (4, 4, 3, 2), deflate 7"},
              {5, 1, true, "chunked (5, 4, 3, 2), shuffle, deflate 1"},
              {100, 1, true, "chunked (13, 4, 3, 2), shuffle, deflate 1"}};
  brim_pool *pool;
  assert_ok(brim_pool_create(3, &pool));
  for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
    brim_pack_options options = {.format = BRIM_PACK_HDF5,
                                 .replace = true,
                                 .chunk = ways[i].chunk,
                                 .deflate = ways[i].deflate,
                                 .shuffle = ways[i].shuffle,
                                 .pool = pool};
    assert_ok(write_set("packed.h5", &options));
    read_with_library("packed.h5");
    has_no_times("packed.h5");
    assert_ok(write_set("again.h5", &options));
    assert_same_file("packed.h5", "again.h5");
    brim_pack_dataset *sets;
    size_t count;
    assert_ok(brim_pack_list("packed.h5", false, &sets, &count));
    assert_int_equal(count, 2);
    assert_string_equal(sets[0].name, "/train/x");
    assert_string_equal(sets[0].storage, ways[i].storage);
    assert_string_equal(sets[0].type, "uint8");
    assert_int_equal(sets[0].dim[0], COUNT);
    assert_string_equal(sets[1].type, "int32");
    brim_free(sets);
    brim_arena *arena;
    const char *const *names;
    assert_ok(brim_arena_create(0, &arena));
    assert_ok(brim_pack_class_names(arena, "packed.h5", "train", 3, false, &names));
    assert_non_null(names);
    assert_string_equal(names[2], "mole rat");
    assert_ok(brim_pack_class_names(arena, "packed.h5", "train", 4, false, &names));
    assert_null(names);
    brim_arena_destroy(arena);
  }
  brim_pool_destroy(pool);
  assert_ok(brim_fs_remove("packed.h5"));
  assert_ok(brim_fs_remove("again.h5"));
}

// A split that is too short, blocks that do not end with a chunk, a target that exists.
static void test_order(void **state) {
  (void)state;
  brim_pool *pool;
  assert_ok(brim_pool_create(1, &pool));
  brim_pack_options options = {.format = BRIM_PACK_HDF5, .chunk = 4, .pool = pool};
  brim_source_info info = image_info();
  uint8_t inputs[COUNT * BYTES] = {0};
  int32_t labels[COUNT] = {0};
  brim_pack *pack;
  const char *temporary;
  assert_ok(brim_pack_create("order.h5", &options, &pack));
  assert_status(brim_pack_put(pack, inputs, labels, 1), BRIM_ESTATE);
  assert_ok(brim_pack_begin(pack, "train", &info));
  assert_int_equal(brim_pack_granule(pack), 4);
  assert_status(brim_pack_put(pack, inputs, labels, 5), BRIM_EINVAL);
  assert_ok(brim_pack_put(pack, inputs, labels, 8));
  assert_status(brim_pack_put(pack, inputs, labels, 6), BRIM_ESTATE);
  assert_status(brim_pack_end(pack), BRIM_ESTATE);
  assert_status(brim_pack_seal(pack, &temporary), BRIM_ESTATE);
  brim_pack_abort(pack);
  assert_false(brim_fs_exists("order.h5"));
  assert_ok(brim_fs_write("order.h5", "mine", 4));
  assert_status(brim_pack_create("order.h5", &options, &pack), BRIM_EEXIST);
  options.format = BRIM_PACK_IDX;
  options.replace = true;
  assert_status(brim_pack_create("order.h5", &options, &pack), BRIM_EEXIST);
  uint64_t bytes, files;
  assert_ok(brim_data_disk_bytes("order.h5", &bytes, &files));
  assert_int_equal(bytes, 4);
  assert_int_equal(files, 1);
  assert_ok(brim_fs_remove("order.h5"));
  brim_pool_destroy(pool);
}

static bool no_temporary(void) {
  char **names;
  size_t count;
  assert_ok(brim_fs_list(".", &names, &count));
  bool none = true;
  for (size_t i = 0; i < count; i++) none = none && !strstr(names[i], BRIM_FS_TEMP_MARK);
  brim_fs_list_free(names, count);
  return none;
}

// Each allocation fails once: BRIM_ENOMEM or a failure of libhdf5, and nothing is left behind. (libhdf5's own memory
// comes from malloc, which this test does not control.)
static void test_no_memory(void **state) {
  (void)state;
  brim_pool *pool;
  assert_ok(brim_pool_create(1, &pool));
  brim_pack_options options = {
      .format = BRIM_PACK_HDF5, .replace = true, .chunk = 4, .deflate = 1, .pool = pool};
  assert_ok(write_set("memory.h5", &options));
  for (uint64_t n = 1;; n++) {
    brim_alloc_stats before, after;
    brim_alloc_get_stats(&before);
    uint64_t failures = brim_alloc_failures();
    brim_alloc_fail_nth(n, 0);
    brim_status status = write_set("memory.h5", &options);
    brim_alloc_fail_nth(0, 0);
    brim_alloc_get_stats(&after);
    assert_int_equal(before.live_blocks[0], after.live_blocks[0]);
    assert_int_equal(before.live_blocks[1], after.live_blocks[1]);
    read_with_library("memory.h5");  // the old file, or the new one
    if (status && status != BRIM_ENOMEM && status != BRIM_EIO) fail_msg("%d", (int)status);
    if (brim_alloc_failures() == failures) {
      assert_ok(status);
      assert_true(n > 5);
      break;
    }
  }
  assert_true(no_temporary());
  assert_ok(brim_fs_remove("memory.h5"));
  brim_pool_destroy(pool);
}

// The same for a replaced folder: at every moment it is the complete old one or the complete new one.
static void test_no_memory_folder(void **state) {
  (void)state;
  brim_pool *pool;
  assert_ok(brim_pool_create(1, &pool));
  brim_pack_options options = {.format = BRIM_PACK_IDX, .replace = true, .pool = pool};
  assert_ok(write_set("memory", &options));
  for (uint64_t n = 1;; n++) {
    brim_alloc_stats before, after;
    uint64_t bytes, files;
    brim_alloc_get_stats(&before);
    uint64_t failures = brim_alloc_failures();
    brim_alloc_fail_nth(n, 0);
    brim_status status = write_set("memory", &options);
    brim_alloc_fail_nth(0, 0);
    brim_alloc_get_stats(&after);
    assert_int_equal(before.live_blocks[0], after.live_blocks[0]);
    assert_int_equal(before.live_blocks[1], after.live_blocks[1]);
    assert_ok(brim_data_disk_bytes("memory", &bytes, &files));
    assert_int_equal(files, 2);  // the mark file is not counted
    assert_true(brim_fs_exists("memory/.brim-dataset"));
    if (status && status != BRIM_ENOMEM) fail_msg("%d", (int)status);
    if (brim_alloc_failures() == failures) {
      assert_ok(status);
      assert_true(n > 20);
      break;
    }
  }
  assert_int_equal(system("rm memory/*-ubyte memory/.brim-dataset && rmdir memory"), 0);
  brim_pool_destroy(pool);
}

//---------------------------------- looking at samples ----------------------------------

// A source of this test: three channels of floats with NaN and infinity in them.
enum { ODD = 10 };

static brim_status odd_read(void *state, uint64_t index, void *input, void *target) {
  float *x = input;
  (void)state;
  if (index == 3) return brim_fail(BRIM_EPARSE, "odd.bin: record 3 is torn");
  for (int i = 0; i < 4; i++) x[i] = (float)(1000000 + (int)index * 4 + i);
  if (index == 5) x[1] = (float)NAN;
  if (index == 6) x[0] = x[2] = (float)INFINITY;
  if (index == 7) x[0] = x[1] = x[2] = x[3] = 1000000;
  if (index == 9) {
    for (int i = 0; i < 4; i++) x[i] = (float)(1000000 + 8 * 4 + i);
  }
  int32_t label = index == 9 ? 2 : (int32_t)(index % 2);
  memcpy(target, &label, sizeof label);
  return BRIM_OK;
}

// Mean and deviation of the finite values, by the plain formula in two passes.
static void check_channel(const brim_survey *s) {
  double sum = 0, squares = 0, n = 0;
  for (int pass = 0; pass < 2; pass++) {
    for (uint64_t i = 0; i < ODD; i++) {
      float x[4];
      int32_t label;
      if (odd_read(NULL, i, x, &label)) continue;
      for (int k = 0; k < 4; k++) {
        if (!isfinite(x[k])) continue;
        if (pass == 0) sum += (double)x[k], n++;
        if (pass == 1) squares += ((double)x[k] - sum / n) * ((double)x[k] - sum / n);
      }
    }
  }
  assert_true(fabs(s->channel[0].mean - sum / n) < 1e-6);
  assert_true(fabs(s->channel[0].std - sqrt(squares / n)) < 1e-6);
  assert_true(s->channel[0].min == 1000000 && s->channel[0].max == 1000035);
}

static void test_survey(void **state) {
  (void)state;
  static const brim_source_table table = {.abi = BRIM_SOURCE_ABI, .name = "odd", .read = odd_read};
  brim_source source;
  memset(&source, 0, sizeof source);
  source.table = &table;
  source.info.count = ODD;
  source.info.type = BRIM_SAMPLE_F32;
  source.info.rank = 1;
  source.info.dim[0] = 4;
  source.info.classes = 2;
  source.input_bytes = 16;
  source.target_bytes = 4;
  for (int threads = 1; threads <= 4; threads += 3) {
    brim_pool *pool;
    brim_survey s;
    assert_ok(brim_pool_create(threads, &pool));
    brim_survey_options options = {.pool = pool, .duplicates = true, .limit = 5};
    assert_ok(brim_survey_run(&source, &options, &s));
    assert_int_equal(s.samples, ODD);
    assert_int_equal(s.good, ODD - 1);
    assert_int_equal(s.broken_count, 1);
    assert_int_equal(s.broken_kept, 1);
    assert_int_equal(s.broken[0].index, 3);
    assert_non_null(strstr(s.broken[0].text, "record 3 is torn"));
    assert_int_equal(s.labels_out_of_range, 1);
    assert_int_equal(s.class_counts[0], 5 - 0);
    assert_int_equal(s.class_counts[1], 3);
    assert_int_equal(s.nan_values, 1);
    assert_int_equal(s.inf_values, 2);
    assert_int_equal(s.bad_samples, 2);
    assert_int_equal(s.first_bad, 5);
    assert_int_equal(s.constant, 1);
    assert_int_equal(s.first_constant, 7);
    assert_int_equal(s.twin_count, 1);
    assert_int_equal(s.conflicts, 1);
    assert_int_equal(s.twins[0].first, 8);
    assert_int_equal(s.twins[0].second, 9);
    check_channel(&s);
    brim_survey_deinit(&s);
    options.samples = 5;  // 0, 2, 4, 6, 8
    assert_ok(brim_survey_run(&source, &options, &s));
    assert_int_equal(s.samples, 5);
    assert_int_equal(s.class_counts[0], 5);
    assert_int_equal(s.broken_count, 0);
    brim_survey_deinit(&s);
    brim_pool_destroy(pool);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_hdf5),      cmocka_unit_test(test_order),
      cmocka_unit_test(test_no_memory), cmocka_unit_test(test_no_memory_folder),
      cmocka_unit_test(test_survey),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
