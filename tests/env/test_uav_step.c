// The grid world's step: rules=brim against a plain model of it (uav_model.h) over random worlds, rules=peer against
// the step of the PyTorch environment that it reproduces.
// Each run draws other worlds; with BRIM_TEST_FULL 20 times as many.
#include "rl/rollout_test.h"

#include "env/uav_model.h"

static int times = 1;

//---------------------------------- rules=brim ----------------------------------

typedef struct tally {
  int64_t transitions, moves, stops, blocks, finds, completions, chains, rings;
} tally;

// Any world, connected or not: some walls, UAVs on different free cells, some covered cells.
static void random_world(uint64_t *random, brim_uav_values *v, model *m) {
  memset(m, 0, sizeof *m);
  m->goals = model_below(random, 4) == 0;
  *v = uav_values(BRIM_UAV_BRIM, m->goals ? BRIM_UAV_GOALS : BRIM_UAV_COVERAGE);
  // small grids are full of conflicts
  m->size = model_below(random, 32) ? 2 + model_below(random, 7) : 2 + model_below(random, 63);
  const int cells = m->size * m->size, density = model_below(random, 60);
  int free_cells = cells;
  for (int cell = 0; cell < cells; cell++) {
    const bool wall = free_cells > 3 && model_below(random, 100) < density;
    m->wall[cell / m->size][cell % m->size] = wall;
    free_cells -= wall;
  }
  const int most = free_cells - 1 < 32 ? free_cells - 1 : 32;
  m->uavs = 1 + model_below(random, most);
  m->steps = 200;
  const int share = model_below(random, 101);
  for (int i = 0; i < m->uavs; i++) {
    int x, y;
    do {
      x = model_below(random, m->size);
      y = model_below(random, m->size);
    } while (m->wall[y][x] || m->covered[y][x]);
    m->x[i] = x;
    m->y[i] = y;
    m->goal_x[i] = m->goals ? model_below(random, m->size) : 0;
    m->goal_y[i] = m->goals ? model_below(random, m->size) : 0;
    m->heading[i] = model_below(random, 5);
    m->covered[y][x] = true;  // goals, too, have to be on different cells
  }
  for (int cell = 0; cell < cells; cell++) {
    bool *covered = &m->covered[cell / m->size][cell % m->size];
    if (m->goals)
      *covered = false;
    else if (!m->wall[cell / m->size][cell % m->size] && model_below(random, 100) < share)
      *covered = true;
    m->total_found += *covered;
  }
  v->size = m->size;
  v->num_uavs = m->uavs;
  v->num_obstacles = cells - free_cells;
  v->crop = 1;
  assert_null(brim_uav_row.problem(v));
}

// Some UAVs head for the same cell, some circle in rings, most act at random.
static void random_actions(uint64_t *random, const model *m, int32_t *action) {
  const int way = model_below(random, 4);
  for (int i = 0; i < m->uavs; i++) {
    action[i] = model_below(random, 5);
    if (way == 0) action[i] = 1 + model_below(random, 2);
    // clockwise around the middle of blocks of 2 x 2
    static const int32_t turn[4] = {2, 3, 1, 4};
    if (way == 1 && model_below(random, 8)) action[i] = turn[(m->y[i] & 1) * 2 + (m->x[i] & 1)];
  }
}

static void compare(const brim_uav_values *v, const model *want, const brim_uav_state *s,
                    brim_env_outcome o) {
  model got;
  int total = 0;
  assert_true(model_read(v, s, &got));
  for (int i = 0; i < want->uavs; i++) {
    assert_int_equal(got.x[i], want->x[i]);
    assert_int_equal(got.y[i], want->y[i]);
    assert_int_equal(got.hundredths[i], want->hundredths[i]);
    assert_int_equal(got.heading[i], want->heading[i]);
    assert_int_equal(got.blocked[i], want->blocked[i]);
    assert_int_equal(got.stopped[i], want->stopped[i]);
    assert_int_equal(got.found[i], want->found[i]);
    assert_true(brim_uav_share(v, s, i) == (float)want->hundredths[i] / 100.0f);
    total += want->hundredths[i];
    if (!want->goals) continue;
    const bool same = got.goal_x[i] == want->goal_x[i] && got.goal_y[i] == want->goal_y[i];
    if (!want->found[i]) {
      assert_true(same);
    } else {  // another free cell
      assert_in_range(got.goal_x[i], 0, v->size - 1);
      assert_in_range(got.goal_y[i], 0, v->size - 1);
      assert_false(got.wall[got.goal_y[i]][got.goal_x[i]]);
      assert_true(got.goal_x[i] != got.x[i] || got.goal_y[i] != got.y[i]);
    }
  }
  // cmocka compares byte by byte
  assert_true(memcmp(got.wall, want->wall, sizeof got.wall) == 0);
  assert_true(memcmp(got.covered, want->covered, sizeof got.covered) == 0);
  assert_int_equal(got.time, want->time);
  assert_int_equal(got.total_found, want->total_found);
  assert_int_equal(got.sum, want->sum);
  assert_int_equal(got.collisions, want->collisions);
  assert_int_equal(got.overlap, want->overlap);
  assert_int_equal(o.end, want->complete ? BRIM_ENV_TERMINATED : BRIM_ENV_RUNNING);
  assert_near(o.reward, total / (100.0 * want->uavs), 1e-6);
}

static void count_up(tally *t, const model *before, const model *after) {
  t->transitions++;
  t->completions += after->complete;
  for (int i = 0; i < after->uavs; i++) {
    const bool moved = before->x[i] != after->x[i] || before->y[i] != after->y[i];
    const int other = model_uav_at(before, after->x[i], after->y[i]);
    t->moves += moved;
    t->stops += after->stopped[i];
    t->blocks += after->blocked[i];
    t->finds += after->found[i];
    t->chains += moved && other >= 0;  // into a cell that another UAV leaves
    int steps = 0, at = i;
    for (; moved && steps < 32; steps++) {
      at = model_uav_at(before, after->x[at], after->y[at]);
      if (at < 0 || at == i) break;
    }
    t->rings += moved && at == i;
  }
}

static void steps_as_the_model(void **state) {
  (void)state;
  const int64_t worlds = (int64_t)times * 20000;
  uint64_t random = 20261117 + test_seed();
  tally t = {0};
  for (int64_t w = 0; w < worlds; w++) {
    brim_uav_values v;
    model m, before;
    brim_uav_state s;
    brim_env_track track = uav_track((uint64_t)w, 0);
    random_world(&random, &v, &m);
    model_write(&m, &s);
    for (int step = 0; step < 20 && !m.complete; step++) {
      int32_t action[32];
      random_actions(&random, &m, action);
      before = m;
      model_step(&m, action);
      const brim_env_outcome o = brim_uav_step(&v, &track, &s, action);
      compare(&v, &m, &s, o);
      count_up(&t, &before, &m);
      track.step++;
      for (int i = 0; i < m.uavs; i++) {  // goals that were drawn again
        m.goal_x[i] = brim_grid_goal_x(s.rest[i]);
        m.goal_y[i] = brim_grid_goal_y(s.rest[i]);
      }
    }
  }
  printf(
      "%lld transitions: %lld moves, %lld into cells that were left, %lld in rings, %lld "
      "stopped, %lld blocked, %lld found, %lld complete\n",
      (long long)t.transitions, (long long)t.moves, (long long)t.chains, (long long)t.rings,
      (long long)t.stops, (long long)t.blocks, (long long)t.finds, (long long)t.completions);
  assert_true(t.transitions >= worlds * 10);
  assert_true(t.chains > worlds && t.rings > worlds / 100 && t.stops > worlds);
  assert_true(t.completions > worlds / 1000);
}

// The documented rules one by one: UAVs in a row of cells, from west to east.
static void conflicts_by_hand(void **state) {
  (void)state;
  enum { N = 1, E, S, W };
  const struct {
    const char *what;
    int uavs, at[4];
    int32_t action[4];
    int to[4];
    unsigned stopped;  // bits
  } cases[] = {
      {"two want one cell: the first gets it", 2, {1, 3}, {E, W}, {2, 3}, 2},
      {"the order of places does not matter", 2, {3, 1}, {W, E}, {2, 1}, 2},
      {"swaps are forbidden", 2, {1, 2}, {E, W}, {1, 2}, 3},
      {"into one that stays", 2, {1, 2}, {E, 0}, {1, 2}, 1},
      {"into one that is blocked", 2, {4, 5}, {E, E}, {4, 5}, 1},
      {"a row moves together", 4, {0, 1, 2, 3}, {E, E, E, E}, {1, 2, 3, 4}, 0},
      {"a row stops together", 4, {2, 3, 4, 5}, {E, E, E, E}, {2, 3, 4, 5}, 7},
      {"who follows a loser stays", 3, {4, 2, 1}, {W, E, E}, {3, 2, 1}, 6},
      {"who wants the cell of swapping ones stays", 3, {1, 2, 0}, {E, W, E}, {1, 2, 0}, 7},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    brim_uav_values v = uav_values(BRIM_UAV_BRIM, BRIM_UAV_COVERAGE);
    model m = {.size = 6, .uavs = cases[c].uavs, .steps = 200}, got;
    brim_uav_state s;
    const brim_env_track track = uav_track(1, 0);
    v.size = 6;
    v.crop = 1;
    v.num_obstacles = 0;
    v.num_uavs = m.uavs;
    for (int i = 0; i < m.uavs; i++) {
      m.x[i] = cases[c].at[i];
      m.y[i] = 2;
    }
    model_write(&m, &s);
    brim_uav_step(&v, &track, &s, cases[c].action);
    assert_true(model_read(&v, &s, &got));
    for (int i = 0; i < m.uavs; i++) {
      if (got.x[i] != cases[c].to[i] || got.stopped[i] != (cases[c].stopped >> i & 1)) {
        fail_msg("%s: UAV %d is at %d", cases[c].what, i, got.x[i]);
      }
    }
  }
}

//---------------------------------- rules=peer ----------------------------------

// torch_uav.py, one environment: pos, goal (A, 2), obst (G, G), with its own names.
enum { A = 10, G = 50 };
typedef struct peer {
  bool obst[G][G];
  int pos[A][2], goal[A][2], t;
} peer;

static void peer_read(const brim_uav_values *v, const brim_uav_state *s, peer *p) {
  memset(p, 0, sizeof *p);
  p->t = s->time;
  for (int i = 0; i < A; i++) {
    p->pos[i][0] = s->rest[i] & 255;
    p->pos[i][1] = s->rest[i] >> 8 & 255;
    p->goal[i][0] = s->rest[i] >> 16 & 255;
    p->goal[i][1] = (int)(s->rest[i] >> 24);
  }
  for (int x = 0; x < G; x++) {
    for (int y = 0; y < G; y++) p->obst[x][y] = model_map_bit(s, 2 * A, y * v->size + x);
  }
}

static void peer_obs(const peer *p, double lo[A][29], double go[40]) {
  for (int i = 0; i < A; i++) {
    int n = 0;
    for (int d0 = -2; d0 < 3; d0++) {
      for (int d1 = -2; d1 < 3; d1++) {
        const int c0 = p->pos[i][0] + d0, c1 = p->pos[i][1] + d1;
        const bool inb = c0 >= 0 && c0 < G && c1 >= 0 && c1 < G;
        lo[i][n++] = !inb || p->obst[c0][c1];
      }
    }
    for (int k = 0; k < 2; k++) {
      lo[i][25 + k] = (double)(p->goal[i][k] - p->pos[i][k]) / G;
      lo[i][27 + k] = (double)p->pos[i][k] / G;
      go[2 * i + k] = (double)p->pos[i][k] / G;
      go[2 * A + 2 * i + k] = (double)p->goal[i][k] / G;
    }
  }
}

// Computes rewards; done_a marks the goals that are drawn again. If done, positions are drawn too.
static bool peer_step(peer *p, const int32_t *act, double r[A], bool done_a[A]) {
  static const int mv[5][2] = {{0, 0}, {1, 0}, {-1, 0}, {0, 1}, {0, -1}};
  int d0[A], d1[A];
  bool hit[A];
  for (int i = 0; i < A; i++) {
    int n[2];
    bool inb = true;
    d0[i] = abs(p->pos[i][0] - p->goal[i][0]) + abs(p->pos[i][1] - p->goal[i][1]);
    for (int k = 0; k < 2; k++) {
      n[k] = p->pos[i][k] + mv[act[i]][k];
      inb = inb && n[k] >= 0 && n[k] < G;
    }
    hit[i] = !inb || p->obst[n[0]][n[1]];
    if (!hit[i]) memcpy(p->pos[i], n, sizeof n);
    d1[i] = abs(p->pos[i][0] - p->goal[i][0]) + abs(p->pos[i][1] - p->goal[i][1]);
  }
  for (int i = 0; i < A; i++) {
    int near = 0;
    for (int j = 0; j < A; j++) {
      near += hypot(p->pos[i][0] - p->pos[j][0], p->pos[i][1] - p->pos[j][1]) < 0.5;
    }
    done_a[i] = d1[i] == 0;
    r[i] = (d0[i] - d1[i]) * 0.1 - hit[i] * 0.5 - (near > 1) + done_a[i] * 5 - 0.01;
  }
  return ++p->t >= 200;
}

static void peer_compare_views(const brim_uav_values *v, const brim_uav_state *s, const peer *p) {
  double lo[A][29], go[40];
  float seen[40];
  peer_obs(p, lo, go);
  for (int i = 0; i < A; i++) {
    brim_uav_observe(v, s, i, seen);
    for (int k = 0; k < 29; k++) assert_near(seen[k], lo[i][k], 1e-6);
    assert_int_equal(brim_uav_mask(v, s, i), 31);
  }
  brim_uav_global(v, s, seen);
  for (int k = 0; k < 40; k++) assert_near(seen[k], go[k], 1e-6);
}

static void steps_as_the_peer(void **state) {
  (void)state;
  brim_uav_values v = uav_values(BRIM_UAV_PEER, BRIM_UAV_AUTO);
  const brim_env_sizes z = brim_uav_sizes(&v);
  assert_int_equal(v.size, G);
  assert_int_equal(v.num_uavs, A);
  assert_int_equal(z.obs, 29);
  assert_int_equal(z.global, 40);
  assert_int_equal(z.rewards, 1);
  assert_int_equal(brim_uav_stored(&v), 416);
  uint64_t random = 5;
  int64_t hits = 0, shared = 0, arrived = 0, transitions = 0;
  for (int env = 0; env < (test_is_full() ? 120 : 30); env++) {
    brim_env_track t = brim_env_track_of(brim_env_training(3, 0, 0, env));
    brim_uav_state s;
    peer p;
    v.num_obstacles = env % 3 ? 40 : 500;  // many start on obstacles, and hit them by staying
    brim_uav_reset(&v, &t, &s);
    peer_read(&v, &s, &p);
    for (bool done = false; !done;) {
      int32_t act[A];
      double r[A], mean = 0;
      bool done_a[A];
      peer drawn;
      // towards each other and towards goals, so that rewards occur
      for (int i = 0; i < A; i++) {
        const int32_t rule = brim_uav_rule(&v, &s, i, 1, model_random(&random));
        act[i] = p.t < 2 ? 0 : model_below(&random, 3) ? rule : model_below(&random, 5);
      }
      peer_compare_views(&v, &s, &p);
      done = peer_step(&p, act, r, done_a);
      const brim_env_outcome o = brim_uav_step(&v, &t, &s, act);
      t.step++;
      assert_int_equal(o.end, done ? BRIM_ENV_TERMINATED : BRIM_ENV_RUNNING);
      for (int i = 0; i < A; i++) {
        mean += r[i] / A;
        assert_near(brim_uav_share(&v, &s, i), r[i], 1e-6);
        arrived += done_a[i];
        hits += s.rest[A + i] >> 20 & 1;
        shared += s.rest[A + i] >> 21 & 1;
      }
      assert_near(o.reward, mean, 1e-6);
      // the state after the step, except for goals that were drawn again
      peer_read(&v, &s, &drawn);
      for (int i = 0; i < A; i++) {
        if (!done_a[i]) continue;
        assert_in_range(drawn.goal[i][0], 0, G - 1);
        assert_in_range(drawn.goal[i][1], 0, G - 1);
        memcpy(p.goal[i], drawn.goal[i], sizeof p.goal[i]);
      }
      assert_memory_equal(&p, &drawn, sizeof p);
      transitions++;
    }
    assert_int_equal(s.found > 0, 1);
  }
  printf("%lld transitions: %lld hits, %lld in shared cells, %lld arrivals\n",
         (long long)transitions, (long long)hits, (long long)shared, (long long)arrived);
  assert_true(hits > 100 && shared > 100 && arrived > 500);
}

// Walls are as likely as in torch_uav.py, the same in every episode of an environment and different in the next
// environment.
static void peer_walls_stay(void **state) {
  (void)state;
  const brim_uav_values v = uav_values(BRIM_UAV_PEER, BRIM_UAV_AUTO);
  int64_t walls = 0, same_place = 0;
  peer last = {0};
  enum { ENVS = 400 };
  for (int env = 0; env < ENVS; env++) {
    brim_env_track t = brim_env_track_of(brim_env_training(3, 0, 0, env));
    brim_uav_state s;
    peer first, next;
    brim_uav_reset(&v, &t, &s);
    peer_read(&v, &s, &first);
    t.episode = 7;
    brim_uav_reset(&v, &t, &s);
    peer_read(&v, &s, &next);
    assert_memory_equal(first.obst, next.obst, sizeof first.obst);
    assert_memory_not_equal(first.pos, next.pos, sizeof first.pos);
    assert_memory_not_equal(first.goal, next.goal, sizeof first.goal);
    assert_memory_not_equal(first.obst, last.obst, sizeof first.obst);
    last = first;
    for (int x = 0; x < G; x++) {
      for (int y = 0; y < G; y++) walls += first.obst[x][y];
    }
    for (int i = 0; i < A; i++) same_place += first.pos[i][0] == first.pos[i][1];
  }
  // 40 an environment, with a deviation of 6.3
  assert_near((double)walls / ENVS, 40, 5 * 6.3 / sqrt(ENVS));
  assert_near((double)same_place / ENVS, A / (double)G, 5 * sqrt(A / (double)G / ENVS));
}

int main(void) {
  if (test_is_full()) times = 20;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(steps_as_the_model),
      cmocka_unit_test(conflicts_by_hand),
      cmocka_unit_test(steps_as_the_peer),
      cmocka_unit_test(peer_walls_stay),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
