// Publishes a running job for `brim top` and other readers (record_job.h). Its thread writes the file
// at most twice a second, so that what calls it never waits for a disk. A failed write is retried and
// then given up; the job continues. Callers: run, the commands.
#ifndef BRIM_MONITOR_JOB_H_
#define BRIM_MONITOR_JOB_H_

#include "record/record_job.h"

typedef struct brim_job_publisher brim_job_publisher;

// Begins to publish `first`, whose process and start it fills in. NULL where that cannot be: the other
// calls take NULL.
brim_job_publisher *brim_job_publisher_start(brim_job *first);
// The job as it is now. Copies it; at most the last of several within half a second is written.
void brim_job_publisher_set(brim_job_publisher *publisher, const brim_job *job);
// Removes the file.
void brim_job_publisher_stop(brim_job_publisher *publisher);

#endif  // BRIM_MONITOR_JOB_H_
