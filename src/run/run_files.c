// The checkpoint files of a run: the last ones by their steps, the best, and which of them is whole.
#include <inttypes.h>
#include <string.h>

#include "engine/engine.h"
#include "run/run_int.h"

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

void brim_run_files_saved(brim_run_files *files, brim_time start) {
  files->saved_at = brim_clock_now();
  files->save_ns = brim_time_since_ns(start, files->saved_at);
}

bool brim_run_files_young(const brim_run_files *files) {
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

void brim_run_files_keep_last(brim_run_files *files, int64_t step) {
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

// What lies in the folder is named by steps, not by age: of a run that was taken back to an earlier
// step the later ones are of another future. What is no checkpoint of this run stays.
void brim_run_files_prune(const brim_run_files *files, int64_t step) {
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

brim_status brim_run_files_newest(const brim_run_files *files, char **path) {
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
