// News for listeners: the store's events and the progress of experiments, as they are sent. The
// last ones are kept; a listener that has fallen behind them reads on from the store.
#include <stdio.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_status.h"
#include "base/base_thread.h"
#include "lab/lab_wire.h"
#include "lab/pool/lab_pool_int.h"

// GATHER_MS: a busy pool has hundreds of news a second, and each wakes the threads of all listeners.
enum { WAIT_NS = 500000000, QUIET_MS = 15000, GATHER_MS = 100, PAGE = 500 };

//---------------------------------- adding ----------------------------------

static void add_locked(brim_pool_feed *f, char *text) {
  char **at = &f->news[f->count % BRIM_POOL_NEWS];
  brim_free(*at);
  *at = text;
  f->count++;
}

// id 0: it has none, and is not sent again.
static brim_status spell(int64_t id, const char *kind, json_t *value, char **out) {
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

static brim_status spell_event(const brim_store_event *e, char **out) {
  json_t *value = json_object();
  brim_status status = value ? brim_lab_wire_put(value, BRIM_LAB_EVENT, e)
                             : brim_fail(BRIM_ENOMEM, "out of memory for an event");
  if (!status) status = spell(e->seq, "event", value, out);
  json_decref(value);
  return status;
}

static brim_status add_event(void *ctx, const brim_store_event *e) {
  brim_pool_feed *f = (brim_pool_feed *)ctx;
  char *text = NULL;
  BRIM_TRY(spell_event(e, &text));
  pthread_mutex_lock(&f->mutex);
  add_locked(f, text);
  f->seq = e->seq;
  pthread_mutex_unlock(&f->mutex);
  return BRIM_OK;
}

brim_status brim_pool_feed_read(brim_pool_feed *f, brim_store *store) {
  int64_t before = f->seq;
  brim_status status = brim_store_events(store, f->seq, 0, add_event, f);
  if (f->seq != before) brim_pool_feed_wake(f);
  return status;
}

static brim_status skip(void *ctx, const brim_store_event *e) {
  *(int64_t *)ctx = e->seq;
  return BRIM_OK;
}

brim_status brim_pool_feed_init(brim_pool_feed *f, brim_store *store) {
  *f = (brim_pool_feed){0};
  pthread_mutex_init(&f->mutex, NULL);
  if (brim_cond_init(&f->wake)) return brim_fail(BRIM_ENOMEM, "out of memory for an event");
  return brim_store_events(store, 0, 0, skip, &f->seq);
}

void brim_pool_feed_deinit(brim_pool_feed *f) {
  for (int i = 0; i < BRIM_POOL_NEWS; i++) brim_free(f->news[i]);
  pthread_cond_destroy(&f->wake);
  pthread_mutex_destroy(&f->mutex);
}

void brim_pool_feed_wake(brim_pool_feed *f) {
  pthread_mutex_lock(&f->mutex);
  pthread_cond_broadcast(&f->wake);
  pthread_mutex_unlock(&f->mutex);
}

// What a beat says of an experiment. Listeners see it once; it is not kept.
void brim_pool_feed_progress(brim_pool_feed *f, const json_t *request) {
  static const char *const keys[] = {"step", "steps", "epoch", "epochs"};
  json_t *value = json_object(), *exp = json_object_get(json_object_get(request, "ref"), "exp");
  char *text = NULL;
  if (value && exp) json_object_set(value, "exp", exp);
  for (size_t i = 0; value && i < sizeof keys / sizeof *keys; i++) {
    json_t *field = json_object_get(request, keys[i]);
    if (field) json_object_set(value, keys[i], field);
  }
  bool made = value && !spell(0, "progress", value, &text);
  json_decref(value);
  if (!made) return;
  pthread_mutex_lock(&f->mutex);
  add_locked(f, text);
  pthread_cond_broadcast(&f->wake);
  pthread_mutex_unlock(&f->mutex);
}

//---------------------------------- listening ----------------------------------

typedef struct listener {
  brim_lab_pool *pool;
  int64_t next;   // of the feed's count
  int64_t after;  // of the store's events, while it has to catch up; -1 = it does not
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
  BRIM_TRY(spell_event(e, &text));
  brim_str_append(c->out, text);
  brim_free(text);
  c->l->after = e->seq;
  return BRIM_OK;
}

// From the store, up to where the feed was when it was asked.
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

static brim_status more(void *ctx, brim_str *out) {
  listener *l = (listener *)ctx;
  brim_pool_feed *f = &l->pool->feed;
  if (l->after >= 0) return catch_up(l, out);
  int64_t since_ms = brim_clock_ms() - l->sent_ms;
  if (since_ms < GATHER_MS) brim_clock_sleep_ns((GATHER_MS - since_ms) * 1000000);
  pthread_mutex_lock(&f->mutex);
  if (f->count == l->next) {
    (void)brim_cond_wait(&f->wake, &f->mutex, brim_clock_now().ns + WAIT_NS);
  }
  if (f->count - l->next > BRIM_POOL_NEWS) {  // it reads too slowly, and misses what has no id
    l->next = f->count - BRIM_POOL_NEWS;
  }
  while (l->next < f->count && out->len < (256u << 10)) {
    brim_str_append(out, f->news[l->next++ % BRIM_POOL_NEWS]);
  }
  pthread_mutex_unlock(&f->mutex);
  if (out->len == 0 && brim_clock_ms() - l->sent_ms < QUIET_MS) return BRIM_OK;
  if (out->len == 0) brim_str_append(out, ":\n\n");  // shows that a listener has gone
  l->sent_ms = brim_clock_ms();
  return BRIM_OK;
}

void brim_pool_listen(brim_lab_pool *pool, const brim_http_request *request,
                      brim_http_reply *reply) {
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
  pthread_mutex_unlock(&pool->feed.mutex);
  reply->type = "text/event-stream; charset=utf-8";
  reply->more = more;
  reply->end = brim_free;
  reply->ctx = l;
}
