// The parts of ARS rollouts that the CPU's code and the kernels share: the layout of the block of memory, packed
// policies and their outputs, the arithmetic of the update, and the input of a CPU loop. A part is up to
// BRIM_ROLLOUT_PART environments of one (direction, sign). One loop runs a part, and the results are merged in the
// order of the parts. The division into parts does not depend on dir_chunk, threads or device.
#ifndef BRIM_RL_ROLLOUT_PLAN_H_
#define BRIM_RL_ROLLOUT_PLAN_H_

#include <stddef.h>

#include "base/base_msg.h"
#include "env/env_random.h"
#include "rl/rl_rollout.h"

enum {
  BRIM_ROLLOUT_PART = 32,  // environments
  BRIM_ROLLOUT_MAX_HIDDEN = 1024,
  BRIM_ROLLOUT_MAX_PACKED = 1 << 24  // most floats of a packed policy
};

// The result of a part, or of all parts of a (direction, sign). In memory the statistics of the observations
// follow: for each number of an observation the sum of observation - mean, then for each the sum of its
// square (doubles).
typedef struct brim_rollout_found {
  double reward, reward_sq;
  int64_t steps, terminated, truncated, diverged;
} brim_rollout_found;

BRIM_HD size_t brim_rollout_found_bytes(int32_t obs) {
  return sizeof(brim_rollout_found) + 2 * (size_t)obs * sizeof(double);
}

// Returns result i of an array of results.
BRIM_HD brim_rollout_found *brim_rollout_found_at(const void *first, int32_t obs, int64_t i) {
  return (brim_rollout_found *)(void *)((char *)(uintptr_t)first +
                                        (size_t)i * brim_rollout_found_bytes(obs));
}

BRIM_HD double *brim_rollout_found_stats(const brim_rollout_found *found) {
  return (double *)(void *)((char *)(uintptr_t)found + sizeof *found);
}

// Byte offsets inside layout.scratch.
typedef struct brim_rollout_scratch {
  size_t found;   // brim_rollout_found[num_dirs][2], kept until the update
  size_t kept;    // int32_t[num_dirs]: directions by rank
  size_t weight;  // double[num_dirs]: r+ - r- by rank
  size_t norms;   // double[(params + 3) / 4][2]: squares of theta's change and of theta
  size_t part;    // brim_rollout_found[dir_chunk][2][parts]
  size_t bytes;
} brim_rollout_scratch;

// A policy's sizes: observations, actions, hidden units (0 = linear).
typedef struct brim_rollout_net {
  int32_t obs, act, hidden;
} brim_rollout_net;

BRIM_HD brim_rollout_net brim_rollout_net_of(brim_env_sizes z, int32_t hidden) {
  brim_rollout_net n;
  n.obs = z.obs;
  n.act = z.act;
  n.hidden = hidden;
  return n;
}

BRIM_HD int32_t brim_rollout_parts(int32_t envs) {
  return (envs + BRIM_ROLLOUT_PART - 1) / BRIM_ROLLOUT_PART;
}

BRIM_HD int32_t brim_rollout_params(brim_rollout_net n) {
  return n.hidden ? n.hidden * (n.obs + 1 + n.act) + n.act : n.obs * n.act;
}

// Returns the floats of a row of a packed policy, a multiple of four, which rollouts read at once. Linear: the
// weights of an action and a gap, so that 32 rows start in different memory banks of a GPU. MLP: the weights of a
// hidden unit, its bias, its weights to the actions.
BRIM_HD int32_t brim_rollout_linear_row(int32_t obs) { return (obs + 3) / 4 * 4 + 4; }
BRIM_HD int32_t brim_rollout_hidden_out(int32_t obs) { return (obs + 1 + 3) / 4 * 4; }
BRIM_HD int32_t brim_rollout_hidden_row(int32_t obs, int32_t act) {
  return brim_rollout_hidden_out(obs) + (act + 3) / 4 * 4;
}

// Returns the floats of a packed policy.
BRIM_HD int32_t brim_rollout_packed(brim_rollout_net n) {
  return n.hidden ? n.hidden * brim_rollout_hidden_row(n.obs, n.act) + n.act
                  : n.act * brim_rollout_linear_row(n.obs);
}

// Returns the bytes of shared memory of a block that rolls out a policy (rl_rollout_each.cuh): sums of observations
// if statistics are kept, `normal` floats of normalization, the packed policy.
static inline size_t brim_rollout_block_bytes(brim_rollout_net n, int32_t normal, int32_t filter) {
  const size_t sums = filter ? 2 * (size_t)n.obs * BRIM_ROLLOUT_PART * sizeof(double) : 0;
  return sums + ((size_t)normal + (size_t)(brim_rollout_packed(n) + 3) / 4 * 4) * sizeof(float);
}

// Returns the most hidden units, up to the policy's own, whose block fits in `most` bytes; 0 for a linear policy
// that fits; -1 if a linear policy, or one hidden unit, does not fit.
static inline int32_t brim_rollout_block_hidden(brim_rollout_net n, int32_t normal, int32_t filter,
                                                size_t most) {
  const int32_t least = n.hidden > 0;
  while (n.hidden >= least && brim_rollout_block_bytes(n, normal, filter) > most) {
    if (n.hidden-- == least) return -1;
  }
  return n.hidden;
}

// Returns the place of theta[p] in a packed policy.
BRIM_HD int32_t brim_rollout_pack(brim_rollout_net n, int32_t p) {
  if (!n.hidden) return p / n.obs * brim_rollout_linear_row(n.obs) + p % n.obs;
  const int32_t row = brim_rollout_hidden_row(n.obs, n.act);
  if (p < n.obs * n.hidden) return p / n.obs * row + p % n.obs;
  p -= n.obs * n.hidden;
  if (p < n.hidden) return p * row + n.obs;
  p -= n.hidden;
  if (p < n.act * n.hidden) {
    return p % n.hidden * row + brim_rollout_hidden_out(n.obs) + p / n.hidden;
  }
  return n.hidden * row + (p - n.act * n.hidden);
}

static inline brim_env_sizes brim_rollout_sizes_of(const brim_rollout_shape *s) {
  return s->row->sizes(s->env.bytes);
}

static inline brim_rollout_net brim_rollout_policy_of(const brim_rollout_shape *s) {
  return brim_rollout_net_of(brim_rollout_sizes_of(s), s->hidden);
}

// Names what is wrong with an environment's sizes, or with a policy of `hidden` units for them; NULL = nothing.
// Larger values would overflow the types of memory sizes.
static inline const char *brim_rollout_sizes_problem(brim_env_sizes z, int32_t hidden) {
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
  // computes brim_rollout_packed in 64 bits; it is never less than brim_rollout_params
  const int64_t packed = hidden ? (int64_t)hidden * brim_rollout_hidden_row(z.obs, z.act) + z.act
                                : (int64_t)z.act * brim_rollout_linear_row(z.obs);
  if (packed > BRIM_ROLLOUT_MAX_PACKED) {
    return BRIM_N_("the policy needs more than 16777216 numbers; use fewer hidden units");
  }
  return NULL;
}

// Names what is wrong with a shape, as a message of the catalogue; NULL = nothing.
static inline const char *brim_rollout_problem(const brim_rollout_shape *s) {
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
  if (s->hidden < 0 || s->hidden > BRIM_ROLLOUT_MAX_HIDDEN) {
    return BRIM_N_("the hidden layer has at most 1024 units; 0 = linear");
  }
  if (s->eval_episodes < 0 || s->eval_episodes > BRIM_ENV_MAX_ENVS) {
    return BRIM_N_("an evaluation has at most 16777216 episodes");
  }
  const char *problem = brim_rollout_sizes_problem(brim_rollout_sizes_of(s), s->hidden);
  return problem ? problem : s->row->problem(s->env.bytes);
}

static inline size_t brim_rollout_place(size_t *next, size_t bytes) {
  size_t at = *next;
  *next = (at + bytes + 255) / 256 * 256;
  return at;
}

static inline brim_rollout_scratch brim_rollout_scratch_of(const brim_rollout_shape *s) {
  brim_rollout_scratch out;
  const brim_rollout_net net = brim_rollout_policy_of(s);
  const size_t each = brim_rollout_found_bytes(net.obs);
  size_t next = 0, dirs = (size_t)s->num_dirs;
  out.found = brim_rollout_place(&next, dirs * 2 * each);
  out.kept = brim_rollout_place(&next, dirs * sizeof(int32_t));
  out.weight = brim_rollout_place(&next, dirs * sizeof(double));
  out.norms =
      brim_rollout_place(&next, (size_t)(brim_rollout_params(net) + 3) / 4 * 2 * sizeof(double));
  size_t parts = (size_t)s->dir_chunk * 2 * (size_t)brim_rollout_parts(s->num_envs / 2);
  out.part = brim_rollout_place(&next, parts * each);
  out.bytes = next;
  return out;
}

static inline void brim_rollout_layout_of(const brim_rollout_shape *s, brim_rollout_layout *out) {
  size_t next = 0, dirs = (size_t)s->num_dirs;
  const brim_env_sizes z = brim_rollout_sizes_of(s);
  const size_t obs = (size_t)z.obs, episodes = (size_t)s->eval_episodes;
  out->params = (size_t)brim_rollout_params(brim_rollout_policy_of(s));
  out->theta = brim_rollout_place(&next, out->params * sizeof(float));
  out->filter = brim_rollout_place(&next, (1 + 2 * obs) * sizeof(double));
  out->normal = brim_rollout_place(&next, 2 * obs * sizeof(float));
  out->returns = brim_rollout_place(&next, dirs * 2 * sizeof(float));
  out->tally = brim_rollout_place(&next, dirs * 2 * sizeof(brim_rollout_tally));
  out->episodes = brim_rollout_place(
      &next, episodes * (sizeof(brim_rollout_episode) + (size_t)z.figures * sizeof(float)));
  out->figures = out->episodes + episodes * sizeof(brim_rollout_episode);
  out->update = brim_rollout_place(&next, sizeof(brim_rollout_update));
  out->scratch_bytes = brim_rollout_scratch_of(s).bytes;
  out->scratch = brim_rollout_place(&next, out->scratch_bytes);
  out->bytes = next;
}

//---------------------------------- a policy ----------------------------------

// Draws perturbations 4 * quad to 4 * quad + 3 of a direction.
BRIM_HD void brim_rollout_delta(uint64_t key, int64_t iteration, int32_t dir, int32_t quad,
                                float out[4]) {
  brim_philox4 r =
      brim_philox(key, (uint64_t)iteration, (uint64_t)(uint32_t)dir << 32 | (uint32_t)quad);
  brim_env_pair a = brim_env_normal(r.v[0], r.v[1]), b = brim_env_normal(r.v[2], r.v[3]);
  out[0] = a.a;
  out[1] = a.b;
  out[2] = b.a;
  out[3] = b.b;
}

// Hyperbolic tangent, accurate to 3e-7: Eigen's rational function.
BRIM_HD float brim_rollout_tanh(float x) {
  x = x < -7.9f ? -7.9f : x;
  x = x > 7.9f ? 7.9f : x;
  float z = x * x;
  float p = brim_fmaf(z, -2.76076847742355e-16f, 2.00018790482477e-13f);
  p = brim_fmaf(z, p, -8.60467152213735e-11f);
  p = brim_fmaf(z, p, 5.12229709037114e-08f);
  p = brim_fmaf(z, p, 1.48572235717979e-05f);
  p = brim_fmaf(z, p, 6.37261928875436e-04f);
  p = brim_fmaf(z, p, 4.89352455891786e-03f);
  float q = brim_fmaf(z, 1.19825839466702e-06f, 1.18534705686654e-04f);
  q = brim_fmaf(z, q, 2.26843463243900e-03f);
  q = brim_fmaf(z, q, 4.89352518554385e-03f);
  return x * p / q;
}

// Computes the outputs of a packed policy for normalized observations.
BRIM_HD void brim_rollout_outputs(brim_rollout_net n, const float *policy, const float *x,
                                  float *y) {
  if (!n.hidden) {
    const int32_t row = brim_rollout_linear_row(n.obs);
    for (int32_t a = 0; a < n.act; a++) {
      y[a] = 0.0f;
      for (int32_t j = 0; j < n.obs; j++) y[a] = brim_fmaf(x[j], policy[a * row + j], y[a]);
    }
    return;
  }
  const int32_t row = brim_rollout_hidden_row(n.obs, n.act), to = brim_rollout_hidden_out(n.obs);
  for (int32_t a = 0; a < n.act; a++) y[a] = policy[n.hidden * row + a];
  for (int32_t u = 0; u < n.hidden; u++) {
    const float *w = policy + u * row;
    float unit = w[n.obs];
    for (int32_t j = 0; j < n.obs; j++) unit = brim_fmaf(x[j], w[j], unit);
    unit = unit < 0.0f ? 0.0f : unit;
    for (int32_t a = 0; a < n.act; a++) y[a] = brim_fmaf(unit, w[to + a], y[a]);
  }
}

// Chooses a discrete action: the allowed action with the largest output, the first of equals. -1 if an output is
// not a number or nothing is allowed.
BRIM_HD int32_t brim_rollout_choose(const float *y, int32_t act, uint64_t mask) {
  int32_t best = -1;
  for (int32_t a = 0; a < act; a++) {
    if (!(y[a] == y[a])) return -1;
    if ((mask >> a & 1) && (best < 0 || y[a] > y[best])) best = a;
  }
  return best;
}

// Makes a continuous action, from -1 to 1, from an output. NaN stays NaN.
BRIM_HD float brim_rollout_clamp(float y, int32_t hidden) {
  if (hidden) y = brim_rollout_tanh(y);
  y = y < -1.0f ? -1.0f : y;
  return y > 1.0f ? 1.0f : y;
}

//---------------------------------- the update ----------------------------------

// Returns the mean return of the environments of a (direction, sign).
BRIM_HD float brim_rollout_return(double reward, int64_t steps, float shift, int32_t envs) {
  return (float)((reward - (double)shift * (double)steps) / envs);
}

// True if the deviation of returns is more than rounding; even equal returns may differ by rounding, since they are
// floats.
BRIM_HD int brim_rollout_sigma_usable(double sigma, double mean) {
  double least = 1e-6 * (mean < 0 ? -mean : mean);
  return sigma > (least > 1e-6 ? least : 1e-6);
}

// The statistics of an iteration for one number of the observations.
typedef struct brim_rollout_seen {
  double had;          // observations before the iteration
  double count;        // observations of the iteration
  double sum, square;  // of number - shift
  double shift;        // the mean that policies used
} brim_rollout_seen;

// Merges the statistics into the mean and the sum of squared deviations (Chan et al.).
BRIM_HD void brim_rollout_filter_merge(brim_rollout_seen s, double *mean, double *m2) {
  double n = s.had + s.count;
  double new_mean = s.shift + s.sum / s.count, new_m2 = s.square - s.sum * s.sum / s.count;
  double difference = new_mean - *mean;
  if (new_m2 < 0) new_m2 = 0;
  *mean = *mean + difference * (s.count / n);
  *m2 = *m2 + new_m2 + difference * difference * (s.had * s.count / n);
}

// Returns 1 / std, and 0 for a number that never changed: it carries no information.
BRIM_HD float brim_rollout_inverse_std(double count, double m2) {
  double std = count > 1 ? sqrt(m2 / (count - 1)) : 0;
  return std < 1e-7 ? 0.0f : (float)(1.0 / (std + 1e-8));
}

// Returns the standard deviation of the initial MLP weight theta[p]. The second layer starts small, so that the
// first policy hardly acts.
BRIM_HD float brim_rollout_init_scale(brim_rollout_net n, int32_t p) {
  if (p < n.obs * n.hidden) return 1.0f / sqrtf((float)n.obs);
  p -= (n.obs + 1) * n.hidden;
  if (p >= 0 && p < n.act * n.hidden) return 0.1f / sqrtf((float)n.hidden);
  return 0.0f;
}

//---------------------------------- the CPU's loops ----------------------------------

typedef struct brim_rollout_frames {
  int64_t capacity, states;
  float *frames, *reward;  // for each state, sizes.frame numbers and one reward
  float *now;              // reward of the current step; NULL = the trace is full
} brim_rollout_frames;

// A part: some environments that run the same policy.
typedef struct brim_rollout_work {
  const void *env;  // the environment's values
  int32_t hidden;
  int32_t steps;                   // steps of a rollout, or of the longest episode of an evaluation
  int32_t filter;                  // gather statistics of observations
  int32_t once;                    // in a rollout: no second episode
  const float *policy;             // brim_rollout_packed floats; NULL = all outputs are 0
  const float *normal;             // mean and 1/std, obs each
  brim_env_ids ids;                // ids of the first environment; the others follow
  int32_t envs;                    // 1 to BRIM_ROLLOUT_PART
  brim_rollout_found *found;       // results of a rollout, with statistics; NULL in an evaluation
  brim_rollout_episode *episodes;  // (envs), results of an evaluation; NULL in a rollout
  float *figures;                  // (envs, sizes.figures), with episodes
  brim_rollout_frames *trace;      // trace of environment 0, or NULL
} brim_rollout_work;

// Returns the place of the next frame of a trace and sets t->now to its reward; NULL = the trace is full.
static inline float *brim_rollout_frame(brim_rollout_frames *t, int32_t frame) {
  t->now = NULL;
  if (t->states == t->capacity) return NULL;
  float *at = t->frames + (int64_t)frame * t->states;
  t->now = &t->reward[t->states++];
  *t->now = 0.0f;
  return at;
}

#endif  // BRIM_RL_ROLLOUT_PLAN_H_
