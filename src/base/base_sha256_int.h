// SHA-256 of whole blocks: in plain C, and with the instructions that a CPU may have for it.
#ifndef BRIM_BASE_SHA256_INT_H_
#define BRIM_BASE_SHA256_INT_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const uint32_t brim_sha256_rounds[64];

void brim_sha256_plain(uint32_t state[8], const uint8_t *data, size_t blocks);
// False where the CPU has no such instructions; `state` is then as it was.
bool brim_sha256_fast(uint32_t state[8], const uint8_t *data, size_t blocks);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_SHA256_INT_H_
