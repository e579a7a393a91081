// The output folder of a run: its checkpoint files, config.yaml, and which of the files there are brim's own.
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/engine.h"
#include "run/run_int.h"

enum { CHEAP_NS = 200000000 };  // a checkpoint that is written faster is never postponed

brim_status brim_run_put_double(json_t *object, const char *key, double value) {
  char text[32];
  brim_format_f64(value, text);
  return brim_json_put(object, key, json_string(text));
}

void brim_run_get_double(const json_t *object, const char *key, double *out) {
  const char *text = json_string_value(json_object_get(object, key));
  double value;
  if (text && brim_parse_f64(text, &value) && !(fabs(value) > 9007199254740992.0)) *out = value;
}

//---------------------------------- checkpoint files ----------------------------------

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

void brim_run_files_deinit(brim_run_files *files) {
  brim_free(files->last);
  brim_free(files->best);
  brim_free(files->model);
  memset(files, 0, sizeof *files);
}

// The step in "step-00001234.safetensors"; -1 for any other name.
static int64_t step_of(const char *name) {
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

// Metadata that all checkpoints of a run share, if they have it.
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

// True if the file is a checkpoint of this step and of the same run as `last`. Any other file is the user's.
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

// NULL if `last` is missing or unreadable.
static brim_safetensors *open_last(const brim_run_files *files) {
  brim_safetensors *last = NULL;
  if (brim_safetensors_open(files->last, &last)) brim_status_clear();
  return last;
}

// Keeps `last` under the name of its step, before the checkpoint of `step` replaces it.
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
  // a hard link until `last` is replaced; a copy if the file system has no links
  brim_status status = path ? brim_fs_link(files->last, path) : BRIM_ENOMEM;
  if (status == BRIM_EUNSUPPORTED) status = brim_fs_copy(files->last, path);
  if (status) {
    brim_log_warn("run", "cannot keep the checkpoint of step %" PRId64 ": %s", files->last_step,
                  brim_status_detail());
    brim_status_clear();
  }
  brim_free(path);
}

// Removes checkpoints named by step: those beyond checkpoint.keep, and those of a later step, which belong to
// steps that a resumed run has discarded. Files that are no checkpoint of this run stay.
static void files_prune(const brim_run_files *files, int64_t step) {
  char **names = NULL;
  size_t count = 0;
  if (brim_fs_list(files->folder, &names, &count)) {
    brim_status_clear();
    return;
  }
  int64_t room = files->keep - 1;
  brim_safetensors *last = NULL;
  for (size_t i = count; i > 0; i--) {  // names sort by step; start with the highest
    int64_t of = step_of(names[i - 1]);
    char *path = of < 0 ? NULL : brim_fs_join(files->folder, names[i - 1]);
    if (path && !last) last = open_last(files);
    bool ours = path && is_step_of_run(path, of, last);
    if (ours && of < step && room > 0) {
      room--;
    } else if (ours && brim_fs_remove(path)) {
      brim_log_warn("run", "cannot remove %s: %s", path, brim_status_detail());
      brim_status_clear();
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
  char why[1024];  // keep the detail of a failed run
  snprintf(why, sizeof why, "%s", brim_status_detail());
  separate(files->best, files->last);
  char **names = NULL;
  size_t count = 0;
  if (brim_fs_list(files->folder, &names, &count) == BRIM_OK) {
    for (size_t i = 0; i < count; i++) {
      if (step_of(names[i]) < 0) continue;
      char *path = brim_fs_join(files->folder, names[i]);
      if (path) separate(files->best, path);
      if (path) separate(files->last, path);
      brim_free(path);
    }
    brim_fs_list_free(names, count);
  }
  brim_status_set_detail(why);
}

// Checks length, checksum and that all weights are finite: a checkpoint of a diverged run is useless.
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
  brim_status_clear();  // a broken file is an answer, not an error
  return (int64_t)at == step;
}

typedef struct search {
  char *found, *broken;
  char why[1024];  // of the first broken file
  brim_status status;
} search;

// Takes ownership of `path`. True if the search is over.
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

// Tries last.safetensors, then the files named by step from the newest, then best.safetensors.
static void search_files(search *s, const brim_run_files *files) {
  if (try_path(s, brim_strdup(files->last))) return;
  char **names = NULL;
  size_t count = 0;
  bool done = false;
  if (!brim_fs_is_dir(files->folder) || brim_fs_list(files->folder, &names, &count)) return;
  for (size_t i = count; !done && i > 0; i--) {
    if (step_of(names[i - 1]) < 0) continue;
    done = try_path(s, brim_fs_join(files->folder, names[i - 1]));
  }
  brim_fs_list_free(names, count);
  if (!done) try_path(s, brim_strdup(files->best));
}

brim_status brim_run_files_newest(const brim_run_files *files, char **path) {
  search s = {0};
  *path = NULL;
  search_files(&s, files);
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

//---------------------------------- files of others ----------------------------------
// A file with a name that brim uses counts as brim's if its content looks so. There is no mark to look for,
// since folders of earlier versions have none and can still be resumed.

// The first line of config.yaml.
#define CONFIG_MARK "# written by brim train: the config of this run, every key"

enum { LOOK_BYTES = 1 << 20 };  // enough for a checkpoint's header, which holds its metadata

typedef enum kind { OTHER, CONFIG, LOCK, CSV, JSONL, CHECKPOINT } kind;

// "log.csv", "log.12.csv": `name` without "log." is EXT or digits, a dot and EXT.
static bool is_log(const char *name, const char *ext) {
  if (!brim_str_starts(name, "log.")) return false;
  const char *at = name + 4;
  if (strcmp(at, ext) == 0) return true;
  size_t digits = strspn(at, "0123456789");
  return digits > 0 && at[digits] == '.' && strcmp(at + digits + 1, ext) == 0;
}

static kind kind_of(const char *name) {
  static const char *const checkpoints[] = {"last.safetensors", "best.safetensors",
                                            "model.safetensors"};
  if (strcmp(name, "config.yaml") == 0) return CONFIG;
  if (strcmp(name, "lock") == 0) return LOCK;
  if (is_log(name, "csv")) return CSV;
  if (is_log(name, "jsonl")) return JSONL;
  for (size_t i = 0; i < sizeof checkpoints / sizeof *checkpoints; i++) {
    if (strcmp(name, checkpoints[i]) == 0) return CHECKPOINT;
  }
  return step_of(name) >= 0 ? CHECKPOINT : OTHER;
}

// 0.1 wrote config.yaml without a mark: every key with its value in brim's order, no comment.
static bool is_config(const char *text) {
  static const char *const keys[] = {"\nseed: ", "\ndevice: ", "\nthreads: ", "\npriority: "};
  if (brim_str_starts(text, CONFIG_MARK)) return true;
  if (!brim_str_starts(text, "workload: ") || strstr(text, "\n#")) return false;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    if (!strstr(text, keys[i])) return false;
  }
  return true;
}

static bool is_csv(const char *text) {
  return !*text || brim_str_starts(text, "epoch,step,lr,train_");
}

static bool is_jsonl(const char *text) {
  if (!*text) return true;
  const char *end = strchr(text, '\n'), *step = strstr(text, "\"step\":");
  return brim_str_starts(text, "{\"event\":\"") && step && (!end || step < end);
}

// *sure stays false for an empty lock and for a 0.1 lock with the PID alone: another program may write those.
static bool is_lock(const char *text, size_t size, bool *sure) {
  bool lock = brim_fs_is_lock(text, size);
  *sure = lock && strstr(text, " brim\n");
  return lock;
}

// Searches bytes, not text: the header may contain zeros.
static bool is_checkpoint(const char *data, size_t size, bool *sure) {
  static const char word[] = "\"brim.";
  *sure = false;
  if (size < 9 || data[8] != '{') return size == 0;
  for (size_t i = 8; !*sure && i + sizeof word - 1 <= size; i++) {
    *sure = memcmp(data + i, word, sizeof word - 1) == 0;
  }
  return *sure;
}

// Reads the beginning of a file, NUL-terminated, for brim_free. *size excludes the NUL.
static brim_status read_start(const char *path, char **out, size_t *size) {
  FILE *file = NULL;
  struct stat st;
  *out = NULL;
  *size = 0;
  if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return BRIM_OK;  // opening it will fail
  *out = brim_alloc(LOOK_BYTES + 1);
  if (!*out) return brim_fail(BRIM_ENOMEM, "out of memory while looking at %s", path);
  file = fopen(path, "rbe");
  if (file) {
    *size = fread(*out, 1, LOOK_BYTES, file);
    fclose(file);
  }
  (*out)[*size] = '\0';
  return BRIM_OK;
}

typedef struct look {
  const char *folder;
  bool csv, jsonl;  // the run writes these
  bool resume;      // an unreadable checkpoint is reported when it is opened
  bool own;         // a file here was certainly written by brim: the folder is a run's
  char weak[32];    // a file that is damaged if the folder is a run's, and another program's if not
} look;

static brim_status refuse(const char *folder, const char *name) {
  return brim_fail(BRIM_EEXIST,
                   "%s/%s was not written by brim, and this run would replace it; choose another "
                   "folder with --output-dir, or move the file away",
                   folder, name);
}

// True if the text looks like a file of this kind by brim. *sure: no other program writes it.
static bool is_ours(kind k, const char *text, size_t size, bool *sure) {
  *sure = false;
  switch (k) {
    case CONFIG:
      return *sure = is_config(text);
    case LOCK:
      return is_lock(text, size, sure);
    case CSV:
      return is_csv(text);
    case JSONL:
      return is_jsonl(text);
    case CHECKPOINT:
      return is_checkpoint(text, size, sure);
    case OTHER:
      break;
  }
  return true;
}

static brim_status check_file(look *l, const char *name) {
  kind k = kind_of(name);
  if (k == OTHER || (k == CSV && !l->csv) || (k == JSONL && !l->jsonl)) return BRIM_OK;
  char *path = brim_fs_join(l->folder, name), *text = NULL;
  size_t size = 0;
  if (!path) return brim_fail(BRIM_ENOMEM, "out of memory while looking at %s", name);
  brim_status status = read_start(path, &text, &size);
  bool sure = false, ours = !text || is_ours(k, text, size, &sure);
  if (sure) l->own = true;
  // brim repairs a torn first log; later logs begin whole
  bool weak = k == LOCK || strcmp(name, "log.csv") == 0 || strcmp(name, "log.jsonl") == 0 ||
              (k == CHECKPOINT && (size < 9 || text[8] != '{'));
  if (k == CHECKPOINT && weak && l->resume) ours = true;
  if (!status && !ours && !weak) status = refuse(l->folder, name);
  if (!ours && weak) snprintf(l->weak, sizeof l->weak, "%s", name);
  brim_free(text);
  brim_free(path);
  return status;
}

brim_status brim_run_folder_check(const brim_config *config, const char *folder, bool resume,
                                  bool *own) {
  char **names = NULL;
  size_t count = 0;
  look l = {.folder = folder,
            .resume = resume,
            .csv = brim_config_bool(config, "log.csv"),
            .jsonl = brim_config_bool(config, "log.jsonl")};
  BRIM_TRY(brim_fs_list(folder, &names, &count));
  brim_status status = BRIM_OK;
  for (size_t i = 0; !status && i < count; i++) status = check_file(&l, names[i]);
  brim_fs_list_free(names, count);
  *own = l.own;
  return !status && l.weak[0] && !l.own ? refuse(folder, l.weak) : status;
}

void brim_run_folder_restore(const char *folder) {
  if (brim_fs_is_dir(folder)) return;
  if (brim_fs_mkdirs(folder)) {
    brim_status_clear();  // the next write to the folder fails with the reason
    return;
  }
  brim_log_warn(
      "run",
      "%s was removed during the run; brim creates it again, but its earlier content is lost",
      folder);
}

//---------------------------------- settings ----------------------------------
// A checkpoint holds, as one JSON text ("brim.settings"), every key that changes what is learned. Resuming with
// other values is allowed; each difference gets a warning.

// Decides which keys belong in checkpoints.
static brim_config_learning learns_from(const char *workload) {
  const brim_workload_table *table = workload ? brim_workload_find(workload) : NULL;
  if (!table || !table->policy) return BRIM_CONFIG_LEARNS_FROM_DATA;
  return table->policy->networks ? BRIM_CONFIG_TRAINS_IN_ENV : BRIM_CONFIG_LEARNS_IN_ENV;
}

// The value of a dotted key in a nested object; borrowed, NULL if unset.
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

static brim_status put_settings(const brim_config *config, const brim_work *work,
                                json_t *metadata) {
  json_t *picked = NULL;
  char *text = NULL;
  BRIM_TRY(collect(config, &picked));
  // store the chosen number in place of "auto"
  brim_status status = BRIM_OK;
  for (size_t i = 0; !status && i < work->knob_count; i++) {
    const brim_knob *knob = &work->knobs[i];
    const char *word = json_string_value(json_object_get(picked, knob->key));
    if (knob->kind != BRIM_KNOB_INT || !word || strcmp(word, "auto") != 0) continue;
    status = brim_json_put(picked, knob->key, json_integer(knob->value));
  }
  if (!status) status = brim_json_dump(picked, 0, &text);
  if (!status) status = brim_json_put(metadata, "brim.settings", json_string(text));
  brim_free(text);
  json_decref(picked);
  return status;
}

// Adds the defaults of arguments that are newer than the checkpoint to a component. NULL if that fails.
static json_t *with_defaults(const char *key, const json_t *was) {
  brim_config *config = NULL;
  json_t *all = NULL, *out = NULL;
  brim_str text;
  const char *value = json_string_value(was);
  if (!value || strpbrk(value, "\"\\\r\n")) return NULL;  // the file is not trusted
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

static void warn_changed(const char *key, const json_t *was, const json_t *now, const char *path) {
  char *a = NULL, *b = NULL;
  if (!unset(was)) brim_json_dump(was, 0, &a);
  if (!unset(now)) brim_json_dump(now, 0, &b);
  brim_log_warn("run", "%s was trained with %s %s; this run continues with %s", path, key,
                a ? a : "unset", b ? b : "unset");
  brim_free(a);
  brim_free(b);
}

// True if the new held-out part is larger. The seed orders the samples, so a smaller part is within a larger.
static bool is_larger(const char *key, const json_t *was, const json_t *now) {
  return strcmp(key, "data.val_fraction") == 0 && json_number_value(now) > json_number_value(was);
}

static bool keeps_part(const brim_config *config) {
  const brim_component *val = brim_config_component(config, "dataset", "val");
  bool own = val && val != brim_config_component(config, "dataset", NULL);
  return !own && brim_config_float(config, "data.val_fraction") > 0;
}

// Running out of memory here costs the warnings only.
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
      warn_changed(key->name, a, b, path);
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

// Knobs that config.yaml must show with the value in use: those that the config leaves open, and those where the
// workload uses less than a default or a preset says.
static size_t numbers_used(const brim_config *config, const brim_work *work,
                           brim_config_number out[BRIM_KNOB_MAX]) {
  size_t count = 0;
  for (size_t i = 0; i < work->knob_count; i++) {
    const brim_knob *knob = &work->knobs[i];
    int64_t own;
    if (knob->kind != BRIM_KNOB_INT) continue;
    if (brim_config_get_int(config, knob->key, &own)) {  // left open
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
  brim_str_append(&yaml, CONFIG_MARK "\n");
  if (!status) status = brim_config_to_yaml_with(config, numbers, count, &yaml);
  if (!status) status = brim_str_status(&yaml);
  if (!status) status = brim_fs_write(path, yaml.data, yaml.len);
  brim_str_deinit(&yaml);
  brim_free(path);
  return status;
}

//---------------------------------- saving ----------------------------------
// A checkpoint is copied to host memory, and a thread writes the copy while training continues. One is written
// at a time. Each appears whole or not at all.

typedef brim_run_loop loop;

// The error of a failed save. The last checkpoint is still whole, since files are replaced by renaming.
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

// Metadata of a checkpoint. Weights alone get the settings, for eval, predict and export.
static brim_status make_extra(const loop *l, bool weights_only, json_t **out) {
  brim_json_setup();
  *out = json_object();
  if (!*out) return brim_fail(BRIM_ENOMEM, "out of memory while saving");
  brim_status status = put_settings(l->config, l->work, *out);
  if (!status && !weights_only) status = brim_run_position_put(l, *out);
  if (!status) return BRIM_OK;
  json_decref(*out);
  *out = NULL;
  return status;
}

// Restores a removed folder with its config and lock. Ignores errors: the next write reports them.
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

static brim_status write_both(brim_run_saver *s) {
  const char *path = s->files.last;
  if (s->best) BRIM_TRY(s->held.write(s->held.state, s->files.best));
  if (!s->last) return BRIM_OK;
  files_keep_last(&s->files, s->step);
  // best and last share one file until the end of the run: each save makes a new file, so none changes
  if (!s->best || brim_fs_link(s->files.best, path)) BRIM_TRY(s->held.write(s->held.state, path));
  s->files.last_step = s->step;
  files_prune(&s->files, s->step);
  return BRIM_OK;
}

static void write_files(void *saver) {
  brim_run_saver *s = (brim_run_saver *)saver;
  brim_time start = brim_clock_now();
  s->status = write_both(s);
  // the folder was removed while writing; the log may have created it again
  for (int tries = 0; tries < 3 && s->status == BRIM_ENOENT; tries++) {
    brim_run_folder_restore(s->files.folder);
    s->status = write_both(s);
  }
  if (s->status) snprintf(s->why, sizeof s->why, "%s", brim_status_detail());
  s->files.saved_at = brim_clock_now();
  s->files.save_ns = brim_time_since_ns(start, s->files.saved_at);
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
  if (s->last && l->options->on_checkpoint) l->options->on_checkpoint(l->options->ctx, s->step);
  return BRIM_OK;
}

brim_status brim_run_save_poll(loop *l) {
  if (!l->saver.busy || !__atomic_load_n(&l->saver.written, __ATOMIC_ACQUIRE)) return BRIM_OK;
  return brim_run_save_wait(l);
}

bool brim_run_save_postponed(const loop *l) {
  const brim_time now = brim_clock_now();
  const bool expensive = l->files.save_ns > CHEAP_NS;
  if (l->saver.busy) return expensive || brim_time_since_ns(l->saver.start, now) > CHEAP_NS;
  // spend at most a twentieth of the time on writing
  return expensive && brim_time_since_ns(l->files.saved_at, now) < 20 * l->files.save_ns;
}

// Writes the workload's state directly, without a copy.
typedef struct direct {
  const brim_work *work;
  const json_t *extra;
} direct;

static brim_status direct_write(void *state, const char *path) {
  const direct *d = (const direct *)state;
  return d->work->table->save(d->work->state, path, d->extra, false);
}

// Fills s->held with a copy of the state, or with the direct writer if `wait` is set or memory is short.
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

brim_status brim_run_save(loop *l, bool best, bool last, bool wait) {
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
  // write here if no thread can be started
  if (copied && brim_thread_start(write_files, s, "brim-save", &s->thread)) brim_status_clear();
  if (s->busy && !s->thread) {
    write_files(s);
    status = brim_run_save_wait(l);
  }
  json_decref(extra);
  return status;
}
