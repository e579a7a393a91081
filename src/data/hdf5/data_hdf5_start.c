// Starts the helper program and says what its end means. The caller's side; data_hdf5_helper.c is the
// other.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/hdf5/data_hdf5_helper.h"

enum { SECONDS = 60, MOST_SECONDS = 3600 };
enum { NOT_RUN = 127 };  // by the system's loader, when a library is missing
static const char PROGRAM[] = "brim-hdf5";

int brim_hdf5_helper_limit_s(void) {
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
  *r = (brim_hdf5_request){.count = 1};  // the program comes when it starts
  brim_hdf5_request_text(r, "job", job);
  brim_hdf5_request_text(r, "version", BRIM_VERSION);
  brim_hdf5_request_text(r, "language", brim_tr("en"));  // its catalogue says "ko", or what it is
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
    // A helper that went wild must not cut it: the next access here would be a SIGBUS.
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

// Of the program or the shared library that holds this code: a host of libbrim.so lies anywhere.
static bool own_path(char out[PATH_MAX]) {
  static const char anchor = 0;
  Dl_info info;
  struct link_map *map = NULL;
  bool known = dladdr1(&anchor, &info, (void **)&map, RTLD_DL_LINKMAP) && map;
  // The program itself has no name there, and the one it was called by may be any.
  bool library = known && map->l_name && map->l_name[0];
  return realpath(library ? map->l_name : "/proc/self/exe", out) != NULL;
}

// bin/brim and tests/x look into ../lib/brim, lib/libbrim.so into brim.
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
  // Not BRIM_ENOENT, which says that a file has no such split.
  return brim_fail(BRIM_EUNSUPPORTED,
                   "cannot read HDF5 files: the program %s was not found; put it into lib/brim, or "
                   "name it in BRIM_HDF5_HELPER",
                   PROGRAM);
}

brim_status brim_hdf5_helper_start(brim_hdf5_request *r, const int *fds, size_t count,
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

brim_status brim_hdf5_helper_failed(const char *what) {
  return brim_fail(BRIM_EIO, "%s: the program %s does not run; install brim again", what, PROGRAM);
}

brim_status brim_hdf5_helper_stopped(const char *what) {
  return brim_fail(BRIM_EINTERRUPTED, "%s: interrupted while %s read it", what, PROGRAM);
}

// Only what the file can have done to it: an interruption is the user's.
brim_status brim_hdf5_helper_status(const char *what, const brim_child_result *end) {
  if (end->lost)
    return brim_fail(
        BRIM_EPARSE,
        "%s: the process that reads it with the HDF5 library ended early; the cause is "
        "unknown, as this program ignores SIGCHLD. The file may be damaged: inspect it "
        "with h5ls, or set SIGCHLD to SIG_DFL",
        what);
  switch (end->signal) {
    case 0:  // a sanitizer ends a process by an exit code
      if (end->exit_code == 0) return BRIM_OK;
      if (end->exit_code == NOT_RUN) return brim_hdf5_helper_failed(what);
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
                       what, brim_hdf5_helper_limit_s());
    default:
      break;
  }
  return brim_fail(BRIM_EPARSE,
                   "%s: the HDF5 library crashed (signal %d): the file is damaged; copy or "
                   "download it again, or inspect it with h5ls or h5repack",
                   what, end->signal);
}
