// BRIM_CPU_MASK: which names hide which features.
#include "test.h"

#include "base/base_machine.h"

static void names_hide_features(void **state) {
  (void)state;
  unsigned mask = 99;
  assert_true(brim_cpu_mask_parse(NULL, &mask));
  assert_int_equal(mask, 0);
  assert_true(brim_cpu_mask_parse(" , ", &mask));
  assert_int_equal(mask, 0);
  assert_true(brim_cpu_mask_parse("amx", &mask));
  assert_int_equal(mask, BRIM_CPU_MASK_AMX);
  assert_true(brim_cpu_mask_parse("bf16", &mask));
  assert_int_equal(mask, BRIM_CPU_MASK_BF16 | BRIM_CPU_MASK_AMX);
  assert_true(brim_cpu_mask_parse("avx512", &mask));
  assert_int_equal(mask, BRIM_CPU_MASK_AVX512 | BRIM_CPU_MASK_BF16 | BRIM_CPU_MASK_AMX);
  assert_true(brim_cpu_mask_parse("neon, avx2", &mask));
  assert_int_equal(mask, BRIM_CPU_MASK_NEON | BRIM_CPU_MASK_AVX2 | BRIM_CPU_MASK_AVX512 |
                             BRIM_CPU_MASK_BF16 | BRIM_CPU_MASK_AMX);
}

static void unknown_names_are_refused(void **state) {
  (void)state;
  unsigned mask = 99;
  assert_false(brim_cpu_mask_parse("amx,bf61", &mask));
  assert_int_equal(mask, BRIM_CPU_MASK_AMX);
  assert_false(brim_cpu_mask_parse("bf", &mask));
  assert_false(brim_cpu_mask_parse("bf16x", &mask));
}

static void environment_is_read(void **state) {
  (void)state;
  assert_int_equal(setenv("BRIM_CPU_MASK", "amx", 1), 0);
  assert_int_equal(brim_cpu_mask(), BRIM_CPU_MASK_AMX);
  assert_int_equal(unsetenv("BRIM_CPU_MASK"), 0);
  assert_int_equal(brim_cpu_mask(), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_hide_features),
      cmocka_unit_test(unknown_names_are_refused),
      cmocka_unit_test(environment_is_read),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
