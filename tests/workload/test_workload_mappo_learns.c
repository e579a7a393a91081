// mappo learns: a pole stays up, UAVs cover more than random ones. It reports baselines in the same episodes, troubles,
// and the findings of a sweep.
#include <math.h>

#include "record/record_findings.h"
#include "workload/fixture.h"
#include "workload/mappo/mappo_int.h"

static const char pole_yaml[] =
    "workload: mappo\n"
    "env: cartpole\n"
    "model: actor_critic(depth=2, hidden=64)\n"
    "optimizer: adam(lr=0.001, eps=1e-5)\n"
    "training: {clip_norm: 0.5}\n"
    "mappo: {num_envs: 16, rollout_steps: 64, update_epochs: 10, minibatches: 4, gamma: 0.99,\n"
    "        gae_lambda: 0.9, entropy_coef: 0.0, iterations: 200, eval_episodes: 100,\n"
    "        eval_actions: best}\n";

static const char uav_yaml[] =
    "workload: mappo\n"
    "env: uav(size=16, num_uavs=4, num_obstacles=10, episode_steps=60, crop=7)\n"
    "model: actor_critic(depth=2, hidden=64)\n"
    "optimizer: adam(lr=0.001, eps=1e-5)\n"
    "mappo: {num_envs: 16, rollout_steps: 60, update_epochs: 5, minibatches: 4, iterations: 30,\n"
    "        eval_interval: 5, eval_episodes: 40}\n";

static brim_mappo *of(const fixture *f) { return (brim_mappo *)f->work->state; }

static void open_yaml(fixture *f, const char *device, const char *yaml) {
  assert_ok(fixture_open(f, device, yaml, NULL, 0));
  assert_ok(fixture_configure(f));
}

static void steps(fixture *f, int count) {
  for (int i = 0; i < count; i++) {
    brim_step_info info;
    assert_ok(f->work->table->step(f->work->state, NULL, &info));
  }
}

// Each of the two takes seconds to learn, so the seed selects one.
static bool is_poles_turn(void) { return test_is_sampled(0, 2); }

// 500 steps in all of 100 held-out episodes.
static void test_pole(void **state) {
  (void)state;
  if (!is_poles_turn()) return;
  fixture f;
  brim_work_metrics m;
  double length = 0;
  open_yaml(&f, "cpu", pole_yaml);
  for (int i = 0; i < 20 && length < 500; i++) {
    steps(&f, 10);
    assert_ok(f.work->table->evaluation->evaluate(f.work->state, &m));
    length = figure(m, "length");
  }
  if (!(length == 500)) fail_msg("%g steps", length);
  assert_int_equal(m.samples, 100);
  assert_true(figure(m, "return") == 500);
  assert_true(figure(m, "falls") == 0);
  // random actions in the same episodes
  assert_true(m.baseline[BRIM_MAPPO_RETURN] > 15 && m.baseline[BRIM_MAPPO_RETURN] < 30);
  fixture_close(&f);
}

static void test_uav(void **state) {
  (void)state;
  if (is_poles_turn() && !test_is_full()) return;
  fixture f;
  brim_work_metrics before, after, again;
  open_yaml(&f, "cpu", uav_yaml);
  assert_ok(f.work->table->policy->baseline(f.work->state));
  assert_ok(f.work->table->evaluation->evaluate(f.work->state, &before));
  steps(&f, 30);
  assert_ok(f.work->table->evaluation->evaluate(f.work->state, &after));
  int covered = brim_metric_find(after.set, "mean_coverage");
  assert_true(covered >= 0);
  double random = after.baseline[covered];
  double trained = after.values[covered], first = before.values[covered];
  // actions of a new policy are about equally likely
  if (!(fabs(first / random - 1) < 0.15)) fail_msg("%g at first, %g of random", first, random);
  if (!(trained > 1.25 * random)) fail_msg("%g, %g of random actions", trained, random);
  // the environment's rule is reported beside it
  assert_true(figure(after, "greedy_mean_coverage") > random);
  assert_true(isnan(figure(after, "greedy_arrivals")));
  // the same episodes each time; evaluating a saved policy takes other ones
  assert_ok(f.work->table->evaluation->evaluate(f.work->state, &again));
  assert_true(again.values[covered] == trained);
  assert_true(again.baseline[covered] == random);
  assert_ok(f.work->table->save(f.work->state, "uav.safetensors", NULL, true));
  assert_ok(f.work->table->evaluation->use(f.work->state, "uav.safetensors", false));
  assert_ok(f.work->table->evaluation->evaluate(f.work->state, &again));
  assert_true(again.values[covered] != trained);
  assert_true(again.baseline[covered] != random);
  assert_true(fabs(again.values[covered] / trained - 1) < 0.1);
  fixture_close(&f);
}

// Recorded episodes equal those of the evaluation of a checkpoint.
static void test_replay(void **state) {
  (void)state;
  fixture f;
  brim_work_metrics m;
  void *replay = NULL;
  brim_work_replay_info info;
  open_yaml(&f, "cpu", uav_yaml);
  steps(&f, 3);
  assert_ok(f.work->table->save(f.work->state, "replay.safetensors", NULL, true));
  assert_ok(f.work->table->evaluation->use(f.work->state, "replay.safetensors", false));
  assert_ok(f.work->table->evaluation->evaluate(f.work->state, &m));
  const brim_work_replay_table *t = f.work->table->replay;
  assert_ok(t->open(f.registry, f.config, "replay.safetensors", &replay));
  t->info(replay, &info);
  assert_int_equal(info.steps, 60);
  const size_t width = (size_t)of(&f)->z.frame;
  float *frames = (float *)brim_calloc(61 * width, sizeof *frames), reward[61];
  assert_non_null(frames);
  for (size_t actor = 0; actor < info.actor_count; actor++) {
    double sum = 0;
    for (int32_t e = 0; e < 40; e++) {
      brim_work_recording one = {.capacity = 61, .frames = frames, .reward = reward};
      assert_ok(t->record(replay, actor, e, 60, &one));
      assert_int_equal(one.states, 61);
      for (int64_t i = 0; i < one.states; i++) sum += (double)reward[i];
    }
    const bool is_random = strcmp(info.actors[actor].name, "random") == 0;
    const double random = m.baseline[BRIM_MAPPO_RETURN];
    if (actor > 0 && !is_random) {  // the environment's rule, which this evaluation lacks
      if (!(sum / 40 > random)) fail_msg("%g by the rule, %g by chance", sum / 40, random);
      continue;
    }
    const double want = is_random ? random : figure(m, "return");
    if (!(fabs(sum / 40 / want - 1) < 1e-5)) fail_msg("%g, evaluated %g", sum / 40, want);
  }
  // a recording with too little room is cut off
  brim_work_recording few = {.capacity = 61, .frames = frames, .reward = reward};
  assert_ok(t->record(replay, 0, 130, 7, &few));
  assert_int_equal(few.states, 8);
  brim_free(frames);
  t->close(replay);
  fixture_close(&f);
}

// The number of episodes that are evaluated at once changes nothing.
static void test_parts(void **state) {
  (void)state;
  static const char *const envs[] = {"mappo.num_envs=40", "mappo.num_envs=7"};
  double returns[2];
  for (int i = 0; i < 2; i++) {
    fixture f;
    brim_work_metrics m;
    const char *const overrides[] = {envs[i], "mappo.minibatches=1"};
    assert_ok(fixture_open(&f, "ref", uav_yaml, overrides, 2));
    assert_ok(fixture_configure(&f));
    assert_ok(f.work->table->evaluation->evaluate(f.work->state, &m));
    returns[i] = figure(m, "return");
    fixture_close(&f);
  }
  assert_true(returns[0] == returns[1]);
}

//---------------------------------- diagnoses ----------------------------------

static size_t look(fixture *f, double entropy, double kl, double value_loss, int64_t bad,
                   brim_work_trouble *out) {
  brim_work_metrics m;
  memset(&m, 0, sizeof m);
  m.set = &of(f)->rows.set;
  brim_metric_unknown(m.values);
  m.values[BRIM_MAPPO_ENTROPY] = entropy;
  m.values[BRIM_MAPPO_KL] = kl;
  m.values[BRIM_MAPPO_VALUE_LOSS] = value_loss;
  m.samples = 100;
  m.bad = bad;
  const brim_work_moment at = {.epoch = 1, .step = 3, .lr = 0.001, .metrics = &m};
  return f->work->table->diagnosis->take(f->work->state, &at, out);
}

static void named(fixture *f, const brim_work_trouble *t, const char *name) {
  assert_string_equal(f->work->table->diagnosis->rows[t->kind].name, name);
  assert_true(t->text[0] && t->advice[0]);
}

static void test_troubles(void **state) {
  (void)state;
  fixture f;
  brim_work_trouble t[BRIM_WORK_MAX_TROUBLES];
  open_yaml(&f, "ref", uav_yaml);
  for (int i = 0; i < 10; i++) assert_int_equal(look(&f, 1.2, 0.01, 0.1, 0, t), 0);
  assert_int_equal(look(&f, 1.2, 0.01, 0.1, 4, t), 1);
  named(&f, &t[0], "outputs_not_finite");
  assert_int_equal(t[0].count, 4);
  assert_int_equal(look(&f, 1.2, 0.5, 0.1, 0, t), 1);
  named(&f, &t[0], "policy_moved_far");
  assert_int_equal(look(&f, 1.2, 0.01, 5, 0, t), 1);
  named(&f, &t[0], "value_loss_exploded");
  assert_int_equal(look(&f, 0.01, 0.01, 0.1, 0, t), 1);
  named(&f, &t[0], "entropy_collapsed");
  assert_int_equal(look(&f, 0.01, 0.01, 0.1, 0, t), 0);  // once
  char advice[512] = "";
  const int64_t counts[BRIM_WORK_MAX_TROUBLES] = {1};
  f.work->table->diagnosis->advice(f.work->state, counts, 0.001, advice, sizeof advice);
  assert_non_null(strstr(advice, "mappo.entropy_coef"));
  fixture_close(&f);
}

// Three evaluations in a row below random actions.
static void test_below_random(void **state) {
  (void)state;
  fixture f;
  brim_work_trouble t[BRIM_WORK_MAX_TROUBLES];
  brim_work_metrics m;
  open_yaml(&f, "ref", uav_yaml);
  memset(&m, 0, sizeof m);
  brim_metric_unknown(m.values);
  brim_metric_unknown(m.baseline);
  m.values[BRIM_MAPPO_RETURN] = 1;
  m.baseline[BRIM_MAPPO_RETURN] = 2;
  m.values[BRIM_MAPPO_ERROR] = m.baseline[BRIM_MAPPO_ERROR] = 0.1;
  const brim_work_moment at = {.metrics = &m, .evaluated = true, .step = 9, .lr = 0.1};
  const brim_work_diagnosis *d = f.work->table->diagnosis;
  assert_int_equal(d->take(f.work->state, &at, t), 0);
  assert_int_equal(d->take(f.work->state, &at, t), 0);
  assert_int_equal(d->take(f.work->state, &at, t), 1);
  named(&f, &t[0], "below_random");
  assert_int_equal(d->take(f.work->state, &at, t), 0);
  fixture_close(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_pole),     cmocka_unit_test(test_uav),
      cmocka_unit_test(test_replay),   cmocka_unit_test(test_parts),
      cmocka_unit_test(test_troubles), cmocka_unit_test(test_below_random),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
