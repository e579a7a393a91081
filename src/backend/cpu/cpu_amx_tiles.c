// The AMX instructions of cpu_amx.h, x86 only. Call these functions only if brim_cpu_amx_permitted()
// is true. Sums are assembly because the order of loads and products matters, and because compilers do
// not allocate tile registers.
#include <immintrin.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/cpu/cpu_amx.h"

// With fewer images than this in a block of 32 rows, on average, so many rows are zeros that oneDNN's
// kernels are faster.
const int brim_cpu_amx_least_images = 24;

bool brim_cpu_amx_permitted(void) {
  // The AMX features of the sums, and the AVX-512 features that the packing is compiled for.
  static const char *const needed[] = {"amx_tile", "amx_bf16", "avx512f",
                                       "avx512bw", "avx512vl", "avx512_bf16"};
  for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
    if (!brim_machine_cpu_flag("", needed[i])) return false;
  }
  // ARCH_REQ_XCOMP_PERM for XFEATURE_XTILEDATA: Linux (from 5.16) grants tiles on request.
  return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}

// The operand of LDTILECFG.
typedef struct tile_config {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} tile_config;
_Static_assert(sizeof(tile_config) == 64, "LDTILECFG reads 64 bytes");

// Tile registers: tmm0 to tmm3 hold the four 16 x 16 quarters of C, by rows; tmm4 and tmm5 hold A, tmm6 and
// tmm7 hold B. The compiler does not use tile registers, so they keep their contents from one asm statement
// to the next.
void brim_cpu_amx_enter(void) {
  tile_config config = {.palette = 1};
  for (int i = 0; i < 8; i++) config.row_bytes[i] = BRIM_AMX_LINE, config.rows[i] = 16;
  __asm__ volatile("ldtilecfg %0" ::"m"(config) : "memory");
}

void brim_cpu_amx_leave(void) { __asm__ volatile("tilerelease" ::: "memory"); }

// Four loads feed four products of 16 cycles each. Every sum gets a product each 64 cycles, more than the
// latency of 52.
static inline void sum_run(const char *a, const char *b, int64_t groups, int64_t b_next) {
  // clang-format off
  __asm__ volatile(
      ".p2align 5\n"
      "1:\n"
      "tileloadd (%[a], %[row], 1), %%tmm4\n"
      "tileloadd (%[b], %[row], 1), %%tmm6\n"
      "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n"
      "tileloadd 1024(%[b], %[row], 1), %%tmm7\n"
      "tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n"
      "tileloadd 1024(%[a], %[row], 1), %%tmm5\n"
      "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n"
      "tdpbf16ps %%tmm7, %%tmm5, %%tmm3\n"
      "addq $2048, %[a]\n"
      "addq %[next], %[b]\n"
      "decq %[n]\n"
      "jnz 1b\n"
      : [a] "+r"(a), [b] "+r"(b), [n] "+r"(groups)
      : [row] "r"((int64_t)BRIM_AMX_LINE), [next] "r"(b_next)
      : "memory", "cc");
  // clang-format on
}

void brim_cpu_amx_sum(const brim_amx_sum *s) {
  char *upper = (char *)s->c, *lower = upper + 16 * s->c_row;
  if (s->add) {
    __asm__ volatile(
        "tileloadd (%[u], %[row], 1), %%tmm0\n"
        "tileloadd 64(%[u], %[row], 1), %%tmm1\n"
        "tileloadd (%[l], %[row], 1), %%tmm2\n"
        "tileloadd 64(%[l], %[row], 1), %%tmm3\n"
        :
        : [u] "r"(upper), [l] "r"(lower), [row] "r"(s->c_row)
        : "memory");
  } else {
    __asm__ volatile("tilezero %%tmm0\n tilezero %%tmm1\n tilezero %%tmm2\n tilezero %%tmm3\n" ::);
  }
  for (int64_t i = 0; i < s->count && s->groups > 0; i++) {
    sum_run(s->steps[i].a, s->steps[i].b, s->groups, s->b_next);
  }
  __asm__ volatile(
      "tilestored %%tmm0, (%[u], %[row], 1)\n"
      "tilestored %%tmm1, 64(%[u], %[row], 1)\n"
      "tilestored %%tmm2, (%[l], %[row], 1)\n"
      "tilestored %%tmm3, 64(%[l], %[row], 1)\n"
      :
      : [u] "r"(upper), [l] "r"(lower), [row] "r"(s->c_row)
      : "memory");
}

// Rounds to nearest even; a NaN stays a NaN. Like the tiles, the instruction flushes values below 2^-126
// to 0.
__attribute__((target("avx512f,avx512bf16"))) void brim_cpu_amx_to_bf16(const float *c, char *dst,
                                                                        size_t dst_row, int rows) {
  for (int i = 0; i < rows; i++, c += BRIM_AMX_SIDE, dst += dst_row) {
    __m512bh line = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(c + 16), _mm512_loadu_ps(c));
    memcpy(dst, &line, sizeof line);
  }
}
