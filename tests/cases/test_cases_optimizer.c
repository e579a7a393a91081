// The optimisers of ref against the published equations, written here again and run over several
// steps on a quadratic: SGD with momentum and Nesterov (Sutskever et al. in PyTorch's form), Adam
// (Kingma and Ba 2015, algorithm 1), AdamW (Loshchilov and Hutter 2019, algorithm 2). Also
// clipping, loss scaling and skipped steps.
#include <math.h>

#include "base/base.h"
#include "cases/cases.h"
#include "test.h"

enum { P = 37, STEPS = 6 };

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

typedef struct problem {
  brim_op_attr attr;
  double lr, clip, loss_scale;
  double params[P], m[P], v[P], average[P];
} problem;

static void start(problem *p) {
  for (int i = 0; i < P; i++) {
    p->params[i] = brim_case_uniform(5, 0, (uint64_t)i);
    p->m[i] = 0;
    p->v[i] = 0;
  }
}

// Gradient of 0.5 * sum of (i + 1) / P * (x_i - 0.3)^2
static void gradient(const double *x, double *g) {
  for (int i = 0; i < P; i++) g[i] = (i + 1.0) / P * (x[i] - 0.3);
}

static void run_ref_step(problem *p, int step, double *grads) {
  double scaled[P], norm[2], state[BRIM_STATE_COUNT] = {0};
  for (int i = 0; i < P; i++) scaled[i] = grads[i] * p->loss_scale;
  state[BRIM_STATE_STEP] = step + 7;  // also counts skipped steps
  state[BRIM_STATE_UPDATES] = step - 1;
  state[BRIM_STATE_LR] = p->lr;
  state[BRIM_STATE_CLIP] = p->clip;
  state[BRIM_STATE_LOSS_SCALE] = p->loss_scale;
  const int64_t count = P, two = 2, none = 0, states = BRIM_STATE_COUNT;
  brim_op_call call = {.op = BRIM_OP_GRAD_NORM, .in_count = 1, .out_count = 1};
  call.in[0] = brim_tensor_make(scaled, BRIM_F64, 1, &count);
  call.out[0] = brim_tensor_make(norm, BRIM_F64, 1, &two);
  assert_ok(brim_op_prepare(ref, &call));
  assert_ok(brim_op_run(ref, &call));
  bool sgd = p->attr.optimizer == BRIM_OPTIMIZER_SGD;
  call = (brim_op_call){.op = BRIM_OP_OPTIMIZER, .in_count = 3, .out_count = 3, .attr = p->attr};
  call.in[0] = brim_tensor_make(state, BRIM_F64, 1, &states);
  call.in[1] = brim_tensor_make(norm, BRIM_F64, 1, &two);
  call.in[2] = brim_tensor_make(scaled, BRIM_F64, 1, &count);
  call.out[0] = brim_tensor_make(p->params, BRIM_F64, 1, &count);
  call.out[1] = brim_tensor_make(p->m, BRIM_F64, 1, sgd && p->attr.momentum == 0 ? &none : &count);
  call.out[2] = brim_tensor_make(p->v, BRIM_F64, 1, sgd ? &none : &count);
  if (p->attr.average_rate > 0) {
    call.out_count = 5;  // without a copy
    call.out[4] = brim_tensor_make(p->average, BRIM_F64, 1, &count);
  }
  assert_ok(brim_op_prepare(ref, &call));
  assert_ok(brim_op_run(ref, &call));
}

//---------------------------------- the published equations ----------------------------------

static void paper_clip(const problem *p, double *g) {
  double sum = 0;
  for (int i = 0; i < P; i++) sum += g[i] * g[i];
  double coefficient = p->clip / (sqrt(sum) + 1e-6);
  if (p->clip <= 0 || coefficient >= 1) return;
  for (int i = 0; i < P; i++) g[i] *= coefficient;
}

static void paper_sgd(problem *p, int step, double *g) {
  double mu = (double)p->attr.momentum, lambda = (double)p->attr.weight_decay;
  for (int i = 0; i < P; i++) {
    double d = g[i] + lambda * p->params[i];
    if (mu > 0) {
      p->m[i] = step == 1 ? d : mu * p->m[i] + d;
      d = p->attr.nesterov ? d + mu * p->m[i] : p->m[i];
    }
    p->params[i] = p->params[i] - p->lr * d;
  }
}

static void paper_adam(problem *p, int step, double *g) {
  bool decoupled = p->attr.optimizer == BRIM_OPTIMIZER_ADAMW;
  double b1 = (double)p->attr.beta1, b2 = (double)p->attr.beta2;
  double lambda = (double)p->attr.weight_decay, eps = (double)p->attr.eps;
  for (int i = 0; i < P; i++) {
    double theta = p->params[i];
    double d = decoupled ? g[i] : g[i] + lambda * theta;
    p->m[i] = b1 * p->m[i] + (1 - b1) * d;
    p->v[i] = b2 * p->v[i] + (1 - b2) * d * d;
    double m_hat = p->m[i] / (1 - pow(b1, step)), v_hat = p->v[i] / (1 - pow(b2, step));
    double update = p->lr * m_hat / (sqrt(v_hat) + eps);
    if (decoupled) update += p->lr * lambda * theta;
    p->params[i] = theta - update;
  }
}

static void compare_runs(brim_op_attr attr, double lr, double clip, double loss_scale) {
  problem ours = {.attr = attr, .lr = lr, .clip = clip, .loss_scale = loss_scale}, paper = ours;
  start(&ours);
  start(&paper);
  double g[P], before = 0, after = 0;
  for (int i = 0; i < P; i++) before += fabs(ours.params[i] - 0.3);
  for (int step = 1; step <= STEPS; step++) {
    gradient(ours.params, g);
    run_ref_step(&ours, step, g);
    gradient(paper.params, g);
    paper_clip(&paper, g);
    if (attr.optimizer == BRIM_OPTIMIZER_SGD) {
      paper_sgd(&paper, step, g);
    } else {
      paper_adam(&paper, step, g);
    }
    for (int i = 0; i < P; i++) {
      if (!(fabs(ours.params[i] - paper.params[i]) < 1e-12)) {
        fail_msg("step %d, parameter %d: %.15g, the equations give %.15g", step, i, ours.params[i],
                 paper.params[i]);
      }
    }
  }
  for (int i = 0; i < P; i++) after += fabs(ours.params[i] - 0.3);
  assert_true(after < before);
}

static void test_sgd(void **state) {
  (void)state;
  compare_runs((brim_op_attr){.momentum = 0}, 0.1, 0, 1);
  compare_runs((brim_op_attr){.weight_decay = 0.01f}, 0.1, 0.2, 1);
  compare_runs((brim_op_attr){.momentum = 0.9f}, 0.1, 0, 1);
  compare_runs((brim_op_attr){.momentum = 0.9f, .weight_decay = 0.01f}, 0.1, 0, 1024);
  compare_runs((brim_op_attr){.momentum = 0.9f, .nesterov = true, .weight_decay = 0.01f}, 0.05, 0.5,
               65536);
}

static void test_adam(void **state) {
  (void)state;
  brim_op_attr attr = {
      .optimizer = BRIM_OPTIMIZER_ADAM, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f};
  compare_runs(attr, 0.01, 0, 1);
  attr.weight_decay = 0.05f;
  compare_runs(attr, 0.01, 0.1, 256);
  attr.beta1 = 0.5f;
  attr.eps = 0.1f;
  compare_runs(attr, 0.01, 0, 1);
}

static void test_adamw(void **state) {
  (void)state;
  brim_op_attr attr = {.optimizer = BRIM_OPTIMIZER_ADAMW,
                       .beta1 = 0.9f,
                       .beta2 = 0.95f,
                       .eps = 1e-8f,
                       .weight_decay = 0.1f};
  compare_runs(attr, 0.01, 0, 1);
  compare_runs(attr, 0.02, 0.3, 4096);
}

static void test_skip(void **state) {
  (void)state;
  problem p = {.attr = {.optimizer = BRIM_OPTIMIZER_ADAMW,
                        .beta1 = 0.9f,
                        .beta2 = 0.95f,
                        .eps = 1e-8f,
                        .weight_decay = 0.1f},
               .lr = 0.1,
               .clip = 1,
               .loss_scale = 1};
  start(&p);
  double g[P];
  gradient(p.params, g);
  run_ref_step(&p, 1, g);
  problem before = p;
  g[5] = INFINITY;
  run_ref_step(&p, 2, g);
  assert_memory_equal(&p, &before, sizeof(p));
  g[5] = NAN;
  run_ref_step(&p, 2, g);
  assert_memory_equal(&p, &before, sizeof(p));
  g[5] = 0;
  run_ref_step(&p, 2, g);
  assert_memory_not_equal(&p, &before, sizeof(p));
}

// Five steps, and the third overflows, with a ring of three: its entries, and the moves of the scale.
static void test_step_end(void **state) {
  (void)state;
  double step[BRIM_STATE_COUNT] = {[BRIM_STATE_LOSS_SCALE] = 8}, ring[3][4], norm[2];
  memset(ring, 0, sizeof(ring));
  const int64_t two = 2, states = BRIM_STATE_COUNT;
  brim_op_call call = {.op = BRIM_OP_STEP_END, .in_count = 1, .out_count = 2};
  call.attr.dynamic_scale = true;
  call.attr.growth_interval = 2;
  call.in[0] = brim_tensor_make(norm, BRIM_F64, 1, &two);
  call.out[0] = brim_tensor_make(step, BRIM_F64, 1, &states);
  call.out[1] = brim_tensor_make(ring, BRIM_F64, 2, (const int64_t[]){3, 4});
  assert_ok(brim_op_prepare(ref, &call));
  static const double scale[] = {8, 16, 8, 8, 16}, good[] = {1, 0, 0, 1, 0},
                      updates[] = {1, 2, 2, 3, 4};
  double before = 8;
  for (int i = 0; i < 5; i++) {
    step[BRIM_STATE_STEP] = i + 1;
    norm[0] = 2.5 * before * before;
    norm[1] = i == 2 ? 7 : 0;
    assert_ok(brim_op_run(ref, &call));
    const double *row = ring[i % 3];
    assert_true(row[0] == 2.5 && row[1] == norm[1] && row[2] == before && row[3] == 0);
    assert_true(step[BRIM_STATE_LOSS_SCALE] == scale[i]);
    assert_true(step[BRIM_STATE_GOOD_STEPS] == good[i]);
    assert_true(step[BRIM_STATE_UPDATES] == updates[i]);
    before = scale[i];
  }
  step[BRIM_STATE_LOSS_SCALE] = 1;
  norm[1] = 1;
  assert_ok(brim_op_run(ref, &call));
  assert_true(step[BRIM_STATE_LOSS_SCALE] == 1);  // not below 1
  step[BRIM_STATE_LOSS_SCALE] = 16777216;
  step[BRIM_STATE_GOOD_STEPS] = 1;
  norm[1] = 0;
  assert_ok(brim_op_run(ref, &call));
  assert_true(step[BRIM_STATE_LOSS_SCALE] == 16777216 && step[BRIM_STATE_GOOD_STEPS] == 0);
  step[BRIM_STATE_LOSS_SCALE] = 64;
  call.attr.dynamic_scale = false;
  norm[1] = 1;
  assert_ok(brim_op_run(ref, &call));
  assert_true(step[BRIM_STATE_LOSS_SCALE] == 64);
}

// The average of weights: avg = d * avg + (1 - d) * w with d = min(decay, (1 + n)
// (10 + n)) after n updates. It does not affect the weights, and a skipped step moves neither.
static void test_average(void **state) {
  (void)state;
  for (int k = 0; k < 2; k++) {
    double decay = k ? 0.5 : 0.999;
    problem p = {
        .attr = {.momentum = 0.9f, .average_rate = (float)(1 - decay)}, .lr = 0.1, .loss_scale = 1};
    problem plain = p;
    plain.attr.average_rate = 0;
    start(&p);
    start(&plain);
    double g[P], average[P], rate = (double)p.attr.average_rate;
    for (int i = 0; i < P; i++) p.average[i] = average[i] = p.params[i];
    for (int step = 1; step <= 30; step++) {
      gradient(p.params, g);
      run_ref_step(&p, step, g);
      gradient(plain.params, g);
      run_ref_step(&plain, step, g);
      double n = step - 1, d = fmin(1 - rate, (1 + n) / (10 + n));
      for (int i = 0; i < P; i++) {
        average[i] = d * average[i] + (1 - d) * p.params[i];
        assert_true(fabs(p.average[i] - average[i]) < 1e-12);
        assert_true(p.params[i] == plain.params[i]);
      }
    }
    problem before = p;
    gradient(p.params, g);
    g[3] = (double)NAN;
    run_ref_step(&p, 31, g);
    assert_memory_equal(before.average, p.average, sizeof p.average);
    assert_memory_equal(before.params, p.params, sizeof p.params);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_average), cmocka_unit_test(test_sgd),  cmocka_unit_test(test_adam),
      cmocka_unit_test(test_adamw),   cmocka_unit_test(test_skip), cmocka_unit_test(test_step_end),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
