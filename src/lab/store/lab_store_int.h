// The inside of the store: the handle, transactions with their events, and the schema.
#ifndef BRIM_LAB_STORE_INT_H_
#define BRIM_LAB_STORE_INT_H_

#include "base/base_fs.h"
#include "lab/store/lab_store.h"
#include "lab/store/lab_store_db.h"

#ifdef __cplusplus
extern "C" {
#endif

struct brim_store {
  brim_db *db;
  brim_fs_lockfile *lock;  // SQLite, for writing
  char *place;             // without a password
  char *path;              // the SQLite file; NULL
  char *url;               // PostgreSQL's, with the password; NULL
  brim_store_options options;
  char schema[64];
  char fresh_id[BRIM_EXP_ID];  // of a store that has none yet
  int64_t clock_saved;         // SQLite: the time in the file
  int64_t grace_until;         // no lease ends before
  int64_t connected;           // db->connected when that was set
  brim_str events;             // rows of the running transaction, as SQL
  int event_count;             // of them
  char who[65];                // the events' author
  bool grouped;                // between brim_store_group_begin and _end
  brim_status group_status;    // the transaction of the group is gone, and why
  char group_detail[1024];
};

// One transaction that writes; fn may run several times and has no effects beside the store's.
// `store->db` is in the transaction while it runs.
typedef brim_status (*brim_store_fn)(brim_store *store, void *ctx);
brim_status brim_store_write(brim_store *store, brim_store_fn fn, void *ctx);
// The same for reading; several queries see one state.
brim_status brim_store_read(brim_store *store, brim_store_fn fn, void *ctx);

// Inside a transaction. exp "" = of the store.
void brim_store_note(brim_store *store, int64_t now, const char *exp, const char *kind,
                     const char *text);
// Time by the clock of the store, or of the test.
brim_status brim_store_time(brim_store *store, int64_t *ms);
// A value of `meta`; "" when it is not there. brim_free.
brim_status brim_store_get_meta(brim_store *store, const char *key, char **out);
brim_status brim_store_set_meta(brim_store *store, const char *key, const char *value);
// BRIM_ESTATE when the store was moved.
brim_status brim_store_check_moved(brim_store *store);

// --- lab_store_open.c

// One version's step from the version before.
typedef struct brim_store_step {
  const char *const *sql;  // NULL-terminated
} brim_store_step;
extern const brim_store_step brim_store_steps[BRIM_STORE_VERSION];
// Brings the open database to `count` versions: creates, backs up and upgrades, or refuses.
brim_status brim_store_migrate(brim_store *store, const brim_store_step *steps, int count);

// The tables and their columns in order, for copies; lab_store_open.c has the SQL.
typedef struct brim_store_column {
  const char *name;
  brim_db_kind kind;
} brim_store_column;
typedef struct brim_store_table {
  const char *name;
  const char *key;  // order of rows
  int count;
  const brim_store_column *columns;
} brim_store_table;
enum { BRIM_STORE_TABLES = 12 };
extern const brim_store_table brim_store_tables[BRIM_STORE_TABLES];

// "INSERT INTO head VALUES (?1,...),(...) tail" for `rows` rows of `columns` parameters.
brim_status brim_store_put_rows(brim_store *store, const char *head, const char *tail, int columns,
                                const brim_db_arg *args, size_t rows, int64_t *changed);

// --- lab_store_level.c

// Inside a transaction, after values of these steps were written.
brim_status brim_store_put_levels(brim_store *store, const char *exp, const char *key,
                                  int64_t first, int64_t last);
// After values of later steps than `last` were removed.
brim_status brim_store_cut_levels(brim_store *store, const char *exp, int64_t last);

// --- lab_store_read.c

// How long its attempts ran that ended, and since when one runs. An attempt that did not report its
// start counts from its claim.
#define BRIM_STORE_RAN                                                                           \
  "CASE WHEN e.attempt=0 THEN 0 ELSE COALESCE((SELECT CAST(SUM(a.ended-CASE WHEN a.started>0"    \
  " THEN a.started ELSE a.claimed END) AS @INT) FROM attempt a WHERE a.exp=e.id AND a.ended>0)," \
  "0) END,"                                                                                      \
  "CASE WHEN e.state IN (1,2) THEN COALESCE((SELECT CASE WHEN a.started>0 THEN a.started"        \
  " ELSE a.claimed END FROM attempt a WHERE a.exp=e.id AND a.n=e.attempt AND a.ended=0),0)"      \
  " ELSE 0 END"
// The metric shown, without its alternatives.
#define BRIM_STORE_METRIC_KEY "SUBSTR(e.metric_key,1,@INSTR(e.metric_key||' ',' ')-1)"
// The columns of an experiment, for "SELECT " BRIM_STORE_EXP_COLUMNS; _BRIEF leaves long texts out.
#define BRIM_STORE_EXP_PLAIN                                                                   \
  "e.id,e.grid,e.label,e.tags,e.worker," BRIM_STORE_METRIC_KEY                                 \
  ","                                                                                          \
  "e.class,e.reason,e.state,e.want,e.idx,"                                                     \
  "e.priority,e.gpus,e.need_bytes,e.fence,e.attempt,e.tries,e.tries_left,e.infra_left,"        \
  "e.not_before,e.lease_until,e.step,e.steps,e.epoch,e.epochs,e.ckpt_step,e.metric,e.created," \
  "e.started,e.ended," BRIM_STORE_RAN
#define BRIM_STORE_EXP_BRIEF BRIM_STORE_EXP_PLAIN ",'','','',e.owed"
#define BRIM_STORE_EXP_COLUMNS BRIM_STORE_EXP_PLAIN ",e.config,e.last_lines,e.findings,e.owed"
// Inside a transaction.
brim_status brim_store_load(brim_store *store, const char *exp, brim_store_exp **out);
bool brim_store_is_name(const char *name);  // 1 to 64 bytes of UTF-8
brim_status brim_store_check_worker(const char *name);

// --- lab_store_attempt.c: an experiment and one of its attempts, locked inside a transaction

typedef struct brim_store_held {
  char exp[BRIM_EXP_ID];
  brim_exp_state state;
  brim_exp_want want;
  int64_t fence, attempt;  // the experiment's
  int64_t tries, tries_left, infra_left, ckpt_step, metric_step;
  char metric_key[512];  // with its alternatives (brim_store_point)
  // Of the attempt asked for.
  brim_attempt_outcome outcome;
  int64_t n, attempt_fence, seq, from_step, exit_code;
  char failure[32];
} brim_store_held;

// BRIM_ENOENT when there is no such attempt.
brim_status brim_store_hold(brim_store *store, const char *exp, int64_t attempt,
                            brim_store_held *out);
// The same, and the attempt may write: it is the experiment's last and under way. One whose lease
// ended and that no other replaced runs again. Otherwise BRIM_ESTATE.
brim_status brim_store_hold_live(brim_store *store, const brim_store_ref *ref, int64_t now,
                                 brim_store_held *out);
brim_status brim_store_drop_lacks(brim_store *store, const char *exp);

// --- lab_store_attempt.c: what follows from what, without a database

typedef struct brim_store_case {
  brim_attempt_outcome outcome;  // how the attempt ended
  brim_failure failure;
  brim_exp_want want;
  int64_t tries, tries_left, infra_left;
  bool others;  // the worker lacks what it needs, and another may have it
} brim_store_case;

typedef struct brim_store_next {
  brim_exp_state state;
  int64_t tries_left, infra_left;
  int64_t wait_ms;   // before it may be claimed
  bool poison;       // FAILED because infrastructure failed too often
  const char *kind;  // of the event
} brim_store_next;

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_STORE_INT_H_
