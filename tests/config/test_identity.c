// The identity of an experiment: which spellings and keys change its id, the config it is stored with, and the group of
// its seeds.
#include "base/base.h"
#include "config_test.h"

#define EMPTY_ID "7aa9c52fae20f300f20d4d8a28ba666b"

typedef struct ids {
  char id[33], group[33];
} ids;

static ids ids_of(const brim_config *config) {
  ids out;
  assert_ok(brim_config_hash(config, BRIM_CONFIG_EXPERIMENT, out.id));
  assert_ok(brim_config_hash(config, BRIM_CONFIG_GROUP, out.group));
  char all[BRIM_CONFIG_IDENTITY_COUNT][33], cost[33];
  assert_ok(brim_config_hashes(config, all));
  assert_ok(brim_config_hash(config, BRIM_CONFIG_COST, cost));
  assert_string_equal(all[BRIM_CONFIG_EXPERIMENT], out.id);
  assert_string_equal(all[BRIM_CONFIG_GROUP], out.group);
  assert_string_equal(all[BRIM_CONFIG_COST], cost);
  assert_int_equal(strlen(out.id), 32);
  return out;
}

static ids ids_of_text(const char *text) {
  brim_config *config = must_load(BRIM_CONFIG_RUN, text);
  ids out = ids_of(config);
  brim_config_close(config);
  return out;
}

static void assert_identity(const char *text, const char *expected) {
  brim_config *config = must_load(BRIM_CONFIG_RUN, text);
  brim_str got;
  brim_str_init(&got);
  assert_ok(brim_config_identity(config, BRIM_CONFIG_EXPERIMENT, &got));
  if (strcmp(got.data, expected)) {
    fail_msg("of:\n%s\nis:\n%s\nexpected:\n%s", text, got.data, expected);
  }
  brim_str_deinit(&got);
  brim_config_close(config);
}

// These texts are hashed, so they may not change between versions.
static void the_text_is_fixed(void **state) {
  (void)state;
  assert_identity("", "");
  assert_identity("lr: 0.5\nbatch_size: 64\nmodel: mlp(hidden=64, depth=2)\n",
                  "data.batch_size 2 64\nmodel 23 mlp(depth=2, hidden=64)\n"
                  "training.learning_rate 3 0.5\n");
  assert_identity("workload: ars\nars.num_envs: 64\nseed: 3\n",
                  "ars.num_envs 2 64\nseed 1 3\nworkload 3 ars\n");
  assert_string_equal(ids_of_text("").id, EMPTY_ID);
}

static void same_experiment(void **state) {
  (void)state;
  static const char *const texts[] = {
      "lr: 0.5\nmodel: mlp(depth=2)\nbatch_size: 64\n",
      // spelling and order
      "data: {batch_size: 0x40}\nmodel: {_type: mlp, depth: 2}\ntraining.learning_rate: 5e-1\n",
      "optimizer: adamw(lr=0.5)\nmodel: mlp\nmodel.depth: 2\nbatch_size: 64\n",
      "optimizer: {_type: adamw, lr: 0.5}\nmodel: mlp(depth=2)\nbatch_size: 64\n",
      // defaults, of keys and of components
      "lr: 0.5\nmodel: mlp(hidden=512, depth=2)\nbatch_size: 64\nepochs: 10\noptimizer: adamw\n"
      "scheduler: constant\nseed: 0\nprecision: fp32\nworkload: supervised\n",
      // place and output of a run
      "lr: 0.5\nmodel: mlp(depth=2)\nbatch_size: 64\ndevice: [0, 1, 2, 3]\ngpus: 2\nper_gpu: auto\n"
      "tags: [a, b]\npriority: 7\noutput_dir: elsewhere\nname: me\nlog.interval: 3\nretries: 0\n"
      "log.tensorboard: true\nstore: there\nresume: auto\n",
      // keys of other workloads, and of bench
      "lr: 0.5\nmodel: mlp(depth=2)\nbatch_size: 64\nars.num_envs: 3\nmappo.gamma: 0.5\n"
      "contrastive.temperature: 0.3\nbenchmark.repeats: 7\nbenchmark.batch_sizes: [1, 2]\n",
  };
  const ids first = ids_of_text(texts[0]);
  for (size_t i = 1; i < sizeof texts / sizeof texts[0]; i++) {
    const ids other = ids_of_text(texts[i]);
    if (strcmp(first.id, other.id)) fail_msg("another id:\n%s", texts[i]);
    assert_string_equal(first.group, other.group);
  }
}

// A key that is also a component's argument has the component's default.
static void defaults_of_components(void **state) {
  (void)state;
  static const char *const adamw[] = {"lr: 0.001\n", "optimizer: adamw(lr=1e-3)\n",
                                      "optimizer: {_type: adamw, lr: 0.001}\n"};
  const ids unset = ids_of_text("");
  for (size_t i = 0; i < 3; i++) assert_string_equal(unset.id, ids_of_text(adamw[i]).id);
  // 0.001 is not sgd's default
  assert_string_not_equal(ids_of_text("optimizer: sgd\n").id,
                          ids_of_text("optimizer: sgd\nlr: 0.001\n").id);
}

static void other_experiments(void **state) {
  (void)state;
  static const char *const texts[] = {
      "",
      "lr: 0.5\n",
      "lr: 0.25\n",
      "optimizer: sgd\n",
      "optimizer: sgd(lr=0.5)\n",
      "seed: 1\n",
      "batch_size: 64\n",
      "model: mlp\n",
      "model: mlp(depth=7)\n",
      "model: linear\n",
      "workload: contrastive\n",
      "workload: ars\n",
      "workload: mappo\n",
      "workload: mappo\ndata.batch_size: 128\n",  // counts minibatches in samples
      "workload: mappo\nmappo.minibatches: 4\n",
      "workload: ars\nars.num_envs: 3\n",
      "workload: ars\nars.num_envs: 4\n",
      "data.path: a\n",
      "data.path: b\n",
      "weights: a.safetensors\n",
      "threads: 3\n",
      "num_workers: 3\n",
      "precision: bf16\n",
      "precision: auto\n",
      "preset: auto\n",
      "preset: h200\n",
      "transform: resize(size=8)\n",
      "transform: {train: resize(size=8)}\n",
      "transform: {val: resize(size=8)}\n",
      "dataset: synthetic(shape=(1, 4, 4))\n",
      "dataset: synthetic(shape=(1, 4, 8))\n",
  };
  enum { COUNT = sizeof texts / sizeof texts[0] };
  ids all[COUNT];
  for (size_t i = 0; i < COUNT; i++) {
    all[i] = ids_of_text(texts[i]);
    for (size_t n = 0; n < i; n++) {
      if (!strcmp(all[i].id, all[n].id)) fail_msg("the same id:\n%s\n%s", texts[i], texts[n]);
      const bool seeds = !strcmp(texts[i], "seed: 1\n") && !*texts[n];
      assert_int_equal(!strcmp(all[i].group, all[n].group), seeds);
    }
    assert_string_not_equal(all[i].id, all[i].group);
  }
}

// The values of `preset: auto` depend on the machine, so they are not part of the id.
static void the_machine_is_no_part(void **state) {
  (void)state;
  static const char *const texts[] = {"preset: auto\n",
                                      "preset: auto\noptimizer: adamw(eps=1e-3)\n"};
  for (size_t i = 0; i < 2; i++) {
    char seen[3][33];
    for (int n = 0; n < 3; n++) {
      const brim_config_facts facts[] = {
          {NULL, 0, 2}, {"NVIDIA H200", 150ull << 30, 16}, {"NVIDIA A100 80GB", 80ull << 30, 64}};
      brim_config_options options = {.text = texts[i], .facts = &facts[n]};
      brim_config *config;
      assert_ok(brim_config_load(&options, &config));
      assert_ok(brim_config_hash(config, BRIM_CONFIG_EXPERIMENT, seen[n]));
      brim_config_close(config);
    }
    assert_string_equal(seen[0], seen[1]);
    assert_string_equal(seen[0], seen[2]);
  }
  // A named preset is short for its values.
  brim_config *config = must_load(BRIM_CONFIG_RUN, "preset: h200\n");
  char text[64];
  snprintf(text, sizeof text, "preset: h200\nbatch_size: %lld\n",
           (long long)brim_config_int(config, "data.batch_size"));
  assert_string_equal(ids_of(config).id, ids_of_text(text).id);
  brim_config_close(config);
}

// Every point of every config in the list: stored and loaded, it is the same experiment.
static const char *const stored[] = {
    "",
    "seed: 7\nlr: [0.1, 1e-4]\nname: \"run-{{lr}}-{{seed}}\"\n",
    "optimizer: sgd(lr=0.5, momentum=0.5)\nscheduler: cosine(warmup=3)\nwarmup_epochs: 2\n",
    "optimizer: [sgd, adam, \"adamw(lr=0.3)\"]\nlr: [0.1, 0.2]\n",
    "transform: {train: \"resize(size=8) | random_flip\", val: resize(size=8)}\nseeds: 2\n",
    "dataset: synthetic(shape=(1, 4, 4), classes=3)\ndataloader: {val: basic(batch_size=9)}\n",
    "data.path: \"a b: 'c' #d\"\ndata.inputs: [x, \"y z\"]\nweights: null\n",
    "workload: mappo\nenv: {_type: uav, num_uavs: [3, 4]}\nrollout_steps: 64\nnum_envs: auto\n",
    "workload: mappo\nenv: uav\nmappo.num_uavs: [3, 4]\ndata.batch_size: 128\n",
    "workload: ars\nenv: quadruped\nars: {num_dirs: [8, 16]}\npreset: auto\n",
    "preset: [auto, h200, a100-40g]\nmodel_size: [small, large]\n",
    "preset: rtx3090-24g\noptimizer: sgd\nbatch_size: 3\n",
    "samples: 3\nlr: loguniform(1e-5, 1)\nmodel: choice(mlp, mlp(depth=3))\nuse_amp: true\n",
    "workload: contrastive\nmodel: resnet18\nloss: ntxent(temperature=0.3)\nlog: {csv: false}\n",
    "precision: [fp32, bf16, auto]\nthreads: 0\nnum_workers: -1\ncheckpoint.best: loss\n",
    "device: [0, 1]\ntags: [a]\nretries: 5\nper_gpu: auto\nstore: x\nbenchmark.repeats: 2\n",
};

static brim_config *with_facts(const char *text, const char *const *overrides, size_t count) {
  static const brim_config_facts facts = {"NVIDIA H200", 150ull << 30, 16};
  brim_config_options options = {.text = text,
                                 .text_name = "t.yaml",
                                 .overrides = overrides,
                                 .override_count = count,
                                 .facts = &facts};
  brim_config *config;
  if (brim_config_load(&options, &config)) fail_msg("%s\n%s", brim_status_detail(), text);
  return config;
}

static char *json_of(const brim_config *config) {
  char *text;
  assert_ok(brim_config_json(config, &text));
  return text;
}

static void assert_stored(const brim_config *point, const char *text) {
  brim_str yaml;
  brim_str_init(&yaml);
  const ids before = ids_of(point);
  assert_ok(brim_config_to_experiment(point, &yaml));
  brim_config *again = with_facts(yaml.data, NULL, 0);
  assert_int_equal(brim_config_grid_count(again), 1);
  const ids after = ids_of(again);
  if (strcmp(before.id, after.id)) fail_msg("of:\n%s\nis stored:\n%s", text, yaml.data);
  assert_string_equal(before.group, after.group);
  // The stored config trains the same: every key has the same value, and is set or not set as before.
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    const char *key = brim_config_key_at(i)->name;
    static const char *const grid[] = {"device",  "tags",  "store",   "per_gpu",
                                       "retries", "seeds", "samples", NULL};
    bool of_grid = brim_str_starts(key, "benchmark.");
    for (const char *const *g = grid; *g; g++) of_grid |= !strcmp(*g, key);
    if (of_grid) {
      assert_false(brim_config_is_set(again, key));
    } else if (brim_config_is_set(point, key) != brim_config_is_set(again, key)) {
      fail_msg("%s is set only before or after:\n%s\nstored:\n%s", key, text, yaml.data);
    }
  }
  assert_null(strstr(yaml.data, "device"));
  brim_str_deinit(&yaml);
  brim_config_close(again);
}

static void stored_configs_load_back(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof stored / sizeof stored[0]; i++) {
    brim_config *config = with_facts(stored[i], NULL, 0);
    for (size_t n = 0; n < brim_config_grid_count(config); n++) {
      brim_config *point;
      assert_ok(brim_config_grid_point(config, n, &point));
      assert_stored(point, stored[i]);
      brim_config_close(point);
    }
    brim_config_close(config);
  }
  const char *const overrides[] = {"preset=h200", "lr=0.125"};
  for (size_t n = 0; n < 2; n++) {
    brim_config *config = with_facts("batch_size: 3\nlr: 0.5\nnum_workers: 3\n", overrides + n, 1);
    assert_stored(config, "with an override");
    brim_config_close(config);
  }
}

// All values, not only those that the id covers.
static void stored_values_are_the_same(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof stored / sizeof stored[0]; i++) {
    if (strstr(stored[i], "device")) continue;
    brim_config *config = with_facts(stored[i], NULL, 0), *point;
    assert_ok(brim_config_grid_point(config, brim_config_grid_count(config) - 1, &point));
    brim_str yaml;
    brim_str_init(&yaml);
    assert_ok(brim_config_to_experiment(point, &yaml));
    const char *const same[] = {"seeds=1", "samples=0"};  // keys of the grid are not stored
    brim_config *again = with_facts(yaml.data, same, 2);
    char *a = json_of(point), *b = json_of(again);
    const bool grid = strstr(stored[i], "seeds") || strstr(stored[i], "samples");
    if (!grid && strcmp(a, b)) fail_msg("%s\nstored:\n%s\n%s\n%s", stored[i], yaml.data, a, b);
    brim_config_text_free(a);
    brim_config_text_free(b);
    brim_str_deinit(&yaml);
    brim_config_close(again);
    brim_config_close(point);
    brim_config_close(config);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_text_is_fixed),          cmocka_unit_test(same_experiment),
      cmocka_unit_test(defaults_of_components),     cmocka_unit_test(other_experiments),
      cmocka_unit_test(the_machine_is_no_part),     cmocka_unit_test(stored_configs_load_back),
      cmocka_unit_test(stored_values_are_the_same),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
