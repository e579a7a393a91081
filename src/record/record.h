// The records that rooms pass to each other: a result (one measured setting), its findings, a recommendation,
// scaling, progress. Tables, pages, CSV and compare are views of them. Unknown is null in JSON (NaN here), never 0.
//
// brim.result/1, one JSON object per line in a .jsonl file:
//   schema "brim.result/1" | kind "trial", "verify": a setting as training ran it, or "scaling": on
//           several devices at once (below) | when (ISO 8601) | when_s | brim {version, abi}
//   what    {workload, config (resolved object), setting {knob: value}, seed, description}
//   where   {device, device_id, library, backend, cpu, cores, threads, host, os, memory_bytes, clock}
//   phases  {io: {median_ms, mad_ms, p05_ms, p95_ms, p99_ms, mean_ms, stddev_ms, min_ms, max_ms,
//            ci_low_ms, ci_high_ms, n, gpu_busy_ms, on_gpu_ms}, ...}
//           gpu_busy_ms: GPU time within the phase; on_gpu_ms: time that a phase of the CPU would take on the
//           GPU, by a probe; both absent if unknown
//   total   {the members of a phase but the last two}
//   worker  {io_ms, transform_ms, stages [{name, ms}]}   stages: transforms by name; absent = none
//   throughput {samples_per_s, ci_low, ci_high, epoch_s}
//   rates   [{unit, per_sample, per_s}]   samples_per_s in other units; absent = none
//   memory  {planned_device, planned_host, overhead, real, counted, peak_rss, free_before}   bytes
//   plan    {rows: [{name, place, bytes}], flops_per_step, bytes_per_step, samples_per_step,
//            parameter_count, segments, recomputed}
//   utilisation {gpu_percent, sm_percent, occupancy_percent, tensor_percent, dram_percent,
//            power_w, power_limit_w, clock_mhz, clock_max_mhz, temperature_c, throttle (text),
//            cpu_percent, others_cpu_percent (share of the machine's CPU that other programs had)}
//   energy  {j_per_sample}
//   ceilings {data_samples_per_s, compute_samples_per_s}   of the job
//   trace   {gpu_busy_ms, gpu_kernel_ms, gpu_copy_ms, kernels}   per step, by CUPTI
//   trial   {warmup_steps, steps, repeats, stable, throttled, seconds,
//            visits [{at, samples_per_s, log_se, samples, seconds, others_cpu_percent}]}   absent = unknown
//   machine {gemm_fp32_flops, gemm_tf32_flops, gemm_bf16_flops, gemm_fp16_flops, copy_bytes_per_s,
//            h2d_pinned_bytes_per_s, h2d_pageable_bytes_per_s, load}   highest measured rates;
//            load: share of the machine that other programs had meanwhile
//   quota   {cpus, cores, cpu_ms, throttled_ms}   CPUs that the control group may use (null = no quota),
//           cores of the machine, CPU time per step, and time per step in which the quota stopped threads
//   checkpoint {ms, every_steps}   time that training waits for a checkpoint; null = none is written
//   sharing {lost_percent, processes}   percent of the GPU's time lost to other processes; their names
//           (text, with processes_words)
//   failure null | {class, status, message}
//   findings [{code, cost_ms, predicted_ms (absent = none), text, remedy (both in English), text_words,
//            remedy_words (the same with their values, for other languages: base_words.h), note (absent = false),
//            change {key, value} (absent = none), measured (absent = false)}]   the most expensive
//            first. A note costs no time that could be saved. change: the config change that saves cost_ms;
//            measured: brim ran with this change
// Statistics are of the steps as measured, so medians of phases do not add up to the median total. Tables show phase
// means scaled to the median total, which add up (ui_bench.c).
// Reading: keys that are not known are skipped, keys that are missing stay unknown, a value of
// the wrong kind is BRIM_EPARSE with file:line and the path of the key. Integers above 2^63-1 are
// written as decimal strings. Texts longer than their field are cut at a character.
#ifndef BRIM_RECORD_H_
#define BRIM_RECORD_H_

#include "base/base.h"
#include "brim/plan.h"
#include "record/record_knob.h"
#include "record/record_metric.h"

#define BRIM_RESULT_SCHEMA "brim.result/1"

// Failure classes of a trial and of an experiment. Files contain the names.
#define BRIM_FAILURE_MAP(X)           \
  X(NONE, "none")                     \
  X(OOM_PLANNED, "oom_planned")       \
  X(OOM_DEVICE, "oom_device")         \
  X(OOM_HOST, "oom_host")             \
  X(SHARED_MEMORY, "shared_memory")   \
  X(BAD_CONFIG, "bad_config")         \
  X(UNSUPPORTED, "unsupported")       \
  X(CRASH, "crash")                   \
  X(INTERRUPTED, "interrupted")       \
  X(NAN, "nan")                       \
  X(DATA, "data")                     \
  X(KILLED, "killed")                 \
  X(HUNG, "hung")                     \
  X(INFRASTRUCTURE, "infrastructure") \
  X(OTHER, "other")

typedef enum brim_failure {
#define X(id, name) BRIM_FAILURE_##id,
  BRIM_FAILURE_MAP(X)
#undef X
      BRIM_FAILURE_COUNT
} brim_failure;

const char *brim_failure_name(brim_failure failure);
// Finds a class by its name; OTHER if this brim does not know the name.
brim_failure brim_failure_of(const char *name);

// Says whether running the same thing again can help.
typedef enum brim_failure_retry {
  BRIM_RETRY_NEVER,    // it fails the same way again: memory, NaN, data, config
  BRIM_RETRY_COUNTED,  // it may pass: crash, hang; costs one of the retries
  BRIM_RETRY_FREE,     // the machine failed, not the run: costs no retry
  BRIM_RETRY_COUNT
} brim_failure_retry;
brim_failure_retry brim_failure_retry_of(brim_failure failure);

typedef struct brim_result_knob {
  char name[32];
  char value[32];
  double number;  // NaN if the value is not a number
} brim_result_knob;

#define BRIM_RESULT_MAX_KNOBS 16
#define BRIM_RESULT_MAX_FINDINGS 12

typedef struct brim_finding {
  char code[32];   // "io_wait", "small_batch", ...
  double cost_ms;  // time per step that the remedy would save; NaN = unknown
  // the same, computed from phases and probes, even if the remedy was measured
  double predicted_ms;
  char text[768];    // message and values in the form of base_words.h, for brim_words_read
  char remedy[768];  // the knob to set and its value, in the same form
  bool note;         // worth knowing, nothing to fix; listed last
  // The change that cost_ms prices: knob and config key (each may be ""), and the value.
  char knob[32], key[48], value[32];
  bool measured;  // brim ran with that change
  // Inside tune: a knob and a value that must be measured to price the finding; "" = none.
  char try_knob[32], try_value[32];
} brim_finding;

// Time of the loader threads in one transform.
enum { BRIM_RESULT_MAX_STAGES = 16 };
typedef struct brim_result_stage {
  char name[32];
  double ms;  // per step, summed over the threads
} brim_result_stage;

// One visit of a sweep to a setting: about ten timed samples (steps, or windows of steps) in a row. The conclusions
// of a sweep follow from the visits in its records alone (brim_race_of_results).
enum { BRIM_RESULT_MAX_VISITS = 96 };
typedef struct brim_result_visit {
  int64_t at;  // its number among the visits of the whole sweep
  double samples_per_s;
  double log_se;   // standard error of log(samples_per_s), from this visit's samples; NaN = unknown
  double samples;  // number of samples
  double seconds;  // cost of the visit, warm-up included
  double others_cpu_percent;  // share of the CPU that other programs had, as in brim_result
} brim_result_visit;

// The highest rates that were measured on a machine (measure_machine.c): FLOP/s of a large matrix product in each
// precision, bytes/s of copies in device memory (reads and writes counted) and from host to GPU memory, and small
// ops per second that the host can start. The names are the keys in JSON. NaN = unknown, or unsupported.
#define BRIM_MACHINE_MAP(X)   \
  X(gemm_fp32_flops)          \
  X(gemm_tf32_flops)          \
  X(gemm_bf16_flops)          \
  X(gemm_fp16_flops)          \
  X(copy_bytes_per_s)         \
  X(h2d_pinned_bytes_per_s)   \
  X(h2d_pageable_bytes_per_s) \
  X(launches_per_s)

typedef struct brim_machine_ceilings {
#define X(name) double name;
  BRIM_MACHINE_MAP(X)
#undef X
  // share of the machine that other programs had during the measurement; NaN = unknown
  double load;
} brim_machine_ceilings;

void brim_machine_ceilings_init(brim_machine_ceilings *ceilings);  // all NaN
// FLOP/s of matrix products in a precision ("bf16"); NaN for other names.
double brim_machine_flops(const brim_machine_ceilings *ceilings, const char *precision);

// A factor from samples to another unit.
enum { BRIM_RESULT_MAX_RATES = 4 };
typedef struct brim_result_rate {
  char unit[40];  // a message: "agent-samples/s trained"
  double per_sample;
} brim_result_rate;

// One measured setting: plain data that can be copied (deinit one of the copies).
typedef struct brim_result {
  char kind[16];     // "verify"; "" stands for "trial"
  char version[32];  // version of the brim that measured; "" = this one
  double when_s;
  // unit: the unit of samples_per_s; "" = brim_result_unit derives it
  char workload[32], unit[24];
  char device[128], device_id[64], library[128], backend[32];
  char description[160], host[64], os[128], cpu[128];
  int cores, threads;
  uint64_t seed;
  brim_result_knob knobs[BRIM_RESULT_MAX_KNOBS];
  size_t knob_count;
  // Labels and roles of the knobs; NULL if the workload is unknown. Not in files.
  const brim_knob_set *knob_set;
  json_t *config;  // resolved config, own reference; may be NULL
  bool phase_used[BRIM_PHASE_COUNT];
  brim_stats_summary phase_ms[BRIM_PHASE_COUNT];
  // Times per step; NaN = unknown. busy: GPU time within a phase. moved: time that a phase of the host would take
  // on the GPU, by a probe.
  double phase_busy_ms[BRIM_PHASE_COUNT], phase_moved_ms[BRIM_PHASE_COUNT];
  brim_stats_summary total_ms;
  double worker_io_ms, worker_transform_ms;
  brim_result_stage stages[BRIM_RESULT_MAX_STAGES];
  size_t stage_count;
  // CPUs that the control group may use, cores of the machine, CPU time per step, and time per step in which the
  // quota stopped threads. NaN = no limit, or unknown.
  double quota_cpus, quota_cores, quota_cpu_ms, quota_throttled_ms;
  double checkpoint_ms, checkpoint_steps;  // NaN = no checkpoint within an epoch
  double shared_percent;  // percent of the GPU's time lost to other processes; NaN = unknown
  char shared_with[192];  // names of those processes (base_words.h); "" = none, or unknown
  double samples_per_s, samples_per_s_low, samples_per_s_high, epoch_s;
  brim_result_rate rates[BRIM_RESULT_MAX_RATES];  // samples_per_s in other units
  size_t rate_count;
  brim_plan plan;
  double overhead_bytes, counted_bytes, peak_rss_bytes, free_bytes, total_bytes;  // NaN = unknown
  double real_bytes;  // GPU memory used: planned_device + overhead; NaN = unknown
  // Utilisation in percent, NaN = unknown: time with a kernel, SMs with a warp, warps held of those possible,
  // tensor cores, device memory.
  double gpu_percent, sm_percent, occupancy_percent, tensor_percent, dram_percent;
  double cpu_percent;         // CPU of this process, 100 = all cores
  double others_cpu_percent;  // CPU of other programs, 100 = all cores; NaN = unknown
  double power_w, power_limit_w, clock_mhz, clock_max_mhz, temperature_c;
  double joules_per_sample;
  char throttle[96];  // why the clock was held down: "power cap, heat"; "" = it was not
  // Throughput of the loader alone and of the device alone; NaN = not measured.
  double data_samples_per_s, compute_samples_per_s;
  brim_machine_ceilings ceilings;  // ceilings of the machine, independent of the job
  // Per step of a separate traced run: time in which the device did anything, summed times, number of kernels.
  double gpu_busy_ms, gpu_kernel_ms, gpu_copy_ms, kernels;
  int warmup_steps, steps, repeats;
  bool stable;
  bool throttled;  // the clock fell, and not because of the power cap, which all trials share
  double seconds;
  brim_result_visit visits[BRIM_RESULT_MAX_VISITS];
  size_t visit_count;
  brim_failure failure;
  brim_status failure_status;  // BRIM_OK = none or unknown
  char message[1024];
  brim_finding findings[BRIM_RESULT_MAX_FINDINGS];
  size_t finding_count;
  // own reference; keeps the names of plan.rows alive after reading; NULL otherwise
  json_t *names;
} brim_result;

// The figures of a GPU from its maker (record_gpu.c).
typedef struct brim_gpu_facts {
  const char *name, *match;  // a device with `match` in its name is this card
  int cores, sms, threads_per_sm;
  double memory_low_gb, memory_high_gb;
  double bandwidth_low, bandwidth_high;  // GB/s
  double fp32_tflops;
  double tf32_tflops;  // dense; NaN = unknown
  // environments per direction that seed guide 000 advises, or a number scaled from it
  const char *envs;
  double tensor_mhz;  // the clock behind tf32_tflops; a card may run faster
} brim_gpu_facts;
// Returns NULL if the card is not in the table.
const brim_gpu_facts *brim_gpu_facts_find(const char *device);

// Finds the memory of a card by a name such as "rtx3060-12gb"; capitals, spaces and dashes do not matter. False if
// the card is not in the table.
bool brim_gpu_memory_find(const char *name, const char **known_as, double *bytes);
void brim_gpu_memory_names(brim_str *out);  // appends all known names: "rtx3060-12gb, ..."

// Returns the unit of samples_per_s, as a message: "samples", "env steps".
const char *brim_result_unit(const brim_result *result);
void brim_result_init(brim_result *result);    // unknowns NaN
void brim_result_deinit(brim_result *result);  // drops the references
// True if the device has memory of its own (not the host's).
bool brim_result_has_gpu(const brim_result *result);
// Planned bytes in device memory; for a CPU plus those in host memory. Tables and the recommendation use it.
double brim_result_memory(const brim_result *result);
const brim_result_knob *brim_result_knob_find(const brim_result *result, const char *name);
// The number of a knob; `fallback` if it has none.
double brim_result_knob_number(const brim_result *result, const char *name, double fallback);
// The knob in a role; NULL if the workload has none, or is not known.
const brim_result_knob *brim_result_knob_as(const brim_result *result, brim_knob_role role);
double brim_result_number_as(const brim_result *result, brim_knob_role role, double fallback);
const char *brim_result_text_as(const brim_result *result, brim_knob_role role);  // "" = none
const brim_knob_row *brim_result_knob_row(const brim_result *result, const char *name);
// True if the results differ in this knob.
bool brim_result_knob_varies(const brim_result *results, size_t count, const char *name);
bool brim_result_ran(const brim_result *result);  // measured, with a throughput
bool brim_result_is_oom(const brim_result *result);
// True if the result has a single sample, so that its steadiness is unknown.
bool brim_result_one_sample(const brim_result *result);
// True if the steps were steady at a steady clock.
bool brim_result_trusted(const brim_result *result);
// Logarithm of the factor by which a setting may be faster or slower when other programs leave the CPU alone. 0 on
// a GPU, if the others took too little to matter, or if their share is unknown.
double brim_result_log_load(const brim_result *result);
// Other programs' mean share of the CPU during the measurements, in percent; NaN = unknown.
double brim_results_others(const brim_result *results, size_t count);
// True if that share is above the usual background of a machine.
bool brim_results_were_disturbed(const brim_result *results, size_t count);
brim_status brim_result_to_json(const brim_result *result, json_t **out);
// `name` and `line` appear in messages.
brim_status brim_result_from_json(const json_t *value, const char *name, int line,
                                  brim_result *out);
// A .jsonl file of results. Reading allocates the array: deinit each result, then brim_free.
brim_status brim_results_write(const char *path, const brim_result *results, size_t count);
// A killed writer may leave an incomplete last line: it is skipped and *torn is true. With `torn` NULL it is an
// error.
brim_status brim_results_read(const char *path, brim_result **out, size_t *count, bool *torn);

//---------------------------------- recommendation ----------------------------------

typedef struct brim_interval {
  double value, low, high;  // 95 % interval; NaN = unknown
} brim_interval;

// The conclusions from the results of a sweep. Picks are indices into the results, -1 = none:
//   highest     most samples/s
//   efficient   most samples/s per GB among the settings with >= 90 % of the highest
//   recommended starts with the fastest setting, by estimate, that may be applied and whose planned memory is
//               under 80 % of the free memory (or any, if none is). Settings within 3 % of it by estimate (10 % if
//               only workers differ) that the measurements cannot tell apart from it compete: the smallest memory
//               wins, then fewer workers. The config's own setting wins if that one is not certainly faster
//   now         the config's own setting; -1 = unknown, or it did not run
//   beside      certainly faster than the recommended setting, but it changes what is learned and the user did
//               not ask for it
// Noise and other programs widen the intervals but exclude no setting: if any setting ran, one is recommended.
typedef struct brim_recommendation {
  int highest, efficient, recommended, now, beside;
  // True if the recommendation may change: another setting could still be more than 3 % faster, this one was
  // measured once, its times were unsteady, or other programs took the CPU.
  bool provisional;
  // the config's own setting is fastest, though outside of the values that the user named
  bool own_is_fastest;
  brim_interval gain;     // rate of the recommended setting over that of `now`
  brim_interval more;     // rate of `beside` over that of the recommended setting
  char beside_text[192];  // the change that `beside` makes, and the option that asks for it
  char reason[512];       // the comparisons that are certain, and those that are open
} brim_recommendation;

void brim_recommendation_init(brim_recommendation *recommendation);  // nothing is picked
// the config's own setting is recommended
bool brim_recommendation_keeps(const brim_recommendation *r);

// The recommended setting in a training, compared with the sweep's measurement; NaN = unknown.
typedef struct brim_verification {
  // rate measured by the sweep; a later run lies between low and high with 95 %
  brim_interval predicted;
  double achieved;  // samples/s
  // percent of the CPU that other programs had, in the sweep and now
  double others_then, others_now;
  double samples, seconds;  // samples and time that `achieved` is computed from
  double cap_s;             // time limit of the training
  int64_t epochs, steps;    // epochs 0: the time limit ended the first one
} brim_verification;

//---------------------------------- scaling ----------------------------------

// One setting on several devices at once, each with its own part of the data and the same batch. A line of
// kind "scaling" has the members of a trial (what and where describe the first device, throughput is of all
// devices together, phases are means over the devices), and also
//   scaling {devices, ran, samples_per_s_each, one_samples_per_s, efficiency, effective_batch, lost {to, ms},
//            replicas [{device, name, device_id, samples_per_s, step_ms, phases {io: ms, ...},
//                       failure}],   without the exchange of gradients
//            gradient_exchange (true: `exchange` has figures),
//            exchange null | {by, gradient_bytes, sums, calls, call_bytes, small_bytes, small_ms, bucket_bytes,
//                       bucket_ms, samples_per_s, efficiency, step_ms, busy_ms, waited_ms, stable, failure},
//            predicted null | {ranks, samples_per_s, efficiency, step_ms, exchange_ms, waited_ms, beyond,
//                       network (true: between machines, which was not measured), error},
//            further [the same, of more ranks than were measured]}
#define BRIM_SCALING_MAX 32
#define BRIM_SCALING_FURTHER 32

// The same setting as one training of several ranks, which exchange gradients. Each device has the same batch.
typedef struct brim_scaling_exchange {
  char by[16];            // library that exchanges: "shm", "nccl"; "" = not tried
  double gradient_bytes;  // bytes that each rank contributes per step
  int sums;               // all-reduces per step that overlap the backward pass
  int calls;              // exchanges per step that the step waits for: batch norm, embeddings
  double call_bytes;      // bytes of all `calls` together
  // All-reduces between the same ranks, measured alone before training: of few values, and of a bucket of
  // gradients.
  double small_bytes, small_ms, bucket_bytes, bucket_ms;
  // Measured in training. busy: time exchanging; waited: time by which the exchange lengthened the step (on a CPU
  // the time that the thread waited, other ranks' delays included).
  double samples_per_s, efficiency, step_ms, busy_ms, waited_ms;
  bool stable;
  brim_failure failure;
  brim_status failure_status;
  char message[512];
} brim_scaling_exchange;

// A prediction (tune_scaling.c). NaN = unknown.
typedef struct brim_scaling_forecast {
  int64_t ranks;  // 0 = no prediction
  double samples_per_s, efficiency, step_ms, exchange_ms, waited_ms;
  bool beyond;   // more ranks than the exchange was measured with
  bool network;  // values are unknown, since the exchange would cross machines
} brim_scaling_forecast;

typedef struct brim_scaling_replica {
  char spec[16];  // the device as the user named it: "cuda:1"
  char device[128], device_id[64];
  double samples_per_s;               // NaN = it did not run
  double rows;                        // samples of a step, averaged over an epoch
  double step_ms;                     // time of a step; the phases add up to it
  double phase_ms[BRIM_PHASE_COUNT];  // times per step; NaN = unknown
  bool stable;
  brim_failure failure;
  brim_status failure_status;
  char message[512];
} brim_scaling_replica;

typedef struct brim_scaling {
  brim_result result;
  int devices, ran;        // devices that were requested, and that ran
  double each;             // mean samples/s of a device
  double one;              // samples/s of the first device alone; NaN = unknown
  double efficiency;       // samples/s of all devices / (ran x one)
  double effective_batch;  // samples of a step of all devices that ran
  // The largest loss per step: the key of a phase, "compute" or "short_batch"; "" = nothing is lost.
  char lost_to[16];
  double lost_ms;
  brim_scaling_replica replicas[BRIM_SCALING_MAX];
  brim_scaling_exchange exchange;
  brim_scaling_forecast predicted;  // prediction for these devices
  // predictions for more devices than were measured
  brim_scaling_forecast further[BRIM_SCALING_FURTHER];
  int further_count;
} brim_scaling;

// Relative error of the predicted samples/s: predicted / measured - 1; NaN = unknown.
double brim_scaling_error(const brim_scaling *scaling);

void brim_scaling_init(brim_scaling *scaling);  // unknowns NaN
void brim_scaling_deinit(brim_scaling *scaling);
brim_status brim_scaling_to_json(const brim_scaling *scaling, json_t **out);

// A line of the checklist after a recommendation.
typedef struct brim_advice_check {
  bool done;
  char text[384];
} brim_advice_check;

#define BRIM_ADVICE_MAX_CHECKS 8

typedef struct brim_advice {
  brim_advice_check checks[BRIM_ADVICE_MAX_CHECKS];
  size_t check_count;
  // text about the learning rate; "" = the effective batch does not change
  char learning_rate[512];
  char accumulation[384];  // text on keeping the effective batch; "" = not possible, or not needed
} brim_advice;

// The progress of a run, for the display.
typedef struct brim_progress {
  const char *title;  // "epoch 2/10", "setting 3/12: batch_size=256"
  // epochs of a training, where `title` is for programs; 0 = `title` is for people
  int64_t epoch, epochs;
  int64_t done, total;      // steps; total 0 = unknown; done -1 = not counted
  double elapsed_s, eta_s;  // NaN = unknown
  double rate;              // samples/s over the last interval; NaN = unknown
  const char *unit;
  const brim_metric_set *metrics;        // rows of `values`; NULL = nothing is measured
  const double *values, *baseline;       // values of the epoch so far; `baseline` may be NULL
  double phase_share[BRIM_PHASE_COUNT];  // share of each phase, 0..1; all 0 = not measured
} brim_progress;

#endif  // BRIM_RECORD_H_
