// Measures the cost of a checkpoint within an epoch: compares steps with and without checkpoints. Checkpoints are
// written as in training (run_train.c): the state is copied, a thread writes it while steps continue, the next
// checkpoint waits for that thread, and the file replaces an older one.
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/base_thread.h"
#include "measure/measure_int.h"

enum { MOST_GAP = 50, LEAST_SAVES = 3, MOST_SAVES = 12, LEAST_STEPS = 4, MOST_STEPS = 100 };
#define PLAIN_MS 200.0
#define SAVES_MS 800.0

typedef struct saver {
  brim_work *work;
  brim_device *device;
  const char *path, *older;
  brim_work_held held;
  brim_thread *thread;
  brim_status status;
  char why[256];
} saver;

static double since_ms(brim_time start) {
  return (double)brim_time_since_ns(start, brim_clock_now()) * 1e-6;
}

//---------------------------------- writing ----------------------------------

static void write_file(void *ctx) {
  saver *s = (saver *)ctx;
  (void)rename(s->path, s->older);  // fails the first time: no file is there
  s->status = s->held.write(s->held.state, s->path);
  if (s->status) snprintf(s->why, sizeof s->why, "%s", brim_status_detail());
}

static brim_status save_wait(saver *s) {
  if (s->thread) brim_thread_join(s->thread);
  if (s->thread) s->held.free(s->held.state);
  s->thread = NULL;
  if (s->status) brim_status_set_detail(s->why);
  return s->status;
}

static brim_status save_start(saver *s) {
  const brim_work_background_table *background = s->work->table->background;
  BRIM_TRY(save_wait(s));
  if (background) {
    brim_status held = background->hold(s->work->state, NULL, false, &s->held);
    if (!held) return brim_thread_start(write_file, s, "brim-price", &s->thread);
    if (held != BRIM_ENOMEM) return held;
    brim_status_clear();
  }
  (void)rename(s->path, s->older);
  return s->work->table->save(s->work->state, s->path, NULL, false);
}

//---------------------------------- stepping ----------------------------------

static brim_status run_steps(const saver *s, int count) {
  for (int i = 0; i < count; i++) {
    brim_step_info info;
    BRIM_TRY(s->work->table->step(s->work->state, NULL, &info));
  }
  return BRIM_OK;
}

// Measures the milliseconds of a step without checkpoints.
static brim_status time_plain(const saver *s, double step_ms, double *ms) {
  int count = (int)fmin(MOST_STEPS, fmax(LEAST_STEPS, ceil(PLAIN_MS / fmax(step_ms, 1e-3))));
  BRIM_TRY(brim_device_sync(s->device));
  brim_time start = brim_clock_now();
  BRIM_TRY(run_steps(s, count));
  BRIM_TRY(brim_device_sync(s->device));
  *ms = since_ms(start) / count;
  return BRIM_OK;
}

// Measures the milliseconds of a checkpoint and the `gap` steps after it. With `waits` the next checkpoint follows
// these steps at once, and the time includes its wait for the writing thread. Otherwise training makes more steps
// before the next checkpoint, and the wait is left out.
static brim_status time_with_saves(saver *s, int gap, bool waits, double *ms) {
  double sum = 0;
  int saves = 0;
  BRIM_TRY(save_start(s));  // the first checkpoint allocates memory and disk space
  BRIM_TRY(run_steps(s, gap));
  BRIM_TRY(brim_device_sync(s->device));
  while (saves < LEAST_SAVES || (saves < MOST_SAVES && sum < SAVES_MS)) {
    if (!waits) BRIM_TRY(save_wait(s));
    brim_time start = brim_clock_now();
    BRIM_TRY(save_start(s));
    BRIM_TRY(run_steps(s, gap));
    BRIM_TRY(brim_device_sync(s->device));
    sum += since_ms(start);
    saves++;
    if (sum > 4 * SAVES_MS) break;
  }
  *ms = sum / saves;
  return BRIM_OK;
}

static brim_status compare(saver *s, double every, brim_result *out) {
  int gap = (int)fmin(every, MOST_GAP);
  double before = 0, after = 0, saved = 0;
  BRIM_TRY(run_steps(s, LEAST_STEPS));
  BRIM_TRY(time_plain(s, out->total_ms.median, &before));
  brim_status status = time_with_saves(s, gap, gap >= every, &saved);
  brim_status written = save_wait(s);
  BRIM_TRY(status);
  BRIM_TRY(written);
  BRIM_TRY(time_plain(s, out->total_ms.median, &after));
  out->checkpoint_steps = every;
  out->checkpoint_ms = fmax(0, saved - gap * (before + after) / 2);
  return BRIM_OK;
}

//---------------------------------- files ----------------------------------

// The test checkpoints are named as temporary files, so that brim_fs_remove_stale removes them, too.
#define PRICE ".brim-price"

// Removes files that a killed process left. Other files in the folder may be the user's.
static void remove_leftovers(const char *folder) {
  char **names = NULL;
  size_t count = 0, target;
  if (brim_fs_list(folder, &names, &count)) {
    brim_status_clear();
    return;
  }
  for (size_t i = 0; i < count; i++) {
    int64_t pid = brim_str_starts(names[i], PRICE BRIM_FS_TEMP_MARK)
                      ? brim_fs_temp_writer(names[i], &target)
                      : 0;
    char *path = pid && brim_fs_writer_gone(pid) ? brim_fs_join(folder, names[i]) : NULL;
    if (path) (void)unlink(path);
    brim_free(path);
  }
  brim_fs_list_free(names, count);
}

brim_status brim_checkpoint_measure(brim_work *work, const brim_config *config, brim_device *device,
                                    const char *folder, brim_result *out) {
  brim_work_info info;
  double every = config ? (double)brim_config_int(config, "checkpoint.interval") : 0;
  work->table->info(work->state, &info);
  // skip intervals in episodes: their number of steps is unknown here
  if (!(every > 0) || info.interval_unit || !folder) return BRIM_OK;
  char name[2][64];
  for (int i = 0; i < 2; i++) {
    snprintf(name[i], sizeof name[i], PRICE BRIM_FS_TEMP_MARK "%ld.%d", (long)getpid(), i);
  }
  remove_leftovers(folder);
  char *path = brim_fs_join(folder, name[0]), *older = brim_fs_join(folder, name[1]);
  brim_status status = BRIM_ENOMEM;
  if (path && older) {
    saver s = {.work = work, .device = device, .path = path, .older = older};
    status = compare(&s, every, out);
    (void)unlink(path);
    (void)unlink(older);
  } else {
    status = brim_fail(BRIM_ENOMEM, "out of memory for a path");
  }
  brim_free(path);
  brim_free(older);
  return status;
}
