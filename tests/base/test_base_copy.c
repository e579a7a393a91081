// Streaming copies: every length around lines and pages, from every offset in a line to every other.
#include <stdlib.h>
#include <string.h>

#include "base/base_alloc.h"
#include "test.h"

enum { ROOM = 3 * 4096 + 512, EDGE = 128, LINE = 64 };

typedef struct buffers {
  unsigned char *from, *to;  // ROOM bytes, at the start of a cache line
} buffers;

static int setup(void **state) {
  static buffers b;
  b.from = aligned_alloc(LINE, ROOM);
  b.to = aligned_alloc(LINE, ROOM);
  for (size_t i = 0; b.from && i < ROOM; i++) b.from[i] = (unsigned char)(i * 37 + i / 251 + 1);
  *state = &b;
  return b.from && b.to ? 0 : -1;
}

static int teardown(void **state) {
  buffers *b = *state;
  free(b->from);
  free(b->to);
  return 0;
}

static void check(const buffers *b, size_t from, size_t to, size_t n) {
  unsigned char *out = b->to + EDGE + to;
  memset(b->to, 0xA5, ROOM);
  brim_copy_stream(out, b->from + from, n);
  if (memcmp(out, b->from + from, n) != 0) {
    fail_msg("%zu bytes from %zu to %zu differ", n, from, to);
  }
  for (unsigned char *p = b->to; p < b->to + ROOM; p++) {
    if (p < out || p >= out + n) assert_int_equal(*p, 0xA5);
  }
}

static void test_lengths(void **state) {
  static const size_t around[] = {0, 64, 4096, 4096 + 64, 4096 + 256, 8192, 8192 + 256, 3 * 4096};
  for (size_t k = 0; k < sizeof around / sizeof *around; k++) {
    size_t least = around[k] > 70 ? around[k] - 70 : 0;
    for (size_t n = least; n <= around[k] + 70 && n <= 3 * 4096; n++) {
      check(*state, n % 61, n % 53, n);
      check(*state, 0, 0, n);
    }
  }
}

static void test_places(void **state) {
  static const size_t lengths[] = {100, 4095, 4096, 4100, 8300};
  for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
    for (size_t from = 0; from < LINE; from++) {
      for (size_t to = 0; to < LINE; to += k % 2 ? 1 : 3) check(*state, from, to, lengths[k]);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_lengths),
      cmocka_unit_test(test_places),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
