// The state that a running brim job publishes: its progress and its speed. Each job has a file in a folder of the
// user and rewrites it at most twice a second; `brim top` and other programs read it.
#ifndef BRIM_RECORD_JOB_H_
#define BRIM_RECORD_JOB_H_

#include "record/record.h"

#define BRIM_JOB_SCHEMA "brim.job/1"

// The phase of a job. Files contain the name.
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
  char unit[24];  // unit of samples_per_s; "" = samples
  char metric_key[BRIM_METRIC_NAME];
  double metric;
  double started_s, updated_s;
  int64_t epoch, epochs, step, steps;  // done, and in total
  double samples_per_s, eta_s;
  brim_finding findings[BRIM_JOB_FINDINGS];
  size_t finding_count;
} brim_job;

void brim_job_init(brim_job *job);
brim_status brim_job_to_json(const brim_job *job, json_t **out);
// Skips unknown keys and leaves missing ones unknown. A value of the wrong kind is BRIM_EPARSE.
brim_status brim_job_from_json(const json_t *json, brim_job *out);

//---------------------------------- the folder (record_job.c) ----------------------------------

// Fills in this process: pid, start, namespace, host.
void brim_job_identify(brim_job *job);
// The folder of this user; BRIM_EUNSUPPORTED if its path is too long.
brim_status brim_job_folder(char *out, size_t size);
// Writes the job's file and makes the folder if needed. Returns BRIM_EIO, or BRIM_EINVAL if other users can write
// to the folder; a training ignores both.
brim_status brim_job_publish(const char *folder, const brim_job *job);
void brim_job_withdraw(const char *folder, const brim_job *job);
// Calls fn for each running job in the folders of this user; root reads the folders of all users. Removes leftover
// files from this user's folders, half-written files of killed jobs after a minute. Skips a file that does not
// parse. Reads the 256 newest files of each folder and 1,024 jobs in all; *more (may be NULL) counts the files left
// out.
typedef brim_status (*brim_job_fn)(void *ctx, const brim_job *job);
brim_status brim_jobs_each(double now_s, brim_job_fn fn, void *ctx, size_t *more);

#endif  // BRIM_RECORD_JOB_H_
