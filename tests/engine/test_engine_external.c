// A loss outside the engine: forward to device outputs, the caller's own work, backward from the gradient it wrote.
// Against the built-in loss: the same bits, op by op and recorded, with micro-batches, on ref, on a device that is as
// late as it may be, and on cpu and CUDA if they are here.
#include "engine_lazy.h"
#include "engine_on.h"

enum { STEPS = 7, BATCH = 8, FEATURES = 6 };

//---------------------------------- the two ways ----------------------------------

typedef struct setting {
  bool mse;
  int64_t accumulation;
  brim_precision precision;
  bool recorded;
} setting;

static void make_spec(test_spec *t, const setting *s) {
  test_spec_init(t);
  test_component_int(&t->model, "hidden", 24);
  test_component_float(&t->model, "dropout", 0.3);
  test_component_string(&t->model, "norm", "layer");
  test_component_init(&t->optimizer, "adam");
  if (s->mse) test_spec_mse(t, 5);
  t->spec.batch = BATCH;
  t->spec.eval_batch = 4;
  t->spec.accumulation = s->accumulation;
  t->spec.clip_norm = 0.5;
  t->spec.ema_decay = 0.9;
  t->spec.precision = s->precision;
}

// The same network; the caller computes its loss.
static void make_external(test_spec *t, const setting *s) {
  make_spec(t, s);
  t->spec.external_loss = true;
  t->spec.loss = NULL;
  if (!s->mse) t->spec.target_dim = t->spec.classes;
  t->spec.classes = 0;
}

typedef struct result {
  float *params, *grads;
  size_t count;
  brim_net_metrics metrics;
  float outputs[4 * 5];
} result;

static void result_free(result *r) {
  free(r->params);
  free(r->grads);
}

static void same_result(const result *a, const result *b) {
  assert_int_equal(a->count, b->count);
  assert_memory_equal(a->params, b->params, a->count * sizeof *a->params);
  assert_memory_equal(a->grads, b->grads, a->count * sizeof *a->grads);
  assert_memory_equal(a->outputs, b->outputs, sizeof a->outputs);
  assert_true(a->metrics.loss_sum == b->metrics.loss_sum);
  assert_true(a->metrics.correct == b->metrics.correct);
  assert_true(a->metrics.rows == b->metrics.rows);
  assert_true(a->metrics.grad_norm == b->metrics.grad_norm);
  assert_true(a->metrics.loss_scale == b->metrics.loss_scale);
  assert_int_equal(a->metrics.skipped_steps, b->metrics.skipped_steps);
}

// Given by the caller: targets on the device, and a loss as an op of its own.
typedef struct outside {
  brim_device *device;
  brim_op_call loss;
  void *target, *workspace;
} outside;

static void outside_open(brim_device *device, brim_net *net, const test_spec *t, outside *o) {
  brim_net_external e;
  assert_ok(brim_net_external_loss(net, &e));
  bool values = t->spec.classes == 0;
  int64_t dim[] = {BATCH, e.output.dim[1]};
  memset(o, 0, sizeof *o);
  o->device = device;
  size_t bytes = (size_t)BATCH * (values ? (size_t)dim[1] : 1) * 4;
  assert_ok(brim_device_alloc(device, BRIM_BUFFER_DEVICE, bytes, &o->target));
  o->loss = (brim_op_call){
      .op = values ? BRIM_OP_MSE : BRIM_OP_XENT, .in_count = 3, .out_count = 2, .in = {e.output}};
  o->loss.in[1] = brim_tensor_make(o->target, values ? BRIM_F32 : BRIM_I32, values ? 2 : 1, dim);
  o->loss.in[2] = e.state;
  o->loss.out[0] = e.metrics;
  o->loss.out[1] = e.gradient;
  assert_ok(brim_op_prepare(device, &o->loss));
  bytes = o->loss.workspace_bytes;
  if (bytes) assert_ok(brim_device_alloc(device, BRIM_BUFFER_DEVICE, bytes, &o->workspace));
  o->loss.workspace = o->workspace;
}

static void outside_close(outside *o) {
  assert_ok(brim_device_sync(o->device));
  brim_op_release(o->device, &o->loss);
  brim_device_free(o->device, BRIM_BUFFER_DEVICE, o->target);
  brim_device_free(o->device, BRIM_BUFFER_DEVICE, o->workspace);
}

static void outside_loss(outside *o, const brim_batch *b) {
  size_t bytes = brim_tensor_bytes(&o->loss.in[1]);
  assert_ok(brim_device_copy(o->device, o->target, b->target, bytes, BRIM_COPY_H2D));
  assert_ok(brim_op_run(o->device, &o->loss));
  assert_ok(brim_device_sync(o->device));  // the target is the test's memory
}

// Micro-batch k of the step; the last one of step 4 is short.
static brim_net_micro micro_of(const test_spec *t, const test_batch *b, int64_t step, int64_t k) {
  int64_t parts = t->spec.accumulation, all = parts * BATCH - (step == 4 ? 3 : 0);
  int64_t rows = all - k * BATCH < BATCH ? all - k * BATCH : BATCH;
  brim_net_micro micro = {.batch = test_batch_at(&t->spec, b, ((step + k) % 5) * BATCH, rows),
                          .step = step,
                          .step_rows = all,
                          .first = k == 0};
  micro.batch.row_offset = k * BATCH;
  return micro;
}

static void evaluate(brim_net *net, const test_spec *t, const test_batch *b, result *r) {
  brim_net_metrics ignored;
  brim_batch batch = test_batch_at(&t->spec, b, 1, 4);
  assert_ok(brim_net_evaluate(net, &batch, NULL));
  assert_ok(brim_net_outputs(net, r->outputs, 4));
  assert_ok(brim_net_read_metrics(net, true, &ignored));
}

static void leave(brim_net *net, result *r) {
  r->params = test_params(net, &r->count);
  r->grads = test_grads(net, &r->count);
  brim_net_destroy(net);
}

static void run_built_in(brim_device *device, const setting *s, result *r) {
  test_spec t;
  brim_net *net;
  test_batch b;
  make_spec(&t, s);
  memset(r, 0, sizeof *r);
  test_batch_make(&t.spec, 5 * BATCH, 77, &b);
  assert_ok(brim_net_create(device, &t.spec, &net));
  net->exec.capture.on = net->exec.capture.on && s->recorded;
  for (int64_t step = 1; step <= STEPS; step++) {
    for (int64_t k = 0; k < s->accumulation; k++) {
      brim_net_micro micro = micro_of(&t, &b, step, k);
      if (k + 1 < s->accumulation) {
        assert_ok(brim_net_train(net, &micro, NULL));
      } else {
        assert_ok(brim_net_step(net, &micro, 0.01, NULL));
      }
    }
  }
  assert_ok(brim_net_read_metrics(net, true, &r->metrics));
  evaluate(net, &t, &b, r);
  leave(net, r);
  test_batch_free(&b);
}

// parts: the update is a separate call.
static void run_outside(brim_device *device, const setting *s, bool parts, result *r) {
  test_spec t, data;
  brim_net *net;
  test_batch b;
  outside o;
  make_external(&t, s);
  make_spec(&data, s);
  memset(r, 0, sizeof *r);
  test_batch_make(&data.spec, 5 * BATCH, 77, &b);
  assert_ok(brim_net_create(device, &t.spec, &net));
  net->exec.capture.on = net->exec.capture.on && s->recorded;
  outside_open(device, net, &data, &o);
  for (int64_t step = 1; step <= STEPS; step++) {
    for (int64_t k = 0; k < s->accumulation; k++) {
      brim_net_micro micro = micro_of(&data, &b, step, k);
      bool last = k + 1 == s->accumulation;
      assert_ok(brim_net_forward(net, &micro, NULL));
      outside_loss(&o, &micro.batch);
      if (last && !parts) {
        assert_ok(brim_net_backward_step(net, 0.01, NULL));
        continue;
      }
      assert_ok(brim_net_backward(net, NULL));
      if (last) assert_ok(brim_net_update(net, step, 0.01, NULL));
    }
  }
  assert_ok(brim_net_read_metrics(net, true, &r->metrics));
  assert_int_equal(brim_net_loss_metrics(net), 0);
  evaluate(net, &data, &b, r);
  bool graphs = brim_device_has_graphs(device) && s->recorded;
  assert_true(net->exec.capture.on == graphs);  // recording succeeded
  if (graphs) assert_non_null(net->exec.pieces[BRIM_EXEC_FORWARD][0].graph);
  outside_close(&o);
  leave(net, r);
  test_batch_free(&b);
}

//---------------------------------- equal bits ----------------------------------

static const brim_precision precisions[] = {BRIM_PRECISION_FP32, BRIM_PRECISION_BF16,
                                            BRIM_PRECISION_FP16};

static void same_bits(brim_device *device) {
  int compared = 0;
  for (int i = 0; i < 24; i++) {
    setting s = {.mse = i & 1,
                 .accumulation = i & 2 ? 3 : 1,
                 .recorded = i & 4,
                 .precision = precisions[i / 8]};
    test_spec t;
    brim_plan plan = {0};
    make_spec(&t, &s);
    if (s.recorded && !brim_device_has_graphs(device)) continue;
    if (brim_net_plan(device, &t.spec, &plan) == BRIM_EUNSUPPORTED) continue;
    result built_in, apart, whole;
    run_built_in(device, &s, &built_in);
    run_outside(device, &s, true, &apart);
    run_outside(device, &s, false, &whole);
    assert_true(built_in.metrics.rows == (double)(STEPS * s.accumulation * BATCH - 3));
    same_result(&built_in, &apart);
    same_result(&built_in, &whole);
    result_free(&built_in);
    result_free(&apart);
    result_free(&whole);
    compared++;
  }
  assert_true(compared >= 4);
}

static brim_device *test_device_late(void) { return lazy_open(0); }

static void test_late(void **state) {
  (void)state;
  brim_device *device = test_device_late();
  same_bits(device);
  assert_true(lazy_count(device)->captures > 0);
  lazy_close(device);
}

// A loss in plain C on outputs in host memory: the engine does not know it.
static void squared_error(const brim_net_external *e, const float *target) {
  const double *state = e->state.data;
  const float *y = e->output.data;
  float *gradient = e->gradient.data;
  int64_t width = e->output.dim[1];
  double scale = state[BRIM_STATE_GRAD_SCALE] * state[BRIM_STATE_LOSS_SCALE] * 2 / (double)width;
  for (int64_t row = 0; row < BATCH; row++) {
    bool valid = row < (int64_t)state[BRIM_STATE_ROWS];
    for (int64_t i = row * width; i < (row + 1) * width; i++) {
      gradient[i] = valid ? (float)(((double)y[i] - (double)target[i]) * scale) : 0;
    }
  }
}

static void test_plain_loss(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  for (int64_t accumulation = 1; accumulation <= 3; accumulation += 2) {
    setting s = {.mse = true, .accumulation = accumulation};
    test_spec t, data;
    make_external(&t, &s);
    make_spec(&data, &s);
    result built_in;
    run_built_in(device, &s, &built_in);
    brim_net *net;
    brim_net_external e;
    test_batch b;
    test_batch_make(&data.spec, 5 * BATCH, 77, &b);
    assert_ok(brim_net_create(device, &t.spec, &net));
    assert_ok(brim_net_external_loss(net, &e));
    for (int64_t step = 1; step <= STEPS; step++) {
      for (int64_t k = 0; k < accumulation; k++) {
        brim_net_micro micro = micro_of(&data, &b, step, k);
        assert_ok(brim_net_forward(net, &micro, NULL));
        squared_error(&e, micro.batch.target);
        if (k + 1 < accumulation) {
          assert_ok(brim_net_backward(net, NULL));
        } else {
          assert_ok(brim_net_backward_step(net, 0.01, NULL));
        }
      }
    }
    size_t count;
    float *params = test_params(net, &count);
    assert_memory_equal(params, built_in.params, count * sizeof *params);
    free(params);
    brim_net_destroy(net);
    result_free(&built_in);
    test_batch_free(&b);
  }
  test_device_close(device);
}

//---------------------------------- memory ----------------------------------

static brim_alloc_stats stats(void) {
  brim_alloc_stats s;
  brim_alloc_get_stats(&s);
  return s;
}

// Allocated bytes equal planned bytes, a step allocates nothing, and the caller's loss needs no room in the arena.
static void planned(brim_device *device) {
  setting s = {.mse = true, .accumulation = 2};
  test_spec t, data;
  brim_plan plan = {0}, own = {0};
  make_external(&t, &s);
  make_spec(&data, &s);
  assert_ok(brim_net_plan(device, &t.spec, &plan));
  assert_ok(brim_net_plan(device, &data.spec, &own));
  assert_true(plan.bytes[BRIM_PLACE_DEVICE] <= own.bytes[BRIM_PLACE_DEVICE]);
  assert_true(plan.flops_per_step < own.flops_per_step);
  uint64_t before = stats().live_bytes[BRIM_MEM_PLANNED];
  brim_net *net;
  test_batch b;
  outside o;
  test_batch_make(&data.spec, 5 * BATCH, 77, &b);
  assert_ok(brim_net_create(device, &t.spec, &net));
  assert_int_equal(stats().live_bytes[BRIM_MEM_PLANNED], before + plan.bytes[BRIM_PLACE_DEVICE]);
  outside_open(device, net, &data, &o);
  uint64_t calls = 0;
  for (int64_t step = 1; step <= 3; step++) {
    if (step == 2) calls = stats().calls;
    for (int64_t k = 0; k < 2; k++) {
      brim_net_micro micro = micro_of(&data, &b, step, k);
      assert_ok(brim_net_forward(net, &micro, NULL));
      outside_loss(&o, &micro.batch);
      assert_ok(k ? brim_net_backward_step(net, 0.01, NULL) : brim_net_backward(net, NULL));
    }
  }
  assert_int_equal(stats().calls, calls);
  outside_close(&o);
  brim_net_destroy(net);
  test_batch_free(&b);
}

//---------------------------------- order ----------------------------------

static void expect(brim_status status, const char *text) {
  assert_int_equal(status, BRIM_ESTATE);
  assert_non_null(strstr(brim_status_detail(), text));
}

// Passes in another order are refused, and any computation in between ends the forward pass.
static void test_order(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  setting s = {.mse = true, .accumulation = 1};
  test_spec t, data;
  brim_net *net, *own;
  brim_net_external e;
  test_batch b;
  make_external(&t, &s);
  make_spec(&data, &s);
  test_batch_make(&data.spec, 5 * BATCH, 77, &b);
  assert_ok(brim_net_create(device, &t.spec, &net));
  assert_ok(brim_net_create(device, &data.spec, &own));
  brim_net_micro micro = micro_of(&data, &b, 1, 0);
  expect(brim_net_external_loss(own, &e), "a loss of its own");
  expect(brim_net_forward(own, &micro, NULL), "a loss of its own");
  expect(brim_net_backward(own, NULL), "a loss of its own");
  expect(brim_net_train(net, &micro, NULL), "no loss of its own");
  expect(brim_net_step(net, &micro, 0.01, NULL), "no loss of its own");
  expect(brim_net_backward(net, NULL), "no forward pass");
  expect(brim_net_backward_step(net, 0.01, NULL), "no forward pass");
  brim_tensor out;
  expect(brim_net_output_tensor(net, &out), "no outputs");
  assert_ok(brim_net_external_loss(net, &e));
  assert_ok(brim_net_forward(net, &micro, NULL));
  brim_batch batch = test_batch_at(&data.spec, &b, 0, 4);
  assert_ok(brim_net_evaluate(net, &batch, NULL));
  assert_ok(brim_net_output_tensor(net, &out));
  assert_int_equal(out.dim[0], 4);
  float outputs[4 * 5];
  assert_ok(brim_net_outputs(net, outputs, 4));
  assert_memory_equal(outputs, out.data, sizeof outputs);  // ref computes in host memory
  expect(brim_net_backward(net, NULL), "no forward pass");
  assert_ok(brim_net_forward(net, &micro, NULL));
  assert_ok(brim_net_undo(net));
  expect(brim_net_backward(net, NULL), "no forward pass");
  assert_ok(brim_net_forward(net, &micro, NULL));
  assert_ok(brim_net_forward(net, &micro, NULL));  // replaces the first one
  squared_error(&e, micro.batch.target);
  assert_ok(brim_net_backward(net, NULL));
  expect(brim_net_backward(net, NULL), "no forward pass");
  test_batch_free(&b);
  brim_net_destroy(own);
  brim_net_destroy(net);
  test_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      ON(same_bits, ref),
      ON(same_bits, cpu),
      ON(same_bits, cuda),
      cmocka_unit_test(test_late),
      cmocka_unit_test(test_plain_loss),
      ON(planned, ref),
      ON(planned, cpu),
      cmocka_unit_test(test_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
