// The helper program, lib/brim/brim-hdf5, both sides of it. This process starts the helper, has it probe
// a file, and interprets its exit. A probing helper serves one request and may crash; it logs nothing and
// writes no file. Rows of a dataset that only libhdf5 can unpack are read by several helpers, which pass
// them in shared memory: if a damaged row crashes a helper, the next row gets a new one. Each helper has
// its own library and lock, so that several unpack at once.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "data/hdf5/data_hdf5.h"

//---------------------------------- starting the helper ----------------------------------

enum { SECONDS = 60, MOST_SECONDS = 3600 };
enum { NOT_RUN = 127 };  // exit code of the system's loader if a library is missing
static const char PROGRAM[] = "brim-hdf5";

// Most processor time of a request: 60 s, or BRIM_HDF5_LIMIT_S in the environment (for tests).
static int limit_s(void) {
  const char *text = getenv("BRIM_HDF5_LIMIT_S");
  long n = text ? strtol(text, NULL, 10) : 0;
  return n >= 1 && n <= MOST_SECONDS ? (int)n : SECONDS;
}

//---------------------------------- the request ----------------------------------

void brim_hdf5_request_text(brim_hdf5_request *r, const char *name, const char *value) {
  if (!value || r->no_memory) return;
  size_t size = strlen(name) + strlen(value) + 2;
  char *word = r->count < BRIM_HDF5_MAX_WORDS ? brim_alloc(size) : NULL;
  r->no_memory = !word;
  if (!word) return;
  snprintf(word, size, "%s=%s", name, value);
  r->argv[r->count++] = word;
}

void brim_hdf5_request_int(brim_hdf5_request *r, const char *name, int64_t value) {
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)value);
  brim_hdf5_request_text(r, name, text);
}

void brim_hdf5_request_init(brim_hdf5_request *r, const char *job) {
  *r = (brim_hdf5_request){.count = 1};  // start_helper sets argv[0]
  brim_hdf5_request_text(r, "job", job);
  brim_hdf5_request_text(r, "version", BRIM_VERSION);
  brim_hdf5_request_text(r, "language", brim_tr("en"));  // "en" translates to the language's code
  brim_hdf5_request_int(r, "parent", getpid());
}

void brim_hdf5_request_deinit(brim_hdf5_request *r) {
  for (size_t i = 1; i < r->count; i++) brim_free((void *)(uintptr_t)r->argv[i]);
  *r = (brim_hdf5_request){0};
}

brim_status brim_hdf5_share(size_t size, int *fd, void **out) {
  *out = NULL;
  *fd = memfd_create(PROGRAM, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (*fd >= 0 && ftruncate(*fd, (off_t)size) == 0) {
    // A helper with corrupted memory must not shrink it: the next access here would be a SIGBUS.
    (void)fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (at != MAP_FAILED) {
      *out = at;
      return BRIM_OK;
    }
  }
  int why = errno;
  if (*fd >= 0) (void)close(*fd);
  *fd = -1;
  return brim_fail(BRIM_ENOMEM, "no memory to share with %s: %s", PROGRAM, brim_errno_text(why));
}

//---------------------------------- the program ----------------------------------

// The path of the program or shared library that holds this code. A program that uses libbrim.so may lie
// anywhere, so its own path does not help.
static bool own_path(char out[PATH_MAX]) {
  static const char anchor = 0;
  Dl_info info;
  struct link_map *map = NULL;
  bool known = dladdr1(&anchor, &info, (void **)&map, RTLD_DL_LINKMAP) && map;
  // The main program has no name in its link map, and argv[0] may be anything.
  bool library = known && map->l_name && map->l_name[0];
  return realpath(library ? map->l_name : "/proc/self/exe", out) != NULL;
}

// Finds the helper: bin/brim and tests/x look in ../lib/brim, lib/libbrim.so looks in brim.
static brim_status find_program(char out[PATH_MAX]) {
  static const char *const places[] = {"../lib/brim", "brim"};
  const char *named = getenv("BRIM_HDF5_HELPER");
  char own[PATH_MAX];
  if (named && named[0]) {
    snprintf(out, PATH_MAX, "%s", named);
    return BRIM_OK;
  }
  char *last = own_path(own) ? strrchr(own, '/') : NULL;
  if (last) *last = 0;
  for (size_t i = 0; last && i < sizeof places / sizeof *places; i++) {
    int n = snprintf(out, PATH_MAX, "%s/%s/%s", own, places[i], PROGRAM);
    if (n > 0 && n < PATH_MAX && access(out, X_OK) == 0) return BRIM_OK;
  }
  // Not BRIM_ENOENT, which would mean that a file lacks the split.
  return brim_fail(BRIM_EUNSUPPORTED,
                   "cannot read HDF5 files: the program %s was not found; put it into lib/brim, or "
                   "name it in BRIM_HDF5_HELPER",
                   PROGRAM);
}

// Starts the helper with these descriptors as 3, 4, ... BRIM_EUNSUPPORTED: it is not installed or
// cannot run. BRIM_ELIMIT: the system has no process or descriptor left.
static brim_status start_helper(brim_hdf5_request *r, const int *fds, size_t count,
                                brim_child **out) {
  char path[PATH_MAX];
  *out = NULL;
  BRIM_TRY(find_program(path));
  if (r->no_memory) return brim_fail(BRIM_ENOMEM, "out of memory for a child process");
  r->argv[0] = path;
  const brim_child_options options = {.argv = r->argv, .pass_fds = fds, .pass_count = count};
  brim_status status = brim_child_start(&options, out);
  r->argv[0] = NULL;
  if (!status || status == BRIM_ELIMIT || status == BRIM_ENOMEM) return status;
  return brim_fail_context(BRIM_EUNSUPPORTED, "cannot read HDF5 files");
}

// Fails because the helper started but ended before it could do anything.
static brim_status helper_failed(const char *what) {
  return brim_fail(BRIM_EIO, "%s: the program %s does not run; install brim again", what, PROGRAM);
}

// Fails because the user wants to stop, so nothing waits for the helper any more.
static brim_status helper_stopped(const char *what) {
  return brim_fail(BRIM_EINTERRUPTED, "%s: interrupted while %s read it", what, PROGRAM);
}

// The status of a file after its helper ended so. A signal from the user says nothing about the file:
// BRIM_OK.
static brim_status helper_status(const char *what, const brim_child_result *end) {
  if (end->lost)
    return brim_fail(
        BRIM_EPARSE,
        "%s: the process that reads it with the HDF5 library ended early; the cause is "
        "unknown, as this program ignores SIGCHLD. The file may be damaged: inspect it "
        "with h5ls, or set SIGCHLD to SIG_DFL",
        what);
  switch (end->signal) {
    case 0:  // an exit code other than 0 is a crash too: sanitizers exit
      if (end->exit_code == 0) return BRIM_OK;
      if (end->exit_code == NOT_RUN) return helper_failed(what);
      break;
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
    case SIGQUIT:
    case SIGALRM:
      return BRIM_OK;
    case SIGPROF:
      return brim_fail(BRIM_EPARSE,
                       "%s: the HDF5 library did not finish within %d s; the file is damaged, or "
                       "has millions of chunks and needs larger ones",
                       what, limit_s());
    default:
      break;
  }
  return brim_fail(BRIM_EPARSE,
                   "%s: the HDF5 library crashed (signal %d): the file is damaged; copy or "
                   "download it again, or inspect it with h5ls or h5repack",
                   what, end->signal);
}

//---------------------------------- probing ----------------------------------

static brim_status status_of(const brim_hdf5_probe_room *room, const brim_child_result *end) {
  if (room->done) return BRIM_OK;
  if (!room->version[0] && !end->signal) return helper_failed(room->at);
  if (room->version[0] && strncmp(room->version, BRIM_VERSION, sizeof room->version) != 0)
    return brim_fail(BRIM_EABI, "%s: the HDF5 helper program has version %.31s, this brim has %s",
                     room->at, room->version, BRIM_VERSION);
  return helper_status(room->at, end);
}

static brim_status run_probe(const char *path, brim_hdf5_request *request,
                             brim_hdf5_probe_room *room, int fd) {
  brim_child *c = NULL;
  bool ended = false;
  snprintf(room->at, sizeof room->at, "%s", path);
  brim_status status = start_helper(request, &fd, 1, &c);
  if (status == BRIM_ELIMIT) {  // the system has no process left: skip the probe
    brim_status_clear();
    return BRIM_OK;
  }
  if (status) return status;
  brim_stop_wait stop = {0};
  while (!ended && !status) {
    status = brim_child_wait(c, BRIM_STOP_LOOK_MS, &ended);
    if (status || ended || !brim_stop_overdue(&stop)) continue;
    brim_child_close(c);
    return helper_stopped(path);
  }
  room->at[sizeof room->at - 1] = 0;
  // A program that ignores SIGCHLD gets no exit code; room->done still tells of success.
  if (!status || status == BRIM_ECHILD) status = status_of(room, brim_child_get_result(c));
  brim_child_close(c);
  return status;
}

brim_status brim_hdf5_probe(const char *path, brim_hdf5_request *request) {
  brim_hdf5_probe_room *room = NULL;
  void *shared = NULL;
  int fd = -1;
  if (brim_hdf5_share(sizeof *room, &fd, &shared)) {  // no shared memory: skip the probe
    brim_status_clear();
    return BRIM_OK;
  }
  room = shared;
  brim_status status = run_probe(path, request, room, fd);
  (void)munmap(shared, sizeof *room);
  (void)close(fd);
  return status;
}

//---------------------------------- the helper's side ----------------------------------

enum { SHARED_FD = 3, SOCKET_FD = 4 };

// Limits processor time, not elapsed time: a disk may be slow.
static void limit_cpu_time(bool on) {
  const struct itimerval timer = {.it_value.tv_sec = on ? limit_s() : 0};
  (void)setitimer(ITIMER_PROF, &timer, NULL);
}

// Sets signals, core dumps and the log. A serving helper ignores the user's signals: its parent ends it.
static void prepare_process(bool serves) {
  static const int faults[] = {SIGSEGV, SIGABRT, SIGFPE, SIGILL};  // removes a sanitizer's handlers
  static const int wishes[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  const struct rlimit none = {0, 0};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) (void)signal(faults[i], SIG_DFL);
  for (size_t i = 0; serves && i < sizeof wishes / sizeof *wishes; i++)
    (void)signal(wishes[i], SIG_IGN);
  (void)setrlimit(RLIMIT_CORE, &none);
  (void)brim_log_hush(true);
}

const char *brim_hdf5_job_text(const brim_hdf5_job *job, const char *name) {
  size_t n = strlen(name);
  for (int i = 1; i < job->argc; i++) {
    if (strncmp(job->argv[i], name, n) == 0 && job->argv[i][n] == '=') return job->argv[i] + n + 1;
  }
  return NULL;
}

int64_t brim_hdf5_job_int(const brim_hdf5_job *job, const char *name) {
  const char *text = brim_hdf5_job_text(job, name);
  return text ? strtoll(text, NULL, 10) : 0;
}

//---------------------------------- a probe ----------------------------------

static int probe(brim_hdf5_job *job, const brim_hdf5_job_row *row) {
  brim_hdf5_probe_room *room = job->shared;
  // SIGKILL comes when the thread that started this process ends. That thread waits for the probe, so it
  // ends only with the whole program.
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != (pid_t)brim_hdf5_job_int(job, "parent")) return 1;
  snprintf(room->version, sizeof room->version, "%s", BRIM_VERSION);
  const char *version = brim_hdf5_job_text(job, "version");
  if (!version || strcmp(version, BRIM_VERSION) != 0) return 1;
  job->at = room->at;
  limit_cpu_time(true);
  row->run(job);
  room->done = true;
  return 0;
}

//---------------------------------- rows ----------------------------------

static bool send_answer(brim_status status, char *text) {
  int8_t code = (int8_t)status;
  if (status) snprintf(text, BRIM_HDF5_ROW_TEXT, "%s", brim_status_detail());
  return send(SOCKET_FD, &code, 1, MSG_NOSIGNAL) == 1;
}

// Checks that the path still names the file of the parent. The helper opens the file again by its path,
// because parts of the dataset may lie in files beside it.
static brim_status same_file(const brim_hdf5_job *job, const char *path) {
  struct stat st;
  if (stat(path, &st) == 0 && (int64_t)st.st_dev == brim_hdf5_job_int(job, "device") &&
      (int64_t)st.st_ino == brim_hdf5_job_int(job, "inode"))
    return BRIM_OK;
  return brim_fail(BRIM_EIO, "%s: the file was removed or replaced", path);
}

static brim_status read_dims(const brim_hdf5_job *job, brim_hdf5_array *a) {
  const char *text = brim_hdf5_job_text(job, "dims");
  char *end = NULL;
  for (; text && *text && a->rank < BRIM_HDF5_MAX_RANK; text = *end ? end + 1 : end)
    a->dim[a->rank++] = strtoull(text, &end, 10);
  a->row_bytes = (uint64_t)brim_hdf5_job_int(job, "row_bytes");
  const char *version = brim_hdf5_job_text(job, "version");
  bool good = a->rank > 0 && version && strcmp(version, BRIM_VERSION) == 0 &&
              a->row_bytes + BRIM_HDF5_ROW_TEXT <= job->shared_size;
  if (good) return BRIM_OK;
  return brim_fail(BRIM_EABI, "%s: the HDF5 helper program has version %.31s, this brim has %s",
                   a->map->path, BRIM_VERSION, version ? version : "?");
}

static brim_status open_rows(const brim_hdf5_job *job, brim_hdf5_array *a) {
  BRIM_TRY(read_dims(job, a));
  BRIM_TRY(same_file(job, a->map->path));
  return brim_hdf5_library_open(a);
}

void brim_hdf5_job_rows(const brim_hdf5_job *job) {
  const char *path = brim_hdf5_job_text(job, "path"), *name = brim_hdf5_job_text(job, "name");
  char *text = (char *)job->shared + job->shared_size - BRIM_HDF5_ROW_TEXT;
  // Nothing is mapped: the map only names the file, which the library opens.
  const brim_map map = {.path = path, .fd = SHARED_FD};
  brim_hdf5_array a = {.map = &map, .name = (char *)(uintptr_t)name, .dataset = -1};
  a.outside = brim_hdf5_job_int(job, "outside") != 0;
  uint64_t index;
  limit_cpu_time(true);
  brim_status status = path && name ? open_rows(job, &a) : BRIM_EINVAL;
  limit_cpu_time(false);
  if (!send_answer(status, text) || status) return;
  while (recv(SOCKET_FD, &index, sizeof index, MSG_WAITALL) == (ssize_t)sizeof index) {
    limit_cpu_time(true);
    status = brim_hdf5_library_row(&a, index, job->shared);
    limit_cpu_time(false);
    if (!send_answer(status, text)) break;
  }
}

//---------------------------------- main ----------------------------------

int brim_hdf5_helper_main(int argc, char **argv, const brim_hdf5_job_row *rows) {
  brim_hdf5_job job = {.argc = argc, .argv = argv};
  struct stat st;
  const char *name = brim_hdf5_job_text(&job, "job"), *language;
  while (rows->name && (!name || strcmp(rows->name, name) != 0)) rows++;
  if (!rows->name || fstat(SHARED_FD, &st) != 0 || st.st_size < BRIM_HDF5_PROBE_ROOM) {
    fprintf(stderr, "brim-hdf5 reads HDF5 files for brim; it is not to be called by hand\n");
    return 2;
  }
  job.shared_size = (size_t)st.st_size;
  job.shared = mmap(NULL, job.shared_size, PROT_READ | PROT_WRITE, MAP_SHARED, SHARED_FD, 0);
  if (job.shared == MAP_FAILED ||
      (!rows->serves && st.st_size < (off_t)sizeof(brim_hdf5_probe_room)))
    return 2;
  prepare_process(rows->serves);
  language = brim_hdf5_job_text(&job, "language");
  if (language) (void)brim_msg_set_language(language);
  int code = 0;
  if (rows->serves) {
    rows->run(&job);
  } else {
    code = probe(&job, rows);
  }
  _exit(code);  // skips libhdf5's exit handler, which may crash on a damaged file
}

//---------------------------------- rows from helpers ----------------------------------

enum { MAX_CHILDREN = 4, TEXT = BRIM_HDF5_ROW_TEXT };
static const uint64_t ROOM_LIMIT = (uint64_t)256 << 20;  // most bytes of rows of all children

// Why a child gave no answer.
typedef struct ending {
  bool silent;   // the child was given up while it ran: it made no progress, or `stopped`
  bool stopped;  // the user wants to stop
  brim_child_result result;
} ending;

typedef struct child {
  pthread_mutex_t lock;
  brim_child *process;  // NULL: not running
  int socket, memory;   // descriptors
  uint8_t *shared;      // the row in `room` bytes, then TEXT bytes for an error message
} child;

struct brim_hdf5_reader {
  const brim_hdf5_array *a;
  size_t room;  // bytes of a row, aligned
  uint64_t broken_bytes;
  _Atomic uint8_t *broken;  // bit i is set if row i crashed a child; planned
  uint32_t count;           // of children
  uint32_t ready;           // children with memory and lock
  child children[MAX_CHILDREN];
};

//---------------------------------- this process ----------------------------------

static void end_child(child *c) {
  if (!c->process) return;
  (void)close(c->socket);
  brim_child_close(c->process);  // also ends a child that still works on a row
  c->process = NULL;
}

// Processor time of the child in ns; 0 = unknown.
static int64_t used_ns(const child *c) {
  clockid_t clock;
  struct timespec used;
  if (clock_getcpuclockid(brim_child_pid(c->process), &clock) || clock_gettime(clock, &used))
    return 0;
  return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

// Waits for the child's answer; false if the child is stuck or *stopped. A child that computes for ever
// is ended by its own time limit. A child that waits for a dead network drive uses no processor time and
// is stuck. With a slow disk or a busy machine it uses some time now and then.
static bool await_answer(const child *c, bool *stopped) {
  const int64_t tick_ns = (int64_t)limit_s() * 1000000000;
  brim_stop_wait stop = {0};
  int64_t used = used_ns(c);
  for (int idle = 0; idle < BRIM_HDF5_IDLE_LIMITS; idle++) {
    struct pollfd end = {.fd = c->socket, .events = POLLIN};
    brim_time begin = brim_clock_now();
    for (int64_t left = tick_ns; left > 0;) {
      const int64_t left_ms = left / 1000000 + 1;
      int n = poll(&end, 1, (int)(left_ms < BRIM_STOP_LOOK_MS ? left_ms : BRIM_STOP_LOOK_MS));
      if (n > 0 || (n < 0 && errno != EINTR)) return true;  // recv reports an error
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

static brim_status fail_silent(const char *what, const ending *how) {
  if (how->stopped) return helper_stopped(what);
  return brim_fail(BRIM_EIO,
                   "%s: its reader process made no progress for %d s; is the disk or network drive "
                   "still available?",
                   what, BRIM_HDF5_IDLE_LIMITS * limit_s());
}

// Reads the child's answer into *status. False: the child is gone, and *how says why.
static bool read_answer(const brim_hdf5_reader *r, child *c, brim_status *status, ending *how) {
  int8_t said = 0;
  ssize_t n;
  *how = (ending){0};
  how->silent = !await_answer(c, &how->stopped);
  if (how->silent) {
    end_child(c);
    return false;
  }
  do {
    n = recv(c->socket, &said, 1, 0);
  } while (n < 0 && errno == EINTR);
  if (n != 1) {
    bool ended;
    if (brim_child_wait(c->process, -1, &ended)) brim_status_clear();  // the result tells it too
    how->result = *brim_child_get_result(c->process);
    end_child(c);
    return false;
  }
  char *text = (char *)c->shared + r->room;
  text[TEXT - 1] = 0;
  *status = said < 0 ? brim_fail((brim_status)said, "%s", text) : BRIM_OK;
  return true;
}

static void describe_rows(const brim_hdf5_array *a, uint64_t device, uint64_t inode,
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
  describe_rows(a, st.st_dev, st.st_ino, &request);
  const int passed[] = {c->memory, ends[1]};
  brim_status status = start_helper(&request, passed, 2, &c->process);
  brim_hdf5_request_deinit(&request);
  (void)close(ends[1]);
  c->socket = ends[0];
  if (!status) return BRIM_OK;
  (void)close(ends[0]);
  // The source is open, so any reason is a failure to read rows.
  if (status != BRIM_ENOMEM) status = BRIM_EIO;
  return brim_fail_context(status, "%s: %s", a->map->path, a->name);
}

// Reads the child's first answer: whether it could open the dataset.
static brim_status read_greeting(const brim_hdf5_reader *r, child *c) {
  const brim_hdf5_array *a = r->a;
  brim_status status = BRIM_OK;
  ending how;
  if (!read_answer(r, c, &status, &how)) {
    if (how.silent) return fail_silent(a->map->path, &how);
    status = helper_status(a->map->path, &how.result);
    if (!status)
      status = brim_fail(BRIM_EIO, "%s: %s: its reader process was killed", a->map->path, a->name);
  } else if (status) {
    end_child(c);
  }
  return status;
}

// Has the child read a row, starting the child if needed. False if it gave no answer; *how says why.
static bool request_row(const brim_hdf5_reader *r, child *c, uint64_t index, brim_status *status,
                        ending *how) {
  if (!c->process) {
    *status = launch(r->a, c);
    if (!*status) *status = read_greeting(r, c);
    if (*status) return true;
  }
  (void)send(c->socket, &index, sizeof index, MSG_NOSIGNAL);  // if the child is dead, recv fails
  return read_answer(r, c, status, how);
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
  if (request_row(r, c, index, &status, &how)) return status;
  // An earlier row may have corrupted the child's memory: try a new child before blaming this row.
  bool endless = how.silent || how.result.signal == SIGPROF;
  if (!endless && request_row(r, c, index, &status, &how)) return status;
  snprintf(row, sizeof row, "%s: %s[%" PRIu64 "]", a->map->path, a->name, index);
  if (how.silent) return fail_silent(row, &how);  // the row may be good: do not mark it
  status = helper_status(row, &how.result);
  if (!status || how.result.signal == SIGKILL)
    return brim_fail(BRIM_EIO, "%s: its reader process was killed; is memory short?", row);
  if (how.result.lost) return status;  // the row may be good: do not mark it
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
    end_child(c);
    (void)munmap(c->shared, r->room + TEXT);
    (void)close(c->memory);
    pthread_mutex_destroy(&c->lock);
  }
  brim_free((void *)r->broken);
  brim_free(r);
}

// Starts all children before waiting for any: each takes some ms to load libhdf5.
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
    if (fresh[i] && status) end_child(c);
    if (fresh[i] && !status) status = read_greeting(r, c);
    pthread_mutex_unlock(&c->lock);
  }
  return status;
}

uint64_t brim_hdf5_reader_bytes(const brim_hdf5_reader *r) {
  return r->broken_bytes + r->count * (uint64_t)(r->room + TEXT);
}

brim_status brim_hdf5_reader_get(brim_hdf5_reader *r, uint64_t index, const uint8_t **row) {
  // Rows of one chunk go to the same child, whose library has the chunk unpacked.
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
