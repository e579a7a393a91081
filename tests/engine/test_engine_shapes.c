// Every shipped model at 8 to 512 pixels, batches of 1 to 8,192, in every precision, on every backend: every plan must
// end, with sizes alone and no data. A sample of them; every case with BRIM_TEST_NIGHT; BRIM_TEST_SEED repeats a
// sample. BRIM_TEST_NIGHT also makes one training step of every model at its usual sizes, where the loss in 16 bits
// must equal the loss in fp32. Runs once for each dispatch of the cpu backend (tests/engine/CMakeLists.txt).
#include <math.h>
#include <string.h>
#include <time.h>

#include "engine/engine_int.h"
#include "engine_test.h"

typedef enum shape_kind { IMAGES, SIGNALS, VALUES } shape_kind;

// `loss`: NULL = cross-entropy over 10 classes.
static const struct {
  const char *name, *loss;
  shape_kind kind;
} models[] = {
    {"linear", NULL, IMAGES},      {"mlp", NULL, IMAGES},
    {"resmlp", NULL, IMAGES},      {"linear_policy", "mse", VALUES},
    {"mlp_policy", "mse", VALUES}, {"actor_critic", "mse", VALUES},
    {"resnet18", NULL, IMAGES},    {"resnet34", NULL, IMAGES},
    {"resnet50", NULL, IMAGES},    {"resnet101", NULL, IMAGES},
    {"resnet152", NULL, IMAGES},   {"wideresnet", NULL, IMAGES},
    {"simclr", "ntxent", IMAGES},  {"transformer", NULL, SIGNALS},
};
enum { MODELS = sizeof models / sizeof *models };

static const int64_t sizes[] = {8, 16, 17, 32, 64, 96, 128, 224, 256, 384, 512};
static const int64_t batches[] = {1, 2, 8, 31, 64, 100, 256, 1024, 8192};
// Bytes of workspace per op; 0 = the backend's own.
static const uint64_t caps[] = {0, 1 << 20};

typedef struct shape {
  int model;
  int64_t size, batch;
  brim_precision precision;
} shape;

static void spec_of(const shape *s, test_spec *t) {
  test_spec_init(t);
  test_component_init(&t->model, models[s->model].name);
  brim_net_spec *spec = &t->spec;
  spec->input_dtype = BRIM_U8;
  spec->precision = s->precision;
  spec->batch = s->batch;
  spec->classes = 10;
  switch (models[s->model].kind) {
    case IMAGES:
      spec->input_rank = 3, spec->channels = 3;
      spec->input_dim[0] = spec->input_dim[1] = s->size, spec->input_dim[2] = 3;
      break;
    case SIGNALS:
      spec->input_dtype = BRIM_F32;
      spec->input_rank = 2;
      spec->input_dim[0] = 20 * s->size, spec->input_dim[1] = 2;
      break;
    case VALUES:
      spec->input_dtype = BRIM_F32;
      spec->input_rank = 1;
      spec->input_dim[0] = s->size;
      break;
  }
  for (int i = 0; i < 4; i++) spec->scale[i] = spec->input_dtype == BRIM_U8 ? 1.0f / 255 : 1;
  if (!models[s->model].loss) return;
  if (strcmp(models[s->model].loss, "mse") == 0) {
    test_spec_mse(t, 6);
  } else {
    test_component_init(&t->loss, models[s->model].loss);
    spec->views = 2;
    if (spec->batch < 2) spec->batch = 2;
  }
}

// A model that is missing in the list above would never be planned.
static void test_list(void **state) {
  (void)state;
  for (const brim_model_row *row = brim_models; row->name; row++) {
    bool listed = false;
    for (int i = 0; i < MODELS; i++) listed = listed || !strcmp(models[i].name, row->name);
    if (!listed) fail_msg("model %s is missing in the list of this test", row->name);
  }
}

//---------------------------------- plans ----------------------------------

// Plans one shape. A backend may refuse it only as unsupported.
static bool plan(brim_device *device, const shape *s) {
  test_spec t;
  brim_plan plan = {0};
  spec_of(s, &t);
  brim_status status = brim_net_plan(device, &t.spec, &plan);
  if (status == BRIM_EUNSUPPORTED) return false;
  if (status) {
    fail_msg("%s of %d, batch %d, %s on %s: %s", models[s->model].name, (int)s->size, (int)s->batch,
             brim_precision_name(s->precision), device->backend->name, brim_status_detail());
  }
  assert_true(plan.bytes[BRIM_PLACE_DEVICE] > 0);
  return true;
}

// One case in `of`, chosen at random.
static int plan_some(brim_device *device, uint64_t seed, uint64_t of) {
  int planned = 0;
  uint64_t at = 0;
  for (shape s = {0}; s.model < MODELS; s.model++) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      for (size_t k = 0; k < sizeof batches / sizeof *batches; k++) {
        for (int p = 0; p < BRIM_PRECISION_COUNT; p++) {
          if (test_random(seed, at++) * (double)of >= 1) continue;
          s.size = sizes[i], s.batch = batches[k], s.precision = (brim_precision)p;
          planned += plan(device, &s);
        }
      }
    }
  }
  return planned;
}

static void plan_on(brim_device *device, uint64_t of) {
  const char *given = getenv("BRIM_TEST_SEED");
  uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
  if (!device) BRIM_SKIP(brim_status_detail());
  if (BRIM_SANITIZED) of *= 3;
  if (test_is_night()) of = 1;
  int planned = plan_some(device, seed, of);
  printf("%s: seed %llu, 1 of %d cases, %d plans\n", device->info.name, (unsigned long long)seed,
         (int)of, planned);
  assert_true(planned > 0);
  test_device_close(device);
}

static void test_plans_ref(void **state) {
  (void)state;
  if (test_is_masked()) BRIM_SKIP("ref is the same on every CPU");
  plan_on(test_device_ref(), 40);
}

static void test_plans_cpu(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) {
    plan_on(test_device_cpu_capped(caps[i]), i == 0 ? 80 : 160);
  }
}

static void test_plans_cuda(void **state) {
  (void)state;
  plan_on(test_device_cuda(), 40);
}

// The case that version 0.2 could not plan, and its neighbours: in every run, whatever is sampled.
static void test_plans_known_cpu(void **state) {
  (void)state;
  static const char *const names[] = {"resnet18", "resnet50", "wideresnet"};
  static const int64_t known[] = {32, 64, 96, 224};
  brim_device *device = test_device_cpu();
  if (!device) BRIM_SKIP(brim_status_detail());
  for (shape s = {.batch = 64, .precision = BRIM_PRECISION_BF16}; s.model < MODELS; s.model++) {
    for (int n = 0; n < 3; n++) {
      if (strcmp(models[s.model].name, names[n]) != 0) continue;
      for (int k = 0; k < 4; k++) {
        s.size = known[k];
        (void)plan(device, &s);
      }
    }
  }
  test_device_close(device);
}

//---------------------------------- steps ----------------------------------

// True for shapes tested only with smaller batches: wide networks on large images.
static const double MOST_FLOPS = 2e11;

// The loss of a first step that leaves finite weights; NaN if the precision is not supported, or the memory too small.
static double step_of(brim_device *device, shape *s) {
  test_spec t;
  test_batch b;
  brim_plan planned = {0};
  brim_net *net;
  // AMX tiles take blocks of 32 images if they are at least three quarters full
  for (s->batch = 24; s->batch > 2; s->batch = 2) {
    spec_of(s, &t);
    memset(&planned, 0, sizeof planned);
    brim_status status = brim_net_plan(device, &t.spec, &planned);
    if (status == BRIM_EUNSUPPORTED) return (double)NAN;
    assert_ok(status);
    if (planned.flops_per_step < MOST_FLOPS) break;
  }
  if (planned.bytes[BRIM_PLACE_DEVICE] > device->info.free_bytes / 2) return (double)NAN;
  spec_of(s, &t);
  assert_ok(brim_net_create(device, &t.spec, &net));
  int64_t rows = t.spec.batch * (t.spec.views > 1 ? 2 : 1);
  t.spec.batch = rows;
  test_batch_make(&t.spec, rows, 3, &b);
  brim_net_metrics m;
  test_step(net, &t.spec, &b, 1, 1, 0.01);
  assert_ok(brim_net_read_metrics(net, true, &m));
  size_t count = 0;
  float *params = test_params(net, &count);
  for (size_t i = 0; i < count; i++) assert_true(isfinite(params[i]) != 0);
  free(params);
  test_batch_free(&b);
  brim_net_destroy(net);
  return m.loss_sum / m.rows;
}

static void step_on(brim_device *device) {
  static const int64_t usual[] = {32, 96, 224};
  if (!device) BRIM_SKIP(brim_status_detail());
  for (shape s = {0}; s.model < MODELS; s.model++) {
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
      s.size = usual[i], s.precision = BRIM_PRECISION_FP32;
      double expected = step_of(device, &s);
      if (isnan(expected)) {
        printf("%s of %d: not run, too little memory\n", models[s.model].name, (int)s.size);
        continue;
      }
      for (int p = 1; p < BRIM_PRECISION_COUNT; p++) {
        s.precision = (brim_precision)p;
        double got = step_of(device, &s);
        if (isnan(got)) continue;
        printf("%s of %d, batch %d, %s: %g, in fp32 %g\n", models[s.model].name, (int)s.size,
               (int)s.batch, brim_precision_name(s.precision), got, expected);
        // over two images, the statistics of 152 layers amplify a rounding error
        assert_true(fabs(got - expected) <= 0.2 * fabs(expected));
      }
    }
  }
  test_device_close(device);
}

static void test_steps_cpu(void **state) {
  (void)state;
  if (!test_is_night()) BRIM_SKIP("steps at usual sizes are for BRIM_TEST_NIGHT");
  step_on(test_device_cpu());
}

static void test_steps_cuda(void **state) {
  (void)state;
  if (!test_is_night()) BRIM_SKIP("steps at usual sizes are for BRIM_TEST_NIGHT");
  step_on(test_device_cuda());
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_list),       cmocka_unit_test(test_plans_known_cpu),
      cmocka_unit_test(test_plans_ref),  cmocka_unit_test(test_plans_cpu),
      cmocka_unit_test(test_plans_cuda), cmocka_unit_test(test_steps_cpu),
      cmocka_unit_test(test_steps_cuda),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
