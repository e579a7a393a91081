// CUPTI's records as events: readable names, streams, the host's waits, and times by the host's clock.
#include "fake_cupti.h"

static void same_name(const char *plain, const char *expected) {
  char out[64];
  brim_kernel_name(plain, out, sizeof out);
  assert_string_equal(out, expected);
}

static void test_names_for_people(void **state) {
  (void)state;
  same_name("nvjet_tst_128x128_64x4_1x2_h_bz_coopA", "nvjet_tst_128x128_64x4_1x2_h_bz_coopA");
  same_name("void copy_rows<float, 4>(float const*, float*)", "copy_rows<float, 4>");
  same_name("ns::k<(anonymous namespace)::op>(int)", "ns::k<(anonymous namespace)::op>");
  same_name("void f(void (*)(int))", "f");
  same_name("(int)", "(int)");
  same_name("", "");
  char out[8];
  brim_kernel_name("a_rather_long_name(int)", out, sizeof out);
  assert_string_equal(out, "a_rathe");
}

static char *upper(const char *name, char *buffer, size_t *size, int *status) {
  (void)buffer;
  (void)size;
  *status = strcmp(name, "_Zbad") == 0 ? -2 : 0;
  if (*status) return NULL;
  char *plain = malloc(32);
  assert_non_null(plain);
  snprintf(plain, 32, "void plain_%s(int)", name + 2);
  return plain;
}

static void test_cxx_names(void **state) {
  (void)state;
  brim_trace t;
  brim_trace_init(&t);
  assert_string_equal(brim_cupti_plain_name(upper, "_Zx", &t), "plain_x");
  assert_string_equal(brim_cupti_plain_name(upper, "_Zbad", &t), "_Zbad");
  assert_string_equal(brim_cupti_plain_name(upper, "gemm", &t), "gemm");
  assert_string_equal(brim_cupti_plain_name(NULL, "_Zx", &t), "_Zx");
  brim_trace_deinit(&t);
}

static brim_gpu_trace *open_detailed(brim_cupti_api *api) {
  brim_gpu_trace *trace = NULL;
  *api = fake_reset();
  assert_ok(brim_gpu_trace_open_api(api, 0, &trace));
  brim_gpu_trace_keep_details(trace, true);
  return trace;
}

static void test_records_become_events(void **state) {
  (void)state;
  brim_cupti_api api;
  brim_gpu_trace_sum sum;
  brim_trace t;
  brim_gpu_trace *trace = open_detailed(&api);
  brim_time begin = brim_clock_now();
  assert_ok(brim_gpu_trace_start(trace));
  assert_true(fake.enabled[BRIM_CUPTI_KIND_SYNCHRONIZATION]);
  char name[] = "gemm_one";
  fake_named_kernel(name, 7, 41, 1500, 1800);
  fake_copy(BRIM_CUPTI_COPY_HTOD, 1, 3, 64, 1200, 1300);
  fake_memset(1350, 1360);
  fake_sync(3, 1400, 1900);
  fake_sync(BRIM_CUPTI_SYNC_STREAM_WAIT_EVENT, 1400, 1900);  // not a wait of the host
  fake_named_kernel(name, 7, 41, 500, 600);                  // before the window
  fake.now = 2000;
  assert_ok(brim_gpu_trace_stop(trace, &sum));
  memset(name, 'x', sizeof name - 1);  // the library owns the name, so the trace must have a copy
  assert_int_equal(sum.kernels, 1);
  brim_trace_init(&t);
  assert_ok(brim_gpu_trace_events(trace, begin, &t));
  assert_int_equal(t.count, 4);
  const brim_trace_kind kinds[] = {BRIM_TRACE_COPY, BRIM_TRACE_MEMSET, BRIM_TRACE_SYNC,
                                   BRIM_TRACE_KERNEL};
  const int64_t starts[] = {1200, 1350, 1400, 1500}, ends[] = {1300, 1360, 1900, 1800};
  // the window starts at the library's 1000, after `begin` on the host
  int64_t shift = t.events[0].start_ns - 1200;
  assert_true(shift + 1000 >= 0);
  for (int i = 0; i < 4; i++) {
    assert_int_equal(t.events[i].kind, kinds[i]);
    assert_int_equal(t.events[i].start_ns - shift, starts[i]);
    assert_int_equal(t.events[i].end_ns - shift, ends[i]);
  }
  assert_true(t.events[0].pageable);
  assert_int_equal(t.events[0].copy, BRIM_TRACE_COPY_H2D);
  assert_int_equal(t.events[0].bytes, 64);
  assert_int_equal(t.events[2].device, -1);
  const brim_trace_event *kernel = &t.events[3];
  assert_string_equal(kernel->name, "gemm_one");
  assert_int_equal(kernel->device, 0);
  assert_int_equal(kernel->stream, 7);
  assert_int_equal(kernel->correlation, 41);
  assert_int_equal(kernel->grid[0] * kernel->block[0], 512);
  // the next window begins empty
  assert_ok(brim_gpu_trace_start(trace));
  assert_status(brim_gpu_trace_events(trace, begin, &t), BRIM_ESTATE);
  assert_ok(brim_gpu_trace_stop(trace, &sum));
  brim_trace_deinit(&t);
  assert_ok(brim_gpu_trace_events(trace, begin, &t));
  assert_int_equal(t.count, 0);
  brim_trace_deinit(&t);
  brim_gpu_trace_close(trace);
}

static void test_what_does_not_fit_is_counted(void **state) {
  (void)state;
  brim_cupti_api api = fake_reset();
  brim_gpu_trace_sum sum;
  brim_gpu_trace *trace = NULL;
  assert_ok(brim_gpu_trace_open_api(&api, 3, &trace));
  brim_gpu_trace_keep_details(trace, true);
  assert_ok(brim_gpu_trace_start(trace));
  for (uint64_t i = 0; i < 3; i++) fake_named_kernel("k", 7, 1, 1100 + i, 1101 + i);
  fake_sync(3, 1400, 1900);  // only details contain it
  fake.now = 2000;
  assert_ok(brim_gpu_trace_stop(trace, &sum));
  assert_int_equal(sum.kernels, 3);
  assert_int_equal(sum.dropped, 1);
  brim_gpu_trace_close(trace);
}

static void test_without_details_nothing_is_read(void **state) {
  (void)state;
  brim_cupti_api api;
  brim_gpu_trace_sum sum;
  brim_trace t;
  brim_gpu_trace *trace = open_detailed(&api);
  brim_gpu_trace_keep_details(trace, false);
  assert_ok(brim_gpu_trace_start(trace));
  assert_false(fake.enabled[BRIM_CUPTI_KIND_SYNCHRONIZATION]);
  fake_kernel(1100, 1200);  // a record without details, whose name is noise
  fake.now = 2000;
  assert_ok(brim_gpu_trace_stop(trace, &sum));
  assert_int_equal(sum.kernels, 1);
  brim_trace_init(&t);
  assert_ok(brim_gpu_trace_events(trace, brim_clock_now(), &t));
  assert_int_equal(t.count, 0);
  brim_trace_deinit(&t);
  brim_gpu_trace_close(trace);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_names_for_people),
      cmocka_unit_test(test_cxx_names),
      cmocka_unit_test(test_records_become_events),
      cmocka_unit_test(test_what_does_not_fit_is_counted),
      cmocka_unit_test(test_without_details_nothing_is_read),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
