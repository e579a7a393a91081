// Steps of a group whose gradients the caller computes: linear networks with the engine's own ops, against the engine's
// passes. The same bits on every device, op by op and launched; and the refusals.
#include "backend/backend_half.h"
#include "engine_lazy.h"
#include "engine_on.h"

enum { ITERATIONS = 4, STEPS = 3, BATCH = 8, NETS = 2, WIDTH = 3 };
static const int64_t features[NETS] = {16, 24};

// A network's three ops, called by the test with tensors of its own.
typedef struct by_hand {
  brim_op_call forward, loss, backward;
  void *outputs, *gradient, *workspace[3];
} by_hand;

typedef struct outside {
  brim_device *device;
  brim_group *group;
  brim_record *record;
  brim_net *net[NETS];
  brim_op_call loss[NETS];  // on the engine's outputs
  by_hand hand[NETS];
  void *targets, *workspace[NETS];
  void *data[NETS];  // for all steps
  brim_tensor input[NETS];
  bool own;  // the caller computes the gradients
  int calls;
} outside;

static void *room(brim_device *device, size_t bytes) {
  void *p = NULL;
  assert_ok(brim_device_alloc(device, BRIM_BUFFER_DEVICE, bytes, &p));
  assert_ok(brim_device_fill(device, p, 0, bytes));
  return p;
}

static void prepare(brim_device *device, brim_op_call *call, void **workspace) {
  assert_ok(brim_op_prepare(device, call));
  if (call->workspace_bytes) *workspace = room(device, call->workspace_bytes);
  call->workspace = *workspace;
}

static brim_op_call loss_of(const outside *o, brim_tensor output, brim_tensor gradient,
                            const brim_net_external *e) {
  const int64_t dim[] = {BATCH, WIDTH};
  brim_op_call c = {.op = BRIM_OP_MSE, .in_count = 3, .out_count = 2};
  c.in[0] = output;
  c.in[1] = brim_tensor_make(o->targets, BRIM_F32, 2, dim);
  c.in[2] = e->state;
  c.out[0] = e->metrics;
  c.out[1] = gradient;
  return c;
}

// A caller gets the parameters' names, shapes and types.
static void find_weights(outside *o, int i, brim_net_weight w[2]) {
  size_t count = 0;
  assert_ok(brim_net_weights(o->net[i], w, 2, &count));
  assert_int_equal(count, 2);
  for (size_t k = 0; k < 2; k++) {
    const brim_net_param *p = brim_net_param_at(o->net[i], k);
    assert_string_equal(w[k].name, p->name);
    assert_int_equal(w[k].value.rank, p->rank);
    assert_int_equal(brim_tensor_count(&w[k].value), p->count);
    assert_int_equal(brim_tensor_count(&w[k].gradient), p->count);
    assert_int_equal(w[k].value.dtype, o->input[i].dtype);
    assert_int_equal(w[k].gradient.dtype, BRIM_F32);
  }
  assert_int_equal(w[0].value.dim[0], WIDTH);
  assert_int_equal(w[0].value.dim[1], features[i]);
  // room for fewer weights than there are: those that fit
  brim_net_weight one = {0};
  assert_ok(brim_net_weights(o->net[i], &one, 1, &count));
  assert_int_equal(count, 2);
  assert_ptr_equal(one.value.data, w[0].value.data);
}

static void open_hand(outside *o, int i, const brim_net_external *e) {
  by_hand *h = &o->hand[i];
  brim_net_weight w[2];
  find_weights(o, i, w);
  const int64_t dim[] = {BATCH, WIDTH};
  const brim_dtype dtype = o->input[i].dtype;
  h->outputs = room(o->device, BATCH * WIDTH * sizeof(float));
  h->gradient = room(o->device, BATCH * WIDTH * sizeof(float));
  const brim_tensor y = brim_tensor_make(h->outputs, dtype, 2, dim);
  const brim_tensor dy = brim_tensor_make(h->gradient, dtype, 2, dim);
  h->forward = (brim_op_call){.op = BRIM_OP_LINEAR,
                              .in_count = 3,
                              .out_count = 1,
                              .in = {o->input[i], w[0].value, w[1].value},
                              .out = {y}};
  h->loss = loss_of(o, y, dy, e);
  h->backward = (brim_op_call){.op = BRIM_OP_LINEAR_BWD_WEIGHT,
                               .in_count = 2,
                               .out_count = 2,
                               .in = {dy, o->input[i]},
                               .out = {w[0].gradient, w[1].gradient}};
  prepare(o->device, &h->forward, &h->workspace[0]);
  prepare(o->device, &h->loss, &h->workspace[1]);
  prepare(o->device, &h->backward, &h->workspace[2]);
}

static void put_data(outside *o, int i, uint64_t seed) {
  const size_t n = (size_t)(STEPS * BATCH * features[i]);
  const bool half = o->input[i].dtype == BRIM_BF16;
  float *wide = malloc(n * sizeof *wide);
  uint16_t *narrow = malloc(n * sizeof *narrow);
  assert_true(wide && narrow);
  for (size_t e = 0; e < n; e++) {
    wide[e] = (float)(2 * test_random(seed, e) - 1);
    narrow[e] = brim_f32_to_bf16(wide[e]);
  }
  assert_ok(brim_device_copy(o->device, o->data[i], half ? (const void *)narrow : wide,
                             n * brim_dtype_size(o->input[i].dtype), BRIM_COPY_H2D));
  assert_ok(brim_device_sync(o->device));
  free(wide);
  free(narrow);
}

static void open_outside(brim_device *device, brim_precision precision, bool own, outside *o) {
  test_spec t[NETS];
  brim_net_spec specs[NETS];
  *o = (outside){.device = device, .own = own};
  for (int i = 0; i < NETS; i++) {
    test_spec_init(&t[i]);
    test_component_init(&t[i].model, "mlp");
    test_component_int(&t[i].model, "depth", 0);
    test_component_init(&t[i].optimizer, i ? "sgd" : "adam");
    brim_net_spec *s = &t[i].spec;
    s->loss = NULL;
    s->external_loss = s->input_in_place = true;
    s->classes = 0;
    s->target_dim = WIDTH;
    s->input_rank = 1;
    s->input_dim[0] = features[i];
    s->batch = BATCH;
    s->precision = precision;
    s->input_dtype = brim_precision_dtype(precision);
    s->clip_norm = 0.1;
    s->seed = 5 + (uint64_t)i;
    s->enqueued_steps = STEPS;
    specs[i] = *s;
  }
  assert_ok(brim_group_create(device, specs, NETS, &o->group));
  assert_ok(brim_record_create(device, o->group, &o->record));
  o->targets = room(device, BATCH * WIDTH * sizeof(float));
  for (int i = 0; i < NETS; i++) {
    brim_net_external e;
    o->net[i] = brim_group_net(o->group, i);
    assert_ok(brim_net_input(o->net[i], false, &o->input[i]));
    assert_ok(brim_net_external_loss(o->net[i], &e));
    o->data[i] = room(device, STEPS * brim_tensor_bytes(&o->input[i]));
    o->loss[i] = loss_of(o, e.output, e.gradient, &e);
    prepare(device, &o->loss[i], &o->workspace[i]);
    open_hand(o, i, &e);
  }
}

static void close_outside(outside *o) {
  assert_ok(brim_device_sync(o->device));
  brim_record_destroy(o->record);
  brim_device_free(o->device, BRIM_BUFFER_DEVICE, o->targets);
  for (int i = 0; i < NETS; i++) {
    by_hand *h = &o->hand[i];
    brim_op_call *calls[] = {&o->loss[i], &h->forward, &h->loss, &h->backward};
    void *rooms[] = {o->data[i],      o->workspace[i], h->outputs,     h->gradient,
                     h->workspace[0], h->workspace[1], h->workspace[2]};
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
      brim_op_release(o->device, calls[k]);
    }
    for (size_t k = 0; k < sizeof rooms / sizeof *rooms; k++) {
      brim_device_free(o->device, BRIM_BUFFER_DEVICE, rooms[k]);
    }
  }
  brim_group_destroy(o->group);
}

//---------------------------------- steps ----------------------------------

static brim_status take_losses(void *ctx) {
  outside *o = ctx;
  o->calls++;
  for (int i = 0; i < NETS; i++) BRIM_TRY(brim_op_run(o->device, &o->loss[i]));
  return BRIM_OK;
}

static brim_status take_gradients(void *ctx) {
  outside *o = ctx;
  o->calls++;
  // no network reads activations in between
  size_t bytes = 0;
  void *memory = brim_group_memory(o->group, &bytes);
  BRIM_TRY(brim_device_fill(o->device, memory, 0xFF, bytes));
  for (int i = 0; i < NETS; i++) {
    const by_hand *h = &o->hand[i];
    BRIM_TRY(brim_op_run(o->device, &h->forward));
    BRIM_TRY(brim_op_run(o->device, &h->loss));
    BRIM_TRY(brim_op_run(o->device, &h->backward));
  }
  return BRIM_OK;
}

static brim_status enqueue(void *ctx) {
  outside *o = ctx;
  for (int64_t step = 0; step < STEPS; step++) {
    for (int i = 0; i < NETS; i++) {
      const size_t bytes = brim_tensor_bytes(&o->input[i]);
      BRIM_TRY(brim_device_copy(o->device, o->input[i].data,
                                (char *)o->data[i] + (size_t)step * bytes, bytes, BRIM_COPY_D2D));
    }
    const brim_group_part part = {.losses = o->own ? NULL : take_losses,
                                  .gradients = o->own ? take_gradients : NULL,
                                  .ctx = o};
    BRIM_TRY(brim_group_enqueue(o->group, &part, step));
  }
  return BRIM_OK;
}

static void put_states(outside *o, int64_t iteration) {
  brim_group_state states[STEPS * NETS];
  for (int64_t k = 0; k < STEPS * NETS; k++) {
    const int64_t step = iteration * STEPS + k / NETS + 1;
    // the last rows of a batch may be padding
    const int64_t rows = step % 2 ? BATCH : BATCH - 3;
    states[k] = (brim_group_state){
        .step = step, .lr = 0.02 / (double)step, .rows = rows, .step_rows = rows};
  }
  assert_ok(brim_group_put_states(o->group, states, STEPS));
}

typedef struct result {
  float *params[NETS], *grads[NETS];
  size_t count[NETS];
  brim_net_metrics metrics[NETS];
} result;

static void result_free(result *r) {
  for (int i = 0; i < NETS; i++) {
    free(r->params[i]);
    free(r->grads[i]);
  }
}

static void train(brim_device *device, brim_precision precision, bool own, bool op_by_op,
                  result *r) {
  outside o;
  open_outside(device, precision, own, &o);
  for (int64_t iteration = 0; iteration < ITERATIONS; iteration++) {
    for (int i = 0; i < NETS; i++) put_data(&o, i, 100 * (uint64_t)iteration + (uint64_t)i);
    put_states(&o, iteration);
    assert_ok(brim_record_run(o.record, enqueue, &o, op_by_op));
  }
  const bool launched = !op_by_op && brim_device_has_graphs(device);
  assert_int_equal(o.calls, STEPS * (launched ? 2 : ITERATIONS));
  for (int i = 0; i < NETS; i++) {
    assert_ok(brim_net_read_metrics(o.net[i], true, &r->metrics[i]));
    r->params[i] = test_params(o.net[i], &r->count[i]);
    r->grads[i] = test_grads(o.net[i], &r->count[i]);
  }
  close_outside(&o);
}

static void same_bits(brim_device *device) {
  static const brim_precision precisions[] = {BRIM_PRECISION_FP32, BRIM_PRECISION_BF16};
  for (size_t k = 0; k < 2; k++) {
    result general, own;
    train(device, precisions[k], false, false, &general);
    for (int op_by_op = 0; op_by_op < 2; op_by_op++) {
      train(device, precisions[k], true, op_by_op, &own);
      for (int i = 0; i < NETS; i++) {
        const size_t bytes = general.count[i] * sizeof(float);
        assert_memory_equal(general.params[i], own.params[i], bytes);
        assert_memory_equal(general.grads[i], own.grads[i], bytes);
        assert_true(general.metrics[i].grad_norm == own.metrics[i].grad_norm);
        assert_true(general.metrics[i].grad_norm > 0);
        assert_true(general.metrics[i].loss_sum == own.metrics[i].loss_sum);
      }
      result_free(&own);
    }
    result_free(&general);
  }
}

static void test_late(void **state) {
  (void)state;
  brim_device *device = lazy_open(0);
  same_bits(device);
  lazy_close(device);
}

//---------------------------------- refused ----------------------------------

static brim_status enqueue_adding(void *ctx) {
  outside *o = ctx;
  const brim_group_part part = {.adding = true, .gradients = take_gradients, .ctx = o};
  return brim_group_enqueue(o->group, &part, 0);
}

static void test_misuse(void **state) {
  (void)state;
  outside o;
  brim_device *device = test_device_ref();
  open_outside(device, BRIM_PRECISION_FP32, true, &o);
  put_states(&o, 0);
  assert_int_equal(brim_record_run(o.record, enqueue_adding, &o, true), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "cannot be added to earlier ones"));
  assert_int_equal(o.calls, 0);
  close_outside(&o);
  // a network with its own loss has no caller's gradients
  test_spec t;
  brim_net *net;
  brim_net_weight w[8];
  size_t count = 0;
  test_spec_init(&t);
  assert_ok(brim_net_create(device, &t.spec, &net));
  assert_int_equal(brim_net_weights(net, w, 8, &count), BRIM_ESTATE);
  brim_net_destroy(net);
  test_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      ON(same_bits, ref),
      ON(same_bits, cpu),
      ON(same_bits, cuda),
      cmocka_unit_test(test_late),
      cmocka_unit_test(test_misuse),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
