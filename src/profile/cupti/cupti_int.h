// Inside src/profile/cupti: finding the library, the records that brim keeps, and the sums over records.
#ifndef BRIM_PROFILE_CUPTI_INT_H_
#define BRIM_PROFILE_CUPTI_INT_H_

#include "base/base.h"
#include "profile/cupti/cupti_abi.h"
#include "profile/profile.h"

//---------------------------------- the library ----------------------------------

// Places of libcupti besides the loader's own path; NULL or "" = not set. Tests put `root` in front of /usr.
typedef struct brim_cupti_places {
  const char *root;
  const char *cuda_home, *cuda_path;       // $CUDA_HOME, $CUDA_PATH
  const char *virtual_env, *conda_prefix;  // $VIRTUAL_ENV, $CONDA_PREFIX
  const char *home, *path;                 // $HOME, $PATH: Python environments by their bin/
} brim_cupti_places;

// Lists the names to try to open, newest version first. A path is listed only if the file exists. The list ends with
// NULL; free it with brim_cupti_names_free.
brim_status brim_cupti_names(const brim_cupti_places *places, char ***out);
void brim_cupti_names_free(char **names);

//---------------------------------- records ----------------------------------

typedef enum brim_cupti_work {
  BRIM_CUPTI_WORK_KERNEL,
  BRIM_CUPTI_WORK_H2D,
  BRIM_CUPTI_WORK_D2H,
  BRIM_CUPTI_WORK_D2D,
  BRIM_CUPTI_WORK_COPY,  // the library does not say in which direction
  BRIM_CUPTI_WORK_MEMSET,
  BRIM_CUPTI_WORK_COUNT
} brim_cupti_work;

typedef struct brim_cupti_record {
  uint64_t start, end;  // ns
  uint64_t bytes;       // of copies
  brim_cupti_work work;
  bool pageable;
} brim_cupti_record;

typedef enum brim_cupti_take {
  BRIM_CUPTI_TAKEN,
  BRIM_CUPTI_OTHER,  // no GPU work: a kind that was not asked for, or a copy within the host
  BRIM_CUPTI_LOST    // the library recorded no time for it
} brim_cupti_take;

// Sums the records between two times. A record that is half inside counts with the part inside. Sorts the records. Sets
// everything but `dropped`.
void brim_cupti_sum(brim_cupti_record *records, size_t count, uint64_t begin, uint64_t end,
                    brim_gpu_trace_sum *out);
// Shortens a kernel's name for people: removes return type and arguments. `plain` may be mangled or not.
void brim_kernel_name(const char *plain, char *out, size_t size);
// Demangles a C++ name if the machine has a C++ library; otherwise returns the same text. `name` and the result belong
// to `texts`.
typedef char *(*brim_demangle_fn)(const char *name, char *buffer, size_t *size, int *status);
const char *brim_cupti_plain_name(brim_demangle_fn demangle, const char *name, brim_trace *texts);

//---------------------------------- the session ----------------------------------

// Like brim_gpu_trace_open, with another table of calls, which is copied. Keeps at most `max_records` records (0 = the
// default).
brim_status brim_gpu_trace_open_api(const brim_cupti_api *api, size_t max_records,
                                    brim_gpu_trace **out);

#endif  // BRIM_PROFILE_CUPTI_INT_H_
