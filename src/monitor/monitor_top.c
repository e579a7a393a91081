// The live view of this machine: opens NVML, keeps what readings are compared with, collects events. A view also comes
// from a recording, or from a source that a thread reads. monitor_top_host.c, monitor_top_gpu.c and
// monitor_top_process.c read the parts.

#include "monitor/monitor_top.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "monitor/monitor_top_int.h"

//--------------------------------------------- jobs ---------------------------------------------
// brim's running jobs in the live view.

static brim_status add_job(void *ctx, const brim_job *job) {
  brim_top_view *view = (brim_top_view *)ctx;
  brim_job *more = brim_top_view_add_job(view);
  if (!more) return brim_fail(BRIM_ENOMEM, "out of memory");
  *more = *job;
  return BRIM_OK;
}

static brim_status brim_top_jobs_read(brim_top_view *view) {
  size_t more = 0;
  char text[160];
  BRIM_TRY(brim_jobs_each(brim_clock_wall_s(), add_job, view, &more));
  if (more == 0) return BRIM_OK;
  snprintf(text, sizeof text, brim_tr("brim jobs that are not shown: %zu"), more);
  return brim_top_view_note(view, text);
}

//----------------------------------------- this machine -----------------------------------------

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

//------------------------------------------ recordings ------------------------------------------
// A recording of the live view: a file of brim.top/1 lines, read one by one.

// A longer line is no reading: what follows its beginning is not kept.
enum { BLOCK_BYTES = 1 << 16, LINE_BYTES = 64 << 20 };

typedef struct recording {
  FILE *file;
  char path[256];  // in messages
  brim_str line;
  long number, skipped;
  size_t at, end;  // of `block`
  char block[BLOCK_BYTES];
} recording;

static brim_status fill_block(recording *r) {
  if (r->at < r->end) return BRIM_OK;
  r->at = 0;
  r->end = fread(r->block, 1, sizeof r->block, r->file);
  if (ferror(r->file)) return brim_fail(BRIM_EIO, "cannot read %s: %s", r->path, strerror(errno));
  return BRIM_OK;
}

// The next line without its end. BRIM_EEND after the last.
static brim_status next_line(recording *r) {
  bool whole = false;
  brim_str_clear(&r->line);
  for (;;) {
    BRIM_TRY(fill_block(r));
    if (r->at == r->end) break;
    const char *from = r->block + r->at;
    const char *end = (const char *)memchr(from, '\n', r->end - r->at);
    size_t n = end ? (size_t)(end - from) : r->end - r->at;
    if (r->line.len < LINE_BYTES) brim_str_append_n(&r->line, from, n);
    r->at += n + (end != NULL);
    whole = end != NULL;
    if (whole) break;
  }
  BRIM_TRY(brim_str_status(&r->line));
  if (!whole && r->line.len == 0) return BRIM_EEND;
  r->number++;
  return BRIM_OK;
}

// The next line that is JSON. Others were cut off: the disk was full, or the program was stopped.
static brim_status next_json(recording *r, json_t **out) {
  for (;;) {
    BRIM_TRY(next_line(r));
    if (r->line.len == 0) continue;
    brim_status status = brim_json_parse(r->line.data, r->line.len, r->path, out);
    if (status != BRIM_EPARSE) return status;
    brim_status_clear();
    r->skipped++;
  }
}

static brim_status recording_read(void *ctx, unsigned want, brim_top_view *out) {
  recording *r = (recording *)ctx;
  (void)want;  // a recording has what it has
  json_t *json = NULL;
  BRIM_TRY(next_json(r, &json));
  brim_status status = brim_top_view_from_json(json, out);
  if (status == BRIM_EPARSE) {
    char why[256];
    snprintf(why, sizeof why, "%s", brim_status_detail());
    status = brim_fail(BRIM_EPARSE, "%s:%ld: %s", r->path, r->number, why);
  }
  json_decref(json);
  return status;
}

static long recording_skipped(void *ctx) { return ((const recording *)ctx)->skipped; }

static void recording_close(void *ctx) {
  recording *r = (recording *)ctx;
  fclose(r->file);
  brim_str_deinit(&r->line);
  brim_free(r);
}

brim_status brim_top_open_recording(const char *path, brim_top_source *out) {
  memset(out, 0, sizeof *out);
  int fd = -1;
  uint64_t size = 0;
  BRIM_TRY(brim_fs_open_regular(path, &fd, &size));
  recording *r = (recording *)brim_calloc(1, sizeof *r);
  FILE *file = r ? fdopen(fd, "r") : NULL;
  if (!file) {
    close(fd);
    brim_free(r);
    return brim_fail(BRIM_ENOMEM, "out of memory");
  }
  r->file = file;
  snprintf(r->path, sizeof r->path, "%s", path);
  brim_str_init(&r->line);
  *out = (brim_top_source){.name = "recording",
                           .ctx = r,
                           .read = recording_read,
                           .skipped = recording_skipped,
                           .close = recording_close};
  return BRIM_OK;
}

//-------------------------------------------- reader --------------------------------------------
// A source of views that is read in a thread of its own (monitor_top.h).

enum { PATIENCE_NS = 100000000 };  // a reading that is about to end may end

struct brim_top_reader {
  brim_top_open_fn open;
  void *ctx;
  brim_top_source source;  // the thread's
  brim_thread *thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int event;
  // Under the lock:
  brim_top_reader_state state;
  bool begun, stop;
  bool left;  // the thread frees everything
  unsigned want;
  brim_top_view view;
  brim_status status;
  char detail[256];
  brim_time since;  // of the opening or reading
  double took_s;
};

static void free_reader(brim_top_reader *r) {
  brim_top_close(&r->source);
  brim_top_view_deinit(&r->view);
  pthread_cond_destroy(&r->changed);
  pthread_mutex_destroy(&r->lock);
  close(r->event);
  brim_free(r);
}

// What the thread has done; the lock is held.
static void finish_locked(brim_top_reader *r, brim_status status, brim_top_reader_state state) {
  const uint64_t one = 1;
  r->status = status;
  snprintf(r->detail, sizeof r->detail, "%s", status ? brim_status_detail() : "");
  r->state = status ? BRIM_TOP_READER_DONE : state;
  r->took_s = (double)brim_time_since_ns(r->since, brim_clock_now()) * 1e-9;
  pthread_cond_broadcast(&r->changed);
  if (write(r->event, &one, sizeof one) < 0) return;  // full: it is readable already
}

static void work(void *ctx) {
  brim_top_reader *r = (brim_top_reader *)ctx;
  pthread_mutex_lock(&r->lock);
  r->begun = true;
  pthread_cond_broadcast(&r->changed);
  pthread_mutex_unlock(&r->lock);
  brim_status status = r->open(r->ctx, &r->source);
  pthread_mutex_lock(&r->lock);
  finish_locked(r, status, BRIM_TOP_READER_IDLE);
  while (!r->stop) {
    if (r->state != BRIM_TOP_READER_READING || !r->source.read) {
      pthread_cond_wait(&r->changed, &r->lock);
      continue;
    }
    unsigned want = r->want;
    pthread_mutex_unlock(&r->lock);
    status = r->source.read(r->source.ctx, want, &r->view);  // the thread's own while READING
    pthread_mutex_lock(&r->lock);
    finish_locked(r, status, BRIM_TOP_READER_DONE);
  }
  r->state = BRIM_TOP_READER_IDLE;  // a reading that was asked for has not begun
  pthread_cond_broadcast(&r->changed);
  bool left = r->left;
  pthread_mutex_unlock(&r->lock);
  if (left) free_reader(r);
}

static bool init_sync(brim_top_reader *r) {
  r->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (r->event < 0) return false;
  if (pthread_mutex_init(&r->lock, NULL)) goto fail_event;
  if (!brim_cond_init(&r->changed)) return true;
  pthread_mutex_destroy(&r->lock);
fail_event:
  close(r->event);
  return false;
}

brim_status brim_top_reader_start(brim_top_open_fn open, void *ctx, brim_top_reader **out) {
  *out = NULL;
  brim_top_reader *r = (brim_top_reader *)brim_calloc(1, sizeof *r);
  if (!r || !init_sync(r)) {
    brim_free(r);
    return brim_fail(BRIM_ENOMEM, "out of memory for a thread");
  }
  r->open = open;
  r->ctx = ctx;
  r->since = brim_clock_now();
  brim_top_view_init(&r->view);
  brim_status status = brim_thread_start(work, r, "brim-top", &r->thread);
  if (status) {
    free_reader(r);
    return status;
  }
  *out = r;
  return BRIM_OK;
}

static bool busy(const brim_top_reader *r) {
  return r->state == BRIM_TOP_READER_OPENING || r->state == BRIM_TOP_READER_READING;
}

void brim_top_reader_stop(brim_top_reader *reader) {
  brim_top_reader *r = reader;
  if (!r) return;
  const int64_t due_ns = brim_clock_now().ns + PATIENCE_NS;
  pthread_mutex_lock(&r->lock);
  r->stop = true;
  pthread_cond_broadcast(&r->changed);
  while (!r->begun) pthread_cond_wait(&r->changed, &r->lock);
  while (busy(r) && brim_cond_wait(&r->changed, &r->lock, due_ns)) continue;
  r->left = busy(r);
  bool left = r->left;
  brim_thread *thread = r->thread;
  pthread_mutex_unlock(&r->lock);
  if (left) {
    brim_thread_detach(thread);
    return;
  }
  brim_thread_join(thread);
  free_reader(r);
}

brim_top_reader_state brim_top_reader_look(brim_top_reader *reader) {
  uint64_t count = 0;
  pthread_mutex_lock(&reader->lock);
  if (read(reader->event, &count, sizeof count) < 0) count = 0;  // nothing has ended
  brim_top_reader_state state = reader->state;
  pthread_mutex_unlock(&reader->lock);
  return state;
}

double brim_top_reader_busy_s(brim_top_reader *reader) {
  pthread_mutex_lock(&reader->lock);
  double seconds = busy(reader) ? (double)brim_time_since_ns(reader->since, brim_clock_now()) * 1e-9
                                : reader->took_s;
  pthread_mutex_unlock(&reader->lock);
  return seconds;
}

int brim_top_reader_fd(const brim_top_reader *reader) { return reader->event; }

void brim_top_reader_ask(brim_top_reader *reader, unsigned want) {
  pthread_mutex_lock(&reader->lock);
  if (reader->state == BRIM_TOP_READER_IDLE) {
    reader->state = BRIM_TOP_READER_READING;
    reader->want = want;
    reader->since = brim_clock_now();
    pthread_cond_broadcast(&reader->changed);
  }
  pthread_mutex_unlock(&reader->lock);
}

brim_status brim_top_reader_take(brim_top_reader *reader, brim_top_view *out) {
  brim_top_reader *r = reader;
  pthread_mutex_lock(&r->lock);
  brim_status status = r->state == BRIM_TOP_READER_DONE ? r->status : BRIM_ESTATE;
  if (status == BRIM_ESTATE) {
    brim_status_set_detail("no reading has ended");
  } else if (status) {
    brim_status_set_detail(r->detail);
  } else {
    brim_top_view taken = *out;
    *out = r->view;
    r->view = taken;
  }
  // without a source there is nothing to be asked: the failure stays
  if (r->state == BRIM_TOP_READER_DONE && r->source.read) r->state = BRIM_TOP_READER_IDLE;
  pthread_mutex_unlock(&r->lock);
  return status;
}
