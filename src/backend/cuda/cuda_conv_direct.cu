// Convolutions by brim's own kernels: a tiled matrix product whose operands are gathered from the
// images. Right for every shape and type, deterministic, and far from cuDNN's speed.
// FLOPs 2 N P Q M R S C each.
#include "backend/cuda/cuda_conv.cuh"

// D (rows, cols) = A (rows, depth) B (depth, cols), all indices flattened:
//   CONV             rows (N,P,Q)  cols M        depth (R,S,C)   A = x,  B = w
//   CONV_BWD_DATA    rows (N,H,W)  cols C        depth (R,S,M)   A = dy, B = w
//   CONV_BWD_WEIGHT  rows M        cols (R,S,C)  depth (N,P,Q)   A = dy, B = x
enum { TILE = 64, DEPTH = 16, THREADS = 256, EACH = 4 };
enum { FORWARD, DATA, WEIGHT };

struct geometry {
  int h, w, c, m, r, s, p, q, stride, pad;
  int64_t rows, cols, depth;
  int64_t chunk;  // part of the depth that one block of blockIdx.z computes
};

// x under the window of an output pixel; 0 outside the image.
template <typename T>
__device__ static float image(const geometry &g, const T *x, int64_t pixel, int64_t k) {
  int c = (int)(k % g.c), rs = (int)(k / g.c), s = rs % g.s, r = rs / g.s;
  int q = (int)(pixel % g.q);
  int64_t rest = pixel / g.q;
  int p = (int)(rest % g.p);
  int64_t n = rest / g.p;
  int h = p * g.stride - g.pad + r, w = q * g.stride - g.pad + s;
  if (h < 0 || h >= g.h || w < 0 || w >= g.w) return 0.0f;
  return brim_load(x, ((n * g.h + h) * g.w + w) * g.c + c);
}

// dy of the output pixel that saw this input pixel at (r, s); 0 when there is none.
template <typename T>
__device__ static float gradient(const geometry &g, const T *dy, int64_t pixel, int64_t k) {
  int m = (int)(k % g.m), rs = (int)(k / g.m), s = rs % g.s, r = rs / g.s;
  int w = (int)(pixel % g.w);
  int64_t rest = pixel / g.w;
  int h = (int)(rest % g.h);
  int64_t n = rest / g.h;
  int p = h + g.pad - r, q = w + g.pad - s;
  if (p < 0 || q < 0 || p % g.stride || q % g.stride) return 0.0f;
  p /= g.stride;
  q /= g.stride;
  if (p >= g.p || q >= g.q) return 0.0f;
  return brim_load(dy, ((n * g.p + p) * g.q + q) * g.m + m);
}

template <typename T, int KIND>
__device__ static float fetch_a(const geometry &g, const T *a, int64_t row, int64_t k) {
  if (KIND == FORWARD) return image(g, a, row, k);
  if (KIND == DATA) return gradient(g, a, row, k);
  return brim_load(a, k * g.m + row);
}

template <typename T, int KIND>
__device__ static float fetch_b(const geometry &g, const T *b, int64_t k, int64_t col) {
  if (KIND == FORWARD) return brim_load(b, col * g.depth + k);
  if (KIND == DATA) return brim_load(b, ((k % g.m) * g.r * g.s + k / g.m) * g.c + col);
  return image(g, b, k, col);
}

// Place of a block's product: its first row and column, and the depth from here up to `end`.
struct corner {
  int64_t row0, col0, k0, end;
};

// Neighbouring threads read neighbouring addresses: along the depth, or across it.
template <typename T, int KIND>
__device__ static void load_tiles(const geometry &g, const T *a, const T *b, const corner &to,
                                  float (*ta)[TILE + 1], float (*tb)[TILE + 1]) {
  for (int i = (int)threadIdx.x; i < TILE * DEPTH; i += THREADS) {
    int k = KIND == WEIGHT ? i / TILE : i % DEPTH, at = KIND == WEIGHT ? i % TILE : i / DEPTH;
    bool inside = to.row0 + at < g.rows && to.k0 + k < to.end;
    ta[k][at] = inside ? fetch_a<T, KIND>(g, a, to.row0 + at, to.k0 + k) : 0.0f;
    k = KIND == FORWARD ? i % DEPTH : i / TILE;
    at = KIND == FORWARD ? i / DEPTH : i % TILE;
    inside = to.col0 + at < g.cols && to.k0 + k < to.end;
    tb[k][at] = inside ? fetch_b<T, KIND>(g, b, to.k0 + k, to.col0 + at) : 0.0f;
  }
}

// `out` is T for images and f32 for weights, of which each block of z writes its own part.
template <typename T, typename O, int KIND>
__global__ static void __launch_bounds__(THREADS)
    multiply(geometry g, const T *a, const T *b, O *out, bool accumulate) {
  __shared__ float ta[DEPTH][TILE + 1], tb[DEPTH][TILE + 1];
  int64_t row0 = (int64_t)blockIdx.x * TILE, col0 = (int64_t)blockIdx.y * TILE;
  int64_t begin = (int64_t)blockIdx.z * g.chunk;
  int64_t end = begin + g.chunk < g.depth ? begin + g.chunk : g.depth;
  int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
  float sum[EACH][EACH] = {};
  for (int64_t k0 = begin; k0 < end; k0 += DEPTH) {
    load_tiles<T, KIND>(g, a, b, {row0, col0, k0, end}, ta, tb);
    __syncthreads();
    for (int k = 0; k < DEPTH; k++) {
      for (int i = 0; i < EACH; i++) {
        for (int j = 0; j < EACH; j++) sum[i][j] += ta[k][ty + 16 * i] * tb[k][tx + 16 * j];
      }
    }
    __syncthreads();
  }
  out += (int64_t)blockIdx.z * g.rows * g.cols;
  for (int i = 0; i < EACH; i++) {
    for (int j = 0; j < EACH; j++) {
      int64_t row = row0 + ty + 16 * i, col = col0 + tx + 16 * j;
      if (row >= g.rows || col >= g.cols) continue;
      int64_t at = row * g.cols + col;
      brim_store(out, at, accumulate ? brim_load(out, at) + sum[i][j] : sum[i][j]);
    }
  }
}

template <typename T>
__global__ static void sum_parts(float *dw, const T *src, int64_t count, int64_t parts,
                                 bool accumulate) {
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    float sum = brim_load(src, i);
    for (int64_t part = 1; part < parts; part++) sum += brim_load(src, part * count + i);
    dw[i] = accumulate ? dw[i] + sum : sum;
  }
}

brim_status brim_cuda_conv_sum(float *dw, const void *src, brim_dtype type, int64_t count,
                               int64_t parts, bool accumulate, cudaStream_t stream) {
  BRIM_CUDA_DISPATCH(type, (sum_parts<T><<<brim_cuda_blocks(count, 256), 256, 0, stream>>>(
                               dw, (const T *)src, count, parts, accumulate)));
  return brim_cuda_launched("sum_parts");
}

static geometry geometry_of(const brim_cuda_conv *c) {
  geometry g = {(int)c->h, (int)c->w,      (int)c->c,   (int)c->m, (int)c->r, (int)c->s, (int)c->p,
                (int)c->q, (int)c->stride, (int)c->pad, 0,         0,         0,         0};
  int64_t in = c->n * c->h * c->w, out = c->n * c->p * c->q, window = c->r * c->s;
  g.rows = c->op == BRIM_OP_CONV ? out : c->op == BRIM_OP_CONV_BWD_DATA ? in : c->m;
  g.cols = c->op == BRIM_OP_CONV ? c->m : c->op == BRIM_OP_CONV_BWD_DATA ? c->c : window * c->c;
  g.depth = c->op == BRIM_OP_CONV            ? window * c->c
            : c->op == BRIM_OP_CONV_BWD_DATA ? window * c->m
                                             : out;
  g.chunk = g.depth;
  return g;
}

// A weight gradient has few tiles and a deep sum: enough parts to fill a large GPU, as many as the
// workspace holds, none too short. A function of the shape and the workspace alone, as the order of
// the sum depends on it.
static int64_t split(geometry *g, size_t bytes) {
  int64_t tiles = (g->rows + TILE - 1) / TILE * ((g->cols + TILE - 1) / TILE);
  int64_t room = (int64_t)(bytes / sizeof(float)) / (g->rows * g->cols);
  int64_t parts = 512 / tiles;
  if (parts > g->depth / 256) parts = g->depth / 256;
  if (parts > room) parts = room;
  if (parts < 1) parts = 1;
  g->chunk = ((g->depth + parts - 1) / parts + DEPTH - 1) / DEPTH * DEPTH;
  return (g->depth + g->chunk - 1) / g->chunk;
}

brim_status brim_cuda_conv_direct(const brim_cuda_conv *c, void *const tensors[3], void *workspace,
                                  size_t bytes, cudaStream_t stream) {
  geometry g = geometry_of(c);
  bool weight = c->op == BRIM_OP_CONV_BWD_WEIGHT;
  int64_t parts = weight ? split(&g, bytes) : 1;
  int64_t rows = (g.rows + TILE - 1) / TILE, cols = (g.cols + TILE - 1) / TILE;
  if (rows > INT32_MAX || cols > 65535) {
    return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuda: this convolution is too large");
  }
  dim3 grid((unsigned)rows, (unsigned)cols, (unsigned)parts);
  const void *x = tensors[0], *w = tensors[1], *y = tensors[2];
  float *dw = parts > 1 ? (float *)workspace : (float *)tensors[1];
  bool accumulate = weight && c->accumulate && parts == 1;
  if (c->op == BRIM_OP_CONV) {
    BRIM_CUDA_DISPATCH(c->type, (multiply<T, T, FORWARD><<<grid, THREADS, 0, stream>>>(
                                    g, (const T *)x, (const T *)w, (T *)tensors[2], false)));
  } else if (c->op == BRIM_OP_CONV_BWD_DATA) {
    BRIM_CUDA_DISPATCH(c->type, (multiply<T, T, DATA><<<grid, THREADS, 0, stream>>>(
                                    g, (const T *)y, (const T *)w, (T *)tensors[0], false)));
  } else {
    BRIM_CUDA_DISPATCH(c->type, (multiply<T, float, WEIGHT><<<grid, THREADS, 0, stream>>>(
                                    g, (const T *)y, (const T *)x, dw, accumulate)));
  }
  BRIM_TRY(brim_cuda_launched("convolution"));
  if (parts == 1) return BRIM_OK;
  return brim_cuda_conv_sum((float *)tensors[1], workspace, BRIM_F32, g.rows * g.cols, parts,
                            c->accumulate, stream);
}
