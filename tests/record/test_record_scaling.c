// Records of scaling as JSON, and as results for other readers.
#include <math.h>

#include "scaling_read.h"
#include "test.h"

static void fill(brim_scaling *s) {
  brim_scaling_init(s);
  snprintf(s->result.workload, sizeof s->result.workload, "supervised");
  s->result.samples_per_s = 1900;
  s->devices = 3;
  s->ran = 2;
  s->each = 950;
  s->one = 1000;
  s->efficiency = 0.95;
  s->effective_batch = 512;
  snprintf(s->lost_to, sizeof s->lost_to, "io");
  s->lost_ms = 0.25;
  for (int i = 0; i < 3; i++) {
    brim_scaling_replica *r = &s->replicas[i];
    snprintf(r->spec, sizeof r->spec, "cuda:%d", i % 10);
    if (i == 2) break;
    snprintf(r->device, sizeof r->device, "A GPU");
    snprintf(r->device_id, sizeof r->device_id, "GPU-%d", i);
    r->samples_per_s = 950 + i;
    r->rows = 256;
    r->step_ms = 5;
    r->phase_ms[BRIM_PHASE_IO] = 1;
    r->phase_ms[BRIM_PHASE_COMPUTE] = 4;
    r->stable = true;
  }
  s->replicas[2].failure = BRIM_FAILURE_OOM_DEVICE;
  s->replicas[2].failure_status = BRIM_EOOM;
  // cut in the middle of a character
  snprintf(s->replicas[2].message, sizeof s->replicas[2].message, "no room\xc3");
}

static void test_round_trip(void **state) {
  (void)state;
  brim_scaling *a = malloc(sizeof *a), *b = malloc(sizeof *b);
  assert_true(a && b);
  fill(a);
  json_t *json = NULL;
  assert_ok(brim_scaling_to_json(a, &json));
  assert_string_equal(json_string_value(json_object_get(json, "kind")), "scaling");
  const json_t *section = json_object_get(json, "scaling");
  assert_true(json_is_false(json_object_get(section, "gradient_exchange")));
  scaling_read(json, b);
  assert_int_equal(b->devices, 3);
  assert_int_equal(b->ran, 2);
  assert_true(b->each == 950 && b->one == 1000 && b->efficiency == 0.95);
  assert_true(b->effective_batch == 512 && b->lost_ms == 0.25);
  assert_string_equal(b->lost_to, "io");
  for (int i = 0; i < 2; i++) {
    const brim_scaling_replica *x = &a->replicas[i], *y = &b->replicas[i];
    assert_string_equal(x->spec, y->spec);
    assert_string_equal(x->device, y->device);
    assert_string_equal(x->device_id, y->device_id);
    assert_true(x->samples_per_s == y->samples_per_s && x->step_ms == y->step_ms);
    assert_true(y->rows == 256 && y->stable && y->failure == BRIM_FAILURE_NONE);
    assert_true(y->phase_ms[BRIM_PHASE_IO] == 1 && y->phase_ms[BRIM_PHASE_COMPUTE] == 4);
    assert_true(isnan(y->phase_ms[BRIM_PHASE_H2D]));
  }
  assert_true(isnan(b->replicas[2].samples_per_s));
  assert_int_equal(b->replicas[2].failure, BRIM_FAILURE_OOM_DEVICE);
  assert_int_equal(b->replicas[2].failure_status, BRIM_EOOM);
  assert_string_equal(b->replicas[2].message, "no room?");
  // readers that ignore scaling read a plain result
  brim_result r;
  assert_ok(brim_result_from_json(json, "x", 1, &r));
  assert_string_equal(r.kind, "scaling");
  assert_true(r.samples_per_s == 1900);
  brim_result_deinit(&r);
  json_decref(json);
  brim_scaling_deinit(a);
  brim_scaling_deinit(b);
  free(a);
  free(b);
}

static void fill_exchange(brim_scaling_exchange *e) {
  snprintf(e->by, sizeof e->by, "nccl");
  e->gradient_bytes = 4e6;
  e->sums = 3;
  e->calls = 7;
  e->call_bytes = 700;
  e->small_bytes = 1024;
  e->small_ms = 0.01;
  e->bucket_bytes = 1e6;
  e->bucket_ms = 0.2;
  e->samples_per_s = 1800;
  e->efficiency = 0.9;
  e->step_ms = 5.5;
  e->waited_ms = 0.5;  // busy_ms stays unknown
  e->stable = true;
}

static void test_exchange(void **state) {
  (void)state;
  brim_scaling *a = malloc(sizeof *a), *b = malloc(sizeof *b);
  assert_true(a && b);
  fill(a);
  fill_exchange(&a->exchange);
  a->predicted = (brim_scaling_forecast){2, 1980, 0.99, 5.05, 0.7, 0.05, false, false};
  a->further_count = 2;
  a->further[0] = (brim_scaling_forecast){4, 3900, 0.97, 5.1, 0.9, 0.1, true, false};
  a->further[1].ranks = 8;
  a->further[1].beyond = a->further[1].network = true;
  json_t *json = NULL;
  assert_ok(brim_scaling_to_json(a, &json));
  const json_t *section = json_object_get(json, "scaling");
  assert_true(json_is_true(json_object_get(section, "gradient_exchange")));
  const json_t *busy = json_object_get(json_object_get(section, "exchange"), "busy_ms");
  assert_true(json_is_null(busy));
  const json_t *error = json_object_get(json_object_get(section, "predicted"), "error");
  assert_true(json_number_value(error) == 1980.0 / 1800 - 1);
  scaling_read(json, b);
  const brim_scaling_exchange *x = &a->exchange, *y = &b->exchange;
  assert_string_equal(y->by, "nccl");
  assert_true(y->gradient_bytes == x->gradient_bytes && y->sums == 3 && y->calls == 7);
  assert_true(y->call_bytes == 700 && y->small_bytes == 1024 && y->small_ms == 0.01);
  assert_true(y->bucket_bytes == 1e6 && y->bucket_ms == 0.2 && y->samples_per_s == 1800);
  assert_true(y->efficiency == 0.9 && y->step_ms == 5.5 && y->waited_ms == 0.5 && y->stable);
  assert_true(isnan(y->busy_ms) && y->failure == BRIM_FAILURE_NONE);
  assert_true(b->predicted.ranks == 2 && b->predicted.samples_per_s == 1980);
  assert_true(b->predicted.exchange_ms == 0.7 && b->predicted.waited_ms == 0.05);
  assert_int_equal(b->further_count, 2);
  assert_true(b->further[0].ranks == 4 && b->further[0].beyond && !b->further[0].network);
  assert_true(b->further[0].efficiency == 0.97 && b->further[0].step_ms == 5.1);
  assert_true(b->further[1].network && isnan(b->further[1].samples_per_s));
  json_decref(json);
  // a device that failed has a reason, and no figures
  a->exchange.samples_per_s = (double)NAN;
  a->exchange.failure = BRIM_FAILURE_CRASH;
  a->exchange.failure_status = BRIM_EDEVICE;
  snprintf(a->exchange.message, sizeof a->exchange.message, "cuda:1: gone");
  assert_ok(brim_scaling_to_json(a, &json));
  brim_scaling_deinit(b);
  scaling_read(json, b);
  assert_int_equal(b->exchange.failure, BRIM_FAILURE_CRASH);
  assert_int_equal(b->exchange.failure_status, BRIM_EDEVICE);
  assert_string_equal(b->exchange.message, "cuda:1: gone");
  section = json_object_get(json, "scaling");
  assert_true(json_is_false(json_object_get(section, "gradient_exchange")));
  json_decref(json);
  brim_scaling_deinit(a);
  brim_scaling_deinit(b);
  free(a);
  free(b);
}

static void test_unknown_is_null(void **state) {
  (void)state;
  brim_scaling *s = malloc(sizeof *s);
  assert_non_null(s);
  brim_scaling_init(s);
  s->devices = 1;
  json_t *json = NULL;
  assert_ok(brim_scaling_to_json(s, &json));
  const json_t *section = json_object_get(json, "scaling");
  static const char *const keys[] = {
      "samples_per_s_each", "one_samples_per_s", "efficiency", "effective_batch", "lost",
      "exchange",           "predicted"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    assert_true(json_is_null(json_object_get(section, keys[i])));
  }
  json_decref(json);
  free(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_exchange),
      cmocka_unit_test(test_unknown_is_null),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
