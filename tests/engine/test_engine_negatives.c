// Exact accumulation: micro-batches whose loss covers the whole step. Compared with one batch of all samples in memory,
// with batch norm over groups of a micro-batch; and with itself in other forms (recorded, op by op, late, with
// recomputation). Absent devices are skipped.
#include <math.h>

#include "engine_lazy.h"
#include "engine_models_test.h"
#include "engine_on.h"

enum { PARTS = 4 };

typedef struct task {
  test_spec t;
  test_component backbone;
} task;

// SimCLR of a small ResNet-18 on `side` x `side` images, micro-batches of `batch` samples.
static void make_task(task *k, int64_t side, int64_t width, int64_t batch) {
  test_model c = {.name = "simclr",
                  .model = "simclr",
                  .dim = {side, side, 3},
                  .rank = 3,
                  .outputs = 5,
                  .mse = true};
  test_model_spec(&c, &k->t);
  test_component_init(&k->t.model, "simclr");
  test_component_init(&k->backbone, "resnet18");
  test_component_int(&k->backbone, "width", width);
  k->t.model.args[0] = (brim_argument){
      .name = "backbone", .value = {.kind = BRIM_VALUE_COMPONENT, .component = &k->backbone.c}};
  k->t.model.c.arg_count = 1;
  test_component_int(&k->t.model, "hidden", 16);
  test_component_int(&k->t.model, "dim", 12);
  test_component_init(&k->t.loss, "ntxent");
  k->t.spec.model = &k->t.model.c;
  k->t.spec.loss = &k->t.loss.c;
  k->t.spec.optimizer = &k->t.optimizer.c;
  k->t.spec.input_dtype = BRIM_U8;
  k->t.spec.scale[0] = k->t.spec.scale[1] = k->t.spec.scale[2] = 1.0f / 64;
  k->t.spec.shift[0] = k->t.spec.shift[1] = k->t.spec.shift[2] = -2.0f;
  k->t.spec.channels = 3;
  k->t.spec.views = 2;
  k->t.spec.batch = batch;
  k->t.spec.accumulation = PARTS;
  k->t.spec.full_batch_negatives = true;
}

static size_t micro_bytes(const brim_net_spec *s) {
  return (size_t)(s->batch * 2 * s->input_dim[0] * s->input_dim[1] * s->input_dim[2]);
}

// The first views of a micro-batch, then its second views, which resemble them.
static uint8_t *make_inputs(const brim_net_spec *s, int parts, uint64_t seed) {
  size_t bytes = micro_bytes(s), half = bytes / 2;
  uint8_t *all = malloc(bytes * (size_t)parts);
  assert_non_null(all);
  for (int k = 0; k < parts; k++) {
    for (size_t i = 0; i < half; i++) {
      uint64_t at = (uint64_t)k * half + i;
      double v = test_random(seed, at), w = test_random(seed + 1, at);
      all[(size_t)k * bytes + i] = (uint8_t)(v * 255);
      all[(size_t)k * bytes + half + i] = (uint8_t)((0.7 * v + 0.3 * w) * 255);
    }
  }
  return all;
}

static void train(brim_net *net, const brim_net_spec *s, const uint8_t *inputs, int parts,
                  int64_t step, bool update) {
  int64_t rows = s->batch * 2;
  for (int k = 0; k < parts; k++) {
    brim_net_micro micro = {.batch = {.input = inputs + (size_t)k * micro_bytes(s),
                                      .rows = rows,
                                      .row_offset = k * rows},
                            .step = step,
                            .step_rows = parts * rows,
                            .first = k == 0};
    bool last = update && k + 1 == parts;
    assert_ok(last ? brim_net_step(net, &micro, 0.1, NULL) : brim_net_train(net, &micro, NULL));
  }
}

//---------------------------------- the whole batch ----------------------------------

typedef struct whole {
  brim_net *net;
  brim_op_call loss;
  int64_t rows, dim;
  unsigned char *z, *dz, *target;
} whole;

static unsigned char *device_bytes(brim_device *device, size_t bytes) {
  void *data = NULL;
  assert_ok(brim_device_alloc(device, BRIM_BUFFER_DEVICE, bytes, &data));
  return data;
}

// One batch of all samples. Its rows are in the order of the micro-batches, and so are its groups.
static void whole_open(brim_device *device, const task *k, bool planning, whole *w) {
  brim_net_spec s = k->t.spec;
  s.batch *= PARTS;
  s.accumulation = 1;
  s.full_batch_negatives = false;
  const brim_net_hooks hooks = {.norm_groups = PARTS, .given_grad = true};
  memset(w, 0, sizeof *w);
  if (planning) {
    assert_ok(brim_net_build(device, &s, &hooks, true, &w->net));
    return;
  }
  assert_ok(brim_net_create_hooked(device, &s, &hooks, &w->net));
  w->rows = s.batch * 2;
  w->dim = w->net->outputs_per_row;
  const int64_t z[] = {w->rows, w->dim}, states = BRIM_STATE_COUNT, metrics = BRIM_METRIC_COUNT;
  brim_op_call *c = &w->loss;
  brim_loss loss;
  assert_ok(brim_loss_find(&s, &loss));
  c->op = loss.row->op;
  c->attr = loss.attr;
  c->in_count = c->out_count = 2;
  c->in[0] = c->out[1] = brim_tensor_make(NULL, w->net->compute, 2, z);
  c->in[1] = brim_tensor_make(NULL, BRIM_F64, 1, &states);
  c->out[0] = brim_tensor_make(NULL, BRIM_F32, 1, &metrics);
  assert_ok(brim_op_prepare(device, c));
  size_t bytes = brim_tensor_bytes(&c->in[0]);
  w->z = device_bytes(device, bytes);
  w->dz = device_bytes(device, bytes);
  w->target = device_bytes(device, bytes);
  c->in[0].data = w->z;
  c->in[1].data = brim_net_state_ptr(w->net);
  c->out[0].data = brim_net_metrics_ptr(w->net);
  c->out[1].data = w->dz;
  if (c->workspace_bytes) c->workspace = device_bytes(device, c->workspace_bytes);
}

static void whole_close(brim_device *device, whole *w) {
  brim_op_release(device, &w->loss);
  brim_net_destroy(w->net);
  void *all[] = {w->z, w->dz, w->target, w->loss.workspace};
  for (int i = 0; i < 4; i++) {
    if (all[i]) brim_device_free(device, BRIM_BUFFER_DEVICE, all[i]);
  }
}

// Reorders rows: `to_pairs` from the order of micro-batches to all first views, then all second views.
static void reorder(brim_device *device, const whole *w, unsigned char *to,
                    const unsigned char *from, bool to_pairs) {
  size_t half = (size_t)(w->rows / PARTS / 2 * w->dim) * brim_dtype_size(w->net->compute);
  for (size_t k = 0; k < PARTS; k++) {
    for (size_t v = 0; v < 2; v++) {
      size_t grouped = (k * 2 + v) * half, paired = (v * PARTS + k) * half;
      assert_ok(brim_device_copy(device, to + (to_pairs ? paired : grouped),
                                 from + (to_pairs ? grouped : paired), half, BRIM_COPY_D2D));
    }
  }
}

static void whole_train(brim_device *device, whole *w, const uint8_t *inputs) {
  brim_net *net = w->net;
  int slot = 0;
  unsigned char *staged = NULL, *target = w->target;
  brim_batch b = {.input = inputs, .target = w->target, .rows = w->rows};
  if (!device->info.host_memory) {
    size_t bytes = (size_t)w->rows * net->train.input_row_bytes;
    staged = device_bytes(device, bytes);
    assert_ok(brim_device_copy(device, staged, inputs, bytes, BRIM_COPY_H2D));
    b.input = staged;
    b.on_device = true;
  }
  assert_ok(brim_exec_feed(net, &net->train, &b, NULL, &slot));
  if (!device->info.host_memory) {
    unsigned char *input;
    brim_exec_slot(net, slot, &input, &target);
  }
  net->state[BRIM_STATE_STEP] = 1;
  net->state[BRIM_STATE_ROWS] = (double)w->rows;
  net->state[BRIM_STATE_SAMPLES] = (double)(w->rows / 2);
  net->state[BRIM_STATE_GRAD_SCALE] = 2.0 / (double)w->rows;
  net->state[BRIM_STATE_ROW_OFFSET] = 0;
  assert_ok(brim_exec_run(net, BRIM_EXEC_FORWARD, slot, NULL));
  const brim_program *p = &net->train;
  reorder(device, w, w->z, net->blocks[BRIM_BLOCK_ARENA].data + p->places.offset[p->output], true);
  assert_ok(brim_op_run(device, &w->loss));
  reorder(device, w, target, w->dz, false);
  assert_ok(brim_exec_run(net, BRIM_EXEC_BACKWARD_FIRST, slot, NULL));
  assert_ok(brim_device_sync(device));
  if (staged) brim_device_free(device, BRIM_BUFFER_DEVICE, staged);
}

static double relative_norm(const float *a, const float *b, size_t count) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < count; i++) {
    difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    norm += (double)b[i] * (double)b[i];
  }
  assert_true(norm > 0);
  return sqrt(difference / norm);
}

static float *whole_grads(brim_device *device, const task *k, size_t *count,
                          brim_net_metrics *metrics) {
  uint8_t *inputs = make_inputs(&k->t.spec, PARTS, 11);
  whole w;
  whole_open(device, k, false, &w);
  whole_train(device, &w, inputs);
  float *grads = test_grads(w.net, count);
  assert_ok(brim_net_read_metrics(w.net, true, metrics));
  free(inputs);
  whole_close(device, &w);
  return grads;
}

// Asserts the same gradient and the same losses.
static void compare_with_whole(brim_device *device, const task *k, double tolerance) {
  size_t count, other;
  brim_net_metrics a, b;
  float *expected = whole_grads(device, k, &count, &a);
  uint8_t *inputs = make_inputs(&k->t.spec, PARTS, 11);
  brim_net *net;
  assert_ok(brim_net_create(device, &k->t.spec, &net));
  train(net, &k->t.spec, inputs, PARTS, 1, false);
  float *got = test_grads(net, &other);
  assert_int_equal(count, other);
  double apart = relative_norm(got, expected, count);
  if (!(apart <= tolerance)) fail_msg("gradients are %g apart, not %g", apart, tolerance);
  printf("%lld samples: gradients are %.2g apart\n", (long long)(PARTS * k->t.spec.batch), apart);
  assert_ok(brim_net_read_metrics(net, true, &b));
  assert_true(b.rows == (double)(PARTS * k->t.spec.batch));
  assert_true(a.rows == b.rows && a.correct == b.correct);
  assert_true(fabs(a.loss_sum - b.loss_sum) <= 1e-3 * a.loss_sum);
  free(expected);
  free(got);
  free(inputs);
  brim_net_destroy(net);
}

static void compare_all_ways(brim_device *device, task *k, double tolerance) {
  compare_with_whole(device, k, tolerance);
  k->t.spec.recompute = BRIM_RECOMPUTE_ALL;
  compare_with_whole(device, k, tolerance);
  k->t.spec.eager = true;
  compare_with_whole(device, k, tolerance);
}

static void gradient(brim_device *device) {
  task k;
  bool plain_loops = strcmp(device->backend->name, "ref") == 0;
  if (plain_loops) {
    make_task(&k, 8, 2, 3);
  } else if (!test_is_full()) {
    make_task(&k, 16, 8, 4);
  } else {
    make_task(&k, 32, 16, 16);
  }
  compare_all_ways(device, &k, 1e-4);
}

// cuDNN sums a batch of 64 in another order than one of 16. So of fifteen million ReLUs a few with an input of almost
// zero switch. A small network has none of these; in a large one the whole batch's gradient differs as much between two
// devices.
static void gradient_of_gpu(brim_device *device) {
  task k;
  make_task(&k, 8, 2, 3);
  compare_all_ways(device, &k, 1e-4);
  brim_device *host = test_device_cpu();
  if (!host) return;
  make_task(&k, 32, 16, 16);
  size_t count, other;
  brim_net_metrics m;
  float *here = whole_grads(device, &k, &count, &m), *there = whole_grads(host, &k, &other, &m);
  assert_int_equal(count, other);
  double rounding = relative_norm(here, there, count);
  free(here);
  free(there);
  test_device_close(host);
  printf("the whole batch on the CPU is %.2g away\n", rounding);
  assert_true(rounding < 5e-3);
  compare_all_ways(device, &k, rounding > 0.5e-4 ? 2 * rounding : 1e-4);
}

// ResNet-18 with images of 96 x 96, 512 = 128 x 4, as in configs/stl10_config.yaml.
static void make_whole_task(task *k) {
  make_task(k, 96, 64, 128);
  test_component_int(&k->t.model, "hidden", 512);
  test_component_int(&k->t.model, "dim", 128);
}

static void test_gradient_of_512(void **state) {
  (void)state;
  if (!getenv("BRIM_TEST_LARGE")) BRIM_SKIP("needs a minute and 3.3 GB: set BRIM_TEST_LARGE=1");
  brim_device *device = test_device_cpu();
  if (!device) BRIM_SKIP(brim_status_detail());
  task k;
  make_whole_task(&k);
  compare_with_whole(device, &k, 1e-4);
  test_device_close(device);
}

// Without exact accumulation the negatives are those of the micro-batch: another gradient. So the check above can fail.
static void plain_differs(brim_device *device) {
  task k;
  make_task(&k, 8, 2, 3);
  uint8_t *inputs = make_inputs(&k.t.spec, PARTS, 11);
  brim_net *exact, *plain;
  assert_ok(brim_net_create(device, &k.t.spec, &exact));
  k.t.spec.full_batch_negatives = false;
  assert_ok(brim_net_create(device, &k.t.spec, &plain));
  train(exact, &k.t.spec, inputs, PARTS, 1, false);
  train(plain, &k.t.spec, inputs, PARTS, 1, false);
  size_t count;
  float *a = test_grads(exact, &count), *b = test_grads(plain, &count);
  assert_true(relative_norm(a, b, count) > 0.01);
  free(a);
  free(b);
  free(inputs);
  brim_net_destroy(exact);
  brim_net_destroy(plain);
}

//---------------------------------- running statistics ----------------------------------

// Running statistics move once a micro-batch, as without exact accumulation. With one micro-batch it changes nothing.
static void statistics(brim_device *device) {
  task k;
  make_task(&k, 8, 2, 3);
  uint8_t *inputs = make_inputs(&k.t.spec, PARTS, 5);
  brim_net *net[2];
  unsigned char *buffers[2];
  for (int i = 0; i < 2; i++) {
    k.t.spec.full_batch_negatives = i == 1;
    assert_ok(brim_net_create(device, &k.t.spec, &net[i]));
    train(net[i], &k.t.spec, inputs, PARTS, 1, false);
    buffers[i] = test_block(net[i], BRIM_BLOCK_BUFFERS);
    assert_int_equal(net[i]->batches, PARTS);
  }
  assert_memory_equal(buffers[0], buffers[1], net[0]->blocks[BRIM_BLOCK_BUFFERS].bytes);
  for (int i = 0; i < 2; i++) {
    free(buffers[i]);
    brim_net_destroy(net[i]);
  }
  k.t.spec.accumulation = 1;
  assert_ok(brim_net_create(device, &k.t.spec, &net[0]));
  assert_int_equal(net[0]->blocks[BRIM_BLOCK_REPLAY].bytes, 0);
  brim_net_destroy(net[0]);
  free(inputs);
}

//---------------------------------- how it is run ----------------------------------

static float *train_steps(brim_device *device, const task *k, bool poison, size_t *count) {
  const brim_net_hooks hooks = {.poison = poison};
  brim_net *net;
  assert_ok(brim_net_create_hooked(device, &k->t.spec, &hooks, &net));
  for (int step = 1; step <= 5; step++) {
    int parts = step == 4 ? PARTS - 1 : PARTS;  // an epoch's last step may be short
    uint8_t *inputs = make_inputs(&k->t.spec, parts, (uint64_t)step);
    train(net, &k->t.spec, inputs, parts, step, true);
    free(inputs);
  }
  float *params = test_params(net, count);
  brim_net_destroy(net);
  return params;
}

static void same_bits(brim_device *device, const task *k, brim_device *other, const task *l) {
  size_t count, again;
  float *a = train_steps(device, k, false, &count), *b = train_steps(other, l, true, &again);
  assert_int_equal(count, again);
  assert_memory_equal(a, b, count * sizeof *a);
  for (size_t i = 0; i < count; i++) assert_true(isfinite(a[i]) != 0);
  free(a);
  free(b);
}

static void recorded(brim_device *device) {
  task k, eager;
  make_task(&k, 8, 2, 3);
  make_task(&eager, 8, 2, 3);
  same_bits(device, &k, device, &k);
  for (int refuse = 0; refuse < 4; refuse++) {
    brim_device *late = lazy_open(refuse);
    same_bits(device, &k, late, &k);
    lazy_close(late);
  }
  brim_device *late = lazy_open(0);
  eager.t.spec.eager = true;
  same_bits(device, &eager, late, &eager);
  lazy_close(late);
}

// Recorded pieces against op by op, on a device where both use the same fused kernels, or none.
static void repeats(brim_device *device) {
  static const brim_precision precisions[] = {BRIM_PRECISION_FP32, BRIM_PRECISION_BF16};
  for (int i = 0; i < 2; i++) {
    task k;
    if (device->info.host_memory && !test_is_full()) {
      make_task(&k, 16, 8, 4);
    } else {
      make_task(&k, 32, 16, 16);
    }
    k.t.spec.precision = precisions[i];
    same_bits(device, &k, device, &k);
  }
}

static void order(brim_device *device) {
  task k;
  make_task(&k, 8, 2, 3);
  uint8_t *inputs = make_inputs(&k.t.spec, PARTS, 5);
  brim_net *net;
  assert_ok(brim_net_create(device, &k.t.spec, &net));
  brim_net_micro micro = {.batch = {.input = inputs, .rows = 6}, .step = 1, .step_rows = 24};
  micro.batch.row_offset = 6;
  assert_status(brim_net_train(net, &micro, NULL), BRIM_EINVAL);  // the first is missing
  micro.batch.row_offset = 0;
  micro.first = true;
  assert_status(brim_net_step(net, &micro, 0.1, NULL), BRIM_EINVAL);  // three are missing
  assert_ok(brim_net_train(net, &micro, NULL));
  micro.first = false;
  micro.batch.row_offset = 12;
  assert_status(brim_net_train(net, &micro, NULL), BRIM_EINVAL);
  brim_net_destroy(net);
  free(inputs);
}

//---------------------------------- memory ----------------------------------

static size_t activations(const brim_net *net) {
  return net->blocks[BRIM_BLOCK_ARENA].bytes + net->blocks[BRIM_BLOCK_EMBEDDINGS].bytes;
}

// ResNet-18 on 96 x 96 images, 512 = 128 x 4: the plan, and on a GPU the memory really taken.
static void memory(brim_device *device) {
  task k;
  make_whole_task(&k);
  whole w;
  whole_open(device, &k, true, &w);
  brim_net *net;
  assert_ok(brim_net_build(device, &k.t.spec, NULL, true, &net));
  size_t all = activations(w.net), part = activations(net), others = 0;
  assert_true((double)part <= 0.35 * (double)all);
  for (int i = 0; i < BRIM_BLOCK_COUNT; i++) others += net->blocks[i].bytes;
  others -= part;
  brim_net_destroy(net);
  brim_net_destroy(w.net);
  if (device->info.host_memory) return;
  uint64_t before, after, total;
  for (int turn = 0; turn < 2; turn++) {  // the first turn loads libraries
    assert_ok(brim_device_sync(device));
    assert_ok(brim_device_memory(device, &before, &total));
    assert_ok(brim_net_create(device, &k.t.spec, &net));
    uint8_t *inputs = make_inputs(&k.t.spec, PARTS, 5);
    train(net, &k.t.spec, inputs, PARTS, 1, true);
    assert_ok(brim_device_sync(device));
    assert_ok(brim_device_memory(device, &after, &total));
    free(inputs);
    brim_net_destroy(net);
  }
  assert_true(before > after);
  double taken = (double)(before - after) - (double)others;
  if (taken > 0.35 * (double)all) {
    fail_msg("%.0f MB taken, the whole batch plans %.0f MB", taken * 1e-6, (double)all * 1e-6);
  }
}

//---------------------------------- devices ----------------------------------

int main(void) {
  const struct CMUnitTest tests[] = {
      ON(gradient, ref),      ON(gradient, cpu),   ON(gradient_of_gpu, cuda),
      ON(plain_differs, ref), ON(statistics, ref), ON(statistics, cpu),
      ON(statistics, cuda),   ON(recorded, ref),   ON(repeats, cpu),
      ON(repeats, cuda),      ON(order, ref),      ON(memory, ref),
      ON(memory, cpu),        ON(memory, cuda),    cmocka_unit_test(test_gradient_of_512),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
