// Scenes: the meaning of the numbers of a recorded episode, and how a page shows them. An environment fills one in
// (`scene` of its row, src/env/env.h). Recordings (src/record/record_trajectory.h) and the replay page
// (src/ui/ui_replay.c) use the scene and name no environment.
// `kind` is the picture: web/replay/scene_KIND.js draws a frame (docs/extending.md has the interface).
#ifndef BRIM_RECORD_SCENE_H_
#define BRIM_RECORD_SCENE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  BRIM_SCENE_MAX_PARTS = 8,
  BRIM_SCENE_MAX_NUMBERS = 16,
  BRIM_SCENE_MAX_CURVES = 6,
  BRIM_SCENE_MAX_LINES = 8,
  BRIM_SCENE_TEXT = 192
};

// The end of an episode: at the step limit, as the environment defines, or in a state that is not finite.
typedef enum brim_scene_end {
  BRIM_SCENE_LASTED,
  BRIM_SCENE_ENDED,
  BRIM_SCENE_DIVERGED,
  BRIM_SCENE_ENDS
} brim_scene_end;

typedef enum brim_scene_when {
  BRIM_SCENE_EVERY,  // stored for every frame
  BRIM_SCENE_FIRST,  // stored for the first frame; the same in all frames, such as a map
  BRIM_SCENE_EVENTS  // stored for frames in which they are not all 0; marked on the curves
} brim_scene_when;

// Neighbouring numbers of a frame. The parts of a scene make up the frame, in order.
typedef struct brim_scene_part {
  const char *key;  // name in the page: "qpos"
  int32_t columns;
  brim_scene_when when;
  double scale;       // numbers are stored as whole multiples of it; 0 = 1e-4
  const char *label;  // message in the legend, for events: "push"
} brim_scene_part;

// A constant that the picture needs: s.numbers.KEY in the script.
typedef struct brim_scene_number {
  const char *key;
  double value;
} brim_scene_number;

// A curve over time.
typedef struct brim_scene_curve {
  const char *key;                      // "height"
  const char *title;                    // a message: "Height, m"
  int digits;                           // digits of the value under the cursor
  bool from_zero;                       // the scale includes 0
  bool reward;                          // shows the rewards, else `column` or `value`
  int32_t column;                       // column of a part that is stored for every frame
  double (*value)(const float *frame);  // replaces the column; NaN = unknown; NULL = use the column
  int limit_count;
  double limits[2];  // values at which an episode ends, drawn as lines
} brim_scene_curve;

typedef struct brim_scene_line {
  const char *label;  // a message
  char text[BRIM_SCENE_TEXT];
  const char *key;  // name of `value` in --json; NULL = left out
  double value;
} brim_scene_line;

struct brim_scene;

typedef struct brim_scene_episode {
  const struct brim_scene *scene;
  const float *frames;  // (states, width)
  const float *reward;  // (states - 1)
  int64_t states;
  brim_scene_end end;
  double seconds;  // duration; without a time step, the number of steps
} brim_scene_episode;

typedef struct brim_scene {
  const char *kind;  // "quadruped": lower-case letters, digits and _
  brim_scene_part parts[BRIM_SCENE_MAX_PARTS];
  size_t part_count;
  brim_scene_number numbers[BRIM_SCENE_MAX_NUMBERS];
  size_t number_count;
  brim_scene_curve curves[BRIM_SCENE_MAX_CURVES];
  size_t curve_count;
  const char *limit_text;  // a message in the legend for the lines of `limits`; NULL = none
  const char *ends[BRIM_SCENE_ENDS];  // names in files: "lasted", "fell", "diverged"
  bool good[BRIM_SCENE_ENDS];         // shown in green; others in red, unless `plain`
  bool camera;                        // the picture can be rotated and follows something
  const char *hint;  // a message below the controls; NULL = only the keys are explained
  double rate;       // steps shown per second, if the environment has no time step; 0 = it has one
  // "fell at 3.40 s", translated.
  void (*outcome)(const brim_scene_episode *episode, char *out, size_t size);
  // Writes further figures of an episode and returns their number. NULL = none.
  size_t (*figures)(const brim_scene_episode *episode, brim_scene_line out[BRIM_SCENE_MAX_LINES]);
  bool plain[BRIM_SCENE_ENDS];  // neither good nor bad: without a colour
} brim_scene;

// Returns how many numbers a frame has.
int32_t brim_scene_width(const brim_scene *scene);
// The first column of a part in a frame.
int32_t brim_scene_offset(const brim_scene *scene, size_t part);
// True if a frame has the event of a part.
bool brim_scene_event(const brim_scene *scene, size_t part, const float *frame);
// The part of a column, and the column's number in it.
size_t brim_scene_part_of(const brim_scene *scene, int32_t column, int32_t *within);
double brim_scene_sum(const brim_scene_episode *episode);  // sum of the rewards
// Checks that a scene is complete and fits frames of this size. BRIM_EABI names the environment (`name`) and the
// problem.
brim_status brim_scene_check(const brim_scene *scene, int32_t frame, const char *name);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_RECORD_SCENE_H_
