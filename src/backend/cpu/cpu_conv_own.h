// Between the files of our own convolutions only: the plan they share.
#ifndef BRIM_BACKEND_CPU_CONV_OWN_H_
#define BRIM_BACKEND_CPU_CONV_OWN_H_

#include "backend/cpu/cpu_int.h"

#ifdef __cplusplus
extern "C" {
#endif

// A place of the filter as a pass sees it: source pixel = row * step + off.
typedef struct brim_cpu_tap {
  int64_t off_h, off_w;
  int64_t at;  // r * S + s
} brim_cpu_tap;

// A set of output pixels with the same taps. CONV has one; CONV_BWD_DATA one for each remainder of
// the pixel's place by the stride, so that nothing is multiplied by a zero between strides.
typedef struct brim_cpu_conv_pass {
  int64_t rows_h, rows_w;    // output pixels of an image in this set
  int64_t first_h, first_w;  // the first of them
  int64_t tap_lo, tap_hi;
} brim_cpu_conv_pass;

typedef struct brim_cpu_conv_plan {
  brim_cpu_conv v;
  const brim_cpu_kernel *kernel;
  // Source and destination images of the gather: x and y, or dy and dx.
  int64_t src_h, src_w, src_c, dst_h, dst_w, dst_c;
  int64_t src_step, dst_step;
  brim_cpu_conv_pass *passes;
  brim_cpu_tap *taps;
  int64_t pass_count;
  // Depth: taps times src_c in pieces of at most `piece`, each padded to the kernel's kg.
  int64_t piece, pieces_per_tap, tap_depth, pieces_per_block;
  int64_t nb;                                // columns at a time
  int64_t kb;                                // CONV_BWD_WEIGHT: pixels at a time
  int grid_m, grid_n;                        // CONV_BWD_WEIGHT: threads over rows and columns
  size_t zero_offset, b_offset, sum_offset;  // zeros, packed B, sums (CONV_BWD_WEIGHT)
  size_t thread_offset, thread_bytes;        // each thread's own part
  size_t thread_sum, thread_rows;            // inside it: sums, coordinates; packed A is first
} brim_cpu_conv_plan;

// Where a row (pixel) of a block stands.
typedef struct brim_cpu_conv_row {
  const char *image;  // its source image
  int64_t h, w;       // source coordinates before a tap's offset
  int64_t dst;        // element of the destination
} brim_cpu_conv_row;

// Source address of a row at a tap, or zeros.
static inline const void *brim_cpu_conv_place(const brim_cpu_conv_plan *plan,
                                              const brim_cpu_conv_row *row, const brim_cpu_tap *tap,
                                              const void *zeros) {
  int64_t h = row->h + tap->off_h, w = row->w + tap->off_w;
  bool inside = (uint64_t)h < (uint64_t)plan->src_h && (uint64_t)w < (uint64_t)plan->src_w;
  size_t pixel = (size_t)plan->src_c * brim_cpu_size(plan->v.type);
  return inside ? row->image + (size_t)(h * plan->src_w + w) * pixel : zeros;
}

// Rows first .. first + count - 1 of a pass.
void brim_cpu_conv_rows(const brim_cpu_conv_plan *plan, const brim_cpu_conv_pass *pass,
                        const void *source, int64_t first, int64_t count, brim_cpu_conv_row *out);

// CONV_BWD_WEIGHT (cpu_conv_weight.c): its sizes, and its body for the team.
size_t brim_cpu_conv_weight_plan(brim_cpu_conv_plan *plan);
void brim_cpu_conv_weight_run(const brim_cpu_conv_plan *plan, const brim_cpu_gemm_args *args);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BACKEND_CPU_CONV_OWN_H_
