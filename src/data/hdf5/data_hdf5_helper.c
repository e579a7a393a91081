// The helper's side: one request, in a process that may crash. Nothing is reported, written or left
// behind.
#include "data/hdf5/data_hdf5_helper.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "data/hdf5/data_hdf5_lib.h"

enum { SHARED_FD = 3, SOCKET_FD = 4 };

// Of processor time: a disk may be as slow as it is.
static void limit(bool on) {
  const struct itimerval timer = {.it_value.tv_sec = on ? brim_hdf5_helper_limit_s() : 0};
  (void)setitimer(ITIMER_PROF, &timer, NULL);
}

static void begin(bool serves) {
  static const int faults[] = {SIGSEGV, SIGABRT, SIGFPE, SIGILL};  // a sanitizer's handlers
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
  // The thread that started this process waits for it, so the signal comes with the whole program's
  // end only.
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != (pid_t)brim_hdf5_job_int(job, "parent")) return 1;
  snprintf(room->version, sizeof room->version, "%s", BRIM_VERSION);
  const char *version = brim_hdf5_job_text(job, "version");
  if (!version || strcmp(version, BRIM_VERSION) != 0) return 1;
  job->at = room->at;
  limit(true);
  row->run(job);
  room->done = true;
  return 0;
}

//---------------------------------- rows ----------------------------------

static bool answer(brim_status status, char *text) {
  int8_t code = (int8_t)status;
  if (status) snprintf(text, BRIM_HDF5_ROW_TEXT, "%s", brim_status_detail());
  return send(SOCKET_FD, &code, 1, MSG_NOSIGNAL) == 1;
}

// It is opened again by its name, as what the dataset is made of may lie beside it.
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
  // There is nothing to map: the library opens the file, and the others only name it.
  const brim_map map = {.path = path, .fd = SHARED_FD};
  brim_hdf5_array a = {.map = &map, .name = (char *)(uintptr_t)name, .dataset = -1};
  a.outside = brim_hdf5_job_int(job, "outside") != 0;
  uint64_t index;
  limit(true);
  brim_status status = path && name ? open_rows(job, &a) : BRIM_EINVAL;
  limit(false);
  if (!answer(status, text) || status) return;
  while (recv(SOCKET_FD, &index, sizeof index, MSG_WAITALL) == (ssize_t)sizeof index) {
    limit(true);
    status = brim_hdf5_library_row(&a, index, job->shared);
    limit(false);
    if (!answer(status, text)) break;
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
  begin(rows->serves);
  language = brim_hdf5_job_text(&job, "language");
  if (language) (void)brim_msg_set_language(language);
  int code = 0;
  if (rows->serves) {
    rows->run(&job);
  } else {
    code = probe(&job, rows);
  }
  _exit(code);  // past what libhdf5 would do at exit with a damaged file
}
