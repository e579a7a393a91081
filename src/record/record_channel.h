// The channel from a training to the executor that started it: the standard output of `brim train
// --json`, one record a line. A record is a JSON object with the member "event", and it is one of
// these events of --json:
//
//   start       start_step, steps, epochs          the training runs, and its logs are open
//   steps       step
//   epoch       epoch, epochs
//   result      steps, epochs (done), interrupted
//   error       status ("BRIM_EIO"), class (of brim_failure; may be missing), message
//
// With BRIM_CHANNEL_ENV in the environment of the training there are also these events:
//
//   progress    step, epoch, epochs, with the other members of the event of --json
//   checkpoint  step                               a checkpoint of this step is on the disk
//   findings    findings [...]                     the list of record_job.h, each time that it changes
//
// Other members are for people. Lines that are no records come from libraries or launchers. Metrics do not pass
// here: they are rows of log.jsonl, which both processes can read after a crash. Writers: src/cli. Reader:
// src/lab/exec.
#ifndef BRIM_RECORD_CHANNEL_H_
#define BRIM_RECORD_CHANNEL_H_

#include "record/record.h"

// An environment variable, because srun and mpirun pass on the environment and standard output, but no other
// descriptor.
#define BRIM_CHANNEL_ENV "BRIM_CHANNEL"

#define BRIM_CHANNEL_MAP(X)   \
  X(START, "start")           \
  X(PROGRESS, "progress")     \
  X(STEPS, "steps")           \
  X(EPOCH, "epoch")           \
  X(CHECKPOINT, "checkpoint") \
  X(FINDINGS, "findings")     \
  X(RESULT, "result")         \
  X(ERROR, "error")

typedef enum brim_channel_kind {
#define X(id, name) BRIM_CHANNEL_##id,
  BRIM_CHANNEL_MAP(X)
#undef X
      BRIM_CHANNEL_KIND_COUNT
} brim_channel_kind;

// One record. Unknown numbers are -1. Pointers point into the JSON value.
typedef struct brim_channel_record {
  brim_channel_kind kind;
  int64_t step;           // START: step at which it begins; RESULT: step at which it ended
  int64_t steps, epochs;  // totals of the whole run
  int64_t epoch;
  bool interrupted;        // RESULT
  brim_status status;      // ERROR
  brim_failure failure;    // ERROR; NONE = the training names no class
  const char *message;     // ERROR; never NULL
  const json_t *findings;  // FINDINGS: an array
} brim_channel_record;

// Returns false if the event is no record.
bool brim_channel_read(const json_t *event, brim_channel_record *out);

#endif  // BRIM_RECORD_CHANNEL_H_
