// Checkpoints of a run, there and back. What an epoch or an interval leaves is copied to the host's
// memory and written by a thread of its own while training continues; what a run ends with is
// waited for. One is written at a time, and each appears whole or not at all.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "run/run_loop.h"

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
  brim_status status = brim_run_put_settings(l->config, l->work, *out);
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
  brim_run_files_keep_last(&s->files, s->step);
  if (!s->best || brim_fs_link(s->files.best, path)) BRIM_TRY(s->held.write(s->held.state, path));
  s->files.last_step = s->step;
  brim_run_files_prune(&s->files, s->step);
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
  brim_run_files_saved(&s->files, start);
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
  if (!l->saver.busy) return brim_run_files_young(&l->files);
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
    return l->options->resume ? brim_run_files_newest(&l->files, path) : BRIM_OK;
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
  brim_run_compare_settings(l->config, l->work, extra, path);
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
