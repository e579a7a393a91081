// Checks of the host: system, memory, limits, environment variables, processors, WSL2.

#include "doctor/doctor_int.h"

#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

//---------------------------------- system ----------------------------------

#define GIB 1073741824.0
#define TOO_FEW 64  // brim itself fails with fewer files or threads

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

// The number after "oom_kill" in a file of a cgroup; NaN = unknown.
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

// Warns if the kernel has killed processes of this cgroup. Version 1 lists it as "4:memory:/box"; a namespace may
// hide the path.
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
  // memory that the GPU driver pins does not count toward the limit; memory that RDMA pins does
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

//---------------------------------- environment variables ----------------------------------
// Variables that slow training, hide GPUs or change results, and some that help. Unset variables get no line.

typedef struct variable {
  const char *name;
  const char *why;  // a message
  // Returns the state of the line for this value.
  brim_doctor_state (*judge)(const brim_doctor_exam *e, const char *value);
  const char *fix;  // NULL = "unset NAME"
} variable;

static bool is_true(const char *v) {
  static const char *const words[] = {"1", "true", "yes", "on", "y", "t"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strcasecmp(v, words[i]) == 0) return true;
  }
  return false;
}

static bool is_false(const char *v) {
  static const char *const words[] = {"0", "false", "no", "off", "n", "f"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strcasecmp(v, words[i]) == 0) return true;
  }
  return false;
}

static brim_doctor_state true_is_bad(const brim_doctor_exam *e, const char *v) {
  (void)e;
  return is_true(v) ? BRIM_DOCTOR_BAD : BRIM_DOCTOR_GOOD;
}
static brim_doctor_state true_is_slow(const brim_doctor_exam *e, const char *v) {
  (void)e;
  return is_true(v) ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD;
}
static brim_doctor_state false_is_slow(const brim_doctor_exam *e, const char *v) {
  (void)e;
  return is_false(v) ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD;
}
static brim_doctor_state set_is_slow(const brim_doctor_exam *e, const char *v) {
  (void)e;
  return v[0] ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD;
}

static brim_doctor_state judge_loading(const brim_doctor_exam *e, const char *v) {
  (void)e;
  return strcasecmp(v, "EAGER") == 0 ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD;
}

// Checks a list of indices or ids. An entry that names no GPU hides itself and all later entries.
static brim_doctor_state judge_visible(const brim_doctor_exam *e, const char *v) {
  if (e->gpu_count == 0) return BRIM_DOCTOR_GOOD;
  if (!v[0] || strcmp(v, "-1") == 0 || strcasecmp(v, "none") == 0 ||
      strcasecmp(v, "NoDevFiles") == 0) {
    return BRIM_DOCTOR_BAD;
  }
  int last = e->gpus[e->gpu_count - 1].index;
  for (const char *at = v; *at;) {
    size_t n = strcspn(at, ",");
    char *end = NULL;
    long index = strtol(at, &end, 10);
    bool number = end == at + n && n > 0;
    if (number && (index < 0 || index > last)) return BRIM_DOCTOR_BAD;
    at += n + (at[n] == ',');
  }
  return BRIM_DOCTOR_GOOD;
}

static brim_doctor_state judge_fraction(const brim_doctor_exam *e, const char *v) {
  double share;
  (void)e;
  if (!brim_parse_f64(v, &share) || !(share > 0)) return BRIM_DOCTOR_BAD;
  return share > 0.9 ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD;
}

static brim_doctor_state judge_xla(const brim_doctor_exam *e, const char *v) {
  static const char *const slow[] = {
      "xla_dump_to", "xla_gpu_autotune_level=0", "xla_gpu_deterministic_ops=true",
      "xla_backend_optimization_level=0", "xla_force_host_platform_device_count"};
  (void)e;
  for (size_t i = 0; i < sizeof slow / sizeof *slow; i++) {
    if (strstr(v, slow[i])) return BRIM_DOCTOR_WARN;
  }
  return BRIM_DOCTOR_GOOD;
}

static brim_doctor_state judge_platforms(const brim_doctor_exam *e, const char *v) {
  return e->gpu_count > 0 && strcasecmp(v, "cpu") == 0 ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD;
}

static brim_doctor_state judge_threads(const brim_doctor_exam *e, const char *v) {
  int64_t threads = 0;
  char first[32];
  // a list has a number for each level of nested regions: take the first
  snprintf(first, sizeof first, "%.*s", (int)strcspn(v, ","), v);
  int cores = brim_doctor_cores(e);
  if (!brim_parse_i64(first, &threads) || threads < 1) return BRIM_DOCTOR_BAD;
  if (cores < 1) return BRIM_DOCTOR_GOOD;
  return threads > cores || (threads == 1 && cores > 4) ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD;
}

static brim_doctor_state judge_debug(const brim_doctor_exam *e, const char *v) {
  static const char *const words[] = {"INFO", "TRACE", "DETAIL"};
  (void)e;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strcasecmp(v, words[i]) == 0) return BRIM_DOCTOR_WARN;
  }
  return BRIM_DOCTOR_GOOD;
}

static brim_doctor_state judge_library_path(const brim_doctor_exam *e, const char *v) {
  (void)e;
  return strstr(v, "/stubs") ? BRIM_DOCTOR_BAD : BRIM_DOCTOR_GOOD;
}

static const variable variables[] = {
    {"CUDA_LAUNCH_BLOCKING",
     BRIM_N_(
         "At 1 the host waits for every kernel: nothing overlaps, and small kernels run several "
         "times slower. It is for debugging."),
     true_is_bad, NULL},
    {"CUDA_VISIBLE_DEVICES",
     BRIM_N_(
         "Programs see only these GPUs, numbered from 0. An entry that names no GPU hides itself "
         "and all entries behind it."),
     judge_visible, NULL},
    {"CUDA_MODULE_LOADING",
     BRIM_N_("EAGER loads every kernel at the start: more GPU memory, and seconds before the first "
             "step."),
     judge_loading, NULL},
    {"CUDA_CACHE_DISABLE",
     BRIM_N_("At 1 kernels that the driver compiles are compiled again at every start."),
     true_is_slow, NULL},
    {"CUDA_INJECTION64_PATH",
     BRIM_N_(
         "A library is loaded into every CUDA program, usually a profiler. It costs time, and a "
         "second profiler may get no events."),
     set_is_slow, NULL},
    {"NVIDIA_TF32_OVERRIDE",
     BRIM_N_("At 0 cuBLAS and cuDNN never use TF32: fp32 products run without tensor cores."),
     false_is_slow, NULL},
    {"XLA_PYTHON_CLIENT_MEM_FRACTION",
     BRIM_N_("JAX takes this share of the GPU's memory at its start. Above 0.9 little is left for "
             "other processes and for the libraries' own buffers."),
     judge_fraction, "export XLA_PYTHON_CLIENT_MEM_FRACTION=0.75"},
    {"XLA_PYTHON_CLIENT_PREALLOCATE",
     BRIM_N_(
         "At false JAX allocates as it goes: it shares the GPU, with more fragmentation and slower "
         "allocations."),
     false_is_slow, NULL},
    {"XLA_FLAGS",
     BRIM_N_(
         "Flags for dumping, for determinism, without autotuning or with several host devices make "
         "XLA programs slower."),
     judge_xla, NULL},
    {"JAX_ENABLE_X64",
     BRIM_N_("At 1 JAX computes in float64 by default: twice the memory, and on most GPUs a "
             "fraction of "
             "the speed."),
     true_is_slow, NULL},
    {"JAX_DISABLE_JIT", BRIM_N_("At 1 JAX compiles nothing and runs op by op."), true_is_bad, NULL},
    {"JAX_DEBUG_NANS", BRIM_N_("At 1 JAX checks every result on the host, which waits for each."),
     true_is_slow, NULL},
    {"JAX_PLATFORMS", BRIM_N_("cpu hides the GPU from JAX."), judge_platforms, NULL},
    {"TORCH_CUDNN_V8_API_ENABLED",
     BRIM_N_(
         "At 0 PyTorch uses the older cuDNN interface, with fewer fused kernels. PyTorch 2 has it "
         "on by default and needs no variable."),
     false_is_slow, NULL},
    {"PYTORCH_NO_CUDA_MEMORY_CACHING",
     BRIM_N_("At 1 every tensor is allocated by the driver, which waits for the GPU each time."),
     true_is_bad, NULL},
    {"TORCHDYNAMO_DISABLE", BRIM_N_("At 1 torch.compile compiles nothing."), true_is_slow, NULL},
    {"TORCH_DISTRIBUTED_DEBUG",
     BRIM_N_("DETAIL checks every collective against the other ranks, which costs time."),
     judge_debug, NULL},
    {"NCCL_DEBUG", BRIM_N_("INFO and TRACE write a log from inside the collectives."), judge_debug,
     NULL},
    {"NCCL_P2P_DISABLE",
     BRIM_N_("At 1 GPUs exchange data through the host instead of NVLink or PCIe."), true_is_slow,
     NULL},
    {"NCCL_IB_DISABLE", BRIM_N_("At 1 nodes exchange data over TCP instead of InfiniBand."),
     true_is_slow, NULL},
    {"OMP_NUM_THREADS",
     BRIM_N_(
         "More threads than cores wait for each other. One thread leaves the other cores idle in "
         "CPU computations."),
     judge_threads, NULL},
    {"MKL_NUM_THREADS", BRIM_N_("The same for Intel MKL."), judge_threads, NULL},
    {"LD_LIBRARY_PATH",
     BRIM_N_("Folders that are searched first for libraries. A stubs folder has a libcuda.so that "
             "finds "
             "no GPU."),
     judge_library_path,
     "export LD_LIBRARY_PATH=$(echo \"$LD_LIBRARY_PATH\" | tr : '\\n' | grep -v "
     "/stubs | paste -sd:)"},
};

static void check_variables(brim_doctor_exam *e) {
  size_t set = 0;
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
    const variable *v = &variables[i];
    const char *value = brim_doctor_env(e, v->name);
    if (!value) continue;
    brim_doctor_state state = v->judge(e, value);
    char plain[384];
    brim_text_plain(value, plain, sizeof plain);
    brim_doctor_line *line = brim_doctor_say(e, state, "%s=%s", v->name, plain);
    brim_doctor_about(line, v->name);
    brim_doctor_because(line, "%s", brim_tr(v->why));
    set++;
    if (state == BRIM_DOCTOR_GOOD) continue;
    if (v->fix) {
      brim_doctor_fix(line, "%s", v->fix);
    } else {
      brim_doctor_fix(line, "unset %s", v->name);
    }
  }
  if (set == 0) {
    brim_doctor_say(e, BRIM_DOCTOR_GOOD, brim_tr("none of the %zu that brim knows is set"),
                    sizeof variables / sizeof *variables);
  }
}

const brim_doctor_row brim_doctor_env_rows[] = {
    {"env.variable", BRIM_DOCTOR_GROUP_ENV, BRIM_N_("Variable"),
     BRIM_N_(
         "A variable that was set for debugging slows every program that starts in this shell."),
     check_variables},
    {0}};

//---------------------------------- processors ----------------------------------

enum { GOVERNOR_CPUS = 4096, CORES_PER_GPU = 4 };

static void check_cores(brim_doctor_exam *e) {
  char allowed[1024], online[1024];
  int may = brim_doctor_allowed(e, allowed, sizeof allowed) ? brim_doctor_cpu_list(allowed) : -1;
  int online_cores =
      brim_doctor_read_word(e, "/sys/devices/system/cpu/online", online, sizeof online)
          ? brim_doctor_cpu_list(online)
          : -1;
  if (may < 1) {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, brim_tr("%s cannot be read"), "/proc/self/status");
    return;
  }
  int wanted = CORES_PER_GPU * (int)e->gpu_count;
  brim_doctor_state state = may < wanted ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD;
  brim_doctor_line *line =
      online_cores > may
          ? brim_doctor_say(e, state, brim_tr("%d of %d, by affinity or cpuset"), may, online_cores)
          : brim_doctor_say(e, state, "%d", may);
  if (state == BRIM_DOCTOR_GOOD) return;
  brim_doctor_because(line,
                      brim_tr("Loader threads feed the GPU. With fewer than %d cores per GPU, "
                              "decoding and augmentation often bound the step."),
                      CORES_PER_GPU);
  brim_doctor_fix(line, "%s",
                  online_cores > may
                      ? brim_tr("give the process more cores: taskset, --cpuset-cpus (Docker), "
                                "--cpus-per-task (Slurm)")
                      : brim_tr("keep the data on the GPU: data.cache=gpu, or pack it once: "
                                "brim data convert"));
}

// The version 2 cgroup of this process; "/" = the root, or hidden by a namespace.
static bool own_group(const brim_doctor_exam *e, char *out, size_t size) {
  char text[BRIM_DOCTOR_TEXT];
  return brim_doctor_read(e, "/proc/self/cgroup", text, sizeof text) &&
         brim_machine_find_line(text, "0:", out, size);
}

// True if a quota would be visible. Version 2 keeps it in the group's folder, which a sandbox may hide although the top
// folder is there.
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

typedef struct throttling {
  double periods, throttled, seconds;  // NaN = unknown
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

// Finds the most throttled group among the process's own and the groups above it.
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

static void check_load(brim_doctor_exam *e) {
  char text[128], online[1024];
  double load = (double)NAN;
  bool known = brim_doctor_read(e, "/proc/loadavg", text, sizeof text);
  if (known) {
    text[strcspn(text, " \n")] = '\0';
    known = brim_parse_f64(text, &load);
  }
  int online_cores =
      brim_doctor_read_word(e, "/sys/devices/system/cpu/online", online, sizeof online)
          ? brim_doctor_cpu_list(online)
          : -1;
  if (!known || online_cores < 1) {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, brim_tr("%s cannot be read"),
                    known ? "/sys/devices/system/cpu/online" : "/proc/loadavg");
    return;
  }
  brim_doctor_state state = load > (double)online_cores ? BRIM_DOCTOR_WARN : BRIM_DOCTOR_GOOD;
  brim_doctor_line *line = brim_doctor_say(
      e, state, brim_tr("%.3g runnable on %d cores (mean of the last minute)"), load, online_cores);
  if (state == BRIM_DOCTOR_WARN)
    brim_doctor_fix(line, "ps -eo pid,user,pcpu,args --sort=-pcpu | head");
}

static bool cpu_word(const brim_doctor_exam *e, int cpu, const char *file, char *out, size_t size) {
  char path[160];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/%s", cpu, file);
  return brim_doctor_read_word(e, path, out, size);
}

// True if the driver's "powersave" governor follows the load. The energy preference says how quickly it does.
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
      if (cpu >= 256 || cores == 0) break;  // cores may be offline
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

//---------------------------------- WSL2 ----------------------------------
// Linux under Windows: the GPU and the memory that Windows gives it. No lines elsewhere.

static bool is_version_2(const brim_doctor_exam *e) {
  char release[256] = "";
  brim_doctor_read_word(e, "/proc/sys/kernel/osrelease", release, sizeof release);
  return strstr(release, "WSL2") || strstr(release, "microsoft") ||
         brim_doctor_exists(e, "/dev/dxg");
}

static void check_version(brim_doctor_exam *e) {
  if (!e->wsl) return;
  if (is_version_2(e)) {
    brim_doctor_say(e, BRIM_DOCTOR_GOOD, "WSL2");
    return;
  }
  brim_doctor_line *line = brim_doctor_say(e, BRIM_DOCTOR_BAD, "WSL1");
  brim_doctor_fix(line, "%s", brim_tr("in PowerShell: wsl --set-version YOUR_DISTRIBUTION 2"));
}

static void check_gpu(brim_doctor_exam *e) {
  static const char *const own[] = {"/usr/lib/x86_64-linux-gnu/libcuda.so.1",
                                    "/usr/lib/aarch64-linux-gnu/libcuda.so.1"};
  const char *path = brim_doctor_env(e, "LD_LIBRARY_PATH");
  brim_doctor_line *line;
  if (!e->wsl) return;
  for (int i = 0; i < 2; i++) {
    if (!brim_doctor_exists(e, own[i])) continue;
    line = brim_doctor_say(e, BRIM_DOCTOR_BAD,
                           brim_tr("a Linux driver is installed (%s) and hides that of Windows"),
                           own[i]);
    brim_doctor_fix(line, "sudo apt-get remove --purge 'libnvidia-compute-*' 'nvidia-driver-*'");
    return;
  }
  if (e->gpu_count > 0) {
    brim_doctor_say(e, BRIM_DOCTOR_GOOD, "%s", brim_tr("the GPU is passed in from Windows"));
    return;
  }
  if (!brim_doctor_exists(e, "/dev/dxg")) {
    line = brim_doctor_say(e, BRIM_DOCTOR_BAD, "%s",
                           brim_tr("no GPU: /dev/dxg is missing, so Windows passes none in"));
    brim_doctor_fix(
        line, "%s",
        brim_tr("install the NVIDIA driver in Windows (not in Linux); then in PowerShell: "
                "wsl --update\nwsl --shutdown"));
  } else if (!brim_doctor_exists(e, "/usr/lib/wsl/lib/libcuda.so.1")) {
    line = brim_doctor_say(e, BRIM_DOCTOR_BAD, "%s",
                           brim_tr("no GPU: /usr/lib/wsl/lib has no libcuda.so.1"));
    brim_doctor_fix(
        line, "%s",
        brim_tr("install or update the NVIDIA driver in Windows; then in PowerShell: wsl "
                "--shutdown"));
  } else if (!path || !strstr(path, "/usr/lib/wsl/lib")) {
    line = brim_doctor_say(e, BRIM_DOCTOR_BAD, "%s",
                           brim_tr("no GPU, though the driver is in /usr/lib/wsl/lib"));
    brim_doctor_fix(line, "export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH");
  } else {
    line = brim_doctor_say(e, BRIM_DOCTOR_BAD, brim_tr("no GPU: %s"), e->no_gpus);
    brim_doctor_fix(line, "%s", brim_tr("in PowerShell: wsl --update, then wsl --shutdown"));
  }
}

//---------------------------------- memory ----------------------------------

// Reads memory= in the [wsl2] section of a user's .wslconfig. False if there is none.
static bool read_config(const brim_doctor_exam *e, char *out, size_t size) {
  char pattern[BRIM_DOCTOR_PATH], text[4096];
  glob_t found = {0};
  bool known = false;
  snprintf(pattern, sizeof pattern, "%s/mnt/c/Users/*/.wslconfig", e->machine->root);
  if (glob(pattern, 0, NULL, &found) != 0) return false;
  for (size_t i = 0; i < found.gl_pathc && !known; i++) {
    if (!brim_machine_read_text("", found.gl_pathv[i], text, sizeof text)) continue;
    known = brim_machine_find_line(text, "memory", out, size);
  }
  globfree(&found);
  if (known) out[strcspn(out, "\r\n# ")] = '\0';
  return known && out[0];
}

static void wsl_check_memory(brim_doctor_exam *e) {
  brim_machine_memory m;
  char total[32], limit[64];
  if (!e->wsl) return;
  brim_machine_read_memory(e->machine->root, &m);
  if (m.total == 0) {
    brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN, brim_tr("%s cannot be read"), "/proc/meminfo");
    return;
  }
  brim_doctor_bytes((double)m.total, total);
  if (read_config(e, limit, sizeof limit)) {
    brim_doctor_say(e, BRIM_DOCTOR_GOOD, brim_tr("%s; .wslconfig says memory=%s"), total, limit);
    return;
  }
  bool drives = brim_doctor_exists(e, "/mnt/c/Users");
  brim_doctor_line *line =
      drives
          ? brim_doctor_say(
                e, BRIM_DOCTOR_WARN,
                brim_tr("%s: no .wslconfig sets a limit, so it is half of Windows' memory"), total)
          : brim_doctor_say(e, BRIM_DOCTOR_UNKNOWN,
                            brim_tr("%s; whether .wslconfig sets a limit cannot be seen: /mnt/c is "
                                    "not mounted"),
                            total);
  // WSL2 takes half by default, so Windows has about twice as much; leave it 4 GB
  double windows = ceil(2 * (double)m.total / GIB), take = windows - 4;
  if (take * GIB < (double)m.total) take = floor((double)m.total / GIB);
  if (take < 1) take = 1;
  brim_doctor_fix(line,
                  brim_tr("in C:\\Users\\YOUR_NAME\\.wslconfig, if Windows has %.0f GB:\n[wsl2]\n"
                          "memory=%.0fGB\nswap=8GB\nthen in PowerShell: wsl --shutdown"),
                  windows, take);
}

const brim_doctor_row brim_doctor_wsl_rows[] = {
    {"wsl.version", BRIM_DOCTOR_GROUP_WSL, BRIM_N_("Version"),
     BRIM_N_("Only WSL2 has a Linux kernel that can use the GPU."), check_version},
    {"wsl.gpu", BRIM_DOCTOR_GROUP_WSL, BRIM_N_("GPU"),
     BRIM_N_("Linux under Windows uses the driver of Windows, by /dev/dxg and /usr/lib/wsl/lib."),
     check_gpu},
    {"wsl.memory", BRIM_DOCTOR_GROUP_WSL, BRIM_N_("Memory"),
     BRIM_N_(
         "WSL2 gives Linux only a part of the memory. brim plans with that part, and the kernel "
         "kills a process that exceeds it."),
     wsl_check_memory},
    {0}};
