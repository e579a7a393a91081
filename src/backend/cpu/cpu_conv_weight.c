// CONV_BWD_WEIGHT of our own convolutions: rows of the product are (tap, channel of x), columns are
// channels of dy, the sum runs over output pixels in blocks of kb. So tiles are pieces of dw with
// its two sides exchanged; sums are kept tile by tile in the workspace and turned at the end. The
// sum over pixels is split only by kb: the same bits for any number of threads.
#include <string.h>

#include "backend/cpu/cpu_conv_own.h"
#include "backend/cpu/cpu_vec.h"

enum { SUM_LIMIT = 96 << 20 };

static int64_t panels_per_tap(const brim_cpu_conv_plan *p) {
  return brim_cpu_ceil_div(p->v.c, p->kernel->mr);
}
static int64_t row_panels(const brim_cpu_conv_plan *p) {
  return p->v.r * p->v.s * panels_per_tap(p);
}

static size_t plan_sizes(brim_cpu_conv_plan *p) {
  const brim_cpu_kernel *kernel = p->kernel;
  int64_t panels_n = brim_cpu_ceil_div(p->nb, kernel->nr);
  size_t zeros = brim_cpu_round64((size_t)p->src_c * brim_cpu_size(p->v.type) + BRIM_CPU_ALIGN);
  size_t b = (size_t)(panels_n * kernel->nr * p->kb) * kernel->pack_bytes;
  size_t sums = (size_t)(row_panels(p) * kernel->mr * panels_n * kernel->nr) * sizeof(float);
  size_t a = (size_t)(kernel->mc * p->kb) * kernel->pack_bytes;
  p->zero_offset = 0;
  p->b_offset = zeros;
  p->sum_offset = zeros + brim_cpu_round64(b) + BRIM_CPU_ALIGN;
  p->thread_offset = p->sum_offset + brim_cpu_round64(sums);
  p->thread_rows = brim_cpu_round64(a) + BRIM_CPU_ALIGN;
  p->thread_bytes = p->thread_rows + brim_cpu_round64((size_t)p->kb * sizeof(brim_cpu_conv_row)) +
                    brim_cpu_round64((size_t)p->kb * sizeof(void *));
  return p->thread_offset + p->thread_bytes * (size_t)p->v.threads;
}

static void plan_grid(brim_cpu_conv_plan *p) {
  int64_t panels_m = row_panels(p), panels_n = brim_cpu_ceil_div(p->nb, p->kernel->nr);
  int64_t best = INT64_MAX;
  for (int gm = 1; gm <= p->v.threads; gm++) {
    int gn = p->v.threads / gm;
    int64_t work = brim_cpu_ceil_div(panels_m, gm) * brim_cpu_ceil_div(panels_n, gn);
    // Of equals take more parts of rows: patches are then packed once only.
    if (work <= best) best = work, p->grid_m = gm, p->grid_n = gn;
  }
}

size_t brim_cpu_conv_weight_plan(brim_cpu_conv_plan *p) {
  const brim_cpu_conv *v = &p->v;
  const brim_cpu_kernel *kernel = p->kernel;
  p->src_h = v->h, p->src_w = v->w, p->src_c = v->c;
  p->dst_h = v->p, p->dst_w = v->q, p->dst_c = v->m;
  p->src_step = v->stride, p->dst_step = 1;
  int64_t pixels = v->n * v->p * v->q;
  p->kb = brim_cpu_ceil_div(pixels, brim_cpu_ceil_div(pixels, kernel->kc));
  p->kb = brim_cpu_round_up(p->kb, kernel->kg);
  p->nb = v->m;
  size_t cap = v->cap ? v->cap : SUM_LIMIT, bytes = plan_sizes(p);
  while (bytes > cap && p->nb > 2 * kernel->nr) {
    p->nb = brim_cpu_round_up(p->nb / 2, kernel->nr);
    bytes = plan_sizes(p);
  }
  plan_grid(p);
  return bytes;
}

//---------------------------------- run ----------------------------------

typedef struct weight_run {
  const brim_cpu_conv_plan *p;
  const brim_cpu_gemm_args *args;
  int64_t jc, n;  // columns of this round
  int64_t k0, k;  // pixels of this round
} weight_run;

// What one thread has of the round.
typedef struct weight_part {
  int64_t m_lo, m_hi, n_lo, n_hi;  // panels
  char *own;
} weight_part;

static void pack_dy(void *arg, int rank, int size) {
  const weight_run *run = arg;
  const brim_cpu_conv_plan *p = run->p;
  const brim_cpu_kernel *kernel = p->kernel;
  size_t panel = (size_t)(brim_cpu_round_up(run->k, kernel->kg) * kernel->nr) * kernel->pack_bytes;
  char *to = (char *)run->args->workspace + p->b_offset;
  int64_t lo, hi;
  brim_cpu_split(brim_cpu_ceil_div(run->n, kernel->nr), 1, rank, size, &lo, &hi);
  for (int64_t i = lo; i < hi; i++) {
    int64_t col = run->jc + i * kernel->nr;
    kernel->pack(
        to + (size_t)i * panel, kernel->nr,
        (const char *)run->args->a + (size_t)(run->k0 * p->v.m + col) * brim_cpu_size(p->v.type),
        p->v.m, (int)brim_cpu_min(kernel->nr, run->jc + run->n - col), (int)run->k, false);
  }
}

// Panels [lo, hi) of patches, the pixels being the depth.
static void pack_patches(const weight_run *run, const weight_part *part, int64_t lo, int64_t hi) {
  const brim_cpu_conv_plan *p = run->p;
  const brim_cpu_kernel *kernel = p->kernel;
  size_t size = brim_cpu_size(p->v.type);
  size_t panel = (size_t)(brim_cpu_round_up(run->k, kernel->kg) * kernel->mr) * kernel->pack_bytes;
  const void *zeros = (const char *)run->args->workspace + p->zero_offset;
  const brim_cpu_conv_row *rows =
      (const brim_cpu_conv_row *)(const void *)(part->own + p->thread_rows);
  const void **at = (const void **)(void *)(part->own + p->thread_rows +
                                            brim_cpu_round64((size_t)p->kb * sizeof *rows));
  int64_t per_tap = panels_per_tap(p), tap = -1;
  for (int64_t i = lo; i < hi; i++) {
    if (i / per_tap != tap) {
      tap = i / per_tap;
      for (int64_t k = 0; k < run->k; k++) {
        at[k] = brim_cpu_conv_place(p, &rows[k], &p->taps[tap], zeros);
      }
    }
    int64_t channel = i % per_tap * kernel->mr;
    kernel->gather(part->own + (size_t)(i - lo) * panel, kernel->mr, at, (size_t)channel * size,
                   (int)brim_cpu_min(kernel->mr, p->v.c - channel), (int)run->k, false);
  }
}

static float *sum_of(const weight_run *run, int64_t im, int64_t jn) {
  const brim_cpu_conv_plan *p = run->p;
  int64_t tile = p->kernel->mr * p->kernel->nr;
  return (float *)(void *)((char *)run->args->workspace + p->sum_offset) +
         (im * brim_cpu_ceil_div(p->nb, p->kernel->nr) + jn) * tile;
}

static void multiply(const weight_run *run, const weight_part *part) {
  const brim_cpu_conv_plan *p = run->p;
  const brim_cpu_kernel *kernel = p->kernel;
  int64_t depth = brim_cpu_round_up(run->k, kernel->kg), tile_size = kernel->mr * kernel->nr;
  size_t a_panel = (size_t)(depth * kernel->mr) * kernel->pack_bytes;
  size_t b_panel = (size_t)(depth * kernel->nr) * kernel->pack_bytes;
  const char *b = (const char *)run->args->workspace + p->b_offset;
  int64_t step = kernel->mc / kernel->mr;
  _Alignas(64) float tile[BRIM_CPU_MAX_TILE];
  brim_cpu_conv_rows(p, &p->passes[0], run->args->b, run->k0, run->k,
                     (brim_cpu_conv_row *)(void *)(part->own + p->thread_rows));
  for (int64_t mo = part->m_lo; mo < part->m_hi; mo += step) {
    int64_t m_end = brim_cpu_min(mo + step, part->m_hi);
    pack_patches(run, part, mo, m_end);
    for (int64_t jn = part->n_lo; jn < part->n_hi; jn++) {
      for (int64_t im = mo; im < m_end; im++) {
        kernel->tile(depth / kernel->kg, part->own + (size_t)(im - mo) * a_panel,
                     b + (size_t)jn * b_panel, tile);
        float *sum = sum_of(run, im, jn);
        if (run->k0 == 0) {
          memcpy(sum, tile, (size_t)tile_size * sizeof *tile);
        } else {
          for (int64_t i = 0; i < tile_size; i++) sum[i] += tile[i];
        }
      }
    }
  }
}

// Sums (tap and channel, m) into dw(m, tap, channel).
static void write_part(const weight_run *run, const weight_part *part) {
  const brim_cpu_conv_plan *p = run->p;
  const brim_cpu_kernel *kernel = p->kernel;
  int64_t per_tap = panels_per_tap(p), ld = p->v.r * p->v.s * p->v.c;
  for (int64_t im = part->m_lo; im < part->m_hi; im++) {
    int64_t channel = im % per_tap * kernel->mr;
    int64_t rows = brim_cpu_min(kernel->mr, p->v.c - channel);
    for (int64_t jn = part->n_lo; jn < part->n_hi; jn++) {
      const float *sum = sum_of(run, im, jn);
      int64_t cols = brim_cpu_min(kernel->nr, run->n - jn * kernel->nr);
      for (int64_t j = 0; j < cols; j++) {
        int64_t m = run->jc + jn * kernel->nr + j;
        float *dw = (float *)run->args->c + m * ld + im / per_tap * p->v.c + channel;
        for (int64_t i = 0; i < rows; i++) {
          float s = sum[i * kernel->nr + j];
          dw[i] = p->v.accumulate ? dw[i] + s : s;
        }
      }
    }
  }
}

static weight_part part_of(const weight_run *run, int part) {
  const brim_cpu_conv_plan *p = run->p;
  weight_part out = {.own = (char *)run->args->workspace + p->thread_offset +
                            (size_t)part * p->thread_bytes};
  brim_cpu_split(row_panels(p), 1, part % p->grid_m, p->grid_m, &out.m_lo, &out.m_hi);
  brim_cpu_split(brim_cpu_ceil_div(run->n, p->kernel->nr), 1, part / p->grid_m, p->grid_n,
                 &out.n_lo, &out.n_hi);
  return out;
}

// A team may be smaller than planned. A part's sums are whole after the last round.
static void multiply_body(void *arg, int rank, int size) {
  const weight_run *run = arg;
  const brim_cpu_conv_plan *p = run->p;
  const bool last = run->k0 + run->k == p->v.n * p->v.p * p->v.q;
  for (int i = rank; i < p->grid_m * p->grid_n; i += size) {
    weight_part part = part_of(run, i);
    multiply(run, &part);
    if (last) write_part(run, &part);
  }
}

void brim_cpu_conv_weight_run(const brim_cpu_conv_plan *p, const brim_cpu_gemm_args *args) {
  const brim_cpu_conv *v = &p->v;
  const int64_t pixels = v->n * v->p * v->q;
  weight_run run = {.p = p, .args = args};
  for (run.jc = 0; run.jc < v->m; run.jc += p->nb) {
    run.n = brim_cpu_min(p->nb, v->m - run.jc);
    for (run.k0 = 0; run.k0 < pixels; run.k0 += p->kb) {
      run.k = brim_cpu_min(p->kb, pixels - run.k0);
      brim_cpu_team_run(v->threads, pack_dy, &run);
      brim_cpu_team_run(v->threads, multiply_body, &run);
    }
  }
}
