// The tables of rl_fused.h as plain loops in host memory, for tests alone: the reference for kernels, and the kernels
// of a fake GPU. Sums are in double; numbers are rounded where the general path stores tensors of the type:
// activations, outputs and their gradients. A part of an update with z is REST, another is WHOLE. `run` overwrites the
// states that a fused rollout need not write.
#ifndef BRIM_TESTS_ENV_FUSED_PLAIN_H_
#define BRIM_TESTS_ENV_FUSED_PLAIN_H_

#include <math.h>
#include <string.h>

#include "backend/backend_half.h"
#include "base/base.h"
#include "rl/rl_fused.h"
#include "rl/rl_ppo_row.h"

//---------------------------------- numbers ----------------------------------

static inline float fused_plain_load(const void *data, int32_t dtype, int64_t at) {
  if (dtype == BRIM_F32) return ((const float *)data)[at];
  return brim_bf16_to_f32(((const uint16_t *)data)[at]);
}

static inline float fused_plain_round(int32_t dtype, double x) {
  return dtype == BRIM_F32 ? (float)x : brim_bf16_to_f32(brim_f32_to_bf16((float)x));
}

static inline void fused_plain_store(void *data, int32_t dtype, int64_t at, float x) {
  if (dtype == BRIM_F32) {
    ((float *)data)[at] = x;
  } else {
    ((uint16_t *)data)[at] = brim_f32_to_bf16(x);
  }
}

static inline char *fused_plain_at(const void *data, int32_t dtype, int64_t at) {
  return (char *)(uintptr_t)data + (size_t)at * brim_dtype_size((brim_dtype)dtype);
}

//---------------------------------- a network ----------------------------------

static inline int32_t fused_plain_width(const brim_fused_net *n, int layer) {
  return layer == 0 ? n->inputs : layer < BRIM_FUSED_LAYERS ? n->hidden : n->outputs;
}

// One row on its way: input and output of each layer.
typedef struct fused_plain_row {
  float x[1024];  // input of the first layer; the caller keeps wider ones
  float h[2][BRIM_FUSED_MAX_HIDDEN];
  float y[BRIM_FUSED_MAX_OUTPUTS], dy[BRIM_FUSED_MAX_OUTPUTS];
  float g[2][BRIM_FUSED_MAX_HIDDEN];  // gradients before the hidden layers' activations
  bool
      exact;  // y is not rounded to the type: kernels keep outputs in f32, the general path does not
} fused_plain_row;

static inline float fused_plain_act(int32_t act, float z) {
  if (act == BRIM_ACT_TANH) return tanhf(z);
  return z > 0.0f ? z : z == z ? 0.0f : z;
}

static inline float fused_plain_slope(int32_t act, float h) {
  return act == BRIM_ACT_TANH ? 1.0f - h * h : h > 0.0f ? 1.0f : 0.0f;
}

// The sums of a layer, before its activation.
static inline void fused_plain_layer(const brim_fused_net *n, int layer, const float *x,
                                     double *z) {
  const int32_t in = fused_plain_width(n, layer), out = fused_plain_width(n, layer + 1);
  for (int32_t o = 0; o < out; o++) {
    z[o] = (double)fused_plain_load(n->bias[layer], n->dtype, o);
    for (int32_t i = 0; i < in; i++) {
      z[o] +=
          (double)fused_plain_load(n->weight[layer], n->dtype, (int64_t)o * in + i) * (double)x[i];
    }
  }
}

// Computes the other layers from the first layer's sums.
static inline void fused_plain_rest(const brim_fused_net *n, const double *first,
                                    fused_plain_row *r) {
  double z[BRIM_FUSED_MAX_HIDDEN];
  for (int32_t i = 0; i < n->hidden; i++) {
    r->h[0][i] = fused_plain_round(n->dtype, (double)fused_plain_act(n->act, (float)first[i]));
  }
  fused_plain_layer(n, 1, r->h[0], z);
  for (int32_t i = 0; i < n->hidden; i++) {
    r->h[1][i] = fused_plain_round(n->dtype, (double)fused_plain_act(n->act, (float)z[i]));
  }
  fused_plain_layer(n, 2, r->h[1], z);
  for (int32_t o = 0; o < n->outputs; o++) {
    r->y[o] = r->exact ? (float)z[o] : fused_plain_round(n->dtype, z[o]);
  }
}

static inline void fused_plain_forward(const brim_fused_net *n, const void *input, int64_t row,
                                       fused_plain_row *r) {
  double z[BRIM_FUSED_MAX_HIDDEN];
  for (int32_t i = 0; i < n->inputs; i++) {
    r->x[i] = fused_plain_load(input, n->dtype, row * n->inputs + i);
  }
  fused_plain_layer(n, 0, r->x, z);
  fused_plain_rest(n, z, r);
}

// Computes g of both hidden layers from dy.
static inline void fused_plain_backward(const brim_fused_net *n, fused_plain_row *r) {
  for (int layer = 1; layer >= 0; layer--) {
    const int32_t out = fused_plain_width(n, layer + 2);
    const float *from = layer == 1 ? r->dy : r->g[1];
    for (int32_t i = 0; i < n->hidden; i++) {
      double sum = 0;
      for (int32_t o = 0; o < out; o++) {
        sum +=
            (double)fused_plain_load(n->weight[layer + 1], n->dtype, (int64_t)o * n->hidden + i) *
            (double)from[o];
      }
      r->g[layer][i] =
          fused_plain_round(n->dtype, sum * (double)fused_plain_slope(n->act, r->h[layer][i]));
    }
  }
}

//---------------------------------- gradients ----------------------------------

// A network's gradients, summed over rows.
typedef struct fused_plain_sums {
  double *weight[BRIM_FUSED_LAYERS], *bias[BRIM_FUSED_LAYERS];
} fused_plain_sums;

static inline void fused_plain_sums_free(fused_plain_sums *s) {
  for (int i = 0; i < BRIM_FUSED_LAYERS; i++) {
    brim_free(s->weight[i]);
    brim_free(s->bias[i]);
  }
}

static inline brim_status fused_plain_sums_make(const brim_fused_net *n, fused_plain_sums *s) {
  memset(s, 0, sizeof *s);
  bool all = true;
  for (int i = 0; i < BRIM_FUSED_LAYERS; i++) {
    const size_t in = (size_t)fused_plain_width(n, i), out = (size_t)fused_plain_width(n, i + 1);
    s->weight[i] = (double *)brim_calloc(in * out, sizeof(double));
    s->bias[i] = (double *)brim_calloc(out, sizeof(double));
    all = all && s->weight[i] && s->bias[i];
  }
  return all ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for gradients");
}

static inline void fused_plain_add(const brim_fused_net *n, fused_plain_sums *s, int layer,
                                   const float *dy, const float *x) {
  const int32_t in = fused_plain_width(n, layer), out = fused_plain_width(n, layer + 1);
  for (int32_t o = 0; o < out; o++) {
    s->bias[layer][o] += (double)dy[o];
    for (int32_t i = 0; i < in; i++) {
      s->weight[layer][(int64_t)o * in + i] += (double)dy[o] * (double)x[i];
    }
  }
}

// Gradients of weights of the layers from `first` on, and of all biases.
static inline void fused_plain_write(const brim_fused_net *n, const fused_plain_sums *s,
                                     int first) {
  for (int layer = 0; layer < BRIM_FUSED_LAYERS; layer++) {
    const int64_t in = fused_plain_width(n, layer), out = fused_plain_width(n, layer + 1);
    const int64_t weights = layer < first ? 0 : in * out;
    for (int64_t i = 0; i < weights; i++) n->weight_grad[layer][i] = (float)s->weight[layer][i];
    for (int64_t i = 0; i < out; i++) n->bias_grad[layer][i] = (float)s->bias[layer][i];
  }
}

//---------------------------------- losses ----------------------------------

typedef struct fused_plain_work {
  const brim_ppo_shape *shape;
  const brim_fused_update *w;
  brim_ppo_scale values;
  float shift, adv_scale;
  bool exact;  // outputs are not rounded
} fused_plain_work;

static inline float fused_plain_scale(const brim_ppo_net *net) {
  return (float)(net->state[BRIM_STATE_GRAD_SCALE] * net->state[BRIM_STATE_LOSS_SCALE]);
}

// Computes dy of row i * agents + agent of the actor.
static inline void fused_plain_policy(const fused_plain_work *p, int64_t row, fused_plain_row *r) {
  const brim_ppo_losses *l = &p->w->losses;
  const brim_ppo_shape *s = p->shape;
  const int64_t from = l->rows[row / s->agents], at = from * s->agents + row % s->agents;
  const uint64_t mask = l->mask         ? l->mask[row]
                        : p->w->allowed ? p->w->allowed[at]
                                        : brim_ppo_mask_all(s->act);
  const brim_ppo_policy_input c = {
      .mask = mask,
      .action = l->action[at],
      .logp = l->logp[at],
      .adv = (l->adv[s->rewards == 1 ? from : at] - p->shift) * p->adv_scale,
      .clip = l->clip,
      .entropy = l->entropy,
      .scale = fused_plain_scale(&l->actor)};
  float x[BRIM_FUSED_MAX_OUTPUTS];
  memcpy(x, r->y, sizeof x);
  const brim_ppo_policy_loss f = brim_ppo_policy(x, s->act, &c);
  brim_ppo_count_row(&f, l->metrics);
  for (int32_t a = 0; a < s->act; a++) r->dy[a] = x[a];
}

// Computes dy of row i of the critic.
static inline void fused_plain_value(const fused_plain_work *p, int64_t row, fused_plain_row *r) {
  const brim_ppo_losses *l = &p->w->losses;
  const int32_t rewards = p->shape->rewards;
  const float scale = brim_ppo_value_scale(l->value_coef, rewards, fused_plain_scale(&l->critic));
  for (int32_t k = 0; k < rewards; k++) {
    const int64_t at = (int64_t)l->rows[row] * rewards + k;
    const float target = brim_ppo_normal_of(p->values, l->ret[at]);
    const float old = brim_ppo_normal_of(p->values, l->old[at]);
    const brim_ppo_value_loss v = brim_ppo_value(r->y[k], old, target, l->value_clip, l->huber);
    brim_ppo_count_value(&v, r->y[k], target, l->metrics + BRIM_PPO_ACTOR_METRICS);
    r->dy[k] = v.slope * scale;
  }
}

//---------------------------------- updates ----------------------------------

// Finds `row` of a minibatch among the rows of the part.
static inline int64_t fused_plain_input_row(const fused_plain_work *p, const brim_fused_part *part,
                                            int64_t row, bool actor) {
  const int64_t agents = actor ? p->shape->agents : 1;
  if (!part->listed) return row;
  return p->w->losses.rows[row / agents] * agents + row % agents;
}

static inline void fused_plain_first(const brim_fused_part *part, int64_t row, fused_plain_row *r) {
  double z[BRIM_FUSED_MAX_HIDDEN];
  const brim_fused_net *n = &part->net;
  for (int32_t i = 0; i < n->hidden; i++) {
    z[i] = (double)fused_plain_load(part->z, n->dtype, row * n->hidden + i);
  }
  fused_plain_rest(n, z, r);
}

static inline void fused_plain_leave(const brim_fused_part *part, int64_t row,
                                     const fused_plain_row *r) {
  const brim_fused_net *n = &part->net;
  for (int32_t i = 0; i < n->hidden; i++) {
    const int64_t at = row * n->hidden + i;
    fused_plain_store(part->h, n->dtype, at, r->h[0][i]);
    fused_plain_store(part->g, n->dtype, at, r->g[1][i]);
    fused_plain_store(part->z, n->dtype, at, r->g[0][i]);
  }
}

static inline brim_status fused_plain_part(const fused_plain_work *p, const brim_fused_part *part,
                                           bool actor) {
  const brim_fused_net *n = &part->net;
  const brim_ppo_net *of = actor ? &p->w->losses.actor : &p->w->losses.critic;
  const int64_t rows = p->shape->batch * (actor ? p->shape->agents : 1);
  const int64_t valid = (int64_t)of->state[BRIM_STATE_ROWS];
  const bool whole = part->z == NULL;
  fused_plain_sums sums;
  fused_plain_row *r = (fused_plain_row *)brim_calloc(1, sizeof *r);
  brim_status status = fused_plain_sums_make(n, &sums);
  if (!r) status = brim_fail(BRIM_ENOMEM, "out of memory for a row");
  for (int64_t row = 0; !status && row < rows; row++) {
    memset(r, 0, sizeof *r);
    r->exact = p->exact;
    if (whole) {
      fused_plain_forward(n, part->input, fused_plain_input_row(p, part, row, actor), r);
    } else {
      fused_plain_first(part, row, r);
    }
    if (row < valid) (actor ? fused_plain_policy : fused_plain_value)(p, row, r);
    for (int32_t o = 0; o < n->outputs; o++) {
      r->dy[o] = fused_plain_round(n->dtype, (double)r->dy[o]);
    }
    fused_plain_backward(n, r);
    fused_plain_add(n, &sums, 2, r->dy, r->h[1]);
    fused_plain_add(n, &sums, 1, r->g[1], r->h[0]);
    fused_plain_add(n, &sums, 0, r->g[0], r->x);
    if (!whole) fused_plain_leave(part, row, r);
  }
  if (!status) fused_plain_write(n, &sums, whole ? 0 : 2);
  fused_plain_sums_free(&sums);
  brim_free(r);
  return status;
}

static inline brim_fused_way fused_plain_way(const brim_fused_net *n) {
  const bool fits = (n->dtype == BRIM_F32 || n->dtype == BRIM_BF16) &&
                    (n->act == BRIM_ACT_TANH || n->act == BRIM_ACT_RELU) && n->inputs > 0 &&
                    n->inputs % 8 == 0 && n->hidden > 0 && n->hidden <= BRIM_FUSED_MAX_HIDDEN &&
                    n->outputs > 0 && n->outputs <= BRIM_FUSED_MAX_OUTPUTS;
  if (!fits) return BRIM_FUSED_NOT;
  return n->inputs <= BRIM_FUSED_MAX_INPUTS && n->hidden <= BRIM_FUSED_MAX_WHOLE ? BRIM_FUSED_WHOLE
                                                                                 : BRIM_FUSED_REST;
}

static inline brim_status fused_plain_scratch(const brim_ppo_shape *shape,
                                              const brim_fused_net *actor,
                                              const brim_fused_net *critic, size_t *bytes) {
  const char *problem = brim_ppo_problem(shape);
  if (problem) return brim_fail(BRIM_EINVAL, "%s", problem);
  if (fused_plain_way(actor) == BRIM_FUSED_NOT || fused_plain_way(critic) == BRIM_FUSED_NOT ||
      actor->dtype != critic->dtype) {
    return brim_fail(BRIM_EUNSUPPORTED, "networks that are not fused");
  }
  *bytes = 256;
  return BRIM_OK;
}

static inline brim_status fused_plain_update_as(const brim_ppo_shape *shape,
                                                const brim_fused_update *work, bool exact) {
  const brim_ppo_losses *l = &work->losses;
  const fused_plain_work p = {.shape = shape,
                              .w = work,
                              .values = brim_ppo_scale_of(l->norm),
                              .shift = l->moments ? l->moments->shift : 0.0f,
                              .adv_scale = l->moments ? l->moments->scale : 1.0f,
                              .exact = exact};
  // writes into the caller's scratch, as a kernel may
  if (work->scratch) memset(work->scratch, 0xFF, 256);
  BRIM_TRY(fused_plain_part(&p, &work->actor, true));
  return fused_plain_part(&p, &work->critic, false);
}

static inline brim_status fused_plain_update(const brim_rollout_where *where,
                                             const brim_ppo_shape *shape,
                                             const brim_fused_update *work) {
  (void)where;
  return fused_plain_update_as(shape, work, false);
}

static inline brim_status fused_plain_values(const brim_rollout_where *where,
                                             const brim_fused_net *net, const void *input,
                                             int64_t rows, void *outputs) {
  (void)where;
  fused_plain_row *r = (fused_plain_row *)brim_calloc(1, sizeof *r);
  if (!r) return brim_fail(BRIM_ENOMEM, "out of memory for a row");
  for (int64_t row = 0; row < rows; row++) {
    fused_plain_forward(net, input, row, r);
    for (int32_t o = 0; o < net->outputs; o++) {
      fused_plain_store(outputs, net->dtype, row * net->outputs + o, r->y[o]);
    }
  }
  brim_free(r);
  return BRIM_OK;
}

static const brim_fused_table fused_plain = {.abi = BRIM_FUSED_ABI,
                                             .way = fused_plain_way,
                                             .scratch = fused_plain_scratch,
                                             .update = fused_plain_update,
                                             .values = fused_plain_values};

//---------------------------------- rollouts ----------------------------------

typedef struct fused_plain_rollout {
  const brim_rollout_where *where;
  const brim_collect_shape *shape;
  char *block;
  const brim_fused_rollout *w;
  brim_collect_layout at;
  brim_ppo_shape ppo;
  uint64_t *mask;  // (envs, agents)
  void *outputs;   // outputs of the actor: (envs * agents, outputs)
} fused_plain_rollout;

static inline int32_t fused_plain_can(const brim_collect_shape *shape,
                                      const brim_fused_net *actor) {
  brim_collect_layout at;
  if (brim_collect_cpu()->layout(shape, &at)) {
    brim_status_clear();
    return 0;
  }
  return at.act <= BRIM_FUSED_MAX_ACT && actor->outputs == at.act && actor->inputs >= at.obs &&
         fused_plain_way(actor) == BRIM_FUSED_WHOLE;
}

// The inputs of the networks for `count` rows from `first` on; the actor's only for steps.
static inline brim_status fused_plain_see(const fused_plain_rollout *p, int64_t first,
                                          int64_t count, bool acting) {
  const brim_fused_net *n = &p->w->actor;
  const int64_t agents = p->at.agents;
  const brim_collect_view view = {
      .first = first,
      .count = count,
      .actor = {.data = acting
                            ? fused_plain_at(p->w->actor_seen, n->dtype, first * agents * n->inputs)
                            : NULL,
                .dtype = n->dtype,
                .pitch = n->inputs},
      .critic = {.data = fused_plain_at(p->w->critic_seen, n->dtype, first * p->w->critic_inputs),
                 .dtype = n->dtype,
                 .pitch = p->w->critic_inputs},
      .mask = acting ? p->mask : NULL,
  };
  return brim_collect_cpu()->look(p->where, p->shape, p->block, &view);
}

static inline brim_status fused_plain_step(const fused_plain_rollout *p, int32_t t) {
  const brim_fused_net *n = &p->w->actor;
  const int64_t envs = p->at.envs, rows = envs * p->at.agents, first = rows * t;
  const brim_collect_clock *clock =
      (const brim_collect_clock *)(const void *)(p->block + p->at.clock);
  BRIM_TRY(fused_plain_see(p, envs * t, envs, true));
  for (int64_t i = 0; p->w->allowed && i < rows; i++) {
    p->w->allowed[first + i] = (uint8_t)p->mask[i];
  }
  BRIM_TRY(fused_plain_values(p->where, n,
                              fused_plain_at(p->w->actor_seen, n->dtype, first * n->inputs), rows,
                              p->outputs));
  const int64_t dim[] = {rows, n->outputs};
  const brim_ppo_sample sample = {
      .outputs = brim_tensor_make(p->outputs, (brim_dtype)n->dtype, 2, dim),
      .rows = rows,
      .mask = p->mask,
      .clock = &clock->now,
      .t = t,
      .seed = p->w->seed,
      .action = (int32_t *)(void *)(p->block + p->at.action) + first,
      .logp = (float *)(void *)(p->block + p->at.logp) + first,
      .bad = p->w->bad,
  };
  BRIM_TRY(brim_ppo_cpu()->sample(p->where, &p->ppo, &sample));
  return brim_collect_cpu()->step(p->where, p->shape, p->block, t);
}

// The critic's inputs of the final states that were reached, and of state T.
static inline brim_status fused_plain_see_ends(const fused_plain_rollout *p) {
  const int64_t envs = p->at.envs, steps = p->at.steps;
  const int32_t *final = (const int32_t *)(const void *)(p->block + p->at.final);
  BRIM_TRY(fused_plain_see(p, steps * envs, envs, false));
  for (int64_t i = 0; i < steps * envs; i++) {
    if (final[i] < 0) continue;
    BRIM_TRY(fused_plain_see(p, (steps + 1 + final[i]) * envs + i % envs, 1, false));
  }
  return BRIM_OK;
}

// Fills the states between the first and state T, and the final states, with garbage: a reader of them would show.
static inline void fused_plain_forget(const fused_plain_rollout *p) {
  const size_t row = p->at.state_bytes * (size_t)p->at.envs;
  char *states = p->block + p->at.states;
  memset(states + row, 0x7F, row * (size_t)(p->at.steps - 1));
  memset(states + row * (size_t)(p->at.steps + 1), 0x7F, row * (size_t)p->at.finals);
}

static inline brim_status fused_plain_roll(const fused_plain_rollout *p) {
  BRIM_TRY(brim_collect_cpu()->begin(p->where, p->shape, p->block));
  for (int32_t t = 0; t < p->at.steps; t++) BRIM_TRY(fused_plain_step(p, t));
  BRIM_TRY(fused_plain_see_ends(p));
  fused_plain_forget(p);
  return BRIM_OK;
}

static inline brim_status fused_plain_run(const brim_rollout_where *where,
                                          const brim_collect_shape *shape, void *block,
                                          const brim_fused_rollout *work) {
  fused_plain_rollout p = {.where = where, .shape = shape, .block = (char *)block, .w = work};
  BRIM_TRY(brim_collect_cpu()->layout(shape, &p.at));
  p.ppo = (brim_ppo_shape){.steps = p.at.steps,
                           .envs = p.at.envs,
                           .agents = p.at.agents,
                           .act = p.at.act,
                           .rewards = p.at.rewards,
                           .finals = p.at.finals};
  const size_t rows = (size_t)p.at.envs * (size_t)p.at.agents;
  p.mask = (uint64_t *)brim_calloc(rows, sizeof *p.mask);
  p.outputs = brim_calloc(rows * (size_t)work->actor.outputs, sizeof(float));
  brim_status status = p.mask && p.outputs ? fused_plain_roll(&p)
                                           : brim_fail(BRIM_ENOMEM, "out of memory for actions");
  brim_free(p.mask);
  brim_free(p.outputs);
  return status;
}

static const brim_fused_rollout_table fused_plain_rollout_table = {
    .abi = BRIM_FUSED_ABI, .can = fused_plain_can, .run = fused_plain_run};

#endif  // BRIM_TESTS_ENV_FUSED_PLAIN_H_
