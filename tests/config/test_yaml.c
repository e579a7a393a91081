// YAML as brim reads it: the 1.2 core schema, anchors, merge keys, tags, repeated keys; and a table of malformed files,
// each with file, line and column of its error.
#include "config_test.h"

static void core_schema_numbers(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double value;
  } floats[] = {{"1e-4", 1e-4}, {"1E-4", 1e-4},   {"0.5", 0.5}, {".5", 0.5},
                {"5.", 5},      {"+1.5e+1", 15},  {"3", 3},     {"0x10", 16},
                {"0o17", 15},   {"!!float 2", 2}, {"017", 17}};
  for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
    char text[64];
    snprintf(text, sizeof text, "lr: %s\n", floats[i].text);
    brim_config *config = must_load(BRIM_CONFIG_RUN, text);
    double value;
    assert_ok(brim_config_get_float(config, "lr", &value));
    if (value != floats[i].value) fail_msg("%s read as %.17g", floats[i].text, value);
    brim_config_close(config);
  }
  static const struct {
    const char *text, *value;
  } ints[] = {{"0o17", "15"}, {"0xff", "255"},  {"+7", "7"},          {"1e3", "1000"},
              {"12.0", "12"}, {"!!int 5", "5"}, {"!!int \"5\"", "5"}, {"007", "7"}};
  for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++) {
    char text[64];
    snprintf(text, sizeof text, "batch_size: %s\n", ints[i].text);
    brim_config *config = must_load(BRIM_CONFIG_RUN, text);
    assert_key(config, "batch_size", ints[i].value);
    brim_config_close(config);
  }
  assert_refused(BRIM_CONFIG_RUN, "lr: .inf\n", BRIM_EINVAL, WORDS("t.yaml:1:5", "finite"));
  assert_refused(BRIM_CONFIG_RUN, "lr: -.INF\n", BRIM_EINVAL, WORDS("t.yaml:1:5", "finite"));
  assert_refused(BRIM_CONFIG_RUN, "lr: .nan\n", BRIM_EINVAL, WORDS("t.yaml:1:5", "finite"));
}

static void core_schema_is_not_yaml_1_1(void **state) {
  (void)state;
  // yes is a string in 1.2; only keys of type bool accept it as a truth value.
  brim_config *config = must_load(BRIM_CONFIG_RUN,
                                  "name: yes\nproject: 1_000\ndata.path: 12:30:45\n"
                                  "pin_memory: no\nshuffle: On\ncompile: OFF\ndrop_last: True\n");
  assert_string_equal(brim_config_string(config, "name"), "yes");
  assert_string_equal(brim_config_string(config, "project"), "1_000");
  assert_string_equal(brim_config_string(config, "data.path"), "12:30:45");
  assert_false(brim_config_bool(config, "data.pin_memory"));
  assert_true(brim_config_bool(config, "data.shuffle"));
  assert_false(brim_config_bool(config, "training.compile"));
  assert_true(brim_config_bool(config, "data.drop_last"));
  brim_config_close(config);
  static const char *const not_bool[] = {"pin_memory: 1\n", "pin_memory: y\n",
                                         "pin_memory: \"true\"\n", "pin_memory: maybe\n"};
  for (size_t i = 0; i < 4; i++) {
    assert_refused(BRIM_CONFIG_RUN, not_bool[i], BRIM_EINVAL, WORDS("t.yaml:1:13", "expects bool"));
  }
  static const char *const not_int[] = {"epochs: 1_0\n",
                                        "epochs: \"5\"\n",
                                        "epochs: 1.5\n",
                                        "epochs: !!str 5\n",
                                        "epochs: 0b1\n",
                                        "epochs: 1e300\n",
                                        "epochs: 99999999999999999999\n"};
  for (size_t i = 0; i < 7; i++) {
    assert_refused(BRIM_CONFIG_RUN, not_int[i], BRIM_EINVAL, WORDS("t.yaml:1:9", "expects int"));
  }
}

static void null_is_the_default(void **state) {
  (void)state;
  brim_config *config = must_load(
      BRIM_CONFIG_RUN, "preset: a100-80g\nbatch_size: null\nepochs: ~\ndata:\nseed:\nname: Null\n");
  assert_key(config, "batch_size", "128");  // not the preset's
  assert_key(config, "epochs", "10");
  assert_key(config, "num_workers", "12");
  assert_null(brim_config_string(config, "name"));
  brim_config_close(config);
}

static void byte_order_mark(void **state) {
  (void)state;
  brim_config *config = must_load(BRIM_CONFIG_RUN,
                                  "\xEF\xBB\xBF"
                                  "seed: 3\nepochs: 4\n");
  assert_key(config, "seed", "3");
  assert_key(config, "epochs", "4");
  brim_config_close(config);
  assert_refused(BRIM_CONFIG_RUN,
                 "\xEF\xBB\xBF"
                 "seed: x\n",
                 BRIM_EINVAL, WORDS("t.yaml:1:7"));
}

static void anchors_and_merge(void **state) {
  (void)state;
  brim_config *config = must_load(BRIM_CONFIG_RUN,
                                  "x-common: &c {batch_size: 32, num_workers: 3}\n"
                                  "x-more: &m {num_workers: 9, drop_last: true}\n"
                                  "data:\n  <<: [*c, *m]\n  batch_size: 64\n"
                                  "training: {epochs: &e 7, eval_interval: *e}\n");
  assert_key(config, "data.batch_size", "64");
  assert_key(config, "data.num_workers", "3");
  assert_key(config, "data.drop_last", "true");
  assert_key(config, "training.eval_interval", "7");
  brim_config_close(config);
  assert_refused(BRIM_CONFIG_RUN, "data:\n  <<: 5\n", BRIM_EPARSE, WORDS("t.yaml:2:7", "<<"));
}

static void spellings_meet(void **state) {
  (void)state;
  brim_config *config = must_load(BRIM_CONFIG_RUN, "data.num_workers: 3\ndata: {batch_size: 5}\n");
  assert_key(config, "num_workers", "3");
  assert_key(config, "batch_size", "5");
  brim_config_close(config);
  const char *twice = "batch_size: 4\nlr: 0.1\ndata:\n  batch_size: 8\n";
  assert_refused(BRIM_CONFIG_EDIT, twice, BRIM_EINVAL,
                 WORDS("t.yaml:4:3", "data.batch_size", "on line 1 and on line 4"));
  static const brim_config_mode modes[] = {BRIM_CONFIG_RUN, BRIM_CONFIG_CHECK};
  for (size_t i = 0; i < 2; i++) {
    config = must_load(modes[i], twice);
    assert_key(config, "batch_size", "8");
    assert_int_equal(brim_config_warning_count(config), 1);
    assert_string_equal(brim_config_warning(config, 0),
                        "t.yaml:4:3: 'data.batch_size' is given twice: on line 1 and on line 4; "
                        "the later one wins");
    brim_config_close(config);
  }
  assert_refused(BRIM_CONFIG_EDIT, "use_amp: true\ngpu: {mixed_precision: true}\n", BRIM_EINVAL,
                 WORDS("training.use_amp", "on line 1 and on line 2"));
}

static void empty_documents(void **state) {
  (void)state;
  static const char *const texts[] = {"", "# only words\n", "---\n", "--- {}\n...\n", "~\n"};
  for (size_t i = 0; i < 5; i++) {
    brim_config *config = must_load(BRIM_CONFIG_RUN, texts[i]);
    assert_key(config, "epochs", "10");
    brim_config_close(config);
  }
}

typedef struct bad {
  const char *text;
  brim_status status;
  const char *place;
  const char *word;
} bad;

static const bad malformed[] = {
    {"a: b: c\n", BRIM_EPARSE, "t.yaml:1:5", "not valid YAML"},
    {"lr: [1, 2\n", BRIM_EPARSE, "t.yaml:2:1", "not valid YAML"},
    {"lr: {a: 1\nb", BRIM_EPARSE, "t.yaml:3:1", "not valid YAML"},
    {"data:\n\tbatch_size: 1\n", BRIM_EPARSE, "t.yaml:2:1", "a tab cannot indent YAML; use spaces"},
    {"# \xc3\xa9\ndata:\n  \tlr: 1\n", BRIM_EPARSE, "t.yaml:3:3", "a tab cannot indent"},
    {"data:\n  batch_size: 1\n\tnum_workers: 2\n", BRIM_EPARSE, "t.yaml:3:1", "a tab cannot"},
    {"lr:\t@x\n", BRIM_EPARSE, "t.yaml:1:5", "not valid YAML"},
    {"name: \"abc\n", BRIM_EPARSE, "t.yaml:2:1", "not valid YAML"},
    {"name: 'abc", BRIM_EPARSE, "t.yaml:1:11", "not valid YAML"},
    {"name: \"\\q\"\n", BRIM_EPARSE, "t.yaml:1:", "not valid YAML"},
    {"data:\n  batch_size: 1\n num_workers: 2\n", BRIM_EPARSE, "t.yaml:3:2", "not valid YAML"},
    {"- 1\nlr: 2\n", BRIM_EPARSE, "t.yaml:2:1", "not valid YAML"},
    {"lr: *nope\n", BRIM_EPARSE, "t.yaml:1:5", "alias"},
    {"tags: &a [*a]\n", BRIM_EPARSE, "t.yaml:1:11", "alias"},
    {"lr: 1\n---\nlr: 2\n", BRIM_EPARSE, "t.yaml:2:1", "second document"},
    {"lr: !custom 1\n", BRIM_EPARSE, "t.yaml:1:5", "tag"},
    {"lr: !!python/tuple [1, 2]\n", BRIM_EPARSE, "t.yaml:1:5", "tag"},
    {"lr: !!int 1.5\n", BRIM_EPARSE, "t.yaml:1:5", "tag"},
    {"lr: !!int [1]\n", BRIM_EPARSE, "t.yaml:1:5", "tag"},
    {"lr: !list 5\n", BRIM_EPARSE, "t.yaml:1:5", "tag"},
    {"? [a, b]\n: 1\n", BRIM_EPARSE, "t.yaml:1:3", "key"},
    {"lr: {{base}}\n", BRIM_EPARSE, "t.yaml:1:6", "quotes"},
    {"\"\": 1\n", BRIM_EPARSE, "t.yaml:1:1", "empty"},
    {"lr: \xff\n", BRIM_EPARSE, "t.yaml:1:5", "not valid YAML"},
    {"lr: 1\nname: \x01\n", BRIM_EPARSE, "t.yaml:2:7", "not valid YAML"},
    {"%YAML 3.0\n---\nlr: 1\n", BRIM_EPARSE, "t.yaml:1:1", "not valid YAML"},
    {"lr: @x\n", BRIM_EPARSE, "t.yaml:1:5", "not valid YAML"},
    {"name: \"a\\0b\"\n", BRIM_EPARSE, "t.yaml:1:7", "NUL"},
    {"[1, 2]\n", BRIM_EINVAL, "t.yaml:1:1", "map"},
    {"just text\n", BRIM_EINVAL, "t.yaml:1:1", "map"},
    {"batchsize: 3\n", BRIM_EINVAL, "t.yaml:1:1", "did you mean 'batch_size'"},
    {"data:\n  batch_sizes: 3\n", BRIM_EINVAL, "t.yaml:2:3", "did you mean"},
    {"training:\n  batch_size: 3\n", BRIM_EINVAL, "t.yaml:2:3", "did you mean 'data.batch_size'"},
    {"transform: {trian: random_flip}\n", BRIM_EINVAL, "t.yaml:1:13",
     "unknown key 'transform.trian'; did you mean 'transform.train'? Known are transform.train, "
     "transform.val and transform.test"},
    {"transform: {zzz: random_flip}\n", BRIM_EINVAL, "t.yaml:1:13",
     "unknown key 'transform.zzz'; known are transform.train, transform.val"},
    {"name: ../../etc\n", BRIM_EINVAL, "t.yaml:1:7", "'name' is used as a folder name"},
    {"name: a/b\n", BRIM_EINVAL, "t.yaml:1:7", "contain '/'"},
    {"run_name: ..\n", BRIM_EINVAL, "t.yaml:1:11", "begin with '.'"},
    {"name: .\n", BRIM_EINVAL, "t.yaml:1:7", "begin with '.'"},
    {"name: ...yaml\n", BRIM_EINVAL, "t.yaml:1:7", "begin with '.'"},
    {"name: ''\n", BRIM_EINVAL, "t.yaml:1:7", "empty"},
    {"name: \"x{{project}}\"\nproject: /y\n", BRIM_EINVAL, "t.yaml:1:7", "'x/y'"},
    {"zzzzqqqq: 3\n", BRIM_EINVAL, "t.yaml:1:1", "unknown key 'zzzzqqqq'"},
    {"data: 5\n", BRIM_EINVAL, "t.yaml:1:1", "group"},
    {"lr: {a: 1}\n", BRIM_EINVAL, "t.yaml:1:5", "not a map"},
    {"batch_size: 0\n", BRIM_EINVAL, "t.yaml:1:13", "between"},
    {"batch_size: -4\n", BRIM_EINVAL, "t.yaml:1:13", "between"},
    {"lr: fast\n", BRIM_EINVAL, "t.yaml:1:5", "expects float"},
    {"precision: fp17\n", BRIM_EINVAL, "t.yaml:1:12", "did you mean 'fp16'"},
    {"preset: a100\n", BRIM_EINVAL, "t.yaml:1:9", "must be one of"},
    {"memory_limit: lots\n", BRIM_EINVAL, "t.yaml:1:15", "expects bytes"},
    {"ranks: 0\n", BRIM_EINVAL, "t.yaml:1:8", "between"},
    {"ranks: [1, 2]\n", BRIM_EINVAL, "t.yaml:1:8", "never a grid axis"},
    {"device: [cpu, auto]\n", BRIM_EINVAL, "t.yaml:1:9", "cpu, ref, cuda:N or N, not 'auto'"},
    {"device: [0, cuda]\n", BRIM_EINVAL, "t.yaml:1:9", "not 'cuda'"},
    {"device: [0, 2000]\n", BRIM_EINVAL, "t.yaml:1:9", "0 to 1023"},
    {"device: gpu\n", BRIM_EINVAL, "t.yaml:1:9", "cuda:N"},
    {"device: [-1]\n", BRIM_EINVAL, "t.yaml:1:9", "0 to 1023"},
    {"device: []\n", BRIM_EINVAL, "t.yaml:1:9", "empty"},
    {"gpus: [1, 2]\n", BRIM_EINVAL, "t.yaml:1:7", "never a grid axis"},
    {"priority: [1]\n", BRIM_EINVAL, "t.yaml:1:11", "never a grid axis"},
    {"tags: {a: 1}\n", BRIM_EINVAL, "t.yaml:1:7", "not a map"},
    {"batch_sizes: [1, two]\n", BRIM_EINVAL, "t.yaml:1:14", "expects list of int"},
    {"lr: []\n", BRIM_EINVAL, "t.yaml:1:5", "empty"},
    {"lr: !list [1, 2]\n", BRIM_EINVAL, "t.yaml:1:5", "not a list"},
    {"lr: [0.1, [0.2]]\n", BRIM_EINVAL, "t.yaml:1:11", "expects float"},
    {"model: mpl(depth=2)\n", BRIM_EINVAL, "t.yaml:1:8", "did you mean 'mlp'"},
    {"model: mlp(depht=2)\n", BRIM_EINVAL, "t.yaml:1:12", "did you mean 'depth'"},
    {"model: mlp(hidden=4, depth=-2)\n", BRIM_EINVAL, "t.yaml:1:22", "between"},
    {"model: mlp(depth=two)\n", BRIM_EINVAL, "t.yaml:1:12", "expects int"},
    {"model: mlp(depth=[2, 4])\n", BRIM_EINVAL, "t.yaml:1:12", "_type"},
    {"model: mlp(depth=2, depth=3)\n", BRIM_EPARSE, "t.yaml:1:21", "repeated"},
    {"model: mlp(2)\n", BRIM_EPARSE, "t.yaml:1:12", "name=value"},
    {"model: mlp(depth=2\n", BRIM_EPARSE, "t.yaml:1:19", "ends"},
    {"model: mlp)\n", BRIM_EPARSE, "t.yaml:1:11", "expected"},
    {"model: mlp | linear\n", BRIM_EINVAL, "t.yaml:1:8", "one component"},
    {"model: {depth: 3}\n", BRIM_EINVAL, "t.yaml:1:9", "not set"},
    {"model: {_type: mlp, dept: 3}\n", BRIM_EINVAL, "t.yaml:1:27", "did you mean 'depth'"},
    {"transform: resize\n", BRIM_EINVAL, "t.yaml:1:12", "needs 'size'"},
    {"transform: \"pad | resize(siz=3)\"\n", BRIM_EINVAL, "t.yaml:1:26", "did you mean 'size'"},
    {"transform:\n  train: pad\n  tset: pad\n", BRIM_EINVAL, "t.yaml:3:3", "slots"},
    {"transform: \"pad | | pad\"\n", BRIM_EPARSE, "t.yaml:1:19", "name"},
    {"loss: mse(x=1)\n", BRIM_EINVAL, "t.yaml:1:11", "no argument 'x'"},
    {"name: \"{{nme}}\"\n", BRIM_EINVAL, "t.yaml:1:7", "names no key"},
    {"name: \"{{name}}\"\n", BRIM_EINVAL, "t.yaml:1:7", "itself"},
    {"name: \"a-{{project}}\"\n", BRIM_EINVAL, "t.yaml:1:7", "no value"},
    {"lr: [1, 2]\nbatch_size: [1, 2, 3]\nzip: [lr, batch_size]\n", BRIM_EINVAL, "t.yaml:3:11",
     "3 values"},
    {"lr: [1, 2]\nzip: [lr, lr]\n", BRIM_EINVAL, "t.yaml:2:11", "twice"},
    {"lr: [1, 2]\nzip: lr\n", BRIM_EINVAL, "t.yaml:2:6", "zip takes"},
    {"lr: [1, 2]\nzip: [lr, foo]\n", BRIM_EINVAL, "t.yaml:2:11", "unknown key"},
    {"lr: [1, 2]\nexclude: [{lr: [1, 2]}]\n", BRIM_EINVAL, "t.yaml:2:10", "no point"},
    {"lr: [1, 2]\nexclude: {lr: 1}\n", BRIM_EINVAL, "t.yaml:2:10", "exclude takes"},
    {"lr: [1, 2]\nexclude: [{lrr: 1}]\n", BRIM_EINVAL, "t.yaml:2:12", "unknown key"},
    {"include: [a, {b: 1}]\n", BRIM_ENOENT, "t.yaml:1:11", "a"},
    {"include: {a: b}\n", BRIM_EINVAL, "t.yaml:1:10", "include takes"},
};

static void every_malformed_file_is_placed(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
    const bad *b = &malformed[i];
    assert_refused(BRIM_CONFIG_RUN, b->text, b->status, WORDS(b->place, b->word));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(core_schema_numbers), cmocka_unit_test(core_schema_is_not_yaml_1_1),
      cmocka_unit_test(null_is_the_default), cmocka_unit_test(byte_order_mark),
      cmocka_unit_test(anchors_and_merge),   cmocka_unit_test(spellings_meet),
      cmocka_unit_test(empty_documents),     cmocka_unit_test(every_malformed_file_is_placed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
