// Trajectories: the compact JSON read back by the test's own decoder, and the parts that are cut off.
#include <math.h>

#include "record/record_trajectory.h"
#include "test.h"

enum { NQ = 15, WIDTH = NQ + 3 };

static double doubled(const float *frame) {
  return frame[0] < 0 ? (double)NAN : 2 * (double)frame[2];
}

// The quadruped's scene, shortened.
static const brim_scene scene = {
    .kind = "robot",
    .parts = {{.key = "qpos", .columns = NQ},
              {.key = "pushes", .columns = 3, .when = BRIM_SCENE_EVENTS, .label = "push"}},
    .part_count = 2,
    .curves = {{.key = "doubled", .title = "", .value = doubled}},
    .curve_count = 1,
    .ends = {"lasted", "fell", "diverged"},
};

static float *qpos_at(brim_trajectory *t, int64_t i) { return t->state + i * WIDTH; }
static float *push_at(brim_trajectory *t, int64_t i) { return t->state + i * WIDTH + NQ; }

static void make(brim_trajectory *t, int64_t frames) {
  assert_ok(brim_trajectory_init(t, "policy", &scene, 0.05, frames));
  t->frames = frames;
  for (int64_t i = 0; i < frames; i++) {
    float *q = qpos_at(t, i);
    q[0] = (float)i * 0.731f;  // goes beyond 16 bits of 1e-4
    q[1] = -(float)i * 0.013f;
    q[2] = 0.55f + 0.01f * sinf((float)i);
    q[3] = 1;
    for (int k = 7; k < NQ; k++) q[k] = sinf((float)i * 0.1f + (float)k);
    t->reward[i] = 1 - 0.001f * (float)i;
  }
}

//---------------------------------- decoding ----------------------------------

static size_t base64(const char *text, unsigned char *out) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  size_t n = 0;
  assert_int_equal(strlen(text) % 4, 0);
  for (; *text; text += 4) {
    uint32_t bits = 0;
    int have = 0;
    for (int i = 0; i < 4; i++) {
      const char *at = text[i] == '=' ? NULL : strchr(digits, text[i]);
      bits = bits << 6 | (at ? (uint32_t)(at - digits) : 0);
      have += at != NULL;
    }
    for (int i = 0; i < have - 1; i++) out[n++] = (unsigned char)(bits >> (16 - 8 * i));
  }
  return n;
}

// Reads all numbers of a text; asserts that there are exactly this many.
static void decode(const char *text, int64_t rows, int columns, double *out) {
  unsigned char *bytes = brim_alloc(strlen(text) + 4);
  assert_non_null(bytes);
  size_t size = base64(text, bytes), at = 0;
  double before[400] = {0};
  for (int64_t i = 0; i < rows * columns; i++) {
    uint64_t value = 0;
    int shift = 0;
    do {
      assert_true(at < size);
      value |= (uint64_t)(bytes[at] & 127) << shift;
      shift += 7;
    } while (bytes[at++] & 128);
    int64_t step = value % 2 ? -(int64_t)(value / 2) - 1 : (int64_t)(value / 2);
    before[i % columns] += (double)step;
    out[i] = before[i % columns] * 1e-4;
  }
  assert_int_equal(at, size);
  brim_free(bytes);
}

static const char *text_of(const json_t *root, const char *key) {
  const char *text = json_string_value(json_object_get(root, key));
  if (!text) fail_msg("no text '%s'", key);
  return text;
}

static void check_column(const json_t *root, const char *key, const float *values, int64_t rows,
                         int columns, int stride) {
  double *out = brim_calloc((size_t)(rows * columns) + 1, sizeof *out);
  assert_non_null(out);
  decode(text_of(root, key), rows, columns, out);
  for (int64_t i = 0; i < rows * columns; i++) {
    double value = (double)values[i / columns * stride + i % columns];
    if (fabs(out[i] - value) > 0.50001e-4) {
      fail_msg("%s[%lld] is %g, not %g", key, (long long)i, out[i], value);
    }
  }
  brim_free(out);
}

static void test_json(void **state) {
  (void)state;
  brim_trajectory t;
  json_t *root;
  char *text;
  make(&t, 1001);
  push_at(&t, 300)[0] = 1.5f;
  push_at(&t, 300)[2] = -0.25f;
  qpos_at(&t, 500)[0] = -99999.0f;  // differences beyond 31 bits
  qpos_at(&t, 501)[0] = 99999.0f;
  t.end = BRIM_SCENE_ENDED;
  assert_ok(brim_trajectory_finish(&t));
  assert_int_equal(t.frames, 1001);
  assert_ok(brim_trajectory_to_json(&t, &root));
  assert_string_equal(text_of(root, "schema"), "brim.trajectory/1");
  assert_string_equal(text_of(root, "label"), "policy");
  assert_string_equal(text_of(root, "outcome"), "fell");
  assert_int_equal(json_integer_value(json_object_get(root, "frames")), 1001);
  check_column(root, "qpos", t.state, 1001, NQ, WIDTH);
  check_column(root, "reward", t.reward, 1000, 1, 1);
  const json_t *pushes = json_object_get(root, "pushes"), *push = json_array_get(pushes, 0);
  assert_int_equal(json_array_size(pushes), 1);
  assert_int_equal(json_integer_value(json_array_get(push, 0)), 300);
  assert_true(fabs(json_number_value(json_array_get(push, 1)) - 1.5) < 1e-9);
  assert_true(fabs(json_number_value(json_array_get(push, 3)) + 0.25) < 1e-9);
  assert_ok(brim_json_dump(root, 0, &text));
  assert_true(strlen(text) < 64 << 10);
  brim_free(text);
  json_decref(root);
  brim_trajectory_deinit(&t);
}

// A single state has no step and no reward.
static void test_single(void **state) {
  (void)state;
  brim_trajectory t;
  json_t *root;
  make(&t, 1);
  t.reward[0] = NAN;  // the last frame has none, whatever the array holds
  assert_ok(brim_trajectory_finish(&t));
  assert_int_equal(t.end, BRIM_SCENE_LASTED);
  assert_true(brim_trajectory_seconds(&t) == 0 && brim_trajectory_sum(&t) == 0);
  assert_ok(brim_trajectory_to_json(&t, &root));
  assert_string_equal(text_of(root, "reward"), "");
  check_column(root, "qpos", t.state, 1, NQ, WIDTH);
  json_decref(root);
  brim_trajectory_deinit(&t);
}

static void test_cut(void **state) {
  (void)state;
  brim_trajectory t;
  make(&t, 20);
  qpos_at(&t, 12)[9] = NAN;
  assert_ok(brim_trajectory_finish(&t));
  assert_int_equal(t.frames, 12);
  assert_int_equal(t.end, BRIM_SCENE_DIVERGED);
  t.reward[4] = INFINITY;  // the step to frame 5
  assert_ok(brim_trajectory_finish(&t));
  assert_int_equal(t.frames, 5);
  qpos_at(&t, 3)[0] = 2e5f;
  assert_ok(brim_trajectory_finish(&t));
  assert_int_equal(t.frames, 3);
  push_at(&t, 0)[1] = NAN;
  assert_status(brim_trajectory_finish(&t), BRIM_EINVAL);
  brim_trajectory_deinit(&t);
  assert_status(brim_trajectory_init(&t, "x", &scene, 0.05, 0), BRIM_EINVAL);
  assert_status(brim_trajectory_init(&t, "x", &scene, NAN, 5), BRIM_EINVAL);
}

static void test_figures(void **state) {
  (void)state;
  brim_trajectory t;
  make(&t, 5);
  assert_true(fabs(brim_trajectory_seconds(&t) - 0.2) < 1e-9);
  assert_true(fabs(brim_trajectory_sum(&t) - (4 - 0.006)) < 1e-5);
  const brim_scene_episode episode = brim_trajectory_episode(&t);
  assert_true(episode.scene == &scene && episode.states == 5 && episode.frames == t.state);
  assert_true(fabs(episode.seconds - 0.2) < 1e-9);
  brim_trajectory_deinit(&t);
}

// A curve that the scene computes; unknown values stay distinct from all others.
static void test_curve(void **state) {
  (void)state;
  brim_trajectory t;
  brim_str text;
  double out[20];
  make(&t, 20);
  qpos_at(&t, 7)[0] = -1;
  brim_str_init(&text);
  assert_ok(brim_trajectory_curve(&t, &scene.curves[0], &text));
  decode(text.data, 20, 1, out);
  for (int i = 0; i < 20; i++) {
    double value = i == 7 ? 2e5 : 2 * (double)qpos_at(&t, i)[2];
    assert_true(fabs(out[i] - value) < 0.50001e-4);
  }
  brim_str_deinit(&text);
  brim_trajectory_deinit(&t);
}

// A map of integers that does not change, and more columns than a robot has.
static void test_parts(void **state) {
  (void)state;
  enum { CELLS = 400, ALL = CELLS + 2 };
  static const brim_scene map = {
      .kind = "map",
      .parts = {{.key = "cells", .columns = CELLS, .when = BRIM_SCENE_FIRST, .scale = 1},
                {.key = "place", .columns = 2, .scale = 0.5}},
      .part_count = 2,
      .ends = {"lasted", "ended", "diverged"},
  };
  brim_trajectory t;
  json_t *root;
  double *out = brim_calloc(CELLS, sizeof *out);
  assert_non_null(out);
  assert_ok(brim_trajectory_init(&t, "x", &map, 1, 3));
  t.frames = 3;
  assert_int_equal(t.width, ALL);
  for (int64_t i = 0; i < 3; i++) {
    for (int k = 0; k < CELLS; k++) t.state[i * ALL + k] = (float)(k % 7);
    t.state[i * ALL + CELLS] = 0.5f * (float)i;
    t.state[i * ALL + CELLS + 1] = -1;
  }
  assert_ok(brim_trajectory_finish(&t));
  assert_ok(brim_trajectory_to_json(&t, &root));
  decode(text_of(root, "cells"), 1, CELLS, out);
  for (int k = 0; k < CELLS; k++) assert_int_equal(llround(out[k] / 1e-4), k % 7);
  decode(text_of(root, "place"), 3, 2, out);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(llround(out[2 * i] / 1e-4), i);
    assert_int_equal(llround(out[2 * i + 1] / 1e-4), -2);
  }
  json_decref(root);
  brim_free(out);
  brim_trajectory_deinit(&t);
}

static void test_memory(void **state) {
  (void)state;
  for (uint64_t n = 1; n < 200; n++) {
    brim_trajectory t;
    json_t *root = NULL;
    brim_alloc_fail_nth(n, false);
    brim_status status = brim_trajectory_init(&t, "x", &scene, 0.05, 50);
    t.frames = status ? 0 : 50;
    if (!status) push_at(&t, 1)[0] = 1;
    if (!status) status = brim_trajectory_to_json(&t, &root);
    brim_alloc_fail_nth(0, false);
    json_decref(root);
    brim_trajectory_deinit(&t);
    if (!status) return;
    assert_int_equal(status, BRIM_ENOMEM);
  }
  fail_msg("it never got through");
}

int main(void) {
  brim_json_own_memory();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_json),    cmocka_unit_test(test_single), cmocka_unit_test(test_cut),
      cmocka_unit_test(test_figures), cmocka_unit_test(test_curve),  cmocka_unit_test(test_parts),
      cmocka_unit_test(test_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
