// The nouns that rooms hand around: a result (one measured setting), its findings, a recommendation, scaling, progress.
// Tables, pages, CSV and compare are views of them. Unknown is null in JSON (NaN here), never 0.
//
// brim.result/1, one JSON object per line in a .jsonl file:
//   schema "brim.result/1" | kind "trial", "verify": a setting as training ran it, or "scaling": on
//           several devices at once (below) | when (ISO 8601) | when_s | brim {version, abi}
//   what    {workload, config (resolved object), setting {knob: value}, seed, description}
//   where   {device, device_id, library, backend, cpu, cores, threads, host, os, memory_bytes,
//   clock} phases  {io: {median_ms, mad_ms, p05_ms, p95_ms, p99_ms, mean_ms, stddev_ms, min_ms,
//   max_ms,
//            ci_low_ms, ci_high_ms, n, gpu_busy_ms, on_gpu_ms}, ...}   total {the same but the last two}
//           gpu_busy_ms: GPU time within the phase; on_gpu_ms: what a phase of the CPU would take on the GPU,
//           by a probe; each absent where unknown
//   worker  {io_ms, transform_ms, stages [{name, ms}]}   stages: transforms by name; absent = none
//   throughput {samples_per_s, ci_low, ci_high, epoch_s}
//   rates   [{unit, per_sample, per_s}]   samples_per_s in other units; absent = there are none
//   memory  {planned_device, planned_host, overhead, real, counted, peak_rss, free_before}   bytes
//   plan    {rows: [{name, place, bytes}], flops_per_step, bytes_per_step, samples_per_step,
//            parameter_count, segments, recomputed}
//   utilisation {gpu_percent, sm_percent, occupancy_percent, tensor_percent, dram_percent,
//            power_w, power_limit_w, clock_mhz, clock_max_mhz, temperature_c, throttle (text),
//            cpu_percent, others_cpu_percent (other programs had so much of the machine's CPU)}
//   energy  {j_per_sample}
//   ceilings {data_samples_per_s, compute_samples_per_s}   of the job
//   trace   {gpu_busy_ms, gpu_kernel_ms, gpu_copy_ms, kernels}   per step, by CUPTI
//   trial   {warmup_steps, steps, repeats, stable, throttled, seconds,
//            visits [{at, samples_per_s, log_se, samples, seconds, others_cpu_percent}]}   absent = unknown
//   machine {gemm_fp32_flops, gemm_tf32_flops, gemm_bf16_flops, gemm_fp16_flops, copy_bytes_per_s,
//            h2d_pinned_bytes_per_s, h2d_pageable_bytes_per_s}   at best, per second; load: others' share meanwhile
//   quota   {cpus, cores, cpu_ms, throttled_ms}   CPUs the control group may use, null = no quota; cores
//           there are; CPU time per step, and time in which the quota kept threads from running
//   checkpoint {ms, every_steps}   what a step waits for each checkpoint; null = none is written
//   sharing {lost_percent, processes}   of the GPU's time, to other processes (text, with processes_words)
//   failure null | {class, status, message}
//   findings [{code, cost_ms, predicted_ms (absent = none), text, remedy (both in English), text_words,
//            remedy_words (the same with their values, for other languages: base_words.h), note (absent = false),
//            change {key, value} (absent = none), measured (absent = false)}]   the dearest first; a note
//            costs no time that could be saved. change: what the price stands for, as a config has it;
//            measured: brim ran it
// Statistics are of the steps as measured: medians of phases do not add up to the median total.
// Tables show phase means scaled to the median total, which do (ui_bench.c).
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

// Failure classes of a trial and of an experiment. Files have the names.
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
// The class of a name; OTHER for one that this brim does not know.
brim_failure brim_failure_of(const char *name);

// Whether running the same thing again can help.
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
  double number;  // NaN when it is not a number
} brim_result_knob;

#define BRIM_RESULT_MAX_KNOBS 16
#define BRIM_RESULT_MAX_FINDINGS 12

typedef struct brim_finding {
  char code[32];        // "io_wait", "small_batch", ...
  double cost_ms;       // price per step; NaN = unknown
  double predicted_ms;  // the price from phases and probes, also if the remedy was measured
  char text[768];       // message and values (base_words.h); brim_words_read makes the words
  char remedy[768];     // which knob to set to what; likewise
  bool note;            // worth knowing, nothing to fix; listed last
  // The change that the price is of: knob and config key (each may be ""), and the value.
  char knob[32], key[48], value[32];
  bool measured;  // brim ran that change
  // Inside tune: a value of a knob to measure for the price; "" = none.
  char try_knob[32], try_value[32];
} brim_finding;

// The loader threads' time in one transform.
enum { BRIM_RESULT_MAX_STAGES = 16 };
typedef struct brim_result_stage {
  char name[32];
  double ms;  // per step, summed over the threads
} brim_result_stage;

// One visit of a sweep to a setting: some ten timed samples (steps, or windows of steps) in a row. What a
// sweep concludes follows from the visits of its records and from nothing else (brim_race_of_results).
enum { BRIM_RESULT_MAX_VISITS = 96 };
typedef struct brim_result_visit {
  int64_t at;  // its place among the visits of the whole sweep
  double samples_per_s;
  double log_se;   // standard error of log(samples_per_s), from this visit's samples; NaN = unknown
  double samples;  // how many they were
  double seconds;  // cost of the visit, warm-up included
  double others_cpu_percent;  // as of the result
} brim_result_visit;

// The best a machine reaches, as measured (measure_machine.c): FLOP/s of a large matrix product in each precision,
// bytes/s of copies in device memory (reads and writes counted) and from host to GPU memory, and small ops per second
// that the host can start. The names are the keys in JSON. NaN = unknown, or unsupported.
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
  double load;  // other programs' share of the machine meanwhile; NaN = unknown
} brim_machine_ceilings;

void brim_machine_ceilings_init(brim_machine_ceilings *ceilings);  // all NaN
// FLOP/s of products in a precision ("bf16"); NaN for other names.
double brim_machine_flops(const brim_machine_ceilings *ceilings, const char *precision);

// A factor from samples to another unit.
enum { BRIM_RESULT_MAX_RATES = 4 };
typedef struct brim_result_rate {
  char unit[40];  // a message: "agent-samples/s trained"
  double per_sample;
} brim_result_rate;

// One measured setting: plain data that can be copied (deinit one of the copies).
typedef struct brim_result {
  char kind[16];     // "verify"; "" = "trial"
  char version[32];  // of the brim that measured; "" = this one
  double when_s;
  char workload[32], unit[24];  // unit: of samples_per_s; "" = brim_result_unit knows
  char device[128], device_id[64], library[128], backend[32];
  char description[160], host[64], os[128], cpu[128];
  int cores, threads;
  uint64_t seed;
  brim_result_knob knobs[BRIM_RESULT_MAX_KNOBS];
  size_t knob_count;
  // Labels and roles of the knobs, if the workload is known; not in files.
  const brim_knob_set *knob_set;
  json_t *config;  // resolved config, own reference; may be NULL
  bool phase_used[BRIM_PHASE_COUNT];
  brim_stats_summary phase_ms[BRIM_PHASE_COUNT];
  // Per step; NaN = unknown. busy: GPU time within a phase. moved: time a host phase would take on the GPU, by a
  // probe.
  double phase_busy_ms[BRIM_PHASE_COUNT], phase_moved_ms[BRIM_PHASE_COUNT];
  brim_stats_summary total_ms;
  double worker_io_ms, worker_transform_ms;
  brim_result_stage stages[BRIM_RESULT_MAX_STAGES];
  size_t stage_count;
  // CPUs the control group may use, and cores without the limit; CPU time and time held back per step. NaN = no
  // limit, or unknown.
  double quota_cpus, quota_cores, quota_cpu_ms, quota_throttled_ms;
  double checkpoint_ms, checkpoint_steps;  // NaN = no checkpoint within an epoch
  double shared_percent;                   // NaN = unknown
  char shared_with[192];  // base_words.h; "" = nothing else uses the GPU, or unknown
  double samples_per_s, samples_per_s_low, samples_per_s_high, epoch_s;
  brim_result_rate rates[BRIM_RESULT_MAX_RATES];  // samples_per_s in other units
  size_t rate_count;
  brim_plan plan;
  double overhead_bytes, counted_bytes, peak_rss_bytes, free_bytes, total_bytes;  // NaN = unknown
  double real_bytes;  // GPU memory used: planned_device + overhead; NaN = unknown
  // Utilisation, NaN = unknown: time with a kernel; SMs with a warp; warps held of those possible; tensor cores; device
  // memory.
  double gpu_percent, sm_percent, occupancy_percent, tensor_percent, dram_percent;
  double cpu_percent;         // of the process, 100 = all cores
  double others_cpu_percent;  // of other programs, 100 = all cores; NaN = unknown
  double power_w, power_limit_w, clock_mhz, clock_max_mhz, temperature_c;
  double joules_per_sample;
  char throttle[96];  // why the clock was held down: "power cap, heat"; "" = it was not
  // Throughput of the loader alone and of the device alone; NaN = not measured.
  double data_samples_per_s, compute_samples_per_s;
  brim_machine_ceilings ceilings;  // of the machine, whatever the job
  // Per step of a separate traced run: device time with anything running, sums, number of kernels.
  double gpu_busy_ms, gpu_kernel_ms, gpu_copy_ms, kernels;
  int warmup_steps, steps, repeats;
  bool stable;
  bool throttled;  // the clock fell for another reason than the power cap, which all trials share
  double seconds;
  brim_result_visit visits[BRIM_RESULT_MAX_VISITS];
  size_t visit_count;
  brim_failure failure;
  brim_status failure_status;  // BRIM_OK = none or unknown
  char message[1024];
  brim_finding findings[BRIM_RESULT_MAX_FINDINGS];
  size_t finding_count;
  json_t *names;  // own reference: keeps the names of plan.rows after reading; NULL otherwise
} brim_result;

// The maker's figures of a GPU (record_gpu.c).
typedef struct brim_gpu_facts {
  const char *name, *match;  // `match` is part of the device's name
  int cores, sms, threads_per_sm;
  double memory_low_gb, memory_high_gb;
  double bandwidth_low, bandwidth_high;  // GB/s
  double fp32_tflops;
  double tf32_tflops;  // dense; NaN = unknown
  const char *envs;    // environments per direction that seed guide 000 advises, or scaled from it
  double tensor_mhz;   // the clock behind tf32_tflops; a card may run faster
} brim_gpu_facts;
// NULL for a card that is not in the table.
const brim_gpu_facts *brim_gpu_facts_find(const char *device);

// Memory of a card by a name such as "rtx3060-12gb"; capitals, spaces and dashes do not matter. False if it is not in
// the table.
bool brim_gpu_memory_find(const char *name, const char **known_as, double *bytes);
void brim_gpu_memory_names(brim_str *out);  // "rtx3060-12gb, ...": all that are known

// The unit of samples_per_s, as a message: "samples", "env steps".
const char *brim_result_unit(const brim_result *result);
void brim_result_init(brim_result *result);    // unknowns NaN
void brim_result_deinit(brim_result *result);  // drops the references
// Does its device have memory of its own (not the host's)?
bool brim_result_has_gpu(const brim_result *result);
// Planned bytes where the device works; on a CPU the host's too. Tables and the recommendation use it.
double brim_result_memory(const brim_result *result);
const brim_result_knob *brim_result_knob_find(const brim_result *result, const char *name);
// Its number; `fallback` when it has none.
double brim_result_knob_number(const brim_result *result, const char *name, double fallback);
// The knob in a role; NULL if the workload has none or is not known.
const brim_result_knob *brim_result_knob_as(const brim_result *result, brim_knob_role role);
double brim_result_number_as(const brim_result *result, brim_knob_role role, double fallback);
const char *brim_result_text_as(const brim_result *result, brim_knob_role role);  // "" = none
const brim_knob_row *brim_result_knob_row(const brim_result *result, const char *name);
// Does a knob differ among results?
bool brim_result_knob_varies(const brim_result *results, size_t count, const char *name);
bool brim_result_ran(const brim_result *result);  // measured, with a throughput
bool brim_result_is_oom(const brim_result *result);
// Did it run with a single sample? Whether it is steady is then unknown.
bool brim_result_one_sample(const brim_result *result);
// Steady steps at a steady clock?
bool brim_result_trusted(const brim_result *result);
// Logarithm of the factor by which a setting may be faster or slower when other programs leave the CPU alone. 0 if they
// left it enough, or if this is unknown.
double brim_result_log_load(const brim_result *result);
// Other programs' mean share of the CPU while these were measured, in percent; NaN = unknown.
double brim_results_others(const brim_result *results, size_t count);
// Is that share above a machine's usual background?
bool brim_results_were_disturbed(const brim_result *results, size_t count);
brim_status brim_result_to_json(const brim_result *result, json_t **out);
// `name` and `line` for messages.
brim_status brim_result_from_json(const json_t *value, const char *name, int line,
                                  brim_result *out);
// A .jsonl file of results. Read: array from brim_alloc, deinit each then brim_free.
brim_status brim_results_write(const char *path, const brim_result *results, size_t count);
// A killed writer may leave half a last line: it is left out and *torn is true. With `torn` NULL the file is refused.
brim_status brim_results_read(const char *path, brim_result **out, size_t *count, bool *torn);

//---------------------------------- recommendation ----------------------------------

typedef struct brim_interval {
  double value, low, high;  // 95 %; NaN = unknown
} brim_interval;

// What follows from the results of a sweep. Picks are indices into the results, -1 = none:
//   highest     most samples/s
//   efficient   most samples/s per GB among those with >= 90 % of the highest
//   recommended the fastest by estimate whose planned memory is under 80 % of what is free (any, where
//               none is) and that may be applied; or the one with the smallest memory, then with fewer
//               workers, of those that cannot be told apart from it and are within 3 % by estimate (10 %
//               where only workers differ); or the config's own, where that one is not certainly faster
//   now         the config's own setting; -1 = unknown, or it did not run
//   beside      certainly faster than the recommended one, but it changes what is learned and was not
//               asked for
// Noise and other programs widen intervals and exclude nothing: as long as one setting ran, one is
// recommended.
typedef struct brim_recommendation {
  int highest, efficient, recommended, now, beside;
  // Another setting could still be more than 3 % faster, this one was measured once, its times were
  // unsteady, or other programs took the CPU.
  bool provisional;
  bool own_is_fastest;    // the config's own, outside of the values that the user named
  brim_interval gain;     // rate of the recommended setting over that of `now`
  brim_interval more;     // rate of `beside` over that of the recommended setting
  char beside_text[192];  // what `beside` would change, and the option that asks for it
  char reason[512];       // which comparisons are certain, and which are open
} brim_recommendation;

void brim_recommendation_init(brim_recommendation *recommendation);  // nothing is picked
bool brim_recommendation_keeps(const brim_recommendation *r);  // is the own setting recommended?

// The recommended setting in training, beside what the sweep measured of it; NaN = unknown.
typedef struct brim_verification {
  brim_interval predicted;         // rate of the sweep; a later run lies between low and high, 95 %
  double achieved;                 // samples/s
  double others_then, others_now;  // percent of the CPU that other programs had
  double samples, seconds;         // that `achieved` was counted over
  double cap_s;                    // time limit of the training
  int64_t epochs, steps;           // no epoch: the cap ended the first one
} brim_verification;

//---------------------------------- scaling ----------------------------------

// One setting on several devices at once, each with its own part of the data and the same batch. A
// line of kind "scaling": `result` as of a trial (what and where are the first device's, throughput is
// of all together, phases are means over the devices), and besides
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

// The same setting as one training of ranks, which exchange gradients: each device has the same batch.
typedef struct brim_scaling_exchange {
  char by[16];            // what carries it: "shm", "nccl"; "" = not tried
  double gradient_bytes;  // that every rank gives in a step
  int sums;               // all-reduces beside the backward pass
  int calls;              // exchanges that a step waits for: batch norm, embeddings
  double call_bytes;      // of these together
  // All-reduces alone, before training, between the same ranks: of few values, and of a bucket of gradients.
  double small_bytes, small_ms, bucket_bytes, bucket_ms;
  // Training. busy: time exchanging; waited: time the step was longer for it (on a CPU what its thread waited, other
  // ranks' delays included).
  double samples_per_s, efficiency, step_ms, busy_ms, waited_ms;
  bool stable;
  brim_failure failure;
  brim_status failure_status;
  char message[512];
} brim_scaling_exchange;

// A prediction (tune_scaling.c). NaN = unknown.
typedef struct brim_scaling_forecast {
  int64_t ranks;  // 0 = none
  double samples_per_s, efficiency, step_ms, exchange_ms, waited_ms;
  bool beyond;   // more ranks than the exchange was measured with
  bool network;  // unknown, since it would cross machines
} brim_scaling_forecast;

typedef struct brim_scaling_replica {
  char spec[16];  // as the user named it: "cuda:1"
  char device[128], device_id[64];
  double samples_per_s;               // NaN = it did not run
  double rows;                        // samples of a step, the mean of an epoch
  double step_ms;                     // the phases add up to it
  double phase_ms[BRIM_PHASE_COUNT];  // of a step; NaN = unknown
  bool stable;
  brim_failure failure;
  brim_status failure_status;
  char message[512];
} brim_scaling_replica;

typedef struct brim_scaling {
  brim_result result;
  int devices, ran;        // asked for, and measured
  double each;             // samples/s of a device, the mean
  double one;              // of the first device alone; NaN = unknown
  double efficiency;       // all / (ran x one)
  double effective_batch;  // samples of a step of all that ran together
  // The largest loss per step: a phase's key, "compute", "short_batch"; "" = nothing is lost.
  char lost_to[16];
  double lost_ms;
  brim_scaling_replica replicas[BRIM_SCALING_MAX];
  brim_scaling_exchange exchange;
  brim_scaling_forecast predicted;                      // of these devices
  brim_scaling_forecast further[BRIM_SCALING_FURTHER];  // beside the largest number of devices
  int further_count;
} brim_scaling;

// Error of the predicted samples/s: predicted / measured - 1; NaN = unknown.
double brim_scaling_error(const brim_scaling *scaling);

void brim_scaling_init(brim_scaling *scaling);  // unknowns NaN
void brim_scaling_deinit(brim_scaling *scaling);
brim_status brim_scaling_to_json(const brim_scaling *scaling, json_t **out);

// What to do with a recommendation: a checklist, and the learning rate for a changed batch.
typedef struct brim_advice_check {
  bool done;
  char text[384];
} brim_advice_check;

#define BRIM_ADVICE_MAX_CHECKS 8

typedef struct brim_advice {
  brim_advice_check checks[BRIM_ADVICE_MAX_CHECKS];
  size_t check_count;
  char learning_rate[512];  // "" = the effective batch does not change
  char accumulation[384];   // how to keep the effective batch; "" = not possible, or not needed
} brim_advice;

// Progress of a run, handed to the display.
typedef struct brim_progress {
  const char *title;      // "epoch 2/10", "setting 3/12: batch_size=256"
  int64_t epoch, epochs;  // of a training, whose title is for programs; 0 = the title is for people
  int64_t done, total;    // steps; total 0 = unknown; done -1 = not counted
  double elapsed_s, eta_s;  // NaN = unknown
  double rate;              // samples/s over the last interval; NaN = unknown
  const char *unit;
  const brim_metric_set *metrics;        // rows of `values`; NULL = nothing is measured
  const double *values, *baseline;       // of the epoch so far; `baseline` may be NULL
  double phase_share[BRIM_PHASE_COUNT];  // 0..1; all 0 = not measured
} brim_progress;

#endif  // BRIM_RECORD_H_
