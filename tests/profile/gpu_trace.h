// Shared by the two programs that trace a real GPU: a small network on it, and windows of steps. CUPTI attaches to a
// process as a whole, so each order of attaching and recording is a program.
#ifndef BRIM_TESTS_PROFILE_GPU_TRACE_H_
#define BRIM_TESTS_PROFILE_GPU_TRACE_H_

#include "profile/profile.h"
#include "same_file.h"
#include "workload/fixture.h"

enum { WARM = 10, STEPS = 10, BATCH_BYTES = 256 * 32 * 8 };

// 64 steps an epoch: no window reaches the end.
static const char gpu_yaml[] =
    "dataset: synthetic(shape=(32, 8), classes=4, samples=16384, noise=0.2)\n"
    "model: mlp(depth=3, hidden=128, dropout=0.1)\n"
    "optimizer: adamw(lr=1e-3)\n"
    "data: {batch_size: 256, num_workers: 2, prefetch_factor: 2, cache: none}\n"
    "training: {epochs: 3}\n"
    "seed: 7\n";

static inline void gpu_work_open(fixture *f, bool compile) {
  const char *const overrides[] = {compile ? "training.compile=true" : "training.compile=false"};
  if (fixture_open(f, "cuda", gpu_yaml, overrides, 1)) {
    fixture_close(f);
    BRIM_SKIP(brim_status_detail());
  }
  assert_ok(fixture_configure(f));
}

static inline double ms_since(brim_time start) {
  return (double)brim_time_since_ns(start, brim_clock_now()) / 1e6;
}

// Closes the workload (which may be NULL), then skips.
static inline void gpu_trace_open_or_skip(brim_gpu_trace **trace, fixture *f) {
  brim_time start = brim_clock_now();
  brim_status status = brim_gpu_trace_open(trace);
  if (status == BRIM_EUNSUPPORTED) {
    if (f) fixture_close(f);
    BRIM_SKIP(brim_status_detail());
  }
  assert_ok(status);
  print_message("attached in %.1f ms\n", ms_since(start));
}

static inline void gpu_trace_end(brim_gpu_trace *trace) {
  brim_time start = brim_clock_now();
  brim_gpu_trace_close(trace);
  print_message("detached in %.1f ms\n", ms_since(start));
}

// Makes steps and waits for the device; returns microseconds per step.
static inline double gpu_steps(fixture *f, int steps) {
  brim_step_info info;
  assert_ok(brim_device_sync(f->device));
  brim_time start = brim_clock_now();
  for (int i = 0; i < steps; i++) assert_ok(f->work->table->step(f->work->state, NULL, &info));
  assert_ok(brim_device_sync(f->device));
  return ms_since(start) * 1e3 / steps;
}

static inline void gpu_check(const brim_gpu_trace_sum *s, int steps) {
  assert_int_equal(s->dropped, 0);
  assert_true(s->kernels >= 5 * steps);  // layers forward and backward, loss, optimizer
  assert_true(s->kernel_ms > 0);
  assert_true(s->busy_ms >= s->kernel_ms);
  assert_true(s->busy_ms <= s->wall_ms);
  // one batch for each step, and the sums of the metrics
  assert_true(s->h2d_bytes >= (uint64_t)steps * BATCH_BYTES);
  assert_true(s->d2h_bytes > 0);
  assert_true(s->copies > steps);
  assert_true(s->pageable_bytes <= s->h2d_bytes + s->d2h_bytes);
}

// Makes steps and reads the metrics. Without a trace (NULL) it does the same, so that the states agree.
static inline brim_gpu_trace_sum gpu_window(brim_gpu_trace *trace, fixture *f, int steps,
                                            const char *what) {
  brim_gpu_trace_sum s = {0};
  brim_work_metrics metrics;
  assert_ok(brim_device_sync(f->device));
  brim_time start = brim_clock_now();
  if (trace) assert_ok(brim_gpu_trace_start(trace));
  double start_ms = ms_since(start);
  double us = gpu_steps(f, steps);
  assert_ok(f->work->table->metrics(f->work->state, true, &metrics));
  assert_ok(brim_device_sync(f->device));
  if (!trace) return s;
  brim_time stop = brim_clock_now();
  assert_ok(brim_gpu_trace_stop(trace, &s));
  print_message("%s: start took %.1f ms, stop %.1f ms\n", what, start_ms, ms_since(stop));
  print_message("%s: %d steps of %.1f us; wall %.3f ms, busy %.3f, kernels %.3f (%lld), ", what,
                steps, us, s.wall_ms, s.busy_ms, s.kernel_ms, (long long)s.kernels);
  print_message("h2d %.3f (%llu B), d2h %.3f (%llu B), pageable %llu B, ", s.h2d_ms,
                (unsigned long long)s.h2d_bytes, s.d2h_ms, (unsigned long long)s.d2h_bytes,
                (unsigned long long)s.pageable_bytes);
  print_message("d2d %.3f, memset %.3f; %lld copies, %lld dropped\n", s.d2d_ms, s.memset_ms,
                (long long)s.copies, (long long)s.dropped);
  gpu_check(&s, steps);
  return s;
}

// Kernels per step in two windows differ by at most a share of the first, plus two.
static inline void assert_like(const brim_gpu_trace_sum *a, int a_steps,
                               const brim_gpu_trace_sum *b, int b_steps, double share) {
  double x = (double)a->kernels / a_steps, y = (double)b->kernels / b_steps;
  if (y < x * (1 - share) - 2 || y > x * (1 + share) + 2) {
    fail_msg("%.2f kernels a step, then %.2f", x, y);
  }
}

#endif  // BRIM_TESTS_PROFILE_GPU_TRACE_H_
