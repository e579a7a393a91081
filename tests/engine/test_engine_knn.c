// Evaluation by neighbours: the device's counts against plain loops over the network's features, on every device here
// and on one that is as late as it may be. Training continues as if it had not happened.
#include <math.h>

#include "engine_lazy.h"
#include "engine_on.h"
#include "engine_test.h"

enum { BANK = 37, QUERIES = 22, CLASSES = 3, EVAL = 8, K = 5 };

static const double temperature = 0.1;

typedef struct task {
  test_spec t;
  test_component backbone;
  uint8_t *images;  // the bank, then the queries, then padding
  int32_t labels[BANK + QUERIES + EVAL];
} task;

static void make_task(task *k) {
  memset(k, 0, sizeof *k);
  test_spec_init(&k->t);
  test_component_init(&k->t.model, "simclr");
  test_component_init(&k->backbone, "resnet18");
  test_component_int(&k->backbone, "width", 8);
  k->t.model.args[0] = (brim_argument){
      .name = "backbone", .value = {.kind = BRIM_VALUE_COMPONENT, .component = &k->backbone.c}};
  k->t.model.c.arg_count = 1;
  test_component_int(&k->t.model, "hidden", 6);
  test_component_int(&k->t.model, "dim", 5);
  test_component_init(&k->t.loss, "ntxent");
  brim_net_spec *s = &k->t.spec;
  s->input_dtype = BRIM_U8;
  s->input_rank = 3;
  s->input_dim[0] = s->input_dim[1] = 8;
  s->input_dim[2] = s->channels = 3;
  for (int c = 0; c < 3; c++) {
    s->scale[c] = 1.0f / 64;
    s->shift[c] = -2;
  }
  s->classes = 0;
  s->target_dim = 1;
  s->views = 2;
  s->batch = 4;
  s->eval_batch = EVAL;
  s->neighbours =
      (brim_neighbours){.bank = BANK, .classes = CLASSES, .k = K, .temperature = temperature};
  size_t row = 8 * 8 * 3, rows = BANK + QUERIES + EVAL;
  k->images = malloc(rows * row);
  assert_non_null(k->images);
  for (size_t r = 0; r < rows; r++) {
    int label = (int)(test_random(1, r) * CLASSES);
    k->labels[r] = label;
    for (size_t i = 0; i < row; i++) {  // the pattern of its class, with some noise
      double pattern = test_random(100 + (uint64_t)label, i), noise = test_random(2, r * row + i);
      k->images[r * row + i] = (uint8_t)(255 * (0.85 * pattern + 0.15 * noise));
    }
  }
}

static brim_batch batch_at(const task *k, int64_t row, int64_t end) {
  return (brim_batch){.input = k->images + row * 8 * 8 * 3,
                      .target = k->labels + row,
                      .rows = end - row < EVAL ? end - row : EVAL};
}

// features[row] as the net itself computes them.
static float *all_features(brim_net *net, const task *k, int64_t *width) {
  *width = brim_net_output_width(net);
  float *all = malloc((size_t)(BANK + QUERIES) * (size_t)*width * sizeof *all);
  assert_non_null(all);
  for (int64_t row = 0; row < BANK + QUERIES; row += EVAL) {
    brim_batch b = batch_at(k, row, BANK + QUERIES);
    assert_ok(brim_net_evaluate(net, &b, NULL));
    assert_ok(brim_net_outputs(net, all + row * *width, b.rows));
  }
  return all;
}

static double cosine(const float *a, const float *b, int64_t width) {
  double ab = 0, aa = 0, bb = 0;
  for (int64_t i = 0; i < width; i++) {
    ab += (double)a[i] * (double)b[i];
    aa += (double)a[i] * (double)a[i];
    bb += (double)b[i] * (double)b[i];
  }
  return ab / sqrt(aa * bb);
}

static int count_correct(const float *f, const task *k, int64_t width) {
  int correct = 0;
  for (int q = BANK; q < BANK + QUERIES; q++) {
    bool taken[BANK] = {false};
    double votes[CLASSES] = {0};
    for (int n = 0; n < K; n++) {
      int best = -1;
      double top = -2;
      for (int b = 0; b < BANK; b++) {
        double s = cosine(f + q * width, f + b * width, width);
        if (!taken[b] && s > top) {
          top = s;
          best = b;
        }
      }
      taken[best] = true;
      votes[k->labels[best]] += exp(top / temperature);
    }
    int guess = 0;
    for (int c = 1; c < CLASSES; c++) guess = votes[c] > votes[guess] ? c : guess;
    correct += guess == k->labels[q];
  }
  return correct;
}

static void evaluate(brim_net *net, const task *k, brim_net_metrics *out) {
  for (int64_t row = 0; row < BANK; row += EVAL) {
    brim_batch b = batch_at(k, row, BANK);
    assert_ok(brim_net_bank(net, &b, row));
  }
  for (int64_t row = BANK; row < BANK + QUERIES; row += EVAL) {
    brim_batch b = batch_at(k, row, BANK + QUERIES);
    assert_ok(brim_net_evaluate_features(net, &b));
  }
  assert_ok(brim_net_read_metrics(net, true, out));
}

static void train(brim_net *net, const task *k, int64_t step) {
  brim_net_micro micro = {
      .batch = {.input = k->images, .rows = 8}, .step = step, .step_rows = 8, .first = true};
  assert_ok(brim_net_step(net, &micro, 0.01, NULL));
}

static void votes(brim_device *device) {
  task k;
  make_task(&k);
  brim_net *net;
  assert_ok(brim_net_create(device, &k.t.spec, &net));
  for (int64_t step = 1; step <= 3; step++) {
    train(net, &k, step);
    brim_net_metrics m, again;
    assert_ok(brim_net_read_metrics(net, true, &m));
    int64_t width;
    float *f = all_features(net, &k, &width);
    assert_int_equal(width, 64);
    evaluate(net, &k, &m);
    evaluate(net, &k, &again);
    assert_true(m.rows == QUERIES && m.bad_rows == 0 && m.loss_sum == 0);
    assert_true(m.correct == (double)count_correct(f, &k, width));
    assert_true(m.correct > QUERIES * 0.6 && again.correct == m.correct);
    free(f);
  }
  // The bank is gone once training continues.
  brim_batch b = batch_at(&k, BANK, BANK + QUERIES);
  train(net, &k, 4);
  assert_status(brim_net_evaluate_features(net, &b), BRIM_ESTATE);
  assert_status(brim_net_bank(net, &b, 8), BRIM_EINVAL);
  brim_net_destroy(net);
  free(k.images);
}

// Evaluating leaves no trace in training.
static void apart(brim_device *device) {
  task k;
  make_task(&k);
  float *params[2];
  size_t count = 0;
  for (int i = 0; i < 2; i++) {
    brim_net *net;
    brim_net_metrics m;
    assert_ok(brim_net_create(device, &k.t.spec, &net));
    for (int64_t step = 1; step <= 5; step++) {
      train(net, &k, step);
      if (i == 1) evaluate(net, &k, &m);
    }
    params[i] = test_params(net, &count);
    brim_net_destroy(net);
  }
  assert_memory_equal(params[0], params[1], count * sizeof **params);
  free(params[0]);
  free(params[1]);
  free(k.images);
}

static void test_late(void **state) {
  (void)state;
  brim_device *device = lazy_open(0);
  votes(device);
  apart(device);
  lazy_close(device);
}

static void test_refused(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  task k;
  make_task(&k);
  brim_net *net;
  k.t.spec.neighbours.k = 0;
  assert_status(brim_net_create(device, &k.t.spec, &net), BRIM_EINVAL);
  k.t.spec.neighbours.bank = 0;
  assert_ok(brim_net_create(device, &k.t.spec, &net));
  brim_batch b = batch_at(&k, 0, BANK);
  assert_status(brim_net_evaluate_features(net, &b), BRIM_ESTATE);
  brim_net_destroy(net);
  free(k.images);
  test_device_close(device);
}

//---------------------------------- devices ----------------------------------

int main(void) {
  const struct CMUnitTest tests[] = {
      ON(votes, ref),
      ON(votes, cpu),
      ON(votes, cuda),
      ON(apart, ref),
      ON(apart, cpu),
      ON(apart, cuda),
      cmocka_unit_test(test_late),
      cmocka_unit_test(test_refused),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
