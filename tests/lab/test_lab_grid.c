// Grids as experiments: the points that a sweep submits. The sweep avoids faults found in other tools, and these tests
// hold that: devices are no axis, 1e-4 is a number, placeholders are filled in, ids do not collide, a grid is expanded
// at submit, and later edits do not change queued points.
#include "base/base.h"
#include "lab/grid/lab_grid.h"
#include "lab/store/lab_store.h"
#include "record/record_lab.h"
#include "test.h"
#include "workload/workload.h"

// The list of workloads adds their keys before main. This reference makes the linker keep it.
static const brim_workload_table *(*const workload_list)(size_t)
    __attribute__((used)) = brim_workload_at;

static brim_config *load(const char *text) {
  brim_config_options options = {.text = text, .text_name = "t.yaml"};
  brim_config *config;
  if (brim_config_load(&options, &config)) fail_msg("%s\n%s", brim_status_detail(), text);
  return config;
}

static brim_lab_grid expand(const char *text) {
  brim_config *config = load(text);
  brim_lab_grid grid;
  assert_ok(brim_lab_grid_expand(config, NULL, &grid));
  brim_config_close(config);  // the expanded grid does not need it
  return grid;
}

static const char guide[] =
    "name: guide\ndevice: [0, 1, 2, 3]\nmodel: mlp(depth=2)\n"
    "lr: [1e-4, 1e-3, 1e-2]\nbatch_size: [64, 128]\n";

static void three_by_two_on_four_devices_are_six(void **state) {
  (void)state;
  static const char *const labels[] = {"lr=0.0001 batch_size=64", "lr=0.0001 batch_size=128",
                                       "lr=0.001 batch_size=64",  "lr=0.001 batch_size=128",
                                       "lr=0.01 batch_size=64",   "lr=0.01 batch_size=128"};
  brim_lab_grid grid = expand(guide);
  assert_int_equal(grid.count, 6);
  assert_int_equal(grid.device_count, 4);
  assert_string_equal(grid.devices[3], "cuda:3");
  assert_string_equal(grid.name, "guide");
  assert_int_equal(grid.per_gpu, 1);
  assert_null(grid.store);
  for (size_t i = 0; i < 6; i++) {
    const brim_lab_point *p = &grid.points[i];
    assert_string_equal(p->label, labels[i]);
    assert_int_equal(p->idx, i);
    assert_int_equal(p->tries, 2);
    assert_int_equal(p->gpus, 1);
    assert_string_equal(p->tags, "");
    assert_null(strstr(p->config, "device"));
    for (size_t n = 0; n < i; n++) assert_string_not_equal(p->id, grid.points[n].id);
  }
  brim_lab_grid_free(&grid);
}

static void numbers_are_numbers(void **state) {
  (void)state;
  brim_lab_grid grid = expand(guide);
  brim_config *config = load(grid.points[0].config);
  assert_true(brim_config_float(config, "training.learning_rate") == 1e-4);
  brim_config_close(config);
  brim_lab_grid_free(&grid);
}

static void placeholders_are_filled_in(void **state) {
  (void)state;
  brim_lab_grid grid = expand(
      "epochs: 3\nseed: [4, 5]\nname: \"run-{{seed}}-{{epochs}}\"\n"
      "data.path: \"data/{{ seed }}.h5\"\n");
  for (int i = 0; i < 2; i++) {
    brim_config *config = load(grid.points[i].config);
    char name[32], path[32];
    snprintf(name, sizeof name, "run-%d-3", i + 4);
    snprintf(path, sizeof path, "data/%d.h5", i + 4);
    assert_string_equal(brim_config_string(config, "name"), name);
    assert_string_equal(brim_config_string(config, "data.path"), path);
    brim_config_close(config);
  }
  brim_lab_grid_free(&grid);
}

// Every stored config loads back to its id; the group is in its first line.
static void a_stored_config_is_its_experiment(void **state) {
  (void)state;
  brim_lab_grid grid = expand(
      "model: [mlp, mlp(depth=3), linear]\noptimizer: {_type: sgd, lr: [0.5, 1e-3]}\nseeds: 3\n"
      "transform: {train: \"pad | cutout\"}\nlog.interval: 5\ntags: [b, a]\npriority: 3\n"
      "retries: 0\ngpus: 2\nper_gpu: auto\nstore: here\n");
  assert_int_equal(grid.count, 18);
  assert_int_equal(grid.per_gpu, 0);
  assert_string_equal(grid.store, "here");
  for (size_t i = 0; i < grid.count; i++) {
    const brim_lab_point *p = &grid.points[i];
    brim_config *config = load(p->config);
    char id[BRIM_LAB_ID], group[BRIM_LAB_ID];
    assert_ok(brim_config_hash(config, BRIM_CONFIG_EXPERIMENT, id));
    assert_string_equal(id, p->id);
    brim_lab_config_mark(p->config, "group", group);
    assert_string_equal(group, p->group);
    char cost[BRIM_LAB_ID];
    brim_lab_config_mark(p->config, "cost", cost);
    assert_string_equal(cost, p->cost_id);
    // learning rates and seeds do not change the cost
    assert_string_equal(cost, grid.points[i - i % 6].cost_id);
    if (i >= 6) assert_string_not_equal(cost, grid.points[i - 6].cost_id);
    assert_string_equal(group, grid.points[i - i % 3].group);
    if (i >= 3) assert_string_not_equal(group, grid.points[i - 3].group);
    assert_int_equal(p->seed, i % 3);
    assert_int_equal(brim_config_int(config, "seed"), i % 3);
    assert_int_equal(brim_config_int(config, "log.interval"), 5);
    assert_string_equal(p->tags, "b,a");
    assert_int_equal(p->priority, 3);
    assert_int_equal(p->tries, 0);
    assert_int_equal(p->gpus, 2);
    assert_true(brim_utf8_valid(p->config, strlen(p->config)));
    brim_config_close(config);
  }
  char none[BRIM_LAB_ID];
  static const char *const without[] = {"", "# group 123\n", "lr: 1\n",
                                        "# group 0123456789abcdef0123456789abcdeg\n",
                                        "# group 0123456789abcdef0123456789abcdef0\n"};
  for (size_t i = 0; i < sizeof without / sizeof without[0]; i++) {
    brim_lab_config_mark(without[i], "group", none);
    assert_string_equal(none, "");
    brim_lab_config_mark(without[i], "cost", none);
    assert_string_equal(none, "");
  }
  brim_lab_grid_free(&grid);
}

static void the_same_grid_has_the_same_ids(void **state) {
  (void)state;
  brim_lab_grid a = expand(guide);
  // another order of keys, other devices, a comment
  brim_lab_grid b = expand(
      "# edited\nlr: [1e-4, 0.001, 0.01]\nbatch_size: [64, 128]\nname: guide\ndevice: cpu\n"
      "model: {_type: mlp, depth: 2}\n");
  assert_string_equal(a.id, b.id);
  for (size_t i = 0; i < 6; i++) assert_string_equal(a.points[i].id, b.points[i].id);
  brim_lab_grid_free(&b);
  // One more learning rate adds only its own points.
  b = expand(
      "name: guide\nmodel: mlp(depth=2)\nlr: [0.5, 1e-4, 1e-3, 1e-2]\nbatch_size: [64, 128]\n");
  assert_int_equal(b.count, 8);
  assert_string_not_equal(a.id, b.id);
  for (size_t i = 0; i < 6; i++) assert_string_equal(a.points[i].id, b.points[i + 2].id);
  brim_lab_grid_free(&b);
  brim_lab_grid_free(&a);
}

static void duplicates_collapse(void **state) {
  (void)state;
  brim_lab_grid grid = expand("lr: [0.1, 1e-1, 0.2]\nbatch_size: linspace(1, 2, 3)\n");
  assert_int_equal(grid.count, 4);
  assert_int_equal(grid.duplicates, 5);
  assert_int_equal(grid.note_count, 1);
  assert_non_null(strstr(grid.notes[0], "5 of 9"));
  assert_int_equal(grid.points[2].idx, 6);
  assert_string_equal(grid.points[2].label, "lr=0.2 batch_size=1");
  brim_lab_grid_free(&grid);
  grid = expand("seed: 1\n");
  assert_int_equal(grid.count, 1);
  assert_int_equal(grid.note_count, 0);
  assert_string_equal(grid.points[0].label, "");
  assert_string_equal(grid.name, "sweep");
  assert_string_equal(grid.devices[0], "auto");
  brim_lab_grid_free(&grid);
}

// An edit of the file, or of one that it includes, does not change submitted points.
static void a_later_edit_changes_nothing(void **state) {
  (void)state;
  static const char base[] = "lab-grid-base.yaml", file[] = "lab-grid.yaml";
  static const char before[] = "batch_size: 64\n", after[] = "batch_size: 8\n";
  static const char text[] = "include: lab-grid-base.yaml\nlr: [0.1, 0.2]\n";
  assert_ok(brim_fs_write(base, before, strlen(before)));
  assert_ok(brim_fs_write(file, text, strlen(text)));
  brim_config *config;
  brim_lab_grid grid;
  assert_ok(brim_config_open(file, NULL, 0, &config));
  assert_ok(brim_lab_grid_expand(config, NULL, &grid));
  brim_config_close(config);
  assert_ok(brim_fs_write(base, after, strlen(after)));
  for (size_t i = 0; i < 2; i++) {
    config = load(grid.points[i].config);
    assert_int_equal(brim_config_int(config, "data.batch_size"), 64);
    brim_config_close(config);
  }
  brim_lab_grid_free(&grid);
}

//---------------------------------- the caller's part ----------------------------------

static brim_status describe(void *ctx, const brim_config *point, brim_lab_point *out) {
  *(int *)ctx += 1;
  out->metric_key = "eval_accuracy";
  out->epochs = brim_config_int(point, "training.epochs");
  return out->epochs == 13 ? brim_fail(BRIM_EINVAL, "unlucky") : BRIM_OK;
}

static void the_caller_describes_points(void **state) {
  (void)state;
  int calls = 0;
  const brim_lab_grid_options options = {.name = "from-file", .describe = describe, .ctx = &calls};
  brim_config *config = load("epochs: [3, 4]\n");
  brim_lab_grid grid;
  assert_ok(brim_lab_grid_expand(config, &options, &grid));
  assert_int_equal(calls, 2);
  assert_string_equal(grid.name, "from-file");
  assert_string_equal(grid.points[1].metric_key, "eval_accuracy");
  assert_int_equal(grid.points[1].epochs, 4);
  brim_lab_grid_free(&grid);
  brim_config_close(config);
  config = load("epochs: [3, 13]\n");
  assert_status(brim_lab_grid_expand(config, &options, &grid), BRIM_EINVAL);
  brim_lab_grid_free(&grid);
  brim_lab_grid_free(&grid);  // zeros
  brim_config_close(config);
}

// Ctrl-C while a large grid is expanded.
static brim_status stop_at_three(void *ctx, const brim_config *point, brim_lab_point *out) {
  (void)point;
  out->metric_key = "";
  *(volatile sig_atomic_t *)ctx = out->idx == 3;
  return BRIM_OK;
}

static void expanding_may_be_interrupted(void **state) {
  (void)state;
  volatile sig_atomic_t stop = 0;
  const brim_lab_grid_options options = {
      .describe = stop_at_three, .ctx = (void *)&stop, .stop = &stop};
  brim_config *config = load("seeds: 1000\n");
  brim_lab_grid grid;
  assert_status(brim_lab_grid_expand(config, &options, &grid), BRIM_EINTERRUPTED);
  assert_int_equal(grid.count, 4);
  brim_lab_grid_free(&grid);
  brim_config_close(config);
}

static void memory_may_run_out(void **state) {
  (void)state;
  brim_config *config = load("lr: [0.1, 0.2]\ntags: [a, b]\nstore: x\nbatch_size: [1, 1]\n");
  brim_status status = BRIM_ENOMEM;
  int failures = 0;
  for (uint64_t n = 1; status; n++) {
    brim_lab_grid grid;
    brim_alloc_fail_nth(n, 0);
    status = brim_lab_grid_expand(config, NULL, &grid);
    brim_alloc_fail_nth(0, 0);
    if (status) assert_int_equal(status, BRIM_ENOMEM);
    failures += status != BRIM_OK;
    brim_lab_grid_free(&grid);
  }
  assert_true(failures > 20);
  brim_config_close(config);
}

// Ten thousand points enter a store once, however often they are submitted.
static void many_points(void **state) {
  (void)state;
  brim_lab_grid grid = expand(
      "samples: 1000\nlr: loguniform(1e-6, 1)\nweight_decay: uniform(0, 1)\nseeds: 10\n"
      "model: mlp(depth=3, hidden=64)\ndataset: synthetic(classes=7)\n");
  assert_int_equal(grid.count + grid.duplicates, 10000);
  assert_true(grid.count >= 9990);
  brim_store_point *points = brim_calloc(grid.count, sizeof *points);
  size_t bytes = 0;
  for (size_t i = 0; i < grid.count; i++) {
    const brim_lab_point *p = &grid.points[i];
    points[i] =
        (brim_store_point){.id = p->id, .idx = p->idx, .label = p->label, .config = p->config};
    bytes += strlen(p->config) + strlen(p->label) + sizeof *p;
  }
  assert_true(bytes < 20u << 20);
  char folder[] = "lab-grid-XXXXXX";
  brim_store *store;
  assert_non_null(mkdtemp(folder));
  assert_ok(brim_store_open(folder, NULL, &store));
  brim_store_submitted submitted;
  const brim_store_grid row = {.id = grid.id, .name = grid.name};
  assert_ok(brim_store_submit(store, &row, points, grid.count, &submitted));
  assert_int_equal(submitted.added, grid.count);
  assert_ok(brim_store_submit(store, &row, points, grid.count, &submitted));
  assert_int_equal(submitted.added, 0);
  brim_store_close(store);
  brim_free(points);
  brim_lab_grid_free(&grid);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(three_by_two_on_four_devices_are_six),
      cmocka_unit_test(numbers_are_numbers),
      cmocka_unit_test(placeholders_are_filled_in),
      cmocka_unit_test(a_stored_config_is_its_experiment),
      cmocka_unit_test(the_same_grid_has_the_same_ids),
      cmocka_unit_test(duplicates_collapse),
      cmocka_unit_test(a_later_edit_changes_nothing),
      cmocka_unit_test(the_caller_describes_points),
      cmocka_unit_test(expanding_may_be_interrupted),
      cmocka_unit_test(memory_may_run_out),
      cmocka_unit_test(many_points),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
