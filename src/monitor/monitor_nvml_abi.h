// The part of NVML's ABI that is used, written down here so that no vendor header is needed. The
// layouts are NVIDIA's and held by the asserts below; names are ours. Who includes it:
// monitor_nvml.c, and tests that stand in for the library.
#ifndef BRIM_MONITOR_NVML_ABI_H_
#define BRIM_MONITOR_NVML_ABI_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#define BRIM_NVML_ASSERT static_assert
#else
#define BRIM_NVML_ASSERT _Static_assert
#endif

// nvmlReturn_t, those that are told apart
enum {
  BRIM_NVML_SUCCESS = 0,
  BRIM_NVML_NOT_SUPPORTED = 3,
  BRIM_NVML_NO_PERMISSION = 4,
  BRIM_NVML_NOT_FOUND = 6,
  BRIM_NVML_INSUFFICIENT_SIZE = 7,
  BRIM_NVML_DRIVER_NOT_LOADED = 9
};

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

BRIM_NVML_ASSERT(sizeof(brim_nvml_memory) == 24, "nvmlMemory_t");
BRIM_NVML_ASSERT(sizeof(brim_nvml_memory_v2) == 40, "nvmlMemory_v2_t");
BRIM_NVML_ASSERT(offsetof(brim_nvml_memory_v2, total) == 8, "nvmlMemory_v2_t");
BRIM_NVML_ASSERT(offsetof(brim_nvml_memory_v2, used) == 32, "nvmlMemory_v2_t");
BRIM_NVML_ASSERT(BRIM_NVML_MEMORY_V2_VERSION == 0x02000028, "nvmlMemory_v2");
BRIM_NVML_ASSERT(sizeof(brim_nvml_process) == 24, "nvmlProcessInfo_t");
BRIM_NVML_ASSERT(offsetof(brim_nvml_process, used_bytes) == 8, "nvmlProcessInfo_t");
BRIM_NVML_ASSERT(offsetof(brim_nvml_process, compute_instance) == 20, "nvmlProcessInfo_t");

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
} brim_nvml_api;

#ifdef __cplusplus
}
#endif
#endif  // BRIM_MONITOR_NVML_ABI_H_
