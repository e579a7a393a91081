// The CPU's loops over the environments of a collected rollout, a template over the header of an environment
// with discrete actions. An environment's file includes its header, defines BRIM_ENV(x) and includes this; it
// gets brim_NAME_collects() for its row. Without BRIM_ENV this is empty.
#ifdef BRIM_ENV
#include <string.h>

#include "backend/backend_half.h"
#include "rl/rl_collect_step.h"

static BRIM_ENV(values) BRIM_ENV(collect_values)(const void *env) {
  BRIM_ENV(values) v;
  memcpy(&v, env, sizeof v);
  return v;
}

// Returns 0 if the sizes exceed the header's capacities.
static int32_t BRIM_ENV(collect_stored)(const void *env) {
  const BRIM_ENV(values) v = BRIM_ENV(collect_values)(env);
  const brim_env_sizes z = BRIM_ENV(sizes)(&v);
  const int32_t stored = BRIM_ENV(stored)(&v);
  const int fits = z.obs <= BRIM_ENV(OBS) && z.act <= BRIM_ENV(ACT) &&
                   z.agents <= BRIM_ENV(AGENTS) && z.figures <= BRIM_ENV(FIGURES) &&
                   stored <= (int32_t)sizeof(BRIM_ENV(state));
  return fits ? stored : 0;
}

// Writes first states. Tracks, sums and episodes must be 0 already.
static void BRIM_ENV(collect_reset)(const brim_collect_work *w, int64_t begin, int64_t end) {
  const BRIM_ENV(values) v = BRIM_ENV(collect_values)(w->env);
  const brim_collect_task *c = &w->task;
  for (int64_t e = begin; e < end; e++) {
    c->episodes[e].outcome = BRIM_ENV_RUNNING;
    char *first = brim_collect_state(c, (int64_t)c->steps * c->envs + e);
    memset(first, 0, (size_t)c->state_bytes);
    BRIM_ENV(collect_start)(c, &v, (int32_t)e, &c->tracks[e], (BRIM_ENV(state) *)(void *)first);
    for (int64_t row = (int64_t)(c->steps + 1) * c->envs + e; row < w->rows; row += c->envs) {
      memcpy(brim_collect_state(c, row), first, (size_t)c->state_bytes);
    }
  }
}

static void BRIM_ENV(collect_step)(const brim_collect_work *w, int64_t begin, int64_t end) {
  const BRIM_ENV(values) v = BRIM_ENV(collect_values)(w->env);
  const brim_collect_task *c = &w->task;
  const size_t bytes = (size_t)c->state_bytes;
  for (int64_t e = begin; e < end; e++) {
    const int64_t row = (int64_t)w->t * c->envs + e;
    const int32_t env = (int32_t)e;
    char *to = brim_collect_state(c, row + c->envs);
    BRIM_ENV(state) *s = (BRIM_ENV(state) *)(void *)to;
    brim_collect_track *k = &c->tracks[e];
    float *reward = c->reward + row * c->rewards;
    memcpy(to, brim_collect_state(c, row), bytes);
    int32_t over = BRIM_ENV_RUNNING, final = -1;
    if (k->step < 0) {
      for (int32_t i = 0; i < c->rewards; i++) reward[i] = 0.0f;
    } else {
      over = BRIM_ENV(collect_move)(c, &v, env, k, s, c->action + row * c->agents, reward);
    }
    if (over != BRIM_ENV_RUNNING) {
      BRIM_ENV(collect_note)(c, &v, env, k, s, over);
      final = brim_collect_final(c, w->t, over);
      if (final >= 0) {
        memcpy(brim_collect_state(c, (int64_t)(c->steps + 1 + final) * c->envs + e), to, bytes);
      }
      BRIM_ENV(collect_next)(c, &v, env, k, s, over);
    }
    c->end[row] = (int8_t)over;
    c->final[row] = final;
  }
}

static void BRIM_ENV(collect_act)(const brim_collect_work *w, int64_t begin, int64_t end) {
  const BRIM_ENV(values) v = BRIM_ENV(collect_values)(w->env);
  const brim_collect_task *c = &w->task;
  for (int64_t e = begin; e < end; e++) {
    const int64_t row = (int64_t)w->t * c->envs + e;
    const BRIM_ENV(state) *s = (const BRIM_ENV(state) *)(const void *)brim_collect_state(c, row);
    for (int32_t a = 0; a < c->agents; a++) {
      c->action[row * c->agents + a] = BRIM_ENV(collect_choose)(c, &v, (int32_t)e, a, s, w->rule);
    }
  }
}

//---------------------------------- what networks read ----------------------------------

static void BRIM_ENV(collect_put)(const brim_collect_output *o, int64_t row, int32_t at,
                                  const float *x, int32_t count) {
  uint16_t *half = (uint16_t *)o->data + row * o->pitch + at;
  if (o->dtype == BRIM_F32) {
    memcpy((float *)o->data + row * o->pitch + at, x, (size_t)count * sizeof *x);
  } else if (o->dtype == BRIM_BF16) {
    for (int32_t i = 0; i < count; i++) half[i] = brim_f32_to_bf16(x[i]);
  } else {
    for (int32_t i = 0; i < count; i++) half[i] = brim_f32_to_f16(x[i]);
  }
}

// Clears a row from number `from` on.
static void BRIM_ENV(collect_clear)(const brim_collect_output *o, int64_t row, int32_t from) {
  const size_t size = o->dtype == BRIM_F32 ? sizeof(float) : sizeof(uint16_t);
  char *at = (char *)o->data + (size_t)(row * o->pitch + from) * size;
  memset(at, 0, (size_t)(o->pitch - from) * size);
}

static void BRIM_ENV(collect_show)(const brim_collect_work *w, const BRIM_ENV(values) * v,
                                   const BRIM_ENV(state) * s, int64_t i) {
  const brim_collect_task *c = &w->task;
  const brim_collect_view *view = w->view;
  const brim_collect_output *actor = &view->actor, *critic = &view->critic;
  const int both = critic->data && !c->global;  // true if the critic sees the same as the actors
  for (int32_t a = 0; a < c->agents; a++) {
    float x[BRIM_ENV(OBS)];
    if (actor->data || both) BRIM_ENV(observe)(v, s, a, x);
    if (actor->data) {
      BRIM_ENV(collect_put)(actor, i * c->agents + a, 0, x, c->obs);
      BRIM_ENV(collect_clear)(actor, i * c->agents + a, c->obs);
    }
    if (both) BRIM_ENV(collect_put)(critic, i, a * c->obs, x, c->obs);
    if (view->mask) view->mask[i * c->agents + a] = BRIM_ENV(mask)(v, s, a);
  }
  if (!critic->data) return;
  if (c->global && critic->dtype == BRIM_F32) {
    BRIM_ENV(global)(v, s, (float *)critic->data + i * critic->pitch);
  } else if (c->global) {
    for (int32_t j = 0; j < c->global; j++) {
      const float x = BRIM_ENV(global_sees)(v, s, j);
      BRIM_ENV(collect_put)(critic, i, j, &x, 1);
    }
  }
  BRIM_ENV(collect_clear)(critic, i, c->critic);
}

static void BRIM_ENV(collect_look)(const brim_collect_work *w, int64_t begin, int64_t end) {
  const BRIM_ENV(values) v = BRIM_ENV(collect_values)(w->env);
  const brim_collect_task *c = &w->task;
  const brim_collect_view *view = w->view;
  for (int64_t i = begin; i < end; i++) {
    const int64_t row = view->rows ? view->rows[i] : view->first + i;
    if (row >= 0 && row < w->rows) {
      const void *s = brim_collect_state(c, row);
      BRIM_ENV(collect_show)(w, &v, (const BRIM_ENV(state) *)s, i);
      continue;
    }
    if (view->critic.data) BRIM_ENV(collect_clear)(&view->critic, i, 0);
    for (int64_t a = i * c->agents; a < (i + 1) * c->agents; a++) {
      if (view->actor.data) BRIM_ENV(collect_clear)(&view->actor, a, 0);
      if (view->mask) view->mask[a] = 1;
    }
  }
}

static void BRIM_ENV(collect_frame)(const void *env, const void *state, float *out) {
  const BRIM_ENV(values) v = BRIM_ENV(collect_values)(env);
  BRIM_ENV(frame)(&v, (const BRIM_ENV(state) *)state, out);
}

static const brim_collect_each *BRIM_ENV(collects)(void) {
  static const brim_collect_each each = {
      .stored = BRIM_ENV(collect_stored),
      .reset = BRIM_ENV(collect_reset),
      .look = BRIM_ENV(collect_look),
      .choose = BRIM_ENV(collect_act),
      .step = BRIM_ENV(collect_step),
      .frame = BRIM_ENV(collect_frame),
  };
  return &each;
}

#endif  // BRIM_ENV
