// One attempt of one experiment: starts the training, reads what it says and leaves, reports to the store
// (lab_exec.h). lab_exec_files.c has its files.

#include "lab/lab_exec.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "config/config.h"
#include "lab/lab_exec_int.h"
#include "lab/wire/lab_wire_files.h"
#include "lab/wire/lab_wire_link.h"
#include "record/record_job.h"

//--------------------------------------- failure classes ---------------------------------------
// How an attempt ended: from what the training said, its exit code or signal, and why the executor ended
// it. Plain rules over plain values, except for the kernel's counts of killed processes.

enum { EXIT_USAGE = 2, EXIT_DEVICE = 3, EXIT_MEMORY = 4, EXIT_INTERRUPTED = 130 };

static void say(brim_lab_exec_report *out, const char *text) {
  snprintf(out->message, sizeof out->message, "%s", text);
  brim_utf8_trim(out->message);
}

static void fail(brim_lab_exec_report *out, brim_failure failure) {
  out->outcome = BRIM_ATTEMPT_ERROR;
  out->failure = failure;
}

//---------------------------------- by signal ----------------------------------

static bool is_fault(int number) {
  return number == SIGSEGV || number == SIGBUS || number == SIGABRT || number == SIGFPE ||
         number == SIGILL || number == SIGSYS || number == SIGTRAP;
}

static void by_signal(const brim_exec_ending *e, brim_lab_exec_report *out) {
  int number = e->child->signal;
  const char *name = sigabbrev_np(number);
  if (number == SIGKILL && e->oom_killed) {
    fail(out, BRIM_FAILURE_OOM_HOST);
    say(out, brim_tr("the kernel killed the training: the machine's memory is full"));
    return;
  }
  fail(out, is_fault(number) ? BRIM_FAILURE_CRASH : BRIM_FAILURE_KILLED);
  snprintf(out->message, sizeof out->message,
           is_fault(number) ? brim_tr("the training crashed with signal %d (SIG%s)")
                            : brim_tr("another process ended the training with signal %d (SIG%s)"),
           number, name ? name : "?");
}

//---------------------------------- by its word ----------------------------------

// A full disk is the machine's failure, whatever the training was doing with it.
static bool is_disk(const char *message) {
  static const int errors[] = {ENOSPC, EDQUOT, EFBIG, EROFS};
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
    if (strstr(message, brim_errno_text(errors[i]))) return true;
  }
  return false;
}

// For a training that names no class: by the status.
static brim_failure by_status(const brim_exec_events *e) {
  switch (e->status) {
    case BRIM_EOOM:
      return e->started ? BRIM_FAILURE_OOM_DEVICE : BRIM_FAILURE_OOM_PLANNED;
    case BRIM_ENOMEM:
      return BRIM_FAILURE_OOM_HOST;
    case BRIM_EDEVICE:
      return BRIM_FAILURE_INFRASTRUCTURE;
    case BRIM_EUNSUPPORTED:
    case BRIM_EABI:
      return BRIM_FAILURE_UNSUPPORTED;
    case BRIM_EINTERRUPTED:
      return BRIM_FAILURE_INTERRUPTED;
    case BRIM_EINTERNAL:
    case BRIM_ECHILD:
      return BRIM_FAILURE_CRASH;
    case BRIM_EIO:
    case BRIM_EEND:
      return BRIM_FAILURE_DATA;
    case BRIM_EPARSE:
    case BRIM_ENOENT:
      return e->started ? BRIM_FAILURE_DATA : BRIM_FAILURE_BAD_CONFIG;
    case BRIM_ESTATE:  // nothing finite is left to train
      return e->started ? BRIM_FAILURE_NAN : BRIM_FAILURE_BAD_CONFIG;
    default:
      return e->started ? BRIM_FAILURE_OTHER : BRIM_FAILURE_BAD_CONFIG;
  }
}

static void by_word(const brim_exec_events *e, brim_lab_exec_report *out) {
  brim_failure failure = e->failure != BRIM_FAILURE_NONE ? e->failure : by_status(e);
  fail(out, is_disk(e->message) ? BRIM_FAILURE_INFRASTRUCTURE : failure);
  say(out, e->message[0] ? e->message : brim_status_text(e->status));
}

//---------------------------------- by exit code ----------------------------------

static brim_failure by_code(int code, bool started) {
  switch (code) {
    case EXIT_USAGE:
      return BRIM_FAILURE_BAD_CONFIG;
    case EXIT_DEVICE:
      return BRIM_FAILURE_INFRASTRUCTURE;
    case EXIT_MEMORY:
      return started ? BRIM_FAILURE_OOM_DEVICE : BRIM_FAILURE_OOM_PLANNED;
    case EXIT_INTERRUPTED:
      return BRIM_FAILURE_INTERRUPTED;
    default:
      return BRIM_FAILURE_CRASH;
  }
}

static void by_exit(const brim_exec_ending *e, brim_lab_exec_report *out) {
  fail(out, by_code(e->child->exit_code, e->events->started));
  const char *last =
      e->events->line_count ? e->events->lines[(e->events->line_count - 1) % BRIM_EXEC_LINES] : "";
  snprintf(out->message, sizeof out->message,
           brim_tr("the training ended with exit code %d and gave no reason: %s"),
           e->child->exit_code, last);
  brim_utf8_trim(out->message);
}

//---------------------------------- all ----------------------------------

static void hung(const brim_exec_ending *e, brim_lab_exec_report *out) {
  char time[32];
  brim_format_duration((double)e->quiet_ns * 1e-9, time);
  fail(out, BRIM_FAILURE_HUNG);
  snprintf(out->message, sizeof out->message,
           brim_tr("the training made no progress for %s, so brim ended it"), time);
}

void brim_exec_classify(const brim_exec_ending *e, brim_lab_exec_report *out) {
  const brim_child_result *child = e->child;
  out->outcome = BRIM_ATTEMPT_OK;
  out->failure = BRIM_FAILURE_NONE;
  out->message[0] = '\0';
  out->exit_code = child->signal ? 128 + child->signal : child->exit_code;
  bool good = !child->lost && !child->signal && child->exit_code == 0;
  bool ours = e->why == BRIM_EXEC_ASKED || e->why == BRIM_EXEC_ALONE;
  bool stopped = child->exit_code == EXIT_INTERRUPTED || child->signal;
  if (good) return;  // whatever the executor wanted, the work is done
  if (e->why == BRIM_EXEC_HUNG) {
    hung(e, out);
  } else if (ours && stopped) {
    out->outcome = BRIM_ATTEMPT_STOPPED;
  } else if (child->lost) {
    fail(out, BRIM_FAILURE_OTHER);
    say(out, brim_tr("how the training ended is not known"));
  } else if (child->signal) {
    by_signal(e, out);
  } else if (e->events->failed) {
    by_word(e->events, out);
  } else {
    by_exit(e, out);
  }
}

//---------------------------------- killed for memory ----------------------------------

int64_t brim_exec_oom_count(const char *path) {
  char *text = NULL;
  int64_t count = -1;
  if (brim_fs_read(path, 1 << 20, &text, NULL)) {
    brim_status_clear();
    return -1;
  }
  for (const char *line = text; line && *line;) {
    if (sscanf(line, "oom_kill %" SCNd64, &count) == 1) break;
    line = strchr(line, '\n');
    if (line) line++;
  }
  brim_free(text);
  return count;
}

int64_t brim_exec_oom_kills(void) {
  char *text = NULL;
  int64_t count = -1;
  if (brim_fs_read("/proc/self/cgroup", 1 << 16, &text, NULL) == BRIM_OK) {
    const char *group = strncmp(text, "0::", 3) == 0 ? text + 3 : NULL;  // version 2
    brim_str path;
    brim_str_init(&path);
    if (group) {
      brim_str_printf(&path, "/sys/fs/cgroup%.*s/memory.events", (int)strcspn(group, "\n"), group);
      count = brim_exec_oom_count(path.data);
    }
    brim_str_deinit(&path);
  }
  brim_free(text);
  brim_status_clear();
  return count >= 0 ? count : brim_exec_oom_count("/proc/vmstat");
}

//------------------------------------------- findings -------------------------------------------
// What slows a training down, as it publishes it while it runs (record_job.h).

enum { LOOK_MS = 3000 };

typedef struct looking {
  int64_t pid;
  json_t *found;
} looking;

static brim_status on_job(void *ctx, const brim_job *job) {
  looking *l = ctx;
  json_t *json = NULL;
  if (job->pid != l->pid || l->found) return BRIM_OK;
  BRIM_TRY(brim_job_to_json(job, &json));
  l->found = json_incref(json_object_get(json, "findings"));
  json_decref(json);
  return BRIM_OK;
}

// Of the training with this pid, every few seconds.
// One that cannot be read is looked for again. Nothing is news where nothing was found before.
static void brim_exec_findings_look(brim_exec_findings *f, int64_t pid, int64_t now_ns) {
  looking l = {.pid = pid};
  char *text = NULL;
  if (f->looked_ns && now_ns - f->looked_ns < LOOK_MS * 1000000LL) return;
  f->looked_ns = now_ns;
  brim_status status = brim_jobs_each(brim_clock_wall_s(), on_job, &l, NULL);
  bool empty = json_array_size(l.found) == 0 && !f->text;
  if (!status && l.found && !empty) status = brim_json_dump(l.found, 0, &text);
  json_decref(l.found);
  if (status) brim_status_clear();
  if (!text || (f->text && strcmp(f->text, text) == 0)) {
    brim_free(text);
    return;
  }
  brim_free(f->text);
  f->text = text;
  f->sent = false;
}

static void brim_exec_findings_deinit(brim_exec_findings *f) { brim_free(f->text); }

//-------------------------------------------- events --------------------------------------------
// What a training says while it runs: its events, which are JSON lines on its standard output, and the
// last of all other lines.

enum { STEPS_OF_PATIENCE = 20, PAUSES_OF_PATIENCE = 3, LONGEST_EVENT = 1 << 20 };

void brim_exec_events_init(brim_exec_events *e, int64_t now_ns) {
  memset(e, 0, sizeof *e);
  e->progress = (brim_store_progress){-1, -1, -1, -1};
  e->start_step = e->rate_step = -1;
  e->sign_ns = now_ns;
}

//---------------------------------- events ----------------------------------

static int64_t integer(const json_t *event, const char *key) {
  const json_t *value = json_object_get(event, key);
  return json_is_integer(value) && json_integer_value(value) >= 0
             ? (int64_t)json_integer_value(value)
             : -1;
}

static void sign(brim_exec_events *e, int64_t now_ns) {
  int64_t pause = now_ns - e->sign_ns;
  if (pause > e->longest_ns) e->longest_ns = pause;
  e->sign_ns = now_ns;
}

static void reach(brim_exec_events *e, int64_t step, int64_t now_ns) {
  if (step < 0) return;
  if (e->rate_step >= 0 && step > e->rate_step) {
    int64_t each = (now_ns - e->rate_ns) / (step - e->rate_step);
    e->step_ns[e->step_count++ % BRIM_EXEC_RATES] = each;
  }
  e->rate_step = step;
  e->rate_ns = now_ns;
  e->progress.step = step;
}

// "epoch 2/10", and done of total steps in it.
static void take_progress(brim_exec_events *e, const json_t *event, int64_t now_ns) {
  const char *title = json_string_value(json_object_get(event, "title"));
  int64_t epoch = 0, epochs = 0, done = integer(event, "done"), total = integer(event, "total");
  if (title && sscanf(title, "epoch %" SCNd64 "/%" SCNd64, &epoch, &epochs) == 2 && epoch > 0) {
    e->progress.epoch = epoch;
    e->progress.epochs = epochs;
    if (done >= 0 && total > 0) reach(e, (epoch - 1) * total + done, now_ns);
  }
  sign(e, now_ns);
}

static void take_start(brim_exec_events *e, const json_t *event, int64_t now_ns) {
  e->started = true;
  e->start_step = integer(event, "start_step");
  e->progress.steps = integer(event, "steps");
  e->progress.epochs = integer(event, "epochs");
  reach(e, e->start_step, now_ns);
  sign(e, now_ns);
}

static void take_steps(brim_exec_events *e, const json_t *event, int64_t now_ns) {
  reach(e, integer(event, "step"), now_ns);
  sign(e, now_ns);
}

static void take_epoch(brim_exec_events *e, const json_t *event, int64_t now_ns) {
  int64_t epoch = integer(event, "epoch"), epochs = integer(event, "epochs");
  if (epoch > 0) e->progress.epoch = epoch;
  if (epochs > 0) e->progress.epochs = epochs;
  sign(e, now_ns);
}

static void take_result(brim_exec_events *e, const json_t *event, int64_t now_ns) {
  int64_t epochs = integer(event, "epochs");
  e->done = !json_is_true(json_object_get(event, "interrupted"));
  reach(e, integer(event, "steps"), now_ns);
  if (epochs >= 0) e->progress.epoch = epochs;
  sign(e, now_ns);
}

static brim_status status_of(const char *name) {
#define X(id, value, text) \
  if (strcmp(name, "BRIM_" #id) == 0) return BRIM_##id;
  BRIM_STATUS_MAP(X)
#undef X
  return BRIM_EINTERNAL;
}

static void take_error(brim_exec_events *e, const json_t *event, int64_t now_ns) {
  const char *status = json_string_value(json_object_get(event, "status"));
  const char *text = json_string_value(json_object_get(event, "message"));
  const char *name = json_string_value(json_object_get(event, "class"));
  e->failed = true;
  e->status = status ? status_of(status) : BRIM_EINTERNAL;
  e->failure = name ? brim_failure_of(name) : BRIM_FAILURE_NONE;
  snprintf(e->message, sizeof e->message, "%s", text ? text : "");
  brim_utf8_trim(e->message);
  sign(e, now_ns);
}

static const struct {
  const char *name;
  bool shown;
  void (*take)(brim_exec_events *e, const json_t *event, int64_t now_ns);
} kinds[] = {
    {"progress", false, take_progress}, {"steps", false, take_steps}, {"error", false, take_error},
    {"start", true, take_start},        {"epoch", true, take_epoch},  {"result", true, take_result},
};

// "epoch  epoch=3 epochs=4 loss=0.0105": numbers and texts of an event; the rest is in log.jsonl.
static void show_event(const json_t *event, const char *name, brim_str *shown) {
  const char *key;
  json_t *value;
  brim_str_printf(shown, "%s ", name);
  json_object_foreach((json_t *)(uintptr_t)event, key, value) {
    if (strcmp(key, "event") == 0 || strcmp(key, "t") == 0) continue;
    if (json_is_integer(value)) {
      brim_str_printf(shown, " %s=%lld", key, (long long)json_integer_value(value));
    } else if (json_is_real(value)) {
      brim_str_printf(shown, " %s=%.5g", key, json_real_value(value));
    } else if (json_is_string(value)) {
      brim_str_printf(shown, " %s=%s", key, json_string_value(value));
    } else if (json_is_true(value)) {
      brim_str_printf(shown, " %s", key);
    }
  }
}

// False: it is no event. *keep: it is shown.
static bool take_event(brim_exec_events *e, const brim_child_line *line, int64_t now_ns,
                       brim_str *shown, bool *keep) {
  json_t *event = NULL;
  bool whole = line->size >= 2 && line->size <= LONGEST_EVENT && line->text[0] == '{';
  if (!whole || line->stream != BRIM_CHILD_OUT || line->more) return false;
  if (brim_json_parse(line->text, line->size, "event", &event)) {
    brim_status_clear();
    return false;
  }
  const char *name = json_string_value(json_object_get(event, "event"));
  *keep = true;
  for (size_t i = 0; name && i < sizeof kinds / sizeof *kinds; i++) {
    if (strcmp(name, kinds[i].name) != 0) continue;
    kinds[i].take(e, event, now_ns);
    *keep = kinds[i].shown;
  }
  if (name && *keep) show_event(event, name, shown);
  bool is_event = name != NULL;
  json_decref(event);
  return is_event;
}

//---------------------------------- lines ----------------------------------

static void keep_line(brim_exec_events *e, const char *text, size_t size) {
  char *line = e->lines[e->line_count++ % BRIM_EXEC_LINES];
  size_t n = size < BRIM_EXEC_LINE_BYTES - 1 ? size : BRIM_EXEC_LINE_BYTES - 1;
  memcpy(line, text, n);
  line[n] = '\0';
  brim_utf8_trim(line);
}

bool brim_exec_events_line(brim_exec_events *e, const brim_child_line *line, int64_t now_ns,
                           brim_str *shown) {
  bool keep = true;
  if (take_event(e, line, now_ns, shown, &keep)) return keep;
  keep_line(e, line->text, line->size);
  brim_str_append_n(shown, line->text, line->size);
  return true;
}

static brim_status brim_exec_events_last_lines(const brim_exec_events *e, brim_str *out) {
  size_t n = e->line_count < BRIM_EXEC_LINES ? e->line_count : BRIM_EXEC_LINES;
  for (size_t i = 0; i < n; i++) {
    brim_str_append(out, e->lines[(e->line_count - n + i) % BRIM_EXEC_LINES]);
    brim_str_append_char(out, '\n');
  }
  return brim_str_status(out);
}

//---------------------------------- patience ----------------------------------

static int ascending(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static int64_t median_step_ns(const brim_exec_events *e) {
  int64_t sorted[BRIM_EXEC_RATES];
  size_t n = e->step_count < BRIM_EXEC_RATES ? e->step_count : BRIM_EXEC_RATES;
  if (n == 0) return 0;
  memcpy(sorted, e->step_ns, n * sizeof *sorted);
  qsort(sorted, n, sizeof *sorted, ascending);
  return sorted[n / 2];
}

int64_t brim_exec_events_patience(const brim_exec_events *e, int64_t stall_ns) {
  int64_t most = stall_ns;
  int64_t by_steps = STEPS_OF_PATIENCE * median_step_ns(e);
  int64_t by_pauses = PAUSES_OF_PATIENCE * e->longest_ns;
  if (by_steps > most) most = by_steps;
  return by_pauses > most ? by_pauses : most;
}

//--------------------------------------------- logs ---------------------------------------------
// What a training leaves on the disk while it runs: rows of log.jsonl as metrics, and the step of its
// newest checkpoint.

enum {
  BATCH_BYTES = 256 << 10,   // of a log, at most in one batch
  LONGEST_ROW = 4 << 20,     // a longer line is none of brim's
  BATCH_ROWS = 2000,         // no more lines are added then
  LONGEST_KEY = 120,         // of a metric, by the store
  LARGEST_HEADER = 64 << 20  // of a checkpoint
};

void brim_exec_tail_init(brim_exec_tail *t, const char *folder) {
  memset(t, 0, sizeof *t);
  t->folder = folder;
}

static void drop_batch(brim_exec_tail *t) {
  json_decref(t->lines);
  t->lines = NULL;
  t->count = 0;
}

void brim_exec_tail_deinit(brim_exec_tail *t) {
  drop_batch(t);
  brim_free(t->rows);
  t->rows = NULL;
}

void brim_exec_tail_acknowledged(brim_exec_tail *t) {
  t->number = t->next_number;
  t->offset = t->next_offset;
  drop_batch(t);
}

//---------------------------------- rows ----------------------------------

// Times say how this machine was doing. Throughput does too, but is worth a curve.
static bool is_metric(const char *key) {
  size_t n = strlen(key);
  if (n == 0 || n > LONGEST_KEY || !brim_utf8_valid(key, n)) return false;
  if (strcmp(key, "step") == 0 || strcmp(key, "epoch") == 0 || strcmp(key, "seconds") == 0) {
    return false;
  }
  return !brim_str_ends(key, "_s") || brim_str_ends(key, "_per_s");
}

// Lines whose numbers are settings, not results.
static bool has_metrics(const json_t *line) {
  static const char *const others[] = {"anomaly", "adapt", "early_stop"};
  const char *event = json_string_value(json_object_get(line, "event"));
  for (size_t i = 0; event && i < sizeof others / sizeof *others; i++) {
    if (strcmp(event, others[i]) == 0) return false;
  }
  return event != NULL;
}

static brim_status add_row(brim_exec_tail *t, const char *key, int64_t step, double value) {
  if (t->count == t->cap) {
    size_t cap = t->cap ? 2 * t->cap : 256;
    brim_store_metric *grown = brim_realloc(t->rows, cap * sizeof *grown);
    if (!grown) return brim_fail(BRIM_ENOMEM, "out of memory for metrics");
    t->rows = grown;
    t->cap = cap;
  }
  t->rows[t->count++] = (brim_store_metric){key, step, value};
  return BRIM_OK;
}

// A line that is no JSON, or torn, is left out.
static brim_status add_line(brim_exec_tail *t, const char *text, size_t size) {
  json_t *line = NULL;
  brim_status status = brim_json_parse(text, size, "log.jsonl", &line);
  if (status == BRIM_ENOMEM) return status;
  if (status) {
    brim_status_clear();
    return BRIM_OK;
  }
  const json_t *step = json_object_get(line, "step");
  if (!has_metrics(line) || !json_is_integer(step) || json_integer_value(step) < 0) {
    json_decref(line);
    return BRIM_OK;
  }
  BRIM_TRY(brim_json_push(t->lines, line));  // keeps the keys
  const char *key;
  json_t *value;
  json_object_foreach(line, key, value) {
    if (!json_is_number(value) || !is_metric(key)) continue;
    double number = json_number_value(value);
    BRIM_TRY(add_row(t, key, (int64_t)json_integer_value(step), number));
  }
  return BRIM_OK;
}

//---------------------------------- files ----------------------------------

static char *log_path(const brim_exec_tail *t, int number) {
  char name[48];
  snprintf(name, sizeof name, number > 0 ? "log.%d.jsonl" : "log.jsonl", number);
  return brim_fs_join(t->folder, name);
}

static ssize_t read_at(int fd, char *data, size_t size, uint64_t offset) {
  size_t done = 0;
  while (done < size) {
    ssize_t n = pread(fd, data + done, size - done, (off_t)(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    done += (size_t)n;
  }
  return (ssize_t)done;
}

// The piece of a file from t->next_offset on. *used: bytes of whole lines; 0 where there is none yet.
static brim_status take_lines(brim_exec_tail *t, const char *data, size_t size, size_t *used) {
  *used = 0;
  while (*used < size && t->count < BATCH_ROWS) {
    const char *line = data + *used, *end = memchr(line, '\n', size - *used);
    if (!end) break;
    BRIM_TRY(add_line(t, line, (size_t)(end - line)));
    *used += (size_t)(end - line) + 1;
  }
  return BRIM_OK;
}

// As much of the file as makes a batch, in a buffer large enough for one row. *more: lines are left.
static brim_status read_file(brim_exec_tail *t, int fd, bool *more) {
  *more = false;
  for (size_t size = BATCH_BYTES; size <= LONGEST_ROW; size *= 4) {
    char *data = brim_alloc(size);
    size_t used = 0;
    if (!data) return brim_fail(BRIM_ENOMEM, "out of memory for metrics");
    ssize_t n = read_at(fd, data, size, t->next_offset);
    brim_status status = n > 0 ? take_lines(t, data, (size_t)n, &used) : BRIM_OK;
    brim_free(data);
    BRIM_TRY(status);
    t->next_offset += used;
    *more = used > 0;
    if (used > 0 || n < (ssize_t)size) return BRIM_OK;
  }
  t->next_offset += LONGEST_ROW;  // what is left of it is no JSON, and skipped
  *more = true;
  return BRIM_OK;
}

// *more: there may be more behind what was read. A file is complete once the next one is there, which is
// why that is asked first.
static brim_status read_next(brim_exec_tail *t, bool *more) {
  char *path = log_path(t, t->next_number), *next = log_path(t, t->next_number + 1);
  bool complete = next && brim_fs_exists(next);
  brim_free(next);
  *more = false;
  if (!path) return brim_fail(BRIM_ENOMEM, "out of memory for metrics");
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  brim_free(path);
  if (fd < 0) return BRIM_OK;  // not there yet
  struct stat st = {0};
  bool cut = fstat(fd, &st) == 0 && (uint64_t)st.st_size < t->next_offset;
  if (cut) t->next_offset = 0;  // begun again: the store takes the same rows twice
  brim_status status = read_file(t, fd, more);
  (void)close(fd);
  if (status || *more || !complete) return status;
  t->next_number++;
  t->next_offset = 0;
  *more = true;
  return BRIM_OK;
}

brim_status brim_exec_tail_fill(brim_exec_tail *t) {
  if (t->count > 0) return BRIM_OK;
  drop_batch(t);
  t->next_number = t->number;
  t->next_offset = t->offset;
  brim_json_setup();
  t->lines = json_array();
  if (!t->lines) return brim_fail(BRIM_ENOMEM, "out of memory for metrics");
  brim_status status = BRIM_OK;
  bool more = true;
  while (!status && more && t->count < BATCH_ROWS / 2) status = read_next(t, &more);
  if (status) {
    drop_batch(t);
    return status;
  }
  if (t->count > 0) {
    t->seq++;
  } else {
    brim_exec_tail_acknowledged(t);  // lines without metrics
  }
  return BRIM_OK;
}

//---------------------------------- the checkpoint ----------------------------------

// The metadata "brim.step" of a safetensors file: 8 bytes of length, then JSON.
int64_t brim_exec_checkpoint_step(int fd) {
  unsigned char head[8];
  uint64_t size = 0;
  int64_t step = -1;
  json_t *header = NULL;
  if (read_at(fd, (char *)head, sizeof head, 0) != (ssize_t)sizeof head) return -1;
  for (int i = 7; i >= 0; i--) size = size << 8 | head[i];
  if (size < 2 || size > LARGEST_HEADER) return -1;
  char *text = brim_alloc((size_t)size);
  if (text && read_at(fd, text, (size_t)size, sizeof head) == (ssize_t)size &&
      brim_json_parse(text, (size_t)size, "checkpoint", &header) == BRIM_OK) {
    const char *number =
        json_string_value(json_object_get(json_object_get(header, "__metadata__"), "brim.step"));
    double value;
    if (number && brim_parse_f64(number, &value) && value >= 0 && value < 9e15) {
      step = (int64_t)value;
    }
  }
  json_decref(header);
  brim_free(text);
  brim_status_clear();
  return step;
}

void brim_exec_checkpoint_look(brim_exec_checkpoint *c, const char *folder) {
  char *path = brim_fs_join(folder, "last.safetensors");
  struct stat st = {0};
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
  brim_free(path);
  if (fd < 0) return;
  if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
    const uint64_t id[4] = {(uint64_t)st.st_ino, (uint64_t)st.st_size, (uint64_t)st.st_mtim.tv_sec,
                            (uint64_t)st.st_mtim.tv_nsec};
    if (memcmp(id, c->id, sizeof id) != 0) {
      int64_t step = brim_exec_checkpoint_step(fd);
      memcpy(c->id, id, sizeof id);
      if (step >= 0) c->step = step;
    }
  }
  (void)close(fd);
}

//------------------------------------------- attempt -------------------------------------------
// One attempt of an experiment: a loop over the child's output, the beats, the log and the watchdog; then
// the result, which goes to the spool first and from there to the store.

enum {
  LEASE_MS = 60000,
  STALL_MS = 600000,
  GRACE_MS = 60000,
  NEWS_MS = 2000,         // progress and metrics are sent this often
  ASLEEP_MS = 5000,       // between two turns: this process was stopped
  TURN_MS = 250,          // stop flags are looked at this often
  FILES_MS = 20000,       // files that do not arrive for so long do not keep the result waiting
  FILES_STOP_MS = 10000,  // nor for this long when the executor has to stop
  OOM_MS = 10000,         // kills for memory count from up to two such spans before the end
  FIRST_PAUSE_MS = 100,   // after a call without an answer; doubles up to
  LAST_PAUSE_MS = 5000,
  LARGEST_LOG = 64 << 20,  // bytes of attempt-N.log
  MOST_WAITING = 4 << 20,  // bytes of it that wait for the disk
  LONGEST_LINE = 1 << 20,
  MOST_WORDS = 64,
};
static const int64_t MS = 1000000;

typedef struct exec {
  const brim_lab_exec_options *o;
  brim_lab_link *link;
  const brim_store_ref *ref;
  brim_lab_exec_report *report;
  brim_child *child;
  brim_exec_events events;
  brim_exec_tail tail;
  brim_exec_checkpoint checkpoint;
  brim_exec_files *files;  // NULL: they stay where they are
  int64_t offered;         // the step of the last checkpoint that was handed to it
  brim_exec_findings findings;
  brim_exec_why why;
  int log;               // attempt-N.log; -1 = it cannot be written
  bool log_within;       // the last line in it has no end yet
  brim_str log_waiting;  // what the disk has not taken yet
  int64_t log_bytes, log_sent;
  int64_t lease_ms;
  int64_t silent_ns;              // since when calls are not answered; 0 = they are
  int64_t turn_ns;                // when the loop last came by
  int64_t next_beat_ns, news_ns;  // the next beat at the latest; the last one
  int64_t try_ns, pause_ms;       // no call before; 0 = none failed
  bool behind;                    // rows of the log are left to send
  bool step_sent;                 // from_step is in the store
  int64_t sent_step;              // of the last beat
  int64_t oom_ns, oom_before, oom_latest;
  int64_t quiet_ns;
  int64_t kill_ns;  // with stop_signal: when its time is over; 0 = it was not asked
} exec;

static int64_t now_ns(void) { return brim_clock_now().ns; }

static int64_t or_default(int64_t value, int64_t usual) { return value ? value : usual; }

// No call was answered for so long that there may be no sweep any more.
static bool is_alone(const exec *x) {
  int64_t linger = or_default(x->o->linger_ms, x->lease_ms) * MS;
  return x->silent_ns && now_ns() - x->silent_ns > linger;
}

static bool wants_stop(const exec *x) { return x->o->stop && *x->o->stop; }

//---------------------------------- ending the child ----------------------------------

static void end_child(exec *x, brim_exec_why why) {
  if (x->why != BRIM_EXEC_ITSELF && !(why == BRIM_EXEC_STALE && x->why != BRIM_EXEC_STALE)) return;
  x->why = why;
  if (!x->child) return;
  if (why == BRIM_EXEC_STALE) {
    (void)brim_child_stop(x->child, 0);
  } else if (x->o->stop_signal) {
    x->kill_ns = now_ns() + or_default(x->o->grace_ms, GRACE_MS) * MS;
    (void)brim_child_signal(x->child, x->o->stop_signal);
  } else {
    (void)brim_child_stop(x->child, or_default(x->o->grace_ms, GRACE_MS));
  }
  brim_status_clear();
}

//---------------------------------- calls ----------------------------------

static bool may_call(const exec *x) {
  return x->why != BRIM_EXEC_STALE && (x->try_ns == 0 || now_ns() >= x->try_ns);
}

// What an answer says about the link and the attempt. True: the call is done with, whatever came of it.
static bool take_answer(exec *x, brim_status status) {
  if (brim_exec_is_passing(x->link, status)) {
    x->pause_ms = x->pause_ms ? 2 * x->pause_ms : FIRST_PAUSE_MS;
    if (x->pause_ms > LAST_PAUSE_MS) x->pause_ms = LAST_PAUSE_MS;
    x->try_ns = now_ns() + x->pause_ms * MS;
    if (!x->silent_ns) x->silent_ns = now_ns();
    brim_status_clear();
    return false;
  }
  x->try_ns = x->pause_ms = x->silent_ns = 0;
  if (status == BRIM_ESTATE || status == BRIM_ENOENT) {
    end_child(x, BRIM_EXEC_STALE);
  } else if (status) {
    brim_log_warn("lab", "the store refused a report: %s", brim_status_detail());
  }
  brim_status_clear();
  return true;
}

static void beat(exec *x) {
  brim_store_beat_reply reply = {.lease_ms = 0, .want = BRIM_WANT_RUN};
  brim_status status = brim_lab_beat(x->link, x->ref, &x->events.progress, &reply);
  if (!take_answer(x, status)) return;
  if (reply.lease_ms > 0) x->lease_ms = reply.lease_ms;
  if (reply.want != BRIM_WANT_RUN) end_child(x, BRIM_EXEC_ASKED);
  x->sent_step = x->events.progress.step;
  x->news_ns = now_ns();
  // a server may have a shorter lease than the worker counts on
  int64_t most = x->lease_ms / 4, wanted = or_default(x->o->beat_ms, most);
  x->next_beat_ns = x->news_ns + (wanted < most ? wanted : most) * MS;
}

static void send_start(exec *x) {
  int64_t from = x->events.start_step;
  if (take_answer(x, brim_lab_start(x->link, x->ref, getpid(), from))) {
    x->step_sent = true;
  }
}

// A long log of earlier attempts takes a while, so beats interrupt it.
static void send_metrics(exec *x) {
  int64_t until = now_ns() + NEWS_MS * MS;
  x->behind = false;
  while (may_call(x)) {
    x->behind = now_ns() > until;
    if (x->behind) return;
    if (brim_exec_tail_fill(&x->tail) || x->tail.count == 0) {
      brim_status_clear();
      return;
    }
    brim_status status =
        brim_lab_metrics(x->link, x->ref, x->tail.seq, x->tail.rows, x->tail.count);
    if (!take_answer(x, status)) return;
    brim_exec_tail_acknowledged(&x->tail);
  }
}

static void send_checkpoint(exec *x) {
  int64_t step = x->files ? brim_exec_files_step(x->files) : x->checkpoint.step;
  if (step <= x->checkpoint.sent || !may_call(x)) return;
  if (take_answer(x, brim_lab_checkpoint(x->link, x->ref, step))) {
    x->checkpoint.sent = step;
  }
}

// A write that fails now may work later: what is left waits for the next line, the next beat, or the end.
static void write_log(exec *x) {
  brim_str *w = &x->log_waiting;
  size_t at = 0;
  while (x->log >= 0 && at < w->len) {
    ssize_t n = write(x->log, w->data + at, w->len - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    at += (size_t)n;
  }
  if (at == 0) return;
  memmove(w->data, w->data + at, w->len - at + 1);
  w->len -= at;
  x->log_bytes += (int64_t)at;
}

static void send_log_size(exec *x) {
  write_log(x);
  int64_t size = x->log_bytes;
  if (size == x->log_sent || !may_call(x)) return;
  if (take_answer(x, brim_lab_log(x->link, x->ref, "log", size))) x->log_sent = size;
}

static void send_findings(exec *x) {
  brim_exec_findings_look(&x->findings, brim_child_pid(x->child), now_ns());
  if (!x->findings.text || x->findings.sent || !may_call(x)) return;
  if (take_answer(x, brim_lab_findings(x->link, x->ref, x->findings.text))) {
    x->findings.sent = true;
  }
}

// The beat comes first: it holds the lease.
static void send_news(exec *x) {
  int64_t now = now_ns(), often = or_default(x->o->beat_ms, NEWS_MS) * MS;
  if (often > NEWS_MS * MS) often = NEWS_MS * MS;
  bool due = now >= x->next_beat_ns;
  bool news = now - x->news_ns >= often && x->events.progress.step != x->sent_step;
  news = news || x->behind;
  if (!(due || news) || !may_call(x)) return;
  beat(x);
  if (x->events.started && !x->step_sent && may_call(x)) send_start(x);
  brim_exec_checkpoint_look(&x->checkpoint, x->o->folder);
  bool fresh = x->files && x->events.started && x->checkpoint.step != x->offered;
  if (fresh) brim_exec_files_look(x->files);
  if (x->events.started) send_metrics(x);
  if (fresh && x->tail.count == 0 && !x->behind && may_call(x)) {
    x->offered = x->checkpoint.step;
    brim_exec_files_offer(x->files);
  }
  send_checkpoint(x);
  send_log_size(x);
  send_findings(x);
}

//---------------------------------- the child ----------------------------------

// "2026-11-17 03:12:45+0900  text", in local time.
static brim_status on_line(void *ctx, const brim_child_line *line) {
  exec *x = ctx;
  char when[32];
  struct tm local;
  time_t now = time(NULL);
  brim_str text;
  brim_str_init(&text);
  size_t n = localtime_r(&now, &local) ? strftime(when, sizeof when, "%F %T%z  ", &local) : 0;
  if (x->log_within) n = 0;  // a line that came in pieces
  brim_str_append_n(&text, when, n);
  bool shown = brim_exec_events_line(&x->events, line, now_ns(), &text);
  if (shown && !line->more) brim_str_append_char(&text, '\n');
  size_t waiting = x->log_waiting.len + text.len;
  bool fits = waiting <= MOST_WAITING && x->log_bytes + (int64_t)waiting <= LARGEST_LOG;
  if (shown && fits && x->log >= 0 && brim_str_status(&text) == BRIM_OK) {
    brim_str_append_n(&x->log_waiting, text.data, text.len);
    if (brim_str_status(&x->log_waiting)) brim_str_deinit(&x->log_waiting);  // no memory for it
    x->log_within = line->more;
    write_log(x);
  }
  brim_str_deinit(&text);
  return BRIM_OK;
}

// A log of this attempt is continued; anything else that has its name, such as a planted link, goes first. The
// umask decides on its readers, as on those of the other files in the folder.
static int create_log(const char *path) {
  const int how = O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  struct stat st;
  int fd = open(path, how);
  bool own = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 &&
             st.st_uid == geteuid();
  if (own) return fd;
  if (fd >= 0) (void)close(fd);
  if (unlink(path) != 0 && errno != ENOENT) return -1;
  return open(path, how | O_CREAT | O_EXCL, 0666);
}

static brim_status open_log(exec *x) {
  char name[64];
  snprintf(name, sizeof name, "attempt-%" PRId64 ".log", x->ref->attempt);
  char *path = brim_fs_join(x->o->folder, name);
  if (!path) return brim_fail(BRIM_ENOMEM, "out of memory for an experiment");
  x->log = create_log(path);
  brim_status status =
      x->log >= 0 ? BRIM_OK
                  : brim_fail(brim_errno_status(errno), "%s: %s", path, brim_errno_text(errno));
  brim_free(path);
  return status;
}

typedef struct words {
  const char *list[MOST_WORDS];
  size_t count;
} words;

static void add(words *w, const char *word) {
  if (w->count < MOST_WORDS - 1) w->list[w->count++] = word;
}

// Without one, --resume would warn that there is nothing to resume.
static bool holds_checkpoint(const char *folder) {
  char **names = NULL;
  size_t count = 0;
  bool found = brim_fs_list(folder, &names, &count) != BRIM_OK;
  for (size_t i = 0; !found && i < count; i++) found = brim_str_ends(names[i], ".safetensors");
  brim_fs_list_free(names, count);
  brim_status_clear();
  return found;
}

// Of a list of GPUs.
static int count_gpus(const char *list) {
  int count = list && *list ? 1 : 0;
  for (; list && *list; list++) count += *list == ',';
  return count;
}

// A launcher among the words makes ranks. Without one the trainer is alone, also where this process is one of
// several that srun or mpirun started: a worker for each node.
static bool makes_ranks(const char *const *command) {
  for (; *command; command++) {
    const char *name = brim_fs_basename(*command);
    if (strcmp(name, "srun") == 0 || strcmp(name, "mpirun") == 0 || strcmp(name, "mpiexec") == 0) {
      return true;
    }
  }
  return false;
}

static brim_status start_with(exec *x, const char *config, const char *visible) {
  const brim_lab_exec_options *o = x->o;
  words argv = {.count = 0}, env = {.count = 0};
  char threads[32], gpus[32];
  for (const char *const *word = o->command; *word; word++) add(&argv, *word);
  add(&argv, config);
  add(&argv, "--output-dir");
  add(&argv, o->folder);
  if (holds_checkpoint(o->folder)) add(&argv, "--resume");
  add(&argv, "--json");
  if (o->device) add(&argv, "--device");
  if (o->device) add(&argv, o->device);
  if (o->threads > 0) {
    snprintf(threads, sizeof threads, "%" PRId64, o->threads);
    add(&argv, "--threads");
    add(&argv, threads);
  }
  if (count_gpus(o->gpus) > 1 && !makes_ranks(o->command)) {
    snprintf(gpus, sizeof gpus, "gpus=%d", count_gpus(o->gpus));
    add(&argv, gpus);
  }
  add(&argv, "log.jsonl=true");
  add(&env, "CUDA_DEVICE_ORDER=PCI_BUS_ID");
  if (visible) add(&env, visible);
  if (!makes_ranks(o->command)) {
    add(&env, "BRIM_RANK=0");
    add(&env, "BRIM_RANKS=1");
  }
  for (const char *const *word = o->env; word && *word; word++) add(&env, *word);
  const brim_child_options how = {
      .argv = argv.list,
      .env_change = env.list,
      .out = BRIM_CHILD_PIPE,
      .err = BRIM_CHILD_PIPE,
      .die_with_parent = true,
      .max_line = LONGEST_LINE,
      .on_line = on_line,
      .ctx = x,
  };
  return brim_child_start(&how, &x->child);
}

static brim_status start_child(exec *x) {
  char *config = brim_fs_join(x->o->folder, "experiment.yaml");
  brim_str visible;
  brim_str_init(&visible);
  if (x->o->gpus) brim_str_printf(&visible, "CUDA_VISIBLE_DEVICES=%s", x->o->gpus);
  brim_status status = config ? brim_str_status(&visible)
                              : brim_fail(BRIM_ENOMEM, "out of memory for an experiment");
  if (!status) status = start_with(x, config, x->o->gpus ? visible.data : NULL);
  if (!status) status = brim_exec_owner_write(x->o->folder, x->ref, brim_child_pid(x->child));
  brim_str_deinit(&visible);
  brim_free(config);
  return status;
}

//---------------------------------- before ----------------------------------

// The config, and that the attempt is the experiment's: as long as the link may answer.
static brim_status ask(exec *x, char **config) {
  *config = NULL;
  for (;;) {
    brim_store_exp *exp = NULL;
    brim_status status = *config ? BRIM_OK : brim_lab_get(x->link, x->ref->exp, &exp);
    if (exp) {
      *config = brim_strdup(exp->config);
      if (!*config) status = brim_fail(BRIM_ENOMEM, "out of memory for an experiment");
    }
    brim_store_exp_free(exp);
    if (!status) status = brim_lab_start(x->link, x->ref, getpid(), -1);
    if (status && brim_exec_is_passing(x->link, status)) status = BRIM_EIO;
    if (!status) {
      x->silent_ns = 0;
      return BRIM_OK;
    }
    if (!x->silent_ns) x->silent_ns = now_ns();
    if (status != BRIM_EIO || wants_stop(x) || is_alone(x)) {
      brim_free(*config);
      *config = NULL;
      return status;
    }
    brim_clock_sleep_ns(TURN_MS * MS);
  }
}

static brim_status write_config(const exec *x, const char *config) {
  char *path = brim_fs_join(x->o->folder, "experiment.yaml");
  if (!path) return brim_fail(BRIM_ENOMEM, "out of memory for an experiment");
  brim_status status = brim_fs_write(path, config, strlen(config));
  brim_free(path);
  return status;
}

//---------------------------------- while it runs ----------------------------------

static void watch(exec *x) {
  int64_t now = now_ns(), stall = or_default(x->o->stall_ms, STALL_MS);
  // while this process was stopped, the child may have been too
  if (now - x->turn_ns > ASLEEP_MS * MS) x->events.sign_ns += now - x->turn_ns;
  x->turn_ns = now;
  int64_t quiet = now - x->events.sign_ns;
  if (stall > 0 && x->why == BRIM_EXEC_ITSELF &&
      quiet > brim_exec_events_patience(&x->events, stall * MS)) {
    x->quiet_ns = quiet;
    end_child(x, BRIM_EXEC_HUNG);
  }
  if (wants_stop(x)) end_child(x, BRIM_EXEC_ASKED);
  if (is_alone(x)) end_child(x, BRIM_EXEC_ALONE);
  if (x->kill_ns && now > x->kill_ns) (void)brim_child_stop(x->child, 0);
  // a process with much memory may take seconds to end
  if (now - x->oom_ns >= OOM_MS * MS) {
    x->oom_before = x->oom_latest;
    x->oom_latest = brim_exec_oom_kills();
    x->oom_ns = now;
  }
}

// For a turn, or until the child has something.
static void wait_turn(exec *x) {
  int64_t left = (x->next_beat_ns - now_ns()) / MS + 1;
  if (left < 1) left = x->try_ns ? (x->try_ns - now_ns()) / MS + 1 : 1;
  if (left > TURN_MS) left = TURN_MS;
  if (left < 1) left = 1;
  brim_child_wait_any(&x->child, 1, left);
}

static void supervise(exec *x) {
  bool ended = false;
  x->oom_before = x->oom_latest = brim_exec_oom_kills();
  x->turn_ns = now_ns();
  for (;;) {
    brim_status status = brim_child_poll(x->child, &ended);
    if (status) brim_status_clear();  // ECHILD: the result says that it is lost
    // a signal to all processes of a job may reach the training first
    if (ended && wants_stop(x) && x->why == BRIM_EXEC_ITSELF) x->why = BRIM_EXEC_ASKED;
    if (ended) return;
    // what it wrote is read: now its silence means something
    watch(x);
    send_news(x);
    wait_turn(x);
  }
}

//---------------------------------- after ----------------------------------

// Everything that is not acknowledged but for the result, as requests.
static brim_status gather(exec *x, brim_str *lines) {
  const brim_store_ref *ref = x->ref;
  if (x->events.started && !x->step_sent) {
    int64_t from = x->events.start_step;
    BRIM_TRY(brim_exec_spool_add(lines, &(brim_lab_request){.op = BRIM_LAB_OP_START,
                                                            .ref = *ref,
                                                            .pid = getpid(),
                                                            .from_step = from < 0 ? -1 : from}));
  }
  for (;;) {
    BRIM_TRY(brim_exec_tail_fill(&x->tail));
    if (x->tail.count == 0) break;
    BRIM_TRY(
        brim_exec_spool_add(lines, &(brim_lab_request){.op = BRIM_LAB_OP_METRICS,
                                                       .ref = *ref,
                                                       .seq = x->tail.seq,
                                                       .metrics = {x->tail.rows, x->tail.count}}));
    brim_exec_tail_acknowledged(&x->tail);
  }
  brim_exec_checkpoint_look(&x->checkpoint, x->o->folder);
  int64_t step = x->files ? brim_exec_files_step(x->files) : x->checkpoint.step;
  if (step > x->checkpoint.sent) {
    BRIM_TRY(brim_exec_spool_add(
        lines, &(brim_lab_request){.op = BRIM_LAB_OP_CHECKPOINT, .ref = *ref, .step = step}));
  }
  write_log(x);
  if (x->log_bytes > x->log_sent) {
    BRIM_TRY(brim_exec_spool_add(
        lines, &(brim_lab_request){
                   .op = BRIM_LAB_OP_LOG, .ref = *ref, .stream = "log", .size = x->log_bytes}));
  }
  if (x->findings.text && !x->findings.sent) {
    BRIM_TRY(brim_exec_spool_add(
        lines, &(brim_lab_request){
                   .op = BRIM_LAB_OP_FINDINGS, .ref = *ref, .findings = x->findings.text}));
  }
  if (x->events.progress.step >= 0) {
    BRIM_TRY(brim_exec_spool_add(
        lines,
        &(brim_lab_request){.op = BRIM_LAB_OP_BEAT, .ref = *ref, .progress = x->events.progress}));
  }
  return BRIM_OK;
}

// `owed`: files that the server has not got.
static brim_status add_finish(const exec *x, const char *owed, brim_str *lines) {
  const brim_lab_exec_report *r = x->report;
  brim_str last;
  brim_str_init(&last);
  brim_status status = brim_exec_events_last_lines(&x->events, &last);
  const brim_store_result result = {.outcome = r->outcome,
                                    .failure = r->failure,
                                    .exit_code = r->exit_code,
                                    .message = r->message,
                                    .last_lines = last.data,
                                    .owed = owed};
  if (!status) {
    status = brim_exec_spool_add(
        lines, &(brim_lab_request){.op = BRIM_LAB_OP_FINISH, .ref = *x->ref, .result = result});
  }
  brim_str_deinit(&last);
  return status;
}

// Until the store has it, or the link has been silent for too long.
static brim_status send_all(exec *x, const brim_str *lines, brim_exec_sent *sent) {
  x->try_ns = x->pause_ms = 0;
  for (;;) {
    brim_status status = brim_exec_spool_send(x->link, lines, sent);
    if (status != BRIM_EIO) return status;
    (void)take_answer(x, status);
    write_log(x);
    if (wants_stop(x) || x->why == BRIM_EXEC_ALONE || is_alone(x))
      return brim_fail(BRIM_EIO, "the sweep does not answer");
    brim_clock_sleep_ns(x->pause_ms * MS);
  }
}

// The lease lasts while files are sent. True: the attempt is stale.
static bool beat_on(exec *x) {
  brim_store_beat_reply reply = {.lease_ms = x->lease_ms};
  if (now_ns() < x->next_beat_ns) return false;
  brim_status status = brim_lab_beat(x->link, x->ref, NULL, &reply);
  if (brim_exec_is_passing(x->link, status)) {
    if (!x->silent_ns) x->silent_ns = now_ns();
    status = BRIM_EIO;
  }
  if (!status) x->silent_ns = 0;
  x->next_beat_ns = now_ns() + (status ? x->lease_ms / 8 : reply.lease_ms / 4) * MS;
  brim_status_clear();
  return status == BRIM_ESTATE || status == BRIM_ENOENT;
}

// What the server has no copy of, but not for ever. `ended`: it has the result, so there is no lease to
// renew. True: nothing is left to send.
static bool send_files(exec *x, bool ended) {
  int64_t stop_ns = 0;
  brim_exec_files_state state = BRIM_EXEC_FILES_BUSY;
  brim_exec_files_look(x->files);
  brim_exec_files_finish(x->files);
  while (state == BRIM_EXEC_FILES_BUSY) {
    state = brim_exec_files_ask(x->files, FILES_MS);
    write_log(x);
    if (!ended && beat_on(x)) state = BRIM_EXEC_FILES_STALE;
    if (wants_stop(x) && !stop_ns) stop_ns = now_ns() + FILES_STOP_MS * MS;
    bool late = is_alone(x) || (stop_ns && now_ns() > stop_ns);
    if (late && state == BRIM_EXEC_FILES_BUSY) state = BRIM_EXEC_FILES_LATER;
    if (state == BRIM_EXEC_FILES_BUSY) brim_clock_sleep_ns(20 * MS);
  }
  if (state == BRIM_EXEC_FILES_LATER) return false;
  brim_exec_owed_remove(x->o->folder, x->ref->attempt);
  int64_t step = brim_exec_files_step(x->files);
  if (!ended && state == BRIM_EXEC_FILES_DONE && step > x->checkpoint.sent) {
    (void)brim_lab_checkpoint(x->link, x->ref, step);
    brim_status_clear();
  }
  return true;
}

// Names of the files that are here to be sent.
static void list_files(const exec *x, brim_str *out) {
  for (const brim_lab_file_kind *k = brim_lab_file_kinds; k->name; k++) {
    char *path = k->local ? brim_fs_join(x->o->folder, k->local) : NULL;
    if (path && brim_fs_exists(path)) brim_str_printf(out, "%s%s", out->len ? "," : "", k->name);
    brim_free(path);
  }
}

// The result as it stands now, with its lines before it.
static brim_status end_lines(const exec *x, const brim_str *lines, const char *owed,
                             brim_str *out) {
  brim_str_clear(out);
  brim_str_append_n(out, lines->data, lines->len);
  return add_finish(x, owed, out);
}

static brim_status hand_over(exec *x) {
  const bool files = x->files && x->child;
  brim_str lines, whole, owed;
  brim_exec_sent sent;
  brim_str_init(&lines);
  brim_str_init(&whole);
  brim_str_init(&owed);
  brim_exec_sent_init(&sent);
  if (files) list_files(x, &owed);
  brim_status status = gather(x, &lines);
  if (!status) status = end_lines(x, &lines, owed.data, &whole);
  bool kept = !status && brim_exec_spool_write(x->o->folder, x->ref->attempt, &whole) == BRIM_OK;
  // a result that is on the disk waits for its files; any other goes first
  if (kept && files && send_files(x, false)) {
    status = end_lines(x, &lines, "", &whole);
    if (!status) (void)brim_exec_spool_write(x->o->folder, x->ref->attempt, &whole);
  }
  if (!status) status = send_all(x, &whole, &sent);
  if (!status) x->report->state = sent.state;
  if (!status && !kept && files) (void)send_files(x, true);
  if (!files && x->files) brim_exec_owed_remove(x->o->folder, x->ref->attempt);
  bool over = status || !brim_exec_spool_keep(x->o->folder, x->ref->attempt, &sent.refused);
  brim_exec_sent_deinit(&sent);
  brim_str_deinit(&owed);
  brim_str_deinit(&whole);
  brim_str_deinit(&lines);
  if (status == BRIM_EIO && kept) {
    brim_status_clear();
    x->report->end = BRIM_LAB_EXEC_SPOOLED;
    return BRIM_OK;
  }
  if (status && status != BRIM_ESTATE) return status;
  x->report->end = status ? BRIM_LAB_EXEC_STALE : BRIM_LAB_EXEC_REPORTED;
  if (over) brim_exec_spool_remove(x->o->folder, x->ref->attempt);
  brim_status_clear();
  return BRIM_OK;
}

// What the executor itself could not do is the machine's failure.
static brim_status hand_over_failure(exec *x) {
  x->report->outcome = BRIM_ATTEMPT_ERROR;
  x->report->failure = BRIM_FAILURE_INFRASTRUCTURE;
  x->report->exit_code = -1;
  snprintf(x->report->message, sizeof x->report->message, "%s", brim_status_detail());
  brim_utf8_trim(x->report->message);
  return hand_over(x);
}

static brim_status classify(exec *x) {
  int64_t kills = brim_exec_oom_kills();
  const brim_exec_ending ending = {.why = x->why,
                                   .child = brim_child_get_result(x->child),
                                   .events = &x->events,
                                   .oom_killed = x->oom_before >= 0 && kills > x->oom_before,
                                   .quiet_ns = x->quiet_ns};
  brim_exec_classify(&ending, x->report);
  if (x->why != BRIM_EXEC_STALE) return hand_over(x);
  x->report->end = BRIM_LAB_EXEC_STALE;
  return BRIM_OK;
}

//---------------------------------- all of it ----------------------------------

// The config comes from elsewhere: it brings no text of this machine's files into messages.
static brim_status prepare(exec *x, const char *config) {
  BRIM_TRY(brim_config_check_whole(config, "experiment.yaml"));
  BRIM_TRY(write_config(x, config));
  BRIM_TRY(open_log(x));
  return start_child(x);
}

static brim_status stale(exec *x) {
  x->report->end = BRIM_LAB_EXEC_STALE;
  brim_status_clear();
  return BRIM_OK;
}

// While a checkpoint comes from the server. False: it is not needed any more.
static bool keep_fetching(void *ctx) {
  exec *x = ctx;
  if (beat_on(x)) x->why = BRIM_EXEC_STALE;
  return x->why != BRIM_EXEC_STALE && !wants_stop(x) && !is_alone(x);
}

// Before the training began.
static brim_status interrupted(exec *x) {
  brim_status_clear();
  if (x->why == BRIM_EXEC_STALE) return stale(x);
  x->report->outcome = BRIM_ATTEMPT_STOPPED;
  return hand_over(x);
}

static brim_status run(exec *x) {
  char *config = NULL;
  brim_status status = brim_fs_mkdirs(x->o->folder);
  if (!status) status = brim_exec_owner_take(x->o->folder, x->ref);
  if (status == BRIM_ESTATE) return stale(x);
  if (status) return hand_over_failure(x);
  status = ask(x, &config);
  if (status == BRIM_ESTATE || status == BRIM_ENOENT) return stale(x);
  BRIM_TRY(status);
  x->next_beat_ns = now_ns();
  status = brim_exec_fetch(x->link, x->o->folder, x->ref->exp, keep_fetching, x);
  if (!status) status = brim_exec_files_open(x->link, x->o->folder, x->ref, &x->files);
  // from now on the files are owed: a full disk later does not make the worker forget them
  if (!status && x->files) status = brim_exec_owed_write(x->o->folder, x->ref);
  if (!status) status = prepare(x, config);
  brim_free(config);
  if (status == BRIM_EINTERRUPTED) return interrupted(x);
  if (status) {
    brim_child_close(x->child);
    x->child = NULL;
    return hand_over_failure(x);
  }
  x->next_beat_ns = now_ns();
  supervise(x);
  return classify(x);
}

brim_status brim_lab_execute(const brim_lab_exec_options *options, brim_lab_exec_report *out) {
  exec *x = brim_calloc(1, sizeof *x);
  memset(out, 0, sizeof *out);
  if (!x) return brim_fail(BRIM_ENOMEM, "out of memory for an experiment");
  x->o = options;
  x->link = options->link;
  x->ref = &options->ref;
  x->report = out;
  x->log = -1;
  brim_str_init(&x->log_waiting);
  x->lease_ms = LEASE_MS;
  x->turn_ns = now_ns();
  x->sent_step = -1;
  x->checkpoint.step = x->checkpoint.sent = x->offered = -1;
  brim_exec_events_init(&x->events, now_ns());
  brim_exec_tail_init(&x->tail, options->folder);
  brim_status status = run(x);
  brim_exec_files_close(x->files);
  brim_child_close(x->child);
  brim_exec_tail_deinit(&x->tail);
  brim_exec_findings_deinit(&x->findings);
  write_log(x);
  if (x->log_waiting.len > 0) {
    brim_log_warn("exec", "%s: the disk did not take the last %zu bytes of the log",
                  options->folder, x->log_waiting.len);
  }
  if (x->log >= 0) (void)close(x->log);
  brim_str_deinit(&x->log_waiting);
  brim_exec_owner_leave(options->folder);
  brim_free(x);
  return status;
}
