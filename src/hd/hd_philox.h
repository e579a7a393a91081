// Philox4x32-10 (Salmon et al., SC'11): a counter-based generator. Every random number in brim is a
// function of (key, counter), so order of evaluation, thread count and resuming do not matter.
#ifndef BRIM_HD_PHILOX_H_
#define BRIM_HD_PHILOX_H_

#include "hd/hd.h"

typedef struct brim_philox4 {
  uint32_t v[4];
} brim_philox4;

// The purpose of a stream, which brim_rng_key mixes into the key: streams of different purposes are independent.
enum {
  BRIM_RNG_INIT = 1,       // weight initialisation: counter = (param index, element)
  BRIM_RNG_SHUFFLE = 2,    // sample order: (epoch, round)
  BRIM_RNG_DROPOUT = 3,    // dropout masks: (layer, step, element)
  BRIM_RNG_AUGMENT = 4,    // augmentation draws: (epoch, sample index)
  BRIM_RNG_SYNTHETIC = 5,  // synthetic data: (sample index, element)
  BRIM_RNG_STATS = 6,      // bootstrap
  BRIM_RNG_TEST = 7,
  // ARS (env/env_random.h has the counters): perturbations, starts, pushes, and which of the two
  // last are held out for evaluation.
  BRIM_RNG_DELTA = 8,
  BRIM_RNG_START = 9,
  BRIM_RNG_PUSH = 10,
  BRIM_RNG_HELD_OUT = 11,
  // PPO (rl/rl_ppo_row.h has the counters): actions, and rows of minibatches.
  BRIM_RNG_ACTION = 12,
  BRIM_RNG_ROWS = 13,
  BRIM_RNG_RULE = 14,  // actions of baselines (rl/rl_collect_step.h)
  BRIM_RNG_GRID = 15   // values that a grid draws: (hash of the key, number of the draw)
};

BRIM_HD uint32_t brim_mulhi32(uint32_t a, uint32_t b) {
  return (uint32_t)(((uint64_t)a * b) >> 32);
}

BRIM_HD brim_philox4 brim_philox(uint64_t key, uint64_t counter_hi, uint64_t counter_lo) {
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  uint32_t c0 = (uint32_t)counter_lo, c1 = (uint32_t)(counter_lo >> 32);
  uint32_t c2 = (uint32_t)counter_hi, c3 = (uint32_t)(counter_hi >> 32);
  for (int round = 0; round < 10; round++) {
    uint32_t hi0 = brim_mulhi32(0xD2511F53u, c0), lo0 = 0xD2511F53u * c0;
    uint32_t hi1 = brim_mulhi32(0xCD9E8D57u, c2), lo1 = 0xCD9E8D57u * c2;
    c0 = hi1 ^ c1 ^ k0;
    c1 = lo1;
    c2 = hi0 ^ c3 ^ k1;
    c3 = lo0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  brim_philox4 out = {{c0, c1, c2, c3}};
  return out;
}

// A key from the user's seed and a purpose (one of BRIM_RNG_*): splitmix64 finaliser.
BRIM_HD uint64_t brim_rng_key(uint64_t seed, uint32_t purpose) {
  uint64_t z = seed + 0x9E3779B97F4A7C15ull * (purpose + 1ull);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// [0, 1) with 24 bits, the same on every machine.
BRIM_HD float brim_rng_uniform(uint32_t bits) { return (float)(bits >> 8) * (1.0f / 16777216.0f); }

// Nearly unbiased integer in [0, n): multiply-high of 64 bits (bias below 2^-32 for n < 2^32).
BRIM_HD uint64_t brim_rng_below(uint32_t hi, uint32_t lo, uint64_t n) {
  uint64_t x = ((uint64_t)hi << 32) | lo;
  uint64_t a = (x >> 32) * n, b = (x & 0xffffffffu) * n;
  return (a + (b >> 32)) >> 32;
}

#endif  // BRIM_HD_PHILOX_H_
