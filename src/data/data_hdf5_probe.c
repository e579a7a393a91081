// libhdf5 crashes on some damaged files. What it is about to do with a file is therefore done once
// in a child process first: what ends that one would have ended this one.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/data_hdf5.h"

enum { SECONDS = 60 };

// A thread of its own process now: nothing is told, written or left behind. The map's handler of
// SIGBUS stays.
static void become_child(void) {
  static const int usual[] = {SIGSEGV, SIGABRT, SIGFPE, SIGILL, SIGINT, SIGTERM, SIGHUP, SIGALRM};
  const struct rlimit none = {0, 0};
  sigset_t empty;
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) (void)signal(usual[i], SIG_DFL);
  sigemptyset(&empty);
  (void)sigprocmask(SIG_SETMASK, &empty, NULL);
  (void)setrlimit(RLIMIT_CORE, &none);
  (void)alarm(SECONDS);
  (void)brim_log_hush(true);
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) return;
  (void)dup2(null, STDOUT_FILENO);
  (void)dup2(null, STDERR_FILENO);
}

// Only what the file can have done to it: somebody who interrupts, or a slow disk, has not.
static brim_status judge(const char *path, int code, const struct rusage *used) {
  int number = WIFSIGNALED(code) ? WTERMSIG(code) : 0;
  switch (number) {
    case 0:  // a sanitizer ends a process by an exit code
      if (!WIFEXITED(code) || WEXITSTATUS(code) == 0) return BRIM_OK;
      break;
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
      return BRIM_OK;
    case SIGALRM:
      if (used->ru_utime.tv_sec < SECONDS / 2) return BRIM_OK;
      return brim_fail(
          BRIM_EPARSE,
          "%s: the HDF5 library came to no end with it in %d s: the file is damaged, or "
          "has millions of chunks and should be written again with larger ones",
          path, (int)SECONDS);
    default:
      break;
  }
  return brim_fail(BRIM_EPARSE,
                   "%s: the HDF5 library crashed on it (signal %d): the file is damaged, copy or "
                   "download it again; h5ls or h5repack may tell more",
                   path, number);
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
    become_child();
    brim_hdf5_leave(&scope);
    fn(ctx, at);
    _exit(0);
  }
  brim_hdf5_leave(&scope);
  brim_status status = BRIM_OK;
  if (pid > 0) {
    int code = 0;
    struct rusage used = {0};
    pid_t ended;
    do {
      ended = wait4(pid, &code, 0, &used);
    } while (ended < 0 && errno == EINTR);
    if (ended == pid) status = judge(at, code, &used);
  }
  (void)munmap(at, BRIM_HDF5_PROBE_ROOM);
  return status;
}
