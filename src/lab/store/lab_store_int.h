// Inside the store: the interface of the database drivers, the handle, transactions with their events,
// and the schema. Tests include it too.
//
// Two drivers stand behind one table: lab_store_sqlite.c and lab_store_postgres.c. SQL is written
// once. A parameter is `?1`, `?2`, ... (PostgreSQL gets `$1`). Where the two dialects differ, the
// text has a word that each driver replaces:
//   @INT @REAL          types of 64 bits
//   @STRICT @STRICT_KEY options of a table; @STRICT_KEY also stores its rows in the order of the key
//   @LOCK               locks the rows of `e` that a SELECT reads, and waits for them
//   @LOCK_FREE          locks them too, but skips rows that another transaction has locked
//   @BYTES              text is ordered by its bytes, not by a language
//   @INSTR              function (text, part): place of the part, 0 = none
#ifndef BRIM_LAB_STORE_INT_H_
#define BRIM_LAB_STORE_INT_H_

#include "base/base_fs.h"
#include "lab/store/lab_store.h"

//------------------------------- the database (lab_store_db.c) -------------------------------

typedef enum brim_db_kind {
  BRIM_DB_INT,
  BRIM_DB_REAL,  // NaN is stored as NULL and reads back as NaN
  BRIM_DB_TEXT,  // bytes that are not UTF-8 are stored as U+FFFD
  BRIM_DB_KIND_COUNT
} brim_db_kind;

typedef struct brim_db_arg {
  brim_db_kind kind;
  bool null;
  int64_t i;
  double r;
  const char *t;
} brim_db_arg;

static inline brim_db_arg brim_db_int(int64_t value) {
  return (brim_db_arg){BRIM_DB_INT, false, value, 0, NULL};
}
static inline brim_db_arg brim_db_real(double value) {
  return (brim_db_arg){BRIM_DB_REAL, value != value, 0, value, NULL};
}
// NULL is stored as NULL.
static inline brim_db_arg brim_db_text(const char *value) {
  return (brim_db_arg){BRIM_DB_TEXT, value == NULL, 0, 0, value};
}
static inline brim_db_arg brim_db_null(brim_db_kind kind) {
  return (brim_db_arg){kind, true, 0, 0, NULL};
}
// The arguments of a call: BRIM_DB_ARGS(brim_db_text(id), brim_db_int(3)) gives pointer and count.
#define BRIM_DB_ARGS(...)             \
  (const brim_db_arg[]){__VA_ARGS__}, \
      sizeof((const brim_db_arg[]){__VA_ARGS__}) / sizeof(brim_db_arg)
#define BRIM_DB_NO_ARGS NULL, 0

enum { BRIM_DB_MAX_ARGS = 1024 };

typedef enum brim_db_word {
  BRIM_DB_WORD_INT,
  BRIM_DB_WORD_REAL,
  BRIM_DB_WORD_STRICT,
  BRIM_DB_WORD_STRICT_KEY,
  BRIM_DB_WORD_LOCK,
  BRIM_DB_WORD_LOCK_FREE,
  BRIM_DB_WORD_BYTES,
  BRIM_DB_WORD_INSTR,
  BRIM_DB_WORD_COUNT
} brim_db_word;

typedef struct brim_db brim_db;

// Rows of a query. `handle` is the driver's. End with brim_db_done, also after a failure.
typedef struct brim_db_rows {
  brim_db *db;
  void *handle;  // NULL: nothing to give back
  int row, count;
  bool stream;
} brim_db_rows;

typedef struct brim_db_driver {
  const char *name;  // "sqlite", "postgres"
  const char *words[BRIM_DB_WORD_COUNT];
  bool dollar;  // parameters are $1
  // BRIM_OK if the database can be reached. Connects again after a lost connection.
  brim_status (*ready)(brim_db *db);
  void (*close)(brim_db *db);
  // Runs several statements without parameters, already translated.
  brim_status (*script)(brim_db *db, const char *sql);
  // *changed: rows that a statement inserted, changed or deleted. The SQL is already translated.
  brim_status (*exec)(brim_db *db, const char *sql, const brim_db_arg *args, size_t count,
                      int64_t *changed);
  // `stream`: rows arrive one by one; db takes no other call until brim_db_done.
  brim_status (*query)(brim_db *db, const char *sql, const brim_db_arg *args, size_t count,
                       brim_db_rows *rows);
  brim_status (*next)(brim_db_rows *rows, bool *there);
  bool (*is_null)(brim_db_rows *rows, int column);
  int64_t (*get_int)(brim_db_rows *rows, int column);
  double (*get_real)(brim_db_rows *rows, int column);
  const char *(*get_text)(brim_db_rows *rows, int column);  // valid until the next row
  void (*done)(brim_db_rows *rows);
  // SQL that begins a transaction: for writing, or for reading a consistent state.
  const char *begin_write, *begin_read;
  // SQL that runs before the INSERT into `event`, so that readers see events in their order.
  const char *lock_events;
  // Scripts to run inside a transaction, "" if the driver needs none. long_transaction lifts its time
  // limits; lock_tables keeps other connections from writing to the main tables.
  const char *long_transaction, *lock_tables;
  // Locks the schema inside the transaction that changes it. NULL: a writing transaction is alone
  // anyway.
  brim_status (*lock_schema)(brim_db *db);
  // Query that counts the tables of the name `meta`.
  const char *count_meta;
  // Copies all tables inside the transaction; NULL if `backup` copies the file.
  brim_status (*backup_tables)(brim_db *db, int64_t version);
  // Milliseconds since 1970 by the clock of the store.
  brim_status (*now)(brim_db *db, int64_t *out);
  // Opens another connection to the same database, for reading, with the same clock.
  brim_status (*open_beside)(brim_db *first, brim_db **out);

  // Members for a database file; NULL for a server. set_clock: gives the time (ms) of the last process
  // that wrote, which the clock must never fall behind.
  void (*set_clock)(brim_db *db, int64_t at_least);
  // Sets the length of the log, in pages, at which it is moved into the file.
  brim_status (*set_log)(brim_db *db, int pages);
  brim_status (*move_log)(brim_db *db, int64_t *pages);
  // True if the path leads to another file now, or to none.
  bool (*has_moved)(brim_db *db);
  // Copies the whole file; leaves no part of a copy after a failure.
  brim_status (*backup)(brim_db *db, const char *path);
} brim_db_driver;

// The first member of each driver's own struct.
struct brim_db {
  const brim_db_driver *driver;
  bool in_transaction;
  bool again;         // running the failed transaction again at once may succeed
  bool lost;          // the connection is gone
  int64_t connected;  // number of connections made so far
  brim_str sql;       // translated text of the running call
};

brim_status brim_db_script(brim_db *db, const char *sql);
brim_status brim_db_exec(brim_db *db, const char *sql, const brim_db_arg *args, size_t count,
                         int64_t *changed);  // changed may be NULL
brim_status brim_db_query(brim_db *db, const char *sql, const brim_db_arg *args, size_t count,
                          brim_db_rows *rows);
brim_status brim_db_stream(brim_db *db, const char *sql, const brim_db_arg *args, size_t count,
                           brim_db_rows *rows);
brim_status brim_db_next(brim_db_rows *rows, bool *there);
void brim_db_done(brim_db_rows *rows);
bool brim_db_is_null(brim_db_rows *rows, int column);
int64_t brim_db_get_int(brim_db_rows *rows, int column);       // NULL: 0
double brim_db_get_real(brim_db_rows *rows, int column);       // NULL: NaN
const char *brim_db_get_text(brim_db_rows *rows, int column);  // NULL: ""
// Reads a value of an enum with `count` values. BRIM_EPARSE: the number is no such value, so the store
// is damaged.
brim_status brim_db_get_enum(brim_db_rows *rows, int column, int count, int *out);

// Reads one number from a query with one row. BRIM_ENOENT: there is no row.
brim_status brim_db_get_one(brim_db *db, const char *sql, const brim_db_arg *args, size_t count,
                            int64_t *out);

brim_status brim_db_begin(brim_db *db, bool write);
void brim_db_rollback(brim_db *db);  // keeps the failure detail
void brim_db_close(brim_db *db);     // NULL is fine

// SQLite: creates the file if it is missing, unless `readonly`. The lock of lab_store_open.c lets only
// one process write. BRIM_EPARSE: the file is no database. BRIM_EINVAL: the database belongs to another
// program.
brim_status brim_db_sqlite_open(const char *path, bool readonly, brim_db **out);
// PostgreSQL, through libpq if it is installed. `place` is the URL as messages show it.
// BRIM_EUNSUPPORTED: no libpq, or a server older than 12. BRIM_EIO: the server cannot be reached.
brim_status brim_db_postgres_open(const char *url, const char *schema, const char *place,
                                  brim_db **out);

//------------------------- the handle and transactions (lab_store_db.c) -------------------------

struct brim_store {
  brim_db *db;
  brim_fs_lockfile *lock;  // SQLite, for writing
  char *place;             // without a password
  char *path;              // the SQLite file; NULL for PostgreSQL
  brim_store_options options;
  char schema[64];
  char fresh_id[BRIM_EXP_ID];  // id for a store that is created
  int64_t clock_saved;         // SQLite: the time in the file
  int64_t grace_until;         // no lease ends before this time
  int64_t connected;           // db->connected when grace_until was set
  brim_str events;             // rows of the running transaction, as SQL
  int event_count;             // number of these rows
  char who[65];                // author of the events
  bool grouped;                // between brim_store_group_begin and _end
  brim_status group_status;    // not BRIM_OK: the group's transaction is lost for this reason
  char group_detail[1024];
};

// Runs fn in one transaction that writes. fn may run several times, so it may have no effects but on the store.
typedef brim_status (*brim_store_fn)(brim_store *store, void *ctx);
brim_status brim_store_write(brim_store *store, brim_store_fn fn, void *ctx);
// Runs fn in one transaction that reads: all queries of fn see one state.
brim_status brim_store_read(brim_store *store, brim_store_fn fn, void *ctx);

// Adds an event, inside a transaction. exp "" = the event is about the store.
void brim_store_note(brim_store *store, int64_t now, const char *exp, const char *kind,
                     const char *text);
// Time by the clock of the store, or of a test.
brim_status brim_store_time(brim_store *store, int64_t *ms);

//------------------------------- the schema (lab_store_open.c) -------------------------------

// A value of the table `meta`, for brim_free; "" if it is missing.
brim_status brim_store_get_meta(brim_store *store, const char *key, char **out);
brim_status brim_store_set_meta(brim_store *store, const char *key, const char *value);
// BRIM_ESTATE if the store was moved.
brim_status brim_store_check_moved(brim_store *store);

// The SQL that upgrades a database by one version.
typedef struct brim_store_step {
  const char *const *sql;  // NULL-terminated
} brim_store_step;
extern const brim_store_step brim_store_steps[BRIM_STORE_VERSION];
// Brings the open database to version `count`: creates it, or backs it up and upgrades it. Refuses a
// newer version.
brim_status brim_store_migrate(brim_store *store, const brim_store_step *steps, int count);

// The tables and their columns in order, for copies.
typedef struct brim_store_column {
  const char *name;
  brim_db_kind kind;
} brim_store_column;
typedef struct brim_store_table {
  const char *name;
  const char *key;  // columns that order the rows
  int count;
  const brim_store_column *columns;
} brim_store_table;
enum { BRIM_STORE_TABLES = 12 };
extern const brim_store_table brim_store_tables[BRIM_STORE_TABLES];

// Runs "INSERT INTO head VALUES (?1,...),(...) tail" for `rows` rows of `columns` parameters.
brim_status brim_store_put_rows(brim_store *store, const char *head, const char *tail, int columns,
                                const brim_db_arg *args, size_t rows, int64_t *changed);

// Metrics are also stored in coarser levels, so that a chart of millions of values reads a few thousand
// rows. A bucket of level 1 summarizes FACTOR steps, a bucket of a higher level FACTOR buckets of the
// level below: the least value, the greatest and the sum.
enum { BRIM_STORE_LEVEL_FACTOR = 64, BRIM_STORE_LEVELS = 3 };

//--------------------------------- rows (lab_store_read.c) ---------------------------------

// Two columns: ran_ms and since of brim_store_exp. An attempt that did not report its start counts from
// its claim.
#define BRIM_STORE_RAN                                                                           \
  "CASE WHEN e.attempt=0 THEN 0 ELSE COALESCE((SELECT CAST(SUM(a.ended-CASE WHEN a.started>0"    \
  " THEN a.started ELSE a.claimed END) AS @INT) FROM attempt a WHERE a.exp=e.id AND a.ended>0)," \
  "0) END,"                                                                                      \
  "CASE WHEN e.state IN (1,2) THEN COALESCE((SELECT CASE WHEN a.started>0 THEN a.started"        \
  " ELSE a.claimed END FROM attempt a WHERE a.exp=e.id AND a.n=e.attempt AND a.ended=0),0)"      \
  " ELSE 0 END"
// The metric shown, without its alternatives.
#define BRIM_STORE_METRIC_KEY "SUBSTR(e.metric_key,1,@INSTR(e.metric_key||' ',' ')-1)"
// The columns of an experiment, for "SELECT " BRIM_STORE_EXP_COLUMNS. _BRIEF leaves long texts out.
#define BRIM_STORE_EXP_PLAIN                                                                   \
  "e.id,e.grid,e.label,e.tags,e.worker," BRIM_STORE_METRIC_KEY                                 \
  ","                                                                                          \
  "e.class,e.reason,e.state,e.want,e.idx,"                                                     \
  "e.priority,e.gpus,e.need_bytes,e.fence,e.attempt,e.tries,e.tries_left,e.infra_left,"        \
  "e.not_before,e.lease_until,e.step,e.steps,e.epoch,e.epochs,e.ckpt_step,e.metric,e.created," \
  "e.started,e.ended," BRIM_STORE_RAN
#define BRIM_STORE_EXP_BRIEF BRIM_STORE_EXP_PLAIN ",'','','',e.owed"
#define BRIM_STORE_EXP_COLUMNS BRIM_STORE_EXP_PLAIN ",e.config,e.last_lines,e.findings,e.owed"
// Reads an experiment, inside a transaction.
brim_status brim_store_load(brim_store *store, const char *exp, brim_store_exp **out);
bool brim_store_is_name(const char *name);  // 1 to 64 bytes of UTF-8
brim_status brim_store_check_worker(const char *name);

#endif  // BRIM_LAB_STORE_INT_H_
