// How far an environment is in its rollout: what loops of every environment count alike.
#ifndef BRIM_ENV_TRACK_H_
#define BRIM_ENV_TRACK_H_

#include "env/env_plan.h"

// Where in a rollout a random number is drawn: brim_env_draw(t->ids.event_key, &t->ids, t->episode, n)
// with n made of t->step, below BRIM_ENV_MAX_STEPS.
typedef struct brim_env_track {
  brim_env_ids ids;
  int32_t episode;  // of the rollout
  int32_t step;     // of the episode
  int32_t steps, terminated, truncated, diverged;
  int32_t outcome;  // of the last episode: brim_env_end
  double reward;    // all steps
} brim_env_track;

// What came of a step.
typedef struct brim_env_outcome {
  float reward;
  int32_t end;  // brim_env_end
} brim_env_outcome;

BRIM_HD brim_env_track brim_env_track_of(brim_env_ids ids) {
  brim_env_track t;
  t.ids = ids;
  t.episode = t.step = 0;
  t.steps = t.terminated = t.truncated = t.diverged = 0;
  t.outcome = BRIM_ENV_RUNNING;
  t.reward = 0.0;
  return t;
}

// After a step. True: the episode is over. A reward that is no number counts as nothing, and its
// episode as diverged.
BRIM_HD int brim_env_after(brim_env_track *t, brim_env_outcome o, int32_t length) {
  t->steps++;
  t->step++;
  if (!(o.reward - o.reward == 0.0f)) {
    o.reward = 0.0f;
    o.end = BRIM_ENV_DIVERGED;
  }
  t->reward += (double)o.reward;
  if (o.end == BRIM_ENV_RUNNING && t->step >= length) o.end = BRIM_ENV_TRUNCATED;
  t->outcome = o.end;
  t->terminated += o.end == BRIM_ENV_TERMINATED;
  t->truncated += o.end == BRIM_ENV_TRUNCATED;
  t->diverged += o.end == BRIM_ENV_DIVERGED;
  return o.end != BRIM_ENV_RUNNING;
}

#endif  // BRIM_ENV_TRACK_H_
