// The settings of a run inside its checkpoints, and the comparison when it is resumed.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "run/run_int.h"

// Keys that change what is learned, not where or how fast. Paths, names and knobs of speed are left
// out: a checkpoint is the same wherever it was made.
static const char *const settings[] = {
    "workload",
    "seed",
    "model",
    "loss",
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
    // of pairs, and by what their features are judged
    "contrastive.temperature",
    "contrastive.accumulation",
    "contrastive.knn_k",
    "contrastive.knn_temperature",
    "contrastive.probe_epochs",
};
enum { OF_PAIRS = 5 };

// The same of a policy, in the place of all but the first three.
static const char *const policy_settings[] = {
    "workload",          "seed",         "model",         "env",           "ars.num_envs",
    "ars.num_dirs",      "ars.top_dirs", "ars.noise_std", "ars.step_size", "ars.episode_length",
    "ars.iterations",    "ars.version",  "ars.shift",     "ars.restart",   "ars.phase",
    "ars.eval_episodes",
};

static const char *const *settings_of(const brim_config *config, size_t *count) {
  const char *workload = brim_config_string(config, "workload");
  bool policy = workload && strcmp(workload, "ars") == 0;
  bool pairs = workload && strcmp(workload, "contrastive") == 0;
  *count = policy ? sizeof policy_settings / sizeof *policy_settings
                  : sizeof settings / sizeof *settings - (pairs ? 0 : OF_PAIRS);
  return policy ? policy_settings : settings;
}

// The value of a dotted key in the nested object of brim_config_to_json; borrowed, NULL when unset.
static json_t *find(json_t *config, const char *key) {
  char part[64];
  for (; config && *key; key += *key == '.') {
    size_t n = strcspn(key, ".");
    if (n >= sizeof part) return NULL;
    memcpy(part, key, n);
    part[n] = 0;
    config = json_object_get(config, part);
    key += n;
  }
  return config;
}

static brim_status collect(const brim_config *config, json_t **out) {
  json_t *all = NULL;
  BRIM_TRY(brim_config_to_json(config, &all));
  json_t *picked = json_object();
  brim_status status =
      picked ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while saving the settings");
  size_t count;
  const char *const *keys = settings_of(config, &count);
  for (size_t i = 0; !status && i < count; i++) {
    json_t *value = find(all, keys[i]);
    if (value) status = brim_json_put(picked, keys[i], json_incref(value));
  }
  json_decref(all);
  if (status) {
    json_decref(picked);
    return status;
  }
  *out = picked;
  return BRIM_OK;
}

brim_status brim_run_put_settings(const brim_config *config, json_t *metadata) {
  json_t *picked = NULL;
  char *text = NULL;
  BRIM_TRY(collect(config, &picked));
  brim_status status = brim_json_dump(picked, 0, &text);
  if (!status) status = brim_json_put(metadata, "brim.settings", json_string(text));
  brim_free(text);
  json_decref(picked);
  return status;
}

static bool unset(const json_t *value) { return !value || json_is_null(value); }

static void warn_of(const char *key, const json_t *was, const json_t *now, const char *path) {
  char *a = NULL, *b = NULL;
  if (!unset(was)) brim_json_dump(was, 0, &a);
  if (!unset(now)) brim_json_dump(now, 0, &b);
  brim_log_warn("run", "%s was trained with %s %s; this run continues with %s", path, key,
                a ? a : "unset", b ? b : "unset");
  brim_free(a);
  brim_free(b);
}

// An episode length that nobody set is the phase's: what it came to, so that it is compared.
static void resolve_length(json_t *of, json_t *length) {
  static const char key[] = "ars.episode_length";
  if (length && unset(json_object_get(of, key))) (void)json_object_set(of, key, length);
}

static void resolve_lengths(const json_t *metadata, int64_t now_length, json_t *was, json_t *now) {
  const char *text = json_string_value(json_object_get(metadata, "brim.policy"));
  json_t *policy = NULL, *length = json_integer(now_length);
  if (text && brim_json_parse(text, strlen(text), "brim.policy", &policy) == BRIM_OK) {
    resolve_length(was, json_object_get(policy, "episode_length"));
    resolve_length(now, length);
  }
  json_decref(policy);
  json_decref(length);
}

// Which samples data.val_fraction keeps is drawn by the seed; a smaller part is some of a larger one.
static bool is_larger(const char *key, const json_t *was, const json_t *now) {
  return strcmp(key, "data.val_fraction") == 0 && json_number_value(now) > json_number_value(was);
}

static bool keeps_part(const brim_config *config) {
  const brim_component *val = brim_config_component(config, "dataset", "val");
  bool own = val && val != brim_config_component(config, "dataset", NULL);
  return !own && brim_config_float(config, "data.val_fraction") > 0;
}

// Only warns, so that running out of memory here costs the warning and nothing else.
void brim_run_compare_settings(const brim_config *config, const json_t *metadata,
                               int64_t episode_length, const char *path) {
  const char *text = json_string_value(json_object_get(metadata, "brim.settings"));
  json_t *was = NULL, *now = NULL;
  if (!text || brim_json_parse(text, strlen(text), path, &was)) return;
  if (collect(config, &now) == BRIM_OK) {
    size_t count;
    if (episode_length > 0) resolve_lengths(metadata, episode_length, was, now);
    const char *const *keys = settings_of(config, &count);
    bool other_part = false;
    for (size_t i = 0; i < count; i++) {
      const json_t *a = json_object_get(was, keys[i]);
      const json_t *b = json_object_get(now, keys[i]);
      bool same = (unset(a) && unset(b)) || (a && b && json_equal(a, b));
      if (same) continue;
      warn_of(keys[i], a, b, path);
      other_part |= strcmp(keys[i], "seed") == 0 || is_larger(keys[i], a, b);
    }
    if (other_part && episode_length <= 0 && keeps_part(config)) {
      brim_log_warn("run",
                    "data.val_fraction now holds out other samples: evaluation includes samples "
                    "the run was trained on, so its results look too good");
    }
  }
  json_decref(was);
  json_decref(now);
}

void brim_run_warn_warmup(const brim_config *config, int64_t steps_per_epoch) {
  brim_work_warmup warmup = brim_work_warmup_of(config, steps_per_epoch);
  int64_t total = steps_per_epoch * brim_config_int(config, "training.epochs");
  int64_t most = brim_config_int(config, "training.steps");
  if (most > 0 && most < total) total = most;
  if (total <= 0) return;
  if (warmup.steps >= total) {
    brim_log_warn("run",
                  "the learning rate is still rising at the end of the run: warm-up takes %" PRId64
                  " steps, the run has %" PRId64 "; lower %s, or train longer",
                  warmup.steps, total, warmup.key);
  } else if (warmup.steps < warmup.asked) {
    brim_log_warn("run",
                  "%s asks for %" PRId64
                  " steps of warm-up, half of the run or more; the run is "
                  "short, so brim takes %" PRId64,
                  warmup.key, warmup.asked, warmup.steps);
  }
}

brim_status brim_run_write_config(const brim_config *config, const char *folder) {
  char *path = brim_fs_join(folder, "config.yaml");
  brim_str yaml;
  brim_str_init(&yaml);
  brim_status status =
      path ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while opening %s", folder);
  brim_str_append(&yaml, BRIM_RUN_CONFIG_MARK "\n");
  if (!status) status = brim_config_to_yaml(config, false, &yaml);
  if (!status) status = brim_str_status(&yaml);
  if (!status) status = brim_fs_write(path, yaml.data, yaml.len);
  brim_str_deinit(&yaml);
  brim_free(path);
  return status;
}
