// The executor: one attempt of one experiment. It runs one `brim train` as a child, reports to the store
// through a link, and classes how the training ended. Callers: `brim sweep execute`, and the sweep for
// the spools that executors left.
//
// The folder of an experiment (the training's output_dir) has besides the training's files:
//   experiment.yaml   the config as it is stored
//   executor.json     the process that runs here: {pid, born, boot, attempt, fence, child, child_born}
//   attempt-N.log     for people: the child's stderr, and its events but for progress and steps
//   attempt-N.spool   writes the store has not acknowledged, one JSON object a line; see below
//   attempt-N.spool.bad  lines of a spool that the store does not take
//   attempt-N.files   until a server has every file of the attempt; see lab_exec_files.c
//
// A spool appears whole (temporary, fsync, rename) and is removed when all of it is acknowledged. Its
// lines are reports (brim_lab_op_is_report) in the order they are sent; the last is "finish".
//
// Metrics are the numbers of log.jsonl by their names there ("val_accuracy"), except the times; each
// attempt sends the whole file, so a batch that an earlier attempt lost is no loss. The file is also the
// buffer: rows are read only as fast as the store takes them.
#ifndef BRIM_LAB_EXEC_H_
#define BRIM_LAB_EXEC_H_

#include <signal.h>

#include "lab/store/lab_store.h"

#ifdef __cplusplus
extern "C" {
#endif

struct brim_lab_link;

// The variable that tells an executor the whole URL of a database: its words, which every user of the
// machine can see, have it without the password.
#define BRIM_LAB_PLACE_ENV "BRIM_SWEEP_STORE"

// 0 and NULL are the defaults, except where it says "required".
typedef struct brim_lab_exec_options {
  struct brim_lab_link *link;  // required; executors open theirs with sweep_only
  brim_store_ref ref;          // required
  const char *folder;          // required; made where it is not there
  // required: the program and its first arguments, {"/usr/bin/brim", "train", NULL}. The executor adds the
  // config, --output-dir, --resume where there is a checkpoint, --json, --device, --threads and
  // log.jsonl=true.
  const char *const *command;
  const char *device;      // for --device; NULL = as the config says
  const char *gpus;        // UUIDs for CUDA_VISIBLE_DEVICES, by commas; NULL = unchanged; "" = none
  int64_t threads;         // for --threads; 0 = as the config says
  const char *const *env;  // more "NAME=value" for the child, or "NAME" to remove; NULL-terminated
  int64_t linger_ms;       // stops when no call was answered for so long (the lease)
  int64_t stall_ms;        // the watchdog: no progress for so long is a hang (10 min; < 0: never)
  int64_t grace_ms;        // from SIGTERM to SIGKILL (60 s)
  int stop_signal;  // in place of SIGTERM, to the program alone: srun passes it on to its tasks
  int64_t beat_ms;  // between beats (a quarter of the lease); progress is reported every 2 s
  const volatile sig_atomic_t *stop;  // non-zero: stop cleanly; may be NULL
} brim_lab_exec_options;

typedef enum brim_lab_exec_end {
  BRIM_LAB_EXEC_REPORTED,  // the store has the result
  BRIM_LAB_EXEC_SPOOLED,   // the spool has it
  BRIM_LAB_EXEC_STALE,     // another attempt took over: the child was killed, its files stay
  BRIM_LAB_EXEC_END_COUNT
} brim_lab_exec_end;

typedef struct brim_lab_exec_report {
  brim_lab_exec_end end;
  brim_attempt_outcome outcome;
  brim_failure failure;
  int64_t exit_code;     // of the child; 128 + N where signal N ended it
  brim_exp_state state;  // of the experiment, where REPORTED
  char message[1024];    // of a failure
} brim_lab_exec_report;

// Runs the attempt to its end. A failure of the training is no failure of this call. Where the call fails
// the attempt has no result: the link did not answer before the child was started, or the spool could not
// be written. The attempt's lease expires then.
brim_status brim_lab_execute(const brim_lab_exec_options *options, brim_lab_exec_report *out);

typedef struct brim_lab_replayed {
  int64_t files;     // spools that were sent and removed
  int64_t finished;  // results among them that the store took
  int64_t stale;     // spools of attempts that others had replaced; removed too
} brim_lab_replayed;

// Sends every spool under PLACE/exp/*/. For the start of a sweep, before leases end and experiments are
// claimed, and after an executor ended as SPOOLED. BRIM_EIO: the rest stays for the next time. Lines that
// are no reports, and a file that cannot be read, are kept in NAME.bad, with a warning.
brim_status brim_lab_spool_replay(const char *place, struct brim_lab_link *link,
                                  brim_lab_replayed *out);
// The same of one experiment's folder, after its executor ended. Adds to *out.
brim_status brim_lab_spool_replay_folder(const char *folder, struct brim_lab_link *link,
                                         brim_lab_replayed *out);

// The executor that runs in this folder, by executor.json: false when there is none or it has ended.
// For a sweep that adopts what an earlier one started.
typedef struct brim_lab_exec_owner {
  int64_t pid, child;  // child 0 = none yet
  int64_t attempt, fence;
} brim_lab_exec_owner;
bool brim_lab_exec_find(const char *folder, brim_lab_exec_owner *out);
// Ends what runs there (SIGKILL to the executor, then to the child's group) and waits for it, at most
// 10 s. BRIM_EIO: it is still there.
brim_status brim_lab_exec_kill(const char *folder);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_EXEC_H_
