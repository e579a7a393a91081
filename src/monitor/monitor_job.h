// Publishes a running job for `brim top` and other readers (record_job.h). Its thread writes the file
// at most twice a second, so that callers never wait for a disk. A failed write is retried and
// then given up; the job continues. Callers: run, the commands.
#ifndef BRIM_MONITOR_JOB_H_
#define BRIM_MONITOR_JOB_H_

#include "record/record_job.h"

typedef struct brim_job_publisher brim_job_publisher;

// Begins to publish `first`, whose process and start it fills in. NULL if it cannot: the other calls
// accept NULL.
brim_job_publisher *brim_job_publisher_start(brim_job *first);
// Copies the job as it is now. Of several calls within half a second only the last one is written.
void brim_job_publisher_set(brim_job_publisher *publisher, const brim_job *job);
// Ends the thread and removes the file.
void brim_job_publisher_stop(brim_job_publisher *publisher);

#endif  // BRIM_MONITOR_JOB_H_
