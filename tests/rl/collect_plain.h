// Collected rollouts against direct calls of the functions in an environment's header. A template over the header, like
// views_each.h; empty without BRIM_ENV.
#ifdef BRIM_ENV
#include "rl/rl_rollout_plan.h"

// One environment, run as the contract describes it.
typedef struct BRIM_ENV(plain) {
  BRIM_ENV(state) s, last;  // last: the final state of an episode that ended with the last step
  brim_env_track t;
  int32_t finals;  // truncations in this rollout, and their final states
  int32_t slot[16];
  BRIM_ENV(state) final[16];
  double from;  // t.reward at the start of the episode
  brim_rollout_episode episode;
} BRIM_ENV(plain);

static void BRIM_ENV(plain_start)(const BRIM_ENV(values) * v, BRIM_ENV(plain) * p) {
  memset(&p->s, 0, sizeof p->s);
  BRIM_ENV(reset)(v, &p->t, &p->s);
}

// Asserts that the state of a row is `s`.
static void BRIM_ENV(plain_state)(camp *g, const BRIM_ENV(values) * v, int64_t row,
                                  const BRIM_ENV(state) * s) {
  BRIM_ENV(state) has;
  const size_t stored = (size_t)BRIM_ENV(stored)(v);
  camp_get(g, g->block + g->at.states + (size_t)row * g->at.state_bytes, &has, stored);
  assert_memory_equal(&has, s, stored);
}

// Chooses an allowed action for each agent, the same on every device.
static void BRIM_ENV(plain_act)(const BRIM_ENV(values) * v, const BRIM_ENV(plain) * p,
                                uint32_t seed, int32_t *action) {
  const brim_env_sizes z = BRIM_ENV(sizes)(v);
  for (int32_t a = 0; a < z.agents; a++) {
    const brim_philox4 bits =
        brim_philox(seed, p->t.ids.env, (uint64_t)(uint32_t)p->t.steps << 32 | (uint32_t)a);
    action[a] = brim_env_any(BRIM_ENV(mask)(v, &p->s, a), bits.v[0]);
  }
}

static void BRIM_ENV(plain_step)(camp *g, const BRIM_ENV(values) * v, BRIM_ENV(plain) * p,
                                 int32_t t, const int32_t *action) {
  const brim_env_sizes z = BRIM_ENV(sizes)(v);
  const int64_t row = (int64_t)t * g->shape.num_envs + p->t.ids.env;
  const int32_t rewards = brim_env_rewards(&z);
  const brim_env_outcome o = BRIM_ENV(step)(v, &p->t, &p->s, action);
  const int over = brim_env_after(&p->t, o, g->shape.episode_length);
  float reward[BRIM_ENV(AGENTS)];
  camp_get(g, g->block + g->at.reward + (size_t)(row * rewards) * sizeof *reward, reward,
           (size_t)rewards * sizeof *reward);
  for (int32_t i = 0; i < rewards; i++) {
    const float want = rewards > 1 ? BRIM_ENV(share)(v, &p->s, i) : o.reward;
    assert_memory_equal(&want, &reward[i], sizeof want);
  }
  int8_t end;
  int32_t final;
  camp_get(g, g->block + g->at.end + (size_t)row, &end, sizeof end);
  camp_get(g, g->block + g->at.final + (size_t)row * sizeof final, &final, sizeof final);
  assert_int_equal(end, over ? p->t.outcome : BRIM_ENV_RUNNING);
  if (over && p->t.outcome == BRIM_ENV_TRUNCATED) {
    assert_in_range(final, 0, g->at.finals - 1);
    assert_in_range(p->finals, 0, 15);
    p->slot[p->finals] = final;
    p->final[p->finals++] = p->s;
  } else {
    assert_int_equal(final, -1);
  }
  if (over) {
    p->episode = (brim_rollout_episode){(float)(p->t.reward - p->from), p->t.step, p->t.outcome};
    p->last = p->s;
    p->from = p->t.reward;
    p->t.episode++;
    p->t.step = 0;
    BRIM_ENV(plain_start)(v, p);
  }
  BRIM_ENV(plain_state)(g, v, row + g->shape.num_envs, &p->s);
}

// Compares the numbers of all rows of step t.
static void BRIM_ENV(plain_look)(camp *g, const BRIM_ENV(values) * v, const BRIM_ENV(plain) * p,
                                 int32_t t) {
  const brim_env_sizes z = BRIM_ENV(sizes)(v);
  const int32_t envs = g->shape.num_envs, critic = g->at.critic;
  const size_t actor_bytes = (size_t)(envs * z.agents * z.obs) * sizeof(float),
               critic_bytes = (size_t)(envs * critic) * sizeof(float),
               mask_bytes = (size_t)(envs * z.agents) * sizeof(uint64_t);
  float *out = malloc(actor_bytes + critic_bytes), *values = out + envs * z.agents * z.obs;
  uint64_t *mask = malloc(mask_bytes);
  assert_non_null(out);
  assert_non_null(mask);
  brim_collect_view view = {.first = (int64_t)t * envs,
                            .count = envs,
                            .actor = {camp_alloc(g, actor_bytes), BRIM_F32, z.obs},
                            .critic = {camp_alloc(g, critic_bytes), BRIM_F32, critic},
                            .mask = camp_alloc(g, mask_bytes)};
  camp_look(g, &view);
  camp_get(g, view.actor.data, out, actor_bytes);
  camp_get(g, view.critic.data, values, critic_bytes);
  camp_get(g, view.mask, mask, mask_bytes);
  for (int32_t e = 0; e < envs; e++) {
    for (int32_t a = 0; a < z.agents; a++) {
      const float *x = out + (e * z.agents + a) * z.obs;
      for (int32_t i = 0; i < z.obs; i++) {
        const float want = BRIM_ENV(sees)(v, &p[e].s, a, i);
        assert_memory_equal(&x[i], &want, sizeof want);
        if (!z.global) assert_memory_equal(&values[e * critic + a * z.obs + i], &want, sizeof want);
      }
      assert_true(mask[e * z.agents + a] == BRIM_ENV(mask)(v, &p[e].s, a));
    }
    for (int32_t i = 0; i < z.global; i++) {
      const float want = BRIM_ENV(global_sees)(v, &p[e].s, i);
      assert_memory_equal(&values[e * critic + i], &want, sizeof want);
    }
  }
  camp_free(g, view.actor.data);
  camp_free(g, view.critic.data);
  camp_free(g, view.mask);
  free(mask);
  free(out);
}

// Collects the figures of each environment's last episode.
static void BRIM_ENV(plain_episodes)(camp *g, const BRIM_ENV(values) * v,
                                     const BRIM_ENV(plain) * p) {
  const int32_t figures = BRIM_ENV(sizes)(v).figures;
  for (int32_t e = 0; e < g->shape.num_envs; e++) {
    brim_rollout_episode has;
    float raw[BRIM_ENV(FIGURES) + 1] = {0}, want[BRIM_ENV(FIGURES) + 1] = {0};
    camp_get(g, g->block + g->at.episodes + (size_t)e * sizeof has, &has, sizeof has);
    camp_get(g, g->block + g->at.figures + (size_t)(e * figures) * sizeof *raw, raw,
             (size_t)figures * sizeof *raw);
    assert_int_equal(has.length, p[e].episode.length);
    assert_int_equal(has.outcome, p[e].episode.outcome);
    // sums of an episode, or differences between sums of all
    assert_true(fabs((double)(has.reward - p[e].episode.reward)) <= 1e-4);
    if (has.outcome != BRIM_ENV_RUNNING) BRIM_ENV(figures)(v, &p[e].last, want);
    assert_memory_equal(raw, want, (size_t)figures * sizeof *raw);
  }
}

// Compares every number of some rollouts of a shape. Returns how many episodes ended.
static int BRIM_ENV(plain_agrees)(camp *g, const brim_collect_shape *shape, int rollouts) {
  BRIM_ENV(values) v;
  memcpy(&v, shape->env.bytes, sizeof v);
  const int32_t envs = shape->num_envs, agents = BRIM_ENV(sizes)(&v).agents;
  BRIM_ENV(plain) *p = calloc((size_t)envs, sizeof *p);
  int32_t *action = malloc((size_t)(envs * agents) * sizeof *action);
  assert_non_null(p);
  assert_non_null(action);
  camp_prepare(g, shape);
  for (int32_t e = 0; e < envs; e++) {
    p[e].t = brim_env_track_of(shape->stream ? brim_env_held_out(shape->seed, shape->stream, e)
                                             : brim_env_training(shape->seed, 0, 0, e));
    p[e].episode.outcome = BRIM_ENV_RUNNING;
    BRIM_ENV(plain_start)(&v, &p[e]);
  }
  for (int i = 0; i < rollouts; i++) {
    camp_begin(g);
    brim_collect_clock clock;
    camp_get(g, g->block + g->at.clock, &clock, sizeof clock);
    assert_int_equal(clock.now, i * shape->steps);
    assert_int_equal(clock.next, (i + 1) * shape->steps);
    for (int32_t e = 0; e < envs; e++) p[e].finals = 0;
    for (int32_t t = 0; t < shape->steps; t++) {
      BRIM_ENV(plain_look)(g, &v, p, t);
      for (int32_t e = 0; e < envs; e++) BRIM_ENV(plain_act)(&v, &p[e], 5, action + e * agents);
      const size_t bytes = (size_t)(envs * agents) * sizeof *action;
      camp_put(g, g->block + g->at.action + (size_t)t * bytes, action, bytes);
      camp_step(g, t);
      for (int32_t e = 0; e < envs; e++) {
        BRIM_ENV(plain_step)(g, &v, &p[e], t, action + e * agents);
      }
    }
    BRIM_ENV(plain_look)(g, &v, p, shape->steps);
    // after the rollout each final state is in its place
    for (int32_t e = 0; e < envs; e++) {
      for (int32_t f = 0; f < p[e].finals; f++) {
        BRIM_ENV(plain_state)
        (g, &v, (int64_t)(shape->steps + 1 + p[e].slot[f]) * envs + e, &p[e].final[f]);
      }
    }
  }
  BRIM_ENV(plain_episodes)(g, &v, p);
  int ended = 0;
  for (int32_t e = 0; e < envs; e++) ended += p[e].t.episode;
  free(action);
  free(p);
  camp_clear(g);
  return ended;
}

#endif  // BRIM_ENV
