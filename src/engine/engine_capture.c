// Recording pieces of work on the main stream once and launching them whole, which leaves out the
// time the host needs to enqueue op by op. What a piece is made of is its caller's: this says only
// how it runs.
#include "engine/engine_capture.h"

enum { FIRST_PAUSE = 64, LONGEST_PAUSE = 1 << 16 };  // launches

// Slower, with the same bits. For want of memory it is this piece alone, and tried again ever more
// rarely, since other programs may free it; for any other reason everything, for good.
static void give_up(brim_capture *x, brim_capture_piece *piece, brim_status status) {
  if (status == BRIM_EOOM) {
    uint32_t pause = piece->pause ? 2 * piece->pause : FIRST_PAUSE;
    piece->left = piece->pause = pause < LONGEST_PAUSE ? pause : LONGEST_PAUSE;
    if (!x->reported) {
      brim_log_warn("engine",
                    "part of the step runs op by op until there is memory to capture it: %s",
                    brim_status_detail());
    }
    x->reported = true;
  } else {
    x->on = false;
    brim_log_warn("engine", "steps run op by op because graph capture failed: %s",
                  brim_status_detail());
  }
  brim_status_clear();
}

static void record(brim_device *device, brim_capture *x, brim_capture_piece *piece,
                   brim_capture_work enqueue, void *ctx) {
  brim_status status = brim_capture_begin(device);
  if (status) {
    give_up(x, piece, status);
    return;
  }
  status = enqueue(ctx);
  brim_graph_exec *graph = NULL;
  if (status) {
    // The reason is the call that could not be recorded; that the recording then does not end well
    // says nothing new.
    give_up(x, piece, status);
    (void)brim_capture_end(device, &graph);
    brim_graph_exec_destroy(device, graph);
    brim_status_clear();
    return;
  }
  status = brim_capture_end(device, &graph);
  if (status) {
    give_up(x, piece, status);
    return;
  }
  piece->graph = graph;
}

// The first time op by op: libraries load lazily, and loading cannot be recorded.
static bool to_record(const brim_capture *x, brim_capture_piece *piece) {
  if (!piece->warm || !x->on) return false;
  return piece->left == 0 || --piece->left == 0;
}

brim_status brim_capture_run(brim_device *device, brim_capture *x, brim_capture_piece *piece,
                             brim_capture_work enqueue, void *ctx) {
  if (!x->on || (device->watch && device->watch->op_by_op)) return enqueue(ctx);
  if (!piece->graph && to_record(x, piece)) record(device, x, piece, enqueue, ctx);
  if (piece->graph) return brim_graph_launch(device, piece->graph);
  piece->warm = true;
  return enqueue(ctx);
}

void brim_capture_drop(brim_device *device, brim_capture_piece *piece) {
  brim_graph_exec_destroy(device, piece->graph);
  *piece = (brim_capture_piece){0};
}
