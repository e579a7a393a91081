// Work of several calls in one launch: iterations of evaluations and steps of a group, with batches in place. Against
// the same evaluations and steps one by one, from batches in host memory: the same bits, op by op and launched, also
// after a checkpoint, a skipped step and a failure.
#include <math.h>
#include <unistd.h>

#include "backend/backend_half.h"
#include "engine_lazy.h"
#include "engine_on.h"

enum { ITERATIONS = 4, STEPS = 3, BATCH = 8, EVAL = 4, NETS = 2, ACTOR = 0, CRITIC = 1, WIDTH = 3 };

typedef struct setting {
  int64_t accumulation;
  brim_precision precision;
  bool wide_inputs;  // inputs in f32, whatever the precision
  bool bad;          // an input of the second iteration is not finite
} setting;

static const double rates[NETS] = {0.01, 0.03};
static const int64_t features[NETS] = {6, 11};

//---------------------------------- networks ----------------------------------

// in_place: bit i stands for network i.
static void make_specs(test_spec t[NETS], const setting *s, unsigned in_place) {
  static const int64_t hidden[NETS] = {40, 24};
  for (int i = 0; i < NETS; i++) {
    test_spec_init(&t[i]);
    test_component_int(&t[i].model, "hidden", hidden[i]);
    test_component_string(&t[i].model, "activation", "tanh");
    test_component_float(&t[i].model, "dropout", 0.1);
    test_component_init(&t[i].optimizer, i == ACTOR ? "adam" : "sgd");
    t[i].spec.loss = NULL;
    t[i].spec.external_loss = true;
    t[i].spec.classes = 0;
    t[i].spec.target_dim = WIDTH;
    t[i].spec.input_rank = 1;
    t[i].spec.input_dim[0] = features[i];
    t[i].spec.batch = BATCH;
    t[i].spec.eval_batch = EVAL;
    t[i].spec.accumulation = s->accumulation;
    t[i].spec.precision = s->precision;
    t[i].spec.clip_norm = 0.5;
    t[i].spec.ema_decay = i == CRITIC ? 0.9 : 0;
    t[i].spec.seed = 3 + (uint64_t)i;
    if (!(in_place >> i & 1)) continue;
    t[i].spec.input_in_place = true;
    t[i].spec.enqueued_steps = STEPS * s->accumulation;
    if (!s->wide_inputs) t[i].spec.input_dtype = brim_precision_dtype(s->precision);
  }
}

// Numbers of the data's rows: each micro-batch of an iteration has its own, then the evaluation.
static int64_t rows_of(const setting *s) { return STEPS * s->accumulation * BATCH + EVAL; }

static int64_t step_rows(const setting *s, int64_t iteration, int64_t step) {
  return s->accumulation * BATCH - (iteration == 2 && step == 1 ? 3 : 0);
}

static int64_t micro_rows(int64_t all, int64_t k) {
  return all - k * BATCH < BATCH ? all - k * BATCH : BATCH;
}

static double rate(int net, int64_t iteration, int64_t step) {
  return rates[net] / (double)(1 + iteration + step);
}

// The host's data of an iteration.
typedef struct host_data {
  float *input[NETS];
  int32_t *labels;
} host_data;

static void host_open(const setting *s, int64_t iteration, host_data *h) {
  int64_t rows = rows_of(s);
  for (int i = 0; i < NETS; i++) {
    int64_t n = rows * features[i];
    h->input[i] = malloc((size_t)n * sizeof(float));
    assert_non_null(h->input[i]);
    for (int64_t e = 0; e < n; e++) {
      double u = test_random(7 + (uint64_t)(i + NETS * iteration), (uint64_t)e);
      h->input[i][e] = (float)(2 * u - 1);
    }
  }
  if (s->bad && iteration == 1) h->input[CRITIC][5] = NAN;
  h->labels = malloc((size_t)rows * sizeof *h->labels);
  assert_non_null(h->labels);
  for (int64_t r = 0; r < rows; r++) h->labels[r] = (int32_t)((r * 5 + iteration) % WIDTH);
}

static void host_close(host_data *h) {
  for (int i = 0; i < NETS; i++) free(h->input[i]);
  free(h->labels);
}

//---------------------------------- losses ----------------------------------

// Labels for the actor, zeros for the critic; and the data of an iteration on the device.
typedef struct outside {
  brim_device *device;
  const setting *s;
  brim_group *group;
  brim_net *net[NETS];
  brim_op_call call[NETS];
  void *labels, *zeros, *workspace[NETS];
  void *data[NETS], *all_labels, *outputs;  // for an iteration
  size_t row_bytes[NETS], output_bytes;
  brim_tensor input[NETS][2], output[NETS];  // of training, of evaluation
  int calls;
} outside;

static void *room(brim_device *device, size_t bytes) {
  void *p = NULL;
  assert_ok(brim_device_alloc(device, BRIM_BUFFER_DEVICE, bytes, &p));
  assert_ok(brim_device_fill(device, p, 0, bytes));
  return p;
}

static void open_loss(outside *o, int i) {
  int64_t dim[] = {BATCH, WIDTH};
  brim_net_external e;
  assert_ok(brim_net_external_loss(o->net[i], &e));
  brim_op_call *c = &o->call[i];
  *c = (brim_op_call){.in_count = 3, .out_count = 2};
  c->op = i == ACTOR ? BRIM_OP_XENT : BRIM_OP_MSE;
  c->in[0] = e.output;
  c->in[1] = i == ACTOR ? brim_tensor_make(o->labels, BRIM_I32, 1, dim)
                        : brim_tensor_make(o->zeros, BRIM_F32, 2, dim);
  c->in[2] = e.state;
  c->out[0] = e.metrics;
  c->out[1] = e.gradient;
  assert_ok(brim_op_prepare(o->device, c));
  if (c->workspace_bytes) o->workspace[i] = room(o->device, c->workspace_bytes);
  c->workspace = o->workspace[i];
}

static void outside_open(brim_device *device, const setting *s, brim_group *group, outside *o) {
  *o = (outside){.device = device, .s = s, .group = group};
  o->labels = room(device, BATCH * sizeof(int32_t));
  o->zeros = room(device, BATCH * WIDTH * sizeof(float));
  o->all_labels = room(device, (size_t)rows_of(s) * sizeof(int32_t));
  for (int i = 0; i < NETS; i++) {
    o->net[i] = brim_group_net(group, i);
    open_loss(o, i);
    if (!o->net[i]->in_place) continue;
    assert_ok(brim_net_input(o->net[i], false, &o->input[i][0]));
    assert_ok(brim_net_input(o->net[i], true, &o->input[i][1]));
    assert_int_equal(o->input[i][0].dim[0], BATCH);
    assert_int_equal(o->input[i][1].dim[0], EVAL);
    assert_int_equal(o->input[i][1].dim[1], features[i]);
    assert_ok(brim_net_output_tensor(o->net[i], &o->output[i]));
    o->row_bytes[i] = (size_t)features[i] * brim_dtype_size(o->input[i][0].dtype);
    o->data[i] = room(device, (size_t)rows_of(s) * o->row_bytes[i]);
    o->output_bytes = brim_tensor_bytes(&o->output[i]);
  }
  if (o->output_bytes) o->outputs = room(device, NETS * STEPS * o->output_bytes);
  assert_ok(brim_device_sync(device));
}

static void outside_close(outside *o) {
  assert_ok(brim_device_sync(o->device));
  void *all[] = {o->labels,  o->zeros,   o->all_labels,   o->data[0],
                 o->data[1], o->outputs, o->workspace[0], o->workspace[1]};
  for (int i = 0; i < NETS; i++) brim_op_release(o->device, &o->call[i]);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    brim_device_free(o->device, BRIM_BUFFER_DEVICE, all[i]);
  }
}

static brim_status take_losses(void *ctx) {
  outside *o = ctx;
  o->calls++;
  for (int i = 0; i < NETS; i++) BRIM_TRY(brim_op_run(o->device, &o->call[i]));
  return BRIM_OK;
}

//---------------------------------- results ----------------------------------

typedef struct result {
  float *params[NETS], *grads[NETS];
  size_t count[NETS];
  float outputs[ITERATIONS][STEPS][NETS][EVAL * WIDTH];
  brim_net_metrics metrics[NETS];
} result;

static void result_free(result *r) {
  for (int i = 0; i < NETS; i++) {
    free(r->params[i]);
    free(r->grads[i]);
  }
}

static bool same_number(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static void same_result(const result *a, const result *b, const setting *s) {
  for (int i = 0; i < NETS; i++) {
    assert_int_equal(a->count[i], b->count[i]);
    assert_memory_equal(a->params[i], b->params[i], a->count[i] * sizeof(float));
    assert_memory_equal(a->grads[i], b->grads[i], a->count[i] * sizeof(float));
    const brim_net_metrics *m = &a->metrics[i], *n = &b->metrics[i];
    assert_true(same_number(m->loss_sum, n->loss_sum));
    assert_true(m->rows == n->rows && m->rows > 0);
    assert_true(same_number(m->grad_norm, n->grad_norm));
    assert_true(same_number(m->grad_norm_max, n->grad_norm_max));
    assert_true(m->loss_scale == n->loss_scale);
    assert_int_equal(m->skipped_steps, n->skipped_steps);
  }
  if (s->bad) assert_true(a->metrics[CRITIC].skipped_steps > 0);
  assert_memory_equal(a->outputs, b->outputs, sizeof a->outputs);
}

static void leave(brim_net *const nets[NETS], result *r) {
  for (int i = 0; i < NETS; i++) {
    assert_ok(brim_net_read_metrics(nets[i], true, &r->metrics[i]));
    r->params[i] = test_params(nets[i], &r->count[i]);
    r->grads[i] = test_grads(nets[i], &r->count[i]);
  }
}

//---------------------------------- one by one ----------------------------------

static brim_status put_labels(outside *o, const int32_t *labels) {
  BRIM_TRY(brim_device_copy(o->device, o->labels, labels, BATCH * sizeof *labels, BRIM_COPY_H2D));
  return brim_device_sync(o->device);
}

static void step_alone(outside *o, const host_data *h, int64_t iteration, int64_t step) {
  int64_t all = step_rows(o->s, iteration, step);
  for (int64_t k = 0; k < o->s->accumulation; k++) {
    int64_t row = (step * o->s->accumulation + k) * BATCH;
    double lr[NETS];
    brim_net_micro micro[NETS];
    for (int i = 0; i < NETS; i++) {
      lr[i] = rate(i, iteration, step);
      micro[i] = (brim_net_micro){.batch = {.input = h->input[i] + row * features[i],
                                            .rows = micro_rows(all, k),
                                            .row_offset = k * BATCH},
                                  .step = iteration * STEPS + step + 1,
                                  .step_rows = all,
                                  .first = k == 0};
    }
    assert_ok(put_labels(o, h->labels + row));
    brim_group_step g = {.micro = micro,
                         .lr = k + 1 == o->s->accumulation ? lr : NULL,
                         .losses = take_losses,
                         .ctx = o};
    assert_ok(brim_group_run(o->group, &g, NULL));
  }
}

static void run_alone_as(brim_device *device, const setting *s, unsigned in_place, result *r) {
  test_spec t[NETS];
  brim_group *group;
  outside o;
  make_specs(t, s, in_place);
  brim_net_spec specs[NETS] = {t[0].spec, t[1].spec};
  assert_ok(brim_group_create(device, specs, NETS, &group));
  outside_open(device, s, group, &o);
  for (int64_t iteration = 0; iteration < ITERATIONS; iteration++) {
    host_data h;
    host_open(s, iteration, &h);
    for (int64_t step = 0; step < STEPS; step++) {
      for (int i = 0; i < NETS; i++) {
        brim_batch batch = {.input = h.input[i] + (rows_of(s) - EVAL) * features[i], .rows = EVAL};
        assert_ok(brim_net_evaluate(o.net[i], &batch, NULL));
        assert_ok(brim_net_outputs(o.net[i], r->outputs[iteration][step][i], EVAL));
      }
      step_alone(&o, &h, iteration, step);
    }
    host_close(&h);
  }
  leave(o.net, r);
  outside_close(&o);
  brim_group_destroy(group);
}

static void run_alone(brim_device *device, const setting *s, result *r) {
  run_alone_as(device, s, 0, r);
}

//---------------------------------- in one launch ----------------------------------

static brim_status look(outside *o, int net, int64_t row, int64_t rows, bool evaluation) {
  return brim_device_copy(o->device, o->input[net][evaluation].data,
                          (unsigned char *)o->data[net] + (size_t)row * o->row_bytes[net],
                          (size_t)rows * o->row_bytes[net], BRIM_COPY_D2D);
}

static brim_status enqueue_step(outside *o, int64_t step) {
  for (int64_t k = 0; k < o->s->accumulation; k++) {
    int64_t index = step * o->s->accumulation + k, row = index * BATCH;
    for (int i = 0; i < NETS; i++) BRIM_TRY(look(o, i, row, BATCH, false));
    BRIM_TRY(brim_device_copy(o->device, o->labels, (int32_t *)o->all_labels + row,
                              BATCH * sizeof(int32_t), BRIM_COPY_D2D));
    brim_group_part part = {.adding = k > 0,
                            .gradients_only = k + 1 < o->s->accumulation,
                            .losses = take_losses,
                            .ctx = o};
    BRIM_TRY(brim_group_enqueue(o->group, &part, index));
  }
  return BRIM_OK;
}

static brim_status enqueue_iteration(void *ctx) {
  outside *o = ctx;
  for (int64_t step = 0; step < STEPS; step++) {
    for (int i = 0; i < NETS; i++) {
      BRIM_TRY(look(o, i, rows_of(o->s) - EVAL, EVAL, true));
      BRIM_TRY(brim_net_enqueue_outputs(o->net[i]));
      size_t at = (size_t)(step * NETS + i) * o->output_bytes;
      BRIM_TRY(brim_device_copy(o->device, (unsigned char *)o->outputs + at, o->output[i].data,
                                o->output_bytes, BRIM_COPY_D2D));
    }
    BRIM_TRY(enqueue_step(o, step));
  }
  return BRIM_OK;
}

static void put_input(outside *o, int net, const float *from) {
  size_t n = (size_t)(rows_of(o->s) * features[net]);
  brim_dtype dtype = o->input[net][0].dtype;
  uint16_t *narrow = malloc(n * sizeof *narrow);
  assert_non_null(narrow);
  for (size_t e = 0; e < n; e++) {
    narrow[e] = dtype == BRIM_F16 ? brim_f32_to_f16(from[e]) : brim_f32_to_bf16(from[e]);
  }
  assert_ok(brim_device_copy(o->device, o->data[net],
                             dtype == BRIM_F32 ? (const void *)from : narrow,
                             n * brim_dtype_size(dtype), BRIM_COPY_H2D));
  assert_ok(brim_device_sync(o->device));
  free(narrow);
}

static void put_iteration(outside *o, int64_t iteration) {
  host_data h;
  host_open(o->s, iteration, &h);
  for (int i = 0; i < NETS; i++) put_input(o, i, h.input[i]);
  assert_ok(brim_device_copy(o->device, o->all_labels, h.labels,
                             (size_t)rows_of(o->s) * sizeof *h.labels, BRIM_COPY_H2D));
  assert_ok(brim_device_sync(o->device));
  host_close(&h);
  brim_group_state states[STEPS * 3 * NETS];
  for (int64_t step = 0; step < STEPS; step++) {
    int64_t all = step_rows(o->s, iteration, step);
    for (int64_t k = 0; k < o->s->accumulation; k++) {
      for (int i = 0; i < NETS; i++) {
        states[(step * o->s->accumulation + k) * NETS + i] =
            (brim_group_state){.step = iteration * STEPS + step + 1,
                               .lr = rate(i, iteration, step),
                               .rows = micro_rows(all, k),
                               .row_offset = k * BATCH,
                               .step_rows = all};
      }
    }
  }
  assert_ok(brim_group_put_states(o->group, states, STEPS * o->s->accumulation));
}

static void fetch_outputs(outside *o, result *r, int64_t iteration) {
  unsigned char raw[NETS * STEPS * EVAL * WIDTH * 4];
  assert_ok(
      brim_device_copy(o->device, raw, o->outputs, NETS * STEPS * o->output_bytes, BRIM_COPY_D2H));
  assert_ok(brim_device_sync(o->device));
  brim_dtype dtype = o->output[0].dtype;
  float *out = &r->outputs[iteration][0][0][0];
  for (size_t e = 0; e < NETS * STEPS * EVAL * WIDTH; e++) {
    uint16_t half;
    memcpy(&half, raw + 2 * e, sizeof half);
    if (dtype == BRIM_F32) memcpy(&out[e], raw + 4 * e, 4);
    if (dtype == BRIM_BF16) out[e] = brim_bf16_to_f32(half);
    if (dtype == BRIM_F16) out[e] = brim_f16_to_f32(half);
  }
}

typedef struct running {
  brim_group *group;
  brim_record *record;
  outside o;
} running;

static void running_open(brim_device *device, const setting *s, running *x) {
  test_spec t[NETS];
  make_specs(t, s, 3);
  brim_net_spec specs[NETS] = {t[0].spec, t[1].spec};
  assert_ok(brim_group_create(device, specs, NETS, &x->group));
  outside_open(device, s, x->group, &x->o);
  assert_ok(brim_record_create(device, x->group, &x->record));
}

static void running_close(running *x) {
  brim_record_destroy(x->record);
  outside_close(&x->o);
  brim_group_destroy(x->group);
}

// Saves, and loads into a fresh group, as a resumed run does.
static void move_over(brim_device *device, const setting *s, running *x) {
  running next;
  running_open(device, s, &next);
  for (int i = 0; i < NETS; i++) {
    char path[64];
    brim_net_sums sums;
    snprintf(path, sizeof path, "record-%d-%d.safetensors", (int)getpid(), i);
    assert_ok(brim_net_save(x->o.net[i], path, NULL, false));
    assert_ok(brim_net_get_sums(x->o.net[i], &sums));
    assert_ok(brim_net_load(next.o.net[i], path, false, NULL));
    assert_ok(brim_net_set_sums(next.o.net[i], &sums));
    unlink(path);
  }
  running_close(x);
  *x = next;
}

typedef enum how { HOW_LAUNCHED, HOW_OP_BY_OP, HOW_RESUMED } how;

static void run_recorded(brim_device *device, const setting *s, how h, result *r) {
  running x;
  running_open(device, s, &x);
  for (int64_t iteration = 0; iteration < ITERATIONS; iteration++) {
    if (h == HOW_RESUMED && iteration == 2) move_over(device, s, &x);
    put_iteration(&x.o, iteration);
    assert_ok(brim_record_run(x.record, enqueue_iteration, &x.o, h == HOW_OP_BY_OP));
    fetch_outputs(&x.o, r, iteration);
  }
  // a recording does not call its losses again
  int all = ITERATIONS * STEPS * (int)s->accumulation;
  if (h == HOW_LAUNCHED && brim_device_has_graphs(device)) {
    assert_int_equal(x.o.calls, all / ITERATIONS * 2);
  } else if (h != HOW_RESUMED) {
    assert_int_equal(x.o.calls, all);
  }
  leave(x.o.net, r);
  running_close(&x);
}

//---------------------------------- equal bits ----------------------------------

static const setting settings[] = {
    {.accumulation = 1},
    {.accumulation = 3, .bad = true},
    {.accumulation = 1, .precision = BRIM_PRECISION_BF16, .bad = true},
    {.accumulation = 3, .precision = BRIM_PRECISION_BF16},
    {.accumulation = 1, .precision = BRIM_PRECISION_BF16, .wide_inputs = true},
    {.accumulation = 1, .precision = BRIM_PRECISION_FP16, .bad = true},
};

static void same_bits(brim_device *device) {
  int compared = 0;
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
    const setting *s = &settings[i];
    test_spec t[NETS];
    brim_plan plan = {0};
    make_specs(t, s, 0);
    if (brim_net_plan(device, &t[0].spec, &plan) == BRIM_EUNSUPPORTED) continue;
    result alone, recorded;
    run_alone(device, s, &alone);
    for (int h = HOW_LAUNCHED; h <= HOW_RESUMED; h++) {
      run_recorded(device, s, (how)h, &recorded);
      same_result(&alone, &recorded, s);
      result_free(&recorded);
    }
    result_free(&alone);
    compared++;
  }
  assert_true(compared >= 2);
}

// Late streams: with recording, and with recording refused.
static void test_late(void **state) {
  (void)state;
  const setting *s = &settings[1];
  result expected, late;
  brim_device *device = test_device_ref();
  run_alone(device, s, &expected);
  test_device_close(device);
  brim_log_set_sink(NULL, NULL, BRIM_LOG_ERROR);
  for (int refuse = 1; refuse <= 3; refuse++) {
    device = lazy_open(refuse);
    run_recorded(device, s, HOW_OP_BY_OP, &late);
    lazy_close(device);
    same_result(&expected, &late, s);
    result_free(&late);
  }
  brim_log_set_sink(NULL, NULL, BRIM_LOG_WARN);
  device = lazy_open(0);
  run_recorded(device, s, HOW_LAUNCHED, &late);
  assert_int_equal(lazy_count(device)->captures, 1);
  assert_int_equal(lazy_count(device)->launches, ITERATIONS - 1);
  lazy_close(device);
  same_result(&expected, &late, s);
  result_free(&late);
  result_free(&expected);
  device = lazy_open(0);
  same_bits(device);
  lazy_close(device);
}

// Evaluation and steps in place, by the calls that run them one by one.
static void in_place(brim_device *device) {
  const setting *s = &settings[0];
  result alone, r;
  running x;
  run_alone(device, s, &alone);
  running_open(device, s, &x);
  for (int64_t iteration = 0; iteration < ITERATIONS; iteration++) {
    put_iteration(&x.o, iteration);
    for (int64_t step = 0; step < STEPS; step++) {
      double lr[NETS];
      brim_net_micro micro[NETS];
      for (int i = 0; i < NETS; i++) {
        brim_batch batch = {.on_device = true, .rows = EVAL};
        assert_ok(look(&x.o, i, rows_of(s) - EVAL, EVAL, true));
        assert_ok(brim_net_evaluate(x.o.net[i], &batch, NULL));
        assert_ok(brim_net_outputs(x.o.net[i], r.outputs[iteration][step][i], EVAL));
        brim_tensor out;
        assert_ok(brim_net_output_tensor(x.o.net[i], &out));
        assert_ptr_equal(out.data, x.o.output[i].data);
      }
      for (int i = 0; i < NETS; i++) {
        int64_t all = step_rows(s, iteration, step);
        lr[i] = rate(i, iteration, step);
        micro[i] = (brim_net_micro){.batch = {.on_device = true, .rows = all},
                                    .step = iteration * STEPS + step + 1,
                                    .step_rows = all,
                                    .first = true};
        assert_ok(look(&x.o, i, step * BATCH, BATCH, false));
      }
      assert_ok(brim_device_copy(device, x.o.labels, (int32_t *)x.o.all_labels + step * BATCH,
                                 BATCH * sizeof(int32_t), BRIM_COPY_D2D));
      brim_group_step g = {.micro = micro, .lr = lr, .losses = take_losses, .ctx = &x.o};
      assert_ok(brim_group_run(x.group, &g, NULL));
    }
  }
  leave(x.o.net, &r);
  same_result(&alone, &r, s);
  running_close(&x);
  result_free(&alone);
  result_free(&r);
}

// Batches in host memory for networks with inputs in place, also beside a network without.
static void from_host(brim_device *device) {
  const setting *s = &settings[1];
  result expected, r;
  run_alone(device, s, &expected);
  for (unsigned in_place = 1; in_place <= 3; in_place++) {
    run_alone_as(device, s, in_place, &r);
    same_result(&expected, &r, s);
    result_free(&r);
  }
  result_free(&expected);
}

static void test_late_from_host(void **state) {
  (void)state;
  brim_device *device = lazy_open(0);
  from_host(device);
  lazy_close(device);
}

//---------------------------------- memory ----------------------------------

static void planned(brim_device *device) {
  const setting *s = &settings[1];
  test_spec t[NETS];
  brim_plan plan = {0};
  brim_alloc_stats before, after;
  running x;
  make_specs(t, s, 3);
  brim_net_spec specs[NETS] = {t[0].spec, t[1].spec};
  assert_ok(brim_group_plan(device, specs, NETS, &plan));
  brim_group *group;
  brim_alloc_get_stats(&before);
  assert_ok(brim_group_create(device, specs, NETS, &group));
  brim_alloc_get_stats(&after);
  assert_int_equal(after.live_bytes[BRIM_MEM_PLANNED] - before.live_bytes[BRIM_MEM_PLANNED],
                   plan.bytes[BRIM_PLACE_DEVICE]);
  brim_group_destroy(group);
  running_open(device, s, &x);
  for (int64_t iteration = 0; iteration < 3; iteration++) {
    put_iteration(&x.o, iteration);
    brim_alloc_get_stats(&before);
    assert_ok(brim_record_run(x.record, enqueue_iteration, &x.o, false));
    brim_alloc_get_stats(&after);
    assert_int_equal(after.calls, before.calls);
  }
  running_close(&x);
}

//---------------------------------- failures ----------------------------------

// The second iteration fails at its nth op; before weights move it is undone and repeated. False = it has no such op.
static bool undone(int n, const setting *s, const result *expected, int *moved) {
  running x;
  result r;
  brim_device *device = lazy_open(1);
  running_open(device, s, &x);
  brim_status status = BRIM_OK;
  for (int64_t iteration = 0; iteration < ITERATIONS && status != BRIM_EDEVICE; iteration++) {
    put_iteration(&x.o, iteration);
    if (iteration == 1 && !status) lazy_fail_op(device, n);
    brim_status ran = brim_record_run(x.record, enqueue_iteration, &x.o, false);
    lazy_fail_op(device, 0);
    if (ran == BRIM_EOOM) {
      assert_ok(brim_group_undo(x.group));
      iteration--;
    } else if (ran) {
      assert_int_equal(ran, BRIM_EDEVICE);
    } else {
      fetch_outputs(&x.o, &r, iteration);
    }
    if (ran) status = ran;
  }
  if (status == BRIM_EDEVICE) {
    (*moved)++;
  } else {
    leave(x.o.net, &r);
    same_result(expected, &r, s);
    result_free(&r);
  }
  running_close(&x);
  lazy_close(device);
  return status != BRIM_OK;
}

static void test_undone(void **state) {
  (void)state;
  const setting s = {.accumulation = 1};
  result expected;
  brim_device *device = test_device_ref();
  run_alone(device, &s, &expected);
  test_device_close(device);
  brim_log_set_sink(NULL, NULL, BRIM_LOG_ERROR);
  int ops = 1, moved = 0;
  while (undone(ops, &s, &expected, &moved)) ops++;
  brim_log_set_sink(NULL, NULL, BRIM_LOG_WARN);
  // after the first of three steps nothing can be repeated
  assert_true(moved > (ops - 1) / 2 && moved < ops - 10);
  result_free(&expected);
}

static brim_status enqueue_two(void *ctx) {
  outside *o = ctx;
  for (int64_t step = 0; step < 2; step++) BRIM_TRY(enqueue_step(o, step));
  return BRIM_OK;
}

static brim_status enqueue_twice(void *ctx) {
  BRIM_TRY(enqueue_step(ctx, 0));
  return enqueue_step(ctx, 0);
}

static brim_status enqueue_none(void *ctx) {
  (void)ctx;
  return BRIM_OK;
}

static void refused(brim_status status, const char *text) {
  assert_int_equal(status, BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), text));
}

// The work makes other steps than the host announced.
static void test_misuse(void **state) {
  (void)state;
  const setting s = {.accumulation = 1};
  running x;
  brim_device *device = lazy_open(0);
  running_open(device, &s, &x);
  put_iteration(&x.o, 0);
  refused(brim_record_run(x.record, enqueue_none, &x.o, false), "makes 0 steps");
  refused(brim_record_run(x.record, enqueue_twice, &x.o, false), "is enqueued as number 1 of 3");
  refused(brim_record_run(x.record, enqueue_two, &x.o, false), "makes 2 steps");
  brim_group_state two[2 * NETS];
  for (int i = 0; i < 2 * NETS; i++) {
    two[i] = (brim_group_state){.step = 1 + i / NETS, .lr = 0.01, .rows = 8, .step_rows = 8};
  }
  for (int run = 0; run < 3; run++) {
    assert_ok(brim_group_put_states(x.group, two, 2));
    assert_ok(brim_record_run(x.record, enqueue_two, &x.o, false));
    for (int i = 0; i < 2 * NETS; i++) two[i].step += 2;
  }
  refused(brim_record_run(x.record, enqueue_two, &x.o, false), "but states of 0 were put");
  refused(brim_group_put_states(x.group, two, 4), "expected 1 to 3");
  two[NETS].step++;
  refused(brim_group_put_states(x.group, two, 2), "cannot follow");
  two[NETS].step -= 2;
  refused(brim_group_put_states(x.group, two, 2), "cannot follow");
  two[1].rows = 9;
  refused(brim_group_put_states(x.group, two, 1), "invalid step");
  running_close(&x);
  brim_record_destroy(NULL);
  lazy_close(device);
}

// The rows of a batch lie within the rows of its step, behind those of the batch before.
static void test_rows_of_a_step(void **state) {
  (void)state;
  const setting s = {.accumulation = 2};
  running x;
  brim_device *device = lazy_open(0);
  running_open(device, &s, &x);
  brim_group_state two[2 * NETS];
  for (int i = 0; i < 2 * NETS; i++) {
    two[i] = (brim_group_state){
        .step = 1, .lr = 0.01, .rows = 8, .row_offset = 8 * (i / NETS), .step_rows = 16};
  }
  assert_ok(brim_group_put_states(x.group, two, 2));
  brim_group_state *last = &two[2 * NETS - 1];
  last->row_offset = 9;
  refused(brim_group_put_states(x.group, two, 2), "8 of 16 rows from row 9");
  last->row_offset = INT64_MAX;
  refused(brim_group_put_states(x.group, two, 2), "invalid step");
  last->row_offset = -1;
  refused(brim_group_put_states(x.group, two, 2), "invalid step");
  last->row_offset = 7;
  refused(brim_group_put_states(x.group, two, 2),
          "rows 7 to 15 of 16 cannot follow rows 0 to 8 of 16");
  last->row_offset = 8;
  last->step_rows = 17;
  refused(brim_group_put_states(x.group, two, 2), "of 17 cannot follow");
  last->step_rows = 16;
  assert_ok(brim_group_put_states(x.group, two, 2));
  running_close(&x);
  lazy_close(device);
}

static void test_specs(void **state) {
  (void)state;
  const setting s = {.accumulation = 1, .precision = BRIM_PRECISION_BF16};
  test_spec t[NETS];
  brim_net *net;
  brim_tensor input;
  brim_device *device = test_device_ref();
  make_specs(t, &s, 3);
  brim_net_spec spec = t[0].spec;
  spec.input_dtype = BRIM_F16;
  refused(brim_net_create(device, &spec, &net), "inputs are f16");
  spec.input_dtype = BRIM_BF16;
  spec.scale[0] = 0.5f;
  refused(brim_net_create(device, &spec, &net), "read as they are");
  spec.scale[0] = 1;
  spec.enqueued_steps = BRIM_GROUP_STATES + 1;
  refused(brim_net_create(device, &spec, &net), "steps are enqueued at once");
  spec.enqueued_steps = 0;
  spec.external_loss = false;
  spec.loss = &t[0].loss.c;
  refused(brim_net_create(device, &spec, &net), "inputs in place need a loss outside");
  spec = t[0].spec;
  spec.input_in_place = false;
  assert_ok(brim_net_create(device, &spec, &net));
  assert_int_equal(brim_net_input(net, false, &input), BRIM_ESTATE);
  assert_int_equal(brim_net_enqueue_outputs(net), BRIM_ESTATE);
  brim_net_destroy(net);
  test_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      ON(same_bits, ref),
      ON(same_bits, cpu),
      ON(same_bits, cuda),
      cmocka_unit_test(test_late),
      ON(in_place, ref),
      ON(in_place, cpu),
      ON(in_place, cuda),
      ON(from_host, ref),
      ON(from_host, cpu),
      ON(from_host, cuda),
      cmocka_unit_test(test_late_from_host),
      ON(planned, ref),
      ON(planned, cpu),
      cmocka_unit_test(test_undone),
      cmocka_unit_test(test_misuse),
      cmocka_unit_test(test_rows_of_a_step),
      cmocka_unit_test(test_specs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
