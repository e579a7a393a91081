// The files of arrays (lab_slurm.h).
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "lab/slurm/lab_slurm.h"

enum { MOST_BYTES = 64 << 20 };

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory for an array of Slurm");
}

// FOLDER/slurm/NAME + end; NULL = out of memory.
static char *path_of(const char *folder, const char *name, const char *end) {
  brim_str path;
  brim_str_init(&path);
  brim_str_printf(&path, "%s/" BRIM_SLURM_FOLDER "/%s%s", folder, name, end);
  char *out = brim_str_status(&path) ? NULL : brim_str_take(&path);
  brim_str_deinit(&path);
  return out;
}

static brim_status to_json(const brim_slurm_array *a, json_t *o) {
  json_t *list = json_array();
  BRIM_TRY(brim_json_put(o, "name", json_string(a->name)));
  BRIM_TRY(brim_json_put(o, "job", json_string(a->job)));
  BRIM_TRY(brim_json_put(o, "submitted", json_integer(a->submitted_s)));
  BRIM_TRY(brim_json_put(o, "stop", json_boolean(a->stop)));
  BRIM_TRY(brim_json_put(o, "gpus", json_integer(a->gpus)));
  BRIM_TRY(brim_json_put(o, "nodes", json_integer(a->nodes)));
  BRIM_TRY(brim_json_put(o, "exps", list));
  for (size_t i = 0; i < a->count; i++) {
    BRIM_TRY(brim_json_push(list, json_pack("[sIb]", a->exps[i].id, (json_int_t)a->exps[i].attempt,
                                            (int)a->exps[i].over)));
  }
  return BRIM_OK;
}

brim_status brim_slurm_array_write(const char *folder, const brim_slurm_array *a) {
  json_t *o = json_object();
  char *text = NULL, *path = path_of(folder, a->name, ".json");
  brim_status status = o && path ? to_json(a, o) : no_memory();
  if (!status) status = brim_json_dump(o, 0, &text);
  if (!status) status = brim_fs_write(path, text, strlen(text));
  json_decref(o);
  brim_free(text);
  brim_free(path);
  return status;
}

static bool is_id(const char *text) {
  return text && strlen(text) == BRIM_SLURM_EXP - 1 &&
         strspn(text, "0123456789abcdef") == BRIM_SLURM_EXP - 1;
}

// As the sweep made it. Slurm takes a list of names, and scancel every job that has one of them: a file
// from elsewhere must not name what is not of a sweep.
static bool is_name(const char *text) {
  static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-";
  return text && brim_str_starts(text, "brim-") && strlen(text) < BRIM_SLURM_NAME &&
         text[strspn(text, letters)] == '\0';
}

static brim_status from_json(const json_t *o, const char *path, brim_slurm_array *out) {
  const char *name = json_string_value(json_object_get(o, "name"));
  const char *job = json_string_value(json_object_get(o, "job"));
  const json_t *list = json_object_get(o, "exps");
  size_t count = json_array_size(list);
  bool good = is_name(name) && job && strlen(job) < BRIM_SLURM_JOB;
  if (!good || count == 0) return brim_fail(BRIM_EPARSE, "%s is no array of Slurm", path);
  snprintf(out->name, sizeof out->name, "%s", name);
  snprintf(out->job, sizeof out->job, "%s", job);
  out->submitted_s = json_integer_value(json_object_get(o, "submitted"));
  out->stop = json_is_true(json_object_get(o, "stop"));
  out->gpus = json_integer_value(json_object_get(o, "gpus"));
  out->nodes = json_integer_value(json_object_get(o, "nodes"));
  out->exps = brim_calloc(count, sizeof *out->exps);
  if (!out->exps) return no_memory();
  out->count = count;
  for (size_t i = 0; i < count; i++) {
    const json_t *item = json_array_get(list, i);
    const char *id = json_string_value(json_array_get(item, 0));
    if (!is_id(id)) return brim_fail(BRIM_EPARSE, "%s has an experiment without an id", path);
    memcpy(out->exps[i].id, id, BRIM_SLURM_EXP);
    out->exps[i].attempt = json_integer_value(json_array_get(item, 1));
    out->exps[i].over = json_is_true(json_array_get(item, 2));
  }
  return BRIM_OK;
}

brim_status brim_slurm_array_read(const char *folder, const char *name, brim_slurm_array *out) {
  char *text = NULL, *path = path_of(folder, name, ".json");
  size_t size = 0;
  json_t *o = NULL;
  *out = (brim_slurm_array){0};
  if (!path) return no_memory();
  brim_status status =
      brim_fs_exists(path) ? BRIM_OK : brim_fail(BRIM_ENOENT, "there is no %s", path);
  if (!status) status = brim_fs_read(path, MOST_BYTES, &text, &size);
  if (!status) status = brim_json_parse(text, size, path, &o);
  if (!status) status = from_json(o, path, out);
  if (!status && strcmp(out->name, name) != 0) {
    status = brim_fail(BRIM_EPARSE, "%s is of another array, %s", path, out->name);
  }
  if (status) brim_slurm_array_deinit(out);
  json_decref(o);
  brim_free(text);
  brim_free(path);
  return status;
}

void brim_slurm_array_remove(const char *folder, const char *name) {
  static const char *const ends[] = {".sh", ".json"};
  for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
    char *path = path_of(folder, name, ends[i]);
    if (path && brim_fs_remove(path)) brim_status_clear();
    brim_free(path);
  }
}

void brim_slurm_array_deinit(brim_slurm_array *a) {
  brim_free(a->exps);
  *a = (brim_slurm_array){0};
}

brim_status brim_slurm_array_names(const char *folder, char ***names, size_t *count) {
  char *path = brim_fs_join(folder, BRIM_SLURM_FOLDER);
  *names = NULL;
  *count = 0;
  if (!path) return no_memory();
  brim_status status = brim_fs_is_dir(path) ? brim_fs_list(path, names, count) : BRIM_OK;
  brim_free(path);
  if (status) return status;
  size_t kept = 0;
  for (size_t i = 0; i < *count; i++) {
    char *name = (*names)[i];
    size_t n = strlen(name);
    if (brim_str_ends(name, ".json") && n < BRIM_SLURM_NAME + 5) {
      name[n - 5] = '\0';
      (*names)[i] = (*names)[kept];
      (*names)[kept++] = name;
    }
  }
  for (size_t i = kept; i < *count; i++) brim_free((*names)[i]);
  *count = kept;
  return BRIM_OK;
}
