// ref, the reference backend, against definitions written again here, value by value: comparing backends with ref
// cannot find its own errors. Gradients and optimizers are in tests/cases.
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

// Definitions compute each value on its own.
static bool too_large(const brim_case *c, const brim_op_call *call) {
  double flops, bytes;
  brim_op_cost(call, &flops, &bytes);
  bool image = c->op == BRIM_OP_BATCHNORM;  // each value needs its whole channel
  return flops > 1e7 || (image && brim_case_rows(c) > 1000);
}

// True for 5 of 6 expensive cases. With BRIM_TEST_FULL all of them run.
static bool left_out(const brim_op_call *call, size_t index) {
  double flops, bytes;
  brim_op_cost(call, &flops, &bytes);
  return flops > 5e5 && !test_is_sampled(index, 6);
}

static void check_definition(brim_op op, definition define) {
  int checked = 0;
  for (size_t i = 0; i < brim_case_count(); i++) {
    brim_case c;
    brim_case_get(i, &c);
    if (c.op != op || c.nonfinite) continue;
    brim_case_set_type(&c, BRIM_F64);
    if (op == BRIM_OP_CAST) c.type2 = BRIM_F64;
    brim_case_data data, got;
    brim_op_call call;
    brim_case_call(&c, &call);
    if (too_large(&c, &call)) continue;
    if (left_out(&call, i)) {
      checked += (int)brim_tensor_count(&call.out[0]);  // counts as checked: another sample runs it
      continue;
    }
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
  for (int64_t n = 0; n < brim_case_rows(c); n++)
    sum += d->in[0][n * c->m + row] * d->in[1][n * c->k + column];
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
  if (c->m) {  // pixels of m values
    int64_t pixel = i / c->m, at = i % c->m;
    if (at >= c->attr.channels) return 0;
    i = pixel * c->attr.channels + at;
  }
  int64_t channel = (i % c->k) % c->attr.channels;
  return d->in[0][i] * (double)c->attr.scale[channel] + (double)c->attr.shift[channel];
}

// The rule as backend.h states it, element by element.
static double define_dropout(const brim_case *c, const brim_case_data *d, int64_t i) {
  int64_t columns = c->k * (c->l ? c->l : 1);  // values a row
  uint64_t row = (uint64_t)(i / columns), column = (uint64_t)(i % columns);
  uint64_t e = ((uint64_t)c->state[BRIM_STATE_ROW_OFFSET] + row) * (uint64_t)columns + column;
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

static double define_bce(const brim_case *c, const brim_case_data *d, int64_t metric) {
  int64_t rows = (int64_t)c->state[BRIM_STATE_ROWS];
  double loss = 0, correct = 0;
  for (int64_t i = 0; i < rows * c->k; i++) {
    double p = 1 / (1 + exp(-d->in[0][i])), t = d->in[1][i];
    loss -= t * log(p) + (1 - t) * log(1 - p);
    correct += (p > 0.5) == (t == 1);
  }
  double add[BRIM_METRIC_COUNT] = {[BRIM_METRIC_LOSS] = loss / (double)c->k,
                                   [BRIM_METRIC_CORRECT] = correct / (double)c->k,
                                   [BRIM_METRIC_ROWS] = (double)rows};
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
  check_definition(BRIM_OP_BCE, define_bce);
  check_definition(BRIM_OP_XENT, define_xent);
}

//---------------------------------- images ----------------------------------

static double pixel(const brim_case *c, const double *x, int64_t n, int64_t h, int64_t w,
                    int64_t k) {
  if (h < 0 || h >= c->h || w < 0 || w >= c->w) return 0;
  return x[((n * c->h + h) * c->w + w) * c->k + k];
}

static double define_conv(const brim_case *c, const brim_case_data *d, int64_t i) {
  int64_t stride = c->attr.stride, pad = c->attr.pad;
  int64_t high = (c->h + 2 * pad - c->r) / stride + 1, wide = (c->w + 2 * pad - c->s) / stride + 1;
  int64_t m = i % c->m, q = i / c->m % wide, p = i / c->m / wide % high, n = i / c->m / wide / high;
  double sum = 0;
  for (int64_t r = 0; r < c->r; r++) {
    for (int64_t s = 0; s < c->s; s++) {
      for (int64_t k = 0; k < c->k; k++) {
        sum += pixel(c, d->in[0], n, p * stride + r - pad, q * stride + s - pad, k) *
               d->in[1][((m * c->r + r) * c->s + s) * c->k + k];
      }
    }
  }
  return sum;
}

static double define_batchnorm(const brim_case *c, const brim_case_data *d, int64_t i) {
  int64_t k = i % c->k, rows = (int64_t)c->state[BRIM_STATE_ROWS] * c->h * c->w;
  double mean = 0, variance = 0;
  for (int64_t r = 0; r < rows; r++) mean += d->in[0][r * c->k + k] / (double)rows;
  for (int64_t r = 0; r < rows; r++) {
    variance += pow(d->in[0][r * c->k + k] - mean, 2) / (double)rows;
  }
  double y = (d->in[0][i] - mean) / sqrt(variance + (double)c->attr.eps) * d->in[1][k] +
             d->in[2][k] + (c->with & BRIM_WITH_Z ? d->in[4][i] : 0);
  return define_act(c->attr.act, y);
}

static double define_batchnorm_apply(const brim_case *c, const brim_case_data *d, int64_t i) {
  int64_t k = i % c->k;
  double s = d->in[4][k], rstd = c->attr.variance ? 1 / sqrt(s + (double)c->attr.eps) : s;
  double y = (d->in[0][i] - d->in[3][k]) * rstd * d->in[1][k] + d->in[2][k];
  return define_act(c->attr.act, y + (c->with & BRIM_WITH_Z ? d->in[5][i] : 0));
}

static double define_maxpool(const brim_case *c, const brim_case_data *d, int64_t i) {
  int64_t stride = c->attr.stride, pad = c->attr.pad;
  int64_t high = (c->h + 2 * pad - c->r) / stride + 1, wide = (c->w + 2 * pad - c->r) / stride + 1;
  int64_t k = i % c->k, q = i / c->k % wide, p = i / c->k / wide % high, n = i / c->k / wide / high;
  double best = -INFINITY;
  for (int64_t h = p * stride - pad; h < p * stride - pad + c->r; h++) {
    for (int64_t w = q * stride - pad; w < q * stride - pad + c->r; w++) {
      bool inside = h >= 0 && h < c->h && w >= 0 && w < c->w;
      if (inside) best = fmax(best, pixel(c, d->in[0], n, h, w, k));
    }
  }
  return best;
}

static void test_images(void **state) {
  (void)state;
  check_definition(BRIM_OP_CONV, define_conv);
  check_definition(BRIM_OP_BATCHNORM, define_batchnorm);
  check_definition(BRIM_OP_BATCHNORM_APPLY, define_batchnorm_apply);
  check_definition(BRIM_OP_MAXPOOL, define_maxpool);
}

// The position is that of the first maximum, and NaN counts as the maximum.
static void test_maxpool_place(void **state) {
  (void)state;
  double x[] = {1, 3, 3, 0, 3, 2, 5, NAN, 7}, y[4];
  uint8_t place[4];
  brim_op_call call = {.op = BRIM_OP_MAXPOOL, .in_count = 1, .out_count = 2};
  call.attr.window = 2;
  call.attr.stride = 1;
  call.in[0] = brim_tensor_make(x, BRIM_F64, 4, (const int64_t[]){1, 3, 3, 1});
  call.out[0] = brim_tensor_make(y, BRIM_F64, 4, (const int64_t[]){1, 2, 2, 1});
  call.out[1] = brim_tensor_make(place, BRIM_U8, 4, (const int64_t[]){1, 2, 2, 1});
  assert_ok(brim_op_prepare(ref, &call));
  assert_ok(brim_op_run(ref, &call));
  assert_true(y[0] == 3 && y[1] == 3 && isnan(y[2]) && isnan(y[3]));
  const uint8_t want[4] = {1, 0, 3, 2};
  assert_memory_equal(place, want, 4);
}

// The moving averages of 1, 2, 3, 4 (and a row of padding): mean 2.5, unbiased variance 5 / 3.
static void test_running_statistics(void **state) {
  (void)state;
  double x[] = {1, 2, 3, 4, 99}, one = 1, zero = 0, y[5], mean, rstd, rmean = 0.5, rvar = 2;
  double step[BRIM_STATE_COUNT] = {[BRIM_STATE_ROWS] = 4};
  brim_op_call call = {.op = BRIM_OP_BATCHNORM, .in_count = 4, .out_count = 5};
  call.attr = (brim_op_attr){.eps = 1e-5f, .momentum = 0.25f};
  const int64_t c = 1, states = BRIM_STATE_COUNT;
  call.in[0] = brim_tensor_make(x, BRIM_F64, 4, (const int64_t[]){5, 1, 1, 1});
  call.in[1] = brim_tensor_make(&one, BRIM_F64, 1, &c);
  call.in[2] = brim_tensor_make(&zero, BRIM_F64, 1, &c);
  call.in[3] = brim_tensor_make(step, BRIM_F64, 1, &states);
  call.out[0] = brim_tensor_make(y, BRIM_F64, 4, (const int64_t[]){5, 1, 1, 1});
  call.out[1] = brim_tensor_make(&mean, BRIM_F64, 1, &c);
  call.out[2] = brim_tensor_make(&rstd, BRIM_F64, 1, &c);
  call.out[3] = brim_tensor_make(&rmean, BRIM_F64, 1, &c);
  call.out[4] = brim_tensor_make(&rvar, BRIM_F64, 1, &c);
  assert_ok(brim_op_prepare(ref, &call));
  assert_ok(brim_op_run(ref, &call));
  assert_true(mean == 2.5 && fabs(rstd - 1 / sqrt(1.25 + (double)1e-5f)) < 1e-14);
  assert_true(fabs(rmean - (0.75 * 0.5 + 0.25 * 2.5)) < 1e-14);
  assert_true(fabs(rvar - (0.75 * 2 + 0.25 * 5 / 3)) < 1e-14);
  // Without a valid row the averages do not move.
  double mean_before = rmean, var_before = rvar;
  step[BRIM_STATE_ROWS] = 0;
  assert_ok(brim_op_run(ref, &call));
  assert_true(rmean == mean_before && rvar == var_before);
  assert_true(mean == 0 && fabs(rstd * sqrt((double)1e-5f) - 1) < 1e-14);
}

//---------------------------------- tokens ----------------------------------

static double define_mean(const brim_case *c, const brim_case_data *d, int64_t i) {
  int64_t places = brim_case_rows(c) / c->n;
  double sum = 0;
  for (int64_t p = 0; p < places; p++) sum += d->in[0][(i / c->k * places + p) * c->k + i % c->k];
  return sum / (double)places;
}

static double define_pos(const brim_case *c, const brim_case_data *d, int64_t i) {
  return d->in[0][i] + d->in[1][i % (c->l * c->k)];
}

static double define_concat(const brim_case *c, const brim_case_data *d, int64_t i) {
  int64_t row = i / (c->k + c->m), column = i % (c->k + c->m);
  return column < c->k ? d->in[0][row * c->k + column] : d->in[1][row * c->m + column - c->k];
}

// softmax(q k'
// sqrt(d)) v, straight from the paper, without subtracting the maximum.
static double define_attention(const brim_case *c, const brim_case_data *d, int64_t i) {
  int64_t column = i % c->k, size = c->k / c->attr.heads, at = column / size * size;
  const double *sequence = d->in[0] + i / c->k / c->l * c->l * 3 * c->k;
  const double *q = sequence + i / c->k % c->l * 3 * c->k + at;
  double sum = 0, out = 0;
  for (int64_t j = 0; j < c->l; j++) {
    const double *k = sequence + j * 3 * c->k + c->k + at;
    double score = 0;
    for (int64_t e = 0; e < size; e++) score += q[e] * k[e] / sqrt((double)size);
    sum += exp(score);
    out += exp(score) * k[c->k - at + column];
  }
  return out / sum;
}

static double cosine(const brim_case *c, const double *z, int64_t i, int64_t j) {
  double dot = 0, a = 0, b = 0;
  for (int64_t k = 0; k < c->k; k++) {
    dot += z[i * c->k + k] * z[j * c->k + k];
    a += z[i * c->k + k] * z[i * c->k + k];
    b += z[j * c->k + k] * z[j * c->k + k];
  }
  return dot / sqrt(a * b);
}

static double define_ntxent(const brim_case *c, const brim_case_data *d, int64_t metric) {
  int64_t half = c->n / 2, valid = (int64_t)c->state[BRIM_STATE_SAMPLES];
  double add[BRIM_METRIC_COUNT] = {[BRIM_METRIC_ROWS] = (double)valid};
  for (int64_t i = 0; i < c->n; i++) {
    if (i % half >= valid) continue;
    double sum = 0, best = -2, pair = cosine(c, d->in[0], i, (i + half) % c->n);
    for (int64_t j = 0; j < c->n; j++) {
      if (j == i || j % half >= valid) continue;
      double s = cosine(c, d->in[0], i, j);
      sum += exp(s / (double)c->attr.temperature);
      best = fmax(best, s);
    }
    add[BRIM_METRIC_LOSS] -= 0.5 * log(exp(pair / (double)c->attr.temperature) / sum);
    if (i < half) add[BRIM_METRIC_CORRECT] += pair >= best;
  }
  return d->out[0][metric] + add[metric];
}

static void test_tokens(void **state) {
  (void)state;
  check_definition(BRIM_OP_MEAN, define_mean);
  check_definition(BRIM_OP_POS, define_pos);
  check_definition(BRIM_OP_CONCAT, define_concat);
  check_definition(BRIM_OP_ATTENTION, define_attention);
  check_definition(BRIM_OP_NTXENT, define_ntxent);
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
      cmocka_unit_test(test_linear),        cmocka_unit_test(test_pointwise),
      cmocka_unit_test(test_layernorm),     cmocka_unit_test(test_losses),
      cmocka_unit_test(test_grad_norm),     cmocka_unit_test(test_cast_rounds),
      cmocka_unit_test(test_repeatable),    cmocka_unit_test(test_images),
      cmocka_unit_test(test_maxpool_place), cmocka_unit_test(test_running_statistics),
      cmocka_unit_test(test_tokens),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
