// Reads the scheduler's affinity and the CPU quotas of control groups, of both versions.
#include "base/base_cpu.h"

#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base_machine.h"

enum { TEXT_BYTES = 4096, PATH_BYTES = 512 };

const char *brim_cpu_root(void) {
  const char *root = getenv("BRIM_MACHINE_ROOT");
  return root ? root : "";
}

// The smaller of two quotas, where 0 is none.
static double smaller(double a, double b) { return a > 0 && (b <= 0 || a < b) ? a : b; }

static double ratio(double quota, double period) {
  return quota > 0 && period > 0 ? quota / period : 0;
}

// "50000 100000", or "max 100000".
static double read_v2(const char *root, const char *group) {
  char path[PATH_BYTES], text[128];
  snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
  double quota = 0, period = 0;
  if (!brim_machine_read_text(root, path, text, sizeof text)) return 0;
  return sscanf(text, "%lf %lf", &quota, &period) == 2 ? ratio(quota, period) : 0;
}

static double read_number(const char *root, const char *mount, const char *group,
                          const char *name) {
  char path[PATH_BYTES], text[64];
  snprintf(path, sizeof path, "/sys/fs/cgroup/%s%s/%s", mount, group, name);
  return brim_machine_read_text(root, path, text, sizeof text) ? strtod(text, NULL) : 0;
}

static double read_v1(const char *root, const char *mount, const char *group) {
  return ratio(read_number(root, mount, group, "cpu.cfs_quota_us"),  // -1 = none
               read_number(root, mount, group, "cpu.cfs_period_us"));
}

// What is asked of a group: its quota, or what that has cost. `mount` NULL = version 2.
typedef void (*group_fn)(const char *root, const char *mount, const char *group, void *out);

// The group and all above it. Inside a container the group's path may be the host's, of which only
// the root is to be seen: it is always asked.
static void read_tree(const char *root, const char *mount, char *group, group_fn fn, void *out) {
  for (;;) {
    fn(root, mount, strcmp(group, "/") ? group : "", out);
    char *slash = strrchr(group, '/');
    if (!slash || !group[1]) return;
    slash[slash == group] = '\0';  // the parent; "/" is the last
  }
}

// Is `word` one of the names in "cpu,cpuacct"?
static bool lists(const char *names, size_t n, const char *word) {
  size_t length = strlen(word);
  for (size_t i = 0; i < n;) {
    size_t end = i;
    while (end < n && names[end] != ',') end++;
    if (end - i == length && strncmp(names + i, word, length) == 0) return true;
    i = end + 1;
  }
  return false;
}

// A line of /proc/self/cgroup: "0::/a/b", "4:cpu,cpuacct:/a/b".
static void read_line(const char *root, const char *line, size_t n, group_fn fn, void *out) {
  static const char *const mounts[] = {"cpu", "cpu,cpuacct", "cpuacct,cpu"};
  const char *names = memchr(line, ':', n);
  const char *path = names ? memchr(names + 1, ':', (size_t)(line + n - names - 1)) : NULL;
  if (!path) return;
  names++;
  size_t length = (size_t)(path - names), left = (size_t)(line + n - path) - 1;
  char group[256];
  if (left >= sizeof group) return;
  memcpy(group, path + 1, left);
  group[left] = '\0';
  if (length == 0) {
    read_tree(root, NULL, group, fn, out);
    return;
  }
  if (!lists(names, length, "cpu")) return;
  for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) {
    char copy[256];
    memcpy(copy, group, sizeof copy);
    read_tree(root, mounts[i], copy, fn, out);
  }
}

static void read_groups(const char *root, group_fn fn, void *out) {
  char text[TEXT_BYTES];
  if (!brim_machine_read_text(root, "/proc/self/cgroup", text, sizeof text)) return;
  for (const char *p = text; *p;) {
    size_t n = strcspn(p, "\n");
    read_line(root, p, n, fn, out);
    p += n + (p[n] == '\n');
  }
}

static void read_quota(const char *root, const char *mount, const char *group, void *out) {
  double *quota = (double *)out;
  *quota = smaller(mount ? read_v1(root, mount, group) : read_v2(root, group), *quota);
}

double brim_cpu_quota(const char *root) {
  double quota = 0;
  read_groups(root, read_quota, &quota);
  return quota;
}

//---------------------------------- what a quota has cost ----------------------------------

// The number behind `key` at the start of a line; NaN where there is none.
static double number_of(const char *text, const char *key) {
  size_t n = strlen(key);
  for (const char *p = text; p && *p; p = strchr(p, '\n'), p += p != NULL) {
    if (strncmp(p, key, n) == 0 && p[n] == ' ') return strtod(p + n, NULL);
  }
  return NAN;
}

// Of the groups up the tree, the one that held its threads back the longest.
static void read_stat(const char *root, const char *mount, const char *group, void *out) {
  brim_cpu_stat *best = (brim_cpu_stat *)out;
  char path[PATH_BYTES], text[1024];
  snprintf(path, sizeof path, "/sys/fs/cgroup%s%s%s/cpu.stat", mount ? "/" : "", mount ? mount : "",
           group);
  if (!brim_machine_read_text(root, path, text, sizeof text)) return;
  brim_cpu_stat s = {.throttled_s = 1e-6 * number_of(text, "throttled_usec"),
                     .used_s = 1e-6 * number_of(text, "usage_usec")};
  if (mount) s.throttled_s = 1e-9 * number_of(text, "throttled_time");
  if (isnan(s.throttled_s) || s.throttled_s < best->throttled_s) return;
  *best = s;
}

brim_cpu_stat brim_cpu_read_stat(const char *root) {
  brim_cpu_stat stat = {NAN, NAN};
  read_groups(root, read_stat, &stat);
  return stat;
}

int brim_cpu_cores(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    int n = CPU_COUNT(&set);
    if (n > 0) return n;
  }
  long n = sysconf(_SC_NPROCESSORS_ONLN);  // more cores than a cpu_set_t holds
  return n > 0 ? (int)n : 1;
}

int brim_cpu_threads(const char *root) {
  int cores = brim_cpu_cores();
  double quota = brim_cpu_quota(root);
  return quota > 0 && quota < cores ? (int)ceil(quota) : cores;
}

void brim_cpu_describe(const char *root, char *out, size_t size) {
  int cores = brim_cpu_cores();
  double quota = brim_cpu_quota(root);
  int n = snprintf(out, size, cores == 1 ? "%d core" : "%d cores", cores);
  if (quota > 0 && quota < cores && n > 0 && (size_t)n < size) {
    snprintf(out + n, size - (size_t)n, ", quota %.3g", quota);
  }
}
