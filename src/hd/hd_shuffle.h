// A permutation of [0, n) as a function of (seed, epoch, i). It gives the sample order without an index array, the
// same on host and device, for any number of workers and from any position. Integers only. A balanced Feistel
// network works over the next power of 4 and repeats until the value is below n (fewer than 4 times on average).
// The result is a permutation: a Feistel network is a bijection for any round function, and so is following its
// cycles until they return to [0, n).
#ifndef BRIM_HD_SHUFFLE_H_
#define BRIM_HD_SHUFFLE_H_

#include "hd/hd_philox.h"

enum { BRIM_SHUFFLE_ROUNDS = 8 };  // even; a small n needs this many to reach most orders

typedef struct brim_shuffle {
  uint64_t n;
  uint64_t mask;  // selects one half of a value
  uint32_t half;  // bits of each half, 1..32
  uint64_t key[BRIM_SHUFFLE_ROUNDS];
} brim_shuffle;

// n >= 1. Philox makes the round keys, so nearby seeds and epochs give unrelated orders.
BRIM_HD brim_shuffle brim_shuffle_make(uint64_t seed, uint64_t epoch, uint64_t n) {
  brim_shuffle s;
  s.n = n;
  s.half = 1;
  while (s.half < 32 && ((n - 1) >> (2 * s.half)) != 0) s.half++;
  s.mask = ((uint64_t)1 << s.half) - 1;
  uint64_t key = brim_rng_key(seed, BRIM_RNG_SHUFFLE);
  for (uint32_t r = 0; r < BRIM_SHUFFLE_ROUNDS; r += 2) {
    brim_philox4 bits = brim_philox(key, epoch, r);
    s.key[r] = ((uint64_t)bits.v[1] << 32) | bits.v[0];
    s.key[r + 1] = ((uint64_t)bits.v[3] << 32) | bits.v[2];
  }
  return s;
}

// One pass of the network over [0, 4^half). The round function is the upper bits of splitmix64's finaliser.
BRIM_HD uint64_t brim_shuffle_network(const brim_shuffle *s, uint64_t x) {
  uint64_t left = x >> s->half, right = x & s->mask;
  for (int r = 0; r < BRIM_SHUFFLE_ROUNDS; r++) {
    uint64_t z = right + s->key[r];
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    uint64_t next = left ^ (z >> (64 - s->half));
    left = right;
    right = next;
  }
  return (left << s->half) | right;
}

// The number at position i (below n) of the permutation.
BRIM_HD uint64_t brim_shuffle_at(const brim_shuffle *s, uint64_t i) {
  uint64_t x = i;
  do {
    x = brim_shuffle_network(s, x);
  } while (x >= s->n);
  return x;
}

#endif  // BRIM_HD_SHUFFLE_H_
