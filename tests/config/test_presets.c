// Presets: the guides' values, `auto` by facts, and their place below everything written.
#include "config_test.h"

typedef struct row {
  const char *preset, *size;
  const char *batch, *workers, *accumulation, *lr, *fraction, *level;
} row;

// Values that the guides state.
static const row rows[] = {
    {"a100-80g", "small", "4096", "12", "1", "0.0003", "0.95", "3"},
    {"a100-80g", "medium", "1024", "12", "1", "0.0002", "0.95", "3"},
    {"a100-80g", "large", "256", "8", "4", "0.00015", "0.95", "3"},
    {"a100-40g", "small", "2048", "8", "1", NULL, "0.95", "3"},
    {"a100-40g", "medium", "512", "8", "2", NULL, "0.95", "3"},
    {"rtx3090-24g", "small", "1024", "6", "1", NULL, NULL, NULL},
    {"rtx3090-24g", "medium", "256", "4", "4", NULL, NULL, NULL},
    {"rtx4090-24g", "small", "1024", "6", "1", NULL, NULL, NULL},
    {"rtx4090-24g", "medium", "256", "4", "4", NULL, NULL, NULL},
    {"rtx3060-12g", "medium", "128", "6", "4", NULL, "0.85", "2"},
    {"rtx3060-laptop-6g", "small", "256", NULL, NULL, NULL, "0.85", "2"},
};

static brim_config *with_preset(const char *preset, const char *size,
                                const brim_config_facts *facts) {
  char text[96];
  snprintf(text, sizeof text, "preset: %s\nmodel_size: %s\n", preset, size);
  brim_config_options options = {.text = text, .text_name = "t.yaml", .facts = facts};
  brim_config *config;
  assert_ok(brim_config_load(&options, &config));
  return config;
}

static void optional(const brim_config *config, const char *key, const char *text) {
  if (text) assert_key(config, key, text);
}

static void the_guides_values(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const row *r = &rows[i];
    brim_config *config = with_preset(r->preset, r->size, NULL);
    optional(config, "batch_size", r->batch);
    optional(config, "num_workers", r->workers);
    optional(config, "gradient_accumulation_steps", r->accumulation);
    optional(config, "lr", r->lr);
    optional(config, "gpu.memory_fraction", r->fraction);
    optional(config, "gpu.autotune_level", r->level);
    assert_key(config, "use_amp", "true");
    assert_key(config, "pin_memory", "true");
    char origin[64];
    snprintf(origin, sizeof origin, "preset %s", r->preset);
    assert_string_equal(brim_config_origin(config, "batch_size"), origin);
    assert_string_equal(brim_config_origin(config, "epochs"), "default");
    assert_true(brim_config_is_set(config, "batch_size"));
    brim_config_close(config);
  }
}

static void ars_values(void **state) {
  (void)state;
  brim_config *config = with_preset("a100-80g", "small", NULL);
  assert_key(config, "num_envs", "1024");
  assert_key(config, "num_dirs", "64");
  assert_key(config, "dir_chunk", "64");
  brim_config_close(config);
  config = with_preset("rtx3060-laptop-6g", "small", NULL);
  assert_key(config, "num_envs", "256");
  assert_key(config, "num_dirs", "32");
  assert_key(config, "dir_chunk", "16");
  brim_config_close(config);
}

static void every_preset_and_size_loads(void **state) {
  (void)state;
  static const char *const sizes[] = {"small", "medium", "large"};
  const brim_config_key *key = brim_config_key_find("preset");
  for (const char *const *p = key->choices; *p; p++) {
    int64_t last = INT64_MAX;
    for (size_t s = 0; s < 3; s++) {
      brim_config *config = with_preset(*p, sizes[s], NULL);
      int64_t batch = brim_config_int(config, "data.batch_size");
      assert_true(batch < last);  // larger models, smaller batches
      last = batch;
      brim_config_close(config);
    }
  }
}

static void auto_takes_facts(void **state) {
  (void)state;
  static const struct {
    brim_config_facts facts;
    const char *taken;
    const char *batch;
  } cases[] = {
      {{"NVIDIA A100-SXM4-80GB", 85000000000, 64}, "preset auto (a100-80g)", "1024"},
      {{"NVIDIA A100-PCIE-40GB", 42000000000, 64}, "preset auto (a100-40g)", "512"},
      {{"NVIDIA H200", 150000000000, 64}, "preset auto (h200)", "2048"},
      {{"NVIDIA GeForce RTX 3090", 25400000000, 16}, "preset auto (rtx3090-24g)", "256"},
      {{"NVIDIA GeForce RTX 4090", 25400000000, 16}, "preset auto (rtx4090-24g)", "256"},
      {{"NVIDIA GeForce RTX 3060", 12800000000, 16}, "preset auto (rtx3060-12g)", "128"},
      {{"NVIDIA GeForce RTX 3060 Laptop GPU", 6400000000, 16},
       "preset auto (rtx3060-laptop-6g)",
       "64"},
      {{"NVIDIA H100", 85000000000, 64}, "preset auto (a100-80g)", "1024"},
      {{"Some GPU", 4000000000, 4}, "preset auto (rtx3060-laptop-6g)", "64"},
      {{NULL, 0, 16}, "preset auto (cpu)", "64"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    brim_config *config = with_preset("auto", "medium", &cases[i].facts);
    assert_string_equal(brim_config_origin(config, "batch_size"), cases[i].taken);
    assert_key(config, "batch_size", cases[i].batch);
    brim_config_close(config);
  }
  brim_config_facts none = {NULL, 0, 16};
  brim_config *config = with_preset("auto", "medium", &none);
  assert_key(config, "num_workers", "4");
  assert_key(config, "use_amp", "false");
  assert_key(config, "pin_memory", "false");
  brim_config_close(config);
  config = with_preset("auto", "medium", NULL);
  assert_string_equal(brim_config_origin(config, "batch_size"), "preset auto (cpu)");
  brim_config_close(config);
}

static void what_is_written_wins(void **state) {
  (void)state;
  const char *overrides[] = {"num_workers=1"};
  brim_config_options options = {.text = "batch_size: 5\nnum_workers: 2\ngpu: {preset: h200}\n",
                                 .overrides = overrides,
                                 .override_count = 1};
  brim_config *config;
  assert_ok(brim_config_load(&options, &config));
  assert_key(config, "batch_size", "5");
  assert_key(config, "num_workers", "1");
  assert_key(config, "lr", "0.00028");
  brim_config_close(config);
}

// A preset on the command line is an override: above the file, below the other overrides.
static void on_the_command_line_it_wins(void **state) {
  (void)state;
  const char *overrides[] = {"num_workers=1", "preset=h200"};
  brim_config_options options = {
      .text =
          "preset: rtx3060-12g\nbatch_size: 5\nnum_workers: 2\noptimizer: adamw(lr=0.5)\n"
          "epochs: 3\n",
      .text_name = "t.yaml",
      .overrides = overrides,
      .override_count = 2};
  brim_config *config;
  assert_ok(brim_config_load(&options, &config));
  assert_key(config, "batch_size", "2048");
  assert_string_equal(brim_config_origin(config, "batch_size"), "preset h200");
  assert_key(config, "num_workers", "1");
  assert_key(config, "epochs", "3");
  assert_int_equal(brim_config_warning_count(config), 1);
  assert_string_equal(brim_config_warning(config, 0),
                      "preset h200, given on the command line, replaces what the file sets: "
                      "data.batch_size");
  // The resolved config, written to a file, resolves to the same values.
  brim_str text;
  brim_str_init(&text);
  assert_ok(brim_config_to_yaml(config, false, &text));
  brim_config *again = must_load(BRIM_CONFIG_RUN, text.data);
  assert_key(again, "batch_size", "2048");
  assert_key(again, "num_workers", "1");
  brim_str_deinit(&text);
  brim_config_close(again);
  brim_config_close(config);
}

// The preset's rate is for Adam: another optimizer keeps the file's rate.
static void on_the_command_line_rates(void **state) {
  (void)state;
  static const struct {
    const char *text, *rate;
  } cases[] = {
      {"optimizer: adamw\nlr: 0.5\n", "0.00028"},
      {"optimizer: {_type: adam}\nlr: 0.5\n", "0.00028"},
      {"optimizer: sgd\nlr: 0.5\n", "0.5"},
      {"optimizer: sgd(lr=0.5)\n", "0.5"},
      {"optimizer: sgd\n", "0.1"},
  };
  const char *overrides[] = {"preset=h200"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    brim_config_options options = {
        .text = cases[i].text, .text_name = "t.yaml", .overrides = overrides, .override_count = 1};
    brim_config *config;
    assert_ok(brim_config_load(&options, &config));
    assert_key(config, "lr", cases[i].rate);
    brim_config_close(config);
  }
}

// The presets' learning rates are tuned for Adam.
static void sgd_keeps_its_own_rate(void **state) {
  (void)state;
  brim_config *config = must_load(BRIM_CONFIG_RUN, "preset: a100-80g\noptimizer: sgd\n");
  assert_key(config, "lr", "0.1");
  brim_config_close(config);
  config = must_load(BRIM_CONFIG_RUN, "preset: a100-80g\noptimizer: adam\n");
  assert_key(config, "lr", "0.0002");
  assert_true(brim_component_float(brim_config_component(config, "optimizer", NULL), "lr", 0) ==
              0.0002);
  brim_config_close(config);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_guides_values),           cmocka_unit_test(ars_values),
      cmocka_unit_test(every_preset_and_size_loads), cmocka_unit_test(auto_takes_facts),
      cmocka_unit_test(what_is_written_wins),        cmocka_unit_test(on_the_command_line_it_wins),
      cmocka_unit_test(on_the_command_line_rates),   cmocka_unit_test(sgd_keeps_its_own_rate),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
