// The rules of the ops and their cost: every case of the list passes, every kind of damage is found, and the messages
// name the tensor.
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

// Sizes of the case list that no other size determines: tensor t (inputs, then outputs), dimension d.
static bool is_free(const brim_case *c, const brim_op_call *call, int t, int d) {
  const brim_tensor *x = t < call->in_count ? &call->in[t] : &call->out[t - call->in_count];
  switch (c->op) {
    case BRIM_OP_XENT:  // the classes of a loss without gradient
    case BRIM_OP_NTXENT:
      return !c->optional && t == 0 && d == 1;
    case BRIM_OP_GRAD_NORM:
      return t == 0;
    case BRIM_OP_BATCHNORM_PART:
      return t == 0 && d < 3;
    case BRIM_OP_BATCHNORM_JOIN:
      return t == 0 && d == 0;
    case BRIM_OP_POS_BWD:  // the dimension that is summed over
      return t == 0 && d == 0;
    case BRIM_OP_STEP_END:
      return t == 2 && d == 0;
    case BRIM_OP_MEAN:  // the dimension that is averaged over
      return t == 0 && d > 0 && d < x->rank - 1;
    case BRIM_OP_MEAN_BWD:
      return t == 1 && d > 0 && d < x->rank - 1;
    case BRIM_OP_INPUT:  // additional padding channels
      return t == 1 && d == 2;
    case BRIM_OP_CONV:
    case BRIM_OP_CONV_BWD_DATA:
    case BRIM_OP_CONV_BWD_WEIGHT:
    case BRIM_OP_MAXPOOL:
    case BRIM_OP_MAXPOOL_BWD: {
      // Rows that no window reaches, and a window that ends where the previous one did.
      bool sized = x->rank == 4 && (d == 1 || d == 2);
      return sized && c->attr.stride > 1;
    }
    default:
      return false;
  }
}

static void spoil_dimension(const brim_case *c, brim_op_call *bad, brim_tensor *tensor, int t,
                            int d) {
  int64_t old = tensor->dim[d];
  bool may_pass = is_free(c, bad, t, d);
  tensor->dim[d] = old + 1;
  bool strided = c->attr.stride > 1;  // depends on the remainder
  if (!may_pass || !strided) assert_status(brim_op_check(bad), may_pass ? BRIM_OK : BRIM_EINVAL);
  tensor->dim[d] = 0;
  bool may_be_empty = c->op == BRIM_OP_OPTIMIZER && c->attr.optimizer == BRIM_OPTIMIZER_SGD &&
                      c->attr.momentum == 0;
  if (!may_be_empty) assert_status(brim_op_check(bad), BRIM_EINVAL);
  tensor->dim[d] = -3;
  assert_status(brim_op_check(bad), BRIM_EINVAL);
  tensor->dim[d] = old;
}

// Changes one dimension or one type of one tensor: the check always finds it.
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
        spoil_dimension(&c, &bad, tensor, t, d);
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
  assert_true(spoiled > 3000);
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

static void test_image_messages(void **state) {
  (void)state;
  brim_op_call call;
  const char *conv = "conv n=2 h=5 w=7 c=3 m=4 window=3x3 stride=2";
  find_case(conv, &call);
  call.out[0].dim[1] = 4;
  assert_refused(&call, "conv: P is 4, but 5 values, a window of 3, stride 2 and pad 1 give 3");
  find_case(conv, &call);
  call.attr.stride = 0;
  assert_refused(&call, "stride is 0");
  find_case(conv, &call);
  call.attr.pad = -1;
  assert_refused(&call, "pad is -1");
  call.attr.pad = 3;
  assert_refused(&call, "pad is 3, expected less than the window of 3");
  find_case("conv n=1 h=1 w=1", &call);
  call.in[1].dim[1] = 2;
  assert_refused(&call, "a window of 2 does not fit into 1 values");
  find_case("conv_bwd_data n=2 h=5 w=7", &call);
  call.out[0].dim[2] = 9;
  assert_refused(&call, "conv_bwd_data: Q is 7");
  find_case("conv_bwd_weight n=2 h=5 w=7", &call);
  call.in[1].dim[3] = 5;
  assert_refused(&call, "dw has C = 3, but x gave C = 5");
  find_case("maxpool n=2 h=5 w=7", &call);
  call.attr.window = 16;
  assert_refused(&call, "window is 16, expected 1 to 15");
  find_case("maxpool n=2 h=5 w=7", &call);
  call.out[1].dtype = BRIM_I32;
  assert_refused(&call, "place is i32, expected u8");
  find_case("batchnorm n=4", &call);
  call.attr.act = BRIM_ACT_GELU;
  assert_refused(&call, "expected none or relu");
  find_case("batchnorm n=4", &call);
  call.attr.momentum = 1.5f;
  assert_refused(&call, "momentum is 1.5");
  find_case("batchnorm n=4", &call);
  call.out_count = 4;
  assert_refused(&call, "rmean and rvar");
  find_case("batchnorm_apply n=4 h=2 w=3 c=7 variance", &call);
  call.attr.eps = 0;
  assert_refused(&call, "eps is 0");
  find_case("batchnorm_bwd n=4", &call);
  call.in[4].dim[0] = 8;
  assert_refused(&call, "mean has C = 8, but dy gave C = 7");
  find_case("input n=3 c=24 u8 rgb to 4 channels", &call);
  call.out[0].dim[2] = 2;
  assert_refused(&call, "y has 16 values per row, expected 24");
  find_case("mean n=2", &call);
  call.in[0] = call.out[0];
  assert_refused(&call, "expected rank 3 or more");
}

static void test_batchnorm_parts_messages(void **state) {
  (void)state;
  brim_op_call call;
  find_case("batchnorm_part n=4", &call);
  call.out[0].dim[0] = 2;
  assert_refused(&call, "part has 2 rows, expected 3");
  find_case("batchnorm_join parts=4 c=17 running", &call);
  call.out_count = 4;
  assert_refused(&call, "rmean and rvar");
  find_case("batchnorm_join parts=4 c=17 running", &call);
  call.attr.eps = 0;
  assert_refused(&call, "eps is 0");
  find_case("batchnorm_bwd_sums n=4", &call);
  call.attr.act = BRIM_ACT_GELU;
  assert_refused(&call, "expected none or relu");
  find_case("batchnorm_bwd_joined n=4", &call);
  call.in[7].dim[0] = 2;
  assert_refused(&call, "total is (2), expected (1)");
}

static void test_token_messages(void **state) {
  (void)state;
  brim_op_call call;
  find_case("linear n=3 l=5 k=17 m=9 bias", &call);
  call.out[0].dim[1] = 6;
  assert_refused(&call, "linear: y has N = 18, but x gave N = 15");
  find_case("linear n=3 l=5 k=17 m=9 bias", &call);
  call.in[0].rank = 1;
  assert_refused(&call, "expected rank 2 or more");
  find_case("layernorm n=3 l=7", &call);
  call.out[1].dim[0] = 3;
  assert_refused(&call, "mean has N = 3, but x gave N = 21");
  find_case("attention n=2 l=3 c=4", &call);
  call.attr.heads = 3;
  assert_refused(&call, "4 channels do not divide into 3 heads");
  call.attr.heads = 0;
  assert_refused(&call, "0 heads");
  call.attr.heads = 4;
  assert_refused(&call, "lse has 2 heads, but heads is 4");
  find_case("attention_bwd n=2 l=3 c=4", &call);
  call.in[1].dim[2] = call.out[0].dim[2] = 13;
  assert_refused(&call, "qkv has 13 columns, expected 3 times y's 4");
  find_case("concat n=3", &call);
  call.out[0].dim[1] = 8;
  assert_refused(&call, "5 and 2 columns do not make 8");
  find_case("ntxent n=4", &call);
  call.attr.temperature = 0;
  assert_refused(&call, "temperature is 0");
  find_case("ntxent n=4", &call);
  call.in[0].dim[0] = 5;
  assert_refused(&call, "z has 5 rows");
  find_case("step_end p=4 good", &call);
  call.attr.growth_interval = 0;
  assert_refused(&call, "growth interval is 0");
  find_case("step_end p=4 good", &call);
  call.out[1].dim[1] = 3;
  assert_refused(&call, "ring has 3 columns, expected 4");
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
  assert_refused(&call, "unknown optimizer 3");
  call.attr.optimizer = BRIM_OPTIMIZER_SGD;
  call.attr.weight_decay = -1;
  assert_refused(&call, "weight decay is -1");
  find_case("add n=3", &call);
  call.in[0].dim[0] = call.in[1].dim[0] = call.out[0].dim[0] = INT64_MAX / 2;
  assert_refused(&call, "64 bits");
  call.op = BRIM_OP_COUNT;
  assert_refused(&call, "unknown op");
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
    bool moves = c.op == BRIM_OP_CAST || c.op == BRIM_OP_CONCAT || c.op == BRIM_OP_CONCAT_BWD;
    assert_true(bytes > 0 && (flops > 0) != moves);
  }
}

static void assert_flops(const char *prefix, double want) {
  brim_op_call call;
  double flops, bytes;
  find_case(prefix, &call);
  brim_op_cost(&call, &flops, &bytes);
  assert_true(flops == want);
}

static void test_cost_of_layers(void **state) {
  (void)state;
  const double conv = 2.0 * 2 * 5 * 5 * 24 * 3 * 3 * 8;
  assert_flops("conv n=2 h=9 w=9 c=8 m=24 window=3x3 stride=2", conv);
  assert_flops("conv_bwd_data n=2 h=9 w=9 c=8 m=24 window=3x3 stride=2", conv);
  assert_flops("conv_bwd_weight n=2 h=9 w=9 c=8 m=24 window=3x3 stride=2", conv);
  const double attention = 4.0 * 2 * 4 * 17 * 17 * 4 + 5.0 * 2 * 4 * 17 * 17;
  assert_flops("attention n=2 l=17 c=16 heads=4", attention);
  assert_flops("attention_bwd n=2 l=17 c=16 heads=4", 2.5 * attention);
  assert_flops("linear n=3 l=5 k=17 m=9 plain", 2.0 * 15 * 17 * 9);
  brim_op_call call;
  double flops, bytes;
  find_case("batchnorm_bwd n=8 h=4 w=4 c=64 relu y dy2 dz", &call);
  brim_op_cost(&call, &flops, &bytes);
  double image = 8.0 * 4 * 4 * 64;
  assert_true(bytes == 4 * (6 * image + 6 * 64) + 8 * BRIM_STATE_COUNT);
  assert_flops("batchnorm_part n=8 h=4 w=4 c=64", 4 * image);
  assert_flops("batchnorm_join parts=4 c=17", 4.0 * 4 * 3 * 17);
  assert_flops("batchnorm_bwd_sums n=8 h=4 w=4 c=64 relu y dy2", 7 * image);
  assert_flops("batchnorm_bwd_joined n=8 h=4 w=4 c=64 relu y dy2 dz", 9 * image);
  find_case("step_end p=512", &call);
  brim_op_cost(&call, &flops, &bytes);
  assert_true(bytes < 512);  // one row of the ring, not all of it
}

//---------------------------------- rows ----------------------------------

// Every op has rules: a call with nothing but the op lacks its first tensor.
static void test_every_op_has_a_row(void **state) {
  (void)state;
  for (int op = 0; op < BRIM_OP_COUNT; op++) {
    brim_op_call call = {.op = (brim_op)op};
    assert_refused(&call, "is missing");
    assert_non_null(strstr(brim_status_detail(), brim_op_name((brim_op)op)));
  }
  double flops = 1, bytes = 1;
  brim_op_cost(&(brim_op_call){.op = BRIM_OP_COUNT, .in_count = 1}, &flops, &bytes);
  assert_true(flops == 0 && bytes == 0);
}

static void test_in_place(void **state) {
  (void)state;
  static const struct {
    brim_op op;
    int outs, out, in;
  } allowed[] = {
      {BRIM_OP_ACT, 1, 0, 0},
      {BRIM_OP_ACT_BWD, 1, 0, 0},
      {BRIM_OP_DROPOUT, 1, 0, 0},
      {BRIM_OP_POS, 1, 0, 0},
      {BRIM_OP_ADD, 1, 0, 0},
      {BRIM_OP_ADD, 1, 0, 1},
      {BRIM_OP_BATCHNORM_BWD, 3, 0, 0},
      {BRIM_OP_BATCHNORM_BWD, 3, 0, 1},
      {BRIM_OP_BATCHNORM_BWD, 4, 0, 1},
      {BRIM_OP_BATCHNORM_BWD, 4, 3, 0},  // dz overwrites dy
      {BRIM_OP_BATCHNORM_BWD_JOINED, 1, 0, 0},
      {BRIM_OP_BATCHNORM_BWD_JOINED, 1, 0, 1},
      {BRIM_OP_BATCHNORM_BWD_JOINED, 2, 0, 1},
      {BRIM_OP_BATCHNORM_BWD_JOINED, 2, 1, 0},
      {BRIM_OP_ALL_REDUCE, 1, 0, 0},
      {BRIM_OP_EXCHANGE_WAIT, 1, 0, 0},
  };
  int found = 0;
  for (int op = 0; op <= BRIM_OP_COUNT; op++) {
    int most = op == BRIM_OP_BATCHNORM_BWD ? 4 : op == BRIM_OP_BATCHNORM_BWD_JOINED ? 2 : 1;
    int least = most == 4 ? 3 : 1;
    for (int i = 0; i < 5 * BRIM_OP_MAX_IN * BRIM_OP_MAX_OUT; i++) {
      int in = i % BRIM_OP_MAX_IN, out = i / BRIM_OP_MAX_IN % BRIM_OP_MAX_OUT;
      int outs = 1 + i / (BRIM_OP_MAX_IN * BRIM_OP_MAX_OUT);
      if (outs < least || outs > most || out >= outs) continue;
      bool expected = false;
      for (size_t k = 0; k < sizeof allowed / sizeof *allowed; k++) {
        expected = expected || ((int)allowed[k].op == op && allowed[k].outs == outs &&
                                allowed[k].out == out && allowed[k].in == in);
      }
      assert_int_equal(brim_op_in_place((brim_op)op, outs, out, in), expected);
      found += expected;
    }
  }
  assert_int_equal(found, sizeof allowed / sizeof *allowed);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all_cases_pass), cmocka_unit_test(test_every_spoiling_is_found),
      cmocka_unit_test(test_messages),       cmocka_unit_test(test_optimizer_messages),
      cmocka_unit_test(test_image_messages), cmocka_unit_test(test_batchnorm_parts_messages),
      cmocka_unit_test(test_token_messages), cmocka_unit_test(test_cost),
      cmocka_unit_test(test_cost_of_layers), cmocka_unit_test(test_every_op_has_a_row),
      cmocka_unit_test(test_in_place),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
