// The view of a machine and the record of a job: the same after JSON, unknown stays unknown, wrong values are refused;
// targets, OFU and the hang flag follow from the readings.
#include "record/record_top.h"

#include <math.h>
#include <string.h>

#include "base/base_words.h"
#include "test.h"
#include "top_view.h"

static char *dump_view(const brim_top_view *view) {
  json_t *json = NULL;
  char *text = NULL;
  assert_ok(brim_top_view_to_json(view, &json));
  assert_ok(brim_json_dump(json, 0, &text));
  json_decref(json);
  return text;
}

static brim_status read_view(const char *text, brim_top_view *out) {
  json_t *json = NULL;
  assert_ok(brim_json_parse(text, strlen(text), "test", &json));
  brim_status status = brim_top_view_from_json(json, out);
  json_decref(json);
  return status;
}

static void test_view_survives_json(void **state) {
  (void)state;
  for (int gpus = 0; gpus <= 8; gpus += 4) {
    brim_top_view view, read;
    top_view_make(&view, gpus);
    assert_ok(brim_top_view_note(&view, "Xid events cannot be seen"));
    brim_top_view_init(&read);
    char *text = dump_view(&view);
    assert_null(strchr(text, '\n'));
    assert_ok(read_view(text, &read));
    char *again = dump_view(&read);
    assert_string_equal(text, again);
    assert_int_equal(read.gpu_count, gpus);
    assert_int_equal(read.process_count, gpus);
    assert_int_equal(read.job_count, gpus ? 1 : 0);
    assert_int_equal(read.note_count, 1);
    if (gpus) {
      assert_int_equal(read.gpus[0].throttle, 1u << BRIM_TOP_THROTTLE_POWER_CAP);
      assert_int_equal(read.gpus[0].targets[BRIM_TOP_TARGET_POWER], BRIM_TOP_YES);
      assert_int_equal(read.gpus[3].targets[BRIM_TOP_TARGET_MEMORY], BRIM_TOP_NO);
      assert_string_equal(read.events[0].kind, "xid");
      assert_string_equal(read.jobs[0].findings[0].code, "io_wait");
    }
    brim_free(text);
    brim_free(again);
    brim_top_view_deinit(&view);
    brim_top_view_deinit(&read);
  }
}

static void test_unknown_is_null(void **state) {
  (void)state;
  brim_top_view view, read;
  brim_top_view_init(&view);
  brim_top_view_init(&read);
  assert_non_null(brim_top_view_add_gpu(&view));
  assert_non_null(brim_top_view_add_process(&view));
  assert_non_null(brim_top_view_add_event(&view));
  assert_non_null(brim_top_view_add_job(&view));
  brim_top_view_derive(&view, NULL);
  json_t *json = NULL;
  assert_ok(brim_top_view_to_json(&view, &json));
  const char *key;
  json_t *value;
  json_object_foreach(json_array_get(json_object_get(json, "gpus"), 0), key, value) {
    if (json_is_object(value)) continue;
    assert_true(json_is_null(value) || json_string_length(value) == 0);
    assert_false(json_is_number(value) || json_is_boolean(value));
  }
  json_object_foreach(json_object_get(json, "host"), key, value) {
    assert_false(json_is_number(value));
  }
  assert_ok(brim_top_view_from_json(json, &read));
  assert_true(isnan(read.gpus[0].power_w));
  assert_int_equal(read.gpus[0].index, -1);
  assert_false(read.gpus[0].throttle_known);
  assert_int_equal(read.gpus[0].hang, BRIM_TOP_UNKNOWN);
  assert_int_equal(read.gpus[0].targets[BRIM_TOP_TARGET_UTILISATION], BRIM_TOP_UNKNOWN);
  assert_true(isnan(read.host.memory_total));
  assert_int_equal(read.host.cores, -1);
  assert_int_equal(read.jobs[0].epoch, -1);
  json_decref(json);
  brim_top_view_deinit(&view);
  brim_top_view_deinit(&read);
}

static void test_cores(void **state) {
  (void)state;
  brim_top_view view, read;
  brim_top_view_init(&view);
  brim_top_view_init(&read);
  view.host.core_count = 3;
  view.host.core_percent[0] = 99.96;
  view.host.core_percent[1] = NAN;
  view.host.core_percent[2] = 0.04;
  json_t *json = NULL;
  assert_ok(brim_top_view_to_json(&view, &json));
  assert_ok(brim_top_view_from_json(json, &read));
  assert_int_equal(read.host.core_count, 3);
  assert_true(read.host.core_percent[0] == 100 && read.host.core_percent[2] == 0);
  assert_true(isnan(read.host.core_percent[1]));
  // more cores than the view has room for, and a value of the wrong kind
  json_t *cores = json_object_get(json_object_get(json, "host"), "core_percent");
  for (int i = 0; i < 600; i++) assert_ok(brim_json_push(cores, json_integer(7)));
  assert_ok(brim_top_view_from_json(json, &read));
  assert_int_equal(read.host.core_count, BRIM_TOP_CORES);
  assert_true(read.host.core_percent[BRIM_TOP_CORES - 1] == 7);
  assert_ok(brim_json_push(cores, json_string("x")));
  json_array_set_new(cores, 0, json_true());
  assert_status(brim_top_view_from_json(json, &read), BRIM_EPARSE);
  assert_non_null(strstr(brim_status_detail(), "core_percent"));
  json_decref(json);
  brim_top_view_deinit(&view);
  brim_top_view_deinit(&read);
}

static void test_wrong_values_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *text, *names;
  } bad[] = {
      {"[]", "object"},
      {"{}", "missing"},
      {"{\"schema\":\"brim.top/9\"}", "brim.top/9"},
      {"{\"schema\":\"brim.top/1\",\"when_s\":\"noon\"}", "when_s"},
      {"{\"schema\":\"brim.top/1\",\"host\":3}", "object"},
      {"{\"schema\":\"brim.top/1\",\"gpus\":{}}", "gpus"},
      {"{\"schema\":\"brim.top/1\",\"gpus\":[7]}", "object"},
      {"{\"schema\":\"brim.top/1\",\"gpus\":[{\"power_w\":\"hot\"}]}", "power_w"},
      {"{\"schema\":\"brim.top/1\",\"gpus\":[{\"throttle\":[1]}]}", "throttle"},
      {"{\"schema\":\"brim.top/1\",\"gpus\":[{\"targets\":{\"power\":1}}]}", "targets"},
      {"{\"schema\":\"brim.top/1\",\"gpus\":[{\"mig\":0}]}", "mig"},
      {"{\"schema\":\"brim.top/1\",\"notes\":[1]}", "notes"},
      {"{\"schema\":\"brim.top/1\",\"jobs\":[{\"schema\":\"x\"}]}", "brim.job/1"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    brim_top_view view;
    brim_top_view_init(&view);
    assert_int_equal(read_view(bad[i].text, &view), BRIM_EPARSE);
    assert_non_null(strstr(brim_status_detail(), bad[i].names));
    brim_top_view_deinit(&view);
  }
  brim_top_view view;
  brim_top_view_init(&view);
  assert_ok(read_view("{\"schema\":\"brim.top/1\",\"later\":[1],\"gpus\":[{\"throttle\":[\"x\"]}]}",
                      &view));
  assert_true(view.gpus[0].throttle_known);
  assert_int_equal(view.gpus[0].throttle, 1u << BRIM_TOP_THROTTLE_OTHER);
  brim_top_view_deinit(&view);
}

static void test_targets_follow_the_readings(void **state) {
  (void)state;
  static const struct {
    double gpu, memory, power;
    brim_top_flag met[BRIM_TOP_TARGET_COUNT];
  } cases[] = {
      {90.5, 81, 75, {BRIM_TOP_YES, BRIM_TOP_YES, BRIM_TOP_YES}},
      {90, 80, 74.9, {BRIM_TOP_NO, BRIM_TOP_NO, BRIM_TOP_NO}},
      {NAN, NAN, NAN, {BRIM_TOP_UNKNOWN, BRIM_TOP_UNKNOWN, BRIM_TOP_UNKNOWN}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    brim_top_view view;
    brim_top_view_init(&view);
    brim_top_gpu *gpu = brim_top_view_add_gpu(&view);
    gpu->gpu_percent = cases[i].gpu;
    gpu->memory_total = gpu->power_limit_w = 100;
    gpu->memory_used = cases[i].memory;
    gpu->power_w = cases[i].power;
    brim_top_view_derive(&view, NULL);
    for (int t = 0; t < BRIM_TOP_TARGET_COUNT; t++) {
      assert_int_equal(gpu->targets[t], cases[i].met[t]);
    }
    assert_true(isnan(gpu->ofu_percent));
    brim_top_view_deinit(&view);
  }
}

static void test_ofu_is_tensor_activity_times_clock(void **state) {
  (void)state;
  brim_top_view view;
  brim_top_view_init(&view);
  brim_top_gpu *gpu = brim_top_view_add_gpu(&view);
  gpu->tensor_percent = 60;
  gpu->clock_mhz = 990;
  gpu->clock_max_mhz = 1980;
  brim_top_view_derive(&view, NULL);
  assert_float_equal(gpu->ofu_percent, 30, 1e-9);
  brim_top_view_deinit(&view);
}

// Full utilisation at idle power for BRIM_TOP_HANG_S seconds sets it; work or power clears it.
static void test_hang_needs_time(void **state) {
  (void)state;
  brim_top_view view, previous;
  brim_top_view_init(&previous);
  brim_top_view_init(&view);
  for (int second = 0; second <= BRIM_TOP_HANG_S + 2; second++) {
    brim_top_view_clear(&view);
    view.when_s = 1000 + second;
    brim_top_gpu *gpu = brim_top_view_add_gpu(&view);
    gpu->index = 0;
    gpu->gpu_percent = 100;
    gpu->power_limit_w = 700;
    gpu->power_w = 110;
    brim_top_view_derive(&view, second ? &previous : NULL);
    assert_float_equal(gpu->hang_s, second, 1e-9);
    assert_int_equal(gpu->hang, second >= BRIM_TOP_HANG_S ? BRIM_TOP_YES : BRIM_TOP_NO);
    assert_ok(brim_top_view_copy(&view, &previous));
  }
  view.gpus[0].power_w = 203;  // an H200 with small kernels
  brim_top_view_derive(&view, &previous);
  assert_int_equal(view.gpus[0].hang, BRIM_TOP_NO);
  view.gpus[0].power_w = 110;
  view.gpus[0].dram_percent = 4;
  brim_top_view_derive(&view, &previous);
  assert_int_equal(view.gpus[0].hang, BRIM_TOP_NO);
  brim_top_view_deinit(&view);
  brim_top_view_deinit(&previous);
}

static void test_gpus_are_found_by_uuid_or_index(void **state) {
  (void)state;
  brim_top_view view;
  top_view_make(&view, 3);
  assert_ptr_equal(brim_top_view_gpu(&view, 0, "GPU-00000002"), &view.gpus[2]);
  assert_ptr_equal(brim_top_view_gpu(&view, 1, ""), &view.gpus[1]);
  assert_ptr_equal(brim_top_view_gpu(&view, 1, NULL), &view.gpus[1]);
  assert_null(brim_top_view_gpu(&view, 7, NULL));
  brim_top_view_deinit(&view);
}

static void test_allocations_may_fail(void **state) {
  (void)state;
  brim_top_view source;
  top_view_make(&source, 2);
  char *text = dump_view(&source);
  json_t *json = NULL;
  assert_ok(brim_json_parse(text, strlen(text), "test", &json));
  for (uint64_t n = 1; n <= 5; n++) {
    brim_top_view view;
    brim_top_view_init(&view);
    brim_alloc_fail_nth(n, 1);
    brim_status status = brim_top_view_from_json(json, &view);
    brim_alloc_fail_nth(0, 0);
    assert_int_equal(status, n <= 4 ? BRIM_ENOMEM : BRIM_OK);
    brim_top_view_deinit(&view);
  }
  json_decref(json);
  brim_free(text);
  brim_top_view_deinit(&source);
}

static void test_job_keeps_what_fits(void **state) {
  (void)state;
  const char *text =
      "{\"schema\":\"brim.job/1\",\"pid\":7,\"phase\":\"dance\",\"findings\":"
      "[{\"code\":\"a\"},{\"code\":\"b\"},{\"code\":\"c\"},{\"code\":\"d\"},{\"code\":\"e\"}]}";
  json_t *json = NULL;
  brim_job job;
  assert_ok(brim_json_parse(text, strlen(text), "test", &json));
  assert_ok(brim_job_from_json(json, &job));
  assert_int_equal(job.pid, 7);
  assert_int_equal(job.phase, BRIM_JOB_UNKNOWN);
  assert_int_equal(job.finding_count, BRIM_JOB_FINDINGS);
  assert_true(isnan(job.findings[0].cost_ms));
  json_decref(json);
}

// A reader gets a job's findings in its own language.
static void test_findings_of_a_job_keep_their_values(void **state) {
  (void)state;
  json_t *json = NULL;
  brim_job job, read;
  brim_job_init(&job);
  job.finding_count = 1;
  brim_words_add(job.findings[0].text, sizeof job.findings[0].text, "%d of %d", 3, 4);
  snprintf(job.findings[0].remedy, sizeof job.findings[0].remedy, "plain");
  assert_ok(brim_job_to_json(&job, &json));
  const json_t *item = json_array_get(json_object_get(json, "findings"), 0);
  assert_string_equal(json_string_value(json_object_get(item, "text")), "3 of 4");
  assert_ok(brim_job_from_json(json, &read));
  assert_string_equal(read.findings[0].text, job.findings[0].text);
  assert_string_equal(read.findings[0].remedy, "plain");
  json_decref(json);
}

// Sets every number of an object to `value` and every integer to `whole`; or asserts that all are null.
static void set_numbers(json_t *object, double value, json_int_t whole) {
  const char *key;
  json_t *item;
  json_object_foreach(object, key, item) {
    if (json_is_integer(item)) assert_int_equal(json_integer_set(item, whole), 0);
    if (json_is_real(item)) assert_int_equal(json_real_set(item, value), 0);
  }
}

static void no_numbers(const json_t *object) {
  const char *key;
  json_t *item;
  json_object_foreach((json_t *)object, key, item) {
    if (json_is_number(item)) fail_msg("%s is still a number", key);
  }
}

static json_t *part_of(json_t *root, int which) {
  static const char *const lists[] = {"gpus", "processes", "jobs"};
  return which == 3 ? json_object_get(root, "host")
                    : json_array_get(json_object_get(root, lists[which]), 0);
}

static void test_impossible_numbers_are_unknown(void **state) {
  (void)state;
  static const double values[] = {1e300, -1e300, -1000, 1e17};
  static const json_int_t wholes[] = {INT64_MAX, INT64_MIN, -1000, INT64_C(100000000000000000)};
  for (size_t n = 0; n < sizeof values / sizeof *values; n++) {
    brim_top_view view, back;
    json_t *json = NULL;
    top_view_make(&view, 1);
    brim_top_view_init(&back);
    assert_ok(brim_top_view_to_json(&view, &json));
    for (int i = 0; i < 4; i++) set_numbers(part_of(json, i), values[n], wholes[n]);
    assert_ok(brim_top_view_from_json(json, &back));
    json_decref(json);
    assert_true(back.jobs[0].metric == values[n]);  // a loss may have any value
    back.jobs[0].metric = NAN;
    assert_ok(brim_top_view_to_json(&back, &json));
    for (int i = 0; i < 4; i++) no_numbers(part_of(json, i));
    json_decref(json);
    brim_top_view_deinit(&view);
    brim_top_view_deinit(&back);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_view_survives_json),
      cmocka_unit_test(test_unknown_is_null),
      cmocka_unit_test(test_cores),
      cmocka_unit_test(test_wrong_values_are_refused),
      cmocka_unit_test(test_targets_follow_the_readings),
      cmocka_unit_test(test_ofu_is_tensor_activity_times_clock),
      cmocka_unit_test(test_hang_needs_time),
      cmocka_unit_test(test_gpus_are_found_by_uuid_or_index),
      cmocka_unit_test(test_allocations_may_fail),
      cmocka_unit_test(test_job_keeps_what_fits),
      cmocka_unit_test(test_findings_of_a_job_keep_their_values),
      cmocka_unit_test(test_impossible_numbers_are_unknown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
