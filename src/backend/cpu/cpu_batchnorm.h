// Batch norm's passes: what they share. Channels lie contiguous, so all loops run along memory with the
// channels' factors beside them, repeated to a span of some hundred values when there are few
// channels. Sums over pixels go strip by strip; strips depend on the shape alone, so the bits do not
// depend on the thread count. Only cpu_batchnorm.c and cpu_batchnorm_bwd.c include it.
#ifndef BRIM_BACKEND_CPU_BATCHNORM_H_
#define BRIM_BACKEND_CPU_BATCHNORM_H_

#include <math.h>

#include "backend/cpu/cpu_int.h"
#include "backend/cpu/cpu_vec.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  MAX_STRIPS = 64,
  MIN_STRIP = 32768,
  CHUNK = 4096,
  MIN_SPAN = 256,
  FEW = 64  // channels whose sums are added up over the strips at once: they stay in L1
};

typedef struct bn_arg {
  const void *x, *z, *dy, *dy2, *y_in;  // (rows, c); z, dy2, y_in or NULL
  void *y, *dx, *dz;                    // dz or NULL
  brim_dtype type;
  bool relu, accumulate, variance;
  int64_t rows, c, valid;  // pixels; those of valid samples
  const float *g, *b, *mean_in, *s_in;
  float *mean, *rstd, *rmean, *rvar;  // rmean, rvar or NULL
  float *dg, *db;
  float *figures;        // (3, c) of BATCHNORM_PART, (2, c) of BATCHNORM_BWD_SUMS; else NULL
  const float *sums_in;  // (2, c) of BATCHNORM_BWD_JOINED
  double total;  // values of a channel, those of other ranks among them: BATCHNORM_BWD_JOINED
  double eps, momentum;
  int64_t span;   // c times a whole number
  int64_t strip;  // pixels of a strip
  int64_t strips;
  double *part;  // (strips, 2, c)
  float *table;  // (TABLES, span)
} bn_arg;

// Channel factors, repeated over the span. Forward: mean, factor, shift. Backward also what dx
// takes off: dx = factor * (d - TAKE - (x - mean) * TILT).
enum { T_MEAN, T_FACTOR, T_SHIFT, T_TAKE, T_TILT, TABLES };

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

// Columns [lo, hi) of a table's first period are set: repeat them.
static inline void bn_repeat(const bn_arg *a, int which, int64_t lo, int64_t hi) {
  float *t = bn_table_of(a, which);
  for (int64_t at = a->c; at < a->span; at += a->c) {
    memcpy(t + at + lo, t + lo, (size_t)(hi - lo) * sizeof *t);
  }
}

// This thread's share of whole pixels, cut where the span repeats.
static inline void bn_share(const bn_arg *a, int rank, int size, int64_t *lo, int64_t *hi) {
  brim_cpu_split(a->rows * a->c, a->span, rank, size, lo, hi);
}

// Sums along the rows of a block that starts at channel 0: sum[j] += f(x[j]).
typedef struct bn_sums {
  float one[BRIM_CPU_BLOCK], two[BRIM_CPU_BLOCK];
} bn_sums;

// The columns of a span that belong to one channel become one sum.
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

// Runs each body after the one before, up to the NULL.
static inline brim_status bn_run(void *impl, bn_arg *a, const brim_cpu_body *bodies) {
  const brim_cpu_device *device = (const brim_cpu_device *)impl;
  brim_status status = brim_cpu_check_process(device);
  if (status != BRIM_OK) return status;
  const int threads =
      brim_cpu_team_for(device->threads, (double)(a->rows * a->c), BRIM_CPU_TEAM_ELEMENTS);
  for (; *bodies; bodies++) brim_cpu_team_run(threads, *bodies, a);
  return BRIM_OK;
}

// Pixels of the valid samples.
static inline int64_t bn_valid_pixels(const brim_tensor *x, const double *state) {
  int64_t samples = x->dim[0];
  return brim_cpu_valid_rows(state, samples) * (brim_cpu_rows(x) / samples);
}

static inline void *bn_data_of(const brim_tensor *t) { return t ? t->data : NULL; }

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BACKEND_CPU_BATCHNORM_H_
