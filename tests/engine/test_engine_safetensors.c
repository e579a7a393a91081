// Safetensors files: they read back as written, their bytes are as specified, and every kind of damage gives a message
// with the file and the byte or the entry.
#include <math.h>
#include <unistd.h>

#include "engine_test.h"

//---------------------------------- good files ----------------------------------

static void test_round_trip(void **state) {
  (void)state;
  const float a[6] = {1, 2, 3, 4, 5, 6};
  const uint16_t b[2] = {0x3f80, 0x4000};
  const int64_t c = -5;
  const brim_safetensors_entry entries[] = {
      {.name = "w\"eird \xc3\xa4",
       .dtype = BRIM_F32,
       .rank = 2,
       .dim = {2, 3},
       .data = a,
       .bytes = 24},
      {.name = "half", .dtype = BRIM_BF16, .rank = 1, .dim = {2}, .data = b, .bytes = 4},
      {.name = "scalar", .dtype = BRIM_I64, .rank = 0, .data = &c, .bytes = 8},
      {.name = "empty", .dtype = BRIM_U8, .rank = 2, .dim = {0, 7}, .data = a, .bytes = 0},
  };
  brim_json_setup();
  json_t *meta = json_object();
  assert_ok(brim_json_put(meta, "format", json_string("pt")));
  assert_ok(brim_safetensors_write("round.safetensors", entries, 4, meta));
  json_decref(meta);
  brim_safetensors *file;
  assert_ok(brim_safetensors_open("round.safetensors", &file));
  assert_int_equal(brim_safetensors_count(file), 4);
  assert_string_equal(json_string_value(json_object_get(brim_safetensors_metadata(file), "format")),
                      "pt");
  for (int i = 0; i < 4; i++) {
    const brim_safetensors_entry *e = brim_safetensors_find(file, entries[i].name);
    assert_non_null(e);
    assert_int_equal(e->dtype, entries[i].dtype);
    assert_int_equal(e->rank, entries[i].rank);
    for (int d = 0; d < e->rank; d++) assert_int_equal(e->dim[d], entries[i].dim[d]);
    assert_int_equal(e->bytes, entries[i].bytes);
    assert_memory_equal(e->data, entries[i].data, e->bytes);
  }
  assert_null(brim_safetensors_find(file, "nothing"));
  assert_null(brim_safetensors_at(file, 4));
  brim_safetensors_close(file);
  brim_safetensors_close(NULL);
  (void)unlink("round.safetensors");
}

// The exact bytes: length, JSON padded with spaces to 8, data.
static void test_layout(void **state) {
  (void)state;
  const float a[1] = {1.5f};
  brim_safetensors_entry e = {
      .name = "a", .dtype = BRIM_F32, .rank = 1, .dim = {1}, .data = a, .bytes = 4};
  assert_ok(brim_safetensors_write("layout.safetensors", &e, 1, NULL));
  char *text;
  size_t size;
  assert_ok(brim_fs_read("layout.safetensors", 0, &text, &size));
  const char json[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
  size_t padded = (sizeof json - 1 + 7) / 8 * 8;
  assert_int_equal(size, 8 + padded + 4);
  assert_int_equal((unsigned char)text[0], padded);
  for (int i = 1; i < 8; i++) assert_int_equal(text[i], 0);
  assert_memory_equal(text + 8, json, sizeof json - 1);
  for (size_t i = sizeof json - 1; i < padded; i++) assert_int_equal(text[8 + i], ' ');
  assert_memory_equal(text + 8 + padded, a, 4);
  brim_free(text);
  (void)unlink("layout.safetensors");
}

static void test_write_refuses(void **state) {
  (void)state;
  const float a[2] = {0};
  brim_safetensors_entry twice[] = {
      {.name = "a", .dtype = BRIM_F32, .rank = 1, .dim = {1}, .data = a, .bytes = 4},
      {.name = "a", .dtype = BRIM_F32, .rank = 1, .dim = {1}, .data = a, .bytes = 4}};
  const char *path = "refused.safetensors";
  assert_status(brim_safetensors_write(path, twice, 2, NULL), BRIM_EINVAL);
  twice[0].bytes = 8;
  assert_status(brim_safetensors_write(path, twice, 1, NULL), BRIM_EINVAL);
  twice[0].bytes = 4;
  json_t *meta = json_object();
  assert_ok(brim_json_put(meta, "epoch", json_integer(3)));
  assert_status(brim_safetensors_write(path, twice, 1, meta), BRIM_EINVAL);
  json_decref(meta);
  assert_false(brim_fs_exists(path));
  assert_status(brim_safetensors_write("no/such/folder/x", twice, 1, NULL), BRIM_ENOENT);
}

//---------------------------------- bad files ----------------------------------

typedef struct bad_file {
  const char *header;
  size_t data;       // bytes after it
  const char *text;  // in the message, after the file's name
} bad_file;

#define ENTRY(dtype, shape, from, to) \
  "{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

static const bad_file bad_files[] = {
    {"", 0, "byte 8: the header does not begin"},
    {"[]", 0, "byte 8: the header does not begin"},
    {" {}", 0, "byte 8: the header does not begin"},
    {"{", 0, "header"},
    {"{}x", 0, "header"},
    {"{\"a\":}", 0, "header"},
    {"{\"a\":1}", 0, "entry 'a' is not an object"},
    {"{}", 4, "byte 10: 4 bytes at the end belong to no entry"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "entry 'a': dtype is missing"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "entry 'a': shape is missing"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "entry 'a': data_offsets is missing"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":0}}", 4,
     "entry 'a': unknown key 'x'"},
    {"{\"a\":" ENTRY("\"F33\"", "[1]", 0, 4) "}", 4, "entry 'a': dtype 'F33'"},
    {"{\"a\":" ENTRY("\"BOOL\"", "[4]", 0, 4) "}", 4, "entry 'a': dtype 'BOOL'"},
    {"{\"a\":" ENTRY("5", "[1]", 0, 4) "}", 4, "entry 'a': dtype is not a string"},
    {"{\"a\":" ENTRY("\"F32\"", "1", 0, 4) "}", 4, "entry 'a': shape is not a list"},
    {"{\"a\":" ENTRY("\"F32\"", "[-1]", 0, 4) "}", 4, "entry 'a': dimension 0 is not a size"},
    {"{\"a\":" ENTRY("\"F32\"", "[1.0]", 0, 4) "}", 4, "entry 'a': dimension 0 is not a size"},
    {"{\"a\":" ENTRY("\"F32\"", "[1,1,1,1,1,1,1]", 0, 4) "}", 4, "entry 'a': rank 7"},
    {"{\"a\":" ENTRY("\"F32\"", "[4611686018427387904,4]", 0, 4) "}", 4,
     "entry 'a': its shape needs more bytes"},
    {"{\"a\":" ENTRY("\"F32\"", "[2]", 0, 4) "}", 4, "entry 'a': 4 bytes of data"},
    {"{\"a\":" ENTRY("\"F32\"", "[2]", 0, 8) "}", 4, "entry 'a': data_offsets 0 to 8"},
    {"{\"a\":" ENTRY("\"F32\"", "[1]", 4, 0) "}", 4, "entry 'a': data_offsets 4 to 0"},
    {"{\"a\":" ENTRY("\"F32\"", "[1]", -4, 0) "}", 4, "entry 'a': data_offsets -4 to 0"},
    {"{\"a\":" ENTRY("\"F32\"", "[1]", 0, 4.0) "}", 4, "entry 'a': data_offsets are not two"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4,
     "entry 'a': data_offsets are not two"},
    {"{\"a\":" ENTRY("\"F32\"", "[1]", 0, 9223372036854775807) "}", 4, "data_offsets 0 to 92"},
    {"{\"a\":" ENTRY("\"F32\"", "[1]", 0, 99999999999999999999) "}", 4, "header"},
    {"{\"a\":" ENTRY("\"F32\"", "[2]", 0, 8) ",\"b\":" ENTRY("\"F32\"", "[2]", 4, 12) "}", 12,
     "entry 'b' overlaps 'a'"},
    {"{\"a\":" ENTRY("\"F32\"", "[1]", 0, 4) ",\"b\":" ENTRY("\"F32\"", "[1]", 0, 4) "}", 4,
     "entry 'b' overlaps 'a'"},
    {"{\"a\":" ENTRY("\"F32\"", "[1]", 0, 4) ",\"b\":" ENTRY("\"F32\"", "[1]", 8, 12) "}", 12,
     "4 bytes before entry 'b' belong to no entry"},
    {"{\"a\":" ENTRY("\"F32\"", "[1]", 4, 8) "}", 8, "4 bytes before entry 'a'"},
    {"{\"a\":" ENTRY("\"F32\"", "[1]", 0, 4) "}", 9, "5 bytes at the end belong to no entry"},
    {"{\"a\":" ENTRY("\"F32\"", "[1]", 0, 4) ",\"a\":" ENTRY("\"F32\"", "[1]", 0, 4) "}", 4,
     "\"a\" appears twice"},
    {"{\"\xff\":" ENTRY("\"F32\"", "[1]", 0, 4) "}", 4, "header"},
    {"{\"__metadata__\":5}", 0, "entry '__metadata__' is not an object"},
    {"{\"__metadata__\":{\"k\":5}}", 0, "entry '__metadata__': 'k' is not a string"},
};

static size_t make_file(const char *header, size_t data, unsigned char *out) {
  size_t n = strlen(header);
  for (int i = 0; i < 8; i++) out[i] = (unsigned char)(n >> (8 * i));
  memcpy(out + 8, header, n);
  memset(out + 8 + n, 0x11, data);
  return 8 + n + data;
}

static brim_status open_bytes(const unsigned char *bytes, size_t size, brim_safetensors **out) {
  FILE *f = fopen("x.safetensors", "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(bytes, 1, size, f), size);
  assert_int_equal(fclose(f), 0);
  return brim_safetensors_open("x.safetensors", out);
}

static void expect_bad(const unsigned char *bytes, size_t size, const char *text) {
  brim_safetensors *file = NULL;
  assert_status(open_bytes(bytes, size, &file), BRIM_EPARSE);
  assert_null(file);
  const char *detail = brim_status_detail();
  if (!strstr(detail, "x.safetensors") || !strstr(detail, text)) {
    fail_msg("the message is '%s', expected '%s' in it", detail, text);
  }
}

static void test_bad_files(void **state) {
  (void)state;
  unsigned char bytes[4096];
  for (size_t i = 0; i < sizeof bad_files / sizeof bad_files[0]; i++) {
    size_t size = make_file(bad_files[i].header, bad_files[i].data, bytes);
    expect_bad(bytes, size, bad_files[i].text);
  }
}

static void test_lying_lengths(void **state) {
  (void)state;
  unsigned char bytes[256];
  size_t size = make_file("{\"a\":" ENTRY("\"F32\"", "[1]", 0, 4) "}", 4, bytes);
  brim_safetensors *file;
  assert_ok(open_bytes(bytes, size, &file));
  brim_safetensors_close(file);
  // Every truncation is an error, never a crash.
  for (size_t n = 0; n < size; n++) expect_bad(bytes, n, n < 8 ? "ends within" : "");
  bytes[0] = 255;
  expect_bad(bytes, size, "byte 0: a header of 255 bytes, but the file has only");
  memset(bytes, 0xff, 8);
  expect_bad(bytes, size, "byte 0: a header of more than");
  memcpy(bytes, "PK\x03\x04\x00\x00\x08\x08", 8);
  expect_bad(bytes, size, "a torch.save file, not safetensors");
  memcpy(bytes, "\x80\x02\x8a\x0alFj\xf9", 8);
  expect_bad(bytes, size, "safetensors.torch.save_file");
  memset(bytes, 0, 8);
  expect_bad(bytes, size, "byte 8");
}

// A header of some megabytes may consist of small values, which would take gigabytes.
static void test_large_headers(void **state) {
  (void)state;
  const size_t length = 12 << 20;
  unsigned char *bytes = (unsigned char *)brim_alloc(length + 8);
  assert_non_null(bytes);
  for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(length >> 8 * i);
  memset(bytes + 8, ' ', length);
  memcpy(bytes + 8, "{\"a\":[", 6);
  for (size_t i = 14; i + 3 < length; i += 3) memcpy(bytes + i, "{},", 3);
  expect_bad(bytes, length + 8, "values");
  bytes[3] = 2;  // 32 MiB
  expect_bad(bytes, length + 8, "byte 0: a header of more than");
  brim_free(bytes);
}

static void test_open_refuses(void **state) {
  (void)state;
  brim_safetensors *file;
  assert_status(brim_safetensors_open("not-there.safetensors", &file), BRIM_ENOENT);
  assert_non_null(strstr(brim_status_detail(), "not-there.safetensors"));
  assert_status(brim_safetensors_open(".", &file), BRIM_EINVAL);
  assert_ok(brim_fs_write("empty.safetensors", "", 0));
  assert_status(brim_safetensors_open("empty.safetensors", &file), BRIM_EPARSE);
  assert_non_null(strstr(brim_status_detail(), "empty.safetensors: byte 0"));
  (void)unlink("empty.safetensors");
}

// Weights that are not finite are found, in any tensor and at any place.
static void test_not_finite(void **state) {
  (void)state;
  static const float bad[] = {NAN, INFINITY, -INFINITY};
  for (int i = 0; i < 3; i++) {
    const float values[4] = {1, 2, 3, bad[i]};
    const double other = INFINITY;  // of another type, so not weights
    const brim_safetensors_entry entries[] = {
        {.name = "a", .dtype = BRIM_F64, .rank = 0, .data = &other, .bytes = 8},
        {.name = "w", .dtype = BRIM_F32, .rank = 1, .dim = {4}, .data = values, .bytes = 16}};
    brim_safetensors *file = NULL;
    assert_ok(brim_safetensors_write("bad.safetensors", entries, 2, NULL));
    assert_ok(brim_safetensors_open("bad.safetensors", &file));
    assert_status(brim_safetensors_finite(file, NULL), BRIM_EINVAL);
    assert_non_null(strstr(brim_status_detail(), "element 3"));
    assert_status(brim_safetensors_finite(file, brim_safetensors_find(file, "w")), BRIM_EINVAL);
    assert_ok(brim_safetensors_finite(file, brim_safetensors_find(file, "a")));
    brim_safetensors_close(file);
  }
  (void)unlink("bad.safetensors");
}

//---------------------------------- cut short while it is read ----------------------------------

static const char *cut_path;  // cut to 64 bytes after the first part was read
static size_t most_at_once;   // bytes of a read; 0 = all requested
ssize_t __real_pread(int fd, void *to, size_t size, off_t offset);
ssize_t __wrap_pread(int fd, void *to, size_t size, off_t offset);
ssize_t __wrap_pread(int fd, void *to, size_t size, off_t offset) {
  if (most_at_once && size > most_at_once) size = most_at_once;
  ssize_t n = __real_pread(fd, to, size, offset);
  if (cut_path) assert_int_equal(truncate(cut_path, 64), 0);
  return n;
}

static void test_cut_short(void **state) {
  (void)state;
  enum { COUNT = 5000 };
  static float values[COUNT];
  for (int i = 0; i < COUNT; i++) values[i] = (float)i;
  const brim_safetensors_entry e = {.name = "w",
                                    .dtype = BRIM_F32,
                                    .rank = 1,
                                    .dim = {COUNT},
                                    .data = values,
                                    .bytes = sizeof values};
  const char *path = "cut.safetensors";
  brim_safetensors *file = NULL;
  // while it is being read: an error with that reason
  assert_ok(brim_safetensors_write(path, &e, 1, NULL));
  cut_path = path;
  most_at_once = 4096;
  assert_status(brim_safetensors_open(path, &file), BRIM_EIO);
  assert_null(file);
  assert_non_null(
      strstr(brim_status_detail(), "cut.safetensors: byte 4096: the file became shorter"));
  cut_path = NULL;
  // in pieces, but complete
  assert_ok(brim_safetensors_write(path, &e, 1, NULL));
  assert_ok(brim_safetensors_open(path, &file));
  most_at_once = 0;
  // after it was opened: the copy stays valid, while a mapped page would raise a signal
  assert_int_equal(truncate(path, 64), 0);
  assert_ok(brim_safetensors_finite(file, NULL));
  assert_ok(brim_safetensors_verify(file));
  assert_memory_equal(brim_safetensors_find(file, "w")->data, values, sizeof values);
  brim_safetensors_close(file);
  (void)unlink(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip),    cmocka_unit_test(test_layout),
      cmocka_unit_test(test_write_refuses), cmocka_unit_test(test_bad_files),
      cmocka_unit_test(test_lying_lengths), cmocka_unit_test(test_large_headers),
      cmocka_unit_test(test_open_refuses),  cmocka_unit_test(test_not_finite),
      cmocka_unit_test(test_cut_short),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
