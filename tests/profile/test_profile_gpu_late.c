// A real GPU, with CUPTI attached long after the graphs were recorded, as in a measurement: it sees their kernels, the
// steps after closing are the same, and it can be attached again. Skipped without a GPU or without CUPTI.
#include "gpu_trace.h"

static void test_attached_after_recording(void **state) {
  (void)state;
  fixture f;
  gpu_work_open(&f, true);
  gpu_steps(&f, WARM);
  double before = gpu_steps(&f, STEPS);
  gpu_window(NULL, &f, STEPS, "");
  gpu_steps(&f, STEPS);
  gpu_window(NULL, &f, STEPS, "");
  gpu_steps(&f, STEPS);
  assert_ok(f.work->table->save(f.work->state, "plain.safetensors", NULL, false));
  fixture_close(&f);

  gpu_work_open(&f, true);
  gpu_steps(&f, WARM);
  gpu_steps(&f, STEPS);
  brim_gpu_trace *trace = NULL;
  gpu_trace_open_or_skip(&trace, &f);
  brim_gpu_trace_sum first = gpu_window(trace, &f, STEPS, "graphs");
  gpu_trace_end(trace);
  double after = gpu_steps(&f, STEPS);

  assert_ok(brim_gpu_trace_open(&trace));  // attached again, with the same graphs
  brim_gpu_trace_sum second = gpu_window(trace, &f, STEPS, "graphs again");
  gpu_trace_end(trace);
  assert_like(&first, STEPS, &second, STEPS, 0.01);
  double again = gpu_steps(&f, STEPS);
  print_message(
      "untraced steps: %.1f us before any session, %.1f us after one, %.1f us after two\n", before,
      after, again);
  assert_ok(f.work->table->save(f.work->state, "traced.safetensors", NULL, false));
  fixture_close(&f);
  assert_same_file("plain.safetensors", "traced.safetensors");

  // Op by op nothing is fused either: more kernels, but of the same order of magnitude.
  gpu_work_open(&f, false);
  gpu_steps(&f, WARM);
  assert_ok(brim_gpu_trace_open(&trace));
  brim_gpu_trace_sum single = gpu_window(trace, &f, STEPS, "op by op");
  gpu_trace_end(trace);
  gpu_steps(&f, STEPS);
  fixture_close(&f);
  assert_like(&single, STEPS, &first, STEPS, 0.6);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_attached_after_recording)};
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
