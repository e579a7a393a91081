// Losses are rows: one that exists only here trains, is checked against its data and proposed for a mistyped name,
// although the engine has no line about it.
#include "engine_test.h"

static brim_status read_firm(const brim_component *c, brim_op_attr *attr) {
  attr->label_smoothing = (float)(1 - brim_component_float(c, "firmness", 1));
  return BRIM_OK;
}

static brim_status read_pair(const brim_component *c, brim_op_attr *attr) {
  (void)c;
  attr->temperature = 0.2f;
  return BRIM_OK;
}

static const brim_loss_row rows[] = {
    {.name = "firm_entropy",
     .op = BRIM_OP_XENT,
     .target = BRIM_LOSS_LABELS,
     .views = 1,
     .metrics = 1 << BRIM_METRIC_LOSS,
     .args = {"firmness"},
     .read = read_firm},
    {.name = "squares", .op = BRIM_OP_MSE, .target = BRIM_LOSS_VALUES, .views = 1},
    {.name = "pairs",
     .op = BRIM_OP_NTXENT,
     .target = BRIM_LOSS_NONE,
     .views = 2,
     .any_width = true,
     .read = read_pair},
    {.name = "mistaken", .op = BRIM_OP_XENT, .target = BRIM_LOSS_VALUES, .views = 1},
    {.name = NULL},
};

static float *trained(brim_device *device, const test_spec *t, brim_net_metrics *m, size_t *count) {
  brim_net *net;
  test_batch b;
  test_batch_make(&t->spec, 16, 5, &b);
  assert_ok(brim_net_create(device, &t->spec, &net));
  int64_t views = t->spec.views > 1 ? t->spec.views : 1, size = t->spec.batch * views;
  for (int64_t step = 1; step <= 4; step++) {
    brim_net_micro micro = {.batch = test_batch_at(&t->spec, &b, step, size),
                            .step = step,
                            .step_rows = size,
                            .first = true};
    if (views == 2) micro.batch.target = NULL;
    assert_ok(brim_net_step(net, &micro, 0.1, NULL));
  }
  assert_ok(brim_net_read_metrics(net, true, m));
  float *params = test_params(net, count);
  brim_net_destroy(net);
  test_batch_free(&b);
  return params;
}

// The row `name` of this file equals `t`.
static void same_as(brim_device *device, test_spec *t, const char *name, const char *arg,
                    double value) {
  brim_net_metrics own, other;
  size_t count, n;
  float *expected = trained(device, t, &own, &count);
  test_component_init(&t->loss, name);
  if (arg) test_component_float(&t->loss, arg, value);
  t->spec.losses = rows;
  float *params = trained(device, t, &other, &n);
  assert_int_equal(n, count);
  assert_memory_equal(params, expected, n * sizeof *params);
  assert_true(own.loss_sum == other.loss_sum && own.rows == other.rows && own.rows > 0);
  free(expected);
  free(params);
}

static void test_rows(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t;
  test_spec_init(&t);
  test_component_float(&t.loss, "label_smoothing", 0.25);
  same_as(device, &t, "firm_entropy", "firmness", 0.75);
  test_spec_init(&t);
  test_spec_mse(&t, 4);
  same_as(device, &t, "squares", NULL, 0);
  test_spec_init(&t);
  test_component_init(&t.loss, "ntxent");
  test_component_float(&t.loss, "temperature", (double)0.2f);
  t.spec.classes = 0;
  t.spec.target_dim = 3;
  t.spec.views = 2;
  same_as(device, &t, "pairs", NULL, 0);
  test_device_close(device);
}

static void test_metrics(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  static const struct {
    const char *name;
    bool values;
    uint32_t metrics;
  } cases[] = {
      {"cross_entropy", false, 1 << BRIM_METRIC_LOSS | 1 << BRIM_METRIC_CORRECT},
      {"mse", true, 1 << BRIM_METRIC_LOSS},
      {"firm_entropy", false, 1 << BRIM_METRIC_LOSS},
      {"squares", true, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    test_spec t;
    brim_net *net;
    test_spec_init(&t);
    if (cases[i].values) test_spec_mse(&t, 2);
    test_component_init(&t.loss, cases[i].name);
    t.spec.losses = rows;
    assert_ok(brim_net_create(device, &t.spec, &net));
    const uint32_t looked = 1 << BRIM_METRIC_LOSS | 1 << BRIM_METRIC_CORRECT;
    assert_int_equal(brim_net_loss_metrics(net) & looked, cases[i].metrics);
    brim_net_destroy(net);
  }
  test_device_close(device);
}

static void refused(brim_device *device, const test_spec *t, const char *text) {
  brim_plan plan = {0};
  assert_int_equal(brim_net_plan(device, &t->spec, &plan), BRIM_EINVAL);
  if (!strstr(brim_status_detail(), text)) fail_msg("%s", brim_status_detail());
}

static void test_refused(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t;
  test_spec_init(&t);
  t.spec.losses = rows;
  test_component_init(&t.loss, "firm_entropi");
  refused(device, &t, "did you mean 'firm_entropy'?");
  test_component_init(&t.loss, "cross_entropi");
  refused(device, &t, "did you mean 'cross_entropy'?");
  test_component_init(&t.loss, "firm_entropy");
  test_component_float(&t.loss, "firmnes", 1);
  refused(device, &t, "did you mean 'firmness'?");
  test_component_init(&t.loss, "squares");
  refused(device, &t, "squares needs float targets, but the data has labels; use cross_entropy");
  test_component_init(&t.loss, "pairs");
  refused(device, &t, "pairs compares two views of each sample, but the data has one");
  test_component_init(&t.loss, "firm_entropy");
  t.spec.views = 2;
  refused(device, &t, "training on two views of each sample needs the loss ntxent");
  t.spec.views = 1;
  test_spec_mse(&t, 4);
  test_component_init(&t.loss, "firm_entropy");
  refused(device, &t, "firm_entropy needs labels, but the data has float targets; use mse, or");
  // a row whose op takes other targets than the row declares
  test_component_init(&t.loss, "mistaken");
  refused(device, &t, "xent: labels is f32, expected i32");
  test_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rows),
      cmocka_unit_test(test_metrics),
      cmocka_unit_test(test_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
