// A plan: the memory and work of a step, known before it runs. Its rows list everything that brim allocates. Memory
// of libraries and drivers is `overhead`, measured and printed separately.
#ifndef BRIM_PLAN_H_
#define BRIM_PLAN_H_

#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum brim_place { BRIM_PLACE_DEVICE, BRIM_PLACE_HOST, BRIM_PLACE_COUNT } brim_place;

#define BRIM_PLAN_MAX_ROWS 24
#define BRIM_PLAN_ACTIVATIONS "activations"
#define BRIM_PLAN_STATISTICS "running statistics"  // the row of networks with batch norm

typedef struct brim_plan_row {
  const char *name;  // static text: "parameters", "activations", "workspace", "loader ring", ...
  brim_place place;
  uint64_t bytes;
} brim_plan_row;

typedef struct brim_plan {
  brim_plan_row rows[BRIM_PLAN_MAX_ROWS];
  size_t row_count;
  uint64_t bytes[BRIM_PLACE_COUNT];  // sums of the rows
  double flops_per_step;  // forward + backward + optimiser of one step (all micro-batches)
  double bytes_per_step;  // least bytes that a step moves through device memory
  double samples_per_step;
  uint64_t parameter_count;
  int32_t segments;    // blocks of the model whose activations can be recomputed
  int32_t recomputed;  // blocks that the backward pass recomputes (training.checkpointing)
  // with ranks: gradient exchanges per step, which overlap the backward pass
  int32_t gradient_sums;
  int32_t exchanges;  // with ranks: other exchanges that a step waits for (batch norm, embeddings)
  double exchange_bytes;  // bytes that one rank sends in `exchanges`
} brim_plan;

#ifdef __cplusplus
}
#endif
#endif  // BRIM_PLAN_H_
