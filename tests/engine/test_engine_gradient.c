// The gradient of whole networks against finite differences, in double on ref: every activation, layer norm, dropout,
// residuals, both losses, fused and not.
#include <math.h>

#include "engine_test.h"

typedef struct gradient_case {
  const char *name, *model, *activation, *norm;
  double dropout, smoothing;
  bool mse, no_fusion;
  bool may_vanish;
} gradient_case;

static int vanished, checked;  // parameters

static const gradient_case cases[] = {
    {"linear", "linear", NULL, NULL, 0, 0, false, false, false},
    {"relu", "mlp", "relu", NULL, 0, 0, false, false, false},
    {"relu unfused", "mlp", "relu", NULL, 0, 0, false, true, false},
    {"tanh", "mlp", "tanh", NULL, 0, 0, false, false, false},
    {"gelu", "mlp", "gelu", NULL, 0, 0, false, false, false},
    {"none", "mlp", "none", NULL, 0, 0, false, false, false},
    {"smoothing", "mlp", "tanh", NULL, 0, 0.1, false, false, false},
    {"layer norm", "mlp", "tanh", "layer", 0, 0, false, false, false},
    {"layer norm relu", "mlp", "relu", "layer", 0, 0, false, false, false},
    {"dropout", "mlp", "tanh", NULL, 0.4, 0, false, false, false},
    {"dropout norm gelu", "mlp", "gelu", "layer", 0.3, 0.2, false, false, false},
    {"mse", "mlp", "tanh", NULL, 0, 0, true, false, false},
    {"mse dropout relu", "mlp", "relu", NULL, 0.25, 0, true, false, false},
    {"residual relu", "resmlp", "relu", NULL, 0, 0, false, false, false},
    {"residual gelu dropout", "resmlp", "gelu", NULL, 0.3, 0, false, false, false},
    {"residual tanh mse unfused", "resmlp", "tanh", NULL, 0, 0, true, true, false},
};

// Mean loss of the step in double; leaves gradients in the net.
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
  checked++;
  vanished += !(largest > 1e-7);
  if (vanished && !c->may_vanish) fail_msg("%s: all gradients of %s vanish", c->name, p->name);
}

// Makes a net, runs one step on a batch with a row of padding, and compares every gradient with differences.
static void check_net(brim_device *device, const test_spec *t, const brim_net_hooks *hooks,
                      const gradient_case *c) {
  brim_net *net;
  assert_ok(brim_net_create_hooked(device, &t->spec, hooks, &net));
  // Biases of exactly 0 would put relu on its kink if a row is constant.
  double *values = (double *)(void *)net->blocks[BRIM_BLOCK_PARAMS].data;
  for (size_t i = 0; i < net->params.count; i++) {
    const brim_param *p = &net->params.items[i];
    for (int64_t k = p->offset; k < p->offset + p->count; k++) {
      values[k] += 0.2 * test_random(99, (uint64_t)k) - 0.1;
    }
  }
  test_batch b;
  test_batch_make(&t->spec, t->spec.batch, 7, &b);
  // One row of padding, which must have no effect.
  brim_net_micro micro = {
      .batch = test_batch_at(&t->spec, &b, 0, t->spec.batch - 1), .step = 3, .first = true};
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
  check_net(device, &t, &hooks, c);
}

static void test_gradients(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_case(device, &cases[i]);
  test_device_close(device);
}

//---------------------------------- networks of random shapes ----------------------------------

// Any later layer may read a value, and some layers share their parameters: combinations of fan-in, fusing and in-place
// reuse that the models do not have.
static int32_t random_model(void *ctx, brim_graph *g, int32_t x, int64_t outputs) {
  uint64_t seed = *(const uint64_t *)ctx, at = 0;
  int32_t values[16], count = 0;
  const int64_t width = 4;
  values[count++] = brim_graph_linear(g, x, width, true, "first");
  while (count < 12 && !g->status) {
    // Takes the newest value more often than others, so that there are chains to fuse.
    bool newest = test_random(seed, at++) < 0.6;
    int32_t a = values[newest ? count - 1 : (int32_t)(test_random(seed, at++) * count)];
    int32_t b = values[(int32_t)(test_random(seed, at++) * count)];
    char name[32];
    switch ((int)(test_random(seed, at++) * 6)) {
      case 0:
        a = brim_graph_act(g, a, (brim_act)(1 + (int)(test_random(seed, at++) * 3)));
        break;
      case 1:
        a = brim_graph_add(g, a, b);
        break;
      case 2:
        snprintf(name, sizeof name, "norm.%d", (int)count);
        a = brim_graph_layernorm(g, a, 1e-2f, name);
        break;
      case 3:
        a = brim_graph_dropout(g, a, 0.25f);
        break;
      default:
        snprintf(name, sizeof name, "shared.%d", (int)(test_random(seed, at++) * 3));
        a = brim_graph_linear(g, a, width, true, name);
        break;
    }
    values[count++] = a;
  }
  // The output sums every value that no node reads, so that every parameter has a gradient.
  int32_t sum = -1;
  for (int32_t i = 0; i < count && !g->status; i++) {
    if (g->tensors[values[i]].users > 0 && i + 1 < count) continue;
    sum = sum < 0 ? values[i] : brim_graph_add(g, sum, values[i]);
  }
  return brim_graph_linear(g, sum, outputs, true, "last");
}

static void test_random_networks(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  for (uint64_t seed = 1; seed <= 150; seed++) {
    test_spec t;
    test_spec_init(&t);
    uint64_t ctx = seed;
    char name[32];
    snprintf(name, sizeof name, "random %d", (int)seed);
    gradient_case c = {.name = name, .may_vanish = true};  // behind relus that are all 0
    brim_net_hooks hooks = {
        .f64 = true, .no_fusion = seed % 4 == 0, .model = random_model, .model_ctx = &ctx};
    check_net(device, &t, &hooks, &c);
  }
  assert_true(vanished * 10 < checked);
  test_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gradients),
      cmocka_unit_test(test_random_networks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
