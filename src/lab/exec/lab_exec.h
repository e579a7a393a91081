// The executor: one attempt of one experiment. It runs one `brim train` as a child, reports to the
// store through a link, and classifies how the training ended. `brim sweep execute` calls
// brim_lab_execute. The sweep calls the functions that send the spools and files of ended executors.
//
// The folder of an experiment (the training's output_dir) has these files beside the training's own:
//   experiment.yaml   the config as it is stored
//   executor.json     the running executor: {pid, born, boot, attempt, fence, child, child_born}
//                     born, child_born: start times in ticks since the boot; boot: id of the boot;
//                     fence: number of the claim, see lab_store.h
//   attempt-N.log     for people: the child's stderr, and its events except progress and steps
//   attempt-N.spool   reports that the store has not acknowledged, one JSON object a line; see below
//   attempt-N.spool.bad  lines of a spool that the store refuses
//   attempt-N.files   exists until a server has every file of the attempt; see lab_exec.c
//
// A spool appears whole (temporary, fsync, rename) and is removed when the store has acknowledged
// all of it. Its lines are reports in the order in which they are sent; the last one is "finish".
//
// Metrics are the numbers of log.jsonl by their names there ("val_accuracy"), except times. Each
// attempt sends the whole file, so a batch that an earlier attempt lost arrives later. The file is
// also the buffer: the executor reads rows only as fast as the store takes them.
#ifndef BRIM_LAB_EXEC_H_
#define BRIM_LAB_EXEC_H_

#include <signal.h>

#include "lab/store/lab_store.h"

struct brim_lab_link;

// The environment variable with the whole URL of a database. The executor's command line has the URL
// without its password, since every user of the machine can see command lines.
#define BRIM_LAB_PLACE_ENV "BRIM_SWEEP_STORE"

// 0 and NULL select the defaults, which stand in parentheses, except for members marked "required".
typedef struct brim_lab_exec_options {
  struct brim_lab_link *link;  // required; executors open this link with sweep_only
  brim_store_ref ref;          // required
  const char *folder;          // required; created if it is missing
  // required: the program and its first arguments, {"/usr/bin/brim", "train", NULL}. The executor adds the
  // config, --output-dir, --resume where there is a checkpoint, --json, --device, --threads and
  // log.jsonl=true.
  const char *const *command;
  const char *device;  // for --device; NULL = as the config sets it
  const char
      *gpus;  // UUIDs for CUDA_VISIBLE_DEVICES, separated by commas; NULL = unchanged; "" = none
  int64_t threads;         // for --threads; 0 = as the config sets it
  const char *const *env;  // more "NAME=value" for the child, or "NAME" to remove; NULL-terminated
  int64_t linger_ms;       // stop after this time without an answer of the store (the lease)
  int64_t stall_ms;        // watchdog: this long without progress is a hang (10 min; < 0: never)
  int64_t grace_ms;        // time from SIGTERM to SIGKILL (60 s)
  int stop_signal;  // signal in place of SIGTERM, to the program only: srun passes it on to its tasks
  int64_t beat_ms;  // time between beats (a quarter of the lease); progress is reported every 2 s
  const volatile sig_atomic_t *stop;  // non-zero: stop cleanly; may be NULL
} brim_lab_exec_options;

// The folder of an experiment: FOLDER/exp/<first 12 digits of its id>.
#define BRIM_LAB_EXPS "exp"
enum { BRIM_LAB_SHORT_ID = 12 };  // digits of an id in paths and tables
brim_status brim_lab_exp_folder(const char *folder, const char *id, brim_str *out);

typedef enum brim_lab_exec_end {
  BRIM_LAB_EXEC_REPORTED,  // the store has the result
  BRIM_LAB_EXEC_SPOOLED,   // the spool has the result; it will be sent later
  BRIM_LAB_EXEC_STALE,     // another attempt took over: the child was killed, its files stay
  BRIM_LAB_EXEC_END_COUNT
} brim_lab_exec_end;

typedef struct brim_lab_exec_report {
  brim_lab_exec_end end;
  brim_attempt_outcome outcome;
  brim_failure failure;
  int64_t exit_code;     // exit code of the child; 128 + N if signal N ended it
  brim_exp_state state;  // state of the experiment, if REPORTED
  char message[1024];    // message of a failure
} brim_lab_exec_report;

// Runs the attempt to its end. Returns BRIM_OK even if the training fails. If the call itself fails,
// the attempt has no result and its lease expires: the link did not answer before the child was
// started, or the spool could not be written.
brim_status brim_lab_execute(const brim_lab_exec_options *options, brim_lab_exec_report *out);

typedef struct brim_lab_replayed {
  int64_t files;     // spools that were sent and removed
  int64_t finished;  // results in them that the store accepted
  int64_t stale;     // spools of attempts that other attempts had replaced; removed too
} brim_lab_replayed;

// Sends every spool under exp/*/ of the folder `place`. A sweep calls it at its start, before leases end and
// experiments are claimed. BRIM_EIO: the remaining spools stay for the next time. Lines that are no
// reports, and a file that cannot be read, are kept in NAME.bad with a warning.
brim_status brim_lab_spool_replay(const char *place, struct brim_lab_link *link,
                                  brim_lab_replayed *out);
// Sends the spools of one experiment's folder, after its executor has ended. Adds to *out.
brim_status brim_lab_spool_replay_folder(const char *folder, struct brim_lab_link *link,
                                         brim_lab_replayed *out);

// Finds the executor that runs in a folder, by executor.json; false if there is none or it has ended. A
// sweep adopts the executors of an earlier sweep with it.
typedef struct brim_lab_exec_owner {
  int64_t pid, child;  // process ids; child 0 = no child yet
  int64_t attempt, fence;
} brim_lab_exec_owner;
bool brim_lab_exec_find(const char *folder, brim_lab_exec_owner *out);
// Kills the executor and its child's process group (SIGKILL) and waits for them, at most 10 s.
// BRIM_EIO: one of them still runs.
brim_status brim_lab_exec_kill(const char *folder);

// Uploads files that executors could not send in time (attempt-N.files), in a thread of the sweep or worker.
// `link` leads to a server and must outlive the uploads, which use a connection of their own.
typedef struct brim_lab_uploads brim_lab_uploads;
// Starts the thread with the experiments in FOLDER/exp.
brim_status brim_lab_uploads_open(const struct brim_lab_link *link, const char *folder,
                                  brim_lab_uploads **out);
// Adds the folder of an experiment whose executor has ended.
void brim_lab_uploads_look(brim_lab_uploads *uploads, const char *folder);
void brim_lab_uploads_close(brim_lab_uploads *uploads);  // NULL is fine

#endif  // BRIM_LAB_EXEC_H_
