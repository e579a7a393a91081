// The quadruped in single precision, one environment at a time. quadruped_state.h explains the functions that it
// defines: brim_quad_f32_state, _substep, ...
#ifndef BRIM_QUADRUPED_F32_H_
#define BRIM_QUADRUPED_F32_H_

#include "env/quadruped/quadruped.h"
#include "env/quadruped/quadruped_model.h"
#include "hd/hd.h"

#define Q(name) brim_quad_f32_##name
#define Q_FN BRIM_HD
#define q_scalar float
#define q_real float
#define q_mask int
#define q_bits int
#define Q_LEGS 4
#define Q_LEG(i) (i)
#define Q_LEG_COS(i) ((i)&1 ? 0.0f : (float)(1 - (i)))
#define Q_LEG_SIN(i) ((i)&1 ? (float)(2 - (i)) : 0.0f)
#define Q_LEG_SIGN(i) ((i) == 0 || (i) == 3 ? 1.0f : -1.0f)
#define Q_SET(x, lane, value) ((x) = (value))
#define Q_GET(x, lane) (x)
#define Q_C(c) ((float)(c))
#define Q_FMA(a, b, c) brim_fmaf(a, b, c)
#define Q_RCP(x) (1.0f / (x))
#define Q_RSQRT(x) (1.0f / sqrtf(x))
#define Q_SINCOS(x, s, c) brim_quad_f32_sincos(x, s, c)
#define Q_ABS(x) fabsf(x)
#define Q_MIN(a, b) ((a) < (b) ? (a) : (b))
#define Q_MAX(a, b) ((a) > (b) ? (a) : (b))
#define Q_SELECT(mask, a, b) ((mask) ? (a) : (b))
#define Q_BIT(mask, bit) ((mask) ? (bit) : 0)
#define Q_HAS(bits, bit) (((bits) & (bit)) != 0)
#define Q_ANY(mask) (mask)
#define Q_SUM(x) (x)
#define Q_FRESH(x) ((void)0)
#define Q_UNION(bits) (bits)
#include "env/quadruped/quadruped_sincos.h"
#include "env/quadruped/quadruped_step.h"
#include "env/quadruped/quadruped_undef.h"

#endif  // BRIM_QUADRUPED_F32_H_
