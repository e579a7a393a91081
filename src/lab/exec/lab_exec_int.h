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
  BRIM_EXEC_RATES = 32,
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
  int64_t sign_ns;                   // time of the last sign of progress
  int64_t longest_ns;                // longest time between two signs
  int64_t rate_ns, rate_step;        // the last known step and its time; -1 = none
  int64_t step_ns[BRIM_EXEC_RATES];  // the latest times per step
  size_t step_count;                 // of all times
  char lines[BRIM_EXEC_LINES][BRIM_EXEC_LINE_BYTES];
  size_t line_count;  // of all lines
} brim_exec_events;

void brim_exec_events_init(brim_exec_events *e, int64_t now_ns);
// Takes a line of the child, and appends to *shown how people read it, without its end. False:
// people do not read it, since it is an event that comes often and stands in log.jsonl too, or an
// error that stderr has in words.
bool brim_exec_events_line(brim_exec_events *e, const brim_child_line *line, int64_t now_ns,
                           brim_str *shown);
// Time without progress that counts as a hang: the most of `stall_ns`, 20 median steps, and 3 times the longest pause so far.
int64_t brim_exec_events_patience(const brim_exec_events *e, int64_t stall_ns);

//---------------------------------- logs of the child (lab_exec.c) ----------------------------------

// log.jsonl, log.1.jsonl, ... as batches of metrics. The next batch is read when the last one is acknowledged.
typedef struct brim_exec_tail {
  const char *folder;  // borrowed
  int number;          // file behind the last acknowledged batch; 0 = log.jsonl
  uint64_t offset;     // and the offset in it
  int64_t seq;         // of the batch; 0 = none yet
  int next_number;     // the same two behind the present batch
  uint64_t next_offset;
  brim_store_metric *rows;  // keys are of `lines`
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
// The number behind "oom_kill" in such a file; -1 = none.
int64_t brim_exec_oom_count(const char *path);

//---------------------------------- the spool (lab_exec.c) ----------------------------------

brim_status brim_exec_spool_add(brim_str *lines, const brim_lab_request *request);
brim_status brim_exec_spool_write(const char *folder, int64_t attempt, const brim_str *lines);
void brim_exec_spool_remove(const char *folder, int64_t attempt);
// Progress of sending a spool.
typedef struct brim_exec_sent {
  size_t at;             // bytes of the lines that are done
  int64_t taken;         // reports that the store took
  bool finished;         // a result was among them
  brim_exp_state state;  // of the experiment after its result
  brim_str refused;      // lines that are no reports, or that the store refuses
} brim_exec_sent;

//---------------------------------- uploads (lab_exec.c) ----------------------------------

typedef struct brim_exec_upload brim_exec_upload;

// Uploads the files of an attempt, in a thread. *out NULL: the link leads to no server, and files
// stay where they are. The folder must outlive the upload.
brim_status brim_exec_upload_open(const struct brim_lab_link *link, const char *folder,
                                  const brim_store_ref *ref, brim_exec_upload **out);
// Opens the newest checkpoint and its files; the next call of _offer sends them. In between the
// store acknowledges the metrics up to its step, so that no other machine resumes behind metrics
// that are lost.
void brim_exec_upload_look(brim_exec_upload *upload);
void brim_exec_upload_offer(brim_exec_upload *upload);
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
brim_exec_upload_state brim_exec_upload_ask(brim_exec_upload *upload, int64_t patience_ms);
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
void brim_exec_owner_leave(const char *folder);  // if it is this process's

#endif  // BRIM_LAB_EXEC_INT_H_
