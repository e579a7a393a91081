// The processes of a chaos test, by their command lines: executors and trainings below its folder.
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab/lab_chaos_int.h"

// The 12 digits behind FOLDER/exp/ or FOLDER/worker-N/exp/ in a word; false when it names no experiment.
static bool exp_of(const char *word, const char *folder, brim_chaos_proc *out) {
  const char *at = strstr(word, folder);
  int worker = 0, used = 0;
  if (!at) return false;
  at += strlen(folder);
  if (sscanf(at, "/worker-%d%n", &worker, &used) == 1) at += used;
  if (strncmp(at, "/exp/", 5) != 0 || strlen(at) < 5 + BRIM_CHAOS_ID - 1) return false;
  snprintf(out->exp, BRIM_CHAOS_ID, "%.*s", BRIM_CHAOS_ID - 1, at + 5);
  out->worker = worker;
  return true;
}

static bool read_process(const char *pid, const char *folder, brim_chaos_proc *out) {
  char path[64], text[4096];
  bool executes = false, trains = false, found = false;
  snprintf(path, sizeof path, "/proc/%.20s/cmdline", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  if (size <= 0) return false;
  text[size] = '\0';
  *out = (brim_chaos_proc){.pid = (pid_t)strtol(pid, NULL, 10)};
  for (const char *word = text; word < text + size; word += strlen(word) + 1) {
    executes = executes || strcmp(word, "execute") == 0;
    trains = trains || strcmp(word, "train") == 0;
    if (strncmp(word, "fence=", 6) == 0) out->fence = strtoll(word + 6, NULL, 10);
    found = exp_of(word, folder, out) || found;
  }
  if (!found || (!executes && !trains)) return false;
  out->trains = !executes;
  return true;
}

size_t brim_chaos_processes(const char *folder, brim_chaos_proc *out, size_t most) {
  size_t n = 0;
  DIR *dir = opendir("/proc");
  if (!dir) return 0;
  for (struct dirent *entry; n < most && (entry = readdir(dir));) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    if (read_process(entry->d_name, folder, &out[n])) n++;
  }
  closedir(dir);
  return n;
}
