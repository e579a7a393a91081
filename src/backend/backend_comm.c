// Communicators between ranks. A brim_comm wraps any implementation: it checks arguments, keeps
// calls in order, runs posted requests on a thread of its own, and fails every later call with the
// first failure. The implementation for ranks of one machine is a segment of shared memory with two
// windows a rank: a call moves its data in chunks that alternate between the windows, so that a
// rank may fill one while slower ranks still read the other; ranks wait for each other's counters.
// MPI is a plug-in that is opened only when asked for.
#include "backend/backend_comm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "backend/backend_comm_sum.h"

#define POSTED_MAX 256  // a further request waits until one of them is done

typedef struct request {
  void *data;
  int64_t count;
  brim_dtype dtype;
} request;

struct brim_comm {
  const brim_host_comm_table *table;
  void *impl;
  int rank, size;
  pthread_mutex_t lock;
  pthread_cond_t work, done;
  brim_thread *thread;
  // Under the lock:
  request posted[POSTED_MAX];
  size_t first, count;  // in `posted`; the first one is being worked on while `busy`
  bool busy;            // a thread is in a call of the implementation
  bool stop;
  brim_status broken;  // the first failure
  char why[512];
  brim_comm_stats stats;
};

int brim_comm_rank(const brim_comm *comm) { return comm ? comm->rank : 0; }
int brim_comm_size(const brim_comm *comm) { return comm ? comm->size : 1; }
const char *brim_comm_name(const brim_comm *comm) { return comm ? comm->table->name : "none"; }

//---------------------------------- one call at a time ----------------------------------

// Repeats the first failure, on whichever thread asks.
static brim_status fail_again(const brim_comm *comm) {
  if (comm->broken) brim_status_set_detail(comm->why);
  return comm->broken;
}

// With the lock held: notes the result of the call that began at `start`.
static void finish_call(brim_comm *comm, brim_time start, uint64_t bytes, brim_status status) {
  comm->stats.calls++;
  comm->stats.bytes += bytes;
  comm->stats.busy_ns += brim_time_since_ns(start, brim_clock_now());
  if (status && !comm->broken) {
    comm->broken = status;
    snprintf(comm->why, sizeof comm->why, "%s", brim_status_detail());
  }
  comm->busy = false;
  pthread_cond_broadcast(&comm->done);
}

// With the lock held: runs a posted request, releasing the lock meanwhile. Does nothing after a
// failure.
static void run_request(brim_comm *comm, const request *r) {
  if (comm->broken) return;
  comm->busy = true;
  pthread_mutex_unlock(&comm->lock);
  brim_time start = brim_clock_now();
  brim_status status = comm->table->all_reduce(comm->impl, r->data, r->count, r->dtype);
  pthread_mutex_lock(&comm->lock);
  finish_call(comm, start, (uint64_t)r->count * brim_dtype_size(r->dtype), status);
}

static void comm_main(void *arg) {
  brim_comm *comm = arg;
  pthread_mutex_lock(&comm->lock);
  for (;;) {
    while (!comm->stop && (comm->count == 0 || comm->busy)) {
      pthread_cond_wait(comm->count == 0 ? &comm->work : &comm->done, &comm->lock);
    }
    if (comm->stop) break;
    request r = comm->posted[comm->first];
    run_request(comm, &r);
    comm->first = (comm->first + 1) % POSTED_MAX;
    comm->count--;
    pthread_cond_broadcast(&comm->done);
  }
  pthread_mutex_unlock(&comm->lock);
}

// With the lock held: waits until nothing is posted and no thread is in a call.
static void wait_idle(brim_comm *comm) {
  while (comm->count > 0 || comm->busy) pthread_cond_wait(&comm->done, &comm->lock);
}

// After BRIM_OK the caller may call the implementation.
static brim_status begin_call(brim_comm *comm) {
  pthread_mutex_lock(&comm->lock);
  wait_idle(comm);
  brim_status status = fail_again(comm);
  if (!status) comm->busy = true;
  pthread_mutex_unlock(&comm->lock);
  return status;
}

static brim_status end_call(brim_comm *comm, brim_time asked, brim_time start, uint64_t bytes,
                            brim_status status) {
  pthread_mutex_lock(&comm->lock);
  finish_call(comm, start, bytes, status);
  comm->stats.waited_ns += brim_time_since_ns(asked, brim_clock_now());
  pthread_mutex_unlock(&comm->lock);
  return status;
}

//---------------------------------- lifetime ----------------------------------

// Takes `impl` over, even on failure. Starts the thread that works on posted requests.
static brim_status create_comm(const brim_host_comm_table *table, void *impl, int rank, int size,
                               brim_comm **out) {
  *out = NULL;
  brim_status status = BRIM_OK;
  brim_comm *comm = brim_calloc(1, sizeof *comm);
  if (!comm) {
    status = brim_fail(BRIM_ENOMEM, "no memory for a communicator");
    goto fail_impl;
  }
  *comm = (brim_comm){.table = table, .impl = impl, .rank = rank, .size = size};
  if (pthread_mutex_init(&comm->lock, NULL)) goto fail_lock;
  if (pthread_cond_init(&comm->work, NULL)) goto fail_work;
  if (pthread_cond_init(&comm->done, NULL)) goto fail_done;
  status = brim_thread_start(comm_main, comm, "brim-ranks", &comm->thread);
  if (status) goto fail_thread;
  *out = comm;
  return BRIM_OK;
fail_thread:
  pthread_cond_destroy(&comm->done);
fail_done:
  pthread_cond_destroy(&comm->work);
fail_work:
  pthread_mutex_destroy(&comm->lock);
fail_lock:
  if (!status) status = brim_fail(BRIM_ENOMEM, "no memory for a communicator");
  brim_free(comm);
fail_impl:
  table->close(impl);
  return status;
}

void brim_comm_destroy(brim_comm *comm) {
  if (!comm) return;
  pthread_mutex_lock(&comm->lock);
  bool pending = comm->count > 0 || comm->busy;
  comm->stop = true;
  pthread_cond_broadcast(&comm->work);
  pthread_cond_broadcast(&comm->done);
  pthread_mutex_unlock(&comm->lock);
  if (pending) comm->table->abandon(comm->impl);
  brim_thread_join(comm->thread);
  comm->table->close(comm->impl);
  pthread_cond_destroy(&comm->done);
  pthread_cond_destroy(&comm->work);
  pthread_mutex_destroy(&comm->lock);
  brim_free(comm);
}

void brim_comm_abandon(brim_comm *comm) {
  if (comm) comm->table->abandon(comm->impl);
}

//---------------------------------- calls ----------------------------------

static brim_status check_sum(int64_t count, brim_dtype dtype) {
  if (!brim_comm_can_add(dtype)) {
    return brim_fail(BRIM_EUNSUPPORTED, "ranks cannot sum values of type %s",
                     brim_dtype_name(dtype));
  }
  if (count < 0) return brim_fail(BRIM_EINVAL, "ranks cannot sum a negative number of values");
  return BRIM_OK;
}

brim_status brim_comm_all_reduce(brim_comm *comm, void *data, int64_t count, brim_dtype dtype) {
  BRIM_TRY(check_sum(count, dtype));
  if (!comm) return BRIM_OK;
  brim_time asked = brim_clock_now();
  BRIM_TRY(begin_call(comm));
  brim_time start = brim_clock_now();
  brim_status status = comm->table->all_reduce(comm->impl, data, count, dtype);
  return end_call(comm, asked, start, (uint64_t)count * brim_dtype_size(dtype), status);
}

brim_status brim_comm_all_gather(brim_comm *comm, const void *mine, void *all, size_t bytes) {
  if (!comm) {
    if (bytes > 0) memmove(all, mine, bytes);
    return BRIM_OK;
  }
  brim_time asked = brim_clock_now();
  BRIM_TRY(begin_call(comm));
  brim_time start = brim_clock_now();
  brim_status status = comm->table->all_gather(comm->impl, mine, all, bytes);
  return end_call(comm, asked, start, (uint64_t)bytes * (uint64_t)comm->size, status);
}

brim_status brim_comm_broadcast(brim_comm *comm, void *data, size_t bytes, int root) {
  if (root < 0 || root >= brim_comm_size(comm)) {
    return brim_fail(BRIM_EINVAL, "there is no rank %d to broadcast from", root);
  }
  if (!comm) return BRIM_OK;
  brim_time asked = brim_clock_now();
  BRIM_TRY(begin_call(comm));
  brim_time start = brim_clock_now();
  brim_status status = comm->table->broadcast(comm->impl, data, bytes, root);
  return end_call(comm, asked, start, bytes, status);
}

brim_status brim_comm_post_all_reduce(brim_comm *comm, void *data, int64_t count,
                                      brim_dtype dtype) {
  BRIM_TRY(check_sum(count, dtype));
  if (!comm) return BRIM_OK;
  pthread_mutex_lock(&comm->lock);
  while (comm->count == POSTED_MAX && !comm->broken) {
    pthread_cond_wait(&comm->done, &comm->lock);
  }
  brim_status status = fail_again(comm);
  if (!status) {
    size_t last = (comm->first + comm->count++) % POSTED_MAX;
    comm->posted[last] = (request){.data = data, .count = count, .dtype = dtype};
    pthread_cond_signal(&comm->work);
  }
  pthread_mutex_unlock(&comm->lock);
  return status;
}

brim_status brim_comm_wait(brim_comm *comm) {
  if (!comm) return BRIM_OK;
  pthread_mutex_lock(&comm->lock);
  brim_time asked = brim_clock_now();
  wait_idle(comm);
  comm->stats.waited_ns += brim_time_since_ns(asked, brim_clock_now());
  brim_status status = fail_again(comm);
  pthread_mutex_unlock(&comm->lock);
  return status;
}

void brim_comm_read_stats(brim_comm *comm, brim_comm_stats *out) {
  *out = (brim_comm_stats){0};
  if (!comm) return;
  pthread_mutex_lock(&comm->lock);
  *out = comm->stats;
  pthread_mutex_unlock(&comm->lock);
}

//---------------------------------- ranks of one machine: shared memory ----------------------------------

// Small enough that the windows of a few ranks stay in the cache; containers often have 64 MiB for
// shared memory in all.
#define WINDOW_BYTES (256 * 1024)
#define SEGMENT_MAGIC 0x6d697262u
#define SPINS 2000               // polls before a waiting rank yields its core
#define YIELDS 20                // yields after that, before the rank sleeps
#define SLEEP_NS (20 * 1000000)  // a sleeping rank wakes this often to check that no rank has gone

typedef enum shm_op { SHM_REDUCE = 1, SHM_GATHER, SHM_BROADCAST } shm_op;

// The call a rank makes, compared so that ranks that disagree fail instead of mixing their data up.
typedef struct shm_call {
  uint32_t op, detail;  // detail: the type, or the root
  uint64_t amount;      // values for SHM_REDUCE, bytes for the others
} shm_call;

typedef struct shm_slot {
  _Alignas(64) _Atomic uint32_t barriers;  // barriers this rank has reached; a futex
  _Atomic uint32_t taken;
  shm_call call[2];  // by window
} shm_slot;

typedef struct shm_head {
  _Atomic uint32_t magic;  // set last by the rank that made the segment
  uint32_t size;
  _Atomic uint32_t arrived;
  _Atomic uint32_t sleepers;
  _Atomic int32_t gone;  // 1 + the first rank that closed or abandoned; 0 = none
} shm_head;

typedef struct shm {
  shm_head *head;
  shm_slot *slots;   // (size)
  uint8_t *windows;  // (size, 2, WINDOW_BYTES)
  size_t bytes;
  int rank, size, spins;
  uint32_t barriers;  // barriers this rank has reached
  uint32_t chunk;     // chunks so far: the window is chunk % 2
} shm;

static size_t slots_offset(void) { return (sizeof(shm_head) + 63) / 64 * 64; }
static size_t windows_offset(int size) {
  return (slots_offset() + (size_t)size * sizeof(shm_slot) + 4095) / 4096 * 4096;
}
static size_t segment_bytes(int size) {
  return windows_offset(size) + (size_t)size * 2 * WINDOW_BYTES;
}

static uint8_t *window_of(const shm *s, int rank) {
  return s->windows + ((size_t)rank * 2 + s->chunk % 2) * WINDOW_BYTES;
}

//---------------------------------- barriers ----------------------------------

static void futex_sleep(_Atomic uint32_t *word, uint32_t seen, int64_t ns) {
  struct timespec limit = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
  (void)syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word) {
  (void)syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static bool has_arrived(const shm *s, int rank) {
  return (int32_t)(atomic_load(&s->slots[rank].barriers) - s->barriers) >= 0;
}

static brim_status fail_gone(int32_t gone) {
  return brim_fail(BRIM_EIO, "rank %d ended its exchange with the other ranks", gone - 1);
}

// Waits until `rank` has reached the barrier this rank is at. BRIM_EEND at the time until_ns; 0 = no
// limit.
static brim_status wait_for(shm *s, int rank, int64_t until_ns) {
  for (int turn = 0; !has_arrived(s, rank); turn++) {
    int32_t gone = atomic_load(&s->head->gone);
    if (gone) {
      // A rank that leaves in order has passed its last barrier: it may have arrived since the test
      // above.
      return has_arrived(s, rank) ? BRIM_OK : fail_gone(gone);
    }
    if (turn < s->spins) {
      relax();
    } else if (turn < s->spins + YIELDS) {
      sched_yield();
    } else {
      if (until_ns && brim_clock_now().ns >= until_ns) return BRIM_EEND;
      uint32_t seen = atomic_load(&s->slots[rank].barriers);
      atomic_fetch_add(&s->head->sleepers, 1);
      if (!has_arrived(s, rank)) futex_sleep(&s->slots[rank].barriers, seen, SLEEP_NS);
      atomic_fetch_sub(&s->head->sleepers, 1);
    }
  }
  return BRIM_OK;
}

static void arrive(shm *s) {
  s->barriers++;
  atomic_store(&s->slots[s->rank].barriers, s->barriers);
  if (atomic_load(&s->head->sleepers) > 0) futex_wake(&s->slots[s->rank].barriers);
}

// After it, everything the ranks wrote before is visible to all of them.
static brim_status barrier(shm *s) {
  arrive(s);
  for (int r = 0; r < s->size; r++) {
    if (r != s->rank) BRIM_TRY(wait_for(s, r, 0));
  }
  return BRIM_OK;
}

// The barrier after this rank filled its window. Fails if another rank is in a different call.
static brim_status barrier_filled(shm *s, const shm_call *call) {
  s->slots[s->rank].call[s->chunk % 2] = *call;
  BRIM_TRY(barrier(s));
  for (int r = 0; r < s->size; r++) {
    const shm_call *other = &s->slots[r].call[s->chunk % 2];
    if (other->op != call->op || other->detail != call->detail || other->amount != call->amount) {
      return brim_fail(BRIM_EINTERNAL, "ranks %d and %d are at different exchanges", s->rank, r);
    }
  }
  return BRIM_OK;
}

// Fails if this rank has abandoned the communicator.
static brim_status check_not_abandoned(const shm *s) {
  int32_t gone = atomic_load(&s->head->gone);
  return gone == s->rank + 1 ? fail_gone(gone) : BRIM_OK;
}

//---------------------------------- calls ----------------------------------

static int64_t min_count(int64_t a, int64_t b) { return a < b ? a : b; }

// Sums this rank's slice of the chunk over the windows of all ranks, into its own window.
static void add_slice(const shm *s, int64_t count, brim_dtype dtype) {
  int64_t begin, end;
  brim_comm_slice(count, s->rank, s->size, &begin, &end);
  size_t at = (size_t)begin * brim_dtype_size(dtype);
  // Sums in blocks that stay in L1 while the ranks' values are added to them.
  _Alignas(64) uint8_t block[8192];
  int64_t block_count = (int64_t)(sizeof block / brim_dtype_size(dtype));
  while (begin < end) {
    int64_t n = min_count(end - begin, block_count);
    size_t bytes = (size_t)n * brim_dtype_size(dtype);
    memcpy(block, window_of(s, 0) + at, bytes);
    for (int r = 1; r < s->size; r++) brim_comm_add(block, window_of(s, r) + at, n, dtype);
    memcpy(window_of(s, s->rank) + at, block, bytes);
    begin += n;
    at += bytes;
  }
}

// Few values: every rank adds all of them, which saves a barrier.
static void add_all(const shm *s, void *data, int64_t count, brim_dtype dtype) {
  memcpy(data, window_of(s, 0), (size_t)count * brim_dtype_size(dtype));
  for (int r = 1; r < s->size; r++) brim_comm_add(data, window_of(s, r), count, dtype);
}

static brim_status shm_all_reduce(void *impl, void *data, int64_t count, brim_dtype dtype) {
  shm *s = impl;
  BRIM_TRY(check_not_abandoned(s));
  if (s->size == 1) return BRIM_OK;
  const size_t size = brim_dtype_size(dtype);
  const shm_call call = {SHM_REDUCE, (uint32_t)dtype, (uint64_t)count};
  uint8_t *at = data;
  for (int64_t left = count; left > 0; s->chunk++) {
    int64_t n = min_count(left, (int64_t)(WINDOW_BYTES / size));
    memcpy(window_of(s, s->rank), at, (size_t)n * size);
    BRIM_TRY(barrier_filled(s, &call));
    if ((size_t)count * size <= BRIM_COMM_FEW_BYTES) {
      add_all(s, at, n, dtype);
      left = 0;
      continue;
    }
    add_slice(s, n, dtype);
    BRIM_TRY(barrier(s));
    for (int r = 0; r < s->size; r++) {
      int64_t begin, end;
      brim_comm_slice(n, r, s->size, &begin, &end);
      if (begin == end) continue;
      memcpy(at + (size_t)begin * size, window_of(s, r) + (size_t)begin * size,
             (size_t)(end - begin) * size);
    }
    at += (size_t)n * size;
    left -= n;
  }
  return BRIM_OK;
}

static brim_status shm_all_gather(void *impl, const void *mine, void *all, size_t bytes) {
  shm *s = impl;
  BRIM_TRY(check_not_abandoned(s));
  uint8_t *own = (uint8_t *)all + (size_t)s->rank * bytes;
  if (bytes > 0 && own != mine) memmove(own, mine, bytes);
  if (s->size == 1) return BRIM_OK;
  const shm_call call = {SHM_GATHER, 0, bytes};
  for (size_t at = 0; at < bytes; s->chunk++) {
    size_t n = bytes - at < WINDOW_BYTES ? bytes - at : WINDOW_BYTES;
    memcpy(window_of(s, s->rank), own + at, n);
    BRIM_TRY(barrier_filled(s, &call));
    for (int r = 0; r < s->size; r++) {
      if (r != s->rank) memcpy((uint8_t *)all + (size_t)r * bytes + at, window_of(s, r), n);
    }
    at += n;
  }
  return BRIM_OK;
}

static brim_status shm_broadcast(void *impl, void *data, size_t bytes, int root) {
  shm *s = impl;
  BRIM_TRY(check_not_abandoned(s));
  if (s->size == 1) return BRIM_OK;
  const shm_call call = {SHM_BROADCAST, (uint32_t)root, bytes};
  for (size_t at = 0; at < bytes; s->chunk++) {
    size_t n = bytes - at < WINDOW_BYTES ? bytes - at : WINDOW_BYTES;
    if (s->rank == root) memcpy(window_of(s, root), (uint8_t *)data + at, n);
    BRIM_TRY(barrier_filled(s, &call));
    if (s->rank != root) memcpy((uint8_t *)data + at, window_of(s, root), n);
    at += n;
  }
  return BRIM_OK;
}

static void shm_abandon(void *impl) {
  shm *s = impl;
  int32_t none = 0;
  atomic_compare_exchange_strong(&s->head->gone, &none, s->rank + 1);
  for (int r = 0; r < s->size; r++) futex_wake(&s->slots[r].barriers);
}

static void shm_close(void *impl) {
  shm *s = impl;
  shm_abandon(s);
  munmap(s->head, s->bytes);
  brim_free(s);
}

static const brim_host_comm_table shm_table = {
    .name = "shm",
    .all_reduce = shm_all_reduce,
    .all_gather = shm_all_gather,
    .broadcast = shm_broadcast,
    .abandon = shm_abandon,
    .close = shm_close,
};

//---------------------------------- opening ----------------------------------

static brim_status map_segment(shm *s, int file) {
  void *at = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) {
    return brim_fail(brim_errno_status(errno), "cannot map the ranks' shared memory: %s",
                     brim_errno_text(errno));
  }
  s->head = at;
  s->slots = (shm_slot *)((uint8_t *)at + slots_offset());
  s->windows = (uint8_t *)at + windows_offset(s->size);
  return BRIM_OK;
}

// The first rank makes the segment and reserves its memory, or fails.
static brim_status make_segment(shm *s, const char *name, int file) {
  int code = posix_fallocate(file, 0, (off_t)s->bytes);
  brim_status status = BRIM_OK;
  if (code) {
    status = brim_fail(brim_errno_status(code),
                       "cannot reserve %zu bytes of shared memory for %d ranks: %s", s->bytes,
                       s->size, brim_errno_text(code));
  }
  if (!status) status = map_segment(s, file);
  if (status) {
    shm_unlink(name);
    return status;
  }
  s->head->size = (uint32_t)s->size;
  atomic_store(&s->head->magic, SEGMENT_MAGIC);
  return BRIM_OK;
}

// BRIM_EEND: the segment is not ready yet.
static brim_status join_segment(shm *s, const char *name, int file) {
  struct stat info;
  if (fstat(file, &info)) return brim_fail(BRIM_EIO, "%s: %s", name, brim_errno_text(errno));
  if (info.st_size < (off_t)sizeof(shm_head)) return BRIM_EEND;
  BRIM_TRY(map_segment(s, file));
  brim_status status = BRIM_OK;
  if (atomic_load(&s->head->magic) != SEGMENT_MAGIC) {
    status = BRIM_EEND;
  } else if (s->head->size != (uint32_t)s->size) {
    status = brim_fail(BRIM_EINVAL, "shared memory %s is for %u ranks, not %d", name, s->head->size,
                       s->size);
  }
  if (status) munmap(s->head, s->bytes);
  return status;
}

// BRIM_EEND: the segment exists, but is not ready yet.
static brim_status attach(shm *s, const char *name) {
  int file = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  bool made = file >= 0;
  if (!made && errno == EEXIST) file = shm_open(name, O_RDWR | O_CLOEXEC, 0);
  if (file < 0 && errno == ENOENT) return BRIM_EEND;  // gone in between
  if (file < 0) {
    return brim_fail(brim_errno_status(errno), "cannot open the ranks' shared memory %s: %s", name,
                     brim_errno_text(errno));
  }
  brim_status status = made ? make_segment(s, name, file) : join_segment(s, name, file);
  close(file);
  return status;
}

// The missing ranks as text: "2, 5".
static void missing_text(const shm *s, char *out, size_t size) {
  size_t at = 0;
  out[0] = 0;
  for (int r = 0; r < s->size && at + 16 < size; r++) {
    if (has_arrived(s, r)) continue;
    at += (size_t)snprintf(out + at, size - at, "%s%d", at ? ", " : "", r);
  }
}

static brim_status wait_for_all(shm *s, const char *name, int64_t until_ns) {
  uint32_t free_slot = 0;
  if (!atomic_compare_exchange_strong(&s->slots[s->rank].taken, &free_slot, 1)) {
    return brim_fail(BRIM_EEXIST, "another process is rank %d of the ranks at %s", s->rank, name);
  }
  if (atomic_fetch_add(&s->head->arrived, 1) + 1 == (uint32_t)s->size) shm_unlink(name);
  arrive(s);
  for (int r = 0; r < s->size; r++) {
    brim_status status = r == s->rank ? BRIM_OK : wait_for(s, r, until_ns);
    if (status == BRIM_EEND) {
      char missing[256];
      missing_text(s, missing, sizeof missing);
      shm_unlink(name);
      status = brim_fail(BRIM_EIO, "these of %d ranks did not come in time: %s", s->size, missing);
    }
    if (status) return status;
  }
  return BRIM_OK;
}

brim_status brim_comm_open_shm(const char *name, int rank, int size, int64_t timeout_ns,
                               brim_comm **out) {
  *out = NULL;
  if (size < 1 || size > BRIM_RANKS_MAX || rank < 0 || rank >= size || name[0] != '/') {
    return brim_fail(BRIM_EINVAL, "there is no rank %d of %d ranks", rank, size);
  }
  int64_t until_ns = brim_clock_now().ns + timeout_ns;
  shm *s = brim_calloc(1, sizeof *s);
  if (!s) return brim_fail(BRIM_ENOMEM, "no memory for a communicator");
  // Ranks may share a core: a waiting rank must not keep it.
  *s = (shm){.bytes = segment_bytes(size), .rank = rank, .size = size};
  s->spins = size <= brim_cpu_count() ? SPINS : 0;
  brim_status status = attach(s, name);
  while (status == BRIM_EEND && brim_clock_now().ns < until_ns) {
    brim_clock_sleep_ns(1000000);
    status = attach(s, name);
  }
  if (status == BRIM_EEND) {
    status = brim_fail(BRIM_EIO, "the rank that made shared memory %s did not finish it", name);
  }
  if (status) {
    brim_free(s);
    return status;
  }
  status = wait_for_all(s, name, until_ns);
  if (status) {
    // A second rank with the same number must not stop the one the others wait for.
    if (status != BRIM_EEXIST) shm_abandon(s);
    munmap(s->head, s->bytes);
    brim_free(s);
    return status;
  }
  return create_comm(&shm_table, s, rank, size, out);
}

//---------------------------------- ranks over MPI ----------------------------------

#define PLUGIN "ranks/libbrim_mpi.so"

// The plug-in in the first folder that has it. NULL with BRIM_OK: no folder has it.
static brim_status find_plugin(const char *folders, char **out) {
  *out = NULL;
  for (const char *at = folders; *at && !*out;) {
    size_t n = strcspn(at, ":");
    char *folder = brim_strndup(at, n);
    char *path = folder ? brim_fs_join(folder, PLUGIN) : NULL;
    brim_free(folder);
    if (!path) return brim_fail(BRIM_ENOMEM, "no memory for a plug-in's path");
    if (n > 0 && brim_fs_exists(path)) {
      *out = path;
    } else {
      brim_free(path);
    }
    at += n + (at[n] == ':');
  }
  return BRIM_OK;
}

static brim_status plugin_path(char **out) {
  const char *list = getenv("BRIM_PLUGIN_PATH");
  if (list) {
    BRIM_TRY(find_plugin(list, out));
  } else {
    char *exe = brim_fs_exe_dir();
    char *folder = exe ? brim_fs_join(exe, "../lib/brim") : NULL;
    brim_free(exe);
    if (!folder) return brim_fail(BRIM_ENOMEM, "no memory for the plug-in folder");
    brim_status status = find_plugin(folder, out);
    brim_free(folder);
    BRIM_TRY(status);
  }
  if (*out) return BRIM_OK;
  return brim_fail(BRIM_ENOENT,
                   "this brim was built without MPI, which ranks of mpirun and srun need: install "
                   "libopenmpi-dev and build it again");
}

brim_status brim_comm_open_mpi(brim_comm **out, int *local_rank, int *local_size) {
  *out = NULL;
  char *path = NULL;
  BRIM_TRY(plugin_path(&path));
  brim_registry *registry = NULL;
  brim_mpi_ranks ranks = {0};
  brim_status status = brim_registry_create(&registry);
  if (!status) status = brim_registry_load(registry, path);
  if (!status) {
    const brim_mpi_table *table = brim_registry_extension(registry, BRIM_MPI_EXTENSION);
    status = table ? table->open(&ranks)
                   : brim_fail(BRIM_EABI, "%s: the plug-in has no ranks over MPI", path);
  }
  brim_registry_destroy(registry);  // the plug-in stays open
  brim_free(path);
  BRIM_TRY(status);
  *local_rank = ranks.local_rank;
  *local_size = ranks.local_size;
  return create_comm(ranks.table, ranks.impl, ranks.rank, ranks.size, out);
}
