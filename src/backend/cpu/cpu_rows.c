// Ops that add or move whole rows: POS and its gradient, CONCAT and its gradient.
#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "backend/cpu/cpu_vec.h"

static brim_status run_body(void *impl, int64_t count, brim_cpu_body body, void *arg) {
  const brim_cpu_device *device = impl;
  brim_status status = brim_cpu_check_process(device);
  if (status != BRIM_OK) return status;
  brim_cpu_team_run(brim_cpu_team_for(device->threads, (double)count, BRIM_CPU_TEAM_ELEMENTS), body,
                    arg);
  return BRIM_OK;
}

//---------------------------------- positions ----------------------------------

typedef struct pos_arg {
  const void *x, *p;
  void *y;
  brim_dtype type;
  int64_t rows, cols;  // samples, and what each holds
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

brim_status brim_cpu_pos_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  pos_arg a = {.x = call->in[0].data,
               .p = call->in[1].data,
               .y = call->out[0].data,
               .type = call->in[0].dtype,
               .rows = call->in[0].dim[0],
               .cols = brim_cpu_elements(&call->in[1])};
  return run_body(impl, a.rows * a.cols, pos_body, &a);
}

brim_status brim_cpu_pos_bwd_prepare(void *impl, brim_op_call *call) {
  (void)impl;
  call->workspace_bytes =
      brim_cpu_column_sum_bytes(call->in[0].dim[0], brim_cpu_elements(&call->out[0]));
  return BRIM_OK;
}

brim_status brim_cpu_pos_bwd_run(void *impl, void *stream, const brim_op_call *call) {
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

//---------------------------------- side by side ----------------------------------

typedef struct concat_arg {
  char *a, *b, *both;
  size_t a_bytes, b_bytes;  // of a row
  int64_t rows;
  bool apart;  // both -> a and b
} concat_arg;

static void concat_body(void *arg, int rank, int size) {
  const concat_arg *c = arg;
  int64_t lo, hi;
  brim_cpu_split(c->rows, 1, rank, size, &lo, &hi);
  for (int64_t i = lo; i < hi; i++) {
    char *a = c->a + (size_t)i * c->a_bytes, *b = c->b + (size_t)i * c->b_bytes;
    char *both = c->both + (size_t)i * (c->a_bytes + c->b_bytes);
    memcpy(c->apart ? a : both, c->apart ? both : a, c->a_bytes);
    memcpy(c->apart ? b : both + c->a_bytes, c->apart ? both + c->a_bytes : b, c->b_bytes);
  }
}

static brim_status run_concat(void *impl, const brim_tensor *a, const brim_tensor *b,
                              const brim_tensor *both, bool apart) {
  size_t size = brim_cpu_size(a->dtype);
  concat_arg c = {.a = a->data,
                  .b = b->data,
                  .both = both->data,
                  .a_bytes = (size_t)brim_cpu_cols(a) * size,
                  .b_bytes = (size_t)brim_cpu_cols(b) * size,
                  .rows = brim_cpu_rows(both),
                  .apart = apart};
  return run_body(impl, brim_cpu_elements(both), concat_body, &c);
}

brim_status brim_cpu_concat_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  return run_concat(impl, &call->in[0], &call->in[1], &call->out[0], false);
}

brim_status brim_cpu_concat_bwd_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  return run_concat(impl, &call->out[0], &call->out[1], &call->in[0], true);
}
