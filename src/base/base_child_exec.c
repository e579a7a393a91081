// Starts a program in a process that may have threads and a CUDA context. vfork copies no page
// tables and runs no fork handlers; until execve the child makes system calls only, on memory that
// was prepared before. (posix_spawn has no death signal.) Why it failed comes back through a pipe
// that a successful execve closes.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_child_int.h"
#include "base/base_status.h"

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

//---------------------------------- in the child ----------------------------------

// Only system calls from here to execve: the memory is the parent's.
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

// For kernels before 5.11. An entry: inode, offset (8 bytes each), length (2), type (1), name.
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

// Every source moves above the numbers it may be wanted at, then to its place.
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
    if (getppid() != l.parent) _exit(127);  // it ended before it could matter
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

//---------------------------------- in this process ----------------------------------

static const char *name_end(const char *text) {
  const char *end = strchr(text, '=');
  return end ? end : text + strlen(text);
}

// Where the variable of this "NAME=value" or "NAME" stands; `count` when it is not there.
static size_t find_name(char **env, size_t count, const char *text) {
  size_t n = (size_t)(name_end(text) - text), i = 0;
  while (i < count && (strncmp(env[i], text, n) != 0 || env[i][n] != '=')) i++;
  return i;
}

// The strings stay the caller's.
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

// One block: the pointers, then the paths. A name without a slash once per folder of PATH.
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

// Apart, so that no variable of a caller lives across vfork.
static __attribute__((noinline)) pid_t start_process(const launch *l) {
  pid_t pid = vfork();
  if (pid == 0) child_main(*l);
  return pid;
}

static pid_t start_unsignalled(const launch *l) {
  sigset_t all, before;
  sigfillset(&all);
  // A handler must not run in the child: it would change this process's memory.
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
  // Descriptors come to their end inside the child too; one that is not open is the caller's fault.
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

brim_status brim_child_exec(const brim_child_options *options, const brim_child_ends *ends,
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
