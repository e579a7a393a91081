// Trajectories: the compact JSON read back by a decoder of the test's own, what is cut off, and the
// figures of a frame.
#include <math.h>

#include "record/record_trajectory.h"
#include "test.h"

enum { NQ = BRIM_TRAJECTORY_QPOS };

static void make(brim_trajectory *t, int64_t frames) {
  assert_ok(brim_trajectory_init(t, "policy", 0.05, frames));
  t->frames = frames;
  for (int64_t i = 0; i < frames; i++) {
    float *q = t->qpos + i * NQ;
    q[0] = (float)i * 0.731f;  // walks further than 16 bits of 1e-4 reach
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

// All numbers of a text; checks that it holds exactly so many.
static void decode(const char *text, int64_t rows, int columns, double *out) {
  unsigned char *bytes = brim_alloc(strlen(text) + 4);
  assert_non_null(bytes);
  size_t size = base64(text, bytes), at = 0;
  double before[NQ] = {0};
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
                         int columns) {
  double *out = brim_calloc((size_t)(rows * columns) + 1, sizeof *out);
  assert_non_null(out);
  decode(text_of(root, key), rows, columns, out);
  for (int64_t i = 0; i < rows * columns; i++) {
    if (fabs(out[i] - (double)values[i]) > 0.50001e-4) {
      fail_msg("%s[%lld] is %g, not %g", key, (long long)i, out[i], (double)values[i]);
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
  t.push[300 * 3] = 1.5f;
  t.push[300 * 3 + 2] = -0.25f;
  t.qpos[500 * NQ] = -99999.0f;  // differences beyond 31 bits
  t.qpos[501 * NQ] = 99999.0f;
  t.outcome = BRIM_TRAJECTORY_FELL;
  assert_ok(brim_trajectory_finish(&t));
  assert_int_equal(t.frames, 1001);
  assert_ok(brim_trajectory_to_json(&t, &root));
  assert_string_equal(text_of(root, "schema"), "brim.trajectory/1");
  assert_string_equal(text_of(root, "label"), "policy");
  assert_string_equal(text_of(root, "outcome"), "fell");
  assert_int_equal(json_integer_value(json_object_get(root, "frames")), 1001);
  check_column(root, "qpos", t.qpos, 1001, NQ);
  check_column(root, "reward", t.reward, 1000, 1);
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

// One state alone has no step and no reward.
static void test_single(void **state) {
  (void)state;
  brim_trajectory t;
  json_t *root;
  make(&t, 1);
  t.reward[0] = NAN;  // there is none of the last frame, whatever stands there
  assert_ok(brim_trajectory_finish(&t));
  assert_int_equal(t.outcome, BRIM_TRAJECTORY_LASTED);
  assert_true(brim_trajectory_seconds(&t) == 0 && brim_trajectory_return(&t) == 0);
  assert_ok(brim_trajectory_to_json(&t, &root));
  assert_string_equal(text_of(root, "reward"), "");
  check_column(root, "qpos", t.qpos, 1, NQ);
  json_decref(root);
  brim_trajectory_deinit(&t);
}

static void test_cut(void **state) {
  (void)state;
  brim_trajectory t;
  make(&t, 20);
  t.qpos[12 * NQ + 9] = NAN;
  assert_ok(brim_trajectory_finish(&t));
  assert_int_equal(t.frames, 12);
  assert_int_equal(t.outcome, BRIM_TRAJECTORY_DIVERGED);
  t.reward[4] = INFINITY;  // the step to frame 5
  assert_ok(brim_trajectory_finish(&t));
  assert_int_equal(t.frames, 5);
  t.qpos[3 * NQ] = 2e5f;
  assert_ok(brim_trajectory_finish(&t));
  assert_int_equal(t.frames, 3);
  t.push[1] = NAN;
  assert_status(brim_trajectory_finish(&t), BRIM_EINVAL);
  brim_trajectory_deinit(&t);
  assert_status(brim_trajectory_init(&t, "x", 0.05, 0), BRIM_EINVAL);
  assert_status(brim_trajectory_init(&t, "x", NAN, 5), BRIM_EINVAL);
  assert_string_equal(brim_trajectory_outcome_name((brim_trajectory_outcome)9), "?");
}

static void test_figures(void **state) {
  (void)state;
  brim_trajectory t;
  make(&t, 5);
  float *q = t.qpos + NQ + 3;
  assert_true(fabs(brim_trajectory_tilt(&t, 0)) < 1e-6);
  q[0] = 0.70710678f, q[1] = 0.70710678f;  // on its side
  assert_true(fabs(brim_trajectory_tilt(&t, 1) - 90) < 1e-3);
  q[0] = 0, q[1] = 0, q[2] = 2;  // upside down, not normalised
  assert_true(fabs(brim_trajectory_tilt(&t, 1) - 180) < 1e-3);
  q[2] = 0, q[3] = 1;  // turned about the upright
  assert_true(fabs(brim_trajectory_tilt(&t, 1)) < 1e-3);
  q[3] = 0;
  assert_true(isnan(brim_trajectory_tilt(&t, 1)));
  t.push[6] = 3, t.push[7] = 4;
  assert_true(fabs(brim_trajectory_push(&t, 2) - 5) < 1e-6);
  assert_true(fabs(brim_trajectory_seconds(&t) - 0.2) < 1e-9);
  assert_true(fabs(brim_trajectory_return(&t) - (4 - 0.006)) < 1e-5);
  brim_trajectory_deinit(&t);
}

static void test_memory(void **state) {
  (void)state;
  for (uint64_t n = 1; n < 200; n++) {
    brim_trajectory t;
    json_t *root = NULL;
    brim_alloc_fail_nth(n, false);
    brim_status status = brim_trajectory_init(&t, "x", 0.05, 50);
    t.frames = status ? 0 : 50;
    if (!status) t.push[3] = 1;
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
      cmocka_unit_test(test_figures), cmocka_unit_test(test_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
