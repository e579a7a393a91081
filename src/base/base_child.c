// Child processes. A child is reaped only after the last signal to its group: until then no other group can get its
// number.

#include "base/base_child.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_fs.h"
#include "base/base_status.h"
#include "base/base_str.h"
#include "base/base_thread.h"

// The child's ends of its streams, while it starts.
typedef struct brim_child_ends {
  int in, out, err;  // -1 = inherit
} brim_child_ends;

// The unfinished line of one stream.
typedef struct brim_child_splitter {
  char *data;  // (max + 1)
  size_t size, max;
  bool returns, skip_newline;  // a return ends a line; skip a newline right after it
} brim_child_splitter;

//---------------------------------- lines ----------------------------------
// Splits a child's output into lines. A line above the limit comes in pieces, so memory is bounded.

enum { DEFAULT_LINE = 64 * 1024 };

static brim_status brim_child_splitter_init(brim_child_splitter *s, size_t max, bool returns) {
  *s = (brim_child_splitter){.max = max ? max : DEFAULT_LINE, .returns = returns};
  s->data = brim_alloc(s->max + 1);
  return s->data ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for a child process");
}

static void brim_child_splitter_deinit(brim_child_splitter *s) {
  brim_free(s->data);
  s->data = NULL;
}

static brim_status pass_line(brim_child_splitter *s, const brim_child_options *o,
                             brim_child_line line) {
  s->data[s->size] = '\0';
  line.text = s->data;
  line.size = s->size;
  s->size = 0;
  return o->on_line ? o->on_line(o->ctx, &line) : BRIM_OK;
}

static size_t line_length(const brim_child_splitter *s, const char *data, size_t size) {
  const char *end = memchr(data, '\n', size);
  size_t n = end ? (size_t)(end - data) : size;
  const char *back = s->returns ? memchr(data, '\r', n) : NULL;
  return back ? (size_t)(back - data) : n;
}

// Calls on_line for every line that ends in `data`, and keeps the rest.
static brim_status brim_child_splitter_add(brim_child_splitter *s, const brim_child_options *o,
                                           brim_child_stream stream, const char *data,
                                           size_t size) {
  while (size) {
    if (s->skip_newline) {  // "\r\n" is one line end
      s->skip_newline = false;
      if (*data == '\n') {
        data++, size--;
        continue;
      }
    }
    size_t n = line_length(s, data, size), room = s->max - s->size;
    bool fits = n <= room, ends = fits && n < size;
    if (!fits) n = room;
    memcpy(s->data + s->size, data, n);
    s->size += n;
    data += n, size -= n;
    if (!fits) BRIM_TRY(pass_line(s, o, (brim_child_line){.stream = stream, .more = true}));
    if (!ends) continue;
    s->skip_newline = *data == '\r';
    data++, size--;
    BRIM_TRY(pass_line(s, o, (brim_child_line){.stream = stream}));
  }
  return BRIM_OK;
}

// Passes on a last line without a newline.
static brim_status brim_child_splitter_end(brim_child_splitter *s, const brim_child_options *o,
                                           brim_child_stream stream) {
  if (!s->size) return BRIM_OK;
  return pass_line(s, o, (brim_child_line){.stream = stream, .cut = true});
}

//---------------------------------- starting a program ----------------------------------
// This process may have threads and a CUDA context. vfork copies no page tables and runs no fork handlers. Until
// execve the child only makes system calls, on memory prepared before. (posix_spawn has no death signal.) The child
// reports a failure through a pipe that a successful execve closes.

enum { FIRST_PASSED = 3, OUT_OF_THE_WAY = 16, MAX_SIGNAL = 64 };
enum { BAD_FOLDER = 1, BAD_PROGRAM = 2, BAD_STREAM = 3, NO_PROCESS = 4 };

extern char **environ;

typedef struct failure {
  int stage, why;
} failure;

typedef struct launch {
  const brim_child_options *options;
  brim_child_ends ends;
  char **programs;  // paths to try in turn, NULL-terminated
  char **env;
  int report;
  pid_t parent;
} launch;

// Runs in the child, so it only makes system calls: the memory is the parent's.
static _Noreturn void give_up(const launch *l, int stage, int why) {
  const failure f = {.stage = stage, .why = why};
  while (write(l->report, &f, sizeof f) < 0 && errno == EINTR) {
  }
  _exit(127);
}

static void default_signals(void) {
  struct sigaction usual = {.sa_handler = SIG_DFL};
  for (int n = 1; n <= MAX_SIGNAL; n++) {
    if (n != SIGKILL && n != SIGSTOP) (void)sigaction(n, &usual, NULL);
  }
}

// Closes all descriptors, for kernels before 5.11. It parses directory entries: inode, offset (8 bytes each),
// length (2), type (1), name.
static void close_listed(void) {
  char block[2048];
  int folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  for (;;) {
    long n = syscall(SYS_getdents64, folder, block, sizeof block);
    if (n <= 0) break;
    for (long at = 0; at < n;) {
      unsigned short length;
      int fd = 0;
      memcpy(&length, block + at + 16, sizeof length);
      const char *name = block + at + 19;
      for (; *name >= '0' && *name <= '9'; name++) fd = fd * 10 + (*name - '0');
      if (fd > STDERR_FILENO) (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
      at += length;
    }
  }
  (void)close(folder);
}

static void close_others(void) {
#if defined(SYS_close_range)
  const unsigned cloexec = 1u << 2;
  if (syscall(SYS_close_range, (unsigned)STDERR_FILENO + 1, ~0u, cloexec) == 0) return;
#endif
  close_listed();
}

// Moves every descriptor above the range of targets, then to its target, so that no target overwrites a source.
static void place_descriptors(launch *l) {
  const brim_child_options *o = l->options;
  int from[3 + BRIM_CHILD_PASS] = {l->ends.in, l->ends.out, l->ends.err};
  int count = 3 + (int)o->pass_count;
  for (int i = 3; i < count; i++) from[i] = o->pass_fds[i - 3];
  int report = fcntl(l->report, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
  if (report < 0) give_up(l, BAD_STREAM, errno);
  l->report = report;
  for (int i = 0; i < count; i++) {
    if (from[i] < 0) continue;
    from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
    if (from[i] < 0) give_up(l, BAD_STREAM, errno);
  }
  close_others();
  for (int i = 0; i < count; i++) {
    if (from[i] >= 0 && dup2(from[i], i) < 0) give_up(l, BAD_STREAM, errno);
  }
}

static _Noreturn void child_main(launch l) {
  const brim_child_options *o = l.options;
  bool denied = false;
  sigset_t none;
  if (o->die_with_parent) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != l.parent) _exit(127);  // the parent ended before the death signal was set
  }
  (void)setpgid(0, 0);
  default_signals();
  place_descriptors(&l);
  if (o->cwd && chdir(o->cwd) != 0) give_up(&l, BAD_FOLDER, errno);
  sigemptyset(&none);
  (void)sigprocmask(SIG_SETMASK, &none, NULL);
  for (char **path = l.programs; *path; path++) {
    (void)execve(*path, (char *const *)(uintptr_t)o->argv, l.env);
    if (errno == EACCES) denied = true;
    if (errno != EACCES && errno != ENOENT && errno != ENOTDIR && errno != ESTALE) break;
  }
  give_up(&l, BAD_PROGRAM, denied && errno == ENOENT ? EACCES : errno);
}

static const char *name_end(const char *text) {
  const char *end = strchr(text, '=');
  return end ? end : text + strlen(text);
}

// Returns the index of the variable of "NAME=value" or "NAME"; `count` if the list has none.
static size_t find_name(char **env, size_t count, const char *text) {
  size_t n = (size_t)(name_end(text) - text), i = 0;
  while (i < count && (strncmp(env[i], text, n) != 0 || env[i][n] != '=')) i++;
  return i;
}

// Builds the environment of the child; strings are borrowed.
static char **make_env(const brim_child_options *o) {
  char **base = o->env ? (char **)(uintptr_t)o->env : environ;
  size_t count = 0, changes = 0;
  while (base && base[count]) count++;
  while (o->env_change && o->env_change[changes]) changes++;
  char **env = brim_alloc((count + changes + 1) * sizeof *env);
  if (!env) return NULL;
  if (count) memcpy(env, base, count * sizeof *env);
  for (size_t i = 0; i < changes; i++) {
    char *text = (char *)(uintptr_t)o->env_change[i];
    size_t at = find_name(env, count, text);
    if (strchr(text, '=')) {
      env[at] = text;
      count += at == count;
    } else if (at < count) {
      env[at] = env[--count];
    }
  }
  env[count] = NULL;
  return env;
}

// Builds the list of paths to try: one per folder of PATH for a name without a slash. One block has pointers, then
// paths.
static char **make_programs(const char *name, char **env) {
  size_t count = 0, folders = 1;
  while (env[count]) count++;
  size_t at = find_name(env, count, "PATH");
  const char *path = at < count ? env[at] + strlen("PATH=") : "/usr/bin:/bin";
  bool found = strchr(name, '/') != NULL;
  for (const char *c = path; *c && !found; c++) folders += *c == ':';
  size_t each = strlen(name) + 3, pointers = (folders + 1) * sizeof(char *);
  char **programs = brim_alloc(pointers + folders * each + strlen(path) + 1);
  if (!programs) return NULL;
  char *text = (char *)programs + pointers;
  for (size_t i = 0; i < folders; i++) {
    size_t n = found ? 0 : strcspn(path, ":");
    programs[i] = text;
    if (!found) text += sprintf(text, "%.*s/", n ? (int)n : 1, n ? path : ".");
    text += sprintf(text, "%s", name) + 1;
    path += n + (path[n] == ':');
  }
  programs[folders] = NULL;
  return programs;
}

// The function is not inlined, so that no variable of a caller lives across vfork.
static __attribute__((noinline)) pid_t start_process(const launch *l) {
  pid_t pid = vfork();
  if (pid == 0) child_main(*l);
  return pid;
}

static pid_t start_unsignalled(const launch *l) {
  sigset_t all, before;
  sigfillset(&all);
  // Block signals, since a handler in the child would change this process's memory.
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pid_t pid = start_process(l);
  int why = errno;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  errno = why;
  return pid;
}

static brim_status failed(const brim_child_options *o, const failure *f) {
  const char *name = o->argv[0], *why = brim_errno_text(f->why);
  brim_status status = brim_errno_status(f->why);
  // the child may run out of descriptors too; a descriptor that is not open is the caller's mistake
  if (f->stage == NO_PROCESS || (f->stage == BAD_STREAM && f->why != EBADF)) status = BRIM_ELIMIT;
  if (f->stage == BAD_FOLDER)
    return brim_fail(status, "cannot run %s in %s: %s", name, o->cwd, why);
  return brim_fail(status, "cannot run %s: %s", name, why);
}

static brim_status run(launch *l, pid_t *pid) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return brim_fail(BRIM_ELIMIT, "cannot create a pipe: %s", brim_errno_text(errno));
  l->report = ends[1];
  *pid = start_unsignalled(l);
  failure f = {.stage = NO_PROCESS, .why = errno};
  (void)close(ends[1]);
  bool bad = *pid < 0;
  if (!bad) {
    ssize_t n;
    do {
      n = read(ends[0], &f, sizeof f);
    } while (n < 0 && errno == EINTR);
    bad = n == (ssize_t)sizeof f;
    while (bad && waitpid(*pid, NULL, 0) < 0 && errno == EINTR) {
    }
  }
  (void)close(ends[0]);
  return bad ? failed(l->options, &f) : BRIM_OK;
}

// Runs the program as a child of the calling thread.
static brim_status brim_child_exec(const brim_child_options *options, const brim_child_ends *ends,
                                   pid_t *pid) {
  launch l = {.options = options, .ends = *ends, .parent = getpid()};
  l.env = make_env(options);
  if (l.env) l.programs = make_programs(options->argv[0], l.env);
  brim_status status = BRIM_OK;
  if (!l.programs) {
    status = brim_fail(BRIM_ENOMEM, "out of memory for a child process");
  } else {
    status = run(&l, pid);
  }
  brim_free((void *)l.programs);
  brim_free((void *)l.env);
  return status;
}

//---------------------------------- the child ----------------------------------

enum {
  BLOCK = 16 * 1024,
  BLOCKS_PER_POLL = 16,  // blocks read before other children get a turn
  NO_PIDFD_POLL_MS = 10,
  MOST_POLL_MS = 1000000,
  SAMPLE_MS = 100,
  WAIT_ON_STACK = 16,  // children that brim_child_wait_any handles without allocating
  BASELINE_SLACK = 4 << 20,
};
static const int64_t MS = 1000000;

// Linux sends the death signal when the *thread* that started the child ends. So this thread starts the child and
// lives until the child is closed.
typedef struct keeper {
  brim_thread *thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool started, released;  // guarded by the lock
  brim_status status;
  char *detail;
} keeper;

struct brim_child {
  brim_child_options options;
  brim_child_ends ends;
  char *name;
  pid_t pid;
  int input;                            // write end of the child's stdin; -1 = none
  int output[BRIM_CHILD_STREAM_COUNT];  // read ends; -1 = none, or ended
  int pidfd;  // readable when the child has ended; -1 if the kernel has none
  brim_child_splitter lines[BRIM_CHILD_STREAM_COUNT];
  bool ended, reaped, stopping;
  int64_t kill_at_ns;  // 0 = no SIGKILL is due
  brim_time start, sampled_at;
  int64_t baseline_bytes, sampled_bytes;  // -1 = unknown
  keeper *keeper;
  brim_child_result result;
};

static void close_fd(int *fd) {
  if (*fd >= 0) (void)close(*fd);
  *fd = -1;
}

static brim_status no_pipe(void) {
  return brim_fail(BRIM_ELIMIT, "cannot create a pipe: %s", brim_errno_text(errno));
}

// Opens a stream. This process's end is non-blocking, the child's end is not.
static brim_status open_stream(brim_child_use use, bool input, int *own_end, int *child_end) {
  int ends[2];
  *own_end = *child_end = -1;
  if (use == BRIM_CHILD_INHERIT || use == BRIM_CHILD_MERGE) return BRIM_OK;
  if (use == BRIM_CHILD_NULL) {
    *child_end = open("/dev/null", (input ? O_RDONLY : O_WRONLY) | O_CLOEXEC);
    if (*child_end >= 0) return BRIM_OK;
    bool none_left = errno == EMFILE || errno == ENFILE;
    return brim_fail(none_left ? BRIM_ELIMIT : brim_errno_status(errno), "/dev/null: %s",
                     brim_errno_text(errno));
  }
  if (pipe2(ends, O_CLOEXEC) != 0) return no_pipe();
  *own_end = ends[input ? 1 : 0];
  *child_end = ends[input ? 0 : 1];
  if (fcntl(*own_end, F_SETFL, O_NONBLOCK) != 0) return no_pipe();
  return BRIM_OK;
}

static brim_status open_streams(brim_child *c) {
  const brim_child_options *o = &c->options;
  BRIM_TRY(open_stream(o->in, true, &c->input, &c->ends.in));
  BRIM_TRY(open_stream(o->out, false, &c->output[BRIM_CHILD_OUT], &c->ends.out));
  BRIM_TRY(open_stream(o->err, false, &c->output[BRIM_CHILD_ERR], &c->ends.err));
  if (o->err != BRIM_CHILD_MERGE) return BRIM_OK;
  c->ends.err = fcntl(c->ends.out >= 0 ? c->ends.out : STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
  return c->ends.err >= 0 ? BRIM_OK : no_pipe();
}

static void keeper_main(void *ctx) {
  brim_child *c = ctx;
  keeper *k = c->keeper;
  brim_status status = brim_child_exec(&c->options, &c->ends, &c->pid);
  char *detail = status ? brim_strdup(brim_status_detail()) : NULL;
  pthread_mutex_lock(&k->lock);
  k->started = true;
  k->status = status;
  k->detail = detail;
  pthread_cond_signal(&k->changed);
  while (!k->released) pthread_cond_wait(&k->changed, &k->lock);
  pthread_mutex_unlock(&k->lock);
}

static void release_keeper(brim_child *c) {
  keeper *k = c->keeper;
  if (!k) return;
  pthread_mutex_lock(&k->lock);
  k->released = true;
  pthread_cond_signal(&k->changed);
  pthread_mutex_unlock(&k->lock);
  brim_thread_join(k->thread);
  pthread_cond_destroy(&k->changed);
  pthread_mutex_destroy(&k->lock);
  brim_free(k->detail);
  brim_free(k);
  c->keeper = NULL;
}

static brim_status start_kept(brim_child *c) {
  keeper *k = c->keeper = brim_calloc(1, sizeof *k);
  if (!k) return brim_fail(BRIM_ENOMEM, "out of memory for a child process");
  pthread_mutex_init(&k->lock, NULL);
  pthread_cond_init(&k->changed, NULL);
  BRIM_TRY(brim_thread_start(keeper_main, c, "brim-child", &k->thread));
  pthread_mutex_lock(&k->lock);
  while (!k->started) pthread_cond_wait(&k->changed, &k->lock);
  pthread_mutex_unlock(&k->lock);
  if (k->status) brim_status_set_detail(k->detail ? k->detail : brim_status_text(k->status));
  return k->status;
}

static brim_status prepare(brim_child *c) {
  const brim_child_options *o = &c->options;
  c->name = brim_strdup(o->argv[0]);
  if (!c->name) return brim_fail(BRIM_ENOMEM, "out of memory for a child process");
  BRIM_TRY(open_streams(c));
  for (int i = 0; i < BRIM_CHILD_STREAM_COUNT; i++) {
    if (c->output[i] >= 0 && !o->on_data)
      BRIM_TRY(brim_child_splitter_init(&c->lines[i], o->max_line, o->split_returns));
  }
  return BRIM_OK;
}

brim_status brim_child_start(const brim_child_options *options, brim_child **out) {
  *out = NULL;
  if (!options->argv || !options->argv[0] || !options->argv[0][0])
    return brim_fail(BRIM_EINVAL, "no command to run");
  if (options->pass_count > BRIM_CHILD_PASS || options->in == BRIM_CHILD_MERGE ||
      options->out == BRIM_CHILD_MERGE)
    return brim_fail(BRIM_EINVAL, "%s: invalid streams for a child process", options->argv[0]);
  brim_child *c = brim_calloc(1, sizeof *c);
  if (!c) return brim_fail(BRIM_ENOMEM, "out of memory for a child process");
  c->options = *options;
  c->ends = (brim_child_ends){-1, -1, -1};
  c->input = c->output[BRIM_CHILD_OUT] = c->output[BRIM_CHILD_ERR] = c->pidfd = -1;
  c->baseline_bytes = c->sampled_bytes = -1;
  c->start = c->sampled_at = brim_clock_now();
  brim_status status = prepare(c);
  if (!status)
    status = options->die_with_parent ? start_kept(c) : brim_child_exec(options, &c->ends, &c->pid);
  close_fd(&c->ends.in);
  close_fd(&c->ends.out);
  close_fd(&c->ends.err);
  if (status) {
    c->reaped = true;  // there is no process to reap
    brim_child_close(c);
    return status;
  }
  struct rusage own;
  if (getrusage(RUSAGE_SELF, &own) == 0) c->baseline_bytes = (int64_t)own.ru_maxrss * 1024;
  c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
  // the caller's lists may be freed after this call
  c->options.argv = c->options.env = c->options.env_change = NULL;
  c->options.cwd = NULL;
  c->options.pass_fds = NULL;
  *out = c;
  return BRIM_OK;
}

static brim_status take(brim_child *c, brim_child_stream stream, const char *data, size_t size) {
  const brim_child_options *o = &c->options;
  if (o->on_data) return o->on_data(o->ctx, stream, data, size);
  return brim_child_splitter_add(&c->lines[stream], o, stream, data, size);
}

// Reads at most `limit` bytes of the available output.
static brim_status drain(brim_child *c, brim_child_stream stream, size_t limit) {
  char block[BLOCK];
  int *fd = &c->output[stream];
  while (*fd >= 0 && limit) {
    ssize_t n = read(*fd, block, limit < sizeof block ? limit : sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return BRIM_OK;
    if (n <= 0) {
      close_fd(fd);
      return BRIM_OK;
    }
    limit -= (size_t)n;
    BRIM_TRY(take(c, stream, block, (size_t)n));
  }
  return BRIM_OK;
}

// Reads the output that is left when the child has ended: at most one pipe's content. Processes that the child left
// behind may write more.
static brim_status drain_last(brim_child *c) {
  for (int i = 0; i < BRIM_CHILD_STREAM_COUNT; i++) {
    if (c->output[i] >= 0) {
      int room = fcntl(c->output[i], F_GETPIPE_SZ);
      BRIM_TRY(drain(c, (brim_child_stream)i, room > 0 ? (size_t)room : 1 << 20));
    }
    close_fd(&c->output[i]);
    if (c->lines[i].data)
      BRIM_TRY(brim_child_splitter_end(&c->lines[i], &c->options, (brim_child_stream)i));
  }
  return BRIM_OK;
}

// True if the process has ended; it stays a zombie. Also true if the kernel has reaped it (SIGCHLD ignored).
static bool has_ended(const brim_child *c) {
  siginfo_t info = {0};
  if (waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return errno != EINTR;
  return info.si_pid != 0;
}

static int64_t time_ns(struct timeval t) {
  return (int64_t)t.tv_sec * 1000000000 + (int64_t)t.tv_usec * 1000;
}

static void note_usage(brim_child *c, const struct rusage *used) {
  brim_child_result *r = &c->result;
  int64_t peak = (int64_t)used->ru_maxrss * 1024;
  r->user_ns = time_ns(used->ru_utime);
  r->system_ns = time_ns(used->ru_stime);
  r->peak_exact = c->baseline_bytes >= 0 && peak > c->baseline_bytes + BASELINE_SLACK;
  r->peak_bytes = r->peak_exact ? peak : c->sampled_bytes;
}

static brim_status reap(brim_child *c) {
  struct rusage used;
  int code = 0;
  pid_t pid;
  c->result.elapsed_ns = brim_time_since_ns(c->start, brim_clock_now());
  do {
    pid = wait4(c->pid, &code, 0, &used);
  } while (pid < 0 && errno == EINTR);
  c->reaped = true;
  c->result.exit_code = -1;
  c->result.lost = pid < 0;
  if (c->result.lost)
    return brim_fail(BRIM_ECHILD, "%s: its exit code is lost: this process ignores SIGCHLD",
                     c->name);
  if (WIFSIGNALED(code)) {
    c->result.signal = WTERMSIG(code);
  } else {
    c->result.exit_code = WEXITSTATUS(code);
  }
  note_usage(c, &used);
  return BRIM_OK;
}

static void send_group(const brim_child *c, int number) {
  if (kill(-c->pid, number) != 0) (void)kill(c->pid, number);  // the child may have left its group
}

static brim_status finish(brim_child *c) {
  // kill processes of the group that outlived the child
  if (c->stopping) (void)kill(-c->pid, SIGKILL);
  brim_status status = drain_last(c), last = reap(c);
  close_fd(&c->input);
  close_fd(&c->pidfd);
  release_keeper(c);
  c->ended = true;
  return status ? status : last;
}

brim_status brim_child_poll(brim_child *c, bool *ended) {
  *ended = c->ended;
  if (c->ended) return BRIM_OK;
  int64_t now = brim_clock_now().ns;
  if (now - c->sampled_at.ns >= SAMPLE_MS * MS) (void)brim_child_sample(c);
  if (has_ended(c)) {
    *ended = true;
    return finish(c);
  }
  for (int i = 0; i < BRIM_CHILD_STREAM_COUNT; i++)
    BRIM_TRY(drain(c, (brim_child_stream)i, (size_t)BLOCKS_PER_POLL * BLOCK));
  if (c->kill_at_ns && now >= c->kill_at_ns) {
    send_group(c, SIGKILL);
    c->kill_at_ns = 0;
  }
  return BRIM_OK;
}

//---------------------------------- waiting ----------------------------------

static int64_t least(int64_t a, int64_t b) { return a < 0 ? b : b < 0 ? a : a < b ? a : b; }

size_t brim_child_fds(const brim_child *c, struct pollfd fds[BRIM_CHILD_FDS], int *limit_ms) {
  size_t n = 0;
  int64_t limit = -1;
  for (int i = 0; i < BRIM_CHILD_STREAM_COUNT; i++) {
    if (c->output[i] >= 0) fds[n++] = (struct pollfd){.fd = c->output[i], .events = POLLIN};
  }
  if (c->pidfd >= 0) fds[n++] = (struct pollfd){.fd = c->pidfd, .events = POLLIN};
  if (c->pidfd < 0 && !c->ended) limit = NO_PIDFD_POLL_MS;
  if (c->kill_at_ns) {
    int64_t left = (c->kill_at_ns - brim_clock_now().ns) / MS + 1;
    limit = least(limit, left > 0 ? left : 0);
  }
  *limit_ms = (int)(limit > MOST_POLL_MS ? MOST_POLL_MS : limit);
  return n;
}

static size_t add_fds(brim_child *const *children, size_t count, struct pollfd *fds,
                      int64_t *limit) {
  size_t n = 0;
  for (size_t i = 0; i < count; i++) {
    int own;
    if (!children[i] || children[i]->ended) continue;
    n += brim_child_fds(children[i], fds + n, &own);
    *limit = least(*limit, own);
  }
  return n;
}

void brim_child_wait_any(brim_child *const *children, size_t count, int64_t timeout_ms) {
  struct pollfd few[WAIT_ON_STACK * BRIM_CHILD_FDS], *fds = few;
  int64_t limit = timeout_ms;
  size_t running = 0;
  for (size_t i = 0; i < count; i++) running += children[i] && !children[i]->ended;
  if (!running) return;
  if (count > WAIT_ON_STACK) {
    fds = brim_alloc(count * BRIM_CHILD_FDS * sizeof *fds);
    if (!fds) {  // out of memory: poll the first children, and often
      fds = few;
      count = WAIT_ON_STACK;
      limit = least(limit, NO_PIDFD_POLL_MS);
    }
  }
  size_t n = add_fds(children, count, fds, &limit);
  (void)poll(fds, (nfds_t)n, (int)(limit > MOST_POLL_MS ? MOST_POLL_MS : limit));
  if (fds != few) brim_free(fds);
}

brim_status brim_child_wait(brim_child *c, int64_t timeout_ms, bool *ended) {
  int64_t begin = brim_clock_now().ns;
  for (;;) {
    BRIM_TRY(brim_child_poll(c, ended));
    if (*ended) return BRIM_OK;
    int64_t left = timeout_ms;
    if (timeout_ms >= 0) {
      left -= (brim_clock_now().ns - begin) / MS;
      if (left <= 0) return BRIM_OK;
    }
    brim_child_wait_any(&c, 1, left);
  }
}

//---------------------------------- signals and input ----------------------------------

static brim_status check_running(const brim_child *c) {
  if (!c->ended) return BRIM_OK;
  return brim_fail(BRIM_ESTATE, "%s: the process has ended", c->name);
}

brim_status brim_child_signal(brim_child *c, int number) {
  BRIM_TRY(check_running(c));
  if (kill(c->pid, number) == 0) return BRIM_OK;
  return brim_fail(brim_errno_status(errno), "cannot send a signal to %s: %s", c->name,
                   brim_errno_text(errno));
}

brim_status brim_child_signal_group(brim_child *c, int number) {
  BRIM_TRY(check_running(c));
  if (kill(-c->pid, number) == 0) return BRIM_OK;
  return brim_child_signal(c, number);
}

brim_status brim_child_stop(brim_child *c, int64_t grace_ms) {
  BRIM_TRY(check_running(c));
  c->stopping = true;
  c->kill_at_ns = brim_clock_now().ns + (grace_ms > 0 ? grace_ms : 0) * MS;
  send_group(c, SIGTERM);
  send_group(c, SIGCONT);  // a stopped process cannot end
  return BRIM_OK;
}

// Writes without raising SIGPIPE.
static ssize_t write_quietly(int fd, const void *data, size_t size) {
  const struct timespec at_once = {0};
  sigset_t pipe_only, before, pending;
  sigemptyset(&pipe_only);
  sigaddset(&pipe_only, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
  sigpending(&pending);
  ssize_t n;
  do {
    n = write(fd, data, size);
  } while (n < 0 && errno == EINTR);
  int why = errno;
  if (n < 0 && why == EPIPE && !sigismember(&pending, SIGPIPE)) {
    while (sigtimedwait(&pipe_only, NULL, &at_once) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  errno = why;
  return n;
}

brim_status brim_child_write(brim_child *c, const void *data, size_t size, size_t *written) {
  *written = 0;
  if (c->input < 0) return brim_fail(BRIM_EEND, "%s reads no more input", c->name);
  ssize_t n = write_quietly(c->input, data, size);
  if (n >= 0) *written = (size_t)n;
  if (n >= 0 || errno == EAGAIN) return BRIM_OK;
  int why = errno;
  close_fd(&c->input);
  if (why == EPIPE) return brim_fail(BRIM_EEND, "%s reads no more input", c->name);
  return brim_fail(brim_errno_status(why), "cannot write to %s: %s", c->name, brim_errno_text(why));
}

int brim_child_input_fd(const brim_child *c) { return c->input; }

void brim_child_close_input(brim_child *c) { close_fd(&c->input); }

//---------------------------------- results ----------------------------------

pid_t brim_child_pid(const brim_child *c) { return c->pid; }

int64_t brim_child_sample(brim_child *c) {
  char path[64], *text = NULL;
  if (c->ended) return c->sampled_bytes;
  c->sampled_at = brim_clock_now();
  snprintf(path, sizeof path, "/proc/%ld/status", (long)c->pid);
  if (brim_fs_read(path, 0, &text, NULL)) {
    brim_status_clear();
    return c->sampled_bytes;
  }
  const char *line = strstr(text, "\nVmHWM:");
  if (line) {
    int64_t bytes = strtoll(line + strlen("\nVmHWM:"), NULL, 10) * 1024;
    if (bytes > c->sampled_bytes) c->sampled_bytes = bytes;
  }
  brim_free(text);
  return c->sampled_bytes;
}

const brim_child_result *brim_child_get_result(const brim_child *c) { return &c->result; }

static void free_child(brim_child *c) {
  release_keeper(c);
  close_fd(&c->input);
  close_fd(&c->pidfd);
  for (int i = 0; i < BRIM_CHILD_STREAM_COUNT; i++) {
    close_fd(&c->output[i]);
    brim_child_splitter_deinit(&c->lines[i]);
  }
  brim_free(c->name);
  brim_free(c);
}

void brim_child_close(brim_child *c) {
  if (!c) return;
  if (!c->reaped) {
    if (c->stopping || !has_ended(c)) send_group(c, SIGKILL);
    while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR) {
    }
  }
  free_child(c);
}

void brim_child_detach(brim_child *c) {
  if (!c) return;
  if (!c->reaped) (void)waitpid(c->pid, NULL, WNOHANG);
  free_child(c);
}
