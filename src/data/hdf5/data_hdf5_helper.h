// libhdf5 crashes on some damaged files. What it is about to do with one is therefore done in another
// process, the program lib/brim/brim-hdf5, which is started by exec: this process may have threads
// and a CUDA context, and a copy of it could do nothing safely.
//
// Both sides: a request goes over as arguments "name=value", results in shared memory.
#ifndef BRIM_DATA_HDF5_HELPER_H_
#define BRIM_DATA_HDF5_HELPER_H_

#include "base/base_child.h"
#include "base/base_stop.h"
#include "data/hdf5/data_hdf5.h"

#ifdef __cplusplus
extern "C" {
#endif

//---------------------------------- this process ----------------------------------

enum { BRIM_HDF5_MAX_WORDS = 24 };

typedef struct brim_hdf5_request {
  const char *argv[BRIM_HDF5_MAX_WORDS + 1];  // brim_free each
  size_t count;
  bool no_memory;
} brim_hdf5_request;

void brim_hdf5_request_init(brim_hdf5_request *r, const char *job);
void brim_hdf5_request_deinit(brim_hdf5_request *r);
void brim_hdf5_request_text(brim_hdf5_request *r, const char *name,
                            const char *value);  // NULL: none
void brim_hdf5_request_int(brim_hdf5_request *r, const char *name, int64_t value);

// Shared memory of this size, mapped, and its descriptor.
brim_status brim_hdf5_share(size_t size, int *fd, void **out);

// Starts the helper, which has these descriptors as 3, 4, ... BRIM_EUNSUPPORTED: it is not
// installed or cannot be run. BRIM_ELIMIT: the system has no process or descriptor left for it.
brim_status brim_hdf5_helper_start(brim_hdf5_request *r, const int *fds, size_t count,
                                   brim_child **out);
// It started, but ended before it could do anything.
brim_status brim_hdf5_helper_failed(const char *what);
// It was not waited for any longer: the user wants to stop. BRIM_EINTERRUPTED.
brim_status brim_hdf5_helper_stopped(const char *what);
// What the end of a helper says of `what` was done there; BRIM_OK: nothing.
brim_status brim_hdf5_helper_status(const char *what, const brim_child_result *end);
// Processor time that one request may take: the environment's BRIM_HDF5_LIMIT_S, for tests, or 60 s.
int brim_hdf5_helper_limit_s(void);
// A helper that has used none at all for so many times that long is stuck.
enum { BRIM_HDF5_IDLE_LIMITS = 10 };

//---------------------------------- the helper ----------------------------------

// Shared with a helper that probes.
typedef struct brim_hdf5_probe_room {
  char at[BRIM_HDF5_PROBE_ROOM];  // the file it is at
  char version[32];               // of the helper, once it runs
  bool done;
} brim_hdf5_probe_room;

// At the end of what a helper that reads rows shares: why there is none.
enum { BRIM_HDF5_ROW_TEXT = 4096 };

typedef struct brim_hdf5_job {
  int argc;
  char **argv;
  void *shared;  // descriptor 3
  size_t shared_size;
  char *at;  // (BRIM_HDF5_PROBE_ROOM), of a probe: where the job notes the file it turns to
} brim_hdf5_job;

typedef struct brim_hdf5_job_row {
  const char *name;
  bool serves;  // until its socket closes; else it probes
  void (*run)(const brim_hdf5_job *job);
} brim_hdf5_job_row;

// main of the helper; the rows end with a name of NULL.
int brim_hdf5_helper_main(int argc, char **argv, const brim_hdf5_job_row *rows);
// An argument of the request; NULL and 0 where there is none.
const char *brim_hdf5_job_text(const brim_hdf5_job *job, const char *name);
int64_t brim_hdf5_job_int(const brim_hdf5_job *job, const char *name);

// The jobs. Each does with libhdf5 what its caller is about to do.
void brim_hdf5_job_set(const brim_hdf5_job *job);    // opens the datasets of a source
void brim_hdf5_job_rows(const brim_hdf5_job *job);   // reads rows until the socket closes
void brim_pack_job_list(const brim_hdf5_job *job);   // lists the datasets of a file
void brim_pack_job_names(const brim_hdf5_job *job);  // reads the names of classes

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DATA_HDF5_HELPER_H_
