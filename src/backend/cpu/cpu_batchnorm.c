// BATCHNORM, BATCHNORM_APPLY, BATCHNORM_PART and BATCHNORM_JOIN over NHWC; cpu_batchnorm.h says how the
// passes share the work, cpu_batchnorm_bwd.c has the gradient. Each pass reads its tensors once: a
// chunk's mean and squared distances are taken while the chunk is in L1, and chunks are joined in
// double.
#include "backend/cpu/cpu_batchnorm.h"

brim_status brim_cpu_batchnorm_prepare(void *impl, brim_op_call *call) {
  (void)impl;
  bn_arg a = {0};
  bn_plan_from(&a, &call->in[0]);
  call->workspace_bytes = bn_part_bytes(&a) + (size_t)(TABLES * a.span) * sizeof(float);
  return BRIM_OK;
}

//---------------------------------- statistics ----------------------------------

// Add `count` values' means and squared distances to those of `so_far` values, channel by channel
// (Chan, Golub, LeVeque).
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

// Elements [begin, end), of which the span's columns [c, c + width) count: each channel's mean, and
// its squared distances from it.
BRIM_CPU_INLINE void chunk_moments(const bn_arg *a, brim_dtype type, int64_t begin, int64_t end,
                                   int64_t c, int64_t width, bn_sums *s) {
  float *one = s->one, *two = s->two;
  for (int64_t j = 0; j < width; j++) one[j] = two[j] = 0;
  for (int64_t i = begin + c; i < end; i += a->span) {
    int64_t n = brim_cpu_min(width, end - i);
#pragma omp simd
    for (int64_t j = 0; j < n; j++) one[j] += brim_cpu_get(a->x, type, i + j);
  }
  bn_fold(a, width, one);
  float inverse = 1.0f / (float)((end - begin) / a->c);
  int64_t channels = brim_cpu_min(width, a->c);
  for (int64_t j = 0; j < channels; j++) one[j] *= inverse;
  for (int64_t j = channels; j < width; j++) one[j] = one[j - channels];
  for (int64_t i = begin + c; i < end; i += a->span) {
    int64_t n = brim_cpu_min(width, end - i);
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
      float d = brim_cpu_get(a->x, type, i + j) - one[j];
      two[j] += d * d;
    }
  }
  bn_fold(a, width, two);
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
      // The chunk's mean is rounded; what that leaves in its distances is below their own error.
#pragma omp simd
      for (int64_t j = 0; j < channels; j++) {
        join(joint, &mean[c + j], &m2[c + j], (double)s.one[j], (double)s.two[j]);
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

// From the mean and the squared distances of n values.
static void finish_channel(const bn_arg *a, int64_t c, double n, double mean, double m2) {
  double variance = n > 0 ? m2 / n : 0;
  a->mean[c] = (float)mean;
  a->rstd[c] = (float)(1.0 / sqrt(variance + a->eps));
  if (!(n > 0)) return;
  double unbiased = n > 1 ? m2 / (n - 1) : variance;
  // one bad sample must not stay in them
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
  double mean[FEW], m2[FEW];
  for (int64_t c = lo; c < hi; c += FEW) {
    int64_t n = brim_cpu_min(FEW, hi - c);
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

// y = act((x - mean) * factor + shift + z). One function for BATCHNORM and BATCHNORM_APPLY, so that
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

brim_status brim_cpu_batchnorm_run(void *impl, void *stream, const brim_op_call *call) {
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

brim_status brim_cpu_batchnorm_apply_run(void *impl, void *stream, const brim_op_call *call) {
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

brim_status brim_cpu_batchnorm_part_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  bn_arg a = {.x = call->in[0].data, .figures = call->out[0].data};
  bn_plan_from(&a, &call->in[0]);
  a.valid = bn_valid_pixels(&call->in[0], call->in[1].data);
  bn_workspace(&a, call->workspace);
  return bn_run(impl, &a, (const brim_cpu_body[]){stats_body, factors_body, NULL});
}

// Few values: one thread has them joined before a second one would have begun.
brim_status brim_cpu_batchnorm_join_run(void *impl, void *stream, const brim_op_call *call) {
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
