// Collected rollouts of an environment on a GPU: a template over its header, like rl_collect_each.h. The .cu
// file that includes rl_rollout_each.cuh includes this file after it and gets the table brim_NAME_collect_cuda.
// Blocks copy the states they work on to shared memory, whole lines at a time.
//   look  a lane for each agent, a warp for each index: all lanes take the same branches of an observation.
//         Numbers are collected in shared memory and written line by line; flags (env_step.h) stay bits there
//   step  a thread for each environment; states lie an odd number of words apart, so the threads of a warp
//         never use the same bank
// The part before the include of rl_collect_step.h is the same for every environment: it moves states, writes
// numbers and adds them up.
#ifndef BRIM_RL_COLLECT_EACH_CUH_
#define BRIM_RL_COLLECT_EACH_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

#include "rl/rl_collect_plan.h"
#include "rl/rl_host.cuh"

// Blocks of the `look` kernel per multiprocessor, as many as it has threads for. 8: one pass takes 16,384
// environments on an H200.
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 870 || __CUDA_ARCH__ == 890)
enum { COLLECT_LOOK_BLOCKS = 6 };
#else
enum { COLLECT_LOOK_BLOCKS = 8 };
#endif

enum {
  // Threads of a block of the `step` kernel, which takes up to 32 environments: one warp steps, all warps copy.
  // 16,384 environments are 512 such blocks, four for each of an H200's 132 multiprocessors, a warp per scheduler.
  COLLECT_THREADS = 128,
  COLLECT_ENVS = 32,
  COLLECT_LOOKS = 256,  // threads of a block of the `look` kernel
  COLLECT_ROWS = 64,    // most states of such a block
  COLLECT_TILE = 160,   // rows of an output in shared memory
  COLLECT_WIDE = 32,
  // odd, so that a warp writes a column without using a bank twice
  COLLECT_PITCH = COLLECT_WIDE + 1,
  COLLECT_SHARED = 46 << 10  // a little below the shared memory that every block may use
};

static_assert(sizeof(brim_collect_tally) == 8 * BRIM_COLLECT_WORDS, "a tally is words");
static_assert(sizeof(brim_collect_track) == 16, "a track is read at once");

//---------------------------------- arithmetic ----------------------------------

// A factor for collect_divide: ceil(2^32 / d), so that n / d is the high half of n * factor for n * d < 2^32.
// For d = 1 there is no such factor: returns 0.
static uint32_t collect_divisor(int32_t d) {
  return d == 1 ? 0u : (uint32_t)((((uint64_t)1 << 32) + (uint64_t)d - 1) / (uint64_t)d);
}

__device__ static inline int32_t collect_divide(int32_t n, uint32_t by) {
  return by ? (int32_t)__umulhi((uint32_t)n, by) : n;
}

static unsigned collect_blocks(int64_t count, int32_t each) {
  return (unsigned)((count + each - 1) / each);
}

// Returns how many environments a block can have with `bytes` bytes of shared memory each; 0 = none fits.
static int32_t collect_fit(int32_t bytes) {
  int32_t envs = COLLECT_ENVS;
  while (envs > 0 && envs * bytes > COLLECT_SHARED) envs /= 2;
  return envs;
}

// Returns how many states a block of the `look` kernel takes; each state has `lanes` rows of an output.
static int32_t collect_rows_of(const brim_collect_task *c, int32_t lanes) {
  const int32_t tile = COLLECT_TILE * COLLECT_PITCH * 4;
  const int32_t limits[] = {COLLECT_TILE / lanes, (COLLECT_SHARED - tile) / c->state_bytes};
  int32_t rows = COLLECT_ROWS;
  for (int i = 0; i < 2; i++) {
    if (limits[i] < rows) rows = limits[i];
  }
  return rows < 1 ? 1 : rows;
}

// Returns the bytes of a tile for `rows` rows of an output.
static int32_t collect_tile_bytes(int32_t rows) {
  return (rows < COLLECT_TILE ? rows : COLLECT_TILE) * COLLECT_PITCH * 4;
}

//---------------------------------- states ----------------------------------

// Starts to copy the states of `count` environments to shared memory, `stride` bytes apart. They are there after
// collect_wait.
__device__ static inline void collect_load(const brim_collect_task *c, char *shared, int32_t stride,
                                           int64_t row, int32_t count) {
  const int32_t words = c->stored / 4;
  const char *from = brim_collect_state(c, row);
  const int32_t warp = (int32_t)threadIdx.x / 32, warps = (int32_t)blockDim.x / 32;
  for (int32_t e = warp; e < count; e += warps) {
    const char *at = from + (int64_t)e * c->state_bytes;
    char *to = shared + e * stride;
    for (int32_t w = (int32_t)threadIdx.x % 32; w < words; w += 32) {
      __pipeline_memcpy_async(to + 4 * w, at + 4 * w, 4);
    }
  }
}

// Starts to copy `each` words of `count` environments, which lie side by side in memory.
__device__ static inline void collect_words(int32_t *shared, int32_t stride, const int32_t *from,
                                            int32_t each, int32_t count, uint32_t by_each) {
  for (int32_t i = (int32_t)threadIdx.x; i < each * count; i += (int32_t)blockDim.x) {
    const int32_t e = collect_divide(i, by_each);
    __pipeline_memcpy_async(shared + e * stride + (i - e * each), from + i, 4);
  }
}

__device__ static inline void collect_wait(void) {
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
}

// Writes one state to a row, by a warp. Bytes after `stored` become 0.
__device__ static inline void collect_store_one(const brim_collect_task *c, const char *from,
                                                int64_t row) {
  int32_t *to = (int32_t *)brim_collect_state(c, row);
  const int32_t words = c->stored / 4, all = c->state_bytes / 4;
  for (int32_t w = (int32_t)threadIdx.x % 32; w < all; w += 32) {
    to[w] = w < words ? ((const int32_t *)from)[w] : 0;
  }
}

__device__ static inline void collect_store(const brim_collect_task *c, const char *shared,
                                            int32_t stride, int64_t row, int32_t count) {
  const int32_t warp = (int32_t)threadIdx.x / 32, warps = (int32_t)blockDim.x / 32;
  for (int32_t e = warp; e < count; e += warps) collect_store_one(c, shared + e * stride, row + e);
}

// Keeps the final states of a step's truncated episodes. `final` belongs to this thread's environment.
__device__ static inline void collect_keep_finals(const brim_collect_task *c, const char *shared,
                                                  int32_t stride, int32_t final, int32_t first,
                                                  int32_t count) {
  __shared__ int32_t finals[COLLECT_ENVS];
  if ((int32_t)threadIdx.x < count) finals[threadIdx.x] = final;
  __syncthreads();
  const int32_t warp = (int32_t)threadIdx.x / 32, warps = (int32_t)blockDim.x / 32;
  for (int32_t e = warp; e < count; e += warps) {
    if (finals[e] < 0) continue;
    const int64_t row = (int64_t)(c->steps + 1 + finals[e]) * c->envs + first + e;
    collect_store_one(c, shared + e * stride, row);
  }
}

__device__ static inline void collect_rewards(float *to, int32_t each, const float *shared,
                                              int32_t stride, int32_t count) {
  for (int32_t i = (int32_t)threadIdx.x; i < each * count; i += (int32_t)blockDim.x) {
    const int32_t e = i / each;
    to[i] = shared[e * stride + (i - e * each)];
  }
}

// Copies the states of rows `first` .. of a view to shared memory, 16 bytes at a time, and notes in `exists` which
// rows exist.
__device__ static inline void collect_stage(const brim_collect_task *c,
                                            const brim_collect_view &view, int64_t rows,
                                            int64_t first, int32_t count, char *shared,
                                            int32_t *exists) {
  const int32_t chunks = c->state_bytes / 16;
  const int32_t warp = (int32_t)threadIdx.x / 32, warps = (int32_t)blockDim.x / 32;
  for (int32_t i = warp; i < count; i += warps) {
    const int64_t row = view.rows ? (int64_t)view.rows[first + i] : view.first + first + i;
    const bool there = row >= 0 && row < rows;
    if (threadIdx.x % 32 == 0) exists[i] = there;
    if (!there) continue;
    const char *from = brim_collect_state(c, row);
    for (int32_t w = (int32_t)threadIdx.x % 32; w < chunks; w += 32) {
      __pipeline_memcpy_async(shared + (i * chunks + w) * 16, from + 16 * w, 16);
    }
  }
  collect_wait();
}

//---------------------------------- numbers ----------------------------------

// Packs two numbers into a word of a 16-bit output.
__device__ static inline uint32_t collect_halves(int32_t dtype, float x, float y) {
  uint32_t bits;
  if (dtype == BRIM_BF16) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(x, y);
    memcpy(&bits, &both, sizeof bits);
  } else {
    const __half2 both = __floats2half2_rn(x, y);
    memcpy(&bits, &both, sizeof bits);
  }
  return bits;
}

// Writes `words` words of `count` rows of an output, from row `first` and word `from` on, out of the tile.
__device__ static inline void collect_write(const brim_collect_output &o, int64_t first,
                                            int32_t count, int32_t from, int32_t words,
                                            const uint32_t *tile) {
  const bool halves = o.dtype != BRIM_F32;
  // A warp writes several rows at once if its lanes suffice.
  const int32_t together = 32 / words, lane = (int32_t)threadIdx.x % 32;
  const int32_t skip = together > 1 ? lane / words : 0, word = lane - skip * words;
  const int32_t stride = (int32_t)blockDim.x / 32 * together;
  if (skip >= together || word >= words) return;
  for (int32_t n = (int32_t)threadIdx.x / 32 * together + skip; n < count; n += stride) {
    const uint32_t bits = tile[n * COLLECT_PITCH + word];
    if (!halves) {
      ((uint32_t *)o.data)[(first + n) * o.pitch + from + word] = bits;
    } else if (!(o.pitch & 1)) {
      ((uint32_t *)o.data)[(first + n) * (o.pitch / 2) + from + word] = bits;
    } else {  // rows that begin in the middle of a word
      uint16_t *to = (uint16_t *)o.data + (first + n) * o.pitch + 2 * (from + word);
      to[0] = (uint16_t)bits;
      if (2 * (from + word) + 1 < o.pitch) to[1] = (uint16_t)(bits >> 16);
    }
  }
}

// Writes rows first .. first + total - 1 of an output: `width` numbers each, number(n, index) of row first + n, and
// zeros after them. A warp computes one or two indices for all rows of a tile, a lane for each row, so that all
// lanes take the branches of an index together. With few rows, parts of a warp have indices of their own. Then the
// tile is written line by line.
template <class F>
__device__ static void collect_show(const brim_collect_output &o, int64_t first, int32_t total,
                                    int32_t width, uint32_t *tile, const F &number) {
  const bool halves = o.dtype != BRIM_F32;
  const int32_t each = halves ? 2 : 1, all = (o.pitch + each - 1) / each;
  const int32_t lane = (int32_t)threadIdx.x % 32, warp = (int32_t)threadIdx.x / 32;
  for (int32_t base = 0; base < total; base += COLLECT_TILE) {
    const int32_t count = min(COLLECT_TILE + 0, total - base);
    const int32_t span = count > 16 ? 32 : count > 8 ? 16 : 8, parts = 32 / span;
    for (int32_t from = 0; from < all; from += COLLECT_WIDE) {
      const int32_t words = min(COLLECT_WIDE + 0, all - from);
      for (int32_t word = warp * parts + lane / span; word < words;
           word += (int32_t)blockDim.x / span) {
        const int32_t index = (from + word) * each;
        for (int32_t n = lane % span; n < count; n += span) {
          const float x = index < width ? number(base + n, index) : 0.0f;
          const float y = halves && index + 1 < width ? number(base + n, index + 1) : 0.0f;
          tile[n * COLLECT_PITCH + word] =
              halves ? collect_halves(o.dtype, x, y) : __float_as_uint(x);
        }
      }
      __syncthreads();
      collect_write(o, first + base, count, from, words, tile);
      __syncthreads();
    }
  }
}

//---------------------------------- numbers that are 0 or 1 ----------------------------------

// Describes an output whose first numbers are flags (0 or 1). Threads write it in pieces of 16 bytes. Pieces that
// contain only flags are kept as bits in shared memory until they are written; other pieces are kept as written.
struct collect_pieces {
  int32_t rows;   // rows in shared memory at a time; 0 = the output is not written in pieces
  int32_t width;  // numbers of a row; zeros after them
  int32_t all;    // pieces of a row
  int32_t flags;  // pieces of a row that contain only flags; they come first
  // pieces from the non-flag pieces of one row to those of the next; odd, against bank conflicts
  int32_t rest;
  int32_t words;    // words of flag bits per row; odd
  uint32_t by_all;  // factor of collect_divide for `all`
};

static int32_t collect_piece_bytes(const collect_pieces &p) { return 16 * p.rest + 4 * p.words; }

// Plans the pieces of an output: the first `flags` of its `width` numbers are flags, and a block has `total` rows.
static collect_pieces collect_pieces_of(const brim_collect_output &o, int32_t flags, int32_t width,
                                        int32_t total) {
  const int32_t each = o.dtype == BRIM_F32 ? 4 : 8;
  collect_pieces p = {};
  if (flags < each || o.pitch % each != 0) return p;
  p.width = width;
  p.all = o.pitch / each;
  p.flags = flags / each;
  p.rest = (p.all - p.flags) | 1;
  p.words = (flags + 31) / 32 | 1;
  p.by_all = collect_divisor(p.all);
  const int32_t fit = COLLECT_TILE * COLLECT_PITCH * 4 / collect_piece_bytes(p) / 32 * 32;
  p.rows = total < fit ? total : fit;
  return p;
}

// Expands the lowest bits to a piece of an output: 4 numbers of 32 bits, or 8 of 16.
__device__ static inline uint4 collect_piece(int32_t dtype, uint32_t bits) {
  if (dtype == BRIM_F32) {
    const uint32_t one = 0x3f800000u;
    return make_uint4((bits & 1) * one, (bits >> 1 & 1) * one, (bits >> 2 & 1) * one,
                      (bits >> 3 & 1) * one);
  }
  const uint32_t one = dtype == BRIM_BF16 ? 0x3f80u : 0x3c00u, low = bits & 255;
  const uint32_t spread =
      low | low << 15;  // bits 0, 2, 4, 6 stay; bits 1, 3, 5, 7 move to 16, 18, 20, 22
  return make_uint4((spread & 0x10001u) * one, (spread >> 2 & 0x10001u) * one,
                    (spread >> 4 & 0x10001u) * one, (spread >> 6 & 0x10001u) * one);
}

// Returns a word of an output: number `index` of row n, in 16-bit outputs also the next one.
template <class F>
__device__ static inline uint32_t collect_word(int32_t dtype, int32_t width, int32_t n,
                                               int32_t index, const F &number) {
  const float x = index < width ? number(n, index) : 0.0f;
  if (dtype == BRIM_F32) return __float_as_uint(x);
  return collect_halves(dtype, x, index + 1 < width ? number(n, index + 1) : 0.0f);
}

// Like collect_show, for outputs with flags: flags(n, words) gives the flags of row first + n. A warp takes 32 rows
// at a time, a lane for each row, and computes their flags or one other piece. Then all pieces are written in
// order.
template <class F, class G>
__device__ static void collect_show_flags(const brim_collect_output &o, const collect_pieces &p,
                                          int64_t first, int32_t total, uint4 *tile,
                                          const F &number, const G &flags) {
  const int32_t each = o.dtype == BRIM_F32 ? 1 : 2;  // numbers of a word
  const int32_t lane = (int32_t)threadIdx.x % 32, warp = (int32_t)threadIdx.x / 32;
  uint32_t *bits = (uint32_t *)(tile + p.rows * p.rest);
  for (int32_t base = 0; base < total; base += p.rows) {
    const int32_t count = min(p.rows, total - base), groups = (count + 31) / 32;
    int32_t piece = p.flags - 1, group = warp;  // this piece number stands for all flags
    while (group >= groups) group -= groups, piece++;
    while (piece < p.all) {
      const int32_t n = group * 32 + lane;
      if (n < count && piece < p.flags) {
        flags(base + n, bits + n * p.words);
      } else if (n < count) {
        uint32_t *to = (uint32_t *)(tile + n * p.rest + piece - p.flags);
        for (int32_t k = 0; k < 4; k++) {
          to[k] = collect_word(o.dtype, p.width, base + n, (4 * piece + k) * each, number);
        }
      }
      group += (int32_t)blockDim.x / 32;
      while (group >= groups) group -= groups, piece++;
    }
    __syncthreads();
    uint4 *to = (uint4 *)o.data + (first + base) * p.all;
    for (int32_t i = (int32_t)threadIdx.x; i < count * p.all; i += (int32_t)blockDim.x) {
      const int32_t n = collect_divide(i, p.by_all), at = i - n * p.all, from = at * 4 * each;
      to[i] = at < p.flags ? collect_piece(o.dtype, bits[n * p.words + from / 32] >> (from & 31))
                           : tile[n * p.rest + at - p.flags];
    }
    __syncthreads();
  }
}

//---------------------------------- between rollouts ----------------------------------

__global__ static void collect_begin_kernel(const __grid_constant__ brim_collect_task c) {
  const int64_t chunks = (int64_t)c.envs * c.state_bytes / 16;
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  const uint4 *from = (const uint4 *)brim_collect_state(&c, (int64_t)c.steps * c.envs);
  if (i < chunks) ((uint4 *)c.states)[i] = from[i];
  if (i) return;
  c.clock->now = c.clock->next;
  c.clock->next += (uint64_t)c.steps;
}

static brim_status collect_begin(const brim_collect_task *c, cudaStream_t stream) {
  const int64_t chunks = (int64_t)c->envs * c->state_bytes / 16;
  collect_begin_kernel<<<collect_blocks(chunks, COLLECT_LOOKS), COLLECT_LOOKS, 0, stream>>>(*c);
  return rl_cuda_check(cudaGetLastError(), "mappo.collect: begin");
}

// A block for each part: it adds up its environments in order, a thread for each word.
__global__ static void collect_part_kernel(const __grid_constant__ brim_collect_task c,
                                           int32_t clear) {
  const int32_t word = (int32_t)threadIdx.x, first = (int32_t)blockIdx.x * BRIM_ROLLOUT_PART;
  const int32_t count = min(BRIM_ROLLOUT_PART, c.envs - first);
  if (word >= BRIM_COLLECT_WORDS) return;
  brim_collect_add_word(c.sums + first, count, word, c.parts + blockIdx.x);
  for (int32_t e = 0; clear && e < count; e++) ((uint64_t *)(c.sums + first + e))[word] = 0;
}

__global__ static void collect_tally_kernel(const __grid_constant__ brim_collect_task c) {
  const int32_t word = (int32_t)threadIdx.x;
  if (word < BRIM_COLLECT_WORDS) {
    brim_collect_add_word(c.parts, brim_rollout_parts(c.envs), word, c.tally);
  }
}

static brim_status collect_tally(const brim_collect_task *c, int32_t clear, cudaStream_t stream) {
  collect_part_kernel<<<(unsigned)brim_rollout_parts(c->envs), 32, 0, stream>>>(*c, clear);
  collect_tally_kernel<<<1, 32, 0, stream>>>(*c);
  return rl_cuda_check(cudaGetLastError(), "mappo.collect: tally");
}

//---------------------------------- what is refused ----------------------------------

static brim_status collect_refuse(const brim_collect_shape *shape) {
  const char *problem = brim_collect_problem(shape);
  // a plug-in's text may have a %
  return problem ? rl_cuda_fail(BRIM_EINVAL, "%s", rl_cuda_tr(problem)) : BRIM_OK;
}

static brim_status collect_check_step(const brim_collect_shape *shape, int32_t t) {
  if (t >= 0 && t < shape->steps) return BRIM_OK;
  return rl_cuda_fail(BRIM_EINVAL, BRIM_N_("step %d is not one of the %d of a rollout"), t,
                      shape->steps);
}

static brim_status collect_check_rule(const brim_collect_shape *shape, int32_t rule) {
  int32_t rules = 0;
  while (shape->row->rules && shape->row->rules[rules]) rules++;
  if (rule >= 0 && rule <= rules) return BRIM_OK;
  return rl_cuda_fail(BRIM_EINVAL, BRIM_N_("baseline %d is not one of the %d of environment %s"),
                      rule, rules, shape->row->name);
}

#endif  // BRIM_RL_COLLECT_EACH_CUH_

#include "rl/rl_collect_step.h"

struct BRIM_ENV(collect_call) {
  BRIM_ENV(values) env;
  brim_collect_task c;
  brim_collect_view view;
  int64_t rows;  // number of rows that exist
  int32_t t, rule;
  int32_t each;           // environments or rows per block
  int32_t stride;         // bytes from one state to the next in shared memory
  int32_t acts, gains;    // words of an environment's actions and rewards, which follow the states
  uint32_t by_agents;     // factor of collect_divide for agents
  collect_pieces pieces;  // pieces of the actor's output
};

extern __shared__ uint4 BRIM_ENV(collect_shared)[];

// Returns the bytes from one state to the next if every thread has a state: an odd number of units, where a unit is
// the state's alignment.
static int32_t BRIM_ENV(collect_stride)(int32_t stored) {
  const int32_t unit = alignof(BRIM_ENV(state)) > 4 ? (int32_t)alignof(BRIM_ENV(state)) : 4;
  return ((stored + unit - 1) / unit | 1) * unit;
}

//---------------------------------- steps ----------------------------------

__global__ void __launch_bounds__(COLLECT_THREADS)
    BRIM_ENV(collect_reset_kernel)(const __grid_constant__ BRIM_ENV(collect_call) p) {
  const brim_collect_task *c = &p.c;
  char *shared = (char *)BRIM_ENV(collect_shared);
  const int32_t first = (int32_t)blockIdx.x * p.each, env = first + (int32_t)threadIdx.x;
  const int32_t count = min(p.each, c->envs - first);
  if ((int32_t)threadIdx.x < count) {
    BRIM_ENV(state) *s = (BRIM_ENV(state) *)(shared + (int32_t)threadIdx.x * p.stride);
    BRIM_ENV(collect_start)(c, &p.env, env, &c->tracks[env], s);
    c->episodes[env].outcome = BRIM_ENV_RUNNING;
  }
  __syncthreads();
  for (int64_t row = (int64_t)c->steps * c->envs + first; row < p.rows; row += c->envs) {
    collect_store(c, shared, p.stride, row, count);
  }
}

__global__ void __launch_bounds__(COLLECT_THREADS)
    BRIM_ENV(collect_step_kernel)(const __grid_constant__ BRIM_ENV(collect_call) p) {
  const brim_collect_task *c = &p.c;
  char *shared = (char *)BRIM_ENV(collect_shared);
  int32_t *acts = (int32_t *)(shared + p.each * p.stride);
  float *gains = (float *)(acts + p.each * p.acts);
  const int32_t lane = (int32_t)threadIdx.x, first = (int32_t)blockIdx.x * p.each;
  const int32_t count = min(p.each, c->envs - first);
  const int64_t from = (int64_t)p.t * c->envs + first;
  collect_load(c, shared, p.stride, from, count);
  collect_words(acts, p.acts, c->action + from * c->agents, c->agents, count, p.by_agents);
  collect_wait();

  const int32_t env = first + lane;
  BRIM_ENV(state) *s = (BRIM_ENV(state) *)(shared + lane * p.stride);
  float *gain = gains + lane * p.gains;
  brim_collect_track k;
  int32_t over = BRIM_ENV_RUNNING, final = -1;
  if (lane < count) {
    k = c->tracks[env];
    if (k.step < 0) {
      for (int32_t i = 0; i < c->rewards; i++) gain[i] = 0.0f;
    } else {
      over = BRIM_ENV(collect_move)(c, &p.env, env, &k, s, acts + lane * p.acts, gain);
      if (over != BRIM_ENV_RUNNING) BRIM_ENV(collect_note)(c, &p.env, env, &k, s, over);
      final = brim_collect_final(c, p.t, over);
    }
    c->end[from + lane] = (int8_t)over;
    c->final[from + lane] = final;
  }
  if (__syncthreads_or(over != BRIM_ENV_RUNNING)) {
    collect_keep_finals(c, shared, p.stride, final, first, count);
    __syncthreads();
    if (over != BRIM_ENV_RUNNING) BRIM_ENV(collect_next)(c, &p.env, env, &k, s, over);
    __syncthreads();
  }
  if (lane < count) c->tracks[env] = k;
  collect_store(c, shared, p.stride, from + c->envs, count);
  collect_rewards(c->reward + from * c->rewards, c->rewards, gains, p.gains, count);
}

//---------------------------------- what networks read ----------------------------------

__device__ static void BRIM_ENV(collect_show_actor)(const BRIM_ENV(collect_call) & p,
                                                    const char *shared, const int32_t *exists,
                                                    int64_t first, int32_t count, uint32_t *tile) {
  const int32_t agents = p.c.agents, total = count * agents;
  const auto number = [&](int32_t n, int32_t index) {
    const int32_t row = collect_divide(n, p.by_agents);
    const BRIM_ENV(state) *s = (const BRIM_ENV(state) *)(shared + row * p.stride);
    return exists[row] ? BRIM_ENV(sees)(&p.env, s, n - row * agents, index) : 0.0f;
  };
  if (p.pieces.rows < 1) {
    collect_show(p.view.actor, first * agents, total, p.c.obs, tile, number);
    return;
  }
  const auto flags = [&](int32_t n, uint32_t *bits) {
    const int32_t row = collect_divide(n, p.by_agents);
    const BRIM_ENV(state) *s = (const BRIM_ENV(state) *)(shared + row * p.stride);
    if (exists[row]) {
      BRIM_ENV(flags)(&p.env, s, n - row * agents, bits);
    } else {
      for (int32_t w = 0; w < p.pieces.words; w++) bits[w] = 0;
    }
  };
  collect_show_flags(p.view.actor, p.pieces, first * agents, total, (uint4 *)tile, number, flags);
}

__device__ static void BRIM_ENV(collect_show_critic)(const BRIM_ENV(collect_call) & p,
                                                     const char *shared, const int32_t *exists,
                                                     int64_t first, int32_t count, uint32_t *tile) {
  collect_show(p.view.critic, first, count, p.c.critic, tile, [&](int32_t row, int32_t index) {
    const BRIM_ENV(state) *s = (const BRIM_ENV(state) *)(shared + row * p.stride);
    return exists[row] ? BRIM_ENV(collect_critic)(&p.c, &p.env, s, index) : 0.0f;
  });
}

__global__ void __launch_bounds__(COLLECT_LOOKS, COLLECT_LOOK_BLOCKS)
    BRIM_ENV(collect_look_kernel)(const __grid_constant__ BRIM_ENV(collect_call) p) {
  __shared__ int32_t exists[COLLECT_ROWS];
  char *shared = (char *)BRIM_ENV(collect_shared);
  const int64_t first = (int64_t)blockIdx.x * p.each;
  const int32_t count = (int32_t)min((int64_t)p.each, p.view.count - first);
  collect_stage(&p.c, p.view, p.rows, first, count, shared, exists);
  uint32_t *tile = (uint32_t *)(shared + p.each * p.stride);
  if (p.view.actor.data) BRIM_ENV(collect_show_actor)(p, shared, exists, first, count, tile);
  if (p.view.critic.data) BRIM_ENV(collect_show_critic)(p, shared, exists, first, count, tile);
  if (!p.view.mask) return;
  for (int32_t n = (int32_t)threadIdx.x; n < count * p.c.agents; n += (int32_t)blockDim.x) {
    const int32_t row = collect_divide(n, p.by_agents), agent = n - row * p.c.agents;
    const BRIM_ENV(state) *s = (const BRIM_ENV(state) *)(shared + row * p.stride);
    p.view.mask[first * p.c.agents + n] =
        exists[row] ? BRIM_ENV(mask)(&p.env, s, agent) : (uint64_t)1;
  }
}

__global__ void __launch_bounds__(COLLECT_LOOKS)
    BRIM_ENV(collect_choose_kernel)(const __grid_constant__ BRIM_ENV(collect_call) p) {
  __shared__ int32_t exists[COLLECT_ROWS];
  char *shared = (char *)BRIM_ENV(collect_shared);
  const int32_t first = (int32_t)blockIdx.x * p.each;
  const int32_t count = min(p.each, p.c.envs - first);
  collect_stage(&p.c, p.view, p.rows, first, count, shared, exists);
  for (int32_t n = (int32_t)threadIdx.x; n < count * p.c.agents; n += (int32_t)blockDim.x) {
    const int32_t row = collect_divide(n, p.by_agents), agent = n - row * p.c.agents;
    const BRIM_ENV(state) *s = (const BRIM_ENV(state) *)(shared + row * p.stride);
    p.c.action[((int64_t)p.t * p.c.envs + first) * p.c.agents + n] =
        BRIM_ENV(collect_choose)(&p.c, &p.env, first + row, agent, s, p.rule);
  }
}

//---------------------------------- the table ----------------------------------

static brim_status BRIM_ENV(collect_cuda_layout)(const brim_collect_shape *shape,
                                                 brim_collect_layout *out) {
  BRIM_TRY(collect_refuse(shape));
  BRIM_ENV(values) v;
  memcpy(&v, shape->env.bytes, sizeof v);
  const int32_t stored = BRIM_ENV(stored)(&v);
  if (collect_fit(BRIM_ENV(collect_stride)(stored) + 8 * (BRIM_ENV(AGENTS) + 1)) < 1) {
    return rl_cuda_fail(BRIM_EUNSUPPORTED,
                        BRIM_N_("a state of %d bytes does not fit into a GPU's shared memory"),
                        stored);
  }
  brim_collect_layout_of(shape, stored, out);
  return BRIM_OK;
}

// Fills a call with the values that every kernel needs.
static brim_status BRIM_ENV(collect_prepare)(const brim_collect_shape *shape, void *block,
                                             brim_collect_layout *at, BRIM_ENV(collect_call) * p) {
  BRIM_TRY(BRIM_ENV(collect_cuda_layout)(shape, at));
  memset((void *)p, 0, sizeof *p);
  memcpy(&p->env, shape->env.bytes, sizeof p->env);
  p->c = brim_collect_task_of(shape, at, BRIM_ENV(stored)(&p->env), block);
  p->rows = (int64_t)at->slots * shape->num_envs;
  p->by_agents = collect_divisor(p->c.agents);
  return rl_cuda_enter(block, "mappo.collect: the device's memory");
}

// Gives each environment a thread: a block takes as many environments as fit, at most a warp.
static void BRIM_ENV(collect_spread)(BRIM_ENV(collect_call) * p) {
  p->stride = BRIM_ENV(collect_stride)(p->c.stored);
  p->acts = p->c.agents | 1;
  p->gains = p->c.rewards | 1;
  p->each = collect_fit(p->stride + 4 * (p->acts + p->gains));
}

static brim_status BRIM_ENV(collect_cuda_reset)(const brim_rollout_where *where,
                                                const brim_collect_shape *shape, void *block) {
  BRIM_ENV(collect_call) p;
  brim_collect_layout at;
  BRIM_TRY(BRIM_ENV(collect_prepare)(shape, block, &at, &p));
  BRIM_ENV(collect_spread)(&p);
  const cudaStream_t stream = (cudaStream_t)where->stream;
  BRIM_TRY(rl_cuda_check(
      cudaMemsetAsync((char *)block + at.saved[1].offset, 0, at.saved[1].bytes, stream),
      "mappo.collect: reset"));
  BRIM_ENV(collect_reset_kernel)<<<collect_blocks(p.c.envs, p.each), COLLECT_THREADS,
                                   (size_t)(p.each * p.stride), stream>>>(p);
  return rl_cuda_check(cudaGetLastError(), "mappo.collect: reset");
}

static brim_status BRIM_ENV(collect_cuda_begin)(const brim_rollout_where *where,
                                                const brim_collect_shape *shape, void *block) {
  BRIM_ENV(collect_call) p;
  brim_collect_layout at;
  BRIM_TRY(BRIM_ENV(collect_prepare)(shape, block, &at, &p));
  return collect_begin(&p.c, (cudaStream_t)where->stream);
}

// Sets the rows of a block of the `look` kernel. Returns its bytes of shared memory: the states, and after them
// room for the larger output.
static size_t BRIM_ENV(collect_divide_look)(BRIM_ENV(collect_call) * p) {
  const brim_collect_view *view = &p->view;
  const int32_t lanes = view->actor.data || view->mask ? p->c.agents : 1;
  p->stride = p->c.state_bytes;
  p->each = collect_rows_of(&p->c, lanes);
  int32_t tile = view->critic.data ? collect_tile_bytes(p->each) : 0, actor = 0;
  if (view->actor.data) {
    const int32_t total = p->each * p->c.agents;
    const int32_t flags = BRIM_ENV(flags)(&p->env, NULL, 0, NULL);
    p->pieces = collect_pieces_of(view->actor, flags, p->c.obs, total);
    actor = p->pieces.rows ? p->pieces.rows * collect_piece_bytes(p->pieces)
                           : collect_tile_bytes(total);
  }
  if (actor > tile) tile = actor;
  return (size_t)(p->each * p->stride + tile);
}

static brim_status BRIM_ENV(collect_cuda_look)(const brim_rollout_where *where,
                                               const brim_collect_shape *shape, void *block,
                                               const brim_collect_view *view) {
  BRIM_ENV(collect_call) p;
  brim_collect_layout at;
  BRIM_TRY(BRIM_ENV(collect_prepare)(shape, block, &at, &p));
  const char *problem = brim_collect_view_problem(&at, shape->num_envs, p.c.obs, view);
  if (problem) return rl_cuda_fail(BRIM_EINVAL, "%s", rl_cuda_tr(problem));
  if (view->count < 1) return BRIM_OK;
  p.view = *view;
  const size_t bytes = BRIM_ENV(collect_divide_look)(&p);
  BRIM_ENV(collect_look_kernel)<<<collect_blocks(view->count, p.each), COLLECT_LOOKS, bytes,
                                  (cudaStream_t)where->stream>>>(p);
  return rl_cuda_check(cudaGetLastError(), "mappo.collect: look");
}

static brim_status BRIM_ENV(collect_cuda_choose)(const brim_rollout_where *where,
                                                 const brim_collect_shape *shape, void *block,
                                                 int32_t t, int32_t rule) {
  BRIM_ENV(collect_call) p;
  brim_collect_layout at;
  BRIM_TRY(BRIM_ENV(collect_prepare)(shape, block, &at, &p));
  BRIM_TRY(collect_check_step(shape, t));
  BRIM_TRY(collect_check_rule(shape, rule));
  p.t = t;
  p.rule = rule;
  p.view.first = (int64_t)t * shape->num_envs;
  p.view.count = shape->num_envs;
  p.stride = p.c.state_bytes;
  p.each = collect_rows_of(&p.c, p.c.agents);
  BRIM_ENV(collect_choose_kernel)<<<collect_blocks(p.c.envs, p.each), COLLECT_LOOKS,
                                    (size_t)(p.each * p.stride), (cudaStream_t)where->stream>>>(p);
  return rl_cuda_check(cudaGetLastError(), "mappo.collect: choose");
}

static brim_status BRIM_ENV(collect_cuda_step)(const brim_rollout_where *where,
                                               const brim_collect_shape *shape, void *block,
                                               int32_t t) {
  BRIM_ENV(collect_call) p;
  brim_collect_layout at;
  BRIM_TRY(BRIM_ENV(collect_prepare)(shape, block, &at, &p));
  BRIM_TRY(collect_check_step(shape, t));
  BRIM_ENV(collect_spread)(&p);
  p.t = t;
  BRIM_ENV(collect_step_kernel)<<<collect_blocks(p.c.envs, p.each), COLLECT_THREADS,
                                  (size_t)(p.each * (p.stride + 4 * (p.acts + p.gains))),
                                  (cudaStream_t)where->stream>>>(p);
  return rl_cuda_check(cudaGetLastError(), "mappo.collect: step");
}

static brim_status BRIM_ENV(collect_cuda_tally)(const brim_rollout_where *where,
                                                const brim_collect_shape *shape, void *block,
                                                int32_t clear) {
  BRIM_ENV(collect_call) p;
  brim_collect_layout at;
  BRIM_TRY(BRIM_ENV(collect_prepare)(shape, block, &at, &p));
  return collect_tally(&p.c, clear, (cudaStream_t)where->stream);
}

extern "C" {
extern const brim_collect_table BRIM_ENV(collect_cuda);
const brim_collect_table BRIM_ENV(collect_cuda) = {
    BRIM_COLLECT_ABI,
    BRIM_ENV(collect_cuda_layout),
    BRIM_ENV(collect_cuda_reset),
    BRIM_ENV(collect_cuda_begin),
    BRIM_ENV(collect_cuda_look),
    BRIM_ENV(collect_cuda_choose),
    BRIM_ENV(collect_cuda_step),
    BRIM_ENV(collect_cuda_tally),
};
}
