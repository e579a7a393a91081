// Steps states that the caller gives, four lanes per state: the extension "quadruped.step".
#include <cuda_runtime.h>

#include "env/quadruped/quadruped_lanes.cuh"
#include "env/quadruped/quadruped_physics.h"

static const brim_host_api *host_api;

void brim_env_cuda_set_physics_host(const brim_host_api *host) { host_api = host; }

enum { LANES = 4, THREADS = 128 };

__global__ static void __launch_bounds__(THREADS)
    physics_kernel(brim_quadruped env, brim_physics_state *states, int64_t count, int32_t steps) {
  const int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / LANES;
  // lanes after the last state run a copy of it, because a warp steps as a whole
  brim_physics_state *s = &states[at < count ? at : count - 1];
  const brim_quad_lane_world world = brim_quad_lane_world_make(env.timestep, env.margin, env.rk4);
  brim_quad_lane_state state;
  brim_quad_lane_info info;
  float ctrl[1][2];
  brim_quad_lane_load(&state, 0, s->qpos, s->qvel);
  brim_quad_lane_load_ctrl(ctrl, 0, s->act);
#pragma unroll 1
  for (int32_t k = 0; k < steps; k++) brim_quad_lane_step(&world, &state, ctrl, &info);
  __syncthreads();  // all copies must be read before they are written
  if (at >= count || steps < 1) return;
  brim_quad_lane_store(&state, 0, s->qpos, s->qvel);
  const int leg = (int)(threadIdx.x & 3);
  s->touch[leg] = info.touch[0] & (leg ? QUAD_TOUCH_TORSO - 1 : 2 * QUAD_TOUCH_TORSO - 1);
  if (leg) return;
  s->newton = info.newton;
  s->open = info.open != 0;
}

static brim_status step(void *stream, const brim_quadruped *env, brim_physics_state *states,
                        int64_t count, int32_t steps) {
  if (count < 1) return BRIM_OK;
  const int64_t blocks = (count * LANES + THREADS - 1) / THREADS;
  if (blocks > INT32_MAX) return host_api->fail(BRIM_EINVAL, "quadruped.step: too many states");
  cudaPointerAttributes of;
  cudaError_t error = cudaPointerGetAttributes(&of, states);
  if (!error) error = cudaSetDevice(of.device);
  cudaGetLastError();
  if (!error) {
    physics_kernel<<<(unsigned)blocks, THREADS, 0, (cudaStream_t)stream>>>(*env, states, count,
                                                                           steps);
    error = cudaGetLastError();
  }
  if (!error) return BRIM_OK;
  return host_api->fail(error == cudaErrorMemoryAllocation ? BRIM_EOOM : BRIM_EDEVICE,
                        cudaGetErrorString(error));
}

const brim_physics_table brim_env_cuda_physics = {BRIM_PHYSICS_ABI, step};
