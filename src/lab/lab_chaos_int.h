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

// --- lab_chaos_base.c: for a sweep and a pool alike

void brim_chaos_say(const brim_chaos *chaos, const char *text);

void brim_chaos_violation(brim_chaos *chaos, const char *fmt, ...) BRIM_PRINTF(2, 3);

int64_t brim_chaos_between(brim_chaos *chaos, int64_t low, int64_t high);
bool brim_chaos_is_stopped(const brim_chaos *chaos);  // by the user
// The last words of a process: it ended because a write failed, and starts again.
bool brim_chaos_disk_failed(const char *words);
enum { BRIM_CHAOS_PATH = 1200 };
void brim_chaos_grid_path(const brim_chaos *chaos, int64_t round, char *out);
// `copies` of each seed, into that path.
brim_status brim_chaos_write_grid(const brim_chaos *chaos, int64_t round, int64_t first,
                                  int64_t copies, char *path);
// FOLDER/worker-N
void brim_chaos_worker_folder(const brim_chaos *chaos, int worker, char *out, size_t size);
// SIGSTOP now, SIGCONT later; and those that are due.
void brim_chaos_stop(brim_chaos *chaos, pid_t pid, int64_t for_ms);
void brim_chaos_continue(brim_chaos *chaos, bool all);
// One of the executors, or of the trainings, that was not hit too often; 0 when there is none.
pid_t brim_chaos_any(brim_chaos *chaos, bool trains);
// An act by its share of all, in percent.
brim_lab_chaos_act brim_chaos_choose(brim_chaos *chaos, const int shares[BRIM_CHAOS_ACT_COUNT]);
enum { BRIM_CHAOS_DRAIN_S = 300 };  // the last experiments have this long after the disturbances

// --- lab_chaos_pool.c: server and workers, from the first experiment to the last

brim_status brim_chaos_pool(brim_chaos *chaos);

// --- lab_chaos_check.c

// BRIM_EEXIST: the store has experiments.
brim_status brim_chaos_check_empty(const char *store);
// Holds the store, and the files of its experiments in `folder`, against those of the reference
// (lab_chaos_check.c).
brim_status brim_chaos_check(brim_chaos *chaos);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_CHAOS_INT_H_
