// Philox4x32-10 against the known-answer vectors of its paper's library, and the functions based on it.
#include "hd/hd_philox.h"

#include "test.h"

static void check(uint64_t key, uint64_t hi, uint64_t lo, const uint32_t expected[4]) {
  brim_philox4 r = brim_philox(key, hi, lo);
  for (int i = 0; i < 4; i++) assert_int_equal(r.v[i], expected[i]);
}

static void known_answers(void **state) {
  (void)state;
  const uint32_t zero[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  const uint32_t ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
  const uint32_t pi[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
  check(0, 0, 0, zero);
  check(UINT64_MAX, UINT64_MAX, UINT64_MAX, ones);
  // Words from low to high: counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0.
  check(0x299f31d0a4093822u, 0x0370734413198a2eu, 0x85a308d3243f6a88u, pi);
}

static void keys_differ_by_seed_and_purpose(void **state) {
  (void)state;
  uint64_t seen[70];
  size_t n = 0;
  for (uint64_t seed = 0; seed < 10; seed++) {
    for (uint32_t purpose = BRIM_RNG_INIT; purpose <= BRIM_RNG_TEST; purpose++) {
      uint64_t key = brim_rng_key(seed, purpose);
      for (size_t i = 0; i < n; i++) assert_true(seen[i] != key);
      seen[n++] = key;
    }
  }
  assert_int_equal(brim_rng_key(3, BRIM_RNG_INIT), brim_rng_key(3, BRIM_RNG_INIT));
}

static void uniform_range(void **state) {
  (void)state;
  assert_true(brim_rng_uniform(0) == 0.0f);
  assert_true(brim_rng_uniform(UINT32_MAX) < 1.0f);
  assert_true(brim_rng_uniform(0x80000000u) == 0.5f);
  double sum = 0;
  for (uint64_t i = 0; i < 4096; i++) {
    brim_philox4 r = brim_philox(brim_rng_key(1, BRIM_RNG_TEST), 0, i);
    for (int k = 0; k < 4; k++) sum += (double)brim_rng_uniform(r.v[k]);
  }
  // 16384 draws: sd of the mean is 0.00226, so 0.01 is more than four of them.
  assert_true(fabs(sum / 16384 - 0.5) < 0.01);
}

static void below(void **state) {
  (void)state;
  assert_int_equal(brim_rng_below(0, 0, 10), 0);
  assert_int_equal(brim_rng_below(UINT32_MAX, UINT32_MAX, 10), 9);
  assert_int_equal(brim_rng_below(0x80000000u, 0, 10), 5);
  int counts[7] = {0};
  for (uint64_t i = 0; i < 7000; i++) {
    brim_philox4 r = brim_philox(brim_rng_key(2, BRIM_RNG_TEST), 0, i);
    counts[brim_rng_below(r.v[0], r.v[1], 7)]++;
  }
  for (int i = 0; i < 7; i++) assert_in_range(counts[i], 850, 1150);  // five sd of 29
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_answers),
      cmocka_unit_test(keys_differ_by_seed_and_purpose),
      cmocka_unit_test(uniform_range),
      cmocka_unit_test(below),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
