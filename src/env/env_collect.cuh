// Collected rollouts of an environment on a GPU, a template over its header like env_collect_each.h, without
// include guard: the .cu that has env_each.cuh includes this behind it and gets the table
// brim_NAME_collect_cuda. Blocks copy the states they work on to shared memory, whole lines at a time.
//   look    a lane for each agent, a warp for each index: the branches of an observation are the same in
//           all lanes. Numbers go through shared memory and leave it line by line. Flags (env_step.h) go
//           through it as bits
//   step    a thread for each environment; states lie an odd number of words apart, so that threads of a
//           warp meet no bank twice
#include "env/env_collect_kernel.cuh"
#include "env/env_collect_step.h"

struct BRIM_ENV(collect_call) {
  BRIM_ENV(values) env;
  brim_collect_task c;
  brim_collect_view view;
  int64_t rows;  // that exist
  int32_t t, rule;
  int32_t each;           // environments, or rows, of a block
  int32_t stride;         // bytes from one state to the next in shared memory
  int32_t acts, gains;    // words of an environment's actions and of its rewards, behind the states
  uint32_t by_agents;     // collect_divide
  collect_pieces pieces;  // of the actor's view
};

extern __shared__ uint4 BRIM_ENV(collect_shared)[];

// Bytes from one state to the next where every thread has one: as many units as the state's alignment
// demands, and an odd number of them.
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
    collect_keep(c, shared, p.stride, final, first, count);
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
    return env_cuda_fail(BRIM_EUNSUPPORTED,
                         BRIM_N_("a state of %d bytes does not fit into a GPU's shared memory"),
                         stored);
  }
  brim_collect_layout_of(shape, stored, out);
  return BRIM_OK;
}

// A call with all that every kernel needs.
static brim_status BRIM_ENV(collect_prepare)(const brim_collect_shape *shape, void *block,
                                             brim_collect_layout *at, BRIM_ENV(collect_call) * p) {
  BRIM_TRY(BRIM_ENV(collect_cuda_layout)(shape, at));
  memset((void *)p, 0, sizeof *p);
  memcpy(&p->env, shape->env.bytes, sizeof p->env);
  p->c = brim_collect_task_of(shape, at, BRIM_ENV(stored)(&p->env), block);
  p->rows = (int64_t)at->slots * shape->num_envs;
  p->by_agents = collect_divisor(p->c.agents);
  return env_cuda_enter(block, "mappo.collect: the device's memory");
}

// A thread for each environment: as many of a warp's as fit.
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
  BRIM_TRY(env_cuda_check(
      cudaMemsetAsync((char *)block + at.saved[1].offset, 0, at.saved[1].bytes, stream),
      "mappo.collect: reset"));
  BRIM_ENV(collect_reset_kernel)<<<collect_blocks(p.c.envs, p.each), COLLECT_THREADS,
                                   (size_t)(p.each * p.stride), stream>>>(p);
  return env_cuda_check(cudaGetLastError(), "mappo.collect: reset");
}

static brim_status BRIM_ENV(collect_cuda_begin)(const brim_rollout_where *where,
                                                const brim_collect_shape *shape, void *block) {
  BRIM_ENV(collect_call) p;
  brim_collect_layout at;
  BRIM_TRY(BRIM_ENV(collect_prepare)(shape, block, &at, &p));
  return collect_begin(&p.c, (cudaStream_t)where->stream);
}

// What a block of `look` has: rows, and bytes of shared memory for their states and behind those for
// whichever output takes most.
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
  if (problem) return env_cuda_fail(BRIM_EINVAL, "%s", env_cuda_tr(problem));
  if (view->count < 1) return BRIM_OK;
  p.view = *view;
  const size_t bytes = BRIM_ENV(collect_divide_look)(&p);
  BRIM_ENV(collect_look_kernel)<<<collect_blocks(view->count, p.each), COLLECT_LOOKS, bytes,
                                  (cudaStream_t)where->stream>>>(p);
  return env_cuda_check(cudaGetLastError(), "mappo.collect: look");
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
  return env_cuda_check(cudaGetLastError(), "mappo.collect: choose");
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
  return env_cuda_check(cudaGetLastError(), "mappo.collect: step");
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
