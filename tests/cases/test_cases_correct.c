// Every case and a fuzzed lot on every backend that loads here, in every type it supports, against
// an f64 run of the same rounded values on ref.
#include "base/base.h"
#include "cases/cases.h"
#include "test.h"

static const brim_dtype types[] = {BRIM_F32, BRIM_BF16, BRIM_F16, BRIM_F64};

typedef struct tally {
  int run, unsupported, failed;
  double worst;
  char worst_name[128];
} tally;

typedef struct fixture {
  brim_registry *registry;
  brim_device *oracle;
} fixture;

static int setup(void **state) {
  static fixture f;
  assert_ok(brim_registry_create(&f.registry));
  assert_ok(brim_registry_load_folder(f.registry, BRIM_BUILD_DIR "/lib/brim"));
  assert_ok(brim_device_open(f.registry, "ref", NULL, &f.oracle));
  *state = &f;
  return 0;
}

static int teardown(void **state) {
  fixture *f = *state;
  brim_device_close(f->oracle);
  brim_registry_destroy(f->registry);
  return 0;
}

static void report(tally *t, const char *backend, const brim_case *c, const char *why) {
  t->failed++;
  if (t->failed <= 20) printf("  %s: %s: %s\n", backend, c->name, why);
}

static void run_case(fixture *f, brim_device *device, const brim_case *base, brim_dtype type,
                     tally *t) {
  brim_case c = *base, oracle = *base;
  brim_case_set_type(&c, type);
  brim_case_set_oracle(&oracle);
  brim_op_call call;
  brim_case_call(&c, &call);
  brim_status status = brim_device_supports(device, &call);
  if (status == BRIM_EUNSUPPORTED) {
    t->unsupported++;
    return;
  }
  assert_ok(status);
  brim_case_data data, got, want;
  assert_ok(brim_case_data_create(&c, &data));
  assert_ok(brim_case_run(f->oracle, &oracle, &data, &want));
  t->run++;
  status = brim_case_run(device, &c, &data, &got);
  if (status) {
    report(t, device->backend->name, &c, brim_status_detail());
    goto done;
  }
  double error = 0, limit = brim_case_tolerance(&c);
  char why[160], text[256];
  status = brim_case_compare(&c, &got, &want, &error, why);
  if (status) {
    report(t, device->backend->name, &c, why);
  } else if (!(error <= limit)) {
    snprintf(text, sizeof(text), "%s: relative norm %.3g, tolerance %.1g", why, error, limit);
    report(t, device->backend->name, &c, text);
  } else if (error / limit > t->worst) {
    t->worst = error / limit;
    snprintf(t->worst_name, sizeof(t->worst_name), "%s", c.name);
  }
  brim_case_data_destroy(&got);
done:
  brim_case_data_destroy(&data);
  brim_case_data_destroy(&want);
}

static void run_all(fixture *f, brim_device *device) {
  tally t = {0};
  for (size_t k = 0; k < sizeof(types) / sizeof(types[0]); k++) {
    for (size_t i = 0; i < brim_case_count(); i++) {
      brim_case c;
      brim_case_get(i, &c);
      run_case(f, device, &c, types[k], &t);
    }
    for (uint64_t i = 0; i < 200; i++) {
      brim_case c;
      brim_case_fuzz(2024, i, &c);
      run_case(f, device, &c, types[k], &t);
    }
  }
  printf("  %s (%s): %d run, %d not supported, %d failed; worst %.2f of its tolerance: %s\n",
         device->backend->name, device->info.name, t.run, t.unsupported, t.failed, t.worst,
         t.worst_name);
  assert_true(t.run > 100);
  assert_int_equal(t.failed, 0);
}

static void run_backend(fixture *f, const char *name) {
  brim_device *device = NULL;
  brim_device_options options = {.threads = 2, .deterministic = true};
  if (brim_device_open(f->registry, name, &options, &device)) {
    BRIM_SKIP(brim_status_detail());
  }
  run_all(f, device);
  brim_device_close(device);
}

static void test_ref(void **state) { run_backend(*state, "ref"); }
static void test_cpu(void **state) { run_backend(*state, "cpu"); }
static void test_cuda(void **state) { run_backend(*state, "cuda"); }

// The comparison itself must be able to say no.
static void test_compare_notices(void **state) {
  fixture *f = *state;
  brim_case c;
  brim_case_get(0, &c);
  for (size_t i = 0; c.op != BRIM_OP_XENT || !c.padding || c.n < 5; i++) brim_case_get(i, &c);
  brim_case_data data, a, b;
  double error;
  char why[160];
  assert_ok(brim_case_data_create(&c, &data));
  assert_ok(brim_case_run(f->oracle, &c, &data, &a));
  assert_ok(brim_case_run(f->oracle, &c, &data, &b));
  assert_ok(brim_case_compare(&c, &a, &b, &error, why));
  assert_true(error == 0);
  a.out[1][0] += 1e-3;
  assert_ok(brim_case_compare(&c, &a, &b, &error, why));
  assert_true(error > brim_case_tolerance(&c));
  a.out[1][c.n * c.k - 1] = 1e-30;  // a padding row
  assert_int_equal(brim_case_compare(&c, &a, &b, &error, why), BRIM_EINTERNAL);
  a.out[1][c.n * c.k - 1] = 0;
  a.out[0][BRIM_METRIC_CORRECT] += 1;
  assert_int_equal(brim_case_compare(&c, &a, &b, &error, why), BRIM_EINTERNAL);
  brim_case_data_destroy(&data);
  brim_case_data_destroy(&a);
  brim_case_data_destroy(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_compare_notices),
      cmocka_unit_test(test_ref),
      cmocka_unit_test(test_cpu),
      cmocka_unit_test(test_cuda),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
