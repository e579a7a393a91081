// The gradient of whole networks against finite differences, in double on ref: every activation,
// layer norm, dropout, residuals, both losses, fused and not.
#include <math.h>

#include "engine_test.h"

typedef struct gradient_case {
  const char *name, *model, *activation, *norm;
  double dropout, smoothing;
  bool mse, no_fusion;
} gradient_case;

static const gradient_case cases[] = {
    {"linear", "linear", NULL, NULL, 0, 0, false, false},
    {"relu", "mlp", "relu", NULL, 0, 0, false, false},
    {"relu unfused", "mlp", "relu", NULL, 0, 0, false, true},
    {"tanh", "mlp", "tanh", NULL, 0, 0, false, false},
    {"gelu", "mlp", "gelu", NULL, 0, 0, false, false},
    {"none", "mlp", "none", NULL, 0, 0, false, false},
    {"smoothing", "mlp", "tanh", NULL, 0, 0.1, false, false},
    {"layer norm", "mlp", "tanh", "layer", 0, 0, false, false},
    {"layer norm relu", "mlp", "relu", "layer", 0, 0, false, false},
    {"dropout", "mlp", "tanh", NULL, 0.4, 0, false, false},
    {"dropout norm gelu", "mlp", "gelu", "layer", 0.3, 0.2, false, false},
    {"mse", "mlp", "tanh", NULL, 0, 0, true, false},
    {"mse dropout relu", "mlp", "relu", NULL, 0.25, 0, true, false},
    {"residual relu", "resmlp", "relu", NULL, 0, 0, false, false},
    {"residual gelu dropout", "resmlp", "gelu", NULL, 0.3, 0, false, false},
    {"residual tanh mse unfused", "resmlp", "tanh", NULL, 0, 0, true, true},
};

// Mean loss of the step in double, with gradients left in the net.
static double loss_of(brim_net *net, const brim_net_micro *micro) {
  double *metrics = brim_net_metrics_ptr(net);
  memset(metrics, 0, BRIM_METRIC_COUNT * sizeof *metrics);
  assert_ok(brim_net_train(net, micro, NULL));
  assert_true(metrics[BRIM_METRIC_ROWS] == (double)micro->batch.rows);
  return metrics[BRIM_METRIC_LOSS] / metrics[BRIM_METRIC_ROWS];
}

static void check_param(brim_net *net, const brim_net_micro *micro, const gradient_case *c,
                        size_t index, const double *grads) {
  const brim_param *p = &net->params.items[index];
  double *values = (double *)(void *)net->blocks[BRIM_BLOCK_PARAMS].data + p->offset;
  const double h = 1e-6;
  double largest = 0;
  for (int64_t i = 0; i < p->count; i++) {
    double saved = values[i];
    values[i] = saved + h;
    double up = loss_of(net, micro);
    values[i] = saved - h;
    double down = loss_of(net, micro);
    values[i] = saved;
    double expected = (up - down) / (2 * h), got = grads[p->offset + i];
    if (fabs(got) > largest) largest = fabs(got);
    if (!(fabs(expected - got) <= 2e-9 + 1e-6 * fabs(expected))) {
      fail_msg("%s: d %s[%lld] is %.12g, finite differences say %.12g", c->name, p->name,
               (long long)i, got, expected);
    }
  }
  if (!(largest > 1e-7)) fail_msg("%s: all gradients of %s vanish", c->name, p->name);
}

static void check_case(brim_device *device, const gradient_case *c) {
  test_spec t;
  test_spec_init(&t);
  test_component_init(&t.model, c->model);
  if (strcmp(c->model, "linear") != 0) {
    test_component_int(&t.model, "depth", 2);
    test_component_int(&t.model, "hidden", 6);
    if (c->activation) test_component_string(&t.model, "activation", c->activation);
    if (c->norm) test_component_string(&t.model, "norm", c->norm);
    if (c->dropout > 0) test_component_float(&t.model, "dropout", c->dropout);
  }
  if (c->smoothing > 0) test_component_float(&t.loss, "label_smoothing", c->smoothing);
  if (c->mse) test_spec_mse(&t, 3);
  brim_net_hooks hooks = {.f64 = true, .no_fusion = c->no_fusion};
  brim_net *net;
  assert_ok(brim_net_create_hooked(device, &t.spec, &hooks, &net));
  test_batch b;
  test_batch_make(&t.spec, t.spec.batch, 7, &b);
  // One row of padding: it must not show.
  brim_net_micro micro = {
      .batch = test_batch_at(&t.spec, &b, 0, t.spec.batch - 1), .step = 3, .first = true};
  micro.batch.row_offset = 11;
  micro.step_rows = micro.batch.rows;
  (void)loss_of(net, &micro);
  size_t bytes = net->blocks[BRIM_BLOCK_GRADS].bytes;
  double *grads = malloc(bytes);
  assert_non_null(grads);
  memcpy(grads, net->blocks[BRIM_BLOCK_GRADS].data, bytes);
  for (size_t i = 0; i < net->params.count; i++) check_param(net, &micro, c, i, grads);
  free(grads);
  test_batch_free(&b);
  brim_net_destroy(net);
}

static void test_gradients(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_case(device, &cases[i]);
  test_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
