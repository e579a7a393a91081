// The average of a network with batch norm: running statistics are averaged like the weights. Values against the rule
// computed here, over accumulation and skipped steps; evaluation and files with the average, planned bytes, resuming
// bit for bit, a sample that is not finite, statistics taken from batches instead, and files of versions that averaged
// only weights. On every device here, and on one that runs late and records its steps.
#include <math.h>

#include "engine_lazy.h"
#include "engine_test.h"

static const double decay = 0.9;
enum { OUTPUTS = 3, BATCH = 6 };

static void norm_spec(test_spec *t, double ema, brim_precision precision) {
  test_spec_init(t);
  test_component_init(&t->model, "resnet18");
  test_component_string(&t->model, "stem", "cifar");
  test_component_int(&t->model, "width", 4);
  test_component_float(&t->optimizer, "momentum", 0.9);
  test_spec_mse(t, OUTPUTS);  // with mse a target alone can make the gradients infinite
  t->spec.input_rank = 3;
  t->spec.input_dim[0] = t->spec.input_dim[1] = 6;
  t->spec.input_dim[2] = t->spec.channels = 3;
  t->spec.batch = BATCH;
  t->spec.ema_decay = ema;
  t->spec.precision = precision;
}

// One step in the pieces that training uses: its last micro-batch updates.
static void step(brim_net *net, const test_spec *t, int64_t number, bool bad) {
  int64_t parts = t->spec.accumulation;
  test_batch b;
  test_batch_make(&t->spec, BATCH * parts, 3 + (uint64_t)number, &b);
  if (bad) ((float *)b.target)[1] = INFINITY;
  for (int64_t k = 0; k < parts; k++) {
    brim_net_micro micro = {.batch = test_batch_at(&t->spec, &b, k * BATCH, BATCH),
                            .step = number,
                            .step_rows = parts * BATCH,
                            .first = k == 0};
    if (k < parts - 1) {
      assert_ok(brim_net_train(net, &micro, NULL));
    } else {
      assert_ok(brim_net_step(net, &micro, 0.05, NULL));
    }
  }
  assert_ok(brim_device_sync(net->device));
  test_batch_free(&b);
}

static void steps(brim_net *net, const test_spec *t, int64_t from, int64_t to) {
  for (int64_t s = from; s <= to; s++) step(net, t, s, false);
}

static void evaluate(brim_net *net, const test_spec *t, float out[BATCH * OUTPUTS]) {
  test_batch b;
  test_batch_make(&t->spec, BATCH, 1000, &b);
  brim_batch batch = test_batch_at(&t->spec, &b, 0, BATCH);
  assert_ok(brim_net_evaluate(net, &batch, NULL));
  assert_ok(brim_net_outputs(net, out, BATCH));
  test_batch_free(&b);
}

static float *read_block(brim_net *net, brim_block_id id, size_t *count) {
  size_t bytes = net->blocks[id].bytes;
  assert_true(bytes > 0);
  float *all = malloc(bytes);
  assert_non_null(all);
  assert_ok(brim_device_copy(net->device, all, net->blocks[id].data, bytes, BRIM_COPY_D2H));
  assert_ok(brim_device_sync(net->device));
  *count = bytes / sizeof *all;
  return all;
}

//---------------------------------- values ----------------------------------

static void follow(brim_net *net, brim_block_id from, brim_block_id average, double rate,
                   double **want, int64_t number) {
  size_t n, m;
  float *now = read_block(net, from, &n), *have = read_block(net, average, &m);
  assert_int_equal(n, m);
  if (!*want) {  // the average starts from the current values
    *want = malloc(n * sizeof **want);
    assert_non_null(*want);
    for (size_t i = 0; i < n; i++) (*want)[i] = (double)now[i];
  }
  for (size_t i = 0; i < n; i++) {
    double *w = &(*want)[i];
    *w = (1 - rate) * *w + rate * (double)now[i];
    if (!(fabs(*w - (double)have[i]) <= 2e-6 * (1 + fabs(*w)))) {
      fail_msg("step %d, block %d, value %zu: %.9g, expected %.9g", (int)number, (int)average, i,
               (double)have[i], *w);
    }
  }
  free(now);
  free(have);
}

static void check_values(brim_device *device, brim_precision precision, int64_t accumulation) {
  test_spec t;
  norm_spec(&t, decay, precision);
  t.spec.accumulation = accumulation;
  brim_net *net;
  assert_ok(brim_net_create(device, &t.spec, &net));
  double *weights = NULL, *statistics = NULL;
  follow(net, BRIM_BLOCK_PARAMS, BRIM_BLOCK_AVERAGE, 0, &weights, 0);
  follow(net, BRIM_BLOCK_BUFFERS, BRIM_BLOCK_AVERAGE_BUFFERS, 0, &statistics, 0);
  int updates = 0, last = accumulation > 1 ? 12 : 24;
  uint64_t skipped = 0;
  for (int number = 1; number <= last; number++) {
    bool bad = number % 5 == 3;
    step(net, &t, number, bad);
    brim_net_metrics m;
    assert_ok(brim_net_read_metrics(net, true, &m));
    bool skip = m.skipped_steps > skipped;  // in fp16 the loss scale may also skip a step
    assert_true(skip || !bad);
    skipped = m.skipped_steps;
    double rate = skip ? 0 : fmax(1 - decay, 9.0 / (updates + 10));
    updates += !skip;
    follow(net, BRIM_BLOCK_PARAMS, BRIM_BLOCK_AVERAGE, rate, &weights, number);
    follow(net, BRIM_BLOCK_BUFFERS, BRIM_BLOCK_AVERAGE_BUFFERS, rate, &statistics, number);
  }
  assert_true(updates >= last / 2);
  free(weights);
  free(statistics);
  brim_net_destroy(net);
}

//---------------------------------- a bad sample ----------------------------------

// The step with it is skipped, and it leaves nothing in the running statistics either.
static void check_bad_sample(brim_device *device, brim_precision precision) {
  test_spec t;
  norm_spec(&t, 0, precision);
  brim_net *net;
  assert_ok(brim_net_create(device, &t.spec, &net));
  steps(net, &t, 1, 2);
  size_t n, m;
  float *before = read_block(net, BRIM_BLOCK_BUFFERS, &n);
  float *weights = read_block(net, BRIM_BLOCK_PARAMS, &m);
  test_batch b;
  test_batch_make(&t.spec, BATCH, 99, &b);
  ((float *)b.input)[40] = NAN;
  brim_net_micro micro = {
      .batch = test_batch_at(&t.spec, &b, 0, BATCH), .step = 3, .step_rows = BATCH, .first = true};
  assert_ok(brim_net_step(net, &micro, 0.05, NULL));
  float *after = read_block(net, BRIM_BLOCK_BUFFERS, &n);
  assert_memory_equal(before, after, n * sizeof *after);
  free(after);
  after = read_block(net, BRIM_BLOCK_PARAMS, &m);
  assert_memory_equal(weights, after, m * sizeof *after);
  free(after);
  // its square overflows: the variance must not take it
  ((float *)b.input)[40] = 1e30f;
  micro.step = 4;
  assert_ok(brim_net_step(net, &micro, 1e-30, NULL));
  steps(net, &t, 5, 6);
  after = read_block(net, BRIM_BLOCK_BUFFERS, &n);
  assert_memory_not_equal(before, after, n * sizeof *after);
  for (size_t i = 0; i < n; i++) assert_true(isfinite(after[i]));
  free(after);
  free(before);
  free(weights);
  test_batch_free(&b);
  brim_net_destroy(net);
}

//---------------------------------- evaluation and files ----------------------------------

// Evaluation uses the average with its own statistics, and both files contain it. The weights with theirs, and the
// average with the weights' statistics, give other results.
static void check_evaluation(brim_device *device, brim_precision precision) {
  test_spec t, plain;
  norm_spec(&t, decay, precision);
  norm_spec(&plain, 0, precision);
  brim_net *net, *other;
  assert_ok(brim_net_create(device, &t.spec, &net));
  assert_ok(brim_net_create(device, &plain.spec, &other));
  float a[BATCH * OUTPUTS], b[BATCH * OUTPUTS];
  steps(net, &t, 1, 4);
  evaluate(net, &t, a);
  steps(net, &t, 5, 8);
  evaluate(net, &t, b);
  assert_memory_not_equal(a, b, sizeof a);
  evaluate(net, &t, a);
  assert_memory_equal(a, b, sizeof a);
  assert_ok(brim_net_save(net, "norm_model.safetensors", NULL, true));
  assert_ok(brim_net_save(net, "norm_full.safetensors", NULL, false));
  assert_ok(brim_net_load(other, "norm_model.safetensors", true, NULL));
  evaluate(other, &plain, b);
  assert_memory_equal(a, b, sizeof a);
  assert_ok(brim_net_load_weights(other, "norm_full.safetensors", NULL));
  evaluate(other, &plain, b);
  assert_memory_not_equal(a, b, sizeof a);
  assert_ok(brim_net_load_weights(other, "norm_full.safetensors", "ema."));
  evaluate(other, &plain, b);
  assert_memory_equal(a, b, sizeof a);
  assert_ok(brim_net_load(other, "norm_full.safetensors", true, NULL));
  evaluate(other, &plain, b);
  assert_memory_equal(a, b, sizeof a);
  size_t n;
  float *raw = read_block(net, BRIM_BLOCK_BUFFERS, &n);
  assert_ok(brim_device_copy(device, other->blocks[BRIM_BLOCK_BUFFERS].data, raw, n * sizeof *raw,
                             BRIM_COPY_H2D));
  assert_ok(brim_device_sync(device));
  free(raw);
  evaluate(other, &plain, b);
  assert_memory_not_equal(a, b, sizeof a);
  brim_net_destroy(net);
  brim_net_destroy(other);
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
  norm_spec(&t, decay, precision);
  brim_net *whole, *resumed;
  float a[BATCH * OUTPUTS], b[BATCH * OUTPUTS];
  assert_ok(brim_net_create(device, &t.spec, &whole));
  steps(whole, &t, 1, 3);
  assert_ok(brim_net_save(whole, "norm_half.safetensors", NULL, false));
  evaluate(whole, &t, a);
  assert_ok(brim_net_snapshot(whole));  // a trial leaves no trace
  steps(whole, &t, 4, 5);
  assert_ok(brim_net_restore(whole));
  evaluate(whole, &t, b);
  assert_memory_equal(a, b, sizeof a);
  steps(whole, &t, 4, 6);
  assert_ok(brim_net_save(whole, "norm_whole.safetensors", NULL, false));
  t.spec.seed = 5;
  assert_ok(brim_net_create(device, &t.spec, &resumed));
  assert_ok(brim_net_load(resumed, "norm_half.safetensors", false, NULL));
  evaluate(resumed, &t, b);
  assert_memory_equal(a, b, sizeof a);
  assert_ok(brim_net_save(resumed, "norm_again.safetensors", NULL, false));
  same_files("norm_half.safetensors", "norm_again.safetensors");
  steps(resumed, &t, 4, 6);
  assert_ok(brim_net_save(resumed, "norm_resumed.safetensors", NULL, false));
  same_files("norm_whole.safetensors", "norm_resumed.safetensors");
  brim_net_destroy(whole);
  brim_net_destroy(resumed);
}

//---------------------------------- statistics from batches ----------------------------------

static void write_block(brim_net *net, brim_block_id id, const float *values, size_t count) {
  assert_int_equal(net->blocks[id].bytes, count * sizeof *values);
  assert_ok(brim_device_copy(net->device, net->blocks[id].data, values, count * sizeof *values,
                             BRIM_COPY_H2D));
  assert_ok(brim_device_sync(net->device));
}

static void same_block(brim_net *a, brim_block_id of_a, brim_net *b, brim_block_id of_b) {
  size_t n, m;
  float *x = read_block(a, of_a, &n), *y = read_block(b, of_b, &m);
  assert_int_equal(n, m);
  assert_memory_equal(x, y, n * sizeof *x);
  free(x);
  free(y);
}

static void recalibrate(brim_net *net, const test_spec *t, int count, int64_t number) {
  for (int k = 0; k < count; k++) {
    test_batch b;
    test_batch_make(&t->spec, BATCH, 500 + (uint64_t)k, &b);
    brim_batch batch = test_batch_at(&t->spec, &b, 0, BATCH);
    assert_ok(brim_net_recalibrate(net, &batch, number, k));
    assert_ok(brim_device_sync(net->device));
    test_batch_free(&b);
  }
}

// The mean over batches of the statistics that a network with the averaged weights computes.
static float *expected_statistics(brim_net *other, const test_spec *t, int count, size_t *n) {
  double *sum = NULL;
  float *zero = NULL, momentum = 0;
  for (int32_t i = 0; i < other->train.forward_count; i++) {
    if (other->train.calls[i].op == BRIM_OP_BATCHNORM)
      momentum = other->train.calls[i].attr.momentum;
  }
  assert_true(momentum > 0 && momentum < 1);
  for (int k = 0; k < count; k++) {
    test_batch b;
    test_batch_make(&t->spec, BATCH, 500 + (uint64_t)k, &b);
    brim_net_micro micro = {.batch = test_batch_at(&t->spec, &b, 0, BATCH),
                            .step = 6,
                            .step_rows = BATCH,
                            .first = true};
    *n = other->blocks[BRIM_BLOCK_BUFFERS].bytes / sizeof *zero;
    if (!zero) zero = calloc(*n, sizeof *zero);
    if (!sum) sum = calloc(*n, sizeof *sum);
    assert_true(zero && sum);
    write_block(other, BRIM_BLOCK_BUFFERS, zero, *n);
    assert_ok(brim_net_train(other, &micro, NULL));
    assert_ok(brim_device_sync(other->device));
    float *moved = read_block(other, BRIM_BLOCK_BUFFERS, n);
    for (size_t i = 0; i < *n; i++) sum[i] += (double)moved[i] / (double)momentum / count;
    free(moved);
    test_batch_free(&b);
  }
  for (size_t i = 0; i < *n; i++) zero[i] = (float)sum[i];
  free(sum);
  return zero;
}

// Recalibration leaves the training as it was, and one that has begun can be undone.
static void check_recalibrate(brim_device *device, brim_precision precision, int64_t accumulation) {
  test_spec t, plain;
  norm_spec(&t, decay, precision);
  norm_spec(&plain, 0, precision);
  t.spec.accumulation = accumulation;
  brim_net *net, *calm, *other;
  assert_ok(brim_net_create(device, &t.spec, &net));
  assert_ok(brim_net_create(device, &t.spec, &calm));
  assert_ok(brim_net_create(device, &plain.spec, &other));
  assert_true(brim_net_recalibrates(net) && !brim_net_recalibrates(other));
  steps(net, &t, 1, 5);
  steps(calm, &t, 1, 5);
  assert_ok(brim_net_save(net, "norm_recalibrated.safetensors", NULL, true));
  assert_ok(brim_net_load(other, "norm_recalibrated.safetensors", true, NULL));
  recalibrate(net, &t, 3, 6);
  assert_ok(brim_net_undo_recalibration(net));
  same_block(net, BRIM_BLOCK_AVERAGE_BUFFERS, calm, BRIM_BLOCK_AVERAGE_BUFFERS);
  recalibrate(net, &t, 4, 6);
  size_t n, m;
  float *have = read_block(net, BRIM_BLOCK_AVERAGE_BUFFERS, &m);
  float *want = expected_statistics(other, &t, 4, &n);
  assert_int_equal(n, m);
  for (size_t i = 0; i < n; i++) {
    if (fabs((double)have[i] - (double)want[i]) <= 2e-5 * (1 + fabs((double)want[i]))) continue;
    fail_msg("statistic %zu: %.9g, expected %.9g", i, (double)have[i], (double)want[i]);
  }
  same_block(net, BRIM_BLOCK_BUFFERS, calm, BRIM_BLOCK_BUFFERS);
  same_block(net, BRIM_BLOCK_AVERAGE, calm, BRIM_BLOCK_AVERAGE);
  // and evaluation uses these
  write_block(other, BRIM_BLOCK_BUFFERS, have, m);
  free(have);
  free(want);
  float a[BATCH * OUTPUTS], b[BATCH * OUTPUTS];
  brim_net_metrics sums, was;
  evaluate(net, &t, a);
  evaluate(other, &plain, b);
  assert_memory_equal(a, b, sizeof a);
  assert_ok(brim_net_read_metrics(net, false, &sums));
  evaluate(calm, &t, b);  // trains equally far
  assert_ok(brim_net_read_metrics(calm, false, &was));
  assert_true(sums.rows == was.rows);
  steps(net, &t, 6, 8);
  steps(calm, &t, 6, 8);
  same_block(net, BRIM_BLOCK_PARAMS, calm, BRIM_BLOCK_PARAMS);
  same_block(net, BRIM_BLOCK_BUFFERS, calm, BRIM_BLOCK_BUFFERS);
  brim_net_destroy(net);
  brim_net_destroy(calm);
  brim_net_destroy(other);
}

// Dropout draws its mask for the given step, whatever the network did before.
static void check_drawn(brim_device *device) {
  test_spec t;
  norm_spec(&t, decay, BRIM_PRECISION_FP32);
  test_component_init(&t.model, "wideresnet");
  test_component_int(&t.model, "depth", 10);
  test_component_int(&t.model, "width", 1);
  test_component_float(&t.model, "dropout", 0.3);
  brim_net *net, *loaded;
  assert_ok(brim_net_create(device, &t.spec, &net));
  assert_ok(brim_net_create(device, &t.spec, &loaded));
  steps(net, &t, 1, 3);
  assert_ok(brim_net_save(net, "norm_drawn.safetensors", NULL, false));
  assert_ok(brim_net_load(loaded, "norm_drawn.safetensors", false, NULL));
  recalibrate(net, &t, 3, 4);
  recalibrate(loaded, &t, 3, 4);
  same_block(net, BRIM_BLOCK_AVERAGE_BUFFERS, loaded, BRIM_BLOCK_AVERAGE_BUFFERS);
  size_t n;
  float *one = read_block(net, BRIM_BLOCK_AVERAGE_BUFFERS, &n);
  recalibrate(loaded, &t, 3, 5);
  float *another = read_block(loaded, BRIM_BLOCK_AVERAGE_BUFFERS, &n);
  assert_memory_not_equal(one, another, n * sizeof *one);
  free(one);
  free(another);
  brim_net_destroy(net);
  brim_net_destroy(loaded);
}

static void check_plan(brim_device *device) {
  test_spec t, plain;
  norm_spec(&t, decay, BRIM_PRECISION_FP32);
  norm_spec(&plain, 0, BRIM_PRECISION_FP32);
  brim_plan with, without;
  memset(&with, 0, sizeof with);
  memset(&without, 0, sizeof without);
  assert_ok(brim_net_plan(device, &t.spec, &with));
  assert_ok(brim_net_plan(device, &plain.spec, &without));
  uint64_t weights = 0, statistics = 0, shared = 0;
  for (size_t i = 0; i < with.row_count; i++) {
    const brim_plan_row *r = &with.rows[i];
    if (strcmp(r->name, "average of weights") == 0) weights = r->bytes;
    if (strcmp(r->name, "average of running statistics") == 0) statistics = r->bytes;
    if (strcmp(r->name, "running statistics") == 0) shared = r->bytes;
  }
  assert_true(statistics > 0 && statistics == shared);
  assert_int_equal(with.bytes[BRIM_PLACE_DEVICE] - without.bytes[BRIM_PLACE_DEVICE],
                   weights + statistics);
}

//---------------------------------- earlier versions ----------------------------------

static void count_warnings(void *ctx, brim_log_level level, const char *module, const char *text) {
  (void)module;
  if (level == BRIM_LOG_WARN && strstr(text, "running statistics")) ++*(int *)ctx;
}

// The file as an earlier version wrote it, which averaged only weights.
static void without_statistics(const char *from, const char *to) {
  brim_safetensors *file;
  assert_ok(brim_safetensors_open(from, &file));
  size_t all = brim_safetensors_count(file), n = 0, left_out = 0;
  brim_safetensors_entry *kept = malloc(all * sizeof *kept);
  assert_non_null(kept);
  for (size_t i = 0; i < all; i++) {
    const brim_safetensors_entry *e = brim_safetensors_at(file, i);
    bool out = strncmp(e->name, "ema.", 4) == 0 && strstr(e->name, ".running_");
    left_out += out;
    if (!out) kept[n++] = *e;
  }
  assert_true(left_out > 0);
  assert_ok(brim_safetensors_write(to, kept, n, NULL));
  free(kept);
  brim_safetensors_close(file);
}

static void test_earlier_versions(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t, plain;
  norm_spec(&t, decay, BRIM_PRECISION_FP32);
  norm_spec(&plain, 0, BRIM_PRECISION_FP32);
  brim_net *net, *other;
  assert_ok(brim_net_create(device, &t.spec, &net));
  assert_ok(brim_net_create(device, &plain.spec, &other));
  steps(net, &t, 1, 5);
  assert_ok(brim_net_save(net, "norm_now.safetensors", NULL, false));
  without_statistics("norm_now.safetensors", "norm_then.safetensors");
  size_t n, m;
  float *average = read_block(net, BRIM_BLOCK_AVERAGE, &n);
  float *raw = read_block(net, BRIM_BLOCK_BUFFERS, &m);
  steps(net, &t, 6, 7);
  int warned = 0;
  brim_log_set_sink(count_warnings, &warned, BRIM_LOG_WARN);
  assert_ok(brim_net_load(net, "norm_then.safetensors", false, NULL));
  assert_int_equal(warned, 1);
  float *got = read_block(net, BRIM_BLOCK_AVERAGE, &n);
  assert_memory_equal(got, average, n * sizeof *got);
  free(got);
  got = read_block(net, BRIM_BLOCK_AVERAGE_BUFFERS, &m);
  assert_memory_equal(got, raw, m * sizeof *got);
  free(got);
  // loaded as weights: the average, with the only statistics in the file
  assert_ok(brim_net_load(other, "norm_then.safetensors", true, NULL));
  assert_int_equal(warned, 2);
  got = read_block(other, BRIM_BLOCK_PARAMS, &n);
  assert_memory_equal(got, average, n * sizeof *got);
  free(got);
  got = read_block(other, BRIM_BLOCK_BUFFERS, &m);
  assert_memory_equal(got, raw, m * sizeof *got);
  free(got);
  assert_ok(brim_net_load_weights(other, "norm_then.safetensors", "ema."));
  assert_int_equal(warned, 3);
  // these are complete
  assert_ok(brim_net_load_weights(other, "norm_then.safetensors", NULL));
  assert_ok(brim_net_load_weights(other, "norm_now.safetensors", "ema."));
  assert_ok(brim_net_load(net, "norm_now.safetensors", false, NULL));
  assert_ok(brim_net_load(other, "norm_now.safetensors", false, NULL));
  assert_ok(brim_net_save(other, "norm_plain.safetensors", NULL, false));
  assert_ok(brim_net_load(net, "norm_plain.safetensors", false, NULL));
  brim_log_set_sink(NULL, NULL, BRIM_LOG_WARN);
  assert_int_equal(warned, 3);
  got = read_block(net, BRIM_BLOCK_AVERAGE_BUFFERS, &m);
  assert_memory_equal(got, raw, m * sizeof *got);
  free(got);
  free(raw);
  free(average);
  brim_net_destroy(net);
  brim_net_destroy(other);
  test_device_close(device);
}

//---------------------------------- quality ----------------------------------

// Images of four patterns in noise, learnt at a high rate. In the middle of the training, while the weights jump, the
// average classifies no worse than the weights.
enum { PATTERNS = 4, PIXELS = 6 * 6 * 3, ROWS = 32 };

static void patterns(uint64_t seed, float *input, int32_t *labels) {
  for (int64_t i = 0; i < ROWS; i++) {
    labels[i] = (int32_t)(test_random(seed, (uint64_t)i) * PATTERNS);
    for (int64_t j = 0; j < PIXELS; j++) {
      double pattern = test_random(77, (uint64_t)(labels[i] * PIXELS + j)) - 0.5;
      double noise = test_random(seed + 1, (uint64_t)(i * PIXELS + j)) - 0.5;
      input[i * PIXELS + j] = (float)(pattern + 2 * noise);
    }
  }
}

static double loss_of(brim_net *net) {
  static float input[ROWS * PIXELS];
  int32_t labels[ROWS];
  brim_net_metrics m;
  assert_ok(brim_net_read_metrics(net, true, &m));
  for (uint64_t k = 0; k < 4; k++) {
    patterns(900000 + 10 * k, input, labels);
    brim_batch batch = {.input = input, .target = labels, .rows = ROWS};
    assert_ok(brim_net_evaluate(net, &batch, NULL));
  }
  assert_ok(brim_net_read_metrics(net, true, &m));
  return m.loss_sum / m.rows;
}

static void check_quality(brim_device *device) {
  test_spec t, plain;
  norm_spec(&t, 0.98, BRIM_PRECISION_FP32);
  norm_spec(&plain, 0, BRIM_PRECISION_FP32);
  for (int k = 0; k < 2; k++) {
    test_spec *s = k ? &plain : &t;
    test_component_init(&s->loss, "cross_entropy");
    s->spec.classes = PATTERNS;
    s->spec.target_dim = 0;
    s->spec.batch = ROWS;
  }
  brim_net *net, *raw;
  assert_ok(brim_net_create(device, &t.spec, &net));
  assert_ok(brim_net_create(device, &plain.spec, &raw));
  static float input[ROWS * PIXELS];
  int32_t labels[ROWS];
  double of_average = 0, of_raw = 0;
  for (int64_t s = 1; s <= 200; s++) {
    patterns(1000 * (uint64_t)s, input, labels);
    brim_net_micro micro = {.batch = {.input = input, .target = labels, .rows = ROWS},
                            .step = s,
                            .step_rows = ROWS,
                            .first = true};
    assert_ok(brim_net_step(net, &micro, 0.2, NULL));
    if (s < 100 || s % 25 != 0) continue;
    assert_ok(brim_net_save(net, "norm_quality.safetensors", NULL, false));
    assert_ok(brim_net_load_weights(raw, "norm_quality.safetensors", NULL));
    of_average += loss_of(net);
    of_raw += loss_of(raw);
  }
  if (!(of_average < of_raw)) {
    fail_msg("mean loss by the average %g, by the weights %g", of_average / 5, of_raw / 5);
  }
  brim_net_destroy(net);
  brim_net_destroy(raw);
}

//---------------------------------- devices ----------------------------------

static void check_all(brim_device *device, bool fp16) {
  const brim_precision precisions[] = {BRIM_PRECISION_FP32, BRIM_PRECISION_BF16,
                                       BRIM_PRECISION_FP16};
  for (int k = 0; k < 2 + fp16; k++) {
    check_values(device, precisions[k], 1);
    check_bad_sample(device, precisions[k]);
    check_evaluation(device, precisions[k]);
    check_resume(device, precisions[k]);
    check_recalibrate(device, precisions[k], 1);
  }
  check_values(device, BRIM_PRECISION_FP32, 3);
  check_recalibrate(device, BRIM_PRECISION_FP32, 2);
  check_drawn(device);
  check_plan(device);
}

static void test_ref(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  check_all(device, true);
  test_device_close(device);
}

static void test_cpu(void **state) {
  (void)state;
  brim_device *device = test_device_cpu();
  if (!device) BRIM_SKIP(brim_status_detail());
  check_all(device, false);
  check_quality(device);
  test_device_close(device);
}

static void test_cuda(void **state) {
  (void)state;
  brim_device *device = test_device_cuda();
  if (!device) BRIM_SKIP(brim_status_detail());
  check_all(device, true);
  check_quality(device);
  test_device_close(device);
}

static void test_recorded(void **state) {
  (void)state;
  brim_device *device = lazy_open(0);
  check_values(device, BRIM_PRECISION_FP32, 1);
  check_values(device, BRIM_PRECISION_FP32, 3);
  check_recalibrate(device, BRIM_PRECISION_FP32, 1);
  check_recalibrate(device, BRIM_PRECISION_FP32, 2);
  assert_true(lazy_count(device)->launches > 0);
  lazy_close(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ref),
      cmocka_unit_test(test_cpu),
      cmocka_unit_test(test_cuda),
      cmocka_unit_test(test_recorded),
      cmocka_unit_test(test_earlier_versions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
