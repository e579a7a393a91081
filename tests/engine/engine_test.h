// Shared by the engine's tests: components made by code, devices, small specs and random batches.
#ifndef BRIM_TESTS_ENGINE_TEST_H_
#define BRIM_TESTS_ENGINE_TEST_H_

#include "engine/engine_int.h"
#include "test.h"

// A component under construction; pass `c` to the engine.
typedef struct test_component {
  brim_component c;
  brim_argument args[8];
} test_component;

void test_component_init(test_component *t, const char *name);
void test_component_int(test_component *t, const char *name, int64_t value);
void test_component_float(test_component *t, const char *name, double value);
void test_component_bool(test_component *t, const char *name, bool value);
void test_component_string(test_component *t, const char *name, const char *value);

// A whole spec with its components. Defaults: mlp of two hidden layers of 7, 6 float inputs, 3 classes, batch 5,
// cross-entropy, sgd, seed 1.
typedef struct test_spec {
  test_component model, loss, optimizer;
  brim_net_spec spec;
} test_spec;

void test_spec_init(test_spec *t);
void test_spec_mse(test_spec *t, int64_t target_dim);

// Random rows for a spec; rows past `rows` are filled too.
typedef struct test_batch {
  void *input, *target;
} test_batch;
void test_batch_make(const brim_net_spec *spec, int64_t rows, uint64_t seed, test_batch *out);
void test_batch_free(test_batch *b);
// Both tensors from row `row` on, as a brim_batch.
brim_batch test_batch_at(const brim_net_spec *spec, const test_batch *b, int64_t row, int64_t rows);

brim_device *test_device_ref(void);  // fails the test when it does not open
// NULL with the reason in brim_status_detail if the plug-in is not built or declines.
brim_device *test_device_cpu(void);
brim_device *test_device_cpu_capped(uint64_t workspace);  // bytes of workspace per op; 0 = its own
brim_device *test_device_cuda(void);
void test_device_close(brim_device *device);  // and its registry

double test_random(uint64_t seed, uint64_t index);  // [0, 1)

// All parameters of a net, flat and in order, as floats; free with free().
float *test_params(brim_net *net, size_t *count);
float *test_grads(brim_net *net, size_t *count);
// One whole step: `parts` micro-batches of the spec's size from `b`, then an update.
void test_step(brim_net *net, const brim_net_spec *spec, const test_batch *b, int64_t parts,
               int64_t step, double lr);

#endif  // BRIM_TESTS_ENGINE_TEST_H_
