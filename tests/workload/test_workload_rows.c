// The checks of a workload's rows, with a workload that does nothing.
#include <string.h>

#include "config/config.h"
#include "test.h"
#include "workload/workload.h"

static brim_knob knob = {.name = "depth", .key = "seed", .max = 9};
static int opened;

static brim_status idle_open(const brim_work_context *context, const brim_config *config,
                             void **work) {
  (void)context, (void)config;
  *work = &opened;
  opened++;
  return BRIM_OK;
}

static void idle_close(void *work) {
  (void)work;
  opened--;
}

static size_t idle_knobs(void *work, const brim_knob **out) {
  (void)work;
  *out = &knob;
  return 1;
}

static const brim_workload_table idle = {
    .name = "idle", .open = idle_open, .close = idle_close, .knobs = idle_knobs};

static brim_status open_with(const char *option) {
  const brim_config_options options = {.text = "workload: idle\n", .text_name = "t.yaml"};
  const brim_work_context context = {0};
  brim_config *config;
  brim_work *work = NULL;
  assert_ok(brim_config_load(&options, &config));
  knob.option = option;
  brim_status status = brim_work_open(&context, config, &work);
  if (!status) brim_work_close(work);
  brim_config_close(config);
  assert_int_equal(opened, 0);
  return status;
}

// `bench` compares an option with the name after its dashes. An option without dashes would never be found.
static void options_of_knobs_have_dashes(void **state) {
  (void)state;
  assert_ok(open_with(NULL));
  assert_ok(open_with("--depth"));
  static const char *const wrong[] = {"depth", "-d", "", "-", "--"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    assert_status(open_with(wrong[i]), BRIM_EINVAL);
    assert_non_null(strstr(brim_status_detail(), "workload idle: the option of knob depth is"));
  }
}

// Workloads of brim are registered like others: a second one with the same name is refused.
static void a_name_is_taken_once(void **state) {
  (void)state;
  brim_workload_table second = idle;
  assert_status(brim_workload_register(&second), BRIM_EINVAL);
  second.name = "ars";
  assert_status(brim_workload_register(&second), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "there is a workload ars already"));
}

static void start_is(const char *workload, const char *override, const char *config,
                     const char *name) {
  brim_work_start start;
  if (!brim_workload_start(brim_workload_find(workload), override, &start)) {
    if (name) fail_msg("%s %s: nothing", workload, override);
    return;
  }
  if (!name) fail_msg("%s %s: %s", workload, override, start.name);
  assert_string_equal(start.config ? start.config : "none", config);
  assert_string_equal(start.name, name);
}

// `brim train WORKLOAD env=...` starts from the environment's own settings, never another's.
static void what_a_run_starts_from(void **state) {
  (void)state;
  start_is("ars", "env=cartpole", "cartpole.yaml", "cartpole-ars");
  start_is("ars", "env=cartpole(reset=0.1)", "cartpole.yaml", "cartpole-ars");
  start_is("ars", "environment=quadruped", "quadruped-stand.yaml", "quadruped-ars");
  start_is("ars", "env=uav", "none", "uav-ars");
  start_is("ars", "env= uav (size=8)", "none", "uav-ars");
  start_is("ars", "env=plugin:drift(agents=2)", "none", "drift-ars");
  // a plug-in's environment of the same name
  start_is("ars", "env=plugin:cartpole", "none", "cartpole-ars");
  start_is("ars", "env=cartpoles", "none", "cartpoles-ars");
  start_is("mappo", "env=cartpole", "cartpole-mappo.yaml", "cartpole-mappo");
  start_is("mappo", "env=uav(size=8)", "uav.yaml", "uav-mappo");
  start_is("mappo", "env=quadruped", "none", "quadruped-mappo");
  static const char *const others[] = {"env=",       "env=plugin:", "env=[uav, cartpole]",
                                       "seed=1",     "env.size=8",  "env={_type: uav}",
                                       "env=../uav", "environ=uav"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    start_is("ars", others[i], NULL, NULL);
  }
  start_is("supervised", "env=uav", NULL, NULL);  // the workload learns in no environment
  char far[160] = "env=";
  memset(far + 4, 'a', 100);
  start_is("ars", far, NULL, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(options_of_knobs_have_dashes),
      cmocka_unit_test(a_name_is_taken_once),
      cmocka_unit_test(what_a_run_starts_from),
  };
  if (brim_workload_register(&idle)) return 1;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
