// Between the AMX files of the cpu plug-in only: 32 x 32 sums of bf16 products in the eight tile
// registers, and the packing that feeds them. What multiplies is blocks of 2 KiB: of A 32 rows of
// 32 values of k, of B two halves of 16 columns, each 16 pairs of k: [half][k / 2][column][2].
// The instructions are in cpu_amx_tiles.c; a test build has tests/cpu/cpu_amx_emulated.c instead.
#ifndef BRIM_BACKEND_CPU_AMX_H_
#define BRIM_BACKEND_CPU_AMX_H_

#include "backend/cpu/cpu_int.h"

enum { BRIM_AMX_SIDE = 32, BRIM_AMX_BLOCK = 2048, BRIM_AMX_LINE = 64 };

// Around all sums of a thread: tile registers are set up and given back. oneDNN has its own set-up,
// so nothing of ours may stay behind.
void brim_cpu_amx_enter(void);
void brim_cpu_amx_leave(void);

// Runs of blocks that are multiplied: a with b, then those behind them.
typedef struct brim_amx_step {
  const char *a, *b;
} brim_amx_step;

// C(32, 32) = or += the sum over all steps of A's block times B's block, `groups` of them from each
// step on: A's lie behind each other, B's b_next bytes apart.
typedef struct brim_amx_sum {
  const brim_amx_step *steps;
  int64_t count, groups, b_next;
  float *c;
  int64_t c_row;  // bytes from row to row
  bool add;
} brim_amx_sum;
void brim_cpu_amx_sum(const brim_amx_sum *sum);

// dst row i (i < rows), 32 bf16 each, <- row i of a packed float C; dst_row in bytes.
void brim_cpu_amx_to_bf16(const float *c, char *dst, size_t dst_row, int rows);

// Blocks out of 32 rows that lie src_row bytes apart (32 images, or 32 filters): block (pixel, line)
// takes 64 bytes of each row at src + pixel * src_pixel + line * 64. Rows from `rows` on are zeros.
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
