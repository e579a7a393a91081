// What a running brim job publishes about itself: where it stands and how fast it is. A file per job
// in a folder of the user, rewritten at most twice a second; `brim top` and other programs read it.
//
// The folder: $XDG_RUNTIME_DIR/brim where that variable is set, else /tmp/brim-<uid>; mode 0700.
// A file: job-<pid>.json, one JSON object, replaced as a whole (written beside it, then renamed).
//
// brim.job/1:
//   schema "brim.job/1" | pid | pid_start (start of the process in ticks since boot, as field 22 of
//   /proc/<pid>/stat) | host | command ("train", "bench") | workload | name | folder | device
//   device_id ("GPU-...") | phase | unit (of samples_per_s) | metric_key | metric
//   started_s, updated_s (since 1970) | epoch, epochs, step, steps | samples_per_s | eta_s
//   findings [{code, cost_ms, text, remedy}]
// Unknown is null. A file belongs to a job that runs when its pid exists and pid_start is the same;
// other files are remains of jobs that were killed.
#ifndef BRIM_RECORD_JOB_H_
#define BRIM_RECORD_JOB_H_

#include "record/record.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_JOB_SCHEMA "brim.job/1"

// What a job does now. Files have the name.
#define BRIM_JOB_PHASE_MAP(X) \
  X(UNKNOWN, "unknown")       \
  X(START, "start")           \
  X(TRAIN, "train")           \
  X(EVALUATE, "evaluate")     \
  X(CHECKPOINT, "checkpoint") \
  X(MEASURE, "measure")       \
  X(END, "end")

typedef enum brim_job_phase {
#define X(id, name) BRIM_JOB_##id,
  BRIM_JOB_PHASE_MAP(X)
#undef X
      BRIM_JOB_PHASE_COUNT
} brim_job_phase;

const char *brim_job_phase_name(brim_job_phase phase);

enum { BRIM_JOB_FINDINGS = 4 };

// Plain data. brim_job_init: texts "", counts -1, numbers NaN.
typedef struct brim_job {
  int64_t pid, pid_start;
  char host[64];
  char command[16];  // "train", "bench"
  char workload[32], name[64], folder[256];
  char device[128], device_id[64];
  brim_job_phase phase;
  char unit[24];  // of samples_per_s; "" = samples
  char metric_key[BRIM_METRIC_NAME];
  double metric;
  double started_s, updated_s;
  int64_t epoch, epochs, step, steps;  // done, and of how many
  double samples_per_s, eta_s;
  brim_finding findings[BRIM_JOB_FINDINGS];
  size_t finding_count;
} brim_job;

void brim_job_init(brim_job *job);
brim_status brim_job_to_json(const brim_job *job, json_t **out);
// Unknown keys are skipped, missing ones stay unknown, a value of the wrong kind is BRIM_EPARSE.
brim_status brim_job_from_json(const json_t *json, brim_job *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_RECORD_JOB_H_
