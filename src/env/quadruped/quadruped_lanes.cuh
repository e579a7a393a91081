// The quadruped on a GPU: four lanes of a warp share an environment, with one leg each; all four compute the
// torso. All 32 lanes of a warp must call each function together. quadruped_state.h explains the functions that it
// defines: brim_quad_lane_state, _substep, ... The leg is threadIdx.x & 3.
#ifndef BRIM_QUADRUPED_LANES_CUH_
#define BRIM_QUADRUPED_LANES_CUH_

#include "env/quadruped/quadruped.h"
#include "env/quadruped/quadruped_model.h"

// Sums over four lanes, in an order that gives the same bits in all of them.
__device__ __forceinline__ float brim_quad_lane_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

__device__ __forceinline__ int brim_quad_lane_union(int x) {
  x |= __shfl_xor_sync(0xffffffffu, x, 1);
  return x | __shfl_xor_sync(0xffffffffu, x, 2);
}

// The hardware's estimate with one Newton step: accurate to one unit in the last place.
__device__ __forceinline__ float brim_quad_lane_rcp(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return fmaf(r, fmaf(-x, r, 1.0f), r);
}

__device__ __forceinline__ float brim_quad_lane_rsqrt(float x) {
  float r = rsqrtf(x);
  return fmaf(r * 0.5f, fmaf(-x * r, r, 1.0f), r);
}

#define Q(name) brim_quad_lane_##name
#define Q_FN __device__ __forceinline__ static
#define q_scalar float
#define q_real float
#define q_mask int
#define q_bits int
#define Q_LEGS 1
#define Q_LEG(i) ((int)(threadIdx.x & 3))
#define Q_LEG_COS(i) (Q_LEG(i) & 1 ? 0.0f : (float)(1 - Q_LEG(i)))
#define Q_LEG_SIN(i) (Q_LEG(i) & 1 ? (float)(2 - Q_LEG(i)) : 0.0f)
#define Q_LEG_SIGN(i) (Q_LEG(i) == 0 || Q_LEG(i) == 3 ? 1.0f : -1.0f)
#define Q_SET(x, lane, value) ((x) = (value))
#define Q_GET(x, lane) (x)
#define Q_C(c) ((float)(c))
#define Q_FMA(a, b, c) fmaf(a, b, c)
#define Q_RCP(x) brim_quad_lane_rcp(x)
#define Q_RSQRT(x) brim_quad_lane_rsqrt(x)
#define Q_SINCOS(x, s, c) brim_quad_lane_sincos(x, s, c)
#define Q_ABS(x) fabsf(x)
#define Q_MIN(a, b) fminf(a, b)
#define Q_MAX(a, b) fmaxf(a, b)
#define Q_SELECT(mask, a, b) ((mask) ? (a) : (b))
#define Q_BIT(mask, bit) ((mask) ? (bit) : 0)
#define Q_HAS(bits, bit) (((bits) & (bit)) != 0)
#define Q_ANY(mask) __any_sync(0xffffffffu, mask)
#define Q_SUM(x) brim_quad_lane_sum(x)
#define Q_FRESH(x) asm volatile("" : "+f"(x))
#define Q_UNION(bits) brim_quad_lane_union(bits)
#include "env/quadruped/quadruped_sincos.h"
#include "env/quadruped/quadruped_step.h"
#ifdef BRIM_QUADRUPED_TASK  // only for files that run the environment, not the physics alone
#include "env/quadruped/quadruped_task.h"
#endif
#include "env/quadruped/quadruped_undef.h"

#endif  // BRIM_QUADRUPED_LANES_CUH_
