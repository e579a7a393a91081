// The session with CUPTI: attach, collect records between start and stop, detach. Records come on the
// library's own thread; the sums over them are cupti_sum.c.
//
// GRAPH_TRACE stays off: with it the library has one record for a whole graph and none for the
// kernels in it.
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "profile/cupti/cupti_int.h"

enum {
  BUFFER_BYTES = 2 << 20,  // about 9,700 kernels
  MAX_BUFFERS = 64,        // with the library at once
  FIRST_RECORDS = 4096,    // grows by doubling
  MAX_RECORDS = 2 << 20,   // 64 MiB; far more than a window of steps has
  DEVICE_BUFFERS = 8       // of 3.2 MB on the GPU, in place of 250
};

static const struct {
  int kind;
  bool required;
  bool detail;  // only where details are kept
} kinds[] = {{BRIM_CUPTI_KIND_CONCURRENT_KERNEL, true, false},
             {BRIM_CUPTI_KIND_MEMCPY, true, false},
             {BRIM_CUPTI_KIND_MEMSET, true, false},
             {BRIM_CUPTI_KIND_MEMCPY2, false, false},
             {BRIM_CUPTI_KIND_SYNCHRONIZATION, false, true}};
enum { KINDS = sizeof kinds / sizeof *kinds };

struct brim_gpu_trace {
  brim_cupti_api api;
  brim_dl *dl;  // NULL over a table that was given
  void *subscriber;
  uint32_t version;
  bool started, enabled[KINDS];
  uint64_t begin;
  int64_t begin_clock_ns;  // by the host's clock
  brim_dl *cxx;            // of the demangler
  // Under cupti_process.lock:
  bool detailed;
  brim_trace details;  // with the library's own times
  bool collecting;
  brim_cupti_record *records;
  size_t count, capacity, limit;
  int64_t lost;
};

// The one exception to 'no mutable file-scope state': CUPTI knows one client per process, and its
// callbacks come on a thread of its own, for the whole process and without a pointer of ours, so what
// they work on must be found from here. They may still come when a session is over; `next_record`
// therefore outlives it (the library is never closed). CUPTI is never called with the lock held: it
// calls back with locks of its own held.
static struct {
  pthread_mutex_t lock;
  brim_gpu_trace *trace;  // the open session, or NULL
  int (*next_record)(uint8_t *buffer, size_t valid, void **record);
  bool may_refuse;  // a library before CUDA 12.9 does not survive a refused buffer
  size_t buffers;   // with the library
} cupti_process = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void lock(void) { pthread_mutex_lock(&cupti_process.lock); }
static void unlock(void) { pthread_mutex_unlock(&cupti_process.lock); }

//---------------------------------- callbacks ----------------------------------

// A subscriber must have one; no event is ever enabled.
static void on_event(void *user, int domain, uint32_t id, const void *data) {
  (void)user;
  (void)domain;
  (void)id;
  (void)data;
}

static void on_request(uint8_t **buffer, size_t *size, size_t *max_records) {
  lock();
  bool refuse = cupti_process.may_refuse && cupti_process.buffers >= MAX_BUFFERS;
  if (!refuse) cupti_process.buffers++;
  unlock();
  *buffer = refuse ? NULL : (uint8_t *)brim_alloc(BUFFER_BYTES);
  if (!*buffer && !refuse) {
    lock();
    cupti_process.buffers--;
    unlock();
  }
  *size = *buffer ? BUFFER_BYTES : 0;
  *max_records = 0;  // as many as fit
}

static void keep_locked(brim_gpu_trace *t, const brim_cupti_record *record) {
  if (t->count == t->capacity) {
    size_t capacity = t->capacity ? 2 * t->capacity : FIRST_RECORDS;
    if (capacity > t->limit) capacity = t->limit;
    brim_cupti_record *grown = capacity > t->count ? (brim_cupti_record *)brim_realloc(
                                                         t->records, capacity * sizeof *grown)
                                                   : NULL;
    if (!grown) {
      t->lost++;
      return;
    }
    t->records = grown;
    t->capacity = capacity;
  }
  t->records[t->count++] = *record;
}

static void take(const void *record) {
  brim_cupti_record kept;
  brim_cupti_take taken = brim_cupti_read(record, &kept);
  lock();
  brim_gpu_trace *t = cupti_process.trace;
  if (t && t->collecting && t->detailed) {
    bool full = t->details.count >= t->limit;
    if (full || brim_cupti_detail(record, &t->details) == BRIM_CUPTI_LOST) t->lost++;
  }
  if (t && t->collecting && taken != BRIM_CUPTI_OTHER) {
    if (taken == BRIM_CUPTI_LOST) {
      t->lost++;
    } else {
      keep_locked(t, &kept);
    }
  }
  unlock();
}

static void on_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size,
                        size_t valid) {
  (void)context;
  (void)stream;
  (void)size;
  if (!buffer) return;
  lock();
  int (*next_record)(uint8_t *, size_t, void **) = cupti_process.next_record;
  unlock();
  void *record = NULL;
  int code = BRIM_CUPTI_MAX_LIMIT_REACHED;
  while (valid > 0 && (code = next_record(buffer, valid, &record)) == BRIM_CUPTI_SUCCESS) {
    take(record);
  }
  brim_free(buffer);
  lock();
  cupti_process.buffers--;
  brim_gpu_trace *t = cupti_process.trace;
  // what comes after a record that is incomplete cannot be read
  if (t && t->collecting && code != BRIM_CUPTI_MAX_LIMIT_REACHED) t->lost++;
  unlock();
}

//---------------------------------- attaching ----------------------------------

static brim_status check_version(brim_gpu_trace *t) {
  int code = t->api.version(&t->version);
  if (code != BRIM_CUPTI_SUCCESS) return brim_cupti_fail(&t->api, "cuptiGetVersion", code);
  if (t->version < BRIM_CUPTI_VERSION_11_8) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "CUPTI is too old (version %u, brim needs %d); install CUDA 11.8 or later",
                     (unsigned)t->version, BRIM_CUPTI_VERSION_11_8);
  }
  return BRIM_OK;
}

// Sessions of this process exclude each other before CUPTI is asked.
static brim_status claim(brim_gpu_trace *t) {
  lock();
  bool taken = cupti_process.trace != NULL;
  if (!taken) {
    cupti_process.trace = t;
    cupti_process.next_record = t->api.next_record;
    cupti_process.may_refuse = t->version >= BRIM_CUPTI_VERSION_12_9;
  }
  unlock();
  return taken ? brim_fail(BRIM_EUNSUPPORTED, "this process is already tracing its GPU") : BRIM_OK;
}

static void give_up_claim(void) {
  lock();
  cupti_process.trace = NULL;
  unlock();
}

static brim_status fail_subscribe(brim_gpu_trace *t, int code) {
  if (code == BRIM_CUPTI_MULTIPLE_SUBSCRIBERS && t->api.subscribe_v2) {
    char other[128] = "";
    void *subscriber = NULL;
    brim_cupti_subscriber params = {sizeof params, "brim", other, sizeof other - 1};
    if (t->api.subscribe_v2(&subscriber, on_event, NULL, &params) == BRIM_CUPTI_SUCCESS) {
      t->api.unsubscribe(subscriber);  // the other one has just gone; it was there all the same
    } else if (other[0]) {
      return brim_fail(BRIM_EUNSUPPORTED,
                       "CUPTI: another tool is tracing this process (%s); run without it", other);
    }
  }
  brim_status status = brim_cupti_fail(&t->api, "cuptiSubscribe", code);
  if (code == BRIM_CUPTI_NOT_INITIALIZED || code == BRIM_CUPTI_NOT_COMPATIBLE ||
      code == BRIM_CUPTI_UNKNOWN) {
    return brim_fail(
        BRIM_EUNSUPPORTED,
        "%s: CUPTI does not start; it needs an NVIDIA driver at least as new as itself",
        brim_status_detail());
  }
  return status;
}

// The library stays in the process. Detaching it (cuptiFinalize) would save later launches a
// little, and breaks the graphs that were recorded while it was attached: with CUDA 13.0 their next
// launch fails and takes the context with it.
static void detach(brim_gpu_trace *t) { t->api.unsubscribe(t->subscriber); }

static brim_status attach(brim_gpu_trace *t) {
  // Subscribing is how CUPTI's clients keep out of each other's way.
  int code = t->api.subscribe(&t->subscriber, on_event, NULL);
  if (code != BRIM_CUPTI_SUCCESS) return fail_subscribe(t, code);
  if (t->api.set_attribute) {  // a wish: refused, more memory is taken
    size_t value = DEVICE_BUFFERS, size = sizeof value;
    t->api.set_attribute(BRIM_CUPTI_ATTR_DEVICE_BUFFER_POOL_LIMIT, &size, &value);
  }
  code = t->api.register_callbacks(on_request, on_complete);
  if (code == BRIM_CUPTI_SUCCESS) return BRIM_OK;
  brim_status status = brim_cupti_fail(&t->api, "cuptiActivityRegisterCallbacks", code);
  detach(t);
  return status;
}

//---------------------------------- opening and closing ----------------------------------

static void destroy(brim_gpu_trace *t) {
  brim_dl_close(t->dl);
  brim_dl_close(t->cxx);
  brim_trace_deinit(&t->details);
  brim_free(t->records);
  brim_free(t);
}

// Takes over `t`, whose table is filled in.
static brim_status open_over_table(brim_gpu_trace *t, size_t max_records, brim_gpu_trace **out) {
  t->limit = max_records ? max_records : MAX_RECORDS;
  brim_status status = check_version(t);
  if (!status) status = claim(t);
  if (status) {
    destroy(t);
    return status;
  }
  status = attach(t);
  if (status) {
    give_up_claim();
    destroy(t);
    return status;
  }
  *out = t;
  return BRIM_OK;
}

brim_status brim_gpu_trace_open(brim_gpu_trace **out) {
  *out = NULL;
  brim_gpu_trace *t = (brim_gpu_trace *)brim_calloc(1, sizeof *t);
  if (!t) return brim_fail(BRIM_ENOMEM, "out of memory while opening CUPTI");
  brim_status status = brim_cupti_load(&t->api, &t->dl);
  if (status) {
    destroy(t);
    return status;
  }
  BRIM_TRY(open_over_table(t, 0, out));
  brim_log_debug("profile", "CUPTI %u from %s", (unsigned)t->version, brim_dl_path(t->dl));
  return BRIM_OK;
}

brim_status brim_gpu_trace_open_api(const brim_cupti_api *api, size_t max_records,
                                    brim_gpu_trace **out) {
  *out = NULL;
  brim_gpu_trace *t = (brim_gpu_trace *)brim_calloc(1, sizeof *t);
  if (!t) return brim_fail(BRIM_ENOMEM, "out of memory while opening CUPTI");
  t->api = *api;
  return open_over_table(t, max_records, out);
}

//---------------------------------- start and stop ----------------------------------

static void set_collecting(brim_gpu_trace *t, bool on) {
  lock();
  t->collecting = on;
  if (on) {
    t->count = 0;
    t->lost = 0;
    t->details.count = 0;
  }
  unlock();
}

// The first code that is not success.
static int disable_all(brim_gpu_trace *t) {
  int first = BRIM_CUPTI_SUCCESS;
  for (int i = 0; i < KINDS; i++) {
    if (!t->enabled[i]) continue;
    t->enabled[i] = false;
    int code = t->api.disable(kinds[i].kind);
    if (first == BRIM_CUPTI_SUCCESS) first = code;
  }
  return first;
}

static brim_status enable_all(brim_gpu_trace *t) {
  for (int i = 0; i < KINDS; i++) {
    if (kinds[i].detail && !t->detailed) continue;
    int code = t->api.enable(kinds[i].kind);
    t->enabled[i] = code == BRIM_CUPTI_SUCCESS;
    if (!t->enabled[i] && kinds[i].required) {
      return brim_cupti_fail(&t->api, "cuptiActivityEnable", code);
    }
  }
  return BRIM_OK;
}

brim_status brim_gpu_trace_start(brim_gpu_trace *trace) {
  if (trace->started) return brim_fail(BRIM_ESTATE, "the trace of the GPU is already running");
  size_t before;  // what was lost earlier is not this trace's
  if (trace->api.dropped) (void)trace->api.dropped(NULL, 0, &before);
  set_collecting(trace, true);
  brim_status status = enable_all(trace);
  // Enabling prepares every kernel that is loaded, which may take seconds: the clock runs from here.
  int code = status ? BRIM_CUPTI_SUCCESS : trace->api.timestamp(&trace->begin);
  trace->begin_clock_ns = brim_clock_now().ns;
  if (code != BRIM_CUPTI_SUCCESS) status = brim_cupti_fail(&trace->api, "cuptiGetTimestamp", code);
  if (status) {
    disable_all(trace);
    set_collecting(trace, false);
    return status;
  }
  trace->started = true;
  return BRIM_OK;
}

// Brings in what the library still holds.
static brim_status finish(brim_gpu_trace *t) {
  // First what is complete; by force then the rest, were it incomplete. The second code counts.
  (void)t->api.flush(0);
  int disabled = disable_all(t);
  int flushed = t->api.flush(BRIM_CUPTI_FLUSH_FORCED);
  set_collecting(t, false);
  t->started = false;
  if (flushed != BRIM_CUPTI_SUCCESS) {
    return brim_cupti_fail(&t->api, "cuptiActivityFlushAll", flushed);
  }
  if (disabled != BRIM_CUPTI_SUCCESS) {
    return brim_cupti_fail(&t->api, "cuptiActivityDisable", disabled);
  }
  return BRIM_OK;
}

static brim_gpu_trace_sum unknown_sum(void) {
  const double none = (double)NAN;
  return (brim_gpu_trace_sum){.wall_ms = none,
                              .busy_ms = none,
                              .kernel_ms = none,
                              .h2d_ms = none,
                              .d2h_ms = none,
                              .d2d_ms = none,
                              .memset_ms = none};
}

brim_status brim_gpu_trace_stop(brim_gpu_trace *trace, brim_gpu_trace_sum *out) {
  *out = unknown_sum();
  if (!trace->started) return brim_fail(BRIM_ESTATE, "the trace of the GPU is not running");
  uint64_t end = 0;
  int code = trace->api.timestamp(&end);
  BRIM_TRY(finish(trace));
  if (code != BRIM_CUPTI_SUCCESS) return brim_cupti_fail(&trace->api, "cuptiGetTimestamp", code);
  size_t dropped = 0;
  if (!trace->api.dropped || trace->api.dropped(NULL, 0, &dropped) != BRIM_CUPTI_SUCCESS) {
    dropped = 0;
  }
  brim_cupti_sum(trace->records, trace->count, trace->begin, end, out);
  out->dropped = trace->lost + (int64_t)dropped;
  return BRIM_OK;
}

void brim_gpu_trace_close(brim_gpu_trace *trace) {
  if (!trace) return;
  if (trace->started) (void)finish(trace);
  detach(trace);
  give_up_claim();
  destroy(trace);
}

//---------------------------------- details ----------------------------------

void brim_gpu_trace_keep_details(brim_gpu_trace *trace, bool on) {
  lock();
  trace->detailed = on;
  unlock();
}

// Kernels' names as they came, each once, and for people: making them plain takes long.
typedef struct plain_names {
  brim_demangle_fn demangle;
  struct {
    const char *name, *plain;
  } known[512];
  size_t count;
} plain_names;

static const char *plain_name(plain_names *n, const char *name, brim_trace *texts) {
  for (size_t i = 0; i < n->count; i++) {
    if (n->known[i].name == name) return n->known[i].plain;
  }
  const char *plain = brim_cupti_plain_name(n->demangle, name, texts);
  if (n->count < sizeof n->known / sizeof *n->known) {
    n->known[n->count].name = name;
    n->known[n->count++].plain = plain;
  }
  return plain;
}

brim_status brim_gpu_trace_events(brim_gpu_trace *trace, brim_time begin, brim_trace *out) {
  if (trace->started) return brim_fail(BRIM_ESTATE, "the trace of the GPU is already running");
  plain_names names = {.demangle = brim_demangler(&trace->cxx)};
  int64_t to_clock = trace->begin_clock_ns - (int64_t)trace->begin - begin.ns;
  for (size_t i = 0; i < trace->details.count; i++) {
    const brim_trace_event *from = &trace->details.events[i];
    if (from->start_ns < (int64_t)trace->begin) continue;
    const char *name =
        from->kind == BRIM_TRACE_KERNEL ? plain_name(&names, from->name, out) : from->name;
    brim_trace_event *e = name ? brim_trace_add(out, from->kind, name) : NULL;
    if (!e) return brim_fail(BRIM_ENOMEM, "out of memory for the trace");
    const char *kept = e->name;
    *e = *from;
    e->name = kept;
    e->start_ns += to_clock;
    e->end_ns += to_clock;
  }
  brim_trace_sort(out);
  return BRIM_OK;
}
