// How a GPU is set up: what seldom changes and what a checklist asks for (ECC, power limit, PCIe link,
// modes, health). One reading each, by NVML; apart from the samples of monitor.h, which are about what
// a GPU does. Callers: the doctor.
#ifndef BRIM_MONITOR_GPU_SETUP_H_
#define BRIM_MONITOR_GPU_SETUP_H_

#include "monitor/monitor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum brim_gpu_switch {
  BRIM_GPU_SWITCH_UNKNOWN,
  BRIM_GPU_SWITCH_OFF,
  BRIM_GPU_SWITCH_ON
} brim_gpu_switch;

// How many processes may compute on a GPU at once.
typedef enum brim_gpu_compute_mode {
  BRIM_GPU_COMPUTE_UNKNOWN,
  BRIM_GPU_COMPUTE_SHARED,
  BRIM_GPU_COMPUTE_EXCLUSIVE,  // one process
  BRIM_GPU_COMPUTE_PROHIBITED
} brim_gpu_compute_mode;

// NaN, "", UNKNOWN and -1 = the driver does not tell.
typedef struct brim_gpu_setup {
  char bus_id[32];  // as sysfs spells it: "0000:00:06.0"
  brim_gpu_switch ecc, ecc_pending, mig, persistence;
  brim_gpu_compute_mode compute_mode;
  // Since the driver was loaded.
  double ecc_corrected, ecc_uncorrected;
  // Rows of device memory that were replaced; a replacement that waits for a reset; one that failed.
  double rows_remapped;
  brim_gpu_switch remap_pending, remap_failed;
  double power_limit_w, power_default_w;
  double clock_mhz, clock_max_mhz;  // of the SMs, now and at most
  double temperature_c, slowdown_c;
  int pcie_generation, pcie_generation_max;  // now, and what GPU and slot can do
  int pcie_width, pcie_width_max;
  int performance_state;  // 0 = P0, the fastest
  bool reasons_known;
  bool idle;          // the clock is low because there is nothing to do
  uint32_t throttle;  // 1 << BRIM_THROTTLE_BIT_..., now
} brim_gpu_setup;

// A slice (MIG) is answered with what is known of it, which is little. BRIM_EUNSUPPORTED when NVML does
// not know the GPU; `out` is cleared either way.
brim_status brim_gpu_read_setup(brim_gpu_monitor *monitor, const char *uuid, brim_gpu_setup *out);
// The newest CUDA that the driver can run: 13.0 is 13000; 0 = unknown.
int brim_gpu_cuda_version(brim_gpu_monitor *monitor);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_MONITOR_GPU_SETUP_H_
