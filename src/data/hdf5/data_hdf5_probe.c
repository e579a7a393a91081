// libhdf5 crashes on some damaged files. What it is about to do with a file is therefore done once
// in a child process first: what ends that one would have ended this one.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/hdf5/data_hdf5_lib.h"

enum { SECONDS = 60, MOST_SECONDS = 3600 };

// Of processor time: a disk may be as slow as it is.
int brim_hdf5_child_limit_s(void) {
  const char *text = getenv("BRIM_HDF5_LIMIT_S");
  long n = text ? strtol(text, NULL, 10) : 0;
  return n >= 1 && n <= MOST_SECONDS ? (int)n : SECONDS;
}

void brim_hdf5_child_limit(bool on) {
  const struct itimerval timer = {.it_value.tv_sec = on ? brim_hdf5_child_limit_s() : 0};
  (void)setitimer(ITIMER_PROF, &timer, NULL);
}

void brim_hdf5_child_begin(bool serves) {
  static const int usual[] = {SIGSEGV, SIGABRT, SIGFPE, SIGILL, SIGALRM, SIGPROF};
  static const int wishes[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  const struct rlimit none = {0, 0};
  sigset_t empty;
  // The signal comes with the end of the thread that forked, which waits for a probe only.
  if (!serves) (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) (void)signal(usual[i], SIG_DFL);
  for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++)
    (void)signal(wishes[i], serves ? SIG_IGN : SIG_DFL);
  sigemptyset(&empty);
  (void)sigprocmask(SIG_SETMASK, &empty, NULL);
  (void)setrlimit(RLIMIT_CORE, &none);
  (void)brim_log_hush(true);
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) return;
  (void)dup2(null, STDOUT_FILENO);
  (void)dup2(null, STDERR_FILENO);
}

// Only what the file can have done to it: somebody who interrupts has not.
brim_status brim_hdf5_child_judge(const char *what, int code) {
  int number = WIFSIGNALED(code) ? WTERMSIG(code) : 0;
  switch (number) {
    case 0:  // a sanitizer ends a process by an exit code
      if (!WIFEXITED(code) || WEXITSTATUS(code) == 0) return BRIM_OK;
      break;
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
    case SIGQUIT:
    case SIGALRM:
      return BRIM_OK;
    case SIGPROF:
      return brim_fail(BRIM_EPARSE,
                       "%s: the HDF5 library did not finish within %d s; the file is damaged, or "
                       "has millions of chunks and needs larger ones",
                       what, brim_hdf5_child_limit_s());
    default:
      break;
  }
  return brim_fail(BRIM_EPARSE,
                   "%s: the HDF5 library crashed (signal %d): the file is damaged; copy or "
                   "download it again, or inspect it with h5ls or h5repack",
                   what, number);
}

brim_status brim_hdf5_probe(const char *path, brim_hdf5_probe_fn fn, void *ctx) {
  char *at =
      mmap(NULL, BRIM_HDF5_PROBE_ROOM, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return BRIM_OK;  // then without
  snprintf(at, BRIM_HDF5_PROBE_ROOM, "%s", path);
  brim_hdf5_scope scope;
  brim_hdf5_enter(&scope);  // so that no other thread is inside the library
  pid_t pid = fork();
  if (pid == 0) {
    brim_hdf5_child_begin(false);
    brim_hdf5_child_limit(true);
    brim_hdf5_leave(&scope);
    fn(ctx, at);
    _exit(0);
  }
  brim_hdf5_leave(&scope);
  brim_status status = BRIM_OK;
  if (pid > 0) {
    int code = 0;
    pid_t ended;
    do {
      ended = waitpid(pid, &code, 0);
    } while (ended < 0 && errno == EINTR);
    if (ended == pid) status = brim_hdf5_child_judge(at, code);
  }
  (void)munmap(at, BRIM_HDF5_PROBE_ROOM);
  return status;
}
