// Checks of the processors: how many this process may use, what the control group leaves of them, how
// busy they are and how fast they may run.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor/doctor_int.h"

enum { GOVERNOR_CPUS = 4096, CORES_PER_GPU = 4 };

//---------------------------------- cores ----------------------------------

static void check_cores(brim_doctor_exam *e) {
  char allowed[1024], online[1024];
  int may = brim_doctor_allowed(e, allowed, sizeof allowed) ? brim_doctor_cpu_list(allowed) : -1;
  int all = brim_doctor_read_word(e, "/sys/devices/system/cpu/online", online, sizeof online)
                ? brim_doctor_cpu_list(online)
                : -1;
  if (may < 1) {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, brim_tr("%s cannot be read"), "/proc/self/status");
    return;
  }
  int wanted = CORES_PER_GPU * (int)e->gpu_count;
  brim_doctor_state state = may < wanted ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD;
  brim_doctor_line *line =
      all > may ? brim_doctor_say(e, state, brim_tr("%d of %d, by affinity or cpuset"), may, all)
                : brim_doctor_say(e, state, "%d", may);
  if (state == BRIM_DOCTOR_GOOD) return;
  brim_doctor_because(line,
                      brim_tr("Loader threads feed the GPU. With fewer than %d cores per GPU, "
                              "decoding and augmentation often bound the step."),
                      CORES_PER_GPU);
  brim_doctor_fix(line, "%s",
                  all > may
                      ? brim_tr("give the process more cores: taskset, --cpuset-cpus (Docker), "
                                "--cpus-per-task (Slurm)")
                      : brim_tr("keep the data on the GPU: data.cache=gpu, or pack it once: "
                                "brim data convert"));
}

//---------------------------------- quota ----------------------------------

// The control group of this process in version 2 ("/" = the root, or hidden by a namespace).
static bool own_group(const brim_doctor_exam *e, char *out, size_t size) {
  char text[BRIM_DOCTOR_TEXT];
  return brim_doctor_read(e, "/proc/self/cgroup", text, sizeof text) &&
         brim_machine_find_line(text, "0:", out, size);
}

// Can a quota of this process be seen? Version 2 keeps it in the folder of the process's group, which a
// sandbox may hide though the top folder is there.
static bool groups_visible(const brim_doctor_exam *e) {
  char group[256] = "", path[512];
  bool old = brim_doctor_exists(e, "/sys/fs/cgroup/cpu") ||
             brim_doctor_exists(e, "/sys/fs/cgroup/cpu,cpuacct");
  if (old || brim_doctor_exists(e, "/sys/fs/cgroup/cpu.max")) return true;
  if (!brim_doctor_exists(e, "/sys/fs/cgroup/cgroup.controllers")) return false;
  if (!own_group(e, group, sizeof group)) return false;
  snprintf(path, sizeof path, "/sys/fs/cgroup%s", group[1] ? group : "");
  return brim_doctor_exists(e, path);
}

static void check_quota(brim_doctor_exam *e) {
  char allowed[1024];
  double quota = brim_cpu_quota(e->machine->root);
  int may = brim_doctor_allowed(e, allowed, sizeof allowed) ? brim_doctor_cpu_list(allowed) : -1;
  if (quota <= 0 && !groups_visible(e)) {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN,
                    brim_tr("%s is not visible here: a quota may exist all the same"),
                    "/sys/fs/cgroup");
    return;
  }
  if (quota <= 0) {
    brim_doctor_say(e, BRIM_DOCTOR_GOOD, "%s", brim_tr("none"));
    return;
  }
  if (may > 0 && quota >= (double)may) {
    brim_doctor_say(e, BRIM_DOCTOR_GOOD, brim_tr("%.3g cores, as many as the process may use"),
                    quota);
    return;
  }
  brim_doctor_line *line =
      may > 0 ? brim_doctor_say(e, BRIM_DOCTOR_WARN, brim_tr("%.3g cores, though %d are visible"),
                                quota, may)
              : brim_doctor_say(e, BRIM_DOCTOR_WARN, brim_tr("%.3g cores"), quota);
  brim_doctor_fix(line, "%s",
                  brim_tr("raise it: docker run --cpus=N, resources.limits.cpu (Kubernetes), "
                          "systemctl set-property UNIT CPUQuota=; else start no more threads than "
                          "the quota has cores"));
}

//---------------------------------- throttling ----------------------------------

typedef struct throttling {
  double periods, throttled, seconds;  // NaN = not known
} throttling;

static double stat_number(const char *text, const char *key) {
  char value[64];
  double number;
  if (!brim_machine_find_line(text, key, value, sizeof value)) return (double)NAN;
  return brim_parse_f64(value, &number) ? number : (double)NAN;
}

static bool read_throttling(const brim_doctor_exam *e, const char *path, throttling *out) {
  char text[2048];
  if (!brim_doctor_read(e, path, text, sizeof text)) return false;
  out->periods = stat_number(text, "nr_periods");
  out->throttled = stat_number(text, "nr_throttled");
  out->seconds = stat_number(text, "throttled_usec") * 1e-6;
  if (isnan(out->seconds)) out->seconds = stat_number(text, "throttled_time") * 1e-9;  // version 1
  return !isnan(out->periods) && !isnan(out->throttled);
}

// The group that is throttled most, of the process's own and those above it.
static bool worst_throttling(const brim_doctor_exam *e, throttling *out) {
  char group[256], path[512];
  bool found = false;
  if (own_group(e, group, sizeof group) && group[0] == '/') {
    for (;;) {
      throttling t;
      snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.stat", group[1] ? group : "");
      if (read_throttling(e, path, &t) && (!found || t.throttled > out->throttled)) {
        *out = t;
        found = true;
      }
      char *slash = strrchr(group, '/');
      if (!slash || !group[1]) break;
      slash[slash == group] = '\0';
    }
  }
  static const char *const v1[] = {"/sys/fs/cgroup/cpu/cpu.stat",
                                   "/sys/fs/cgroup/cpu,cpuacct/cpu.stat"};
  for (int i = 0; i < 2 && !found; i++) found = read_throttling(e, v1[i], out);
  return found;
}

static void check_throttling(brim_doctor_exam *e) {
  throttling t;
  if (!worst_throttling(e, &t)) {
    if (groups_visible(e) && brim_cpu_quota(e->machine->root) <= 0) {
      brim_doctor_say(e, BRIM_DOCTOR_GOOD, "%s", brim_tr("none: there is no quota"));
    } else {
      brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, brim_tr("%s cannot be read"), "cpu.stat");
    }
    return;
  }
  if (!(t.throttled > 0)) {
    brim_doctor_say(e, BRIM_DOCTOR_GOOD, "%s", brim_tr("never so far"));
    return;
  }
  double share = t.periods > 0 ? t.throttled / t.periods : 1;
  char time[32] = "-";
  if (!isnan(t.seconds)) brim_format_duration(t.seconds, time);
  brim_doctor_state state = share > 0.1    ? BRIM_DOCTOR_BAD
                            : share > 0.01 ? BRIM_DOCTOR_WARN
                                           : BRIM_DOCTOR_GOOD;
  brim_doctor_line *line = brim_doctor_say(
      e, state, brim_tr("in %.3g %% of the periods since the group began, %s in all"),
      brim_shown(100 * share), time);
  if (state == BRIM_DOCTOR_GOOD) return;
  brim_doctor_fix(
      line, "%s",
      brim_tr("raise the quota, or use fewer threads: data.num_workers and threads in the "
              "config, OMP_NUM_THREADS"));
}

//---------------------------------- load ----------------------------------

static void check_load(brim_doctor_exam *e) {
  char text[128], online[1024];
  double load = (double)NAN;
  bool known = brim_doctor_read(e, "/proc/loadavg", text, sizeof text);
  if (known) {
    text[strcspn(text, " \n")] = '\0';
    known = brim_parse_f64(text, &load);
  }
  int all = brim_doctor_read_word(e, "/sys/devices/system/cpu/online", online, sizeof online)
                ? brim_doctor_cpu_list(online)
                : -1;
  if (!known || all < 1) {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, brim_tr("%s cannot be read"),
                    known ? "/sys/devices/system/cpu/online" : "/proc/loadavg");
    return;
  }
  brim_doctor_state state = load > (double)all ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD;
  brim_doctor_line *line = brim_doctor_say(
      e, state, brim_tr("%.3g runnable on %d cores (mean of the last minute)"), load, all);
  if (state == BRIM_DOCTOR_WARN)
    brim_doctor_fix(line, "ps -eo pid,user,pcpu,args --sort=-pcpu | head");
}

//---------------------------------- governor ----------------------------------

static bool cpu_word(const brim_doctor_exam *e, int cpu, const char *file, char *out, size_t size) {
  char path[160];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/%s", cpu, file);
  return brim_doctor_read_word(e, path, out, size);
}

// Under these drivers "powersave" follows the load; the preference says how far.
static bool follows_load(const brim_doctor_exam *e) {
  char driver[64], wish[64] = "";
  if (!cpu_word(e, 0, "scaling_driver", driver, sizeof driver)) return false;
  if (strcmp(driver, "intel_pstate") != 0 && !brim_str_starts(driver, "amd-pstate")) return false;
  if (!cpu_word(e, 0, "energy_performance_preference", wish, sizeof wish)) return true;
  return strcmp(wish, "power") != 0 && strcmp(wish, "balance_power") != 0;
}

static void check_governor(brim_doctor_exam *e) {
  char first[64] = "", word[64];
  int slow = 0, cores = 0;
  for (int cpu = 0; cpu < GOVERNOR_CPUS; cpu++) {
    if (!cpu_word(e, cpu, "scaling_governor", word, sizeof word)) {
      if (cpu >= 256 || cores == 0) break;  // some numbers may be off line
      continue;
    }
    cores++;
    bool saves = strcmp(word, "powersave") == 0 || strcmp(word, "conservative") == 0;
    if (saves) slow++;
    if (!first[0] || (saves && slow == 1)) snprintf(first, sizeof first, "%s", word);
  }
  if (cores == 0) {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, "%s",
                    brim_tr("the kernel shows no frequency control, as in most virtual machines"));
    return;
  }
  if (slow == 0 || (strcmp(first, "powersave") == 0 && follows_load(e))) {
    brim_doctor_say(e, BRIM_DOCTOR_GOOD, "%s", first);
    return;
  }
  brim_doctor_line *line =
      brim_doctor_say(e, BRIM_DOCTOR_WARN, brim_tr("%s on %d of %d cores"), first, slow, cores);
  brim_doctor_fix(line, "sudo cpupower frequency-set -g performance");
}

const brim_doctor_row brim_doctor_cpu_rows[] = {
    {"host.cores", BRIM_DOCTOR_GROUP_HOST, BRIM_N_("CPU cores"),
     BRIM_N_("Loader threads and, without a GPU, the computation itself run on them."),
     check_cores},
    {"host.cpu_quota", BRIM_DOCTOR_GROUP_HOST, BRIM_N_("CPU quota"),
     BRIM_N_(
         "A quota stops all threads of the container for the rest of a period once it is used up. "
         "Programs that count the visible cores start too many threads and stall."),
     check_quota},
    {"host.cpu_throttling", BRIM_DOCTOR_GROUP_HOST, BRIM_N_("CPU throttling"),
     BRIM_N_(
         "While the quota throttles, no loader thread runs and no kernel is launched: steps take "
         "longer at random."),
     check_throttling},
    {"host.load", BRIM_DOCTOR_GROUP_HOST, BRIM_N_("CPU load"),
     BRIM_N_("Other programs take time from the loader, and measured times vary."), check_load},
    {"host.governor", BRIM_DOCTOR_GROUP_HOST, BRIM_N_("CPU governor"),
     BRIM_N_("At a low clock the host launches kernels late and loads data slowly."),
     check_governor},
    {0}};
