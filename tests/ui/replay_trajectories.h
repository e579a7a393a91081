// Made-up episodes for the tests of the replay page: one that stands and is pushed, one that falls.
#ifndef BRIM_TESTS_REPLAY_TRAJECTORIES_H_
#define BRIM_TESTS_REPLAY_TRAJECTORIES_H_

#include <math.h>

#include "test.h"
#include "ui/ui.h"

// Stands at 0.55 m with its ankles bent by 1, rocks a little; with `fall` it sinks and tips over
// until its last frame.
static inline void make_episode(brim_trajectory *t, const char *label, int64_t frames, bool fall) {
  static const float bend[4] = {1, -1, -1, 1};
  assert_ok(brim_trajectory_init(t, label, 0.05, frames));
  t->frames = frames;
  for (int64_t i = 0; i < frames; i++) {
    float *q = t->qpos + i * BRIM_TRAJECTORY_QPOS, s = (float)i / (float)frames;
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
    if (i % 50 == 25) t->push[i * 3] = 1.2f, t->push[i * 3 + 1] = -0.9f;
  }
  t->outcome = fall ? BRIM_TRAJECTORY_FELL : BRIM_TRAJECTORY_LASTED;
  assert_ok(brim_trajectory_finish(t));
}

static const brim_ui_fact replay_facts[] = {{"Environment", "quadruped, task stand"},
                                            {"Policy", "linear <8 x 29>"}};
static const brim_ui_replay_options replay_options = {.title = "quadruped & <stand>: episode 3",
                                                      .about = "runs/a\"b/best.safetensors",
                                                      .command = "brim render 'a<b'",
                                                      .low = 0.2,
                                                      .high = 1,
                                                      .tilt = 72.5,
                                                      .facts = replay_facts,
                                                      .fact_count = 2};

#endif  // BRIM_TESTS_REPLAY_TRAJECTORIES_H_
