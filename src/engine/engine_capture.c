// Recording pieces of a step once and launching them whole, which leaves out the time the host needs
// to enqueue op by op. What a piece is made of is engine_exec.c's; this says only how it is run.
#include "engine/engine_int.h"

// On failure everything goes on op by op for good: slower, with the same bits.
static void give_up(brim_exec *x) {
  x->graphs = false;
  brim_log_warn("engine", "steps run op by op, because recording them failed: %s",
                brim_status_detail());
  brim_status_clear();
}

static void record(brim_net *net, brim_exec_kind kind, brim_exec_piece *piece) {
  if (brim_capture_begin(net->device)) {
    give_up(&net->exec);
    return;
  }
  brim_status status = brim_exec_enqueue(net, kind);
  brim_graph_exec *graph = NULL;
  if (status) {
    // The reason is the call that could not be recorded; that the recording then does not end well
    // says nothing new.
    give_up(&net->exec);
    (void)brim_capture_end(net->device, &graph);
    brim_graph_exec_destroy(net->device, graph);
    brim_status_clear();
    return;
  }
  if (brim_capture_end(net->device, &graph)) {
    give_up(&net->exec);
    return;
  }
  piece->graph = graph;
}

brim_status brim_exec_launch(brim_net *net, brim_exec_kind kind, int slot) {
  brim_exec_piece *piece = &net->exec.pieces[kind][slot];
  if (!piece->graph) {
    brim_exec_point(net, kind, slot);
    // The first time op by op: libraries load lazily, and loading cannot be recorded.
    if (piece->warm && net->exec.graphs) record(net, kind, piece);
  }
  if (piece->graph) return brim_graph_launch(net->device, piece->graph);
  piece->warm = true;
  return brim_exec_enqueue(net, kind);
}
