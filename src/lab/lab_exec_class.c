// How an attempt ended: from what the training said, its exit code or signal, and why the executor ended
// it. Plain rules over plain values, except for the kernel's counts of killed processes.
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "lab/lab_exec_int.h"

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
