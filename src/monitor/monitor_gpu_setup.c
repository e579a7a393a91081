// How a GPU is set up, as NVML tells it. A call that is missing or fails costs its own fact alone.
#include "monitor/monitor_gpu_setup.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "monitor/monitor_int.h"

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

// NVML writes the domain in eight digits and letters in capitals, sysfs four and small ones.
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

static void read_power(const brim_nvml_api *api, void *device, brim_gpu_setup *out) {
  out->power_limit_w = number_of(api->power_limit, device, 1e-3);
  out->power_default_w = number_of(api->power_default, device, 1e-3);
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

static void clear(brim_gpu_setup *out) {
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
}

brim_status brim_gpu_read_setup(brim_gpu_monitor *monitor, const char *uuid, brim_gpu_setup *out) {
  void *device = NULL;
  clear(out);
  BRIM_TRY(brim_gpu_find(monitor, uuid, &device, NULL));
  const brim_nvml_api *api = &monitor->api;
  read_bus(api, device, out);
  read_health(api, device, out);
  read_modes(api, device, out);
  read_power(api, device, out);
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
