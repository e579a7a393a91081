// Inside the executor: what its child says and logs, how it ended, what is not sent yet, and which
// process runs in a folder.
#ifndef BRIM_LAB_EXEC_INT_H_
#define BRIM_LAB_EXEC_INT_H_

#include "base/base.h"
#include "base/base_child.h"
#include "lab/lab_exec.h"
#include "lab/wire/lab_wire.h"

//---------------------------------- what it says (lab_exec.c) ----------------------------------

enum {
  BRIM_EXEC_LINES = 40,        // last lines that are kept
  BRIM_EXEC_LINE_BYTES = 512,  // of each
  BRIM_EXEC_RATES = 32,
};

// The events of `brim train --json`, and the last lines that are none.
typedef struct brim_exec_events {
  bool started;  // it trains, and its logs are open
  bool done;     // it said that all steps are made
  bool failed;   // it said why it failed
  int64_t start_step;
  brim_store_progress progress;  // -1 = unknown
  brim_status status;            // of a failure
  brim_failure failure;          // by its own word; NONE = none
  char message[1024];
  int64_t sign_ns;                   // when it last showed progress
  int64_t longest_ns;                // between two such signs
  int64_t rate_ns;                   // when the step was last read
  int64_t rate_step;                 // then; -1 = never
  int64_t step_ns[BRIM_EXEC_RATES];  // per step, the latest ones
  size_t step_count;                 // ever
  char lines[BRIM_EXEC_LINES][BRIM_EXEC_LINE_BYTES];
  size_t line_count;  // ever
} brim_exec_events;

void brim_exec_events_init(brim_exec_events *e, int64_t now_ns);
// Appends to *shown what a person reads of the line, without its end. False: nothing, as it is an event
// that comes often and stands in log.jsonl too, or an error that stderr has in words.
bool brim_exec_events_line(brim_exec_events *e, const brim_child_line *line, int64_t now_ns,
                           brim_str *shown);
// How long it may show no progress: `stall_ns`, 20 median steps, or 3 times the longest pause so far.
int64_t brim_exec_events_patience(const brim_exec_events *e, int64_t stall_ns);

//---------------------------------- what it logs (lab_exec.c) ----------------------------------

// log.jsonl, log.1.jsonl, ... as batches of metrics. A batch stays until it is acknowledged, and what
// follows is read only then.
typedef struct brim_exec_tail {
  const char *folder;  // borrowed
  int number;          // of the file; 0 = log.jsonl
  uint64_t offset;     // of the first byte behind the last acknowledged line
  int64_t seq;         // of the batch; 0 = there was none yet
  int next_number;     // behind the batch
  uint64_t next_offset;
  brim_store_metric *rows;  // keys are of `lines`
  size_t count, cap;
  json_t *lines;
} brim_exec_tail;

void brim_exec_tail_init(brim_exec_tail *t, const char *folder);
void brim_exec_tail_deinit(brim_exec_tail *t);
// The next batch, where there is none; count 0: nothing more is there now.
brim_status brim_exec_tail_fill(brim_exec_tail *t);
void brim_exec_tail_acknowledged(brim_exec_tail *t);

// The newest checkpoint of a folder.
typedef struct brim_exec_checkpoint {
  uint64_t id[4];  // of the file that was read last
  int64_t step;    // in it; -1 = none
  int64_t sent;    // the last one the store has; -1 = none
} brim_exec_checkpoint;
void brim_exec_checkpoint_look(brim_exec_checkpoint *c, const char *folder);
int64_t brim_exec_checkpoint_step(int fd);  // in this file; -1 = none

//---------------------------------- what slows it (lab_exec.c) ----------------------------------

typedef struct brim_exec_findings {
  char *text;  // a list as JSON; NULL = none so far
  bool sent;
  int64_t looked_ns;
} brim_exec_findings;

//---------------------------------- how it ended (lab_exec.c) ----------------------------------

typedef enum brim_exec_why {
  BRIM_EXEC_ITSELF,  // the executor did not end it
  BRIM_EXEC_ASKED,   // the user's pause or cancel, or the executor's own signal
  BRIM_EXEC_ALONE,   // no answer for too long
  BRIM_EXEC_HUNG,    // the watchdog
  BRIM_EXEC_STALE,   // another attempt took over
} brim_exec_why;

typedef struct brim_exec_ending {
  brim_exec_why why;
  const brim_child_result *child;
  const brim_exec_events *events;
  bool oom_killed;   // the kernel killed a process for memory just then
  int64_t quiet_ns;  // HUNG: without progress so long
} brim_exec_ending;

// Outcome, class, exit code and message; `state` and `end` stay.
void brim_exec_classify(const brim_exec_ending *ending, brim_lab_exec_report *out);
// Processes that the kernel killed for memory so far, in this control group or else on the machine;
// -1 = unknown.
int64_t brim_exec_oom_kills(void);
// The number behind "oom_kill" in such a file; -1 = none.
int64_t brim_exec_oom_count(const char *path);

//---------------------------------- the spool (lab_exec_files.c) ----------------------------------

brim_status brim_exec_spool_add(brim_str *lines, const brim_lab_request *request);
brim_status brim_exec_spool_write(const char *folder, int64_t attempt, const brim_str *lines);
void brim_exec_spool_remove(const char *folder, int64_t attempt);
// How far sending came.
typedef struct brim_exec_sent {
  size_t at;             // bytes of the lines that are done with
  int64_t taken;         // reports that the store took
  bool finished;         // a result among them
  brim_exp_state state;  // what the result made of the experiment
  brim_str refused;      // lines that are no reports, or that the store does not take
} brim_exec_sent;
// Sends lines from sent->at on. BRIM_EIO: call again. BRIM_ESTATE: the attempt is stale.
brim_status brim_exec_spool_send(struct brim_lab_link *link, const brim_str *lines,
                                 brim_exec_sent *sent);
// Writes refused lines to attempt-N.spool.bad; without lines it does nothing.
brim_status brim_exec_spool_keep(const char *folder, int64_t attempt, const brim_str *refused);
void brim_exec_sent_init(brim_exec_sent *sent);
void brim_exec_sent_deinit(brim_exec_sent *sent);
// Whether a call that failed may succeed later.
bool brim_exec_is_passing(const struct brim_lab_link *link, brim_status status);

//---------------------------------- files on a server (lab_exec_files.c, lab_exec_files.c) ----------------------------------

typedef struct brim_exec_files brim_exec_files;

// *out NULL: the link leads to no server, and files stay where they are. The folder must outlive it.
brim_status brim_exec_files_open(const struct brim_lab_link *link, const char *folder,
                                 const brim_store_ref *ref, brim_exec_files **out);
// Opens the newest checkpoint and what belongs to it; the next call of _offer has it sent. In between the
// metrics of its steps are acknowledged, so that no other machine resumes behind metrics that are lost.
void brim_exec_files_look(brim_exec_files *files);
void brim_exec_files_offer(brim_exec_files *files);
int64_t brim_exec_files_step(
    brim_exec_files *files);  // of the checkpoint the server has; -1 = none
// The training has ended: everything that is left.
void brim_exec_files_finish(brim_exec_files *files);

typedef enum brim_exec_files_state {
  BRIM_EXEC_FILES_BUSY,
  BRIM_EXEC_FILES_DONE,
  BRIM_EXEC_FILES_LATER,  // nothing arrives for longer than the caller's patience
  BRIM_EXEC_FILES_STALE,  // another attempt took over
} brim_exec_files_state;
brim_exec_files_state brim_exec_files_ask(brim_exec_files *files, int64_t patience_ms);
void brim_exec_files_close(brim_exec_files *files);  // what is not sent stays; NULL is fine

// The checkpoint that the server has of an experiment, into its folder, unless that has one as new. What
// cannot be got is left: the training begins with what is there. `keep` is called all along; false ends it
// (BRIM_EINTERRUPTED).
brim_status brim_exec_fetch(struct brim_lab_link *link, const char *folder, const char *exp,
                            bool (*keep)(void *ctx), void *ctx);

// attempt-N.files: files of the attempt that are to be sent.
brim_status brim_exec_owed_write(const char *folder, const brim_store_ref *ref);
void brim_exec_owed_remove(const char *folder, int64_t attempt);
// One of the folder; false: there is none.
bool brim_exec_owed_find(const char *folder, brim_store_ref *out);

//---------------------------------- the process of a folder (lab_exec_files.c) ----------------------------------

// Ends an executor of an earlier attempt, then writes executor.json. BRIM_ESTATE: a later attempt runs.
brim_status brim_exec_owner_take(const char *folder, const brim_store_ref *ref);
brim_status brim_exec_owner_write(const char *folder, const brim_store_ref *ref, pid_t child);
void brim_exec_owner_leave(const char *folder);  // where it is this process's

#endif  // BRIM_LAB_EXEC_INT_H_
