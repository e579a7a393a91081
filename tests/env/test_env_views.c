// Functions of environments' headers that compute the same in two ways agree; views_each.h lists them.
#include "rl/rollout_test.h"

#include "env/cartpole/cartpole.h"
#include "env/drift.h"
#include "env/slide.h"
#include "env/uav/uav.h"

#define BRIM_ENV(name) brim_cartpole_##name
#include "env/views_each.h"
#undef BRIM_ENV
#define BRIM_ENV(name) drift_##name
#include "env/views_each.h"
#undef BRIM_ENV
#define BRIM_ENV(name) slide_##name
#include "env/views_each.h"
#undef BRIM_ENV
#define BRIM_ENV(name) brim_uav_##name
#include "env/views_each.h"
#undef BRIM_ENV

static void cartpole(void **state) {
  (void)state;
  const brim_cartpole_values v = {0.05f};
  brim_cartpole_views(&v, 0, 2000);
}

static void drift(void **state) {
  (void)state;
  for (int32_t i = 0; i < 16; i++) {
    const drift_values v = {.far = i & 1, .own = i >> 1 & 1, .agents = i / 4 + 1, .wind = 0.25f};
    drift_views(&v, 1, 500);
  }
}

static void slide(void **state) {
  (void)state;
  const slide_values v = {0};
  slide_views(&v, 0, 500);
}

// Sizes that fill the words of a map and sizes that do not, the smallest and the largest.
static void uav(void **state) {
  (void)state;
  static const brim_uav_values all[] = {
      {BRIM_UAV_BRIM, BRIM_UAV_COVERAGE, 32, 10, 40, 200, 11, 0},
      {BRIM_UAV_BRIM, BRIM_UAV_COVERAGE, 32, 10, 40, 20, 11, 1},
      {BRIM_UAV_BRIM, BRIM_UAV_COVERAGE, 64, 32, 900, 200, 15, 0},
      {BRIM_UAV_BRIM, BRIM_UAV_COVERAGE, 2, 1, 0, 200, 1, 0},
      {BRIM_UAV_BRIM, BRIM_UAV_COVERAGE, 7, 5, 10, 33, 7, 0},
      {BRIM_UAV_BRIM, BRIM_UAV_COVERAGE, 33, 17, 200, 50, 5, 0},
      {BRIM_UAV_BRIM, BRIM_UAV_GOALS, 63, 31, 500, 200, 13, 0},
      {BRIM_UAV_BRIM, BRIM_UAV_GOALS, 9, 3, 20, 100, 3, 1},
      {BRIM_UAV_PEER, BRIM_UAV_GOALS, 50, 10, 40, 200, 5, 1},
      {BRIM_UAV_PEER, BRIM_UAV_GOALS, 64, 32, 400, 100, 15, 0},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    assert_null(brim_uav_row.problem(&all[i]));
    brim_uav_views(&all[i], 1, 150);
  }
}

// Each allowed action is equally likely, and no other is taken.
static void any_action_is_allowed(void **state) {
  (void)state;
  static const uint64_t masks[] = {
      1, 0x16, 0x1f, (uint64_t)1 << 63, ~(uint64_t)0, 0x8000000000000001u};
  enum { DRAWS = 1 << 14 };
  for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) {
    int32_t counts[64] = {0}, allowed = 0;
    for (int a = 0; a < 64; a++) allowed += (int32_t)(masks[m] >> a & 1);
    for (uint32_t i = 0; i < DRAWS; i++) counts[brim_env_any(masks[m], i << 18)]++;
    for (int a = 0; a < 64; a++) {
      const int32_t want = masks[m] >> a & 1 ? DRAWS / allowed : 0;
      assert_in_range(counts[a], want, want + (want > 0));
    }
    const int32_t last = brim_env_any(masks[m], UINT32_MAX);
    assert_true(masks[m] >> last & 1);
  }
  assert_int_equal(brim_env_any(0, 12345), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cartpole),
      cmocka_unit_test(drift),
      cmocka_unit_test(slide),
      cmocka_unit_test(uav),
      cmocka_unit_test(any_action_is_allowed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
