// What a running brim job publishes about itself: where it stands and how fast it is. A file per job
// in a folder of the user, rewritten at most twice a second; `brim top` and other programs read it.
//
// The folder: $XDG_RUNTIME_DIR/brim where that variable is set, else /tmp/brim-<uid>; mode 0700.
// A file: job-<pid>-<number>.json, one JSON object, replaced as a whole (written beside it, renamed).
//
// brim.job/1:
//   schema "brim.job/1" | pid | number (id of the thread that publishes) | pid_start (start of the
//   process in ticks since boot: field 22 of /proc/<pid>/stat) | pid_namespace (the number in
//   /proc/<pid>/ns/pid) | host | command ("train", "bench") | workload | name | folder | device
//   device_id ("GPU-...") | phase | unit (of samples_per_s) | metric_key | metric
//   started_s, updated_s (since 1970) | epoch, epochs, step, steps | samples_per_s | eta_s
//   findings [...] as in brim.result/1 (record.h)
// Unknown is null. In the reader's own pid namespace a job runs when its pid exists and pid_start is
// the same; files of other jobs are remains of jobs that were killed. In another namespace (a container
// that shares the folder) it runs when the file was updated within the last minute.
#ifndef BRIM_RECORD_JOB_H_
#define BRIM_RECORD_JOB_H_

#include "record/record.h"

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

enum { BRIM_JOB_FINDINGS = 4 };

// Plain data. brim_job_init: texts "", counts -1, numbers NaN.
typedef struct brim_job {
  int64_t pid, number, pid_start, pid_namespace;
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

//---------------------------------- the folder (record_job.c) ----------------------------------

// This process: pid, start, namespace, host.
void brim_job_identify(brim_job *job);
// The folder of this user; BRIM_EUNSUPPORTED where its name is too long.
brim_status brim_job_folder(char *out, size_t size);
// Writes its file, and makes the folder. BRIM_EIO, and BRIM_EINVAL for a folder that is not this
// user's alone; a caller that trains continues without.
brim_status brim_job_publish(const char *folder, const brim_job *job);
void brim_job_withdraw(const char *folder, const brim_job *job);
// Every job that runs, of this user's folders; root reads those of all users. Remains in this user's
// folders are removed, half-written files of killed jobs after a minute. A file that does not parse is
// skipped. Of each folder the 256 newest files are read, 1,024 jobs in all; *more (may be NULL) counts
// the files that were left out.
typedef brim_status (*brim_job_fn)(void *ctx, const brim_job *job);
brim_status brim_jobs_each(double now_s, brim_job_fn fn, void *ctx, size_t *more);

#endif  // BRIM_RECORD_JOB_H_
