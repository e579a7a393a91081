// Dtypes, tensors, op names, half-precision conversion.
#include <math.h>

#include "backend/backend.h"
#include "backend/backend_half.h"
#include "test.h"

static void test_dtype(void **state) {
  (void)state;
  assert_int_equal(brim_dtype_size(BRIM_F32), 4);
  assert_int_equal(brim_dtype_size(BRIM_BF16), 2);
  assert_int_equal(brim_dtype_size(BRIM_F64), 8);
  assert_int_equal(brim_dtype_size(BRIM_U8), 1);
  assert_int_equal(brim_dtype_size(BRIM_DTYPE_COUNT), 0);
  assert_string_equal(brim_dtype_name(BRIM_BF16), "bf16");
  assert_string_equal(brim_dtype_name((brim_dtype)99), "?");
  assert_string_equal(brim_op_name(BRIM_OP_LINEAR_BWD_WEIGHT), "linear_bwd_weight");
  assert_string_equal(brim_op_name(BRIM_OP_COUNT), "?");
}

static void test_tensor(void **state) {
  (void)state;
  brim_tensor t = brim_tensor_make(NULL, BRIM_BF16, 3, (const int64_t[]){2, 3, 5});
  assert_int_equal(brim_tensor_count(&t), 30);
  assert_int_equal(brim_tensor_bytes(&t), 60);
  assert_int_equal(t.dim[2], 5);
  assert_int_equal(t.dim[3], 0);
  t = brim_tensor_make(NULL, BRIM_F32, 1, (const int64_t[]){0});
  assert_int_equal(brim_tensor_count(&t), 0);
  t.rank = 0;
  assert_int_equal(brim_tensor_count(&t), 0);
}

static void test_bf16(void **state) {
  (void)state;
  assert_int_equal(brim_f32_to_bf16(1.0f), 0x3f80);
  assert_int_equal(brim_f32_to_bf16(-2.5f), 0xc020);
  assert_int_equal(brim_f32_to_bf16(brim_bits_to_f32(0x3f808000)), 0x3f80);  // tie, down to even
  assert_int_equal(brim_f32_to_bf16(brim_bits_to_f32(0x3f818000)), 0x3f82);  // tie, up to even
  assert_int_equal(brim_f32_to_bf16(brim_bits_to_f32(0x3f808001)), 0x3f81);
  assert_int_equal(brim_f32_to_bf16(brim_bits_to_f32(0x7f7fffff)), 0x7f80);  // rounds to infinity
  assert_int_equal(brim_f32_to_bf16(INFINITY), 0x7f80);
  assert_true(isnan(brim_bf16_to_f32(brim_f32_to_bf16(brim_bits_to_f32(0x7f800001)))));
  for (uint32_t i = 0; i < 65536; i++) {
    float f = brim_bf16_to_f32((uint16_t)i);
    if (!isnan(f)) assert_int_equal(brim_f32_to_bf16(f), i);
  }
}

static void test_f16(void **state) {
  (void)state;
  assert_int_equal(brim_f32_to_f16(1.0f), 0x3c00);
  assert_int_equal(brim_f32_to_f16(-2.0f), 0xc000);
  assert_int_equal(brim_f32_to_f16(65504.0f), 0x7bff);
  assert_int_equal(brim_f32_to_f16(65519.0f), 0x7bff);
  assert_int_equal(brim_f32_to_f16(65520.0f), 0x7c00);
  assert_int_equal(brim_f32_to_f16(ldexpf(1, -24)), 0x0001);
  assert_int_equal(brim_f32_to_f16(ldexpf(1, -25)), 0x0000);  // tie, to even
  assert_int_equal(brim_f32_to_f16(ldexpf(3, -25)), 0x0002);  // tie, to even
  assert_int_equal(brim_f32_to_f16(ldexpf(1, -14)), 0x0400);
  assert_int_equal(brim_f32_to_f16(1.0f + ldexpf(1, -11)), 0x3c00);
  assert_int_equal(brim_f32_to_f16(1.0f + ldexpf(3, -11)), 0x3c02);
  assert_true(isnan(brim_f16_to_f32(brim_f32_to_f16(NAN))));
  for (uint32_t i = 0; i < 65536; i++) {
    float f = brim_f16_to_f32((uint16_t)i);
    if (!isnan(f)) assert_int_equal(brim_f32_to_f16(f), i);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_dtype),
      cmocka_unit_test(test_tensor),
      cmocka_unit_test(test_bf16),
      cmocka_unit_test(test_f16),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
