// Inside the pool: its state, and what its files share.
#ifndef BRIM_LAB_POOL_INT_H_
#define BRIM_LAB_POOL_INT_H_

#include <pthread.h>

#include "base/base_json.h"
#include "lab/pool/lab_pool.h"
#include "lab/wire/lab_wire.h"
#include "lab/wire/lab_wire_files.h"

// --- lab_pool_auth.c: tokens and sessions

enum { BRIM_POOL_SESSIONS = 256, BRIM_POOL_OFFENDERS = 256, BRIM_POOL_ADDRESS = 64 };

typedef struct brim_pool_token {
  char id[65], sha256[65];
  brim_role role;
} brim_pool_token;

typedef struct brim_pool_session {
  char sha256[65];        // of the cookie's value
  char token[65];         // id of the token
  char token_sha256[65];  // of the token when the session began
  int64_t used_ms;
} brim_pool_session;

// A network that sends bad tokens.
typedef struct brim_pool_offender {
  char network[BRIM_POOL_ADDRESS];
  int count;         // bad tokens since since_ms
  int64_t since_ms;  // 0: the row is free
  bool told;         // logged
} brim_pool_offender;

typedef struct brim_pool_auth {
  pthread_mutex_t mutex;
  brim_pool_token *tokens;
  size_t count;
  brim_pool_session sessions[BRIM_POOL_SESSIONS];
  brim_pool_token local, control;  // sha256 "": none
  bool open;                       // no caller needs a token: the store never had one
  bool any_name;                   // an open server answers under any host name
  brim_pool_offender offenders[BRIM_POOL_OFFENDERS];
} brim_pool_auth;

// The caller of a request.
typedef struct brim_pool_caller {
  char id[65];  // of the token; "" = none is needed
  brim_role role;
  bool cookie;
} brim_pool_caller;

// Starts with the tokens of the options, which the store does not have.
void brim_pool_auth_init(brim_pool_auth *auth, const brim_lab_pool_options *options);
void brim_pool_auth_deinit(brim_pool_auth *auth);
// Finds the caller. 0, or the HTTP status of the refusal.
int brim_pool_auth_check(brim_pool_auth *auth, const brim_http_request *request,
                         brim_pool_caller *out);
// Counts a bad token. 0, or the seconds that the address has to wait after too many.
int brim_pool_auth_bad(brim_pool_auth *auth, const char *peer, int64_t now_ms);

static inline bool brim_role_allows(brim_role role, brim_role needed) {
  return role == BRIM_ROLE_ADMIN || role == needed || needed == BRIM_ROLE_READ;
}

// --- lab_pool.c

typedef struct brim_pool_route {
  const char *method, *path;  // "v1/exps/:exp": a part with ':' is a field of the request
  brim_role role;
  brim_lab_op op;  // of lab_wire.h; BRIM_LAB_OP_COUNT: `serve` answers
  size_t body_max;
  void (*serve)(brim_lab_pool *pool, const brim_pool_caller *caller, const brim_http_request *http,
                brim_http_reply *reply);
  bool open;  // no token is needed
} brim_pool_route;

enum { BRIM_POOL_BODY_SMALL = 64 << 10 };  // limit of a short body, in bytes

#define BRIM_POOL_OWN(method, path, role, serve, body_max) \
  { method, path, BRIM_ROLE_##role, BRIM_LAB_OP_COUNT, body_max, serve, false }
#define BRIM_POOL_OPEN(method, path, serve, body_max) \
  { method, path, BRIM_ROLE_READ, BRIM_LAB_OP_COUNT, body_max, serve, true }

// Each table ends with a row without a method. The first one has the operations.
extern const brim_pool_route brim_pool_auth_routes[], brim_pool_feed_routes[],
    brim_pool_file_routes[], brim_pool_grid_routes[], brim_pool_group_routes[];
extern const brim_pool_route *const brim_pool_routes[];  // all tables, up to NULL
// Finds the row of a request; NULL: none. *known: a row has the path, maybe with another method. Fields of the
// path go into `request`, which may be NULL.
const brim_pool_route *brim_pool_route_find(const char *method, const char *path, json_t *request,
                                            bool *known);
// The row of an operation; NULL: a server does not answer it.
const brim_pool_route *brim_pool_route_of(brim_lab_op op);
// The longest body of /v1/call: that of any operation which the role allows.
size_t brim_pool_call_max(brim_role role);
// Admits a request with this row (NULL: no row has its path and method; `known`: one has the path) and finds
// its caller. False: the reply refuses it.
bool brim_pool_auth_admit(brim_lab_pool *pool, const brim_http_request *request,
                          const brim_pool_route *route, bool known, brim_pool_caller *caller,
                          brim_http_reply *reply);
// Parses the body as JSON with at most `values` values (base_json.h).
brim_status brim_pool_body(const brim_http_request *http, size_t values, json_t **out);

// --- lab_pool_feed.c: news for listeners

enum { BRIM_POOL_NEWS = 4096, BRIM_POOL_TOLD = 1024, BRIM_POOL_METRICS_MS = 1000 };

typedef struct brim_pool_feed {
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  char *news[BRIM_POOL_NEWS];  // the latest, as they are sent
  int64_t count;               // news so far; the next one is news[count % BRIM_POOL_NEWS]
  int listeners;               // open streams
  int64_t seq;                 // the store's last event among the news
  struct {
    char exp[BRIM_EXP_ID];
    int64_t ms;
  } told[BRIM_POOL_TOLD];  // when metrics of an experiment were sent, by a hash of its id
} brim_pool_feed;

// Reads new events from the store. Under the store's lock.
brim_status brim_pool_feed_read(brim_pool_feed *feed, brim_store *store);
// Adds news for requests without an event in the store: progress, metrics, the status of a worker.
void brim_pool_feed_request(brim_pool_feed *feed, brim_lab_op op, const json_t *request);
// Adds news about the server itself, as an event "server".
void brim_pool_feed_server(brim_pool_feed *feed, json_t *value);

// --- lab_pool.c: the dashboard

enum { BRIM_POOL_FILES = 3, BRIM_POOL_HASH = 17 };

typedef struct brim_pool_file {
  char path[64];  // "/assets/dashboard-0123456789abcdef.js"
  const char *type;
  char hash[BRIM_POOL_HASH];
  brim_str plain, gzip;
} brim_pool_file;

typedef struct brim_pool_page {
  brim_pool_file files[BRIM_POOL_FILES];  // the page, its script, its style sheet
} brim_pool_page;

// --- lab_pool.c: requests that write, several in one transaction

// A request to be carried out: under the store's lock, and maybe by the thread of another request if it writes.
typedef struct brim_pool_call {
  struct brim_lab_pool *pool;
  const brim_pool_route *route;
  const brim_pool_caller *caller;
  json_t *request;
  brim_http_reply *reply;
  brim_lab_answer *answer;  // NULL: the reply is there already
  bool done;                // the reply is whole
  struct brim_pool_call *next;
  bool ended;
} brim_pool_call;

typedef struct brim_pool_commits {
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  brim_pool_call *first, **last;  // that wait
  bool busy;                      // a group is being carried out
} brim_pool_commits;

// A second handle of the store for requests that read. They and requests that write do not wait for each
// other.
typedef struct brim_pool_reading {
  pthread_mutex_t lock;
  brim_store *store;
  brim_lab_ops ops;
  const brim_pool_caller *caller;  // of the request that is carried out
} brim_pool_reading;

// --- lab_pool.c: GET /metrics

enum { BRIM_POOL_STATUSES = 600, BRIM_POOL_BOUNDS = 12 };

typedef struct brim_pool_stats {
  pthread_mutex_t mutex;
  int64_t by_status[BRIM_POOL_STATUSES];  // replies by their HTTP status
  int64_t buckets[BRIM_POOL_BOUNDS];      // and by the time they took
  double seconds;
} brim_pool_stats;

// --- lab_pool_files.c: whether the disk has room

typedef struct brim_pool_space {
  pthread_mutex_t mutex;
  bool full;                        // as last reported to the log and to pages
  int64_t free_bytes, total_bytes;  // -1: unknown
  int64_t refused, refused_ms;      // refused writes so far, and the time of the last one
  int64_t now_ms;                   // time of the last tending, by the store's clock
} brim_pool_space;

// Measures the disk, and reports a change.
void brim_pool_space_measure(brim_lab_pool *pool);
// If the message of a failure says that the disk is full: notes it, and returns true.
bool brim_pool_space_refused(brim_lab_pool *pool, const char *text);
// {"disk": {"full": ..., "free": ..., "total": ...}}
brim_status brim_pool_space_put(brim_pool_space *room, json_t *out);

typedef struct brim_pool_disk brim_pool_disk;

// --- lab_pool_files.c: removing the files of experiments that ended, in rounds

typedef struct brim_pool_freed {
  int64_t files, bytes;
} brim_pool_freed;

typedef struct brim_pool_retention {
  int64_t next_ms;  // of the next round, by the store's clock; 0 = not known yet
  char (*ids)[BRIM_EXP_ID];
  size_t count, at;  // of this round
  brim_pool_freed freed;
} brim_pool_retention;

// --- lab_pool_hook.c: messages to a webhook, from a thread of their own

typedef struct brim_pool_hook brim_pool_hook;

// --- lab_pool.c: memory that the JSON documents of all requests take together

typedef struct brim_pool_documents {
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  size_t bytes;
} brim_pool_documents;

// A part of the server with a life of its own. The members take the whole pool; NULL: nothing is to do.
typedef struct brim_pool_part {
  brim_status (*open)(brim_lab_pool *pool);   // a failure leaves nothing to close
  brim_status (*start)(brim_lab_pool *pool);  // the server listens
  brim_status (*tend)(brim_lab_pool *pool);   // about once a second
  void (*stop)(brim_lab_pool *pool);          // no request begins any more
  void (*close)(brim_lab_pool *pool);         // no request is carried out any more
} brim_pool_part;

extern const brim_pool_part brim_pool_auth_part, brim_pool_feed_part, brim_pool_files_part,
    brim_pool_hook_part;

struct brim_lab_pool {
  brim_lab_pool_options options;
  brim_pool_documents documents;
  brim_pool_stats stats;
  brim_pool_space space;
  brim_http_server *http;
  size_t parts;              // that are open
  pthread_mutex_t lock;      // of the store
  int64_t tend_ms, reap_ms;  // by the store's clock: the last tending; no lease ends before reap_ms
  pthread_mutex_t grids;     // one grid is expanded at a time; taken before `lock`
  brim_lab_ops ops;
  brim_pool_auth auth;
  brim_pool_feed feed;
  brim_pool_disk *disk;  // NULL: no files are taken
  brim_pool_retention retention;
  brim_pool_page page;
  brim_pool_commits commits;
  brim_pool_reading reading;
  brim_store *log_handle;  // moves the store's log
  brim_pool_hook *hook;    // NULL: none
};
// The line of lab_wire.h for a failure, with its HTTP status.
void brim_pool_reply_failure(brim_http_reply *reply, brim_status status);
// A line of JSON, or the failure. Adds "ok": true to a line without an "ok"; releases the line.
void brim_pool_reply_line(brim_http_reply *reply, json_t *line, brim_status status);
// Checks that a worker's request is about its own attempt or name. Under the store's lock.
brim_status brim_pool_check_own(brim_lab_pool *pool, const brim_pool_route *route,
                                const brim_pool_caller *caller, const json_t *request);

// --- lab_pool_grids.c

// Checks the points of a request that submits. BRIM_EINVAL: an id is not that of its config. BRIM_EEXIST: the
// store has another config under the id. Replaces configs by the text that this server would have made.
brim_status brim_pool_check_points(brim_lab_pool *pool, json_t *request);

#endif  // BRIM_LAB_POOL_INT_H_
