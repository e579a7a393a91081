// Layers: overrides over file over includes; placeholders; origins; and the errors of each.
#include <unistd.h>

#include "base/base.h"
#include "config_test.h"

static brim_status load_with(const char *text, const char *override, brim_config **out) {
  brim_config_options options = {
      .text = text, .text_name = "t.yaml", .overrides = &override, .override_count = 1};
  return brim_config_load(&options, out);
}

// A file may have any name: the kind of an origin does not depend on it.
static void layers_go_by_source(void **state) {
  (void)state;
  static const char *const names[] = {"override.yaml", "preset a100-80g", "default"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    brim_config *config = NULL;
    const char *override = "data.path=here";
    brim_config_options options = {.text =
                                       "preset: a100-80g\nplugins: [./x.so]\n"
                                       "training.use_amp: true\n",
                                   .text_name = names[i],
                                   .overrides = &override,
                                   .override_count = 1};
    assert_ok(brim_config_load(&options, &config));
    assert_true(brim_str_starts(brim_config_origin(config, "plugins"), names[i]));
    assert_int_equal(brim_config_layer_of(config, "plugins"), BRIM_CONFIG_FROM_FILE);
    assert_int_equal(brim_config_layer_of(config, "training.precision"), BRIM_CONFIG_FROM_FILE);
    assert_int_equal(brim_config_layer_of(config, "data.path"), BRIM_CONFIG_FROM_OVERRIDE);
    assert_int_equal(brim_config_layer_of(config, "batch_size"), BRIM_CONFIG_FROM_PRESET);
    assert_int_equal(brim_config_layer_of(config, "seed"), BRIM_CONFIG_FROM_DEFAULT);
    assert_int_equal(brim_config_layer_of(config, "include"), BRIM_CONFIG_FROM_DEFAULT);
    assert_int_equal(brim_config_layer_of(config, "no such key"), BRIM_CONFIG_FROM_DEFAULT);
    brim_config_close(config);
  }
}

// brim writes every key into config.yaml, so a default there does not count as the user's choice.
static void defaults_in_files_are_not_asked_for(void **state) {
  (void)state;
  static const char *const usual[] = {"training.precision", "data.num_workers", "data.pin_memory",
                                      "training.label_smoothing", "training.learning_rate"};
  static const char *const other[] = {"data.cache", "data.batch_size", "training.epochs", "loss",
                                      "training.weight_decay"};
  brim_config *config = NULL;
  const char *overrides[] = {"data.cache=auto", "epochs=10"};
  brim_config_options options = {.text =
                                     "preset: a100-80g\nprecision: fp32\nnum_workers: -1\n"
                                     "pin_memory: true\nlabel_smoothing: 0.0\nlr: 0.001\n"
                                     "loss: cross_entropy\nweight_decay: 0.1\nbatch_size: 9\n",
                                 .text_name = "t.yaml",
                                 .overrides = overrides,
                                 .override_count = 2};
  assert_ok(brim_config_load(&options, &config));
  for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
    if (brim_config_is_asked(config, usual[i])) fail_msg("%s is asked for", usual[i]);
  }
  for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
    if (!brim_config_is_asked(config, other[i])) fail_msg("%s is not asked for", other[i]);
  }
  brim_config_close(config);
  // arguments of the component that an override replaced: sgd's
  overrides[0] = "optimizer=adam";
  options.text = "optimizer: sgd\nmomentum: 0.9\nnesterov: false\n";
  options.override_count = 1;
  assert_ok(brim_config_load(&options, &config));
  assert_int_equal(brim_config_warning_count(config), 0);
  brim_config_close(config);
  options.text = "optimizer: sgd\nmomentum: 0.8\n";
  assert_ok(brim_config_load(&options, &config));
  assert_int_equal(brim_config_warning_count(config), 1);
  assert_non_null(strstr(brim_config_warning(config, 0), "'training.momentum' has no effect"));
  assert_false(brim_config_is_asked(config, "seed"));
  assert_false(brim_config_is_asked(config, "mappo.num_envs"));
  assert_false(brim_config_is_asked(config, "no such key"));
  brim_config_close(config);
}

static void overrides_win(void **state) {
  (void)state;
  static const struct {
    const char *override, *key, *value;
  } cases[] = {
      {"batch_size=9", "data.batch_size", "9"},
      {"data.batch_size=9", "batch_size", "9"},
      {"lr=1e-4", "lr", "0.0001"},
      {"training.use_amp=yes", "use_amp", "true"},
      {"name=a=b", "name", "a=b"},
      {"name=\"x: y\"", "name", "x: y"},
      {"epochs=null", "epochs", "10"},
      {"project=\"\"", "project", ""},
      {"device=[1, 2]", "device", "cuda"},
      {"memory_limit=1GiB", "memory_limit", "1073741824"},
      {"benchmark.batch_sizes=[4, 8]", "benchmark.batch_sizes", "4 8"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    brim_config *config;
    assert_ok(
        load_with("batch_size: 3\nlr: 0.5\nname: n\nepochs: 4\n", cases[i].override, &config));
    assert_key(config, cases[i].key, cases[i].value);
    assert_string_equal(brim_config_origin(config, cases[i].key), "override");
    brim_config_close(config);
  }
}

static void overrides_reach_components(void **state) {
  (void)state;
  brim_config *config;
  assert_ok(load_with("model: mlp(depth=4, hidden=8)\n", "model.depth=2", &config));
  const brim_component *model = brim_config_component(config, "model", NULL);
  assert_int_equal(brim_component_int(model, "depth", 0), 2);
  assert_int_equal(brim_component_int(model, "hidden", 0), 8);
  brim_config_close(config);
  assert_ok(
      load_with("model: {_type: mlp, depth: 9}\n", "model=mlp(hidden=2, norm=layer)", &config));
  model = brim_config_component(config, "model", NULL);
  // the file's argument is replaced too
  assert_int_equal(brim_component_int(model, "depth", 0), 4);
  assert_int_equal(brim_component_int(model, "hidden", 0), 2);
  brim_config_close(config);
  assert_ok(
      load_with("transform: {train: pad, val: pad}\n", "transform.train=cutout | pad", &config));
  assert_int_equal(brim_config_pipeline(config, "transform", "train")->count, 2);
  assert_int_equal(brim_config_pipeline(config, "transform", "val")->count, 1);
  brim_config_close(config);
  assert_ok(load_with("lr: 0.1\n", "lr=[1e-3, 1e-4]", &config));
  assert_int_equal(brim_config_grid_count(config), 2);
  brim_config_close(config);
  assert_ok(load_with("lr: [0.1, 0.2]\nseed: [1, 2]\nzip: [lr, seed]\n", "lr=0.5", &config));
  assert_int_equal(brim_config_grid_count(config), 2);
  brim_config_close(config);
}

static void bad_overrides(void **state) {
  (void)state;
  static const struct {
    const char *override, *word;
  } cases[] = {
      {"batch_size", "key=value"},
      {"=3", "key=value"},
      {"batchsize=3", "did you mean"},
      {"lr=fast", "override lr:1:1: 'training.learning_rate'"},
      {"lr=[1", "override lr:"},
      {"include=x.yaml", "include"},
      {"model.depth=3", "not set"},
      {"model=mlp(dept=3)", "override model:1:5"},
      {"data=3", "group"},
      {"lr=", "override lr: no value; write lr=null for the default"},
      {"data.batch_size= ", "override data.batch_size: no value; write data.batch_size=null"},
      {"project=", "override project: no value"},
      {"model=# none", "override model: no value"},
      {"name=a/b", "override name:1:1: 'name' is used as a folder name"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    brim_config *config;
    brim_status status = load_with("seed: 1\n", cases[i].override, &config);
    if (!status) fail_msg("accepted %s", cases[i].override);
    if (!strstr(brim_status_detail(), cases[i].word)) {
      fail_msg("%s: %s", cases[i].override, brim_status_detail());
    }
    assert_null(config);
  }
}

static void write_file(const char *path, const char *text) {
  assert_ok(brim_fs_write(path, text, strlen(text)));
}

static void includes(void **state) {
  (void)state;
  assert_ok(brim_fs_mkdirs("inc/deep"));
  write_file("inc/base.yaml", "batch_size: 1\nnum_workers: 1\nepochs: 1\nmodel: mlp(depth=9)\n");
  write_file("inc/deep/more.yaml", "include: ../base.yaml\nnum_workers: 2\n");
  write_file("inc/top.yaml",
             "include: [deep/more.yaml]\nepochs: 3\npreset: h200\nmodel: {depth: 5}\n");
  brim_config *config;
  const char *overrides[] = {"seed=4"};
  assert_ok(brim_config_open("inc/top.yaml", overrides, 1, &config));
  assert_key(config, "batch_size", "1");  // an include takes precedence over the preset
  assert_key(config, "num_workers", "2");
  assert_key(config, "epochs", "3");
  assert_key(config, "seed", "4");
  assert_string_equal(brim_config_origin(config, "batch_size"), "inc/deep/../base.yaml:1:1");
  assert_int_equal(brim_component_int(brim_config_component(config, "model", NULL), "depth", 0), 5);
  brim_config_close(config);

  write_file("inc/a.yaml", "seed: 1\ninclude: b.yaml\n");
  write_file("inc/b.yaml", "include: ./a.yaml\n");
  assert_status(brim_config_open("inc/a.yaml", NULL, 0, &config), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "included from inc/a.yaml:2:10"));
  assert_non_null(strstr(brim_status_detail(), "includes itself"));
  write_file("inc/b.yaml", "x: 1\nsede: 2\n");
  assert_status(brim_config_open("inc/a.yaml", NULL, 0, &config), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "inc/b.yaml:1:1"));
  write_file("inc/a.yaml", "include: nowhere.yaml\n");
  assert_status(brim_config_open("inc/a.yaml", NULL, 0, &config), BRIM_ENOENT);
  assert_non_null(strstr(brim_status_detail(), "inc/nowhere.yaml"));
  write_file("inc/a.yaml", "include: deep\n");
  assert_status(brim_config_open("inc/a.yaml", NULL, 0, &config), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "regular file"));
  brim_str text;
  brim_str_init(&text);
  brim_str_append(&text, "include: [");
  for (int i = 0; i < 17; i++) brim_str_append(&text, "base.yaml, ");
  brim_str_append(&text, "]\n");
  write_file("inc/a.yaml", text.data);
  brim_str_deinit(&text);
  assert_status(brim_config_open("inc/a.yaml", NULL, 0, &config), BRIM_ELIMIT);
  assert_status(brim_config_open("missing.yaml", NULL, 0, &config), BRIM_ENOENT);
}

static void placeholders(void **state) {
  (void)state;
  brim_config *config = must_load(BRIM_CONFIG_RUN,
                                  "seed: 7\nnum_workers: \"{{seed}}\"\nlr: \"{{ weight_decay }}\"\n"
                                  "weight_decay: 1e-2\nname: \"{{project}}-s{{seed}}-{{lr}}\"\n"
                                  "project: \"p{{data.num_workers}}\"\n"
                                  "model: \"mlp(depth={{seed}})\"\ntags: [\"s{{seed}}\", b]\n"
                                  "output_dir: \"out/{{epochs}}\"\n");
  assert_key(config, "num_workers", "7");
  assert_key(config, "lr", "0.01");
  assert_key(config, "name", "p7-s7-1e-2");
  assert_key(config, "output_dir", "out/10");
  assert_int_equal(brim_component_int(brim_config_component(config, "model", NULL), "depth", 0), 7);
  const char *const *tags;
  size_t count;
  assert_ok(brim_config_get_strings(config, "tags", &tags, &count));
  assert_string_equal(tags[0], "s7");
  brim_config_close(config);
  assert_refused(BRIM_CONFIG_RUN, "name: \"{{project}}\"\nproject: \"{{run_name}}\"\n", BRIM_EINVAL,
                 WORDS("itself"));
  assert_refused(BRIM_CONFIG_RUN, "epochs: \"{{name}}\"\nname: soon\n", BRIM_EINVAL,
                 WORDS("t.yaml:1:9", "expects int"));
  assert_refused(BRIM_CONFIG_RUN, "name: \"x{{tags}}\"\ntags: [a]\n", BRIM_EINVAL,
                 WORDS("cannot stand in text"));
  config = must_load(BRIM_CONFIG_RUN, "name: \"{{ a\"\nproject: \"}} {{\"\n");
  assert_key(config, "name", "{{ a");
  brim_config_close(config);
}

int main(void) {
  if (brim_fs_mkdirs("config_overrides") || chdir("config_overrides")) return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(overrides_win),
      cmocka_unit_test(layers_go_by_source),
      cmocka_unit_test(defaults_in_files_are_not_asked_for),
      cmocka_unit_test(overrides_reach_components),
      cmocka_unit_test(bad_overrides),
      cmocka_unit_test(includes),
      cmocka_unit_test(placeholders),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
