// Random numbers of rollouts: the keys and counters of each environment, and normals. The normals use operations
// that every machine rounds alike (no libm, no contraction), so a perturbation has the same bits on CPU and CUDA.
#ifndef BRIM_ENV_RANDOM_H_
#define BRIM_ENV_RANDOM_H_

#include <string.h>

#include "hd/hd_philox.h"

// Limits that keep the counters of brim_env_draw apart.
enum {
  BRIM_ENV_MAX_ENVS = 1 << 24,
  BRIM_ENV_MAX_DIRS = 1 << 20,
  BRIM_ENV_MAX_STEPS =
      1 << 20  // steps of an episode; also episodes of a rollout and events of an episode
};

// The environment whose random numbers are drawn: start_key for its start, event_key for later events (a push, a
// gust). Both signs of a direction have the same ids, so the same numbers.
typedef struct brim_env_ids {
  uint64_t start_key, event_key;
  uint32_t iteration;  // 0 in an evaluation: its stream is part of the keys
  uint32_t dir;
  uint32_t env;
} brim_env_ids;

BRIM_HD brim_env_ids brim_env_training(uint64_t seed, int64_t iteration, int32_t dir, int32_t env) {
  brim_env_ids w;
  w.start_key = brim_rng_key(seed, BRIM_RNG_START);
  w.event_key = brim_rng_key(seed, BRIM_RNG_PUSH);
  w.iteration = (uint32_t)iteration;
  w.dir = (uint32_t)dir;
  w.env = (uint32_t)env;
  return w;
}

BRIM_HD brim_env_ids brim_env_held_out(uint64_t seed, uint64_t stream, int32_t env) {
  uint64_t held_out_key =
      brim_rng_key(brim_rng_key(seed, BRIM_RNG_HELD_OUT) ^ stream, BRIM_RNG_HELD_OUT);
  return brim_env_training(held_out_key, 0, 0, env);
}

// Makes draw `n` of an episode: four independent words.
BRIM_HD brim_philox4 brim_env_draw(uint64_t key, const brim_env_ids *w, int32_t episode,
                                   int32_t n) {
  uint64_t hi = (uint64_t)w->iteration << 32 | (uint32_t)episode;
  uint64_t lo = (uint64_t)w->dir << 44 | (uint64_t)(uint32_t)n << 24 | w->env;
  return brim_philox(key, hi, lo);
}

// Uniform in [-1, 1).
BRIM_HD float brim_env_signed(uint32_t bits) {
  return (float)((int32_t)(bits >> 8) - (1 << 23)) * (1.0f / 8388608.0f);
}

// Natural logarithm of a positive normal number, with relative error 1e-7: the polynomial of Cephes' logf.
BRIM_HD float brim_env_log(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  // m in [sqrt(1/2), sqrt(2))
  int32_t e = (int32_t)(bits - 0x3f3504f3u) >> 23;
  bits -= (uint32_t)e << 23;
  float m;
  memcpy(&m, &bits, sizeof m);
  m -= 1.0f;
  float y = 7.0376836292e-2f;
  y = brim_fmaf(y, m, -1.1514610310e-1f);
  y = brim_fmaf(y, m, 1.1676998740e-1f);
  y = brim_fmaf(y, m, -1.2420140846e-1f);
  y = brim_fmaf(y, m, 1.4249322787e-1f);
  y = brim_fmaf(y, m, -1.6668057665e-1f);
  y = brim_fmaf(y, m, 2.0000714765e-1f);
  y = brim_fmaf(y, m, -2.4999993993e-1f);
  y = brim_fmaf(y, m, 3.3333331174e-1f);
  float z = m * m;
  y = brim_fmaf(y, m, -0.5f);
  y = brim_fmaf(y, z, m);
  return brim_fmaf((float)e, 0.693147180559945f, y);
}

typedef struct brim_env_pair {
  float a, b;
} brim_env_pair;

// Cosine and sine of a uniform random angle.
BRIM_HD brim_env_pair brim_env_turn(uint32_t bits) {
  // the two high bits choose the quarter of the turn, the others the angle within +-pi/4
  float x =
      (float)((int32_t)(bits & 0x3fffffffu) - (1 << 29)) * (1.5707963267948966f / 1073741824.0f);
  float z = x * x;
  float s = brim_fmaf(-1.9515295891e-4f, z, 8.3321608736e-3f);
  s = brim_fmaf(s, z, -1.6666654611e-1f);
  s = brim_fmaf(s * z, x, x);
  float c = brim_fmaf(2.443315711809948e-5f, z, -1.388731625493765e-3f);
  c = brim_fmaf(c, z, 4.166664568298827e-2f);
  c = brim_fmaf(c * z, z, brim_fmaf(-0.5f, z, 1.0f));
  uint32_t quarter = bits >> 30;
  brim_env_pair out;
  out.a = quarter & 1 ? -s : c;
  out.b = quarter & 1 ? c : s;
  if (quarter & 2) {
    out.a = -out.a;
    out.b = -out.b;
  }
  return out;
}

// Two independent standard normals (Box and Muller).
BRIM_HD brim_env_pair brim_env_normal(uint32_t length, uint32_t angle) {
  float u = (float)((length >> 8) + 1) * (1.0f / 16777216.0f);
  float r = sqrtf(-2.0f * brim_env_log(u));
  brim_env_pair t = brim_env_turn(angle);
  t.a *= r;
  t.b *= r;
  return t;
}

#endif  // BRIM_ENV_RANDOM_H_
