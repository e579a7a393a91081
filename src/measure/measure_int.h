// Inside the measure room. Benchmarks time calls with it, too.
#ifndef BRIM_MEASURE_INT_H_
#define BRIM_MEASURE_INT_H_

#include <math.h>

#include "measure/measure.h"

enum { BRIM_STEADY_STEPS = 5 };

// True if the latest steps took about the same time.
static inline bool brim_steps_are_steady(const double ms[BRIM_STEADY_STEPS]) {
  double low = ms[0], high = ms[0];
  for (int k = 1; k < BRIM_STEADY_STEPS; k++) {
    low = fmin(low, ms[k]);
    high = fmax(high, ms[k]);
  }
  return high <= 1.05 * low;
}

// Fills in workload, device, machine, setting and config; everything measured stays unknown.
brim_status brim_trial_identify(brim_work *work, const brim_config *config, brim_device *device,
                                const brim_setting *setting, brim_result *out);

// The failure class of a setting that could not be built (measure_trial.c).
brim_failure brim_trial_class(brim_status status);

// On a GPU the host loads, copies and launches while the device computes. If the compute rate is
// known, reduces the other phases to the time in which the device did not compute, and adds the rest
// to the compute phases. The total does not change.
void brim_result_remove_overlap(brim_result *result);

// Sets the utilisation of `out` from a sampled interval in which `rows` samples were computed.
void brim_usage_take(const brim_gpu_usage *usage, double rows, brim_result *out);

// Sets the stages of `r`: the time of each transform between the readings `before` and `after`, per
// step of `rows` samples (measure_trial.c).
void brim_loader_stages(const brim_work_loading *before, const brim_work_loading *after,
                        double rows, brim_result *r);

// Times, rates and steadiness of a result (measure_trial.c).
void brim_summary_scale(brim_stats_summary *s, double by);
brim_status brim_times_summarize(const double *ms, size_t n, brim_stats_summary *out);
// From r->total_ms, with `rows` samples in a step.
void brim_result_set_rates(brim_result *r, double rows, double epoch_samples);
// Scales total, phases and rates to a step that was measured again.
void brim_result_retime(brim_result *r, const brim_stats_summary *total);
// Sets the median of a phase and scales its spread.
void brim_result_set_phase(brim_result *r, brim_phase phase, double ms);

// The share of the GPU's time that other processes took, estimated from the times of equal kernels
// that ran back to back.
double brim_share_of_others(const double *ms, size_t count);

//---------------------------------- several at once ----------------------------------

typedef struct brim_replica_built {
  brim_plan plan;
  brim_work_info info;
  bool refused;  // its plan does not fit
} brim_replica_built;

//---------------------------------- timing a device ----------------------------------

typedef struct brim_device_timer {
  brim_device *device;
  brim_event *start, *end;
  const volatile sig_atomic_t *stop;  // may be NULL
  double spread;  // largest so far between windows of one work: worst / best - 1
} brim_device_timer;

// Work to repeat: a prepared call, or a copy if that is NULL.
typedef struct brim_device_work {
  const brim_op_call *call;
  void *dst;
  const void *src;
  size_t bytes;
  brim_copy direction;
} brim_device_work;

brim_status brim_device_timer_init(brim_device_timer *t, brim_device *device,
                                   const volatile sig_atomic_t *stop);
void brim_device_timer_deinit(brim_device_timer *t);  // also after a failed init
brim_status brim_device_work_enqueue(brim_device *device, const brim_device_work *work,
                                     int64_t times);
// Seconds of one repeat: the best median of `windows` windows of about `ms` each, after two runs that do not count.
// BRIM_EINTERRUPTED when stopped. Nothing is left running.
brim_status brim_device_timer_measure(brim_device_timer *t, const brim_device_work *work, double ms,
                                      int windows, double *seconds);
// Random values (f32, bf16, f16, u8): only power draw, and so clocks, depend on them.
void brim_random_values(brim_dtype type, void *out, size_t count);

//---------------------------------- the machine ----------------------------------

// Sizes of the work that measures a machine.
typedef struct brim_machine_sizes {
  int64_t least, most, most_fp32;  // sides of matrices: from the least up to what product_ms allows
  size_t copy_bytes;               // of each of three buffers; a multiple of 64 KiB
  size_t h2d_bytes;
  double product_ms;
  double window_ms;
  int windows;
  double spread;  // between windows; beyond it another program uses the machine
} brim_machine_sizes;
brim_machine_sizes brim_machine_sizes_of(const brim_device *device);
// *cut: a figure is smaller than wanted, unsteady, or unknown although the device supports it. Such figures are not
// remembered.
brim_status brim_machine_measure(brim_device *device, const brim_machine_sizes *sizes,
                                 const brim_machine_options *options, brim_machine_ceilings *out,
                                 bool *cut);
// brim_machine_ceilings_get with given sizes. Tests give small ones.
brim_status brim_machine_get(brim_device *device, const brim_machine_sizes *sizes,
                             const brim_machine_options *options, brim_machine_ceilings *out);

//---------------------------------- what is remembered ----------------------------------

// FOLDER/NAME: {"schema": SCHEMA, "entries": {KEY: {...}}}. A file that is broken or has another schema is replaced.
typedef struct brim_cache_file {
  const char *folder, *name, *schema;
} brim_cache_file;
// All entries, a new reference; NULL = none.
brim_status brim_cache_entries(const brim_cache_file *file, json_t **out);
brim_status brim_cache_find(const brim_cache_file *file, const char *key,
                            json_t **out);  // a new reference; NULL = none
brim_status brim_cache_store(const brim_cache_file *file, const char *key,
                             json_t *entry);  // takes it
// A number from 0 up to `most`; NaN for anything else.
double brim_cache_number(const json_t *entry, const char *name, double most);

#endif  // BRIM_MEASURE_INT_H_
