// Gradients of the ops over images and tokens by differences (gradient.h).
#include "base/base.h"
#include "cases/gradient.h"
#include "test.h"

typedef void (*gradient_of)(gradient_scalar *s, int *checked);

static void check_op(brim_op op, gradient_of gradient, int least) {
  int checked = 0;
  for (size_t i = 0; i < brim_case_count(); i++) {
    gradient_scalar s;
    brim_case_data data;
    if (!gradient_open(i, op, &s, &data)) continue;
    gradient(&s, &checked);
    gradient_close(&s, &data);
  }
  assert_true(checked > least);
}

// Runs a backward call with one input and one output.
static double *run_back(brim_op_call *back, const brim_tensor *out) {
  double *d = gradient_numbers(brim_tensor_count(out));
  back->out[back->out_count++] = gradient_like(out, d);
  gradient_run(back);
  return d;
}

//---------------------------------- images ----------------------------------

static void conv_gradient(gradient_scalar *s, int *checked) {
  const brim_tensor *x = &s->call.in[0], *w = &s->call.in[1], *y = &s->call.out[0];
  brim_op_call data = {.op = BRIM_OP_CONV_BWD_DATA, .in_count = 2, .attr = s->c.attr};
  brim_op_call weight = {.op = BRIM_OP_CONV_BWD_WEIGHT, .in_count = 2, .attr = s->c.attr};
  data.in[0] = weight.in[0] = gradient_like(y, s->r);
  data.in[1] = *w;
  weight.in[1] = *x;
  double *dx = run_back(&data, x), *dw = run_back(&weight, w);
  gradient_check(s, "x", x->data, dx, brim_tensor_count(x), checked);
  gradient_check(s, "w", w->data, dw, brim_tensor_count(w), checked);
  brim_free(dx);
  brim_free(dw);
}

static void test_conv(void **state) {
  (void)state;
  check_op(BRIM_OP_CONV, conv_gradient, 300);
}

// Inputs and outputs of the gradient of a batch normalisation.
typedef struct norm_arrays {
  double *y, *mean, *rstd;  // from the forward
  double *first, *second;   // the gradient in two parts
  double *dx, *dg, *db, *dz;
} norm_arrays;

static void batchnorm_back(const gradient_scalar *s, norm_arrays *a, bool with_y, bool two) {
  const brim_tensor *x = &s->call.in[0], *g = &s->call.in[1];
  brim_op_call back = {.op = BRIM_OP_BATCHNORM_BWD, .attr = s->c.attr, .out_count = 4};
  back.in_count = two ? 9 : with_y ? 8 : 7;
  back.in[0] = gradient_like(x, two ? a->first : s->r);
  back.in[1] = *x;
  back.in[2] = *g;
  back.in[3] = s->call.in[2];
  back.in[4] = gradient_like(g, a->mean);
  back.in[5] = gradient_like(g, a->rstd);
  back.in[6] = s->call.in[3];
  if (with_y) back.in[7] = gradient_like(x, a->y);
  if (two) back.in[8] = gradient_like(x, a->second);
  back.out[0] = gradient_like(x, a->dx);
  back.out[1] = gradient_like(g, a->dg);
  back.out[2] = gradient_like(g, a->db);
  back.out[3] = gradient_like(x, a->dz);
  gradient_run(&back);
}

static void batchnorm_gradient(gradient_scalar *s, int *checked) {
  const brim_tensor *x = &s->call.in[0];
  int64_t count = brim_tensor_count(x), c = s->c.k, row = count / s->c.n;
  bool with_z = s->c.with & BRIM_WITH_Z, relu = s->c.attr.act == BRIM_ACT_RELU;
  // Padding rows have no gradient, so the scalar must not include them.
  for (int64_t i = (int64_t)s->c.state[BRIM_STATE_ROWS] * row; i < count; i++) s->r[i] = 0;
  brim_op_call forward = s->call;
  gradient_run(&forward);
  norm_arrays a = {.y = gradient_copy(&s->call.out[0]),
                   .mean = gradient_copy(&s->call.out[1]),
                   .rstd = gradient_copy(&s->call.out[2]),
                   .first = gradient_random(count, 70),
                   .second = gradient_numbers(count),
                   .dx = gradient_numbers(count),
                   .dg = gradient_numbers(c),
                   .db = gradient_numbers(c),
                   .dz = gradient_numbers(count)};
  for (int64_t i = 0; i < count; i++) a.second[i] = s->r[i] - a.first[i];
  for (int way = 0; way < 4; way++) {
    bool with_y = way & 1, two = way & 2;
    if (relu && with_z && !with_y) continue;  // the sign depends on z, and only y contains it
    batchnorm_back(s, &a, with_y, two);
    gradient_check(s, "x", x->data, a.dx, count, checked);
    gradient_check(s, "g", s->call.in[1].data, a.dg, c, checked);
    gradient_check(s, "b", s->call.in[2].data, a.db, c, checked);
    if (with_z) gradient_check(s, "z", s->call.in[4].data, a.dz, count, checked);
  }
  double *all[] = {a.y, a.mean, a.rstd, a.first, a.second, a.dx, a.dg, a.db, a.dz};
  for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) brim_free(all[i]);
}

static void test_batchnorm(void **state) {
  (void)state;
  check_op(BRIM_OP_BATCHNORM, batchnorm_gradient, 1000);
}

static void maxpool_gradient(gradient_scalar *s, int *checked) {
  const brim_tensor *x = &s->call.in[0], *y = &s->call.out[0];
  int64_t places = brim_tensor_count(y);
  uint8_t *place = brim_alloc((size_t)places);
  assert_non_null(place);
  s->call.out[1].data = place;
  brim_op_call forward = s->call;
  gradient_run(&forward);
  uint8_t *kept = brim_alloc((size_t)places);
  assert_non_null(kept);
  memcpy(kept, place, (size_t)places);
  brim_op_call back = {.op = BRIM_OP_MAXPOOL_BWD, .in_count = 2, .attr = s->c.attr};
  back.in[0] = gradient_like(y, s->r);
  back.in[1] = s->call.out[1];
  back.in[1].data = kept;
  double *dx = run_back(&back, x);
  gradient_check(s, "x", x->data, dx, brim_tensor_count(x), checked);
  brim_free(dx);
  brim_free(kept);
  brim_free(place);
}

static void test_maxpool(void **state) {
  (void)state;
  check_op(BRIM_OP_MAXPOOL, maxpool_gradient, 50);
}

static void mean_gradient(gradient_scalar *s, int *checked) {
  const brim_tensor *x = &s->call.in[0];
  brim_op_call back = {.op = BRIM_OP_MEAN_BWD, .in_count = 1};
  back.in[0] = gradient_like(&s->call.out[0], s->r);
  double *dx = run_back(&back, x);
  gradient_check(s, "x", x->data, dx, brim_tensor_count(x), checked);
  brim_free(dx);
}

static void test_mean(void **state) {
  (void)state;
  check_op(BRIM_OP_MEAN, mean_gradient, 50);
}

//---------------------------------- tokens ----------------------------------

static void pos_gradient(gradient_scalar *s, int *checked) {
  const brim_tensor *x = &s->call.in[0], *p = &s->call.in[1];
  brim_op_call back = {.op = BRIM_OP_POS_BWD, .in_count = 1};
  back.in[0] = gradient_like(x, s->r);
  double *dp = run_back(&back, p);
  gradient_check(s, "x", x->data, s->r, brim_tensor_count(x), checked);
  gradient_check(s, "p", p->data, dp, brim_tensor_count(p), checked);
  brim_free(dp);
}

static void test_pos(void **state) {
  (void)state;
  check_op(BRIM_OP_POS, pos_gradient, 50);
}

static void attention_gradient(gradient_scalar *s, int *checked) {
  const brim_tensor *qkv = &s->call.in[0];
  brim_op_call forward = s->call;
  gradient_run(&forward);
  double *y = gradient_copy(&s->call.out[0]), *lse = gradient_copy(&s->call.out[1]);
  brim_op_call back = {.op = BRIM_OP_ATTENTION_BWD, .in_count = 4, .attr = s->c.attr};
  back.in[0] = gradient_like(&s->call.out[0], s->r);
  back.in[1] = *qkv;
  back.in[2] = gradient_like(&s->call.out[0], y);
  back.in[3] = gradient_like(&s->call.out[1], lse);
  double *d = run_back(&back, qkv);
  gradient_check(s, "qkv", qkv->data, d, brim_tensor_count(qkv), checked);
  brim_free(y);
  brim_free(lse);
  brim_free(d);
}

static void test_attention(void **state) {
  (void)state;
  check_op(BRIM_OP_ATTENTION, attention_gradient, test_is_full() ? 80 : 30);
}

static void concat_gradient(gradient_scalar *s, int *checked) {
  const brim_tensor *a = &s->call.in[0], *b = &s->call.in[1];
  brim_op_call back = {.op = BRIM_OP_CONCAT_BWD, .in_count = 1, .out_count = 1};
  double *da = gradient_numbers(brim_tensor_count(a));
  back.in[0] = gradient_like(&s->call.out[0], s->r);
  back.out[0] = gradient_like(a, da);
  double *db = run_back(&back, b);
  gradient_check(s, "a", a->data, da, brim_tensor_count(a), checked);
  gradient_check(s, "b", b->data, db, brim_tensor_count(b), checked);
  brim_free(da);
  brim_free(db);
}

static void test_concat(void **state) {
  (void)state;
  check_op(BRIM_OP_CONCAT, concat_gradient, 50);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_conv),    cmocka_unit_test(test_batchnorm),
      cmocka_unit_test(test_maxpool), cmocka_unit_test(test_mean),
      cmocka_unit_test(test_pos),     cmocka_unit_test(test_attention),
      cmocka_unit_test(test_concat),
  };
  return cmocka_run_group_tests(tests, gradient_setup, gradient_teardown);
}
