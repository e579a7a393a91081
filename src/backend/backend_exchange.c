// Exchange ops on any device. On devices with memory and streams of their own they run on a stream beside
// the main one, which waits for them where it needs them: at once, or with attr.later at EXCHANGE_WAIT. So
// they overlap with computing and can be recorded with it.
#include "backend/backend_exchange.h"

#include <stdio.h>
#include <string.h>

#include "backend/backend_int.h"

struct brim_exchange {
  brim_comm *comm;               // borrowed; NULL = a rank alone
  const brim_comm_table *table;  // the backend's own; NULL = through the host
  void *own;                     // state of the table
  void *stream;                  // beside the main one; NULL on devices with host memory
  void *reached, *arrived;       // events: of the main stream for this one, and back
  // The first failure of a host call, which runs on a driver's thread and cannot return it.
  pthread_mutex_t lock;
  brim_status failed;
  char why[512];
};

// A prepared call that is staged through the host.
typedef struct staged {
  struct brim_exchange *x;
  void *mine, *all;  // pinned; `all` of a gather
  size_t bytes;      // size of `mine`
  int64_t count;
  brim_dtype dtype;
  bool gathers;
} staged;

//---------------------------------- ranks ----------------------------------

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

// All ranks learn rank 0's id, or that there is none, and so decide alike. If one of them cannot
// open the communicator, none keeps it.
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

// Calls the backend's table directly: backend_device.c's wrappers call this file.
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

size_t brim_exchange_host_bytes(const brim_op_call *call) {
  const staged *s = call->state;
  if (!brim_op_is_exchange(call->op) || !s) return 0;
  return s->gathers ? s->bytes * (size_t)(1 + brim_comm_size(s->x->comm)) : s->bytes;
}

//---------------------------------- ops ----------------------------------

bool brim_op_is_exchange(brim_op op) {
  return op == BRIM_OP_ALL_REDUCE || op == BRIM_OP_EXCHANGE_WAIT || op == BRIM_OP_ALL_GATHER ||
         op == BRIM_OP_GATHER_PAIRS || op == BRIM_OP_OWN_PAIRS;
}

static int64_t growth(const brim_op_call *call) {
  return brim_tensor_count(&call->out[0]) / brim_tensor_count(&call->in[0]);
}

brim_status brim_exchange_prepare(brim_device *device, brim_op_call *call) {
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
  if (status) brim_exchange_release(device, call);
  return status;
}

void brim_exchange_release(brim_device *device, brim_op_call *call) {
  staged *s = call->state;
  call->state = NULL;
  if (!s) return;
  host_free(device, s->mine);
  host_free(device, s->all);
  brim_free(s);
}

// The exchange stream waits for the main one up to here; the main one waits for it later.
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

brim_status brim_exchange_run(brim_device *device, const brim_op_call *call) {
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
