// Inside the measure room: what its files ask of each other. Benchmarks time calls with it, too.
#ifndef BRIM_MEASURE_INT_H_
#define BRIM_MEASURE_INT_H_

#include "measure/measure.h"

#ifdef __cplusplus
extern "C" {
#endif

// A result of nothing yet: everything unknown but what it is of.
brim_status brim_trial_identify(brim_work *work, const brim_config *config, brim_device *device,
                                const brim_setting *setting, brim_result *out);

// The class of what kept a setting from being built (measure_trial.c).
brim_failure brim_trial_class(brim_status status);

// Samples/s with the loader alone and with the device alone, of a workload that is warmed up at the
// setting of `out`: into out->data_samples_per_s and out->compute_samples_per_s, NaN where a workload
// has no such halves. `step_ms` is what a whole step takes, `ring` the steps that may be prefetched;
// about `budget_s` is spent on each. BRIM_EINTERRUPTED when stopped.
typedef struct brim_ceilings {
  brim_work *work;
  brim_device *device;
  double step_ms;
  int ring;
  double budget_s;
  const volatile sig_atomic_t *stop;
} brim_ceilings;
brim_status brim_ceilings_measure(const brim_ceilings *how, brim_result *out);
// On a GPU the host loads, copies and launches while the device computes. Of a result whose ceilings
// are known: only what the device's own time leaves of a step was waited for, so that phases besides
// computing share no more than that, and computing has the rest. They sum as before.
void brim_ceilings_expose(brim_result *result);

// The figures of a sampled interval in which `rows` samples were computed.
void brim_usage_take(const brim_gpu_usage *usage, double rows, brim_result *out);

// Into the stages of `r`: the loader's transforms between two readings, per step of `rows` samples
// (measure_trial.c).
void brim_loader_stages(const brim_work_loading *before, const brim_work_loading *after,
                        double rows, brim_result *r);

// Times, rates and steadiness of a result (measure_trial.c).
void brim_summary_scale(brim_stats_summary *s, double by);
brim_status brim_times_summarize(const double *ms, size_t n, brim_stats_summary *out);
// From r->total_ms, with `rows` samples in a step.
void brim_result_set_rates(brim_result *r, double rows, double epoch_samples);
// The step was measured again: total, phases and what follows from them are of these steps.
void brim_result_retime(brim_result *r, const brim_stats_summary *total);
// The median of a phase; its spread stays in proportion.
void brim_result_set_phase(brim_result *r, brim_phase phase, double ms);

// The share of the time that others had, by the times of equal pieces that ran back to back.
double brim_sharing_lost(const double *ms, size_t count);

//---------------------------------- several at once ----------------------------------

typedef struct brim_replica_built {
  brim_plan plan;
  brim_work_info info;
  bool refused;  // by the plan
} brim_replica_built;

//---------------------------------- timing a device ----------------------------------

typedef struct brim_device_timer {
  brim_device *device;
  brim_event *start, *end;
  const volatile sig_atomic_t *stop;  // may be NULL
  double spread;                      // largest yet between windows of one work: worst / best - 1
} brim_device_timer;

// What is repeated: a prepared call, or without one a copy.
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
// Seconds of one repeat: the best of the medians of so many windows of about `ms` each, after two
// runs that do not count. BRIM_EINTERRUPTED when stopped. Nothing is left running.
brim_status brim_device_timer_measure(brim_device_timer *t, const brim_device_work *work, double ms,
                                      int windows, double *seconds);
// Values that a device can do arithmetic on (f32, bf16, f16, u8); only power and so clocks depend on
// them.
void brim_random_values(brim_dtype type, void *out, size_t count);

//---------------------------------- the machine ----------------------------------

// How large the work is by which a machine is measured.
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
// *cut: something was smaller than wanted, unsteady, or unknown for another reason than that the device
// cannot. Such figures are not remembered.
brim_status brim_machine_measure(brim_device *device, const brim_machine_sizes *sizes,
                                 const brim_machine_options *options, brim_machine_ceilings *out,
                                 bool *cut);
brim_status brim_machine_get(brim_device *device, const brim_machine_sizes *sizes,
                             const brim_machine_options *options, brim_machine_ceilings *out);

//---------------------------------- what is remembered ----------------------------------

// FOLDER/NAME: {"schema": SCHEMA, "entries": {KEY: {...}}}. One that is missing, broken or has another
// schema knows nothing and is replaced.
typedef struct brim_cache_file {
  const char *folder, *name, *schema;
} brim_cache_file;
// All by their keys, own reference; NULL = none.
brim_status brim_cache_entries(const brim_cache_file *file, json_t **out);
brim_status brim_cache_find(const brim_cache_file *file, const char *key,
                            json_t **out);  // own reference; NULL = not known
brim_status brim_cache_store(const brim_cache_file *file, const char *key,
                             json_t *entry);  // takes it
// A number from 0 up to `most`; NaN for anything else.
double brim_cache_number(const json_t *entry, const char *name, double most);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_MEASURE_INT_H_
