// Random draws of augmentations, as a function of (seed, epoch, sample, stage), for host and device alike.
#ifndef BRIM_HD_AUGMENT_H_
#define BRIM_HD_AUGMENT_H_

#include "hd/hd_philox.h"

// The random stream of a sample. A stage's number is its place in the pipeline as written, so leaving out one stage
// does not change the draws of the others.
typedef struct brim_augment {
  uint64_t key;    // brim_rng_key(seed, BRIM_RNG_AUGMENT)
  uint64_t epoch;  // below 2^32
  uint64_t index;  // sample number
  uint32_t view;   // below 2^8; 0 unless a sample is seen several times
} brim_augment;

enum { BRIM_AUGMENT_MAX_STAGES = 256 };

// Draw number `n` (below 2^16) of a stage: four independent words.
BRIM_HD brim_philox4 brim_augment_draw(const brim_augment *a, uint32_t stage, uint32_t n) {
  uint64_t hi = a->epoch << 32 | (uint64_t)(a->view & 0xff) << 24 | (uint64_t)(stage & 0xff) << 16 |
                (n & 0xffff);
  return brim_philox(a->key, hi, a->index);
}

typedef struct brim_augment_point {
  int64_t y, x;
} brim_augment_point;

// Draws a point of a grid of `rows` x `cols` (each >= 1), all equally likely.
BRIM_HD brim_augment_point brim_augment_place(const brim_augment *a, uint32_t stage, uint32_t n,
                                              int64_t rows, int64_t cols) {
  brim_philox4 r = brim_augment_draw(a, stage, n);
  brim_augment_point out;
  out.y = (int64_t)brim_rng_below(r.v[0], r.v[1], (uint64_t)rows);
  out.x = (int64_t)brim_rng_below(r.v[2], r.v[3], (uint64_t)cols);
  return out;
}

#endif  // BRIM_HD_AUGMENT_H_
