// The view of a machine (record_top.h): tables of members, lists, derived values, JSON.

#include "record/record_top.h"

#include <math.h>
#include <string.h>

#include "record/record_fields.h"
#include "record/record_int.h"

#define BRIM_TOP_WHAT BRIM_N_("view of a machine")

extern const brim_fields brim_top_host_fields, brim_top_gpu_fields, brim_top_process_fields,
    brim_top_event_fields, brim_top_view_fields;

//------------------------------------------- members -------------------------------------------
// Tables of the members of a machine's view, used to initialise, write and read it.

#define CHARS(type, member) BRIM_FIELD_(type, #member, CHARS, member)
#define NUMBER(type, member) BRIM_FIELD_(type, #member, NUMBER, member)
#define FLAG(type, member) BRIM_FIELD_(type, #member, FLAG, member)
#define INT(type, member) BRIM_FIELD_INT_(type, #member, member, -1)
#define TABLE(rows_) \
  { .what = BRIM_TOP_WHAT, .rows = rows_, .count = sizeof rows_ / sizeof rows_[0] }

#define HOST brim_top_host
static const brim_field host_rows[] = {
    CHARS(HOST, name),
    CHARS(HOST, cpu),
    CHARS(HOST, os),
    CHARS(HOST, kernel),
    CHARS(HOST, container),
    INT(HOST, cores),
    INT(HOST, cores_online),
    NUMBER(HOST, cpu_percent),
    NUMBER(HOST, iowait_percent),
    NUMBER(HOST, cpu_mhz),
    NUMBER(HOST, cpu_max_mhz),
    NUMBER(HOST, load_1),
    NUMBER(HOST, load_5),
    NUMBER(HOST, load_15),
    NUMBER(HOST, quota_cores),
    NUMBER(HOST, quota_throttled_percent),
    NUMBER(HOST, memory_total),
    NUMBER(HOST, memory_used),
    NUMBER(HOST, memory_available),
    NUMBER(HOST, memory_limit),
    NUMBER(HOST, swap_total),
    NUMBER(HOST, swap_used),
    NUMBER(HOST, shm_total),
    NUMBER(HOST, shm_used),
    NUMBER(HOST, disk_read),
    NUMBER(HOST, disk_write),
    NUMBER(HOST, network_rx),
    NUMBER(HOST, network_tx),
    NUMBER(HOST, uptime_s),
    INT(HOST, tasks),
    INT(HOST, tasks_running),
};

#define GPU brim_top_gpu
static const brim_field gpu_rows[] = {
    INT(GPU, index),
    CHARS(GPU, uuid),
    CHARS(GPU, name),
    CHARS(GPU, bus),
    FLAG(GPU, slice),
    FLAG(GPU, lost),
    NUMBER(GPU, gpu_percent),
    NUMBER(GPU, sm_percent),
    NUMBER(GPU, occupancy_percent),
    NUMBER(GPU, tensor_percent),
    NUMBER(GPU, dram_percent),
    NUMBER(GPU, memory_busy_percent),
    NUMBER(GPU, encoder_percent),
    NUMBER(GPU, decoder_percent),
    NUMBER(GPU, jpeg_percent),
    NUMBER(GPU, ofa_percent),
    NUMBER(GPU, ofu_percent),
    NUMBER(GPU, ceiling_percent),
    NUMBER(GPU, memory_total),
    NUMBER(GPU, memory_used),
    NUMBER(GPU, memory_reserved),
    NUMBER(GPU, bar1_total),
    NUMBER(GPU, bar1_used),
    NUMBER(GPU, confidential_used),
    NUMBER(GPU, power_w),
    NUMBER(GPU, power_limit_w),
    NUMBER(GPU, power_limit_default_w),
    NUMBER(GPU, power_limit_max_w),
    NUMBER(GPU, energy_j),
    NUMBER(GPU, energy_total_j),
    NUMBER(GPU, clock_mhz),
    NUMBER(GPU, clock_max_mhz),
    NUMBER(GPU, memory_clock_mhz),
    NUMBER(GPU, memory_clock_max_mhz),
    NUMBER(GPU, video_clock_mhz),
    NUMBER(GPU, temperature_c),
    NUMBER(GPU, memory_temperature_c),
    NUMBER(GPU, slowdown_c),
    NUMBER(GPU, shutdown_c),
    NUMBER(GPU, fan_percent),
    INT(GPU, pstate),
    NUMBER(GPU, power_violation_percent),
    NUMBER(GPU, thermal_violation_percent),
    INT(GPU, pcie_generation),
    INT(GPU, pcie_generation_max),
    INT(GPU, pcie_width),
    INT(GPU, pcie_width_max),
    NUMBER(GPU, pcie_rx),
    NUMBER(GPU, pcie_tx),
    NUMBER(GPU, nvlink_rx),
    NUMBER(GPU, nvlink_tx),
    INT(GPU, pcie_replays),
    FLAG(GPU, ecc),
    INT(GPU, ecc_corrected),
    INT(GPU, ecc_uncorrected),
    INT(GPU, ecc_corrected_total),
    INT(GPU, ecc_uncorrected_total),
    INT(GPU, remapped_corrected),
    INT(GPU, remapped_uncorrected),
    FLAG(GPU, remap_pending),
    FLAG(GPU, remap_failed),
    INT(GPU, retired_pages),
    INT(GPU, xid),
    FLAG(GPU, xid_watched),
    FLAG(GPU, mig),
    FLAG(GPU, persistence),
    CHARS(GPU, compute_mode),
    INT(GPU, numa),
    NUMBER(GPU, hang_s),
    FLAG(GPU, hang),
};

#define PROCESS brim_top_process
static const brim_field process_rows[] = {
    INT(PROCESS, pid),
    INT(PROCESS, gpu),
    CHARS(PROCESS, uuid),
    CHARS(PROCESS, type),
    CHARS(PROCESS, user),
    CHARS(PROCESS, container),
    CHARS(PROCESS, command),
    FLAG(PROCESS, elsewhere),
    NUMBER(PROCESS, memory),
    NUMBER(PROCESS, sm_percent),
    NUMBER(PROCESS, memory_busy_percent),
    NUMBER(PROCESS, encoder_percent),
    NUMBER(PROCESS, decoder_percent),
    NUMBER(PROCESS, jpeg_percent),
    NUMBER(PROCESS, ofa_percent),
    NUMBER(PROCESS, cpu_percent),
    NUMBER(PROCESS, rss),
    NUMBER(PROCESS, elapsed_s),
};

#define EVENT brim_top_event
static const brim_field event_rows[] = {
    NUMBER(EVENT, when_s), INT(EVENT, gpu),    CHARS(EVENT, kind),
    INT(EVENT, code),      CHARS(EVENT, text),
};

#define VIEW brim_top_view
static const brim_field view_rows[] = {
    NUMBER(VIEW, when_s),
    NUMBER(VIEW, interval_s),
    CHARS(VIEW, driver),
};

const brim_fields brim_top_host_fields = TABLE(host_rows);
const brim_fields brim_top_gpu_fields = TABLE(gpu_rows);
const brim_fields brim_top_process_fields = TABLE(process_rows);
const brim_fields brim_top_event_fields = TABLE(event_rows);
const brim_fields brim_top_view_fields = TABLE(view_rows);

//---------------------------------- start values ----------------------------------

void brim_top_host_init(brim_top_host *host) {
  memset(host, 0, sizeof *host);
  brim_fields_init(&brim_top_host_fields, host);
}

void brim_top_gpu_init(brim_top_gpu *gpu) {
  memset(gpu, 0, sizeof *gpu);
  brim_fields_init(&brim_top_gpu_fields, gpu);
}

static void brim_top_process_init(brim_top_process *process) {
  memset(process, 0, sizeof *process);
  brim_fields_init(&brim_top_process_fields, process);
}

static void brim_top_event_init(brim_top_event *event) {
  brim_fields_init(&brim_top_event_fields, event);
}

//---------------------------------- names ----------------------------------

// The name in JSON.
static const char *brim_top_throttle_name(brim_top_throttle reason) {
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

// The name in JSON.
static const char *brim_top_target_name(brim_top_target target) {
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

// Makes room for `count` items of `size` bytes and updates *cap. Returns the block, which may have moved;
// NULL = out of memory.
static void *grow(void *items, size_t *cap, size_t count, size_t size) {
  if (items && count <= *cap) return items;
  size_t new_cap = *cap ? *cap * 2 : 8;
  if (new_cap < count) new_cap = count;
  void *grown = items ? brim_realloc(items, new_cap * size) : brim_calloc(new_cap, size);
  if (grown) *cap = new_cap;
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

//---------------------------------- derived values ----------------------------------

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

// True if a GPU looks hung. A collective that waits for a peer spins: a kernel always runs, but the card draws
// little more than idle power. A fifth of the power limit separates that from light work on every card in
// record_gpu.c. If GPM (NVIDIA's GPU performance counters, Hopper and later) reports work of tensor pipes or
// memory, the GPU is not hung.
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

//--------------------------------------------- JSON ---------------------------------------------
// Converts a view to JSON and back. record_top.h specifies the format.

#define TOP BRIM_TOP_WHAT

//---------------------------------- to JSON ----------------------------------

static json_t *flag_value(brim_top_flag flag) {
  return flag == BRIM_TOP_UNKNOWN ? json_null() : json_boolean(flag == BRIM_TOP_YES);
}

static brim_status put_throttle(const brim_top_gpu *gpu, json_t *out) {
  if (!gpu->throttle_known) return brim_json_put(out, "throttle", json_null());
  BRIM_TRY(brim_json_put(out, "throttle", json_array()));
  json_t *list = json_object_get(out, "throttle");
  for (int i = 0; i < BRIM_TOP_THROTTLE_COUNT; i++) {
    if (!(gpu->throttle >> i & 1)) continue;
    BRIM_TRY(brim_json_push(list, json_string(brim_top_throttle_name((brim_top_throttle)i))));
  }
  return BRIM_OK;
}

static brim_status put_gpus(const brim_top_view *view, json_t *root) {
  BRIM_TRY(brim_fields_put_list(&brim_top_gpu_fields, view->gpus, sizeof *view->gpus,
                                view->gpu_count, "gpus", root));
  json_t *list = json_object_get(root, "gpus");
  for (size_t i = 0; i < view->gpu_count; i++) {
    json_t *item = json_array_get(list, i);
    BRIM_TRY(put_throttle(&view->gpus[i], item));
    BRIM_TRY(brim_json_put(item, "targets", json_object()));
    json_t *targets = json_object_get(item, "targets");
    for (int t = 0; t < BRIM_TOP_TARGET_COUNT; t++) {
      BRIM_TRY(brim_json_put(targets, brim_top_target_name((brim_top_target)t),
                             flag_value(view->gpus[i].targets[t])));
    }
  }
  return BRIM_OK;
}

// Rounds to a tenth of a percent, because each line of a recording has a number per core.
static brim_status put_cores(const brim_top_host *host, json_t *out) {
  BRIM_TRY(brim_json_put(out, "core_percent", json_array()));
  json_t *list = json_object_get(out, "core_percent");
  for (size_t i = 0; i < host->core_count; i++) {
    BRIM_TRY(brim_json_push(list, brim_json_number(round(host->core_percent[i] * 10) / 10)));
  }
  return BRIM_OK;
}

static brim_status put_jobs(const brim_top_view *view, json_t *root) {
  BRIM_TRY(brim_json_put(root, "jobs", json_array()));
  json_t *list = json_object_get(root, "jobs");
  for (size_t i = 0; i < view->job_count; i++) {
    json_t *item = NULL;
    BRIM_TRY(brim_job_to_json(&view->jobs[i], &item));
    BRIM_TRY(brim_json_push(list, item));
  }
  return BRIM_OK;
}

static brim_status fill(const brim_top_view *view, json_t *root) {
  BRIM_TRY(brim_json_put(root, "schema", json_string(BRIM_TOP_SCHEMA)));
  BRIM_TRY(brim_fields_put(&brim_top_view_fields, view, false, root));
  BRIM_TRY(brim_json_put(root, "notes", json_array()));
  for (size_t i = 0; i < view->note_count; i++) {
    BRIM_TRY(brim_json_push(json_object_get(root, "notes"), brim_record_text(view->notes[i])));
  }
  BRIM_TRY(brim_json_put(root, "host", json_object()));
  BRIM_TRY(
      brim_fields_put(&brim_top_host_fields, &view->host, false, json_object_get(root, "host")));
  BRIM_TRY(put_cores(&view->host, json_object_get(root, "host")));
  BRIM_TRY(put_gpus(view, root));
  BRIM_TRY(brim_fields_put_list(&brim_top_process_fields, view->processes, sizeof *view->processes,
                                view->process_count, "processes", root));
  BRIM_TRY(brim_fields_put_list(&brim_top_event_fields, view->events, sizeof *view->events,
                                view->event_count, "events", root));
  return put_jobs(view, root);
}

brim_status brim_top_view_to_json(const brim_top_view *view, json_t **out) {
  brim_json_setup();
  json_t *root = json_object();
  return brim_fields_hand_over(root ? fill(view, root) : BRIM_OK, root, out);
}

//---------------------------------- from JSON ----------------------------------

// A throttle name that this brim does not know counts as BRIM_TOP_THROTTLE_OTHER.
static brim_status get_throttle(const json_t *from, brim_top_gpu *gpu) {
  const json_t *list;
  BRIM_TRY(brim_fields_list(TOP, from, "throttle", &list));
  gpu->throttle_known = list != NULL;
  for (size_t i = 0; i < json_array_size(list); i++) {
    const char *name = json_string_value(json_array_get(list, i));
    if (!name) return brim_fields_wrong(TOP, "throttle");
    int bit = 0;
    while (bit < BRIM_TOP_THROTTLE_OTHER &&
           strcmp(name, brim_top_throttle_name((brim_top_throttle)bit)) != 0) {
      bit++;
    }
    gpu->throttle |= 1u << bit;
  }
  return BRIM_OK;
}

static brim_status get_targets(const json_t *from, brim_top_gpu *gpu) {
  const json_t *targets = json_object_get(from, "targets");
  if (!targets || json_is_null(targets)) return BRIM_OK;
  if (!json_is_object(targets)) return brim_fields_wrong(TOP, "targets");
  for (int t = 0; t < BRIM_TOP_TARGET_COUNT; t++) {
    const json_t *value = json_object_get(targets, brim_top_target_name((brim_top_target)t));
    if (!value || json_is_null(value)) continue;
    if (!json_is_boolean(value)) return brim_fields_wrong(TOP, "targets");
    gpu->targets[t] = json_is_true(value) ? BRIM_TOP_YES : BRIM_TOP_NO;
  }
  return BRIM_OK;
}

static brim_status get_cores(const json_t *from, brim_top_host *host) {
  const json_t *list;
  BRIM_TRY(brim_fields_list(TOP, from, "core_percent", &list));
  for (size_t i = 0; i < json_array_size(list) && i < BRIM_TOP_CORES; i++) {
    const json_t *value = json_array_get(list, i);
    if (!json_is_number(value) && !json_is_null(value))
      return brim_fields_wrong(TOP, "core_percent");
    host->core_percent[i] =
        json_is_null(value) ? NAN : brim_fields_bounded("core_percent", json_number_value(value));
    host->core_count = i + 1;
  }
  return BRIM_OK;
}

static brim_status no_memory(void) { return brim_fail(BRIM_ENOMEM, "out of memory"); }

static brim_status get_gpus(const json_t *root, brim_top_view *out) {
  const json_t *list;
  BRIM_TRY(brim_fields_list(TOP, root, "gpus", &list));
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *item = json_array_get(list, i);
    brim_top_gpu *gpu = brim_top_view_add_gpu(out);
    if (!gpu) return no_memory();
    BRIM_TRY(brim_fields_get(&brim_top_gpu_fields, item, gpu));
    brim_fields_bound(&brim_top_gpu_fields, gpu);
    BRIM_TRY(get_throttle(item, gpu));
    BRIM_TRY(get_targets(item, gpu));
  }
  return BRIM_OK;
}

static brim_status get_processes(const json_t *root, brim_top_view *out) {
  const json_t *list;
  BRIM_TRY(brim_fields_list(TOP, root, "processes", &list));
  for (size_t i = 0; i < json_array_size(list); i++) {
    brim_top_process *process = brim_top_view_add_process(out);
    if (!process) return no_memory();
    BRIM_TRY(brim_fields_get(&brim_top_process_fields, json_array_get(list, i), process));
    brim_fields_bound(&brim_top_process_fields, process);
  }
  BRIM_TRY(brim_fields_list(TOP, root, "events", &list));
  for (size_t i = 0; i < json_array_size(list); i++) {
    brim_top_event *event = brim_top_view_add_event(out);
    if (!event) return no_memory();
    BRIM_TRY(brim_fields_get(&brim_top_event_fields, json_array_get(list, i), event));
    brim_fields_bound(&brim_top_event_fields, event);
  }
  return BRIM_OK;
}

static brim_status get_rest(const json_t *root, brim_top_view *out) {
  const json_t *list;
  BRIM_TRY(brim_fields_list(TOP, root, "jobs", &list));
  for (size_t i = 0; i < json_array_size(list); i++) {
    brim_job *job = brim_top_view_add_job(out);
    if (!job) return no_memory();
    BRIM_TRY(brim_job_from_json(json_array_get(list, i), job));
  }
  BRIM_TRY(brim_fields_list(TOP, root, "notes", &list));
  for (size_t i = 0; i < json_array_size(list); i++) {
    const char *text = json_string_value(json_array_get(list, i));
    if (!text) return brim_fields_wrong(TOP, "notes");
    BRIM_TRY(brim_top_view_note(out, text));
  }
  return BRIM_OK;
}

brim_status brim_top_view_from_json(const json_t *json, brim_top_view *out) {
  brim_top_view_clear(out);
  if (!json_is_object(json)) return brim_fields_wrong(TOP, "object");
  const char *schema = json_string_value(json_object_get(json, "schema"));
  if (!schema || strcmp(schema, BRIM_TOP_SCHEMA) != 0) {
    return brim_fail(BRIM_EPARSE, "not a record of brim top: schema is '%s', expected '%s'",
                     schema ? schema : "missing", BRIM_TOP_SCHEMA);
  }
  BRIM_TRY(brim_fields_get(&brim_top_view_fields, json, out));
  brim_fields_bound(&brim_top_view_fields, out);
  const json_t *host = json_object_get(json, "host");
  if (host && !json_is_null(host)) {
    BRIM_TRY(brim_fields_get(&brim_top_host_fields, host, &out->host));
    brim_fields_bound(&brim_top_host_fields, &out->host);
    BRIM_TRY(get_cores(host, &out->host));
  }
  BRIM_TRY(get_gpus(json, out));
  BRIM_TRY(get_processes(json, out));
  return get_rest(json, out);
}
