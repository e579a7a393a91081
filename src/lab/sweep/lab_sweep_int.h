// Inside the sweep: its state, and the parts that the loop (lab_sweep.c) and Slurm (lab_sweep_slurm.c)
// share. Tests include it too.
#ifndef BRIM_LAB_SWEEP_INT_H_
#define BRIM_LAB_SWEEP_INT_H_

#include "base/base.h"
#include "base/base_child.h"
#include "lab/exec/lab_exec.h"
#include "lab/place/lab_place.h"
#include "lab/sweep/lab_sweep.h"
#include "lab/wire/lab_wire.h"
#include "lab/wire/lab_wire_ids.h"
#include "lab/wire/lab_wire_link.h"
#include "lab/wire/lab_wire_server.h"
#include "monitor/monitor.h"

enum {
  BRIM_LAB_TAIL = 1024,   // bytes of an executor's last lines
  BRIM_LAB_WINDOW = 256,  // queued experiments that one round of placing reads
  BRIM_LAB_DIRTY = 64,    // most changed experiments to remember; more mean that all changed
  BRIM_LAB_SAME = 3       // first experiments that have to fail the same way
};

// An executor.
typedef struct brim_lab_runner {
  brim_store_ref ref;
  brim_child *child;  // NULL: an earlier sweep started it
  int64_t pid;
  char *folder;
  char *devices;     // the devices of its slot: "cpu", "GPU-..,GPU-.."; NULL = unknown
  bool asked;        // it was asked to stop
  int64_t asked_ms;  // when it was asked
  bool killed;
  bool stale;  // at the last look its attempt had been replaced or had ended
  bool gone;   // its process has ended
  int64_t next_look_ms;
  int64_t step, steps;
  int64_t step_ms;  // when `step` was seen
  double steps_per_s;
  char tail[BRIM_LAB_TAIL];
} brim_lab_runner;

// The last readings of a GPU; NaN = unknown.
typedef struct brim_lab_gpu_reader {
  char uuid[BRIM_LAB_PLACE_UUID];
  brim_gpu_sampler *sampler;  // NULL: it cannot be read
  double gpu_percent, power_w, power_limit_w, temperature_c;
} brim_lab_gpu_reader;

// The first experiments that failed, as long as all failed the same way.
typedef struct brim_lab_same {
  bool off;  // an experiment was done, or failed in another way
  size_t count;
  char exps[BRIM_LAB_SAME][BRIM_EXP_ID];
  brim_failure failure;
  char message[512];
} brim_lab_same;

// Notes the failure of an experiment. True: the first BRIM_LAB_SAME failed the same way. `folder`
// is the experiment's own, which may differ between messages.
bool brim_lab_same_add(brim_lab_same *same, const char *exp, const char *folder,
                       brim_failure failure, const char *message);
void brim_lab_same_done(brim_lab_same *same);

// Makes the name of a worker from its machine and the path of its folder. id: id of the worker's token,
// by which a server knows it; "" = none.
enum { BRIM_LAB_WORKER_NAME = 64 };
void brim_lab_worker_name(const char *id, const char *host, const char *path,
                          char out[BRIM_LAB_WORKER_NAME]);

// Experiments run as tasks of Slurm's arrays instead of executors of this machine. One command of Slurm
// runs at a time, and the sweep's loop never waits for it.
enum { BRIM_LAB_SLURM_LARGEST = 100000 };  // tasks of an array

// One task of an array, as Slurm last described it.
typedef struct brim_lab_task {
  brim_slurm_state state;
  char word[24];
  char node[BRIM_SLURM_NODE];
  char reason[BRIM_SLURM_REASON];
  bool seen;   // the last look listed it
  int missed;  // looks in a row that did not list it
  bool over;   // it has ended, and the sweep has handled that end
} brim_lab_task;

typedef struct brim_lab_array {
  brim_slurm_array is;
  brim_lab_task *tasks;  // is.count tasks
  size_t open;           // tasks that are not over
  int64_t made_ms;
  bool refused;                // sbatch refused it
  int looks;                   // looks that did not show an array whose sbatch gave no answer
  bool account;                // the sweep has to ask sacct about it
  bool accounted;              // sacct was asked since the last look
  char stray[BRIM_SLURM_JOB];  // number of another job with this name, to be cancelled; "" = none
  int told;                    // the last step of stopping that was taken
} brim_lab_array;

typedef enum brim_lab_slurm_phase {
  BRIM_LAB_SLURM_IDLE,
  BRIM_LAB_SLURM_LOOK,
  BRIM_LAB_SLURM_ACCOUNT,
  BRIM_LAB_SLURM_SUBMIT,
  BRIM_LAB_SLURM_CANCEL
} brim_lab_slurm_phase;

typedef struct brim_lab_slurm {
  brim_lab_slurm_options options;
  char *folder;  // absolute
  char *place;   // place of the store for tasks: absolute, or a URL without its password
  bool no_gpu;
  int64_t most;  // most tasks of an array
  int64_t lease_ms;
  brim_lab_array **arrays;
  size_t count, cap;
  brim_lab_ids live;  // experiments with an unfinished task, to array * LARGEST + index
  bool indexed;       // `live` is up to date
  brim_lab_slurm_phase phase;
  brim_slurm_command command;
  brim_lab_array *about;  // the array of the running command: ACCOUNT, SUBMIT, CANCEL
  // look_ms, gather_ms: when squeue and the store's queue are read next. hold_ms: no array is submitted
  // before. wait_ms: the last pause after a refusal.
  int64_t look_ms, gather_ms, hold_ms, wait_ms;
  int64_t told_ms;  // when trouble with Slurm was last reported
  bool no_account;  // sacct does not work here
  int64_t stop_ms;  // when the sweep began to stop; 0 = it has not
  bool gave_up;
  bool asked;           // the store has changed since the queue was read
  int64_t gathered_ms;  // when the queue was read
  bool accepted;        // an array was submitted
  // The reason for which the first array was refused, if another try would be refused too; "" = none.
  char refusal[256];
} brim_lab_slurm;

struct brim_lab_sweep {
  brim_lab_sweep_options options;  // texts are below
  char *place, *folder, *title, *program, *version, *devices, *lock_dir;
  char **words;  // options.words points here
  char worker[BRIM_LAB_WORKER_NAME], host[65];
  brim_store *store;  // NULL: this is a worker, and a server has the experiments
  brim_lab_ops own, ops;
  brim_lab_link *source;      // for the sweep's own calls: over `own`, or to a worker's server
  brim_lab_link *link;        // for requests of others: over `ops`, so the sweep notices changes
  brim_lab_uploads *uploads;  // NULL: this sweep uploads no files
  brim_lab_server *server;
  brim_lab_place *placing;
  brim_lab_slurm *slurm;  // NULL: experiments run on this machine
  brim_lab_runner **runners;
  size_t count, cap;
  struct pollfd *fds;
  size_t fd_cap;
  bool stopping;
  brim_lab_end end;
  brim_lab_same same;
  brim_store_counts counts;
  int64_t count_ms, last_ms, reap_ms, seen_ms, progress_ms, replay_ms, trouble_ms, trouble_wait,
      told_ms, give_up_ms, place_ms;
  int64_t stale_ms;  // when to look for executors that a server gave up
  int64_t lease_ms;  // lease time of the server; 0 = not known yet
  char claim[BRIM_EXP_ID], claim_exp[BRIM_EXP_ID];  // a claim that got no reply; "" = none
  bool counted;                                     // `counts` is up to date
  bool left;                                        // queued experiments may start later
  int64_t paused;    // experiments that were paused before this sweep and still are
  bool told_paused;  // a message has said that the sweep waits for paused ones
  brim_lab_place_state gpu_states[BRIM_LAB_PLACE_GPUS];  // states that the last turn saw
  bool look;                                             // something changed: count and place again
  // the view
  brim_sweep_view view;
  bool has_rows, all_dirty;
  char dirty[BRIM_LAB_DIRTY][BRIM_EXP_ID];
  size_t dirty_count;
  int64_t rows_ms;
  size_t detail_at;
  // readings of GPUs
  brim_lab_gpu_reader readers[BRIM_LAB_PLACE_GPUS];
  size_t reader_count;
  int64_t gpus_ms, looked_ms;    // when the GPUs were read; when a view was made
  brim_host_sample host_sample;  // reading of the last status
  bool host_read;
  int64_t ended;  // experiments that this sweep saw end; ended_s: their time
  double ended_s;
  double first_s;
};

void brim_lab_say(brim_lab_sweep *sweep, brim_sweep_level level, const char *exp, const char *fmt,
                  ...) BRIM_PRINTF(4, 5);
// Copies a text to at most `size` bytes with the NUL. A longer text is cut after a word and ends with
// "...".
void brim_lab_shorten(const char *text, char *out, size_t size);
void brim_lab_dirty(brim_lab_sweep *sweep, const char *exp);  // "": all rows changed

//---------------------------------- the view ----------------------------------

// Reads the GPUs if a reading is due.
void brim_lab_gpus_read(brim_lab_sweep *sweep, int64_t now_ms);
// Fills in the readings of *out, a place whose name and id are set.
void brim_lab_gpus_fill(brim_lab_sweep *sweep, brim_sweep_gpu *out);
void brim_lab_gpus_close(brim_lab_sweep *sweep);

// Notes the end of an attempt: a message for the user, the place it had, and the rule about first
// failures.
brim_status brim_lab_take_note(brim_lab_sweep *sweep, int64_t attempt, const char *folder,
                               const brim_store_exp *exp);

//---------------------------------- Slurm (lab_sweep_slurm.c) ----------------------------------

// Asks Slurm for its limits and reads the arrays that an earlier sweep of the folder submitted.
brim_status brim_lab_slurm_open(brim_lab_sweep *sweep, brim_lab_slurm **out);
void brim_lab_slurm_close(brim_lab_slurm *slurm);  // its tasks continue; NULL is fine
brim_status brim_lab_slurm_turn(brim_lab_sweep *sweep, int64_t now_ms);
// True if no task of this sweep is left in Slurm's queue, or the sweep has given up waiting for the
// tasks.
bool brim_lab_slurm_idle(const brim_lab_sweep *sweep);
// Lists the descriptors of the running command.
size_t brim_lab_slurm_fds(const brim_lab_slurm *slurm, struct pollfd fds[BRIM_CHILD_FDS],
                          int *limit_ms);
// Gives Slurm's reason why an experiment waits, or the node where it runs; "" = unknown.
void brim_lab_slurm_why(const brim_lab_slurm *slurm, const char *exp, char *out, size_t size);
void brim_lab_slurm_count(const brim_lab_slurm *slurm, int64_t *running, int64_t *waiting);

#endif  // BRIM_LAB_SWEEP_INT_H_
