// Sources of the live view besides this machine: a recording, and any source read in a thread of its own.
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "monitor/monitor_int.h"

void brim_top_close(brim_top_source *source) {
  if (source->close) source->close(source->ctx);
  memset(source, 0, sizeof *source);
}

//---------------------------------- recordings ----------------------------------

// Keeps only the beginning of a line longer than LINE_BYTES, which then fails to parse.
enum { BLOCK_BYTES = 1 << 16, LINE_BYTES = 64 << 20 };

typedef struct recording {
  FILE *file;
  char path[256];  // for messages
  brim_str line;
  long number, skipped;
  size_t at, end;  // of `block`
  char block[BLOCK_BYTES];
} recording;

// The next line without its end. BRIM_EEND after the last.
static brim_status next_line(recording *r) {
  bool whole = false;
  brim_str_clear(&r->line);
  for (;;) {
    if (r->at == r->end) {
      r->at = 0;
      r->end = fread(r->block, 1, sizeof r->block, r->file);
      if (ferror(r->file)) {
        return brim_fail(BRIM_EIO, "cannot read %s: %s", r->path, strerror(errno));
      }
      if (r->end == 0) break;
    }
    const char *from = r->block + r->at;
    const char *end = (const char *)memchr(from, '\n', r->end - r->at);
    size_t n = end ? (size_t)(end - from) : r->end - r->at;
    if (r->line.len < LINE_BYTES) brim_str_append_n(&r->line, from, n);
    r->at += n + (end != NULL);
    whole = end != NULL;
    if (whole) break;
  }
  BRIM_TRY(brim_str_status(&r->line));
  if (!whole && r->line.len == 0) return BRIM_EEND;
  r->number++;
  return BRIM_OK;
}

// The next line that is JSON. Skips and counts the others, which were cut off by a full disk or a stop.
static brim_status next_json(recording *r, json_t **out) {
  for (;;) {
    BRIM_TRY(next_line(r));
    if (r->line.len == 0) continue;
    brim_status status = brim_json_parse(r->line.data, r->line.len, r->path, out);
    if (status != BRIM_EPARSE) return status;
    brim_status_clear();
    r->skipped++;
  }
}

static brim_status recording_read(void *ctx, unsigned want, brim_top_view *out) {
  recording *r = (recording *)ctx;
  (void)want;  // a recording cannot leave anything out
  json_t *json = NULL;
  BRIM_TRY(next_json(r, &json));
  brim_status status = brim_top_view_from_json(json, out);
  if (status == BRIM_EPARSE) {
    char why[256];
    snprintf(why, sizeof why, "%s", brim_status_detail());
    status = brim_fail(BRIM_EPARSE, "%s:%ld: %s", r->path, r->number, why);
  }
  json_decref(json);
  return status;
}

static long recording_skipped(void *ctx) { return ((const recording *)ctx)->skipped; }

static void recording_close(void *ctx) {
  recording *r = (recording *)ctx;
  fclose(r->file);
  brim_str_deinit(&r->line);
  brim_free(r);
}

brim_status brim_top_open_recording(const char *path, brim_top_source *out) {
  memset(out, 0, sizeof *out);
  int fd = -1;
  uint64_t size = 0;
  BRIM_TRY(brim_fs_open_regular(path, &fd, &size));
  recording *r = (recording *)brim_calloc(1, sizeof *r);
  FILE *file = r ? fdopen(fd, "r") : NULL;
  if (!file) {
    close(fd);
    brim_free(r);
    return brim_fail(BRIM_ENOMEM, "out of memory");
  }
  r->file = file;
  snprintf(r->path, sizeof r->path, "%s", path);
  brim_str_init(&r->line);
  *out = (brim_top_source){.name = "recording",
                           .ctx = r,
                           .read = recording_read,
                           .skipped = recording_skipped,
                           .close = recording_close};
  return BRIM_OK;
}

//---------------------------------- reading in a thread ----------------------------------

enum { PATIENCE_NS = 100000000 };  // how long a stop waits for a reading to end

struct brim_top_reader {
  brim_top_open_fn open;
  void *ctx;
  brim_top_source source;  // used by the thread
  brim_thread *thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int event;
  // Under the lock:
  brim_top_reader_state state;
  bool begun, stop;
  bool abandoned;  // brim_top_reader_stop did not wait: the thread frees the reader
  unsigned want;
  brim_top_view view;
  brim_status status;
  char detail[256];
  brim_time since;  // of the opening or reading
  double took_s;
};

static void free_reader(brim_top_reader *r) {
  brim_top_close(&r->source);
  brim_top_view_deinit(&r->view);
  pthread_cond_destroy(&r->changed);
  pthread_mutex_destroy(&r->lock);
  close(r->event);
  brim_free(r);
}

// Stores the outcome of an opening or reading. The lock is held.
static void finish_locked(brim_top_reader *r, brim_status status, brim_top_reader_state state) {
  const uint64_t one = 1;
  r->status = status;
  snprintf(r->detail, sizeof r->detail, "%s", status ? brim_status_detail() : "");
  r->state = status ? BRIM_TOP_READER_DONE : state;
  r->took_s = (double)brim_time_since_ns(r->since, brim_clock_now()) * 1e-9;
  pthread_cond_broadcast(&r->changed);
  if (write(r->event, &one, sizeof one) < 0) return;  // full: it is readable already
}

static void work(void *ctx) {
  brim_top_reader *r = (brim_top_reader *)ctx;
  pthread_mutex_lock(&r->lock);
  r->begun = true;
  pthread_cond_broadcast(&r->changed);
  pthread_mutex_unlock(&r->lock);
  brim_status status = r->open(r->ctx, &r->source);
  pthread_mutex_lock(&r->lock);
  finish_locked(r, status, BRIM_TOP_READER_IDLE);
  while (!r->stop) {
    if (r->state != BRIM_TOP_READER_READING || !r->source.read) {
      pthread_cond_wait(&r->changed, &r->lock);
      continue;
    }
    unsigned want = r->want;
    pthread_mutex_unlock(&r->lock);
    status = r->source.read(r->source.ctx, want,
                            &r->view);  // the view belongs to the thread while READING
    pthread_mutex_lock(&r->lock);
    finish_locked(r, status, BRIM_TOP_READER_DONE);
  }
  r->state = BRIM_TOP_READER_IDLE;  // drop a reading that has not begun
  pthread_cond_broadcast(&r->changed);
  bool abandoned = r->abandoned;
  pthread_mutex_unlock(&r->lock);
  if (abandoned) free_reader(r);
}

static bool init_sync(brim_top_reader *r) {
  r->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (r->event < 0) return false;
  if (pthread_mutex_init(&r->lock, NULL)) goto fail_event;
  if (!brim_cond_init(&r->changed)) return true;
  pthread_mutex_destroy(&r->lock);
fail_event:
  close(r->event);
  return false;
}

brim_status brim_top_reader_start(brim_top_open_fn open, void *ctx, brim_top_reader **out) {
  *out = NULL;
  brim_top_reader *r = (brim_top_reader *)brim_calloc(1, sizeof *r);
  if (!r || !init_sync(r)) {
    brim_free(r);
    return brim_fail(BRIM_ENOMEM, "out of memory for a thread");
  }
  r->open = open;
  r->ctx = ctx;
  r->since = brim_clock_now();
  brim_top_view_init(&r->view);
  brim_status status = brim_thread_start(work, r, "brim-top", &r->thread);
  if (status) {
    free_reader(r);
    return status;
  }
  *out = r;
  return BRIM_OK;
}

static bool busy(const brim_top_reader *r) {
  return r->state == BRIM_TOP_READER_OPENING || r->state == BRIM_TOP_READER_READING;
}

void brim_top_reader_stop(brim_top_reader *reader) {
  brim_top_reader *r = reader;
  if (!r) return;
  const int64_t due_ns = brim_clock_now().ns + PATIENCE_NS;
  pthread_mutex_lock(&r->lock);
  r->stop = true;
  pthread_cond_broadcast(&r->changed);
  while (!r->begun) pthread_cond_wait(&r->changed, &r->lock);
  while (busy(r) && brim_cond_wait(&r->changed, &r->lock, due_ns)) continue;
  r->abandoned = busy(r);
  bool abandoned = r->abandoned;
  brim_thread *thread = r->thread;
  pthread_mutex_unlock(&r->lock);
  if (abandoned) {
    brim_thread_detach(thread);
    return;
  }
  brim_thread_join(thread);
  free_reader(r);
}

brim_top_reader_state brim_top_reader_poll(brim_top_reader *reader) {
  uint64_t count = 0;
  pthread_mutex_lock(&reader->lock);
  if (read(reader->event, &count, sizeof count) < 0) count = 0;  // nothing has ended
  brim_top_reader_state state = reader->state;
  pthread_mutex_unlock(&reader->lock);
  return state;
}

double brim_top_reader_busy_s(brim_top_reader *reader) {
  pthread_mutex_lock(&reader->lock);
  double seconds = busy(reader) ? (double)brim_time_since_ns(reader->since, brim_clock_now()) * 1e-9
                                : reader->took_s;
  pthread_mutex_unlock(&reader->lock);
  return seconds;
}

int brim_top_reader_fd(const brim_top_reader *reader) { return reader->event; }

void brim_top_reader_request(brim_top_reader *reader, unsigned want) {
  pthread_mutex_lock(&reader->lock);
  if (reader->state == BRIM_TOP_READER_IDLE) {
    reader->state = BRIM_TOP_READER_READING;
    reader->want = want;
    reader->since = brim_clock_now();
    pthread_cond_broadcast(&reader->changed);
  }
  pthread_mutex_unlock(&reader->lock);
}

brim_status brim_top_reader_take(brim_top_reader *reader, brim_top_view *out) {
  brim_top_reader *r = reader;
  pthread_mutex_lock(&r->lock);
  brim_status status = r->state == BRIM_TOP_READER_DONE ? r->status : BRIM_ESTATE;
  if (status == BRIM_ESTATE) {
    brim_status_set_detail("no reading has ended");
  } else if (status) {
    brim_status_set_detail(r->detail);
  } else {
    brim_top_view taken = *out;
    *out = r->view;
    r->view = taken;
  }
  // a failed opening has no source, so its failure stays
  if (r->state == BRIM_TOP_READER_DONE && r->source.read) r->state = BRIM_TOP_READER_IDLE;
  pthread_mutex_unlock(&r->lock);
  return status;
}
