// One trial: plan, check that it fits, build, warm up until steady, measure, sum up. A setting that fails is a result
// with a failure class, not an error: the sweep continues.

#include "measure/measure_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_machine.h"
#include "measure/measure.h"
#include "monitor/monitor.h"
#include "profile/profile.h"

//--------------------------------------- failure classes ---------------------------------------
// Finds the failure class of a status. Callers: trials, and sweeps for settings that no trial ran.

brim_failure brim_trial_class(brim_status status) {
  switch (status) {
    case BRIM_OK:
      return BRIM_FAILURE_NONE;
    case BRIM_EOOM:
      return BRIM_FAILURE_OOM_DEVICE;
    case BRIM_ENOMEM:
      return BRIM_FAILURE_OOM_HOST;
    case BRIM_EINVAL:
    case BRIM_EPARSE:
    case BRIM_ENOENT:
    case BRIM_ELIMIT:
      return BRIM_FAILURE_BAD_CONFIG;
    case BRIM_EUNSUPPORTED:
      return BRIM_FAILURE_UNSUPPORTED;
    case BRIM_EDEVICE:
      return BRIM_FAILURE_CRASH;
    case BRIM_EINTERRUPTED:
      return BRIM_FAILURE_INTERRUPTED;
    default:
      return BRIM_FAILURE_OTHER;
  }
}

// Returns the class of failed steps: an unreadable sample is not the setting's fault.
static brim_failure brim_trial_class_of_steps(brim_status status) {
  brim_failure failure = brim_trial_class(status);
  return failure == BRIM_FAILURE_BAD_CONFIG ? BRIM_FAILURE_OTHER : failure;
}

//------------------------------------------- identity -------------------------------------------
// The identity of a result: workload, device, machine, setting, config.

static void copy_text(char *out, size_t size, const char *text) {
  snprintf(out, size, "%s", text ? text : "");
}

brim_status brim_trial_identify(brim_work *work, const brim_config *config, brim_device *device,
                                const brim_setting *setting, brim_result *out) {
  brim_result *r = out;
  brim_result_init(r);
  r->when_s = brim_clock_wall_s();
  copy_text(r->workload, sizeof r->workload, work->table->name);
  copy_text(r->device, sizeof r->device, device->info.name);
  copy_text(r->device_id, sizeof r->device_id, device->info.id);
  copy_text(r->library, sizeof r->library, device->info.library);
  copy_text(r->backend, sizeof r->backend, device->backend->name);
  r->threads = device->info.threads;
  if (device->backend->set_threads) {  // the setting decides their number
    r->threads = (int)brim_work_value_as(work, setting, BRIM_ROLE_THREADS, r->threads);
  }
  brim_host_info host;
  BRIM_TRY(brim_host_get_info(&host));
  copy_text(r->host, sizeof r->host, host.hostname);
  copy_text(r->os, sizeof r->os, host.os);
  copy_text(r->cpu, sizeof r->cpu, host.cpu);
  r->cores = host.cores;
  brim_work_info info;
  work->table->info(work->state, &info);
  copy_text(r->description, sizeof r->description, info.description);
  copy_text(r->unit, sizeof r->unit, info.unit);
  for (size_t i = 0; i < info.rate_count && i < BRIM_RESULT_MAX_RATES; i++) {
    copy_text(r->rates[i].unit, sizeof r->rates[i].unit, info.rates[i].unit);
    r->rates[i].per_sample = info.rates[i].per_sample;
    r->rate_count = i + 1;
  }
  r->knob_set = work->table->knob_set;
  for (size_t i = 0; i < work->knob_count && i < BRIM_RESULT_MAX_KNOBS; i++) {
    const brim_knob *knob = &work->knobs[i];
    brim_result_knob *k = &r->knobs[r->knob_count++];
    copy_text(k->name, sizeof k->name, knob->name);
    brim_knob_format(knob, setting->value[i], k->value);
    k->number = knob->kind == BRIM_KNOB_INT ? (double)setting->value[i] : (double)NAN;
  }
  if (config) {
    r->seed = (uint64_t)brim_config_int(config, "seed");
    BRIM_TRY(brim_config_to_json(config, &r->config));
  }
  return BRIM_OK;
}

static bool has_knobs(const brim_knob_set *set, const brim_result *r) {
  for (size_t i = 0; i < r->knob_count; i++) {
    if (!brim_knob_find(set, r->knobs[i].name)) return false;
  }
  return set != NULL;
}

// Finds the knobs of a record's workload. If the workload is unknown, takes a workload with the same knobs.
static const brim_knob_set *set_of(const brim_result *r) {
  const brim_workload_table *table;
  for (size_t k = 0; (table = brim_workload_at(k)); k++) {
    if (strcmp(table->name, r->workload) == 0) return table->knob_set;
  }
  for (size_t k = 0; (table = brim_workload_at(k)); k++) {
    if (has_knobs(table->knob_set, r)) return table->knob_set;
  }
  return NULL;
}

void brim_result_attach_knobs(brim_result *results, size_t count) {
  for (size_t i = 0; i < count; i++) results[i].knob_set = set_of(&results[i]);
}

//-------------------------------------- location of times --------------------------------------
// The Hodges-Lehmann estimate of the logarithms of a trial's times: nearly as sharp as a mean, and three slow samples
// in ten hardly move it. Its error comes from the median absolute deviation.

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median_of(double *v, size_t n) {
  qsort(v, n, sizeof *v, ascending);
  return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

// Uses at most MOST_TIMES times, evenly chosen, since the number of pairs grows with the square.
enum { MOST_TIMES = 64 };

brim_status brim_trial_locate(const double *times, size_t n, brim_trial_location *out) {
  double v[MOST_TIMES], pair[MOST_TIMES * (MOST_TIMES + 1) / 2];
  size_t taken = n < MOST_TIMES ? n : MOST_TIMES, pairs = 0;
  *out = (brim_trial_location){(double)NAN, (double)NAN, 0};
  for (size_t i = 0; i < taken; i++) {
    double t = times[i * n / taken];
    if (!(t > 0) || isinf(t))
      return brim_fail(BRIM_EINVAL, "a measured time is not positive: %g", t);
    v[i] = log(t);
  }
  if (taken == 0) return BRIM_OK;
  out->samples = (double)n;
  for (size_t i = 0; i < taken; i++) {
    for (size_t k = i; k < taken; k++) pair[pairs++] = 0.5 * (v[i] + v[k]);
  }
  out->log_time = median_of(pair, pairs);
  if (taken < 3) return BRIM_OK;
  for (size_t i = 0; i < taken; i++) v[i] = fabs(v[i] - out->log_time);
  out->log_se = 1.02 * 1.4826 * median_of(v, taken) / sqrt((double)taken);
  return BRIM_OK;
}

//-------------------------------------------- times --------------------------------------------
// The times of a result, its rates, and whether they are steady.

void brim_summary_scale(brim_stats_summary *s, double by) {
  double *const all[] = {&s->min, &s->max, &s->mean, &s->stddev, &s->median, &s->mad,
                         &s->p05, &s->p95, &s->p99,  &s->ci_low, &s->ci_high};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) *all[i] *= by;
}

// One sample has no spread and no interval: both stay unknown.
brim_status brim_times_summarize(const double *ms, size_t n, brim_stats_summary *out) {
  BRIM_TRY(brim_stats_summarize(ms, n, 1, out));
  if (n < 2) out->stddev = out->mad = out->ci_low = out->ci_high = (double)NAN;
  return BRIM_OK;
}

void brim_result_set_rates(brim_result *r, double rows, double epoch_samples) {
  r->samples_per_s = rows / (r->total_ms.median * 1e-3);
  r->samples_per_s_low = rows / (r->total_ms.ci_high * 1e-3);
  r->samples_per_s_high = rows / (r->total_ms.ci_low * 1e-3);
  r->epoch_s = epoch_samples / r->samples_per_s;
  // a median absolute deviation alone misses a second mode of less than half of the steps
  r->stable = r->total_ms.mad <= 0.10 * r->total_ms.median &&
              r->total_ms.ci_high - r->total_ms.ci_low <= 0.25 * r->total_ms.median;
}

//--------------------------------------- usage of the GPU ---------------------------------------
// The GPU's usage, from its sampler.

// Selects throttling that comes and goes. The power cap is left out, since all heavy trials share it.
static uint32_t transient_bits(uint32_t bits) {
  return bits & ~(1u << BRIM_THROTTLE_BIT_POWER_CAP | 1u << BRIM_THROTTLE_BIT_APPLICATION);
}

void brim_usage_take(const brim_gpu_usage *usage, double rows, brim_result *out) {
  out->gpu_percent = usage->gpu_percent;
  out->sm_percent = usage->sm_percent;
  out->occupancy_percent = usage->occupancy_percent;
  out->tensor_percent = usage->tensor_percent;
  out->dram_percent = usage->dram_percent;
  out->power_w = usage->power_w;
  out->power_limit_w = usage->power_limit_w;
  out->clock_mhz = usage->clock_mhz;
  out->clock_max_mhz = usage->clock_max_mhz;
  out->temperature_c = usage->temperature_c;
  brim_throttle_text(usage->throttle, out->throttle, sizeof out->throttle);
  out->throttled = transient_bits(usage->throttle) != 0;
  if (rows > 0) out->joules_per_sample = usage->energy_j / rows;
}

//---------------------------------------- background load ----------------------------------------
// Counters of the work beside a trial's phases: CPU time of this process and of other programs, time held back by a
// CPU quota, and the time of the loader's threads by transform. Read before and after the measured steps.

typedef struct background_load {
  brim_host_sample host;
  brim_cpu_stat quota;
  brim_work_loading loading;
} background_load;

// The kernel counts in hundredths of a second: in a shorter time the share of other programs is meaningless.
#define LEAST_SECONDS 0.2

static void read_background(const brim_work *work, background_load *out) {
  brim_host_provider host = brim_host_provider_system("");
  memset(out, 0, sizeof *out);
  // a failed reading leaves its columns unknown, and the trial continues
  brim_host_sample_clear(&out->host);
  brim_host_read_sample(&host, &out->host);
  out->quota = brim_cpu_read_stat(brim_cpu_root());
  if (work->table->loading) work->table->loading->stats(work->state, &out->loading);
}

// Takes the loader's times, scaled to the samples of one step: some samples prepared meanwhile belong to later steps.
void brim_loader_stages(const brim_work_loading *a, const brim_work_loading *b, double rows,
                        brim_result *r) {
  double samples = (double)(b->samples - a->samples);
  r->stage_count = 0;
  if (!(samples > 0) || a->stage_count != b->stage_count) return;
  for (size_t i = 0; i < b->stage_count && i < BRIM_RESULT_MAX_STAGES; i++) {
    brim_result_stage *stage = &r->stages[r->stage_count++];
    snprintf(stage->name, sizeof stage->name, "%s", b->stage[i]);
    stage->ms = (double)(b->stage_ns[i] - a->stage_ns[i]) * 1e-6 * rows / samples;
  }
}

// Takes the CPU time of the control group, or of the process if that is unknown.
static void take_quota(const background_load *before, const background_load *after, double steps,
                       brim_result *r) {
  double quota = brim_cpu_quota(brim_cpu_root());
  double used = after->quota.used_s - before->quota.used_s;
  if (isnan(used)) {
    used = after->host.value[BRIM_HOST_PROCESS_CPU_S] - before->host.value[BRIM_HOST_PROCESS_CPU_S];
  }
  r->quota_cpus = quota > 0 ? quota : (double)NAN;
  r->quota_cores = brim_cpu_cores();
  r->quota_cpu_ms = 1e3 * used / steps;
  r->quota_throttled_ms = 1e3 * (after->quota.throttled_s - before->quota.throttled_s) / steps;
}

// Sets cpu_percent, peak memory, quota and transforms of `r`, from two readings around r->steps steps of `rows`
// samples.
static void take_background(const background_load *before, const background_load *after,
                            double rows, brim_result *r) {
  brim_host_usage usage = brim_host_usage_between(&before->host, &after->host);
  double quota = brim_cpu_quota(brim_cpu_root());
  double cpus = quota > 0 && quota < r->cores ? quota : r->cores;
  if (cpus > 0) r->cpu_percent = usage.process_cpu_percent / cpus;
  if (usage.seconds >= LEAST_SECONDS) r->others_cpu_percent = usage.others_cpu_percent;
  r->peak_rss_bytes = after->host.value[BRIM_HOST_PROCESS_PEAK_RSS];
  take_quota(before, after, r->steps, r);
  brim_loader_stages(&before->loading, &after->loading, rows, r);
}

//------------------------------------ the GPU's own records ------------------------------------
// Runs a setting under the GPU's own records: busy time and kernels per step. This is no part of a trial, since
// recording makes steps slower.

enum { WARM_STEPS = 6, LEAST_STEPS = 5, MOST_STEPS = 200 };
#define TRACED_MS 100.0

static brim_status run_plain_steps(brim_work *work, int count) {
  for (int i = 0; i < count; i++) {
    brim_step_info info;
    BRIM_TRY(work->table->step(work->state, NULL, &info));
  }
  return BRIM_OK;
}

brim_status brim_trial_trace(brim_work *work, brim_device *device, const brim_setting *setting,
                             brim_gpu_trace *trace, brim_result *result) {
  double per_step = result->total_ms.median;
  int count = (int)fmin(MOST_STEPS, fmax(LEAST_STEPS, ceil(TRACED_MS / fmax(per_step, 1e-3))));
  brim_gpu_trace_sum sum;
  BRIM_TRY(work->table->configure(work->state, setting));
  BRIM_TRY(run_plain_steps(work, WARM_STEPS));
  BRIM_TRY(brim_device_sync(device));
  BRIM_TRY(brim_gpu_trace_start(trace));
  brim_status status = run_plain_steps(work, count);
  brim_status synced = brim_device_sync(device);
  brim_status stopped = brim_gpu_trace_stop(trace, &sum);
  BRIM_TRY(status);
  BRIM_TRY(synced);
  BRIM_TRY(stopped);
  if (sum.dropped > 0) {
    return brim_fail(BRIM_ELIMIT, "the trace lost %lld records", (long long)sum.dropped);
  }
  result->gpu_busy_ms = sum.busy_ms / count;
  result->gpu_kernel_ms = sum.kernel_ms / count;
  result->gpu_copy_ms = (sum.h2d_ms + sum.d2h_ms + sum.d2d_ms) / count;
  result->kernels = (double)sum.kernels / count;
  return BRIM_OK;
}

//-------------------------------------- ceilings of a job --------------------------------------
// The two ceilings of a job: the loader alone, and the device alone with data at hand. The lower one bounds the job.

typedef struct halves_options {
  brim_work *work;
  brim_device *device;
  double step_ms;   // time of a whole step
  int ring;         // steps that may be prefetched
  double budget_s;  // time for each of the two measurements
  const volatile sig_atomic_t *stop;
} halves_options;

// In shorter windows the clock and the final wait would dominate.
#define LEAST_MS 60.0

static bool must_stop(const halves_options *how) { return how->stop && *how->stop; }

static double since_ms(brim_time start) {
  return (double)brim_time_since_ns(start, brim_clock_now()) * 1e-6;
}

static brim_status interrupted(void) { return brim_fail(BRIM_EINTERRUPTED, "interrupted"); }

// Measures the loader alone. Steps in the ring were loaded while the device computed, so they are used up first. Then
// it times at least as many steps as the ring holds, since steps come in bursts of that size.
static brim_status load(const halves_options *how, brim_result *out) {
  const brim_work_loading_table *loading = how->work->table->loading;
  brim_step_info info;
  double most_ms = 1e3 * how->budget_s;
  brim_time begin = brim_clock_now();
  int64_t rows = 0;
  int done = 0;
  for (int i = 0; i < how->ring + 1 && since_ms(begin) < most_ms; i++) {
    if (must_stop(how)) return interrupted();
    BRIM_TRY(loading->load_only(how->work->state, &info));
  }
  BRIM_TRY(brim_device_sync(how->device));  // transforms may run on the device
  brim_time start = brim_clock_now();
  while (done == 0 || ((done < how->ring || since_ms(start) < LEAST_MS) &&
                       since_ms(start) < fmax(LEAST_MS, most_ms))) {
    if (must_stop(how)) return interrupted();
    BRIM_TRY(loading->load_only(how->work->state, &info));
    rows += info.samples;
    done++;
  }
  BRIM_TRY(brim_device_sync(how->device));
  out->data_samples_per_s = (double)rows / (since_ms(start) * 1e-3);
  return BRIM_OK;
}

// Measures the device alone. Short steps run twice before, which warms up launches and the CPU's caches.
static brim_status compute(const halves_options *how, brim_result *out) {
  const brim_work_loading_table *loading = how->work->table->loading;
  brim_step_info info;
  double step_ms = fmax(how->step_ms, 1e-3);
  int steps = (int)fmin(1000, ceil(fmin(LEAST_MS, 1e3 * how->budget_s) / step_ms));
  if (steps < 1) steps = 1;
  int warmup_steps = step_ms < LEAST_MS / 4 ? 2 : 0;
  int64_t ns = 0;
  if (warmup_steps) BRIM_TRY(loading->compute_only(how->work->state, warmup_steps, &ns, &info));
  if (must_stop(how)) return interrupted();
  BRIM_TRY(loading->compute_only(how->work->state, steps, &ns, &info));
  if (ns > 0) out->compute_samples_per_s = (double)info.samples / ((double)ns * 1e-9);
  return BRIM_OK;
}

//---------------------------------- waiting for data ----------------------------------

// Counts `gap` as copying: the device stood still while the host was neither reading nor copying, so data were in
// transit (rows that the device fetches itself, late copies). Less than 3 % is noise.
static void wait_for_data(brim_result *result, double gap, double compute) {
  brim_stats_summary *h2d = &result->phase_ms[BRIM_PHASE_H2D];
  if (!(gap > 0.03 * result->total_ms.mean) || !(gap < compute)) return;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    if (brim_phase_computes(p)) brim_summary_scale(&result->phase_ms[p], 1 - gap / compute);
  }
  double *const places[] = {&h2d->min, &h2d->max, &h2d->mean,   &h2d->median, &h2d->p05,
                            &h2d->p95, &h2d->p99, &h2d->ci_low, &h2d->ci_high};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) *places[i] += gap;
  result->phase_used[BRIM_PHASE_H2D] = true;
}

void brim_result_remove_overlap(brim_result *result) {
  double total = result->total_ms.mean, compute = 0, host = 0;
  double rows = result->plan.samples_per_step;  // a short batch takes as long as a full one
  if (!(rows > 0)) rows = result->samples_per_s * result->total_ms.median * 1e-3;
  double device = rows / result->compute_samples_per_s * 1e3;
  // transforms that are a phase run on the device: they are never hidden, and compute_samples_per_s excludes them
  double transform = result->phase_ms[BRIM_PHASE_TRANSFORM].mean;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    if (p != BRIM_PHASE_TRANSFORM)
      *(brim_phase_computes(p) ? &compute : &host) += result->phase_ms[p].mean;
  }
  double uncomputed = fmax(0, total - device);
  if (isnan(device) || !(compute > 0)) return;
  if (transform + host <= uncomputed) {
    wait_for_data(result, uncomputed - transform - host, compute);
    return;
  }
  double shown = fmin(transform, uncomputed);
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    double factor = brim_phase_computes(p) ? (total - uncomputed) / compute
                    : host > 0             ? (uncomputed - shown) / host
                                           : 0;
    if (p == BRIM_PHASE_TRANSFORM) factor = transform > 0 ? shown / transform : 0;
    brim_summary_scale(&result->phase_ms[p], factor);
  }
}

// Sets data_samples_per_s (the loader alone) and compute_samples_per_s (the device alone) of `out`. The workload must
// be warmed up at the setting of `out`. Both are NaN for a workload that cannot load or compute alone.
// BRIM_EINTERRUPTED when stopped.
static brim_status halves_measure(const halves_options *how, brim_result *out) {
  out->data_samples_per_s = out->compute_samples_per_s = (double)NAN;
  if (!how->work->table->loading) return BRIM_OK;
  BRIM_TRY(compute(how, out));
  return load(how, out);
}

//-------------------------------------------- trial --------------------------------------------
// The trial itself. On the host every step is measured alone, phase by phase. A GPU is measured as training drives
// it, with the host ahead: windows of steps give the total, and a few steps that wait after each phase give the
// proportions of the phases.

// LEAST_TIMED: samples to measure even if the time is up.
enum { MIN_SAMPLES = 5, LEAST_TIMED = 3 };
// Each piece of a step is recorded when it runs the second time, once for each of two input slots.
enum { RECORD_STEPS = 4, PHASE_STEPS = 3, MAX_WINDOW = 10000 };
// Length of a window, so that the cost of its end is negligible.
#define WINDOW_MS 50.0
// Length of all windows. The GPU's counters lag by a tenth of a second: they are read after LEAD_MS of the same work.
#define WINDOWS_MS 450.0
#define LEAD_MS 150.0

// Samples of one trial, one row per measured step or window of steps.
typedef struct samples {
  double *total_ms;
  double *phase_ms[BRIM_PHASE_COUNT];
  bool used[BRIM_PHASE_COUNT];
  int count, capacity;
  double worker_io_ms, worker_transform_ms;
  int64_t rows;
  int steps;
} samples;

typedef struct trial {
  brim_work *work;
  const brim_config *config;
  brim_device *device;
  const brim_trial_options *options;
  brim_result *result;
  brim_phase_timer timer;
  brim_time start;
  brim_time stepping;  // start of the first step: the time limit begins here, not with building
  samples s;
  double step_ms;     // time of the last warm-up step
  int window;         // steps of a sample; 0 = the device is the host: a sample is one step
  brim_event *mark;   // windows: recorded before the last step
  brim_time reached;  // windows: when the host saw `mark` done
  int64_t run_rows;   // windows: samples of all steps, those between windows included
  bool marked;        // the sampler was marked, when run_rows was marked_rows
  int64_t marked_rows;
  brim_trial_location location;  // set if options->visit is not NULL
} trial;

//---------------------------------- failures ----------------------------------

static void record_failure(brim_result *r, brim_failure failure, brim_status status,
                           const char *message) {
  r->failure = failure;
  r->failure_status = status;
  snprintf(r->message, sizeof r->message, "%s", message);
}

// Makes the input of the check whether a setting fits in the device's memory.
static brim_fit fit_of(trial *t, const brim_setting *setting) {
  return (brim_fit){.work = t->work,
                    .config = t->config,
                    .setting = setting,
                    .plan = &t->result->plan,
                    .limit = t->options->memory_limit,
                    .watch = t->options->memory};
}

static brim_status check_fit(trial *t, const brim_setting *setting) {
  brim_result *r = t->result;
  brim_fit fit = fit_of(t, setting);
  uint64_t free_bytes = 0, total_bytes = 0;
  BRIM_TRY(brim_device_memory(t->device, &free_bytes, &total_bytes));
  r->free_bytes = (double)free_bytes;
  r->total_bytes = (double)total_bytes;
  brim_status status = brim_fit_check(&fit);
  if (status != BRIM_EOOM) return status;
  record_failure(r, BRIM_FAILURE_OOM_PLANNED, BRIM_EOOM, brim_status_detail());
  return BRIM_OK;
}

//---------------------------------- stepping ----------------------------------

static brim_status timed_step(trial *t, double *total_ms, brim_step_info *info) {
  brim_phase_timer_reset(&t->timer);
  brim_time start = brim_clock_now();
  BRIM_TRY(t->work->table->step(t->work->state, &t->timer.spans, info));
  BRIM_TRY(brim_device_sync(t->device));
  *total_ms = (double)brim_time_since_ns(start, brim_clock_now()) * 1e-6;
  return BRIM_OK;
}

static double elapsed_s(const trial *t) {
  return (double)brim_time_since_ns(t->start, brim_clock_now()) * 1e-9;
}

// True if more than `share` of the trial's time is used.
static bool out_of_time(const trial *t, double share) {
  double spent_s = (double)brim_time_since_ns(t->stepping, brim_clock_now()) * 1e-9;
  return t->options->max_seconds > 0 && spent_s > share * t->options->max_seconds;
}

static bool stopped(const trial *t) { return t->options->stop && *t->options->stop; }

// Runs the steps that wait after each phase. They come first in a GPU's warm-up: the loader gets ahead in them, and
// the other warm-up steps use up what it prefetched.
static brim_status record_phases(trial *t) {
  t->timer.spans.exact = true;
  for (int i = 0; i < RECORD_STEPS; i++) {
    if (stopped(t)) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
    brim_step_info info;
    BRIM_TRY(timed_step(t, &t->step_ms, &info));
    t->result->warmup_steps++;
    if (out_of_time(t, 0.25)) break;
  }
  return BRIM_OK;
}

// Steps that the loader may prefetch.
static int ring_steps(const trial *t) {
  return (int)(brim_result_number_as(t->result, BRIM_ROLE_WORKERS, 0) *
               brim_result_number_as(t->result, BRIM_ROLE_PREFETCH, 1) /
               brim_result_number_as(t->result, BRIM_ROLE_ACCUMULATION, 1));
}

// Warms up until the last five steps are within 5 % of each other, and the data prefetched before the first step are
// used up.
static brim_status warm_up(trial *t) {
  if (!t->device->info.host_memory) BRIM_TRY(record_phases(t));
  t->timer.spans.exact = t->device->info.host_memory;
  double last[BRIM_STEADY_STEPS] = {0};
  int ring = ring_steps(t);
  int least = ring + 2 > BRIM_STEADY_STEPS ? ring + 2 : BRIM_STEADY_STEPS;
  int most = t->options->max_warmup > 0 ? t->options->max_warmup : 20;
  if (most < least) most = least;
  for (int i = 0; i < most; i++) {
    if (stopped(t)) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
    brim_step_info info;
    BRIM_TRY(timed_step(t, &last[i % BRIM_STEADY_STEPS], &info));
    t->step_ms = last[i % BRIM_STEADY_STEPS];
    t->result->warmup_steps++;
    if (out_of_time(t, 0.5) && i > 0) break;
    if (i + 1 < least) continue;
    if (brim_steps_are_steady(last)) break;
  }
  return BRIM_OK;
}

static brim_status samples_init(samples *s, int capacity) {
  // one block: total and every phase
  double *block = (double *)brim_calloc((size_t)capacity * (BRIM_PHASE_COUNT + 1), sizeof *block);
  if (!block) return brim_fail(BRIM_ENOMEM, "out of memory for %d samples", capacity);
  s->capacity = capacity;
  s->total_ms = block;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    s->phase_ms[p] = block + (size_t)capacity * ((size_t)p + 1);
  }
  return BRIM_OK;
}

static void add_info(samples *s, const brim_step_info *info) {
  s->worker_io_ms += (double)info->worker_io_ns * 1e-6;
  s->worker_transform_ms += (double)info->worker_transform_ns * 1e-6;
  s->rows += info->samples;
  s->steps++;
}

static void take_sample(trial *t, double total_ms, const brim_step_info *info) {
  samples *s = &t->s;
  int i = s->count++;
  double covered = 0;
  s->total_ms[i] = total_ms;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    s->phase_ms[p][i] = (double)t->timer.ns[p] * 1e-6;
    covered += s->phase_ms[p][i];
    if (t->timer.used[p]) s->used[p] = true;
  }
  // phases sum to the total: time outside spans is `other`
  s->phase_ms[BRIM_PHASE_OTHER][i] += fmax(0, total_ms - covered);
  s->used[BRIM_PHASE_OTHER] = true;
  add_info(s, info);
}

static double windows_ms(const trial *t) {
  return t->s.count > 0 ? t->s.count * t->window * t->s.total_ms[0] : 0;
}

static int most_samples(const trial *t) {
  int steps = t->options->steps > 0 ? t->options->steps : 10;
  return t->options->min_steps > steps ? t->options->min_steps : steps;
}

static int least_samples(const trial *t) {
  return t->options->min_steps > 0 ? t->options->min_steps : MIN_SAMPLES;
}

static int least_timed(const trial *t) {
  return t->options->min_steps > 0 ? t->options->min_steps : LEAST_TIMED;
}

static bool tight_enough(const trial *t) {
  const samples *s = &t->s;
  if (t->options->ci_target <= 0 || s->count < least_samples(t)) return false;
  if (s->count < 2) return false;  // one sample has no interval
  if (t->window && windows_ms(t) < WINDOWS_MS) return false;
  double median, low, high;
  if (brim_stats_median(s->total_ms, (size_t)s->count, &median)) return false;
  if (brim_stats_bootstrap_median(s->total_ms, (size_t)s->count, 0.95, 200, 1, &low, &high)) {
    return false;
  }
  return high - low <= 2 * t->options->ci_target * median;
}

static brim_status measure_step(trial *t) {
  brim_step_info info;
  double total_ms;
  BRIM_TRY(timed_step(t, &total_ms, &info));
  take_sample(t, total_ms, &info);
  return BRIM_OK;
}

//---------------------------------- windows ----------------------------------

// True for phases that only exact steps can separate. Transforms are a phase if the device runs them, not if workers
// do.
static bool is_separated(int phase) {
  return phase == BRIM_PHASE_TRANSFORM || phase == BRIM_PHASE_FORWARD ||
         phase == BRIM_PHASE_BACKWARD || phase == BRIM_PHASE_OPTIMIZER;
}

static brim_status unwaited_step(trial *t, brim_step_info *info) {
  BRIM_TRY(t->work->table->step(t->work->state, &t->timer.spans, info));
  t->run_rows += info->samples;
  return BRIM_OK;
}

// Runs the last step of a window. The host waits for the step before it, as it does before reusing that step's slot,
// and leaves the last step running: the device never drains, and copies overlap as in training.
static brim_status last_step(trial *t, brim_step_info *info, double *waited_ms) {
  BRIM_TRY(brim_event_record(t->device, t->mark));
  BRIM_TRY(unwaited_step(t, info));
  brim_time from = brim_clock_now();
  BRIM_TRY(brim_event_sync(t->device, t->mark));
  t->reached = brim_clock_now();
  *waited_ms = (double)brim_time_since_ns(from, t->reached) * 1e-6;
  return BRIM_OK;
}

// Takes the phases per step. The device's computing is one sum, which share_out divides.
static void take_window(trial *t, double total_ms, double waited_ms) {
  samples *s = &t->s;
  int i = s->count++;
  double steps = t->window, covered = waited_ms, compute = waited_ms;
  s->total_ms[i] = total_ms / steps;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    double ms = (double)t->timer.ns[p] * 1e-6;
    covered += ms;
    if (is_separated(p) || p == BRIM_PHASE_COMPUTE) {
      compute += ms;
      continue;
    }
    s->phase_ms[p][i] = ms / steps;
    if (t->timer.used[p]) s->used[p] = true;
  }
  s->phase_ms[BRIM_PHASE_COMPUTE][i] = compute / steps;
  s->phase_ms[BRIM_PHASE_OTHER][i] += fmax(0, total_ms - covered) / steps;
  s->used[BRIM_PHASE_COMPUTE] = s->used[BRIM_PHASE_OTHER] = true;
}

static brim_status measure_window(trial *t) {
  brim_step_info info;
  double waited_ms;
  // the host drew progress since the last window, and the device may have finished its short steps: wait again
  if (t->window > 1 || t->s.count == 0) BRIM_TRY(last_step(t, &info, &waited_ms));
  brim_time from = t->reached;
  brim_phase_timer_reset(&t->timer);
  for (int i = 0; i < t->window; i++) {
    if (stopped(t)) {
      BRIM_TRY(brim_device_sync(t->device));
      return brim_fail(BRIM_EINTERRUPTED, "interrupted");
    }
    BRIM_TRY(i + 1 == t->window ? last_step(t, &info, &waited_ms) : unwaited_step(t, &info));
    add_info(&t->s, &info);
  }
  take_window(t, (double)brim_time_since_ns(from, t->reached) * 1e-6, waited_ms);
  return BRIM_OK;
}

// Updates the mean of the exact steps' times by the device's clock; NaN if one step has no time.
static void take_figures(const int64_t *ns, int count, double ms[BRIM_PHASE_COUNT]) {
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    double now = ns[p] < 0 ? (double)NAN : (double)ns[p] * 1e-6;
    ms[p] = count == 0 ? now : ms[p] + (now - ms[p]) / (count + 1);
  }
}

// Runs a few steps that wait after each phase. Sets `phase_ms` per step, all 0 if nothing was reported.
static brim_status measure_phases(trial *t, double phase_ms[BRIM_PHASE_COUNT]) {
  double sum[BRIM_PHASE_COUNT] = {0};
  int count = 0;
  t->timer.spans.exact = true;
  while (count < PHASE_STEPS) {
    if (stopped(t)) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
    brim_step_info info;
    double total_ms, covered = 0;
    BRIM_TRY(timed_step(t, &total_ms, &info));
    take_figures(t->timer.busy_ns, count, t->result->phase_busy_ms);
    take_figures(t->timer.moved_ns, count, t->result->phase_moved_ms);
    count++;
    for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
      sum[p] += (double)t->timer.ns[p] * 1e-6;
      covered += (double)t->timer.ns[p] * 1e-6;
    }
    sum[BRIM_PHASE_OTHER] += fmax(0, total_ms - covered);
    if (out_of_time(t, 1)) break;
  }
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) phase_ms[p] = sum[p] / count;
  return BRIM_OK;
}

// Divides the computing of each window in the proportions of the exact steps; the totals stay. If a window has more
// time outside spans than the exact steps, the host waited for the busy device: the excess counts as computing.
static void share_out(samples *s, const double exact_ms[BRIM_PHASE_COUNT]) {
  double whole = 0;
  bool apart[BRIM_PHASE_COUNT];
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    // a phase that only exact steps have is part of the windows' computing
    const bool hidden = !s->used[p] && p != BRIM_PHASE_COMPUTE && p != BRIM_PHASE_OTHER;
    apart[p] = is_separated(p) || (hidden && exact_ms[p] > 0);
    whole += apart[p] ? exact_ms[p] : 0;
  }
  if (whole <= 0) return;
  for (int i = 0; i < s->count; i++) {
    double excess = fmax(0, s->phase_ms[BRIM_PHASE_OTHER][i] - exact_ms[BRIM_PHASE_OTHER]);
    double compute = s->phase_ms[BRIM_PHASE_COMPUTE][i] + excess;
    s->phase_ms[BRIM_PHASE_OTHER][i] -= excess;
    s->phase_ms[BRIM_PHASE_COMPUTE][i] = 0;
    for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
      if (apart[p]) s->phase_ms[p][i] = compute * exact_ms[p] / whole;
    }
  }
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    if (apart[p]) s->used[p] = exact_ms[p] > 0;
  }
  s->used[BRIM_PHASE_COMPUTE] = false;
}

static brim_status divide_windows(trial *t) {
  double exact_ms[BRIM_PHASE_COUNT];
  BRIM_TRY(measure_phases(t, exact_ms));
  share_out(&t->s, exact_ms);
  return BRIM_OK;
}

//---------------------------------- measuring ----------------------------------

// Marks the beginning of the sampled interval, once the work has continued for a while.
static void mark_sampler(trial *t) {
  if (!t->options->sampler || t->marked || windows_ms(t) < LEAD_MS) return;
  brim_gpu_sampler_mark(t->options->sampler);
  t->marked = true;
  t->marked_rows = t->run_rows;
}

static brim_status measure_samples(trial *t) {
  if (!t->device->info.host_memory) {
    t->window = (int)fmin(MAX_WINDOW, fmax(1, ceil(WINDOW_MS / fmax(t->step_ms, 1e-6))));
  }
  for (int i = 0; i < t->s.capacity; i++) {
    if (stopped(t)) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
    mark_sampler(t);
    BRIM_TRY(t->window ? measure_window(t) : measure_step(t));
    if (t->options->on_step) t->options->on_step(t->options->ctx, i + 1, t->s.capacity);
    if (tight_enough(t)) break;
    if (t->s.count >= least_timed(t) && out_of_time(t, 1)) break;
  }
  return brim_device_sync(t->device);
}

//---------------------------------- summing up ----------------------------------

static brim_status sum_up(trial *t, const background_load *before, const background_load *after) {
  brim_result *r = t->result;
  samples *s = &t->s;
  size_t n = (size_t)s->count;
  BRIM_TRY(brim_times_summarize(s->total_ms, n, &r->total_ms));
  if (t->options->visit) BRIM_TRY(brim_trial_locate(s->total_ms, n, &t->location));
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    r->phase_used[p] = s->used[p];
    BRIM_TRY(brim_times_summarize(s->phase_ms[p], n, &r->phase_ms[p]));
  }
  brim_work_info info;
  t->work->table->info(t->work->state, &info);
  // An epoch's last batch may be short and costs a whole step. Use the share of short batches in an epoch, not the
  // share that happened to be measured.
  double rows = (double)s->rows / s->steps;
  if (info.steps_per_epoch > 0) {
    rows = (double)info.samples_per_epoch / (double)info.steps_per_epoch;
  }
  r->steps = s->steps;
  r->worker_io_ms = s->worker_io_ms / s->steps;
  r->worker_transform_ms = s->worker_transform_ms / s->steps;
  brim_result_set_rates(r, rows, (double)info.samples_per_epoch);
  take_background(before, after, rows, r);
  return BRIM_OK;
}

// Takes the memory of the host from brim's allocator, which counts everything. The watch measures a GPU's overhead.
static void count_memory(trial *t) {
  brim_result *r = t->result;
  brim_alloc_stats stats;
  brim_alloc_get_stats(&stats);
  r->overhead_bytes = (double)stats.live_bytes[BRIM_MEM_OVERHEAD];
  r->counted_bytes = r->overhead_bytes + (double)stats.live_bytes[BRIM_MEM_PLANNED];
  if (t->device->info.host_memory) return;
  const brim_memory_watch *watch = t->options->memory;
  r->overhead_bytes = watch ? watch->overhead : (double)NAN;
  r->real_bytes = watch ? watch->real : (double)NAN;
}

// Called after warm-up, when all modules are loaded and all graphs are recorded.
static void measure_memory(trial *t, const brim_setting *setting) {
  if (!t->options->memory) return;
  brim_memory_watch_measure(t->options->memory, t->device, &t->result->plan);
  brim_memory_watch_remember(t->options->memory, t->work, t->config, setting);
}

// Measures the loader alone and the device alone, at least one step each.
static brim_status measure_ceilings(trial *t) {
  if (!t->options->ceilings) return BRIM_OK;
  halves_options how = {.work = t->work,
                        .device = t->device,
                        .step_ms = t->result->total_ms.median,
                        .ring = ring_steps(t),
                        .budget_s = 0.25,
                        .stop = t->options->stop};
  BRIM_TRY(halves_measure(&how, t->result));
  if (t->window) brim_result_remove_overlap(t->result);
  return BRIM_OK;
}

static void read_sampler(trial *t) {
  brim_gpu_usage usage;
  if (!t->marked) return;
  brim_gpu_sampler_read(t->options->sampler, &usage);
  brim_usage_take(&usage, (double)(t->run_rows - t->marked_rows), t->result);
}

static brim_status run_steps(trial *t, const brim_setting *setting) {
  BRIM_TRY(samples_init(&t->s, most_samples(t)));
  t->stepping = brim_clock_now();
  brim_phase_timer_init(&t->timer);
  background_load before, after;
  brim_status status = warm_up(t);
  if (!status && !t->device->info.host_memory) status = brim_event_create(t->device, &t->mark);
  if (!status) measure_memory(t, setting);
  read_background(t->work, &before);
  if (!status) status = measure_samples(t);
  read_background(t->work, &after);
  if (!status) read_sampler(t);
  if (!status && t->window) status = divide_windows(t);
  if (!status) status = sum_up(t, &before, &after);
  if (!status) status = measure_ceilings(t);
  brim_event_destroy(t->device, t->mark);
  t->mark = NULL;
  brim_free(t->s.total_ms);
  t->s.total_ms = NULL;
  if (!status) count_memory(t);
  return status;
}

static brim_status plan_only(trial *t, const brim_setting *setting) {
  BRIM_TRY(brim_trial_identify(t->work, t->config, t->device, setting, t->result));
  if (t->options->machine) t->result->ceilings = *t->options->machine;
  brim_status status = t->work->table->plan(t->work->state, setting, &t->result->plan);
  if (status) {
    record_failure(t->result, brim_trial_class(status), status, brim_status_detail());
    return status == BRIM_EINTERRUPTED ? status : BRIM_OK;
  }
  // a configured workload holds its memory already: it fits
  return t->options->configured ? BRIM_OK : check_fit(t, setting);
}

static trial trial_of(brim_work *work, const brim_config *config, brim_device *device,
                      const brim_trial_options *options, brim_result *out) {
  trial t;
  memset(&t, 0, sizeof t);
  t.work = work;
  t.config = config;
  t.device = device;
  t.options = options;
  t.result = out;
  t.start = brim_clock_now();
  return t;
}

brim_status brim_trial_plan(brim_work *work, const brim_config *config, brim_device *device,
                            const brim_setting *setting, const brim_trial_options *options,
                            brim_result *out) {
  trial t = trial_of(work, config, device, options, out);
  BRIM_TRY(plan_only(&t, setting));
  brim_overhead known = brim_memory_watch_known(options->memory, work, config, setting);
  out->overhead_bytes = known.total;
  return BRIM_OK;
}

// Refuses steps that the data cannot fill: they would compute fewer rows than the setting says.
static brim_status check_filled(const trial *t) {
  brim_work_info info;
  memset(&info, 0, sizeof info);
  t->work->table->info(t->work->state, &info);
  double batch = brim_result_number_as(t->result, BRIM_ROLE_BATCH, 0);
  double steps = brim_result_number_as(t->result, BRIM_ROLE_ACCUMULATION, 1);
  if (info.set_samples <= 0 || batch * steps <= (double)info.set_samples) return BRIM_OK;
  if (steps > 1) {
    return brim_fail(BRIM_EINVAL,
                     "the set has %" PRId64
                     " samples, fewer than one step of %.0f x %.0f accumulated; not run",
                     info.set_samples, batch, steps);
  }
  return brim_fail(BRIM_EINVAL,
                   "the set has %" PRId64 " samples, fewer than one batch of %.0f; not run",
                   info.set_samples, batch);
}

// Configures the setting, and notes the GPU memory that it then holds.
static brim_status configure(trial *t, const brim_setting *setting) {
  brim_memory_watch *watch = t->options->memory;
  BRIM_TRY(check_filled(t));
  brim_host_forget_peak();  // the peak from here on is this setting's
  if (watch) watch->held = 0;
  BRIM_TRY(t->work->table->configure(t->work->state, setting));
  if (watch && watch->uuid[0]) watch->held = t->result->plan.bytes[BRIM_PLACE_DEVICE];
  return BRIM_OK;
}

brim_status brim_trial_run(brim_work *work, const brim_config *config, brim_device *device,
                           const brim_setting *setting, const brim_trial_options *options,
                           brim_result *out) {
  trial t = trial_of(work, config, device, options, out);
  BRIM_TRY(plan_only(&t, setting));
  if (out->failure) return BRIM_OK;
  brim_status status =
      options->configured ? work->table->snapshot(work->state) : configure(&t, setting);
  bool stands = !status;
  if (stands) {
    status = run_steps(&t, setting);
    if (options->configured) {
      brim_status restored = work->table->restore(work->state);
      if (!status) status = restored;
    }
  }
  out->seconds = elapsed_s(&t);
  if (status == BRIM_EOOM) {
    brim_fit fit = fit_of(&t, setting);
    status = brim_fit_explain(&fit, true);
  }
  if (status) {
    record_failure(out, stands ? brim_trial_class_of_steps(status) : brim_trial_class(status),
                   status, brim_status_detail());
  }
  if (options->visit && brim_result_ran(out)) {
    // take the rows of a step from samples_per_s and its time from the location
    *options->visit = (brim_result_visit){
        .samples_per_s = out->samples_per_s * exp(log(out->total_ms.median) - t.location.log_time),
        .log_se = t.location.log_se,
        .samples = t.location.samples,
        .seconds = fmax(out->seconds, 1e-3),
        .others_cpu_percent = (double)NAN};
  }
  return status == BRIM_EINTERRUPTED ? status : BRIM_OK;
}
