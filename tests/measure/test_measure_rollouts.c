// Trials of mappo on a fake GPU: the times of its phases with environments beside it and on it, the computations in
// each, and the predicted times of a move. Measuring does not change the training.
#include <math.h>

#include "measure/measure.h"
#include "metric_value.h"
#include "profile/profile.h"
#include "same_file.h"
#include "test.h"
#include "workload/gpu_face.h"
#include "workload/mappo/mappo_int.h"

static const char yaml[] =
    "workload: mappo\n"
    "env: uav(size=12, num_uavs=3, num_obstacles=5, episode_steps=20, crop=5)\n"
    "model: actor_critic(depth=2, hidden=16)\n"
    "optimizer: adam(lr=0.003)\n"
    "mappo: {num_envs: 4, rollout_steps: 50, update_epochs: 2, minibatches: 4, iterations: 9,\n"
    "        eval_interval: 3, eval_episodes: 4}\n"
    "seed: 3\n";

typedef struct job {
  brim_config *config;
  brim_registry *registry;
  brim_device *device;
  brim_work *work;
} job;

// Fused kernels take only environments with small observations.
static void open_job(job *j, const char *collect_on, bool fused) {
  char text[64];
  snprintf(text, sizeof text, "mappo.collect_on=%s", collect_on);
  const char *const overrides[] = {text, "env=cartpole", "mappo.fused=on"};
  const brim_config_options options = {.text = yaml,
                                       .text_name = "test.yaml",
                                       .overrides = overrides,
                                       .override_count = fused ? 3 : 1};
  assert_ok(brim_config_load(&options, &j->config));
  assert_ok(brim_registry_create(&j->registry));
  assert_ok(brim_registry_load(j->registry, fused ? BRIM_TEST_FUSED_PLUGIN : BRIM_TEST_PLUGIN));
  j->device = gpu_face_open();
  const brim_work_context context = {.registry = j->registry, .device = j->device};
  assert_ok(brim_work_open(&context, j->config, &j->work));
}

static void close_job(job *j) {
  brim_work_close(j->work);
  brim_device_close(j->device);
  brim_registry_destroy(j->registry);
  brim_config_close(j->config);
}

static void run_job(job *j, int steps, const brim_spans *spans) {
  for (int i = 0; i < steps; i++) {
    brim_step_info info;
    assert_ok(j->work->table->step(j->work->state, spans, &info));
  }
}

static void configure(job *j) {
  const brim_setting setting = brim_work_setting(j->work);
  assert_ok(j->work->table->configure(j->work->state, &setting));
}

static void save(job *j, const char *path) {
  assert_ok(j->work->table->save(j->work->state, path, NULL, true));
}

//---------------------------------- phases ----------------------------------

static void measure(const char *collect_on, bool fused, brim_result *r) {
  job j;
  open_job(&j, collect_on, fused);
  const brim_setting setting = brim_work_setting(j.work);
  const brim_trial_options options = {.steps = 3};
  assert_ok(brim_trial_run(j.work, j.config, j.device, &setting, &options, r));
  if (r->failure) fail_msg("%s", r->message);
  close_job(&j);
  double sum = 0;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) sum += r->phase_used[p] ? r->phase_ms[p].mean : 0;
  assert_true(fabs(sum - r->total_ms.mean) <= 1e-6 * r->total_ms.mean);
}

// The GPU computes the actor's outputs and the update, the host the rest.
static void test_beside_a_gpu(void **state) {
  (void)state;
  brim_result r;
  measure("cpu", false, &r);
  static const brim_phase phases[] = {BRIM_PHASE_ENV, BRIM_PHASE_ACT, BRIM_PHASE_H2D,
                                      BRIM_PHASE_UPDATE};
  for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
    assert_true(r.phase_used[phases[i]] && r.phase_ms[phases[i]].mean > 0);
    assert_true(r.phase_busy_ms[phases[i]] >= 0);
  }
  assert_false(r.phase_used[BRIM_PHASE_COMPUTE]);
  assert_true(r.phase_busy_ms[BRIM_PHASE_ENV] == 0 && r.phase_busy_ms[BRIM_PHASE_H2D] == 0);
  assert_true(r.phase_busy_ms[BRIM_PHASE_ACT] > 0 && r.phase_busy_ms[BRIM_PHASE_UPDATE] > 0);
  // on the GPU there are no copies
  assert_true(r.phase_moved_ms[BRIM_PHASE_ENV] > 0 && r.phase_moved_ms[BRIM_PHASE_ACT] > 0);
  assert_true(r.phase_moved_ms[BRIM_PHASE_H2D] == 0);
  assert_true(isnan(r.phase_moved_ms[BRIM_PHASE_UPDATE]));
  // a record has both
  json_t *json = NULL;
  brim_result again;
  assert_ok(brim_result_to_json(&r, &json));
  assert_ok(brim_result_from_json(json, "a.jsonl", 1, &again));
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    const double pairs[2][2] = {{r.phase_busy_ms[p], again.phase_busy_ms[p]},
                                {r.phase_moved_ms[p], again.phase_moved_ms[p]}};
    for (int i = 0; i < 2 && r.phase_used[p]; i++) {
      assert_true(isnan(pairs[i][0]) ? isnan(pairs[i][1]) : fabs(pairs[i][0] - pairs[i][1]) < 1e-9);
    }
  }
  json_decref(json);
  brim_result_deinit(&again);
  brim_result_deinit(&r);
}

// One launch for the whole rollout: environment and actor have separate times, and nothing is copied.
static void measure_on_gpu(bool fused) {
  brim_result r;
  measure("gpu", fused, &r);
  static const brim_phase phases[] = {BRIM_PHASE_ENV, BRIM_PHASE_ACT, BRIM_PHASE_UPDATE};
  for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
    assert_true(r.phase_used[phases[i]] && r.phase_ms[phases[i]].mean > 0);
    assert_true(r.phase_busy_ms[phases[i]] > 0);
    assert_true(isnan(r.phase_moved_ms[phases[i]]));
  }
  assert_false(r.phase_used[BRIM_PHASE_H2D]);
  assert_false(r.phase_used[BRIM_PHASE_COMPUTE]);
  brim_result_deinit(&r);
}

static void test_on_a_gpu(void **state) {
  (void)state;
  measure_on_gpu(false);
  measure_on_gpu(true);
}

// Pieces of a rollout are timed before the first rollout, when its memory has no states yet.
static void test_pieces_begin_with_states(void **state) {
  (void)state;
  static const char *const places[] = {"cpu", "gpu"};
  for (size_t i = 0; i < 2; i++) {
    job j;
    brim_phase_timer timer;
    brim_mappo_pieces pieces = {0};
    brim_phase_timer_init(&timer);
    timer.spans.exact = true;
    open_job(&j, places[i], true);
    configure(&j);
    brim_mappo *w = (brim_mappo *)j.work->state;
    const brim_collect_span last = w->layout.saved[0];  // the state after the last step
    char *expected = malloc(last.bytes);
    assert_non_null(expected);
    memcpy(expected, w->block + last.offset, last.bytes);
    memset(w->block + w->layout.states, 0xFF, last.offset - w->layout.states);
    assert_ok(brim_mappo_probe_run(w, &timer.spans, &pieces));
    assert_memory_equal(w->block + w->layout.states, expected, last.bytes);
    free(expected);
    close_job(&j);
  }
}

//---------------------------------- no trace ----------------------------------

typedef struct training {
  const char *where, *path;
  bool exact, measured, fused;
} training;

static void train(const training *t) {
  job j;
  brim_phase_timer timer;
  brim_phase_timer_init(&timer);
  timer.spans.exact = t->exact;
  open_job(&j, t->where, t->fused);
  configure(&j);
  run_job(&j, 4, t->measured ? &timer.spans : NULL);
  brim_work_metrics m;
  assert_ok(j.work->table->metrics(j.work->state, true, &m));
  // 4 environments, 200 steps each, episodes of at most 20 for each of them
  assert_true(metric_value(m.set, m.values, "episodes") >= (t->fused ? 4 : 40));
  save(&j, t->path);
  close_job(&j);
}

// Measuring changes no weight, with environments beside the GPU or on it. The same holds for fused kernels.
static void test_measuring_changes_nothing(void **state) {
  (void)state;
  static const training runs[] = {{"cpu", "a.safetensors", false, false, false},
                                  {"cpu", "b.safetensors", true, true, false},
                                  {"gpu", "c.safetensors", false, true, false},
                                  {"gpu", "d.safetensors", true, true, false}};
  static const training fused[] = {{"gpu", "e.safetensors", false, false, true},
                                   {"gpu", "f.safetensors", true, true, true}};
  for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) train(&runs[i]);
  for (size_t i = 1; i < sizeof runs / sizeof *runs; i++) {
    assert_same_file(runs[0].path, runs[i].path);
  }
  for (size_t i = 0; i < 2; i++) train(&fused[i]);
  assert_same_file(fused[0].path, fused[1].path);
}

int main(void) {
  brim_json_own_memory();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_beside_a_gpu),
      cmocka_unit_test(test_on_a_gpu),
      cmocka_unit_test(test_pieces_begin_with_states),
      cmocka_unit_test(test_measuring_changes_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
