// bf16 and f16 to float and back, rounding to nearest even, by bits: the same on every machine.
#ifndef BRIM_BACKEND_HALF_H_
#define BRIM_BACKEND_HALF_H_

#include <stdint.h>
#include <string.h>

static inline float brim_bits_to_f32(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

static inline uint32_t brim_f32_to_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

static inline float brim_bf16_to_f32(uint16_t half) {
  return brim_bits_to_f32((uint32_t)half << 16);
}

static inline uint16_t brim_f32_to_bf16(float value) {
  uint32_t bits = brim_f32_to_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x0040u);  // quiet NaN
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static inline float brim_f16_to_f32(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
  uint32_t exponent = (half >> 10) & 0x1fu;
  uint32_t fraction = half & 0x3ffu;
  if (exponent == 0x1fu) return brim_bits_to_f32(sign | 0x7f800000u | (fraction << 13));
  if (exponent) return brim_bits_to_f32(sign | ((exponent + 112u) << 23) | (fraction << 13));
  float magnitude = (float)fraction * (1.0f / 16777216.0f);  // subnormal: fraction * 2^-24
  return sign ? -magnitude : magnitude;
}

static inline uint16_t brim_f32_to_f16(float value) {
  uint32_t bits = brim_f32_to_bits(value);
  uint32_t sign = (bits >> 16) & 0x8000u;
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);   // NaN
  if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);  // 65520 and up: infinity
  if (magnitude < 0x38800000u) {                                    // below 2^-14: subnormal
    // Adding 0.5 puts the 2^-24 digit at the last place of the sum, which rounds it to even.
    uint32_t rounded = brim_f32_to_bits(brim_bits_to_f32(magnitude) + 0.5f);
    return (uint16_t)(sign | (rounded - 0x3f000000u));
  }
  magnitude += 0xfffu + ((magnitude >> 13) & 1u);
  return (uint16_t)(sign | ((magnitude - 0x38000000u) >> 13));
}

#endif  // BRIM_BACKEND_HALF_H_
