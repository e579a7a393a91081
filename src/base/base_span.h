// The span hook, by which lower rooms are measured: begin and end around each phase. Without a hook, the usual
// case, a span costs one predictable branch.
#ifndef BRIM_BASE_SPAN_H_
#define BRIM_BASE_SPAN_H_

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Phases of a step, in printing order.
#define BRIM_PHASE_MAP(X)                \
  X(IO, "io", "I/O")                     \
  X(TRANSFORM, "transform", "Transform") \
  X(H2D, "h2d", "H2D")                   \
  X(COMPUTE, "compute", "Compute")       \
  X(FORWARD, "forward", "Fwd")           \
  X(BACKWARD, "backward", "Bwd")         \
  X(OPTIMIZER, "optimizer", "Opt")       \
  X(ENV, "env", "Env")                   \
  X(ACT, "act", "Act")                   \
  X(UPDATE, "update", "Update")          \
  X(OTHER, "other", "Other")

typedef enum brim_phase {
#define X(id, key, label) BRIM_PHASE_##id,
  BRIM_PHASE_MAP(X)
#undef X
      BRIM_PHASE_COUNT
} brim_phase;

const char *brim_phase_key(brim_phase phase);    // "io"
const char *brim_phase_label(brim_phase phase);  // "I/O"

// Figures of a phase that a workload measures with the clock of a device.
typedef enum brim_span_figure {
  BRIM_SPAN_TOOK,   // time of a phase that the host does not wait for
  BRIM_SPAN_BUSY,   // time in which the device computed
  BRIM_SPAN_MOVED,  // time that the host's work would take on the device
  BRIM_SPAN_FIGURES
} brim_span_figure;

// A measurement in progress, passed down by pointer; NULL means "not measured".
typedef struct brim_spans {
  void *ctx;
  bool exact;  // wait for the device at the end of each span, so that its time is in the span
  void (*begin)(void *ctx, brim_phase phase, const char *name);
  void (*end)(void *ctx, brim_phase phase, const char *name);
  // Adds to a figure of a phase; called only while `exact`. May be NULL.
  void (*add)(void *ctx, brim_phase phase, brim_span_figure figure, int64_t ns);
} brim_spans;

static inline void brim_span_begin(const brim_spans *s, brim_phase phase, const char *name) {
  if (s) s->begin(s->ctx, phase, name);
}
static inline void brim_span_end(const brim_spans *s, brim_phase phase, const char *name) {
  if (s) s->end(s->ctx, phase, name);
}
static inline void brim_span_add(const brim_spans *s, brim_phase phase, brim_span_figure figure,
                                 int64_t ns) {
  if (s && s->add) s->add(s->ctx, phase, figure, ns);
}

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_SPAN_H_
