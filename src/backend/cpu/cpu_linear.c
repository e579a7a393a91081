// LINEAR and its two gradients: maps the op to one matrix product and hands it to the provider; the
// bias gradient (column sums) is here, since it needs no product.
#include "backend/cpu/cpu_int.h"
#include "backend/cpu/cpu_vec.h"

typedef struct linear_state {
  const brim_cpu_gemm_provider *provider;
  void *gemm;
} linear_state;

brim_status brim_cpu_linear_prepare(void *impl, brim_op_call *call) {
  const brim_cpu_device *device = impl;
  const brim_tensor *a = &call->in[0], *b = &call->in[1];
  int64_t rows = brim_cpu_rows(a);
  brim_cpu_gemm g = {.op = call->op,
                     .type = a->dtype,
                     .act = call->attr.act,
                     .accumulate = call->op == BRIM_OP_LINEAR_BWD_WEIGHT && call->attr.accumulate,
                     .threads = device->threads,
                     .cap = device->workspace_cap};
  if (call->op == BRIM_OP_LINEAR) {
    g.m = rows, g.n = b->dim[0], g.k = brim_cpu_cols(b);
    g.bias = brim_cpu_in(call, 2) != NULL;
  } else if (call->op == BRIM_OP_LINEAR_BWD_DATA) {
    g.m = rows, g.n = brim_cpu_cols(b), g.k = b->dim[0];
    if (!brim_cpu_in(call, 2)) g.act = BRIM_ACT_NONE;
  } else {
    g.m = brim_cpu_cols(a), g.n = brim_cpu_cols(b), g.k = rows;
    g.act = BRIM_ACT_NONE;
  }
  linear_state *state = brim_cpu_host()->alloc(sizeof *state, 0);
  if (!state) return brim_cpu_fail(BRIM_ENOMEM, "cpu: no memory for the state of a linear op");
  // A provider without this type (oneDNN has bf16 only from AVX-512 on) leaves it to our own.
  bool chosen = device->provider->supports(&device->machine, g.type);
  state->provider = chosen ? device->provider : &brim_cpu_gemm_own;
  brim_status status =
      state->provider->prepare(&device->machine, &g, &state->gemm, &call->workspace_bytes);
  if (status != BRIM_OK) {
    brim_cpu_host()->free(state);
    return status;
  }
  call->state = state;
  return BRIM_OK;
}

void brim_cpu_linear_release(void *impl, brim_op_call *call) {
  (void)impl;
  linear_state *state = call->state;
  if (!state) return;
  state->provider->release(state->gemm);
  brim_cpu_host()->free(state);
  call->state = NULL;
}

//---------------------------------- column sums ----------------------------------

typedef struct column_sum {
  const void *data;  // (rows, cols)
  brim_dtype type;
  int64_t rows, cols;
  float *out;  // (cols)
  bool accumulate;
} column_sum;

enum { SUM_COLS = 128, SUM_ROWS = 64 };

// Each thread owns columns; rows are summed 64 at a time, then those sums, so that rounding errors
// grow with the square root of the count and no thread count changes them.
BRIM_CPU_CLONES static void column_sum_body(void *arg, int rank, int size) {
  const column_sum *s = arg;
  int64_t lo, hi;
  brim_cpu_split(s->cols, SUM_COLS, rank, size, &lo, &hi);
  for (int64_t c = lo; c < hi; c += SUM_COLS) {
    int64_t n = hi - c < SUM_COLS ? hi - c : SUM_COLS;
    float total[SUM_COLS] = {0}, part[SUM_COLS], buffer[SUM_COLS];
    for (int64_t r0 = 0; r0 < s->rows; r0 += SUM_ROWS) {
      int64_t end = r0 + SUM_ROWS < s->rows ? r0 + SUM_ROWS : s->rows;
      for (int64_t j = 0; j < n; j++) part[j] = 0;
      for (int64_t r = r0; r < end; r++) {
        const float *x = brim_cpu_read(s->data, s->type, r * s->cols + c, n, buffer);
        for (int64_t j = 0; j < n; j++) part[j] += x[j];
      }
      for (int64_t j = 0; j < n; j++) total[j] += part[j];
    }
    for (int64_t j = 0; j < n; j++) {
      s->out[c + j] = s->accumulate ? s->out[c + j] + total[j] : total[j];
    }
  }
}

brim_status brim_cpu_linear_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  const brim_cpu_device *device = impl;
  const linear_state *state = call->state;
  brim_status status = brim_cpu_check_process(device);
  if (status != BRIM_OK) return status;
  brim_cpu_gemm_args args = {.a = call->in[0].data,
                             .b = call->in[1].data,
                             .c = call->out[0].data,
                             .workspace = call->workspace};
  const brim_tensor *third = brim_cpu_in(call, 2);
  if (third && call->op == BRIM_OP_LINEAR) args.bias = third->data;
  if (third && call->op == BRIM_OP_LINEAR_BWD_DATA && call->attr.act != BRIM_ACT_NONE) {
    args.s = third->data;
  }
  status = state->provider->run(state->gemm, &args);
  if (status != BRIM_OK) return status;
  const brim_tensor *db = brim_cpu_out(call, 1);
  if (call->op == BRIM_OP_LINEAR_BWD_WEIGHT && db) {
    column_sum sum = {call->in[0].data,
                      call->in[0].dtype,
                      brim_cpu_rows(&call->in[0]),
                      brim_cpu_cols(&call->in[0]),
                      db->data,
                      call->attr.accumulate};
    bool small = sum.rows * sum.cols < 32768;
    brim_cpu_team_run(small ? 1 : device->threads, column_sum_body, &sum);
  }
  return BRIM_OK;
}
