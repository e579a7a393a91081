// LINEAR and its two gradients. The op becomes one matrix product, computed by the provider, by brim's AMX
// kernels if a call of the provider costs more than the product, or by the narrow loops if packing does.
// The bias gradient (column sums) needs no product and is computed here.
#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "backend/cpu/cpu_vec.h"

//---------------------------------- narrow layers ----------------------------------

// Layers with few columns on both sides and many rows (a transformer of width 16 over 40,000 tokens):
// the weights stay in L1 and rows are multiplied where they lie, with no packing, which would cost
// more than the product. bf16 is widened a block of rows at a time and summed in f32.

enum { MAX_WEIGHTS = 4096, MIN_ROWS = 512, BLOCK_ROWS = 96, MAX_PARTS = 64 };

// The layer's rows and its padded columns, for all three ops.
typedef struct narrow_shape {
  int64_t rows, k, n;     // the product of a block of rows is (rows, k) by (k, n)
  int64_t k_pad, n_pad;   // k and n rounded up to BRIM_CPU_SMALL_COLS
  int64_t strips, strip;  // weight gradient: parts of the rows, which do not depend on threads
} narrow_shape;

static narrow_shape shape_of(const brim_cpu_gemm *g) {
  narrow_shape s = {.rows = g->m, .k = g->k, .n = g->n};
  if (g->op == BRIM_OP_LINEAR_BWD_WEIGHT) {
    s.rows = g->k, s.k = g->m;  // dy has g->m columns, x has g->n
    s.strip = brim_cpu_round_up(brim_cpu_ceil_div(s.rows, MAX_PARTS), BLOCK_ROWS);
    s.strips = brim_cpu_ceil_div(s.rows, s.strip);
  }
  s.k_pad = brim_cpu_round_up(s.k, BRIM_CPU_SMALL_COLS);
  s.n_pad = brim_cpu_round_up(s.n, BRIM_CPU_SMALL_COLS);
  return s;
}

static bool narrow_fits(const brim_cpu_gemm *g) {
  narrow_shape s = shape_of(g);
  return s.rows >= MIN_ROWS && s.k_pad * s.n_pad <= MAX_WEIGHTS;
}

static size_t block_floats(const narrow_shape *s) {
  return (size_t)(BLOCK_ROWS * (s->k_pad + s->n_pad));
}

static size_t narrow_bytes(const brim_cpu_gemm *g) {
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

// Copies rows [first, first + count) of a (rows, cols) array to rows `ld` apart, as f32.
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

// Applies bias and activation, or the activation's derivative, to a block of rows without gaps.
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
    brim_cpu_small_run(&small);
    // The input of the derivative is loaded into the room of A, which the product no longer needs.
    float *spare = s->k_pad >= s->n_pad ? a : NULL;
    if (run->g->op == BRIM_OP_LINEAR_BWD_DATA && run->g->act != BRIM_ACT_NONE && !spare) {
      // Works row by row if A's room is too small.
      for (int64_t i = 0; i < count; i++) finish_rows(run, r + i, 1, y + i * s->n_pad, a);
    } else {
      finish_rows(run, r, count, y, spare);
    }
    copy_out(run, r, count, y);
  }
}

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

static void join_weight_body(void *arg, int rank, int size) {
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

static void narrow_multiply(const brim_cpu_gemm *g, const brim_cpu_gemm_args *args) {
  narrow_run run = {.g = g, .args = args, .s = shape_of(g), .shared = args->workspace};
  const narrow_shape *s = &run.s;
  size_t shared = (size_t)(s->k_pad * s->n_pad * (s->strips > 0 ? s->strips : 1)) * sizeof(float);
  run.blocks = (float *)(void *)((char *)args->workspace + brim_cpu_round64(shared));
  bool weight = g->op == BRIM_OP_LINEAR_BWD_WEIGHT;
  if (!weight) load_weights(&run);
  brim_cpu_team_run(g->threads, weight ? weight_body : rows_body, &run);
  if (weight) brim_cpu_team_run(g->threads, join_weight_body, &run);
}

//---------------------------------- column sums ----------------------------------

// Narrow rows are summed several at a time, as one row of about SUM_COLS columns, and folded at the
// end. The strips depend on the shape alone.
enum { SUM_COLS = 128, SUM_ROWS = 64, MAX_STRIPS = 32 };

typedef struct sum_plan {
  brim_cpu_column_sum s;
  int64_t fold, wide;     // rows taken as one wide row, and the columns of a wide row
  int64_t strip, strips;  // wide rows in a strip, and the number of strips
} sum_plan;

static sum_plan plan_sum(int64_t rows, int64_t cols) {
  sum_plan p = {.fold = cols < SUM_COLS ? SUM_COLS / cols : 1};
  if (p.fold > rows) p.fold = rows > 0 ? rows : 1;
  p.wide = p.fold * cols;
  int64_t count = rows / p.fold;
  p.strip = brim_cpu_round_up(brim_cpu_ceil_div(count, MAX_STRIPS), SUM_ROWS);
  p.strips = count > 0 ? brim_cpu_ceil_div(count, p.strip) : 0;
  return p;
}

size_t brim_cpu_column_sum_bytes(int64_t rows, int64_t cols) {
  sum_plan p = plan_sum(rows, cols);
  return (size_t)(p.strips * p.wide) * sizeof(float);
}

// Sums columns [c, c + n) of one strip: 64 rows at a time, then those sums, so that rounding errors grow
// with the square root of the count.
BRIM_CPU_INLINE void column_strip(const sum_plan *p, int64_t strip, int64_t c, int64_t n) {
  const brim_cpu_column_sum *s = &p->s;
  float total[SUM_COLS] = {0}, part[SUM_COLS], buffer[SUM_COLS];
  int64_t end = brim_cpu_min((strip + 1) * p->strip, s->rows / p->fold);
  for (int64_t r0 = strip * p->strip; r0 < end; r0 += SUM_ROWS) {
    int64_t stop = brim_cpu_min(r0 + SUM_ROWS, end);
    for (int64_t j = 0; j < n; j++) part[j] = 0;
    for (int64_t r = r0; r < stop; r++) {
      const float *x = brim_cpu_read(s->data, s->type, r * p->wide + c, n, buffer);
      for (int64_t j = 0; j < n; j++) part[j] += x[j];
    }
    for (int64_t j = 0; j < n; j++) total[j] += part[j];
  }
  for (int64_t j = 0; j < n; j++) s->workspace[strip * p->wide + c + j] = total[j];
}

BRIM_CPU_CLONES static void sum_body(void *arg, int rank, int size) {
  const sum_plan *p = arg;
  int64_t blocks = brim_cpu_ceil_div(p->wide, SUM_COLS), lo, hi;
  brim_cpu_split(blocks * p->strips, 1, rank, size, &lo, &hi);
  for (int64_t i = lo; i < hi; i++) {
    int64_t c = i % blocks * SUM_COLS;
    column_strip(p, i / blocks, c, brim_cpu_min(SUM_COLS, p->wide - c));
  }
}

BRIM_CPU_CLONES static void join_body(void *arg, int rank, int size) {
  const sum_plan *p = arg;
  const brim_cpu_column_sum *s = &p->s;
  int64_t lo, hi;
  brim_cpu_split(s->cols, 16, rank, size, &lo, &hi);
  for (int64_t c = lo; c < hi; c++) {
    float total = 0, one[1];
    for (int64_t i = 0; i < p->strips * p->fold; i++) total += s->workspace[i * s->cols + c];
    for (int64_t r = s->rows / p->fold * p->fold; r < s->rows; r++) {
      total += *brim_cpu_read(s->data, s->type, r * s->cols + c, 1, one);
    }
    s->out[c] = s->accumulate ? s->out[c] + total : total;
  }
}

void brim_cpu_column_sum_run(int threads, brim_cpu_column_sum sum) {
  sum_plan p = plan_sum(sum.rows, sum.cols);
  p.s = sum;
  threads = brim_cpu_team_for(threads, (double)(sum.rows * sum.cols), BRIM_CPU_TEAM_ELEMENTS);
  brim_cpu_team_run(threads, sum_body, &p);
  brim_cpu_team_run(threads, join_body, &p);
}

//---------------------------------- ops ----------------------------------

typedef struct linear_state {
  const brim_cpu_gemm_provider *provider;
  const brim_cpu_conv_table *tiles;  // replaces the provider; both NULL: narrow loops
  void *inner;                       // state of the provider or of `tiles`
  brim_cpu_gemm g;
} linear_state;

// If the CPU has bf16 instructions, oneDNN takes layers of few columns too: it is two to ten times as fast
// as widening their rows (docs/performance/cpu-step.md).
static bool is_narrow(const brim_cpu_device *device, const brim_cpu_gemm *g) {
  const brim_cpu_gemm_provider *p = device->provider;
  return narrow_fits(g) && !(p->narrow && p->narrow(&device->machine, g->type));
}

// Describes the layer as a convolution of images of one pixel: a row is an image.
static brim_cpu_conv as_conv(const brim_cpu_gemm *g) {
  brim_cpu_conv v = {.type = g->type,
                     .h = 1,
                     .w = 1,
                     .r = 1,
                     .s = 1,
                     .p = 1,
                     .q = 1,
                     .stride = 1,
                     .accumulate = g->accumulate,
                     .bias = g->bias,
                     .act = g->act,
                     .threads = g->threads,
                     .cap = g->cap,
                     .planning = g->planning};
  if (g->op == BRIM_OP_LINEAR) {
    v.op = BRIM_OP_CONV, v.n = g->m, v.c = g->k, v.m = g->n;
  } else if (g->op == BRIM_OP_LINEAR_BWD_DATA) {
    v.op = BRIM_OP_CONV_BWD_DATA, v.n = g->m, v.c = g->n, v.m = g->k;
  } else {
    v.op = BRIM_OP_CONV_BWD_WEIGHT, v.n = g->k, v.c = g->n, v.m = g->m;
  }
  return v;
}

// A call of oneDNN costs at least 1.6 us and reorders the weights, so small bf16 products were slower than
// fp32. brim's AMX kernels start sooner. They pack all rows, which oneDNN does not, so large products stay
// with oneDNN (docs/performance/cpu-step.md).
enum { TILES_MOST_PRODUCTS = 1 << 19 };

static bool takes_tiles(const brim_cpu_device *device, const brim_cpu_conv *v) {
  return device->amx_kernels && v->type == BRIM_BF16 && v->c % 32 == 0 && v->m % 32 == 0 &&
         (double)v->n * (double)v->c * (double)v->m <= TILES_MOST_PRODUCTS;
}

static brim_status linear_prepare(void *impl, brim_op_call *call) {
  const brim_cpu_device *device = impl;
  const brim_tensor *a = &call->in[0], *b = &call->in[1];
  int64_t rows = brim_cpu_rows(a);
  brim_cpu_gemm g = {
      .op = call->op,
      .type = a->dtype,
      .act = call->attr.act,
      .accumulate = call->op == BRIM_OP_LINEAR_BWD_WEIGHT && call->attr.accumulate,
      .cap = device->workspace_cap};  // planning stays false, since planned products can be run
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
  g.threads = brim_cpu_team_for(device->threads, (double)g.m * (double)g.n * (double)g.k,
                                BRIM_CPU_TEAM_PRODUCTS);
  linear_state *state = brim_cpu_host()->alloc(sizeof *state, 0);
  if (!state) return brim_cpu_fail(BRIM_ENOMEM, "cpu: no memory for the state of a linear op");
  *state = (linear_state){.g = g};
  brim_status status = BRIM_OK;
  const brim_cpu_conv v = as_conv(&g);
  if (takes_tiles(device, &v)) {
    state->tiles = &brim_cpu_conv_amx;
    status = state->tiles->prepare(&device->machine, &v, &state->inner, &call->workspace_bytes);
  } else if (is_narrow(device, &g)) {
    call->workspace_bytes = narrow_bytes(&g);
  } else {
    // If the provider lacks the type, brim's own kernels compute it (oneDNN has bf16 only from AVX-512 on).
    bool chosen = device->provider->supports(&device->machine, g.type);
    state->provider = chosen ? device->provider : &brim_cpu_gemm_own;
    status = state->provider->prepare(&device->machine, &g, &state->inner, &call->workspace_bytes);
  }
  if (status != BRIM_OK) {
    brim_cpu_host()->free(state);
    return status;
  }
  // The column sums use the workspace after the product.
  if (call->op == BRIM_OP_LINEAR_BWD_WEIGHT && brim_cpu_out(call, 1)) {
    size_t bytes = brim_cpu_column_sum_bytes(rows, g.m);
    if (bytes > call->workspace_bytes) call->workspace_bytes = bytes;
  }
  call->state = state;
  return BRIM_OK;
}

static void linear_release(void *impl, brim_op_call *call) {
  (void)impl;
  linear_state *state = call->state;
  if (!state) return;
  if (state->tiles) state->tiles->release(state->inner);
  if (state->provider) state->provider->release(state->inner);
  brim_cpu_host()->free(state);
  call->state = NULL;
}

static brim_status linear_run(void *impl, void *stream, const brim_op_call *call) {
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
  if (state->tiles) {
    status = state->tiles->run(state->inner, &args);
  } else if (state->provider) {
    status = state->provider->run(state->inner, &args);
  } else {
    narrow_multiply(&state->g, &args);
  }
  if (status != BRIM_OK) return status;
  const brim_tensor *db = brim_cpu_out(call, 1);
  if (call->op == BRIM_OP_LINEAR_BWD_WEIGHT && db) {
    brim_cpu_column_sum_run(device->threads,
                            (brim_cpu_column_sum){.data = call->in[0].data,
                                                  .type = call->in[0].dtype,
                                                  .rows = brim_cpu_rows(&call->in[0]),
                                                  .cols = brim_cpu_cols(&call->in[0]),
                                                  .out = db->data,
                                                  .accumulate = call->attr.accumulate,
                                                  .workspace = call->workspace});
  }
  return BRIM_OK;
}

//---------------------------------- rows ----------------------------------

static const brim_op_row rows[] = {
    {BRIM_OP_LINEAR, brim_cpu_validate, linear_prepare, linear_run, linear_release},
    {BRIM_OP_LINEAR_BWD_DATA, brim_cpu_validate, linear_prepare, linear_run, linear_release},
    {BRIM_OP_LINEAR_BWD_WEIGHT, brim_cpu_validate, linear_prepare, linear_run, linear_release},
};

const brim_op_family brim_cpu_linear_ops = {rows, sizeof rows / sizeof *rows};
