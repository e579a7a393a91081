// Whole models: gradients against finite differences in double, names and shapes as PyTorch has
// them, recomputation and channel padding that change no bit, accumulation with batch norm, loss
// scaling, and checkpoints with running statistics.
#include <math.h>
#include <string.h>

#include "engine_test.h"

typedef struct model_case {
  const char *name, *model;
  int64_t dim[3];
  int rank;
  int64_t outputs;
  bool mse;
  struct {
    const char *name;
    int64_t value;
  } ints[5];
  const char *stem;
  double dropout;
} model_case;

static const model_case cases[] = {
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
enum { CASES = sizeof cases / sizeof *cases };

static void spec_of(const model_case *c, test_spec *t) {
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

//---------------------------------- gradients ----------------------------------

static double loss_of(brim_net *net, const brim_net_micro *micro) {
  double *metrics = brim_net_metrics_ptr(net);
  memset(metrics, 0, BRIM_METRIC_COUNT * sizeof *metrics);
  assert_ok(brim_net_train(net, micro, NULL));
  return metrics[BRIM_METRIC_LOSS] / metrics[BRIM_METRIC_ROWS];
}

// Away from the symmetric points of the initial values.
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

static void check_gradients(brim_device *device, const model_case *c, const test_spec *t,
                            const brim_net_hooks *hooks, int64_t rows) {
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
    for (int64_t k = 0; k < 2 && k < p->count; k++) {
      int64_t e = (int64_t)(test_random(5, (uint64_t)(i * 2) + (uint64_t)k) * (double)p->count);
      double got = grads[p->offset + e], expected = 0;
      bool good = false;
      // In a deep network some ReLU may sit within h of its kink: look closer then.
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
  for (int i = 0; i < CASES; i++) {
    test_spec t;
    spec_of(&cases[i], &t);
    const brim_net_hooks hooks[] = {
        {.f64 = true},
        {.f64 = true, .no_fusion = true},
        {.f64 = true, .recompute = INT32_MAX, .channel_pad = 4},
    };
    // A row of padding must not show, in statistics neither.
    for (int k = 0; k < 3; k++) check_gradients(device, &cases[i], &t, &hooks[k], 4 - k % 2);
  }
  test_device_close(device);
}

static void test_contrastive(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t;
  model_case c = {
      .name = "simclr", .model = "simclr", .dim = {6, 6, 3}, .rank = 3, .outputs = 5, .mse = true};
  spec_of(&c, &t);
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
  check_gradients(device, &c, &t, &hooks, 6);
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
  test_device_close(device);
}

//---------------------------------- the same bits ----------------------------------

typedef struct outcome {
  float *params, *outputs;
  unsigned char *buffers;
  size_t count, buffer_bytes, arena;
} outcome;

static outcome train_three(brim_device *device, const test_spec *t, const brim_net_hooks *hooks) {
  brim_net *net;
  assert_ok(brim_net_create_hooked(device, &t->spec, hooks, &net));
  test_batch b;
  int64_t parts = t->spec.accumulation, rows = t->spec.batch * parts;
  test_batch_make(&t->spec, rows, 3, &b);
  for (int64_t step = 1; step <= 3; step++) test_step(net, &t->spec, &b, parts, step, 0.05);
  brim_batch batch = test_batch_at(&t->spec, &b, 0, t->spec.batch);
  assert_ok(brim_net_evaluate(net, &batch, NULL));
  outcome o = {.buffer_bytes = net->blocks[BRIM_BLOCK_BUFFERS].bytes,
               .arena = net->train.places.bytes};
  size_t values = (size_t)(t->spec.batch * net->outputs_per_row);
  o.outputs = calloc(values, sizeof *o.outputs);
  o.buffers = malloc(o.buffer_bytes + 1);
  assert_non_null(o.outputs);
  assert_non_null(o.buffers);
  assert_ok(brim_net_outputs(net, o.outputs, t->spec.batch));
  assert_ok(brim_device_copy(device, o.buffers, net->blocks[BRIM_BLOCK_BUFFERS].data,
                             o.buffer_bytes, BRIM_COPY_D2H));
  assert_ok(brim_device_sync(device));
  o.params = test_params(net, &o.count);
  test_batch_free(&b);
  brim_net_destroy(net);
  return o;
}

static void outcome_free(outcome *o) {
  free(o->params);
  free(o->outputs);
  free(o->buffers);
}

static void assert_same(const char *name, const outcome *a, const outcome *b) {
  assert_int_equal(a->count, b->count);
  if (memcmp(a->params, b->params, a->count * sizeof *a->params) != 0) {
    fail_msg("%s: other weights", name);
  }
  assert_int_equal(a->buffer_bytes, b->buffer_bytes);
  if (memcmp(a->buffers, b->buffers, a->buffer_bytes) != 0) fail_msg("%s: other statistics", name);
}

static void same_bits(brim_device *device) {
  for (int i = 0; i < CASES; i++) {
    test_spec t;
    spec_of(&cases[i], &t);
    t.spec.accumulation = 2;
    const brim_net_hooks plain = {0}, again = {.recompute = INT32_MAX}, some = {.recompute = 1};
    const brim_net_hooks no_reuse = {.no_reuse = true, .recompute = INT32_MAX};
    outcome a = train_three(device, &t, &plain);
    outcome b = train_three(device, &t, &again);
    outcome c = train_three(device, &t, &some);
    outcome d = train_three(device, &t, &no_reuse);
    assert_same(cases[i].name, &a, &b);
    assert_same(cases[i].name, &a, &c);
    assert_same(cases[i].name, &a, &d);
    assert_true(b.arena <= a.arena);
    outcome_free(&a);
    outcome_free(&b);
    outcome_free(&c);
    outcome_free(&d);
  }
}

static void test_recompute_ref(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  same_bits(device);
  test_device_close(device);
}

static void test_recompute_cpu(void **state) {
  (void)state;
  brim_device *device = test_device_cpu();
  if (!device) BRIM_SKIP(brim_status_detail());
  same_bits(device);
  test_device_close(device);
}

// Channels of padding are zero and stay so: PyTorch's view of the weights is the same with them.
static void test_padding(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  for (int i = 0; i < 4; i++) {
    test_spec t;
    spec_of(&cases[i], &t);
    const brim_net_hooks plain = {0}, padded = {.channel_pad = 8};
    outcome a = train_three(device, &t, &plain), b = train_three(device, &t, &padded);
    assert_same(cases[i].name, &a, &b);
    outcome_free(&a);
    outcome_free(&b);
  }
  test_device_close(device);
}

// Three micro-batches against the sum of three steps that each normalise themselves.
static void test_accumulation(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  for (int i = 0; i < CASES; i++) {
    test_spec t;
    spec_of(&cases[i], &t);
    test_batch b;
    test_batch_make(&t.spec, 12, 3, &b);
    brim_net *one, *many;
    assert_ok(brim_net_create(device, &t.spec, &one));
    t.spec.accumulation = 3;
    assert_ok(brim_net_create(device, &t.spec, &many));
    size_t count = 0;
    double *sum = NULL;
    for (int k = 0; k < 3; k++) {
      brim_net_micro micro = {
          .batch = test_batch_at(&t.spec, &b, k * 4, 4), .step = 1, .step_rows = 12, .first = true};
      assert_ok(brim_net_train(one, &micro, NULL));
      float *part = test_grads(one, &count);
      if (!sum) sum = calloc(count, sizeof *sum);
      assert_non_null(sum);
      for (size_t e = 0; e < count; e++) sum[e] += (double)part[e];
      free(part);
      micro.first = k == 0;
      assert_ok(brim_net_train(many, &micro, NULL));
    }
    float *got = test_grads(many, &count);
    double error = 0, norm = 0;
    for (size_t e = 0; e < count; e++) {
      error += (got[e] - sum[e]) * (got[e] - sum[e]);
      norm += sum[e] * sum[e];
    }
    if (!(sqrt(error) <= 1e-5 * sqrt(norm))) {
      fail_msg("%s: relative norm %g", cases[i].name, sqrt(error / norm));
    }
    // Running statistics moved three times in both.
    assert_memory_equal(one->blocks[BRIM_BLOCK_BUFFERS].data, many->blocks[BRIM_BLOCK_BUFFERS].data,
                        one->blocks[BRIM_BLOCK_BUFFERS].bytes);
    free(got);
    free(sum);
    test_batch_free(&b);
    brim_net_destroy(one);
    brim_net_destroy(many);
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
  model_case c = {.model = "resnet50", .dim = {32, 32, 3}, .rank = 3, .outputs = 10};
  spec_of(&c, &t);
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
  assert_int_equal(planned(device, &t), most);  // no limit, nothing to do
  t.spec.memory_limit = most;
  assert_int_equal(planned(device, &t), most);
  uint64_t before = most + 1;
  for (int i = 1; i <= 4; i++) {
    t.spec.memory_limit = most - (most - least) * (uint64_t)i / 4;
    uint64_t got = planned(device, &t);
    assert_true(got <= t.spec.memory_limit && got < before);
    before = got;
  }
  t.spec.memory_limit = 1;  // cannot be: as little as possible
  assert_true(planned(device, &t) <= least);
  brim_net_destroy(full);
  brim_net_destroy(all);
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

// Counts are those of torchvision's state dicts.
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
    model_case c = {.model = models[i].model, .dim = {224, 224, 3}, .rank = 3, .outputs = 1000};
    spec_of(&c, &t);
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

//---------------------------------- checkpoints ----------------------------------

static void test_checkpoint(void **state) {
  (void)state;
  static const char path[] = "test_engine_models.safetensors";
  brim_device *device = test_device_ref();
  for (int i = 0; i < 5; i++) {
    test_spec t;
    spec_of(&cases[i], &t);
    test_batch b;
    test_batch_make(&t.spec, 4, 3, &b);
    brim_net *net, *other;
    assert_ok(brim_net_create(device, &t.spec, &net));
    for (int64_t step = 1; step <= 3; step++) test_step(net, &t.spec, &b, 1, step, 0.05);
    assert_ok(brim_net_save(net, path, NULL, false));
    t.spec.seed = 77;
    brim_net_hooks hooks = {.channel_pad = 4};
    assert_ok(brim_net_create_hooked(device, &t.spec, &hooks, &other));
    assert_ok(brim_net_load(other, path, false, NULL));
    float a[16], c[16];
    brim_batch batch = test_batch_at(&t.spec, &b, 0, 4);
    assert_ok(brim_net_evaluate(net, &batch, NULL));
    assert_ok(brim_net_outputs(net, a, 4));
    assert_ok(brim_net_evaluate(other, &batch, NULL));
    assert_ok(brim_net_outputs(other, c, 4));
    assert_memory_equal(a, c, 4 * (size_t)cases[i].outputs * sizeof *a);
    assert_int_equal(other->batches, net->buffers.count ? 3 : other->batches);
    brim_safetensors *file;
    assert_ok(brim_safetensors_open(path, &file));
    if (cases[i].rank == 3) {
      const brim_safetensors_entry *e = brim_safetensors_find(file, "bn1.num_batches_tracked");
      assert_non_null(e);
      int64_t tracked;
      memcpy(&tracked, e->data, sizeof tracked);
      assert_true(e->dtype == BRIM_I64 && e->rank == 0 && tracked == 3);
      assert_non_null(brim_safetensors_find(file, "bn1.running_var"));
    }
    brim_safetensors_close(file);
    brim_net_destroy(net);
    brim_net_destroy(other);
    test_batch_free(&b);
  }
  test_device_close(device);
}

//---------------------------------- fp16 ----------------------------------

// A loss too steep for the first scale: steps are skipped and counted until the scale fits, weights
// untouched; the scale goes along in checkpoints and snapshots.
static void test_loss_scale(void **state) {
  (void)state;
  static const char path[] = "test_engine_models_fp16.safetensors";
  brim_device *device = test_device_ref();
  test_spec t;
  test_spec_init(&t);
  test_spec_mse(&t, 3);
  t.spec.precision = BRIM_PRECISION_FP16;
  for (int c = 0; c < 4; c++) t.spec.scale[c] = 30;
  test_batch b;
  test_batch_make(&t.spec, 5, 3, &b);
  for (int i = 0; i < 15; i++) ((float *)b.target)[i] *= 300;
  brim_net *net;
  assert_ok(brim_net_create(device, &t.spec, &net));
  size_t count = 0;
  float *before = test_params(net, &count);
  brim_net_metrics m;
  int64_t step = 1;
  test_step(net, &t.spec, &b, 1, step++, 1e-5);
  assert_ok(brim_net_read_metrics(net, true, &m));
  assert_int_equal(m.skipped_steps, 1);
  assert_true(m.loss_scale == 32768);
  float *after = test_params(net, &count);
  assert_memory_equal(before, after, count * sizeof *after);
  while (step < 20) test_step(net, &t.spec, &b, 1, step++, 1e-5);
  assert_ok(brim_net_read_metrics(net, true, &m));
  assert_true(m.skipped_steps > 1 && m.skipped_steps < 18);
  assert_true(m.loss_scale < 32768 && m.loss_scale >= 1);
  assert_true(isfinite(m.grad_norm) && m.grad_norm > 1);
  free(after);
  after = test_params(net, &count);
  assert_memory_not_equal(before, after, count * sizeof *after);
  double scale = m.loss_scale;
  assert_ok(brim_net_snapshot(net));
  assert_ok(brim_net_save(net, path, NULL, false));
  brim_net *other;
  assert_ok(brim_net_create(device, &t.spec, &other));
  assert_ok(brim_net_load(other, path, false, NULL));
  assert_ok(brim_net_read_metrics(other, true, &m));
  assert_true(m.loss_scale == scale);
  // A run in another precision takes the file too.
  t.spec.precision = BRIM_PRECISION_FP32;
  brim_net *wide;
  assert_ok(brim_net_create(device, &t.spec, &wide));
  assert_ok(brim_net_load(wide, path, false, NULL));
  assert_ok(brim_net_read_metrics(wide, true, &m));
  assert_true(m.loss_scale == 1);
  brim_net_destroy(wide);
  brim_net_destroy(other);
  brim_net_destroy(net);
  free(before);
  free(after);
  test_batch_free(&b);
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
  };
  brim_device *device = test_device_ref();
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    test_spec t;
    model_case c = {.model = bad[i].model, .dim = {24, 24, 3}, .rank = 3, .outputs = 3};
    if (strcmp(c.model, "transformer") == 0)
      c = (model_case){.model = c.model, .dim = {24, 2}, .rank = 2, .outputs = 3};
    spec_of(&c, &t);
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
      cmocka_unit_test(test_gradients),     cmocka_unit_test(test_contrastive),
      cmocka_unit_test(test_recompute_ref), cmocka_unit_test(test_recompute_cpu),
      cmocka_unit_test(test_padding),       cmocka_unit_test(test_accumulation),
      cmocka_unit_test(test_memory_limit),  cmocka_unit_test(test_names),
      cmocka_unit_test(test_checkpoint),    cmocka_unit_test(test_loss_scale),
      cmocka_unit_test(test_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
