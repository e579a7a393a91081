// The session with a fake CUPTI: sums, losses that are reported, and cleanup after a failure at any call.
#include <math.h>

#include "fake_cupti.h"

static brim_gpu_trace *open_fake(const brim_cupti_api *api) {
  brim_gpu_trace *trace = NULL;
  assert_ok(brim_gpu_trace_open_api(api, 0, &trace));
  return trace;
}

// Stops a trace from 1000 to `end`, with the queued records.
static brim_gpu_trace_sum stop_at(brim_gpu_trace *trace, uint64_t end) {
  brim_gpu_trace_sum sum;
  fake.now = end;
  assert_ok(brim_gpu_trace_stop(trace, &sum));
  return sum;
}

static void assert_ms(double ms, double ns) { assert_true(fabs(ms * 1e6 - ns) < 1e-6); }

static void assert_over(void) {
  assert_false(fake.subscribed);
  assert_false(fake_any_enabled());
  brim_alloc_stats stats;
  brim_alloc_get_stats(&stats);
  assert_int_equal(stats.live_blocks[BRIM_MEM_OVERHEAD], 0);
}

//---------------------------------- sums ----------------------------------

static void test_kernels_on_two_streams_count_once(void **state) {
  (void)state;
  brim_cupti_api api = fake_reset();
  brim_gpu_trace *trace = open_fake(&api);
  assert_ok(brim_gpu_trace_start(trace));
  fake_kernel(1100, 1300);
  fake_kernel(1200, 1400);  // beside the first
  fake_kernel(1250, 1260);  // within both
  fake_kernel(1400, 1450);  // right behind
  fake_kernel(1600, 1700);
  brim_gpu_trace_sum sum = stop_at(trace, 2000);
  assert_int_equal(sum.kernels, 5);
  assert_int_equal(sum.copies, 0);
  assert_ms(sum.wall_ms, 1000);
  assert_ms(sum.busy_ms, 450);
  assert_ms(sum.kernel_ms, 450);
  assert_int_equal(sum.dropped, 0);
  brim_gpu_trace_close(trace);
  assert_over();
}

static void test_copies_beside_kernels(void **state) {
  (void)state;
  brim_cupti_api api = fake_reset();
  brim_gpu_trace *trace = open_fake(&api);
  assert_ok(brim_gpu_trace_start(trace));
  fake_kernel(1100, 1200);
  fake_copy(BRIM_CUPTI_COPY_HTOD, 2, 3, 100, 1150, 1250);  // pinned, half hidden
  fake_copy(BRIM_CUPTI_COPY_HTOD, 1, 3, 30, 1300, 1340);   // pageable
  fake_copy(BRIM_CUPTI_COPY_DTOH, 3, 1, 8, 1400, 1402);    // into pageable memory
  fake_copy(BRIM_CUPTI_COPY_DTOH, 3, 2, 4, 1403, 1404);
  fake_copy(BRIM_CUPTI_COPY_DTOD, 3, 3, 5000, 1500, 1510);
  fake_copy(BRIM_CUPTI_COPY_PTOP, 3, 3, 6000, 1505, 1520);
  fake_copy(BRIM_CUPTI_COPY_HTOH, 1, 1, 7000, 1550, 1590);  // not work of the GPU
  fake_copy(0, 0, 0, 9, 1600, 1603);                        // the direction is unknown
  fake_memset(1700, 1706);
  brim_gpu_trace_sum sum = stop_at(trace, 2000);
  assert_int_equal(sum.kernels, 1);
  assert_int_equal(sum.copies, 7);
  assert_ms(sum.kernel_ms, 100);
  assert_ms(sum.h2d_ms, 140);
  assert_ms(sum.d2h_ms, 3);
  assert_ms(sum.d2d_ms, 25);
  assert_ms(sum.memset_ms, 6);
  assert_ms(sum.busy_ms, 150 + 40 + 3 + 20 + 3 + 6);
  assert_int_equal(sum.h2d_bytes, 130);
  assert_int_equal(sum.d2h_bytes, 12);
  assert_int_equal(sum.pageable_bytes, 38);
  assert_int_equal(sum.dropped, 0);
  brim_gpu_trace_close(trace);
  assert_over();
}

static void test_nothing_ran(void **state) {
  (void)state;
  brim_cupti_api api = fake_reset();
  brim_gpu_trace *trace = open_fake(&api);
  assert_ok(brim_gpu_trace_start(trace));
  brim_gpu_trace_sum sum = stop_at(trace, 1500);
  assert_ms(sum.wall_ms, 500);
  assert_ms(sum.busy_ms, 0);
  assert_int_equal(sum.kernels + sum.copies + sum.dropped, 0);
  // a machine's clock may be set back
  assert_ok(brim_gpu_trace_start(trace));
  sum = stop_at(trace, 100);
  assert_ms(sum.wall_ms, 0);
  brim_gpu_trace_close(trace);
  assert_over();
}

static void test_records_outside_do_not_count(void **state) {
  (void)state;
  brim_cupti_api api = fake_reset();
  brim_gpu_trace *trace = open_fake(&api);
  assert_ok(brim_gpu_trace_start(trace));
  fake_kernel(100, 999);
  fake_copy(BRIM_CUPTI_COPY_HTOD, 1, 3, 64, 500, 600);
  fake_kernel(900, 1010);   // counts from 1000 on
  fake_kernel(1990, 2500);  // counts up to 2000
  fake_kernel(2001, 2500);
  fake_memset(3000, 3001);
  brim_gpu_trace_sum sum = stop_at(trace, 2000);
  assert_int_equal(sum.kernels, 2);
  assert_int_equal(sum.copies, 0);
  assert_int_equal(sum.h2d_bytes + sum.pageable_bytes, 0);
  assert_ms(sum.busy_ms, 20);
  assert_ms(sum.memset_ms, 0);
  brim_gpu_trace_close(trace);
  assert_over();
}

static void test_other_kinds_are_passed_over(void **state) {
  (void)state;
  brim_cupti_api api = fake_reset();
  brim_gpu_trace *trace = open_fake(&api);
  assert_ok(brim_gpu_trace_start(trace));
  fake_add(38, 40);
  fake_kernel(1100, 1200);
  fake_add(1234567, 40);  // a record kind of a later library
  fake_kernel(1300, 1400);
  fake_add(-1, 40);
  brim_gpu_trace_sum sum = stop_at(trace, 2000);
  assert_int_equal(sum.kernels, 2);
  assert_int_equal(sum.dropped, 0);
  assert_ms(sum.busy_ms, 200);
  brim_gpu_trace_close(trace);
  assert_over();
}

// Kernels start every 2 ns and last 5: everything is one interval.
static void test_buffers_in_any_order(void **state) {
  (void)state;
  for (int way = 0; way < 4; way++) {
    brim_cupti_api api = fake_reset();
    fake.per_buffer = 7;
    fake.backwards = way & 1;
    fake.threads = way & 2;
    brim_gpu_trace *trace = open_fake(&api);
    assert_ok(brim_gpu_trace_start(trace));
    for (uint64_t i = 0; i < 300; i++) fake_kernel(1000 + 2 * i, 1005 + 2 * i);
    fake_deliver();  // some arrive before they are asked for
    for (uint64_t i = 0; i < 300; i++) fake_kernel(2000 + 2 * i, 2005 + 2 * i);
    brim_gpu_trace_sum sum = stop_at(trace, 9000);
    assert_int_equal(sum.kernels, 600);
    assert_ms(sum.busy_ms, 2 * (299 * 2 + 5));
    assert_int_equal(sum.dropped, 0);
    brim_gpu_trace_close(trace);
    assert_over();
  }
}

static void *deliver_some(void *ctx) {
  (void)ctx;
  for (int round = 0; round < 50; round++) {
    uint8_t *buffer = NULL;
    size_t size = 0, max_records = 0, valid = 0;
    fake.request(&buffer, &size, &max_records);
    for (int i = 0; i < 40; i++, valid += 216) {
      const brim_cupti_kernel k = {
          .kind = BRIM_CUPTI_KIND_CONCURRENT_KERNEL, .start = 1100, .end = 1200};
      memcpy(buffer + valid, &k, sizeof k);
    }
    fake.complete(NULL, 0, buffer, size, valid);
  }
  return NULL;
}

// Several threads of the library at once, while this one starts and stops.
static void test_callbacks_come_on_other_threads(void **state) {
  (void)state;
  brim_cupti_api api = fake_reset();
  brim_gpu_trace *trace = open_fake(&api);
  assert_ok(brim_gpu_trace_start(trace));
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, deliver_some, NULL);
  brim_gpu_trace_sum sum = stop_at(trace, 2000);
  assert_true(sum.kernels <= 4 * 50 * 40);
  assert_ok(brim_gpu_trace_start(trace));
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  sum = stop_at(trace, 3000);
  assert_true(sum.busy_ms >= 0);
  // all records are inside
  fake.now = 1000;
  assert_ok(brim_gpu_trace_start(trace));
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, deliver_some, NULL);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  sum = stop_at(trace, 2000);
  assert_int_equal(sum.kernels, 4 * 50 * 40);
  assert_ms(sum.busy_ms, 100);
  brim_gpu_trace_close(trace);
  assert_over();
}

static void test_windows_are_apart(void **state) {
  (void)state;
  brim_cupti_api api = fake_reset();
  brim_gpu_trace *trace = open_fake(&api);
  fake.dropped = 11;  // before the first session
  assert_ok(brim_gpu_trace_start(trace));
  fake_kernel(1100, 1200);
  fake.dropped += 2;
  brim_gpu_trace_sum sum = stop_at(trace, 2000);
  assert_int_equal(sum.kernels, 1);
  assert_int_equal(sum.dropped, 2);
  assert_false(fake_any_enabled());
  fake_kernel(2100, 2200);  // between the two sessions
  fake_deliver();
  assert_ok(brim_gpu_trace_start(trace));
  fake_kernel(2300, 2350);
  sum = stop_at(trace, 3000);
  assert_int_equal(sum.kernels, 1);
  assert_ms(sum.wall_ms, 1000);
  assert_ms(sum.busy_ms, 50);
  assert_int_equal(sum.dropped, 0);
  brim_gpu_trace_close(trace);
  assert_over();
}

//---------------------------------- losses ----------------------------------

static void test_losses_are_counted(void **state) {
  (void)state;
  brim_cupti_api api = fake_reset();
  brim_gpu_trace *trace = open_fake(&api);
  assert_ok(brim_gpu_trace_start(trace));
  fake_kernel(1100, 1200);
  fake_kernel(0, 0);        // without a time from the library
  fake_kernel(1400, 1300);  // ends before it starts
  fake_copy(BRIM_CUPTI_COPY_HTOD, 2, 3, 10, 0, 0);
  fake.dropped = 5;
  fake.incomplete = true;
  brim_gpu_trace_sum sum = stop_at(trace, 2000);
  assert_int_equal(sum.kernels, 1);
  assert_int_equal(sum.copies, 0);
  assert_int_equal(sum.dropped, 3 + 5 + 1);
  assert_ms(sum.busy_ms, 100);
  brim_gpu_trace_close(trace);
  assert_over();
}

static void test_memory_is_bounded(void **state) {
  (void)state;
  brim_cupti_api api = fake_reset();
  brim_gpu_trace *trace = NULL;
  assert_ok(brim_gpu_trace_open_api(&api, 10, &trace));
  for (int round = 0; round < 2; round++) {
    fake.now = 1000;
    assert_ok(brim_gpu_trace_start(trace));
    for (uint64_t i = 0; i < 25; i++) fake_kernel(1100 + 10 * i, 1101 + 10 * i);
    brim_gpu_trace_sum sum = stop_at(trace, 2000);
    assert_int_equal(sum.kernels, 10);
    assert_int_equal(sum.dropped, 15);
  }
  brim_gpu_trace_close(trace);
  assert_over();
}

// Asks for more buffers than a trace gives out. A library version that does not survive a refusal gets them all.
static size_t buffers_out(uint32_t version) {
  enum { ASKED = 100 };
  brim_cupti_api api = fake_reset();
  fake.version = version;
  brim_gpu_trace *trace = open_fake(&api);
  assert_ok(brim_gpu_trace_start(trace));
  uint8_t *buffers[ASKED];
  size_t size, max_records, got = 0;
  for (int i = 0; i < ASKED; i++) {
    fake.request(&buffers[i], &size, &max_records);
    assert_int_equal(buffers[i] != NULL, size > 0);
    got += buffers[i] != NULL;
  }
  for (int i = 0; i < ASKED; i++) {
    if (buffers[i]) fake.complete(NULL, 0, buffers[i], 1 << 20, 0);
  }
  uint8_t *again = NULL;
  fake.request(&again, &size, &max_records);
  assert_non_null(again);
  fake.complete(NULL, 0, again, size, 0);
  brim_gpu_trace_sum sum = stop_at(trace, 2000);
  assert_int_equal(sum.dropped, 0);
  brim_gpu_trace_close(trace);
  assert_over();
  return got;
}

static void test_buffers_are_bounded(void **state) {
  (void)state;
  assert_int_equal(buffers_out(130001), 64);
  assert_int_equal(buffers_out(27), 64);
  assert_int_equal(buffers_out(26), 100);
}

static void test_out_of_host_memory(void **state) {
  (void)state;
  brim_cupti_api api = fake_reset();
  brim_gpu_trace *trace = NULL;
  brim_alloc_fail_nth(1, 0);
  assert_status(brim_gpu_trace_open_api(&api, 0, &trace), BRIM_ENOMEM);
  assert_null(trace);
  trace = open_fake(&api);
  assert_ok(brim_gpu_trace_start(trace));
  for (uint64_t i = 0; i < 5; i++) fake_kernel(1100 + 10 * i, 1101 + 10 * i);
  brim_alloc_fail_nth(1, 0);  // the buffer
  brim_gpu_trace_sum sum = stop_at(trace, 2000);
  assert_int_equal(sum.kernels, 0);
  assert_int_equal(sum.dropped, 5);
  fake.now = 1000;
  assert_ok(brim_gpu_trace_start(trace));
  for (uint64_t i = 0; i < 5; i++) fake_kernel(1100 + 10 * i, 1101 + 10 * i);
  brim_alloc_fail_nth(2, 0);  // the array of records, once
  sum = stop_at(trace, 2000);
  assert_int_equal(sum.kernels, 4);
  assert_int_equal(sum.dropped, 1);
  brim_alloc_fail_nth(0, 0);
  brim_gpu_trace_close(trace);
  assert_over();
}

//---------------------------------- order of calls ----------------------------------

static void test_what_is_asked_of_the_library(void **state) {
  (void)state;
  brim_cupti_api api = fake_reset();
  brim_gpu_trace *trace = open_fake(&api);
  assert_true(fake.pool_limit > 3 && fake.pool_limit <= 16);
  assert_ok(brim_gpu_trace_start(trace));
  for (int kind = 0; kind < FAKE_KINDS; kind++) {
    bool wanted = kind == BRIM_CUPTI_KIND_MEMCPY || kind == BRIM_CUPTI_KIND_MEMCPY2 ||
                  kind == BRIM_CUPTI_KIND_MEMSET || kind == BRIM_CUPTI_KIND_CONCURRENT_KERNEL;
    assert_int_equal(fake.enabled[kind], wanted);
  }
  stop_at(trace, 2000);
  brim_gpu_trace_close(trace);
  assert_over();
}

static void test_states(void **state) {
  (void)state;
  brim_cupti_api api = fake_reset();
  brim_gpu_trace *trace = open_fake(&api);
  brim_gpu_trace_sum sum;
  assert_status(brim_gpu_trace_stop(trace, &sum), BRIM_ESTATE);
  assert_true(isnan(sum.wall_ms) && isnan(sum.busy_ms) && isnan(sum.memset_ms));
  assert_ok(brim_gpu_trace_start(trace));
  assert_status(brim_gpu_trace_start(trace), BRIM_ESTATE);
  fake_kernel(1100, 1200);
  sum = stop_at(trace, 2000);  // the first start is still valid
  assert_int_equal(sum.kernels, 1);
  assert_status(brim_gpu_trace_stop(trace, &sum), BRIM_ESTATE);
  brim_gpu_trace_close(trace);
  brim_gpu_trace_close(NULL);
  assert_over();
}

static void test_one_session_at_a_time(void **state) {
  (void)state;
  brim_cupti_api api = fake_reset();
  brim_gpu_trace *first = open_fake(&api), *second = first;
  int subscribed = fake.calls[FAKE_SUBSCRIBE];
  assert_status(brim_gpu_trace_open_api(&api, 0, &second), BRIM_EUNSUPPORTED);
  assert_null(second);
  assert_non_null(strstr(brim_status_detail(), "already tracing"));
  assert_int_equal(fake.calls[FAKE_SUBSCRIBE], subscribed);
  assert_ok(brim_gpu_trace_start(first));  // undisturbed
  fake_kernel(1100, 1200);
  assert_int_equal(stop_at(first, 2000).kernels, 1);
  brim_gpu_trace_close(first);
  second = open_fake(&api);
  brim_gpu_trace_close(second);
  assert_over();
}

static void test_close_while_started(void **state) {
  (void)state;
  brim_cupti_api api = fake_reset();
  brim_gpu_trace *trace = open_fake(&api);
  assert_ok(brim_gpu_trace_start(trace));
  fake_kernel(1100, 1200);
  brim_gpu_trace_close(trace);
  assert_int_equal(fake.count, 0);  // the library returned its buffers
  assert_over();
}

// The library may still hold a buffer, or ask for one, after the session.
static void test_callbacks_after_closing(void **state) {
  (void)state;
  brim_cupti_api api = fake_reset();
  brim_gpu_trace *trace = open_fake(&api);
  assert_ok(brim_gpu_trace_start(trace));
  uint8_t *held = NULL, *late = NULL;
  size_t size = 0, max_records = 0;
  const brim_cupti_kernel k = {
      .kind = BRIM_CUPTI_KIND_CONCURRENT_KERNEL, .start = 1100, .end = 1200};
  fake.request(&held, &size, &max_records);
  assert_true(size >= 216);
  memcpy(held, &k, sizeof k);
  brim_gpu_trace_close(trace);
  fake.complete(NULL, 0, held, size, 216);
  fake.request(&late, &size, &max_records);
  assert_non_null(late);
  memcpy(late, &k, sizeof k);
  trace = open_fake(&api);  // the next session has not asked for this buffer
  fake.complete(NULL, 0, late, size, 216);
  fake.complete(NULL, 0, NULL, 0, 0);
  fake.now = 1000;
  assert_ok(brim_gpu_trace_start(trace));
  assert_int_equal(stop_at(trace, 2000).kernels, 0);
  brim_gpu_trace_close(trace);
  assert_over();
}

//---------------------------------- failures ----------------------------------

static const struct {
  fake_call call;
  int skip;  // calls that succeed first
  int at;    // fails in: 0 open, 1 start, 2 stop, 3 nothing
  const char *says;
} failing_calls[] = {
    {FAKE_VERSION, 0, 0, "cuptiGetVersion"},
    {FAKE_SUBSCRIBE, 0, 0, "cuptiSubscribe"},
    {FAKE_SET_ATTRIBUTE, 0, 3, NULL},
    {FAKE_REGISTER, 0, 0, "cuptiActivityRegisterCallbacks"},
    {FAKE_ENABLE, 0, 1, "cuptiActivityEnable"},
    {FAKE_ENABLE, 1, 1, "cuptiActivityEnable"},
    {FAKE_ENABLE, 2, 1, "cuptiActivityEnable"},
    {FAKE_ENABLE, 3, 3, NULL},  // not every library has copies between GPUs
    {FAKE_TIMESTAMP, 0, 1, "cuptiGetTimestamp"},
    {FAKE_TIMESTAMP, 1, 2, "cuptiGetTimestamp"},
    {FAKE_FLUSH, 0, 2, "cuptiActivityFlushAll"},
    {FAKE_FLUSH, 1, 2, "cuptiActivityFlushAll"},  // the forced flush decides
    {FAKE_DISABLE, 0, 2, "cuptiActivityDisable"},
    {FAKE_DROPPED, 0, 3, NULL},
    {FAKE_UNSUBSCRIBE, 0, 3, NULL},
};

static void test_a_failure_at_each_call(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof failing_calls / sizeof *failing_calls; i++) {
    brim_cupti_api api = fake_reset();
    fake.code[failing_calls[i].call] = 7;
    fake.skip[failing_calls[i].call] = failing_calls[i].skip;
    brim_gpu_trace *trace = NULL;
    brim_gpu_trace_sum sum;
    brim_status status = brim_gpu_trace_open_api(&api, 0, &trace);
    assert_int_equal(status != BRIM_OK, failing_calls[i].at == 0);
    assert_int_equal(trace == NULL, failing_calls[i].at == 0);
    if (!status) {
      status = brim_gpu_trace_start(trace);
      assert_int_equal(status != BRIM_OK, failing_calls[i].at == 1);
      assert_int_equal(fake_any_enabled(), failing_calls[i].at != 1);
    }
    if (!status) {
      fake_kernel(1100, 1200);
      fake.now = 2000;
      status = brim_gpu_trace_stop(trace, &sum);
      assert_int_equal(status != BRIM_OK, failing_calls[i].at == 2);
      assert_int_equal(isnan(sum.busy_ms) != 0, failing_calls[i].at == 2);
      if (!status) assert_int_equal(sum.kernels, 1);
      assert_false(fake_any_enabled());
    }
    if (status) {
      assert_int_equal(status, BRIM_EUNSUPPORTED);
      if (!strstr(brim_status_detail(), failing_calls[i].says) ||
          !strstr(brim_status_detail(), "(7)")) {
        fail_msg("case %zu: %s", i, brim_status_detail());
      }
    }
    brim_gpu_trace_close(trace);
    assert_over();

    // the next session works, whichever call failed
    api = fake_reset();
    trace = open_fake(&api);
    assert_ok(brim_gpu_trace_start(trace));
    fake_kernel(1100, 1200);
    assert_int_equal(stop_at(trace, 2000).kernels, 1);
    brim_gpu_trace_close(trace);
    assert_over();
  }
}

static void test_failures_say_what_to_do(void **state) {
  (void)state;
  static const struct {
    fake_call call;
    int code;
    const char *other;
    brim_status status;
    const char *says;
  } cases[] = {
      {FAKE_SUBSCRIBE, 39, NULL, BRIM_EUNSUPPORTED, "another tool is tracing"},
      {FAKE_SUBSCRIBE, 39, "Nsight Systems 2026", BRIM_EUNSUPPORTED, "(Nsight Systems 2026)"},
      {FAKE_SUBSCRIBE, 15, NULL, BRIM_EUNSUPPORTED, "driver"},
      {FAKE_SUBSCRIBE, 999, NULL, BRIM_EUNSUPPORTED, "driver"},
      {FAKE_SUBSCRIBE, 14, NULL, BRIM_EUNSUPPORTED, "at least as new"},
      {FAKE_SUBSCRIBE, 35, NULL, BRIM_EUNSUPPORTED, "root"},
      {FAKE_ENABLE, 35, NULL, BRIM_EUNSUPPORTED, "NVreg_RestrictProfilingToAdminUsers=0"},
      {FAKE_ENABLE, 40, NULL, BRIM_EUNSUPPORTED, "run as root"},
      {FAKE_ENABLE, 39, NULL, BRIM_EUNSUPPORTED, "another tool"},
      {FAKE_ENABLE, 8, NULL, BRIM_EOOM, "10 MB"},
      {FAKE_ENABLE, 43, NULL, BRIM_EUNSUPPORTED, "CUPTI_ERROR_FAKE (43)"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    brim_cupti_api api = fake_reset();
    fake.code[cases[i].call] = cases[i].code;
    fake.other = cases[i].other;
    brim_gpu_trace *trace = NULL;
    brim_status status = brim_gpu_trace_open_api(&api, 0, &trace);
    if (!status) status = brim_gpu_trace_start(trace);
    assert_int_equal(status, cases[i].status);
    if (!strstr(brim_status_detail(), cases[i].says)) {
      fail_msg("case %zu: '%s' does not say '%s'", i, brim_status_detail(), cases[i].says);
    }
    // our attempt does not end another tool's session
    brim_gpu_trace_close(trace);
    assert_over();
  }
}

static void test_too_old(void **state) {
  (void)state;
  brim_cupti_api api = fake_reset();
  fake.version = 17;
  brim_gpu_trace *trace = NULL;
  assert_status(brim_gpu_trace_open_api(&api, 0, &trace), BRIM_EUNSUPPORTED);
  assert_non_null(strstr(brim_status_detail(), "too old"));
  assert_non_null(strstr(brim_status_detail(), "11.8"));
  assert_int_equal(fake.calls[FAKE_SUBSCRIBE], 0);
  assert_over();
}

static void test_optional_calls_may_be_missing(void **state) {
  (void)state;
  brim_cupti_api api = fake_reset();
  api.result_string = NULL;
  api.subscribe_v2 = NULL;
  api.set_attribute = NULL;
  api.dropped = NULL;
  brim_gpu_trace *trace = open_fake(&api);
  assert_ok(brim_gpu_trace_start(trace));
  fake_kernel(1100, 1200);
  brim_gpu_trace_sum sum = stop_at(trace, 2000);
  assert_int_equal(sum.kernels, 1);
  assert_int_equal(sum.dropped, 0);
  fake.code[FAKE_ENABLE] = 7;
  assert_status(brim_gpu_trace_start(trace), BRIM_EUNSUPPORTED);
  assert_non_null(strstr(brim_status_detail(), "(7)"));
  brim_gpu_trace_close(trace);
  fake.code[FAKE_SUBSCRIBE] = 39;
  assert_status(brim_gpu_trace_open_api(&api, 0, &trace), BRIM_EUNSUPPORTED);
  assert_over();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_kernels_on_two_streams_count_once),
      cmocka_unit_test(test_copies_beside_kernels),
      cmocka_unit_test(test_nothing_ran),
      cmocka_unit_test(test_records_outside_do_not_count),
      cmocka_unit_test(test_other_kinds_are_passed_over),
      cmocka_unit_test(test_buffers_in_any_order),
      cmocka_unit_test(test_callbacks_come_on_other_threads),
      cmocka_unit_test(test_windows_are_apart),
      cmocka_unit_test(test_losses_are_counted),
      cmocka_unit_test(test_memory_is_bounded),
      cmocka_unit_test(test_buffers_are_bounded),
      cmocka_unit_test(test_out_of_host_memory),
      cmocka_unit_test(test_what_is_asked_of_the_library),
      cmocka_unit_test(test_states),
      cmocka_unit_test(test_one_session_at_a_time),
      cmocka_unit_test(test_close_while_started),
      cmocka_unit_test(test_callbacks_after_closing),
      cmocka_unit_test(test_a_failure_at_each_call),
      cmocka_unit_test(test_failures_say_what_to_do),
      cmocka_unit_test(test_too_old),
      cmocka_unit_test(test_optional_calls_may_be_missing),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
