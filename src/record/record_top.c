// A view of a machine: its lists, and what follows from the readings. JSON is in record_top_json.c.
#include "record/record_top.h"

#include <math.h>
#include <string.h>

#include "record/record_int.h"
#include "record/record_top_int.h"

//---------------------------------- names ----------------------------------

const char *brim_top_throttle_name(brim_top_throttle reason) {
  static const char *const names[] = {
#define X(id, name) name,
      BRIM_TOP_THROTTLE_MAP(X)
#undef X
  };
  return names[reason];
}

const char *brim_top_throttle_words(brim_top_throttle reason) {
  static const char *const words_of[] = {
      BRIM_N_("idle"),
      BRIM_N_("application clocks"),
      BRIM_N_("power cap"),
      BRIM_N_("hardware slowdown"),
      BRIM_N_("sync boost"),
      BRIM_N_("heat"),
      BRIM_N_("heat (hardware)"),
      BRIM_N_("power brake"),
      BRIM_N_("display clocks"),
      BRIM_N_("another reason"),
  };
  return words_of[reason];
}

const char *brim_top_target_name(brim_top_target target) {
  static const char *const names[] = {"utilisation", "memory", "power"};
  return names[target];
}

//---------------------------------- lists ----------------------------------

void brim_top_view_init(brim_top_view *view) {
  memset(view, 0, sizeof *view);
  brim_top_view_clear(view);
}

void brim_top_view_clear(brim_top_view *view) {
  view->when_s = view->interval_s = NAN;
  view->driver[0] = '\0';
  brim_top_host_init(&view->host);
  view->gpu_count = view->process_count = view->event_count = 0;
  view->job_count = view->note_count = 0;
}

void brim_top_view_deinit(brim_top_view *view) {
  brim_free(view->gpus);
  brim_free(view->processes);
  brim_free(view->events);
  brim_free(view->jobs);
  brim_free(view->notes);
  brim_top_view_init(view);
}

// `items` with room for `count` of `size` bytes; NULL when there is no memory.
static void *grow(void *items, size_t *cap, size_t count, size_t size) {
  if (items && count <= *cap) return items;
  size_t more = *cap ? *cap * 2 : 8;
  if (more < count) more = count;
  void *grown = items ? brim_realloc(items, more * size) : brim_calloc(more, size);
  if (grown) *cap = more;
  return grown;
}

#define LIST(list, cap)                                                    \
  static bool reserve_##list(brim_top_view *view, size_t count) {          \
    void *grown = grow(view->list, &view->cap, count, sizeof *view->list); \
    if (grown) view->list = grown;                                         \
    return grown != NULL;                                                  \
  }
LIST(gpus, gpu_cap)
LIST(processes, process_cap)
LIST(events, event_cap)
LIST(jobs, job_cap)
LIST(notes, note_cap)

brim_top_gpu *brim_top_view_add_gpu(brim_top_view *view) {
  if (!reserve_gpus(view, view->gpu_count + 1)) return NULL;
  brim_top_gpu_init(&view->gpus[view->gpu_count]);
  return &view->gpus[view->gpu_count++];
}

brim_top_process *brim_top_view_add_process(brim_top_view *view) {
  if (!reserve_processes(view, view->process_count + 1)) return NULL;
  brim_top_process_init(&view->processes[view->process_count]);
  return &view->processes[view->process_count++];
}

brim_top_event *brim_top_view_add_event(brim_top_view *view) {
  if (!reserve_events(view, view->event_count + 1)) return NULL;
  brim_top_event_init(&view->events[view->event_count]);
  return &view->events[view->event_count++];
}

brim_job *brim_top_view_add_job(brim_top_view *view) {
  if (!reserve_jobs(view, view->job_count + 1)) return NULL;
  brim_job_init(&view->jobs[view->job_count]);
  return &view->jobs[view->job_count++];
}

brim_status brim_top_view_note(brim_top_view *view, const char *text) {
  if (!reserve_notes(view, view->note_count + 1)) {
    return brim_fail(BRIM_ENOMEM, "out of memory");
  }
  brim_record_copy(view->notes[view->note_count++], sizeof *view->notes, text);
  return BRIM_OK;
}

static void copy_items(void *to, const void *from, size_t count, size_t size) {
  if (count) memcpy(to, from, count * size);
}

brim_status brim_top_view_copy(const brim_top_view *view, brim_top_view *out) {
  if (!reserve_gpus(out, view->gpu_count) || !reserve_processes(out, view->process_count) ||
      !reserve_events(out, view->event_count) || !reserve_jobs(out, view->job_count) ||
      !reserve_notes(out, view->note_count)) {
    return brim_fail(BRIM_ENOMEM, "out of memory");
  }
  out->when_s = view->when_s;
  out->interval_s = view->interval_s;
  memcpy(out->driver, view->driver, sizeof out->driver);
  out->host = view->host;
  copy_items(out->gpus, view->gpus, view->gpu_count, sizeof *view->gpus);
  copy_items(out->processes, view->processes, view->process_count, sizeof *view->processes);
  copy_items(out->events, view->events, view->event_count, sizeof *view->events);
  copy_items(out->jobs, view->jobs, view->job_count, sizeof *view->jobs);
  copy_items(out->notes, view->notes, view->note_count, sizeof *view->notes);
  out->gpu_count = view->gpu_count;
  out->process_count = view->process_count;
  out->event_count = view->event_count;
  out->job_count = view->job_count;
  out->note_count = view->note_count;
  return BRIM_OK;
}

const brim_top_gpu *brim_top_view_gpu(const brim_top_view *view, int64_t index, const char *uuid) {
  for (size_t i = 0; i < view->gpu_count; i++) {
    const brim_top_gpu *gpu = &view->gpus[i];
    bool same = uuid && *uuid && *gpu->uuid ? strcmp(gpu->uuid, uuid) == 0 : gpu->index == index;
    if (same) return gpu;
  }
  return NULL;
}

//---------------------------------- what follows from the readings ----------------------------------

static double percent_of(double part, double whole) {
  return whole > 0 && isfinite(part) ? 100 * part / whole : NAN;
}

double brim_top_memory_percent(const brim_top_gpu *gpu) {
  return percent_of(gpu->memory_used, gpu->memory_total);
}

double brim_top_power_percent(const brim_top_gpu *gpu) {
  return percent_of(gpu->power_w, gpu->power_limit_w);
}

static brim_top_flag flag_of(double value, bool met) {
  return isfinite(value) ? (met ? BRIM_TOP_YES : BRIM_TOP_NO) : BRIM_TOP_UNKNOWN;
}

// A collective that waits for a peer spins: a kernel always runs, and the card draws little more than
// idle. A fifth of the limit separates that from light work on every card in record_gpu.c; where GPM
// tells that tensor pipes or memory work, it does not hang.
static bool looks_hung(const brim_top_gpu *gpu) {
  bool works = gpu->tensor_percent >= 1 || gpu->dram_percent >= 1;
  return gpu->gpu_percent >= 99 && brim_top_power_percent(gpu) < 20 && !works;
}

static void derive_hang(const brim_top_view *view, brim_top_gpu *gpu,
                        const brim_top_view *previous) {
  gpu->hang = BRIM_TOP_UNKNOWN;
  gpu->hang_s = NAN;
  if (!isfinite(gpu->gpu_percent) || !isfinite(brim_top_power_percent(gpu))) return;
  gpu->hang_s = 0;
  const brim_top_gpu *before = previous ? brim_top_view_gpu(previous, gpu->index, gpu->uuid) : NULL;
  if (looks_hung(gpu) && before && looks_hung(before)) {
    double passed = view->when_s - previous->when_s;
    gpu->hang_s = (isfinite(before->hang_s) ? before->hang_s : 0) + (passed > 0 ? passed : 0);
  }
  gpu->hang = gpu->hang_s >= BRIM_TOP_HANG_S ? BRIM_TOP_YES : BRIM_TOP_NO;
}

void brim_top_view_derive(brim_top_view *view, const brim_top_view *previous) {
  for (size_t i = 0; i < view->gpu_count; i++) {
    brim_top_gpu *gpu = &view->gpus[i];
    gpu->ofu_percent = gpu->tensor_percent * percent_of(gpu->clock_mhz, gpu->clock_max_mhz) / 100;
    double memory = brim_top_memory_percent(gpu), power = brim_top_power_percent(gpu);
    gpu->targets[BRIM_TOP_TARGET_UTILISATION] = flag_of(gpu->gpu_percent, gpu->gpu_percent > 90);
    gpu->targets[BRIM_TOP_TARGET_MEMORY] = flag_of(memory, memory > 80);
    gpu->targets[BRIM_TOP_TARGET_POWER] = flag_of(power, power >= 75);
    derive_hang(view, gpu, previous);
  }
}
