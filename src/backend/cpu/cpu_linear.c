// LINEAR and its two gradients: maps the op to one matrix product and hands it to the provider, to
// brim's AMX kernels where the provider's calls cost more than the product, or to the narrow loops
// where packing would; the bias gradient (column sums) is here, since it needs no product.
#include "backend/cpu/cpu_int.h"
#include "backend/cpu/cpu_vec.h"

typedef struct linear_state {
  const brim_cpu_gemm_provider *provider;
  const brim_cpu_conv_table *tiles;  // in place of the provider; both NULL: narrow
  void *inner;                       // state of the one in use
  brim_cpu_gemm g;
} linear_state;

// If the CPU has bf16 instructions, oneDNN takes layers of few columns too: two to ten times as
// fast as widening their rows (docs/performance/cpu-step.md).
static bool is_narrow(const brim_cpu_device *device, const brim_cpu_gemm *g) {
  const brim_cpu_gemm_provider *p = device->provider;
  return brim_cpu_narrow_fits(g) && !(p->narrow && p->narrow(&device->machine, g->type));
}

// The layer as a convolution of images of one pixel: a row is an image.
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

// A call of oneDNN costs at least 1.6 us and reorders the weights, so small bf16 products lost to
// fp32. brim's AMX kernels start sooner. They pack all rows, which oneDNN does not, so large
// products stay with oneDNN (docs/performance/cpu-step.md).
enum { TILES_MOST_PRODUCTS = 1 << 19 };

static bool takes_tiles(const brim_cpu_device *device, const brim_cpu_conv *v) {
  return device->amx_kernels && v->type == BRIM_BF16 && v->c % 32 == 0 && v->m % 32 == 0 &&
         (double)v->n * (double)v->c * (double)v->m <= TILES_MOST_PRODUCTS;
}

brim_status brim_cpu_linear_prepare(void *impl, brim_op_call *call) {
  const brim_cpu_device *device = impl;
  const brim_tensor *a = &call->in[0], *b = &call->in[1];
  int64_t rows = brim_cpu_rows(a);
  brim_cpu_gemm g = {.op = call->op,
                     .type = a->dtype,
                     .act = call->attr.act,
                     .accumulate = call->op == BRIM_OP_LINEAR_BWD_WEIGHT && call->attr.accumulate,
                     .cap = device->workspace_cap};  // never planning: a planned product can be run
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
    call->workspace_bytes = brim_cpu_narrow_bytes(&g);
  } else {
    // A provider without this type leaves it to our own kernels (oneDNN has bf16 only from AVX-512
    // on).
    bool chosen = device->provider->supports(&device->machine, g.type);
    state->provider = chosen ? device->provider : &brim_cpu_gemm_own;
    status = state->provider->prepare(&device->machine, &g, &state->inner, &call->workspace_bytes);
  }
  if (status != BRIM_OK) {
    brim_cpu_host()->free(state);
    return status;
  }
  // The product no longer uses the workspace when the sums are made.
  if (call->op == BRIM_OP_LINEAR_BWD_WEIGHT && brim_cpu_out(call, 1)) {
    size_t bytes = brim_cpu_column_sum_bytes(rows, g.m);
    if (bytes > call->workspace_bytes) call->workspace_bytes = bytes;
  }
  call->state = state;
  return BRIM_OK;
}

void brim_cpu_linear_release(void *impl, brim_op_call *call) {
  (void)impl;
  linear_state *state = call->state;
  if (!state) return;
  if (state->tiles) state->tiles->release(state->inner);
  if (state->provider) state->provider->release(state->inner);
  brim_cpu_host()->free(state);
  call->state = NULL;
}

//---------------------------------- column sums ----------------------------------

// Narrow rows are summed several at a time, as one row of about SUM_COLS columns, and folded at the
// end. The cut into strips depends on the shape alone.
enum { SUM_COLS = 128, SUM_ROWS = 64, MAX_STRIPS = 32 };

typedef struct sum_plan {
  brim_cpu_column_sum s;
  int64_t fold, wide;     // rows taken as one, and its columns
  int64_t strip, strips;  // wide rows
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

// Columns [c, c + n) of one strip: rows are summed 64 at a time, then those sums, so that rounding
// errors grow with the square root of the count.
BRIM_CPU_INLINE void sum_strip(const sum_plan *p, int64_t strip, int64_t c, int64_t n) {
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
    sum_strip(p, i / blocks, c, brim_cpu_min(SUM_COLS, p->wide - c));
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
  if (state->tiles) {
    status = state->tiles->run(state->inner, &args);
  } else if (state->provider) {
    status = state->provider->run(state->inner, &args);
  } else {
    brim_cpu_narrow_run(&state->g, &args);
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
