// Inside the wire room: the rows of the operations, and the state of a running operation.
#ifndef BRIM_LAB_WIRE_INT_H_
#define BRIM_LAB_WIRE_INT_H_

#include "lab/wire/lab_wire.h"

// Kinds of rows in a reply, and the key of the array that holds them in a line.
#define BRIM_LAB_ROWS_MAP(X) \
  X(NONE, NULL)              \
  X(EXPS, "exps")            \
  X(ATTEMPTS, "attempts")    \
  X(METRICS, "rows")         \
  X(EVENTS, "events")        \
  X(GRIDS, "grids")          \
  X(WORKERS, "workers")      \
  X(LINES, "line")           \
  X(BUCKETS, "buckets")      \
  X(FILES, "files")

typedef enum brim_lab_rows_kind {
#define X(id, key) BRIM_LAB_ROWS_##id,
  BRIM_LAB_ROWS_MAP(X)
#undef X
      BRIM_LAB_ROWS_COUNT
} brim_lab_rows_kind;

// A running operation.
typedef struct brim_lab_job {
  const brim_lab_ops *ops;
  const brim_lab_request *in;
  brim_lab_reply *out;
  brim_store *store;  // ops->store
  // Make a long reply in steps, so that other requests can use the store in between.
  bool in_steps;
  bool pending;  // `next` has to make another step
  char (*ids)[BRIM_EXP_ID];
  size_t count, at, capacity;
  int64_t seq, left;  // events: number of the last event given, and the events still allowed
  // Called before the rows of each of several experiments; may be NULL.
  brim_status (*begin_exp)(void *ctx, const char *exp);
} brim_lab_job;

typedef struct brim_lab_op_row {
  const char *name;
  brim_role right;
  const char *request, *reply;
  brim_lab_rows_kind rows;
  brim_status (*run)(brim_lab_job *job);
  brim_status (*next)(brim_lab_job *job);
} brim_lab_op_row;

extern const brim_lab_op_row brim_lab_op_rows[BRIM_LAB_OP_COUNT];
extern const char *const brim_lab_rows_keys[BRIM_LAB_ROWS_COUNT];

// Carries out the operation, or its first step. The caller frees job->ids.
brim_status brim_lab_job_begin(brim_lab_job *job);

// --- lab_wire_json.c: values of requests and replies as JSON, by the rows of the operations

brim_status brim_lab_reply_encode(brim_lab_op op, const brim_lab_reply *reply, json_t *out);
// Reads the fields of a reply. A missing or wrong field is BRIM_EINVAL. Texts point into `line`.
brim_status brim_lab_reply_decode(brim_lab_op op, const json_t *line, brim_lab_reply *out);
// Carries out a request and calls `take` with each line of the reply as a JSON value.
brim_status brim_lab_ops_lines(const brim_lab_ops *ops, const brim_lab_request *request,
                               brim_status (*take)(void *ctx, const json_t *line), void *ctx);

#endif  // BRIM_LAB_WIRE_INT_H_
