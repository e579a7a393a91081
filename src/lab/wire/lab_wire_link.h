// Links to a store: through the socket of the sweep that runs on it, over HTTP to `brim serve`, or by
// opening the store where no sweep runs. Callers need not know which.
//
// BRIM_EIO: the sweep, server or database cannot be reached, or did not answer in time. It is not
// known then whether the request was carried out: call again with the same arguments, which is always
// right. A call on a link that lost its connection first tries to connect again, once: to a sweep that
// was restarted, or, if no sweep runs and the options allow it, by opening the store. Other failures
// are the store's answer (lab_store.h). A link serves one thread at a time.
#ifndef BRIM_LAB_WIRE_LINK_H_
#define BRIM_LAB_WIRE_LINK_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"
#include "lab/wire/lab_wire.h"

// Environment variables that say how to reach a server.
#define BRIM_LAB_TOKEN_ENV "BRIM_TOKEN"        // the token
#define BRIM_LAB_CA_ENV "BRIM_CA"              // file of certificates
#define BRIM_LAB_PIN_ENV "BRIM_PIN"            // "sha256//...": the server's public key
#define BRIM_LAB_INSECURE_ENV "BRIM_INSECURE"  // "1": http:// to other machines, too
#define BRIM_LAB_TIMEOUT_ENV "BRIM_TIMEOUT"    // seconds for a request

struct brim_http_client;

bool brim_lab_is_server(const char *place);  // "https://server:8000"
brim_status brim_lab_http_open(const char *url, int64_t timeout_ms, struct brim_http_client **out);

typedef struct brim_lab_link brim_lab_link;

// 0 and NULL are the defaults.
typedef struct brim_lab_link_options {
  // Executors: SQLite is reached through the sweep alone, and BRIM_EIO says that none runs.
  // PostgreSQL is opened all the same.
  bool sweep_only;
  bool readonly;                    // when it opens a SQLite store itself
  const brim_store_options *store;  // when it opens the store itself; its own `readonly` is ignored
  int64_t timeout_ms;  // for the connection, and from one line of a reply to the next (10 s)
} brim_lab_link_options;

// place: the folder of a sweep, the URL of a PostgreSQL database, or of a server. BRIM_ENOENT: there
// is no store and readonly is set. BRIM_EEXIST: another process has the store open and no sweep
// answers.
brim_status brim_lab_link_open(const char *place, const brim_lab_link_options *options,
                               brim_lab_link **out);
// Opens a link to operations in this process; a sweep uses it for its own store. *ops must outlive the
// link.
brim_status brim_lab_link_local(const brim_lab_ops *ops, brim_lab_link **out);
void brim_lab_link_close(brim_lab_link *link);  // NULL is fine

bool brim_lab_link_to_sweep(const brim_lab_link *link);  // a sweep answers
// The URL of the server that the link leads to; NULL = it leads to none.
const char *brim_lab_link_server(const brim_lab_link *link);
// True if the status of the last call is the store's answer. False: the store was not reached, or
// something in front of it refused the call (a token, a certificate, a proxy). A later call may succeed.
bool brim_lab_link_answered(const brim_lab_link *link);
// True if a sweep answers in this folder now. *pid (may be NULL): its process by sweep.json, 0 = unknown.
bool brim_lab_sweep_runs(const char *folder, int64_t *pid);

//---------------------------------- any operation ----------------------------------

// The caller sets reply->rows if the operation has rows. reply NULL: the caller needs only the status.
brim_status brim_lab_call(brim_lab_link *link, const brim_lab_request *request,
                          brim_lab_reply *reply);
typedef brim_status (*brim_lab_line_fn)(void *ctx, const json_t *line);
// Calls `fn` with every line of the reply as JSON. Does not work for EXPORT. A status of `fn` other than
// BRIM_OK ends the reply and is returned.
brim_status brim_lab_lines(brim_lab_link *link, const brim_lab_request *request,
                           brim_lab_line_fn fn, void *ctx);

//---------------------------------- calls ----------------------------------
// The calls of lab_store.h through a link; arguments and statuses are those there, except that `exp`
// may be the first digits of an id. Callbacks may call the link of another store only.

brim_status brim_lab_start(brim_lab_link *link, const brim_store_ref *ref, int64_t pid,
                           int64_t from_step);
brim_status brim_lab_beat(brim_lab_link *link, const brim_store_ref *ref,
                          const brim_store_progress *progress, brim_store_beat_reply *reply);
brim_status brim_lab_metrics(brim_lab_link *link, const brim_store_ref *ref, int64_t seq,
                             const brim_store_metric *rows, size_t count);
brim_status brim_lab_log(brim_lab_link *link, const brim_store_ref *ref, const char *stream,
                         int64_t size);
brim_status brim_lab_checkpoint(brim_lab_link *link, const brim_store_ref *ref, int64_t step);
brim_status brim_lab_findings(brim_lab_link *link, const brim_store_ref *ref, const char *text);
brim_status brim_lab_finish(brim_lab_link *link, const brim_store_ref *ref,
                            const brim_store_result *result, brim_exp_state *state);

brim_status brim_lab_worker_seen(brim_lab_link *link, const brim_store_worker *worker);
brim_status brim_lab_claim(brim_lab_link *link, const brim_store_request *request,
                           brim_store_claimed *out);

brim_status brim_lab_submit(brim_lab_link *link, const brim_store_grid *grid,
                            const brim_store_point *points, size_t count,
                            brim_store_submitted *out);
brim_status brim_lab_want(brim_lab_link *link, const char *exp, brim_exp_want want);
brim_status brim_lab_retry(brim_lab_link *link, const char *exp);
// The same for any number of experiments, given by whole ids. Sends them in portions; each portion is
// one transaction.
brim_status brim_lab_want_each(brim_lab_link *link, const char (*exps)[BRIM_EXP_ID],
                               size_t exp_count, brim_exp_want want, int64_t *count);
brim_status brim_lab_retry_each(brim_lab_link *link, const char (*exps)[BRIM_EXP_ID],
                                size_t exp_count, int64_t *count);
brim_status brim_lab_retry_failed(brim_lab_link *link, const char *grid, int64_t *count);
brim_status brim_lab_set_priority(brim_lab_link *link, const char *exp, int64_t priority);

brim_status brim_lab_now(brim_lab_link *link, int64_t *ms);
// The name that a server has for this client ("" = none), and its version. BRIM_EABI: the server speaks
// another protocol.
brim_status brim_lab_whoami(brim_lab_link *link, char id[65], char version[32]);
brim_status brim_lab_find(brim_lab_link *link, const char *prefix, char out[BRIM_EXP_ID]);
brim_status brim_lab_get(brim_lab_link *link, const char *exp, brim_store_exp **out);
brim_status brim_lab_list(brim_lab_link *link, const brim_store_filter *filter,
                          brim_store_exp_fn fn, void *ctx);
brim_status brim_lab_count(brim_lab_link *link, const char *grid, brim_store_counts *out);
brim_status brim_lab_attempts(brim_lab_link *link, const char *exp, brim_store_attempt_fn fn,
                              void *ctx);
// points > 0: at most about this many rows of each key, evenly chosen, the last among them.
brim_status brim_lab_read_metrics(brim_lab_link *link, const char *exp, const char *key,
                                  int64_t points, brim_store_metric_fn fn, void *ctx);
brim_status brim_lab_log_size(brim_lab_link *link, const char *exp, int64_t attempt,
                              const char *stream, int64_t *out);
brim_status brim_lab_events(brim_lab_link *link, int64_t seq, int64_t limit, brim_store_event_fn fn,
                            void *ctx);
brim_status brim_lab_grids(brim_lab_link *link, brim_store_grid_fn fn, void *ctx);
brim_status brim_lab_workers(brim_lab_link *link, brim_store_worker_fn fn, void *ctx);
brim_status brim_lab_export(brim_lab_link *link, const brim_store_filter *filter,
                            brim_store_line_fn fn, void *ctx);
brim_status brim_lab_files(brim_lab_link *link, const char *exp, brim_store_file_fn fn, void *ctx);

#endif  // BRIM_LAB_WIRE_LINK_H_
