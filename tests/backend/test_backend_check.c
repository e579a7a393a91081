// The rules of the ops and their cost: every case of the list passes, every way to spoil one is
// found, and the messages name the tensor.
#include <math.h>

#include "base/base.h"
#include "cases/cases.h"
#include "test.h"

static void find_case(const char *prefix, brim_op_call *call) {
  for (size_t i = 0; i < brim_case_count(); i++) {
    brim_case c;
    brim_case_get(i, &c);
    if (!brim_str_starts(c.name, prefix)) continue;
    brim_case_call(&c, call);
    return;
  }
  fail_msg("no case %s", prefix);
}

static void assert_refused(const brim_op_call *call, const char *text) {
  brim_status_clear();
  assert_status(brim_op_check(call), BRIM_EINVAL);
  if (!strstr(brim_status_detail(), text)) {
    fail_msg("'%s' does not say '%s'", brim_status_detail(), text);
  }
}

static void test_all_cases_pass(void **state) {
  (void)state;
  static const brim_dtype types[] = {BRIM_F32, BRIM_BF16, BRIM_F16, BRIM_F64};
  for (size_t i = 0; i < brim_case_count(); i++) {
    for (int t = 0; t < 4; t++) {
      brim_case c;
      brim_op_call call;
      brim_case_get(i, &c);
      brim_case_set_type(&c, types[t]);
      brim_case_call(&c, &call);
      assert_ok(brim_op_check(&call));
    }
  }
  for (uint64_t i = 0; i < 500; i++) {
    brim_case c;
    brim_op_call call;
    brim_case_fuzz(7, i, &c);
    brim_case_call(&c, &call);
    assert_ok(brim_op_check(&call));
  }
}

// One dimension or one type of one tensor changed: always found.
static void test_every_spoiling_is_found(void **state) {
  (void)state;
  int spoiled = 0;
  for (size_t i = 0; i < brim_case_count(); i++) {
    brim_case c;
    brim_op_call good;
    brim_case_get(i, &c);
    brim_case_call(&c, &good);
    for (int t = 0; t < good.in_count + good.out_count; t++) {
      brim_op_call bad = good;
      brim_tensor *tensor = t < good.in_count ? &bad.in[t] : &bad.out[t - good.in_count];
      if (brim_tensor_count(tensor) == 0) continue;
      for (int d = 0; d < tensor->rank; d++) {
        // The classes of a loss without gradient and the values of a norm are tied to nothing.
        bool free_size = (c.op == BRIM_OP_XENT && !c.optional && t == 0 && d == 1) ||
                         (c.op == BRIM_OP_GRAD_NORM && t == 0);
        int64_t old = tensor->dim[d];
        tensor->dim[d] = old + 1;
        assert_status(brim_op_check(&bad), free_size ? BRIM_OK : BRIM_EINVAL);
        tensor->dim[d] = 0;
        bool may_be_empty = c.op == BRIM_OP_OPTIMIZER && c.attr.optimizer == BRIM_OPTIMIZER_SGD &&
                            c.attr.momentum == 0;
        if (!may_be_empty) assert_status(brim_op_check(&bad), BRIM_EINVAL);
        tensor->dim[d] = -3;
        assert_status(brim_op_check(&bad), BRIM_EINVAL);
        tensor->dim[d] = old;
        spoiled++;
      }
      brim_dtype old = tensor->dtype;
      tensor->dtype = BRIM_I64;
      assert_status(brim_op_check(&bad), BRIM_EINVAL);
      tensor->dtype = old;
      tensor->rank = BRIM_MAX_RANK + 1;
      assert_status(brim_op_check(&bad), BRIM_EINVAL);
    }
    brim_op_call bad = good;
    bad.in_count = 0;
    assert_status(brim_op_check(&bad), BRIM_EINVAL);
    bad.in_count = BRIM_OP_MAX_IN + 1;
    assert_status(brim_op_check(&bad), BRIM_EINVAL);
    bad = good;
    bad.out_count = 0;
    assert_status(brim_op_check(&bad), BRIM_EINVAL);
  }
  assert_true(spoiled > 1000);
}

static void test_messages(void **state) {
  (void)state;
  brim_op_call call;
  find_case("linear n=3 k=17 m=31 bias", &call);
  call.in[1].dim[1] = 18;
  assert_refused(&call, "linear: w has K = 18, but x gave K = 17");
  find_case("linear n=3 k=17 m=31 bias", &call);
  call.in[2].dtype = BRIM_BF16;
  assert_refused(&call, "linear: b is bf16, but x is f32");
  call.in[2].dtype = BRIM_F32;
  call.attr.act = (brim_act)17;
  assert_refused(&call, "activation 17");
  find_case("linear_bwd_data n=3 k=17 m=31 relu", &call);
  call.in_count = 2;
  assert_refused(&call, "s is missing");
  find_case("act n=3 c=17", &call);
  call.attr.act = BRIM_ACT_NONE;
  assert_refused(&call, "no activation");
  find_case("act n=3 c=17", &call);
  call.out[0].dim[1] = 9;
  assert_refused(&call, "act: y is (3, 9), but x is (3, 17)");
  find_case("layernorm n=5", &call);
  call.attr.eps = 0;
  assert_refused(&call, "eps is 0");
  find_case("dropout n=3", &call);
  call.attr.p = 1;
  assert_refused(&call, "p is 1");
  find_case("dropout n=3", &call);
  call.attr.p = NAN;
  assert_refused(&call, "p is nan");
  find_case("input n=3 c=24 u8 rgb", &call);
  call.attr.channels = 5;
  assert_refused(&call, "channels is 5");
  find_case("input n=3 c=24 u8 rgb", &call);
  call.in[0].dim[1] = call.out[0].dim[1] = 25;
  assert_refused(&call, "not a multiple of 3 channels");
  find_case("xent n=5", &call);
  call.in[1].dtype = BRIM_I64;
  assert_refused(&call, "labels is i64, expected i32");
  find_case("xent n=5", &call);
  call.attr.label_smoothing = 1.5f;
  assert_refused(&call, "label smoothing is 1.5");
  find_case("xent n=5", &call);
  call.in[2].dim[0] = 8;
  assert_refused(&call, "state is (8), expected (16)");
}

static void test_optimizer_messages(void **state) {
  (void)state;
  brim_op_call call;
  find_case("optimizer p=13 sgd momentum first", &call);
  call.out[1].dim[0] = 0;
  assert_refused(&call, "momentum needs m");
  find_case("optimizer p=13 adam first", &call);
  call.out_count = 2;
  assert_refused(&call, "need m and v");
  find_case("optimizer p=13 adam first", &call);
  call.attr.beta2 = 1;
  assert_refused(&call, "betas are");
  find_case("optimizer p=13 sgd", &call);
  call.attr.nesterov = true;
  assert_refused(&call, "nesterov needs");
  call.attr.nesterov = false;
  call.attr.optimizer = BRIM_OPTIMIZER_KIND_COUNT;
  assert_refused(&call, "optimizer 3 is not known");
  call.attr.optimizer = BRIM_OPTIMIZER_SGD;
  call.attr.weight_decay = -1;
  assert_refused(&call, "weight decay is -1");
  find_case("add n=3", &call);
  call.in[0].dim[0] = call.in[1].dim[0] = call.out[0].dim[0] = INT64_MAX / 2;
  assert_refused(&call, "64 bits");
  call.op = BRIM_OP_COUNT;
  assert_refused(&call, "op 15 is not known");
}

static void test_cost(void **state) {
  (void)state;
  brim_op_call call;
  double flops, bytes;
  find_case("linear n=32 k=784 m=96 plain", &call);
  brim_op_cost(&call, &flops, &bytes);
  assert_true(flops == 2.0 * 32 * 784 * 96);
  assert_true(bytes == 4.0 * (32 * 784 + 96 * 784 + 32 * 96));
  find_case("linear_bwd_data n=32 k=784 m=96 plain", &call);
  brim_op_cost(&call, &flops, &bytes);
  assert_true(flops == 2.0 * 32 * 784 * 96);
  find_case("linear_bwd_weight n=32 k=784 m=96 plain", &call);
  double once;
  brim_op_cost(&call, &flops, &once);
  assert_true(flops == 2.0 * 32 * 784 * 96);
  find_case("linear_bwd_weight n=32 k=784 m=96 accumulate", &call);
  brim_op_cost(&call, &flops, &bytes);
  assert_true(bytes - once == 4.0 * 96 * 784);
  find_case("add n=64", &call);
  brim_op_cost(&call, &flops, &bytes);
  assert_true(flops == 64 * 64 && bytes == 3.0 * 4 * 64 * 64);
  for (size_t i = 0; i < brim_case_count(); i++) {
    brim_case c;
    brim_case_get(i, &c);
    brim_case_call(&c, &call);
    brim_op_cost(&call, &flops, &bytes);
    assert_true(bytes > 0 && (flops > 0 || c.op == BRIM_OP_CAST));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all_cases_pass), cmocka_unit_test(test_every_spoiling_is_found),
      cmocka_unit_test(test_messages),       cmocka_unit_test(test_optimizer_messages),
      cmocka_unit_test(test_cost),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
