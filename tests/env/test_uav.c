// The grid world except for its step: starts, masks, observations of agents and critic, figures, refusals; and ARS on
// it, here and on a GPU.
#include "rl/rollout_test.h"

#include "env/uav_model.h"

//---------------------------------- starts ----------------------------------

static void starts_are_reachable(void **state) {
  (void)state;
  static const struct {
    int32_t size, uavs, obstacles, resets;
  } cases[] = {
      {32, 10, 40, 1500}, {32, 10, 30, 300}, {32, 32, 400, 100}, {64, 32, 1000, 30},
      {8, 10, 53, 1000},  {5, 3, 20, 1000},  {3, 1, 7, 500},     {2, 1, 2, 100},
      {11, 4, 116, 200},  {20, 5, 300, 100}, {64, 1, 4094, 1},   {16, 1, 0, 10},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const brim_uav_values v = uav_grid(cases[c].size, cases[c].uavs, cases[c].obstacles, 1);
    assert_null(brim_uav_row.problem(&v));
    for (int32_t i = 0; i < cases[c].resets; i++) {
      const brim_env_track t = uav_track(c, i);
      brim_uav_state s;
      model m;
      brim_uav_reset(&v, &t, &s);
      assert_true(model_read(&v, &s, &m));
      assert_int_equal(model_free(&m), v.size * v.size - v.num_obstacles);
      assert_int_equal(model_reach(&m), model_free(&m));
      // the covered cells are exactly those of the UAVs, which are free and different
      int covered = 0;
      for (int y = 0; y < m.size; y++) {
        for (int x = 0; x < m.size; x++) covered += m.covered[y][x];
      }
      assert_int_equal(covered, m.uavs);
      assert_int_equal(m.total_found, m.uavs);
      for (int k = 0; k < m.uavs; k++) {
        assert_false(m.wall[m.y[k]][m.x[k]]);
        assert_true(m.covered[m.y[k]][m.x[k]]);
        assert_int_equal(model_uav_at(&m, m.x[k], m.y[k]), k);
      }
    }
  }
}

// Every cell is an obstacle about equally often, and a start as well.
static void starts_are_spread(void **state) {
  (void)state;
  enum { RESETS = 4000, SIZE = 8 };
  const brim_uav_values v = uav_grid(SIZE, 4, 8, 1);
  int walls[SIZE][SIZE] = {{0}}, first[SIZE][SIZE] = {{0}};
  for (int32_t i = 0; i < RESETS; i++) {
    const brim_env_track t = uav_track(9, i);
    brim_uav_state s;
    model m;
    brim_uav_reset(&v, &t, &s);
    assert_true(model_read(&v, &s, &m));
    for (int y = 0; y < SIZE; y++) {
      for (int x = 0; x < SIZE; x++) walls[y][x] += m.wall[y][x];
    }
    first[m.y[0]][m.x[0]]++;
  }
  for (int y = 0; y < SIZE; y++) {
    for (int x = 0; x < SIZE; x++) {
      assert_in_range(walls[y][x], RESETS / 8 - 150, RESETS / 8 + 150);  // deviation 21
      assert_in_range(first[y][x], RESETS / 64 - 45, RESETS / 64 + 45);  // deviation 8
    }
  }
}

// Other environments, episodes and seeds have other starts; the same ones repeat.
static void starts_are_keyed(void **state) {
  (void)state;
  const brim_uav_values v = uav_values(BRIM_UAV_BRIM, BRIM_UAV_COVERAGE);
  brim_env_track tracks[4] = {uav_track(1, 0), uav_track(1, 1), uav_track(2, 0), uav_track(1, 0)};
  const size_t stored = (size_t)brim_uav_stored(&v);
  brim_uav_state s[4], again;
  tracks[3].episode = 1;
  for (int i = 0; i < 4; i++) {
    brim_uav_reset(&v, &tracks[i], &s[i]);
    brim_uav_reset(&v, &tracks[i], &again);
    assert_memory_equal(&s[i], &again, stored);
    for (int k = 0; k < i; k++) assert_memory_not_equal(&s[i], &s[k], stored);
  }
}

// True if the free cells around the middle of a 3 x 3 grid stay connected without the middle.
static bool ring_holds(unsigned ring) {
  static const int order[8] = {1, 2, 5, 8, 7, 6, 3, 0};  // cells clockwise from the north
  bool open[9] = {0};
  int sides = 0, first = -1, reached = 0;
  for (int k = 0; k < 8; k++) open[order[k]] = ring >> k & 1;
  for (int k = 0; k < 8; k += 2) {
    sides += open[order[k]];
    if (open[order[k]] && first < 0) first = k;
  }
  if (sides < 2) return true;
  bool seen[8] = {0};
  for (int way = -1; way <= 1; way += 2) {
    for (int k = 0; k < 8; k++) {
      const int at = ((first + way * k) % 8 + 8) % 8;
      if (!open[order[at]]) break;
      seen[at] = true;
    }
  }
  for (int k = 0; k < 8; k += 2) reached += seen[k];
  return reached == sides;
}

static void rings_are_scored(void **state) {
  (void)state;
  static const int order[8] = {1, 2, 5, 8, 7, 6, 3, 0};
  for (unsigned ring = 0; ring < 256; ring++) {
    uint32_t map = 0x1ff & ~(1u << 4);
    for (int k = 0; k < 8; k++) {
      if (ring >> k & 1) map &= ~(1u << order[k]);
    }
    assert_int_equal(brim_grid_may_block(&map, 3, 4), ring_holds(ring));
    map |= 1u << 4;
    assert_int_equal(brim_grid_may_block(&map, 3, 4), 0);
  }
  // corners and edges: outside counts as an obstacle
  const uint32_t empty = 0, cross = 1u << 1 | 1u << 3;  // north and west of a grid of 3
  assert_int_equal(brim_grid_may_block(&empty, 3, 0), 1);
  assert_int_equal(brim_grid_may_block(&empty, 3, 1), 1);
  // isolated, but no other cell depends on it
  assert_int_equal(brim_grid_may_block(&cross, 3, 0), 1);
  assert_int_equal(brim_grid_may_block(&cross, 3, 2), 1);
}

// The ring of eight forbids every cell of a path around a block, but the farthest cell can still become an obstacle.
static void loops_open(void **state) {
  (void)state;
  for (int32_t size = 3; size <= 64; size += size < 12 ? 1 : 13) {
    uint32_t map[BRIM_UAV_MAX_CELLS / 32] = {0};
    model m = {.size = size};
    for (int y = 0; y < size; y++) {
      for (int x = 0; x < size; x++) {
        m.wall[y][x] = x > 0 && y > 0 && x < size - 1 && y < size - 1;
        if (m.wall[y][x]) brim_grid_set(map, y * size + x);
      }
    }
    for (int cell = 0; cell < size * size; cell++) {
      assert_int_equal(brim_grid_may_block(map, size, cell), 0);
    }
    for (int left = 4 * size - 4; left > 1; left--) {
      const int32_t far = brim_grid_farthest(map, size);
      assert_in_range(far, 0, size * size - 1);
      assert_false(m.wall[far / size][far % size]);
      m.wall[far / size][far % size] = true;
      brim_grid_set(map, far);
      assert_int_equal(model_free(&m), left - 1);
      assert_int_equal(model_reach(&m), left - 1);
    }
  }
}

// Checks cell by cell, from its ring of eight, whether a cell may become an obstacle.
static bool model_may_block(const model *m, int cell) {
  static const int dx[8] = {0, 1, 1, 1, 0, -1, -1, -1}, dy[8] = {-1, -1, 0, 1, 1, 1, 0, -1};
  const int x = cell % m->size, y = cell / m->size;
  unsigned ring = 0;
  if (m->wall[y][x]) return false;
  for (int k = 0; k < 8; k++) ring |= (unsigned)!model_wall(m, x + dx[k], y + dy[k]) << k;
  return ring_holds(ring);
}

// The first of the cells that are farthest from the first free one.
static int model_farthest(const model *m) {
  static const int dx[4] = {0, 1, 0, -1}, dy[4] = {-1, 0, 1, 0};
  static int queue[64 * 64], way[64 * 64];
  int head = 0, tail = 0, far = -1;
  for (int i = 0; i < m->size * m->size; i++) {
    way[i] = -1;
    if (tail == 0 && !m->wall[i / m->size][i % m->size]) queue[tail++] = i;
  }
  way[queue[0]] = 0;
  while (head < tail) {
    const int cell = queue[head++];
    for (int k = 0; k < 4; k++) {
      const int x = cell % m->size + dx[k], y = cell / m->size + dy[k];
      if (model_wall(m, x, y) || way[y * m->size + x] >= 0) continue;
      way[y * m->size + x] = way[cell] + 1;
      queue[tail++] = y * m->size + x;
    }
  }
  for (int i = 0; i < m->size * m->size; i++) {
    if (way[i] >= 0 && (far < 0 || way[i] > way[far])) far = i;
  }
  return far;
}

// Obstacles by the written rule: eight draws, then the cells after the last one, then the farthest cell.
static void model_obstacles(const brim_uav_values *v, const brim_env_track *t, model *m) {
  const int cells = v->size * v->size;
  memset(m, 0, sizeof *m);
  m->size = v->size;
  for (int32_t i = 0; i < v->num_obstacles; i++) {
    int cell = 0;
    bool found = false;
    for (int k = 0; k < 8 && !found; k++) {
      const brim_philox4 r = brim_env_draw(t->ids.start_key, &t->ids, t->episode, 2 * i + k / 4);
      cell = (int)(((uint64_t)r.v[k % 4] * (uint64_t)cells) >> 32);
      found = model_may_block(m, cell);
    }
    for (int k = 0; k < cells && !found; k++) {
      cell = (cell + 1) % cells;
      found = model_may_block(m, cell);
    }
    if (!found) cell = model_farthest(m);
    m->wall[cell / m->size][cell % m->size] = true;
  }
}

static void obstacles_follow_the_rule(void **state) {
  (void)state;
  static const struct {
    int32_t size, obstacles, resets;
  } cases[] = {{2, 2, 40},    {3, 7, 60},    {5, 23, 60},   {8, 62, 60},   {11, 119, 40},
               {13, 100, 40}, {31, 900, 6},  {32, 40, 40},  {32, 1022, 4}, {33, 1000, 4},
               {63, 2500, 1}, {64, 2000, 1}, {64, 4094, 1}, {21, 300, 10}, {17, 287, 10}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const brim_uav_values v = uav_grid(cases[c].size, 1, cases[c].obstacles, 1);
    for (int32_t i = 0; i < cases[c].resets; i++) {
      const brim_env_track t = uav_track(c + 100, i);
      static brim_uav_state s;
      static model m;
      brim_uav_reset(&v, &t, &s);
      model_obstacles(&v, &t, &m);
      for (int cell = 0; cell < v.size * v.size; cell++) {
        assert_int_equal(model_map_bit(&s, 2 * v.num_uavs, cell),
                         m.wall[cell / v.size][cell % v.size]);
      }
    }
  }
}

// Equal seeds give the same starts in every version, however they are computed.
static void starts_stay(void **state) {
  (void)state;
  static const struct {
    int32_t size, uavs, obstacles, resets;
    uint64_t hash;
  } cases[] = {{64, 1, 4094, 1, 0x4190fc3d52205fabu},
               {32, 10, 700, 5, 0x6866bfc23979fd9au},
               {32, 10, 40, 20, 0xcecbfe4bdb4c6770u},
               {8, 1, 62, 50, 0x91fbb93562259731u}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const brim_uav_values v = uav_grid(cases[c].size, cases[c].uavs, cases[c].obstacles, 1);
    uint64_t hash = 1469598103934665603u;
    for (int32_t i = 0; i < cases[c].resets; i++) {
      const brim_env_track t = uav_track(c, i);
      static brim_uav_state s;
      brim_uav_reset(&v, &t, &s);
      const uint32_t *words = (const uint32_t *)(const void *)&s;
      for (int32_t k = 0; k < brim_uav_stored(&v) / 4; k++) {
        hash = (hash ^ words[k]) * 1099511628211u;
      }
    }
    assert_true(hash == cases[c].hash);
  }
}

//---------------------------------- views ----------------------------------

static bool in_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (bits & 0xffff) == 0;
}

// The observation of an agent, cell by cell from the model.
static int expect(const brim_uav_values *v, const model *m, int agent, float *out) {
  int n = 0;
  const int half = v->crop / 2;
  for (int plane = 0; plane < 3; plane++) {
    for (int dy = -half; dy <= half; dy++) {
      for (int dx = -half; dx <= half; dx++) {
        const int x = m->x[agent] + dx, y = m->y[agent] + dy;
        const bool inside = x >= 0 && y >= 0 && x < m->size && y < m->size;
        const int other = model_uav_at(m, x, y);
        bool is = plane == 2 && other >= 0 && other != agent;
        if (plane == 0) is = model_wall(m, x, y);
        if (plane == 1 && inside) {
          is = m->goals ? x == m->goal_x[agent] && y == m->goal_y[agent] : m->covered[y][x];
        }
        out[n++] = is;
      }
    }
  }
  out[n++] = (float)m->x[agent] / 64;
  out[n++] = (float)m->y[agent] / 64;
  out[n++] = m->time >= m->steps ? 1.0f : floorf(256.0f * (float)m->time / (float)m->steps) / 256;
  for (int a = 1; a <= 4; a++) out[n++] = m->heading[agent] == a;
  if (m->goals) {
    out[n++] = (float)(m->goal_x[agent] - m->x[agent]) / 64;
    out[n++] = (float)(m->goal_y[agent] - m->y[agent]) / 64;
  }
  for (int i = 0; i < m->uavs; i++) out[n++] = i == agent;
  return n;
}

static int expect_global(const model *m, float *out) {
  const int blocks = (m->size + 3) / 4;
  int n = 0;
  for (int i = 0; i < m->uavs; i++) {
    out[n++] = (float)m->x[i] / 64;
    out[n++] = (float)m->y[i] / 64;
  }
  for (int i = 0; i < m->uavs && m->goals; i++) {
    out[n++] = (float)m->goal_x[i] / 64;
    out[n++] = (float)m->goal_y[i] / 64;
  }
  out[n++] = m->time >= m->steps ? 1.0f : floorf(256.0f * (float)m->time / (float)m->steps) / 256;
  if (!m->goals) out[n++] = (float)(m->total_found * 256 / model_free(m)) / 256;
  for (int plane = m->goals; plane < 3; plane++) {
    for (int b = 0; b < blocks * blocks; b++) {
      int count = 0;
      for (int y = 4 * (b / blocks); y < m->size && y < 4 * (b / blocks) + 4; y++) {
        for (int x = 4 * (b % blocks); x < m->size && x < 4 * (b % blocks) + 4; x++) {
          count += plane == 0   ? m->covered[y][x]
                   : plane == 1 ? m->wall[y][x]
                                : model_uav_at(m, x, y) >= 0;
        }
      }
      out[n++] = (float)count / 16;
    }
  }
  return n;
}

static void compare_views(const brim_uav_values *v, const brim_uav_state *s, const model *m) {
  static float want[4096], got[4096];
  const brim_env_sizes z = brim_uav_sizes(v);
  for (int i = 0; i < m->uavs; i++) {
    uint64_t mask = 1;
    static const int dx[5] = {0, 0, 1, 0, -1}, dy[5] = {0, -1, 0, 1, 0};
    assert_int_equal(expect(v, m, i, want), z.obs);
    brim_uav_observe(v, s, i, got);
    if (memcmp(got, want, (size_t)z.obs * sizeof *got)) {
      for (int k = 0; k < z.obs; k++) assert_near(got[k], want[k], 0);
    }
    for (int k = 0; k < z.obs; k++) {
      assert_true(in_bf16(got[k]));
      assert_true(fabsf(got[k]) <= 1 && got[k] * 256 == floorf(got[k] * 256));  // float16
    }
    for (int a = 1; a <= 4; a++) {
      if (!model_wall(m, m->x[i] + dx[a], m->y[i] + dy[a])) mask |= (uint64_t)1 << a;
    }
    assert_int_equal(brim_uav_mask(v, s, i), mask);
  }
  assert_int_equal(expect_global(m, want), z.global);
  brim_uav_global(v, s, got);
  for (int k = 0; k < z.global; k++) {
    assert_near(got[k], want[k], 0);
    assert_true(in_bf16(got[k]));
  }
}

// The frame of a replay agrees with the state.
static void compare_frame(const brim_uav_values *v, const brim_uav_state *s, const model *m) {
  static float frame[BRIM_ENV_MAX_FRAME + 1];
  const brim_env_sizes z = brim_uav_sizes(v);
  assert_in_range(z.frame, 1, BRIM_ENV_MAX_FRAME);
  frame[z.frame] = 12345.0f;
  brim_uav_frame(v, s, frame);
  assert_true(frame[z.frame] == 12345.0f);
  const float *uavs = frame + 3, *what = uavs + 2 * m->uavs, *goals = what + m->uavs;
  const float *maps = goals + (m->goals ? 2 * m->uavs : 0);
  assert_true(frame[0] == (float)m->total_found && frame[2] == (float)m->collisions);
  assert_near(frame[1], m->goals ? 0 : 100.0 * m->total_found / model_free(m), 1e-5);
  for (int i = 0; i < m->uavs; i++) {
    assert_true(uavs[2 * i] == (float)m->x[i] && uavs[2 * i + 1] == (float)m->y[i]);
    assert_true(what[i] == (float)(m->blocked[i] + 2 * m->stopped[i] + 4 * m->found[i]));
    if (!m->goals) continue;
    assert_true(goals[2 * i] == (float)m->goal_x[i] && goals[2 * i + 1] == (float)m->goal_y[i]);
  }
  const int numbers = (m->size * m->size + 15) / 16;
  for (int cell = 0; cell < m->size * m->size; cell++) {
    const int y = cell / m->size, x = cell % m->size;
    assert_int_equal((int)maps[cell / 16] >> cell % 16 & 1, m->wall[y][x]);
    if (m->goals) continue;
    assert_int_equal((int)maps[numbers + cell / 16] >> cell % 16 & 1, m->covered[y][x]);
  }
}

static void views_are_what_is_there(void **state) {
  (void)state;
  static const struct {
    int32_t size, uavs, obstacles, crop, goals;
  } cases[] = {{32, 10, 40, 11, 0}, {32, 10, 40, 11, 1}, {64, 32, 600, 15, 0}, {63, 32, 600, 15, 1},
               {6, 8, 9, 5, 0},     {9, 3, 20, 9, 1},    {2, 1, 1, 1, 0},      {33, 20, 300, 3, 0}};
  uint64_t random = 3;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    brim_uav_values v = uav_grid(cases[c].size, cases[c].uavs, cases[c].obstacles, cases[c].crop);
    if (cases[c].goals) v.task = BRIM_UAV_GOALS;
    v.episode_steps = 30 + 7 * (int32_t)c;
    brim_env_track t = uav_track(c, 0);
    brim_uav_state s;
    model m;
    brim_uav_reset(&v, &t, &s);
    for (int step = 0; step < 120; step++) {
      int32_t action[32];
      assert_true(model_read(&v, &s, &m));
      compare_views(&v, &s, &m);
      compare_frame(&v, &s, &m);
      for (int i = 0; i < m.uavs; i++) {
        action[i] = model_below(&random, 2) ? brim_uav_rule(&v, &s, i, 1, model_random(&random))
                                            : model_below(&random, 5);
      }
      brim_uav_step(&v, &t, &s, action);
      t.step++;
    }
  }
}

static void sizes_by_default(void **state) {
  (void)state;
  const brim_uav_values v = uav_values(BRIM_UAV_BRIM, BRIM_UAV_AUTO);
  const brim_env_sizes z = brim_uav_sizes(&v);
  assert_int_equal(v.task, BRIM_UAV_COVERAGE);
  assert_int_equal(v.size, 32);
  assert_int_equal(v.episode_steps, 200);
  assert_int_equal(z.agents, 10);
  assert_int_equal(z.obs, 380);
  assert_int_equal(z.global, 214);
  assert_int_equal(z.rewards, 10);
  assert_int_equal(brim_uav_stored(&v), 484);
  assert_int_equal(brim_uav_row.length(0, &v), 200);
}

//---------------------------------- figures ----------------------------------

static void figures_add_up(void **state) {
  (void)state;
  const brim_uav_values v = uav_grid(10, 2, 20, 1);  // 80 free cells
  const brim_rollout_episode cut = {0, 100, BRIM_ENV_TRUNCATED},
                             done = {0, 60, BRIM_ENV_TERMINATED};
  const float cut_raw[] = {40, 2000, 7, 30, 0}, done_raw[] = {80, 2400, 1, 12, 0};
  double sums[BRIM_ENV_MAX_FIGURES][2] = {{0}};
  brim_uav_row.count(&v, 100, &cut, cut_raw, sums);
  brim_uav_row.count(&v, 100, &done, done_raw, sums);
  assert_int_equal(brim_uav_row.figure_count, 5);
  assert_near(sums[0][0] / sums[0][1], (0.5 + 1) / 2, 1e-12);
  // the second environment stays complete for 40 more steps
  assert_near(sums[1][0] / sums[1][1], (2000 / 80.0 + 2400 / 80.0 + 40) / 200, 1e-12);
  assert_near(sums[2][0] / sums[2][1], 4, 1e-12);
  assert_near(sums[3][0] / sums[3][1], 42 / (2.0 * 160), 1e-12);
  assert_true(sums[4][1] == 0);
  brim_uav_values goals = v;
  goals.task = BRIM_UAV_GOALS;
  memset(sums, 0, sizeof sums);
  const float goal_raw[] = {0, 0, 3, 0, 9};
  brim_uav_row.count(&goals, 100, &cut, goal_raw, sums);
  assert_true(sums[0][1] == 0 && sums[1][1] == 0 && sums[3][1] == 0);
  assert_near(sums[4][0] / sums[4][1], 9, 1e-12);
}

//---------------------------------- what is refused ----------------------------------

static void bad_settings(void **state) {
  (void)state;
  const struct {
    brim_uav_values v;
    const char *why;      // NULL = nothing
    const char *numbers;  // of the check of a config; NULL = no further text
  } cases[] = {
      {uav_grid(32, 10, 40, 11), NULL, NULL},
      {uav_grid(1, 1, 0, 1), "size has to be from 2 to 64", NULL},
      {uav_grid(65, 1, 0, 1), "size has to be from 2 to 64", NULL},
      {uav_grid(32, 0, 0, 1), "num_uavs has to be from 1 to 32", NULL},
      {uav_grid(32, 33, 0, 1), "num_uavs has to be from 1 to 32", NULL},
      {uav_grid(32, 1, -1, 1), "num_obstacles has to be", NULL},
      {uav_grid(4, 1, 16, 1), "num_obstacles has to be",
       "num_obstacles is 16, but the grid has only 4 x 4 = 16"},
      {uav_grid(4, 1, 14, 1), NULL, NULL},
      {uav_grid(4, 2, 14, 1), "more free cells than UAVs",
       "num_uavs is 2, but 4 x 4 cells with 14 obstacles have only 2 free cells"},
      {uav_grid(32, 1, 0, 10), "crop has to be odd", "crop is 10, expected an odd number"},
      {uav_grid(32, 1, 0, 17), "crop has to be odd, from 1 to 15", NULL},
      {uav_grid(32, 1, 0, -1), "crop has to be odd", NULL},
      {uav_grid(10, 1, 0, 11), "crop has to be at most size",
       "crop is 11, but the grid has only 10 x 10"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *problem = brim_uav_row.problem(&cases[i].v);
    if (!cases[i].why) assert_null(problem);
    if (cases[i].why && (!problem || !strstr(problem, cases[i].why))) {
      fail_msg("case %zu: %s", i, problem ? problem : "nothing");
    }
    const brim_status status = brim_uav_row.check(&cases[i].v, "here: ");
    assert_int_equal(status, cases[i].numbers ? BRIM_EINVAL : BRIM_OK);
    if (cases[i].numbers && !strstr(brim_status_detail(), cases[i].numbers)) {
      fail_msg("case %zu: %s", i, brim_status_detail());
    }
  }
  brim_uav_values v = uav_grid(32, 1, 0, 1);
  v.episode_steps = 32769;
  assert_non_null(strstr(brim_uav_row.problem(&v), "episode_steps has to be from 1 to 32768"));
  v = uav_grid(32, 1, 0, 1);
  v.rules = BRIM_UAV_PEER;
  assert_non_null(strstr(brim_uav_row.problem(&v), "rules=peer has only the task goals"));
}

//---------------------------------- ARS ----------------------------------

static brim_rollout_shape shape_of(int form) {
  brim_rollout_shape s = {.row = &brim_uav_row,
                          .num_envs = 2 * (BRIM_ROLLOUT_PART + 3),
                          .num_dirs = 3,
                          .dir_chunk = 2,
                          .episode_length = 40,
                          .eval_episodes = 50,
                          .seed = 4};
  brim_uav_values v = form == 2 ? uav_values(BRIM_UAV_PEER, BRIM_UAV_AUTO) : uav_grid(14, 5, 30, 5);
  if (form == 1) v.task = BRIM_UAV_GOALS;
  if (form == 3) v = uav_values(BRIM_UAV_BRIM, BRIM_UAV_COVERAGE);
  v.episode_steps = 40;
  s.once = form & 1;
  s.hidden = form == 1 ? 8 : 0;
  memcpy(s.env.bytes, &v, sizeof v);
  return s;
}

typedef struct left {
  float returns[6];
  brim_rollout_tally tally[6];
  brim_rollout_episode episodes[50];
  float figures[50][brim_uav_FIGURES];
} left;

static void roll(ground *g, const brim_rollout_shape *shape, left *out) {
  memset(out, 0, sizeof *out);
  ground_prepare(g, shape);
  ground_run(g, 1, 0.3f, 0);
  ground_get(g, g->at.returns, out->returns, sizeof out->returns);
  ground_get(g, g->at.tally, out->tally, sizeof out->tally);
  ground_episodes(g, 50, 0, 1, out->episodes);
  ground_get(g, g->at.figures, out->figures, sizeof out->figures);
}

// Rollouts from the same policies have the same bits, and so have the figures of their episodes.
static void cpu_and_cuda_have_the_same_bits(void **state) {
  (void)state;
  ground cpu, cuda;
  if (!ground_open_cuda(&cuda, BRIM_ROLLOUT_EXTENSION "uav")) BRIM_SKIP("no GPU here");
  ground_open_cpu(&cpu, 2);
  static left here, there;
  for (int form = 0; form < 4; form++) {
    const brim_rollout_shape shape = shape_of(form);
    roll(&cpu, &shape, &here);
    roll(&cuda, &shape, &there);
    assert_memory_equal(&here, &there, sizeof here);
  }
  ground_close(&cpu);
  ground_close(&cuda);
}

static void ars_learns_it(void **state) {
  (void)state;
  ground g;
  brim_rollout_episode zero[50], learned[50];
  ground_open_cpu(&g, 2);
  brim_rollout_shape shape = shape_of(0);
  shape.num_dirs = shape.dir_chunk = 8;
  shape.num_envs = 8;
  ground_prepare(&g, &shape);
  ground_episodes(&g, 50, 1, 7, zero);
  for (int i = 0; i < 15; i++) {
    ground_run(&g, i, 0.1f, 0);
    ground_update(&g, i, 4, 0.1f);
  }
  ground_episodes(&g, 50, 0, 7, learned);
  double before = 0, after = 0;
  for (int i = 0; i < 50; i++) {
    before += (double)zero[i].reward / 50;
    after += (double)learned[i].reward / 50;
  }
  printf("return: %.3f doing nothing, %.3f learned\n", before, after);
  assert_near(before, -0.4, 1e-5);  // 40 steps
  assert_true(after > 3);
  ground_close(&g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(starts_are_reachable), cmocka_unit_test(starts_are_spread),
      cmocka_unit_test(starts_are_keyed),     cmocka_unit_test(rings_are_scored),
      cmocka_unit_test(loops_open),           cmocka_unit_test(obstacles_follow_the_rule),
      cmocka_unit_test(starts_stay),          cmocka_unit_test(views_are_what_is_there),
      cmocka_unit_test(sizes_by_default),     cmocka_unit_test(figures_add_up),
      cmocka_unit_test(bad_settings),         cmocka_unit_test(cpu_and_cuda_have_the_same_bits),
      cmocka_unit_test(ars_learns_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
