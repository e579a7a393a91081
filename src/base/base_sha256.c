// SHA-256 after FIPS 180-4, byte order independent.
#include "base/base_sha256.h"

#include <string.h>

#include "base/base_sha256_int.h"

static void compress(uint32_t state[8], const uint8_t *data, size_t blocks) {
  if (!brim_sha256_fast(state, data, blocks)) brim_sha256_plain(state, data, blocks);
}

void brim_sha256_init(brim_sha256 *h) {
  *h = (brim_sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                               0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void brim_sha256_update(brim_sha256 *h, const void *data, size_t size) {
  const uint8_t *p = data;
  size_t held = (size_t)(h->total % 64);
  h->total += size;
  if (held) {
    size_t take = size < 64 - held ? size : 64 - held;
    if (take) memcpy(h->block + held, p, take);
    if (held + take < 64) return;
    compress(h->state, h->block, 1);
    p += take;
    size -= take;
  }
  if (size >= 64) compress(h->state, p, size / 64);
  if (size % 64) memcpy(h->block, p + size / 64 * 64, size % 64);
}

void brim_sha256_final(brim_sha256 *h, uint8_t out[BRIM_SHA256_BYTES]) {
  static const uint8_t padding[64] = {0x80};
  uint64_t bits = h->total * 8;
  size_t held = (size_t)(h->total % 64);
  brim_sha256_update(h, padding, held < 56 ? 56 - held : 120 - held);
  uint8_t length[8];
  for (int i = 0; i < 8; i++) length[i] = (uint8_t)(bits >> (56 - 8 * i));
  brim_sha256_update(h, length, sizeof length);
  for (int i = 0; i < 32; i++) out[i] = (uint8_t)(h->state[i / 4] >> (24 - 8 * (i % 4)));
}

void brim_sha256_format(const uint8_t digest[BRIM_SHA256_BYTES], char out[BRIM_SHA256_HEX]) {
  static const char digits[] = "0123456789abcdef";
  for (int i = 0; i < BRIM_SHA256_BYTES; i++) {
    out[2 * i] = digits[digest[i] >> 4];
    out[2 * i + 1] = digits[digest[i] & 15];
  }
  out[2 * BRIM_SHA256_BYTES] = '\0';
}

void brim_sha256_hex(const void *data, size_t size, char out[BRIM_SHA256_HEX]) {
  brim_sha256 h;
  uint8_t digest[BRIM_SHA256_BYTES];
  brim_sha256_init(&h);
  brim_sha256_update(&h, data, size);
  brim_sha256_final(&h, digest);
  brim_sha256_format(digest, out);
}
