// See lab_late.h.
#include "lab/lab_late.h"

#include <string.h>

#include "base/base_thread.h"
#include "lab/lab_exec_int.h"
#include "lab/lab_sweep.h"

enum { AGAIN_MS = 60000, PATIENCE_MS = 30000, TURN_MS = 100 };
static const int64_t MS = 1000000;

struct brim_lab_late {
  const struct brim_lab_link *link;
  char *folder;
  brim_thread *thread;
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  // Under the mutex.
  char **folders;  // that may have something to send
  size_t count, cap;
  bool stop;
};

static bool add_locked(brim_lab_late *l, const char *folder) {
  for (size_t i = 0; i < l->count; i++) {
    if (strcmp(l->folders[i], folder) == 0) return true;
  }
  if (l->count == l->cap) {
    size_t cap = l->cap ? 2 * l->cap : 16;
    char **more = brim_realloc(l->folders, cap * sizeof *more);
    if (!more) return false;
    l->folders = more;
    l->cap = cap;
  }
  l->folders[l->count] = brim_strdup(folder);
  l->count += l->folders[l->count] != NULL;
  return true;
}

void brim_lab_late_look(brim_lab_late *l, const char *folder) {
  brim_store_ref ref;
  if (!l || !brim_exec_owed_find(folder, &ref)) return;
  pthread_mutex_lock(&l->mutex);
  (void)add_locked(l, folder);
  pthread_cond_signal(&l->wake);
  pthread_mutex_unlock(&l->mutex);
}

static bool stops(brim_lab_late *l) {
  pthread_mutex_lock(&l->mutex);
  bool stop = l->stop;
  pthread_mutex_unlock(&l->mutex);
  return stop;
}

// True: nothing is left to send in the folder.
static bool send_folder(brim_lab_late *l, const char *folder) {
  brim_store_ref ref;
  brim_exec_files *files = NULL;
  if (!brim_exec_owed_find(folder, &ref)) return true;
  if (brim_lab_exec_find(folder, NULL)) return false;  // it sees to that itself
  if (brim_exec_files_open(l->link, folder, &ref, &files)) {
    brim_log_warn("lab", "%s", brim_status_detail());
    brim_status_clear();
    return false;
  }
  brim_exec_files_look(files);
  brim_exec_files_finish(files);
  brim_exec_files_state state = BRIM_EXEC_FILES_BUSY;
  while (state == BRIM_EXEC_FILES_BUSY && !stops(l)) {
    state = brim_exec_files_ask(files, PATIENCE_MS);
    if (state == BRIM_EXEC_FILES_BUSY) brim_clock_sleep_ns(TURN_MS * MS);
  }
  brim_exec_files_close(files);
  bool over = state == BRIM_EXEC_FILES_DONE || state == BRIM_EXEC_FILES_STALE;
  if (over) brim_exec_owed_remove(folder, ref.attempt);
  return over && !brim_exec_owed_find(folder, &ref);
}

// What an earlier worker left.
static void scan(brim_lab_late *l) {
  char **names = NULL, *all = brim_fs_join(l->folder, BRIM_LAB_SWEEP_EXPS);
  size_t count = 0;
  if (all && brim_fs_is_dir(all) && brim_fs_list(all, &names, &count)) brim_status_clear();
  for (size_t i = 0; i < count && !stops(l); i++) {
    char *folder = brim_fs_join(all, names[i]);
    if (folder) brim_lab_late_look(l, folder);
    brim_free(folder);
  }
  brim_fs_list_free(names, count);
  brim_free(all);
}

static void run(void *arg) {
  brim_lab_late *l = arg;
  scan(l);
  pthread_mutex_lock(&l->mutex);
  while (!l->stop) {
    for (size_t i = 0; i < l->count && !l->stop;) {
      char *folder = l->folders[i];  // others are only added behind it
      pthread_mutex_unlock(&l->mutex);
      bool over = send_folder(l, folder);
      pthread_mutex_lock(&l->mutex);
      if (!over) {
        i++;
        continue;
      }
      l->folders[i] = l->folders[--l->count];
      brim_free(folder);
    }
    if (!l->stop) (void)brim_cond_wait(&l->wake, &l->mutex, brim_clock_now().ns + AGAIN_MS * MS);
  }
  pthread_mutex_unlock(&l->mutex);
}

brim_status brim_lab_late_open(const struct brim_lab_link *link, const char *folder,
                               brim_lab_late **out) {
  *out = NULL;
  brim_lab_late *l = brim_calloc(1, sizeof *l);
  if (!l) return brim_fail(BRIM_ENOMEM, "out of memory while opening a sweep");
  l->link = link;
  l->folder = brim_strdup(folder);
  pthread_mutex_init(&l->mutex, NULL);
  brim_status status = l->folder && brim_cond_init(&l->wake) == 0
                           ? brim_thread_start(run, l, "brim-late", &l->thread)
                           : brim_fail(BRIM_ENOMEM, "out of memory while opening a sweep");
  if (!status) {
    *out = l;
    return BRIM_OK;
  }
  pthread_mutex_destroy(&l->mutex);
  brim_free(l->folder);
  brim_free(l);
  return status;
}

void brim_lab_late_close(brim_lab_late *l) {
  if (!l) return;
  pthread_mutex_lock(&l->mutex);
  l->stop = true;
  pthread_cond_signal(&l->wake);
  pthread_mutex_unlock(&l->mutex);
  brim_thread_join(l->thread);
  for (size_t i = 0; i < l->count; i++) brim_free(l->folders[i]);
  brim_free(l->folders);
  pthread_cond_destroy(&l->wake);
  pthread_mutex_destroy(&l->mutex);
  brim_free(l->folder);
  brim_free(l);
}
