// The settings of a run inside its checkpoints, and the comparison when it is resumed.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "run/run_int.h"

// What the run learns from: it decides which keys belong in its checkpoints.
static brim_config_learning learns_from(const char *workload) {
  const brim_workload_table *table = workload ? brim_workload_find(workload) : NULL;
  if (!table || !table->policy) return BRIM_CONFIG_LEARNS_FROM_DATA;
  return table->policy->networks ? BRIM_CONFIG_TRAINS_IN_ENV : BRIM_CONFIG_LEARNS_IN_ENV;
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
  const char *workload = brim_config_string(config, "workload");
  const brim_config_learning from = learns_from(workload);
  json_t *picked = json_object();
  brim_status status =
      picked ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while saving the settings");
  for (size_t i = 0; !status && i < brim_config_key_count(); i++) {
    const brim_config_key *key = brim_config_key_at(i);
    json_t *value = brim_config_key_is_saved(key, workload, from) ? find(all, key->name) : NULL;
    if (value) status = brim_json_put(picked, key->name, json_incref(value));
  }
  json_decref(all);
  if (status) {
    json_decref(picked);
    return status;
  }
  *out = picked;
  return BRIM_OK;
}

// What the run chose for a key that is "auto" stands in its checkpoints.
static brim_status put_chosen(const brim_work *work, json_t *settings) {
  for (size_t i = 0; i < work->knob_count; i++) {
    const brim_knob *knob = &work->knobs[i];
    const char *word = json_string_value(json_object_get(settings, knob->key));
    if (knob->kind != BRIM_KNOB_INT || !word || strcmp(word, "auto") != 0) continue;
    BRIM_TRY(brim_json_put(settings, knob->key, json_integer(knob->value)));
  }
  return BRIM_OK;
}

brim_status brim_run_put_settings(const brim_config *config, const brim_work *work,
                                  json_t *metadata) {
  json_t *picked = NULL;
  char *text = NULL;
  BRIM_TRY(collect(config, &picked));
  brim_status status = put_chosen(work, picked);
  if (!status) status = brim_json_dump(picked, 0, &text);
  if (!status) status = brim_json_put(metadata, "brim.settings", json_string(text));
  brim_free(text);
  json_decref(picked);
  return status;
}

// A component that an older version wrote lacks the arguments that are new since: they count with their
// defaults. NULL where that cannot be determined.
static json_t *with_defaults(const char *key, const json_t *was) {
  brim_config *config = NULL;
  json_t *all = NULL, *out = NULL;
  brim_str text;
  const char *value = json_string_value(was);
  if (!value || strpbrk(value, "\"\\\r\n")) return NULL;  // a checkpoint may come from anywhere
  brim_str_init(&text);
  brim_str_printf(&text, "%s: \"%s\"\n", key, value);
  const brim_config_options options = {
      .text = text.data, .text_name = key, .mode = BRIM_CONFIG_RUN};
  brim_status status = brim_str_status(&text);
  if (!status) status = brim_config_load(&options, &config);
  if (!status) status = brim_config_to_json(config, &all);
  if (!status) out = json_incref(find(all, key));
  if (status) brim_status_clear();
  json_decref(all);
  brim_config_close(config);
  brim_str_deinit(&text);
  return out;
}

static bool means_the_same(const char *key, const json_t *was, const json_t *now) {
  json_t *filled = with_defaults(key, was);
  bool same = filled && now && json_equal(filled, now);
  json_decref(filled);
  return same;
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
void brim_run_compare_settings(const brim_config *config, const brim_work *work,
                               const json_t *metadata, const char *path) {
  const char *text = json_string_value(json_object_get(metadata, "brim.settings"));
  json_t *was = NULL, *now = NULL;
  if (!text || brim_json_parse(text, strlen(text), path, &was)) return;
  if (collect(config, &now) == BRIM_OK) {
    const brim_workload_table *table = work->table;
    if (table->settings) table->settings->resolve(work->state, metadata, was, now);
    const char *workload = brim_config_string(config, "workload");
    const brim_config_learning from = learns_from(workload);
    bool other_part = false;
    for (size_t i = 0; i < brim_config_key_count(); i++) {
      const brim_config_key *key = brim_config_key_at(i);
      if (!brim_config_key_is_saved(key, workload, from)) continue;
      const json_t *a = json_object_get(was, key->name);
      const json_t *b = json_object_get(now, key->name);
      bool same =
          (unset(a) && unset(b)) || (a && b && json_equal(a, b)) || means_the_same(key->name, a, b);
      if (same) continue;
      warn_of(key->name, a, b, path);
      other_part |= strcmp(key->name, "seed") == 0 || is_larger(key->name, a, b);
    }
    if (other_part && table->loading && keeps_part(config)) {
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

// Numbers that were not asked for: those that the config leaves open, and those of which the
// workload can use less than a default or a preset has. As they stand, the written config would ask
// for them.
static size_t numbers_used(const brim_config *config, const brim_work *work,
                           brim_config_number out[BRIM_KNOB_MAX]) {
  size_t count = 0;
  for (size_t i = 0; i < work->knob_count; i++) {
    const brim_knob *knob = &work->knobs[i];
    int64_t own;
    if (knob->kind != BRIM_KNOB_INT) continue;
    if (brim_config_get_int(config, knob->key, &own)) {  // it is left open, and the run chose
      brim_status_clear();
      out[count++] = (brim_config_number){knob->key, knob->value};
      continue;
    }
    bool asked = brim_config_layer_of(config, knob->key) > BRIM_CONFIG_FROM_PRESET;
    if (!asked && knob->value < own) {
      out[count++] = (brim_config_number){knob->key, knob->value};
    }
  }
  return count;
}

brim_status brim_run_write_config(const brim_config *config, const brim_work *work,
                                  const char *folder) {
  brim_config_number numbers[BRIM_KNOB_MAX];
  const size_t count = numbers_used(config, work, numbers);
  char *path = brim_fs_join(folder, "config.yaml");
  brim_str yaml;
  brim_str_init(&yaml);
  brim_status status =
      path ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while opening %s", folder);
  brim_str_append(&yaml, BRIM_RUN_CONFIG_MARK "\n");
  if (!status) status = brim_config_to_yaml_with(config, numbers, count, &yaml);
  if (!status) status = brim_str_status(&yaml);
  if (!status) status = brim_fs_write(path, yaml.data, yaml.len);
  brim_str_deinit(&yaml);
  brim_free(path);
  return status;
}
