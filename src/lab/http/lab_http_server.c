// The server on libmicrohttpd (lab_http.h), one thread per connection. It suspends no connections:
// before version 1.0.3 the library may then leave ready connections waiting. The library is loaded when
// a server is opened, so other commands do not wait for it.

#include "lab/http/lab_http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_dl.h"
#include "base/base_fs.h"
#include "base/base_json.h"
#include "base/base_log.h"
#include "base/base_status.h"
#include "base/base_thread.h"
#include "lab/http/lab_http_url.h"

#define MHD_MAP(X)                                  \
  X(start_daemon)                                   \
  X(stop_daemon)                                    \
  X(lookup_connection_value)                        \
  X(get_connection_values)                          \
  X(get_connection_info)                            \
  X(create_response_from_callback)                  \
  X(create_response_from_buffer)                    \
  X(create_response_from_buffer_with_free_callback) \
  X(create_response_from_fd_at_offset64)            \
  X(add_response_header)                            \
  X(queue_response)                                 \
  X(destroy_response)

typedef struct mhd_api {
#define X(name) __typeof__(&MHD_##name) name;
  MHD_MAP(X)
#undef X
} mhd_api;

enum {
  DEFAULT_CONNECTIONS = 1000,
  DEFAULT_IDLE_MS = 75000,
  STREAM_BUFFER = 64 << 10,
  DEFAULT_REQUEST_MS = 30000,
  HEAD_MEMORY = 32 << 10,  // bytes for the headers of a connection
  STACK = 512 << 10,
  BLOCK = 16 << 10,
  BODIES_MAX = 128 << 20,
  BODY_SMALL = 4 << 10,  // bodies up to this are not counted: 1000 of them have 4 MiB
  PEM_MAX = 1 << 20,
  VALUES = 16,  // values of a query
  BACKLOG = 511,
  LOOK_NS = 500000000  // between two looks of the watch
};

//-------------------------------------------- watch --------------------------------------------
// Cuts off connections that take too long over a request. libmicrohttpd's own limit starts again with
// every byte, so a slow client would keep its thread for ever. The library's threads also spin in the
// last second of that limit: 200 of them delayed all requests by half a second. So the watch has
// shorter limits than the library, for idle connections and listeners too.

typedef enum conn_phase {
  PHASE_IDLE,     // between requests
  PHASE_READING,  // a request has begun and is not complete
  PHASE_SERVING,  // its handler runs, or the reply is sent
  PHASE_STREAM,   // the client, a listener, has to take the news that are sent
} conn_phase;

// A connection as the watch sees it.
typedef struct conn {
  struct conn *next, **link;
  int fd;
  conn_phase phase;
  int64_t since_ms;
  int64_t stream_ms;  // time limit of a listener that reads nothing; 0 = no listener
} conn;

typedef struct conn_watch {
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  struct brim_thread *thread;  // NULL: the watch does not run
  bool ends;
  conn *peers;
  int count;
  unsigned streams;  // number of streams so far
  int64_t idle_ms, request_ms;
} conn_watch;

static void cut_off(const conn_watch *w) {
  int64_t now = brim_clock_ms();
  for (const conn *p = w->peers; p; p = p->next) {
    int64_t most = p->phase == PHASE_IDLE     ? w->idle_ms
                   : p->phase == PHASE_STREAM ? p->stream_ms
                                              : w->request_ms;
    if (p->phase == PHASE_SERVING || now - p->since_ms < most) continue;
    (void)shutdown(p->fd, SHUT_RDWR);  // its thread then reads the end and closes it
  }
}

static void watching(void *arg) {
  conn_watch *w = arg;
  pthread_mutex_lock(&w->mutex);
  while (!w->ends) {
    (void)brim_cond_wait(&w->wake, &w->mutex, brim_clock_now().ns + LOOK_NS);
    if (!w->ends) cut_off(w);
  }
  pthread_mutex_unlock(&w->mutex);
}

static brim_status watch_start(conn_watch *w) {
  pthread_mutex_init(&w->mutex, NULL);
  if (brim_cond_init(&w->wake)) {
    pthread_mutex_destroy(&w->mutex);
    return brim_fail(BRIM_EIO, "cannot start a thread for the server");
  }
  brim_status status = brim_thread_start(watching, w, "brim-watch", &w->thread);
  if (!status) return BRIM_OK;
  pthread_cond_destroy(&w->wake);
  pthread_mutex_destroy(&w->mutex);
  return status;
}

static void watch_stop(conn_watch *w) {
  if (!w->thread) return;
  pthread_mutex_lock(&w->mutex);
  w->ends = true;
  pthread_cond_signal(&w->wake);
  pthread_mutex_unlock(&w->mutex);
  brim_thread_join(w->thread);
  w->thread = NULL;
  pthread_cond_destroy(&w->wake);
  pthread_mutex_destroy(&w->mutex);
}

static void watch_add(conn_watch *w, conn *peer, int fd) {
  pthread_mutex_lock(&w->mutex);
  *peer = (conn){.next = w->peers, .link = &w->peers, .fd = fd, .since_ms = brim_clock_ms()};
  peer->phase = PHASE_READING;  // the first request has to come at once
  if (w->peers) w->peers->link = &peer->next;
  w->peers = peer;
  w->count++;
  pthread_mutex_unlock(&w->mutex);
}

static void watch_remove(conn_watch *w, conn *peer) {
  pthread_mutex_lock(&w->mutex);
  *peer->link = peer->next;
  if (peer->next) peer->next->link = peer->link;
  w->count--;
  pthread_mutex_unlock(&w->mutex);
}

static void watch_phase(conn_watch *w, conn *peer, conn_phase phase) {
  if (!peer) return;
  pthread_mutex_lock(&w->mutex);
  peer->phase = phase;
  peer->since_ms = brim_clock_ms();
  pthread_mutex_unlock(&w->mutex);
}

// Begins the time limit of a listener that gets news. The limit is 0.6 to 1.4 times that of an idle
// connection, so that listeners hit by the same outage are not cut off at the same moment.
static void watch_stream(conn_watch *w, conn *peer) {
  if (!peer) return;
  pthread_mutex_lock(&w->mutex);
  if (peer->stream_ms == 0) peer->stream_ms = w->idle_ms * (60 + w->streams++ * 37 % 81) / 100;
  peer->phase = PHASE_STREAM;
  peer->since_ms = brim_clock_ms();
  pthread_mutex_unlock(&w->mutex);
}

//------------------------------------------- requests ------------------------------------------

struct brim_http_server {
  brim_http_options options;
  mhd_api mhd;
  brim_dl *dl;
  struct MHD_Daemon *daemon;
  conn_watch watch;
  char *certificate, *key;
  int port;
  atomic_bool stopping;
  atomic_size_t bodies;  // bytes of all bodies that are being received or handled
};

typedef struct request {
  brim_http_request pub;
  brim_http_server *server;
  struct MHD_Connection *connection;
  conn *peer;
  char path[BRIM_HTTP_PATH_MAX], address[64];
  char *body;  // from its first byte on: `length` bytes and a NUL
  size_t length, got, counted;
  struct {
    const char *raw;
    char *text;  // decoded; never moves until the request ends
  } values[VALUES];
  int value_count;
  bool begun;
} request;

//---------------------------------- values of a request ----------------------------------

const char *brim_http_header(const brim_http_request *r, const char *name) {
  const request *q = (const request *)r->impl;
  return q->server->mhd.lookup_connection_value(q->connection, MHD_HEADER_KIND, name);
}

// Keeps decoded values until the request ends, and finds them again by the library's pointer to the raw
// value.
const char *brim_http_query(const brim_http_request *r, const char *name) {
  request *q = (request *)r->impl;
  const char *raw =
      q->server->mhd.lookup_connection_value(q->connection, MHD_GET_ARGUMENT_KIND, name);
  char value[BRIM_HTTP_PATH_MAX];
  if (!raw) return NULL;
  for (int i = 0; i < q->value_count; i++) {
    if (q->values[i].raw == raw) return q->values[i].text;
  }
  if (q->value_count == VALUES) return NULL;
  if (brim_http_value_decode(raw, value, sizeof value)) {
    brim_status_clear();
    return NULL;
  }
  char *text = brim_strdup(value);
  if (!text) return NULL;
  q->values[q->value_count].raw = raw;
  q->values[q->value_count++].text = text;
  return text;
}

static void set_peer(request *q) {
  const union MHD_ConnectionInfo *info =
      q->server->mhd.get_connection_info(q->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  const struct sockaddr *a = info ? info->client_addr : NULL;
  const void *from = NULL;
  if (a && a->sa_family == AF_INET) from = &((const struct sockaddr_in *)(const void *)a)->sin_addr;
  if (a && a->sa_family == AF_INET6) {
    from = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
  }
  if (!from || !inet_ntop(a->sa_family, from, q->address, sizeof q->address)) {
    snprintf(q->address, sizeof q->address, "unknown");
  }
}

//---------------------------------- checking the form ----------------------------------

typedef struct form {
  int lengths, encodings, hosts, authorizations, odd, bad_values;
  const char *length;
  const char *head, *head_end;  // bytes of the head; the library has put NULs between its parts
  const char *value_end;        // end of the value seen last; NULL if it is not in the head
} form;

// True if the library and a proxy in front of the server may read different names. The library takes
// "Content-Length : 5" as a header of another name, and before 0.9.77 it reads the folded
// "Content-Length:\r\n 5" as "Content-Length5".
static bool is_odd_name(const char *name) {
  static const char letters[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~";
  static const char *const framing[] = {"Content-Length", "Transfer-Encoding"};
  if (!*name || name[strspn(name, letters)]) return true;
  for (size_t i = 0; i < sizeof framing / sizeof *framing; i++) {
    size_t n = strlen(framing[i]);
    if (strncasecmp(name, framing[i], n) == 0 && name[n]) return true;
  }
  return false;
}

static bool has_control(const char *value) {
  for (; value && *value; value++) {
    if (((unsigned char)*value < 0x20 && *value != '\t') || *value == 0x7f) return true;
  }
  return false;
}

static bool in_head(const form *f, const char *at) { return at >= f->head && at < f->head_end; }

// True if there is text between the end of the last value and `next`. A NUL inside a value ends it for
// the library, but not for a proxy in front of the server.
static bool hides_text(const form *f, const char *next) {
  if (!f->value_end || next < f->value_end) return false;
  for (const char *p = f->value_end; p < next; p++) {
    if (*p && !strchr(" \t\r\n", *p)) return true;
  }
  return false;
}

static enum MHD_Result count_header(void *ctx, enum MHD_ValueKind kind, const char *key,
                                    const char *value) {
  form *f = (form *)ctx;
  (void)kind;
  if (strcasecmp(key, "Content-Length") == 0) {
    f->lengths++;
    f->length = value;
  }
  f->encodings += strcasecmp(key, "Transfer-Encoding") == 0;
  f->hosts += strcasecmp(key, "Host") == 0;
  f->authorizations += strcasecmp(key, "Authorization") == 0;
  f->odd += is_odd_name(key) || has_control(value) || (in_head(f, key) && hides_text(f, key));
  f->value_end = value && in_head(f, value) ? value + strlen(value) : NULL;
  return MHD_YES;
}

static enum MHD_Result check_value(void *ctx, enum MHD_ValueKind kind, const char *key,
                                   const char *value) {
  form *f = (form *)ctx;
  char decoded[BRIM_HTTP_PATH_MAX];
  (void)kind;
  (void)key;
  if (value && brim_http_value_decode(value, decoded, sizeof decoded)) f->bad_values++;
  return MHD_YES;
}

static bool read_length(const char *text, size_t *out) {
  size_t n = text ? strlen(text) : 0;
  *out = 0;
  if (!text) return true;
  if (n == 0 || n > 12 || strspn(text, "0123456789") != n) return false;
  for (; *text; text++) *out = *out * 10 + (size_t)(*text - '0');
  return true;
}

// Refuses requests that brim and a proxy may read differently (request smuggling).
static bool check_form(request *q, size_t *length, brim_http_reply *reply) {
  const union MHD_ConnectionInfo *info =
      q->server->mhd.get_connection_info(q->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
  form f = {.head = q->pub.method, .head_end = q->pub.method + (info ? info->header_size : 0)};
  q->server->mhd.get_connection_values(q->connection, MHD_HEADER_KIND, count_header, &f);
  f.odd += hides_text(&f, f.head_end);
  q->server->mhd.get_connection_values(q->connection, MHD_GET_ARGUMENT_KIND, check_value, &f);
  const char *wrong = NULL;
  if (f.encodings > 0) wrong = "a Transfer-Encoding is not accepted; send a Content-Length";
  if (f.lengths > 1) wrong = "two headers Content-Length";
  if (f.hosts > 1) wrong = "two headers Host";
  if (f.authorizations > 1) wrong = "two headers Authorization";
  if (f.odd > 0) wrong = "a header is malformed";
  if (f.bad_values > 0) wrong = "a value of the request's query is malformed or too long";
  if (!wrong && !read_length(f.length, length)) wrong = "the Content-Length is no number";
  brim_status_clear();
  if (!wrong) return true;
  brim_http_reply_error(reply, 400, wrong);
  return false;
}

//---------------------------------- replies ----------------------------------

void brim_http_reply_header(brim_http_reply *reply, const char *name, const char *value) {
  if (reply->header_count == BRIM_HTTP_HEADERS) return;
  reply->headers[reply->header_count].name = name;
  snprintf(reply->headers[reply->header_count].value, sizeof reply->headers[0].value, "%s", value);
  reply->header_count++;
}

void brim_http_reply_error(brim_http_reply *reply, int status, const char *text) {
  char *line = NULL;
  json_t *o = json_object();
  if (!brim_json_put(o, "error", json_string(text)) && !brim_json_dump(o, 0, &line)) {
    brim_str_clear(&reply->body);
    brim_str_append(&reply->body, line);
    brim_str_append_char(&reply->body, '\n');
  }
  brim_free(line);
  json_decref(o);
  reply->status = status;
  reply->type = NULL;
}

typedef struct stream {
  brim_http_server *server;
  conn *peer;
  brim_status (*more)(void *ctx, brim_str *out);
  void (*end)(void *ctx);
  void *ctx;
  brim_str text;
  size_t at;  // bytes of `text` that are sent
} stream;

static ssize_t read_stream(void *ctx, uint64_t pos, char *out, size_t size) {
  stream *s = (stream *)ctx;
  (void)pos;
  watch_phase(&s->server->watch, s->peer, PHASE_SERVING);  // the client has taken all earlier bytes
  while (s->at == s->text.len) {
    brim_str_clear(&s->text);
    s->at = 0;
    if (atomic_load(&s->server->stopping)) return MHD_CONTENT_READER_END_OF_STREAM;
    if (s->more(s->ctx, &s->text) || brim_str_status(&s->text)) {
      return MHD_CONTENT_READER_END_OF_STREAM;
    }
  }
  size_t n = s->text.len - s->at < size ? s->text.len - s->at : size;
  memcpy(out, s->text.data + s->at, n);
  s->at += n;
  watch_stream(&s->server->watch, s->peer);
  return (ssize_t)n;
}

static void free_stream(void *ctx) {
  stream *s = (stream *)ctx;
  if (s->end) s->end(s->ctx);
  brim_str_deinit(&s->text);
  brim_free(s);
}

static struct MHD_Response *make_stream(const request *q, const brim_http_reply *reply) {
  brim_http_server *server = q->server;
  stream *s = (stream *)brim_calloc(1, sizeof *s);
  if (!s) {
    if (reply->end) reply->end(reply->ctx);
    return NULL;
  }
  *s = (stream){
      .server = server, .peer = q->peer, .more = reply->more, .end = reply->end, .ctx = reply->ctx};
  brim_str_init(&s->text);
  struct MHD_Response *r = server->mhd.create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK,
                                                                     read_stream, s, free_stream);
  if (!r) free_stream(s);
  return r;
}

static struct MHD_Response *make_response(const request *q, brim_http_reply *reply) {
  brim_http_server *server = q->server;
  if (reply->more) return make_stream(q, reply);
  if (reply->has_fd) {
    struct MHD_Response *r =
        server->mhd.create_response_from_fd_at_offset64(reply->fd_size, reply->fd, reply->fd_from);
    if (!r) close(reply->fd);
    return r;
  }
  if (reply->file) {
    union {
      const void *in;
      void *out;
    } bytes = {reply->file};  // the library does not write to these bytes
    return server->mhd.create_response_from_buffer(reply->file_size, bytes.out,
                                                   MHD_RESPMEM_PERSISTENT);
  }
  size_t size = reply->body.len;
  char *text = brim_str_take(&reply->body);
  if (!text) return NULL;
  struct MHD_Response *r =
      server->mhd.create_response_from_buffer_with_free_callback(size, text, brim_free);
  if (!r) brim_free(text);
  return r;
}

// Limits the kernel's send buffer, which defaults to megabytes: a listener that does not read fills it.
static void limit_sending(const request *q) {
  const union MHD_ConnectionInfo *info =
      q->server->mhd.get_connection_info(q->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  const int bytes = STREAM_BUFFER;
  if (info) (void)setsockopt(info->connect_fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

static enum MHD_Result send_reply(request *q, brim_http_reply *reply, bool close_after) {
  const mhd_api *m = &q->server->mhd;
  if (reply->more) limit_sending(q);
  struct MHD_Response *r = make_response(q, reply);
  if (!r) return MHD_NO;
  const char *type = reply->type ? reply->type : "application/json; charset=utf-8";
  enum MHD_Result good = m->add_response_header(r, "Content-Type", type);
  for (int i = 0; good && i < reply->header_count; i++) {
    good = m->add_response_header(r, reply->headers[i].name, reply->headers[i].value);
  }
  if (good && close_after) good = m->add_response_header(r, "Connection", "close");
  if (good)
    good = m->queue_response(q->connection, (unsigned)(reply->status ? reply->status : 200), r);
  m->destroy_response(r);
  return good;
}

//---------------------------------- a request ----------------------------------

static conn *peer_of(const brim_http_server *server, struct MHD_Connection *connection) {
  const union MHD_ConnectionInfo *info =
      server->mhd.get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  return info ? (conn *)info->socket_context : NULL;
}

// Called after the first line of a request was read. The library passes the result to each later call.
static void *begin(void *ctx, const char *uri, struct MHD_Connection *connection) {
  brim_http_server *server = (brim_http_server *)ctx;
  request *q = (request *)brim_calloc(1, sizeof *q);
  watch_phase(&server->watch, peer_of(server, connection), PHASE_READING);
  (void)uri;
  if (!q) return NULL;
  q->server = server;
  q->connection = connection;
  q->peer = peer_of(server, connection);
  q->pub = (brim_http_request){.path = q->path, .peer = q->address, .body = "", .impl = q};
  return q;
}

// Keeps paths and values escaped, since brim decodes them itself, exactly once.
static size_t leave_escaped(void *ctx, struct MHD_Connection *connection, char *text) {
  (void)ctx;
  (void)connection;
  return strlen(text);
}

// Counts the body against the limit of all bodies: a slow body stays in memory until it is complete.
static bool count_body(request *q, brim_http_reply *reply) {
  brim_http_server *s = q->server;
  if (q->length <= BODY_SMALL) return true;
  size_t before = atomic_fetch_add(&s->bodies, q->length), most = s->options.bodies_max;
  if (q->length <= most && before <= most - q->length) {
    q->counted = q->length;
    return true;
  }
  atomic_fetch_sub(&s->bodies, q->length);
  brim_http_reply_header(reply, "Retry-After", "1");
  brim_http_reply_error(reply, 503, "too many bytes of other requests are on their way");
  return false;
}

static bool admit(request *q, const char *url, brim_http_reply *reply) {
  size_t most = 0;
  set_peer(q);
  if (!check_form(q, &q->length, reply)) return false;
  if (brim_http_path_decode(url, q->path, sizeof q->path)) {
    brim_http_reply_error(reply, 400, brim_status_detail());
    brim_status_clear();
    return false;
  }
  if (!q->server->options.admit(q->server->options.ctx, &q->pub, reply, &most)) return false;
  if (q->length <= most) return count_body(q, reply);
  char text[96];
  snprintf(text, sizeof text, "the body has %zu bytes; at most %zu are taken here", q->length,
           most);
  brim_http_reply_error(reply, 413, text);
  return false;
}

// Allocates the whole body at its first byte. The library never passes bytes beyond the Content-Length.
static bool take_body(request *q, const char *data, size_t size) {
  if (!q->body) q->body = (char *)brim_alloc(q->length + 1);
  if (!q->body || size > q->length - q->got) return false;
  memcpy(q->body + q->got, data, size);
  q->got += size;
  q->body[q->got] = '\0';
  return true;
}

static enum MHD_Result answer_mhd(void *ctx, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **state) {
  request *q = (request *)*state;
  brim_http_server *server = (brim_http_server *)ctx;
  (void)connection;
  (void)version;
  if (!q) return MHD_NO;  // out of memory
  brim_http_reply reply = {0};
  brim_str_init(&reply.body);
  enum MHD_Result result = MHD_YES;
  if (!q->begun) {
    q->begun = true;
    q->pub.method = method;
    if (!admit(q, url, &reply)) result = send_reply(q, &reply, true);
  } else if (*size > 0) {
    if (!take_body(q, data, *size)) return MHD_NO;  // out of memory
    *size = 0;
  } else {
    watch_phase(&server->watch, q->peer, PHASE_SERVING);
    if (q->body) q->pub.body = q->body;
    q->pub.body_size = q->got;
    server->options.serve(server->options.ctx, &q->pub, &reply);
    result = send_reply(q, &reply, false);
  }
  brim_str_deinit(&reply.body);
  return result;
}

static void request_ended(void *ctx, struct MHD_Connection *connection, void **state,
                          enum MHD_RequestTerminationCode how) {
  brim_http_server *server = (brim_http_server *)ctx;
  request *q = (request *)*state;
  (void)connection;
  (void)how;
  if (!q) return;
  watch_phase(&server->watch, q->peer, PHASE_IDLE);
  atomic_fetch_sub(&server->bodies, q->counted);
  brim_free(q->body);
  for (int i = 0; i < q->value_count; i++) brim_free(q->values[i].text);
  brim_free(q);
  *state = NULL;
}

static void connection_changed(void *ctx, struct MHD_Connection *connection, void **peer,
                               enum MHD_ConnectionNotificationCode what) {
  brim_http_server *server = (brim_http_server *)ctx;
  if (what == MHD_CONNECTION_NOTIFY_STARTED) {
    const union MHD_ConnectionInfo *info =
        server->mhd.get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    conn *p = (conn *)brim_calloc(1, sizeof *p);
    *peer = p;
    if (p) watch_add(&server->watch, p, info ? info->connect_fd : -1);
  } else if (*peer) {
    watch_remove(&server->watch, (conn *)*peer);
    brim_free(*peer);
    *peer = NULL;
  }
}

static void log_line(void *ctx, const char *format, va_list args) BRIM_PRINTF(2, 0);
static void log_line(void *ctx, const char *format, va_list args) {
  char text[256];
  (void)ctx;
  vsnprintf(text, sizeof text, format, args);
  text[strcspn(text, "\n")] = '\0';
  brim_log_debug("http", "%s", text);
}

//---------------------------------- opening ----------------------------------

// Listens at an address. Returns 0 or an errno.
static int listen_at(const struct addrinfo *a, int *out) {
  int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int on = 1, off = 0;
  if (fd < 0) return errno;
  int err = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ? errno : 0;
  if (a->ai_family == AF_INET6) (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (!err && bind(fd, a->ai_addr, a->ai_addrlen) != 0) err = errno;
  if (!err && listen(fd, BACKLOG) != 0) err = errno;
  if (err) {
    close(fd);
    return err;
  }
  *out = fd;
  return 0;
}

static int port_of(int fd) {
  struct sockaddr_storage a;
  socklen_t size = sizeof a;
  if (getsockname(fd, (struct sockaddr *)&a, &size) != 0) return 0;
  if (a.ss_family == AF_INET6) return ntohs(((const struct sockaddr_in6 *)&a)->sin6_port);
  return ntohs(((const struct sockaddr_in *)&a)->sin_port);
}

// Makes the listening socket before the library starts, so that a failure names the port or the
// address. *bound: the port.
static brim_status listen_for(const char *address, int port, int *fd, int *bound) {
  struct addrinfo how = {
      .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
  struct addrinfo *found = NULL;
  char service[16];
  snprintf(service, sizeof service, "%d", port);
  int code = getaddrinfo(address, service, &how, &found);
  if (code != 0) {
    return brim_fail(BRIM_EINVAL, "the address %s cannot be used: %s", address, gai_strerror(code));
  }
  int err = EADDRNOTAVAIL;
  for (const struct addrinfo *a = found; a && err; a = a->ai_next) err = listen_at(a, fd);
  freeaddrinfo(found);
  if (err == EADDRINUSE) {
    return brim_fail(BRIM_EEXIST, "another program listens at %s, port %d", address, port);
  }
  if (err) {
    return brim_fail(brim_errno_status(err), "cannot listen at %s, port %d: %s", address, port,
                     brim_errno_text(err));
  }
  *bound = port_of(*fd);
  return BRIM_OK;
}

// Loads libmicrohttpd. BRIM_EUNSUPPORTED: it is not installed; the detail says how to install it.
static brim_status load(mhd_api *out, brim_dl **dl) {
  static const char *const names[] = {"libmicrohttpd.so.12", NULL};
  const brim_dl_symbol symbols[] = {
#define X(name) {"MHD_" #name, (void **)(void *)&out->name, true},
      MHD_MAP(X)
#undef X
  };
  // Never unload the library: its threads may still be about to end.
  if (!brim_dl_open(names, symbols, sizeof symbols / sizeof *symbols, true, dl)) return BRIM_OK;
  return brim_fail(BRIM_EUNSUPPORTED,
                   "the server needs libmicrohttpd 0.9.75 or later (Debian: apt-get install "
                   "libmicrohttpd12): %s",
                   brim_status_detail());
}

static brim_status start(brim_http_server *s, int fd) {
  const brim_http_options *o = &s->options;
  unsigned flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
                   MHD_USE_ERROR_LOG | (s->certificate ? (unsigned)MHD_USE_TLS : 0u);
  struct MHD_OptionItem tls[] = {
      {MHD_OPTION_HTTPS_MEM_CERT, 0, s->certificate},
      {MHD_OPTION_HTTPS_MEM_KEY, 0, s->key},
      {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)"NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"},
      {MHD_OPTION_END, 0, NULL}};
  struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
  s->daemon = s->mhd.start_daemon(
      flags, 0, NULL, NULL, answer_mhd, s, MHD_OPTION_EXTERNAL_LOGGER, log_line, s,
      MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_URI_LOG_CALLBACK, begin, s,
      MHD_OPTION_UNESCAPE_CALLBACK, leave_escaped, s, MHD_OPTION_NOTIFY_COMPLETED, request_ended, s,
      MHD_OPTION_NOTIFY_CONNECTION, connection_changed, s, MHD_OPTION_CONNECTION_LIMIT,
      (unsigned)o->connections, MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)o->per_address,
      MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)((2 * o->idle_ms + 999) / 1000),
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEAD_MEMORY, MHD_OPTION_THREAD_STACK_SIZE,
      (size_t)STACK, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_ARRAY, s->certificate ? tls : none,
      MHD_OPTION_END);
  if (s->daemon) return BRIM_OK;
  close(fd);
  if (s->certificate) {
    return brim_fail(BRIM_EINVAL,
                     "the server does not start with the certificate %s and the key %s",
                     o->certificate, o->key);
  }
  return brim_fail(BRIM_EIO, "the server does not start");
}

static brim_status read_pem(brim_http_server *s) {
  size_t size;
  if (!s->options.certificate && !s->options.key) return BRIM_OK;
  if (!s->options.certificate || !s->options.key) {
    return brim_fail(BRIM_EINVAL, "TLS needs both a certificate and its key");
  }
  BRIM_TRY(brim_fs_read(s->options.certificate, PEM_MAX, &s->certificate, &size));
  return brim_fs_read(s->options.key, PEM_MAX, &s->key, &size);
}

static brim_status open_server(brim_http_server *s) {
  brim_http_options *o = &s->options;
  int fd = -1;
  if (!o->address) o->address = "127.0.0.1";
  if (o->connections <= 0) o->connections = DEFAULT_CONNECTIONS;
  if (o->idle_ms <= 0) o->idle_ms = DEFAULT_IDLE_MS;
  if (o->request_ms <= 0) o->request_ms = DEFAULT_REQUEST_MS;
  if (o->bodies_max == 0) o->bodies_max = BODIES_MAX;
  s->watch.idle_ms = o->idle_ms;
  s->watch.request_ms = o->request_ms;
  BRIM_TRY(load(&s->mhd, &s->dl));
  BRIM_TRY(read_pem(s));
  BRIM_TRY(watch_start(&s->watch));
  BRIM_TRY(listen_for(o->address, o->port, &fd, &s->port));
  return start(s, fd);
}

brim_status brim_http_server_open(const brim_http_options *options, brim_http_server **out) {
  *out = NULL;
  brim_http_server *s = (brim_http_server *)brim_calloc(1, sizeof *s);
  if (!s) return brim_fail(BRIM_ENOMEM, "out of memory for the server");
  s->options = *options;
  atomic_init(&s->stopping, false);
  atomic_init(&s->bodies, 0);
  brim_json_setup();
  brim_status status = open_server(s);
  if (status) {
    brim_http_server_close(s);
    return status;
  }
  *out = s;
  return BRIM_OK;
}

int brim_http_server_port(const brim_http_server *s) { return s->port; }

int brim_http_server_connections(brim_http_server *s) {
  pthread_mutex_lock(&s->watch.mutex);
  int count = s->watch.count;
  pthread_mutex_unlock(&s->watch.mutex);
  return count;
}

void brim_http_server_stop(brim_http_server *s) { atomic_store(&s->stopping, true); }

void brim_http_server_close(brim_http_server *s) {
  if (!s) return;
  brim_http_server_stop(s);
  if (s->daemon) s->mhd.stop_daemon(s->daemon);  // joins all threads and closes the socket
  watch_stop(&s->watch);
  brim_dl_close(s->dl);
  brim_free(s->certificate);
  if (s->key) explicit_bzero(s->key, strlen(s->key));
  brim_free(s->key);
  brim_free(s);
}
