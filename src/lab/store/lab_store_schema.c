// The schema, one step per version, and how a database gets from one version to the next. A stored
// file of every version is in tests/lab/stores.
//
// Times are ms of the store's clock; 0 is "not yet". state, want and outcome are the enums of
// lab_store.h, a failure class is its name.
#include <stdio.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "lab/store/lab_store_int.h"
#include "lab/store/lab_store_sqlite.h"

static const char *const VERSION_1[] = {
    "CREATE TABLE meta(key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) @STRICT_KEY",

    "CREATE TABLE grid(id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, text TEXT NOT NULL,"
    " version TEXT NOT NULL, created @INT NOT NULL) @STRICT",

    // Long texts are last: SQLite reads a row up to the last column it needs.
    // grid and idx: where it was submitted first. not_before: back-off. fence rises with each claim.
    "CREATE TABLE exp(id TEXT NOT NULL PRIMARY KEY, grid TEXT NOT NULL, idx @INT NOT NULL,"
    " label TEXT NOT NULL, state @INT NOT NULL DEFAULT 0,"
    " priority @INT NOT NULL, gpus @INT NOT NULL, need_bytes @INT NOT NULL, tags TEXT NOT NULL,"
    " fence @INT NOT NULL DEFAULT 0, attempt @INT NOT NULL DEFAULT 0, tries @INT NOT NULL,"
    " tries_left @INT NOT NULL, infra_left @INT NOT NULL, not_before @INT NOT NULL DEFAULT 0,"
    " lease_until @INT NOT NULL DEFAULT 0, worker TEXT NOT NULL DEFAULT '',"
    " want @INT NOT NULL DEFAULT 0, step @INT NOT NULL DEFAULT -1, steps @INT NOT NULL,"
    " epoch @INT NOT NULL DEFAULT -1, epochs @INT NOT NULL, metric @REAL,"
    " metric_key TEXT NOT NULL, metric_step @INT NOT NULL DEFAULT -1,"
    " ckpt_step @INT NOT NULL DEFAULT -1, class TEXT NOT NULL DEFAULT 'none',"
    " reason TEXT NOT NULL DEFAULT '', created @INT NOT NULL, started @INT NOT NULL DEFAULT 0,"
    " ended @INT NOT NULL DEFAULT 0, last_lines TEXT NOT NULL DEFAULT '', config TEXT NOT NULL)"
    " @STRICT",
    // Claims in their order, leases, and counts by state.
    "CREATE INDEX exp_state ON exp(state, priority DESC, created, idx, id)",
    // Lists.
    "CREATE INDEX exp_order ON exp(created, idx, id)",

    "CREATE TABLE member(grid TEXT NOT NULL, exp TEXT NOT NULL, idx @INT NOT NULL,"
    " PRIMARY KEY(grid, exp)) @STRICT_KEY",
    "CREATE INDEX member_exp ON member(exp)",

    // seq: the last batch of metrics. from_step: where the attempt began.
    "CREATE TABLE attempt(exp TEXT NOT NULL, n @INT NOT NULL, fence @INT NOT NULL,"
    " claim_id TEXT NOT NULL UNIQUE, worker TEXT NOT NULL, host TEXT NOT NULL,"
    " devices TEXT NOT NULL, pid @INT NOT NULL DEFAULT 0, from_step @INT NOT NULL,"
    " seq @INT NOT NULL DEFAULT 0, claimed @INT NOT NULL, started @INT NOT NULL DEFAULT 0,"
    " ended @INT NOT NULL DEFAULT 0, outcome @INT NOT NULL DEFAULT 0,"
    " class TEXT NOT NULL DEFAULT 'none', exit_code @INT NOT NULL DEFAULT 0,"
    " message TEXT NOT NULL DEFAULT '', PRIMARY KEY(exp, n)) @STRICT",

    // value is NULL where it is not a number.
    "CREATE TABLE metric(exp TEXT NOT NULL, key TEXT NOT NULL, step @INT NOT NULL, value @REAL,"
    " attempt @INT NOT NULL, PRIMARY KEY(exp, key, step)) @STRICT_KEY",

    "CREATE TABLE logpos(exp TEXT NOT NULL, attempt @INT NOT NULL, stream TEXT NOT NULL,"
    " size @INT NOT NULL, PRIMARY KEY(exp, attempt, stream)) @STRICT_KEY",

    "CREATE TABLE event(seq @INT NOT NULL PRIMARY KEY, t @INT NOT NULL, exp TEXT NOT NULL,"
    " kind TEXT NOT NULL, text TEXT NOT NULL) @STRICT",

    "CREATE TABLE worker(id TEXT NOT NULL PRIMARY KEY, host TEXT NOT NULL, gpus TEXT NOT NULL,"
    " version TEXT NOT NULL, last_seen @INT NOT NULL, drain @INT NOT NULL) @STRICT",
    NULL};

// What a pool needs beside: curves in coarse steps, files that workers send, tokens, the authors of events.
static const char *const VERSION_2[] = {
    // Of the steps bucket*64^level and on, up to those of the next bucket: how many values, how many that
    // are no number, the least, the greatest and the sum (lab_store_level.c).
    "CREATE TABLE level(exp TEXT NOT NULL, key TEXT NOT NULL, level @INT NOT NULL,"
    " bucket @INT NOT NULL, n @INT NOT NULL, bad @INT NOT NULL, lo @REAL, hi @REAL, sum @REAL,"
    " PRIMARY KEY(exp, key, level, bucket)) @STRICT_KEY",
    "INSERT INTO level SELECT exp,key,1,step/64,COUNT(value),COUNT(*)-COUNT(value),MIN(value),"
    "MAX(value),SUM(value) FROM metric WHERE step>=0 GROUP BY exp,key,step/64",
    "INSERT INTO level SELECT exp,key,2,bucket/64,SUM(n),SUM(bad),MIN(lo),MAX(hi),SUM(sum)"
    " FROM level WHERE level=1 GROUP BY exp,key,bucket/64",
    "INSERT INTO level SELECT exp,key,3,bucket/64,SUM(n),SUM(bad),MIN(lo),MAX(hi),SUM(sum)"
    " FROM level WHERE level=2 GROUP BY exp,key,bucket/64",

    // The server has the whole of it, with this hash. step: of a checkpoint.
    "CREATE TABLE file(exp TEXT NOT NULL, name TEXT NOT NULL, size @INT NOT NULL,"
    " sha256 TEXT NOT NULL, attempt @INT NOT NULL, step @INT NOT NULL, t @INT NOT NULL,"
    " PRIMARY KEY(exp, name)) @STRICT_KEY",

    // ended: 0 while it is valid.
    "CREATE TABLE token(id TEXT NOT NULL PRIMARY KEY, role TEXT NOT NULL,"
    " sha256 TEXT NOT NULL UNIQUE, created @INT NOT NULL, ended @INT NOT NULL) @STRICT",

    "ALTER TABLE worker ADD COLUMN status TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE event ADD COLUMN who TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE exp ADD COLUMN findings TEXT NOT NULL DEFAULT ''", NULL};

static const char *const VERSION_3[] = {
    // what: an experiment, or a grid.
    "CREATE TABLE lacks(worker TEXT NOT NULL, what TEXT NOT NULL, t @INT NOT NULL,"
    " PRIMARY KEY(worker, what)) @STRICT_KEY",
    NULL};

static const char *const VERSION_4[] = {
    // Files that the worker of the last attempt still has to send, by their names and commas.
    "ALTER TABLE exp ADD COLUMN owed TEXT NOT NULL DEFAULT ''", NULL};

const brim_store_step brim_store_steps[BRIM_STORE_VERSION] = {
    {VERSION_1}, {VERSION_2}, {VERSION_3}, {VERSION_4}};

#define I(name) \
  { name, BRIM_DB_INT }
#define R(name) \
  { name, BRIM_DB_REAL }
#define T(name) \
  { name, BRIM_DB_TEXT }
#define TABLE(name, key, columns) \
  { name, key, (int)(sizeof(columns) / sizeof *(columns)), columns }

static const brim_store_column GRID[] = {T("id"), T("name"), T("text"), T("version"), I("created")};
static const brim_store_column EXP[] = {
    T("id"),          T("grid"),       I("idx"),        T("label"),      I("state"),
    I("priority"),    I("gpus"),       I("need_bytes"), T("tags"),       I("fence"),
    I("attempt"),     I("tries"),      I("tries_left"), I("infra_left"), I("not_before"),
    I("lease_until"), T("worker"),     I("want"),       I("step"),       I("steps"),
    I("epoch"),       I("epochs"),     R("metric"),     T("metric_key"), I("metric_step"),
    I("ckpt_step"),   T("class"),      T("reason"),     I("created"),    I("started"),
    I("ended"),       T("last_lines"), T("config"),     T("findings"),   T("owed")};
static const brim_store_column MEMBER[] = {T("grid"), T("exp"), I("idx")};
static const brim_store_column ATTEMPT[] = {
    T("exp"),     I("n"),       I("fence"),     T("claim_id"),  T("worker"),  T("host"),
    T("devices"), I("pid"),     I("from_step"), I("seq"),       I("claimed"), I("started"),
    I("ended"),   I("outcome"), T("class"),     I("exit_code"), T("message")};
static const brim_store_column METRIC[] = {T("exp"), T("key"), I("step"), R("value"), I("attempt")};
static const brim_store_column LOGPOS[] = {T("exp"), I("attempt"), T("stream"), I("size")};
static const brim_store_column EVENT[] = {I("seq"),  I("t"),    T("exp"),
                                          T("kind"), T("text"), T("who")};
static const brim_store_column WORKER[] = {T("id"),        T("host"),  T("gpus"),  T("version"),
                                           I("last_seen"), I("drain"), T("status")};
static const brim_store_column LEVEL[] = {T("exp"), T("key"), I("level"), I("bucket"), I("n"),
                                          I("bad"), R("lo"),  R("hi"),    R("sum")};
static const brim_store_column FILES[] = {T("exp"),     T("name"), I("size"), T("sha256"),
                                          I("attempt"), I("step"), I("t")};
static const brim_store_column TOKEN[] = {T("id"), T("role"), T("sha256"), I("created"),
                                          I("ended")};
static const brim_store_column LACKS[] = {T("worker"), T("what"), I("t")};

const brim_store_table brim_store_tables[BRIM_STORE_TABLES] = {
    TABLE("grid", "id", GRID),
    TABLE("exp", "id", EXP),
    TABLE("member", "grid, exp", MEMBER),
    TABLE("attempt", "exp, n", ATTEMPT),
    TABLE("metric", "exp, key, step", METRIC),
    TABLE("logpos", "exp, attempt, stream", LOGPOS),
    TABLE("event", "seq", EVENT),
    TABLE("worker", "id", WORKER),
    TABLE("level", "exp, key, level, bucket", LEVEL),
    TABLE("file", "exp, name", FILES),
    TABLE("token", "id", TOKEN),
    TABLE("lacks", "worker, what", LACKS),
};

// "?12", without printf: a batch of metrics has hundreds of them.
static void put_parameter(brim_str *out, int n, bool comma) {
  char text[16], *at = text + sizeof text;
  for (; n > 0; n /= 10) *--at = (char)('0' + n % 10);
  *--at = '?';
  if (comma) *--at = ',';
  brim_str_append_n(out, at, (size_t)(text + sizeof text - at));
}

brim_status brim_store_put_rows(brim_store *store, const char *head, const char *tail, int columns,
                                const brim_db_arg *args, size_t rows, int64_t *changed) {
  *changed = 0;
  if (rows == 0) return BRIM_OK;
  brim_str sql;
  brim_str_init(&sql);
  brim_str_printf(&sql, "INSERT INTO %s VALUES ", head);
  int n = 0;
  for (size_t r = 0; r < rows; r++) {
    brim_str_append(&sql, r ? ",(" : "(");
    for (int c = 0; c < columns; c++) put_parameter(&sql, ++n, c > 0);
    brim_str_append_char(&sql, ')');
  }
  brim_str_printf(&sql, " %s", tail);
  brim_status status = brim_str_status(&sql);
  if (!status) status = brim_db_exec(store->db, sql.data, args, rows * (size_t)columns, changed);
  brim_str_deinit(&sql);
  return status;
}

// The version in the database; 0 = there is no store yet.
static brim_status read_version(brim_store *store, int64_t *out) {
  *out = 0;
  int64_t tables = 0;
  BRIM_TRY(brim_db_get_one(store->db, store->db->driver->count_meta, BRIM_DB_NO_ARGS, &tables));
  if (tables == 0) return BRIM_OK;
  char *text = NULL;
  BRIM_TRY(brim_store_get_meta(store, "schema_version", &text));
  bool sound = brim_parse_i64(text, out) && *out > 0;
  brim_free(text);
  return sound ? BRIM_OK : brim_fail(BRIM_EPARSE, "the store %s has no version", store->place);
}

static brim_status apply(brim_store *store, const brim_store_step *steps, int64_t from, int to) {
  for (int64_t v = from; v < to; v++) {
    for (const char *const *sql = steps[v].sql; *sql; sql++) {
      BRIM_TRY(brim_db_script(store->db, *sql));
    }
  }
  char text[24];
  snprintf(text, sizeof text, "%d", to);
  return brim_store_set_meta(store, "schema_version", text);
}

typedef struct migration {
  const brim_store_step *steps;
  int count;
} migration;

static brim_status fail_newer(brim_store *store, int64_t version, int count) {
  return brim_fail(BRIM_EUNSUPPORTED,
                   "the store %s has version %lld, and this brim knows versions up to %d; use a "
                   "newer brim",
                   store->place, (long long)version, count);
}

// Inside the transaction, since another process may have done it in between.
static brim_status migrate_locked(brim_store *store, void *ctx) {
  const migration *m = ctx;
  if (store->db->driver->lock_schema) BRIM_TRY(store->db->driver->lock_schema(store->db));
  int64_t version = 0;
  BRIM_TRY(read_version(store, &version));
  if (version == m->count) return BRIM_OK;
  if (version > m->count) return fail_newer(store, version, m->count);
  if (version > 0 && store->db->driver->backup_tables) {
    BRIM_TRY(store->db->driver->backup_tables(store->db, version));
  }
  return apply(store, m->steps, version, m->count);
}

brim_status brim_store_migrate(brim_store *store, const brim_store_step *steps, int count) {
  int64_t version = 0;
  BRIM_TRY(read_version(store, &version));
  if (version > count) return fail_newer(store, version, count);
  if (version == count) return BRIM_OK;
  if (store->options.readonly) {
    if (version == 0) return brim_fail(BRIM_ENOENT, "%s has no store", store->place);
    return brim_fail(BRIM_EUNSUPPORTED,
                     "the store %s has version %lld, which this brim upgrades when it opens it for "
                     "writing",
                     store->place, (long long)version);
  }
  if (version > 0 && store->path) {
    brim_str path;
    brim_str_init(&path);
    brim_str_printf(&path, "%s.v%lld.backup", store->path, (long long)version);
    brim_status status = brim_str_status(&path);
    if (!status) status = brim_db_sqlite_backup(store->db, path.data);
    brim_str_deinit(&path);
    if (status) return status;
  }
  migration m = {steps, count};
  return brim_store_write(store, migrate_locked, &m);
}
