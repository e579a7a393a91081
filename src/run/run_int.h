// Inside the run room: the state of a training run, which its files share, and what they call of each other.
#ifndef BRIM_RUN_INT_H_
#define BRIM_RUN_INT_H_

#include "monitor/monitor_job.h"
#include "profile/profile.h"
#include "profile/profile_tensorboard.h"
#include "record/record_job.h"
#include "run/run.h"

//---------------------------------- logs (run_log.c) ----------------------------------

// One row per epoch in log.csv and, as {"event": "epoch"}, in log.jsonl; every log.interval steps an
// {"event": "steps"} in log.jsonl. Each row is appended with one write, so a kill never tears a line. A file
// that has reached `rotate` bytes is followed by log.1.csv, log.2.csv and so on, each with the header.
typedef struct brim_run_file {
  const char *folder;  // borrowed
  const char *ext;     // "csv"; NULL = off
  const char *header;  // "" = none
  int number;          // of the file being written; 0 is log.csv
  brim_str waiting;    // rows that could not be written, one a line; tried again with the next row
  int64_t lost;        // rows dropped because too many waited
  bool failing;        // the last try failed, and a warning was printed
} brim_run_file;

typedef struct brim_run_log {
  brim_run_file csv, jsonl;
  brim_tensorboard *events;  // NULL unless log.tensorboard
  bool events_failing;
  uint64_t rotate;  // bytes; 0 = never
  const char *folder;
  uint64_t folder_id[2];  // device and inode of the folder that holds the event files
  char header[2048];      // of log.csv
} brim_run_log;

// A log that cannot be written (a full disk, a folder in its place) does not end the run: a warning is
// printed once, and the rows wait for the next try. The calls below fail only for lack of memory.

// Opens the logs of a folder. Rows of steps after `start_step`, written by a run that was killed later than
// its last checkpoint, are dropped, so that no step is logged twice. With `ended` the epoch that ended with
// start_step is dropped too, since it will be reported again.
brim_status brim_run_log_open(brim_run_log *log, const brim_config *config,
                              const brim_metric_set *metrics, bool watches_gpu, const char *folder,
                              int64_t start_step, bool ended);
void brim_run_log_close(brim_run_log *log);
brim_status brim_run_log_epoch(brim_run_log *log, const brim_epoch_report *report, int64_t step);
brim_status brim_run_log_steps(brim_run_log *log, const brim_run_steps *steps);
// Any other line of log.jsonl: {"event": name, "epoch", "step", ...fields}. Consumes `fields`.
brim_status brim_run_log_event(brim_run_log *log, const char *event, int64_t epoch, int64_t step,
                               json_t *fields);

//---------------------------------- out of memory ----------------------------------

enum { BRIM_RUN_ADAPTIONS = 16 };  // that a checkpoint remembers

typedef struct brim_run_adaption {
  int64_t step, batch, accumulation;  // the values from this step on
  brim_setting setting;               // replaces the two where the workload decides how to shrink
} brim_run_adaption;

typedef struct brim_run_adapt {
  bool frees_optional;      // gpu.on_oom is "adapt": first free memory that no setting asks for
  bool on;                  // the setting can shrink too
  bool shrinks;             // the workload decides how
  brim_setting asked;       // by the config
  brim_setting setting;     // now
  int batch, accumulation;  // knobs; -1 = none
  int64_t effective;        // samples of a step, which stay the same
  int64_t whole;            // a micro-batch must divide this too; 0 = no limit
  brim_run_adaption made[BRIM_RUN_ADAPTIONS];
  int count;
} brim_run_adapt;

void brim_run_adapt_init(brim_run_adapt *adapt, const brim_work *work, const brim_config *config);
// Takes the micro-batches and the workload's choices from the checkpoint at `path`. Call it before
// brim_run_adapt_plan.
brim_status brim_run_adapt_take(brim_run_adapt *adapt, const brim_work *work, const char *path);
// Finds a setting that fits, and its plan. BRIM_EOOM, with the detail of brim_work_check_fit, if none does.
brim_status brim_run_adapt_plan(brim_run_adapt *adapt, const brim_work *work,
                                const brim_run_options *options, uint64_t limit, brim_plan *plan);

//---------------------------------- the run (run_train.c) ----------------------------------

// Which epoch is best, and early stopping.
typedef struct brim_run_best {
  const brim_metric_set *metrics;
  int by;                          // the row of checkpoint.best; -1 = the row with the highest rank
  bool training;                   // use training metrics even if there is an evaluation
  bool warned;                     // that another row is used than the one asked for
  const char *wanted;              // checkpoint.best, if this workload has no such row; else NULL
  double values[BRIM_METRIC_MAX];  // of the best epoch, rows with a rank only; NaN = none yet
  int64_t epoch;                   // from 1; 0 = none
  int64_t patience, waited;        // evaluations without improvement; patience 0 = off
  double delta, reference;         // least improvement, last improved value; NaN = none yet
  int row;                         // that decided last; -1 = none
} brim_run_best;

// Problems that the workload found while training.
typedef struct brim_run_watch {
  brim_work *work;
  brim_run_log *log;
  brim_run_result *result;
  int64_t times[BRIM_WORK_MAX_TROUBLES];  // readings that had it
  brim_job *job;                          // published; NULL = not
} brim_run_watch;

// Loading times, and which slow transforms were reported.
typedef struct brim_run_loader {
  double slow_ms;            // data.slow_transform_ms
  brim_work_loading before;  // when the epoch began
  uint32_t warned;           // one bit per transform
} brim_run_loader;

// The checkpoint files of a run.
typedef struct brim_run_files {
  const char *folder;  // borrowed
  char *last, *best, *model;
  int64_t keep;       // checkpoint.keep: `last`, and keep - 1 files named by step
  int64_t last_step;  // of `last`; -1 = unknown
  brim_time saved_at;
  int64_t save_ns;  // what writing the last checkpoint took
} brim_run_files;

// A checkpoint that a thread writes. Read its members after joining the thread, except `written`.
typedef struct brim_run_saver {
  bool busy;  // a checkpoint is being written, or was and its result is not taken yet
  brim_thread *thread;
  brim_work_held held;
  brim_run_files files;  // copy of the loop's
  int64_t step;
  bool best, last;  // the files to write
  brim_time start;
  int written;  // atomic: the thread is done
  brim_status status;
  char why[1024];
} brim_run_saver;

typedef struct brim_run_loop {
  brim_work *work;
  brim_comm *comm;             // the workload's; NULL = one rank
  sig_atomic_t any_rank_stop;  // with ranks: one of them was told to stop
  const brim_config *config;
  const brim_run_options *options;
  brim_run_result *result;
  brim_run_log log;
  brim_phase_timer timer;
  brim_work_info info;
  int64_t epochs, interval, log_interval, eval_interval;
  int64_t limit;        // optimiser steps; 0 = none
  int64_t first_step;   // where this process began
  int64_t epoch, step;  // epoch from 0; steps made
  bool save_due;        // checkpoint.interval asks for a checkpoint after the last step
  bool ended;           // all steps of `epoch` are made, but not its evaluation
  bool caught_up;       // this process evaluated an epoch that another process trained
  bool evaluated;       // this process evaluated an epoch
  bool torn;            // the workload is being rebuilt: only last.safetensors has the state
  brim_run_best best;
  brim_run_files files;
  brim_run_saver saver;
  brim_run_watch watch;
  brim_run_adapt adapt;
  bool adapting;  // the setting shrank, and no checkpoint has shown yet that training works with it
  brim_run_adapt before_adapting;
  double last_lr;
  brim_fs_lockfile *lock;  // keeps a second run out of the folder

  // since the epoch, the log interval and the progress line began
  brim_time epoch_start, log_start, progress_start;
  int64_t epoch_ns, epoch_samples;  // training only, without evaluation and checkpoints
  int64_t log_samples, log_steps, progress_samples, progress_steps;
  double sums[BRIM_WORK_MAX_SUMS];      // of the epoch
  double log_sums[BRIM_WORK_MAX_SUMS];  // of the log interval
  double last[BRIM_METRIC_MAX];         // metrics that are values, not sums, as last read
  int64_t log_bad;
  int64_t updated;       // the last step that changed the weights
  bool searching;        // the loss scale is being searched: skipped steps are normal
  double epoch_skipped;  // skipped steps when the epoch began
  brim_run_loader loader;
  double train_seconds;
  brim_time began;
  int64_t train_samples;

  // published for `brim top`; publisher NULL = not
  brim_job_publisher *publisher;
  brim_job job;
  brim_time publish_time;
  double publish_seconds;
  int64_t publish_samples, publish_step;
} brim_run_loop;

// The first rank alone writes files and logs.
static inline bool brim_run_writes(const brim_run_loop *l) { return brim_comm_rank(l->comm) == 0; }

// Creates the output folder again if it was removed, with a warning.
void brim_run_folder_restore(const char *folder);

//---------------------------------- ranks (run_ranks.c) ----------------------------------

// Compares version, config and sizes with the first rank's before the first step. Ranks that differ would
// wait for each other forever, or drift apart. The rank that differs fails.
brim_status brim_run_ranks_verify(const brim_run_loop *l);

// Connections of the watch, which tests use too.

typedef enum brim_ranks_kind {
  BRIM_RANKS_HELLO =
      1,  // to rank 0, with the token; rank 0 replies with one, and a BEAT answers that
  BRIM_RANKS_BEAT,
  BRIM_RANKS_BYE,   // this rank ends without a failure
  BRIM_RANKS_FAIL,  // to rank 0: why this rank failed
  BRIM_RANKS_END    // from rank 0: all ranks end because of `rank`
} brim_ranks_kind;

typedef enum brim_ranks_fate {
  BRIM_RANKS_FAILED,  // it gave a reason
  BRIM_RANKS_DIED,    // its connection ended
  BRIM_RANKS_SILENT
} brim_ranks_fate;

// A message of fixed size. All ranks must have the same byte order, as their data do.
typedef struct brim_ranks_message {
  uint32_t magic, kind;
  int32_t rank, pid, status, fate;
  uint8_t token[16];
  char host[64];
  char text[1024];
} brim_ranks_message;

// Where rank 0 listens; broadcast to all.
typedef struct brim_ranks_address {
  uint8_t token[16];
  int32_t pid;
  char host[64];
  char local[64];  // name of an abstract UNIX socket; "" = TCP
  int32_t port;
  int32_t count;
  char addresses[12][46];  // numeric, loopback last
} brim_ranks_address;

typedef struct brim_ranks_wire {
  int fd;  // -1 = closed
  size_t got;
  brim_ranks_message in;
} brim_ranks_wire;

brim_status brim_ranks_listen(bool over_tcp, brim_ranks_address *out, int *listener);
brim_status brim_ranks_connect(const brim_ranks_address *address, brim_ranks_message *hello,
                               int64_t until_ns, brim_ranks_wire *out);
// Rank 0's side of the greeting. It serves several connections at once, so that strangers and slow ranks
// delay none. NULL = out of memory. Both arguments must outlive it.
typedef struct brim_ranks_door brim_ranks_door;
brim_ranks_door *brim_ranks_door_open(int listener, const brim_ranks_address *address);
void brim_ranks_door_close(brim_ranks_door *door);  // NULL is fine
// The next rank that has finished its greeting, which is in out->in. BRIM_EEND when the time is over.
brim_status brim_ranks_accept(brim_ranks_door *door, int64_t until_ns, brim_ranks_wire *out);
// Never waits. Closes a wire that does not take the whole message.
void brim_ranks_send(brim_ranks_wire *wire, brim_ranks_message *message);
// True if a whole message is in wire->in. False with fd -1: the connection ended. Never waits.
bool brim_ranks_receive(brim_ranks_wire *wire);
void brim_ranks_wire_close(brim_ranks_wire *wire);

#endif  // BRIM_RUN_INT_H_
