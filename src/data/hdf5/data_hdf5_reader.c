// Rows of a dataset that only libhdf5 can unpack are read in child processes, which hand them over
// in shared memory: what a damaged row does to the library it does to a child, and the next row has
// a new one. Each child has a library and a lock of its own, so that several unpack at once.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "data/hdf5/data_hdf5_lib.h"

enum { MAX_CHILDREN = 4, TEXT = 4096 };
enum { SILENT = -1 };  // in place of what wait() says: it still lived, but did nothing any more
static const uint64_t ROOM_LIMIT = (uint64_t)256 << 20;  // of all children, where rows are huge

typedef struct child {
  pthread_mutex_t lock;
  pid_t pid;  // 0: none
  int socket;
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

//---------------------------------- the child ----------------------------------

// A child lives as long as the source does, and must not hold what this process closes: its
// connections, locks and pipes. Of a file that is open for reading libhdf5 may know, and the map's
// is one.
static void close_others(int own) {
  DIR *list = opendir("/proc/self/fd");
  if (!list) return;
  for (const struct dirent *e = readdir(list); e; e = readdir(list)) {
    struct stat st;
    int fd = (int)strtol(e->d_name, NULL, 10);
    if (fd <= STDERR_FILENO || fd == own || fd == dirfd(list)) continue;
    int flags = fcntl(fd, F_GETFL);
    bool reads = flags >= 0 && (flags & O_ACCMODE) == O_RDONLY && fstat(fd, &st) == 0;
    if (!reads || !S_ISREG(st.st_mode)) (void)close(fd);
  }
  (void)closedir(list);
}

// It is opened anew by its name, as what the dataset is made of may lie beside it.
static brim_status same_file(const brim_map *map) {
  struct stat here, there;
  if (fstat(map->fd, &here) == 0 && stat(map->path, &there) == 0 && here.st_dev == there.st_dev &&
      here.st_ino == there.st_ino)
    return BRIM_OK;
  return brim_fail(BRIM_EIO, "%s: the file was removed or replaced", map->path);
}

static bool answer(int socket, brim_status status, char *text) {
  int8_t code = (int8_t)status;
  if (status) snprintf(text, TEXT, "%s", brim_status_detail());
  return send(socket, &code, 1, MSG_NOSIGNAL) == 1;
}

// Inside libhdf5's lock for good: nobody else is in this process.
static _Noreturn void serve(const brim_hdf5_reader *r, const child *c, int socket) {
  brim_hdf5_array a = *r->a;
  char *text = (char *)c->shared + r->room;
  uint64_t index;
  brim_hdf5_child_begin(true);
  close_others(socket);
  brim_hdf5_child_limit(true);
  brim_status status = same_file(a.map);
  if (!status) status = brim_hdf5_library_open(&a);
  brim_hdf5_child_limit(false);
  if (!answer(socket, status, text) || status) _exit(0);
  while (recv(socket, &index, sizeof index, MSG_WAITALL) == (ssize_t)sizeof index) {
    brim_hdf5_child_limit(true);
    status = brim_hdf5_library_row(&a, index, c->shared);
    brim_hdf5_child_limit(false);
    if (!answer(socket, status, text)) break;
  }
  _exit(0);
}

//---------------------------------- this process ----------------------------------

static void end(child *c) {
  if (!c->pid) return;
  (void)close(c->socket);
  (void)kill(c->pid, SIGKILL);  // it may be far from asking for the next row
  while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR) {
  }
  c->pid = 0;
}

// Processor time the child has used, in ns; 0: not known.
static int64_t used_ns(const child *c) {
  clockid_t clock;
  struct timespec used;
  if (clock_getcpuclockid(c->pid, &clock) || clock_gettime(clock, &used)) return 0;
  return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

// Whether there is something to hear. Its own limit ends a child that computes for ever; one that is
// stuck (a network drive that is gone, a lock somebody held at the fork) uses no time and would
// never be ended. A slow disk or a busy machine is no reason: from time to time it gets on.
static bool await(const child *c) {
  const int64_t tick_ns = (int64_t)brim_hdf5_child_limit_s() * 1000000000;
  int64_t used = used_ns(c);
  for (int idle = 0; idle < BRIM_HDF5_IDLE_LIMITS; idle++) {
    struct pollfd end = {.fd = c->socket, .events = POLLIN};
    brim_time begin = brim_clock_now();
    for (int64_t left = tick_ns; left > 0;) {
      int n = poll(&end, 1, (int)(left / 1000000) + 1);
      if (n > 0 || (n < 0 && errno != EINTR)) return true;  // recv says what is wrong with it
      left = tick_ns - brim_time_since_ns(begin, brim_clock_now());
    }
    int64_t now = used_ns(c);
    if (now != used) idle = -1;
    used = now;
  }
  return false;
}

static brim_status silent(const char *what) {
  return brim_fail(BRIM_EIO,
                   "%s: its reader process made no progress for %d s; is the disk or network drive "
                   "still available?",
                   what, BRIM_HDF5_IDLE_LIMITS * brim_hdf5_child_limit_s());
}

// The child's answer in *status; false: it is no more, and *code says how it ended.
static bool hear(const brim_hdf5_reader *r, child *c, brim_status *status, int *code) {
  int8_t said = 0;
  ssize_t n;
  if (!await(c)) {
    end(c);
    *code = SILENT;
    return false;
  }
  do {
    n = recv(c->socket, &said, 1, 0);
  } while (n < 0 && errno == EINTR);
  if (n != 1) {
    (void)close(c->socket);
    while (waitpid(c->pid, code, 0) < 0 && errno == EINTR) {
    }
    c->pid = 0;
    return false;
  }
  char *text = (char *)c->shared + r->room;
  text[TEXT - 1] = 0;
  *status = said < 0 ? brim_fail((brim_status)said, "%s", text) : BRIM_OK;
  return true;
}

static brim_status start(const brim_hdf5_reader *r, child *c) {
  const brim_hdf5_array *a = r->a;
  int ends[2] = {-1, -1};
  brim_hdf5_scope scope;
  brim_hdf5_enter(&scope);  // no other thread is inside the library, and no other fork has our ends
  pid_t pid = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0 ? fork() : -1;
  int why = errno;
  if (pid == 0) serve(r, c, ends[1]);
  if (ends[1] >= 0) (void)close(ends[1]);
  brim_hdf5_leave(&scope);
  if (pid < 0) {
    if (ends[0] >= 0) (void)close(ends[0]);
    return brim_fail(BRIM_EIO, "%s: %s: no process could be started to read it: %s", a->map->path,
                     a->name, strerror(why));
  }
  c->pid = pid;
  c->socket = ends[0];
  brim_status status = BRIM_OK;
  int code = 0;
  if (!hear(r, c, &status, &code)) {
    if (code == SILENT) return silent(a->map->path);
    status = brim_hdf5_child_judge(a->map->path, code);
    if (!status)
      status = brim_fail(BRIM_EIO, "%s: %s: its reader process was killed", a->map->path, a->name);
  } else if (status) {
    end(c);
  }
  return status;
}

// Whether the child was there to answer; if not, *code.
static bool ask(const brim_hdf5_reader *r, child *c, uint64_t index, brim_status *status,
                int *code) {
  if (!c->pid) {
    *status = start(r, c);
    if (*status) return true;
  }
  (void)send(c->socket, &index, sizeof index, MSG_NOSIGNAL);  // to a dead one: heard below
  return hear(r, c, status, code);
}

static brim_status fetch(brim_hdf5_reader *r, child *c, uint64_t index) {
  const brim_hdf5_array *a = r->a;
  char row[TEXT];
  uint8_t bit = (uint8_t)(1u << (index & 7));
  brim_status status = BRIM_OK;
  int code = 0;
  if (atomic_load(&r->broken[index / 8]) & bit)
    return brim_fail(BRIM_EPARSE,
                     "%s: %s[%" PRIu64 "]: the HDF5 library crashed on this row before",
                     a->map->path, a->name, index);
  if (ask(r, c, index, &status, &code)) return status;
  // Another row may have spoilt that child's memory: what counts is what a new one says.
  bool endless = code == SILENT || (WIFSIGNALED(code) && WTERMSIG(code) == SIGPROF);
  if (!endless && ask(r, c, index, &status, &code)) return status;
  snprintf(row, sizeof row, "%s: %s[%" PRIu64 "]", a->map->path, a->name, index);
  if (code == SILENT) return silent(row);  // the row may be good: it can be asked for again
  status = brim_hdf5_child_judge(row, code);
  if (!status || (WIFSIGNALED(code) && WTERMSIG(code) == SIGKILL))
    return brim_fail(BRIM_EIO, "%s: its reader process was killed; is memory short?", row);
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
    void *shared =
        mmap(NULL, r->room + TEXT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
      good = false;
      break;
    }
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
    pthread_mutex_destroy(&c->lock);
  }
  brim_free((void *)r->broken);
  brim_free(r);
}

brim_status brim_hdf5_reader_start(brim_hdf5_reader *r) {
  brim_status status = BRIM_OK;
  for (uint32_t i = 0; i < r->count && !status; i++) {
    child *c = &r->children[i];
    pthread_mutex_lock(&c->lock);
    if (!c->pid) status = start(r, c);
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
