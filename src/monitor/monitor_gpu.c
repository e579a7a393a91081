// Reads NVIDIA GPUs through NVML, which is opened at run time: the list of GPUs, memory, processes, setup,
// activity counters. If the library lacks a call, only the values of that call are unknown. No CUDA context is
// created.
#include <ctype.h>
#include <fcntl.h>
#include <math.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "monitor/monitor_int.h"

//---------------------------------- opening ----------------------------------

// NVML's names of the calls in brim_nvml_api.
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

enum { NVML_CALLS = sizeof nvml_calls / sizeof *nvml_calls };

enum { PATH_BYTES = 320, FIRST_PROCESSES = 16, MAX_PROCESSES = 65536 };

const char *brim_gpu_error_text(const brim_gpu_monitor *monitor, int code) {
  const char *text = monitor->api.error_string ? monitor->api.error_string(code) : NULL;
  return text ? text : "failed";
}

static brim_status fail_nvml(const brim_gpu_monitor *m, const char *what, int code) {
  return brim_fail(BRIM_EUNSUPPORTED, "NVML: %s: %s (%d)", what, brim_gpu_error_text(m, code),
                   code);
}

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
  brim_dl_symbol symbols[NVML_CALLS];
  for (size_t i = 0; i < NVML_CALLS; i++) {
    void **place = (void **)((uintptr_t)&m->api + nvml_calls[i].offset);
    symbols[i] = (brim_dl_symbol){nvml_calls[i].name, place, nvml_calls[i].required};
  }
  brim_status status = brim_dl_open(names, symbols, NVML_CALLS, true, &m->dl);
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

static double bytes_of(unsigned long long bytes) {
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
      *out = (brim_gpu_memory){bytes_of(v2.total), bytes_of(v2.reserved), bytes_of(v2.free),
                               bytes_of(v2.used)};
      return BRIM_OK;
    }
  }
  if (monitor->api.memory) {
    brim_nvml_memory v1 = {0};
    code = monitor->api.memory(device, &v1);
    if (code == BRIM_NVML_SUCCESS) {
      *out =
          (brim_gpu_memory){bytes_of(v1.total), (double)NAN, bytes_of(v1.free), bytes_of(v1.used)};
      return BRIM_OK;
    }
  }
  return fail_nvml(monitor, "memory", code);
}

//---------------------------------- processes ----------------------------------

// Reads a command line, whose arguments end in NULs, as one text.
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

// "/usr/bin/python3 train.py --x" becomes "python3 train.py --x". A process without a command line (ending, or a
// kernel thread) gets the kernel's short name.
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
  // shorten with "..."
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

// The number of processes can change between the calls, so try again with more room.
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

// Adds a process, or merges it with its entry of the other list.
static void add_process(brim_gpu_process *to, size_t *count, const brim_nvml_process *from,
                        bool computes) {
  double bytes = bytes_of(from->used_bytes);
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
  // fail only if the list of computing processes is missing
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
    for (unsigned k = 0; k < counts[i] && *out; k++) add_process(*out, count, &lists[i][k], i == 0);
    brim_free(lists[i]);
  }
  for (size_t i = 0; i < *count; i++) brim_gpu_identify(monitor->root, &(*out)[i]);
  if (*count > 1) qsort(*out, *count, sizeof **out, by_size);
  return status;
}

//---------------------------------- the GPUs of this machine ----------------------------------

enum { MAX_GPUS = 256 };

typedef struct listing {
  brim_gpu_monitor *monitor;
  brim_gpu_listed *items;
  size_t count, room;
} listing;

static brim_status add(listing *l, void *device, bool slice) {
  brim_gpu_listed item = {.slice = slice};
  const brim_nvml_api *api = &l->monitor->api;
  if (api->uuid(device, item.uuid, sizeof item.uuid - 1) != BRIM_NVML_SUCCESS) return BRIM_OK;
  if (!item.uuid[0]) return BRIM_OK;
  if (!api->name || api->name(device, item.name, sizeof item.name - 1) != BRIM_NVML_SUCCESS) {
    item.name[0] = '\0';
  }
  if (l->count == l->room) {
    size_t room = l->room ? l->room * 2 : 8;
    brim_gpu_listed *items = (brim_gpu_listed *)brim_realloc(l->items, room * sizeof *items);
    if (!items) return brim_fail(BRIM_ENOMEM, "out of memory for the list of GPUs");
    l->items = items;
    l->room = room;
  }
  l->items[l->count++] = item;
  return BRIM_OK;
}

int brim_gpu_mig_slots(const brim_nvml_api *api, void *device) {
  unsigned now = 0, pending = 0, slots = 0;
  if (!api->mig_mode || !api->mig_count || !api->mig_by_index) return -1;
  if (api->mig_mode(device, &now, &pending) != BRIM_NVML_SUCCESS || now != 1) return -1;
  if (api->mig_count(device, &slots) != BRIM_NVML_SUCCESS) return 0;
  return slots < 64 ? (int)slots : 64;
}

static brim_status add_all(listing *l, unsigned count) {
  const brim_nvml_api *api = &l->monitor->api;
  for (unsigned i = 0; i < count && i < MAX_GPUS; i++) {
    void *device = NULL, *slice = NULL;
    if (api->by_index(i, &device) != BRIM_NVML_SUCCESS) continue;
    const int slots = brim_gpu_mig_slots(api, device);
    if (slots < 0) BRIM_TRY(add(l, device, false));
    // a GPU in MIG mode runs nothing itself: list its slices; empty slots answer NOT_FOUND
    for (int k = 0; k < slots; k++) {
      if (api->mig_by_index(device, (unsigned)k, &slice) != BRIM_NVML_SUCCESS) continue;
      BRIM_TRY(add(l, slice, true));
    }
  }
  return BRIM_OK;
}

brim_status brim_gpu_list(brim_gpu_monitor *monitor, brim_gpu_listed **out, size_t *count) {
  *out = NULL;
  *count = 0;
  const brim_nvml_api *api = &monitor->api;
  unsigned n = 0;
  int code = BRIM_NVML_NOT_SUPPORTED;
  if (api->device_count && api->by_index && api->uuid) code = api->device_count(&n);
  if (code != BRIM_NVML_SUCCESS) {
    return fail_nvml(monitor, "nvmlDeviceGetCount", code);
  }
  listing l = {.monitor = monitor};
  brim_status status = add_all(&l, n);
  if (status) {
    brim_free(l.items);
    return status;
  }
  *out = l.items;
  *count = l.count;
  return BRIM_OK;
}

//---------------------------------- how a GPU is set up ----------------------------------

typedef int (*unsigned_call)(void *device, unsigned *out);

static double number_of(unsigned_call call, void *device, double scale) {
  unsigned value = 0;
  if (!call || call(device, &value) != BRIM_NVML_SUCCESS) return (double)NAN;
  return (double)value * scale;
}

static int count_of(unsigned_call call, void *device) {
  double value = number_of(call, device, 1);
  return value > 0 && value < 1000 ? (int)value : -1;
}

static brim_gpu_switch switch_of(unsigned value) {
  return value ? BRIM_GPU_SWITCH_ON : BRIM_GPU_SWITCH_OFF;
}

// Converts NVML's "00000000:3B:00.0" to "0000:3b:00.0", as sysfs spells it.
static void read_bus(const brim_nvml_api *api, void *device, brim_gpu_setup *out) {
  brim_nvml_pci pci;
  memset(&pci, 0, sizeof pci);
  if (!api->pci || api->pci(device, &pci) != BRIM_NVML_SUCCESS) return;
  pci.bus_id[sizeof pci.bus_id - 1] = '\0';
  size_t domain = strcspn(pci.bus_id, ":");
  const char *from = pci.bus_id;
  if (domain == 8 && strncmp(from, "0000", 4) == 0) from += 4;
  snprintf(out->bus_id, sizeof out->bus_id, "%s", from);
  for (char *c = out->bus_id; *c; c++) *c = (char)tolower((unsigned char)*c);
}

static double errors_of(const brim_nvml_api *api, void *device, int type) {
  unsigned long long count = 0;
  if (!api->ecc_errors ||
      api->ecc_errors(device, type, BRIM_NVML_ECC_VOLATILE, &count) != BRIM_NVML_SUCCESS) {
    return (double)NAN;
  }
  return (double)count;
}

static void read_health(const brim_nvml_api *api, void *device, brim_gpu_setup *out) {
  unsigned now = 0, pending = 0;
  unsigned corrected = 0, uncorrected = 0, waits = 0, failed = 0;
  if (api->ecc_mode && api->ecc_mode(device, &now, &pending) == BRIM_NVML_SUCCESS) {
    out->ecc = switch_of(now);
    out->ecc_pending = switch_of(pending);
  }
  out->ecc_corrected = errors_of(api, device, BRIM_NVML_ECC_CORRECTED);
  out->ecc_uncorrected = errors_of(api, device, BRIM_NVML_ECC_UNCORRECTED);
  if (api->remapped_rows &&
      api->remapped_rows(device, &corrected, &uncorrected, &waits, &failed) == BRIM_NVML_SUCCESS) {
    out->rows_remapped = (double)corrected + (double)uncorrected;
    out->remap_pending = switch_of(waits);
    out->remap_failed = switch_of(failed);
  }
}

static void read_modes(const brim_nvml_api *api, void *device, brim_gpu_setup *out) {
  unsigned now = 0, pending = 0, mode = 0;
  if (api->mig_mode && api->mig_mode(device, &now, &pending) == BRIM_NVML_SUCCESS) {
    out->mig = switch_of(now);
  }
  if (api->persistence && api->persistence(device, &mode) == BRIM_NVML_SUCCESS) {
    out->persistence = switch_of(mode);
  }
  if (api->compute_mode && api->compute_mode(device, &mode) == BRIM_NVML_SUCCESS) {
    out->compute_mode = mode == BRIM_NVML_COMPUTE_DEFAULT      ? BRIM_GPU_COMPUTE_SHARED
                        : mode == BRIM_NVML_COMPUTE_PROHIBITED ? BRIM_GPU_COMPUTE_PROHIBITED
                                                               : BRIM_GPU_COMPUTE_EXCLUSIVE;
  }
}

static void read_clocks(const brim_nvml_api *api, void *device, brim_gpu_setup *out) {
  unsigned value = 0, state = 0;
  unsigned long long reasons = 0;
  if (api->clock && api->clock(device, BRIM_NVML_CLOCK_SM, &value) == BRIM_NVML_SUCCESS) {
    out->clock_mhz = (double)value;
  }
  if (api->clock_max && api->clock_max(device, BRIM_NVML_CLOCK_SM, &value) == BRIM_NVML_SUCCESS) {
    out->clock_max_mhz = (double)value;
  }
  if (api->temperature &&
      api->temperature(device, BRIM_NVML_TEMPERATURE_GPU, &value) == BRIM_NVML_SUCCESS) {
    out->temperature_c = (double)value;
  }
  if (api->threshold &&
      api->threshold(device, BRIM_NVML_THRESHOLD_SLOWDOWN, &value) == BRIM_NVML_SUCCESS) {
    out->slowdown_c = (double)value;
  }
  if (api->performance_state && api->performance_state(device, &state) == BRIM_NVML_SUCCESS &&
      state < 16) {
    out->performance_state = (int)state;
  }
  int (*ask)(void *, unsigned long long *) =
      api->event_reasons ? api->event_reasons : api->throttle_reasons;
  if (!ask || ask(device, &reasons) != BRIM_NVML_SUCCESS) return;
  out->reasons_known = true;
  out->idle = (reasons & BRIM_NVML_REASON_IDLE) != 0;
  out->throttle = brim_throttle_bits(reasons);
}

brim_status brim_gpu_read_setup(brim_gpu_monitor *monitor, const char *uuid, brim_gpu_setup *out) {
  void *device = NULL;
  *out = (brim_gpu_setup){.ecc_corrected = (double)NAN,
                          .ecc_uncorrected = (double)NAN,
                          .rows_remapped = (double)NAN,
                          .power_limit_w = (double)NAN,
                          .power_default_w = (double)NAN,
                          .clock_mhz = (double)NAN,
                          .clock_max_mhz = (double)NAN,
                          .temperature_c = (double)NAN,
                          .slowdown_c = (double)NAN,
                          .pcie_generation = -1,
                          .pcie_generation_max = -1,
                          .pcie_width = -1,
                          .pcie_width_max = -1,
                          .performance_state = -1};
  BRIM_TRY(brim_gpu_find(monitor, uuid, &device, NULL));
  const brim_nvml_api *api = &monitor->api;
  read_bus(api, device, out);
  read_health(api, device, out);
  read_modes(api, device, out);
  out->power_limit_w = number_of(api->power_limit, device, 1e-3);
  out->power_default_w = number_of(api->power_default, device, 1e-3);
  read_clocks(api, device, out);
  out->pcie_generation = count_of(api->pcie_generation, device);
  out->pcie_generation_max = count_of(api->pcie_generation_max, device);
  out->pcie_width = count_of(api->pcie_width, device);
  out->pcie_width_max = count_of(api->pcie_width_max, device);
  return BRIM_OK;
}

int brim_gpu_cuda_version(brim_gpu_monitor *monitor) {
  int version = 0;
  if (!monitor->api.cuda_version || monitor->api.cuda_version(&version) != BRIM_NVML_SUCCESS) {
    return 0;
  }
  return version > 0 ? version : 0;
}

//---------------------------------- activity counters ----------------------------------
// GPM: counters of a GPU's activity, compared between two samples. Calls are serialised for the whole monitor, because
// NVML does not promise that they are thread-safe.

bool brim_nvml_is_final(int code) {
  return code == BRIM_NVML_INVALID_ARGUMENT || code == BRIM_NVML_NOT_SUPPORTED ||
         code == BRIM_NVML_NO_PERMISSION || code == BRIM_NVML_FUNCTION_NOT_FOUND ||
         code == BRIM_NVML_VERSION_MISMATCH || code == BRIM_NVML_DEPRECATED;
}

bool brim_nvml_is_lost(int code) {
  return code == BRIM_NVML_GPU_IS_LOST || code == BRIM_NVML_RESET_REQUIRED ||
         code == BRIM_NVML_UNINITIALIZED || code == BRIM_NVML_DRIVER_NOT_LOADED;
}

void brim_gpm_open(brim_gpm *gpm, brim_gpu_monitor *monitor, void *device,
                   const unsigned *instance) {
  const brim_nvml_api *a = &monitor->api;
  memset(gpm, 0, sizeof *gpm);
  gpm->monitor = monitor;
  gpm->device = device;
  brim_nvml_gpm_support support = {.version = BRIM_NVML_GPM_SUPPORT_VERSION};
  if (!a->gpm_support || !a->gpm_alloc || !a->gpm_free || !a->gpm_sample || !a->gpm_metrics) return;
  pthread_mutex_lock(&monitor->gpm);
  bool can = a->gpm_support(device, &support) == BRIM_NVML_SUCCESS && support.supported;
  if (can && a->gpm_alloc(&gpm->first) != BRIM_NVML_SUCCESS) gpm->first = NULL;
  if (gpm->first && a->gpm_alloc(&gpm->second) != BRIM_NVML_SUCCESS) gpm->second = NULL;
  pthread_mutex_unlock(&monitor->gpm);
  gpm->on = gpm->second != NULL;
  if (!instance) return;
  gpm->slice = true;
  gpm->instance = *instance;
  gpm->on = gpm->on && a->gpm_mig_sample != NULL;
}

void brim_gpm_close(brim_gpm *gpm) {
  if (!gpm->monitor) return;
  const brim_nvml_api *a = &gpm->monitor->api;
  pthread_mutex_lock(&gpm->monitor->gpm);
  if (gpm->first) a->gpm_free(gpm->first);
  if (gpm->second) a->gpm_free(gpm->second);
  pthread_mutex_unlock(&gpm->monitor->gpm);
  memset(gpm, 0, sizeof *gpm);
}

int brim_gpm_take(brim_gpm *gpm, void *sample, int64_t *time_ns) {
  if (!gpm->on) return BRIM_NVML_NOT_SUPPORTED;
  const brim_nvml_api *a = &gpm->monitor->api;
  pthread_mutex_lock(&gpm->monitor->gpm);
  int code = gpm->slice ? a->gpm_mig_sample(gpm->device, gpm->instance, sample)
                        : a->gpm_sample(gpm->device, sample);
  *time_ns = a->now_ns ? a->now_ns() : brim_clock_now().ns;
  pthread_mutex_unlock(&gpm->monitor->gpm);
  if (brim_nvml_is_final(code)) gpm->on = false;
  return code;
}

int brim_gpm_between(brim_gpm *gpm, const unsigned *ids, double *values, unsigned count) {
  brim_nvml_gpm_metrics *m = &gpm->metrics;
  memset(m, 0, offsetof(brim_nvml_gpm_metrics, metric) + count * sizeof m->metric[0]);
  m->version = BRIM_NVML_GPM_METRICS_VERSION;
  m->count = count;
  m->first = gpm->first;
  m->second = gpm->second;
  for (unsigned i = 0; i < count; i++) {
    m->metric[i].id = ids[i];
    values[i] = (double)NAN;
  }
  pthread_mutex_lock(&gpm->monitor->gpm);
  int code = gpm->monitor->api.gpm_metrics(m);
  pthread_mutex_unlock(&gpm->monitor->gpm);
  if (brim_nvml_is_final(code)) gpm->on = false;
  for (unsigned i = 0; i < count && code == BRIM_NVML_SUCCESS; i++) {
    const brim_nvml_gpm_metric *metric = &m->metric[i];
    bool good = metric->code == BRIM_NVML_SUCCESS && isfinite(metric->value) && metric->value >= 0;
    if (good) values[i] = metric->value;
  }
  return code;
}

double brim_gpm_percent(double value) {
  return value <= 110 ? fmin(value, 100) : (double)NAN;  // NaN stays
}

//---------------------------------- why a clock is held down ----------------------------------

void brim_throttle_text(uint32_t bits, char *out, size_t size) {
  static const char *const texts[BRIM_THROTTLE_COUNT] = {
#define X(id, text) text,
      BRIM_THROTTLE_MAP(X)
#undef X
  };
  size_t used = 0;
  if (size > 0) out[0] = '\0';
  for (int i = 0; i < BRIM_THROTTLE_COUNT; i++) {
    if (!(bits >> i & 1u) || used >= size) continue;
    int n = snprintf(out + used, size - used, "%s%s", used ? ", " : "", texts[i]);
    used += n > 0 ? (size_t)n : 0;
  }
}

uint32_t brim_throttle_bits(unsigned long long reasons) {
  const unsigned long long heat = BRIM_NVML_REASON_SW_THERMAL | BRIM_NVML_REASON_HW_THERMAL;
  const unsigned long long named = BRIM_NVML_REASON_HW_THERMAL | BRIM_NVML_REASON_HW_POWER_BRAKE;
  uint32_t bits = 0;
  if (reasons & BRIM_NVML_REASON_SW_POWER_CAP) bits |= 1u << BRIM_THROTTLE_BIT_POWER_CAP;
  if (reasons & BRIM_NVML_REASON_HW_POWER_BRAKE) bits |= 1u << BRIM_THROTTLE_BIT_POWER_BRAKE;
  if (reasons & heat) bits |= 1u << BRIM_THROTTLE_BIT_THERMAL;
  // the general bit is set with each named cause too; alone it means an unnamed one
  if ((reasons & BRIM_NVML_REASON_HW_SLOWDOWN) && !(reasons & named)) {
    bits |= 1u << BRIM_THROTTLE_BIT_HARDWARE;
  }
  if (reasons & BRIM_NVML_REASON_APPLICATION_CLOCKS) bits |= 1u << BRIM_THROTTLE_BIT_APPLICATION;
  return bits;
}
