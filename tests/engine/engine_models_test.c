// Small examples of all models: sizes that run quickly and still reach every layer.
#include "engine_models_test.h"

const test_model test_models[TEST_MODELS] = {
    {.name = "resnet18",
     .model = "resnet18",
     .dim = {6, 6, 3},
     .rank = 3,
     .outputs = 4,
     .ints = {{"width", 2}}},
    {.name = "resnet18 imagenet stem",
     .model = "resnet18",
     .dim = {24, 20, 3},
     .rank = 3,
     .outputs = 3,
     .ints = {{"width", 2}},
     .stem = "imagenet"},
    {.name = "resnet50 grey",
     .model = "resnet50",
     .dim = {16, 17},
     .rank = 2,
     .outputs = 3,
     .ints = {{"width", 2}}},
    {.name = "wideresnet",
     .model = "wideresnet",
     .dim = {6, 6, 3},
     .rank = 3,
     .outputs = 3,
     .ints = {{"depth", 10}, {"width", 1}},
     .dropout = 0.2},
    {.name = "transformer",
     .model = "transformer",
     .dim = {12, 2},
     .rank = 2,
     .outputs = 4,
     .mse = true,
     .ints = {{"depth", 2}, {"hidden", 8}, {"heads", 2}, {"patch", 3}, {"mlp_ratio", 2}},
     .dropout = 0.1},
    {.name = "linear policy",
     .model = "linear_policy",
     .dim = {9},
     .rank = 1,
     .outputs = 3,
     .mse = true},
    {.name = "mlp policy",
     .model = "mlp_policy",
     .dim = {9},
     .rank = 1,
     .outputs = 3,
     .mse = true,
     .ints = {{"depth", 1}, {"hidden", 6}}},
    {.name = "actor critic",
     .model = "actor_critic",
     .dim = {9},
     .rank = 1,
     .outputs = 4,
     .mse = true,
     .ints = {{"depth", 2}, {"hidden", 6}}},
};

void test_model_spec(const test_model *c, test_spec *t) {
  test_spec_init(t);
  test_component_init(&t->model, c->model);
  for (int i = 0; i < 5 && c->ints[i].name; i++) {
    test_component_int(&t->model, c->ints[i].name, c->ints[i].value);
  }
  if (c->stem) test_component_string(&t->model, "stem", c->stem);
  if (c->dropout > 0) test_component_float(&t->model, "dropout", c->dropout);
  t->spec.input_rank = c->rank;
  memcpy(t->spec.input_dim, c->dim, sizeof c->dim);
  t->spec.channels = c->rank == 3 ? 3 : 1;
  for (int i = 0; i < 3; i++) t->spec.scale[i] = 0.9f + 0.1f * (float)i;
  t->spec.shift[1] = 0.125f;
  t->spec.classes = c->outputs;
  t->spec.batch = 4;
  if (c->mse) test_spec_mse(t, c->outputs);
}

//---------------------------------- outcomes ----------------------------------

unsigned char *test_block(const brim_net *net, int block) {
  const brim_block *b = &net->blocks[block];
  unsigned char *copy = calloc(b->bytes + 1, 1);
  assert_non_null(copy);
  if (b->bytes) assert_ok(brim_device_copy(net->device, copy, b->data, b->bytes, BRIM_COPY_D2H));
  assert_ok(brim_device_sync(net->device));
  return copy;
}

test_outcome test_train_three(brim_device *device, const test_spec *t,
                              const brim_net_hooks *hooks) {
  brim_net *net;
  assert_ok(brim_net_create_hooked(device, &t->spec, hooks, &net));
  test_batch b;
  int64_t parts = t->spec.accumulation, rows = t->spec.batch * parts;
  test_batch_make(&t->spec, rows, 3, &b);
  for (int64_t step = 1; step <= 3; step++) test_step(net, &t->spec, &b, parts, step, 0.05);
  brim_batch batch = test_batch_at(&t->spec, &b, 0, t->spec.batch);
  assert_ok(brim_net_evaluate(net, &batch, NULL));
  test_outcome o = {.buffer_bytes = net->blocks[BRIM_BLOCK_BUFFERS].bytes,
                    .arena = net->train.places.bytes};
  o.output_count = (size_t)(t->spec.batch * net->outputs_per_row);
  o.outputs = calloc(o.output_count, sizeof *o.outputs);
  assert_non_null(o.outputs);
  assert_ok(brim_net_outputs(net, o.outputs, t->spec.batch));
  o.buffers = test_block(net, BRIM_BLOCK_BUFFERS);
  o.params = test_params(net, &o.count);
  test_batch_free(&b);
  brim_net_destroy(net);
  return o;
}

void test_outcome_free(test_outcome *o) {
  free(o->params);
  free(o->outputs);
  free(o->buffers);
}

void test_outcome_same(const char *name, const test_outcome *a, const test_outcome *b) {
  assert_int_equal(a->count, b->count);
  if (memcmp(a->params, b->params, a->count * sizeof *a->params) != 0) {
    fail_msg("%s: other weights", name);
  }
  assert_int_equal(a->output_count, b->output_count);
  if (memcmp(a->outputs, b->outputs, a->output_count * sizeof *a->outputs) != 0) {
    fail_msg("%s: other outputs", name);
  }
  assert_int_equal(a->buffer_bytes, b->buffer_bytes);
  if (memcmp(a->buffers, b->buffers, a->buffer_bytes) != 0) fail_msg("%s: other statistics", name);
}
