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

// The fourth field of /proc/PID/stat, behind a name that may contain anything; 0 where it has ended.
static pid_t parent_of(pid_t pid) {
  char path[64], text[512];
  int parent = 0;
  snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  text[size > 0 ? size : 0] = '\0';
  const char *at = strrchr(text, ')');
  return at && sscanf(at + 1, " %*c %d", &parent) == 1 ? (pid_t)parent : 0;
}

static bool is_copy(const brim_chaos_proc *of, const brim_chaos_proc *all, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (all[i].pid == of->parent && all[i].trains == of->trains) return true;
  }
  return false;
}

size_t brim_chaos_processes(const char *folder, brim_chaos_proc *out, size_t most) {
  size_t n = 0, kept = 0;
  DIR *dir = opendir("/proc");
  if (!dir) return 0;
  brim_chaos_proc *all = brim_calloc(BRIM_CHAOS_PROCS, sizeof *all);
  for (struct dirent *entry; all && n < BRIM_CHAOS_PROCS && (entry = readdir(dir));) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    if (read_process(entry->d_name, folder, &all[n])) n++;
  }
  closedir(dir);
  for (size_t i = 0; i < n; i++) all[i].parent = parent_of(all[i].pid);
  for (size_t i = 0; i < n && kept < most; i++) {
    if (!is_copy(&all[i], all, n)) out[kept++] = all[i];
  }
  brim_free(all);
  return kept;
}
