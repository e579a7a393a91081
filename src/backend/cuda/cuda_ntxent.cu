// NT-Xent of N rows of D: 2 N^2 D FLOPs forward and 4 N^2 D backward in f32. No (N, N) matrix is in
// memory: tiles of 64 x 64 similarities live in registers and are computed again for the gradient.
// Memory traffic hardly counts (N D values, read N / 64 times from L2). SimCLR with 512 pairs of 128 makes
// 0.8 GFLOP, below 0.1 ms or 1 % of a step; 4096 pairs make 52 GFLOP, about 4 ms or 4 %.
//
// Blocks share the tiles of a row of tiles in fixed splits. Their results are merged in the order of the
// splits, so bits repeat. Rows that are padding take no part.
#include "backend/cuda/cuda_vec.cuh"

enum {
  TILE = 64,
  DEPTH = 16,  // columns of z loaded at a time
  PITCH = TILE + 4,
  SPAN = 128,  // columns of the gradient in a block
  THREADS = 256,
  WARPS = THREADS / 32
};

struct layout {
  int n, half, d;
  int rows, width;  // n and d rounded up to TILE and DEPTH
  int tiles, splits, split_tiles;
  float inverse_temperature;      // 1 / temperature
  float *unit;                    // (rows, width) rows of length 1; padding is 0
  float *length, *lse, *at_pair;  // (rows); at_pair: similarity with the other view
  float *top, *sum;               // (splits, rows): maximum, and sum of exp(s - maximum)
  int *best;                      // (splits, rows): first arg max
  float *losses;                  // (3, half)
  float *unit_gradient;           // (splits, rows, width): gradients of unit rows
};

// Lays the workspace out; returns its size.
static size_t make_layout(const brim_cuda *device, const brim_op_call *c, layout *l) {
  l->n = (int)c->in[0].dim[0];
  l->half = l->n / 2;
  l->d = (int)c->in[0].dim[1];
  l->tiles = (l->n + TILE - 1) / TILE;
  l->rows = l->tiles * TILE;
  l->width = (l->d + DEPTH - 1) / DEPTH * DEPTH;
  int want = (2 * device->sm_count + l->tiles - 1) / l->tiles;
  want = want < l->tiles ? want : l->tiles;
  l->split_tiles = (l->tiles + want - 1) / want;
  l->splits = (l->tiles + l->split_tiles - 1) / l->split_tiles;
  l->inverse_temperature = 1.0f / c->attr.temperature;
  bool gradient = brim_cuda_has(&c->out[1], 1, c->out_count);
  size_t rows = (size_t)l->rows, all = rows * (size_t)l->width, splits = (size_t)l->splits;
  float *at = (float *)c->workspace;
  size_t used = 0;
  float **const parts[] = {&l->unit, &l->unit_gradient, &l->length, &l->lse,           &l->at_pair,
                           &l->top,  &l->sum,           &l->losses, (float **)&l->best};
  const size_t sizes[] = {
      all,           gradient ? splits * all : 0, rows,         rows, rows, splits * rows,
      splits * rows, 3 * (size_t)l->half,         splits * rows};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    *parts[i] = at ? at + used : NULL;
    used += (sizes[i] + 15) / 16 * 16;  // every part starts on 64 bytes
  }
  return used * sizeof(float);
}

__device__ static inline int valid_samples(const double *state, const layout &l) {
  return (int)brim_state_count(state, BRIM_STATE_SAMPLES, l.half);
}

// True if row i exists and is no padding.
__device__ static inline bool row_valid(const layout &l, int i, int samples) {
  return i < l.n && (i < l.half ? i : i - l.half) < samples;
}

__device__ static inline int pair_of(const layout &l, int i) {
  return i < l.half ? i + l.half : i - l.half;
}

__device__ static inline float warp_sum(float v) { return brim_group_sum<32>(v); }

// A warp normalizes a row.
template <typename T>
__global__ static void normalise(const T *__restrict__ z, const double *state, layout l) {
  int row = (int)(blockIdx.x * WARPS + threadIdx.x / 32), lane = (int)threadIdx.x % 32;
  if (row >= l.rows) return;
  bool valid = row_valid(l, row, valid_samples(state, l));
  float squares = 0.0f;
  for (int i = lane; valid && i < l.d; i += 32) {
    float v = brim_load(z, (int64_t)row * l.d + i);
    squares = fmaf(v, v, squares);
  }
  float length = sqrtf(warp_sum(squares));
  if (length < 1e-12f) length = 1e-12f;  // a row of zeros stays 0; a NaN stays a NaN
  if (lane == 0) l.length[row] = length;
  for (int i = lane; i < l.width; i += 32) {
    float v = valid && i < l.d ? brim_load(z, (int64_t)row * l.d + i) / length : 0.0f;
    l.unit[(int64_t)row * l.width + i] = v;
  }
}

// s[r][c] = similarity of row 4 * ty + r of tile a with row 4 * tx + c of tile b, over the temperature.
// Exchanging the tiles gives the same bits.
__device__ static inline void similarities(const layout &l, int a, int b, float (*rows)[PITCH],
                                           float (*cols)[PITCH], float (&s)[4][4]) {
  int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
  int row = (int)threadIdx.x / 4, part = (int)threadIdx.x % 4 * 4;
  const float *from_a = l.unit + (int64_t)(a * TILE + row) * l.width + part;
  const float *from_b = l.unit + (int64_t)(b * TILE + row) * l.width + part;
#pragma unroll
  for (int r = 0; r < 4; r++) {
#pragma unroll
    for (int c = 0; c < 4; c++) s[r][c] = 0.0f;
  }
  for (int k0 = 0; k0 < l.width; k0 += DEPTH) {
    float4 va = *reinterpret_cast<const float4 *>(from_a + k0);
    float4 vb = *reinterpret_cast<const float4 *>(from_b + k0);
    __syncthreads();  // all threads have read the last columns
    rows[part][row] = va.x;
    rows[part + 1][row] = va.y;
    rows[part + 2][row] = va.z;
    rows[part + 3][row] = va.w;
    cols[part][row] = vb.x;
    cols[part + 1][row] = vb.y;
    cols[part + 2][row] = vb.z;
    cols[part + 3][row] = vb.w;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
      float4 x = *reinterpret_cast<const float4 *>(&rows[k][ty * 4]);
      float4 y = *reinterpret_cast<const float4 *>(&cols[k][tx * 4]);
      const float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
      for (int r = 0; r < 4; r++) {
#pragma unroll
        for (int c = 0; c < 4; c++) s[r][c] = fmaf(xs[r], ys[c], s[r][c]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < 4; r++) {
#pragma unroll
    for (int c = 0; c < 4; c++) s[r][c] *= l.inverse_temperature;
  }
}

// A softmax so far: maximum, sum of exp(s - maximum), first index of the maximum.
struct softmax {
  float top, sum;
  int best;
};

__device__ static inline softmax merge(const softmax &a, const softmax &b) {
  softmax m;
  m.top = fmaxf(a.top, b.top);
  bool none = m.top == -INFINITY;
  m.sum = none ? a.sum + b.sum : a.sum * expf(a.top - m.top) + b.sum * expf(b.top - m.top);
  bool first = a.top > b.top || (a.top == b.top && a.best < b.best);
  m.best = first ? a.best : b.best;
  return m;
}

// The grid is (tiles, splits).
__global__ static void __launch_bounds__(THREADS) forward_tiles(const double *state, layout l) {
  __shared__ float rows[DEPTH][PITCH], cols[DEPTH][PITCH];
  int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16, a = (int)blockIdx.x;
  int samples = valid_samples(state, l);
  softmax m[4];
#pragma unroll
  for (int r = 0; r < 4; r++) m[r] = {-INFINITY, 0.0f, INT32_MAX};
  int first = (int)blockIdx.y * l.split_tiles;
  int last = first + l.split_tiles < l.tiles ? first + l.split_tiles : l.tiles;
  for (int b = first; b < last; b++) {
    float s[4][4];
    similarities(l, a, b, rows, cols, s);
#pragma unroll
    for (int r = 0; r < 4; r++) {
      int i = a * TILE + ty * 4 + r;
      bool valid = row_valid(l, i, samples);
#pragma unroll
      for (int c = 0; c < 4; c++) {
        int j = b * TILE + tx * 4 + c;
        if (!valid || i == j || !row_valid(l, j, samples)) continue;
        if (j == pair_of(l, i)) l.at_pair[i] = s[r][c];
        if (s[r][c] > m[r].top) {
          m[r].sum = m[r].sum * expf(m[r].top - s[r][c]) + 1.0f;
          m[r].top = s[r][c];
          m[r].best = j;
        } else {
          m[r].sum += expf(s[r][c] - m[r].top);
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < 4; r++) {
    for (int d = 8; d > 0; d >>= 1) {
      softmax other;
      other.top = __shfl_xor_sync(0xffffffffu, m[r].top, d);
      other.sum = __shfl_xor_sync(0xffffffffu, m[r].sum, d);
      other.best = __shfl_xor_sync(0xffffffffu, m[r].best, d);
      m[r] = merge(m[r], other);
    }
    if (tx > 0) continue;
    int64_t at = (int64_t)blockIdx.y * l.rows + a * TILE + ty * 4 + r;
    l.top[at] = m[r].top;
    l.sum[at] = m[r].sum;
    l.best[at] = m[r].best;
  }
}

// Merges the splits of a row and returns its loss. Stores its lse.
__device__ static float row_loss(const layout &l, int row, int *best) {
  softmax m = {-INFINITY, 0.0f, INT32_MAX};
  for (int k = 0; k < l.splits; k++) {
    int64_t at = (int64_t)k * l.rows + row;
    softmax other = {l.top[at], l.sum[at], l.best[at]};
    m = merge(m, other);
  }
  float lse = m.top + logf(m.sum);
  l.lse[row] = lse;
  *best = m.best;
  return lse - l.at_pair[row];
}

// Each thread finishes one sample.
__global__ static void finish_losses(const double *state, layout l) {
  int i = (int)(blockIdx.x * THREADS + threadIdx.x);
  if (i >= l.half) return;
  bool valid = i < valid_samples(state, l);
  int best = -1, other = -1;
  float loss = 0.0f;
  if (valid) {
    loss = row_loss(l, i, &best);
    loss = 0.5f * (loss + row_loss(l, i + l.half, &other));
  }
  bool bad = !isfinite(loss);
  l.losses[i] = bad ? 0.0f : loss;
  l.losses[l.half + i] = valid && !bad && best == i + l.half ? 1.0f : 0.0f;
  l.losses[2 * l.half + i] = bad ? 1.0f : 0.0f;
}

// Writes the weights of a thread's similarities to weight[j][i]: p_ij + p_ji, less 2 if i and j are a pair.
__device__ static inline void put_weights(const layout &l, int a, int b, const float (&s)[4][4],
                                          int samples, float (*weight)[PITCH]) {
  int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
#pragma unroll
  for (int r = 0; r < 4; r++) {
    int i = a * TILE + ty * 4 + r;
    bool valid = row_valid(l, i, samples);
#pragma unroll
    for (int c = 0; c < 4; c++) {
      int j = b * TILE + tx * 4 + c;
      float w = 0.0f;
      if (valid && i != j && row_valid(l, j, samples)) {
        w = expf(s[r][c] - l.lse[i]) + expf(s[r][c] - l.lse[j]);
        if (j == pair_of(l, i)) w -= 2.0f;
      }
      weight[tx * 4 + c][ty * 4 + r] = w;
    }
  }
}

// unit_gradient[split][i] = sum over this split's rows j of weight[j][i] unit_j, for SPAN columns. The grid
// is (tiles, splits, spans).
__global__ static void __launch_bounds__(THREADS) backward_tiles(const double *state, layout l) {
  __shared__ float rows[DEPTH][PITCH], cols[DEPTH][PITCH];
  __shared__ float weight[TILE][PITCH];  // [j][i]
  __shared__ float unit[DEPTH][SPAN];
  int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16, a = (int)blockIdx.x;
  int samples = valid_samples(state, l), column = (int)blockIdx.z * SPAN;
  float sum[4][8];
#pragma unroll
  for (int r = 0; r < 4; r++) {
#pragma unroll
    for (int c = 0; c < 8; c++) sum[r][c] = 0.0f;
  }
  int first = (int)blockIdx.y * l.split_tiles;
  int last = first + l.split_tiles < l.tiles ? first + l.split_tiles : l.tiles;
  for (int b = first; b < last; b++) {
    float s[4][4];
    similarities(l, a, b, rows, cols, s);
    put_weights(l, a, b, s, samples, weight);
    for (int j0 = 0; j0 < TILE; j0 += DEPTH) {
      __syncthreads();  // the weights are written, and the last rows of `unit` have been read
#pragma unroll
      for (int k = 0; k < DEPTH * SPAN / 4 / THREADS; k++) {
        int e = (k * THREADS + (int)threadIdx.x) * 4, j = e / SPAN, at = e % SPAN;
        float4 v = make_float4(0, 0, 0, 0);
        if (column + at < l.width) {
          v = *reinterpret_cast<const float4 *>(l.unit + (int64_t)(b * TILE + j0 + j) * l.width +
                                                column + at);
        }
        *reinterpret_cast<float4 *>(&unit[j][at]) = v;
      }
      __syncthreads();
#pragma unroll
      for (int j = 0; j < DEPTH; j++) {
        float4 w = *reinterpret_cast<const float4 *>(&weight[j0 + j][ty * 4]);
        float4 u = *reinterpret_cast<const float4 *>(&unit[j][tx * 4]);
        float4 v = *reinterpret_cast<const float4 *>(&unit[j][SPAN / 2 + tx * 4]);
        const float ws[4] = {w.x, w.y, w.z, w.w};
        const float us[8] = {u.x, u.y, u.z, u.w, v.x, v.y, v.z, v.w};
#pragma unroll
        for (int r = 0; r < 4; r++) {
#pragma unroll
          for (int c = 0; c < 8; c++) sum[r][c] = fmaf(ws[r], us[c], sum[r][c]);
        }
      }
    }
    __syncthreads();  // all threads have read the weights
  }
#pragma unroll
  for (int r = 0; r < 4; r++) {
    int64_t row = (int64_t)blockIdx.y * l.rows + a * TILE + ty * 4 + r;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int at = column + h * (SPAN / 2) + tx * 4;
      if (at >= l.width) continue;
      *reinterpret_cast<float4 *>(l.unit_gradient + row * l.width + at) =
          make_float4(sum[r][h * 4], sum[r][h * 4 + 1], sum[r][h * 4 + 2], sum[r][h * 4 + 3]);
    }
  }
}

// Gradient through the normalization: the part along a row vanishes. A warp computes a row.
template <typename T>
__global__ static void finish_gradient(const double *state, layout l, T *dz) {
  int row = (int)(blockIdx.x * WARPS + threadIdx.x / 32), lane = (int)threadIdx.x % 32;
  if (row >= l.n) return;
  bool valid = row_valid(l, row, valid_samples(state, l));
  float *unit_gradient = l.unit_gradient + (int64_t)row * l.width, along = 0.0f;
  const float *unit = l.unit + (int64_t)row * l.width;
  for (int i = lane; valid && i < l.d; i += 32) {
    float g = unit_gradient[i];
    for (int k = 1; k < l.splits; k++) g += unit_gradient[(int64_t)k * l.rows * l.width + i];
    unit_gradient[i] = g;
    along = fmaf(g, unit[i], along);
  }
  along = warp_sum(along);
  // A sample's loss is the mean of the losses of its two rows.
  float scale = (float)(state[BRIM_STATE_GRAD_SCALE] * state[BRIM_STATE_LOSS_SCALE]);
  float factor = scale * 0.5f * l.inverse_temperature / l.length[row];
  for (int i = lane; i < l.d; i += 32) {
    brim_store(dz, (int64_t)row * l.d + i,
               valid ? (unit_gradient[i] - along * unit[i]) * factor : 0.0f);
  }
}

static brim_status ntxent_validate(void *impl, const brim_op_call *c) {
  brim_cuda_enter(impl);
  if (c->in[0].dim[0] > 1 << 20 || c->in[0].dim[1] > 1 << 20) {
    return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuda: ntxent takes up to 2^20 rows and columns");
  }
  return brim_cuda_float_type(&c->in[0], "ntxent");
}

static brim_status ntxent_prepare(void *impl, brim_op_call *c) {
  layout l;
  brim_op_call sizes = *c;
  sizes.workspace = NULL;
  c->workspace_bytes = make_layout((const brim_cuda *)impl, &sizes, &l);
  return BRIM_OK;
}

template <typename T>
static void launch(const brim_op_call *c, cudaStream_t stream, const layout &l) {
  const double *state = (const double *)c->in[1].data;
  dim3 grid((unsigned)l.tiles, (unsigned)l.splits);
  normalise<T>
      <<<(unsigned)(l.rows / WARPS), THREADS, 0, stream>>>((const T *)c->in[0].data, state, l);
  forward_tiles<<<grid, THREADS, 0, stream>>>(state, l);
  finish_losses<<<(unsigned)brim_cuda_div_up(l.half, THREADS), THREADS, 0, stream>>>(state, l);
  if (!brim_cuda_has(&c->out[1], 1, c->out_count)) return;
  grid.z = (unsigned)brim_cuda_div_up(l.width, SPAN);
  backward_tiles<<<grid, THREADS, 0, stream>>>(state, l);
  finish_gradient<T><<<(unsigned)brim_cuda_div_up(l.n, WARPS), THREADS, 0, stream>>>(
      state, l, (T *)c->out[1].data);
}

static brim_status ntxent_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  layout l;
  make_layout((const brim_cuda *)impl, c, &l);
  BRIM_CUDA_DISPATCH(c->in[0].dtype, launch<T>(c, (cudaStream_t)stream, l));
  BRIM_TRY(brim_cuda_launched("ntxent"));
  const double *state = (const double *)c->in[1].data;
  return brim_cuda_add_rows(stream, l.losses, state + BRIM_STATE_SAMPLES, (float *)c->out[0].data,
                            l.half);
}

//---------------------------------- rows ----------------------------------

static const brim_op_row rows[] = {
    {BRIM_OP_NTXENT, ntxent_validate, ntxent_prepare, ntxent_run, NULL},
};

const brim_op_family brim_cuda_ntxent_ops = {rows, sizeof rows / sizeof *rows};
