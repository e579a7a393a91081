// `test_cost NAME COMMAND...` runs a test as ctest would. If BRIM_TEST_COSTS names a file, it adds a line: processor
// seconds of the test and of all its finished children, seconds of the clock, name.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec * 1e-6; }

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: test_cost NAME COMMAND [ARGUMENT]...\n");
    return 2;
  }
  const char *costs = getenv("BRIM_TEST_COSTS");
  if (!costs) {
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 127;
  }
  const double start = now();
  const pid_t parent = getpid(), child = fork();
  if (child < 0) {
    perror("fork");
    return 127;
  }
  if (child == 0) {
    unsetenv("BRIM_TEST_COSTS");
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // on a timeout ctest ends only this program
    if (getppid() != parent) _exit(127);
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return 127;
  }
  struct rusage used;
  getrusage(RUSAGE_CHILDREN, &used);
  char line[256];
  const int n = snprintf(line, sizeof line, "%.2f %.2f %s\n",
                         seconds(used.ru_utime) + seconds(used.ru_stime), now() - start, argv[1]);
  const int fd = open(costs, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd >= 0 && n > 0 && n < (int)sizeof line && write(fd, line, (size_t)n) != n) perror(costs);
  if (fd >= 0) close(fd);
  if (WIFSIGNALED(status)) {
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 127;
}
