// GPM: a GPU's own counters of activity, compared between two samples. One user at a time per
// brim_gpm; calls are serialised for the whole monitor, because NVML does not promise that they are
// safe between threads. Callers: the sampler, the live view.
#include <math.h>
#include <string.h>

#include "monitor/monitor_int.h"

bool brim_nvml_is_final(int code) {
  return code == BRIM_NVML_INVALID_ARGUMENT || code == BRIM_NVML_NOT_SUPPORTED ||
         code == BRIM_NVML_NO_PERMISSION || code == BRIM_NVML_FUNCTION_NOT_FOUND ||
         code == BRIM_NVML_VERSION_MISMATCH || code == BRIM_NVML_DEPRECATED;
}

bool brim_nvml_is_lost(int code) {
  return code == BRIM_NVML_GPU_IS_LOST || code == BRIM_NVML_RESET_REQUIRED ||
         code == BRIM_NVML_UNINITIALIZED || code == BRIM_NVML_DRIVER_NOT_LOADED;
}

void brim_gpm_open(brim_gpm *gpm, brim_gpu_monitor *monitor, void *device) {
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
}

void brim_gpm_open_slice(brim_gpm *gpm, brim_gpu_monitor *monitor, void *device,
                         unsigned instance) {
  brim_gpm_open(gpm, monitor, device);
  gpm->slice = true;
  gpm->instance = instance;
  gpm->on = gpm->on && monitor->api.gpm_mig_sample != NULL;
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
