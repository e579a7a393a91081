// A communicator over any implementation: checks the arguments, keeps the calls in order, works on posted
// requests on a thread of its own, and keeps the first failure for every later call.
#include "backend/backend_comm.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

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

// The first failure again, on whichever thread asks.
static brim_status fail_again(const brim_comm *comm) {
  if (comm->broken) brim_status_set_detail(comm->why);
  return comm->broken;
}

// With the lock held: the result of the call that began at `start`.
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

// With the lock held: the values of a request are summed, without the lock meanwhile.
static void work_on(brim_comm *comm, const request *r) {
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
    work_on(comm, &r);
    comm->first = (comm->first + 1) % POSTED_MAX;
    comm->count--;
    pthread_cond_broadcast(&comm->done);
  }
  pthread_mutex_unlock(&comm->lock);
}

// With the lock held, until nothing is posted and no thread is in a call.
static void wait_idle(brim_comm *comm) {
  while (comm->count > 0 || comm->busy) pthread_cond_wait(&comm->done, &comm->lock);
}

// The caller may make a call of the implementation once this has returned BRIM_OK.
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

brim_status brim_comm_create(const brim_host_comm_table *table, void *impl, int rank, int size,
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
