// Graphs as models make them: names and shapes of parameters, fusing, the nodes of the backward pass, and the messages
// for components that do not fit.
#include "engine_test.h"

static int count_nodes(const brim_graph *g, brim_op op, brim_act act) {
  int n = 0;
  for (int32_t i = 0; i < g->node_count; i++) {
    n += g->nodes[i].op == op && g->nodes[i].attr.act == act;
  }
  return n;
}

static void build(brim_device *device, const test_spec *t, bool no_fusion, brim_net **net) {
  brim_net_hooks hooks = {.no_fusion = no_fusion};
  assert_ok(brim_net_build(device, &t->spec, &hooks, true, net));
}

static void test_names(void **state) {
  (void)state;
  static const struct {
    const char *model, *norm;
    const char *names[16];
  } cases[] = {
      {"linear", NULL, {"weight", "bias"}},
      {"mlp",
       NULL,
       {"layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias", "layers.2.weight",
        "layers.2.bias"}},
      {"mlp",
       "layer",
       {"layers.0.weight", "layers.0.bias", "norms.0.weight", "norms.0.bias", "layers.1.weight",
        "layers.1.bias", "norms.1.weight", "norms.1.bias", "layers.2.weight", "layers.2.bias"}},
      {"resmlp",
       NULL,
       {"input.weight", "input.bias", "blocks.0.norm.weight", "blocks.0.norm.bias",
        "blocks.0.fc1.weight", "blocks.0.fc1.bias", "blocks.0.fc2.weight", "blocks.0.fc2.bias",
        "norm.weight", "norm.bias", "output.weight", "output.bias"}},
  };
  brim_device *device = test_device_ref();
  for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
    test_spec t;
    test_spec_init(&t);
    test_component_init(&t.model, cases[k].model);
    if (strcmp(cases[k].model, "linear") != 0) {
      test_component_int(&t.model, "depth", strcmp(cases[k].model, "mlp") == 0 ? 2 : 1);
    }
    if (cases[k].norm) test_component_string(&t.model, "norm", cases[k].norm);
    brim_net *net;
    build(device, &t, false, &net);
    size_t n = 0;
    for (; cases[k].names[n]; n++) {
      assert_non_null(brim_net_param_at(net, n));
      assert_string_equal(brim_net_param_at(net, n)->name, cases[k].names[n]);
    }
    assert_int_equal(brim_net_param_count(net), n);
    assert_null(brim_net_param_at(net, n));
    brim_net_destroy(net);
  }
  test_device_close(device);
}

static void test_shapes(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t;
  test_spec_init(&t);
  test_component_init(&t.model, "mlp");  // depth 4, hidden 512
  t.spec.input_rank = 3;
  t.spec.input_dim[0] = 28;
  t.spec.input_dim[1] = 28;
  t.spec.input_dim[2] = 1;
  t.spec.input_dtype = BRIM_U8;
  t.spec.classes = 10;
  t.spec.batch = 512;
  brim_plan plan = {0};
  assert_ok(brim_net_plan(device, &t.spec, &plan));
  assert_int_equal(plan.parameter_count, 784 * 512 + 512 + 3 * (512 * 512 + 512) + 5130);
  assert_true(plan.samples_per_step == 512);
  // Two FLOPs per weight forward, and twice that backward, except for the gradient of the input.
  double mults = 784.0 * 512 + 3 * 512.0 * 512 + 5120;
  double least = 512 * 2 * (3 * mults - 784.0 * 512);
  assert_true(plan.flops_per_step >= least && plan.flops_per_step < 1.02 * least);
  brim_net *net;
  build(device, &t, false, &net);
  const brim_net_param *w = brim_net_param_at(net, 0);
  assert_int_equal(w->rank, 2);
  assert_int_equal(w->dim[0], 512);
  assert_int_equal(w->dim[1], 784);
  assert_int_equal(w->count, 512 * 784);
  for (size_t i = 0; i < net->params.count; i++) {
    assert_int_equal(net->params.items[i].offset * 4 % BRIM_ALIGN, 0);
  }
  brim_net_destroy(net);
  test_device_close(device);
}

static void test_fusion(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t;
  test_spec_init(&t);
  brim_net *net;
  build(device, &t, false, &net);
  const brim_graph *g = &net->train.graph;
  assert_int_equal(count_nodes(g, BRIM_OP_LINEAR, BRIM_ACT_RELU), 2);
  assert_int_equal(count_nodes(g, BRIM_OP_LINEAR, BRIM_ACT_NONE), 1);
  assert_int_equal(count_nodes(g, BRIM_OP_ACT, BRIM_ACT_RELU), 0);
  assert_int_equal(count_nodes(g, BRIM_OP_LINEAR_BWD_DATA, BRIM_ACT_RELU), 2);
  assert_int_equal(count_nodes(g, BRIM_OP_ACT_BWD, BRIM_ACT_RELU), 0);
  assert_int_equal(count_nodes(g, BRIM_OP_LINEAR_BWD_WEIGHT, BRIM_ACT_NONE), 3);
  // f32 input without scaling: the batch is read directly.
  assert_int_equal(count_nodes(g, BRIM_OP_INPUT, BRIM_ACT_NONE), 0);
  assert_int_equal(count_nodes(&net->eval.graph, BRIM_OP_LINEAR, BRIM_ACT_RELU), 2);
  assert_int_equal(net->eval.graph.node_count, 4);
  brim_net_destroy(net);

  build(device, &t, true, &net);
  g = &net->train.graph;
  assert_int_equal(count_nodes(g, BRIM_OP_ACT, BRIM_ACT_RELU), 2);
  assert_int_equal(count_nodes(g, BRIM_OP_ACT_BWD, BRIM_ACT_RELU), 2);
  brim_net_destroy(net);

  // gelu's gradient needs its input, so it is never fused. Dropout is in between, so the backward pass is not fused
  // either.
  test_component_string(&t.model, "activation", "gelu");
  test_component_float(&t.model, "dropout", 0.5);
  t.spec.scale[0] = 0.5f;
  build(device, &t, false, &net);
  g = &net->train.graph;
  assert_int_equal(count_nodes(g, BRIM_OP_ACT, BRIM_ACT_GELU), 2);
  assert_int_equal(count_nodes(g, BRIM_OP_ACT_BWD, BRIM_ACT_GELU), 2);
  assert_int_equal(count_nodes(g, BRIM_OP_DROPOUT, BRIM_ACT_NONE), 4);
  // each layer has its own mask, the same in the backward pass
  static const uint32_t numbers[] = {0, 1, 1, 0};
  for (int32_t i = 0, k = 0; i < g->node_count; i++) {
    if (g->nodes[i].op == BRIM_OP_DROPOUT) assert_int_equal(g->nodes[i].attr.layer, numbers[k++]);
  }
  assert_int_equal(count_nodes(g, BRIM_OP_INPUT, BRIM_ACT_NONE), 1);
  assert_int_equal(count_nodes(&net->eval.graph, BRIM_OP_DROPOUT, BRIM_ACT_NONE), 0);
  brim_net_destroy(net);

  // Two ops read a residual: their gradients meet in an ADD.
  test_component_init(&t.model, "resmlp");
  test_component_int(&t.model, "depth", 3);
  build(device, &t, false, &net);
  assert_int_equal(count_nodes(&net->eval.graph, BRIM_OP_ADD, BRIM_ACT_NONE), 3);
  assert_int_equal(count_nodes(&net->train.graph, BRIM_OP_ADD, BRIM_ACT_NONE), 6);
  brim_net_destroy(net);
  test_device_close(device);
}

//---------------------------------- refusals ----------------------------------

static brim_device *refusing;

static void refuse(const test_spec *t, brim_status status, const char *text) {
  brim_plan plan = {0};
  assert_status(brim_net_plan(refusing, &t->spec, &plan), status);
  if (!strstr(brim_status_detail(), text)) {
    fail_msg("the message is '%s', expected '%s' in it", brim_status_detail(), text);
  }
  assert_int_equal(plan.row_count, 0);
}

static void test_refusals(void **state) {
  (void)state;
  refusing = test_device_ref();
  test_spec t;
#define FRESH test_spec_init(&t)
  FRESH, test_component_init(&t.model, "mpl"), refuse(&t, BRIM_EINVAL, "did you mean 'mlp'?");
  FRESH, test_component_int(&t.model, "dept", 2), refuse(&t, BRIM_EINVAL, "did you mean 'depth'?");
  FRESH, test_component_int(&t.model, "depth", -1), refuse(&t, BRIM_EINVAL, "depth is -1");
  FRESH, test_component_int(&t.model, "hidden", 0), refuse(&t, BRIM_EINVAL, "hidden is 0");
  FRESH, test_component_float(&t.model, "dropout", 1), refuse(&t, BRIM_EINVAL, "dropout is 1");
  FRESH, test_component_string(&t.model, "activation", "x"), refuse(&t, BRIM_EINVAL, "relu");
  FRESH, test_component_string(&t.model, "norm", "batch"), refuse(&t, BRIM_EINVAL, "norm is");
  FRESH, test_component_int(&t.model, "num_classes", 4), refuse(&t, BRIM_EINVAL, "num_classes");
  FRESH, test_component_init(&t.loss, "cros_entropy"), refuse(&t, BRIM_EINVAL, "cross_entropy");
  FRESH, test_component_init(&t.loss, "mse"), refuse(&t, BRIM_EINVAL, "use cross_entropy");
  FRESH, t.spec.classes = 0, t.spec.target_dim = 2, refuse(&t, BRIM_EINVAL, "use mse");
  FRESH, test_component_float(&t.loss, "label_smoothing", 2), refuse(&t, BRIM_EINVAL, "0 to 1");
  FRESH, test_component_init(&t.optimizer, "adm"), refuse(&t, BRIM_EINVAL, "did you mean 'adam");
  FRESH, test_component_float(&t.optimizer, "momentum", 1), refuse(&t, BRIM_EINVAL, "momentum");
  FRESH, test_component_bool(&t.optimizer, "nesterov", true), refuse(&t, BRIM_EINVAL, "nesterov");
  FRESH, test_component_float(&t.optimizer, "weight_decay", -1);
  refuse(&t, BRIM_EINVAL, "weight_decay");
  FRESH, t.spec.batch = 0, refuse(&t, BRIM_EINVAL, "batch size");
  FRESH, t.spec.accumulation = 0, refuse(&t, BRIM_EINVAL, "accumulation");
  FRESH, t.spec.channels = 4, refuse(&t, BRIM_EINVAL, "channels");
  FRESH, t.spec.input_dim[1] = 0, refuse(&t, BRIM_EINVAL, "dimension 1");
  FRESH, t.spec.input_dtype = BRIM_F64, refuse(&t, BRIM_EINVAL, "inputs are f64");
  FRESH, t.spec.seed = UINT64_C(1) << 53, refuse(&t, BRIM_EINVAL, "seed");
  FRESH, t.spec.clip_norm = -1, refuse(&t, BRIM_EINVAL, "clipping");
  FRESH, t.spec.precision = BRIM_PRECISION_TF32, refuse(&t, BRIM_EUNSUPPORTED, "use fp32");
  // Sizes whose product exceeds any memory are refused without an overflow.
  FRESH, t.spec.batch = 1 << 28, t.spec.input_dim[0] = t.spec.input_dim[1] = 1 << 15;
  refuse(&t, BRIM_ELIMIT, "smaller batch");
#undef FRESH
  test_device_close(refusing);
}

static void test_precision_names(void **state) {
  (void)state;
  brim_precision p = BRIM_PRECISION_COUNT;
  assert_true(brim_precision_parse("bf16", &p));
  assert_int_equal(p, BRIM_PRECISION_BF16);
  assert_string_equal(brim_precision_name(BRIM_PRECISION_TF32), "tf32");
  assert_false(brim_precision_parse("f16", &p));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_names),           cmocka_unit_test(test_shapes),
      cmocka_unit_test(test_fusion),          cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_precision_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
