// Ways to run a step: in one call or in its parts, as recorded pieces or op by op, with two slots for batches, with
// norms that wait on the device. On ref, on a device that is as late as it may be, and on CUDA if there is one: always
// the same bits.
#include <math.h>

#include "engine_lazy.h"
#include "engine_test.h"

//---------------------------------- scenario ----------------------------------

#define STEPS 6
#define EVAL_ROWS 4

typedef enum how { HOW_PARTS, HOW_STEP, HOW_STEP_EXACT } how;

// All results of a run.
typedef struct result {
  float *params, *grads;
  size_t count;
  brim_net_metrics train, eval;
  float outputs[STEPS][EVAL_ROWS * 3];
} result;

static void result_free(result *r) {
  free(r->params);
  free(r->grads);
}

static void same_metrics(const brim_net_metrics *a, const brim_net_metrics *b) {
  assert_true(a->loss_sum == b->loss_sum);
  assert_true(a->correct == b->correct);
  assert_true(a->rows == b->rows);
  assert_true(a->bad_rows == b->bad_rows);
  assert_true(a->grad_norm == b->grad_norm);
  assert_true(a->loss_scale == b->loss_scale);
  assert_int_equal(a->skipped_steps, b->skipped_steps);
}

static void same_result(const result *a, const result *b) {
  assert_int_equal(a->count, b->count);
  assert_memory_equal(a->params, b->params, a->count * sizeof *a->params);
  assert_memory_equal(a->grads, b->grads, a->count * sizeof *a->grads);
  assert_memory_equal(a->outputs, b->outputs, sizeof a->outputs);
  same_metrics(&a->train, &b->train);
  same_metrics(&a->eval, &b->eval);
}

static void scenario_spec(test_spec *t, int64_t accumulation, brim_precision precision) {
  test_spec_init(t);
  test_component_int(&t->model, "hidden", 24);
  test_component_float(&t->model, "dropout", 0.3);
  test_component_string(&t->model, "norm", "layer");
  test_component_init(&t->optimizer, "adam");
  t->spec.batch = 8;
  t->spec.eval_batch = EVAL_ROWS;
  t->spec.accumulation = accumulation;
  t->spec.clip_norm = 0.5;
  t->spec.precision = precision;
}

// A batch in memory that is reused as soon as the call that takes it returns.
typedef struct lent {
  float input[8 * 6];
  int32_t target[8];
} lent;

static brim_batch lend(lent *l, const test_batch *b, int64_t row, int64_t rows, int64_t of) {
  memcpy(l->input, (const float *)b->input + row * 6, (size_t)of * 6 * sizeof(float));
  memcpy(l->target, (const int32_t *)b->target + row, (size_t)of * sizeof(int32_t));
  return (brim_batch){.input = l->input, .target = l->target, .rows = rows};
}

static void take_back(lent *l) { memset(l, 0x55, sizeof *l); }

static void no_begin(void *ctx, brim_phase phase, const char *name) {
  (void)ctx, (void)phase, (void)name;
}

static void one_step(brim_net *net, const test_spec *t, const test_batch *b, int64_t step, how h) {
  const brim_spans exact = {.exact = true, .begin = no_begin, .end = no_begin};
  const brim_spans *spans = h == HOW_STEP_EXACT ? &exact : NULL;
  int64_t parts = t->spec.accumulation, size = t->spec.batch;
  // The last micro-batch of the fourth step is short.
  int64_t all = parts * size - (step == 4 ? 3 : 0);
  double lr = 0.01 / (double)step;
  lent l;
  for (int64_t k = 0; k < parts; k++) {
    int64_t rows = all - k * size < size ? all - k * size : size;
    brim_net_micro micro = {.batch = lend(&l, b, ((step + k) % 7) * size, rows, size),
                            .step = step,
                            .step_rows = all,
                            .first = k == 0};
    micro.batch.row_offset = k * size;
    if (k + 1 < parts || h == HOW_PARTS) {
      assert_ok(brim_net_train(net, &micro, spans));
    } else {
      assert_ok(brim_net_step(net, &micro, lr, spans));
    }
    take_back(&l);
  }
  if (h == HOW_PARTS) assert_ok(brim_net_update(net, step, lr, spans));
}

// Six steps with an evaluation after each but the fifth, whose outputs stay zero.
static void scenario(brim_net *net, const test_spec *t, how h, result *r) {
  memset(r, 0, sizeof *r);
  test_batch b;
  test_batch_make(&t->spec, 7 * t->spec.batch, 77, &b);
  brim_net_metrics m;
  lent l;
  for (int64_t step = 1; step <= STEPS; step++) {
    one_step(net, t, &b, step, h);
    if (step == 5) continue;
    assert_ok(brim_net_read_metrics(net, true, &m));
    r->train.loss_sum += m.loss_sum;
    r->train.correct += m.correct;
    r->train.rows += m.rows;
    r->train.bad_rows += m.bad_rows;
    r->train.grad_norm = m.grad_norm;
    r->train.loss_scale = m.loss_scale;
    r->train.skipped_steps = m.skipped_steps;
    for (int k = 0; k < 2; k++) {
      brim_batch batch = lend(&l, &b, step + k, EVAL_ROWS - k, EVAL_ROWS);
      assert_ok(brim_net_evaluate(net, &batch, NULL));
      take_back(&l);
    }
    assert_ok(brim_net_outputs(net, r->outputs[step - 1], EVAL_ROWS - 1));
    assert_ok(brim_net_read_metrics(net, true, &r->eval));
  }
  assert_true(r->train.rows == (double)(STEPS * t->spec.accumulation * t->spec.batch - 3));
  assert_true(r->train.bad_rows == 0 && r->train.loss_scale == 1);
  assert_true(r->eval.rows == 2 * EVAL_ROWS - 1);
  r->params = test_params(net, &r->count);
  r->grads = test_grads(net, &r->count);
  test_batch_free(&b);
}

static void run_scenario(brim_device *device, const test_spec *t, bool graphs, how h, result *r) {
  brim_net *net;
  assert_ok(brim_net_create(device, &t->spec, &net));
  // The spec's `eager` would also turn fusing off, which changes bits; this turns only recording off.
  if (!graphs) net->exec.capture.on = false;
  scenario(net, t, h, r);
  brim_net_destroy(net);
}

//---------------------------------- devices ----------------------------------

static brim_device *open_cuda(brim_registry **registry) {
  brim_device *device = NULL;
  assert_ok(brim_registry_create(registry));
  assert_ok(brim_registry_load_folder(*registry, BRIM_BUILD_DIR "/lib/brim"));
  if (!brim_device_open(*registry, "cuda", NULL, &device)) return device;
  brim_registry_destroy(*registry);
  return NULL;
}

static void close_cuda(brim_registry *registry, brim_device *device) {
  brim_device_close(device);
  brim_registry_destroy(registry);
}

static const int64_t accumulations[] = {1, 3};
static const brim_precision precisions[] = {BRIM_PRECISION_FP32, BRIM_PRECISION_BF16};

//---------------------------------- tests ----------------------------------

static void step_is_its_parts(brim_device *device) {
  for (int i = 0; i < 4; i++) {
    test_spec t;
    scenario_spec(&t, accumulations[i % 2], precisions[i / 2]);
    result parts, step, exact;
    run_scenario(device, &t, true, HOW_PARTS, &parts);
    run_scenario(device, &t, true, HOW_STEP, &step);
    run_scenario(device, &t, true, HOW_STEP_EXACT, &exact);
    same_result(&parts, &step);
    same_result(&parts, &exact);
    result_free(&parts);
    result_free(&step);
    result_free(&exact);
  }
}

static void test_step_on_ref(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  step_is_its_parts(device);
  test_device_close(device);
}

static void test_step_on_cpu(void **state) {
  (void)state;
  brim_device *device = test_device_cpu();
  if (!device) BRIM_SKIP(brim_status_detail());
  step_is_its_parts(device);
  test_device_close(device);
}

static void test_step_on_cuda(void **state) {
  (void)state;
  brim_registry *registry;
  brim_device *device = open_cuda(&registry);
  if (!device) BRIM_SKIP(brim_status_detail());
  step_is_its_parts(device);
  close_cuda(registry, device);
}

static void test_recorded_on_cuda(void **state) {
  (void)state;
  brim_registry *registry;
  brim_device *device = open_cuda(&registry);
  if (!device) BRIM_SKIP(brim_status_detail());
  assert_true(brim_device_has_graphs(device));
  for (int i = 0; i < 4; i++) {
    test_spec t;
    scenario_spec(&t, accumulations[i % 2], precisions[i / 2]);
    result eager, recorded;
    run_scenario(device, &t, false, HOW_STEP, &eager);
    brim_net *net;
    assert_ok(brim_net_create(device, &t.spec, &net));
    scenario(net, &t, HOW_STEP, &recorded);
    assert_true(net->exec.capture.on);  // recording succeeded
    assert_non_null(net->exec.pieces[BRIM_EXEC_EVAL][0].graph);
    brim_net_destroy(net);
    same_result(&eager, &recorded);
    result_free(&eager);
    result_free(&recorded);
  }
  close_cuda(registry, device);
}

// Late streams, op by op and recorded, give the same bits as ref.
static void test_late_device(void **state) {
  (void)state;
  static const how hows[] = {HOW_PARTS, HOW_STEP, HOW_STEP_EXACT};
  for (int i = 0; i < 12; i++) {
    test_spec t;
    scenario_spec(&t, accumulations[i % 2], precisions[i / 2 % 2]);
    how h = hows[i / 4];
    result expected, eager, recorded;
    brim_device *device = test_device_ref();
    run_scenario(device, &t, true, h, &expected);
    test_device_close(device);
    device = lazy_open(0);
    run_scenario(device, &t, false, h, &eager);
    assert_int_equal(lazy_count(device)->captures + lazy_count(device)->launches, 0);
    run_scenario(device, &t, true, h, &recorded);
    // Evaluations alternate between the slots: each slot records at its second evaluation.
    assert_true(lazy_count(device)->captures >= 2);
    assert_true(lazy_count(device)->launches >= 2 * 4);
    lazy_close(device);
    same_result(&expected, &eager);
    same_result(&expected, &recorded);
    result_free(&expected);
    result_free(&eager);
    result_free(&recorded);
  }
}

// Each slot runs op by op first, then records, then only launches.
static void test_when_recorded(void **state) {
  (void)state;
  brim_device *device = lazy_open(0);
  test_spec t;
  scenario_spec(&t, 1, BRIM_PRECISION_FP32);
  test_batch b;
  test_batch_make(&t.spec, 7 * t.spec.batch, 5, &b);
  brim_net *net;
  assert_ok(brim_net_create(device, &t.spec, &net));
  const lazy_counters *c = lazy_count(device);
  static const int captures[] = {0, 0, 1, 2, 2, 2}, launches[] = {0, 0, 1, 2, 3, 4};
  int ops = 0;
  for (int64_t step = 1; step <= 6; step++) {
    one_step(net, &t, &b, step, HOW_STEP);
    assert_int_equal(c->captures, captures[step - 1]);
    assert_int_equal(c->launches, launches[step - 1]);
    if (step == 2) ops = c->ops;
    if (step > 2) assert_int_equal(c->ops, ops);
  }
  // The host is ahead: it waited only for old work of the slots.
  assert_true(c->waiting > 0);
  one_step(net, &t, &b, 7, HOW_STEP_EXACT);
  assert_int_equal(c->launches, 4);
  assert_true(c->ops > ops);
  brim_net_destroy(net);
  assert_int_equal(c->graphs, 0);
  test_batch_free(&b);
  lazy_close(device);
}

typedef struct warnings {
  int count;
  char text[256];
} warnings;

static void count_warnings(void *ctx, brim_log_level level, const char *module, const char *text) {
  (void)module;
  warnings *w = ctx;
  if (level != BRIM_LOG_WARN) return;
  w->count++;
  snprintf(w->text, sizeof w->text, "%s", text);
}

static void test_recording_fails(void **state) {
  (void)state;
  static const char *const says[] = {NULL, "no recording today", "cannot be recorded",
                                     "is not valid"};
  test_spec t;
  scenario_spec(&t, 3, BRIM_PRECISION_FP32);
  result expected, got;
  brim_device *device = test_device_ref();
  run_scenario(device, &t, true, HOW_STEP, &expected);
  test_device_close(device);
  for (int refuse = 1; refuse <= 3; refuse++) {
    warnings w = {0};
    brim_log_set_sink(count_warnings, &w, BRIM_LOG_WARN);
    device = lazy_open(refuse);
    run_scenario(device, &t, true, HOW_STEP, &got);
    brim_log_set_sink(NULL, NULL, BRIM_LOG_WARN);
    assert_int_equal(w.count, 1);
    assert_non_null(strstr(w.text, says[refuse]));
    assert_int_equal(lazy_count(device)->launches, 0);
    lazy_close(device);
    same_result(&expected, &got);
    result_free(&got);
  }
  result_free(&expected);
}

// Without memory for a recording, a piece runs op by op and is retried ever more rarely until there is some. One
// message reports it, and the results stay the same.
static void check_waits(int refuse) {
  test_spec t;
  scenario_spec(&t, 1, BRIM_PRECISION_FP32);
  test_batch b;
  test_batch_make(&t.spec, 7 * t.spec.batch, 5, &b);
  brim_device *ref = test_device_ref(), *device = lazy_open(refuse);
  brim_net *expected, *net;
  assert_ok(brim_net_create(ref, &t.spec, &expected));
  assert_ok(brim_net_create(device, &t.spec, &net));
  warnings w = {0};
  brim_log_set_sink(count_warnings, &w, BRIM_LOG_WARN);
  const lazy_counters *c = lazy_count(device);
  for (int64_t step = 1; step <= 400; step++) {
    one_step(expected, &t, &b, step, HOW_STEP);
    one_step(net, &t, &b, step, HOW_STEP);
    // each slot has every second step: it retries at its 2nd launch, 64 later at its 66th, 128 later at its 194th
    int refused = step < 3 ? 0 : step == 3 ? 1 : step < 131 ? 2 : step == 131 ? 3 : 4;
    int captures = step < 387 ? 0 : step == 387 ? 1 : 2;
    assert_int_equal(c->refused, refused);
    assert_int_equal(c->captures, captures);
    if (step == 200) lazy_allow_capture(device);
  }
  brim_log_set_sink(NULL, NULL, BRIM_LOG_WARN);
  assert_int_equal(w.count, 1);
  assert_non_null(strstr(w.text, "no memory for the recording"));
  assert_int_equal(c->launches, 14);
  size_t counts[2];
  float *a = test_params(expected, &counts[0]), *d = test_params(net, &counts[1]);
  assert_int_equal(counts[0], counts[1]);
  assert_memory_equal(a, d, counts[0] * sizeof *a);
  free(a);
  free(d);
  brim_net_destroy(net);
  brim_net_destroy(expected);
  test_batch_free(&b);
  lazy_close(device);
  test_device_close(ref);
}

static void test_recording_waits(void **state) {
  (void)state;
  for (int refuse = 4; refuse <= 6; refuse++) check_waits(refuse);
}

static brim_status step_again(brim_net *net, const test_spec *t, const test_batch *b,
                              int64_t step) {
  lent l;
  brim_net_micro micro = {.batch = lend(&l, b, (step % 7) * 8, 8, 8),
                          .step = step,
                          .step_rows = t->spec.batch,
                          .first = true};
  brim_status status = brim_net_step(net, &micro, 0.01, NULL);
  take_back(&l);
  return status;
}

// Makes ten steps; the seventh runs out of memory at its n-th op, is undone and repeated. False if op n comes after the
// weights moved, where a step cannot be undone.
static bool undone(int refuse, bool graphs, int n, const brim_net_metrics *expected) {
  test_spec t;
  scenario_spec(&t, 1, BRIM_PRECISION_FP32);
  test_batch b;
  test_batch_make(&t.spec, 7 * t.spec.batch, 5, &b);
  brim_device *device = lazy_open(refuse);
  brim_net *net;
  brim_net_metrics m;
  assert_ok(brim_net_create(device, &t.spec, &net));
  if (!graphs) net->exec.capture.on = false;
  bool failed = true;
  for (int64_t step = 1; step <= 10 && failed; step++) {
    if (step == 7) {
      lazy_fail_op(device, n);
      failed = step_again(net, &t, &b, step) == BRIM_EOOM;
      if (failed) assert_ok(brim_net_undo(net));
    }
    if (failed) assert_ok(step_again(net, &t, &b, step));
  }
  assert_int_equal(lazy_count(device)->captures, refuse == 7);
  if (failed) {
    assert_ok(brim_net_read_metrics(net, true, &m));
    same_metrics(expected, &m);
  }
  brim_net_destroy(net);
  test_batch_free(&b);
  lazy_close(device);
  return failed;
}

// A step that fails half-way leaves nothing, even if its slot was recorded before recording failed.
static void test_undone(void **state) {
  (void)state;
  test_spec t;
  scenario_spec(&t, 1, BRIM_PRECISION_FP32);
  test_batch b;
  test_batch_make(&t.spec, 7 * t.spec.batch, 5, &b);
  brim_device *ref = test_device_ref();
  brim_net *net;
  brim_net_metrics expected;
  assert_ok(brim_net_create(ref, &t.spec, &net));
  for (int64_t step = 1; step <= 10; step++) assert_ok(step_again(net, &t, &b, step));
  assert_ok(brim_net_read_metrics(net, true, &expected));
  brim_net_destroy(net);
  test_batch_free(&b);
  test_device_close(ref);
  warnings w = {0};
  brim_log_set_sink(count_warnings, &w, BRIM_LOG_WARN);
  int op_by_op = 1, mixed = 1;
  while (undone(0, false, op_by_op, &expected)) op_by_op++;
  while (undone(7, true, mixed, &expected)) mixed++;
  brim_log_set_sink(NULL, NULL, BRIM_LOG_WARN);
  assert_true(op_by_op > 10);
  assert_int_equal(mixed, op_by_op);
}

//---------------------------------- batches that lie there ----------------------------------

static float *reuse(brim_device *device, const test_spec *t, bool again, size_t *count) {
  test_batch b;
  test_batch_make(&t->spec, 2 * t->spec.batch, 9, &b);
  brim_net *net;
  assert_ok(brim_net_create(device, &t->spec, &net));
  for (int64_t step = 1; step <= 8; step++) {
    lent l;
    brim_net_micro micro = {
        .batch = lend(&l, &b, (step % 2) * t->spec.batch, t->spec.batch, t->spec.batch),
        .step = step,
        .step_rows = t->spec.batch,
        .first = true};
    if (again && step > 2) micro.batch.input = micro.batch.target = NULL;
    assert_ok(brim_net_step(net, &micro, 0.01, NULL));
    take_back(&l);
  }
  float *params = test_params(net, count);
  brim_net_destroy(net);
  test_batch_free(&b);
  return params;
}

static void check_reuse(brim_device *device) {
  test_spec t;
  scenario_spec(&t, 1, BRIM_PRECISION_FP32);
  size_t n = 0;
  float *sent = reuse(device, &t, false, &n), *again = reuse(device, &t, true, &n);
  assert_memory_equal(sent, again, n * sizeof *sent);
  free(sent);
  free(again);
  // Without data, steps fail before the first two batches.
  brim_net *net;
  assert_ok(brim_net_create(device, &t.spec, &net));
  brim_net_micro micro = {.batch = {.rows = 8}, .step = 1, .step_rows = 8, .first = true};
  assert_status(brim_net_train(net, &micro, NULL), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "the batch has no data"));
  assert_status(brim_net_step(net, &micro, 0.1, NULL), BRIM_EINVAL);
  assert_status(brim_net_evaluate(net, &micro.batch, NULL), BRIM_EINVAL);
  brim_net_destroy(net);
}

static void test_reuse_late(void **state) {
  (void)state;
  brim_device *device = lazy_open(0);
  check_reuse(device);
  lazy_close(device);
}

static void test_reuse_on_cuda(void **state) {
  (void)state;
  brim_registry *registry;
  brim_device *device = open_cuda(&registry);
  if (!device) BRIM_SKIP(brim_status_detail());
  check_reuse(device);
  close_cuda(registry, device);
}

// A device that uses host memory never reuses an uploaded batch.
static void test_no_reuse_on_ref(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t;
  scenario_spec(&t, 1, BRIM_PRECISION_FP32);
  test_batch b;
  test_batch_make(&t.spec, 7 * t.spec.batch, 5, &b);
  brim_net *net;
  assert_ok(brim_net_create(device, &t.spec, &net));
  for (int64_t step = 1; step <= 3; step++) one_step(net, &t, &b, step, HOW_STEP);
  brim_net_micro micro = {.batch = {.rows = 8}, .step = 4, .step_rows = 8, .first = true};
  assert_status(brim_net_step(net, &micro, 0.1, NULL), BRIM_EINVAL);
  brim_net_destroy(net);
  test_batch_free(&b);
  test_device_close(device);
}

//---------------------------------- batches made on the device ----------------------------------

typedef enum origin { FROM_HOST, FROM_DEVICE, FROM_BOTH } origin;

// Copies every batch into the same block of device memory, in stream order. If that memory is the host's, the device
// has to be idle first.
static brim_batch on_device(brim_device *device, float *block, brim_batch batch, size_t rows) {
  if (device->info.host_memory) assert_ok(brim_device_sync(device));
  assert_ok(brim_device_copy(device, block, batch.input, rows * 6 * sizeof(float), BRIM_COPY_H2D));
  assert_ok(
      brim_device_copy(device, block + 64, batch.target, rows * sizeof(int32_t), BRIM_COPY_H2D));
  batch.input = block;
  batch.target = block + 64;
  batch.on_device = true;
  return batch;
}

static void run_from(brim_device *device, const test_spec *t, origin from, result *r) {
  memset(r, 0, sizeof *r);
  test_batch b;
  test_batch_make(&t->spec, 7 * t->spec.batch, 9, &b);
  brim_net *net;
  assert_ok(brim_net_create(device, &t->spec, &net));
  float *block;
  assert_ok(
      brim_device_alloc(device, BRIM_BUFFER_DEVICE, (64 + 8) * sizeof(float), (void **)&block));
  for (int64_t step = 1; step <= STEPS; step++) {
    bool mine = from == FROM_DEVICE || (from == FROM_BOTH && step % 3 != 0);
    lent l;
    brim_net_micro micro = {.batch = lend(&l, &b, step * 8, step == 4 ? 5 : 8, 8),
                            .step = step,
                            .step_rows = step == 4 ? 5 : 8,
                            .first = true};
    if (mine) micro.batch = on_device(device, block, micro.batch, 8);
    assert_ok(brim_net_step(net, &micro, 0.01, NULL));
    take_back(&l);
    if (step % 2 == 0) continue;
    brim_batch batch = lend(&l, &b, step, EVAL_ROWS, EVAL_ROWS);
    if (mine) batch = on_device(device, block, batch, EVAL_ROWS);
    assert_ok(brim_net_evaluate(net, &batch, NULL));
    take_back(&l);
    assert_ok(brim_net_outputs(net, r->outputs[step - 1], EVAL_ROWS));
  }
  assert_ok(brim_net_read_metrics(net, true, &r->train));
  r->params = test_params(net, &r->count);
  r->grads = test_grads(net, &r->count);
  brim_net_destroy(net);
  brim_device_free(device, BRIM_BUFFER_DEVICE, block);
  test_batch_free(&b);
}

static void check_origins(brim_device *device) {
  test_spec t;
  scenario_spec(&t, 1, BRIM_PRECISION_FP32);
  result host, made, both;
  run_from(device, &t, FROM_HOST, &host);
  run_from(device, &t, FROM_DEVICE, &made);
  run_from(device, &t, FROM_BOTH, &both);
  same_result(&host, &made);
  same_result(&host, &both);
  result_free(&host);
  result_free(&made);
  result_free(&both);
}

static void test_origins_on_ref(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  check_origins(device);
  test_device_close(device);
}

static void test_origins_on_cpu(void **state) {
  (void)state;
  brim_device *device = test_device_cpu();
  if (!device) BRIM_SKIP(brim_status_detail());
  check_origins(device);
  test_device_close(device);
}

static void test_origins_late(void **state) {
  (void)state;
  brim_device *device = lazy_open(0);
  check_origins(device);
  lazy_close(device);
}

static void test_origins_on_cuda(void **state) {
  (void)state;
  brim_registry *registry;
  brim_device *device = open_cuda(&registry);
  if (!device) BRIM_SKIP(brim_status_detail());
  check_origins(device);
  close_cuda(registry, device);
}

//---------------------------------- norms ----------------------------------

// Step numbers that jump back and forth, around and past the ring's end: every skipped step counts once.
static void check_norms(brim_device *device) {
  static const struct {
    int64_t first, count;
  } runs[] = {{1, 5},
              {500, 30},
              {3, 4},
              {BRIM_NORM_RING, 2},
              {BRIM_NORM_RING + 2, 7},
              {90, BRIM_NORM_RING + 3}};
  test_spec t;
  test_spec_init(&t);
  test_batch good, bad;
  test_batch_make(&t.spec, 5, 31, &good);
  test_batch_make(&t.spec, 5, 31, &bad);
  ((float *)bad.input)[3] = NAN;
  brim_net *net;
  assert_ok(brim_net_create(device, &t.spec, &net));
  uint64_t skipped = 0;
  for (size_t k = 0; k < sizeof runs / sizeof runs[0]; k++) {
    for (int64_t step = runs[k].first; step < runs[k].first + runs[k].count; step++) {
      bool skip = step % 11 == 4;  // 92, but not 92 + 512
      brim_net_micro micro = {.batch = test_batch_at(&t.spec, skip ? &bad : &good, 0, 5),
                              .step = step,
                              .step_rows = 5,
                              .first = true};
      assert_ok(brim_net_step(net, &micro, 1e-4, NULL));
      if (skip) skipped++;
    }
  }
  brim_net_metrics m;
  assert_ok(brim_net_read_metrics(net, true, &m));
  assert_int_equal(m.skipped_steps, skipped);
  size_t n;
  float *grads = test_grads(net, &n);
  double squares = 0;
  for (size_t i = 0; i < n; i++) squares += (double)grads[i] * (double)grads[i];
  assert_true(fabs(m.grad_norm - sqrt(squares)) <= 1e-5 * sqrt(squares));
  free(grads);
  brim_net_micro micro = {.batch = test_batch_at(&t.spec, &good, 0, 5), .step_rows = 5};
  micro.first = true;
  assert_status(brim_net_step(net, &micro, 0.1, NULL), BRIM_EINVAL);  // step 0
  assert_status(brim_net_update(net, 0, 0.1, NULL), BRIM_EINVAL);
  brim_net_destroy(net);
  test_batch_free(&good);
  test_batch_free(&bad);
}

static void test_norms_on_ref(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  check_norms(device);
  test_device_close(device);
}

static void test_norms_late(void **state) {
  (void)state;
  brim_device *device = lazy_open(0);
  check_norms(device);
  lazy_close(device);
}

static void test_norms_on_cuda(void **state) {
  (void)state;
  brim_registry *registry;
  brim_device *device = open_cuda(&registry);
  if (!device) BRIM_SKIP(brim_status_detail());
  check_norms(device);
  close_cuda(registry, device);
}

//---------------------------------- spans ----------------------------------

typedef struct seen {
  const brim_device *device;
  brim_phase begun[16], ended[16];
  int begins, ends;
  bool idle;  // the device is idle at the end of every span
} seen;

static void see_begin(void *ctx, brim_phase phase, const char *name) {
  (void)name;
  seen *s = ctx;
  assert_true(s->begins < 16);
  s->begun[s->begins++] = phase;
}

static void see_end(void *ctx, brim_phase phase, const char *name) {
  (void)name;
  seen *s = ctx;
  assert_true(s->ends < 16);
  s->ended[s->ends++] = phase;
  if (phase != BRIM_PHASE_H2D && phase != BRIM_PHASE_COMPUTE && lazy_count(s->device)->waiting > 0)
    s->idle = false;
}

static void test_exact_spans(void **state) {
  (void)state;
  static const brim_phase expected[] = {BRIM_PHASE_COMPUTE, BRIM_PHASE_H2D, BRIM_PHASE_FORWARD,
                                        BRIM_PHASE_BACKWARD, BRIM_PHASE_OPTIMIZER};
  brim_device *device = lazy_open(0);
  test_spec t;
  scenario_spec(&t, 1, BRIM_PRECISION_FP32);
  test_batch b;
  test_batch_make(&t.spec, 8, 5, &b);
  brim_net *net;
  assert_ok(brim_net_create(device, &t.spec, &net));
  for (int64_t step = 1; step <= 5; step++) {
    seen s = {.device = device, .idle = true};
    const brim_spans spans = {.ctx = &s, .exact = true, .begin = see_begin, .end = see_end};
    brim_net_micro micro = {
        .batch = test_batch_at(&t.spec, &b, 0, 8), .step = step, .step_rows = 8, .first = true};
    assert_ok(brim_net_step(net, &micro, 0.01, &spans));
    assert_int_equal(s.begins, 5);
    assert_memory_equal(s.begun, expected, sizeof expected);
    assert_memory_equal(s.ended, expected, sizeof expected);
    assert_true(s.idle);
  }
  // Three phases: each slot runs each of them op by op once and launches it the other three times.
  assert_int_equal(lazy_count(device)->launches, 9);
  brim_net_destroy(net);
  test_batch_free(&b);
  lazy_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_step_on_ref),     cmocka_unit_test(test_step_on_cpu),
      cmocka_unit_test(test_step_on_cuda),    cmocka_unit_test(test_recorded_on_cuda),
      cmocka_unit_test(test_late_device),     cmocka_unit_test(test_when_recorded),
      cmocka_unit_test(test_recording_fails), cmocka_unit_test(test_recording_waits),
      cmocka_unit_test(test_undone),          cmocka_unit_test(test_reuse_late),
      cmocka_unit_test(test_reuse_on_cuda),   cmocka_unit_test(test_no_reuse_on_ref),
      cmocka_unit_test(test_origins_on_ref),  cmocka_unit_test(test_origins_on_cpu),
      cmocka_unit_test(test_origins_late),    cmocka_unit_test(test_origins_on_cuda),
      cmocka_unit_test(test_norms_on_ref),    cmocka_unit_test(test_norms_late),
      cmocka_unit_test(test_norms_on_cuda),   cmocka_unit_test(test_exact_spans),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
