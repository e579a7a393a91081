// Hostile input stays cheap, and ends in BRIM_ELIMIT with a place.
#include "base/base.h"
#include "config_test.h"

static brim_str text;

static void assert_limit(const char *word) {
  assert_ok(brim_str_status(&text));
  brim_config *config;
  assert_status(load(BRIM_CONFIG_CHECK, text.data, &config), BRIM_ELIMIT);
  if (!strstr(brim_status_detail(), word)) fail_msg("no '%s': %s", word, brim_status_detail());
  if (!strstr(brim_status_detail(), "t.yaml:")) fail_msg("no place: %s", brim_status_detail());
  brim_str_clear(&text);
}

static void depth(void **state) {
  (void)state;
  brim_str_append(&text, "tags: ");
  brim_str_repeat(&text, '[', 40);
  assert_limit("deeper than 32");
  brim_str_append(&text, "tags: ");
  brim_str_repeat(&text, '[', 1000000);
  assert_limit("deeper than 32");
  for (int i = 0; i < 40; i++) {
    brim_str_repeat(&text, ' ', (size_t)i);
    brim_str_append(&text, "a:\n");
  }
  assert_limit("deeper than 32");
  brim_str_append(&text,
                  "x-a: &a [[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]\n"
                  "x-b: [[[[[[[[[[[[[[[*a]]]]]]]]]]]]]]]\n");
  assert_limit("deeper than 32");
  // 31 lists in a map are just allowed.
  brim_str_append(&text, "x-a: ");
  brim_str_repeat(&text, '[', 31);
  brim_str_repeat(&text, ']', 31);
  brim_config_close(must_load(BRIM_CONFIG_RUN, text.data));
  brim_str_clear(&text);
}

static void alias_bomb(void **state) {
  (void)state;
  brim_str_append(&text, "x-0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n");
  for (int i = 1; i < 10; i++) {
    brim_str_printf(&text, "x-%d: &a%d [", i, i);
    for (int k = 0; k < 10; k++) brim_str_printf(&text, "*a%d, ", i - 1);
    brim_str_append(&text, "]\n");
  }
  assert_limit("200000 values");
  brim_str_append(&text, "x-0: &a 1\nx-1: [");
  for (int i = 0; i < 1001; i++) brim_str_append(&text, "*a, ");
  brim_str_append(&text, "]\n");
  assert_limit("more than 1000 aliases");
  brim_str_append(&text, "x-1: [");
  for (int i = 0; i < 1001; i++) brim_str_printf(&text, "&a%d 1, ", i);
  brim_str_append(&text, "]\n");
  assert_limit("more than 1000 anchors");
  brim_str_append(&text, "x-m: &m {");
  for (int i = 0; i < 900; i++) brim_str_printf(&text, "k%d: [1,1,1,1,1,1,1,1,1,1], ", i);
  brim_str_append(&text, "}\nx-n: [");
  for (int i = 0; i < 300; i++) brim_str_append(&text, "{<<: *m}, ");
  brim_str_append(&text, "]\n");
  assert_limit("200000 values");
}

static void sizes(void **state) {
  (void)state;
  brim_str_append(&text, "# ");
  brim_str_repeat(&text, 'x', BRIM_CONFIG_MAX_BYTES);
  assert_limit("larger than");
  brim_str_append(&text, "x-1: [");
  for (int i = 0; i < 200001; i++) brim_str_append(&text, "1, ");
  brim_str_append(&text, "]\n");
  assert_limit("200000 values");
  for (int i = 0; i < 1025; i++) brim_str_printf(&text, "x-%d: 1\n", i);
  assert_limit("1024 keys");
  brim_str_append(&text, "batch_sizes: [");
  for (int i = 0; i < 10001; i++) brim_str_append(&text, "1, ");
  brim_str_append(&text, "]\n");
  assert_limit("10000 items");
  brim_str_append(&text, "transform: \"");
  for (int i = 0; i < 300; i++) brim_str_append(&text, "pad | ");
  brim_str_append(&text, "pad\"\n");
  assert_limit("256 stages");
  brim_str_append(&text, "model: \"mlp(");
  for (int i = 0; i < 65; i++) brim_str_printf(&text, "a%d=1, ", i);
  brim_str_append(&text, ")\"\n");
  assert_limit("64 arguments");
  brim_str_append(&text, "model: ");
  brim_str_repeat(&text, 'm', 70000);
  assert_limit("65536 bytes");
  // A chain of placeholders that doubles at each step.
  brim_str_append(&text, "data.path: ");
  brim_str_repeat(&text, 'd', 20000);
  brim_str_append(&text, "\nname: \"{{data.path}}{{data.path}}\"\n");
  brim_str_append(&text, "project: \"{{name}}{{name}}\"\n");
  assert_limit("65536 bytes");
}

static void grids(void **state) {
  (void)state;
  static const char *const keys[] = {"seed", "epochs", "batch_size", "num_workers"};
  for (int k = 0; k < 4; k++) {
    brim_str_printf(&text, "%s: [", keys[k]);
    for (int i = 0; i < 20; i++) brim_str_printf(&text, "%d, ", i + 1);
    brim_str_append(&text, "]\n");
  }
  assert_limit("more than 100000 points");
  brim_str_append(&text, "seed: [");
  for (int i = 0; i < 100001; i++) brim_str_append(&text, "1, ");
  brim_str_append(&text, "]\n");
  assert_limit("more than 100000 points");
  // The largest allowed grid, and its last point.
  brim_str_append(&text, "seed: [");
  for (int i = 0; i < 1000; i++) brim_str_printf(&text, "%d, ", i);
  brim_str_append(&text, "]\nepochs: [");
  for (int i = 0; i < 100; i++) brim_str_printf(&text, "%d, ", i);
  brim_str_append(&text, "]\n");
  brim_config *config = must_load(BRIM_CONFIG_RUN, text.data), *point;
  assert_int_equal(brim_config_grid_count(config), 100000);
  assert_ok(brim_config_grid_point(config, 99999, &point));
  assert_key(point, "seed", "999");
  assert_key(point, "epochs", "99");
  brim_config_close(point);
  brim_config_close(config);
  brim_str_append(&text, "exclude: [");
  for (int i = 0; i < 250; i++) brim_str_append(&text, "{seed: [1,2,3,4,5,6,7,8,9,10]}, ");
  brim_str_append(&text, "]\n");
  assert_limit("exclude is too large");
}

int main(void) {
  brim_str_init(&text);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(depth),
      cmocka_unit_test(alias_bomb),
      cmocka_unit_test(sizes),
      cmocka_unit_test(grids),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  brim_str_deinit(&text);
  return failed;
}
