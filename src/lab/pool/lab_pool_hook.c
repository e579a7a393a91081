// Messages to a webhook when an experiment failed for good, or the last experiment of a grid ended. A
// thread reads the store's events with its own handle and sends the messages; requests never wait for
// it. Waiting messages are only in memory: after a restart the thread begins with new events.

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_log.h"
#include "base/base_msg.h"
#include "base/base_status.h"
#include "base/base_thread.h"
#include "lab/http/lab_http_client.h"
#include "lab/pool/lab_pool_int.h"

enum {
  QUEUE = 256,
  PAGE = 200,  // most events of one reading
  TRIES = 5,
  WAIT_MS = 1000,   // pause before the second try
  GATHER_MS = 200,  // between two readings of a busy store
  AGAIN_MS = 1000,  // pause after a reading that failed
  IDLE_MS = 60000,
  SEND_MS = 10000,  // limit of one try, and of all tries when the server ends
  TEXT = 500,       // most bytes of the line for people
  LINES = 4000,     // most bytes of last_lines
  GRID_ID = 65,     // bytes of a grid's id with its NUL
};

// An event of the store.
typedef struct ended_event {
  int64_t seq;
  char exp[BRIM_EXP_ID];  // the experiment that ended; "" = the event ends none
  bool failed;
} ended_event;

struct brim_pool_hook {
  brim_lab_pool *pool;
  brim_store *store;  // a second handle, for reading
  brim_http_client *client;
  char *base, *path;  // base: "https://server:8000"; path: the rest, which may hold a secret
  char page[320];     // URL of the dashboard; "" = unknown
  brim_thread *thread;
  bool stop;        // protected by the feed's mutex
  int64_t seq;      // number of the last event that was read
  int64_t read_ms;  // time of the next reading
  ended_event page_rows[PAGE];
  size_t row_count;
  char (*grids)[GRID_ID];  // grids to count, since one of their experiments ended
  size_t grid_count, grid_room;
  char *queue[QUEUE];  // bodies of waiting messages, a ring that begins at `first`
  int first, count;
  int tries;       // tries of the first message so far
  int64_t due_ms;  // time of the next try
  bool told_full;
};

//---------------------------------- the address ----------------------------------

// Splits the URL. A failure quotes no part of it, since it may hold a secret.
static brim_status split_url(brim_pool_hook *h, const char *url) {
  size_t scheme = strncasecmp(url, "https://", 8) == 0  ? 8
                  : strncasecmp(url, "http://", 7) == 0 ? 7
                                                        : 0;
  size_t host = scheme ? strcspn(url + scheme, "/?#") : 0;
  bool good = host > 0 && !strchr(url, '#') && !memchr(url + scheme, '@', host);
  for (const char *c = url; good && *c; c++) good = *c > ' ' && *c < 0x7f && *c != '\\';
  if (!good) {
    return brim_fail(
        BRIM_EINVAL,
        "the webhook's address is not valid; it looks like https://server/path, without "
        "a user name, spaces or '#'");
  }
  brim_str text;
  brim_str_init(&text);
  brim_str_append_n(&text, url, scheme + host);
  h->base = brim_str_take(&text);
  const char *rest = url + scheme + host;
  brim_str_printf(&text, "%s%s", rest[0] == '/' ? "" : "/", rest);
  h->path = brim_str_take(&text);
  return h->base && h->path ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for the webhook");
}

// Sets the address of the dashboard, which stays unknown if the server listens at every address.
static void find_page(brim_pool_hook *h) {
  const brim_lab_pool_options *o = &h->pool->options;
  const char *address = o->address ? o->address : "127.0.0.1";
  if (strcmp(address, "0.0.0.0") == 0 || strcmp(address, "::") == 0) return;
  bool colons = strchr(address, ':') != NULL;
  snprintf(h->page, sizeof h->page, "%s://%s%s%s:%d", o->certificate ? "https" : "http",
           colons ? "[" : "", address, colons ? "]" : "", brim_http_server_port(h->pool->http));
}

//---------------------------------- messages ----------------------------------

// Adds the text as one line of at most TEXT bytes. Chat programs notify everybody for "<!channel>" or
// "@all"; a zero-width space behind the first character prevents that.
static brim_status put_text(json_t *message, const char *raw) {
  brim_str text;
  size_t size = strlen(raw);
  if (size > TEXT) {
    for (size = TEXT; size > 0 && ((unsigned char)raw[size] & 0xc0) == 0x80;) size--;
  }
  brim_str_init(&text);
  for (size_t i = 0; i < size; i++) {
    brim_str_append_char(&text, (unsigned char)raw[i] < 0x20 || raw[i] == 0x7f ? ' ' : raw[i]);
    if (raw[i] == '<' || raw[i] == '@') brim_str_append(&text, "\xe2\x80\x8b");
  }
  brim_status status = brim_str_status(&text);
  if (!status) status = brim_json_put(message, "text", json_string(text.data));
  brim_str_deinit(&text);
  return status;
}

static void drop_first(brim_pool_hook *h) {
  brim_free(h->queue[h->first]);
  h->queue[h->first] = NULL;
  h->first = (h->first + 1) % QUEUE;
  h->count--;
  h->tries = 0;
  h->due_ms = 0;
  if (h->count == 0) h->told_full = false;
}

static brim_status push(brim_pool_hook *h, const json_t *message) {
  char *body = NULL;
  BRIM_TRY(brim_json_dump(message, 0, &body));
  if (h->count == QUEUE) {
    if (!h->told_full) {
      brim_log_warn("serve", "more than %d messages wait for the webhook; brim drops the oldest",
                    QUEUE);
    }
    h->told_full = true;
    drop_first(h);
  }
  h->queue[(h->first + h->count++) % QUEUE] = body;
  return BRIM_OK;
}

static brim_status put_grid(json_t *message, const char *id, const char *name) {
  json_t *grid = json_object();
  BRIM_TRY(brim_json_put(message, "grid", grid));
  BRIM_TRY(brim_json_put(grid, "id", json_string(id)));
  return brim_json_put(grid, "name", json_string(name));
}

static brim_status put_failure(const brim_pool_hook *h, const brim_store_exp *e, const char *name,
                               json_t *message) {
  const char *lines = e->last_lines;
  size_t size = strlen(lines);
  if (size > LINES) {
    for (lines += size - LINES; ((unsigned char)*lines & 0xc0) == 0x80;) lines++;
  }
  BRIM_TRY(brim_json_put(message, "event", json_string("failed")));
  BRIM_TRY(brim_json_put(message, "exp", json_string(e->id)));
  BRIM_TRY(brim_json_put(message, "name", json_string(e->label)));
  BRIM_TRY(put_grid(message, e->grid, name));
  BRIM_TRY(brim_json_put(message, "failure", json_string(e->failure)));
  BRIM_TRY(brim_json_put(message, "message", json_string(e->reason)));
  BRIM_TRY(brim_json_put(message, "last_lines", json_string(lines)));
  brim_str text;
  brim_str_init(&text);
  brim_status status = BRIM_OK;
  if (h->page[0]) {
    brim_str_printf(&text, "%s/#/exp/%s", h->page, e->id);
    status = brim_str_status(&text);
    if (!status) status = brim_json_put(message, "url", json_string(text.data));
    brim_str_clear(&text);
  }
  const char *why = e->reason[0] ? e->reason : e->failure;
  brim_str line;
  brim_str_init(&line);
  brim_str_append_n(&line, why, strcspn(why, "\r\n"));
  brim_str_printf(&text, brim_tr("brim: %s of '%s' failed: %s"), e->label[0] ? e->label : e->id,
                  name[0] ? name : e->grid, line.data);
  brim_str_deinit(&line);
  if (!status) status = brim_str_status(&text);
  if (!status) status = put_text(message, text.data);
  brim_str_deinit(&text);
  return status;
}

static brim_status put_ended(const char *id, const char *name, const brim_store_counts *counts,
                             json_t *message) {
  json_t *states = json_object();
  brim_status status = brim_json_put(message, "event", json_string("grid_ended"));
  if (!status) status = put_grid(message, id, name);
  if (status) {
    json_decref(states);
    return status;
  }
  BRIM_TRY(brim_json_put(message, "states", states));
  for (int i = 0; i < BRIM_EXP_STATE_COUNT; i++) {
    BRIM_TRY(brim_json_put(states, brim_exp_state_name((brim_exp_state)i),
                           json_integer(counts->states[i])));
  }
  brim_str text;
  brim_str_init(&text);
  brim_str_printf(&text, brim_tr("brim: '%s' ended: %lld done, %lld failed, %lld cancelled"),
                  name[0] ? name : id, (long long)counts->states[BRIM_EXP_DONE],
                  (long long)counts->states[BRIM_EXP_FAILED],
                  (long long)counts->states[BRIM_EXP_CANCELLED]);
  status = brim_str_status(&text);
  if (!status) status = put_text(message, text.data);
  brim_str_deinit(&text);
  return status;
}

//---------------------------------- reading ----------------------------------

static brim_status take_event(void *ctx, const brim_store_event *e) {
  brim_pool_hook *h = (brim_pool_hook *)ctx;
  bool failed = strcmp(e->kind, "failed") == 0;
  bool ends = failed || strcmp(e->kind, "done") == 0 || strcmp(e->kind, "cancelled") == 0;
  ended_event *row = &h->page_rows[h->row_count++];
  *row = (ended_event){.seq = e->seq, .failed = failed};
  if (ends) snprintf(row->exp, sizeof row->exp, "%s", e->exp);
  return BRIM_OK;
}

static size_t find_grid(const brim_pool_hook *h, const char *id) {
  size_t i = 0;
  while (i < h->grid_count && strcmp(h->grids[i], id) != 0) i++;
  return i;
}

static brim_status take_grid(void *ctx, const brim_store_grid_row *row) {
  brim_pool_hook *h = (brim_pool_hook *)ctx;
  if (find_grid(h, row->grid.id) < h->grid_count) return BRIM_OK;
  if (h->grid_count == h->grid_room) {
    size_t room = h->grid_room ? 2 * h->grid_room : 16;
    void *grown = brim_realloc(h->grids, room * sizeof *h->grids);
    if (!grown) return brim_fail(BRIM_ENOMEM, "out of memory for the webhook");
    h->grids = (char(*)[GRID_ID])grown;
    h->grid_room = room;
  }
  snprintf(h->grids[h->grid_count++], GRID_ID, "%s", row->grid.id);
  return BRIM_OK;
}

typedef struct naming {
  const char *id;
  brim_str name;
} naming;

static brim_status take_name(void *ctx, const brim_store_grid_row *row) {
  naming *n = (naming *)ctx;
  if (strcmp(row->grid.id, n->id) == 0) brim_str_append(&n->name, row->grid.name);
  return BRIM_OK;
}

// Adds the message of a failure, unless the experiment was queued again in the meantime.
static brim_status add_failure(brim_pool_hook *h, const char *exp) {
  brim_store_exp *e = NULL;
  BRIM_TRY(brim_store_get(h->store, exp, &e));
  if (e->state != BRIM_EXP_FAILED) {
    brim_store_exp_free(e);
    return BRIM_OK;
  }
  naming n = {.id = e->grid};
  json_t *message = json_object();
  brim_str_init(&n.name);
  brim_status status = brim_store_grids_of(h->store, exp, take_name, &n);
  if (!status) status = brim_str_status(&n.name);
  if (!status) status = put_failure(h, e, n.name.data, message);
  if (!status) status = push(h, message);
  json_decref(message);
  brim_str_deinit(&n.name);
  brim_store_exp_free(e);
  return status;
}

static brim_status add_ended(brim_pool_hook *h, const char *id, const brim_store_counts *counts) {
  naming n = {.id = id};
  json_t *message = json_object();
  brim_str_init(&n.name);
  brim_status status = brim_store_grids(h->store, take_name, &n);
  if (!status) status = brim_str_status(&n.name);
  if (!status) status = put_ended(id, n.name.data, counts, message);
  if (!status) status = push(h, message);
  json_decref(message);
  brim_str_deinit(&n.name);
  return status;
}

// Logs and skips a message that cannot be made. Returns BRIM_EIO of the store, so that the caller tries
// again.
static brim_status skip_failed(brim_status status) {
  if (!status || status == BRIM_EIO) return status;
  brim_log_warn("serve", "a message for the webhook is left out: %s", brim_status_detail());
  brim_status_clear();
  return BRIM_OK;
}

// Reads all events that the store has.
static brim_status read_events(brim_pool_hook *h) {
  do {
    h->row_count = 0;
    BRIM_TRY(brim_store_events(h->store, h->seq, PAGE, take_event, h));
    for (size_t i = 0; i < h->row_count; i++) {
      const ended_event *row = &h->page_rows[i];
      if (row->exp[0]) BRIM_TRY(skip_failed(brim_store_grids_of(h->store, row->exp, take_grid, h)));
      if (row->failed) BRIM_TRY(skip_failed(add_failure(h, row->exp)));
      h->seq = row->seq;
    }
  } while (h->row_count == PAGE);
  return BRIM_OK;
}

// Counts each listed grid and adds the message of each grid that is complete. The count may be newer
// than the events read so far, so the rest is read after counting. If the rest lists the grid again, it is
// skipped here and counted in the next turn. So the end of a grid is sent only once.
static brim_status count_grids(brim_pool_hook *h) {
  while (h->grid_count > 0) {
    brim_store_counts counts = {.total = -1};
    char id[GRID_ID];
    size_t last = h->grid_count - 1;
    memcpy(id, h->grids[last], sizeof id);
    BRIM_TRY(skip_failed(brim_store_count(h->store, id, &counts)));
    h->grid_count = last;
    brim_status status = read_events(h);
    if (status) {
      (void)take_grid(h, &(brim_store_grid_row){.grid = {.id = id}});  // there is room for it
      return status;
    }
    if (find_grid(h, id) < h->grid_count) continue;
    int64_t over = counts.states[BRIM_EXP_DONE] + counts.states[BRIM_EXP_FAILED] +
                   counts.states[BRIM_EXP_CANCELLED];
    if (over == counts.total) BRIM_TRY(skip_failed(add_ended(h, id, &counts)));
  }
  return BRIM_OK;
}

static void gather(brim_pool_hook *h) {
  brim_status status = read_events(h);
  if (!status) status = count_grids(h);
  if (status) brim_status_clear();  // brim_lab_pool_tend reports a failing store
  h->read_ms = brim_clock_ms() + (status ? AGAIN_MS : GATHER_MS);
}

//---------------------------------- sending ----------------------------------

// Sends the first message. Returns true if the receiver has it (*sent) or will never accept it.
static bool send_once(brim_pool_hook *h, char *why, size_t size, bool *sent) {
  const char *body = h->queue[h->first];
  const brim_http_call call = {
      .method = "POST", .path = h->path, .body = body, .body_size = strlen(body)};
  brim_http_answer answer;
  brim_http_answer_init(&answer);
  brim_status status = brim_http_client_call(h->client, &call, &answer);
  int code = answer.status;
  brim_http_answer_deinit(&answer);
  *sent = status == BRIM_ELIMIT || (!status && code >= 200 && code < 300);
  if (status) snprintf(why, size, "%s", brim_status_detail());
  if (!status) snprintf(why, size, brim_tr("%s answers with HTTP %d"), h->base, code);
  if (status) brim_status_clear();
  return *sent || (!status && code < 500 && code != 408 && code != 429);
}

static bool send_first(brim_pool_hook *h) {
  char why[512];
  bool sent;
  bool over = send_once(h, why, sizeof why, &sent);
  h->tries++;
  if (!sent && (over || h->tries == TRIES)) {
    brim_log_warn("serve", "a message for the webhook is left out: %s", why);
  }
  if (over || h->tries == TRIES) {
    drop_first(h);
    return sent;
  }
  int64_t wait = h->pool->options.webhook_wait_ms > 0 ? h->pool->options.webhook_wait_ms : WAIT_MS;
  for (int i = 1; i < h->tries; i++) wait *= 5;
  h->due_ms = brim_clock_ms() + wait;
  brim_log_warn("serve", "webhook: %s; brim tries again in %lld s", why,
                (long long)((wait + 999) / 1000));
  return false;
}

static bool has_news(const brim_pool_hook *h) {
  return h->pool->feed.seq > h->seq || h->grid_count > 0;
}

// Waits until there are news to read or messages to send. False: the server ends.
static bool wait_for_work(brim_pool_hook *h, bool *news) {
  brim_pool_feed *f = &h->pool->feed;
  pthread_mutex_lock(&f->mutex);
  while (!h->stop) {
    int64_t now = brim_clock_ms(), until = now + IDLE_MS;
    *news = has_news(h);
    if (*news) until = h->read_ms;
    *news = *news && h->read_ms <= now;
    if (h->count > 0 && h->due_ms < until) until = h->due_ms;
    if (until <= now) break;
    (void)brim_cond_wait(&f->wake, &f->mutex, until * 1000000);
  }
  bool goes_on = !h->stop;
  pthread_mutex_unlock(&f->mutex);
  return goes_on;
}

static void run_hook(void *ctx) {
  brim_pool_hook *h = (brim_pool_hook *)ctx;
  bool news = false;
  while (wait_for_work(h, &news)) {
    if (news) gather(h);
    if (h->count > 0 && h->due_ms <= brim_clock_ms()) (void)send_first(h);
  }
  int64_t end = brim_clock_ms() + SEND_MS;
  gather(h);
  while (h->count > 0 && brim_clock_ms() < end && send_first(h)) continue;
  if (h->count > 0) {
    brim_log_warn("serve", "%d messages for the webhook were not sent", h->count);
  }
}

//---------------------------------- opening ----------------------------------

static brim_status open_hook(brim_pool_hook *h) {
  BRIM_TRY(split_url(h, h->pool->options.webhook));
  const brim_http_client_options how = {.url = h->base,
                                        .insecure = true,
                                        .connect_ms = SEND_MS / 2,
                                        .timeout_ms = SEND_MS,
                                        .reply_max = 1 << 20};
  BRIM_TRY(brim_http_client_open(&how, &h->client));
  h->seq = h->pool->feed.seq;
  return brim_store_open_reader(h->pool->options.store, &h->store);
}

// Ends the thread, which first sends waiting messages for a few seconds.
static void close_hook(brim_lab_pool *pool) {
  brim_pool_hook *h = pool->hook;
  if (!h) return;
  pthread_mutex_lock(&h->pool->feed.mutex);
  h->stop = true;
  pthread_cond_broadcast(&h->pool->feed.wake);
  pthread_mutex_unlock(&h->pool->feed.mutex);
  brim_thread_join(h->thread);
  while (h->count > 0) drop_first(h);
  brim_http_client_close(h->client);
  brim_store_close(h->store);
  if (h->path) explicit_bzero(h->path, strlen(h->path));
  brim_free(h->path);
  brim_free(h->base);
  brim_free(h->grids);
  brim_free(h);
}

// Opens the webhook. Its messages are about events after those that the feed has now.
static brim_status open_part(brim_lab_pool *pool) {
  if (!pool->options.webhook) return BRIM_OK;
  brim_pool_hook *h = (brim_pool_hook *)brim_calloc(1, sizeof *h);
  if (!h) return brim_fail(BRIM_ENOMEM, "out of memory for the webhook");
  h->pool = pool;
  pool->hook = h;
  brim_status status = open_hook(h);
  if (status) close_hook(pool);
  return status;
}

// Starts the thread when the server listens, since messages name the server's address.
static brim_status start_hook(brim_lab_pool *pool) {
  if (!pool->hook) return BRIM_OK;
  find_page(pool->hook);
  return brim_thread_start(run_hook, pool->hook, "brim-webhook", &pool->hook->thread);
}

const brim_pool_part brim_pool_hook_part = {
    .open = open_part, .start = start_hook, .close = close_hook};
