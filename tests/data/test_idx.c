// IDX: wrong headers of every kind, plain and gzip files, MNIST's names, labels, statistics, and the real MNIST files
// if they are here.
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/data_int.h"
#include "data_test.h"

//---------------------------------- headers ----------------------------------

typedef struct bad_header {
  const char *what;
  uint8_t data[24];
  size_t size;
  const char *offset, *message;
} bad_header;

static const bad_header bad_headers[] = {
    {"nothing", {0}, 0, "offset 0", "at least 8 bytes"},
    {"three bytes", {0, 0, 8}, 3, "offset 3", "at least 8 bytes"},
    {"magic", {0, 1, 8, 1, 0, 0, 0, 1, 5}, 9, "offset 0", "not an IDX file"},
    {"text", {'<', 'h', 't', 'm', 'l', '>', ' ', ' '}, 8, "offset 0", "begin with 00 00"},
    {"type 0", {0, 0, 0, 1, 0, 0, 0, 1, 5}, 9, "offset 2", "0x00"},
    {"type 0x0a", {0, 0, 10, 1, 0, 0, 0, 1, 5}, 9, "offset 2", "0x0a"},
    {"rank 0", {0, 0, 8, 0, 0, 0, 0, 1, 5}, 9, "offset 3", "rank 0"},
    {"rank 5", {0, 0, 8, 5, 0, 0, 0, 1}, 24, "offset 3", "rank 5"},
    {"header cut", {0, 0, 8, 3, 0, 0, 0, 1, 0, 0}, 10, "offset 10", "inside its header"},
    {"count 0", {0, 0, 8, 1, 0, 0, 0, 0}, 8, "offset 4", "size 0 is 0"},
    {"width 0", {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0}, 16, "offset 12", "size 2 is 0"},
    {"overflow",
     {0, 0, 14, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255},
     16,
     "offset 8",
     "more than memory"},
    {"short", {0, 0, 8, 1, 0, 0, 0, 3, 1, 2}, 10, "offset 10", "header says 11 bytes"},
    {"long", {0, 0, 8, 1, 0, 0, 0, 3, 1, 2, 3, 4, 5}, 13, "offset 11", "2 bytes too many"},
    {"short i32", {0, 0, 12, 1, 0, 0, 0, 2, 1, 2, 3, 4, 5}, 13, "offset 13", "says 16 bytes"},
};

static void test_bad_headers(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof bad_headers / sizeof bad_headers[0]; i++) {
    const bad_header *b = &bad_headers[i];
    brim_idx idx;
    uint8_t *copy = malloc(b->size ? b->size : 1);  // of exact size, so that ASan finds any overrun
    memcpy(copy, b->data, b->size);
    print_message("%s\n", b->what);
    assert_status(brim_idx_parse(copy, b->size, "some.idx", &idx), BRIM_EPARSE);
    free(copy);
    assert_detail("some.idx");
    assert_detail(b->offset);
    assert_detail(b->message);
  }
}

static void test_good_headers(void **state) {
  (void)state;
  brim_idx idx;
  bytes b;
  make_images(3, 4, 5, &b);
  assert_ok(brim_idx_parse(b.data, b.size, "x", &idx));
  assert_int_equal(idx.type, 8);
  assert_int_equal(idx.rank, 3);
  assert_int_equal(idx.dim[0], 3);
  assert_int_equal(idx.dim[1], 4);
  assert_int_equal(idx.dim[2], 5);
  assert_int_equal(idx.header_bytes, 16);
  static const uint8_t f64[] = {0, 0, 14, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0};
  assert_ok(brim_idx_parse(f64, sizeof f64, "x", &idx));
  assert_int_equal(idx.element_bytes, 8);
}

//---------------------------------- gzip ----------------------------------

static brim_status load(const bytes *b, brim_idx_array *out) {
  write_bytes("a.gz", b->data, b->size);
  return brim_idx_array_open("a.gz", out);
}

static void test_gzip(void **state) {
  (void)state;
  bytes plain, packed;
  brim_idx_array a;
  make_images(20, 7, 9, &plain);
  gzip(&plain, &packed);
  assert_ok(load(&packed, &a));
  assert_non_null(a.memory);
  assert_int_equal(a.body_bytes, 20 * 7 * 9);
  assert_memory_equal(a.body, plain.data + 16, a.body_bytes);
  brim_idx_array_unload(&a);
}

// Two gzip members in a row are one file, as for gzip itself.
static void test_gzip_members(void **state) {
  (void)state;
  bytes plain, first = {.size = 0}, second = {.size = 0}, packed, more;
  brim_idx_array a;
  make_images(20, 7, 9, &plain);
  put(&first, plain.data, 500);
  put(&second, plain.data + 500, plain.size - 500);
  gzip(&first, &packed);
  gzip(&second, &more);
  put(&packed, more.data, more.size);
  assert_ok(load(&packed, &a));
  assert_memory_equal(a.body, plain.data + 16, a.body_bytes);
  brim_idx_array_unload(&a);
}

static void expect_bad_gzip(const bytes *b, const char *offset, const char *message) {
  brim_idx_array a;
  assert_status(load(b, &a), BRIM_EPARSE);
  assert_null(a.memory);
  assert_detail("a.gz");
  assert_detail(offset);
  assert_detail(message);
}

static void test_bad_gzip(void **state) {
  (void)state;
  bytes plain, packed, b;
  char offset[32];
  make_images(20, 7, 9, &plain);
  gzip(&plain, &packed);
  brim_alloc_stats before, after;
  brim_alloc_get_stats(&before);
  // Files cut at any byte are never accepted. The last eight bytes are checksum and length.
  for (size_t n = 2; n < packed.size; n++) {
    b = packed;
    b.size = n;
    snprintf(offset, sizeof offset, "offset %zu", n);
    expect_bad_gzip(&b, offset, "cut off");
  }
  b = packed;
  b.data[b.size - 6] ^= 1;
  expect_bad_gzip(&b, "offset", "incorrect data check");
  b = packed;
  b.data[3] = 0xff;
  expect_bad_gzip(&b, "offset", "damaged");
  b = packed;
  put(&b, "xyz", 3);
  snprintf(offset, sizeof offset, "offset %zu", packed.size);
  expect_bad_gzip(&b, offset, "3 bytes follow");
  // More or fewer bytes inside than the header states.
  plain.data[7] = 19;
  gzip(&plain, &b);
  expect_bad_gzip(&b, "offset", "more data");
  plain.data[7] = 21;
  gzip(&plain, &b);
  expect_bad_gzip(&b, "offset", "63 bytes too early");
  // A header with a size that so few bytes cannot hold is refused before anything is allocated.
  plain.data[4] = 0x7f;
  gzip(&plain, &b);
  expect_bad_gzip(&b, "offset 4", "more than");
  brim_alloc_get_stats(&after);
  assert_int_equal(after.live_blocks[0], before.live_blocks[0]);
  assert_int_equal(after.live_blocks[1], before.live_blocks[1]);
}

// Flips every bit of a small gzip file: an error or the same data, never a crash.
static void test_flipped_gzip(void **state) {
  (void)state;
  bytes plain, packed;
  make_images(5, 3, 3, &plain);
  gzip(&plain, &packed);
  size_t refused = 0;
  for (size_t bit = 0; bit < packed.size * 8; bit++) {
    bytes b = packed;
    brim_idx_array a;
    b.data[bit / 8] ^= (uint8_t)(1 << (bit % 8));
    brim_status status = load(&b, &a);
    if (!status) {  // gzip's header has fields without effect: time, system
      assert_memory_equal(a.body, plain.data + 16, a.body_bytes);
      brim_idx_array_unload(&a);
    }
    refused += status != BRIM_OK;
  }
  assert_true(refused > packed.size * 8 / 2);
}

//---------------------------------- sources ----------------------------------

static void fresh_folder(const char *dir) {
  char **names;
  size_t count;
  if (brim_fs_is_dir(dir)) {
    assert_ok(brim_fs_list(dir, &names, &count));
    for (size_t i = 0; i < count; i++) {
      char *path = brim_fs_join(dir, names[i]);
      assert_ok(brim_fs_remove(path));
      brim_free(path);
    }
    brim_fs_list_free(names, count);
  }
  assert_ok(brim_fs_mkdirs(dir));
}

static void write_in(const char *dir, const char *name, const bytes *b) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  write_bytes(path, b->data, b->size);
}

static void check_samples(brim_source *s, uint32_t n, size_t pixels) {
  uint8_t input[256];
  int32_t target;
  assert_int_equal(s->info.count, n);
  assert_int_equal(s->input_bytes, pixels);
  assert_int_equal(s->target_bytes, 4);
  for (uint32_t i = 0; i < n; i++) {
    assert_ok(s->table->read(s->state, i, input, &target));
    for (size_t p = 0; p < pixels; p++) assert_int_equal(input[p], (uint8_t)(3 * i + p));
    assert_int_equal(target, i % 10);
  }
  assert_status(s->table->read(s->state, n, input, &target), BRIM_EINVAL);
}

static void test_folder(void **state) {
  (void)state;
  static const char *const forms[][4] = {
      {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
       "t10k-labels-idx1-ubyte"},
      {"train-images.idx3-ubyte", "train-labels.idx1-ubyte", "t10k-images.idx3-ubyte",
       "t10k-labels.idx1-ubyte"},
  };
  bytes b, packed;
  for (int form = 0; form < 2; form++) {
    for (int gz = 0; gz < 2; gz++) {
      fresh_folder("folder");
      for (int k = 0; k < 4; k++) {
        char name[64];
        uint32_t n = k < 2 ? 30 : 12;
        if (k % 2) {
          make_labels(n, &b);
        } else {
          make_images(n, 4, 5, &b);
        }
        gzip(&b, &packed);
        snprintf(name, sizeof name, "%s%s", forms[form][k], gz ? ".gz" : "");
        write_in("folder", name, gz ? &packed : &b);
      }
      static const char *const splits[] = {"train", "val", "test"};
      for (int i = 0; i < 3; i++) {
        brim_source *s;
        assert_ok(open_source(i == 1 ? "mnist" : "idx", NULL, 0, "folder", splits[i], &s));
        uint32_t n = i ? 12 : 30;
        check_samples(s, n, 20);
        assert_int_equal(s->info.rank, 2);
        assert_int_equal(s->info.dim[0], 4);
        assert_int_equal(s->info.dim[1], 5);
        assert_int_equal(s->info.classes, 10);
        assert_int_equal(s->host_bytes, gz ? n * 20 + n : n);  // labels are always kept in memory
        assert_int_equal(s->table->base(s->state) != NULL, gz);
        brim_source_close(s);
      }
    }
  }
}

static void count_starts(void *ctx, brim_log_level level, const char *module, const char *text) {
  (void)level, (void)module;
  *(int *)ctx += strstr(text, "the labels start at 1, so class 0 of the") != NULL;
}

// Labels from 1 on leave class 0 without samples: one warning, unless the number of classes was given.
static void test_from_one(void **state) {
  (void)state;
  static const char *const names[][2] = {
      {"one/train-images-idx3-ubyte", "one/train-labels-idx1-ubyte"},
      {"one/letter-images-idx3-ubyte", "one/letter-labels-idx1-ubyte"}};
  bytes images, labels;
  int seen = 0;
  fresh_folder("one");
  brim_log_set_sink(count_starts, &seen, BRIM_LOG_WARN);
  for (int i = 0; i < 2; i++) {
    for (int from = 0; from < 3; from++) {
      brim_source *s;
      make_images(6, 3, 3, &images);
      make_labels(6, &labels);
      for (size_t k = 8; k < labels.size; k++) labels.data[k] += (uint8_t)from;
      write_bytes(names[i][0], images.data, images.size);
      write_bytes(names[i][1], labels.data, labels.size);
      seen = 0;
      assert_ok(open_source("idx", NULL, 0, names[i][0], "train", &s));
      assert_int_equal(s->info.classes, i == 0 ? 10 : 6 + from);
      brim_source_close(s);
      assert_int_equal(seen, from == 1);
      brim_argument said = arg_int("classes", 8);
      assert_ok(open_source("idx", &said, 1, names[i][0], "train", &s));
      brim_source_close(s);
      assert_int_equal(seen, from == 1);
    }
  }
  brim_log_set_sink(NULL, NULL, BRIM_LOG_WARN);
}

static void test_statistics(void **state) {
  (void)state;
  bytes b;
  double sum = 0, squares = 0;
  fresh_folder("stats");
  make_images(30, 4, 5, &b);
  for (size_t i = 16; i < b.size; i++) {
    sum += b.data[i] / 255.0;
    squares += b.data[i] / 255.0 * b.data[i] / 255.0;
  }
  double mean = sum / 600, std = sqrt(squares / 600 - mean * mean);
  write_in("stats", "train-images-idx3-ubyte", &b);
  make_labels(30, &b);
  write_in("stats", "train-labels-idx1-ubyte", &b);
  brim_source *s;
  assert_ok(open_source("idx", NULL, 0, "stats", "train", &s));
  assert_int_equal(s->info.channels, 1);
  assert_true(fabs(s->info.mean[0] - mean) < 1e-6);
  assert_true(fabs(s->info.std[0] - std) < 1e-6);
  brim_source_close(s);
}

// Whole numbers that cannot be class numbers are regression targets; classes= decides otherwise.
static void test_values(void **state) {
  (void)state;
  bytes b = {.size = 0};
  fresh_folder("values");
  put_be32(&b, 0x803);
  put_be32(&b, 60);
  put_be32(&b, 1);
  put_be32(&b, 1);
  for (int i = 0; i < 60; i++) put(&b, (uint8_t[1]){(uint8_t)i}, 1);
  write_in("values", "x.idx", &b);
  b.size = 0;
  put_be32(&b, 0xC01);
  put_be32(&b, 60);
  for (uint32_t i = 0; i < 60; i++) put_be32(&b, 1950 + i);
  write_in("values", "y.idx", &b);
  brim_source *s;
  float y;
  brim_argument args[2] = {arg_string("labels", "values/y.idx"), arg_int("classes", 0)};
  for (size_t n = 1; n <= 2; n++) {
    assert_ok(open_source("idx", args, n, "values/x.idx", "train", &s));
    assert_int_equal(s->info.classes, 0);
    assert_int_equal(s->info.target_dim, 1);
    uint8_t in;
    assert_ok(s->table->read(s->state, 7, &in, &y));
    assert_true(y == 1957);
    brim_source_close(s);
  }
  args[1] = arg_int("classes", 2010);
  assert_ok(open_source("idx", args, 2, "values/x.idx", "train", &s));
  assert_int_equal(s->info.classes, 2010);
  brim_source_close(s);
}

// An images file named directly, with four dimensions: three channels, each with its own mean.
static void test_images_file(void **state) {
  (void)state;
  bytes b = {.size = 0};
  fresh_folder("file");
  put_be32(&b, 0x804);
  put_be32(&b, 4);
  put_be32(&b, 2);
  put_be32(&b, 2);
  put_be32(&b, 3);
  for (int i = 0; i < 16; i++) put(&b, (uint8_t[3]){0, 51, (uint8_t)(i % 2 ? 255 : 0)}, 3);
  write_in("file", "my-images.idx", &b);
  b.size = 0;
  put_be32(&b, 0xC01);
  put_be32(&b, 4);
  for (uint32_t i = 0; i < 4; i++) put_be32(&b, i * 100);
  write_in("file", "my-labels.idx", &b);
  brim_source *s;
  assert_ok(open_source("idx", NULL, 0, "file/my-images.idx", "train", &s));
  assert_int_equal(s->info.rank, 3);
  assert_int_equal(s->info.channels, 3);
  assert_int_equal(s->info.classes, 301);
  assert_true(s->info.mean[0] == 0 && s->info.std[0] == 1);
  assert_true(fabsf(s->info.mean[1] - 0.2f) < 1e-6f);
  assert_true(fabsf(s->info.mean[2] - 0.5f) < 1e-6f && fabsf(s->info.std[2] - 0.5f) < 1e-6f);
  uint8_t input[12];
  int32_t target;
  assert_ok(s->table->read(s->state, 2, input, &target));
  assert_int_equal(target, 200);
  assert_int_equal(input[5], 255);
  brim_source_close(s);
  // The same folder has no other split.
  assert_status(open_source("idx", NULL, 0, "file/my-images.idx", "val", &s), BRIM_ENOENT);
}

// Floats are big-endian in the file; float labels are targets of a regression.
static void test_floats(void **state) {
  (void)state;
  bytes images = {.size = 0}, labels = {.size = 0};
  fresh_folder("floats");
  put_be32(&images, 0xD02);
  put_be32(&images, 3);
  put_be32(&images, 2);
  put_be32(&labels, 0xD01);
  put_be32(&labels, 3);
  for (int i = 0; i < 6; i++) {
    float v = 0.5f - (float)i * 1.25f;
    uint32_t u;
    memcpy(&u, &v, 4);
    put_be32(&images, u);
    if (i < 3) put_be32(&labels, u);
  }
  write_in("floats", "x.images", &images);
  write_in("floats", "y", &labels);
  brim_argument args[] = {arg_string("labels", "floats/y")};
  brim_source *s;
  assert_ok(open_source("idx", args, 1, "floats/x.images", "train", &s));
  assert_int_equal(s->info.type, BRIM_SAMPLE_F32);
  assert_int_equal(s->info.classes, 0);
  assert_int_equal(s->info.target_dim, 1);
  assert_int_equal(s->info.channels, 0);
  assert_int_equal(s->input_bytes, 8);
  assert_null(s->table->base(s->state));
  float input[2], target;
  assert_ok(s->table->read(s->state, 1, input, &target));
  assert_true(input[0] == -2.0f && input[1] == -3.25f && target == -0.75f);
  brim_source_close(s);
}

// Another process truncates the file while it is in use: an error that names the place, not the end of the process.
// Data before the cut can still be read.
static void test_cut_short(void **state) {
  (void)state;
  bytes b;
  fresh_folder("cut");
  make_images(30, 4, 5, &b);
  write_in("cut", "train-images-idx3-ubyte", &b);
  make_labels(30, &b);
  write_in("cut", "train-labels-idx1-ubyte", &b);
  brim_source *s;
  uint8_t input[20];
  int32_t target;
  assert_ok(open_source("idx", NULL, 0, "cut", "train", &s));
  assert_ok(s->table->read(s->state, 29, input, &target));
  assert_int_equal(truncate("cut/train-images-idx3-ubyte", 16 + 20 * 20 + 7), 0);
  assert_ok(s->table->read(s->state, 19, input, &target));
  assert_int_equal(input[0], (uint8_t)(3 * 19));
  assert_status(s->table->read(s->state, 20, input, &target), BRIM_EIO);
  assert_detail("cut/train-images-idx3-ubyte: offset 423: the file became shorter");
  assert_status(s->table->read(s->state, 29, input, &target), BRIM_EIO);
  assert_detail("offset 596");
  // Labels were checked and copied when the file was opened; later changes of the file do not reach them.
  assert_int_equal(truncate("cut/train-labels-idx1-ubyte", 0), 0);
  assert_ok(s->table->read(s->state, 19, input, &target));
  assert_int_equal(target, 9);
  brim_source_close(s);
}

// A gzip file larger than one buffer reads the same as from memory.
static void test_large_gzip_file(void **state) {
  (void)state;
  enum { N = 300, SIDE = 28 };
  static uint8_t plain[16 + N * SIDE * SIDE], packed[2 * sizeof plain];
  const uint8_t header[16] = {0, 0, 8, 3, 0, 0, N >> 8, N & 255, 0, 0, 0, SIDE, 0, 0, 0, SIDE};
  memcpy(plain, header, 16);
  uint32_t seed = 1;
  for (size_t i = 16; i < sizeof plain; i++) {
    seed = seed * 1664525u + 1013904223u;  // hardly compresses
    plain[i] = (uint8_t)(seed >> 24);
  }
  z_stream z = {0};
  assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  z.next_in = plain;
  z.avail_in = sizeof plain;
  z.next_out = packed;
  z.avail_out = sizeof packed;
  assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
  size_t size = sizeof packed - z.avail_out;
  deflateEnd(&z);
  assert_true(size > 3 * 65536);
  write_bytes("large.gz", packed, size);
  brim_idx_array a;
  assert_ok(brim_idx_array_open("large.gz", &a));
  assert_int_equal(a.body_bytes, N * SIDE * SIDE);
  assert_memory_equal(a.body, plain + 16, a.body_bytes);
  assert_null(a.file.path);
  brim_idx_array_unload(&a);
  write_bytes("large.gz", packed, size - 9);
  assert_status(brim_idx_array_open("large.gz", &a), BRIM_EPARSE);
  assert_detail("large.gz: offset");
  assert_detail("cut off");
  assert_null(a.memory);
}

static void test_source_errors(void **state) {
  (void)state;
  brim_source *s;
  bytes b;
  fresh_folder("bad");
  assert_status(open_source("idx", NULL, 0, NULL, "train", &s), BRIM_EINVAL);
  assert_detail("data.path");
  assert_status(open_source("idx", NULL, 0, "nowhere", "train", &s), BRIM_ENOENT);
  assert_detail("nowhere");
  assert_status(open_source("idx", NULL, 0, "bad", "train", &s), BRIM_ENOENT);
  assert_detail("train-images-idx3-ubyte, train-images-idx3-ubyte.gz, train-images.idx3-ubyte");
  assert_status(open_source("idx", NULL, 0, "bad", "training", &s), BRIM_EINVAL);
  assert_detail("training");
  make_images(20, 2, 2, &b);
  write_in("bad", "train-images-idx3-ubyte", &b);
  // one of two files makes an incomplete set, not an absent split
  assert_status(open_source("idx", NULL, 0, "bad", "train", &s), BRIM_EPARSE);
  assert_detail("the labels of its images are missing");
  assert_detail("train-labels-idx1-ubyte.gz");
  assert_status(open_source("idx", NULL, 0, "bad/train-images-idx3-ubyte", "train", &s),
                BRIM_EPARSE);
  make_labels(19, &b);
  write_in("bad", "t10k-labels-idx1-ubyte", &b);
  assert_status(open_source("idx", NULL, 0, "bad", "test", &s), BRIM_EPARSE);
  assert_detail("the images of its labels are missing: bad: none of these files exists: t10k-im");
  make_labels(19, &b);
  write_in("bad", "train-labels-idx1-ubyte", &b);
  assert_status(open_source("idx", NULL, 0, "bad", "train", &s), BRIM_EPARSE);
  assert_detail("train-labels-idx1-ubyte: offset 4: 19 labels for the 20 images");
  make_labels(20, &b);
  b.data[8 + 13] = 77;
  write_in("bad", "train-labels-idx1-ubyte", &b);
  brim_argument ten[] = {arg_int("classes", 10)};
  assert_status(open_source("idx", ten, 1, "bad", "train", &s), BRIM_EPARSE);
  assert_detail("train-labels-idx1-ubyte: offset 21: label 77 of sample 13 is not in [0, 10)");
  // unless it is given: as many as the labels need, at least ten
  assert_ok(open_source("idx", NULL, 0, "bad", "train", &s));
  assert_int_equal(s->info.classes, 78);
  brim_source_close(s);
  brim_argument classes[] = {arg_int("classes", 78)};
  assert_ok(open_source("idx", classes, 1, "bad", "train", &s));
  assert_int_equal(s->info.classes, 78);
  brim_source_close(s);
  brim_argument typo[] = {arg_int("clases", 78)};
  assert_status(open_source("idx", typo, 1, "bad", "train", &s), BRIM_EINVAL);
  assert_detail("did you mean 'classes'");
  make_labels(20, &b);
  b.data[2] = 0x0B;
  write_in("bad", "train-labels-idx1-ubyte", &b);
  assert_status(open_source("idx", NULL, 0, "bad", "train", &s), BRIM_EPARSE);
  assert_detail("train-labels-idx1-ubyte: offset 28");
  write_in("bad", "train-labels-idx1-ubyte", &(bytes){.size = 0});
  assert_status(open_source("idx", NULL, 0, "bad", "train", &s), BRIM_EPARSE);
  assert_detail("empty");
  assert_int_equal(unlink("bad/train-images-idx3-ubyte"), 0);
  assert_int_equal(mkfifo("bad/train-images-idx3-ubyte", 0600), 0);
  assert_status(open_source("idx", NULL, 0, "bad", "train", &s), BRIM_EINVAL);
  assert_detail("not a regular file");
}

static void test_mnist(void **state) {
  (void)state;
  const char *dir = BRIM_SOURCE_DIR "/tests/data/mnist";
  brim_source *s;
  uint8_t input[784];
  int32_t target;
  static const int32_t first[5] = {5, 0, 4, 1, 9};
  assert_ok(open_source("mnist", NULL, 0, dir, "train", &s));
  assert_int_equal(s->info.count, 2000);
  assert_int_equal(s->input_bytes, 784);
  assert_int_equal(s->host_bytes, 2000 * 785);
  for (uint64_t i = 0; i < 5; i++) {
    assert_ok(s->table->read(s->state, i, input, &target));
    assert_int_equal(target, first[i]);
  }
  assert_true(fabsf(s->info.mean[0] - 0.130178f) < 1e-6f);
  assert_true(fabsf(s->info.std[0] - 0.307698f) < 1e-6f);
  brim_source_close(s);
  assert_ok(open_source("idx", NULL, 0, dir, "test", &s));
  assert_int_equal(s->info.count, 500);
  assert_ok(s->table->read(s->state, 0, input, &target));
  assert_int_equal(target, 7);
  brim_source_close(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bad_headers),   cmocka_unit_test(test_good_headers),
      cmocka_unit_test(test_gzip),          cmocka_unit_test(test_gzip_members),
      cmocka_unit_test(test_bad_gzip),      cmocka_unit_test(test_flipped_gzip),
      cmocka_unit_test(test_folder),        cmocka_unit_test(test_from_one),
      cmocka_unit_test(test_statistics),    cmocka_unit_test(test_images_file),
      cmocka_unit_test(test_values),        cmocka_unit_test(test_floats),
      cmocka_unit_test(test_source_errors), cmocka_unit_test(test_mnist),
      cmocka_unit_test(test_cut_short),     cmocka_unit_test(test_large_gzip_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
