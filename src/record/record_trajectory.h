// One episode of a robot, state by state: what is replayed. A trajectory owns its arrays; all that
// is in it is finite once brim_trajectory_finish has seen it. Who calls: `brim render` fills it, the
// replay page (src/ui/ui_replay.c) reads it.
//
// As JSON, brim.trajectory/1:
//   {"schema", "label", "dt": seconds of a step, "frames": states, "outcome": "lasted" | "fell" |
//    "diverged", "scale": 1e-4, "qpos": base64, "reward": base64 (frames - 1 of them),
//    "pushes": [[frame, x, y, z], ...]: metres per second added to the torso before the step from
//    that frame}
// where base64 holds numbers as whole multiples of `scale`, frame by frame, each as its difference
// to the same column of the frame before (of the first: to 0), zigzag (0, -1, 1, -2, ... are 0, 1,
// 2, 3, ...), in groups of seven bits, the lowest first, the top bit set in all groups but the last.
#ifndef BRIM_RECORD_TRAJECTORY_H_
#define BRIM_RECORD_TRAJECTORY_H_

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

// x y z, quaternion w x y z, then hip and ankle of four legs.
#define BRIM_TRAJECTORY_QPOS 15

typedef enum brim_trajectory_outcome {
  BRIM_TRAJECTORY_LASTED,  // to its last step
  BRIM_TRAJECTORY_FELL,
  BRIM_TRAJECTORY_DIVERGED,  // a number that is not finite came up
  BRIM_TRAJECTORY_OUTCOME_COUNT
} brim_trajectory_outcome;

const char *brim_trajectory_outcome_name(brim_trajectory_outcome outcome);  // "fell"

typedef struct brim_trajectory {
  char label[64];  // who acts
  double dt;       // seconds of a step
  int64_t capacity, frames;
  float *qpos;    // (frames, 15)
  float *push;    // (frames, 3) velocity added before the step from this frame; 0 0 0 = none
  float *reward;  // (frames) of the step from this frame; there is none of the last
  brim_trajectory_outcome outcome;
} brim_trajectory;

// Room for `capacity` frames; none are there yet.
brim_status brim_trajectory_init(brim_trajectory *t, const char *label, double dt,
                                 int64_t capacity);
void brim_trajectory_deinit(brim_trajectory *t);
// After the arrays are filled: cut off before the first frame with a number that is not finite or
// beyond 100 km, the outcome is DIVERGED then. BRIM_EINVAL when no frame is left.
brim_status brim_trajectory_finish(brim_trajectory *t);

double brim_trajectory_seconds(const brim_trajectory *t);
double brim_trajectory_return(const brim_trajectory *t);  // sum of the rewards
double brim_trajectory_height(const brim_trajectory *t,
                              int64_t i);  // metres, of the torso's centre
double brim_trajectory_tilt(const brim_trajectory *t,
                            int64_t i);  // degrees, 0 = upright; NaN unknown
double brim_trajectory_push(const brim_trajectory *t, int64_t i);  // m/s; 0 = none

brim_status brim_trajectory_to_json(const brim_trajectory *t, json_t **out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_RECORD_TRAJECTORY_H_
