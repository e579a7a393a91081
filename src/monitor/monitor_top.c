// The live view of this machine: opens NVML, keeps what readings are compared with, collects events. Its
// parts are in monitor_top_host.c, monitor_top_gpu.c and monitor_top_process.c.
#include "monitor/monitor_top.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "monitor/monitor_top_int.h"

// What has counters.
enum { FIRST_WANT = BRIM_TOP_WANT_PROCESSES | BRIM_TOP_WANT_ACTIVITY | BRIM_TOP_WANT_JOBS };
enum { MOST_GPUS = 256, MOST_SLICES = 64, MOST_EVENTS = 64, PCIE_TURNS = 2 };

typedef struct machine {
  int64_t (*clock)(void);  // NULL = CLOCK_MONOTONIC
  brim_gpu_monitor *monitor;
  char driver[64];
  brim_top_host_state host;
  brim_top_gpu_state *gpus;
  size_t gpu_count, gpu_room;
  size_t pcie_next;  // whose turn it is to be measured
  brim_top_processes processes;
  // Xid events; NULL = cannot be watched.
  void *event_set;
  int64_t xid[MOST_GPUS];  // by place in `gpus`
  brim_top_flag watched[MOST_GPUS];
  brim_top_event events[MOST_EVENTS];  // the oldest first
  size_t event_count;
  char note[160];  // why there are no GPUs
  brim_top_view last;
  int64_t last_ns;
} machine;

static int64_t now_ns(const machine *m) { return m->clock ? m->clock() : brim_clock_now().ns; }

//---------------------------------- events ----------------------------------

BRIM_PRINTF(5, 6)
static void add_event(machine *m, int64_t gpu, const char *kind, int64_t code, const char *fmt,
                      ...) {
  if (m->event_count == MOST_EVENTS) {
    memmove(m->events, m->events + 1, (MOST_EVENTS - 1) * sizeof *m->events);
    m->event_count--;
  }
  brim_top_event *e = &m->events[m->event_count++];
  memset(e, 0, sizeof *e);
  e->when_s = m->clock ? (double)m->clock() * 1e-9 : brim_clock_wall_s();
  e->gpu = gpu;
  e->code = code;
  snprintf(e->kind, sizeof e->kind, "%s", kind);
  va_list args;
  va_start(args, fmt);
  vsnprintf(e->text, sizeof e->text, fmt, args);
  va_end(args);
}

// What NVIDIA's catalogue calls those that matter to a training.
static const char *xid_text(unsigned long long xid) {
  static const struct {
    unsigned xid;
    const char *text;
  } rows[] = {{13, "graphics engine exception"},
              {31, "memory page fault"},
              {43, "GPU stopped processing"},
              {45, "preemptive cleanup of a program"},
              {48, "double-bit ECC error"},
              {62, "internal micro-controller halt"},
              {63, "row remapping recorded"},
              {64, "row remapping failed"},
              {74, "NVLink error"},
              {79, "GPU has fallen off the bus"},
              {92, "high rate of single-bit ECC errors"},
              {94, "contained ECC error"},
              {95, "uncontained ECC error"},
              {119, "timeout of the GPU's system processor"},
              {120, "error of the GPU's system processor"},
              {140, "unrecovered ECC error"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (rows[i].xid == xid) return rows[i].text;
  }
  return "see NVIDIA's list of Xid errors";
}

static void open_events(machine *m) {
  const brim_nvml_api *a = &m->monitor->api;
  bool can = a->event_create && a->event_free && a->event_register && a->event_wait;
  if (can && a->event_create(&m->event_set) != BRIM_NVML_SUCCESS) m->event_set = NULL;
  for (size_t i = 0; i < m->gpu_count; i++) {
    m->xid[i] = -1;
    if (m->gpus[i].slow.slice == BRIM_TOP_YES) continue;
    int code = BRIM_NVML_NOT_SUPPORTED;
    if (m->event_set) {
      code = a->event_register(m->gpus[i].device, BRIM_NVML_EVENT_XID, m->event_set);
    }
    m->watched[i] = code == BRIM_NVML_SUCCESS ? BRIM_TOP_YES : BRIM_TOP_NO;
  }
}

// Never waits: takes what has come since the last reading.
static void read_events(machine *m) {
  if (!m->event_set) return;
  for (int taken = 0; taken < MOST_EVENTS; taken++) {
    brim_nvml_event event = {.device = NULL};
    if (m->monitor->api.event_wait(m->event_set, &event, 0) != BRIM_NVML_SUCCESS) return;
    if (!(event.type & BRIM_NVML_EVENT_XID)) continue;
    int64_t index = -1;
    for (size_t i = 0; i < m->gpu_count; i++) {
      if (m->gpus[i].device != event.device) continue;
      m->xid[i] = (int64_t)event.data;
      index = m->gpus[i].slow.index;
    }
    add_event(m, index, "xid", (int64_t)event.data, "Xid %llu: %s", event.data,
              xid_text(event.data));
  }
}

static bool grew(int64_t before, int64_t now) { return before >= 0 && now > before; }
static bool rose(brim_top_flag before, brim_top_flag now) {
  return before == BRIM_TOP_NO && now == BRIM_TOP_YES;
}

// What a counter or a flag tells that the driver has no event for.
static void compare(machine *m, const brim_top_gpu *a, const brim_top_gpu *b) {
  if (rose(a->lost, b->lost)) {
    add_event(m, b->index, "lost", -1, "the driver no longer answers for this GPU");
  }
  if (grew(a->ecc_corrected, b->ecc_corrected)) {
    add_event(m, b->index, "ecc_corrected", -1, "%lld corrected ECC errors",
              (long long)(b->ecc_corrected - a->ecc_corrected));
  }
  if (grew(a->ecc_uncorrected, b->ecc_uncorrected)) {
    add_event(m, b->index, "ecc_uncorrected", -1, "%lld uncorrected ECC errors",
              (long long)(b->ecc_uncorrected - a->ecc_uncorrected));
  }
  if (rose(a->remap_pending, b->remap_pending)) {
    add_event(m, b->index, "row_remap", -1, "row remap pending: reset the GPU");
  }
  if (rose(a->remap_failed, b->remap_failed)) {
    add_event(m, b->index, "row_remap", -1, "row remap failed: replace the GPU");
  }
  if (grew(a->retired_pages, b->retired_pages)) {
    add_event(m, b->index, "retired_pages", -1, "%lld memory pages retired",
              (long long)(b->retired_pages - a->retired_pages));
  }
}

//---------------------------------- opening ----------------------------------

static brim_top_gpu_state *add_gpu(machine *m) {
  if (m->gpu_count == m->gpu_room) {
    size_t room = m->gpu_room ? m->gpu_room * 2 : 8;
    void *gpus = brim_realloc(m->gpus, room * sizeof *m->gpus);
    if (!gpus) return NULL;
    m->gpus = (brim_top_gpu_state *)gpus;
    m->gpu_room = room;
  }
  return &m->gpus[m->gpu_count++];
}

static brim_status no_memory(void) {
  return brim_fail(BRIM_ENOMEM, "out of memory for the list of GPUs");
}

static brim_status open_slices(machine *m, size_t parent) {
  const brim_nvml_api *a = &m->monitor->api;
  unsigned now = 0, pending = 0, most = 0;
  void *device = m->gpus[parent].device;
  if (!a->mig_mode || !a->mig_count || !a->mig_by_index) return BRIM_OK;
  if (a->mig_mode(device, &now, &pending) != BRIM_NVML_SUCCESS || now != 1) return BRIM_OK;
  if (a->mig_count(device, &most) != BRIM_NVML_SUCCESS) return BRIM_OK;
  for (unsigned i = 0; i < most && i < MOST_SLICES && m->gpu_count < MOST_GPUS; i++) {
    void *slice = NULL;
    if (a->mig_by_index(device, i, &slice) != BRIM_NVML_SUCCESS) continue;
    brim_top_gpu_state *s = add_gpu(m);
    if (!s) return no_memory();
    m->gpus[parent].has_slices = true;
    brim_top_gpu_open(s, m->monitor, slice, &m->gpus[parent], m->gpus[parent].slow.index);
  }
  return BRIM_OK;
}

static brim_status open_gpus(machine *m) {
  const brim_nvml_api *a = &m->monitor->api;
  unsigned count = 0;
  if (!a->device_count || !a->by_index || a->device_count(&count) != BRIM_NVML_SUCCESS) count = 0;
  for (unsigned i = 0; i < count && m->gpu_count < MOST_GPUS; i++) {
    void *device = NULL;
    int code = a->by_index(i, &device);
    if (code != BRIM_NVML_SUCCESS) {
      snprintf(m->note, sizeof m->note, brim_tr("GPU %u does not answer: %s"), i,
               brim_gpu_error_text(m->monitor, code));
      continue;
    }
    brim_top_gpu_state *s = add_gpu(m);
    if (!s) return no_memory();
    brim_top_gpu_open(s, m->monitor, device, NULL, i);
    BRIM_TRY(open_slices(m, m->gpu_count - 1));
  }
  if (count == 0)
    snprintf(m->note, sizeof m->note, "%s", brim_tr("the NVIDIA driver lists no GPU"));
  open_events(m);
  return BRIM_OK;
}

static brim_status open_monitor(machine *m, const char *root, const brim_nvml_api *api) {
  brim_status status =
      api ? brim_gpu_monitor_open_api(api, root, &m->monitor) : brim_gpu_monitor_open(&m->monitor);
  if (status == BRIM_EUNSUPPORTED) {
    snprintf(m->note, sizeof m->note, "%s",
             brim_tr("no NVIDIA driver found: only the host is shown"));
    return BRIM_OK;
  }
  BRIM_TRY(status);
  snprintf(m->monitor->root, sizeof m->monitor->root, "%s", root);
  brim_gpu_driver(m->monitor, m->driver, sizeof m->driver);
  return open_gpus(m);
}

//---------------------------------- readings ----------------------------------

static brim_status add_notes(machine *m, unsigned want, brim_top_view *view) {
  char text[160];
  size_t whole = 0, without_gpm = 0, unwatched = 0, foreign = 0;
  if (m->note[0]) BRIM_TRY(brim_top_view_note(view, m->note));
  for (size_t i = 0; i < m->gpu_count; i++) {
    if (m->gpus[i].lost || m->gpus[i].slow.slice == BRIM_TOP_YES) continue;
    whole++;
    without_gpm += !m->gpus[i].gpm.on;
    unwatched += m->watched[i] == BRIM_TOP_NO;
  }
  for (size_t i = 0; i < view->process_count; i++) {
    foreign += view->processes[i].elsewhere != BRIM_TOP_NO;
  }
  if (without_gpm && (want & BRIM_TOP_WANT_ACTIVITY)) {
    snprintf(text, sizeof text,
             brim_tr("%zu of %zu GPUs have no GPM counters: activity of SMs, tensor pipes and DRAM "
                     "is unknown"),
             without_gpm, whole);
    BRIM_TRY(brim_top_view_note(view, text));
  }
  if (unwatched) {
    snprintf(text, sizeof text, brim_tr("Xid errors of %zu of %zu GPUs cannot be watched here"),
             unwatched, whole);
    BRIM_TRY(brim_top_view_note(view, text));
  }
  if (foreign) {
    BRIM_TRY(brim_top_view_note(
        view, brim_tr("processes of other containers show only what the driver tells")));
  }
  return BRIM_OK;
}

// Eight GPUs without GPM would keep a reading waiting for a third of a second: after their first figure
// they take turns.
static void give_turns(machine *m, unsigned want, bool *turns) {
  size_t given = 0, first = m->pcie_next;
  for (size_t i = 0; i < m->gpu_count; i++) turns[i] = isnan(m->gpus[i].pcie_tx);
  for (size_t k = 0; k < m->gpu_count && given < PCIE_TURNS; k++) {
    size_t i = (first + k) % m->gpu_count;
    if (turns[i] || !brim_top_gpu_waits(&m->gpus[i], want)) continue;
    turns[i] = true;
    given++;
    m->pcie_next = i + 1;
  }
}

static brim_status read_gpus(machine *m, unsigned want, int64_t now, brim_top_view *view) {
  bool turns[MOST_GPUS];
  give_turns(m, want, turns);
  for (size_t i = 0; i < m->gpu_count; i++) {
    brim_top_gpu *gpu = brim_top_view_add_gpu(view);
    if (!gpu) return no_memory();
    brim_top_gpu_read(&m->gpus[i], want, turns[i], now, gpu);
    gpu->xid = m->xid[i];
    gpu->xid_watched = m->watched[i];
    if (i < m->last.gpu_count) compare(m, &m->last.gpus[i], gpu);
  }
  return BRIM_OK;
}

static brim_status machine_read(void *ctx, unsigned want, brim_top_view *out) {
  machine *m = (machine *)ctx;
  int64_t now = now_ns(m);
  brim_top_view_clear(out);
  out->when_s = m->clock ? (double)now * 1e-9 : brim_clock_wall_s();
  out->interval_s = m->last_ns ? (double)(now - m->last_ns) * 1e-9 : (double)NAN;
  snprintf(out->driver, sizeof out->driver, "%s", m->driver);
  brim_top_host_read(&m->host, now, &out->host);
  if (m->monitor) {
    read_events(m);
    BRIM_TRY(read_gpus(m, want, now, out));
  }
  if (want & BRIM_TOP_WANT_JOBS) BRIM_TRY(brim_top_jobs_read(out));
  if (want & BRIM_TOP_WANT_PROCESSES) {
    BRIM_TRY(brim_top_processes_read(&m->processes, m->gpus, m->gpu_count, now, out));
  }
  for (size_t i = 0; i < m->event_count; i++) {
    brim_top_event *event = brim_top_view_add_event(out);
    if (!event) return no_memory();
    *event = m->events[i];
  }
  BRIM_TRY(add_notes(m, want, out));
  brim_top_view_derive(out, m->last_ns ? &m->last : NULL);
  m->last_ns = now;
  return brim_top_view_copy(out, &m->last);
}

static void machine_close(void *ctx) {
  machine *m = (machine *)ctx;
  for (size_t i = 0; i < m->gpu_count; i++) brim_top_gpu_close(&m->gpus[i]);
  brim_free(m->gpus);
  brim_top_processes_close(&m->processes);
  if (m->event_set) m->monitor->api.event_free(m->event_set);
  brim_gpu_monitor_close(m->monitor);
  brim_top_view_deinit(&m->last);
  brim_free(m);
}

brim_status brim_top_open_machine(const char *root, const struct brim_nvml_api *api,
                                  brim_top_source *out) {
  memset(out, 0, sizeof *out);
  if (strlen(root) >= BRIM_GPU_ROOT_BYTES) {
    return brim_fail(BRIM_EINVAL, "the name of the folder that holds proc is too long");
  }
  machine *m = (machine *)brim_calloc(1, sizeof *m);
  if (!m) return no_memory();
  m->clock = api ? api->now_ns : NULL;
  brim_top_view_init(&m->last);
  brim_top_host_open(&m->host, root, now_ns(m));
  brim_top_processes_open(&m->processes, root);
  brim_top_view first;
  brim_top_view_init(&first);
  // counters are read once here, so that the first view has rates
  brim_status status = open_monitor(m, root, api);
  if (!status) status = machine_read(m, FIRST_WANT, &first);
  brim_top_view_deinit(&first);
  if (status) {
    machine_close(m);
    return status;
  }
  *out =
      (brim_top_source){.name = "machine", .ctx = m, .read = machine_read, .close = machine_close};
  return BRIM_OK;
}

void brim_top_close(brim_top_source *source) {
  if (source->close) source->close(source->ctx);
  memset(source, 0, sizeof *source);
}
