// Attention forward and the entries of both ops. 16-bit types on tensor cores, f32 by plain
// multiply-adds (cuda_attention_f32.cuh); the gradient is in cuda_attention_bwd.cuh.
// Forward: 4 N A L^2 D FLOPs, N A L^2 exponentials, N L (4 C) 2 bytes. Transformer 3/16 at batch
// 4096 (L 172, A 1, D 16): 7.8 GFLOP, 121 M exponentials = 34 us on the 16 a clock of each of an
// H200's 132 SMs, 93 MB = 22 us; 60 to 80 us expected, bound by the exponentials.
#include "backend/cuda/cuda_attention_bwd.cuh"
#include "backend/cuda/cuda_attention_f32.cuh"
#include "backend/cuda/cuda_attention_int.cuh"

// State of a warp's 16 query rows; [0] is row g, [1] row g + 8. Maxima and sums are of raw scores;
// `sum` is only this lane's share.
template <int DP>
struct forward_state {
  float o[DP / 8][4];
  float max[2], sum[2];
};

// Raw scores of 64 keys at k in shared memory; -inf for those from `keys` on.
template <typename T, int DP>
__device__ static inline void forward_scores(float s[8][4], const uint32_t qa[DP / 16][4],
                                             const uint16_t *k, int keys) {
  constexpr int LD = DP + 8;
  int t = (int)threadIdx.x & 3;
#pragma unroll
  for (int j = 0; j < 4; j++) {
#pragma unroll
    for (int i = 0; i < 4; i++) s[2 * j][i] = s[2 * j + 1][i] = 0.0f;
    if (j * 16 < keys) {
#pragma unroll
      for (int kk = 0; kk < DP / 16; kk++) {
        uint32_t b[4];
        brim_load_b(b, k + j * 16 * LD + kk * 16, LD);
        brim_mma<T>(s[2 * j], qa[kk], b[0], b[1]);
        brim_mma<T>(s[2 * j + 1], qa[kk], b[2], b[3]);
      }
    }
  }
  if (keys >= 64) return;
#pragma unroll
  for (int j = 0; j < 8; j++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (j * 8 + t * 2 + (i & 1) >= keys) s[j][i] = -INFINITY;
    }
  }
}

// New maxima; what was summed so far is scaled to them.
template <int DP>
__device__ static inline void forward_rescale(forward_state<DP> &st, const float s[8][4],
                                              float scale2) {
#pragma unroll
  for (int i = 0; i < 2; i++) {
    float m = st.max[i];
#pragma unroll
    for (int j = 0; j < 8; j++) m = fmaxf(m, fmaxf(s[j][2 * i], s[j][2 * i + 1]));
    m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 1));
    m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
    float alpha = brim_exp2_fast((st.max[i] - m) * scale2);
    st.max[i] = m;
    st.sum[i] *= alpha;
#pragma unroll
    for (int n = 0; n < DP / 8; n++) {
      st.o[n][2 * i] *= alpha;
      st.o[n][2 * i + 1] *= alpha;
    }
  }
}

// 64 keys (`keys` of them exist) at k and v in shared memory: one online-softmax step.
template <typename T, int DP>
__device__ static inline void forward_step(forward_state<DP> &st, const uint32_t qa[DP / 16][4],
                                           const uint16_t *k, const uint16_t *v, int keys,
                                           float scale2) {
  constexpr int LD = DP + 8;
  float s[8][4];
  forward_scores<T, DP>(s, qa, k, keys);
  forward_rescale<DP>(st, s, scale2);
  float shift0 = st.max[0] * scale2, shift1 = st.max[1] * scale2;
#pragma unroll
  for (int j = 0; j < 4; j++) {
    if (j * 16 >= keys) continue;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      float *p = s[2 * j + i];
      p[0] = brim_exp2_fast(fmaf(p[0], scale2, -shift0));
      p[1] = brim_exp2_fast(fmaf(p[1], scale2, -shift0));
      p[2] = brim_exp2_fast(fmaf(p[2], scale2, -shift1));
      p[3] = brim_exp2_fast(fmaf(p[3], scale2, -shift1));
      st.sum[0] += p[0] + p[1];
      st.sum[1] += p[2] + p[3];
    }
    uint32_t a[4];
    attention_as_a<T>(a, s[2 * j], s[2 * j + 1]);
#pragma unroll
    for (int n = 0; n < DP / 16; n++) {
      uint32_t b[4];
      brim_load_bt(b, v + j * 16 * LD + n * 16, LD);
      brim_mma<T>(st.o[2 * n], a, b[0], b[1]);
      brim_mma<T>(st.o[2 * n + 1], a, b[2], b[3]);
    }
  }
}

// Divide by the sums; y and lse of the tile's rows.
template <typename T, int DP>
__device__ static inline void forward_finish(forward_state<DP> &st, const attention_geo &g,
                                             uint16_t *y, float *lse, int row) {
  float inverse[2];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    float sum = st.sum[i];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    inverse[i] = 1.0f / sum;
    int r = row + (((int)threadIdx.x & 31) >> 2) + i * 8;
    if ((threadIdx.x & 3) == 0 && r < g.l) {
      lse[r] = fmaf(st.max[i], g.scale2, log2f(sum)) * ATTENTION_LN2;
    }
  }
  attention_store<T, DP>({y, g.c, g.l, g.d}, row, st.o, inverse[0], inverse[1]);
}

// A block does rounds * 4 tiles of 16 queries of one head; keys and values pass through shared
// memory in chunks. With several rounds the one chunk holds all keys and is loaded once.
template <typename T, int DP>
__global__ static void __launch_bounds__(ATTENTION_THREADS)
    attention_forward(const uint16_t *qkv, uint16_t *y, float *lse, attention_geo g) {
  constexpr int LD = DP + 8;
  extern __shared__ __align__(16) uint16_t shared[];
  attention_head h = attention_locate(g);
  int rows = g.rounds * ATTENTION_WARPS * ATTENTION_TILE;
  int first = h.piece * rows;  // query row of the block
  uint16_t *q_s = shared, *k_s = q_s + rows * LD, *v_s = k_s + g.chunk * LD;
  const uint16_t *head = qkv + h.qkv;
  int64_t stride = 3 * g.c;
  int warp = (int)threadIdx.x >> 5;
  attention_load<DP>(q_s, head + first * stride, stride, rows, g.l - first, g.d);
  for (int round = 0; round < g.rounds; round++) {
    int tile = round * ATTENTION_WARPS + warp;
    bool active = first + tile * ATTENTION_TILE < g.l;
    forward_state<DP> st;
    uint32_t qa[DP / 16][4];
#pragma unroll
    for (int n = 0; n < DP / 8; n++) st.o[n][0] = st.o[n][1] = st.o[n][2] = st.o[n][3] = 0.0f;
    st.max[0] = st.max[1] = -INFINITY;
    st.sum[0] = st.sum[1] = 0.0f;
    for (int key = 0; key < g.l; key += g.chunk) {
      int keys = g.l - key < g.chunk ? g.l - key : g.chunk;
      if (round == 0) {
        __syncthreads();  // no thread reads the last chunk any more
        const uint16_t *at = head + key * stride;
        attention_load<DP>(k_s, at + g.c, stride, attention_padded(keys), keys, g.d);
        attention_load<DP>(v_s, at + 2 * g.c, stride, attention_padded(keys), keys, g.d);
        brim_copy_commit();
        brim_copy_wait<0>();
        __syncthreads();
      }
      if (!active) continue;
      if (key == 0) {
#pragma unroll
        for (int kk = 0; kk < DP / 16; kk++) {
          brim_load_a(qa[kk], q_s + tile * ATTENTION_TILE * LD + kk * 16, LD);
        }
      }
      for (int k0 = 0; k0 < keys; k0 += 64) {
        forward_step<T, DP>(st, qa, k_s + k0 * LD, v_s + k0 * LD, keys - k0 < 64 ? keys - k0 : 64,
                            g.scale2);
      }
    }
    if (active) {
      forward_finish<T, DP>(st, g, y + h.y, lse + h.lse, first + tile * ATTENTION_TILE);
    }
  }
}

//---------------------------------- entries ----------------------------------

// A head whose q, k, v (and dy) fit is held whole: one block then does all its tiles.
static bool fits_whole(int l, int width, int arrays, size_t limit) {
  return l <= 512 &&
         (size_t)attention_padded(l) * (size_t)(width + 8) * 2 * (size_t)arrays <= limit;
}

static attention_geo geometry(const brim_op_call *c, const brim_tensor *y) {
  attention_geo g;
  memset(&g, 0, sizeof g);
  g.l = (int)y->dim[1];
  g.heads = c->attr.heads;
  g.c = y->dim[2];
  g.d = (int)(g.c / g.heads);
  g.scale = (float)(1.0 / sqrt((double)g.d));
  g.scale2 = (float)(1.4426950408889634 / sqrt((double)g.d));
  return g;
}

static brim_status validate(const brim_op_call *c, const brim_tensor *y, const char *what) {
  int64_t d = y->dim[2] / c->attr.heads, heads = y->dim[0] * c->attr.heads;
  BRIM_TRY(brim_cuda_float_type(&c->in[0], what));
  if (d > 128) {
    return brim_cuda_fail(BRIM_EUNSUPPORTED,
                          "cuda: %s has heads of size %lld, expected at most 128", what,
                          (long long)d);
  }
  if (y->dim[1] > 1 << 20 || heads * ((y->dim[1] + 15) / 16) > INT32_MAX) {
    return brim_cuda_fail(BRIM_EUNSUPPORTED, "cuda: %s of %lld x %lld rows is too large", what,
                          (long long)y->dim[0], (long long)y->dim[1]);
  }
  return BRIM_OK;
}

static brim_status attention_validate(void *impl, const brim_op_call *c) {
  (void)impl;
  return validate(c, &c->out[0], "attention");
}

static brim_status attention_bwd_validate(void *impl, const brim_op_call *c) {
  (void)impl;
  return validate(c, &c->in[0], "attention_bwd");
}

static bool whole_backward(const brim_op_call *c, const attention_geo *g) {
  int width = g->d <= 16 ? 16 : g->d <= 32 ? 32 : 64;
  return c->in[0].dtype != BRIM_F32 && g->d <= 64 && fits_whole(g->l, width, 4, 72 * 1024);
}

static brim_status attention_prepare(void *impl, brim_op_call *c) {
  brim_cuda_enter(impl);
  c->workspace_bytes = 0;
  if (c->op == BRIM_OP_ATTENTION) return BRIM_OK;
  attention_geo g = geometry(c, &c->in[0]);
  if (!whole_backward(c, &g)) {  // sums of dy y, one a row and head
    c->workspace_bytes = (size_t)(c->in[0].dim[0] * g.heads * g.l) * sizeof(float);
  }
  return BRIM_OK;
}

template <typename T, int DP>
static brim_status forward_launch(const brim_op_call *c, attention_geo g, cudaStream_t stream) {
  int tiles = attention_padded(g.l) / ATTENTION_TILE;
  if (fits_whole(g.l, DP, 3, 48 * 1024)) {
    g.rounds = (tiles + ATTENTION_WARPS - 1) / ATTENTION_WARPS;
    g.chunk = attention_padded(g.l);
    g.blocks = 1;
  } else {
    g.rounds = 1;
    g.chunk = 64;
    g.blocks = (tiles + ATTENTION_WARPS - 1) / ATTENTION_WARPS;
  }
  size_t rows = (size_t)(g.rounds * ATTENTION_WARPS * ATTENTION_TILE + 2 * g.chunk);
  size_t bytes = rows * (DP + 8) * sizeof(uint16_t);
  BRIM_TRY(attention_reserve(attention_forward<T, DP>, bytes));
  unsigned blocks = (unsigned)(c->in[0].dim[0] * g.heads * g.blocks);
  attention_forward<T, DP><<<blocks, ATTENTION_THREADS, bytes, stream>>>(
      (const uint16_t *)c->in[0].data, (uint16_t *)c->out[0].data, (float *)c->out[1].data, g);
  return brim_cuda_launched("attention");
}

template <typename T>
static brim_status forward_half(const brim_op_call *c, const attention_geo &g, cudaStream_t s) {
  if (g.d <= 16) return forward_launch<T, 16>(c, g, s);
  if (g.d <= 32) return forward_launch<T, 32>(c, g, s);
  if (g.d <= 64) return forward_launch<T, 64>(c, g, s);
  return forward_launch<T, 128>(c, g, s);
}

static brim_status attention_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  cudaStream_t s = (cudaStream_t)stream;
  attention_geo g = geometry(c, &c->out[0]);
  if (c->in[0].dtype == BRIM_BF16) return forward_half<__nv_bfloat16>(c, g, s);
  if (c->in[0].dtype == BRIM_F16) return forward_half<__half>(c, g, s);
  return attention_f32_forward(c, g, s);
}

template <typename T>
static brim_status backward_half(const brim_op_call *c, const attention_geo &g, cudaStream_t s) {
  if (whole_backward(c, &g)) {
    if (g.d <= 16) return attention_bwd_whole<T, 16>(c, g, s);
    if (g.d <= 32) return attention_bwd_whole<T, 32>(c, g, s);
    return attention_bwd_whole<T, 64>(c, g, s);
  }
  BRIM_TRY(attention_delta<T>(c, g, s));
  if (g.d <= 16) return attention_bwd_pieces<T, 16>(c, g, s);
  if (g.d <= 32) return attention_bwd_pieces<T, 32>(c, g, s);
  if (g.d <= 64) return attention_bwd_pieces<T, 64>(c, g, s);
  return attention_bwd_pieces<T, 128>(c, g, s);
}

static brim_status attention_bwd_run(void *impl, void *stream, const brim_op_call *c) {
  brim_cuda_enter(impl);
  cudaStream_t s = (cudaStream_t)stream;
  attention_geo g = geometry(c, &c->in[0]);
  if (c->in[0].dtype == BRIM_BF16) return backward_half<__nv_bfloat16>(c, g, s);
  if (c->in[0].dtype == BRIM_F16) return backward_half<__half>(c, g, s);
  BRIM_TRY(attention_delta<float>(c, g, s));
  return attention_f32_backward(c, g, s);
}

//---------------------------------- rows ----------------------------------

static const brim_op_row rows[] = {
    {BRIM_OP_ATTENTION, attention_validate, attention_prepare, attention_run, NULL},
    {BRIM_OP_ATTENTION_BWD, attention_bwd_validate, attention_prepare, attention_bwd_run, NULL},
};

const brim_op_family brim_cuda_attention_ops = {rows, sizeof rows / sizeof *rows};
