// Opening devices by spec, and the wrappers with their defaults: on ref (nothing optional) and on a plug-in with
// streams and events.
#include "backend/backend.h"
#include "backend/plugin_toy.h"
#include "base/base.h"
#include "test.h"

#define PLUGINS BRIM_BUILD_DIR "/tests/plugins"

static brim_registry *load(const char *folder) {
  brim_registry *r;
  assert_ok(brim_registry_create(&r));
  if (folder) assert_ok(brim_registry_load_folder(r, folder));
  return r;
}

static void assert_open_fails(const brim_registry *r, const char *spec, brim_status status,
                              const char *says) {
  brim_device *device = (brim_device *)(uintptr_t)1;
  brim_status_clear();
  assert_status(brim_device_open(r, spec, NULL, &device), status);
  assert_null(device);
  if (!strstr(brim_status_detail(), says)) {
    fail_msg("%s: '%s' does not say '%s'", spec, brim_status_detail(), says);
  }
}

static void test_specs(void **state) {
  (void)state;
  brim_registry *r = load(PLUGINS "/good");
  brim_device *device;
  assert_ok(brim_device_open(r, "ref", NULL, &device));
  assert_string_equal(device->backend->name, "ref");
  assert_true(device->info.host_memory && device->info.total_bytes > 0);
  assert_int_equal(device->info.threads, 1);
  assert_null(device->stream);
  brim_device_close(device);
  assert_ok(brim_device_open(r, "auto", NULL, &device));  // neither cuda nor cpu is here
  assert_string_equal(device->backend->name, "ref");
  brim_device_close(device);
  assert_ok(brim_device_open(r, "ref:0", NULL, &device));
  brim_device_close(device);
  assert_ok(brim_device_open(r, "toy:1", &(brim_device_options){.threads = 3}, &device));
  assert_int_equal(device->info.threads, 3);
  brim_device_close(device);
  brim_device_close(NULL);
  assert_open_fails(r, "ref:1", BRIM_ENOENT, "cannot use ref:1: the devices are ref:0 to ref:0");
  assert_open_fails(r, "toy:2", BRIM_ENOENT, "toy:0 to toy:1");
  assert_open_fails(r, "ref:x", BRIM_EINVAL, "'x' is not a device number");
  assert_open_fails(r, "ref:-1", BRIM_EINVAL, "not a device number");
  assert_open_fails(r, "ref:", BRIM_EINVAL, "not a device number");
  assert_open_fails(r, "auto:1", BRIM_EINVAL, "auto takes no number; write cuda:1");
  assert_open_fails(r, "", BRIM_EINVAL, "choose auto, ref, cpu or cuda");
  assert_open_fails(r, ":0", BRIM_EINVAL, "choose auto, ref, cpu or cuda");
  assert_open_fails(r, "cudaa", BRIM_EINVAL, "did you mean cuda?");
  assert_open_fails(r, "abacus", BRIM_EINVAL, "choose auto, ref, cpu or cuda");
  assert_open_fails(r, "declines", BRIM_ENOENT,
                    "cannot use declines: libtoy.so.1 not found; run with --device ref");
  assert_open_fails(r, "cpu", BRIM_ENOENT, "libbrim_cpu.so was not found");
  brim_device_options broken = {.workspace_cap = 13};
  assert_status(brim_device_open(r, "toy", &broken, &device), BRIM_EDEVICE);
  assert_non_null(strstr(brim_status_detail(), "device toy:0: the toy is broken"));
  brim_registry_destroy(r);
}

static void test_missing_cuda(void **state) {
  (void)state;
  brim_registry *r = load(NULL);
  assert_open_fails(r, "cuda", BRIM_ENOENT, "cannot use cuda: its plug-in libbrim_cuda.so was");
  assert_open_fails(r, "cuda", BRIM_ENOENT, "build brim with CUDA");
  assert_open_fails(r, "cuda:1", BRIM_ENOENT, "run with --device cpu");
  brim_registry_destroy(r);
  r = load(PLUGINS "/third");  // a plug-in that has no driver
  assert_open_fails(r, "cuda", BRIM_ENOENT,
                    "cannot use cuda: libtoy.so.1 not found; run with --device cpu");
  brim_registry_destroy(r);
  r = load(PLUGINS "/second");  // a driver that has no device
  assert_open_fails(r, "cuda", BRIM_ENOENT, "cannot use cuda: no such device found");
  brim_device *device;
  assert_ok(brim_device_open(r, "auto", NULL, &device));
  assert_string_equal(device->backend->name, "ref");
  brim_device_close(device);
  brim_registry_destroy(r);
}

static void test_ref_memory(void **state) {
  (void)state;
  brim_registry *r = load(NULL);
  brim_device *device;
  brim_alloc_stats before, with;
  assert_ok(brim_device_open(r, "ref", NULL, &device));
  uint64_t available = 0, total = 0;
  assert_ok(brim_device_memory(device, &available, &total));
  assert_true(available > 0 && available <= total);
  void *a, *b;
  brim_alloc_get_stats(&before);
  assert_ok(brim_device_alloc(device, BRIM_BUFFER_DEVICE, 300, &a));
  assert_ok(brim_device_alloc(device, BRIM_BUFFER_HOST, 300, &b));
  brim_alloc_get_stats(&with);
  assert_int_equal(with.live_bytes[BRIM_MEM_PLANNED] - before.live_bytes[BRIM_MEM_PLANNED], 600);
  assert_int_equal((uintptr_t)a % 64, 0);
  assert_ok(brim_device_fill(device, a, 7, 300));
  assert_ok(brim_device_copy(device, b, a, 300, BRIM_COPY_D2H));
  assert_int_equal(((unsigned char *)b)[299], 7);
  assert_ok(brim_device_copy(device, NULL, NULL, 0, BRIM_COPY_H2D));
  assert_ok(brim_device_sync(device));
  brim_device_free(device, BRIM_BUFFER_DEVICE, a);
  brim_device_free(device, BRIM_BUFFER_HOST, b);
  brim_device_free(device, BRIM_BUFFER_HOST, NULL);
  // Out of memory is a status with the size in its detail.
  brim_alloc_fail_nth(1, 0);
  assert_status(brim_device_alloc(device, BRIM_BUFFER_DEVICE, 1024, &a), BRIM_EOOM);
  assert_non_null(strstr(brim_status_detail(), "KiB"));
  assert_null(a);
  brim_alloc_fail_nth(0, 0);
  brim_device_close(device);
  brim_registry_destroy(r);
}

static void test_ref_events(void **state) {
  (void)state;
  brim_registry *r = load(NULL);
  brim_device *device;
  brim_event *start, *end;
  int64_t ns = -1;
  assert_ok(brim_device_open(r, "ref", NULL, &device));
  assert_ok(brim_event_create(device, &start));
  assert_ok(brim_event_create(device, &end));
  assert_ok(brim_event_record(device, start));
  assert_status(brim_event_elapsed(device, start, end, &ns), BRIM_ESTATE);
  brim_clock_sleep_ns(2000000);
  assert_ok(brim_event_record(device, end));
  assert_ok(brim_event_elapsed(device, start, end, &ns));
  assert_true(ns >= 2000000);
  brim_event_destroy(device, start);
  brim_event_destroy(device, end);
  brim_event_destroy(device, NULL);
  brim_device_close(device);
  brim_registry_destroy(r);
}

static void test_streams(void **state) {
  (void)state;
  brim_registry *r = load(PLUGINS "/good");
  const toy_counters *counters = brim_registry_extension(r, "stream.counters");
  assert_non_null(counters);
  brim_device *device;
  brim_event *a, *b;
  int64_t ns = 0;
  assert_ok(brim_device_open(r, "stream", NULL, &device));
  assert_int_equal(counters->streams, 2);  // the main one and the one for copies
  assert_non_null(device->stream);
  assert_ok(brim_device_sync(device));
  assert_int_equal(counters->syncs, 1);
  assert_ok(brim_event_create(device, &a));
  assert_ok(brim_event_create(device, &b));
  assert_int_equal(counters->events, 2);
  assert_ok(brim_event_record(device, a));
  assert_ok(brim_event_record(device, b));
  assert_ok(brim_event_elapsed(device, a, b, &ns));
  assert_int_equal(ns, 1000);
  brim_event_destroy(device, a);
  brim_event_destroy(device, b);
  brim_device_close(device);
  assert_int_equal(counters->streams, 0);
  assert_int_equal(counters->events, 0);
  assert_int_equal(counters->devices_open, 0);
  brim_registry_destroy(r);
}

static void test_waits(void **state) {
  (void)state;
  brim_registry *r = load(PLUGINS "/good");
  const toy_counters *counters = brim_registry_extension(r, "stream.counters");
  brim_device *device;
  brim_event *event;
  assert_ok(brim_device_open(r, "stream", NULL, &device));
  assert_ok(brim_event_create(device, &event));
  assert_ok(brim_event_sync(device, event));  // nothing was recorded: nothing to wait for
  assert_ok(brim_event_wait(device, event));
  assert_int_equal(counters->event_syncs + counters->waits, 0);
  assert_ok(brim_event_record_copy(device, event));
  assert_ok(brim_event_sync(device, event));
  assert_ok(brim_event_wait(device, event));
  assert_int_equal(counters->event_syncs, 1);
  assert_int_equal(counters->waits, 1);
  brim_event_destroy(device, event);
  brim_device_close(device);
  brim_registry_destroy(r);
}

static void test_graphs(void **state) {
  (void)state;
  brim_registry *r = load(PLUGINS "/good");
  const toy_counters *counters = brim_registry_extension(r, "stream.counters");
  brim_device *device;
  brim_graph_exec *graph = NULL;
  char *text = NULL;
  assert_ok(brim_device_open(r, "stream", NULL, &device));
  assert_true(brim_device_has_graphs(device));
  assert_ok(brim_capture_begin(device));
  assert_ok(brim_capture_end(device, &graph));
  assert_ok(brim_graph_launch(device, graph));
  assert_ok(brim_graph_launch(device, graph));
  assert_int_equal(counters->launches, 2);
  brim_graph_exec_destroy(device, graph);
  brim_graph_exec_destroy(device, NULL);
  assert_int_equal(counters->graphs, 0);
  assert_ok(brim_device_algorithms(device, &text));
  assert_string_equal(text, "add fast\n");
  assert_ok(brim_device_set_algorithms(device, text));
  assert_status(brim_device_set_algorithms(device, "nonsense"), BRIM_EPARSE);
  brim_free(text);
  brim_device_close(device);
  // A backend without streams and events.
  assert_ok(brim_device_open(r, "ref", NULL, &device));
  assert_false(brim_device_has_graphs(device));
  assert_status(brim_capture_begin(device), BRIM_EUNSUPPORTED);
  assert_status(brim_capture_end(device, &graph), BRIM_EUNSUPPORTED);
  assert_null(graph);
  assert_ok(brim_device_algorithms(device, &text));
  assert_string_equal(text, "");
  brim_free(text);
  brim_device_close(device);
  brim_registry_destroy(r);
}

// device_memory returns device_info's values by default.
static void test_memory_default(void **state) {
  (void)state;
  brim_registry *r = load(PLUGINS "/good");
  brim_device *device;
  uint64_t available = 0, total = 0;
  assert_ok(brim_device_open(r, "toy:1", NULL, &device));
  assert_ok(brim_device_memory(device, &available, &total));
  assert_int_equal(available, 1001);
  assert_int_equal(total, 2000);
  brim_device_close(device);
  brim_registry_destroy(r);
}

static void test_ops(void **state) {
  (void)state;
  brim_registry *r = load(PLUGINS "/good");
  const toy_counters *counters = brim_registry_extension(r, "toy.counters");
  brim_device *device;
  assert_ok(brim_device_open(r, "toy", NULL, &device));
  const int64_t three = 3;
  float a[] = {1, 2, 3}, b[] = {10, 20, 30}, y[3];
  brim_op_call call = {.op = BRIM_OP_ADD, .in_count = 2, .out_count = 1};
  call.in[0] = brim_tensor_make(NULL, BRIM_F32, 1, &three);
  call.in[1] = call.out[0] = call.in[0];
  assert_ok(brim_device_supports(device, &call));
  assert_ok(brim_op_prepare(device, &call));
  assert_int_equal(counters->prepared, 1);
  assert_int_equal(call.workspace_bytes, 64);
  assert_status(brim_op_run(device, &call), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "add: input 0 has no memory"));
  call.in[0].data = a;
  call.in[1].data = b;
  call.out[0].data = y;
  assert_status(brim_op_run(device, &call), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "needs a workspace of 64 bytes"));
  assert_ok(brim_device_alloc(device, BRIM_BUFFER_DEVICE, 64, &call.workspace));
  assert_ok(brim_op_run(device, &call));
  assert_true(y[0] == 11 && y[1] == 22 && y[2] == 33);
  brim_op_release(device, &call);
  brim_op_release(device, &call);  // a second release is harmless
  assert_int_equal(counters->prepared, 0);
  brim_device_free(device, BRIM_BUFFER_DEVICE, call.workspace);

  call.in[0].dtype = call.in[1].dtype = call.out[0].dtype = BRIM_BF16;
  assert_status(brim_device_supports(device, &call), BRIM_EUNSUPPORTED);
  assert_non_null(strstr(brim_status_detail(), "toy: add only in f32"));
  call.in[1].dtype = BRIM_F32;  // the common rules come first
  assert_status(brim_op_prepare(device, &call), BRIM_EINVAL);
  call = (brim_op_call){.op = BRIM_OP_CAST, .in_count = 1, .out_count = 1};
  call.in[0] = call.out[0] = brim_tensor_make(a, BRIM_F32, 1, &three);
  assert_status(brim_device_supports(device, &call), BRIM_EUNSUPPORTED);
  assert_non_null(strstr(brim_status_detail(), "cast: the backend toy does not support this op"));
  assert_status(brim_op_run(device, &call), BRIM_EUNSUPPORTED);
  brim_device_close(device);
  brim_registry_destroy(r);
}

// ref refuses a linear op that was not prepared instead of crashing.
static void test_unprepared(void **state) {
  (void)state;
  brim_registry *r = load(NULL);
  brim_device *device;
  assert_ok(brim_device_open(r, "ref", NULL, &device));
  float v[4] = {0};
  brim_op_call call = {.op = BRIM_OP_LINEAR, .in_count = 2, .out_count = 1};
  call.in[0] = call.in[1] = call.out[0] = brim_tensor_make(v, BRIM_F32, 2, (const int64_t[]){2, 2});
  assert_status(brim_op_run(device, &call), BRIM_ESTATE);
  brim_device_close(device);
  brim_registry_destroy(r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_specs),      cmocka_unit_test(test_missing_cuda),
      cmocka_unit_test(test_ref_memory), cmocka_unit_test(test_ref_events),
      cmocka_unit_test(test_streams),    cmocka_unit_test(test_memory_default),
      cmocka_unit_test(test_ops),        cmocka_unit_test(test_unprepared),
      cmocka_unit_test(test_waits),      cmocka_unit_test(test_graphs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
