// The machine as Linux describes it: processors, quotas and memory of control groups, cores for the workers of a
// team. This file calls nothing else of base and does not allocate, so that the cpu plug-in can compile it too.
#include "base/base_machine.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

enum { TEXT_BYTES = 16384, PATH_BYTES = 512 };

//---------------------------------- reading files ----------------------------------

bool brim_machine_read_text(const char *root, const char *path, char *out, size_t size) {
  char full[PATH_BYTES];
  int n = snprintf(full, sizeof full, "%s%s", root, path);
  if (n < 0 || (size_t)n >= sizeof full) return false;
  int fd = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  size_t used = 0;
  ssize_t got;
  while (used + 1 < size && (got = read(fd, out + used, size - 1 - used)) > 0) {
    used += (size_t)got;
  }
  close(fd);
  out[used] = '\0';
  return used > 0;
}

bool brim_machine_find_line(const char *text, const char *key, char *out, size_t size) {
  size_t n = strlen(key);
  for (const char *p = text; p && *p; p = strchr(p, '\n'), p = p ? p + 1 : NULL) {
    if (strncmp(p, key, n) != 0 || !p[n] || !strchr(" \t:=", p[n])) continue;
    p += n + strspn(p + n, " \t:=");
    size_t length = strcspn(p, "\n");
    if (length >= 2 && p[0] == '"' && p[length - 1] == '"') p++, length -= 2;
    if (length >= size) length = size - 1;
    memcpy(out, p, length);
    out[length] = '\0';
    return true;
  }
  return false;
}

//---------------------------------- processor ----------------------------------

// Arm cores have a number instead of a name: implementer << 12 | part.
static const struct {
  unsigned long id;
  const char *name;
} arm_cores[] = {
    {0x41d03, "Cortex-A53"},  {0x41d05, "Cortex-A55"},  {0x41d07, "Cortex-A57"},
    {0x41d08, "Cortex-A72"},  {0x41d0b, "Cortex-A76"},  {0x41d0c, "Neoverse-N1"},
    {0x41d40, "Neoverse-V1"}, {0x41d41, "Cortex-A78"},  {0x41d44, "Cortex-X1"},
    {0x41d49, "Neoverse-N2"}, {0x41d4f, "Neoverse-V2"}, {0x41d83, "Neoverse-V3AE"},
    {0x41d84, "Neoverse-V3"}, {0x41d8e, "Neoverse-N3"}, {0x4e004, "NVIDIA Carmel"},
    {0xc0ac3, "Ampere-1"},    {0xc0ac4, "Ampere-1a"},
};

void brim_machine_cpu_name(const char *root, char *out, size_t size) {
  char text[TEXT_BYTES], implementer[32], part[32];
  out[0] = '\0';
  if (!brim_machine_read_text(root, "/proc/cpuinfo", text, sizeof text)) return;
  if (brim_machine_find_line(text, "model name", out, size)) return;
  if (brim_machine_find_line(text, "Model", out, size)) return;
  if (!brim_machine_find_line(text, "CPU implementer", implementer, sizeof implementer) ||
      !brim_machine_find_line(text, "CPU part", part, sizeof part)) {
    return;
  }
  unsigned long id = strtoul(implementer, NULL, 0) << 12 | strtoul(part, NULL, 0);
  for (size_t i = 0; i < sizeof arm_cores / sizeof *arm_cores; i++) {
    if (arm_cores[i].id == id) {
      snprintf(out, size, "%s", arm_cores[i].name);
      return;
    }
  }
  snprintf(out, size, "Arm implementer %s part %s", implementer, part);
}

bool brim_machine_cpu_flag(const char *root, const char *flag) {
  char text[TEXT_BYTES], flags[TEXT_BYTES];
  if (!brim_machine_read_text(root, "/proc/cpuinfo", text, sizeof text)) return false;
  if (!brim_machine_find_line(text, "flags", flags, sizeof flags)) return false;
  size_t n = strlen(flag);
  for (const char *p = flags; (p = strstr(p, flag)); p += n) {
    bool begins = p == flags || p[-1] == ' ';
    if (begins && (p[n] == ' ' || p[n] == '\0')) return true;
  }
  return false;
}

//---------------------------------- CPU quotas ----------------------------------

const char *brim_cpu_root(void) {
  const char *root = getenv("BRIM_MACHINE_ROOT");
  return root ? root : "";
}

// Returns the smaller of two quotas; 0 = none.
static double smaller(double a, double b) { return a > 0 && (b <= 0 || a < b) ? a : b; }

static double ratio(double quota, double period) {
  return quota > 0 && period > 0 ? quota / period : 0;
}

// Reads a quota such as "50000 100000", or "max 100000".
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

// Reads a value of one control group into `out`. `mount` NULL = version 2.
typedef void (*group_fn)(const char *root, const char *mount, const char *group, void *out);

// Visits the group and all groups above it. In a container the path may be the host's, of which only the root is
// visible; so the root is always visited.
static void read_tree(const char *root, const char *mount, char *group, group_fn fn, void *out) {
  for (;;) {
    fn(root, mount, strcmp(group, "/") ? group : "", out);
    char *slash = strrchr(group, '/');
    if (!slash || !group[1]) return;
    slash[slash == group] = '\0';  // cut to the parent; "/" is the last
  }
}

// True if `word` is one of the names in "cpu,cpuacct".
static bool contains_name(const char *names, size_t n, const char *word) {
  size_t length = strlen(word);
  for (size_t i = 0; i < n;) {
    size_t end = i;
    while (end < n && names[end] != ',') end++;
    if (end - i == length && strncmp(names + i, word, length) == 0) return true;
    i = end + 1;
  }
  return false;
}

// Parses a line of /proc/self/cgroup, "0::/a/b" or "4:cpu,cpuacct:/a/b", and visits its groups.
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
  if (!contains_name(names, length, "cpu")) return;
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

// Returns the number after `key` at the start of a line; NaN if no line has the key.
static double number_of(const char *text, const char *key) {
  size_t n = strlen(key);
  for (const char *p = text; p && *p; p = strchr(p, '\n'), p += p != NULL) {
    if (strncmp(p, key, n) == 0 && p[n] == ' ') return strtod(p + n, NULL);
  }
  return NAN;
}

// Keeps the statistics of the group that was throttled longest.
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
  long n = sysconf(_SC_NPROCESSORS_ONLN);  // the machine has more cores than a cpu_set_t holds
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

//---------------------------------- memory ----------------------------------

static uint64_t kib_line(const char *text, const char *key) {
  char value[64];
  return brim_machine_find_line(text, key, value, sizeof value) ? strtoull(value, NULL, 10) * 1024
                                                                : 0;
}

// Returns the number in a file; 0 if the file is missing, for "max", and for the huge number that means no limit in
// version 1.
static uint64_t read_bytes(const char *root, const char *path) {
  char text[64];
  if (!brim_machine_read_text(root, path, text, sizeof text)) return 0;
  uint64_t value = strtoull(text, NULL, 10);
  return value < UINT64_C(4000000000000000000) ? value : 0;
}

// Version 2: finds the smallest limit of the group and the groups above it. `out` is a brim_machine_memory.
static void read_memory_limit(const char *root, const char *mount, const char *group, void *out) {
  brim_machine_memory *memory = (brim_machine_memory *)out;
  char path[PATH_BYTES], stat[TEXT_BYTES], value[64];
  (void)mount;
  snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", group);
  const uint64_t limit = read_bytes(root, path);
  if (!limit || (memory->limit && limit >= memory->limit)) return;
  memory->limit = limit;
  snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.current", group);
  memory->used = read_bytes(root, path);
  snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.stat", group);
  if (brim_machine_read_text(root, path, stat, sizeof stat) &&
      brim_machine_find_line(stat, "inactive_file", value, sizeof value)) {
    uint64_t cache = strtoull(value, NULL, 10);
    memory->used -= cache < memory->used ? cache : memory->used;
  }
}

void brim_machine_read_memory(const char *root, brim_machine_memory *out) {
  char text[TEXT_BYTES], group[256];
  memset(out, 0, sizeof *out);
  if (brim_machine_read_text(root, "/proc/meminfo", text, sizeof text)) {
    out->total = kib_line(text, "MemTotal");
    out->available = kib_line(text, "MemAvailable");
  } else if (!root[0]) {
    // /proc was not readable: the process may be at its limit of open files
    struct sysinfo info;
    if (sysinfo(&info) == 0) {
      out->total = (uint64_t)info.totalram * info.mem_unit;
      out->available = ((uint64_t)info.freeram + info.bufferram) * info.mem_unit;
    }
  }
  if (brim_machine_read_text(root, "/proc/self/cgroup", text, sizeof text) &&
      brim_machine_find_line(text, "0:", group, sizeof group)) {
    read_tree(root, NULL, group, read_memory_limit, out);
  }
  if (!out->limit) {
    out->limit = read_bytes(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes");
    if (out->limit) out->used = read_bytes(root, "/sys/fs/cgroup/memory/memory.usage_in_bytes");
  }
}

void brim_machine_free_memory(const char *root, uint64_t *free_bytes, uint64_t *total_bytes) {
  brim_machine_memory m;
  brim_machine_read_memory(root, &m);
  *free_bytes = m.available;
  *total_bytes = m.total;
  if (!m.limit) return;
  uint64_t left = m.limit > m.used ? m.limit - m.used : 0;
  if (left < *free_bytes) *free_bytes = left;
  if (m.limit < *total_bytes) *total_bytes = m.limit;
}

//---------------------------------- cores for workers ----------------------------------

enum { LOOK_EVERY = 256 };  // calls between two reads of the mask, each a system call

// True if the user places OpenMP's threads; brim then leaves them alone.
static bool user_places(void) {
  static const char *const names[] = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (getenv(names[i])) return true;
  }
  return false;
}

void brim_cores_init(brim_cores *p) { *p = (brim_cores){.cpu = -1, .off = user_places()}; }

void brim_cores_share(const cpu_set_t *mask, int cpu, int index, int count, cpu_set_t *out) {
  int cores = CPU_COUNT(mask) - (CPU_ISSET((size_t)cpu, mask) ? 1 : 0);
  *out = *mask;
  if (count < 1 || cores < count) return;
  const int64_t begin = (int64_t)cores * index / count, end = (int64_t)cores * (index + 1) / count;
  CPU_ZERO(out);
  for (int i = 0, at = 0; i < CPU_SETSIZE; i++) {
    if (!CPU_ISSET((size_t)i, mask) || i == cpu) continue;
    if (at >= begin && at < end) CPU_SET((size_t)i, out);
    at++;
  }
}

void brim_cores_place(brim_cores *p, const pid_t *workers, int count) {
  if (p->off || count < 1) return;
  const int cpu = sched_getcpu();
  if (cpu == p->cpu && count == p->count && --p->left > 0) return;
  cpu_set_t mask;
  if (cpu < 0 || cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof mask, &mask)) {
    p->off = true;  // the machine has more cores than a cpu_set_t holds
    return;
  }
  p->left = LOOK_EVERY;
  if (cpu == p->cpu && count == p->count && CPU_EQUAL(&mask, &p->mask)) return;
  p->cpu = cpu;
  p->count = count;
  p->mask = mask;
  for (int i = 0; i < count; i++) {
    cpu_set_t share;
    const pid_t worker = __atomic_load_n(&workers[i], __ATOMIC_RELAXED);
    if (worker <= 0) {
      p->cpu = -1;  // not started yet: the next call places it
      continue;
    }
    brim_cores_share(&mask, cpu, i, count, &share);
    // May fail for a worker that has ended or a core that was taken away.
    (void)sched_setaffinity(worker, sizeof share, &share);
  }
}

//---------------------------------- hidden CPU features ----------------------------------

enum {
  WITH_AVX512 = BRIM_CPU_MASK_AVX512 | BRIM_CPU_MASK_BF16 | BRIM_CPU_MASK_AMX,
};

static const struct {
  const char *name;
  unsigned bits;
} features[] = {
    {"bf16", BRIM_CPU_MASK_BF16 | BRIM_CPU_MASK_AMX},
    {"amx", BRIM_CPU_MASK_AMX},
    {"avx512", WITH_AVX512},
    {"avx2", WITH_AVX512 | BRIM_CPU_MASK_AVX2},
    {"neon", BRIM_CPU_MASK_NEON | BRIM_CPU_MASK_BF16 | BRIM_CPU_MASK_AMX},
};

bool brim_cpu_mask_parse(const char *text, unsigned *mask) {
  *mask = 0;
  bool known = true;
  for (const char *p = text ? text : ""; *(p += strspn(p, ", ")); p += strcspn(p, ", ")) {
    size_t n = strcspn(p, ", ");
    unsigned bits = 0;
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
      if (strlen(features[i].name) == n && memcmp(features[i].name, p, n) == 0) {
        bits = features[i].bits;
      }
    }
    *mask |= bits;
    known = known && bits != 0;
  }
  return known;
}

unsigned brim_cpu_mask(void) {
  unsigned mask;
  (void)brim_cpu_mask_parse(getenv("BRIM_CPU_MASK"), &mask);
  return mask;
}
