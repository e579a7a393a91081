// Component expressions: every form parses to its meaning and prints back to itself, and the catalogue fills in
// defaults. Links between keys and arguments are here too.
#include "base/base.h"
#include "config_test.h"

static brim_arena *arena;

static int setup(void **state) {
  (void)state;
  return brim_arena_create(0, &arena);
}

static int teardown(void **state) {
  (void)state;
  brim_arena_destroy(arena);
  return 0;
}

static brim_pipeline parse(const char *text) {
  brim_pipeline p;
  assert_ok(brim_config_parse_expression(arena, text, "expr", &p));
  return p;
}

static void names_and_arguments(void **state) {
  (void)state;
  brim_pipeline p = parse("mlp");
  assert_int_equal(p.count, 1);
  assert_string_equal(p.items[0].name, "mlp");
  assert_int_equal(p.items[0].arg_count, 0);
  p = parse(
      "  mlp ( depth = 3 , hidden=0x10, lr=1e-4, f=true, n=null, s=gelu, q=\"a, b\", r='x', ) ");
  const brim_component *c = &p.items[0];
  assert_int_equal(c->arg_count, 8);
  assert_int_equal(brim_component_int(c, "depth", 0), 3);
  assert_int_equal(brim_component_int(c, "hidden", 0), 16);
  assert_true(brim_component_float(c, "lr", 0) == 1e-4);
  assert_true(brim_component_bool(c, "f", false));
  assert_int_equal(brim_component_arg(c, "n")->kind, BRIM_VALUE_NULL);
  assert_string_equal(brim_component_string(c, "s", ""), "gelu");
  assert_string_equal(brim_component_string(c, "q", ""), "a, b");
  assert_string_equal(brim_component_string(c, "r", ""), "x");
}

// Exactly the spellings of YAML 1.2's core schema.
static void words(void **state) {
  (void)state;
  static const char *const trues[] = {"true", "True", "TRUE"};
  static const char *const falses[] = {"false", "False", "FALSE"};
  static const char *const nulls[] = {"null", "Null", "NULL", "~"};
  static const char *const strings[] = {"tRUE", "yes", "off", "nUll", "1e", "0o8", "0x", "-"};
  char text[64];
  for (int i = 0; i < 3; i++) {
    snprintf(text, sizeof text, "x(a=%s, b=%s)", trues[i], falses[i]);
    brim_pipeline p = parse(text);
    assert_int_equal(brim_component_arg(&p.items[0], "a")->kind, BRIM_VALUE_BOOL);
    assert_true(brim_component_bool(&p.items[0], "a", false));
    assert_int_equal(brim_component_arg(&p.items[0], "b")->kind, BRIM_VALUE_BOOL);
    assert_false(brim_component_bool(&p.items[0], "b", true));
  }
  for (int i = 0; i < 4; i++) {
    snprintf(text, sizeof text, "x(a=%s)", nulls[i]);
    brim_pipeline p = parse(text);
    assert_int_equal(brim_component_arg(&p.items[0], "a")->kind, BRIM_VALUE_NULL);
  }
  for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
    snprintf(text, sizeof text, "x(a=%s)", strings[i]);
    brim_pipeline p = parse(text);
    assert_string_equal(brim_component_string(&p.items[0], "a", "?"), strings[i]);
  }
}

static void nested_values(void **state) {
  (void)state;
  brim_pipeline p = parse("crop(scale=(0.8, 1.0), one=(3,), par=(3), l=[[1, 2], [3, (4, 5)], []])");
  const brim_component *c = &p.items[0];
  const brim_value *v = brim_component_arg(c, "scale");
  assert_int_equal(v->kind, BRIM_VALUE_LIST);
  assert_true(v->tuple);
  assert_int_equal(v->count, 2);
  assert_true(v->items[0].number == 0.8);
  assert_int_equal(brim_component_arg(c, "one")->count, 1);
  assert_int_equal(brim_component_arg(c, "par")->kind, BRIM_VALUE_INT);
  v = brim_component_arg(c, "l");
  assert_false(v->tuple);
  assert_int_equal(v->count, 3);
  assert_int_equal(v->items[1].items[1].items[1].integer, 5);
  assert_int_equal(v->items[2].count, 0);
  p = parse("simclr(backbone=resnet18(width=32), dim=64)");
  v = brim_component_arg(&p.items[0], "backbone");
  assert_int_equal(v->kind, BRIM_VALUE_COMPONENT);
  assert_string_equal(v->component->name, "resnet18");
  assert_int_equal(brim_component_int(v->component, "width", 0), 32);
}

static void pipelines(void **state) {
  (void)state;
  brim_pipeline p = parse("resize(size=224)|random_flip | normalize(mean=[0.5, 0.5, 0.5])");
  assert_int_equal(p.count, 3);
  assert_false(p.tail);
  assert_string_equal(p.items[1].name, "random_flip");
  assert_int_equal(p.items[1].col, 18);
  p = parse("resize(size=224) | ...");
  assert_int_equal(p.count, 1);
  assert_true(p.tail);
  p = parse("...");
  assert_int_equal(p.count, 0);
  assert_true(p.tail);
  p = parse("plugin:mine(x=/data/a-b.h5)");
  assert_string_equal(p.items[0].name, "plugin:mine");
  assert_string_equal(brim_component_string(&p.items[0], "x", ""), "/data/a-b.h5");
}

static void bad_expressions(void **state) {
  (void)state;
  static const struct {
    const char *text, *place;
  } bad[] = {
      {"", "expr:1:1"},
      {"(", "expr:1:1"},
      {"a b", "expr:1:3"},
      {"a(", "expr:1:3"},
      {"a(b", "expr:1:3"},
      {"a(b=", "expr:1:5"},
      {"a(b=1", "expr:1:6"},
      {"a(b=1 c=2)", "expr:1:7"},
      {"a(b=(1", "expr:1:7"},
      {"a(b=[1 2])", "expr:1:8"},
      {"a(b=\"x)", "expr:1:5"},
      {"a(b=1))", "expr:1:7"},
      {"a |", "expr:1:4"},
      {"| a", "expr:1:1"},
      {"a | ... | b", "expr:1:9"},
      {"a(=1)", "expr:1:3"},
      {"a(b==1)", "expr:1:5"},
      {"a(,)", "expr:1:3"},
      {"1a", "expr:1:1"},
      {"a(b=[1,,2])", "expr:1:8"},
      {"a(\xea\xb0\x80=1)", "expr:1:3"},
      {"\xea\xb0\x80", "expr:1:1"},
      {"a(x='\xea\xb0\x80', y=)", "expr:1:12"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    brim_pipeline p;
    assert_status(brim_config_parse_expression(arena, bad[i].text, "expr", &p), BRIM_EPARSE);
    if (!strstr(brim_status_detail(), bad[i].place)) {
      fail_msg("'%s': no %s in: %s", bad[i].text, bad[i].place, brim_status_detail());
    }
  }
  char deep[256] = "a(x=";
  memset(deep + 4, '[', 100);
  brim_pipeline p;
  assert_status(brim_config_parse_expression(arena, deep, "expr", &p), BRIM_ELIMIT);
}

static void all_forms_are_one(void **state) {
  (void)state;
  static const char *const forms[] = {
      "model: mlp(depth=2, hidden=64)\n",
      "model: \"mlp(depth=2, hidden=64,)\"\n",
      "model: {_type: mlp, depth: 2, hidden: 64}\n",
      "model:\n  hidden: 64\n  depth: 2\n  _type: mlp\n",
      "model: mlp(depth=9)\nmodel.depth: 2\nmodel.hidden: 64\n",
      "model.depth: 2\nmodel: mlp(depth=9, hidden=64)\n",
  };
  char first[33];
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
    brim_config *config = must_load(BRIM_CONFIG_RUN, forms[i]);
    const brim_component *model = brim_config_component(config, "model", NULL);
    assert_string_equal(model->name, "mlp");
    assert_int_equal(brim_component_int(model, "depth", 0), 2);
    assert_int_equal(brim_component_int(model, "hidden", 0), 64);
    // defaults from the catalogue
    assert_string_equal(brim_component_string(model, "activation", ""), "relu");
    assert_true(brim_component_float(model, "dropout", -1) == 0);
    assert_string_equal(brim_component_string(model, "norm", ""), "none");
    assert_null(brim_component_arg(model, "num_classes"));
    char hash[33];
    if (i < 2) {  // the order of arguments is kept
      assert_ok(brim_config_hash(config, BRIM_CONFIG_EXPERIMENT, i ? hash : first));
      if (i) assert_string_equal(hash, first);
    }
    brim_config_close(config);
  }
}

static void kinds_are_coerced(void **state) {
  (void)state;
  brim_config *config = must_load(
      BRIM_CONFIG_RUN,
      "model: simclr(backbone=resnet18(zero_init=yes), dim=1e2)\n"
      "optimizer: sgd(lr=1, nesterov=on)\n"
      "transform: {train: \"resize(size=(32, 48)) | normalize(mean=0.5, std=[1, 2, 3])\"}\n"
      "dataset: synthetic(shape=[1, 4, 4], samples=1e3)\nmetric: accuracy | f1(average=micro)\n");
  const brim_component *model = brim_config_component(config, "model", NULL);
  assert_int_equal(brim_component_int(model, "dim", 0), 100);
  const brim_value *backbone = brim_component_arg(model, "backbone");
  assert_true(brim_component_bool(backbone->component, "zero_init", false));
  assert_int_equal(brim_component_int(backbone->component, "width", 0), 64);
  const brim_component *sgd = brim_config_component(config, "optimizer", NULL);
  assert_true(brim_component_float(sgd, "lr", 0) == 1.0);
  assert_int_equal(brim_component_arg(sgd, "lr")->kind, BRIM_VALUE_FLOAT);
  assert_true(brim_component_bool(sgd, "nesterov", false));
  assert_int_equal(brim_config_pipeline(config, "transform", "train")->count, 2);
  assert_int_equal(brim_config_pipeline(config, "metric", NULL)->count, 2);
  const brim_component *data = brim_config_component(config, "dataset", "val");
  assert_int_equal(brim_component_int(data, "samples", 0), 1000);
  brim_config_close(config);
}

static void keys_and_arguments_agree(void **state) {
  (void)state;
  brim_config *config = must_load(BRIM_CONFIG_RUN, "optimizer: sgd(momentum=0.5)\nlr: 0.2\n");
  const brim_component *sgd = brim_config_component(config, "optimizer", NULL);
  assert_true(brim_component_float(sgd, "lr", 0) == 0.2);
  assert_key(config, "training.momentum", "0.5");
  assert_string_equal(brim_config_origin(config, "training.momentum"), "t.yaml:1:1");
  assert_key(config, "training.weight_decay", "0");
  assert_false(brim_config_is_set(config, "training.weight_decay"));
  brim_config_close(config);

  config = must_load(BRIM_CONFIG_RUN, "optimizer: adam\n");
  assert_key(config, "lr", "0.001");
  assert_string_equal(brim_config_origin(config, "lr"), "default");
  brim_config_close(config);

  assert_refused(BRIM_CONFIG_EDIT, "optimizer: sgd(lr=0.1)\nlr: 0.2\n", BRIM_EINVAL,
                 WORDS("t.yaml:2:1", "training.learning_rate", "on line 1 and on line 2"));
  config = must_load(BRIM_CONFIG_RUN, "optimizer: sgd(lr=0.1)\nlr: 0.2\n");
  assert_key(config, "lr", "0.2");
  assert_int_equal(brim_config_warning_count(config), 1);
  brim_config_close(config);

  const char *overrides[] = {"lr=0.3"};
  brim_config_options options = {
      .text = "optimizer: sgd(lr=0.1)\n", .overrides = overrides, .override_count = 1};
  assert_ok(brim_config_load(&options, &config));
  sgd = brim_config_component(config, "optimizer", NULL);
  assert_true(brim_component_float(sgd, "lr", 0) == 0.3);
  brim_config_close(config);

  options.text = "lr: 0.1\n";
  overrides[0] = "optimizer.lr=0.4";
  assert_ok(brim_config_load(&options, &config));
  assert_key(config, "lr", "0.4");
  assert_string_equal(brim_config_origin(config, "lr"), "override");
  brim_config_close(config);

  config = must_load(BRIM_CONFIG_RUN, "optimizer: adamw\nmomentum: 0.9\n");
  assert_int_equal(brim_config_warning_count(config), 1);
  assert_non_null(strstr(brim_config_warning(config, 0), "t.yaml:2:1: "));
  brim_config_close(config);
}

// null equals an unset key: no warning, and a component's argument keeps its value.
static void null_is_unset(void **state) {
  (void)state;
  static const char *const keys[] = {"training.nesterov", "training.momentum", "ars.restart",
                                     "data.pin_memory", "training.epochs"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    char text[128];
    snprintf(text, sizeof text, "optimizer: adamw\n%s: null\n", keys[i]);
    brim_config *config = must_load(BRIM_CONFIG_RUN, text);
    if (brim_config_warning_count(config)) fail_msg("%s", brim_config_warning(config, 0));
    assert_false(brim_config_is_set(config, keys[i]));
    assert_int_equal(brim_config_layer_of(config, keys[i]), BRIM_CONFIG_FROM_DEFAULT);
    brim_config_close(config);
  }
  static const char *const words[] = {"true", "false"};
  for (int i = 0; i < 2; i++) {
    char text[128];
    snprintf(text, sizeof text,
             "optimizer: sgd(lr=0.1, momentum=0.9, nesterov=%s)\ntraining: {nesterov: null}\n",
             words[i]);
    brim_config *config = must_load(BRIM_CONFIG_RUN, text);
    assert_int_equal(brim_config_warning_count(config), 0);
    const brim_component *sgd = brim_config_component(config, "optimizer", NULL);
    assert_int_equal(brim_component_bool(sgd, "nesterov", i), i == 0);
    assert_key(config, "training.nesterov", words[i]);
    brim_config_close(config);
  }
  bool value;
  brim_config *config = must_load(BRIM_CONFIG_RUN, "optimizer: adamw\ntraining.nesterov: null\n");
  assert_status(brim_config_get_bool(config, "training.nesterov", &value), BRIM_EINVAL);
  brim_config_close(config);
}

// An argument may be written under its other name in every form; it is read under its own.
static void arguments_have_aliases(void **state) {
  (void)state;
  static const char *const forms[] = {
      "env: uav(size=20, max_steps=50)\n",
      "env: uav(grid_size=20, episode_steps=50)\n",
      "env: {_type: uav, grid_size: 20, max_steps: 50}\n",
      "env: uav(size=9, max_steps=9)\nenv.grid_size: 20\nenv.episode_steps: 50\n",
      "env: uav(grid_size=9)\nenv: {_type: uav, grid_size: 20, max_steps: 50}\n",
  };
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
    brim_config *config = must_load(BRIM_CONFIG_RUN, forms[i]);
    const brim_component *env = brim_config_component(config, "env", NULL);
    assert_int_equal(brim_component_int(env, "size", 0), 20);
    assert_int_equal(brim_component_int(env, "episode_steps", 0), 50);
    assert_null(brim_component_arg(env, "grid_size"));
    assert_null(brim_component_arg(env, "max_steps"));
    brim_config_close(config);
  }
  const char *overrides[] = {"env.grid_size=30"};
  const brim_config_options options = {
      .text = "env: uav(size=20)\nenv.size: 25\n", .overrides = overrides, .override_count = 1};
  brim_config *config;
  assert_ok(brim_config_load(&options, &config));
  const brim_component *env = brim_config_component(config, "env", NULL);
  assert_int_equal(brim_component_int(env, "size", 0), 30);
  brim_config_close(config);
  assert_refused(BRIM_CONFIG_RUN, "env: uav(size=20, grid_size=20)\n", BRIM_EINVAL,
                 WORDS("t.yaml:1:", "'size' and 'grid_size' are the same argument"));
  assert_refused(BRIM_CONFIG_RUN, "env: uav(max_steps=0)\n", BRIM_EINVAL,
                 WORDS("t.yaml:1:", "'episode_steps' must be between 1 and 32768"));
}

static void precision_and_amp_agree(void **state) {
  (void)state;
  static const struct {
    const char *text, *precision, *amp;
  } cases[] = {
      {"seed: 1\n", "fp32", "false"},
      {"use_amp: true\n", "auto", "true"},
      {"use_amp: false\n", "fp32", "false"},
      {"precision: bf16\n", "bf16", "true"},
      {"precision: tf32\n", "tf32", "false"},
      {"precision: fp16\nuse_amp: true\n", "fp16", "true"},
      {"preset: a100-80g\n", "auto", "true"},
      {"preset: a100-80g\nprecision: fp32\n", "fp32", "false"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    brim_config *config = must_load(BRIM_CONFIG_RUN, cases[i].text);
    assert_key(config, "precision", cases[i].precision);
    assert_key(config, "use_amp", cases[i].amp);
    brim_config_close(config);
  }
  assert_refused(BRIM_CONFIG_EDIT, "precision: fp32\nuse_amp: true\n", BRIM_EINVAL,
                 WORDS("on line 1 and on line 2"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_and_arguments),    cmocka_unit_test(words),
      cmocka_unit_test(nested_values),          cmocka_unit_test(pipelines),
      cmocka_unit_test(bad_expressions),        cmocka_unit_test(all_forms_are_one),
      cmocka_unit_test(kinds_are_coerced),      cmocka_unit_test(keys_and_arguments_agree),
      cmocka_unit_test(null_is_unset),          cmocka_unit_test(precision_and_amp_agree),
      cmocka_unit_test(arguments_have_aliases),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
