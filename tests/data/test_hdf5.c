// The hdf5 source against libhdf5 itself: every type, byte order and layout, read by several threads; files that are
// cut off, flipped or inconsistent. Names and shapes: test_hdf5_names.c.
#include "hdf5_test.h"

//---------------------------------- types and layouts ----------------------------------

static hid_t half_type(hid_t from) {
  hid_t t = H5Tcopy(from);
  assert_true(H5Tset_fields(t, 15, 10, 5, 0, 10) >= 0 && H5Tset_precision(t, 16) >= 0 &&
              H5Tset_ebias(t, 15) >= 0 && H5Tset_size(t, 2) >= 0);
  return t;
}

// Ten layouts of (ROWS, 6, 4).
static set layout_of(int which, hid_t type) {
  set s = {.name = "x", .type = type, .rank = 3, .dim = {ROWS, 6, 4}};
  static const hsize_t whole_rows[3] = {5, 6, 4}, pieces[3] = {4, 4, 3}, one[3] = {64, 6, 4};
  if (which > 0) memcpy(s.chunk, which % 3 == 2 ? pieces : whole_rows, sizeof pieces);
  if (which == 9) memcpy(s.chunk, one, sizeof one);
  s.grows = which == 8 || which == 9;
  s.deflate = which >= 3;
  s.shuffle = which == 4 || which == 5 || which >= 7;
  s.fletcher = which == 6 || which == 7;
  s.fletcher_first = which == 8;
  return s;
}

static void test_types_and_layouts(void **state) {
  (void)state;
  hid_t half[2] = {half_type(H5T_IEEE_F32LE), half_type(H5T_IEEE_F32BE)};
  const hid_t types[] = {H5T_STD_I8LE,   H5T_STD_U8LE,   H5T_STD_I16LE,  H5T_STD_I16BE,
                         H5T_STD_U16LE,  H5T_STD_U16BE,  H5T_STD_I32LE,  H5T_STD_I32BE,
                         H5T_STD_U32LE,  H5T_STD_U32BE,  H5T_STD_I64LE,  H5T_STD_I64BE,
                         H5T_STD_U64LE,  H5T_STD_U64BE,  half[0],        half[1],
                         H5T_IEEE_F32LE, H5T_IEEE_F32BE, H5T_IEEE_F64LE, H5T_IEEE_F64BE};
  // two layouts of each type, four types of each layout; other runs have the other pairs
  const size_t every = test_is_full() ? 1 : BRIM_SANITIZED ? 10 : 5;
  const size_t turn = (size_t)test_draw(0, every);
  for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
    for (int layout = 0; layout < 10; layout++) {
      if ((t + (size_t)layout) % every != turn) continue;
      bool latest = (t + (size_t)layout) % 2 == 1;
      hid_t file = create("types.h5", layout % 2 ? 512 : 0, latest);
      set s = layout_of(layout, types[t]);
      put_set(file, &s, NULL);
      H5Fclose(file);
      compare_file("types.h5", "x", NULL);
      if (s.deflate) compare_file("types.h5", "x", "{\"chunk_cache\": 0}");
    }
  }
  H5Tclose(half[0]);
  H5Tclose(half[1]);
}

// Numbers that a wrong conversion shows first: ends of ranges, subnormal halves, infinity.
static void test_conversion(void **state) {
  (void)state;
  float out[8];
  const uint16_t halves[8] = {0x0000, 0x8000, 0x0001, 0x83ff, 0x7bff, 0x7c00, 0xfc00, 0x3555};
  const float expected[8] = {0.f,      -0.f,     0x1p-24f,  -0x1.ff8p-15f,
                             65504.0f, INFINITY, -INFINITY, 0x1.554p-2f};
  brim_hdf5_convert((brim_hdf5_type){BRIM_HDF5_F16, false}, (const uint8_t *)halves, 8, out, 1);
  assert_memory_equal(out, expected, sizeof out);
  const uint16_t nan = 0x7e00;
  brim_hdf5_convert((brim_hdf5_type){BRIM_HDF5_F16, false}, (const uint8_t *)&nan, 1, out, 1);
  assert_true(isnan(out[0]));
  const int64_t big[2] = {INT64_MIN, -1};
  brim_hdf5_convert((brim_hdf5_type){BRIM_HDF5_I64, false}, (const uint8_t *)big, 2, out, 3);
  assert_true(out[0] == -0x1p63f && out[3] == -1.f);
  const uint64_t huge = UINT64_MAX;
  brim_hdf5_convert((brim_hdf5_type){BRIM_HDF5_U64, true}, (const uint8_t *)&huge, 1, out, 1);
  assert_true(out[0] == 0x1p64f);
  const uint8_t be[2] = {0x80, 0x01};
  brim_hdf5_convert((brim_hdf5_type){BRIM_HDF5_I16, true}, be, 1, out, 1);
  assert_true(out[0] == (float)(int16_t)0x8001 || out[0] == 384.f);
}

// Packed noise is larger than its chunk, and a checksum may follow.
static void test_noise(void **state) {
  (void)state;
  enum { WIDE = 1 << 16 };
  hid_t file = create("noise.h5", 0, false);
  set s = {.name = "x",
           .type = H5T_STD_U8LE,
           .rank = 2,
           .dim = {3, WIDE},
           .chunk = {2, WIDE},
           .deflate = true,
           .fletcher = true};
  double *noise = malloc((size_t)3 * WIDE * sizeof *noise);
  assert_non_null(noise);
  uint32_t r = 1;
  for (size_t i = 0; i < (size_t)3 * WIDE; i++) {
    r = r * 1664525u + 1013904223u;
    noise[i] = (double)(r >> 24);
  }
  put_set(file, &s, noise);
  free(noise);
  H5Fclose(file);
  compare_file("noise.h5", "x", NULL);
  // The filters in the other order, which no writer uses: libhdf5 reads it.
  file = create("noise.h5", 0, false);
  hid_t made = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(2, s.dim, NULL);
  H5Pset_chunk(made, 2, s.chunk);
  H5Pset_deflate(made, 1);
  H5Pset_shuffle(made);
  hid_t x = H5Dcreate2(file, "x", H5T_NATIVE_INT16, space, H5P_DEFAULT, made, H5P_DEFAULT);
  int16_t *values = malloc((size_t)3 * WIDE * sizeof *values);
  assert_non_null(values);
  for (size_t i = 0; i < (size_t)3 * WIDE; i++) {
    r = r * 1664525u + 1013904223u;
    values[i] = (int16_t)(r >> 16);
  }
  assert_true(H5Dwrite(x, H5T_NATIVE_INT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  free(values);
  H5Dclose(x);
  H5Pclose(made);
  H5Sclose(space);
  H5Fclose(file);
  compare_file("noise.h5", "x", NULL);
}

static void test_types_kept(void **state) {
  (void)state;
  opened o;
  char text[64];
  hid_t file = create("kept.h5", 0, false);
  set s = {.name = "images", .type = H5T_STD_U8LE, .rank = 4, .dim = {5, 4, 6, 3}};
  put_set(file, &s, NULL);
  H5Fclose(file);
  assert_ok(try_open("kept.h5", "train", NULL, &o));
  assert_int_equal(o.info.type, BRIM_SAMPLE_U8);
  assert_int_equal(o.info.rank, 3);
  assert_int_equal(o.info.dim[0], 4);
  assert_int_equal(o.info.dim[1], 6);
  assert_int_equal(o.info.dim[2], 3);
  assert_int_equal(o.info.channels, 0);
  assert_int_equal(o.info.costly, 0);
  assert_int_equal(o.info.classes, 0);
  assert_int_equal(o.info.target_dim, 0);
  assert_int_equal(brim_builtin_hdf5.host_bytes(o.state), 0);
  brim_source_hdf5.describe(o.state, 3, text, sizeof text);
  assert_string_equal(text, "kept.h5:/images[3]");
  assert_status(brim_source_hdf5.read(o.state, 5, text, NULL), BRIM_EINVAL);
  shut(&o);
  assert_ok(try_open("kept.h5", "train", "{\"limit\": 2}", &o));
  assert_int_equal(o.info.count, 2);
  shut(&o);
}

static void test_never_written(void **state) {
  (void)state;
  for (int which = 0; which < 10; which++) {
    hid_t file = create("holes.h5", 0, which % 2 == 0);
    set s = layout_of(which, H5T_STD_I16BE);
    s.fill = -7;
    s.written = which ? 6 : 0;
    put_set(file, &s, NULL);
    H5Fclose(file);
    compare_file("holes.h5", "x", NULL);
  }
  // Datasets without a written row: contiguous and chunked ones that were only declared.
  for (int chunked = 0; chunked < 2; chunked++) {
    opened o;
    hid_t file = create("declared.h5", 0, false);
    hsize_t dim[2] = {9, 3}, chunk[2] = {2, 3};
    hid_t space = H5Screate_simple(2, dim, NULL), made = H5Pcreate(H5P_DATASET_CREATE);
    double fill = 2.5;
    if (chunked) H5Pset_chunk(made, 2, chunk);
    H5Pset_fill_value(made, H5T_NATIVE_DOUBLE, &fill);
    H5Dclose(H5Dcreate2(file, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, made, H5P_DEFAULT));
    H5Pclose(made);
    H5Sclose(space);
    H5Fclose(file);
    float row[3];
    assert_ok(try_open("declared.h5", "train", NULL, &o));
    assert_ok(brim_source_hdf5.read(o.state, 8, row, NULL));
    assert_true(row[0] == 2.5f && row[2] == 2.5f);
    shut(&o);
  }
}

// Layouts that only libhdf5 reads: small sets come into memory, large ones are read a row at a time.
static void test_library(void **state) {
  (void)state;
  hid_t file = create("compact.h5", 0, false);
  set s = floats("x", 20, 6);
  s.compact = true;
  put_set(file, &s, NULL);
  H5Fclose(file);
  compare_file("compact.h5", "x", NULL);

  opened o;
  file = create("slow.h5", 0, false);
  hsize_t dim[2] = {1000, 20000}, chunk[2] = {100, 20000}, start[2] = {100, 0},
          count[2] = {3, 20000};
  hid_t space = H5Screate_simple(2, dim, NULL), made = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(made, 2, chunk);
  H5Pset_nbit(made);
  hid_t dataset = H5Dcreate2(file, "x", H5T_STD_I32LE, space, H5P_DEFAULT, made, H5P_DEFAULT);
  hid_t memory = H5Screate_simple(2, count, NULL);
  int32_t *values = malloc(3 * 20000 * sizeof *values);
  for (int i = 0; i < 3 * 20000; i++) values[i] = i;
  H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
  assert_true(H5Dwrite(dataset, H5T_NATIVE_INT32, memory, space, H5P_DEFAULT, values) >= 0);
  free(values);
  H5Dclose(dataset);
  H5Sclose(memory);
  H5Pclose(made);
  H5Sclose(space);
  H5Fclose(file);
  assert_ok(try_open("slow.h5", "train", NULL, &o));
  assert_int_equal(o.info.costly, 1);
  // one bit for each row, and for each child process a row and a message
  uint64_t children = (brim_builtin_hdf5.host_bytes(o.state) - 1000 / 8 - 1) / (20000 * 4 + 4096);
  assert_in_range(children, 1, 4);
  assert_int_equal(brim_builtin_hdf5.host_bytes(o.state),
                   1000 / 8 + 1 + children * (20000 * 4 + 4096));
  float *row = malloc(o.input_bytes);
  assert_ok(brim_source_hdf5.read(o.state, 101, row, NULL));
  assert_true(row[0] == 20000.f && row[19999] == 39999.f);
  assert_ok(brim_source_hdf5.read(o.state, 7, row, NULL));
  assert_true(row[5] == 0.f);
  free(row);
  shut(&o);
}

// The cache of unpacked chunks is as large as planned, never larger.
static void test_cache(void **state) {
  (void)state;
  opened o;
  hid_t file = create("cache.h5", 0, false);
  set s = floats("x", 256, 16);
  s.chunk[0] = 4;
  s.chunk[1] = 16;
  s.deflate = s.shuffle = true;
  put_set(file, &s, NULL);
  H5Fclose(file);
  brim_alloc_stats before, after;
  brim_alloc_get_stats(&before);
  for (int small = 0; small < 2; small++) {
    assert_ok(try_open("cache.h5", "train", small ? "{\"chunk_cache\": \"2KiB\"}" : NULL, &o));
    brim_alloc_get_stats(&after);
    assert_int_equal(after.live_bytes[BRIM_MEM_PLANNED] - before.live_bytes[BRIM_MEM_PLANNED],
                     brim_builtin_hdf5.host_bytes(o.state));
    assert_int_equal(o.info.costly, 1);
    float *expected = whole("cache.h5", "x");
    compare(&o, expected);
    free(expected);
    brim_alloc_stats later;
    brim_alloc_get_stats(&later);
    assert_int_equal(later.live_bytes[BRIM_MEM_PLANNED], after.live_bytes[BRIM_MEM_PLANNED]);
    shut(&o);
  }
  brim_alloc_get_stats(&after);
  assert_int_equal(after.live_bytes[BRIM_MEM_PLANNED], before.live_bytes[BRIM_MEM_PLANNED]);
}

// Each chunk is unpacked once if there is room for all of them.
static void test_unpacked_once(void **state) {
  (void)state;
  brim_hdf5_file file;
  brim_hdf5_array a;
  float row[16];
  for (int room = 0; room < 2; room++) {
    assert_ok(brim_hdf5_file_open("cache.h5", NULL, 0, false, &file));
    assert_int_equal(file.entry_count, 1);
    assert_ok(brim_hdf5_file_array(&file, &file.entries[0], 0, &a));
    assert_int_equal(a.where, BRIM_HDF5_PACKED);
    assert_int_equal(a.chunk_count, 64);
    brim_hdf5_array_pack(&a, 0);
    assert_ok(brim_hdf5_cache_create(&a, room ? 1 << 20 : 0, &a.cache));
    for (uint64_t i = 0; i < 3 * 256; i++) assert_ok(brim_hdf5_array_row(&a, i * 37 % 256, row));
    uint64_t misses = brim_hdf5_cache_misses(a.cache);
    if (room) {
      assert_int_equal(misses, 64);
    } else {
      assert_true(misses > 64);
    }
    brim_hdf5_file_close_array(&a);
    brim_hdf5_file_close(&file);
  }
}

//---------------------------------- damaged files ----------------------------------

static void damaged_file(const char *path, bool packed) {
  hid_t file = create(path, 0, false);
  set x = floats("x", 64, 64);
  if (packed) {
    x.chunk[0] = 8;
    x.chunk[1] = 64;
    x.shuffle = x.deflate = x.fletcher = true;
  }
  put_set(file, &x, NULL);
  put_labels(file, "y", 64, 3);
  H5Fclose(file);
}

static uint8_t *load(const char *path, size_t *size) {
  char *text;
  assert_ok(brim_fs_read(path, 0, &text, size));
  return (uint8_t *)text;
}

// Reads all rows: each has the expected values, or fails with an error that names the file. Returns the number of
// errors.
static int read_damaged(opened *o, const float *expected, const char *path) {
  int errors = 0;
  float row[64];
  int32_t label;
  for (uint64_t i = 0; i < o->info.count; i++) {
    if (brim_source_hdf5.read(o->state, i, row, &label)) {
      assert_detail(path);
      errors++;
    } else {
      assert_memory_equal(row, expected + i * 64, sizeof row);
    }
  }
  return errors;
}

static void test_cut_off(void **state) {
  (void)state;
  for (int packed = 0; packed < 2; packed++) {
    size_t size;
    opened o;
    damaged_file("whole.h5", packed);
    float *expected = whole("whole.h5", "x");
    uint8_t *content = load("whole.h5", &size);
    for (size_t length = 0; length < size; length += length < 64 ? 7 : 211) {
      if (!test_is_sampled(length * 2 + (size_t)packed, 4)) continue;
      write_bytes("cut.h5", content, length);
      brim_status status = try_open("cut.h5", "train", NULL, &o);
      if (status) {
        assert_detail("cut.h5");
      } else {
        (void)read_damaged(&o, expected, "cut.h5");
        shut(&o);
      }
    }
    // The file is truncated while it is open: lost rows fail, the process continues.
    write_bytes("live.h5", content, size);
    assert_ok(try_open("live.h5", "train", "{\"chunk_cache\": 0}", &o));
    assert_int_equal(read_damaged(&o, expected, "live.h5"), 0);
    assert_int_equal(truncate("live.h5", 4096), 0);
    assert_true(read_damaged(&o, expected, "live.h5: offset") > 0 || packed);
    shut(&o);
    brim_free(content);
    free(expected);
  }
}

static void test_flipped(void **state) {
  (void)state;
  size_t size;
  opened o;
  damaged_file("whole.h5", true);
  float *expected = whole("whole.h5", "x");
  uint8_t *content = load("whole.h5", &size);
  brim_hdf5_file file;
  brim_hdf5_array a;
  assert_ok(brim_hdf5_file_open("whole.h5", NULL, 0, false, &file));
  assert_ok(brim_hdf5_file_array(&file, &file.entries[0], 0, &a));
  for (uint64_t c = 0; c < a.chunk_count; c++) {
    for (uint32_t at = 0; at < a.chunks[c].bytes; at += 13) {
      if (!test_is_sampled(c << 32 | at, 5)) continue;
      uint8_t *p = content + a.chunks[c].address + at;
      *p ^= 0x10;
      write_bytes("flipped.h5", content, size);
      *p ^= 0x10;
      brim_status status = try_open("flipped.h5", "train", NULL, &o);
      if (status) {
        assert_detail("flipped.h5: /x: chunk");
        continue;
      }
      assert_int_equal(read_damaged(&o, expected, "flipped.h5: /x: chunk"), 8);
      shut(&o);
    }
  }
  brim_hdf5_file_close_array(&a);
  brim_hdf5_file_close(&file);
  brim_free(content);
  free(expected);
}

// Inconsistent layouts, which no library would write.
static void test_lying_layout(void **state) {
  (void)state;
  static uint8_t content[256];
  static char name[] = "/x";
  brim_map map;
  brim_map_memory(content, sizeof content, "lie", &map);
  brim_hdf5_chunk chunks[4] = {{200, 16, 0}, {0, 0, 0}, {16, 16, 0}, {240, 16, 0}};
  brim_hdf5_array good = {.map = &map,
                          .name = name,
                          .type = {BRIM_HDF5_F32, false},
                          .rank = 2,
                          .dim = {4, 4},
                          .where = BRIM_HDF5_CHUNKS,
                          .chunk = {1, 4},
                          .chunks = chunks};
  brim_hdf5_array a = good;
  assert_ok(brim_hdf5_array_shape(&a));
  assert_int_equal(a.chunk_count, 4);
  assert_ok(brim_hdf5_array_check(&a));
  chunks[3].address = 241;
  assert_status(brim_hdf5_array_check(&a), BRIM_EPARSE);
  assert_detail("lie: /x: chunk 3");
  chunks[3].address = UINT64_MAX - 3;
  assert_status(brim_hdf5_array_check(&a), BRIM_EPARSE);
  chunks[3] = (brim_hdf5_chunk){16, 15, 0};
  assert_status(brim_hdf5_array_check(&a), BRIM_EPARSE);
  a = good;
  a.where = BRIM_HDF5_MAPPED;
  a.offset = 193;
  assert_ok(brim_hdf5_array_shape(&a));
  assert_status(brim_hdf5_array_check(&a), BRIM_EPARSE);
  a.offset = 192;
  assert_ok(brim_hdf5_array_check(&a));
  a.dim[1] = (uint64_t)1 << 62;
  assert_status(brim_hdf5_array_shape(&a), BRIM_EPARSE);
  a = good;
  a.chunk[1] = 0;
  assert_status(brim_hdf5_array_shape(&a), BRIM_EPARSE);
  a = good;
  a.dim[0] = (uint64_t)1 << 40;
  assert_status(brim_hdf5_array_shape(&a), BRIM_ELIMIT);
}

static void test_out_of_memory(void **state) {
  (void)state;
  opened o;
  brim_alloc_stats before, after;
  damaged_file("memory.h5", true);
  brim_alloc_get_stats(&before);
  bool opened_once = false;
  for (uint64_t n = 1; n < 400 && !opened_once; n++) {
    brim_alloc_fail_nth(n, 1);
    brim_status status = try_open("memory.h5", "train", NULL, &o);
    brim_alloc_fail_nth(0, 0);
    if (!status) {
      opened_once = true;
      shut(&o);
    } else {
      assert_status(status, BRIM_ENOMEM);
    }
    brim_alloc_get_stats(&after);
    for (int tag = 0; tag < BRIM_MEM_TAG_COUNT; tag++)
      assert_int_equal(after.live_bytes[tag], before.live_bytes[tag]);
  }
  assert_true(opened_once);
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_types_and_layouts),
      cmocka_unit_test(test_conversion),
      cmocka_unit_test(test_noise),
      cmocka_unit_test(test_types_kept),
      cmocka_unit_test(test_never_written),
      cmocka_unit_test(test_library),
      cmocka_unit_test(test_cache),
      cmocka_unit_test(test_unpacked_once),
      cmocka_unit_test(test_cut_off),
      cmocka_unit_test(test_flipped),
      cmocka_unit_test(test_lying_layout),
      cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, hdf5_setup, NULL);
}
