// Inside placement: the GPUs as the sweep sees them, the experiments on them.
#ifndef BRIM_LAB_PLACE_INT_H_
#define BRIM_LAB_PLACE_INT_H_

#include "base/base.h"
#include "lab/lab_place.h"
#include "lab/lab_place_lock.h"
#include "lab/lab_place_mps.h"
#include "lab/lab_place_pack.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  BRIM_LAB_PLACE_EXP = 40,        // bytes of an id
  BRIM_LAB_PLACE_SEEN = 128,      // processes remembered as ours on one GPU
  BRIM_LAB_PLACE_FAILURES = 3,    // experiments in a row that take a GPU out of service
  BRIM_LAB_PLACE_REMEMBERED = 64  // experiments that failed somewhere
};

typedef struct brim_lab_place_job {
  char exp[BRIM_LAB_PLACE_EXP];
  int64_t pid;  // of the executor; 0 = not started
  bool cpu;
  int threads;
  int cards[BRIM_LAB_PLACE_K];  // indexes
  int card_count;
  double need_bytes;  // NaN = unknown
  double used_bytes;  // by the last reading; NaN = unknown
  int64_t number;     // in the order of their starts
  brim_lab_pack_job pack;
} brim_lab_place_job;

// One GPU.
typedef struct brim_lab_place_card {
  int index;
  char uuid[BRIM_LAB_PLACE_UUID], name[64];
  bool allowed;  // by options.devices
  // by the last reading
  bool read, has_list;
  brim_gpu_memory memory;
  int misses, list_misses;  // readings in a row that failed after one had worked
  int foreign;
  double foreign_bytes;  // NaN = some of it is unknown
  double mps_bytes;
  int left;  // processes of ended experiments
  char holder[BRIM_LAB_PLACE_TEXT];
  // the lock
  int lock_fd;  // -1 = not ours
  int64_t touched_ms;
  bool adopted;  // executors of an earlier sweep hold the lock
  bool locked;   // another sweep's
  char locked_by[BRIM_LAB_PLACE_TEXT];
  // in use
  int jobs;
  bool returning;
  int64_t returning_since_ms;
  double base_used, base_foreign, base_free;  // before the first experiment started; NaN = unknown
  uint32_t before[BRIM_LAB_PLACE_SEEN], ours[BRIM_LAB_PLACE_SEEN];  // processes
  size_t before_count, ours_count;
  // service
  bool out;
  char reason[BRIM_LAB_PLACE_TEXT];
  int failures;
  char failed[BRIM_LAB_PLACE_FAILURES][BRIM_LAB_PLACE_EXP];
  // several experiments at once
  bool reserved;
  bool more;  // the last choice left an experiment that would fit beside those on it
  brim_lab_pack pack;
  bool mps_refused;
  bool mps_seen;     // its server is on the list
  bool mps_counted;  // its memory is in the baseline
  brim_lab_mps *mps;
} brim_lab_place_card;

typedef struct brim_lab_place_failed {
  char exp[BRIM_LAB_PLACE_EXP];
  int card;
} brim_lab_place_failed;

struct brim_lab_place {
  brim_lab_place_options options;  // strings are copies
  char *texts[8];
  bool cpu_allowed;
  int cpu_slots, cpu_taken;
  brim_lab_place_card *cards;
  int card_count;
  brim_lab_place_job *jobs;
  size_t job_count, job_room;
  int64_t next_number;
  int64_t tick_ms;  // of the last reading
  bool ticked;
  brim_lab_place_failed failed[BRIM_LAB_PLACE_REMEMBERED];
  size_t failed_next;
};

// Which of the machine's devices a text names.
typedef struct brim_lab_place_mask {
  bool cpu;
  uint64_t cards;  // bits
} brim_lab_place_mask;

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_PLACE_INT_H_
