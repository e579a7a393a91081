// The traced window of a GPU. With CUPTI: one step op by op, each until the device is done, which says
// what each kernel belongs to; then a window of steps as training makes them. Without: steps op by op
// with events around each, while the device continues.
#include "measure/measure_profile_gpu.h"

#include <math.h>
#include <string.h>

#include "base/base_words.h"

// LEAD: the device drained before the window, and has to fill up again. Each piece of a step is run op by
// op the first time and recorded the second, for two slots of inputs.
enum { LEAD = 2, WARM_STEPS = 4, EVENT_STEPS = 5 };
#define ENOUGH_FOUND 0.9  // of the kernels

static double seconds_since(brim_time start) {
  return (double)brim_time_since_ns(start, brim_clock_now()) * 1e-9;
}

static brim_status plain_steps(const brim_profiler *p, int count) {
  for (int i = 0; i < count; i++) {
    brim_step_info info;
    BRIM_TRY(p->work->table->step(p->work->state, NULL, &info));
  }
  return brim_device_sync(p->device);
}

static brim_status noted_steps(const brim_profiler *p, brim_notes *notes, int count, bool sync) {
  for (int i = 0; i < count; i++) {
    brim_step_info info;
    if (p->options->stop && *p->options->stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
    BRIM_TRY(brim_notes_step(notes, p->work, sync, &info));
  }
  return BRIM_OK;
}

//---------------------------------- by CUPTI ----------------------------------

// How steps are noted under the library.
typedef struct traced {
  brim_notes_mode mode;
  bool exact;
  int steps;
  brim_trace *into;
} traced;

static brim_status trace_steps(brim_profiler *p, brim_gpu_trace *gpu, const traced *how,
                               brim_notes *notes) {
  brim_gpu_trace_sum sum;
  brim_time start = brim_clock_now();
  BRIM_TRY(brim_device_sync(p->device));
  brim_comm_stats exchanged = {0};
  (void)brim_device_exchange_stats(p->device, &exchanged);
  brim_notes_begin(notes, p->device, how->into, how->mode, how->exact);
  brim_status status = brim_gpu_trace_start(gpu);
  if (status) {
    (void)brim_notes_end(notes);
    return status;
  }
  status = noted_steps(p, notes, how->steps, how->mode == BRIM_NOTES_CLOCK);
  brim_status ended = brim_notes_end(notes);
  brim_profiler_take_exchange(p, &exchanged, how->steps);
  brim_status stopped = brim_gpu_trace_stop(gpu, &sum);
  p->out->window_s = seconds_since(start);  // the last one's counts
  BRIM_TRY(status);
  BRIM_TRY(ended);
  BRIM_TRY(stopped);
  if (sum.dropped > 0) {
    return brim_fail(BRIM_ELIMIT, "the trace lost %lld records", (long long)sum.dropped);
  }
  brim_result *r = &p->out->result;  // as brim_trial_trace has it
  r->gpu_busy_ms = sum.busy_ms / how->steps;
  r->gpu_kernel_ms = sum.kernel_ms / how->steps;
  r->gpu_copy_ms = (sum.h2d_ms + sum.d2h_ms + sum.d2d_ms) / how->steps;
  r->kernels = (double)sum.kernels / how->steps;
  return brim_gpu_trace_events(gpu, notes->begin, how->into);
}

// One step op by op, after one that loads what is loaded at the first run.
static brim_status map_step(brim_profiler *p, brim_gpu_trace *gpu, brim_trace *mapped) {
  brim_notes notes;
  brim_trace first;
  brim_step_info info;
  BRIM_TRY(brim_profiler_stage(p, BRIM_N_("tracing a step op by op")));
  brim_trace_init(&first);
  brim_notes_begin(&notes, p->device, &first, BRIM_NOTES_CLOCK, true);
  brim_status status = brim_notes_step(&notes, p->work, true, &info);
  brim_status ended = brim_notes_end(&notes);
  brim_trace_deinit(&first);
  BRIM_TRY(status);
  BRIM_TRY(ended);
  const traced how = {.mode = BRIM_NOTES_CLOCK, .exact = true, .steps = 1, .into = mapped};
  BRIM_TRY(trace_steps(p, gpu, &how, &notes));
  return brim_profile_take_memory(&notes, p->out);
}

static brim_status trace_window(brim_profiler *p, brim_gpu_trace *gpu, brim_trace *mapped) {
  brim_profile *out = p->out;
  brim_notes notes;
  BRIM_TRY(brim_profiler_stage(p, BRIM_N_("tracing steps")));
  BRIM_TRY(plain_steps(p, WARM_STEPS));
  const traced how = {
      .mode = BRIM_NOTES_NONE, .steps = LEAD + 1 + brim_profiler_steps(p, 0.5), .into = p->trace};
  BRIM_TRY(trace_steps(p, gpu, &how, &notes));
  double found = brim_trace_attribute(p->trace, mapped);
  if (found < ENOUGH_FOUND) {
    brim_words_add(out->note, sizeof out->note,
                   BRIM_N_("%.0f %% of the kernels could not be assigned to an op"),
                   brim_shown(100 * (1 - found)));
  }
  return brim_profile_device_rows(p->trace, mapped, LEAD, out);
}

static brim_status by_cupti(brim_profiler *p) {
  brim_gpu_trace *gpu = NULL;
  brim_trace mapped;
  brim_time start = brim_clock_now();
  BRIM_TRY(brim_gpu_trace_open(&gpu));
  brim_gpu_trace_keep_details(gpu, true);
  // The first start prepares every kernel that is loaded.
  brim_gpu_trace_sum none;
  brim_status status = brim_device_sync(p->device);
  if (!status) status = brim_gpu_trace_start(gpu);
  if (!status) status = brim_gpu_trace_stop(gpu, &none);
  p->out->attach_s = seconds_since(start);
  brim_trace_init(&mapped);
  if (!status) status = map_step(p, gpu, &mapped);
  if (!status) status = trace_window(p, gpu, &mapped);
  brim_trace_deinit(&mapped);
  brim_status synced = brim_device_sync(p->device);
  brim_gpu_trace_close(gpu);
  if (!status) status = synced;
  if (!status) snprintf(p->out->source, sizeof p->out->source, "cupti");
  return status;
}

//---------------------------------- by events ----------------------------------

static brim_status by_events(brim_profiler *p) {
  brim_profile *out = p->out;
  brim_notes notes;
  brim_trace first;
  double event_ns = 0;
  brim_step_info info;
  BRIM_TRY(brim_profiler_stage(p, BRIM_N_("timing ops by events")));
  brim_trace_init(&first);
  brim_notes_begin(&notes, p->device, &first, BRIM_NOTES_EVENTS, false);
  brim_status status = brim_notes_step(&notes, p->work, true, &info);
  brim_status ended = brim_notes_end(&notes);
  brim_trace_deinit(&first);
  BRIM_TRY(status);
  BRIM_TRY(ended);
  BRIM_TRY(brim_notes_event_ns(p->device, &event_ns));
  int steps = brim_profiler_steps(p, 0.5);
  if (steps > EVENT_STEPS) steps = EVENT_STEPS;
  size_t ops = (size_t)steps * notes.op_count;
  BRIM_TRY(brim_device_sync(p->device));
  brim_notes_begin(&notes, p->device, p->trace, BRIM_NOTES_EVENTS, false);
  brim_time start = brim_clock_now();
  status = brim_notes_reserve(&notes, ops);
  if (!status) status = noted_steps(p, &notes, steps, false);
  ended = brim_notes_end(&notes);
  BRIM_TRY(status);
  BRIM_TRY(ended);
  out->window_s = seconds_since(start);
  out->traced_ms = (double)p->trace->wall_ns / 1e6 / steps;
  out->traced_steps = steps;
  snprintf(out->source, sizeof out->source, "events");
  BRIM_TRY(brim_profile_take_memory(&notes, out));
  return brim_profile_event_rows(p->trace, event_ns, out);
}

//---------------------------------- either ----------------------------------

// What a source that failed left behind.
static void start_over(brim_profiler *p) {
  brim_profile *out = p->out;
  for (int i = 0; i < BRIM_PROFILE_LIST_COUNT; i++) out->lists[i].count = 0;
  brim_free(out->memory.points);
  brim_free(out->memory.blocks);
  out->memory =
      (brim_profile_memory){.arena_bytes = NAN, .fixed_bytes = NAN, .peak_bytes = NAN, .peak = -1};
  out->has_gaps = false;
  out->gap_count = 0;
  char device[sizeof p->trace->device];
  memcpy(device, p->trace->device, sizeof device);
  brim_trace_deinit(p->trace);
  memcpy(p->trace->device, device, sizeof device);
}

brim_status brim_profiler_trace_gpu(brim_profiler *p) {
  const char *source = p->options->source ? p->options->source : "";
  if (strcmp(source, "events") == 0) return by_events(p);
  if (source[0] && strcmp(source, "cupti") != 0) {
    return brim_fail(BRIM_EUNSUPPORTED, "the source %s is none of: cupti, events", source);
  }
  brim_status status = by_cupti(p);
  // a trace that another tool has, that is not allowed or too long is no reason to know nothing
  bool other = status == BRIM_EUNSUPPORTED || status == BRIM_ELIMIT || status == BRIM_EOOM;
  if (!other || source[0]) return status;
  char why[sizeof p->out->note];
  snprintf(why, sizeof why, "%s", brim_status_detail());
  brim_status_clear();
  start_over(p);
  status = by_events(p);
  memcpy(p->out->note, why, sizeof why);
  return status;
}
