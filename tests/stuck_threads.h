// Keeps the threads with a name from running, like a busy machine: a signal handler holds each of them until it is
// released. For tests of teams and pools, which have to continue meanwhile.
#ifndef BRIM_TESTS_STUCK_THREADS_H_
#define BRIM_TESTS_STUCK_THREADS_H_

#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static atomic_int stuck_now, stuck_release;

static void stuck_handler(int signal) {
  (void)signal;
  const struct timespec nap = {.tv_nsec = 1000000};
  atomic_fetch_add(&stuck_now, 1);
  while (!atomic_load(&stuck_release)) nanosleep(&nap, NULL);
  atomic_fetch_sub(&stuck_now, 1);
}

// Calls a function for each thread of this process whose name begins with this.
static inline int stuck_each(const char *name, void (*fn)(pid_t thread)) {
  DIR *folder = opendir("/proc/self/task");
  int count = 0;
  for (struct dirent *entry; folder && (entry = readdir(folder));) {
    char path[300], text[64] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
    FILE *file = fopen(path, "r");
    if (!file) continue;
    if (fgets(text, sizeof text, file) && strncmp(text, name, strlen(name)) == 0) {
      count++;
      if (fn) fn((pid_t)atoi(entry->d_name));
    }
    fclose(file);
  }
  if (folder) closedir(folder);
  return count;
}

static inline void stuck_signal(pid_t thread) { syscall(SYS_tgkill, getpid(), thread, SIGPROF); }

// Returns how many threads are held.
static inline int stuck_hold(const char *name) {
  struct sigaction action = {.sa_handler = stuck_handler, .sa_flags = SA_RESTART};
  sigaction(SIGPROF, &action, NULL);
  atomic_store(&stuck_release, 0);
  const int count = stuck_each(name, stuck_signal);
  const struct timespec nap = {.tv_nsec = 1000000};
  while (atomic_load(&stuck_now) < count) nanosleep(&nap, NULL);
  return count;
}

static inline void stuck_let_go(void) {
  const struct timespec nap = {.tv_nsec = 1000000};
  atomic_store(&stuck_release, 1);
  while (atomic_load(&stuck_now) > 0) nanosleep(&nap, NULL);
}

#endif  // BRIM_TESTS_STUCK_THREADS_H_
