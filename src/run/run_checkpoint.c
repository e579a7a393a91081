// Checkpoints of a run: their files, the settings in them, writing and reading.

#include "engine/engine.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "run/run_int.h"
#include "run/run_loop.h"

//-------------------------------------------- files --------------------------------------------
// The checkpoint files of a run: the last ones by their steps, the best, and which of them is whole.

static const char step_prefix[] = "step-", suffix[] = ".safetensors";

brim_status brim_run_files_init(brim_run_files *files, const brim_config *config,
                                const char *folder) {
  files->folder = folder;
  files->keep = brim_config_int(config, "checkpoint.keep");
  files->last_step = -1;
  files->last = brim_fs_join(folder, "last.safetensors");
  files->best = brim_fs_join(folder, "best.safetensors");
  files->model = brim_fs_join(folder, "model.safetensors");
  if (files->last && files->best && files->model) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM, "out of memory while opening %s", folder);
}

// A whole checkpoint was written, from `start` until now.
static void files_saved(brim_run_files *files, brim_time start) {
  files->saved_at = brim_clock_now();
  files->save_ns = brim_time_since_ns(start, files->saved_at);
}

// The end of an epoch may go without a checkpoint: the last one is so young that the disk would be
// writing for more than a twentieth of the time.
static bool files_young(const brim_run_files *files) {
  if (files->save_ns <= BRIM_RUN_CHEAP_NS) return false;
  return brim_time_since_ns(files->saved_at, brim_clock_now()) < 20 * files->save_ns;
}

void brim_run_files_deinit(brim_run_files *files) {
  brim_free(files->last);
  brim_free(files->best);
  brim_free(files->model);
  memset(files, 0, sizeof *files);
}

int64_t brim_run_files_step(const char *name) {
  if (!brim_str_starts(name, step_prefix) || !brim_str_ends(name, suffix)) return -1;
  int64_t step = 0;
  const char *p = name + sizeof step_prefix - 1;
  const char *end = name + strlen(name) - (sizeof suffix - 1);
  if (end - p < 8 || end - p > 18) return -1;
  for (; p < end; p++) {
    if (*p < '0' || *p > '9') return -1;
    step = step * 10 + (*p - '0');
  }
  return step;
}

// What stays the same in all checkpoints of a run, as far as they hold it.
static const char *const identity[] = {"brim.workload", "brim.seed", "brim.network"};
enum { IDENTITY = sizeof identity / sizeof *identity };

static bool same_run(const json_t *metadata, const json_t *other) {
  for (size_t i = 0; i < IDENTITY; i++) {
    if (!json_equal(json_object_get(metadata, identity[i]), json_object_get(other, identity[i])) &&
        json_object_get(metadata, identity[i]) != json_object_get(other, identity[i])) {
      return false;
    }
  }
  return true;
}

// Is the file a checkpoint of this step and of the run that `last` is of? Anything else is the user's.
static bool is_step_of_run(const char *path, int64_t step, const brim_safetensors *last) {
  brim_safetensors *file = NULL;
  double at = -1;
  bool ours = false;
  if (brim_safetensors_open(path, &file) == BRIM_OK) {
    brim_run_get_double(brim_safetensors_metadata(file), "brim.step", &at);
    ours = at == (double)step &&
           (!last || same_run(brim_safetensors_metadata(file), brim_safetensors_metadata(last)));
  }
  brim_safetensors_close(file);
  brim_status_clear();
  return ours;
}

// For brim_safetensors_close; NULL: it is not there, or cannot be read.
static brim_safetensors *open_last(const brim_run_files *files) {
  brim_safetensors *last = NULL;
  if (brim_safetensors_open(files->last, &last)) brim_status_clear();
  return last;
}

// Before `last` is replaced by the checkpoint of `step`: the one that is there stays, by its own.
static void files_keep_last(brim_run_files *files, int64_t step) {
  if (files->keep < 2 || files->last_step < 0 || files->last_step >= step) return;
  char name[64];
  snprintf(name, sizeof name, "%s%08" PRId64 "%s", step_prefix, files->last_step, suffix);
  char *path = brim_fs_join(files->folder, name);
  brim_safetensors *last = path && brim_fs_exists(path) ? open_last(files) : NULL;
  bool taken = path && brim_fs_exists(path) && !is_step_of_run(path, files->last_step, last);
  brim_safetensors_close(last);
  if (taken) {
    brim_log_warn("run", "%s is no checkpoint of its step; brim leaves it and writes none there",
                  path);
    brim_free(path);
    return;
  }
  // one file under two names until `last` is replaced; a copy where there are no such
  brim_status status = path ? brim_fs_link(files->last, path) : BRIM_ENOMEM;
  if (status == BRIM_EUNSUPPORTED) status = brim_fs_copy(files->last, path);
  if (status) {
    brim_log_warn("run", "cannot keep the checkpoint of step %" PRId64 ": %s", files->last_step,
                  brim_status_detail());
    brim_status_clear();
  }
  brim_free(path);
}

static void remove_at(const char *path) {
  if (brim_fs_remove(path) == BRIM_OK) return;
  brim_log_warn("run", "cannot remove %s: %s", path, brim_status_detail());
  brim_status_clear();
}

// After: what is one too many goes, and what is of a later step.
// What lies in the folder is named by steps, not by age: of a run that was taken back to an earlier
// step the later ones are of another future. What is no checkpoint of this run stays.
static void files_prune(const brim_run_files *files, int64_t step) {
  char **names = NULL;
  size_t count = 0;
  if (brim_fs_list(files->folder, &names, &count)) {
    brim_status_clear();
    return;
  }
  int64_t room = files->keep - 1;
  brim_safetensors *last = NULL;
  for (size_t i = count; i > 0; i--) {  // steps have leading zeros: the highest comes first
    int64_t of = brim_run_files_step(names[i - 1]);
    char *path = of < 0 ? NULL : brim_fs_join(files->folder, names[i - 1]);
    if (path && !last) last = open_last(files);
    bool ours = path && is_step_of_run(path, of, last);
    if (ours && of < step && room > 0) {
      room--;
    } else if (ours) {
      remove_at(path);
    }
    brim_free(path);
  }
  brim_safetensors_close(last);
  brim_fs_list_free(names, count);
}

static void separate(const char *best, const char *path) {
  if (!brim_fs_same(best, path)) return;
  if (brim_fs_copy(best, path)) {
    brim_log_warn("run", "%s and %s remain one file: %s", best, path, brim_status_detail());
  }
}

void brim_run_files_separate(const brim_run_files *files) {
  char why[1024];  // of a run that failed; a copy's must not replace it
  snprintf(why, sizeof why, "%s", brim_status_detail());
  separate(files->best, files->last);
  char **names = NULL;
  size_t count = 0;
  if (brim_fs_list(files->folder, &names, &count) == BRIM_OK) {
    for (size_t i = 0; i < count; i++) {
      if (brim_run_files_step(names[i]) < 0) continue;
      char *path = brim_fs_join(files->folder, names[i]);
      if (path) separate(files->best, path);
      if (path) separate(files->last, path);
      brim_free(path);
    }
    brim_fs_list_free(names, count);
  }
  brim_status_set_detail(why);
}

//---------------------------------- continuing ----------------------------------

// Half a file is found by its header, which says how long it has to be; other damage by its checksum.
// One of a run that had diverged is of no more use.
static brim_status check_whole(const char *path) {
  brim_safetensors *file = NULL;
  BRIM_TRY(brim_safetensors_open(path, &file));
  bool ours = json_object_get(brim_safetensors_metadata(file), "brim.step") != NULL;
  brim_status status = brim_safetensors_verify(file);
  if (!status) status = brim_safetensors_finite(file, NULL);
  brim_safetensors_close(file);
  if (status || ours) return status;
  return brim_fail(BRIM_EPARSE, "%s: no step in it; is it a checkpoint of brim train?", path);
}

bool brim_run_files_model_at(const brim_run_files *files, int64_t step) {
  brim_safetensors *file = NULL;
  double at = -1;
  if (!brim_fs_exists(files->model)) return false;
  brim_status status = brim_safetensors_open(files->model, &file);
  if (!status) status = brim_safetensors_verify(file);
  if (!status) brim_run_get_double(brim_safetensors_metadata(file), "brim.step", &at);
  brim_safetensors_close(file);
  brim_status_clear();  // a file that is broken was an answer, not an error
  return (int64_t)at == step;
}

typedef struct search {
  char *found, *broken;
  char why[1024];  // of the first that is broken
  brim_status status;
} search;

// Takes `path` over. Returns true when there is no need to look further.
static bool try_path(search *s, char *path) {
  if (!path) {
    s->status = brim_fail(BRIM_ENOMEM, "out of memory while looking for a checkpoint");
    return true;
  }
  if (!brim_fs_exists(path)) {
    brim_free(path);
    return false;
  }
  brim_status status = check_whole(path);
  if (status == BRIM_OK) {
    s->found = path;
    return true;
  }
  brim_log_warn("run", "skipped: %s", brim_status_detail());
  if (s->broken) {
    brim_free(path);
    return false;
  }
  snprintf(s->why, sizeof s->why, "%s", brim_status_detail());
  s->broken = path;
  s->status = status;
  return false;
}

static void look(search *s, const brim_run_files *files) {
  if (try_path(s, brim_strdup(files->last))) return;
  char **names = NULL;
  size_t count = 0;
  bool done = false;
  if (!brim_fs_is_dir(files->folder) || brim_fs_list(files->folder, &names, &count)) return;
  for (size_t i = count; !done && i > 0; i--) {
    if (brim_run_files_step(names[i - 1]) < 0) continue;
    done = try_path(s, brim_fs_join(files->folder, names[i - 1]));
  }
  brim_fs_list_free(names, count);
  if (!done) try_path(s, brim_strdup(files->best));
}

// What to continue from: *path (for brim_free) NULL when there is nothing. Damaged files are
// skipped with a warning; when there are only such, the first one's error.
static brim_status files_newest(const brim_run_files *files, char **path) {
  search s = {0};
  *path = NULL;
  look(&s, files);
  brim_status status = BRIM_OK;
  if (s.found) {
    if (s.broken) brim_log_warn("run", "resuming from %s instead", s.found);
    brim_status_clear();
    *path = s.found;
  } else if (s.broken) {
    status = brim_fail(s.status,
                       "%s; no other checkpoint is usable; remove them all to start from the "
                       "beginning, or name one with --resume-from",
                       s.why);
  } else if (!s.status && brim_fs_exists(files->model)) {
    status = brim_fail(BRIM_EEXIST,
                       "%s exists, but there is no checkpoint to resume from; move it away to "
                       "start from the beginning, or choose another folder with --output-dir",
                       files->model);
  } else {
    status = s.status;
  }
  brim_free(s.broken);
  return status;
}

//------------------------------------------- settings -------------------------------------------
// The settings of a run inside its checkpoints, and the comparison when it is resumed.

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

// What a run was made with goes into its checkpoints as one JSON text ("brim.settings"): every key
// that changes what is learned. Resuming with other values is allowed, and said key by key.
static brim_status put_settings(const brim_config *config, const brim_work *work,
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
static void compare_settings(const brim_config *config, const brim_work *work,
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

//------------------------------------- writing and reading -------------------------------------
// Checkpoints of a run, there and back. What an epoch or an interval leaves is copied to the host's
// memory and written by a thread of its own while training continues; what a run ends with is
// waited for. One is written at a time, and each appears whole or not at all.

typedef brim_run_loop loop;

//---------------------------------- writing ----------------------------------

// Nothing is lost but the steps since the last one: every checkpoint is written beside its place.
static brim_status not_saved(const loop *l, brim_status status, int64_t step) {
  if (status == BRIM_ENOMEM) return status;
  l->result->folder_failed = true;
  char why[1024];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  if (l->files.last_step < 0 || !brim_fs_exists(l->files.last) || brim_fs_is_dir(l->files.last)) {
    return brim_fail(
        status,
        "%s; cannot save step %" PRId64
        "; free disk space or make the folder writable, or choose another with --output-dir",
        why, step);
  }
  return brim_fail(
      status,
      "%s; cannot save step %" PRId64
      "; free disk space or make the folder writable, then --resume continues from step %" PRId64
      " in %s",
      why, step, l->files.last_step, l->files.last);
}

// Sums of the epoch and of the log interval: "brim.epoch_loss", or all as "brim.epoch_returns".
static brim_status put_sums(const brim_work *work, const char *of, const double *sums,
                            json_t *extra) {
  const brim_work_sums *rows = work->table->sums;
  char key[96];
  bool any = false;
  for (size_t i = 0; i < rows->count; i++) {
    any = any || sums[i] != 0;
    snprintf(key, sizeof key, "brim.%s_%s", of, rows->names[i]);
    if (!rows->packed) BRIM_TRY(brim_run_put_double(extra, key, sums[i]));
  }
  if (!rows->packed || !any) return BRIM_OK;
  snprintf(key, sizeof key, "brim.%s_%s", of, rows->packed);
  return brim_json_put_numbers(extra, key, sums, rows->count);
}

// Those of a checkpoint that has others are begun again: only a report depends on them.
static void get_sums(const brim_work *work, const char *of, const json_t *extra, double *sums) {
  const brim_work_sums *rows = work->table->sums;
  char key[96];
  for (size_t i = 0; !rows->packed && i < rows->count; i++) {
    snprintf(key, sizeof key, "brim.%s_%s", of, rows->names[i]);
    brim_run_get_double(extra, key, &sums[i]);
  }
  if (!rows->packed) return;
  double read[BRIM_WORK_MAX_SUMS] = {0};
  snprintf(key, sizeof key, "brim.%s_%s", of, rows->packed);
  const size_t n = brim_json_get_numbers(extra, key, read, rows->count);
  if (n != rows->count && (rows->least == 0 || n < rows->least)) return;
  for (size_t i = 0; i < rows->count; i++) {
    if (!isfinite(read[i])) return;
  }
  memcpy(sums, read, rows->count * sizeof *sums);
}

static brim_status put_position(const loop *l, json_t *extra) {
  BRIM_TRY(brim_run_best_put(&l->best, extra));
  BRIM_TRY(brim_run_adapt_put(&l->adapt, l->work, extra));
  BRIM_TRY(brim_run_watch_put(&l->watch, extra));
  BRIM_TRY(put_sums(l->work, "epoch", l->sums, extra));
  BRIM_TRY(put_sums(l->work, "log", l->log_sums, extra));
  BRIM_TRY(brim_run_put_double(extra, "brim.log_bad", (double)l->log_bad));
  BRIM_TRY(brim_run_put_double(extra, "brim.epoch_skipped", l->epoch_skipped));
  if (l->info.idle_limit > 0) {
    BRIM_TRY(brim_run_put_double(extra, "brim.updated", (double)l->updated));
  }
  // the workload stands at the next epoch, the sums are of this one; its report lacks the rate alone
  return l->ended ? brim_run_put_double(extra, "brim.ended_lr", l->last_lr) : BRIM_OK;
}

// Weights alone say what they were trained with, for eval, predict and export; nothing else.
static brim_status make_extra(const loop *l, bool weights_only, json_t **out) {
  brim_json_setup();
  *out = json_object();
  if (!*out) return brim_fail(BRIM_ENOMEM, "out of memory while saving");
  brim_status status = put_settings(l->config, l->work, *out);
  if (!status && !weights_only) status = put_position(l, *out);
  if (!status) return BRIM_OK;
  json_decref(*out);
  *out = NULL;
  return status;
}

// The folder was removed while the run continues: it, the config and the lock are made again. What
// fails here fails in the checkpoint that is written next, which says why.
static void keep_folder(loop *l) {
  const char *folder = l->options->output_dir;
  brim_run_folder_restore(folder);
  char *config = brim_fs_join(folder, "config.yaml"), *lock = brim_fs_join(folder, "lock");
  if (config && !brim_fs_exists(config)) (void)brim_run_write_config(l->config, l->work, folder);
  if (lock && l->lock && !brim_fs_exists(lock)) {
    brim_fs_unlock(l->lock);
    l->lock = NULL;
    if (brim_fs_lock_folder(folder, &l->lock)) {
      brim_log_warn("run", "%s is no longer locked: %s", folder, brim_status_detail());
    }
  }
  brim_free(lock);
  brim_free(config);
  brim_status_clear();
}

brim_status brim_run_save_model(loop *l) {
  json_t *extra;
  if (l->comm) BRIM_TRY(l->work->table->ranks->give(l->work->state, true));
  if (!brim_run_writes(l)) return BRIM_OK;
  BRIM_TRY(brim_run_save_wait(l));
  keep_folder(l);
  BRIM_TRY(make_extra(l, true, &extra));
  brim_status status = l->work->table->save(l->work->state, l->files.model, extra, true);
  json_decref(extra);
  if (status) return not_saved(l, status, l->step);
  snprintf(l->result->checkpoint, sizeof l->result->checkpoint, "%s", l->files.model);
  return BRIM_OK;
}

// Until the run ends the best and the last may be one file (each save makes a new one, so neither
// changes under the other's name): half of the bytes to write.
static brim_status write_last(brim_run_saver *s) {
  const char *path = s->files.last;
  files_keep_last(&s->files, s->step);
  if (!s->best || brim_fs_link(s->files.best, path)) BRIM_TRY(s->held.write(s->held.state, path));
  s->files.last_step = s->step;
  files_prune(&s->files, s->step);
  return BRIM_OK;
}

static brim_status write_both(brim_run_saver *s) {
  if (s->best) BRIM_TRY(s->held.write(s->held.state, s->files.best));
  return s->last ? write_last(s) : BRIM_OK;
}

static void write_files(void *saver) {
  brim_run_saver *s = (brim_run_saver *)saver;
  brim_time start = brim_clock_now();
  s->status = write_both(s);
  // the folder was removed since the writing began; the log may have made it again meanwhile
  for (int tries = 0; tries < 3 && s->status == BRIM_ENOENT; tries++) {
    brim_run_folder_restore(s->files.folder);
    s->status = write_both(s);
  }
  if (s->status) snprintf(s->why, sizeof s->why, "%s", brim_status_detail());
  files_saved(&s->files, start);
  __atomic_store_n(&s->written, 1, __ATOMIC_RELEASE);
}

brim_status brim_run_save_wait(loop *l) {
  brim_run_saver *s = &l->saver;
  if (!s->busy) return BRIM_OK;
  brim_thread_join(s->thread);
  s->thread = NULL;
  s->busy = false;
  if (s->held.free) s->held.free(s->held.state);
  memset(&s->held, 0, sizeof s->held);
  l->files.last_step = s->files.last_step;
  l->files.saved_at = s->files.saved_at;
  l->files.save_ns = s->files.save_ns;
  if (s->status) {
    brim_status_set_detail(s->why);
    return not_saved(l, s->status, s->step);
  }
  snprintf(l->result->checkpoint, sizeof l->result->checkpoint, "%s",
           s->last ? l->files.last : l->files.best);
  return BRIM_OK;
}

brim_status brim_run_save_poll(loop *l) {
  if (!l->saver.busy || !__atomic_load_n(&l->saver.written, __ATOMIC_ACQUIRE)) return BRIM_OK;
  return brim_run_save_wait(l);
}

bool brim_run_save_postponed(const loop *l) {
  if (!l->saver.busy) return files_young(&l->files);
  // the one before took long, so will this one; of the first it is not known yet
  return l->files.save_ns > BRIM_RUN_CHEAP_NS ||
         brim_time_since_ns(l->saver.start, brim_clock_now()) > BRIM_RUN_CHEAP_NS;
}

// A workload whose state is written at once instead of held.
typedef struct direct {
  const brim_work *work;
  const json_t *extra;
} direct;

static brim_status direct_write(void *state, const char *path) {
  const direct *d = (const direct *)state;
  return d->work->table->save(d->work->state, path, d->extra, false);
}

// Into s->held: a copy, or where there is no memory for one (or no need of it) what writes the state as
// it lies. *copied says which.
static brim_status hold(loop *l, direct *d, bool wait, bool *copied) {
  brim_run_saver *s = &l->saver;
  const brim_work_background_table *background = l->work->table->background;
  *copied = false;
  s->held = (brim_work_held){.state = d, .write = direct_write};
  if (wait || !background) return BRIM_OK;
  brim_work_held held;
  brim_status status = background->hold(l->work->state, d->extra, false, &held);
  if (status == BRIM_ENOMEM) {
    brim_status_clear();
    return BRIM_OK;
  }
  if (status) return not_saved(l, status, l->step);
  s->held = held;
  *copied = true;
  return BRIM_OK;
}

static brim_status save(loop *l, bool best, bool last, bool wait) {
  brim_run_saver *s = &l->saver;
  json_t *extra;
  if (!best && !last) return BRIM_OK;
  if (l->comm) BRIM_TRY(l->work->table->ranks->give(l->work->state, false));
  if (!brim_run_writes(l)) {
    if (last) l->files.last_step = l->step;
    return BRIM_OK;
  }
  BRIM_TRY(brim_run_save_wait(l));
  keep_folder(l);
  brim_status status = make_extra(l, false, &extra);
  if (status) return not_saved(l, status, l->step);
  s->files = l->files;
  s->step = l->step;
  s->best = best;
  s->last = last;
  s->status = BRIM_OK;
  s->written = 0;
  s->start = brim_clock_now();
  direct d = {.work = l->work, .extra = extra};
  bool copied;
  status = hold(l, &d, wait, &copied);
  s->busy = !status;
  // a thread that cannot be started is no reason to go without a checkpoint
  if (copied && brim_thread_start(write_files, s, "brim-save", &s->thread)) brim_status_clear();
  if (s->busy && !s->thread) {
    write_files(s);
    status = brim_run_save_wait(l);
  }
  json_decref(extra);
  return status;
}

brim_status brim_run_save(loop *l, bool best, bool last) { return save(l, best, last, false); }

brim_status brim_run_save_now(loop *l) { return save(l, false, true, true); }

brim_status brim_run_save_end(loop *l, brim_status status) {
  if (!status) return brim_run_save_wait(l);
  if (!l->saver.busy) return status;
  char why[4096];  // of what ended the run; a checkpoint's must not replace it
  snprintf(why, sizeof why, "%s", brim_status_detail());
  if (brim_run_save_wait(l)) brim_log_text(BRIM_LOG_WARN, "run", brim_status_detail());
  brim_status_set_detail(why);
  return status;
}

//---------------------------------- continuing ----------------------------------

// The checkpoint to continue from, for brim_free; NULL = from the start.
brim_status brim_run_resume_path(const loop *l, char **path) {
  *path = NULL;
  if (!l->options->resume_path) {
    return l->options->resume ? files_newest(&l->files, path) : BRIM_OK;
  }
  *path = brim_strdup(l->options->resume_path);
  return *path ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory while opening a checkpoint");
}

brim_status brim_run_resume(loop *l, const char *path) {
  json_t *extra = NULL;
  BRIM_TRY(l->work->table->load(l->work->state, path, &extra));
  double step = 0, epoch = 0, skipped = 0;
  brim_run_best_get(&l->best, extra);
  brim_run_get_double(extra, "brim.step", &step);
  brim_run_get_double(extra, "brim.epoch", &epoch);
  brim_run_get_double(extra, "brim.skipped_steps", &skipped);
  double bad = 0;
  bool same_epoch = !json_object_get(extra, "brim.new_epoch");
  if (same_epoch) {
    get_sums(l->work, "epoch", extra, l->sums);
    get_sums(l->work, "log", extra, l->log_sums);
    brim_run_get_double(extra, "brim.log_bad", &bad);
    brim_run_get_double(extra, "brim.epoch_skipped", &l->epoch_skipped);
  }
  l->log_bad = (int64_t)bad;
  compare_settings(l->config, l->work, extra, path);
  brim_run_watch_get(&l->watch, extra, (int64_t)skipped);
  l->step = (int64_t)step;
  double updated = step;
  brim_run_get_double(extra, "brim.updated", &updated);
  l->updated = updated >= 0 && updated <= step ? (int64_t)updated : l->step;
  if (l->info.idle_limit > 0) l->result->skipped_steps = (int64_t)skipped;
  l->ended = same_epoch && epoch >= 1 && json_object_get(extra, "brim.ended_lr");
  brim_run_get_double(extra, "brim.ended_lr", &l->last_lr);
  l->epoch = (int64_t)epoch - l->ended;
  if (brim_fs_same(path, l->files.last)) l->files.last_step = l->step;
  json_decref(extra);
  brim_log_info("run", "resumed from %s at step %" PRId64, path, l->step);
  return BRIM_OK;
}
