// The average of weights (training.ema_decay): its values against the rule computed here, evaluation and saved weights
// with it, planned bytes, and resuming bit for bit; on every device here.
#include <math.h>

#include "engine_test.h"

static const double decay = 0.9;

static void average_spec(test_spec *t, double ema) {
  test_spec_init(t);
  test_component_string(&t->model, "norm", "layer");
  test_component_init(&t->optimizer, "adamw");
  t->spec.ema_decay = ema;
}

// Reads the average, which has the layout of the parameters.
static float *read_average(brim_net *net, size_t count) {
  unsigned char *own = net->blocks[BRIM_BLOCK_PARAMS].data;
  size_t read;
  net->blocks[BRIM_BLOCK_PARAMS].data = net->blocks[BRIM_BLOCK_AVERAGE].data;
  float *all = test_params(net, &read);
  net->blocks[BRIM_BLOCK_PARAMS].data = own;
  assert_int_equal(read, count);
  return all;
}

static void steps(brim_net *net, const test_spec *t, int64_t from, int64_t to) {
  test_batch b;
  test_batch_make(&t->spec, t->spec.batch, 3, &b);
  for (int64_t s = from; s <= to; s++) test_step(net, &t->spec, &b, 1, s, 0.05);
  test_batch_free(&b);
}

static void evaluate(brim_net *net, const test_spec *t, float *out) {
  test_batch b;
  test_batch_make(&t->spec, t->spec.batch, 4, &b);
  brim_batch batch = test_batch_at(&t->spec, &b, 0, t->spec.batch);
  assert_ok(brim_net_evaluate(net, &batch, NULL));
  assert_ok(brim_net_outputs(net, out, t->spec.batch));
  test_batch_free(&b);
}

// Checks the average after every step, from the weights of that step.
static void check_values(brim_device *device, brim_precision precision) {
  test_spec t;
  average_spec(&t, decay);
  t.spec.precision = precision;
  brim_net *net;
  assert_ok(brim_net_create(device, &t.spec, &net));
  size_t n;
  float *w = test_params(net, &n), *have = read_average(net, n);
  assert_memory_equal(w, have, n * sizeof *w);  // it starts from the weights
  double *want = malloc(n * sizeof *want);
  assert_non_null(want);
  for (size_t i = 0; i < n; i++) want[i] = (double)w[i];
  for (int64_t step = 1; step <= 120; step++) {
    steps(net, &t, step, step);
    free(w);
    free(have);
    w = test_params(net, &n);
    have = read_average(net, n);
    double d = fmin(decay, (double)step / (double)(step + 9));
    for (size_t i = 0; i < n; i++) {
      want[i] = d * want[i] + (1 - d) * (double)w[i];
      if (!(fabs(want[i] - (double)have[i]) <= 2e-6 * (1 + fabs(want[i])))) {
        fail_msg("step %d, value %zu: %.9g, expected %.9g", (int)step, i, (double)have[i], want[i]);
      }
    }
  }
  free(want);
  free(w);
  free(have);
  brim_net_destroy(net);
}

// Evaluation uses a network with the averaged weights, bit for bit; the plain weights give another result.
static void check_evaluation(brim_device *device, brim_precision precision) {
  test_spec t, plain;
  average_spec(&t, decay);
  average_spec(&plain, 0);
  t.spec.precision = plain.spec.precision = precision;
  brim_net *net, *other;
  assert_ok(brim_net_create(device, &t.spec, &net));
  assert_ok(brim_net_create(device, &plain.spec, &other));
  float a[64], b[64], c[64];
  assert_true(t.spec.batch * 3 <= 64);
  size_t bytes = (size_t)t.spec.batch * 3 * sizeof(float);
  for (int round = 0; round < 3; round++) {
    steps(net, &t, 1 + round * 6, 6 + round * 6);
    evaluate(net, &t, a);
    evaluate(net, &t, b);
    assert_memory_equal(a, b, bytes);
    assert_ok(brim_net_save(net, "average.safetensors", NULL, true));
    assert_ok(brim_net_load(other, "average.safetensors", true, NULL));
    evaluate(other, &plain, b);
    assert_memory_equal(a, b, bytes);
    for (size_t i = 0; i < brim_net_param_count(net); i++) {
      float values[256];
      assert_true(brim_net_param_at(net, i)->count <= 256);
      assert_ok(brim_net_param_read(net, i, values));
      assert_ok(brim_net_param_write(other, i, values));
    }
    evaluate(other, &plain, c);
    assert_memory_not_equal(a, c, bytes);
  }
  brim_net_destroy(net);
  brim_net_destroy(other);
}

// Weights equal those of a run without an average, which only observes them.
static void check_weights(brim_device *device) {
  test_spec t, plain;
  average_spec(&t, decay);
  average_spec(&plain, 0);
  brim_net *a, *b;
  assert_ok(brim_net_create(device, &t.spec, &a));
  assert_ok(brim_net_create(device, &plain.spec, &b));
  float out[64];
  steps(a, &t, 1, 10);
  evaluate(a, &t, out);
  steps(a, &t, 11, 20);
  steps(b, &plain, 1, 20);
  size_t n;
  float *x = test_params(a, &n), *y = test_params(b, &n);
  assert_memory_equal(x, y, n * sizeof *x);
  free(x);
  free(y);
  assert_null(b->blocks[BRIM_BLOCK_AVERAGE].data);
  brim_net_destroy(a);
  brim_net_destroy(b);
}

static void same_files(const char *a, const char *b) {
  char *x, *y;
  size_t n, m;
  assert_ok(brim_fs_read(a, 0, &x, &n));
  assert_ok(brim_fs_read(b, 0, &y, &m));
  assert_int_equal(n, m);
  assert_memory_equal(x, y, n);
  brim_free(x);
  brim_free(y);
}

static void check_resume(brim_device *device, brim_precision precision) {
  test_spec t;
  average_spec(&t, decay);
  t.spec.precision = precision;
  brim_net *whole, *resumed;
  float a[64], b[64];
  size_t bytes = (size_t)t.spec.batch * 3 * sizeof(float);
  assert_ok(brim_net_create(device, &t.spec, &whole));
  steps(whole, &t, 1, 4);
  assert_ok(brim_net_save(whole, "half.safetensors", NULL, false));
  brim_safetensors *file;
  assert_ok(brim_safetensors_open("half.safetensors", &file));
  assert_non_null(brim_safetensors_find(file, "ema.layers.0.weight"));
  assert_int_equal(brim_safetensors_count(file), 4 * brim_net_param_count(whole) + 1);
  brim_safetensors_close(file);
  evaluate(whole, &t, a);
  steps(whole, &t, 5, 8);
  assert_ok(brim_net_save(whole, "whole.safetensors", NULL, false));
  t.spec.seed = 5;
  assert_ok(brim_net_create(device, &t.spec, &resumed));
  evaluate(resumed, &t, b);
  assert_memory_not_equal(a, b, bytes);
  assert_ok(brim_net_load(resumed, "half.safetensors", false, NULL));
  evaluate(resumed, &t, b);
  assert_memory_equal(a, b, bytes);
  steps(resumed, &t, 5, 8);
  assert_ok(brim_net_save(resumed, "resumed.safetensors", NULL, false));
  same_files("whole.safetensors", "resumed.safetensors");
  brim_net_destroy(whole);
  brim_net_destroy(resumed);
}

// Files with and without an average load into networks with and without one. A full checkpoint loaded as weights gives
// the average.
static void check_files(brim_device *device) {
  test_spec t, plain;
  average_spec(&t, decay);
  average_spec(&plain, 0);
  brim_net *a, *b;
  size_t n;
  assert_ok(brim_net_create(device, &t.spec, &a));
  assert_ok(brim_net_create(device, &plain.spec, &b));
  steps(a, &t, 1, 5);
  assert_ok(brim_net_save(a, "full.safetensors", NULL, false));
  float *weights = test_params(a, &n), *average = read_average(a, n);
  assert_memory_not_equal(weights, average, n * sizeof *weights);
  assert_ok(brim_net_load(b, "full.safetensors", false, NULL));  // continues without an average
  float *got = test_params(b, &n);
  assert_memory_equal(weights, got, n * sizeof *got);
  free(got);
  assert_ok(brim_net_load(b, "full.safetensors", true, NULL));
  got = test_params(b, &n);
  assert_memory_equal(average, got, n * sizeof *got);
  free(got);
  free(weights);
  free(average);
  // a file without an average starts it from its weights
  assert_ok(brim_net_save(b, "plain.safetensors", NULL, false));
  steps(a, &t, 6, 7);
  assert_ok(brim_net_load(a, "plain.safetensors", false, NULL));
  weights = test_params(a, &n);
  average = read_average(a, n);
  assert_memory_equal(weights, average, n * sizeof *weights);
  // and a trial leaves no trace
  assert_ok(brim_net_snapshot(a));
  steps(a, &t, 6, 9);
  assert_ok(brim_net_restore(a));
  got = read_average(a, n);
  assert_memory_equal(average, got, n * sizeof *got);
  free(got);
  free(weights);
  free(average);
  brim_net_destroy(a);
  brim_net_destroy(b);
}

static void check_plan(brim_device *device, brim_precision precision) {
  test_spec t, plain;
  average_spec(&t, decay);
  average_spec(&plain, 0);
  t.spec.precision = plain.spec.precision = precision;
  brim_plan with, without;
  memset(&with, 0, sizeof with);
  memset(&without, 0, sizeof without);
  assert_ok(brim_net_plan(device, &t.spec, &with));
  assert_ok(brim_net_plan(device, &plain.spec, &without));
  uint64_t bytes = 0;
  for (size_t i = 0; i < with.row_count; i++) {
    bool row = strcmp(with.rows[i].name, "average of weights") == 0 ||
               strcmp(with.rows[i].name, "16-bit copy of the average") == 0;
    if (row) bytes += with.rows[i].bytes;
  }
  assert_true(bytes >= with.parameter_count * (precision == BRIM_PRECISION_BF16 ? 6 : 4));
  assert_int_equal(with.bytes[BRIM_PLACE_DEVICE] - without.bytes[BRIM_PLACE_DEVICE], bytes);
}

static void check_all(brim_device *device, bool half) {
  for (int k = 0; k <= half; k++) {
    brim_precision precision = k ? BRIM_PRECISION_BF16 : BRIM_PRECISION_FP32;
    check_values(device, precision);
    check_evaluation(device, precision);
    check_resume(device, precision);
    check_plan(device, precision);
  }
  check_weights(device);
  check_files(device);
  test_device_close(device);
}

static void test_ref(void **state) {
  (void)state;
  check_all(test_device_ref(), true);
}

static void test_cpu(void **state) {
  (void)state;
  brim_device *device = test_device_cpu();
  if (!device) BRIM_SKIP(brim_status_detail());
  check_all(device, true);
}

static void test_cuda(void **state) {
  (void)state;
  brim_device *device = test_device_cuda();
  if (!device) BRIM_SKIP(brim_status_detail());
  check_all(device, true);
}

static void test_bad_decay(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  const double bad[] = {1, -0.1, 2, (double)NAN};
  for (size_t i = 0; i < 4; i++) {
    test_spec t;
    average_spec(&t, bad[i]);
    brim_net *net;
    assert_status(brim_net_create(device, &t.spec, &net), BRIM_EINVAL);
    assert_non_null(strstr(brim_status_detail(), "ema_decay"));
  }
  test_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ref),
      cmocka_unit_test(test_cpu),
      cmocka_unit_test(test_cuda),
      cmocka_unit_test(test_bad_decay),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
