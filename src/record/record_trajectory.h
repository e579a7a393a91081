// One recorded episode, state by state, for replays. A trajectory owns its arrays; after brim_trajectory_finish all
// its numbers are finite. Its scene (record/record_scene.h) says what the numbers of a state are. Callers: `brim
// render` fills it, the replay page (src/ui/ui_replay.c) reads it.
//
// As JSON, brim.trajectory/1:
//   {"schema", "label", "dt": seconds of a step, "frames": states, "outcome": the scene's name of the
//    end, "scale": 1e-4, a member for each part of the scene, "reward": base64 (frames - 1 of them)}
// A part that is stored for every frame is base64 of its numbers in all frames; a part that is stored for the first
// frame is base64 of its numbers there. Events are [[frame, number, ...], ...]. The quadruped has "qpos": base64 (x
// y z, quaternion w x y z, then hip and ankle of four legs), and "pushes": [[frame, x, y, z], ...], metres per
// second added to the torso before the step from that frame. Base64 holds numbers as whole multiples of `scale`, or
// of the part's own scale, frame by frame. Each number is stored as its difference to the same column of the frame
// before (in the first frame: to 0), zigzag coded (0, -1, 1, -2, ... become 0, 1, 2, 3, ...), in groups of seven
// bits, the lowest first; the top bit is set in all groups but the last.
#ifndef BRIM_RECORD_TRAJECTORY_H_
#define BRIM_RECORD_TRAJECTORY_H_

#include "base/base.h"
#include "record/record_scene.h"

typedef struct brim_trajectory {
  char label[64];           // what chose the actions
  const brim_scene *scene;  // borrowed
  double dt;                // seconds of a step
  int64_t capacity, frames;
  int32_t width;  // numbers of a frame
  float *state;   // (frames, width)
  float *reward;  // (frames) reward of the step from this frame; the last frame has none
  brim_scene_end end;
} brim_trajectory;

// Allocates `capacity` frames; `frames` is 0.
brim_status brim_trajectory_init(brim_trajectory *t, const char *label, const brim_scene *scene,
                                 double dt, int64_t capacity);
void brim_trajectory_deinit(brim_trajectory *t);
// Call it once the arrays are filled. It cuts the trajectory before the first frame with a number that is not
// finite or beyond 1e5 (for places in metres: 100 km), and sets the end to DIVERGED. BRIM_EINVAL if no frame is
// left.
brim_status brim_trajectory_finish(brim_trajectory *t);

const float *brim_trajectory_frame(const brim_trajectory *t, int64_t i);
double brim_trajectory_seconds(const brim_trajectory *t);
double brim_trajectory_sum(const brim_trajectory *t);  // sum of the rewards
// Returns the episode in the form that the scene's functions take.
brim_scene_episode brim_trajectory_episode(const brim_trajectory *t);

brim_status brim_trajectory_to_json(const brim_trajectory *t, json_t **out);
// Writes the values of a curve that the scene computes, as base64 like the parts above. Unknown values are stored
// as 2e5.
brim_status brim_trajectory_curve(const brim_trajectory *t, const brim_scene_curve *curve,
                                  brim_str *out);

#endif  // BRIM_RECORD_TRAJECTORY_H_
