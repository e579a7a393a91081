// Gradients of linear layers, pointwise ops, layer norms and losses by differences (gradient.h).
#include <math.h>

#include "base/base.h"
#include "cases/gradient.h"
#include "test.h"

static int checked;

//---------------------------------- linear ----------------------------------

// y = act(x w' + b): ACT_BWD of dy, then both backward ops.
static void linear_gradient(gradient_scalar *s) {
  int64_t n = brim_case_rows(&s->c), k = s->c.k, m = s->c.m;
  const brim_tensor *x = &s->call.in[0], *w = &s->call.in[1];
  double *d = gradient_numbers(n * m), *dx = gradient_numbers(n * k), *dw = gradient_numbers(m * k),
         *db = gradient_numbers(m);
  memcpy(d, s->r, (size_t)(n * m) * sizeof(double));
  if (s->c.attr.act != BRIM_ACT_NONE) {
    double *saved = gradient_numbers(n * m);
    brim_op_call forward = s->call;
    // gelu's slope is a function of its input, the others' of their output
    if (s->c.attr.act == BRIM_ACT_GELU) forward.attr.act = BRIM_ACT_NONE;
    forward.out[0].data = saved;
    gradient_run(&forward);
    brim_op_call act = {.op = BRIM_OP_ACT_BWD, .in_count = 2, .out_count = 1, .attr = s->c.attr};
    act.in[0] = gradient_mat(d, n, m);
    act.in[1] = gradient_mat(saved, n, m);
    act.out[0] = gradient_mat(d, n, m);
    gradient_run(&act);
    brim_free(saved);
  }
  brim_op_call data = {.op = BRIM_OP_LINEAR_BWD_DATA, .in_count = 2, .out_count = 1};
  data.in[0] = gradient_mat(d, n, m);
  data.in[1] = *w;
  data.out[0] = gradient_mat(dx, n, k);
  gradient_run(&data);
  brim_op_call weight = {.op = BRIM_OP_LINEAR_BWD_WEIGHT, .in_count = 2, .out_count = 2};
  weight.in[0] = gradient_mat(d, n, m);
  weight.in[1] = *x;
  weight.out[0] = gradient_mat(dw, m, k);
  weight.out[1] = gradient_vec(db, m);
  gradient_run(&weight);
  gradient_check(s, "x", x->data, dx, n * k, &checked);
  gradient_check(s, "w", w->data, dw, m * k, &checked);
  if (s->c.optional) gradient_check(s, "b", s->call.in[2].data, db, m, &checked);
  brim_free(d);
  brim_free(dx);
  brim_free(dw);
  brim_free(db);
}

static void test_linear(void **state) {
  (void)state;
  checked = 0;
  for (size_t i = 0; i < brim_case_count(); i++) {
    gradient_scalar s;
    brim_case_data data;
    if (!gradient_open(i, BRIM_OP_LINEAR, &s, &data)) continue;
    linear_gradient(&s);
    gradient_close(&s, &data);
  }
  assert_true(checked > 500);
}

// The fused form: h = act(x), y = h w'; dx = (dy w) act'(s).
typedef struct chain {
  gradient_scalar base;
  brim_op_call act, linear;
} chain;

static double chain_value(const gradient_scalar *s) {
  const chain *c = (const chain *)(const void *)s;
  brim_op_call act = c->act, linear = c->linear;
  gradient_run(&act);
  gradient_run(&linear);
  double sum = 0;
  int64_t count = brim_tensor_count(&linear.out[0]);
  for (int64_t i = 0; i < count; i++) sum += s->r[i] * ((const double *)linear.out[0].data)[i];
  return sum;
}

static void chain_gradient(const brim_case *from) {
  int64_t n = brim_case_rows(from), k = from->k, m = from->m;
  double *x = gradient_random(n * k, 60), *h = gradient_numbers(n * k),
         *y = gradient_numbers(n * m);
  double *dx = gradient_numbers(n * k), *r = gradient_random(n * m, 61),
         *w = gradient_random(m * k, 62);
  chain c = {.base = {.value = chain_value, .c = *from, .r = r}};
  c.act = (brim_op_call){.op = BRIM_OP_ACT, .in_count = 1, .out_count = 1, .attr = from->attr};
  c.act.in[0] = gradient_mat(x, n, k);
  c.act.out[0] = gradient_mat(h, n, k);
  c.linear = (brim_op_call){.op = BRIM_OP_LINEAR, .in_count = 2, .out_count = 1};
  c.linear.in[0] = gradient_mat(h, n, k);
  c.linear.in[1] = gradient_mat(w, m, k);
  c.linear.out[0] = gradient_mat(y, n, m);
  gradient_run(&c.act);
  brim_op_call back = {
      .op = BRIM_OP_LINEAR_BWD_DATA, .in_count = 3, .out_count = 1, .attr = from->attr};
  back.in[0] = gradient_mat(r, n, m);
  back.in[1] = gradient_mat(w, m, k);
  back.in[2] = gradient_mat(from->attr.act == BRIM_ACT_GELU ? x : h, n, k);
  back.out[0] = gradient_mat(dx, n, k);
  gradient_run(&back);
  gradient_check(&c.base, "x", x, dx, n * k, &checked);
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

// The backward call of ops whose gradient needs dy and perhaps saved tensors.
static void pointwise_gradient(gradient_scalar *s) {
  int64_t count = brim_tensor_count(&s->call.in[0]);
  double *dx = gradient_numbers(count), *saved = gradient_numbers(count);
  brim_op_call forward = s->call, back = s->call;
  forward.out[0].data = saved;
  gradient_run(&forward);
  back.in[0].data = s->r;
  back.out[0].data = dx;
  if (s->c.op == BRIM_OP_ACT) {
    back.op = BRIM_OP_ACT_BWD;
    back.in_count = 2;
    back.in[1] = s->call.in[0];
    if (s->c.attr.act != BRIM_ACT_GELU) back.in[1].data = saved;
  }
  gradient_run(&back);  // dropout is its own backward
  gradient_check(s, "x", s->call.in[0].data, dx, count, &checked);
  brim_free(dx);
  brim_free(saved);
}

static void check_pointwise(brim_op op) {
  checked = 0;
  for (size_t i = 0; i < brim_case_count(); i++) {
    gradient_scalar s;
    brim_case_data data;
    if (!gradient_open(i, op, &s, &data)) continue;
    pointwise_gradient(&s);
    gradient_close(&s, &data);
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

// The gradient of a sum is dy for both operands.
static void test_add(void **state) {
  (void)state;
  checked = 0;
  for (size_t i = 0; i < brim_case_count(); i++) {
    gradient_scalar s;
    brim_case_data data;
    if (!gradient_open(i, BRIM_OP_ADD, &s, &data)) continue;
    gradient_check(&s, "a", data.in[0], s.r, brim_case_rows(&s.c) * s.c.k, &checked);
    gradient_check(&s, "b", data.in[1], s.r, brim_case_rows(&s.c) * s.c.k, &checked);
    gradient_close(&s, &data);
  }
  assert_true(checked > 50);
}

//---------------------------------- layer norm ----------------------------------

static void layernorm_gradient(gradient_scalar *s) {
  int64_t n = brim_case_rows(&s->c), c = s->c.k;
  double *dx = gradient_numbers(n * c), *dg = gradient_numbers(c), *db = gradient_numbers(c);
  gradient_run(&s->call);  // mean and rstd
  brim_op_call back = {.op = BRIM_OP_LAYERNORM_BWD, .in_count = 5, .out_count = 3};
  back.in[0] = gradient_mat(s->r, n, c);
  back.in[1] = s->call.in[0];
  back.in[2] = s->call.in[1];
  // Copies, because evaluating the differences overwrites the statistics.
  double *mean = gradient_numbers(n), *rstd = gradient_numbers(n);
  memcpy(mean, s->call.out[1].data, (size_t)n * sizeof(double));
  memcpy(rstd, s->call.out[2].data, (size_t)n * sizeof(double));
  back.in[3] = gradient_vec(mean, n);
  back.in[4] = gradient_vec(rstd, n);
  back.out[0] = gradient_mat(dx, n, c);
  back.out[1] = gradient_vec(dg, c);
  back.out[2] = gradient_vec(db, c);
  gradient_run(&back);
  // If the two columns of a row are close, its gradient is so steep that a step of 1e-5 is too large.
  if (c > 2 || (double)s->c.attr.eps > 1e-3)
    gradient_check(s, "x", s->call.in[0].data, dx, n * c, &checked);
  gradient_check(s, "g", s->call.in[1].data, dg, c, &checked);
  gradient_check(s, "b", s->call.in[2].data, db, c, &checked);
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
    gradient_scalar s;
    brim_case_data data;
    if (!gradient_open(i, BRIM_OP_LAYERNORM, &s, &data)) continue;
    layernorm_gradient(&s);
    gradient_close(&s, &data);
  }
  assert_true(checked > 100);
}

//---------------------------------- losses ----------------------------------

// NT-Xent has two rows for each sample.
static bool is_padding(const brim_case *c, int64_t row) {
  if (c->op != BRIM_OP_NTXENT) return (double)row >= c->state[BRIM_STATE_ROWS];
  return (double)(row % (c->n / 2)) >= c->state[BRIM_STATE_SAMPLES];
}

static void check_loss(brim_op op) {
  checked = 0;
  int padded = 0;
  for (size_t i = 0; i < brim_case_count(); i++) {
    gradient_scalar s;
    brim_case_data data;
    if (!gradient_open(i, op, &s, &data)) continue;
    if (s.c.optional) {
      s.value = gradient_scaled_loss;
      gradient_run(&s.call);
      const double *gradient = data.out[1];
      gradient_check(&s, "x", data.in[0], gradient, s.c.n * s.c.k, &checked);
      // Padding rows have no effect, whatever they contain.
      for (int64_t j = 0; j < s.c.n * s.c.k; j++) {
        if (!is_padding(&s.c, j / s.c.k)) continue;
        assert_true(gradient[j] == 0 && !signbit(gradient[j]));
        padded++;
      }
    }
    gradient_close(&s, &data);
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

static void test_bce(void **state) {
  (void)state;
  check_loss(BRIM_OP_BCE);
}

static void test_ntxent(void **state) {
  (void)state;
  check_loss(BRIM_OP_NTXENT);
}

// Compares with the formula, at logits where exp overflows and with a tie before the label.
static void test_xent_values(void **state) {
  (void)state;
  double logits[] = {1000, 0, -1000, 5, 5, 1};
  int32_t labels[] = {0, 1};
  double step[BRIM_STATE_COUNT] = {
      [BRIM_STATE_ROWS] = 2, [BRIM_STATE_GRAD_SCALE] = 1, [BRIM_STATE_LOSS_SCALE] = 1};
  double metrics[BRIM_METRIC_COUNT] = {0}, d[6];
  brim_op_call call = {.op = BRIM_OP_XENT, .in_count = 3, .out_count = 2};
  call.in[0] = gradient_mat(logits, 2, 3);
  call.in[1] = brim_tensor_make(labels, BRIM_I32, 1, (const int64_t[]){2});
  call.in[2] = gradient_vec(step, BRIM_STATE_COUNT);
  call.out[0] = gradient_vec(metrics, BRIM_METRIC_COUNT);
  call.out[1] = gradient_mat(d, 2, 3);
  gradient_run(&call);
  double expected = log(2 + exp(-4.0));
  assert_true(fabs(metrics[BRIM_METRIC_LOSS] - expected) < 1e-12);
  assert_true(metrics[BRIM_METRIC_CORRECT] == 1);  // 5, 5: the first wins, the label is the second
  assert_true(metrics[BRIM_METRIC_ROWS] == 2 && metrics[BRIM_METRIC_BAD] == 0);
  double p = 1 / (2 + exp(-4.0));
  assert_true(fabs(d[3] - p) < 1e-12 && fabs(d[4] - (p - 1)) < 1e-12);
  labels[0] = 3;
  memset(metrics, 0, sizeof(metrics));
  gradient_run(&call);
  assert_true(metrics[BRIM_METRIC_BAD] == 1 && metrics[BRIM_METRIC_ROWS] == 2);
  assert_true(d[0] == 0 && d[1] == 0 && d[2] == 0);
  assert_true(fabs(metrics[BRIM_METRIC_LOSS] - expected) < 1e-12);
}

// Dropout in k micro-batches drops the same elements as in one large batch.
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
  call.in[0] = gradient_mat(x, N, C);
  call.in[1] = gradient_vec(step, BRIM_STATE_COUNT);
  call.out[0] = gradient_mat(whole, N, C);
  gradient_run(&call);
  for (int at = 0; at < N; at += 3) {
    step[BRIM_STATE_ROW_OFFSET] = at;
    call.in[0] = gradient_mat(x, 3, C);
    call.out[0] = gradient_mat(part + at * C, 3, C);
    gradient_run(&call);
  }
  assert_memory_equal(whole, part, sizeof(whole));
  int dropped = 0;
  for (int i = 0; i < N * C; i++) dropped += whole[i] == 0;
  assert_in_range(dropped, 15, 55);  // 33.6 expected
  step[BRIM_STATE_ROW_OFFSET] = 0;
  step[BRIM_STATE_STEP] = 6;
  call.in[0] = gradient_mat(x, N, C);
  call.out[0] = gradient_mat(part, N, C);
  gradient_run(&call);
  assert_memory_not_equal(whole, part, sizeof(whole));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_linear),      cmocka_unit_test(test_linear_fused),
      cmocka_unit_test(test_act),         cmocka_unit_test(test_dropout),
      cmocka_unit_test(test_add),         cmocka_unit_test(test_layernorm),
      cmocka_unit_test(test_xent),        cmocka_unit_test(test_mse),
      cmocka_unit_test(test_bce),         cmocka_unit_test(test_ntxent),
      cmocka_unit_test(test_xent_values), cmocka_unit_test(test_dropout_row_offset),
  };
  return cmocka_run_group_tests(tests, gradient_setup, gradient_teardown);
}
