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
  BRIM_ENV_PART = 32,  // environments
  BRIM_ENV_MAX_HIDDEN = 1024,
  BRIM_ENV_MAX_PACKED = 1 << 24  // floats of a policy as rollouts read it
};

// What came of a part, or of all parts of a (direction, sign). Behind it in memory the observations'
// statistics: sums of observation - mean, then of its square, a double for each number of an
// observation.
typedef struct brim_env_found {
  double reward, reward_sq;
  int64_t steps, terminated, truncated, diverged;
} brim_env_found;

BRIM_HD size_t brim_env_found_bytes(int32_t obs) {
  return sizeof(brim_env_found) + 2 * (size_t)obs * sizeof(double);
}

// Number i of those that lie one behind the other.
BRIM_HD brim_env_found *brim_env_found_at(const void *first, int32_t obs, int64_t i) {
  return (brim_env_found *)(void *)((char *)(uintptr_t)first +
                                    (size_t)i * brim_env_found_bytes(obs));
}

BRIM_HD double *brim_env_stats(const brim_env_found *found) {
  return (double *)(void *)((char *)(uintptr_t)found + sizeof *found);
}

// Inside layout.scratch.
typedef struct brim_env_scratch {
  size_t found;   // brim_env_found[num_dirs][2]: stays until the update
  size_t kept;    // int32_t[num_dirs]: directions by rank
  size_t weight;  // double[num_dirs]: (r+ - r-) by rank
  size_t norms;   // double[(params + 3) / 4][2]: squares of theta's change and of theta
  size_t part;    // brim_env_found[dir_chunk][2][parts]
  size_t bytes;
} brim_env_scratch;

// A policy: what it sees, what it says, and the units between (0 = linear).
typedef struct brim_env_net {
  int32_t obs, act, hidden;
} brim_env_net;

BRIM_HD brim_env_net brim_env_net_of(brim_env_sizes z, int32_t hidden) {
  brim_env_net n;
  n.obs = z.obs;
  n.act = z.act;
  n.hidden = hidden;
  return n;
}

BRIM_HD int32_t brim_env_parts(int32_t envs) { return (envs + BRIM_ENV_PART - 1) / BRIM_ENV_PART; }

BRIM_HD int32_t brim_env_params(brim_env_net n) {
  return n.hidden ? n.hidden * (n.obs + 1 + n.act) + n.act : n.obs * n.act;
}

// Rows of a policy as rollouts read it, in floats, so that four weights can be read at once. Linear: an
// action's weights, and a gap that keeps rows of 32 apart in a GPU's memory banks. Else a hidden unit:
// its weights, its bias behind them, its weights to the actions.
BRIM_HD int32_t brim_env_linear_row(int32_t obs) { return (obs + 3) / 4 * 4 + 4; }
BRIM_HD int32_t brim_env_hidden_out(int32_t obs) { return (obs + 1 + 3) / 4 * 4; }
BRIM_HD int32_t brim_env_hidden_row(int32_t obs, int32_t act) {
  return brim_env_hidden_out(obs) + (act + 3) / 4 * 4;
}

// Floats of such a policy.
BRIM_HD int32_t brim_env_packed(brim_env_net n) {
  return n.hidden ? n.hidden * brim_env_hidden_row(n.obs, n.act) + n.act
                  : n.act * brim_env_linear_row(n.obs);
}

// Bytes of shared memory of a GPU's block that rolls out such a policy (env_each.cuh): sums of what is
// observed where statistics are kept, `normal` floats of normalisation, the policy.
static inline size_t brim_env_block_bytes(brim_env_net n, int32_t normal, int32_t filter) {
  const size_t sums = filter ? 2 * (size_t)n.obs * BRIM_ENV_PART * sizeof(double) : 0;
  return sums + ((size_t)normal + (size_t)(brim_env_packed(n) + 3) / 4 * 4) * sizeof(float);
}

// The most hidden units, up to the policy's own, that leave such a block within `most` bytes; 0 for a
// linear policy that does. -1: a linear policy does not fit, or not even one unit does.
static inline int32_t brim_env_block_hidden(brim_env_net n, int32_t normal, int32_t filter,
                                            size_t most) {
  const int32_t least = n.hidden > 0;
  while (n.hidden >= least && brim_env_block_bytes(n, normal, filter) > most) {
    if (n.hidden-- == least) return -1;
  }
  return n.hidden;
}

// Where number p of theta goes in it.
BRIM_HD int32_t brim_env_pack(brim_env_net n, int32_t p) {
  if (!n.hidden) return p / n.obs * brim_env_linear_row(n.obs) + p % n.obs;
  const int32_t row = brim_env_hidden_row(n.obs, n.act);
  if (p < n.obs * n.hidden) return p / n.obs * row + p % n.obs;
  p -= n.obs * n.hidden;
  if (p < n.hidden) return p * row + n.obs;
  p -= n.hidden;
  if (p < n.act * n.hidden) {
    return p % n.hidden * row + brim_env_hidden_out(n.obs) + p / n.hidden;
  }
  return n.hidden * row + (p - n.act * n.hidden);
}

static inline brim_env_sizes brim_env_sizes_of(const brim_rollout_shape *s) {
  return s->row->sizes(s->env.bytes);
}

static inline brim_env_net brim_env_policy_of(const brim_rollout_shape *s) {
  return brim_env_net_of(brim_env_sizes_of(s), s->hidden);
}

// What is wrong with an environment's sizes, or with a policy of so many hidden units for them. Beyond
// these limits sizes of memory do not fit their types.
static inline const char *brim_env_sizes_problem(brim_env_sizes z, int32_t hidden) {
  if (z.kind != BRIM_ENV_CONTINUOUS && z.kind != BRIM_ENV_DISCRETE) {
    return BRIM_N_("the environment's kind has to be continuous (0) or discrete (1)");
  }
  if (z.agents < 1) return BRIM_N_("the environment needs at least 1 agent");
  if (z.obs < 1 || z.obs > BRIM_ENV_MAX_NUMBERS) {
    return BRIM_N_("an observation has to have 1 to 65536 numbers");
  }
  if (z.act < 1 || z.act > BRIM_ENV_MAX_NUMBERS) {
    return BRIM_N_("an action has to have 1 to 65536 numbers or choices");
  }
  if (z.kind == BRIM_ENV_DISCRETE && z.act > BRIM_ENV_MAX_CHOICES) {
    return BRIM_N_("a discrete action has at most 64 choices");
  }
  if (z.figures < 0 || z.figures > BRIM_ENV_MAX_FIGURES) {
    return BRIM_N_("an episode has to have 0 to 6 figures");
  }
  if (z.frame < 0 || z.frame > BRIM_ENV_MAX_FRAME) {
    return BRIM_N_("a frame has to have 0 to 1024 numbers");
  }
  if (z.global < 0 || z.global > BRIM_ENV_MAX_NUMBERS) {
    return BRIM_N_("the state for a critic has to have 0 to 65536 numbers");
  }
  if (z.rewards != 0 && z.rewards != 1 && z.rewards != z.agents) {
    return BRIM_N_("a step has to have one reward, or one for each agent");
  }
  // brim_env_packed, which is never less than brim_env_params
  const int64_t packed = hidden ? (int64_t)hidden * brim_env_hidden_row(z.obs, z.act) + z.act
                                : (int64_t)z.act * brim_env_linear_row(z.obs);
  if (packed > BRIM_ENV_MAX_PACKED) {
    return BRIM_N_("the policy needs more than 16777216 numbers; use fewer hidden units");
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
  const char *problem = brim_env_sizes_problem(brim_env_sizes_of(s), s->hidden);
  return problem ? problem : s->row->problem(s->env.bytes);
}

static inline size_t brim_env_place(size_t *next, size_t bytes) {
  size_t at = *next;
  *next = (at + bytes + 255) / 256 * 256;
  return at;
}

static inline brim_env_scratch brim_env_scratch_of(const brim_rollout_shape *s) {
  brim_env_scratch out;
  const brim_env_net net = brim_env_policy_of(s);
  const size_t each = brim_env_found_bytes(net.obs);
  size_t next = 0, dirs = (size_t)s->num_dirs;
  out.found = brim_env_place(&next, dirs * 2 * each);
  out.kept = brim_env_place(&next, dirs * sizeof(int32_t));
  out.weight = brim_env_place(&next, dirs * sizeof(double));
  out.norms = brim_env_place(&next, (size_t)(brim_env_params(net) + 3) / 4 * 2 * sizeof(double));
  size_t parts = (size_t)s->dir_chunk * 2 * (size_t)brim_env_parts(s->num_envs / 2);
  out.part = brim_env_place(&next, parts * each);
  out.bytes = next;
  return out;
}

static inline void brim_env_layout(const brim_rollout_shape *s, brim_rollout_layout *out) {
  size_t next = 0, dirs = (size_t)s->num_dirs;
  const brim_env_sizes z = brim_env_sizes_of(s);
  const size_t obs = (size_t)z.obs, episodes = (size_t)s->eval_episodes;
  out->params = (size_t)brim_env_params(brim_env_policy_of(s));
  out->theta = brim_env_place(&next, out->params * sizeof(float));
  out->filter = brim_env_place(&next, (1 + 2 * obs) * sizeof(double));
  out->normal = brim_env_place(&next, 2 * obs * sizeof(float));
  out->returns = brim_env_place(&next, dirs * 2 * sizeof(float));
  out->tally = brim_env_place(&next, dirs * 2 * sizeof(brim_rollout_tally));
  out->episodes = brim_env_place(
      &next, episodes * (sizeof(brim_rollout_episode) + (size_t)z.figures * sizeof(float)));
  out->figures = out->episodes + episodes * sizeof(brim_rollout_episode);
  out->update = brim_env_place(&next, sizeof(brim_rollout_update));
  out->scratch_bytes = brim_env_scratch_of(s).bytes;
  out->scratch = brim_env_place(&next, out->scratch_bytes);
  out->bytes = next;
}

#endif  // BRIM_ENV_PLAN_H_
