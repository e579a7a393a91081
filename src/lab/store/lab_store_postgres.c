// The PostgreSQL driver. It prepares each statement once per connection. The next call after a lost
// connection connects again; if that fails, calls fail at once until the time of the next try.
//
// A process that stops inside a transaction must not block the others. The server ends its session
// after IDLE_LIMIT, no call waits longer than LOCK_LIMIT for a row, and claims and reaping skip locked
// rows.

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_dl.h"
#include "base/base_msg.h"
#include "base/base_status.h"
#include "lab/store/lab_store_int.h"

//------------------------------------------- libpq -------------------------------------------
// The part of libpq that brim calls, written from its documented interface (libpq.so.5, stable
// since PostgreSQL 8). libpq is opened at run time, so building brim needs no header of it.

typedef struct pg_conn pq_conn;
typedef struct pg_result pq_result;
typedef struct pg_cancel pq_cancel;
typedef unsigned pq_oid;
typedef void (*pq_notice)(void *arg, const char *message);

enum {
  PQ_CONNECTION_OK = 0,
  PQ_COMMAND_OK = 1,
  PQ_TUPLES_OK = 2,
  PQ_SINGLE_TUPLE = 9,
  PQ_DIAG_SQLSTATE = 'C',
  PQ_OID_INT8 = 20,
  PQ_OID_TEXT = 25,
  PQ_OID_FLOAT8 = 701,
};
static_assert(sizeof(pq_oid) == 4, "an Oid has 32 bits");

typedef struct pq_api {
  pq_conn *(*connect)(const char *const *keywords, const char *const *values, int expand);
  void (*finish)(pq_conn *conn);
  int (*status)(const pq_conn *conn);
  char *(*error_message)(const pq_conn *conn);
  int (*server_version)(const pq_conn *conn);
  pq_notice (*set_notice)(pq_conn *conn, pq_notice proc, void *arg);
  pq_result *(*exec)(pq_conn *conn, const char *query);
  pq_result *(*prepare)(pq_conn *conn, const char *name, const char *query, int count,
                        const pq_oid *types);
  pq_result *(*exec_prepared)(pq_conn *conn, const char *name, int count, const char *const *values,
                              const int *lengths, const int *formats, int result_format);
  int (*send_prepared)(pq_conn *conn, const char *name, int count, const char *const *values,
                       const int *lengths, const int *formats, int result_format);
  int (*set_single_row)(pq_conn *conn);
  pq_result *(*get_result)(pq_conn *conn);
  pq_cancel *(*get_cancel)(pq_conn *conn);
  int (*cancel)(pq_cancel *cancel, char *error, int size);
  void (*free_cancel)(pq_cancel *cancel);
  int (*result_status)(const pq_result *result);
  char *(*result_error)(const pq_result *result);
  char *(*error_field)(const pq_result *result, int field);
  int (*ntuples)(const pq_result *result);
  char *(*get_value)(const pq_result *result, int row, int column);
  int (*get_is_null)(const pq_result *result, int row, int column);
  char *(*cmd_tuples)(pq_result *result);
  void (*clear)(pq_result *result);
} pq_api;

//------------------------------------------ the driver ------------------------------------------

#define IDLE_LIMIT "5s"
#define LOCK_LIMIT "10s"
#define STATEMENT_LIMIT "10min"

enum { CACHED = 96, OLDEST_SERVER = 120000, WAIT_FIRST_MS = 100, WAIT_MOST_MS = 10000 };

typedef struct statement {
  char *sql;
  char *types;  // one letter per parameter
} statement;

typedef struct pg_db {
  brim_db base;
  pq_api api;
  brim_dl *dl;
  pq_conn *conn;
  char *url, *place, *schema;
  pq_result *current;  // the row of a stream that was read last
  bool ended;          // the stream has no more rows
  statement cache[CACHED];
  int cached;
  int64_t wait_ms;       // the pause after the next failure to connect
  brim_time not_before;  // time of the next try to connect
  // Arguments of the running call.
  const char *values[BRIM_DB_MAX_ARGS];
  char numbers[BRIM_DB_MAX_ARGS][32];
  pq_oid oids[BRIM_DB_MAX_ARGS];
  char types[BRIM_DB_MAX_ARGS + 1];
} pg_db;

static const brim_db_driver DRIVER;

static pg_db *pg_of(brim_db *db) { return (pg_db *)db; }

static void put_line(char *out, size_t size, const char *text) {
  snprintf(out, size, "%s", text ? text : "");
  out[strcspn(out, "\n")] = '\0';
  brim_utf8_trim(out);
}

static void forget_statements(pg_db *d) {
  for (int i = 0; i < d->cached; i++) {
    brim_free(d->cache[i].sql);
    brim_free(d->cache[i].types);
  }
  d->cached = 0;
}

static brim_status fail_lost(pg_db *d, const char *text) {
  char line[512];
  put_line(line, sizeof line, text);
  d->base.lost = true;
  d->base.again = true;
  return brim_fail(BRIM_EIO, "lost the connection to the store %s: %s", d->place, line);
}

// Clears an unexpected result and fails with the status that fits it.
static brim_status fail(pg_db *d, pq_result *result) {
  char state[8] = "", line[512];
  const char *field = result ? d->api.error_field(result, PQ_DIAG_SQLSTATE) : NULL;
  snprintf(state, sizeof state, "%s", field ? field : "");
  const char *text = result ? d->api.result_error(result) : NULL;
  put_line(line, sizeof line, text && *text ? text : d->api.error_message(d->conn));
  if (result) d->api.clear(result);
  d->base.again = false;
  // A message without a state is libpq's own: the server did not answer. 57P0x: the server is about to
  // close the connection.
  if (d->api.status(d->conn) != PQ_CONNECTION_OK || !*state || strncmp(state, "57P", 3) == 0 ||
      strncmp(state, "08", 2) == 0) {
    return fail_lost(d, line);
  }
  static const char *const passing[] = {"40001", "40P01", "55P03"};
  for (size_t i = 0; i < sizeof passing / sizeof *passing; i++) {
    if (strcmp(state, passing[i]) == 0) d->base.again = true;
  }
  if (d->base.again || strncmp(state, "53", 2) == 0 || strncmp(state, "57", 2) == 0 ||
      strncmp(state, "58", 2) == 0) {
    return brim_fail(BRIM_EIO, "the store %s cannot do this now: %s", d->place, line);
  }
  if (strncmp(state, "23", 2) == 0) {
    return brim_fail(BRIM_EEXIST, "the store refuses a row: %s", line);
  }
  if (strcmp(state, "42501") == 0 || strncmp(state, "25", 2) == 0) {
    return brim_fail(BRIM_EINVAL, "the store %s refuses: %s", d->place, line);
  }
  return brim_fail(BRIM_EINTERNAL, "a statement of the store failed: %s", line);
}

static brim_status script(brim_db *db, const char *sql) {
  pg_db *d = pg_of(db);
  pq_result *result = d->api.exec(d->conn, sql);
  int status = result ? d->api.result_status(result) : -1;
  if (status != PQ_COMMAND_OK && status != PQ_TUPLES_OK) return fail(d, result);
  d->api.clear(result);
  return BRIM_OK;
}

static brim_status set_arguments(pg_db *d, const brim_db_arg *args, size_t count) {
  static const pq_oid oids[BRIM_DB_KIND_COUNT] = {PQ_OID_INT8, PQ_OID_FLOAT8, PQ_OID_TEXT};
  if (count > BRIM_DB_MAX_ARGS) {
    return brim_fail(BRIM_EINTERNAL, "a statement of the store has too many parameters");
  }
  for (size_t i = 0; i < count; i++) {
    const brim_db_arg *a = &args[i];
    d->oids[i] = oids[a->kind];
    d->types[i] = "irt"[a->kind];
    d->values[i] = a->null ? NULL : a->kind == BRIM_DB_TEXT ? a->t : d->numbers[i];
    if (a->kind == BRIM_DB_INT) snprintf(d->numbers[i], 32, "%lld", (long long)a->i);
    if (a->kind != BRIM_DB_REAL) continue;
    if (isinf(a->r)) {
      snprintf(d->numbers[i], 32, a->r < 0 ? "-Infinity" : "Infinity");
    } else {
      brim_format_f64(a->r, d->numbers[i]);
    }
  }
  d->types[count] = '\0';
  return BRIM_OK;
}

// Prepares a statement unless the server has it. *name: its name on the server.
static brim_status prepare(pg_db *d, const char *sql, size_t count, char name[16]) {
  for (int i = 0; i < d->cached; i++) {
    if (strcmp(d->cache[i].types, d->types) != 0 || strcmp(d->cache[i].sql, sql) != 0) continue;
    snprintf(name, 16, "b%d", i);
    return BRIM_OK;
  }
  if (d->cached == CACHED) {
    forget_statements(d);
    BRIM_TRY(script(&d->base, "DEALLOCATE ALL"));
  }
  statement s = {brim_strdup(sql), brim_strdup(d->types)};
  snprintf(name, 16, "b%d", d->cached);
  brim_status status =
      s.sql && s.types ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory in the store");
  if (!status) {
    pq_result *result = d->api.prepare(d->conn, name, sql, (int)count, d->oids);
    if (result && d->api.result_status(result) == PQ_COMMAND_OK) {
      d->api.clear(result);
      d->cache[d->cached++] = s;
      return BRIM_OK;
    }
    status = fail(d, result);
  }
  brim_free(s.sql);
  brim_free(s.types);
  return status;
}

static brim_status run(pg_db *d, const char *sql, const brim_db_arg *args, size_t count,
                       pq_result **out) {
  char name[16];
  BRIM_TRY(set_arguments(d, args, count));
  BRIM_TRY(prepare(d, sql, count, name));
  pq_result *result = d->api.exec_prepared(d->conn, name, (int)count, d->values, NULL, NULL, 0);
  int status = result ? d->api.result_status(result) : -1;
  if (status != PQ_COMMAND_OK && status != PQ_TUPLES_OK) return fail(d, result);
  *out = result;
  return BRIM_OK;
}

static brim_status exec(brim_db *db, const char *sql, const brim_db_arg *args, size_t count,
                        int64_t *changed) {
  pg_db *d = pg_of(db);
  pq_result *result;
  BRIM_TRY(run(d, sql, args, count, &result));
  *changed = strtoll(d->api.cmd_tuples(result), NULL, 10);
  d->api.clear(result);
  return BRIM_OK;
}

static brim_status start_stream(pg_db *d, const char *sql, const brim_db_arg *args, size_t count,
                                brim_db_rows *rows) {
  char name[16];
  BRIM_TRY(set_arguments(d, args, count));
  BRIM_TRY(prepare(d, sql, count, name));
  if (!d->api.send_prepared(d->conn, name, (int)count, d->values, NULL, NULL, 0) ||
      !d->api.set_single_row(d->conn)) {
    return fail(d, NULL);
  }
  d->current = NULL;
  d->ended = false;
  rows->handle = d;
  return BRIM_OK;
}

static brim_status query(brim_db *db, const char *sql, const brim_db_arg *args, size_t count,
                         brim_db_rows *rows) {
  pg_db *d = pg_of(db);
  if (rows->stream) return start_stream(d, sql, args, count, rows);
  pq_result *result;
  BRIM_TRY(run(d, sql, args, count, &result));
  rows->handle = result;
  rows->count = d->api.ntuples(result);
  rows->row = -1;
  return BRIM_OK;
}

static void drop_current(pg_db *d) {
  if (d->current) d->api.clear(d->current);
  d->current = NULL;
}

static brim_status next_of_stream(brim_db_rows *rows, bool *there) {
  pg_db *d = pg_of(rows->db);
  drop_current(d);
  pq_result *result = d->ended ? NULL : d->api.get_result(d->conn);
  if (!result) {
    d->ended = true;
    if (d->api.status(d->conn) != PQ_CONNECTION_OK) return fail(d, NULL);
    return BRIM_OK;
  }
  int status = d->api.result_status(result);
  if (status == PQ_SINGLE_TUPLE) {
    d->current = result;
    rows->row = 0;
    *there = true;
    return BRIM_OK;
  }
  if (status != PQ_TUPLES_OK) return fail(d, result);
  d->api.clear(result);  // frees the marker behind the last row; get_result then returns NULL
  return next_of_stream(rows, there);
}

static brim_status next(brim_db_rows *rows, bool *there) {
  if (rows->stream) return next_of_stream(rows, there);
  *there = ++rows->row < rows->count;
  return BRIM_OK;
}

static const pq_result *row_of(brim_db_rows *rows) {
  return rows->stream ? pg_of(rows->db)->current : rows->handle;
}

static bool is_null(brim_db_rows *rows, int column) {
  return pg_of(rows->db)->api.get_is_null(row_of(rows), rows->row, column) != 0;
}

static const char *get_text(brim_db_rows *rows, int column) {
  return pg_of(rows->db)->api.get_value(row_of(rows), rows->row, column);
}

static int64_t get_int(brim_db_rows *rows, int column) {
  return strtoll(get_text(rows, column), NULL, 10);
}

static double get_real(brim_db_rows *rows, int column) {
  const char *text = get_text(rows, column);
  double value = (double)NAN;
  if (strcmp(text, "Infinity") == 0) return (double)INFINITY;
  if (strcmp(text, "-Infinity") == 0) return -(double)INFINITY;
  return brim_parse_f64(text, &value) ? value : (double)NAN;
}

// Cancels the query and drops the rows that the caller did not read.
static void end_stream(pg_db *d) {
  drop_current(d);
  if (d->ended) return;
  pq_cancel *cancel = d->api.get_cancel(d->conn);
  char error[256];
  if (cancel) {
    (void)d->api.cancel(cancel, error, (int)sizeof error);
    d->api.free_cancel(cancel);
  }
  for (pq_result *r; (r = d->api.get_result(d->conn)) != NULL;) d->api.clear(r);
  d->ended = true;
}

static void done(brim_db_rows *rows) {
  pg_db *d = pg_of(rows->db);
  if (rows->stream) {
    end_stream(d);
  } else {
    d->api.clear(rows->handle);
  }
}

static void ignore_notice(void *arg, const char *message) {
  (void)arg;
  (void)message;
}

static brim_status set_session(pg_db *d) {
  if (d->api.server_version(d->conn) < OLDEST_SERVER) {
    return brim_fail(BRIM_EUNSUPPORTED, "the store %s needs PostgreSQL 12 or later", d->place);
  }
  brim_str sql;
  brim_str_init(&sql);
  brim_str_printf(&sql,
                  "SET search_path TO %s;SET lock_timeout='" LOCK_LIMIT
                  "';"
                  "SET idle_in_transaction_session_timeout='" IDLE_LIMIT
                  "';"
                  "SET statement_timeout='" STATEMENT_LIMIT
                  "';"
                  "SET standard_conforming_strings=on;SET client_min_messages=warning;"
                  "SET extra_float_digits=1;"
                  "SET default_transaction_isolation='read committed'",
                  d->schema);
  brim_status status = brim_str_status(&sql);
  if (!status) status = script(&d->base, sql.data);
  brim_str_deinit(&sql);
  return status;
}

// libpq quotes a URL that it cannot read, with its password. Such a message is replaced.
static brim_status fail_connect(const pg_db *d, const char *line) {
  const char *secret;
  size_t size;
  if (brim_store_find_password(d->url, d->url, &secret, &size) && size > 0) {
    char *text = brim_strndup(secret, size);
    bool told = !text || strstr(line, text);
    brim_free(text);
    if (told) line = brim_tr("its URL cannot be read; encode its password with %XX");
  }
  return brim_fail(BRIM_EIO, "cannot reach the store %s: %s", d->place, line);
}

// The URL is the last parameter, so that its own settings win.
static brim_status connect_now(pg_db *d) {
  static const char *const keywords[] = {
      "fallback_application_name", "connect_timeout",  "keepalives_idle",
      "keepalives_interval",       "keepalives_count", "tcp_user_timeout",
      "client_encoding",           "dbname",           NULL};
  const char *const values[] = {"brim", "10", "10", "5", "3", "15000", "UTF8", d->url, NULL};
  if (d->conn) d->api.finish(d->conn);
  forget_statements(d);
  d->base.in_transaction = false;
  d->conn = d->api.connect(keywords, values, 1);
  if (!d->conn) return brim_fail(BRIM_ENOMEM, "out of memory in the store");
  if (d->api.status(d->conn) != PQ_CONNECTION_OK) {
    char line[512];
    put_line(line, sizeof line, d->api.error_message(d->conn));
    return fail_connect(d, line);
  }
  (void)d->api.set_notice(d->conn, ignore_notice, NULL);
  return set_session(d);
}

static brim_status ready(brim_db *db) {
  pg_db *d = pg_of(db);
  if (!db->lost) return BRIM_OK;
  db->again = false;
  int64_t left = brim_time_since_ns(brim_clock_now(), d->not_before);
  if (left > 0) {
    return brim_fail(BRIM_EIO, "cannot reach the store %s; the next try is in %.1f s", d->place,
                     (double)left * 1e-9);
  }
  brim_status status = connect_now(d);
  if (!status) {
    db->lost = false;
    db->connected++;
    d->wait_ms = WAIT_FIRST_MS;
    return BRIM_OK;
  }
  db->again = false;
  d->not_before.ns = brim_clock_now().ns + d->wait_ms * 1000000;
  d->wait_ms = d->wait_ms * 2 < WAIT_MOST_MS ? d->wait_ms * 2 : WAIT_MOST_MS;
  return status;
}

static brim_status now(brim_db *db, int64_t *out) {
  return brim_db_get_one(db, "SELECT (extract(epoch FROM clock_timestamp())*1000)::bigint",
                         BRIM_DB_NO_ARGS, out);
}

// Lets one process at a time create or change the tables. CREATE SCHEMA IF NOT EXISTS would need
// the right to create a schema even if it exists.
static brim_status lock_schema(brim_db *db) {
  pg_db *d = pg_of(db);
  int64_t there = 0;
  BRIM_TRY(script(db, "SELECT pg_advisory_xact_lock(1651665261,1)"));
  BRIM_TRY(brim_db_get_one(db, "SELECT COUNT(*) FROM pg_catalog.pg_namespace WHERE nspname=?1",
                           BRIM_DB_ARGS(brim_db_text(d->schema)), &there));
  if (there) return BRIM_OK;
  char sql[96];
  snprintf(sql, sizeof sql, "CREATE SCHEMA %s", d->schema);
  return script(db, sql);
}

static brim_status backup_tables(brim_db *db, int64_t version) {
  pg_db *d = pg_of(db);
  brim_str sql;
  brim_str_init(&sql);
  char to[96];
  snprintf(to, sizeof to, "%s_v%lld_backup", d->schema, (long long)version);
  brim_str_printf(&sql, "DROP SCHEMA IF EXISTS %s CASCADE;CREATE SCHEMA %s;", to, to);
  brim_str_printf(&sql,
                  "DO $$ DECLARE t text; BEGIN FOR t IN SELECT tablename FROM pg_catalog.pg_tables"
                  " WHERE schemaname='%s' LOOP"
                  " EXECUTE format('CREATE TABLE %s.%%I AS TABLE %s.%%I', t, t);"
                  " END LOOP; END $$",
                  d->schema, to, d->schema);
  brim_status status = brim_str_status(&sql);
  if (!status) status = script(db, sql.data);
  brim_str_deinit(&sql);
  return status;
}

static void close_db(brim_db *db) {
  pg_db *d = pg_of(db);
  forget_statements(d);
  if (d->conn) d->api.finish(d->conn);
  brim_dl_close(d->dl);
  if (d->url) explicit_bzero(d->url, strlen(d->url));
  brim_free(d->url);
  brim_free(d->place);
  brim_free(d->schema);
  brim_free(d);
}

static brim_status load(pg_db *d) {
  static const char *const names[] = {"libpq.so.5", NULL};
  pq_api *a = &d->api;
  const brim_dl_symbol symbols[] = {
      {"PQconnectdbParams", (void **)&a->connect, true},
      {"PQfinish", (void **)&a->finish, true},
      {"PQstatus", (void **)&a->status, true},
      {"PQerrorMessage", (void **)&a->error_message, true},
      {"PQserverVersion", (void **)&a->server_version, true},
      {"PQsetNoticeProcessor", (void **)&a->set_notice, true},
      {"PQexec", (void **)&a->exec, true},
      {"PQprepare", (void **)&a->prepare, true},
      {"PQexecPrepared", (void **)&a->exec_prepared, true},
      {"PQsendQueryPrepared", (void **)&a->send_prepared, true},
      {"PQsetSingleRowMode", (void **)&a->set_single_row, true},
      {"PQgetResult", (void **)&a->get_result, true},
      {"PQgetCancel", (void **)&a->get_cancel, true},
      {"PQcancel", (void **)&a->cancel, true},
      {"PQfreeCancel", (void **)&a->free_cancel, true},
      {"PQresultStatus", (void **)&a->result_status, true},
      {"PQresultErrorMessage", (void **)&a->result_error, true},
      {"PQresultErrorField", (void **)&a->error_field, true},
      {"PQntuples", (void **)&a->ntuples, true},
      {"PQgetvalue", (void **)&a->get_value, true},
      {"PQgetisnull", (void **)&a->get_is_null, true},
      {"PQcmdTuples", (void **)&a->cmd_tuples, true},
      {"PQclear", (void **)&a->clear, true},
  };
  // libpq brings TLS libraries that do not survive being unloaded.
  brim_status status = brim_dl_open(names, symbols, sizeof symbols / sizeof *symbols, true, &d->dl);
  if (status != BRIM_ENOENT) return status;
  return brim_fail(BRIM_EUNSUPPORTED,
                   "cannot use the store %s: PostgreSQL's library libpq.so.5 is not installed\n"
                   "hint: install the package libpq5",
                   d->place);
}

brim_status brim_db_postgres_open(const char *url, const char *schema, const char *place,
                                  brim_db **out) {
  *out = NULL;
  pg_db *d = brim_calloc(1, sizeof *d);
  if (!d) return brim_fail(BRIM_ENOMEM, "out of memory in the store");
  d->base.driver = &DRIVER;
  d->base.lost = true;
  d->wait_ms = WAIT_FIRST_MS;
  brim_str_init(&d->base.sql);
  d->url = brim_strdup(url);
  d->place = brim_strdup(place);
  d->schema = brim_strdup(schema);
  brim_status status = d->url && d->place && d->schema
                           ? load(d)
                           : brim_fail(BRIM_ENOMEM, "out of memory in the store");
  if (!status) status = ready(&d->base);
  if (status) {
    brim_db_close(&d->base);
    return status;
  }
  *out = &d->base;
  return BRIM_OK;
}

static brim_status open_beside(brim_db *first, brim_db **out) {
  const pg_db *d = pg_of(first);
  return brim_db_postgres_open(d->url, d->schema, d->place, out);
}

static const brim_db_driver DRIVER = {
    .name = "postgres",
    .words =
        {
            [BRIM_DB_WORD_INT] = "BIGINT",
            [BRIM_DB_WORD_REAL] = "DOUBLE PRECISION",
            [BRIM_DB_WORD_STRICT] = "",
            [BRIM_DB_WORD_STRICT_KEY] = "",
            [BRIM_DB_WORD_LOCK] = "FOR UPDATE OF e",
            [BRIM_DB_WORD_LOCK_FREE] = "FOR UPDATE OF e SKIP LOCKED",
            [BRIM_DB_WORD_BYTES] = "COLLATE \"C\"",
            [BRIM_DB_WORD_INSTR] = "strpos",
        },
    .dollar = true,
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
    .begin_write = "BEGIN",
    .begin_read = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    .lock_events = "SELECT pg_advisory_xact_lock(1651665262,hashtext(current_schema()::text));",
    .long_transaction =
        "SET LOCAL idle_in_transaction_session_timeout=0;"
        "SET LOCAL statement_timeout=0",
    .lock_tables =
        "LOCK TABLE grid,exp,member,attempt,metric,logpos,event,worker,meta"
        " IN EXCLUSIVE MODE",
    .count_meta =
        "SELECT COUNT(*) FROM pg_catalog.pg_tables"
        " WHERE schemaname=current_schema()::text AND tablename='meta'",
    .lock_schema = lock_schema,
    .backup_tables = backup_tables,
    .now = now,
    .open_beside = open_beside,
};
