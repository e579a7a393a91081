// Requests about a store as JSON text, and the replies: the protocol "brim.lab/1". The sweep's server
// and a link that has the store itself open both answer through here. It knows no socket.
//
// A request is one line: {"id": 7, "op": "beat", ...}. A reply is one line, or several of which all
// but the last have "more": true. Every line repeats the request's id.
//   {"id": 7, "ok": true, ...}
//   {"id": 7, "ok": false, "status": "BRIM_ESTATE", "message": "..."}
// A reply that fails after its first lines ends with a line that has "ok": false.
//
// Fields with [] may be left out. ref: {"exp": 32 digits, "attempt": n, "fence": n}. exp: an id, or
// digits it starts with. Times are ms since 1970. An unknown number is null; metrics that are not
// finite are "nan", "inf" and "-inf". Fields that this version does not know are ignored.
//
//   hello                                     -> protocol, version, pid, kind, place, now
//   start       ref pid [from_step]           -> nothing
//   beat        ref [step steps epoch epochs] -> lease_ms, want
//   metrics     ref seq rows: [[key, step, value], ...] -> nothing
//   log         ref stream size               -> nothing
//   checkpoint  ref step                      -> nothing
//   finish      ref outcome [failure exit_code message last_lines owed] -> state
//   counts      [grid]                        -> total, states: {queued: n, ...}
//   find        exp                           -> exp
//   get         exp                           -> exp: {...}
//   get and list take "waits": true: exp.waits, exp.findings as a list (lab_ops.c)
//   list        [grid states: [...] tag failure order limit offset texts] -> lines: exps: [{...}, ...]
//   attempts    exp                           -> lines: attempts: [...]
//   metrics_of  exp [key points]              -> lines: key, rows: [[step, value, attempt], ...]
//   log_size    exp attempt stream            -> size
//   events      [seq limit]                   -> lines: events: [...]
//   grids       [texts]                       -> lines: grids: [...]
//   workers                                   -> lines: workers: [...]
//   export      as list                       -> lines: line: {...}
//   curve       exp key [first last points]   -> lines: buckets: [[first, last, n, bad, lo, hi, mean], ...]
//   curves      exps: [...] key [first last points] -> a line each: exp, buckets
//   files       exp                           -> lines: files: [...]
//   seen        worker [host gpus version left status: {...} or its text] -> nothing
//   claim       worker claim_id [host devices exp grid free_gpus free_bytes]
//                                             -> [exp: {...}, attempt, fence, lease_ms]
//   findings    ref findings                  -> nothing
//   drain       worker [drain]                -> nothing
//   want        exp want: run, pause, cancel  -> exp
//   retry       exp                           -> exp
//   want_each   exps: [...] want              -> count, of those whose state allowed it
//   retry_each  exps: [...]                   -> count
//   retry_failed [grid]                       -> count
//   set_priority exp priority                 -> exp
//   submit      grid: {id name text version} points: [...] -> added, existing
// The sweep itself answers what `answer` takes; "status" and "stop" are meant for that. A request
// that neither knows is BRIM_EUNSUPPORTED.
#ifndef BRIM_LAB_OPS_H_
#define BRIM_LAB_OPS_H_

#include <stdbool.h>
#include <stddef.h>

#include "base/base_json.h"
#include "base/base_str.h"
#include "brim/status.h"
#include "lab/store/lab_store.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_LAB_PROTOCOL "brim.lab/1"

enum {
  BRIM_LAB_REQUEST_MAX = 64 << 20,  // bytes of a request; a grid of 10,000 points needs about 20 MB
  BRIM_LAB_LINE_MAX = 64 << 20,     // bytes of one line of a reply; longer: BRIM_ELIMIT
};

typedef struct brim_lab_ops {
  brim_store *store;    // NULL: every request about the store is BRIM_ESTATE
  const char *version;  // of the binary, for hello and sweep.json; NULL = ""
  // A request changed the store. exp: its id, "" when it was about a grid or all. want_each and
  // retry_each come as "want" and "retry" of each experiment. May be NULL.
  void (*changed)(void *ctx, const char *op, const char *exp);
  // Is asked first, about every op. *taken: the reply is in `reply`, or the status says why not.
  // May be NULL.
  brim_status (*answer)(void *ctx, const char *op, const json_t *request, json_t *reply,
                        bool *taken);
  void *ctx;
} brim_lab_ops;

// A reply under way. Long ones are made in pieces, so that a slow reader costs little memory and
// other requests are served meanwhile; an experiment's row is then as it is when its piece is made.
typedef struct brim_lab_answer brim_lab_answer;

// Carries out the request, of which there is no newline. Never fails because of its content: the
// reply says so then. BRIM_ENOMEM: no reply can be made. *ops must outlive the answer.
brim_status brim_lab_ops_begin(const brim_lab_ops *ops, const char *request, size_t size,
                               brim_lab_answer **out);
// The same, of a value that is always consumed.
brim_status brim_lab_ops_begin_json(const brim_lab_ops *ops, json_t *request,
                                    brim_lab_answer **out);
// Why the reply fails, as far as it has been made.
brim_status brim_lab_answer_result(const brim_lab_answer *answer);
// Appends whole lines, each with its newline, until there are `enough` bytes or the reply is
// complete (*done). BRIM_ENOMEM: the rest of the reply is lost.
brim_status brim_lab_answer_more(brim_lab_answer *answer, size_t enough, brim_str *out, bool *done);
void brim_lab_answer_free(brim_lab_answer *answer);  // NULL is fine
// A line for a failure outside a request: {"id": null, "ok": false, ...} with the detail that is set.
brim_status brim_lab_ops_error(brim_status failure, brim_str *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_OPS_H_
