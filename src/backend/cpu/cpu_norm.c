// LAYERNORM and its gradient. Rows are shared between threads; the gradients of scale and shift are
// summed over fixed chunks of rows first, so that their bits do not depend on the thread count.
#include <math.h>

#include "backend/cpu/cpu_int.h"
#include "backend/cpu/cpu_vec.h"

enum { MAX_CHUNKS = 64, MIN_CHUNK_ROWS = 16 };

typedef struct norm_arg {
  const void *x, *dy;
  void *y;  // y or dx
  brim_dtype type;
  const float *g, *b;
  float *mean, *rstd;
  int64_t rows, cols;
  float eps;
  float *partial;  // (chunks, 2, cols): dg then db
  int64_t chunk_rows, chunks;
  float *dg, *db;
  bool accumulate;
} norm_arg;

static int64_t block_size(int64_t i, int64_t end) {
  return end - i < BRIM_CPU_BLOCK ? end - i : BRIM_CPU_BLOCK;
}

// Rows shorter than a block are widened several at a time: widening and rounding a row of 16 alone
// costs more than normalizing it.
static int64_t rows_at_once(const norm_arg *a) {
  return a->type != BRIM_F32 && a->cols < BRIM_CPU_BLOCK ? BRIM_CPU_BLOCK / a->cols : 1;
}

// The sum of (x - shift)^power over a row; power is 1 or 2.
BRIM_CPU_INLINE double row_moment(const norm_arg *a, int64_t row, float shift, int power) {
  float buffer[BRIM_CPU_BLOCK];
  double total = 0;
  for (int64_t c = 0; c < a->cols; c += BRIM_CPU_BLOCK) {
    int64_t n = block_size(c, a->cols);
    const float *x = brim_cpu_read(a->x, a->type, row * a->cols + c, n, buffer);
    float sum = 0;
    if (power == 1) {
#pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < n; j++) sum += x[j] - shift;
    } else {
#pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < n; j++) sum += (x[j] - shift) * (x[j] - shift);
    }
    total += (double)sum;
  }
  return total;
}

// Normalizes rows [lo, hi). x and y have one type.
BRIM_CPU_INLINE void norm_rows(const norm_arg *a, int64_t lo, int64_t hi) {
  float in[BRIM_CPU_BLOCK], out[BRIM_CPU_BLOCK];
  for (int64_t r = lo; r < hi; r++) {
    float mean = (float)(row_moment(a, r, 0.0f, 1) / (double)a->cols);
    double variance = row_moment(a, r, mean, 2) / (double)a->cols;
    float rstd = (float)(1.0 / sqrt(variance + (double)a->eps));
    a->mean[r] = mean;
    a->rstd[r] = rstd;
    for (int64_t c = 0; c < a->cols; c += BRIM_CPU_BLOCK) {
      int64_t n = block_size(c, a->cols), at = r * a->cols + c;
      const float *x = brim_cpu_read(a->x, a->type, at, n, in);
      float *y = brim_cpu_write(a->y, a->type, at, out);
      for (int64_t j = 0; j < n; j++) y[j] = (x[j] - mean) * rstd * a->g[c + j] + a->b[c + j];
      brim_cpu_flush(a->y, a->type, at, n, out);
    }
  }
}

BRIM_CPU_CLONES static void norm_body(void *arg, int rank, int size) {
  const norm_arg *a = arg;
  float in[BRIM_CPU_BLOCK], out[BRIM_CPU_BLOCK];
  int64_t lo, hi, step = rows_at_once(a);
  brim_cpu_split(a->rows, 1, rank, size, &lo, &hi);
  if (step == 1) {
    norm_rows(a, lo, hi);
    return;
  }
  for (int64_t r = lo; r < hi; r += step) {
    int64_t rows = brim_cpu_min(step, hi - r), n = rows * a->cols;
    norm_arg wide = *a;
    wide.x = brim_cpu_read(a->x, a->type, r * a->cols, n, in);
    wide.y = out, wide.type = BRIM_F32;
    wide.mean += r, wide.rstd += r;
    norm_rows(&wide, 0, rows);
    brim_cpu_flush(a->y, a->type, r * a->cols, n, out);
  }
}

static brim_status layernorm_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  const brim_cpu_device *device = impl;
  brim_status status = brim_cpu_check_process(device);
  if (status != BRIM_OK) return status;
  norm_arg a = {.x = call->in[0].data,
                .y = call->out[0].data,
                .type = call->in[0].dtype,
                .g = call->in[1].data,
                .b = call->in[2].data,
                .mean = call->out[1].data,
                .rstd = call->out[2].data,
                .rows = brim_cpu_rows(&call->in[0]),
                .cols = brim_cpu_cols(&call->in[0]),
                .eps = call->attr.eps};
  brim_cpu_team_run(
      brim_cpu_team_for(device->threads, (double)(a.rows * a.cols), BRIM_CPU_TEAM_ELEMENTS),
      norm_body, &a);
  return BRIM_OK;
}

//---------------------------------- gradient ----------------------------------

static void plan_chunks(int64_t rows, int64_t *chunk_rows, int64_t *chunks) {
  int64_t n = (rows + MAX_CHUNKS - 1) / MAX_CHUNKS;
  *chunk_rows = n < MIN_CHUNK_ROWS ? MIN_CHUNK_ROWS : n;
  *chunks = (rows + *chunk_rows - 1) / *chunk_rows;
}

static brim_status layernorm_bwd_prepare(void *impl, brim_op_call *call) {
  (void)impl;
  int64_t chunk_rows, chunks;
  plan_chunks(brim_cpu_rows(&call->in[0]), &chunk_rows, &chunks);
  call->workspace_bytes = (size_t)(chunks * 2 * brim_cpu_cols(&call->in[0])) * sizeof(float);
  return BRIM_OK;
}

// First pass over a row: the two means that dx needs, and this row's part of dg and db.
BRIM_CPU_INLINE void row_sums(const norm_arg *a, int64_t r, float *dg, float *db, float *mean_g,
                              float *mean_gx) {
  float x_buffer[BRIM_CPU_BLOCK], dy_buffer[BRIM_CPU_BLOCK];
  float mean = a->mean[r], rstd = a->rstd[r];
  double total_g = 0, total_gx = 0;
  for (int64_t c = 0; c < a->cols; c += BRIM_CPU_BLOCK) {
    int64_t n = block_size(c, a->cols), at = r * a->cols + c;
    const float *x = brim_cpu_read(a->x, a->type, at, n, x_buffer);
    const float *dy = brim_cpu_read(a->dy, a->type, at, n, dy_buffer);
    const float *g = a->g + c;
    float *pg = dg + c, *pb = db + c, s0 = 0, s1 = 0;
#pragma omp simd reduction(+ : s0, s1)
    for (int64_t j = 0; j < n; j++) {
      float hat = (x[j] - mean) * rstd, d = dy[j] * g[j];
      pg[j] += dy[j] * hat;
      pb[j] += dy[j];
      s0 += d;
      s1 += d * hat;
    }
    total_g += (double)s0;
    total_gx += (double)s1;
  }
  *mean_g = (float)(total_g / (double)a->cols);
  *mean_gx = (float)(total_gx / (double)a->cols);
}

BRIM_CPU_INLINE void row_dx(const norm_arg *a, int64_t r, float mean_g, float mean_gx) {
  float x_buffer[BRIM_CPU_BLOCK], dy_buffer[BRIM_CPU_BLOCK], out[BRIM_CPU_BLOCK];
  float mean = a->mean[r], rstd = a->rstd[r];
  for (int64_t c = 0; c < a->cols; c += BRIM_CPU_BLOCK) {
    int64_t n = block_size(c, a->cols), at = r * a->cols + c;
    const float *x = brim_cpu_read(a->x, a->type, at, n, x_buffer);
    const float *dy = brim_cpu_read(a->dy, a->type, at, n, dy_buffer);
    float *dx = brim_cpu_write(a->y, a->type, at, out);
    for (int64_t j = 0; j < n; j++) {
      float hat = (x[j] - mean) * rstd;
      dx[j] = rstd * (dy[j] * a->g[c + j] - mean_g - hat * mean_gx);
    }
    brim_cpu_flush(a->y, a->type, at, n, out);
  }
}

BRIM_CPU_INLINE void norm_bwd_rows(const norm_arg *a, int64_t lo, int64_t hi, float *dg,
                                   float *db) {
  for (int64_t r = lo; r < hi; r++) {
    float mean_g, mean_gx;
    row_sums(a, r, dg, db, &mean_g, &mean_gx);
    row_dx(a, r, mean_g, mean_gx);
  }
}

BRIM_CPU_CLONES static void norm_bwd_body(void *arg, int rank, int size) {
  const norm_arg *a = arg;
  float x[BRIM_CPU_BLOCK], dy[BRIM_CPU_BLOCK], out[BRIM_CPU_BLOCK];
  int64_t lo, hi, step = rows_at_once(a);
  brim_cpu_split(a->chunks, 1, rank, size, &lo, &hi);
  for (int64_t chunk = lo; chunk < hi; chunk++) {
    float *dg = a->partial + chunk * 2 * a->cols, *db = dg + a->cols;
    memset(dg, 0, (size_t)(2 * a->cols) * sizeof *dg);
    int64_t first = chunk * a->chunk_rows, end = brim_cpu_min(first + a->chunk_rows, a->rows);
    if (step == 1) norm_bwd_rows(a, first, end, dg, db);
    for (int64_t r = first; step > 1 && r < end; r += step) {
      int64_t rows = brim_cpu_min(step, end - r), n = rows * a->cols;
      norm_arg wide = *a;
      wide.x = brim_cpu_read(a->x, a->type, r * a->cols, n, x);
      wide.dy = brim_cpu_read(a->dy, a->type, r * a->cols, n, dy);
      wide.y = out, wide.type = BRIM_F32;
      wide.mean += r, wide.rstd += r;
      norm_bwd_rows(&wide, 0, rows, dg, db);
      brim_cpu_flush(a->y, a->type, r * a->cols, n, out);
    }
  }
}

static void norm_join_body(void *arg, int rank, int size) {
  const norm_arg *a = arg;
  int64_t lo, hi;
  brim_cpu_split(a->cols, 16, rank, size, &lo, &hi);
  for (int64_t c = lo; c < hi; c++) {
    float dg = a->accumulate ? a->dg[c] : 0.0f, db = a->accumulate ? a->db[c] : 0.0f;
    for (int64_t chunk = 0; chunk < a->chunks; chunk++) {
      dg += a->partial[chunk * 2 * a->cols + c];
      db += a->partial[(chunk * 2 + 1) * a->cols + c];
    }
    a->dg[c] = dg;
    a->db[c] = db;
  }
}

static brim_status layernorm_bwd_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  const brim_cpu_device *device = impl;
  brim_status status = brim_cpu_check_process(device);
  if (status != BRIM_OK) return status;
  norm_arg a = {.dy = call->in[0].data,
                .x = call->in[1].data,
                .type = call->in[0].dtype,
                .g = call->in[2].data,
                .mean = call->in[3].data,
                .rstd = call->in[4].data,
                .y = call->out[0].data,
                .dg = call->out[1].data,
                .db = call->out[2].data,
                .rows = brim_cpu_rows(&call->in[0]),
                .cols = brim_cpu_cols(&call->in[0]),
                .partial = call->workspace,
                .accumulate = call->attr.accumulate};
  plan_chunks(a.rows, &a.chunk_rows, &a.chunks);
  const int threads =
      brim_cpu_team_for(device->threads, (double)(a.rows * a.cols), BRIM_CPU_TEAM_ELEMENTS);
  brim_cpu_team_run(threads, norm_bwd_body, &a);
  brim_cpu_team_run(threads, norm_join_body, &a);
  return BRIM_OK;
}

//---------------------------------- rows ----------------------------------

static const brim_op_row rows[] = {
    {BRIM_OP_LAYERNORM, brim_cpu_validate, NULL, layernorm_run, NULL},
    {BRIM_OP_LAYERNORM_BWD, brim_cpu_validate, layernorm_bwd_prepare, layernorm_bwd_run, NULL},
};

const brim_op_family brim_cpu_norm_ops = {rows, sizeof rows / sizeof *rows};
