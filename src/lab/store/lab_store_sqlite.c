// The SQLite driver: write-ahead log, every commit on the disk before it returns, statements
// prepared once.
//
// The store's clock never goes back. Inside a process it advances with CLOCK_BOOTTIME, so setting the
// machine's date moves no lease; across processes it starts from the larger of the date and the last
// time in the file.
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_fs.h"
#include "base/base_status.h"
#include "base/base_xxh64.h"
#include "lab/store/lab_store_int.h"

enum {
  CACHED = 64,
  BUSY_MS = 10000,
  APPLICATION_ID = 0x6272696d,  // "brim", in the header of the file
};

typedef struct statement {
  sqlite3_stmt *stmt;
  uint64_t hash;
  uint64_t last_use;  // sqlite_db.uses at the last use; the smallest is dropped first
  bool busy;
} statement;

typedef struct sqlite_db {
  brim_db base;
  sqlite3 *db;
  uint64_t uses;
  statement cache[CACHED];
  int64_t clock_at_open, boot_at_open;
} sqlite_db;

static const brim_db_driver DRIVER;

static sqlite_db *sqlite_of(brim_db *db) { return (sqlite_db *)db; }

// SQLite knows ENOSPC only: to it, a quota or a limit on a file's size is an I/O error.
static const char *text_of(sqlite_db *d) {
  const int error = sqlite3_system_errno(d->db);
  const bool io = (sqlite3_errcode(d->db) & 0xff) == SQLITE_IOERR;
  const bool full = io && (error == ENOSPC || error == EDQUOT || error == EFBIG);
  return full ? "database or disk is full" : sqlite3_errmsg(d->db);
}

static brim_status fail(sqlite_db *d) {
  const char *text = text_of(d);
  int code = sqlite3_errcode(d->db);
  d->base.again = false;
  switch (code & 0xff) {
    case SQLITE_NOMEM:
      return brim_fail(BRIM_ENOMEM, "out of memory in the store");
    case SQLITE_CONSTRAINT:
      return brim_fail(BRIM_EEXIST, "the store refuses a row: %s", text);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return brim_fail(BRIM_EPARSE, "the store's file is damaged: %s", text);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
      return brim_fail(BRIM_EIO, "cannot use the store's file: %s", text);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return brim_fail(BRIM_EINVAL, "cannot write the store's file: %s", text);
    default:
      return brim_fail(BRIM_EINTERNAL, "a statement of the store failed: %s", text);
  }
}

static void close_db(brim_db *db) {
  sqlite_db *d = sqlite_of(db);
  for (int i = 0; i < CACHED; i++) sqlite3_finalize(d->cache[i].stmt);
  sqlite3_close(d->db);
  brim_free(d);
}

// A slot for a new statement: an empty one, or that of the statement unused for longest.
static statement *free_slot(sqlite_db *d) {
  statement *oldest = NULL;
  for (int i = 0; i < CACHED; i++) {
    statement *s = &d->cache[i];
    if (!s->stmt) return s;
    if (!s->busy && (!oldest || s->last_use < oldest->last_use)) oldest = s;
  }
  return oldest;
}

static uint64_t hash_of(const char *sql) {
  brim_xxh64 h;
  brim_xxh64_init(&h);
  brim_xxh64_update(&h, sql, strlen(sql));
  return brim_xxh64_value(&h);
}

static brim_status prepare(sqlite_db *d, const char *sql, statement **out) {
  uint64_t hash = hash_of(sql);
  for (int i = 0; i < CACHED; i++) {
    statement *s = &d->cache[i];
    if (!s->stmt || s->busy || s->hash != hash || strcmp(sqlite3_sql(s->stmt), sql) != 0) continue;
    s->last_use = ++d->uses;
    s->busy = true;
    *out = s;
    return BRIM_OK;
  }
  sqlite3_stmt *stmt;
  if (sqlite3_prepare_v3(d->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, NULL)) return fail(d);
  statement *s = free_slot(d);
  if (!s) {
    sqlite3_finalize(stmt);
    return brim_fail(BRIM_EINTERNAL, "too many statements of the store run at once");
  }
  sqlite3_finalize(s->stmt);
  *s = (statement){.stmt = stmt, .hash = hash, .last_use = ++d->uses, .busy = true};
  *out = s;
  return BRIM_OK;
}

static void release(statement *s) {
  sqlite3_reset(s->stmt);
  sqlite3_clear_bindings(s->stmt);
  s->busy = false;
}

// `how`: SQLITE_STATIC when the texts stay until the statement is released, which saves a copy of each.
static brim_status bind(sqlite_db *d, statement *s, const brim_db_arg *args, size_t count,
                        sqlite3_destructor_type how) {
  for (size_t i = 0; i < count; i++) {
    const brim_db_arg *a = &args[i];
    int n = (int)i + 1, rc;
    if (a->null) {
      rc = sqlite3_bind_null(s->stmt, n);
    } else if (a->kind == BRIM_DB_INT) {
      rc = sqlite3_bind_int64(s->stmt, n, a->i);
    } else if (a->kind == BRIM_DB_REAL) {
      rc = sqlite3_bind_double(s->stmt, n, a->r);
    } else {
      rc = sqlite3_bind_text(s->stmt, n, a->t, -1, how);
    }
    if (rc) return fail(d);
  }
  return BRIM_OK;
}

static brim_status start(sqlite_db *d, const char *sql, const brim_db_arg *args, size_t count,
                         sqlite3_destructor_type how, statement **out) {
  BRIM_TRY(prepare(d, sql, out));
  brim_status status = bind(d, *out, args, count, how);
  if (status) release(*out);
  return status;
}

static brim_status exec(brim_db *db, const char *sql, const brim_db_arg *args, size_t count,
                        int64_t *changed) {
  sqlite_db *d = sqlite_of(db);
  statement *s;
  BRIM_TRY(start(d, sql, args, count, SQLITE_STATIC, &s));
  int rc = sqlite3_step(s->stmt);
  brim_status status = rc == SQLITE_DONE || rc == SQLITE_ROW ? BRIM_OK : fail(d);
  *changed = status ? 0 : sqlite3_changes64(d->db);
  release(s);
  return status;
}

static brim_status query(brim_db *db, const char *sql, const brim_db_arg *args, size_t count,
                         brim_db_rows *rows) {
  statement *s;
  BRIM_TRY(start(sqlite_of(db), sql, args, count, SQLITE_TRANSIENT, &s));
  rows->handle = s;
  return BRIM_OK;
}

static brim_status next(brim_db_rows *rows, bool *there) {
  int rc = sqlite3_step(((statement *)rows->handle)->stmt);
  *there = rc == SQLITE_ROW;
  return rc == SQLITE_ROW || rc == SQLITE_DONE ? BRIM_OK : fail(sqlite_of(rows->db));
}

static sqlite3_stmt *row_of(brim_db_rows *rows) { return ((statement *)rows->handle)->stmt; }

static bool is_null(brim_db_rows *rows, int column) {
  return sqlite3_column_type(row_of(rows), column) == SQLITE_NULL;
}

static int64_t get_int(brim_db_rows *rows, int column) {
  return sqlite3_column_int64(row_of(rows), column);
}

static double get_real(brim_db_rows *rows, int column) {
  return sqlite3_column_double(row_of(rows), column);
}

static const char *get_text(brim_db_rows *rows, int column) {
  return (const char *)sqlite3_column_text(row_of(rows), column);
}

static void done(brim_db_rows *rows) { release(rows->handle); }

static brim_status script(brim_db *db, const char *sql) {
  sqlite_db *d = sqlite_of(db);
  return sqlite3_exec(d->db, sql, NULL, NULL, NULL) ? fail(d) : BRIM_OK;
}

static brim_status ready(brim_db *db) {
  (void)db;
  return BRIM_OK;
}

static int64_t boot_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_BOOTTIME, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static brim_status now(brim_db *db, int64_t *out) {
  sqlite_db *d = sqlite_of(db);
  *out = d->clock_at_open + boot_ms() - d->boot_at_open;
  return BRIM_OK;
}

static void set_clock(brim_db *db, int64_t at_least) {
  sqlite_db *d = sqlite_of(db);
  int64_t date = (int64_t)(brim_clock_wall_s() * 1e3);
  d->clock_at_open = date > at_least ? date : at_least;
  d->boot_at_open = boot_ms();
}

static brim_status pragma(sqlite_db *d, const char *sql, int64_t *out) {
  brim_db_rows rows = {.db = &d->base};
  bool there = false;
  brim_status status = query(&d->base, sql, BRIM_DB_NO_ARGS, &rows);
  if (!status) status = next(&rows, &there);
  if (!status && there && out) *out = sqlite3_column_int64(row_of(&rows), 0);
  if (rows.handle) done(&rows);
  return status;
}

static brim_status check_application_id(sqlite_db *d, const char *path, bool readonly) {
  int64_t id = 0, tables = 0;
  BRIM_TRY(pragma(d, "PRAGMA application_id", &id));
  BRIM_TRY(pragma(d, "SELECT COUNT(*) FROM sqlite_master", &tables));
  if (id != APPLICATION_ID && (id != 0 || tables > 0)) {
    return brim_fail(BRIM_EINVAL, "%s was not written by brim", path);
  }
  if (readonly || id == APPLICATION_ID) return BRIM_OK;
  char sql[64];
  sqlite3_snprintf(sizeof sql, sql, "PRAGMA application_id=%d", APPLICATION_ID);
  return script(&d->base, sql);
}

static brim_status set_up(sqlite_db *d, const char *path, bool readonly) {
  if (sqlite3_busy_timeout(d->db, BUSY_MS)) return fail(d);
  sqlite3_extended_result_codes(d->db, 1);
  BRIM_TRY(check_application_id(d, path, readonly));
  if (readonly) return BRIM_OK;
  BRIM_TRY(pragma(d, "PRAGMA journal_mode=WAL", NULL));
  // temp_store: keep the undo data of savepoints in memory, not in a temporary file.
  return script(&d->base,
                "PRAGMA synchronous=FULL;PRAGMA foreign_keys=OFF;PRAGMA trusted_schema=OFF;"
                "PRAGMA temp_store=MEMORY;PRAGMA cache_size=-16384");
}

// Opens the file. A file without a log in a folder without write permission is opened as immutable,
// since the usual way creates files beside it.
static brim_status open_file(sqlite_db *d, const char *path, bool readonly) {
  brim_str name;
  brim_str_init(&name);
  brim_str_append(&name, "file:");
  for (const char *c = path; *c; c++) {
    if (strchr("%?#", *c)) {
      brim_str_printf(&name, "%%%02X", (unsigned)(unsigned char)*c);
    } else {
      brim_str_append_char(&name, *c);
    }
  }
  brim_str log;
  brim_str_init(&log);
  brim_str_printf(&log, "%s-wal", path);
  char *folder = brim_fs_dirname(path);
  bool immutable = readonly && !brim_fs_exists(log.data) && folder && access(folder, W_OK) != 0;
  if (immutable) brim_str_append(&name, "?immutable=1");
  brim_status status = brim_str_status(&name);
  if (!status) status = brim_str_status(&log);
  if (!status && !folder) status = brim_fail(BRIM_ENOMEM, "out of memory in the store");
  int flags = readonly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  if (!status && sqlite3_open_v2(name.data, &d->db, flags | SQLITE_OPEN_URI, NULL)) {
    status = d->db ? fail(d) : brim_fail(BRIM_ENOMEM, "out of memory in the store");
  }
  brim_free(folder);
  brim_str_deinit(&log);
  brim_str_deinit(&name);
  return status;
}

brim_status brim_db_sqlite_open(const char *path, bool readonly, brim_db **out) {
  *out = NULL;
  sqlite_db *d = brim_calloc(1, sizeof *d);
  if (!d) return brim_fail(BRIM_ENOMEM, "out of memory in the store");
  d->base.driver = &DRIVER;
  d->base.connected = 1;
  brim_str_init(&d->base.sql);
  set_clock(&d->base, 0);
  brim_status status = open_file(d, path, readonly);
  if (!status) status = set_up(d, path, readonly);
  if (status) {
    brim_fail_context(status, "cannot open %s", path);
    brim_db_close(&d->base);
    return status;
  }
  *out = &d->base;
  return BRIM_OK;
}

// Opens for writing, so that the connection may move the log into the file; query_only forbids the rest.
static brim_status open_second_connection(brim_db *first, brim_db **out) {
  BRIM_TRY(brim_db_sqlite_open(sqlite3_db_filename(sqlite_of(first)->db, "main"), false, out));
  sqlite_db *d = sqlite_of(*out);
  d->clock_at_open = sqlite_of(first)->clock_at_open;
  d->boot_at_open = sqlite_of(first)->boot_at_open;
  brim_status status = script(*out, "PRAGMA query_only=ON");
  if (!status) return BRIM_OK;
  brim_db_close(*out);
  *out = NULL;
  return status;
}

static brim_status set_wal_autocheckpoint(brim_db *db, int pages) {
  sqlite_db *d = sqlite_of(db);
  return sqlite3_wal_autocheckpoint(d->db, pages) ? fail(d) : BRIM_OK;
}

static brim_status checkpoint_wal(brim_db *db, int64_t *pages) {
  sqlite_db *d = sqlite_of(db);
  int length = 0;
  int rc = sqlite3_wal_checkpoint_v2(d->db, NULL, SQLITE_CHECKPOINT_PASSIVE, &length, NULL);
  *pages = rc || length < 0 ? 0 : length;
  return rc && rc != SQLITE_BUSY ? fail(d) : BRIM_OK;
}

static bool has_moved(brim_db *db) {
  int moved = 0;
  return sqlite3_file_control(sqlite_of(db)->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) ==
             SQLITE_OK &&
         moved;
}

// VACUUM INTO does not sync its file. brim_fs_copy syncs a copy and renames it into place.
static brim_status backup(brim_db *db, const char *path) {
  brim_str temp;
  brim_str_init(&temp);
  brim_str_printf(&temp, "%s" BRIM_FS_TEMP_MARK "%ld.0", path, (long)getpid());
  brim_status status = brim_str_status(&temp);
  if (!status && brim_fs_exists(temp.data)) status = brim_fs_remove(temp.data);
  int64_t unused;
  if (!status) {
    status = exec(db, "VACUUM INTO ?1", BRIM_DB_ARGS(brim_db_text(temp.data)), &unused);
  }
  if (!status) status = brim_fs_copy(temp.data, path);
  char detail[1024];
  if (status) snprintf(detail, sizeof detail, "%s", brim_status_detail());
  if (temp.len && brim_fs_exists(temp.data)) (void)brim_fs_remove(temp.data);
  if (status) {
    brim_status_set_detail(detail);
    brim_fail_context(status, "cannot back up to %s", path);
  }
  brim_str_deinit(&temp);
  return status;
}

static const brim_db_driver DRIVER = {
    .name = "sqlite",
    .words =
        {
            [BRIM_DB_WORD_INT] = "INTEGER",
            [BRIM_DB_WORD_REAL] = "REAL",
            [BRIM_DB_WORD_STRICT] = "STRICT",
            [BRIM_DB_WORD_STRICT_KEY] = "STRICT, WITHOUT ROWID",
            [BRIM_DB_WORD_LOCK] = "",
            [BRIM_DB_WORD_LOCK_FREE] = "",
            [BRIM_DB_WORD_BYTES] = "",
            [BRIM_DB_WORD_INSTR] = "instr",
        },
    .ready = ready,
    .close = close_db,
    .script = script,
    .exec = exec,
    .query = query,
    .next = next,
    .is_null = is_null,
    .get_int = get_int,
    .get_real = get_real,
    .get_text = get_text,
    .done = done,
    .begin_write = "BEGIN IMMEDIATE",
    .begin_read = "BEGIN",
    .lock_events = "",
    .long_transaction = "",
    .lock_tables = "",
    .count_meta = "SELECT COUNT(*) FROM sqlite_master WHERE type='table' AND name='meta'",
    .now = now,
    .open_beside = open_second_connection,
    .set_clock = set_clock,
    .set_log = set_wal_autocheckpoint,
    .move_log = checkpoint_wal,
    .has_moved = has_moved,
    .backup = backup,
};
