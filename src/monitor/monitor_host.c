// The host as Linux tells it: /proc, /sys, /etc. Files are read whole into fixed buffers, nothing
// is allocated, and whatever is missing or odd stays unknown.
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/base.h"
#include "monitor/monitor.h"

enum { TEXT_BYTES = 16384, PATH_BYTES = 512, MAX_FREQUENCY_CPUS = 1024 };

// The beginning of root + path, NUL-terminated; false when it cannot be read.
static bool read_text(const char *root, const char *path, char *out, size_t size) {
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

// A file that is one number.
static double read_number(const char *root, const char *path) {
  char text[64];
  double value;
  if (!read_text(root, path, text, sizeof text)) return NAN;
  text[strcspn(text, " \n")] = '\0';
  return brim_parse_f64(text, &value) ? value : NAN;
}

// The text after "key" and any of " \t:=" on a line that begins with key; false when absent.
static bool find_line(const char *text, const char *key, char *out, size_t size) {
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

static double find_kb(const char *text, const char *key) {
  char value[64];
  double number;
  if (!find_line(text, key, value, sizeof value)) return NAN;
  value[strcspn(value, " ")] = '\0';
  return brim_parse_f64(value, &number) ? number * 1024 : NAN;
}

//---------------------------------- facts ----------------------------------

// Arm cores do not carry their name; implementer 0x41 and these parts are Arm's own list.
static const struct {
  const char *part, *name;
} arm_parts[] = {
    {"0xd03", "Cortex-A53"},  {"0xd07", "Cortex-A57"},  {"0xd08", "Cortex-A72"},
    {"0xd0b", "Cortex-A76"},  {"0xd0c", "Neoverse-N1"}, {"0xd40", "Neoverse-V1"},
    {"0xd41", "Cortex-A78"},  {"0xd49", "Neoverse-N2"}, {"0xd4f", "Neoverse-V2"},
    {"0xd84", "Neoverse-V3"}, {"0xd8e", "Neoverse-N3"},
};

static void cpu_name(const char *root, char *out, size_t size) {
  char text[TEXT_BYTES], implementer[32], part[32];
  if (!read_text(root, "/proc/cpuinfo", text, sizeof text)) return;
  if (find_line(text, "model name", out, size) || find_line(text, "Model", out, size)) return;
  if (!find_line(text, "CPU implementer", implementer, sizeof implementer) ||
      !find_line(text, "CPU part", part, sizeof part)) {
    return;
  }
  for (size_t i = 0; i < sizeof arm_parts / sizeof arm_parts[0]; i++) {
    if (strcmp(implementer, "0x41") == 0 && strcmp(part, arm_parts[i].part) == 0) {
      snprintf(out, size, "%s", arm_parts[i].name);
      return;
    }
  }
  snprintf(out, size, "Arm implementer %s part %s", implementer, part);
}

// The smallest limit of the process's control group and those above it (v2), or the v1 file.
static double memory_limit(const char *root) {
  char text[4096], path[PATH_BYTES], group[256];
  double limit = NAN;
  if (read_text(root, "/proc/self/cgroup", text, sizeof text) &&
      find_line(text, "0:", group, sizeof group)) {
    for (;;) {
      snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", strcmp(group, "/") ? group : "");
      limit = fmin(limit, read_number(root, path));  // "max" is not a number
      char *slash = strrchr(group, '/');
      if (!slash || !group[1]) break;
      slash[slash == group] = '\0';  // the parent; "/" is the last
    }
  }
  if (isnan(limit)) limit = read_number(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes");
  return limit < 4e18 ? limit : NAN;  // v1 writes a huge number for none
}

brim_status brim_host_read_info(const char *root, brim_host_info *out) {
  char text[TEXT_BYTES];
  *out = (brim_host_info){.memory_total_bytes = NAN,
                          .memory_available_bytes = NAN,
                          .memory_limit_bytes = memory_limit(root)};
  cpu_name(root, out->cpu, sizeof out->cpu);
  out->cores = brim_cpu_count();
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  out->cores_online = online > 0 ? (int)online : 0;
  if (read_text(root, "/proc/meminfo", text, sizeof text)) {
    out->memory_total_bytes = find_kb(text, "MemTotal");
    out->memory_available_bytes = find_kb(text, "MemAvailable");
  }
  if (read_text(root, "/etc/os-release", text, sizeof text)) {
    find_line(text, "PRETTY_NAME", out->os, sizeof out->os);
  }
  struct utsname name;
  if (uname(&name) == 0) {
    snprintf(out->hostname, sizeof out->hostname, "%.63s", name.nodename);
    snprintf(out->kernel, sizeof out->kernel, "%.30s %.60s %.30s", name.sysname, name.release,
             name.machine);
  }
  return BRIM_OK;
}

brim_status brim_host_get_info(brim_host_info *out) { return brim_host_read_info("", out); }

//---------------------------------- samples ----------------------------------

// "cpu user nice system idle iowait irq softirq steal ...": idle and iowait are not busy.
static void read_stat(const char *root, brim_host_sample *out) {
  char text[1024], line[512];
  unsigned long long v[8];
  double hz = (double)sysconf(_SC_CLK_TCK);
  if (hz <= 0 || !read_text(root, "/proc/stat", text, sizeof text) ||
      !find_line(text, "cpu", line, sizeof line) ||
      sscanf(line, "%llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3], &v[4],
             &v[5], &v[6], &v[7]) != 8) {
    return;
  }
  double total = 0;
  for (int i = 0; i < 8; i++) total += (double)v[i];
  out->value[BRIM_HOST_SYSTEM_TOTAL_S] = total / hz;
  out->value[BRIM_HOST_SYSTEM_BUSY_S] = (total - (double)v[3] - (double)v[4]) / hz;
}

static void read_memory(const char *root, brim_host_sample *out) {
  char text[TEXT_BYTES];
  if (read_text(root, "/proc/self/status", text, sizeof text)) {
    out->value[BRIM_HOST_PROCESS_RSS] = find_kb(text, "VmRSS");
    out->value[BRIM_HOST_PROCESS_PEAK_RSS] = find_kb(text, "VmHWM");
  }
  if (read_text(root, "/proc/meminfo", text, sizeof text)) {
    out->value[BRIM_HOST_MEMORY_AVAILABLE] = find_kb(text, "MemAvailable");
  }
}

static void read_process(brim_host_sample *out) {
  struct rusage usage;
  if (getrusage(RUSAGE_SELF, &usage)) return;
  out->value[BRIM_HOST_PROCESS_CPU_S] =
      (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec * 1e-6 +
      (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec * 1e-6;
}

static double cpu_number(const char *root, int cpu, const char *file) {
  char path[PATH_BYTES];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/%s", cpu, file);
  return read_number(root, path);
}

// Mean frequency and its bound over the cores that tell; throttle counts added up. Virtual machines
// mostly tell nothing: then all three stay unknown.
static void read_frequency(const char *root, brim_host_sample *out) {
  double now = 0, max = 0, throttled = NAN;
  int cores = 0;
  for (int cpu = 0; cpu < MAX_FREQUENCY_CPUS; cpu++) {
    double f = cpu_number(root, cpu, "cpufreq/scaling_cur_freq");
    double m = cpu_number(root, cpu, "cpufreq/cpuinfo_max_freq");
    double t = cpu_number(root, cpu, "thermal_throttle/core_throttle_count");
    if (!isnan(t)) throttled = (isnan(throttled) ? 0 : throttled) + t;
    if (isnan(f) && isnan(t)) break;
    if (isnan(f) || isnan(m)) continue;
    now += f;
    max += m;
    cores++;
  }
  out->value[BRIM_HOST_CPU_THROTTLE_COUNT] = throttled;
  if (cores == 0) return;
  out->value[BRIM_HOST_CPU_FREQUENCY] = now / cores * 1e3;  // the files are in kHz
  out->value[BRIM_HOST_CPU_MAX_FREQUENCY] = max / cores * 1e3;
}

static brim_status system_sample(void *ctx, brim_host_sample *out) {
  const char *root = ctx;
  read_process(out);
  read_memory(root, out);
  read_stat(root, out);
  read_frequency(root, out);
  return BRIM_OK;
}

brim_host_provider brim_host_provider_system(const char *root) {
  brim_host_provider p = {.name = "host", .ctx = (void *)(uintptr_t)root, .sample = system_sample};
  return p;
}
