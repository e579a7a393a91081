// The vote of the nearest neighbours on hand-written similarities: which neighbours count, the weight of each, and the
// winner of a tie. Exactly, on every backend here.
#include <math.h>

#include "backend/backend.h"
#include "base/base.h"
#include "test.h"

enum { MOST = 64 };

typedef struct vote {
  int64_t rows, bank;
  int32_t k, classes;
  float temperature;
  const float *similar;   // (rows, bank)
  const int32_t *labels;  // (bank)
  const int32_t *truth;   // (rows)
  double valid;           // rows that count
} vote;

typedef struct answer {
  int32_t guess[MOST];
  float metrics[BRIM_METRIC_COUNT];
} answer;

static void *upload(brim_device *device, const void *data, size_t bytes) {
  void *to = NULL;
  assert_ok(brim_device_alloc(device, BRIM_BUFFER_DEVICE, bytes, &to));
  assert_ok(brim_device_copy(device, to, data, bytes, BRIM_COPY_H2D));
  assert_ok(brim_device_sync(device));
  return to;
}

static void run_vote(brim_device *device, const vote *v, answer *out) {
  double state[BRIM_STATE_COUNT] = {0};
  state[BRIM_STATE_ROWS] = v->valid;
  memset(out, 0, sizeof *out);
  const int64_t similar[] = {v->rows, v->bank};
  const int64_t states = BRIM_STATE_COUNT, metrics = BRIM_METRIC_COUNT;
  brim_op_call call = {.op = BRIM_OP_KNN, .in_count = 4, .out_count = 2};
  call.attr.neighbours = v->k;
  call.attr.classes = v->classes;
  call.attr.temperature = v->temperature;
  call.in[0] = brim_tensor_make(NULL, BRIM_F32, 2, similar);
  call.in[1] = brim_tensor_make(NULL, BRIM_I32, 1, &v->bank);
  call.in[2] = brim_tensor_make(NULL, BRIM_I32, 1, &v->rows);
  call.in[3] = brim_tensor_make(NULL, BRIM_F64, 1, &states);
  call.out[0] = brim_tensor_make(NULL, BRIM_F32, 1, &metrics);
  call.out[1] = brim_tensor_make(NULL, BRIM_I32, 1, &v->rows);
  assert_ok(brim_op_prepare(device, &call));
  size_t count = (size_t)(v->rows * v->bank);
  void *block[7] = {upload(device, v->similar, count * sizeof(float)),
                    upload(device, v->labels, (size_t)v->bank * sizeof(int32_t)),
                    upload(device, v->truth, (size_t)v->rows * sizeof(int32_t)),
                    upload(device, state, sizeof state),
                    upload(device, out->metrics, sizeof out->metrics),
                    upload(device, out->guess, (size_t)v->rows * sizeof(int32_t)),
                    NULL};
  for (int i = 0; i < 4; i++) call.in[i].data = block[i];
  call.out[0].data = block[4];
  call.out[1].data = block[5];
  if (call.workspace_bytes) {
    assert_ok(brim_device_alloc(device, BRIM_BUFFER_DEVICE, call.workspace_bytes, &block[6]));
  }
  call.workspace = block[6];
  assert_ok(brim_op_run(device, &call));
  assert_ok(brim_device_copy(device, out->metrics, block[4], sizeof out->metrics, BRIM_COPY_D2H));
  assert_ok(brim_device_copy(device, out->guess, block[5], (size_t)v->rows * sizeof(int32_t),
                             BRIM_COPY_D2H));
  assert_ok(brim_device_sync(device));
  for (int i = 0; i < 7; i++) brim_device_free(device, BRIM_BUFFER_DEVICE, block[i]);
  brim_op_release(device, &call);
}

static brim_registry *registry;
static brim_device *devices[3];
static size_t device_count;

static int setup(void **state) {
  (void)state;
  static const char *const names[] = {"ref", "cpu", "cuda"};
  assert_ok(brim_registry_create(&registry));
  assert_ok(brim_registry_load_folder(registry, BRIM_BUILD_DIR "/lib/brim"));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (brim_device_open(registry, names[i], NULL, &devices[device_count]) == BRIM_OK) {
      device_count++;
    } else {
      printf("%s is not here: %s\n", names[i], brim_status_detail());
    }
  }
  assert_true(device_count >= 1);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  for (size_t i = 0; i < device_count; i++) brim_device_close(devices[i]);
  brim_registry_destroy(registry);
  return 0;
}

// Asserts that every device gives these guesses and these sums.
static void expect_vote(const vote *v, const int32_t *guess, double correct, double bad) {
  for (size_t i = 0; i < device_count; i++) {
    answer a;
    run_vote(devices[i], v, &a);
    for (int64_t row = 0; row < v->rows; row++) {
      if (a.guess[row] != guess[row]) {
        fail_msg("%s, row %lld: class %d, expected %d", devices[i]->backend->name, (long long)row,
                 a.guess[row], guess[row]);
      }
    }
    assert_true((double)a.metrics[BRIM_METRIC_ROWS] == v->valid);
    assert_true((double)a.metrics[BRIM_METRIC_CORRECT] == correct);
    assert_true((double)a.metrics[BRIM_METRIC_BAD] == bad);
  }
}

// Ties: the earlier of two equal similarities is the nearer one, and the lower class wins equal votes.
static void test_ties(void **state) {
  (void)state;
  static const float s[] = {
      0.5f, 0.9f, 0.9f, 0.9f, 0.9f,  // 1, 2, 3 are the nearest: 0, 0, 1
      0.9f, 0.9f, 0.9f, 0.1f, 0.1f,  // 0, 1, 2: 2, 0, 0
      0.9f, 0.9f, 0.1f, 0.2f, 0.1f,  // 0 and 1 weigh 1 each, 3 next to nothing: 2 and 0 tie
  };
  static const int32_t labels[] = {2, 0, 0, 1, 1}, truth[] = {0, 0, 2}, guess[] = {0, 0, 0};
  const vote v = {3, 5, 3, 3, 0.05f, s, labels, truth, 3};
  expect_vote(&v, guess, 2, 0);
}

// One neighbour at 1.0 against two at 0.9: weights of exp(-0.1
// T) each. The winner changes at T = 0.1
// ln 2.
static void test_temperature(void **state) {
  (void)state;
  static const float s[] = {1.0f, 0.9f, 0.9f};
  static const int32_t labels[] = {1, 0, 0}, truth[] = {1}, one[] = {1}, zero[] = {0};
  vote v = {1, 3, 3, 2, 0.1f, s, labels, truth, 1};
  expect_vote(&v, one, 1, 0);  // 2 x 0.368 < 1
  v.temperature = 0.14f;       // 2 x 0.4895
  expect_vote(&v, one, 1, 0);
  v.temperature = 0.15f;  // 2 x 0.5134
  expect_vote(&v, zero, 0, 0);
  v.temperature = 10;
  expect_vote(&v, zero, 0, 0);
  v.k = 2;  // one against one: the nearer wins
  expect_vote(&v, one, 1, 0);
  v.k = 1;
  expect_vote(&v, one, 1, 0);
  v.k = 200;  // more than the bank has: all of them
  expect_vote(&v, zero, 0, 0);
}

// Exactly k neighbours count: one more would change the vote.
static void test_count(void **state) {
  (void)state;
  static const float s[] = {0.9f, 0.8f, 0.7f, 0.6f, 0.5f};
  static const int32_t labels[] = {0, 1, 1, 0, 0}, truth[] = {0};
  static const int32_t expected[] = {0, 0, 1, 0, 0};
  for (int32_t k = 1; k <= 5; k++) {
    // at this temperature each weighs about the same, the nearer a little more
    const vote v = {1, 5, k, 2, 100, s, labels, truth, 1};
    expect_vote(&v, &expected[k - 1], expected[k - 1] == 0, 0);
  }
}

// A NaN similarity does not vote, and a row of them has no class. An invalid label does not vote either, and an invalid
// truth makes a bad row. Rows behind the valid ones are not read.
static void test_what_does_not_count(void **state) {
  (void)state;
  static const float nan = NAN;
  const float s[] = {
      nan,  0.1f, 0.2f, 0.3f,  // 3 and 2: label -1 and 1
      nan,  nan,  nan,  nan,   // no neighbour
      0.9f, 0.1f, 0.1f, 0.1f,  // 0
      0.9f, 0.1f, 0.1f, 0.1f,  // its label is invalid
      0.9f, 0.1f, 0.1f, 0.1f,  // behind the valid rows
  };
  static const int32_t labels[] = {0, 0, 1, -1}, truth[] = {1, 0, 1, 7, 0};
  static const int32_t guess[] = {1, -1, 0, 0, -1};
  const vote v = {5, 4, 2, 2, 0.1f, s, labels, truth, 4};
  expect_vote(&v, guess, 1, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ties),
      cmocka_unit_test(test_temperature),
      cmocka_unit_test(test_count),
      cmocka_unit_test(test_what_does_not_count),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
