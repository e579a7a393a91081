// The part of NVML's ABI that is used, written down here so that no vendor header is needed. The
// layouts are NVIDIA's and held by the asserts below (and against nvml.h itself in the tests, where
// that is installed); names are ours. Included by: this room, and tests that stand in for the
// library.
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

// nvmlReturn_t, those that are told apart
enum {
  BRIM_NVML_SUCCESS = 0,
  BRIM_NVML_UNINITIALIZED = 1,
  BRIM_NVML_INVALID_ARGUMENT = 2,
  BRIM_NVML_NOT_SUPPORTED = 3,
  BRIM_NVML_NO_PERMISSION = 4,
  BRIM_NVML_NOT_FOUND = 6,
  BRIM_NVML_INSUFFICIENT_SIZE = 7,
  BRIM_NVML_DRIVER_NOT_LOADED = 9,
  BRIM_NVML_FUNCTION_NOT_FOUND = 13,
  BRIM_NVML_GPU_IS_LOST = 15,
  BRIM_NVML_RESET_REQUIRED = 16,
  BRIM_NVML_VERSION_MISMATCH = 25,  // of an argument's `version`
  BRIM_NVML_DEPRECATED = 26,
  BRIM_NVML_UNKNOWN_ERROR = 999
};

enum { BRIM_NVML_CLOCK_SM = 1 };         // nvmlClockType_t
enum { BRIM_NVML_TEMPERATURE_GPU = 0 };  // nvmlTemperatureSensors_t: the die

// nvmlClocksEventReasons (ThrottleReasons before driver 535), those that are told apart
#define BRIM_NVML_REASON_IDLE 0x1ULL
#define BRIM_NVML_REASON_APPLICATION_CLOCKS 0x2ULL
#define BRIM_NVML_REASON_SW_POWER_CAP 0x4ULL
#define BRIM_NVML_REASON_HW_SLOWDOWN 0x8ULL  // set beside HW_THERMAL and HW_POWER_BRAKE too
#define BRIM_NVML_REASON_SW_THERMAL 0x20ULL
#define BRIM_NVML_REASON_HW_THERMAL 0x40ULL
#define BRIM_NVML_REASON_HW_POWER_BRAKE 0x80ULL

// nvmlGpmMetricId_t, those that are asked
enum {
  BRIM_NVML_GPM_GRAPHICS_UTIL = 1,
  BRIM_NVML_GPM_SM_UTIL = 2,
  BRIM_NVML_GPM_SM_OCCUPANCY = 3,
  BRIM_NVML_GPM_ANY_TENSOR_UTIL = 5,
  BRIM_NVML_GPM_DRAM_BW_UTIL = 10
};
enum { BRIM_NVML_GPM_SUPPORT_VERSION = 1, BRIM_NVML_GPM_METRICS_VERSION = 1 };
// NVML_GPM_METRIC_MAX of CUDA 13. It was 98 at first and grew under the same version, so the library
// can fill no more than `count`; the full room costs nothing.
enum { BRIM_NVML_GPM_ROOM = 333 };

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
  int code;  // nvmlReturn_t of this one
  double value;
  const char *short_name, *long_name, *unit;
} brim_nvml_gpm_metric;

typedef struct brim_nvml_gpm_metrics {  // nvmlGpmMetricsGet_t
  unsigned version;                     // BRIM_NVML_GPM_METRICS_VERSION
  unsigned count;
  void *first, *second;  // nvmlGpmSample_t: a struct of one pointer, passed as that
  brim_nvml_gpm_metric metric[BRIM_NVML_GPM_ROOM];
} brim_nvml_gpm_metrics;

BRIM_NVML_ASSERT(sizeof(brim_nvml_memory) == 24, "nvmlMemory_t");
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

// The calls that are used; device handles are opaque pointers. Members may be NULL where it says so.
typedef struct brim_nvml_api {
  int (*init)(void);                                 // nvmlInit_v2
  int (*shutdown)(void);                             // nvmlShutdown
  int (*by_uuid)(const char *uuid, void **device);   // nvmlDeviceGetHandleByUUID
  const char *(*error_string)(int code);             // (optional) nvmlErrorString
  int (*driver_version)(char *text, unsigned size);  // (optional) nvmlSystemGetDriverVersion
  int (*memory_v2)(void *device, brim_nvml_memory_v2 *out);  // (optional)
  int (*memory)(void *device, brim_nvml_memory *out);        // (optional) for older drivers
  // (optional) *count: room in `out`, then how many there are; INSUFFICIENT_SIZE when more.
  int (*compute)(void *device, unsigned *count, brim_nvml_process *out);
  int (*graphics)(void *device, unsigned *count, brim_nvml_process *out);
  // What the GPU does; all optional.
  int (*utilisation)(void *device, brim_nvml_utilisation *out);  // nvmlDeviceGetUtilizationRates
  int (*power)(void *device, unsigned *mw);                      // nvmlDeviceGetPowerUsage
  int (*power_limit)(void *device, unsigned *mw);                // nvmlDeviceGetEnforcedPowerLimit
  int (*energy)(void *device, unsigned long long *mj);      // nvmlDeviceGetTotalEnergyConsumption
  int (*clock)(void *device, int type, unsigned *mhz);      // nvmlDeviceGetClockInfo
  int (*clock_max)(void *device, int type, unsigned *mhz);  // nvmlDeviceGetMaxClockInfo
  int (*event_reasons)(void *device, unsigned long long *bits);  // ...GetCurrentClocksEventReasons
  int (*throttle_reasons)(void *device, unsigned long long *bits);    // its name before 535
  int (*temperature)(void *device, int sensor, unsigned *celsius);    // nvmlDeviceGetTemperature
  int (*temperature_v)(void *device, brim_nvml_temperature *in_out);  // ...GetTemperatureV
  int (*gpm_support)(void *device, brim_nvml_gpm_support *in_out);    // nvmlGpmQueryDeviceSupport
  int (*gpm_alloc)(void **sample);                                    // nvmlGpmSampleAlloc
  int (*gpm_free)(void *sample);                                      // nvmlGpmSampleFree
  int (*gpm_sample)(void *device, void *sample);                      // nvmlGpmSampleGet
  int (*gpm_metrics)(brim_nvml_gpm_metrics *in_out);                  // nvmlGpmMetricsGet
  // Which GPUs there are; all optional. A GPU in MIG mode is used by its slices.
  int (*device_count)(unsigned *count);                             // nvmlDeviceGetCount_v2
  int (*by_index)(unsigned index, void **device);                   // nvmlDeviceGetHandleByIndex_v2
  int (*uuid)(void *device, char *text, unsigned size);             // nvmlDeviceGetUUID
  int (*name)(void *device, char *text, unsigned size);             // nvmlDeviceGetName
  int (*mig_mode)(void *device, unsigned *now, unsigned *pending);  // nvmlDeviceGetMigMode
  int (*mig_count)(void *device, unsigned *count);  // nvmlDeviceGetMaxMigDeviceCount
  int (*mig_by_index)(void *device, unsigned index, void **slice);  // ...GetMigDeviceHandleByIndex
  // None of NVML's: the time readings are compared with. NULL = CLOCK_MONOTONIC.
  int64_t (*now_ns)(void);
} brim_nvml_api;

#ifdef __cplusplus
}
#endif
#endif  // BRIM_MONITOR_NVML_ABI_H_
