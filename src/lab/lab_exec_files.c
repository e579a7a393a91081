// Sends the files of an attempt to the server, in a thread with a connection of its own, so that neither the
// training nor the beats wait for it. Checkpoints are opened when they are found: the training may replace
// them meanwhile. One that waits is replaced by a newer one; one that has begun is sent to its end.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base_thread.h"
#include "lab/http/lab_http_client.h"
#include "lab/lab_exec_int.h"
#include "lab/lab_files.h"
#include "lab/lab_link.h"
#include "lab/lab_link_http.h"

enum {
  CONNECT_MS = 3000,
  LOOK_MS = 1000,  // the log is looked at this often
  FIRST_PAUSE_MS = 200,
  LAST_PAUSE_MS = 10000,
  RECORD_MOST = 16 << 20,  // a longer record is sent at the end only
};
static const int64_t MS = 1000000;

// In the order in which they are sent: a checkpoint counts when the best one and the record that belong to
// it are there.
enum { RECORD, BEST, LAST, SET };
static const char *const set_names[SET] = {"record", "best", "checkpoint"};

typedef struct set {
  int fds[SET];  // -1 = none
  int64_t step;
} set;

struct brim_exec_files {
  brim_store_ref ref;
  const char *folder;  // borrowed
  brim_http_client *client;
  brim_thread *thread;
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  // Under the mutex.
  set found, waiting;  // found: not offered yet
  bool ending;         // what is left is sent, and then it is done
  bool done;           // all of it, but for what the server does not take
  bool stale;
  int64_t step;        // of the last checkpoint that the server has; -1 = none
  int64_t trouble_ns;  // since when nothing arrives; 0 = no trouble
  bool stop;           // also read without it
  // The thread's own.
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

//---------------------------------- sending ----------------------------------

static bool is_passing(brim_status status) {
  return status == BRIM_EIO || status == BRIM_ENOMEM || status == BRIM_EINTERRUPTED;
}

static bool stops(brim_exec_files *f) {
  pthread_mutex_lock(&f->mutex);
  bool stop = f->stop || f->stale;
  pthread_mutex_unlock(&f->mutex);
  return stop;
}

// Waits after a failure that may pass. False: to try again is no use.
static bool take_status(brim_exec_files *f, brim_status status, const char *name) {
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

// What was written since. One try; false: another may send the rest.
static bool send_log(brim_exec_files *f) {
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

// The whole file, however long it takes. True: the server has it.
static bool send_file(brim_exec_files *f, const char *kind, int fd, int64_t step) {
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
    if (brim_clock_now().ns - logged < LOOK_MS * MS) continue;
    logged = brim_clock_now().ns;
    if (!status) (void)send_log(f);  // people may be reading it
  }
  return true;
}

static bool is_sent(const brim_exec_files *f, int which, int fd) {
  struct stat st;
  const struct stat *old = &f->sent[which];
  return fstat(fd, &st) == 0 && st.st_ino == old->st_ino && st.st_size == old->st_size &&
         st.st_mtim.tv_sec == old->st_mtim.tv_sec && st.st_mtim.tv_nsec == old->st_mtim.tv_nsec;
}

static void send_set(brim_exec_files *f, set *s) {
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

// What there is only at the end.
static void send_rest(brim_exec_files *f) {
  static const char *const names[] = {"weights", "record", "config"};
  for (size_t i = 0; !stops(f) && i < sizeof names / sizeof *names; i++) {
    int fd = open_named(f->folder, brim_lab_file_find(names[i])->local);
    if (fd < 0) continue;
    (void)send_file(f, names[i], fd, -1);
    close(fd);
  }
  while (!stops(f) && !send_log(f)) continue;
}

static void sending(void *arg) {
  brim_exec_files *f = (brim_exec_files *)arg;
  for (bool over = false; !over;) {
    set next = {{-1, -1, -1}, -1};
    pthread_mutex_lock(&f->mutex);
    int64_t until = brim_clock_now().ns + LOOK_MS * MS;
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

//---------------------------------- the executor's side ----------------------------------

brim_status brim_exec_files_open(const brim_lab_link *link, const char *folder,
                                 const brim_store_ref *ref, brim_exec_files **out) {
  const char *url = brim_lab_link_server(link);
  *out = NULL;
  if (!url) return BRIM_OK;
  brim_exec_files *f = brim_calloc(1, sizeof *f);
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
  if (!status) status = brim_thread_start(sending, f, "brim-files", &f->thread);
  if (!status) {
    *out = f;
    return BRIM_OK;
  }
  brim_exec_files_close(f);
  return status;
}

void brim_exec_files_look(brim_exec_files *f) {
  set s = {{-1, -1, -1}, -1};
  s.fds[LAST] = open_named(f->folder, brim_lab_file_find(set_names[LAST])->local);
  s.fds[BEST] = open_named(f->folder, brim_lab_file_find(set_names[BEST])->local);
  s.fds[RECORD] = open_named(f->folder, brim_lab_file_find(set_names[RECORD])->local);
  if (s.fds[LAST] >= 0) s.step = brim_exec_checkpoint_step(s.fds[LAST]);
  clear_set(&f->found);
  f->found = s;
}

void brim_exec_files_offer(brim_exec_files *f) {
  if (!has_set(&f->found)) return;
  pthread_mutex_lock(&f->mutex);
  clear_set(&f->waiting);
  f->waiting = f->found;
  f->found = (set){{-1, -1, -1}, -1};
  pthread_cond_signal(&f->wake);
  pthread_mutex_unlock(&f->mutex);
}

int64_t brim_exec_files_step(brim_exec_files *f) {
  pthread_mutex_lock(&f->mutex);
  int64_t step = f->step;
  pthread_mutex_unlock(&f->mutex);
  return step;
}

void brim_exec_files_finish(brim_exec_files *f) {
  brim_exec_files_offer(f);
  pthread_mutex_lock(&f->mutex);
  f->ending = true;
  pthread_cond_signal(&f->wake);
  pthread_mutex_unlock(&f->mutex);
}

brim_exec_files_state brim_exec_files_ask(brim_exec_files *f, int64_t patience_ms) {
  pthread_mutex_lock(&f->mutex);
  int64_t now = brim_clock_now().ns;
  bool tired = f->trouble_ns && now - f->trouble_ns > patience_ms * MS;
  brim_exec_files_state state = f->stale  ? BRIM_EXEC_FILES_STALE
                                : f->done ? BRIM_EXEC_FILES_DONE
                                : tired   ? BRIM_EXEC_FILES_LATER
                                          : BRIM_EXEC_FILES_BUSY;
  pthread_mutex_unlock(&f->mutex);
  return state;
}

void brim_exec_files_close(brim_exec_files *f) {
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
