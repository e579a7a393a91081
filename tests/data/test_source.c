// Opening sources by component: synthetic data, plug-ins, arguments, messages.
#include <math.h>

#include "data_test.h"

static void test_synthetic_defaults(void **state) {
  (void)state;
  brim_source *s, *t;
  assert_ok(open_source("synthetic", NULL, 0, NULL, "train", &s));
  assert_int_equal(s->info.count, 10000);
  assert_int_equal(s->info.rank, 2);
  assert_int_equal(s->input_bytes, 784);
  assert_int_equal(s->info.classes, 10);
  assert_int_equal(s->host_bytes, 0);
  assert_ok(open_source("synthetic", NULL, 0, NULL, "val", &t));
  assert_int_equal(t->info.count, 2000);
  // Splits have different samples, and a sample is always the same.
  uint8_t a[784], b[784];
  int32_t la, lb;
  assert_ok(s->table->read(s->state, 17, a, &la));
  assert_ok(s->table->read(s->state, 17, b, &lb));
  assert_memory_equal(a, b, 784);
  assert_int_equal(la, lb);
  assert_ok(t->table->read(t->state, 17, b, &lb));
  assert_memory_not_equal(a, b, 784);
  brim_source_close(t);
  brim_source_close(s);
}

// Learnable: the class with the nearest mean (over the first samples) is right for nearly all samples of the other
// split. And the suggested normalisation agrees with the data.
static void test_synthetic_learnable(void **state) {
  (void)state;
  enum { F = 48, CLASSES = 4, TRAIN = 400, TEST = 200 };
  brim_value dims[] = {{.kind = BRIM_VALUE_INT, .integer = 4},
                       {.kind = BRIM_VALUE_INT, .integer = 4},
                       {.kind = BRIM_VALUE_INT, .integer = 3}};
  brim_argument args[] = {
      {.name = "shape", .value = {.kind = BRIM_VALUE_LIST, .items = dims, .count = 3}},
      arg_int("classes", CLASSES),
      arg_int("samples", TRAIN),
      arg_int("val_samples", TEST),
      arg_float("noise", 0.5),
      arg_int("seed", 3),
  };
  brim_source *s, *t;
  assert_ok(open_source("synthetic", args, 6, NULL, "train", &s));
  assert_ok(open_source("synthetic", args, 6, NULL, "test", &t));
  assert_int_equal(s->info.channels, 3);
  double mean[CLASSES][F] = {0}, count[CLASSES] = {0}, sum = 0, squares = 0;
  uint8_t x[F];
  int32_t label;
  for (uint64_t i = 0; i < TRAIN; i++) {
    assert_ok(s->table->read(s->state, i, x, &label));
    assert_in_range(label, 0, CLASSES - 1);
    count[label]++;
    for (int e = 0; e < F; e++) {
      mean[label][e] += x[e];
      sum += x[e] / 255.0;
      squares += (x[e] / 255.0) * (x[e] / 255.0);
    }
  }
  for (int c = 0; c < CLASSES; c++) {
    assert_true(count[c] > TRAIN / CLASSES / 2);
    for (int e = 0; e < F; e++) mean[c][e] /= count[c];
  }
  double m = sum / (TRAIN * F), sd = sqrt(squares / (TRAIN * F) - m * m);
  assert_true(fabs(m - s->info.mean[0]) < 0.05 && fabs(sd - s->info.std[0]) < 0.05);
  int right = 0;
  for (uint64_t i = 0; i < TEST; i++) {
    assert_ok(t->table->read(t->state, i, x, &label));
    int best = 0;
    double best_distance = INFINITY;
    for (int c = 0; c < CLASSES; c++) {
      double d = 0;
      for (int e = 0; e < F; e++) d += (x[e] - mean[c][e]) * (x[e] - mean[c][e]);
      if (d < best_distance) best_distance = d, best = c;
    }
    right += best == label;
  }
  assert_true(right > TEST * 95 / 100);
  brim_source_close(t);
  brim_source_close(s);
}

static void test_synthetic_floats(void **state) {
  (void)state;
  brim_argument args[] = {arg_int("shape", 6), arg_string("dtype", "f32"), arg_int("classes", 0),
                          arg_int("targets", 3), arg_int("samples", 50)};
  brim_source *s;
  assert_ok(open_source("synthetic", args, 5, NULL, "train", &s));
  assert_int_equal(s->info.type, BRIM_SAMPLE_F32);
  assert_int_equal(s->input_bytes, 24);
  assert_int_equal(s->target_bytes, 12);
  float x[6], y[3], low = INFINITY, high = -INFINITY;
  for (uint64_t i = 0; i < 50; i++) {
    assert_ok(s->table->read(s->state, i, x, y));
    for (int e = 0; e < 6; e++) assert_true(x[e] >= 0 && x[e] < 1);
    for (int k = 0; k < 3; k++) {
      assert_true(isfinite(y[k]));
      low = fminf(low, y[k]);
      high = fmaxf(high, y[k]);
    }
  }
  assert_true(high > low);
  brim_source_close(s);
}

// A known value: the data of a seed must not change between versions.
static void test_synthetic_pinned(void **state) {
  (void)state;
  brim_source *s;
  uint8_t x[784];
  int32_t label;
  static const uint8_t first[8] = {206, 103, 70, 134, 192, 142, 119, 184};
  assert_ok(open_source("synthetic", NULL, 0, NULL, "train", &s));
  assert_ok(s->table->read(s->state, 0, x, &label));
  assert_int_equal(label, 2);
  assert_memory_equal(x, first, 8);
  brim_source_close(s);
}

static void test_messages(void **state) {
  (void)state;
  brim_source *s;
  assert_status(open_source("sinthetic", NULL, 0, NULL, "train", &s), BRIM_EINVAL);
  assert_detail("did you mean 'synthetic'");
  assert_status(open_source("tapes", NULL, 0, NULL, "train", &s), BRIM_EINVAL);
  assert_detail(
      "choose from idx, mnist, cifar10, cifar100, numpy, stl10, hdf5, folder, synthetic, "
      "plugin:NAME");
  brim_argument bad[] = {arg_int("samples", 0)};
  assert_status(open_source("synthetic", bad, 1, NULL, "train", &s), BRIM_EINVAL);
  assert_detail("samples must be a whole number from 1");
  bad[0] = arg_float("noise", NAN);
  assert_status(open_source("synthetic", bad, 1, NULL, "train", &s), BRIM_EINVAL);
  assert_detail("noise must be a number");
  bad[0] = arg_string("shape", "28x28");
  assert_status(open_source("synthetic", bad, 1, NULL, "train", &s), BRIM_EINVAL);
  assert_detail("shape must be");
  bad[0] = arg_string("dtype", "f16");
  assert_status(open_source("synthetic", bad, 1, NULL, "train", &s), BRIM_EINVAL);
  assert_detail("f16");
  bad[0] = arg_int("classes", 0);
  assert_status(open_source("synthetic", bad, 1, NULL, "train", &s), BRIM_EINVAL);
  assert_detail("targets=N");
  assert_status(open_source("synthetic", NULL, 0, NULL, "tset", &s), BRIM_EINVAL);
  assert_detail("did you mean 'test'");
  assert_status(open_source("synthetic", NULL, 0, NULL, "unlabeled", &s), BRIM_ENOENT);
  assert_detail("synthetic has no split 'unlabeled'; it has train, val, test");
  brim_component c = {
      .name = "synthetic", .args = bad, .arg_count = 1, .file = "a.yaml", .line = 4, .col = 9};
  assert_status(brim_source_open(NULL, &c, NULL, "train", 0, &s), BRIM_EINVAL);
  assert_detail("a.yaml:4:9: synthetic");
}

static const struct {
  const char *name;
  brim_status status;
  const char *detail;
} bad_plugins[] = {
    {"plugin:old", BRIM_EABI, "source ABI 10"},
    {"plugin:hollow", BRIM_EABI, "lacks"},
    {"plugin:shapeless", BRIM_EINVAL, "size 0"},
    {"plugin:halfway", BRIM_EABI, "has size or decode, but not both"},
    {"plugin:unread", BRIM_EABI, "nothing that reads them"},
    {"plugin:uneven", BRIM_EINVAL, "have to be images of bytes"},
    {"plugin:undecoded", BRIM_EABI, "no size and decode"},
    {"plugin:silent", BRIM_EIO, "'plugin:silent' could not be opened"},
    {"plugin:absent", BRIM_ENOENT, "--plugin"},
    {"plugin:", BRIM_EINVAL, "not the name"},
};

static void test_plugin(void **state) {
  (void)state;
  brim_registry *registry;
  brim_source *s;
  assert_ok(brim_registry_create(&registry));
  assert_ok(brim_registry_load(registry, BRIM_TEST_PLUGIN));
  brim_argument inner_args[] = {arg_int("n", 2)};
  brim_component inner = {.name = "blur", .args = inner_args, .arg_count = 1};
  brim_value items[] = {{.kind = BRIM_VALUE_INT, .integer = 1},
                        {.kind = BRIM_VALUE_BOOL, .boolean = true},
                        {.kind = BRIM_VALUE_NULL}};
  brim_argument args[] = {
      arg_string("word", "tea\"pot"),
      arg_float("scale", 0.5),
      {.name = "list", .value = {.kind = BRIM_VALUE_LIST, .items = items, .count = 3}},
      {.name = "inner", .value = {.kind = BRIM_VALUE_COMPONENT, .component = &inner}},
  };
  static const char *expected =
      "{\"word\":\"tea\\\"pot\",\"scale\":0.5,\"list\":[1,true,null],"
      "\"inner\":{\"name\":\"blur\",\"args\":{\"n\":2}}}";
  brim_component c = {.name = "plugin:echo", .args = args, .arg_count = 4};
  assert_ok(brim_source_open(registry, &c, NULL, "anything", 0, &s));
  char text[256] = {0};
  int32_t label;
  assert_true(s->info.count < sizeof text);
  for (uint64_t i = 0; i < s->info.count; i++) {
    assert_ok(s->table->read(s->state, i, &text[i], &label));
  }
  assert_string_equal(text, expected);
  assert_int_equal(s->host_bytes, strlen(expected) + 1);
  brim_source_close(s);

  for (size_t i = 0; i < sizeof bad_plugins / sizeof bad_plugins[0]; i++) {
    brim_component b = {.name = bad_plugins[i].name};
    assert_status(brim_source_open(registry, &b, NULL, "train", 0, &s), bad_plugins[i].status);
    assert_detail(bad_plugins[i].detail);
  }
  // A source may have no target at all.
  brim_component without = {.name = "plugin:targetless"};
  assert_ok(brim_source_open(registry, &without, NULL, "train", 0, &s));
  assert_int_equal(s->target_bytes, 0);
  char first;
  assert_ok(brim_source_read(s, 0, 1, &first, NULL, NULL, NULL));
  assert_int_equal(first, '{');
  brim_source_close(s);
  brim_registry_destroy(registry);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_synthetic_defaults), cmocka_unit_test(test_synthetic_learnable),
      cmocka_unit_test(test_synthetic_floats),   cmocka_unit_test(test_synthetic_pinned),
      cmocka_unit_test(test_messages),           cmocka_unit_test(test_plugin),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
