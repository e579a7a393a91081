// Blocks of collected rollouts: saved and continued, cut into rollouts and threads, evaluated, summed, refused. On the
// CPU and, if there is a GPU, on CUDA.
#include "collect_test.h"

#include <math.h>

#include "env/drift.h"

static const char *const names[] = {"drift", "cartpole"};
#define EACH_CAMP(g, name) \
  for (camp camps_[2], *g = camps_, *end_ = camps_ + camps_of(name, camps_); g < end_; g++)

static brim_collect_shape small(const char *name, int32_t envs, int32_t steps) {
  brim_collect_shape s = shape_of(name, envs, steps);
  if (strcmp(name, "drift") == 0) {
    s.episode_length = 12;
    set_value(&s, drift_values, agents, 3);
  }
  return s;
}

static size_t states_of(const camp *g, int32_t t) {
  return g->at.states + (size_t)t * (size_t)g->shape.num_envs * g->at.state_bytes;
}

// The state that a run carries from one rollout to the next.
static void assert_same_carried(camp *a, camp *b) {
  for (int i = 0; i < 2; i++) {
    const size_t bytes = a->at.saved[i].bytes;
    assert_int_equal(bytes, b->at.saved[i].bytes);
    char *x = malloc(bytes), *y = malloc(bytes);
    assert_non_null(x);
    assert_non_null(y);
    camp_get(a, a->block + a->at.saved[i].offset, x, bytes);
    camp_get(b, b->block + b->at.saved[i].offset, y, bytes);
    if (i == 1) {  // at the start of the last rollout
      ((brim_collect_clock *)(void *)(x + a->at.clock - a->at.saved[1].offset))->now = 0;
      ((brim_collect_clock *)(void *)(y + b->at.clock - b->at.saved[1].offset))->now = 0;
    }
    assert_memory_equal(x, y, bytes);
    free(x);
    free(y);
  }
}

static void move_saved(camp *from, camp *to) {
  for (int i = 0; i < 2; i++) {
    const brim_collect_span a = from->at.saved[i], b = to->at.saved[i];
    assert_int_equal(a.bytes, b.bytes);
    char *x = malloc(a.bytes);
    assert_non_null(x);
    camp_get(from, from->block + a.offset, x, a.bytes);
    camp_put(to, to->block + b.offset, x, b.bytes);
    free(x);
  }
}

// Saving only the spans in `saved` suffices to continue, also in a block of another length.
static void a_saved_block_continues(void **state) {
  (void)state;
  for (int n = 0; n < 2; n++) {
    EACH_CAMP(g, names[n]) {
      const brim_collect_shape shape = small(names[n], 21, 10), longer = small(names[n], 21, 20);
      camp other = *g, whole = *g;
      camp_prepare(&whole, &shape);
      camp_run(&whole, 5, 0);
      camp_prepare(g, &shape);
      camp_run(g, 3, 0);
      camp_prepare(&other, &longer);
      move_saved(g, &other);
      camp_run(&other, 1, 0);
      assert_same_carried(&other, &whole);
      // and in a block of the same form the whole rollout is equal
      camp_run(&whole, 1, 0);
      camp_prepare(g, &shape);
      move_saved(&other, g);
      camp_run(g, 1, 0);
      char *a = camp_copy(g), *b = camp_copy(&whole);
      assert_memory_equal(a + g->at.reward, b + g->at.reward, g->at.logp - g->at.reward);
      assert_memory_equal(a + states_of(g, 0), b + states_of(g, 0),
                          states_of(g, shape.steps + 1) - states_of(g, 0));
      free(a);
      free(b);
      camp_clear(&other);
      camp_clear(&whole);
      camp_clear(g);
    }
  }
}

// Rollouts of 24 steps equal three of 8, and 24 of 1.
static void the_length_of_rollouts_changes_no_bit(void **state) {
  (void)state;
  static const int32_t steps[] = {8, 1};
  for (int n = 0; n < 2; n++) {
    EACH_CAMP(g, names[n]) {
      const brim_collect_shape shape = small(names[n], 40, 24);
      camp cut = *g;
      camp_prepare(g, &shape);
      camp_run(g, 1, 0);
      for (int i = 0; i < 2; i++) {
        brim_collect_shape part = shape;
        part.steps = steps[i];
        camp_prepare(&cut, &part);
        for (int32_t t = 0; t < 24; t += steps[i]) {
          camp_run(&cut, 1, 0);
          char *a = camp_copy(g), *b = camp_copy(&cut);
          const size_t bytes = states_of(&cut, steps[i] + 1) - states_of(&cut, 0);
          assert_memory_equal(a + states_of(g, t), b + states_of(&cut, 0), bytes);
          const size_t rewards = (size_t)(40 * steps[i] * g->at.rewards) * sizeof(float);
          assert_memory_equal(a + g->at.reward + (size_t)(40 * t * g->at.rewards) * sizeof(float),
                              b + cut.at.reward, rewards);
          assert_memory_equal(a + g->at.end + 40 * t, b + cut.at.end, (size_t)(40 * steps[i]));
          free(a);
          free(b);
        }
        assert_same_carried(g, &cut);
      }
      camp_clear(&cut);
      camp_clear(g);
    }
  }
}

static void threads_change_no_bit(void **state) {
  (void)state;
  for (int n = 0; n < 2; n++) {
    // enough for every thread to have a part
    const brim_collect_shape shape = small(names[n], 5000, 16);
    camp one = camp_cpu(1), five = camp_cpu(5);
    brim_pool *pool;
    assert_ok(brim_pool_create(5, &pool));
    five.where.pool = pool;
    camp_prepare(&one, &shape);
    camp_prepare(&five, &shape);
    camp_run(&one, 3, 0);
    camp_run(&five, 3, 0);
    assert_int_equal(one.at.bytes, five.at.bytes);
    assert_memory_equal(one.block, five.block, one.at.bytes);
    camp_clear(&one);
    camp_clear(&five);
    brim_pool_destroy(pool);
  }
}

// Environments are independent: adding more does not change the first ones.
static void more_environments_change_no_bit(void **state) {
  (void)state;
  for (int n = 0; n < 2; n++) {
    EACH_CAMP(g, names[n]) {
      camp many = *g;
      const brim_collect_shape few = small(names[n], 3, 16), all = small(names[n], 70, 16);
      camp_prepare(g, &few);
      camp_prepare(&many, &all);
      camp_run(g, 2, 0);
      camp_run(&many, 2, 0);
      char *a = camp_copy(g), *b = camp_copy(&many);
      for (int32_t t = 0; t <= 16; t++) {
        assert_memory_equal(a + states_of(g, t), b + states_of(&many, t), 3 * g->at.state_bytes);
      }
      free(a);
      free(b);
      camp_clear(&many);
      camp_clear(g);
    }
  }
}

static void cpu_and_cuda_have_the_same_bits(void **state) {
  (void)state;
  if (!world.device) BRIM_SKIP("no GPU here");
  for (int n = 0; n < 2; n++) {
    for (int once = 0; once < 2; once++) {
      camp g[2];
      brim_collect_shape shape = small(names[n], 1000, 40);
      shape.once = once;
      if (n == 0) set_value(&shape, drift_values, own, 1);
      assert_int_equal(camps_of(names[n], g), 2);
      char *copy[2];
      for (int p = 0; p < 2; p++) {
        camp_prepare(&g[p], &shape);
        camp_run(&g[p], 3, 0);
        camp_tally(&g[p], 0);
        copy[p] = camp_copy(&g[p]);
        camp_clear(&g[p]);
      }
      assert_int_equal(g[0].at.bytes, g[1].at.bytes);
      assert_memory_equal(copy[0], copy[1], g[0].at.bytes);
      free(copy[0]);
      free(copy[1]);
    }
  }
}

// A rollout that is recorded once and launched repeatedly continues like one that is not recorded.
static void recorded_rollouts_are_the_same(void **state) {
  (void)state;
  if (!world.device || !brim_device_has_graphs(world.device)) {
    BRIM_SKIP("no GPU that records");
  }
  for (int n = 0; n < 2; n++) {
    camp g[2];
    const brim_collect_shape shape = small(names[n], 100, 10);
    assert_int_equal(camps_of(names[n], g), 2);
    camp again = g[1], *direct = &g[1];
    camp_prepare(direct, &shape);
    camp_run(direct, 4, 0);
    camp_tally(direct, 0);
    camp_prepare(&again, &shape);
    assert_ok(brim_device_sync(world.device));
    brim_graph_exec *graph;
    assert_ok(brim_capture_begin(world.device));
    camp_run(&again, 1, 0);
    assert_ok(again.table->tally(&again.where, &shape, again.block, 0));
    assert_ok(brim_capture_end(world.device, &graph));
    for (int i = 0; i < 4; i++) assert_ok(brim_graph_launch(world.device, graph));
    assert_ok(brim_device_sync(world.device));
    char *a = camp_copy(direct), *b = camp_copy(&again);
    assert_memory_equal(a, b, again.at.bytes);
    free(a);
    free(b);
    brim_graph_exec_destroy(world.device, graph);
    camp_clear(direct);
    camp_clear(&again);
  }
}

//---------------------------------- evaluation ----------------------------------

// Gives every environment the first action that its mask allows.
static void act_first(camp *g, int32_t t) {
  const int64_t rows = (int64_t)g->shape.num_envs * brim_collect_sizes(&g->shape).agents;
  const size_t bytes = (size_t)rows * sizeof(uint64_t);
  uint64_t *mask = malloc(bytes);
  int32_t *action = malloc((size_t)rows * sizeof *action);
  assert_non_null(mask);
  assert_non_null(action);
  brim_collect_view view = {.first = (int64_t)t * g->shape.num_envs,
                            .count = g->shape.num_envs,
                            .mask = camp_alloc(g, bytes)};
  camp_look(g, &view);
  camp_get(g, view.mask, mask, bytes);
  camp_free(g, view.mask);
  for (int64_t i = 0; i < rows; i++) {
    assert_true(mask[i] != 0);
    action[i] = 0;
    while (!(mask[i] >> action[i] & 1)) action[i]++;
  }
  const size_t size = (size_t)rows * sizeof *action;
  camp_put(g, g->block + g->at.action + (size_t)t * size, action, size);
  free(mask);
  free(action);
}

// The episodes of an evaluation equal those of the rollouts' `evaluate` with a policy whose outputs are all 0: the same
// random numbers, sums and figures.
static void an_evaluation_is_that_of_evaluate(void **state) {
  (void)state;
  enum { EPISODES = 60 };
  static const int32_t steps[] = {1, 5, 100};
  for (int n = 0; n < 2; n++) {
    brim_collect_shape shape = small(names[n], EPISODES, 1);
    shape.once = 1;
    shape.stream = 3;
    shape.episode_length = 100;
    const brim_env_sizes z = brim_collect_sizes(&shape);
    const brim_rollout_shape rollout = {.row = shape.row,
                                        .env = shape.env,
                                        .num_envs = 2,
                                        .num_dirs = 1,
                                        .dir_chunk = 1,
                                        .episode_length = 100,
                                        .eval_episodes = EPISODES,
                                        .seed = shape.seed};
    const brim_rollout_eval eval = {.episodes = EPISODES, .zero = 1, .stream = 3};
    const brim_rollout_where here = {.threads = 1};
    const brim_rollout_table *table = brim_rollout_cpu();
    brim_rollout_layout at;
    assert_ok(table->layout(&rollout, &at));
    char *want = brim_alloc(at.bytes);
    assert_non_null(want);
    assert_ok(table->init(&here, &rollout, want));
    assert_ok(table->evaluate(&here, &rollout, want, &eval));
    EACH_CAMP(g, names[n]) {
      for (int i = 0; i < 3; i++) {
        shape.steps = steps[i];
        camp_prepare(g, &shape);
        for (int32_t t = 0; t < 110; t++) {
          if (t % steps[i] == 0) camp_begin(g);
          act_first(g, t % steps[i]);
          camp_step(g, t % steps[i]);
        }
        char *has = camp_copy(g);
        assert_memory_equal(has + g->at.episodes, want + at.episodes,
                            EPISODES * sizeof(brim_rollout_episode));
        assert_memory_equal(has + g->at.figures, want + at.figures,
                            EPISODES * (size_t)z.figures * sizeof(float));
        free(has);
        const brim_collect_tally tally = camp_tally(g, 0);
        assert_int_equal(tally.episodes, EPISODES);
      }
      camp_clear(g);
    }
    brim_free(want);
  }
}

// An environment with `once` never changes after its episode ended, and its further steps do not count.
static void an_ended_episode_stays(void **state) {
  (void)state;
  EACH_CAMP(g, "cartpole") {
    brim_collect_shape shape = small("cartpole", 33, 60);
    shape.once = 1;
    camp_prepare(g, &shape);
    camp_run(g, 1, 0);
    char *a = camp_copy(g);
    const int8_t *end = (const int8_t *)(a + g->at.end);
    const float *reward = (const float *)(void *)(a + g->at.reward);
    const int32_t *final = (const int32_t *)(void *)(a + g->at.final);
    int over = 0;
    for (int32_t e = 0; e < 33; e++) {
      int32_t t = 0;
      while (t < 60 && end[t * 33 + e] == BRIM_ENV_RUNNING) {
        assert_true(reward[t * 33 + e] == 1.0f);
        t++;
      }
      if (t == 60) continue;
      assert_int_equal(end[t * 33 + e], BRIM_ENV_TERMINATED);
      over++;
      const char *last = a + states_of(g, t + 1) + (size_t)e * g->at.state_bytes;
      for (int32_t later = t + 1; later < 60; later++) {
        assert_int_equal(end[later * 33 + e], BRIM_ENV_RUNNING);
        assert_int_equal(final[later * 33 + e], -1);
        assert_true(reward[later * 33 + e] == 0.0f);
        assert_memory_equal(a + states_of(g, later + 1) + (size_t)e * g->at.state_bytes, last,
                            g->at.state_bytes);
      }
    }
    free(a);
    assert_true(over > 20);
    camp_run(g, 20, 0);
    const brim_collect_tally tally = camp_tally(g, 0);
    assert_int_equal(tally.episodes, 33);
    assert_int_equal(tally.terminated + tally.truncated, 33);
    camp_clear(g);
  }
}

// Held-out streams: none of their starts equals another one, or one of training.
static void held_out_streams_are_apart(void **state) {
  (void)state;
  EACH_CAMP(g, "cartpole") {
    enum { STREAMS = 3, ENVS = 50 };
    char *all[STREAMS];
    size_t bytes = 0;
    for (uint64_t i = 0; i < STREAMS; i++) {
      brim_collect_shape shape = small("cartpole", ENVS, 4);
      shape.stream = i;
      camp_prepare(g, &shape);
      camp_begin(g);
      bytes = g->at.state_bytes;
      all[i] = malloc(ENVS * bytes);
      assert_non_null(all[i]);
      camp_get(g, g->block + g->at.states, all[i], ENVS * bytes);
    }
    for (int i = 0; i < STREAMS * ENVS; i++) {
      for (int j = 0; j < i; j++) {
        const char *a = all[i / ENVS] + (size_t)(i % ENVS) * bytes;
        const char *b = all[j / ENVS] + (size_t)(j % ENVS) * bytes;
        assert_memory_not_equal(a, b, bytes);
      }
    }
    for (int i = 0; i < STREAMS; i++) free(all[i]);
    camp_clear(g);
  }
}

//---------------------------------- sums ----------------------------------

static void near(double a, double b) { assert_true(fabs(a - b) <= 1e-9 * (1 + fabs(b))); }

// Sums equal the episodes, counted one by one as their environment counts them.
static void sums_are_those_of_the_episodes(void **state) {
  (void)state;
  EACH_CAMP(g, "drift") {
    const brim_collect_shape shape = small("drift", 70, 1);
    camp_prepare(g, &shape);
    brim_collect_tally want = {0};
    for (int i = 0; i < 200; i++) {
      camp_run(g, 1, i % 3 != 0);
      char *a = camp_copy(g);
      const brim_rollout_episode *episode = (const void *)(a + g->at.episodes);
      const float *raw = (const void *)(a + g->at.figures);
      for (int e = 0; e < 70; e++) {
        if ((int8_t)a[g->at.end + (size_t)e] == BRIM_ENV_RUNNING) continue;
        want.episodes++;
        want.terminated += episode[e].outcome == BRIM_ENV_TERMINATED;
        want.truncated += episode[e].outcome == BRIM_ENV_TRUNCATED;
        want.reward += (double)episode[e].reward;
        want.reward_sq += (double)episode[e].reward * (double)episode[e].reward;
        want.length += episode[e].length;
        shape.row->count(shape.env.bytes, shape.episode_length, &episode[e], raw + e, want.figures);
      }
      free(a);
      if (i == 99) camp_tally(g, 0);  // reading the tally changes nothing
    }
    const brim_collect_tally has = camp_tally(g, 1), none = camp_tally(g, 0);
    assert_true(want.terminated > 20);
    assert_true(want.truncated > 20);
    assert_int_equal(has.episodes, want.episodes);
    assert_int_equal(has.terminated, want.terminated);
    assert_int_equal(has.truncated, want.truncated);
    assert_int_equal(has.diverged, 0);
    assert_true(has.length == want.length);
    near(has.reward, want.reward);
    near(has.reward_sq, want.reward_sq);
    assert_true(has.figures[0][0] == want.figures[0][0]);
    assert_true(has.figures[0][1] == want.figures[0][1]);
    assert_int_equal(none.episodes, 0);
    assert_true(none.reward == 0 && none.length == 0 && none.figures[0][1] == 0);
    camp_clear(g);
  }
}

// Agents of an environment draw separately: with a common draw they would differ only through their masks.
static void agents_draw_apart(void **state) {
  (void)state;
  enum { ENVS = 500 };
  EACH_CAMP(g, "drift") {
    const brim_collect_shape shape = small("drift", ENVS, 1);
    camp_prepare(g, &shape);
    camp_begin(g);
    camp_choose(g, 0, 0);
    char *a = camp_copy(g);
    const int32_t *action = (const int32_t *)(void *)(a + g->at.action);
    int apart = 0;
    for (int e = 0; e < ENVS; e++) apart += action[3 * e] != action[3 * e + 1];
    assert_in_range(apart, ENVS * 5 / 10, ENVS * 8 / 10);  // two thirds
    free(a);
    camp_clear(g);
  }
}

// An action that does not exist ends the episode as diverged, in that environment only.
static void unknown_actions_diverge(void **state) {
  (void)state;
  static const int32_t bad[] = {-1, 3, INT32_MAX, INT32_MIN};
  for (int once = 0; once < 2; once++) {
    EACH_CAMP(g, "drift") {
      brim_collect_shape shape = small("drift", 10, 4);
      shape.once = once;
      camp_prepare(g, &shape);
      camp_begin(g);
      for (int32_t t = 0; t < 4; t++) {
        camp_choose(g, t, 0);
        // agent 1 of environment 2 + t
        const size_t at = (size_t)((t * 10 + 2 + t) * 3 + 1) * sizeof(int32_t);
        camp_put(g, g->block + g->at.action + at, &bad[t], sizeof bad[t]);
        camp_step(g, t);
      }
      char *a = camp_copy(g);
      const int8_t *end = (const int8_t *)(a + g->at.end);
      const float *reward = (const float *)(void *)(a + g->at.reward);
      for (int32_t t = 0; t < 4; t++) {
        for (int32_t e = 0; e < 10; e++) {
          assert_int_equal(end[t * 10 + e] == BRIM_ENV_DIVERGED, e == 2 + t);
          if (e == 2 + t) assert_true(reward[t * 10 + e] == 0.0f);
        }
      }
      free(a);
      const brim_collect_tally tally = camp_tally(g, 0);
      assert_int_equal(tally.diverged, 4);
      camp_clear(g);
    }
  }
}

//---------------------------------- what is refused ----------------------------------

static void refused(brim_status status, brim_status want, const char *why) {
  assert_int_equal(status, want);
  if (!strstr(brim_status_detail(), why)) fail_msg("no '%s' in: %s", why, brim_status_detail());
}

static const char *no_problem(const void *values) {
  (void)values;
  return NULL;
}

// Sizes beyond the capacities of an environment's header are refused even if the row's own check finds no problem.
static void capacities_are_kept(void **state) {
  (void)state;
  brim_collect_layout at;
  brim_collect_shape shape = small("drift", 10, 4);
  brim_env_row row = *shape.row;
  row.problem = no_problem;
  shape.row = &row;
  assert_ok(brim_collect_cpu()->layout(&shape, &at));
  set_value(&shape, drift_values, agents, drift_AGENTS + 1);
  refused(brim_collect_cpu()->layout(&shape, &at), BRIM_EABI,
          "environment drift: its sizes are larger than the capacities of its header");
}

static void bad_shapes_are_refused(void **state) {
  (void)state;
  const brim_collect_shape good = small("drift", 10, 4);
  const struct {
    int32_t envs, steps, length;
    const char *why;
  } cases[] = {
      {0, 4, 12, "num_envs has to be from 1"},     {(1 << 24) + 1, 4, 12, "num_envs has to be"},
      {10, 0, 12, "1 to 1048576 steps"},           {10, (1 << 20) + 1, 12, "1 to 1048576 steps"},
      {10, 4, 0, "episode_length has to be from"}, {10, 4, (1 << 20) + 1, "episode_length"},
      {1 << 24, 200, 12, "more than 2147483647"},  {1 << 11, 1 << 20, 1 << 20, "more than 21474"},
  };
  EACH_CAMP(g, "drift") {
    brim_collect_layout at;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
      brim_collect_shape shape = good;
      shape.num_envs = cases[i].envs;
      shape.steps = cases[i].steps;
      shape.episode_length = cases[i].length;
      refused(g->table->layout(&shape, &at), BRIM_EINVAL, cases[i].why);
    }
    brim_collect_shape shape = good;
    set_value(&shape, drift_values, agents, 9);
    refused(g->table->layout(&shape, &at), BRIM_EINVAL, "agents has to be from 1 to 4");
    camp_prepare(g, &good);
    refused(g->table->step(&g->where, &good, g->block, 4), BRIM_EINVAL, "step 4 is not one of");
    refused(g->table->step(&g->where, &good, g->block, -1), BRIM_EINVAL, "step -1 is not one of");
    refused(g->table->choose(&g->where, &good, g->block, 4, 0), BRIM_EINVAL, "step 4 is not");
    refused(g->table->choose(&g->where, &good, g->block, 0, 2), BRIM_EINVAL, "baseline 2 is not");
    refused(g->table->choose(&g->where, &good, g->block, 0, -1), BRIM_EINVAL, "baseline -1 is not");
    camp_clear(g);
  }
  const brim_collect_shape slide = shape_of("slide", 4, 4), walk = shape_of("quadruped", 4, 4);
  brim_collect_layout at;
  refused(brim_collect_cpu()->layout(&slide, &at), BRIM_EUNSUPPORTED,
          "environment slide has continuous actions");
  refused(brim_collect_cpu()->layout(&walk, &at), BRIM_EUNSUPPORTED,
          "environment quadruped has continuous actions");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_saved_block_continues),
      cmocka_unit_test(the_length_of_rollouts_changes_no_bit),
      cmocka_unit_test(threads_change_no_bit),
      cmocka_unit_test(more_environments_change_no_bit),
      cmocka_unit_test(cpu_and_cuda_have_the_same_bits),
      cmocka_unit_test(recorded_rollouts_are_the_same),
      cmocka_unit_test(an_evaluation_is_that_of_evaluate),
      cmocka_unit_test(an_ended_episode_stays),
      cmocka_unit_test(held_out_streams_are_apart),
      cmocka_unit_test(sums_are_those_of_the_episodes),
      cmocka_unit_test(agents_draw_apart),
      cmocka_unit_test(unknown_actions_diverge),
      cmocka_unit_test(capacities_are_kept),
      cmocka_unit_test(bad_shapes_are_refused),
  };
  return cmocka_run_group_tests(tests, open_world, close_world);
}
