// CONV and its two gradients. The ops read the shapes off the call and hand the work to the AMX
// kernels where they fit, else to the provider that BRIM_CPU_GEMM chose, or to our own if that one has
// nothing fast. Convolutions that are plain matrix products (1 x 1, stride 1, no padding) run as
// LINEAR, unless the chosen table computes them too (`pointwise`).
//
// Our own convolutions are matrix products whose left operand is never stored. Its panels are packed
// straight from the NHWC image, tap by tap (brim_cpu_kernel.gather); padding is a row of zeros. CONV
// and CONV_BWD_DATA: rows are pixels, all weights are packed first, then each thread works through its
// own rows. CONV_BWD_WEIGHT: rows of the product are (tap, channel of x), columns are channels of dy,
// the sum runs over output pixels in blocks of kb. Each tile is therefore a piece of dw transposed; sums
// stay in the workspace tile by tile and are transposed into dw at the end. The sum over pixels is split
// only by kb: the same bits for any number of threads.
#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "backend/cpu/cpu_vec.h"

// A filter tap in a pass. The output pixel (i, j) of the pass reads the source pixel
// (i * src_step + off_h, j * src_step + off_w).
typedef struct brim_cpu_tap {
  int64_t off_h, off_w;
  int64_t index;  // r * S + s
} brim_cpu_tap;

// A set of output pixels with the same taps. CONV has one; CONV_BWD_DATA has one for each remainder
// of the pixel's position by the stride, so that no zeros between strides are multiplied.
typedef struct brim_cpu_conv_pass {
  int64_t rows_h, rows_w;    // output pixels of an image in this set
  int64_t first_h, first_w;  // the first of them
  int64_t tap_lo, tap_hi;
} brim_cpu_conv_pass;

typedef struct brim_cpu_conv_plan {
  brim_cpu_conv v;  // the convolution
  const brim_cpu_kernel *kernel;
  // Source and destination images of the gather: x and y, or dy and dx.
  int64_t src_h, src_w, src_c, dst_h, dst_w, dst_c;
  int64_t src_step, dst_step;
  brim_cpu_conv_pass *passes;
  brim_cpu_tap *taps;
  int64_t pass_count;
  // The depth is the dimension that the product sums over: taps times src_c. It is cut into pieces of
  // at most `piece` channels of one tap, each padded to a multiple of the kernel's kg.
  int64_t piece, pieces_per_tap, tap_depth, pieces_per_block;
  int64_t nb;                                // columns at a time
  int64_t kb;                                // CONV_BWD_WEIGHT: pixels at a time
  int grid_m, grid_n;                        // CONV_BWD_WEIGHT: threads over rows and columns
  size_t zero_offset, b_offset, sum_offset;  // zeros, packed B, sums (CONV_BWD_WEIGHT)
  size_t thread_offset, thread_bytes;  // part of thread i: at thread_offset + i * thread_bytes
  size_t thread_sum, thread_rows;      // in a part: packed A at 0, then sums and rows
} brim_cpu_conv_plan;

// The place of a row (pixel) of a block in the image.
typedef struct brim_cpu_conv_row {
  const char *image;  // its source image
  int64_t h, w;       // source coordinates before a tap's offset
  int64_t dst;        // element of the destination
} brim_cpu_conv_row;

// Source address of a row at a tap, or zeros.
static inline const void *brim_cpu_conv_place(const brim_cpu_conv_plan *plan,
                                              const brim_cpu_conv_row *row, const brim_cpu_tap *tap,
                                              const void *zeros) {
  int64_t h = row->h + tap->off_h, w = row->w + tap->off_w;
  bool inside = (uint64_t)h < (uint64_t)plan->src_h && (uint64_t)w < (uint64_t)plan->src_w;
  size_t pixel = (size_t)plan->src_c * brim_cpu_size(plan->v.type);
  return inside ? row->image + (size_t)(h * plan->src_w + w) * pixel : zeros;
}

// Fills `out` for `count` rows of the pass from row `first` on.
static void locate_rows(const brim_cpu_conv_plan *p, const brim_cpu_conv_pass *pass,
                        const void *source, int64_t first, int64_t count, brim_cpu_conv_row *out) {
  int64_t j = first % pass->rows_w, i = first / pass->rows_w % pass->rows_h;
  int64_t n = first / (pass->rows_w * pass->rows_h);
  size_t image = (size_t)(p->src_h * p->src_w * p->src_c) * brim_cpu_size(p->v.type);
  for (int64_t k = 0; k < count; k++) {
    int64_t dh = i * p->dst_step + pass->first_h, dw = j * p->dst_step + pass->first_w;
    out[k] = (brim_cpu_conv_row){.image = (const char *)source + (size_t)n * image,
                                 .h = i * p->src_step,
                                 .w = j * p->src_step,
                                 .dst = ((n * p->dst_h + dh) * p->dst_w + dw) * p->dst_c};
    if (++j < pass->rows_w) continue;
    j = 0;
    if (++i < pass->rows_h) continue;
    i = 0;
    n++;
  }
}

//---------------------------------- the weights' gradient ----------------------------------

// Most bytes of workspace if the device sets no cap.
enum { WEIGHT_WORKSPACE_BYTES = 96 << 20 };

static int64_t panels_per_tap(const brim_cpu_conv_plan *p) {
  return brim_cpu_ceil_div(p->v.c, p->kernel->mr);
}
static int64_t row_panels(const brim_cpu_conv_plan *p) {
  return p->v.r * p->v.s * panels_per_tap(p);
}

static size_t weight_plan_sizes(brim_cpu_conv_plan *p) {
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
    // Among equal splits prefer more parts of rows: patches are then packed only once.
    if (work <= best) best = work, p->grid_m = gm, p->grid_n = gn;
  }
}

// CONV_BWD_WEIGHT: the sizes of blocks, the threads' grid, and the workspace, whose bytes it returns.
static size_t plan_weight(brim_cpu_conv_plan *p) {
  const brim_cpu_conv *v = &p->v;
  const brim_cpu_kernel *kernel = p->kernel;
  p->src_h = v->h, p->src_w = v->w, p->src_c = v->c;
  p->dst_h = v->p, p->dst_w = v->q, p->dst_c = v->m;
  p->src_step = v->stride, p->dst_step = 1;
  int64_t pixels = v->n * v->p * v->q;
  p->kb = brim_cpu_ceil_div(pixels, brim_cpu_ceil_div(pixels, kernel->kc));
  p->kb = brim_cpu_round_up(p->kb, kernel->kg);
  p->nb = v->m;
  size_t cap = v->cap ? v->cap : WEIGHT_WORKSPACE_BYTES, bytes = weight_plan_sizes(p);
  while (bytes > cap && p->nb > 2 * kernel->nr) {
    p->nb = brim_cpu_round_up(p->nb / 2, kernel->nr);
    bytes = weight_plan_sizes(p);
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

// One thread's part of the round.
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

// Packs panels [lo, hi) of patches, with the pixels as depth.
static void weight_pack_patches(const weight_run *run, const weight_part *part, int64_t lo,
                                int64_t hi) {
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

static void weight_multiply(const weight_run *run, const weight_part *part) {
  const brim_cpu_conv_plan *p = run->p;
  const brim_cpu_kernel *kernel = p->kernel;
  int64_t depth = brim_cpu_round_up(run->k, kernel->kg), tile_size = kernel->mr * kernel->nr;
  size_t a_panel = (size_t)(depth * kernel->mr) * kernel->pack_bytes;
  size_t b_panel = (size_t)(depth * kernel->nr) * kernel->pack_bytes;
  const char *b = (const char *)run->args->workspace + p->b_offset;
  int64_t step = kernel->mc / kernel->mr;
  _Alignas(64) float tile[BRIM_CPU_MAX_TILE];
  locate_rows(p, &p->passes[0], run->args->b, run->k0, run->k,
              (brim_cpu_conv_row *)(void *)(part->own + p->thread_rows));
  for (int64_t mo = part->m_lo; mo < part->m_hi; mo += step) {
    int64_t m_end = brim_cpu_min(mo + step, part->m_hi);
    weight_pack_patches(run, part, mo, m_end);
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

// Writes sums (tap and channel, m) to dw(m, tap, channel).
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

// A team may be smaller than planned. A part's sums are complete after the last round.
static void multiply_body(void *arg, int rank, int size) {
  const weight_run *run = arg;
  const brim_cpu_conv_plan *p = run->p;
  const bool last = run->k0 + run->k == p->v.n * p->v.p * p->v.q;
  for (int i = rank; i < p->grid_m * p->grid_n; i += size) {
    weight_part part = part_of(run, i);
    weight_multiply(run, &part);
    if (last) write_part(run, &part);
  }
}

static void run_weight(const brim_cpu_conv_plan *p, const brim_cpu_gemm_args *args) {
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

//---------------------------------- CONV and CONV_BWD_DATA ----------------------------------

// GATHER_WORKSPACE_BYTES: most bytes of workspace if the device sets no cap.
enum { GATHER_WORKSPACE_BYTES = 64 << 20, MAX_MR = 16 };

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

// dx(h, w) gathers dy((h + pad - r) / stride, ...) for those r that divide exactly. With h = i * stride
// + first, the source row is i + (first + pad - r) / stride, so those r depend on `first` alone.
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

// Largest depth of a block of pieces.
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

// CONV and CONV_BWD_DATA: passes, pieces, and the workspace, whose bytes it returns.
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
  size_t cap = v->cap ? v->cap : GATHER_WORKSPACE_BYTES, bytes = plan_sizes(p);
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

// Depth in front of a piece.
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
        int64_t at = forward ? col * ld + c.tap->index * v->c + c.start
                             : c.start * ld + c.tap->index * v->c + col;
        kernel->pack(to, kernel->nr,
                     (const char *)run->args->b + (size_t)at * brim_cpu_size(v->type), ld, cols,
                     (int)c.length, forward);
        to += (size_t)(brim_cpu_round_up(c.length, kernel->kg) * kernel->nr) * kernel->pack_bytes;
      }
    }
  }
}

// Packs panels of patches for `count` rows and pieces [first, end).
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
  // Rows of one image line are equally far apart; the next line is farther.
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

// Multiplies one block of depth over a block of rows; between blocks of depth, sums are kept tile
// by tile.
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
    locate_rows(p, run->pass, run->args->a, r, count, rows);
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
    *workspace_bytes = plan_weight(p);
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
    run_weight(p, args);
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

//---------------------------------- the ops ----------------------------------

typedef struct conv_state {
  const brim_cpu_gemm_provider *provider;
  const brim_cpu_conv_table *table;
  bool product;  // `inner` belongs to the provider's products, not to the table
  void *inner;
} conv_state;

static brim_cpu_conv describe(const brim_cpu_device *device, const brim_op_call *call) {
  const brim_tensor *x = &call->in[0], *y = &call->out[0], *w = &call->in[1];
  if (call->op == BRIM_OP_CONV_BWD_DATA) x = &call->out[0], y = &call->in[0];
  if (call->op == BRIM_OP_CONV_BWD_WEIGHT) x = &call->in[1], y = &call->in[0], w = &call->out[0];
  return (brim_cpu_conv){.op = call->op,
                         .type = x->dtype,
                         .n = x->dim[0],
                         .h = x->dim[1],
                         .w = x->dim[2],
                         .c = x->dim[3],
                         .m = w->dim[0],
                         .r = w->dim[1],
                         .s = w->dim[2],
                         .p = y->dim[1],
                         .q = y->dim[2],
                         .stride = call->attr.stride,
                         .pad = call->attr.pad,
                         .accumulate = call->attr.accumulate,
                         .threads = device->threads,
                         .cap = device->workspace_cap,
                         .planning = call->planning};
}

// The convolution as a matrix product over pixels.
static brim_cpu_gemm as_product(const brim_cpu_conv *v) {
  int64_t pixels = v->n * v->h * v->w;
  brim_cpu_gemm g = {
      .type = v->type, .threads = v->threads, .cap = v->cap, .planning = v->planning};
  if (v->op == BRIM_OP_CONV) {
    g.op = BRIM_OP_LINEAR, g.m = pixels, g.n = v->m, g.k = v->c;
  } else if (v->op == BRIM_OP_CONV_BWD_DATA) {
    g.op = BRIM_OP_LINEAR_BWD_DATA, g.m = pixels, g.n = v->c, g.k = v->m;
  } else {
    g.op = BRIM_OP_LINEAR_BWD_WEIGHT, g.m = v->m, g.n = v->c, g.k = pixels;
    g.accumulate = v->accumulate;
  }
  return g;
}

// Our AMX kernels take bf16, channel counts divisible by 32, and batches whose blocks of 32 images hold
// brim_cpu_amx_least_images or more on average (docs/decisions/0016-own-amx-convolutions.md).
static bool amx_fits(const brim_cpu_device *device, const brim_cpu_conv *v) {
  return device->amx_kernels && v->type == BRIM_BF16 && v->c % 32 == 0 && v->m % 32 == 0 &&
         v->n >= brim_cpu_ceil_div(v->n, 32) * brim_cpu_amx_least_images;
}

static brim_status prepare_with(const brim_cpu_device *device, const brim_cpu_conv *v,
                                conv_state *state, size_t *bytes) {
  bool pointwise = v->r == 1 && v->s == 1 && v->stride == 1 && v->pad == 0;
  state->product = pointwise && !state->table->pointwise;
  if (!state->product) return state->table->prepare(&device->machine, v, &state->inner, bytes);
  brim_cpu_gemm g = as_product(v);
  return state->provider->prepare(&device->machine, &g, &state->inner, bytes);
}

static brim_status conv_op_prepare(void *impl, brim_op_call *call) {
  const brim_cpu_device *device = impl;
  brim_cpu_conv v = describe(device, call);
  const double products = (double)(v.n * v.p * v.q) * (double)(v.m * v.r * v.s * v.c);
  v.threads = brim_cpu_team_for(device->threads, products, BRIM_CPU_TEAM_PRODUCTS);
  conv_state *state = brim_cpu_host()->alloc(sizeof *state, 0);
  if (!state) return brim_cpu_fail(BRIM_ENOMEM, "cpu: no memory for the state of a convolution");
  bool chosen = device->provider->supports(&device->machine, v.type);
  *state = (conv_state){.provider = chosen ? device->provider : &brim_cpu_gemm_own};
  brim_status status = BRIM_EUNSUPPORTED;
  if (amx_fits(device, &v)) {
    state->table = &brim_cpu_conv_amx;
    status = prepare_with(device, &v, state, &call->workspace_bytes);
  }
  if (status == BRIM_EUNSUPPORTED) {
    state->table = state->provider->conv;
    status = prepare_with(device, &v, state, &call->workspace_bytes);
  }
  if (status == BRIM_EUNSUPPORTED && state->provider != &brim_cpu_gemm_own) {
    state->provider = &brim_cpu_gemm_own, state->table = state->provider->conv;
    status = prepare_with(device, &v, state, &call->workspace_bytes);
  }
  if (status != BRIM_OK) {
    brim_cpu_host()->free(state);
    return status;
  }
  call->state = state;
  return BRIM_OK;
}

static brim_status conv_op_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  const conv_state *state = call->state;
  brim_status status = brim_cpu_check_process(impl);
  if (status != BRIM_OK) return status;
  brim_cpu_gemm_args args = {.a = call->in[0].data,
                             .b = call->in[1].data,
                             .c = call->out[0].data,
                             .workspace = call->workspace};
  return state->product ? state->provider->run(state->inner, &args)
                        : state->table->run(state->inner, &args);
}

static void conv_op_release(void *impl, brim_op_call *call) {
  (void)impl;
  conv_state *state = call->state;
  if (!state) return;
  if (state->product) {
    state->provider->release(state->inner);
  } else {
    state->table->release(state->inner);
  }
  brim_cpu_host()->free(state);
  call->state = NULL;
}

//---------------------------------- rows ----------------------------------

static const brim_op_row rows[] = {
    {BRIM_OP_CONV, brim_cpu_validate, conv_op_prepare, conv_op_run, conv_op_release},
    {BRIM_OP_CONV_BWD_DATA, brim_cpu_validate, conv_op_prepare, conv_op_run, conv_op_release},
    {BRIM_OP_CONV_BWD_WEIGHT, brim_cpu_validate, conv_op_prepare, conv_op_run, conv_op_release},
};

const brim_op_family brim_cpu_conv_ops = {rows, sizeof rows / sizeof *rows};
