// The permutation behind the sample order: a bijection for every n, uniform, and pinned to known values because a
// checkpoint's data cursor must mean the same order in every later version.
#include <math.h>

#include "base/base.h"
#include "hd/hd_shuffle.h"
#include "test.h"

static void check_bijection(uint64_t seed, uint64_t epoch, uint64_t n) {
  uint8_t *seen = calloc(n, 1);
  assert_non_null(seen);
  brim_shuffle s = brim_shuffle_make(seed, epoch, n);
  for (uint64_t i = 0; i < n; i++) {
    uint64_t x = brim_shuffle_at(&s, i);
    assert_true(x < n);
    assert_int_equal(seen[x]++, 0);
  }
  free(seen);
}

static void test_bijection(void **state) {
  (void)state;
  for (uint64_t n = 1; n <= 300; n++) check_bijection(n * 7, n % 5, n);
  static const uint64_t sizes[] = {1023,  1024,  1025,  4095,  4096,  4097,  5003,
                                   16384, 16385, 60000, 65535, 65536, 65537, 99991};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) check_bijection(42, i, sizes[i]);
}

// Very large n cannot be enumerated, but the walk must end and stay inside.
static void test_large(void **state) {
  (void)state;
  static const uint64_t sizes[] = {1ull << 32, (1ull << 32) + 1, (1ull << 40) - 87, 1ull << 60,
                                   UINT64_MAX};
  for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
    brim_shuffle s = brim_shuffle_make(1, 2, sizes[k]);
    for (uint64_t i = 0; i < 200; i++) {
      assert_true(brim_shuffle_at(&s, i) < sizes[k]);
      assert_true(brim_shuffle_at(&s, sizes[k] - 1 - i) < sizes[k]);
    }
  }
}

static void test_pinned(void **state) {
  (void)state;
  static const uint64_t ten[10] = {0, 3, 8, 5, 1, 6, 7, 4, 2, 9};
  brim_shuffle s = brim_shuffle_make(0, 0, 10);
  for (uint64_t i = 0; i < 10; i++) assert_int_equal(brim_shuffle_at(&s, i), ten[i]);
  static const uint64_t mnist[6] = {6763, 26067, 53278, 10959, 51624, 42871};
  s = brim_shuffle_make(42, 3, 60000);
  for (uint64_t i = 0; i < 6; i++) assert_int_equal(brim_shuffle_at(&s, i), mnist[i]);
}

// Tests the uniformity of a position over many epochs: one chi-square test per position. 64 cells over 64,000 epochs
// have mean 63 and deviation 11.2; 130 is six deviations out.
static void test_uniform(void **state) {
  (void)state;
  enum { N = 64, EPOCHS = 64000 };
  static const uint64_t positions[] = {0, 1, 31, 63};
  for (size_t k = 0; k < 4; k++) {
    int count[N] = {0};
    for (uint64_t e = 0; e < EPOCHS; e++) {
      brim_shuffle s = brim_shuffle_make(9, e, N);
      count[brim_shuffle_at(&s, positions[k])]++;
    }
    double chi = 0, expected = (double)EPOCHS / N;
    for (int i = 0; i < N; i++) chi += (count[i] - expected) * (count[i] - expected) / expected;
    assert_true(chi < 130);
  }
}

// All orders of three and of four elements occur, none of them rarely.
static void test_small_orders(void **state) {
  (void)state;
  int three[27] = {0}, four[256] = {0};
  for (uint64_t seed = 0; seed < 24000; seed++) {
    brim_shuffle s = brim_shuffle_make(seed, 0, 3), t = brim_shuffle_make(seed, 1, 4);
    uint64_t a = 0, b = 0;
    for (uint64_t i = 0; i < 3; i++) a = a * 3 + brim_shuffle_at(&s, i);
    for (uint64_t i = 0; i < 4; i++) b = b * 4 + brim_shuffle_at(&t, i);
    three[a]++;
    four[b]++;
  }
  int orders3 = 0, orders4 = 0;
  for (int i = 0; i < 27; i++) orders3 += three[i] > 3000;  // expected 4000
  for (int i = 0; i < 256; i++) orders4 += four[i] > 600;   // expected 1000
  assert_int_equal(orders3, 6);
  assert_int_equal(orders4, 24);
}

// No trace of the original order: neighbours are on average a third of n apart, and two epochs agree in about one
// place.
static void test_mixing(void **state) {
  (void)state;
  enum { N = 60000 };
  brim_shuffle s = brim_shuffle_make(5, 0, N), t = brim_shuffle_make(5, 1, N);
  double distance = 0;
  int same = 0;
  for (uint64_t i = 0; i + 1 < N; i++) {
    double a = (double)brim_shuffle_at(&s, i), b = (double)brim_shuffle_at(&s, i + 1);
    distance += fabs(a - b);
    same += brim_shuffle_at(&s, i) == brim_shuffle_at(&t, i);
  }
  distance /= N;
  assert_true(distance > 0.32 * N && distance < 0.347 * N);
  assert_true(same < 12);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bijection),    cmocka_unit_test(test_large),
      cmocka_unit_test(test_pinned),       cmocka_unit_test(test_uniform),
      cmocka_unit_test(test_small_orders), cmocka_unit_test(test_mixing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
