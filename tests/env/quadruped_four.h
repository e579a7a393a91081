// The GPU's form of the quadruped on the CPU: a vector of four stands for the four lanes of one environment, one leg
// each. So quadruped_lanes.cuh's path through the template is tested without a GPU.
#ifndef BRIM_TESTS_ENV_QUADRUPED_FOUR_H_
#define BRIM_TESTS_ENV_QUADRUPED_FOUR_H_

#include "env/quadruped/quadruped.h"
#include "env/quadruped/quadruped_model.h"
#include "env/quadruped/quadruped_vector.h"

#if QUAD_LANES != 4
#error "a vector of four floats is wanted here"
#endif

static inline brim_vf four_sum(brim_vf x) {
  x += __builtin_shufflevector(x, x, 1, 0, 3, 2);
  return x + __builtin_shufflevector(x, x, 2, 3, 0, 1);
}

static inline brim_vi four_union(brim_vi x) {
  x |= __builtin_shufflevector(x, x, 1, 0, 3, 2);
  return x | __builtin_shufflevector(x, x, 2, 3, 0, 1);
}

#define Q(name) brim_quad_four_##name
#define Q_FN static inline
#define q_scalar float
#define q_real brim_vf
#define q_mask brim_vi
#define q_bits brim_vi
#define Q_LEGS 1
#define Q_LEG(i) lane
#define Q_LEG_COS(i) ((brim_vf){1, 0, -1, 0})
#define Q_LEG_SIN(i) ((brim_vf){0, 1, 0, -1})
#define Q_LEG_SIGN(i) ((brim_vf){1, -1, -1, 1})
#define Q_SET(x, lane, value) ((x)[lane] = (value))
#define Q_GET(x, lane) ((x)[lane])
#define Q_C(c) brim_vf_set((float)(c))
#define Q_FMA(a, b, c) brim_vf_fma(a, b, c)
#define Q_RCP(x) (1.0f / (x))
#define Q_RSQRT(x) (1.0f / brim_vf_sqrt(x))
#define Q_SINCOS(x, s, c) brim_quad_four_sincos(x, s, c)
#define Q_ABS(x) ((brim_vf)((brim_vi)(x)&0x7fffffff))
#define Q_MIN(a, b) brim_vf_select((a) < (b), a, b)
#define Q_MAX(a, b) brim_vf_select((a) > (b), a, b)
#define Q_SELECT(mask, a, b) brim_vf_select(mask, a, b)
#define Q_BIT(mask, bit) ((mask) & (int32_t)(bit))
#define Q_HAS(bits, bit) (((bits) & (bit)) != 0)
#define Q_ANY(mask) brim_vi_any(mask)
#define Q_SUM(x) four_sum(x)
#define Q_FRESH(x) ((void)0)
#define Q_UNION(bits) four_union(bits)
#include "env/quadruped/quadruped_sincos.h"
#include "env/quadruped/quadruped_step.h"
#include "env/quadruped/quadruped_undef.h"

#endif  // BRIM_TESTS_ENV_QUADRUPED_FOUR_H_
