// Axes written as functions: their values, draws that depend only on grid_seed, key and number, seeds, and refusals.
#include <math.h>

#include "base/base.h"
#include "config_test.h"

#define FIRST_DRAW 1.31163e-05
#define LAST_DRAW 0.0236773

static void assert_labels(const char *text, const char *const *labels) {
  brim_config *config = must_load(BRIM_CONFIG_RUN, text);
  size_t count = 0;
  while (labels[count]) count++;
  if (brim_config_grid_count(config) != count) {
    fail_msg("%zu points, expected %zu:\n%s", brim_config_grid_count(config), count, text);
  }
  for (size_t i = 0; i < count; i++) {
    brim_str label;
    brim_str_init(&label);
    assert_ok(brim_config_grid_label(config, i, &label));
    assert_string_equal(label.data, labels[i]);
    brim_str_deinit(&label);
  }
  brim_config_close(config);
}

static void spaced_values(void **state) {
  (void)state;
  assert_labels("lr: logspace(1e-4, 1e-1, 4)\n",
                WORDS("lr=0.0001", "lr=0.001", "lr=0.01", "lr=0.1"));
  assert_labels("lr: linspace(0.1, 0.3, 3)\n", WORDS("lr=0.1", "lr=0.2", "lr=0.3"));
  assert_labels("lr: linspace(0.5, 7, 1)\n", WORDS("lr=0.5"));
  assert_labels("epochs: range(1, 4)\n", WORDS("epochs=1", "epochs=2", "epochs=3"));
  assert_labels("lr: range(0, 0.3, 0.1)\n", WORDS("lr=0", "lr=0.1", "lr=0.2"));
  assert_labels("epochs: range(6, 0, -3)\n", WORDS("epochs=6", "epochs=3"));
  // A key of whole numbers gets whole numbers.
  assert_labels("batch_size: logspace(16, 1024, 4)\n",
                WORDS("batch_size=16", "batch_size=64", "batch_size=256", "batch_size=1024"));
  assert_labels("batch_size: linspace(1, 2, 3)\n",
                WORDS("batch_size=1", "batch_size=2", "batch_size=2"));
}

static void beside_lists_and_components(void **state) {
  (void)state;
  assert_labels("seed: [7, 8]\nmodel: {_type: mlp, depth: \"range(1, 3)\"}\n",
                WORDS("seed=7 model.depth=1", "seed=7 model.depth=2", "seed=8 model.depth=1",
                      "seed=8 model.depth=2"));
  assert_labels("lr: linspace(0.1, 0.3, 3)\nbatch_size: [1, 2, 3]\nzip: [lr, batch_size]\n",
                WORDS("lr=0.1 batch_size=1", "lr=0.2 batch_size=2", "lr=0.3 batch_size=3"));
  assert_labels("lr: linspace(0.1, 0.3, 3)\nexclude: [{lr: 0.2}]\n", WORDS("lr=0.1", "lr=0.3"));
  // A quoted text stays a text, and the value of an override is read the same way.
  brim_config *config = must_load(BRIM_CONFIG_RUN, "data.path: \"range(1, 3)\"\n");
  assert_int_equal(brim_config_grid_count(config), 1);
  assert_string_equal(brim_config_string(config, "data.path"), "range(1, 3)");
  brim_config_close(config);
  const char *const overrides[] = {"lr=logspace(1, 100, 3)"};
  brim_config_options options = {
      .text = "lr: [1, 2]\n", .overrides = overrides, .override_count = 1};
  assert_ok(brim_config_load(&options, &config));
  assert_int_equal(brim_config_grid_count(config), 3);
  brim_config_close(config);
}

static double value_at(const char *text, size_t index, const char *key) {
  brim_config *config = must_load(BRIM_CONFIG_RUN, text), *point;
  double value;
  assert_ok(brim_config_grid_point(config, index, &point));
  assert_ok(brim_config_get_float(point, key, &value));
  brim_config_close(point);
  brim_config_close(config);
  return value;
}

static void draws_lie_within_bounds(void **state) {
  (void)state;
  brim_config *config =
      must_load(BRIM_CONFIG_RUN,
                "samples: 400\nlr: loguniform(1e-5, 1e-1)\nweight_decay: uniform(0.25, 0.5)\n"
                "batch_size: randint(3, 6)\noptimizer: choice(sgd, adamw, \"adam(beta1=0.5)\")\n");
  assert_int_equal(brim_config_grid_count(config), 400);  // draws are not combined with each other
  size_t low = 0, sizes[7] = {0}, adam = 0;
  double sum = 0;
  for (size_t i = 0; i < 400; i++) {
    brim_config *point;
    assert_ok(brim_config_grid_point(config, i, &point));
    const double lr = brim_config_float(point, "training.learning_rate");
    const double decay = brim_config_float(point, "training.weight_decay");
    const int64_t size = brim_config_int(point, "data.batch_size");
    assert_true(lr >= 1e-5 && lr <= 1e-1 && decay >= 0.25 && decay <= 0.5);
    assert_true(size >= 3 && size <= 6);
    low += lr < 1e-3;
    sum += decay;
    sizes[size]++;
    adam += !strcmp(brim_config_component(point, "optimizer", NULL)->name, "adam");
    brim_config_close(point);
  }
  brim_config_close(config);
  assert_in_range(low, 150, 250);  // half of the decades
  assert_true(fabs(sum / 400 - 0.375) < 0.02);
  for (int i = 3; i <= 6; i++) assert_in_range(sizes[i], 60, 140);
  assert_in_range(adam, 90, 180);
}

static void a_draw_depends_on_little(void **state) {
  (void)state;
  static const char alone[] = "samples: 8\nlr: loguniform(1e-5, 1e-1)\n";
  for (size_t i = 0; i < 8; i++) {
    const double lr = value_at(alone, i, "lr");
    // More samples, another spelling, and other keys do not change a draw.
    assert_true(lr ==
                value_at("samples: 20\ntraining: {lr: \"loguniform(1e-5, 1e-1)\"}\n", i, "lr"));
    assert_true(lr == value_at("weight_decay: uniform(0, 1)\nsamples: 8\n"
                               "lr: loguniform(1e-5, 1e-1)\n",
                               i, "lr"));
    // The draws are the same for every value of another axis.
    assert_true(lr ==
                value_at("seed: [1, 2]\nsamples: 8\nlr: loguniform(1e-5, 1e-1)\n", i + 8, "lr"));
    assert_true(lr != value_at("grid_seed: 1\nsamples: 8\nlr: loguniform(1e-5, 1e-1)\n", i, "lr"));
    // Two keys with the same range have different values.
    static const char two[] = "samples: 8\nlr: uniform(0, 1)\nweight_decay: uniform(0, 1)\n";
    assert_true(value_at(two, i, "lr") != value_at(two, i, "weight_decay"));
  }
  // Draws are the same on every machine and in every version, because ids depend on them.
  assert_true(value_at(alone, 0, "lr") == FIRST_DRAW);
  assert_true(value_at(alone, 7, "lr") == LAST_DRAW);
  assert_true(value_at("samples: 1\nlr: uniform(1000000, 1000001)\n", 0, "lr") != 1000000);
}

static void seeds_repeat_every_point(void **state) {
  (void)state;
  assert_labels("lr: [0.1, 0.2]\nseeds: 2\n",
                WORDS("lr=0.1 seed=0", "lr=0.1 seed=1", "lr=0.2 seed=0", "lr=0.2 seed=1"));
  // Seeds vary fastest wherever they are written, and count from the config's own seed.
  assert_labels("seeds: 2\nseed: 40\nlr: [0.1, 0.2]\n",
                WORDS("lr=0.1 seed=40", "lr=0.1 seed=41", "lr=0.2 seed=40", "lr=0.2 seed=41"));
  assert_labels("seeds: 1\nlr: [0.1, 0.2]\n", WORDS("lr=0.1", "lr=0.2"));
  const char *const overrides[] = {"seeds=3"};
  brim_config_options options = {.text = "seed: 5\n", .overrides = overrides, .override_count = 1};
  brim_config *config;
  assert_ok(brim_config_load(&options, &config));
  assert_int_equal(brim_config_grid_count(config), 3);
  assert_int_equal(brim_config_int(config, "seed"), 5);
  brim_config_close(config);
  assert_refused(BRIM_CONFIG_RUN, "seed: [1, 2]\nseeds: 2\n", BRIM_EINVAL,
                 WORDS("t.yaml:1:1", "seeds"));
  assert_refused(BRIM_CONFIG_RUN, "seed: range(1, 3)\nseeds: 2\n", BRIM_EINVAL,
                 WORDS("t.yaml:1:1"));
  assert_refused(BRIM_CONFIG_RUN, "seeds: 0\n", BRIM_EINVAL, WORDS("t.yaml:1:8"));
}

// The grid keys of a config never vary themselves.
static void grid_keys_are_no_axes(void **state) {
  (void)state;
  static const char *const keys[] = {"seeds",    "samples", "grid_seed", "per_gpu", "retries",
                                     "priority", "gpus",    "store",     "name",    "output_dir"};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    char text[64];
    snprintf(text, sizeof text, "%s: [1, 2]\n", keys[i]);
    assert_refused(BRIM_CONFIG_RUN, text, BRIM_EINVAL, WORDS("t.yaml:1:"));
  }
  brim_config *config = must_load(BRIM_CONFIG_RUN, "per_gpu: auto\n");
  assert_int_equal(brim_config_int(config, "per_gpu"), 0);
  brim_config_close(config);
  config = must_load(BRIM_CONFIG_RUN, "");
  assert_int_equal(brim_config_int(config, "per_gpu"), 1);
  assert_int_equal(brim_config_int(config, "retries"), 2);
  brim_config_close(config);
}

static void what_is_refused(void **state) {
  (void)state;
  static const struct {
    const char *text;
    brim_status status;
    const char *word;
  } cases[] = {
      {"lr: linspace(1, 2)\n", BRIM_EINVAL, "linspace(first, last, count)"},
      {"lr: linspace(1, 2, 3, 4)\n", BRIM_EINVAL, "linspace(first, last, count)"},
      {"lr: linspace(1, x, 3)\n", BRIM_EINVAL, "linspace(first, last, count)"},
      {"lr: linspace(1, , 3)\n", BRIM_EINVAL, "linspace(first, last, count)"},
      {"lr: linspace(1, .inf, 3)\n", BRIM_EINVAL, "linspace(first, last, count)"},
      {"lr: linspace(1, 2, 0)\n", BRIM_EINVAL, "linspace(first, last, count)"},
      {"lr: linspace(1, 2, 2.5)\n", BRIM_EINVAL, "linspace(first, last, count)"},
      {"lr: linspace()\n", BRIM_EINVAL, "linspace(first, last, count)"},
      {"lr: linspace(1, 2, 1e9)\n", BRIM_ELIMIT, "100000"},
      {"lr: logspace(0, 2, 3)\n", BRIM_EINVAL, "above 0"},
      {"lr: range(1, 1)\n", BRIM_EINVAL, "no values"},
      {"lr: range(1, 2, 0)\n", BRIM_EINVAL, "no values"},
      {"lr: range(1, 2, -1)\n", BRIM_EINVAL, "no values"},
      {"lr: uniform(0, 1)\n", BRIM_EINVAL, "samples"},
      {"samples: 3\nlr: uniform(1, 0)\n", BRIM_EINVAL, "lower"},
      {"samples: 3\nlr: loguniform(-1, 1)\n", BRIM_EINVAL, "above 0"},
      {"samples: 3\nbatch_size: uniform(1, 9)\n", BRIM_EINVAL, "randint"},
      {"samples: 3\nbatch_size: randint(1, 2.5)\n", BRIM_EINVAL, "whole numbers"},
      {"samples: 3\nlr: choice()\n", BRIM_EINVAL, "choice(a, b, ...)"},
      {"samples: 3\nlr: choice(fast, slow)\n", BRIM_EINVAL, "t.yaml:2:"},
      {"samples: 3\nlr: uniform(0, 1)\nseed: [1, 2, 3]\nzip: [lr, seed]\n", BRIM_EINVAL, "zip"},
      {"batch_size: range(0, 3)\n", BRIM_EINVAL, "t.yaml:1:"},
      {"lr: linspace(1, 2, 400)\nwd: 1\nweight_decay: linspace(0, 1, 400)\n", BRIM_EINVAL, "wd"},
      {"lr: linspace(1, 2, 400)\nweight_decay: linspace(0, 1, 400)\n", BRIM_ELIMIT, "points"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    assert_refused(BRIM_CONFIG_RUN, cases[i].text, cases[i].status, WORDS(cases[i].word));
  }
  brim_config *config = must_load(BRIM_CONFIG_RUN, "samples: 3\nlr: 0.1\n");
  assert_int_equal(brim_config_warning_count(config), 1);
  assert_non_null(strstr(brim_config_warning(config, 0), "samples"));
  brim_config_close(config);
}

// A grid that was printed loads back as the same grid.
static void a_printed_grid_loads_back(void **state) {
  (void)state;
  static const char *const texts[] = {
      "lr: logspace(1e-4, 1e-1, 4)\nseeds: 3\nseed: 4\n",
      "samples: 5\ngrid_seed: 3\nlr: loguniform(1e-4, 1)\nmodel: choice(mlp, mlp(depth=3))\n",
      "samples: 2\nmodel: {_type: mlp, depth: \"randint(1, 9)\"}\nseeds: 2\n",
  };
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    brim_config *config = must_load(BRIM_CONFIG_RUN, texts[i]);
    brim_str yaml, a, b;
    brim_str_init(&yaml);
    assert_ok(brim_config_to_yaml(config, i == 1, &yaml));
    brim_config *again = must_load(BRIM_CONFIG_RUN, yaml.data);
    assert_int_equal(brim_config_grid_count(again), brim_config_grid_count(config));
    for (size_t n = 0; n < brim_config_grid_count(config); n++) {
      brim_str_init(&a);
      brim_str_init(&b);
      assert_ok(brim_config_grid_label(config, n, &a));
      assert_ok(brim_config_grid_label(again, n, &b));
      // keys are printed by their canonical names
      assert_string_equal(strchr(a.data, '='), strchr(b.data, '='));
      brim_str_deinit(&a);
      brim_str_deinit(&b);
      // and a point of it has no grid
      brim_config *point;
      assert_ok(brim_config_grid_point(config, n, &point));
      brim_str_init(&a);
      assert_ok(brim_config_to_yaml(point, false, &a));
      brim_config *single = must_load(BRIM_CONFIG_RUN, a.data);
      assert_int_equal(brim_config_grid_count(single), 1);
      assert_int_equal(brim_config_int(single, "seed"), brim_config_int(point, "seed"));
      brim_str_deinit(&a);
      brim_config_close(single);
      brim_config_close(point);
    }
    brim_str_deinit(&yaml);
    brim_config_close(again);
    brim_config_close(config);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(spaced_values),
      cmocka_unit_test(beside_lists_and_components),
      cmocka_unit_test(draws_lie_within_bounds),
      cmocka_unit_test(a_draw_depends_on_little),
      cmocka_unit_test(seeds_repeat_every_point),
      cmocka_unit_test(grid_keys_are_no_axes),
      cmocka_unit_test(what_is_refused),
      cmocka_unit_test(a_printed_grid_loads_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
