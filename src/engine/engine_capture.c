// Recording pieces of a step once and launching them whole, which leaves out the time the host needs
// to enqueue op by op. What a piece is made of is engine_exec.c's; this says only how it is run.
#include "engine/engine_int.h"

enum { FIRST_PAUSE = 64, LONGEST_PAUSE = 1 << 16 };  // launches

// Slower, with the same bits. For want of memory it is this piece alone, and tried again ever more
// rarely, since who took the memory may leave; for any other reason everything, for good.
static void give_up(brim_exec *x, brim_exec_piece *piece, brim_status status) {
  if (status == BRIM_EOOM) {
    uint32_t pause = piece->pause ? 2 * piece->pause : FIRST_PAUSE;
    piece->left = piece->pause = pause < LONGEST_PAUSE ? pause : LONGEST_PAUSE;
    if (!x->told) {
      brim_log_warn("engine",
                    "part of the step runs op by op until there is memory to capture it: %s",
                    brim_status_detail());
    }
    x->told = true;
  } else {
    x->graphs = false;
    brim_log_warn("engine", "steps run op by op because graph capture failed: %s",
                  brim_status_detail());
  }
  brim_status_clear();
}

static void record(brim_net *net, brim_exec_kind kind, brim_exec_piece *piece) {
  brim_status status = brim_capture_begin(net->device);
  if (status) {
    give_up(&net->exec, piece, status);
    return;
  }
  net->exec.recording = true;
  status = brim_exec_enqueue(net, kind);
  net->exec.recording = false;
  brim_graph_exec *graph = NULL;
  if (status) {
    // The reason is the call that could not be recorded; that the recording then does not end well
    // says nothing new.
    give_up(&net->exec, piece, status);
    (void)brim_capture_end(net->device, &graph);
    brim_graph_exec_destroy(net->device, graph);
    brim_status_clear();
    return;
  }
  status = brim_capture_end(net->device, &graph);
  if (status) {
    give_up(&net->exec, piece, status);
    return;
  }
  piece->graph = graph;
}

// The first time op by op: libraries load lazily, and loading cannot be recorded.
static bool to_record(const brim_exec *x, brim_exec_piece *piece) {
  if (!piece->warm || !x->graphs) return false;
  return piece->left == 0 || --piece->left == 0;
}

brim_status brim_exec_launch(brim_net *net, brim_exec_kind kind, int slot) {
  brim_exec_piece *piece = &net->exec.pieces[kind][slot];
  if (!piece->graph) {
    brim_exec_point(net, kind, slot);
    if (to_record(&net->exec, piece)) record(net, kind, piece);
  }
  if (piece->graph) return brim_graph_launch(net->device, piece->graph);
  piece->warm = true;
  return brim_exec_enqueue(net, kind);
}
