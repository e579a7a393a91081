// Reports about a GPU's memory, on a fake GPU: the forecast, one measurement, the explanation.
#include <math.h>

#include "cli/train/cli_train.h"
#include "measure/fake_gpu.h"

static const char yaml[] =
    "dataset: synthetic(shape=(6, 6), classes=4, samples=500)\n"
    "model: mlp(depth=2, hidden=64)\n"
    "data: {batch_size: 256, num_workers: 0}\n";

static void open_job(brim_cli_job *job, const char *uuid) {
  memset(job, 0, sizeof *job);
  memset(&gpu, 0, sizeof gpu);
  gpu.total = 1024 * MIB;
  gpu.modules_at_copy = 2 * MIB;
  job->monitor = fake_monitor_open();
  brim_memory_watch_init(&job->memory, job->monitor, uuid, "cache");
  brim_config_options options = {.text = yaml, .text_name = "test.yaml"};
  assert_ok(brim_config_load(&options, &job->config));
  assert_ok(brim_registry_create(&job->registry));
  job->device = fake_device_open();
  brim_memory_watch_opened(&job->memory, job->device);
  brim_work_context context = {.registry = job->registry, .device = job->device};
  assert_ok(brim_work_open(&context, job->config, &job->work));
}

// Checks the plan before a run of the config's own setting.
static brim_status check(brim_cli_memory *m) {
  brim_work *work = m->job->work;
  brim_setting own = brim_work_setting(work);
  brim_plan plan;
  assert_ok(work->table->plan(work->state, &own, &plan));
  return brim_cli_memory_check_plan(m, &own, &plan);
}

// Configures, plans and steps in the order of brim_run_train.
static void start(brim_cli_memory *m, int steps) {
  const brim_workload_table *table = m->job->work->table;
  void *work = m->job->work->state;
  assert_ok(table->configure(work, &m->setting));
  brim_plan plan;
  assert_ok(table->plan(work, &m->setting, &plan));
  brim_cli_memory_started(m, &plan);
  brim_step_info info;
  for (int i = 0; i < steps; i++) assert_ok(table->step(work, NULL, &info));
}

static void test_told_after_warm_up(void **state) {
  (void)state;
  brim_fs_remove("cache/overhead.json");
  brim_cli cli = {.quiet = true};
  brim_cli_job job;
  open_job(&job, FAKE_UUID);
  brim_cli_memory m = {.cli = &cli, .job = &job};
  char text[128];
  assert_ok(check(&m));
  assert_true(isnan(brim_cli_memory_known_overhead(&m)));
  brim_cli_overhead_text(brim_cli_memory_known_overhead(&m), text, sizeof text);
  assert_string_equal(text, "measured after warm-up");
  start(&m, 2);
  brim_cli_memory_tick(&m);
  brim_cli_memory_tick(&m);
  assert_false(brim_cli_memory_text(&m, text, sizeof text));
  brim_cli_memory_tick(&m);
  assert_true(brim_cli_memory_text(&m, text, sizeof text));
  assert_non_null(strstr(text, "+ overhead 5.0 MiB = "));
  brim_cli_overhead_text(brim_cli_memory_known_overhead(&m), text, sizeof text);
  assert_string_equal(text, "5.0 MiB (CUDA context, libraries)");
  // reported once; the end of an epoch measures again
  gpu.modules += 7 * MIB;
  brim_cli_memory_tick(&m);
  assert_true(job.memory.overhead == 5.0 * MIB);
  brim_cli_memory_measure(&m);
  assert_true(job.memory.overhead == 12.0 * MIB);
  json_t *json = brim_cli_memory_json(&m);
  double planned = json_number_value(json_object_get(json, "planned"));
  assert_true(planned == (double)gpu.allocated);
  assert_true(json_number_value(json_object_get(json, "real")) == planned + 12.0 * MIB);
  json_decref(json);
  brim_cli_job_close(&job);
}

static void test_explained(void **state) {
  (void)state;
  brim_cli cli = {.quiet = true};
  brim_cli_job job;
  open_job(&job, FAKE_UUID);
  brim_cli_memory m = {.cli = &cli, .job = &job};
  gpu.others = gpu.total - gpu.context - 100000;
  assert_status(check(&m), BRIM_EOOM);
  assert_non_null(strstr(brim_status_detail(), "pid 4711 python train.py ("));
  assert_int_equal(brim_cli_exit_code(BRIM_EOOM), BRIM_CLI_EXIT_MEMORY);
  // the allocation fails after all
  gpu.others = 0;
  assert_ok(check(&m));
  gpu.others_at_alloc = gpu.total - gpu.context - 100000;
  brim_status status = job.work->table->configure(job.work->state, &m.setting);
  assert_status(status, BRIM_EOOM);
  assert_status(brim_cli_memory_failed(&m, status), BRIM_EOOM);
  assert_non_null(strstr(brim_status_detail(), "fakeMalloc"));
  assert_non_null(strstr(brim_status_detail(), "pid 4711 python train.py ("));
  assert_non_null(strstr(brim_status_detail(), "97.7 KiB of 1.0 GiB are free"));
  // other failures stay unchanged
  brim_fail(BRIM_EIO, "disk full");
  assert_status(brim_cli_memory_failed(&m, BRIM_EIO), BRIM_EIO);
  assert_string_equal(brim_status_detail(), "disk full");
  brim_cli_job_close(&job);
}

// A device that uses host memory has no such reports.
static void test_silent_on_the_host(void **state) {
  (void)state;
  brim_cli cli = {.quiet = true};
  brim_cli_job job;
  open_job(&job, "");
  brim_cli_memory m = {.cli = &cli, .job = &job};
  char text[128];
  gpu.others = gpu.total;
  assert_ok(check(&m));
  gpu.others = 0;
  start(&m, 1);
  for (int i = 0; i < 5; i++) brim_cli_memory_tick(&m);
  assert_false(brim_cli_memory_text(&m, text, sizeof text));
  assert_null(brim_cli_memory_json(&m));
  assert_true(isnan(job.memory.overhead));
  brim_fail(BRIM_EOOM, "as it was");
  assert_status(brim_cli_memory_failed(&m, BRIM_EOOM), BRIM_EOOM);
  assert_string_equal(brim_status_detail(), "as it was");
  brim_cli_job_close(&job);
}

// The source of the samples, in words and as JSON.
static void test_where_samples_come_from(void **state) {
  (void)state;
  static const struct {
    brim_work_info info;
    const char *text;  // NULL = nothing is reported
  } rows[] = {
      {{.cache = NULL}, NULL},
      {{.cache = "none"}, NULL},
      {{.cache = "gpu"}, "kept on the GPU"},
      {{.cache = "ram"}, "kept in host memory"},
      {{.cache = "mapped", .locked_bytes = 1353 * MIB},
       "the GPU reads rows from the mapped file (1.3 GiB page-locked)"},
      {{.cache = "none", .not_mapped = "no room"},
       "loader threads copy rows from the mapped file (no room)"},
  };
  char text[300];
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    text[0] = 0;
    assert_int_equal(brim_cli_cache_text(&rows[i].info, text, sizeof text), rows[i].text != NULL);
    if (rows[i].text) assert_string_equal(text, rows[i].text);
  }
  brim_run_loading loading = {.samples = 10, .cache = "mapped", .locked_bytes = 4096};
  json_t *o = brim_cli_loading_json(&loading);
  assert_string_equal(json_string_value(json_object_get(o, "cache")), "mapped");
  assert_int_equal(json_integer_value(json_object_get(o, "locked_bytes")), 4096);
  json_decref(o);
}

int main(void) {
  brim_json_own_memory();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_told_after_warm_up),
      cmocka_unit_test(test_explained),
      cmocka_unit_test(test_silent_on_the_host),
      cmocka_unit_test(test_where_samples_come_from),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
