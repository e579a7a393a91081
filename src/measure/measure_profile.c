// A profile of a workload: the step measured as in a trial, then a short window in which everything is
// written down. On the host traced and plain steps take turns, so that both meet the same machine. On
// a GPU measure_profile_gpu.c traces a window of steps as training makes them.
#include <math.h>
#include <string.h>

#include "measure/measure_profile_gpu.h"

enum { TRIAL_STEPS = 20, MOST_TURNS = 200 };
#define TURNS_SECONDS 5.0  // on the host, where other programs disturb single steps

static double seconds_since(brim_time start) {
  return (double)brim_time_since_ns(start, brim_clock_now()) * 1e-9;
}

//---------------------------------- the step ----------------------------------

static void take_step(brim_profile *out) {
  out->step_ms = out->result.total_ms.median;
  out->step_mad_ms = out->result.total_ms.mad;
}

static brim_status measure_step(brim_profiler *p) {
  brim_trial_options options = {.steps = TRIAL_STEPS,
                                .ci_target = 0.01,
                                .max_seconds = brim_profiler_seconds(p),
                                .memory_limit = p->options->memory_limit,
                                .memory = p->options->memory,
                                .sampler = p->options->sampler,
                                .machine = p->options->machine,
                                .ceilings = true,
                                .stop = p->options->stop};
  brim_result *r = &p->out->result;
  BRIM_TRY(brim_profiler_stage(p, BRIM_N_("measuring the step")));
  BRIM_TRY(brim_trial_run(p->work, p->config, p->device, p->setting, &options, r));
  take_step(p->out);
  return BRIM_OK;
}

//---------------------------------- the loader ----------------------------------

static void loading(const brim_profiler *p, brim_work_loading *out) {
  memset(out, 0, sizeof *out);
  if (p->work->table->loading) p->work->table->loading->stats(p->work->state, out);
}

// Without workers loading is part of the wait, which is a median: means of the parts must not exceed it.
static double share_of_wait(const brim_profile *out, double loading_ms) {
  double wait_ms = out->result.phase_ms[BRIM_PHASE_IO].median;
  return out->workers == 0 && wait_ms > 0 && loading_ms > wait_ms ? wait_ms / loading_ms : 1;
}

// What the loader's threads did meanwhile, per step of so many samples. Findings have the same figures.
static brim_status take_transforms(const brim_profiler *p, const brim_work_loading *before,
                                   const brim_work_loading *after) {
  brim_profile *out = p->out;
  brim_result *r = &out->result;
  double samples = (double)(after->samples - before->samples);
  double rows = r->plan.samples_per_step, io_ns = 0, sum = 0;
  if (!(samples > 0) || !(rows > 0)) return BRIM_OK;
  double steps = samples / rows;
  io_ns = (double)(after->read_ns - before->read_ns);
  brim_outside_stages(before, after, rows, r);
  out->workers = (int)brim_result_number_as(r, BRIM_ROLE_WORKERS, 0);
  for (size_t i = 0; i < r->stage_count; i++) sum += r->stages[i].ms;
  double share = share_of_wait(out, io_ns * 1e-6 / steps + sum);
  for (size_t i = 0; i < r->stage_count; i++) {
    brim_profile_row *row = brim_profile_add(out, BRIM_PROFILE_TRANSFORMS);
    if (!row) return brim_fail(BRIM_ENOMEM, "out of memory for the trace");
    snprintf(row->name, sizeof row->name, "%s", r->stages[i].name);
    snprintf(row->kind, sizeof row->kind, "transform");
    row->count = rows;
    row->total_ms = r->stages[i].ms *= share;
  }
  if (io_ns > 0) r->worker_io_ms = out->worker_io_ms = share * io_ns * 1e-6 / steps;
  if (r->stage_count > 0) r->worker_transform_ms = out->worker_transform_ms = share * sum;
  return BRIM_OK;
}

//---------------------------------- on the host ----------------------------------

static brim_status plain_step(const brim_profiler *p, double *ms) {
  brim_step_info info;
  brim_time start = brim_clock_now();
  BRIM_TRY(p->work->table->step(p->work->state, NULL, &info));
  BRIM_TRY(brim_device_sync(p->device));
  *ms = (double)brim_time_since_ns(start, brim_clock_now()) * 1e-6;
  return BRIM_OK;
}

// A plain step and a traced one, in turns, the one first and then the other.
static brim_status take_turns(const brim_profiler *p, brim_notes *notes, double *plain_ms,
                              int steps) {
  for (int i = 0; i < steps; i++) {
    brim_step_info info;
    BRIM_TRY(brim_profiler_stage(p, BRIM_N_("tracing steps")));
    if (i % 2 == 0) BRIM_TRY(plain_step(p, &plain_ms[i]));
    p->device->watch = &notes->watch;
    brim_status status = brim_notes_step(notes, p->work, true, &info);
    p->device->watch = NULL;
    BRIM_TRY(status);
    if (i % 2 == 1) BRIM_TRY(plain_step(p, &plain_ms[i]));
  }
  return BRIM_OK;
}

// Files of the trace need no more than the usual window.
static void keep_first(brim_trace *t, int32_t steps) {
  size_t kept = 0;
  if (t->steps <= steps) return;
  t->wall_ns = 0;
  for (size_t i = 0; i < t->count; i++) {
    if (t->events[i].step < 0 || t->events[i].step >= steps) continue;
    if (t->events[i].end_ns > t->wall_ns) t->wall_ns = t->events[i].end_ns;
    t->events[kept++] = t->events[i];
  }
  t->count = kept;
  t->steps = steps;
}

// The result's phases are those of the list.
static void take_phases(brim_profile *out) {
  const brim_profile_rows *rows = &out->lists[BRIM_PROFILE_PHASES];
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    double ms = 0;
    for (size_t i = 0; i < rows->count; i++) {
      if (strcmp(rows->items[i].name, brim_phase_key((brim_phase)p)) == 0) ms = rows->items[i].ms;
    }
    brim_result_set_phase(&out->result, (brim_phase)p, ms);
  }
}

static double turns_that_fit(const brim_profiler *p) {
  double turn_ms = 2 * p->out->result.total_ms.median;
  return fmin(TURNS_SECONDS, brim_profiler_seconds(p)) * 1e3 / fmax(turn_ms, 1e-6);
}

static brim_status trace_host(brim_profiler *p) {
  brim_profile *out = p->out;
  int steps = brim_profiler_steps(p, 0.5), asked = steps;
  int turns = (int)fmin(MOST_TURNS, turns_that_fit(p));
  if (p->options->steps <= 0 && turns > steps) steps = turns;
  double *plain_ms = (double *)brim_calloc((size_t)steps, sizeof *plain_ms);
  if (!plain_ms) return brim_fail(BRIM_ENOMEM, "out of memory for the trace");
  brim_notes notes;
  brim_stats_summary plain;
  brim_comm_stats exchanged = {0};
  (void)brim_device_exchange_stats(p->device, &exchanged);
  brim_notes_begin(&notes, p->device, p->trace, BRIM_NOTES_CLOCK, true);
  p->device->watch = NULL;  // a plain step comes first
  brim_status status = take_turns(p, &notes, plain_ms, steps);
  brim_profiler_take_exchange(p, &exchanged, 2 * steps);
  brim_status ended = brim_notes_end(&notes);
  if (!status) status = ended;
  if (!status) status = brim_times_summarize(plain_ms, (size_t)steps, &plain);
  brim_free(plain_ms);
  BRIM_TRY(status);
  brim_result_retime(&out->result, &plain);  // one step time for rows, rates and findings
  take_step(out);
  snprintf(out->source, sizeof out->source, "clock");
  BRIM_TRY(brim_profile_host_rows(p->trace, out));
  take_phases(out);
  keep_first(p->trace, asked);
  out->window_s = out->traced_ms * 1e-3 * out->traced_steps;
  return brim_profile_take_memory(&notes, out);
}

//---------------------------------- all of it ----------------------------------

static const char *precision_of(const brim_profile *out) {
  const char *precision = brim_result_text_as(&out->result, BRIM_ROLE_PRECISION);
  return precision[0] ? precision : "fp32";
}

static void take_cost(brim_profile *out) {
  out->extra_ms = out->traced_ms - out->step_ms;
  double more_ms = out->window_s * 1e3 - out->step_ms * out->traced_steps;
  out->run_percent = 100 * more_ms / (1000 * out->step_ms);
}

static brim_status profile(brim_profiler *p) {
  brim_work_loading before, after;
  BRIM_TRY(measure_step(p));
  if (p->out->result.failure) return BRIM_OK;
  loading(p, &before);
  BRIM_TRY(p->device->info.host_memory ? trace_host(p) : brim_profiler_trace_gpu(p));
  loading(p, &after);
  BRIM_TRY(take_transforms(p, &before, &after));
  brim_profile_ceilings(p->out, precision_of(p->out));
  brim_profile_finish(p->out);
  take_cost(p->out);
  return BRIM_OK;
}

brim_status brim_profile_run(brim_work *work, const brim_config *config, brim_device *device,
                             const brim_setting *setting, const brim_profile_options *options,
                             brim_profile *out, brim_trace *trace) {
  brim_time start = brim_clock_now();
  brim_profiler p = {.work = work,
                     .config = config,
                     .device = device,
                     .setting = setting,
                     .options = options,
                     .out = out,
                     .trace = trace};
  brim_profile_init(out);
  brim_trace_init(trace);
  snprintf(trace->device, sizeof trace->device, "%s", device->info.name);
  bool host = device->info.host_memory;
  if (host && options->source && options->source[0] && strcmp(options->source, "clock") != 0) {
    return brim_fail(BRIM_EUNSUPPORTED, "the source %s needs a GPU", options->source);
  }
  if (brim_device_ranks(device) > 1) out->ranks = brim_device_ranks(device);
  snprintf(out->exchange_by, sizeof out->exchange_by, "%s", brim_device_exchange(device));
  brim_status status = profile(&p);
  device->watch = NULL;
  out->seconds = seconds_since(start);
  return status;
}
