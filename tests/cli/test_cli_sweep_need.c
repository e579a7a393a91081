// Memory of a grid's points before they are submitted: from plans of a child, for each kind of GPU. The program is its
// own planning child.
#include "cli/sweep/cli_sweep.h"
#include "lab/fake_gpus.h"
#include "lab/grid/lab_grid.h"
#include "lab/store/lab_store.h"
#include "workload/workload.h"

static const brim_workload_table *(*const workload_list)(size_t)
    __attribute__((used)) = brim_workload_at;

// 1 GB a sample on the first GPU, 2 on others, and 3 besides; 5000 does not fit, and 66 has no answer.
static int plan_lines(void) {
  char *line = NULL;
  size_t cap = 0;
  ssize_t size;
  while ((size = getline(&line, &cap, stdin)) > 0) {
    json_t *question, *answer;
    char *text;
    if (brim_json_parse(line, (size_t)size, "stdin", &question)) return 9;
    const char *config = json_string_value(json_object_get(question, "config"));
    const char *device = json_string_value(json_object_get(question, "device"));
    const char *at = strstr(config, "data.batch_size: ");
    double batch = at ? strtod(at + strlen("data.batch_size: "), NULL) : 0;
    brim_lab_plan plan;
    brim_lab_plan_init(&plan);
    snprintf(plan.id, sizeof plan.id, "%s", json_string_value(json_object_get(question, "id")));
    snprintf(plan.device, sizeof plan.device, "%s", device);
    plan.planned_device = batch * (strcmp(device, "cuda:0") == 0 ? 1e9 : 2e9);
    if (batch != 66) plan.overhead = 3e9;
    if (batch > 1000) plan.failure = BRIM_FAILURE_OOM_PLANNED;
    assert_ok(brim_lab_plan_to_json(&plan, &answer));
    assert_ok(brim_json_dump(answer, 0, &text));
    printf("%s\n", text);
    fflush(stdout);
    brim_free(text);
    json_decref(answer);
    json_decref(question);
  }
  free(line);
  return 0;
}

static char self[4096];
static brim_lab_grid grid;
static brim_store_point points[8];

static brim_status needs(const char *yaml, bool gpus, const char *program) {
  brim_config_options options = {.text = yaml};
  brim_config *config = NULL;
  static const volatile sig_atomic_t never = 0;
  brim_cli cli = {.stop = &never};
  brim_cli_sweep_job job = {.cli = &cli, .grid = &grid, .program = program};
  if (brim_config_load(&options, &config)) fail_msg("%s", brim_status_detail());
  assert_ok(brim_lab_grid_expand(config, NULL, &grid));
  brim_config_close(config);
  assert_true(grid.count <= 8);
  memset(points, 0, sizeof points);
  if (gpus) job.monitor = fake_monitor();
  brim_status status = brim_cli_sweep_needs(&job, points);
  brim_gpu_monitor_close(job.monitor);
  brim_lab_grid_free(&grid);
  return status;
}

static void test_several_on_a_gpu(void **state) {
  (void)state;
  fake_reset(4);
  assert_ok(needs("batch_size: [1, 2, 66, 5000]\nseeds: 2\nper_gpu: auto\n", true, self));
  static const int64_t expected[] = {4000000000, 5000000000, 66000000000 + (2LL << 30), 0};
  for (int i = 0; i < 8; i++) assert_int_equal(points[i].need_bytes, expected[i / 2]);
}

static void test_the_largest_of_several_kinds(void **state) {
  (void)state;
  fake_reset(3);
  fake.gpu[2].name = "NVIDIA Other";
  assert_ok(needs("batch_size: [1, 2]\nper_gpu: 3\n", true, self));
  assert_int_equal(points[0].need_bytes, 5000000000);
  assert_int_equal(points[1].need_bytes, 7000000000);
}

// One experiment at a time and no GPU: no plans, and no planning child.
static void test_not_needed(void **state) {
  (void)state;
  fake_reset(1);
  assert_ok(needs("batch_size: [1, 2]\n", true, "/no/such/program"));
  assert_int_equal(points[0].need_bytes, 0);
  assert_ok(needs("batch_size: [1, 2]\nper_gpu: 4\n", false, "/no/such/program"));
  fake_reset(0);
  assert_ok(needs("batch_size: [1, 2]\nper_gpu: 4\n", true, "/no/such/program"));
}

// Experiments run even if plans cannot be made.
static void test_no_plans(void **state) {
  (void)state;
  fake_reset(1);
  assert_ok(needs("batch_size: [1, 2]\nper_gpu: 4\n", true, "/no/such/program"));
  assert_int_equal(points[0].need_bytes, 0);
  assert_int_equal(points[1].need_bytes, 0);
}

// CUDA does not number slices: if the list has one, GPUs are named by their UUIDs.
static void test_gpus_and_slices_are_named(void **state) {
  (void)state;
  brim_gpu_listed gpus[2] = {{.uuid = "GPU-1"}, {.uuid = "GPU-2"}};
  char out[BRIM_CLI_GPU_SPEC];
  brim_cli_sweep_gpu_spec(gpus, 2, 1, out);
  assert_string_equal(out, "cuda:1");
  snprintf(gpus[0].uuid, sizeof gpus[0].uuid, "MIG-1");
  gpus[0].slice = true;
  brim_cli_sweep_gpu_spec(gpus, 2, 0, out);
  assert_string_equal(out, "MIG-1");
  brim_cli_sweep_gpu_spec(gpus, 2, 1, out);
  assert_string_equal(out, "GPU-2");
}

static void expect_metric(const char *yaml, const char *key) {
  const brim_config_options options = {.text = yaml};
  brim_config *config = NULL;
  brim_cli_metric_names names = {.count = 0};
  brim_lab_point point = {0};
  assert_ok(brim_config_load(&options, &config));
  assert_ok(brim_cli_sweep_describe(&names, config, &point));
  assert_string_equal(point.metric_key, key);
  brim_config_close(config);
}

// A regression has no accuracy. If the loss depends on the data, the store chooses among the recorded metrics: the
// names after the first are the candidates by rank.
static void test_the_metric_of_an_experiment(void **state) {
  (void)state;
  expect_metric("", "eval_accuracy eval_accuracy eval_loss train_accuracy train_loss");
  expect_metric("loss: cross_entropy\n",
                "eval_accuracy eval_accuracy eval_loss train_accuracy train_loss");
  expect_metric("loss: mse\n", "eval_loss eval_loss train_loss");
  expect_metric("loss: mse\ncheckpoint.best: train_loss\n", "train_loss train_loss train_loss");
  expect_metric("checkpoint.best: loss\n",
                "eval_loss eval_loss eval_accuracy eval_loss train_accuracy train_loss");
}

int main(int argc, char **argv) {
  if (argc > 2 && strcmp(argv[1], "sweep") == 0 && strcmp(argv[2], "plan") == 0) {
    return plan_lines();
  }
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n <= 0) return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_several_on_a_gpu),
      cmocka_unit_test(test_the_largest_of_several_kinds),
      cmocka_unit_test(test_not_needed),
      cmocka_unit_test(test_no_plans),
      cmocka_unit_test(test_gpus_and_slices_are_named),
      cmocka_unit_test(test_the_metric_of_an_experiment),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
