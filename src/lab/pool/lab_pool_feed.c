// News for listeners of GET /v1/events: the store's events and the progress of experiments. The feed
// keeps the latest news as text; a listener that is further behind reads events from the store.

#include <stdio.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_status.h"
#include "base/base_thread.h"
#include "lab/pool/lab_pool_int.h"
#include "lab/wire/lab_wire.h"

// GATHER_MS: shortest time between two sendings to a listener. A busy pool has hundreds of news a
// second, and each of them wakes the threads of all listeners.
enum { WAIT_NS = 500000000, QUIET_MS = 15000, GATHER_MS = 100, PAGE = 500 };

//---------------------------------- adding ----------------------------------

static void add_locked(brim_pool_feed *f, char *text) {
  char **at = &f->news[f->count % BRIM_POOL_NEWS];
  brim_free(*at);
  *at = text;
  f->count++;
}

// Writes an event of the stream. id 0: the event has no id, and a client that reconnects later does not
// get it.
static brim_status format_event(int64_t id, const char *kind, json_t *value, char **out) {
  char *line = NULL;
  brim_str text;
  BRIM_TRY(brim_json_dump(value, 0, &line));
  brim_str_init(&text);
  if (id > 0) brim_str_printf(&text, "id: %lld\n", (long long)id);
  brim_str_printf(&text, "event: %s\ndata: %s\n\n", kind, line);
  brim_free(line);
  *out = brim_str_take(&text);
  return *out ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for an event");
}

static brim_status format_store_event(const brim_store_event *e, char **out) {
  json_t *value = json_object();
  brim_status status = value ? brim_lab_wire_put(value, BRIM_LAB_EVENT, e)
                             : brim_fail(BRIM_ENOMEM, "out of memory for an event");
  if (!status) status = format_event(e->seq, "event", value, out);
  json_decref(value);
  return status;
}

static brim_status add_event(void *ctx, const brim_store_event *e) {
  brim_pool_feed *f = (brim_pool_feed *)ctx;
  char *text = NULL;
  BRIM_TRY(format_store_event(e, &text));
  pthread_mutex_lock(&f->mutex);
  add_locked(f, text);
  f->seq = e->seq;
  pthread_mutex_unlock(&f->mutex);
  return BRIM_OK;
}

// Wakes the threads of all listeners.
static void wake(brim_pool_feed *f) {
  pthread_mutex_lock(&f->mutex);
  pthread_cond_broadcast(&f->wake);
  pthread_mutex_unlock(&f->mutex);
}

brim_status brim_pool_feed_read(brim_pool_feed *f, brim_store *store) {
  int64_t before = f->seq;
  brim_status status = brim_store_events(store, f->seq, 0, add_event, f);
  if (f->seq != before) wake(f);
  return status;
}

//---------------------------------- without an id ----------------------------------

static brim_status copy(const json_t *from, const char *key, json_t *to) {
  json_t *field = json_object_get(from, key);
  return field ? brim_json_put(to, key, json_incref(field)) : BRIM_OK;
}

// Copies the id of the experiment or the number of the attempt. A request to /v1/call has them only in
// `ref`.
static brim_status copy_ref(const json_t *request, const char *key, json_t *to) {
  const json_t *ref = json_object_get(request, "ref");
  return copy(json_object_get(ref, key) ? ref : request, key, to);
}

static brim_status put_progress(const json_t *request, json_t *out) {
  static const char *const keys[] = {"step", "steps", "epoch", "epochs"};
  BRIM_TRY(copy_ref(request, "exp", out));
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) BRIM_TRY(copy(request, keys[i], out));
  return BRIM_OK;
}

// Puts the last value of each key in the batch: [[key, step, value], ...].
static brim_status put_metrics(const json_t *request, json_t *out) {
  const json_t *rows = json_object_get(request, "rows");
  json_t *list = json_array(), *row;
  const char *key;
  BRIM_TRY(brim_json_put(out, "rows", list));
  BRIM_TRY(copy_ref(request, "exp", out));
  BRIM_TRY(copy_ref(request, "attempt", out));
  json_t *last = json_object();
  for (size_t i = 0; last && i < json_array_size(rows); i++) {
    row = json_array_get(rows, i);
    json_object_set(last, json_string_value(json_array_get(row, 0)), row);
  }
  brim_status status = BRIM_OK;
  json_object_foreach(last, key, row) {
    if (!status) status = brim_json_push(list, json_incref(row));
  }
  json_decref(last);
  return status;
}

// Puts the name and status of a worker.
static brim_status put_worker(const json_t *request, json_t *out) {
  json_t *status = json_object_get(request, "status");
  const char *text = json_string_value(status);
  json_t *read = json_is_object(status) ? json_incref(status) : NULL;
  if (text && text[0] && brim_json_parse(text, strlen(text), "status", &read)) brim_status_clear();
  if (json_is_object(read)) json_object_update(out, read);
  json_decref(read);
  if (json_is_true(json_object_get(request, "left"))) {
    BRIM_TRY(
        brim_json_put(out, "last_seen", json_integer(brim_clock_ms() - BRIM_WORKER_GONE_MS - 1)));
  }
  json_t *name = json_object_get(request, "worker");
  BRIM_TRY(brim_json_put(out, "name", json_incref(name)));
  BRIM_TRY(copy(request, "host", out));
  return copy(request, "version", out);
}

// True if metrics of the experiment may be sent now: at most once a second.
static bool is_due(brim_pool_feed *f, const json_t *request) {
  const char *exp = json_string_value(json_object_get(json_object_get(request, "ref"), "exp"));
  uint32_t hash = 2166136261u;
  int64_t now = brim_clock_ms();
  for (const char *c = exp; c && *c; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
  size_t at = hash % BRIM_POOL_METRIC_SLOTS;
  pthread_mutex_lock(&f->mutex);
  bool due =
      exp && (strcmp(f->metrics_sent[at].exp, exp) != 0 ||
              now - f->metrics_sent[at].ms >= BRIM_POOL_METRICS_MS || now < f->metrics_sent[at].ms);
  if (due) {
    snprintf(f->metrics_sent[at].exp, sizeof f->metrics_sent[at].exp, "%s", exp);
    f->metrics_sent[at].ms = now;
  }
  pthread_mutex_unlock(&f->mutex);
  return due;
}

static void send_now(brim_pool_feed *f, char *text) {
  pthread_mutex_lock(&f->mutex);
  add_locked(f, text);
  pthread_cond_broadcast(&f->wake);
  pthread_mutex_unlock(&f->mutex);
}

void brim_pool_feed_request(brim_pool_feed *f, brim_lab_op op, const json_t *request) {
  static const struct {
    brim_lab_op op;
    const char *kind;
    brim_status (*put)(const json_t *request, json_t *out);
  } rows[] = {{BRIM_LAB_OP_BEAT, "progress", put_progress},
              {BRIM_LAB_OP_METRICS, "metrics", put_metrics},
              {BRIM_LAB_OP_SEEN, "worker", put_worker}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (rows[i].op != op) continue;
    if (op == BRIM_LAB_OP_METRICS && !is_due(f, request)) return;
    char *text = NULL;
    json_t *value = json_object();
    bool made =
        value && !rows[i].put(request, value) && !format_event(0, rows[i].kind, value, &text);
    json_decref(value);
    if (!made) {
      brim_status_clear();
      return;
    }
    send_now(f, text);
    return;
  }
}

void brim_pool_feed_server(brim_pool_feed *f, json_t *value) {
  char *text = NULL;
  if (format_event(0, "server", value, &text)) {
    brim_status_clear();
    return;
  }
  send_now(f, text);
}

//---------------------------------- listening ----------------------------------

typedef struct listener {
  brim_lab_pool *pool;
  int64_t next;   // number of the next news to send, counted as feed.count
  int64_t after;  // last event that was sent from the store; -1 = all others are in the feed
  int64_t sent_ms;
} listener;

typedef struct catching {
  listener *l;
  brim_str *out;
  int64_t until;
} catching;

static brim_status catch_event(void *ctx, const brim_store_event *e) {
  catching *c = (catching *)ctx;
  char *text = NULL;
  if (e->seq > c->until) return BRIM_OK;
  BRIM_TRY(format_store_event(e, &text));
  brim_str_append(c->out, text);
  brim_free(text);
  c->l->after = e->seq;
  return BRIM_OK;
}

// Sends events from the store, up to the feed's last event at the beginning of the call.
static brim_status catch_up(listener *l, brim_str *out) {
  brim_lab_pool *pool = l->pool;
  pthread_mutex_lock(&pool->feed.mutex);
  catching c = {.l = l, .out = out, .until = pool->feed.seq};
  int64_t count = pool->feed.count;
  pthread_mutex_unlock(&pool->feed.mutex);
  int64_t before = l->after;
  pthread_mutex_lock(&pool->reading.lock);
  brim_status status = brim_store_events(pool->reading.store, l->after, PAGE, catch_event, &c);
  pthread_mutex_unlock(&pool->reading.lock);
  if (!status && (l->after == c.until || l->after == before)) {
    l->after = -1;
    l->next = count;
  }
  return status;
}

static brim_status send_more(void *ctx, brim_str *out) {
  listener *l = (listener *)ctx;
  brim_pool_feed *f = &l->pool->feed;
  if (l->after >= 0) return catch_up(l, out);
  int64_t since_ms = brim_clock_ms() - l->sent_ms;
  if (since_ms < GATHER_MS) brim_clock_sleep_ns((GATHER_MS - since_ms) * 1000000);
  pthread_mutex_lock(&f->mutex);
  if (f->count == l->next) {
    (void)brim_cond_wait(&f->wake, &f->mutex, brim_clock_now().ns + WAIT_NS);
  }
  if (f->count - l->next > BRIM_POOL_NEWS) {  // a slow listener loses the oldest news
    l->next = f->count - BRIM_POOL_NEWS;
  }
  while (l->next < f->count && out->len < (256u << 10)) {
    brim_str_append(out, f->news[l->next++ % BRIM_POOL_NEWS]);
  }
  pthread_mutex_unlock(&f->mutex);
  if (out->len == 0 && brim_clock_ms() - l->sent_ms < QUIET_MS) return BRIM_OK;
  if (out->len == 0)
    brim_str_append(out, ":\n\n");  // an empty comment: sending it detects a lost listener
  l->sent_ms = brim_clock_ms();
  return BRIM_OK;
}

static void end_listening(void *ctx) {
  listener *l = (listener *)ctx;
  pthread_mutex_lock(&l->pool->feed.mutex);
  l->pool->feed.listeners--;
  pthread_mutex_unlock(&l->pool->feed.mutex);
  brim_free(l);
}

// Answers GET /v1/events.
static void serve_events(brim_lab_pool *pool, const brim_pool_caller *caller,
                         const brim_http_request *request, brim_http_reply *reply) {
  (void)caller;
  const char *after = brim_http_header(request, "Last-Event-ID");
  if (!after) after = brim_http_query(request, "after");
  listener *l = (listener *)brim_calloc(1, sizeof *l);
  if (!l) {
    brim_http_reply_error(reply, 503, "out of memory for a listener");
    return;
  }
  *l = (listener){.pool = pool, .after = -1};
  if (after && (!brim_parse_i64(after, &l->after) || l->after < 0)) {
    brim_free(l);
    brim_http_reply_error(reply, 400, "the number of an event is not negative");
    return;
  }
  pthread_mutex_lock(&pool->feed.mutex);
  l->next = pool->feed.count;
  pool->feed.listeners++;
  pthread_mutex_unlock(&pool->feed.mutex);
  reply->type = "text/event-stream; charset=utf-8";
  reply->more = send_more;
  reply->end = end_listening;
  reply->ctx = l;
}

const brim_pool_route brim_pool_feed_routes[] = {
    BRIM_POOL_OWN("GET", "v1/events", READ, serve_events, 0),
    {0},
};

//---------------------------------- the part ----------------------------------

static brim_status skip(void *ctx, const brim_store_event *e) {
  *(int64_t *)ctx = e->seq;
  return BRIM_OK;
}

static void close_feed(brim_lab_pool *pool) {
  brim_pool_feed *f = &pool->feed;
  for (int i = 0; i < BRIM_POOL_NEWS; i++) brim_free(f->news[i]);
  pthread_cond_destroy(&f->wake);
  pthread_mutex_destroy(&f->mutex);
}

static brim_status open_feed(brim_lab_pool *pool) {
  brim_pool_feed *f = &pool->feed;
  pthread_mutex_init(&f->mutex, NULL);
  if (brim_cond_init(&f->wake)) {
    pthread_mutex_destroy(&f->mutex);
    return brim_fail(BRIM_ENOMEM, "out of memory for an event");
  }
  brim_status status = brim_store_events(pool->options.store, 0, 0, skip, &f->seq);
  if (status) close_feed(pool);
  return status;
}

static void stop_feed(brim_lab_pool *pool) { wake(&pool->feed); }

const brim_pool_part brim_pool_feed_part = {
    .open = open_feed, .stop = stop_feed, .close = close_feed};
