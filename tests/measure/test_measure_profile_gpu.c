// Profiles on a real GPU: by CUPTI in recorded steps and by events op by op. The checks hold on any GPU;
// benchmarks/profile/agree.py measures how well the two agree. Skipped without a GPU.
#include <math.h>

#include "measure/measure.h"
#include "workload/fixture.h"

static const char gpu_yaml[] =
    "dataset: synthetic(shape=(32, 8), classes=4, samples=16384, noise=0.2)\n"
    "model: mlp(depth=3, hidden=128, dropout=0.1)\n"
    "optimizer: adamw(lr=1e-3)\n"
    "data: {batch_size: 256, num_workers: 2, prefetch_factor: 2, cache: none}\n"
    "training: {epochs: 3}\n"
    "seed: 7\n";

static void open_or_skip(fixture *f, const char *compile) {
  const char *const overrides[] = {compile};
  if (fixture_open(f, "cuda", gpu_yaml, overrides, 1)) {
    fixture_close(f);
    BRIM_SKIP(brim_status_detail());
  }
}

static size_t count_kind(const brim_profile *p, brim_profile_list list, const char *kind) {
  size_t count = 0;
  for (size_t i = 0; i < p->lists[list].count; i++) {
    count += strcmp(p->lists[list].items[i].kind, kind) == 0;
  }
  return count;
}

static bool has(const brim_profile *p, brim_profile_list list, const char *name) {
  for (size_t i = 0; i < p->lists[list].count; i++) {
    if (strcmp(p->lists[list].items[i].name, name) == 0) return true;
  }
  return false;
}

static void check(const brim_profile *p) {
  print_message(
      "%s: step %.4f ms, traced %.4f ms, ops %.1f %%, window %.2f %% of 1,000 steps, %s\n",
      p->source, p->step_ms, p->traced_ms, brim_profile_sum_percent(p, BRIM_PROFILE_OPS),
      p->run_percent, p->note);
  double sum = p->sum_ms[BRIM_PROFILE_OPS];
  assert_true(fabs(sum - p->sum_ms[BRIM_PROFILE_LAYERS]) <= 1e-6 * sum);
  assert_true(fabs(sum - p->sum_ms[BRIM_PROFILE_PHASES]) <= 1e-6 * sum);
  assert_true(has(p, BRIM_PROFILE_LAYERS, "layers.0"));
  assert_true(count_kind(p, BRIM_PROFILE_OPS, "op") >= 4);
  assert_true(p->memory.point_count > 0 && p->memory.peak_bytes <= p->memory.arena_bytes);
}

static brim_status profile(fixture *f, const char *source, brim_profile *p, brim_trace *t) {
  brim_setting setting = brim_work_setting(f->work);
  const brim_profile_options options = {.steps = 10, .max_seconds = 5, .source = source};
  brim_status status = brim_profile_run(f->work, f->config, f->device, &setting, &options, p, t);
  assert_null(f->device->watch);
  return status;
}

// The kernels of a step belong to the same ops, whether it is one launch or many.
static void test_by_cupti(void **state) {
  (void)state;
  const char *const compile[] = {"training.compile=true", "training.compile=false"};
  for (int i = 0; i < 2; i++) {
    fixture f;
    brim_profile p;
    brim_trace t;
    open_or_skip(&f, compile[i]);
    brim_status status = profile(&f, "cupti", &p, &t);
    if (status == BRIM_EUNSUPPORTED) {
      brim_profile_deinit(&p);
      brim_trace_deinit(&t);
      fixture_close(&f);
      BRIM_SKIP(brim_status_detail());
    }
    assert_ok(status);
    assert_string_equal(p.source, "cupti");
    assert_string_equal(p.note, "");  // every kernel was matched
    check(&p);
    double sum = p.sum_ms[BRIM_PROFILE_OPS];
    assert_true(fabs(sum - p.sum_ms[BRIM_PROFILE_KERNELS]) <= 1e-6 * sum);
    assert_true(p.has_gaps && p.gap_ms >= 0);
    // 2 workers prefetch up to 2 batches each. A batch that was copied before the window does not count, but at least
    // half of the 10 steps copy one.
    assert_true(p.h2d_bytes >= 0.5 * 256 * 32 * 8);
    assert_true(count_kind(&p, BRIM_PROFILE_KERNELS, "kernel") >= 4);
    assert_true(has(&p, BRIM_PROFILE_PHASES, "backward"));
    brim_profile_deinit(&p);
    brim_trace_deinit(&t);
    fixture_close(&f);
  }
}

static void test_by_events(void **state) {
  (void)state;
  fixture f;
  brim_profile p;
  brim_trace t;
  open_or_skip(&f, "training.compile=true");
  assert_ok(profile(&f, "events", &p, &t));
  assert_string_equal(p.source, "events");
  check(&p);
  brim_profile_deinit(&p);
  brim_trace_deinit(&t);
  fixture_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_by_events),
      cmocka_unit_test(test_by_cupti),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
