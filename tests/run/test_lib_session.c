// The public session: plug-ins that a config names are loaded only when the caller lists them.
#include <math.h>

#include "base/base.h"
#include "brim/session.h"
#include "config/config.h"
#include "test.h"

static const char yaml[] =
    "dataset: synthetic(shape=[4], samples=32, classes=2)\nmodel: mlp(hidden=4)\nbackend: ref\n"
    "data:\n  batch_size: 8\n";

static brim_config *load(const char *more) {
  char text[512];
  brim_config *config = NULL;
  snprintf(text, sizeof text, "%s%s", yaml, more);
  assert_ok(brim_fs_write("session.yaml", text, strlen(text)));
  const brim_config_options options = {.path = "session.yaml", .mode = BRIM_CONFIG_RUN};
  assert_ok(brim_config_load(&options, &config));
  return config;
}

static void test_plain(void **state) {
  (void)state;
  brim_session *session = NULL;
  brim_session_step_result step;
  brim_config *config = load("");
  assert_ok(brim_session_open(config, NULL, &session));
  assert_ok(brim_session_step(session, &step));
  assert_int_equal(step.samples, 8);
  brim_session_close(session);
  brim_config_close(config);
}

static void test_named_plugins(void **state) {
  (void)state;
  brim_session *session = NULL;
  brim_config *config = load("plugins: [./evil.so]\n");
  assert_ok(brim_fs_write("evil.so", "no library", 10));
  assert_status(brim_session_open(config, NULL, &session), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "./evil.so"));
  assert_non_null(strstr(brim_status_detail(), "brim_session_open"));
  assert_null(session);
  // listed, with this or another spelling: the file is opened, and fails for its own reason
  static const char *const spellings[] = {"./evil.so", "evil.so"};
  for (int i = 0; i < 2; i++) {
    const char *const plugins[] = {spellings[i], NULL};
    assert_true(brim_session_open(config, plugins, &session) != BRIM_OK);
    assert_null(strstr(brim_status_detail(), "brim_session_open"));
    assert_non_null(strstr(brim_status_detail(), "evil.so"));
  }
  brim_config_close(config);
}

// Metrics of every workload have their own keys.
static void test_metrics(void **state) {
  (void)state;
  static const struct {
    const char *more, *has, *has_not;
  } kinds[] = {{"", "loss", "return"},
               {"workload: ars\nenv: cartpole\nars: {num_envs: 4, num_dirs: 2, iterations: 1, "
                "eval_episodes: 5, episode_length: 20}\n",
                "return", "loss"}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    brim_session *session = NULL;
    brim_session_step_result step;
    brim_session_metrics m;
    char text[512];
    snprintf(text, sizeof text, "%s%s", i ? "backend: ref\n" : yaml, kinds[i].more);
    assert_ok(brim_fs_write("session.yaml", text, strlen(text)));
    const brim_config_options options = {.path = "session.yaml", .mode = BRIM_CONFIG_RUN};
    brim_config *config = NULL;
    assert_ok(brim_config_load(&options, &config));
    assert_ok(brim_session_open(config, NULL, &session));
    assert_ok(brim_session_step(session, &step));
    for (int evaluation = 0; evaluation < 2; evaluation++) {
      if (evaluation) {
        assert_ok(brim_session_evaluate(session, &m));
      } else {
        assert_ok(brim_session_metrics_read(session, &m));
      }
      assert_true(m.count > 0 && m.count <= BRIM_SESSION_METRICS && m.samples > 0);
      assert_true(isfinite(brim_session_value(&m, kinds[i].has)));
      assert_true(isnan(brim_session_value(&m, kinds[i].has_not)));
      assert_true(isnan(brim_session_value(&m, "nothing")));
    }
    if (i == 0) {
      const double share = brim_session_value(&m, "accuracy");
      assert_true(share >= 0 && share <= 1);
    }
    brim_session_close(session);
    brim_config_close(config);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_plain),
      cmocka_unit_test(test_named_plugins),
      cmocka_unit_test(test_metrics),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
