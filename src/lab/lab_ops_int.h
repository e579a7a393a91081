// Inside the dispatcher: one request being answered, and the table of what can be asked.
#ifndef BRIM_LAB_OPS_INT_H_
#define BRIM_LAB_OPS_INT_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lab/lab_ops.h"
#include "lab/lab_wire.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  BRIM_LAB_PIECE = 64 << 10,  // bytes of a line of a long reply, about
  BRIM_LAB_READY_MAX = 64 << 20,
  BRIM_LAB_CURVES = 500,  // experiments of one request for curves
};

struct brim_lab_op;

struct brim_lab_answer {
  const brim_lab_ops *ops;
  brim_store *store;
  const struct brim_lab_op *op;
  json_t *request;
  json_t *reply;          // the last line
  char exp[BRIM_EXP_ID];  // the experiment it is about; "" = several or none
  // Lines that are made and not yet handed out.
  brim_str ready;
  size_t ready_at;
  // The line being made: rows of the array `rows_key`.
  json_t *line, *rows;
  const char *rows_key;
  size_t rows_size;
  bool whole_line;  // rows do not end it
  // What is still to be made.
  char (*ids)[BRIM_EXP_ID];
  size_t ids_count, ids_at, ids_capacity;
  int64_t seq, left;             // events: the last one seen; how many more
  struct brim_lab_waits *waits;  // why experiments wait; NULL = is not asked for
  bool finished;                 // nothing is left to be made but the last line
  bool ended;                    // that is made too
  brim_status result;            // what it says
};

// A line with its id and "ok". And a whole line for the reply.
brim_status brim_lab_answer_line(const brim_lab_answer *a, bool ok, json_t **out);
brim_status brim_lab_answer_put(brim_lab_answer *a, const json_t *line);
// A line beside the last of a reply. Adds one row to its array, and ends the line when it is long;
// always consumes `row`.
brim_status brim_lab_answer_row(brim_lab_answer *a, const char *key, json_t *row, size_t size);
// Begins such a line before its first row; one that never gets a row is sent too.
brim_status brim_lab_answer_begin_rows(brim_lab_answer *a, const char *key);
// Ends the line that has rows, if there is one.
brim_status brim_lab_answer_flush(brim_lab_answer *a);
// A whole line: {"id":7,"ok":true,"more":true,"KEY":TEXT}.
brim_status brim_lab_answer_text(brim_lab_answer *a, const char *key, const char *text);

// --- lab_ops.c: why experiments wait, at one moment

typedef struct brim_lab_waits brim_lab_waits;

// The experiment of the request's field "exp", by its id or its first digits, into a->exp.
brim_status brim_lab_answer_find(brim_lab_answer *a);

typedef struct brim_lab_op {
  const char *name;
  bool writes;
  // Carries it out: fills a->reply, or makes the first lines.
  brim_status (*run)(brim_lab_answer *a);
  // Makes more lines; sets a->finished after the last ones. NULL: run made them all.
  brim_status (*more)(brim_lab_answer *a);
  const char *each;  // it was about each of a->ids, as this op is about one; NULL = about a->exp
} brim_lab_op;

extern const brim_lab_op brim_lab_ops_reading[];  // up to a row without a name
extern const brim_lab_op brim_lab_ops_writing[];
extern const brim_lab_op brim_lab_ops_pool[];

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_OPS_INT_H_
