// One attempt of one experiment: starts the training, reads its events and logs, reports to the store, and exchanges
// files with a server (lab_exec.h).

#include "lab/exec/lab_exec.h"

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

#include "base/base_thread.h"
#include "config/config.h"
#include "lab/exec/lab_exec_int.h"
#include "lab/http/lab_http_client.h"
#include "lab/wire/lab_wire.h"
#include "lab/wire/lab_wire_files.h"
#include "lab/wire/lab_wire_link.h"
#include "record/record_channel.h"

static const int64_t MS = 1000000;

//------------------------------------------- folders -------------------------------------------

brim_status brim_lab_exp_folder(const char *folder, const char *id, brim_str *out) {
  BRIM_TRY(brim_store_check_id(id));
  brim_str_printf(out, "%s/" BRIM_LAB_EXPS "/%.*s", folder, BRIM_LAB_SHORT_ID, id);
  return brim_str_status(out);
}

//-------------------------------------------- owner --------------------------------------------
// The process that runs in an experiment's folder. Numbers of processes are reused, so a process is
// known by its number, the time it was born and the boot of the machine.

enum { KILL_WAIT_MS = 10000, KILL_POLL_MS = 10, BOOT_BYTES = 64 };
static const char owner_name[] = "executor.json";

typedef struct owner {
  brim_lab_exec_owner who;
  int64_t born, child_born;  // in ticks since the boot
} owner;

// When a process started, in ticks since the boot: field 22 of /proc/PID/stat. -1 if it has ended
// or is a zombie. Counts fields from the last ")": the name in field 2 may contain anything.
static int64_t start_ticks_of(int64_t pid) {
  char path[64], *text = NULL, state = 0;
  int64_t born = -1;
  snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
  if (pid <= 0 || brim_fs_read(path, 1 << 16, &text, NULL)) {
    brim_status_clear();
    return -1;
  }
  const char *at = strrchr(text, ')');
  if (at && sscanf(at + 1, " %c", &state) == 1 && state != 'Z' && state != 'X') {
    int field = 2;
    for (at++; *at && field < 22; at++) field += *at == ' ';
    born = field == 22 ? (int64_t)strtoll(at, NULL, 10) : -1;
  }
  brim_free(text);
  return born;
}

static void read_boot(char out[BOOT_BYTES]) {
  char *text = NULL;
  out[0] = '\0';
  if (brim_fs_read("/proc/sys/kernel/random/boot_id", 1 << 12, &text, NULL) == BRIM_OK) {
    snprintf(out, BOOT_BYTES, "%.*s", (int)strcspn(text, "\n"), text);
  }
  brim_free(text);
  brim_status_clear();
}

// The JSON of a small file in the folder; NULL: it is not there, or is damaged.
static json_t *read_small(const char *folder, const char *name) {
  char *path = brim_fs_join(folder, name), *text = NULL;
  size_t size = 0;
  json_t *value = NULL;
  if (path && brim_fs_exists(path) && !brim_fs_read(path, 1 << 16, &text, &size)) {
    (void)brim_json_parse(text, size, path, &value);
  }
  brim_free(text);
  brim_free(path);
  brim_status_clear();
  return value;
}

static int64_t number_of(const json_t *value, const char *key) {
  return (int64_t)json_integer_value(json_object_get(value, key));
}

// False: there is no such file, or it is from another boot.
static bool read_owner(const char *folder, owner *out) {
  char boot[BOOT_BYTES];
  json_t *value = read_small(folder, owner_name);
  bool good = value != NULL;
  memset(out, 0, sizeof *out);
  if (good) {
    read_boot(boot);
    const char *of = json_string_value(json_object_get(value, "boot"));
    out->who = (brim_lab_exec_owner){number_of(value, "pid"), number_of(value, "child"),
                                     number_of(value, "attempt"), number_of(value, "fence")};
    out->born = number_of(value, "born");
    out->child_born = number_of(value, "child_born");
    good = of && strcmp(of, boot) == 0 && out->who.pid > 0;
  }
  json_decref(value);
  return good;
}

// Process 1 never counts, whatever the file says: killing its group would kill every process.
static bool lives(int64_t pid, int64_t born) { return pid > 1 && start_ticks_of(pid) == born; }

bool brim_lab_exec_find(const char *folder, brim_lab_exec_owner *out) {
  owner o;
  bool there = read_owner(folder, &o) && lives(o.who.pid, o.born);
  if (there && !lives(o.who.child, o.child_born)) o.who.child = 0;
  if (out) *out = there ? o.who : (brim_lab_exec_owner){0};
  return there;
}

// Removes executor.json if its processes have ended.
static void owner_clear(const char *folder) {
  owner o;
  char *path = brim_fs_join(folder, owner_name);
  if (path && read_owner(folder, &o) && !lives(o.who.pid, o.born) &&
      !lives(o.who.child, o.child_born)) {
    (void)brim_fs_remove(path);
  }
  brim_free(path);
  brim_status_clear();
}

// Stops the executor first: then it does not report the end of its child, and the child's number
// stays taken, since no process waits for it.
brim_status brim_lab_exec_kill(const char *folder) {
  owner o;
  if (!read_owner(folder, &o)) return BRIM_OK;
  bool mine = o.who.pid == (int64_t)getpid();
  if (!mine && lives(o.who.pid, o.born)) (void)kill((pid_t)o.who.pid, SIGSTOP);
  if (lives(o.who.child, o.child_born)) (void)kill((pid_t)-o.who.child, SIGKILL);
  if (!mine && lives(o.who.pid, o.born)) (void)kill((pid_t)o.who.pid, SIGKILL);
  for (int64_t ms = 0; ms < KILL_WAIT_MS; ms += KILL_POLL_MS) {
    bool left = !mine && lives(o.who.pid, o.born);
    if (!left && !lives(o.who.child, o.child_born)) {
      owner_clear(folder);
      return BRIM_OK;
    }
    brim_clock_sleep_ns((int64_t)KILL_POLL_MS * 1000000);
  }
  return brim_fail(BRIM_EIO, "process %" PRId64 " in %s does not end", o.who.pid, folder);
}

brim_status brim_exec_owner_write(const char *folder, const brim_store_ref *ref, pid_t child) {
  brim_json_setup();
  char boot[BOOT_BYTES], *text = NULL, *path = brim_fs_join(folder, owner_name);
  read_boot(boot);
  json_t *o =
      json_pack("{s:I,s:I,s:s,s:I,s:I,s:I,s:I}", "pid", (json_int_t)getpid(), "born",
                (json_int_t)start_ticks_of(getpid()), "boot", boot, "attempt",
                (json_int_t)ref->attempt, "fence", (json_int_t)ref->fence, "child",
                (json_int_t)child, "child_born", (json_int_t)(child ? start_ticks_of(child) : 0));
  brim_status status = o && path ? brim_json_dump(o, 0, &text)
                                 : brim_fail(BRIM_ENOMEM, "out of memory for %s", owner_name);
  if (!status) status = brim_fs_write(path, text, strlen(text));
  json_decref(o);
  brim_free(text);
  brim_free(path);
  return status;
}

brim_status brim_exec_owner_take(const char *folder, const brim_store_ref *ref) {
  brim_lab_exec_owner other;
  if (brim_lab_exec_find(folder, &other) && other.pid != (int64_t)getpid()) {
    if (other.fence >= ref->fence) {
      return brim_fail(BRIM_ESTATE, "attempt %" PRId64 " runs in %s", other.attempt, folder);
    }
    brim_log_warn("lab", "attempt %" PRId64 " is replaced: ending process %" PRId64, other.attempt,
                  other.pid);
  }
  // also a child that outlived its executor
  BRIM_TRY(brim_lab_exec_kill(folder));
  return brim_exec_owner_write(folder, ref, 0);
}

void brim_exec_owner_release(const char *folder) {
  owner o;
  char *path = brim_fs_join(folder, owner_name);
  if (path && read_owner(folder, &o) && o.who.pid == (int64_t)getpid()) (void)brim_fs_remove(path);
  brim_free(path);
  brim_status_clear();
}

//------------------------------------------- reports -------------------------------------------
// The spool of an attempt: reports that the store has not acknowledged, one request a line.

enum { LARGEST_SPOOL = 1 << 30 };
static const char spool_suffix[] = ".spool";

brim_status brim_exec_spool_add(brim_str *lines, const brim_lab_request *request) {
  char *text = NULL;
  json_t *value = NULL;
  BRIM_TRY(brim_lab_request_encode(request, &value));
  brim_status status = brim_json_dump(value, 0, &text);
  json_decref(value);
  BRIM_TRY(status);
  brim_str_append(lines, text);
  brim_str_append_char(lines, '\n');
  brim_free(text);
  return brim_str_status(lines);
}

static char *spool_path(const char *folder, int64_t attempt) {
  char name[64];
  snprintf(name, sizeof name, "attempt-%" PRId64 "%s", attempt, spool_suffix);
  return brim_fs_join(folder, name);
}

brim_status brim_exec_spool_write(const char *folder, int64_t attempt, const brim_str *lines) {
  BRIM_TRY(brim_str_status(lines));
  char *path = spool_path(folder, attempt);
  if (!path) return brim_fail(BRIM_ENOMEM, "out of memory for a report");
  brim_status status = brim_fs_write(path, lines->data, lines->len);
  brim_free(path);
  return status;
}

void brim_exec_spool_remove(const char *folder, int64_t attempt) {
  char *path = spool_path(folder, attempt);
  if (path && brim_fs_exists(path)) (void)brim_fs_remove(path);
  brim_free(path);
  brim_status_clear();
}

// Keeps lines that the store refuses in NAME.bad, for people to look at.
static brim_status keep_refused(const char *path, const brim_str *lines) {
  if (lines->len == 0) return brim_str_status(lines);
  brim_str to;
  brim_str_init(&to);
  brim_str_printf(&to, "%s.bad", path);
  brim_status status = brim_str_status(&to);
  if (!status) status = brim_fs_write(to.data, lines->data, lines->len);
  if (!status) brim_log_warn("lab", "%s holds reports that the store does not take", to.data);
  brim_str_deinit(&to);
  return status;
}

// Writes refused lines to attempt-N.spool.bad, if there are any.
static brim_status spool_keep_refused(const char *folder, int64_t attempt,
                                      const brim_str *refused) {
  char *path = spool_path(folder, attempt);
  brim_status status =
      path ? keep_refused(path, refused) : brim_fail(BRIM_ENOMEM, "out of memory for a report");
  brim_free(path);
  return status;
}

//---------------------------------- sending ----------------------------------

// True if a later call may succeed, since no answer came. False if the store answered, or if the
// request is too long or unreadable: a retry does not change that.
static bool may_succeed_later(const brim_lab_link *link, brim_status status) {
  if (status == BRIM_EIO || status == BRIM_ENOMEM || status == BRIM_EINTERRUPTED) return true;
  return status && status != BRIM_ELIMIT && status != BRIM_EPARSE && !brim_lab_link_answered(link);
}

static brim_status send_report(brim_lab_link *link, const json_t *line,
                               brim_exec_spool_progress *sent) {
  brim_lab_request request;
  brim_lab_reply reply = {0};
  brim_status status = brim_lab_request_decode(line, &request);
  if (status == BRIM_ENOMEM) return status;
  if (!brim_lab_op_is_report(request.op)) {
    return brim_fail(BRIM_EPARSE, "a line is no report of an executor");
  }
  if (status) return BRIM_EPARSE;
  status = brim_lab_call(link, &request, &reply);
  if (!status) sent->taken++;
  if (!status && request.op == BRIM_LAB_OP_FINISH) {
    sent->state = reply.state;
    sent->finished = true;
  }
  brim_lab_request_deinit(&request);
  return status;
}

// Sends the lines from sent->at on, and skips lines that are no reports or that the store refuses. BRIM_EIO: call
// again. BRIM_ESTATE: the attempt is stale.
static brim_status spool_send(brim_lab_link *link, const brim_str *lines,
                              brim_exec_spool_progress *sent) {
  while (sent->at < lines->len) {
    const char *line = lines->data + sent->at;
    const char *end = memchr(line, '\n', lines->len - sent->at);
    size_t n = end ? (size_t)(end - line) : lines->len - sent->at;
    json_t *request = NULL;
    brim_status status = brim_json_parse(line, n, "spool", &request);
    bool torn = status == BRIM_EPARSE;
    if (!status) status = send_report(link, request, sent);
    json_decref(request);
    if (!torn && may_succeed_later(link, status)) return BRIM_EIO;
    if (status == BRIM_ESTATE || status == BRIM_ENOENT) return BRIM_ESTATE;
    if (status) {
      brim_log_warn("lab", "the store refused a report: %s", brim_status_detail());
      brim_str_append_n(&sent->refused, line, n);
      brim_str_append_char(&sent->refused, '\n');
      BRIM_TRY(brim_str_status(&sent->refused));
    }
    sent->at += n + (end != NULL);
  }
  return BRIM_OK;
}

static void spool_progress_init(brim_exec_spool_progress *sent) {
  *sent = (brim_exec_spool_progress){0};
  brim_str_init(&sent->refused);
}

static void spool_progress_deinit(brim_exec_spool_progress *sent) {
  brim_str_deinit(&sent->refused);
}

// Keeps a spool that cannot be read, under another name.
static void set_aside(const char *path) {
  brim_str to;
  brim_str_init(&to);
  brim_str_printf(&to, "%s.bad", path);
  brim_log_warn("lab", "%s cannot be read and is kept as %s.bad: %s", path, path,
                brim_status_detail());
  if (brim_str_status(&to) || rename(path, to.data) != 0) brim_status_clear();
  brim_str_deinit(&to);
}

// A file that is gone was sent: the executor may send and remove its spool meanwhile.
static brim_status gone_is_fine(brim_status status, const char *path) {
  if (!status || brim_fs_exists(path)) return status;
  brim_status_clear();
  return BRIM_OK;
}

static brim_status replay_file(const char *path, brim_lab_link *link, brim_lab_replayed *out) {
  char *text = NULL;
  size_t size = 0;
  brim_status status = brim_fs_read(path, LARGEST_SPOOL, &text, &size);
  if (status == BRIM_ENOMEM || status == BRIM_EIO || status == BRIM_ENOENT) {
    return gone_is_fine(status, path);
  }
  if (status) {
    set_aside(path);
    brim_status_clear();
    return BRIM_OK;
  }
  const brim_str lines = {.data = text, .len = size, .cap = size + 1};
  brim_exec_spool_progress sent;
  spool_progress_init(&sent);
  status = spool_send(link, &lines, &sent);
  bool stale = status == BRIM_ESTATE;
  if (!status || stale) status = keep_refused(path, &sent.refused);
  if (!status) {
    out->files += !stale && sent.taken > 0;
    out->stale += stale;
    out->finished += sent.finished;
    brim_status_clear();
    status = gone_is_fine(brim_fs_remove(path), path);
  }
  spool_progress_deinit(&sent);
  brim_free(text);
  return status;
}

brim_status brim_lab_spool_replay_folder(const char *folder, brim_lab_link *link,
                                         brim_lab_replayed *out) {
  char **names = NULL;
  size_t count = 0;
  brim_status status = BRIM_OK;
  if (!brim_fs_is_dir(folder)) return BRIM_OK;
  BRIM_TRY(brim_fs_list(folder, &names, &count));
  for (size_t i = 0; !status && i < count; i++) {
    if (!brim_str_starts(names[i], "attempt-") || !brim_str_ends(names[i], spool_suffix)) continue;
    char *path = brim_fs_join(folder, names[i]);
    status = path ? replay_file(path, link, out)
                  : brim_fail(BRIM_ENOMEM, "out of memory while reading %s", folder);
    brim_free(path);
  }
  brim_fs_list_free(names, count);
  if (!status) owner_clear(folder);
  return status;
}

brim_status brim_lab_spool_replay(const char *place, brim_lab_link *link, brim_lab_replayed *out) {
  char **names = NULL, *all = brim_fs_join(place, BRIM_LAB_EXPS);
  size_t count = 0;
  brim_lab_replayed sum = {0};
  brim_status status = BRIM_OK;
  if (!all) return brim_fail(BRIM_ENOMEM, "out of memory while reading %s", place);
  if (brim_fs_is_dir(all)) status = brim_fs_list(all, &names, &count);
  for (size_t i = 0; !status && i < count; i++) {
    char *folder = brim_fs_join(all, names[i]);
    status = folder ? brim_lab_spool_replay_folder(folder, link, &sum)
                    : brim_fail(BRIM_ENOMEM, "out of memory while reading %s", place);
    brim_free(folder);
  }
  brim_fs_list_free(names, count);
  brim_free(all);
  if (out) *out = sum;
  return status;
}

//--------------------------------------- failure classes ---------------------------------------
// Classifies the end of an attempt by the events of the training, its exit code or signal, and the reason why
// the executor ended it.

enum { EXIT_USAGE = 2, EXIT_DEVICE = 3, EXIT_MEMORY = 4, EXIT_INTERRUPTED = 130 };

static void set_message(brim_lab_exec_report *out, const char *text) {
  snprintf(out->message, sizeof out->message, "%s", text);
  brim_utf8_trim(out->message);
}

static void fail(brim_lab_exec_report *out, brim_failure failure) {
  out->outcome = BRIM_ATTEMPT_ERROR;
  out->failure = failure;
}

static bool is_fault(int number) {
  return number == SIGSEGV || number == SIGBUS || number == SIGABRT || number == SIGFPE ||
         number == SIGILL || number == SIGSYS || number == SIGTRAP;
}

static void by_signal(const brim_exec_ending *e, brim_lab_exec_report *out) {
  int number = e->child->signal;
  const char *name = sigabbrev_np(number);
  if (number == SIGKILL && e->oom_killed) {
    fail(out, BRIM_FAILURE_OOM_HOST);
    set_message(out, brim_tr("the kernel killed the training: the machine's memory is full"));
    return;
  }
  fail(out, is_fault(number) ? BRIM_FAILURE_CRASH : BRIM_FAILURE_KILLED);
  snprintf(out->message, sizeof out->message,
           is_fault(number) ? brim_tr("the training crashed with signal %d (SIG%s)")
                            : brim_tr("another process ended the training with signal %d (SIG%s)"),
           number, name ? name : "?");
}

// A full disk is the machine's failure, whatever the training was writing.
static bool is_disk(const char *message) {
  static const int errors[] = {ENOSPC, EDQUOT, EFBIG, EROFS};
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
    if (strstr(message, brim_errno_text(errors[i]))) return true;
  }
  return false;
}

// The class of a failure by its status, if the training names no class.
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

void brim_exec_classify(const brim_exec_ending *e, brim_lab_exec_report *out) {
  const brim_child_result *child = e->child;
  out->outcome = BRIM_ATTEMPT_OK;
  out->failure = BRIM_FAILURE_NONE;
  out->message[0] = '\0';
  out->exit_code = child->signal ? 128 + child->signal : child->exit_code;
  bool good = !child->lost && !child->signal && child->exit_code == 0;
  bool ours = e->why == BRIM_EXEC_ASKED || e->why == BRIM_EXEC_ALONE;
  bool stopped = child->exit_code == EXIT_INTERRUPTED || child->signal;
  if (good) return;  // the work is done, even if the executor asked it to stop
  if (e->why == BRIM_EXEC_HUNG) {
    char time[32];
    brim_format_duration((double)e->quiet_ns * 1e-9, time);
    fail(out, BRIM_FAILURE_HUNG);
    snprintf(out->message, sizeof out->message,
             brim_tr("the training made no progress for %s, so brim ended it"), time);
  } else if (ours && stopped) {
    out->outcome = BRIM_ATTEMPT_STOPPED;
  } else if (child->lost) {
    fail(out, BRIM_FAILURE_OTHER);
    set_message(out, brim_tr("how the training ended is not known"));
  } else if (child->signal) {
    by_signal(e, out);
  } else if (e->events->failed) {
    const brim_exec_events *said = e->events;
    brim_failure failure = said->failure != BRIM_FAILURE_NONE ? said->failure : by_status(said);
    fail(out, is_disk(said->message) ? BRIM_FAILURE_INFRASTRUCTURE : failure);
    set_message(out, said->message[0] ? said->message : brim_status_text(said->status));
  } else {
    const brim_exec_events *said = e->events;
    fail(out, by_code(child->exit_code, said->started));
    snprintf(out->message, sizeof out->message,
             brim_tr("the training ended with exit code %d and gave no reason: %s"),
             child->exit_code,
             said->line_count ? said->lines[(said->line_count - 1) % BRIM_EXEC_LINES] : "");
    brim_utf8_trim(out->message);
  }
}

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

//-------------------------------------------- events --------------------------------------------
// Reads the records of the training (record_channel.h), and keeps the last lines that are no records.

enum { HANG_STEPS = 20, HANG_PAUSES = 3, LONGEST_EVENT = 1 << 20 };

void brim_exec_events_init(brim_exec_events *e, int64_t now_ns) {
  memset(e, 0, sizeof *e);
  e->progress = (brim_store_progress){-1, -1, -1, -1};
  e->start_step = e->last_step = e->checkpoint = -1;
  e->sign_ns = now_ns;
}

static void note_sign(brim_exec_events *e, int64_t now_ns) {
  int64_t pause = now_ns - e->sign_ns;
  if (pause > e->longest_ns) e->longest_ns = pause;
  e->sign_ns = now_ns;
}

static void note_step(brim_exec_events *e, int64_t step, int64_t now_ns) {
  if (step < 0) return;
  if (e->last_step >= 0 && step > e->last_step) {
    int64_t each = (now_ns - e->last_step_ns) / (step - e->last_step);
    e->step_ns[e->step_time_count++ % BRIM_EXEC_STEP_TIMES] = each;
  }
  e->last_step = step;
  e->last_step_ns = now_ns;
  e->progress.step = step;
}

static void take_record(brim_exec_events *e, const brim_channel_record *r, int64_t now_ns) {
  char *text = NULL;
  if (r->epochs > 0) e->progress.epochs = r->epochs;
  switch (r->kind) {
    case BRIM_CHANNEL_START:
      e->started = true;
      e->start_step = r->step;
      e->progress.steps = r->steps;
      if (r->step > 0) e->checkpoint = r->step;  // it resumes from there
      break;
    case BRIM_CHANNEL_PROGRESS:
    case BRIM_CHANNEL_STEPS:
    case BRIM_CHANNEL_EPOCH:
      if (r->epoch > 0) e->progress.epoch = r->epoch;
      break;
    case BRIM_CHANNEL_RESULT:
      if (r->epoch >= 0) e->progress.epoch = r->epoch;
      break;
    case BRIM_CHANNEL_CHECKPOINT:
      e->checkpoint = r->step;
      return;  // its step was reached before
    case BRIM_CHANNEL_FINDINGS:
      if (brim_json_dump(r->findings, 0, &text)) brim_status_clear();
      if (!text) return;
      brim_free(e->findings);
      e->findings = text;
      e->findings_sent = false;
      return;  // no progress
    case BRIM_CHANNEL_ERROR:
      e->failed = true;
      e->status = r->status;
      e->failure = r->failure;
      snprintf(e->message, sizeof e->message, "%s", r->message);
      brim_utf8_trim(e->message);
      break;
    case BRIM_CHANNEL_KIND_COUNT:
      return;
  }
  note_step(e, r->step, now_ns);
  note_sign(e, now_ns);
}

// Shows the numbers and texts of an event: "epoch  epoch=3 epochs=4 loss=0.0105". log.jsonl has the rest.
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

// False if the line is no event. *keep: the event belongs in the log that people read.
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
  brim_channel_record record;
  *keep = true;
  if (brim_channel_read(event, &record)) {
    take_record(e, &record, now_ns);
    *keep = record.kind == BRIM_CHANNEL_START || record.kind == BRIM_CHANNEL_EPOCH ||
            record.kind == BRIM_CHANNEL_RESULT;
  }
  if (name && *keep) show_event(event, name, shown);
  bool is_event = name != NULL;
  json_decref(event);
  return is_event;
}

bool brim_exec_events_line(brim_exec_events *e, const brim_child_line *line, int64_t now_ns,
                           brim_str *shown) {
  bool keep = true;
  if (take_event(e, line, now_ns, shown, &keep)) return keep;
  char *last = e->lines[e->line_count++ % BRIM_EXEC_LINES];
  snprintf(last, BRIM_EXEC_LINE_BYTES, "%.*s", (int)line->size, line->text);
  brim_utf8_trim(last);
  brim_str_append_n(shown, line->text, line->size);
  return true;
}

static brim_status last_lines(const brim_exec_events *e, brim_str *out) {
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

int64_t brim_exec_events_hang_ns(const brim_exec_events *e, int64_t stall_ns) {
  int64_t sorted[BRIM_EXEC_STEP_TIMES], most = stall_ns;
  size_t n = e->step_time_count < BRIM_EXEC_STEP_TIMES ? e->step_time_count : BRIM_EXEC_STEP_TIMES;
  if (n > 0) {
    memcpy(sorted, e->step_ns, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, ascending);
    if (HANG_STEPS * sorted[n / 2] > most) most = HANG_STEPS * sorted[n / 2];
  }
  return HANG_PAUSES * e->longest_ns > most ? HANG_PAUSES * e->longest_ns : most;
}

//--------------------------------------------- logs ---------------------------------------------
// Files that a training writes while it runs: rows of log.jsonl become metrics, and the newest
// checkpoint has a step.

enum {
  BATCH_BYTES = 256 << 10,   // of a log, at most in one batch
  LONGEST_ROW = 4 << 20,     // every line that brim writes is shorter
  BATCH_ROWS = 2000,         // a batch with this many rows takes no more lines
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

// Times describe the machine, not the training. Throughput is worth a curve all the same.
static bool is_metric(const char *key) {
  size_t n = strlen(key);
  if (n == 0 || n > LONGEST_KEY || !brim_utf8_valid(key, n)) return false;
  if (strcmp(key, "step") == 0 || strcmp(key, "epoch") == 0 || strcmp(key, "seconds") == 0) {
    return false;
  }
  return !brim_str_ends(key, "_s") || brim_str_ends(key, "_per_s");
}

// Adds the numbers of a line. Leaves out a line that is no JSON or is torn, and events whose numbers
// are settings, not results.
static brim_status add_line(brim_exec_tail *t, const char *text, size_t size) {
  static const char *const setting_events[] = {"anomaly", "adapt", "early_stop"};
  json_t *line = NULL;
  brim_status status = brim_json_parse(text, size, "log.jsonl", &line);
  if (status == BRIM_ENOMEM) return status;
  if (status) {
    brim_status_clear();
    return BRIM_OK;
  }
  const char *event = json_string_value(json_object_get(line, "event"));
  const json_t *step = json_object_get(line, "step");
  bool good = event && json_is_integer(step) && json_integer_value(step) >= 0;
  for (size_t i = 0; good && i < sizeof setting_events / sizeof *setting_events; i++) {
    good = strcmp(event, setting_events[i]) != 0;
  }
  if (!good) {
    json_decref(line);
    return BRIM_OK;
  }
  BRIM_TRY(brim_json_push(t->lines, line));  // the keys of the rows point into it
  const char *key;
  json_t *value;
  json_object_foreach(line, key, value) {
    if (!json_is_number(value) || !is_metric(key)) continue;
    if (t->count == t->cap) {
      size_t cap = t->cap ? 2 * t->cap : 256;
      brim_store_metric *grown = brim_realloc(t->rows, cap * sizeof *grown);
      if (!grown) return brim_fail(BRIM_ENOMEM, "out of memory for metrics");
      t->rows = grown;
      t->cap = cap;
    }
    t->rows[t->count++] =
        (brim_store_metric){key, (int64_t)json_integer_value(step), json_number_value(value)};
  }
  return BRIM_OK;
}

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

// Reads lines of the file into the batch. Enlarges the buffer until it holds at least one line.
// *more: lines may be left.
static brim_status read_file(brim_exec_tail *t, int fd, bool *more) {
  *more = false;
  for (size_t size = BATCH_BYTES; size <= LONGEST_ROW; size *= 4) {
    char *data = brim_alloc(size);
    if (!data) return brim_fail(BRIM_ENOMEM, "out of memory for metrics");
    ssize_t n = read_at(fd, data, size, t->next_offset);
    size_t used = 0, have = n > 0 ? (size_t)n : 0;
    brim_status status = BRIM_OK;
    while (!status && used < have && t->count < BATCH_ROWS) {
      const char *line = data + used, *end = memchr(line, '\n', have - used);
      if (!end) break;
      status = add_line(t, line, (size_t)(end - line));
      if (!status) used += (size_t)(end - line) + 1;
    }
    brim_free(data);
    BRIM_TRY(status);
    t->next_offset += used;
    *more = used > 0;
    if (used > 0 || have < size) return BRIM_OK;
  }
  t->next_offset += LONGEST_ROW;  // the rest of the line is no JSON, and skipped
  *more = true;
  return BRIM_OK;
}

// Reads the next piece. *more: there may be more behind it. A file is complete once the next one
// exists, so that is asked first.
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
  // The file was written again from the start. Sending rows twice is harmless: they replace the same
  // key and step.
  if (cut) t->next_offset = 0;
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

// The metadata "brim.step" of a safetensors file: 8 bytes of length, then JSON. -1 = none.
static int64_t checkpoint_step(int fd) {
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

int64_t brim_exec_checkpoint_of(const char *folder) {
  char *path = brim_fs_join(folder, "last.safetensors");
  struct stat st = {0};
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
  brim_free(path);
  if (fd < 0) return -1;
  int64_t step = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? checkpoint_step(fd) : -1;
  (void)close(fd);
  return step;
}

//------------------------------------- files on a server ----------------------------------------
// Files of an attempt between this machine and a server: the checkpoint that another machine wrote,
// uploads while the training runs, and uploads that a worker makes later.

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
  brim_lab_download g = {.client = f->client,
                         .exp = f->exp,
                         .kind = kind,
                         .row = row_of(f, kind),
                         .path = path,
                         .keep = f->keep,
                         .ctx = f->ctx};
  brim_status status = g.row->there ? brim_lab_get_file(&g) : BRIM_OK;
  f->broken = g.disk_failed;
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

static void pending_remove(const char *folder, int64_t attempt) {
  char *path = pending_path(folder, attempt);
  if (path && brim_fs_exists(path)) (void)brim_fs_remove(path);
  brim_free(path);
  brim_status_clear();
}

static bool read_pending(const char *folder, const char *name, brim_store_ref *out) {
  json_t *value = read_small(folder, name);
  bool good = value && !brim_lab_wire_ref_of(value, out);
  json_decref(value);
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
  FILES_FIRST_MS = 200,
  FILES_LAST_MS = 10000,
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
    f->pause_ms = f->pause_ms ? 2 * f->pause_ms : FILES_FIRST_MS;
    if (f->pause_ms > FILES_LAST_MS) f->pause_ms = FILES_LAST_MS;
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
  if (f->log.restarts < 0 || fstat(f->log.fd, &st) != 0) return true;
  f->log.size = (int64_t)st.st_size;
  while (!done && f->log.server_bytes < f->log.size) {
    brim_status status = brim_lab_sending_next(f->client, &f->log, &done);
    bool passing = is_passing(status);
    bool go_on = take_status(f, status, f->log.kind->shown);
    if (status && !passing) f->log.restarts = -1;  // never again
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
      .ref = *ref, .kind = brim_lab_file_find("log"), .fd = -1, .step = -1, .server_bytes = -1};
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

void brim_exec_upload_open_newest(brim_exec_upload *f) {
  set s = {{-1, -1, -1}, -1};
  s.fds[LAST] = open_named(f->folder, brim_lab_file_find(set_names[LAST])->local);
  s.fds[BEST] = open_named(f->folder, brim_lab_file_find(set_names[BEST])->local);
  s.fds[RECORD] = open_named(f->folder, brim_lab_file_find(set_names[RECORD])->local);
  if (s.fds[LAST] >= 0) s.step = checkpoint_step(s.fds[LAST]);
  clear_set(&f->found);
  f->found = s;
}

void brim_exec_upload_send(brim_exec_upload *f) {
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
  brim_exec_upload_send(f);
  pthread_mutex_lock(&f->mutex);
  f->ending = true;
  pthread_cond_signal(&f->wake);
  pthread_mutex_unlock(&f->mutex);
}

brim_exec_upload_state brim_exec_upload_poll(brim_exec_upload *f, int64_t patience_ms) {
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

enum { LATER_MS = 60000, PATIENCE_MS = 30000, FILES_TURN_MS = 100 };

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
  brim_exec_upload_open_newest(files);
  brim_exec_upload_finish(files);
  brim_exec_upload_state state = BRIM_EXEC_UPLOAD_BUSY;
  while (state == BRIM_EXEC_UPLOAD_BUSY && !uploads_stop(l)) {
    state = brim_exec_upload_poll(files, PATIENCE_MS);
    if (state == BRIM_EXEC_UPLOAD_BUSY) brim_clock_sleep_ns(FILES_TURN_MS * MS);
  }
  brim_exec_upload_close(files);
  bool over = state == BRIM_EXEC_UPLOAD_DONE || state == BRIM_EXEC_UPLOAD_STALE;
  if (over) pending_remove(folder, ref.attempt);
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

//------------------------------------------- attempt -------------------------------------------
// The loop over the child's output, the beats, the log and the watchdog; then the result, which
// goes to the spool first and from there to the store.

enum {
  LEASE_MS = 60000,
  STALL_MS = 600000,
  GRACE_MS = 60000,
  NEWS_MS = 2000,          // progress and metrics are sent this often
  ASLEEP_MS = 5000,        // a longer gap between two passes: this process was suspended
  TURN_MS = 250,           // stop flags are looked at this often
  UPLOAD_MS = 20000,       // the result waits so long for files that do not arrive
  UPLOAD_STOP_MS = 10000,  // and so long when the executor has to stop
  OOM_MS = 10000,  // kills for memory are sampled this often; those since the last but one count
  FIRST_PAUSE_MS = 100,    // wait after a call without an answer; doubles each time
  LAST_PAUSE_MS = 5000,    // longest such wait
  LARGEST_LOG = 64 << 20,  // bytes of attempt-N.log
  MOST_WAITING = 4 << 20,  // bytes of it that wait for the disk
  LONGEST_LINE = 1 << 20,
  MOST_WORDS = 64,
};

typedef struct exec {
  const brim_lab_exec_options *o;
  brim_lab_link *link;
  const brim_store_ref *ref;
  brim_lab_exec_report *report;
  brim_child *child;
  brim_exec_events events;
  brim_exec_tail tail;
  int64_t checkpoint_sent;   // the last step that the store has; -1 = none
  brim_exec_upload *upload;  // NULL: files stay where they are
  int64_t offered;           // step of the last checkpoint that was offered to it
  brim_exec_why why;
  int log_fd;            // attempt-N.log; -1 = it cannot be written
  bool in_line;          // the last line in the log has not ended: more pieces follow
  brim_str log_waiting;  // what the disk has not taken yet
  int64_t log_bytes, log_sent;
  int64_t lease_ms;
  int64_t unanswered_since_ns;  // time of the first call without an answer; 0 = the last had one
  int64_t last_pass_ns;         // when the loop last passed its start
  int64_t next_beat_ns;         // latest time of the next heartbeat
  int64_t last_beat_ns;
  // After a call without an answer: do not call before retry_at_ns. 0 = the last call was answered.
  int64_t retry_at_ns, retry_pause_ms;
  bool metrics_left;  // rows of the log are left to send
  bool start_sent;    // the store knows the step that the training started from
  int64_t beat_step;  // progress in the last heartbeat
  // OOM kills: time of the last sample; counts of the sample before it and of the last; -1 = unknown.
  int64_t oom_ns, oom_before, oom_latest;
  int64_t hung_ns;     // time without progress of a training that was ended as HUNG
  int64_t kill_at_ns;  // when to kill the training after stop_signal; 0 = no signal was sent
} exec;

static int64_t now_ns(void) { return brim_clock_now().ns; }

static int64_t or_default(int64_t value, int64_t usual) { return value ? value : usual; }

// True if no call was answered for so long that there may be no sweep any more.
static bool is_alone(const exec *x) {
  int64_t linger = or_default(x->o->linger_ms, x->lease_ms) * MS;
  return x->unanswered_since_ns && now_ns() - x->unanswered_since_ns > linger;
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
    x->kill_at_ns = now_ns() + or_default(x->o->grace_ms, GRACE_MS) * MS;
    (void)brim_child_signal(x->child, x->o->stop_signal);
  } else {
    (void)brim_child_stop(x->child, or_default(x->o->grace_ms, GRACE_MS));
  }
  brim_status_clear();
}

//---------------------------------- calls ----------------------------------

static bool may_call(const exec *x) {
  return x->why != BRIM_EXEC_STALE && (x->retry_at_ns == 0 || now_ns() >= x->retry_at_ns);
}

// Draws conclusions about the link and the attempt from an answer. True: the call is done, with or without success.
static bool take_answer(exec *x, brim_status status) {
  if (may_succeed_later(x->link, status)) {
    x->retry_pause_ms = x->retry_pause_ms ? 2 * x->retry_pause_ms : FIRST_PAUSE_MS;
    if (x->retry_pause_ms > LAST_PAUSE_MS) x->retry_pause_ms = LAST_PAUSE_MS;
    x->retry_at_ns = now_ns() + x->retry_pause_ms * MS;
    if (!x->unanswered_since_ns) x->unanswered_since_ns = now_ns();
    brim_status_clear();
    return false;
  }
  x->retry_at_ns = x->retry_pause_ms = x->unanswered_since_ns = 0;
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
  x->beat_step = x->events.progress.step;
  x->last_beat_ns = now_ns();
  // a server may have a shorter lease than the worker counts on
  int64_t most = x->lease_ms / 4, wanted = or_default(x->o->beat_ms, most);
  x->next_beat_ns = x->last_beat_ns + (wanted < most ? wanted : most) * MS;
}

// Sends metrics, and returns in time for the next beat: the log of earlier attempts may be long.
static void send_metrics(exec *x) {
  int64_t until = now_ns() + NEWS_MS * MS;
  x->metrics_left = false;
  while (may_call(x)) {
    x->metrics_left = now_ns() > until;
    if (x->metrics_left) return;
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

// Writes the waiting lines. A write that fails is tried again with the next line, the next beat, and at the end.
static void write_log(exec *x) {
  brim_str *w = &x->log_waiting;
  size_t at = 0;
  while (x->log_fd >= 0 && at < w->len) {
    ssize_t n = write(x->log_fd, w->data + at, w->len - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    at += (size_t)n;
  }
  if (at == 0) return;
  memmove(w->data, w->data + at, w->len - at + 1);
  w->len -= at;
  x->log_bytes += (int64_t)at;
}

// Reports everything that is new. The beat comes first: it holds the lease.
static void send_news(exec *x) {
  brim_exec_events *e = &x->events;
  int64_t now = now_ns(), often = or_default(x->o->beat_ms, NEWS_MS) * MS;
  if (often > NEWS_MS * MS) often = NEWS_MS * MS;
  bool due = now >= x->next_beat_ns;
  bool news = now - x->last_beat_ns >= often && e->progress.step != x->beat_step;
  if (!(due || news || x->metrics_left) || !may_call(x)) return;
  beat(x);
  if (e->started && !x->start_sent && may_call(x)) {
    x->start_sent = take_answer(x, brim_lab_start(x->link, x->ref, getpid(), e->start_step));
  }

  // A checkpoint is uploaded when the store has the metrics up to its step.
  bool fresh = x->upload && e->started && e->checkpoint != x->offered;
  if (fresh) brim_exec_upload_open_newest(x->upload);
  if (e->started) send_metrics(x);
  if (fresh && x->tail.count == 0 && !x->metrics_left && may_call(x)) {
    x->offered = e->checkpoint;
    brim_exec_upload_send(x->upload);
  }
  // Report a checkpoint once it is safe: uploaded, or on this disk if there is no server.
  int64_t step = x->upload ? brim_exec_upload_step(x->upload) : e->checkpoint;
  if (step > x->checkpoint_sent && may_call(x) &&
      take_answer(x, brim_lab_checkpoint(x->link, x->ref, step))) {
    x->checkpoint_sent = step;
  }

  write_log(x);
  int64_t size = x->log_bytes;
  if (size != x->log_sent && may_call(x) &&
      take_answer(x, brim_lab_log(x->link, x->ref, "log", size))) {
    x->log_sent = size;
  }
  if (e->findings && !e->findings_sent && may_call(x)) {
    e->findings_sent = take_answer(x, brim_lab_findings(x->link, x->ref, e->findings));
  }
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
  if (x->in_line) n = 0;  // a line that came in pieces
  brim_str_append_n(&text, when, n);
  bool shown = brim_exec_events_line(&x->events, line, now_ns(), &text);
  if (shown && !line->more) brim_str_append_char(&text, '\n');
  size_t waiting = x->log_waiting.len + text.len;
  bool fits = waiting <= MOST_WAITING && x->log_bytes + (int64_t)waiting <= LARGEST_LOG;
  if (shown && fits && x->log_fd >= 0 && brim_str_status(&text) == BRIM_OK) {
    brim_str_append_n(&x->log_waiting, text.data, text.len);
    if (brim_str_status(&x->log_waiting)) brim_str_deinit(&x->log_waiting);  // no memory for it
    x->in_line = line->more;
    write_log(x);
  }
  brim_str_deinit(&text);
  return BRIM_OK;
}

// Continues a log of this attempt, and removes anything else of its name, such as a planted link.
// The umask decides which users may read it, as for the other files of the folder.
static brim_status open_log(exec *x) {
  const int how = O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  char name[64];
  struct stat st;
  snprintf(name, sizeof name, "attempt-%" PRId64 ".log", x->ref->attempt);
  char *path = brim_fs_join(x->o->folder, name);
  if (!path) return brim_fail(BRIM_ENOMEM, "out of memory for an experiment");
  x->log_fd = open(path, how);
  bool own = x->log_fd >= 0 && fstat(x->log_fd, &st) == 0 && S_ISREG(st.st_mode) &&
             st.st_nlink == 1 && st.st_uid == geteuid();
  if (!own) {
    if (x->log_fd >= 0) (void)close(x->log_fd);
    bool gone = unlink(path) == 0 || errno == ENOENT;
    x->log_fd = gone ? open(path, how | O_CREAT | O_EXCL, 0666) : -1;
  }
  brim_status status =
      x->log_fd >= 0 ? BRIM_OK
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

// Without a checkpoint --resume would warn that there is nothing to resume.
static bool holds_checkpoint(const char *folder) {
  char **names = NULL;
  size_t count = 0;
  bool found = brim_fs_list(folder, &names, &count) != BRIM_OK;
  for (size_t i = 0; !found && i < count; i++) found = brim_str_ends(names[i], ".safetensors");
  brim_fs_list_free(names, count);
  brim_status_clear();
  return found;
}

static int count_gpus(const char *list) {
  int count = list && *list ? 1 : 0;
  for (; list && *list; list++) count += *list == ',';
  return count;
}

// True if a launcher among the words makes ranks. Without one the trainer is alone, even if srun or
// mpirun started several workers and this process is one of them.
static bool makes_ranks(const char *const *command) {
  for (; *command; command++) {
    const char *name = brim_fs_basename(*command);
    if (strcmp(name, "srun") == 0 || strcmp(name, "mpirun") == 0 || strcmp(name, "mpiexec") == 0) {
      return true;
    }
  }
  return false;
}

static brim_status start_child(exec *x) {
  const brim_lab_exec_options *o = x->o;
  words argv = {.count = 0}, env = {.count = 0};
  char threads[32], gpus[32];
  char *config = brim_fs_join(o->folder, "experiment.yaml");
  brim_str visible;
  brim_str_init(&visible);
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
  add(&env, BRIM_CHANNEL_ENV "=1");
  if (o->gpus) {
    brim_str_printf(&visible, "CUDA_VISIBLE_DEVICES=%s", o->gpus);
    add(&env, visible.data);
  }
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
  brim_status status = config ? brim_str_status(&visible)
                              : brim_fail(BRIM_ENOMEM, "out of memory for an experiment");
  if (!status) status = brim_child_start(&how, &x->child);
  if (!status) status = brim_exec_owner_write(o->folder, x->ref, brim_child_pid(x->child));
  brim_str_deinit(&visible);
  brim_free(config);
  return status;
}

//---------------------------------- before ----------------------------------

// Gets the config and reports the start. Retries until the store answers, a stop is asked for, or
// no call was answered for too long.
static brim_status begin_attempt(exec *x, char **config) {
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
    if (status && may_succeed_later(x->link, status)) status = BRIM_EIO;
    if (!status) {
      x->unanswered_since_ns = 0;
      return BRIM_OK;
    }
    if (!x->unanswered_since_ns) x->unanswered_since_ns = now_ns();
    if (status != BRIM_EIO || wants_stop(x) || is_alone(x)) {
      brim_free(*config);
      *config = NULL;
      return status;
    }
    brim_clock_sleep_ns(TURN_MS * MS);
  }
}

//---------------------------------- while it runs ----------------------------------

// The loop while the training runs.
static void supervise(exec *x) {
  const int64_t stall = or_default(x->o->stall_ms, STALL_MS);
  bool ended = false;
  x->oom_before = x->oom_latest = brim_exec_oom_kills();
  x->last_pass_ns = now_ns();
  for (;;) {
    brim_status status = brim_child_poll(x->child, &ended);
    if (status) brim_status_clear();  // ECHILD: the result says that it is lost
    // a signal to all processes of a job may reach the training first
    if (ended && wants_stop(x) && x->why == BRIM_EXEC_ITSELF) x->why = BRIM_EXEC_ASKED;
    if (ended) return;

    // The watchdog. The child's output has been read, so its silence counts; but while this process
    // was stopped, the child may have been stopped too.
    int64_t now = now_ns();
    if (now - x->last_pass_ns > ASLEEP_MS * MS) x->events.sign_ns += now - x->last_pass_ns;
    x->last_pass_ns = now;
    int64_t quiet = now - x->events.sign_ns;
    if (stall > 0 && x->why == BRIM_EXEC_ITSELF &&
        quiet > brim_exec_events_hang_ns(&x->events, stall * MS)) {
      x->hung_ns = quiet;
      end_child(x, BRIM_EXEC_HUNG);
    }
    if (wants_stop(x)) end_child(x, BRIM_EXEC_ASKED);
    if (is_alone(x)) end_child(x, BRIM_EXEC_ALONE);
    if (x->kill_at_ns && now > x->kill_at_ns) (void)brim_child_stop(x->child, 0);

    // A process with much memory may take seconds to end, so older kills count too.
    if (now - x->oom_ns >= OOM_MS * MS) {
      x->oom_before = x->oom_latest;
      x->oom_latest = brim_exec_oom_kills();
      x->oom_ns = now;
    }
    send_news(x);

    // Wait for a turn, or until the child has written something.
    int64_t left = (x->next_beat_ns - now_ns()) / MS + 1;
    if (left < 1) left = x->retry_at_ns ? (x->retry_at_ns - now_ns()) / MS + 1 : 1;
    if (left > TURN_MS) left = TURN_MS;
    brim_child_wait_any(&x->child, 1, left < 1 ? 1 : left);
  }
}

//---------------------------------- after ----------------------------------

// Lists all reports that are not acknowledged, except the result.
static brim_status gather(exec *x, brim_str *lines) {
  const brim_store_ref *ref = x->ref;
  if (x->events.started && !x->start_sent) {
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
  // a training that was killed may have written a checkpoint without a record of it
  int64_t step =
      x->upload ? brim_exec_upload_step(x->upload) : brim_exec_checkpoint_of(x->o->folder);
  if (step > x->checkpoint_sent) {
    BRIM_TRY(brim_exec_spool_add(
        lines, &(brim_lab_request){.op = BRIM_LAB_OP_CHECKPOINT, .ref = *ref, .step = step}));
  }
  write_log(x);
  if (x->log_bytes > x->log_sent) {
    BRIM_TRY(brim_exec_spool_add(
        lines, &(brim_lab_request){
                   .op = BRIM_LAB_OP_LOG, .ref = *ref, .stream = "log", .size = x->log_bytes}));
  }
  if (x->events.findings && !x->events.findings_sent) {
    BRIM_TRY(brim_exec_spool_add(
        lines, &(brim_lab_request){
                   .op = BRIM_LAB_OP_FINDINGS, .ref = *ref, .findings = x->events.findings}));
  }
  if (x->events.progress.step >= 0) {
    BRIM_TRY(brim_exec_spool_add(
        lines,
        &(brim_lab_request){.op = BRIM_LAB_OP_BEAT, .ref = *ref, .progress = x->events.progress}));
  }
  return BRIM_OK;
}

// Sends until the store has everything, or the link has been silent for too long.
static brim_status send_all(exec *x, const brim_str *lines, brim_exec_spool_progress *sent) {
  x->retry_at_ns = x->retry_pause_ms = 0;
  for (;;) {
    brim_status status = spool_send(x->link, lines, sent);
    if (status != BRIM_EIO) return status;
    (void)take_answer(x, status);
    write_log(x);
    if (wants_stop(x) || x->why == BRIM_EXEC_ALONE || is_alone(x))
      return brim_fail(BRIM_EIO, "the sweep does not answer");
    brim_clock_sleep_ns(x->retry_pause_ms * MS);
  }
}

// Renews the lease while files are sent. True: the attempt is stale.
static bool renew_lease(exec *x) {
  brim_store_beat_reply reply = {.lease_ms = x->lease_ms};
  if (now_ns() < x->next_beat_ns) return false;
  brim_status status = brim_lab_beat(x->link, x->ref, NULL, &reply);
  if (may_succeed_later(x->link, status)) {
    if (!x->unanswered_since_ns) x->unanswered_since_ns = now_ns();
    status = BRIM_EIO;
  }
  if (!status) x->unanswered_since_ns = 0;
  x->next_beat_ns = now_ns() + (status ? x->lease_ms / 8 : reply.lease_ms / 4) * MS;
  brim_status_clear();
  return status == BRIM_ESTATE || status == BRIM_ENOENT;
}

// Sends the files that the server lacks, for a limited time. `ended`: the server has the result, so
// there is no lease to renew. True: nothing is left to send.
static bool send_files(exec *x, bool ended) {
  int64_t stop_ns = 0;
  brim_exec_upload_state state = BRIM_EXEC_UPLOAD_BUSY;
  brim_exec_upload_open_newest(x->upload);
  brim_exec_upload_finish(x->upload);
  while (state == BRIM_EXEC_UPLOAD_BUSY) {
    state = brim_exec_upload_poll(x->upload, UPLOAD_MS);
    write_log(x);
    if (!ended && renew_lease(x)) state = BRIM_EXEC_UPLOAD_STALE;
    if (wants_stop(x) && !stop_ns) stop_ns = now_ns() + UPLOAD_STOP_MS * MS;
    bool late = is_alone(x) || (stop_ns && now_ns() > stop_ns);
    if (late && state == BRIM_EXEC_UPLOAD_BUSY) state = BRIM_EXEC_UPLOAD_LATER;
    if (state == BRIM_EXEC_UPLOAD_BUSY) brim_clock_sleep_ns(20 * MS);
  }
  if (state == BRIM_EXEC_UPLOAD_LATER) return false;
  pending_remove(x->o->folder, x->ref->attempt);
  int64_t step = brim_exec_upload_step(x->upload);
  if (!ended && state == BRIM_EXEC_UPLOAD_DONE && step > x->checkpoint_sent) {
    (void)brim_lab_checkpoint(x->link, x->ref, step);
    brim_status_clear();
  }
  return true;
}

// Builds the spool: the lines, and the result. `files_missing`: files that the server still lacks.
static brim_status build_spool(const exec *x, const brim_str *lines, const char *files_missing,
                               brim_str *out) {
  const brim_lab_exec_report *r = x->report;
  brim_str last;
  brim_str_init(&last);
  brim_str_clear(out);
  brim_str_append_n(out, lines->data, lines->len);
  brim_status status = last_lines(&x->events, &last);
  const brim_store_result result = {.outcome = r->outcome,
                                    .failure = r->failure,
                                    .exit_code = r->exit_code,
                                    .message = r->message,
                                    .last_lines = last.data,
                                    .owed = files_missing};
  if (!status)
    status = brim_exec_spool_add(
        out, &(brim_lab_request){.op = BRIM_LAB_OP_FINISH, .ref = *x->ref, .result = result});
  brim_str_deinit(&last);
  return status;
}

// Reports the end of the attempt: writes unsent reports and the result to the spool, uploads the
// files, sends the spool. The result waits for the files only if the spool is on the disk.
static brim_status report_result(exec *x) {
  const bool files = x->upload && x->child;
  brim_str lines, spool, files_missing;
  brim_exec_spool_progress sent;
  brim_str_init(&lines);
  brim_str_init(&spool);
  brim_str_init(&files_missing);
  spool_progress_init(&sent);
  for (const brim_lab_file_kind *k = brim_lab_file_kinds; files && k->name; k++) {
    char *path = k->local ? brim_fs_join(x->o->folder, k->local) : NULL;
    if (path && brim_fs_exists(path)) {
      brim_str_printf(&files_missing, "%s%s", files_missing.len ? "," : "", k->name);
    }
    brim_free(path);
  }
  brim_status status = gather(x, &lines);
  if (!status) status = build_spool(x, &lines, files_missing.data, &spool);
  bool spool_written =
      !status && brim_exec_spool_write(x->o->folder, x->ref->attempt, &spool) == BRIM_OK;
  // a result that is safe on the disk waits for its files; otherwise it goes first
  if (spool_written && files && send_files(x, false)) {
    status = build_spool(x, &lines, "", &spool);
    if (!status) (void)brim_exec_spool_write(x->o->folder, x->ref->attempt, &spool);
  }
  if (!status) status = send_all(x, &spool, &sent);
  if (!status) x->report->state = sent.state;
  if (!status && !spool_written && files) (void)send_files(x, true);
  if (!files && x->upload) pending_remove(x->o->folder, x->ref->attempt);
  bool spool_done = status || !spool_keep_refused(x->o->folder, x->ref->attempt, &sent.refused);
  spool_progress_deinit(&sent);
  brim_str_deinit(&files_missing);
  brim_str_deinit(&spool);
  brim_str_deinit(&lines);
  if (status == BRIM_EIO && spool_written) {
    brim_status_clear();
    x->report->end = BRIM_LAB_EXEC_SPOOLED;
    return BRIM_OK;
  }
  if (status && status != BRIM_ESTATE) return status;
  x->report->end = status ? BRIM_LAB_EXEC_STALE : BRIM_LAB_EXEC_REPORTED;
  if (spool_done) brim_exec_spool_remove(x->o->folder, x->ref->attempt);
  brim_status_clear();
  return BRIM_OK;
}

// A failure of the executor itself counts as the machine's.
static brim_status report_failure(exec *x) {
  x->report->outcome = BRIM_ATTEMPT_ERROR;
  x->report->failure = BRIM_FAILURE_INFRASTRUCTURE;
  x->report->exit_code = -1;
  snprintf(x->report->message, sizeof x->report->message, "%s", brim_status_detail());
  brim_utf8_trim(x->report->message);
  return report_result(x);
}

//---------------------------------- all of it ----------------------------------

// Checks the config, which comes from elsewhere and must not bring text of this machine's files into
// messages; then starts the training.
static brim_status prepare(exec *x, const char *config) {
  BRIM_TRY(brim_config_check_no_includes(config, "experiment.yaml"));
  char *path = brim_fs_join(x->o->folder, "experiment.yaml");
  brim_status status = path ? brim_fs_write(path, config, strlen(config))
                            : brim_fail(BRIM_ENOMEM, "out of memory for an experiment");
  brim_free(path);
  if (!status) status = open_log(x);
  return status ? status : start_child(x);
}

static brim_status end_as_stale(exec *x) {
  x->report->end = BRIM_LAB_EXEC_STALE;
  brim_status_clear();
  return BRIM_OK;
}

// Renews the lease while a checkpoint comes from the server. False: the checkpoint is not needed any more.
static bool keep_fetching(void *ctx) {
  exec *x = ctx;
  if (renew_lease(x)) x->why = BRIM_EXEC_STALE;
  return x->why != BRIM_EXEC_STALE && !wants_stop(x) && !is_alone(x);
}

static brim_status run(exec *x) {
  char *config = NULL;
  brim_status status = brim_fs_mkdirs(x->o->folder);
  if (!status) status = brim_exec_owner_take(x->o->folder, x->ref);
  if (status == BRIM_ESTATE) return end_as_stale(x);
  if (status) return report_failure(x);
  status = begin_attempt(x, &config);
  if (status == BRIM_ESTATE || status == BRIM_ENOENT) return end_as_stale(x);
  BRIM_TRY(status);
  x->next_beat_ns = now_ns();
  status = brim_exec_fetch(x->link, x->o->folder, x->ref->exp, keep_fetching, x);
  if (!status) status = brim_exec_upload_open(x->link, x->o->folder, x->ref, &x->upload);
  // noted before the training, since a full disk later must not make the worker forget its files
  if (!status && x->upload) status = brim_exec_pending_write(x->o->folder, x->ref);
  if (!status) status = prepare(x, config);
  brim_free(config);
  if (status == BRIM_EINTERRUPTED) {  // before the training began
    brim_status_clear();
    if (x->why == BRIM_EXEC_STALE) return end_as_stale(x);
    x->report->outcome = BRIM_ATTEMPT_STOPPED;
    return report_result(x);
  }
  if (status) {
    brim_child_close(x->child);
    x->child = NULL;
    return report_failure(x);
  }
  x->next_beat_ns = now_ns();
  supervise(x);
  const int64_t kills = brim_exec_oom_kills();
  const brim_exec_ending ending = {.why = x->why,
                                   .child = brim_child_get_result(x->child),
                                   .events = &x->events,
                                   .oom_killed = x->oom_before >= 0 && kills > x->oom_before,
                                   .quiet_ns = x->hung_ns};
  brim_exec_classify(&ending, x->report);
  return x->why == BRIM_EXEC_STALE ? end_as_stale(x) : report_result(x);
}

brim_status brim_lab_execute(const brim_lab_exec_options *options, brim_lab_exec_report *out) {
  exec *x = brim_calloc(1, sizeof *x);
  memset(out, 0, sizeof *out);
  if (!x) return brim_fail(BRIM_ENOMEM, "out of memory for an experiment");
  x->o = options;
  x->link = options->link;
  x->ref = &options->ref;
  x->report = out;
  x->log_fd = -1;
  brim_str_init(&x->log_waiting);
  x->lease_ms = LEASE_MS;
  x->last_pass_ns = now_ns();
  x->beat_step = -1;
  x->checkpoint_sent = x->offered = -1;
  brim_exec_events_init(&x->events, now_ns());
  brim_exec_tail_init(&x->tail, options->folder);
  brim_status status = run(x);
  brim_exec_upload_close(x->upload);
  brim_child_close(x->child);
  brim_exec_tail_deinit(&x->tail);
  brim_free(x->events.findings);
  write_log(x);
  if (x->log_waiting.len > 0) {
    brim_log_warn("exec", "%s: the disk did not take the last %zu bytes of the log",
                  options->folder, x->log_waiting.len);
  }
  if (x->log_fd >= 0) (void)close(x->log_fd);
  brim_str_deinit(&x->log_waiting);
  brim_exec_owner_release(options->folder);
  brim_free(x);
  return status;
}
