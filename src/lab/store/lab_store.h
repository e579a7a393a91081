// The store of a sweep: experiments, attempts, leases, metrics and events. It is the single source
// of truth; everything else about a sweep can be derived from it.
//
// A place names a store. A folder holds its store in the SQLite file lab.sqlite, which one process at a
// time opens for writing. "postgres://..." names a PostgreSQL database that any number of processes
// share; libpq is loaded when such a place is opened. Both kinds behave alike.
//
// Every change is one transaction that is on the disk when the call returns. Every call may be
// repeated: a caller whose reply was lost calls again with the same arguments.
//
//   QUEUED -claim-> LEASED -start-> RUNNING -finish ok-> DONE
//   LEASED|RUNNING -lease ends-> QUEUED -the same attempt calls before another claim-> RUNNING
//   LEASED|RUNNING -error-> QUEUED while retries are left (later), else FAILED
//   LEASED|RUNNING -the worker lacks what it needs-> QUEUED while other workers are here, else FAILED
//   LEASED|RUNNING -stopped-> QUEUED, PAUSED or CANCELLED, as the user wants
//   QUEUED -pause-> PAUSED -run-> QUEUED;  QUEUED|PAUSED -cancel-> CANCELLED
//   FAILED|CANCELLED|PAUSED -retry-> QUEUED
//
// A claim raises the experiment's fence, and every write of an attempt carries its fence. A write of
// an attempt that another one has replaced changes nothing and returns BRIM_ESTATE.
//
// Statuses:
//   BRIM_ESTATE  the attempt is stale, or the state does not allow the change
//   BRIM_ENOENT  there is no such experiment, attempt or grid
//   BRIM_EINVAL  the arguments are wrong
//   BRIM_EIO     the database cannot be reached or its disk is full: call again later. Nothing has
//                changed; after a lost connection the change may have happened, and calling again
//                is right in both cases
//
// A handle serves one thread at a time. brim_store_group_begin brings changes of several callers to
// the disk together.
#ifndef BRIM_LAB_STORE_H_
#define BRIM_LAB_STORE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base_str.h"
#include "brim/status.h"
#include "record/record.h"

#define BRIM_STORE_VERSION 4  // version of the schema
#define BRIM_STORE_FILE "lab.sqlite"
#define BRIM_EXP_ID 33  // 32 lower-case hex digits and the NUL
// A new random id, for a claim or a store.
void brim_store_random_id(char out[BRIM_EXP_ID]);

// The values are stored, so new ones go to the end.
typedef enum brim_exp_state {
  BRIM_EXP_QUEUED,
  BRIM_EXP_LEASED,
  BRIM_EXP_RUNNING,
  BRIM_EXP_DONE,
  BRIM_EXP_FAILED,
  BRIM_EXP_CANCELLED,
  BRIM_EXP_PAUSED,
  BRIM_EXP_STATE_COUNT
} brim_exp_state;

const char *brim_exp_state_name(brim_exp_state state);  // "queued"; brim_tr translates it
bool brim_exp_state_of(const char *name, brim_exp_state *out);

// The user's wish for an experiment that a worker has.
typedef enum brim_exp_want {
  BRIM_WANT_RUN,
  BRIM_WANT_PAUSE,
  BRIM_WANT_CANCEL,
  BRIM_WANT_COUNT
} brim_exp_want;

#define BRIM_ATTEMPT_MAP(X) \
  X(OPEN, "open")           \
  X(OK, "ok")               \
  X(ERROR, "error")         \
  X(STOPPED, "stopped")     \
  X(EXPIRED, "expired")

typedef enum brim_attempt_outcome {
#define X(name, text) BRIM_ATTEMPT_##name,
  BRIM_ATTEMPT_MAP(X)
#undef X
      BRIM_ATTEMPT_COUNT
} brim_attempt_outcome;

const char *brim_attempt_outcome_name(brim_attempt_outcome outcome);

typedef struct brim_store brim_store;

// Every member may be 0 or NULL, which selects its default: the value in parentheses.
typedef struct brim_store_options {
  bool readonly;     // SQLite: for reading while no other process has the store open
  int64_t lease_ms;  // time from a beat to the end of the lease (60 s)
  int64_t grace_ms;  // no lease ends this soon after opening or reconnecting (lease_ms; < 0: none)
  int64_t backoff_ms;  // wait before the first retry; doubles up to 64 times this value (5 s)
  int infra_tries;     // infrastructure failures without a new checkpoint before FAILED (10)
  const char *schema;  // PostgreSQL's schema with the tables ("brim")
  // For tests: the clock in ms since 1970, and the magic number of statfs.
  int64_t (*clock)(void *ctx);
  int64_t (*fs_type)(void *ctx, const char *folder);
  void *ctx;
} brim_store_options;

// Opens a store, and creates it if there is none. Upgrades a store of an older version after a
// backup (lab.sqlite.vN.backup, or the schema NAME_vN_backup). BRIM_EUNSUPPORTED: a newer version, a
// network file system, or no libpq. BRIM_EEXIST: another process has it open, and the detail names
// it. BRIM_ESTATE: it was moved elsewhere.
brim_status brim_store_open(const char *place, const brim_store_options *options, brim_store **out);
void brim_store_close(brim_store *store);               // NULL is fine
const char *brim_store_kind(const brim_store *store);   // "sqlite" or "postgres"
const char *brim_store_place(const brim_store *store);  // without a password
bool brim_store_is_url(const char *place);              // true for a URL of PostgreSQL
// A place without its password; for brim_free, NULL when out of memory.
char *brim_store_place_shown(const char *place);
// Appends a text without the passwords of the URLs in it.
void brim_store_put_shown(brim_str *out, const char *text);
// Finds the next password in a URL behind `from`, which points into the text; false: there is none.
bool brim_store_find_password(const char *text, const char *from, const char **at, size_t *size);
// Overwrites all passwords with stars, without allocating; false: there are none.
bool brim_store_star_passwords(char *text);
brim_status brim_store_now(brim_store *store, int64_t *ms);  // by the clock of the store
int64_t brim_store_lease_ms(const brim_store *store);
// BRIM_ESTATE: the file was removed, moved or replaced while it is open, so writes to it are lost.
// Never with PostgreSQL.
brim_status brim_store_check_file(const brim_store *store);

// Begins one transaction for all changes until brim_store_group_end, so that they wait for the disk
// once. A call that fails undoes its own changes only. The changes count when brim_store_group_end
// returns BRIM_OK; otherwise all of them are lost. With PostgreSQL begin and end do nothing, since a
// longer transaction would keep its rows locked.
brim_status brim_store_group_begin(brim_store *store);
brim_status brim_store_group_end(brim_store *store);

// Opens a second handle for reading by another thread; the two handles do not wait for each other. The
// reader sees the changes of a call on the first handle once that call has returned. Close the reader
// first.
brim_status brim_store_open_reader(brim_store *store, brim_store **out);

// SQLite collects changes in a log and moves them into its file from time to time, while the next
// change waits. After brim_store_keep_log it moves them only when the log has become very long. The
// owner then calls brim_store_move_log on a reader handle; *pages is the length of the log before the
// call. When the whole log was moved and no reader needs it, the next change overwrites it from its
// beginning. With PostgreSQL both calls do nothing.
brim_status brim_store_keep_log(brim_store *store);
brim_status brim_store_move_log(brim_store *reader, int64_t *pages);

// --- submitting

typedef struct brim_store_grid {
  const char *id;       // 1 to 64 of a-z 0-9 -
  const char *name;     // NULL = ""
  const char *text;     // the grid file
  const char *version;  // of the binary
} brim_store_grid;

typedef struct brim_store_point {
  const char *id;      // 32 hex digits: hash of the config
  int64_t idx;         // place in the grid
  const char *label;   // "lr=0.1 batch_size=64"
  const char *config;  // resolved and canonical; UTF-8
  const char *tags;    // "a,b" or NULL
  // The metric that is shown for the experiment; NULL = none. Alternatives may follow, separated by
  // spaces and ordered by rank: "eval_accuracy eval_accuracy eval_loss". The first alternative that is
  // recorded becomes the metric shown, and one of better rank replaces it later. Readers get the metric
  // shown alone.
  const char *metric_key;
  int64_t priority;  // higher is claimed earlier
  int64_t gpus;
  int64_t need_bytes;  // of device memory
  int64_t tries;       // retries after failures that count
  int64_t steps, epochs;
} brim_store_point;

typedef struct brim_store_submitted {
  int64_t added, existing;
} brim_store_submitted;

// Adds all points or none. A point whose id the store knows stays as it is and joins this grid too;
// only its need_bytes is filled in if it was 0.
brim_status brim_store_submit(brim_store *store, const brim_store_grid *grid,
                              const brim_store_point *points, size_t count,
                              brim_store_submitted *out);

// --- attempts

// Identifies an attempt in each of its writes; the fence proves that no other attempt has replaced it.
typedef struct brim_store_ref {
  char exp[BRIM_EXP_ID];
  int64_t attempt, fence;
} brim_store_ref;

// One experiment. Strings are never NULL. Unknown times are 0, unknown numbers NaN, steps -1.
typedef struct brim_store_exp {
  const char *id, *grid, *label, *config, *tags, *worker, *metric_key;
  const char *failure;  // class by its name; "none"
  const char *reason, *last_lines;
  const char *findings;  // JSON, or ""
  const char *owed;      // files that its worker has still to upload: "weights,best"; "" = none
  brim_exp_state state;
  brim_exp_want want;
  int64_t idx, priority, gpus, need_bytes;
  int64_t fence, attempt, tries, tries_left, infra_left;
  int64_t not_before, lease_until;
  int64_t step, steps, epoch, epochs, ckpt_step;
  double metric;
  int64_t created, started, ended;  // started: when its first attempt began
  // ran_ms: time of all ended attempts; since: when the running attempt began (0 = none runs)
  int64_t ran_ms, since;
} brim_store_exp;
// Time of all attempts; a running attempt counts until `now`.
int64_t brim_store_exp_ran_ms(const brim_store_exp *exp, int64_t now);

// Returns BRIM_EINVAL for anything but 32 hex digits. Call it before an id becomes part of a path.
brim_status brim_store_check_id(const char *id);
bool brim_store_is_sha256(const char *text);  // 64 hex digits; false for NULL

// Copies an experiment and its strings into one block.
brim_status brim_store_exp_copy(const brim_store_exp *exp, brim_store_exp **out);
void brim_store_exp_free(brim_store_exp *exp);  // NULL is fine

typedef struct brim_store_request {
  const char *worker;    // 1 to 64 characters
  const char *claim_id;  // random, new for each claim; a repeated one gets the same attempt
  const char *host;      // NULL = ""
  const char *devices;   // GPUs the attempt will use, for the record; NULL = ""
  const char *exp;       // only this experiment; NULL = the first in order that fits
  const char *grid;      // only experiments of this grid; NULL = any
  int64_t free_gpus;     // only experiments that need no more
  int64_t free_bytes;    // < 0: no limit
} brim_store_request;

typedef struct brim_store_claimed {
  brim_store_exp *exp;  // NULL: nothing to claim; for brim_store_exp_free
  brim_store_ref ref;
  int64_t lease_ms;
} brim_store_claimed;

// Claims the queued experiment of the highest priority, then of the earliest submission and lowest
// index. A worker that drains gets none; a worker that lacks what an experiment needs leaves it to
// other workers.
brim_status brim_store_claim(brim_store *store, const brim_store_request *request,
                             brim_store_claimed *out);

// Reports that the process runs. from_step: the step at which training resumes; < 0: the checkpoint of
// the claim.
brim_status brim_store_start(brim_store *store, const brim_store_ref *ref, int64_t pid,
                             int64_t from_step);

typedef struct brim_store_progress {
  int64_t step, steps, epoch, epochs;  // < 0: unchanged
} brim_store_progress;

typedef struct brim_store_beat_reply {
  int64_t lease_ms;
  brim_exp_want want;
} brim_store_beat_reply;

// Renews the lease. `progress` may be NULL.
brim_status brim_store_beat(brim_store *store, const brim_store_ref *ref,
                            const brim_store_progress *progress, brim_store_beat_reply *reply);

typedef struct brim_store_metric {
  const char *key;
  int64_t step;
  double value;
} brim_store_metric;

// The batches of an attempt count from 1. A batch whose number is not above the last one is a
// repetition and is ignored. A value replaces an earlier value of its key and step.
brim_status brim_store_metrics(brim_store *store, const brim_store_ref *ref, int64_t seq,
                               const brim_store_metric *rows, size_t count);
// Notes the size of a log in bytes; it never shrinks.
brim_status brim_store_log(brim_store *store, const brim_store_ref *ref, const char *stream,
                           int64_t size);
// Notes a checkpoint of this step. A step later than that of the last checkpoint refills infra_left.
brim_status brim_store_checkpoint(brim_store *store, const brim_store_ref *ref, int64_t step);

typedef struct brim_store_result {
  brim_attempt_outcome outcome;  // OK, ERROR or STOPPED (a clean stop, with nothing lost)
  brim_failure failure;          // class of an ERROR
  int64_t exit_code;
  const char *message;     // NULL = ""
  const char *last_lines;  // NULL = ""
  const char *owed;        // files that the worker uploads later: "weights,best"; NULL = ""
} brim_store_result;

// Ends the attempt. Repeating the call with the same result is fine; another result is BRIM_ESTATE.
// *state (may be NULL): the new state of the experiment.
brim_status brim_store_finish(brim_store *store, const brim_store_ref *ref,
                              const brim_store_result *result, brim_exp_state *state);

// Ends leases that ran out. *expired (may be NULL): their number.
brim_status brim_store_reap(brim_store *store, int64_t *expired);

// Stores the findings of the training, as JSON.
brim_status brim_store_findings(brim_store *store, const brim_store_ref *ref, const char *text);

// A file of an experiment. The server has a whole copy of it.
typedef struct brim_store_file {
  const char *name, *sha256;
  int64_t size, attempt, step, t;  // step: of a checkpoint, otherwise -1
} brim_store_file;
// Returns BRIM_ESTATE if another attempt was claimed since: only the last attempt of an experiment may
// send files, also after its end.
brim_status brim_store_check_last(brim_store *store, const brim_store_ref *ref);
// Notes a file in place of an earlier file of the same name, unless the same attempt noted a later
// step. Takes the name off `owed` (brim_store_exp). Does not read attempt and t of *file.
brim_status brim_store_put_file(brim_store *store, const brim_store_ref *ref,
                                const brim_store_file *file);

// Time limits for the files of ended experiments, in ms of the store's clock; 0 = no limit.
typedef struct brim_store_expiry {
  int64_t before;       // all files of an experiment that ended earlier expire
  int64_t done_before;  // the same for "checkpoint", if done and "weights" or "best" is there
} brim_store_expiry;
typedef enum brim_store_expired {
  BRIM_STORE_EXPIRED_NONE,
  BRIM_STORE_EXPIRED_CHECKPOINT,
  BRIM_STORE_EXPIRED_ALL,
} brim_store_expired;
// Forgets the expired files of an experiment. *out: the files whose bytes may be removed, even if none
// was noted. An experiment that waits, runs or is paused keeps its files, and so does an unknown
// experiment.
brim_status brim_store_expire_files(brim_store *store, const char *exp,
                                    const brim_store_expiry *when, brim_store_expired *out);

// --- control

// Sets the author of the events that this handle writes from now on, at most 64 bytes; NULL or "" =
// the machine itself.
void brim_store_set_author(brim_store *store, const char *who);

// The rights of a caller over a network. The store keeps only the hash of the token.
typedef struct brim_store_token {
  const char *id, *role, *sha256;  // sha256: 64 hex digits
  int64_t created;
} brim_store_token;
// BRIM_EEXIST: a valid token has that id.
brim_status brim_store_token_add(brim_store *store, const brim_store_token *token);
// Replaces the hash: the store accepts only the new token from now on. BRIM_ENOENT: no valid token has
// that id.
brim_status brim_store_token_rotate(brim_store *store, const char *id, const char *sha256);
brim_status brim_store_token_end(brim_store *store, const char *id);
typedef brim_status (*brim_store_token_fn)(void *ctx, const brim_store_token *token);
brim_status brim_store_tokens(brim_store *store, brim_store_token_fn fn, void *ctx);  // valid ones
// *out: true if the store ever had a token, of any role.
brim_status brim_store_had_token(brim_store *store, bool *out);

brim_status brim_store_want(brim_store *store, const char *exp, brim_exp_want want);
// Queues a FAILED, CANCELLED or PAUSED experiment again, with all its retries and for every worker.
brim_status brim_store_retry(brim_store *store, const char *exp);
// Change several experiments in one transaction, at most BRIM_STORE_EACH, since their rows stay locked
// until its end. Experiments whose state does not allow the change stay as they are and are not
// counted. *count may be NULL.
enum { BRIM_STORE_EACH = 200 };
brim_status brim_store_want_each(brim_store *store, const char (*exps)[BRIM_EXP_ID],
                                 size_t exp_count, brim_exp_want want, int64_t *count);
brim_status brim_store_retry_each(brim_store *store, const char (*exps)[BRIM_EXP_ID],
                                  size_t exp_count, int64_t *count);
// Retries every FAILED experiment of a grid (NULL: of all grids), and forgets all lacks. *count may be
// NULL.
brim_status brim_store_retry_failed(brim_store *store, const char *grid, int64_t *count);
brim_status brim_store_set_priority(brim_store *store, const char *exp, int64_t priority);

typedef struct brim_store_worker {
  const char *id, *host, *gpus, *version;
  int64_t last_seen;
  bool drain;
  const char *status;  // JSON: its GPUs and their work; NULL = unchanged
  bool left;           // only for worker_seen: the worker stops and counts as gone at once
} brim_store_worker;

// Workers report every 5 s and sweeps every 15 s; a worker counts as gone after three times 15 s.
enum { BRIM_WORKER_GONE_MS = 45000 };

// Notes that a worker is alive, or that it leaves. Does not read last_seen and drain of *worker.
brim_status brim_store_worker_seen(brim_store *store, const brim_store_worker *worker);
brim_status brim_store_drain(brim_store *store, const char *worker, bool drain);

// A lack: the worker cannot run an experiment (BRIM_FAILURE_DATA, BRIM_FAILURE_UNSUPPORTED). After
// lacks for three experiments of a grid, the worker lacks the whole grid. The store forgets a lack when
// the experiment is retried, when the worker's drain ends, and when the worker comes back after it was
// gone.
typedef struct brim_store_lack {
  const char *worker;
  const char *what;  // id of an experiment or of a grid
  bool grid;
} brim_store_lack;
typedef brim_status (*brim_store_lack_fn)(void *ctx, const brim_store_lack *lack);
// Lists the lacks of workers that were seen at or after `since`.
brim_status brim_store_lacks(brim_store *store, int64_t since, brim_store_lack_fn fn, void *ctx);

// --- reading. A callback gets memory that is valid until it returns, and must not call the store.
// Reading stops at the first callback that returns another status than BRIM_OK, and returns that
// status.

// Finds the one id that starts with these digits. BRIM_ENOENT: no id does; BRIM_EINVAL: several do.
brim_status brim_store_find(brim_store *store, const char *prefix, char out[BRIM_EXP_ID]);
brim_status brim_store_get(brim_store *store, const char *exp, brim_store_exp **out);

typedef enum brim_store_order {
  BRIM_STORE_BY_INDEX,          // in the order of submission
  BRIM_STORE_BY_QUEUE,          // in the order of claims
  BRIM_STORE_BY_METRIC_LOWEST,  // by the best value of the metric shown
  BRIM_STORE_BY_METRIC_HIGHEST,
  BRIM_STORE_BY_ENDED,  // the latest first
  BRIM_STORE_ORDER_COUNT
} brim_store_order;

typedef struct brim_store_filter {
  const char *grid;     // NULL = all
  unsigned states;      // bits 1 << state; 0 = all
  const char *tag;      // NULL = all
  const char *failure;  // class by its name; NULL = all
  brim_store_order order;
  int64_t limit;   // 0 = all
  int64_t offset;  // rows to leave out first
  bool texts;      // also read config, last lines and findings, which are "" otherwise
} brim_store_filter;

typedef brim_status (*brim_store_exp_fn)(void *ctx, const brim_store_exp *exp);
// NULL as filter: all experiments.
brim_status brim_store_list(brim_store *store, const brim_store_filter *filter,
                            brim_store_exp_fn fn, void *ctx);

typedef struct brim_store_counts {
  int64_t total;
  int64_t states[BRIM_EXP_STATE_COUNT];
} brim_store_counts;
// NULL as grid: all experiments.
brim_status brim_store_count(brim_store *store, const char *grid, brim_store_counts *out);

typedef struct brim_store_attempt {
  const char *exp, *claim_id, *worker, *host, *devices, *failure, *message;
  int64_t n, fence, pid, from_step, exit_code, claimed, started, ended;
  brim_attempt_outcome outcome;
} brim_store_attempt;
typedef brim_status (*brim_store_attempt_fn)(void *ctx, const brim_store_attempt *attempt);
brim_status brim_store_attempts(brim_store *store, const char *exp, brim_store_attempt_fn fn,
                                void *ctx);

// The worker of an attempt. BRIM_ENOENT: there is no such attempt.
brim_status brim_store_attempt_worker(brim_store *store, const char *exp, int64_t attempt,
                                      char out[65]);

typedef brim_status (*brim_store_metric_fn)(void *ctx, const brim_store_metric *row,
                                            int64_t attempt);
// Lists values by key and step. NULL as key: all keys.
brim_status brim_store_read_metrics(brim_store *store, const char *exp, const char *key,
                                    brim_store_metric_fn fn, void *ctx);
// One part of a curve: the values of neighbouring steps, summarized.
typedef struct brim_store_bucket {
  int64_t first, last;  // steps
  int64_t n, bad;       // n: finite or infinite values; bad: NaN values
  double lo, hi, mean;  // NaN where n is 0
} brim_store_bucket;
typedef struct brim_store_range {
  int64_t first, last;  // steps; last 0 = to the end
  int64_t points;       // most buckets to return
} brim_store_range;
enum { BRIM_STORE_POINTS = 10000 };
typedef brim_status (*brim_store_bucket_fn)(void *ctx, const brim_store_bucket *bucket);
// Reads a metric in at most range->points parts, in order. Reads at most 32 rows for each part,
// unless the coarsest level has more.
brim_status brim_store_read_curve(brim_store *store, const char *exp, const char *key,
                                  const brim_store_range *range, brim_store_bucket_fn fn,
                                  void *ctx);
typedef struct brim_store_best_value {
  int64_t step;  // first step with this value; -1: the metric has no value
  double value;
} brim_store_best_value;
// Finds the least or the greatest value of a metric. Reads at most 64 rows of each level but the coarsest.
brim_status brim_store_best(brim_store *store, const char *exp, const char *key, bool lower,
                            brim_store_best_value *out);
typedef brim_status (*brim_store_file_fn)(void *ctx, const brim_store_file *file);
brim_status brim_store_files(brim_store *store, const char *exp, brim_store_file_fn fn, void *ctx);
// The size of a log of an attempt; 0 if none was noted.
brim_status brim_store_log_size(brim_store *store, const char *exp, int64_t attempt,
                                const char *stream, int64_t *out);

typedef struct brim_store_event {
  int64_t seq, t;
  const char *exp;  // "" = the event is about the store
  const char *kind, *text;
  const char *who;  // set by brim_store_set_author
} brim_store_event;
typedef brim_status (*brim_store_event_fn)(void *ctx, const brim_store_event *event);
// Lists the events after `seq` in their order; limit 0 = all. Never skips one, even if several
// processes write.
brim_status brim_store_events(brim_store *store, int64_t seq, int64_t limit, brim_store_event_fn fn,
                              void *ctx);

typedef brim_status (*brim_store_worker_fn)(void *ctx, const brim_store_worker *worker);
brim_status brim_store_workers(brim_store *store, brim_store_worker_fn fn, void *ctx);

typedef struct brim_store_grid_row {
  brim_store_grid grid;
  int64_t created, points;
} brim_store_grid_row;
typedef brim_status (*brim_store_grid_fn)(void *ctx, const brim_store_grid_row *row);
brim_status brim_store_grids(brim_store *store, brim_store_grid_fn fn, void *ctx);
// Lists the grids of an experiment, without text, version and points.
brim_status brim_store_grids_of(brim_store *store, const char *exp, brim_store_grid_fn fn,
                                void *ctx);

// The size of the store's file, or of its database.
brim_status brim_store_bytes(brim_store *store, int64_t *out);

// --- many experiments at once, for pages

// Lists the ids of a grid in its order, or of all experiments (grid NULL). Free with brim_free.
brim_status brim_store_ids(brim_store *store, const char *grid, char (**out)[BRIM_EXP_ID],
                           size_t *count);

// Lists the ids of experiments that can be claimed now, in the order of claims. Free with brim_free.
brim_status brim_store_queue(brim_store *store, char (**out)[BRIM_EXP_ID], size_t *count);

// A list of experiments, at most BRIM_STORE_SOME in a call.
enum { BRIM_STORE_SOME = 500 };
typedef struct brim_store_some {
  const char (*ids)[BRIM_EXP_ID];
  size_t count;
} brim_store_some;
// *out: how many of these experiments the store has.
brim_status brim_store_known(brim_store *store, const brim_store_some *of, int64_t *out);
// Lists the metric keys of these experiments. count: how many of them have the key.
typedef brim_status (*brim_store_key_fn)(void *ctx, const char *key, int64_t count);
brim_status brim_store_keys(brim_store *store, const brim_store_some *of, brim_store_key_fn fn,
                            void *ctx);

// Selects the value of a metric that stands for an experiment.
typedef enum brim_store_take {
  BRIM_STORE_LAST,  // value at the greatest step
  BRIM_STORE_LEAST,
  BRIM_STORE_GREATEST,
  BRIM_STORE_TAKE_COUNT
} brim_store_take;
typedef struct brim_store_outcome {
  const char *id, *label;
  const char *head;  // first 128 characters of the config
  brim_exp_state state;
  double value;  // NaN: the experiment has no value
} brim_store_outcome;
typedef brim_status (*brim_store_outcome_fn)(void *ctx, const brim_store_outcome *row);
// Lists these experiments in their order of submission. NULL as key: the metric that each is shown
// with.
brim_status brim_store_outcomes(brim_store *store, const brim_store_some *of, const char *key,
                                brim_store_take take, brim_store_outcome_fn fn, void *ctx);

// Writes a line of JSON for each experiment that the filter admits: its fields, attempts and metrics
// (brim.experiment/1 of record_lab.h).
typedef brim_status (*brim_store_line_fn)(void *ctx, const char *line);
brim_status brim_store_export(brim_store *store, const brim_store_filter *filter,
                              brim_store_line_fn fn, void *ctx);
brim_status brim_store_export_one(brim_store *store, const char *exp, brim_store_line_fn fn,
                                  void *ctx);

// Copies everything into an empty store of any kind, then marks `from` as moved. Leases get their full
// time again in the new store. An interrupted move can be repeated. BRIM_EEXIST: `to` has experiments
// of its own. BRIM_ESTATE: an attempt of `from` has a lease that has not ended.
brim_status brim_store_move(brim_store *from, brim_store *to);

#endif  // BRIM_LAB_STORE_H_
