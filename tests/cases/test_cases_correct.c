// The cases and a fuzzed set on every backend that loads here, in every type it supports, against an f64 run of the
// same rounded values on ref: a sample of them, with BRIM_TEST_FULL all.
#include <math.h>

#include "base/base.h"
#include "cases/cases.h"
#include "test.h"

static const brim_dtype types[] = {BRIM_F32, BRIM_BF16, BRIM_F16, BRIM_F64};

typedef struct tally {
  int run, unsupported, failed;
  double worst;
  char worst_name[192];
} tally;

typedef struct fixture {
  brim_registry *registry;
  brim_device *oracle;
} fixture;

// BRIM_TEST_OPS=-linear,-conv leaves out the cases whose names begin so; without the minus only those run. This keeps a
// checker that fails inside a vendor library to brim's own kernels.
static bool op_wanted(const brim_case *c) {
  const char *list = getenv("BRIM_TEST_OPS");
  bool wanted = !list || list[0] == '-';
  while (list && *list) {
    bool out = *list == '-';
    list += out;
    size_t n = strcspn(list, ",");
    if (n && strncmp(c->name, list, n) == 0) wanted = !out;
    list += n + (list[n] == ',');
  }
  return wanted;
}

// BRIM_TEST_SHARD=2/8 runs the third of eight parts of the list, for slow checkers on many cores.
static bool in_shard(size_t i) {
  static unsigned part, parts;
  if (!parts) {
    const char *text = getenv("BRIM_TEST_SHARD");
    if (!text || sscanf(text, "%u/%u", &part, &parts) != 2 || part >= parts) {
      assert_null(text);
      part = 0;
      parts = 1;
    }
  }
  return i % parts == part;
}

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

// Different cases for each provider: providers with the same code complete each other's samples.
static uint64_t provider_salt(void) {
  const char *provider = getenv("BRIM_CPU_GEMM");
  return provider ? (uint64_t)(unsigned char)provider[0] << 32 : 0;
}

// Small cases are sampled in each type. A large one runs in one type: in f32 on ref, which is slow and has the same
// code for every type, elsewhere in f32 or in bf16, chosen at random. With BRIM_TEST_FULL all of them run, except that
// ref still takes large ones in f32 only.
static bool left_out(const brim_device *device, const brim_case *c, size_t index, size_t type) {
  brim_op_call call;
  double flops, bytes;
  brim_case_call(c, &call);
  brim_op_cost(&call, &flops, &bytes);
  bool large = flops > 3e6 || bytes > 3e6, ref = strcmp(device->backend->name, "ref") == 0;
  const uint64_t at = provider_salt() + (uint64_t)index * 8;
  if (!large) return !test_is_sampled(at + type, ref ? 12 : 7);
  if (ref) return types[type] != BRIM_F32 || !test_is_sampled(at, 12);
  bool other = types[type] != (test_draw(at + 7, 2) ? BRIM_BF16 : BRIM_F32);
  return (other && !test_is_full()) || !test_is_sampled(at, 6);
}

static void run_all(fixture *f, brim_device *device) {
  tally t = {0};
  for (size_t k = 0; k < sizeof(types) / sizeof(types[0]); k++) {
    for (size_t i = 0; i < brim_case_count(); i++) {
      brim_case c;
      brim_case_get(i, &c);
      if (in_shard(i) && op_wanted(&c) && !left_out(device, &c, i, k))
        run_case(f, device, &c, types[k], &t);
    }
    for (uint64_t i = 0; i < 400; i++) {
      if (!test_is_sampled(provider_salt() + ((uint64_t)1 << 24) + i * 8 + k, 8)) continue;
      brim_case c;
      brim_case_fuzz(2024, i, &c);
      if (in_shard(i) && op_wanted(&c)) run_case(f, device, &c, types[k], &t);
    }
  }
  printf("  %s (%s): %d run, %d not supported, %d failed; worst %.2f of its tolerance: %s\n",
         device->backend->name, device->info.name, t.run, t.unsupported, t.failed, t.worst,
         t.worst_name);
  assert_true(t.run > (getenv("BRIM_TEST_OPS") ? 0 : 100));
  assert_int_equal(t.failed, 0);
}

// BATCHNORM_APPLY with the statistics that BATCHNORM computed gives the same bits as BATCHNORM.
static void recompute(brim_device *device, const brim_case *c, int *compared) {
  brim_op_call call;
  brim_case_call(c, &call);
  brim_case again = *c;
  again.op = BRIM_OP_BATCHNORM_APPLY;
  brim_op_call apply;
  brim_case_call(&again, &apply);
  if (brim_device_supports(device, &call) || brim_device_supports(device, &apply)) return;
  brim_case_data data, made, reinit;
  assert_ok(brim_case_data_create(c, &data));
  assert_ok(brim_case_run(device, c, &data, &made));
  brim_case_data moved = data;
  moved.in[3] = made.out[1];
  moved.in[4] = made.out[2];
  moved.in[5] = data.in[4];
  assert_ok(brim_case_run(device, &again, &moved, &reinit));
  int64_t count = brim_tensor_count(&call.out[0]);
  for (int64_t i = 0; i < count; i++) {
    if (made.out[0][i] == reinit.out[0][i]) continue;
    fail_msg("%s: %s: value %lld is %.9g, then %.9g", device->backend->name, c->name, (long long)i,
             made.out[0][i], reinit.out[0][i]);
  }
  ++*compared;
  brim_case_data_destroy(&data);
  brim_case_data_destroy(&made);
  brim_case_data_destroy(&reinit);
}

static void test_recompute(void **state) {
  fixture *f = *state;
  static const char *const names[] = {"ref", "cpu", "cuda"};
  for (int n = test_is_masked() ? 1 : 0; n < 3; n++) {
    brim_device *device = NULL;
    brim_device_options options = {.threads = 2};
    if (brim_device_open(f->registry, names[n], &options, &device)) continue;
    int compared = 0;
    for (size_t i = 0; i < brim_case_count(); i++) {
      for (size_t k = 0; k < sizeof(types) / sizeof(types[0]); k++) {
        brim_case c;
        brim_case_get(i, &c);
        if (c.op != BRIM_OP_BATCHNORM || !test_is_sampled(i * 8 + k, n == 0 ? 12 : 5)) continue;
        brim_case_set_type(&c, types[k]);
        recompute(device, &c, &compared);
      }
    }
    printf("  %s: %d batch normalisations made anew\n", names[n], compared);
    if (n == 0) assert_true(compared > (test_is_full() ? 100 : 0));
    brim_device_close(device);
  }
}

static void run_backend(fixture *f, const char *name) {
  brim_device *device = NULL;
  brim_device_options options = {.threads = 2};
  if (brim_device_open(f->registry, name, &options, &device)) {
    BRIM_SKIP(brim_status_detail());
  }
  run_all(f, device);
  brim_device_close(device);
}

static void test_ref(void **state) {
  if (test_is_masked()) BRIM_SKIP("ref is the same on every CPU");
  run_backend(*state, "ref");
}
static void test_cpu(void **state) { run_backend(*state, "cpu"); }
static void test_cuda(void **state) { run_backend(*state, "cuda"); }

// The comparison itself must be able to fail.
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

static void find_case(const char *prefix, brim_case *c) {
  for (size_t i = 0; i < brim_case_count(); i++) {
    brim_case_get(i, c);
    if (brim_str_starts(c->name, prefix)) return;
  }
  fail_msg("no case %s", prefix);
}

// The exact rules: change one value of one output a little.
static void test_exact_rules(void **state) {
  fixture *f = *state;
  static const struct {
    const char *name;
    int output;
    int64_t value;  // counted from the end if negative
    double by;
  } list[] = {
      {"maxpool n=2 h=8", 1, 3, 1},
      {"step_end p=4 good", 0, BRIM_STATE_GOOD_STEPS, 1e-9},
      {"batchnorm_bwd n=8 h=4 w=4 c=64 padding relu y dy2 dz", 0, -1, 1e-30},
      {"batchnorm_bwd n=8 h=4 w=4 c=64 padding relu y dy2 dz", 3, -1, 1e-30},
      {"batchnorm_bwd_joined n=8 h=4 w=4 c=64 padding relu dy2 dz", 0, -1, 1e-30},
      {"batchnorm_bwd_joined n=8 h=4 w=4 c=64 padding relu dy2 dz", 1, -1, 1e-30},
      {"batchnorm_part n=8 h=4 w=4 c=64 padding", 0, 63, 1e-9},  // a count
      {"ntxent n=34 c=24 gradient padding", 1, -1, 1e-30},
      {"ntxent n=34 c=24 gradient padding", 1, 16 * 24, 1e-30},  // in the first view
  };
  for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
    brim_case c;
    brim_case_data data, a, b;
    brim_op_call call;
    double error;
    char why[160];
    find_case(list[i].name, &c);
    brim_case_call(&c, &call);
    assert_ok(brim_case_data_create(&c, &data));
    assert_ok(brim_case_run(f->oracle, &c, &data, &a));
    assert_ok(brim_case_run(f->oracle, &c, &data, &b));
    assert_ok(brim_case_compare(&c, &a, &b, &error, why));
    int64_t at = list[i].value, count = brim_tensor_count(&call.out[list[i].output]);
    a.out[list[i].output][at < 0 ? count + at : at] += list[i].by;
    if (brim_case_compare(&c, &a, &b, &error, why) != BRIM_EINTERNAL) {
      fail_msg("%s: output %d was not compared exactly", c.name, list[i].output);
    }
    brim_case_data_destroy(&data);
    brim_case_data_destroy(&a);
    brim_case_data_destroy(&b);
  }
}

// A part's counts are far larger than its means, so they are compared apart. Values that are not finite may differ in
// kind, but must not be finite.
static void test_figures_apart(void **state) {
  fixture *f = *state;
  static const char *const names[] = {"batchnorm_part n=8 h=4 w=4 c=64 plain",
                                      "batchnorm_part n=8 h=4 w=4 c=64 nonfinite"};
  for (int i = 0; i < 2; i++) {
    brim_case c;
    brim_case_data data, a, b;
    double error;
    char why[160];
    find_case(names[i], &c);
    assert_ok(brim_case_data_create(&c, &data));
    assert_ok(brim_case_run(f->oracle, &c, &data, &a));
    assert_ok(brim_case_run(f->oracle, &c, &data, &b));
    int64_t bad = c.k;
    while (i && isfinite(b.out[0][bad])) bad++;  // a mean
    a.out[0][bad] = i ? (double)INFINITY : a.out[0][bad];
    b.out[0][bad] = i ? (double)NAN : b.out[0][bad];
    assert_ok(brim_case_compare(&c, &a, &b, &error, why));
    assert_true(error == 0);
    a.out[0][bad] = i ? 1 : a.out[0][bad] + 1e-4;
    assert_ok(brim_case_compare(&c, &a, &b, &error, why));
    assert_true(error > brim_case_tolerance(&c));
    brim_case_data_destroy(&data);
    brim_case_data_destroy(&a);
    brim_case_data_destroy(&b);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_compare_notices),
      cmocka_unit_test(test_exact_rules),
      cmocka_unit_test(test_figures_apart),
      cmocka_unit_test(test_ref),
      cmocka_unit_test(test_cpu),
      cmocka_unit_test(test_cuda),
      cmocka_unit_test(test_recompute),
  };
  test_filter();
  return cmocka_run_group_tests(tests, setup, teardown);
}
