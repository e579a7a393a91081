// Shared by the AMX files of the cpu plug-in: 32 x 32 sums of bf16 products in the eight tile registers,
// and the packing that feeds them. Products take blocks of 2 KiB. A block of A is 32 rows of 32 values of
// k. A block of B is two halves of 16 columns, each 16 pairs of k: [half][k / 2][column][2]. The
// instructions are in cpu_amx_tiles.c; a test build has tests/cpu/cpu_amx_emulated.c instead.
#ifndef BRIM_BACKEND_CPU_AMX_H_
#define BRIM_BACKEND_CPU_AMX_H_

#include "backend/cpu/cpu_int.h"

enum { BRIM_AMX_SIDE = 32, BRIM_AMX_BLOCK = 2048, BRIM_AMX_LINE = 64 };

// A thread calls enter before its sums, to set the tile registers up, and leave after them. oneDNN sets the
// registers up in its own way, so a thread must not keep brim's.
void brim_cpu_amx_enter(void);
void brim_cpu_amx_leave(void);

// The first blocks of A and B of a run; `groups` blocks in a row are multiplied.
typedef struct brim_amx_step {
  const char *a, *b;
} brim_amx_step;

// C(32, 32) = or += the sum over all steps and all `groups` blocks of a step of A's block times B's block.
// A's blocks lie one after the other, B's b_next bytes apart.
typedef struct brim_amx_sum {
  const brim_amx_step *steps;
  int64_t count, groups, b_next;
  float *c;
  int64_t c_row;  // bytes from row to row of c
  bool add;
} brim_amx_sum;
void brim_cpu_amx_sum(const brim_amx_sum *sum);

// Rounds a packed C(32, 32) to bf16: row i < rows goes to dst + i * dst_row, in bytes.
void brim_cpu_amx_to_bf16(const float *c, char *dst, size_t dst_row, int rows);

// Packs blocks out of 32 rows (32 images, or 32 filters) that lie src_row bytes apart. Block (pixel, line)
// takes 64 bytes of each row at src + pixel * src_pixel + line * 64. Rows from `rows` on count as zeros.
typedef struct brim_amx_pack {
  char *dst;
  size_t dst_pixel, dst_line;
  const char *src;
  size_t src_row, src_pixel;
  int64_t pixels, lines;
  int rows;
} brim_amx_pack;

typedef enum brim_amx_layout {
  BRIM_AMX_A_ROWS,  // rows are A's rows, the 64 bytes are its k
  BRIM_AMX_B_COLS,  // rows are B's columns, the 64 bytes are its k
  BRIM_AMX_B_K,     // rows are k, the 64 bytes are B's columns
  BRIM_AMX_A_K,     // rows are k, the 64 bytes are A's rows
} brim_amx_layout;
void brim_cpu_amx_pack(brim_amx_layout layout, const brim_amx_pack *pack);

#endif  // BRIM_BACKEND_CPU_AMX_H_
