// The part of NVML's ABI that brim uses, so that no vendor header is needed. The layouts are NVIDIA's, checked by the
// asserts below and, where nvml.h is installed, against it in the tests. The names are brim's.
#ifndef BRIM_MONITOR_NVML_ABI_H_
#define BRIM_MONITOR_NVML_ABI_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define BRIM_NVML_ASSERT static_assert
#else
#define BRIM_NVML_ASSERT _Static_assert
#endif

// nvmlReturn_t: the codes that brim uses
enum {
  BRIM_NVML_SUCCESS = 0,
  BRIM_NVML_UNINITIALIZED = 1,
  BRIM_NVML_INVALID_ARGUMENT = 2,
  BRIM_NVML_NOT_SUPPORTED = 3,
  BRIM_NVML_NO_PERMISSION = 4,
  BRIM_NVML_NOT_FOUND = 6,
  BRIM_NVML_INSUFFICIENT_SIZE = 7,
  BRIM_NVML_DRIVER_NOT_LOADED = 9,
  BRIM_NVML_TIMEOUT = 10,
  BRIM_NVML_FUNCTION_NOT_FOUND = 13,
  BRIM_NVML_GPU_IS_LOST = 15,
  BRIM_NVML_RESET_REQUIRED = 16,
  BRIM_NVML_VERSION_MISMATCH = 25,  // an argument has the wrong `version`
  BRIM_NVML_DEPRECATED = 26,
  BRIM_NVML_UNKNOWN_ERROR = 999
};

enum {
  BRIM_NVML_CLOCK_SM = 1,
  BRIM_NVML_CLOCK_MEMORY = 2,
  BRIM_NVML_CLOCK_VIDEO = 3
};                                       // nvmlClockType_t
enum { BRIM_NVML_TEMPERATURE_GPU = 0 };  // nvmlTemperatureSensors_t: the die

// nvmlClocksEventReasons (ThrottleReasons before driver 535)
#define BRIM_NVML_REASON_IDLE 0x1ULL
#define BRIM_NVML_REASON_APPLICATION_CLOCKS 0x2ULL
#define BRIM_NVML_REASON_SW_POWER_CAP 0x4ULL
#define BRIM_NVML_REASON_HW_SLOWDOWN 0x8ULL  // also set with HW_THERMAL and HW_POWER_BRAKE
#define BRIM_NVML_REASON_SYNC_BOOST 0x10ULL
#define BRIM_NVML_REASON_SW_THERMAL 0x20ULL
#define BRIM_NVML_REASON_HW_THERMAL 0x40ULL
#define BRIM_NVML_REASON_HW_POWER_BRAKE 0x80ULL
#define BRIM_NVML_REASON_DISPLAY 0x100ULL

// nvmlGpmMetricId_t: the metrics that brim uses
enum {
  BRIM_NVML_GPM_GRAPHICS_UTIL = 1,
  BRIM_NVML_GPM_SM_UTIL = 2,
  BRIM_NVML_GPM_SM_OCCUPANCY = 3,
  BRIM_NVML_GPM_ANY_TENSOR_UTIL = 5,
  BRIM_NVML_GPM_DRAM_BW_UTIL = 10,
  BRIM_NVML_GPM_PCIE_TX = 20,  // from the GPU, MiB/s
  BRIM_NVML_GPM_PCIE_RX = 21,
  BRIM_NVML_GPM_NVLINK_RX = 60,  // all links, MiB/s
  BRIM_NVML_GPM_NVLINK_TX = 61
};
enum { BRIM_NVML_GPM_SUPPORT_VERSION = 1, BRIM_NVML_GPM_METRICS_VERSION = 1 };
// NVML_GPM_METRIC_MAX of CUDA 13. It was 98 at first and grew under the same version number.
enum { BRIM_NVML_GPM_ROOM = 333 };

// nvmlTemperatureThresholds_t
enum { BRIM_NVML_THRESHOLD_SHUTDOWN = 0, BRIM_NVML_THRESHOLD_SLOWDOWN = 1 };
enum { BRIM_NVML_POLICY_POWER = 0, BRIM_NVML_POLICY_THERMAL = 1 };    // nvmlPerfPolicyType_t
enum { BRIM_NVML_PCIE_TX = 0, BRIM_NVML_PCIE_RX = 1 };                // nvmlPcieUtilCounter_t
enum { BRIM_NVML_ECC_CORRECTED = 0, BRIM_NVML_ECC_UNCORRECTED = 1 };  // nvmlMemoryErrorType_t
enum { BRIM_NVML_ECC_VOLATILE = 0, BRIM_NVML_ECC_AGGREGATE = 1 };     // nvmlEccCounterType_t
enum {
  BRIM_NVML_RETIRED_SINGLE_BIT = 0,
  BRIM_NVML_RETIRED_DOUBLE_BIT = 1
};  // nvmlPageRetirementCause_t
enum { BRIM_NVML_COMPUTE_DEFAULT = 0, BRIM_NVML_COMPUTE_PROHIBITED = 2 };  // nvmlComputeMode_t
enum { BRIM_NVML_FIELD_MEMORY_TEMPERATURE = 82 };  // NVML_FI_DEV_MEMORY_TEMP
enum {                                             // nvmlValueType_t
  BRIM_NVML_TYPE_DOUBLE = 0,
  BRIM_NVML_TYPE_UINT = 1,
  BRIM_NVML_TYPE_ULONG = 2,
  BRIM_NVML_TYPE_ULONGLONG = 3,
  BRIM_NVML_TYPE_LONGLONG = 4,
  BRIM_NVML_TYPE_INT = 5
};
#define BRIM_NVML_EVENT_XID 0x8ULL  // nvmlEventTypeXidCriticalError

#define BRIM_NVML_UNKNOWN (~0ULL)  // NVML_VALUE_NOT_AVAILABLE
#define BRIM_NVML_MEMORY_V2_VERSION ((unsigned)sizeof(brim_nvml_memory_v2) | 2U << 24)

typedef struct brim_nvml_memory {  // nvmlMemory_t; used holds the driver's reserve too
  unsigned long long total, free, used;
} brim_nvml_memory;

typedef struct brim_nvml_memory_v2 {  // nvmlMemory_v2_t
  unsigned version;                   // BRIM_NVML_MEMORY_V2_VERSION
  unsigned long long total, reserved, free, used;
} brim_nvml_memory_v2;

typedef struct brim_nvml_process {  // nvmlProcessInfo_t of the _v3 calls
  unsigned pid;
  unsigned long long used_bytes;  // BRIM_NVML_UNKNOWN = the driver does not say
  unsigned gpu_instance, compute_instance;
} brim_nvml_process;

typedef struct brim_nvml_utilisation {  // nvmlUtilization_t: percent of the driver's last period
  unsigned gpu, memory;
} brim_nvml_utilisation;

#define BRIM_NVML_TEMPERATURE_VERSION ((unsigned)sizeof(brim_nvml_temperature) | 1U << 24)

typedef struct brim_nvml_temperature {  // nvmlTemperature_v1_t
  unsigned version;                     // BRIM_NVML_TEMPERATURE_VERSION
  unsigned sensor;
  int celsius;
} brim_nvml_temperature;

typedef struct brim_nvml_gpm_support {  // nvmlGpmSupport_t
  unsigned version;                     // BRIM_NVML_GPM_SUPPORT_VERSION
  unsigned supported;
} brim_nvml_gpm_support;

typedef struct brim_nvml_gpm_metric {  // nvmlGpmMetric_t
  unsigned id;
  int code;  // nvmlReturn_t of this metric
  double value;
  const char *short_name, *long_name, *unit;
} brim_nvml_gpm_metric;

typedef struct brim_nvml_gpm_metrics {  // nvmlGpmMetricsGet_t
  unsigned version;                     // BRIM_NVML_GPM_METRICS_VERSION
  unsigned count;
  void *first, *second;  // nvmlGpmSample_t: a struct of one pointer, passed as a pointer
  brim_nvml_gpm_metric metric[BRIM_NVML_GPM_ROOM];
} brim_nvml_gpm_metrics;

typedef struct brim_nvml_violation {  // nvmlViolationTime_t
  unsigned long long reference_us, violation_ns;
} brim_nvml_violation;

typedef struct brim_nvml_field {  // nvmlFieldValue_t
  unsigned id, scope;
  long long time_us, latency_us;
  int type, code;  // BRIM_NVML_TYPE_..., nvmlReturn_t
  union {
    double f64;
    unsigned u32;
    unsigned long ulong_value;
    unsigned long long u64;
    long long i64;
    int i32;
  } value;
} brim_nvml_field;

typedef struct brim_nvml_process_use {  // nvmlProcessUtilizationSample_t
  unsigned pid;
  unsigned long long time_us;
  unsigned sm, memory, encoder, decoder;  // percent
} brim_nvml_process_use;

typedef struct brim_nvml_process_use_v1 {  // nvmlProcessUtilizationInfo_v1_t
  unsigned long long time_us;
  unsigned pid, sm, memory, encoder, decoder, jpeg, ofa;
} brim_nvml_process_use_v1;

#define BRIM_NVML_PROCESSES_USE_VERSION ((unsigned)sizeof(brim_nvml_processes_use) | 1U << 24)

typedef struct brim_nvml_processes_use {  // nvmlProcessesUtilizationInfo_v1_t
  unsigned version;                       // BRIM_NVML_PROCESSES_USE_VERSION
  unsigned count;                         // room in `list`, then the number of entries
  unsigned long long since_us;
  brim_nvml_process_use_v1 *list;
} brim_nvml_processes_use;

typedef struct brim_nvml_event {  // nvmlEventData_t of the _v2 call
  void *device;
  unsigned long long type, data;  // data: the Xid, 999 = unknown
  unsigned gpu_instance, compute_instance;
} brim_nvml_event;

typedef struct brim_nvml_pci {  // nvmlPciInfo_t of the _v3 call
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];  // "00000000:3B:00.0"
} brim_nvml_pci;

BRIM_NVML_ASSERT(sizeof(brim_nvml_memory) == 24, "nvmlMemory_t");
BRIM_NVML_ASSERT(sizeof(brim_nvml_violation) == 16, "nvmlViolationTime_t");
BRIM_NVML_ASSERT(sizeof(brim_nvml_field) == 40, "nvmlFieldValue_t");
BRIM_NVML_ASSERT(offsetof(brim_nvml_field, type) == 24, "nvmlFieldValue_t");
BRIM_NVML_ASSERT(offsetof(brim_nvml_field, value) == 32, "nvmlFieldValue_t");
BRIM_NVML_ASSERT(sizeof(brim_nvml_process_use) == 32, "nvmlProcessUtilizationSample_t");
BRIM_NVML_ASSERT(offsetof(brim_nvml_process_use, sm) == 16, "nvmlProcessUtilizationSample_t");
BRIM_NVML_ASSERT(sizeof(brim_nvml_process_use_v1) == 40, "nvmlProcessUtilizationInfo_v1_t");
BRIM_NVML_ASSERT(BRIM_NVML_PROCESSES_USE_VERSION == 0x01000018, "nvmlProcessesUtilizationInfo_v1");
BRIM_NVML_ASSERT(offsetof(brim_nvml_processes_use, list) == 16,
                 "nvmlProcessesUtilizationInfo_v1_t");
BRIM_NVML_ASSERT(sizeof(brim_nvml_event) == 32, "nvmlEventData_t");
BRIM_NVML_ASSERT(offsetof(brim_nvml_event, gpu_instance) == 24, "nvmlEventData_t");
BRIM_NVML_ASSERT(sizeof(brim_nvml_pci) == 68, "nvmlPciInfo_t");
BRIM_NVML_ASSERT(offsetof(brim_nvml_pci, bus_id) == 36, "nvmlPciInfo_t");
BRIM_NVML_ASSERT(sizeof(brim_nvml_memory_v2) == 40, "nvmlMemory_v2_t");
BRIM_NVML_ASSERT(offsetof(brim_nvml_memory_v2, total) == 8, "nvmlMemory_v2_t");
BRIM_NVML_ASSERT(offsetof(brim_nvml_memory_v2, used) == 32, "nvmlMemory_v2_t");
BRIM_NVML_ASSERT(BRIM_NVML_MEMORY_V2_VERSION == 0x02000028, "nvmlMemory_v2");
BRIM_NVML_ASSERT(sizeof(brim_nvml_process) == 24, "nvmlProcessInfo_t");
BRIM_NVML_ASSERT(offsetof(brim_nvml_process, used_bytes) == 8, "nvmlProcessInfo_t");
BRIM_NVML_ASSERT(offsetof(brim_nvml_process, compute_instance) == 20, "nvmlProcessInfo_t");
BRIM_NVML_ASSERT(sizeof(brim_nvml_utilisation) == 8, "nvmlUtilization_t");
BRIM_NVML_ASSERT(BRIM_NVML_TEMPERATURE_VERSION == 0x0100000c, "nvmlTemperature_v1");
BRIM_NVML_ASSERT(sizeof(brim_nvml_gpm_support) == 8, "nvmlGpmSupport_t");
BRIM_NVML_ASSERT(sizeof(brim_nvml_gpm_metric) == 40, "nvmlGpmMetric_t");
BRIM_NVML_ASSERT(offsetof(brim_nvml_gpm_metric, value) == 8, "nvmlGpmMetric_t");
BRIM_NVML_ASSERT(offsetof(brim_nvml_gpm_metrics, first) == 8, "nvmlGpmMetricsGet_t");
BRIM_NVML_ASSERT(offsetof(brim_nvml_gpm_metrics, metric) == 24, "nvmlGpmMetricsGet_t");

// The calls that brim uses. Device handles are opaque pointers. Optional calls may be NULL.
typedef struct brim_nvml_api {
  int (*init)(void);                                 // nvmlInit_v2
  int (*shutdown)(void);                             // nvmlShutdown
  int (*by_uuid)(const char *uuid, void **device);   // nvmlDeviceGetHandleByUUID
  const char *(*error_string)(int code);             // (optional) nvmlErrorString
  int (*driver_version)(char *text, unsigned size);  // (optional) nvmlSystemGetDriverVersion
  int (*memory_v2)(void *device, brim_nvml_memory_v2 *out);  // (optional)
  int (*memory)(void *device, brim_nvml_memory *out);        // (optional) for older drivers
  // (optional) *count: room in `out`, then the number of entries; INSUFFICIENT_SIZE if there are more.
  int (*compute)(void *device, unsigned *count, brim_nvml_process *out);
  int (*graphics)(void *device, unsigned *count, brim_nvml_process *out);
  // Activity; all optional.
  int (*utilisation)(void *device, brim_nvml_utilisation *out);  // nvmlDeviceGetUtilizationRates
  int (*power)(void *device, unsigned *mw);                      // nvmlDeviceGetPowerUsage
  int (*power_limit)(void *device, unsigned *mw);                // nvmlDeviceGetEnforcedPowerLimit
  int (*energy)(void *device, unsigned long long *mj);      // nvmlDeviceGetTotalEnergyConsumption
  int (*clock)(void *device, int type, unsigned *mhz);      // nvmlDeviceGetClockInfo
  int (*clock_max)(void *device, int type, unsigned *mhz);  // nvmlDeviceGetMaxClockInfo
  int (*event_reasons)(void *device, unsigned long long *bits);  // ...GetCurrentClocksEventReasons
  int (*throttle_reasons)(void *device, unsigned long long *bits);    // ...before driver 535
  int (*temperature)(void *device, int sensor, unsigned *celsius);    // nvmlDeviceGetTemperature
  int (*temperature_v)(void *device, brim_nvml_temperature *in_out);  // ...GetTemperatureV
  int (*gpm_support)(void *device, brim_nvml_gpm_support *in_out);    // nvmlGpmQueryDeviceSupport
  int (*gpm_alloc)(void **sample);                                    // nvmlGpmSampleAlloc
  int (*gpm_free)(void *sample);                                      // nvmlGpmSampleFree
  int (*gpm_sample)(void *device, void *sample);                      // nvmlGpmSampleGet
  int (*gpm_metrics)(brim_nvml_gpm_metrics *in_out);                  // nvmlGpmMetricsGet
  // The list of GPUs and slices; all optional.
  int (*device_count)(unsigned *count);                             // nvmlDeviceGetCount_v2
  int (*by_index)(unsigned index, void **device);                   // nvmlDeviceGetHandleByIndex_v2
  int (*uuid)(void *device, char *text, unsigned size);             // nvmlDeviceGetUUID
  int (*name)(void *device, char *text, unsigned size);             // nvmlDeviceGetName
  int (*mig_mode)(void *device, unsigned *now, unsigned *pending);  // nvmlDeviceGetMigMode
  int (*mig_count)(void *device, unsigned *count);  // nvmlDeviceGetMaxMigDeviceCount
  int (*mig_by_index)(void *device, unsigned index, void **slice);  // ...GetMigDeviceHandleByIndex
  int (*gpu_instance)(void *slice, unsigned *id);                   // nvmlDeviceGetGpuInstanceId
  int (*gpm_mig_sample)(void *device, unsigned gpu_instance, void *sample);  // nvmlGpmMigSampleGet
  int (*pci)(void *device, brim_nvml_pci *out);                              // ...GetPciInfo_v3
  // Further values of `brim top` and the doctor; all optional.
  int (*power_default)(void *device, unsigned *mw);  // nvmlDeviceGetPowerManagementDefaultLimit
  int (*power_bounds)(void *device, unsigned *min_mw, unsigned *max_mw);  // ...LimitConstraints
  int (*threshold)(void *device, int which, unsigned *celsius);  // ...GetTemperatureThreshold
  int (*encoder)(void *device, unsigned *percent, unsigned *period_us);  // ...EncoderUtilization
  int (*decoder)(void *device, unsigned *percent, unsigned *period_us);
  int (*jpeg)(void *device, unsigned *percent, unsigned *period_us);
  int (*ofa)(void *device, unsigned *percent, unsigned *period_us);
  int (*bar1)(void *device, brim_nvml_memory *out);  // nvmlDeviceGetBAR1MemoryInfo
  int (*protected_memory)(void *device,
                          brim_nvml_memory *out);  // ...ConfComputeProtectedMemoryUsage
  int (*violation)(void *device, int policy, brim_nvml_violation *out);  // ...GetViolationStatus
  int (*ecc_mode)(void *device, unsigned *now, unsigned *pending);       // nvmlDeviceGetEccMode
  // nvmlDeviceGetTotalEccErrors: BRIM_NVML_ECC_...
  int (*ecc_errors)(void *device, int type, int counter, unsigned long long *count);
  int (*pcie_replays)(void *device, unsigned *count);  // nvmlDeviceGetPcieReplayCounter
  // nvmlDeviceGetPcieThroughput: measures for 20 ms while the caller waits
  int (*pcie_throughput)(void *device, int counter, unsigned *kb_per_s);
  int (*pcie_generation)(void *device, unsigned *generation);      // ...CurrPcieLinkGeneration
  int (*pcie_width)(void *device, unsigned *lanes);                // ...CurrPcieLinkWidth
  int (*pcie_generation_max)(void *device, unsigned *generation);  // ...MaxPcieLinkGeneration
  int (*pcie_width_max)(void *device, unsigned *lanes);            // ...MaxPcieLinkWidth
  int (*performance_state)(void *device, unsigned *state);  // 0 (fastest) to 15, 32 = unknown
  int (*persistence)(void *device, unsigned *on);           // nvmlDeviceGetPersistenceMode
  int (*compute_mode)(void *device, unsigned *mode);        // nvmlDeviceGetComputeMode
  int (*fan)(void *device, unsigned *percent);              // nvmlDeviceGetFanSpeed
  // nvmlDeviceGetRemappedRows
  int (*remapped_rows)(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                       unsigned *failed);
  // nvmlDeviceGetRetiredPages: with *count 0 it returns the number of pages
  int (*retired_pages)(void *device, int cause, unsigned *count, unsigned long long *addresses);
  int (*retired_pending)(void *device, unsigned *pending);          // ...RetiredPagesPendingStatus
  int (*fields)(void *device, int count, brim_nvml_field *in_out);  // nvmlDeviceGetFieldValues
  // Processes under MPS, and the use of a GPU by process since a time.
  int (*mps)(void *device, unsigned *count, brim_nvml_process *out);
  int (*process_use)(void *device, brim_nvml_process_use *out, unsigned *count,
                     unsigned long long since_us);
  int (*processes_use)(void *device, brim_nvml_processes_use *in_out);  // since driver 550
  // Events. They are queued from the registration on.
  int (*event_create)(void **set);
  int (*event_free)(void *set);
  int (*event_register)(void *device, unsigned long long types, void *set);
  int (*event_wait)(void *set, brim_nvml_event *out, unsigned timeout_ms);  // nvmlEventSetWait_v2
  int (*cuda_version)(int *version);  // nvmlSystemGetCudaDriverVersion_v2
  // No call of NVML: tests set the clock for readings. NULL = CLOCK_MONOTONIC.
  int64_t (*now_ns)(void);
} brim_nvml_api;

#endif  // BRIM_MONITOR_NVML_ABI_H_
