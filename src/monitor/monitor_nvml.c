// NVML (libnvidia-ml.so.1) opened at run time; by it and /proc the memory of NVIDIA GPUs and the processes that hold
// it. A call that is missing costs what it would have told, nothing else. It creates no context: asking costs the GPU
// nothing.

#include "monitor/monitor_int.h"

#include <ctype.h>
#include <fcntl.h>
#include <math.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

//-------------------------------------------- calls --------------------------------------------
// NVML's names of the calls in brim_nvml_api. All but the first three are optional: a library without
// one costs what that call would have told.

typedef struct nvml_call {
  const char *name;
  size_t offset;
  bool required;
} nvml_call;

#define AT(member) offsetof(brim_nvml_api, member)

static const nvml_call nvml_calls[] = {
    {"nvmlInit_v2", AT(init), true},
    {"nvmlShutdown", AT(shutdown), true},
    {"nvmlDeviceGetHandleByUUID", AT(by_uuid), true},
    {"nvmlErrorString", AT(error_string), false},
    {"nvmlSystemGetDriverVersion", AT(driver_version), false},
    {"nvmlDeviceGetMemoryInfo_v2", AT(memory_v2), false},
    {"nvmlDeviceGetMemoryInfo", AT(memory), false},
    {"nvmlDeviceGetComputeRunningProcesses_v3", AT(compute), false},
    {"nvmlDeviceGetGraphicsRunningProcesses_v3", AT(graphics), false},
    {"nvmlDeviceGetUtilizationRates", AT(utilisation), false},
    {"nvmlDeviceGetPowerUsage", AT(power), false},
    {"nvmlDeviceGetEnforcedPowerLimit", AT(power_limit), false},
    {"nvmlDeviceGetTotalEnergyConsumption", AT(energy), false},
    {"nvmlDeviceGetClockInfo", AT(clock), false},
    {"nvmlDeviceGetMaxClockInfo", AT(clock_max), false},
    {"nvmlDeviceGetCurrentClocksEventReasons", AT(event_reasons), false},
    {"nvmlDeviceGetCurrentClocksThrottleReasons", AT(throttle_reasons), false},
    {"nvmlDeviceGetTemperature", AT(temperature), false},
    {"nvmlDeviceGetTemperatureV", AT(temperature_v), false},
    {"nvmlGpmQueryDeviceSupport", AT(gpm_support), false},
    {"nvmlGpmSampleAlloc", AT(gpm_alloc), false},
    {"nvmlGpmSampleFree", AT(gpm_free), false},
    {"nvmlGpmSampleGet", AT(gpm_sample), false},
    {"nvmlGpmMetricsGet", AT(gpm_metrics), false},
    {"nvmlDeviceGetCount_v2", AT(device_count), false},
    {"nvmlDeviceGetHandleByIndex_v2", AT(by_index), false},
    {"nvmlDeviceGetUUID", AT(uuid), false},
    {"nvmlDeviceGetName", AT(name), false},
    {"nvmlDeviceGetMigMode", AT(mig_mode), false},
    {"nvmlDeviceGetMaxMigDeviceCount", AT(mig_count), false},
    {"nvmlDeviceGetMigDeviceHandleByIndex", AT(mig_by_index), false},
    {"nvmlSystemGetCudaDriverVersion_v2", AT(cuda_version), false},
    {"nvmlDeviceGetGpuInstanceId", AT(gpu_instance), false},
    {"nvmlGpmMigSampleGet", AT(gpm_mig_sample), false},
    {"nvmlDeviceGetPciInfo_v3", AT(pci), false},
    {"nvmlDeviceGetPowerManagementDefaultLimit", AT(power_default), false},
    {"nvmlDeviceGetPowerManagementLimitConstraints", AT(power_bounds), false},
    {"nvmlDeviceGetTemperatureThreshold", AT(threshold), false},
    {"nvmlDeviceGetEncoderUtilization", AT(encoder), false},
    {"nvmlDeviceGetDecoderUtilization", AT(decoder), false},
    {"nvmlDeviceGetJpgUtilization", AT(jpeg), false},
    {"nvmlDeviceGetOfaUtilization", AT(ofa), false},
    {"nvmlDeviceGetBAR1MemoryInfo", AT(bar1), false},
    {"nvmlDeviceGetConfComputeProtectedMemoryUsage", AT(protected_memory), false},
    {"nvmlDeviceGetViolationStatus", AT(violation), false},
    {"nvmlDeviceGetEccMode", AT(ecc_mode), false},
    {"nvmlDeviceGetTotalEccErrors", AT(ecc_errors), false},
    {"nvmlDeviceGetPcieReplayCounter", AT(pcie_replays), false},
    {"nvmlDeviceGetPcieThroughput", AT(pcie_throughput), false},
    {"nvmlDeviceGetCurrPcieLinkGeneration", AT(pcie_generation), false},
    {"nvmlDeviceGetCurrPcieLinkWidth", AT(pcie_width), false},
    {"nvmlDeviceGetMaxPcieLinkGeneration", AT(pcie_generation_max), false},
    {"nvmlDeviceGetMaxPcieLinkWidth", AT(pcie_width_max), false},
    {"nvmlDeviceGetPerformanceState", AT(performance_state), false},
    {"nvmlDeviceGetPersistenceMode", AT(persistence), false},
    {"nvmlDeviceGetComputeMode", AT(compute_mode), false},
    {"nvmlDeviceGetFanSpeed", AT(fan), false},
    {"nvmlDeviceGetRemappedRows", AT(remapped_rows), false},
    {"nvmlDeviceGetRetiredPages", AT(retired_pages), false},
    {"nvmlDeviceGetRetiredPagesPendingStatus", AT(retired_pending), false},
    {"nvmlDeviceGetFieldValues", AT(fields), false},
    {"nvmlDeviceGetMPSComputeRunningProcesses_v3", AT(mps), false},
    {"nvmlDeviceGetProcessUtilization", AT(process_use), false},
    {"nvmlDeviceGetProcessesUtilizationInfo", AT(processes_use), false},
    {"nvmlEventSetCreate", AT(event_create), false},
    {"nvmlEventSetFree", AT(event_free), false},
    {"nvmlDeviceRegisterEvents", AT(event_register), false},
    {"nvmlEventSetWait_v2", AT(event_wait), false},
};

static size_t brim_nvml_symbols(brim_nvml_api *api, brim_dl_symbol *out) {
  const size_t count = sizeof nvml_calls / sizeof *nvml_calls;
  _Static_assert(sizeof nvml_calls / sizeof *nvml_calls <= (size_t)BRIM_NVML_MAX_CALLS,
                 "too many calls");
  for (size_t i = 0; i < count; i++) {
    void **place = (void **)((uintptr_t)api + nvml_calls[i].offset);
    out[i] = (brim_dl_symbol){nvml_calls[i].name, place, nvml_calls[i].required};
  }
  return count;
}

//------------------------------------------- library -------------------------------------------

enum { PATH_BYTES = 320, FIRST_PROCESSES = 16, MAX_PROCESSES = 65536 };

const char *brim_gpu_error_text(const brim_gpu_monitor *monitor, int code) {
  const char *text = monitor->api.error_string ? monitor->api.error_string(code) : NULL;
  return text ? text : "failed";
}

static brim_status fail_nvml(const brim_gpu_monitor *m, const char *what, int code) {
  return brim_fail(BRIM_EUNSUPPORTED, "NVML: %s: %s (%d)", what, brim_gpu_error_text(m, code),
                   code);
}

//---------------------------------- opening ----------------------------------

static brim_status start(brim_gpu_monitor *m, brim_gpu_monitor **out) {
  int code = m->api.init();
  if (code != BRIM_NVML_SUCCESS) {
    brim_status status = fail_nvml(m, "nvmlInit", code);
    brim_dl_close(m->dl);
    brim_free(m);
    return status;
  }
  pthread_mutex_init(&m->gpm, NULL);
  *out = m;
  return BRIM_OK;
}

brim_status brim_gpu_monitor_open(brim_gpu_monitor **out) {
  static const char *const names[] = {"libnvidia-ml.so.1", NULL};
  *out = NULL;
  brim_gpu_monitor *m = (brim_gpu_monitor *)brim_calloc(1, sizeof *m);
  if (!m) return brim_fail(BRIM_ENOMEM, "out of memory while opening NVML");
  brim_dl_symbol symbols[BRIM_NVML_MAX_CALLS];
  size_t count = brim_nvml_symbols(&m->api, symbols);
  brim_status status = brim_dl_open(names, symbols, count, true, &m->dl);
  if (status) {
    brim_free(m);
    return status == BRIM_ENOENT ? BRIM_EUNSUPPORTED : status;
  }
  return start(m, out);
}

brim_status brim_gpu_monitor_open_api(const brim_nvml_api *api, const char *root,
                                      brim_gpu_monitor **out) {
  *out = NULL;
  if (strlen(root) >= BRIM_GPU_ROOT_BYTES) {
    return brim_fail(BRIM_EINVAL, "the name of the folder that holds proc is too long");
  }
  brim_gpu_monitor *m = (brim_gpu_monitor *)brim_calloc(1, sizeof *m);
  if (!m) return brim_fail(BRIM_ENOMEM, "out of memory while opening NVML");
  m->api = *api;
  snprintf(m->root, sizeof m->root, "%s", root);
  return start(m, out);
}

void brim_gpu_monitor_close(brim_gpu_monitor *monitor) {
  if (!monitor) return;
  monitor->api.shutdown();
  pthread_mutex_destroy(&monitor->gpm);
  brim_dl_close(monitor->dl);
  brim_free(monitor);
}

void brim_gpu_driver(brim_gpu_monitor *monitor, char *out, size_t size) {
  out[0] = '\0';
  if (!monitor->api.driver_version) return;
  char text[96] = "";
  if (monitor->api.driver_version(text, sizeof text - 1) != BRIM_NVML_SUCCESS) return;
  snprintf(out, size, "%s", text);
}

// A slice of a GPU has an id of the same form behind another word.
brim_status brim_gpu_find(brim_gpu_monitor *monitor, const char *uuid, void **device, bool *slice) {
  bool is_slice = brim_str_starts(uuid, "MIG-");
  int code = monitor->api.by_uuid(uuid, device);
  if (code != BRIM_NVML_SUCCESS && brim_str_starts(uuid, "GPU-")) {
    char name[96];
    snprintf(name, sizeof name, "MIG-%s", uuid + 4);
    is_slice = monitor->api.by_uuid(name, device) == BRIM_NVML_SUCCESS;
    if (is_slice) code = BRIM_NVML_SUCCESS;
  }
  if (slice) *slice = is_slice;
  return code == BRIM_NVML_SUCCESS ? BRIM_OK : fail_nvml(monitor, uuid, code);
}

//---------------------------------- memory ----------------------------------

static double known(unsigned long long bytes) {
  return bytes == BRIM_NVML_UNKNOWN ? (double)NAN : (double)bytes;
}

brim_status brim_gpu_read_memory(brim_gpu_monitor *monitor, const char *uuid,
                                 brim_gpu_memory *out) {
  *out = (brim_gpu_memory){(double)NAN, (double)NAN, (double)NAN, (double)NAN};
  void *device = NULL;
  BRIM_TRY(brim_gpu_find(monitor, uuid, &device, NULL));
  int code = BRIM_NVML_NOT_SUPPORTED;
  if (monitor->api.memory_v2) {
    brim_nvml_memory_v2 v2 = {.version = BRIM_NVML_MEMORY_V2_VERSION};
    code = monitor->api.memory_v2(device, &v2);
    if (code == BRIM_NVML_SUCCESS) {
      *out = (brim_gpu_memory){known(v2.total), known(v2.reserved), known(v2.free), known(v2.used)};
      return BRIM_OK;
    }
  }
  if (monitor->api.memory) {
    brim_nvml_memory v1 = {0};
    code = monitor->api.memory(device, &v1);
    if (code == BRIM_NVML_SUCCESS) {
      *out = (brim_gpu_memory){known(v1.total), (double)NAN, known(v1.free), known(v1.used)};
      return BRIM_OK;
    }
  }
  return fail_nvml(monitor, "memory", code);
}

//---------------------------------- names of processes ----------------------------------

// Arguments stand one after another, each ended by a NUL.
static size_t read_arguments(const char *path, char *out, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t got = read(fd, out, size - 1);
  close(fd);
  size_t n = got > 0 ? (size_t)got : 0;
  while (n > 0 && out[n - 1] == '\0') n--;
  for (size_t i = 0; i < n; i++) {
    if (out[i] == '\0') out[i] = ' ';
    if (iscntrl((unsigned char)out[i])) out[i] = '?';
  }
  out[n] = '\0';
  return n;
}

// "/usr/bin/python3 train.py --x" as "python3 train.py --x"; the kernel's short name without a
// command line (a process that is ending, a kernel thread).
static void read_command(const char *root, brim_gpu_process *p) {
  char path[PATH_BYTES], text[512];
  snprintf(path, sizeof path, "%s/proc/%u/cmdline", root, p->pid);
  if (read_arguments(path, text, sizeof text) == 0) {
    snprintf(path, sizeof path, "/proc/%u/comm", p->pid);
    if (!brim_machine_read_text(root, path, text, sizeof text)) return;
    text[strcspn(text, "\n")] = '\0';
  }
  size_t first = strcspn(text, " ");
  const char *start_of = text;
  for (const char *c = text; c < text + first; c++) {
    if (*c == '/') start_of = c + 1;
  }
  // cut to what a message has room for
  int n = snprintf(p->command, sizeof p->command, "%s", start_of);
  if (n >= (int)sizeof p->command) memcpy(p->command + sizeof p->command - 4, "...", 4);
  if (!brim_utf8_valid(p->command, strlen(p->command))) {
    for (char *c = p->command; *c; c++) {
      if ((unsigned char)*c >= 0x80) *c = '?';
    }
  }
}

static void read_user(uid_t uid, brim_gpu_process *p) {
  struct passwd entry, *found = NULL;
  char text[2048];
  if (getpwuid_r(uid, &entry, text, sizeof text, &found) == 0 && found) {
    snprintf(p->user, sizeof p->user, "%s", entry.pw_name);
  } else {
    snprintf(p->user, sizeof p->user, "uid %u", (unsigned)uid);
  }
}

void brim_gpu_identify(const char *root, brim_gpu_process *p) {
  char path[PATH_BYTES];
  struct stat about;
  p->self = p->pid == (uint32_t)getpid();
  snprintf(path, sizeof path, "%s/proc/%u", root, p->pid);
  if (p->pid == 0 || stat(path, &about) != 0) {
    p->elsewhere = !p->self;
    return;
  }
  read_command(root, p);
  read_user(about.st_uid, p);
}

void brim_gpu_process_text(const brim_gpu_process *process, char *out, size_t size) {
  if (process->elsewhere) {
    snprintf(out, size, brim_tr("another container's process (pid %u)"), process->pid);
  } else if (process->self) {
    snprintf(out, size, "%s", brim_tr("this process"));
  } else {
    bool user = process->user[0] != '\0';
    snprintf(out, size, "pid %u%s%s%s%s%s", process->pid, process->command[0] ? " " : "",
             process->command, user ? " (" : "", process->user, user ? ")" : "");
  }
}

//---------------------------------- the list ----------------------------------

// Processes come and go between asking how many and asking which.
int brim_gpu_read_list(brim_nvml_list_call call, void *device, brim_nvml_process **out,
                       unsigned *count) {
  unsigned room = FIRST_PROCESSES;
  for (int tries = 0; tries < 6; tries++) {
    brim_nvml_process *list = (brim_nvml_process *)brim_calloc(room, sizeof *list);
    if (!list) return BRIM_GPU_LIST_NO_MEMORY;
    unsigned n = room;
    int code = call(device, &n, list);
    if (code == BRIM_NVML_SUCCESS) {
      *out = list;
      *count = n < room ? n : room;
      return code;
    }
    brim_free(list);
    if (code != BRIM_NVML_INSUFFICIENT_SIZE) return code;
    room = (n > room ? n : room * 2) + 8;
    if (room > MAX_PROCESSES) return code;
  }
  return BRIM_NVML_INSUFFICIENT_SIZE;
}

// A process that computes and draws stands in both lists with the same figure.
static void take(brim_gpu_process *to, size_t *count, const brim_nvml_process *from,
                 bool computes) {
  double bytes = known(from->used_bytes);
  for (size_t i = 0; i < *count; i++) {
    if (to[i].pid != from->pid || from->pid == 0) continue;
    to[i].computes = to[i].computes || computes;
    to[i].bytes = isnan(to[i].bytes) ? bytes : fmax(to[i].bytes, isnan(bytes) ? 0 : bytes);
    return;
  }
  brim_gpu_process *p = &to[(*count)++];
  memset(p, 0, sizeof *p);
  p->pid = from->pid;
  p->bytes = bytes;
  p->computes = computes;
}

static int by_size(const void *a, const void *b) {
  const brim_gpu_process *x = (const brim_gpu_process *)a, *y = (const brim_gpu_process *)b;
  double l = isnan(x->bytes) ? -1 : x->bytes, r = isnan(y->bytes) ? -1 : y->bytes;
  if (l != r) return l < r ? 1 : -1;
  return x->pid < y->pid ? -1 : x->pid > y->pid;
}

brim_status brim_gpu_read_processes(brim_gpu_monitor *monitor, const char *uuid,
                                    brim_gpu_process **out, size_t *count) {
  *out = NULL;
  *count = 0;
  void *device = NULL;
  BRIM_TRY(brim_gpu_find(monitor, uuid, &device, NULL));
  const brim_nvml_list_call lists_of[] = {monitor->api.compute, monitor->api.graphics};
  brim_nvml_process *lists[2] = {NULL, NULL};
  unsigned counts[2] = {0, 0};
  // the list of those that compute is the one that counts; without the other some may be missing
  int codes[2] = {BRIM_NVML_NOT_SUPPORTED, BRIM_NVML_NOT_SUPPORTED};
  for (int i = 0; i < 2; i++) {
    if (lists_of[i]) codes[i] = brim_gpu_read_list(lists_of[i], device, &lists[i], &counts[i]);
  }
  brim_status status = BRIM_OK;
  if (codes[0] == BRIM_GPU_LIST_NO_MEMORY || codes[1] == BRIM_GPU_LIST_NO_MEMORY) {
    status = brim_fail(BRIM_ENOMEM, "out of memory for the processes of a GPU");
  } else if (codes[0] != BRIM_NVML_SUCCESS) {
    status = fail_nvml(monitor, "processes", codes[0]);
  } else if (counts[0] + counts[1] > 0) {
    *out = (brim_gpu_process *)brim_calloc(counts[0] + counts[1], sizeof **out);
    if (!*out) status = brim_fail(BRIM_ENOMEM, "out of memory for the processes of a GPU");
  }
  for (int i = 0; i < 2; i++) {
    for (unsigned k = 0; k < counts[i] && *out; k++) take(*out, count, &lists[i][k], i == 0);
    brim_free(lists[i]);
  }
  for (size_t i = 0; i < *count; i++) brim_gpu_identify(monitor->root, &(*out)[i]);
  if (*count > 1) qsort(*out, *count, sizeof **out, by_size);
  return status;
}
