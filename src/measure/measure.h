// Trials of a workload: a setting is warmed up until steady and measured until the interval is tight. Also what they rest
// on: GPU memory, ceilings of the machine, profiles, several devices at once. Callers: tune, the commands, the public API.
#ifndef BRIM_MEASURE_H_
#define BRIM_MEASURE_H_

#include <signal.h>

#include "monitor/monitor.h"
#include "profile/profile.h"
#include "record/record.h"
#include "workload/workload.h"

//---------------------------------- records ----------------------------------

// Sets knob_set of records that were read from a file: from the workload that they name, if brim has it,
// else from a workload with the same knobs; NULL if there is none.
void brim_result_attach_knobs(brim_result *results, size_t count);

// True for phases in which the device computes the step.
static inline bool brim_phase_computes(int phase) {
  return phase == BRIM_PHASE_FORWARD || phase == BRIM_PHASE_BACKWARD ||
         phase == BRIM_PHASE_OPTIMIZER || phase == BRIM_PHASE_COMPUTE;
}

//---------------------------------- memory ----------------------------------

// GPU memory beside the plan: context, libraries, modules, recorded graphs. Measured after warm-up and remembered.
typedef struct brim_overhead {
  double at_open;  // bytes after opening the device; NaN = unknown
  double total;    // bytes after warm-up
} brim_overhead;

// Remembered in FOLDER/overhead.json
//   {"schema": "brim.overhead/1", "entries": {KEY: {"at_open": bytes, "total": bytes}}}
// with a key of GPU, driver, libraries, model, precision, compile and checkpointing. A broken file is replaced.
brim_status brim_overhead_load(const char *folder, const char *key, brim_overhead *out);
brim_status brim_overhead_store(const char *folder, const char *key, const brim_overhead *overhead);

// A GPU's memory at one moment; NaN = unknown.
typedef struct brim_memory_reading {
  double free;  // of the whole GPU
  double own;   // held by this process
} brim_memory_reading;

// Watches the memory of one GPU from before it is opened. Idle on a device that is the host.
typedef struct brim_memory_watch {
  brim_gpu_monitor *monitor;  // borrowed; NULL = no NVML, the device is asked instead
  char uuid[64];              // "" = idle
  char driver[96];
  char folder[512];            // of overhead.json; "" = nothing is remembered
  bool by_device;              // without NVML: the device's own figures
  brim_memory_reading before;  // before the device was opened
  double at_open;              // overhead of opening the device
  double overhead, real;       // last measured: real = planned + overhead
  uint64_t held;               // planned device bytes of the configured setting
} brim_memory_watch;

// Call before the device is opened. `uuid` "" for a device that is the host.
void brim_memory_watch_init(brim_memory_watch *watch, brim_gpu_monitor *monitor, const char *uuid,
                            const char *folder);
// Call right after the device was opened.
void brim_memory_watch_opened(brim_memory_watch *watch, brim_device *device);
// Call after warm-up, with the configured plan: sets `overhead` and `real` (NaN = unknown).
void brim_memory_watch_measure(brim_memory_watch *watch, brim_device *device,
                               const brim_plan *plan);
// Returns the remembered overhead of a setting; NaN = none. A failure is only logged.
brim_overhead brim_memory_watch_known(const brim_memory_watch *watch, const brim_work *work,
                                      const brim_config *config, const brim_setting *setting);
// Remembers the overhead measured last, for the setting. A failure is only logged.
void brim_memory_watch_remember(const brim_memory_watch *watch, const brim_work *work,
                                const brim_config *config, const brim_setting *setting);

// A setting to build, and the memory it may take.
typedef struct brim_fit {
  brim_work *work;
  const brim_config *config;  // may be NULL
  const brim_setting *setting;
  const brim_plan *plan;
  uint64_t limit;                  // device bytes the plan may take; 0 = what is free
  const brim_memory_watch *watch;  // NULL or idle: brim_work_check_fit decides
} brim_fit;

// Checks that the setting fits in free memory: counts the memory of the configured setting as free, and
// reserves the overhead that is not allocated yet. Fails with BRIM_EOOM and the message of
// brim_fit_explain.
brim_status brim_fit_check(const brim_fit *fit);
// Returns BRIM_EOOM. The detail says what is needed and what is free, which processes hold the rest (the three largest
// and this one), the largest batch_size that fits, and what to do. `refused`: an
// allocation failed on the device; its detail stays in front.
brim_status brim_fit_explain(const brim_fit *fit, bool refused);
// The same when the device could not be opened: there is no setting yet. The present detail stays in front.
brim_status brim_fit_explain_open(const brim_memory_watch *watch);

//---------------------------------- the machine ----------------------------------

// How the ceilings of a device (record.h) are measured: under a second on a GPU, two on a CPU. All memory is given back;
// short of memory, less is taken. What cannot be measured is NaN.
typedef struct brim_machine_options {
  // Device bytes it may take beside the ops' own, never more than a quarter of what is free. 0 = no other limit.
  uint64_t memory_limit;
  const char *folder;               // of ceilings.json; NULL or "" = nothing is remembered
  const char *driver;               // version, part of the key; NULL = none
  const brim_memory_watch *memory;  // of a GPU, to see other processes; NULL = they are not seen
  const brim_host_provider *host;   // where the use of the CPU is read; NULL = the machine
  const volatile sig_atomic_t *stop;
} brim_machine_options;
// Gets the remembered ceilings, or measures them if none are remembered. Ceilings of a busy machine are
// measured again; the larger figure of each pair is kept. BRIM_OK, or BRIM_EINTERRUPTED when stopped:
// files that cannot be read or written are no failure.
brim_status brim_machine_ceilings_get(brim_device *device, const brim_machine_options *options,
                                      brim_machine_ceilings *out);
// Something was faster than the ceilings: the next call measures again.
void brim_machine_ceilings_doubt(const brim_device *device, const brim_machine_options *options);
// True if a result computed faster than its ceilings.
bool brim_machine_exceeded(const brim_result *results, size_t count);
// If a result exceeds its ceilings, measures them again, once, and writes the larger ones to `known` and
// to the results. False if nothing changed.
bool brim_machine_ceilings_raise(brim_device *device, const brim_machine_options *options,
                                 brim_result *results, size_t count, brim_machine_ceilings *known);
// Remembered in FOLDER/ceilings.json
//   {"schema": "brim.ceilings/1", "entries": {KEY: {"gemm_fp32_flops": number or null, ..., "load": share}}}
// with a key of device, driver, library, backend, a CPU's threads and brim's version. load: other programs' share of the
// machine meanwhile, 0 to 1; null = not seen. A broken file is replaced.
brim_status brim_machine_ceilings_load(const char *folder, const char *key,
                                       brim_machine_ceilings *out);
// Finds the highest remembered ceilings of the GPU `uuid`, measured with any driver and library.
brim_status brim_machine_ceilings_of_gpu(const char *folder, const char *uuid,
                                         brim_machine_ceilings *out);
brim_status brim_machine_ceilings_store(const char *folder, const char *key,
                                        const brim_machine_ceilings *ceilings);

//---------------------------------- trials ----------------------------------

// Location of the measured times of a trial. NaN = unknown; the error needs three samples.
typedef struct brim_trial_location {
  double log_time, log_se;  // logarithm of a sample's time, and its standard error
  double samples;
} brim_trial_location;
// For `n` positive times in any unit. BRIM_EINVAL if one is not positive.
brim_status brim_trial_locate(const double *times, size_t n, brim_trial_location *out);

typedef struct brim_trial_options {
  // Most samples to measure; 0 = 10. A sample is a step; on a GPU the mean of the steps of 50 ms, run as in training.
  int steps;
  int min_steps;     // samples before a trial may end early; may raise `steps`; 0 = 5
  int max_warmup;    // 0 = 20
  double ci_target;  // end early when the 95 % interval of the median is within this share; 0 = off
  // End after so many seconds of steps, warm-up included, with min_steps (3 by default); 0 = no limit.
  double max_seconds;
  uint64_t memory_limit;                 // device bytes the plan must fit in; 0 = what is free
  brim_memory_watch *memory;             // of the device; NULL = none
  brim_gpu_sampler *sampler;             // of the device; NULL = its columns stay unknown
  const brim_machine_ceilings *machine;  // for the results; NULL = unknown
  bool ceilings;                         // also measure the loader alone and the device alone
  bool configured;           // measure the workload as it stands, and restore its state afterwards
  brim_result_visit *visit;  // gets the visit of a trial that ran, for a race; may be NULL
  const volatile sig_atomic_t *stop;
  void (*on_step)(void *ctx, int step, int total);
  void *ctx;
} brim_trial_options;

// Runs one trial. A setting that fails (out of memory, unsupported, ...) is classed in out->failure and gives BRIM_OK.
// BRIM_EINTERRUPTED when stopped. `config` may be NULL.
brim_status brim_trial_run(brim_work *work, const brim_config *config, brim_device *device,
                           const brim_setting *setting, const brim_trial_options *options,
                           brim_result *out);
// Plans without running; failure is OOM_PLANNED if it does not fit.
brim_status brim_trial_plan(brim_work *work, const brim_config *config, brim_device *device,
                            const brim_setting *setting, const brim_trial_options *options,
                            brim_result *out);

// Traces a few steps of a measured setting, run as in training, into the trace figures of its result. Leaves the workload
// at that setting.
brim_status brim_trial_trace(brim_work *work, brim_device *device, const brim_setting *setting,
                             brim_gpu_trace *trace, brim_result *result);

//---------------------------------- profiles ----------------------------------

typedef struct brim_profile_options {
  int steps;           // to trace; 0 = 20, fewer if they are long
  double max_seconds;  // for measuring the step, and again for tracing; 0 = 10
  // "cupti" or "events" (BRIM_EUNSUPPORTED if not available); NULL or "" = the best available.
  const char *source;
  uint64_t memory_limit;                 // device bytes the plan must fit in; 0 = what is free
  brim_memory_watch *memory;             // of the device; NULL = none
  brim_gpu_sampler *sampler;             // of the device; NULL = its columns stay unknown
  const brim_machine_ceilings *machine;  // for the ceilings of rows; NULL = unknown
  const volatile sig_atomic_t *stop;
  // The present stage, as a message; may be NULL.
  void (*on_stage)(void *ctx, const char *what);
  void *ctx;
} brim_profile_options;

// Where the time of a step goes (record_profile.h): measures the step as a trial does, then traces a short window.
// Initialises `out` and `trace`; deinit both whatever it returns. A setting that fails is classed in
// out->result.failure, as in brim_trial_run. Leaves the workload at the setting. `config` may be NULL.
brim_status brim_profile_run(brim_work *work, const brim_config *config, brim_device *device,
                             const brim_setting *setting, const brim_profile_options *options,
                             brim_profile *out, brim_trace *trace);

//---------------------------------- beside a step ----------------------------------

// If the config writes checkpoints within an epoch, measures how long a step waits for one, and sets
// checkpoint_ms and checkpoint_steps of `out`. The workload must be configured with the setting of
// `out`; it makes some steps. Writes to `folder` as training would, and removes the files; NULL =
// nothing is measured.
brim_status brim_checkpoint_measure(brim_work *work, const brim_config *config, brim_device *device,
                                    const char *folder, brim_result *out);
// Measures in a tenth of a second what other processes take of the GPU's time, into shared_percent and shared_with of
// `out`; unknown on a CPU.
brim_status brim_sharing_measure(brim_device *device, const brim_memory_watch *watch,
                                 brim_result *out);

//---------------------------------- several at once ----------------------------------

// One of several workloads that run at once, each on its own device.
typedef struct brim_replica {
  const char *spec;  // as the user named it: "cuda:1"
  brim_work *work;   // NULL = it could not be opened; `status` and `message` say why
  brim_device *device;
  brim_memory_watch *memory;  // of the device; NULL = none
  // Also set after a crash: the replica takes no further part.
  brim_status status;
  char message[512];
} brim_replica;

typedef struct brim_scaling_options {
  const brim_config *config;  // for the record; may be NULL
  double seconds;             // of measuring; 0 = 1.5
  int max_warmup;             // steps; 0 = 20
  double max_seconds;         // of warm-up; 0 = 15
  uint64_t memory_limit;      // device bytes the plan must fit in; 0 = what is free
  const volatile sig_atomic_t *stop;
  void (*on_wait)(void *ctx);  // from the calling thread, some times a second; may be NULL
  void *ctx;
} brim_scaling_options;

// Runs all replicas (at most BRIM_SCALING_MAX) at one setting, each with its own part of the data, without exchanging
// anything. Replicas are built one after the other, since not all libraries that read data are thread-safe. Each steps in
// its own thread until the last one was measured, so that all figures are of a time in which all ran. A replica that
// fails is reported in `out`, and the others continue. Leaves `one`, `efficiency` and losses to the caller. Deinit `out`,
// also after BRIM_EINTERRUPTED.
brim_status brim_scaling_run(brim_replica *replicas, size_t count, const brim_setting *setting,
                             const brim_scaling_options *options, brim_scaling *out);
// Runs the replicas that ran in `out` as ranks of one training, each with the setting's batch, into out->exchange: first
// the exchange alone, then steps. If one fails all end, and out->exchange says why. Afterwards the workloads have no
// setting and the devices no ranks. Measures nothing for fewer than two replicas, or a workload without ranks.
brim_status brim_scaling_exchange_run(brim_replica *replicas, size_t count,
                                      const brim_setting *setting,
                                      const brim_scaling_options *options, brim_scaling *out);

#endif  // BRIM_MEASURE_H_
