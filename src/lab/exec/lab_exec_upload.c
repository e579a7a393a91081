// Files of an attempt between this machine and a server: the checkpoint that another machine wrote,
// uploads while the training runs, and uploads that a worker makes later.

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base_thread.h"
#include "lab/exec/lab_exec_int.h"
#include "lab/http/lab_http_client.h"
#include "lab/wire/lab_wire.h"
#include "lab/wire/lab_wire_files.h"
#include "lab/wire/lab_wire_link.h"

static const int64_t MS = 1000000;

//------------------------------------- foreign checkpoints -------------------------------------
// Fetches the checkpoint of an experiment that another machine trained, before it is resumed here.

enum { CONNECT_MS = 3000, ASK_AGAIN_MS = 500 };

typedef struct fetch {
  brim_http_client *client;
  const char *folder, *exp;
  bool (*keep)(void *ctx);
  void *ctx;
  brim_lab_file_row rows[BRIM_LAB_FILE_KINDS];
  bool broken;  // this machine's disk failed
} fetch;

static const brim_lab_file_row *row_of(const fetch *f, const brim_lab_file_kind *kind) {
  return &f->rows[kind - brim_lab_file_kinds];
}

static brim_status ask_rows(brim_lab_link *link, fetch *f) {
  for (;;) {
    brim_status status = brim_lab_file_rows(link, f->exp, f->rows);
    if (status != BRIM_EIO) return status;
    brim_status_clear();
    if (!f->keep(f->ctx)) return BRIM_EINTERRUPTED;
    brim_clock_sleep_ns(ASK_AGAIN_MS * MS);
  }
}

static brim_status fetch_one(fetch *f, const brim_lab_file_kind *kind) {
  char *path = brim_fs_join(f->folder, kind->local);
  if (!path) return brim_fail(BRIM_ENOMEM, "out of memory for an experiment");
  brim_lab_getting g = {.client = f->client,
                        .exp = f->exp,
                        .kind = kind,
                        .row = row_of(f, kind),
                        .path = path,
                        .keep = f->keep,
                        .ctx = f->ctx};
  brim_status status = g.row->there ? brim_lab_get_file(&g) : BRIM_OK;
  f->broken = g.broken;
  brim_free(path);
  return status;
}

// Fetches the checkpoint last, so that a checkpoint that is here has its other files too.
static brim_status fetch_all(brim_lab_link *link, fetch *f) {
  static const char *const names[] = {"record", "best", "checkpoint"};
  const int64_t here = brim_exec_checkpoint_of(f->folder);
  BRIM_TRY(ask_rows(link, f));
  const brim_lab_file_row *last = row_of(f, brim_lab_file_find("checkpoint"));
  if (!last->there || last->step <= here) return BRIM_OK;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    BRIM_TRY(fetch_one(f, brim_lab_file_find(names[i])));
  }
  brim_log_info("lab", "the checkpoint of step %" PRId64 " comes from the server", last->step);
  return BRIM_OK;
}

brim_status brim_exec_fetch(brim_lab_link *link, const char *folder, const char *exp,
                            bool (*keep)(void *ctx), void *ctx) {
  const char *url = brim_lab_link_server(link);
  fetch f = {.folder = folder, .exp = exp, .keep = keep, .ctx = ctx};
  if (!url) return BRIM_OK;
  brim_status status = brim_lab_http_open(url, CONNECT_MS, &f.client);
  if (!status) status = fetch_all(link, &f);
  brim_http_client_close(f.client);
  if (!status || status == BRIM_EINTERRUPTED || f.broken) return status;
  brim_log_warn("lab", "the checkpoint on the server is not used: %s", brim_status_detail());
  brim_status_clear();
  return BRIM_OK;
}

//---------------------------------------- pending uploads ----------------------------------------
// attempt-N.files, {"ref": {"exp": ..., "attempt": N, "fence": N}}, says that the attempt has files
// to upload. It exists from the start of the attempt until the server has every file.

static const char pending_suffix[] = ".files";

static char *pending_path(const char *folder, int64_t attempt) {
  char name[64];
  snprintf(name, sizeof name, "attempt-%" PRId64 "%s", attempt, pending_suffix);
  return brim_fs_join(folder, name);
}

brim_status brim_exec_pending_write(const char *folder, const brim_store_ref *ref) {
  char *path = pending_path(folder, ref->attempt), *text = NULL;
  json_t *value = json_object();
  brim_status status = path ? brim_json_put(value, "ref", brim_lab_wire_ref(ref))
                            : brim_fail(BRIM_ENOMEM, "out of memory for a report");
  if (!status) status = brim_json_dump(value, 0, &text);
  if (!status) status = brim_fs_write(path, text, strlen(text));
  json_decref(value);
  brim_free(text);
  brim_free(path);
  return status;
}

void brim_exec_pending_remove(const char *folder, int64_t attempt) {
  char *path = pending_path(folder, attempt);
  if (path && brim_fs_exists(path)) (void)brim_fs_remove(path);
  brim_free(path);
  brim_status_clear();
}

static bool read_pending(const char *folder, const char *name, brim_store_ref *out) {
  char *path = brim_fs_join(folder, name), *text = NULL;
  size_t size = 0;
  json_t *value = NULL;
  bool good = path && !brim_fs_read(path, 1 << 16, &text, &size) &&
              !brim_json_parse(text, size, path, &value) && !brim_lab_wire_ref_of(value, out);
  json_decref(value);
  brim_free(text);
  brim_free(path);
  brim_status_clear();
  return good;
}

bool brim_exec_pending_find(const char *folder, brim_store_ref *out) {
  char **names = NULL;
  size_t count = 0;
  bool found = false;
  if (!brim_fs_is_dir(folder) || brim_fs_list(folder, &names, &count)) {
    brim_status_clear();
    return false;
  }
  for (size_t i = 0; !found && i < count; i++) {
    found = brim_str_starts(names[i], "attempt-") && brim_str_ends(names[i], pending_suffix) &&
            read_pending(folder, names[i], out);
  }
  brim_fs_list_free(names, count);
  return found;
}

//------------------------------------------- sending -------------------------------------------
// Sends the files of an attempt to the server, in a thread with a connection of its own, so that
// neither the training nor the beats wait for it. A checkpoint is opened when it is found, since
// the training may replace the file. A newer checkpoint replaces one that waits; one whose sending
// has begun is sent to its end.

enum {
  FILES_LOOK_MS = 1000,  // the log is looked at this often
  FIRST_PAUSE_MS = 200,
  LAST_PAUSE_MS = 10000,
  RECORD_MOST = 16 << 20,  // a longer record is sent at the end only
};

// A checkpoint and its files, in the order in which they are sent: the checkpoint counts when the others are there.
enum { RECORD, BEST, LAST, SET };
static const char *const set_names[SET] = {"record", "best", "checkpoint"};

typedef struct set {
  int fds[SET];  // -1 = none
  int64_t step;
} set;

struct brim_exec_upload {
  brim_store_ref ref;
  const char *folder;  // borrowed
  brim_http_client *client;
  brim_thread *thread;
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  // under the mutex
  set found, waiting;  // found: not offered yet
  bool ending;         // the rest is sent, and then it is done
  bool done;           // everything is sent, except what the server refuses
  bool stale;
  int64_t step;        // of the last checkpoint that the server has; -1 = none
  int64_t trouble_ns;  // since when nothing arrives; 0 = no trouble
  bool stop;           // also read without the mutex
  // the thread's own
  brim_lab_sending log;
  struct stat sent[SET];
  int64_t pause_ms;
};

static int open_named(const char *folder, const char *name) {
  char *path = brim_fs_join(folder, name);
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW) : -1;
  struct stat st;
  brim_free(path);
  if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))) {
    close(fd);
    fd = -1;
  }
  return fd;
}

static void clear_set(set *s) {
  for (int i = 0; i < SET; i++) {
    if (s->fds[i] >= 0) close(s->fds[i]);
    s->fds[i] = -1;
  }
  s->step = -1;
}

static bool has_set(const set *s) { return s->fds[LAST] >= 0; }

static bool is_passing(brim_status status) {
  return status == BRIM_EIO || status == BRIM_ENOMEM || status == BRIM_EINTERRUPTED;
}

static bool stops(brim_exec_upload *f) {
  pthread_mutex_lock(&f->mutex);
  bool stop = f->stop || f->stale;
  pthread_mutex_unlock(&f->mutex);
  return stop;
}

// Waits after a failure that may pass. False: trying again is no use.
static bool take_status(brim_exec_upload *f, brim_status status, const char *name) {
  pthread_mutex_lock(&f->mutex);
  if (!status) f->trouble_ns = f->pause_ms = 0;
  if (status == BRIM_ESTATE) f->stale = true;
  if (is_passing(status)) {
    if (!f->trouble_ns) {
      f->trouble_ns = brim_clock_now().ns;
      brim_log_warn("lab", "%s waits: %s", name, brim_status_detail());
    }
    f->pause_ms = f->pause_ms ? 2 * f->pause_ms : FIRST_PAUSE_MS;
    if (f->pause_ms > LAST_PAUSE_MS) f->pause_ms = LAST_PAUSE_MS;
    int64_t until = brim_clock_now().ns + f->pause_ms * MS;
    while (!f->stop && brim_cond_wait(&f->wake, &f->mutex, until)) continue;
  } else if (status && status != BRIM_ESTATE) {
    brim_log_warn("lab", "the server does not take %s: %s", name, brim_status_detail());
  }
  bool go_on = !f->stop && !f->stale && (!status || is_passing(status));
  pthread_mutex_unlock(&f->mutex);
  brim_status_clear();
  return go_on;
}

// Sends the new part of the log, with one try. False: another try may send the rest.
static bool send_log(brim_exec_upload *f) {
  struct stat st;
  bool done = false;
  char name[64];
  if (f->log.fd < 0) {
    snprintf(name, sizeof name, "attempt-%" PRId64 ".log", f->ref.attempt);
    f->log.fd = open_named(f->folder, name);
    if (f->log.fd < 0 || brim_lab_sending_begin(&f->log, NULL)) return true;
  }
  if (f->log.again < 0 || fstat(f->log.fd, &st) != 0) return true;
  f->log.size = (int64_t)st.st_size;
  while (!done && f->log.have < f->log.size) {
    brim_status status = brim_lab_sending_next(f->client, &f->log, &done);
    bool passing = is_passing(status);
    bool go_on = take_status(f, status, f->log.kind->shown);
    if (status && !passing) f->log.again = -1;  // never again
    if (!go_on || passing) return !passing;
  }
  return true;
}

// Sends the whole file, however long it takes. True: the server has it.
static bool send_file(brim_exec_upload *f, const char *kind, int fd, int64_t step) {
  brim_lab_sending s = {.ref = f->ref, .kind = brim_lab_file_find(kind), .fd = fd, .step = step};
  brim_status status = brim_lab_sending_begin(&s, &f->stop);
  bool done = false;
  int64_t logged = brim_clock_now().ns;
  if (status) {
    (void)take_status(f, status, kind);
    return false;
  }
  while (!done) {
    status = brim_lab_sending_next(f->client, &s, &done);
    if (!take_status(f, status, s.kind->shown)) return false;
    if (brim_clock_now().ns - logged < FILES_LOOK_MS * MS) continue;
    logged = brim_clock_now().ns;
    if (!status) (void)send_log(f);  // people may be reading it
  }
  return true;
}

static bool is_sent(const brim_exec_upload *f, int which, int fd) {
  struct stat st;
  const struct stat *old = &f->sent[which];
  return fstat(fd, &st) == 0 && st.st_ino == old->st_ino && st.st_size == old->st_size &&
         st.st_mtim.tv_sec == old->st_mtim.tv_sec && st.st_mtim.tv_nsec == old->st_mtim.tv_nsec;
}

static void send_set(brim_exec_upload *f, set *s) {
  bool good = true;
  for (int i = 0; good && i < SET; i++) {
    struct stat st = {0};
    if (s->fds[i] < 0 || is_sent(f, i, s->fds[i]) || fstat(s->fds[i], &st) != 0) continue;
    if (i == RECORD && st.st_size > RECORD_MOST) continue;
    good = send_file(f, set_names[i], s->fds[i], i == LAST ? s->step : -1);
    if (good) f->sent[i] = st;
  }
  pthread_mutex_lock(&f->mutex);
  if (good && has_set(s)) f->step = s->step;
  pthread_mutex_unlock(&f->mutex);
  clear_set(s);
}

// Sends the files that exist only at the end.
static void send_rest(brim_exec_upload *f) {
  static const char *const names[] = {"weights", "record", "config"};
  for (size_t i = 0; !stops(f) && i < sizeof names / sizeof *names; i++) {
    int fd = open_named(f->folder, brim_lab_file_find(names[i])->local);
    if (fd < 0) continue;
    (void)send_file(f, names[i], fd, -1);
    close(fd);
  }
  while (!stops(f) && !send_log(f)) continue;
}

static void upload_thread(void *arg) {
  brim_exec_upload *f = arg;
  for (bool over = false; !over;) {
    set next = {{-1, -1, -1}, -1};
    pthread_mutex_lock(&f->mutex);
    int64_t until = brim_clock_now().ns + FILES_LOOK_MS * MS;
    while (!f->stop && !f->ending && !has_set(&f->waiting) &&
           brim_cond_wait(&f->wake, &f->mutex, until)) {
      continue;
    }
    bool ending = f->ending;
    if (has_set(&f->waiting)) {
      next = f->waiting;
      f->waiting = (set){{-1, -1, -1}, -1};
    }
    over = f->stop || f->stale;
    pthread_mutex_unlock(&f->mutex);
    if (!over) (void)send_log(f);
    if (!over && has_set(&next)) send_set(f, &next);
    clear_set(&next);
    if (!ending || over) continue;
    send_rest(f);
    over = true;
    pthread_mutex_lock(&f->mutex);
    f->done = !f->stop;
    pthread_mutex_unlock(&f->mutex);
  }
}

brim_status brim_exec_upload_open(const brim_lab_link *link, const char *folder,
                                  const brim_store_ref *ref, brim_exec_upload **out) {
  const char *url = brim_lab_link_server(link);
  *out = NULL;
  if (!url) return BRIM_OK;
  brim_exec_upload *f = brim_calloc(1, sizeof *f);
  if (!f) return brim_fail(BRIM_ENOMEM, "out of memory for an experiment");
  f->ref = *ref;
  f->folder = folder;
  f->found = f->waiting = (set){{-1, -1, -1}, -1};
  f->step = -1;
  f->log = (brim_lab_sending){
      .ref = *ref, .kind = brim_lab_file_find("log"), .fd = -1, .step = -1, .have = -1};
  pthread_mutex_init(&f->mutex, NULL);
  if (brim_cond_init(&f->wake)) {
    pthread_mutex_destroy(&f->mutex);
    brim_free(f);
    return brim_fail(BRIM_EIO, "cannot start a thread for the files of an experiment");
  }
  brim_status status = brim_lab_http_open(url, CONNECT_MS, &f->client);
  if (!status) status = brim_thread_start(upload_thread, f, "brim-files", &f->thread);
  if (!status) {
    *out = f;
    return BRIM_OK;
  }
  brim_exec_upload_close(f);
  return status;
}

void brim_exec_upload_look(brim_exec_upload *f) {
  set s = {{-1, -1, -1}, -1};
  s.fds[LAST] = open_named(f->folder, brim_lab_file_find(set_names[LAST])->local);
  s.fds[BEST] = open_named(f->folder, brim_lab_file_find(set_names[BEST])->local);
  s.fds[RECORD] = open_named(f->folder, brim_lab_file_find(set_names[RECORD])->local);
  if (s.fds[LAST] >= 0) s.step = brim_exec_checkpoint_step(s.fds[LAST]);
  clear_set(&f->found);
  f->found = s;
}

void brim_exec_upload_offer(brim_exec_upload *f) {
  if (!has_set(&f->found)) return;
  pthread_mutex_lock(&f->mutex);
  clear_set(&f->waiting);
  f->waiting = f->found;
  f->found = (set){{-1, -1, -1}, -1};
  pthread_cond_signal(&f->wake);
  pthread_mutex_unlock(&f->mutex);
}

int64_t brim_exec_upload_step(brim_exec_upload *f) {
  pthread_mutex_lock(&f->mutex);
  int64_t step = f->step;
  pthread_mutex_unlock(&f->mutex);
  return step;
}

void brim_exec_upload_finish(brim_exec_upload *f) {
  brim_exec_upload_offer(f);
  pthread_mutex_lock(&f->mutex);
  f->ending = true;
  pthread_cond_signal(&f->wake);
  pthread_mutex_unlock(&f->mutex);
}

brim_exec_upload_state brim_exec_upload_ask(brim_exec_upload *f, int64_t patience_ms) {
  pthread_mutex_lock(&f->mutex);
  int64_t now = brim_clock_now().ns;
  bool tired = f->trouble_ns && now - f->trouble_ns > patience_ms * MS;
  brim_exec_upload_state state = f->stale  ? BRIM_EXEC_UPLOAD_STALE
                                 : f->done ? BRIM_EXEC_UPLOAD_DONE
                                 : tired   ? BRIM_EXEC_UPLOAD_LATER
                                           : BRIM_EXEC_UPLOAD_BUSY;
  pthread_mutex_unlock(&f->mutex);
  return state;
}

void brim_exec_upload_close(brim_exec_upload *f) {
  if (!f) return;
  pthread_mutex_lock(&f->mutex);
  __atomic_store_n(&f->stop, true, __ATOMIC_RELAXED);
  pthread_cond_signal(&f->wake);
  pthread_mutex_unlock(&f->mutex);
  brim_thread_join(f->thread);
  clear_set(&f->found);
  clear_set(&f->waiting);
  if (f->log.fd >= 0) close(f->log.fd);
  brim_http_client_close(f->client);
  pthread_cond_destroy(&f->wake);
  pthread_mutex_destroy(&f->mutex);
  brim_free(f);
}

//---------------------------------------- later uploads ----------------------------------------
// The thread of a worker that sends files which executors could not send in time.

enum { LATER_MS = 60000, PATIENCE_MS = 30000, TURN_MS = 100 };

struct brim_lab_uploads {
  const struct brim_lab_link *link;
  char *folder;
  brim_thread *thread;
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  // under the mutex
  char **folders;  // folders that may have something to send
  size_t count, cap;
  bool stop;
};

static bool add_locked(brim_lab_uploads *l, const char *folder) {
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

void brim_lab_uploads_look(brim_lab_uploads *l, const char *folder) {
  brim_store_ref ref;
  if (!l || !brim_exec_pending_find(folder, &ref)) return;
  pthread_mutex_lock(&l->mutex);
  (void)add_locked(l, folder);
  pthread_cond_signal(&l->wake);
  pthread_mutex_unlock(&l->mutex);
}

static bool uploads_stop(brim_lab_uploads *l) {
  pthread_mutex_lock(&l->mutex);
  bool stop = l->stop;
  pthread_mutex_unlock(&l->mutex);
  return stop;
}

// True: nothing is left to send in the folder.
static bool send_folder(brim_lab_uploads *l, const char *folder) {
  brim_store_ref ref;
  brim_exec_upload *files = NULL;
  if (!brim_exec_pending_find(folder, &ref)) return true;
  if (brim_lab_exec_find(folder, NULL)) return false;  // its executor still runs and sends them
  if (brim_exec_upload_open(l->link, folder, &ref, &files)) {
    brim_log_warn("lab", "%s", brim_status_detail());
    brim_status_clear();
    return false;
  }
  brim_exec_upload_look(files);
  brim_exec_upload_finish(files);
  brim_exec_upload_state state = BRIM_EXEC_UPLOAD_BUSY;
  while (state == BRIM_EXEC_UPLOAD_BUSY && !uploads_stop(l)) {
    state = brim_exec_upload_ask(files, PATIENCE_MS);
    if (state == BRIM_EXEC_UPLOAD_BUSY) brim_clock_sleep_ns(TURN_MS * MS);
  }
  brim_exec_upload_close(files);
  bool over = state == BRIM_EXEC_UPLOAD_DONE || state == BRIM_EXEC_UPLOAD_STALE;
  if (over) brim_exec_pending_remove(folder, ref.attempt);
  return over && !brim_exec_pending_find(folder, &ref);
}

// Finds the uploads that an earlier worker left.
static void find_uploads(brim_lab_uploads *l) {
  char **names = NULL, *all = brim_fs_join(l->folder, BRIM_LAB_EXPS);
  size_t count = 0;
  if (all && brim_fs_is_dir(all) && brim_fs_list(all, &names, &count)) brim_status_clear();
  for (size_t i = 0; i < count && !uploads_stop(l); i++) {
    char *folder = brim_fs_join(all, names[i]);
    if (folder) brim_lab_uploads_look(l, folder);
    brim_free(folder);
  }
  brim_fs_list_free(names, count);
  brim_free(all);
}

static void later_thread(void *arg) {
  brim_lab_uploads *l = arg;
  find_uploads(l);
  pthread_mutex_lock(&l->mutex);
  while (!l->stop) {
    for (size_t i = 0; i < l->count && !l->stop;) {
      char *folder = l->folders[i];  // other threads only add behind it
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
    if (!l->stop) (void)brim_cond_wait(&l->wake, &l->mutex, brim_clock_now().ns + LATER_MS * MS);
  }
  pthread_mutex_unlock(&l->mutex);
}

brim_status brim_lab_uploads_open(const struct brim_lab_link *link, const char *folder,
                                  brim_lab_uploads **out) {
  *out = NULL;
  brim_lab_uploads *l = brim_calloc(1, sizeof *l);
  if (!l) return brim_fail(BRIM_ENOMEM, "out of memory while opening a sweep");
  l->link = link;
  l->folder = brim_strdup(folder);
  pthread_mutex_init(&l->mutex, NULL);
  brim_status status = l->folder && brim_cond_init(&l->wake) == 0
                           ? brim_thread_start(later_thread, l, "brim-late", &l->thread)
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

void brim_lab_uploads_close(brim_lab_uploads *l) {
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
