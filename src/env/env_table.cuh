// The table of an environment's rollouts on a GPU (brim_rollout_table) around its kernel: a template over
// a class E with
//   values                                        the environment's struct
//   hidden(shape, bytes)                          the largest hidden layer, up to the shape's, whose
//                                                 policy fits into so much shared memory of a block
//   launch(task, evaluate, blocks, stream)           one block for each part
// The update's kernels are env_ars.cuh. Each environment's .cu has its own copy of all of it.
#ifndef BRIM_ENV_TABLE_CUH_
#define BRIM_ENV_TABLE_CUH_

#include "env/env_ars.cuh"
#include "env/env_host.cuh"

//---------------------------------- for kernels ----------------------------------

template <class V>
struct env_task {
  V env;
  int32_t hidden, steps, filter, once, zero;
  int32_t envs;   // of a (direction, sign), or of an evaluation
  int32_t parts;  // of them
  int32_t first_dir;
  int64_t iteration;
  float noise;
  uint64_t delta_key, start_key, event_key;
  const float *theta, *normal;
  void *part;                      // brim_env_found, of a rollout
  brim_rollout_episode *episodes;  // of an evaluation
  float *figures;                  // of its episodes
};

// theta +- noise * delta, as rollouts read it.
template <class V>
__device__ static void env_build_policy(const env_task<V> &t, brim_env_net net, int32_t dir,
                                        float noise, float *policy) {
  const int32_t params = brim_env_params(net);
  // Rows have gaps, and what is read with them has to be a number.
  for (int32_t i = (int32_t)threadIdx.x; i < brim_env_packed(net); i += (int32_t)blockDim.x) {
    policy[i] = 0.0f;
  }
  __syncthreads();
  for (int32_t quad = (int32_t)threadIdx.x; 4 * quad < params; quad += (int32_t)blockDim.x) {
    float delta[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (noise != 0.0f) brim_env_delta(t.delta_key, t.iteration, dir, quad, delta);
    for (int j = 0; j < 4 && 4 * quad + j < params; j++) {
      policy[brim_env_pack(net, 4 * quad + j)] = brim_fmaf(noise, delta[j], t.theta[4 * quad + j]);
    }
  }
}

// A launch with so much dynamic shared memory, where that is more than a block has without asking.
template <class K>
static brim_status env_cuda_allow(K kernel, size_t bytes) {
  cudaFuncAttributes has;
  BRIM_TRY(env_cuda_check(cudaFuncGetAttributes(&has, kernel), "ars.rollout: shared memory"));
  // What a block may have without asking is of static and dynamic memory together.
  if (has.sharedSizeBytes + bytes <= (size_t)48 << 10) return BRIM_OK;
  // Large policies: as many blocks side by side as registers allow.
  BRIM_TRY(
      env_cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                          cudaSharedmemCarveoutMaxShared),
                     "ars.rollout: shared memory"));
  return env_cuda_check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
      "ars.rollout: shared memory");
}

//---------------------------------- the table ----------------------------------

static inline brim_status env_cuda_refuse(const brim_rollout_shape *shape) {
  const char *problem = brim_env_problem(shape);
  // a plug-in's text may have a %
  return problem ? env_cuda_fail(BRIM_EINVAL, "%s", env_cuda_tr(problem)) : BRIM_OK;
}

template <class E>
struct env_cuda_table {
  // A block's policy lies in shared memory, of which GPUs have 48 to 227 KiB for one block. Asked of the
  // device this thread works with.
  static brim_status refuse_large(const brim_rollout_shape *shape) {
    int device, most;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) !=
            cudaSuccess) {
      cudaGetLastError();  // no GPU: nothing runs here, and that is reported elsewhere
      return BRIM_OK;
    }
    const int32_t hidden = E::hidden(shape, (size_t)most);
    if (hidden == shape->hidden) return BRIM_OK;
    if (hidden < 1) {
      const brim_env_sizes z = brim_env_sizes_of(shape);
      return env_cuda_fail(
          BRIM_EUNSUPPORTED,
          BRIM_N_("a policy from %d observations to %d actions does not fit into "
                  "the %d KiB of shared memory that this GPU has for a policy; use "
                  "device=cpu"),
          z.obs, z.act, most >> 10);
    }
    return env_cuda_fail(
        BRIM_EUNSUPPORTED,
        BRIM_N_("a hidden layer of %d units does not fit into the %d KiB of shared memory "
                "that this GPU has for a policy; take at most %d units, or the CPU"),
        shape->hidden, most >> 10, hidden);
  }

  static brim_status layout(const brim_rollout_shape *shape, brim_rollout_layout *out) {
    BRIM_TRY(env_cuda_refuse(shape));
    BRIM_TRY(refuse_large(shape));
    brim_env_layout(shape, out);
    return BRIM_OK;
  }

  static brim_status init(const brim_rollout_where *where, const brim_rollout_shape *shape,
                          void *block) {
    brim_rollout_layout at;
    BRIM_TRY(layout(shape, &at));
    BRIM_TRY(env_cuda_enter(block, "ars.rollout: the device's memory"));
    cudaStream_t stream = (cudaStream_t)where->stream;
    BRIM_TRY(env_cuda_check(cudaMemsetAsync(block, 0, at.bytes, stream), "ars.rollout: init"));
    const size_t obs = (size_t)brim_env_sizes_of(shape).obs;
    const size_t numbers = at.params > obs ? at.params : obs;
    unsigned blocks = (unsigned)((numbers + ARS_THREADS - 1) / ARS_THREADS);
    ars_init_kernel<<<blocks, ARS_THREADS, 0, stream>>>(ars_block_of(shape, block),
                                                        brim_rng_key(shape->seed, BRIM_RNG_INIT));
    return env_cuda_check(cudaGetLastError(), "ars.rollout: init");
  }

  static env_task<typename E::values> task_of(const brim_rollout_shape *shape, const ars_block &b,
                                              const brim_env_ids &ids) {
    env_task<typename E::values> t = {};
    memcpy(&t.env, shape->env.bytes, sizeof t.env);
    t.hidden = shape->hidden;
    t.steps = shape->episode_length;
    t.start_key = ids.start_key;
    t.event_key = ids.event_key;
    t.delta_key = brim_rng_key(shape->seed, BRIM_RNG_DELTA);
    t.theta = b.theta;
    t.normal = b.normal;
    return t;
  }

  static brim_status launch(const env_task<typename E::values> *t, bool evaluate, int64_t blocks,
                            void *stream) {
    if (blocks > INT32_MAX) {
      return env_cuda_fail(BRIM_EINVAL, "ars.rollout: %lld parts in one chunk: lower dir_chunk",
                           (long long)blocks);
    }
    return E::launch(t, evaluate, blocks, (cudaStream_t)stream);
  }

  static brim_status run(const brim_rollout_where *where, const brim_rollout_shape *shape,
                         void *block, const brim_rollout_job *job) {
    BRIM_TRY(env_cuda_refuse(shape));
    if (job->first_dir < 0 || job->dirs < 1 || job->dirs > shape->dir_chunk ||
        job->first_dir > shape->num_dirs - job->dirs) {
      return env_cuda_fail(
          BRIM_EINVAL, "ars.rollout: directions %d to %d are not a chunk of %d of %d",
          job->first_dir, job->first_dir + job->dirs - 1, shape->dir_chunk, shape->num_dirs);
    }
    BRIM_TRY(env_cuda_enter(block, "ars.rollout: the device's memory"));
    BRIM_TRY(refuse_large(shape));
    const ars_block b = ars_block_of(shape, block);
    env_task<typename E::values> t = task_of(shape, b, brim_env_training(shape->seed, 0, 0, 0));
    t.filter = shape->filter;
    t.once = shape->once;
    t.envs = shape->num_envs / 2;
    t.parts = brim_env_parts(t.envs);
    t.first_dir = job->first_dir;
    t.iteration = job->iteration;
    t.noise = job->noise_std;
    t.part = b.part;
    BRIM_TRY(launch(&t, false, 2 * (int64_t)job->dirs * t.parts, where->stream));
    ars_gather_kernel<<<2 * (unsigned)job->dirs, 32, 0, (cudaStream_t)where->stream>>>(
        b, job->first_dir, t.parts, t.envs, job->shift);
    return env_cuda_check(cudaGetLastError(), "ars.rollout: returns");
  }

  static void take_in(const ars_block &b, int32_t dirs, cudaStream_t s) {
    const int32_t obs = b.net.obs;
    if (obs <= ARS_FILTER_WARPS) {
      ars_filter_kernel<<<1, 32 * (unsigned)obs, 0, s>>>(b, dirs);
      return;
    }
    const unsigned blocks = (unsigned)((obs + ARS_FILTER_WARPS - 1) / ARS_FILTER_WARPS);
    ars_filter_kernel<<<blocks, 32 * ARS_FILTER_WARPS, 0, s>>>(b, dirs);
    ars_count_kernel<<<1, 32, 0, s>>>(b, dirs);
  }

  static brim_status update(const brim_rollout_where *where, const brim_rollout_shape *shape,
                            void *block, int64_t iteration, int32_t top, float step_size) {
    BRIM_TRY(env_cuda_refuse(shape));
    if (top < 0 || top > shape->num_dirs) {
      return env_cuda_fail(BRIM_EINVAL, "ars.rollout: the best %d of %d directions cannot be kept",
                           top, shape->num_dirs);
    }
    BRIM_TRY(env_cuda_enter(block, "ars.rollout: the device's memory"));
    cudaStream_t s = (cudaStream_t)where->stream;
    const ars_block b = ars_block_of(shape, block);
    const int32_t dirs = shape->num_dirs, params = brim_env_params(b.net);
    const unsigned rows = (unsigned)((dirs + ARS_THREADS - 1) / ARS_THREADS);
    const int32_t quads = (params + 3) / 4;
    ars_rank_kernel<<<rows, ARS_THREADS, 0, s>>>(b, dirs);
    ars_select_kernel<<<1, ARS_THREADS, 0, s>>>(b, dirs, top);
    ars_step_kernel<<<(unsigned)quads, ARS_THREADS, 0, s>>>(
        b, params, brim_rng_key(shape->seed, BRIM_RNG_DELTA), iteration, step_size);
    ars_norm_kernel<<<1, ARS_THREADS, 0, s>>>(b, quads);
    if (shape->filter) take_in(b, dirs, s);
    return env_cuda_check(cudaGetLastError(), "ars.rollout: update");
  }

  static brim_status evaluate(const brim_rollout_where *where, const brim_rollout_shape *shape,
                              void *block, const brim_rollout_eval *eval) {
    BRIM_TRY(env_cuda_refuse(shape));
    if (eval->episodes < 1 || eval->episodes > shape->eval_episodes) {
      return env_cuda_fail(BRIM_EINVAL,
                           "ars.rollout: an evaluation of %d episodes where there is room for %d",
                           eval->episodes, shape->eval_episodes);
    }
    BRIM_TRY(env_cuda_enter(block, "ars.rollout: the device's memory"));
    BRIM_TRY(refuse_large(shape));
    const ars_block b = ars_block_of(shape, block);
    env_task<typename E::values> t =
        task_of(shape, b, brim_env_held_out(shape->seed, eval->stream, 0));
    t.zero = eval->zero;
    t.envs = eval->episodes;
    t.parts = brim_env_parts(t.envs);
    t.episodes = b.episodes;
    t.figures = b.figures;
    return launch(&t, true, t.parts, where->stream);
  }
};

// The table `name` of the kernels E, and the function to be called before anything in it.
#define BRIM_ENV_CUDA_TABLE(name, set_host, E)                                              \
  extern "C" {                                                                              \
  extern const brim_rollout_table name;                                                     \
  const brim_rollout_table name = {BRIM_ROLLOUT_ABI,          env_cuda_table<E>::layout,    \
                                   env_cuda_table<E>::init,   env_cuda_table<E>::run,       \
                                   env_cuda_table<E>::update, env_cuda_table<E>::evaluate}; \
  void set_host(const brim_host_api *host) { env_cuda_host = host; }                        \
  }

#endif  // BRIM_ENV_TABLE_CUH_
