// Scenes of the environments: they fit their frames, curves and figures describe a state, and a scene that does not fit
// is refused.
#include <math.h>

#include "base/base.h"
#include "env/cartpole/cartpole.h"
#include "env/quadruped/quadruped.h"
#include "env/uav/uav.h"
#include "test.h"

static brim_env_values values_of(const brim_env_row *row) {
  brim_env_values values;
  memset(&values, 0, sizeof values);
  row->defaults(0, values.bytes);
  return values;
}

static brim_scene scene_of(const brim_env_row *row, const brim_env_values *values) {
  brim_scene scene;
  memset(&scene, 0, sizeof scene);
  row->scene(values->bytes, &scene);
  return scene;
}

static void test_all(void **state) {
  (void)state;
  for (size_t i = 0; brim_env_at(i); i++) {
    const brim_env_row *row = brim_env_at(i);
    const brim_env_values values = values_of(row);
    if (!row->scene) continue;
    const brim_scene scene = scene_of(row, &values);
    assert_ok(brim_scene_check(&scene, row->sizes(values.bytes).frame, row->name));
    brim_scene_line facts[BRIM_SCENE_MAX_LINES] = {0};
    size_t count = row->facts ? row->facts(values.bytes, facts) : 0;
    assert_true(count <= 4);
    for (size_t k = 0; k < count; k++) assert_true(facts[k].label && facts[k].text[0]);
  }
}

static const brim_scene_curve *curve_of(const brim_scene *scene, const char *key) {
  for (size_t i = 0; i < scene->curve_count; i++) {
    if (strcmp(scene->curves[i].key, key) == 0) return &scene->curves[i];
  }
  fail_msg("no curve '%s'", key);
  return NULL;
}

static void test_quadruped_tilt(void **state) {
  (void)state;
  const brim_env_values values = values_of(&brim_quadruped_row);
  const brim_scene scene = scene_of(&brim_quadruped_row, &values);
  const brim_scene_curve *tilt = curve_of(&scene, "tilt");
  float frame[BRIM_QUADRUPED_FRAME] = {0}, *q = frame + 3;
  q[0] = 1;
  assert_true(fabs(tilt->value(frame)) < 1e-6);
  q[0] = 0.70710678f, q[1] = 0.70710678f;  // on its side
  assert_true(fabs(tilt->value(frame) - 90) < 1e-3);
  q[0] = 0, q[1] = 0, q[2] = 2;  // upside down, not normalised
  assert_true(fabs(tilt->value(frame) - 180) < 1e-3);
  q[2] = 0, q[3] = 1;  // turned about the vertical axis
  assert_true(fabs(tilt->value(frame)) < 1e-3);
  q[3] = 0;
  assert_true(isnan(tilt->value(frame)));
  // 72.5 degrees: a standing robot has fallen; a walking one may lean this far
  assert_true(tilt->limit_count == 1 && fabs(tilt->limits[0] - 72.542) < 1e-3);
  brim_env_values walking = values;
  brim_quadruped robot = brim_quadruped_of(values.bytes);
  robot.task = BRIM_QUADRUPED_WALK;
  memcpy(walking.bytes, &robot, sizeof robot);
  const brim_scene walk = scene_of(&brim_quadruped_row, &walking);
  assert_int_equal(curve_of(&walk, "tilt")->limit_count, 0);
}

static void test_quadruped_figures(void **state) {
  (void)state;
  const brim_env_values values = values_of(&brim_quadruped_row);
  const brim_scene scene = scene_of(&brim_quadruped_row, &values);
  float frames[3][BRIM_QUADRUPED_FRAME] = {0};
  for (int i = 0; i < 3; i++) frames[i][2] = 0.5f + 0.1f * (float)i, frames[i][3] = 1;
  frames[1][15] = 3, frames[1][16] = 4;  // a push of 5 m/s
  const float reward[3] = {1, 2, 0};
  brim_scene_episode episode = {&scene, frames[0], reward, 3, BRIM_SCENE_ENDED, 0.1};
  brim_scene_line figures[BRIM_SCENE_MAX_LINES] = {0};
  char text[96];
  assert_int_equal(scene.figures(&episode, figures), 3);
  assert_string_equal(figures[0].text, "0.50 m");
  assert_string_equal(figures[2].key, "pushes");
  assert_true(figures[2].value == 1);
  assert_string_equal(figures[2].text, "1, up to 5.00 m/s");
  assert_true(brim_scene_sum(&episode) == 3);
  assert_true(brim_scene_event(&scene, 1, frames[1]) && !brim_scene_event(&scene, 1, frames[0]));
  scene.outcome(&episode, text, sizeof text);
  assert_string_equal(text, "fell at 0.10 s");
  episode.end = BRIM_SCENE_DIVERGED;
  scene.outcome(&episode, text, sizeof text);
  assert_string_equal(text, "the simulation diverged at 0.10 s");
}

static void test_cartpole_words(void **state) {
  (void)state;
  const brim_env_values values = values_of(&brim_cartpole_row);
  const brim_scene scene = scene_of(&brim_cartpole_row, &values);
  float frames[2][2] = {{0.1f, 0.02f}, {-0.3f, 0.2618f}};
  const float reward[2] = {1, 0};
  brim_scene_episode episode = {&scene, frames[0], reward, 2, BRIM_SCENE_ENDED, 0.02};
  brim_scene_line figures[BRIM_SCENE_MAX_LINES] = {0};
  char text[96];
  assert_int_equal(scene.figures(&episode, figures), 2);
  assert_string_equal(figures[0].text, "0.30 m");
  assert_string_equal(figures[1].text, "15.0\xc2\xb0");
  assert_true(fabs(curve_of(&scene, "angle")->value(frames[1]) - 15.0) < 1e-3);
  assert_true(fabs(curve_of(&scene, "angle")->limits[1] - 12) < 1e-9);
  scene.outcome(&episode, text, sizeof text);
  assert_string_equal(text, "fell at 0.02 s");
  frames[1][0] = -2.41f;
  scene.outcome(&episode, text, sizeof text);
  assert_string_equal(text, "left the track at 0.02 s");
  episode.end = BRIM_SCENE_LASTED;
  scene.outcome(&episode, text, sizeof text);
  assert_string_equal(text, "balanced for 0.02 s");
}

// Two states of a grid of 4 x 4 with 6 obstacles and 2 UAVs: 2 cells covered, then 5 of 10.
static void test_uav_words(void **state) {
  (void)state;
  for (int goals = 0; goals < 2; goals++) {
    brim_env_values values = values_of(&brim_uav_row);
    brim_uav_values v;
    memcpy(&v, values.bytes, sizeof v);
    v.size = 4, v.num_uavs = 2, v.num_obstacles = 6, v.crop = 3;
    v.task = goals ? BRIM_UAV_GOALS : BRIM_UAV_COVERAGE;
    memcpy(values.bytes, &v, sizeof v);
    const brim_scene scene = scene_of(&brim_uav_row, &values);
    const int32_t width = brim_uav_row.sizes(values.bytes).frame;
    assert_ok(brim_scene_check(&scene, width, "uav"));
    brim_uav_state s = {.time = 9, .found = 2};
    float frames[3 * 64] = {0};
    assert_in_range(width, 1, 64);
    brim_uav_frame(&v, &s, frames);
    s.found = 5, s.collisions = 3;
    brim_uav_frame(&v, &s, frames + width);
    brim_uav_frame(&v, &s, frames + 2 * width);
    const float reward[3] = {0.5f, -0.25f, 0};
    brim_scene_episode episode = {&scene, frames, reward, 3, BRIM_SCENE_LASTED, 2};
    brim_scene_line figures[BRIM_SCENE_MAX_LINES] = {0};
    char text[96];
    const size_t count = scene.figures(&episode, figures);
    assert_int_equal(count, goals ? 2 : 3);
    assert_string_equal(figures[0].text, goals ? "5" : "50.0 %");
    assert_true(figures[0].value == (goals ? 5 : 0.5));
    assert_string_equal(figures[count - 1].text, "3");
    if (!goals) assert_string_equal(figures[1].text, "50.0 %");
    assert_int_equal(curve_of(&scene, goals ? "goals" : "coverage")->column, goals ? 0 : 1);
    scene.outcome(&episode, text, sizeof text);
    assert_string_equal(text, goals ? "5 goals in 2 steps" : "covered 50.0 % in 2 steps");
    episode.end = BRIM_SCENE_ENDED;
    scene.outcome(&episode, text, sizeof text);
    assert_string_equal(text, goals ? "5 goals in 2 steps" : "covered all cells in 2 steps");
    // complete from there to step 200: (50 + 50 + 198 x 100)
    // 200
    (void)scene.figures(&episode, figures);
    if (!goals) assert_string_equal(figures[1].text, "99.5 %");
    assert_true(scene.plain[BRIM_SCENE_LASTED] && !scene.plain[BRIM_SCENE_ENDED]);
  }
}

static void refused(const brim_scene *scene, int32_t frame, const char *why) {
  assert_status(brim_scene_check(scene, frame, "mine"), BRIM_EABI);
  if (!strstr(brim_status_detail(), why)) fail_msg("not '%s': %s", why, brim_status_detail());
}

static void test_refused(void **state) {
  (void)state;
  const brim_env_values values = values_of(&brim_cartpole_row);
  const brim_scene sound = scene_of(&brim_cartpole_row, &values);
  brim_scene s = sound;
  refused(&s, 3, "its scene has 2 numbers, but a frame has 3");
  s.kind = "../secret";
  refused(&s, 2, "its kind is no word");
  s = sound, s.part_count = 0;
  refused(&s, 2, "no parts");
  s = sound, s.parts[0].columns = 0;
  refused(&s, 2, "no columns");
  s = sound, s.parts[0].when = BRIM_SCENE_EVENTS;
  refused(&s, 2, "events have no label");
  s.parts[0].label = "bump";
  refused(&s, 2, "a column that is not of every frame");
  s = sound, s.curves[0].column = 2;
  refused(&s, 2, "a column that is not of every frame");
  s = sound, s.curves[0].column = -1;
  refused(&s, 2, "a column that is not of every frame");
  s = sound, s.ends[BRIM_SCENE_ENDED] = NULL;
  refused(&s, 2, "an end has no name");
  s = sound, s.outcome = NULL;
  refused(&s, 2, "no `outcome`");
  s = sound, s.numbers[0].value = NAN;
  refused(&s, 2, "a number is not finite");
  s = sound, s.curve_count = BRIM_SCENE_MAX_CURVES + 1;
  refused(&s, 2, "too many curves");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all),
      cmocka_unit_test(test_quadruped_tilt),
      cmocka_unit_test(test_quadruped_figures),
      cmocka_unit_test(test_cartpole_words),
      cmocka_unit_test(test_uav_words),
      cmocka_unit_test(test_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
