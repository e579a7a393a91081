// Memory is too small for a fused rollout of mappo, on a device that looks like a GPU: brim first frees the stored network
// inputs, then environments, and reports it. tests/workload/test_workload_mappo_fused.c has the training after that.
#include "run/run_int.h"
#include "workload/fixture.h"
#include "workload/gpu_face.h"

static const char yaml[] =
    "workload: mappo\n"
    "env: uav(rules=peer, size=12, num_uavs=3, num_obstacles=5, episode_steps=9, crop=5)\n"
    "model: actor_critic(depth=2, hidden=16)\n"
    "mappo: {num_envs: 6, rollout_steps: 20, update_epochs: 2, minibatches: 3}\n"
    "training: {precision: bf16}\n";

static char said[1024];

static void listen(void *ctx, brim_log_level level, const char *module, const char *message) {
  (void)ctx, (void)level, (void)module;
  snprintf(said + strlen(said), sizeof said - strlen(said), "%s\n", message);
}

static void open_job(fixture *f, const char *override) {
  memset(f, 0, sizeof *f);
  const brim_config_options options = {.text = yaml,
                                       .text_name = "test.yaml",
                                       .overrides = &override,
                                       .override_count = override ? 1 : 0};
  assert_ok(brim_config_load(&options, &f->config));
  assert_ok(brim_registry_create(&f->registry));
  assert_ok(brim_registry_load(f->registry, BRIM_BUILD_DIR "/tests/plugins/libbrim_test_fused.so"));
  f->device = gpu_face_open();
  const brim_work_context context = {.registry = f->registry, .device = f->device};
  assert_ok(brim_work_open(&context, f->config, &f->work));
}

static uint64_t needs(const char *override) {
  fixture f;
  brim_plan plan;
  open_job(&f, override);
  const brim_setting setting = brim_work_setting(f.work);
  assert_ok(f.work->table->plan(f.work->state, &setting, &plan));
  fixture_close(&f);
  return plan.bytes[BRIM_PLACE_DEVICE];
}

// The number of environments with this much memory, and the warnings.
static brim_status adapts(uint64_t limit, const char *override, int64_t *envs) {
  fixture f;
  brim_run_adapt adapt;
  brim_plan plan;
  const brim_run_options options = {0};
  said[0] = '\0';
  open_job(&f, override);
  const int knob = 0;
  assert_string_equal(f.work->knobs[knob].name, "num_envs");
  brim_run_adapt_init(&adapt, f.work, f.config);
  brim_log_set_sink(listen, NULL, BRIM_LOG_WARN);
  const brim_status status = brim_run_adapt_plan(&adapt, f.work, &options, limit, &plan);
  brim_log_set_sink(NULL, NULL, BRIM_LOG_WARN);
  *envs = adapt.setting.value[knob];
  if (!status) assert_true(plan.bytes[BRIM_PLACE_DEVICE] <= limit);
  fixture_close(&f);
  return status;
}

static void test_the_rollout_goes_first(void **state) {
  (void)state;
  const uint64_t fused = needs(NULL), update = needs("mappo.collect_on=cpu");
  int64_t envs = 0;
  assert_true(update < fused);
  assert_ok(adapts(fused, NULL, &envs));
  assert_int_equal(envs, 6);
  assert_string_equal(said, "");
  // one byte less than needed
  assert_ok(adapts(fused - 1, NULL, &envs));
  assert_int_equal(envs, 6);
  assert_non_null(strstr(said, "out of memory: brim stops fusing rollouts, which saves "));
  assert_null(strstr(said, "num_envs"));
  // too little even for the smaller form
  assert_ok(adapts(update - 1, NULL, &envs));
  assert_int_equal(envs, 3);
  assert_non_null(strstr(said, "stops fusing rollouts"));
  assert_non_null(strstr(said, "num_envs 6 -> 3"));
  // without adaption it fails, even for one byte
  assert_int_equal(adapts(fused - 1, "gpu.on_oom=fail", &envs), BRIM_EOOM);
  char numbers[96];
  snprintf(numbers, sizeof numbers,
           "needs %llu B of memory, above the gpu.memory_limit of %llu B; ",
           (unsigned long long)fused, (unsigned long long)fused - 1);
  assert_non_null(strstr(brim_status_detail(), numbers));
  assert_int_equal(envs, 6);
  assert_null(strstr(said, "stops fusing rollouts"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_rollout_goes_first)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
