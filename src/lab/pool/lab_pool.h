// The server of a pool: a store behind HTTP. Workers and pages reach the store only through it.
//
// Requests are the operations of lab_wire.h under paths (lab_pool.c has the table). A reply is one line
// of JSON, or several lines of which all but the last have "more": true. A failure has "ok": false and
// an HTTP status: 400 wrong arguments, 401 a missing or unknown token, 403 the role does not allow the
// request, 404 not found, 409 the state does not allow it or the attempt is stale, 413 too long, 503
// the store cannot be reached.
//
// GET /v1/events is a stream (text/event-stream). It has every event of the store with its number as
// id, from Last-Event-ID or ?after=N on. Between them come "progress", "metrics", "worker" and "server"
// news without an id.
//
// A token has a role. read: may read everything, as every token may. submit: may also submit and change
// experiments. worker: may also claim experiments and write results of its own attempts. admin: may do
// everything. A page gets a cookie for its token from POST /v1/session. While the store has never had a
// token, callers need none; they must then come through a loopback address, unless the owner allows
// any.
#ifndef BRIM_LAB_POOL_H_
#define BRIM_LAB_POOL_H_

#include <stdbool.h>
#include <stdint.h>

#include "brim/status.h"
#include "lab/grid/lab_grid.h"
#include "lab/http/lab_http.h"
#include "lab/store/lab_store.h"
#include "lab/wire/lab_wire.h"
#include "record/record_sweep.h"

const char *brim_role_name(brim_role role);
bool brim_role_of(const char *name, brim_role *out);

// A token is "brim_" and 43 letters and digits: 256 random bits.
enum { BRIM_TOKEN = 49 };
brim_status brim_token_make(char out[BRIM_TOKEN]);
void brim_token_hash(const char *token, char out[65]);

// Callbacks of the owner, which knows the workloads and this machine, for grids that are sent as text.
// One thread at a time calls them, never with the store's lock.
typedef struct brim_lab_grid_maker {
  const brim_config_facts *facts;                                                     // may be NULL
  brim_status (*describe)(void *ctx, const brim_config *point, brim_lab_point *out);  // lab_grid.h
  // Sets need_bytes of the points; may be NULL.
  brim_status (*needs)(void *ctx, const brim_lab_grid *grid, brim_store_point *points);
  // Gives the format of a metric and its better direction; false: the metric is unknown. Any thread may
  // call it; may be NULL.
  bool (*metric)(void *ctx, const char *key, brim_sweep_metric *out);
  const volatile sig_atomic_t *stop;  // may be NULL
  void *ctx;
} brim_lab_grid_maker;

enum { BRIM_POOL_GRID_POINTS = 20000 };  // most points of a grid that is sent as text

bool brim_token_is_name(const char *text);  // true if a new token may have this name

// 0 and NULL select the defaults, which stand in parentheses, except for members marked "required".
typedef struct brim_lab_pool_options {
  brim_store *store;  // required; only the pool may use it from now on; the pool does not close it
  const char *version;  // required: version of the binary
  const char *address;  // address to listen at ("127.0.0.1")
  int port;             // 0 = any free port
  const char *certificate, *key;
  bool open;                  // serve without tokens at any address, until the store has one
  const char *local_token;    // token of a worker that the owner starts itself; NULL = none
  const char *control_token;  // token of the owner's commands, with every right; NULL = none
  int connections;  // most connections (1000); at most three quarters of them from one address
  // Folder for files of experiments; each experiment has a folder in it. NULL = the server takes no files.
  const char *files;
  int64_t keep_days;  // days from the end of an experiment until its files are removed; 0 = never
  bool drop_checkpoints;  // remove the checkpoint of a done experiment that has its weights
  const brim_lab_grid_maker *maker;  // outlives the pool; NULL: POST /v1/grids is refused
  int64_t idle_ms, request_ms;       // as in brim_http_options
  // URL that gets a POST when an experiment fails for good, and when a grid ends; NULL = none.
  const char *webhook;
  // For tests: reads the free bytes and all bytes of a folder's disk.
  bool (*room)(const char *folder, int64_t *free_bytes, int64_t *total_bytes);
  int64_t webhook_wait_ms;  // pause before the second try (1 s); each next one is 5 times as long
} brim_lab_pool_options;

typedef struct brim_lab_pool brim_lab_pool;

brim_status brim_lab_pool_open(const brim_lab_pool_options *options, brim_lab_pool **out);
int brim_lab_pool_port(const brim_lab_pool *pool);
// Ends leases, reads events of other servers, removes old files. The owner calls it about once a
// second.
brim_status brim_lab_pool_tend(brim_lab_pool *pool);
void brim_lab_pool_close(brim_lab_pool *pool);  // NULL is fine

#endif  // BRIM_LAB_POOL_H_
