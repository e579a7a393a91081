// Profiles of workloads: rows that add up to the step, layers and transforms by name, memory blocks at the peak; on a
// device that runs on its own, ops by its events. Times are not compared.
#include <math.h>

#include "engine/engine_lazy.h"
#include "measure/measure_int.h"
#include "workload/fixture.h"

static const char ars_yaml[] =
    "workload: ars\n"
    "env: cartpole()\n"
    "ars: {iterations: 3, num_envs: 8, num_dirs: 4, dir_chunk: 4, top_dirs: 2}\n"
    "seed: 3\n";

static const char mappo_yaml[] =
    "workload: mappo\n"
    "env: cartpole\n"
    "model: actor_critic(depth=2, hidden=16)\n"
    "optimizer: adam(lr=0.003)\n"
    "mappo: {num_envs: 6, rollout_steps: 20, update_epochs: 3, minibatches: 4, iterations: 50}\n"
    "seed: 3\n";

static const char image_yaml[] =
    "dataset: synthetic(shape=(12, 12, 3), classes=4, samples=400, noise=0.2)\n"
    "model: resnet18(width=4)\n"
    "optimizer: sgd(lr=0.05)\n"
    "transform: {train: 'random_crop(size=12, padding=2) | random_flip'}\n"
    "data: {batch_size: 16, num_workers: 2, prefetch_factor: 2, cache: none}\n"
    "training: {epochs: 3}\n"
    "seed: 7\n";

static void near(double value, double expected, double share) {
  if (!(fabs(value - expected) <= share * fabs(expected))) {
    fail_msg("%.9g, expected %.9g", value, expected);
  }
}

static const brim_profile_row *row(const brim_profile *p, brim_profile_list list,
                                   const char *name) {
  for (size_t i = 0; i < p->lists[list].count; i++) {
    if (strcmp(p->lists[list].items[i].name, name) == 0) return &p->lists[list].items[i];
  }
  return NULL;
}

// One step time: all lists add up to it, the result's total and rate belong to it, its phases are the list's.
static void check_sums(const brim_profile *p) {
  const brim_profile_list lists[] = {BRIM_PROFILE_OPS, BRIM_PROFILE_LAYERS, BRIM_PROFILE_PHASES};
  const brim_result *r = &p->result;
  assert_true(p->step_ms == r->total_ms.median && p->step_mad_ms == r->total_ms.mad);
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    near(p->sum_ms[lists[i]], p->step_ms, 1e-6);
    for (size_t k = 0; k < p->lists[lists[i]].count; k++) {
      assert_true(p->lists[lists[i]].items[k].ms >= 0);
    }
  }
  for (int i = 0; i < BRIM_PHASE_COUNT; i++) {
    const brim_profile_row *phase = row(p, BRIM_PROFILE_PHASES, brim_phase_key((brim_phase)i));
    near(r->phase_ms[i].median, phase ? phase->ms : 0, 1e-9);
    assert_int_equal(r->phase_used[i], phase != NULL);
  }
  brim_result plain = *r;
  brim_result_set_rates(&plain, r->samples_per_s * p->step_ms * 1e-3,
                        r->epoch_s * r->samples_per_s);
  near(plain.samples_per_s_low, r->samples_per_s_low, 1e-9);
  near(plain.samples_per_s_high, r->samples_per_s_high, 1e-9);
}

static void check_memory(const brim_profile *p) {
  const brim_profile_memory *m = &p->memory;
  double alive = 0;
  size_t at[512];
  assert_true(m->point_count > 0 && m->point_count < 512);
  assert_true(m->peak >= 0 && (size_t)m->peak < m->point_count);
  assert_true(m->peak_bytes > 0 && m->peak_bytes <= m->arena_bytes);
  size_t count = brim_profile_alive(p, m->peak, at, 512);
  for (size_t i = 0; i < count; i++) alive += m->blocks[at[i]].bytes;
  near(alive, m->peak_bytes, 1e-12);
  for (size_t i = 0; i < m->point_count; i++) assert_true(m->points[i].bytes <= m->peak_bytes);
  // two blocks that are alive at once do not overlap
  for (size_t i = 0; i + 1 < count; i++) {
    for (size_t k = i + 1; k < count; k++) {
      const brim_profile_block *a = &m->blocks[at[i]], *b = &m->blocks[at[k]];
      assert_true(a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset);
    }
  }
}

static void check_json(const brim_profile *p) {
  json_t *first, *second;
  brim_profile read;
  assert_ok(brim_profile_to_json(p, &first));
  assert_ok(brim_profile_from_json(first, "profile", &read));
  assert_ok(brim_profile_to_json(&read, &second));
  json_object_del(first, "result");
  json_object_del(second, "result");
  assert_true(json_equal(first, second));
  json_decref(first);
  json_decref(second);
  brim_profile_deinit(&read);
}

static void run(fixture *f, const brim_profile_options *options, brim_profile *p, brim_trace *t) {
  brim_setting setting = brim_work_setting(f->work);
  assert_ok(brim_profile_run(f->work, f->config, f->device, &setting, options, p, t));
  assert_int_equal(p->result.failure, BRIM_FAILURE_NONE);
  assert_null(f->device->watch);
}

static void test_a_perceptron_by_the_clock(void **state) {
  (void)state;
  fixture f;
  brim_profile p;
  brim_trace t;
  brim_machine_ceilings machine;
  brim_machine_ceilings_init(&machine);
  machine.gemm_fp32_flops = 1e15;
  machine.copy_bytes_per_s = 1e15;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  const brim_profile_options options = {.steps = 8, .machine = &machine};
  run(&f, &options, &p, &t);
  assert_string_equal(p.source, "clock");
  assert_int_equal(p.traced_steps, 8);
  check_sums(&p);
  check_memory(&p);
  check_json(&p);
  const brim_profile_row *layer = row(&p, BRIM_PROFILE_LAYERS, "layers.0");
  assert_non_null(layer);
  assert_true(layer->flops > 0 && layer->ceiling_share > 0 && layer->ceiling_share < 1);
  assert_true(strcmp(layer->ceiling, "fp32") == 0 || strcmp(layer->ceiling, "copy") == 0);
  assert_non_null(row(&p, BRIM_PROFILE_LAYERS, "loss"));
  assert_non_null(row(&p, BRIM_PROFILE_PHASES, "backward"));
  assert_non_null(row(&p, BRIM_PROFILE_PHASES, "io"));
  assert_false(p.has_gaps);
  assert_true(p.seconds > 0 && p.window_s > 0 && !isnan(p.run_percent));
  // the trace agrees: one event for each step, ops inside it
  int steps = 0, ops = 0;
  for (size_t i = 0; i < t.count; i++) {
    steps += t.events[i].kind == BRIM_TRACE_STEP;
    ops += t.events[i].kind == BRIM_TRACE_HOST_OP;
  }
  assert_int_equal(steps, 8);
  assert_true(ops > 8 * 5);
  brim_profile_deinit(&p);
  brim_trace_deinit(&t);
  fixture_close(&f);
}

// A block is named after the layer whose op writes it.
static void check_owners(const brim_profile *p) {
  const brim_profile_memory *m = &p->memory;
  int norms = 0;
  for (size_t i = 0; i < m->block_count; i++) {
    const brim_profile_point *maker = &m->points[m->blocks[i].first];
    if (strcmp(m->blocks[i].kind, "activation") != 0) continue;
    if (strstr(maker->op, "batchnorm") != maker->op || strcmp(maker->phase, "forward") != 0)
      continue;
    assert_string_equal(m->blocks[i].name, maker->layer);
    norms++;
  }
  assert_true(norms > 0);
}

// FLOPs by op equal the plan's.
static void test_a_convnet_with_transforms(void **state) {
  (void)state;
  fixture f;
  brim_profile p;
  brim_trace t;
  assert_ok(fixture_open(&f, "ref", image_yaml, NULL, 0));
  const brim_profile_options options = {.steps = 3, .max_seconds = 0.5};
  run(&f, &options, &p, &t);
  check_sums(&p);
  check_memory(&p);
  check_json(&p);
  check_owners(&p);
  assert_non_null(row(&p, BRIM_PROFILE_LAYERS, "layer1.0.conv1"));
  const brim_profile_row *crop = row(&p, BRIM_PROFILE_TRANSFORMS, "random_crop");
  assert_non_null(crop);
  assert_true(crop->total_ms > 0 && crop->share > 0);
  assert_true(p.worker_io_ms > 0);
  // findings name the same transforms
  assert_true(p.result.worker_io_ms == p.worker_io_ms);
  assert_true(p.result.worker_transform_ms == p.worker_transform_ms);
  assert_int_equal(p.result.stage_count, p.lists[BRIM_PROFILE_TRANSFORMS].count);
  for (size_t i = 0; i < p.result.stage_count; i++) {
    const brim_profile_row *stage = row(&p, BRIM_PROFILE_TRANSFORMS, p.result.stages[i].name);
    assert_true(stage && stage->total_ms == p.result.stages[i].ms);
  }
  double flops = 0;
  for (size_t i = 0; i < p.lists[BRIM_PROFILE_OPS].count; i++) {
    double of = p.lists[BRIM_PROFILE_OPS].items[i].flops;
    flops += isnan(of) ? 0 : of;
  }
  near(flops, p.result.plan.flops_per_step, 0.01);
  brim_profile_deinit(&p);
  brim_trace_deinit(&t);
  fixture_close(&f);
}

// Without workers the step waits for reading and transforms: these parts do not exceed the whole.
static void test_loading_is_in_the_wait(void **state) {
  (void)state;
  static const char *const none[] = {"data.num_workers=0"};
  fixture f;
  brim_profile p;
  brim_trace t;
  assert_ok(fixture_open(&f, "ref", image_yaml, none, 1));
  const brim_profile_options options = {.steps = 3, .max_seconds = 0.5};
  run(&f, &options, &p, &t);
  assert_int_equal(p.workers, 0);
  double wait_ms = row(&p, BRIM_PROFILE_PHASES, "io")->ms, parts_ms = p.worker_io_ms;
  for (size_t i = 0; i < p.result.stage_count; i++) parts_ms += p.result.stages[i].ms;
  near(p.worker_io_ms + p.worker_transform_ms, parts_ms, 1e-9);
  assert_true(parts_ms > 0 && parts_ms <= wait_ms * (1 + 1e-9));
  brim_profile_deinit(&p);
  brim_trace_deinit(&t);
  fixture_close(&f);
}

// Layers of the same name in several networks stay apart.
static void test_layers_of_two_networks(void **state) {
  (void)state;
  fixture f;
  brim_profile p;
  brim_trace t;
  assert_ok(fixture_open(&f, "ref", mappo_yaml, NULL, 0));
  const brim_profile_options options = {.steps = 3, .max_seconds = 0.5};
  run(&f, &options, &p, &t);
  check_sums(&p);
  assert_non_null(row(&p, BRIM_PROFILE_LAYERS, "actor/layers.0"));
  assert_non_null(row(&p, BRIM_PROFILE_LAYERS, "critic/layers.0"));
  assert_null(row(&p, BRIM_PROFILE_LAYERS, "layers.0"));
  const char *peak = p.memory.points[p.memory.peak].layer;
  assert_true(strncmp(peak, "actor/", 6) == 0 || strncmp(peak, "critic/", 7) == 0);
  brim_profile_deinit(&p);
  brim_trace_deinit(&t);
  fixture_close(&f);
}

static void test_rollouts_have_phases(void **state) {
  (void)state;
  fixture f;
  brim_profile p;
  brim_trace t;
  assert_ok(fixture_open(&f, "ref", ars_yaml, NULL, 0));
  const brim_profile_options options = {.steps = 6, .max_seconds = 5};
  run(&f, &options, &p, &t);
  check_sums(&p);
  check_json(&p);
  assert_non_null(row(&p, BRIM_PROFILE_PHASES, "env"));
  assert_non_null(row(&p, BRIM_PROFILE_PHASES, "update"));
  assert_int_equal(p.memory.point_count, 0);
  assert_true(isnan(p.memory.peak_bytes));
  assert_int_equal(p.lists[BRIM_PROFILE_TRANSFORMS].count, 0);
  brim_profile_deinit(&p);
  brim_trace_deinit(&t);
  fixture_close(&f);
}

// Extra steps improve the rows of a host; the trace keeps its usual window.
static void test_the_trace_is_a_window(void **state) {
  (void)state;
  fixture f;
  brim_profile p;
  brim_trace t;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  const brim_profile_options options = {.max_seconds = 3};
  run(&f, &options, &p, &t);
  assert_true(p.traced_steps >= t.steps);
  assert_true(t.steps >= 3 && t.steps <= 20);
  for (size_t i = 0; i < t.count; i++) {
    assert_true(t.events[i].step >= 0 && t.events[i].step < t.steps);
    assert_true(t.events[i].end_ns <= t.wall_ns);
  }
  check_json(&p);
  brim_profile_deinit(&p);
  brim_trace_deinit(&t);
  fixture_close(&f);
}

static void open_lazy(fixture *f) {
  memset(f, 0, sizeof *f);
  brim_config_options config = {.text = fixture_yaml, .text_name = "test.yaml"};
  assert_ok(brim_config_load(&config, &f->config));
  assert_ok(brim_registry_create(&f->registry));
  f->device = lazy_open(0);
  brim_work_context context = {.registry = f->registry, .device = f->device};
  assert_ok(brim_work_open(&context, f->config, &f->work));
}

// The device is not one of the registry's.
static void close_lazy(fixture *f) {
  brim_work_close(f->work);
  lazy_close(f->device);
  brim_registry_destroy(f->registry);
  brim_config_close(f->config);
}

static void test_a_device_by_its_events(void **state) {
  (void)state;
  fixture f;
  brim_profile p;
  brim_trace t;
  open_lazy(&f);
  const brim_profile_options options = {.steps = 4, .max_seconds = 0.5, .source = "events"};
  run(&f, &options, &p, &t);
  int events = lazy_count(f.device)->events;
  assert_string_equal(p.source, "events");
  near(p.sum_ms[BRIM_PROFILE_OPS], p.step_ms, 1e-6);
  near(p.sum_ms[BRIM_PROFILE_LAYERS], p.step_ms, 1e-6);
  near(p.sum_ms[BRIM_PROFILE_PHASES], p.step_ms, 1e-6);
  assert_non_null(row(&p, BRIM_PROFILE_LAYERS, "layers.0"));
  check_memory(&p);
  check_json(&p);
  // recordings of the training are still there, and none of the profile's
  int launches = lazy_count(f.device)->launches, ops = lazy_count(f.device)->ops;
  brim_step_info info;
  assert_ok(f.work->table->step(f.work->state, NULL, &info));
  assert_ok(brim_device_sync(f.device));
  assert_true(lazy_count(f.device)->launches > launches);
  assert_int_equal(lazy_count(f.device)->ops, ops);
  assert_int_equal(lazy_count(f.device)->events, events);
  brim_profile_deinit(&p);
  brim_trace_deinit(&t);
  close_lazy(&f);
}

// If CUPTI does not start, events replace it and the reason is kept. If it starts, it sees nothing of a fake device:
// the whole step is a gap.
static void test_the_best_source_there_is(void **state) {
  (void)state;
  fixture f;
  brim_profile p;
  brim_trace t;
  open_lazy(&f);
  const brim_profile_options options = {.steps = 4, .max_seconds = 0.5};
  run(&f, &options, &p, &t);
  bool events = strcmp(p.source, "events") == 0;
  if (!events) assert_string_equal(p.source, "cupti");
  assert_true(!events || p.note[0] != '\0');
  assert_int_equal(p.has_gaps, !events);
  near(p.sum_ms[BRIM_PROFILE_OPS], p.sum_ms[BRIM_PROFILE_PHASES], 1e-6);
  near(p.sum_ms[BRIM_PROFILE_OPS], p.sum_ms[BRIM_PROFILE_LAYERS], 1e-6);
  check_memory(&p);
  check_json(&p);
  brim_profile_deinit(&p);
  brim_trace_deinit(&t);
  close_lazy(&f);
}

static void test_sources_that_are_not_there(void **state) {
  (void)state;
  fixture f;
  brim_profile p;
  brim_trace t;
  assert_ok(fixture_open(&f, "ref", fixture_yaml, NULL, 0));
  brim_setting setting = brim_work_setting(f.work);
  const brim_profile_options options = {.source = "cupti"};
  assert_status(brim_profile_run(f.work, f.config, f.device, &setting, &options, &p, &t),
                BRIM_EUNSUPPORTED);
  brim_profile_deinit(&p);
  brim_trace_deinit(&t);
  volatile sig_atomic_t stop = 1;
  const brim_profile_options stopped = {.stop = &stop};
  assert_status(brim_profile_run(f.work, f.config, f.device, &setting, &stopped, &p, &t),
                BRIM_EINTERRUPTED);
  assert_null(f.device->watch);
  brim_profile_deinit(&p);
  brim_trace_deinit(&t);
  fixture_close(&f);
}

// A result whose step is measured again: rates, epoch and phases follow.
static void test_retimed(void **state) {
  (void)state;
  const double slow[] = {9, 10, 11}, quick[] = {4, 5, 5, 6};
  brim_stats_summary total;
  brim_result r;
  brim_result_init(&r);
  assert_ok(brim_times_summarize(slow, 3, &r.total_ms));
  brim_result_set_rates(&r, 20, 6000);
  near(r.samples_per_s, 2000, 1e-9);
  near(r.epoch_s, 3, 1e-9);
  r.phase_ms[BRIM_PHASE_IO] = r.total_ms;
  r.quota_cpu_ms = 8;
  assert_ok(brim_times_summarize(quick, 4, &total));
  brim_result_retime(&r, &total);
  near(r.samples_per_s, 4000, 1e-9);
  near(r.epoch_s, 1.5, 1e-9);
  near(r.phase_ms[BRIM_PHASE_IO].median, 5, 1e-9);
  near(r.quota_cpu_ms, 4, 1e-9);
  assert_int_equal(r.steps, 4);
  brim_result_set_phase(&r, BRIM_PHASE_IO, 1);
  near(r.phase_ms[BRIM_PHASE_IO].median, 1, 1e-9);
  near(r.phase_ms[BRIM_PHASE_IO].max, 1.1, 1e-9);
  brim_result_set_phase(&r, BRIM_PHASE_H2D, 2);  // was not there before
  assert_true(r.phase_used[BRIM_PHASE_H2D] && r.phase_ms[BRIM_PHASE_H2D].mean == 2);
  assert_ok(brim_times_summarize(slow, 1, &total));
  assert_true(isnan(total.mad) && isnan(total.ci_low));
  brim_result_deinit(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_retimed),
      cmocka_unit_test(test_a_perceptron_by_the_clock),
      cmocka_unit_test(test_a_convnet_with_transforms),
      cmocka_unit_test(test_loading_is_in_the_wait),
      cmocka_unit_test(test_layers_of_two_networks),
      cmocka_unit_test(test_rollouts_have_phases),
      cmocka_unit_test(test_the_trace_is_a_window),
      cmocka_unit_test(test_a_device_by_its_events),
      cmocka_unit_test(test_the_best_source_there_is),
      cmocka_unit_test(test_sources_that_are_not_there),
  };
  test_filter();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
