// brim's own matrix product: packs blocks of A and B into panels, multiplies panel by panel with a kernel
// of brim_cpu_kernel, finishes each tile while it is in L1 (bias, activation, its derivative, rounding to
// bf16). The sum over k is split only by the kernel's kc, so results do not depend on the number of
// threads. The kernels in plain C serve every machine: 4 x 16 floats, which any compiler puts into
// vectors; bf16 is widened to f32 while packing, so it works everywhere at the speed of f32.
#include <stdio.h>
#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "backend/cpu/cpu_vec.h"

//---------------------------------- portable kernels ----------------------------------

enum { MR = 4, NR = 16 };

static void pack_f32(void *dst, int width, const void *src, int64_t ld, int rows, int k,
                     bool k_contiguous) {
  float *to = dst;
  const float *from = src;
  int64_t row_step = k_contiguous ? ld : 1, k_step = k_contiguous ? 1 : ld;
  for (int i = 0; i < k; i++) {
    for (int r = 0; r < width; r++) {
      to[i * width + r] = r < rows ? from[r * row_step + i * k_step] : 0.0f;
    }
  }
}

static void pack_bf16(void *dst, int width, const void *src, int64_t ld, int rows, int k,
                      bool k_contiguous) {
  float *to = dst;
  const uint16_t *from = src;
  int64_t row_step = k_contiguous ? ld : 1, k_step = k_contiguous ? 1 : ld;
  for (int i = 0; i < k; i++) {
    for (int r = 0; r < width; r++) {
      to[i * width + r] = r < rows ? brim_cpu_from_bf16(from[r * row_step + i * k_step]) : 0.0f;
    }
  }
}

// Packs k floats as one row of a panel; NULL is a row of 0.
static void put_row(float *restrict to, int width, const float *restrict from, int k) {
  for (int i = 0; i < k; i++) to[i * width] = from ? from[i] : 0.0f;
}

static void gather_f32(void *dst, int width, const void *const *at, size_t offset, int rows, int k,
                       bool k_contiguous) {
  float *to = dst;
  for (int r = 0; k_contiguous && r < width; r++) {
    const char *from = r < rows ? (const char *)at[r] + offset : NULL;
    put_row(to + r, width, (const float *)(const void *)from, k);
  }
  for (int i = 0; !k_contiguous && i < k; i++, to += width) {
    memset(to, 0, (size_t)width * sizeof *to);
    memcpy(to, (const char *)at[i] + offset, (size_t)rows * sizeof *to);
  }
}

static void gather_bf16(void *dst, int width, const void *const *at, size_t offset, int rows, int k,
                        bool k_contiguous) {
  float *to = dst, wide[BRIM_CPU_BLOCK];
  for (int r = 0; k_contiguous && r < width; r++) {
    const char *from = r < rows ? (const char *)at[r] + offset : NULL;
    for (int i = 0; i < k; i += BRIM_CPU_BLOCK) {
      int n = k - i < BRIM_CPU_BLOCK ? k - i : BRIM_CPU_BLOCK;
      const float *row = from ? brim_cpu_read(from, BRIM_BF16, i, n, wide) : NULL;
      put_row(to + i * width + r, width, row, n);
    }
  }
  for (int i = 0; !k_contiguous && i < k; i++, to += width) {
    const uint16_t *from = (const uint16_t *)(const void *)((const char *)at[i] + offset);
    for (int r = 0; r < width; r++) to[r] = r < rows ? brim_cpu_from_bf16(from[r]) : 0.0f;
  }
}

BRIM_CPU_CLONES static void tile_f32(int64_t groups, const void *a, const void *b, float *tile) {
  const float *pa = a, *pb = b;
  float acc[MR][NR] = {{0}};
  for (int64_t i = 0; i < groups; i++, pa += MR, pb += NR) {
    for (int r = 0; r < MR; r++) {
      for (int c = 0; c < NR; c++) acc[r][c] += pa[r] * pb[c];
    }
  }
  memcpy(tile, acc, sizeof acc);
}

const brim_cpu_kernel brim_cpu_kernel_portable_f32 = {
    .name = "portable",
    .mr = MR,
    .nr = NR,
    .kg = 1,
    .kc = 384,
    .mc = 128,
    .pack_bytes = sizeof(float),
    .pack = pack_f32,
    .gather = gather_f32,
    .tile = tile_f32,
};

const brim_cpu_kernel brim_cpu_kernel_portable_bf16 = {
    .name = "portable, widened to f32",
    .mr = MR,
    .nr = NR,
    .kg = 1,
    .kc = 384,
    .mc = 128,
    .pack_bytes = sizeof(float),
    .pack = pack_bf16,
    .gather = gather_bf16,
    .tile = tile_f32,
};

//---------------------------------- the product ----------------------------------

// Most rows and columns packed at once. At 1024 x 1536 x 384 f32 that is 1.5 + 2.3 MB, inside L3.
enum { OWN_MAX_M = 1024, OWN_MAX_N = 1536 };

typedef struct own_state {
  brim_cpu_gemm g;
  const brim_cpu_kernel *kernel;
  int64_t mb, nb, kb;  // block sizes
  int grid_m, grid_n;  // threads over the rows and over the columns of a block
  size_t b_offset, partial_offset;
  bool partial;  // f32 sums between k-blocks are kept in the workspace, not in C
} own_state;

// One block of the product; all threads of the team share it.
typedef struct own_block {
  const own_state *s;
  const brim_cpu_gemm_args *args;
  char *a_pack, *b_pack;
  float *sum;  // running sums of the block (ic, jc), rows sum_ld apart
  int64_t sum_ld;
  int64_t ic, jc, pc, m, n, k;
  bool first, last;
} own_block;

// Length of equal parts of `size`: at most `most`, a multiple of `unit`.
static int64_t block_of(int64_t size, int64_t most, int64_t unit) {
  most = most / unit * unit;
  if (most < unit) most = unit;
  return brim_cpu_round_up(brim_cpu_ceil_div(size, brim_cpu_ceil_div(size, most)), unit);
}

//---------------------------------- plan ----------------------------------

static size_t plan_blocks(own_state *s, int64_t max_m, int64_t max_n) {
  const brim_cpu_kernel *kernel = s->kernel;
  s->mb = block_of(s->g.m, max_m, kernel->mr);
  s->nb = block_of(s->g.n, max_n, kernel->nr);
  s->kb = block_of(s->g.k, kernel->kc, kernel->kg);
  size_t a = brim_cpu_round64((size_t)(s->mb * s->kb) * kernel->pack_bytes);
  // Kernels read past the last panel: B follows A, and the sums or this spare line follow B.
  size_t b = brim_cpu_round64((size_t)(s->nb * s->kb) * kernel->pack_bytes) + BRIM_CPU_ALIGN;
  bool f32_out = s->g.type == BRIM_F32 || s->g.op == BRIM_OP_LINEAR_BWD_WEIGHT;
  s->partial = !f32_out && s->kb < s->g.k;
  s->b_offset = a;
  s->partial_offset = a + b;
  return a + b + (s->partial ? brim_cpu_round64((size_t)(s->mb * s->nb) * sizeof(float)) : 0);
}

// Chooses the grid of threads with the least work for the busiest thread.
static void plan_grid(own_state *s) {
  int64_t panels_m = brim_cpu_ceil_div(s->mb, s->kernel->mr),
          panels_n = brim_cpu_ceil_div(s->nb, s->kernel->nr);
  int64_t best = INT64_MAX;
  for (int gm = 1; gm <= s->g.threads; gm++) {
    int gn = s->g.threads / gm;
    int64_t work = brim_cpu_ceil_div(panels_m, gm) * brim_cpu_ceil_div(panels_n, gn);
    // Among equal splits prefer more parts of rows: B's panels are the larger stream.
    if (work <= best) best = work, s->grid_m = gm, s->grid_n = gn;
  }
}

static brim_status own_prepare(const brim_cpu_machine *machine, const brim_cpu_gemm *gemm,
                               void **state, size_t *workspace_bytes) {
  own_state *s = brim_cpu_host()->alloc(sizeof *s, 0);
  if (!s) return brim_cpu_fail(BRIM_ENOMEM, "cpu: no memory for the plan of a matrix product");
  *s = (own_state){.g = *gemm, .kernel = brim_cpu_kernel_for(machine, gemm->type)};
  int64_t max_m = OWN_MAX_M, max_n = OWN_MAX_N;
  size_t bytes = plan_blocks(s, max_m, max_n);
  while (gemm->cap && bytes > gemm->cap && max_n > 48) {
    max_m /= 2, max_n /= 2;
    bytes = plan_blocks(s, max_m, max_n);
  }
  plan_grid(s);
  *workspace_bytes = bytes;
  *state = s;
  return BRIM_OK;
}

//---------------------------------- finish a tile ----------------------------------

// Rows of a tile are 12 or 16 wide; for a known width compilers unroll the loop completely.
static inline void row_add(float *restrict to, const float *restrict from, int n) {
  if (n == 12) {
    for (int j = 0; j < 12; j++) to[j] += from[j];
  } else {
    for (int j = 0; j < n; j++) to[j] += from[j];
  }
}

static inline void row_copy(float *restrict to, const float *restrict from, int n) {
  if (n == 12) {
    memcpy(to, from, 12 * sizeof *to);
  } else {
    for (int j = 0; j < n; j++) to[j] = from[j];
  }
}

static inline void row_widen(float *restrict to, const void *from, brim_dtype type, int64_t at,
                             int n) {
  if (type == BRIM_F32) {
    row_copy(to, (const float *)from + at, n);
    return;
  }
  const uint16_t *h = (const uint16_t *)from + at;
  if (n == 12) {
    for (int j = 0; j < 12; j++) to[j] = brim_cpu_from_bf16(h[j]);
  } else {
    for (int j = 0; j < n; j++) to[j] = brim_cpu_from_bf16(h[j]);
  }
}

static inline void row_narrow(uint16_t *restrict to, const float *restrict from, int n) {
  if (n == 12) {
    for (int j = 0; j < 12; j++) to[j] = brim_cpu_to_bf16(from[j]);
  } else {
    for (int j = 0; j < n; j++) to[j] = brim_cpu_to_bf16(from[j]);
  }
}

// Applies bias and activation, or the activation's derivative, to a whole tile. `at` is the index of the
// tile's first element in C. Values beyond rows and cols are computed too and never stored.
static void apply_epilogue(const own_block *b, float *tile, int64_t at, int rows, int cols) {
  const brim_cpu_gemm *g = &b->s->g;
  int mr = b->s->kernel->mr, nr = b->s->kernel->nr;
  if (g->bias) {
    float bias[BRIM_CPU_MAX_TILE] = {0};
    row_widen(bias, b->args->bias, g->type, at % g->n, cols);
    for (int i = 0; i < mr; i++) row_add(tile + i * nr, bias, nr);
  }
  if (g->act == BRIM_ACT_NONE) return;
  if (g->op == BRIM_OP_LINEAR) {
    brim_cpu_act(g->act, tile, tile, mr * nr);
    return;
  }
  float s[BRIM_CPU_MAX_TILE];
  if (rows * cols < mr * nr) memset(s, 0, sizeof s);
  for (int i = 0; i < rows; i++) row_widen(s + i * nr, b->args->s, g->type, at + i * g->n, cols);
  brim_cpu_act_slope(g->act, tile, s, tile, mr * nr);
}

// Handles whole tiles that need only bias and relu, which are most tiles. Returns false for other tiles.
static bool finish_fast(const own_block *b, const float *tile, int64_t at, int rows, int cols) {
  const brim_cpu_gemm *g = &b->s->g;
  const brim_cpu_kernel *kernel = b->s->kernel;
  if (!kernel->finish || !b->first || !b->last || rows != kernel->mr || cols != kernel->nr ||
      (g->act != BRIM_ACT_NONE && g->act != BRIM_ACT_RELU)) {
    return false;
  }
  size_t size = g->type == BRIM_F32 ? 4 : 2;
  brim_cpu_finish how = {.ld = g->n, .c_f32 = g->type == BRIM_F32};
  if (g->op == BRIM_OP_LINEAR_BWD_WEIGHT) how.c_f32 = true;
  how.c = (char *)b->args->c + (size_t)at * (how.c_f32 ? 4 : size);
  if (g->bias) how.bias = (const char *)b->args->bias + (size_t)(at % g->n) * size;
  how.relu = g->op == BRIM_OP_LINEAR && g->act == BRIM_ACT_RELU;
  if (g->op == BRIM_OP_LINEAR_BWD_DATA && g->act == BRIM_ACT_RELU) {
    how.s = (const char *)b->args->s + (size_t)at * size;
  }
  kernel->finish(tile, &how);
  return true;
}

// Adds the sums so far. Then stores the result, or the sum if more of k follows.
static void finish_tile(const own_block *b, float *tile, int64_t i0, int64_t j0, int rows,
                        int cols) {
  const brim_cpu_gemm *g = &b->s->g;
  int nr = b->s->kernel->nr;
  float *sum = b->sum + i0 * b->sum_ld + j0;
  int64_t at = (b->ic + i0) * g->n + b->jc + j0;
  if (finish_fast(b, tile, at, rows, cols)) return;
  if (!b->first) {
    for (int i = 0; i < rows; i++) row_add(tile + i * nr, sum + i * b->sum_ld, cols);
  }
  if (!b->last) {
    for (int i = 0; i < rows; i++) row_copy(sum + i * b->sum_ld, tile + i * nr, cols);
    return;
  }
  apply_epilogue(b, tile, at, rows, cols);
  if (g->type == BRIM_F32 || g->op == BRIM_OP_LINEAR_BWD_WEIGHT) {
    float *c = (float *)b->args->c + at;
    for (int i = 0; i < rows; i++) row_copy(c + i * g->n, tile + i * nr, cols);
  } else {
    uint16_t *c = (uint16_t *)b->args->c + at;
    for (int i = 0; i < rows; i++) row_narrow(c + i * g->n, tile + i * nr, cols);
  }
}

//---------------------------------- blocks ----------------------------------

// Packs this thread's share of the panels of A or B. `length` rows of A, or columns of B, start at `start`;
// `k_contiguous` is as in brim_cpu_kernel.
static void pack_share(const own_block *b, bool is_a, int rank, int size) {
  const own_state *s = b->s;
  const brim_cpu_kernel *kernel = s->kernel;
  brim_op op = s->g.op;
  bool k_contiguous = is_a ? op != BRIM_OP_LINEAR_BWD_WEIGHT : op == BRIM_OP_LINEAR;
  int width = is_a ? kernel->mr : kernel->nr;
  int64_t start = is_a ? b->ic : b->jc, length = is_a ? b->m : b->n;
  int64_t ld = k_contiguous ? s->g.k : (is_a ? s->g.m : s->g.n);
  size_t element = s->g.type == BRIM_F32 ? 4 : 2;
  size_t panel = (size_t)(brim_cpu_round_up(b->k, kernel->kg) * width) * kernel->pack_bytes;
  const char *src = is_a ? b->args->a : b->args->b;
  char *dst = is_a ? b->a_pack : b->b_pack;
  int64_t lo, hi;
  brim_cpu_split(brim_cpu_ceil_div(length, width), 1, rank, size, &lo, &hi);
  for (int64_t p = lo; p < hi; p++) {
    int64_t r = start + p * width;
    int64_t at = k_contiguous ? r * ld + b->pc : b->pc * ld + r;
    kernel->pack(dst + (size_t)p * panel, width, src + (size_t)at * element, ld,
                 (int)brim_cpu_min(width, length - p * width), (int)b->k, k_contiguous);
  }
}

// Computes one part of the tiles. mc rows of A stay in L2 while B's panels pass by; each B panel stays in
// L1 while those rows pass by.
static void multiply_share(const own_block *b, int part) {
  const own_state *s = b->s;
  const brim_cpu_kernel *kernel = s->kernel;
  int mr = kernel->mr, nr = kernel->nr;
  int64_t groups = brim_cpu_ceil_div(b->k, kernel->kg);
  size_t a_panel = (size_t)(groups * kernel->kg * mr) * kernel->pack_bytes;
  size_t b_panel = (size_t)(groups * kernel->kg * nr) * kernel->pack_bytes;
  int64_t m_lo, m_hi, n_lo, n_hi;
  brim_cpu_split(brim_cpu_ceil_div(b->m, mr), 1, part % s->grid_m, s->grid_m, &m_lo, &m_hi);
  brim_cpu_split(brim_cpu_ceil_div(b->n, nr), 1, part / s->grid_m, s->grid_n, &n_lo, &n_hi);
  int64_t step = kernel->mc / mr;
  _Alignas(64) float tile[BRIM_CPU_MAX_TILE];
  for (int64_t mo = m_lo; mo < m_hi; mo += step) {
    int64_t m_end = brim_cpu_min(mo + step, m_hi);
    for (int64_t jn = n_lo; jn < n_hi; jn++) {
      for (int64_t im = mo; im < m_end; im++) {
        kernel->tile(groups, b->a_pack + (size_t)im * a_panel, b->b_pack + (size_t)jn * b_panel,
                     tile);
        finish_tile(b, tile, im * mr, jn * nr, (int)brim_cpu_min(mr, b->m - im * mr),
                    (int)brim_cpu_min(nr, b->n - jn * nr));
      }
    }
  }
}

static void pack_body(void *arg, int rank, int size) {
  const own_block *b = arg;
  pack_share(b, true, rank, size);
  // If one block holds all of k, B's panels serve every block of rows.
  if (b->ic == 0 || b->s->kb < b->s->g.k) pack_share(b, false, rank, size);
}

// A thread may take several parts: a team may be smaller than planned.
static void multiply_body(void *arg, int rank, int size) {
  const own_block *b = arg;
  for (int part = rank; part < b->s->grid_m * b->s->grid_n; part += size) multiply_share(b, part);
}

static brim_status own_run(const void *state, const brim_cpu_gemm_args *args) {
  const own_state *s = state;
  const brim_cpu_gemm *g = &s->g;
  char *workspace = args->workspace;
  own_block b = {.s = s, .args = args, .a_pack = workspace, .b_pack = workspace + s->b_offset};
  for (b.jc = 0; b.jc < g->n; b.jc += s->nb) {
    for (b.ic = 0; b.ic < g->m; b.ic += s->mb) {
      b.n = brim_cpu_min(s->nb, g->n - b.jc);
      b.m = brim_cpu_min(s->mb, g->m - b.ic);
      b.sum = s->partial ? (float *)(void *)(workspace + s->partial_offset)
                         : (float *)args->c + b.ic * g->n + b.jc;
      b.sum_ld = s->partial ? s->nb : g->n;
      for (b.pc = 0; b.pc < g->k; b.pc += s->kb) {
        b.k = brim_cpu_min(s->kb, g->k - b.pc);
        b.first = b.pc == 0 && !g->accumulate;
        b.last = b.pc + b.k == g->k;
        brim_cpu_team_run(g->threads, pack_body, &b);
        brim_cpu_team_run(g->threads, multiply_body, &b);
      }
    }
  }
  return BRIM_OK;
}

static void own_release(void *state) { brim_cpu_host()->free(state); }

static bool own_available(const brim_cpu_machine *machine, char *text, size_t text_size) {
  const char *f32 = brim_cpu_kernel_for(machine, BRIM_F32)->name;
  const char *bf16 = brim_cpu_kernel_for(machine, BRIM_BF16)->name;
  snprintf(text, text_size, "brim kernels (f32 %s, bf16 %s)", f32, bf16);
  return true;
}

static bool own_supports(const brim_cpu_machine *machine, brim_dtype type) {
  (void)machine;
  return type == BRIM_F32 || type == BRIM_BF16;
}

static bool own_fast(const brim_cpu_machine *machine, brim_dtype type) {
  return type == BRIM_F32 ||
         (type == BRIM_BF16 && brim_cpu_kernel_for(machine, type) == &brim_cpu_kernel_neon_bf16);
}

const brim_cpu_gemm_provider brim_cpu_gemm_own = {
    .name = "own",
    .available = own_available,
    .supports = own_supports,
    .fast = own_fast,
    .prepare = own_prepare,
    .run = own_run,
    .release = own_release,
    .conv = &brim_cpu_conv_own,
};

//---------------------------------- plain C, by name ----------------------------------

static brim_status portable_prepare(const brim_cpu_machine *machine, const brim_cpu_gemm *gemm,
                                    void **state, size_t *workspace_bytes) {
  brim_cpu_machine plain = brim_cpu_machine_plain(machine);
  return own_prepare(&plain, gemm, state, workspace_bytes);
}

static bool portable_available(const brim_cpu_machine *machine, char *text, size_t text_size) {
  brim_cpu_machine plain = brim_cpu_machine_plain(machine);
  return own_available(&plain, text, text_size);
}

static bool portable_fast(const brim_cpu_machine *machine, brim_dtype type) {
  (void)machine;
  return type == BRIM_F32;
}

const brim_cpu_gemm_provider brim_cpu_gemm_portable = {
    .name = "portable",
    .available = portable_available,
    .supports = own_supports,
    .fast = portable_fast,
    .prepare = portable_prepare,
    .run = own_run,
    .release = own_release,
    .conv = &brim_cpu_conv_portable,
};
