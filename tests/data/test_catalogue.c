// The config's catalogue against the sources: for a built-in dataset, its source takes every argument that the
// catalogue allows, alone and with all the others, and the argument has an effect.
#include "config/config_int.h"
#include "data_test.h"

// A value for every argument. One that is missing here is new and needs a test.
static const struct {
  const char *dataset, *arg, *value;
} values[] = {
    {"idx", "path", "set"},
    {"idx", "split", "test"},
    {"idx", "limit", "5"},
    {"idx", "classes", "12"},
    {"idx", "labels", "set/other"},
    {"numpy", "path", "set"},
    {"numpy", "split", "test"},
    {"numpy", "limit", "5"},
    {"numpy", "inputs", "z"},
    {"numpy", "targets", "t"},
    {"numpy", "classes", "12"},
    {"numpy", "layout", "NCL"},
    {"synthetic", "shape", "[4, 4, 3]"},
    {"synthetic", "classes", "0"},
    {"synthetic", "targets", "2"},
    {"synthetic", "samples", "50"},
    {"synthetic", "val_samples", "20"},
    {"synthetic", "seed", "3"},
    {"synthetic", "dtype", "f32"},
    {"synthetic", "noise", "0.5"},
    {"synthetic", "split", "val"},
    {"synthetic", "unlabeled_samples", "9"},
    {"cifar10", "path", "set"},
    {"cifar10", "split", "test"},
    {"cifar10", "limit", "5"},
    {"cifar100", "path", "set"},
    {"cifar100", "split", "test"},
    {"cifar100", "limit", "5"},
};

static const char *value_of(const char *dataset, const char *arg) {
  if (!strcmp(arg, "part")) return "(0, 0.5)";
  if (!strcmp(arg, "indices")) return "set/list.txt";
  const char *name = strcmp(dataset, "mnist") ? dataset : "idx";
  for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
    if (!strcmp(values[i].dataset, name) && !strcmp(values[i].arg, arg)) return values[i].value;
  }
  fail_msg("%s has a new argument '%s': give it a value here", dataset, arg);
  return NULL;
}

// n records of one value each.
static void write_cifar(const char *path, size_t label_bytes, uint8_t first, uint8_t n) {
  bytes b;
  b.size = 0;
  for (uint8_t i = first; i < first + n; i++) {
    uint8_t record[2 + 3072];
    memset(record, i, sizeof record);
    put(&b, record, label_bytes + 3072);
  }
  write_bytes(path, b.data, b.size);
}

// n rows of 4 x 5 bytes, or n labels; the first value differs from the others.
static void write_npy(const char *path, bool labels, int n, uint8_t first) {
  bytes b;
  b.size = 0;
  char text[128];
  int size =
      snprintf(text, sizeof text, "{'descr': '|u1', 'fortran_order': False, 'shape': (%d%s)}", n,
               labels ? "," : ", 4, 5");
  uint8_t head[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (uint8_t)size, 0};
  put(&b, head, sizeof head);
  put(&b, text, (size_t)size);
  for (int i = 0; i < n * (labels ? 1 : 20); i++) {
    uint8_t v = i ? (uint8_t)(labels ? i % 10 : i) : first;
    put(&b, &v, 1);
  }
  write_bytes(path, b.data, b.size);
}

static void write_set(void) {
  bytes b;
  assert_ok(brim_fs_mkdirs("set"));
  for (int test = 0; test < 2; test++) {
    make_images(test ? 12 : 30, 4, 5, &b);
    write_bytes(test ? "set/t10k-images-idx3-ubyte" : "set/train-images-idx3-ubyte", b.data,
                b.size);
    make_labels(test ? 12 : 30, &b);
    write_bytes(test ? "set/t10k-labels-idx1-ubyte" : "set/train-labels-idx1-ubyte", b.data,
                b.size);
  }
  write_npy("set/x_train.npy", false, 30, 0);
  write_npy("set/x_test.npy", false, 12, 1);
  write_npy("set/z_train.npy", false, 30, 2);
  write_npy("set/z_test.npy", false, 12, 3);
  write_npy("set/y_train.npy", true, 30, 0);
  write_npy("set/y_test.npy", true, 12, 0);
  write_npy("set/t_train.npy", true, 30, 9);
  write_npy("set/t_test.npy", true, 12, 9);
  b.data[8] = 9;  // 12 in the test split
  write_bytes("set/other", b.data, b.size);
  for (int i = 1; i <= 5; i++) {
    char path[64];
    snprintf(path, sizeof path, "set/data_batch_%d.bin", i);
    write_cifar(path, 1, (uint8_t)(i - 1), 2);
  }
  write_cifar("set/test_batch.bin", 1, 2, 6);
  write_cifar("set/train.bin", 2, 1, 8);
  write_cifar("set/test.bin", 2, 2, 6);
  write_bytes("set/list.txt", "4 # the fifth\n1\n3\n2\n", 20);
}

// Opens `dataset: name(args)`, written as in a config, as a workload does.
static void open_text(const char *expression, const char *path, brim_source **out) {
  char text[512];
  snprintf(text, sizeof text, "dataset: \"%s\"\n", expression);
  brim_config_options options = {.text = text, .text_name = "t.yaml", .mode = BRIM_CONFIG_RUN};
  brim_config *config;
  brim_status status = brim_config_load(&options, &config);
  if (status) fail_msg("%s: %s", expression, brim_status_detail());
  const brim_component *c = brim_config_component(config, "dataset", NULL);
  status = brim_source_open(NULL, c, path, NULL, 1, out);
  if (status) fail_msg("%s: %s", expression, brim_status_detail());
  brim_config_close(config);
}

static bool same_source(brim_source *a, brim_source *b) {
  if (a->info.count != b->info.count || a->info.classes != b->info.classes ||
      a->info.target_dim != b->info.target_dim || a->input_bytes != b->input_bytes ||
      a->target_bytes != b->target_bytes) {
    return false;
  }
  uint8_t in_a[4096], in_b[4096], to_a[64], to_b[64];
  assert_true(a->input_bytes <= sizeof in_a && a->target_bytes <= sizeof to_a);
  assert_ok(brim_source_read(a, 0, 1, in_a, to_a, NULL, NULL));
  assert_ok(brim_source_read(b, 0, 1, in_b, to_b, NULL, NULL));
  return !memcmp(in_a, in_b, a->input_bytes) && !memcmp(to_a, to_b, a->target_bytes);
}

static void each_argument_alone(const brim_config_component_row *row) {
  bool files = strcmp(row->name, "synthetic") != 0;
  for (size_t i = 0; i < row->arg_count; i++) {
    const char *arg = row->args[i].name;
    char text[256];
    // Some arguments need another one to show an effect: targets as numbers instead of classes, labels of another
    // length, another split to see val_samples.
    const char *with = !strcmp(arg, "targets")             ? ", classes=0"
                       : !strcmp(arg, "labels")            ? ", split=test"
                       : !strcmp(arg, "val_samples")       ? ", split=val"
                       : !strcmp(arg, "unlabeled_samples") ? ", split=unlabeled"
                       : !files && !strcmp(arg, "classes") ? ", targets=2"
                                                           : "";
    snprintf(text, sizeof text, "%s(%s=%s%s)", row->name, arg, value_of(row->name, arg), with);
    brim_source *s, *plain;
    open_text(text, files && strcmp(arg, "path") ? "set" : NULL, &s);
    snprintf(text, sizeof text, "%s%s%s%s", row->name, *with ? "(" : "",
             !strcmp(arg, "labels") || !strcmp(arg, "val_samples") ? with + 2 : "",
             *with ? ")" : "");
    open_text(text, files ? "set" : NULL, &plain);
    // A path is another form of data.path: the same data. Every other argument changes something.
    if (same_source(s, plain) != !strcmp(arg, "path")) fail_msg("%s: '%s'", row->name, arg);
    brim_source_close(plain);
    brim_source_close(s);
  }
}

static void all_arguments_together(const brim_config_component_row *row) {
  brim_str text;
  brim_str_init(&text);
  brim_str_printf(&text, "%s(", row->name);
  for (size_t i = 0; i < row->arg_count; i++) {
    const char *arg = row->args[i].name;
    brim_str_printf(&text, "%s%s=%s", i ? ", " : "", arg, value_of(row->name, arg));
  }
  brim_str_append(&text, ")");
  assert_ok(brim_str_status(&text));
  brim_source *s;
  open_text(text.data, "nowhere", &s);
  brim_str_deinit(&text);
  // half of the four in the index
  uint8_t input[3072];
  int32_t target[2] = {-1, -1};
  assert_int_equal(s->info.count, 2);
  assert_true(s->input_bytes <= sizeof input);
  assert_ok(brim_source_read(s, 0, 1, input, target, NULL, NULL));
  assert_status(brim_source_read(s, 2, 1, input, target, NULL, NULL), BRIM_EINVAL);
  if (!strcmp(row->name, "synthetic")) {
    assert_int_equal(s->info.target_dim, 2);
    assert_int_equal(s->input_bytes, 4 * 4 * 3 * 4);
  } else if (brim_str_starts(row->name, "cifar")) {
    assert_true(target[0] >= 3 && target[0] <= 6);  // samples 1 to 4 of labels from 2 on
  } else {
    assert_int_equal(s->info.classes, 12);
    assert_true(target[0] >= 1 && target[0] <= 4);
  }
  brim_source_close(s);
}

static void arguments_of_built_in_sources(void **state) {
  (void)state;
  static const char *const names[] = {"idx", "mnist", "numpy", "synthetic", "cifar10", "cifar100"};
  write_set();
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const brim_config_component_row *row = brim_config_component_find("dataset", names[i]);
    assert_non_null(row);
    each_argument_alone(row);
    all_arguments_together(row);
  }
}

// Sources whose files other tests make (test_hdf5, test_stl10, test_folder) know at least the names: the missing file
// is the error, not an argument.
static void arguments_are_known(void **state) {
  (void)state;
  static const struct {
    const char *name, *args;
  } rows[] = {
      {"hdf5",
       "split=train, limit=3, inputs=[x], targets=[y], classes=4, layout=NHWC, nan=0, "
       "chunk_cache=1MiB"},
      {"stl10", "split=train, limit=3, fold=2"},
      {"folder", "split=train, limit=3, color=gray, strict=false"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char text[256];
    snprintf(text, sizeof text, "dataset: \"%s(%s)\"\n", rows[i].name, rows[i].args);
    brim_config_options options = {.text = text, .text_name = "t.yaml", .mode = BRIM_CONFIG_RUN};
    brim_config *config;
    assert_ok(brim_config_load(&options, &config));
    const brim_component *c = brim_config_component(config, "dataset", NULL);
    brim_source *s;
    assert_status(brim_source_open(NULL, c, "nowhere", NULL, 1, &s), BRIM_ENOENT);
    const brim_config_component_row *row = brim_config_component_find("dataset", rows[i].name);
    for (size_t a = 0; a < row->arg_count; a++) {
      const char *arg = row->args[a].name;
      bool common = !strcmp(arg, "path") || !strcmp(arg, "part") || !strcmp(arg, "indices");
      if (!common && !strstr(rows[i].args, arg)) fail_msg("%s: new argument %s", row->name, arg);
    }
    brim_config_close(config);
  }
}

// data can build every transform of the catalogue with its defaults, and reads the arguments that the catalogue has.
static void transforms_of_the_catalogue(void **state) {
  (void)state;
  brim_source *s;
  open_text("synthetic(shape=(8, 8, 3))", NULL, &s);
  int made = 0;
  for (size_t i = 0; i < brim_config_component_count(); i++) {
    const brim_config_component_row *row = brim_config_component_at(i);
    if (strcmp(row->category, "transform")) continue;
    bool sized = brim_config_arg_find(row, "size") && brim_config_arg_find(row, "size")->required;
    char text[128];
    snprintf(text, sizeof text, "transform: \"%s%s\"\n", row->name, sized ? "(size=4)" : "");
    brim_config_options options = {.text = text, .text_name = "t.yaml", .mode = BRIM_CONFIG_RUN};
    brim_config *config;
    assert_ok(brim_config_load(&options, &config));
    const brim_pipeline *pipeline = brim_config_pipeline(config, "transform", "train");
    brim_transforms *t;
    brim_status status = brim_transforms_create(pipeline, s, 1, true, &t);
    if (status) fail_msg("%s: %s", row->name, brim_status_detail());
    made++;
    // entries that only define the conversion to numbers, or the number of views, have no stage
    bool stage = strcmp(row->name, "normalize") && strcmp(row->name, "to_tensor") &&
                 strcmp(row->name, "views");
    assert_int_equal(brim_transforms_count(t), stage);
    assert_int_equal(brim_transforms_views(t), strcmp(row->name, "views") ? 1 : 2);
    int64_t side = sized ? 4 : strcmp(row->name, "pad") ? 8 : 16;
    assert_int_equal(brim_transforms_info(t)->dim[0], side);
    brim_transforms_destroy(t);
    brim_config_close(config);
  }
  assert_int_equal(made, 16);
  brim_source_close(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(arguments_of_built_in_sources),
      cmocka_unit_test(arguments_are_known),
      cmocka_unit_test(transforms_of_the_catalogue),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
