// Inside the pool: its state, and the functions that its files share.
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
  char sha256[65];        // hash of the cookie's value
  char token[65];         // id of the token
  char token_sha256[65];  // hash of the token when the session began
  int64_t used_ms;
} brim_pool_session;

// A network that sends bad tokens.
typedef struct brim_pool_offender {
  char network[BRIM_POOL_ADDRESS];
  int count;         // bad tokens since since_ms
  int64_t since_ms;  // 0: the row is free
  bool logged;       // the log has a warning about it
} brim_pool_offender;

typedef struct brim_pool_auth {
  pthread_mutex_t mutex;
  brim_pool_token *tokens;
  size_t count;
  brim_pool_session sessions[BRIM_POOL_SESSIONS];
  brim_pool_token local, control;  // tokens of the options; sha256 "": there is none
  bool open;                       // no caller needs a token: the store has never had one
  bool any_name;                   // an open server answers under any host name
  brim_pool_offender offenders[BRIM_POOL_OFFENDERS];
} brim_pool_auth;

// The caller of a request.
typedef struct brim_pool_caller {
  char id[65];  // id of the token; "" = the caller needs none
  brim_role role;
  bool cookie;
} brim_pool_caller;

// Starts with the tokens of the options, which are not in the store.
void brim_pool_auth_init(brim_pool_auth *auth, const brim_lab_pool_options *options);
void brim_pool_auth_deinit(brim_pool_auth *auth);
// Finds the caller. Returns 0, or the HTTP status of the refusal.
int brim_pool_auth_check(brim_pool_auth *auth, const brim_http_request *request,
                         brim_pool_caller *out);
// Counts a bad token. Returns 0, or the seconds that the address has to wait after too many bad tokens.
int brim_pool_auth_bad(brim_pool_auth *auth, const char *peer, int64_t now_ms);

static inline bool brim_role_allows(brim_role role, brim_role needed) {
  return role == BRIM_ROLE_ADMIN || role == needed || needed == BRIM_ROLE_READ;
}

// --- lab_pool.c

typedef struct brim_pool_route {
  const char *method, *path;  // "v1/exps/:exp": a part with ':' is a field of the request
  brim_role role;
  brim_lab_op op;  // an operation of lab_wire.h; BRIM_LAB_OP_COUNT: `serve` answers
  size_t body_max;
  void (*serve)(brim_lab_pool *pool, const brim_pool_caller *caller, const brim_http_request *http,
                brim_http_reply *reply);
  bool open;  // the caller needs no token
} brim_pool_route;

enum { BRIM_POOL_BODY_SMALL = 64 << 10 };  // longest short body, in bytes

#define BRIM_POOL_OWN(method, path, role, serve, body_max) \
  { method, path, BRIM_ROLE_##role, BRIM_LAB_OP_COUNT, body_max, serve, false }
#define BRIM_POOL_OPEN(method, path, serve, body_max) \
  { method, path, BRIM_ROLE_READ, BRIM_LAB_OP_COUNT, body_max, serve, true }

// Each table ends with a row without a method. The first table has the operations.
extern const brim_pool_route brim_pool_auth_routes[], brim_pool_feed_routes[],
    brim_pool_file_routes[], brim_pool_grid_routes[], brim_pool_group_routes[];
extern const brim_pool_route *const brim_pool_routes[];  // all tables, up to NULL
// Finds the row of a request; NULL: there is none. *known: a row has the path, maybe with another
// method. Puts the fields of the path into `request`, which may be NULL.
const brim_pool_route *brim_pool_route_find(const char *method, const char *path, json_t *request,
                                            bool *known);
// Finds the row of an operation; NULL: a server does not answer it.
const brim_pool_route *brim_pool_route_of(brim_lab_op op);
// Returns the longest body of /v1/call: that of any operation which the role allows.
size_t brim_pool_call_max(brim_role role);
// Admits a request and finds its caller. route: the row of the request, NULL if there is none. known:
// some row has the path. False: the reply refuses the request.
bool brim_pool_auth_admit(brim_lab_pool *pool, const brim_http_request *request,
                          const brim_pool_route *route, bool known, brim_pool_caller *caller,
                          brim_http_reply *reply);
// Parses the body as JSON with at most `values` values (base_json.h).
brim_status brim_pool_body(const brim_http_request *http, size_t values, json_t **out);

// --- lab_pool_feed.c: news for listeners

enum { BRIM_POOL_NEWS = 4096, BRIM_POOL_METRIC_SLOTS = 1024, BRIM_POOL_METRICS_MS = 1000 };

typedef struct brim_pool_feed {
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  char *news[BRIM_POOL_NEWS];  // the latest news, as they are sent
  int64_t count;               // news so far; the next one is news[count % BRIM_POOL_NEWS]
  int listeners;               // number of open streams
  int64_t seq;                 // number of the store's last event among the news
  struct {
    char exp[BRIM_EXP_ID];
    int64_t ms;
  } metrics_sent[BRIM_POOL_METRIC_SLOTS];  // last metrics sent, by hash of the experiment's id
} brim_pool_feed;

// Reads new events from the store. The caller holds the store's lock.
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

// A request that the store has to carry out, under its lock. The thread of another request may do so if
// the request writes.
typedef struct brim_pool_call {
  struct brim_lab_pool *pool;
  const brim_pool_route *route;
  const brim_pool_caller *caller;
  json_t *request;
  brim_http_reply *reply;
  brim_lab_answer *answer;  // NULL: the reply is complete already
  bool done;                // the reply is complete
  struct brim_pool_call *next;
  bool ended;
} brim_pool_call;

typedef struct brim_pool_commits {
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  brim_pool_call *first, **last;  // calls that wait
  bool busy;                      // a thread carries out a group
} brim_pool_commits;

// A second handle of the store for requests that read, so that they and requests that write do not wait
// for each other.
typedef struct brim_pool_reading {
  pthread_mutex_t lock;
  brim_store *store;
  brim_lab_ops ops;
  const brim_pool_caller *caller;  // caller of the running request
} brim_pool_reading;

// --- lab_pool.c: GET /metrics

enum { BRIM_POOL_STATUSES = 600, BRIM_POOL_BOUNDS = 12 };

typedef struct brim_pool_stats {
  pthread_mutex_t mutex;
  int64_t by_status[BRIM_POOL_STATUSES];  // replies by their HTTP status
  int64_t buckets[BRIM_POOL_BOUNDS];      // replies by the time they took
  double seconds;
} brim_pool_stats;

// --- lab_pool_files.c: free space of the disk

typedef struct brim_pool_space {
  pthread_mutex_t mutex;
  bool full;                        // full in the last report to the log and to pages
  int64_t free_bytes, total_bytes;  // -1: unknown
  int64_t refused, refused_ms;      // refused writes so far, and the time of the last one
  int64_t now_ms;                   // time of the last call of `tend`, by the store's clock
} brim_pool_space;

// Measures the disk, and reports if it became full or has room again.
void brim_pool_space_measure(brim_lab_pool *pool);
// Returns true if the message of a failure says that the disk is full, and notes that.
bool brim_pool_space_refused(brim_lab_pool *pool, const char *text);
// Adds {"disk": {"full": ..., "free": ..., "total": ...}}.
brim_status brim_pool_space_put(brim_pool_space *room, json_t *out);

typedef struct brim_pool_disk brim_pool_disk;

// --- lab_pool_files.c: removing the files of experiments that ended, in rounds

typedef struct brim_pool_freed {
  int64_t files, bytes;
} brim_pool_freed;

typedef struct brim_pool_retention {
  int64_t next_ms;  // time of the next round, by the store's clock; 0 = not set yet
  char (*ids)[BRIM_EXP_ID];
  size_t count, at;  // experiments of this round, and the next one to handle
  brim_pool_freed freed;
} brim_pool_retention;

// --- lab_pool_hook.c: messages to a webhook, from a thread of their own

typedef struct brim_pool_hook brim_pool_hook;

// --- lab_pool.c: the memory of the JSON documents of all requests together

typedef struct brim_pool_documents {
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  size_t bytes;
} brim_pool_documents;

// A part of the server with a state of its own. The members take the whole pool; NULL: the part does
// nothing then.
typedef struct brim_pool_part {
  brim_status (*open)(brim_lab_pool *pool);   // called first; leaves nothing to close if it fails
  brim_status (*start)(brim_lab_pool *pool);  // called when the server listens
  brim_status (*tend)(brim_lab_pool *pool);   // called about once a second
  void (*stop)(brim_lab_pool *pool);          // called when no new requests begin
  void (*close)(brim_lab_pool *pool);         // called when no request runs any more
} brim_pool_part;

extern const brim_pool_part brim_pool_auth_part, brim_pool_feed_part, brim_pool_files_part,
    brim_pool_hook_part;

struct brim_lab_pool {
  brim_lab_pool_options options;
  brim_pool_documents documents;
  brim_pool_stats stats;
  brim_pool_space space;
  brim_http_server *http;
  size_t parts;          // number of open parts
  pthread_mutex_t lock;  // protects the store
  // By the store's clock: the last call of `tend`; the time until which no lease ends.
  int64_t tend_ms, reap_ms;
  pthread_mutex_t grids;  // lets one grid expand at a time; taken before `lock`
  brim_lab_ops ops;
  brim_pool_auth auth;
  brim_pool_feed feed;
  brim_pool_disk *disk;  // NULL: the server takes no files
  brim_pool_retention retention;
  brim_pool_page page;
  brim_pool_commits commits;
  brim_pool_reading reading;
  brim_store *log_handle;  // moves the store's log
  brim_pool_hook *hook;    // NULL: there is no webhook
};
// Makes the reply to a failure: its line of lab_wire.h and its HTTP status.
void brim_pool_reply_failure(brim_http_reply *reply, brim_status status);
// Makes a reply of a line of JSON, or of the failure. Adds "ok": true to a line without an "ok".
// Releases the line.
void brim_pool_reply_line(brim_http_reply *reply, json_t *line, brim_status status);
// Checks that a worker's request is about its own attempt or name. The caller holds the store's lock.
brim_status brim_pool_check_own(brim_lab_pool *pool, const brim_pool_route *route,
                                const brim_pool_caller *caller, const json_t *request);

// --- lab_pool_grids.c

// Checks the points of a request that submits, and replaces their configs by the text that this server
// would have made. BRIM_EINVAL: an id does not fit its config. BRIM_EEXIST: the store has another
// config under the id.
brim_status brim_pool_check_points(brim_lab_pool *pool, json_t *request);

#endif  // BRIM_LAB_POOL_INT_H_
