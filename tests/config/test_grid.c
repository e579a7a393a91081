// Grids: the difference between an axis and a value, the order of points, zip, exclude, labels, and that a point
// outlives its grid.
#include "base/base.h"
#include "config_test.h"

static void assert_label(const brim_config *config, size_t index, const char *expected) {
  brim_str label;
  brim_str_init(&label);
  assert_ok(brim_config_grid_label(config, index, &label));
  assert_string_equal(label.data, expected);
  brim_str_deinit(&label);
}

static void last_key_is_fastest(void **state) {
  (void)state;
  brim_config *config =
      must_load(BRIM_CONFIG_RUN, "batch_size: [64, 128]\nseed: [0, 1, 2]\nlr: [1e-3, 0.01]\n");
  assert_int_equal(brim_config_grid_count(config), 12);
  assert_label(config, 0, "batch_size=64 seed=0 lr=0.001");
  assert_label(config, 1, "batch_size=64 seed=0 lr=0.01");
  assert_label(config, 2, "batch_size=64 seed=1 lr=0.001");
  assert_label(config, 11, "batch_size=128 seed=2 lr=0.01");
  brim_config *point;
  assert_status(brim_config_grid_point(config, 12, &point), BRIM_EINVAL);
  assert_ok(brim_config_grid_point(config, 9, &point));
  brim_config_close(config);  // the point does not need the grid
  assert_key(point, "batch_size", "128");
  assert_key(point, "seed", "1");
  assert_key(point, "lr", "0.01");
  assert_true(brim_component_float(brim_config_component(point, "optimizer", NULL), "lr", 0) ==
              0.01);
  assert_int_equal(brim_config_grid_count(point), 1);
  assert_int_equal(brim_config_axis_count(point), 0);
  assert_string_equal(brim_config_origin(point, "lr"), "t.yaml:3:1");
  brim_config_close(point);
}

static void what_is_an_axis(void **state) {
  (void)state;
  static const struct {
    const char *text;
    size_t points;
  } cases[] = {
      {"batch_size: [64]\n", 1},
      {"device: [0, 1, 2]\n", 1},
      {"tags: [a, b]\n", 1},
      {"benchmark: {batch_sizes: [1, 2, 3]}\n", 1},
      {"benchmark: {batch_sizes: [[1, 2], [3]]}\n", 2},
      {"benchmark: {batch_sizes: \"[1, 2]\"}\n", 1},
      {"benchmark: {batch_sizes: !list [1, 2]}\n", 1},
      {"data.path: \"[64, 128]\"\n", 1},
      {"model: [mlp, linear, resnet18]\n", 3},
      {"model: {_type: [mlp, resmlp], depth: [2, 4, 8]}\n", 6},
      {"dataset: {_type: synthetic, shape: [1, 4, 4]}\n", 1},
      {"dataset: {_type: synthetic, shape: [[1, 4, 4], [1, 8, 8]]}\n", 2},
      {"transform: {train: [\"resize(size=4)\", pad], val: [pad, cutout]}\n", 4},
      {"preset: [a100-80g, h200]\nmodel_size: [small, large]\n", 4},
      {"model: plugin:x\nmodel.sizes: [1, 2]\n", 1},
      {"precision: [fp32, bf16]\npin_memory: [yes, no]\n", 4},
      {"optimizer: adam\noptimizer.lr: [0.1, 0.2]\n", 2},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    brim_config *config = must_load(BRIM_CONFIG_RUN, cases[i].text);
    size_t got = brim_config_grid_count(config);
    if (got != cases[i].points)
      fail_msg("%zu points, expected %zu: %s", got, cases[i].points, cases[i].text);
    brim_config_close(config);
  }
  brim_config *config = must_load(BRIM_CONFIG_RUN, "data.path: \"[64, 128]\"\n");
  assert_string_equal(brim_config_string(config, "data.path"), "[64, 128]");
  brim_config_close(config);
}

static void points_differ_in_everything_that_follows(void **state) {
  (void)state;
  brim_config *config = must_load(BRIM_CONFIG_RUN,
                                  "preset: [a100-80g, h200]\nmodel: {_type: mlp, depth: [2, 4]}\n"
                                  "name: \"run-{{seed}}-{{preset}}\"\nseed: 5\n");
  static const char *const batch[] = {"1024", "1024", "2048", "2048"};
  assert_int_equal(brim_config_grid_count(config), 4);
  assert_string_equal(brim_config_axis_at(config, 1).key, "model.depth");
  for (size_t i = 0; i < 4; i++) {
    brim_config *point;
    assert_ok(brim_config_grid_point(config, i, &point));
    assert_key(point, "batch_size", batch[i]);
    assert_key(point, "name", i < 2 ? "run-5-a100-80g" : "run-5-h200");
    assert_int_equal(brim_component_int(brim_config_component(point, "model", NULL), "depth", 0),
                     i % 2 ? 4 : 2);
    brim_config_close(point);
  }
  brim_config_close(config);
}

static void zip_moves_axes_together(void **state) {
  (void)state;
  brim_config *config = must_load(BRIM_CONFIG_RUN,
                                  "lr: [0.1, 0.2, 0.3]\nseed: [7, 8]\nbatch_size: [1, 2, 3]\n"
                                  "zip: [batch_size, lr]\n");
  assert_int_equal(brim_config_grid_count(config), 6);
  assert_label(config, 0, "lr=0.1 seed=7 batch_size=1");
  assert_label(config, 1, "lr=0.1 seed=8 batch_size=1");
  assert_label(config, 2, "lr=0.2 seed=7 batch_size=2");
  brim_config_close(config);
  config = must_load(BRIM_CONFIG_RUN,
                     "lr: [0.1, 0.2]\nseed: [7, 8]\nbatch_size: [1, 2]\nepochs: [3, 4]\n"
                     "zip: [[lr, seed], [training.epochs, data.batch_size]]\n");
  assert_int_equal(brim_config_grid_count(config), 4);
  assert_label(config, 3, "lr=0.2 seed=8 batch_size=2 epochs=4");
  brim_config_close(config);
  assert_refused(BRIM_CONFIG_RUN,
                 "lr: [1, 2]\nseed: [1, 2]\nepochs: [1, 2]\nzip: [[lr, seed], [lr, epochs]]\n",
                 BRIM_EINVAL, WORDS("t.yaml:4:20", "twice"));
  assert_refused(BRIM_CONFIG_RUN, "lr: [1, 2]\nseed: [1, 2, 3]\nzip: [lr, seed]\n", BRIM_EINVAL,
                 WORDS("t.yaml:3:11", "3", "2"));
  assert_refused(BRIM_CONFIG_RUN, "lr: [1, 2, 3]\nseed: [1, 2]\nzip: [[lr, seed]]\n", BRIM_EINVAL,
                 WORDS("t.yaml:3:12"));
}

static void exclude_drops_points(void **state) {
  (void)state;
  brim_config *config = must_load(BRIM_CONFIG_RUN,
                                  "lr: [0.1, 0.01]\nbatch_size: [64, 128, 256]\n"
                                  "exclude:\n  - {lr: 1e-1, batch_size: 0x40}\n"
                                  "  - learning_rate: 0.01\n    data.batch_size: [128, 256]\n");
  assert_int_equal(brim_config_grid_count(config), 3);
  assert_label(config, 0, "lr=0.1 batch_size=128");
  assert_label(config, 1, "lr=0.1 batch_size=256");
  assert_label(config, 2, "lr=0.01 batch_size=64");
  brim_config *point;
  assert_ok(brim_config_grid_point(config, 2, &point));
  assert_key(point, "batch_size", "64");
  brim_config_close(point);
  brim_config_close(config);
  // A key that does not vary is compared with its own value.
  config =
      must_load(BRIM_CONFIG_RUN,
                "lr: [0.1, 0.01]\nseed: 3\nexclude: [{lr: 0.1, seed: 4}, {lr: 0.1, seed: 3}]\n");
  assert_int_equal(brim_config_grid_count(config), 1);
  brim_config_close(config);
  config = must_load(BRIM_CONFIG_RUN,
                     "model: [mlp, \"mlp(depth=4, hidden=512)\", mlp(depth=2)]\nseed: [1, 2]\n"
                     "exclude: [{model: mlp, seed: 1}]\n");
  assert_int_equal(brim_config_grid_count(config), 4);  // both spellings are the same mlp
  brim_config_close(config);
  config = must_load(BRIM_CONFIG_RUN,
                     "model: {_type: mlp, depth: [1, 2]}\nexclude: [{model.depth: 2}]\n");
  assert_int_equal(brim_config_grid_count(config), 1);
  brim_config_close(config);
}

static void a_bad_item_is_found_at_once(void **state) {
  (void)state;
  assert_refused(BRIM_CONFIG_RUN, "lr: [0.1, 0.2, fast]\n", BRIM_EINVAL, WORDS("t.yaml:1:16"));
  assert_refused(BRIM_CONFIG_RUN, "model: [mlp, mpl]\n", BRIM_EINVAL, WORDS("t.yaml:1:14", "mlp"));
  assert_refused(BRIM_CONFIG_RUN, "model: {_type: mlp, depth: [1, x]}\n", BRIM_EINVAL,
                 WORDS("t.yaml:1:32", "expects int"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(last_key_is_fastest),
      cmocka_unit_test(what_is_an_axis),
      cmocka_unit_test(points_differ_in_everything_that_follows),
      cmocka_unit_test(zip_moves_axes_together),
      cmocka_unit_test(exclude_drops_points),
      cmocka_unit_test(a_bad_item_is_found_at_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
