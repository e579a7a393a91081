// Operations on the experiments of a store, and the protocol "brim.lab/1" that carries them.
//
// BRIM_LAB_OP_MAP has one row per operation. Inside one process brim_lab_run calls the operation's
// function with the values of a brim_lab_request; no JSON is made. Through a sweep's socket and over
// HTTP the same row writes the request as JSON and reads it back.
//
// A request is one line: {"id": 7, "op": "beat", ...}. A reply is one line, or several of which all
// but the last have "more": true. Every line repeats the request's id.
//   {"id": 7, "ok": true, ...}
//   {"id": 7, "ok": false, "status": "BRIM_ESTATE", "message": "..."}
// A failure after the first lines of a reply is a last line that has "ok": false. Readers ignore fields
// that they do not know. Times are ms since 1970. A number that JSON cannot write is "nan", "inf" or
// "-inf".
#ifndef BRIM_LAB_WIRE_H_
#define BRIM_LAB_WIRE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base_json.h"
#include "base/base_str.h"
#include "brim/status.h"
#include "lab/store/lab_store.h"

#define BRIM_LAB_PROTOCOL "brim.lab/1"

enum {
  BRIM_LAB_REQUEST_MAX = 64 << 20,  // bytes of a request; a grid of 10,000 points needs about 20 MB
  BRIM_LAB_LINE_MAX = 64 << 20,     // bytes of one line of a reply; longer: BRIM_ELIMIT
};

//---------------------------------- operations ----------------------------------

// The right that a caller needs on a server. Every token has the right to read; admin has all rights.
#define BRIM_ROLE_MAP(X) \
  X(READ, "read")        \
  X(SUBMIT, "submit")    \
  X(WORKER, "worker")    \
  X(ADMIN, "admin")

typedef enum brim_role {
#define X(name, text) BRIM_ROLE_##name,
  BRIM_ROLE_MAP(X)
#undef X
      BRIM_ROLE_COUNT
} brim_role;

// X(id, name, right, fields of the request, fields of the reply, rows of the reply, function, next)
//
// Fields are names in the tables of lab_wire_json.c; fields in [] may be left out. "+filter" stands for
// all fields of that record. "ref" is an attempt: {"exp": id, "attempt": n, "fence": n}. "exp" is an id
// or its first digits. Rows come in lines of their own. Every operation except READ ones changes the
// store. The functions are op_NAME and next_NAME of lab_wire_ops.c; next_NAME continues a long reply.
// The owner of the store answers operations without a function: a server answers whoami; a running
// sweep answers status, stop and restore.
// clang-format off
#define BRIM_LAB_OP_MAP(X)                                                                                 \
  X(HELLO,        "hello",         READ,   "", "protocol version pid kind place now", NONE, hello, none)   \
  X(WHOAMI,       "whoami",        READ,   "", "protocol version name *", NONE, none, none)                \
  X(START,        "start",         WORKER, "ref pid [from_step]", "", NONE, start, none)                   \
  X(BEAT,         "beat",          WORKER, "ref +progress", "lease_ms want", NONE, beat, none)             \
  X(METRICS,      "metrics",       WORKER, "ref seq rows", "", NONE, metrics, none)                        \
  X(LOG,          "log",           WORKER, "ref stream size", "", NONE, log, none)                         \
  X(CHECKPOINT,   "checkpoint",    WORKER, "ref step", "", NONE, checkpoint, none)                         \
  X(FINDINGS,     "findings",      WORKER, "ref findings", "", NONE, findings, none)                       \
  X(FINISH,       "finish",        WORKER, "ref +result", "state", NONE, finish, none)                     \
  X(SEEN,         "seen",          WORKER, "+seen", "", NONE, seen, none)                                  \
  X(CLAIM,        "claim",         WORKER, "+claim", "claimed", NONE, claim, none)                         \
  X(DRAIN,        "drain",         ADMIN,  "worker [drain]", "", NONE, drain, none)                        \
  X(SUBMIT,       "submit",        SUBMIT, "grid{} points{}", "added existing", NONE, submit, none)        \
  X(WANT,         "want",          SUBMIT, "want exp", "exp", NONE, want, none)                            \
  X(RETRY,        "retry",         SUBMIT, "exp", "exp", NONE, retry, none)                                \
  X(WANT_EACH,    "want_each",     SUBMIT, "want exps", "count", NONE, want_each, none)                    \
  X(RETRY_EACH,   "retry_each",    SUBMIT, "exps", "count", NONE, retry_each, none)                        \
  X(RETRY_FAILED, "retry_failed",  SUBMIT, "[grid]", "count", NONE, retry_failed, none)                    \
  X(SET_PRIORITY, "set_priority",  SUBMIT, "priority exp", "exp", NONE, set_priority, none)                \
  X(COUNTS,       "counts",        READ,   "[grid]", "total states", NONE, counts, none)                   \
  X(FIND,         "find",          READ,   "exp", "exp", NONE, find, none)                                 \
  X(GET,          "get",           READ,   "exp [waits]", "exp{}", NONE, get, none)                        \
  X(LIST,         "list",          READ,   "+filter [waits]", "", EXPS, list, list)                        \
  X(EXPORT,       "export",        READ,   "+filter", "", LINES, export, export)                           \
  X(ATTEMPTS,     "attempts",      READ,   "exp", "", ATTEMPTS, attempts, none)                            \
  X(METRICS_OF,   "metrics_of",    READ,   "[key points] exp", "", METRICS, metrics_of, none)              \
  X(LOG_SIZE,     "log_size",      READ,   "attempt stream exp", "size", NONE, log_size, none)             \
  X(EVENTS,       "events",        READ,   "[seq limit]", "", EVENTS, events, events)                      \
  X(GRIDS,        "grids",         READ,   "[texts]", "", GRIDS, grids, none)                              \
  X(WORKERS,      "workers",       READ,   "", "", WORKERS, workers, none)                                 \
  X(CURVE,        "curve",         READ,   "key [first last points] exp", "", BUCKETS, curve, none)        \
  X(CURVES,       "curves",        READ,   "key [first last points] exps...", "", BUCKETS, curves, curves) \
  X(FILES,        "files",         READ,   "exp", "", FILES, files, none)                                  \
  X(STATUS,       "status",        READ,   "", "*", NONE, none, none)                                      \
  X(STOP,         "stop",          ADMIN,  "", "", NONE, none, none)                                       \
  X(RESTORE,      "restore",       ADMIN,  "[device]", "", NONE, none, none)
// clang-format on

typedef enum brim_lab_op {
#define X(id, name, right, request, reply, rows, run, next) BRIM_LAB_OP_##id,
  BRIM_LAB_OP_MAP(X)
#undef X
      BRIM_LAB_OP_COUNT
} brim_lab_op;

// The rights, as constants: BRIM_LAB_RIGHT_WANT is BRIM_ROLE_SUBMIT.
enum {
#define X(id, name, right, request, reply, rows, run, next) BRIM_LAB_RIGHT_##id = BRIM_ROLE_##right,
  BRIM_LAB_OP_MAP(X)
#undef X
};

const char *brim_lab_op_name(brim_lab_op op);
brim_lab_op brim_lab_op_of(const char *name);  // BRIM_LAB_OP_COUNT: there is none; NULL is fine
// True for the reports of an executor about its attempt: operations with a "ref".
bool brim_lab_op_is_report(brim_lab_op op);
// Returns how the query of a URL writes field number `at` (from 0) of the request: 's' text, 'i' whole
// number, 'b' true or false, 'l' words between commas, 0 not at all. *key: the key of the field; NULL:
// there is no such field.
char brim_lab_op_field(brim_lab_op op, size_t at, const char **key);

//---------------------------------- requests and replies ----------------------------------

// The values of a request. An operation reads the members that its row names.
typedef struct brim_lab_request {
  brim_lab_op op;
  brim_store_ref ref;
  const char *exp;         // an id, or its first digits
  const char *grid, *key;  // NULL = all
  const char *stream, *findings, *worker;
  const char *device;  // may be NULL
  int64_t pid, seq, size, step, attempt, priority, limit;
  int64_t from_step;  // < 0: the step of the claim's checkpoint
  brim_exp_want want;
  bool texts, drain;
  bool waits;  // rows for pages: also why an experiment waits, and its findings as a list
  brim_store_range range;
  brim_store_progress progress;
  brim_store_result result;
  brim_store_request claim;
  brim_store_worker seen;
  brim_store_filter filter;
  brim_store_grid submit;
  struct {
    const brim_store_point *rows;
    size_t count;
  } points;
  struct {
    const brim_store_metric *rows;
    size_t count;
  } metrics;
  struct {
    const char (*ids)[BRIM_EXP_ID];
    size_t count;
  } exps;  // whole ids
  struct {
    const char *const *texts;
    size_t count;
  } any_exps;      // ids or their first digits
  void *owned[2];  // memory that decoding the request allocated
} brim_lab_request;

// A worker as pages see it.
typedef struct brim_lab_worker_row {
  brim_store_worker worker;
  const json_t *status;  // the worker's report about its machine, an object; NULL = none
  const json_t *lacks;   // list of the grids that it lacks; NULL = none
} brim_lab_worker_row;

// Callback for the rows of a reply. The caller sets the member that fits the operation.
typedef struct brim_lab_rows {
  union {
    brim_store_exp_fn exp;
    brim_store_attempt_fn attempt;
    brim_store_metric_fn metric;
    brim_store_event_fn event;
    brim_store_grid_fn grid;
    brim_status (*worker)(void *ctx, const brim_lab_worker_row *row);
    brim_store_line_fn line;
    brim_store_bucket_fn bucket;
    brim_store_file_fn file;
  } fn;
  void *ctx;
} brim_lab_rows;

// The values of a reply. An operation sets the members that its row names; the caller sets `rows`.
typedef struct brim_lab_reply {
  brim_lab_rows rows;
  char exp[BRIM_EXP_ID];  // the experiment of the request; "" = several or none
  brim_store_exp *found;  // for brim_store_exp_free
  brim_store_claimed claimed;
  brim_store_beat_reply beat;
  brim_store_counts counts;
  brim_store_submitted submitted;
  brim_exp_state state;
  int64_t count, size, now, pid;
  // Texts that belong to the store or to `more`.
  const char *protocol, *version, *kind, *place, *name;
  json_t *more;  // an object of further fields, where the row has "*"; for json_decref
} brim_lab_reply;

// The store that operations work on, and callbacks of the store's owner.
typedef struct brim_lab_ops {
  brim_store *store;    // NULL: every operation that needs a store fails with BRIM_ESTATE
  const char *version;  // of the binary, for hello and sweep.json; NULL = ""
  // Called after a request changed the store. exp: the id of the experiment; "" if the request was
  // about a grid or about everything. want_each and retry_each call it with want and retry for each
  // experiment. May be NULL.
  void (*changed)(void *ctx, brim_lab_op op, const char *exp);
  // Called first, for every operation. *taken true: the owner has filled `reply`, or refuses with the
  // returned status. May be NULL.
  brim_status (*answer)(void *ctx, const brim_lab_request *request, brim_lab_reply *reply,
                        bool *taken);
  void *ctx;
} brim_lab_ops;

// Carries out a request in this process. Callbacks for rows must not call the store.
brim_status brim_lab_run(const brim_lab_ops *ops, const brim_lab_request *request,
                         brim_lab_reply *reply);

// Makes a JSON object of the request, without an id. BRIM_EINVAL: a value has no JSON form.
brim_status brim_lab_request_encode(const brim_lab_request *request, json_t **out);
// Reads a request. Its texts point into `value`, which must stay until brim_lab_request_deinit.
brim_status brim_lab_request_decode(const json_t *value, brim_lab_request *out);
void brim_lab_request_deinit(brim_lab_request *request);

//---------------------------------- answers of servers ----------------------------------

// A reply in progress, as lines of JSON. A long reply is made in pieces, so that a slow reader costs
// little memory and other requests are served in between. A row shows its experiment at the time its
// piece is made.
typedef struct brim_lab_answer brim_lab_answer;

// Carries out a request, whose text has no newline. Errors of the request become a reply with "ok":
// false, and the call returns BRIM_OK. BRIM_ENOMEM: no reply can be made. *ops must outlive the answer.
brim_status brim_lab_ops_begin(const brim_lab_ops *ops, const char *request, size_t size,
                               brim_lab_answer **out);
// Carries out a request that is a JSON value. Always consumes `request`.
brim_status brim_lab_ops_begin_json(const brim_lab_ops *ops, json_t *request,
                                    brim_lab_answer **out);
// The status of the reply, as far as it is known.
brim_status brim_lab_answer_result(const brim_lab_answer *answer);
// Appends whole lines, each with its newline, until there are `enough` bytes or the reply is
// complete (*done). BRIM_ENOMEM: the rest of the reply is lost.
brim_status brim_lab_answer_more(brim_lab_answer *answer, size_t enough, brim_str *out, bool *done);
void brim_lab_answer_free(brim_lab_answer *answer);  // NULL is fine
// Makes a line for a failure outside a request: {"id": null, "ok": false, ...} with the current detail.
brim_status brim_lab_ops_error(brim_status failure, brim_str *out);

//---------------------------------- values as JSON ----------------------------------

// True if two versions of brim work together: the first two numbers are equal ("1.4.0", "1.4.2").
bool brim_lab_wire_fits(const char *version, const char *other);

// Makes a JSON string; each byte that is not part of a UTF-8 character becomes '?'. NULL = "".
json_t *brim_lab_wire_text(const char *text);
// Finite numbers keep every bit; other numbers become "nan", "inf", "-inf".
json_t *brim_lab_wire_real(double value);
bool brim_lab_wire_real_of(const json_t *value, double *out);

// Read a field. A missing field is BRIM_EINVAL if needed; otherwise *out stays as it is. A field of
// another type is BRIM_EINVAL.
brim_status brim_lab_wire_int(const json_t *o, const char *key, bool needed, int64_t *out);
brim_status brim_lab_wire_string(const json_t *o, const char *key, bool needed, const char **out);
brim_status brim_lab_wire_bool(const json_t *o, const char *key, bool *out);

json_t *brim_lab_wire_ref(const brim_store_ref *ref);
brim_status brim_lab_wire_ref_of(const json_t *request, brim_store_ref *out);  // its field "ref"

// Records with a table of fields. Strings of a record that was read point into the JSON value, or to
// "".
typedef enum brim_lab_record {
  BRIM_LAB_EXP,       // brim_store_exp
  BRIM_LAB_ATTEMPT,   // brim_store_attempt
  BRIM_LAB_EVENT,     // brim_store_event
  BRIM_LAB_GRID,      // brim_store_grid
  BRIM_LAB_GRID_ROW,  // brim_store_grid_row
  BRIM_LAB_WORKER,    // brim_store_worker in a list of workers
  BRIM_LAB_SEEN,      // brim_store_worker in a worker's own report
  BRIM_LAB_POINT,     // brim_store_point
  BRIM_LAB_RESULT,    // brim_store_result
  BRIM_LAB_PROGRESS,  // brim_store_progress
  BRIM_LAB_CLAIM,     // brim_store_request
  BRIM_LAB_FILTER,    // brim_store_filter
  BRIM_LAB_FILE,      // brim_store_file
  BRIM_LAB_RECORD_COUNT
} brim_lab_record;

// Adds the record's fields to an object. Leaves out fields that are 0, "" or NaN; a reader gets the
// same value for a missing field.
brim_status brim_lab_wire_put(json_t *o, brim_lab_record kind, const void *record);
// Reads the fields of a record that the caller has cleared. A field of another type is BRIM_EINVAL.
brim_status brim_lab_wire_get(const json_t *o, brim_lab_record kind, void *record);

#endif  // BRIM_LAB_WIRE_H_
