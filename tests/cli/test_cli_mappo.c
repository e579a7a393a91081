// Several agents from the command line: trained, resumed, evaluated, swept, compared; and what is refused.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli_test.h"
#include "record/record.h"

#define SMALL                                                                                \
  "'env=uav(size=12, num_uavs=3, num_obstacles=5, episode_steps=20, crop=5)' "               \
  "'model=actor_critic(hidden=16)' mappo.rollout_steps=20 mappo.minibatches=4 --num-envs 4 " \
  "mappo.eval_episodes=6 mappo.eval_interval=2 mappo.update_epochs=2 --device ref"

static void has(const char *text, const char *words) {
  if (!strstr(text, words)) fail_msg("no '%s' in\n%s", words, text);
}

static void has_not(const char *text, const char *words) {
  if (strstr(text, words)) fail_msg("'%s' in\n%s", words, text);
}

static void test_train(void **state) {
  (void)state;
  shell_result r = shell("brim train mappo --iterations 4 " SMALL " --output-dir run");
  assert_int_equal(r.code, 0);
  has(r.out, "uav coverage, 12x12, 3 UAVs");
  has(r.out, "environments 4 x steps 20 x agents 3 = 240 agent-steps");
  has(r.out, "epochs 2 x minibatches 4 of 60 agent samples");
  has(r.out, "random: return");
  has(r.out, "greedy: return");
  has(r.out, "epoch 2/2");
  has(r.out, "mean coverage");
  has(r.out, "agent steps/s");
  // the rates, each with its unit
  has(r.out, "agent-steps/s collected");
  has(r.out, "agent-samples/s trained");
  has(r.out, "environment steps/s");
  has(r.out, "6 held-out episodes");
  has_not(r.out, "nan");
  shell_free(&r);
  assert_true(has_file("run/best.safetensors"));
  expect(0, "nothing left to do: the run is complete at step 4; raise mappo.iterations",
         "brim train mappo --iterations 4 " SMALL " --output-dir run --resume");
  r = shell("cat run/log.csv");
  has(r.out, "eval_mean_coverage");
  has(r.out, "train_policy_loss");
  has(r.out, "train_approx_kl");
  shell_free(&r);
}

// A shared option is the workload's own: num_envs and iterations of mappo, and 8 held-out episodes.
static void test_options(void **state) {
  (void)state;
  shell_result r = shell("brim train mappo --iterations 2 " SMALL " --num-envs 8 --output-dir own");
  assert_int_equal(r.code, 0);
  has(r.out, "environments 8 x");
  has(r.out, "done: 2 steps");
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
  has(r.out, "random");
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

// The policy, the environment's rule and random actions in one page, in the episodes that eval counts.
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
  expect(0, "Greedy rule", "brim render shown/best.safetensors --out all.html --episode 1");
  expect(0, "class=\"l c2\"", "cat all.html");
  expect(0, ">all</button>", "cat all.html");
  expect(0, "Greedy 규칙", "brim --lang ko render shown/best.safetensors -o ko.html --episode 1");
  // alone, by either name of the option
  expect(0, "\"beside\":1",
         "brim render shown/best.safetensors --out one.html --no-baselines && "
         "echo '\"beside\":'$(grep -c '<canvas' one.html)");
  expect(0, "\"beside\":1",
         "brim render shown/best.safetensors --out one.html --no-zero && "
         "echo '\"beside\":'$(grep -c '<canvas' one.html)");
  // an environment without rules
  expect(0, NULL,
         "brim train mappo env=cartpole mappo.iterations=2 mappo.eval_episodes=2 "
         "--device ref --output-dir pole2 -q");
  expect(0, "\"policy\":\"random\"", "brim render pole2/best.safetensors -o p.html --json");
  expect(0, "\"beside\":2", "echo '\"beside\":'$(grep -c '<canvas' p.html)");
}

// An environment names its shipped config, or the defaults of the workload.
static void test_environments(void **state) {
  (void)state;
  expect(0, "name: cartpole-mappo", "brim config show mappo env=cartpole");
  expect(0, "eval_actions: best", "brim config show mappo 'env=cartpole(reset=0.1)'");
  expect(0, "name: drift-mappo", "brim config show mappo env=plugin:drift");
  expect(3, "mappo needs discrete actions", "brim train mappo env=quadruped --device ref");
  assert_false(has_file("runs/uav"));
}

// Interrupted and resumed is uninterrupted, with the same config from its own file.
static void test_resume(void **state) {
  (void)state;
  expect(0, NULL, "brim train mappo --iterations 5 " SMALL " --output-dir whole");
  expect(0, NULL, "brim train mappo --iterations 5 " SMALL " --output-dir parts --max-steps 3");
  expect(0, "2 of them now",
         "brim train mappo --iterations 5 " SMALL " --output-dir parts --resume");
  expect(0, NULL, "cmp whole/last.safetensors parts/last.safetensors");
  expect(0, NULL, "brim train whole/config.yaml --output-dir again");
  expect(0, NULL, "cmp whole/model.safetensors again/model.safetensors");
}

// A number that brim chose is printed, stands in the run's config, and stays where the run goes on.
static void test_chosen(void **state) {
  (void)state;
  shell_result r = shell("brim train mappo --iterations 2 " SMALL
                         " mappo.num_envs=auto --output-dir open --max-steps 1");
  assert_int_equal(r.code, 0);
  has(r.out, "environments 32 x steps 20");
  shell_free(&r);
  expect(0, "num_envs: 32", "cat open/config.yaml");
  expect(0, "num_envs: auto", "brim config show mappo");
  expect(0, "int or auto", "brim config explain mappo.num_envs");
  // as if on another machine, where another number would be chosen
  expect(0, NULL, "brim train mappo --iterations 5 " SMALL " --output-dir moved --max-steps 3");
  r = shell("brim train mappo --iterations 5 " SMALL
            " mappo.num_envs=auto --output-dir moved --resume");
  assert_int_equal(r.code, 0);
  has(r.out, "environments 4 x steps 20");
  has_not(r.out, "was trained with");
  shell_free(&r);
  expect(0, "num_envs: 4", "cat moved/config.yaml");
  expect(0, NULL, "brim train mappo --iterations 5 " SMALL " --output-dir still");
  expect(0, NULL, "cmp still/last.safetensors moved/last.safetensors");
}

// A step that passes a multiple of so many episodes leaves a checkpoint.
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
  shell_result r = shell("brim bench mappo " SMALL
                         " --num-envs 2 4 --minibatches 4 --steps 2 --output-dir bench");
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

static void test_refusals(void **state) {
  (void)state;
  expect(2, "mappo.minibatches is 3, which does not divide the 80 environment steps",
         "brim train mappo " SMALL " mappo.minibatches=3 --output-dir no");
  expect(2, "crop is 15, but the grid has only 6 x 6 cells",
         "brim train mappo " SMALL " 'env=uav(size=6, crop=15)' --output-dir no");
  expect(2, "have only 6 free cells",
         "brim train mappo " SMALL
         " 'env=uav(size=4, num_uavs=12, num_obstacles=10, crop=3)' --output-dir no");
  expect(3, "mappo needs discrete actions",
         "brim train mappo " SMALL " env=quadruped --output-dir no");
  expect(2, "is a checkpoint of workload",
         "brim train ars env=cartpole ars.iterations=1 ars.eval_episodes=2 --device ref "
         "--output-dir pole && brim train mappo " SMALL
         " --output-dir no --weights pole/model.safetensors");
}

static void test_korean(void **state) {
  (void)state;
  shell_result r = shell("brim --lang ko train mappo --iterations 2 " SMALL " --output-dir korean");
  assert_int_equal(r.code, 0);
  has(r.out, "에이전트 스텝/s 수집");
  has(r.out, "무작위");
  shell_free(&r);
}

int main(void) {
  shell_result r = shell(
      "rm -rf shown pole2 run own whole parts again open moved still every bench no pole korean");
  shell_free(&r);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_train),    cmocka_unit_test(test_options),
      cmocka_unit_test(test_render),   cmocka_unit_test(test_environments),
      cmocka_unit_test(test_resume),   cmocka_unit_test(test_chosen),
      cmocka_unit_test(test_interval), cmocka_unit_test(test_bench),
      cmocka_unit_test(test_refusals), cmocka_unit_test(test_korean),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
