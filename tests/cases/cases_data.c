// Values of a case: drawn from Philox, rounded to their type, with the special values an op needs (labels, states,
// statistics that fit the data). Also the encoding of values into a device's types.
#include <math.h>
#include <string.h>

#include "backend/backend_half.h"
#include "cases/cases_int.h"
#include "hd/hd_philox.h"

static double signed_uniform(uint32_t bits) { return 2 * (double)brim_rng_uniform(bits) - 1; }

double brim_case_uniform(uint64_t seed, uint64_t slot, uint64_t element) {
  brim_philox4 r = brim_philox(brim_rng_key(seed, BRIM_RNG_TEST), slot, element / 4);
  return signed_uniform(r.v[element % 4]);
}

// Integers have no NaN: an output that is not written yet holds the smallest one.
static int64_t whole(double v) { return isnan(v) ? INT32_MIN : (int64_t)v; }

// One loop for each type: a branch inside the loop made this the slowest part of many tests.
#define EACH(member, ctype, value)                                          \
  case member:                                                              \
    for (int64_t i = 0; i < count; i++) ((ctype *)out)[i] = (ctype)(value); \
    break

void brim_case_encode(brim_dtype type, const double *values, int64_t count, void *out) {
  switch (type) {
    EACH(BRIM_F32, float, values[i]);
    EACH(BRIM_F64, double, values[i]);
    EACH(BRIM_BF16, uint16_t, brim_f32_to_bf16((float)values[i]));
    EACH(BRIM_F16, uint16_t, brim_f32_to_f16((float)values[i]));
    EACH(BRIM_U8, uint8_t, whole(values[i]));
    EACH(BRIM_I32, int32_t, whole(values[i]));
    EACH(BRIM_I64, int64_t, whole(values[i]));
    case BRIM_DTYPE_COUNT:
      break;
  }
}

void brim_case_decode(brim_dtype type, const void *data, int64_t count, double *out) {
  switch (type) {
    EACH(BRIM_F32, double, ((const float *)data)[i]);
    EACH(BRIM_F64, double, ((const double *)data)[i]);
    EACH(BRIM_BF16, double, brim_bf16_to_f32(((const uint16_t *)data)[i]));
    EACH(BRIM_F16, double, brim_f16_to_f32(((const uint16_t *)data)[i]));
    EACH(BRIM_U8, double, ((const uint8_t *)data)[i]);
    EACH(BRIM_I32, double, ((const int32_t *)data)[i]);
    EACH(BRIM_I64, double, ((const int64_t *)data)[i]);
    case BRIM_DTYPE_COUNT:
      break;
  }
}

void brim_case_round(brim_dtype type, double *values, int64_t count) {
  enum { CHUNK = 256 };
  uint64_t raw[CHUNK];  // an element of any type fits one uint64_t
  for (int64_t i = 0; i < count; i += CHUNK) {
    const int64_t n = count - i < CHUNK ? count - i : CHUNK;
    brim_case_encode(type, &values[i], n, raw);
    brim_case_decode(type, raw, n, &values[i]);
  }
}

static void fill_uniform(const brim_case *c, uint64_t slot, int64_t count, double *v) {
  const uint64_t key = brim_rng_key(c->seed, BRIM_RNG_TEST);
  for (int64_t i = 0; i < count; i += 4) {  // brim_case_uniform's numbers: four from each draw
    brim_philox4 r = brim_philox(key, slot, (uint64_t)i / 4);
    for (int64_t k = 0; k < 4 && i + k < count; k++) v[i + k] = signed_uniform(r.v[k]);
  }
}

static void fill_labels(const brim_case *c, double *v) {
  for (int64_t i = 0; i < c->n; i++) {
    brim_philox4 r = brim_philox(brim_rng_key(c->seed, BRIM_RNG_TEST), 99, (uint64_t)i);
    v[i] = (double)brim_rng_below(r.v[0], r.v[1], (uint64_t)c->k);
    if (c->bad_labels && i % 5 == 1) v[i] = i % 2 ? -1 : (double)c->k;
    if (c->bad_labels && i % 7 == 6) v[i] = -2147483648.0;
  }
}

static void fill_xent(const brim_case *c, int64_t count, brim_case_data *d) {
  for (int64_t i = 0; i < count; i++) d->in[0][i] *= 4;
  for (int64_t i = 0; i < c->k; i++) d->in[0][i] = 0.5;  // row 0: all are equal
  if (c->nonfinite) d->in[0][count - 1] = NAN;
  fill_labels(c, d->in[1]);
  memcpy(d->in[2], c->state, sizeof(c->state));
}

// Row statistics of x, which LAYERNORM_BWD gets as inputs.
static void fill_moments(const brim_case *c, const double *x, double *mean, double *rstd) {
  int64_t rows = brim_case_rows(c);
  for (int64_t row = 0; row < rows; row++) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < c->k; i++) sum += x[row * c->k + i];
    mean[row] = sum / (double)c->k;
    for (int64_t i = 0; i < c->k; i++) {
      squares += (x[row * c->k + i] - mean[row]) * (x[row * c->k + i] - mean[row]);
    }
    rstd[row] = 1 / sqrt(squares / (double)c->k + (double)c->attr.eps);
  }
}

// The two views of a sample are alternately close to each other or nearly opposite, so that rounding never decides
// whether one is the other's nearest.
static void fill_views(const brim_case *c, double *z) {
  int64_t half = c->n / 2;
  for (int64_t i = 0; i < half * c->k; i++) {
    double sign = i / c->k % 2 ? -1.5 : 1.5;
    z[half * c->k + i] = sign * z[i] + 0.3 * z[half * c->k + i];
  }
  if (c->nonfinite) z[c->n * c->k - 1] = NAN;
}

// Similarities, some of them equal or NaN, one row all NaN; labels of both sides.
static void fill_neighbours(const brim_case *c, brim_case_data *d) {
  for (int64_t i = 0; i < c->n * c->k; i++) {
    if (c->ties) d->in[0][i] = floor(4 * d->in[0][i]) / 4;
    if (c->nonfinite && i % 5 == 0) d->in[0][i] = i % 3 == 0 ? INFINITY : NAN;
    if (c->nonfinite && i % 5 == 1) d->in[0][i] = -INFINITY;
    if (c->nonfinite && i / c->k == 1) d->in[0][i] = NAN;
  }
  for (int64_t i = 0; i < c->k + c->n; i++) {
    brim_philox4 r = brim_philox(brim_rng_key(c->seed, BRIM_RNG_TEST), 99, (uint64_t)i);
    double label = (double)brim_rng_below(r.v[0], r.v[1], (uint64_t)c->attr.classes);
    if (c->bad_labels && i % 5 == 1) label = i % 2 ? -1 : (double)c->attr.classes;
    if (i < c->k) {
      d->in[1][i] = label;
    } else {
      d->in[2][i - c->k] = label;
    }
  }
  memcpy(d->in[3], c->state, sizeof(c->state));
}

static void fill_average(const brim_case *c, brim_case_data *d) {
  memcpy(d->in[0], c->state, sizeof(c->state));
  d->in[1][0] = 5.5;
  d->in[1][1] = c->nonfinite ? 2 : 0;
  fill_uniform(c, 10, c->n, d->out[0]);
}

static void fill_step_end(const brim_case *c, brim_case_data *d) {
  double scale = c->state[BRIM_STATE_LOSS_SCALE];
  d->in[0][0] = 5.5 * scale * scale;
  d->in[0][1] = c->nonfinite ? 3 : 0;
  memcpy(d->out[0], c->state, sizeof(c->state));
  fill_uniform(c, 10, 4 * c->n, d->out[1]);
}

static void fill_input(const brim_case *c, const brim_op_call *call, brim_case_data *d) {
  int64_t count = brim_tensor_count(&call->in[0]);
  switch (c->op) {
    case BRIM_OP_INPUT:
      if (call->in[0].dtype != BRIM_U8) break;
      for (int64_t i = 0; i < count; i++) d->in[0][i] = floor(128 * d->in[0][i] + 128);
      break;
    case BRIM_OP_LAYERNORM:
      for (int64_t i = 0; i < c->k; i++) d->in[1][i] = 1 + 0.5 * d->in[1][i];
      break;
    case BRIM_OP_LAYERNORM_BWD:
      fill_moments(c, d->in[1], d->in[3], d->in[4]);
      break;
    case BRIM_OP_DROPOUT:
      memcpy(d->in[1], c->state, sizeof(c->state));
      break;
    case BRIM_OP_XENT:
      fill_xent(c, count, d);
      break;
    case BRIM_OP_BCE:
      for (int64_t i = 0; i < count; i++) {
        d->in[0][i] *= 8;                  // also far from 0
        d->in[1][i] = d->in[1][i] > 0.25;  // 0 or 1
      }
      if (c->nonfinite) d->in[0][count - 1] = NAN;
      memcpy(d->in[2], c->state, sizeof(c->state));
      break;
    case BRIM_OP_MSE:
      if (c->nonfinite) d->in[0][count - 1] = INFINITY;
      memcpy(d->in[2], c->state, sizeof(c->state));
      break;
    case BRIM_OP_GRAD_NORM:
      for (int64_t i = 0; c->nonfinite && i < count; i += 5) {
        d->in[0][i] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY;
      }
      break;
    case BRIM_OP_BATCHNORM:
    case BRIM_OP_BATCHNORM_APPLY:
    case BRIM_OP_BATCHNORM_BWD:
    case BRIM_OP_BATCHNORM_PART:
    case BRIM_OP_BATCHNORM_JOIN:
    case BRIM_OP_BATCHNORM_BWD_SUMS:
    case BRIM_OP_BATCHNORM_BWD_JOINED:
    case BRIM_OP_MAXPOOL:
    case BRIM_OP_MAXPOOL_BWD:
      brim_case_fill_image(c, call, d);
      break;
    case BRIM_OP_ATTENTION:
    case BRIM_OP_ATTENTION_BWD:
      brim_case_fill_tokens(c, call, d);
      break;
    case BRIM_OP_UNIT:
      for (int64_t i = 0; i < c->k; i++) d->in[0][i] = 0;  // row 0 is zero: no direction
      break;
    case BRIM_OP_KNN:
      fill_neighbours(c, d);
      break;
    case BRIM_OP_NTXENT:
      fill_views(c, d->in[0]);
      memcpy(d->in[1], c->state, sizeof(c->state));
      break;
    default:
      break;
  }
}

static void fill_optimizer(const brim_case *c, const brim_op_call *call, brim_case_data *d) {
  memcpy(d->in[0], c->state, sizeof(c->state));
  double sum = 0;
  for (int64_t i = 0; i < c->n; i++) sum += d->in[2][i] * d->in[2][i];
  d->in[1][0] = sum;
  d->in[1][1] = c->nonfinite ? 2 : 0;
  fill_uniform(c, 10, c->n, d->out[0]);
  int64_t m = brim_tensor_count(&call->out[1]), v = brim_tensor_count(&call->out[2]);
  bool first = c->state[BRIM_STATE_STEP] < 2;
  for (int64_t i = 0; i < m; i++) {
    d->out[1][i] = first ? 0 : 0.1 * brim_case_uniform(c->seed, 11, (uint64_t)i);
  }
  for (int64_t i = 0; i < v; i++) {
    double u = brim_case_uniform(c->seed, 12, (uint64_t)i);
    d->out[2][i] = first ? 0 : u * u;
  }
  // A skipped step leaves the copy unchanged; otherwise it is overwritten.
  for (int64_t i = 0; call->out_count > 3 && call->out[3].rank > 0 && i < c->n; i++) {
    d->out[3][i] = c->nonfinite ? d->out[0][i] : NAN;
  }
  if (call->out_count > 4) fill_uniform(c, 13, c->n, d->out[4]);
}

// Outputs that the op reads: it adds to them, or moves them.
static bool adds_to(const brim_case *c, int output) {
  switch (c->op) {
    case BRIM_OP_BATCHNORM:
    case BRIM_OP_BATCHNORM_JOIN:
      return output > 2;
    case BRIM_OP_BATCHNORM_BWD:
    case BRIM_OP_BATCHNORM_BWD_SUMS:
    case BRIM_OP_LAYERNORM_BWD:
      return c->attr.accumulate && (output == 1 || output == 2);
    default:
      return c->attr.accumulate;
  }
}

// Outputs that an op overwrites start as NaN, so that a value it does not write shows.
static void fill_output(const brim_case *c, const brim_op_call *call, brim_case_data *d) {
  for (int i = 0; i < call->out_count; i++) {
    int64_t count = brim_tensor_count(&call->out[i]);
    bool adds = adds_to(c, i);
    for (int64_t j = 0; j < count; j++) {
      double unset = call->out[i].dtype == BRIM_U8 ? 255 : (double)NAN;
      d->out[i][j] = adds ? brim_case_uniform(c->seed, 20 + (uint64_t)i, (uint64_t)j) : unset;
    }
  }
  if (c->op == BRIM_OP_XENT || c->op == BRIM_OP_MSE || c->op == BRIM_OP_BCE ||
      c->op == BRIM_OP_NTXENT || c->op == BRIM_OP_KNN) {
    static const double before[BRIM_METRIC_COUNT] = {2.5, 3, 5, 1, 7, 7, 7, 7};
    memcpy(d->out[0], before, sizeof(before));
  }
  if (c->op == BRIM_OP_OPTIMIZER) fill_optimizer(c, call, d);
  if (c->op == BRIM_OP_AVERAGE) fill_average(c, d);
  if (c->op == BRIM_OP_STEP_END) fill_step_end(c, d);
}

static brim_status allocate(const brim_op_call *call, brim_case_data *out) {
  *out = (brim_case_data){{NULL}, {NULL}};
  for (int i = 0; i < call->in_count + call->out_count; i++) {
    bool is_in = i < call->in_count;
    int o = i - call->in_count;
    double **slot = is_in ? &out->in[i] : &out->out[o];
    int64_t count = brim_tensor_count(is_in ? &call->in[i] : &call->out[o]);
    *slot = brim_calloc((size_t)(count > 0 ? count : 1), sizeof(double));
    if (!*slot) {
      brim_case_data_destroy(out);
      return brim_fail(BRIM_ENOMEM, "no memory for the values of a case");
    }
  }
  return BRIM_OK;
}

brim_status brim_case_data_create(const brim_case *c, brim_case_data *out) {
  brim_op_call call;
  brim_case_call(c, &call);
  if (c->h && c->k > CASE_MAX_CHANNELS) {
    return brim_fail(BRIM_EINVAL, "%s: at most %d channels are possible", c->name,
                     CASE_MAX_CHANNELS);
  }
  BRIM_TRY(allocate(&call, out));
  for (int i = 0; i < call.in_count; i++) {
    int64_t count = brim_tensor_count(&call.in[i]);
    fill_uniform(c, (uint64_t)i, count, out->in[i]);
    brim_case_round(call.in[i].dtype, out->in[i], count);
  }
  fill_input(c, &call, out);
  fill_output(c, &call, out);
  for (int i = 0; i < call.in_count; i++) {
    brim_case_round(call.in[i].dtype, out->in[i], brim_tensor_count(&call.in[i]));
  }
  for (int i = 0; i < call.out_count; i++) {
    brim_case_round(call.out[i].dtype, out->out[i], brim_tensor_count(&call.out[i]));
  }
  return BRIM_OK;
}

void brim_case_data_destroy(brim_case_data *data) {
  for (int i = 0; i < BRIM_OP_MAX_IN; i++) brim_free(data->in[i]);
  for (int i = 0; i < BRIM_OP_MAX_OUT; i++) brim_free(data->out[i]);
  *data = (brim_case_data){{NULL}, {NULL}};
}
