// Training steps: accumulation, padding, optimizers against formulas written here, clipping, skipped steps, agreement
// of precisions and backends, and real learning.
#include <math.h>

#include "engine_test.h"

static double relative_distance(const float *a, const float *b, size_t n) {
  double difference = 0, length = 0;
  for (size_t i = 0; i < n; i++) {
    double d = (double)a[i] - (double)b[i];
    difference += d * d;
    length += (double)b[i] * (double)b[i];
  }
  return sqrt(difference) / (sqrt(length) + 1e-30);
}

//---------------------------------- accumulation and padding ----------------------------------

static void accumulation_spec(test_spec *t, int64_t batch, int64_t accumulation) {
  test_spec_init(t);
  test_component_int(&t->model, "hidden", 24);
  test_component_float(&t->model, "dropout", 0.4);
  test_component_string(&t->model, "norm", "layer");
  test_component_float(&t->optimizer, "momentum", 0.9);
  t->spec.batch = batch;
  t->spec.accumulation = accumulation;
  t->spec.clip_norm = 0.5;
}

// Makes three steps of `rows` rows, split into micro-batches of the spec's size; the last may be short.
static float *accumulate(brim_device *device, const test_spec *t, const test_batch *b, int64_t rows,
                         size_t *count) {
  brim_net *net;
  assert_ok(brim_net_create(device, &t->spec, &net));
  for (int64_t step = 1; step <= 3; step++) {
    for (int64_t row = 0; row < rows; row += t->spec.batch) {
      int64_t valid = rows - row < t->spec.batch ? rows - row : t->spec.batch;
      brim_net_micro micro = {.batch = test_batch_at(&t->spec, b, row, valid),
                              .step = step,
                              .step_rows = rows,
                              .first = row == 0};
      assert_ok(brim_net_train(net, &micro, NULL));
    }
    assert_ok(brim_net_update(net, step, 0.2, NULL));
  }
  brim_net_metrics m;
  assert_ok(brim_net_read_metrics(net, true, &m));
  assert_true(m.rows == (double)(3 * rows));
  float *params = test_params(net, count);
  brim_net_destroy(net);
  return params;
}

static void check_accumulation(brim_device *device) {
  static const struct {
    int64_t batch, parts, rows;
  } splits[] = {{4, 3, 12}, {1, 12, 12}, {6, 2, 12}, {5, 3, 12}, {4, 3, 10}, {7, 2, 10}};
  test_spec whole;
  accumulation_spec(&whole, 12, 1);
  test_batch b;
  test_batch_make(&whole.spec, 24, 17, &b);
  for (size_t k = 0; k < sizeof splits / sizeof splits[0]; k++) {
    test_spec part;
    accumulation_spec(&part, splits[k].batch, splits[k].parts);
    size_t n;
    float *expected = accumulate(device, &whole, &b, splits[k].rows, &n);
    float *got = accumulate(device, &part, &b, splits[k].rows, &n);
    double distance = relative_distance(got, expected, n);
    if (!(distance < 1e-5)) {
      fail_msg("%lld micro-batches of %lld: off by %g", (long long)splits[k].parts,
               (long long)splits[k].batch, distance);
    }
    free(got);
    free(expected);
  }
  test_batch_free(&b);
}

static void test_accumulation(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  check_accumulation(device);
  test_device_close(device);
}

static void test_accumulation_cpu(void **state) {
  (void)state;
  brim_device *device = test_device_cpu();
  if (!device) BRIM_SKIP(brim_status_detail());
  check_accumulation(device);
  test_device_close(device);
}

static void test_padding(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  float *grads[2];
  double loss[2];
  size_t n = 0;
  for (int padded = 0; padded < 2; padded++) {
    test_spec t;
    test_spec_init(&t);
    test_component_string(&t.model, "norm", "layer");
    test_component_float(&t.model, "dropout", 0.2);
    t.spec.batch = padded ? 9 : 5;
    test_batch b;
    test_batch_make(&t.spec, 9, 4, &b);
    for (int row = 5; row < 9; row++) ((int32_t *)b.target)[row] = 77;  // labels out of range
    brim_net *net;
    assert_ok(brim_net_create(device, &t.spec, &net));
    brim_net_micro micro = {
        .batch = test_batch_at(&t.spec, &b, 0, 5), .step = 1, .step_rows = 5, .first = true};
    assert_ok(brim_net_train(net, &micro, NULL));
    brim_net_metrics m;
    assert_ok(brim_net_read_metrics(net, true, &m));
    assert_true(m.rows == 5 && m.bad_rows == 0);
    loss[padded] = m.loss_sum;
    grads[padded] = test_grads(net, &n);
    brim_net_destroy(net);
    test_batch_free(&b);
  }
  assert_true(fabs(loss[0] - loss[1]) <= 1e-6 * fabs(loss[0]));
  assert_true(relative_distance(grads[1], grads[0], n) < 1e-6);
  free(grads[0]);
  free(grads[1]);
  test_device_close(device);
}

//---------------------------------- optimisers ----------------------------------

typedef struct rule {
  const char *name;
  double momentum, weight_decay, beta1, beta2, eps, clip;
  bool nesterov;
} rule;

static const rule rules[] = {
    {.name = "sgd"},
    {.name = "sgd", .momentum = 0.9, .weight_decay = 0.01},
    {.name = "sgd", .momentum = 0.8, .nesterov = true},
    {.name = "sgd", .momentum = 0.5, .clip = 0.05},
    {.name = "adam", .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
    {.name = "adam", .beta1 = 0.7, .beta2 = 0.9, .eps = 1e-3, .weight_decay = 0.1},
    {.name = "adamw", .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.2},
    {.name = "adamw", .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6, .weight_decay = 0.05, .clip = 0.01},
};

// n values in double, and the optimizer's state for them.
typedef struct tracked {
  double *p, *m, *v;
  size_t n;
} tracked;

// One step of a rule in double, from the papers' formulas (PyTorch's conventions).
static void apply_rule(const rule *r, int64_t step, double lr, const float *grads, tracked t) {
  double norm = 0, scale = 1, *p = t.p, *m = t.m, *v = t.v;
  size_t n = t.n;
  for (size_t i = 0; i < n; i++) norm += (double)grads[i] * (double)grads[i];
  norm = sqrt(norm);
  if (r->clip > 0 && norm > r->clip) scale = r->clip / norm;
  for (size_t i = 0; i < n; i++) {
    double g = (double)grads[i] * scale;
    if (r->name[0] == 's') {
      g += r->weight_decay * p[i];
      m[i] = r->momentum * m[i] + g;
      p[i] -= lr * (r->nesterov ? g + r->momentum * m[i] : m[i]);
      continue;
    }
    if (r->name[4] == 'w') {
      p[i] *= 1 - lr * r->weight_decay;
    } else {
      g += r->weight_decay * p[i];
    }
    m[i] = r->beta1 * m[i] + (1 - r->beta1) * g;
    v[i] = r->beta2 * v[i] + (1 - r->beta2) * g * g;
    double m_hat = m[i] / (1 - pow(r->beta1, (double)step));
    double v_hat = v[i] / (1 - pow(r->beta2, (double)step));
    p[i] -= lr * m_hat / (sqrt(v_hat) + r->eps);
  }
}

static void check_rule(brim_device *device, const rule *r) {
  test_spec t;
  test_spec_init(&t);
  test_component_init(&t.optimizer, r->name);
  if (r->momentum > 0) test_component_float(&t.optimizer, "momentum", r->momentum);
  if (r->nesterov) test_component_bool(&t.optimizer, "nesterov", true);
  test_component_float(&t.optimizer, "weight_decay", r->weight_decay);
  if (r->eps > 0) {
    test_component_float(&t.optimizer, "beta1", r->beta1);
    test_component_float(&t.optimizer, "beta2", r->beta2);
    test_component_float(&t.optimizer, "eps", r->eps);
  }
  t.spec.clip_norm = r->clip;
  test_batch b;
  test_batch_make(&t.spec, 5, 23, &b);
  brim_net *net;
  assert_ok(brim_net_create(device, &t.spec, &net));
  size_t n;
  float *start = test_params(net, &n);
  double *p = calloc(n, sizeof *p), *m = calloc(n, sizeof *m), *v = calloc(n, sizeof *v);
  assert_true(p && m && v);
  for (size_t i = 0; i < n; i++) p[i] = (double)start[i];
  for (int64_t step = 1; step <= 5; step++) {
    double lr = 0.05 / (double)step;
    test_step(net, &t.spec, &b, 1, step, lr);
    float *grads = test_grads(net, &n), *now = test_params(net, &n);
    apply_rule(r, step, lr, grads, (tracked){p, m, v, n});
    double norm = 0;
    for (size_t i = 0; i < n; i++) {
      norm += (double)grads[i] * (double)grads[i];
      if (!(fabs((double)now[i] - p[i]) <= 2e-5 * (0.05 + fabs(p[i])))) {
        fail_msg("%s (momentum %g, decay %g, clip %g) step %lld: [%zu] is %.8g, expected %.8g",
                 r->name, r->momentum, r->weight_decay, r->clip, (long long)step, i, (double)now[i],
                 p[i]);
      }
    }
    brim_net_metrics metrics;
    assert_ok(brim_net_read_metrics(net, true, &metrics));
    assert_true(fabs(metrics.grad_norm - sqrt(norm)) <= 1e-5 * sqrt(norm));
    // otherwise the case would not test clipping
    if (r->clip > 0) assert_true(sqrt(norm) > r->clip);
    free(grads);
    free(now);
  }
  free(p);
  free(m);
  free(v);
  free(start);
  brim_net_destroy(net);
  test_batch_free(&b);
}

static void test_optimizers(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) check_rule(device, &rules[i]);
  test_device_close(device);
}

static void test_skipped(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t;
  test_spec_init(&t);
  test_component_init(&t.optimizer, "adam");
  test_batch good, bad;
  test_batch_make(&t.spec, 5, 31, &good);
  test_batch_make(&t.spec, 5, 31, &bad);
  ((float *)bad.input)[3] = NAN;
  brim_net *net;
  assert_ok(brim_net_create(device, &t.spec, &net));
  brim_net_metrics m;
  assert_ok(brim_net_read_metrics(net, true, &m));
  assert_true(isnan(m.grad_norm) && m.skipped_steps == 0);
  test_step(net, &t.spec, &good, 1, 1, 0.1);
  size_t n;
  float *before = test_params(net, &n);
  test_step(net, &t.spec, &bad, 1, 2, 0.1);
  float *after = test_params(net, &n);
  assert_memory_equal(before, after, n * sizeof *before);
  assert_ok(brim_net_read_metrics(net, true, &m));
  assert_int_equal(m.skipped_steps, 1);
  assert_true(m.bad_rows == 1);
  free(after);
  // More updates than the ring of norms holds, without reading it in between.
  for (int64_t step = 3; step < 3 + BRIM_NORM_RING + 10; step++) {
    test_step(net, &t.spec, step % 100 == 0 ? &bad : &good, 1, step, 1e-3);
  }
  assert_ok(brim_net_read_metrics(net, true, &m));
  assert_int_equal(m.skipped_steps, 1 + (3 + BRIM_NORM_RING + 9) / 100);
  assert_true(isfinite(m.grad_norm));
  after = test_params(net, &n);
  for (size_t i = 0; i < n; i++) assert_true(isfinite(after[i]));
  assert_memory_not_equal(before, after, n * sizeof *before);
  free(before);
  free(after);
  brim_net_destroy(net);
  test_batch_free(&good);
  test_batch_free(&bad);
  test_device_close(device);
}

//---------------------------------- agreement ----------------------------------

static void agreement_spec(test_spec *t, brim_precision precision) {
  test_spec_init(t);
  test_component_init(&t->model, "resmlp");
  test_component_int(&t->model, "depth", 2);
  test_component_int(&t->model, "hidden", 48);
  test_component_float(&t->model, "dropout", 0.2);
  test_component_float(&t->optimizer, "momentum", 0.9);
  t->spec.batch = 24;
  t->spec.precision = precision;
}

static float *five_steps(brim_device *device, brim_precision precision, size_t *n) {
  test_spec t;
  agreement_spec(&t, precision);
  test_batch b;
  test_batch_make(&t.spec, 24, 44, &b);
  brim_net *net;
  assert_ok(brim_net_create(device, &t.spec, &net));
  for (int64_t step = 1; step <= 5; step++) test_step(net, &t.spec, &b, 1, step, 0.05);
  float *params = test_params(net, n);
  brim_net_destroy(net);
  test_batch_free(&b);
  return params;
}

static void test_bf16_agrees(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  size_t n;
  float *wide = five_steps(device, BRIM_PRECISION_FP32, &n);
  float *narrow = five_steps(device, BRIM_PRECISION_BF16, &n);
  double distance = relative_distance(narrow, wide, n);
  assert_true(distance > 0 && distance < 1e-2);
  free(wide);
  free(narrow);
  test_device_close(device);
}

static void test_cpu_agrees(void **state) {
  (void)state;
  brim_device *device = test_device_cpu();
  if (!device) BRIM_SKIP(brim_status_detail());
  size_t n;
  float *got = five_steps(device, BRIM_PRECISION_FP32, &n);
  float *again = five_steps(device, BRIM_PRECISION_FP32, &n);
  assert_memory_equal(got, again, n * sizeof *got);
  test_device_close(device);
  device = test_device_ref();
  float *expected = five_steps(device, BRIM_PRECISION_FP32, &n);
  assert_true(relative_distance(got, expected, n) < 1e-5);
  test_device_close(device);
  free(got);
  free(again);
  free(expected);
}

// Points of a ring around others: no linear model can separate them.
static void test_learns(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t;
  test_spec_init(&t);
  test_component_int(&t.model, "hidden", 32);
  test_component_init(&t.optimizer, "adam");
  t.spec.classes = 2;
  t.spec.input_rank = 1;
  t.spec.input_dim[0] = 2;
  t.spec.batch = 64;
  test_batch b;
  test_batch_make(&t.spec, 64, 12, &b);
  for (int i = 0; i < 64; i++) {
    float x = ((float *)b.input)[2 * i], y = ((float *)b.input)[2 * i + 1];
    ((int32_t *)b.target)[i] = x * x + y * y < 0.5f;
  }
  brim_net *net;
  assert_ok(brim_net_create(device, &t.spec, &net));
  brim_net_metrics first, last;
  test_step(net, &t.spec, &b, 1, 1, 0.01);
  assert_ok(brim_net_read_metrics(net, true, &first));
  for (int64_t step = 2; step <= 300; step++) test_step(net, &t.spec, &b, 1, step, 0.01);
  assert_ok(brim_net_read_metrics(net, true, &last));
  brim_batch all = test_batch_at(&t.spec, &b, 0, 64);
  assert_ok(brim_net_evaluate(net, &all, NULL));
  assert_ok(brim_net_read_metrics(net, true, &last));
  assert_true(last.rows == 64);
  assert_true(last.loss_sum < 0.1 * first.loss_sum);
  assert_true(last.correct >= 63);
  brim_net_destroy(net);
  test_batch_free(&b);
  test_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_accumulation), cmocka_unit_test(test_accumulation_cpu),
      cmocka_unit_test(test_padding),      cmocka_unit_test(test_optimizers),
      cmocka_unit_test(test_skipped),      cmocka_unit_test(test_bf16_agrees),
      cmocka_unit_test(test_cpu_agrees),   cmocka_unit_test(test_learns),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
