// Small examples of all models, and their state after three steps, for the tests of whole models.
#ifndef BRIM_TESTS_ENGINE_MODELS_TEST_H_
#define BRIM_TESTS_ENGINE_MODELS_TEST_H_

#include "engine_test.h"

typedef struct test_model {
  const char *name, *model;
  int64_t dim[3];
  int rank;
  int64_t outputs;
  bool mse;
  struct {
    const char *name;
    int64_t value;
  } ints[5];
  const char *stem;
  double dropout;
} test_model;

enum { TEST_MODELS = 8 };
extern const test_model test_models[TEST_MODELS];

void test_model_spec(const test_model *c, test_spec *t);

typedef struct test_outcome {
  float *params, *outputs;
  unsigned char *buffers;
  size_t count, output_count, buffer_bytes, arena;
} test_outcome;

test_outcome test_train_three(brim_device *device, const test_spec *t, const brim_net_hooks *hooks);
void test_outcome_free(test_outcome *o);
// Fails the test unless both have the same bits.
void test_outcome_same(const char *name, const test_outcome *a, const test_outcome *b);

// Copies a block of the net to the host, whatever memory it is in; free with free().
unsigned char *test_block(const brim_net *net, int block);

#endif  // BRIM_TESTS_ENGINE_MODELS_TEST_H_
