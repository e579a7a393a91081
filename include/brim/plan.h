// A plan: what a step will need, known before it runs. Everything brim asks for is in the rows;
// what libraries and drivers take besides is `overhead`, measured and printed apart.
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
  double bytes_per_step;  // fewest bytes a step moves through device memory
  double samples_per_step;
  uint64_t parameter_count;
  int32_t segments;    // blocks of the model whose activations could be computed again
  int32_t recomputed;  // of these, blocks whose activations are: training.checkpointing
  // On one of several ranks, of a step: sums of gradients that run beside the backward pass, and exchanges
  // that it waits for where they stand (batch norm, embeddings) with what one rank gives to them.
  int32_t gradient_sums, exchanges;
  double exchange_bytes;
} brim_plan;

#ifdef __cplusplus
}
#endif
#endif  // BRIM_PLAN_H_
