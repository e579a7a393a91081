// Values of the ops over images and tokens: statistics, places and softmaxes that fit the data, and data away from the
// kinks of the ReLU, where rounding would decide.
#include <math.h>
#include <string.h>

#include "cases/cases_int.h"
#include "hd/hd_philox.h"

//---------------------------------- batch normalisation ----------------------------------

// The tensors of a batch norm's call.
typedef struct norm_slots {
  double *x, *gain, *bias, *z;                              // z may be NULL
  double mean[CASE_MAX_CHANNELS], rstd[CASE_MAX_CHANNELS];  // of x, per channel
} norm_slots;

static void channel_moments(const brim_case *c, norm_slots *s) {
  int64_t rows = (int64_t)c->state[BRIM_STATE_ROWS] * c->h * c->w;
  double over = rows > 0 ? 1 / (double)rows : 0;
  for (int64_t k = 0; k < c->k; k++) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < rows; i++) sum += s->x[i * c->k + k];
    s->mean[k] = sum * over;
    for (int64_t i = 0; i < rows; i++) {
      squares += (s->x[i * c->k + k] - s->mean[k]) * (s->x[i * c->k + k] - s->mean[k]);
    }
    s->rstd[k] = 1 / sqrt(squares * over + 1e-5);
  }
}

// Moves every x away from results close to 0. The statistics move a little too, so it takes a few rounds.
static void keep_clear(const brim_case *c, brim_dtype type, norm_slots *s) {
  int64_t count = brim_case_rows(c) * c->k;
  bool moved = true;
  for (int round = 0; moved && round < 20; round++) {
    moved = false;
    for (int64_t i = 0; i < count; i++) {
      int64_t k = i % c->k;
      double slope = s->rstd[k] * s->gain[k];
      double y = (s->x[i] - s->mean[k]) * slope + s->bias[k] + (s->z ? s->z[i] : 0);
      if (fabs(y) > 0.03) continue;
      s->x[i] += (y < 0 ? -0.12 : 0.12) / slope;
      brim_case_round(type, &s->x[i], 1);
      moved = true;
    }
    channel_moments(c, s);
  }
}

// The forward output that the gradient reads: the op's result, or 0 where the ReLU cuts.
static void fill_result(const brim_case *c, const norm_slots *s, double *y) {
  int64_t count = brim_case_rows(c) * c->k;
  for (int64_t i = 0; i < count; i++) {
    int64_t k = i % c->k;
    double v = (s->x[i] - s->mean[k]) * s->rstd[k] * s->gain[k] + s->bias[k];
    y[i] = v > 0 ? v : 0;
  }
}

// Sums over twice the rows, as if another rank had equally many.
static void fill_joined(const brim_case *c, brim_case_data *d) {
  double total = 2 * c->state[BRIM_STATE_ROWS] * (double)(c->h * c->w);
  for (int64_t i = 0; i < 2 * c->k; i++) d->in[6][i] *= 0.3 * total;
  d->in[7][0] = total;
  for (int64_t k = 0; c->nonfinite && k < 2 * c->k; k += 5) d->in[6][k] = k % 2 ? NAN : INFINITY;
}

static void fill_batchnorm(const brim_case *c, const brim_op_call *call, brim_case_data *d) {
  bool apply = c->op == BRIM_OP_BATCHNORM_APPLY, joined = c->op == BRIM_OP_BATCHNORM_BWD_JOINED;
  bool backward = c->op == BRIM_OP_BATCHNORM_BWD || c->op == BRIM_OP_BATCHNORM_BWD_SUMS || joined;
  int first = backward ? 1 : 0;
  norm_slots s = {.x = d->in[first], .gain = d->in[first + 1], .bias = d->in[first + 2]};
  if (c->with & BRIM_WITH_Z) s.z = d->in[apply ? 5 : 4];
  int64_t count = brim_case_rows(c) * c->k;
  for (int64_t i = 0; c->offset && i < count; i++) s.x[i] += 3;
  for (int64_t k = 0; k < c->k; k++) s.gain[k] = 1 + 0.5 * s.gain[k];
  brim_case_round(call->in[first].dtype, s.x, count);
  brim_case_round(call->in[first + 1].dtype, s.gain, c->k);
  channel_moments(c, &s);
  if (c->attr.act == BRIM_ACT_RELU) keep_clear(c, call->in[first].dtype, &s);
  for (int64_t k = 0; (backward || apply) && k < c->k; k++) {
    d->in[first + 3][k] = s.mean[k];
    d->in[first + 4][k] = c->attr.variance ? 1 / (s.rstd[k] * s.rstd[k]) : s.rstd[k];
  }
  int state = joined ? 8 : backward ? 6 : 3;
  if (!apply) memcpy(d->in[state], c->state, sizeof(c->state));
  if (backward && (c->with & BRIM_WITH_Y)) fill_result(c, &s, d->in[state + 1]);
  if (joined) fill_joined(c, d);
  for (int64_t i = 0; c->nonfinite && backward && i < count; i += 11 * c->k + 3) {
    d->in[0][i] = i % 2 ? NAN : -INFINITY;
  }
}

static void fill_part(const brim_case *c, brim_case_data *d) {
  int64_t count = brim_case_rows(c) * c->k;
  for (int64_t i = 0; c->offset && i < count; i++) d->in[0][i] += 30;
  for (int64_t i = 0; c->nonfinite && i < count; i += 5 * c->k + 2) {
    d->in[0][i] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY;
  }
  memcpy(d->in[1], c->state, sizeof(c->state));
}

// Figures of ranks with parts of various sizes; parts of padding alone have no values and come first.
static void fill_parts(const brim_case *c, double *parts) {
  for (int64_t part = 0; part < c->n; part++) {
    double *count = parts + part * 3 * c->k, *mean = count + c->k, *squares = mean + c->k;
    bool none = (double)part < (double)c->n - c->state[BRIM_STATE_ROWS];
    for (int64_t k = 0; k < c->k; k++) {
      count[k] = none ? 0 : (double)(40 + 7 * part);
      mean[k] = none ? 0 : mean[k] + (c->offset ? 300 : 0);
      squares[k] = none ? 0 : count[k] * (0.3 + 0.2 * squares[k]);
      if (!c->nonfinite || k % 3 != 1 || part != c->n - 1) continue;
      mean[k] = k % 2 ? NAN : INFINITY;
      squares[k] = NAN;
    }
  }
}

//---------------------------------- pooling ----------------------------------

// A random place of the window inside the image.
static int64_t draw_place(uint32_t bits, int64_t at, int64_t size, int64_t window) {
  int64_t low = at < 0 ? -at : 0, high = size - at < window ? size - at : window;
  return low + (int64_t)(bits % (uint32_t)(high - low));
}

static void fill_places(const brim_case *c, const brim_tensor *place, double *out) {
  int64_t count = brim_tensor_count(place), high = place->dim[1], wide = place->dim[2];
  for (int64_t i = 0; i < count; i++) {
    brim_philox4 bits = brim_philox(brim_rng_key(c->seed, BRIM_RNG_TEST), 98, (uint64_t)i);
    int64_t q = i / c->k % wide, p = i / c->k / wide % high;
    int64_t r = draw_place(bits.v[0], p * c->attr.stride - c->attr.pad, c->h, c->r);
    int64_t s = draw_place(bits.v[1], q * c->attr.stride - c->attr.pad, c->w, c->r);
    out[i] = (double)(r * c->r + s);
  }
}

static void fill_pool(const brim_case *c, double *x) {
  int64_t count = brim_case_rows(c) * c->k;
  for (int64_t i = 0; c->ties && i < count; i++) x[i] = floor(4 * x[i]) / 4;
  if (!c->nonfinite) return;
  for (int64_t i = 0; i < count; i += 3) x[i] = -INFINITY;
  x[count - 1] = INFINITY;
  x[0] = NAN;
}

void brim_case_fill_image(const brim_case *c, const brim_op_call *call, brim_case_data *d) {
  switch (c->op) {
    case BRIM_OP_MAXPOOL:
      fill_pool(c, d->in[0]);
      break;
    case BRIM_OP_MAXPOOL_BWD:
      fill_places(c, &call->in[1], d->in[1]);
      break;
    case BRIM_OP_BATCHNORM_PART:
      fill_part(c, d);
      break;
    case BRIM_OP_BATCHNORM_JOIN:
      fill_parts(c, d->in[0]);
      break;
    default:
      fill_batchnorm(c, call, d);
      break;
  }
}

//---------------------------------- attention ----------------------------------

// One query of one head: the lse of its scores, and its output. q, k, v are columns of qkv (L, 3C).
static void attend(const brim_case *c, const double *qkv, int64_t i, int64_t head, double *y,
                   double *lse) {
  int64_t d = c->k / c->attr.heads, at = head * d;
  const double *q = qkv + i * 3 * c->k + at;
  double max = -INFINITY, sum = 0;
  for (int pass = 0; pass < 3; pass++) {
    for (int64_t j = 0; j < c->l; j++) {
      const double *k = qkv + j * 3 * c->k + c->k + at, *v = k + c->k;
      double score = 0;
      for (int64_t e = 0; e < d; e++) score += q[e] * k[e];
      score /= sqrt((double)d);
      if (pass == 0) max = fmax(max, score);
      if (pass == 1) sum += exp(score - max);
      for (int64_t e = 0; pass == 2 && e < d; e++) y[at + e] += exp(score - *lse) * v[e];
    }
    if (pass == 1) *lse = max + log(sum);
  }
}

void brim_case_fill_tokens(const brim_case *c, const brim_op_call *call, brim_case_data *d) {
  bool backward = c->op == BRIM_OP_ATTENTION_BWD;
  double *qkv = d->in[backward ? 1 : 0];
  int64_t count = brim_case_rows(c) * 3 * c->k;
  for (int64_t i = 0; i < count; i++) qkv[i] *= 2;
  if (!backward) return;
  brim_case_round(call->in[1].dtype, qkv, count);
  memset(d->in[2], 0, (size_t)(count / 3) * sizeof(double));
  for (int64_t i = 0; i < c->n * c->l; i++) {
    int64_t n = i / c->l, row = i % c->l;
    for (int64_t a = 0; a < c->attr.heads; a++) {
      attend(c, qkv + n * c->l * 3 * c->k, row, a, d->in[2] + i * c->k,
             &d->in[3][(n * c->attr.heads + a) * c->l + row]);
    }
  }
}
