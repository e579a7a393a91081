// Our own convolutions: matrix products whose left operand is never stored. Its panels are packed
// straight from the NHWC image, tap by tap (brim_cpu_kernel.gather); padding is a row of zeros.
// CONV and CONV_BWD_DATA here: rows are pixels, all weights are packed first and then each thread
// works through its own rows. The weights' gradient is in cpu_conv_weight.c.
#include "backend/cpu/cpu_conv_own.h"

#include <string.h>

#include "backend/cpu/cpu_vec.h"

enum { B_LIMIT = 64 << 20, MAX_MR = 16 };

//---------------------------------- plan ----------------------------------

static int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

static void plan_forward(brim_cpu_conv_plan *p) {
  const brim_cpu_conv *v = &p->v;
  p->pass_count = 1;
  p->passes[0] = (brim_cpu_conv_pass){v->p, v->q, 0, 0, 0, v->r * v->s};
  for (int64_t i = 0; i < v->r * v->s; i++) {
    p->taps[i] = (brim_cpu_tap){i / v->s - v->pad, i % v->s - v->pad, i};
  }
}

// dx(h, w) gathers dy((h + pad - r) / stride, ...) where that divides: for h = i * stride + first
// the row is i + (first + pad - r) / stride, for the r that fit `first`.
static void plan_backward(brim_cpu_conv_plan *p) {
  const brim_cpu_conv *v = &p->v;
  int64_t taps = 0;
  p->pass_count = 0;
  for (int64_t fh = 0; fh < v->stride; fh++) {
    for (int64_t fw = 0; fw < v->stride; fw++) {
      brim_cpu_conv_pass pass = {.first_h = fh, .first_w = fw, .tap_lo = taps};
      pass.rows_h = fh < v->h ? brim_cpu_ceil_div(v->h - fh, v->stride) : 0;
      pass.rows_w = fw < v->w ? brim_cpu_ceil_div(v->w - fw, v->stride) : 0;
      for (int64_t i = 0; i < v->r * v->s; i++) {
        int64_t dh = fh + v->pad - i / v->s, dw = fw + v->pad - i % v->s;
        int64_t oh = floor_div(dh, v->stride), ow = floor_div(dw, v->stride);
        if (oh * v->stride != dh || ow * v->stride != dw) continue;
        p->taps[taps++] = (brim_cpu_tap){oh, ow, i};
      }
      pass.tap_hi = taps;
      if (pass.rows_h > 0 && pass.rows_w > 0) p->passes[p->pass_count++] = pass;
    }
  }
}

static int64_t most_taps(const brim_cpu_conv_plan *p) {
  int64_t most = 1;
  for (int64_t i = 0; i < p->pass_count; i++) {
    int64_t n = p->passes[i].tap_hi - p->passes[i].tap_lo;
    if (n > most) most = n;
  }
  return most;
}

// Depth of a block of pieces, at most.
static int64_t block_depth(const brim_cpu_conv_plan *p) {
  int64_t padded = brim_cpu_round_up(p->piece, p->kernel->kg);
  return padded * p->pieces_per_block;
}

static size_t plan_sizes(brim_cpu_conv_plan *p) {
  const brim_cpu_kernel *kernel = p->kernel;
  int64_t panels = brim_cpu_ceil_div(p->nb, kernel->nr);
  size_t zeros = brim_cpu_round64((size_t)p->src_c * brim_cpu_size(p->v.type) + BRIM_CPU_ALIGN);
  size_t b = (size_t)(most_taps(p) * p->tap_depth * panels * kernel->nr) * kernel->pack_bytes;
  size_t a = (size_t)(block_depth(p) * kernel->mc) * kernel->pack_bytes;
  size_t sums = (size_t)(panels * kernel->nr * kernel->mc) * sizeof(float);
  size_t rows = (size_t)kernel->mc * sizeof(brim_cpu_conv_row);
  p->zero_offset = 0;
  p->b_offset = zeros;
  p->thread_offset = zeros + brim_cpu_round64(b) + BRIM_CPU_ALIGN;
  p->thread_sum = brim_cpu_round64(a) + BRIM_CPU_ALIGN;
  p->thread_rows = p->thread_sum + brim_cpu_round64(sums);
  p->thread_bytes = p->thread_rows + brim_cpu_round64(rows);
  return p->thread_offset + p->thread_bytes * (size_t)p->v.threads;
}

static size_t plan_gather(brim_cpu_conv_plan *p) {
  const brim_cpu_conv *v = &p->v;
  const brim_cpu_kernel *kernel = p->kernel;
  bool forward = v->op == BRIM_OP_CONV;
  p->src_h = forward ? v->h : v->p, p->src_w = forward ? v->w : v->q;
  p->src_c = forward ? v->c : v->m, p->dst_c = forward ? v->m : v->c;
  p->dst_h = forward ? v->p : v->h, p->dst_w = forward ? v->q : v->w;
  p->src_step = forward ? v->stride : 1;
  p->dst_step = forward ? 1 : v->stride;
  if (forward) {
    plan_forward(p);
  } else {
    plan_backward(p);
  }
  p->tap_depth = brim_cpu_round_up(p->src_c, kernel->kg);
  p->pieces_per_tap = brim_cpu_ceil_div(p->tap_depth, kernel->kc);
  p->piece = brim_cpu_round_up(brim_cpu_ceil_div(p->tap_depth, p->pieces_per_tap), kernel->kg);
  p->pieces_per_tap = brim_cpu_ceil_div(p->tap_depth, p->piece);
  int64_t pieces = most_taps(p) * p->pieces_per_tap;
  int64_t fit = p->piece < kernel->kc ? kernel->kc / p->piece : 1;
  p->pieces_per_block = brim_cpu_ceil_div(pieces, brim_cpu_ceil_div(pieces, fit));
  p->nb = p->dst_c;
  size_t cap = v->cap ? v->cap : B_LIMIT, bytes = plan_sizes(p);
  while (bytes > cap && p->nb > kernel->nr) {
    p->nb = brim_cpu_round_up(p->nb / 2, kernel->nr);
    bytes = plan_sizes(p);
    if (p->nb <= 2 * kernel->nr) break;
  }
  return bytes;
}

//---------------------------------- operands ----------------------------------

typedef struct conv_run {
  const brim_cpu_conv_plan *p;
  const brim_cpu_gemm_args *args;
  const brim_cpu_conv_pass *pass;
  int64_t jc, n;  // columns of this round
} conv_run;

// The pieces of a pass, numbered along the depth.
typedef struct piece {
  const brim_cpu_tap *tap;
  int64_t start, length;  // channels
} piece;

static piece piece_at(const conv_run *run, int64_t index) {
  const brim_cpu_conv_plan *p = run->p;
  int64_t start = index % p->pieces_per_tap * p->piece;
  return (piece){&p->taps[run->pass->tap_lo + index / p->pieces_per_tap], start,
                 brim_cpu_min(p->piece, p->src_c - start)};
}

static int64_t piece_count(const conv_run *run) {
  return (run->pass->tap_hi - run->pass->tap_lo) * run->p->pieces_per_tap;
}

// Depth that lies before a piece.
static int64_t depth_before(const conv_run *run, int64_t index) {
  const brim_cpu_conv_plan *p = run->p;
  return index / p->pieces_per_tap * p->tap_depth + index % p->pieces_per_tap * p->piece;
}

// Weights as (block of pieces, panel, depth, nr). Forward: rows of w are columns of B, depth lies
// contiguous; backward: w's channels are columns, depth runs over its rows.
static void pack_weights(void *arg, int rank, int size) {
  const conv_run *run = arg;
  const brim_cpu_conv_plan *p = run->p;
  const brim_cpu_conv *v = &p->v;
  const brim_cpu_kernel *kernel = p->kernel;
  bool forward = v->op == BRIM_OP_CONV;
  int64_t ld = v->r * v->s * v->c, panels = brim_cpu_ceil_div(run->n, kernel->nr);
  int64_t pieces = piece_count(run), lo, hi;
  char *packed = (char *)run->args->workspace + p->b_offset;
  brim_cpu_split(panels, 1, rank, size, &lo, &hi);
  for (int64_t first = 0; first < pieces; first += p->pieces_per_block) {
    int64_t end = brim_cpu_min(first + p->pieces_per_block, pieces);
    int64_t before = depth_before(run, first), depth = depth_before(run, end) - before;
    for (int64_t panel = lo; panel < hi; panel++) {
      char *to =
          packed + (size_t)((before * panels + depth * panel) * kernel->nr) * kernel->pack_bytes;
      int64_t col = run->jc + panel * kernel->nr;
      int cols = (int)brim_cpu_min(kernel->nr, run->jc + run->n - col);
      for (int64_t i = first; i < end; i++) {
        piece c = piece_at(run, i);
        int64_t at =
            forward ? col * ld + c.tap->at * v->c + c.start : c.start * ld + c.tap->at * v->c + col;
        kernel->pack(to, kernel->nr,
                     (const char *)run->args->b + (size_t)at * brim_cpu_size(v->type), ld, cols,
                     (int)c.length, forward);
        to += (size_t)(brim_cpu_round_up(c.length, kernel->kg) * kernel->nr) * kernel->pack_bytes;
      }
    }
  }
}

// Panels of patches for `count` rows and pieces [first, end).
static void pack_patches(const conv_run *run, const brim_cpu_conv_row *rows, int64_t count,
                         int64_t first, int64_t end, char *to) {
  const brim_cpu_conv_plan *p = run->p;
  const brim_cpu_kernel *kernel = p->kernel;
  const void *zeros = (const char *)run->args->workspace + p->zero_offset;
  size_t size = brim_cpu_size(p->v.type);
  for (int64_t r = 0; r < count; r += kernel->mr) {
    int n = (int)brim_cpu_min(kernel->mr, count - r);
    const void *at[MAX_MR] = {0};
    const brim_cpu_tap *tap = NULL;
    for (int64_t i = first; i < end; i++) {
      piece c = piece_at(run, i);
      if (c.tap != tap) {
        tap = c.tap;
        for (int j = 0; j < n; j++) at[j] = brim_cpu_conv_place(p, &rows[r + j], tap, zeros);
      }
      kernel->gather(to, kernel->mr, at, (size_t)c.start * size, n, (int)c.length, true);
      to += (size_t)(brim_cpu_round_up(c.length, kernel->kg) * kernel->mr) * kernel->pack_bytes;
    }
  }
}

//---------------------------------- results ----------------------------------

static void write_rows(const conv_run *run, const float *tile, const brim_cpu_conv_row *rows,
                       int count, int64_t col, int cols) {
  const brim_cpu_conv_plan *p = run->p;
  int nr = p->kernel->nr;
  for (int i = 0; i < count; i++, tile += nr) {
    int64_t at = rows[i].dst + col;
    if (p->v.type == BRIM_F32) {
      float *c = (float *)run->args->c + at;
      for (int j = 0; j < cols; j++) c[j] = tile[j];
    } else {
      uint16_t *c = (uint16_t *)run->args->c + at;
      for (int j = 0; j < cols; j++) c[j] = brim_cpu_to_bf16(tile[j]);
    }
  }
}

static void write_tile(const conv_run *run, const float *tile, const brim_cpu_conv_row *rows,
                       int count, int64_t col, int cols) {
  const brim_cpu_conv_plan *p = run->p;
  const brim_cpu_kernel *kernel = p->kernel;
  int64_t ld = p->dst_step * p->dst_c;
  // Rows of one image line are equally far apart; past its end they are further.
  bool whole = kernel->finish && count == kernel->mr && cols == kernel->nr &&
               rows[count - 1].dst - rows[0].dst == (count - 1) * ld;
  if (!whole) {
    write_rows(run, tile, rows, count, col, cols);
    return;
  }
  size_t size = brim_cpu_size(p->v.type);
  brim_cpu_finish how = {.c = (char *)run->args->c + (size_t)(rows[0].dst + col) * size,
                         .ld = ld,
                         .c_f32 = p->v.type == BRIM_F32};
  kernel->finish(tile, &how);
}

// One block of depth over a block of rows; sums between blocks of depth are kept tile by tile.
static void multiply(const conv_run *run, const brim_cpu_conv_row *rows, int64_t count,
                     int64_t first, int64_t end, char *own) {
  const brim_cpu_conv_plan *p = run->p;
  const brim_cpu_kernel *kernel = p->kernel;
  int64_t panels = brim_cpu_ceil_div(run->n, kernel->nr), before = depth_before(run, first);
  int64_t depth = depth_before(run, end) - before, tile_size = kernel->mr * kernel->nr;
  size_t a_panel = (size_t)(depth * kernel->mr) * kernel->pack_bytes;
  size_t b_panel = (size_t)(depth * kernel->nr) * kernel->pack_bytes;
  const char *b = (const char *)run->args->workspace + p->b_offset +
                  (size_t)(before * panels * kernel->nr) * kernel->pack_bytes;
  float *sums = (float *)(void *)(own + p->thread_sum);
  bool last = end == piece_count(run);
  _Alignas(64) float tile[BRIM_CPU_MAX_TILE];
  for (int64_t jn = 0; jn < panels; jn++, b += b_panel) {
    int64_t col = run->jc + jn * kernel->nr;
    int cols = (int)brim_cpu_min(kernel->nr, run->jc + run->n - col);
    const char *a = own;
    for (int64_t r = 0; r < count; r += kernel->mr, a += a_panel, sums += tile_size) {
      int n = (int)brim_cpu_min(kernel->mr, count - r);
      float *to = last ? tile : sums;
      kernel->tile(depth / kernel->kg, a, b, tile);
      if (first > 0) {
#pragma omp simd
        for (int64_t i = 0; i < tile_size; i++) to[i] = tile[i] + sums[i];
      } else if (!last) {
        memcpy(sums, tile, (size_t)tile_size * sizeof *tile);
      }
      if (last) write_tile(run, tile, rows + r, n, col, cols);
    }
  }
}

static void zero_rows(const conv_run *run, const brim_cpu_conv_row *rows, int64_t count) {
  size_t size = brim_cpu_size(run->p->v.type);
  for (int64_t i = 0; i < count; i++) {
    memset((char *)run->args->c + (size_t)(rows[i].dst + run->jc) * size, 0, (size_t)run->n * size);
  }
}

static void run_rows(void *arg, int rank, int size) {
  const conv_run *run = arg;
  const brim_cpu_conv_plan *p = run->p;
  const brim_cpu_kernel *kernel = p->kernel;
  char *own = (char *)run->args->workspace + p->thread_offset + (size_t)rank * p->thread_bytes;
  brim_cpu_conv_row *rows = (brim_cpu_conv_row *)(void *)(own + p->thread_rows);
  int64_t pieces = piece_count(run), lo, hi;
  brim_cpu_split(p->v.n * run->pass->rows_h * run->pass->rows_w, kernel->mr, rank, size, &lo, &hi);
  for (int64_t r = lo; r < hi; r += kernel->mc) {
    int64_t count = brim_cpu_min(kernel->mc, hi - r);
    brim_cpu_conv_rows(p, run->pass, run->args->a, r, count, rows);
    if (pieces == 0) zero_rows(run, rows, count);
    for (int64_t first = 0; first < pieces; first += p->pieces_per_block) {
      int64_t end = brim_cpu_min(first + p->pieces_per_block, pieces);
      pack_patches(run, rows, count, first, end, own);
      multiply(run, rows, count, first, end, own);
    }
  }
}

//---------------------------------- provider ----------------------------------

static void own_release(void *state) {
  brim_cpu_conv_plan *p = state;
  brim_cpu_host()->free(p->taps);
  brim_cpu_host()->free(p->passes);
  brim_cpu_host()->free(p);
}

static brim_status own_prepare(const brim_cpu_machine *machine, const brim_cpu_conv *conv,
                               void **state, size_t *workspace_bytes) {
  const brim_host_api *host = brim_cpu_host();
  brim_cpu_conv_plan *p = host->alloc(sizeof *p, 0);
  if (!p) return brim_cpu_fail(BRIM_ENOMEM, "cpu: no memory for the plan of a convolution");
  *p = (brim_cpu_conv_plan){.v = *conv, .kernel = brim_cpu_kernel_for(machine, conv->type)};
  p->taps = host->alloc((size_t)(conv->r * conv->s) * sizeof *p->taps, 0);
  p->passes = host->alloc((size_t)(conv->stride * conv->stride) * sizeof *p->passes, 0);
  if (!p->taps || !p->passes) {
    own_release(p);
    return brim_cpu_fail(BRIM_ENOMEM, "cpu: no memory for the plan of a convolution");
  }
  if (conv->op == BRIM_OP_CONV_BWD_WEIGHT) {
    plan_forward(p);
    *workspace_bytes = brim_cpu_conv_weight_plan(p);
  } else {
    *workspace_bytes = plan_gather(p);
  }
  *state = p;
  return BRIM_OK;
}

static brim_status own_run(const void *state, const brim_cpu_gemm_args *args) {
  const brim_cpu_conv_plan *p = state;
  const brim_cpu_conv *v = &p->v;
  memset((char *)args->workspace + p->zero_offset, 0, p->b_offset - p->zero_offset);
  if (v->op == BRIM_OP_CONV_BWD_WEIGHT) {
    brim_cpu_conv_weight_run(p, args);
    return BRIM_OK;
  }
  conv_run run = {.p = p, .args = args};
  for (int64_t i = 0; i < p->pass_count; i++) {
    run.pass = &p->passes[i];
    for (run.jc = 0; run.jc < p->dst_c; run.jc += p->nb) {
      run.n = brim_cpu_min(p->nb, p->dst_c - run.jc);
      brim_cpu_team_run(v->threads, pack_weights, &run);
      brim_cpu_team_run(v->threads, run_rows, &run);
    }
  }
  return BRIM_OK;
}

const brim_cpu_conv_table brim_cpu_conv_own = {
    .prepare = own_prepare, .run = own_run, .release = own_release};

static brim_status portable_prepare(const brim_cpu_machine *machine, const brim_cpu_conv *conv,
                                    void **state, size_t *workspace_bytes) {
  brim_cpu_machine plain = brim_cpu_machine_plain(machine);
  return own_prepare(&plain, conv, state, workspace_bytes);
}

const brim_cpu_conv_table brim_cpu_conv_portable = {
    .prepare = portable_prepare, .run = own_run, .release = own_release};
