// A group of networks inside the engine: steps that are run one by one (engine_group.c), and steps
// that are part of recorded work (engine_group_record.c).
#ifndef BRIM_ENGINE_GROUP_H_
#define BRIM_ENGINE_GROUP_H_

#include "engine/engine_int.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BRIM_GROUP_ADDING = 1, BRIM_GROUP_UPDATING = 2, BRIM_GROUP_KINDS = 4 };

// What a recorded step calls: another pointer is another recording.
typedef struct brim_group_losses {
  brim_status (*call)(void *ctx);
  void *ctx;
} brim_group_losses;

struct brim_group {
  brim_device *device;
  brim_net *nets[BRIM_GROUP_MAX];
  int32_t count;
  bool eager;  // a spec says so
  brim_capture capture;
  brim_capture_piece pieces[BRIM_GROUP_KINDS][BRIM_EXEC_SLOTS];
  brim_group_losses recorded[BRIM_GROUP_KINDS][BRIM_EXEC_SLOTS];  // with the piece
  // The steps of recorded work.
  struct {
    double *rows;      // of one table, on its way to the device; NULL = nothing is enqueued
    int64_t capacity;  // rows of each
    int64_t count;     // rows that were put and not made
    int64_t enqueued;  // of them, by the work that is enqueued now
    int64_t first[BRIM_GROUP_MAX], updates[BRIM_GROUP_MAX];  // steps of the rows that were put
    bool moved;                                              // weights, by this run
  } table;
};

typedef struct brim_group_work {
  brim_group *group;
  brim_group_losses losses;
  brim_group_losses gradients;  // instead of both passes; call NULL = none
  brim_exec_kind backward;
  bool updates;
  int slot;  // of the networks that have two
} brim_group_work;

// All of a step, op by op; ctx is a brim_group_work.
brim_status brim_group_enqueue_work(void *ctx);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_ENGINE_GROUP_H_
