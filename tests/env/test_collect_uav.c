// Collected rollouts of the grid world against its own functions, on the CPU and, where there is a GPU, on
// CUDA: states, rewards, observations and masks have the same bits.
#include <math.h>

#include "collect_test.h"

#include "env/uav/uav.h"

#define BRIM_ENV(name) brim_uav_##name
#include "collect_plain.h"
#undef BRIM_ENV

typedef struct world_case {
  int32_t rules, task, team, size, uavs, obstacles, crop, length;
} world_case;

static const world_case cases[] = {
    {BRIM_UAV_BRIM, BRIM_UAV_COVERAGE, 0, 32, 10, 40, 11, 9},
    {BRIM_UAV_BRIM, BRIM_UAV_COVERAGE, 1, 5, 3, 4, 5, 12},  // everything is covered now and then
    {BRIM_UAV_BRIM, BRIM_UAV_GOALS, 0, 9, 7, 20, 7, 7},
    {BRIM_UAV_PEER, BRIM_UAV_GOALS, 1, 50, 10, 40, 5, 8},
    {BRIM_UAV_BRIM, BRIM_UAV_COVERAGE, 0, 64, 32, 300, 15, 5},
};
enum { CASES = sizeof cases / sizeof *cases };

static brim_collect_shape shape_case(const world_case *c, int32_t envs, int32_t steps) {
  brim_collect_shape s = {.row = row_of("uav"), .num_envs = envs, .steps = steps, .seed = 3};
  set_value(&s, brim_uav_values, rules, c->rules);
  set_value(&s, brim_uav_values, task, c->task);
  s.row->defaults(0, s.env.bytes);
  set_value(&s, brim_uav_values, team, c->team);
  set_value(&s, brim_uav_values, size, c->size);
  set_value(&s, brim_uav_values, num_uavs, c->uavs);
  set_value(&s, brim_uav_values, num_obstacles, c->obstacles);
  set_value(&s, brim_uav_values, crop, c->crop);
  set_value(&s, brim_uav_values, episode_steps, c->length);
  s.episode_length = c->length;
  return s;
}

static void uav_is_the_contract(void **state) {
  (void)state;
  camp g[2];
  const int camps = camps_of("uav", g);
  for (int p = 0; p < camps; p++) {
    for (int i = 0; i < CASES; i++) {
      const brim_collect_shape shape = shape_case(&cases[i], 5, 11);
      assert_true(brim_uav_plain_agrees(&g[p], &shape, 3) >= 10);
    }
  }
}

// With the defaults of `rules=peer` a state has the bytes that the speed of steps is planned with.
static void a_peer_state_has_416_bytes(void **state) {
  (void)state;
  const brim_collect_shape shape = shape_case(&cases[3], 4, 4);
  brim_collect_layout at;
  assert_ok(brim_collect_cpu()->layout(&shape, &at));
  assert_int_equal(at.state_bytes, 416);
  assert_int_equal(at.obs, 29);
  assert_int_equal(at.critic, 40);
  assert_int_equal(at.agents, 10);
}

// What two places write of the same rows, in the type that networks read.
static void compare_looks(camp g[2], int32_t dtype) {
  char *out[2][3];
  size_t bytes[3] = {0};
  for (int p = 0; p < 2; p++) {
    const brim_collect_layout *at = &g[p].at;
    const int64_t rows = (int64_t)at->slots * at->envs;
    const int32_t actor = (at->obs + 7) / 8 * 8, critic = (at->critic + 7) / 8 * 8;
    const size_t size = brim_dtype_size((brim_dtype)dtype);
    bytes[0] = (size_t)(rows * at->agents * actor) * size;
    bytes[1] = (size_t)(rows * critic) * size;
    bytes[2] = (size_t)(rows * at->agents) * sizeof(uint64_t);
    const brim_collect_view view = {.count = rows,
                                    .actor = {camp_alloc(&g[p], bytes[0]), dtype, actor},
                                    .critic = {camp_alloc(&g[p], bytes[1]), dtype, critic},
                                    .mask = camp_alloc(&g[p], bytes[2])};
    camp_look(&g[p], &view);
    void *from[] = {view.actor.data, view.critic.data, view.mask};
    for (int i = 0; i < 3; i++) {
      out[p][i] = malloc(bytes[i]);
      assert_non_null(out[p][i]);
      camp_get(&g[p], from[i], out[p][i], bytes[i]);
      camp_free(&g[p], from[i]);
    }
  }
  for (int i = 0; i < 3; i++) {
    assert_memory_equal(out[0][i], out[1][i], bytes[i]);
    free(out[0][i]);
    free(out[1][i]);
  }
}

static void cpu_and_cuda_have_the_same_bits(void **state) {
  (void)state;
  if (!world.device) skip();
  for (int i = 0; i < CASES; i++) {
    for (int rule = 0; rule < 2; rule++) {
      camp g[2];
      char *copy[2];
      const brim_collect_shape shape = shape_case(&cases[i], 70, 13);
      assert_int_equal(camps_of("uav", g), 2);
      for (int p = 0; p < 2; p++) {
        camp_prepare(&g[p], &shape);
        camp_run(&g[p], 3, rule);
        camp_tally(&g[p], 0);
        copy[p] = camp_copy(&g[p]);
      }
      assert_int_equal(g[0].at.bytes, g[1].at.bytes);
      assert_memory_equal(copy[0], copy[1], g[0].at.bytes);
      for (int p = 0; p < 2; p++) free(copy[p]);
      compare_looks(g, BRIM_F32);
      compare_looks(g, BRIM_BF16);
      compare_looks(g, BRIM_F16);
      for (int p = 0; p < 2; p++) camp_clear(&g[p]);
    }
  }
}

// The baseline covers more than chance does, by the figures of the row.
static void greedy_covers_more_than_chance(void **state) {
  (void)state;
  camp g = camp_cpu(2);
  double coverage[2];
  for (int rule = 0; rule < 2; rule++) {
    brim_collect_shape shape = shape_case(&cases[0], 20, 1);
    set_value(&shape, brim_uav_values, episode_steps, 60);
    shape.episode_length = 60;
    shape.once = 1;
    shape.stream = 4;
    camp_prepare(&g, &shape);
    camp_run(&g, 60, rule);
    const brim_collect_tally t = camp_tally(&g, 0);
    assert_int_equal(t.episodes, 20);
    coverage[rule] = t.figures[0][0] / t.figures[0][1];
  }
  camp_clear(&g);
  printf("coverage after 60 steps: %.3f by chance, %.3f greedy\n", coverage[0], coverage[1]);
  assert_true(coverage[1] > 1.5 * coverage[0]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(uav_is_the_contract),
      cmocka_unit_test(a_peer_state_has_416_bytes),
      cmocka_unit_test(cpu_and_cuda_have_the_same_bits),
      cmocka_unit_test(greedy_covers_more_than_chance),
  };
  return cmocka_run_group_tests(tests, open_world, close_world);
}
