// Rows that a workload adds work like brim's own, and a faulty section adds nothing.
#include "config/config_rows.h"

#include "config_test.h"

#define NONE BRIM_KEY_NO_NAMES

static const brim_config_arg gate_args[] = {
    BRIM_ARG_INT("height", "3", 1, 9, "height of the gate"),
    BRIM_ARG_CHOICE("side", "left", "left|right", "where it opens"),
};
static const brim_config_component_row gates[] = {
    BRIM_COMPONENT("model", "gate", gate_args, "a gate"),
    BRIM_COMPONENT_BARE("env", "field", "a field"),
};
static const brim_config_row keys[] = {
    BRIM_KEY_INT("shep.height", NULL, 1, 9, BRIM_KEY_NAMES("sheep_height"), BRIM_CONFIG_SAVED_OWN,
                 "height of the gate, as a key"),
    BRIM_KEY_FLOAT("shep.wool", "0.5", 0, 1, NONE, BRIM_CONFIG_SAVED_OWN, "share of wool"),
    BRIM_KEY_BOOL("shep.dog", "true", NONE, BRIM_CONFIG_SAVED_OWN, "a dog helps"),
    BRIM_KEY_STRINGS("shep.names", NULL, NONE, BRIM_KEY_NAMES("dolly", "shaun"), 0,
                     "names of sheep"),
    BRIM_KEY_CHOICE("shep.coat", "white", NONE, BRIM_KEY_NAMES("white", "black"), 0, "colour"),
    BRIM_KEY_BYTES("shep.food", "1KiB", NONE, 0, "bytes of food"),
    BRIM_KEY_STRING("shep.whistle", NULL, NONE, BRIM_CONFIG_NEVER_AXIS, "a tune"),
    BRIM_KEY_INTS("shep.herds", NULL, 1, 99, NONE, BRIM_CONFIG_SWEPT, "sizes to try"),
    BRIM_KEY_INT("shep.wolves", "0", 0, 9, NONE, BRIM_CONFIG_LATER, "wolves, not yet"),
};
static const brim_config_preset_row presets[] = {{"h200", "shep.wool", "0.75"},
                                                 {"cpu", "shep.wool", "0.25"}};
static const brim_config_link links[] = {{"model", "height", "shep.height", false}};

enum { KEYS = sizeof keys / sizeof *keys };

static void refused(const char *name, const brim_config_section *section, const char *word) {
  const size_t had_keys = brim_config_key_count(), had = brim_config_component_count();
  assert_status(brim_config_add_workload(name, section), BRIM_EINVAL);
  if (!strstr(brim_status_detail(), word)) fail_msg("no '%s' in: %s", word, brim_status_detail());
  assert_int_equal(brim_config_key_count(), had_keys);
  assert_int_equal(brim_config_component_count(), had);
  brim_config *config;
  char text[64];
  snprintf(text, sizeof text, "workload: %s\n", name);
  if (strcmp(name, "shep") == 0) assert_status(load(BRIM_CONFIG_RUN, text, &config), BRIM_EINVAL);
}

static const brim_config_row foreign[] = {BRIM_KEY_BOOL("shep.dog", "true", NONE, 0, "a dog helps"),
                                          BRIM_KEY_BOOL("goat.dog", "true", NONE, 0, "another's")};
static const brim_config_row twice[] = {BRIM_KEY_BOOL("shep.dog", "true", NONE, 0, "a dog"),
                                        BRIM_KEY_BOOL("shep.dog", "true", NONE, 0, "a dog")};
static const brim_config_row alias[] = {
    BRIM_KEY_INT("shep.rate", "1", 0, 9, BRIM_KEY_NAMES("lr"), 0, "an alias of another key")};
static const brim_config_component_row known[] = {
    BRIM_COMPONENT("model", "gate", gate_args, "a gate"),
    BRIM_COMPONENT_BARE("model", "mlp", "there already")};
static const brim_config_link lost[] = {{"model", "height", "shep.depth", false}};

static void what_is_wrong_adds_nothing(void **state) {
  (void)state;
  refused("shep", &(brim_config_section){.keys = foreign, .key_count = 2}, "goat.dog");
  refused("shep", &(brim_config_section){.keys = twice, .key_count = 2}, "a key shep.dog already");
  refused("shep", &(brim_config_section){.keys = alias, .key_count = 1}, "a key lr already");
  refused("shep",
          &(brim_config_section){
              .keys = keys, .key_count = KEYS, .components = known, .component_count = 2},
          "model mlp");
  refused("shep",
          &(brim_config_section){.keys = keys,
                                 .key_count = KEYS,
                                 .links = lost,
                                 .link_count = 1,
                                 .components = gates,
                                 .component_count = 2},
          "shep.depth");
  const brim_config_preset_row unknown[] = {{"h200", "seed", "3"}, {"h300", "seed", "3"}};
  refused("shep", &(brim_config_section){.presets = unknown, .preset_count = 2}, "no preset h300");
  const brim_config_preset_row keyless[] = {{"h200", "shep.wool", "0.75"}};
  refused("shep", &(brim_config_section){.presets = keyless, .preset_count = 1}, "shep.wool");
  brim_config *config = must_load(BRIM_CONFIG_RUN, "preset: h200\n");
  assert_key(config, "seed", "0");
  brim_config_close(config);
  refused("supervised", NULL, "supervised");
  refused("mappo", NULL, "mappo");
  refused("command", NULL, "command");
}

static void a_section_is_known(void **state) {
  (void)state;
  const brim_config_section section = {keys, KEYS, links, 1, gates, 2, presets, 2, NULL, NULL};
  assert_ok(brim_config_add_workload("shep", &section));
  assert_status(brim_config_add_workload("shep", &section), BRIM_EINVAL);
  assert_non_null(strstr(brim_status_detail(), "there is a key shep.height already"));
  brim_config *config = must_load(BRIM_CONFIG_RUN,
                                  "workload: shep\nmodel: gate(side=right)\nsheep_height: 7\n"
                                  "shep: {names: [dolly, shaun], coat: black, food: 2KiB}\n");
  assert_int_equal(brim_component_int(brim_config_component(config, "model", NULL), "height", 0),
                   7);
  const char *const *names;
  size_t count;
  assert_ok(brim_config_get_strings(config, "shep.names", &names, &count));
  assert_int_equal(count, 2);
  assert_string_equal(names[1], "shaun");
  assert_int_equal(brim_config_int(config, "shep.food"), 2048);
  assert_key(config, "shep.wool", "0.5");
  brim_config_close(config);
  config = must_load(BRIM_CONFIG_RUN, "preset: h200\n");
  assert_key(config, "shep.wool", "0.75");
  assert_string_equal(brim_config_origin(config, "shep.wool"), "preset h200");
  brim_config_close(config);
  config = must_load(BRIM_CONFIG_RUN, "preset: auto\n");
  assert_key(config, "shep.wool", "0.25");
  brim_config_close(config);
  assert_refused(BRIM_CONFIG_RUN, "shep: {coat: blue}\n", BRIM_EINVAL, WORDS("shep.coat", "black"));
  assert_refused(BRIM_CONFIG_RUN, "shep: {wol: 1}\n", BRIM_EINVAL, WORDS("shep.wool"));
  assert_refused(BRIM_CONFIG_RUN, "model: gate(height=10)\n", BRIM_EINVAL, WORDS("height", "9"));
  assert_refused(BRIM_CONFIG_RUN, "workload: shap\n", BRIM_EINVAL,
                 WORDS("mappo", "shep", "command"));
}

// Each flag of a row has the same effect as for a key of brim.
static void flags_of_a_row(void **state) {
  (void)state;
  const brim_config_key *wool = brim_config_key_find("shep.wool");
  const brim_config_key *names = brim_config_key_find("shep.names");
  assert_true(brim_config_key_is_saved(wool, "shep", BRIM_CONFIG_LEARNS_FROM_DATA));
  assert_false(brim_config_key_is_saved(wool, "ars", BRIM_CONFIG_LEARNS_IN_ENV));
  assert_false(brim_config_key_is_saved(names, "shep", BRIM_CONFIG_LEARNS_FROM_DATA));
  assert_true(brim_config_key_is_swept(brim_config_key_find("shep.herds")));
  assert_false(brim_config_key_is_swept(wool));
  assert_false(brim_config_key_is_used(brim_config_key_find("shep.wolves")));
  assert_true(brim_config_key_is_used(names));
  assert_true(brim_config_is_section("shep"));
}

static size_t place_of(const char *key) {
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    if (!strcmp(brim_config_key_at(i)->name, key)) return i;
  }
  fail_msg("no key %s", key);
  return 0;
}

// `config explain` lists sections in the order of the workloads, keys without effect last, and models after models.
static void places(void **state) {
  (void)state;
  assert_true(place_of("benchmark.test_pin_memory") < place_of("contrastive.accumulation"));
  assert_true(place_of("contrastive.probe_epochs") < place_of("ars.num_envs"));
  assert_true(place_of("ars.phase") < place_of("mappo.num_envs"));
  assert_true(place_of("mappo.max_steps") < place_of("shep.height"));
  assert_true(place_of("shep.wolves") < place_of("include"));
  brim_str text;
  brim_str_init(&text);
  assert_ok(brim_config_explain("model", &text));
  assert_non_null(strstr(text.data, "linear simclr linear_policy mlp_policy actor_critic gate\n"));
  brim_str_clear(&text);
  assert_ok(brim_config_explain("env", &text));
  assert_non_null(strstr(text.data, "quadruped cartpole uav field\n"));
  brim_str_clear(&text);
  assert_status(brim_config_explain("shepp", &text), BRIM_ENOENT);
  assert_non_null(strstr(brim_status_detail(), "did you mean 'shep'"));
  brim_str_deinit(&text);
}

// num_envs and iterations are short for keys of ars. With another workload that has such keys they mean that
// workload's, wherever they are written.
static void short_names(void **state) {
  (void)state;
  brim_config *config = must_load(BRIM_CONFIG_RUN, "num_envs: 64\niterations: 7\n");
  assert_key(config, "ars.num_envs", "64");
  brim_config_close(config);
  config = must_load(BRIM_CONFIG_RUN, "num_envs: 64\niterations: 7\nworkload: mappo\n");
  assert_int_equal(brim_config_int(config, "mappo.num_envs"), 64);
  assert_key(config, "mappo.iterations", "7");
  assert_key(config, "ars.num_envs", "128");
  brim_config_close(config);
  // a full key name is never redirected; a short name that the workload lacks keeps its meaning
  config = must_load(BRIM_CONFIG_RUN, "workload: mappo\nars.num_envs: 64\nnum_dirs: 4\n");
  assert_key(config, "ars.num_envs", "64");
  assert_key(config, "ars.num_dirs", "4");
  brim_config_close(config);
  config = must_load(BRIM_CONFIG_RUN,
                     "workload: mappo\nnum_envs: [64, 128]\niterations: [2, 3]\n"
                     "zip: [num_envs, iterations]\nexclude: [{num_envs: 64}]\n");
  assert_int_equal(brim_config_grid_count(config), 1);
  brim_config *point = NULL;
  assert_ok(brim_config_grid_point(config, 0, &point));
  assert_int_equal(brim_config_int(point, "mappo.num_envs"), 128);
  assert_key(point, "mappo.iterations", "3");
  brim_config_close(point);
  brim_config_close(config);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_wrong_adds_nothing),
      cmocka_unit_test(a_section_is_known),
      cmocka_unit_test(flags_of_a_row),
      cmocka_unit_test(places),
      cmocka_unit_test(short_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
