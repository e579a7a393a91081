// The mpi plug-in: a communicator over MPI as the extension "ranks.mpi". It has no backend: ranks
// compute on the devices of the other plug-ins. Every call is nonblocking and is tested until it is done, so
// that a rank can abandon it; MPI itself cannot end a call whose partner is gone. Sums are added here in the
// order of ranks: MPI_Allreduce leaves the order, and so the bits, to the implementation.
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backend/backend_comm.h"
#include "backend/backend_comm_sum.h"

// Set by brim_plugin_query before anything else can be called, never changed after.
static const brim_host_api *host_api;

// `format` is a message of brim's catalogue, which is translated.
static brim_status brim_mpi_fail(brim_status status, const char *format, ...) {
  char text[768];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, host_api->translate(format), args);
  va_end(args);
  return host_api->fail(status, text);
}

// Bytes of a sum at a time; another CHUNK_BYTES hold the slices of the other ranks.
#define CHUNK_BYTES (4 * 1024 * 1024)
// Bytes of a gather (over all ranks) or broadcast at a time; MPI counts are ints.
#define MOVE_BYTES (1 << 30)
// Tests of a call until its rank sleeps between them.
#define TESTS 2000
#define SLEEP_NS 50000

// MPI must be called from one thread at a time (MPI_THREAD_SERIALIZED), but several communicators have a
// thread each. Exchanges are nonblocking calls, so they hold the lock only briefly.
static pthread_mutex_t in_mpi = PTHREAD_MUTEX_INITIALIZER;

static void enter(void) { pthread_mutex_lock(&in_mpi); }
static void leave(void) { pthread_mutex_unlock(&in_mpi); }

typedef struct mpi_comm {
  MPI_Comm comm;
  int rank, size;
  bool own_init;  // this communicator initialised MPI
  int yield_after;
  atomic_bool abandoned;
  bool failed;     // a call did not complete: MPI must not be finalised
  int *counts[2];  // (size): number of values to send, and to receive
  int *places[2];  // (size): index of the first value to send, and to receive
  uint8_t *parts;  // (size, slice): one slice of every rank
} mpi_comm;

static brim_status fail_mpi(mpi_comm *c, const char *what, int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  c->failed = true;
  return brim_mpi_fail(BRIM_EIO, "MPI cannot exchange between ranks (%s): %s", what, text);
}

static brim_status fail_abandoned(mpi_comm *c) {
  c->failed = true;
  return brim_mpi_fail(BRIM_EIO, "rank %d ended its exchange with the other ranks", c->rank);
}

static brim_status finish(mpi_comm *c, const char *what, MPI_Request *request, int code) {
  for (int tries = 0; code == MPI_SUCCESS; tries++) {
    int done = 0;
    enter();
    code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
    leave();
    if (code == MPI_SUCCESS && done) return BRIM_OK;
    if (atomic_load(&c->abandoned)) return fail_abandoned(c);
    if (tries > TESTS) {
      nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    } else if (tries > c->yield_after) {
      sched_yield();
    }
  }
  return fail_mpi(c, what, code);
}

//---------------------------------- calls ----------------------------------

static MPI_Datatype type_of(brim_dtype dtype) {
  return dtype == BRIM_F32 ? MPI_FLOAT : dtype == BRIM_F64 ? MPI_DOUBLE : MPI_INT64_T;
}

// Sums at most CHUNK_BYTES: every rank gets its slice from all ranks, adds up the slices, and sends the sum
// to all.
static brim_status reduce_chunk(mpi_comm *c, uint8_t *data, int64_t count, brim_dtype dtype) {
  const size_t size = dtype == BRIM_F32 ? 4 : 8;
  const MPI_Datatype type = type_of(dtype);
  int64_t begin, end;
  for (int r = 0; r < c->size; r++) {
    brim_comm_slice(count, r, c->size, &begin, &end);
    c->counts[0][r] = (int)(end - begin);
    c->places[0][r] = (int)begin;
  }
  brim_comm_slice(count, c->rank, c->size, &begin, &end);
  const int64_t mine = end - begin;
  for (int r = 0; r < c->size; r++) {
    c->counts[1][r] = (int)mine;
    c->places[1][r] = (int)(mine * r);
  }
  MPI_Request request = MPI_REQUEST_NULL;
  enter();
  int code = MPI_Ialltoallv(data, c->counts[0], c->places[0], type, c->parts, c->counts[1],
                            c->places[1], type, c->comm, &request);
  leave();
  BRIM_TRY(finish(c, "MPI_Ialltoallv", &request, code));
  for (int r = 1; r < c->size; r++) {
    brim_comm_add(c->parts, c->parts + (size_t)(mine * r) * size, mine, dtype);
  }
  enter();
  code = MPI_Iallgatherv(c->parts, (int)mine, type, data, c->counts[0], c->places[0], type, c->comm,
                         &request);
  leave();
  return finish(c, "MPI_Iallgatherv", &request, code);
}

// Sums few values: every rank adds the values of all ranks, which saves a round.
static brim_status reduce_few(mpi_comm *c, void *data, int64_t count, brim_dtype dtype) {
  const size_t bytes = (size_t)count * (dtype == BRIM_F32 ? 4 : 8);
  MPI_Request request = MPI_REQUEST_NULL;
  enter();
  int code = MPI_Iallgather(data, (int)count, type_of(dtype), c->parts, (int)count, type_of(dtype),
                            c->comm, &request);
  leave();
  BRIM_TRY(finish(c, "MPI_Iallgather", &request, code));
  memcpy(data, c->parts, bytes);
  for (int r = 1; r < c->size; r++) {
    brim_comm_add(data, c->parts + (size_t)r * bytes, count, dtype);
  }
  return BRIM_OK;
}

static brim_status check_open(mpi_comm *c) {
  return atomic_load(&c->abandoned) ? fail_abandoned(c) : BRIM_OK;
}

static brim_status mpi_all_reduce(void *impl, void *data, int64_t count, brim_dtype dtype) {
  mpi_comm *c = impl;
  BRIM_TRY(check_open(c));
  if (c->size == 1) return BRIM_OK;
  const size_t size = dtype == BRIM_F32 ? 4 : 8;
  uint8_t *at = data;
  const size_t bytes = (size_t)count * size;
  if (count > 0 && bytes <= BRIM_COMM_FEW_BYTES && bytes * (size_t)c->size <= CHUNK_BYTES) {
    return reduce_few(c, data, count, dtype);
  }
  while (count > 0) {
    int64_t n = count < (int64_t)(CHUNK_BYTES / size) ? count : (int64_t)(CHUNK_BYTES / size);
    BRIM_TRY(reduce_chunk(c, at, n, dtype));
    at += (size_t)n * size;
    count -= n;
  }
  return BRIM_OK;
}

static brim_status gather_part(mpi_comm *c, uint8_t *all, size_t bytes, size_t at, size_t n) {
  // The parts of ranks lie `bytes` apart. The type has this extent, as MPI takes distances as int in types.
  MPI_Datatype part = MPI_DATATYPE_NULL, block = MPI_DATATYPE_NULL;
  enter();
  int code = MPI_Type_contiguous((int)n, MPI_BYTE, &part);
  if (code == MPI_SUCCESS) {
    code = MPI_Type_create_resized(part, 0, (MPI_Aint)bytes, &block);
    MPI_Type_free(&part);
  }
  if (code == MPI_SUCCESS) code = MPI_Type_commit(&block);
  leave();
  if (code != MPI_SUCCESS) return fail_mpi(c, "MPI_Type_commit", code);
  MPI_Request request = MPI_REQUEST_NULL;
  enter();
  code = MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all + at, 1, block, c->comm, &request);
  leave();
  brim_status status = finish(c, "MPI_Iallgather", &request, code);
  enter();
  MPI_Type_free(&block);
  leave();
  return status;
}

static brim_status mpi_all_gather(void *impl, const void *mine, void *all, size_t bytes) {
  mpi_comm *c = impl;
  BRIM_TRY(check_open(c));
  uint8_t *own = (uint8_t *)all + (size_t)c->rank * bytes;
  if (bytes > 0 && own != mine) memmove(own, mine, bytes);
  if (c->size == 1) return BRIM_OK;
  const size_t most = MOVE_BYTES / (size_t)c->size;
  for (size_t at = 0; at < bytes;) {
    size_t n = bytes - at < most ? bytes - at : most;
    BRIM_TRY(gather_part(c, all, bytes, at, n));
    at += n;
  }
  return BRIM_OK;
}

static brim_status mpi_broadcast(void *impl, void *data, size_t bytes, int root) {
  mpi_comm *c = impl;
  BRIM_TRY(check_open(c));
  if (c->size == 1) return BRIM_OK;
  for (size_t at = 0; at < bytes;) {
    size_t n = bytes - at < MOVE_BYTES ? bytes - at : MOVE_BYTES;
    MPI_Request request = MPI_REQUEST_NULL;
    enter();
    int code = MPI_Ibcast((uint8_t *)data + at, (int)n, MPI_BYTE, root, c->comm, &request);
    leave();
    BRIM_TRY(finish(c, "MPI_Ibcast", &request, code));
    at += n;
  }
  return BRIM_OK;
}

static void mpi_abandon(void *impl) {
  mpi_comm *c = impl;
  atomic_store(&c->abandoned, true);
}

static void mpi_close(void *impl) {
  mpi_comm *c = impl;
  // MPI_Finalize waits for every rank. Without it the launcher ends the other ranks, as intended when a
  // rank leaves early. MPI keeps the buffers of an incomplete call.
  if (c->failed || atomic_load(&c->abandoned)) return;
  enter();
  MPI_Comm_free(&c->comm);
  if (c->own_init) MPI_Finalize();
  leave();
  host_api->free(c->counts[0]);
  host_api->free(c->parts);
  host_api->free(c);
}

static const brim_host_comm_table comm_table = {
    .name = "mpi",
    .all_reduce = mpi_all_reduce,
    .all_gather = mpi_all_gather,
    .broadcast = mpi_broadcast,
    .abandon = mpi_abandon,
    .close = mpi_close,
};

//---------------------------------- opening ----------------------------------

// Finds the number of this rank on its machine, and the number of ranks there.
static int find_local(mpi_comm *c, int *rank, int *size) {
  MPI_Comm local = MPI_COMM_NULL;
  int code = MPI_Comm_split_type(c->comm, MPI_COMM_TYPE_SHARED, c->rank, MPI_INFO_NULL, &local);
  if (code == MPI_SUCCESS) code = MPI_Comm_rank(local, rank);
  if (code == MPI_SUCCESS) code = MPI_Comm_size(local, size);
  if (local != MPI_COMM_NULL) MPI_Comm_free(&local);
  return code;
}

static brim_status init_mpi(mpi_comm *c) {
  int initialised = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialised);
  if (initialised) {
    MPI_Query_thread(&level);
  } else {
    c->own_init = true;
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    if (code != MPI_SUCCESS) return fail_mpi(c, "MPI_Init_thread", code);
  }
  if (level < MPI_THREAD_SERIALIZED) {
    return brim_mpi_fail(BRIM_EUNSUPPORTED,
                         "this MPI cannot be called from two threads in turn "
                         "(MPI_THREAD_SERIALIZED)");
  }
  int code = MPI_Comm_dup(MPI_COMM_WORLD, &c->comm);
  if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(c->comm, MPI_ERRORS_RETURN);
  if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (code == MPI_SUCCESS) code = MPI_Comm_rank(c->comm, &c->rank);
  if (code == MPI_SUCCESS) code = MPI_Comm_size(c->comm, &c->size);
  return code == MPI_SUCCESS ? BRIM_OK : fail_mpi(c, "MPI_Comm_dup", code);
}

static brim_status open_ranks(brim_mpi_ranks *out) {
  mpi_comm *c = host_api->alloc(sizeof *c, 0);
  if (!c) return brim_mpi_fail(BRIM_ENOMEM, "no memory for a communicator");
  memset(c, 0, sizeof *c);
  atomic_init(&c->abandoned, false);
  int local_rank = 0, local_size = 1;
  enter();
  brim_status status = init_mpi(c);
  if (!status) {
    int code = find_local(c, &local_rank, &local_size);
    if (code != MPI_SUCCESS) status = fail_mpi(c, "MPI_Comm_split_type", code);
  }
  leave();
  if (status) goto fail;
  // A slice is at most 15 values longer than a rank's share.
  const size_t ranks = (size_t)c->size;
  c->counts[0] = host_api->alloc(4 * ranks * sizeof(int), 0);
  c->parts = host_api->alloc(CHUNK_BYTES + ranks * 16 * sizeof(double), 0);
  if (!c->counts[0] || !c->parts) {
    status = brim_mpi_fail(BRIM_ENOMEM, "no memory for a communicator");
    goto fail;
  }
  c->counts[1] = c->counts[0] + ranks;
  c->places[0] = c->counts[0] + 2 * ranks;
  c->places[1] = c->counts[0] + 3 * ranks;
  // Ranks may share a core, so a waiting rank must not keep it.
  c->yield_after = local_size <= sysconf(_SC_NPROCESSORS_ONLN) ? TESTS / 2 : 0;
  *out = (brim_mpi_ranks){.table = &comm_table,
                          .impl = c,
                          .rank = c->rank,
                          .size = c->size,
                          .local_rank = local_rank,
                          .local_size = local_size};
  return BRIM_OK;
fail:
  // Without MPI_Finalize the launcher ends the other ranks.
  host_api->free(c->counts[0]);
  host_api->free(c->parts);
  host_api->free(c);
  return status;
}

static const brim_mpi_table table = {.open = open_ranks};

static const brim_extension extensions[] = {{BRIM_MPI_EXTENSION, &table}};

static const brim_plugin plugin = {
    .abi = BRIM_PLUGIN_ABI,
    .name = "mpi",
    .version = BRIM_VERSION,
    .extensions = extensions,
    .extension_count = sizeof extensions / sizeof *extensions,
};

BRIM_API brim_status brim_plugin_query(uint32_t abi, const brim_host_api *host,
                                       const brim_plugin **out) {
  if (abi != BRIM_PLUGIN_ABI || host->size < sizeof(brim_host_api)) return BRIM_EABI;
  host_api = host;
  *out = &plugin;
  return BRIM_OK;
}
