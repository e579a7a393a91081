// LINEAR and its gradients for layers with few columns on both sides and many rows (a transformer of
// width 16 over 40,000 tokens): the weights stay in L1 and rows are multiplied where they lie, with
// no packing. bf16 is widened a block of rows at a time and summed in f32.
#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "backend/cpu/cpu_vec.h"

enum { MAX_WEIGHTS = 4096, MIN_ROWS = 512, BLOCK_ROWS = 96, MAX_STRIPS = 64 };

// Rows, columns in and out of the layer whatever the op.
typedef struct narrow_shape {
  int64_t rows, k, n;     // the product of one block: (rows, k) by (k, n)
  int64_t k_pad, n_pad;   // columns rounded up to groups
  int64_t strips, strip;  // weight gradient: fixed parts of the rows
} narrow_shape;

static narrow_shape shape_of(const brim_cpu_gemm *g) {
  narrow_shape s = {.rows = g->m, .k = g->k, .n = g->n};
  if (g->op == BRIM_OP_LINEAR_BWD_WEIGHT) {
    s.rows = g->k, s.k = g->m;  // dy has g->m columns, x has g->n
    s.strip = brim_cpu_round_up(brim_cpu_ceil_div(s.rows, MAX_STRIPS), BLOCK_ROWS);
    s.strips = brim_cpu_ceil_div(s.rows, s.strip);
  }
  s.k_pad = brim_cpu_round_up(s.k, BRIM_CPU_SMALL_COLS);
  s.n_pad = brim_cpu_round_up(s.n, BRIM_CPU_SMALL_COLS);
  return s;
}

bool brim_cpu_narrow_fits(const brim_cpu_gemm *g) {
  narrow_shape s = shape_of(g);
  return s.rows >= MIN_ROWS && s.k_pad * s.n_pad <= MAX_WEIGHTS;
}

static size_t block_floats(const narrow_shape *s) {
  return (size_t)(BLOCK_ROWS * (s->k_pad + s->n_pad));
}

size_t brim_cpu_narrow_bytes(const brim_cpu_gemm *g) {
  narrow_shape s = shape_of(g);
  size_t shared = (size_t)(s.k_pad * s.n_pad * (s.strips > 0 ? s.strips : 1)) * sizeof(float);
  return brim_cpu_round64(shared) +
         (size_t)g->threads * brim_cpu_round64(block_floats(&s) * sizeof(float));
}

typedef struct narrow_run {
  const brim_cpu_gemm *g;
  const brim_cpu_gemm_args *args;
  narrow_shape s;
  float *shared;  // weights (k, n_pad), or sums (strips, k, n_pad)
  float *blocks;
} narrow_run;

static float *block_of(const narrow_run *run, int rank) {
  return run->blocks +
         (size_t)rank * (brim_cpu_round64(block_floats(&run->s) * sizeof(float)) / sizeof(float));
}

// Rows [first, first + count) of a (rows, cols) array as f32 with rows `ld` apart.
BRIM_CPU_INLINE void copy_in(const void *data, brim_dtype type, int64_t first, int64_t count,
                             int64_t cols, int64_t ld, float *restrict to) {
  float wide[BRIM_CPU_BLOCK];
  for (int64_t i = 0; i < count; i++) {
    for (int64_t c = 0; c < cols; c += BRIM_CPU_BLOCK) {
      int64_t n = brim_cpu_min(BRIM_CPU_BLOCK, cols - c);
      const float *from = brim_cpu_read(data, type, (first + i) * cols + c, n, wide);
      for (int64_t j = 0; j < n; j++) to[i * ld + c + j] = from[j];
    }
    for (int64_t j = cols; j < ld; j++) to[i * ld + j] = 0.0f;
  }
}

BRIM_CPU_CLONES static void load_block(const void *data, brim_dtype type, int64_t first,
                                       int64_t count, int64_t cols, int64_t ld, float *to) {
  copy_in(data, type, first, count, cols, ld, to);
}

//---------------------------------- forward, backward data ----------------------------------

// Loads the weights as (k, n_pad) in f32: w(n, k) transposed, or w(k, n) as it is.
static void load_weights(const narrow_run *run) {
  const brim_cpu_gemm *g = run->g;
  const narrow_shape *s = &run->s;
  float one[1];
  for (int64_t k = 0; k < s->k; k++) {
    for (int64_t j = 0; j < s->n_pad; j++) {
      int64_t at = g->op == BRIM_OP_LINEAR ? j * s->k + k : k * s->n + j;
      run->shared[k * s->n_pad + j] =
          j < s->n ? *brim_cpu_read(run->args->b, g->type, at, 1, one) : 0.0f;
    }
  }
}

// Bias and activation, or its derivative, on a block of rows without gaps.
BRIM_CPU_CLONES static void finish_rows(const narrow_run *run, int64_t first, int64_t count,
                                        float *y, float *spare) {
  const brim_cpu_gemm *g = run->g;
  const narrow_shape *s = &run->s;
  if (g->bias) {
    float wide[BRIM_CPU_BLOCK];
    for (int64_t c = 0; c < s->n; c += BRIM_CPU_BLOCK) {
      int64_t n = brim_cpu_min(BRIM_CPU_BLOCK, s->n - c);
      const float *bias = brim_cpu_read(run->args->bias, g->type, c, n, wide);
      for (int64_t i = 0; i < count; i++) {
        for (int64_t j = 0; j < n; j++) y[i * s->n_pad + c + j] += bias[j];
      }
    }
  }
  if (g->act == BRIM_ACT_NONE) return;
  if (g->op == BRIM_OP_LINEAR) {
    brim_cpu_act(g->act, y, y, count * s->n_pad);
    return;
  }
  copy_in(run->args->s, g->type, first, count, s->n, s->n_pad, spare);
  brim_cpu_act_slope(g->act, y, spare, y, count * s->n_pad);
}

BRIM_CPU_CLONES static void copy_out(const narrow_run *run, int64_t first, int64_t count,
                                     const float *y) {
  const narrow_shape *s = &run->s;
  for (int64_t i = 0; i < count; i++, y += s->n_pad) {
    int64_t at = (first + i) * s->n;
    if (run->g->type == BRIM_F32) {
      memcpy((float *)run->args->c + at, y, (size_t)s->n * sizeof *y);
    } else {
      brim_cpu_flush(run->args->c, run->g->type, at, s->n, y);
    }
  }
}

static void rows_body(void *arg, int rank, int size) {
  const narrow_run *run = arg;
  const narrow_shape *s = &run->s;
  bool f32 = run->g->type == BRIM_F32;
  float *a = block_of(run, rank), *y = a + BLOCK_ROWS * s->k_pad;
  int64_t lo, hi;
  brim_cpu_split(s->rows, BLOCK_ROWS, rank, size, &lo, &hi);
  for (int64_t r = lo; r < hi; r += BLOCK_ROWS) {
    int64_t count = brim_cpu_min(BLOCK_ROWS, hi - r);
    if (!f32) load_block(run->args->a, run->g->type, r, count, s->k, s->k, a);
    brim_cpu_small small = {.m = count,
                            .n = s->n,
                            .k = s->k,
                            .a = f32 ? (const float *)run->args->a + r * s->k : a,
                            .a_row = s->k,
                            .a_step = 1,
                            .b = run->shared,
                            .b_ld = s->n_pad,
                            .c = y,
                            .c_ld = s->n_pad};
    // The derivative's input takes the room of A, which the product no longer needs.
    brim_cpu_small_run(&small);
    float *spare = s->k_pad >= s->n_pad ? a : NULL;
    if (run->g->op == BRIM_OP_LINEAR_BWD_DATA && run->g->act != BRIM_ACT_NONE && !spare) {
      // Row by row if A's room is too small.
      for (int64_t i = 0; i < count; i++) finish_rows(run, r + i, 1, y + i * s->n_pad, a);
    } else {
      finish_rows(run, r, count, y, spare);
    }
    copy_out(run, r, count, y);
  }
}

//---------------------------------- backward weight ----------------------------------

static void weight_body(void *arg, int rank, int size) {
  const narrow_run *run = arg;
  const narrow_shape *s = &run->s;
  brim_dtype type = run->g->type;
  float *dy = block_of(run, rank), *x = dy + BLOCK_ROWS * s->k_pad;
  int64_t lo, hi;
  brim_cpu_split(s->strips, 1, rank, size, &lo, &hi);
  for (int64_t strip = lo; strip < hi; strip++) {
    int64_t end = brim_cpu_min((strip + 1) * s->strip, s->rows);
    for (int64_t r = strip * s->strip; r < end; r += BLOCK_ROWS) {
      int64_t count = brim_cpu_min(BLOCK_ROWS, end - r);
      bool direct_dy = type == BRIM_F32, direct_x = direct_dy && s->n == s->n_pad;
      if (!direct_dy) load_block(run->args->a, type, r, count, s->k, s->k, dy);
      if (!direct_x) load_block(run->args->b, type, r, count, s->n, s->n_pad, x);
      brim_cpu_small small = {.m = s->k,
                              .n = s->n,
                              .k = count,
                              .a = direct_dy ? (const float *)run->args->a + r * s->k : dy,
                              .a_row = 1,
                              .a_step = s->k,
                              .b = direct_x ? (const float *)run->args->b + r * s->n : x,
                              .b_ld = s->n_pad,
                              .c = run->shared + strip * s->k * s->n_pad,
                              .c_ld = s->n_pad,
                              .add = r > strip * s->strip};
      brim_cpu_small_run(&small);
    }
  }
}

static void join_body(void *arg, int rank, int size) {
  const narrow_run *run = arg;
  const narrow_shape *s = &run->s;
  int64_t lo, hi;
  brim_cpu_split(s->k, 1, rank, size, &lo, &hi);
  for (int64_t i = lo; i < hi; i++) {
    float *dw = (float *)run->args->c + i * s->n;
    for (int64_t strip = 0; strip < s->strips; strip++) {
      const float *part = run->shared + (strip * s->k + i) * s->n_pad;
      bool add = strip > 0 || run->g->accumulate;
      for (int64_t j = 0; j < s->n; j++) dw[j] = add ? dw[j] + part[j] : part[j];
    }
  }
}

void brim_cpu_narrow_run(const brim_cpu_gemm *g, const brim_cpu_gemm_args *args) {
  narrow_run run = {.g = g, .args = args, .s = shape_of(g), .shared = args->workspace};
  const narrow_shape *s = &run.s;
  size_t shared = (size_t)(s->k_pad * s->n_pad * (s->strips > 0 ? s->strips : 1)) * sizeof(float);
  run.blocks = (float *)(void *)((char *)args->workspace + brim_cpu_round64(shared));
  bool weight = g->op == BRIM_OP_LINEAR_BWD_WEIGHT;
  if (!weight) load_weights(&run);
  brim_cpu_team_run(g->threads, weight ? weight_body : rows_body, &run);
  if (weight) brim_cpu_team_run(g->threads, join_body, &run);
}
