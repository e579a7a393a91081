// Packs blocks as declared in cpu_amx.h, written with the compiler's vector types. On x86 this file is
// compiled for AVX-512, which every CPU with AMX has, and is called only on CPUs with AMX. The emulated
// build tests the same shuffles on any machine.
#include <string.h>

#include "backend/cpu/cpu_amx.h"

typedef uint32_t line_u32 __attribute__((vector_size(64)));
typedef uint16_t line_u16 __attribute__((vector_size(64)));
typedef uint64_t line_u64 __attribute__((vector_size(64)));

// CHUNK blocks are packed together: 16 KiB of packed data stay in L1. Data are prefetched AHEAD rows early.
enum { CHUNK = 8, AHEAD = 8 };

typedef struct chunk {
  char *dst[CHUNK];
  const char *src[CHUNK];
  size_t src_row;
  int n, rows;  // blocks in this chunk, at most CHUNK; rows of a block
} chunk;

// The rows of a block lie pages apart, each a separate stream for the hardware's prefetcher, so the code
// prefetches. Returns the offset, from a block's source, of the data to prefetch while row i is read: the
// row AHEAD rows later or, past the last row, one of the first rows of the next chunk.
static inline size_t ahead_of(const chunk *c, int i) {
  if (i + AHEAD < c->rows) return (size_t)(i + AHEAD) * c->src_row;
  return (size_t)(i + AHEAD - c->rows) * c->src_row + CHUNK * BRIM_AMX_LINE;
}
static inline void fetch(const char *src, size_t ahead) {
  __builtin_prefetch((const void *)((uintptr_t)src + ahead));
}

// Not inlined: inlined, GCC keeps the chunk's addresses in vector registers.
__attribute__((noinline)) static void copy_rows(const chunk *c) {
  line_u32 line, zero = {0};
  int n = c->n, rows = c->rows;
  for (int i = 0; i < rows; i++) {
    size_t row = (size_t)i * c->src_row, ahead = ahead_of(c, i);
    for (int b = 0; b < n; b++) {
      fetch(c->src[b], ahead);
      memcpy(&line, c->src[b] + row, sizeof line);
      memcpy(c->dst[b] + i * BRIM_AMX_LINE, &line, sizeof line);
    }
  }
  for (int i = rows; i < BRIM_AMX_SIDE; i++) {
    for (int b = 0; b < n; b++) memcpy(c->dst[b] + i * BRIM_AMX_LINE, &zero, sizeof zero);
  }
}

// Shuffle indices of put_pairs. PAIR_* interleave two rows inside each quarter of 16 bytes; QUARTERS_* then
// put the quarters in order.
#define PAIR_LOW                                                                                \
  0, 32, 1, 33, 2, 34, 3, 35, 8, 40, 9, 41, 10, 42, 11, 43, 16, 48, 17, 49, 18, 50, 19, 51, 24, \
      56, 25, 57, 26, 58, 27, 59
#define PAIR_HIGH                                                                                 \
  4, 36, 5, 37, 6, 38, 7, 39, 12, 44, 13, 45, 14, 46, 15, 47, 20, 52, 21, 53, 22, 54, 23, 55, 28, \
      60, 29, 61, 30, 62, 31, 63
#define QUARTERS_01 0, 1, 8, 9, 2, 3, 10, 11
#define QUARTERS_23 4, 5, 12, 13, 6, 7, 14, 15

// Interleaves two rows: columns 0 to 15 go to the block's first half, the others to its second.
static inline void put_pairs(const void *even, const void *odd, char *dst) {
  line_u16 x, y;
  memcpy(&x, even, sizeof x);
  memcpy(&y, odd, sizeof y);
  line_u64 low = (line_u64)__builtin_shufflevector(x, y, PAIR_LOW);
  line_u64 high = (line_u64)__builtin_shufflevector(x, y, PAIR_HIGH);
  line_u64 first = __builtin_shufflevector(low, high, QUARTERS_01);
  line_u64 second = __builtin_shufflevector(low, high, QUARTERS_23);
  memcpy(dst, &first, sizeof first);
  memcpy(dst + BRIM_AMX_BLOCK / 2, &second, sizeof second);
}

__attribute__((noinline)) static void pair_rows(const chunk *c) {
  static const char zeros[BRIM_AMX_LINE];
  int n = c->n, rows = c->rows;
  for (int i = 0; i < BRIM_AMX_SIDE; i += 2) {
    size_t even = (size_t)i * c->src_row, odd = even + c->src_row;
    size_t even_ahead = ahead_of(c, i), odd_ahead = ahead_of(c, i + 1);
    for (int b = 0; b < n; b++) {
      const char *src = c->src[b];
      fetch(src, even_ahead);
      fetch(src, odd_ahead);
      put_pairs(i < rows ? src + even : zeros, i + 1 < rows ? src + odd : zeros,
                c->dst[b] + i / 2 * BRIM_AMX_LINE);
    }
  }
}

// Shuffle indices of SWAP for each step.
#define LOW_8 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define HIGH_8 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
#define LOW_4 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27
#define HIGH_4 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31
#define LOW_2 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define HIGH_2 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define LOW_1 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30
#define HIGH_1 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31
// One stage of a transpose, on rows i and i + step: swaps the lower left and the upper right quarter of
// every square of 2 * step.
#define SWAP(i, step)                                                          \
  do {                                                                         \
    line_u32 low = __builtin_shufflevector(r[i], r[(i) + step], LOW_##step);   \
    r[(i) + step] = __builtin_shufflevector(r[i], r[(i) + step], HIGH_##step); \
    r[i] = low;                                                                \
  } while (0)
#define SWAP4(i, j, k, l, step) \
  SWAP(i, step);                \
  SWAP(j, step);                \
  SWAP(k, step);                \
  SWAP(l, step)

// Transposes 16 lines of 16 pairs in place.
static void transpose(char *tile) {
  line_u32 r[16];
  memcpy(r, tile, sizeof r);
  SWAP4(0, 1, 2, 3, 8);
  SWAP4(4, 5, 6, 7, 8);
  SWAP4(0, 1, 2, 3, 4);
  SWAP4(8, 9, 10, 11, 4);
  SWAP4(0, 1, 4, 5, 2);
  SWAP4(8, 9, 12, 13, 2);
  SWAP4(0, 2, 4, 6, 1);
  SWAP4(8, 10, 12, 14, 1);
  memcpy(tile, r, sizeof r);
}

void brim_cpu_amx_pack(brim_amx_layout layout, const brim_amx_pack *p) {
  int64_t total = p->pixels * p->lines;
  chunk c = {.src_row = p->src_row, .rows = p->rows};
  for (int64_t first = 0; first < total; first += CHUNK) {
    c.n = (int)brim_cpu_min(CHUNK, total - first);
    for (int b = 0; b < c.n; b++) {
      size_t pixel = (size_t)((first + b) / p->lines), line = (size_t)((first + b) % p->lines);
      c.dst[b] = p->dst + pixel * p->dst_pixel + line * p->dst_line;
      c.src[b] = p->src + pixel * p->src_pixel + line * BRIM_AMX_LINE;
    }
    if (layout == BRIM_AMX_A_ROWS || layout == BRIM_AMX_B_COLS) {
      copy_rows(&c);
    } else {
      pair_rows(&c);
    }
    if (layout == BRIM_AMX_A_ROWS || layout == BRIM_AMX_B_K) continue;
    for (int b = 0; b < c.n; b++) transpose(c.dst[b]), transpose(c.dst[b] + BRIM_AMX_BLOCK / 2);
  }
}
