// A real GPU, with CUPTI attached before anything is recorded: it sees kernels that are launched one by one and those
// of recorded graphs alike. Graphs recorded while it was attached still run afterwards, with the same bits. Skipped
// without a GPU or without CUPTI.
#include "gpu_trace.h"

static void test_attached_before_recording(void **state) {
  (void)state;
  brim_gpu_trace *trace = NULL;
  fixture f;
  gpu_trace_open_or_skip(&trace, NULL);
  gpu_work_open(&f, true);
  // Each of the two staging slots runs op by op the first time, and as a graph from then on.
  brim_gpu_trace_sum single = gpu_window(trace, &f, 2, "op by op, fused");
  gpu_steps(&f, WARM);
  brim_gpu_trace_sum graph = gpu_window(trace, &f, STEPS, "graphs");
  assert_like(&single, 2, &graph, STEPS, 0.25);
  double idle = gpu_steps(&f, STEPS);  // attached, but not tracing
  gpu_trace_end(trace);
  double after = gpu_steps(&f, STEPS);
  print_message("untraced steps: %.1f us while attached, %.1f us after closing\n", idle, after);
  assert_ok(f.work->table->save(f.work->state, "traced.safetensors", NULL, false));
  fixture_close(&f);

  gpu_work_open(&f, true);
  gpu_window(NULL, &f, 2, "");
  gpu_steps(&f, WARM);
  gpu_window(NULL, &f, STEPS, "");
  gpu_steps(&f, STEPS);
  print_message("untraced steps of another session: %.1f us\n", gpu_steps(&f, STEPS));
  assert_ok(f.work->table->save(f.work->state, "plain.safetensors", NULL, false));
  fixture_close(&f);
  assert_same_file("plain.safetensors", "traced.safetensors");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_attached_before_recording)};
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
