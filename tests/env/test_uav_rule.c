// The grid world's baseline `greedy`: its paths against a search with a queue, and its coverage.
#include "rl/rollout_test.h"

#include "env/uav_model.h"

static const int dx[5] = {0, 0, 1, 0, -1}, dy[5] = {0, -1, 0, 1, 0};

// Distances of cells from one cell, through free cells without UAVs inside a UAV's view. -1 = out of reach.
typedef struct search {
  int left, top, side;  // the view
  int far[15][15];
} search;

static void search_from(const model *m, int x, int y, search *s) {
  int queue[225], count = 1, next = 0;
  for (int i = 0; i < 225; i++) s->far[i / 15][i % 15] = -1;
  s->far[y - s->top][x - s->left] = 0;
  queue[0] = (y - s->top) * 15 + x - s->left;
  while (next < count) {
    const int row = queue[next] / 15, column = queue[next] % 15;
    next++;
    for (int k = 1; k <= 4; k++) {
      const int r = row + dy[k], c = column + dx[k];
      if (r < 0 || c < 0 || r >= s->side || c >= s->side || s->far[r][c] >= 0) continue;
      if (model_wall(m, s->left + c, s->top + r)) continue;
      if (model_uav_at(m, s->left + c, s->top + r) >= 0) continue;
      s->far[r][c] = s->far[row][column] + 1;
      queue[count++] = r * 15 + c;
    }
  }
}

// Distance from (x, y) to the nearest uncovered cell in a UAV's view; -1 = none in reach.
static int way_from(const brim_uav_values *v, const model *m, int uav, int x, int y) {
  search s = {.left = m->x[uav] - v->crop / 2, .top = m->y[uav] - v->crop / 2, .side = v->crop};
  int best = -1;
  search_from(m, x, y, &s);
  for (int r = 0; r < v->crop; r++) {
    for (int c = 0; c < v->crop; c++) {
      const int far = s.far[r][c];
      if (far < 0 || m->covered[s.top + r][s.left + c]) continue;
      if (best < 0 || far < best) best = far;
    }
  }
  return best;
}

static bool open_move(const model *m, int uav, int move) {
  const int x = m->x[uav] + dx[move], y = m->y[uav] + dy[move];
  return !model_wall(m, x, y) && model_uav_at(m, x, y) < 0;
}

typedef struct seen {
  int ways, none, kept;
} seen;

static void check_move(const brim_uav_values *v, const model *m, int uav, int32_t move, seen *t) {
  const int best = way_from(v, m, uav, m->x[uav], m->y[uav]), heading = m->heading[uav];
  if (move) assert_true(open_move(m, uav, move));
  if (best < 0) {
    t->none++;
    if (!heading || !open_move(m, uav, heading)) return;
    t->kept++;
    assert_int_equal(move, heading);
    return;
  }
  // the first of the four neighbours from which the path is one shorter
  int first = 0;
  for (int k = 1; k <= 4 && !first; k++) {
    if (!open_move(m, uav, k)) continue;
    if (way_from(v, m, uav, m->x[uav] + dx[k], m->y[uav] + dy[k]) == best - 1) first = k;
  }
  t->ways++;
  assert_int_equal(move, first);
}

static void greedy_takes_shortest_ways(void **state) {
  (void)state;
  uint64_t random = 8;
  seen counts = {0};
  for (int c = 0; c < 60; c++) {
    const int32_t size = 6 + model_below(&random, 27);
    const int32_t crop = 3 + 2 * model_below(&random, size >= 15 ? 7 : 2);
    const brim_uav_values v = uav_grid(size, 1 + model_below(&random, 8), size * size / 6, crop);
    brim_env_track t = uav_track((uint64_t)c, 1);
    brim_uav_state s;
    assert_null(brim_uav_row.problem(&v));
    brim_uav_reset(&v, &t, &s);
    for (int step = 0; step < 100; step++, t.step++) {
      int32_t action[32];
      model m;
      assert_true(model_read(&v, &s, &m));
      for (int i = 0; i < m.uavs; i++) {
        action[i] = brim_uav_rule(&v, &s, i, 1, model_random(&random));
        check_move(&v, &m, i, action[i], &counts);
      }
      if (brim_uav_step(&v, &t, &s, action).end != BRIM_ENV_RUNNING) break;
    }
  }
  printf("%d shortest ways, %d times nothing in view, heading kept %d times\n", counts.ways,
         counts.none, counts.kept);
  assert_true(counts.ways > 5000 && counts.none > 1000 && counts.kept > 500);
}

// Towards the goal: of the free moves that bring the UAV nearer, one along the longer axis. One move in four is random,
// so that obstacles hold it only for a while.
static void greedy_goes_to_goals(void **state) {
  (void)state;
  brim_uav_values v = uav_grid(12, 4, 20, 5);
  uint64_t random = 2;
  int nearer = 0;
  v.task = BRIM_UAV_GOALS;
  brim_env_track t = uav_track(3, 0);
  brim_uav_state s;
  brim_uav_reset(&v, &t, &s);
  for (int step = 0; step < 500; step++, t.step++) {
    int32_t action[32];
    model m;
    assert_true(model_read(&v, &s, &m));
    for (int i = 0; i < m.uavs; i++) {
      int most = 0;
      for (int k = 1; k <= 4; k++) {
        const int gain = dx[k] * (m.goal_x[i] - m.x[i]) + dy[k] * (m.goal_y[i] - m.y[i]);
        if (open_move(&m, i, k) && gain > most) most = gain;
      }
      const uint32_t bits = model_random(&random);
      const int32_t a = action[i] = brim_uav_rule(&v, &s, i, 1, bits);
      if (a) assert_true(open_move(&m, i, a));
      if (bits % 4 == 0) continue;  // any move
      const int gain = dx[a] * (m.goal_x[i] - m.x[i]) + dy[a] * (m.goal_y[i] - m.y[i]);
      if (most) assert_int_equal(gain, most);
      nearer += most > 0;
    }
    brim_uav_step(&v, &t, &s, action);
  }
  printf("%d moves nearer, %d goals\n", nearer, s.found);
  assert_true(nearer > 1000 && s.found > 100);
}

// The mean over the steps of some episodes, and the share at their end.
static double coverage(const brim_uav_values *v, int32_t rule, int32_t episodes, double *last) {
  double sums[BRIM_ENV_MAX_FIGURES][2] = {{0}};
  uint64_t random = 1;
  for (int32_t e = 0; e < episodes; e++) {
    brim_env_track t = uav_track(77, e);
    brim_uav_state s;
    float raw[brim_uav_FIGURES];
    brim_uav_reset(v, &t, &s);
    for (bool over = false; !over;) {
      int32_t action[32];
      for (int i = 0; i < v->num_uavs; i++) {
        const uint32_t bits = model_random(&random);
        action[i] = rule ? brim_uav_rule(v, &s, i, rule, bits)
                         : brim_env_any(brim_uav_mask(v, &s, i), bits);
      }
      over = brim_env_after(&t, brim_uav_step(v, &t, &s, action), v->episode_steps);
    }
    const brim_rollout_episode episode = {0, t.step, t.outcome};
    brim_uav_figures(v, &s, raw);
    brim_uav_row.count(v, v->episode_steps, &episode, raw, sums);
  }
  *last = sums[0][0] / sums[0][1];
  return sums[1][0] / sums[1][1];
}

static void greedy_covers_more(void **state) {
  (void)state;
  const brim_uav_values v = uav_values(BRIM_UAV_BRIM, BRIM_UAV_COVERAGE);
  double last[2];
  const double random = coverage(&v, 0, 30, &last[0]), greedy = coverage(&v, 1, 30, &last[1]);
  printf("mean coverage: random %.3f (%.3f at the end), greedy %.3f (%.3f at the end)\n", random,
         last[0], greedy, last[1]);
  assert_true(greedy > 1.5 * random && last[1] > 0.8);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(greedy_takes_shortest_ways),
      cmocka_unit_test(greedy_goes_to_goals),
      cmocka_unit_test(greedy_covers_more),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
