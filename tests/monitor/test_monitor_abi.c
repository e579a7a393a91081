// brim's copy of NVML's ABI against nvml.h, if that is installed: layouts, ids, bits and versions, at compile time.
#include "monitor/monitor_nvml_abi.h"
#include "test.h"

#if __has_include(<nvml.h>)
#include <nvml.h>

#define SAME(ours, theirs) _Static_assert((ours) == (theirs), #ours)
#define SAME_MEMBER(our, our_member, their, their_member) \
  SAME(offsetof(our, our_member), offsetof(their, their_member))

SAME(sizeof(brim_nvml_memory), sizeof(nvmlMemory_t));
SAME(sizeof(brim_nvml_memory_v2), sizeof(nvmlMemory_v2_t));
SAME(BRIM_NVML_MEMORY_V2_VERSION, nvmlMemory_v2);
SAME(sizeof(brim_nvml_process), sizeof(nvmlProcessInfo_t));
SAME_MEMBER(brim_nvml_process, used_bytes, nvmlProcessInfo_t, usedGpuMemory);

SAME(sizeof(brim_nvml_utilisation), sizeof(nvmlUtilization_t));
SAME_MEMBER(brim_nvml_utilisation, gpu, nvmlUtilization_t, gpu);
#ifdef nvmlTemperature_v1  // since CUDA 12.8
SAME(sizeof(brim_nvml_temperature), sizeof(nvmlTemperature_v1_t));
SAME_MEMBER(brim_nvml_temperature, celsius, nvmlTemperature_v1_t, temperature);
SAME(BRIM_NVML_TEMPERATURE_VERSION, nvmlTemperature_v1);
#endif
SAME((int)BRIM_NVML_CLOCK_SM, (int)NVML_CLOCK_SM);
SAME((int)BRIM_NVML_TEMPERATURE_GPU, (int)NVML_TEMPERATURE_GPU);

SAME((int)BRIM_NVML_UNINITIALIZED, (int)NVML_ERROR_UNINITIALIZED);
SAME((int)BRIM_NVML_INVALID_ARGUMENT, (int)NVML_ERROR_INVALID_ARGUMENT);
SAME((int)BRIM_NVML_NOT_SUPPORTED, (int)NVML_ERROR_NOT_SUPPORTED);
SAME((int)BRIM_NVML_NO_PERMISSION, (int)NVML_ERROR_NO_PERMISSION);
SAME((int)BRIM_NVML_FUNCTION_NOT_FOUND, (int)NVML_ERROR_FUNCTION_NOT_FOUND);
SAME((int)BRIM_NVML_GPU_IS_LOST, (int)NVML_ERROR_GPU_IS_LOST);
SAME((int)BRIM_NVML_RESET_REQUIRED, (int)NVML_ERROR_RESET_REQUIRED);

SAME(BRIM_NVML_REASON_IDLE, nvmlClocksThrottleReasonGpuIdle);
SAME(BRIM_NVML_REASON_APPLICATION_CLOCKS, nvmlClocksThrottleReasonApplicationsClocksSetting);
SAME(BRIM_NVML_REASON_SW_POWER_CAP, nvmlClocksThrottleReasonSwPowerCap);
SAME(BRIM_NVML_REASON_HW_SLOWDOWN, nvmlClocksThrottleReasonHwSlowdown);
SAME(BRIM_NVML_REASON_SW_THERMAL, nvmlClocksThrottleReasonSwThermalSlowdown);
SAME(BRIM_NVML_REASON_HW_THERMAL, nvmlClocksThrottleReasonHwThermalSlowdown);
SAME(BRIM_NVML_REASON_HW_POWER_BRAKE, nvmlClocksThrottleReasonHwPowerBrakeSlowdown);

SAME((int)BRIM_NVML_CLOCK_MEMORY, (int)NVML_CLOCK_MEM);
SAME((int)BRIM_NVML_CLOCK_VIDEO, (int)NVML_CLOCK_VIDEO);
SAME((int)BRIM_NVML_TIMEOUT, (int)NVML_ERROR_TIMEOUT);
#ifdef nvmlClocksEventReasonSyncBoost  // the names since CUDA 12.2
SAME(BRIM_NVML_REASON_SYNC_BOOST, nvmlClocksEventReasonSyncBoost);
SAME(BRIM_NVML_REASON_DISPLAY, nvmlClocksEventReasonDisplayClockSetting);
#endif
SAME((int)BRIM_NVML_THRESHOLD_SHUTDOWN, (int)NVML_TEMPERATURE_THRESHOLD_SHUTDOWN);
SAME((int)BRIM_NVML_THRESHOLD_SLOWDOWN, (int)NVML_TEMPERATURE_THRESHOLD_SLOWDOWN);
SAME(sizeof(brim_nvml_memory), sizeof(nvmlBAR1Memory_t));
SAME_MEMBER(brim_nvml_memory, free, nvmlBAR1Memory_t, bar1Free);
SAME_MEMBER(brim_nvml_memory, used, nvmlBAR1Memory_t, bar1Used);
SAME(sizeof(brim_nvml_violation), sizeof(nvmlViolationTime_t));
SAME_MEMBER(brim_nvml_violation, violation_ns, nvmlViolationTime_t, violationTime);
SAME((int)BRIM_NVML_POLICY_POWER, (int)NVML_PERF_POLICY_POWER);
SAME((int)BRIM_NVML_POLICY_THERMAL, (int)NVML_PERF_POLICY_THERMAL);
SAME((int)BRIM_NVML_PCIE_TX, (int)NVML_PCIE_UTIL_TX_BYTES);
SAME((int)BRIM_NVML_PCIE_RX, (int)NVML_PCIE_UTIL_RX_BYTES);
SAME((int)BRIM_NVML_ECC_CORRECTED, (int)NVML_MEMORY_ERROR_TYPE_CORRECTED);
SAME((int)BRIM_NVML_ECC_UNCORRECTED, (int)NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
SAME((int)BRIM_NVML_ECC_VOLATILE, (int)NVML_VOLATILE_ECC);
SAME((int)BRIM_NVML_ECC_AGGREGATE, (int)NVML_AGGREGATE_ECC);
SAME((int)BRIM_NVML_RETIRED_SINGLE_BIT,
     (int)NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS);
SAME((int)BRIM_NVML_RETIRED_DOUBLE_BIT, (int)NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR);
SAME((int)BRIM_NVML_COMPUTE_DEFAULT, (int)NVML_COMPUTEMODE_DEFAULT);
SAME((int)BRIM_NVML_COMPUTE_PROHIBITED, (int)NVML_COMPUTEMODE_PROHIBITED);
SAME(BRIM_NVML_EVENT_XID, nvmlEventTypeXidCriticalError);
SAME((int)BRIM_NVML_FIELD_MEMORY_TEMPERATURE, NVML_FI_DEV_MEMORY_TEMP);
SAME(sizeof(brim_nvml_field), sizeof(nvmlFieldValue_t));
SAME_MEMBER(brim_nvml_field, type, nvmlFieldValue_t, valueType);
SAME_MEMBER(brim_nvml_field, code, nvmlFieldValue_t, nvmlReturn);
SAME_MEMBER(brim_nvml_field, value, nvmlFieldValue_t, value);
SAME((int)BRIM_NVML_TYPE_UINT, (int)NVML_VALUE_TYPE_UNSIGNED_INT);
SAME((int)BRIM_NVML_TYPE_LONGLONG, (int)NVML_VALUE_TYPE_SIGNED_LONG_LONG);
SAME(sizeof(brim_nvml_process_use), sizeof(nvmlProcessUtilizationSample_t));
SAME_MEMBER(brim_nvml_process_use, time_us, nvmlProcessUtilizationSample_t, timeStamp);
SAME_MEMBER(brim_nvml_process_use, decoder, nvmlProcessUtilizationSample_t, decUtil);
#ifdef nvmlProcessesUtilizationInfo_v1  // since CUDA 12.4
SAME(sizeof(brim_nvml_process_use_v1), sizeof(nvmlProcessUtilizationInfo_v1_t));
SAME_MEMBER(brim_nvml_process_use_v1, ofa, nvmlProcessUtilizationInfo_v1_t, ofaUtil);
SAME(sizeof(brim_nvml_processes_use), sizeof(nvmlProcessesUtilizationInfo_v1_t));
SAME_MEMBER(brim_nvml_processes_use, list, nvmlProcessesUtilizationInfo_v1_t, procUtilArray);
SAME(BRIM_NVML_PROCESSES_USE_VERSION, nvmlProcessesUtilizationInfo_v1);
#endif
SAME(sizeof(brim_nvml_event), sizeof(nvmlEventData_t));
SAME_MEMBER(brim_nvml_event, data, nvmlEventData_t, eventData);
SAME_MEMBER(brim_nvml_event, gpu_instance, nvmlEventData_t, gpuInstanceId);
SAME(sizeof(brim_nvml_pci), sizeof(nvmlPciInfo_t));
SAME_MEMBER(brim_nvml_pci, bus_id, nvmlPciInfo_t, busId);

#ifdef NVML_GPM_METRICS_GET_VERSION
SAME((int)BRIM_NVML_GPM_NVLINK_RX, (int)NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC);
SAME((int)BRIM_NVML_GPM_NVLINK_TX, (int)NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC);
SAME((int)BRIM_NVML_GPM_PCIE_TX, (int)NVML_GPM_METRIC_PCIE_TX_PER_SEC);
SAME((int)BRIM_NVML_GPM_PCIE_RX, (int)NVML_GPM_METRIC_PCIE_RX_PER_SEC);
SAME((int)BRIM_NVML_GPM_SM_UTIL, (int)NVML_GPM_METRIC_SM_UTIL);
SAME((int)BRIM_NVML_GPM_SM_OCCUPANCY, (int)NVML_GPM_METRIC_SM_OCCUPANCY);
SAME((int)BRIM_NVML_GPM_ANY_TENSOR_UTIL, (int)NVML_GPM_METRIC_ANY_TENSOR_UTIL);
SAME((int)BRIM_NVML_GPM_DRAM_BW_UTIL, (int)NVML_GPM_METRIC_DRAM_BW_UTIL);
SAME((int)BRIM_NVML_GPM_METRICS_VERSION, NVML_GPM_METRICS_GET_VERSION);
SAME((int)BRIM_NVML_GPM_SUPPORT_VERSION, NVML_GPM_SUPPORT_VERSION);
SAME(sizeof(brim_nvml_gpm_support), sizeof(nvmlGpmSupport_t));
SAME_MEMBER(brim_nvml_gpm_support, supported, nvmlGpmSupport_t, isSupportedDevice);
SAME(sizeof(void *), sizeof(nvmlGpmSample_t));
SAME(sizeof(brim_nvml_gpm_metric), sizeof(nvmlGpmMetric_t));
SAME_MEMBER(brim_nvml_gpm_metric, code, nvmlGpmMetric_t, nvmlReturn);
SAME_MEMBER(brim_nvml_gpm_metric, value, nvmlGpmMetric_t, value);
SAME_MEMBER(brim_nvml_gpm_metrics, count, nvmlGpmMetricsGet_t, numMetrics);
SAME_MEMBER(brim_nvml_gpm_metrics, first, nvmlGpmMetricsGet_t, sample1);
SAME_MEMBER(brim_nvml_gpm_metrics, second, nvmlGpmMetricsGet_t, sample2);
SAME_MEMBER(brim_nvml_gpm_metrics, metric, nvmlGpmMetricsGet_t, metrics);
_Static_assert(sizeof(brim_nvml_gpm_metrics) >= sizeof(nvmlGpmMetricsGet_t), "NVML_GPM_METRIC_MAX");
#endif

int main(void) { return 0; }
#else
int main(void) { BRIM_SKIP_ALL("no nvml.h here"); }
#endif
