// What both drivers share: one SQL text for two dialects, texts made sound, and transactions.
#include "lab/store/lab_store_db.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_status.h"

static const char *const WORDS[BRIM_DB_WORD_COUNT] = {
    [BRIM_DB_WORD_INT] = "INT",       [BRIM_DB_WORD_REAL] = "REAL",
    [BRIM_DB_WORD_STRICT] = "STRICT", [BRIM_DB_WORD_STRICT_KEY] = "STRICT_KEY",
    [BRIM_DB_WORD_LOCK] = "LOCK",     [BRIM_DB_WORD_LOCK_FREE] = "LOCK_FREE",
    [BRIM_DB_WORD_BYTES] = "BYTES",   [BRIM_DB_WORD_INSTR] = "INSTR",
};

static bool is_word_char(char c) { return (c >= 'A' && c <= 'Z') || c == '_'; }

brim_status brim_db_translate(const brim_db_driver *driver, const char *sql, brim_str *out) {
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

// Bytes of the UTF-8 sequence at text; 0 where there is none.
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

char *brim_db_clean_text(const char *text) {
  brim_str clean;
  brim_str_init(&clean);
  put_clean(&clean, text);
  return brim_str_take(&clean);
}

void brim_db_put_literal(brim_str *out, const char *text) {
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
  BRIM_TRY(brim_db_translate(db->driver, sql, &db->sql));
  return db->driver->script(db, db->sql.data);
}

// Texts that a database would refuse are replaced by clean copies for the time of a call.
typedef struct call_args {
  brim_db_arg *args;  // the caller's, or a copy
  char **clean;       // one per argument, mostly NULL
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
    out->args[i].t = out->clean[i] = brim_db_clean_text(args[i].t);
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
  BRIM_TRY(brim_db_translate(db->driver, sql, &db->sql));
  BRIM_TRY(clean_args(args, count, &call));
  brim_status status =
      db->driver->exec(db, db->sql.data, call.args, count, changed ? changed : &unused);
  free_args(&call, args);
  return status;
}

static brim_status query(brim_db *db, const char *sql, const brim_db_arg *args, size_t count,
                         brim_db_rows *rows) {
  call_args call;
  BRIM_TRY(brim_db_translate(db->driver, sql, &db->sql));
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

brim_status brim_db_commit(brim_db *db, const char *tail) {
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
