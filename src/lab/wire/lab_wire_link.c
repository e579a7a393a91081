// The link to a store (lab_wire_link.h): through a sweep's socket, over HTTP to a server, or by calls
// in this process.

#include "lab/wire/lab_wire_link.h"

#include <errno.h>
#include <math.h>
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
#include "lab/wire/lab_wire_int.h"
#include "lab/wire/lab_wire_server.h"

//-------------------------------------------- server --------------------------------------------

bool brim_lab_is_server(const char *place) {
  return strncasecmp(place, "http://", 7) == 0 || strncasecmp(place, "https://", 8) == 0;
}

static const char *env_value(const char *name) {
  const char *value = getenv(name);
  return value && *value ? value : NULL;
}

// True if the server is on this machine, so that its connection needs no TLS.
static bool is_local(const char *url) { return brim_http_is_loopback(strstr(url, "://") + 3); }

// Time limit of a whole request: the environment's BRIM_TIMEOUT, or six times the limit of connecting.
static int64_t call_ms(int64_t connect_ms) {
  const char *text = env_value(BRIM_LAB_TIMEOUT_ENV);
  double s = text ? strtod(text, NULL) : 0;
  return s >= 0.1 && s <= 3600 ? (int64_t)(s * 1e3) : 6 * connect_ms;
}

brim_status brim_lab_http_open(const char *url, int64_t timeout_ms, struct brim_http_client **out) {
  const char *insecure = env_value(BRIM_LAB_INSECURE_ENV);
  const brim_http_client_options how = {
      .url = url,
      .token = env_value(BRIM_LAB_TOKEN_ENV),
      .ca = env_value(BRIM_LAB_CA_ENV),
      .pin = env_value(BRIM_LAB_PIN_ENV),
      .insecure = is_local(url) || (insecure && strcmp(insecure, "1") == 0),
      .connect_ms = timeout_ms,
      .timeout_ms = call_ms(timeout_ms)};
  return brim_http_client_open(&how, out);
}

// Makes a failure of a reply that is no line of the protocol: the server refused the request, or
// another program answered.
static brim_status fail_refused(int status, const brim_str *body) {
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
                       env_value(BRIM_LAB_TOKEN_ENV)
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

//--------------------------------------------- link ---------------------------------------------

enum {
  TIMEOUT_MS = 10000,
  CHUNK = 64 << 10,
  OPEN_MS = 3000,  // wait for a starting sweep, which opens its store before it listens
  OPEN_STEP_MS = 50,
  SERVER_VALUES = 4000000,  // JSON values in a reply of a server: over 100,000 experiments
};

struct brim_lab_link {
  char *place, *schema;
  brim_lab_link_options options;
  brim_store_options store_options;
  int64_t timeout_ms;
  bool answered;  // the last status came from the store
  // The socket of a sweep.
  int fd;
  brim_str in;  // from in_at: received and not yet read
  size_t in_at, in_seen;
  int64_t id;
  brim_http_client *http;  // the connection to a server
  // The store in this process.
  brim_store *store;
  brim_lab_ops own;
  const brim_lab_ops *ops;  // points to own or to the caller's; NULL for a sweep or a server
};

static brim_status no_memory(void) { return brim_fail(BRIM_ENOMEM, "out of memory for a request"); }

static void disconnect(brim_lab_link *link) {
  if (link->fd >= 0) close(link->fd);
  link->fd = -1;
  brim_str_deinit(&link->in);  // also clears an out-of-memory state
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

// Connects to the sweep, or opens the store if no sweep runs. BRIM_EEXIST can pass soon (a sweep starts
// or ends, or a command has the store open), so it tries both repeatedly for a while.
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
  // A sweep that is too busy to accept the connection, or refuses this user, still runs.
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

typedef struct reply_reader {
  int64_t id;
  brim_lab_line_fn fn;
  void *ctx;
  size_t left;         // JSON values that the rest of the reply may have
  bool last;           // the last line was read
  bool at_line_start;  // the connection is at the beginning of a line
  bool answered;
} reply_reader;

static brim_status fail_garbled(const char *what) {
  return brim_fail(BRIM_EIO, "the sweep's reply cannot be read: %s", what);
}

// Returns the status of a failed reply and sets its message as the detail.
static brim_status take_failure(const json_t *line) {
  const char *message = json_string_value(json_object_get(line, "message"));
  brim_status status = status_of(json_string_value(json_object_get(line, "status")));
  brim_status_set_detail(message ? message : brim_status_text(status));
  return status;
}

static brim_status take_line(reply_reader *r, const json_t *line) {
  const json_t *id = json_object_get(line, "id");
  bool ok = json_is_true(json_object_get(line, "ok"));
  // A refusal without an id is about the connection or the whole request.
  bool refused = json_is_null(id) && !ok && json_object_get(line, "status");
  if (!refused && (!json_is_integer(id) || json_integer_value(id) != r->id)) {
    return fail_garbled(brim_tr("it answers another request"));
  }
  r->last = !json_is_true(json_object_get(line, "more"));
  r->at_line_start = !refused;
  r->answered = true;
  if (!ok) return take_failure(line);
  return r->fn(r->ctx, line);
}

static brim_status take_text(reply_reader *r, const char *text, size_t size) {
  json_t *line = NULL;
  r->at_line_start = false;
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

static brim_status fail_lost(int err) {
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
      return fail_lost(errno);
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
      return fail_lost(errno);
    }
  }
}

// Receives the next line. *text stays valid until the next call.
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
      return fail_garbled(brim_tr("a line is too long"));
    BRIM_TRY(receive(link));
  }
}

static brim_status read_reply(brim_lab_link *link, reply_reader *r) {
  brim_status status = BRIM_OK;
  while (!status && !r->last) {
    const char *text = NULL;
    size_t size = 0;
    r->at_line_start = false;
    status = next_line(link, &text, &size);
    if (!status) status = take_text(r, text, size);
  }
  return status;
}

static brim_status over_socket(brim_lab_link *link, const brim_str *request, reply_reader *r) {
  brim_status status = send_all(link, request->data, request->len);
  if (!status) status = read_reply(link, r);
  // Disconnect after a failure inside the reply: the next call would read the rest as its own reply.
  if (!r->at_line_start || !r->last) disconnect(link);
  return status;
}

// --- over HTTP

static brim_status over_http(brim_lab_link *link, const brim_str *request, reply_reader *r) {
  const brim_http_call call = {
      .method = "POST", .path = "/v1/call", .body = request->data, .body_size = request->len};
  brim_http_answer answer;
  brim_http_answer_init(&answer);
  const brim_str *lines = &answer.body;
  brim_status status = brim_http_client_call(link->http, &call, &answer);
  if (!status && !strstr(lines->data, "\"ok\":")) status = fail_refused(answer.status, lines);
  for (size_t at = 0; !status && at < lines->len;) {
    const char *text = lines->data + at;
    const char *end = memchr(text, '\n', lines->len - at);
    size_t size = end ? (size_t)(end - text) : lines->len - at;
    status = take_text(r, text, size);
    at += size + 1;
  }
  if (!status && !r->last) status = fail_garbled(brim_tr("its end is missing"));
  brim_http_answer_deinit(&answer);
  return status;
}

// --- requests

static brim_status write_request(const brim_lab_request *request, int64_t id, brim_str *out) {
  json_t *value = NULL;
  char *text = NULL;
  BRIM_TRY(brim_lab_request_encode(request, &value));
  brim_status status = brim_json_put(value, "id", json_integer(id));
  if (!status) status = brim_json_dump(value, 0, &text);
  json_decref(value);
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

// Sends the request to another process and calls `fn` with every line of the reply.
static brim_status request_remote(brim_lab_link *link, const brim_lab_request *request,
                                  brim_lab_line_fn fn, void *ctx) {
  // Limit the replies of another machine, since callers keep them in memory.
  reply_reader r = {.id = ++link->id,
                    .fn = fn,
                    .ctx = ctx,
                    .left = link->http ? (size_t)SERVER_VALUES : SIZE_MAX};
  brim_str text;
  brim_str_init(&text);
  brim_status status = write_request(request, r.id, &text);
  if (!status) {
    status = link->http ? over_http(link, &text, &r) : over_socket(link, &text, &r);
  }
  link->answered = r.answered;
  brim_str_deinit(&text);
  return status;
}

bool brim_lab_link_answered(const brim_lab_link *link) { return link->answered; }

brim_status brim_lab_lines(brim_lab_link *link, const brim_lab_request *request,
                           brim_lab_line_fn fn, void *ctx) {
  link->answered = false;
  BRIM_TRY(ensure_open(link));
  if (!link->ops) return request_remote(link, request, fn, ctx);
  link->answered = true;
  return brim_lab_ops_lines(link->ops, request, fn, ctx);
}

// --- replies as values

// Turns BRIM_EINVAL of decoding into BRIM_EABI: a reply without a needed field comes from another
// program or version.
static brim_status bad_reply(const brim_lab_link *link, brim_status status) {
  if (status != BRIM_EINVAL) return status;
  return brim_fail(BRIM_EABI,
                   link->http
                       ? BRIM_N_("the server's reply lacks a field; it may be of another version")
                       : BRIM_N_("the sweep's reply lacks a field; it may be of another version"));
}

typedef struct receiving {
  const brim_lab_link *link;
  const brim_lab_request *in;
  brim_lab_reply *out;
  brim_lab_rows_kind rows;
  size_t limit, taken;  // limit: rows that were asked for, 0 = all; taken: rows that came
} receiving;

static brim_status take_metric(const receiving *r, const json_t *line, const json_t *row) {
  const brim_lab_rows *to = &r->out->rows;
  const char *key = json_string_value(json_object_get(line, "key"));
  const json_t *step = json_array_get(row, 0);
  brim_store_metric m = {key, json_integer_value(step), (double)NAN};
  if (!key || !json_is_integer(step) || !brim_lab_wire_real_of(json_array_get(row, 1), &m.value)) {
    return bad_reply(r->link, BRIM_EINVAL);
  }
  return to->fn.metric(to->ctx, &m, json_integer_value(json_array_get(row, 2)));
}

static brim_status take_row(const receiving *r, const json_t *line, const json_t *row) {
  static const brim_lab_record records[BRIM_LAB_ROWS_COUNT] = {
      [BRIM_LAB_ROWS_EXPS] = BRIM_LAB_EXP,       [BRIM_LAB_ROWS_ATTEMPTS] = BRIM_LAB_ATTEMPT,
      [BRIM_LAB_ROWS_EVENTS] = BRIM_LAB_EVENT,   [BRIM_LAB_ROWS_GRIDS] = BRIM_LAB_GRID_ROW,
      [BRIM_LAB_ROWS_WORKERS] = BRIM_LAB_WORKER, [BRIM_LAB_ROWS_FILES] = BRIM_LAB_FILE};
  const brim_lab_rows *to = &r->out->rows;
  union {
    brim_store_exp exp;
    brim_store_attempt attempt;
    brim_store_event event;
    brim_store_grid_row grid;
    brim_lab_worker_row worker;
    brim_store_file file;
  } got;
  if (r->rows == BRIM_LAB_ROWS_METRICS) return take_metric(r, line, row);
  memset(&got, 0, sizeof got);
  BRIM_TRY(bad_reply(r->link, brim_lab_wire_get(row, records[r->rows], &got)));
  switch (r->rows) {
    case BRIM_LAB_ROWS_EXPS:
      return to->fn.exp(to->ctx, &got.exp);
    case BRIM_LAB_ROWS_ATTEMPTS:
      return to->fn.attempt(to->ctx, &got.attempt);
    case BRIM_LAB_ROWS_EVENTS:
      return to->fn.event(to->ctx, &got.event);
    case BRIM_LAB_ROWS_GRIDS:
      return to->fn.grid(to->ctx, &got.grid);
    case BRIM_LAB_ROWS_FILES:
      return to->fn.file(to->ctx, &got.file);
    default:
      got.worker.status = json_object_get(row, "status");
      got.worker.lacks = json_object_get(row, "lacks");
      return to->fn.worker(to->ctx, &got.worker);
  }
}

// Passes on a line of `export`, which holds one experiment, as text.
static brim_status take_export(const brim_lab_rows *to, const json_t *value) {
  char *text = NULL;
  if (!value) return BRIM_OK;  // the last line has no experiment
  BRIM_TRY(brim_json_dump(value, 0, &text));
  brim_status status = to->fn.line(to->ctx, text);
  brim_free(text);
  return status;
}

// Refuses a reply with more rows than the caller asked for.
static brim_status count_rows(receiving *r, size_t count) {
  if (r->limit > 0 && count > r->limit - r->taken) {
    return brim_fail(BRIM_ELIMIT, "the sweep's reply has more rows than were asked for");
  }
  r->taken += count;
  return BRIM_OK;
}

static brim_status on_line(void *ctx, const json_t *line) {
  receiving *r = ctx;
  const char *key = brim_lab_rows_keys[r->rows];
  const json_t *rows = key ? json_object_get(line, key) : NULL;
  if (r->rows == BRIM_LAB_ROWS_NONE) {
    BRIM_TRY(count_rows(r, 1));
    if (json_is_true(json_object_get(line, "more"))) return BRIM_OK;
    return bad_reply(r->link, brim_lab_reply_decode(r->in->op, line, r->out));
  }
  if (r->rows == BRIM_LAB_ROWS_LINES) return take_export(&r->out->rows, rows);
  BRIM_TRY(count_rows(r, json_array_size(rows)));
  for (size_t i = 0; i < json_array_size(rows); i++) {
    BRIM_TRY(take_row(r, line, json_array_get(rows, i)));
  }
  return BRIM_OK;
}

brim_status brim_lab_call(brim_lab_link *link, const brim_lab_request *request,
                          brim_lab_reply *reply) {
  brim_lab_reply none = {0};
  if (!reply) reply = &none;
  link->answered = false;
  if (!link->ops) BRIM_TRY(ensure_open(link));
  if (link->ops) {
    link->answered = true;
    return brim_lab_run(link->ops, request, reply);
  }
  receiving r = {link, request, reply, brim_lab_op_rows[request->op].rows, 0, 0};
  int64_t limit = r.rows == BRIM_LAB_ROWS_NONE      ? 1
                  : request->op == BRIM_LAB_OP_LIST ? request->filter.limit
                                                    : request->limit;
  r.limit = limit > 0 ? (size_t)limit : 0;
  return request_remote(link, request, on_line, &r);
}

//--------------------------------------------- calls --------------------------------------------
// One function per operation that callers use, with its arguments.

brim_status brim_lab_start(brim_lab_link *link, const brim_store_ref *ref, int64_t pid,
                           int64_t from_step) {
  return brim_lab_call(link,
                       &(brim_lab_request){.op = BRIM_LAB_OP_START,
                                           .ref = *ref,
                                           .pid = pid,
                                           .from_step = from_step < 0 ? -1 : from_step},
                       NULL);
}

brim_status brim_lab_beat(brim_lab_link *link, const brim_store_ref *ref,
                          const brim_store_progress *progress, brim_store_beat_reply *out) {
  static const brim_store_progress unchanged = {-1, -1, -1, -1};
  brim_lab_reply reply = {0};
  const brim_lab_request request = {
      .op = BRIM_LAB_OP_BEAT, .ref = *ref, .progress = progress ? *progress : unchanged};
  brim_status status = brim_lab_call(link, &request, &reply);
  *out = reply.beat;
  return status;
}

brim_status brim_lab_metrics(brim_lab_link *link, const brim_store_ref *ref, int64_t seq,
                             const brim_store_metric *rows, size_t count) {
  return brim_lab_call(
      link,
      &(brim_lab_request){
          .op = BRIM_LAB_OP_METRICS, .ref = *ref, .seq = seq, .metrics = {rows, count}},
      NULL);
}

brim_status brim_lab_log(brim_lab_link *link, const brim_store_ref *ref, const char *stream,
                         int64_t size) {
  const brim_lab_request request = {
      .op = BRIM_LAB_OP_LOG, .ref = *ref, .stream = stream, .size = size};
  return brim_lab_call(link, &request, NULL);
}

brim_status brim_lab_checkpoint(brim_lab_link *link, const brim_store_ref *ref, int64_t step) {
  return brim_lab_call(
      link, &(brim_lab_request){.op = BRIM_LAB_OP_CHECKPOINT, .ref = *ref, .step = step}, NULL);
}

brim_status brim_lab_findings(brim_lab_link *link, const brim_store_ref *ref, const char *text) {
  return brim_lab_call(
      link, &(brim_lab_request){.op = BRIM_LAB_OP_FINDINGS, .ref = *ref, .findings = text}, NULL);
}

brim_status brim_lab_finish(brim_lab_link *link, const brim_store_ref *ref,
                            const brim_store_result *result, brim_exp_state *state) {
  brim_lab_reply reply = {0};
  const brim_lab_request request = {.op = BRIM_LAB_OP_FINISH, .ref = *ref, .result = *result};
  BRIM_TRY(brim_lab_call(link, &request, &reply));
  if (state) *state = reply.state;
  return BRIM_OK;
}

brim_status brim_lab_worker_seen(brim_lab_link *link, const brim_store_worker *worker) {
  return brim_lab_call(link, &(brim_lab_request){.op = BRIM_LAB_OP_SEEN, .seen = *worker}, NULL);
}

brim_status brim_lab_claim(brim_lab_link *link, const brim_store_request *claim,
                           brim_store_claimed *out) {
  brim_lab_reply reply = {0};
  brim_status status =
      brim_lab_call(link, &(brim_lab_request){.op = BRIM_LAB_OP_CLAIM, .claim = *claim}, &reply);
  *out = reply.claimed;
  if (!status) return BRIM_OK;
  brim_store_exp_free(out->exp);
  *out = (brim_store_claimed){0};
  return status;
}

brim_status brim_lab_submit(brim_lab_link *link, const brim_store_grid *grid,
                            const brim_store_point *points, size_t count,
                            brim_store_submitted *out) {
  brim_lab_reply reply = {0};
  const brim_lab_request request = {
      .op = BRIM_LAB_OP_SUBMIT, .submit = *grid, .points = {points, count}};
  brim_status status = brim_lab_call(link, &request, &reply);
  *out = reply.submitted;
  return status;
}

brim_status brim_lab_want(brim_lab_link *link, const char *exp, brim_exp_want want) {
  return brim_lab_call(link, &(brim_lab_request){.op = BRIM_LAB_OP_WANT, .exp = exp, .want = want},
                       NULL);
}

brim_status brim_lab_retry(brim_lab_link *link, const char *exp) {
  return brim_lab_call(link, &(brim_lab_request){.op = BRIM_LAB_OP_RETRY, .exp = exp}, NULL);
}

// Sends the experiments in portions; each portion is one transaction.
static brim_status change_each(brim_lab_link *link, brim_lab_request *request,
                               const char (*exps)[BRIM_EXP_ID], size_t exp_count, int64_t *count) {
  int64_t total = 0;
  for (size_t at = 0; at < exp_count; at += BRIM_STORE_EACH) {
    brim_lab_reply reply = {0};
    request->exps.ids = exps + at;
    request->exps.count = exp_count - at < BRIM_STORE_EACH ? exp_count - at : BRIM_STORE_EACH;
    BRIM_TRY(brim_lab_call(link, request, &reply));
    total += reply.count;
    if (count) *count = total;
  }
  if (count) *count = total;
  return BRIM_OK;
}

brim_status brim_lab_want_each(brim_lab_link *link, const char (*exps)[BRIM_EXP_ID],
                               size_t exp_count, brim_exp_want want, int64_t *count) {
  brim_lab_request request = {.op = BRIM_LAB_OP_WANT_EACH, .want = want};
  return change_each(link, &request, exps, exp_count, count);
}

brim_status brim_lab_retry_each(brim_lab_link *link, const char (*exps)[BRIM_EXP_ID],
                                size_t exp_count, int64_t *count) {
  brim_lab_request request = {.op = BRIM_LAB_OP_RETRY_EACH};
  return change_each(link, &request, exps, exp_count, count);
}

brim_status brim_lab_retry_failed(brim_lab_link *link, const char *grid, int64_t *count) {
  brim_lab_reply reply = {0};
  BRIM_TRY(brim_lab_call(link, &(brim_lab_request){.op = BRIM_LAB_OP_RETRY_FAILED, .grid = grid},
                         &reply));
  if (count) *count = reply.count;
  return BRIM_OK;
}

brim_status brim_lab_set_priority(brim_lab_link *link, const char *exp, int64_t priority) {
  const brim_lab_request request = {
      .op = BRIM_LAB_OP_SET_PRIORITY, .exp = exp, .priority = priority};
  return brim_lab_call(link, &request, NULL);
}

brim_status brim_lab_now(brim_lab_link *link, int64_t *ms) {
  brim_lab_reply reply = {0};
  BRIM_TRY(brim_lab_call(link, &(brim_lab_request){.op = BRIM_LAB_OP_HELLO}, &reply));
  *ms = reply.now;
  return BRIM_OK;
}

brim_status brim_lab_whoami(brim_lab_link *link, char id[65], char version[32]) {
  brim_lab_reply reply = {0};
  BRIM_TRY(brim_lab_call(link, &(brim_lab_request){.op = BRIM_LAB_OP_WHOAMI}, &reply));
  bool same = strcmp(reply.protocol, BRIM_LAB_PROTOCOL) == 0;
  snprintf(id, 65, "%s", reply.name);
  snprintf(version, 32, "%s", reply.version);
  json_decref(reply.more);
  if (same) return BRIM_OK;
  return brim_fail(
      BRIM_EABI,
      "the server is brim %s and speaks another protocol than this brim (" BRIM_LAB_PROTOCOL ")",
      version);
}

brim_status brim_lab_find(brim_lab_link *link, const char *prefix, char out[BRIM_EXP_ID]) {
  brim_lab_reply reply = {0};
  brim_status status =
      brim_lab_call(link, &(brim_lab_request){.op = BRIM_LAB_OP_FIND, .exp = prefix}, &reply);
  memcpy(out, reply.exp, BRIM_EXP_ID);
  return status;
}

brim_status brim_lab_get(brim_lab_link *link, const char *exp, brim_store_exp **out) {
  brim_lab_reply reply = {0};
  brim_status status =
      brim_lab_call(link, &(brim_lab_request){.op = BRIM_LAB_OP_GET, .exp = exp}, &reply);
  *out = reply.found;
  if (!status) return BRIM_OK;
  brim_store_exp_free(*out);
  *out = NULL;
  return status;
}

brim_status brim_lab_count(brim_lab_link *link, const char *grid, brim_store_counts *out) {
  brim_lab_reply reply = {0};
  brim_status status =
      brim_lab_call(link, &(brim_lab_request){.op = BRIM_LAB_OP_COUNTS, .grid = grid}, &reply);
  *out = reply.counts;
  return status;
}

brim_status brim_lab_log_size(brim_lab_link *link, const char *exp, int64_t attempt,
                              const char *stream, int64_t *out) {
  brim_lab_reply reply = {0};
  const brim_lab_request request = {
      .op = BRIM_LAB_OP_LOG_SIZE, .exp = exp, .attempt = attempt, .stream = stream};
  BRIM_TRY(brim_lab_call(link, &request, &reply));
  *out = reply.size;
  return BRIM_OK;
}

brim_status brim_lab_list(brim_lab_link *link, const brim_store_filter *filter,
                          brim_store_exp_fn fn, void *ctx) {
  brim_lab_reply reply = {.rows = {.fn.exp = fn, .ctx = ctx}};
  brim_lab_request request = {.op = BRIM_LAB_OP_LIST};
  if (filter) request.filter = *filter;
  return brim_lab_call(link, &request, &reply);
}

brim_status brim_lab_export(brim_lab_link *link, const brim_store_filter *filter,
                            brim_store_line_fn fn, void *ctx) {
  brim_lab_reply reply = {.rows = {.fn.line = fn, .ctx = ctx}};
  brim_lab_request request = {.op = BRIM_LAB_OP_EXPORT};
  if (filter) request.filter = *filter;
  return brim_lab_call(link, &request, &reply);
}

brim_status brim_lab_attempts(brim_lab_link *link, const char *exp, brim_store_attempt_fn fn,
                              void *ctx) {
  brim_lab_reply reply = {.rows = {.fn.attempt = fn, .ctx = ctx}};
  return brim_lab_call(link, &(brim_lab_request){.op = BRIM_LAB_OP_ATTEMPTS, .exp = exp}, &reply);
}

brim_status brim_lab_read_metrics(brim_lab_link *link, const char *exp, const char *key,
                                  int64_t points, brim_store_metric_fn fn, void *ctx) {
  brim_lab_reply reply = {.rows = {.fn.metric = fn, .ctx = ctx}};
  const brim_lab_request request = {.op = BRIM_LAB_OP_METRICS_OF,
                                    .exp = exp,
                                    .key = key,
                                    .range.points = points > 0 ? points : 0};
  return brim_lab_call(link, &request, &reply);
}

brim_status brim_lab_events(brim_lab_link *link, int64_t seq, int64_t limit, brim_store_event_fn fn,
                            void *ctx) {
  brim_lab_reply reply = {.rows = {.fn.event = fn, .ctx = ctx}};
  const brim_lab_request request = {.op = BRIM_LAB_OP_EVENTS, .seq = seq, .limit = limit};
  return brim_lab_call(link, &request, &reply);
}

brim_status brim_lab_grids(brim_lab_link *link, brim_store_grid_fn fn, void *ctx) {
  brim_lab_reply reply = {.rows = {.fn.grid = fn, .ctx = ctx}};
  return brim_lab_call(link, &(brim_lab_request){.op = BRIM_LAB_OP_GRIDS, .texts = true}, &reply);
}

typedef struct worker_taking {
  brim_store_worker_fn fn;
  void *ctx;
} worker_taking;

static brim_status take_worker(void *ctx, const brim_lab_worker_row *row) {
  const worker_taking *t = ctx;
  return t->fn(t->ctx, &row->worker);
}

brim_status brim_lab_workers(brim_lab_link *link, brim_store_worker_fn fn, void *ctx) {
  worker_taking t = {fn, ctx};
  brim_lab_reply reply = {.rows = {.fn.worker = take_worker, .ctx = &t}};
  return brim_lab_call(link, &(brim_lab_request){.op = BRIM_LAB_OP_WORKERS}, &reply);
}

brim_status brim_lab_files(brim_lab_link *link, const char *exp, brim_store_file_fn fn, void *ctx) {
  brim_lab_reply reply = {.rows = {.fn.file = fn, .ctx = ctx}};
  return brim_lab_call(link, &(brim_lab_request){.op = BRIM_LAB_OP_FILES, .exp = exp}, &reply);
}
