// Whole models on ref: gradients against finite differences in double, PyTorch's names and shapes, channel padding that
// changes no bit, memory limits, and models that are refused. test_engine_devices.c has the promises of every device.
#include <math.h>
#include <string.h>

#include "engine_models_test.h"

//---------------------------------- gradients ----------------------------------

static double loss_of(brim_net *net, const brim_net_micro *micro) {
  double *metrics = brim_net_metrics_ptr(net);
  memset(metrics, 0, BRIM_METRIC_COUNT * sizeof *metrics);
  assert_ok(brim_net_train(net, micro, NULL));
  return metrics[BRIM_METRIC_LOSS] / metrics[BRIM_METRIC_ROWS];
}

// Moves weights away from the symmetric points of the initial values.
static void shake(brim_net *net) {
  double *values = (double *)(void *)net->blocks[BRIM_BLOCK_PARAMS].data;
  for (size_t i = 0; i < net->params.count; i++) {
    const brim_param *p = &net->params.items[i];
    for (int64_t k = p->offset; k < p->offset + p->count; k++) {
      bool padding = p->conv && (k - p->offset) % p->desc.dim[3] >= p->outside.dim[1];
      if (!padding) values[k] += 0.2 * test_random(99, (uint64_t)k) - 0.1;
    }
  }
}

// Checks one value of every `of`th parameter by finite differences, and always of the first and the last one.
// BRIM_TEST_FULL: two values of every parameter.
static void check_gradients(brim_device *device, const test_model *c, const test_spec *t,
                            const brim_net_hooks *hooks, int64_t rows, uint64_t of) {
  brim_net *net;
  assert_ok(brim_net_create_hooked(device, &t->spec, hooks, &net));
  shake(net);
  test_batch b;
  test_batch_make(&t->spec, net->batch, 7, &b);
  brim_net_micro micro = {
      .batch = test_batch_at(&t->spec, &b, 0, rows), .step = 3, .step_rows = rows, .first = true};
  (void)loss_of(net, &micro);
  size_t bytes = net->blocks[BRIM_BLOCK_GRADS].bytes;
  double *grads = malloc(bytes);
  assert_non_null(grads);
  memcpy(grads, net->blocks[BRIM_BLOCK_GRADS].data, bytes);
  for (size_t i = 0; i < net->params.count; i++) {
    const brim_param *p = &net->params.items[i];
    double *values = (double *)(void *)net->blocks[BRIM_BLOCK_PARAMS].data + p->offset;
    bool end = i == 0 || i + 1 == net->params.count;
    int64_t looks = test_is_full() ? 2 : end || test_is_sampled(i * 8 + (uint64_t)rows, of) ? 1 : 0;
    for (int64_t k = 0; k < looks && k < p->count; k++) {
      int64_t e = (int64_t)(test_random(5, (uint64_t)(i * 2) + (uint64_t)k) * (double)p->count);
      double got = grads[p->offset + e], expected = 0;
      bool good = false;
      // Some ReLU of a deep network may be within h of its kink: try again with a smaller h.
      for (double h = 1e-6; !good && h > 1e-9; h /= 10) {
        double saved = values[e];
        values[e] = saved + h;
        double up = loss_of(net, &micro);
        values[e] = saved - h;
        double down = loss_of(net, &micro);
        values[e] = saved;
        expected = (up - down) / (2 * h);
        good = fabs(expected - got) <= 1e-7 * (1e-6 / h) + 2e-5 * fabs(expected);
      }
      if (!good) {
        fail_msg("%s: d %s[%lld] is %.12g, finite differences say %.12g", c->name, p->name,
                 (long long)e, got, expected);
      }
    }
  }
  free(grads);
  test_batch_free(&b);
  brim_net_destroy(net);
}

static void test_gradients(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  for (int i = 0; i < TEST_MODELS; i++) {
    test_spec t;
    test_model_spec(&test_models[i], &t);
    const brim_net_hooks hooks[] = {
        {.f64 = true},
        {.f64 = true, .no_fusion = true},
        {.f64 = true, .recompute = INT32_MAX, .channel_pad = 4},
    };
    // A row of padding must have no effect, not even in the statistics.
    for (int k = 0; k < 3; k++) {
      check_gradients(device, &test_models[i], &t, &hooks[k], 4 - k % 2, k > 0 ? 15 : 5);
    }
  }
  test_device_close(device);
}

static void test_contrastive(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t;
  test_model c = {
      .name = "simclr", .model = "simclr", .dim = {6, 6, 3}, .rank = 3, .outputs = 5, .mse = true};
  test_model_spec(&c, &t);
  test_component_init(&t.model, "simclr");
  test_component backbone;
  test_component_init(&backbone, "resnet18");
  test_component_int(&backbone, "width", 2);
  t.model.args[0] = (brim_argument){
      .name = "backbone", .value = {.kind = BRIM_VALUE_COMPONENT, .component = &backbone.c}};
  t.model.c.arg_count = 1;
  test_component_int(&t.model, "hidden", 6);
  test_component_int(&t.model, "dim", 5);
  test_component_init(&t.loss, "ntxent");
  t.spec.views = 2;
  t.spec.batch = 3;
  brim_net_hooks hooks = {.f64 = true};
  check_gradients(device, &c, &t, &hooks, 6, 2);
  brim_net *net;
  assert_ok(brim_net_create(device, &t.spec, &net));
  assert_string_equal(net->params.items[0].name, "backbone.conv1.weight");
  const char *last = net->params.items[net->params.count - 1].name;
  assert_string_equal(last, "projector.2.bias");
  test_batch b;
  test_batch_make(&t.spec, 6, 7, &b);
  brim_net_micro micro = {
      .batch = test_batch_at(&t.spec, &b, 0, 5), .step = 1, .step_rows = 5, .first = true};
  assert_status(brim_net_train(net, &micro, NULL), BRIM_EINVAL);  // half a sample
  test_batch_free(&b);
  brim_net_destroy(net);
  // and batch norm in the head
  t.model.args[t.model.c.arg_count++] =
      (brim_argument){.name = "batch_norm", .value = {.kind = BRIM_VALUE_BOOL, .boolean = true}};
  check_gradients(device, &c, &t, &hooks, 6, 2);
  assert_ok(brim_net_create(device, &t.spec, &net));
  assert_string_equal(net->params.items[net->params.count - 1].name, "projector.3.bias");
  assert_string_equal(net->params.items[net->params.count - 3].name, "projector.1.bias");
  brim_net_destroy(net);
  // and with two hidden layers
  test_component_int(&t.model, "depth", 2);
  check_gradients(device, &c, &t, &hooks, 6, 2);
  assert_ok(brim_net_create(device, &t.spec, &net));
  assert_string_equal(net->params.items[net->params.count - 1].name, "projector.6.bias");
  assert_string_equal(net->params.items[net->params.count - 3].name, "projector.4.bias");
  assert_string_equal(net->params.items[net->params.count - 5].name, "projector.3.weight");
  brim_net_destroy(net);
  test_device_close(device);
}

//---------------------------------- padding ----------------------------------

// Padding channels are zero and stay zero: PyTorch's view of the weights is the same with them.
static void test_padding(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  for (int i = 0; i < 4; i++) {
    test_spec t;
    test_model_spec(&test_models[i], &t);
    const brim_net_hooks plain = {0}, padded = {.channel_pad = 8};
    test_outcome a = test_train_three(device, &t, &plain),
                 b = test_train_three(device, &t, &padded);
    test_outcome_same(test_models[i].name, &a, &b);
    test_outcome_free(&a);
    test_outcome_free(&b);
  }
  test_device_close(device);
}

//---------------------------------- memory ----------------------------------

static uint64_t planned(brim_device *device, const test_spec *t) {
  brim_plan plan = {0};
  assert_ok(brim_net_plan(device, &t->spec, &plan));
  return plan.bytes[BRIM_PLACE_DEVICE];
}

static void test_memory_limit(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t;
  test_model c = {.model = "resnet50", .dim = {32, 32, 3}, .rank = 3, .outputs = 10};
  test_model_spec(&c, &t);
  t.spec.batch = 16;
  t.spec.input_dtype = BRIM_U8;
  brim_net *full, *all;
  assert_ok(brim_net_build(device, &t.spec, NULL, true, &full));
  t.spec.recompute = BRIM_RECOMPUTE_ALL;
  assert_ok(brim_net_build(device, &t.spec, NULL, true, &all));
  assert_int_equal(all->segments, 16);
  assert_int_equal(all->recomputed, 16);
  assert_true(all->train.places.bytes * 2 <= full->train.places.bytes);
  uint64_t most = planned(device, &t);
  t.spec.recompute = BRIM_RECOMPUTE_NONE;
  uint64_t least = most;
  most = planned(device, &t);
  assert_true(least < most);
  t.spec.recompute = BRIM_RECOMPUTE_AUTO;
  assert_int_equal(planned(device, &t), most);  // no limit, so no recomputation
  t.spec.memory_limit = most;
  assert_int_equal(planned(device, &t), most);
  uint64_t before = most + 1;
  for (int i = 1; i <= 4; i++) {
    t.spec.memory_limit = most - (most - least) * (uint64_t)i / 4;
    uint64_t got = planned(device, &t);
    assert_true(got <= t.spec.memory_limit && got < before);
    before = got;
  }
  t.spec.memory_limit = 1;  // impossible: as little memory as possible
  assert_true(planned(device, &t) <= least);
  brim_net_destroy(full);
  brim_net_destroy(all);
  test_device_close(device);
}

// Every recomputed tensor has a node that reads it.
static void test_nothing_in_vain(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  for (int i = 0; i < TEST_MODELS; i++) {
    test_spec t;
    test_model_spec(&test_models[i], &t);
    t.spec.recompute = BRIM_RECOMPUTE_ALL;
    brim_net *net;
    assert_ok(brim_net_build(device, &t.spec, NULL, true, &net));
    const brim_graph *g = &net->train.graph;
    for (int32_t n = net->train.forward_count; n < g->node_count; n++) {
      bool useful = false;
      for (int o = 0; o < g->nodes[n].out_count; o++) {
        int32_t tensor = g->nodes[n].out[o];
        if (tensor < 0) continue;
        useful = useful || !brim_tensor_in_arena(g->tensors[tensor].kind);
        for (int32_t later = n + 1; !useful && later < g->node_count; later++) {
          for (int k = 0; k < g->nodes[later].in_count; k++) {
            useful = useful || g->nodes[later].in[k] == tensor;
          }
        }
      }
      if (!useful) {
        fail_msg("%s: nobody reads what node %d (%s) makes", test_models[i].name, (int)n,
                 brim_op_name(g->nodes[n].op));
      }
    }
    brim_net_destroy(net);
  }
  test_device_close(device);
}

//---------------------------------- initial values ----------------------------------

// torchvision's initial values: normal with deviation sqrt(2
// (outputs * kernel^2)).
static void test_normal_weights(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t;
  test_model c = {.model = "resnet18", .dim = {32, 32, 3}, .rank = 3, .outputs = 10};
  test_model_spec(&c, &t);
  t.spec.batch = 1;
  brim_net *net;
  assert_ok(brim_net_create(device, &t.spec, &net));
  for (size_t i = 0; i < net->params.count; i++) {
    const brim_param *p = &net->params.items[i];
    if (!p->conv || p->count < 30000) continue;
    float *values = malloc((size_t)p->count * sizeof *values);
    assert_non_null(values);
    assert_ok(brim_net_param_read(net, i, values));
    double n = (double)p->outside_count, sum = 0, squares = 0, fourth = 0, next = 0;
    for (int64_t e = 0; e < p->outside_count; e++) {
      double v = (double)values[e] / p->bound;
      sum += v;
      squares += v * v;
      fourth += v * v * v * v;
      if (e > 0) next += v * (double)values[e - 1] / p->bound;
    }
    // Within five standard errors of n normal numbers.
    assert_true(fabs(sum / n) < 5 / sqrt(n));
    assert_true(fabs(squares / n - 1) < 5 * sqrt(2 / n));
    assert_true(fabs(fourth / n - 3) < 5 * sqrt(96 / n));
    assert_true(fabs(next / n) < 5 / sqrt(n));
    free(values);
  }
  brim_net_destroy(net);
  test_device_close(device);
}

//---------------------------------- names ----------------------------------

static bool has_param(const brim_net *net, const char *name, const int64_t *dim, int rank) {
  for (size_t i = 0; i < brim_net_param_count(net); i++) {
    const brim_net_param *p = brim_net_param_at(net, i);
    if (strcmp(p->name, name) != 0) continue;
    bool same = p->rank == rank;
    for (int k = 0; same && k < rank; k++) same = p->dim[k] == dim[k];
    return same;
  }
  return false;
}

// Parameter counts equal those of torchvision's state dicts.
static void test_names(void **state) {
  (void)state;
  static const struct {
    const char *model;
    size_t params, buffers;
    uint64_t values;
  } models[] = {{"resnet18", 62, 40, 11689512},
                {"resnet34", 110, 72, 21797672},
                {"resnet50", 161, 106, 25557032},
                {"resnet101", 314, 208, 44549160},
                {"resnet152", 467, 310, 60192808}};
  brim_device *device = test_device_ref();
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    test_spec t;
    test_model c = {.model = models[i].model, .dim = {224, 224, 3}, .rank = 3, .outputs = 1000};
    test_model_spec(&c, &t);
    t.spec.batch = 1;
    brim_net_hooks hooks = {.channel_pad = 8};
    brim_net *net;
    assert_ok(brim_net_build(device, &t.spec, &hooks, true, &net));
    brim_plan plan = {0};
    brim_net_fill_plan(net, &plan);
    assert_int_equal(net->params.count, models[i].params);
    assert_int_equal(net->buffers.count, models[i].buffers);
    assert_int_equal(plan.parameter_count, models[i].values);
    assert_true(has_param(net, "conv1.weight", (int64_t[]){64, 3, 7, 7}, 4));
    assert_true(has_param(net, "bn1.bias", (int64_t[]){64}, 1));
    bool bottleneck = i >= 2;
    assert_true(has_param(net, "layer4.0.downsample.0.weight",
                          bottleneck ? (int64_t[]){2048, 1024, 1, 1} : (int64_t[]){512, 256, 1, 1},
                          4));
    assert_true(has_param(net, "layer2.1.conv2.weight", (int64_t[]){128, 128, 3, 3}, 4));
    assert_true(has_param(net, "fc.weight",
                          bottleneck ? (int64_t[]){1000, 2048} : (int64_t[]){1000, 512}, 2));
    brim_net_destroy(net);
  }
  test_device_close(device);
}

//---------------------------------- bad models ----------------------------------

static void test_refused(void **state) {
  (void)state;
  static const struct {
    const char *model, *arg;
    int64_t value;
    const char *part;
  } bad[] = {
      {"wideresnet", "depth", 27, "6 n + 4"},
      {"transformer", "heads", 5, "multiple of heads"},
      {"transformer", "patch", 7, "multiple of patch"},
      {"resnet18", "width", 0, "width is 0"},
      {"resnet19", "width", 64, "did you mean"},
      {"resnet18", "num_classes", 7, "num_classes is 7"},
      {"simclr", "dim", 16, "outputs 16 values per sample, but the loss expects 3"},
  };
  brim_device *device = test_device_ref();
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    test_spec t;
    test_model c = {.model = bad[i].model, .dim = {24, 24, 3}, .rank = 3, .outputs = 3};
    if (strcmp(c.model, "transformer") == 0)
      c = (test_model){.model = c.model, .dim = {24, 2}, .rank = 2, .outputs = 3};
    test_model_spec(&c, &t);
    test_component_int(&t.model, bad[i].arg, bad[i].value);
    brim_plan plan = {0};
    assert_status(brim_net_plan(device, &t.spec, &plan), BRIM_EINVAL);
    if (!strstr(brim_status_detail(), bad[i].part)) {
      fail_msg("'%s' does not say '%s'", brim_status_detail(), bad[i].part);
    }
  }
  test_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gradients),      cmocka_unit_test(test_contrastive),
      cmocka_unit_test(test_padding),        cmocka_unit_test(test_memory_limit),
      cmocka_unit_test(test_names),          cmocka_unit_test(test_refused),
      cmocka_unit_test(test_normal_weights), cmocka_unit_test(test_nothing_in_vain),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
