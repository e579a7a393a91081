// The host as Linux tells it: /proc, /sys, /etc. Files are read whole into fixed buffers, nothing is allocated, and
// whatever is missing or odd stays unknown.

#include "base/base.h"

#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "monitor/monitor.h"

//---------------------------------- what follows from samples ----------------------------------
// What follows from samples alone; no file is read here.

void brim_host_sample_clear(brim_host_sample *sample) {
  sample->time_ns = 0;
  for (int i = 0; i < BRIM_HOST_METRIC_COUNT; i++) sample->value[i] = NAN;
}

brim_status brim_host_read_sample(const brim_host_provider *provider, brim_host_sample *out) {
  brim_host_sample_clear(out);
  out->time_ns = brim_clock_now().ns;
  return provider->sample(provider->ctx, out);
}

brim_host_usage brim_host_usage_between(const brim_host_sample *start,
                                        const brim_host_sample *end) {
  brim_host_usage u;
  double d[BRIM_HOST_METRIC_COUNT];
  for (int i = 0; i < BRIM_HOST_METRIC_COUNT; i++) d[i] = end->value[i] - start->value[i];
  u.seconds = (double)(end->time_ns - start->time_ns) * 1e-9;
  u.process_cpu_percent = u.seconds > 0 ? 100 * d[BRIM_HOST_PROCESS_CPU_S] / u.seconds : NAN;
  u.system_cpu_percent = d[BRIM_HOST_SYSTEM_TOTAL_S] > 0
                             ? 100 * d[BRIM_HOST_SYSTEM_BUSY_S] / d[BRIM_HOST_SYSTEM_TOTAL_S]
                             : NAN;
  u.others_cpu_percent = NAN;
  // two busy programs on the two CPUs of a job take all of it, however many CPUs the machine has
  bool allowed = d[BRIM_HOST_ALLOWED_TOTAL_S] > 0;
  double total = d[allowed ? BRIM_HOST_ALLOWED_TOTAL_S : BRIM_HOST_SYSTEM_TOTAL_S];
  double busy = d[allowed ? BRIM_HOST_ALLOWED_BUSY_S : BRIM_HOST_SYSTEM_BUSY_S];
  if (total > 0) {
    double others = busy - d[BRIM_HOST_PROCESS_CPU_S];
    u.others_cpu_percent = 100 * (others < 0 ? 0 : others) / total;
  }
  u.throttle_events = d[BRIM_HOST_CPU_THROTTLE_COUNT];
  return u;
}

//------------------------------------------- readings -------------------------------------------

enum { TEXT_BYTES = 16384, PATH_BYTES = 512, MAX_FREQUENCY_CPUS = 1024 };

// A file that is one number.
static double read_number(const char *root, const char *path) {
  char text[64];
  double value;
  if (!brim_machine_read_text(root, path, text, sizeof text)) return NAN;
  text[strcspn(text, " \n")] = '\0';
  return brim_parse_f64(text, &value) ? value : NAN;
}

static double find_kb(const char *text, const char *key) {
  char value[64];
  double number;
  if (!brim_machine_find_line(text, key, value, sizeof value)) return NAN;
  value[strcspn(value, " ")] = '\0';
  return brim_parse_f64(value, &number) ? number * 1024 : NAN;
}

//---------------------------------- facts ----------------------------------

static double or_unknown(uint64_t bytes) { return bytes ? (double)bytes : (double)NAN; }

brim_status brim_host_read_info(const char *root, brim_host_info *out) {
  char text[TEXT_BYTES];
  brim_machine_memory memory;
  brim_machine_read_memory(root, &memory);
  *out = (brim_host_info){.memory_total_bytes = or_unknown(memory.total),
                          .memory_available_bytes = or_unknown(memory.available),
                          .memory_limit_bytes = or_unknown(memory.limit)};
  brim_machine_cpu_name(root, out->cpu, sizeof out->cpu);
  out->cores = brim_cpu_count();
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  out->cores_online = online > 0 ? (int)online : 0;
  if (brim_machine_read_text(root, "/etc/os-release", text, sizeof text)) {
    brim_machine_find_line(text, "PRETTY_NAME", out->os, sizeof out->os);
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
static bool read_cpu_line(const char *text, const char *name, double hz, double *total_s,
                          double *busy_s) {
  char line[512];
  unsigned long long v[8];
  if (!brim_machine_find_line(text, name, line, sizeof line) ||
      sscanf(line, "%llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3], &v[4],
             &v[5], &v[6], &v[7]) != 8) {
    return false;
  }
  double total = 0;
  for (int i = 0; i < 8; i++) total += (double)v[i];
  *total_s = total / hz;
  *busy_s = (total - (double)v[3] - (double)v[4]) / hz;
  return true;
}

static void read_stat(const char *root, brim_host_sample *out) {
  char text[32768], name[16];
  double hz = (double)sysconf(_SC_CLK_TCK);
  if (hz <= 0 || !brim_machine_read_text(root, "/proc/stat", text, sizeof text)) return;
  if (!read_cpu_line(text, "cpu", hz, &out->value[BRIM_HOST_SYSTEM_TOTAL_S],
                     &out->value[BRIM_HOST_SYSTEM_BUSY_S])) {
    return;
  }
  cpu_set_t mask;
  double total = 0, busy = 0;
  if (sched_getaffinity(0, sizeof mask, &mask)) return;  // more CPUs than fit: all of them
  for (size_t i = 0; i < CPU_SETSIZE; i++) {
    double one_total, one_busy;
    if (!CPU_ISSET(i, &mask)) continue;
    snprintf(name, sizeof name, "cpu%zu", i);
    if (!read_cpu_line(text, name, hz, &one_total, &one_busy)) return;
    total += one_total;
    busy += one_busy;
  }
  out->value[BRIM_HOST_ALLOWED_TOTAL_S] = total;
  out->value[BRIM_HOST_ALLOWED_BUSY_S] = busy;
}

static void read_memory(const char *root, brim_host_sample *out) {
  char text[TEXT_BYTES];
  if (brim_machine_read_text(root, "/proc/self/status", text, sizeof text)) {
    out->value[BRIM_HOST_PROCESS_RSS] = find_kb(text, "VmRSS");
    out->value[BRIM_HOST_PROCESS_PEAK_RSS] = find_kb(text, "VmHWM");
  }
  if (brim_machine_read_text(root, "/proc/meminfo", text, sizeof text)) {
    out->value[BRIM_HOST_MEMORY_AVAILABLE] = find_kb(text, "MemAvailable");
  }
}

void brim_host_forget_peak(void) {
  FILE *f = fopen("/proc/self/clear_refs", "w");
  if (!f) return;
  fputs("5", f);
  fclose(f);
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
