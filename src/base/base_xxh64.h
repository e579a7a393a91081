// XXH64 (github.com/Cyan4973/xxHash, seed 0): a 64-bit checksum as fast as memory. It detects damage, not tampering.
#ifndef BRIM_BASE_XXH64_H_
#define BRIM_BASE_XXH64_H_

#include <stddef.h>
#include <stdint.h>

typedef struct brim_xxh64 {
  uint64_t lane[4];
  uint64_t total;     // bytes so far
  uint8_t block[32];  // the part of a block not yet hashed
} brim_xxh64;

void brim_xxh64_init(brim_xxh64 *h);
void brim_xxh64_update(brim_xxh64 *h, const void *data, size_t size);
uint64_t brim_xxh64_value(const brim_xxh64 *h);  // checksum of the bytes so far; more may follow

#endif  // BRIM_BASE_XXH64_H_
