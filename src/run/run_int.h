// Inside the run room: functions that its files share, or that tests call.
#ifndef BRIM_RUN_INT_H_
#define BRIM_RUN_INT_H_

#include "profile/profile_tensorboard.h"
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
  brim_str waiting;    // rows that could not be written yet, one a line
  int64_t lost;        // rows dropped because too many waited
  bool failing;        // the last write failed, and a warning was printed
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
// Writes any other line of log.jsonl: {"event": name, "epoch", "step", ...fields}. Consumes `fields`.
brim_status brim_run_log_event(brim_run_log *log, const char *event, int64_t epoch, int64_t step,
                               json_t *fields);

//---------------------------------- out of memory ----------------------------------

enum { BRIM_RUN_ADAPTIONS = 16 };  // the most that a checkpoint remembers

typedef struct brim_run_adaption {
  int64_t step, batch, accumulation;  // the values from this step on
  brim_setting setting;               // replaces both values if the workload decides how to shrink
} brim_run_adaption;

typedef struct brim_run_adapt {
  bool frees_optional;      // gpu.on_oom is "adapt": optional memory is freed first
  bool on;                  // the setting can shrink, too
  bool shrinks;             // the workload decides how
  brim_setting asked;       // the setting that the config asks for
  brim_setting setting;     // the present setting
  int batch, accumulation;  // knobs; -1 = none
  int64_t effective;        // samples of a step; shrinking keeps them
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

// Creates the output folder again if it was removed, with a warning.
void brim_run_folder_restore(const char *folder);

//---------------------------------- ranks (run_ranks.c) ----------------------------------

// Connections of the watch. Tests use them, too.

typedef enum brim_ranks_kind {
  // To rank 0, with the token. Rank 0 replies with a HELLO, and the rank answers with a BEAT.
  BRIM_RANKS_HELLO = 1,
  BRIM_RANKS_BEAT,
  BRIM_RANKS_BYE,   // this rank ends without a failure
  BRIM_RANKS_FAIL,  // to rank 0: the reason why this rank failed
  BRIM_RANKS_END    // from rank 0: all ranks end, because of rank `rank`
} brim_ranks_kind;

typedef enum brim_ranks_fate {
  BRIM_RANKS_FAILED,  // the rank gave a reason
  BRIM_RANKS_DIED,    // the rank's connection ended
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

// The address at which rank 0 listens. It is broadcast to all ranks.
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
// Waits for the next rank that finishes its greeting; out->in holds the greeting. BRIM_EEND if the time is over.
brim_status brim_ranks_accept(brim_ranks_door *door, int64_t until_ns, brim_ranks_wire *out);
// Sends a message and never waits. Closes a wire that takes only a part of the message.
void brim_ranks_send(brim_ranks_wire *wire, brim_ranks_message *message);
// True if a whole message is in wire->in. False with fd -1: the connection ended. Never waits.
bool brim_ranks_receive(brim_ranks_wire *wire);
void brim_ranks_wire_close(brim_ranks_wire *wire);

#endif  // BRIM_RUN_INT_H_
