// The Chrome trace of a few events: its contents, and that a failed write leaves no file. With a path as argument the
// program writes the trace there, for check_trace.py.
#include <math.h>
#include <unistd.h>

#include "base/base.h"
#include "profile/profile_trace.h"
#include "profile_events.h"

static json_t *write_and_read(const brim_trace *trace, const brim_profile_memory *memory) {
  char *text = NULL;
  size_t size = 0;
  json_t *value = NULL;
  assert_ok(brim_chrome_write(trace, memory, "trace.json"));
  assert_ok(brim_fs_read("trace.json", 0, &text, &size));
  assert_ok(brim_json_parse(text, size, "trace.json", &value));
  brim_free(text);
  return value;
}

// The n-th event with this phase and name.
static json_t *find(json_t *trace, const char *ph, const char *name, int n) {
  json_t *event;
  size_t i;
  json_array_foreach(json_object_get(trace, "traceEvents"), i, event) {
    if (strcmp(json_string_value(json_object_get(event, "ph")), ph) != 0) continue;
    if (strcmp(json_string_value(json_object_get(event, "name")), name) != 0) continue;
    if (n-- == 0) return event;
  }
  return NULL;
}

static double number(json_t *event, const char *key) {
  assert_non_null(event);
  json_t *value = json_object_get(event, key);
  assert_true(json_is_number(value));
  return json_number_value(value);
}

static void test_slices(void **state) {
  (void)state;
  brim_trace trace;
  make_events(&trace);
  json_t *file = write_and_read(&trace, NULL);
  assert_string_equal(json_string_value(json_object_get(file, "displayTimeUnit")), "ms");
  json_t *kernel = find(file, "X", "gemm<\"a\\b\", 4> ", 0);  // the tab has become a space
  assert_float_equal(number(kernel, "ts"), 402, 1e-9);
  assert_float_equal(number(kernel, "dur"), 398, 1e-9);
  assert_int_equal(number(kernel, "pid"), 0);
  assert_int_equal(number(kernel, "tid"), 7);
  json_t *args = json_object_get(kernel, "args");
  assert_int_equal(number(args, "correlation"), 100);
  assert_int_equal(json_integer_value(json_array_get(json_object_get(args, "block"), 0)), 256);
  assert_string_equal(json_string_value(json_object_get(args, "layer")), "encoder.0");
  assert_string_equal(json_string_value(json_object_get(args, "phase")), "forward");
  // fractions of a microsecond are kept
  json_t *call = find(file, "X", "cudaGraphLaunch", 1);
  assert_float_equal(number(call, "dur"), 15.678, 1e-9);
  assert_string_equal(json_string_value(json_object_get(call, "cat")), "cuda_runtime");
  assert_int_equal(number(call, "pid"), BRIM_CHROME_HOST);
  json_t *pageable = find(file, "X", "Memcpy HtoD (Pageable -> Device)", 0);
  assert_int_equal(number(pageable, "tid"), 13);
  assert_int_equal(number(json_object_get(pageable, "args"), "bytes"), 1200000);
  assert_non_null(find(file, "X", "Memcpy HtoD (Pinned -> Device)", 0));
  assert_non_null(find(file, "X", "Memcpy DtoH (Device -> Pinned)", 1));
  assert_non_null(find(file, "X", "ProfilerStep#1", 0));
  assert_null(find(file, "X", "ProfilerStep#2", 0));
  json_decref(file);
  brim_trace_deinit(&trace);
}

// A kernel that begins before its neighbour has ended is on another track.
static void test_overlap(void **state) {
  (void)state;
  brim_trace trace;
  make_events(&trace);
  json_t *file = write_and_read(&trace, NULL);
  json_t *beside = find(file, "X", "relu", 0);
  assert_int_equal(number(beside, "tid"), 7 + BRIM_CHROME_LANE);
  assert_int_equal(number(json_object_get(beside, "args"), "stream"), 7);
  json_decref(file);
  brim_trace_deinit(&trace);
}

// A recorded graph has one arrow, to its first work; a copy has its own.
static void test_flows(void **state) {
  (void)state;
  brim_trace trace;
  make_events(&trace);
  json_t *file = write_and_read(&trace, NULL);
  int starts = 0, ends = 0;
  while (find(file, "s", "ac2g", starts)) starts++;
  while (find(file, "f", "ac2g", ends)) ends++;
  assert_int_equal(starts, 4);
  assert_int_equal(ends, 4);
  json_t *end = find(file, "f", "ac2g", 1);
  assert_int_equal(number(end, "id"), 100);
  assert_float_equal(number(end, "ts"), 400, 1e-9);
  assert_float_equal(number(find(file, "s", "ac2g", 1), "ts"), 330, 1e-9);
  json_decref(file);
  brim_trace_deinit(&trace);
}

// Work that begins before its launch, by the GPU's clock, gets no arrow back in time.
static void test_clocks_apart(void **state) {
  (void)state;
  brim_trace trace;
  brim_trace_init(&trace);
  add_event(&trace, BRIM_TRACE_HOST_OP, "cudaLaunchKernel", 5000, 6000)->correlation = 3;
  add_work(&trace, BRIM_TRACE_KERNEL, "early", 4000, 7000, 3);
  add_work(&trace, BRIM_TRACE_KERNEL, "no times", 9000, 8000, 4);
  json_t *file = write_and_read(&trace, NULL);
  assert_null(find(file, "s", "ac2g", 0));
  assert_null(find(file, "X", "no times", 0));
  assert_non_null(find(file, "X", "early", 0));
  json_decref(file);
  brim_trace_deinit(&trace);
}

static void test_counters(void **state) {
  (void)state;
  brim_trace trace;
  brim_trace_init(&trace);
  for (int step = 0; step < 2; step++) {
    add_event(&trace, BRIM_TRACE_STEP, "step", step * 1000, step * 1000 + 900)->step = step;
    add_event(&trace, BRIM_TRACE_HOST_OP, "matmul", step * 1000 + 10, step * 1000 + 20)->op =
        "matmul";
    add_event(&trace, BRIM_TRACE_HOST_OP, "relu", step * 1000 + 30, step * 1000 + 40)->op = "relu";
  }
  brim_profile_point points[2] = {{.op = "matmul", .bytes = 100}, {.op = "relu", .bytes = 250}};
  brim_profile_memory memory = {.points = points, .point_count = 2};
  json_t *file = write_and_read(&trace, &memory);
  json_t *last = find(file, "C", "activations and workspace", 3);
  assert_float_equal(number(last, "ts"), 1.030, 1e-9);
  assert_int_equal(number(json_object_get(last, "args"), "bytes"), 250);
  json_decref(file);
  // Ops other than the plan's: nothing is guessed.
  snprintf(points[0].op, sizeof points[0].op, "conv");
  file = write_and_read(&trace, &memory);
  assert_null(find(file, "C", "activations and workspace", 0));
  json_decref(file);
  brim_trace_deinit(&trace);
}

static void test_names_are_text(void **state) {
  (void)state;
  brim_trace trace;
  brim_trace_init(&trace);
  add_work(&trace, BRIM_TRACE_KERNEL, "\xff\xfe", 0, 1, 1);
  add_work(&trace, BRIM_TRACE_KERNEL, "커널", 2, 3, 2);
  json_t *file = write_and_read(&trace, NULL);
  assert_non_null(find(file, "X", "??", 0));
  assert_non_null(find(file, "X", "커널", 0));
  json_decref(file);
  brim_trace_deinit(&trace);
}

static void test_failures(void **state) {
  (void)state;
  brim_trace trace;
  make_events(&trace);
  assert_status(brim_chrome_write(&trace, NULL, "no/such/folder/trace.json"), BRIM_ENOENT);
  const char *const names[] = {"part.json", "part.json.gz"};
  for (size_t i = 0; i < 2; i++) {
    bool failed = true;
    for (uint64_t n = 1; failed; n++) {
      brim_alloc_fail_nth(n, 0);
      failed = brim_chrome_write(&trace, NULL, names[i]) != BRIM_OK;
      brim_alloc_fail_nth(0, 0);
      if (failed) assert_false(brim_fs_exists(names[i]));
      assert_true(n < 1000);
    }
    assert_true(brim_fs_exists(names[i]));
    assert_ok(brim_fs_remove(names[i]));
  }
  brim_trace_deinit(&trace);
}

int main(int argc, char **argv) {
  if (argc == 2) {
    brim_trace trace;
    brim_profile_point points[1] = {{.op = "step", .bytes = 1}};
    brim_profile_memory memory = {.points = points, .point_count = 1};
    make_events(&trace);
    add_event(&trace, BRIM_TRACE_HOST_OP, "step", 4500000, 4600000)->op = "step";
    add_event(&trace, BRIM_TRACE_STEP, "step", 4400000, 4700000)->step = 2;
    brim_status status = brim_chrome_write(&trace, &memory, argv[1]);
    brim_trace_deinit(&trace);
    return status ? 1 : 0;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_slices),   cmocka_unit_test(test_overlap),
      cmocka_unit_test(test_flows),    cmocka_unit_test(test_clocks_apart),
      cmocka_unit_test(test_counters), cmocka_unit_test(test_names_are_text),
      cmocka_unit_test(test_failures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
