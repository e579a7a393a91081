// Several agents from the command line: train, resume, eval, sweep, compare, and the refusals.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli_test.h"
#include "fake_rates.h"
#include "record/record.h"

#define SMALL                                                                                \
  "'env=uav(size=12, num_uavs=3, num_obstacles=5, episode_steps=20, crop=5)' "               \
  "'model=actor_critic(hidden=16)' mappo.rollout_steps=20 mappo.minibatches=4 --num-envs 4 " \
  "mappo.eval_episodes=6 mappo.eval_interval=2 mappo.update_epochs=2 --device ref"

// The rates of an epoch are its throughput in other units, over the same time: in the file and on a step's line.
static void check_rates(void) {
  shell_result r = shell(
      "awk -F, 'NR == 1 {for (i = 1; i <= NF; i++) at[$i] = i; next} {s = $at[\"samples_per_s\"]; "
      "if (s > 0) printf \"rates %%.3f %%.3f %%.3f\\n\", $at[\"train_collected_per_s\"] / s, "
      "$at[\"train_trained_per_s\"] / s, $at[\"train_env_steps_per_s\"] / s}' run/log.csv");
  has(r.out, "rates 1.000 2.000 0.333\nrates 1.000 2.000 0.333\n");
  shell_free(&r);
}

static void test_train(void **state) {
  (void)state;
  shell_result r = shell("brim train mappo --iterations 4 " SMALL " --output-dir run");
  assert_int_equal(r.code, 0);
  said_rows(&r, "  model  ");
  said_rows(&r, "  iteration  ");
  said_rows(&r, "  baseline  ");
  said_rows(&r, "epoch 2/2  ");
  said_rows(&r, "epoch 1/2  ");
  // each rate with its unit
  said_rows(&r, "  rates  ");
  said_rows(&r, "  return  ");
  has_not(r.out, "nan");
  shell_free(&r);
  assert_true(has_file("run/best.safetensors"));
  says_lines(0, "--max-steps",
             "brim train mappo --iterations 4 " SMALL " --output-dir run --resume");
  r = shell("cat run/log.csv");
  has(r.out, "eval_mean_coverage");
  has(r.out, "train_policy_loss");
  has(r.out, "train_approx_kl");
  shell_free(&r);
  check_rates();
  says_lines(0, "--episodes", "brim eval --help");
}

// Shared options set this workload's keys: num_envs and iterations of mappo, and 8 held-out episodes.
static void test_options(void **state) {
  (void)state;
  shell_result r = shell("brim train mappo --iterations 2 " SMALL " --num-envs 8 --output-dir own");
  assert_int_equal(r.code, 0);
  said_rows(&r, "  iteration  ");
  has(r.out, "parameters 2,760");
  said_rows(&r, "done: ");
  shell_free(&r);
  r = shell("brim train mappo " SMALL " iterations=3 num_envs=12 --output-dir words");
  assert_int_equal(r.code, 0);
  said_rows(&r, "  iteration  ");
  said_rows(&r, "done: ");
  shell_free(&r);
  r = shell("brim eval own/best.safetensors --episodes 8 --device ref --json");
  assert_int_equal(r.code, 0);
  has(r.out, "\"episodes\":8");
  has(r.out, "\"mean_coverage\":");
  has(r.out, "\"baseline_mean_coverage\":");
  has(r.out, "\"greedy_mean_coverage\":");
  shell_free(&r);
  expect(0, "Random actions", "brim render own/best.safetensors --out own.html");
  assert_true(has_file("own.html"));
  r = shell("brim eval own/best.safetensors --device ref");
  // the number of parameters is the training's: without optimizer state, without statistics of returns
  said_lines(&r, "actor_critic");
  has_not(r.out, "goals reached");  // only the other task has them
  said_rows(&r, "random  ");
  has(r.out, "greedy: return");
  shell_free(&r);
}

static double number(const json_t *from, const char *key) {
  const json_t *value = json_object_get(from, key);
  if (!json_is_number(value)) fail_msg("no number %s", key);
  return json_number_value(value);
}

static json_t *event_of(shell_result r) {
  assert_int_equal(r.code, 0);
  json_t *event = json_loads(r.out, 0, NULL);
  if (!event) fail_msg("no JSON: %s", r.out);
  shell_free(&r);
  return event;
}

// One page with the policy, the environment's rule and random actions, in the episodes that eval counts.
static void test_render(void **state) {
  (void)state;
  static const char *const actors[] = {"trained", "greedy", "random"};
  static const char *const prefix[] = {"", "greedy_", "baseline_"};
  expect(0, NULL, "brim train mappo --iterations 2 " SMALL " --output-dir shown");
  json_t *page = event_of(
      shell("brim render shown/best.safetensors --out all.html --json --episode 0 --episode 1 "
            "--episode 2 --episode 3"));
  json_t *eval =
      event_of(shell("brim eval shown/best.safetensors --episodes 4 --device ref --json"));
  const json_t *replays = json_object_get(page, "replays");
  assert_int_equal(json_array_size(replays), 12);
  for (size_t k = 0; k < 3; k++) {
    double mean = 0, reward = 0;
    char key[64];
    for (size_t i = 0; i < 4; i++) {
      const json_t *one = json_array_get(replays, 3 * i + k);
      assert_string_equal(json_string_value(json_object_get(one, "policy")), actors[k]);
      mean += number(one, "mean_coverage") / 4;
      reward += number(one, "return") / 4;
    }
    snprintf(key, sizeof key, "%smean_coverage", prefix[k]);
    // coverage in frames has four decimals of a percent
    if (fabs(mean - number(eval, key)) > 1e-5) {
      fail_msg("%s: %g, eval %g", actors[k], mean, number(eval, key));
    }
    snprintf(key, sizeof key, "%sreturn", prefix[k]);
    assert_true(fabs(reward - number(eval, key)) < 1e-4);
  }
  json_decref(page);
  json_decref(eval);
  says_rows(0, "  Greedy rule  ", "brim render shown/best.safetensors --out all.html --episode 1");
  expect(0, "class=\"l c2\"", "cat all.html");
  // curves of the run: the workload's metrics and the environment's
  expect(0, "<b>return</b><span class=\"read c0\"><span>iteration 2</span>", "cat all.html");
  expect(0, "<b>coverage (%)</b>", "cat all.html");
  says_rows(0, "mean_coverage", "cat all.html");
  expect(0, "<b>collisions</b>", "cat all.html");
  // with the environment's rule, which is harder to beat than random actions
  expect(0, "<span class=\"read base\">greedy rule <b>", "cat all.html");
  expect(0, "\"eval_greedy_mean_coverage\":", "cat shown/log.jsonl");
  expect(0, ">all</button>", "cat all.html");
  says_rows(0, "  Greedy 규칙  ",
            "brim --lang ko render shown/best.safetensors -o ko.html --episode 1");
  // only the policy, by either name of the option
  expect(0, "\"beside\":1",
         "brim render shown/best.safetensors --out one.html --no-baselines && "
         "echo '\"beside\":'$(grep -c '<canvas' one.html)");
  expect(0, "\"beside\":1",
         "brim render shown/best.safetensors --out one.html --no-zero && "
         "echo '\"beside\":'$(grep -c '<canvas' one.html)");
  // an environment without a rule
  expect(0, NULL,
         "brim train mappo env=cartpole mappo.iterations=2 mappo.eval_episodes=2 "
         "--device ref --output-dir pole2 -q");
  expect(0, "\"policy\":\"random\"",
         "brim render pole2/best.safetensors -o p.html --json --episode 0");
  expect(0, "\"beside\":2", "echo '\"beside\":'$(grep -c '<canvas' p.html)");
}

// An environment's name selects its shipped config, or the workload's defaults.
static void test_environments(void **state) {
  (void)state;
  expect(0, "name: cartpole-mappo", "brim config show mappo env=cartpole");
  expect(0, "eval_actions: best", "brim config show mappo 'env=cartpole(reset=0.1)'");
  expect(0, "name: drift-mappo", "brim config show mappo env=plugin:drift");
  says(3, "brim train mappo env=quadruped --device ref");
  assert_false(has_file("runs/uav"));
}

// A device without fused kernels trains without them, and reports it if the config asks for them.
static void test_fused(void **state) {
  (void)state;
  expect(0, "\"fused\":\"no\"",
         "brim train mappo --iterations 1 " SMALL " --json --output-dir without");
  says(3, "brim train mappo --iterations 1 " SMALL " mappo.fused=on --output-dir fused");
  says(3, "brim --lang ko train mappo " SMALL " mappo.fused=on --output-dir fused");
  assert_false(has_file("fused"));
  says(2, "brim config show mappo mappo.fused=some");
  expect(0, "fused: on", "brim config show mappo mappo.fused=true");
  // eval and render ignore keys that only a training needs
  says_rows(0, "this policy  ",
            "brim eval without/model.safetensors --device ref mappo.fused=on mappo.collect_on=gpu");
  expect(0, "Random actions",
         "brim render without/model.safetensors --out without.html mappo.fused=on "
         "mappo.collect_on=gpu");
  says(2, "brim train mappo " SMALL " mappo.collect_on=gpu --output-dir fused");
}

// An interrupted and resumed run equals an uninterrupted one, with the same config from its own file.
static void test_resume(void **state) {
  (void)state;
  expect(0, NULL, "brim train mappo --iterations 5 " SMALL " --output-dir whole");
  expect(0, NULL, "brim train mappo --iterations 5 " SMALL " --output-dir parts --max-steps 3");
  says_rows(0, "done: ", "brim train mappo --iterations 5 " SMALL " --output-dir parts --resume");
  expect(0, NULL, "cmp whole/last.safetensors parts/last.safetensors");
  shell_result r = shell("brim train whole/config.yaml --output-dir again");
  if (r.code || strstr(r.err, "has no effect")) fail_msg("exit %d: %s", r.code, r.err);
  shell_free(&r);
  expect(0, NULL, "cmp whole/model.safetensors again/model.safetensors");
}

// A number that brim chose is printed, is in the run's config, and stays when the run continues.
static void test_chosen(void **state) {
  (void)state;
  shell_result r = shell("brim train mappo --iterations 2 " SMALL
                         " mappo.num_envs=auto --output-dir open --max-steps 1");
  assert_int_equal(r.code, 0);
  said_rows(&r, "  iteration  ");
  shell_free(&r);
  expect(0, "num_envs: 32", "cat open/config.yaml");
  says_lines(0, "num_envs", "brim config show mappo");
  says(0, "brim config explain mappo.num_envs");
  // as on another machine, which would choose another number
  expect(0, NULL, "brim train mappo --iterations 5 " SMALL " --output-dir moved --max-steps 3");
  r = shell("brim train mappo --iterations 5 " SMALL
            " mappo.num_envs=auto --output-dir moved --resume");
  assert_int_equal(r.code, 0);
  said_rows(&r, "  iteration  ");
  has_not(r.out, "was trained with");
  shell_free(&r);
  expect(0, "num_envs: 4", "cat moved/config.yaml");
  expect(0, NULL, "brim train mappo --iterations 5 " SMALL " --output-dir still");
  expect(0, NULL, "cmp still/last.safetensors moved/last.safetensors");
}

// A step that passes a multiple of this many episodes leaves a checkpoint.
static void test_interval(void **state) {
  (void)state;
  shell_result r = shell("brim train mappo --iterations 4 " SMALL
                         " mappo.eval_interval=4 checkpoint_interval=8 checkpoint.keep=9 "
                         "--output-dir every");
  assert_int_equal(r.code, 0);
  has(r.out, "every 8 episodes");
  shell_free(&r);
  // 4 environments end an episode in each step: 8 after two
  assert_true(has_file("every/step-00000002.safetensors"));
  assert_false(has_file("every/step-00000001.safetensors"));
  assert_false(has_file("every/step-00000003.safetensors"));
}

static void test_bench(void **state) {
  (void)state;
  shell_result r =
      shell("brim bench mappo " SMALL
            " --num-envs 2 4 --minibatches 4 --steps 2 --repeats 1 --output-dir bench");
  assert_int_equal(r.code, 0);
  has(r.out, "Env(ms)");
  has(r.out, "Act(ms)");
  has(r.out, "Update(ms)");
  has(r.out, "Agent steps/s");
  shell_free(&r);
  r = shell("cat bench/results.jsonl");
  has(r.out, "agent-samples/s trained");
  has(r.out, "\"env\":");
  shell_free(&r);
  expect(0, NULL, "brim bench mappo " SMALL " --plan");
}

// The slow start and its remedies, on a small scale: the tables and findings of each, and both side by side.
#define TINY                                                                        \
  " mappo.update_epochs=2 'model=actor_critic(hidden=16)' --steps 2 --min-steps 1 " \
  "--repeats 1 --no-ceilings --device ref --output-dir "
static void test_story(void **state) {
  (void)state;
  shell_result r = shell(
      "COLUMNS=80 brim bench uav-before 'env=uav(size=12, num_uavs=3, num_obstacles=5, "
      "max_steps=20, crop=5)' mappo.episodes_per_batch=2 --num-envs 1 --batch-sizes 30" TINY
      "before");
  assert_int_equal(r.code, 0);
  has(r.out, "WHERE AN ITERATION'S TIME GOES");
  has(r.out, "environment simulation");
  has(r.out, "network update");
  has(r.out, "time for 10,000 episodes");
  has(r.out, "agent-steps/s collected");
  has(r.out, "agent-samples/s trained");
  has(r.out, "environment steps/s");
  has_not(r.out, "GPU busy");
  has_not(r.out, "env_on_cpu");
  has_not(r.out, "nan");
  shell_free(&r);
  expect(0, ">Agent steps/s<", "cat before/report.html");
  expect(0, "<section id=\"tables\">", "cat before/report.html");
  expect(0, "BENCHMARK",
         "brim bench uav-after 'env=uav(size=12, num_uavs=3, num_obstacles=4, max_steps=15, "
         "crop=5)' mappo.episodes_per_batch=4 num_workers=2 --batch-sizes 60" TINY "after");
  // no setting is in both sweeps, but each has its config's own
  r = shell("brim compare before after");
  assert_int_equal(r.code, 0);
  has(r.out, "do different work");
  has(r.out, "BEFORE AND AFTER");
  has(r.out, "time per agent-step");
  has(r.out, "Episodes have 20 steps in A and 15 in B");
  shell_free(&r);
  expect(0, "\"pairs\":[]", "brim compare before after --json");
  says_lines(1, "brim: error: ", "brim compare before after --fail-below 0.9");
  expect(0, "전과 후", "brim --lang ko compare before after");
  // a sweep of another workload cannot be compared
  expect(0, NULL,
         "brim bench ars env=cartpole ars.eval_episodes=0 --steps 1 --min-steps 1 --repeats 1 "
         "--num-envs 4 --num-dirs 4 --no-ceilings --device ref --output-dir other");
  says(2, "brim compare before other");
}

// Settings that cannot work are refused in both languages, before anything is written.
static void test_bad_settings(void **state) {
  (void)state;
  static const char *const rows[] = {
      "'env=uav(size=4, num_uavs=6, num_obstacles=10, crop=3)'",
      "num_obstacles=145",
      "'env=uav(size=6, crop=15)'",
      "env.crop=4",
      "mappo.minibatches=3",
      "mappo.minibatches=81",
      "mappo.minibatches=null data.batch_size=2",
      "mappo.minibatches=0",
      "mappo.update_epochs=0",
      "mappo.num_envs=0",
      "mappo.num_envs=-4",
      "mappo.num_envs=1e9",
      "mappo.num_envs=1000000 mappo.rollout_steps=1000000",
      "mappo.num_envs=some",
      "mappo.rollout_steps=0",
      "num_uavs=33",
      "num_uavs=0",
      "grid_size=65",
      "grid_size=1",
      "max_steps=40000",
      "mappo.gamma=1.5",
      "mappo.collect_on=gpu",
  };
  static const char *const commands[] = {"brim train", "brim --lang ko train", "brim bench"};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    for (int k = 0; k < 3; k++) {
      shell_result r = shell("%s mappo " SMALL " mappo.num_envs=4 %s --output-dir refused",
                             commands[k], rows[i]);
      if (r.code != 2) fail_msg("%s %s: exit %d", commands[k], rows[i], r.code);
      said(&r);
      assert_false(has_file("refused"));
      shell_free(&r);
    }
  }
}

// Two sweeps are compared in agent steps; the best setting goes into a config, which trains with it.
static void test_compare_and_apply(void **state) {
  (void)state;
  expect(0, NULL,
         "printf '%s\\n' 'name: own' 'workload: mappo' "
         "'env: uav(size=12, num_uavs=3, num_obstacles=5, episode_steps=20, crop=5)' "
         "'model: actor_critic(hidden=16)' 'mappo:' '  num_envs: 3  # few' '  rollout_steps: 20' "
         "'  minibatches: 4' '  eval_episodes: 4' '  iterations: 2' > own.yaml && cp own.yaml "
         "before.yaml");
#define SWEEP                                                                   \
  "brim bench own.yaml --device ref --num-envs 8 16 --minibatches 2 --steps 2 " \
  "--repeats 1 --no-ceilings --output-dir sweep1"
  expect(0, NULL, "rm -rf sweep1; " SWEEP);
  fake_rates("sweep1/results.jsonl", 3, (const double[]){1000, 2000, 2001});
  shell_result r = shell(SWEEP " --resume --apply");
#undef SWEEP
  if (r.code) fail_msg("exit %d: %s%s", r.code, r.out, r.err);
  has(r.out, "own.yaml");
  shell_free(&r);
  // batch size is one of the swept values, the rest of the file is unchanged
  expect(0, "minibatches: 2", "cat own.yaml");
  expect(0, "1", "grep -cE '^  num_envs: (8|16)  # few$' own.yaml");
  expect(0, "2", "diff before.yaml own.yaml | grep -c '^>'");
  r = shell("brim train own.yaml --device ref --output-dir applied");
  assert_int_equal(r.code, 0);
  said_rows(&r, "  iteration  ");
  shell_free(&r);
  expect(0, NULL,
         "brim bench before.yaml --device ref --num-envs 8 16 --minibatches 2 --steps 2 "
         "--repeats 1 --no-ceilings --output-dir sweep2");
  r = shell("brim compare sweep1 sweep2");
  assert_int_equal(r.code, 0);
  has(r.out, "gent steps/s");
  has_not(r.out, "nan");
  shell_free(&r);
  json_t *same = event_of(shell("brim compare sweep1 sweep2 --json | tail -1"));
  json_decref(same);
}

static void test_refusals(void **state) {
  (void)state;
  says(2, "brim train mappo " SMALL " mappo.minibatches=3 --output-dir no");
  says(2, "brim train mappo " SMALL " 'env=uav(size=6, crop=15)' --output-dir no");
  says(2, "brim train mappo " SMALL
          " 'env=uav(size=4, num_uavs=12, num_obstacles=10, crop=3)' --output-dir no");
  says(3, "brim train mappo " SMALL " env=quadruped --output-dir no");
  says_lines(2, "brim: error: ",
             "brim train ars env=cartpole ars.iterations=1 ars.eval_episodes=2 --device ref "
             "--output-dir pole && brim train mappo " SMALL
             " --output-dir no --weights pole/model.safetensors");
}

// Lines of steps have readable rates: no powers of ten.
static void test_step_lines(void **state) {
  (void)state;
  shell_result r = shell("brim train mappo --iterations 2 " SMALL
                         " log.interval=1 mappo.update_epochs=40 --output-dir lines");
  assert_int_equal(r.code, 0);
  said_rows(&r, "step 1  ");
  has_not(r.out, "e+0");
  shell_free(&r);
}

static void test_korean(void **state) {
  (void)state;
  shell_result r = shell("brim --lang ko train mappo --iterations 2 " SMALL " --output-dir korean");
  assert_int_equal(r.code, 0);
  has(r.out, "에이전트 스텝/s 수집");
  has_not(r.out, "agent steps");
  said_rows(&r, "  기준  ");
  shell_free(&r);
}

int main(void) {
  shell_result r = shell(
      "rm -rf without fused lines refused sweep1 sweep2 applied shown pole2 run own words whole "
      "parts again open "
      "moved "
      "still "
      "every bench no pole korean before after other");
  shell_free(&r);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_train),
      cmocka_unit_test(test_options),
      cmocka_unit_test(test_render),
      cmocka_unit_test(test_environments),
      cmocka_unit_test(test_fused),
      cmocka_unit_test(test_resume),
      cmocka_unit_test(test_chosen),
      cmocka_unit_test(test_interval),
      cmocka_unit_test(test_bench),
      cmocka_unit_test(test_bad_settings),
      cmocka_unit_test(test_compare_and_apply),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_step_lines),
      cmocka_unit_test(test_korean),
      cmocka_unit_test(test_story),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
