// Rules of the ars workload: what counts as an episode, a fall and a step, the effect of a shift, and the policies that
// a run may start from.
#include <math.h>

#include "same_file.h"
#include "workload/ars_fixture.h"

// A number of steps too large to count is capped at the largest one.
static void test_huge(void **state) {
  (void)state;
  static const char huge[] =
      "workload: ars\n"
      "ars: {num_envs: 16777216, num_dirs: 1000000, episode_length: 1048576}\n";
  fixture f;
  brim_work_info info;
  assert_ok(fixture_open(&f, "ref", huge, NULL, 0));
  f.work->table->info(f.work->state, &info);
  assert_true(info.samples_per_epoch == INT64_MAX && info.set_samples == INT64_MAX);
  fixture_close(&f);
}

// Every environment begins an episode, and another one after each fall. All of them count, so a policy that falls early
// and then stands does not rate as one that always falls.
static void test_training_falls(void **state) {
  (void)state;
  static const char pushed[] = "env=quadruped(task=stand, push_speed=9, push_every=4)";
  fixture f;
  brim_work_metrics m;
  open_with(&f, pushed, NULL);
  steps(&f, 2);
  assert_ok(f.work->table->metrics(f.work->state, true, &m));
  assert_true(episodes_of(m).ended > 0);
  assert_int_equal(episodes_of(m).episodes, 2 * 8 * 4 + episodes_of(m).ended);
  assert_int_equal(episodes_of(m).steps, 2 * 8 * 4 * 20);
  fixture_close(&f);
  // without restarts each environment has one episode, and steps after a fall do not count
  open_with(&f, pushed, "ars.restart=false");
  steps(&f, 2);
  assert_ok(f.work->table->metrics(f.work->state, true, &m));
  assert_true(episodes_of(m).ended > 0);
  assert_int_equal(episodes_of(m).episodes, 2 * 8 * 4);
  assert_true(episodes_of(m).steps < 2 * 8 * 4 * 20);
  fixture_close(&f);
}

// Some rollouts diverge: two episodes of every evaluation, three of every iteration.
static struct {
  const brim_rollout_table *real;
  brim_rollout_table table;
  brim_rollout_episode episodes[6];  // from the last evaluation
} wild;

static brim_status wild_evaluate(const brim_rollout_where *where, const brim_rollout_shape *shape,
                                 void *block, const brim_rollout_eval *how) {
  brim_rollout_layout layout;
  assert_ok(wild.real->layout(shape, &layout));
  assert_ok(wild.real->evaluate(where, shape, block, how));
  brim_rollout_episode *e = (brim_rollout_episode *)((char *)block + layout.episodes);
  float *far = (float *)((char *)block + layout.figures);
  e[1] = (brim_rollout_episode){-43, 7, BRIM_ENV_DIVERGED};
  e[4] = (brim_rollout_episode){-49, 1, BRIM_ENV_DIVERGED};
  far[1] = far[4] = NAN;
  memcpy(wild.episodes, e, sizeof wild.episodes);
  return BRIM_OK;
}

static brim_status wild_update(const brim_rollout_where *where, const brim_rollout_shape *shape,
                               void *block, int64_t iteration, int32_t top, float step_size) {
  brim_rollout_layout layout;
  assert_ok(wild.real->layout(shape, &layout));
  assert_ok(wild.real->update(where, shape, block, iteration, top, step_size));
  ((brim_rollout_tally *)((char *)block + layout.tally))[2].diverged = 3;
  return BRIM_OK;
}

// Diverged episodes count as falls, in the share and in the mean: they must not make a policy look better.
static void test_diverged(void **state) {
  (void)state;
  fixture f;
  brim_work_metrics m;
  double sum = 0;
  int fell = 0;
  open_with(&f, NULL, NULL);
  brim_ars *w = (brim_ars *)f.work->state;
  wild.real = w->table;
  wild.table = *w->table;
  wild.table.evaluate = wild_evaluate;
  wild.table.update = wild_update;
  w->table = &wild.table;
  assert_ok(brim_work_evaluate(f.work, &m));
  for (int i = 0; i < 6; i++) {
    sum += (double)wild.episodes[i].reward;
    fell += wild.episodes[i].outcome != 0;
  }
  assert_int_equal(episodes_of(m).diverged, 2);
  assert_int_equal(episodes_of(m).ended, fell);
  assert_int_equal(episodes_of(m).count, 6);
  assert_true(fabs(episodes_of(m).sum - sum) < 1e-6);
  assert_true(figure(m, "return") == episodes_of(m).sum / 6);
  assert_true(figure(m, "falls") == fell / 6.0);
  assert_true(isfinite(episodes_of(m).figure[0][0]));  // the mean leaves them out
  assert_int_equal(m.bad, 2);
  steps(&f, 1);
  assert_ok(f.work->table->metrics(f.work->state, true, &m));
  assert_int_equal(episodes_of(m).diverged, 3);
  assert_true(episodes_of(m).ended >= 3);
  assert_int_equal(episodes_of(m).episodes, 8 * 4 + episodes_of(m).ended);
  fixture_close(&f);
}

static char said[2048];
static void remember(void *ctx, brim_log_level level, const char *module, const char *text) {
  (void)ctx, (void)level, (void)module;
  size_t n = strlen(said);
  snprintf(said + n, sizeof said - n, "%s\n", text);
}

// Distance between two policies after one step, relative to the first.
static double apart(const char *restart, const char *shift) {
  const char *const shifts[] = {"ars.shift=0", shift};
  static const char pushed[] = "env=quadruped(task=walk, push_speed=9, push_every=4)";
  brim_ars_policy p[2];
  double sum = 0, size = 0;
  said[0] = 0;
  for (int i = 0; i < 2; i++) {
    fixture f;
    const char *const overrides[] = {pushed, restart, shifts[i]};
    brim_log_set_sink(remember, NULL, BRIM_LOG_WARN);
    assert_ok(fixture_open(&f, "ref", yaml, overrides, 3));
    brim_log_set_sink(NULL, NULL, BRIM_LOG_ERROR);
    assert_ok(fixture_configure(&f));
    steps(&f, 1);
    save(&f, "apart");
    brim_rollout_shape shape;
    assert_ok(brim_ars_shape(f.config, NULL, &shape));
    fixture_close(&f);
    assert_ok(brim_ars_policy_read("apart", &shape, &p[i]));
  }
  for (size_t i = 0; i < p[0].params; i++) {
    double d = (double)p[0].theta[i] - (double)p[1].theta[i];
    sum += d * d;
    size += (double)p[0].theta[i] * (double)p[0].theta[i];
  }
  brim_ars_policy_deinit(&p[0]);
  brim_ars_policy_deinit(&p[1]);
  return sqrt(sum / size);
}

// A shift of the rewards has no effect if all episodes have equally many steps, and brim reports that. If episodes end
// early it has one.
static void test_shift(void **state) {
  (void)state;
  assert_true(apart("ars.restart=true", "ars.shift=1") < 1e-4);
  assert_non_null(strstr(said, "ars.shift is 1 but has no effect"));
  assert_non_null(strstr(said, "ars.restart=false"));
  assert_true(apart("ars.restart=false", "ars.shift=1") > 1e-3);
  assert_string_equal(said, "");
  assert_true(apart("ars.restart=null", "ars.shift=1") < 1e-4);  // the same as unset
}

static void not_started_from(const char *weights, const char *version, const char *words) {
  fixture f;
  const char *const overrides[] = {weights, version};
  assert_ok(fixture_open(&f, "ref", yaml, overrides, 2));
  assert_status(fixture_configure(&f), BRIM_EINVAL);
  if (!strstr(brim_status_detail(), words)) fail_msg("%s", brim_status_detail());
  fixture_close(&f);
}

// The tensors of a policy, without metadata about its training.
static void write_bare(const char *from, const char *to, bool filter) {
  brim_safetensors *file = NULL;
  brim_safetensors_entry entries[16];
  size_t n = 0;
  assert_ok(brim_safetensors_open(from, &file));
  for (size_t i = 0; i < brim_safetensors_count(file); i++) {
    entries[n] = *brim_safetensors_at(file, i);
    n += filter || !brim_str_starts(entries[n].name, "filter.");
  }
  assert_ok(brim_safetensors_write(to, entries, n, NULL));
  brim_safetensors_close(file);
}

// A policy for normalised observations does not fit plain ones, nor the reverse. Without its statistics a policy cannot
// be continued, but it can be evaluated.
static void test_versions(void **state) {
  (void)state;
  fixture f;
  brim_work_metrics m;
  open_with(&f, "ars.version=v1", NULL);
  steps(&f, 2);
  save(&f, "plain");
  fixture_close(&f);
  open_with(&f, "ars.version=v2", NULL);
  refuses(&f, "plain", "trained on plain observations (ars.version=v1)");
  assert_ok(brim_work_use(f.work, "plain", false));
  assert_ok(brim_work_evaluate(f.work, &m));
  fixture_close(&f);
  not_started_from("training.weights=plain", "ars.version=v2", "set ars.version=v1");
  open_with(&f, "training.weights=plain", "ars.version=v1");
  fixture_close(&f);
  // a run that was stopped before its first step has no statistics yet, but belongs to v2
  open_with(&f, "ars.version=v2", NULL);
  save(&f, "begun");
  steps(&f, 2);
  save(&f, "normal");
  fixture_close(&f);
  open_with(&f, "training.weights=begun", "ars.version=v2");
  fixture_close(&f);
  not_started_from("training.weights=normal", "ars.version=v1", "set ars.version=v2");
  write_bare("normal", "bare", false);
  not_started_from("training.weights=bare", "ars.version=v2", "no observation statistics");
  write_bare("normal", "whole", true);
  open_with(&f, "training.weights=whole", "ars.version=v2");
  fixture_close(&f);
}

// A run continues only with the same task. Another task may start from the policy as weights.
static void test_tasks(void **state) {
  (void)state;
  fixture f;
  open_with(&f, NULL, NULL);
  steps(&f, 2);
  save(&f, "stood");
  fixture_close(&f);
  open_with(&f, "env=quadruped(task=walk)", NULL);
  refuses(&f, "stood", "its task is stand, but this run's task is walk");
  refuses(&f, "stood", "--weights and another --output-dir");
  fixture_close(&f);
  open_with(&f, "env=quadruped(task=walk)", "training.weights=stood");
  save(&f, "walked");
  fixture_close(&f);
  open_with(&f, NULL, NULL);
  refuses(&f, "walked", "its task is walk, but this run's task is stand");
  assert_ok(brim_work_use(f.work, "walked", false));
  fixture_close(&f);
}

//---------------------------- the zero policy, as training measures ----------------------------

// Progress compares the directions of training with the zero policy: in the same environments, with the same length and
// restarts. A search without noise from a policy of zeros is the zero policy.
static void test_training_baseline(void **state) {
  (void)state;
  fixture f;
  brim_work_info info;
  brim_work_metrics m;
  open_with(&f, "ars.eval_episodes=32", "ars.noise_std=1e-30");
  assert_ok(f.work->table->policy->baseline(f.work->state));
  f.work->table->info(f.work->state, &info);
  const brim_ars_returns zero = ((const brim_ars *)f.work->state)->training_baseline;
  assert_int_equal(zero.steps, 4 * 8 * 20);
  assert_true(info.training_baseline[BRIM_ARS_RETURN] == brim_returns_mean(&zero));
  steps(&f, 1);
  assert_ok(f.work->table->metrics(f.work->state, true, &m));
  assert_int_equal(episodes_of(m).steps, zero.steps);
  assert_int_equal(episodes_of(m).ended, zero.ended);
  double mean = figure(m, "return");
  assert_true(fabs(mean - info.training_baseline[BRIM_ARS_RETURN]) <= 1e-4 * fabs(mean));
  fixture_close(&f);
}

// Measuring the baseline does not change the training.
static void test_training_baseline_leaves_no_trace(void **state) {
  (void)state;
  static const char *const policies[] = {"model=linear_policy", "model=mlp_policy(hidden=4)"};
  for (size_t i = 0; i < 2; i++) {
    fixture f;
    open_with(&f, policies[i], NULL);
    steps(&f, 3);
    save(&f, "without");
    fixture_close(&f);
    open_with(&f, policies[i], NULL);
    assert_ok(f.work->table->policy->baseline(f.work->state));
    steps(&f, 3);
    save(&f, "with");
    assert_same_file("without", "with");
    fixture_close(&f);
  }
}

// Fewer directions than ars.top_dirs: all of them count, as with top_dirs 0.
static void test_top_dirs_capped(void **state) {
  (void)state;
  static const char *const tops[] = {"ars.top_dirs=100", "ars.top_dirs=0"};
  static const char *const files[] = {"capped", "all"};
  for (size_t i = 0; i < 2; i++) {
    fixture f;
    brim_ars_state s = {0};
    open_with(&f, tops[i], NULL);
    steps(&f, 3);
    assert_ok(brim_ars_fetch(f.work->state, &s));
    brim_ars *w = f.work->state;
    assert_ok(brim_fs_write(files[i], s.theta, w->layout.params * sizeof *s.theta));
    brim_ars_state_deinit(&s);
    fixture_close(&f);
  }
  assert_same_file("capped", "all");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_training_baseline),
      cmocka_unit_test(test_training_baseline_leaves_no_trace),
      cmocka_unit_test(test_top_dirs_capped),
      cmocka_unit_test(test_huge),
      cmocka_unit_test(test_training_falls),
      cmocka_unit_test(test_diverged),
      cmocka_unit_test(test_shift),
      cmocka_unit_test(test_versions),
      cmocka_unit_test(test_tasks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
