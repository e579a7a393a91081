// The oracle itself against definitions written here anew, value by value: what comparing backends
// with ref cannot find. Gradients and optimisers are in tests/cases.
#include <math.h>

#include "backend/backend_half.h"
#include "base/base.h"
#include "cases/cases.h"
#include "hd/hd_philox.h"
#include "test.h"

static brim_registry *registry;
static brim_device *ref;

static int setup(void **state) {
  (void)state;
  assert_ok(brim_registry_create(&registry));
  assert_ok(brim_device_open(registry, "ref", NULL, &ref));
  return 0;
}

static int teardown(void **state) {
  (void)state;
  brim_device_close(ref);
  brim_registry_destroy(registry);
  return 0;
}

// Definition of one value of output 0 of a case.
typedef double (*definition)(const brim_case *c, const brim_case_data *d, int64_t i);

static void check_definition(brim_op op, definition define) {
  int checked = 0;
  for (size_t i = 0; i < brim_case_count(); i++) {
    brim_case c;
    brim_case_get(i, &c);
    if (c.op != op || c.nonfinite || c.n * c.k * (c.m ? c.m : 1) > 3000000) continue;
    brim_case_set_type(&c, BRIM_F64);
    if (op == BRIM_OP_CAST) c.type2 = BRIM_F64;
    brim_case_data data, got;
    brim_op_call call;
    brim_case_call(&c, &call);
    assert_ok(brim_case_data_create(&c, &data));
    assert_ok(brim_case_run(ref, &c, &data, &got));
    int64_t count = brim_tensor_count(&call.out[0]);
    for (int64_t j = 0; j < count; j++) {
      double want = define(&c, &data, j);
      if (!(fabs(got.out[0][j] - want) <= 1e-11 * fmax(1, fabs(want)))) {
        fail_msg("%s: value %lld is %.15g, its definition gives %.15g", c.name, (long long)j,
                 got.out[0][j], want);
      }
      checked++;
    }
    brim_case_data_destroy(&data);
    brim_case_data_destroy(&got);
  }
  assert_true(checked > 100);
}

static double define_act(brim_act act, double x) {
  switch (act) {
    case BRIM_ACT_RELU:
      return fmax(x, 0);
    case BRIM_ACT_GELU:
      return x * 0.5 * erfc(-x / sqrt(2));  // x times the normal distribution
    case BRIM_ACT_TANH:
      return 2 / (1 + exp(-2 * x)) - 1;
    default:
      return x;
  }
}

static double define_linear(const brim_case *c, const brim_case_data *d, int64_t i) {
  int64_t row = i / c->m, column = i % c->m;
  double sum = c->optional ? d->in[2][column] : 0;
  for (int64_t k = 0; k < c->k; k++) sum += d->in[0][row * c->k + k] * d->in[1][column * c->k + k];
  return define_act(c->attr.act, sum);
}

static double define_bwd_weight(const brim_case *c, const brim_case_data *d, int64_t i) {
  int64_t row = i / c->k, column = i % c->k;
  double sum = c->attr.accumulate ? d->out[0][i] : 0;
  for (int64_t n = 0; n < c->n; n++) sum += d->in[0][n * c->m + row] * d->in[1][n * c->k + column];
  return sum;
}

static void test_linear(void **state) {
  (void)state;
  check_definition(BRIM_OP_LINEAR, define_linear);
  check_definition(BRIM_OP_LINEAR_BWD_WEIGHT, define_bwd_weight);
}

static double define_act_case(const brim_case *c, const brim_case_data *d, int64_t i) {
  return define_act(c->attr.act, d->in[0][i]);
}

static double define_add(const brim_case *c, const brim_case_data *d, int64_t i) {
  (void)c;
  return d->in[0][i] + d->in[1][i];
}

static double define_cast(const brim_case *c, const brim_case_data *d, int64_t i) {
  (void)c;
  return d->in[0][i];
}

static double define_input(const brim_case *c, const brim_case_data *d, int64_t i) {
  int64_t channel = (i % c->k) % c->attr.channels;
  return d->in[0][i] * (double)c->attr.scale[channel] + (double)c->attr.shift[channel];
}

// The rule as backend.h states it, element by element.
static double define_dropout(const brim_case *c, const brim_case_data *d, int64_t i) {
  uint64_t row = (uint64_t)(i / c->k), column = (uint64_t)(i % c->k);
  uint64_t e = ((uint64_t)c->state[BRIM_STATE_ROW_OFFSET] + row) * (uint64_t)c->k + column;
  uint64_t key = brim_rng_key((uint64_t)c->state[BRIM_STATE_SEED], BRIM_RNG_DROPOUT);
  uint64_t high = (uint64_t)c->state[BRIM_STATE_STEP] << 16 | c->attr.layer;
  float u = brim_rng_uniform(brim_philox(key, high, e / 4).v[e % 4]);
  return u < c->attr.p ? 0 : d->in[0][i] / (1 - (double)c->attr.p);
}

static void test_pointwise(void **state) {
  (void)state;
  check_definition(BRIM_OP_ACT, define_act_case);
  check_definition(BRIM_OP_ADD, define_add);
  check_definition(BRIM_OP_CAST, define_cast);
  check_definition(BRIM_OP_INPUT, define_input);
  check_definition(BRIM_OP_DROPOUT, define_dropout);
}

static double define_layernorm(const brim_case *c, const brim_case_data *d, int64_t i) {
  const double *row = d->in[0] + i / c->k * c->k;
  double mean = 0, variance = 0;
  for (int64_t k = 0; k < c->k; k++) mean += row[k] / (double)c->k;
  for (int64_t k = 0; k < c->k; k++) variance += pow(row[k] - mean, 2) / (double)c->k;
  int64_t column = i % c->k;
  return (row[column] - mean) / sqrt(variance + (double)c->attr.eps) * d->in[1][column] +
         d->in[2][column];
}

static void test_layernorm(void **state) {
  (void)state;
  check_definition(BRIM_OP_LAYERNORM, define_layernorm);
}

// Metrics start at what brim_case_data_create put there.
static double define_mse(const brim_case *c, const brim_case_data *d, int64_t metric) {
  int64_t rows = (int64_t)c->state[BRIM_STATE_ROWS];
  double loss = 0;
  for (int64_t i = 0; i < rows * c->k; i++) loss += pow(d->in[0][i] - d->in[1][i], 2);
  double add[BRIM_METRIC_COUNT] = {
      [BRIM_METRIC_LOSS] = loss / (double)c->k, [BRIM_METRIC_ROWS] = (double)rows};
  return d->out[0][metric] + add[metric];
}

static double define_xent(const brim_case *c, const brim_case_data *d, int64_t metric) {
  double add[BRIM_METRIC_COUNT] = {0}, smooth = (double)c->attr.label_smoothing;
  for (int64_t row = 0; row < (int64_t)c->state[BRIM_STATE_ROWS]; row++) {
    const double *z = d->in[0] + row * c->k;
    double sum = 0, loss = 0, label = d->in[1][row];
    int64_t best = 0;
    add[BRIM_METRIC_ROWS] += 1;
    if (label < 0 || label >= (double)c->k) {
      add[BRIM_METRIC_BAD] += 1;
      continue;
    }
    for (int64_t k = 0; k < c->k; k++) sum += exp(z[k]);
    for (int64_t k = 0; k < c->k; k++) {
      double target = ((double)k == label ? 1 - smooth : 0) + smooth / (double)c->k;
      loss -= target * log(exp(z[k]) / sum);
      if (z[k] > z[best]) best = k;
    }
    add[BRIM_METRIC_LOSS] += loss;
    add[BRIM_METRIC_CORRECT] += (double)best == label;
  }
  return d->out[0][metric] + add[metric];
}

static void test_losses(void **state) {
  (void)state;
  check_definition(BRIM_OP_MSE, define_mse);
  check_definition(BRIM_OP_XENT, define_xent);
}

static void test_grad_norm(void **state) {
  (void)state;
  double g[] = {3, INFINITY, 4, NAN, -12, -INFINITY}, norm[2];
  const int64_t six = 6, two = 2;
  brim_op_call call = {.op = BRIM_OP_GRAD_NORM, .in_count = 1, .out_count = 1};
  call.in[0] = brim_tensor_make(g, BRIM_F64, 1, &six);
  call.out[0] = brim_tensor_make(norm, BRIM_F64, 1, &two);
  assert_ok(brim_op_prepare(ref, &call));
  assert_ok(brim_op_run(ref, &call));
  assert_true(norm[0] == 169 && norm[1] == 3);
}

// The stored types round to nearest even.
static void test_cast_rounds(void **state) {
  (void)state;
  float x[] = {1.00390625f, 1.01171875f, -3.4e38f, 0.1f};  // the first two are ties in bf16
  uint16_t y[4];
  const int64_t four = 4;
  brim_op_call call = {.op = BRIM_OP_CAST, .in_count = 1, .out_count = 1};
  call.in[0] = brim_tensor_make(x, BRIM_F32, 1, &four);
  call.out[0] = brim_tensor_make(y, BRIM_BF16, 1, &four);
  assert_ok(brim_op_prepare(ref, &call));
  assert_ok(brim_op_run(ref, &call));
  assert_int_equal(y[0], 0x3f80);
  assert_int_equal(y[1], 0x3f82);
  assert_int_equal(y[2], 0xff80);
  assert_int_equal(y[3], 0x3dcd);
}

// The same call twice gives the same bits.
static void test_repeatable(void **state) {
  (void)state;
  for (uint64_t i = 0; i < 60; i++) {
    brim_case c;
    brim_op_call call;
    brim_case_fuzz(11, i, &c);
    brim_case_call(&c, &call);
    brim_case_data data, a, b;
    assert_ok(brim_case_data_create(&c, &data));
    assert_ok(brim_case_run(ref, &c, &data, &a));
    assert_ok(brim_case_run(ref, &c, &data, &b));
    for (int o = 0; o < call.out_count; o++) {
      size_t bytes = (size_t)brim_tensor_count(&call.out[o]) * sizeof(double);
      if (bytes) assert_memory_equal(a.out[o], b.out[o], bytes);
    }
    brim_case_data_destroy(&data);
    brim_case_data_destroy(&a);
    brim_case_data_destroy(&b);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_linear),     cmocka_unit_test(test_pointwise),
      cmocka_unit_test(test_layernorm),  cmocka_unit_test(test_losses),
      cmocka_unit_test(test_grad_norm),  cmocka_unit_test(test_cast_rounds),
      cmocka_unit_test(test_repeatable),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
