// Scores against values computed by hand, and a checkpoint's description of its network.
#include <math.h>

#include "engine/engine.h"
#include "test.h"
#include "workload/learn/learn_scores.h"

static void assert_near(double a, double b, double within) {
  if (!(fabs(a - b) <= within)) fail_msg("%.17g and %.17g differ by more than %g", a, b, within);
}

//---------------------------------- scores ----------------------------------

// Truth and prediction: 0>0, 0>1, 1>1, 2>1, 2>2, and a row whose output is NaN (truth 2).
static void test_classes(void **state) {
  (void)state;
  const float outputs[] = {3, 1, 0, 0, 2, 1, 0, 5, 1, 1, 2, 0, 0, 0, 9, NAN, 0, 1};
  const int32_t label[] = {0, 0, 1, 2, 2, 2};
  const brim_trained_rows rows = {.rows = 6, .outputs = outputs, .label = label};
  brim_scores *s;
  brim_scores_summary sum;
  brim_class_score c;
  assert_ok(brim_scores_create(BRIM_TASK_CLASSES, 3, &s));
  brim_scores_add(s, &rows);
  brim_scores_get(s, &sum);
  assert_int_equal(sum.rows, 6);
  assert_int_equal(sum.bad, 1);
  assert_near(sum.accuracy, 3.0 / 6, 1e-12);
  assert_true(isnan(sum.top5));
  assert_true(isnan(sum.mse) && isnan(sum.r2));
  brim_scores_class(s, 1, &c);  // predicted three times, right once
  assert_int_equal(c.support, 1);
  assert_int_equal(c.predicted, 3);
  assert_near(c.precision, 1.0 / 3, 1e-12);
  assert_near(c.recall, 1, 1e-12);
  assert_near(c.f1, 0.5, 1e-12);
  brim_scores_class(s, 2, &c);
  assert_near(c.precision, 1, 1e-12);
  assert_near(c.recall, 1.0 / 3, 1e-12);
  double f0 = 2.0 / 3, f1 = 0.5, f2 = 0.5;
  assert_near(sum.macro_f1, (f0 + f1 + f2) / 3, 1e-12);
  assert_near(sum.weighted_f1, (2 * f0 + f1 + 3 * f2) / 6, 1e-12);
  assert_int_equal(brim_scores_matrix(s, 2, 1), 1);
  assert_int_equal(brim_scores_matrix(s, 0, 0), 1);
  assert_int_equal(brim_scores_matrix(s, 1, 0), 0);
  brim_scores_destroy(s);
}

// A class without samples and predictions is unknown and left out of every mean; one that is only predicted has a score
// of 0.
static void test_absent_classes(void **state) {
  (void)state;
  const float outputs[] = {1, 0, 0, 0, 0, 2, 0, 0};
  const int32_t label[] = {0, 1};
  const brim_trained_rows rows = {.rows = 2, .outputs = outputs, .label = label};
  brim_scores *s;
  brim_scores_summary sum;
  brim_class_score c;
  assert_ok(brim_scores_create(BRIM_TASK_CLASSES, 4, &s));
  brim_scores_get(s, &sum);
  assert_true(isnan(sum.accuracy) && isnan(sum.macro_f1));
  brim_scores_add(s, &rows);
  brim_scores_get(s, &sum);
  assert_near(sum.macro_f1, 1, 1e-12);
  brim_scores_class(s, 3, &c);
  assert_true(isnan(c.precision) && isnan(c.recall) && isnan(c.f1));
  const float wrong[] = {0, 0, 3, 0};
  const brim_trained_rows more = {.rows = 1, .outputs = wrong, .label = label};
  brim_scores_add(s, &more);
  brim_scores_class(s, 2, &c);
  assert_true(c.precision == 0 && c.f1 == 0 && isnan(c.recall));
  const int32_t unknown = -1;
  const brim_trained_rows none = {.rows = 1, .outputs = wrong, .label = &unknown};
  brim_scores_add(s, &none);
  brim_scores_get(s, &sum);
  assert_int_equal(sum.rows, 3);
  brim_scores_destroy(s);
}

static void test_top5(void **state) {
  (void)state;
  const float outputs[] = {7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0};
  const int32_t label[] = {4, 5};  // the truth is fifth; sixth among equal outputs
  const brim_trained_rows rows = {.rows = 2, .outputs = outputs, .label = label};
  brim_scores *s;
  brim_scores_summary sum;
  assert_ok(brim_scores_create(BRIM_TASK_CLASSES, 7, &s));
  brim_scores_add(s, &rows);
  brim_scores_get(s, &sum);
  assert_near(sum.top5, 0.5, 1e-12);
  brim_scores_destroy(s);
}

static void test_values(void **state) {
  (void)state;
  const float outputs[] = {1, 10, 2, 10, 4, 10}, target[] = {1, 9, 3, 9, 5, 9};
  const brim_trained_rows rows = {.rows = 3, .outputs = outputs, .target = target};
  brim_scores *s;
  brim_scores_summary sum;
  brim_value_score v;
  assert_ok(brim_scores_create(BRIM_TASK_VALUES, 2, &s));
  brim_scores_add(s, &rows);
  brim_scores_value(s, 0, &v);
  assert_near(v.mse, 2.0 / 3, 1e-12);
  assert_near(v.mae, 2.0 / 3, 1e-12);
  assert_near(v.r2, 1 - 2.0 / 8, 1e-12);
  brim_scores_value(s, 1, &v);  // constant targets
  assert_near(v.mse, 1, 1e-12);
  assert_true(isnan(v.r2));
  brim_scores_get(s, &sum);
  assert_near(sum.mse, (2.0 / 3 + 1) / 2, 1e-12);
  assert_true(isnan(sum.r2) && isnan(sum.accuracy));
  brim_scores_destroy(s);
}

// Each label counts separately.
static void test_labels(void **state) {
  (void)state;
  const float outputs[] = {1, -1, 2, 3, -1, -2, 4, 5}, target[] = {1, 0, 1, 0, 0, 0, 1, 1};
  const brim_trained_rows rows = {.rows = 4, .outputs = outputs, .target = target};
  brim_scores *s;
  brim_scores_summary sum;
  brim_class_score c;
  assert_ok(brim_scores_create(BRIM_TASK_LABELS, 2, &s));
  brim_scores_add(s, &rows);
  brim_scores_get(s, &sum);
  assert_near(sum.accuracy, 7.0 / 8, 1e-12);
  brim_scores_class(s, 1, &c);  // right once, wrong once
  assert_near(c.precision, 0.5, 1e-12);
  assert_near(c.recall, 1, 1e-12);
  assert_near(sum.macro_f1, (1 + 2.0 / 3) / 2, 1e-12);
  assert_near(sum.weighted_f1, (3 * 1 + 1 * (2.0 / 3)) / 4, 1e-12);
  assert_true(isnan(sum.mse) && isnan(sum.top5));
  assert_false(brim_scores_has_matrix(s));
  brim_scores_destroy(s);
}

static void test_probability(void **state) {
  (void)state;
  const float outputs[] = {1000, 1000, -1000};
  float p, all[3];
  assert_int_equal(brim_scores_argmax(outputs, 3, &p), 0);
  assert_true(p == 0.5f);
  brim_scores_softmax(outputs, 3, all);
  assert_true(all[0] == 0.5f && all[1] == 0.5f && all[2] == 0);
  const float bad[] = {1, NAN};
  assert_int_equal(brim_scores_argmax(bad, 2, &p), -1);
  assert_true(isnan(p));
}

//---------------------------------- checkpoints ----------------------------------

static void write_checkpoint(const char *path, const char *network, const char *settings) {
  const float one = 1;
  const brim_safetensors_entry entry = {
      .name = "ema.weight", .dtype = BRIM_F32, .rank = 1, .dim = {1}, .data = &one, .bytes = 4};
  json_t *meta = json_object();
  assert_ok(brim_json_put(meta, "brim.step", json_string("12")));
  if (network) assert_ok(brim_json_put(meta, "brim.network", json_string(network)));
  if (settings) assert_ok(brim_json_put(meta, "brim.settings", json_string(settings)));
  assert_ok(brim_safetensors_write(path, &entry, 1, meta));
  json_decref(meta);
}

static void test_round_trip(void **state) {
  (void)state;
  static const char *const names[] = {"cat", "d\"og"};
  const brim_net_spec spec = {.input_dtype = BRIM_U8,
                              .input_rank = 3,
                              .input_dim = {4, 5, 3},
                              .channels = 3,
                              .scale = {1.0f / 255, 0.1f, 3},
                              .shift = {-0.3f, 0, 1e-9f}};
  json_t *meta = json_object();
  assert_ok(brim_trained_put_network(&spec, BRIM_TASK_CLASSES, 2, names, meta));
  write_checkpoint("a.safetensors", json_string_value(json_object_get(meta, "brim.network")),
                   "{\"model\": \"mlp(depth=1)\", \"data.batch_size\": 7, \"later.key\": 1}");
  json_decref(meta);
  brim_trained *t;
  assert_ok(brim_trained_open("a.safetensors", &t));
  assert_true(t->has_network && t->has_ema);
  assert_int_equal(t->step, 12);
  assert_int_equal(t->epoch, -1);
  assert_int_equal(t->task, BRIM_TASK_CLASSES);
  assert_int_equal(t->outputs, 2);
  assert_string_equal(t->class_names[1], "d\"og");
  assert_memory_equal(t->input_dim, spec.input_dim, sizeof t->input_dim);
  assert_memory_equal(t->scale, spec.scale, 3 * sizeof(float));
  assert_memory_equal(t->shift, spec.shift, 3 * sizeof(float));
  brim_str text;
  brim_str_init(&text);
  assert_ok(brim_trained_config_text(t, &text));
  const brim_config_options options = {.text = text.data, .text_name = "a.safetensors"};
  brim_config *config;
  assert_ok(brim_config_load(&options, &config));
  assert_int_equal(brim_config_int(config, "data.batch_size"), 7);
  assert_string_equal(brim_config_component(config, "model", NULL)->name, "mlp");
  brim_config_close(config);
  brim_str_deinit(&text);
  brim_trained_close(t);
}

// Damaged metadata gives a message, never a network of that shape.
static void test_hostile(void **state) {
  (void)state;
  static const char *const networks[] = {
      "[]",
      "{\"input\": 3, \"task\": \"classes\", \"outputs\": 2}",
      "{\"input\": {\"type\": \"u8\", \"shape\": [], \"scale\": [1], \"shift\": [0]}}",
      "{\"input\": {\"type\": \"u8\", \"shape\": [4000000, 4000000], \"scale\": [1], \"shift\": "
      "[0]}, \"task\": \"classes\", \"outputs\": 2}",
      "{\"input\": {\"type\": \"u8\", \"shape\": [4], \"scale\": [1, 1, 1], \"shift\": [0]}, "
      "\"task\": \"classes\", \"outputs\": 2}",
      "{\"input\": {\"type\": \"u8\", \"shape\": [4], \"scale\": [1], \"shift\": [0]}, "
      "\"task\": \"dreams\", \"outputs\": 2}",
      "{\"input\": {\"type\": \"u8\", \"shape\": [4], \"scale\": [1], \"shift\": [0]}, "
      "\"task\": \"classes\", \"outputs\": -2}",
      "{\"input\": {\"type\": \"u8\", \"shape\": [4], \"scale\": [1], \"shift\": [0]}, "
      "\"task\": \"classes\", \"outputs\": 2, \"class_names\": [\"one\"]}",
      "{\"input\": {\"type\": \"u8\", \"shape\": [4], \"scale\": [1], \"shift\": [0]}, "
      "\"task\": \"classes\", \"outputs\": 2, \"class_names\": [\"one\", 2]}",
      "{\"input\": {\"type\": \"u8\", \"shape\": [4, 4, 3], \"eval_shape\": [8, 8, 1], \"scale\": "
      "[1], \"shift\": [0]}, \"task\": \"classes\", \"outputs\": 2}",
      "{\"input\": {\"type\": \"u8\", \"shape\": [4, 4, 3], \"eval_shape\": [], \"scale\": "
      "[1], \"shift\": [0]}, \"task\": \"classes\", \"outputs\": 2}",
      "{",
  };
  for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) {
    brim_trained *t = NULL;
    write_checkpoint("bad.safetensors", networks[i], NULL);
    assert_status(brim_trained_open("bad.safetensors", &t), BRIM_EPARSE);
    assert_null(t);
    assert_non_null(strstr(brim_status_detail(), "bad.safetensors"));
  }
}

static void test_without(void **state) {
  (void)state;
  brim_trained *t;
  brim_str text;
  brim_str_init(&text);
  write_checkpoint("old.safetensors", NULL, NULL);
  assert_ok(brim_trained_open("old.safetensors", &t));
  assert_false(t->has_network);
  assert_status(brim_trained_config_text(t, &text), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "--config"));
  brim_trained_close(t);
  brim_str_deinit(&text);
  assert_status(brim_trained_open("none.safetensors", &t), BRIM_ENOENT);
  assert_status(brim_trained_open(".", &t), BRIM_EINVAL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_classes),    cmocka_unit_test(test_absent_classes),
      cmocka_unit_test(test_top5),       cmocka_unit_test(test_values),
      cmocka_unit_test(test_labels),     cmocka_unit_test(test_probability),
      cmocka_unit_test(test_round_trip), cmocka_unit_test(test_hostile),
      cmocka_unit_test(test_without),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
