// A policy from the command line: train, interrupt, resume, eval, sweep, and the refusals.
#include <string.h>

#include "cli_test.h"
#include "record/record.h"

#define SMALL                                                                                  \
  "ars.episode_length=20 ars.eval_episodes=6 ars.eval_interval=2 ars.top_dirs=2 --num-envs 8 " \
  "--num-dirs 4 --dir-chunk 2 --device ref"

static void test_train(void **state) {
  (void)state;
  shell_result r = shell("brim train ars --iterations 4 " SMALL " --output-dir run");
  assert_int_equal(r.code, 0);
  said_rows(&r, "  model  ");
  said_rows(&r, "  search  ");
  said_rows(&r, "  baseline  ");
  has(r.out, "epoch 2/2");
  said_rows(&r, "epoch 1/2  ");
  has(r.out, "env steps/s");
  shell_free(&r);
  assert_true(has_file("run/best.safetensors"));
  says_rows(0, "  search  ", "brim train ars --iterations 1 " SMALL " --output-dir once");
  says_lines(0, "--max-steps", "brim train ars --iterations 4 " SMALL " --output-dir run --resume");
  says_rows(
      0, "done: ", "brim train ars --iterations 6 " SMALL " --output-dir run --resume 2>/dev/null");
  // keys that only other workloads read are reported
  r = shell("brim train ars --precision bf16 --batch-size 8 --iterations 2 " SMALL
            " --output-dir others");
  assert_int_equal(r.code, 0);
  said_lines(&r, "training.precision");
  said_lines(&r, "data.batch_size");
  has(r.err, "use ars.num_envs");
  shell_free(&r);
}

static void test_json(void **state) {
  (void)state;
  shell_result r = shell("brim train ars --json --iterations 2 " SMALL " --output-dir json");
  assert_int_equal(r.code, 0);
  json_lines(r.out);
  has(r.out, "\"zero_return\":");
  has(r.out, "\"directions\":{\"mean\":");
  has(r.out, "\"return\":{\"mean\":");
  has(r.out, "\"best_return\":");
  shell_free(&r);
}

static void test_eval(void **state) {
  (void)state;
  expect(0, NULL, "brim train ars --iterations 2 " SMALL " --output-dir evaluated");
  shell_result r = shell("brim eval evaluated/best.safetensors --episodes 10 --device ref");
  assert_int_equal(r.code, 0);
  said_lines(&r, "linear_policy");
  said_rows(&r, "this policy  ");
  said_rows(&r, "zero policy  ");
  has(r.out, "fall rate");
  shell_free(&r);
  r = shell("brim eval evaluated/model.safetensors --episodes 10 --device ref --json");
  assert_int_equal(r.code, 0);
  has(r.out, "\"episodes\":10");
  has(r.out, "\"return\":");
  has(r.out, "\"zero_fall_rate\":");
  has(r.out, "\"forward_speed\":");
  shell_free(&r);
  expect(0, NULL, "brim eval evaluated/best.safetensors --device ref --output evaluated.csv");
  // words behind "--" are arguments too, even if they look like options
  expect(0, "this policy",
         "cp evaluated/best.safetensors ./-best.safetensors && "
         "brim eval --episodes 2 --device ref -- -best.safetensors");
  says(2, "brim train ars " SMALL " -- cartpole");
  assert_true(has_file("evaluated.csv"));
  says(2, "brim eval evaluated/best.safetensors --precision bf16");
  says(2, "brim eval evaluated/best.safetensors --batch-size 8");
  says(2, "brim eval evaluated/best.safetensors --episodes=0");
  says(2, "brim eval evaluated/best.safetensors --episodes 0");
  says(2, "brim eval evaluated/best.safetensors --episodes=-3");
  says(2, "brim eval evaluated/best.safetensors --episodes=1000001");
}

// eval counts the episodes in which a walking robot walked; a standing one has no such number.
static void test_eval_walk(void **state) {
  (void)state;
  expect(0, NULL,
         "brim train ars 'env=quadruped(task=walk)' --iterations 2 " SMALL " --output-dir walks");
  shell_result r = shell("brim eval walks/model.safetensors --episodes 10 --device ref");
  assert_int_equal(r.code, 0);
  has(r.out,
      "of 10 episodes: at least 1 m/s forward on average over the whole 1 s, without a fall");
  shell_free(&r);
  r = shell("brim eval walks/model.safetensors --episodes 10 --device ref --json");
  assert_int_equal(r.code, 0);
  has(r.out, "\"walk_seconds\":1,");
  has(r.out, "\"zero_walked\":0");
  shell_free(&r);
  expect(0, NULL, "brim train ars --iterations 2 " SMALL " --output-dir stands");
  r = shell("brim eval stands/model.safetensors --episodes 10 --device ref --json");
  assert_int_equal(r.code, 0);
  has(r.out, "\"walked\":null");
  shell_free(&r);
}

// CartPole-v1: the shipped config solves it, in episodes that took no part in choosing the policy. Without restarts,
// because every step is worth the same.
static void test_cartpole(void **state) {
  (void)state;
  shell_result r = shell("brim train cartpole --device ref --output-dir pole 2>&1");
  assert_int_equal(r.code, 0);
  said_rows(&r, "  model  ");
  said_rows(&r, "  return  ");
  said_rows(&r, "  stopped  ");
  if (strstr(r.out, "did not change the policy"))
    fail_msg("equal returns are no trouble: %s", r.out);
  shell_free(&r);
  r = shell("brim eval pole/best.safetensors --episodes 100 --device ref --json");
  assert_int_equal(r.code, 0);
  has(r.out, "\"return\":500,");
  has(r.out, "\"falls\":0,");
  has(r.out, "\"zero_falls\":100,");
  shell_free(&r);
  expect(0, "pole.html", "brim render pole/best.safetensors --out pole.html");
  // a workload's name with an environment selects that environment's config
  expect(0, "name: cartpole", "brim config show ars env=cartpole");
  expect(0, "early_stopping_patience: 2", "brim config show 'env=cartpole(reset=0.1)' ars");
  expect(0, "name: quadruped-stand", "brim config show ars 'env=quadruped(task=walk)'");
  expect(0, "cartpole", "brim bench cartpole --device ref --num-envs 16 --plan");
  says(2, "brim train ars --weights pole/best.safetensors " SMALL " --output-dir other");
  expect(2, "has no argument 'push'", "brim train 'env=cartpole(push=2)' cartpole");
}

// An environment without a shipped config: the workload's defaults, and a folder of its own. The config behind the
// workload's name alone is not used.
static void test_other_environment(void **state) {
  (void)state;
  shell_result r = shell("brim config show ars 'env=uav(size=8, crop=3)'");
  assert_int_equal(r.code, 0);
  has(r.out, "name: uav-ars\n");
  has(r.out, "  num_dirs: 16\n");
  if (strstr(r.out, "quadruped")) fail_msg("of another environment: %s", r.out);
  shell_free(&r);
  expect(0, "name: mine", "brim config show name=mine ars env=uav");
  expect(0, "num_dirs: 3", "brim config show ars env=uav ars.num_dirs=3");
  expect(0, "output     runs/uav-ars",
         "brim train ars 'env=uav(size=8, crop=3, num_uavs=2, num_obstacles=4)' ars.iterations=1 "
         "ars.num_dirs=2 ars.dir_chunk=2 ars.num_envs=2 ars.episode_length=5 ars.eval_episodes=2 "
         "--device ref 2>&1");
  assert_true(has_file("runs/uav-ars/last.safetensors"));
  assert_false(has_file("runs/quadruped-stand"));
  says(2, "brim train ars quadruped-stand env=uav");
  says(2, "brim train ars env=uavv");
  says(2, "brim train ars env=plugin:");
  says(2, "brim train ars 'env=plugin:(agents=2)'");
  says(2, "brim train ars 'model=plugin:'");
  write_file("nameless.yaml", "workload: ars\nenv:\n  plugin:\n");
  says(2, "brim train nameless.yaml");
}

// The environment of examples/env: both workloads find the path.
#define WALK "--plugin '" BRIM_BUILD_DIR "/tests/plugins/libbrim_example_walk.so' --device ref "
static void test_example(void **state) {
  (void)state;
  expect(0, NULL, "rm -rf walk walk6");  // left by an earlier run
  shell_result r =
      shell("brim train ars " WALK "env=plugin:walk --iterations 20 --output-dir walk 2>&1");
  assert_int_equal(r.code, 0);
  said_rows(&r, "  return  ");
  shell_free(&r);
  expect(0, "\"arrival_rate\":1",
         "brim eval walk/best.safetensors " WALK "--json | tr -d ' ' | sed 's/1\\.0/1/'");
  says_rows(0, "  model  ",
            "brim train mappo " WALK
            "'env=plugin:walk(cells=6)' --iterations 2 mappo.num_envs=8 mappo.rollout_steps=16 "
            "'model=actor_critic(hidden=16)' --output-dir walk6 2>&1");
  says(2, "brim train ars " WALK "'env=plugin:walk(cells=3)' --output-dir none 2>&1");
}

// A training with ars.restart cannot learn the cart-pole: every rollout has the same number of steps, each worth 1.
static void test_restart_equal(void **state) {
  (void)state;
  shell_result r = shell(
      "brim train ars env=cartpole ars.restart=true ars.num_dirs=4 ars.dir_chunk=4 "
      "ars.top_dirs=2 ars.eval_episodes=5 --device ref --output-dir equal 2>&1");
  assert_int_not_equal(r.code, 0);
  said_lines(&r, "ars.restart");
  said_lines(&r, "brim: error: ");
  if (strstr(r.out, "try a smaller ars.step_size")) fail_msg("wrong advice: %s", r.out);
  shell_free(&r);
}

// If the config leaves open whether episodes restart, the environment decides. The run's own config.yaml keeps the
// decision, so training from it gives the same result.
static void test_restart_open(void **state) {
  (void)state;
  write_file("open.yaml",
             "workload: ars\nenv: cartpole\n"
             "ars: {num_envs: 8, num_dirs: 4, dir_chunk: 4, iterations: 3, eval_interval: 1, "
             "eval_episodes: 5}\n");
  expect(0, NULL, "brim train open.yaml --device ref --output-dir open");
  expect(1, NULL, "grep 'restart: true' open/config.yaml");
  shell_result r = shell("brim train open/config.yaml --device ref --output-dir again");
  if (r.code || strstr(r.err, "has no effect")) fail_msg("exit %d: %s", r.code, r.err);
  shell_free(&r);
  expect(0, NULL, "cmp open/model.safetensors again/model.safetensors");
  // the unset chunk size is written as the run used it
  write_file("few.yaml",
             "workload: ars\nenv: cartpole\n"
             "ars: {num_envs: 8, num_dirs: 4, iterations: 2, eval_episodes: 5}\n");
  expect(0, NULL, "brim train few.yaml --device ref --output-dir few");
  expect(0, "dir_chunk: 4", "grep dir_chunk: few/config.yaml");
  expect(0, NULL, "brim train few/config.yaml --device ref --output-dir few_again");
  expect(0, NULL,
         "brim train few.yaml preset=a100-80g ars.num_dirs=4 ars.num_envs=8 --device ref "
         "--output-dir preset");
  expect(0, "dir_chunk: 4", "grep dir_chunk: preset/config.yaml");
  expect(0, NULL, "brim train preset/config.yaml --device ref --output-dir preset_again");
  expect(1, NULL,
         "brim train open.yaml --device ref --resume --iterations 4 --output-dir open "
         "ars.restart=false 2>&1 | grep ars.restart");
  says_lines(0, "ars.restart",
             "brim train open.yaml --device ref --resume --iterations 5 --output-dir open "
             "ars.restart=true 2>&1");
}

// Steps of a tenth of a second and pushes of the largest strength: numbers diverge. That counts as a fall, and is
// reported besides.
static void test_diverged(void **state) {
  (void)state;
  static const char train[] =
      "brim train ars 'env=quadruped(task=walk, timestep=0.1, push_speed=100, push_every=1)' "
      "--iterations 2 " SMALL " ars.eval_episodes=60 --output-dir wild 2>&1";
  shell_result r = shell(train);
  assert_int_equal(r.code, 0);
  said_lines(&r, "brim: warning: ");
  has(r.out, "falls 100.0 %, diverged ");
  said_rows(&r, "  warning  ");
  shell_free(&r);
  r = shell("brim eval wild/model.safetensors --episodes 200 --device ref");
  assert_int_equal(r.code, 0);
  has(r.out, "the simulation overflowed in these episodes; they count as falls");
  has(r.out, "100.00 %");
  shell_free(&r);
  r = shell("brim eval wild/model.safetensors --episodes 200 --device ref --json");
  assert_int_equal(r.code, 0);
  has(r.out, "\"falls\":200");
  assert_null(strstr(r.out, "\"diverged\":0"));
  shell_free(&r);
}

// The second phase continues from the first one's policy.
static void test_phases(void **state) {
  (void)state;
  expect(0, NULL, "brim train ars --iterations 2 " SMALL " --output-dir one");
  expect(0, "epoch 1/1",
         "brim train ars --iterations 2 --phase phase2 --weights one/model.safetensors " SMALL
         " --output-dir two");
}

static void test_bench(void **state) {
  (void)state;
  shell_result r = shell(
      "brim bench ars --benchmark-batch --num-envs 2 4 --num-dirs 2 4 --dir-chunk 2 4 --steps 2 "
      "ars.episode_length=10 ars.top_dirs=1 --device ref --no-ceilings --output-dir swept "
      "--verbose "
      "ars.num_envs=2 ars.num_dirs=2 ars.dir_chunk=2");
  assert_int_equal(r.code, 0);
  said_lines(&r, "dir_chunk");
  has(r.out, "Env steps/s");
  has(r.out, "BEFORE AND AFTER");
  has(r.out, "before");
  shell_free(&r);
  assert_true(has_file("swept/report.html"));
  // directions that the command does not name are the config's, but never fewer than those that are kept
  expect(0, "Same for all: Dirs 40",
         "brim bench ars --benchmark-batch --plan --device ref ars.num_dirs=40 ars.dir_chunk=40 "
         "ars.top_dirs=40");
  // the config's own setting is always among those that are tried
  r = shell(
      "brim bench ars --benchmark-batch --plan --device ref ars.num_envs=24 ars.num_dirs=48 "
      "ars.dir_chunk=12");
  assert_int_equal(r.code, 0);
  said_lines(&r, "num_dirs");
  shell_free(&r);
  r = shell(
      "brim bench ars --benchmark-batch --steps 1 --repeats 1 --device ref --no-ceilings "
      "--output-dir own --verbose ars.num_envs=2 ars.num_dirs=2 ars.dir_chunk=2 "
      "ars.top_dirs=1 ars.episode_length=2");
  assert_int_equal(r.code, 0);
  has(r.out, "before");
  has(r.out, "2 x 2 = 4");
  // nor are chunks larger than the number of directions tried
  assert_null(strstr(r.err, "left out"));
  assert_null(strstr(r.out, "smallest tried"));
  shell_free(&r);
  r = shell(
      "brim bench ars --num-envs 2 --num-dirs 2 --dir-chunk 1 --plan --device ref "
      "ars.top_dirs=1");
  assert_int_equal(r.code, 0);
  shell_free(&r);
}

#define SWEEP                                                                               \
  "brim bench steady.yaml --num-envs 2 4 --num-dirs 2 --dir-chunk 2 --steps 2 --repeats 1 " \
  "--device "                                                                               \
  "ref --no-ceilings --output-dir steady ars.num_dirs=2 ars.dir_chunk=2 "

// Measured rates differ from machine to machine. So the test rewrites the records as steady ones, with the larger
// setting ten times as fast.
static void test_verify_and_apply(void **state) {
  (void)state;
  write_file(
      "steady.yaml",
      "workload: ars\nars:\n  num_envs: 2\n  episode_length: 10\n  top_dirs: 1\n  iterations: 2\n");
  expect(0, "BENCHMARK SUMMARY", SWEEP);
  brim_result *results;
  size_t count;
  assert_ok(brim_results_read("steady/results.jsonl", &results, &count, NULL));
  assert_int_equal(count, 2);
  for (size_t i = 0; i < count; i++) {
    results[i].samples_per_s = i ? 10000 : 1000;
    results[i].samples_per_s_low = 0.99 * results[i].samples_per_s;
    results[i].samples_per_s_high = 1.01 * results[i].samples_per_s;
    results[i].stable = true;
    results[i].repeats = 3;
  }
  assert_ok(brim_results_write("steady/results.jsonl", results, count));
  for (size_t i = 0; i < count; i++) brim_result_deinit(&results[i]);
  brim_free(results);
  shell_result r = shell(SWEEP "--resume --verify --verify-seconds 2 --apply");
  if (r.code) fail_msg("exit %d: %s", r.code, r.err);
  has(r.out, "verified      predicted 10,000 env steps/s, achieved ");
  has(r.out, "+  num_envs: 4");
  if (strstr(r.err, "has no effect on workload ars")) fail_msg("%s", r.err);
  shell_free(&r);
  expect(0, "predicted 10,000 env steps/s, achieved ", "grep -v color steady/report.html");
}

static void test_refused(void **state) {
  (void)state;
  // guide 000: fewer directions than the config's top_dirs
  says_lines(
      0, "brim: warning: ",
      "rm -rf guide && brim train ars --num-envs 4 --num-dirs 16 --dir-chunk 8 --iterations 1 "
      "ars.episode_length=5 ars.eval_episodes=2 --device cpu --output-dir guide");
  says(2, "brim train ars --num-envs 7");
  expect(2, "'task' must be one of stand|walk", "brim train ars 'env=quadruped(task=jump)'");
  expect(2, "'integrator' must be one of", "brim train ars 'env=quadruped(integrator=x)'");
  says(2, "brim train ars 'env=quadruped(margin=0.03)'");
}

int main(void) {
  // left by an earlier run
  shell_result r = shell(
      "rm -rf runs equal run once others json evaluated walks stands wild one two swept own steady "
      "pole open "
      "few "
      "few_again preset preset_again "
      "again");
  shell_free(&r);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_train),    cmocka_unit_test(test_json),
      cmocka_unit_test(test_eval),     cmocka_unit_test(test_eval_walk),
      cmocka_unit_test(test_diverged), cmocka_unit_test(test_phases),
      cmocka_unit_test(test_bench),    cmocka_unit_test(test_verify_and_apply),
      cmocka_unit_test(test_cartpole), cmocka_unit_test(test_restart_open),
      cmocka_unit_test(test_refused),  cmocka_unit_test(test_other_environment),
      cmocka_unit_test(test_example),  cmocka_unit_test(test_restart_equal),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
