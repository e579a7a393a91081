// Linear layers with very many rows and few columns, 16-bit, on tensor cores: cuBLASLt's tiles are
// mostly padding there. All three ops read their operands once and are bound by memory: rows
// (K + M) 2 bytes (+ rows K 2 for act'). Transformer 3/16 at batch 4096 (704512 rows): 16 -> 48
// 90 MB, 16 -> 64 and 64 -> 16 113 MB, 16 -> 16 45 MB; at 4 TB/s 23, 28 and 11 us, each of the
// three ops alike.
#include "backend/cuda/cuda_linear_int.cuh"
#include "backend/cuda/cuda_mma.cuh"

enum {
  ROW_WARPS = 8,     // y = x w': warps a block, each with 32 rows at a time
  WEIGHT_WARPS = 4,  // dw = dy' x: warps a block, each with slabs of its own
  SLAB = 32,         // rows a warp stages at a time there
  TILE = 64          // largest piece of dw in one block
};

//---------------------------------- rows: y and dx ----------------------------------

struct row_args {
  const uint16_t *x;     // (rows, k)
  const uint16_t *w;     // weight of output j and input i at j * w_out + i * w_in
  const uint16_t *bias;  // (n) or NULL
  const uint16_t *s;     // (rows, n) for act', or NULL
  uint16_t *y;           // (rows, n)
  int64_t rows;
  int k, n, w_out, w_in;
  brim_act act;
};

// The operation on a sum before it is stored. Activations have forms of their own where it matters:
// a run-time choice costs as much as the rest of the product.
enum row_form {
  ROW_PLAIN,       // nothing
  ROW_TANH,        // tanh
  ROW_TANH_SLOPE,  // times tanh'
  ROW_ANY,         // act or act', whichever
  ROW_ODD          // act, and outputs that are no multiple of four are stored one by one
};

// Groups of 16 inputs of a kernel. KS 0 is one group of inputs that are no multiple of four.
__host__ __device__ static constexpr int row_groups(int ks) { return ks == 0 ? 1 : ks; }

// The hardware's for bf16.
template <typename T>
__device__ static inline float tanh_value(float x) {
  return tanhf(x);
}

template <>
__device__ inline float tanh_value<__nv_bfloat16>(float x) {
  return brim_tanh_fast(x);
}

template <typename T>
__device__ static inline float act_value(brim_act act, float x) {
  switch (act) {
    case BRIM_ACT_RELU:
      return x > 0.0f || isnan(x) ? x : 0.0f;
    case BRIM_ACT_GELU:
      return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    case BRIM_ACT_TANH:
      return tanh_value<T>(x);
    default:
      return x;
  }
}

// s is y for relu and tanh, x for gelu
__device__ static inline float act_slope(brim_act act, float s) {
  switch (act) {
    case BRIM_ACT_RELU:
      return s > 0.0f ? 1.0f : 0.0f;
    case BRIM_ACT_GELU:
      return 0.5f * (1.0f + erff(s * 0.70710678f)) + s * 0.39894228f * expf(-0.5f * s * s);
    case BRIM_ACT_TANH:
      return 1.0f - s * s;
    default:
      return 1.0f;
  }
}

// The order of k within a product is free, and so is which column of y a column of the tile is.
// Lane 4 g + t takes inputs 4 t .. 4 t + 3 of a group of 16 where the table in cuda_mma.cuh has
// 2 t, 2 t + 1, 2 t + 8, 2 t + 9, and outputs likewise over two tiles, so that x and y move by
// 8 bytes a lane and whole sectors. Of tile j (0, 1) of a pair, column g is output
// 16 pair + 4 (g / 2) + 2 j + g % 2. Weights lie in shared memory as fragments:
// [pair][k group][tile][lane] of b0, b1.
template <int KS>  // row_groups
__device__ static inline void stage_weights(uint2 *frag, const row_args &a, int pairs) {
#pragma unroll(KS >= 4 ? 4 : 1)
  for (int i = (int)threadIdx.x; i < pairs * KS * 64; i += (int)blockDim.x) {
    int lane = i & 31, j = (i >> 5) & 1, s = (i >> 6) % KS, pair = (i >> 6) / KS;
    int g = lane >> 2, t = lane & 3;
    int out = pair * 16 + 4 * (g >> 1) + 2 * j + (g & 1), in = s * 16 + 4 * t;
    if (a.w_in == 1) {  // the four lie beside each other: k is a multiple of 4
      bool inside = out < a.n && in < a.k;
      const uint16_t *from = a.w + (int64_t)out * a.w_out + in;
      frag[i] = inside ? *(const uint2 *)from : make_uint2(0, 0);
      continue;
    }
    uint32_t v[4];
#pragma unroll
    for (int e = 0; e < 4; e++) {
      bool inside = out < a.n && in + e < a.k;
      v[e] = inside ? a.w[(int64_t)out * a.w_out + (int64_t)(in + e) * a.w_in] : 0u;
    }
    frag[i] = make_uint2(v[0] | v[1] << 16, v[2] | v[3] << 16);
  }
}

// For act': four values of s of the rows row, + 8, + 16, + 24. They are loaded before the products
// of a pair of tiles, since a load takes longer than those.
template <int FORM>
__device__ static inline void get_slopes(uint2 out[4], const row_args &a, int64_t row, int col) {
  bool any = FORM == ROW_TANH_SLOPE || (FORM == ROW_ANY && a.s);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    bool there = any && row + i * 8 < a.rows && col < a.n;
    out[i] = there ? *(const uint2 *)(a.s + (row + i * 8) * a.n + col) : make_uint2(0, 0);
  }
}

template <typename T, int FORM>
__device__ static inline void put_row(const row_args &a, int64_t row, int col, const float c[4],
                                      const float *bias, uint2 slopes) {
  if (row >= a.rows) return;
  float2 s0 = brim_unpack<T>(slopes.x), s1 = brim_unpack<T>(slopes.y);
  const float s[4] = {s0.x, s0.y, s1.x, s1.y};
  float v[4];
#pragma unroll
  for (int e = 0; e < 4; e++) {
    v[e] = c[e] + bias[col + e];
    if (FORM == ROW_TANH) v[e] = tanh_value<T>(v[e]);
    if (FORM == ROW_TANH_SLOPE) v[e] *= 1.0f - s[e] * s[e];
    if (FORM == ROW_ANY) v[e] = a.s ? v[e] * act_slope(a.act, s[e]) : act_value<T>(a.act, v[e]);
    if (FORM == ROW_ODD) v[e] = act_value<T>(a.act, v[e]);
  }
  if constexpr (FORM == ROW_ODD) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
      if (col + e < a.n) brim_store((T *)a.y, row * a.n + col + e, v[e]);
    }
  } else {
    *(uint2 *)(a.y + row * a.n + col) =
        make_uint2(brim_pack<T>(v[0], v[1]), brim_pack<T>(v[2], v[3]));
  }
}

// Blocks an SM should hold, by registers.
static constexpr int row_residents(int ks) { return ks <= 2 ? 4 : ks <= 4 ? 3 : 2; }

// Four inputs of a row; zeros where there are none.
template <bool ODD>
__device__ static inline uint2 get_four(const row_args &a, int64_t row, int col) {
  if (col >= a.k || row >= a.rows) return make_uint2(0, 0);
  const uint16_t *from = a.x + row * a.k + col;
  if constexpr (ODD) {
    uint32_t v[4];
#pragma unroll
    for (int e = 0; e < 4; e++) v[e] = col + e < a.k ? from[e] : 0u;
    return make_uint2(v[0] | v[1] << 16, v[2] | v[3] << 16);
  } else {
    return *(const uint2 *)from;
  }
}

// 32 rows from `base` on as A fragments of two tiles.
template <int GROUPS, bool ODD>
__device__ static inline void get_rows(uint32_t x[2][GROUPS][4], const row_args &a, int64_t base) {
  int lane = (int)threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int s = 0; s < GROUPS; s++) {
      int col = s * 16 + 4 * t;
      int64_t r0 = base + m * 16 + g;
      uint2 top = get_four<ODD>(a, r0, col), bottom = get_four<ODD>(a, r0 + 8, col);
      x[m][s][0] = top.x;
      x[m][s][1] = bottom.x;
      x[m][s][2] = top.y;
      x[m][s][3] = bottom.y;
    }
  }
}

// A warp does 32 rows at a time, all outputs of them.
template <typename T, int KS, int FORM>
__global__ static void __launch_bounds__(32 * ROW_WARPS, row_residents(KS)) row_kernel(row_args a) {
  extern __shared__ __align__(16) uint2 frag[];
  constexpr int GROUPS = row_groups(KS);
  constexpr bool AHEAD = KS <= 2;  // slopes a pair ahead, where there are registers for them
  int pairs = (a.n + 15) / 16;
  float *bias = (float *)(frag + pairs * GROUPS * 64);
  stage_weights<GROUPS>(frag, a, pairs);
  for (int i = (int)threadIdx.x; i < pairs * 16; i += (int)blockDim.x) {
    bias[i] = a.bias && i < a.n ? brim_load((const T *)a.bias, i) : 0.0f;
  }
  __syncthreads();
  int lane = (int)threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  int64_t base = (int64_t)blockIdx.x * blockDim.x + (threadIdx.x & ~31u);
  for (; base < a.rows; base += step) {
    uint32_t x[2][GROUPS][4];
    get_rows<GROUPS, KS == 0>(x, a, base);
    uint2 slopes[4], next[4];
    if (AHEAD) get_slopes<FORM>(next, a, base + g, 4 * t);
    for (int pair = 0; pair < pairs; pair++) {
      int col = pair * 16 + 4 * t;
      for (int i = 0; AHEAD && i < 4; i++) slopes[i] = next[i];
      get_slopes<FORM>(AHEAD ? next : slopes, a, base + g, AHEAD ? col + 16 : col);
      float c[2][2][4] = {};  // [rows][tile]
#pragma unroll
      for (int s = 0; s < GROUPS; s++) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
          uint2 b = frag[((pair * GROUPS + s) * 2 + j) * 32 + lane];
          brim_mma<T>(c[0][j], x[0][s], b.x, b.y);
          brim_mma<T>(c[1][j], x[1][s], b.x, b.y);
        }
      }
      if (col >= a.n) continue;
#pragma unroll
      for (int m = 0; m < 2; m++) {
        int64_t r0 = base + m * 16 + g;
        const float top[4] = {c[m][0][0], c[m][0][1], c[m][1][0], c[m][1][1]};
        const float bottom[4] = {c[m][0][2], c[m][0][3], c[m][1][2], c[m][1][3]};
        put_row<T, FORM>(a, r0, col, top, bias, slopes[2 * m]);
        put_row<T, FORM>(a, r0 + 8, col, bottom, bias, slopes[2 * m + 1]);
      }
    }
  }
}

template <typename T, int KS, int FORM>
static brim_status launch_rows_as(const brim_cuda *d, cudaStream_t stream, const row_args &a) {
  size_t pairs = (size_t)(a.n + 15) / 16;
  size_t bytes = pairs * row_groups(KS) * 64 * sizeof(uint2) + pairs * 16 * sizeof(float);
  if (bytes > 48 * 1024) {
    BRIM_TRY(BRIM_CUDA(cudaFuncSetAttribute(
        row_kernel<T, KS, FORM>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes)));
  }
  int threads = 32 * ROW_WARPS;  // as many rows; smaller blocks where that fills more of the device
  while (threads > 32 && (a.rows + threads - 1) / threads < d->sm_count) threads /= 2;
  int64_t blocks = (a.rows + threads - 1) / threads;
  // as many as run at once: each stages the weights, and rows divide evenly among the SMs
  int64_t most = (int64_t)d->sm_count * row_residents(KS);
  if (blocks > most) blocks = most;
  row_kernel<T, KS, FORM><<<(unsigned)blocks, (unsigned)threads, bytes, stream>>>(a);
  return brim_cuda_launched("skinny linear");
}

template <typename T, int KS>
static brim_status launch_rows(const brim_cuda *d, cudaStream_t stream, const row_args &a) {
  if constexpr (KS > 0) {  // inputs and outputs of a layer are not both odd
    if (a.n % 4 != 0) return launch_rows_as<T, KS, ROW_ODD>(d, stream, a);
  }
  if (a.act == BRIM_ACT_NONE) return launch_rows_as<T, KS, ROW_PLAIN>(d, stream, a);
  if (a.act != BRIM_ACT_TANH) return launch_rows_as<T, KS, ROW_ANY>(d, stream, a);
  if (a.s) return launch_rows_as<T, KS, ROW_TANH_SLOPE>(d, stream, a);
  return launch_rows_as<T, KS, ROW_TANH>(d, stream, a);
}

template <typename T>
static brim_status run_rows(const brim_cuda *d, cudaStream_t stream, const brim_op_call *c) {
  bool forward = c->op == BRIM_OP_LINEAR;
  bool third = brim_cuda_has(&c->in[2], 2, c->in_count);
  int m = (int)c->in[1].dim[0], k = (int)c->in[1].dim[1];
  row_args a;
  a.x = (const uint16_t *)c->in[0].data;
  a.w = (const uint16_t *)c->in[1].data;
  a.bias = forward && third ? (const uint16_t *)c->in[2].data : NULL;
  a.act = c->attr.act;
  a.s = !forward && third && a.act != BRIM_ACT_NONE ? (const uint16_t *)c->in[2].data : NULL;
  a.y = (uint16_t *)c->out[0].data;
  a.rows = linear_rows(&c->in[0]);
  a.k = forward ? k : m;
  a.n = forward ? m : k;
  a.w_out = forward ? k : 1;
  a.w_in = forward ? 1 : k;
  if (a.k % 4 != 0) return launch_rows<T, 0>(d, stream, a);
  if (a.k <= 16) return launch_rows<T, 1>(d, stream, a);
  if (a.k <= 32) return launch_rows<T, 2>(d, stream, a);
  if (a.k <= 48) return launch_rows<T, 3>(d, stream, a);
  if (a.k <= 64) return launch_rows<T, 4>(d, stream, a);
  return launch_rows<T, 8>(d, stream, a);
}

//---------------------------------- weights: dw and db ----------------------------------

struct weight_args {
  const uint16_t *dy;  // (rows, m)
  const uint16_t *x;   // (rows, k)
  float *part;         // (slabs, m k + m): dw, then db
  int64_t rows, per;   // per: rows of a block, a multiple of SLAB
  int m, k, m_tiles;
};

// SLAB rows of 16 TILES columns from column `first` on into dst, V values (8 or 4) at a time; zeros
// where there are none. A lane keeps its column and walks down the rows.
template <int TILES, int V>
__device__ static inline void stage_vectors(uint16_t *dst, const uint16_t *src, int rows, int first,
                                            int cols) {
  constexpr int LD = TILES * 16 + 8, WIDE = (TILES == 3 ? 64 : TILES * 16) / V, STEP = 32 / WIDE;
  int lane = (int)threadIdx.x & 31, r = lane / WIDE, col = lane % WIDE * V;
  if (TILES == 3 && col >= TILES * 16) return;
  bool inside = first + col < cols;
  const uint16_t *from = src + (int64_t)r * cols + (inside ? first + col : 0);
  dst += r * LD + col;
#pragma unroll
  for (int i = 0; i < SLAB / STEP; i++) {
    bool valid = inside && r + i * STEP < rows;
    if (V == 8) {
      brim_copy16(dst + i * STEP * LD, valid ? from : src, valid);
    } else {
      brim_copy8(dst + i * STEP * LD, valid ? from : src, valid);
    }
    from += STEP * cols;
  }
}

// Stages one value at a time, for up to 16 columns that are no multiple of four and so do not begin
// on whole vectors. At most a twelfth of the data is staged this way.
__device__ static inline void stage_odd(uint16_t *dst, const uint16_t *src, int rows, int cols) {
  constexpr int LD = 16 + 8;
  int lane = (int)threadIdx.x & 31, r = lane >> 4, col = lane & 15;
#pragma unroll
  for (int i = 0; i < SLAB / 2; i++) {
    int row = r + 2 * i;
    dst[row * LD + col] = col < cols && row < rows ? src[row * cols + col] : (uint16_t)0;
  }
}

template <int TILES>
__device__ static inline void stage_slab(uint16_t *dst, const uint16_t *src, int64_t row,
                                         int64_t last, int first, int cols) {
  int rows = last - row < SLAB ? (int)(last - row) : SLAB;
  if (TILES == 1 && (cols & 3) != 0) {
    stage_odd(dst, src + row * cols, rows, cols);
  } else if ((cols & 7) == 0) {
    stage_vectors<TILES, 8>(dst, src + row * cols, rows, first, cols);
  } else {
    stage_vectors<TILES, 4>(dst, src + row * cols, rows, first, cols);
  }
}

// A warp's sums of a piece of dw, 16 MT x 16 NT, and of the columns of dy (all columns alike).
template <int MT, int NT>
struct weight_piece {
  static constexpr int LDM = MT * 16 + 8, LDK = NT * 16 + 8;  // strides of staged rows of dy and x
  static constexpr int STAGE = SLAB * (LDM + LDK);
  static constexpr int CELLS = MT * 16 * NT * 16, ALL = CELLS + MT * 16;
  static_assert(ALL * 4 <= 2 * STAGE * 2, "the pieces are added where the buffers were");
  float acc[MT][NT * 2][4], sum[MT][4];
};

// SLAB staged rows. Column sums of dy are one more product, with ones.
template <typename T, int MT, int NT>
__device__ static inline void weight_slab(weight_piece<MT, NT> &p, const uint16_t *stage) {
  constexpr int LDM = weight_piece<MT, NT>::LDM, LDK = weight_piece<MT, NT>::LDK;
  const uint16_t *dy = stage, *x = stage + SLAB * LDM;
  const uint32_t one = brim_pack<T>(1.0f, 1.0f);
#pragma unroll
  for (int kk = 0; kk < SLAB / 16; kk++) {
    uint32_t b[NT][4];
#pragma unroll
    for (int j = 0; j < NT; j++) brim_load_bt(b[j], x + kk * 16 * LDK + j * 16, LDK);
#pragma unroll
    for (int i = 0; i < MT; i++) {
      uint32_t f[4];
      brim_load_at(f, dy + kk * 16 * LDM + i * 16, LDM);
      brim_mma<T>(p.sum[i], f, one, one);
#pragma unroll
      for (int j = 0; j < NT; j++) {
        brim_mma<T>(p.acc[i][2 * j], f, b[j][0], b[j][1]);
        brim_mma<T>(p.acc[i][2 * j + 1], f, b[j][2], b[j][3]);
      }
    }
  }
}

// The warps' pieces through shared memory, added in order, into the block's part.
template <int MT, int NT>
__device__ static inline void weight_publish(const weight_piece<MT, NT> &p, float *pieces,
                                             const weight_args &a, int m0, int k0) {
  constexpr int CELLS = weight_piece<MT, NT>::CELLS, ALL = weight_piece<MT, NT>::ALL;
  int lane = (int)threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  float *own = pieces + (threadIdx.x >> 5) * ALL;
#pragma unroll
  for (int i = 0; i < MT; i++) {
#pragma unroll
    for (int j = 0; j < NT * 2; j++) {
      float *top = own + (i * 16 + g) * (NT * 16) + j * 8 + t * 2;
      *(float2 *)top = make_float2(p.acc[i][j][0], p.acc[i][j][1]);
      *(float2 *)(top + 8 * NT * 16) = make_float2(p.acc[i][j][2], p.acc[i][j][3]);
    }
    if (t == 0) {
      own[CELLS + i * 16 + g] = p.sum[i][0];
      own[CELLS + i * 16 + g + 8] = p.sum[i][2];
    }
  }
  __syncthreads();
  float *out = a.part + (int64_t)blockIdx.x * ((int64_t)a.m * a.k + a.m);
  for (int i = (int)threadIdx.x; i < ALL; i += 32 * WEIGHT_WARPS) {
    float total = pieces[i];
#pragma unroll
    for (int w = 1; w < WEIGHT_WARPS; w++) total += pieces[w * ALL + i];
    int r = m0 + (i < CELLS ? i / (NT * 16) : i - CELLS), col = k0 + i % (NT * 16);
    if (r >= a.m) continue;
    if (i < CELLS && col < a.k) out[(int64_t)r * a.k + col] = total;
    if (i >= CELLS && k0 == 0) out[(int64_t)a.m * a.k + r] = total;
  }
}

// A block sums a slab of rows for a piece of dw; every warp takes SLAB rows at a time through two
// buffers of its own and holds all of the piece.
template <typename T, int MT, int NT>
__global__ static void __launch_bounds__(32 * WEIGHT_WARPS, MT *NT > 8 ? 2 : 4)
    weight_kernel(weight_args a) {
  typedef weight_piece<MT, NT> piece;
  constexpr int64_t STEP = WEIGHT_WARPS * SLAB;
  extern __shared__ __align__(16) uint16_t shared[];
  int warp = (int)threadIdx.x >> 5;
  int m0 = (int)blockIdx.y % a.m_tiles * TILE, k0 = (int)blockIdx.y / a.m_tiles * TILE;
  uint16_t *mine = shared + warp * 2 * piece::STAGE;
  int64_t first = (int64_t)blockIdx.x * a.per;
  int64_t last = first + a.per < a.rows ? first + a.per : a.rows;
  int64_t row = first + warp * SLAB;
  piece p;
#pragma unroll
  for (int i = 0; i < MT; i++) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
      p.sum[i][e] = 0.0f;
#pragma unroll
      for (int j = 0; j < NT * 2; j++) p.acc[i][j][e] = 0.0f;
    }
  }
  if (row < last) {
    stage_slab<MT>(mine, a.dy, row, last, m0, a.m);
    stage_slab<NT>(mine + SLAB * piece::LDM, a.x, row, last, k0, a.k);
  }
  brim_copy_commit();
  for (int buffer = 0; row < last; row += STEP, buffer ^= 1) {
    if (row + STEP < last) {
      uint16_t *next = mine + (buffer ^ 1) * piece::STAGE;
      stage_slab<MT>(next, a.dy, row + STEP, last, m0, a.m);
      stage_slab<NT>(next + SLAB * piece::LDM, a.x, row + STEP, last, k0, a.k);
    }
    brim_copy_commit();
    brim_copy_wait<1>();
    __syncwarp();
    weight_slab<T, MT, NT>(p, mine + buffer * piece::STAGE);
    __syncwarp();  // the buffer is filled again
  }
  brim_copy_wait<0>();
  __syncthreads();
  weight_publish<MT, NT>(p, (float *)shared, a, m0, k0);
}

// Blocks in x: enough to fill the device, each with a slab of rows.
struct weight_shape {
  int m_tiles, k_tiles, slabs;
  int64_t per;
};

static weight_shape shape_weight(const brim_cuda *d, const brim_op_call *c) {
  int64_t rows = linear_rows(&c->in[0]), m = linear_last(&c->in[0]), k = linear_last(&c->in[1]);
  weight_shape s;
  s.m_tiles = (int)((m + TILE - 1) / TILE);
  s.k_tiles = (int)((k + TILE - 1) / TILE);
  // 48 to 74 KiB of shared memory a block: four or two blocks fit
  int64_t most = (int64_t)d->sm_count * (m > 32 && k > 32 ? 2 : 4) / (s.m_tiles * s.k_tiles);
  int64_t slabs = (rows + WEIGHT_WARPS * SLAB - 1) / (WEIGHT_WARPS * SLAB);
  int64_t room = (int64_t)(d->workspace_cap / ((size_t)(m * k + m) * sizeof(float)));
  if (most > room) most = room;
  if (slabs > most) slabs = most;
  if (slabs < 1) slabs = 1;
  s.per = ((rows + slabs - 1) / slabs + SLAB - 1) / SLAB * SLAB;
  s.slabs = (int)((rows + s.per - 1) / s.per);
  return s;
}

template <typename T, int MT, int NT>
static brim_status launch_weight(cudaStream_t stream, const weight_args &a, const weight_shape &s) {
  size_t bytes = (size_t)WEIGHT_WARPS * 2 * SLAB * (MT * 16 + NT * 16 + 16) * sizeof(uint16_t);
  if (bytes > 48 * 1024) {
    BRIM_TRY(BRIM_CUDA(cudaFuncSetAttribute(
        weight_kernel<T, MT, NT>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes)));
  }
  dim3 grid((unsigned)s.slabs, (unsigned)(s.m_tiles * s.k_tiles));
  weight_kernel<T, MT, NT><<<grid, 32 * WEIGHT_WARPS, bytes, stream>>>(a);
  return brim_cuda_launched("skinny weight gradient");
}

template <typename T, int MT>
static brim_status choose_weight(cudaStream_t stream, const weight_args &a, const weight_shape &s) {
  if (a.k <= 16) return launch_weight<T, MT, 1>(stream, a, s);
  if (a.k <= 32) return launch_weight<T, MT, 2>(stream, a, s);
  return launch_weight<T, MT, 4>(stream, a, s);
}

template <typename T>
static brim_status run_weight(const brim_cuda *d, cudaStream_t stream, const brim_op_call *c) {
  weight_shape s = shape_weight(d, c);
  weight_args a;
  a.dy = (const uint16_t *)c->in[0].data;
  a.x = (const uint16_t *)c->in[1].data;
  a.part = (float *)c->workspace;
  a.rows = linear_rows(&c->in[0]);
  a.per = s.per;
  a.m = (int)linear_last(&c->in[0]);
  a.k = (int)linear_last(&c->in[1]);
  a.m_tiles = s.m_tiles;
  if (a.m <= 16) {
    BRIM_TRY((choose_weight<T, 1>(stream, a, s)));
  } else if (a.m <= 32) {
    BRIM_TRY((choose_weight<T, 2>(stream, a, s)));
  } else if (a.m <= 48) {
    BRIM_TRY((choose_weight<T, 3>(stream, a, s)));
  } else {
    BRIM_TRY((choose_weight<T, 4>(stream, a, s)));
  }
  int64_t count = (int64_t)a.m * a.k, stride = count + a.m;
  BRIM_TRY(brim_cuda_sum_slabs(stream, a.part, s.slabs, stride, count, (float *)c->out[0].data,
                               c->attr.accumulate));
  if (!brim_cuda_has(&c->out[1], 1, c->out_count)) return BRIM_OK;
  return brim_cuda_sum_slabs(stream, a.part + count, s.slabs, stride, a.m, (float *)c->out[1].data,
                             c->attr.accumulate);
}

//---------------------------------- which shapes ----------------------------------

// Rows below this are no slab worth having; columns move in groups of four. Few outputs (those of a
// policy or a value) may be any number where there are many rows: cuBLASLt finds no kernel there
// that reads whole vectors, and fuses no tanh'.
enum {
  MIN_ROWS = 64,
  MAX_INNER = 128,
  MAX_OUTER = 256,
  WIN_COLUMNS = 128,
  ODD_OUTPUTS = 16,
  ODD_ROWS = 4096
};

static bool usable(const brim_op_call *c, int64_t *k, int64_t *m) {
  brim_dtype type = c->in[0].dtype;
  bool weight = c->op == BRIM_OP_LINEAR_BWD_WEIGHT;
  *m = weight ? linear_last(&c->in[0]) : c->in[1].dim[0];
  *k = weight ? linear_last(&c->in[1]) : c->in[1].dim[1];
  int64_t rows = linear_rows(&c->in[0]);
  bool odd = *m <= ODD_OUTPUTS && rows >= ODD_ROWS;
  return (type == BRIM_BF16 || type == BRIM_F16) && rows >= MIN_ROWS && *k % 4 == 0 &&
         (*m % 4 == 0 || odd);
}

bool brim_cuda_skinny_fits(const brim_op_call *c) {
  int64_t k, m;
  if (!usable(c, &k, &m)) return false;
  if (c->op == BRIM_OP_LINEAR_BWD_WEIGHT) return k <= MAX_OUTER && m <= MAX_OUTER;
  int64_t inner = c->op == BRIM_OP_LINEAR ? k : m, outer = c->op == BRIM_OP_LINEAR ? m : k;
  return inner <= MAX_INNER && outer <= MAX_OUTER;
}

bool brim_cuda_skinny_wins(const brim_op_call *c) {
  int64_t k, m;
  return usable(c, &k, &m) && k <= WIN_COLUMNS && m <= WIN_COLUMNS;
}

size_t brim_cuda_skinny_workspace(const brim_cuda *d, const brim_op_call *c) {
  if (c->op != BRIM_OP_LINEAR_BWD_WEIGHT) return 0;
  weight_shape s = shape_weight(d, c);
  int64_t m = linear_last(&c->in[0]), k = linear_last(&c->in[1]);
  return (size_t)(s.slabs * (m * k + m)) * sizeof(float);
}

brim_status brim_cuda_skinny_run(brim_cuda *d, cudaStream_t stream, const brim_op_call *c) {
  bool bf16 = c->in[0].dtype == BRIM_BF16;
  if (c->op == BRIM_OP_LINEAR_BWD_WEIGHT) {
    return bf16 ? run_weight<__nv_bfloat16>(d, stream, c) : run_weight<__half>(d, stream, c);
  }
  if (brim_cuda_few_fits(c)) return brim_cuda_few_run(d, stream, c);
  return bf16 ? run_rows<__nv_bfloat16>(d, stream, c) : run_rows<__half>(d, stream, c);
}
