// NVML's names of the calls in brim_nvml_api. All but the first three are optional: a library without
// one costs what that call would have told.
#include "monitor/monitor_int.h"

typedef struct call {
  const char *name;
  size_t offset;
  bool required;
} call;

#define AT(member) offsetof(brim_nvml_api, member)

static const call calls[] = {
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

size_t brim_nvml_symbols(brim_nvml_api *api, brim_dl_symbol *out) {
  const size_t count = sizeof calls / sizeof *calls;
  _Static_assert(sizeof calls / sizeof *calls <= (size_t)BRIM_NVML_MAX_CALLS, "too many calls");
  for (size_t i = 0; i < count; i++) {
    void **place = (void **)((uintptr_t)api + calls[i].offset);
    out[i] = (brim_dl_symbol){calls[i].name, place, calls[i].required};
  }
  return count;
}
