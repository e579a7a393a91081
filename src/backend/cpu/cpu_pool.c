// MAXPOOL, MEAN and their gradients over NHWC, with loops along the channels, and the ops that add or move
// whole rows: POS, CONCAT and their gradients. Each gradient element gathers its sum, so no two threads
// write to one place and the order of sums is fixed.
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "backend/cpu/cpu_vec.h"

typedef struct pool_arg {
  const void *in;           // x, or dy
  const uint8_t *place_in;  // gradient: `place` as an input
  void *out;                // y, or dx
  uint8_t *place;           // r * window + s of the maximum, for each y
  brim_dtype type;
  int64_t n, h, w, c, p, q;
  int64_t window, stride, pad;
} pool_arg;

//---------------------------------- maximum ----------------------------------

// Finds the maximum of channels [c, c + n) of one output pixel.
BRIM_CPU_INLINE void pool_pixel(const pool_arg *a, int64_t image, int64_t p, int64_t q, int64_t c,
                                int64_t n) {
  float wide[BRIM_CPU_BLOCK], best[BRIM_CPU_BLOCK];
  uint8_t place[BRIM_CPU_BLOCK];
  bool first = true;
  for (int64_t r = 0; r < a->window; r++) {
    int64_t h = p * a->stride - a->pad + r;
    if (h < 0 || h >= a->h) continue;
    for (int64_t s = 0; s < a->window; s++) {
      int64_t w = q * a->stride - a->pad + s;
      if (w < 0 || w >= a->w) continue;
      uint8_t here = (uint8_t)(r * a->window + s);
      int64_t at = ((image * a->h + h) * a->w + w) * a->c + c;
      const float *x = brim_cpu_read(a->in, a->type, at, n, wide);
      if (first) {
        memcpy(best, x, (size_t)n * sizeof *best);
        memset(place, here, (size_t)n);
        first = false;
        continue;
      }
      for (int64_t j = 0; j < n; j++) {
        // A NaN is not equal to itself, and counts as larger.
        bool better = (x[j] > best[j]) | (x[j] != x[j]);
        best[j] = better ? x[j] : best[j];
        place[j] = better ? here : place[j];
      }
    }
  }
  int64_t at = ((image * a->p + p) * a->q + q) * a->c + c;
  if (first) {  // the window lies wholly in the padding
    for (int64_t j = 0; j < n; j++) best[j] = -INFINITY;
    memset(place, 0, (size_t)n);
  }
  memcpy(a->place + at, place, (size_t)n);
  if (a->type == BRIM_F32) {
    memcpy((float *)a->out + at, best, (size_t)n * sizeof *best);
  } else {
    brim_cpu_flush(a->out, a->type, at, n, best);
  }
}

BRIM_CPU_CLONES static void pool_rows(const pool_arg *a, int64_t lo, int64_t hi) {
  for (int64_t row = lo; row < hi; row++) {
    for (int64_t q = 0; q < a->q; q++) {
      for (int64_t c = 0; c < a->c; c += BRIM_CPU_BLOCK) {
        pool_pixel(a, row / a->p, row % a->p, q, c, brim_cpu_min(BRIM_CPU_BLOCK, a->c - c));
      }
    }
  }
}

static void pool_body(void *arg, int rank, int size) {
  const pool_arg *a = arg;
  int64_t lo, hi;
  brim_cpu_split(a->n * a->p, 1, rank, size, &lo, &hi);
  pool_rows(a, lo, hi);
}

static pool_arg pool_of(const brim_op_call *call, const brim_tensor *x, const brim_tensor *y) {
  return (pool_arg){.in = call->in[0].data,
                    .out = call->out[0].data,
                    .type = x->dtype,
                    .n = x->dim[0],
                    .h = x->dim[1],
                    .w = x->dim[2],
                    .c = x->dim[3],
                    .p = y->dim[1],
                    .q = y->dim[2],
                    .window = call->attr.window,
                    .stride = call->attr.stride,
                    .pad = call->attr.pad};
}

static brim_status maxpool_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  pool_arg a = pool_of(call, &call->in[0], &call->out[0]);
  a.place = call->out[1].data;
  return brim_cpu_spread(impl, brim_cpu_elements(&call->in[0]), pool_body, &a);
}

// Sums channels [c, c + n) of one input pixel over the output pixels whose maximum it was.
BRIM_CPU_INLINE void unpool_pixel(const pool_arg *a, int64_t image, int64_t h, int64_t w, int64_t c,
                                  int64_t n) {
  float wide[BRIM_CPU_BLOCK], sum[BRIM_CPU_BLOCK];
  for (int64_t j = 0; j < n; j++) sum[j] = 0;
  for (int64_t r = 0; r < a->window; r++) {
    int64_t p = h + a->pad - r;
    if (p < 0 || p % a->stride || p / a->stride >= a->p) continue;
    for (int64_t s = 0; s < a->window; s++) {
      int64_t q = w + a->pad - s;
      if (q < 0 || q % a->stride || q / a->stride >= a->q) continue;
      uint8_t here = (uint8_t)(r * a->window + s);
      int64_t at = ((image * a->p + p / a->stride) * a->q + q / a->stride) * a->c + c;
      const float *dy = brim_cpu_read(a->in, a->type, at, n, wide);
      const uint8_t *place = a->place_in + at;
      for (int64_t j = 0; j < n; j++) sum[j] += place[j] == here ? dy[j] : 0.0f;
    }
  }
  int64_t at = ((image * a->h + h) * a->w + w) * a->c + c;
  if (a->type == BRIM_F32) {
    memcpy((float *)a->out + at, sum, (size_t)n * sizeof *sum);
  } else {
    brim_cpu_flush(a->out, a->type, at, n, sum);
  }
}

BRIM_CPU_CLONES static void unpool_rows(const pool_arg *a, int64_t lo, int64_t hi) {
  for (int64_t row = lo; row < hi; row++) {
    for (int64_t w = 0; w < a->w; w++) {
      for (int64_t c = 0; c < a->c; c += BRIM_CPU_BLOCK) {
        unpool_pixel(a, row / a->h, row % a->h, w, c, brim_cpu_min(BRIM_CPU_BLOCK, a->c - c));
      }
    }
  }
}

static void unpool_body(void *arg, int rank, int size) {
  const pool_arg *a = arg;
  int64_t lo, hi;
  brim_cpu_split(a->n * a->h, 1, rank, size, &lo, &hi);
  unpool_rows(a, lo, hi);
}

static brim_status maxpool_bwd_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  pool_arg a = pool_of(call, &call->out[0], &call->in[0]);
  a.place_in = call->in[1].data;
  return brim_cpu_spread(impl, brim_cpu_elements(&call->out[0]), unpool_body, &a);
}

//---------------------------------- mean ----------------------------------

typedef struct mean_arg {
  const void *in;
  void *out;
  brim_dtype type;
  int64_t n, middle, c;  // middle: product of the dimensions between N and C
} mean_arg;

// Computes the mean of channels [c, c + n) of a sample. Sums 64 rows at a time, then adds these sums.
BRIM_CPU_CLONES static void mean_block(const mean_arg *a, int64_t sample, int64_t c, int64_t n) {
  float wide[BRIM_CPU_BLOCK], part[BRIM_CPU_BLOCK], total[BRIM_CPU_BLOCK];
  for (int64_t j = 0; j < n; j++) total[j] = 0;
  for (int64_t r0 = 0; r0 < a->middle; r0 += 64) {
    int64_t end = brim_cpu_min(r0 + 64, a->middle);
    for (int64_t j = 0; j < n; j++) part[j] = 0;
    for (int64_t r = r0; r < end; r++) {
      const float *x = brim_cpu_read(a->in, a->type, (sample * a->middle + r) * a->c + c, n, wide);
      for (int64_t j = 0; j < n; j++) part[j] += x[j];
    }
    for (int64_t j = 0; j < n; j++) total[j] += part[j];
  }
  float inverse = 1.0f / (float)a->middle;
  float *y = brim_cpu_write(a->out, a->type, sample * a->c + c, wide);
  for (int64_t j = 0; j < n; j++) y[j] = total[j] * inverse;
  brim_cpu_flush(a->out, a->type, sample * a->c + c, n, wide);
}

static void mean_body(void *arg, int rank, int size) {
  const mean_arg *a = arg;
  int64_t lo, hi;
  brim_cpu_split(a->n, 1, rank, size, &lo, &hi);
  for (int64_t i = lo; i < hi; i++) {
    for (int64_t c = 0; c < a->c; c += BRIM_CPU_BLOCK) {
      mean_block(a, i, c, brim_cpu_min(BRIM_CPU_BLOCK, a->c - c));
    }
  }
}

BRIM_CPU_CLONES static void spread_block(const mean_arg *a, int64_t sample, int64_t c, int64_t n) {
  float wide[BRIM_CPU_BLOCK], value[BRIM_CPU_BLOCK];
  uint16_t half[BRIM_CPU_BLOCK];
  const float *dy = brim_cpu_read(a->in, a->type, sample * a->c + c, n, wide);
  float inverse = 1.0f / (float)a->middle;
  for (int64_t j = 0; j < n; j++) value[j] = dy[j] * inverse;
  if (a->type != BRIM_F32) brim_cpu_flush(half, a->type, 0, n, value);
  size_t size = brim_cpu_size(a->type);
  const void *from = a->type == BRIM_F32 ? (const void *)value : (const void *)half;
  for (int64_t r = 0; r < a->middle; r++) {
    int64_t at = (sample * a->middle + r) * a->c + c;
    memcpy((char *)a->out + (size_t)at * size, from, (size_t)n * size);
  }
}

static void spread_body(void *arg, int rank, int size) {
  const mean_arg *a = arg;
  int64_t lo, hi;
  brim_cpu_split(a->n, 1, rank, size, &lo, &hi);
  for (int64_t i = lo; i < hi; i++) {
    for (int64_t c = 0; c < a->c; c += BRIM_CPU_BLOCK) {
      spread_block(a, i, c, brim_cpu_min(BRIM_CPU_BLOCK, a->c - c));
    }
  }
}

static brim_status run_mean(void *impl, const brim_op_call *call, const brim_tensor *x,
                            brim_cpu_body body) {
  mean_arg a = {.in = call->in[0].data,
                .out = call->out[0].data,
                .type = x->dtype,
                .n = x->dim[0],
                .c = brim_cpu_cols(x)};
  a.middle = brim_cpu_rows(x) / a.n;
  return brim_cpu_spread(impl, brim_cpu_elements(x), body, &a);
}

static brim_status mean_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  return run_mean(impl, call, &call->in[0], mean_body);
}

static brim_status mean_bwd_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  return run_mean(impl, call, &call->out[0], spread_body);
}

//---------------------------------- POS: adds position embeddings ----------------------------------

typedef struct pos_arg {
  const void *x, *p;
  void *y;
  brim_dtype type;
  int64_t rows, cols;  // samples, and values of a sample
} pos_arg;

BRIM_CPU_CLONES static void pos_body(void *arg, int rank, int size) {
  const pos_arg *a = arg;
  float x_wide[BRIM_CPU_BLOCK], p_wide[BRIM_CPU_BLOCK], out[BRIM_CPU_BLOCK];
  int64_t lo, hi;
  brim_cpu_split(a->rows, 1, rank, size, &lo, &hi);
  for (int64_t c = 0; c < a->cols; c += BRIM_CPU_BLOCK) {
    int64_t n = brim_cpu_min(BRIM_CPU_BLOCK, a->cols - c);
    const float *p = brim_cpu_read(a->p, a->type, c, n, p_wide);
    for (int64_t r = lo; r < hi; r++) {
      int64_t at = r * a->cols + c;
      const float *x = brim_cpu_read(a->x, a->type, at, n, x_wide);
      float *y = brim_cpu_write(a->y, a->type, at, out);
#pragma omp simd
      for (int64_t j = 0; j < n; j++) y[j] = x[j] + p[j];
      brim_cpu_flush(a->y, a->type, at, n, out);
    }
  }
}

static brim_status pos_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  pos_arg a = {.x = call->in[0].data,
               .p = call->in[1].data,
               .y = call->out[0].data,
               .type = call->in[0].dtype,
               .rows = call->in[0].dim[0],
               .cols = brim_cpu_elements(&call->in[1])};
  return brim_cpu_spread(impl, a.rows * a.cols, pos_body, &a);
}

static brim_status pos_bwd_prepare(void *impl, brim_op_call *call) {
  (void)impl;
  call->workspace_bytes =
      brim_cpu_column_sum_bytes(call->in[0].dim[0], brim_cpu_elements(&call->out[0]));
  return BRIM_OK;
}

static brim_status pos_bwd_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  const brim_cpu_device *device = impl;
  brim_status status = brim_cpu_check_process(device);
  if (status != BRIM_OK) return status;
  brim_cpu_column_sum_run(device->threads,
                          (brim_cpu_column_sum){.data = call->in[0].data,
                                                .type = call->in[0].dtype,
                                                .rows = call->in[0].dim[0],
                                                .cols = brim_cpu_elements(&call->out[0]),
                                                .out = call->out[0].data,
                                                .accumulate = call->attr.accumulate,
                                                .workspace = call->workspace});
  return BRIM_OK;
}

//---------------------------------- CONCAT: joins rows ----------------------------------

typedef struct concat_arg {
  char *a, *b, *joined;
  size_t a_bytes, b_bytes;  // bytes of a row
  int64_t rows;
  bool split;  // copies joined to a and b, not the other way
} concat_arg;

static void concat_body(void *arg, int rank, int size) {
  const concat_arg *c = arg;
  int64_t lo, hi;
  brim_cpu_split(c->rows, 1, rank, size, &lo, &hi);
  for (int64_t i = lo; i < hi; i++) {
    char *a = c->a + (size_t)i * c->a_bytes, *b = c->b + (size_t)i * c->b_bytes;
    char *joined = c->joined + (size_t)i * (c->a_bytes + c->b_bytes);
    memcpy(c->split ? a : joined, c->split ? joined : a, c->a_bytes);
    memcpy(c->split ? b : joined + c->a_bytes, c->split ? joined + c->a_bytes : b, c->b_bytes);
  }
}

static brim_status run_concat(void *impl, const brim_tensor *a, const brim_tensor *b,
                              const brim_tensor *joined, bool split) {
  size_t size = brim_cpu_size(a->dtype);
  concat_arg c = {.a = a->data,
                  .b = b->data,
                  .joined = joined->data,
                  .a_bytes = (size_t)brim_cpu_cols(a) * size,
                  .b_bytes = (size_t)brim_cpu_cols(b) * size,
                  .rows = brim_cpu_rows(joined),
                  .split = split};
  return brim_cpu_spread(impl, brim_cpu_elements(joined), concat_body, &c);
}

static brim_status concat_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  return run_concat(impl, &call->in[0], &call->in[1], &call->out[0], false);
}

static brim_status concat_bwd_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  return run_concat(impl, &call->out[0], &call->out[1], &call->in[0], true);
}

//---------------------------------- rows ----------------------------------

static const brim_op_row rows[] = {
    {BRIM_OP_MAXPOOL, brim_cpu_validate, NULL, maxpool_run, NULL},
    {BRIM_OP_MAXPOOL_BWD, brim_cpu_validate, NULL, maxpool_bwd_run, NULL},
    {BRIM_OP_MEAN, brim_cpu_validate, NULL, mean_run, NULL},
    {BRIM_OP_MEAN_BWD, brim_cpu_validate, NULL, mean_bwd_run, NULL},
    {BRIM_OP_POS, brim_cpu_validate, NULL, pos_run, NULL},
    {BRIM_OP_POS_BWD, brim_cpu_validate, pos_bwd_prepare, pos_bwd_run, NULL},
    {BRIM_OP_CONCAT, brim_cpu_validate, NULL, concat_run, NULL},
    {BRIM_OP_CONCAT_BWD, brim_cpu_validate, NULL, concat_bwd_run, NULL},
};

const brim_op_family brim_cpu_pool_ops = {rows, sizeof rows / sizeof *rows};
