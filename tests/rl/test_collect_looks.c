// The matrices that `look` writes from collected states, and the rules of `choose`. On the CPU and, with a
// GPU, on CUDA.
#include "collect_test.h"

#include <math.h>

#include "backend/backend_half.h"
#include "env/drift.h"

#define EACH_CAMP(g, name) \
  for (camp camps_[2], *g = camps_, *end_ = camps_ + camps_of(name, camps_); g < end_; g++)

enum { ENVS = 33, STEPS = 9, AGENTS = 3 };

static brim_collect_shape drift_shape(void) {
  brim_collect_shape s = shape_of("drift", ENVS, STEPS);
  s.episode_length = 6;
  set_value(&s, drift_values, agents, AGENTS);
  return s;
}

// Numbers of any type, as floats in host memory.
static float number(const void *data, int32_t dtype, int64_t i) {
  if (dtype == BRIM_F32) return ((const float *)data)[i];
  const uint16_t half = ((const uint16_t *)data)[i];
  return dtype == BRIM_BF16 ? brim_bf16_to_f32(half) : brim_f16_to_f32(half);
}

static float rounded(float x, int32_t dtype) {
  if (dtype == BRIM_F32) return x;
  return dtype == BRIM_BF16 ? brim_bf16_to_f32(brim_f32_to_bf16(x))
                            : brim_f16_to_f32(brim_f32_to_f16(x));
}

typedef struct seen {
  char *actor, *critic;
  uint64_t *mask;
} seen;

static size_t output_bytes(const brim_collect_output *o, int64_t rows) {
  return (size_t)(rows * o->pitch) * (o->dtype == BRIM_F32 ? 4 : 2);
}

// Calls `look` and fetches its outputs; asserts that memory behind them is unchanged.
static seen look(camp *g, brim_collect_view view) {
  enum { GUARD = 64 };
  const int64_t agents = brim_collect_sizes(&g->shape).agents;
  const size_t sizes[] = {output_bytes(&view.actor, view.count * agents),
                          output_bytes(&view.critic, view.count),
                          (size_t)(view.count * agents) * sizeof(uint64_t)};
  char *device[3], *host[3];
  for (int i = 0; i < 3; i++) device[i] = camp_alloc(g, sizes[i] + GUARD);
  int32_t *rows = NULL;
  if (view.rows) {
    rows = camp_alloc(g, (size_t)view.count * sizeof *rows);
    camp_put(g, rows, view.rows, (size_t)view.count * sizeof *rows);
  }
  view.rows = rows;
  view.actor.data = device[0];
  view.critic.data = device[1];
  view.mask = (uint64_t *)(void *)device[2];
  camp_look(g, &view);
  for (int i = 0; i < 3; i++) {
    host[i] = malloc(sizes[i] + GUARD);
    assert_non_null(host[i]);
    camp_get(g, device[i], host[i], sizes[i] + GUARD);
    for (size_t j = sizes[i]; j < sizes[i] + GUARD; j++)
      assert_int_equal((uint8_t)host[i][j], 0xFF);
    camp_free(g, device[i]);
  }
  if (rows) camp_free(g, rows);
  return (seen){host[0], host[1], (uint64_t *)(void *)host[2]};
}

static void seen_free(seen *s) {
  free(s->actor);
  free(s->critic);
  free(s->mask);
}

// Compares output i with row `row` of the block, by the header's functions.
static void assert_seen(camp *g, const seen *s, const brim_collect_view *view, int64_t i,
                        int64_t row) {
  drift_values v;
  drift_state at;
  memcpy(&v, g->shape.env.bytes, sizeof v);
  camp_get(g, g->block + g->at.states + (size_t)row * g->at.state_bytes, &at,
           (size_t)drift_stored(&v));
  for (int32_t a = 0; a < AGENTS; a++) {
    const int64_t from = (i * AGENTS + a) * view->actor.pitch;
    for (int32_t j = 0; j < view->actor.pitch; j++) {
      const float want = j < drift_OBS ? drift_sees(&v, &at, a, j) : 0.0f;
      const float has = number(s->actor, view->actor.dtype, from + j);
      assert_true(has == rounded(want, view->actor.dtype));
    }
    assert_true(s->mask[i * AGENTS + a] == drift_mask(&v, &at, a));
  }
  for (int32_t j = 0; j < view->critic.pitch; j++) {
    const float want = j < AGENTS ? drift_global_sees(&v, &at, j) : 0.0f;
    const float has = number(s->critic, view->critic.dtype, i * view->critic.pitch + j);
    assert_true(has == rounded(want, view->critic.dtype));
  }
}

// Consecutive rows and rows of a list, in every type, with and without room behind them.
static void looks_are_what_the_environment_shows(void **state) {
  (void)state;
  static const int32_t types[] = {BRIM_F32, BRIM_BF16, BRIM_F16};
  static const int32_t pitches[][2] = {{3, 3}, {4, 8}, {8, 4}, {7, 5}, {16, 32}, {40, 64}};
  static const int32_t rows[] = {5, 0, 400, 5, 329, 330, 17, 100, 31, 32, 33, 362, 363, 395};
  EACH_CAMP(g, "drift") {
    const brim_collect_shape shape = drift_shape();
    camp_prepare(g, &shape);
    camp_run(g, 3, 0);
    assert_true(g->at.slots * ENVS > 395);
    for (int i = 0; i < 18; i++) {
      brim_collect_view view = {.first = 7,
                                .count = 100,
                                .actor = {NULL, types[i % 3], pitches[i / 3][0]},
                                .critic = {NULL, types[(i + i / 3) % 3], pitches[i / 3][1]}};
      seen s = look(g, view);
      for (int64_t j = 0; j < view.count; j++) assert_seen(g, &s, &view, j, 7 + j);
      seen_free(&s);
      view.rows = rows;
      view.count = sizeof rows / sizeof *rows;
      s = look(g, view);
      for (int64_t j = 0; j < view.count; j++) {
        if (rows[j] < g->at.slots * ENVS) assert_seen(g, &s, &view, j, rows[j]);
      }
      seen_free(&s);
    }
    camp_clear(g);
  }
}

// The final states of truncated episodes are rows like any other; unused ones are first states.
static void all_rows_are_numbers(void **state) {
  (void)state;
  static const char *const names[] = {"drift", "cartpole"};
  for (int n = 0; n < 2; n++) {
    EACH_CAMP(g, names[n]) {
      const brim_collect_shape shape = n ? shape_of("cartpole", ENVS, STEPS) : drift_shape();
      const int64_t agents = brim_collect_sizes(&shape).agents;
      camp_prepare(g, &shape);
      camp_run(g, 1, 0);
      const brim_collect_view view = {.count = (int64_t)g->at.slots * ENVS,
                                      .actor = {NULL, BRIM_F32, 8},
                                      .critic = {NULL, BRIM_F32, 8}};
      seen s = look(g, view);
      for (int64_t i = 0; i < view.count * agents * 8; i++) {
        assert_true(isfinite(number(s.actor, BRIM_F32, i)));
        if (i < view.count * 8) assert_true(isfinite(number(s.critic, BRIM_F32, i)));
      }
      seen_free(&s);
      camp_clear(g);
    }
  }
}

// Rows that do not exist give zeros, and allow one action.
static void rows_that_do_not_exist_are_zeros(void **state) {
  (void)state;
  static const int32_t rows[] = {-1, 3, INT32_MAX, INT32_MIN, 4};
  EACH_CAMP(g, "drift") {
    const brim_collect_shape shape = drift_shape();
    camp_prepare(g, &shape);
    camp_run(g, 1, 0);
    const brim_collect_view view = {
        .rows = rows, .count = 5, .actor = {NULL, BRIM_BF16, 4}, .critic = {NULL, BRIM_F32, 4}};
    seen s = look(g, view);
    for (int64_t i = 0; i < 5; i++) {
      if (rows[i] == 3 || rows[i] == 4) {
        assert_seen(g, &s, &view, i, rows[i]);
        continue;
      }
      for (int64_t j = 0; j < 4 * AGENTS; j++) {
        assert_true(number(s.actor, BRIM_BF16, i * 4 * AGENTS + j) == 0.0f);
      }
      for (int64_t j = 0; j < 4; j++) assert_true(number(s.critic, BRIM_F32, i * 4 + j) == 0.0f);
      for (int64_t a = 0; a < AGENTS; a++) assert_int_equal(s.mask[i * AGENTS + a], 1);
    }
    seen_free(&s);
    camp_clear(g);
  }
}

// Any output may be absent; with no output the call does nothing.
static void outputs_may_be_left_out(void **state) {
  (void)state;
  EACH_CAMP(g, "drift") {
    const brim_collect_shape shape = drift_shape();
    camp_prepare(g, &shape);
    camp_begin(g);
    const brim_collect_view view = {
        .count = ENVS, .actor = {NULL, BRIM_F32, 4}, .critic = {NULL, BRIM_F32, 3}};
    seen all = look(g, view);
    const size_t sizes[] = {output_bytes(&view.actor, ENVS * AGENTS),
                            output_bytes(&view.critic, ENVS), ENVS * AGENTS * sizeof(uint64_t)};
    const void *want[] = {all.actor, all.critic, all.mask};
    for (int i = 0; i < 3; i++) {
      brim_collect_view one = view;
      void *out = camp_alloc(g, sizes[i]);
      one.actor.data = i == 0 ? out : NULL;
      one.critic.data = i == 1 ? out : NULL;
      one.mask = i == 2 ? out : NULL;
      camp_look(g, &one);
      char *has = malloc(sizes[i]);
      assert_non_null(has);
      camp_get(g, out, has, sizes[i]);
      assert_memory_equal(has, want[i], sizes[i]);
      free(has);
      camp_free(g, out);
    }
    camp_look(g, &view);
    brim_collect_view none = view;
    none.count = 0;
    camp_look(g, &none);
    seen_free(&all);
    camp_clear(g);
  }
}

static void bad_views_are_refused(void **state) {
  (void)state;
  EACH_CAMP(g, "drift") {
    const brim_collect_shape shape = drift_shape();
    camp_prepare(g, &shape);
    const int64_t rows = (int64_t)g->at.slots * ENVS;
    char *out = camp_alloc(g, 4096);
    const struct {
      brim_collect_view view;
      const char *why;
    } cases[] = {
        {{.first = -1, .count = 1}, "rows to look at"},
        {{.first = 0, .count = -1}, "rows to look at"},
        {{.first = rows, .count = 1}, "rows to look at"},
        {{.first = 1, .count = rows}, "rows to look at"},
        {{.count = 1, .actor = {out, BRIM_F64, 4}}, "f32, bf16 or f16"},
        {{.count = 1, .critic = {out, BRIM_I32, 4}}, "f32, bf16 or f16"},
        {{.count = 1, .actor = {out, BRIM_F32, 2}}, "does not fit into a row"},
        {{.count = 1, .critic = {out, BRIM_F32, 2}}, "does not fit into a row"},
        {{.count = 1, .actor = {out + 2, BRIM_BF16, 4}}, "multiple of 16 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
      assert_int_equal(g->table->look(&g->where, &shape, g->block, &cases[i].view), BRIM_EINVAL);
      assert_non_null(strstr(brim_status_detail(), cases[i].why));
    }
    camp_free(g, out);
    camp_clear(g);
  }
}

//---------------------------------- rules ----------------------------------

// The random rule: each allowed action equally often and no other; agents and steps differ.
static void random_actions_are_allowed(void **state) {
  (void)state;
  EACH_CAMP(g, "drift") {
    enum { MANY = 400 };
    brim_collect_shape shape = shape_of("drift", MANY, 12);
    set_value(&shape, drift_values, agents, AGENTS);
    drift_values v;
    memcpy(&v, shape.env.bytes, sizeof v);
    camp_prepare(g, &shape);
    camp_run(g, 3, 0);
    char *a = camp_copy(g);
    const int32_t *action = (const int32_t *)(void *)(a + g->at.action);
    int counts[2][3] = {{0}}, same = 0;
    for (int32_t row = 0; row < 12 * MANY; row++) {
      drift_state s;
      memcpy(&s, a + g->at.states + (size_t)row * g->at.state_bytes, (size_t)drift_stored(&v));
      for (int32_t i = 0; i < AGENTS; i++) {
        const int32_t choice = action[row * AGENTS + i];
        const uint64_t mask = drift_mask(&v, &s, i);
        assert_in_range(choice, 0, 2);
        assert_true(mask >> choice & 1);
        if (mask == 7) counts[0][choice]++;
        if (mask == 5) counts[1][choice]++;
      }
      same += action[row * AGENTS] == action[row * AGENTS + 1];
    }
    free(a);
    const double all = counts[0][0] + counts[0][1] + counts[0][2],
                 few = counts[1][0] + counts[1][2];
    assert_true(all > 8000 && few > 500);
    for (int i = 0; i < 3; i++) {  // within 5 deviations
      assert_true(fabs(counts[0][i] - all / 3) < 5 * sqrt(all * 2 / 9));
    }
    assert_true(fabs(counts[1][0] - few / 2) < 5 * sqrt(few / 4));
    assert_true(same < 12 * MANY / 2);
    camp_clear(g);
  }
}

// A rule of the environment's own.
static void rules_are_the_environments(void **state) {
  (void)state;
  EACH_CAMP(g, "drift") {
    const brim_collect_shape shape = drift_shape();
    drift_values v;
    memcpy(&v, shape.env.bytes, sizeof v);
    camp_prepare(g, &shape);
    camp_run(g, 2, 1);
    char *a = camp_copy(g);
    const int32_t *action = (const int32_t *)(void *)(a + g->at.action);
    for (int32_t row = 0; row < STEPS * ENVS; row++) {
      drift_state s;
      memcpy(&s, a + g->at.states + (size_t)row * g->at.state_bytes, (size_t)drift_stored(&v));
      for (int32_t i = 0; i < AGENTS; i++) {
        assert_int_equal(action[row * AGENTS + i], drift_rule(&v, &s, i, 1, 0));
      }
    }
    free(a);
    const brim_collect_tally homing = camp_tally(g, 0);
    camp_prepare(g, &shape);
    camp_run(g, 2, 0);
    const brim_collect_tally random = camp_tally(g, 0);
    assert_true(homing.terminated > 2 * random.terminated);
    camp_clear(g);
  }
}

static void frames_are_those_of_the_states(void **state) {
  (void)state;
  camp g = camp_cpu(1);
  const brim_collect_shape shape = drift_shape();
  drift_values v;
  memcpy(&v, shape.env.bytes, sizeof v);
  camp_prepare(&g, &shape);
  camp_run(&g, 1, 0);
  for (int64_t row = 0; row < (STEPS + 1) * ENVS; row++) {
    drift_state s;
    float has[AGENTS] = {0}, want[AGENTS] = {0};
    memcpy(&s, g.block + g.at.states + (size_t)row * g.at.state_bytes, (size_t)drift_stored(&v));
    brim_collect_frame(&shape, g.block, row, has);
    drift_frame(&v, &s, want);
    assert_memory_equal(has, want, sizeof has);
  }
  camp_clear(&g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(looks_are_what_the_environment_shows),
      cmocka_unit_test(all_rows_are_numbers),
      cmocka_unit_test(rows_that_do_not_exist_are_zeros),
      cmocka_unit_test(outputs_may_be_left_out),
      cmocka_unit_test(bad_views_are_refused),
      cmocka_unit_test(random_actions_are_allowed),
      cmocka_unit_test(rules_are_the_environments),
      cmocka_unit_test(frames_are_those_of_the_states),
  };
  return cmocka_run_group_tests(tests, open_world, close_world);
}
