// Where things of a rollout lie and how its environments are cut up: shared by the CPU's code and the
// kernels, so that both write the same block of memory. A part is up to BRIM_ENV_PART environments of
// one (direction, sign); it is worked on as a whole, and what it found is merged in the order of the
// parts. Parts do not depend on dir_chunk, threads or device.
#ifndef BRIM_ENV_PLAN_H_
#define BRIM_ENV_PLAN_H_

#include <stddef.h>

#include "base/base_msg.h"
#include "env/env_random.h"
#include "env/env_rollout.h"

enum {
  BRIM_ENV_PART = 32,        // environments
  BRIM_ENV_LINEAR_ROW = 36,  // floats from an action's weights to the next one's
  BRIM_ENV_HIDDEN_ROW = 40,  // of a hidden unit: 29 weights, its bias at 29, to the actions from 32
  BRIM_ENV_HIDDEN_BIAS = 29,
  BRIM_ENV_HIDDEN_OUT = 32,
  BRIM_ENV_MAX_HIDDEN = 1024,
  BRIM_ENV_FILTER = 1 + 2 * BRIM_QUADRUPED_OBS  // doubles of layout.filter
};

// What came of a part, or of all parts of a (direction, sign).
typedef struct brim_env_found {
  double reward, reward_sq;
  int64_t steps, falls, truncated, diverged;
  double sum[BRIM_QUADRUPED_OBS];     // of observation - mean
  double square[BRIM_QUADRUPED_OBS];  // of its square
} brim_env_found;

// Inside layout.scratch.
typedef struct brim_env_scratch {
  size_t found;   // brim_env_found[num_dirs][2]: stays until the update
  size_t kept;    // int32_t[num_dirs]: directions by rank
  size_t weight;  // double[num_dirs]: (r+ - r-) by rank
  size_t norms;   // double[(params + 3) / 4][2]: squares of theta's change and of theta
  size_t part;    // brim_env_found[dir_chunk][2][parts]
  size_t bytes;
} brim_env_scratch;

BRIM_HD int32_t brim_env_parts(int32_t envs) { return (envs + BRIM_ENV_PART - 1) / BRIM_ENV_PART; }

BRIM_HD int32_t brim_env_params(int32_t hidden) {
  return hidden ? hidden * (BRIM_QUADRUPED_OBS + 1 + BRIM_QUADRUPED_ACT) + BRIM_QUADRUPED_ACT
                : BRIM_QUADRUPED_OBS * BRIM_QUADRUPED_ACT;
}

// Floats of a policy as rollouts read it.
BRIM_HD int32_t brim_env_packed(int32_t hidden) {
  return hidden ? hidden * BRIM_ENV_HIDDEN_ROW + BRIM_QUADRUPED_ACT
                : BRIM_QUADRUPED_ACT * BRIM_ENV_LINEAR_ROW;
}

// Where number p of theta goes in it.
BRIM_HD int32_t brim_env_pack(int32_t hidden, int32_t p) {
  const int32_t obs = BRIM_QUADRUPED_OBS;
  if (!hidden) return p / obs * BRIM_ENV_LINEAR_ROW + p % obs;
  if (p < obs * hidden) return p / obs * BRIM_ENV_HIDDEN_ROW + p % obs;
  p -= obs * hidden;
  if (p < hidden) return p * BRIM_ENV_HIDDEN_ROW + BRIM_ENV_HIDDEN_BIAS;
  p -= hidden;
  if (p < BRIM_QUADRUPED_ACT * hidden) {
    return p % hidden * BRIM_ENV_HIDDEN_ROW + BRIM_ENV_HIDDEN_OUT + p / hidden;
  }
  return hidden * BRIM_ENV_HIDDEN_ROW + (p - BRIM_QUADRUPED_ACT * hidden);
}

static inline int brim_env_positive(float x) { return x >= 0.0f && x < 1e6f; }

static inline const char *brim_env_quadruped_problem(const brim_quadruped *e) {
  if (e->task != BRIM_QUADRUPED_STAND && e->task != BRIM_QUADRUPED_WALK) {
    return BRIM_N_("the quadruped's task is neither stand nor walk");
  }
  if (e->frame_skip < 1 || e->frame_skip > 1000) {
    return BRIM_N_("frame_skip has to be from 1 to 1000");
  }
  if (!(e->timestep > 0.0f && e->timestep <= 0.1f)) {
    return BRIM_N_("the timestep has to be above 0 and at most 0.1 s");
  }
  if (!brim_env_positive(e->margin) || !brim_env_positive(e->reset_pos) ||
      !brim_env_positive(e->reset_vel) || !brim_env_positive(e->push_speed) ||
      !brim_env_positive(e->action_scale)) {
    return BRIM_N_("margin, resets, pushes and the scale of actions cannot be negative");
  }
  if (e->push_speed > 0.0f && (e->push_every < 1 || e->push_every > BRIM_ENV_MAX_STEPS)) {
    return BRIM_N_("with pushes, push_every has to be from 1 to 1048576 steps");
  }
  return NULL;
}

// What is wrong with a shape, as a message of the catalogue; NULL = nothing.
static inline const char *brim_env_problem(const brim_rollout_shape *s) {
  if (s->num_envs < 2 || s->num_envs % 2 != 0 || s->num_envs > BRIM_ENV_MAX_ENVS) {
    return BRIM_N_("num_envs has to be even, from 2 to 16777216: half of them run each sign");
  }
  if (s->num_dirs < 1 || s->num_dirs > BRIM_ENV_MAX_DIRS) {
    return BRIM_N_("num_dirs has to be from 1 to 1048576");
  }
  if (s->dir_chunk < 1 || s->dir_chunk > s->num_dirs) {
    return BRIM_N_("dir_chunk has to be from 1 to num_dirs");
  }
  if (s->episode_length < 1 || s->episode_length > BRIM_ENV_MAX_STEPS) {
    return BRIM_N_("episode_length has to be from 1 to 1048576 steps");
  }
  if (s->hidden < 0 || s->hidden > BRIM_ENV_MAX_HIDDEN) {
    return BRIM_N_("the hidden layer has at most 1024 units; 0 = linear");
  }
  if (s->eval_episodes < 0 || s->eval_episodes > BRIM_ENV_MAX_ENVS) {
    return BRIM_N_("an evaluation has at most 16777216 episodes");
  }
  return brim_env_quadruped_problem(&s->env);
}

static inline size_t brim_env_place(size_t *next, size_t bytes) {
  size_t at = *next;
  *next = (at + bytes + 255) / 256 * 256;
  return at;
}

static inline brim_env_scratch brim_env_scratch_of(const brim_rollout_shape *s) {
  brim_env_scratch out;
  size_t next = 0, dirs = (size_t)s->num_dirs;
  out.found = brim_env_place(&next, dirs * 2 * sizeof(brim_env_found));
  out.kept = brim_env_place(&next, dirs * sizeof(int32_t));
  out.weight = brim_env_place(&next, dirs * sizeof(double));
  out.norms =
      brim_env_place(&next, (size_t)(brim_env_params(s->hidden) + 3) / 4 * 2 * sizeof(double));
  size_t parts = (size_t)s->dir_chunk * 2 * (size_t)brim_env_parts(s->num_envs / 2);
  out.part = brim_env_place(&next, parts * sizeof(brim_env_found));
  out.bytes = next;
  return out;
}

static inline void brim_env_layout(const brim_rollout_shape *s, brim_rollout_layout *out) {
  size_t next = 0, dirs = (size_t)s->num_dirs;
  out->params = (size_t)brim_env_params(s->hidden);
  out->theta = brim_env_place(&next, out->params * sizeof(float));
  out->filter = brim_env_place(&next, BRIM_ENV_FILTER * sizeof(double));
  out->normal = brim_env_place(&next, 2 * BRIM_QUADRUPED_OBS * sizeof(float));
  out->returns = brim_env_place(&next, dirs * 2 * sizeof(float));
  out->tally = brim_env_place(&next, dirs * 2 * sizeof(brim_rollout_tally));
  out->episodes = brim_env_place(&next, (size_t)s->eval_episodes * sizeof(brim_rollout_episode));
  out->update = brim_env_place(&next, sizeof(brim_rollout_update));
  out->scratch_bytes = brim_env_scratch_of(s).bytes;
  out->scratch = brim_env_place(&next, out->scratch_bytes);
  out->bytes = next;
}

#endif  // BRIM_ENV_PLAN_H_
