// `brim render` of a small trained policy: the page, whose episodes are those of `brim eval`, and its refusals.
#include <math.h>

#include "cli_changed.h"
#include "cli_test.h"
#include "engine/engine.h"

static json_t *parse(const char *text) {
  json_t *value = NULL;
  assert_ok(brim_json_parse(text, strlen(text), "stdout", &value));
  return value;
}

static double figure(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_number(value)) fail_msg("no number '%s'", key);
  return json_number_value(value);
}

static char *page_of(const char *path) {
  char *text;
  size_t size;
  assert_ok(brim_fs_read(path, 0, &text, &size));
  return text;
}

static int setup(void **state) {
  (void)state;
  expect(0, NULL,
         "set -e; rm -rf run rund *.html *.safetensors *.h5\n"
         "brim train workload=ars 'env=quadruped(task=stand, push_speed=8, push_every=10)' "
         "ars.num_envs=8 ars.num_dirs=4 ars.dir_chunk=4 ars.top_dirs=2 ars.iterations=4 "
         "ars.eval_interval=2 ars.eval_episodes=4 ars.episode_length=60 --device ref "
         "--output-dir run -q\n"
         "brim data make d.h5 --samples 40 --test-samples 10 --shape 8,8,3 --classes 3 -q\n"
         "brim train 'model=mlp(depth=1, hidden=4)' --data-path d.h5 --epochs 1 --batch-size 8 "
         "--output-dir rund -q\n");
  return 0;
}

static void test_page(void **state) {
  (void)state;
  expect(0, "gait.html: episode 0, ",
         "brim render run/last.safetensors --out gait.html --episode 0");
  char *page = page_of("gait.html");
  assert_non_null(strstr(page, "<!DOCTYPE html>"));
  assert_non_null(strstr(page, "</html>"));
  assert_non_null(strstr(page, "quadruped, stand: episode 0"));
  assert_non_null(strstr(page, "run/last.safetensors, after 4 iterations"));
  assert_non_null(strstr(page, "up to 8 m/s, every 10 steps on average"));
  assert_non_null(strstr(page, "brim render run/last.safetensors --out gait.html --episode 0"));
  assert_non_null(strstr(page, "Zero policy"));
  brim_free(page);
  expect(0, NULL, "brim render run/last.safetensors -o alone.html --no-zero -q");
  page = page_of("alone.html");
  assert_null(strstr(page, "Zero policy"));
  brim_free(page);
  expect(0, NULL, "brim render run/last.safetensors --out ko.html --lang ko");
  page = page_of("ko.html");
  assert_non_null(strstr(page, "<html lang=\"ko\">"));
  brim_free(page);
}

// The run's curves are on the page if its log is beside the checkpoint.
static void test_training(void **state) {
  (void)state;
  expect(0, NULL, "brim render run/last.safetensors --out t.html --episode 0");
  char *page = page_of("t.html");
  assert_non_null(strstr(page, "<section id=\"training\">"));
  assert_non_null(strstr(page, "<b>return</b><span class=\"read c0\"><span>iteration 4</span>"));
  assert_non_null(strstr(page, "<b>falls (%)</b>"));
  assert_non_null(strstr(page, "<b>forward m/s</b>"));
  assert_non_null(strstr(page, "<span class=\"read base\">zero policy <b>"));
  assert_non_null(strstr(page, "this checkpoint: iteration 4<"));
  assert_non_null(strstr(page, "\"steps\":[2,4]"));
  brim_free(page);
  expect(0, NULL, "brim render run/last.safetensors -o t.html --no-baselines --episode 0");
  page = page_of("t.html");
  assert_non_null(strstr(page, "<section id=\"training\">"));
  assert_null(strstr(page, "zero policy"));
  brim_free(page);
  // alone in a folder, beside a damaged log, beside a folder of the log's name
  expect(0, NULL,
         "rm -rf moved && mkdir moved && cp run/last.safetensors moved/ && "
         "brim render moved/last.safetensors -o t.html --episode 0 2> said && test ! -s said");
  page = page_of("t.html");
  assert_null(strstr(page, "id=\"training\""));
  brim_free(page);
  expect(0, NULL,
         "(head -c 300 run/log.jsonl; echo; tail -n 1 run/log.jsonl; head -c 99 run/log.jsonl) "
         "> moved/log.jsonl && brim render moved/last.safetensors -o t.html --episode 0");
  page = page_of("t.html");
  assert_non_null(strstr(page, "\"steps\":[4]"));
  brim_free(page);
  says_lines(0, "brim: warning: ",
             "rm moved/log.jsonl && mkdir moved/log.jsonl && "
             "brim render moved/last.safetensors -o t.html --episode 0 2>&1");
}

// Returns, lengths and falls of the first episodes agree with eval's.
static void test_same_as_eval(void **state) {
  (void)state;
  double sum[2] = {0}, steps[2] = {0}, falls[2] = {0}, pushes = 0;
  for (int i = 0; i < 5; i++) {
    shell_result r = shell("brim render run/last.safetensors --out e.html --episode %d --json", i);
    assert_int_equal(r.code, 0);
    json_t *line = parse(r.out);
    assert_string_equal(json_string_value(json_object_get(line, "event")), "rendered");
    const json_t *replays = json_object_get(line, "replays");
    assert_int_equal(json_array_size(replays), 2);
    for (size_t k = 0; k < 2; k++) {
      const json_t *one = json_array_get(replays, k);
      sum[k] += figure(one, "return");
      pushes += figure(one, "pushes");
      steps[k] += figure(one, "steps");
      falls[k] += strcmp(json_string_value(json_object_get(one, "outcome")), "fell") == 0;
    }
    json_decref(line);
    shell_free(&r);
  }
  shell_result r = shell("brim eval run/last.safetensors --episodes 5 --device ref --json");
  assert_int_equal(r.code, 0);
  json_t *eval = parse(r.out);
  assert_true(fabs(sum[0] / 5 - figure(eval, "return")) < 1e-3);
  assert_true(fabs(sum[1] / 5 - figure(eval, "zero_return")) < 1e-3);
  assert_true(fabs(steps[0] / 5 - figure(eval, "mean_length")) < 1e-9);
  assert_true(fabs(steps[1] / 5 - figure(eval, "zero_mean_length")) < 1e-9);
  assert_true(fabs(falls[0] - figure(eval, "falls")) < 1e-9);
  assert_true(fabs(falls[1] - figure(eval, "zero_falls")) < 1e-9);
  assert_true(pushes > 0 && falls[1] > 0);  // otherwise it would look like a robot at rest
  json_decref(eval);
  shell_free(&r);
}

// Without --episode: the episode with the median return, with policy and zero policy; before it the episode in which
// the two differ most.
static void test_typical(void **state) {
  (void)state;
  double returns[101];
  shell_result r = shell("brim render run/last.safetensors --out m.html --json");
  assert_int_equal(r.code, 0);
  json_t *line = parse(r.out);
  assert_int_equal(json_integer_value(json_object_get(line, "median_of")), 101);
  int chosen = (int)json_integer_value(json_object_get(line, "typical"));
  const json_t *replays = json_object_get(line, "replays");
  // The first replay is the episode in which policy and baseline differ most. The typical one follows, unless both are
  // the same episode.
  const size_t at = json_array_size(replays) - 2;
  const int telling = (int)json_integer_value(json_object_get(line, "episode"));
  assert_true(at == (telling == chosen ? 0 : 2));
  double policy = figure(json_array_get(replays, at), "return");
  double zero = figure(json_array_get(replays, at + 1), "return");
  const double apart = fabs(figure(json_array_get(replays, 0), "return") -
                            figure(json_array_get(replays, 1), "return"));
  assert_true(apart >= fabs(policy - zero));
  json_decref(line);
  shell_free(&r);
  r = shell("brim render run/last.safetensors --out n.html --json --episode %d", chosen);
  line = parse(r.out);
  assert_true(json_is_null(json_object_get(line, "median_of")));
  replays = json_object_get(line, "replays");
  assert_true(figure(json_array_get(replays, 0), "return") == policy);
  assert_true(figure(json_array_get(replays, 1), "return") == zero);
  json_decref(line);
  shell_free(&r);
  int below = 0, above = 0;
  r = shell(  // a page shows 8 at most
      "for i in $(seq 0 8 100); do brim render run/last.safetensors --out o.html --no-zero --json "
      "$(seq -f '--episode %%g' $i $((i + 7 < 100 ? i + 7 : 100))); done");
  char *rest = NULL;
  int count = 0;
  for (char *one = strtok_r(r.out, "\n", &rest); one; one = strtok_r(NULL, "\n", &rest)) {
    line = parse(one);
    json_t *replay;
    size_t i;
    json_array_foreach(json_object_get(line, "replays"), i, replay) {
      assert_true(count < 101);
      returns[count] = figure(replay, "return");
      below += returns[count] < policy;
      above += returns[count] > policy;
      count++;
    }
    json_decref(line);
  }
  shell_free(&r);
  assert_int_equal(count, 101);
  assert_true(below <= 50 && above <= 50);
  expect(0, "whose return is the median of 101", "brim render run/last.safetensors --out m.html");
}

static void test_seconds(void **state) {
  (void)state;
  // gentle pushes, so that the episode lasts
  expect(0, "\"steps\":20,\"seconds\":1.0",
         "brim render run/last.safetensors --out s.html --seconds 1 --json --no-zero "
         "'env=quadruped(push_speed=0)' | sed 's/\"seconds\":1,/\"seconds\":1.0,/'");
  expect(0, "\"pushes\":0",
         "brim render run/last.safetensors --out s.html --json 'env=quadruped(push_speed=0)'");
  expect(0, "\"pushes\":0",
         "brim render run/last.safetensors --out s.html --json env.push_speed=0");
}

static void test_refused(void **state) {
  (void)state;
  write_changed("run/last.safetensors", "nan.safetensors", "policy.weight", 100, NAN);
  write_changed("run/last.safetensors", "sound.safetensors", "policy.weight", 100, 0.5f);
  says(2, "brim render nan.safetensors --out no.html");
  expect(0, NULL, "brim render sound.safetensors --out sound.html");
  says(2, "brim render rund/last.safetensors --out no.html");
  expect(2, "name a checkpoint", "brim render");
  expect(2, "--out gait.html", "brim render run/last.safetensors");
  says(2, "brim render nothing.safetensors --out no.html");
  says(2, "brim render run/last.safetensors --out no.html --episode 1000000");
  says(2,
       "brim render run/last.safetensors --out no.html "
       "--episode=-1");
  says(2, "brim render run/last.safetensors --out no.html --seconds 0");
  says(2, "brim render run/last.safetensors --out no.html --seconds 601");
  expect(2, "nowhere/no.html", "brim render run/last.safetensors --out nowhere/no.html");
  expect(2, "must be one of stand|walk",
         "brim render run/last.safetensors --out no.html 'env=quadruped(task=dance)'");
  expect(0, NULL, "cp run/last.safetensors cut.safetensors; truncate -s -9 cut.safetensors");
  expect(2, "cut.safetensors", "brim render cut.safetensors --out no.html");
  assert_false(has_file("no.html"));
}

// Another environment: the same command, with its own picture, curves and words.
static void test_cartpole(void **state) {
  (void)state;
  expect(0, NULL,
         "rm -rf runc; brim train cartpole ars.iterations=3 --device ref --output-dir runc -q");
  shell_result r = shell("brim render runc/best.safetensors --out c.html --episode 2 --json");
  assert_int_equal(r.code, 0);
  json_t *line = parse(r.out);
  const json_t *zero = json_array_get(json_object_get(line, "replays"), 1);
  assert_null(json_object_get(line, "task"));
  assert_int_equal(json_integer_value(json_object_get(line, "iteration")), 3);
  assert_string_equal(json_string_value(json_object_get(zero, "policy")), "zero");
  assert_string_equal(json_string_value(json_object_get(zero, "outcome")), "fell");
  assert_true(figure(zero, "return") == figure(zero, "steps"));  // 1 for every step
  assert_true(fabs(figure(zero, "seconds") - 0.02 * figure(zero, "steps")) < 1e-9);
  json_decref(line);
  shell_free(&r);
  char *page = page_of("c.html");
  static const char *const parts[] = {"cartpole: episode 2",
                                      "data-key=\"cart\"",
                                      "data-key=\"angle\"",
                                      "<dt>largest angle</dt>",
                                      "\"numbers\":{\"far\":2.4",
                                      "\"part\":\"state\",\"column\":0",
                                      "linear, 2 x 4",
                                      "positions and velocities within 0.05 of 0"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    if (!strstr(page, parts[i])) fail_msg("'%s' is not in the page", parts[i]);
  }
  assert_null(strstr(page, "quadruped"));
  assert_null(strstr(page, "id=\"follow\""));  // nothing to follow
  brim_free(page);
  // over the first episodes, as eval counts them
  double steps = 0;
  for (int i = 0; i < 3; i++) {
    r = shell("brim render runc/best.safetensors --out e.html --episode %d --json", i);
    line = parse(r.out);
    steps += figure(json_array_get(json_object_get(line, "replays"), 1), "steps");
    json_decref(line);
    shell_free(&r);
  }
  r = shell("brim eval runc/best.safetensors --episodes 3 --device ref --json");
  line = parse(r.out);
  assert_true(fabs(steps / 3 - figure(line, "zero_mean_length")) < 1e-9);
  json_decref(line);
  shell_free(&r);
  says(0, "brim render runc/best.safetensors --out s.html --episode 0 --seconds 0.04");
}

// Several episodes on a page: each number once.
static void test_episodes(void **state) {
  (void)state;
  shell_result r = shell(
      "brim render run/last.safetensors --out m.html --episode 4 --episode 2 --episode 4 --json");
  assert_int_equal(r.code, 0);
  json_t *line = parse(r.out);
  const json_t *replays = json_object_get(line, "replays");
  static const int numbers[] = {4, 4, 2, 2};
  assert_int_equal(json_array_size(replays), 4);
  assert_int_equal(json_integer_value(json_object_get(line, "episode")), 4);
  for (size_t i = 0; i < 4; i++) {
    assert_int_equal((int)figure(json_array_get(replays, i), "episode"), numbers[i]);
  }
  double chosen = figure(json_array_get(replays, 2), "return");
  json_decref(line);
  shell_free(&r);
  r = shell("brim render run/last.safetensors --out n.html --episode 2 --json");
  line = parse(r.out);
  const json_t *alone = json_array_get(json_object_get(line, "replays"), 0);
  assert_true(figure(alone, "return") == chosen);
  assert_null(json_object_get(alone, "episode"));
  json_decref(line);
  shell_free(&r);
  expect(0, "m.html: episodes 4, 2, ",
         "brim render run/last.safetensors --out m.html --episode 4 --episode 2");
  char *page = page_of("m.html");
  assert_non_null(strstr(page, "quadruped, stand: episodes 4, 2"));
  assert_non_null(strstr(page, "numbers 4, 2 of the held-out episodes"));
  brim_free(page);
  says(2,
       "brim render run/last.safetensors --out no.html --episode 0 --episode 1 --episode 2 "
       "--episode 3 --episode 4 --episode 5 --episode 6 --episode 7 --episode 8");
  assert_false(has_file("no.html"));
}

// Under another name too the checkpoint stays unchanged.
static void test_onto_itself(void **state) {
  (void)state;
  expect(0, NULL,
         "cp run/last.safetensors own.safetensors && ln -s own.safetensors soft.safetensors && "
         "ln own.safetensors hard.safetensors");
  says(2, "brim render own.safetensors --out own.safetensors");
  says(2, "brim render own.safetensors --out soft.safetensors");
  says(2, "brim render own.safetensors --out hard.safetensors");
  says(2, "brim render soft.safetensors --out run/../own.safetensors");
  says(2, "brim export --force own.safetensors --output own.safetensors");
  expect(0, NULL, "cmp own.safetensors run/last.safetensors && test -L soft.safetensors");
}

// Other commands on a policy name the commands that can use it.
static void test_not_for_policies(void **state) {
  (void)state;
  says(2, "brim export --force run/last.safetensors --output p.onnx");
  says(2, "brim export --force run/model.safetensors --output p.onnx");
  says(2, "brim predict --force run/last.safetensors --data-path d.h5 --output p.csv");
  assert_false(has_file("p.onnx") || has_file("p.csv"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_page),         cmocka_unit_test(test_training),
      cmocka_unit_test(test_same_as_eval), cmocka_unit_test(test_typical),
      cmocka_unit_test(test_seconds),      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_cartpole),     cmocka_unit_test(test_episodes),
      cmocka_unit_test(test_onto_itself),  cmocka_unit_test(test_not_for_policies),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
