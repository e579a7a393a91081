// NVIDIA GPUs by NVML, opened at run time: which there are, memory, processes, setup, and a thread that samples one.
// A call that the library lacks costs only what that call would have told. No CUDA context is created.
#include <ctype.h>
#include <fcntl.h>
#include <math.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
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

// Finds a GPU, or a slice with the same id behind "MIG-". *slice (may be NULL): it is a slice.
static brim_status find_device(brim_gpu_monitor *monitor, const char *uuid, void **device,
                               bool *slice) {
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
  BRIM_TRY(find_device(monitor, uuid, &device, NULL));
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
  BRIM_TRY(find_device(monitor, uuid, &device, NULL));
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
  BRIM_TRY(find_device(monitor, uuid, &device, NULL));
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

//---------------------------------- sums over an interval ----------------------------------

// NVML's utilisation is the share of the driver's last period in which a kernel ran. A period is a sixth of a second to
// a second, by product. A reading sooner than that after the start is about the time before it.
static const int64_t UTILISATION_WINDOW_NS = 1000000000 / 6;
// Take power from the energy counter if its steps are timed to a tenth of the time between them.
enum { EDGE_SHARE = 10 };
enum { THROTTLE_SHARE = 10 };  // report a throttle reason seen in a tenth of the readings

typedef struct brim_gpu_reading {
  int64_t time_ns;
  double gpu_percent, power_w, energy_j, clock_mhz, temperature_c;  // NaN = unknown
  bool reasons_known;
  bool idle;          // the driver says that the clock is low for lack of work
  uint32_t throttle;  // 1 << BRIM_THROTTLE_BIT_...
} brim_gpu_reading;
// A step of the energy counter, at `time_ns` or up to `doubt_ns` before.
typedef struct brim_gpu_edge {
  bool seen;
  int64_t time_ns, doubt_ns;
  double energy_j;
} brim_gpu_edge;

enum { BRIM_GPU_CLOCK_BINS = 8192 };  // one per MHz

// Sums of an interval, of constant size.
typedef struct brim_gpu_tally {
  int64_t start_ns;
  int readings;
  double gpu_sum, power_sum, temperature_high;
  int gpu_count, power_count, reasons_count;
  int throttle_count[BRIM_THROTTLE_COUNT];
  uint32_t clock_count, clock_bins[BRIM_GPU_CLOCK_BINS];
  bool energy_known, energy_fell;  // fell: the driver was loaded again, so there is no difference
  int64_t energy_time_ns;
  double energy_j;  // of the last reading
  brim_gpu_edge first, last;
} brim_gpu_tally;

static void reading_clear(brim_gpu_reading *reading) {
  const double unknown = (double)NAN;
  *reading = (brim_gpu_reading){.gpu_percent = unknown,
                                .power_w = unknown,
                                .energy_j = unknown,
                                .clock_mhz = unknown,
                                .temperature_c = unknown};
}

// `before`: a reading at the start. Only its energy counter is used; the rest is about the time before.
static void tally_start(brim_gpu_tally *tally, const brim_gpu_reading *before) {
  memset(tally, 0, sizeof *tally);
  tally->start_ns = before->time_ns;
  tally->temperature_high = (double)NAN;
  tally->energy_known = !isnan(before->energy_j);
  tally->energy_time_ns = before->time_ns;
  tally->energy_j = before->energy_j;
}

// The counter is in millijoules but moves only every 10 to 100 ms (about 100 on a Hopper). The difference between two
// readings is off by up to two steps, which is much in 300 ms. From step to step it is exact, except for the time of
// the steps.
static void add_energy(brim_gpu_tally *tally, const brim_gpu_reading *reading) {
  if (isnan(reading->energy_j)) return;
  if (tally->energy_known && reading->energy_j > tally->energy_j) {
    brim_gpu_edge *edge = tally->first.seen ? &tally->last : &tally->first;
    *edge = (brim_gpu_edge){.seen = true,
                            .time_ns = reading->time_ns,
                            .doubt_ns = reading->time_ns - tally->energy_time_ns,
                            .energy_j = reading->energy_j};
  }
  if (tally->energy_known && reading->energy_j < tally->energy_j) tally->energy_fell = true;
  tally->energy_known = true;
  tally->energy_time_ns = reading->time_ns;
  tally->energy_j = reading->energy_j;
}

static void tally_add(brim_gpu_tally *tally, const brim_gpu_reading *reading) {
  tally->readings++;
  bool own = reading->time_ns - tally->start_ns >= UTILISATION_WINDOW_NS;
  if (own && !isnan(reading->gpu_percent)) {
    tally->gpu_sum += reading->gpu_percent;
    tally->gpu_count++;
  }
  if (!isnan(reading->power_w)) {
    tally->power_sum += reading->power_w;
    tally->power_count++;
  }
  tally->temperature_high =
      fmax(tally->temperature_high, reading->temperature_c);  // fmax ignores NaN
  if (reading->reasons_known) {
    tally->reasons_count++;
    for (int i = 0; i < BRIM_THROTTLE_COUNT; i++) {
      tally->throttle_count[i] += (int)(reading->throttle >> i & 1u);
    }
  }
  add_energy(tally, reading);
  // an idle GPU's clock says nothing about its speed under load
  if (isnan(reading->clock_mhz) || reading->idle) return;
  double bin = fmin(fmax(reading->clock_mhz, 0), BRIM_GPU_CLOCK_BINS - 1);
  tally->clock_bins[(int)bin]++;
  tally->clock_count++;
}

static double mean(double sum, int count) { return count > 0 ? sum / count : (double)NAN; }

// The clock at this rank of the sorted readings; rank 0 is the lowest.
static double clock_at(const brim_gpu_tally *tally, uint32_t rank) {
  uint32_t below = 0;
  for (int i = 0; i < BRIM_GPU_CLOCK_BINS; i++) {
    below += tally->clock_bins[i];
    if (below > rank) return i;
  }
  return (double)NAN;
}

// On most cards since Ampere the driver's power reading is a mean over a second: steady, but late. The energy counter is
// right if the interval has several of its steps.
static double power(const brim_gpu_tally *tally) {
  const brim_gpu_edge *first = &tally->first, *last = &tally->last;
  if (first->seen && last->seen && !tally->energy_fell) {
    int64_t span = last->time_ns - first->time_ns;
    int64_t doubt = first->doubt_ns > last->doubt_ns ? first->doubt_ns : last->doubt_ns;
    if (span > 0 && span / EDGE_SHARE >= doubt) {
      return (last->energy_j - first->energy_j) / ((double)span * 1e-9);
    }
  }
  return mean(tally->power_sum, tally->power_count);
}

// Fills in the values that come from readings until `end_ns`, not those of GPM and limits.
static void tally_usage(const brim_gpu_tally *tally, int64_t end_ns, brim_gpu_usage *out) {
  int64_t ns = end_ns - tally->start_ns;
  out->seconds = ns > 0 ? (double)ns * 1e-9 : (double)NAN;
  out->readings = tally->readings;
  out->gpu_percent = mean(tally->gpu_sum, tally->gpu_count);
  out->power_w = power(tally);
  out->energy_j = out->power_w * out->seconds;
  out->temperature_c = tally->temperature_high;
  uint32_t n = tally->clock_count;
  out->clock_mhz = n ? (clock_at(tally, (n - 1) / 2) + clock_at(tally, n / 2)) / 2 : (double)NAN;
  out->clock_low_mhz = clock_at(tally, 0);
  out->throttle = 0;
  for (int i = 0; i < BRIM_THROTTLE_COUNT; i++) {
    int64_t seen = tally->throttle_count[i];
    if (seen > 0 && seen * THROTTLE_SHARE >= tally->reasons_count) out->throttle |= 1u << i;
  }
}

//---------------------------------- sampler ----------------------------------
// A thread reads the GPU with NVML's cheap calls; the caller marks intervals. GPM counters are compared by the caller at
// mark and read, never by the thread. An unsupported call is made once. A lost GPU is reported once, and everything about
// it is unknown from then on.

static const double SHORTEST_PERIOD_S = 0.02, LONGEST_PERIOD_S = 86400;
enum { UUID_BYTES = 96, SILENT_READINGS = 10 };

struct brim_gpu_sampler {
  brim_gpu_monitor *monitor;
  void *device;
  char uuid[UUID_BYTES];
  int64_t period_ns;
  brim_thread *thread;
  pthread_cond_t wake;
  // Held while reading, so that a reading after a mark is about the time after it.
  pthread_mutex_t lock;
  bool stop, lost;
  int silent, last_code;  // readings in a row without an answer; the last call's code
  brim_nvml_api api;      // unsupported calls are NULL
  brim_gpu_tally tally;
  double power_limit_w, clock_max_mhz;
  // Used only by the thread that marks and reads.
  brim_gpm gpm;
  bool gpm_marked;
  int64_t gpm_mark_ns;
};

static int64_t now_ns(const brim_gpu_sampler *s) {
  return s->api.now_ns ? s->api.now_ns() : brim_clock_now().ns;
}

static void lose(brim_gpu_sampler *s, int code) {
  if (s->lost) return;
  s->lost = true;
  brim_log_warn("monitor",
                "%s cannot be read any more (NVML: %s): its utilisation, power and clock are "
                "unknown from now on",
                s->uuid, brim_gpu_error_text(s->monitor, code));
}

static bool answered(brim_gpu_sampler *s, int code) {
  if (code == BRIM_NVML_SUCCESS) return true;
  s->last_code = code;
  if (brim_nvml_is_lost(code)) lose(s, code);
  return false;
}

// Makes a call of the table, unless it is NULL or the GPU is lost. True if it answered. Sets a call that will never
// answer to NULL.
#define ASK(s, call, ...)                        \
  ((s)->api.call && !(s)->lost &&                \
   (answered((s), (s)->api.call(__VA_ARGS__)) || \
    (brim_nvml_is_final((s)->last_code) && ((s)->api.call = NULL, false))))

static bool ask_reasons(brim_gpu_sampler *s, brim_gpu_reading *out) {
  unsigned long long reasons = 0;
  if (!ASK(s, event_reasons, s->device, &reasons)) {
    if (s->api.event_reasons || !ASK(s, throttle_reasons, s->device, &reasons)) return false;
  }
  out->reasons_known = true;
  out->idle = (reasons & BRIM_NVML_REASON_IDLE) != 0;
  out->throttle = brim_throttle_bits(reasons);
  return true;
}

static bool ask_temperature(brim_gpu_sampler *s, brim_gpu_reading *out) {
  unsigned celsius = 0;
  brim_nvml_temperature v = {.version = BRIM_NVML_TEMPERATURE_VERSION,
                             .sensor = BRIM_NVML_TEMPERATURE_GPU};
  if (ASK(s, temperature, s->device, BRIM_NVML_TEMPERATURE_GPU, &celsius)) {
    out->temperature_c = celsius;
  } else if (!s->api.temperature && ASK(s, temperature_v, s->device, &v)) {
    out->temperature_c = v.celsius;
  } else {
    return false;
  }
  return true;
}

// True if any call is left.
static bool has_sources(const brim_gpu_sampler *s) {
  const brim_nvml_api *a = &s->api;
  return a->utilisation || a->power || a->energy || a->clock || a->event_reasons ||
         a->throttle_reasons || a->temperature || a->temperature_v;
}

// False if no call answered.
static bool read_gpu(brim_gpu_sampler *s, brim_gpu_reading *out) {
  reading_clear(out);
  brim_nvml_utilisation utilisation = {0};
  unsigned mw = 0, mhz = 0;
  unsigned long long mj = 0;
  bool any = false;
  // read the energy counter next to its time
  if (ASK(s, energy, s->device, &mj)) {
    out->energy_j = (double)mj * 1e-3;
    any = true;
  }
  out->time_ns = now_ns(s);
  if (ASK(s, utilisation, s->device, &utilisation)) {
    out->gpu_percent = utilisation.gpu;
    any = true;
  }
  if (ASK(s, power, s->device, &mw)) {
    out->power_w = mw * 1e-3;
    any = true;
  }
  if (ASK(s, clock, s->device, BRIM_NVML_CLOCK_SM, &mhz)) {
    out->clock_mhz = mhz;
    any = true;
  }
  any |= ask_reasons(s, out);
  any |= ask_temperature(s, out);
  s->silent = any ? 0 : s->silent + 1;
  if (s->silent >= SILENT_READINGS && has_sources(s)) lose(s, s->last_code);
  return any;
}

static void take_locked(brim_gpu_sampler *s) {
  brim_gpu_reading reading;
  if (!s->lost && read_gpu(s, &reading)) tally_add(&s->tally, &reading);
}

void brim_gpu_sampler_take(brim_gpu_sampler *sampler) {
  pthread_mutex_lock(&sampler->lock);
  take_locked(sampler);
  pthread_mutex_unlock(&sampler->lock);
}

static bool gpm_answered(brim_gpu_sampler *s, int code) {
  pthread_mutex_lock(&s->lock);
  if (brim_nvml_is_lost(code)) lose(s, code);
  pthread_mutex_unlock(&s->lock);
  return code == BRIM_NVML_SUCCESS;
}

static bool gpm_take(brim_gpu_sampler *s, void *sample, int64_t *time_ns) {
  pthread_mutex_lock(&s->lock);
  bool lost = s->lost;
  pthread_mutex_unlock(&s->lock);
  if (!s->gpm.on || lost) return false;
  return gpm_answered(s, brim_gpm_take(&s->gpm, sample, time_ns));
}

// *busy: gpu_percent over exactly the interval; the driver's own value lags.
static void gpm_read(brim_gpu_sampler *s, brim_gpu_usage *out, double *busy) {
  static const unsigned ids[] = {BRIM_NVML_GPM_GRAPHICS_UTIL, BRIM_NVML_GPM_SM_UTIL,
                                 BRIM_NVML_GPM_SM_OCCUPANCY, BRIM_NVML_GPM_ANY_TENSOR_UTIL,
                                 BRIM_NVML_GPM_DRAM_BW_UTIL};
  double *const to[] = {busy, &out->sm_percent, &out->occupancy_percent, &out->tensor_percent,
                        &out->dram_percent};
  enum { COUNT = sizeof ids / sizeof *ids };
  double values[COUNT];
  int64_t time_ns = 0;
  if (!s->gpm_marked || now_ns(s) - s->gpm_mark_ns < BRIM_GPM_SHORTEST_NS) return;
  if (!gpm_take(s, s->gpm.second, &time_ns)) return;
  if (!gpm_answered(s, brim_gpm_between(&s->gpm, ids, values, COUNT))) return;
  for (int i = 0; i < COUNT; i++) *to[i] = brim_gpm_percent(values[i]);
}

//---------------------------------- intervals ----------------------------------

void brim_gpu_sampler_mark(brim_gpu_sampler *sampler) {
  brim_gpu_sampler *s = sampler;
  brim_gpu_reading before;
  unsigned mw = 0;
  s->gpm_marked = gpm_take(s, s->gpm.first, &s->gpm_mark_ns);
  pthread_mutex_lock(&s->lock);
  // read again: an administrator may have changed it
  s->power_limit_w = ASK(s, power_limit, s->device, &mw) ? mw * 1e-3 : (double)NAN;
  reading_clear(&before);
  if (!s->lost) read_gpu(s, &before);
  before.time_ns = now_ns(s);
  tally_start(&s->tally, &before);
  pthread_mutex_unlock(&s->lock);
}

static void usage_clear(brim_gpu_usage *out) {
  const double unknown = (double)NAN;
  *out = (brim_gpu_usage){.seconds = out->seconds,
                          .gpu_percent = unknown,
                          .sm_percent = unknown,
                          .occupancy_percent = unknown,
                          .tensor_percent = unknown,
                          .dram_percent = unknown,
                          .power_w = unknown,
                          .power_limit_w = unknown,
                          .energy_j = unknown,
                          .clock_mhz = unknown,
                          .clock_low_mhz = unknown,
                          .clock_max_mhz = unknown,
                          .temperature_c = unknown};
}

void brim_gpu_sampler_read(brim_gpu_sampler *sampler, brim_gpu_usage *out) {
  brim_gpu_sampler *s = sampler;
  out->seconds = (double)NAN;
  usage_clear(out);
  double busy = (double)NAN;
  gpm_read(s, out, &busy);
  pthread_mutex_lock(&s->lock);
  // read once more, so that an interval shorter than the period has a reading
  int64_t end_ns = now_ns(s);
  take_locked(s);
  tally_usage(&s->tally, end_ns, out);
  if (!isnan(busy)) out->gpu_percent = busy;
  out->power_limit_w = s->power_limit_w;
  out->clock_max_mhz = s->clock_max_mhz;
  if (s->lost) usage_clear(out);
  pthread_mutex_unlock(&s->lock);
}

//---------------------------------- the thread ----------------------------------

// Waits a full period after a slow reading, so that a slow GPU is read less often.
static void sampler_main(void *ctx) {
  brim_gpu_sampler *s = (brim_gpu_sampler *)ctx;
  pthread_mutex_lock(&s->lock);
  int64_t due = brim_clock_now().ns;
  while (!s->stop && !s->lost && has_sources(s)) {
    int64_t now = brim_clock_now().ns;
    due = due + s->period_ns > now ? due + s->period_ns : now + s->period_ns;
    while (!s->stop && brim_cond_wait(&s->wake, &s->lock, due)) continue;
    if (!s->stop) take_locked(s);
  }
  pthread_mutex_unlock(&s->lock);
}

brim_status brim_gpu_sampler_start(brim_gpu_monitor *monitor, const char *uuid, double period_s,
                                   brim_gpu_sampler **out) {
  *out = NULL;
  if (!(period_s >= SHORTEST_PERIOD_S)) {
    return brim_fail(BRIM_EINVAL, "a GPU cannot be read every %g s; the shortest period is %g s",
                     period_s, SHORTEST_PERIOD_S);
  }
  void *device = NULL;
  bool slice = false;
  BRIM_TRY(find_device(monitor, uuid, &device, &slice));
  brim_gpu_sampler *s = (brim_gpu_sampler *)brim_calloc(1, sizeof *s);
  if (!s) return brim_fail(BRIM_ENOMEM, "out of memory for reading a GPU");
  s->monitor = monitor;
  s->device = device;
  s->api = monitor->api;
  s->period_ns = (int64_t)(fmin(period_s, LONGEST_PERIOD_S) * 1e9);
  snprintf(s->uuid, sizeof s->uuid, "%s", uuid);
  (void)brim_cond_init(&s->wake);
  pthread_mutex_init(&s->lock, NULL);
  unsigned mhz = 0;
  bool known = ASK(s, clock_max, s->device, BRIM_NVML_CLOCK_SM, &mhz);
  s->clock_max_mhz = known ? mhz : (double)NAN;
  // counters of the whole GPU include the other slices
  if (!slice) brim_gpm_open(&s->gpm, monitor, device, NULL);
  brim_gpu_sampler_mark(s);
  brim_status status = brim_thread_start(sampler_main, s, "brim-gpu", &s->thread);
  if (status) {
    brim_gpu_sampler_stop(s);
    return status;
  }
  *out = s;
  return BRIM_OK;
}

void brim_gpu_sampler_stop(brim_gpu_sampler *sampler) {
  if (!sampler) return;
  pthread_mutex_lock(&sampler->lock);
  sampler->stop = true;
  pthread_cond_signal(&sampler->wake);
  pthread_mutex_unlock(&sampler->lock);
  brim_thread_join(sampler->thread);
  brim_gpm_close(&sampler->gpm);
  pthread_cond_destroy(&sampler->wake);
  pthread_mutex_destroy(&sampler->lock);
  brim_free(sampler);
}
