// Batch norm over NHWC and its gradient with add and ReLU. Channels lie contiguous, so all loops run
// along memory beside a table of the channels' factors. With few channels the table repeats the factors
// over a span of some hundred values. Each pass reads its tensors once: a chunk's mean and squared
// distances are taken while the chunk is in L1, and chunks are joined in double. Sums over pixels go strip
// by strip; strips depend on the shape alone, so the bits do not depend on the thread count.
#include <math.h>

#include "backend/cpu/cpu_int.h"
#include "backend/cpu/cpu_vec.h"

enum {
  MAX_STRIPS = 64,
  MIN_STRIP = 32768,
  CHUNK = 4096,
  MIN_SPAN = 256,
  CHANNEL_GROUP = 64  // channels whose strips are joined at once: their sums stay in L1
};

typedef struct bn_arg {
  const void *x, *z, *dy, *dy2, *y_in;  // (rows, c); z, dy2, y_in may be NULL
  void *y, *dx, *dz;                    // dz may be NULL
  brim_dtype type;
  bool relu, accumulate, variance;
  int64_t rows, c, valid;  // pixels, channels, pixels of valid samples
  const float *g, *b, *mean_in, *s_in;
  float *mean, *rstd, *rmean, *rvar;  // rmean and rvar may be NULL
  float *dg, *db;
  float *figures;  // output (3, c) of BATCHNORM_PART or (2, c) of BATCHNORM_BWD_SUMS; else NULL
  const float *sums_in;  // (2, c) of BATCHNORM_BWD_JOINED
  double total;          // values of a channel on all ranks; BATCHNORM_BWD_JOINED
  double eps, momentum;
  int64_t span;   // columns of the table: a multiple of c
  int64_t strip;  // pixels in a strip
  int64_t strips;
  double *part;  // (strips, 2, c): sums of the strips
  float *table;  // (TABLES, span)
} bn_arg;

// Rows of the table, repeated over the span. Forward uses mean, factor and shift. Backward also uses the
// parts that dx subtracts: dx = factor * (d - OFFSET - (x - mean) * TILT).
enum { T_MEAN, T_FACTOR, T_SHIFT, T_OFFSET, T_TILT, TABLES };

static inline void bn_plan(bn_arg *a) {
  a->span = a->c * (a->c < MIN_SPAN ? MIN_SPAN / a->c : 1);
  int64_t chunk_rows = CHUNK / a->c > 0 ? CHUNK / a->c : 1;
  int64_t strip = brim_cpu_ceil_div(a->rows, MAX_STRIPS), least = MIN_STRIP / a->c;
  a->strip = brim_cpu_round_up(strip > least ? strip : least, chunk_rows);
  a->strips = brim_cpu_ceil_div(a->rows, a->strip);
}

static inline void bn_plan_from(bn_arg *a, const brim_tensor *x) {
  a->type = x->dtype;
  a->c = brim_cpu_cols(x);
  a->rows = brim_cpu_rows(x);
  bn_plan(a);
}

static inline size_t bn_part_bytes(const bn_arg *a) {
  return brim_cpu_round64((size_t)(a->strips * 2 * a->c) * sizeof(double));
}

static inline void bn_workspace(bn_arg *a, void *workspace) {
  a->part = (double *)workspace;
  a->table = (float *)(void *)((char *)workspace + bn_part_bytes(a));
}

static inline float *bn_table_of(const bn_arg *a, int which) { return a->table + which * a->span; }

// Copies columns [lo, hi) of a table's first c columns to the rest of the span.
static inline void bn_repeat(const bn_arg *a, int which, int64_t lo, int64_t hi) {
  float *t = bn_table_of(a, which);
  for (int64_t at = a->c; at < a->span; at += a->c) {
    memcpy(t + at + lo, t + lo, (size_t)(hi - lo) * sizeof *t);
  }
}

// This thread's elements [*lo, *hi), cut at multiples of the span.
static inline void bn_share(const bn_arg *a, int rank, int size, int64_t *lo, int64_t *hi) {
  brim_cpu_split(a->rows * a->c, a->span, rank, size, lo, hi);
}

// Two sums for each column of a block.
typedef struct bn_sums {
  float first[BRIM_CPU_BLOCK], second[BRIM_CPU_BLOCK];
} bn_sums;

// Adds up the columns of a span that belong to one channel.
BRIM_CPU_INLINE void bn_fold(const bn_arg *a, int64_t width, float *sum) {
  for (int64_t at = a->c; at < width; at += a->c) {
    for (int64_t j = 0; j < a->c; j++) sum[j] += sum[at + j];
  }
}

static inline void bn_factors(const bn_arg *a, int64_t lo, int64_t hi) {
  float *mean = bn_table_of(a, T_MEAN), *factor = bn_table_of(a, T_FACTOR);
  float *shift = bn_table_of(a, T_SHIFT);
  for (int64_t c = lo; c < hi; c++) {
    float rstd = a->s_in ? a->s_in[c] : a->rstd[c];
    if (a->variance) rstd = (float)(1.0 / sqrt((double)rstd + a->eps));
    mean[c] = a->mean_in ? a->mean_in[c] : a->mean[c];
    factor[c] = a->g[c] * rstd;
    shift[c] = a->b ? a->b[c] : 0.0f;
  }
  bn_repeat(a, T_MEAN, lo, hi);
  bn_repeat(a, T_FACTOR, lo, hi);
  bn_repeat(a, T_SHIFT, lo, hi);
}

// Runs the bodies one after the other; the list ends with NULL.
static inline brim_status bn_run(void *impl, bn_arg *a, const brim_cpu_body *bodies) {
  const brim_cpu_device *device = (const brim_cpu_device *)impl;
  brim_status status = brim_cpu_check_process(device);
  if (status != BRIM_OK) return status;
  const int threads =
      brim_cpu_team_for(device->threads, (double)(a->rows * a->c), BRIM_CPU_TEAM_ELEMENTS);
  for (; *bodies; bodies++) brim_cpu_team_run(threads, *bodies, a);
  return BRIM_OK;
}

// The number of pixels of the valid samples.
static inline int64_t bn_valid_pixels(const brim_tensor *x, const double *state) {
  int64_t samples = x->dim[0];
  return brim_cpu_valid_rows(state, samples) * (brim_cpu_rows(x) / samples);
}

static inline void *bn_data_of(const brim_tensor *t) { return t ? t->data : NULL; }

//---------------------------------- forward ----------------------------------

static brim_status batchnorm_prepare(void *impl, brim_op_call *call) {
  (void)impl;
  bn_arg a = {0};
  bn_plan_from(&a, &call->in[0]);
  call->workspace_bytes = bn_part_bytes(&a) + (size_t)(TABLES * a.span) * sizeof(float);
  return BRIM_OK;
}

//---------------------------------- statistics ----------------------------------

// Joins the mean and squared distances of `count` values with those of `so_far` values, for any number of
// channels (Chan, Golub, LeVeque).
typedef struct bn_joint {
  double share, weight;
} bn_joint;
BRIM_CPU_INLINE bn_joint joint_of(double so_far, double count) {
  double share = count / (so_far + count);
  return (bn_joint){share, so_far * share};
}
BRIM_CPU_INLINE void join(bn_joint joint, double *mean, double *m2, double mean2, double m22) {
  double delta = mean2 - *mean;
  *mean += delta * joint.share;
  *m2 += m22 + delta * delta * joint.weight;
}

// Mean, and squared distances from it, of each channel. Takes elements [begin, end) in the span's columns
// [c, c + width).
BRIM_CPU_INLINE void chunk_moments(const bn_arg *a, brim_dtype type, int64_t begin, int64_t end,
                                   int64_t c, int64_t width, bn_sums *s) {
  float *mean = s->first, *squares = s->second;
  for (int64_t j = 0; j < width; j++) mean[j] = squares[j] = 0;
  for (int64_t i = begin + c; i < end; i += a->span) {
    int64_t n = brim_cpu_min(width, end - i);
#pragma omp simd
    for (int64_t j = 0; j < n; j++) mean[j] += brim_cpu_get(a->x, type, i + j);
  }
  bn_fold(a, width, mean);
  float inverse = 1.0f / (float)((end - begin) / a->c);
  int64_t channels = brim_cpu_min(width, a->c);
  for (int64_t j = 0; j < channels; j++) mean[j] *= inverse;
  for (int64_t j = channels; j < width; j++) mean[j] = mean[j - channels];
  for (int64_t i = begin + c; i < end; i += a->span) {
    int64_t n = brim_cpu_min(width, end - i);
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
      float d = brim_cpu_get(a->x, type, i + j) - mean[j];
      squares[j] += d * d;
    }
  }
  bn_fold(a, width, squares);
}

BRIM_CPU_INLINE void stats_strip(const bn_arg *a, brim_dtype type, int64_t strip) {
  bn_sums s;
  double *mean = a->part + strip * 2 * a->c, *m2 = mean + a->c;
  int64_t begin = strip * a->strip * a->c;
  int64_t end = brim_cpu_min((strip + 1) * a->strip, a->valid) * a->c;
  for (int64_t j = 0; j < a->c; j++) mean[j] = m2[j] = 0;
  for (int64_t c = 0; c < a->span; c += BRIM_CPU_BLOCK) {
    int64_t width = brim_cpu_min(BRIM_CPU_BLOCK, a->span - c);
    int64_t channels = brim_cpu_min(width, a->c), chunk = a->span * (CHUNK / width);
    for (int64_t i = begin; i < end; i += chunk) {
      int64_t stop = brim_cpu_min(i + chunk, end);
      bn_joint joint = joint_of((double)((i - begin) / a->c), (double)((stop - i) / a->c));
      chunk_moments(a, type, i, stop, c, width, &s);
      // The chunk's mean is rounded; the error that this causes is smaller than that of the distances.
#pragma omp simd
      for (int64_t j = 0; j < channels; j++) {
        join(joint, &mean[c + j], &m2[c + j], (double)s.first[j], (double)s.second[j]);
      }
    }
  }
}

BRIM_CPU_CLONES static void stats_strips(const bn_arg *a, int64_t lo, int64_t hi) {
  for (int64_t strip = lo; strip < hi; strip++) {
    if (a->type == BRIM_F32) {
      stats_strip(a, BRIM_F32, strip);
    } else {
      stats_strip(a, BRIM_BF16, strip);
    }
  }
}

BRIM_CPU_CLONES static void join_strips(const bn_arg *a, int64_t lo, int64_t n, double *mean,
                                        double *m2) {
  for (int64_t j = 0; j < n; j++) mean[j] = m2[j] = 0;
  for (int64_t strip = 0; strip * a->strip < a->valid; strip++) {
    int64_t begin = strip * a->strip, end = brim_cpu_min(begin + a->strip, a->valid);
    const double *part = a->part + strip * 2 * a->c + lo;
    bn_joint joint = joint_of((double)begin, (double)(end - begin));
#pragma omp simd
    for (int64_t j = 0; j < n; j++) join(joint, &mean[j], &m2[j], part[j], part[a->c + j]);
  }
}

// Makes the outputs of a channel from the mean and the squared distances of n values.
static void finish_channel(const bn_arg *a, int64_t c, double n, double mean, double m2) {
  double variance = n > 0 ? m2 / n : 0;
  a->mean[c] = (float)mean;
  a->rstd[c] = (float)(1.0 / sqrt(variance + a->eps));
  if (!(n > 0)) return;
  double unbiased = n > 1 ? m2 / (n - 1) : variance;
  // One bad sample must not stay in the running statistics.
  if (!isfinite((float)mean) || !isfinite((float)unbiased)) return;
  if (a->rmean) a->rmean[c] += (float)(a->momentum * (mean - (double)a->rmean[c]));
  if (a->rvar) a->rvar[c] += (float)(a->momentum * (unbiased - (double)a->rvar[c]));
}

static void finish_part(const bn_arg *a, int64_t c, double mean, double m2) {
  a->figures[c] = (float)a->valid;
  a->figures[a->c + c] = (float)mean;
  a->figures[2 * a->c + c] = (float)m2;
}

static void finish_stats(const bn_arg *a, int64_t lo, int64_t hi) {
  double mean[CHANNEL_GROUP], m2[CHANNEL_GROUP];
  for (int64_t c = lo; c < hi; c += CHANNEL_GROUP) {
    int64_t n = brim_cpu_min(CHANNEL_GROUP, hi - c);
    join_strips(a, c, n, mean, m2);
    for (int64_t j = 0; j < n; j++) {
      if (a->figures) {
        finish_part(a, c + j, mean[j], m2[j]);
      } else {
        finish_channel(a, c + j, (double)a->valid, mean[j], m2[j]);
      }
    }
  }
}

//---------------------------------- apply ----------------------------------

// y = act((x - mean) * factor + shift + z). BATCHNORM and BATCHNORM_APPLY share this function, so that
// recomputation gives the same bits. y may be x or z.
BRIM_CPU_INLINE void apply_span(const bn_arg *a, brim_dtype type, bool with_z, int64_t i,
                                int64_t n) {
  const float *mean = bn_table_of(a, T_MEAN), *factor = bn_table_of(a, T_FACTOR);
  const float *shift = bn_table_of(a, T_SHIFT);
  const float least = a->relu ? 0.0f : -INFINITY;
#pragma omp simd
  for (int64_t j = 0; j < n; j++) {
    float y = (brim_cpu_get(a->x, type, i + j) - mean[j]) * factor[j] + shift[j];
    if (with_z) y += brim_cpu_get(a->z, type, i + j);
    brim_cpu_put(a->y, type, i + j, y <= least ? least : y);
  }
}

BRIM_CPU_CLONES static void apply_share(const bn_arg *a, int64_t lo, int64_t hi) {
  for (int64_t i = lo; i < hi; i += a->span) {
    int64_t n = brim_cpu_min(a->span, hi - i);
    if (a->type == BRIM_F32 && a->z) {
      apply_span(a, BRIM_F32, true, i, n);
    } else if (a->type == BRIM_F32) {
      apply_span(a, BRIM_F32, false, i, n);
    } else if (a->z) {
      apply_span(a, BRIM_BF16, true, i, n);
    } else {
      apply_span(a, BRIM_BF16, false, i, n);
    }
  }
}

static void stats_body(void *arg, int rank, int size) {
  const bn_arg *a = arg;
  int64_t lo, hi;
  brim_cpu_split(a->strips, 1, rank, size, &lo, &hi);
  stats_strips(a, lo, hi);
}

static void factors_body(void *arg, int rank, int size) {
  const bn_arg *a = arg;
  int64_t lo, hi;
  brim_cpu_split(a->c, 1, rank, size, &lo, &hi);
  if (!a->mean_in) finish_stats(a, lo, hi);
  if (!a->figures) bn_factors(a, lo, hi);
}

static void apply_body(void *arg, int rank, int size) {
  const bn_arg *a = arg;
  int64_t lo, hi;
  bn_share(a, rank, size, &lo, &hi);
  apply_share(a, lo, hi);
}

static brim_status batchnorm_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  bn_arg a = {.x = call->in[0].data,
              .g = call->in[1].data,
              .b = call->in[2].data,
              .z = bn_data_of(brim_cpu_in(call, 4)),
              .y = call->out[0].data,
              .mean = call->out[1].data,
              .rstd = call->out[2].data,
              .rmean = bn_data_of(brim_cpu_out(call, 3)),
              .rvar = bn_data_of(brim_cpu_out(call, 4)),
              .relu = call->attr.act == BRIM_ACT_RELU,
              .eps = (double)call->attr.eps,
              .momentum = (double)call->attr.momentum};
  bn_plan_from(&a, &call->in[0]);
  a.valid = bn_valid_pixels(&call->in[0], call->in[3].data);
  bn_workspace(&a, call->workspace);
  return bn_run(impl, &a, (const brim_cpu_body[]){stats_body, factors_body, apply_body, NULL});
}

static brim_status batchnorm_apply_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  bn_arg a = {.x = call->in[0].data,
              .g = call->in[1].data,
              .b = call->in[2].data,
              .mean_in = call->in[3].data,
              .s_in = call->in[4].data,
              .z = bn_data_of(brim_cpu_in(call, 5)),
              .y = call->out[0].data,
              .variance = call->attr.variance,
              .relu = call->attr.act == BRIM_ACT_RELU,
              .eps = (double)call->attr.eps};
  bn_plan_from(&a, &call->in[0]);
  bn_workspace(&a, call->workspace);
  return bn_run(impl, &a, (const brim_cpu_body[]){factors_body, apply_body, NULL});
}

//---------------------------------- parts ----------------------------------

static brim_status batchnorm_part_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  bn_arg a = {.x = call->in[0].data, .figures = call->out[0].data};
  bn_plan_from(&a, &call->in[0]);
  a.valid = bn_valid_pixels(&call->in[0], call->in[1].data);
  bn_workspace(&a, call->workspace);
  return bn_run(impl, &a, (const brim_cpu_body[]){stats_body, factors_body, NULL});
}

// Runs on one thread: for so little work waking a second thread takes longer.
static brim_status batchnorm_join_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  const float *parts = call->in[0].data;  // (K, 3, C)
  float *total = call->out[2].data;
  int64_t count = call->in[0].dim[0], channels = call->in[0].dim[2];
  bn_arg a = {.mean = call->out[0].data,
              .rstd = call->out[1].data,
              .rmean = bn_data_of(brim_cpu_out(call, 3)),
              .rvar = bn_data_of(brim_cpu_out(call, 4)),
              .eps = (double)call->attr.eps,
              .momentum = (double)call->attr.momentum};
  brim_status status = brim_cpu_check_process(impl);
  if (status != BRIM_OK) return status;
  for (int64_t c = 0; c < channels; c++) {
    double so_far = 0, mean = 0, m2 = 0;
    for (int64_t k = 0; k < count; k++) {
      const float *part = parts + k * 3 * channels + c;
      double n = (double)part[0];
      if (!(n > 0)) continue;
      join(joint_of(so_far, n), &mean, &m2, (double)part[channels], (double)part[2 * channels]);
      so_far += n;
    }
    if (c == 0) *total = (float)so_far;
    finish_channel(&a, c, so_far, mean, m2);
  }
  return BRIM_OK;
}

//---------------------------------- gradient ----------------------------------

// Says which gradients pass: all, those where y > 0, or those where the y recomputed from x is > 0.
typedef enum bn_gate { GATE_NONE, GATE_Y, GATE_X } bn_gate;

// Elements [i, i + n), which start at column c of the span.
typedef struct bn_block {
  int64_t i, c, n;
} bn_block;

// The gradient at the output of the normalization for a block: dy + dy2 where the activation passes it.
BRIM_CPU_INLINE void passed_gradient_loop(const bn_arg *a, brim_dtype type, bn_gate gate,
                                          bool with_dy2, bn_block block, float *restrict to) {
  int64_t i = block.i, c = block.c, n = block.n;
  const float *mean = bn_table_of(a, T_MEAN) + c, *factor = bn_table_of(a, T_FACTOR) + c;
  const float *shift = bn_table_of(a, T_SHIFT) + c;
#pragma omp simd
  for (int64_t j = 0; j < n; j++) {
    float d = brim_cpu_get(a->dy, type, i + j), sign = 1;
    if (with_dy2) d += brim_cpu_get(a->dy2, type, i + j);
    if (gate == GATE_Y) sign = brim_cpu_get(a->y_in, type, i + j);
    if (gate == GATE_X) {
      sign = (brim_cpu_get(a->x, type, i + j) - mean[j]) * factor[j] + shift[j];
    }
    to[j] = sign > 0.0f ? d : 0.0f;
  }
}

// Runs the loop for the type, the gate and dy2, which are constants in it.
BRIM_CPU_CLONES static void passed_gradient(const bn_arg *a, bn_block block, float *to) {
  bn_gate gate = !a->relu ? GATE_NONE : (a->y_in ? GATE_Y : GATE_X);
#define KIND(t, g, with_dy2)                                             \
  if (a->type == (t) && gate == (g) && (a->dy2 != NULL) == (with_dy2)) { \
    passed_gradient_loop(a, t, g, with_dy2, block, to);                  \
    return;                                                              \
  }
  KIND(BRIM_BF16, GATE_NONE, false)
  KIND(BRIM_BF16, GATE_NONE, true)
  KIND(BRIM_BF16, GATE_Y, false)
  KIND(BRIM_BF16, GATE_Y, true)
  KIND(BRIM_BF16, GATE_X, false)
  KIND(BRIM_BF16, GATE_X, true)
  KIND(BRIM_F32, GATE_NONE, false)
  KIND(BRIM_F32, GATE_NONE, true)
  KIND(BRIM_F32, GATE_Y, false)
  KIND(BRIM_F32, GATE_Y, true)
  KIND(BRIM_F32, GATE_X, false)
  KIND(BRIM_F32, GATE_X, true)
#undef KIND
}

// Sums d and d * (x - mean) over a strip. With few channels a block is whole pixels.
BRIM_CPU_INLINE void sum_strip(const bn_arg *a, brim_dtype type, int64_t strip) {
  bn_sums s;
  float d[BRIM_CPU_BLOCK];
  double *sum = a->part + strip * 2 * a->c, *sum_x = sum + a->c;
  int64_t begin = strip * a->strip * a->c;
  int64_t end = brim_cpu_min((strip + 1) * a->strip, a->valid) * a->c;
  for (int64_t j = 0; j < a->c; j++) sum[j] = sum_x[j] = 0;
  for (int64_t c = 0; c < a->span; c += BRIM_CPU_BLOCK) {
    int64_t width = brim_cpu_min(BRIM_CPU_BLOCK, a->span - c);
    const float *mean = bn_table_of(a, T_MEAN) + c;
    int64_t chunk = a->span * (CHUNK / width);
    for (int64_t i0 = begin; i0 < end; i0 += chunk) {
      int64_t stop = brim_cpu_min(i0 + chunk, end);
      for (int64_t j = 0; j < width; j++) s.first[j] = s.second[j] = 0;
      for (int64_t i = i0 + c; i < stop; i += a->span) {
        int64_t n = brim_cpu_min(width, stop - i);
        passed_gradient(a, (bn_block){i, c, n}, d);
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
          s.first[j] += d[j];
          s.second[j] += d[j] * (brim_cpu_get(a->x, type, i + j) - mean[j]);
        }
      }
      bn_fold(a, width, s.first);
      bn_fold(a, width, s.second);
      for (int64_t j = 0; j < brim_cpu_min(width, a->c); j++) {
        sum[c + j] += (double)s.first[j];
        sum_x[c + j] += (double)s.second[j];
      }
    }
  }
}

BRIM_CPU_CLONES static void sum_strips(const bn_arg *a, int64_t lo, int64_t hi) {
  for (int64_t strip = lo; strip < hi; strip++) {
    if (a->type == BRIM_F32) {
      sum_strip(a, BRIM_F32, strip);
    } else {
      sum_strip(a, BRIM_BF16, strip);
    }
  }
}

BRIM_CPU_CLONES static void add_strips(const bn_arg *a, int64_t lo, int64_t n, double *sum,
                                       double *sum_x) {
  for (int64_t j = 0; j < n; j++) sum[j] = sum_x[j] = 0;
  for (int64_t strip = 0; strip < a->strips; strip++) {
    const double *part = a->part + strip * 2 * a->c + lo;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) sum[j] += part[j], sum_x[j] += part[a->c + j];
  }
}

// Sets the parts that dx subtracts, from sums over n values.
static void set_offset_tilt(const bn_arg *a, int64_t c, double n, double sum, double sum_norm) {
  bn_table_of(a, T_OFFSET)[c] = (float)(sum / n);
  bn_table_of(a, T_TILT)[c] = (float)(sum_norm * (double)a->s_in[c] / n);
}

static void finish_sums(const bn_arg *a, int64_t lo, int64_t hi) {
  double n = a->valid > 0 ? (double)a->valid : 1, sum[CHANNEL_GROUP], sum_x[CHANNEL_GROUP];
  for (int64_t c = lo; c < hi; c++) {
    int64_t j = (c - lo) % CHANNEL_GROUP;
    if (j == 0) add_strips(a, c, brim_cpu_min(CHANNEL_GROUP, hi - c), sum, sum_x);
    double sum_norm = sum_x[j] * (double)a->s_in[c];
    float dg = (float)sum_norm, db = (float)sum[j];
    a->dg[c] = a->accumulate ? a->dg[c] + dg : dg;
    a->db[c] = a->accumulate ? a->db[c] + db : db;
    if (a->figures) {
      a->figures[c] = db;
      a->figures[a->c + c] = dg;
    } else {
      set_offset_tilt(a, c, n, sum[j], sum_norm);
    }
  }
}

static void repeat_offset_tilt(const bn_arg *a, int64_t lo, int64_t hi) {
  bn_repeat(a, T_OFFSET, lo, hi);
  bn_repeat(a, T_TILT, lo, hi);
}

static void zero_elements(void *data, brim_dtype type, int64_t lo, int64_t hi) {
  size_t size = brim_cpu_size(type);
  if (hi > lo) memset((char *)data + (size_t)lo * size, 0, (size_t)(hi - lo) * size);
}

// Writes dx and dz of elements [i, i + n), which start at column c of the span. Each may be written over
// dy, dy2, x or y, which have been read or lie in the same place.
BRIM_CPU_INLINE void dx_block(const bn_arg *a, brim_dtype type, int64_t i, int64_t c, int64_t n) {
  float d[BRIM_CPU_BLOCK], out[BRIM_CPU_BLOCK];
  const float *mean = bn_table_of(a, T_MEAN) + c, *factor = bn_table_of(a, T_FACTOR) + c;
  const float *offset = bn_table_of(a, T_OFFSET) + c, *tilt = bn_table_of(a, T_TILT) + c;
  passed_gradient(a, (bn_block){i, c, n}, d);
#pragma omp simd
  for (int64_t j = 0; j < n; j++) {
    float distance = brim_cpu_get(a->x, type, i + j) - mean[j];
    out[j] = factor[j] * (d[j] - offset[j] - distance * tilt[j]);
  }
#pragma omp simd
  for (int64_t j = 0; j < n; j++) brim_cpu_put(a->dx, type, i + j, out[j]);
  if (!a->dz) return;
#pragma omp simd
  for (int64_t j = 0; j < n; j++) brim_cpu_put(a->dz, type, i + j, d[j]);
}

BRIM_CPU_CLONES static void dx_spans(const bn_arg *a, int64_t lo, int64_t hi) {
  for (int64_t i = lo; i < hi; i += a->span) {
    int64_t length = brim_cpu_min(a->span, hi - i);
    for (int64_t c = 0; c < length; c += BRIM_CPU_BLOCK) {
      int64_t n = brim_cpu_min(BRIM_CPU_BLOCK, length - c);
      if (a->type == BRIM_F32) {
        dx_block(a, BRIM_F32, i + c, c, n);
      } else {
        dx_block(a, BRIM_BF16, i + c, c, n);
      }
    }
  }
}

static void dx_share(const bn_arg *a, int64_t lo, int64_t hi) {
  int64_t valid = a->valid * a->c, from = lo > valid ? lo : valid;
  dx_spans(a, lo, brim_cpu_min(hi, valid));
  zero_elements(a->dx, a->type, from, hi);
  if (a->dz) zero_elements(a->dz, a->type, from, hi);
}

static void bwd_factors_body(void *arg, int rank, int size) {
  const bn_arg *a = arg;
  int64_t lo, hi;
  brim_cpu_split(a->c, 1, rank, size, &lo, &hi);
  bn_factors(a, lo, hi);
}

static void sums_body(void *arg, int rank, int size) {
  const bn_arg *a = arg;
  int64_t lo, hi;
  brim_cpu_split(a->strips, 1, rank, size, &lo, &hi);
  sum_strips(a, lo, hi);
}

static void finish_body(void *arg, int rank, int size) {
  const bn_arg *a = arg;
  int64_t lo, hi;
  brim_cpu_split(a->c, 1, rank, size, &lo, &hi);
  finish_sums(a, lo, hi);
  if (!a->figures) repeat_offset_tilt(a, lo, hi);
}

static void joined_body(void *arg, int rank, int size) {
  const bn_arg *a = arg;
  int64_t lo, hi;
  double n = a->total > 0 ? a->total : 1;
  brim_cpu_split(a->c, 1, rank, size, &lo, &hi);
  bn_factors(a, lo, hi);
  for (int64_t c = lo; c < hi; c++) {
    set_offset_tilt(a, c, n, (double)a->sums_in[c], (double)a->sums_in[a->c + c]);
  }
  repeat_offset_tilt(a, lo, hi);
}

static void dx_body(void *arg, int rank, int size) {
  const bn_arg *a = arg;
  int64_t lo, hi;
  bn_share(a, rank, size, &lo, &hi);
  dx_share(a, lo, hi);
}

// Arguments common to the three gradient ops. Input number `state` is the state; y and dy2 follow it.
static bn_arg backward_arg(const brim_op_call *call, int state) {
  bn_arg a = {.dy = call->in[0].data,
              .x = call->in[1].data,
              .g = call->in[2].data,
              .b = call->in[3].data,
              .mean_in = call->in[4].data,
              .s_in = call->in[5].data,
              .y_in = bn_data_of(brim_cpu_in(call, state + 1)),
              .dy2 = bn_data_of(brim_cpu_in(call, state + 2)),
              .relu = call->attr.act == BRIM_ACT_RELU,
              .accumulate = call->attr.accumulate};
  bn_plan_from(&a, &call->in[1]);
  a.valid = bn_valid_pixels(&call->in[1], call->in[state].data);
  bn_workspace(&a, call->workspace);
  return a;
}

static brim_status batchnorm_bwd_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  bn_arg a = backward_arg(call, 6);
  a.dx = call->out[0].data;
  a.dg = call->out[1].data;
  a.db = call->out[2].data;
  a.dz = bn_data_of(brim_cpu_out(call, 3));
  return bn_run(impl, &a,
                (const brim_cpu_body[]){bwd_factors_body, sums_body, finish_body, dx_body, NULL});
}

static brim_status batchnorm_bwd_sums_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  bn_arg a = backward_arg(call, 6);
  a.figures = call->out[0].data;
  a.dg = call->out[1].data;
  a.db = call->out[2].data;
  return bn_run(impl, &a, (const brim_cpu_body[]){bwd_factors_body, sums_body, finish_body, NULL});
}

static brim_status batchnorm_bwd_joined_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  bn_arg a = backward_arg(call, 8);
  a.sums_in = call->in[6].data;
  a.total = (double)*(const float *)call->in[7].data;
  a.dx = call->out[0].data;
  a.dz = bn_data_of(brim_cpu_out(call, 1));
  return bn_run(impl, &a, (const brim_cpu_body[]){joined_body, dx_body, NULL});
}

//---------------------------------- rows ----------------------------------

static const brim_op_row rows[] = {
    {BRIM_OP_BATCHNORM, brim_cpu_validate, batchnorm_prepare, batchnorm_run, NULL},
    {BRIM_OP_BATCHNORM_APPLY, brim_cpu_validate, batchnorm_prepare, batchnorm_apply_run, NULL},
    {BRIM_OP_BATCHNORM_BWD, brim_cpu_validate, batchnorm_prepare, batchnorm_bwd_run, NULL},
    {BRIM_OP_BATCHNORM_PART, brim_cpu_validate, batchnorm_prepare, batchnorm_part_run, NULL},
    {BRIM_OP_BATCHNORM_JOIN, brim_cpu_validate, NULL, batchnorm_join_run, NULL},
    {BRIM_OP_BATCHNORM_BWD_SUMS, brim_cpu_validate, batchnorm_prepare, batchnorm_bwd_sums_run,
     NULL},
    {BRIM_OP_BATCHNORM_BWD_JOINED, brim_cpu_validate, batchnorm_prepare, batchnorm_bwd_joined_run,
     NULL},
};

const brim_op_family brim_cpu_batchnorm_ops = {rows, sizeof rows / sizeof *rows};
