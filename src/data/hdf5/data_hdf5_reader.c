// Rows of a dataset that only libhdf5 can unpack are read by helper processes, which hand them over
// in shared memory: what a damaged row does to the library it does to a helper, and the next row has
// a new one. Each helper has a library and a lock of its own, so that several unpack at once.
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "data/hdf5/data_hdf5_helper.h"

enum { MAX_CHILDREN = 4, TEXT = BRIM_HDF5_ROW_TEXT };
static const uint64_t ROOM_LIMIT = (uint64_t)256 << 20;  // of all children, where rows are huge

// How a child ended that gave no answer.
typedef struct ending {
  bool silent;   // it still lived, but did nothing any more
  bool stopped;  // the same, and the user wants to stop
  brim_child_result result;
} ending;

typedef struct child {
  pthread_mutex_t lock;
  brim_child *process;  // NULL: none
  int socket, memory;
  uint8_t *shared;  // (room) the row, then TEXT: why there is none
} child;

struct brim_hdf5_reader {
  const brim_hdf5_array *a;
  size_t room;
  uint64_t broken_bytes;
  _Atomic uint8_t *broken;  // bit i: what row i did to a child once; planned
  uint32_t count, ready;
  child children[MAX_CHILDREN];
};

//---------------------------------- this process ----------------------------------

static void end(child *c) {
  if (!c->process) return;
  (void)close(c->socket);
  brim_child_close(c->process);  // it may be far from asking for the next row
  c->process = NULL;
}

// Processor time the child has used, in ns; 0: not known.
static int64_t used_ns(const child *c) {
  clockid_t clock;
  struct timespec used;
  if (clock_getcpuclockid(brim_child_pid(c->process), &clock) || clock_gettime(clock, &used))
    return 0;
  return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

// Whether there is something to hear. Its own limit ends a child that computes for ever; one that is
// stuck (a network drive that is gone) uses no time and would
// never be ended. A slow disk or a busy machine is no reason: from time to time it gets on.
static bool await(const child *c, bool *stopped) {
  const int64_t tick_ns = (int64_t)brim_hdf5_helper_limit_s() * 1000000000;
  brim_stop_wait stop = {0};
  int64_t used = used_ns(c);
  for (int idle = 0; idle < BRIM_HDF5_IDLE_LIMITS; idle++) {
    struct pollfd end = {.fd = c->socket, .events = POLLIN};
    brim_time begin = brim_clock_now();
    for (int64_t left = tick_ns; left > 0;) {
      const int64_t left_ms = left / 1000000 + 1;
      int n = poll(&end, 1, (int)(left_ms < BRIM_STOP_LOOK_MS ? left_ms : BRIM_STOP_LOOK_MS));
      if (n > 0 || (n < 0 && errno != EINTR)) return true;  // recv says what is wrong with it
      *stopped = brim_stop_overdue(&stop);
      if (*stopped) return false;
      left = tick_ns - brim_time_since_ns(begin, brim_clock_now());
    }
    int64_t now = used_ns(c);
    if (now != used) idle = -1;
    used = now;
  }
  return false;
}

static brim_status silent(const char *what, const ending *how) {
  if (how->stopped) return brim_hdf5_helper_stopped(what);
  return brim_fail(BRIM_EIO,
                   "%s: its reader process made no progress for %d s; is the disk or network drive "
                   "still available?",
                   what, BRIM_HDF5_IDLE_LIMITS * brim_hdf5_helper_limit_s());
}

// The child's answer in *status; false: it is no more, and *how says why.
static bool hear(const brim_hdf5_reader *r, child *c, brim_status *status, ending *how) {
  int8_t said = 0;
  ssize_t n;
  *how = (ending){0};
  how->silent = !await(c, &how->stopped);
  if (how->silent) {
    end(c);
    return false;
  }
  do {
    n = recv(c->socket, &said, 1, 0);
  } while (n < 0 && errno == EINTR);
  if (n != 1) {
    bool ended;
    if (brim_child_wait(c->process, -1, &ended)) brim_status_clear();  // the result says it too
    how->result = *brim_child_get_result(c->process);
    end(c);
    return false;
  }
  char *text = (char *)c->shared + r->room;
  text[TEXT - 1] = 0;
  *status = said < 0 ? brim_fail((brim_status)said, "%s", text) : BRIM_OK;
  return true;
}

static void describe(const brim_hdf5_array *a, uint64_t device, uint64_t inode,
                     brim_hdf5_request *out) {
  brim_str dims;
  brim_str_init(&dims);
  for (int d = 0; d < a->rank; d++) brim_str_printf(&dims, "%s%" PRIu64, d ? "," : "", a->dim[d]);
  brim_hdf5_request_init(out, "rows");
  brim_hdf5_request_text(out, "path", a->map->path);
  brim_hdf5_request_text(out, "name", a->name);
  brim_hdf5_request_text(out, "dims", dims.data);
  brim_hdf5_request_int(out, "row_bytes", (int64_t)a->row_bytes);
  brim_hdf5_request_int(out, "outside", a->outside);
  brim_hdf5_request_int(out, "device", (int64_t)device);
  brim_hdf5_request_int(out, "inode", (int64_t)inode);
  out->no_memory |= brim_str_status(&dims) != BRIM_OK;
  brim_str_deinit(&dims);
}

static brim_status launch(const brim_hdf5_array *a, child *c) {
  int ends[2] = {-1, -1};
  struct stat st;
  brim_hdf5_request request;
  if (fstat(a->map->fd, &st) != 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return brim_fail(BRIM_EIO, "%s: %s: no process could be started to read it: %s", a->map->path,
                     a->name, brim_errno_text(errno));
  describe(a, st.st_dev, st.st_ino, &request);
  const int passed[] = {c->memory, ends[1]};
  brim_status status = brim_hdf5_helper_start(&request, passed, 2, &c->process);
  brim_hdf5_request_deinit(&request);
  (void)close(ends[1]);
  c->socket = ends[0];
  if (!status) return BRIM_OK;
  (void)close(ends[0]);
  // The source is open: its rows cannot be read, whatever the reason.
  if (status != BRIM_ENOMEM) status = BRIM_EIO;
  return brim_fail_context(status, "%s: %s", a->map->path, a->name);
}

// Its first answer: whether it could open the dataset.
static brim_status greet(const brim_hdf5_reader *r, child *c) {
  const brim_hdf5_array *a = r->a;
  brim_status status = BRIM_OK;
  ending how;
  if (!hear(r, c, &status, &how)) {
    if (how.silent) return silent(a->map->path, &how);
    status = brim_hdf5_helper_status(a->map->path, &how.result);
    if (!status)
      status = brim_fail(BRIM_EIO, "%s: %s: its reader process was killed", a->map->path, a->name);
  } else if (status) {
    end(c);
  }
  return status;
}

// Whether the child was there to answer; if not, *how.
static bool ask(const brim_hdf5_reader *r, child *c, uint64_t index, brim_status *status,
                ending *how) {
  if (!c->process) {
    *status = launch(r->a, c);
    if (!*status) *status = greet(r, c);
    if (*status) return true;
  }
  (void)send(c->socket, &index, sizeof index, MSG_NOSIGNAL);  // to a dead one: heard below
  return hear(r, c, status, how);
}

static brim_status fetch(brim_hdf5_reader *r, child *c, uint64_t index) {
  const brim_hdf5_array *a = r->a;
  char row[TEXT];
  uint8_t bit = (uint8_t)(1u << (index & 7));
  brim_status status = BRIM_OK;
  ending how;
  if (atomic_load(&r->broken[index / 8]) & bit)
    return brim_fail(BRIM_EPARSE,
                     "%s: %s[%" PRIu64 "]: the HDF5 library crashed on this row before",
                     a->map->path, a->name, index);
  if (ask(r, c, index, &status, &how)) return status;
  // Another row may have spoilt that child's memory: what counts is what a new one says.
  bool endless = how.silent || how.result.signal == SIGPROF;
  if (!endless && ask(r, c, index, &status, &how)) return status;
  snprintf(row, sizeof row, "%s: %s[%" PRIu64 "]", a->map->path, a->name, index);
  if (how.silent) return silent(row, &how);  // the row may be good: it can be asked for again
  status = brim_hdf5_helper_status(row, &how.result);
  if (!status || how.result.signal == SIGKILL)
    return brim_fail(BRIM_EIO, "%s: its reader process was killed; is memory short?", row);
  if (how.result.lost) return status;  // the row may be good
  (void)atomic_fetch_or(&r->broken[index / 8], bit);
  return status;
}

//---------------------------------- the reader ----------------------------------

brim_status brim_hdf5_reader_create(const brim_hdf5_array *a, brim_hdf5_reader **out) {
  brim_hdf5_reader *r = brim_calloc(1, sizeof *r);
  *out = NULL;
  if (!r) return brim_fail(BRIM_ENOMEM, "%s: %s: out of memory", a->map->path, a->name);
  r->a = a;
  r->room = (a->row_bytes + BRIM_ALIGN - 1) / BRIM_ALIGN * BRIM_ALIGN;
  uint64_t count = (uint64_t)brim_cpu_count() / 2, most = ROOM_LIMIT / r->room;
  if (count > most) count = most;
  r->count = count < 1 ? 1 : count > MAX_CHILDREN ? MAX_CHILDREN : (uint32_t)count;
  r->broken_bytes = a->dim[0] / 8 + 1;
  r->broken = brim_alloc_tagged(r->broken_bytes, BRIM_MEM_PLANNED);
  bool good = r->broken != NULL;
  for (uint64_t i = 0; good && i < r->broken_bytes; i++) atomic_init(&r->broken[i], 0);
  for (; good && r->ready < r->count; r->ready++) {
    child *c = &r->children[r->ready];
    void *shared;
    good = brim_hdf5_share(r->room + TEXT, &c->memory, &shared) == BRIM_OK;
    if (!good) break;
    c->shared = shared;
    pthread_mutex_init(&c->lock, NULL);
  }
  if (!good) {
    brim_hdf5_reader_destroy(r);
    return brim_fail(BRIM_ENOMEM, "%s: %s: out of memory for rows of %" PRIu64 " bytes",
                     a->map->path, a->name, a->row_bytes);
  }
  *out = r;
  return BRIM_OK;
}

void brim_hdf5_reader_destroy(brim_hdf5_reader *r) {
  if (!r) return;
  for (uint32_t i = 0; i < r->ready; i++) {
    child *c = &r->children[i];
    end(c);
    (void)munmap(c->shared, r->room + TEXT);
    (void)close(c->memory);
    pthread_mutex_destroy(&c->lock);
  }
  brim_free((void *)r->broken);
  brim_free(r);
}

// All start at once; each takes some ms to load libhdf5.
brim_status brim_hdf5_reader_start(brim_hdf5_reader *r) {
  bool fresh[MAX_CHILDREN] = {false};
  brim_status status = BRIM_OK;
  for (uint32_t i = 0; i < r->count; i++) {
    child *c = &r->children[i];
    pthread_mutex_lock(&c->lock);
    if (status || c->process) continue;
    status = launch(r->a, c);
    fresh[i] = !status;
  }
  for (uint32_t i = 0; i < r->count; i++) {
    child *c = &r->children[i];
    if (fresh[i] && status) end(c);
    if (fresh[i] && !status) status = greet(r, c);
    pthread_mutex_unlock(&c->lock);
  }
  return status;
}

uint64_t brim_hdf5_reader_bytes(const brim_hdf5_reader *r) {
  return r->broken_bytes + r->count * (uint64_t)(r->room + TEXT);
}

brim_status brim_hdf5_reader_get(brim_hdf5_reader *r, uint64_t index, const uint8_t **row) {
  // Rows that lie together go to one child, which has them unpacked.
  child *c = &r->children[index / r->a->block % r->count];
  pthread_mutex_lock(&c->lock);
  brim_status status = fetch(r, c, index);
  if (status) {
    pthread_mutex_unlock(&c->lock);
  } else {
    *row = c->shared;
  }
  return status;
}

void brim_hdf5_reader_put(brim_hdf5_reader *r, uint64_t index) {
  pthread_mutex_unlock(&r->children[index / r->a->block % r->count].lock);
}
