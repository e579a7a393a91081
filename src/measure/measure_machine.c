// Measures the ceilings of a machine and remembers them in a cache.

#include "backend/backend_half.h"

#include <math.h>
#include <string.h>

#include "base/base_words.h"
#include "measure/measure_int.h"
#include "record/record_findings.h"

//-------------------------------------------- timer --------------------------------------------
// Times one piece of work by the device's own events. Repeats of short work are recorded and launched together if the
// device can, so that launching is not measured. The benchmark of a model's ops uses it, too.

enum { MAX_SAMPLES = 50, MAX_INSIDE = 200 };
#define LAUNCH_HIDDEN_S 1e-3  // a launch is negligible in work that takes longer

brim_status brim_device_timer_init(brim_device_timer *t, brim_device *device,
                                   const volatile sig_atomic_t *stop) {
  *t = (brim_device_timer){.device = device, .stop = stop};
  BRIM_TRY(brim_event_create(device, &t->start));
  return brim_event_create(device, &t->end);
}

void brim_device_timer_deinit(brim_device_timer *t) {
  brim_event_destroy(t->device, t->start);
  brim_event_destroy(t->device, t->end);
  t->start = t->end = NULL;
}

brim_status brim_device_work_enqueue(brim_device *device, const brim_device_work *work,
                                     int64_t times) {
  for (int64_t i = 0; i < times; i++) {
    BRIM_TRY(work->call
                 ? brim_op_run(device, work->call)
                 : brim_device_copy(device, work->dst, work->src, work->bytes, work->direction));
  }
  return BRIM_OK;
}

// Measures the seconds of one launch of the recorded work. If `recorded` is NULL, measures `inside` repeats instead.
static brim_status sample(const brim_device_timer *t, const brim_device_work *work,
                          brim_graph_exec *recorded, int64_t inside, double *seconds) {
  int64_t ns = 0;
  if (t->stop && *t->stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
  BRIM_TRY(brim_event_record(t->device, t->start));
  BRIM_TRY(recorded ? brim_graph_launch(t->device, recorded)
                    : brim_device_work_enqueue(t->device, work, inside));
  BRIM_TRY(brim_event_record(t->device, t->end));
  BRIM_TRY(brim_event_elapsed(t->device, t->start, t->end, &ns));
  *seconds = (double)(ns > 0 ? ns : 1) * 1e-9;
  return BRIM_OK;
}

// Records repeats of the work. NULL if the device or the work does not allow recording.
static brim_graph_exec *record(brim_device *device, const brim_device_work *work, int64_t times) {
  brim_graph_exec *recorded = NULL;
  if (!brim_device_has_graphs(device)) return NULL;
  brim_status status = brim_capture_begin(device);
  if (!status) {
    status = brim_device_work_enqueue(device, work, times);
    brim_status ended = brim_capture_end(device, &recorded);
    if (!status) status = ended;
  }
  if (!status) return recorded;
  if (recorded) brim_graph_exec_destroy(device, recorded);
  brim_status_clear();  // the repeats are launched one by one instead
  return NULL;
}

static int64_t clamp(double value, int64_t low, int64_t high) {
  return value < (double)low ? low : value > (double)high ? high : (int64_t)value;
}

// Runs the work twice and times the second run.
static brim_status brim_device_timer_once(const brim_device_timer *t, const brim_device_work *work,
                                          double *seconds) {
  BRIM_TRY(sample(t, work, NULL, 1, seconds));  // the first run loads kernels
  return sample(t, work, NULL, 1, seconds);
}

brim_status brim_device_timer_measure(brim_device_timer *t, const brim_device_work *work, double ms,
                                      int windows, double *seconds) {
  double once = 0, times[MAX_SAMPLES], best = (double)INFINITY, worst = 0;
  BRIM_TRY(brim_device_timer_once(t, work, &once));
  int64_t inside = clamp(ms * 1e-3 / 5 / once, 1, MAX_INSIDE);
  bool record_it = inside > 1 && once < LAUNCH_HIDDEN_S;
  brim_graph_exec *recorded = record_it ? record(t->device, work, inside) : NULL;
  brim_status status = BRIM_OK;
  double whole = once * (double)inside;
  if (recorded) status = sample(t, work, recorded, inside, &whole);
  int64_t samples = clamp(ms * 1e-3 / whole, 3, MAX_SAMPLES);
  for (int w = 0; !status && w < windows; w++) {
    double median = 0;
    for (int64_t i = 0; !status && i < samples; i++) {
      status = sample(t, work, recorded, inside, &times[i]);
      times[i] /= (double)inside;
    }
    if (!status) status = brim_stats_median(times, (size_t)samples, &median);
    if (status) break;
    best = fmin(best, median);
    worst = fmax(worst, median);
  }
  if (!status) t->spread = fmax(t->spread, worst / best - 1);
  // after a failure, wait for work that is still running
  brim_status drained = brim_device_sync(t->device);
  if (!status) status = drained;
  if (recorded) brim_graph_exec_destroy(t->device, recorded);
  *seconds = best;
  return status;
}

//---------------------------------- values ----------------------------------

// A linear congruential generator: good enough for values that are neither zero nor equal.
static uint32_t next_random(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

void brim_random_values(brim_dtype type, void *out, size_t count) {
  uint32_t state = 1;
  float *f32 = (float *)out;
  uint16_t *half = (uint16_t *)out;
  unsigned char *byte = (unsigned char *)out;
  for (size_t i = 0; i < count; i++) {
    uint32_t bits = next_random(&state);
    float value = (float)bits / 4194304.0f - 2.0f;  // [-2, 2)
    if (type == BRIM_F32) {
      f32[i] = value;
    } else if (type == BRIM_U8) {
      byte[i] = (unsigned char)bits;
    } else {
      half[i] = type == BRIM_BF16 ? brim_f32_to_bf16(value) : brim_f32_to_f16(value);
    }
  }
}

//--------------------------------------- other processes ---------------------------------------
// The share of a GPU that other processes take. The driver gives each process the whole GPU in turns of milliseconds.
// Short products run back to back; a product that meets the end of a turn also waits for the turns of the other
// processes. The share lost is the excess of the total time over the median times the number of intervals. Processes
// under MPS share the GPU in space: this measurement does not show them.

enum { SIDE = 1024, INTERVALS = 400, PRODUCTS_PER_INTERVAL = 4, WARM = 400 };
// Smaller shares count as noise of clock and driver. The second threshold holds if no other process is visible.
#define LEAST_LOST 0.03
#define LEAST_UNSEEN 0.10

typedef struct sharing {
  brim_device *device;
  void *data[3];
  brim_op_call call;
  brim_event *event[INTERVALS + 1];
} sharing;

static brim_status prepare(sharing *s) {
  const int64_t dim[] = {SIDE, SIDE};
  s->call = (brim_op_call){.op = BRIM_OP_LINEAR, .in_count = 2, .out_count = 1, .planning = true};
  for (int i = 0; i < 3; i++) {
    BRIM_TRY(brim_device_alloc(s->device, BRIM_BUFFER_DEVICE, (size_t)SIDE * SIDE * sizeof(float),
                               &s->data[i]));
    brim_tensor t = brim_tensor_make(s->data[i], BRIM_F32, 2, dim);
    *(i < 2 ? &s->call.in[i] : &s->call.out[0]) = t;
  }
  BRIM_TRY(brim_op_prepare(s->device, &s->call));
  if (s->call.workspace_bytes) {
    BRIM_TRY(brim_device_alloc(s->device, BRIM_BUFFER_DEVICE, s->call.workspace_bytes,
                               &s->call.workspace));
  }
  for (int i = 0; i <= INTERVALS; i++) BRIM_TRY(brim_event_create(s->device, &s->event[i]));
  return BRIM_OK;
}

static brim_status run(sharing *s, double ms[INTERVALS]) {
  const brim_device_work work = {.call = &s->call};
  BRIM_TRY(brim_device_work_enqueue(s->device, &work, WARM));  // until the clock has risen
  for (int i = 0; i <= INTERVALS; i++) {
    BRIM_TRY(brim_event_record(s->device, s->event[i]));
    if (i < INTERVALS) BRIM_TRY(brim_device_work_enqueue(s->device, &work, PRODUCTS_PER_INTERVAL));
  }
  BRIM_TRY(brim_device_sync(s->device));
  for (int i = 0; i < INTERVALS; i++) {
    int64_t ns = 0;
    BRIM_TRY(brim_event_elapsed(s->device, s->event[i], s->event[i + 1], &ns));
    ms[i] = (double)ns * 1e-6;
  }
  return BRIM_OK;
}

static void clean_up(sharing *s, bool prepared) {
  for (int i = 0; i <= INTERVALS; i++) {
    if (s->event[i]) brim_event_destroy(s->device, s->event[i]);
  }
  brim_device_free(s->device, BRIM_BUFFER_DEVICE, s->call.workspace);
  for (int i = 0; i < 3; i++) brim_device_free(s->device, BRIM_BUFFER_DEVICE, s->data[i]);
  if (prepared) brim_op_release(s->device, &s->call);
}

double brim_share_of_others(const double *ms, size_t count) {
  double usual = 0, sum = 0;
  if (brim_stats_median(ms, count, &usual)) return (double)NAN;
  for (size_t i = 0; i < count; i++) sum += ms[i];
  return sum > 0 ? fmax(0, 1 - usual * (double)count / sum) : (double)NAN;
}

// Names the two other computing processes with the most memory; returns how many there are.
static size_t name_others(const brim_memory_watch *watch, char *out, size_t size) {
  brim_gpu_process *list = NULL;
  size_t count = 0, found = 0;
  out[0] = '\0';
  if (!watch || !watch->monitor ||
      brim_gpu_read_processes(watch->monitor, watch->uuid, &list, &count)) {
    brim_status_clear();
    return 0;
  }
  for (size_t i = 0; i < count; i++) {
    if (list[i].self || !list[i].computes) continue;
    if (found++ >= 2) continue;
    char text[96];
    if (found > 1) brim_words_add(out, size, ", ");
    if (list[i].elsewhere) {
      brim_words_add(out, size, BRIM_N_("another container's process (pid %u)"), list[i].pid);
    } else {
      brim_gpu_process_text(&list[i], text, sizeof text);
      brim_words_add(out, size, "%s", text);
    }
  }
  brim_free(list);
  return found;
}

brim_status brim_sharing_measure(brim_device *device, const brim_memory_watch *watch,
                                 brim_result *out) {
  double ms[INTERVALS];
  sharing s = {.device = device};
  if (device->info.host_memory) return BRIM_OK;
  size_t others = name_others(watch, out->shared_with, sizeof out->shared_with);
  brim_status status = prepare(&s);
  bool prepared = !status;
  if (!status) status = run(&s, ms);
  brim_status drained = brim_device_sync(device);
  clean_up(&s, prepared);
  if (drained) return drained;
  if (status) {  // short memory or a missing op: the share stays unknown
    brim_log_debug("measure", "cannot measure the share of other processes: %s",
                   brim_status_detail());
    brim_status_clear();
    return BRIM_OK;
  }
  double lost = brim_share_of_others(ms, INTERVALS);
  out->shared_percent = lost >= (others ? LEAST_LOST : LEAST_UNSEEN) ? 100 * lost : 0;
  return BRIM_OK;
}

//---------------------------------------- known machines ----------------------------------------
// Remembers ceilings. Ceilings of a busy machine are too low: they are measured again until the machine is quiet, and
// the larger figures stay.

#define MOST_RATE 1e18  // larger rates in a file are damaged

//---------------------------------- the cache ----------------------------------

static brim_cache_file cache_in(const char *folder) {
  return (brim_cache_file){folder, "ceilings.json", "brim.ceilings/1"};
}

// "NVIDIA H200 GPU-0123 | 580.65 | CUDA 13.0, cuDNN 9.12 | cuda | brim 0.1.0"
static void put_key(const brim_device *device, const char *driver, brim_str *out) {
  const brim_device_info *info = &device->info;
  brim_str_printf(out, "%s%s%s | %s | %s | %s | ", info->name, info->id[0] ? " " : "", info->id,
                  driver, info->library, device->backend->name);
  if (info->kind == BRIM_DEVICE_CPU) brim_str_printf(out, "%d threads | ", (int)info->threads);
  brim_str_append(out, "brim " BRIM_VERSION);
}

// Records of an older brim do not say whether the machine was busy: assume that it was.
static double load_of(const json_t *entry) {
  return json_object_get(entry, "load") ? brim_cache_number(entry, "load", 1.0001) : 1;
}

static double rate_of(const json_t *entry, const char *name) {
  double rate = brim_cache_number(entry, name, MOST_RATE);
  return rate > 0 ? rate : (double)NAN;
}

brim_status brim_machine_ceilings_load(const char *folder, const char *key,
                                       brim_machine_ceilings *out) {
  brim_cache_file file = cache_in(folder);
  json_t *entry = NULL;
  brim_machine_ceilings_init(out);
  BRIM_TRY(brim_cache_find(&file, key, &entry));
#define X(name) out->name = rate_of(entry, #name);
  BRIM_MACHINE_MAP(X)
#undef X
  if (entry) out->load = load_of(entry);
  json_decref(entry);
  return BRIM_OK;
}

static double larger(double a, double b) { return isnan(a) || b > a ? b : a; }

// Keeps the larger figure of each pair, and the load of the quieter measurement.
static void merge(brim_machine_ceilings *to, const brim_machine_ceilings *other) {
#define X(name) to->name = larger(to->name, other->name);
  BRIM_MACHINE_MAP(X)
#undef X
  to->load = fmin(to->load, other->load);
}

brim_status brim_machine_ceilings_of_gpu(const char *folder, const char *uuid,
                                         brim_machine_ceilings *out) {
  brim_cache_file file = cache_in(folder);
  json_t *entries = NULL, *entry;
  const char *key;
  char part[96];
  brim_machine_ceilings_init(out);
  int n = snprintf(part, sizeof part, " %s | ", uuid);
  if (!folder[0] || !uuid[0] || n >= (int)sizeof part) return BRIM_OK;
  BRIM_TRY(brim_cache_entries(&file, &entries));
  json_object_foreach(entries, key, entry) {
    if (!strstr(key, part)) continue;
#define X(name) out->name = larger(out->name, rate_of(entry, #name));
    BRIM_MACHINE_MAP(X)
#undef X
  }
  json_decref(entries);
  return BRIM_OK;
}

brim_status brim_machine_ceilings_store(const char *folder, const char *key,
                                        const brim_machine_ceilings *ceilings) {
  brim_cache_file file = cache_in(folder);
  brim_json_setup();
  json_t *entry = json_object();
  brim_status status = BRIM_OK;
#define X(name) \
  if (!status) status = brim_json_put(entry, #name, brim_json_number(ceilings->name));
  BRIM_MACHINE_MAP(X)
#undef X
  if (!status) status = brim_json_put(entry, "load", brim_json_number(ceilings->load));
  if (!status) return brim_cache_store(&file, key, entry);
  json_decref(entry);
  return status;
}

// True if the main figures are known. A figure is missing if its measurement failed or an older brim wrote the
// file.
static bool is_complete(const brim_machine_ceilings *c) {
  return !isnan(c->copy_bytes_per_s) && !isnan(c->gemm_fp32_flops) && !isnan(c->launches_per_s);
}

static brim_status remember(brim_status status, const char *what) {
  if (!status) return BRIM_OK;
  brim_log_debug("measure", "the machine's ceilings could not be %s: %s", what,
                 brim_status_detail());
  brim_status_clear();
  return status;
}

brim_status brim_machine_get(brim_device *device, const brim_machine_sizes *sizes,
                             const brim_machine_options *options, brim_machine_ceilings *out) {
  const char *folder = options->folder ? options->folder : "";
  bool cut = false, keep = folder[0] != '\0';
  brim_status status = BRIM_OK;
  brim_machine_ceilings old;
  brim_str key;
  brim_str_init(&key);
  put_key(device, options->driver ? options->driver : "", &key);
  brim_machine_ceilings_init(out);
  if (keep && remember(brim_str_status(&key), "remembered")) keep = false;
  if (keep) remember(brim_machine_ceilings_load(folder, key.data, out), "known");
  if (!is_complete(out) || brim_machine_doubtful(out)) {
    old = *out;
    status = brim_machine_measure(device, sizes, options, out, &cut);
    bool better = is_complete(&old);
    if (better && cut) out->load = old.load;
    if (better) merge(out, &old);
    // do not store incomplete figures or figures from little memory: they are measured again next time
    if (!status && keep && !cut && is_complete(out)) {
      remember(brim_machine_ceilings_store(folder, key.data, out), "remembered");
    }
  }
  brim_str_deinit(&key);
  return status;
}

void brim_machine_ceilings_doubt(const brim_device *device, const brim_machine_options *options) {
  const char *folder = options->folder ? options->folder : "";
  brim_machine_ceilings doubted;
  brim_str key;
  brim_str_init(&key);
  put_key(device, options->driver ? options->driver : "", &key);
  brim_status status = brim_str_status(&key);
  if (!status && folder[0]) {
    status = brim_machine_ceilings_load(folder, key.data, &doubted);
    doubted.load = 1;
    if (!status && is_complete(&doubted)) {
      status = brim_machine_ceilings_store(folder, key.data, &doubted);
    }
  }
  remember(status, "doubted");
  brim_str_deinit(&key);
}

// True if a step computed faster than the ceiling: the ceilings were measured while the machine was busy.
bool brim_machine_exceeded(const brim_result *results, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const brim_result *r = &results[i];
    const brim_result_knob *precision = brim_result_knob_as(r, BRIM_ROLE_PRECISION);
    if (r->failure != BRIM_FAILURE_NONE || !precision) continue;
    double rate = r->plan.flops_per_step / (r->total_ms.median * 1e-3);
    if (rate > brim_machine_flops(&r->ceilings, precision->value)) return true;
  }
  return false;
}

brim_status brim_machine_ceilings_get(brim_device *device, const brim_machine_options *options,
                                      brim_machine_ceilings *out) {
  brim_machine_sizes sizes = brim_machine_sizes_of(device);
  return brim_machine_get(device, &sizes, options, out);
}

bool brim_machine_ceilings_raise(brim_device *device, const brim_machine_options *options,
                                 brim_result *results, size_t count, brim_machine_ceilings *known) {
  brim_machine_ceilings again;
  if (!brim_machine_exceeded(results, count) || (options->stop && *options->stop)) return false;
  brim_log_info("measure",
                "a step was faster than the machine's ceilings: they are measured again");
  brim_machine_ceilings_doubt(device, options);
  if (brim_machine_ceilings_get(device, options, &again)) {
    brim_status_clear();
    return false;
  }
  merge(&again, known);
  *known = again;
  for (size_t i = 0; i < count; i++) results[i].ceilings = again;
  return true;
}

//------------------------------------ ceilings of a machine ------------------------------------
// Measures ceilings: matrix products in every precision of the device, copies in its memory, and copies to it from the
// host. The measurements use the device's own ops, as a model does. A ceiling that cannot be measured stays unknown.

#define MIB ((size_t)1 << 20)
enum { PATTERN_BYTES = 1 << 20, LEAST_COPY_BYTES = 1 << 16 };

typedef struct machine {
  brim_device *device;
  const brim_machine_sizes *sizes;
  size_t allowed;  // bytes that may be allocated
  brim_device_timer timer;
  bool cut;  // something was smaller than wanted, or failed
} machine;

// Buffers of one size; the first two hold random values.
typedef struct buffers {
  void *data[3];
} buffers;

//---------------------------------- memory ----------------------------------

static bool is_short(brim_status status) { return status == BRIM_EOOM || status == BRIM_ENOMEM; }

// Waits for the device first: enqueued work may still use the buffers.
static void free_buffers(machine *m, buffers *x) {
  if (brim_device_sync(m->device)) brim_status_clear();  // the next use of the device reports it
  for (int i = 0; i < 3; i++) {
    brim_device_free(m->device, BRIM_BUFFER_DEVICE, x->data[i]);
    x->data[i] = NULL;
  }
}

// Copies a pattern from the host and doubles it on the device, to save bus traffic.
static brim_status fill_random(machine *m, brim_dtype type, unsigned char *to, size_t bytes) {
  size_t done = bytes < PATTERN_BYTES ? bytes : PATTERN_BYTES;
  void *pattern = brim_alloc(done);
  if (!pattern) return brim_fail(BRIM_ENOMEM, "out of memory for random values");
  brim_random_values(type, pattern, done / brim_dtype_size(type));
  brim_status status = brim_device_copy(m->device, to, pattern, done, BRIM_COPY_H2D);
  brim_status synced = brim_device_sync(m->device);
  brim_free(pattern);
  BRIM_TRY(status);
  BRIM_TRY(synced);
  while (done < bytes) {
    size_t n = bytes - done < done ? bytes - done : done;
    BRIM_TRY(brim_device_copy(m->device, to + done, to, n, BRIM_COPY_D2D));
    done += n;
  }
  return BRIM_OK;
}

static brim_status make_buffers(machine *m, brim_dtype type, size_t bytes, buffers *x) {
  memset(x, 0, sizeof *x);
  brim_status status = BRIM_OK;
  for (int i = 0; i < 3 && !status; i++) {
    status = brim_device_alloc(m->device, BRIM_BUFFER_DEVICE, bytes, &x->data[i]);
  }
  for (int i = 0; i < 2 && !status; i++) {
    status = fill_random(m, type, (unsigned char *)x->data[i], bytes);
  }
  if (status) free_buffers(m, x);
  return status;
}

//---------------------------------- one call ----------------------------------

// Makes a call with two inputs and an output of the same shape.
static brim_op_call call_of(brim_op op, brim_dtype type, int64_t rows, int64_t cols) {
  const int64_t dim[] = {rows, cols};
  brim_op_call call = {.op = op, .in_count = 2, .out_count = 1};
  call.in[0] = call.in[1] = call.out[0] = brim_tensor_make(NULL, type, 2, dim);
  // take the library's first choice of algorithm: timing all of them would take longer than everything else here
  call.planning = true;
  return call;
}

// Measures the seconds of one call: the best median of `windows` windows, or a single run if `windows` is 0.
static brim_status time_call(machine *m, brim_op_call *call, const buffers *x, int windows,
                             double *seconds) {
  brim_device *device = m->device;
  BRIM_TRY(brim_op_prepare(device, call));
  brim_status status = BRIM_OK;
  if (call->workspace_bytes) {
    status = brim_device_alloc(device, BRIM_BUFFER_DEVICE, call->workspace_bytes, &call->workspace);
  }
  call->in[0].data = x->data[0];
  call->in[1].data = x->data[1];
  call->out[0].data = x->data[2];
  const brim_device_work work = {.call = call};
  if (!status) {
    status =
        windows ? brim_device_timer_measure(&m->timer, &work, m->sizes->window_ms, windows, seconds)
                : brim_device_timer_once(&m->timer, &work, seconds);
  }
  brim_status synced = brim_device_sync(device);
  if (!status) status = synced;
  brim_device_free(device, BRIM_BUFFER_DEVICE, call->workspace);
  call->workspace = NULL;
  brim_op_release(device, call);
  return status;
}

//---------------------------------- matrix products ----------------------------------

typedef struct product {
  brim_dtype type;
  bool tf32;
  int64_t most;  // largest side
} product;

static brim_op_call product_call(const product *p, int64_t n) {
  brim_op_call call = call_of(BRIM_OP_LINEAR, p->type, n, n);
  call.attr.tf32 = p->tf32;
  return call;
}

static size_t matrix_bytes(const product *p, int64_t n) {
  return (size_t)(n * n) * brim_dtype_size(p->type);
}

// Doubles the side from the smallest until a product takes too long, then measures the FLOP/s at that side. The buffers
// fit the largest side.
static brim_status climb(machine *m, const product *p, int64_t largest, const buffers *x,
                         double *flops) {
  const brim_machine_sizes *s = m->sizes;
  double seconds = 0;
  int64_t n = s->least < largest ? s->least : largest;
  for (;; n *= 2) {
    brim_op_call call = product_call(p, n);
    BRIM_TRY(time_call(m, &call, x, 0, &seconds));
    if (2 * n > largest || 8 * seconds > s->product_ms * 1e-3) break;
  }
  brim_op_call call = product_call(p, n);
  BRIM_TRY(time_call(m, &call, x, s->windows, &seconds));
  *flops = 2.0 * (double)n * (double)n * (double)n / seconds;
  return BRIM_OK;
}

static brim_status measure_product(machine *m, const product *p, double *flops) {
  brim_op_call call = product_call(p, p->most);
  BRIM_TRY(brim_device_supports(m->device, &call));
  int64_t n = p->most;
  while (n > m->sizes->least && 3 * matrix_bytes(p, n) > m->allowed) n /= 2;
  for (;; n /= 2) {
    buffers x;
    brim_status status = make_buffers(m, p->type, matrix_bytes(p, n), &x);
    if (!status) {
      status = climb(m, p, n, &x, flops);
      free_buffers(m, &x);
    }
    if (n < p->most) m->cut = true;
    if (!is_short(status) || n / 2 < m->sizes->least) return status;
  }
}

//---------------------------------- copies ----------------------------------

// Measures memory bandwidth by an addition, which reads two buffers and writes one. On CPUs an addition uses all
// threads, while a copy may use one.
static brim_status measure_add(machine *m, const buffers *x, size_t bytes, double *best) {
  const int64_t cols = 1024, rows = (int64_t)(bytes / sizeof(float)) / cols;
  brim_op_call call = call_of(BRIM_OP_ADD, BRIM_F32, rows, cols);
  double seconds = 0, moved = 3 * (double)bytes;
  BRIM_TRY(time_call(m, &call, x, 0, &seconds));
  if (moved / seconds < 0.5 * *best) return BRIM_OK;  // too slow to raise the ceiling
  BRIM_TRY(time_call(m, &call, x, m->sizes->windows, &seconds));
  *best = fmax(*best, moved / seconds);
  return BRIM_OK;
}

static brim_status copy_once(machine *m, size_t bytes, double *rate) {
  buffers x;
  double seconds = 0;
  BRIM_TRY(make_buffers(m, BRIM_F32, bytes, &x));
  const brim_device_work work = {
      .dst = x.data[2], .src = x.data[0], .bytes = bytes, .direction = BRIM_COPY_D2D};
  brim_status status = BRIM_OK;
  // measure twice on a GPU and drop the first result: an idle GPU raises its clocks meanwhile
  for (int gpu = m->device->info.kind == BRIM_DEVICE_GPU; gpu >= 0 && !status; gpu--) {
    m->timer.spread = 0;
    status = brim_device_timer_measure(&m->timer, &work, m->sizes->window_ms, m->sizes->windows,
                                       &seconds);
  }
  double best = 2 * (double)bytes / seconds;
  if (!status) {
    status = measure_add(m, &x, bytes, &best);
    if (status == BRIM_EUNSUPPORTED) {
      brim_status_clear();
      status = BRIM_OK;
    }
  }
  free_buffers(m, &x);
  if (!status) *rate = best;
  return status;
}

static brim_status measure_copy(machine *m, double *rate) {
  size_t bytes = m->sizes->copy_bytes;
  while (bytes > LEAST_COPY_BYTES && 3 * bytes > m->allowed) bytes /= 2;
  for (;; bytes /= 2) {
    brim_status status = copy_once(m, bytes, rate);
    if (bytes < m->sizes->copy_bytes) m->cut = true;
    if (!is_short(status) || bytes / 2 < LEAST_COPY_BYTES) return status;
  }
}

// Copies to the device, from pinned memory or from the allocator's.
static brim_status upload_once(machine *m, bool pinned, size_t bytes, double *rate) {
  void *from = NULL, *to = NULL;
  double seconds = 0;
  brim_status status = brim_device_alloc(m->device, BRIM_BUFFER_DEVICE, bytes, &to);
  if (!status && pinned) status = brim_device_alloc(m->device, BRIM_BUFFER_HOST, bytes, &from);
  if (!status && !pinned) {
    from = brim_alloc(bytes);
    if (!from) status = brim_fail(BRIM_ENOMEM, "out of memory for %zu bytes to copy", bytes);
  }
  if (!status) {
    memset(from, 0x5a, bytes);  // all unwritten pages share one physical page
    const brim_device_work work = {
        .dst = to, .src = from, .bytes = bytes, .direction = BRIM_COPY_H2D};
    status = brim_device_timer_measure(&m->timer, &work, m->sizes->window_ms, m->sizes->windows,
                                       &seconds);
    if (!status) *rate = (double)bytes / seconds;
  }
  if (pinned) {
    brim_device_free(m->device, BRIM_BUFFER_HOST, from);
  } else {
    brim_free(from);
  }
  brim_device_free(m->device, BRIM_BUFFER_DEVICE, to);
  return status;
}

static brim_status measure_upload(machine *m, bool pinned, double *rate) {
  size_t bytes = m->sizes->h2d_bytes;
  double spread = m->timer.spread;
  while (bytes > LEAST_COPY_BYTES && bytes > m->allowed) bytes /= 2;
  for (;; bytes /= 2) {
    brim_status status = upload_once(m, pinned, bytes, rate);
    if (!pinned) m->timer.spread = spread;  // ignore its spread: the host's caches disturb it
    if (bytes < m->sizes->h2d_bytes) m->cut = true;
    if (!is_short(status) || bytes / 2 < LEAST_COPY_BYTES) return status;
  }
}

//---------------------------------- launches ----------------------------------

enum { LAUNCHES = 256, LAUNCH_WINDOWS = 5, LAUNCH_SIDE = 16 };

// Launches small ops in a row and waits only for the last. This measures how fast the host launches.
static brim_status launch_window(machine *m, const brim_device_work *work, double *seconds) {
  BRIM_TRY(brim_device_sync(m->device));
  brim_time start = brim_clock_now();
  BRIM_TRY(brim_device_work_enqueue(m->device, work, LAUNCHES));
  BRIM_TRY(brim_device_sync(m->device));
  *seconds = (double)brim_time_since_ns(start, brim_clock_now()) * 1e-9 / LAUNCHES;
  return BRIM_OK;
}

static brim_status launch_all(machine *m, brim_op_call *call, const buffers *x, double *rate) {
  double best = (double)INFINITY, seconds = 0;
  call->in[0].data = x->data[0];
  call->in[1].data = x->data[1];
  call->out[0].data = x->data[2];
  const brim_device_work work = {.call = call};
  for (int w = 0; w < LAUNCH_WINDOWS; w++) {
    if (m->timer.stop && *m->timer.stop) return brim_fail(BRIM_EINTERRUPTED, "interrupted");
    BRIM_TRY(launch_window(m, &work, &seconds));
    if (w > 0) best = fmin(best, seconds);  // the first loads what is loaded at the first run
  }
  *rate = 1 / fmax(best, 1e-9);
  return BRIM_OK;
}

static brim_status measure_launch(machine *m, double *rate) {
  brim_op_call call = call_of(BRIM_OP_ADD, BRIM_F32, LAUNCH_SIDE, LAUNCH_SIDE);
  buffers x;
  BRIM_TRY(brim_device_supports(m->device, &call));
  BRIM_TRY(make_buffers(m, BRIM_F32, LAUNCH_SIDE * LAUNCH_SIDE * sizeof(float), &x));
  brim_status status = brim_op_prepare(m->device, &call);
  if (!status) {
    status = call.workspace_bytes ? brim_fail(BRIM_EUNSUPPORTED, "an addition needs a workspace")
                                  : launch_all(m, &call, &x, rate);
    brim_status synced = brim_device_sync(m->device);
    if (!status) status = synced;
    brim_op_release(m->device, &call);
  }
  free_buffers(m, &x);
  return status;
}

//---------------------------------- all ceilings ----------------------------------

// Chooses smaller sizes for a small machine, so that its free memory suffices most of the time.
static brim_machine_sizes for_memory(brim_machine_sizes s, uint64_t total_bytes) {
  const uint64_t part = total_bytes / 8;
  if (total_bytes == 0) return s;
  while (s.copy_bytes > 16 * MIB && 3 * s.copy_bytes > part) s.copy_bytes /= 2;
  while (s.most > s.least && 3 * sizeof(float) * (uint64_t)(s.most * s.most) > part) s.most /= 2;
  if (s.most_fp32 > s.most) s.most_fp32 = s.most;
  return s;
}

brim_machine_sizes brim_machine_sizes_of(const brim_device *device) {
  const brim_device_info *info = &device->info;
  if (info->kind == BRIM_DEVICE_GPU) {
    const brim_machine_sizes gpu = {.least = 2048,
                                    .most = 8192,
                                    .most_fp32 = 4096,
                                    .copy_bytes = 256 * MIB,
                                    .h2d_bytes = 64 * MIB,
                                    .product_ms = 10,
                                    .window_ms = 15,
                                    .windows = 3,
                                    .spread = 0.15};
    return for_memory(gpu, info->total_bytes);
  }
  brim_machine_sizes cpu = {.least = 256,
                            .most = 1024,
                            .most_fp32 = 1024,
                            .copy_bytes = 128 * MIB,
                            .h2d_bytes = 16 * MIB,
                            .product_ms = 40,
                            .window_ms = 30,
                            .windows = 3,
                            .spread = 0.15};
  // the reference backend is slow by design: a short measurement is enough
  if (strcmp(device->backend->name, "ref") == 0) {
    return (brim_machine_sizes){.least = 64,
                                .most = 256,
                                .most_fp32 = 256,
                                .copy_bytes = 16 * MIB,
                                .h2d_bytes = MIB,
                                .product_ms = 5,
                                .window_ms = 5,
                                .windows = 2,
                                .spread = 0.15};
  }
  // copy more than the last-level cache holds; the cache grows with the cores
  while (cpu.copy_bytes < 512 * MIB && cpu.copy_bytes < (size_t)info->threads * 16 * MIB) {
    cpu.copy_bytes *= 2;
  }
  return for_memory(cpu, info->total_bytes);
}

// Bytes to allocate: at most a quarter of the free memory, since other processes need some too.
static size_t allowed_bytes(brim_device *device, uint64_t limit) {
  uint64_t free_bytes = 0, total_bytes = 0, most = UINT64_MAX;
  if (brim_device_memory(device, &free_bytes, &total_bytes)) {
    brim_status_clear();
  } else if (total_bytes > 0) {
    most = free_bytes / 4;
  }
  if (limit > 0 && limit < most) most = limit;
  return most < SIZE_MAX ? (size_t)most : SIZE_MAX;
}

// Ends the measurement of one ceiling. A failure is logged and leaves the ceiling unknown; only an interruption is
// returned.
static brim_status ignore_failure(machine *m, const char *name, brim_status status) {
  if (!status || status == BRIM_EINTERRUPTED) return status;
  brim_log_debug("measure", "cannot measure %s: %s", name, brim_status_detail());
  brim_status_clear();
  if (status != BRIM_EUNSUPPORTED) m->cut = true;
  return BRIM_OK;
}

static brim_status measure_products(machine *m, brim_machine_ceilings *out) {
  const brim_machine_sizes *s = m->sizes;
  const struct {
    const char *name;
    product how;
    double *flops;
  } products[] = {
      {"gemm_fp32_flops", {BRIM_F32, false, s->most_fp32}, &out->gemm_fp32_flops},
      {"gemm_tf32_flops", {BRIM_F32, true, s->most}, &out->gemm_tf32_flops},
      {"gemm_fp16_flops", {BRIM_F16, false, s->most}, &out->gemm_fp16_flops},
      {"gemm_bf16_flops", {BRIM_BF16, false, s->most}, &out->gemm_bf16_flops},
  };
  for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
    // skip TF32 on other devices, which would silently use fp32
    if (products[i].how.tf32 && m->device->info.kind != BRIM_DEVICE_GPU) continue;
    BRIM_TRY(ignore_failure(m, products[i].name,
                            measure_product(m, &products[i].how, products[i].flops)));
  }
  return BRIM_OK;
}

// Measures all ceilings. Copies come first: products depend on clocks, which may still rise.
static brim_status measure_all(machine *m, brim_machine_ceilings *out) {
  BRIM_TRY(ignore_failure(m, "copy_bytes_per_s", measure_copy(m, &out->copy_bytes_per_s)));
  if (!m->device->info.host_memory) {
    BRIM_TRY(ignore_failure(m, "h2d_pinned_bytes_per_s",
                            measure_upload(m, true, &out->h2d_pinned_bytes_per_s)));
    BRIM_TRY(ignore_failure(m, "h2d_pageable_bytes_per_s",
                            measure_upload(m, false, &out->h2d_pageable_bytes_per_s)));
  }
  BRIM_TRY(ignore_failure(m, "launches_per_s", measure_launch(m, &out->launches_per_s)));
  return measure_products(m, out);
}

//---------------------------------- other programs ----------------------------------

// The kernel counts in hundredths of a second: shorter times are meaningless.
#define LEAST_SECONDS 0.2

static void read_host(const brim_machine_options *options, brim_host_sample *out) {
  brim_host_provider system = brim_host_provider_system("");
  if (brim_host_read_sample(options->host ? options->host : &system, out)) {
    brim_host_sample_clear(out);
    brim_status_clear();
  }
}

// Other programs' share of the device since `before`; NaN = unknown.
static double others_share(brim_device *device, const brim_machine_options *options,
                           const brim_host_sample *before) {
  if (!device->info.host_memory) {
    if (!options->memory || !options->memory->uuid[0]) return (double)NAN;
    brim_result shared;
    brim_result_init(&shared);
    if (brim_sharing_measure(device, options->memory, &shared)) brim_status_clear();
    double percent = shared.shared_percent;
    brim_result_deinit(&shared);
    return percent / 100;
  }
  brim_host_sample after;
  read_host(options, &after);
  brim_host_usage usage = brim_host_usage_between(before, &after);
  return usage.seconds >= LEAST_SECONDS ? usage.others_cpu_percent / 100 : (double)NAN;
}

//---------------------------------- the machine ----------------------------------

brim_status brim_machine_measure(brim_device *device, const brim_machine_sizes *sizes,
                                 const brim_machine_options *options, brim_machine_ceilings *out,
                                 bool *cut) {
  machine m = {.device = device, .sizes = sizes};
  brim_host_sample before;
  read_host(options, &before);
  brim_machine_ceilings_init(out);
  m.allowed = allowed_bytes(device, options->memory_limit);
  brim_status status =
      ignore_failure(&m, "any ceiling", brim_device_timer_init(&m.timer, device, options->stop));
  if (!status && m.timer.end) status = measure_all(&m, out);
  brim_device_timer_deinit(&m.timer);
  if (!status) out->load = others_share(device, options, &before);
  brim_host_forget_peak();  // memory used here is not the job's
  *cut = m.cut || m.timer.spread > sizes->spread;
  return status;
}
