// SQL for both drivers: translates one text into two dialects and cleans texts. Then the transactions
// of the store.

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_status.h"
#include "lab/store/lab_store_int.h"

//------------------------------------------ statements ------------------------------------------

static const char *const WORDS[BRIM_DB_WORD_COUNT] = {
    [BRIM_DB_WORD_INT] = "INT",       [BRIM_DB_WORD_REAL] = "REAL",
    [BRIM_DB_WORD_STRICT] = "STRICT", [BRIM_DB_WORD_STRICT_KEY] = "STRICT_KEY",
    [BRIM_DB_WORD_LOCK] = "LOCK",     [BRIM_DB_WORD_LOCK_FREE] = "LOCK_FREE",
    [BRIM_DB_WORD_BYTES] = "BYTES",   [BRIM_DB_WORD_INSTR] = "INSTR",
};

static bool is_word_char(char c) { return (c >= 'A' && c <= 'Z') || c == '_'; }

// Translates the text for this driver. BRIM_EINTERNAL: it has an unknown @WORD.
static brim_status translate(const brim_db_driver *driver, const char *sql, brim_str *out) {
  brim_str_clear(out);
  while (*sql) {
    size_t plain = strcspn(sql, "?@");
    brim_str_append_n(out, sql, plain);
    sql += plain;
    if (*sql == '?') {
      brim_str_append_char(out, driver->dollar ? '$' : '?');
      sql++;
    } else if (*sql == '@') {
      size_t n = 0;
      while (is_word_char(sql[1 + n])) n++;
      int word = 0;
      while (word < BRIM_DB_WORD_COUNT &&
             (strlen(WORDS[word]) != n || strncmp(WORDS[word], sql + 1, n) != 0)) {
        word++;
      }
      if (word == BRIM_DB_WORD_COUNT) {
        return brim_fail(BRIM_EINTERNAL, "a statement of the store has an unknown word: %s", sql);
      }
      brim_str_append(out, driver->words[word]);
      sql += 1 + n;
    }
  }
  return brim_str_status(out);
}

// Length in bytes of the UTF-8 sequence at text; 0 if it is not UTF-8.
static size_t sequence_length(const char *text) {
  unsigned char c = (unsigned char)*text;
  size_t n = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
  if (strnlen(text, n) < n) return 0;
  return brim_utf8_valid(text, n) ? n : 0;
}

static void put_clean(brim_str *out, const char *text) {
  while (*text) {
    size_t n = sequence_length(text);
    if (n > 0) {
      brim_str_append_n(out, text, n);
    } else {
      brim_str_append(out, "\xEF\xBF\xBD");
    }
    text += n ? n : 1;
  }
}

// Copies the text with U+FFFD for every byte that is not UTF-8; NULL if memory is out.
static char *clean_text(const char *text) {
  brim_str clean;
  brim_str_init(&clean);
  put_clean(&clean, text);
  return brim_str_take(&clean);
}

// Appends the text as an SQL literal, with U+FFFD for every byte that is not UTF-8.
static void put_literal(brim_str *out, const char *text) {
  brim_str clean;
  brim_str_init(&clean);
  put_clean(&clean, text);
  if (brim_str_status(&clean)) out->status = clean.status;
  brim_str_append_char(out, '\'');
  for (const char *c = clean.data; *c; c++) {
    if (*c == '\'') brim_str_append_char(out, '\'');
    brim_str_append_char(out, *c);
  }
  brim_str_append_char(out, '\'');
  brim_str_deinit(&clean);
}

brim_status brim_db_script(brim_db *db, const char *sql) {
  BRIM_TRY(translate(db->driver, sql, &db->sql));
  return db->driver->script(db, db->sql.data);
}

// The arguments of a call. Texts that a database would refuse are replaced by clean copies.
typedef struct call_args {
  brim_db_arg *args;  // the caller's, or a copy
  char **clean;       // one per argument, NULL where the argument is clean
  size_t count;
} call_args;

static void free_args(call_args *a, const brim_db_arg *given) {
  if (a->args == given) return;
  for (size_t i = 0; i < a->count; i++) brim_free(a->clean[i]);
  brim_free(a->clean);
  brim_free(a->args);
}

static brim_status clean_args(const brim_db_arg *args, size_t count, call_args *out) {
  bool sound = true;
  for (size_t i = 0; i < count && sound; i++) {
    sound = args[i].kind != BRIM_DB_TEXT || args[i].null ||
            brim_utf8_valid(args[i].t, strlen(args[i].t));
  }
  out->args = (brim_db_arg *)args;
  out->clean = NULL;
  out->count = count;
  if (sound) return BRIM_OK;
  out->args = brim_calloc(count, sizeof *out->args);
  out->clean = brim_calloc(count, sizeof *out->clean);
  brim_status status = out->args && out->clean ? BRIM_OK : BRIM_ENOMEM;
  for (size_t i = 0; i < count && !status; i++) {
    out->args[i] = args[i];
    if (args[i].kind != BRIM_DB_TEXT || args[i].null) continue;
    out->args[i].t = out->clean[i] = clean_text(args[i].t);
    if (!out->clean[i]) status = BRIM_ENOMEM;
  }
  if (!status) return BRIM_OK;
  if (!out->clean) out->count = 0;
  free_args(out, args);
  return brim_fail(BRIM_ENOMEM, "out of memory in the store");
}

brim_status brim_db_exec(brim_db *db, const char *sql, const brim_db_arg *args, size_t count,
                         int64_t *changed) {
  int64_t unused;
  call_args call;
  BRIM_TRY(translate(db->driver, sql, &db->sql));
  BRIM_TRY(clean_args(args, count, &call));
  brim_status status =
      db->driver->exec(db, db->sql.data, call.args, count, changed ? changed : &unused);
  free_args(&call, args);
  return status;
}

static brim_status query(brim_db *db, const char *sql, const brim_db_arg *args, size_t count,
                         brim_db_rows *rows) {
  call_args call;
  BRIM_TRY(translate(db->driver, sql, &db->sql));
  BRIM_TRY(clean_args(args, count, &call));
  brim_status status = db->driver->query(db, db->sql.data, call.args, count, rows);
  free_args(&call, args);
  return status;
}

brim_status brim_db_query(brim_db *db, const char *sql, const brim_db_arg *args, size_t count,
                          brim_db_rows *rows) {
  *rows = (brim_db_rows){.db = db, .row = -1};
  return query(db, sql, args, count, rows);
}

brim_status brim_db_stream(brim_db *db, const char *sql, const brim_db_arg *args, size_t count,
                           brim_db_rows *rows) {
  *rows = (brim_db_rows){.db = db, .row = -1, .stream = true};
  return query(db, sql, args, count, rows);
}

brim_status brim_db_next(brim_db_rows *rows, bool *there) {
  *there = false;
  return rows->db->driver->next(rows, there);
}

void brim_db_done(brim_db_rows *rows) {
  if (rows->handle) rows->db->driver->done(rows);
  rows->handle = NULL;
}

bool brim_db_is_null(brim_db_rows *rows, int column) {
  return rows->db->driver->is_null(rows, column);
}

int64_t brim_db_get_int(brim_db_rows *rows, int column) {
  return brim_db_is_null(rows, column) ? 0 : rows->db->driver->get_int(rows, column);
}

brim_status brim_db_get_enum(brim_db_rows *rows, int column, int count, int *out) {
  int64_t value = brim_db_get_int(rows, column);
  *out = 0;
  if (value < 0 || value >= count) {
    return brim_fail(BRIM_EPARSE, "the store is damaged: a state or a kind has the value %lld",
                     (long long)value);
  }
  *out = (int)value;
  return BRIM_OK;
}

double brim_db_get_real(brim_db_rows *rows, int column) {
  return brim_db_is_null(rows, column) ? (double)NAN : rows->db->driver->get_real(rows, column);
}

const char *brim_db_get_text(brim_db_rows *rows, int column) {
  const char *text =
      brim_db_is_null(rows, column) ? NULL : rows->db->driver->get_text(rows, column);
  return text ? text : "";
}

brim_status brim_db_get_one(brim_db *db, const char *sql, const brim_db_arg *args, size_t count,
                            int64_t *out) {
  brim_db_rows rows;
  bool there = false;
  brim_status status = brim_db_query(db, sql, args, count, &rows);
  if (!status) status = brim_db_next(&rows, &there);
  if (!status && there) *out = brim_db_get_int(&rows, 0);
  brim_db_done(&rows);
  if (status) return status;
  return there ? BRIM_OK : brim_fail(BRIM_ENOENT, "the store has no such row");
}

brim_status brim_db_begin(brim_db *db, bool write) {
  db->again = false;
  BRIM_TRY(db->driver->script(db, write ? db->driver->begin_write : db->driver->begin_read));
  db->in_transaction = true;
  return BRIM_OK;
}

// Commits. `tail` (or NULL, already translated) runs in the same message as COMMIT, so a process that
// stops cannot hold the locks of `tail` in between.
static brim_status commit(brim_db *db, const char *tail) {
  brim_str_clear(&db->sql);
  brim_str_printf(&db->sql, "%s;COMMIT", tail ? tail : "");
  brim_status status = brim_str_status(&db->sql);
  if (!status) status = db->driver->script(db, db->sql.data[0] == ';' ? "COMMIT" : db->sql.data);
  if (status) return status;
  db->in_transaction = false;
  return BRIM_OK;
}

void brim_db_rollback(brim_db *db) {
  if (!db->in_transaction) return;
  db->in_transaction = false;
  if (db->lost) return;
  char detail[1024];
  snprintf(detail, sizeof detail, "%s", brim_status_detail());
  brim_utf8_trim(detail);
  bool again = db->again;
  (void)db->driver->script(db, "ROLLBACK");
  db->again = again;
  brim_status_set_detail(detail);
}

void brim_db_close(brim_db *db) {
  if (!db) return;
  brim_str_deinit(&db->sql);
  db->driver->close(db);
}

//----------------------------------------- transactions -----------------------------------------
// Begins transactions, runs them again where that helps, and commits them together with their events.

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
  // Each row gets the last seq plus 1, 2, ...; the driver's lock_events makes that safe.
  brim_str_printf(e, "%s((SELECT COALESCE(MAX(seq),0) FROM event)+%d,%lld,", first ? "" : ",",
                  ++store->event_count, (long long)now);
  put_literal(e, exp);
  brim_str_append_char(e, ',');
  put_literal(e, kind);
  brim_str_append_char(e, ',');
  put_literal(e, text);
  brim_str_append_char(e, ',');
  put_literal(e, store->who);
  brim_str_append_char(e, ')');
}

void brim_store_set_author(brim_store *store, const char *who) {
  snprintf(store->who, sizeof store->who, "%s", who ? who : "");
  brim_utf8_trim(store->who);
}

// Saves the time in the file: SQLite's clock must not fall behind the last time saved.
static void note_clock(brim_store *store, int64_t now) {
  if (!store->path || now <= store->clock_saved) return;
  store->clock_saved = now;
  brim_str_printf(&store->events,
                  "%sUPDATE meta SET value='%lld' WHERE key='clock'"
                  " AND CAST(value AS INTEGER)<%lld",
                  store->events.len ? ";" : "", (long long)now, (long long)now);
}

static void clear_events(brim_store *store) {
  if (brim_str_status(&store->events)) {  // a failure for lack of memory stays until deinit
    brim_str_deinit(&store->events);
    brim_str_init(&store->events);
  }
  brim_str_clear(&store->events);
}

// Undoes one call of a group. If even that fails, the group is lost: SQLite ends the transaction when
// its disk is full.
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

// Runs one call inside the transaction of a group.
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

// Commits the transaction, or rolls it back if `status` is a failure.
static brim_status end_transaction(brim_store *store, brim_status status, bool write) {
  int64_t now = 0, saved = store->clock_saved;
  if (!status && write && store->path) status = store->db->driver->now(store->db, &now);
  if (!status && write) {
    note_clock(store, now);
    status = brim_str_status(&store->events);
  }
  if (!status) status = commit(store->db, store->events.len ? store->events.data : NULL);
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
  return end_transaction(store, store->group_status, true);
}

static brim_status run(brim_store *store, brim_store_fn fn, void *ctx, bool write) {
  if (store->grouped) return run_grouped(store, fn, ctx, write);
  clear_events(store);
  BRIM_TRY(brim_db_begin(store->db, write));
  return end_transaction(store, fn(store, ctx), write);
}

// Extends leases after a lost connection, which may have kept every beat from arriving.
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
