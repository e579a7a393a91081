// Several networks in one plan and one step: an actor and a critic go forward, meet in an external loss, go back and
// are updated. Against the same two networks apart: the same bits, op by op and recorded. Allocated bytes equal planned
// bytes, a step allocates nothing, and a failing step leaves nothing.
#include "engine_lazy.h"
#include "engine_on.h"

enum { STEPS = 7, BATCH = 8, NETS = 2, ACTOR = 0, CRITIC = 1 };

typedef struct setting {
  int64_t accumulation;
  brim_precision precision;
} setting;

static const double rates[NETS] = {0.01, 0.03};

//---------------------------------- networks ----------------------------------

static void make_specs(test_spec t[NETS], const setting *s) {
  static const int64_t features[NETS] = {6, 11}, hidden[NETS] = {40, 24}, depth[NETS] = {3, 2};
  for (int i = 0; i < NETS; i++) {
    test_spec_init(&t[i]);
    test_component_int(&t[i].model, "hidden", hidden[i]);
    test_component_int(&t[i].model, "depth", depth[i]);
    test_component_float(&t[i].model, "dropout", 0.1);
    test_component_string(&t[i].model, "norm", "layer");
    test_component_init(&t[i].optimizer, i == ACTOR ? "adam" : "sgd");
    t[i].spec.loss = NULL;
    t[i].spec.external_loss = true;
    t[i].spec.classes = 0;
    t[i].spec.target_dim = 3;
    t[i].spec.input_rank = 1;
    t[i].spec.input_dim[0] = features[i];
    t[i].spec.batch = BATCH;
    t[i].spec.eval_batch = 4;
    t[i].spec.accumulation = s->accumulation;
    t[i].spec.precision = s->precision;
    t[i].spec.clip_norm = 0.5;
    t[i].spec.seed = 3 + (uint64_t)i;
  }
}

// The losses: the actor has labels, the critic has the actor's outputs in fp32 as targets.
typedef struct losses {
  brim_device *device;
  brim_op_call call[NETS];
  void *labels, *values, *workspace[NETS];
  int calls;
} losses;

static void losses_open(brim_device *device, brim_net *const nets[NETS], losses *l) {
  int64_t dim[] = {BATCH, 3};
  memset(l, 0, sizeof *l);
  l->device = device;
  assert_ok(brim_device_alloc(device, BRIM_BUFFER_DEVICE, BATCH * 4, &l->labels));
  assert_ok(brim_device_alloc(device, BRIM_BUFFER_DEVICE, BATCH * 3 * 4, &l->values));
  assert_ok(brim_device_fill(device, l->values, 0, BATCH * 3 * 4));
  brim_net_external e[NETS];
  for (int i = 0; i < NETS; i++) assert_ok(brim_net_external_loss(nets[i], &e[i]));
  bool coupled = e[ACTOR].output.dtype == BRIM_F32;
  for (int i = 0; i < NETS; i++) {
    brim_op_call *c = &l->call[i];
    *c = (brim_op_call){.in_count = 3, .out_count = 2};
    c->op = i == ACTOR ? BRIM_OP_XENT : BRIM_OP_MSE;
    c->in[0] = e[i].output;
    c->in[1] = i == ACTOR ? brim_tensor_make(l->labels, BRIM_I32, 1, dim)
               : coupled  ? e[ACTOR].output
                          : brim_tensor_make(l->values, BRIM_F32, 2, dim);
    c->in[2] = e[i].state;
    c->out[0] = e[i].metrics;
    c->out[1] = e[i].gradient;
    assert_ok(brim_op_prepare(device, c));
    size_t bytes = c->workspace_bytes;
    if (bytes) assert_ok(brim_device_alloc(device, BRIM_BUFFER_DEVICE, bytes, &l->workspace[i]));
    c->workspace = l->workspace[i];
  }
}

static void losses_close(losses *l) {
  assert_ok(brim_device_sync(l->device));  // a failed step may have left work in the queue
  for (int i = 0; i < NETS; i++) {
    brim_op_release(l->device, &l->call[i]);
    brim_device_free(l->device, BRIM_BUFFER_DEVICE, l->workspace[i]);
  }
  brim_device_free(l->device, BRIM_BUFFER_DEVICE, l->labels);
  brim_device_free(l->device, BRIM_BUFFER_DEVICE, l->values);
}

static brim_status take_losses(void *ctx) {
  losses *l = ctx;
  l->calls++;
  for (int i = 0; i < NETS; i++) BRIM_TRY(brim_op_run(l->device, &l->call[i]));
  return BRIM_OK;
}

static void put_labels(losses *l, int64_t step, int64_t k) {
  int32_t labels[BATCH];
  for (int i = 0; i < BATCH; i++) labels[i] = (int32_t)((step * 5 + k * 3 + i) % 3);
  assert_ok(brim_device_copy(l->device, l->labels, labels, sizeof labels, BRIM_COPY_H2D));
  assert_ok(brim_device_sync(l->device));
}

// Micro-batch k of a step for both; the last of step 4 is short.
static void make_micros(const test_spec t[NETS], const test_batch b[NETS], int64_t step, int64_t k,
                        brim_net_micro micro[NETS]) {
  int64_t all = t[0].spec.accumulation * BATCH - (step == 4 ? 3 : 0);
  int64_t rows = all - k * BATCH < BATCH ? all - k * BATCH : BATCH;
  for (int i = 0; i < NETS; i++) {
    micro[i] =
        (brim_net_micro){.batch = test_batch_at(&t[i].spec, &b[i], ((step + k) % 5) * BATCH, rows),
                         .step = step,
                         .step_rows = all,
                         .first = k == 0};
    micro[i].batch.row_offset = k * BATCH;
  }
}

//---------------------------------- runs ----------------------------------

typedef struct result {
  float *params[NETS], *grads[NETS], outputs[NETS][4 * 3];
  size_t count[NETS];
  brim_net_metrics metrics[NETS];
} result;

static void result_free(result *r) {
  for (int i = 0; i < NETS; i++) {
    free(r->params[i]);
    free(r->grads[i]);
  }
}

static void same_result(const result *a, const result *b) {
  for (int i = 0; i < NETS; i++) {
    assert_int_equal(a->count[i], b->count[i]);
    assert_memory_equal(a->params[i], b->params[i], a->count[i] * sizeof(float));
    assert_memory_equal(a->grads[i], b->grads[i], a->count[i] * sizeof(float));
    assert_memory_equal(a->outputs[i], b->outputs[i], sizeof a->outputs[i]);
    assert_true(a->metrics[i].loss_sum == b->metrics[i].loss_sum);
    assert_true(a->metrics[i].rows == b->metrics[i].rows && a->metrics[i].rows > 0);
    assert_true(a->metrics[i].grad_norm == b->metrics[i].grad_norm);
    assert_int_equal(a->metrics[i].skipped_steps, b->metrics[i].skipped_steps);
  }
}

static void leave(brim_net *const nets[NETS], const test_spec t[NETS], const test_batch b[NETS],
                  result *r) {
  for (int i = 0; i < NETS; i++) {
    brim_batch batch = test_batch_at(&t[i].spec, &b[i], 1, 4);
    assert_ok(brim_net_read_metrics(nets[i], true, &r->metrics[i]));
    r->params[i] = test_params(nets[i], &r->count[i]);
    r->grads[i] = test_grads(nets[i], &r->count[i]);
    assert_ok(brim_net_evaluate(nets[i], &batch, NULL));
    assert_ok(brim_net_outputs(nets[i], r->outputs[i], 4));
  }
}

static void make_batches(const test_spec t[NETS], test_batch b[NETS]) {
  for (int i = 0; i < NETS; i++) test_batch_make(&t[i].spec, 5 * BATCH, 70 + (uint64_t)i, &b[i]);
}

static void free_batches(test_batch b[NETS]) {
  for (int i = 0; i < NETS; i++) test_batch_free(&b[i]);
}

// Two separate networks.
static void run_apart(brim_device *device, const setting *s, result *r) {
  test_spec t[NETS];
  test_batch b[NETS];
  brim_net *nets[NETS];
  losses l;
  make_specs(t, s);
  make_batches(t, b);
  for (int i = 0; i < NETS; i++) assert_ok(brim_net_create(device, &t[i].spec, &nets[i]));
  losses_open(device, nets, &l);
  for (int64_t step = 1; step <= STEPS; step++) {
    for (int64_t k = 0; k < s->accumulation; k++) {
      brim_net_micro micro[NETS];
      make_micros(t, b, step, k, micro);
      put_labels(&l, step, k);
      for (int i = 0; i < NETS; i++) assert_ok(brim_net_forward(nets[i], &micro[i], NULL));
      assert_ok(take_losses(&l));
      for (int i = 0; i < NETS; i++) assert_ok(brim_net_backward(nets[i], NULL));
    }
    for (int i = 0; i < NETS; i++) assert_ok(brim_net_update(nets[i], step, rates[i], NULL));
  }
  leave(nets, t, b, r);
  losses_close(&l);
  for (int i = 0; i < NETS; i++) brim_net_destroy(nets[i]);
  free_batches(b);
}

typedef enum how { HOW_OP_BY_OP, HOW_RECORDED, HOW_SPANS, HOW_DISTURBED } how;

static void no_span(void *ctx, brim_phase phase, const char *name) {
  (void)ctx, (void)phase, (void)name;
}

static void one_step(brim_group *group, const setting *s, const test_spec t[NETS],
                     const test_batch b[NETS], losses *l, int64_t step, how h) {
  const brim_spans exact = {.exact = true, .begin = no_span, .end = no_span};
  for (int64_t k = 0; k < s->accumulation; k++) {
    brim_net_micro micro[NETS];
    make_micros(t, b, step, k, micro);
    put_labels(l, step, k);
    brim_group_step g = {.micro = micro,
                         .lr = k + 1 == s->accumulation ? rates : NULL,
                         .losses = take_losses,
                         .ctx = l};
    assert_ok(brim_group_run(group, &g, h == HOW_SPANS ? &exact : NULL));
  }
}

// DISTURBED: one network evaluates between the steps, which switches it to its other slot.
static void run_group(brim_device *device, const setting *s, how h, result *r) {
  test_spec t[NETS];
  test_batch b[NETS];
  brim_group *group;
  losses l;
  make_specs(t, s);
  make_batches(t, b);
  brim_net_spec specs[NETS] = {t[0].spec, t[1].spec};
  assert_ok(brim_group_create(device, specs, NETS, &group));
  brim_net *nets[NETS] = {brim_group_net(group, 0), brim_group_net(group, 1)};
  assert_null(brim_group_net(group, NETS));
  losses_open(device, nets, &l);
  for (int64_t step = 1; step <= STEPS; step++) {
    one_step(group, s, t, b, &l, step, h);
    if (h == HOW_DISTURBED && step % 2) {
      brim_batch batch = test_batch_at(&t[CRITIC].spec, &b[CRITIC], 2, 4);
      assert_ok(brim_net_evaluate(nets[CRITIC], &batch, NULL));
    }
  }
  // a recorded step does not call the losses again
  bool graphs = brim_device_has_graphs(device) && h == HOW_RECORDED;
  int all = (int)(STEPS * s->accumulation);
  if (graphs) assert_true(l.calls < all);
  if (!graphs && h != HOW_DISTURBED) assert_int_equal(l.calls, all);
  leave(nets, t, b, r);
  losses_close(&l);
  brim_group_destroy(group);
  free_batches(b);
}

//---------------------------------- equal bits ----------------------------------

static const brim_precision precisions[] = {BRIM_PRECISION_FP32, BRIM_PRECISION_BF16};

static void same_bits(brim_device *device) {
  int compared = 0;
  for (int i = 0; i < 4; i++) {
    setting s = {.accumulation = i & 1 ? 3 : 1, .precision = precisions[i / 2]};
    test_spec t[NETS];
    brim_plan plan = {0};
    make_specs(t, &s);
    if (brim_net_plan(device, &t[0].spec, &plan) == BRIM_EUNSUPPORTED) continue;
    static const how hows[] = {HOW_RECORDED, HOW_SPANS, HOW_DISTURBED};
    result apart, together;
    run_apart(device, &s, &apart);
    for (size_t k = 0; k < sizeof hows / sizeof *hows; k++) {
      run_group(device, &s, hows[k], &together);
      same_result(&apart, &together);
      result_free(&together);
    }
    result_free(&apart);
    compared++;
  }
  assert_true(compared >= 2);
}

// Late streams: with recording, and with recording refused.
static void test_late(void **state) {
  (void)state;
  setting s = {.accumulation = 3};
  result expected, late;
  brim_device *device = test_device_ref();
  run_apart(device, &s, &expected);
  test_device_close(device);
  brim_log_set_sink(NULL, NULL, BRIM_LOG_ERROR);
  for (int refuse = 0; refuse <= 3; refuse++) {
    device = lazy_open(refuse);
    run_group(device, &s, refuse ? HOW_DISTURBED : HOW_RECORDED, &late);
    if (refuse == 0) assert_true(lazy_count(device)->captures >= 4);
    lazy_close(device);
    same_result(&expected, &late);
    result_free(&late);
  }
  brim_log_set_sink(NULL, NULL, BRIM_LOG_WARN);
  device = lazy_open(0);
  same_bits(device);
  lazy_close(device);
  result_free(&expected);
}

//---------------------------------- memory ----------------------------------

static brim_alloc_stats stats(void) {
  brim_alloc_stats s;
  brim_alloc_get_stats(&s);
  return s;
}

static uint64_t row_bytes(const brim_plan *plan, const char *name) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < plan->row_count; i++) {
    if (strcmp(plan->rows[i].name, name) == 0) bytes += plan->rows[i].bytes;
  }
  return bytes;
}

static void planned(brim_device *device) {
  setting s = {.accumulation = 2};
  test_spec t[NETS];
  test_batch b[NETS];
  brim_plan plan = {0}, alone[NETS] = {{.row_count = 0}};
  brim_group *group;
  losses l;
  make_specs(t, &s);
  make_batches(t, b);
  brim_net_spec specs[NETS] = {t[0].spec, t[1].spec};
  uint64_t before = stats().live_bytes[BRIM_MEM_PLANNED];
  assert_ok(brim_group_plan(device, specs, NETS, &plan));
  for (int i = 0; i < NETS; i++) assert_ok(brim_net_plan(device, &t[i].spec, &alone[i]));
  assert_int_equal(stats().live_bytes[BRIM_MEM_PLANNED], before);
  assert_int_equal(plan.parameter_count, alone[0].parameter_count + alone[1].parameter_count);
  uint64_t sum = 0;
  for (size_t i = 0; i < plan.row_count; i++) {
    sum += plan.rows[i].bytes;
    for (size_t k = 0; k < i; k++) assert_string_not_equal(plan.rows[i].name, plan.rows[k].name);
  }
  assert_int_equal(sum, plan.bytes[BRIM_PLACE_DEVICE]);
  assert_int_equal(row_bytes(&plan, "parameters"),
                   row_bytes(&alone[0], "parameters") + row_bytes(&alone[1], "parameters"));
  // both networks' activations are kept at once; only backward's own memory is shared
  uint64_t arena[] = {row_bytes(&alone[0], "activations"), row_bytes(&alone[1], "activations")};
  uint64_t together = row_bytes(&plan, "activations");
  assert_true(together >= arena[0] && together >= arena[1] && together < arena[0] + arena[1]);
  // the allocator does not count a GPU's memory, and workspaces may be larger there than activations
  bool counted = device->info.host_memory;
  if (counted) assert_true(together > arena[0] && together > arena[1]);
  assert_ok(brim_group_create(device, specs, NETS, &group));
  if (counted) assert_int_equal(stats().live_bytes[BRIM_MEM_PLANNED], before + sum);
  brim_net *nets[NETS] = {brim_group_net(group, 0), brim_group_net(group, 1)};
  uint64_t blocks = 0;
  for (int i = 0; i < NETS * BRIM_BLOCK_COUNT; i++) {
    blocks += nets[i / BRIM_BLOCK_COUNT]->blocks[i % BRIM_BLOCK_COUNT].bytes;
  }
  assert_int_equal(blocks, sum);
  losses_open(device, nets, &l);
  uint64_t calls = 0;
  for (int64_t step = 1; step <= 5; step++) {
    if (step == 3) calls = stats().calls;
    one_step(group, &s, t, b, &l, step, HOW_RECORDED);
  }
  assert_int_equal(stats().calls, calls);
  losses_close(&l);
  brim_group_destroy(group);
  assert_int_equal(stats().live_bytes[BRIM_MEM_PLANNED], before);
  free_batches(b);
}

// One memory limit for all networks: as few segments as possible, and the same bits.
static void plan_limited(brim_device *device, test_spec t[NETS], uint64_t limit,
                         brim_recompute keep, brim_plan *plan) {
  for (int i = 0; i < NETS; i++) {
    t[i].spec.memory_limit = limit;
    t[i].spec.recompute = keep;
  }
  brim_net_spec specs[NETS] = {t[0].spec, t[1].spec};
  *plan = (brim_plan){0};
  assert_ok(brim_group_plan(device, specs, NETS, plan));
}

static float *limited_params(brim_device *device, const test_spec t[NETS], size_t *count) {
  test_batch b[NETS];
  brim_group *group;
  losses l;
  setting s = {.accumulation = 1};
  make_batches(t, b);
  brim_net_spec specs[NETS] = {t[0].spec, t[1].spec};
  assert_ok(brim_group_create(device, specs, NETS, &group));
  brim_net *nets[NETS] = {brim_group_net(group, 0), brim_group_net(group, 1)};
  losses_open(device, nets, &l);
  for (int64_t step = 1; step <= 3; step++) one_step(group, &s, t, b, &l, step, HOW_OP_BY_OP);
  float *params = test_params(nets[CRITIC], count);
  losses_close(&l);
  brim_group_destroy(group);
  free_batches(b);
  return params;
}

static void test_limit(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  setting s = {.accumulation = 1};
  test_spec t[NETS];
  make_specs(t, &s);
  for (int i = 0; i < NETS; i++) {
    test_component_init(&t[i].model, "resmlp");
    test_component_int(&t[i].model, "depth", 6);
    test_component_int(&t[i].model, "hidden", 64);
    t[i].spec.batch = BATCH;
  }
  brim_plan none, all, some;
  plan_limited(device, t, 0, BRIM_RECOMPUTE_NONE, &none);
  size_t count;
  float *expected = limited_params(device, t, &count);
  plan_limited(device, t, 0, BRIM_RECOMPUTE_ALL, &all);
  uint64_t most = none.bytes[BRIM_PLACE_DEVICE], least = all.bytes[BRIM_PLACE_DEVICE];
  assert_true(least < most);
  assert_int_equal(none.segments, 12);
  plan_limited(device, t, most, BRIM_RECOMPUTE_AUTO, &some);
  assert_int_equal(some.recomputed, 0);
  // each network alone is far below this, both together are not
  plan_limited(device, t, (most + least) / 2, BRIM_RECOMPUTE_AUTO, &some);
  assert_true(some.recomputed > 0 && some.recomputed < 12);
  assert_true(some.bytes[BRIM_PLACE_DEVICE] <= (most + least) / 2);
  size_t again;
  float *params = limited_params(device, t, &again);
  assert_int_equal(again, count);
  assert_memory_equal(params, expected, count * sizeof *params);
  free(params);
  free(expected);
  plan_limited(device, t, 1, BRIM_RECOMPUTE_AUTO, &some);
  assert_int_equal(some.recomputed, 12);
  // a step counts the first network's samples, however many rows the others have
  t[CRITIC].spec.batch = 4;
  plan_limited(device, t, 0, BRIM_RECOMPUTE_NONE, &some);
  assert_true(some.samples_per_step == BATCH);
  test_device_close(device);
}

// Any failing allocation is a clean error without a leak.
static void test_injection(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  setting s = {.accumulation = 2};
  test_spec t[NETS];
  make_specs(t, &s);
  brim_net_spec specs[NETS] = {t[0].spec, t[1].spec};
  for (uint64_t n = 1;; n++) {
    uint64_t failures = brim_alloc_failures();
    brim_alloc_stats before = stats();
    brim_group *group = NULL;
    brim_alloc_fail_nth(n, 0);
    brim_status status = brim_group_create(device, specs, NETS, &group);
    brim_alloc_fail_nth(0, 0);
    brim_group_destroy(group);
    brim_alloc_stats after = stats();
    for (int tag = 0; tag < BRIM_MEM_TAG_COUNT; tag++) {
      assert_int_equal(after.live_blocks[tag], before.live_blocks[tag]);
    }
    if (brim_alloc_failures() == failures) {
      assert_ok(status);
      assert_true(n > 50);
      break;
    }
    assert_true(status == BRIM_ENOMEM || status == BRIM_EOOM);
  }
  test_device_close(device);
}

//---------------------------------- failures ----------------------------------

// Step 3 fails at its nth op. Before weights move it is undone and repeated; false = it has no such op.
static bool undone(int n, const result *expected, int *moved) {
  setting s = {.accumulation = 1};
  test_spec t[NETS];
  test_batch b[NETS];
  brim_group *group;
  losses l;
  result r;
  brim_device *device = lazy_open(1);
  make_specs(t, &s);
  make_batches(t, b);
  brim_net_spec specs[NETS] = {t[0].spec, t[1].spec};
  assert_ok(brim_group_create(device, specs, NETS, &group));
  brim_net *nets[NETS] = {brim_group_net(group, 0), brim_group_net(group, 1)};
  losses_open(device, nets, &l);
  brim_status status = BRIM_OK;
  for (int64_t step = 1; step <= STEPS; step++) {
    if (step == 3) {
      brim_net_micro micro[NETS];
      make_micros(t, b, step, 0, micro);
      put_labels(&l, step, 0);
      brim_group_step g = {.micro = micro, .lr = rates, .losses = take_losses, .ctx = &l};
      lazy_fail_op(device, n);
      status = brim_group_run(group, &g, NULL);
      lazy_fail_op(device, 0);
      if (!status) continue;
      if (status == BRIM_EDEVICE) break;
      assert_int_equal(status, BRIM_EOOM);
      assert_ok(brim_group_undo(group));
    }
    one_step(group, &s, t, b, &l, step, HOW_OP_BY_OP);
  }
  if (status == BRIM_EDEVICE) {
    assert_non_null(strstr(brim_status_detail(), "the weights have already changed"));
    (*moved)++;
  } else {
    leave(nets, t, b, &r);
    same_result(expected, &r);
    result_free(&r);
  }
  losses_close(&l);
  brim_group_destroy(group);
  free_batches(b);
  lazy_close(device);
  return status != BRIM_OK;
}

static void test_undone(void **state) {
  (void)state;
  setting s = {.accumulation = 1};
  result expected;
  brim_device *device = test_device_ref();
  run_apart(device, &s, &expected);
  test_device_close(device);
  brim_log_set_sink(NULL, NULL, BRIM_LOG_ERROR);
  int ops = 1, moved = 0;
  while (undone(ops, &expected, &moved)) ops++;
  brim_log_set_sink(NULL, NULL, BRIM_LOG_WARN);
  assert_true(ops > 20);
  // after the update of the first network, and at all of the second's
  assert_int_equal(moved, 1 + 3);
  result_free(&expected);
}

// Losses that change after the step was recorded: the new ones are called.
static void changing_losses(brim_device *device, bool change, result *r) {
  setting s = {.accumulation = 1};
  test_spec t[NETS];
  test_batch b[NETS];
  brim_group *group;
  losses l[2];
  make_specs(t, &s);
  make_batches(t, b);
  brim_net_spec specs[NETS] = {t[0].spec, t[1].spec};
  assert_ok(brim_group_create(device, specs, NETS, &group));
  brim_net *nets[NETS] = {brim_group_net(group, 0), brim_group_net(group, 1)};
  for (int i = 0; i < 2; i++) losses_open(device, nets, &l[i]);
  for (int64_t step = 1; step <= 16; step++) {
    // the new losses have labels of their own, which a recorded step would not read
    losses *now = &l[change && step > 8 && step < 14];
    put_labels(&l[0], step, 0);
    put_labels(&l[1], step, 0);
    if (now == &l[1]) put_labels(&l[0], step + 1, 0);
    brim_net_micro micro[NETS];
    make_micros(t, b, step, 0, micro);
    brim_group_step g = {.micro = micro, .lr = rates, .losses = take_losses, .ctx = now};
    assert_ok(brim_group_run(group, &g, NULL));
  }
  if (change) assert_true(l[1].calls >= 1);
  leave(nets, t, b, r);
  for (int i = 0; i < 2; i++) losses_close(&l[i]);
  brim_group_destroy(group);
  free_batches(b);
}

static void test_changing_losses(void **state) {
  (void)state;
  result expected, r;
  brim_device *device = test_device_ref();
  changing_losses(device, false, &expected);
  test_device_close(device);
  device = lazy_open(0);
  changing_losses(device, true, &r);
  assert_true(lazy_count(device)->captures >= 5);  // recorded again after each change
  lazy_close(device);
  same_result(&expected, &r);
  result_free(&expected);
  result_free(&r);
}

// The networks of a group share one arena: a forward pass of one discards the activations of the other.
static void test_shared_arena(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  setting s = {.accumulation = 1};
  test_spec t[NETS];
  test_batch b[NETS];
  brim_group *group;
  make_specs(t, &s);
  make_batches(t, b);
  brim_net_spec specs[NETS] = {t[0].spec, t[1].spec};
  assert_ok(brim_group_create(device, specs, NETS, &group));
  brim_net *nets[NETS] = {brim_group_net(group, 0), brim_group_net(group, 1)};
  brim_net_micro micro[NETS];
  make_micros(t, b, 1, 0, micro);
  brim_group_step g = {.micro = micro, .lr = rates};
  assert_int_equal(brim_group_run(group, &g, NULL), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "network 0 of the group has no loss"));
  micro[1].first = false;
  assert_true(brim_group_run(group, &g, NULL) != BRIM_OK);
  micro[1].first = true;
  for (int i = 0; i < NETS; i++) assert_ok(brim_net_forward(nets[i], &micro[i], NULL));
  assert_int_equal(brim_net_backward(nets[0], NULL), BRIM_ESTATE);
  assert_ok(brim_net_backward(nets[1], NULL));
  float outputs[12];
  for (int i = 0; i < NETS; i++) {
    brim_batch batch = test_batch_at(&t[i].spec, &b[i], 1, 4);
    assert_ok(brim_net_evaluate(nets[i], &batch, NULL));
  }
  assert_int_equal(brim_net_outputs(nets[0], outputs, 4), BRIM_ESTATE);
  assert_ok(brim_net_outputs(nets[1], outputs, 4));
  brim_group_destroy(group);
  brim_group_destroy(NULL);
  specs[1].full_batch_negatives = true;
  assert_int_equal(brim_group_create(device, specs, NETS, &group), BRIM_EUNSUPPORTED);
  assert_null(group);
  assert_int_equal(brim_group_create(device, specs, 0, &group), BRIM_EINVAL);
  assert_int_equal(brim_group_create(device, specs, BRIM_GROUP_MAX + 1, &group), BRIM_EINVAL);
  free_batches(b);
  test_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      ON(same_bits, ref),
      ON(same_bits, cpu),
      ON(same_bits, cuda),
      cmocka_unit_test(test_late),
      ON(planned, ref),
      ON(planned, cpu),
      ON(planned, cuda),
      cmocka_unit_test(test_limit),
      cmocka_unit_test(test_injection),
      cmocka_unit_test(test_undone),
      cmocka_unit_test(test_changing_losses),
      cmocka_unit_test(test_shared_arena),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
