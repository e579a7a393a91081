// Inside the chaos test.
#ifndef BRIM_LAB_CHAOS_INT_H_
#define BRIM_LAB_CHAOS_INT_H_

#include <sys/types.h>

#include "base/base.h"
#include "base/base_child.h"
#include "lab/lab_chaos.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  BRIM_CHAOS_ID = 13,       // 12 digits of an id, and the NUL
  BRIM_CHAOS_PROCS = 512,   // processes that are looked at
  BRIM_CHAOS_STOPPED = 32,  // processes that are stopped at once, at most
  BRIM_CHAOS_SEEDS = 8      // different trainings; the others differ in a key that changes nothing
};

typedef struct brim_chaos_proc {
  pid_t pid, parent;
  bool trains;    // a training; else an executor
  int worker;     // whose; 0 = of a sweep
  int64_t fence;  // of an executor
  char exp[BRIM_CHAOS_ID];
} brim_chaos_proc;

// Executors and trainings below a folder that run now; their number. They are in FOLDER/exp, or of worker
// N in FOLDER/worker-N/exp. A child that has not begun its program yet still has the words of its parent, and
// is left out.
size_t brim_chaos_processes(const char *folder, brim_chaos_proc *out, size_t most);

typedef struct brim_chaos brim_chaos;

struct brim_chaos {
  const brim_lab_chaos_options *options;
  brim_lab_chaos_report *report;
  char *folder, *store, *reference;
  char tail[1024];  // of the sweep's stderr
  brim_child *sweep;
  bool killed;         // by this test
  int64_t start_ms;    // when the next sweep may start
  int64_t full_until;  // the disk is full for the sweep until then; 0 = it is not
  int64_t full_ms;     // when it was full last
  struct {
    pid_t pid;
    int64_t until;
  } stopped[BRIM_CHAOS_STOPPED];
  size_t stopped_count;
  // How often each experiment of the round was hit.
  struct {
    char exp[BRIM_CHAOS_ID];
    int count;
  } hits[BRIM_CHAOS_PROCS];
  size_t hits_count;  // of all; the newest are kept
  uint64_t random;
};
enum { BRIM_CHAOS_PATH = 1200 };
// FOLDER/worker-N
void brim_chaos_worker_folder(const brim_chaos *chaos, int worker, char *out, size_t size);
enum { BRIM_CHAOS_DRAIN_S = 300 };  // the last experiments have this long after the disturbances
// Holds the store, and the files of its experiments in `folder`, against those of the reference
// (lab_chaos.c).
brim_status brim_chaos_check(brim_chaos *chaos);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_CHAOS_INT_H_
