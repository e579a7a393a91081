// Promises of whole models on every device: recomputation changes no bit, micro-batches add up with batch norm's own
// statistics, checkpoints hold everything, losses are scaled in fp16, and memory is as planned. Absent devices are
// skipped.
#include <math.h>
#include <string.h>

#include "engine_models_test.h"
#include "engine_on.h"

//---------------------------------- recomputation ----------------------------------

static void recompute(brim_device *device) {
  for (int i = 0; i < TEST_MODELS; i++) {
    test_spec t;
    test_model_spec(&test_models[i], &t);
    t.spec.accumulation = 2;
    const brim_net_hooks plain = {0}, again = {.recompute = INT32_MAX}, some = {.recompute = 1};
    const brim_net_hooks no_reuse = {.no_reuse = true, .recompute = INT32_MAX};
    test_outcome a = test_train_three(device, &t, &plain);
    test_outcome b = test_train_three(device, &t, &again);
    test_outcome c = test_train_three(device, &t, &some);
    test_outcome d = test_train_three(device, &t, &no_reuse);
    test_outcome_same(test_models[i].name, &a, &b);
    test_outcome_same(test_models[i].name, &a, &c);
    test_outcome_same(test_models[i].name, &a, &d);
    // Only on the host: workspaces larger than all activations may need a larger arena with more nodes between them.
    if (device->info.host_memory) assert_true(b.arena <= a.arena);
    test_outcome_free(&a);
    test_outcome_free(&b);
    test_outcome_free(&c);
    test_outcome_free(&d);
  }
}

//---------------------------------- nothing read unwritten ----------------------------------

// NaN fills the gaps, because a memory checker does not see the bulk copies of a library's kernels.
static void unwritten(brim_device *device) {
  static const brim_precision precisions[] = {BRIM_PRECISION_FP32, BRIM_PRECISION_BF16};
  for (int i = 0; i < TEST_MODELS; i++) {
    for (int k = 0; k < 2; k++) {
      test_spec t;
      test_model_spec(&test_models[i], &t);
      t.spec.precision = precisions[k];
      t.spec.accumulation = 2;
      const brim_net_hooks plain = {0}, poisoned = {.poison = true};
      test_outcome a = test_train_three(device, &t, &plain);
      test_outcome b = test_train_three(device, &t, &poisoned);
      test_outcome_same(test_models[i].name, &a, &b);
      for (size_t e = 0; e < b.count; e++) assert_true(isfinite(b.params[e]) != 0);
      test_outcome_free(&a);
      test_outcome_free(&b);
    }
  }
}

//---------------------------------- accumulation ----------------------------------

// Three micro-batches against the sum of three steps, each with its own normalisation.
static void accumulation(brim_device *device) {
  for (int i = 0; i < TEST_MODELS; i++) {
    test_spec t;
    test_model_spec(&test_models[i], &t);
    test_batch b;
    test_batch_make(&t.spec, 12, 3, &b);
    brim_net *one, *many;
    assert_ok(brim_net_create(device, &t.spec, &one));
    t.spec.accumulation = 3;
    assert_ok(brim_net_create(device, &t.spec, &many));
    size_t count = 0;
    double *sum = NULL;
    for (int k = 0; k < 3; k++) {
      brim_net_micro micro = {
          .batch = test_batch_at(&t.spec, &b, k * 4, 4), .step = 1, .step_rows = 12, .first = true};
      assert_ok(brim_net_train(one, &micro, NULL));
      float *part = test_grads(one, &count);
      if (!sum) sum = calloc(count, sizeof *sum);
      assert_non_null(sum);
      for (size_t e = 0; e < count; e++) sum[e] += (double)part[e];
      free(part);
      micro.first = k == 0;
      assert_ok(brim_net_train(many, &micro, NULL));
    }
    float *got = test_grads(many, &count);
    double error = 0, norm = 0;
    for (size_t e = 0; e < count; e++) {
      error += (got[e] - sum[e]) * (got[e] - sum[e]);
      norm += sum[e] * sum[e];
    }
    if (!(sqrt(error) <= 1e-5 * sqrt(norm))) {
      fail_msg("%s: relative norm %g", test_models[i].name, sqrt(error / norm));
    }
    // Running statistics moved three times in both.
    unsigned char *moved[] = {test_block(one, BRIM_BLOCK_BUFFERS),
                              test_block(many, BRIM_BLOCK_BUFFERS)};
    assert_memory_equal(moved[0], moved[1], one->blocks[BRIM_BLOCK_BUFFERS].bytes + 1);
    free(moved[0]);
    free(moved[1]);
    free(got);
    free(sum);
    test_batch_free(&b);
    brim_net_destroy(one);
    brim_net_destroy(many);
  }
}

//---------------------------------- checkpoints ----------------------------------

static void checkpoint(brim_device *device) {
  static const char path[] = "test_engine_devices.safetensors";
  for (int i = 0; i < 5; i++) {
    test_spec t;
    test_model_spec(&test_models[i], &t);
    test_batch b;
    test_batch_make(&t.spec, 4, 3, &b);
    brim_net *net, *other;
    assert_ok(brim_net_create(device, &t.spec, &net));
    for (int64_t step = 1; step <= 3; step++) test_step(net, &t.spec, &b, 1, step, 0.05);
    assert_ok(brim_net_save(net, path, NULL, false));
    t.spec.seed = 77;
    // Padding channels do not change the numbers, but may change the algorithm.
    brim_net_hooks hooks = {.channel_pad = device->info.host_memory ? 4 : 0};
    assert_ok(brim_net_create_hooked(device, &t.spec, &hooks, &other));
    assert_ok(brim_net_load(other, path, false, NULL));
    float a[16], c[16];
    brim_batch batch = test_batch_at(&t.spec, &b, 0, 4);
    assert_ok(brim_net_evaluate(net, &batch, NULL));
    assert_ok(brim_net_outputs(net, a, 4));
    assert_ok(brim_net_evaluate(other, &batch, NULL));
    assert_ok(brim_net_outputs(other, c, 4));
    assert_memory_equal(a, c, 4 * (size_t)test_models[i].outputs * sizeof *a);
    assert_int_equal(other->batches, net->buffers.count ? 3 : other->batches);
    brim_safetensors *file;
    assert_ok(brim_safetensors_open(path, &file));
    if (test_models[i].rank == 3) {
      const brim_safetensors_entry *e = brim_safetensors_find(file, "bn1.num_batches_tracked");
      assert_non_null(e);
      int64_t tracked;
      memcpy(&tracked, e->data, sizeof tracked);
      assert_true(e->dtype == BRIM_I64 && e->rank == 0 && tracked == 3);
      assert_non_null(brim_safetensors_find(file, "bn1.running_var"));
    }
    brim_safetensors_close(file);
    brim_net_destroy(net);
    brim_net_destroy(other);
    test_batch_free(&b);
  }
}

//---------------------------------- fp16 ----------------------------------

// A loss too steep for the first scale: steps are skipped and counted until the scale fits, and weights do not change.
// Checkpoints and snapshots contain the scale.
static void loss_scale(brim_device *device) {
  static const char path[] = "test_engine_devices_fp16.safetensors";
  test_spec t;
  test_spec_init(&t);
  test_spec_mse(&t, 3);
  t.spec.precision = BRIM_PRECISION_FP16;
  for (int c = 0; c < 4; c++) t.spec.scale[c] = 30;
  test_batch b;
  test_batch_make(&t.spec, 5, 3, &b);
  for (int i = 0; i < 15; i++) ((float *)b.target)[i] *= 300;
  brim_net *net;
  assert_ok(brim_net_create(device, &t.spec, &net));
  size_t count = 0;
  float *before = test_params(net, &count);
  brim_net_metrics m;
  int64_t step = 1;
  test_step(net, &t.spec, &b, 1, step++, 1e-5);
  assert_ok(brim_net_read_metrics(net, true, &m));
  assert_int_equal(m.skipped_steps, 1);
  assert_true(m.loss_scale == 32768);
  float *after = test_params(net, &count);
  assert_memory_equal(before, after, count * sizeof *after);
  while (step < 20) test_step(net, &t.spec, &b, 1, step++, 1e-5);
  assert_ok(brim_net_read_metrics(net, true, &m));
  assert_true(m.skipped_steps > 1 && m.skipped_steps < 18);
  assert_true(m.loss_scale < 32768 && m.loss_scale >= 1);
  assert_true(isfinite(m.grad_norm) && m.grad_norm > 1);
  free(after);
  after = test_params(net, &count);
  assert_memory_not_equal(before, after, count * sizeof *after);
  double scale = m.loss_scale;
  assert_ok(brim_net_snapshot(net));
  assert_ok(brim_net_save(net, path, NULL, false));
  brim_net *other;
  assert_ok(brim_net_create(device, &t.spec, &other));
  assert_ok(brim_net_load(other, path, false, NULL));
  assert_ok(brim_net_read_metrics(other, true, &m));
  assert_true(m.loss_scale == scale);
  // A run in another precision loads the file too.
  t.spec.precision = BRIM_PRECISION_FP32;
  brim_net *wide;
  assert_ok(brim_net_create(device, &t.spec, &wide));
  assert_ok(brim_net_load(wide, path, false, NULL));
  assert_ok(brim_net_read_metrics(wide, true, &m));
  assert_true(m.loss_scale == 1);
  brim_net_destroy(wide);
  brim_net_destroy(other);
  brim_net_destroy(net);
  free(before);
  free(after);
  test_batch_free(&b);
}

//---------------------------------- memory ----------------------------------

// The plan is made without the device's memory, the network with it: the same bytes, row by row.
static void memory(brim_device *device) {
  for (int i = 0; i < TEST_MODELS; i++) {
    for (int k = 0; k < 4; k++) {
      test_spec t;
      test_model_spec(&test_models[i], &t);
      t.spec.accumulation = 1 + k % 2;
      t.spec.recompute = k / 2 ? BRIM_RECOMPUTE_ALL : BRIM_RECOMPUTE_NONE;
      brim_plan plan = {0};
      assert_ok(brim_net_plan(device, &t.spec, &plan));
      brim_net *net;
      assert_ok(brim_net_create(device, &t.spec, &net));
      uint64_t sum = 0, rows = 0;
      size_t row = 0;
      for (int b = 0; b < BRIM_BLOCK_COUNT; b++) {
        if (net->blocks[b].bytes == 0) continue;
        assert_non_null(net->blocks[b].data);
        assert_true(row < plan.row_count);
        assert_int_equal(plan.rows[row].bytes, net->blocks[b].bytes);
        assert_int_equal(plan.rows[row].place, BRIM_PLACE_DEVICE);
        rows += plan.rows[row++].bytes;
        sum += net->blocks[b].bytes;
      }
      assert_int_equal(row, plan.row_count);
      assert_int_equal(sum, plan.bytes[BRIM_PLACE_DEVICE]);
      assert_int_equal(rows, sum);
      size_t arena = net->train.places.bytes > net->eval.places.bytes ? net->train.places.bytes
                                                                      : net->eval.places.bytes;
      assert_true(arena > 0 && arena <= net->blocks[BRIM_BLOCK_ARENA].bytes);
      brim_net_destroy(net);
    }
  }
}

//---------------------------------- devices ----------------------------------

int main(void) {
  const struct CMUnitTest tests[] = {
      ON(recompute, ref),    ON(recompute, cpu),     ON(recompute, cuda),  ON(accumulation, ref),
      ON(accumulation, cpu), ON(accumulation, cuda), ON(checkpoint, ref),  ON(checkpoint, cpu),
      ON(checkpoint, cuda),  ON(loss_scale, ref),    ON(loss_scale, cuda),  // no fp16 on cpu
      ON(memory, ref),       ON(memory, cpu),        ON(memory, cuda),     ON(unwritten, ref),
      ON(unwritten, cpu),    ON(unwritten, cuda),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
