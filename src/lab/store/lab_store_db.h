// A database as the store sees it: statements with numbered parameters, rows, one transaction at a
// time. Two drivers stand behind one table: lab_store_sqlite.c and lab_store_postgres.c. Only files
// of this folder include it.
//
// SQL is written once. A parameter is `?1`, `?2`, ... (PostgreSQL gets `$1`), and where the two
// speak differently a word stands in the text that each driver spells its own way:
//   @INT @REAL          types of 64 bits
//   @STRICT @STRICT_KEY what follows a table's closing parenthesis; the second: rows lie by their key
//   @LOCK               locks the rows of `e` that a SELECT reads, and waits for them
//   @LOCK_FREE          the same, and leaves out rows that another transaction has locked
//   @BYTES              text is ordered by its bytes, not by a language
//   @INSTR              function (text, part): place of the part, 0 = none
#ifndef BRIM_LAB_STORE_DB_H_
#define BRIM_LAB_STORE_DB_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base_str.h"
#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

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

// Rows of a query. `handle` is the driver's; end with brim_db_done, after a failure too.
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
  // Can the database be reached? Connects again where the connection was lost.
  brim_status (*ready)(brim_db *db);
  void (*close)(brim_db *db);
  // Several statements without parameters, already translated.
  brim_status (*script)(brim_db *db, const char *sql);
  // *changed: rows that a statement inserted, changed or deleted. The SQL is already translated.
  brim_status (*exec)(brim_db *db, const char *sql, const brim_db_arg *args, size_t count,
                      int64_t *changed);
  // `stream`: rows arrive one by one, and no other call on db may stand between them.
  brim_status (*query)(brim_db *db, const char *sql, const brim_db_arg *args, size_t count,
                       brim_db_rows *rows);
  brim_status (*next)(brim_db_rows *rows, bool *there);
  bool (*is_null)(brim_db_rows *rows, int column);
  int64_t (*get_int)(brim_db_rows *rows, int column);
  double (*get_real)(brim_db_rows *rows, int column);
  const char *(*get_text)(brim_db_rows *rows, int column);  // valid until the next row
  void (*done)(brim_db_rows *rows);
  // What begins a transaction: one that will write, or one that reads a consistent state.
  const char *begin_write, *begin_read;
  // Runs before what a transaction appends to `event`, so that readers see events in their order.
  const char *lock_events;
  // Scripts inside a transaction, "" where nothing is needed: one that may last, and one that keeps
  // all others from writing.
  const char *long_transaction, *lock_tables;
  // Inside a transaction that will change the schema; NULL where nothing else can.
  brim_status (*lock_schema)(brim_db *db);
  // Query: how many tables `meta` there are.
  const char *count_meta;
  // Copies all tables inside the transaction; NULL where the file is copied.
  brim_status (*backup_tables)(brim_db *db, int64_t version);
  // Milliseconds since 1970 by the clock of the store.
  brim_status (*now)(brim_db *db, int64_t *out);
} brim_db_driver;

// What drivers put in front of their own struct.
struct brim_db {
  const brim_db_driver *driver;
  bool in_transaction;
  bool again;         // the last failure passes if the transaction is run again at once
  bool lost;          // the connection is gone
  int64_t connected;  // how often it was connected
  brim_str sql;       // translated text of the call that runs
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
// A value of an enum with so many values. BRIM_EPARSE: it is none of them, so the store is damaged.
brim_status brim_db_get_enum(brim_db_rows *rows, int column, int count, int *out);

// One number of a one-row query; BRIM_ENOENT when there is no row.
brim_status brim_db_get_one(brim_db *db, const char *sql, const brim_db_arg *args, size_t count,
                            int64_t *out);

brim_status brim_db_begin(brim_db *db, bool write);
void brim_db_rollback(brim_db *db);  // keeps the failure detail
void brim_db_close(brim_db *db);     // NULL is fine

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_STORE_DB_H_
