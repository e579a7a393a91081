// Checks of the host besides its processors: system, memory, swap, shared memory, limits of the process.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor/doctor_int.h"

#define GIB 1073741824.0
#define TOO_FEW 64  // with so few files or threads brim itself fails

static void check_system(brim_doctor_exam *e) {
  char text[BRIM_DOCTOR_TEXT], os[128] = "", cpu[128] = "", kernel[128] = "";
  if (brim_doctor_read(e, "/etc/os-release", text, sizeof text)) {
    brim_machine_find_line(text, "PRETTY_NAME", os, sizeof os);
  }
  brim_doctor_read_word(e, "/proc/sys/kernel/osrelease", kernel, sizeof kernel);
  brim_machine_cpu_name(e->machine->root, cpu, sizeof cpu);
  if (!os[0] && !kernel[0] && !cpu[0]) {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, brim_tr("%s cannot be read"), "/etc/os-release, /proc");
    return;
  }
  brim_doctor_say(e, BRIM_DOCTOR_GOOD, "%s, Linux %s, %s", os[0] ? os : "-",
                  kernel[0] ? kernel : "-", cpu[0] ? cpu : "-");
}

//---------------------------------- memory ----------------------------------

static void check_memory(brim_doctor_exam *e) {
  brim_machine_memory m;
  uint64_t free_bytes = 0, total_bytes = 0;
  char left[32], total[32];
  brim_machine_read_memory(e->machine->root, &m);
  brim_machine_free_memory(e->machine->root, &free_bytes, &total_bytes);
  if (total_bytes == 0) {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, brim_tr("%s cannot be read"), "/proc/meminfo");
    return;
  }
  brim_doctor_bytes((double)free_bytes, left);
  brim_doctor_bytes((double)total_bytes, total);
  bool little = (double)free_bytes < 2 * GIB || (double)free_bytes < 0.1 * (double)total_bytes;
  brim_doctor_state state = little ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD;
  bool limited = m.limit && m.total && m.limit < m.total;
  brim_doctor_line *line =
      limited ? brim_doctor_say(e, state, brim_tr("%s free of %s, the limit of the container"),
                                left, total)
              : brim_doctor_say(e, state, brim_tr("%s free of %s"), left, total);
  if (!little) return;
  brim_doctor_fix(line, "%s",
                  limited
                      ? brim_tr("raise the limit: docker run --memory=N, resources.limits.memory "
                                "(Kubernetes), --mem (Slurm)")
                      : "ps -eo pid,user,rss,args --sort=-rss | head");
}

// "oom_kill N" of a file; NaN = it does not say.
static double kills_in(const brim_doctor_exam *e, const char *folder, const char *group,
                       const char *file) {
  char text[BRIM_DOCTOR_TEXT], path[512], value[64];
  double kills = (double)NAN;
  snprintf(path, sizeof path, "%s%s/%s", folder, group[0] && group[1] ? group : "", file);
  if (!brim_doctor_read(e, path, text, sizeof text) ||
      !brim_machine_find_line(text, "oom_kill", value, sizeof value) ||
      !brim_parse_f64(value, &kills)) {
    return (double)NAN;
  }
  return kills;
}

// Version 1 lists the group of its memory controller as "4:memory:/box"; a namespace may hide the path.
static void check_killed(brim_doctor_exam *e) {
  char text[BRIM_DOCTOR_TEXT], group[256] = "", old[256] = "";
  if (brim_doctor_read(e, "/proc/self/cgroup", text, sizeof text)) {
    brim_machine_find_line(text, "0:", group, sizeof group);
    const char *at = strstr(text, ":memory:");
    if (at) snprintf(old, sizeof old, "%.*s", (int)strcspn(at + 8, "\n"), at + 8);
  }
  double kills = kills_in(e, "/sys/fs/cgroup", group, "memory.events");
  if (isnan(kills)) kills = kills_in(e, "/sys/fs/cgroup/memory", old, "memory.oom_control");
  if (isnan(kills)) kills = kills_in(e, "/sys/fs/cgroup/memory", "", "memory.oom_control");
  if (isnan(kills)) {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN,
                    brim_tr("%s cannot be read (the kernel log may show: dmesg | grep -i oom)"),
                    "memory.events");
    return;
  }
  if (kills == 0) {
    brim_doctor_say(e, BRIM_DOCTOR_GOOD, "%s", brim_tr("none in this control group"));
    return;
  }
  brim_doctor_line *line =
      brim_doctor_say(e, BRIM_DOCTOR_WARN, brim_tr("%.0f in this control group so far"), kills);
  brim_doctor_fix(line, "%s",
                  brim_tr("raise the memory limit, or need less: data.cache=none, fewer "
                          "data.num_workers, a smaller data.prefetch_factor"));
}

static void check_swap(brim_doctor_exam *e) {
  char text[BRIM_DOCTOR_TEXT], total_text[64], free_text[64], used_word[32], total_word[32];
  if (!brim_doctor_read(e, "/proc/meminfo", text, sizeof text) ||
      !brim_machine_find_line(text, "SwapTotal", total_text, sizeof total_text) ||
      !brim_machine_find_line(text, "SwapFree", free_text, sizeof free_text)) {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, brim_tr("%s cannot be read"), "/proc/meminfo");
    return;
  }
  double total = strtod(total_text, NULL) * 1024, used = total - strtod(free_text, NULL) * 1024;
  if (!(total > 0)) {
    brim_doctor_say(e, BRIM_DOCTOR_GOOD, "%s", brim_tr("none"));
    return;
  }
  brim_doctor_bytes(used, used_word);
  brim_doctor_bytes(total, total_word);
  bool much = used > GIB && used > 0.25 * total;
  brim_doctor_line *line = brim_doctor_say(e, much ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD,
                                           brim_tr("%s in use of %s"), used_word, total_word);
  if (much) brim_doctor_fix(line, "grep VmSwap /proc/[0-9]*/status | sort -k2 -n | tail");
}

static void check_shm(brim_doctor_exam *e) {
  brim_doctor_space space;
  char total[32], left[32];
  if (!brim_doctor_exists(e, "/dev/shm") ||
      !e->machine->space(e->machine->ctx, "/dev/shm", &space)) {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, brim_tr("%s is not visible here"), "/dev/shm");
    return;
  }
  brim_doctor_bytes(space.total, total);
  brim_doctor_bytes(space.free, left);
  bool little = space.total < GIB || space.free < 0.1 * space.total;
  brim_doctor_line *line = brim_doctor_say(e, little ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD,
                                           brim_tr("%s free of %s"), left, total);
  if (!little) return;
  if (space.total < GIB) {
    brim_doctor_fix(line, "docker run --shm-size=8g ...\nsudo mount -o remount,size=8G /dev/shm");
  } else {
    brim_doctor_fix(line, "ls -lS /dev/shm | head");
  }
}

//---------------------------------- limits ----------------------------------

// The soft and hard limit of a row of /proc/self/limits; INFINITY = unlimited.
static bool read_limit(const brim_doctor_exam *e, const char *name, double *soft, double *hard) {
  char text[4096], words[2][32];
  if (!brim_doctor_read(e, "/proc/self/limits", text, sizeof text)) return false;
  const char *at = strstr(text, name);
  if (!at || sscanf(at + strlen(name), " %31s %31s", words[0], words[1]) != 2) return false;
  double *const out[] = {soft, hard};
  for (int i = 0; i < 2; i++) {
    bool none = strcmp(words[i], "unlimited") == 0;
    if (none) *out[i] = (double)INFINITY;
    if (!none && !brim_parse_f64(words[i], out[i])) return false;
  }
  return true;
}

static void limit_text(double value, char out[32]) {
  if (isinf(value)) {
    snprintf(out, 32, "%s", brim_tr("unlimited"));
  } else {
    brim_format_count(value, out);
  }
}

static void check_count_limit(brim_doctor_exam *e, const char *name, const char *flag,
                              double least) {
  double soft = 0, hard = 0;
  char now[32], most[32];
  if (!read_limit(e, name, &soft, &hard)) {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, brim_tr("%s cannot be read"), "/proc/self/limits");
    return;
  }
  limit_text(soft, now);
  limit_text(hard, most);
  bool low = soft < least;
  brim_doctor_state state = soft < TOO_FEW ? BRIM_DOCTOR_BAD
                            : low          ? BRIM_DOCTOR_WARN
                                           : BRIM_DOCTOR_GOOD;
  brim_doctor_line *line = brim_doctor_say(e, state, brim_tr("%s (at most %s)"), now, most);
  if (!low) return;
  if (hard >= least) {
    brim_doctor_fix(line, "ulimit -%s %.0f", flag, isinf(hard) || hard > 65536 ? 65536.0 : hard);
  } else {
    brim_doctor_fix(line, "%s",
                    brim_tr("raise the hard limit in /etc/security/limits.conf, or: docker run "
                            "--ulimit nofile=65536 --ulimit nproc=65536"));
  }
}

static void check_files(brim_doctor_exam *e) { check_count_limit(e, "Max open files", "n", 4096); }
static void check_processes(brim_doctor_exam *e) {
  check_count_limit(e, "Max processes", "u", 4096);
}

static void check_memlock(brim_doctor_exam *e) {
  double soft = 0, hard = 0;
  char now[32], most[32];
  if (!read_limit(e, "Max locked memory", &soft, &hard)) {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, brim_tr("%s cannot be read"), "/proc/self/limits");
    return;
  }
  limit_text(soft, now);
  limit_text(hard, most);
  if (!isinf(soft)) brim_doctor_bytes(soft, now);
  if (!isinf(hard)) brim_doctor_bytes(hard, most);
  // Pinned memory is locked by the GPU driver and does not count. RDMA's does.
  bool rdma = brim_doctor_exists(e, "/sys/class/infiniband");
  bool low = rdma && soft < GIB;
  brim_doctor_line *line = brim_doctor_say(e, low ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD,
                                           brim_tr("%s (at most %s)"), now, most);
  if (low) {
    brim_doctor_fix(line, isinf(hard) ? "ulimit -l unlimited"
                                      : "docker run --ulimit memlock=-1 ...\nulimit -l unlimited");
  }
}

const brim_doctor_row brim_doctor_host_rows[] = {
    {"host.system", BRIM_DOCTOR_GROUP_HOST, BRIM_N_("System"),
     BRIM_N_("Records name it, so that measurements can be compared."), check_system},
    {"host.memory", BRIM_DOCTOR_GROUP_HOST, BRIM_N_("Memory"),
     BRIM_N_(
         "The data cache, loader buffers and checkpoints need it. The kernel kills a process that "
         "exceeds it."),
     check_memory},
    {"host.oom_kills", BRIM_DOCTOR_GROUP_HOST, BRIM_N_("Killed for memory"),
     BRIM_N_(
         "The kernel ends processes that exceed the memory limit, without a message from them."),
     check_killed},
    {"host.swap", BRIM_DOCTOR_GROUP_HOST, BRIM_N_("Swap"),
     BRIM_N_("Pages that come back from disk stall loader threads for milliseconds."), check_swap},
    {"host.shm", BRIM_DOCTOR_GROUP_HOST, BRIM_N_("Shared memory"),
     BRIM_N_(
         "NCCL and the worker processes of PyTorch exchange data through /dev/shm and end with a "
         "bus error when it is full. brim's own loader uses threads and does not need it."),
     check_shm},
    {"host.open_files", BRIM_DOCTOR_GROUP_HOST, BRIM_N_("Open files"),
     BRIM_N_("Loaders of image folders, sweeps and PyTorch workers keep many files open."),
     check_files},
    {"host.locked_memory", BRIM_DOCTOR_GROUP_HOST, BRIM_N_("Locked memory"),
     BRIM_N_(
         "RDMA (InfiniBand) registers memory under this limit. The GPU driver's pinned memory does "
         "not count."),
     check_memlock},
    {"host.processes", BRIM_DOCTOR_GROUP_HOST, BRIM_N_("Processes"),
     BRIM_N_("Threads count as well. A program that may start no more of them fails or hangs."),
     check_processes},
    {0}};
