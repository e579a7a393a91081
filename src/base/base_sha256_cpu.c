// SHA-256 with the CPU's own instructions: four rounds at a time on Arm, two on x86. The file is compiled for CPUs
// that have these instructions; on another CPU only has_instructions may run.
#include "base/base_machine.h"
#include "base/base_sha256.h"

#if defined(__aarch64__)

#include <arm_neon.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>

static bool has_instructions(void) {
  return !(brim_cpu_mask() & BRIM_CPU_MASK_NEON) && (getauxval(AT_HWCAP) & HWCAP_SHA2) != 0;
}

static void compress(uint32_t state[8], const uint8_t *data, size_t blocks) {
  uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4);
  for (; blocks > 0; blocks--, data += 64) {
    const uint32x4_t abcd_before = abcd, efgh_before = efgh;
    uint32x4_t w[4];
    for (int i = 0; i < 4; i++) w[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(data + 16 * i)));
#pragma GCC unroll 16
    for (int r = 0; r < 16; r++) {
      const uint32x4_t k = vaddq_u32(w[r % 4], vld1q_u32(brim_sha256_rounds + 4 * r));
      const uint32x4_t before = abcd;
      if (r < 12) {
        w[r % 4] = vsha256su1q_u32(vsha256su0q_u32(w[r % 4], w[(r + 1) % 4]), w[(r + 2) % 4],
                                   w[(r + 3) % 4]);
      }
      abcd = vsha256hq_u32(abcd, efgh, k);
      efgh = vsha256h2q_u32(efgh, before, k);
    }
    abcd = vaddq_u32(abcd, abcd_before);
    efgh = vaddq_u32(efgh, efgh_before);
  }
  vst1q_u32(state, abcd);
  vst1q_u32(state + 4, efgh);
}

#elif defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

static bool has_instructions(void) {
  enum { SHA = 1 << 29 };
  unsigned a, b, c, d;
  if (brim_cpu_mask() & BRIM_CPU_MASK_AVX2) return false;
  if (!__builtin_cpu_supports("sse4.1") || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  return (b & SHA) != 0;
}

// The instructions keep a, b, e, f in one register and c, d, g, h in another, the first letter in the highest
// place.
static void compress(uint32_t state[8], const uint8_t *data, size_t blocks) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  __m128i abef = _mm_set_epi32((int)state[0], (int)state[1], (int)state[4], (int)state[5]);
  __m128i cdgh = _mm_set_epi32((int)state[2], (int)state[3], (int)state[6], (int)state[7]);
  for (; blocks > 0; blocks--, data += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; i++) {
      w[i] =
          _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(data + 16 * i)), swap);
    }
#pragma GCC unroll 16
    for (int r = 0; r < 16; r++) {
      const __m128i *k = (const __m128i *)(const void *)(brim_sha256_rounds + 4 * r);
      __m128i wk = _mm_add_epi32(w[r % 4], _mm_loadu_si128(k));
      if (r < 12) {
        const __m128i w9 = _mm_alignr_epi8(w[(r + 3) % 4], w[(r + 2) % 4], 4);
        const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w[r % 4], w[(r + 1) % 4]), w9);
        w[r % 4] = _mm_sha256msg2_epu32(sum, w[(r + 3) % 4]);
      }
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
      wk = _mm_shuffle_epi32(wk, 0x0e);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, wk);
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  uint32_t first[4], second[4];
  _mm_storeu_si128((__m128i *)(void *)first, abef);
  _mm_storeu_si128((__m128i *)(void *)second, cdgh);
  const uint32_t after[8] = {first[3], first[2], second[3], second[2],
                             first[1], first[0], second[1], second[0]};
  for (int i = 0; i < 8; i++) state[i] = after[i];
}

#else

static bool has_instructions(void) { return false; }

static void compress(uint32_t state[8], const uint8_t *data, size_t blocks) {
  (void)state;
  (void)data;
  (void)blocks;
}

#endif

bool brim_sha256_fast(uint32_t state[8], const uint8_t *data, size_t blocks) {
  enum { UNKNOWN, NONE, SOME };
  static int seen = UNKNOWN;
  int now = __atomic_load_n(&seen, __ATOMIC_RELAXED);
  if (now == UNKNOWN) {
    now = has_instructions() ? SOME : NONE;
    __atomic_store_n(&seen, now, __ATOMIC_RELAXED);
  }
  if (now == SOME) compress(state, data, blocks);
  return now == SOME;
}
