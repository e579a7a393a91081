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

// lab_place_devices.c
// "auto" is every GPU, or the CPU where there is none. BRIM_EINVAL names what is not here.
brim_status brim_lab_place_parse(const brim_lab_place *place, const char *text,
                                 brim_lab_place_mask *out);
// Cards of the machine, in the order and the choice of CUDA_VISIBLE_DEVICES.
brim_status brim_lab_place_list(brim_lab_place *place);

// lab_place_proc.c
// Whether a process descends from one of `roots`, or is one; *which: its index. `root` stands in
// front of /proc.
bool brim_lab_place_descends(const char *root, int64_t pid, const int64_t *roots, size_t count,
                             size_t *which);

// lab_place_card.c
brim_lab_place_state brim_lab_place_card_state(const brim_lab_place *place,
                                               const brim_lab_place_card *card);
// One reading of NVML and /proc.
brim_status brim_lab_place_card_read(brim_lab_place *place, brim_lab_place_card *card);
// What follows from it: memory returned, lost, held by others.
void brim_lab_place_card_update(brim_lab_place *place, brim_lab_place_card *card, int64_t now_ms);
// The lock is taken and the baseline noted; BRIM_EEXIST: another sweep was faster.
brim_status brim_lab_place_card_take(brim_lab_place *place, brim_lab_place_card *card,
                                     int64_t now_ms);
// No experiment is on it any more. `ran`: one was, so that memory has to be returned first.
void brim_lab_place_card_give(brim_lab_place *place, brim_lab_place_card *card, bool ran,
                              int64_t now_ms);
void brim_lab_place_card_retire(brim_lab_place_card *card, const char *reason);
// Room for one more experiment of this need beside those that run.
bool brim_lab_place_card_fits(const brim_lab_place *place, const brim_lab_place_card *card,
                              double need_bytes);

// How MPS is; one that failed is given up.
brim_lab_mps_state brim_lab_place_card_mps(brim_lab_place_card *card, int64_t now_ms);

// lab_place_job.c
brim_lab_place_job *brim_lab_place_job_find(const brim_lab_place *place, const char *exp);
brim_status brim_lab_place_job_add(brim_lab_place *place, const brim_lab_place_want *want,
                                   int64_t now_ms, brim_lab_place_job **out);
// Joins the cards in job->cards.
void brim_lab_place_job_join(brim_lab_place *place, brim_lab_place_job *job, uint64_t kind,
                             int64_t now_ms);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_PLACE_INT_H_
