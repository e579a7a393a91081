// CONV_BWD_WEIGHT on AMX tiles: for each tap dw(m, c) is a sum over pixels and images, and the depth
// of a product is 32 images at one pixel. So dy and x are packed once (dy turned over, x in pairs of
// images) and each tap only shifts one against the other. The team packs a band of pixel rows, then
// each thread takes its share of dw over it; sums wait in dw itself between bands. A sum always runs
// over images, then pixels, in the same order: the same bits for any number of threads.
#include <string.h>

#include "backend/cpu/cpu_amx.h"

// What is packed of dy and x at a time, in the L2 (2 MiB) of each core that reads it.
enum { BAND_BYTES = 9 << 18, MAX_STEPS = 64 };

typedef struct weight_plan {
  brim_cpu_conv v;                 // first: run tells the plans apart by it
  int64_t blocks;                  // of 32 images
  int64_t band_blocks, band_rows;  // of a band, at most; either all rows or one block
  int64_t src_rows;                // rows of x in a band, at most
  size_t x_offset;
} weight_plan;

//---------------------------------- plan ----------------------------------

// Rows of x that rows [lo, hi) of dy meet.
static void source_rows(const brim_cpu_conv *v, int64_t lo, int64_t hi, int64_t *first,
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
    source_rows(v, lo, brim_cpu_min(lo + p->band_rows, v->p), &first, &end);
    if (end - first > p->src_rows) p->src_rows = end - first;
  }
  size_t images = (size_t)(p->band_blocks * BRIM_AMX_SIDE) * 2;
  p->x_offset = images * (size_t)(p->band_rows * v->q * v->m);
  return p->x_offset + images * (size_t)(p->src_rows * v->w * v->c);
}

brim_status brim_cpu_conv_amx_weight_prepare(const brim_cpu_conv *v, void **state,
                                             size_t *workspace_bytes) {
  weight_plan *p = brim_cpu_host()->alloc(sizeof *p, 0);
  if (!p) return brim_cpu_fail(BRIM_ENOMEM, "cpu: no memory for the plan of a convolution");
  *p = (weight_plan){.v = *v, .blocks = brim_cpu_ceil_div(v->n, BRIM_AMX_SIDE)};
  size_t limit = v->cap && v->cap < BAND_BYTES ? v->cap : BAND_BYTES;
  p->band_blocks = 1, p->band_rows = v->p;
  size_t bytes = plan_bytes(p);
  // Counting bands, not rows, ends: as many bands as rows leave one row in each.
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
  // The band: blocks of images, rows of dy, rows of x.
  int64_t block, blocks, lo, hi, first, end;
} weight_run;

// Packed dy is (group of 32 channels, block, row, column), and so is packed x.
static size_t dy_group(const weight_run *run) {
  return (size_t)(run->blocks * (run->hi - run->lo) * run->p->v.q) * BRIM_AMX_BLOCK;
}
static size_t x_group(const weight_run *run) {
  return (size_t)(run->blocks * (run->end - run->first) * run->p->v.w) * BRIM_AMX_BLOCK;
}

static bool meets(const brim_cpu_conv *v, int64_t at, int64_t taps) {
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

// Columns that no tap meets stay as they are: nothing reads them.
static void pack_x(const weight_run *run, int64_t block, int64_t row) {
  const brim_cpu_conv *v = &run->p->v;
  int64_t image = (run->block + block) * BRIM_AMX_SIDE, rows = run->end - run->first;
  size_t pixel = (size_t)v->c * 2;
  if (!meets(v, run->first + row, v->r)) return;
  brim_amx_pack pack = {.dst_pixel = BRIM_AMX_BLOCK,
                        .dst_line = x_group(run),
                        .src_row = (size_t)(v->h * v->w) * pixel,
                        .src_pixel = pixel,
                        .lines = v->c / BRIM_AMX_SIDE,
                        .rows = (int)brim_cpu_min(BRIM_AMX_SIDE, v->n - image)};
  for (int64_t w = 0; w < v->w; w += pack.pixels) {
    for (pack.pixels = 0; w + pack.pixels < v->w && meets(v, w + pack.pixels, v->s);) {
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

// Where [*lo, *hi) of `count` places of dy meet x (`limit` places) at this tap.
static void valid_range(const brim_cpu_conv *v, int64_t tap, int64_t limit, int64_t *lo,
                        int64_t *hi) {
  int64_t off = tap - v->pad;  // source = place * stride + off
  int64_t first = off < 0 ? brim_cpu_ceil_div(-off, v->stride) : 0;
  int64_t end = limit > off ? brim_cpu_ceil_div(limit - off, v->stride) : 0;
  if (first > *lo) *lo = first;
  if (end < *hi) *hi = end;
  if (*lo > *hi) *lo = *hi;
}

// 32 filters by 32 channels of dw at one tap, over the band.
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
  // With nothing to add a first band still has to set dw to 0.
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

void brim_cpu_conv_amx_weight_run(const void *state, const brim_cpu_gemm_args *args) {
  const weight_plan *p = state;
  weight_run run = {.p = p, .args = args};
  for (run.block = 0; run.block < p->blocks; run.block += p->band_blocks) {
    run.blocks = brim_cpu_min(p->band_blocks, p->blocks - run.block);
    for (run.lo = 0; run.lo < p->v.p; run.lo += p->band_rows) {
      run.hi = brim_cpu_min(run.lo + p->band_rows, p->v.p);
      source_rows(&p->v, run.lo, run.hi, &run.first, &run.end);
      brim_cpu_team_run(p->v.threads, pack_band, &run);
      brim_cpu_team_run(p->v.threads, multiply_body, &run);
    }
  }
}
