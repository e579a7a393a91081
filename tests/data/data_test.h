// Shared by the tests of data: IDX bytes made by hand, files in the working folder, components.
#ifndef BRIM_TESTS_DATA_TEST_H_
#define BRIM_TESTS_DATA_TEST_H_

#include <zlib.h>

#include "data/data.h"
#include "test.h"

typedef struct bytes {
  uint8_t data[1 << 16];
  size_t size;
} bytes;

static inline void put(bytes *b, const void *data, size_t n) {
  assert_true(b->size + n <= sizeof b->data);
  memcpy(b->data + b->size, data, n);
  b->size += n;
}

static inline void put_be32(bytes *b, uint32_t v) {
  uint8_t p[4] = {(uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};
  put(b, p, 4);
}

static inline void write_bytes(const char *path, const void *data, size_t n) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(data, 1, n, f), n);
  assert_int_equal(fclose(f), 0);
}

// Bytes as gzip, in one member.
static inline void gzip(const bytes *in, bytes *out) {
  z_stream z;
  memset(&z, 0, sizeof z);
  assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  z.next_in = (Bytef *)(uintptr_t)in->data;
  z.avail_in = (unsigned)in->size;
  z.next_out = out->data;
  z.avail_out = sizeof out->data;
  assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
  out->size = sizeof out->data - z.avail_out;
  deflateEnd(&z);
}

// Images (n, h, w) u8 whose pixel p of sample i is 3 i + p; labels i % 10.
static inline void make_images(uint32_t n, uint32_t h, uint32_t w, bytes *out) {
  out->size = 0;
  put_be32(out, 0x803);
  put_be32(out, n);
  put_be32(out, h);
  put_be32(out, w);
  for (uint32_t i = 0; i < n; i++) {
    for (uint32_t p = 0; p < h * w; p++) {
      uint8_t v = (uint8_t)(3 * i + p);
      put(out, &v, 1);
    }
  }
}

static inline void make_labels(uint32_t n, bytes *out) {
  out->size = 0;
  put_be32(out, 0x801);
  put_be32(out, n);
  for (uint32_t i = 0; i < n; i++) {
    uint8_t v = (uint8_t)(i % 10);
    put(out, &v, 1);
  }
}

// Arguments and components as config makes them. Assigned member by member, because this is C++ too.
static inline brim_argument arg_int(const char *name, int64_t value) {
  brim_argument a;
  memset(&a, 0, sizeof a);
  a.name = name;
  a.value.kind = BRIM_VALUE_INT;
  a.value.integer = value;
  a.value.number = (double)value;
  return a;
}

static inline brim_argument arg_float(const char *name, double value) {
  brim_argument a = arg_int(name, 0);
  a.value.kind = BRIM_VALUE_FLOAT;
  a.value.number = value;
  return a;
}

static inline brim_argument arg_string(const char *name, const char *value) {
  brim_argument a = arg_int(name, 0);
  a.value.kind = BRIM_VALUE_STRING;
  a.value.string = value;
  return a;
}

static inline brim_status open_source(const char *name, const brim_argument *args, size_t count,
                                      const char *path, const char *split, brim_source **out) {
  brim_component c;
  memset(&c, 0, sizeof c);
  c.name = name;
  c.args = args;
  c.arg_count = count;
  return brim_source_open(NULL, &c, path, split, 1, out);
}

#define assert_detail(part)                                                   \
  do {                                                                        \
    if (!strstr(brim_status_detail(), part)) {                                \
      fail_msg("'%s' is not in the detail '%s'", part, brim_status_detail()); \
    }                                                                         \
  } while (0)

#endif  // BRIM_TESTS_DATA_TEST_H_
