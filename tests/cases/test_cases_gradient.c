// Gradients by central differences in f64 on ref, over the case list. For every op with a gradient
// the scalar is L = sum of r * output with random r (for losses, the loss itself times GRAD_SCALE);
// the analytic gradient comes from the backward ops. On ref, device memory is host memory, so calls
// point straight at arrays.
#include <math.h>

#include "base/base.h"
#include "cases/cases.h"
#include "test.h"

enum { SAMPLES = 12 };  // coordinates tried per tensor

static brim_registry *registry;
static brim_device *ref;

static int setup(void **state) {
  (void)state;
  assert_ok(brim_registry_create(&registry));
  assert_ok(brim_device_open(registry, "ref", NULL, &ref));
  return 0;
}

static int teardown(void **state) {
  (void)state;
  brim_device_close(ref);
  brim_registry_destroy(registry);
  return 0;
}

static double *numbers(int64_t count) {
  double *p = brim_calloc((size_t)count, sizeof(double));
  assert_non_null(p);
  return p;
}

static double *random_numbers(int64_t count, uint64_t slot) {
  double *p = numbers(count);
  for (int64_t i = 0; i < count; i++) p[i] = brim_case_uniform(77, slot, (uint64_t)i);
  return p;
}

static brim_tensor vec(double *data, int64_t n) {
  return brim_tensor_make(data, BRIM_F64, 1, (const int64_t[]){n});
}

static brim_tensor mat(double *data, int64_t n, int64_t m) {
  return brim_tensor_make(data, BRIM_F64, 2, (const int64_t[]){n, m});
}

static void run(brim_op_call *call) {
  assert_ok(brim_op_prepare(ref, call));
  if (call->workspace_bytes) {
    assert_ok(brim_device_alloc(ref, BRIM_BUFFER_DEVICE, call->workspace_bytes, &call->workspace));
  }
  assert_ok(brim_op_run(ref, call));
  brim_op_release(ref, call);
  brim_device_free(ref, BRIM_BUFFER_DEVICE, call->workspace);
  call->workspace = NULL;
}

//---------------------------------- the differences ----------------------------------

// A scalar function of everything the case holds.
typedef struct scalar {
  double (*value)(const struct scalar *s);
  brim_case c;
  brim_op_call call;  // of the case, with data
  double *r;          // weights of output 0
} scalar;

static double weighted_output(const scalar *s) {
  brim_op_call call = s->call;
  run(&call);
  double sum = 0;
  int64_t count = brim_tensor_count(&call.out[0]);
  for (int64_t i = 0; i < count; i++) sum += s->r[i] * ((const double *)call.out[0].data)[i];
  return sum;
}

static double scaled_loss(const scalar *s) {
  brim_op_call call = s->call;
  call.out_count = 1;
  memset(call.out[0].data, 0, BRIM_METRIC_COUNT * sizeof(double));
  run(&call);
  return ((const double *)call.out[0].data)[BRIM_METRIC_LOSS] * s->c.state[BRIM_STATE_GRAD_SCALE];
}

static int checked;

static void check(const scalar *s, const char *what, double *x, const double *gradient,
                  int64_t count) {
  double scale = 0;
  for (int64_t i = 0; i < count; i++) scale = fmax(scale, fabs(gradient[i]));
  for (int k = 0; k < SAMPLES && k < count; k++) {
    int64_t i = count <= SAMPLES ? k : (int64_t)((uint64_t)k * 2654435761u % (uint64_t)count);
    double old = x[i], h = 1e-5;
    x[i] = old + h;
    double above = s->value(s);
    x[i] = old - h;
    double below = s->value(s);
    x[i] = old;
    double numeric = (above - below) / (2 * h);
    if (!(fabs(numeric - gradient[i]) <= 1e-6 * fmax(scale, 1e-3))) {
      fail_msg("%s: d/d%s[%lld] is %.12g, differences give %.12g", s->c.name, what, (long long)i,
               gradient[i], numeric);
    }
    checked++;
  }
}

// The case in f64 with its values; false when it is too large to be differentiated here.
static bool open_case(size_t index, brim_op op, scalar *s, brim_case_data *data) {
  brim_case_get(index, &s->c);
  if (s->c.op != op || s->c.n * s->c.k > 40000 || s->c.nonfinite) return false;
  brim_case_set_type(&s->c, BRIM_F64);
  assert_ok(brim_case_data_create(&s->c, data));
  brim_case_call(&s->c, &s->call);
  for (int i = 0; i < s->call.in_count; i++) s->call.in[i].data = data->in[i];
  for (int i = 0; i < s->call.out_count; i++) s->call.out[i].data = data->out[i];
  s->value = weighted_output;
  s->r = random_numbers(brim_tensor_count(&s->call.out[0]), 50);
  return true;
}

static void close_case(scalar *s, brim_case_data *data) {
  brim_case_data_destroy(data);
  brim_free(s->r);
}

//---------------------------------- linear ----------------------------------

// y = act(x w' + b): dy through ACT_BWD, then both backward ops.
static void linear_gradient(scalar *s) {
  int64_t n = s->c.n, k = s->c.k, m = s->c.m;
  const brim_tensor *x = &s->call.in[0], *w = &s->call.in[1];
  double *d = numbers(n * m), *dx = numbers(n * k), *dw = numbers(m * k), *db = numbers(m);
  memcpy(d, s->r, (size_t)(n * m) * sizeof(double));
  if (s->c.attr.act != BRIM_ACT_NONE) {
    double *saved = numbers(n * m);
    brim_op_call forward = s->call;
    // gelu's slope is a function of what came in, the others' of what came out
    if (s->c.attr.act == BRIM_ACT_GELU) forward.attr.act = BRIM_ACT_NONE;
    forward.out[0].data = saved;
    run(&forward);
    brim_op_call act = {.op = BRIM_OP_ACT_BWD, .in_count = 2, .out_count = 1, .attr = s->c.attr};
    act.in[0] = mat(d, n, m);
    act.in[1] = mat(saved, n, m);
    act.out[0] = mat(d, n, m);
    run(&act);
    brim_free(saved);
  }
  brim_op_call data = {.op = BRIM_OP_LINEAR_BWD_DATA, .in_count = 2, .out_count = 1};
  data.in[0] = mat(d, n, m);
  data.in[1] = *w;
  data.out[0] = mat(dx, n, k);
  run(&data);
  brim_op_call weight = {.op = BRIM_OP_LINEAR_BWD_WEIGHT, .in_count = 2, .out_count = 2};
  weight.in[0] = mat(d, n, m);
  weight.in[1] = *x;
  weight.out[0] = mat(dw, m, k);
  weight.out[1] = vec(db, m);
  run(&weight);
  check(s, "x", x->data, dx, n * k);
  check(s, "w", w->data, dw, m * k);
  if (s->c.optional) check(s, "b", s->call.in[2].data, db, m);
  brim_free(d);
  brim_free(dx);
  brim_free(dw);
  brim_free(db);
}

static void test_linear(void **state) {
  (void)state;
  checked = 0;
  for (size_t i = 0; i < brim_case_count(); i++) {
    scalar s;
    brim_case_data data;
    if (!open_case(i, BRIM_OP_LINEAR, &s, &data)) continue;
    linear_gradient(&s);
    close_case(&s, &data);
  }
  assert_true(checked > 500);
}

// The fused form: h = act(x), y = h w'; dx = (dy w) act'(s).
typedef struct chain {
  scalar base;
  brim_op_call act, linear;
} chain;

static double chain_value(const scalar *s) {
  const chain *c = (const chain *)(const void *)s;
  brim_op_call act = c->act, linear = c->linear;
  run(&act);
  run(&linear);
  double sum = 0;
  int64_t count = brim_tensor_count(&linear.out[0]);
  for (int64_t i = 0; i < count; i++) sum += s->r[i] * ((const double *)linear.out[0].data)[i];
  return sum;
}

static void chain_gradient(const brim_case *from) {
  int64_t n = from->n, k = from->k, m = from->m;
  double *x = random_numbers(n * k, 60), *h = numbers(n * k), *y = numbers(n * m);
  double *dx = numbers(n * k), *r = random_numbers(n * m, 61), *w = random_numbers(m * k, 62);
  chain c = {.base = {.value = chain_value, .c = *from, .r = r}};
  c.act = (brim_op_call){.op = BRIM_OP_ACT, .in_count = 1, .out_count = 1, .attr = from->attr};
  c.act.in[0] = mat(x, n, k);
  c.act.out[0] = mat(h, n, k);
  c.linear = (brim_op_call){.op = BRIM_OP_LINEAR, .in_count = 2, .out_count = 1};
  c.linear.in[0] = mat(h, n, k);
  c.linear.in[1] = mat(w, m, k);
  c.linear.out[0] = mat(y, n, m);
  run(&c.act);
  brim_op_call back = {
      .op = BRIM_OP_LINEAR_BWD_DATA, .in_count = 3, .out_count = 1, .attr = from->attr};
  back.in[0] = mat(r, n, m);
  back.in[1] = mat(w, m, k);
  back.in[2] = mat(from->attr.act == BRIM_ACT_GELU ? x : h, n, k);
  back.out[0] = mat(dx, n, k);
  run(&back);
  check(&c.base, "x", x, dx, n * k);
  brim_free(x);
  brim_free(h);
  brim_free(y);
  brim_free(dx);
  brim_free(r);
  brim_free(w);
}

static void test_linear_fused(void **state) {
  (void)state;
  checked = 0;
  for (size_t i = 0; i < brim_case_count(); i++) {
    brim_case c;
    brim_case_get(i, &c);
    bool fused = c.op == BRIM_OP_LINEAR_BWD_DATA && c.attr.act != BRIM_ACT_NONE;
    if (fused && c.n * c.k <= 40000) chain_gradient(&c);
  }
  assert_true(checked > 100);
}

//---------------------------------- one input, one output ----------------------------------

// The backward call of ops whose gradient needs dy and perhaps what was saved.
static void pointwise_gradient(scalar *s) {
  int64_t count = brim_tensor_count(&s->call.in[0]);
  double *dx = numbers(count), *saved = numbers(count);
  brim_op_call forward = s->call, back = s->call;
  forward.out[0].data = saved;
  run(&forward);
  back.in[0].data = s->r;
  back.out[0].data = dx;
  if (s->c.op == BRIM_OP_ACT) {
    back.op = BRIM_OP_ACT_BWD;
    back.in_count = 2;
    back.in[1] = s->call.in[0];
    if (s->c.attr.act != BRIM_ACT_GELU) back.in[1].data = saved;
  }
  run(&back);  // dropout is its own backward
  check(s, "x", s->call.in[0].data, dx, count);
  brim_free(dx);
  brim_free(saved);
}

static void check_pointwise(brim_op op) {
  checked = 0;
  for (size_t i = 0; i < brim_case_count(); i++) {
    scalar s;
    brim_case_data data;
    if (!open_case(i, op, &s, &data)) continue;
    pointwise_gradient(&s);
    close_case(&s, &data);
  }
  assert_true(checked > 50);
}

static void test_act(void **state) {
  (void)state;
  check_pointwise(BRIM_OP_ACT);
}

static void test_dropout(void **state) {
  (void)state;
  check_pointwise(BRIM_OP_DROPOUT);
}

// The gradient of a sum is dy for both sides.
static void test_add(void **state) {
  (void)state;
  checked = 0;
  for (size_t i = 0; i < brim_case_count(); i++) {
    scalar s;
    brim_case_data data;
    if (!open_case(i, BRIM_OP_ADD, &s, &data)) continue;
    check(&s, "a", data.in[0], s.r, s.c.n * s.c.k);
    check(&s, "b", data.in[1], s.r, s.c.n * s.c.k);
    close_case(&s, &data);
  }
  assert_true(checked > 50);
}

//---------------------------------- layer norm ----------------------------------

static void layernorm_gradient(scalar *s) {
  int64_t n = s->c.n, c = s->c.k;
  double *dx = numbers(n * c), *dg = numbers(c), *db = numbers(c);
  run(&s->call);  // mean and rstd
  brim_op_call back = {.op = BRIM_OP_LAYERNORM_BWD, .in_count = 5, .out_count = 3};
  back.in[0] = mat(s->r, n, c);
  back.in[1] = s->call.in[0];
  back.in[2] = s->call.in[1];
  // Copies: evaluating the differences overwrites the statistics.
  double *mean = numbers(n), *rstd = numbers(n);
  memcpy(mean, s->call.out[1].data, (size_t)n * sizeof(double));
  memcpy(rstd, s->call.out[2].data, (size_t)n * sizeof(double));
  back.in[3] = vec(mean, n);
  back.in[4] = vec(rstd, n);
  back.out[0] = mat(dx, n, c);
  back.out[1] = vec(dg, c);
  back.out[2] = vec(db, c);
  run(&back);
  // Two columns that happen to be close make a row so steep that a step of 1e-5 is not small.
  if (c > 2 || (double)s->c.attr.eps > 1e-3) check(s, "x", s->call.in[0].data, dx, n * c);
  check(s, "g", s->call.in[1].data, dg, c);
  check(s, "b", s->call.in[2].data, db, c);
  brim_free(dx);
  brim_free(dg);
  brim_free(db);
  brim_free(mean);
  brim_free(rstd);
}

static void test_layernorm(void **state) {
  (void)state;
  checked = 0;
  for (size_t i = 0; i < brim_case_count(); i++) {
    scalar s;
    brim_case_data data;
    if (!open_case(i, BRIM_OP_LAYERNORM, &s, &data)) continue;
    layernorm_gradient(&s);
    close_case(&s, &data);
  }
  assert_true(checked > 100);
}

//---------------------------------- losses ----------------------------------

static void check_loss(brim_op op) {
  checked = 0;
  int padded = 0;
  for (size_t i = 0; i < brim_case_count(); i++) {
    scalar s;
    brim_case_data data;
    if (!open_case(i, op, &s, &data)) continue;
    if (s.c.optional) {
      s.value = scaled_loss;
      run(&s.call);
      const double *gradient = data.out[1];
      check(&s, "x", data.in[0], gradient, s.c.n * s.c.k);
      // Padding rows count nowhere, whatever they hold.
      for (int64_t j = (int64_t)s.c.state[BRIM_STATE_ROWS] * s.c.k; j < s.c.n * s.c.k; j++) {
        assert_true(gradient[j] == 0 && !signbit(gradient[j]));
        padded++;
      }
    }
    close_case(&s, &data);
  }
  assert_true(checked > 100);
  assert_true(padded > 10);
}

static void test_xent(void **state) {
  (void)state;
  check_loss(BRIM_OP_XENT);
}

static void test_mse(void **state) {
  (void)state;
  check_loss(BRIM_OP_MSE);
}

// Against the formula, far from where exp overflows and with a tie in front of the label.
static void test_xent_values(void **state) {
  (void)state;
  double logits[] = {1000, 0, -1000, 5, 5, 1};
  int32_t labels[] = {0, 1};
  double step[BRIM_STATE_COUNT] = {[BRIM_STATE_ROWS] = 2, [BRIM_STATE_GRAD_SCALE] = 1};
  double metrics[BRIM_METRIC_COUNT] = {0}, d[6];
  brim_op_call call = {.op = BRIM_OP_XENT, .in_count = 3, .out_count = 2};
  call.in[0] = mat(logits, 2, 3);
  call.in[1] = brim_tensor_make(labels, BRIM_I32, 1, (const int64_t[]){2});
  call.in[2] = vec(step, BRIM_STATE_COUNT);
  call.out[0] = vec(metrics, BRIM_METRIC_COUNT);
  call.out[1] = mat(d, 2, 3);
  run(&call);
  double expected = log(2 + exp(-4.0));
  assert_true(fabs(metrics[BRIM_METRIC_LOSS] - expected) < 1e-12);
  assert_true(metrics[BRIM_METRIC_CORRECT] == 1);  // 5, 5: the first wins, the label is the second
  assert_true(metrics[BRIM_METRIC_ROWS] == 2 && metrics[BRIM_METRIC_BAD] == 0);
  double p = 1 / (2 + exp(-4.0));
  assert_true(fabs(d[3] - p) < 1e-12 && fabs(d[4] - (p - 1)) < 1e-12);
  labels[0] = 3;
  memset(metrics, 0, sizeof(metrics));
  run(&call);
  assert_true(metrics[BRIM_METRIC_BAD] == 1 && metrics[BRIM_METRIC_ROWS] == 2);
  assert_true(d[0] == 0 && d[1] == 0 && d[2] == 0);
  assert_true(fabs(metrics[BRIM_METRIC_LOSS] - expected) < 1e-12);
}

// k micro-batches drop what one large batch drops.
static void test_dropout_row_offset(void **state) {
  (void)state;
  enum { N = 12, C = 7 };
  double x[N * C], whole[N * C], part[N * C], step[BRIM_STATE_COUNT] = {0};
  for (int i = 0; i < N * C; i++) x[i] = 1;
  step[BRIM_STATE_STEP] = 5;
  step[BRIM_STATE_SEED] = 42;
  brim_op_call call = {.op = BRIM_OP_DROPOUT, .in_count = 2, .out_count = 1};
  call.attr.p = 0.4f;
  call.attr.layer = 9;
  call.in[0] = mat(x, N, C);
  call.in[1] = vec(step, BRIM_STATE_COUNT);
  call.out[0] = mat(whole, N, C);
  run(&call);
  for (int at = 0; at < N; at += 3) {
    step[BRIM_STATE_ROW_OFFSET] = at;
    call.in[0] = mat(x, 3, C);
    call.out[0] = mat(part + at * C, 3, C);
    run(&call);
  }
  assert_memory_equal(whole, part, sizeof(whole));
  int dropped = 0;
  for (int i = 0; i < N * C; i++) dropped += whole[i] == 0;
  assert_in_range(dropped, 15, 55);  // 33.6 expected
  step[BRIM_STATE_ROW_OFFSET] = 0;
  step[BRIM_STATE_STEP] = 6;
  call.in[0] = mat(x, N, C);
  call.out[0] = mat(part, N, C);
  run(&call);
  assert_memory_not_equal(whole, part, sizeof(whole));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_linear),      cmocka_unit_test(test_linear_fused),
      cmocka_unit_test(test_act),         cmocka_unit_test(test_dropout),
      cmocka_unit_test(test_add),         cmocka_unit_test(test_layernorm),
      cmocka_unit_test(test_xent),        cmocka_unit_test(test_mse),
      cmocka_unit_test(test_xent_values), cmocka_unit_test(test_dropout_row_offset),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
