// The ars workload on environments that only a plug-in has: trained, evaluated, saved and resumed, on the CPU and, if
// there is a GPU, on CUDA; and its refusals.
#include "workload/ars_fixture.h"

#define PLUGIN BRIM_BUILD_DIR "/tests/plugins/libbrim_test_env.so"

static const char drift[] =
    "workload: ars\n"
    "env: plugin:drift(agents=3)\n"
    "ars: {num_envs: 8, num_dirs: 4, dir_chunk: 4, top_dirs: 2, iterations: 6, eval_interval: 2,\n"
    "      eval_episodes: 20}\n"
    "seed: 3\n";

static brim_status open_on(fixture *f, const char *device, const char *one, const char *two) {
  const char *const overrides[] = {one, two};
  const brim_config_options options = {.text = drift,
                                       .text_name = "test.yaml",
                                       .overrides = overrides,
                                       .override_count = (size_t)(one != NULL) + (two != NULL)};
  memset(f, 0, sizeof *f);
  BRIM_TRY(brim_config_load(&options, &f->config));
  BRIM_TRY(brim_registry_create(&f->registry));
  BRIM_TRY(brim_registry_load_folder(f->registry, BRIM_BUILD_DIR "/lib/brim"));
  BRIM_TRY(brim_registry_load(f->registry, PLUGIN));
  BRIM_TRY(brim_device_open(f->registry, device, NULL, &f->device));
  brim_work_context context = {.registry = f->registry, .device = f->device};
  BRIM_TRY(brim_work_open(&context, f->config, &f->work));
  return fixture_configure(f);
}

static bool has_cuda(void) {
  brim_registry *registry;
  brim_device *device;
  assert_ok(brim_registry_create(&registry));
  assert_ok(brim_registry_load_folder(registry, BRIM_BUILD_DIR "/lib/brim"));
  bool has = brim_device_open(registry, "cuda", NULL, &device) == BRIM_OK;
  if (has) brim_device_close(device);
  brim_registry_destroy(registry);
  return has;
}

static const char *const devices[] = {"ref", "cuda"};

static void save_policy(fixture *f, const char *path) {
  brim_ars_state s = {0};
  const brim_ars *w = f->work->state;
  assert_ok(brim_ars_fetch(f->work->state, &s));
  assert_ok(brim_fs_write(path, s.theta, w->layout.params * sizeof *s.theta));
  brim_ars_state_deinit(&s);
}

static void test_chunks(void **state) {
  (void)state;
  static const char *const chunks[] = {"ars.dir_chunk=4", "ars.dir_chunk=1", "ars.dir_chunk=3"};
  static const char *const files[] = {"whole", "ones", "threes"};
  for (int d = 0; d < (has_cuda() ? 2 : 1); d++) {
    for (int i = 0; i < 3; i++) {
      fixture f;
      assert_ok(open_on(&f, devices[d], chunks[i], NULL));
      steps(&f, 4);
      save_policy(&f, files[i]);
      fixture_close(&f);
      assert_same_file(files[0], files[i]);
    }
  }
}

static void test_resume(void **state) {
  (void)state;
  for (int d = 0; d < (has_cuda() ? 2 : 1); d++) {
    fixture f;
    brim_work_info info;
    assert_ok(open_on(&f, devices[d], NULL, NULL));
    f.work->table->info(f.work->state, &info);
    assert_string_equal(info.description, "linear policy, drift of 3, episodes of 30");
    steps(&f, 2);
    save(&f, "half");
    steps(&f, 3);
    save_policy(&f, "through");
    fixture_close(&f);
    assert_ok(open_on(&f, devices[d], NULL, NULL));
    assert_ok(f.work->table->load(f.work->state, "half", NULL));
    steps(&f, 3);
    save_policy(&f, "resumed");
    brim_work_metrics m;
    assert_ok(brim_work_evaluate(f.work, &m));
    assert_int_equal(m.samples, 20);
    // the environment's own figures are rows like any other, and its ends have their own names
    const double share = figure(m, "arrivals"), moves = figure(m, "moves");
    assert_true(share >= 0 && share <= 1);
    assert_true(moves > 0 && moves <= 3);  // sums over three agents
    assert_true(isnan(figure(m, "falls")));
    assert_true(isfinite(metric_value(m.set, m.baseline, "moves")));
    int row = brim_metric_find(m.set, "arrivals");
    char name[BRIM_METRIC_NAME];
    assert_true(
        brim_metric_name(&m.set->rows[row], BRIM_METRIC_BASELINE, BRIM_METRIC_COLUMN, name));
    assert_string_equal(name, "zero_arrivals");
    assert_true(brim_metric_name(&m.set->rows[row], BRIM_METRIC_EVAL, BRIM_METRIC_FIGURE, name));
    assert_string_equal(name, "arrival_rate");
    fixture_close(&f);
    assert_same_file("through", "resumed");
    // other stages and arguments of the same environment accept the policy; resuming with another task is refused
    assert_ok(open_on(&f, devices[d], "training.weights=half", "ars.phase=phase2"));
    fixture_close(&f);
    assert_ok(open_on(&f, devices[d], "env=plugin:drift(task=far)", NULL));
    assert_int_equal(f.work->table->load(f.work->state, "half", NULL), BRIM_EINVAL);
    assert_non_null(strstr(brim_status_detail(), "its task is near, but this run's task is far"));
    fixture_close(&f);
  }
}

static brim_status refused(const char *env, const char *why) {
  fixture f;
  const brim_status status = open_on(&f, "ref", env, NULL);
  assert_int_not_equal(status, BRIM_OK);
  if (!strstr(brim_status_detail(), why)) fail_msg("no '%s' in: %s", why, brim_status_detail());
  fixture_close(&f);
  return status;
}

static void test_refused(void **state) {
  (void)state;
  refused("env=plugin:nowhere", "no plug-in has such an environment (env/nowhere)");
  assert_int_equal(
      refused("env=plugin:empty", "environment plugin:empty: its row has no ended.key"), BRIM_EABI);
  refused("env=plugin:drift(task=middle)", "task is 'middle', expected one of near|far");
  refused("env=plugin:drift(agents=9)", "agents has to be from 1 to 4");
  refused("env=plugin:drift(num_agents=9)", "agents has to be from 1 to 4");
  refused("env=plugin:drift(agents=2, num_agents=2)",
          "agents and num_agents are the same argument; specify it once");
  // config does not know the arguments of a plug-in's environment: they are checked once its row is known
  refused("env=plugin:drift(agent=2)", "drift has no argument 'agent'; did you mean 'agents'?");
  refused("env=plugin:drift(speed=2)", "drift has no argument 'speed'");
  refused("env=plugin:drift(agents=two)", "drift: 'agents' expects int");
  refused("env=plugin:drift(agents=1.5)", "drift: 'agents' expects int");
  refused("env=plugin:drift(agents=4294967298)", "drift: 'agents' expects int");
  refused("env=plugin:drift(wind=strong)", "drift: 'wind' expects float");
  refused("env=plugin:drift(wind=nan)", "drift: 'wind' expects float");
  refused("env=plugin:drift(wind=10)", "drift: 'wind' must be between -9 and 9");
  refused("env=plugin:drift(wind=-9.5)", "drift: 'wind' must be between -9 and 9");
  refused("env=plugin:drift(task=[near])", "drift: 'task' expects word");
  refused("training.weights=whole", "whole");  // not a checkpoint
}

// An integer may be written with an exponent, and a word may look like another type.
static void test_arguments(void **state) {
  (void)state;
  fixture f;
  brim_work_info info;
  assert_ok(open_on(&f, "ref", "env=plugin:drift(agents=2e0, wind=1, reward=own)", NULL));
  f.work->table->info(f.work->state, &info);
  assert_string_equal(info.description, "linear policy, drift of 2, episodes of 30");
  fixture_close(&f);
}

// A value of this argument: its default.
static void usual_word(const brim_env_row *row, const brim_env_arg *arg, char *out, size_t size) {
  brim_env_values values = {0};
  float number;
  int32_t whole;
  row->defaults(0, values.bytes);
  memcpy(&whole, values.bytes + arg->offset, sizeof whole);
  memcpy(&number, values.bytes + arg->offset, sizeof number);
  if (arg->type == BRIM_ENV_ARG_FLOAT) {
    snprintf(out, size, "%g", (double)number);
  } else if (arg->type == BRIM_ENV_ARG_INT) {
    snprintf(out, size, "%d", whole);
  } else {
    brim_env_choice_name(arg->choices, 0, out, size);
  }
}

// The catalogue of components has every argument of every environment, by its alias too.
static void test_catalogue(void **state) {
  (void)state;
  const brim_env_row *row;
  for (size_t i = 0; (row = brim_env_at(i)); i++) {
    for (size_t k = 0; k < 2 * row->arg_count; k++) {
      const brim_env_arg *arg = &row->args[k / 2];
      const char *name = k % 2 ? arg->alias : arg->name;
      char override[128], word[32];
      if (!name) continue;
      usual_word(row, arg, word, sizeof word);
      snprintf(override, sizeof override, "env=%s(%s=%s)", row->name, name, word);
      const char *const overrides[] = {override};
      const brim_config_options options = {.text = "workload: ars\n",
                                           .text_name = "test.yaml",
                                           .overrides = overrides,
                                           .override_count = 1};
      brim_config *config;
      brim_rollout_shape shape;
      assert_ok(brim_config_load(&options, &config));
      assert_ok(brim_ars_shape(config, NULL, &shape));
      assert_ptr_equal(shape.row, row);
      brim_config_close(config);
    }
  }
}

// The defaults that a row writes into a config are those that the environment uses.
static void test_defaults(void **state) {
  (void)state;
  const brim_env_row *row;
  for (size_t i = 0; (row = brim_env_at(i)); i++) {
    char text[64];
    brim_env_values values = {0};
    snprintf(text, sizeof text, "workload: ars\nenv: %s\n", row->name);
    const brim_config_options options = {.text = text, .text_name = "test.yaml"};
    brim_config *config;
    brim_rollout_shape shape;
    assert_ok(brim_config_load(&options, &config));
    assert_ok(brim_ars_shape(config, NULL, &shape));
    row->defaults(0, values.bytes);
    assert_memory_equal(shape.env.bytes, values.bytes, sizeof values.bytes);
    brim_config_close(config);
    assert_non_null(row->meaning);
    for (size_t k = 0; k < row->arg_count; k++) assert_non_null(row->args[k].meaning);
  }
}

// No word exists past the last choice, and each word is found by its name.
static void test_choices(void **state) {
  (void)state;
  char word[8];
  assert_int_equal(brim_env_choice("stand|walk", "walk"), 1);
  assert_int_equal(brim_env_choice("stand|walk", "stand"), 0);
  assert_int_equal(brim_env_choice("stand|walk", "wal"), -1);
  assert_int_equal(brim_env_choice("stand|walk", ""), -1);
  assert_string_equal(brim_env_choice_name("stand|walk", 1, word, sizeof word), "walk");
  assert_string_equal(brim_env_choice_name("stand|walk", 2, word, sizeof word), "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_chunks),    cmocka_unit_test(test_resume),
      cmocka_unit_test(test_refused),   cmocka_unit_test(test_arguments),
      cmocka_unit_test(test_catalogue), cmocka_unit_test(test_defaults),
      cmocka_unit_test(test_choices),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
