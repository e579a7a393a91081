// A network's state as its callers see it: outputs, initial values, snapshots, written parameters, spans, refusals of
// bad calls, and devices that do not share memory with the host.
#include <math.h>
#include <unistd.h>

#include "backend/backend_half.h"
#include "engine_test.h"
#include "hd/hd_philox.h"

//---------------------------------- outputs and inputs ----------------------------------

static float as_bf16(float x) { return brim_bf16_to_f32(brim_f32_to_bf16(x)); }

static void test_outputs(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  for (int bf16 = 0; bf16 < 2; bf16++) {
    test_spec t;
    test_spec_init(&t);
    test_component_init(&t.model, "linear");
    t.spec.precision = bf16 ? BRIM_PRECISION_BF16 : BRIM_PRECISION_FP32;
    t.spec.input_dtype = BRIM_U8;
    t.spec.channels = 2;
    t.spec.scale[0] = 0.01f, t.spec.scale[1] = -0.02f;
    t.spec.shift[0] = -1, t.spec.shift[1] = 0.5f;
    t.spec.batch = 4;
    t.spec.eval_batch = 6;
    test_batch b;
    test_batch_make(&t.spec, 6, 8, &b);
    brim_net *net;
    assert_ok(brim_net_create(device, &t.spec, &net));
    float out[6 * 3], w[3 * 6], bias[3];
    assert_status(brim_net_outputs(net, out, 1), BRIM_ESTATE);
    brim_batch batch = test_batch_at(&t.spec, &b, 0, 6);
    assert_ok(brim_net_evaluate(net, &batch, NULL));
    assert_status(brim_net_outputs(net, out, 7), BRIM_EINVAL);
    assert_ok(brim_net_outputs(net, out, 6));
    assert_ok(brim_net_param_read(net, 0, w));
    assert_ok(brim_net_param_read(net, 1, bias));
    for (int r = 0; r < 6; r++) {
      for (int c = 0; c < 3; c++) {
        double sum = (double)(bf16 ? as_bf16(bias[c]) : bias[c]);
        for (int f = 0; f < 6; f++) {
          float x =
              (float)((uint8_t *)b.input)[r * 6 + f] * t.spec.scale[f % 2] + t.spec.shift[f % 2];
          float weight = w[c * 6 + f];
          sum += bf16 ? (double)(as_bf16(x) * as_bf16(weight)) : (double)(x * weight);
        }
        double bound = bf16 ? 0.01 : 1e-5;
        assert_true(fabs((double)out[r * 3 + c] - sum) <= bound * (1 + fabs(sum)));
        if (bf16) assert_true(out[r * 3 + c] == as_bf16(out[r * 3 + c]));
      }
    }
    // A training step reuses the memory, so the outputs are gone.
    test_step(net, &t.spec, &b, 1, 1, 0.1);
    assert_status(brim_net_outputs(net, out, 1), BRIM_ESTATE);
    brim_net_destroy(net);
    test_batch_free(&b);
  }
  test_device_close(device);
}

static void test_bad_calls(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t;
  test_spec_init(&t);
  test_batch b;
  test_batch_make(&t.spec, 5, 2, &b);
  brim_net *net;
  assert_ok(brim_net_create(device, &t.spec, &net));
  brim_net_micro micro = {
      .batch = test_batch_at(&t.spec, &b, 0, 5), .step = 1, .step_rows = 5, .first = false};
  assert_status(brim_net_train(net, &micro, NULL), BRIM_ESTATE);
  micro.first = true;
  micro.step_rows = 4;
  assert_status(brim_net_train(net, &micro, NULL), BRIM_EINVAL);
  micro.step_rows = 6;
  micro.batch.rows = 6;
  assert_status(brim_net_train(net, &micro, NULL), BRIM_EINVAL);
  micro.batch.rows = 0;
  assert_status(brim_net_train(net, &micro, NULL), BRIM_EINVAL);
  micro.batch.rows = 5;
  micro.batch.input = NULL;
  assert_status(brim_net_train(net, &micro, NULL), BRIM_EINVAL);
  assert_status(brim_net_evaluate(net, &micro.batch, NULL), BRIM_EINVAL);
  assert_status(brim_net_update(net, 0, 0.1, NULL), BRIM_EINVAL);
  assert_status(brim_net_restore(net), BRIM_ESTATE);
  float value[64];
  assert_status(brim_net_param_read(net, 6, value), BRIM_EINVAL);
  brim_net_destroy(net);
  brim_net_destroy(NULL);
  test_batch_free(&b);
  test_device_close(device);
}

//---------------------------------- state ----------------------------------

static void test_init(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t;
  test_spec_init(&t);
  test_component_string(&t.model, "norm", "layer");
  test_component_int(&t.model, "hidden", 400);
  float *params[3];
  size_t n = 0;
  for (int k = 0; k < 3; k++) {
    t.spec.seed = k == 2 ? 2 : 1;
    brim_net *net;
    assert_ok(brim_net_create(device, &t.spec, &net));
    params[k] = test_params(net, &n);
    size_t at = 0;
    for (size_t i = 0; i < brim_net_param_count(net); i++) {
      const brim_net_param *p = brim_net_param_at(net, i);
      bool norm = strstr(p->name, "norms.") != NULL;
      // Uniform within 1 / sqrt(inputs): layers.0 has 6 inputs, the others 400.
      double bound = 1 / sqrt(strstr(p->name, "layers.0") ? 6.0 : 400.0), squares = 0, most = 0;
      for (int64_t e = 0; e < p->count; e++, at++) {
        double x = (double)params[k][at];
        if (norm) assert_true(x == (strstr(p->name, "weight") ? 1.0 : 0.0));
        squares += x * x;
        if (fabs(x) > most) most = fabs(x);
      }
      if (norm || p->count < 1000) continue;
      assert_true(most <= bound && most > 0.99 * bound);
      assert_true(fabs(squares / (double)p->count / (bound * bound / 3) - 1) < 0.1);
    }
    brim_net_destroy(net);
  }
  assert_memory_equal(params[0], params[1], n * sizeof(float));
  assert_memory_not_equal(params[0], params[2], n * sizeof(float));
  // The random stream is specified: element 5 of parameter 0 with seed 1.
  brim_philox4 r = brim_philox(brim_rng_key(1, BRIM_RNG_INIT), 0, 1);
  float u = brim_rng_uniform(r.v[1]);
  assert_true(fabs((double)params[0][5] - (2 * (double)u - 1) / sqrt(6)) < 1e-7);
  for (int k = 0; k < 3; k++) free(params[k]);
  test_device_close(device);
}

// Element e of the normal matrix from which the orthogonal parameter `index` is made.
static double normal_at(uint64_t seed, uint64_t index, uint64_t e) {
  brim_philox4 r = brim_philox(brim_rng_key(seed, BRIM_RNG_INIT), index, e / 4);
  uint64_t pair = e % 4 / 2 * 2;
  double u = 1.0 - (double)brim_rng_uniform(r.v[pair]);
  double angle = 6.283185307179586 * (double)brim_rng_uniform(r.v[pair + 1]);
  return (double)(float)(sqrt(-2.0 * log(u)) * (e % 2 ? sin(angle) : cos(angle)));
}

// Rows or columns, whichever are fewer, are orthogonal, with a length of `gain`; and R = Q' A is upper triangular with
// a positive diagonal.
static void check_orthogonal(const float *w, const brim_net_param *p, uint64_t index, double gain) {
  int64_t rows = p->dim[0], columns = p->dim[1];
  bool wide = rows < columns;
  int64_t count = wide ? rows : columns, length = wide ? columns : rows;
  for (int64_t a = 0; a < count; a++) {
    for (int64_t b = 0; b < count; b++) {
      double dot = 0, r = 0;
      for (int64_t i = 0; i < length; i++) {
        int64_t at = wide ? a * columns + i : i * columns + a;
        int64_t other = wide ? b * columns + i : i * columns + b;
        dot += (double)w[at] * (double)w[other];
        r += (double)w[at] / gain * normal_at(1, index, (uint64_t)other);
      }
      assert_true(fabs(dot / (gain * gain) - (a == b)) < 1e-6);
      if (a > b) assert_true(fabs(r) < 1e-5);
      if (a == b) assert_true(r > 0.01);
    }
  }
}

static void test_orthogonal(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t;
  test_spec_init(&t);
  test_component_string(&t.model, "init", "orthogonal");
  test_component_int(&t.model, "hidden", 40);
  test_component_float(&t.model, "gain", 1.5);
  for (int last = 0; last < 2; last++) {
    if (last) test_component_float(&t.model, "last_gain", 0.01);
    brim_net *net;
    assert_ok(brim_net_create(device, &t.spec, &net));
    size_t n, at = 0;
    float *params = test_params(net, &n);
    for (size_t i = 0; i < brim_net_param_count(net); i++) {
      const brim_net_param *p = brim_net_param_at(net, i);
      double gain = last && strstr(p->name, "layers.2") ? 0.01 : 1.5;
      if (p->rank == 2) check_orthogonal(params + at, p, i, gain);
      for (int64_t e = 0; p->rank == 1 && e < p->count; e++)
        assert_true(params[at + (size_t)e] == 0);
      at += (size_t)p->count;
    }
    free(params);
    brim_net_destroy(net);
  }
  brim_net *net;
  test_component_float(&t.model, "gain", -1);
  assert_int_equal(brim_net_create(device, &t.spec, &net), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "gain is -1"));
  test_component_float(&t.model, "gain", 1.5);
  test_component_string(&t.model, "init", "uniform");
  assert_int_equal(brim_net_create(device, &t.spec, &net), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "need init=orthogonal"));
  test_component_string(&t.model, "init", "xavier");
  assert_int_equal(brim_net_create(device, &t.spec, &net), BRIM_EINVAL);
  test_device_close(device);
}

static void test_snapshot(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t;
  test_spec_init(&t);
  test_component_init(&t.optimizer, "adamw");
  t.spec.precision = BRIM_PRECISION_BF16;
  test_batch b;
  test_batch_make(&t.spec, 5, 6, &b);
  brim_net *net;
  assert_ok(brim_net_create(device, &t.spec, &net));
  test_step(net, &t.spec, &b, 1, 1, 0.1);
  assert_ok(brim_net_snapshot(net));
  size_t n;
  float *params[2];
  for (int k = 0; k < 2; k++) {
    for (int64_t step = 2; step <= 4; step++) test_step(net, &t.spec, &b, 1, step, 0.1);
    params[k] = test_params(net, &n);
    assert_ok(brim_net_restore(net));
  }
  assert_memory_equal(params[0], params[1], n * sizeof(float));
  float *now = test_params(net, &n);
  assert_memory_not_equal(params[0], now, n * sizeof(float));
  free(now);
  free(params[0]);
  free(params[1]);
  brim_net_destroy(net);
  test_batch_free(&b);
  test_device_close(device);
}

static void test_param_write(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  for (int bf16 = 0; bf16 < 2; bf16++) {
    test_spec t;
    test_spec_init(&t);
    test_component_init(&t.model, "linear");
    t.spec.precision = bf16 ? BRIM_PRECISION_BF16 : BRIM_PRECISION_FP32;
    test_batch b;
    test_batch_make(&t.spec, 5, 6, &b);
    brim_net *net;
    assert_ok(brim_net_create(device, &t.spec, &net));
    float zeros[18] = {0}, bias[3] = {1, -2, 3}, out[15];
    assert_ok(brim_net_param_write(net, 0, zeros));
    assert_ok(brim_net_param_write(net, 1, bias));
    brim_batch batch = test_batch_at(&t.spec, &b, 0, 5);
    assert_ok(brim_net_evaluate(net, &batch, NULL));
    assert_ok(brim_net_outputs(net, out, 5));
    for (int i = 0; i < 15; i++) assert_true(out[i] == bias[i % 3]);
    brim_net_destroy(net);
    test_batch_free(&b);
  }
  test_device_close(device);
}

//---------------------------------- spans ----------------------------------

typedef struct span_log {
  char text[64];
  size_t n;
} span_log;

static void span_begin(void *ctx, brim_phase phase, const char *name) {
  (void)name;
  span_log *l = ctx;
  l->text[l->n++] = brim_phase_key(phase)[0];
}

static void span_end(void *ctx, brim_phase phase, const char *name) {
  (void)phase;
  (void)name;
  span_log *l = ctx;
  l->text[l->n++] = '.';
}

static void test_spans(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t;
  test_spec_init(&t);
  test_batch b;
  test_batch_make(&t.spec, 5, 6, &b);
  brim_net *net;
  assert_ok(brim_net_create(device, &t.spec, &net));
  span_log log = {{0}, 0};
  brim_spans spans = {.ctx = &log, .begin = span_begin, .end = span_end};
  brim_net_micro micro = {
      .batch = test_batch_at(&t.spec, &b, 0, 5), .step = 1, .step_rows = 5, .first = true};
  assert_ok(brim_net_train(net, &micro, &spans));
  assert_ok(brim_net_update(net, 1, 0.1, &spans));
  assert_ok(brim_net_evaluate(net, &micro.batch, &spans));
  assert_string_equal(log.text, "f.b.o.f.");
  brim_net_destroy(net);
  test_batch_free(&b);
  test_device_close(device);
}

//---------------------------------- separate memory ----------------------------------

typedef struct run_result {
  float *params;
  size_t count;
  float outputs[6 * 3];
  char spans[64];
} run_result;

// Two accumulated steps, a save and a load, and an evaluation.
static void run_on(brim_device *device, const char *path, run_result *r) {
  test_spec t;
  test_spec_init(&t);
  test_component_init(&t.optimizer, "adam");
  test_component_float(&t.model, "dropout", 0.2);
  t.spec.input_dtype = BRIM_U8;
  t.spec.scale[0] = 0.01f;
  t.spec.accumulation = 2;
  t.spec.eval_batch = 6;
  test_batch b;
  test_batch_make(&t.spec, 10, 6, &b);
  brim_net *net;
  assert_ok(brim_net_create(device, &t.spec, &net));
  for (int64_t step = 1; step <= 2; step++) test_step(net, &t.spec, &b, 2, step, 0.1);
  assert_ok(brim_net_save(net, path, NULL, false));
  test_step(net, &t.spec, &b, 2, 3, 0.1);
  assert_ok(brim_net_load(net, path, false, NULL));
  span_log log = {{0}, 0};
  brim_spans spans = {.ctx = &log, .begin = span_begin, .end = span_end};
  brim_batch batch = test_batch_at(&t.spec, &b, 0, 6);
  assert_ok(brim_net_evaluate(net, &batch, &spans));
  assert_ok(brim_net_outputs(net, r->outputs, 6));
  memcpy(r->spans, log.text, sizeof r->spans);
  r->params = test_params(net, &r->count);
  brim_plan plan = {0};
  brim_net_fill_plan(net, &plan);
  uint64_t inputs = 0, sum = 0;
  for (size_t i = 0; i < plan.row_count; i++) {
    if (strcmp(plan.rows[i].name, "inputs") == 0) inputs = plan.rows[i].bytes;
    sum += plan.rows[i].bytes;
  }
  // Two slots for 6 rows with 6 floats and a label of 4 bytes each.
  assert_int_equal(inputs, device->info.host_memory ? 0 : 2 * (64 + 64));
  brim_alloc_stats with, without;
  brim_alloc_get_stats(&with);
  brim_net_destroy(net);
  brim_alloc_get_stats(&without);
  assert_int_equal(with.live_bytes[BRIM_MEM_PLANNED] - without.live_bytes[BRIM_MEM_PLANNED], sum);
  test_batch_free(&b);
}

// ref, reported as a device with separate memory, takes every copy that a GPU takes.
static void test_separate_memory(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  run_result direct, staged;
  run_on(device, "direct.safetensors", &direct);
  device->info.host_memory = false;
  run_on(device, "staged.safetensors", &staged);
  assert_int_equal(direct.count, staged.count);
  assert_memory_equal(direct.params, staged.params, direct.count * sizeof(float));
  assert_memory_equal(direct.outputs, staged.outputs, sizeof direct.outputs);
  assert_string_equal(direct.spans, "f.");
  assert_string_equal(staged.spans, "c.h.f.");
  char *a, *b;
  size_t n, m;
  assert_ok(brim_fs_read("direct.safetensors", 0, &a, &n));
  assert_ok(brim_fs_read("staged.safetensors", 0, &b, &m));
  assert_int_equal(n, m);
  assert_memory_equal(a, b, n);
  brim_free(a);
  brim_free(b);
  free(direct.params);
  free(staged.params);
  (void)unlink("direct.safetensors");
  (void)unlink("staged.safetensors");
  test_device_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_outputs),  cmocka_unit_test(test_bad_calls),
      cmocka_unit_test(test_init),     cmocka_unit_test(test_orthogonal),
      cmocka_unit_test(test_snapshot), cmocka_unit_test(test_param_write),
      cmocka_unit_test(test_spans),    cmocka_unit_test(test_separate_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
