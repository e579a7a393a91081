// XXH64 by its specification (xxhash_spec.md): four lanes over blocks of 32 bytes, then the rest.
#include "base/base_xxh64.h"

#include <string.h>

static const uint64_t P1 = 0x9E3779B185EBCA87u, P2 = 0xC2B2AE3D27D4EB4Fu, P3 = 0x165667B19E3779F9u,
                      P4 = 0x85EBCA77C2B2AE63u, P5 = 0x27D4EB2F165667C5u;

static uint64_t rotate(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

// Reads a little-endian number on any machine; compilers make one load of it.
static uint64_t read_bytes(const uint8_t *p, int count) {
  uint64_t value = 0;
  for (int i = count - 1; i >= 0; i--) value = value << 8 | p[i];
  return value;
}

static uint64_t read64(const uint8_t *p) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  uint64_t value;
  memcpy(&value, p, sizeof value);
  return value;
#else
  return read_bytes(p, 8);
#endif
}

static uint64_t mix(uint64_t lane, uint64_t input) { return rotate(lane + input * P2, 31) * P1; }

static uint64_t merge(uint64_t h, uint64_t lane) { return (h ^ mix(0, lane)) * P1 + P4; }

void brim_xxh64_init(brim_xxh64 *h) {
  memset(h, 0, sizeof *h);
  h->lane[0] = P1 + P2;
  h->lane[1] = P2;
  h->lane[3] = 0 - P1;
}

// Hashes whole blocks. The lanes are locals so that they stay in registers.
static void take_blocks(brim_xxh64 *h, const uint8_t *p, size_t blocks) {
  uint64_t a = h->lane[0], b = h->lane[1], c = h->lane[2], d = h->lane[3];
  for (; blocks; blocks--, p += sizeof h->block) {
    a = mix(a, read64(p));
    b = mix(b, read64(p + 8));
    c = mix(c, read64(p + 16));
    d = mix(d, read64(p + 24));
  }
  h->lane[0] = a;
  h->lane[1] = b;
  h->lane[2] = c;
  h->lane[3] = d;
}

void brim_xxh64_update(brim_xxh64 *h, const void *data, size_t size) {
  const uint8_t *p = data;
  size_t held = (size_t)(h->total % sizeof h->block);
  h->total += size;
  if (held) {
    size_t n = sizeof h->block - held;
    if (n > size) n = size;
    if (n) memcpy(h->block + held, p, n);
    if (held + n < sizeof h->block) return;
    take_blocks(h, h->block, 1);
    p += n;
    size -= n;
  }
  take_blocks(h, p, size / sizeof h->block);
  size_t rest = size % sizeof h->block;
  if (rest) memcpy(h->block, p + size - rest, rest);
}

uint64_t brim_xxh64_value(const brim_xxh64 *h) {
  const uint64_t *v = h->lane;
  uint64_t x = P5;  // the third lane is still the seed, 0
  if (h->total >= sizeof h->block) {
    x = rotate(v[0], 1) + rotate(v[1], 7) + rotate(v[2], 12) + rotate(v[3], 18);
    for (int i = 0; i < 4; i++) x = merge(x, v[i]);
  }
  x += h->total;
  const uint8_t *p = h->block;
  size_t left = (size_t)(h->total % sizeof h->block);
  for (; left >= 8; left -= 8, p += 8) x = rotate(x ^ mix(0, read64(p)), 27) * P1 + P4;
  if (left >= 4) {
    x = rotate(x ^ read_bytes(p, 4) * P1, 23) * P2 + P3;
    left -= 4;
    p += 4;
  }
  for (; left; left--, p++) x = rotate(x ^ *p * P5, 11) * P1;
  x = (x ^ x >> 33) * P2;
  x = (x ^ x >> 29) * P3;
  return x ^ x >> 32;
}
