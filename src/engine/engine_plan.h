// The planner: when is a tensor alive, and where in the arena does it lie. Pure function of a
// graph, so the same graph always gets the same places.
#ifndef BRIM_ENGINE_PLAN_H_
#define BRIM_ENGINE_PLAN_H_

#include "engine/engine_graph.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_PLAN_NO_PLACE SIZE_MAX

static inline size_t brim_align_up(size_t bytes) {
  return (bytes + BRIM_ALIGN - 1) / BRIM_ALIGN * BRIM_ALIGN;
}

typedef struct brim_arena_plan {
  size_t *offset;     // per tensor of the graph; BRIM_PLAN_NO_PLACE for those outside the arena
  size_t *workspace;  // per node: where its workspace lies; BRIM_PLAN_NO_PLACE for none
  size_t bytes;       // of the arena: a multiple of 64, reached by at least one tensor
} brim_arena_plan;

typedef struct brim_plan_part {
  const brim_graph *graph;
  // Bytes each node needs while it runs (NULL = none does). They lie in the arena like a tensor
  // that only this node uses, so the large ones of early layers cost nothing: that far back most
  // activations are gone.
  const size_t *workspace;
  int32_t forward_count;  // nodes before the way back
  brim_arena_plan *out;   // its bytes are those of the whole arena
} brim_plan_part;
// One graph, or several in one arena: all go forward, one after the other, and then all go back in
// the same order. With reuse off everything gets a place of its own (tests compare).
brim_status brim_arena_plan_together(const brim_plan_part *parts, int32_t count, bool reuse);
void brim_arena_plan_free(brim_arena_plan *plan);

// When the tensors of one graph are alive, as nodes: from `first` (-1 = it is not in the arena) to
// `last`. What is kept to the end lives until node_count.
brim_status brim_arena_plan_lives(const brim_graph *g, int32_t forward_count, int32_t *first,
                                  int32_t *last);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_ENGINE_PLAN_H_
