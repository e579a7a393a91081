// Trials: one setting, warmed up until steady, measured until the interval is tight, state
// restored. And the memory of a GPU: what was planned, what comes on top, which processes hold the
// rest. Callers: tune, the commands, the public API.
#ifndef BRIM_MEASURE_H_
#define BRIM_MEASURE_H_

#include <signal.h>

#include "monitor/monitor.h"
#include "profile/profile.h"
#include "record/record.h"
#include "workload/workload.h"

#ifdef __cplusplus
extern "C" {
#endif

//---------------------------------- records ----------------------------------

// For records that were read: the knob rows of the workloads that measured them (knob_set), where brim
// has these.
void brim_result_know(brim_result *results, size_t count);

//---------------------------------- memory ----------------------------------

// 'Planned' is everything brim asks for; what the context, the libraries, their modules and recorded
// graphs take besides is 'overhead'. It is measured after warm-up and remembered for the next time.
typedef struct brim_overhead {
  double at_open;  // bytes taken by opening the device; NaN = unknown
  double total;    // the same after warm-up
} brim_overhead;

// Where it is remembered: FOLDER/overhead.json
//   {"schema": "brim.overhead/1", "entries": {KEY: {"at_open": bytes, "total": bytes}}}
// with a key of GPU, driver, libraries, model, precision, compile and checkpointing. A file that is
// missing or broken knows nothing and is replaced.
brim_status brim_overhead_load(const char *folder, const char *key, brim_overhead *out);
brim_status brim_overhead_store(const char *folder, const char *key, const brim_overhead *overhead);

// What a GPU had at one moment; NaN = unknown.
typedef struct brim_memory_reading {
  double free;  // of the whole GPU
  double own;   // held by this process
} brim_memory_reading;

// The memory of one GPU, watched from before it is opened. On a device that is the host it stays
// idle: nothing is asked and nothing is known.
typedef struct brim_memory_watch {
  brim_gpu_monitor *monitor;  // borrowed; NULL = no NVML, the device is asked instead
  char uuid[64];              // "" = idle
  char driver[96];
  char folder[512];  // of overhead.json; "" = nothing is remembered
  bool by_device;    // NVML does not tell: figures are the device's own
  brim_memory_reading before;
  double at_open;         // overhead of opening the device
  double overhead, real;  // last measured: real = planned + overhead
  uint64_t held;          // planned device bytes of the setting that stands
} brim_memory_watch;

// Before the device is opened. `uuid` "" for a device that is the host.
void brim_memory_watch_init(brim_memory_watch *watch, brim_gpu_monitor *monitor, const char *uuid,
                            const char *folder);
// When it has just been opened and nothing was asked of it yet.
void brim_memory_watch_opened(brim_memory_watch *watch, brim_device *device);
// After warm-up, with a plan that stands: sets `overhead` and `real` (NaN where unknown).
void brim_memory_watch_measure(brim_memory_watch *watch, brim_device *device,
                               const brim_plan *plan);
// What is remembered for a setting (NaN = nothing), and to remember what was measured last. Failures
// to do so are no failures of the work: they are logged.
brim_overhead brim_memory_watch_known(const brim_memory_watch *watch, const brim_work *work,
                                      const brim_config *config, const brim_setting *setting);
void brim_memory_watch_remember(const brim_memory_watch *watch, const brim_work *work,
                                const brim_config *config, const brim_setting *setting);

// A setting that is to be built, and what it may take.
typedef struct brim_fit {
  brim_work *work;
  const brim_config *config;  // may be NULL
  const brim_setting *setting;
  const brim_plan *plan;
  uint64_t limit;                  // device bytes the plan may take; 0 = what is free
  const brim_memory_watch *watch;  // NULL or idle: brim_work_check_fit decides
} brim_fit;

// Does it fit into what is free, once what the present setting holds is given back and the overhead
// that is still to come is set aside? BRIM_EOOM as brim_fit_explain.
brim_status brim_fit_check(const brim_fit *fit);
// Returns BRIM_EOOM. The detail says what is needed and what is free of how much, which processes
// hold the rest (the three largest, and this process), the largest batch_size that fits now, and
// what to do. `met`: the device refused, and the present detail says how; it is kept in front.
brim_status brim_fit_explain(const brim_fit *fit, bool met);
// The same where not even the device could be opened: there is no setting yet. The present
// detail is kept in front.
brim_status brim_fit_explain_open(const brim_memory_watch *watch);

//---------------------------------- the machine ----------------------------------

// What a device can do at best (record.h), in under a second on a GPU and two on a CPU. Nothing that
// it takes is kept; where memory is short it makes do with less, and what cannot be measured is NaN.
typedef struct brim_machine_options {
  // Device bytes it may take, besides what the ops want for themselves; never more than a quarter of
  // what is free. 0 = no other limit.
  uint64_t memory_limit;
  const char *folder;  // of ceilings.json; NULL or "" = nothing is remembered
  const char *driver;  // its version, a part of the key; NULL = none
  const brim_memory_watch
      *memory;  // of a GPU, to see what other processes take of it; NULL = not seen
  const brim_host_provider *host;  // where the use of the processors comes from; NULL = the machine
  const volatile sig_atomic_t *stop;
} brim_machine_options;
// As remembered in the folder; measured and remembered where nothing is known. What was measured while
// the machine was busy is measured again, and the larger figures stay. BRIM_OK, or
// BRIM_EINTERRUPTED when stopped: a file that cannot be read or written is no failure.
brim_status brim_machine_ceilings_get(brim_device *device, const brim_machine_options *options,
                                      brim_machine_ceilings *out);
// Did other programs use more than a tenth of the machine at the time?
bool brim_machine_was_busy(const brim_machine_ceilings *ceilings);
// Something was faster than the ceilings say (they were measured while others used the machine):
// the next call measures again.
void brim_machine_ceilings_doubt(const brim_device *device, const brim_machine_options *options);
// Did one of the results compute faster than its ceilings say the machine can?
bool brim_machine_exceeded(const brim_result *results, size_t count);
// Where one did: the ceilings are measured again, once, and the larger of both are those of `known` and
// of the results. False: they stay as they are.
bool brim_machine_ceilings_raise(brim_device *device, const brim_machine_options *options,
                                 brim_result *results, size_t count, brim_machine_ceilings *known);
// Where they are remembered: FOLDER/ceilings.json
//   {"schema": "brim.ceilings/1", "entries": {KEY: {"gemm_fp32_flops": number or null, ..., "load": share}}}
// with a key of device, driver, library, backend, a CPU's threads and brim's version. load: what other
// programs had of the machine meanwhile, 0 to 1; null = not seen. A file that is missing or broken knows
// nothing and is replaced.
brim_status brim_machine_ceilings_load(const char *folder, const char *key,
                                       brim_machine_ceilings *out);
// The best that is remembered of a GPU, by its UUID, whatever driver and library measured it.
brim_status brim_machine_ceilings_of_gpu(const char *folder, const char *uuid,
                                         brim_machine_ceilings *out);
brim_status brim_machine_ceilings_store(const char *folder, const char *key,
                                        const brim_machine_ceilings *ceilings);

//---------------------------------- trials ----------------------------------

// Where the measured times of a trial lie; NaN = unknown, as an error by fewer than three samples.
typedef struct brim_trial_location {
  double log_time, log_se;  // logarithm of the seconds of a sample, and its standard error
  double samples;
} brim_trial_location;
// Of `n` positive times in any unit; BRIM_EINVAL where one is not.
brim_status brim_trial_locate(const double *times, size_t n, brim_trial_location *out);

typedef struct brim_trial_options {
  // Measured samples at most; 0 = 10. A sample is a step; on a GPU it is the mean of as many steps as
  // take 50 ms, run as in training.
  int steps;
  int min_steps;   // before a trial may end early; more than `steps` raises that; 0 = 5
  int max_warmup;  // 0 = 20
  double
      ci_target;  // stop early when the 95 % interval of the median is within this share; 0 = off
  // Of steps, warm-up included, as soon as there are min_steps (3 by default); 0 = no limit.
  double max_seconds;
  uint64_t memory_limit;                 // device bytes the plan must fit in; 0 = what is free
  brim_memory_watch *memory;             // of the device; NULL = none
  brim_gpu_sampler *sampler;             // of the device; NULL = its columns stay unknown
  const brim_machine_ceilings *machine;  // for the results; NULL = unknown
  bool ceilings;                         // the loader alone and the device alone as well
  bool configured;           // measure the workload as it stands, and restore its state afterwards
  brim_result_visit *visit;  // gets what a trial that ran tells a race; NULL = not asked for
  const volatile sig_atomic_t *stop;
  void (*on_step)(void *ctx, int step, int total);
  void *ctx;
} brim_trial_options;

// Run one trial. Failures of the setting itself (out of memory, unsupported, ...) are classed in
// out->failure and give BRIM_OK; BRIM_EINTERRUPTED when stopped. `config` may be NULL.
brim_status brim_trial_run(brim_work *work, const brim_config *config, brim_device *device,
                           const brim_setting *setting, const brim_trial_options *options,
                           brim_result *out);
// The same without running: plan only. failure is OOM_PLANNED when it does not fit.
brim_status brim_trial_plan(brim_work *work, const brim_config *config, brim_device *device,
                            const brim_setting *setting, const brim_trial_options *options,
                            brim_result *out);

// A few steps of a setting that was measured, as training makes them, under `trace`: into the trace
// figures of its result (per step). The workload stands at that setting afterwards.
brim_status brim_trial_trace(brim_work *work, brim_device *device, const brim_setting *setting,
                             brim_gpu_trace *trace, brim_result *result);

//---------------------------------- profiles ----------------------------------

typedef struct brim_profile_options {
  int steps;           // traced; 0 = 20, fewer where they are long
  double max_seconds;  // of measuring the step, and again of tracing it; 0 = 10
  // "cupti" or "events" instead of the best there is; NULL or "" = the best. BRIM_EUNSUPPORTED where it is
  // not there.
  const char *source;
  uint64_t memory_limit;                 // device bytes the plan must fit in; 0 = what is free
  brim_memory_watch *memory;             // of the device; NULL = none
  brim_gpu_sampler *sampler;             // of the device; NULL = its columns stay unknown
  const brim_machine_ceilings *machine;  // for the ceilings of rows; NULL = unknown
  const volatile sig_atomic_t *stop;
  // What is being done, as a message; may be NULL.
  void (*on_stage)(void *ctx, const char *what);
  void *ctx;
} brim_profile_options;

// Where the time of a step goes at a setting (record_profile.h): the step measured as in a trial, then a
// short traced window of steps. `out` and `trace` are initialised here; deinit both, whatever is
// returned. A setting that fails is classed in out->result.failure and gives BRIM_OK, as in
// brim_trial_run. The workload stands at the setting afterwards, some steps on. `config` may be NULL.
brim_status brim_profile_run(brim_work *work, const brim_config *config, brim_device *device,
                             const brim_setting *setting, const brim_profile_options *options,
                             brim_profile *out, brim_trace *trace);

//---------------------------------- beside a step ----------------------------------

// Into checkpoint_ms and checkpoint_steps of `out`: what each checkpoint costs where the config writes
// them within an epoch; else they stay unknown. The workload stands at the result's setting and makes
// steps. Files in `folder` (NULL = nothing is measured) are written as training would, and removed.
brim_status brim_checkpoint_measure(brim_work *work, const brim_config *config, brim_device *device,
                                    const char *folder, brim_result *out);
// Into shared_percent and shared_with of `out`: what other processes take of the GPU's time, in a tenth
// of a second. They stay unknown on a CPU and where it cannot be measured.
brim_status brim_sharing_measure(brim_device *device, const brim_memory_watch *watch,
                                 brim_result *out);

//---------------------------------- several at once ----------------------------------

// One of several that train at once: a workload of its own on a device of its own.
typedef struct brim_replica {
  const char *spec;  // as it was asked for: "cuda:1"
  brim_work *work;   // NULL where it could not be opened: `status` and `message` say why
  brim_device *device;
  brim_memory_watch *memory;  // of the device; NULL = none
  // Set where it crashed, too: it takes part in nothing any more.
  brim_status status;
  char message[512];
} brim_replica;

typedef struct brim_scaling_options {
  const brim_config *config;  // for the record; may be NULL
  double seconds;             // of measuring; 0 = 1.5
  int max_warmup;             // steps; 0 = 20
  double max_seconds;         // of warming up; 0 = 15
  uint64_t memory_limit;      // device bytes the plan must fit in; 0 = what is free
  const volatile sig_atomic_t *stop;
  void (*on_wait)(void *ctx);  // from the calling thread, some times a second; may be NULL
  void *ctx;
} brim_scaling_options;

// All replicas at one setting, each a rank of `count` (at most BRIM_SCALING_MAX) with its own part of
// the data, stepping as in training. They are built one after the other (libraries that read data are
// not all made for threads), exchange nothing, step in a thread each, and continue until the last of them
// was measured, so that every figure is of a time in which all of them ran. A replica that cannot
// run is reported in `out` and the others are measured without it. `one`, `efficiency` and what was
// lost are left to callers that have one alone to compare with. BRIM_EINTERRUPTED when stopped;
// deinit `out` either way.
brim_status brim_scaling_run(brim_replica *replicas, size_t count, const brim_setting *setting,
                             const brim_scaling_options *options, brim_scaling *out);
// The replicas that ran in `out`, which brim_scaling_run filled, as ranks of one training of `setting` with
// so many times its batch: into out->exchange. First the exchange alone, then steps, which all make alike.
// Where one fails the others end, and out->exchange says why. Workloads are left without a setting and
// devices without ranks. A workload that knows no ranks, or fewer than two replicas: nothing is measured.
brim_status brim_scaling_exchange_run(brim_replica *replicas, size_t count,
                                      const brim_setting *setting,
                                      const brim_scaling_options *options, brim_scaling *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_MEASURE_H_
