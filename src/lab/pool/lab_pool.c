// The server: a request is admitted by its route and its caller, becomes one of lab_ops.h, and is carried
// out under a lock of the store: there is one for what writes and one for what looks. Long replies are
// made in pieces, each under the lock, so that other requests do not wait for a slow reader.
#include "lab/pool/lab_pool.h"

#include <stdio.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_status.h"
#include "lab/http/lab_http_url.h"
#include "lab/pool/lab_pool_int.h"

enum {
  PIECE = 256 << 10,
  LOG_PAGES = 4096,
  AWAY_MS = 3000,
  VALUE_BYTES = 50,           // of a value of JSON (base_json.h)
  DOCUMENT_SMALL = 1 << 10,   // bodies that are not counted
  DOCUMENTS_MAX = 256 << 20,  // of all others
};

//---------------------------------- roles ----------------------------------

static bool refuse(brim_http_reply *reply, int status, const char *why) {
  brim_http_reply_error(reply, status, why);
  if (status == 401) brim_http_reply_header(reply, "WWW-Authenticate", "Bearer");
  return false;
}

static bool is_reading(const brim_http_request *request) {
  return strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0;
}

// A token that is not known: too many of them from one address are told to wait.
static bool refuse_token(brim_lab_pool *pool, const brim_http_request *request,
                         brim_http_reply *reply, const char *why) {
  char seconds[16];
  int wait = brim_pool_limit_bad(&pool->limit, request->peer, brim_clock_ms());
  if (!wait) return refuse(reply, 401, why);
  snprintf(seconds, sizeof seconds, "%d", wait);
  brim_http_reply_header(reply, "Retry-After", seconds);
  return refuse(reply, 429, "too many bad tokens from this address");
}

static bool may_enter(brim_lab_pool *pool, const brim_http_request *request, brim_http_reply *reply,
                      size_t *body_max) {
  brim_pool_caller caller;
  bool known;
  if (brim_pool_page_find(&pool->page, request->path)) {
    *body_max = 0;
    return is_reading(request) || refuse(reply, 405, "the page can only be read");
  }
  const brim_pool_route *route = brim_pool_route_find(request->method, request->path, NULL, &known);
  // Without a token a caller does not learn which paths there are.
  bool session = route && (strcmp(route->path, "v1/session") == 0 ||
                           strcmp(route->path, "healthz") == 0);  // by programs that know no token
  int refused = session ? brim_pool_auth_page(&pool->auth, request)
                        : brim_pool_auth_check(&pool->auth, request, &caller);
  if (refused == 401 && brim_http_header(request, "Authorization")) {
    return refuse_token(pool, request, reply, "a valid token is needed");
  }
  if (refused == 401) return refuse(reply, 401, "a valid token is needed");
  if (refused) return refuse(reply, refused, "not from this page");
  if (!route) return refuse(reply, known ? 405 : 404, "there is nothing at this path");
  bool call = strcmp(route->path, "v1/call") == 0;  // by what its body asks for
  if (!session && !call && !brim_role_allows(caller.role, route->role)) {
    return refuse(reply, 403, "the token's role does not allow this");
  }
  *body_max = call ? brim_pool_call_max(caller.role) : route->body_max;
  return true;
}

static bool admit(void *ctx, const brim_http_request *request, brim_http_reply *reply,
                  size_t *body_max) {
  brim_lab_pool *pool = (brim_lab_pool *)ctx;
  bool admitted = may_enter(pool, request, reply, body_max);
  if (!admitted) brim_pool_stats_reply(&pool->stats, reply->status, 0);
  return admitted;
}

//---------------------------------- replies in pieces ----------------------------------

typedef struct piecewise {
  brim_lab_pool *pool;
  brim_lab_answer *answer;
  brim_str first;
  bool done;
} piecewise;

static brim_status next_piece(void *ctx, brim_str *out) {
  piecewise *p = (piecewise *)ctx;
  if (p->first.len > 0) {
    brim_str_append_n(out, p->first.data, p->first.len);
    brim_str_clear(&p->first);
    return BRIM_OK;
  }
  if (p->done) return BRIM_EEND;
  pthread_mutex_lock(&p->pool->reading.lock);
  brim_status status = brim_lab_answer_more(p->answer, PIECE, out, &p->done);
  pthread_mutex_unlock(&p->pool->reading.lock);
  return status;
}

static void end_pieces(void *ctx) {
  piecewise *p = (piecewise *)ctx;
  brim_lab_answer_free(p->answer);
  brim_str_deinit(&p->first);
  brim_free(p);
}

// The first piece is there; the rest is made when it is sent. Replies to what writes are short.
static void reply_pieces(brim_lab_pool *pool, brim_lab_answer *answer, brim_http_reply *reply) {
  piecewise *p = (piecewise *)brim_calloc(1, sizeof *p);
  if (!p) {
    brim_lab_answer_free(answer);
    brim_http_reply_error(reply, 503, "out of memory for a reply");
    return;
  }
  *p = (piecewise){.pool = pool, .answer = answer};
  p->first = reply->body;
  brim_str_init(&reply->body);
  reply->more = next_piece;
  reply->end = end_pieces;
  reply->ctx = p;
}

//---------------------------------- requests ----------------------------------

static void fail_call(brim_pool_call *c, brim_status status) {
  brim_lab_answer_free(c->answer);
  c->answer = NULL;
  brim_pool_reply_failure(c->reply, status);
}

static void look(brim_pool_call *c) {
  brim_pool_reading *r = &c->pool->reading;
  pthread_mutex_lock(&r->lock);
  r->caller = c->caller;
  brim_status status = brim_lab_ops_begin_json(&r->ops, json_incref(c->request), &c->answer);
  if (!status) status = brim_lab_answer_more(c->answer, PIECE, &c->reply->body, &c->done);
  pthread_mutex_unlock(&r->lock);
  if (status) fail_call(c, status);
}

static void run_call(brim_pool_call *c) {
  brim_lab_pool *pool = c->pool;
  brim_store_set_author(pool->options.store, c->caller->id);
  brim_status status =
      c->route->own ? brim_pool_check_own(pool, c->route, c->caller, c->request) : BRIM_OK;
  if (!status) status = brim_lab_ops_begin_json(&pool->ops, json_incref(c->request), &c->answer);
  if (!status) status = brim_lab_answer_more(c->answer, SIZE_MAX, &c->reply->body, &c->done);
  brim_store_set_author(pool->options.store, "");
  if (status) fail_call(c, status);
}

// Takes the request over.
static void carry_out(brim_lab_pool *pool, const brim_pool_route *route,
                      const brim_pool_caller *caller, json_t *request, brim_http_reply *reply) {
  if (strcmp(route->op, "submit") == 0) {
    brim_status status = brim_pool_check_points(pool, request);
    if (status) {
      json_decref(request);
      brim_pool_reply_failure(reply, status);
      return;
    }
  }
  brim_pool_call c = {.pool = pool,
                      .route = route,
                      .caller = caller,
                      .request = request,
                      .reply = reply,
                      .run = run_call,
                      .fail = fail_call};
  if (route->role == BRIM_ROLE_READ) {
    look(&c);
  } else {
    brim_pool_commit_run(pool, &c);
  }
  bool done_well = c.answer && !brim_lab_answer_result(c.answer);
  if (done_well) brim_pool_feed_request(&pool->feed, route->op, request);
  json_decref(request);
  if (!c.answer) return;
  if (!c.done) {
    reply_pieces(pool, c.answer, reply);
    return;
  }
  reply->status = brim_pool_http_status(brim_lab_answer_result(c.answer));
  brim_lab_answer_free(c.answer);
}

// What an attempt shows with each write: the path has most of it.
static brim_status put_ref(json_t *request) {
  static const char *const keys[] = {"exp", "attempt", "fence"};
  json_t *ref = json_object();
  BRIM_TRY(brim_json_put(request, "ref", ref));
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    json_t *value = json_object_get(request, keys[i]);
    if (value) BRIM_TRY(brim_json_put(ref, keys[i], json_incref(value)));
  }
  return BRIM_OK;
}

static brim_status make_request(const brim_pool_route *route, const brim_http_request *http,
                                json_t *request) {
  bool known;
  BRIM_TRY(brim_pool_request_read(route, http, request));
  if (!brim_pool_route_find(http->method, http->path, request, &known)) {
    return brim_fail(BRIM_EINVAL, "the path of the request is malformed");
  }
  if (strstr(route->path, ":attempt")) BRIM_TRY(put_ref(request));
  if (strcmp(route->path, "v1/exps") == 0 || strcmp(route->path, "v1/exps/:exp") == 0) {
    BRIM_TRY(brim_json_put(request, "waits", json_true()));
  }
  return brim_json_put(request, "op", json_string(route->op));
}

// A request of lab_ops.h as it is: what links send.
static void serve_call(brim_lab_pool *pool, const brim_http_request *http, brim_http_reply *reply) {
  brim_pool_caller caller;
  json_t *request = NULL;
  if (brim_pool_auth_check(&pool->auth, http, &caller)) {
    refuse(reply, 401, "a valid token is needed");  // it may have ended while the body came
    return;
  }
  size_t values = brim_pool_values(brim_pool_call_max(caller.role));
  brim_status status = brim_pool_body(http, values, &request);
  const char *op = json_string_value(json_object_get(request, "op"));
  const brim_pool_route *route = op ? brim_pool_route_of(op) : NULL;
  if (!status && !op) status = brim_fail(BRIM_EINVAL, "a call is a JSON object with an op");
  if (!status && !route) {
    status = brim_fail(BRIM_EUNSUPPORTED, "'%s' is no request that this server answers", op);
  }
  if (status) {
    json_decref(request);
    brim_pool_reply_failure(reply, status);
  } else if (!brim_role_allows(caller.role, route->role)) {
    json_decref(request);
    refuse(reply, 403, "the token's role does not allow this");
  } else {
    carry_out(pool, route, &caller, request, reply);
  }
}

static void serve_session(brim_lab_pool *pool, const brim_http_request *request,
                          brim_http_reply *reply) {
  json_t *body = NULL;
  char cookie[192];
  if (strcmp(request->method, "DELETE") == 0) {
    brim_pool_auth_end(&pool->auth, request);
    brim_http_reply_header(reply, "Set-Cookie", "brim_session=; Path=/; Max-Age=0");
    brim_str_append(&reply->body, "{\"ok\":true}\n");
    return;
  }
  brim_status status = brim_pool_body(request, BRIM_JSON_VALUES_SMALL, &body);
  const char *token = json_string_value(json_object_get(body, "token"));
  if (!status) {
    status = brim_pool_auth_begin(&pool->auth, token ? token : "",
                                  pool->options.certificate != NULL, cookie);
  }
  json_decref(body);
  if (status == BRIM_EINVAL) {
    refuse_token(pool, request, reply, "the token is not known");
    return;
  }
  if (status) {
    brim_pool_reply_failure(reply, status);
    return;
  }
  brim_http_reply_header(reply, "Set-Cookie", cookie);
  brim_str_append(&reply->body, "{\"ok\":true}\n");
}

static void serve_events(brim_lab_pool *pool, const brim_pool_caller *caller,
                         const brim_http_request *http, brim_http_reply *reply) {
  (void)caller;
  brim_pool_listen(pool, http, reply);
}

// Requests that the pool answers itself.
static const struct {
  const char *method, *path;
  void (*serve)(brim_lab_pool *pool, const brim_pool_caller *caller, const brim_http_request *http,
                brim_http_reply *reply);
} own[] = {
    {"GET", "v1/events", serve_events},
    {"POST", "v1/attempts/:exp/:attempt/files/:name", brim_pool_file_put},
    {"GET", "v1/exps/:exp/files/:name", brim_pool_file_get},
    {"GET", "v1/exps/:exp/log", brim_pool_file_log},
    {"GET", "v1/groups", brim_pool_groups},
    {"GET", "v1/keys", brim_pool_keys},
    {"GET", "v1/names", brim_pool_names},
    {"POST", "v1/bests", brim_pool_bests},
    {"POST", "v1/grids", brim_pool_grids},
    {"GET", "v1/tokens", brim_pool_tokens_list},
    {"POST", "v1/tokens", brim_pool_tokens_add},
    {"POST", "v1/tokens/:token/rotate", brim_pool_tokens_rotate},
    {"DELETE", "v1/tokens/:token", brim_pool_tokens_end},
    {"GET", "metrics", brim_pool_metrics},
};

static void serve_own(brim_lab_pool *pool, const brim_pool_route *route,
                      const brim_pool_caller *caller, const brim_http_request *http,
                      brim_http_reply *reply) {
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    if (strcmp(own[i].path, route->path) != 0 || strcmp(own[i].method, route->method) != 0) {
      continue;
    }
    own[i].serve(pool, caller, http, reply);
    return;
  }
  brim_http_reply_error(reply, 501, "this server does not answer that");
}

// Of the disk: a server that cannot write still answers, so it stays in service.
static void serve_health(brim_lab_pool *pool, brim_http_reply *reply) {
  pthread_mutex_lock(&pool->room.mutex);
  const bool full = pool->room.full;
  pthread_mutex_unlock(&pool->room.mutex);
  brim_str_append(&reply->body, full ? "{\"ok\":true,\"disk\":\"full\"}\n" : "{\"ok\":true}\n");
}

static void answer(brim_lab_pool *pool, const brim_http_request *http, brim_http_reply *reply) {
  brim_pool_caller caller = {.role = BRIM_ROLE_READ};
  bool known;
  const brim_pool_file *file = brim_pool_page_find(&pool->page, http->path);
  if (file) {
    brim_pool_page_serve(file, http, reply);
    return;
  }
  const brim_pool_route *route = brim_pool_route_find(http->method, http->path, NULL, &known);
  brim_http_reply_header(reply, "Cache-Control", "no-store");
  brim_http_reply_header(reply, "X-Content-Type-Options", "nosniff");
  if (strcmp(route->path, "healthz") == 0) {
    serve_health(pool, reply);
    return;
  }
  if (strcmp(route->path, "v1/call") == 0) {
    serve_call(pool, http, reply);
    return;
  }
  if (strcmp(route->path, "v1/session") == 0) {
    serve_session(pool, http, reply);
    return;
  }
  // The token may have ended while the body came.
  if (brim_pool_auth_check(&pool->auth, http, &caller)) {
    refuse(reply, 401, "a valid token is needed");
    return;
  }
  if (!route->op) {
    serve_own(pool, route, &caller, http, reply);
    return;
  }
  json_t *request = json_object();
  brim_status status = request ? make_request(route, http, request)
                               : brim_fail(BRIM_ENOMEM, "out of memory for a request");
  if (status) {
    json_decref(request);
    brim_pool_reply_failure(reply, status);
    return;
  }
  carry_out(pool, route, &caller, request, reply);
}

// The most that the values of a body take beside its texts: "{}," takes the most.
static size_t document_bytes(const brim_http_request *http) {
  size_t values = http->body_size / 3 * 8 + 8;
  return VALUE_BYTES * (values < BRIM_JSON_VALUES ? values : BRIM_JSON_VALUES);
}

// Requests with long documents wait until those before them are answered: they may be many at once, and
// each of them is read before it waits for the store.
static bool wait_for_room(brim_lab_pool *pool, const brim_http_request *http) {
  brim_pool_documents *d = &pool->documents;
  if (http->body_size <= DOCUMENT_SMALL || strstr(http->path, "/files/")) return false;
  size_t bytes = document_bytes(http);
  pthread_mutex_lock(&d->mutex);
  while (d->bytes > 0 && d->bytes + bytes > DOCUMENTS_MAX) pthread_cond_wait(&d->wake, &d->mutex);
  d->bytes += bytes;
  pthread_mutex_unlock(&d->mutex);
  return true;
}

static void give_room(brim_lab_pool *pool, const brim_http_request *http) {
  brim_pool_documents *d = &pool->documents;
  pthread_mutex_lock(&d->mutex);
  d->bytes -= document_bytes(http);
  pthread_cond_broadcast(&d->wake);
  pthread_mutex_unlock(&d->mutex);
}

static void serve(void *ctx, const brim_http_request *http, brim_http_reply *reply) {
  brim_lab_pool *pool = (brim_lab_pool *)ctx;
  brim_time begin = brim_clock_now();
  bool counted = wait_for_room(pool, http);
  answer(pool, http, reply);
  if (counted) give_room(pool, http);
  if ((reply->status == 507 || reply->status == 503) && brim_pool_room_is_disk(reply->body.data)) {
    brim_pool_room_refused(pool);
  }
  double seconds = (double)brim_time_since_ns(begin, brim_clock_now()) * 1e-9;
  brim_pool_stats_reply(&pool->stats, reply->status, seconds);
}

//---------------------------------- opening ----------------------------------

// Under the lock of `reading`, by which its caller is set.
static brim_status answer_whoami(void *ctx, const char *op, const json_t *request, json_t *reply,
                                 bool *taken) {
  brim_lab_pool *pool = (brim_lab_pool *)ctx;
  (void)request;
  *taken = strcmp(op, "whoami") == 0;
  if (!*taken) return BRIM_OK;
  BRIM_TRY(brim_json_put(reply, "protocol", json_string(BRIM_LAB_PROTOCOL)));
  BRIM_TRY(brim_json_put(reply, "version", json_string(pool->options.version)));
  BRIM_TRY(brim_json_put(reply, "name", json_string(pool->reading.caller->id)));
  BRIM_TRY(brim_pool_room_put(pool, reply));
  return brim_json_put(reply, "role", json_string(brim_role_name(pool->reading.caller->role)));
}

static brim_status open_beside(brim_lab_pool *pool) {
  brim_store *store = pool->options.store;
  brim_pool_reading *r = &pool->reading;
  BRIM_TRY(brim_store_open_reader(store, &r->store));
  bool has_log = strcmp(brim_store_kind(store), "sqlite") == 0;
  if (has_log) BRIM_TRY(brim_store_open_reader(store, &pool->keeper));
  r->ops = (brim_lab_ops){
      .store = r->store, .version = pool->options.version, .answer = answer_whoami, .ctx = pool};
  return brim_store_keep_log(store);
}

static brim_status open_pool(brim_lab_pool *pool) {
  const brim_lab_pool_options *o = &pool->options;
  BRIM_TRY(brim_pool_page_init(&pool->page));
  BRIM_TRY(brim_pool_auth_load(&pool->auth, o->store));
  if (o->files) BRIM_TRY(brim_pool_disk_open(o->files, &pool->disk));
  BRIM_TRY(brim_pool_feed_init(&pool->feed, o->store));
  BRIM_TRY(brim_pool_commits_init(&pool->commits));
  pool->ops = (brim_lab_ops){.store = o->store, .version = o->version};
  BRIM_TRY(open_beside(pool));
  if (o->webhook) BRIM_TRY(brim_pool_hook_open(pool, &pool->hook));
  // one address that takes all it gets leaves some for the others
  int connections = o->connections > 0 ? o->connections : 1000;
  const brim_http_options http = {.address = o->address,
                                  .port = o->port,
                                  .certificate = o->certificate,
                                  .key = o->key,
                                  .connections = connections,
                                  .per_address = connections * 3 / 4,
                                  .idle_ms = o->idle_ms,
                                  .request_ms = o->request_ms,
                                  .admit = admit,
                                  .serve = serve,
                                  .ctx = pool};
  BRIM_TRY(brim_http_server_open(&http, &pool->http));
  return pool->hook ? brim_pool_hook_start(pool->hook) : BRIM_OK;
}

brim_status brim_lab_pool_open(const brim_lab_pool_options *options, brim_lab_pool **out) {
  *out = NULL;
  brim_lab_pool *pool = (brim_lab_pool *)brim_calloc(1, sizeof *pool);
  if (!pool) return brim_fail(BRIM_ENOMEM, "out of memory for the server");
  pool->options = *options;
  pthread_mutex_init(&pool->lock, NULL);
  pthread_mutex_init(&pool->reading.lock, NULL);
  pthread_mutex_init(&pool->grids, NULL);
  pthread_mutex_init(&pool->documents.mutex, NULL);
  pthread_cond_init(&pool->documents.wake, NULL);
  brim_pool_stats_init(&pool->stats);
  brim_pool_room_init(&pool->room);
  brim_pool_limit_init(&pool->limit);
  brim_pool_auth_init(
      &pool->auth, options->open || !options->address || brim_http_is_loopback(options->address));
  pool->auth.any_name = options->open;
  if (options->local_token) brim_pool_auth_local(&pool->auth, options->local_token);
  if (options->control_token) brim_pool_auth_control(&pool->auth, options->control_token);
  brim_status status = open_pool(pool);
  if (status) {
    brim_lab_pool_close(pool);
    return status;
  }
  *out = pool;
  return BRIM_OK;
}

int brim_lab_pool_port(const brim_lab_pool *pool) { return brim_http_server_port(pool->http); }

// The log is moved while requests are carried out. It starts again from its beginning when all of it is
// moved and nothing came meanwhile, so the last bit of a long one is moved under the lock.
static brim_status move_log(brim_lab_pool *pool) {
  int64_t pages = 0;
  if (!pool->keeper) return BRIM_OK;
  BRIM_TRY(brim_store_move_log(pool->keeper, &pages));
  if (pages < LOG_PAGES) return BRIM_OK;
  BRIM_TRY(brim_store_move_log(pool->keeper, &pages));
  pthread_mutex_lock(&pool->lock);
  brim_status status = brim_store_move_log(pool->keeper, &pages);
  pthread_mutex_unlock(&pool->lock);
  return status;
}

// After a time in which this process did not run, workers come first: they beat before long.
static brim_status reap(brim_lab_pool *pool) {
  brim_store *store = pool->options.store;
  int64_t now = 0, lease = brim_store_lease_ms(store);
  int64_t away = lease / 4 > AWAY_MS ? lease / 4 : AWAY_MS;
  BRIM_TRY(brim_store_now(store, &now));
  if (pool->tend_ms > 0 && now - pool->tend_ms > away) pool->reap_ms = now + lease / 2;
  pool->tend_ms = now;
  return now < pool->reap_ms ? BRIM_OK : brim_store_reap(store, NULL);
}

brim_status brim_lab_pool_tend(brim_lab_pool *pool) {
  brim_store *store = pool->options.store;
  pthread_mutex_lock(&pool->lock);
  brim_status status = reap(pool);
  if (!status) status = brim_pool_feed_read(&pool->feed, store);
  if (!status) status = brim_pool_auth_load(&pool->auth, store);
  pthread_mutex_unlock(&pool->lock);
  brim_pool_room_tend(pool, pool->tend_ms);
  if (!status) status = brim_pool_keep_tend(pool, pool->tend_ms);
  if (!status) status = move_log(pool);
  if (status != BRIM_EIO || !brim_pool_room_is_disk(brim_status_detail())) return status;
  brim_status_clear();  // the log says so once, and not with every tending
  brim_pool_room_refused(pool);
  return BRIM_OK;
}

void brim_lab_pool_close(brim_lab_pool *pool) {
  if (!pool) return;
  if (pool->http) brim_http_server_stop(pool->http);
  if (pool->http) brim_pool_feed_wake(&pool->feed);
  brim_http_server_close(pool->http);
  brim_pool_hook_close(pool->hook);
  if (pool->ops.store) brim_pool_feed_deinit(&pool->feed);
  brim_pool_keep_deinit(&pool->keep);
  brim_pool_disk_close(pool->disk);
  if (pool->ops.store) brim_pool_commits_deinit(&pool->commits);
  brim_pool_stats_deinit(&pool->stats);
  brim_pool_room_deinit(&pool->room);
  brim_pool_auth_deinit(&pool->auth);
  pthread_mutex_destroy(&pool->grids);
  pthread_cond_destroy(&pool->documents.wake);
  pthread_mutex_destroy(&pool->documents.mutex);
  brim_pool_page_deinit(&pool->page);
  brim_pool_limit_deinit(&pool->limit);
  brim_store_close(pool->keeper);
  brim_store_close(pool->reading.store);
  pthread_mutex_destroy(&pool->reading.lock);
  pthread_mutex_destroy(&pool->lock);
  brim_free(pool);
}
