// Pieces of work that are enqueued at once, and so recorded at once, where the device can.
#ifndef BRIM_ENGINE_CAPTURE_H_
#define BRIM_ENGINE_CAPTURE_H_

#include "backend/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_capture_piece {
  brim_graph_exec *graph;  // NULL: not recorded yet
  bool warm;               // has run once, op by op
  uint32_t pause, left;  // there was no memory to record it: launches between tries, until the next
} brim_capture_piece;

// How pieces run. All zero: op by op.
typedef struct brim_capture {
  bool on;        // pieces are recorded; once that failed for another reason than memory: no more
  bool reported;  // that there was no memory for one
} brim_capture;

// Enqueues the piece on the device's main stream. It may be called twice for one run: a recording
// that fails is thrown away.
typedef brim_status (*brim_capture_work)(void *ctx);

// The first time op by op, the second time recorded, from then on launched. What is recorded reads
// the same memory every time.
brim_status brim_capture_run(brim_device *device, brim_capture *x, brim_capture_piece *piece,
                             brim_capture_work enqueue, void *ctx);
void brim_capture_drop(brim_device *device, brim_capture_piece *piece);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_ENGINE_CAPTURE_H_
