// Inside src/profile/cupti: the library's calls, what is kept of a record, and the sums over them.
#ifndef BRIM_PROFILE_CUPTI_INT_H_
#define BRIM_PROFILE_CUPTI_INT_H_

#include "base/base.h"
#include "profile/cupti/cupti_abi.h"
#include "profile/profile.h"

//---------------------------------- the library ----------------------------------

// Where libcupti may lie besides the loader's own path; NULL or "" = not set. `root` stands in front
// of /usr (tests).
typedef struct brim_cupti_places {
  const char *root;
  const char *cuda_home, *cuda_path;       // $CUDA_HOME, $CUDA_PATH
  const char *virtual_env, *conda_prefix;  // $VIRTUAL_ENV, $CONDA_PREFIX
  const char *home, *path;                 // $HOME, $PATH: Python environments by their bin/
} brim_cupti_places;

// What to try to open, newest version first; of paths only files that are there. NULL-terminated;
// brim_cupti_names_free.
brim_status brim_cupti_names(const brim_cupti_places *places, char ***out);
void brim_cupti_names_free(char **names);

//---------------------------------- records ----------------------------------

typedef enum brim_cupti_work {
  BRIM_CUPTI_WORK_KERNEL,
  BRIM_CUPTI_WORK_H2D,
  BRIM_CUPTI_WORK_D2H,
  BRIM_CUPTI_WORK_D2D,
  BRIM_CUPTI_WORK_COPY,  // the library does not say which way
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
  BRIM_CUPTI_OTHER,  // no work of a GPU's: a kind that is not asked for, a copy within the host
  BRIM_CUPTI_LOST    // the library has it without a time
} brim_cupti_take;

// What the records add up to between two times. Those outside do not count, those half inside count
// with the part that is. Sorts the records. Everything but `dropped` is set.
void brim_cupti_sum(brim_cupti_record *records, size_t count, uint64_t begin, uint64_t end,
                    brim_gpu_trace_sum *out);
// A kernel's name for people: without what it returns and takes. `plain` is demangled, or not.
void brim_kernel_name(const char *plain, char *out, size_t size);
// Makes plain names of C++ ones where the machine has its library; the same text where not. `name`
// and the answer belong to `texts`.
typedef char *(*brim_demangle_fn)(const char *name, char *buffer, size_t *size, int *status);
const char *brim_cupti_plain_name(brim_demangle_fn demangle, const char *name, brim_trace *texts);

//---------------------------------- the session ----------------------------------

// brim_gpu_trace_open over another table of calls, which is copied; at most `max_records` are kept
// (0 = the usual).
brim_status brim_gpu_trace_open_api(const brim_cupti_api *api, size_t max_records,
                                    brim_gpu_trace **out);

#endif  // BRIM_PROFILE_CUPTI_INT_H_
