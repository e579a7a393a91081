// Reads /proc/cpuinfo, /proc/meminfo and the control groups below /sys/fs/cgroup.
#include "base/base_machine.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

enum { TEXT_BYTES = 16384, PATH_BYTES = 512 };

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

// Arm cores carry a number, not a name: implementer << 12 | part.
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

//---------------------------------- memory ----------------------------------

static uint64_t kib_line(const char *text, const char *key) {
  char value[64];
  return brim_machine_find_line(text, key, value, sizeof value) ? strtoull(value, NULL, 10) * 1024
                                                                : 0;
}

// A file that is one number; 0 for "max", for v1's huge number for none, and when it is not there.
static uint64_t read_number(const char *root, const char *path) {
  char text[64];
  if (!brim_machine_read_text(root, path, text, sizeof text)) return 0;
  uint64_t value = strtoull(text, NULL, 10);
  return value < UINT64_C(4000000000000000000) ? value : 0;
}

// Version 2: the group of this process and those above it; the tightest counts.
static void read_group(const char *root, char *group, brim_machine_memory *out) {
  char path[PATH_BYTES], stat[TEXT_BYTES];
  for (;;) {
    const char *folder = strcmp(group, "/") ? group : "";
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", folder);
    uint64_t limit = read_number(root, path);
    if (limit && (!out->limit || limit < out->limit)) {
      out->limit = limit;
      snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.current", folder);
      out->used = read_number(root, path);
      snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.stat", folder);
      char value[64];
      if (brim_machine_read_text(root, path, stat, sizeof stat) &&
          brim_machine_find_line(stat, "inactive_file", value, sizeof value)) {
        uint64_t cache = strtoull(value, NULL, 10);
        out->used -= cache < out->used ? cache : out->used;
      }
    }
    char *slash = strrchr(group, '/');
    if (!slash || !group[1]) return;
    slash[slash == group] = '\0';  // the parent; "/" is the last
  }
}

// Without a file: where none may be opened (a process at its limit of open files) memory is not 0.
static void ask_kernel(brim_machine_memory *out) {
  struct sysinfo info;
  if (sysinfo(&info) != 0) return;
  out->total = (uint64_t)info.totalram * info.mem_unit;
  out->available = ((uint64_t)info.freeram + info.bufferram) * info.mem_unit;
}

void brim_machine_read_memory(const char *root, brim_machine_memory *out) {
  char text[TEXT_BYTES], group[256];
  memset(out, 0, sizeof *out);
  if (brim_machine_read_text(root, "/proc/meminfo", text, sizeof text)) {
    out->total = kib_line(text, "MemTotal");
    out->available = kib_line(text, "MemAvailable");
  } else if (!root[0]) {
    ask_kernel(out);
  }
  if (brim_machine_read_text(root, "/proc/self/cgroup", text, sizeof text) &&
      brim_machine_find_line(text, "0:", group, sizeof group)) {
    read_group(root, group, out);
  }
  if (!out->limit) {
    out->limit = read_number(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes");
    if (out->limit) out->used = read_number(root, "/sys/fs/cgroup/memory/memory.usage_in_bytes");
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
