// Convolutions on AMX tiles, for bf16 with channels in multiples of 32. The rows of a product are 32 images
// at one pixel (docs/decisions/0016-own-amx-convolutions.md). Sums are always made in the same order, so the
// bits do not depend on the number of threads.
//
// CONV and CONV_BWD_DATA: an image's pixel is packed once and serves all taps that read it. Taps beyond
// the border are left out instead of multiplied by zeros, and no row of a tile is empty however small the
// image is. Each thread packs a band of pixel rows into its L2 and multiplies it with panels of 32 output
// channels.
//
// CONV_BWD_WEIGHT: for each tap dw(m, c) is a sum over pixels and images, and the depth of a product is 32
// images at one pixel. So dy and x are packed once (dy transposed, x in pairs of images) and each tap only
// shifts one against the other. The team packs a band of pixel rows, then each thread takes its share of dw
// over the band. Between bands the sums are kept in dw.
#include <string.h>

#include "backend/cpu/cpu_amx.h"
#include "backend/cpu/cpu_vec.h"

//---------------------------------- the weights' gradient ----------------------------------

// Packed bytes of dy and x at a time: 2.25 MiB, of which a core reads a part into its L2 of 2 MiB.
enum { WEIGHT_BAND_BYTES = 9 << 18, MAX_STEPS = 64 };

typedef struct weight_plan {
  brim_cpu_conv v;  // must be first: run_conv reads its op to tell the plans apart
  int64_t blocks;   // blocks of 32 images
  // Size of a band: all rows of several blocks, or some rows of one block.
  int64_t band_blocks, band_rows;
  int64_t src_rows;  // most rows of x in a band
  size_t x_offset;
} weight_plan;

//---------------------------------- plan ----------------------------------

// Rows of x, as [first, end), that the taps read for rows [lo, hi) of dy.
static void weight_source_rows(const brim_cpu_conv *v, int64_t lo, int64_t hi, int64_t *first,
                               int64_t *end) {
  *first = lo * v->stride - v->pad;
  *end = (hi - 1) * v->stride - v->pad + v->r;
  if (*first < 0) *first = 0;
  if (*end > v->h) *end = v->h;
  if (*first > *end) *first = *end;
}

static size_t plan_bytes(weight_plan *p) {
  const brim_cpu_conv *v = &p->v;
  p->src_rows = 0;
  for (int64_t lo = 0; lo < v->p; lo += p->band_rows) {
    int64_t first, end;
    weight_source_rows(v, lo, brim_cpu_min(lo + p->band_rows, v->p), &first, &end);
    if (end - first > p->src_rows) p->src_rows = end - first;
  }
  size_t images = (size_t)(p->band_blocks * BRIM_AMX_SIDE) * 2;
  p->x_offset = images * (size_t)(p->band_rows * v->q * v->m);
  return p->x_offset + images * (size_t)(p->src_rows * v->w * v->c);
}

// Plans CONV_BWD_WEIGHT.
static brim_status prepare_weight(const brim_cpu_conv *v, void **state, size_t *workspace_bytes) {
  weight_plan *p = brim_cpu_host()->alloc(sizeof *p, 0);
  if (!p) return brim_cpu_fail(BRIM_ENOMEM, "cpu: no memory for the plan of a convolution");
  *p = (weight_plan){.v = *v, .blocks = brim_cpu_ceil_div(v->n, BRIM_AMX_SIDE)};
  size_t limit = v->cap && v->cap < WEIGHT_BAND_BYTES ? v->cap : WEIGHT_BAND_BYTES;
  p->band_blocks = 1, p->band_rows = v->p;
  size_t bytes = plan_bytes(p);
  // Counts bands, not rows, so that the loop ends: v->p bands have one row each.
  for (int64_t bands = 2; bytes > limit && p->band_rows > 1; bands++) {
    p->band_rows = brim_cpu_ceil_div(v->p, bands);
    bytes = plan_bytes(p);
  }
  if (p->band_rows == v->p && bytes < limit) {
    p->band_blocks = brim_cpu_min(p->blocks, (int64_t)(limit / bytes));
    bytes = plan_bytes(p);
  }
  *workspace_bytes = bytes;
  *state = p;
  return BRIM_OK;
}

//---------------------------------- pack ----------------------------------

typedef struct weight_run {
  const weight_plan *p;
  const brim_cpu_gemm_args *args;
  // The band: first block and number of blocks of images, rows [lo, hi) of dy, rows [first, end) of x.
  int64_t block, blocks, lo, hi, first, end;
} weight_run;

// Packed dy and x are (group of 32 channels, block, row, column). These functions give the bytes of a group.
static size_t dy_group(const weight_run *run) {
  return (size_t)(run->blocks * (run->hi - run->lo) * run->p->v.q) * BRIM_AMX_BLOCK;
}
static size_t x_group(const weight_run *run) {
  return (size_t)(run->blocks * (run->end - run->first) * run->p->v.w) * BRIM_AMX_BLOCK;
}

static bool read_by_tap(const brim_cpu_conv *v, int64_t at, int64_t taps) {
  return (at + v->pad) % v->stride < taps;
}

static void pack_dy(const weight_run *run, int64_t block, int64_t row) {
  const brim_cpu_conv *v = &run->p->v;
  int64_t image = (run->block + block) * BRIM_AMX_SIDE, rows = run->hi - run->lo;
  size_t pixel = (size_t)v->m * 2;
  brim_amx_pack pack = {
      .dst = (char *)run->args->workspace + (size_t)((block * rows + row) * v->q) * BRIM_AMX_BLOCK,
      .dst_pixel = BRIM_AMX_BLOCK,
      .dst_line = dy_group(run),
      .src = (const char *)run->args->a + (size_t)((image * v->p + run->lo + row) * v->q) * pixel,
      .src_row = (size_t)(v->p * v->q) * pixel,
      .src_pixel = pixel,
      .pixels = v->q,
      .lines = v->m / BRIM_AMX_SIDE,
      .rows = (int)brim_cpu_min(BRIM_AMX_SIDE, v->n - image)};
  brim_cpu_amx_pack(BRIM_AMX_A_K, &pack);
}

// Skips columns that no tap reads.
static void pack_x(const weight_run *run, int64_t block, int64_t row) {
  const brim_cpu_conv *v = &run->p->v;
  int64_t image = (run->block + block) * BRIM_AMX_SIDE, rows = run->end - run->first;
  size_t pixel = (size_t)v->c * 2;
  if (!read_by_tap(v, run->first + row, v->r)) return;
  brim_amx_pack pack = {.dst_pixel = BRIM_AMX_BLOCK,
                        .dst_line = x_group(run),
                        .src_row = (size_t)(v->h * v->w) * pixel,
                        .src_pixel = pixel,
                        .lines = v->c / BRIM_AMX_SIDE,
                        .rows = (int)brim_cpu_min(BRIM_AMX_SIDE, v->n - image)};
  for (int64_t w = 0; w < v->w; w += pack.pixels) {
    for (pack.pixels = 0; w + pack.pixels < v->w && read_by_tap(v, w + pack.pixels, v->s);) {
      pack.pixels++;
    }
    if (pack.pixels == 0) {
      pack.pixels = 1;
      continue;
    }
    pack.dst = (char *)run->args->workspace + run->p->x_offset +
               (size_t)((block * rows + row) * v->w + w) * BRIM_AMX_BLOCK;
    pack.src =
        (const char *)run->args->b + (size_t)((image * v->h + run->first + row) * v->w + w) * pixel;
    brim_cpu_amx_pack(BRIM_AMX_B_K, &pack);
  }
}

static void pack_band(void *arg, int rank, int size) {
  const weight_run *run = arg;
  int64_t lo, hi, rows = run->hi - run->lo;
  brim_cpu_split(run->blocks * rows, 1, rank, size, &lo, &hi);
  for (int64_t i = lo; i < hi; i++) pack_dy(run, i / rows, i % rows);
  rows = run->end - run->first;
  brim_cpu_split(run->blocks * rows, 1, rank, size, &lo, &hi);
  for (int64_t i = lo; i < hi; i++) pack_x(run, i / rows, i % rows);
}

//---------------------------------- multiply ----------------------------------

// Limits [*lo, *hi), positions of dy, to those whose position of x at this tap is within [0, limit).
static void valid_range(const brim_cpu_conv *v, int64_t tap, int64_t limit, int64_t *lo,
                        int64_t *hi) {
  int64_t shift = tap - v->pad;  // position in x = position in dy * stride + shift
  int64_t first = shift < 0 ? brim_cpu_ceil_div(-shift, v->stride) : 0;
  int64_t end = limit > shift ? brim_cpu_ceil_div(limit - shift, v->stride) : 0;
  if (first > *lo) *lo = first;
  if (end < *hi) *hi = end;
  if (*lo > *hi) *lo = *hi;
}

// Computes 32 filters by 32 channels of dw at one tap, over the band.
static void multiply_square(const weight_run *run, int64_t m, int64_t c, int64_t tap) {
  const weight_plan *p = run->p;
  const brim_cpu_conv *v = &p->v;
  int64_t r = tap / v->s, s = tap % v->s, lo = run->lo, hi = run->hi, left = 0, right = v->q;
  valid_range(v, r, v->h, &lo, &hi);
  valid_range(v, s, v->w, &left, &right);
  brim_amx_step steps[MAX_STEPS];
  int64_t taps = v->r * v->s, dy_rows = run->hi - run->lo, x_rows = run->end - run->first;
  brim_amx_sum sum = {
      .steps = steps,
      .groups = right - left,
      .b_next = v->stride * BRIM_AMX_BLOCK,
      .c = (float *)run->args->c + (m * BRIM_AMX_SIDE * taps + tap) * v->c + c * BRIM_AMX_SIDE,
      .c_row = taps * v->c * (int64_t)sizeof(float),
      .add = v->accumulate || run->block > 0 || run->lo > 0};
  const char *dy = (const char *)run->args->workspace + (size_t)m * dy_group(run);
  const char *x = (const char *)run->args->workspace + p->x_offset + (size_t)c * x_group(run);
  for (int64_t b = 0; b < run->blocks && left < right; b++) {
    for (int64_t i = lo; i < hi; i++) {
      int64_t h = i * v->stride + r - v->pad, w = left * v->stride + s - v->pad;
      steps[sum.count++] =
          (brim_amx_step){dy + (size_t)((b * dy_rows + i - run->lo) * v->q + left) * BRIM_AMX_BLOCK,
                          x + (size_t)((b * x_rows + h - run->first) * v->w + w) * BRIM_AMX_BLOCK};
      if (sum.count < MAX_STEPS) continue;
      brim_cpu_amx_sum(&sum);
      sum.count = 0, sum.add = true;
    }
  }
  // A first band without products must still set dw to 0.
  if (sum.count > 0 || !sum.add) brim_cpu_amx_sum(&sum);
}

static void multiply_band(const weight_run *run, int rank, int size) {
  const brim_cpu_conv *v = &run->p->v;
  int64_t taps = v->r * v->s, groups = v->c / BRIM_AMX_SIDE, lo, hi;
  brim_cpu_split(v->m / BRIM_AMX_SIDE * groups * taps, 1, rank, size, &lo, &hi);
  for (int64_t i = lo; i < hi; i++) {
    multiply_square(run, i / taps / groups, i / taps % groups, i % taps);
  }
}

static void multiply_body(void *arg, int rank, int size) {
  brim_cpu_amx_enter();
  multiply_band(arg, rank, size);
  brim_cpu_amx_leave();
}

static void run_weight(const void *state, const brim_cpu_gemm_args *args) {
  const weight_plan *p = state;
  weight_run run = {.p = p, .args = args};
  for (run.block = 0; run.block < p->blocks; run.block += p->band_blocks) {
    run.blocks = brim_cpu_min(p->band_blocks, p->blocks - run.block);
    for (run.lo = 0; run.lo < p->v.p; run.lo += p->band_rows) {
      run.hi = brim_cpu_min(run.lo + p->band_rows, p->v.p);
      weight_source_rows(&p->v, run.lo, run.hi, &run.first, &run.end);
      brim_cpu_team_run(p->v.threads, pack_band, &run);
      brim_cpu_team_run(p->v.threads, multiply_body, &run);
    }
  }
}

//---------------------------------- CONV and CONV_BWD_DATA ----------------------------------

// BAND_BYTES: a band's packed pixels leave room for a panel of weights in an L2 of 2 MiB. WEIGHT_LIMIT and
// LEAST_WEIGHTS bound the packed weights.
enum { BAND_BYTES = 1 << 20, WEIGHT_LIMIT = 64 << 20, LEAST_WEIGHTS = 128 << 10, MAX_TAPS = 49 };

typedef struct amx_plan {
  brim_cpu_conv v;
  // Sizes of x and y, or of dy and dx.
  int64_t src_h, src_w, src_c, dst_h, dst_w, dst_c;
  int64_t taps;
  int64_t nb;  // output channels whose weights are packed at a time
  // Units of work: blocks of images, bands of pixel rows, splits of the panels.
  int64_t blocks, bands, splits;
  size_t thread_offset, thread_bytes;
  // row_of: source row of (destination row, r); col_of: source column of (destination column, s); -1 = none.
  // col_used: 1 if any tap reads the source column.
  const int32_t *row_of, *col_of, *col_used;
  int32_t table[];
} amx_plan;

//---------------------------------- plan ----------------------------------

static int64_t source_of(const brim_cpu_conv *v, int64_t at, int64_t tap, int64_t limit) {
  int64_t from = v->op == BRIM_OP_CONV ? at * v->stride + tap - v->pad : at + v->pad - tap;
  if (v->op != BRIM_OP_CONV) {
    if (from < 0 || from % v->stride != 0) return -1;
    from /= v->stride;
  }
  return from >= 0 && from < limit ? from : -1;
}

static void fill_tables(amx_plan *p) {
  const brim_cpu_conv *v = &p->v;
  int32_t *row_of = p->table, *col_of = row_of + p->dst_h * v->r;
  int32_t *used = col_of + p->dst_w * v->s;
  for (int64_t i = 0; i < p->dst_h * v->r; i++) {
    row_of[i] = (int32_t)source_of(v, i / v->r, i % v->r, p->src_h);
  }
  memset(used, 0, (size_t)p->src_w * sizeof *used);
  for (int64_t i = 0; i < p->dst_w * v->s; i++) {
    col_of[i] = (int32_t)source_of(v, i / v->s, i % v->s, p->src_w);
    if (col_of[i] >= 0) used[col_of[i]] = 1;
  }
  p->row_of = row_of, p->col_of = col_of, p->col_used = used;
}

// Source rows that destination rows [lo, hi) read, as [first, end).
static void source_rows(const amx_plan *p, int64_t lo, int64_t hi, int64_t *first, int64_t *end) {
  *first = p->src_h, *end = 0;
  for (int64_t i = lo * p->v.r; i < hi * p->v.r; i++) {
    if (p->row_of[i] < 0) continue;
    if (p->row_of[i] < *first) *first = p->row_of[i];
    if (p->row_of[i] >= *end) *end = p->row_of[i] + 1;
  }
  if (*first > *end) *first = *end;
}

static void band_rows(const amx_plan *p, int64_t band, int64_t *lo, int64_t *hi) {
  *lo = p->dst_h * band / p->bands;
  *hi = p->dst_h * (band + 1) / p->bands;
}

static size_t pixel_bytes(const amx_plan *p) {
  return (size_t)(p->src_c / BRIM_AMX_SIDE) * BRIM_AMX_BLOCK;
}

static size_t most_band_bytes(const amx_plan *p) {
  int64_t most = 0;
  for (int64_t i = 0; i < p->bands; i++) {
    int64_t lo, hi, first, end;
    band_rows(p, i, &lo, &hi);
    source_rows(p, lo, hi, &first, &end);
    if (end - first > most) most = end - first;
  }
  return (size_t)(most * p->src_w) * pixel_bytes(p);
}

static size_t weight_bytes(const amx_plan *p) {
  return (size_t)(p->taps * p->nb) * (size_t)p->src_c * 2;
}

// Chooses bands small enough for L2 and enough units of work for the threads, if possible the same number
// for each thread. Sums do not depend on the choice.
static size_t plan_work(amx_plan *p) {
  const brim_cpu_conv *v = &p->v;
  size_t cap = v->cap ? v->cap : SIZE_MAX, band_limit = BAND_BYTES;
  if (cap / 2 / (size_t)v->threads < band_limit) band_limit = cap / 2 / (size_t)v->threads;
  p->blocks = brim_cpu_ceil_div(v->n, BRIM_AMX_SIDE);
  p->bands = 1;
  while (p->bands < p->dst_h &&
         (most_band_bytes(p) > band_limit || p->blocks * p->bands < v->threads)) {
    p->bands++;
  }
  for (int64_t i = p->bands; i <= p->dst_h && i < 2 * p->bands; i++) {
    if (p->blocks * i % v->threads != 0) continue;
    p->bands = i;
    break;
  }
  size_t weight_limit = cap < WEIGHT_LIMIT ? cap / 2 : WEIGHT_LIMIT;
  if (weight_limit < LEAST_WEIGHTS) weight_limit = LEAST_WEIGHTS;
  p->nb = p->dst_c;
  while (weight_bytes(p) > weight_limit && p->nb > BRIM_AMX_SIDE) {
    p->nb = brim_cpu_round_up(p->nb / 2, BRIM_AMX_SIDE);
  }
  p->splits = 1;
  while (p->blocks * p->bands * p->splits < v->threads && p->splits < p->nb / BRIM_AMX_SIDE) {
    p->splits++;
  }
  p->thread_offset = brim_cpu_round64(weight_bytes(p));
  p->thread_bytes = most_band_bytes(p);
  return p->thread_offset + p->thread_bytes * (size_t)v->threads;
}

static brim_status prepare(const brim_cpu_machine *machine, const brim_cpu_conv *v, void **state,
                           size_t *workspace_bytes) {
  (void)machine;
  bool forward = v->op == BRIM_OP_CONV;
  if (v->r * v->s > MAX_TAPS) {
    return brim_cpu_fail(BRIM_EUNSUPPORTED, "cpu: a filter of more than %d taps", (int)MAX_TAPS);
  }
  if (v->op == BRIM_OP_CONV_BWD_WEIGHT) {
    return prepare_weight(v, state, workspace_bytes);
  }
  int64_t src_w = forward ? v->w : v->q, dst_h = forward ? v->p : v->h;
  int64_t dst_w = forward ? v->q : v->w;
  size_t table = (size_t)(dst_h * v->r + dst_w * v->s + src_w) * sizeof(int32_t);
  amx_plan *p = brim_cpu_host()->alloc(sizeof *p + table, 0);
  if (!p) return brim_cpu_fail(BRIM_ENOMEM, "cpu: no memory for the plan of a convolution");
  *p = (amx_plan){.v = *v, .taps = v->r * v->s, .src_w = src_w, .dst_h = dst_h, .dst_w = dst_w};
  p->src_h = forward ? v->h : v->p;
  p->src_c = forward ? v->c : v->m, p->dst_c = forward ? v->m : v->c;
  fill_tables(p);
  *workspace_bytes = plan_work(p);
  *state = p;
  return BRIM_OK;
}

//---------------------------------- run ----------------------------------

typedef struct amx_run {
  const amx_plan *p;
  const brim_cpu_gemm_args *args;
  int64_t jc, n;  // first output channel of this round, and their number
} amx_run;

// A packed band of a block of images.
typedef struct amx_band {
  char *pixels;
  int64_t lo, hi;      // destination rows
  int64_t first, end;  // source rows
  int64_t image;       // first image
  int images;
} amx_band;

// Packs weights as (panel, tap, group of 32 source channels). Forward: filters are columns and their
// channels lie along k. Backward: filters lie along k.
static void pack_weights(void *arg, int rank, int size) {
  const amx_run *run = arg;
  const amx_plan *p = run->p;
  const brim_cpu_conv *v = &p->v;
  bool forward = v->op == BRIM_OP_CONV;
  size_t filter = (size_t)(p->taps * v->c) * 2, tap_bytes = pixel_bytes(p);
  int64_t panels = run->n / BRIM_AMX_SIDE, groups = p->src_c / BRIM_AMX_SIDE;
  int64_t parts = forward ? panels : groups, lo, hi;
  brim_cpu_split(parts * p->taps, 1, rank, size, &lo, &hi);
  for (int64_t i = lo; i < hi; i++) {
    size_t part = (size_t)(i / p->taps), tap = (size_t)(i % p->taps);
    brim_amx_pack pack = {.src_row = filter, .rows = BRIM_AMX_SIDE, .pixels = 1};
    pack.dst = (char *)run->args->workspace + tap * tap_bytes;
    pack.src = (const char *)run->args->b + tap * (size_t)v->c * 2;
    if (forward) {
      pack.dst += part * (size_t)p->taps * tap_bytes;
      pack.src += ((size_t)run->jc + part * BRIM_AMX_SIDE) * filter;
      pack.lines = groups, pack.dst_line = BRIM_AMX_BLOCK;
    } else {
      pack.dst += part * BRIM_AMX_BLOCK;
      pack.src += part * BRIM_AMX_SIDE * filter + (size_t)run->jc * 2;
      pack.lines = panels, pack.dst_line = (size_t)p->taps * tap_bytes;
    }
    brim_cpu_amx_pack(forward ? BRIM_AMX_B_COLS : BRIM_AMX_B_K, &pack);
  }
}

static bool row_used(const amx_plan *p, const amx_band *band, int64_t row) {
  for (int64_t i = band->lo * p->v.r; i < band->hi * p->v.r; i++) {
    if (p->row_of[i] == row) return true;
  }
  return false;
}

// Packs source rows as (row, column, group of 32 channels, image).
static void pack_pixels(const amx_run *run, const amx_band *band) {
  const amx_plan *p = run->p;
  size_t pixel = (size_t)p->src_c * 2, image = pixel * (size_t)(p->src_h * p->src_w);
  for (int64_t h = band->first; h < band->end; h++) {
    if (!row_used(p, band, h)) continue;
    for (int64_t w = 0, end; w < p->src_w; w = end + 1) {
      for (end = w; end < p->src_w && p->col_used[end]; end++) {
      }
      if (end == w) continue;
      brim_amx_pack pack = {
          .dst = band->pixels + (size_t)((h - band->first) * p->src_w + w) * pixel_bytes(p),
          .dst_pixel = pixel_bytes(p),
          .dst_line = BRIM_AMX_BLOCK,
          .src = (const char *)run->args->a + (size_t)band->image * image +
                 (size_t)(h * p->src_w + w) * pixel,
          .src_row = image,
          .src_pixel = pixel,
          .pixels = end - w,
          .lines = p->src_c / BRIM_AMX_SIDE,
          .rows = band->images};
      brim_cpu_amx_pack(BRIM_AMX_A_ROWS, &pack);
    }
  }
}

// Finds the taps that read the image for destination pixel (i, j), with this panel's weights.
static int64_t find_steps(const amx_plan *p, const amx_band *band, const char *weights, int64_t i,
                          int64_t j, brim_amx_step *steps) {
  const int32_t *row_of = p->row_of + i * p->v.r, *col_of = p->col_of + j * p->v.s;
  size_t pixel = pixel_bytes(p);
  int64_t count = 0;
  for (int64_t r = 0; r < p->v.r; r++) {
    if (row_of[r] < 0) continue;
    const char *row = band->pixels + (size_t)((row_of[r] - band->first) * p->src_w) * pixel;
    for (int64_t s = 0; s < p->v.s; s++) {
      if (col_of[s] < 0) continue;
      steps[count++] = (brim_amx_step){row + (size_t)col_of[s] * pixel,
                                       weights + (size_t)(r * p->v.s + s) * pixel};
    }
  }
  return count;
}

// Applies bias and activation, or the derivative of the activation, to the sums of 32 rows from `row` on
// and 32 columns from `column` on.
BRIM_CPU_CLONES static void finish(const amx_run *run, int64_t row, int rows, int64_t column,
                                   float *c) {
  const brim_cpu_conv *v = &run->p->v;
  float wide[BRIM_AMX_SIDE * BRIM_AMX_SIDE];
  if (v->bias) {
    const float *bias = brim_cpu_read(run->args->bias, BRIM_BF16, column, BRIM_AMX_SIDE, wide);
    for (int i = 0; i < BRIM_AMX_SIDE; i++) {
      for (int j = 0; j < BRIM_AMX_SIDE; j++) c[i * BRIM_AMX_SIDE + j] += bias[j];
    }
  }
  if (v->act == BRIM_ACT_NONE) return;
  if (v->op == BRIM_OP_CONV) {
    brim_cpu_act(v->act, c, c, rows * BRIM_AMX_SIDE);
    return;
  }
  for (int i = 0; i < rows; i++) {
    brim_cpu_read(run->args->s, BRIM_BF16, (row + i) * run->p->dst_c + column, BRIM_AMX_SIDE,
                  wide + i * BRIM_AMX_SIDE);
  }
  brim_cpu_act_slope(v->act, c, wide, c, rows * BRIM_AMX_SIDE);
}

// Multiplies a band with a panel of output channels. A sum is rounded and stored after the next sum is
// computed, so that the thread does not wait for tiles on their way through memory.
static void multiply_panel(const amx_run *run, const amx_band *band, int64_t panel) {
  const amx_plan *p = run->p;
  const char *weights =
      (const char *)run->args->workspace + (size_t)(panel * p->taps) * pixel_bytes(p);
  size_t image = (size_t)(p->dst_h * p->dst_w * p->dst_c) * 2;
  char *dst = (char *)run->args->c + (size_t)band->image * image +
              (size_t)(run->jc + panel * BRIM_AMX_SIDE) * 2;
  _Alignas(64) float c[2][BRIM_AMX_SIDE * BRIM_AMX_SIDE];
  brim_amx_step steps[MAX_TAPS];
  char *pending = NULL;
  int slot = 0;
  const bool finishes = p->v.bias || p->v.act != BRIM_ACT_NONE;
  for (int64_t i = band->lo; i < band->hi; i++) {
    for (int64_t j = 0; j < p->dst_w; j++, slot ^= 1) {
      brim_amx_sum sum = {.steps = steps,
                          .groups = p->src_c / BRIM_AMX_SIDE,
                          .b_next = BRIM_AMX_BLOCK,
                          .c = c[slot],
                          .c_row = BRIM_AMX_SIDE * sizeof(float)};
      sum.count = find_steps(p, band, weights, i, j, steps);
      brim_cpu_amx_sum(&sum);
      if (finishes) {
        finish(run, band->image, band->images, run->jc + panel * BRIM_AMX_SIDE, c[slot]);
      }
      if (pending) brim_cpu_amx_to_bf16(c[slot ^ 1], pending, image, band->images);
      pending = dst + (size_t)((i * p->dst_w + j) * p->dst_c) * 2;
    }
  }
  if (pending) brim_cpu_amx_to_bf16(c[slot ^ 1], pending, image, band->images);
}

static void run_units(const amx_run *run, int rank, int size) {
  const amx_plan *p = run->p;
  amx_band band = {.pixels = (char *)run->args->workspace + p->thread_offset +
                             (size_t)rank * p->thread_bytes};
  int64_t lo, hi, panels = run->n / BRIM_AMX_SIDE;
  brim_cpu_split(p->blocks * p->bands * p->splits, 1, rank, size, &lo, &hi);
  for (int64_t i = lo; i < hi; i++) {
    int64_t first, end, split = i % p->splits;
    band.image = i / p->splits / p->bands * BRIM_AMX_SIDE;
    band.images = (int)brim_cpu_min(BRIM_AMX_SIDE, p->v.n - band.image);
    band_rows(p, i / p->splits % p->bands, &band.lo, &band.hi);
    source_rows(p, band.lo, band.hi, &band.first, &band.end);
    brim_cpu_split(panels, 1, (int)split, (int)p->splits, &first, &end);
    if (first == end || band.lo == band.hi) continue;
    pack_pixels(run, &band);
    for (int64_t panel = first; panel < end; panel++) multiply_panel(run, &band, panel);
  }
}

static void units_body(void *arg, int rank, int size) {
  brim_cpu_amx_enter();
  run_units(arg, rank, size);
  brim_cpu_amx_leave();
}

// `state` is an amx_plan or a weight_plan; both begin with the brim_cpu_conv.
static brim_status run_conv(const void *state, const brim_cpu_gemm_args *args) {
  const brim_cpu_conv *v = state;
  if (v->op == BRIM_OP_CONV_BWD_WEIGHT) {
    run_weight(state, args);
    return BRIM_OK;
  }
  const amx_plan *p = state;
  amx_run run = {.p = p, .args = args};
  for (run.jc = 0; run.jc < p->dst_c; run.jc += p->nb) {
    run.n = brim_cpu_min(p->nb, p->dst_c - run.jc);
    brim_cpu_team_run(v->threads, pack_weights, &run);
    brim_cpu_team_run(v->threads, units_body, &run);
  }
  return BRIM_OK;
}

static void release(void *state) { brim_cpu_host()->free(state); }

const brim_cpu_conv_table brim_cpu_conv_amx = {
    .prepare = prepare, .run = run_conv, .release = release, .pointwise = true};
