// How a network runs its calls: the two staging slots for batches on devices with memory of their
// own, the recorded pieces of a step, and the norms that wait on the device. Embedded in brim_net
// as `exec`.
#ifndef BRIM_ENGINE_EXEC_H_
#define BRIM_ENGINE_EXEC_H_

#include "engine/engine_capture.h"

#ifdef __cplusplus
extern "C" {
#endif

struct brim_net;

// Slots of BRIM_BLOCK_INPUT: its first half is slot 0, its second half slot 1. Each holds the input
// of the largest batch, rounded up to BRIM_ALIGN, and the target behind it. A network that reads
// its inputs in place has the first alone, on every device.
#define BRIM_EXEC_SLOTS 2

// The pieces that are enqueued at once, and so recorded at once.
typedef enum brim_exec_kind {
  BRIM_EXEC_TRAIN_FIRST,    // forward and backward, overwriting gradients
  BRIM_EXEC_TRAIN_ADD,      // the same, adding to them
  BRIM_EXEC_STEP_ONLY,      // TRAIN_FIRST and UPDATE
  BRIM_EXEC_STEP_ADD_LAST,  // TRAIN_ADD and UPDATE
  BRIM_EXEC_FORWARD,        // parts of TRAIN_FIRST and TRAIN_ADD, for measured steps
  BRIM_EXEC_BACKWARD_FIRST,
  BRIM_EXEC_BACKWARD_ADD,
  BRIM_EXEC_BACKWARD_STEP,  // BACKWARD_FIRST and UPDATE, after a loss of the caller
  BRIM_EXEC_BACKWARD_ADD_STEP,
  BRIM_EXEC_UPDATE,  // norm, optimiser, end of the step
  // With ranks: the same with an exchange that begins within the backward pass.
  BRIM_EXEC_BACKWARD_LAST,
  BRIM_EXEC_BACKWARD_ADD_LAST,
  BRIM_EXEC_UPDATE_JOINED,
  BRIM_EXEC_EVAL,
  BRIM_EXEC_EMBED,  // full_batch_negatives: forward, nothing kept
  BRIM_EXEC_LOSS,   // of all embeddings of the step
  BRIM_EXEC_KIND_COUNT
} brim_exec_kind;

// All zero is a network that was built and not yet allocated.
typedef struct brim_exec {
  brim_capture capture;
  uint64_t next;  // batches fed so far: batch k goes to slot k % 2, or 0 where there is one
  // Devices with memory of their own.
  brim_event *filled[BRIM_EXEC_SLOTS];  // the copy into the slot has ended
  brim_event *done[BRIM_EXEC_SLOTS];    // the work that reads the slot has ended
  bool used[BRIM_EXEC_SLOTS];           // something was copied there
  brim_capture_piece pieces[BRIM_EXEC_KIND_COUNT][BRIM_EXEC_SLOTS];
  int64_t ring_first;  // step of the oldest of net->ring_count norms waiting on the device
  // A forward pass whose activations and slot wait for the caller's gradient.
  struct {
    bool open, first;
    int slot;
    int64_t step;
  } forward;
  bool begun;             // a step that can be undone
  int64_t begun_batches;  // net->batches before it
} brim_exec;

// After the blocks are allocated and zeroed: events, and the device's part of the state (loss scale
// 1, or 2^16 in fp16). eager: op by op, nothing is recorded.
brim_status brim_exec_init(struct brim_net *net, bool eager);
// Also after a failed or a missing init. The device has to be idle.
void brim_exec_deinit(struct brim_net *net);

// The device's part of the state: state[BRIM_STATE_HOST] and on. Waits for the device.
#define BRIM_EXEC_KEPT (BRIM_STATE_COUNT - BRIM_STATE_HOST)
brim_status brim_exec_get_kept(struct brim_net *net, double kept[BRIM_EXEC_KEPT]);
brim_status brim_exec_set_kept(struct brim_net *net, const double kept[BRIM_EXEC_KEPT]);

// engine_exec.c: enqueue a piece op by op; its calls point at the right slot.
brim_status brim_exec_enqueue(struct brim_net *net, brim_exec_kind kind);
// engine_exec.c: make the calls of the piece's program read the slot.
void brim_exec_point(struct brim_net *net, brim_exec_kind kind, int slot);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_ENGINE_EXEC_H_
