// The session with CUPTI: finding the library, attaching, collecting records, detaching, and sums over the records.

#include "profile/cupti/cupti_int.h"

#include <glob.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

//------------------------------------------- library -------------------------------------------
// Finding libcupti, opening it, and what its error codes mean to a user.

//---------------------------------- places of the library ----------------------------------

// Newest first. The unversioned name is a development link; it may lead to any version, which the
// session checks.
static const char *const versions[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
enum { VERSIONS = sizeof versions / sizeof *versions };

typedef struct name_list {
  char **names;
  size_t count, capacity;
} name_list;

static brim_status add_name(name_list *list, const char *name) {
  if (list->count + 1 >= list->capacity) {  // room for the NULL at the end
    size_t capacity = list->capacity ? 2 * list->capacity : 16;
    char **grown = (char **)brim_realloc(list->names, capacity * sizeof *grown);
    if (!grown) return brim_fail(BRIM_ENOMEM, "out of memory while looking for CUPTI");
    list->names = grown;
    list->capacity = capacity;
  }
  list->names[list->count] = brim_strdup(name);
  if (!list->names[list->count]) {
    return brim_fail(BRIM_ENOMEM, "out of memory while looking for CUPTI");
  }
  list->names[++list->count] = NULL;
  return BRIM_OK;
}

// Adds the files that match root + prefix + "/" + pattern. A prefix is a folder of the user: skip it if it has a
// character that glob(3) treats specially.
static brim_status add_matches(name_list *list, const char *root, const char *prefix,
                               const char *pattern) {
  if (!prefix || prefix[0] != '/' || strpbrk(prefix, "*?[\\")) return BRIM_OK;
  brim_str text;
  brim_str_init(&text);
  brim_str_printf(&text, "%s%s/%s", root ? root : "", prefix, pattern);
  brim_status status = brim_str_status(&text);
  glob_t found = {0};
  int code = status ? GLOB_NOMATCH : glob(text.data, 0, NULL, &found);
  if (code == GLOB_NOSPACE) status = BRIM_ENOMEM;
  for (size_t i = 0; code == 0 && i < found.gl_pathc && !status; i++) {
    status = add_name(list, found.gl_pathv[i]);
  }
  if (code == 0) globfree(&found);
  brim_str_deinit(&text);
  return status ? brim_fail(status, "out of memory while looking for CUPTI") : BRIM_OK;
}

// Adds the Python packages in a folder that has bin/ and lib/: nvidia/cuda_cupti/lib of CUDA 12, nvidia/cu13/lib of
// CUDA 13.
static brim_status add_python(name_list *list, const char *root, const char *prefix,
                              const char *version) {
  static const char *const packages[] = {"site-packages", "dist-packages"};
  for (int i = 0; i < 2; i++) {
    char pattern[128];
    snprintf(pattern, sizeof pattern, "lib/python3*/%s/nvidia/*/lib/%s", packages[i], version);
    BRIM_TRY(add_matches(list, root, prefix, pattern));
  }
  return BRIM_OK;
}

// Adds the Python packages beside every .../bin in $PATH.
static brim_status add_path(name_list *list, const brim_cupti_places *places, const char *version) {
  const char *at = places->path ? places->path : "";
  while (*at) {
    size_t n = strcspn(at, ":");
    if (n > 4 && memcmp(at + n - 4, "/bin", 4) == 0) {
      char *prefix = brim_strndup(at, n - 4);
      if (!prefix) return brim_fail(BRIM_ENOMEM, "out of memory while looking for CUPTI");
      brim_status status = add_python(list, places->root, prefix, version);
      brim_free(prefix);
      BRIM_TRY(status);
    }
    at += n + (at[n] == ':');
  }
  return BRIM_OK;
}

static brim_status add_version(name_list *list, const brim_cupti_places *p, const char *version) {
  BRIM_TRY(add_name(list, version));  // the loader searches its own folders
  const char *const toolkits[] = {p->cuda_home, p->cuda_path, "/usr/local/cuda"};
  for (int i = 0; i < 3; i++) {
    char pattern[64];
    snprintf(pattern, sizeof pattern, "extras/CUPTI/lib64/%s", version);
    BRIM_TRY(add_matches(list, p->root, toolkits[i], pattern));
    snprintf(pattern, sizeof pattern, "lib64/%s", version);
    BRIM_TRY(add_matches(list, p->root, toolkits[i], pattern));
  }
  char pattern[64];
  snprintf(pattern, sizeof pattern, "lib/%s", version);
  BRIM_TRY(add_matches(list, p->root, p->conda_prefix, pattern));
  BRIM_TRY(add_python(list, p->root, p->virtual_env, version));
  BRIM_TRY(add_python(list, p->root, p->conda_prefix, version));
  BRIM_TRY(add_path(list, p, version));
  if (p->home && p->home[0]) {
    char *local = brim_fs_join(p->home, ".local");
    if (!local) return brim_fail(BRIM_ENOMEM, "out of memory while looking for CUPTI");
    brim_status status = add_python(list, p->root, local, version);
    brim_free(local);
    BRIM_TRY(status);
  }
  return add_python(list, p->root, "/usr/local", version);
}

brim_status brim_cupti_names(const brim_cupti_places *places, char ***out) {
  *out = NULL;
  name_list list = {0};
  for (int i = 0; i < VERSIONS; i++) {
    brim_status status = add_version(&list, places, versions[i]);
    if (status) {
      brim_cupti_names_free(list.names);
      return status;
    }
  }
  *out = list.names;
  return BRIM_OK;
}

void brim_cupti_names_free(char **names) {
  for (char **name = names; name && *name; name++) brim_free(*name);
  brim_free(names);
}

//---------------------------------- opening ----------------------------------

// Finds and opens the library. BRIM_EUNSUPPORTED if none opens.
static brim_status open_library(brim_cupti_api *api, brim_dl **dl) {
  *dl = NULL;
  const brim_cupti_places places = {.root = "",
                                    .cuda_home = getenv("CUDA_HOME"),
                                    .cuda_path = getenv("CUDA_PATH"),
                                    .virtual_env = getenv("VIRTUAL_ENV"),
                                    .conda_prefix = getenv("CONDA_PREFIX"),
                                    .home = getenv("HOME"),
                                    .path = getenv("PATH")};
  const brim_dl_symbol symbols[] = {
      {"cuptiGetVersion", (void **)&api->version, true},
      {"cuptiGetResultString", (void **)&api->result_string, false},
      {"cuptiSubscribe", (void **)&api->subscribe, true},
      {"cuptiSubscribe_v2", (void **)&api->subscribe_v2, false},
      {"cuptiUnsubscribe", (void **)&api->unsubscribe, true},
      {"cuptiActivitySetAttribute", (void **)&api->set_attribute, false},
      {"cuptiActivityRegisterCallbacks", (void **)&api->register_callbacks, true},
      {"cuptiActivityEnable", (void **)&api->enable, true},
      {"cuptiActivityDisable", (void **)&api->disable, true},
      {"cuptiActivityFlushAll", (void **)&api->flush, true},
      {"cuptiActivityGetNextRecord", (void **)&api->next_record, true},
      {"cuptiActivityGetNumDroppedRecords", (void **)&api->dropped, false},
      {"cuptiGetTimestamp", (void **)&api->timestamp, true},
  };
  char **names = NULL;
  BRIM_TRY(brim_cupti_names(&places, &names));
  // Never close the library: it has threads and exit handlers of its own.
  brim_status status =
      brim_dl_open((const char *const *)names, symbols, sizeof symbols / sizeof *symbols, true, dl);
  brim_cupti_names_free(names);
  if (status != BRIM_ENOENT) return status;
  return brim_fail(
      BRIM_EUNSUPPORTED,
      "cannot trace the GPU: CUPTI not found (%s); install the CUDA toolkit or the Python package "
      "nvidia-cuda-cupti, or add the folder of libcupti.so to LD_LIBRARY_PATH",
      brim_status_detail());
}

//---------------------------------- error codes ----------------------------------

// Returns the status for a failure code of CUPTI, and sets the detail. `what` is the name of the call.
static brim_status fail(const brim_cupti_api *api, const char *what, int code) {
  switch (code) {
    case BRIM_CUPTI_INSUFFICIENT_PRIVILEGES:
    case BRIM_CUPTI_VIRTUAL_INSUFFICIENT_PRIVILEGES:
      return brim_fail(BRIM_EUNSUPPORTED,
                       "CUPTI: %s: no permission to trace the GPU; run as root, or load the NVIDIA "
                       "driver with NVreg_RestrictProfilingToAdminUsers=0",
                       what);
    case BRIM_CUPTI_MULTIPLE_SUBSCRIBERS:
      return brim_fail(BRIM_EUNSUPPORTED,
                       "CUPTI: another tool is tracing this process (Nsight Systems, Nsight "
                       "Compute, cuda-gdb or a profiler); run without it");
    case BRIM_CUPTI_OUT_OF_MEMORY:
      return brim_fail(BRIM_EOOM, "CUPTI: %s: not enough GPU memory for its buffers (about 10 MB)",
                       what);
    default:
      break;
  }
  const char *text = NULL;
  if (api->result_string && api->result_string(code, &text) != BRIM_CUPTI_SUCCESS) text = NULL;
  return brim_fail(BRIM_EUNSUPPORTED, "CUPTI: %s: %s (%d)", what, text ? text : brim_tr("failed"),
                   code);
}

//--------------------------------------------- sums ---------------------------------------------
// From CUPTI's records to sums: the fields that are kept of a record, and the union of intervals. All functions here
// are pure.

//---------------------------------- one record ----------------------------------

static bool work_of_copy(uint8_t copy_kind, brim_cupti_work *out) {
  switch (copy_kind) {
    case BRIM_CUPTI_COPY_HTOH:
      return false;
    case BRIM_CUPTI_COPY_HTOD:
    case BRIM_CUPTI_COPY_HTOA:
      *out = BRIM_CUPTI_WORK_H2D;
      return true;
    case BRIM_CUPTI_COPY_DTOH:
    case BRIM_CUPTI_COPY_ATOH:
      *out = BRIM_CUPTI_WORK_D2H;
      return true;
    case BRIM_CUPTI_COPY_DTOD:
    case BRIM_CUPTI_COPY_ATOA:
    case BRIM_CUPTI_COPY_ATOD:
    case BRIM_CUPTI_COPY_DTOA:
    case BRIM_CUPTI_COPY_PTOP:
      *out = BRIM_CUPTI_WORK_D2D;
      return true;
    default:
      *out = BRIM_CUPTI_WORK_COPY;
      return true;
  }
}

static brim_cupti_take set_times(uint64_t start, uint64_t end, brim_cupti_record *out) {
  if ((start == 0 && end == 0) || end < start) return BRIM_CUPTI_LOST;
  out->start = start;
  out->end = end;
  return BRIM_CUPTI_TAKEN;
}

// Reads the fields that brim keeps from one of CUPTI's records. The record is copied and not cast, since the library's
// struct is longer and of another type.
static brim_cupti_take brim_cupti_read(const void *record, brim_cupti_record *out) {
  int32_t kind;
  memcpy(&kind, record, sizeof kind);
  *out = (brim_cupti_record){0};
  switch (kind) {
    case BRIM_CUPTI_KIND_KERNEL:
    case BRIM_CUPTI_KIND_CONCURRENT_KERNEL:
    case BRIM_CUPTI_KIND_MEMSET: {
      brim_cupti_kernel k;
      memcpy(&k, record, sizeof k);
      bool memset_record = kind == BRIM_CUPTI_KIND_MEMSET;
      out->work = memset_record ? BRIM_CUPTI_WORK_MEMSET : BRIM_CUPTI_WORK_KERNEL;
      return set_times(k.start, k.end, out);
    }
    case BRIM_CUPTI_KIND_MEMCPY:
    case BRIM_CUPTI_KIND_MEMCPY2: {
      brim_cupti_copy c;
      memcpy(&c, record, sizeof c);
      if (!work_of_copy(c.copy_kind, &out->work)) return BRIM_CUPTI_OTHER;
      out->bytes = c.bytes;
      uint8_t host_side = out->work == BRIM_CUPTI_WORK_D2H ? c.dst_kind : c.src_kind;
      out->pageable = host_side == BRIM_CUPTI_MEMORY_PAGEABLE;
      return set_times(c.start, c.end, out);
    }
    default:
      return BRIM_CUPTI_OTHER;
  }
}

//---------------------------------- all records ----------------------------------

static double ms(uint64_t ns) { return (double)ns / 1e6; }

// Drops records outside and cuts records that are half inside; returns how many are left.
static size_t clip(brim_cupti_record *records, size_t count, uint64_t begin, uint64_t end) {
  size_t kept = 0;
  for (size_t i = 0; i < count; i++) {
    brim_cupti_record r = records[i];
    if (r.end < begin || r.start > end) continue;
    if (r.start < begin) r.start = begin;
    if (r.end > end) r.end = end;
    records[kept++] = r;
  }
  return kept;
}

static int by_start(const void *a, const void *b) {
  const brim_cupti_record *x = (const brim_cupti_record *)a, *y = (const brim_cupti_record *)b;
  return x->start < y->start ? -1 : x->start > y->start;
}

// The time that intervals cover so far. They must come in the order of their starts.
typedef struct cover {
  uint64_t sum, until;
} cover;

static void cover_add(cover *c, uint64_t start, uint64_t end) {
  if (start < c->until) start = c->until;
  if (end <= start) return;
  c->sum += end - start;
  c->until = end;
}

void brim_cupti_sum(brim_cupti_record *records, size_t count, uint64_t begin, uint64_t end,
                    brim_gpu_trace_sum *out) {
  if (end < begin) end = begin;  // the clock was set back
  count = clip(records, count, begin, end);
  if (count > 1) qsort(records, count, sizeof *records, by_start);
  *out = (brim_gpu_trace_sum){.wall_ms = ms(end - begin)};
  cover busy = {0}, kernels = {0};
  uint64_t ns[BRIM_CUPTI_WORK_COUNT] = {0}, bytes[BRIM_CUPTI_WORK_COUNT] = {0};
  for (size_t i = 0; i < count; i++) {
    const brim_cupti_record *r = &records[i];
    cover_add(&busy, r->start, r->end);
    ns[r->work] += r->end - r->start;
    bytes[r->work] += r->bytes;
    if (r->work == BRIM_CUPTI_WORK_KERNEL) {
      cover_add(&kernels, r->start, r->end);
      out->kernels++;
    } else if (r->work != BRIM_CUPTI_WORK_MEMSET) {
      out->copies++;
    }
    bool host_copy = r->work == BRIM_CUPTI_WORK_H2D || r->work == BRIM_CUPTI_WORK_D2H;
    if (host_copy && r->pageable) out->pageable_bytes += r->bytes;
  }
  out->busy_ms = ms(busy.sum);
  out->kernel_ms = ms(kernels.sum);
  out->h2d_ms = ms(ns[BRIM_CUPTI_WORK_H2D]);
  out->d2h_ms = ms(ns[BRIM_CUPTI_WORK_D2H]);
  out->d2d_ms = ms(ns[BRIM_CUPTI_WORK_D2D]);
  out->memset_ms = ms(ns[BRIM_CUPTI_WORK_MEMSET]);
  out->h2d_bytes = bytes[BRIM_CUPTI_WORK_H2D];
  out->d2h_bytes = bytes[BRIM_CUPTI_WORK_D2H];
}

//-------------------------------------------- events --------------------------------------------
// Makes events of a trace from CUPTI's records, and kernel names for people.

//---------------------------------- records ----------------------------------

static brim_trace_event *detail_add(brim_trace *to, brim_trace_kind kind, const char *name,
                                    uint64_t start, uint64_t end) {
  brim_trace_event *e = brim_trace_add(to, kind, name);
  if (!e) return NULL;
  e->start_ns = (int64_t)start;
  e->end_ns = (int64_t)end;
  return e;
}

static bool is_untimed(uint64_t start, uint64_t end) {
  return (start == 0 && end == 0) || end < start;
}

static brim_cupti_take take_kernel(const void *record, brim_trace *to) {
  brim_cupti_kernel_detail k;
  memcpy(&k, record, sizeof k);
  if (is_untimed(k.start, k.end)) return BRIM_CUPTI_LOST;
  brim_trace_event *e = detail_add(to, BRIM_TRACE_KERNEL, k.name ? k.name : "?", k.start, k.end);
  if (!e) return BRIM_CUPTI_LOST;
  e->device = (int32_t)k.device;
  e->stream = (int32_t)k.stream;
  e->correlation = k.correlation;
  for (int i = 0; i < 3; i++) {
    e->grid[i] = (uint32_t)k.grid[i];
    e->block[i] = (uint32_t)k.block[i];
  }
  return BRIM_CUPTI_TAKEN;
}

static const struct {
  const char *name;
  brim_trace_copy copy;
} copies[BRIM_CUPTI_WORK_COUNT] = {
    [BRIM_CUPTI_WORK_H2D] = {"Memcpy HtoD", BRIM_TRACE_COPY_H2D},
    [BRIM_CUPTI_WORK_D2H] = {"Memcpy DtoH", BRIM_TRACE_COPY_D2H},
    [BRIM_CUPTI_WORK_D2D] = {"Memcpy DtoD", BRIM_TRACE_COPY_D2D},
    [BRIM_CUPTI_WORK_COPY] = {"Memcpy", BRIM_TRACE_COPY_NONE},
    [BRIM_CUPTI_WORK_MEMSET] = {"Memset", BRIM_TRACE_COPY_NONE},
};

static brim_cupti_take take_copy(const void *record, const brim_cupti_record *kept,
                                 brim_trace *to) {
  brim_cupti_copy_detail c;
  memcpy(&c, record, sizeof c);
  bool fill = kept->work == BRIM_CUPTI_WORK_MEMSET;
  brim_trace_event *e = detail_add(to, fill ? BRIM_TRACE_MEMSET : BRIM_TRACE_COPY,
                                   copies[kept->work].name, kept->start, kept->end);
  if (!e) return BRIM_CUPTI_LOST;
  e->device = (int32_t)c.device;
  e->stream = (int32_t)c.stream;
  // copies between two GPUs have it in another place
  e->correlation = c.copy.kind == BRIM_CUPTI_KIND_MEMCPY2 ? 0 : c.correlation;
  e->bytes = c.copy.bytes;
  e->copy = copies[kept->work].copy;
  e->pageable = kept->pageable;
  return BRIM_CUPTI_TAKEN;
}

static brim_cupti_take take_sync(const void *record, brim_trace *to) {
  brim_cupti_sync s;
  memcpy(&s, record, sizeof s);
  if (s.type == BRIM_CUPTI_SYNC_STREAM_WAIT_EVENT || is_untimed(s.start, s.end)) {
    return BRIM_CUPTI_OTHER;
  }
  brim_trace_event *e = detail_add(to, BRIM_TRACE_SYNC, "sync", s.start, s.end);
  if (!e) return BRIM_CUPTI_LOST;
  e->correlation = s.correlation;
  return BRIM_CUPTI_TAKEN;
}

// Adds one of CUPTI's records as an event, with the library's own times and the kernel's name unchanged.
// BRIM_CUPTI_LOST without memory.
static brim_cupti_take brim_cupti_detail(const void *record, brim_trace *to) {
  int32_t kind;
  brim_cupti_record kept;
  memcpy(&kind, record, sizeof kind);
  switch (kind) {
    case BRIM_CUPTI_KIND_KERNEL:
    case BRIM_CUPTI_KIND_CONCURRENT_KERNEL:
      return take_kernel(record, to);
    case BRIM_CUPTI_KIND_SYNCHRONIZATION:
      return take_sync(record, to);
    default: {
      brim_cupti_take taken = brim_cupti_read(record, &kept);
      return taken == BRIM_CUPTI_TAKEN ? take_copy(record, &kept, to) : BRIM_CUPTI_OTHER;
    }
  }
}

//---------------------------------- names ----------------------------------

// Finds the beginning of the argument list: the "(" that the last ")" closes, outside of <...>.
static size_t arguments_at(const char *text, size_t n) {
  int depth = 0;
  if (n == 0 || text[n - 1] != ')') return n;
  for (size_t i = n; i-- > 0;) {
    if (text[i] == ')') depth++;
    if (text[i] == '(' && --depth == 0) return i > 0 ? i : n;
  }
  return n;
}

void brim_kernel_name(const char *plain, char *out, size_t size) {
  if (strncmp(plain, "void ", 5) == 0) plain += 5;
  size_t n = arguments_at(plain, strlen(plain));
  if (n >= size) n = size - 1;
  memcpy(out, plain, n);
  out[n] = '\0';
}

// Finds the demangler of a C++ library; NULL = there is none.
static brim_demangle_fn brim_demangler(brim_dl **dl) {
  static const char *const names[] = {"libstdc++.so.6", "libc++abi.so.1", NULL};
  void *address = NULL;
  const brim_dl_symbol symbols[] = {{"__cxa_demangle", &address, true}};
  if (!*dl && brim_dl_open(names, symbols, 1, true, dl) != BRIM_OK) {
    brim_status_clear();
    return NULL;
  }
  address = brim_dl_find(*dl, "__cxa_demangle");
  brim_demangle_fn fn = NULL;
  memcpy(&fn, &address, sizeof fn);
  return fn;
}

const char *brim_cupti_plain_name(brim_demangle_fn demangle, const char *name, brim_trace *texts) {
  char text[256];
  int status = -1;
  char *plain =
      demangle && strncmp(name, "_Z", 2) == 0 ? demangle(name, NULL, NULL, &status) : NULL;
  brim_kernel_name(plain && status == 0 ? plain : name, text, sizeof text);
  free(plain);  // the C++ library allocates with malloc
  return brim_trace_text(texts, text);
}

//------------------------------------------- session -------------------------------------------
// The session with CUPTI: attach, collect records between start and stop, detach. Records come on the library's own
// thread.
//
// GRAPH_TRACE stays off: with it the library makes one record for a whole graph and none for its kernels.

enum {
  BUFFER_BYTES = 2 << 20,  // about 9,700 kernels
  MAX_BUFFERS = 64,        // buffers that the library holds at once
  FIRST_RECORDS = 4096,    // the array grows by doubling
  MAX_RECORDS = 2 << 20,   // 64 MiB; far more than a window of steps has
  DEVICE_BUFFERS = 8       // buffers of 3.2 MB on the GPU; CUPTI's default is 250
};

static const struct {
  int kind;
  bool required;
  bool detail;  // enabled only if details are kept
} kinds[] = {{BRIM_CUPTI_KIND_CONCURRENT_KERNEL, true, false},
             {BRIM_CUPTI_KIND_MEMCPY, true, false},
             {BRIM_CUPTI_KIND_MEMSET, true, false},
             {BRIM_CUPTI_KIND_MEMCPY2, false, false},
             {BRIM_CUPTI_KIND_SYNCHRONIZATION, false, true}};
enum { KINDS = sizeof kinds / sizeof *kinds };

struct brim_gpu_trace {
  brim_cupti_api api;
  brim_dl *dl;  // NULL if a table of calls was given
  void *subscriber;
  uint32_t version;
  bool started, enabled[KINDS];
  uint64_t begin;
  int64_t begin_clock_ns;  // `begin` by the host's clock
  brim_dl *cxx;            // the library of the demangler
  // Under cupti_process.lock:
  bool detailed;
  brim_trace details;  // with the library's own times
  bool collecting;
  brim_cupti_record *records;
  size_t count, capacity, limit;
  int64_t lost;
};

// The one exception to 'no mutable file-scope state'. CUPTI has one client per process, and its callbacks get no
// pointer from brim, so they find the session here. Callbacks may still come after a session is over: `next_record`
// outlives the session, and the library is never closed. Never call CUPTI with the lock held: it calls back while it
// holds locks of its own.
static struct {
  pthread_mutex_t lock;
  brim_gpu_trace *trace;  // the open session, or NULL
  int (*next_record)(uint8_t *buffer, size_t valid, void **record);
  bool may_refuse;  // a library before CUDA 12.9 does not survive a refused buffer
  size_t buffers;   // buffers that the library holds
} cupti_process = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void lock(void) { pthread_mutex_lock(&cupti_process.lock); }
static void unlock(void) { pthread_mutex_unlock(&cupti_process.lock); }

//---------------------------------- callbacks ----------------------------------

// CUPTI requires this callback. It never runs, since no event is enabled.
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
  *max_records = 0;  // no limit but the buffer's size
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

static void take_record(const void *record) {
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
    take_record(record);
  }
  brim_free(buffer);
  lock();
  cupti_process.buffers--;
  brim_gpu_trace *t = cupti_process.trace;
  // records behind an incomplete record cannot be read
  if (t && t->collecting && code != BRIM_CUPTI_MAX_LIMIT_REACHED) t->lost++;
  unlock();
}

//---------------------------------- attaching ----------------------------------

static brim_status check_version(brim_gpu_trace *t) {
  int code = t->api.version(&t->version);
  if (code != BRIM_CUPTI_SUCCESS) return fail(&t->api, "cuptiGetVersion", code);
  if (t->version < BRIM_CUPTI_VERSION_11_8) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "CUPTI is too old (version %u, brim needs %d); install CUDA 11.8 or later",
                     (unsigned)t->version, BRIM_CUPTI_VERSION_11_8);
  }
  return BRIM_OK;
}

// Makes `t` the one session of this process, before CUPTI is called.
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
      // the other tool has left meanwhile: report the first failure
      t->api.unsubscribe(subscriber);
    } else if (other[0]) {
      return brim_fail(BRIM_EUNSUPPORTED,
                       "CUPTI: another tool is tracing this process (%s); run without it", other);
    }
  }
  brim_status status = fail(&t->api, "cuptiSubscribe", code);
  if (code == BRIM_CUPTI_NOT_INITIALIZED || code == BRIM_CUPTI_NOT_COMPATIBLE ||
      code == BRIM_CUPTI_UNKNOWN) {
    return brim_fail(
        BRIM_EUNSUPPORTED,
        "%s: CUPTI does not start; it needs an NVIDIA driver at least as new as itself",
        brim_status_detail());
  }
  return status;
}

// The library stays in the process. cuptiFinalize would make later launches a little faster, but it breaks graphs that
// were recorded before: with CUDA 13.0 their next launch fails and destroys the context.
static void detach(brim_gpu_trace *t) { t->api.unsubscribe(t->subscriber); }

static brim_status attach(brim_gpu_trace *t) {
  // CUPTI allows one subscriber, so subscribing keeps other tools out.
  int code = t->api.subscribe(&t->subscriber, on_event, NULL);
  if (code != BRIM_CUPTI_SUCCESS) return fail_subscribe(t, code);
  if (t->api.set_attribute) {  // if CUPTI refuses, it only uses more memory
    size_t value = DEVICE_BUFFERS, size = sizeof value;
    t->api.set_attribute(BRIM_CUPTI_ATTR_DEVICE_BUFFER_POOL_LIMIT, &size, &value);
  }
  code = t->api.register_callbacks(on_request, on_complete);
  if (code == BRIM_CUPTI_SUCCESS) return BRIM_OK;
  brim_status status = fail(&t->api, "cuptiActivityRegisterCallbacks", code);
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

// Opens a session with the table of calls in `t`. Takes ownership of `t`.
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
  brim_status status = open_library(&t->api, &t->dl);
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

// Disables all kinds; returns the first code that is not success.
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
      return fail(&t->api, "cuptiActivityEnable", code);
    }
  }
  return BRIM_OK;
}

brim_status brim_gpu_trace_start(brim_gpu_trace *trace) {
  if (trace->started) return brim_fail(BRIM_ESTATE, "the trace of the GPU is already running");
  size_t before;  // reading resets the count of earlier losses
  if (trace->api.dropped) (void)trace->api.dropped(NULL, 0, &before);
  set_collecting(trace, true);
  brim_status status = enable_all(trace);
  // Enabling prepares every kernel that is loaded, which may take seconds: the clock runs from here.
  int code = status ? BRIM_CUPTI_SUCCESS : trace->api.timestamp(&trace->begin);
  trace->begin_clock_ns = brim_clock_now().ns;
  if (code != BRIM_CUPTI_SUCCESS) status = fail(&trace->api, "cuptiGetTimestamp", code);
  if (status) {
    disable_all(trace);
    set_collecting(trace, false);
    return status;
  }
  trace->started = true;
  return BRIM_OK;
}

// Collects the records that the library still holds.
static brim_status finish_collecting(brim_gpu_trace *t) {
  // Flush complete buffers, disable, then force out the rest. The code of the second flush counts.
  (void)t->api.flush(0);
  int disabled = disable_all(t);
  int flushed = t->api.flush(BRIM_CUPTI_FLUSH_FORCED);
  set_collecting(t, false);
  t->started = false;
  if (flushed != BRIM_CUPTI_SUCCESS) {
    return fail(&t->api, "cuptiActivityFlushAll", flushed);
  }
  if (disabled != BRIM_CUPTI_SUCCESS) {
    return fail(&t->api, "cuptiActivityDisable", disabled);
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
  BRIM_TRY(finish_collecting(trace));
  if (code != BRIM_CUPTI_SUCCESS) return fail(&trace->api, "cuptiGetTimestamp", code);
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
  if (trace->started) (void)finish_collecting(trace);
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

// Maps each kernel name to its name for people, since demangling is slow.
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
