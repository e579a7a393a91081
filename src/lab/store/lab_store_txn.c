// Transactions of the store: begun, run again where that helps, ended together with their events.
#include <stdio.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_status.h"
#include "lab/store/lab_store_int.h"

enum { TRIES = 6 };

brim_status brim_store_time(brim_store *store, int64_t *ms) {
  if (store->options.clock) {
    *ms = store->options.clock(store->options.ctx);
    return BRIM_OK;
  }
  return store->db->driver->now(store->db, ms);
}

void brim_store_note(brim_store *store, int64_t now, const char *exp, const char *kind,
                     const char *text) {
  brim_str *e = &store->events;
  bool first = e->len == 0;
  if (first) {
    brim_str_append(e, store->db->driver->lock_events);
    brim_str_append(e, "INSERT INTO event(seq,t,exp,kind,text,who) VALUES ");
    store->event_count = 0;
  }
  // One more than the last for each row; the driver's lock makes that safe.
  brim_str_printf(e, "%s((SELECT COALESCE(MAX(seq),0) FROM event)+%d,%lld,", first ? "" : ",",
                  ++store->event_count, (long long)now);
  brim_db_put_literal(e, exp);
  brim_str_append_char(e, ',');
  brim_db_put_literal(e, kind);
  brim_str_append_char(e, ',');
  brim_db_put_literal(e, text);
  brim_str_append_char(e, ',');
  brim_db_put_literal(e, store->who);
  brim_str_append_char(e, ')');
}

void brim_store_set_author(brim_store *store, const char *who) {
  snprintf(store->who, sizeof store->who, "%s", who ? who : "");
  brim_utf8_trim(store->who);
}

// SQLite's clock must not fall behind what the file has seen.
static void note_clock(brim_store *store, int64_t now) {
  if (!store->path || now <= store->clock_saved) return;
  store->clock_saved = now;
  brim_str_printf(&store->events,
                  "%sUPDATE meta SET value='%lld' WHERE key='clock'"
                  " AND CAST(value AS INTEGER)<%lld",
                  store->events.len ? ";" : "", (long long)now, (long long)now);
}

static void clear_events(brim_store *store) {
  if (brim_str_status(&store->events)) {  // memory ran out in an earlier one: that sticks
    brim_str_deinit(&store->events);
    brim_str_init(&store->events);
  }
  brim_str_clear(&store->events);
}

// Undoes one call of a group. SQLite ends the whole transaction when its disk is full.
static void undo_call(brim_store *store, brim_status why) {
  char detail[1024];
  snprintf(detail, sizeof detail, "%s", brim_status_detail());
  brim_utf8_trim(detail);
  bool again = store->db->again;
  if (store->db->driver->script(store->db, "ROLLBACK TO call;RELEASE call")) {
    again = false;
    store->group_status = why == BRIM_ENOMEM ? why : BRIM_EIO;
    snprintf(store->group_detail, sizeof store->group_detail, "%s", detail);
    brim_utf8_trim(store->group_detail);
  }
  store->db->again = again;
  brim_status_set_detail(detail);
}

// One call inside the transaction of a group.
static brim_status run_grouped(brim_store *store, brim_store_fn fn, void *ctx, bool write) {
  if (store->group_status) {
    brim_status_set_detail(store->group_detail);
    return store->group_status;
  }
  store->db->again = false;
  if (!write) return fn(store, ctx);
  clear_events(store);
  BRIM_TRY(store->db->driver->script(store->db, "SAVEPOINT call"));
  brim_status status = fn(store, ctx);
  if (!status) {
    brim_str_append(&store->events, store->events.len ? ";RELEASE call" : "RELEASE call");
    status = brim_str_status(&store->events);
  }
  if (!status) status = store->db->driver->script(store->db, store->events.data);
  if (status) undo_call(store, status);
  return status;
}

// The end of a transaction, by how it went so far.
static brim_status end(brim_store *store, brim_status status, bool write) {
  int64_t now = 0, saved = store->clock_saved;
  if (!status && write && store->path) status = store->db->driver->now(store->db, &now);
  if (!status && write) {
    note_clock(store, now);
    status = brim_str_status(&store->events);
  }
  if (!status) status = brim_db_commit(store->db, store->events.len ? store->events.data : NULL);
  if (!status) return BRIM_OK;
  brim_db_rollback(store->db);
  store->clock_saved = saved;
  return status;
}

brim_status brim_store_group_begin(brim_store *store) {
  if (!store->path || store->options.readonly) return BRIM_OK;
  BRIM_TRY(brim_db_begin(store->db, true));
  store->grouped = true;
  store->group_status = BRIM_OK;
  return BRIM_OK;
}

brim_status brim_store_group_end(brim_store *store) {
  if (!store->grouped) return BRIM_OK;
  store->grouped = false;
  clear_events(store);
  if (store->group_status) brim_status_set_detail(store->group_detail);
  return end(store, store->group_status, true);
}

static brim_status run(brim_store *store, brim_store_fn fn, void *ctx, bool write) {
  if (store->grouped) return run_grouped(store, fn, ctx, write);
  clear_events(store);
  BRIM_TRY(brim_db_begin(store->db, write));
  return end(store, fn(store, ctx), write);
}

// A connection that was away may have kept every beat from arriving: leases get time again.
static brim_status set_grace(brim_store *store) {
  if (store->connected == store->db->connected) return BRIM_OK;
  int64_t now;
  BRIM_TRY(brim_store_time(store, &now));
  store->connected = store->db->connected;
  if (store->options.grace_ms > 0) store->grace_until = now + store->options.grace_ms;
  return BRIM_OK;
}

static brim_status run_again(brim_store *store, brim_store_fn fn, void *ctx, bool write) {
  brim_status status = BRIM_OK;
  for (int n = 0; n < TRIES; n++) {
    status = store->db->driver->ready(store->db);
    if (!status) status = set_grace(store);
    if (!status) status = run(store, fn, ctx, write);
    if (!status) return BRIM_OK;
    if (!store->db->again) return status;
    if (!store->db->lost) brim_clock_sleep_ns((int64_t)(n + 1) * 2000000);
  }
  return status;
}

brim_status brim_store_write(brim_store *store, brim_store_fn fn, void *ctx) {
  if (store->options.readonly) {
    return brim_fail(BRIM_ESTATE, "the store %s is open for reading only", store->place);
  }
  return run_again(store, fn, ctx, true);
}

brim_status brim_store_read(brim_store *store, brim_store_fn fn, void *ctx) {
  return run_again(store, fn, ctx, false);
}

brim_status brim_store_get_meta(brim_store *store, const char *key, char **out) {
  *out = NULL;
  brim_db_rows rows;
  bool there = false;
  brim_status status = brim_db_query(store->db, "SELECT value FROM meta WHERE key=?1",
                                     BRIM_DB_ARGS(brim_db_text(key)), &rows);
  if (!status) status = brim_db_next(&rows, &there);
  if (!status) {
    *out = brim_strdup(there ? brim_db_get_text(&rows, 0) : "");
    if (!*out) status = brim_fail(BRIM_ENOMEM, "out of memory in the store");
  }
  brim_db_done(&rows);
  return status;
}

brim_status brim_store_set_meta(brim_store *store, const char *key, const char *value) {
  return brim_db_exec(store->db,
                      "INSERT INTO meta(key,value) VALUES (?1,?2)"
                      " ON CONFLICT(key) DO UPDATE SET value=excluded.value",
                      BRIM_DB_ARGS(brim_db_text(key), brim_db_text(value)), NULL);
}

brim_status brim_store_check_moved(brim_store *store) {
  char *to = NULL;
  BRIM_TRY(brim_store_get_meta(store, "moved_to", &to));
  brim_status status =
      *to ? brim_fail(BRIM_ESTATE, "the store %s was moved to %s; use it there", store->place, to)
          : BRIM_OK;
  brim_free(to);
  return status;
}
