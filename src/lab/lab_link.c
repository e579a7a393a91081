// The link to a sweep (lab_link.h): a socket, a server, or the store and a dispatcher in this process.

#include "lab/lab_link.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_fs.h"
#include "base/base_json.h"
#include "base/base_msg.h"
#include "base/base_status.h"
#include "lab/http/lab_http_client.h"
#include "lab/http/lab_http_url.h"
#include "lab/lab_link_http.h"
#include "lab/lab_socket.h"

//-------------------------------------------- server --------------------------------------------
// See lab_link_http.h.

bool brim_lab_is_server(const char *place) {
  return strncasecmp(place, "http://", 7) == 0 || strncasecmp(place, "https://", 8) == 0;
}

static const char *variable(const char *name) {
  const char *value = getenv(name);
  return value && *value ? value : NULL;
}

// The way to this machine itself needs no TLS.
static bool is_local(const char *url) { return brim_http_is_loopback(strstr(url, "://") + 3); }

// For a whole request: as the environment says, or six times what a connection may take.
static int64_t call_ms(int64_t connect_ms) {
  const char *text = variable(BRIM_LAB_TIMEOUT_ENV);
  double s = text ? strtod(text, NULL) : 0;
  return s >= 0.1 && s <= 3600 ? (int64_t)(s * 1e3) : 6 * connect_ms;
}

brim_status brim_lab_http_open(const char *url, int64_t timeout_ms, struct brim_http_client **out) {
  const char *insecure = variable(BRIM_LAB_INSECURE_ENV);
  const brim_http_client_options how = {
      .url = url,
      .token = variable(BRIM_LAB_TOKEN_ENV),
      .ca = variable(BRIM_LAB_CA_ENV),
      .pin = variable(BRIM_LAB_PIN_ENV),
      .insecure = is_local(url) || (insecure && strcmp(insecure, "1") == 0),
      .connect_ms = timeout_ms,
      .timeout_ms = call_ms(timeout_ms)};
  return brim_http_client_open(&how, out);
}

// A reply that is no line of the protocol: the server's own refusal, or another program's.
static brim_status refused(int status, const brim_str *body) {
  json_t *value = NULL;
  char text[256] = "";
  if (!brim_json_parse(body->data, body->len, "reply", &value)) {
    const char *error = json_string_value(json_object_get(value, "error"));
    snprintf(text, sizeof text, "%s", error ? error : "");
  }
  json_decref(value);
  brim_status_clear();
  switch (status) {
    case 401:
      return brim_fail(BRIM_EINVAL,
                       variable(BRIM_LAB_TOKEN_ENV)
                           ? BRIM_N_("the server does not know the token (%s)")
                           : BRIM_N_("the server asks for a token; set %s"),
                       BRIM_LAB_TOKEN_ENV);
    case 403:
      return brim_fail(BRIM_EINVAL, "the server refuses: %s", text);
    case 413:
      return brim_fail(BRIM_ELIMIT, "the server refuses: %s", text);
    case 404:
      return brim_fail(BRIM_ENOENT,
                       "no brim serve answers at this address; its URL ends with the port");
    default:
      return brim_fail(BRIM_EIO, "the server answers with status %d: %s", status, text);
  }
}

// The lines of the reply into `out`. BRIM_EIO: none came. A refusal is a failure of its kind.
static brim_status http_call(struct brim_http_client *client, const brim_str *request,
                             brim_str *out) {
  const brim_http_call call = {
      .method = "POST", .path = "/v1/call", .body = request->data, .body_size = request->len};
  brim_http_answer answer;
  brim_http_answer_init(&answer);
  brim_status status = brim_http_client_call(client, &call, &answer);
  if (!status && !strstr(answer.body.data, "\"ok\":")) {
    status = refused(answer.status, &answer.body);
  }
  if (!status) {
    brim_str_append_n(out, answer.body.data, answer.body.len);
    status = brim_str_status(out);
  }
  brim_http_answer_deinit(&answer);
  return status;
}

//--------------------------------------------- link ---------------------------------------------

enum {
  TIMEOUT_MS = 10000,
  CHUNK = 64 << 10,
  OPEN_MS = 3000,  // a sweep that starts has its store open before it listens
  OPEN_STEP_MS = 50,
  SERVER_VALUES = 4000000,  // of all lines of a server's reply: over 100,000 experiments
};

struct brim_lab_link {
  char *place, *schema;
  brim_lab_link_options options;
  brim_store_options store_options;
  int64_t timeout_ms;
  bool answered;  // the last call, by the store
  // To a sweep.
  int fd;
  brim_str in;  // from in_at: received and not yet read
  size_t in_at, in_seen;
  int64_t id;
  brim_http_client *http;  // to a server
  // In this process.
  brim_store *store;
  brim_lab_ops own;
  const brim_lab_ops *ops;  // own, the caller's, or NULL
};

static brim_status no_memory(void) { return brim_fail(BRIM_ENOMEM, "out of memory for a request"); }

static void disconnect(brim_lab_link *link) {
  if (link->fd >= 0) close(link->fd);
  link->fd = -1;
  brim_str_deinit(&link->in);  // also ends the state of one that ran out of memory
  brim_str_init(&link->in);
  link->in_at = link->in_seen = 0;
}

static brim_status connect_sweep(brim_lab_link *link) {
  brim_lab_sweep_info info;
  BRIM_TRY(brim_lab_socket_read(link->place, &info));
  return brim_lab_socket_connect(&info, link->timeout_ms, &link->fd);
}

static brim_status open_store(brim_lab_link *link) {
  if (!brim_store_is_url(link->place)) {
    char *file = brim_fs_join(link->place, BRIM_STORE_FILE);
    if (!file) return no_memory();
    bool there = brim_fs_exists(file);
    brim_free(file);
    if (!there) return brim_fail(BRIM_ENOENT, "%s has no store", link->place);
  }
  BRIM_TRY(brim_store_open(link->place, &link->store_options, &link->store));
  link->own = (brim_lab_ops){.store = link->store};
  link->ops = &link->own;
  return BRIM_OK;
}

// To the sweep, or to the store where none runs. Between the two there is a moment: a sweep that
// starts or ends, or a command that has the store open for an instant.
static brim_status connect_or_open(brim_lab_link *link) {
  brim_time start = brim_clock_now();
  for (;;) {
    brim_status status = connect_sweep(link);
    if (status != BRIM_ENOENT) return status;
    status = open_store(link);
    int64_t waited_ms = brim_time_since_ns(start, brim_clock_now()) / 1000000;
    if (status != BRIM_EEXIST || waited_ms >= OPEN_MS) return status;
    brim_clock_sleep_ns((int64_t)OPEN_STEP_MS * 1000000);
  }
}

static brim_status ensure_open(brim_lab_link *link) {
  if (link->ops || link->fd >= 0 || link->http) return BRIM_OK;
  if (brim_lab_is_server(link->place)) {
    return brim_lab_http_open(link->place, link->timeout_ms, &link->http);
  }
  if (brim_store_is_url(link->place)) return open_store(link);
  if (!link->options.sweep_only) return connect_or_open(link);
  brim_status status = connect_sweep(link);
  return status == BRIM_ENOENT ? BRIM_EIO : status;
}

static brim_status new_link(brim_lab_link **out) {
  brim_json_setup();
  *out = brim_calloc(1, sizeof **out);
  if (!*out) return no_memory();
  brim_str_init(&(*out)->in);
  (*out)->fd = -1;
  return BRIM_OK;
}

static brim_status set_options(brim_lab_link *link, const char *place,
                               const brim_lab_link_options *o) {
  if (o) link->options = *o;
  if (o && o->store) link->store_options = *o->store;
  link->options.store = NULL;
  link->store_options.readonly = link->options.readonly;
  link->timeout_ms = link->options.timeout_ms > 0 ? link->options.timeout_ms : TIMEOUT_MS;
  link->place = brim_strdup(place);
  link->schema = brim_strdup(link->store_options.schema);
  if (!link->place || (link->store_options.schema && !link->schema)) return no_memory();
  link->store_options.schema = link->schema;
  return BRIM_OK;
}

brim_status brim_lab_link_open(const char *place, const brim_lab_link_options *options,
                               brim_lab_link **out) {
  BRIM_TRY(new_link(out));
  brim_status status = set_options(*out, place, options);
  if (!status) status = ensure_open(*out);
  if (!status) return BRIM_OK;
  brim_lab_link_close(*out);
  *out = NULL;
  return status;
}

brim_status brim_lab_link_local(const brim_lab_ops *ops, brim_lab_link **out) {
  BRIM_TRY(new_link(out));
  (*out)->ops = ops;
  return BRIM_OK;
}

void brim_lab_link_close(brim_lab_link *link) {
  if (!link) return;
  disconnect(link);
  brim_store_close(link->store);
  brim_http_client_close(link->http);
  brim_str_deinit(&link->in);
  brim_free(link->schema);
  brim_free(link->place);
  brim_free(link);
}

bool brim_lab_link_to_sweep(const brim_lab_link *link) { return link->fd >= 0; }

const char *brim_lab_link_server(const brim_lab_link *link) {
  return link->place && brim_lab_is_server(link->place) ? link->place : NULL;
}

bool brim_lab_sweep_runs(const char *folder, int64_t *pid) {
  brim_lab_sweep_info info;
  int fd = -1;
  if (pid) *pid = 0;
  if (brim_lab_socket_read(folder, &info)) return false;
  // One that may not be reached, or is too busy to accept, runs all the same.
  brim_status status = brim_lab_socket_connect(&info, 0, &fd);
  if (fd >= 0) close(fd);
  if (pid) *pid = info.pid;
  return status != BRIM_ENOENT;
}

// --- a reply

static brim_status status_of(const char *name) {
  static const brim_status all[] = {
#define X(id, value, text) BRIM_##id,
      BRIM_STATUS_MAP(X)
#undef X
  };
  for (size_t i = 0; name && i < sizeof all / sizeof *all; i++) {
    if (all[i] && strcmp(brim_status_name(all[i]), name) == 0) return all[i];
  }
  return BRIM_EINTERNAL;
}

typedef struct reading {
  int64_t id;
  brim_lab_line_fn fn;
  void *ctx;
  size_t left;    // values that the rest of the reply may have
  bool last;      // the reply is complete
  bool followed;  // in step with the other end
  bool answered;
} reading;

static brim_status garbled(const char *what) {
  return brim_fail(BRIM_EIO, "the sweep's reply cannot be read: %s", what);
}

// The sweep's failure becomes this process's.
static brim_status take_failure(const json_t *line) {
  const char *message = json_string_value(json_object_get(line, "message"));
  brim_status status = status_of(json_string_value(json_object_get(line, "status")));
  brim_status_set_detail(message ? message : brim_status_text(status));
  return status;
}

static brim_status take_line(reading *r, const json_t *line) {
  const json_t *id = json_object_get(line, "id");
  bool ok = json_is_true(json_object_get(line, "ok"));
  // Without an id: the server refuses the connection or the request as a whole.
  bool refused = json_is_null(id) && !ok && json_object_get(line, "status");
  if (!refused && (!json_is_integer(id) || json_integer_value(id) != r->id)) {
    return garbled(brim_tr("it answers another request"));
  }
  r->last = !json_is_true(json_object_get(line, "more"));
  r->followed = !refused;
  r->answered = true;
  if (!ok) return take_failure(line);
  return r->fn(r->ctx, line);
}

static brim_status take_text(reading *r, const char *text, size_t size) {
  json_t *line = NULL;
  r->followed = false;
  size_t most = r->left < BRIM_JSON_VALUES ? r->left : BRIM_JSON_VALUES, left = most;
  brim_status status = brim_json_parse_within(text, size, "reply", &left, &line);
  r->left -= r->left == SIZE_MAX ? 0 : most - left;
  if (status == BRIM_EPARSE) {
    return brim_fail_context(BRIM_EIO, "the sweep's reply cannot be read");
  }
  if (!status) status = take_line(r, line);
  json_decref(line);
  return status;
}

// --- through the socket

static brim_status wait_for(const brim_lab_link *link, short events) {
  brim_time start = brim_clock_now();
  for (;;) {
    int64_t left = link->timeout_ms - brim_time_since_ns(start, brim_clock_now()) / 1000000;
    if (left <= 0) return brim_fail(BRIM_EIO, "the sweep does not answer");
    struct pollfd p = {.fd = link->fd, .events = events};
    int n = poll(&p, 1, left > 60000 ? 60000 : (int)left);
    if (n > 0) return BRIM_OK;
    if (n < 0 && errno != EINTR) {
      return brim_fail(BRIM_EIO, "cannot reach the sweep: %s", brim_errno_text(errno));
    }
  }
}

static brim_status lost(int err) {
  return brim_fail(BRIM_EIO, "the connection to the sweep was lost: %s", brim_errno_text(err));
}

static brim_status send_all(const brim_lab_link *link, const char *data, size_t size) {
  while (size > 0) {
    ssize_t n = send(link->fd, data, size, MSG_NOSIGNAL);
    if (n >= 0) {
      data += n;
      size -= (size_t)n;
    } else if (errno == EAGAIN) {
      BRIM_TRY(wait_for(link, POLLOUT));
    } else if (errno == EPIPE) {
      return BRIM_OK;  // a server that refuses the client says why before it hangs up
    } else if (errno != EINTR) {
      return lost(errno);
    }
  }
  return BRIM_OK;
}

static brim_status receive(brim_lab_link *link) {
  char chunk[CHUNK];
  for (;;) {
    ssize_t n = recv(link->fd, chunk, sizeof chunk, 0);
    if (n == 0) return brim_fail(BRIM_EIO, "the sweep closed the connection");
    if (n > 0) {
      brim_str_append_n(&link->in, chunk, (size_t)n);
      return brim_str_status(&link->in);
    }
    if (errno == EAGAIN) {
      BRIM_TRY(wait_for(link, POLLIN));
    } else if (errno != EINTR) {
      return lost(errno);
    }
  }
}

// The next line, in link->in until the next call.
static brim_status next_line(brim_lab_link *link, const char **text, size_t *size) {
  if (link->in_at == link->in.len) {
    brim_str_clear(&link->in);
    link->in_at = link->in_seen = 0;
  }
  for (;;) {
    const char *data = link->in.data;
    const char *end = memchr(data + link->in_seen, '\n', link->in.len - link->in_seen);
    if (end) {
      *text = data + link->in_at;
      *size = (size_t)(end - *text);
      link->in_at = link->in_seen = (size_t)(end - data) + 1;
      return BRIM_OK;
    }
    link->in_seen = link->in.len;
    if (link->in.len - link->in_at > BRIM_LAB_LINE_MAX)
      return garbled(brim_tr("a line is too long"));
    BRIM_TRY(receive(link));
  }
}

static brim_status read_reply(brim_lab_link *link, reading *r) {
  brim_status status = BRIM_OK;
  while (!status && !r->last) {
    const char *text = NULL;
    size_t size = 0;
    r->followed = false;
    status = next_line(link, &text, &size);
    if (!status) status = take_text(r, text, size);
  }
  return status;
}

static brim_status over_socket(brim_lab_link *link, const brim_str *request, reading *r) {
  brim_status status = send_all(link, request->data, request->len);
  if (!status) status = read_reply(link, r);
  // After a failure in the middle the rest of the reply would be taken for the next one's.
  if (!r->followed || !r->last) disconnect(link);
  return status;
}

// --- in this process

static brim_status each_line(const brim_str *lines, reading *r) {
  for (size_t at = 0; at < lines->len;) {
    const char *text = lines->data + at;
    const char *end = memchr(text, '\n', lines->len - at);
    size_t size = end ? (size_t)(end - text) : lines->len - at;
    BRIM_TRY(take_text(r, text, size));
    at += size + 1;
  }
  return BRIM_OK;
}

static brim_status in_process(brim_lab_link *link, const brim_str *request, reading *r) {
  brim_lab_answer *answer = NULL;
  brim_str lines;
  bool done = false;
  BRIM_TRY(brim_lab_ops_begin(link->ops, request->data, request->len - 1, &answer));
  brim_str_init(&lines);
  brim_status status = BRIM_OK;
  while (!status && !done) {
    brim_str_clear(&lines);
    status = brim_lab_answer_more(answer, CHUNK, &lines, &done);
    if (!status) status = each_line(&lines, r);
  }
  brim_str_deinit(&lines);
  brim_lab_answer_free(answer);
  return status;
}

static brim_status over_http(brim_lab_link *link, const brim_str *request, reading *r) {
  brim_str lines;
  brim_str_init(&lines);
  brim_status status = http_call(link->http, request, &lines);
  if (!status) status = each_line(&lines, r);
  if (!status && !r->last) status = garbled(brim_tr("its end is missing"));
  brim_str_deinit(&lines);
  return status;
}

static brim_status write_request(const json_t *request, int64_t id, brim_str *out) {
  json_t *with_id = json_copy((json_t *)(uintptr_t)request);
  char *text = NULL;
  brim_status status = brim_json_put(with_id, "id", json_integer(id));
  if (!status) status = brim_json_dump(with_id, 0, &text);
  json_decref(with_id);
  if (!status) {
    brim_str_append(out, text);
    brim_str_append_char(out, '\n');
    status = brim_str_status(out);
  }
  brim_free(text);
  if (!status && out->len > BRIM_LAB_REQUEST_MAX) {
    return brim_fail(BRIM_ELIMIT, "the request is longer than %zu bytes",
                     (size_t)BRIM_LAB_REQUEST_MAX);
  }
  return status;
}

bool brim_lab_link_answered(const brim_lab_link *link) { return link->answered; }

brim_status brim_lab_stream(brim_lab_link *link, const json_t *request, brim_lab_line_fn fn,
                            void *ctx) {
  link->answered = false;
  BRIM_TRY(ensure_open(link));
  // another machine may send what it likes, and callers keep what they are sent
  reading r = {.id = ++link->id,
               .fn = fn,
               .ctx = ctx,
               .left = link->http ? (size_t)SERVER_VALUES : SIZE_MAX};
  brim_str text;
  brim_str_init(&text);
  brim_status status = write_request(request, r.id, &text);
  if (!status) {
    status = link->ops    ? in_process(link, &text, &r)
             : link->http ? over_http(link, &text, &r)
                          : over_socket(link, &text, &r);
  }
  link->answered = r.answered;
  brim_str_deinit(&text);
  return status;
}

static brim_status keep_line(void *ctx, const json_t *line) {
  json_t **out = ctx;
  json_decref(*out);
  *out = json_incref((json_t *)(uintptr_t)line);
  return BRIM_OK;
}

brim_status brim_lab_call(brim_lab_link *link, const json_t *request, json_t **reply) {
  json_t *last = NULL;
  brim_status status = brim_lab_stream(link, request, keep_line, &last);
  if (status || !reply) {
    json_decref(last);
    last = NULL;
  }
  if (reply) *reply = last;
  return status;
}
