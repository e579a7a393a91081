// The training loop with a policy: epochs of iterations, logs of returns, exact resume, memory given up chunk by chunk, and a
// return that collapses.
#include <math.h>

#include "run/run_int.h"
#include "same_file.h"
#include "words.h"
#include "workload/ars/ars_int.h"
#include "workload/fixture.h"

static const char yaml[] =
    "workload: ars\n"
    "env: quadruped(task=stand, push_speed=2, push_every=5)\n"
    "ars: {num_envs: 8, num_dirs: 4, dir_chunk: 4, top_dirs: 2, iterations: 5, eval_interval: 2,\n"
    "      eval_episodes: 6, episode_length: 20}\n"
    "log: {interval: 1, tensorboard: true}\n"
    "seed: 3\n";

// The workload's own table, with a device that runs out of memory and a policy that fails.
static struct {
  const brim_workload_table *real;
  brim_workload_table table;
  int64_t fail_step;              // the step to this number fails, once
  int64_t most_chunk, most_envs;  // largest sizes that can be built; 0 = any
  int64_t chunk, envs;            // sizes of the last build
  double returns[8];              // replace the returns of evaluations; 0 = keep
  int evaluation;
  int64_t skip_from, skip_to;  // steps whose update has no effect; 0 = none
  int64_t stop_at;             // a stop arrives during the step to this number; 0 = none
} poor;
static volatile sig_atomic_t halt;
static brim_epoch_report reported;  // of the last epoch
static int64_t steps_made;
static char said[8192];

static brim_status poor_configure(void *work, const brim_setting *setting) {
  int64_t envs = setting->value[0], chunk = setting->value[2];
  if ((poor.most_chunk && chunk > poor.most_chunk) || (poor.most_envs && envs > poor.most_envs)) {
    return brim_fail(BRIM_EOOM, "no memory to build");
  }
  poor.envs = envs;
  poor.chunk = chunk;
  return poor.real->configure(work, setting);
}

static brim_status poor_step(void *work, const brim_spans *spans, brim_step_info *out) {
  if (poor.fail_step && steps_made + 1 == poor.fail_step) {
    poor.fail_step = 0;
    return brim_fail(BRIM_EOOM, "no memory for step %lld", (long long)steps_made + 1);
  }
  if (poor.stop_at && steps_made + 1 == poor.stop_at) halt = 1;
  brim_status status = poor.real->step(work, spans, out);
  if (!status) steps_made = out->step;
  return status;
}

static brim_status poor_metrics(void *work, bool again, brim_work_metrics *out) {
  brim_status status = poor.real->metrics(work, again, out);
  int64_t last = steps_made < poor.skip_to ? steps_made : poor.skip_to;
  if (poor.skip_from && last >= poor.skip_from) out->skipped = last - poor.skip_from + 1;
  return status;
}

static brim_status poor_evaluate(void *work, brim_work_metrics *out) {
  brim_status status = poor.real->evaluation->evaluate(work, out);
  double value = poor.evaluation < 8 ? poor.returns[poor.evaluation++] : 0;
  if (value == 0) return status;
  const brim_ars_returns returns = {
      .count = 100, .sum = 100 * value, .sum_sq = 100 * (value * value + 1), .episodes = 100};
  const brim_ars_returns zero = {
      .count = 100, .sum = 100 * 10.0, .sum_sq = 100 * (10.0 * 10.0 + 1), .episodes = 100};
  brim_returns_pack(&returns, out->sums);
  brim_returns_values(&returns, out->values);
  brim_returns_values(&zero, out->baseline);
  return status;
}

static void remember(void *ctx, brim_log_level level, const char *module, const char *text) {
  (void)ctx, (void)level, (void)module;
  size_t n = strlen(said);
  snprintf(said + n, sizeof said - n, "%s\n", text);
}

static void keep_report(void *ctx, const brim_epoch_report *report) {
  (void)ctx;
  reported = *report;
}

static void busy(void *ctx, double *gpu_percent, double *sm_percent) {
  (void)ctx;
  if (!gpu_percent) return;  // called without outputs: the measured part begins
  *gpu_percent = 97;
  *sm_percent = 81;
}

static const brim_metric_set *measured;  // metrics of the last run

static const char *other_env;  // NULL = the quadruped

static brim_status run(const char *folder, bool resume, int64_t max_steps, const char *one,
                       const char *two, brim_run_result *out) {
  fixture f;
  const char *overrides[3];
  size_t count = 0;
  if (one) overrides[count++] = one;
  if (two) overrides[count++] = two;
  if (other_env) overrides[count++] = other_env;
  said[0] = 0;
  brim_log_set_sink(remember, NULL, BRIM_LOG_INFO);
  assert_ok(fixture_open(&f, "ref", yaml, overrides, count));
  poor.real = f.work->table;
  poor.table = *f.work->table;
  poor.table.configure = poor_configure;
  poor.table.step = poor_step;
  static const brim_work_evaluation_table evaluation = {.evaluate = poor_evaluate};
  poor.table.evaluation = &evaluation;
  poor.table.metrics = poor_metrics;
  f.work->table = &poor.table;
  brim_run_options options = {.output_dir = folder,
                              .resume = resume,
                              .max_steps = max_steps,
                              .stop = &halt,
                              .on_epoch = keep_report,
                              .usage = busy};
  brim_status status = brim_run_train(f.work, f.config, &options, out);
  measured = f.work->metrics;
  fixture_close(&f);
  brim_log_set_sink(NULL, NULL, BRIM_LOG_ERROR);
  return status;
}

static void reset(void) {
  memset(&poor, 0, sizeof poor);
  steps_made = 0;
  halt = 0;
}

static char *slurp(const char *folder, const char *name) {
  char *path = brim_fs_join(folder, name), *data = NULL;
  size_t size;
  assert_ok(brim_fs_read(path, 0, &data, &size));
  brim_free(path);
  return data;
}

static void has(const char *folder, const char *name, const char *words) {
  char *data = slurp(folder, name);
  if (!strstr(data, words)) fail_msg("%s/%s has no %s:\n%s", folder, name, words, data);
  brim_free(data);
}

//---------------------------------- a run ----------------------------------

static void test_run(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  assert_ok(run("plain", false, 0, NULL, NULL, &r));
  assert_int_equal(r.steps, 5);
  assert_int_equal(r.epochs, 3);  // epochs of 2, 2 and 1 iterations
  assert_ptr_equal(r.metrics, measured);
  assert_string_equal(r.unit, "env steps");
  assert_true(r.eval[BRIM_ARS_EPISODES] == 6 && r.eval_samples == 6);
  assert_true(r.baseline[BRIM_ARS_EPISODES] == 6 && r.baseline_samples == 6);
  assert_true(isfinite(r.eval[BRIM_ARS_RETURN]));
  assert_true(r.best_epoch >= 1 && r.best[BRIM_ARS_RETURN] >= r.eval[BRIM_ARS_RETURN]);
  has("plain", "log.csv", "epoch,step,lr,train_return,train_spread,train_falls,eval_return");
  has("plain", "log.jsonl", "\"event\":\"epoch\",\"epoch\":3,\"step\":5");
  has("plain", "log.jsonl", "\"zero_return\":");
  has("plain", "log.jsonl", "\"gpu_percent\":97,\"sm_percent\":81");
  has("plain", "log.csv", ",97,81,");
  has("plain", "log.jsonl", "\"event\":\"steps\",\"epoch\":1,\"step\":1,\"lr\":0.02,\"return\":");
  // a finished run does nothing, and evaluates nothing again
  reset();
  assert_ok(run("plain", true, 0, NULL, NULL, &r));
  assert_int_equal(r.steps_run, 0);
  // with more iterations it continues
  reset();
  assert_ok(run("plain", true, 0, "ars.iterations=7", NULL, &r));
  assert_int_equal(r.steps, 7);
  assert_int_equal(r.steps_run, 2);
}

// A finished run stays unchanged with any settings. A model that is missing or of an earlier step is written again.
static void test_nothing_left(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  assert_ok(run("over", false, 3, NULL, NULL, &r));
  assert_ok(brim_fs_link("over/model.safetensors", "over/third"));
  assert_ok(run("over", true, 0, NULL, NULL, &r));
  assert_ok(brim_fs_link("over/model.safetensors", "over/as_it_was"));
  assert_ok(run("over", true, 0, "ars.phase=phase2", "ars.step_size=0.5", &r));
  assert_int_equal(r.steps_run, 0);
  assert_string_equal(r.checkpoint, "over/model.safetensors");
  assert_true(brim_fs_same("over/model.safetensors", "over/as_it_was"));
  assert_ok(brim_fs_remove("over/model.safetensors"));
  assert_ok(run("over", true, 0, NULL, NULL, &r));
  assert_same_file("over/model.safetensors", "over/as_it_was");
  assert_ok(brim_fs_link("over/third", "over/model.safetensors"));
  assert_ok(run("over", true, 0, NULL, NULL, &r));
  assert_int_equal(r.steps_run, 0);
  assert_same_file("over/model.safetensors", "over/as_it_was");
}

// An unset episode length is the phase's, and reported as such.
static void test_length_told(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  assert_ok(run("length", false, 3, NULL, NULL, &r));
  assert_ok(run("length", true, 4, "ars.episode_length=null", "ars.phase=phase2", &r));
  assert_non_null(
      strstr(said, "was trained with ars.episode_length 20; this run continues with 400"));
  assert_null(strstr(said, "null"));
  assert_ok(run("length", true, 5, "ars.episode_length=400", "ars.phase=phase2", &r));
  assert_null(strstr(said, "ars.episode_length"));
  assert_null(strstr(said, "ars.restart"));
  assert_ok(run("length", true, 5, "ars.phase=phase2", "ars.restart=false", &r));
  assert_non_null(strstr(said, "was trained with ars.restart true; this run continues with false"));
}

// Checkpoints of 0.1 have ars.restart although it was not set: unset means the environment's value.
static void test_restart_told(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  assert_ok(run("restart", false, 2, "ars.restart=true", NULL, &r));
  assert_ok(run("restart", true, 3, NULL, NULL, &r));
  assert_null(strstr(said, "ars.restart"));
  assert_ok(run("restart", true, 4, "ars.restart=true", NULL, &r));
  assert_null(strstr(said, "ars.restart"));
}

static void test_no_evaluation(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  assert_ok(run("unevaluated", false, 0, "ars.eval_episodes=0", NULL, &r));
  assert_int_equal(r.steps, 5);
  assert_true(isnan(r.eval[BRIM_ARS_RETURN]));
  assert_true(r.best_epoch > 0);  // the best by training returns
}

// A run that is stopped after any number of steps and resumed has the same files as an uninterrupted one.
static void test_resume(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  assert_ok(run("whole", false, 0, NULL, NULL, &r));
  for (int stop = 1; stop < 5; stop++) {
    char folder[32];
    snprintf(folder, sizeof folder, "stopped%d", stop);
    reset();
    assert_ok(run(folder, false, stop, NULL, NULL, &r));
    assert_int_equal(r.steps, stop);
    assert_ok(run(folder, true, 0, NULL, NULL, &r));
    static const char *const files[] = {"model.safetensors", "last.safetensors",
                                        "best.safetensors"};
    for (int i = 0; i < 3; i++) {
      char *a = brim_fs_join("whole", files[i]), *b = brim_fs_join(folder, files[i]);
      assert_same_file(a, b);
      brim_free(a);
      brim_free(b);
    }
  }
}

static void test_chunks(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  assert_ok(run("chunks4", false, 0, NULL, NULL, &r));
  assert_ok(run("chunks1", false, 0, "ars.dir_chunk=1", NULL, &r));
  assert_same_file("chunks4/model.safetensors", "chunks1/model.safetensors");
  assert_same_file("chunks4/last.safetensors", "chunks1/last.safetensors");
}

// A stop takes effect between the chunks of an iteration, which is then repeated whole.
static void test_stop_within_a_step(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  assert_ok(run("unstopped", false, 0, "ars.dir_chunk=1", NULL, &r));
  for (int at = 1; at <= 4; at += 3) {
    char folder[32], *last;
    snprintf(folder, sizeof folder, "within%d", at);
    reset();
    poor.stop_at = at;
    assert_status(run(folder, false, 0, "ars.dir_chunk=1", NULL, &r), BRIM_EINTERRUPTED);
    assert_int_equal(r.steps, at - 1);
    assert_true(r.interrupted);
    reset();
    assert_ok(run(folder, true, 0, "ars.dir_chunk=1", NULL, &r));
    last = brim_fs_join(folder, "last.safetensors");
    assert_same_file("unstopped/last.safetensors", last);
    brim_free(last);
  }
  // also within a long chunk on a CPU
  const char *longer = "ars.episode_length=5000", *few = "ars.iterations=1";
  reset();
  other_env = "env=cartpole";  // 5000 steps of the quadruped take a second
  poor.stop_at = 1;
  assert_status(run("within", false, 0, longer, few, &r), BRIM_EINTERRUPTED);
  assert_int_equal(r.steps, 0);
  reset();
  assert_ok(run("within", true, 0, longer, few, &r));
  assert_ok(run("turns", false, 0, longer, "ars.iterations=1", &r));
  assert_same_file("within/last.safetensors", "turns/last.safetensors");
  other_env = NULL;
}

// One update without effect is fine, however short epochs are; many end the run.
static void test_skipped_updates(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  poor.skip_from = poor.skip_to = 3;
  assert_ok(run("skips1", false, 0, "ars.eval_interval=1", NULL, &r));
  assert_int_equal(r.steps, 5);
  assert_int_equal(r.skipped_steps, 1);
  reset();
  poor.skip_from = 3;
  poor.skip_to = 99;
  assert_status(run("skips2", false, 0, "ars.eval_interval=1", "ars.iterations=20", &r),
                BRIM_ESTATE);
  assert_int_equal(r.steps, 7);
  // a resumed run counts earlier steps: 2 lost steps of 5 are no failure yet
  reset();
  poor.skip_from = 4;
  poor.skip_to = 99;
  assert_ok(run("skips3", false, 5, "ars.eval_interval=1", "ars.iterations=20", &r));
  assert_status(run("skips3", true, 0, "ars.eval_interval=1", "ars.iterations=20", &r),
                BRIM_ESTATE);
  assert_int_equal(r.steps, 8);
  // a higher limit for longer epochs
  reset();
  poor.skip_from = 1;
  poor.skip_to = 99;
  assert_status(run("skips4", false, 0, "ars.eval_interval=8", "ars.iterations=20", &r),
                BRIM_ESTATE);
  assert_int_equal(r.steps, 8);
}

//---------------------------------- out of memory ----------------------------------

static uint64_t planned(int64_t envs, int64_t chunk) {
  fixture f;
  brim_plan plan;
  const char *const overrides[] = {"ars.num_envs=512"};
  assert_ok(fixture_open(&f, "ref", yaml, overrides, 1));
  brim_setting setting = brim_work_setting(f.work);
  setting.value[brim_work_knob(f.work, "num_envs")] = envs;
  setting.value[brim_work_knob(f.work, "dir_chunk")] = chunk;
  assert_ok(f.work->table->plan(f.work->state, &setting, &plan));
  uint64_t bytes = plan.bytes[BRIM_PLACE_DEVICE] + plan.bytes[BRIM_PLACE_HOST];
  fixture_close(&f);
  return bytes;
}

static void test_foreseen(void **state) {
  (void)state;
  char limit[64];
  brim_run_result r;
  uint64_t fits = planned(512, 2);
  if (fits >= planned(512, 4)) BRIM_SKIP("chunks of this backend take no memory");
  snprintf(limit, sizeof limit, "gpu.memory_limit=%llu", (unsigned long long)fits);
  reset();
  assert_ok(run("foreseen", false, 2, "ars.num_envs=512", limit, &r));
  assert_int_equal(poor.chunk, 2);
  assert_int_equal(poor.envs, 512);
  assert_non_null(strstr(said, "out of memory foreseen: dir_chunk 4 -> 2"));
  has("foreseen", "log.jsonl", "\"event\":\"adapt\",\"epoch\":1,\"step\":0,\"dir_chunk\":2");
  reset();
  assert_status(run("nothing", false, 0, "gpu.memory_limit=100", NULL, &r), BRIM_EOOM);
  assert_non_null(strstr(brim_status_detail(), "not even"));
  assert_false(brim_fs_exists("nothing"));
}

static void test_met(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  poor.most_chunk = 1;
  poor.most_envs = 4;
  assert_ok(run("met", false, 0, NULL, NULL, &r));
  assert_int_equal(poor.chunk, 1);
  assert_int_equal(poor.envs, 4);
  assert_non_null(strstr(said, "num_envs 8 -> 4, dir_chunk 4 -> 1"));
  reset();
  poor.most_chunk = 1;
  assert_status(run("met2", false, 0, "gpu.on_oom=fail", NULL, &r), BRIM_EOOM);
}

// A run that fails in the middle and is resumed in a new process.
static void test_mid_run(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  poor.fail_step = 3;
  assert_ok(run("mid", false, 0, NULL, NULL, &r));
  assert_int_equal(r.steps, 5);
  assert_int_equal(poor.chunk, 2);
  assert_non_null(strstr(said, "out of memory at step 2: dir_chunk 4 -> 2"));
  reset();
  poor.fail_step = 3;
  assert_ok(run("parts", false, 4, NULL, NULL, &r));
  reset();
  assert_ok(run("parts", true, 0, NULL, NULL, &r));
  assert_int_equal(poor.chunk, 2);
  assert_non_null(
      strstr(said, "ran out of memory at step 2; brim continues with dir_chunk 4 -> 2"));
  assert_same_file("mid/model.safetensors", "parts/model.safetensors");
  assert_same_file("mid/last.safetensors", "parts/last.safetensors");
  // a value that memory did not reduce follows the config; a reduced one stays
  reset();
  assert_ok(run("parts", true, 0, "ars.num_envs=16", "ars.iterations=6", &r));
  assert_int_equal(poor.chunk, 2);
  assert_int_equal(poor.envs, 16);
  // a reduced value follows the config if the config has another number now, smaller or larger
  reset();
  assert_ok(run("parts", true, 0, "ars.dir_chunk=1", "ars.iterations=7", &r));
  assert_int_equal(poor.chunk, 1);
  assert_ok(run("mid", true, 0, "ars.dir_chunk=3", "ars.iterations=6", &r));
  assert_int_equal(poor.chunk, 3);
}

//---------------------------------- a return that collapses ----------------------------------

static brim_ars_returns of_hundred(double mean, double spread) {
  return (brim_ars_returns){
      .count = 100, .sum = 100 * mean, .sum_sq = 100 * mean * mean + 99 * spread * spread};
}

// Feeds evaluations one by one; only the last one must be reported.
static bool collapses(const double *means, int count, double spread, double zero) {
  brim_ars_collapse c;
  memset(&c, 0, sizeof c);
  bool found = false;
  for (int i = 0; i < count; i++) {
    const brim_ars_returns now = of_hundred(means[i], spread), none = of_hundred(zero, spread);
    found = brim_ars_collapse_take(&c, &now, brim_returns_mean(&none), brim_returns_error(&none));
    if (found && i + 1 < count) fail_msg("told at evaluation %d already", i);
  }
  return found;
}

static void test_collapse(void **state) {
  (void)state;
  const double falls[] = {100, 200, 300, 150, 120};
  assert_true(collapses(falls, 5, 10, 100));
  const double dips[] = {100, 200, 300, 150, 280};
  assert_false(collapses(dips, 5, 10, 100));
  // within the usual scatter
  assert_false(collapses(falls, 5, 900, 100));
  // lower, but far above the zero policy
  const double some[] = {100, 200, 300, 250, 250};
  assert_false(collapses(some, 5, 10, 100));
  // below the zero policy, and not on its way up
  const double sinks[] = {90, 60, 50};
  assert_true(collapses(sinks, 3, 10, 100));
  const double rises[] = {20, 40, 60, 80};
  assert_false(collapses(rises, 4, 10, 100));
}

// Evaluations of real runs in 200 episodes, and how often they are reported: in all, and by the first few.
typedef struct recorded {
  double zero, zero_spread;
  int reported;
  double mean[12], spread[12];  // per evaluation; a spread of 0 ends them
} recorded;

static const recorded records[] = {
    // at the floor from the first evaluation on: means vary by chance
    {50,
     45,
     1,
     {-43.9, -41.9, -48.0, -42.5, -42.1, -47.9, -43.0, -44.3},
     {15, 17, 6, 16, 17, 7, 16, 14}},
    {72.6,
     42.9,
     1,
     {-39.3, -27.7, -38.0, -37.5, -41.3, -47.2, -46.3, -46.2},
     {15, 31, 21, 21, 18, 4, 9, 7}},
    {70.9,
     46.4,
     1,
     {-47.6, -45.1, -43.8, -44.0, -46.7, -46.6, -46.8, -47.3},
     {3, 11, 17, 17, 10, 10, 12, 12}},
    {70.6,
     46.0,
     1,
     {-37.9, -37.2, -36.8, -37.9, -34.6, -38.0, -37.6, -39.3},
     {21, 28, 25, 25, 26, 23, 24, 21}},
    {70.9,
     46.4,
     1,
     {-49.0, -48.0, -44.6, -47.2, -46.6, -44.9, -43.3, -45.0},
     {3, 9, 17, 9, 12, 15, 19, 16}},
    {70.6,
     46.0,
     1,
     {-45.4, -43.5, -45.3, -45.8, -47.6, -48.1, -49.0, -48.6},
     {12, 19, 16, 13, 9, 8, 3, 4}},
    // step sizes that are a little too large
    {71.6,
     44.2,
     1,
     {51.4, 37.1, 51.6, 36.3, 44.6, 51.1, 48.4, 40.3},
     {48, 52, 48, 53, 50, 45, 45, 47}},
    // a little below the zero policy, within the scatter
    {72.6,
     42.9,
     0,
     {66.1, 65.7, 60.6, 61.8, 64.7, 65.0, 63.1, 68.5},
     {46, 41, 46, 45, 43, 44, 45, 40}},
    {70.9,
     46.4,
     0,
     {58.4, 62.3, 63.8, 66.1, 60.3, 57.4, 52.9, 56.0},
     {49, 49, 48, 46, 50, 50, 51, 50}},
    // healthy; then with larger errors, from 100 episodes
    {117,
     87,
     0,
     {125.9, 132.3, 143.0, 149.3, 145.5, 149.1, 143.4, 148.2, 152.4, 144.9, 151.9, 149.7},
     {75.7, 73.2, 65.5, 59.7, 65.1, 62.5, 67.6, 63.2, 57.8, 67.9, 62.9, 64.2}},
    // on its way up from far below, slowly
    {70, 45, 0, {-40, -39, -37.5, -37, -35, -34.5, -33, -32}, {20, 20, 20, 20, 20, 20, 20, 20}},
    // rising, with a bad evaluation now and then
    {70, 45, 0, {80, 95, 60, 110, 130, 90, 140, 150}, {40, 40, 40, 40, 40, 40, 40, 40}},
    // collapses, recovers and collapses again: two reports
    {70,
     45,
     2,
     {90, 150, 20, 10, 5, 8, 150, 155, 160, 10, 5, 0},
     {30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 30}},
    // one good evaluation is no recovery
    {70, 45, 1, {90, 150, 20, 10, 150, 8, 5, 0}, {30, 30, 30, 30, 30, 30, 30, 30}},
};

static brim_ars_returns of_many(double mean, double spread) {
  return (brim_ars_returns){.count = 200,
                            .sum = 200 * mean,
                            .sum_sq = 200 * mean * mean + 199 * spread * spread,
                            .episodes = 200};
}

static void test_recorded(void **state) {
  (void)state;
  for (size_t k = 0; k < sizeof records / sizeof *records; k++) {
    const recorded *r = &records[k];
    brim_ars_collapse c;
    int times = 0;
    memset(&c, 0, sizeof c);
    for (int i = 0; i < 12 && r->spread[i] > 0; i++) {
      const brim_ars_returns now = of_many(r->mean[i], r->spread[i]);
      const brim_ars_returns none = of_many(r->zero, r->zero_spread);
      times +=
          brim_ars_collapse_take(&c, &now, brim_returns_mean(&none), brim_returns_error(&none));
    }
    if (times != r->reported)
      fail_msg("record %zu is told %d times, not %d", k, times, r->reported);
  }
}

// Similar directions need more noise, scattered ones less.
static void test_advice(void **state) {
  (void)state;
  fixture f;
  char text[1024];
  double t[BRIM_METRIC_MAX] = {0};
  const brim_ars_returns trained = {
      .count = 10, .sum = 1000, .sum_sq = 100000, .episodes = 40, .ended = 10, .steps = 600};
  brim_returns_values(&trained, t);
  t[BRIM_ARS_UPDATE_NORM] = 0.5;
  t[BRIM_ARS_POLICY_NORM] = 2;
  t[BRIM_ARS_SIGMA] = 0.5;
  assert_ok(fixture_open(&f, "ref", yaml, NULL, 0));
  brim_rollout_shape shape;
  assert_ok(brim_ars_shape(f.config, NULL, &shape));
  brim_ars_collapse_advice(t, f.config, &shape, text, sizeof text);
  assert_string_equal(english(text),
                      "try a smaller ars.step_size (now 0.02; the last update was 25 % of the "
                      "policy), a larger ars.noise_std (now 0.03; returns of the directions "
                      "deviate by 0.5, 0.5 % of their mean), or a shorter ars.episode_length (now "
                      "20; falls in 25 % of the episodes, which are 15 steps long on average)");
  t[BRIM_ARS_SIGMA] = 40;
  brim_ars_collapse_advice(t, f.config, &shape, text, sizeof text);
  assert_non_null(strstr(english(text),
                         "a smaller ars.noise_std (now 0.03; returns of the directions "
                         "deviate by 40, 40 % of their mean)"));
  t[BRIM_ARS_UPDATE_NORM] = t[BRIM_ARS_POLICY_NORM] = 0;
  brim_ars_collapse_advice(t, f.config, &shape, text, sizeof text);
  assert_non_null(strstr(english(text), "the last update was 0 % of the policy"));
  // an environment without falls
  brim_env_row other = *shape.row;
  other.ended.label = "arrivals";
  shape.row = &other;
  brim_ars_collapse_advice(t, f.config, &shape, text, sizeof text);
  assert_non_null(strstr(english(text), "; arrivals in 25 % of the episodes"));
  assert_null(strstr(english(text), "fall"));
  fixture_close(&f);
}

// Divergence counts among the ends of an environment only if those are bad, and under its own name.
static void test_diverged_notes(void **state) {
  (void)state;
  static const struct {
    const char *label;
    brim_metric_better better;
    const char *end;
  } kinds[] = {{"falls", BRIM_BETTER_LOWER, " in these episodes; they count as falls\n"},
               {"crashes", BRIM_BETTER_LOWER, " in these episodes; they count as crashes\n"},
               {"arrivals", BRIM_BETTER_HIGHER, "the simulation overflowed in these episodes\n"}};
  const brim_ars_returns returns = {.count = 4, .episodes = 5, .diverged = 2, .steps = 9};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    brim_env_row env = *brim_env_find("cartpole");
    brim_ars_rows rows;
    brim_work_metrics m;
    brim_str notes;
    env.ended.label = kinds[i].label;
    env.ended.better = kinds[i].better;
    brim_ars_rows_init(&rows, &env);
    memset(&m, 0, sizeof m);
    m.set = &rows.set;
    brim_returns_values(&returns, m.values);
    brim_returns_values(&returns, m.baseline);
    brim_str_init(&notes);
    brim_ars_eval_notes(&m, &notes);
    const size_t length = strlen(kinds[i].end);
    assert_true(notes.len > length);
    assert_string_equal(notes.data + notes.len - length, kinds[i].end);
    brim_str_deinit(&notes);
  }
}

// All figures of an environment are stored. A list of 0.1 has only the first of them.
static void test_figures_are_packed(void **state) {
  (void)state;
  brim_ars_returns returns = {
      .count = 1, .sum = 2, .sum_sq = 3, .episodes = 4, .ended = 5, .diverged = 6, .steps = 7};
  double sums[BRIM_WORK_MAX_SUMS] = {0};
  for (int f = 0; f < BRIM_ENV_MAX_FIGURES; f++) {
    returns.figure[f][0] = 10 + f;
    returns.figure[f][1] = 20 + f;
  }
  brim_returns_pack(&returns, sums);
  const brim_ars_returns again = brim_returns_unpack(sums);
  assert_memory_equal(&again, &returns, sizeof returns);
  double values[BRIM_METRIC_MAX];
  brim_returns_values(&again, values);
  for (int f = 0; f < BRIM_ENV_MAX_FIGURES; f++) {
    assert_true(values[BRIM_ARS_ROWS + f] == (10.0 + f) / (20.0 + f));
  }
  for (int i = BRIM_ARS_SUMS_0_1; i < BRIM_ARS_SUMS; i++) sums[i] = 0;
  const brim_ars_returns old = brim_returns_unpack(sums);
  assert_true(old.figure[0][0] == 10 && old.figure[0][1] == 20 && old.figure[1][1] == 0);
}

static void test_collapse_told(void **state) {
  (void)state;
  brim_run_result r;
  reset();
  const double returns[] = {40, 80, 20, 15};
  memcpy(poor.returns, returns, sizeof returns);
  assert_ok(run("collapse", false, 0, "ars.iterations=8", NULL, &r));
  assert_int_equal(r.anomalies[0], 1);
  assert_int_equal(r.first_anomaly[0], 8);
  assert_non_null(strstr(said, "the return collapsed to 15 by step 8, from 80 at its best"));
  assert_non_null(strstr(said, "a smaller ars.step_size (now 0.02; the last update was "));
  assert_non_null(strstr(said, "ars.noise_std (now 0.03; returns of the directions deviate by "));
  assert_non_null(strstr(said, "a shorter ars.episode_length (now 20; "));
  // with the figures of the epoch's training
  assert_int_equal(reported.epoch, 4);
  const double *trained = reported.train;
  assert_true(trained[BRIM_ARS_EPISODES] >= 2 * 4 * 2);  // every sign of every direction
  assert_true(trained[BRIM_ARS_SIGMA] > 0 && trained[BRIM_ARS_UPDATE_NORM] > 0);
  assert_true(trained[BRIM_ARS_POLICY_NORM] > 0);
  fixture f;
  char advice[1024];
  assert_ok(fixture_open(&f, "ref", yaml, NULL, 0));
  brim_rollout_shape shape;
  assert_ok(brim_ars_shape(f.config, NULL, &shape));
  brim_ars_collapse_advice(trained, f.config, &shape, advice, sizeof advice);
  fixture_close(&f);
  assert_non_null(strstr(said, english(advice)));
  assert_string_equal(r.advice, advice);
  assert_null(strstr(said, "nan"));
  has("collapse", "log.jsonl",
      "\"kind\":\"return_collapsed\",\"count\":1,\"value\":15,\"best\":80");
  // a resumed run reports like the uninterrupted one
  reset();
  memcpy(poor.returns, returns, sizeof returns);
  assert_ok(run("collapse2", false, 6, "ars.iterations=8", NULL, &r));
  assert_int_equal(r.anomalies[0], 0);
  poor.evaluation = 3;
  assert_ok(run("collapse2", true, 0, "ars.iterations=8", NULL, &r));
  assert_int_equal(r.anomalies[0], 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_run),
      cmocka_unit_test(test_diverged_notes),
      cmocka_unit_test(test_figures_are_packed),
      cmocka_unit_test(test_nothing_left),
      cmocka_unit_test(test_length_told),
      cmocka_unit_test(test_restart_told),
      cmocka_unit_test(test_no_evaluation),
      cmocka_unit_test(test_resume),
      cmocka_unit_test(test_chunks),
      cmocka_unit_test(test_foreseen),
      cmocka_unit_test(test_met),
      cmocka_unit_test(test_mid_run),
      cmocka_unit_test(test_collapse),
      cmocka_unit_test(test_collapse_told),
      cmocka_unit_test(test_recorded),
      cmocka_unit_test(test_advice),
      cmocka_unit_test(test_stop_within_a_step),
      cmocka_unit_test(test_skipped_updates),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
