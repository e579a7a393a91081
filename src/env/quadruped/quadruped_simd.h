// The quadruped in single precision, QUAD_LANES environments at a time, one in each element of a vector. An
// environment's numbers do not depend on its neighbours. quadruped_state.h explains the functions that it defines:
// brim_quad_simd_state, _substep, ...
#ifndef BRIM_QUADRUPED_SIMD_H_
#define BRIM_QUADRUPED_SIMD_H_

#include "env/quadruped/quadruped.h"
#include "env/quadruped/quadruped_model.h"
#include "env/quadruped/quadruped_vector.h"

#define Q(name) brim_quad_simd_##name
#define Q_FN static inline
#define q_scalar float
#define q_real brim_vf
#define q_mask brim_vi
#define q_bits brim_vi
#define Q_LEGS 4
#define Q_LEG(i) (i)
#define Q_LEG_COS(i) brim_vf_set((i)&1 ? 0.0f : (float)(1 - (i)))
#define Q_LEG_SIN(i) brim_vf_set((i)&1 ? (float)(2 - (i)) : 0.0f)
#define Q_LEG_SIGN(i) brim_vf_set((i) == 0 || (i) == 3 ? 1.0f : -1.0f)
#define Q_SET(x, lane, value) ((x)[lane] = (value))
#define Q_GET(x, lane) ((x)[lane])
#define Q_C(c) brim_vf_set((float)(c))
#define Q_FMA(a, b, c) brim_vf_fma(a, b, c)
#define Q_RCP(x) (1.0f / (x))
#define Q_RSQRT(x) (1.0f / brim_vf_sqrt(x))
#define Q_SINCOS(x, s, c) brim_quad_simd_sincos(x, s, c)
#define Q_ABS(x) ((brim_vf)((brim_vi)(x)&0x7fffffff))
#define Q_MIN(a, b) brim_vf_select((a) < (b), a, b)
#define Q_MAX(a, b) brim_vf_select((a) > (b), a, b)
#define Q_SELECT(mask, a, b) brim_vf_select(mask, a, b)
#define Q_BIT(mask, bit) ((mask) & (int32_t)(bit))
#define Q_HAS(bits, bit) (((bits) & (bit)) != 0)
#define Q_ANY(mask) brim_vi_any(mask)
#define Q_SUM(x) (x)
#define Q_FRESH(x) ((void)0)
#define Q_UNION(bits) (bits)
#include "env/quadruped/quadruped_sincos.h"
#include "env/quadruped/quadruped_step.h"
#ifdef BRIM_QUADRUPED_TASK  // only for files that run the environment, not the physics alone
#include "env/quadruped/quadruped_run.h"
#endif
#include "env/quadruped/quadruped_undef.h"

#endif  // BRIM_QUADRUPED_SIMD_H_
