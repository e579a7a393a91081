// The key table and its printed forms: no name twice, every default converts, explain, JSON, YAML that loads back to
// the same config, the hash.
#include "base/base.h"
#include "config/config_int.h"
#include "config_test.h"

static void no_name_means_two_keys(void **state) {
  (void)state;
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    const brim_config_key *key = brim_config_key_at(i);
    assert_ptr_equal(brim_config_key_find(key->name), key);
    for (const char *const *a = key->aliases; *a; a++) {
      assert_ptr_equal(brim_config_key_find(*a), key);
      assert_null(strchr(*a, ' '));
    }
    // A key that is also the name of a group could not be printed nested.
    if (brim_config_row_is_group(key->name)) fail_msg("%s is a key and a group", key->name);
    assert_true(strlen(key->meaning) > 3);
  }
  assert_null(brim_config_key_at(brim_config_key_count()));
  assert_null(brim_config_key_find("nothing"));
}

static const char *const keys_of_rooms[] = {
    "workload",
    "preset",
    "gpu.preset",
    "model_size",
    "model",
    "loss",
    "optimizer",
    "scheduler",
    "metric",
    "dataset",
    "transform",
    "dataloader",
    "data.path",
    "batch_size",
    "data.eval_batch_size",
    "num_workers",
    "pin_memory",
    "data.prefetch_factor",
    "persistent_workers",
    "drop_last",
    "shuffle",
    "data.cache",
    "data.on_error",
    "data.limit",
    "epochs",
    "training.steps",
    "lr",
    "learning_rate",
    "training.weight_decay",
    "training.momentum",
    "training.nesterov",
    "training.precision",
    "use_amp",
    "gpu.mixed_precision",
    "mixed_precision",
    "gradient_accumulation_steps",
    "gpu.gradient_accumulation",
    "training.clip_norm",
    "training.warmup_steps",
    "training.warmup_epochs",
    "training.label_smoothing",
    "training.ema_decay",
    "training.ema_batches",
    "training.sync_batchnorm",
    "training.deterministic",
    "gradient_checkpointing",
    "compile",
    "training.resume",
    "training.early_stopping_patience",
    "checkpoint.dir",
    "checkpoint_interval",
    "checkpoint.keep",
    "log.interval",
    "gpu.memory_fraction",
    "gpu.autotune_level",
    "gpu.cudnn_benchmark",
    "gpu.empty_cache_freq",
    "memory_limit",
    "on_oom",
    "benchmark.batch_sizes",
    "benchmark.num_workers_options",
    "benchmark.steps_per_test",
    "benchmark.min_steps",
    "benchmark.test_mixed_precision",
    "benchmark.test_pin_memory",
    "device",
    "backend",
    "threads",
    "gpus",
    "tags",
    "priority",
    "seed",
    "name",
    "run_name",
    "output_dir",
    "contrastive.accumulation",
    "num_envs",
    "num_dirs",
    "dir_chunk",
    "noise_std",
    "step_size",
    "episode_length",
    "num_uavs",
    "episodes_per_batch",
    "episodes_per_worker",
    "max_steps",
    "num_obstacles",
    "update_epochs",
};

static void the_keys_other_rooms_read(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof keys_of_rooms / sizeof keys_of_rooms[0]; i++) {
    if (!brim_config_key_find(keys_of_rooms[i])) fail_msg("no key %s", keys_of_rooms[i]);
  }
}

static void defaults_alone(void **state) {
  (void)state;
  brim_config *config;
  assert_ok(brim_config_open(NULL, NULL, 0, &config));
  assert_key(config, "epochs", "10");
  assert_key(config, "batch_size", "128");
  assert_key(config, "seed", "0");
  assert_key(config, "device", "auto");
  assert_key(config, "precision", "fp32");
  assert_key(config, "lr", "0.001");  // adamw's default
  assert_string_equal(brim_config_component(config, "optimizer", NULL)->name, "adamw");
  assert_null(brim_config_component(config, "model", NULL));
  assert_int_equal(brim_config_grid_count(config), 1);
  const int64_t *ints;
  size_t count;
  assert_ok(brim_config_get_ints(config, "benchmark.batch_sizes", &ints, &count));
  assert_int_equal(count, 0);
  const char *const *strings;
  assert_ok(brim_config_get_strings(config, "tags", &strings, &count));
  assert_int_equal(count, 0);
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    assert_string_equal(brim_config_origin(config, brim_config_key_at(i)->name), "default");
  }
  brim_config_close(config);
}

static void getters_check_types(void **state) {
  (void)state;
  brim_config *config = must_load(BRIM_CONFIG_RUN, "memory_limit: 12GB\ntags: [a, \"b c\"]\n");
  int64_t integer;
  double number;
  bool flag;
  const char *string;
  assert_status(brim_config_get_int(config, "nope", &integer), BRIM_ENOENT);
  assert_status(brim_config_get_int(config, "lr", &integer), BRIM_EINVAL);
  assert_status(brim_config_get_float(config, "device", &number), BRIM_EINVAL);
  assert_status(brim_config_get_bool(config, "epochs", &flag), BRIM_EINVAL);
  assert_status(brim_config_get_string(config, "epochs", &string), BRIM_EINVAL);
  assert_status(brim_config_get_string(config, "name", &string), BRIM_EINVAL);  // unset
  assert_ok(brim_config_get_float(config, "epochs", &number));
  assert_true(number == 10);
  assert_ok(brim_config_get_int(config, "gpu.memory_limit", &integer));
  assert_int_equal(integer, 12000000000);
  const char *const *strings;
  size_t count;
  assert_ok(brim_config_get_strings(config, "tags", &strings, &count));
  assert_int_equal(count, 2);
  assert_string_equal(strings[1], "b c");
  brim_config_close(config);
}

static void devices(void **state) {
  (void)state;
  static const struct {
    const char *text, *word, *numbers;
  } cases[] = {{"auto", "auto", ""},           {"cpu", "cpu", ""},
               {"cuda", "cuda", ""},           {"cuda:3", "cuda:3", "3"},
               {"2", "cuda:2", "2"},           {"[5]", "cuda:5", "5"},
               {"[1, 0]", "cuda", "1 0"},      {"\"[0, 1]\"", "cuda", "0 1"},
               {"[cuda:1, 0]", "cuda", "1 0"}, {"[cpu, cpu]", "cpu", ""},
               {"[ref, cuda:2]", "ref", ""}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char text[64];
    snprintf(text, sizeof text, "device: %s\n", cases[i].text);
    brim_config *config = must_load(BRIM_CONFIG_RUN, text);
    assert_string_equal(brim_config_string(config, "device"), cases[i].word);
    assert_ints(config, "device", cases[i].numbers);
    brim_config_close(config);
  }
}

// A list may name a GPU twice, because ranks can share it; commands that cannot use this refuse it.
static void devices_apart(void **state) {
  (void)state;
  static const struct {
    const char *text, *words;
  } cases[] = {{"[0, 0]", "'device' names GPU 0 twice"},
               {"[cuda:1, 0, 1]", "names GPU 1 twice"},
               {"[cpu, cpu]", NULL},
               {"[0, 1]", NULL},
               {"auto", NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char text[64];
    snprintf(text, sizeof text, "device: %s\n", cases[i].text);
    brim_config *config = must_load(BRIM_CONFIG_RUN, text);
    assert_status(brim_config_devices_apart(config), cases[i].words ? BRIM_EINVAL : BRIM_OK);
    if (cases[i].words && !strstr(brim_status_detail(), cases[i].words)) {
      fail_msg("%s", brim_status_detail());
    }
    brim_config_close(config);
  }
}

// Every device of a list gets its full name, however it was written, and the printed list can be read again.
static void device_lists(void **state) {
  (void)state;
  static const struct {
    const char *text, *names, *printed;
  } cases[] = {{"auto", "auto", "device: auto"},
               {"3", "cuda:3", "device: \"cuda:3\""},
               {"[0, cuda:1]", "cuda:0 cuda:1", "device: [0, 1]"},
               {"[cpu, cpu, ref]", "cpu cpu ref", "device: [cpu, cpu, ref]"},
               {"[0, 0]", "cuda:0 cuda:0", "device: [0, 0]"},
               {"[cpu, 1]", "cpu cuda:1", "device: [cpu, \"cuda:1\"]"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char text[64], names[64] = "";
    snprintf(text, sizeof text, "device: %s\n", cases[i].text);
    for (int round = 0; round < 2; round++) {
      brim_config *config = must_load(BRIM_CONFIG_RUN, text);
      const char *const *strings;
      size_t count;
      assert_ok(brim_config_get_strings(config, "device", &strings, &count));
      names[0] = '\0';
      for (size_t k = 0; k < count; k++) {
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", k ? " " : "",
                 strings[k]);
      }
      assert_string_equal(names, cases[i].names);
      brim_str yaml;
      brim_str_init(&yaml);
      assert_ok(brim_config_to_yaml(config, false, &yaml));
      if (!strstr(yaml.data, cases[i].printed)) fail_msg("%s", yaml.data);
      snprintf(text, sizeof text, "%s\n", cases[i].printed);
      brim_str_deinit(&yaml);
      brim_config_close(config);
    }
  }
}

static void explain(void **state) {
  (void)state;
  brim_str text;
  brim_str_init(&text);
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    brim_str_clear(&text);
    assert_ok(brim_config_explain(brim_config_key_at(i)->name, &text));
    assert_non_null(strstr(text.data, brim_config_key_at(i)->meaning));
  }
  brim_str_clear(&text);
  assert_ok(brim_config_explain("lr", &text));
  assert_non_null(strstr(text.data, "training.learning_rate"));
  assert_non_null(strstr(text.data, "also written: lr"));
  brim_str_clear(&text);
  assert_ok(brim_config_explain("mlp", &text));
  assert_non_null(strstr(text.data, "hidden: int, default 512"));
  brim_str_clear(&text);
  assert_ok(brim_config_explain("a100-80g", &text));
  assert_non_null(strstr(text.data, "data.batch_size: 4096"));
  brim_str_clear(&text);
  assert_ok(brim_config_explain("auto", &text));
  assert_status(brim_config_explain("batchsize", &text), BRIM_ENOENT);
  assert_non_null(strstr(brim_status_detail(), "did you mean 'batch_size'"));
  assert_status(brim_config_explain("wideresnt", &text), BRIM_ENOENT);
  assert_non_null(strstr(brim_status_detail(), "did you mean 'wideresnet'"));
  brim_str_deinit(&text);
}

static const char *const round_trips[] = {
    "seed: 3\n",
    "preset: rtx3060-12g\nmodel: wideresnet(depth=28, width=2)\n",
    "model: simclr(backbone=resnet18(width=32))\nname: \"yes: [no] # 'x' \\\" \\\\\"\n",
    "optimizer: sgd(lr=0.1)\nscheduler: cosine(min_lr=1e-5, warmup=5)\nloss: mse\n",
    "warmup_epochs: 2\nscheduler: cosine\n",
    "transform:\n  train: random_resized_crop(size=96, scale=(0.8, 1.0)) | random_flip\n"
    "  val: resize(size=96)\ndataset: {train: cifar10(split=train), test: cifar10(split=test)}\n",
    "lr: [0.1, 0.2]\nmodel: {_type: mlp, depth: [1, 2]}\nzip: [lr, model.depth]\n",
    "lr: [0.1, 0.2]\nbatch_size: [1, 2]\nexclude: [{lr: 0.1, batch_size: 2}]\ndevice: [0, 1]\n",
    "benchmark.batch_sizes: [[1, 2], [3, 4]]\ntags: [a, \"1\", \"b, c\"]\nmemory_limit: 12GB\n",
    "model: [mlp(depth=1), \"mlp(depth=2, hidden=3)\", linear]\ntransform: {train: [pad, "
    "cutout]}\n",
    "transform: {_type: [resize, center_crop], size: 8}\nloss: [~, mse]\n",
    "transform: {val: [pad, cutout], train: pad}\nseed: [1, 2]\nlr: [0.1, 0.2]\nepochs: [1, 2]\n"
    "zip: [epochs, seed]\n",
    "optimizer: [sgd, adam, \"adamw(lr=0.5)\"]\npreset: [h200, a100-40g]\n",
    "seed: [1, 2]\nname: \"r{{seed}}\"\nepochs: \"{{seed}}\"\nzip: ~\nexclude: null\n",
    "dataloader: {train: \"basic(split=train, prefetch_factor=7)\", val: basic(batch_size=9)}\n",
};

// A printed grid loads back, in RUN mode, to the same config at each point.
static void printed_yaml_loads_back(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof round_trips / sizeof round_trips[0]; i++) {
    brim_config *config = must_load(BRIM_CONFIG_RUN, round_trips[i]);
    brim_str text;
    brim_str_init(&text);
    assert_ok(brim_config_to_yaml(config, i % 2 == 0, &text));
    brim_config *again = must_load(BRIM_CONFIG_RUN, text.data);
    assert_int_equal(brim_config_grid_count(again), brim_config_grid_count(config));
    for (size_t p = 0; p < brim_config_grid_count(config); p++) {
      brim_config *a, *b;
      char *ja, *jb;
      assert_ok(brim_config_grid_point(config, p, &a));
      assert_ok(brim_config_grid_point(again, p, &b));
      assert_ok(brim_config_json(a, &ja));
      assert_ok(brim_config_json(b, &jb));
      assert_string_equal(ja, jb);
      brim_config_text_free(ja);
      brim_config_text_free(jb);
      brim_config_close(a);
      brim_config_close(b);
    }
    brim_config_close(again);
    brim_config_close(config);
    brim_str_deinit(&text);
  }
}

// Warm-up in epochs counts unless steps are set, also after printing and loading back.
static void warmup_epochs_are_not_hidden(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t warmup;  // the scheduler's argument; -1: none
  } cases[] = {
      {"scheduler: cosine\nwarmup_epochs: 2\n", -1},
      {"scheduler: cosine\nwarmup_epochs: 2\nwarmup_steps: 0\n", -1},
      {"scheduler: cosine\nwarmup_steps: 7\n", 7},
      {"scheduler: cosine(warmup=5)\n", 5},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    brim_config *config = must_load(BRIM_CONFIG_RUN, cases[i].text);
    const brim_component *c = brim_config_component(config, "scheduler", NULL);
    assert_int_equal(brim_component_int(c, "warmup", -1), cases[i].warmup);
    brim_config_close(config);
  }
}

static void json_is_nested(void **state) {
  (void)state;
  brim_config *config =
      must_load(BRIM_CONFIG_RUN, "batch_size: 7\ndevice: [0, 1]\nlr: [0.5, 0.25]\n");
  json_t *json;
  assert_ok(brim_config_to_json(config, &json));
  const json_t *data = json_object_get(json, "data");
  assert_int_equal(json_integer_value(json_object_get(data, "batch_size")), 7);
  assert_int_equal(json_array_size(json_object_get(json, "device")), 2);
  const json_t *lr = json_object_get(json_object_get(json, "training"), "learning_rate");
  assert_int_equal(json_array_size(lr), 2);  // a grid prints its axis
  assert_true(json_is_null(json_object_get(json, "name")));
  json_decref(json);
  brim_config_close(config);
}

static void hash_is_of_the_experiment(void **state) {
  (void)state;
  static const struct {
    const char *text;
    bool same;
  } cases[] = {
      {"lr: 0.001\nbatch_size: 64\nmodel: mlp(depth=2)\n", true},
      {"data:\n  batch_size: 64\ntraining: {learning_rate: 1e-3}\nmodel: {_type: mlp, depth: 2}\n",
       true},
      {"lr: 0.001\nbatch_size: 64\nmodel: mlp(depth=2)\ndevice: 3\nname: x\ntags: [a]\n", true},
      {"lr: 0.001\nbatch_size: 65\nmodel: mlp(depth=2)\n", false},
      {"lr: 0.001\nbatch_size: 64\nmodel: mlp(depth=2)\nseed: 1\n", false},
  };
  char first[33], hash[33];
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    brim_config *config = must_load(BRIM_CONFIG_RUN, cases[i].text);
    assert_ok(brim_config_hash(config, BRIM_CONFIG_EXPERIMENT, i ? hash : first));
    assert_int_equal(strlen(i ? hash : first), 32);
    if (i) assert_int_equal(!strcmp(hash, first), cases[i].same);
    brim_config_close(config);
  }
}

// All keys that this version does not read. A key that becomes used must leave the list.
static void keys_for_later(void **state) {
  (void)state;
  static const char *const later[] = {"project", "metric", "checkpoint.dir", "gpu.autotune_level",
                                      "benchmark.warmup_steps"};
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    const brim_config_key *key = brim_config_key_at(i);
    bool expected = true;
    for (size_t n = 0; n < sizeof later / sizeof *later; n++)
      expected = expected && strcmp(key->name, later[n]) != 0;
    if (brim_config_key_is_used(key) != expected) fail_msg("%s", key->name);
  }
}

static const char *const saved_always[] = {"workload", "seed", "model", NULL};
static const char *const saved_with_nets[] = {"optimizer",
                                              "scheduler",
                                              "data.batch_size",
                                              "training.learning_rate",
                                              "training.weight_decay",
                                              "training.momentum",
                                              "training.nesterov",
                                              "training.precision",
                                              "training.use_amp",
                                              "training.clip_norm",
                                              "training.warmup_steps",
                                              "training.warmup_epochs",
                                              "env",
                                              NULL};
static const char *const saved_with_mappo[] = {"mappo.num_envs",
                                               "mappo.rollout_steps",
                                               "mappo.episodes_per_batch",
                                               "mappo.episodes_per_worker",
                                               "mappo.update_epochs",
                                               "mappo.minibatches",
                                               "mappo.gamma",
                                               "mappo.gae_lambda",
                                               "mappo.clip",
                                               "mappo.value_clip",
                                               "mappo.value_coef",
                                               "mappo.entropy_coef",
                                               "mappo.huber",
                                               "mappo.value_norm",
                                               "mappo.normalize_advantages",
                                               "mappo.iterations",
                                               "mappo.eval_episodes",
                                               "mappo.eval_actions",
                                               NULL};
static const char *const saved_with_data[] = {"loss",
                                              "optimizer",
                                              "scheduler",
                                              "dataset",
                                              "transform",
                                              "data.batch_size",
                                              "data.shuffle",
                                              "data.drop_last",
                                              "data.limit",
                                              "data.val_fraction",
                                              "data.inputs",
                                              "data.targets",
                                              "training.epochs",
                                              "training.learning_rate",
                                              "training.weight_decay",
                                              "training.momentum",
                                              "training.nesterov",
                                              "training.precision",
                                              "training.use_amp",
                                              "training.gradient_accumulation_steps",
                                              "training.clip_norm",
                                              "training.warmup_steps",
                                              "training.warmup_epochs",
                                              "training.label_smoothing",
                                              "training.ema_decay",
                                              NULL};
static const char *const saved_with_views[] = {
    "contrastive.temperature",     "contrastive.accumulation", "contrastive.knn_k",
    "contrastive.knn_temperature", "contrastive.probe_epochs", NULL};
static const char *const saved_with_env[] = {"env", NULL};
static const char *const saved_with_ars[] = {"ars.num_envs",
                                             "ars.num_dirs",
                                             "ars.top_dirs",
                                             "ars.noise_std",
                                             "ars.step_size",
                                             "ars.episode_length",
                                             "ars.iterations",
                                             "ars.version",
                                             "ars.shift",
                                             "ars.restart",
                                             "ars.phase",
                                             "ars.eval_episodes",
                                             NULL};

static bool is_listed(const char *const *list, const char *name) {
  for (; list && *list; list++) {
    if (strcmp(*list, name) == 0) return true;
  }
  return false;
}

// The keys that checkpoints of 0.1 have, and that warn when a run is resumed with another value.
static void keys_of_checkpoints(void **state) {
  (void)state;
  static const struct {
    const char *workload;
    brim_config_learning from;
    const char *const *lists[3];
  } cases[] = {
      {"supervised", BRIM_CONFIG_LEARNS_FROM_DATA, {saved_always, saved_with_data, NULL}},
      {"contrastive",
       BRIM_CONFIG_LEARNS_FROM_DATA,
       {saved_always, saved_with_data, saved_with_views}},
      {"ars", BRIM_CONFIG_LEARNS_IN_ENV, {saved_always, saved_with_env, saved_with_ars}},
      {"mappo", BRIM_CONFIG_TRAINS_IN_ENV, {saved_always, saved_with_nets, saved_with_mappo}},
      {"other", BRIM_CONFIG_LEARNS_IN_ENV, {saved_always, saved_with_env, NULL}},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    for (size_t i = 0; i < brim_config_key_count(); i++) {
      const brim_config_key *key = brim_config_key_at(i);
      bool expected = false;
      for (int n = 0; n < 3; n++) expected |= is_listed(cases[c].lists[n], key->name);
      if (brim_config_key_is_saved(key, cases[c].workload, cases[c].from) != expected)
        fail_msg("%s: %s", cases[c].workload, key->name);
      assert_true(!expected || brim_config_key_is_used(key));
    }
  }
}

// Keys of data that this version reads, and their types.
static void keys_of_data(void **state) {
  (void)state;
  static const char *const used[] = {
      "data.cache",   "data.on_error",          "data.val_fraction", "data.inputs",
      "data.targets", "data.slow_transform_ms", "dataloader",        "data.persistent_workers"};
  for (size_t i = 0; i < sizeof used / sizeof used[0]; i++) {
    if (!brim_config_key_is_used(brim_config_key_find(used[i]))) fail_msg("%s", used[i]);
  }
  brim_config *config = must_load(
      BRIM_CONFIG_RUN,
      "data: {cache: gpu, on_error: skip, val_fraction: 0.1, inputs: [a, b], targets: [y]}\n"
      "dataset:\n"
      "  train: 'stl10(split=unlabeled, fold=3, part=(0, 0.8), indices=some.txt)'\n"
      "  val: 'hdf5(path=x.h5, inputs=[a], part=(0.8, 1))'\n"
      "  test: 'folder(split=all, color=gray, strict=false)'\n");
  assert_string_equal(brim_config_string(config, "data.cache"), "gpu");
  const char *const *names;
  size_t count;
  assert_ok(brim_config_get_strings(config, "data.inputs", &names, &count));
  assert_int_equal(count, 2);
  assert_string_equal(names[1], "b");
  const brim_component *c = brim_config_component(config, "dataset", "train");
  assert_int_equal(brim_component_int(c, "fold", -1), 3);
  const brim_value *part = brim_component_arg(c, "part");
  assert_true(part && part->kind == BRIM_VALUE_LIST && part->count == 2);
  brim_config_close(config);
  static const char *const wrong[] = {"data: {cache: disk}\n",         "data: {on_error: ignore}\n",
                                      "data: {val_fraction: 1}\n",     "dataset: stl10(fold=10)\n",
                                      "dataset: folder(color=blue)\n", "dataset: idx(fold=1)\n",
                                      "dataset: idx(split=dev)\n"};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    brim_config_options options = {.text = wrong[i], .text_name = "t.yaml"};
    if (!brim_config_load(&options, &config)) fail_msg("taken: %s", wrong[i]);
  }
}

// Every dataset of the catalogue has the arguments for a part of itself.
static void every_dataset_takes_parts(void **state) {
  (void)state;
  int seen = 0;
  for (size_t i = 0; i < brim_config_component_count(); i++) {
    const brim_config_component_row *row = brim_config_component_at(i);
    if (strcmp(row->category, "dataset")) continue;
    seen++;
    assert_non_null(brim_config_arg_find(row, "part"));
    assert_non_null(brim_config_arg_find(row, "indices"));
    assert_non_null(brim_config_arg_find(row, "split"));
  }
  assert_int_equal(seen, 9);
}

static void assert_korean(const char *meaning) {
  const brim_msg_catalogue *ko = brim_msg_catalogue_of("ko");
  for (int i = 0; i < ko->count; i++) {
    if (strcmp(ko->pairs[i].english, meaning) == 0) return;
  }
  fail_msg("no Korean for: %s", meaning);
}

// Every text that `config explain` prints about keys and components has a translation.
static void meanings_are_translated(void **state) {
  (void)state;
  for (size_t i = 0; i < brim_config_key_count(); i++) {
    assert_korean(brim_config_key_at(i)->meaning);
  }
  for (size_t i = 0; i < brim_config_component_count(); i++) {
    const brim_config_component_row *row = brim_config_component_at(i);
    assert_korean(row->meaning);
    for (size_t a = 0; a < row->arg_count; a++) assert_korean(row->args[a].meaning);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_name_means_two_keys),
      cmocka_unit_test(the_keys_other_rooms_read),
      cmocka_unit_test(defaults_alone),
      cmocka_unit_test(getters_check_types),
      cmocka_unit_test(devices),
      cmocka_unit_test(device_lists),
      cmocka_unit_test(devices_apart),
      cmocka_unit_test(explain),
      cmocka_unit_test(printed_yaml_loads_back),
      cmocka_unit_test(warmup_epochs_are_not_hidden),
      cmocka_unit_test(json_is_nested),
      cmocka_unit_test(hash_is_of_the_experiment),
      cmocka_unit_test(keys_for_later),
      cmocka_unit_test(keys_of_checkpoints),
      cmocka_unit_test(keys_of_data),
      cmocka_unit_test(every_dataset_takes_parts),
      cmocka_unit_test(meanings_are_translated),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
