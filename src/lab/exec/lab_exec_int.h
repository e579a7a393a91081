// Inside the executor: the events and logs of its child, how it ended, reports that are not sent
// yet, uploads, and the process that owns a folder. Tests include it too.
#ifndef BRIM_LAB_EXEC_INT_H_
#define BRIM_LAB_EXEC_INT_H_

#include "base/base.h"
#include "base/base_child.h"
#include "lab/exec/lab_exec.h"
#include "lab/wire/lab_wire.h"

//---------------------------------- events of the child (lab_exec.c) ----------------------------------

enum {
  BRIM_EXEC_LINES = 40,        // last lines that are kept
  BRIM_EXEC_LINE_BYTES = 512,  // of each
  BRIM_EXEC_STEP_TIMES = 32,   // latest times per step that are kept
};

// The state of the training by its records (record_channel.h), and the last other lines.
typedef struct brim_exec_events {
  bool started;  // it trains, and its logs are open
  bool failed;   // its error event came
  int64_t start_step;
  brim_store_progress progress;  // -1 = unknown
  int64_t checkpoint;            // step of the newest one; -1 = none
  char *findings;                // a list as JSON, for brim_free; NULL = none so far
  bool findings_sent;            // the store has them
  brim_status status;            // of a failure
  brim_failure failure;          // as the error event classifies it; NONE = it does not
  char message[1024];
  int64_t sign_ns;                        // time of the last sign of progress
  int64_t longest_ns;                     // longest time between two signs
  int64_t last_step_ns, last_step;        // time and number of the last reported step; -1 = none
  int64_t step_ns[BRIM_EXEC_STEP_TIMES];  // the latest times per step
  size_t step_time_count;                 // step times so far; the ring keeps the last
  char lines[BRIM_EXEC_LINES][BRIM_EXEC_LINE_BYTES];
  size_t line_count;  // lines so far; the ring keeps the last
} brim_exec_events;

void brim_exec_events_init(brim_exec_events *e, int64_t now_ns);
// Reads a line of the child. Appends its readable form, without a newline, to *shown. False if the
// line does not belong in the log for people: a frequent event that log.jsonl has, or an error that
// the training also prints to stderr.
bool brim_exec_events_line(brim_exec_events *e, const brim_child_line *line, int64_t now_ns,
                           brim_str *shown);
// Time without progress that counts as a hang: the largest of `stall_ns`, 20 median steps, and 3 times
// the longest pause so far.
int64_t brim_exec_events_hang_ns(const brim_exec_events *e, int64_t stall_ns);

//---------------------------------- logs of the child (lab_exec.c) ----------------------------------

// log.jsonl, log.1.jsonl, ... as batches of metrics. The next batch is read when the last one is acknowledged.
typedef struct brim_exec_tail {
  const char *folder;  // borrowed
  int number;          // file where unacknowledged rows begin; 0 = log.jsonl
  uint64_t offset;     // their offset in it
  int64_t seq;         // of the batch; 0 = none yet
  int next_number;     // file and offset where the current batch ends
  uint64_t next_offset;
  brim_store_metric *rows;  // their keys point into `lines`
  size_t count, cap;
  json_t *lines;
} brim_exec_tail;

void brim_exec_tail_init(brim_exec_tail *t, const char *folder);
void brim_exec_tail_deinit(brim_exec_tail *t);
// Reads the next batch, unless there is one; count 0: nothing more is there now.
brim_status brim_exec_tail_fill(brim_exec_tail *t);
void brim_exec_tail_acknowledged(brim_exec_tail *t);

int64_t brim_exec_checkpoint_of(const char *folder);  // of last.safetensors; -1 = none

//---------------------------------- how it ended (lab_exec.c) ----------------------------------

typedef enum brim_exec_why {
  BRIM_EXEC_ITSELF,  // the executor did not end it
  BRIM_EXEC_ASKED,   // the user's pause or cancel, or a signal to the executor
  BRIM_EXEC_ALONE,   // no call was answered for too long
  BRIM_EXEC_HUNG,    // the watchdog
  BRIM_EXEC_STALE,   // another attempt took over
} brim_exec_why;

typedef struct brim_exec_ending {
  brim_exec_why why;
  const brim_child_result *child;
  const brim_exec_events *events;
  bool oom_killed;   // the kernel killed a process for memory just then
  int64_t quiet_ns;  // HUNG: how long it made no progress
} brim_exec_ending;

// Fills in outcome, class, exit code and message.
void brim_exec_classify(const brim_exec_ending *ending, brim_lab_exec_report *out);
// Processes that the kernel has killed for memory, in this control group or else on the machine; -1 = unknown.
int64_t brim_exec_oom_kills(void);
// The oom_kill counter in a file memory.events or /proc/vmstat; -1 = none.
int64_t brim_exec_oom_count(const char *path);

//---------------------------------- the spool (lab_exec.c) ----------------------------------

brim_status brim_exec_spool_add(brim_str *lines, const brim_lab_request *request);
brim_status brim_exec_spool_write(const char *folder, int64_t attempt, const brim_str *lines);
void brim_exec_spool_remove(const char *folder, int64_t attempt);
// Progress of sending a spool.
typedef struct brim_exec_spool_progress {
  size_t at;             // bytes of the lines that are done
  int64_t taken;         // reports that the store took
  bool finished;         // a result was among them
  brim_exp_state state;  // of the experiment after its result
  brim_str refused;      // lines that are no reports, or that the store refuses
} brim_exec_spool_progress;

//---------------------------------- uploads (lab_exec.c) ----------------------------------

typedef struct brim_exec_upload brim_exec_upload;

// Uploads the files of an attempt, in a thread. *out NULL: the link leads to no server, and files
// stay where they are. The folder must outlive the upload.
brim_status brim_exec_upload_open(const struct brim_lab_link *link, const char *folder,
                                  const brim_store_ref *ref, brim_exec_upload **out);
// Opens the newest checkpoint and its files; the next call of _send uploads them. Call _send only
// when the store has the metrics up to the step of the checkpoint: otherwise another machine could
// resume from a step whose metrics are lost.
void brim_exec_upload_open_newest(brim_exec_upload *upload);
void brim_exec_upload_send(brim_exec_upload *upload);
// The step of the checkpoint that the server has; -1 = none.
int64_t brim_exec_upload_step(brim_exec_upload *upload);
// Sends everything that is left, after the training has ended.
void brim_exec_upload_finish(brim_exec_upload *upload);

typedef enum brim_exec_upload_state {
  BRIM_EXEC_UPLOAD_BUSY,
  BRIM_EXEC_UPLOAD_DONE,
  BRIM_EXEC_UPLOAD_LATER,  // nothing has arrived for longer than the caller's patience
  BRIM_EXEC_UPLOAD_STALE,  // another attempt took over
} brim_exec_upload_state;
brim_exec_upload_state brim_exec_upload_poll(brim_exec_upload *upload, int64_t patience_ms);
void brim_exec_upload_close(brim_exec_upload *upload);  // the rest stays; NULL is fine

// Fetches the server's checkpoint of an experiment into its folder, unless the folder has one as
// new. If that fails, the training begins with the files that are there. Calls `keep` all along; if
// it returns false, the fetch ends with BRIM_EINTERRUPTED.
brim_status brim_exec_fetch(struct brim_lab_link *link, const char *folder, const char *exp,
                            bool (*keep)(void *ctx), void *ctx);

// attempt-N.files says that the attempt has files to upload.
brim_status brim_exec_pending_write(const char *folder, const brim_store_ref *ref);
// Finds an attempt of the folder with files to upload; false: there is none.
bool brim_exec_pending_find(const char *folder, brim_store_ref *out);

//---------------------------------- the process of a folder (lab_exec.c) ----------------------------------

// Ends an executor of an earlier attempt, then writes executor.json. BRIM_ESTATE: a later attempt runs.
brim_status brim_exec_owner_take(const char *folder, const brim_store_ref *ref);
brim_status brim_exec_owner_write(const char *folder, const brim_store_ref *ref, pid_t child);
// Removes executor.json if this process wrote it.
void brim_exec_owner_release(const char *folder);

#endif  // BRIM_LAB_EXEC_INT_H_
