// NumPy files: wrong headers, the role of each array, values of every type, labels as classes or as numbers, archives
// plain and compressed, and damaged ones.
#include <math.h>
#include <unistd.h>

#include "data/data_int.h"
#include "data_test.h"

//---------------------------------- files made by hand ----------------------------------

static void put_le(bytes *b, uint64_t v, int n) {
  for (int i = 0; i < n; i++) {
    uint8_t byte = (uint8_t)(v >> (8 * i));
    put(b, &byte, 1);
  }
}

// Makes a .npy file of version 1 with this text as its header.
static void make_text(const char *text, const void *body, size_t size, bytes *out) {
  out->size = 0;
  put(out, "\x93NUMPY\1\0", 8);
  put_le(out, strlen(text), 2);
  put(out, text, strlen(text));
  put(out, body, size);
}

static void make_npy(const char *descr, const char *shape, const void *body, size_t size,
                     bytes *out) {
  char text[256];
  snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", descr,
           shape);
  make_text(text, body, size, out);
}

static void write_npy(const char *path, const char *descr, const char *shape, const void *body,
                      size_t size) {
  static bytes b;
  make_npy(descr, shape, body, size, &b);
  write_bytes(path, b.data, b.size);
}

typedef struct archive {
  bytes data, list;
  int count;
} archive;

static void add_member(archive *a, const char *name, const bytes *file, bool deflated) {
  static bytes packed;
  packed.size = 0;
  z_stream z;
  memset(&z, 0, sizeof z);
  assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  z.next_in = (Bytef *)(uintptr_t)file->data;
  z.avail_in = (unsigned)file->size;
  z.next_out = packed.data;
  z.avail_out = sizeof packed.data;
  assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
  packed.size = sizeof packed.data - z.avail_out;
  deflateEnd(&z);
  const bytes *body = deflated ? &packed : file;
  size_t at = a->data.size;
  for (int list = 0; list < 2; list++) {
    bytes *to = list ? &a->list : &a->data;
    put(to, list ? "PK\1\2" : "PK\3\4", 4);
    if (list) put_le(to, 20, 2);
    put_le(to, 20, 2);
    put_le(to, 0, 2);
    put_le(to, deflated ? 8 : 0, 2);
    put_le(to, 0, 4);
    put_le(to, crc32(0, file->data, (unsigned)file->size), 4);
    put_le(to, body->size, 4);
    put_le(to, file->size, 4);
    put_le(to, strlen(name), 2);
    put_le(to, list ? 0 : 4, 2);  // numpy's local headers have an extra field
    if (list) {
      put_le(to, 0, 8);
      put_le(to, 0, 2);
      put_le(to, at, 4);
    }
    put(to, name, strlen(name));
    if (!list) put_le(to, 0, 4);
  }
  put(&a->data, body->data, body->size);
  a->count++;
}

static void end_archive(archive *a) {
  size_t at = a->data.size;
  put(&a->data, a->list.data, a->list.size);
  put(&a->data, "PK\5\6", 4);
  put_le(&a->data, 0, 4);
  put_le(&a->data, (uint64_t)a->count, 2);
  put_le(&a->data, (uint64_t)a->count, 2);
  put_le(&a->data, a->list.size, 4);
  put_le(&a->data, at, 4);
  put_le(&a->data, 0, 2);
}

static void clean(void) { assert_int_equal(system("rm -rf set && mkdir set"), 0); }

static brim_status open_set(const brim_argument *args, size_t count, const char *path,
                            const char *split, brim_source **out) {
  return open_source("numpy", args, count, path, split, out);
}

//---------------------------------- headers ----------------------------------

static void test_bad_headers(void **state) {
  (void)state;
  static const struct {
    const char *text, *says;
    brim_status status;
  } bad[] = {
      {"", "damaged", BRIM_EPARSE},
      {"{", "damaged", BRIM_EPARSE},
      {"{}", "damaged", BRIM_EPARSE},
      {"{'descr': '<f4", "damaged", BRIM_EPARSE},
      {"{'descr': '<f4', 'shape': (2,), }", "damaged", BRIM_EPARSE},
      {"{'descr': '<f4', 'descr': '<f4', 'shape': (2,)}", "damaged", BRIM_EPARSE},
      {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2,)}", "damaged", BRIM_EPARSE},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2", "damaged", BRIM_EPARSE},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", "damaged", BRIM_EPARSE},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2 2)}", "damaged", BRIM_EPARSE},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", "damaged",
       BRIM_EPARSE},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4)}",
       "more than memory", BRIM_EPARSE},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': ()}", "single number", BRIM_EPARSE},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 2)}", "without elements",
       BRIM_EPARSE},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", "header says", BRIM_EPARSE},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "header says", BRIM_EPARSE},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,2)}", "axes",
       BRIM_EUNSUPPORTED},
      {"{'descr': '<f2', 'fortran_order': True, 'shape': (2, 2)}", "'<f2'", BRIM_EUNSUPPORTED},
      {"{'descr': '|u1', 'fortran_order': True, 'shape': (2, 4)}", "ascontiguousarray",
       BRIM_EUNSUPPORTED},
      {"{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", "numpy.stack", BRIM_EUNSUPPORTED},
      {"{'descr': '<U0', 'fortran_order': False, 'shape': (2,)}", "'<U0'", BRIM_EUNSUPPORTED},
      {"{'descr': '<U', 'fortran_order': False, 'shape': (2,)}", "'<U'", BRIM_EUNSUPPORTED},
      {"{'descr': '<U4294967296', 'fortran_order': False, 'shape': (2,)}", "'<U4294967296'",
       BRIM_EUNSUPPORTED},
      {"{'descr': '|S5', 'fortran_order': False, 'shape': (2,)}", "header says", BRIM_EPARSE},
      {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", "structured",
       BRIM_EUNSUPPORTED},
      {"{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}", "'>f4'", BRIM_EUNSUPPORTED},
      {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", "'<c8'", BRIM_EUNSUPPORTED},
      {"{'descr': '', 'fortran_order': False, 'shape': (1,)}", "type ''", BRIM_EUNSUPPORTED},
  };
  static bytes b;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    brim_npy npy;
    make_text(bad[i].text, "12345678", 8, &b);
    uint8_t *copy = malloc(b.size);  // of exact size, so that ASan finds any overrun
    memcpy(copy, b.data, b.size);
    print_message("%s\n", bad[i].text);
    assert_status(brim_npy_parse(copy, b.size, b.size, "some.npy", &npy), bad[i].status);
    free(copy);
    assert_detail("some.npy");
    assert_detail(bad[i].says);
  }
  make_text("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "12345678", 8, &b);
  for (size_t n = 0; n < b.size; n++) {  // cut at any byte
    brim_npy npy;
    uint8_t *copy = malloc(n ? n : 1);
    memcpy(copy, b.data, n);
    assert_status(brim_npy_parse(copy, n, n, "some.npy", &npy), BRIM_EPARSE);
    free(copy);
  }
}

static void test_good_headers(void **state) {
  (void)state;
  static bytes b;
  brim_npy npy;
  // other orders and quotes, no trailing commas; one column is in both orders
  make_text("{\"shape\": (8L, 1), \"fortran_order\": True, \"descr\": \"|u1\"}", "12345678", 8, &b);
  assert_ok(brim_npy_parse(b.data, b.size, b.size, "x", &npy));
  assert_int_equal(npy.rank, 2);
  assert_int_equal(npy.dim[0], 8);
  assert_int_equal(npy.body_bytes, 8);
  // version 2 stores the length in 4 bytes
  bytes *two = calloc(1, sizeof *two);
  const char *text = "{'descr': '<i2', 'fortran_order': False, 'shape': (4,), }\n";
  put(two, "\x93NUMPY\2\0", 8);
  put_le(two, strlen(text), 4);
  put(two, text, strlen(text));
  put(two, "12345678", 8);
  assert_ok(brim_npy_parse(two->data, two->size, two->size, "x", &npy));
  assert_int_equal(npy.element_bytes, 2);
  free(two);
}

//---------------------------------- values ----------------------------------

static void test_types(void **state) {
  (void)state;
  static const struct {
    const char *descr;
    uint8_t data[8];
    size_t bytes;
    float value[2];
  } types[] = {
      {"|i1", {0xff, 7}, 1, {-1, 7}},
      {"|b1", {1, 0}, 1, {1, 0}},
      {"<i2", {0xfe, 0xff, 0, 1}, 2, {-2, 256}},
      {"<u2", {0xff, 0xff, 1, 0}, 2, {65535, 1}},
      {"<i4", {0xff, 0xff, 0xff, 0xff, 5}, 4, {-1, 5}},
      {"<f4", {0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0}, 4, {1, -2}},
  };
  clean();
  write_npy("set/y.npy", "<i8", "(2,)", (int64_t[]){0, 1}, 16);
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    brim_source *s;
    print_message("%s\n", types[i].descr);
    write_npy("set/x.npy", types[i].descr, "(2, 1)", types[i].data, 2 * types[i].bytes);
    assert_ok(open_set(NULL, 0, "set", "train", &s));
    assert_int_equal(s->info.type, BRIM_SAMPLE_F32);
    for (uint64_t k = 0; k < 2; k++) {
      float x;
      int32_t y;
      assert_ok(brim_source_read(s, k, 1, &x, &y, NULL, NULL));
      assert_true(x == types[i].value[k]);
      assert_int_equal(y, k);
    }
    brim_source_close(s);
  }
  double wide[4] = {1.5, -2.5, 3, 4};
  brim_source *s;
  write_npy("set/x.npy", "<f8", "(2, 2)", wide, sizeof wide);
  assert_ok(open_set(NULL, 0, "set", "train", &s));
  float row[2];
  int32_t label;
  assert_ok(brim_source_read(s, 0, 1, row, &label, NULL, NULL));
  assert_true(row[0] == 1.5f && row[1] == -2.5f);
  brim_source_close(s);
}

// Bytes stay bytes; channels first becomes channels last; each channel has its own mean.
static void test_images(void **state) {
  (void)state;
  clean();
  uint8_t first[2 * 3 * 6 * 6], y[2] = {0, 1}, row[108];
  for (size_t i = 0; i < sizeof first; i++) first[i] = (uint8_t)(i % 108 / 36 * 50);
  brim_source *s;
  int32_t label;
  write_npy("set/images.npy", "|u1", "(2, 3, 6, 6)", first, sizeof first);
  write_npy("set/labels.npy", "|u1", "(2, 1)", y, 2);
  assert_ok(open_set(NULL, 0, "set", "train", &s));
  assert_int_equal(s->info.type, BRIM_SAMPLE_U8);
  assert_int_equal(s->info.dim[0], 6);
  assert_int_equal(s->info.dim[2], 3);
  assert_int_equal(s->info.classes, 2);
  for (int c = 0; c < 3; c++) assert_true(fabs((double)s->info.mean[c] - 50 * c / 255.0) < 1e-6);
  assert_ok(brim_source_read(s, 1, 1, row, &label, NULL, NULL));
  for (size_t i = 0; i < sizeof row; i++) assert_int_equal(row[i], i % 3 * 50);
  brim_source_close(s);
  brim_argument stored = arg_string("layout", "NHWC");
  assert_ok(open_set(&stored, 1, "set", "train", &s));
  assert_int_equal(s->info.dim[0], 3);
  brim_source_close(s);
}

//---------------------------------- labels ----------------------------------

typedef struct label_case {
  const char *descr, *shape;
  const void *data;
  size_t bytes;
  int64_t classes;  // the argument; -1 = none
  int64_t want_classes, want_dim;
  bool binary;
} label_case;

static void test_labels(void **state) {
  (void)state;
  static const int64_t plain[] = {0, 2, 1, 0}, years[] = {1990, 2001, 2020, 1985};
  static const float whole[] = {0, 1, 2, 1}, real[] = {0.5f, 1, 2, 3};
  static const uint8_t several[] = {0, 1, 1, 0, 0, 0, 1, 1};
  static const label_case cases[] = {
      {"<i8", "(4,)", plain, 32, -1, 3, 0, false},   {"<i8", "(4, 1)", plain, 32, -1, 3, 0, false},
      {"<i8", "(4,)", plain, 32, 5, 5, 0, false},    {"<i8", "(4,)", plain, 32, 0, 0, 1, false},
      {"<i8", "(4,)", years, 32, -1, 0, 1, false},   {"<f4", "(4,)", whole, 16, -1, 0, 1, false},
      {"<f4", "(4,)", whole, 16, 3, 3, 0, false},    {"<f4", "(4,)", real, 16, -1, 0, 1, false},
      {"|u1", "(4, 2)", several, 8, -1, 0, 2, true}, {"|b1", "(4, 2)", several, 8, 0, 0, 2, false},
  };
  clean();
  write_npy("set/x.npy", "<f4", "(4, 1)", real, sizeof real);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const label_case *c = &cases[i];
    brim_argument classes = arg_int("classes", c->classes);
    brim_source *s;
    print_message("case %zu\n", i);
    write_npy("set/y.npy", c->descr, c->shape, c->data, c->bytes);
    assert_ok(open_set(&classes, c->classes >= 0, "set", "train", &s));
    assert_int_equal(s->info.classes, c->want_classes);
    assert_int_equal(s->info.target_dim, c->want_dim);
    assert_int_equal(s->binary_targets, c->binary);
    float x, target[2];
    assert_ok(brim_source_read(s, 1, 1, &x, target, NULL, NULL));
    if (c->want_dim && c->descr[1] == 'i') {
      assert_true(target[0] == (float)((const int64_t *)c->data)[1]);
    }
    brim_source_close(s);
  }
  brim_source *s;
  brim_argument two = arg_int("classes", 2);
  write_npy("set/y.npy", "<i8", "(4,)", plain, 32);
  assert_status(open_set(&two, 1, "set", "train", &s), BRIM_EPARSE);
  assert_detail("sample 1");
  write_npy("set/y.npy", "<f4", "(4,)", real, 16);
  assert_status(open_set(&two, 1, "set", "train", &s), BRIM_EPARSE);
  write_npy("set/y.npy", "<i8", "(4,)", (int64_t[]){0, 1, -1, 0}, 32);
  assert_status(open_set(NULL, 0, "set", "train", &s), BRIM_EPARSE);
  assert_detail("label -1 of sample 2");
  write_npy("set/y.npy", "<i8", "(3,)", plain, 24);
  assert_status(open_set(NULL, 0, "set", "train", &s), BRIM_EPARSE);
  assert_detail("3 labels for the 4 samples");
}

// Text in numpy's form: code points of 4 bytes, or bytes, padded with zeros.
static void write_text_labels(const char *path, char kind, bool big, const uint32_t (*text)[4],
                              size_t rows) {
  static bytes body;
  char descr[8], shape[32];
  body.size = 0;
  for (size_t i = 0; i < rows; i++) {
    for (int k = 0; k < 4; k++) {
      uint8_t p[4];
      for (int b = 0; b < 4; b++) p[b] = (uint8_t)(text[i][k] >> 8 * (big ? 3 - b : b));
      put(&body, kind == 'U' ? p : &p[big ? 3 : 0], kind == 'U' ? 4 : 1);
    }
  }
  snprintf(descr, sizeof descr, "%s%c4", kind == 'S' ? "|" : big ? ">" : "<", kind);
  snprintf(shape, sizeof shape, "(%zu,)", rows);
  write_npy(path, descr, shape, body.data, body.size);
}

static void check_text(const char *split, const int32_t *want, size_t rows, const char *first) {
  brim_source *s;
  brim_arena *arena = NULL;
  const char *const *names = NULL;
  assert_ok(open_set(NULL, 0, "set", split, &s));
  assert_int_equal(s->info.classes, 3);
  assert_int_equal(s->info.target_dim, 0);
  assert_int_equal(s->info.count, rows);
  for (size_t i = 0; i < rows; i++) {
    float x;
    int32_t label = -1;
    assert_ok(brim_source_read(s, i, 1, &x, &label, NULL, NULL));
    assert_int_equal(label, want[i]);
  }
  assert_ok(brim_arena_create(0, &arena));
  assert_ok(brim_source_class_names(arena, s, NULL, "set", split, &names));
  assert_non_null(names);
  assert_string_equal(names[0], first);
  assert_string_equal(names[2], "dog");
  brim_arena_destroy(arena);
  brim_source_close(s);
}

static void test_text_labels(void **state) {
  (void)state;
  static const uint32_t train[4][4] = {{'d', 'o', 'g'}, {'a'}, {'c', 'a', 't'}, {'d', 'o', 'g'}};
  static const uint32_t test[2][4] = {{'d', 'o', 'g'}, {'c', 'a', 't'}};
  static const uint32_t wide[3][4] = {{0xe9, 0x20ac, 0x1f600, 'z'}, {'b'}, {0xff21}};
  static const uint32_t empty[2][4] = {{'a'}, {0}}, odd[2][4] = {{'a'}, {'b', 0xd800}};
  static const int32_t want[4] = {2, 0, 1, 2}, test_want[2] = {2, 1};
  static const float x[4] = {1, 2, 3, 4};
  brim_source *s;
  brim_argument classes = arg_int("classes", 0);
  for (int k = 0; k < 3; k++) {
    char kind = k == 2 ? 'S' : 'U';
    clean();
    write_npy("set/x_train.npy", "<f4", "(4, 1)", x, 16);
    write_npy("set/x_test.npy", "<f4", "(2, 1)", x, 8);
    write_text_labels("set/y_train.npy", kind, k == 1, train, 4);
    write_text_labels("set/y_test.npy", kind, k == 1, test, 2);
    check_text("train", want, 4, "a");
    check_text("test", test_want, 2, "a");  // numbered by the training split
    check_text("val", test_want, 2, "a");
    assert_status(open_set(&classes, 1, "set", "train", &s), BRIM_EINVAL);
    write_text_labels("set/y_test.npy", kind, k == 1, (const uint32_t[2][4]){{'a'}, {'y'}}, 2);
    assert_status(open_set(NULL, 0, "set", "test", &s), BRIM_EPARSE);
    assert_detail("'y'");
    write_text_labels("set/y_test.npy", kind, k == 1, empty, 2);
    assert_status(open_set(NULL, 0, "set", "test", &s), BRIM_EPARSE);
    assert_detail("[1]");
  }
  clean();
  write_npy("set/x.npy", "<f4", "(3, 1)", x, 12);
  write_text_labels("set/y.npy", 'U', false, wide, 3);
  assert_ok(open_set(NULL, 0, "set", "train", &s));
  brim_arena *arena = NULL;
  const char *const *names = NULL;
  assert_ok(brim_arena_create(0, &arena));
  assert_ok(brim_source_class_names(arena, s, NULL, "set", "train", &names));
  assert_string_equal(names[0], "b");
  assert_string_equal(names[1], "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z");
  assert_string_equal(names[2], "\xef\xbc\xa1");
  brim_arena_destroy(arena);
  brim_source_close(s);
  write_npy("set/x.npy", "<f4", "(2, 1)", x, 8);
  write_text_labels("set/y.npy", 'U', false, odd, 2);  // half of a pair
  assert_status(open_set(NULL, 0, "set", "train", &s), BRIM_EPARSE);
  assert_detail("[1]");
  write_text_labels("set/x.npy", 'U', false, test, 2);
  assert_status(open_set(NULL, 0, "set", "train", &s), BRIM_EUNSUPPORTED);
  assert_detail("inputs=NAME");
  // ids
  static uint32_t ids[40][4];
  static float rows[40];
  for (uint32_t i = 0; i < 40; i++) ids[i][0] = 'a' + i;
  clean();
  write_npy("set/x.npy", "<f4", "(40, 1)", rows, sizeof rows);
  write_text_labels("set/y.npy", 'U', false, (const uint32_t(*)[4])ids, 40);
  assert_status(open_set(NULL, 0, "set", "train", &s), BRIM_EINVAL);
  assert_detail("targets=none");
  classes = arg_int("classes", 40);
  assert_ok(open_set(&classes, 1, "set", "train", &s));
  brim_source_close(s);
}

//---------------------------------- names ----------------------------------

static uint64_t count_of(const char *path, const char *split, const brim_argument *args, size_t n) {
  brim_source *s;
  brim_status status = open_set(args, n, path, split, &s);
  if (status) fail_msg("%s %s: %s", path, split, brim_status_detail());
  uint64_t count = s->info.count;
  brim_source_close(s);
  return count;
}

static void test_names(void **state) {
  (void)state;
  static const float x[8] = {0};
  static const int64_t y[8] = {0, 1, 0, 1, 0, 1, 0, 1};
  brim_source *s;
  brim_component guess;
  clean();
  write_npy("set/X_train.npy", "<f4", "(4, 1)", x, 16);
  write_npy("set/y_train.npy", "<i8", "(4,)", y, 32);
  assert_ok(brim_source_guess("set", &guess));
  assert_string_equal(guess.name, "numpy");
  assert_ok(brim_source_guess("set/X_train.npy", &guess));
  assert_string_equal(guess.name, "numpy");
  assert_status(open_set(NULL, 0, "set", "val", &s), BRIM_ENOENT);
  write_npy("set/y_test.npy", "<i8", "(3,)", y, 24);
  assert_status(open_set(NULL, 0, "set", "val", &s), BRIM_EPARSE);  // its inputs are missing
  write_npy("set/X_test.npy", "<f4", "(3, 1)", x, 12);
  assert_int_equal(count_of("set", "train", NULL, 0), 4);
  assert_int_equal(count_of("set/X_train.npy", "train", NULL, 0), 4);
  assert_int_equal(count_of("set/X_train.npy", "test", NULL, 0), 3);
  assert_ok(open_set(NULL, 0, "set", "val", &s));
  assert_int_equal(s->info.count, 3);
  assert_true(s->val_is_test);
  brim_source_close(s);
  brim_argument some[] = {arg_string("inputs", "X_train"), arg_string("targets", "none"),
                          arg_int("limit", 2)};
  assert_int_equal(count_of("set", "train", some, 3), 2);
  assert_ok(open_set(some + 1, 1, "set", "train", &s));
  assert_int_equal(s->info.classes + s->info.target_dim, 0);
  brim_source_close(s);
  brim_argument other = arg_string("inputs", "z");
  assert_status(open_set(&other, 1, "set", "train", &s), BRIM_EPARSE);
  assert_detail("X_test, X_train, y_test, y_train");
  assert_int_equal(unlink("set/y_train.npy"), 0);
  assert_status(open_set(NULL, 0, "set", "train", &s), BRIM_EPARSE);
  assert_detail("targets=none");
}

//---------------------------------- archives ----------------------------------

static void make_archive(archive *a, bool deflated) {
  static bytes file;
  static float x[600];
  static int64_t y[300];
  for (int i = 0; i < 600; i++) x[i] = (float)i;
  for (int i = 0; i < 300; i++) y[i] = i % 3;
  a->data.size = a->list.size = 0;
  a->count = 0;
  make_npy("<f4", "(300, 2)", x, sizeof x, &file);
  add_member(a, "x_train.npy", &file, deflated);
  add_member(a, "readme.txt", &file, deflated);
  make_npy("<i8", "(300,)", y, sizeof y, &file);
  add_member(a, "y_train.npy", &file, deflated);
  end_archive(a);
}

static void test_archives(void **state) {
  (void)state;
  archive *a = malloc(sizeof *a);
  clean();
  for (int deflated = 0; deflated < 2; deflated++) {
    brim_source *s;
    brim_component guess;
    float row[2];
    int32_t label;
    make_archive(a, deflated);
    write_bytes("set/all.npz", a->data.data, a->data.size);
    assert_ok(brim_source_guess("set/all.npz", &guess));
    assert_string_equal(guess.name, "numpy");
    assert_int_equal(count_of("set", "train", NULL, 0), 300);
    assert_status(open_set(NULL, 0, "set/all.npz", "test", &s), BRIM_ENOENT);
    assert_ok(open_set(NULL, 0, "set/all.npz", "train", &s));
    assert_int_equal(s->info.classes, 3);
    assert_true((s->host_bytes > 4000) == deflated);  // of a stored array only labels are in memory
    assert_ok(brim_source_read(s, 299, 1, row, &label, NULL, NULL));
    assert_true(row[0] == 598 && row[1] == 599 && label == 2);
    char text[64];
    brim_source_describe(s, 7, text, sizeof text);
    assert_string_equal(text, "all.npz:x_train[7]");
    brim_source_close(s);
  }
  free(a);
}

// Every byte of the file changed, and every length: an error, or all samples can be read.
static void test_damaged_archives(void **state) {
  (void)state;
  archive *a = malloc(sizeof *a);
  clean();
  make_archive(a, true);
  size_t refused = 0;
  for (size_t i = 0; i < 2 * a->data.size; i++) {
    bool cut = i >= a->data.size;
    size_t at = cut ? i - a->data.size : i;
    if (cut && at == 0) continue;
    brim_source *s;
    a->data.data[at] ^= 0x55;
    write_bytes("set/all.npz", a->data.data, cut ? at : a->data.size);
    a->data.data[at] ^= 0x55;
    brim_status status = open_set(NULL, 0, "set/all.npz", "train", &s);
    if (status) {
      assert_true(brim_status_detail()[0] != '\0');
      refused++;
      continue;
    }
    assert_false(cut);
    float row[2];
    int32_t label;
    assert_ok(brim_source_read(s, 299, 1, row, &label, NULL, NULL));
    assert_true(row[1] == 599 && label == 2);  // a change without effect
    brim_source_close(s);
  }
  assert_true(refused > a->data.size);
  // a stored member must have the same size in both headers
  make_archive(a, false);
  for (size_t i = 1; i < a->data.size; i += 7) {
    brim_source *s;
    write_bytes("set/all.npz", a->data.data, i);
    assert_status(open_set(NULL, 0, "set/all.npz", "train", &s), BRIM_EPARSE);
  }
  free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bad_headers),
      cmocka_unit_test(test_good_headers),
      cmocka_unit_test(test_types),
      cmocka_unit_test(test_images),
      cmocka_unit_test(test_labels),
      cmocka_unit_test(test_text_labels),
      cmocka_unit_test(test_names),
      cmocka_unit_test(test_archives),
      cmocka_unit_test(test_damaged_archives),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
