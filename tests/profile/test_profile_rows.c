// Hand-made traces, and the rows, gaps and causes computed from them.
#include "profile/profile_rows.h"

#include <math.h>

#include "base/base.h"
#include "test.h"

static void near(double value, double expected) {
  if (!(fabs(value - expected) <= 1e-9 * fmax(1, fabs(expected)))) {
    fail_msg("%.12g, expected %.12g", value, expected);
  }
}

// Times in microseconds.
static brim_trace_event *add(brim_trace *t, brim_trace_kind kind, const char *name, double start,
                             double end) {
  brim_trace_event *e = brim_trace_add(t, kind, name);
  assert_non_null(e);
  e->start_ns = (int64_t)(start * 1000);
  e->end_ns = (int64_t)(end * 1000);
  return e;
}

static brim_trace_event *add_host(brim_trace *t, brim_trace_kind kind, brim_phase phase, int step,
                                  double start, double end) {
  const char *name = phase < BRIM_PHASE_COUNT ? brim_phase_key(phase) : "step";
  brim_trace_event *e = add(t, kind, name, start, end);
  e->phase = phase;
  e->step = step;
  return e;
}

static void add_op(brim_trace *t, const char *op, const char *layer, brim_phase phase, int step,
                   double start, double end) {
  brim_trace_event *e = add(t, BRIM_TRACE_HOST_OP, op, start, end);
  e->op = e->name;
  e->layer = brim_trace_text(t, layer);
  e->phase = phase;
  e->step = step;
  e->flops = 1000;
  e->bytes = 10;
}

static brim_trace_event *add_kernel(brim_trace *t, const char *name, double start, double end) {
  brim_trace_event *e = add(t, BRIM_TRACE_KERNEL, name, start, end);
  e->device = 0;
  e->stream = 7;
  return e;
}

static const brim_profile_row *row(const brim_profile *p, brim_profile_list list, const char *kind,
                                   const char *name) {
  for (size_t i = 0; i < p->lists[list].count; i++) {
    const brim_profile_row *r = &p->lists[list].items[i];
    if (strcmp(r->name, name) == 0 && strcmp(r->kind, kind) == 0) return r;
  }
  fail_msg("no row %s %s", kind, name);
  return NULL;
}

//---------------------------------- the host's clock ----------------------------------

// 100 us: 10 waiting, 60 forward with an op of 50 in it, a copy of 5 inside the op, 25 outside of phases.
static void host_step(brim_trace *t, int step, double at, double longer) {
  add_host(t, BRIM_TRACE_STEP, BRIM_PHASE_COUNT, step, at, at + 100 + longer);
  add_host(t, BRIM_TRACE_PHASE, BRIM_PHASE_IO, step, at + 5, at + 15);
  add_host(t, BRIM_TRACE_PHASE, BRIM_PHASE_FORWARD, step, at + 20, at + 85);
  add_host(t, BRIM_TRACE_PHASE, BRIM_PHASE_H2D, step, at + 25, at + 30);
  add_op(t, "conv", "layer1", BRIM_PHASE_FORWARD, step, at + 30, at + 80);
}

static void test_host_rows(void **state) {
  (void)state;
  brim_trace t;
  brim_profile p;
  brim_trace_init(&t);
  brim_profile_init(&p);
  for (int i = 0; i < 5; i++) host_step(&t, i, 1000 * i, i < 2 ? 400 : 0);
  t.steps = 5;
  brim_trace_sort(&t);
  p.step_ms = 0.1;  // the two disturbed steps do not count
  assert_ok(brim_profile_host_rows(&t, &p));
  brim_profile_finish(&p);
  near(p.traced_ms, 0.1);
  assert_int_equal(p.traced_steps, 5);
  near(p.sum_ms[BRIM_PROFILE_OPS], 0.1);
  near(p.sum_ms[BRIM_PROFILE_LAYERS], 0.1);
  near(p.sum_ms[BRIM_PROFILE_PHASES], 0.1);
  near(row(&p, BRIM_PROFILE_OPS, "op", "conv")->ms, 0.05);
  near(row(&p, BRIM_PROFILE_OPS, "op", "conv")->count, 1);
  near(row(&p, BRIM_PROFILE_OPS, "op", "conv")->flops, 1000);
  near(row(&p, BRIM_PROFILE_OPS, "host", "forward")->ms, 0.01);
  near(row(&p, BRIM_PROFILE_LAYERS, "layer", "layer1")->ms, 0.05);
  near(row(&p, BRIM_PROFILE_PHASES, "phase", "forward")->ms, 0.06);
  near(row(&p, BRIM_PROFILE_PHASES, "phase", "h2d")->ms, 0.005);
  near(row(&p, BRIM_PROFILE_PHASES, "phase", "other")->ms, 0.025);
  brim_profile_deinit(&p);
  brim_trace_deinit(&t);
}

// Traced steps are slower than untraced ones: rows are scaled to the untraced step.
static void test_host_rows_are_of_the_step(void **state) {
  (void)state;
  brim_trace t;
  brim_profile p;
  brim_trace_init(&t);
  brim_profile_init(&p);
  for (int i = 0; i < 3; i++) host_step(&t, i, 1000 * i, 0);
  t.steps = 3;
  brim_trace_sort(&t);
  p.step_ms = 0.08;
  assert_ok(brim_profile_host_rows(&t, &p));
  brim_profile_finish(&p);
  near(p.traced_ms, 0.1);
  near(p.sum_ms[BRIM_PROFILE_OPS], 0.08);
  near(p.sum_ms[BRIM_PROFILE_LAYERS], 0.08);
  near(p.sum_ms[BRIM_PROFILE_PHASES], 0.08);
  near(row(&p, BRIM_PROFILE_OPS, "op", "conv")->ms, 0.04);
  near(row(&p, BRIM_PROFILE_OPS, "op", "conv")->total_ms, 0.04);
  near(row(&p, BRIM_PROFILE_OPS, "op", "conv")->share, 0.5);
  near(row(&p, BRIM_PROFILE_OPS, "op", "conv")->flops, 1000);
  brim_profile_deinit(&p);
  brim_trace_deinit(&t);
}

static void test_no_steps_no_rows(void **state) {
  (void)state;
  brim_trace t;
  brim_profile p;
  brim_trace_init(&t);
  brim_profile_init(&p);
  assert_ok(brim_profile_host_rows(&t, &p));
  assert_ok(brim_profile_event_rows(&t, 0, &p));
  assert_int_equal(p.lists[BRIM_PROFILE_OPS].count, 0);
  p.step_ms = 1;
  assert_status(brim_profile_device_rows(&t, NULL, 0, &p), BRIM_ESTATE);
  brim_profile_deinit(&p);
  brim_trace_deinit(&t);
}

//---------------------------------- attributing ----------------------------------

// One step op by op: an augmentation outside of ops, a convolution of two kernels, one more op.
static void map_step(brim_trace *t) {
  brim_trace_init(t);
  t->steps = 1;
  add_host(t, BRIM_TRACE_PHASE, BRIM_PHASE_TRANSFORM, 0, 0, 50);
  add_kernel(t, "augment", 10, 20);
  add_op(t, "conv", "layer1", BRIM_PHASE_FORWARD, 0, 100, 200);
  add_kernel(t, "pad", 110, 120);
  add_kernel(t, "gemm", 130, 180);
  add_op(t, "linear", "fc", BRIM_PHASE_FORWARD, 0, 300, 400);
  add_kernel(t, "gemm", 310, 350);
  brim_trace_sort(t);
}

// The same step recorded, from `at` on: 100 us, of which 90 in kernels.
static void recorded_step(brim_trace *t, double at) {
  add_kernel(t, "augment", at, at + 10);
  add_kernel(t, "pad", at + 10, at + 20);
  add_kernel(t, "gemm", at + 20, at + 60);
  add_kernel(t, "gemm", at + 70, at + 100);
}

static void test_kernels_find_their_ops(void **state) {
  (void)state;
  brim_trace mapped, t;
  map_step(&mapped);
  brim_trace_init(&t);
  for (int i = 0; i < 4; i++) recorded_step(&t, 1000 + 100 * i);
  add_kernel(&t, "stranger", 1165, 1168);  // between the two products of the second step
  brim_trace_sort(&t);
  near(brim_trace_attribute(&t, &mapped), 16.0 / 17);
  int found = 0;
  for (size_t i = 0; i < t.count; i++) {
    const brim_trace_event *e = &t.events[i];
    int64_t in_step = (e->start_ns / 1000 - 1000) % 100;
    assert_int_equal(e->step, (e->start_ns / 1000 - 1000) / 100);
    if (strcmp(e->name, "gemm") == 0) {
      assert_string_equal(e->op, in_step == 20 ? "conv" : "linear");
      assert_string_equal(e->layer, in_step == 20 ? "layer1" : "fc");
      found++;
    } else if (strcmp(e->name, "pad") == 0) {
      assert_string_equal(e->op, "conv");
    } else {
      assert_null(e->op);
    }
    if (strcmp(e->name, "augment") == 0) assert_int_equal(e->phase, BRIM_PHASE_TRANSFORM);
  }
  assert_int_equal(found, 8);
  brim_trace_deinit(&t);
  brim_trace_deinit(&mapped);
}

static void test_nothing_to_compare_with(void **state) {
  (void)state;
  brim_trace mapped, t;
  brim_trace_init(&mapped);
  brim_trace_init(&t);
  recorded_step(&t, 0);
  near(brim_trace_attribute(&t, &mapped), 0);
  assert_null(t.events[0].op);
  brim_trace_deinit(&t);
  near(brim_trace_attribute(&t, &mapped), 0);
  brim_trace_deinit(&mapped);
}

//---------------------------------- a GPU's records ----------------------------------

enum { STEPS = 6, LEAD = 2 };

static void window_of(brim_trace *t) {
  brim_trace_init(t);
  t->steps = STEPS;
  for (int i = 0; i < STEPS; i++) {
    recorded_step(t, 1000 + 100 * i);
    add_host(t, BRIM_TRACE_STEP, BRIM_PHASE_COUNT, i, 900 + 100 * i, 1000 + 100 * i);
  }
  t->wall_ns = 1000 * (1000 + 100 * STEPS);
}

static void rows_of(brim_trace *t, double step_ms, brim_profile *p) {
  brim_trace mapped;
  map_step(&mapped);
  brim_trace_sort(t);
  brim_trace_attribute(t, &mapped);
  brim_profile_init(p);
  p->step_ms = step_ms;
  assert_ok(brim_profile_device_rows(t, &mapped, LEAD, p));
  brim_profile_finish(p);
  brim_trace_deinit(&mapped);
}

static void test_device_rows(void **state) {
  (void)state;
  brim_trace t;
  brim_profile p;
  window_of(&t);
  rows_of(&t, 0.1, &p);
  near(p.traced_ms, 0.1);
  for (int l = BRIM_PROFILE_KERNELS; l <= BRIM_PROFILE_PHASES; l++) near(p.sum_ms[l], 0.1);
  near(row(&p, BRIM_PROFILE_KERNELS, "kernel", "gemm")->ms, 0.07);
  near(row(&p, BRIM_PROFILE_KERNELS, "kernel", "gemm")->count, 2);
  assert_string_equal(row(&p, BRIM_PROFILE_KERNELS, "kernel", "gemm")->op, "");
  assert_string_equal(row(&p, BRIM_PROFILE_KERNELS, "kernel", "pad")->op, "conv");
  // the convolution's 1000 are split like its kernels op by op, 10 and 50 us; the other op has one kernel
  near(row(&p, BRIM_PROFILE_KERNELS, "kernel", "pad")->flops, 1000.0 / 6);
  near(row(&p, BRIM_PROFILE_KERNELS, "kernel", "gemm")->flops, 1000 + 5000.0 / 6);
  assert_true(isnan(row(&p, BRIM_PROFILE_KERNELS, "kernel", "augment")->flops));
  near(row(&p, BRIM_PROFILE_OPS, "op", "conv")->ms, 0.05);
  near(row(&p, BRIM_PROFILE_OPS, "op", "conv")->count, 1);
  near(row(&p, BRIM_PROFILE_OPS, "op", "conv")->flops, 1000);
  near(row(&p, BRIM_PROFILE_OPS, "kernel", "augment")->ms, 0.01);
  near(row(&p, BRIM_PROFILE_LAYERS, "layer", "fc")->ms, 0.03);
  near(row(&p, BRIM_PROFILE_PHASES, "phase", "transform")->ms, 0.01);
  near(row(&p, BRIM_PROFILE_PHASES, "phase", "forward")->ms, 0.08);
  assert_true(p.has_gaps);
  near(p.gap_ms, 0.01);
  brim_profile_deinit(&p);
  brim_trace_deinit(&t);
}

// Time that several kernels share counts once, for the kernel that began first.
static void test_streams_beside_each_other(void **state) {
  (void)state;
  brim_trace t;
  brim_profile p;
  window_of(&t);
  for (int i = 0; i < STEPS; i++)
    add_kernel(&t, "side", 1030 + 100 * i, 1065 + 100 * i)->stream = 9;
  rows_of(&t, 0.1, &p);
  near(p.sum_ms[BRIM_PROFILE_KERNELS], 0.1);
  near(row(&p, BRIM_PROFILE_KERNELS, "kernel", "side")->ms, 0.005);
  near(row(&p, BRIM_PROFILE_KERNELS, "kernel", "side")->total_ms, 0.035);
  near(p.gap_ms, 0.005);
  brim_profile_deinit(&p);
  brim_trace_deinit(&t);
}

static void test_copies_and_what_of_them_shows(void **state) {
  (void)state;
  brim_trace t;
  brim_profile p;
  window_of(&t);
  for (int i = 0; i < STEPS; i++) {
    brim_trace_event *e = add(&t, BRIM_TRACE_COPY, "Memcpy HtoD", 1050 + 100 * i, 1066 + 100 * i);
    e->device = 0;
    e->copy = BRIM_TRACE_COPY_H2D;
    e->bytes = 4096;
    e->pageable = i == LEAD;  // one of the three steps that count
  }
  rows_of(&t, 0.1, &p);
  near(p.sum_ms[BRIM_PROFILE_KERNELS], 0.1);
  near(p.h2d_ms, 0.016);
  near(p.h2d_exposed_ms, 0.006);
  near(p.h2d_bytes, 4096);
  near(p.h2d_pageable_bytes, 4096.0 / 3);
  near(p.cause_ms[BRIM_GAP_TRANSFER], 0.006);
  near(p.gap_ms, 0.01);
  near(row(&p, BRIM_PROFILE_PHASES, "copy", "Memcpy HtoD")->ms, 0.006);
  brim_profile_deinit(&p);
  brim_trace_deinit(&t);
}

// A step waits for the part of ranks' exchanges that no other kernel overlaps.
static void test_exchanges_and_what_of_them_shows(void **state) {
  (void)state;
  brim_trace t;
  brim_profile p;
  window_of(&t);
  rows_of(&t, 0.1, &p);
  assert_true(isnan(p.exchange_ms));
  brim_profile_deinit(&p);
  brim_trace_deinit(&t);
  window_of(&t);
  for (int i = 0; i < STEPS; i++) {
    add_kernel(&t, "ncclDevKernel_AllReduce_Sum_f32", 1030 + 100 * i, 1065 + 100 * i)->stream = 9;
  }
  rows_of(&t, 0.1, &p);
  near(p.exchange_ms, 0.035);
  near(p.exchange_exposed_ms, 0.005);
  brim_profile_deinit(&p);
  brim_trace_deinit(&t);
}

// Steps of 100 us with one gap of 30 before the last kernel. The host does something in the gap.
static void causes(brim_trace_kind kind, brim_phase phase, double from, double to,
                   uint32_t correlation, brim_gap_cause expected) {
  brim_trace t;
  brim_profile p;
  brim_trace_init(&t);
  t.steps = STEPS;
  for (int i = 0; i < STEPS; i++) {
    double at = 1000 + 130 * i;
    add_kernel(&t, "augment", at, at + 10);
    add_kernel(&t, "pad", at + 10, at + 20);
    add_kernel(&t, "gemm", at + 20, at + 60)->correlation = correlation;
    add_kernel(&t, "gemm", at + 90, at + 130)->correlation = correlation;
    if (kind < BRIM_TRACE_KIND_COUNT) add_host(&t, kind, phase, i, at + from, at + to);
  }
  rows_of(&t, 0.13, &p);
  near(p.gap_ms, 0.03);
  near(p.cause_ms[expected], 0.03);
  near(p.cause_count[expected], 1);
  near(row(&p, BRIM_PROFILE_OPS, "gap", brim_gap_key(expected))->ms, 0.03);
  assert_int_equal(p.gap_count, STEPS - 1 - LEAD);
  assert_int_equal(p.gaps[0].cause, expected);
  assert_string_equal(p.gaps[0].before, "gemm");
  near(p.gaps[0].ms, 0.03);
  brim_profile_deinit(&p);
  brim_trace_deinit(&t);
}

static void test_causes_of_gaps(void **state) {
  (void)state;
  causes(BRIM_TRACE_PHASE, BRIM_PHASE_IO, 55, 85, 0, BRIM_GAP_INPUT);
  causes(BRIM_TRACE_SYNC, BRIM_PHASE_COUNT, 30, 62, 0, BRIM_GAP_SYNC);
  causes(BRIM_TRACE_STEP, BRIM_PHASE_COUNT, 50, 120, 0, BRIM_GAP_HOST);
  causes(BRIM_TRACE_STEP, BRIM_PHASE_COUNT, 50, 120, 8, BRIM_GAP_DEPENDENCY);
  causes(BRIM_TRACE_KIND_COUNT, BRIM_PHASE_COUNT, 0, 0, 0, BRIM_GAP_UNKNOWN);
}

// A traced step of 100 us that takes 94 untraced: the tracer caused 6 us of its gaps.
static void test_what_tracing_costs_is_no_gap(void **state) {
  (void)state;
  brim_trace t;
  brim_profile p;
  window_of(&t);
  rows_of(&t, 0.094, &p);
  near(p.traced_ms, 0.1);
  near(p.gap_ms, 0.004);
  near(p.sum_ms[BRIM_PROFILE_KERNELS], 0.094);
  brim_profile_deinit(&p);
  // the tracer caused more than the gaps: kernels keep their time, and the sum exceeds 100 %
  rows_of(&t, 0.08, &p);
  near(p.gap_ms, 0);
  near(brim_profile_sum_percent(&p, BRIM_PROFILE_KERNELS), 112.5);
  brim_profile_deinit(&p);
  brim_trace_deinit(&t);
}

// No kernels are known: all steps count, from the first to the end.
static void test_steps_that_cannot_be_told_apart(void **state) {
  (void)state;
  brim_trace t;
  brim_profile p;
  brim_trace_init(&t);
  t.steps = 2;
  add_host(&t, BRIM_TRACE_STEP, BRIM_PHASE_COUNT, 0, 0, 50);
  add_host(&t, BRIM_TRACE_STEP, BRIM_PHASE_COUNT, 1, 50, 100);
  add_kernel(&t, "rollout", 10, 90);
  add_kernel(&t, "rollout", 110, 190);
  t.wall_ns = 200000;
  brim_trace_sort(&t);
  brim_profile_init(&p);
  p.step_ms = 0.1;
  assert_ok(brim_profile_device_rows(&t, NULL, LEAD, &p));
  brim_profile_finish(&p);
  near(p.traced_ms, 0.1);
  near(row(&p, BRIM_PROFILE_OPS, "kernel", "rollout")->ms, 0.08);
  near(p.sum_ms[BRIM_PROFILE_OPS], 0.1);
  brim_profile_deinit(&p);
  brim_trace_deinit(&t);
}

//---------------------------------- events and ceilings ----------------------------------

static void event_rows(double step_ms, double forward_ms, brim_profile *p) {
  brim_trace t;
  brim_trace_init(&t);
  t.steps = 2;
  for (int i = 0; i < 2; i++) {
    add_op(&t, "conv", "layer1", BRIM_PHASE_FORWARD, i, 100 * i, 100 * i + 42);
    add_op(&t, "optimizer", NULL, BRIM_PHASE_OPTIMIZER, i, 100 * i + 50, 100 * i + 72);
  }
  brim_profile_init(p);
  p->step_ms = step_ms;
  p->result.phase_used[BRIM_PHASE_FORWARD] = p->result.phase_used[BRIM_PHASE_IO] = true;
  p->result.phase_ms[BRIM_PHASE_FORWARD].mean = forward_ms;
  p->result.phase_ms[BRIM_PHASE_IO].mean = step_ms - forward_ms;
  assert_ok(brim_profile_event_rows(&t, 2000, p));
  brim_profile_finish(p);
  brim_trace_deinit(&t);
}

static void test_event_rows(void **state) {
  (void)state;
  brim_profile p;
  event_rows(0.1, 0.07, &p);
  // without the cost of the events themselves
  near(row(&p, BRIM_PROFILE_OPS, "op", "conv")->ms, 0.04);
  near(row(&p, BRIM_PROFILE_OPS, "op", "optimizer")->ms, 0.02);
  near(row(&p, BRIM_PROFILE_LAYERS, "other", "optimizer")->ms, 0.02);
  near(p.sum_ms[BRIM_PROFILE_OPS], 0.1);
  near(p.sum_ms[BRIM_PROFILE_LAYERS], 0.1);
  near(p.sum_ms[BRIM_PROFILE_PHASES], 0.1);
  brim_profile_deinit(&p);
  event_rows(0.03, 0.03, &p);  // a recorded step takes half as long as op by op
  near(row(&p, BRIM_PROFILE_OPS, "op", "conv")->ms, 0.02);
  near(p.sum_ms[BRIM_PROFILE_OPS], 0.03);
  brim_profile_deinit(&p);
  event_rows(0.06, 0.03, &p);  // the phase before them does not change
  near(row(&p, BRIM_PROFILE_OPS, "op", "conv")->ms, 0.02);
  near(p.sum_ms[BRIM_PROFILE_OPS], 0.06);
  brim_profile_deinit(&p);
}

static void test_ceilings(void **state) {
  (void)state;
  brim_profile p;
  brim_profile_init(&p);
  brim_profile_row *r = brim_profile_add(&p, BRIM_PROFILE_OPS);
  r->flops = 1e9;
  r->bytes = 1e3;
  r->total_ms = 4;
  r = brim_profile_add(&p, BRIM_PROFILE_OPS);
  r->bytes = 2e6;
  r->total_ms = 4;
  (void)brim_profile_add(&p, BRIM_PROFILE_OPS);
  p.result.ceilings.gemm_bf16_flops = 1e12;
  p.result.ceilings.copy_bytes_per_s = 1e9;
  brim_profile_ceilings(&p, "bf16");
  const brim_profile_row *rows = p.lists[BRIM_PROFILE_OPS].items;
  assert_string_equal(rows[0].ceiling, "bf16");
  near(rows[0].ceiling_share, 0.25);
  assert_string_equal(rows[1].ceiling, "copy");
  near(rows[1].ceiling_share, 0.5);
  assert_string_equal(rows[2].ceiling, "");
  assert_true(isnan(rows[2].ceiling_share));
  // Faster than a ceiling: memory was a cache, or the ceiling of products is wrong. Then there is no share.
  p.result.ceilings.gemm_bf16_flops = 1e11;
  p.result.ceilings.copy_bytes_per_s = 1e8;
  brim_profile_ceilings(&p, "bf16");
  assert_string_equal(rows[0].ceiling, "");
  assert_true(isnan(rows[0].ceiling_share));
  assert_string_equal(rows[1].ceiling, "in cache");
  assert_true(isnan(rows[1].ceiling_share));
  // Measured while other programs had most of the machine: no share of a ceiling is given.
  p.result.ceilings.gemm_bf16_flops = 1e12;
  p.result.ceilings.load = 0.7;
  brim_profile_ceilings(&p, "bf16");
  for (int i = 0; i < 2; i++) {
    assert_string_equal(rows[i].ceiling, "");
    assert_true(isnan(rows[i].ceiling_share));
  }
  brim_profile_deinit(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_host_rows),
      cmocka_unit_test(test_host_rows_are_of_the_step),
      cmocka_unit_test(test_no_steps_no_rows),
      cmocka_unit_test(test_kernels_find_their_ops),
      cmocka_unit_test(test_nothing_to_compare_with),
      cmocka_unit_test(test_device_rows),
      cmocka_unit_test(test_streams_beside_each_other),
      cmocka_unit_test(test_copies_and_what_of_them_shows),
      cmocka_unit_test(test_exchanges_and_what_of_them_shows),
      cmocka_unit_test(test_causes_of_gaps),
      cmocka_unit_test(test_what_tracing_costs_is_no_gap),
      cmocka_unit_test(test_steps_that_cannot_be_told_apart),
      cmocka_unit_test(test_event_rows),
      cmocka_unit_test(test_ceilings),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
