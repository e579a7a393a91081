// Helpers of the engine's tests.
#include "engine_test.h"

#include <string.h>

#include "hd/hd_philox.h"

void test_component_init(test_component *t, const char *name) {
  memset(t, 0, sizeof *t);
  t->c.name = name;
  t->c.args = t->args;
}

static brim_value *add_arg(test_component *t, const char *name) {
  for (size_t i = 0; i < t->c.arg_count; i++) {
    if (strcmp(t->args[i].name, name) == 0) return &t->args[i].value;
  }
  assert_true(t->c.arg_count < 8);
  brim_argument *a = &t->args[t->c.arg_count++];
  a->name = name;
  return &a->value;
}

void test_component_int(test_component *t, const char *name, int64_t value) {
  *add_arg(t, name) =
      (brim_value){.kind = BRIM_VALUE_INT, .integer = value, .number = (double)value};
}
void test_component_float(test_component *t, const char *name, double value) {
  *add_arg(t, name) = (brim_value){.kind = BRIM_VALUE_FLOAT, .number = value};
}
void test_component_bool(test_component *t, const char *name, bool value) {
  *add_arg(t, name) = (brim_value){.kind = BRIM_VALUE_BOOL, .boolean = value};
}
void test_component_string(test_component *t, const char *name, const char *value) {
  *add_arg(t, name) = (brim_value){.kind = BRIM_VALUE_STRING, .string = value};
}

void test_spec_init(test_spec *t) {
  test_component_init(&t->model, "mlp");
  test_component_int(&t->model, "depth", 2);
  test_component_int(&t->model, "hidden", 7);
  test_component_init(&t->loss, "cross_entropy");
  test_component_init(&t->optimizer, "sgd");
  t->spec = (brim_net_spec){.model = &t->model.c,
                            .loss = &t->loss.c,
                            .optimizer = &t->optimizer.c,
                            .input_dtype = BRIM_F32,
                            .input_rank = 2,
                            .input_dim = {2, 3},
                            .channels = 1,
                            .scale = {1, 1, 1, 1},
                            .classes = 3,
                            .batch = 5,
                            .accumulation = 1,
                            .seed = 1};
}

void test_spec_mse(test_spec *t, int64_t target_dim) {
  test_component_init(&t->loss, "mse");
  t->spec.classes = 0;
  t->spec.target_dim = target_dim;
}

double test_random(uint64_t seed, uint64_t index) {
  brim_philox4 r = brim_philox(brim_rng_key(seed, BRIM_RNG_TEST), 0, index);
  return (double)brim_rng_uniform(r.v[0]);
}

static int64_t features(const brim_net_spec *s) {
  int64_t n = 1;
  for (int i = 0; i < s->input_rank; i++) n *= s->input_dim[i];
  return n;
}

void test_batch_make(const brim_net_spec *spec, int64_t rows, uint64_t seed, test_batch *out) {
  int64_t n = rows * features(spec);
  int64_t per_row = spec->classes > 0 ? 1 : spec->target_dim;
  out->input = malloc((size_t)n * brim_dtype_size(spec->input_dtype));
  out->target = malloc((size_t)(rows * per_row) * 4);
  assert_non_null(out->input);
  assert_non_null(out->target);
  for (int64_t i = 0; i < n; i++) {
    double u = test_random(seed, (uint64_t)i);
    if (spec->input_dtype == BRIM_U8) {
      ((uint8_t *)out->input)[i] = (uint8_t)(u * 256);
    } else {
      ((float *)out->input)[i] = (float)(2 * u - 1);
    }
  }
  for (int64_t i = 0; i < rows * per_row; i++) {
    double u = test_random(seed + 1000003, (uint64_t)i);
    if (spec->classes > 0) {
      ((int32_t *)out->target)[i] = (int32_t)(u * (double)spec->classes);
    } else {
      ((float *)out->target)[i] = (float)(2 * u - 1);
    }
  }
}

void test_batch_free(test_batch *b) {
  free(b->input);
  free(b->target);
}

brim_batch test_batch_at(const brim_net_spec *spec, const test_batch *b, int64_t row,
                         int64_t rows) {
  int64_t per_row = spec->classes > 0 ? 1 : spec->target_dim;
  size_t row_bytes = (size_t)features(spec) * brim_dtype_size(spec->input_dtype);
  return (brim_batch){.input = (const char *)b->input + (size_t)row * row_bytes,
                      .target = (const char *)b->target + (size_t)(row * per_row) * 4,
                      .rows = rows,
                      .row_offset = row};
}

//---------------------------------- devices ----------------------------------

// Open devices, each with a registry of its own.
enum { MOST_DEVICES = 16 };
static struct {
  brim_device *device;
  brim_registry *registry;
} opened[MOST_DEVICES];

// plugin: NULL = load none. Returns NULL if the device cannot be opened.
static brim_device *open_device(const char *plugin, const char *spec, uint64_t cap) {
  const brim_device_options options = {.threads = 2, .workspace_cap = cap};
  brim_registry *registry = NULL;
  brim_device *device = NULL;
  int at = 0;
  while (opened[at].device) assert_true(++at < MOST_DEVICES);
  assert_ok(brim_registry_create(&registry));
  if ((plugin && brim_registry_load(registry, plugin)) ||
      brim_device_open(registry, spec, &options, &device)) {
    brim_registry_destroy(registry);
    return NULL;
  }
  opened[at].device = device;
  opened[at].registry = registry;
  return device;
}

brim_device *test_device_ref(void) {
  brim_device *device = open_device(NULL, "ref", 0);
  if (!device) fail_msg("ref: %s", brim_status_detail());
  return device;
}

brim_device *test_device_cpu_capped(uint64_t workspace) {
  return open_device(BRIM_BUILD_DIR "/lib/brim/libbrim_cpu.so", "cpu", workspace);
}

brim_device *test_device_cpu(void) { return test_device_cpu_capped(0); }

brim_device *test_device_cuda(void) {
  return open_device(BRIM_BUILD_DIR "/lib/brim/libbrim_cuda.so", "cuda", 0);
}

void test_device_close(brim_device *device) {
  int at = 0;
  while (opened[at].device != device) assert_true(++at < MOST_DEVICES);
  brim_device_close(device);
  brim_registry_destroy(opened[at].registry);
  opened[at].device = NULL;
  opened[at].registry = NULL;
}

//---------------------------------- networks ----------------------------------

static float *read_all(brim_net *net, size_t *count,
                       brim_status (*read)(brim_net *, size_t, float *)) {
  size_t n = 0;
  for (size_t i = 0; i < brim_net_param_count(net); i++) {
    n += (size_t)brim_net_param_at(net, i)->count;
  }
  float *all = malloc(n * sizeof *all);
  assert_non_null(all);
  size_t at = 0;
  for (size_t i = 0; i < brim_net_param_count(net); i++) {
    assert_ok(read(net, i, all + at));
    at += (size_t)brim_net_param_at(net, i)->count;
  }
  *count = n;
  return all;
}

float *test_params(brim_net *net, size_t *count) {
  return read_all(net, count, brim_net_param_read);
}
float *test_grads(brim_net *net, size_t *count) { return read_all(net, count, brim_net_grad_read); }

void test_step(brim_net *net, const brim_net_spec *spec, const test_batch *b, int64_t parts,
               int64_t step, double lr) {
  for (int64_t k = 0; k < parts; k++) {
    brim_net_micro micro = {.batch = test_batch_at(spec, b, k * spec->batch, spec->batch),
                            .step = step,
                            .step_rows = parts * spec->batch,
                            .first = k == 0};
    assert_ok(brim_net_train(net, &micro, NULL));
  }
  assert_ok(brim_net_update(net, step, lr, NULL));
}
