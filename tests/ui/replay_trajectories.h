// Made-up episodes for the tests of the replay page: one with a robot that stands and is pushed, one with a robot that
// falls.
#ifndef BRIM_TESTS_REPLAY_TRAJECTORIES_H_
#define BRIM_TESTS_REPLAY_TRAJECTORIES_H_

#include <math.h>

#include "env/quadruped/quadruped.h"
#include "test.h"
#include "ui/pages/ui_pages.h"

// The quadruped's scene, for standing or walking.
static inline const brim_scene *replay_scene(bool walk) {
  static brim_scene scenes[2];
  brim_quadruped robot = {.task = walk ? BRIM_QUADRUPED_WALK : BRIM_QUADRUPED_STAND};
  brim_env_values values;
  memset(&scenes[walk], 0, sizeof scenes[walk]);
  memset(&values, 0, sizeof values);
  brim_quadruped_row.defaults(0, &robot);
  memcpy(values.bytes, &robot, sizeof robot);
  brim_quadruped_row.scene(values.bytes, &scenes[walk]);
  assert_ok(brim_scene_check(&scenes[walk], BRIM_QUADRUPED_FRAME, "quadruped"));
  return &scenes[walk];
}

// The robot stands at 0.55 m with its ankles bent by 1 and rocks a little; with `fall` it sinks and tips over until the
// last frame.
static inline void make_episode_in(const brim_scene *scene, brim_trajectory *t, const char *label,
                                   int64_t frames, bool fall) {
  static const float bend[4] = {1, -1, -1, 1};
  assert_ok(brim_trajectory_init(t, label, scene, 0.05, frames));
  t->frames = frames;
  for (int64_t i = 0; i < frames; i++) {
    float *q = t->state + i * BRIM_QUADRUPED_FRAME, s = (float)i / (float)frames;
    float angle = (fall ? 1.4f * s * s : 0.04f * sinf((float)i * 0.2f)) / 2;
    q[0] = 0.3f * s;
    q[2] = fall ? 0.556f - 0.36f * s * s : 0.556f + 0.01f * sinf((float)i * 0.3f);
    q[3] = cosf(angle);
    q[4] = sinf(angle);
    for (int k = 0; k < 4; k++) {
      q[7 + 2 * k] = 0.1f * sinf((float)i * 0.2f + (float)k);
      q[8 + 2 * k] = bend[k];
    }
    t->reward[i] = 1 - fabsf(angle);
    if (i % 50 == 25) q[15] = 1.2f, q[16] = -0.9f;
  }
  t->end = fall ? BRIM_SCENE_ENDED : BRIM_SCENE_LASTED;
  assert_ok(brim_trajectory_finish(t));
}

static inline void make_episode(brim_trajectory *t, const char *label, int64_t frames, bool fall) {
  make_episode_in(replay_scene(false), t, label, frames, fall);
}

static const brim_ui_fact replay_facts[] = {{"Environment", "quadruped, task stand"},
                                            {"Policy", "linear <8 x 29>"}};
static const brim_ui_replay_options replay_options = {.title = "quadruped & <stand>: episode 3",
                                                      .about = "runs/a\"b/best.safetensors",
                                                      .command = "brim render 'a<b'",
                                                      .score = "return",
                                                      .facts = replay_facts,
                                                      .fact_count = 2};

#endif  // BRIM_TESTS_REPLAY_TRAJECTORIES_H_
