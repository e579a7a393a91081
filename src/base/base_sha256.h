// SHA-256 (FIPS 180-4), to identify configs and the origin of records. Not for secrets.
#ifndef BRIM_BASE_SHA256_H_
#define BRIM_BASE_SHA256_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_SHA256_BYTES 32
#define BRIM_SHA256_HEX 65  // with the NUL

typedef struct brim_sha256 {
  uint32_t state[8];
  uint64_t total;     // bytes so far
  uint8_t block[64];  // the part of a block not yet hashed
} brim_sha256;

void brim_sha256_init(brim_sha256 *h);
void brim_sha256_update(brim_sha256 *h, const void *data, size_t size);
// h must not be used afterwards
void brim_sha256_final(brim_sha256 *h, uint8_t out[BRIM_SHA256_BYTES]);
// Hashes data at once and writes lower-case hex.
void brim_sha256_hex(const void *data, size_t size, char out[BRIM_SHA256_HEX]);
// Writes a digest as lower-case hex.
void brim_sha256_format(const uint8_t digest[BRIM_SHA256_BYTES], char out[BRIM_SHA256_HEX]);

// Both hash whole blocks, in plain C or with the CPU's instructions. brim_sha256_fast returns false and leaves
// `state` alone if the CPU has no such instructions. For base_sha256.c and its test.
extern const uint32_t brim_sha256_rounds[64];
void brim_sha256_plain(uint32_t state[8], const uint8_t *data, size_t blocks);
bool brim_sha256_fast(uint32_t state[8], const uint8_t *data, size_t blocks);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_SHA256_H_
