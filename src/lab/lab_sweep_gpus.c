// What the GPUs of a sweep do, for its view: use, power, temperature, and the steps of the experiments
// on each. Readings are taken between two marks of a sampler whose own thread sleeps: every second while
// a view is looked at, every five where a server shows them, else every ten.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/lab_sweep_int.h"

enum {
  LOOKED_AT_MS = 1000,
  ALONE_MS = 10000,
  SERVES_MS = 5000,  // a worker's, whose server shows them
  LOOKS_MS = 5000    // a view is looked at until so long after it was made
};
static const double never_s = 86400;  // the sampler's own period

// A GPU whose sampler does not start stays unknown.
static void start(brim_lab_sweep *s, const char *uuid) {
  brim_lab_gpu_reader *r = &s->readers[s->reader_count++];
  memset(r, 0, sizeof *r);
  snprintf(r->uuid, sizeof r->uuid, "%s", uuid);
  r->power_w = r->power_limit_w = r->gpu_percent = r->temperature_c = (double)NAN;
  if (!s->options.monitor ||
      brim_gpu_sampler_start(s->options.monitor, uuid, never_s, &r->sampler)) {
    brim_status_clear();
    r->sampler = NULL;
    return;
  }
  brim_gpu_sampler_mark(r->sampler);
}

const brim_lab_gpu_reader *brim_lab_gpus_find(const brim_lab_sweep *s, const char *uuid) {
  for (size_t i = 0; i < s->reader_count; i++) {
    if (strcmp(s->readers[i].uuid, uuid) == 0) return &s->readers[i];
  }
  return NULL;
}

static void read_one(brim_lab_gpu_reader *r) {
  brim_gpu_usage usage;
  if (!r->sampler) return;
  brim_gpu_sampler_read(r->sampler, &usage);
  brim_gpu_sampler_mark(r->sampler);
  r->gpu_percent = usage.gpu_percent;
  r->power_w = usage.power_w;
  r->power_limit_w = usage.power_limit_w;
  r->temperature_c = usage.temperature_c;
}

void brim_lab_gpus_read(brim_lab_sweep *s, int64_t now_ms) {
  const bool looked_at = s->looked_ms > 0 && now_ms - s->looked_ms < LOOKS_MS;
  const int64_t every = looked_at ? LOOKED_AT_MS : s->options.serves ? SERVES_MS : ALONE_MS;
  if (s->gpus_ms > 0 && now_ms - s->gpus_ms < every) return;
  s->gpus_ms = now_ms;
  for (size_t i = 0; i < s->reader_count; i++) read_one(&s->readers[i]);
  for (size_t i = 0; i < brim_lab_place_count(s->placing); i++) {
    brim_lab_place_gpu gpu;
    brim_lab_place_get(s->placing, i, &gpu);
    if (!brim_lab_gpus_find(s, gpu.uuid) && s->reader_count < BRIM_LAB_PLACE_GPUS)
      start(s, gpu.uuid);
  }
}

void brim_lab_gpus_close(brim_lab_sweep *s) {
  for (size_t i = 0; i < s->reader_count; i++) brim_gpu_sampler_stop(s->readers[i].sampler);
  s->reader_count = 0;
}

// Whether a list of devices as a slot has it ("GPU-1,GPU-2", "cpu") has this one.
static bool has_device(const char *list, const char *device) {
  const size_t n = strlen(device);
  for (const char *at = list; *at; at += *at == ',') {
    const size_t size = strcspn(at, ",");
    if (size == n && strncmp(at, device, n) == 0) return true;
    at += size;
  }
  return false;
}

// Of the experiments on a device; unknown as long as none of them has made steps.
static double steps_on(const brim_lab_sweep *s, const char *device) {
  double sum = (double)NAN;
  for (size_t i = 0; i < s->count; i++) {
    const brim_lab_runner *r = s->runners[i];
    if (!(r->steps_per_s > 0) || !r->devices || !has_device(r->devices, device)) continue;
    sum = isnan(sum) ? r->steps_per_s : sum + r->steps_per_s;
  }
  return sum;
}

void brim_lab_gpus_fill(brim_lab_sweep *s, brim_sweep_gpu *out) {
  const brim_lab_gpu_reader *r = out->id[0] ? brim_lab_gpus_find(s, out->id) : NULL;
  out->steps_per_s = steps_on(s, out->id[0] ? out->id : out->name);
  if (!r) return;
  out->gpu_percent = r->gpu_percent;
  out->power_w = r->power_w;
  out->temperature_c = r->temperature_c;
}
