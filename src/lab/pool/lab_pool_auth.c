// Tokens, roles, the sessions of pages, and the limit for addresses that send bad tokens.

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_log.h"
#include "base/base_sha256.h"
#include "base/base_status.h"
#include "lab/http/lab_http_url.h"
#include "lab/pool/lab_pool_int.h"
#include "lab/wire/lab_wire.h"

//------------------------------------------ addresses ------------------------------------------
// Limits bad tokens per address. A token of 256 random bits cannot be guessed; the limit stops clients
// that send an old token over and over. Good tokens from such an address are still accepted, since
// machines may share it.

enum { WINDOW_MS = 60000, BAD_MAX = 20 };

// Finds the network of an address: the 2^64 addresses of an IPv6 network count as one.
static void network_of(const char *peer, char out[BRIM_POOL_ADDRESS]) {
  struct in6_addr a;
  snprintf(out, BRIM_POOL_ADDRESS, "%s", peer);
  if (inet_pton(AF_INET6, peer, &a) != 1 || IN6_IS_ADDR_V4MAPPED(&a)) return;
  memset(&a.s6_addr[8], 0, 8);
  if (!inet_ntop(AF_INET6, &a, out, BRIM_POOL_ADDRESS)) out[0] = '\0';
}

// Finds or adds the row of a network. A new row replaces the one whose window began first.
static brim_pool_offender *row_of(brim_pool_auth *auth, const char *network, int64_t now_ms) {
  brim_pool_offender *oldest = &auth->offenders[0];
  for (int i = 0; i < BRIM_POOL_OFFENDERS; i++) {
    brim_pool_offender *o = &auth->offenders[i];
    bool current = o->count > 0 && now_ms - o->since_ms < WINDOW_MS;
    if (current && strcmp(o->network, network) == 0) return o;
    if (o->since_ms < oldest->since_ms) oldest = o;
  }
  *oldest = (brim_pool_offender){.since_ms = now_ms};
  snprintf(oldest->network, sizeof oldest->network, "%s", network);
  return oldest;
}

int brim_pool_auth_bad(brim_pool_auth *auth, const char *peer, int64_t now_ms) {
  char network[BRIM_POOL_ADDRESS];
  network_of(peer, network);
  pthread_mutex_lock(&auth->mutex);
  brim_pool_offender *o = row_of(auth, network, now_ms);
  if (o->count <= BAD_MAX) o->count++;
  bool over = o->count > BAD_MAX, first = over && !o->logged;
  if (over) o->logged = true;
  int64_t left = o->since_ms + WINDOW_MS - now_ms;
  pthread_mutex_unlock(&auth->mutex);
  if (first) brim_log_warn("serve", "%s sent %d bad tokens within a minute", network, BAD_MAX + 1);
  return over ? (int)(left / 1000) + 1 : 0;
}

//------------------------------------- tokens and sessions -------------------------------------
// Only hashes of tokens are kept. Comparing two hashes takes the same time wherever they differ.

#define COOKIE "brim_session"
enum { SESSION_MS = 12 * 3600 * 1000 };

//---------------------------------- names ----------------------------------

static const char *const role_names[BRIM_ROLE_COUNT] = {
#define X(name, text) text,
    BRIM_ROLE_MAP(X)
#undef X
};

const char *brim_role_name(brim_role role) {
  return (unsigned)role < BRIM_ROLE_COUNT ? role_names[role] : "?";
}

bool brim_role_of(const char *name, brim_role *out) {
  for (int i = 0; i < BRIM_ROLE_COUNT; i++) {
    if (strcmp(name, role_names[i]) != 0) continue;
    *out = (brim_role)i;
    return true;
  }
  return false;
}

static brim_status random_bytes(uint8_t *out, size_t size) {
  for (size_t got = 0; got < size;) {
    ssize_t n = getrandom(out + got, size - got, 0);
    if (n < 0 && errno != EINTR) {
      return brim_fail(BRIM_EIO, "the kernel gives no random numbers for a token");
    }
    if (n > 0) got += (size_t)n;
  }
  return BRIM_OK;
}

// Writes 256 bits as 43 digits of base 62.
static void encode_base62(const uint8_t bytes[32], char out[44]) {
  static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  uint8_t number[32];
  memcpy(number, bytes, sizeof number);
  for (int d = 0; d < 43; d++) {
    unsigned rest = 0;
    for (int i = 0; i < 32; i++) {
      unsigned value = rest * 256 + number[i];
      number[i] = (uint8_t)(value / 62);
      rest = value % 62;
    }
    out[d] = digits[rest];
  }
  out[43] = '\0';
  explicit_bzero(number, sizeof number);
}

brim_status brim_token_make(char out[BRIM_TOKEN]) {
  uint8_t bytes[32];
  char text[44];
  BRIM_TRY(random_bytes(bytes, sizeof bytes));
  encode_base62(bytes, text);
  snprintf(out, BRIM_TOKEN, "brim_%s", text);
  explicit_bzero(bytes, sizeof bytes);
  explicit_bzero(text, sizeof text);
  return BRIM_OK;
}

void brim_token_hash(const char *token, char out[65]) {
  brim_sha256_hex(token, strlen(token), out);
}

//---------------------------------- tokens ----------------------------------

static brim_pool_token own_token(const char *id, brim_role role, const char *text) {
  brim_pool_token token = {.role = role};
  if (!text) return token;
  snprintf(token.id, sizeof token.id, "%s", id);
  brim_token_hash(text, token.sha256);
  return token;
}

void brim_pool_auth_init(brim_pool_auth *auth, const brim_lab_pool_options *o) {
  *auth = (brim_pool_auth){.open = o->open || !o->address || brim_http_is_loopback(o->address),
                           .any_name = o->open,
                           .local = own_token("local", BRIM_ROLE_WORKER, o->local_token),
                           .control = own_token("control", BRIM_ROLE_ADMIN, o->control_token)};
  pthread_mutex_init(&auth->mutex, NULL);
}

void brim_pool_auth_deinit(brim_pool_auth *auth) {
  brim_free(auth->tokens);
  pthread_mutex_destroy(&auth->mutex);
}

typedef struct loading {
  brim_pool_token *tokens;
  size_t count, capacity;
} loading;

static brim_status take_token(void *ctx, const brim_store_token *t) {
  loading *l = (loading *)ctx;
  brim_role role;
  if (!brim_role_of(t->role, &role)) return BRIM_OK;  // a role of a newer brim
  if (l->count == l->capacity) {
    size_t capacity = l->capacity ? 2 * l->capacity : 16;
    void *grown = brim_realloc(l->tokens, capacity * sizeof *l->tokens);
    if (!grown) return brim_fail(BRIM_ENOMEM, "out of memory for tokens");
    l->tokens = (brim_pool_token *)grown;
    l->capacity = capacity;
  }
  brim_pool_token *out = &l->tokens[l->count++];
  *out = (brim_pool_token){.role = role};
  snprintf(out->id, sizeof out->id, "%s", t->id);
  snprintf(out->sha256, sizeof out->sha256, "%s", t->sha256);
  return BRIM_OK;
}

// Loads the valid tokens. The first token closes an open server for good: it stays closed after a
// restart, and even if all tokens end or have unknown roles.
static brim_status load(brim_pool_auth *auth, brim_store *store) {
  loading l = {0};
  bool had = false;
  brim_status status = brim_store_tokens(store, take_token, &l);
  if (!status) status = brim_store_had_token(store, &had);
  if (status) {
    brim_free(l.tokens);
    return status;
  }
  pthread_mutex_lock(&auth->mutex);
  brim_pool_token *old = auth->tokens;
  auth->tokens = l.tokens;
  auth->count = l.count;
  if (had) auth->open = false;
  pthread_mutex_unlock(&auth->mutex);
  brim_free(old);
  return BRIM_OK;
}

static bool same_hash(const char a[65], const char b[65]) {
  unsigned char different = 0;
  for (int i = 0; i < 64; i++) different |= (unsigned char)(a[i] ^ b[i]);
  return different == 0;
}

// Finds a token by its hash. Compares all tokens, so that the time does not tell which one matched.
static const brim_pool_token *by_hash(const brim_pool_auth *auth, const char sha256[65]) {
  const brim_pool_token *found = NULL;
  if (auth->local.sha256[0] && same_hash(auth->local.sha256, sha256)) found = &auth->local;
  if (auth->control.sha256[0] && same_hash(auth->control.sha256, sha256)) found = &auth->control;
  for (size_t i = 0; i < auth->count; i++) {
    if (same_hash(auth->tokens[i].sha256, sha256)) found = &auth->tokens[i];
  }
  return found;
}

static const brim_pool_token *by_id(const brim_pool_auth *auth, const char *id) {
  for (size_t i = 0; i < auth->count; i++) {
    if (strcmp(auth->tokens[i].id, id) == 0) return &auth->tokens[i];
  }
  return NULL;
}

//---------------------------------- sessions ----------------------------------

// Computes the hash of the session cookie; false: there is no cookie.
static bool cookie_hash(const brim_http_request *request, char sha256[65]) {
  const char *all = brim_http_header(request, "Cookie");
  for (const char *p = all; p && *p;) {
    p += strspn(p, "; ");
    size_t n = strcspn(p, ";"), name = sizeof COOKIE;  // including the '='
    if (n > name && n < 128 && strncmp(p, COOKIE "=", name) == 0) {
      brim_sha256_hex(p + name, n - name, sha256);
      return true;
    }
    p += n;
  }
  return false;
}

static brim_pool_session *session_of(brim_pool_auth *auth, const char sha256[65]) {
  brim_pool_session *found = NULL;
  int64_t now = brim_clock_ms();
  for (int i = 0; i < BRIM_POOL_SESSIONS; i++) {
    brim_pool_session *s = &auth->sessions[i];
    if (s->sha256[0] && same_hash(s->sha256, sha256) && now - s->used_ms < SESSION_MS) found = s;
  }
  if (found) found->used_ms = now;
  return found;
}

// Begins the session of a page. `cookie` gets the value for Set-Cookie.
static brim_status begin_session(brim_pool_auth *auth, const char *token, bool secure,
                                 char cookie[192]) {
  char sha256[65], value[BRIM_TOKEN];
  brim_token_hash(token, sha256);
  BRIM_TRY(brim_token_make(value));
  pthread_mutex_lock(&auth->mutex);
  const brim_pool_token *t = by_hash(auth, sha256);
  brim_pool_session *s = &auth->sessions[0];  // becomes the session that was unused for longest
  for (int i = 1; i < BRIM_POOL_SESSIONS; i++) {
    if (auth->sessions[i].used_ms < s->used_ms) s = &auth->sessions[i];
  }
  if (t) {
    brim_token_hash(value, s->sha256);
    memcpy(s->token, t->id, sizeof s->token);
    memcpy(s->token_sha256, t->sha256, sizeof s->token_sha256);
    s->used_ms = brim_clock_ms();
  }
  pthread_mutex_unlock(&auth->mutex);
  if (!t) return brim_fail(BRIM_EINVAL, "the token is not known");
  snprintf(cookie, 192, COOKIE "=%s; Path=/; HttpOnly; SameSite=Strict; Max-Age=%d%s", value,
           SESSION_MS / 1000, secure ? "; Secure" : "");
  return BRIM_OK;
}

static void end_session(brim_pool_auth *auth, const brim_http_request *request) {
  char sha256[65];
  if (!cookie_hash(request, sha256)) return;
  pthread_mutex_lock(&auth->mutex);
  brim_pool_session *s = session_of(auth, sha256);
  if (s) *s = (brim_pool_session){0};
  pthread_mutex_unlock(&auth->mutex);
}

//---------------------------------- a request ----------------------------------

// True if the request comes from the server's own page. A page of another site can send requests with
// the session cookie, or reach this machine by a name of its own (DNS rebinding), but it cannot choose
// the headers Origin and Host.
static bool same_site(const brim_http_request *request, bool needed) {
  const char *origin = brim_http_header(request, "Origin"),
             *host = brim_http_header(request, "Host");
  if (!origin) return !needed;
  const char *from = strstr(origin, "://");
  return from && host && strcasecmp(from + 3, host) == 0;
}

static int check_locked(brim_pool_auth *auth, const brim_http_request *request,
                        brim_pool_caller *out) {
  const char *header = brim_http_header(request, "Authorization");
  const brim_pool_token *token = NULL;
  char sha256[65];
  if (header) {
    if (strncasecmp(header, "Bearer ", 7) != 0) return 401;
    brim_token_hash(header + 7, sha256);
    token = by_hash(auth, sha256);
  } else if (cookie_hash(request, sha256)) {
    const brim_pool_session *s = session_of(auth, sha256);
    token = s ? by_id(auth, s->token) : NULL;
    if (token && !same_hash(token->sha256, s->token_sha256)) token = NULL;  // replaced
    out->cookie = token != NULL;
  }
  if (!token) return 401;
  memcpy(out->id, token->id, sizeof out->id);
  out->role = token->role;
  return 0;
}

static bool is_read(const brim_http_request *request) {
  return strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0;
}

// Checks Host and Origin of a request. `open`: callers need no token.
static int check_page(const brim_pool_auth *auth, const brim_http_request *request, bool open,
                      bool cookie) {
  const char *host = brim_http_header(request, "Host");
  if (open && !auth->any_name && !(host && brim_http_is_loopback(host))) return 403;
  return is_read(request) || same_site(request, cookie) ? 0 : 403;
}

// Checks Host and Origin of a request that needs no token. Returns 0 or 403.
static int page_refused(brim_pool_auth *auth, const brim_http_request *request) {
  pthread_mutex_lock(&auth->mutex);
  bool open = auth->open;
  pthread_mutex_unlock(&auth->mutex);
  return check_page(auth, request, open, false);
}

int brim_pool_auth_check(brim_pool_auth *auth, const brim_http_request *request,
                         brim_pool_caller *out) {
  *out = (brim_pool_caller){.role = BRIM_ROLE_ADMIN};
  pthread_mutex_lock(&auth->mutex);
  // The worker of this machine sends its token even if none is needed.
  bool open = auth->open && !brim_http_header(request, "Authorization");
  int refused = open ? 0 : check_locked(auth, request, out);
  pthread_mutex_unlock(&auth->mutex);
  if (refused) return refused;
  return open || out->cookie ? check_page(auth, request, open, out->cookie) : 0;
}

static bool refuse(brim_http_reply *reply, int status, const char *why) {
  brim_http_reply_error(reply, status, why);
  if (status == 401) brim_http_reply_header(reply, "WWW-Authenticate", "Bearer");
  return false;
}

// Refuses an unknown token. An address that sends too many bad tokens has to wait.
static bool refuse_token(brim_lab_pool *pool, const brim_http_request *request,
                         brim_http_reply *reply, const char *why) {
  char seconds[16];
  int wait = brim_pool_auth_bad(&pool->auth, request->peer, brim_clock_ms());
  if (!wait) return refuse(reply, 401, why);
  snprintf(seconds, sizeof seconds, "%d", wait);
  brim_http_reply_header(reply, "Retry-After", seconds);
  return refuse(reply, 429, "too many bad tokens from this address");
}

bool brim_pool_auth_admit(brim_lab_pool *pool, const brim_http_request *request,
                          const brim_pool_route *route, bool known, brim_pool_caller *caller,
                          brim_http_reply *reply) {
  // Check the token before the path: a caller without a token must not learn which paths exist.
  bool open = route && route->open;
  int refused = open ? page_refused(&pool->auth, request)
                     : brim_pool_auth_check(&pool->auth, request, caller);
  if (refused == 401 && brim_http_header(request, "Authorization")) {
    return refuse_token(pool, request, reply, "a valid token is needed");
  }
  if (refused == 401) return refuse(reply, 401, "a valid token is needed");
  if (refused) return refuse(reply, refused, "not from this page");
  if (!route) return refuse(reply, known ? 405 : 404, "there is nothing at this path");
  if (open || brim_role_allows(caller->role, route->role)) return true;
  return refuse(reply, 403, "the token's role does not allow this");
}

//---------------------------------- sessions of pages ----------------------------------

static void serve_session(brim_lab_pool *pool, const brim_pool_caller *caller,
                          const brim_http_request *request, brim_http_reply *reply) {
  (void)caller;
  json_t *body = NULL;
  char cookie[192];
  if (strcmp(request->method, "DELETE") == 0) {
    end_session(&pool->auth, request);
    brim_http_reply_header(reply, "Set-Cookie", "brim_session=; Path=/; Max-Age=0");
    brim_str_append(&reply->body, "{\"ok\":true}\n");
    return;
  }
  brim_status status = brim_pool_body(request, BRIM_JSON_VALUES_SMALL, &body);
  const char *token = json_string_value(json_object_get(body, "token"));
  if (!status) {
    status =
        begin_session(&pool->auth, token ? token : "", pool->options.certificate != NULL, cookie);
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

//------------------------------------ requests about tokens ------------------------------------
// /v1/tokens lists, makes, replaces and ends tokens while the server runs. Only the reply that makes a
// token contains it.

bool brim_token_is_name(const char *text) {
  size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-");
  // The server itself uses these two names.
  return n > 0 && n <= 32 && text[n] == '\0' && strcmp(text, "local") != 0 &&
         strcmp(text, "control") != 0;
}

static brim_status put_token(void *ctx, const brim_store_token *t) {
  json_t *row = json_object();
  BRIM_TRY(brim_json_push((json_t *)ctx, row));
  BRIM_TRY(brim_json_put(row, "id", json_string(t->id)));
  BRIM_TRY(brim_json_put(row, "role", json_string(t->role)));
  return brim_json_put(row, "created", json_integer(t->created));
}

static void serve_tokens(brim_lab_pool *pool, const brim_pool_caller *caller,
                         const brim_http_request *http, brim_http_reply *reply) {
  json_t *out = json_object(), *list = json_array();
  (void)caller;
  (void)http;
  brim_status status = brim_json_put(out, "tokens", list);
  pthread_mutex_lock(&pool->lock);
  if (!status) status = brim_store_tokens(pool->options.store, put_token, list);
  pthread_mutex_unlock(&pool->lock);
  brim_pool_reply_line(reply, out, status);
}

typedef struct change {
  const char *id, *role, *sha256;  // role NULL: replace the token; sha256 NULL: end it
} change;

// Changes a token in the store, and loads all tokens again so that the change takes effect at once.
static brim_status change_token(brim_lab_pool *pool, const brim_pool_caller *caller,
                                const change *c) {
  brim_store *store = pool->options.store;
  const brim_store_token row = {.id = c->id, .role = c->role, .sha256 = c->sha256};
  pthread_mutex_lock(&pool->lock);
  brim_store_set_author(store, caller->id);
  brim_status status = !c->sha256 ? brim_store_token_end(store, c->id)
                       : c->role  ? brim_store_token_add(store, &row)
                                  : brim_store_token_rotate(store, c->id, c->sha256);
  brim_store_set_author(store, "");
  if (!status) status = load(&pool->auth, store);
  if (!status && brim_pool_feed_read(&pool->feed, store)) brim_status_clear();
  pthread_mutex_unlock(&pool->lock);
  return status;
}

static brim_status make_token(brim_lab_pool *pool, const brim_pool_caller *caller, const char *id,
                              const char *role, json_t *out) {
  char token[BRIM_TOKEN], sha256[65];
  BRIM_TRY(brim_token_make(token));
  brim_token_hash(token, sha256);
  const change c = {.id = id, .role = role, .sha256 = sha256};
  brim_status status = change_token(pool, caller, &c);
  if (!status) status = brim_json_put(out, "id", json_string(id));
  if (!status && role) status = brim_json_put(out, "role", json_string(role));
  if (!status) status = brim_json_put(out, "token", json_string(token));
  explicit_bzero(token, sizeof token);
  return status;
}

static brim_status add(brim_lab_pool *pool, const brim_pool_caller *caller, const json_t *body,
                       json_t *out) {
  const char *id = "", *role = "read";
  brim_role known;
  BRIM_TRY(brim_lab_wire_string(body, "id", true, &id));
  BRIM_TRY(brim_lab_wire_string(body, "role", false, &role));
  if (!brim_token_is_name(id)) {
    return brim_fail(BRIM_EINVAL,
                     "the name of a token has 1 to 32 of a-z, 0-9 and -, and is not local or "
                     "control");
  }
  if (!brim_role_of(role, &known)) {
    return brim_fail(BRIM_EINVAL, "a role is read, submit, worker or admin");
  }
  return make_token(pool, caller, id, role, out);
}

static void serve_new_token(brim_lab_pool *pool, const brim_pool_caller *caller,
                            const brim_http_request *http, brim_http_reply *reply) {
  json_t *body = NULL, *out = json_object();
  brim_status status = brim_pool_body(http, BRIM_JSON_VALUES_SMALL, &body);
  if (!status) status = add(pool, caller, body, out);
  json_decref(body);
  brim_pool_reply_line(reply, out, status);
}

// Copies the part of the path behind v1/tokens/.
static const char *id_of(const brim_http_request *http, char id[65]) {
  const char *at = http->path + strlen("/v1/tokens/");
  snprintf(id, 65, "%.*s", (int)(strcspn(at, "/") < 64 ? strcspn(at, "/") : 64), at);
  return id;
}

static void serve_rotated_token(brim_lab_pool *pool, const brim_pool_caller *caller,
                                const brim_http_request *http, brim_http_reply *reply) {
  char id[65];
  json_t *body = NULL, *out = json_object();
  brim_status status =
      http->body_size > 0 ? brim_pool_body(http, BRIM_JSON_VALUES_SMALL, &body) : BRIM_OK;
  json_decref(body);
  if (!status) status = make_token(pool, caller, id_of(http, id), NULL, out);
  brim_pool_reply_line(reply, out, status);
}

static void serve_ended_token(brim_lab_pool *pool, const brim_pool_caller *caller,
                              const brim_http_request *http, brim_http_reply *reply) {
  char id[65];
  const change c = {.id = id_of(http, id)};
  brim_pool_reply_line(reply, json_object(), change_token(pool, caller, &c));
}

const brim_pool_route brim_pool_auth_routes[] = {
    BRIM_POOL_OWN("GET", "v1/tokens", ADMIN, serve_tokens, 0),
    BRIM_POOL_OWN("POST", "v1/tokens", ADMIN, serve_new_token, BRIM_POOL_BODY_SMALL),
    BRIM_POOL_OWN("POST", "v1/tokens/:token/rotate", ADMIN, serve_rotated_token,
                  BRIM_POOL_BODY_SMALL),
    BRIM_POOL_OWN("DELETE", "v1/tokens/:token", ADMIN, serve_ended_token, 0),
    BRIM_POOL_OPEN("POST", "v1/session", serve_session, BRIM_POOL_BODY_SMALL),
    BRIM_POOL_OPEN("DELETE", "v1/session", serve_session, 0),
    {0},
};

//---------------------------------- the part ----------------------------------

static brim_status load_tokens(brim_lab_pool *pool) {
  pthread_mutex_lock(&pool->lock);
  brim_status status = load(&pool->auth, pool->options.store);
  pthread_mutex_unlock(&pool->lock);
  return status;
}

static brim_status open_auth(brim_lab_pool *pool) {
  brim_pool_auth_init(&pool->auth, &pool->options);
  brim_status status = load_tokens(pool);
  if (status) brim_pool_auth_deinit(&pool->auth);
  return status;
}

static void close_auth(brim_lab_pool *pool) { brim_pool_auth_deinit(&pool->auth); }

const brim_pool_part brim_pool_auth_part = {
    .open = open_auth, .tend = load_tokens, .close = close_auth};
