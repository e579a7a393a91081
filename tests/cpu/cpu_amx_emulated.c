// Replaces cpu_amx_tiles.c in a second build of the cpu plug-in, so that machines without AMX test everything around
// its instructions. Follows Intel's definition of TDPBF16PS, except for numbers below 2^-126, which the tiles take as
// 0.
#include <string.h>

#include "backend/cpu/cpu_amx.h"
#include "backend/cpu/cpu_vec.h"

// Takes every batch size, because the case list's are small.
const int brim_cpu_amx_least_images = 1;

bool brim_cpu_amx_permitted(void) { return true; }
void brim_cpu_amx_enter(void) {}
void brim_cpu_amx_leave(void) {}

static float wide(const char *at, int i) {
  uint16_t h;
  memcpy(&h, at + 2 * i, sizeof h);
  return brim_cpu_from_bf16(h);
}

// TDPBF16PS on the 16 x 16 quarter of C at (row, col): sums of even and of odd k separately, then together, then added
// to C.
static void emulate_dp(const char *a, const char *b, int row, int col, float *c) {
  const char *half = b + (col >= 16) * (BRIM_AMX_BLOCK / 2);
  for (int m = 0; m < 16; m++) {
    const char *from = a + (row + m) * BRIM_AMX_LINE;
    float sum[32] = {0};
    for (int k = 0; k < 16; k++) {
      const char *pairs = half + k * BRIM_AMX_LINE;
      float even = wide(from, 2 * k), odd = wide(from, 2 * k + 1);
      for (int n = 0; n < 16; n++) {
        sum[2 * n] += even * wide(pairs, 2 * n);
        sum[2 * n + 1] += odd * wide(pairs, 2 * n + 1);
      }
    }
    for (int n = 0; n < 16; n++) c[(row + m) * 32 + col + n] += sum[2 * n] + sum[2 * n + 1];
  }
}

void brim_cpu_amx_sum(const brim_amx_sum *s) {
  float c[32 * 32] = {0};
  for (int i = 0; s->add && i < 32; i++) {
    memcpy(c + i * 32, (const char *)s->c + i * s->c_row, 32 * sizeof *c);
  }
  for (int64_t i = 0; i < s->count; i++) {
    for (int64_t g = 0; g < s->groups; g++) {
      const char *a = s->steps[i].a + g * BRIM_AMX_BLOCK, *b = s->steps[i].b + g * s->b_next;
      for (int q = 0; q < 4; q++) emulate_dp(a, b, q / 2 * 16, q % 2 * 16, c);
    }
  }
  for (int i = 0; i < 32; i++) {
    memcpy((char *)s->c + i * s->c_row, c + i * 32, 32 * sizeof *c);
  }
}

void brim_cpu_amx_to_bf16(const float *c, char *dst, size_t dst_row, int rows) {
  for (int i = 0; i < rows; i++, c += BRIM_AMX_SIDE, dst += dst_row) {
    uint16_t line[BRIM_AMX_SIDE];
    for (int j = 0; j < BRIM_AMX_SIDE; j++) line[j] = brim_cpu_to_bf16(c[j]);
    memcpy(dst, line, sizeof line);
  }
}
