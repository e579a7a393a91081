// h5py's lzf filter: files from the test's own packer, read by brim's unpacker, on its fast path and through libhdf5;
// and damaged packed bytes.
#include "hdf5_test.h"

enum { LZF = 32000 };

// A greedy packer, with copies from as far back as the format reaches. `out` has room for 2 n + 8.
static size_t pack(const uint8_t *in, size_t n, uint8_t *out) {
  size_t used = 0, plain = 0;
  for (size_t at = 0; at <= n;) {
    size_t best = 0, from = 0;
    for (size_t back = 1; at < n && back <= 8192 && back <= at; back++) {
      size_t k = 0;
      while (k < 264 && at + k < n && in[at + k] == in[at + k - back]) k++;
      if (k > best) best = k, from = back;
      if (back > 300) back += 400;  // far copies only now and then: fast enough for a test
    }
    bool copy = best >= 3;
    if ((copy || at == n || plain == 32) && plain) {
      out[used++] = (uint8_t)(plain - 1);
      memcpy(out + used, in + at - plain, plain);
      used += plain;
      plain = 0;
    }
    if (at == n) break;
    if (!copy) {
      plain++;
      at++;
      continue;
    }
    size_t length = best - 2, upper = length < 7 ? length : 7;
    out[used++] = (uint8_t)(upper << 5 | (from - 1) >> 8);
    if (upper == 7) out[used++] = (uint8_t)(length - 7);
    out[used++] = (uint8_t)((from - 1) & 255);
    at += best;
  }
  return used;
}

static size_t filter(unsigned flags, size_t n, const unsigned values[], size_t used, size_t *size,
                     void **data) {
  (void)n, (void)values;
  if (flags & H5Z_FLAG_REVERSE) return 0;  // brim's own unpacker
  uint8_t *out = H5allocate_memory(2 * used + 8, false);
  size_t packed = pack(*data, used, out);
  H5free_memory(*data);
  *data = out;
  *size = 2 * used + 8;
  return packed;
}

static void put_lzf(hid_t file, const char *name, hid_t type, int rank, const hsize_t *dim,
                    hsize_t chunk, bool shuffle, const void *data, hid_t memory) {
  hsize_t chunks[2] = {chunk, rank > 1 ? dim[1] : 1};
  hid_t made = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(rank, dim, NULL);
  unsigned values[3] = {4, 261, (unsigned)(chunks[0] * chunks[1] * H5Tget_size(type))};
  H5Pset_chunk(made, rank, chunks);
  if (shuffle) H5Pset_shuffle(made);
  assert_true(H5Pset_filter(made, LZF, H5Z_FLAG_OPTIONAL, 3, values) >= 0);
  if (shuffle) H5Pset_fletcher32(made);
  hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, made, H5P_DEFAULT);
  assert_true(H5Dwrite(dataset, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
  H5Dclose(dataset);
  H5Sclose(space);
  H5Pclose(made);
}

enum { MANY = 200, WIDE = 40 };
static float x[MANY][WIDE];
static int64_t y[MANY];

static void write_file(const char *path, bool shuffle) {
  static const H5Z_class2_t row = {H5Z_CLASS_T_VERS, LZF, 1, 1, "lzf", NULL, NULL, filter};
  assert_true(H5Zregister(&row) >= 0);
  for (int i = 0; i < MANY; i++) {
    for (int k = 0; k < WIDE; k++) x[i][k] = (float)((i * 31 + k * k) % 97) / 8;
    y[i] = i / 7 % 5;
  }
  hid_t file = create(path, 0, false);
  put_lzf(file, "x", H5T_IEEE_F32LE, 2, (const hsize_t[]){MANY, WIDE}, 16, shuffle, x,
          H5T_NATIVE_FLOAT);
  put_lzf(file, "y", H5T_STD_I64LE, 1, (const hsize_t[]){MANY}, 64, false, y, H5T_NATIVE_INT64);
  H5Fclose(file);
  assert_true(H5Zunregister(LZF) >= 0);
}

static void test_files(void **state) {
  (void)state;
  static const char *const files[] = {"plain.h5", "shuffled.h5"};
  for (int f = 0; f < 2; f++) {
    opened o;
    assert_ok(try_open(files[f], "train", NULL, &o));
    assert_int_equal(o.info.classes, 5);  // labels are read through libhdf5
    assert_int_equal(o.info.count, MANY);
    for (uint64_t i = 0; i < MANY; i++) {
      float got[WIDE];
      int32_t label;
      assert_ok(brim_source_hdf5.read(o.state, i, got, &label));
      assert_memory_equal(got, x[i], sizeof got);
      assert_int_equal(label, y[i]);
    }
    shut(&o);
  }
}

// Bytes packed by hand from the format: plain bytes, a short and a long copy, one that overlaps itself.
static void test_bytes(void **state) {
  (void)state;
  static const uint8_t packed[] = {2, 'a', 'b', 'c', 0x20, 2, 0, 'x', 0xe0, 3, 0};
  uint8_t out[64];
  size_t n = brim_hdf5_unpack_lzf(packed, sizeof packed, out, sizeof out);
  assert_int_equal(n, 3 + 3 + 1 + 12);
  assert_memory_equal(out, "abcabcxxxxxxxxxxxxx", n);
  // every cut and every wrong byte ends inside the buffer, whatever the result
  for (size_t cut = 0; cut < sizeof packed; cut++) {
    for (int byte = 0; byte < 256; byte++) {
      uint8_t odd[sizeof packed];
      memcpy(odd, packed, sizeof odd);
      odd[cut] = (uint8_t)byte;
      // of exact size, so that ASan finds any overrun
      uint8_t *room = malloc(9), *in = malloc(sizeof odd);
      memcpy(in, odd, sizeof odd);
      size_t got = brim_hdf5_unpack_lzf(in, cut, room, 9);
      assert_true(got == SIZE_MAX || got <= 9);
      got = brim_hdf5_unpack_lzf(in, sizeof odd, room, 9);
      assert_true(got == SIZE_MAX || got <= 9);
      free(in);
      free(room);
    }
  }
  static const uint8_t before[] = {0x20, 0};  // copies before the first byte
  assert_true(brim_hdf5_unpack_lzf(before, 2, out, sizeof out) == SIZE_MAX);
}

static void test_random(void **state) {
  (void)state;
  static uint8_t in[20000], packed[2 * sizeof in + 8], out[sizeof in];
  uint32_t r = 7;
  for (int round = 0; round < 40; round++) {
    size_t n = 1 + (size_t)(round * round * 12);
    for (size_t i = 0; i < n; i++) {
      r = r * 1664525u + 1013904223u;
      in[i] = (uint8_t)(r >> 24 & (round % 4 == 0 ? 255 : (1u << round % 4) - 1));
    }
    size_t size = pack(in, n, packed);
    assert_int_equal(brim_hdf5_unpack_lzf(packed, size, out, sizeof out), n);
    assert_memory_equal(in, out, n);
    assert_true(brim_hdf5_unpack_lzf(packed, size, out, n - 1) == SIZE_MAX);
  }
}

static void test_damage(void **state) {
  (void)state;
  hid_t file = H5Fopen("bad.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
  hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
  unsigned mask = 0;
  haddr_t at = 0;
  hsize_t size = 0;
  assert_true(H5Dget_chunk_info_by_coord(dataset, (const hsize_t[]){32, 0}, &mask, &at, &size) >=
              0);
  assert_int_equal(mask, 0);
  H5Dclose(dataset);
  H5Fclose(file);
  FILE *f = fopen("bad.h5", "r+b");
  assert_non_null(f);
  fseek(f, (long)at, SEEK_SET);
  for (int i = 0; i < 20; i++) fputc(0xff, f);
  fclose(f);
  opened o;
  assert_ok(try_open("bad.h5", "train", NULL, &o));
  for (uint64_t i = 0; i < MANY; i++) {
    float got[WIDE];
    int32_t label;
    brim_status want = i >= 32 && i < 48 ? BRIM_EPARSE : BRIM_OK;
    assert_status(brim_source_hdf5.read(o.state, i, got, &label), want);
  }
  assert_detail("damaged packed data");
  shut(&o);
}

// Must run before brim uses libhdf5, which knows brim's own filter from then on.
static int setup(void **state) {
  if (hdf5_setup(state)) return 1;
  write_file("plain.h5", false);
  write_file("shuffled.h5", true);
  write_file("bad.h5", false);
  return 0;
}

int main(void) {
  test_filter();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_files),
      cmocka_unit_test(test_bytes),
      cmocka_unit_test(test_random),
      cmocka_unit_test(test_damage),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
