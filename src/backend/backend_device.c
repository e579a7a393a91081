// Devices as the other rooms see them: opening by spec, the wrappers that apply the defaults of a
// backend's optional members, and exchanges between the devices of a training's ranks. Only the order of
// "auto" and its hints name backends here.
#include "backend/backend_exchange.h"

#include <stdio.h>
#include <string.h>

struct brim_event {
  void *impl;      // backend's own event, or NULL
  brim_time time;  // host clock at record, for backends without events
  bool recorded;
};

//---------------------------------- opening ----------------------------------

// "cuda:1" -> "cuda", 1. Index -1 when none is given.
static brim_status parse_spec(const char *spec, char name[32], int *index) {
  const char *colon = strchr(spec, ':');
  size_t n = colon ? (size_t)(colon - spec) : strlen(spec);
  *index = -1;
  if (n == 0 || n >= 32) {
    return brim_fail(BRIM_EINVAL, "unknown device '%s'; choose auto, ref, cpu or cuda", spec);
  }
  memcpy(name, spec, n);
  name[n] = '\0';
  if (!colon) return BRIM_OK;
  int64_t number = 0;
  if (!brim_parse_i64(colon + 1, &number) || number < 0 || number > 1023) {
    return brim_fail(BRIM_EINVAL, "device '%s': '%s' is not a device number; write %s:0", spec,
                     colon + 1, name);
  }
  *index = (int)number;
  return BRIM_OK;
}

// Names the backend to use when `name` is not available.
static const char *fallback_for(const char *name) {
  if (strcmp(name, "cuda") == 0) return "cpu";
  return "ref";
}

// Why the plug-in of this name refused to load; NULL if it did not refuse.
static const char *refusal_of(const brim_registry *registry, const char *name) {
  for (size_t i = 0; i < brim_registry_plugin_count(registry); i++) {
    const char *plugin, *why;
    brim_registry_plugin(registry, i, &plugin, NULL, NULL, &why);
    if (why && strcmp(plugin, name) == 0) return why;
  }
  return NULL;
}

// Fails because a backend named by the user is not available.
static brim_status fail_missing(const brim_registry *registry, const char *name) {
  const char *why = refusal_of(registry, name);
  if (why) {
    return brim_fail(BRIM_ENOENT, "cannot use %s: %s; run with --device %s", name, why,
                     fallback_for(name));
  }
  if (strcmp(name, "cuda") == 0) {
    return brim_fail(
        BRIM_ENOENT,
        "cannot use cuda: its plug-in libbrim_cuda.so was not found; build brim with CUDA (cmake "
        "-DBRIM_CUDA=ON), add its folder to BRIM_PLUGIN_PATH, or run with --device cpu");
  }
  if (strcmp(name, "cpu") == 0) {
    return brim_fail(BRIM_ENOENT,
                     "cannot use %s: its plug-in libbrim_%s.so was not found; put it into "
                     "lib/brim, add its folder to BRIM_PLUGIN_PATH, or run with --device %s",
                     name, name, fallback_for(name));
  }
  static const char *const known[] = {"auto", "ref", "cpu", "cuda", NULL};
  const char *near = brim_nearest(name, known);
  if (near) {
    return brim_fail(BRIM_EINVAL, "unknown device '%s'; did you mean %s?", name, near);
  }
  return brim_fail(BRIM_EINVAL, "unknown device '%s'; choose auto, ref, cpu or cuda", name);
}

static void destroy_streams(brim_device *device) {
  const brim_backend *b = device->backend;
  if (device->copy_stream) b->stream_destroy(device->impl, device->copy_stream);
  if (device->stream) b->stream_destroy(device->impl, device->stream);
}

static brim_status open_index(const brim_backend *backend, int index,
                              const brim_device_options *options, brim_device **out) {
  brim_device *device = brim_calloc(1, sizeof(*device));
  if (!device) return brim_fail(BRIM_ENOMEM, "no memory for a device");
  device->backend = backend;
  device->index = index;
  // Ask before opening, which takes memory itself.
  brim_status status = backend->device_info(index, &device->info);
  if (status) goto fail_device;
  device->free_at_open = device->info.free_bytes;
  brim_device_options defaults = {0};
  status = backend->device_open(index, options ? options : &defaults, &device->impl);
  if (status) goto fail_device;
  if (backend->stream_create) {
    status = backend->stream_create(device->impl, &device->stream);
    if (!status) status = backend->stream_create(device->impl, &device->copy_stream);
    if (status) goto fail_streams;
  }
  // device_info describes the machine; the options set the number of threads used.
  if (options && options->threads > 0 && device->info.kind == BRIM_DEVICE_CPU &&
      device->info.threads > 1) {
    device->info.threads = options->threads;
  }
  *out = device;
  return BRIM_OK;
fail_streams:
  destroy_streams(device);
  backend->device_close(device->impl);
fail_device:
  brim_free(device);
  return status;
}

static brim_status open_named(const brim_registry *registry, const char *name, int index,
                              const brim_device_options *options, brim_device **out) {
  const brim_backend *backend = brim_registry_backend(registry, name);
  if (!backend) return fail_missing(registry, name);
  int count = 0;
  brim_status status = backend->device_count(&count);
  if (status) return brim_fail_context(status, "cannot use %s", name);
  if (count == 0) {
    return brim_fail(BRIM_ENOENT, "cannot use %s: no such device found; run with --device %s", name,
                     fallback_for(name));
  }
  if (index >= count) {
    return brim_fail(BRIM_ENOENT, "cannot use %s:%d: the devices are %s:0 to %s:%d", name, index,
                     name, name, count - 1);
  }
  status = open_index(backend, index < 0 ? 0 : index, options, out);
  return status ? brim_fail_context(status, "device %s:%d", name, index < 0 ? 0 : index) : BRIM_OK;
}

// The first backend that "auto" tries before ref and that has a device; NULL = none.
static const char *fast_backend(const brim_registry *registry) {
  static const char *const order[] = {"cuda", "cpu"};
  for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
    const brim_backend *backend = brim_registry_backend(registry, order[i]);
    int count = 0;
    if (backend && !backend->device_count(&count) && count > 0) return order[i];
  }
  return NULL;
}

bool brim_device_why_ref(const brim_registry *registry, char *out, size_t size) {
  if (size > 0) out[0] = '\0';
  if (fast_backend(registry)) return false;
  brim_status_clear();
  const char *why = refusal_of(registry, "cpu");
  if (why) {
    snprintf(out, size, brim_tr("the plug-in %s cannot be used: %s"), "libbrim_cpu.so", why);
  } else if (brim_registry_backend(registry, "cpu")) {
    snprintf(out, size, "%s", brim_tr("the plug-ins found no device"));
  } else if (!*brim_registry_folders(registry)) {
    snprintf(out, size, "%s", brim_tr("BRIM_PLUGIN_PATH is empty"));
  } else {
    snprintf(out, size, brim_tr("%s was not found in %s"), "libbrim_cpu.so",
             brim_registry_folders(registry));
  }
  brim_utf8_trim(out);
  return true;
}

brim_status brim_device_open(const brim_registry *registry, const char *spec,
                             const brim_device_options *options, brim_device **out) {
  *out = NULL;
  char name[32];
  int index = -1;
  BRIM_TRY(parse_spec(spec, name, &index));
  if (strcmp(name, "auto") != 0) return open_named(registry, name, index, options, out);
  if (index >= 0) {
    return brim_fail(BRIM_EINVAL, "device '%s': auto takes no number; write cuda:%d", spec, index);
  }
  // If a device exists but does not open, fail: falling back would hide why everything is slow.
  const char *fast = fast_backend(registry);
  return open_named(registry, fast ? fast : "ref", 0, options, out);
}

void brim_device_spec_text(const brim_device *device, char *out, size_t size) {
  if (device->info.kind == BRIM_DEVICE_GPU) {
    snprintf(out, size, "%s:%d", device->backend->name, device->index);
  } else {
    snprintf(out, size, "%s", device->backend->name);
  }
}

void brim_device_close(brim_device *device) {
  if (!device) return;
  brim_device_leave_ranks(device);
  destroy_streams(device);
  device->backend->device_close(device->impl);
  brim_free(device);
}

//---------------------------------- memory ----------------------------------

brim_status brim_device_set_threads(brim_device *device, int threads) {
  if (threads <= 0 || !device->backend->set_threads || threads == device->info.threads)
    return BRIM_OK;
  BRIM_TRY(device->backend->set_threads(device->impl, threads));
  device->info.threads = threads;
  return BRIM_OK;
}

brim_status brim_device_memory(brim_device *device, uint64_t *free_bytes, uint64_t *total_bytes) {
  if (device->backend->device_memory) {
    return device->backend->device_memory(device->impl, free_bytes, total_bytes);
  }
  *free_bytes = device->info.free_bytes;
  *total_bytes = device->info.total_bytes;
  return BRIM_OK;
}

brim_status brim_device_alloc(brim_device *device, brim_buffer_kind kind, size_t bytes,
                              void **ptr) {
  *ptr = NULL;
  return device->backend->buffer_alloc(device->impl, kind, bytes, ptr);
}

void brim_device_free(brim_device *device, brim_buffer_kind kind, void *ptr) {
  if (ptr) device->backend->buffer_free(device->impl, kind, ptr);
}

brim_status brim_device_copy(brim_device *device, void *dst, const void *src, size_t bytes,
                             brim_copy direction) {
  if (bytes == 0) return BRIM_OK;
  return device->backend->copy(device->impl, device->stream, dst, src, bytes, direction);
}

brim_status brim_device_upload(brim_device *device, void *dst, const void *src, size_t bytes) {
  if (bytes == 0) return BRIM_OK;
  return device->backend->copy(device->impl, device->copy_stream, dst, src, bytes, BRIM_COPY_H2D);
}

brim_status brim_device_fill(brim_device *device, void *dst, int byte, size_t bytes) {
  if (bytes == 0) return BRIM_OK;
  return device->backend->fill(device->impl, device->stream, dst, byte, bytes);
}

brim_status brim_device_sync(brim_device *device) {
  if (!device->backend->stream_sync) return BRIM_OK;
  return device->backend->stream_sync(device->impl, device->stream);
}

//---------------------------------- ranks ----------------------------------

// Exchange ops on any device. On devices with memory and streams of their own they run on a stream beside
// the main one. The main stream waits for them at once, or with attr.later at EXCHANGE_WAIT. So exchanges
// overlap with computing and can be recorded with it.

struct brim_exchange {
  brim_comm *comm;               // borrowed; NULL = a rank alone
  const brim_comm_table *table;  // the backend's own communicator; NULL = through the host
  void *own;                     // communicator opened from the table
  void *stream;                  // runs beside the main one; NULL on devices with host memory
  void *reached, *arrived;       // events: the main stream got to the exchange; the exchange ended
  // The first failure of a host call, which runs on a driver's thread and cannot return it.
  pthread_mutex_t lock;
  brim_status failed;
  char why[512];
};

// A prepared call that is staged through the host.
typedef struct staged {
  struct brim_exchange *x;
  void *mine, *all;  // pinned; a sum uses `mine` alone
  size_t bytes;      // size of `mine`
  int64_t count;
  brim_dtype dtype;
  bool gathers;
} staged;

int brim_device_rank(const brim_device *device) {
  return device->exchange ? brim_comm_rank(device->exchange->comm) : 0;
}

int brim_device_ranks(const brim_device *device) {
  return device->exchange ? brim_comm_size(device->exchange->comm) : 1;
}

bool brim_device_exchanges(const brim_device *device) { return device->exchange != NULL; }

const char *brim_device_exchange(const brim_device *device) {
  if (!device->exchange) return "";
  return device->exchange->table ? device->exchange->table->name
                                 : brim_comm_name(device->exchange->comm);
}

bool brim_device_exchange_stats(const brim_device *device, brim_comm_stats *out) {
  const struct brim_exchange *x = device->exchange;
  if (!x || !x->comm || x->table) return false;
  brim_comm_read_stats(x->comm, out);
  return true;
}

void brim_device_leave_ranks(brim_device *device) {
  struct brim_exchange *x = device->exchange;
  const brim_backend *b = device->backend;
  if (!x) return;
  device->exchange = NULL;
  if (x->stream) (void)b->stream_sync(device->impl, x->stream);
  if (x->own) x->table->close(x->own);
  if (x->reached) b->event_destroy(device->impl, x->reached);
  if (x->arrived) b->event_destroy(device->impl, x->arrived);
  if (x->stream) b->stream_destroy(device->impl, x->stream);
  pthread_mutex_destroy(&x->lock);
  brim_free(x);
}

void brim_device_abandon_ranks(brim_device *device) {
  const struct brim_exchange *x = device->exchange;
  if (!x) return;
  brim_comm_abandon(x->comm);
  if (x->own) x->table->abandon(x->own);
}

// Opens the backend's own communicator on all ranks or on none. Rank 0 sends its id, or that it has none;
// if one rank cannot open the communicator, all close it.
static brim_status open_own(brim_device *device, struct brim_exchange *x, char why[256]) {
  struct {
    int32_t there;
    char id[BRIM_COMM_ID_BYTES];
  } hello = {0};
  const brim_comm_table *table = device->backend->comm;
  int rank = brim_comm_rank(x->comm);
  if (rank == 0) hello.there = table->unique_id(hello.id) == BRIM_OK;
  BRIM_TRY(brim_comm_broadcast(x->comm, &hello, sizeof hello, 0));
  int64_t opened = 0;
  void *own = NULL;
  brim_status status = BRIM_EUNSUPPORTED;
  if (hello.there)
    status = table->open(device->impl, hello.id, rank, brim_comm_size(x->comm), &own);
  opened = status == BRIM_OK;
  if (status) snprintf(why, 256, "%s", brim_status_detail());
  brim_status_clear();
  BRIM_TRY(brim_comm_all_reduce(x->comm, &opened, 1, BRIM_I64));
  if (opened == brim_comm_size(x->comm)) {
    x->table = table;
    x->own = own;
    return BRIM_OK;
  }
  if (own) table->close(own);
  if (!why[0]) snprintf(why, 256, "another rank cannot use %s", table->name);
  return BRIM_OK;
}

static brim_status open_streams(brim_device *device, struct brim_exchange *x) {
  const brim_backend *b = device->backend;
  if (device->info.host_memory) return BRIM_OK;
  if (!b->stream_create || !b->event_create) {
    return brim_fail(BRIM_EUNSUPPORTED, "the backend %s has no streams for ranks", b->name);
  }
  BRIM_TRY(b->stream_create(device->impl, &x->stream));
  BRIM_TRY(b->event_create(device->impl, &x->reached));
  return b->event_create(device->impl, &x->arrived);
}

brim_status brim_device_set_ranks(brim_device *device, brim_comm *comm, bool own, char *why) {
  char reason[256] = "";
  brim_device_leave_ranks(device);
  struct brim_exchange *x = brim_calloc(1, sizeof *x);
  if (!x) return brim_fail(BRIM_ENOMEM, "no memory for the exchange between ranks");
  x->comm = comm;
  pthread_mutex_init(&x->lock, NULL);
  device->exchange = x;
  brim_status status = open_streams(device, x);
  if (!status && own && device->backend->comm) status = open_own(device, x, reason);
  bool through_host = !device->info.host_memory && !x->table;
  if (!status && through_host && !device->backend->host_call) {
    status = brim_fail(BRIM_EUNSUPPORTED, "the backend %s cannot exchange through the host",
                       device->backend->name);
  }
  if (why) snprintf(why, 256, "%s", reason);
  if (status) brim_device_leave_ranks(device);
  return status;
}

brim_status brim_exchange_check(brim_device *device) {
  struct brim_exchange *x = device->exchange;
  if (!x) return BRIM_OK;
  pthread_mutex_lock(&x->lock);
  brim_status failed = x->failed;
  x->failed = BRIM_OK;
  pthread_mutex_unlock(&x->lock);
  return failed ? brim_fail(failed, "%s", x->why) : BRIM_OK;
}

static brim_status host_alloc(brim_device *device, size_t bytes, void **ptr) {
  return device->backend->buffer_alloc(device->impl, BRIM_BUFFER_HOST, bytes, ptr);
}

static void host_free(brim_device *device, void *ptr) {
  if (ptr) device->backend->buffer_free(device->impl, BRIM_BUFFER_HOST, ptr);
}

static brim_status copy_on_device(brim_device *device, void *to, const void *from, size_t bytes) {
  return device->backend->copy(device->impl, device->stream, to, from, bytes, BRIM_COPY_D2D);
}

//---------------------------------- staged through the host ----------------------------------

static void staged_call(void *ctx) {
  const staged *s = ctx;
  brim_status status = s->gathers ? brim_comm_all_gather(s->x->comm, s->mine, s->all, s->bytes)
                                  : brim_comm_all_reduce(s->x->comm, s->mine, s->count, s->dtype);
  if (!status) return;
  pthread_mutex_lock(&s->x->lock);
  if (!s->x->failed) {
    s->x->failed = status;
    snprintf(s->x->why, sizeof s->x->why, "%s", brim_status_detail());
  }
  pthread_mutex_unlock(&s->x->lock);
  brim_status_clear();
}

static brim_status run_staged(brim_device *device, staged *s, const void *from, void *to) {
  const brim_backend *b = device->backend;
  void *stream = s->x->stream;
  size_t back = s->gathers ? s->bytes * (size_t)brim_comm_size(s->x->comm) : s->bytes;
  BRIM_TRY(b->copy(device->impl, stream, s->mine, from, s->bytes, BRIM_COPY_D2H));
  BRIM_TRY(b->host_call(device->impl, stream, staged_call, s));
  return b->copy(device->impl, stream, to, s->gathers ? s->all : s->mine, back, BRIM_COPY_H2D);
}

static brim_status make_staged(brim_device *device, brim_op_call *call) {
  const brim_tensor *t = &call->in[0];
  staged *s = brim_calloc(1, sizeof *s);
  if (!s) return brim_fail(BRIM_ENOMEM, "no memory for an exchange between ranks");
  call->state = s;
  s->x = device->exchange;
  s->bytes = brim_tensor_bytes(t);
  s->count = brim_tensor_count(t);
  s->dtype = t->dtype;
  s->gathers = call->op != BRIM_OP_ALL_REDUCE;
  size_t all = s->bytes * (size_t)brim_comm_size(s->x->comm);
  if (call->planning) return BRIM_OK;
  BRIM_TRY(host_alloc(device, s->bytes, &s->mine));
  if (!s->gathers) return BRIM_OK;
  return host_alloc(device, all, &s->all);
}

static bool is_exchange(brim_op op) {
  return op == BRIM_OP_ALL_REDUCE || op == BRIM_OP_EXCHANGE_WAIT || op == BRIM_OP_ALL_GATHER ||
         op == BRIM_OP_GATHER_PAIRS || op == BRIM_OP_OWN_PAIRS;
}

size_t brim_exchange_host_bytes(const brim_op_call *call) {
  const staged *s = call->state;
  if (!is_exchange(call->op) || !s) return 0;
  return s->gathers ? s->bytes * (size_t)(1 + brim_comm_size(s->x->comm)) : s->bytes;
}

//---------------------------------- exchange ops ----------------------------------

static int64_t growth(const brim_op_call *call) {
  return brim_tensor_count(&call->out[0]) / brim_tensor_count(&call->in[0]);
}

static void exchange_release(brim_device *device, brim_op_call *call) {
  staged *s = call->state;
  call->state = NULL;
  if (!s) return;
  host_free(device, s->mine);
  host_free(device, s->all);
  brim_free(s);
}

static brim_status exchange_prepare(brim_device *device, brim_op_call *call) {
  struct brim_exchange *x = device->exchange;
  if (!x) return brim_fail(BRIM_ESTATE, "%s: the device is no rank", brim_op_name(call->op));
  bool gathers = call->op == BRIM_OP_ALL_GATHER || call->op == BRIM_OP_GATHER_PAIRS;
  if (gathers && growth(call) != brim_device_ranks(device)) {
    return brim_fail(BRIM_EINVAL, "%s: the output has room for %lld ranks, but there are %d",
                     brim_op_name(call->op), (long long)growth(call), brim_device_ranks(device));
  }
  if (call->op == BRIM_OP_GATHER_PAIRS) call->workspace_bytes = brim_tensor_bytes(&call->out[0]);
  bool moves = gathers || call->op == BRIM_OP_ALL_REDUCE;
  if (!moves || device->info.host_memory || x->table) return BRIM_OK;
  brim_status status = make_staged(device, call);
  if (status) exchange_release(device, call);
  return status;
}

// Makes the exchange stream wait for the work enqueued on the main stream so far; join_stream is the
// way back.
static brim_status fork_stream(brim_device *device) {
  const struct brim_exchange *x = device->exchange;
  BRIM_TRY(device->backend->event_record(device->impl, device->stream, x->reached));
  return device->backend->event_wait(device->impl, x->stream, x->reached);
}

static brim_status join_stream(brim_device *device) {
  const struct brim_exchange *x = device->exchange;
  BRIM_TRY(device->backend->event_record(device->impl, x->stream, x->arrived));
  return device->backend->event_wait(device->impl, device->stream, x->arrived);
}

static brim_status all_reduce(brim_device *device, const brim_op_call *call) {
  struct brim_exchange *x = device->exchange;
  void *data = call->out[0].data;
  int64_t count = brim_tensor_count(&call->out[0]);
  brim_dtype dtype = call->out[0].dtype;
  if (data != call->in[0].data) {
    BRIM_TRY(copy_on_device(device, data, call->in[0].data, brim_tensor_bytes(&call->in[0])));
  }
  if (device->info.host_memory) {
    return call->attr.later ? brim_comm_post_all_reduce(x->comm, data, count, dtype)
                            : brim_comm_all_reduce(x->comm, data, count, dtype);
  }
  BRIM_TRY(fork_stream(device));
  BRIM_TRY(x->table ? x->table->all_reduce(x->own, x->stream, data, count, dtype)
                    : run_staged(device, call->state, data, data));
  return call->attr.later ? BRIM_OK : join_stream(device);
}

static brim_status all_gather(brim_device *device, const brim_op_call *call, void *to) {
  struct brim_exchange *x = device->exchange;
  const void *mine = call->in[0].data;
  size_t bytes = brim_tensor_bytes(&call->in[0]);
  if (device->info.host_memory) return brim_comm_all_gather(x->comm, mine, to, bytes);
  BRIM_TRY(fork_stream(device));
  BRIM_TRY(x->table ? x->table->all_gather(x->own, x->stream, mine, to, bytes)
                    : run_staged(device, call->state, mine, to));
  return join_stream(device);
}

// Gathers the first views of all ranks, then their second views.
static brim_status gather_pairs(brim_device *device, const brim_op_call *call) {
  BRIM_TRY(all_gather(device, call, call->workspace));
  size_t half = brim_tensor_bytes(&call->in[0]) / 2;
  size_t ranks = (size_t)brim_device_ranks(device);
  const unsigned char *from = call->workspace;
  unsigned char *to = call->out[0].data;
  for (size_t r = 0; r < ranks; r++) {
    BRIM_TRY(copy_on_device(device, to + r * half, from + 2 * r * half, half));
    BRIM_TRY(copy_on_device(device, to + (ranks + r) * half, from + (2 * r + 1) * half, half));
  }
  return BRIM_OK;
}

static brim_status own_pairs(brim_device *device, const brim_op_call *call) {
  size_t half = brim_tensor_bytes(&call->out[0]) / 2;
  size_t ranks = (size_t)brim_device_ranks(device), rank = (size_t)brim_device_rank(device);
  const unsigned char *from = call->in[0].data;
  unsigned char *to = call->out[0].data;
  BRIM_TRY(copy_on_device(device, to, from + rank * half, half));
  return copy_on_device(device, to + half, from + (ranks + rank) * half, half);
}

static brim_status exchange_run(brim_device *device, const brim_op_call *call) {
  struct brim_exchange *x = device->exchange;
  if (!x) return brim_fail(BRIM_ESTATE, "%s: the device is no rank", brim_op_name(call->op));
  switch (call->op) {
    case BRIM_OP_ALL_REDUCE:
      return all_reduce(device, call);
    case BRIM_OP_EXCHANGE_WAIT:
      return device->info.host_memory ? brim_comm_wait(x->comm) : join_stream(device);
    case BRIM_OP_ALL_GATHER:
      return all_gather(device, call, call->out[0].data);
    case BRIM_OP_GATHER_PAIRS:
      return gather_pairs(device, call);
    case BRIM_OP_OWN_PAIRS:
      return own_pairs(device, call);
    default:
      return brim_fail(BRIM_EINTERNAL, "%s is no exchange", brim_op_name(call->op));
  }
}

//---------------------------------- ops ----------------------------------

static brim_status validate(brim_device *device, const brim_op_call *call,
                            const brim_op_row **out) {
  BRIM_TRY(brim_op_check(call));
  if (is_exchange(call->op)) return BRIM_OK;
  const brim_op_row *row = brim_backend_row(device->backend, call->op);
  if (!row) {
    return brim_fail(BRIM_EUNSUPPORTED, "%s: the backend %s does not support this op",
                     brim_op_name(call->op), device->backend->name);
  }
  *out = row;
  return row->validate(device->impl, call);
}

brim_status brim_device_supports(brim_device *device, const brim_op_call *call) {
  const brim_op_row *row = NULL;
  return validate(device, call, &row);
}

brim_status brim_op_prepare(brim_device *device, brim_op_call *call) {
  const brim_op_row *row = NULL;
  call->state = NULL;
  call->workspace_bytes = 0;
  BRIM_TRY(validate(device, call, &row));
  if (!row) return exchange_prepare(device, call);
  return row->prepare ? row->prepare(device->impl, call) : BRIM_OK;
}

static brim_status check_data(const brim_op_call *call, const brim_tensor *tensors, int count,
                              const char *side) {
  for (int i = 0; i < count; i++) {
    if (!tensors[i].data && brim_tensor_count(&tensors[i]) > 0) {
      return brim_fail(BRIM_EINVAL, "%s: %s %d has no memory", brim_op_name(call->op), side, i);
    }
  }
  return BRIM_OK;
}

// The device itself runs exchange ops, whatever its backend; they have no row.
static brim_status run_row(brim_device *device, const brim_op_row *row, const brim_op_call *call) {
  return row ? row->run(device->impl, device->stream, call) : exchange_run(device, call);
}

static brim_status run_watched(brim_device *device, const brim_op_row *row,
                               const brim_op_call *call) {
  const brim_op_watch *watch = device->watch;
  BRIM_TRY(watch->before(watch->ctx, call));
  BRIM_TRY(run_row(device, row, call));
  return watch->after(watch->ctx, call);
}

brim_status brim_op_run(brim_device *device, const brim_op_call *call) {
  const brim_op_row *row = brim_backend_row(device->backend, call->op);
  if (!row && !is_exchange(call->op)) {
    return brim_fail(BRIM_EUNSUPPORTED, "%s: the backend %s does not support this op",
                     brim_op_name(call->op), device->backend->name);
  }
  BRIM_TRY(check_data(call, call->in, call->in_count, "input"));
  BRIM_TRY(check_data(call, call->out, call->out_count, "output"));
  if (call->workspace_bytes > 0 && !call->workspace) {
    return brim_fail(BRIM_EINVAL, "%s: needs a workspace of %zu bytes", brim_op_name(call->op),
                     call->workspace_bytes);
  }
  if (device->watch) return run_watched(device, row, call);
  return run_row(device, row, call);
}

void brim_op_release(brim_device *device, brim_op_call *call) {
  if (is_exchange(call->op)) exchange_release(device, call);
  const brim_op_row *row = brim_backend_row(device->backend, call->op);
  if (row && row->release && call->state) row->release(device->impl, call);
  call->state = NULL;
}

//---------------------------------- graphs ----------------------------------

// A brim_graph_exec is the backend's own object under another name.

bool brim_device_has_graphs(const brim_device *device) {
  return device->backend->capture_begin != NULL;
}

static brim_status fail_no_graphs(const brim_device *device) {
  return brim_fail(BRIM_EUNSUPPORTED, "the backend %s does not support graph capture",
                   device->backend->name);
}

brim_status brim_capture_begin(brim_device *device) {
  if (!brim_device_has_graphs(device)) return fail_no_graphs(device);
  BRIM_TRY(device->backend->capture_begin(device->impl, device->stream));
  device->recording = true;
  return BRIM_OK;
}

brim_status brim_capture_end(brim_device *device, brim_graph_exec **out) {
  *out = NULL;
  if (!brim_device_has_graphs(device)) return fail_no_graphs(device);
  void *graph = NULL;
  device->recording = false;
  BRIM_TRY(device->backend->capture_end(device->impl, device->stream, &graph));
  *out = graph;
  return BRIM_OK;
}

brim_status brim_graph_launch(brim_device *device, brim_graph_exec *exec) {
  if (!brim_device_has_graphs(device)) return fail_no_graphs(device);
  return device->backend->graph_launch(device->impl, device->stream, exec);
}

void brim_graph_exec_destroy(brim_device *device, brim_graph_exec *exec) {
  if (exec) device->backend->graph_destroy(device->impl, exec);
}

//---------------------------------- algorithms ----------------------------------

brim_status brim_device_algorithms(brim_device *device, char **text) {
  *text = NULL;
  if (device->backend->algorithms_get) {
    return device->backend->algorithms_get(device->impl, text);
  }
  *text = brim_strdup("");
  return *text ? BRIM_OK : brim_fail(BRIM_ENOMEM, "no memory for the algorithms' names");
}

brim_status brim_device_set_algorithms(brim_device *device, const char *text) {
  if (!device->backend->algorithms_put) return BRIM_OK;  // a device without a choice
  return device->backend->algorithms_put(device->impl, text);
}

//---------------------------------- events ----------------------------------

brim_status brim_event_create(brim_device *device, brim_event **out) {
  *out = NULL;
  brim_event *event = brim_calloc(1, sizeof(*event));
  if (!event) return brim_fail(BRIM_ENOMEM, "no memory for an event");
  if (device->backend->event_create) {
    brim_status status = device->backend->event_create(device->impl, &event->impl);
    if (status) {
      brim_free(event);
      return status;
    }
  }
  *out = event;
  return BRIM_OK;
}

void brim_event_destroy(brim_device *device, brim_event *event) {
  if (!event) return;
  if (device->backend->event_create) device->backend->event_destroy(device->impl, event->impl);
  brim_free(event);
}

static brim_status record(brim_device *device, void *stream, brim_event *event) {
  const brim_backend *b = device->backend;
  if (b->event_record) {
    BRIM_TRY(b->event_record(device->impl, stream, event->impl));
  } else {
    // The host clock is meaningful only once the stream has come this far, so a later wait for the event
    // has nothing to do.
    if (b->stream_sync) BRIM_TRY(b->stream_sync(device->impl, stream));
    event->time = brim_clock_now();
  }
  event->recorded = true;
  return BRIM_OK;
}

brim_status brim_event_record(brim_device *device, brim_event *event) {
  return record(device, device->stream, event);
}

brim_status brim_event_record_copy(brim_device *device, brim_event *event) {
  return record(device, device->copy_stream, event);
}

// Returns at once for an event that was never recorded.
brim_status brim_event_sync(brim_device *device, brim_event *event) {
  if (!event->recorded || !device->backend->event_sync) return BRIM_OK;
  return device->backend->event_sync(device->impl, event->impl);
}

static brim_status wait(brim_device *device, void *stream, brim_event *event) {
  if (!event->recorded || !device->backend->event_wait) return BRIM_OK;
  return device->backend->event_wait(device->impl, stream, event->impl);
}

brim_status brim_event_wait(brim_device *device, brim_event *event) {
  return wait(device, device->stream, event);
}

brim_status brim_event_wait_copy(brim_device *device, brim_event *event) {
  return wait(device, device->copy_stream, event);
}

brim_status brim_event_elapsed(brim_device *device, brim_event *start, brim_event *end,
                               int64_t *ns) {
  if (!start->recorded || !end->recorded) {
    return brim_fail(BRIM_ESTATE, "no elapsed time: the event was not recorded");
  }
  if (device->backend->event_elapsed) {
    return device->backend->event_elapsed(device->impl, start->impl, end->impl, ns);
  }
  *ns = brim_time_since_ns(start->time, end->time);
  return BRIM_OK;
}
