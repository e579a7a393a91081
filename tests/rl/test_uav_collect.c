// Collected rollouts of the grid world: the results of its own functions, and the same bits on CPU and CUDA: of states,
// rewards, actions and the networks' inputs.
#include <math.h>

#include "collect_test.h"

#include "env/uav/uav.h"

#define BRIM_ENV(name) brim_uav_##name
#include "collect_plain.h"
#undef BRIM_ENV

enum { FORMS = 6 };

// Coverage with rewards for each UAV and for the team, goals, rules=peer; a grid that is covered soon; the largest
// grid.
static brim_collect_shape form_of(int form, int32_t envs, int32_t steps) {
  brim_collect_shape s = {.row = &brim_uav_row, .num_envs = envs, .steps = steps, .seed = 3};
  brim_uav_values v = {.rules = form == 3 ? BRIM_UAV_PEER : BRIM_UAV_BRIM,
                       .task = form == 2 ? BRIM_UAV_GOALS : BRIM_UAV_AUTO};
  memcpy(s.env.bytes, &v, sizeof v);
  s.row->defaults(0, s.env.bytes);
  memcpy(&v, s.env.bytes, sizeof v);
  v.episode_steps = 23;
  if (form == 1) v.team = 1;
  if (form == 4) {
    v.size = 5;
    v.crop = 3;
    v.num_uavs = 7;
    v.num_obstacles = 4;
  }
  if (form == 5) {
    v.size = BRIM_UAV_MAX_SIZE;
    v.crop = BRIM_UAV_MAX_CROP;
    v.num_uavs = BRIM_UAV_MAX_UAVS;
    v.num_obstacles = 300;
  }
  memcpy(s.env.bytes, &v, sizeof v);
  s.episode_length = s.row->length(0, s.env.bytes);
  return s;
}

static void rollouts_are_the_contract(void **state) {
  (void)state;
  camp g[2];
  const int camps = camps_of("uav", g);
  for (int p = 0; p < camps; p++) {
    for (int form = 0; form < FORMS; form++) {
      const brim_collect_shape shape = form_of(form, 9, 20);
      assert_true(brim_uav_plain_agrees(&g[p], &shape, 4) >= 3 * 9);
    }
  }
}

// The flags of an agent are the first numbers of its observation, and nothing follows them. The copy of a state has
// exactly the stored bytes, so that address checks see a read behind it.
static void flags_are_what_agents_observe(void **state) {
  (void)state;
  enum { WORDS = brim_uav_OBS / 32 + 2 };
  camp g = camp_cpu(1);
  for (int form = 0; form < FORMS; form++) {
    const brim_collect_shape shape = form_of(form, 9, 20);
    brim_uav_values v;
    memcpy(&v, shape.env.bytes, sizeof v);
    const int32_t flags = brim_uav_flags(&v, NULL, 0, NULL), words = (flags + 31) / 32;
    const int32_t planes = form == 3 ? 1 : 3;
    assert_int_equal(flags, planes * v.crop * v.crop);
    camp_prepare(&g, &shape);
    camp_run(&g, 2, 1);
    brim_uav_state *s = malloc((size_t)brim_uav_stored(&v));
    assert_non_null(s);
    for (size_t row = 0; row < 21 * 9; row++) {
      memcpy(s, g.block + g.at.states + row * g.at.state_bytes, (size_t)brim_uav_stored(&v));
      for (int32_t a = 0; a < v.num_uavs; a++) {
        float x[brim_uav_OBS];
        uint32_t bits[WORDS];
        memset(bits, 0xA5, sizeof bits);
        brim_uav_observe(&v, s, a, x);
        assert_int_equal(brim_uav_flags(&v, s, a, bits), flags);
        for (int32_t i = 0; i < 32 * words; i++) {
          const uint32_t bit = bits[i / 32] >> (i % 32) & 1;
          assert_true((float)bit == (i < flags ? x[i] : 0.0f));
        }
        assert_int_equal(bits[words], 0xA5A5A5A5u);
      }
    }
    free(s);
  }
  camp_clear(&g);
}

// rules=peer in every size and window, at the edges too, with any map.
static void flags_of_peers_are_what_they_observe(void **state) {
  (void)state;
  enum { UAVS = 5, WORDS = BRIM_UAV_MAX_CROP * BRIM_UAV_MAX_CROP / 32 + 1 };
  for (int32_t size = 2; size <= BRIM_UAV_MAX_SIZE; size++) {
    for (int32_t crop = 1; crop <= size && crop <= 9; crop += 2) {
      const brim_uav_values v = {.rules = BRIM_UAV_PEER,
                                 .task = BRIM_UAV_GOALS,
                                 .size = size,
                                 .num_uavs = UAVS,
                                 .crop = crop,
                                 .episode_steps = 9};
      brim_uav_state s = {0};
      for (int32_t i = 2 * UAVS; i < brim_uav_stored(&v) / 4 - 5; i++) {
        s.rest[i] =
            brim_philox(brim_rng_key(9, BRIM_RNG_TEST), (uint64_t)(size * 16 + crop), (uint64_t)i)
                .v[0];
      }
      const int32_t end = size - 1,
                    at[UAVS][2] = {{0, 0}, {end, 0}, {0, end}, {end, end}, {end / 2, 1}};
      for (int32_t a = 0; a < UAVS; a++) s.rest[a] = brim_grid_place(at[a][0], at[a][1], 1, 0);
      for (int32_t a = 0; a < UAVS; a++) {
        float x[brim_uav_OBS];
        uint32_t bits[WORDS];
        brim_uav_observe(&v, &s, a, x);
        const int32_t flags = brim_uav_flags(&v, &s, a, bits);
        for (int32_t i = 0; i < (flags + 31) / 32 * 32; i++) {
          assert_true((float)(bits[i / 32] >> (i % 32) & 1) == (i < flags ? x[i] : 0.0f));
        }
      }
    }
  }
}

// The inputs of both networks for all rows of a block, as bytes. Rows are a multiple of `unit` numbers long.
static char *looks(camp *g, int32_t dtype, int32_t unit, size_t *bytes) {
  const brim_env_sizes z = brim_collect_sizes(&g->shape);
  const int64_t rows = (int64_t)(g->shape.steps + 1) * g->shape.num_envs;
  const int32_t actor = (z.obs + unit - 1) / unit * unit, critic = (g->at.critic + 7) / 8 * 8;
  const size_t each = dtype == BRIM_F32 ? 4 : 2;
  const size_t first = ((size_t)(rows * z.agents * actor) * each + 15) / 16 * 16;
  const size_t second = (size_t)(rows * critic) * each;
  *bytes = first + second + (size_t)(rows * z.agents) * sizeof(uint64_t);
  char *there = camp_alloc(g, *bytes), *here = malloc(*bytes);
  const brim_collect_view view = {.count = rows,
                                  .actor = {there, dtype, actor},
                                  .critic = {there + first, dtype, critic},
                                  .mask = (uint64_t *)(void *)(there + first + second)};
  assert_non_null(here);
  camp_look(g, &view);
  camp_get(g, there, here, *bytes);
  camp_free(g, there);
  return here;
}

// The actor's inputs for a list of rows, some of which do not exist, as bytes.
static char *listed(camp *g, int32_t dtype, size_t *bytes) {
  enum { COUNT = 70 };
  const brim_env_sizes z = brim_collect_sizes(&g->shape);
  const int32_t pitch = (z.obs + 7) / 8 * 8;
  int32_t rows[COUNT];
  for (int32_t i = 0; i < COUNT; i++) rows[i] = i % 7 == 5 ? INT32_MAX - i : i * 97 % 6000;
  rows[0] = -1;
  *bytes = (size_t)(COUNT * z.agents * pitch) * (dtype == BRIM_F32 ? 4 : 2);
  char *there = camp_alloc(g, *bytes), *here = malloc(*bytes);
  int32_t *list = camp_alloc(g, sizeof rows);
  assert_non_null(here);
  camp_put(g, list, rows, sizeof rows);
  const brim_collect_view view = {.rows = list, .count = COUNT, .actor = {there, dtype, pitch}};
  camp_look(g, &view);
  camp_get(g, there, here, *bytes);
  camp_free(g, there);
  camp_free(g, list);
  return here;
}

static void cpu_and_cuda_have_the_same_bits(void **state) {
  (void)state;
  if (!world.device) BRIM_SKIP("no GPU here");
  for (int form = 0; form < FORMS; form++) {
    for (int32_t rule = 0; rule < 2; rule++) {
      const brim_collect_shape shape = form_of(form, 300, 30);
      char *block[2], *seen[2];
      camp g[2];
      assert_int_equal(camps_of("uav", g), 2);
      for (int p = 0; p < 2; p++) {
        camp_prepare(&g[p], &shape);
        camp_run(&g[p], 3, rule);
        camp_tally(&g[p], 0);
        block[p] = camp_copy(&g[p]);
      }
      assert_int_equal(g[0].at.bytes, g[1].at.bytes);
      assert_true(memcmp(block[0], block[1], g[0].at.bytes) == 0);
      for (int32_t dtype = 0; dtype < 3; dtype++) {
        static const int32_t types[] = {BRIM_F32, BRIM_BF16, BRIM_F16};
        size_t bytes = 0;
        for (int32_t unit = 1; unit <= 64; unit *= 4) {
          for (int p = 0; p < 2; p++) seen[p] = looks(&g[p], types[dtype], unit, &bytes);
          assert_true(memcmp(seen[0], seen[1], bytes) == 0);
          for (int p = 0; p < 2; p++) free(seen[p]);
        }
        for (int p = 0; p < 2; p++) seen[p] = listed(&g[p], types[dtype], &bytes);
        assert_true(memcmp(seen[0], seen[1], bytes) == 0);
        for (int p = 0; p < 2; p++) free(seen[p]);
      }
      for (int p = 0; p < 2; p++) {
        free(block[p]);
        camp_clear(&g[p]);
      }
    }
  }
}

// The tally has the figures: a greedy policy covers more than random actions, and all of 5 x 5 cells in time.
static void tallies_have_the_figures(void **state) {
  (void)state;
  camp g[2];
  const int camps = camps_of("uav", g);
  for (int p = 0; p < camps; p++) {
    double mean[2];
    for (int32_t rule = 0; rule < 2; rule++) {
      const brim_collect_shape shape = form_of(0, 20, 23);
      camp_prepare(&g[p], &shape);
      camp_run(&g[p], 2, rule);
      const brim_collect_tally t = camp_tally(&g[p], 1);
      assert_int_equal(t.episodes, 40);
      assert_int_equal(t.truncated, 40);
      mean[rule] = t.figures[BRIM_UAV_COVERED_MEAN][0] / t.figures[BRIM_UAV_COVERED_MEAN][1];
      assert_true(mean[rule] > 0.01 && mean[rule] < 0.3);
      assert_true(t.figures[BRIM_UAV_ARRIVALS][1] == 0);
    }
    assert_true(mean[1] > 1.3 * mean[0]);
    const brim_collect_shape small = form_of(4, 20, 23);
    camp_prepare(&g[p], &small);
    camp_run(&g[p], 3, 1);
    const brim_collect_tally t = camp_tally(&g[p], 1);
    assert_true(t.terminated > t.truncated);
    camp_clear(&g[p]);
  }
}

static brim_status continues(const camp *g, char *states, char *carried, char *at, char value) {
  const char before = *at;
  *at = value;
  const brim_status status = brim_collect_check_saved(&g->shape, states, carried);
  *at = before;
  return status;
}

// A rollout continues from every state it leaves, but not from a file with UAVs outside the grid or missing from the
// map of UAVs: a step would use them as indices.
static void saved_states_are_checked(void **state) {
  (void)state;
  camp g = camp_cpu(1);
  for (int form = 0; form < FORMS; form++) {
    const brim_collect_shape shape = form_of(form, 5, 9);
    camp_prepare(&g, &shape);
    char *states = g.block + g.at.saved[0].offset, *carried = g.block + g.at.saved[1].offset;
    for (int i = 0; i < 8; i++) {
      assert_ok(brim_collect_check_saved(&shape, states, carried));
      camp_run(&g, 1, 0);
    }
    char *third = states + 2 * g.at.state_bytes, *place = third + offsetof(brim_uav_state, rest);
    brim_collect_track *track = (brim_collect_track *)(void *)carried + 2;
    assert_int_equal(continues(&g, states, carried, place, (char)200), BRIM_EPARSE);
    assert_non_null(strstr(brim_status_detail(), "the state of environment 2 is not one of uav"));
    assert_int_equal(continues(&g, states, carried, place + 3, (char)200), BRIM_EPARSE);
    assert_int_equal(continues(&g, states, carried, third + 3, (char)0x80), BRIM_EPARSE);  // time
    assert_int_equal(continues(&g, states, carried, (char *)&track->step + 3, (char)0x80),
                     BRIM_EPARSE);
    assert_int_equal(continues(&g, states, carried, (char *)&track->step, (char)23), BRIM_EPARSE);
    if (form != 3) {  // only its last map is that of UAVs
      char *map = third + brim_uav_row.collect()->stored(shape.env.bytes) - 1;
      assert_int_equal(continues(&g, states, carried, map, (char)~*map), BRIM_EPARSE);
    }
    assert_ok(brim_collect_check_saved(&shape, states, carried));
  }
  camp_clear(&g);
}

// A state with the defaults of rules=peer has the size that the kernels were tuned for.
static void a_peer_state_has_416_bytes(void **state) {
  (void)state;
  const brim_collect_shape shape = form_of(3, 4, 4);
  brim_collect_layout at;
  assert_ok(brim_collect_cpu()->layout(&shape, &at));
  assert_int_equal(at.state_bytes, 416);
  assert_int_equal(at.obs, 29);
  assert_int_equal(at.critic, 40);
  assert_int_equal(at.agents, 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rollouts_are_the_contract),
      cmocka_unit_test(flags_are_what_agents_observe),
      cmocka_unit_test(flags_of_peers_are_what_they_observe),
      cmocka_unit_test(cpu_and_cuda_have_the_same_bits),
      cmocka_unit_test(tallies_have_the_figures),
      cmocka_unit_test(saved_states_are_checked),
      cmocka_unit_test(a_peer_state_has_416_bytes),
  };
  return cmocka_run_group_tests(tests, open_world, close_world);
}
