// Planned bytes are real: the allocator counts exactly the plan's bytes, on ref and cpu; a step allocates nothing; and
// any failing allocation is a clean error without a leak (a sample of them; with BRIM_TEST_FULL every one).
#include <unistd.h>

#include "engine_test.h"

typedef struct memory_case {
  const char *model, *optimizer;
  double momentum;
  int64_t depth, hidden, batch, eval_batch, accumulation;
  bool mse;
  brim_dtype input;
} memory_case;

static const memory_case cases[] = {
    {"mlp", "sgd", 0, 2, 7, 5, 0, 1, false, BRIM_F32},
    {"mlp", "sgd", 0.9, 4, 64, 32, 0, 1, false, BRIM_U8},
    {"mlp", "adam", 0, 3, 100, 17, 64, 4, false, BRIM_U8},
    {"mlp", "adamw", 0, 1, 33, 1, 3, 2, true, BRIM_F32},
    {"resmlp", "adamw", 0, 2, 48, 8, 0, 1, false, BRIM_U8},
    {"resmlp", "sgd", 0.5, 3, 20, 12, 12, 3, true, BRIM_F32},
    {"linear", "adam", 0, 0, 0, 64, 0, 1, false, BRIM_U8},
};
static const brim_precision precisions[] = {BRIM_PRECISION_FP32, BRIM_PRECISION_BF16};

static void case_spec(const memory_case *c, brim_precision precision, test_spec *t) {
  test_spec_init(t);
  test_component_init(&t->model, c->model);
  if (strcmp(c->model, "linear") != 0) {
    test_component_int(&t->model, "depth", c->depth);
    test_component_int(&t->model, "hidden", c->hidden);
    test_component_float(&t->model, "dropout", 0.1);
  }
  test_component_init(&t->optimizer, c->optimizer);
  if (c->momentum > 0) test_component_float(&t->optimizer, "momentum", c->momentum);
  if (c->mse) test_spec_mse(t, 4);
  t->spec.input_dtype = c->input;
  t->spec.batch = c->batch;
  t->spec.eval_batch = c->eval_batch;
  t->spec.accumulation = c->accumulation;
  t->spec.precision = precision;
}

static brim_alloc_stats stats(void) {
  brim_alloc_stats s;
  brim_alloc_get_stats(&s);
  return s;
}

static void check_plan(brim_device *device, const test_spec *t) {
  brim_plan plan = {0};
  brim_alloc_stats before = stats();
  assert_ok(brim_net_plan(device, &t->spec, &plan));
  brim_alloc_stats planned = stats();
  assert_int_equal(planned.live_bytes[BRIM_MEM_PLANNED], before.live_bytes[BRIM_MEM_PLANNED]);
  uint64_t sum = 0;
  for (size_t i = 0; i < plan.row_count; i++) {
    assert_int_equal(plan.rows[i].place, BRIM_PLACE_DEVICE);
    assert_int_equal(plan.rows[i].bytes % BRIM_ALIGN, 0);
    sum += plan.rows[i].bytes;
  }
  assert_int_equal(sum, plan.bytes[BRIM_PLACE_DEVICE]);
  assert_int_equal(plan.bytes[BRIM_PLACE_HOST], 0);
  brim_net *net;
  assert_ok(brim_net_create(device, &t->spec, &net));
  test_batch b;
  int64_t rows = t->spec.batch * t->spec.accumulation;
  test_batch_make(&t->spec, rows > net->eval_batch ? rows : net->eval_batch, 3, &b);
  brim_batch eval = test_batch_at(&t->spec, &b, 0, net->eval_batch);
  test_step(net, &t->spec, &b, t->spec.accumulation, 1, 0.1);
  assert_int_equal(stats().live_bytes[BRIM_MEM_PLANNED], before.live_bytes[BRIM_MEM_PLANNED] + sum);
  // Later steps and evaluations allocate nothing.
  uint64_t calls = stats().calls;
  brim_net_metrics metrics;
  for (int64_t step = 2; step <= 4; step++) {
    test_step(net, &t->spec, &b, t->spec.accumulation, step, 0.1);
    assert_ok(brim_net_evaluate(net, &eval, NULL));
  }
  assert_ok(brim_net_read_metrics(net, true, &metrics));
  assert_int_equal(stats().calls, calls);
  test_batch_free(&b);
  brim_net_destroy(net);
  assert_int_equal(stats().live_bytes[BRIM_MEM_PLANNED], before.live_bytes[BRIM_MEM_PLANNED]);
}

static void check_device(brim_device *device) {
  for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
    for (size_t p = 0; p < 2; p++) {
      test_spec t;
      case_spec(&cases[k], precisions[p], &t);
      brim_plan plan = {0};
      brim_status status = brim_net_plan(device, &t.spec, &plan);
      if (status == BRIM_EUNSUPPORTED && precisions[p] != BRIM_PRECISION_FP32) continue;
      assert_ok(status);
      check_plan(device, &t);
    }
  }
}

static void test_planned_ref(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  check_device(device);
  test_device_close(device);
}

static void test_planned_cpu(void **state) {
  (void)state;
  brim_device *device = test_device_cpu();
  if (!device) BRIM_SKIP(brim_status_detail());
  check_device(device);
  test_device_close(device);
}

static void test_rows(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  test_spec t;
  case_spec(&cases[2], BRIM_PRECISION_BF16, &t);
  brim_plan plan = {.row_count = 1, .bytes = {64, 0}};
  plan.rows[0] = (brim_plan_row){.name = "before", .place = BRIM_PLACE_DEVICE, .bytes = 64};
  assert_ok(brim_net_plan(device, &t.spec, &plan));
  static const char *const names[] = {"before",    "parameters",       "16-bit copy",
                                      "gradients", "optimizer state",  "activations",
                                      "workspace", "state and metrics"};
  uint64_t params = 0, sum = 0;
  for (size_t i = 0; i < plan.row_count; i++) {
    bool known = false;
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
      known = known || strcmp(names[k], plan.rows[i].name) == 0;
    }
    assert_true(known);
    sum += plan.rows[i].bytes;
    if (strcmp(plan.rows[i].name, "parameters") == 0) params = plan.rows[i].bytes;
  }
  assert_int_equal(sum, plan.bytes[BRIM_PLACE_DEVICE]);
  assert_int_equal(plan.rows[2].bytes * 2, params);
  assert_int_equal(plan.rows[3].bytes, params);
  assert_int_equal(plan.rows[4].bytes, params * 2);
  // sgd keeps one block with momentum and none without
  for (int momentum = 0; momentum < 2; momentum++) {
    case_spec(&cases[momentum], BRIM_PRECISION_FP32, &t);
    plan = (brim_plan){0};
    assert_ok(brim_net_plan(device, &t.spec, &plan));
    assert_true((strcmp(plan.rows[2].name, "optimizer state") == 0) == momentum);
    if (momentum) assert_int_equal(plan.rows[2].bytes, plan.rows[0].bytes);
  }
  test_device_close(device);
}

//---------------------------------- failing allocations ----------------------------------

static const char file_name[] = "injected.safetensors";

// The life of a network up to the first failure, except for loading.
static brim_status whole_life(brim_device *device, const test_spec *t, const test_batch *b,
                              bool hold) {
  brim_plan plan = {0};
  brim_net *net = NULL;
  json_t *meta = NULL;
  brim_net_metrics metrics;
  float outputs[8 * 3];
  brim_batch all = test_batch_at(&t->spec, b, 0, t->spec.batch);
  brim_status status = brim_net_plan(device, &t->spec, &plan);
  if (!status) status = brim_net_create(device, &t->spec, &net);
  if (!status) status = brim_net_snapshot(net);
  for (int64_t step = 1; !status && step <= 2; step++) {
    for (int k = 0; !status && k < 2; k++) {
      brim_net_micro micro = {.batch = all, .step = step, .step_rows = 16, .first = k == 0};
      status = brim_net_train(net, &micro, NULL);
    }
    if (!status) status = brim_net_update(net, step, 0.1, NULL);
  }
  if (!status) status = brim_net_evaluate(net, &all, NULL);
  if (!status) status = brim_net_outputs(net, outputs, t->spec.batch);
  if (!status) status = brim_net_read_metrics(net, true, &metrics);
  if (!status) status = brim_net_restore(net);
  if (!status) {
    brim_json_setup();
    meta = json_object();
    status = meta ? brim_json_put(meta, "epoch", json_string("3"))
                  : brim_fail(BRIM_ENOMEM, "out of memory");
  }
  brim_net_held *held = NULL;
  if (!status && !hold) status = brim_net_save(net, file_name, meta, false);
  if (!status && hold) status = brim_net_hold(net, meta, false, &held);
  if (!status && hold) status = brim_net_held_write(held, file_name);
  brim_net_held_free(held);
  json_decref(meta);
  brim_net_destroy(net);
  return status;
}

typedef struct injection {
  brim_alloc_stats before;
  uint64_t n, failures, of;
} injection;

// Fails one in `of` allocations, different ones in each run.
static void arm(injection *i) {
  do {
    i->n++;
  } while (!test_is_sampled(i->n, i->of));
  i->failures = brim_alloc_failures();
  i->before = stats();
  brim_alloc_fail_nth(i->n, 0);
}

// True if this was past the last allocation. A failure must give a status and a message, and leave nothing allocated.
static bool disarm(const injection *i, brim_status status, bool may_absorb) {
  brim_alloc_fail_nth(0, 0);
  bool injected = brim_alloc_failures() != i->failures;
  brim_alloc_stats after = stats();
  for (int tag = 0; tag < BRIM_MEM_TAG_COUNT; tag++) {
    if (after.live_blocks[tag] != i->before.live_blocks[tag]) {
      fail_msg("allocation %llu fails: %lld blocks are left", (unsigned long long)i->n,
               (long long)(after.live_blocks[tag] - i->before.live_blocks[tag]));
    }
  }
  if (!injected) {
    assert_ok(status);
    return true;
  }
  if (status == BRIM_OK && may_absorb) return false;
  if (status != BRIM_ENOMEM && status != BRIM_EOOM) {
    fail_msg("allocation %llu fails: status %d (%s)", (unsigned long long)i->n, (int)status,
             brim_status_detail());
  }
  assert_true(brim_status_detail()[0] != '\0');
  return false;
}

// Loading that fails leaves the network as it was.
static void inject_load(brim_device *device, const test_spec *t) {
  test_spec other = *t;
  other.spec.model = &other.model.c;
  other.model.c.args = other.model.args;
  other.spec.seed = 99;
  brim_net *net;
  assert_ok(brim_net_create(device, &other.spec, &net));
  size_t count;
  float *start = test_params(net, &count);
  for (injection i = {.of = 3};;) {
    json_t *meta = NULL;
    arm(&i);
    brim_status status = brim_net_load(net, file_name, false, &meta);
    size_t members = json_object_size(meta);
    json_decref(meta);
    if (disarm(&i, status, false)) {
      assert_int_equal(members, 1);
      assert_true(i.n > 50);
      break;
    }
    float *now = test_params(net, &count);
    assert_memory_equal(start, now, count * sizeof *now);
    free(now);
  }
  float *loaded = test_params(net, &count);
  assert_memory_not_equal(start, loaded, count * sizeof *loaded);
  free(loaded);
  free(start);
  brim_net_destroy(net);
}

static void inject_life(brim_device *device, bool hold) {
  test_spec t;
  test_spec_init(&t);
  test_component_init(&t.model, "resmlp");
  test_component_int(&t.model, "depth", 2);
  test_component_int(&t.model, "hidden", 12);
  test_component_float(&t.model, "dropout", 0.1);
  test_component_init(&t.optimizer, "adamw");
  t.spec.batch = 8;
  t.spec.accumulation = 2;
  t.spec.precision = BRIM_PRECISION_BF16;
  brim_plan plan = {0};
  if (brim_net_plan(device, &t.spec, &plan)) t.spec.precision = BRIM_PRECISION_FP32;
  test_batch b;
  test_batch_make(&t.spec, t.spec.batch, 9, &b);
  assert_ok(whole_life(device, &t, &b, hold));  // allocations that happen only once happen here
  uint64_t absorbed = 0;
  for (injection i = {.of = 5};;) {
    (void)unlink(file_name);
    arm(&i);
    brim_status status = whole_life(device, &t, &b, hold);
    // The sync of the folder behind a finished file is best effort: one failure there may go unnoticed.
    bool whole = status == BRIM_OK && brim_fs_exists(file_name);
    if (disarm(&i, status, whole && absorbed++ == 0)) {
      assert_true(i.n > 100);
      break;
    }
    if (status) assert_false(brim_fs_exists(file_name));
  }
  inject_load(device, &t);
  test_batch_free(&b);
  (void)unlink(file_name);
  // No temporary is left beside the file.
  char **names;
  size_t count;
  assert_ok(brim_fs_list(".", &names, &count));
  for (size_t i = 0; i < count; i++) assert_null(strstr(names[i], "injected"));
  brim_fs_list_free(names, count);
}

// Saved directly, and through a held copy.
static void inject(brim_device *device) {
  inject_life(device, false);
  inject_life(device, true);
}

static void test_injection_ref(void **state) {
  (void)state;
  brim_device *device = test_device_ref();
  inject(device);
  test_device_close(device);
}

static void test_injection_cpu(void **state) {
  (void)state;
  brim_device *device = test_device_cpu();
  if (!device) BRIM_SKIP(brim_status_detail());
  inject(device);
  test_device_close(device);
}

int main(void) {
  brim_json_own_memory();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_planned_ref),   cmocka_unit_test(test_planned_cpu),
      cmocka_unit_test(test_rows),          cmocka_unit_test(test_injection_ref),
      cmocka_unit_test(test_injection_cpu),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
