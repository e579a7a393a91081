// The host, from /proc, /sys and /etc: facts, samples of this process and machine, and the live view's host. Files are
// read whole into fixed buffers and nothing is allocated. A value that is missing or odd is unknown.
#include <ctype.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/base_machine.h"
#include "monitor/monitor_int.h"

//---------------------------------- usage between samples ----------------------------------

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
  // relate it to the CPUs this process may use, not to all of the machine
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

//---------------------------------- reading files ----------------------------------

enum { TEXT_BYTES = 32768, MAX_FREQUENCY_CPUS = 1024, SECTOR_BYTES = 512 };

// Reads a file that consists of one number.
static double read_number(const char *root, const char *path) {
  char text[64];
  double value;
  if (!brim_machine_read_text(root, path, text, sizeof text)) return NAN;
  text[strcspn(text, " \n")] = '\0';
  return brim_parse_f64(text, &value) ? value : NAN;
}

// Reads "KEY: 123 kB", in bytes.
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

// "user nice system idle iowait irq softirq steal guest guest_nice"; user includes guest.
static bool read_ticks(const char *text, double *total, double *idle, double *iowait) {
  unsigned long long v[8];
  if (sscanf(text, "%llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3], &v[4],
             &v[5], &v[6], &v[7]) != 8) {
    return false;
  }
  *total = 0;
  for (int i = 0; i < 8; i++) *total += (double)v[i];
  *idle = (double)v[3];
  *iowait = (double)v[4];
  return true;
}

static bool read_cpu_line(const char *text, const char *name, double hz, double *total_s,
                          double *busy_s) {
  char line[512];
  double total, idle, iowait;
  if (!brim_machine_find_line(text, name, line, sizeof line) ||
      !read_ticks(line, &total, &idle, &iowait)) {
    return false;
  }
  *total_s = total / hz;
  *busy_s = (total - idle - iowait) / hz;
  return true;
}

static void sample_cpu(const char *root, brim_host_sample *out) {
  char text[TEXT_BYTES], name[16];
  double hz = (double)sysconf(_SC_CLK_TCK);
  if (hz <= 0 || !brim_machine_read_text(root, "/proc/stat", text, sizeof text)) return;
  if (!read_cpu_line(text, "cpu", hz, &out->value[BRIM_HOST_SYSTEM_TOTAL_S],
                     &out->value[BRIM_HOST_SYSTEM_BUSY_S])) {
    return;
  }
  cpu_set_t mask;
  double total = 0, busy = 0;
  if (sched_getaffinity(0, sizeof mask, &mask)) return;  // more CPUs than the mask holds
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

static void sample_memory(const char *root, brim_host_sample *out) {
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

static void sample_process(brim_host_sample *out) {
  struct rusage usage;
  if (getrusage(RUSAGE_SELF, &usage)) return;
  out->value[BRIM_HOST_PROCESS_CPU_S] =
      (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec * 1e-6 +
      (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec * 1e-6;
}

static double cpu_number(const char *root, int cpu, const char *file) {
  char path[128];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/%s", cpu, file);
  return read_number(root, path);
}

// Mean frequency, mean maximum and summed throttle counts of the cores that have them. Most virtual machines have none.
static void sample_frequency(const char *root, brim_host_sample *out) {
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
  sample_process(out);
  sample_memory(root, out);
  sample_cpu(root, out);
  sample_frequency(root, out);
  return BRIM_OK;
}

brim_host_provider brim_host_provider_system(const char *root) {
  brim_host_provider p = {.name = "host", .ctx = (void *)(uintptr_t)root, .sample = system_sample};
  return p;
}

//---------------------------------- containers ----------------------------------

static size_t hex_digits(const char *text) {
  size_t n = 0;
  while (isxdigit((unsigned char)text[n])) n++;
  return n;
}

// The container id: the first run of 32 or more hex digits ("/ID", "docker-ID.scope").
static const char *find_id(const char *path) {
  for (const char *c = path; *c; c++) {
    if (c > path && isxdigit((unsigned char)c[-1])) continue;
    if (hex_digits(c) >= 32) return c;
  }
  return NULL;
}

// Writes "WORD NAME", NAME being the text after `mark` up to the next '/' or the end of the line.
static bool put_named(const char *cgroup, const char *mark, const char *word, char *out,
                      size_t size) {
  const char *at = strstr(cgroup, mark);
  if (!at) return false;
  at += strlen(mark);
  size_t n = strcspn(at, "/\n");
  if (n == 0) return false;
  snprintf(out, size, "%s %.*s", word, (int)(n < 40 ? n : 40), at);
  return true;
}

void brim_top_container(const char *cgroup, char *out, size_t size) {
  static const struct {
    const char *mark, *word;
  } rows[] = {{"kubepods", "kubernetes"}, {"libpod", "podman"},         {"docker", "docker"},
              {"crio-", "cri-o"},         {"containerd", "containerd"}, {"buildkit", "buildkit"}};
  out[0] = '\0';
  const char *id = find_id(cgroup);
  for (size_t i = 0; id && i < sizeof rows / sizeof *rows; i++) {
    if (!strstr(cgroup, rows[i].mark)) continue;
    snprintf(out, size, "%s %.12s", rows[i].word, id);
    return;
  }
  if (put_named(cgroup, "/lxc.payload.", "lxc", out, size)) return;
  if (put_named(cgroup, "/lxc/", "lxc", out, size)) return;
  put_named(cgroup, "/job_", "slurm job", out, size);
}

// The kind of container that this process runs in.
static void read_container(const char *root, char *out, size_t size) {
  static const struct {
    const char *path, *word;
  } marks[] = {{"/.dockerenv", "docker"}, {"/run/.containerenv", "podman"}};
  char path[BRIM_TOP_PATH_BYTES], text[1024];
  out[0] = '\0';
  if (brim_machine_read_text(root, "/proc/self/cgroup", text, sizeof text)) {
    brim_top_container(text, out, size);
    out[strcspn(out, " ")] = '\0';
  }
  for (size_t i = 0; !out[0] && i < sizeof marks / sizeof *marks; i++) {
    snprintf(path, sizeof path, "%s%s", root, marks[i].path);
    if (access(path, F_OK) == 0) snprintf(out, size, "%s", marks[i].word);
  }
  if (out[0] || !brim_machine_read_text(root, "/proc/sys/kernel/osrelease", text, sizeof text)) {
    return;
  }
  if (strstr(text, "microsoft") || strstr(text, "Microsoft")) snprintf(out, size, "wsl2");
}

//---------------------------------- the CPU quota ----------------------------------

static bool has_quota(const char *root, const char *folder, bool v1) {
  char path[BRIM_TOP_PATH_BYTES], text[64];
  snprintf(path, sizeof path, "%s/%s", folder, v1 ? "cpu.cfs_quota_us" : "cpu.max");
  return brim_machine_read_text(root, path, text, sizeof text) && isdigit((unsigned char)text[0]);
}

// Finds cpu.stat of the nearest group with a quota, from `group` up to the root.
static bool find_stat(const char *root, const char *mount, char *group, bool v1, char *out,
                      size_t size) {
  for (;;) {
    char folder[BRIM_TOP_PATH_BYTES - 32];
    snprintf(folder, sizeof folder, "%.64s%.384s", mount, strcmp(group, "/") ? group : "");
    if (has_quota(root, folder, v1)) {
      snprintf(out, size, "%s/cpu.stat", folder);
      return true;
    }
    char *slash = strrchr(group, '/');
    if (!slash || !group[1]) return false;
    slash[slash == group] = '\0';
  }
}

static void find_throttle_path(brim_top_host_state *s) {
  static const char *const keys[] = {"0:", "cpu,cpuacct:", "cpu:", "cpuacct,cpu:"};
  static const char *const mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/cpu,cpuacct",
                                       "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpuacct,cpu"};
  char text[4096];
  s->throttle_path[0] = '\0';
  if (!brim_machine_read_text(s->root, "/proc/self/cgroup", text, sizeof text)) return;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    // "0::/a/b", "4:cpu,cpuacct:/a/b"
    const char *at = strstr(text, keys[i]);
    char group[384];
    if (!at || (i == 0 && at != text && at[-1] != '\n')) continue;
    if (i > 0 && at > text && at[-1] != ':') continue;
    at += strlen(keys[i]) + (i == 0);
    snprintf(group, sizeof group, "%.*s", (int)strcspn(at, "\n"), at);
    if (find_stat(s->root, mounts[i], group, i > 0, s->throttle_path, sizeof s->throttle_path)) {
      return;
    }
  }
}

static double stat_line(const char *text, const char *key) {
  char value[64];
  double number;
  if (!brim_machine_find_line(text, key, value, sizeof value)) return (double)NAN;
  return brim_parse_f64(value, &number) ? number : (double)NAN;
}

//---------------------------------- counters ----------------------------------

// "cpu  ..." for all, then "cpu0 ..." for each core that is online.
static void read_cpu(const char *text, brim_top_counters *out) {
  for (const char *line = text; brim_str_starts(line, "cpu");) {
    double total = 0, idle = 0, iowait = 0;
    unsigned core = 0;
    int used = 0;
    if (line[3] == ' ') {
      if (read_ticks(line + 3, &total, &idle, &iowait)) {
        out->cpu_total = total;
        out->cpu_idle = idle;
        out->cpu_iowait = iowait;
      }
    } else if (sscanf(line + 3, "%u%n", &core, &used) == 1 && core < BRIM_TOP_CORES &&
               read_ticks(line + 3 + used, &total, &idle, &iowait)) {
      while (out->core_count <= core) out->core_total[out->core_count++] = (double)NAN;
      out->core_total[core] = total;
      out->core_idle[core] = idle + iowait;
    }
    line += strcspn(line, "\n");
    line += *line == '\n';
  }
}

// True for a whole disk. Partitions, and devices that consist of other devices, would count bytes twice.
static bool is_disk(const char *name) {
  static const char *const made[] = {"loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd"};
  for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
    if (brim_str_starts(name, made[i])) return false;
  }
  bool numbered = brim_str_starts(name, "nvme") || brim_str_starts(name, "mmcblk");
  if (numbered) return strchr(name + 4, 'p') == NULL;  // nvme0n1p2, mmcblk0p1
  size_t n = strlen(name);
  return n > 0 && !isdigit((unsigned char)name[n - 1]);  // sda1, vda1
}

static void read_disks(const char *text, brim_top_counters *out) {
  double reads = 0, writes = 0;
  bool any = false;
  for (const char *line = text; *line;) {
    char name[64];
    unsigned long long sectors_read = 0, sectors_written = 0;
    if (sscanf(line, " %*u %*u %63s %*u %*u %llu %*u %*u %*u %llu", name, &sectors_read,
               &sectors_written) == 3 &&
        is_disk(name)) {
      reads += (double)sectors_read * SECTOR_BYTES;
      writes += (double)sectors_written * SECTOR_BYTES;
      any = true;
    }
    line += strcspn(line, "\n");
    line += *line == '\n';
  }
  if (!any) return;
  out->disk_read = reads;
  out->disk_write = writes;
}

// True for interfaces that lead out of the machine. Interfaces between containers carry the same bytes again.
static bool is_outer(const char *name) {
  static const char *const inner[] = {"lo",    "veth", "docker", "br-",
                                      "virbr", "cni",  "cali",   "flannel"};
  for (size_t i = 0; i < sizeof inner / sizeof *inner; i++) {
    if (i == 0 ? !strcmp(name, inner[i]) : brim_str_starts(name, inner[i])) return false;
  }
  return true;
}

static void read_network(const char *text, brim_top_counters *out) {
  double rx = 0, tx = 0;
  bool any = false;
  for (const char *line = text; *line;) {
    char name[64];
    unsigned long long in = 0, sent = 0;
    // the two heading lines do not match
    if (sscanf(line, " %63[^: \n]: %llu %*u %*u %*u %*u %*u %*u %*u %llu", name, &in, &sent) == 3 &&
        is_outer(name)) {
      rx += (double)in;
      tx += (double)sent;
      any = true;
    }
    line += strcspn(line, "\n");
    line += *line == '\n';
  }
  if (!any) return;
  out->network_rx = rx;
  out->network_tx = tx;
}

static void read_counters(const brim_top_host_state *s, int64_t now_ns, brim_top_counters *out) {
  char text[TEXT_BYTES];
  const double unknown = (double)NAN;
  *out = (brim_top_counters){.time_ns = now_ns,
                             .cpu_total = unknown,
                             .cpu_idle = unknown,
                             .cpu_iowait = unknown,
                             .periods = unknown,
                             .throttled = unknown,
                             .disk_read = unknown,
                             .disk_write = unknown,
                             .network_rx = unknown,
                             .network_tx = unknown};
  if (brim_machine_read_text(s->root, "/proc/stat", text, sizeof text)) read_cpu(text, out);
  if (brim_machine_read_text(s->root, "/proc/diskstats", text, sizeof text)) read_disks(text, out);
  if (brim_machine_read_text(s->root, "/proc/net/dev", text, sizeof text)) read_network(text, out);
  if (s->throttle_path[0] && brim_machine_read_text(s->root, s->throttle_path, text, sizeof text)) {
    out->periods = stat_line(text, "nr_periods");
    out->throttled = stat_line(text, "nr_throttled");
  }
}

//---------------------------------- the live view's host ----------------------------------

enum { MOST_FREQUENCY_CPUS = 16 };

static void read_frequency(const char *root, brim_top_host *out) {
  double now = 0, max = 0;
  int cores = 0;
  for (int cpu = 0; cpu < MOST_FREQUENCY_CPUS; cpu++) {
    double f = cpu_number(root, cpu, "cpufreq/scaling_cur_freq");
    double m = cpu_number(root, cpu, "cpufreq/cpuinfo_max_freq");
    if (isnan(f) || isnan(m)) break;
    now += f;
    max += m;
    cores++;
  }
  out->cpu_mhz = cores ? now / cores * 1e-3 : (double)NAN;  // the files are in kHz
  out->cpu_max_mhz = cores ? max / cores * 1e-3 : (double)NAN;
}

static void read_slow(brim_top_host_state *s) {
  brim_machine_memory memory;
  double quota = brim_cpu_quota(s->root);
  s->slow.quota_cores = quota > 0 ? quota : (double)NAN;
  find_throttle_path(s);
  brim_machine_read_memory(s->root, &memory);
  s->slow.memory_limit = memory.limit ? (double)memory.limit : (double)NAN;
  read_frequency(s->root, &s->slow);
}

static void read_memory(const brim_top_host_state *s, brim_top_host *out) {
  char text[8192], path[BRIM_TOP_PATH_BYTES];
  struct statvfs shm;
  if (brim_machine_read_text(s->root, "/proc/meminfo", text, sizeof text)) {
    out->memory_total = find_kb(text, "MemTotal");
    out->memory_available = find_kb(text, "MemAvailable");
    out->memory_used = out->memory_total - out->memory_available;
    out->swap_total = find_kb(text, "SwapTotal");
    out->swap_used = out->swap_total - find_kb(text, "SwapFree");
  }
  snprintf(path, sizeof path, "%s/dev/shm", s->root);
  if (statvfs(path, &shm) == 0) {
    out->shm_total = (double)shm.f_blocks * (double)shm.f_frsize;
    out->shm_used = (double)(shm.f_blocks - shm.f_bfree) * (double)shm.f_frsize;
  }
}

static void read_load(const brim_top_host_state *s, brim_top_host *out) {
  char text[256];
  double load[3];
  long long running = 0, tasks = 0;
  if (brim_machine_read_text(s->root, "/proc/loadavg", text, sizeof text) &&
      sscanf(text, "%lf %lf %lf %lld/%lld", &load[0], &load[1], &load[2], &running, &tasks) == 5) {
    out->load_1 = load[0];
    out->load_5 = load[1];
    out->load_15 = load[2];
    out->tasks_running = running;
    out->tasks = tasks;
  }
  out->uptime_s = read_number(s->root, "/proc/uptime");
}

// The growth of a counter; NaN if it fell, since it was reset or wrapped.
static double grown(double from, double to) { return to >= from ? to - from : (double)NAN; }

static void fill_rates(const brim_top_counters *a, const brim_top_counters *b, brim_top_host *out) {
  double seconds = (double)(b->time_ns - a->time_ns) * 1e-9;
  if (seconds < 0.1) return;
  double total = grown(a->cpu_total, b->cpu_total);
  if (total > 0) {
    double idle = grown(a->cpu_idle, b->cpu_idle), wait = grown(a->cpu_iowait, b->cpu_iowait);
    out->cpu_percent = 100 * fmax(0, total - idle - wait) / total;
    if (isnan(idle + wait)) out->cpu_percent = (double)NAN;
    out->iowait_percent = 100 * wait / total;
  }
  out->core_count = b->core_count;
  for (size_t i = 0; i < b->core_count; i++) {
    bool known = i < a->core_count;
    double core = known ? grown(a->core_total[i], b->core_total[i]) : (double)NAN;
    double idle = known ? grown(a->core_idle[i], b->core_idle[i]) : (double)NAN;
    out->core_percent[i] = core > 0 ? 100 * fmax(0, core - idle) / core : (double)NAN;
    if (isnan(idle)) out->core_percent[i] = (double)NAN;
  }
  double periods = grown(a->periods, b->periods);
  if (periods > 0) out->quota_throttled_percent = 100 * grown(a->throttled, b->throttled) / periods;
  if (periods == 0) out->quota_throttled_percent = 0;
  out->disk_read = grown(a->disk_read, b->disk_read) / seconds;
  out->disk_write = grown(a->disk_write, b->disk_write) / seconds;
  out->network_rx = grown(a->network_rx, b->network_rx) / seconds;
  out->network_tx = grown(a->network_tx, b->network_tx) / seconds;
}

void brim_top_host_open(brim_top_host_state *state, const char *root, int64_t now_ns) {
  brim_host_info info;
  memset(state, 0, sizeof *state);
  snprintf(state->root, sizeof state->root, "%s", root);
  brim_top_host_init(&state->slow);
  brim_top_host *to = &state->slow;
  if (brim_host_read_info(root, &info) == BRIM_OK) {
    snprintf(to->name, sizeof to->name, "%s", info.hostname);
    snprintf(to->cpu, sizeof to->cpu, "%s", info.cpu);
    snprintf(to->os, sizeof to->os, "%s", info.os);
    snprintf(to->kernel, sizeof to->kernel, "%s", info.kernel);
    to->cores = info.cores;
    to->cores_online = info.cores_online > 0 ? info.cores_online : -1;
  }
  read_container(root, to->container, sizeof to->container);
  read_slow(state);
  state->slow_ns = now_ns;
  read_counters(state, now_ns, &state->last);
}

void brim_top_host_read(brim_top_host_state *state, int64_t now_ns, brim_top_host *out) {
  brim_top_counters now;
  if (now_ns - state->slow_ns >= BRIM_TOP_SLOW_NS) {
    read_slow(state);
    state->slow_ns = now_ns;
  }
  *out = state->slow;
  read_memory(state, out);
  read_load(state, out);
  read_counters(state, now_ns, &now);
  fill_rates(&state->last, &now, out);
  state->last = now;
}
