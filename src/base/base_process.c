// Child processes. The child leads its own process group, so that a timeout ends its helpers too.
// It is not reaped before the last signal is sent: the group id cannot be anybody else's until
// then.
#include "base/base_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_fs.h"
#include "base/base_status.h"

enum {
  DEFAULT_OUTPUT = 64 * 1024,
  KILL_AFTER_MS = 2000,
  CANCEL_POLL_MS = 100,
  NO_PIDFD_POLL_MS = 10
};

extern char **environ;

// The last `max` bytes of a stream: grows up to max, then goes round.
typedef struct tail_buffer {
  char *data;
  size_t cap, len, start, max;
} tail_buffer;

static bool tail_grow(tail_buffer *t, size_t need) {
  size_t cap = t->cap ? t->cap : 4096;
  while (cap < need) cap *= 2;
  if (cap > t->max) cap = t->max;
  char *data = brim_realloc(t->data, cap + 1);
  if (!data) return false;
  t->data = data;
  t->cap = cap;
  return true;
}

static bool tail_add(tail_buffer *t, const char *data, size_t n) {
  if (t->cap < t->max && t->len + n > t->cap && !tail_grow(t, t->len + n)) return false;
  for (size_t i = 0; i < n; i++) {
    if (t->len < t->cap) {
      t->data[t->len++] = data[i];
    } else {
      t->data[t->start] = data[i];
      t->start = (t->start + 1) % t->cap;
    }
  }
  return true;
}

static void reverse(char *data, size_t n) {
  for (size_t i = 0; i < n / 2; i++) {
    char c = data[i];
    data[i] = data[n - 1 - i];
    data[n - 1 - i] = c;
  }
}

// Turn the ring so that it starts at 0.
static void tail_finish(tail_buffer *t) {
  if (t->start) {
    reverse(t->data, t->start);
    reverse(t->data + t->start, t->len - t->start);
    reverse(t->data, t->len);
    t->start = 0;
  }
  t->data[t->len] = '\0';
}

typedef struct child {
  pid_t pid;
  int pipe;   // read end of its output, or -1
  int pidfd;  // readable when it has ended; -1 on kernels without
  tail_buffer tail;
} child;

static brim_status add_actions(posix_spawn_file_actions_t *actions,
                               const brim_process_options *options, int out_fd) {
  int err = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (!err && out_fd >= 0) err = posix_spawn_file_actions_adddup2(actions, out_fd, STDOUT_FILENO);
  if (!err && out_fd >= 0) err = posix_spawn_file_actions_adddup2(actions, out_fd, STDERR_FILENO);
  if (!err && options->cwd) err = posix_spawn_file_actions_addchdir_np(actions, options->cwd);
  if (err)
    return brim_fail(BRIM_ENOMEM, "cannot prepare a child process: %s", brim_errno_text(err));
  return BRIM_OK;
}

static brim_status spawn(const brim_process_options *options, int out_fd, pid_t *pid) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attr;
  if (posix_spawn_file_actions_init(&actions) != 0) {
    return brim_fail(BRIM_ENOMEM, "out of memory for a child process");
  }
  brim_status status = BRIM_OK;
  if (posix_spawnattr_init(&attr) != 0) {
    status = brim_fail(BRIM_ENOMEM, "out of memory for a child process");
    goto fail_attr;
  }
  // The child starts with no signal blocked and none ignored, whatever this program does with them.
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setflags(&attr,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attr, 0);
  posix_spawnattr_setsigmask(&attr, &none);
  posix_spawnattr_setsigdefault(&attr, &all);
  status = add_actions(&actions, options, out_fd);
  if (status) goto done;
  char *const *argv = (char *const *)(uintptr_t)options->argv;
  char *const *env = options->env ? (char *const *)(uintptr_t)options->env : environ;
  int err = posix_spawnp(pid, argv[0], &actions, &attr, argv, env);
  if (err) {
    status = brim_fail(brim_errno_status(err), "cannot run %s: %s", argv[0], brim_errno_text(err));
  }
done:
  posix_spawnattr_destroy(&attr);
fail_attr:
  posix_spawn_file_actions_destroy(&actions);
  return status;
}

static brim_status child_start(const brim_process_options *options, child *c) {
  int ends[2] = {-1, -1};
  if (options->capture && pipe2(ends, O_CLOEXEC) != 0) {
    return brim_fail(BRIM_EIO, "cannot create a pipe: %s", brim_errno_text(errno));
  }
  brim_status status = spawn(options, ends[1], &c->pid);
  if (ends[1] >= 0) close(ends[1]);
  if (status) {
    if (ends[0] >= 0) close(ends[0]);
    return status;
  }
  c->pipe = ends[0];
  if (c->pipe >= 0) (void)fcntl(c->pipe, F_SETFL, O_NONBLOCK);
  c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
  return BRIM_OK;
}

// Take what is in the pipe now; closes it at its end.
static brim_status drain(child *c) {
  char block[4096];
  while (c->pipe >= 0) {
    ssize_t n = read(c->pipe, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return BRIM_OK;
    if (n <= 0) {
      close(c->pipe);
      c->pipe = -1;
    } else if (!tail_add(&c->tail, block, (size_t)n)) {
      return brim_fail(BRIM_ENOMEM, "out of memory for the output of a child process");
    }
  }
  return BRIM_OK;
}

// Has it ended? It stays a zombie: reaping comes last.
static bool has_ended(const child *c) {
  siginfo_t info = {0};
  return waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
}

static void wait_for_news(const child *c, int64_t limit_ms) {
  struct pollfd fds[2];
  nfds_t n = 0;
  if (c->pipe >= 0) fds[n++] = (struct pollfd){.fd = c->pipe, .events = POLLIN};
  if (c->pidfd >= 0) fds[n++] = (struct pollfd){.fd = c->pidfd, .events = POLLIN};
  if (c->pidfd < 0 && (limit_ms < 0 || limit_ms > NO_PIDFD_POLL_MS)) limit_ms = NO_PIDFD_POLL_MS;
  (void)poll(fds, n, limit_ms > 1000000 ? 1000000 : (int)limit_ms);
}

// Until the child has ended: collect output, watch the clock and the caller.
static brim_status child_watch(const brim_process_options *options, child *c,
                               brim_process_result *result) {
  brim_status status = BRIM_OK;
  int64_t start = brim_clock_now().ns;
  int64_t kill_at = -1;  // ms after start; set once SIGTERM is out
  bool killed = false;
  for (;;) {
    if (!status) status = drain(c);
    if (has_ended(c)) break;
    int64_t now = (brim_clock_now().ns - start) / 1000000;
    if (kill_at < 0) {
      bool late = options->timeout_ms > 0 && now >= options->timeout_ms;
      if (!status && options->cancelled && options->cancelled(options->cancel_ctx)) {
        status = brim_fail(BRIM_EINTERRUPTED, "%s was interrupted", options->argv[0]);
      }
      if (late || status) {
        result->timed_out = late;
        kill(-c->pid, SIGTERM);
        kill_at = now + KILL_AFTER_MS;
      }
    } else if (!killed && now >= kill_at) {
      kill(-c->pid, SIGKILL);
      killed = true;
    }
    int64_t limit = -1;
    if (kill_at >= 0) {
      limit = killed ? -1 : kill_at - now;
    } else if (options->timeout_ms > 0) {
      limit = options->timeout_ms - now;
    }
    if (kill_at < 0 && options->cancelled && (limit < 0 || limit > CANCEL_POLL_MS)) {
      limit = CANCEL_POLL_MS;
    }
    if (status == BRIM_ENOMEM && c->pipe >= 0) {  // nobody reads on: let its writes fail
      close(c->pipe);
      c->pipe = -1;
    }
    wait_for_news(c, limit < 0 ? -1 : limit + 1);
  }
  if (kill_at >= 0) kill(-c->pid, SIGKILL);  // helpers that outlived the leader
  // What it wrote last. A helper left running may hold the pipe open: its output is not waited for.
  brim_status last = status == BRIM_ENOMEM ? BRIM_OK : drain(c);
  return status ? status : last;
}

static void child_reap(child *c, brim_process_result *result) {
  int code = 0;
  while (waitpid(c->pid, &code, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(code)) {
    result->exit_code = -1;
    result->signal = WTERMSIG(code);
  } else {
    result->exit_code = WEXITSTATUS(code);
  }
  if (c->pidfd >= 0) close(c->pidfd);
  if (c->pipe >= 0) close(c->pipe);
}

brim_status brim_process_run(const brim_process_options *options, brim_process_result *result) {
  *result = (brim_process_result){0};
  if (!options->argv || !options->argv[0]) {
    return brim_fail(BRIM_EINVAL, "no command to run");
  }
  if (options->cwd && !brim_fs_is_dir(options->cwd)) {
    return brim_fail(BRIM_ENOENT, "cannot run %s in %s: there is no such folder", options->argv[0],
                     options->cwd);
  }
  child c = {.pipe = -1, .pidfd = -1};
  c.tail.max = options->max_output ? options->max_output : DEFAULT_OUTPUT;
  if (options->capture && !tail_grow(&c.tail, 1)) {
    return brim_fail(BRIM_ENOMEM, "out of memory for the output of a child process");
  }
  brim_time start = brim_clock_now();
  brim_status status = child_start(options, &c);
  if (status) {
    brim_free(c.tail.data);
    return status;
  }
  status = child_watch(options, &c, result);
  child_reap(&c, result);
  result->elapsed_ns = brim_time_since_ns(start, brim_clock_now());
  if (options->capture) {
    tail_finish(&c.tail);
    result->output = c.tail.data;
    result->output_size = c.tail.len;
  }
  if (status == BRIM_ENOMEM) brim_process_result_deinit(result);
  return status;
}

void brim_process_result_deinit(brim_process_result *result) {
  brim_free(result->output);
  result->output = NULL;
  result->output_size = 0;
}
