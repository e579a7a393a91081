// Reading: experiments, attempts, metrics and their curves, events, workers, grids, tokens; pages and exports.

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_json.h"
#include "base/base_msg.h"
#include "base/base_status.h"
#include "lab/store/lab_store_int.h"
#include "record/record_lab.h"

//--------------------------------------------- rows ---------------------------------------------
// Turns rows into experiments, and checks names that enter the store.

const char *brim_exp_state_name(brim_exp_state state) {
  static const char *const names[BRIM_EXP_STATE_COUNT] = {
      [BRIM_EXP_QUEUED] = BRIM_N_("queued"),       [BRIM_EXP_LEASED] = BRIM_N_("leased"),
      [BRIM_EXP_RUNNING] = BRIM_N_("running"),     [BRIM_EXP_DONE] = BRIM_N_("done"),
      [BRIM_EXP_FAILED] = BRIM_N_("failed"),       [BRIM_EXP_PAUSED] = BRIM_N_("paused"),
      [BRIM_EXP_CANCELLED] = BRIM_N_("cancelled"),
  };
  return (unsigned)state < BRIM_EXP_STATE_COUNT ? names[state] : "?";
}

bool brim_exp_state_of(const char *name, brim_exp_state *out) {
  for (int i = 0; i < BRIM_EXP_STATE_COUNT; i++) {
    if (strcmp(name, brim_exp_state_name((brim_exp_state)i)) != 0) continue;
    *out = (brim_exp_state)i;
    return true;
  }
  return false;
}

const char *brim_attempt_outcome_name(brim_attempt_outcome outcome) {
  static const char *const names[] = {
#define X(name, text) text,
      BRIM_ATTEMPT_MAP(X)
#undef X
  };
  return (unsigned)outcome < BRIM_ATTEMPT_COUNT ? names[outcome] : "?";
}

brim_status brim_store_check_id(const char *id) {
  if (id && strlen(id) == BRIM_EXP_ID - 1 && strspn(id, "0123456789abcdef") == BRIM_EXP_ID - 1) {
    return BRIM_OK;
  }
  return brim_fail(BRIM_EINVAL, "'%s' is not the id of an experiment (32 hex digits)",
                   id ? id : "");
}

bool brim_store_is_name(const char *name) {
  size_t n = name ? strlen(name) : 0;
  return n > 0 && n <= 64 && brim_utf8_valid(name, n);
}

brim_status brim_store_check_worker(const char *name) {
  if (brim_store_is_name(name)) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "the name of a worker must have 1 to 64 characters");
}

void brim_store_random_id(char out[BRIM_EXP_ID]) {
  uint8_t bytes[(BRIM_EXP_ID - 1) / 2] = {0};
  size_t got = 0;
  while (got < sizeof bytes) {
    ssize_t n = getrandom(bytes + got, sizeof bytes - got, 0);
    if (n < 0 && errno != EINTR) break;
    if (n > 0) got += (size_t)n;
  }
  if (got < sizeof bytes) {  // a kernel without getrandom: use the time and the process id
    const int64_t now[2] = {brim_clock_now().ns, getpid()};
    memcpy(bytes, now, sizeof bytes);
  }
  for (size_t i = 0; i < sizeof bytes; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

// Reads the columns of BRIM_STORE_EXP_COLUMNS. BRIM_EPARSE: the row is damaged.
static brim_status read_exp(brim_db_rows *rows, brim_store_exp *out) {
  int c = 0, state, want;
  *out = (brim_store_exp){0};
  const char **texts[] = {&out->id,     &out->grid,       &out->label,   &out->tags,
                          &out->worker, &out->metric_key, &out->failure, &out->reason};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) *texts[i] = brim_db_get_text(rows, c++);
  BRIM_TRY(brim_store_check_id(out->id));  // the id becomes part of a path
  BRIM_TRY(brim_db_get_enum(rows, c++, BRIM_EXP_STATE_COUNT, &state));
  BRIM_TRY(brim_db_get_enum(rows, c++, BRIM_WANT_COUNT, &want));
  out->state = (brim_exp_state)state;
  out->want = (brim_exp_want)want;
  int64_t *before[] = {&out->idx,        &out->priority,   &out->gpus,        &out->need_bytes,
                       &out->fence,      &out->attempt,    &out->tries,       &out->tries_left,
                       &out->infra_left, &out->not_before, &out->lease_until, &out->step,
                       &out->steps,      &out->epoch,      &out->epochs,      &out->ckpt_step};
  for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
    *before[i] = brim_db_get_int(rows, c++);
  }
  out->metric = brim_db_get_real(rows, c++);
  out->created = brim_db_get_int(rows, c++);
  out->started = brim_db_get_int(rows, c++);
  out->ended = brim_db_get_int(rows, c++);
  out->ran_ms = brim_db_get_int(rows, c++);
  out->since = brim_db_get_int(rows, c++);
  out->config = brim_db_get_text(rows, c++);
  out->last_lines = brim_db_get_text(rows, c++);
  out->findings = brim_db_get_text(rows, c++);
  out->owed = brim_db_get_text(rows, c++);
  return BRIM_OK;
}

int64_t brim_store_exp_ran_ms(const brim_store_exp *exp, int64_t now) {
  int64_t running = exp->since > 0 && now > exp->since ? now - exp->since : 0;
  return exp->ran_ms + running;
}

brim_status brim_store_exp_copy(const brim_store_exp *exp, brim_store_exp **out) {
  brim_store_exp head = *exp;
  const char **texts[] = {&head.id,     &head.grid,       &head.label,      &head.config,
                          &head.tags,   &head.worker,     &head.metric_key, &head.failure,
                          &head.reason, &head.last_lines, &head.findings,   &head.owed};
  size_t size = sizeof head, count = sizeof texts / sizeof *texts;
  for (size_t i = 0; i < count; i++) size += strlen(*texts[i]) + 1;
  brim_store_exp *copy = brim_alloc(size);
  *out = copy;
  if (!copy) return brim_fail(BRIM_ENOMEM, "out of memory in the store");
  char *text = (char *)(copy + 1);
  for (size_t i = 0; i < count; i++) {
    size_t n = strlen(*texts[i]) + 1;
    memcpy(text, *texts[i], n);
    *texts[i] = text;
    text += n;
  }
  *copy = head;
  return BRIM_OK;
}

void brim_store_exp_free(brim_store_exp *exp) { brim_free(exp); }

brim_status brim_store_load(brim_store *store, const char *exp, brim_store_exp **out) {
  *out = NULL;
  brim_db_rows rows;
  bool there = false;
  brim_status status =
      brim_db_query(store->db, "SELECT " BRIM_STORE_EXP_COLUMNS " FROM exp e WHERE e.id=?1",
                    BRIM_DB_ARGS(brim_db_text(exp)), &rows);
  if (!status) status = brim_db_next(&rows, &there);
  if (!status && there) {
    brim_store_exp row;
    status = read_exp(&rows, &row);
    if (!status) status = brim_store_exp_copy(&row, out);
  }
  brim_db_done(&rows);
  if (!status && !there) return brim_fail(BRIM_ENOENT, "the store has no experiment %s", exp);
  return status;
}

//------------------------------------------- queries -------------------------------------------
// Rows go to callbacks one by one, so that a long list needs the memory of one row.

// A query and the callback for its rows. `each` turns a row into the struct that `fn` takes, and calls
// `fn`.
typedef struct reading {
  const char *sql;
  const brim_db_arg *args;
  size_t count;
  brim_status (*each)(brim_db_rows *rows, const struct reading *r);
  void (*fn)(void);  // the caller's function; `each` knows its type
  void *ctx;
  bool called;  // a callback has seen a row: the query must not run again, or rows would come twice
  brim_status stopped;
} reading;

static brim_status read_rows(brim_store *store, void *ctx) {
  reading *r = ctx;
  brim_db_rows rows;
  bool there = false;
  if (r->called) {
    store->db->again = false;
    return brim_fail(BRIM_EIO, "the connection to the store was lost while reading");
  }
  brim_status status = brim_db_stream(store->db, r->sql, r->args, r->count, &rows);
  while (!status) {
    status = brim_db_next(&rows, &there);
    if (status || !there) break;
    r->called = true;
    r->stopped = r->each(&rows, r);
    if (r->stopped) break;
  }
  brim_db_done(&rows);
  return status;
}

static brim_status read_all(brim_store *store, reading r) {
  brim_status status = brim_store_read(store, read_rows, &r);
  return status ? status : r.stopped;
}

static brim_status number_row(brim_db_rows *rows, const reading *r) {
  *(int64_t *)r->ctx = brim_db_get_int(rows, 0);
  return BRIM_OK;
}

#define FN(fn) ((void (*)(void))(fn))

//----------------------------------------- experiments -----------------------------------------

typedef struct finding {
  char id[BRIM_EXP_ID];
  int count;
} finding;

static brim_status found_row(brim_db_rows *rows, const reading *r) {
  finding *f = r->ctx;
  if (f->count++ == 0) snprintf(f->id, BRIM_EXP_ID, "%s", brim_db_get_text(rows, 0));
  return BRIM_OK;
}

brim_status brim_store_find(brim_store *store, const char *prefix, char out[BRIM_EXP_ID]) {
  out[0] = '\0';
  size_t n = strlen(prefix);
  if (n == 0 || n >= BRIM_EXP_ID || strspn(prefix, "0123456789abcdef") != n) {
    return brim_fail(BRIM_EINVAL, "'%s' is not the beginning of an experiment's id", prefix);
  }
  // Ids are hex digits: all ids with this prefix lie between the prefix and the prefix with a 'g'
  // behind it.
  char end[BRIM_EXP_ID + 1];
  snprintf(end, sizeof end, "%sg", prefix);
  finding f = {"", 0};
  BRIM_TRY(
      read_all(store, (reading){"SELECT id FROM exp WHERE id>=?1 AND id<?2 ORDER BY id LIMIT 2",
                                BRIM_DB_ARGS(brim_db_text(prefix), brim_db_text(end)),
                                .each = found_row, .ctx = &f}));
  if (f.count == 0) return brim_fail(BRIM_ENOENT, "no experiment's id starts with %s", prefix);
  if (f.count > 1)
    return brim_fail(BRIM_EINVAL, "several ids start with %s; give more digits", prefix);
  memcpy(out, f.id, BRIM_EXP_ID);
  return BRIM_OK;
}

typedef struct getting {
  const char *exp;
  brim_store_exp **out;
} getting;

static brim_status get(brim_store *store, void *ctx) {
  getting *g = ctx;
  brim_store_exp_free(*g->out);
  return brim_store_load(store, g->exp, g->out);
}

brim_status brim_store_get(brim_store *store, const char *exp, brim_store_exp **out) {
  *out = NULL;
  BRIM_TRY(brim_store_check_id(exp));
  getting g = {exp, out};
  brim_status status = brim_store_read(store, get, &g);
  if (status) {
    brim_store_exp_free(*out);
    *out = NULL;
  }
  return status;
}

static brim_status exp_row(brim_db_rows *rows, const reading *r) {
  brim_store_exp exp;
  BRIM_TRY(read_exp(rows, &exp));
  return ((brim_store_exp_fn)r->fn)(r->ctx, &exp);
}

enum { MAX_CONDITIONS = 8 };

// Appends the WHERE of a filter; its arguments point into *f and *tag.
static size_t put_filter(const brim_store_filter *f, brim_str *sql, brim_str *tag,
                         brim_db_arg args[MAX_CONDITIONS]) {
  size_t n = 0;
  brim_str_append(sql, " WHERE 1=1");
  if (f->grid) {
    args[n++] = brim_db_text(f->grid);
    // EXISTS, not IN: SQLite then reads in the order of an index and sorts nothing.
    brim_str_printf(sql, " AND EXISTS (SELECT 1 FROM member m WHERE m.grid=?%zu AND m.exp=e.id)",
                    n);
  }
  if (f->states) {
    const char *separator = " AND e.state IN (";
    for (int i = 0; i < BRIM_EXP_STATE_COUNT; i++) {
      if (!(f->states >> i & 1)) continue;
      brim_str_printf(sql, "%s%d", separator, i);
      separator = ",";
    }
    brim_str_append(sql, *separator == ',' ? ")" : " AND 1=0");
  }
  if (f->tag) {
    brim_str_printf(tag, ",%s,", f->tag);
    args[n++] = brim_db_text(tag->data);
    brim_str_printf(sql, " AND @INSTR(',' || e.tags || ',',?%zu)>0", n);
  }
  if (f->failure) {
    args[n++] = brim_db_text(f->failure);
    brim_str_printf(sql, " AND e.class=?%zu", n);
  }
  return n;
}

static const char *const ORDERS[BRIM_STORE_ORDER_COUNT] = {
    [BRIM_STORE_BY_INDEX] = "e.created,e.idx,e.id",
    [BRIM_STORE_BY_QUEUE] = "e.priority DESC,e.created,e.idx,e.id",
    [BRIM_STORE_BY_METRIC_LOWEST] =
        "(SELECT MIN(l.lo) FROM level l WHERE l.exp=e.id AND l.n>0 AND l.level=3"
        " AND l.key=" BRIM_STORE_METRIC_KEY ") ASC NULLS LAST,e.created,e.idx,e.id",
    [BRIM_STORE_BY_METRIC_HIGHEST] =
        "(SELECT MAX(l.hi) FROM level l WHERE l.exp=e.id AND l.n>0 AND l.level=3"
        " AND l.key=" BRIM_STORE_METRIC_KEY ") DESC NULLS LAST,e.created,e.idx,e.id",
    [BRIM_STORE_BY_ENDED] = "e.ended DESC,e.created,e.idx,e.id",
};

brim_status brim_store_list(brim_store *store, const brim_store_filter *filter,
                            brim_store_exp_fn fn, void *ctx) {
  static const brim_store_filter all = {0};
  const brim_store_filter *f = filter ? filter : &all;
  if ((unsigned)f->order >= BRIM_STORE_ORDER_COUNT || f->limit < 0 || f->offset < 0) {
    return brim_fail(BRIM_EINVAL, "a list needs a known order and no negative limits");
  }
  brim_str sql, tag;
  brim_str_init(&sql);
  brim_str_init(&tag);
  brim_db_arg args[MAX_CONDITIONS];
  brim_str_printf(&sql, "SELECT %s FROM exp e",
                  f->texts ? BRIM_STORE_EXP_COLUMNS : BRIM_STORE_EXP_BRIEF);
  size_t n = put_filter(f, &sql, &tag, args);
  brim_str_printf(&sql, " ORDER BY %s", ORDERS[f->order]);
  args[n++] = brim_db_int(f->limit > 0 ? f->limit : INT64_MAX);
  brim_str_printf(&sql, " LIMIT ?%zu", n);
  args[n++] = brim_db_int(f->offset);
  brim_str_printf(&sql, " OFFSET ?%zu", n);
  brim_status status = brim_str_status(&sql);
  if (!status) status = brim_str_status(&tag);
  if (!status) {
    status =
        read_all(store, (reading){sql.data, args, n, .each = exp_row, .fn = FN(fn), .ctx = ctx});
  }
  brim_str_deinit(&tag);
  brim_str_deinit(&sql);
  return status;
}

static brim_status count_row(brim_db_rows *rows, const reading *r) {
  brim_store_counts *c = r->ctx;
  int64_t state = brim_db_get_int(rows, 0), count = brim_db_get_int(rows, 1);
  c->total += count;
  if (state >= 0 && state < BRIM_EXP_STATE_COUNT) c->states[state] += count;
  return BRIM_OK;
}

brim_status brim_store_count(brim_store *store, const char *grid, brim_store_counts *out) {
  *out = (brim_store_counts){0};
  if (!grid) {
    return read_all(store, (reading){"SELECT state,COUNT(*) FROM exp GROUP BY state",
                                     BRIM_DB_NO_ARGS, .each = count_row, .ctx = out});
  }
  return read_all(store,
                  (reading){"SELECT e.state,COUNT(*) FROM member m JOIN exp e ON e.id=m.exp"
                            " WHERE m.grid=?1 GROUP BY e.state",
                            BRIM_DB_ARGS(brim_db_text(grid)), .each = count_row, .ctx = out});
}

//------------------------------------------- attempts -------------------------------------------

static brim_status attempt_row(brim_db_rows *rows, const reading *r) {
  brim_store_attempt a = {0};
  int c = 0;
  const char **texts[] = {&a.exp,     &a.claim_id, &a.worker, &a.host,
                          &a.devices, &a.failure,  &a.message};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) *texts[i] = brim_db_get_text(rows, c++);
  int64_t *numbers[] = {&a.n,         &a.fence,   &a.pid,     &a.from_step,
                        &a.exit_code, &a.claimed, &a.started, &a.ended};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    *numbers[i] = brim_db_get_int(rows, c++);
  }
  int outcome;
  BRIM_TRY(brim_db_get_enum(rows, c, BRIM_ATTEMPT_COUNT, &outcome));
  a.outcome = (brim_attempt_outcome)outcome;
  return ((brim_store_attempt_fn)r->fn)(r->ctx, &a);
}

brim_status brim_store_attempts(brim_store *store, const char *exp, brim_store_attempt_fn fn,
                                void *ctx) {
  BRIM_TRY(brim_store_check_id(exp));
  return read_all(
      store,
      (reading){"SELECT exp,claim_id,worker,host,devices,class,message,n,fence,pid,"
                "from_step,exit_code,claimed,started,ended,outcome FROM attempt"
                " WHERE exp=?1 ORDER BY n",
                BRIM_DB_ARGS(brim_db_text(exp)), .each = attempt_row, .fn = FN(fn), .ctx = ctx});
}

static brim_status worker_of_row(brim_db_rows *rows, const reading *r) {
  snprintf(r->ctx, 65, "%s", brim_db_get_text(rows, 0));
  return BRIM_OK;
}

brim_status brim_store_attempt_worker(brim_store *store, const char *exp, int64_t attempt,
                                      char out[65]) {
  out[0] = '\0';
  BRIM_TRY(brim_store_check_id(exp));
  BRIM_TRY(read_all(store, (reading){"SELECT worker FROM attempt WHERE exp=?1 AND n=?2",
                                     BRIM_DB_ARGS(brim_db_text(exp), brim_db_int(attempt)),
                                     .each = worker_of_row, .ctx = out}));
  if (out[0]) return BRIM_OK;
  return brim_fail(BRIM_ENOENT, "experiment %s has no attempt %lld", exp, (long long)attempt);
}

brim_status brim_store_log_size(brim_store *store, const char *exp, int64_t attempt,
                                const char *stream, int64_t *out) {
  *out = 0;
  BRIM_TRY(brim_store_check_id(exp));
  return read_all(
      store, (reading){"SELECT size FROM logpos WHERE exp=?1 AND attempt=?2 AND stream=?3",
                       BRIM_DB_ARGS(brim_db_text(exp), brim_db_int(attempt), brim_db_text(stream)),
                       .each = number_row, .ctx = out});
}

static brim_status file_row(brim_db_rows *rows, const reading *r) {
  const brim_store_file file = {brim_db_get_text(rows, 0), brim_db_get_text(rows, 1),
                                brim_db_get_int(rows, 2),  brim_db_get_int(rows, 3),
                                brim_db_get_int(rows, 4),  brim_db_get_int(rows, 5)};
  return ((brim_store_file_fn)r->fn)(r->ctx, &file);
}

brim_status brim_store_files(brim_store *store, const char *exp, brim_store_file_fn fn, void *ctx) {
  BRIM_TRY(brim_store_check_id(exp));
  return read_all(store, (reading){"SELECT name,sha256,size,attempt,step,t FROM file WHERE exp=?1"
                                   " ORDER BY name @BYTES",
                                   BRIM_DB_ARGS(brim_db_text(exp)), .each = file_row, .fn = FN(fn),
                                   .ctx = ctx});
}

//------------------------------------------- metrics -------------------------------------------

static brim_status metric_row(brim_db_rows *rows, const reading *r) {
  brim_store_metric m = {brim_db_get_text(rows, 0), brim_db_get_int(rows, 1),
                         brim_db_get_real(rows, 2)};
  return ((brim_store_metric_fn)r->fn)(r->ctx, &m, brim_db_get_int(rows, 3));
}

brim_status brim_store_read_metrics(brim_store *store, const char *exp, const char *key,
                                    brim_store_metric_fn fn, void *ctx) {
  BRIM_TRY(brim_store_check_id(exp));
  if (key) {
    return read_all(
        store, (reading){"SELECT key,step,value,attempt FROM metric WHERE exp=?1 AND key=?2"
                         " ORDER BY step",
                         BRIM_DB_ARGS(brim_db_text(exp), brim_db_text(key)), .each = metric_row,
                         .fn = FN(fn), .ctx = ctx});
  }
  return read_all(store, (reading){"SELECT key,step,value,attempt FROM metric WHERE exp=?1"
                                   " ORDER BY key @BYTES,step",
                                   BRIM_DB_ARGS(brim_db_text(exp)), .each = metric_row,
                                   .fn = FN(fn), .ctx = ctx});
}

//---------------------------------- curves ----------------------------------

enum { ROWS_PER_POINT = 32 };  // most rows to read for a point of a curve

typedef struct curve {
  const char *exp, *key;
  const brim_store_range *range;
  brim_store_bucket_fn fn;
  void *ctx;
  int level;       // 0: the curve is made from single values
  int64_t width;   // steps of one bucket
  int64_t rows;    // buckets of the level in this range
  int64_t merged;  // buckets that become one point
  brim_store_bucket open;
  int64_t in_open;
  brim_status status;  // status that fn returned last
} curve;

static brim_status flush_bucket(curve *c) {
  if (c->in_open == 0) return BRIM_OK;
  if (c->open.n == 0) c->open.mean = c->open.lo = c->open.hi = (double)NAN;
  if (c->open.n > 0) c->open.mean /= (double)c->open.n;  // mean held the sum until now
  c->in_open = 0;
  return c->fn(c->ctx, &c->open);
}

static brim_status add_bucket(curve *c, const brim_store_bucket *b) {
  brim_store_bucket *o = &c->open;
  if (c->in_open == 0) {
    *o = *b;
  } else {
    o->last = b->last;
    if (b->n > 0 && (o->n == 0 || b->lo < o->lo)) o->lo = b->lo;
    if (b->n > 0 && (o->n == 0 || b->hi > o->hi)) o->hi = b->hi;
    if (b->n > 0) o->mean = o->n > 0 ? o->mean + b->mean : b->mean;
    o->n += b->n;
    o->bad += b->bad;
  }
  return ++c->in_open >= c->merged ? flush_bucket(c) : BRIM_OK;
}

// Counts the rows of a level in the range, and the values in them.
static brim_status count_level(brim_store *store, curve *c, int level, int64_t *rows,
                               int64_t *values) {
  brim_db_rows r;
  bool there = false;
  int64_t width = 1;
  for (int i = 0; i < level; i++) width *= BRIM_STORE_LEVEL_FACTOR;
  brim_status status = brim_db_query(
      store->db,
      "SELECT COUNT(*),COALESCE(SUM(n)+SUM(bad),0) FROM level WHERE exp=?1 AND key=?2 AND level=?3"
      " AND bucket>=?4 AND bucket<=?5",
      BRIM_DB_ARGS(brim_db_text(c->exp), brim_db_text(c->key), brim_db_int(level),
                   brim_db_int(c->range->first / width), brim_db_int(c->range->last / width)),
      &r);
  if (!status) status = brim_db_next(&r, &there);
  if (!status && there) {
    *rows = brim_db_get_int(&r, 0);
    *values = brim_db_get_int(&r, 1);
  }
  brim_db_done(&r);
  return status;
}

// Chooses the finest level with at most ROWS_PER_POINT rows for each point.
static brim_status choose_level(brim_store *store, curve *c) {
  int64_t rows = 0, values = 0, most = c->range->points * ROWS_PER_POINT;
  for (c->level = 1, c->width = BRIM_STORE_LEVEL_FACTOR;;
       c->level++, c->width *= BRIM_STORE_LEVEL_FACTOR) {
    BRIM_TRY(count_level(store, c, c->level, &rows, &values));
    if (c->level == 1 && values <= most) {
      c->level = 0;
      c->width = 1;
      rows = values;
    }
    if (c->level == 0 || rows <= most || c->level == BRIM_STORE_LEVELS) break;
  }
  c->rows = rows;
  c->merged = (rows + c->range->points - 1) / c->range->points;
  if (c->merged < 1) c->merged = 1;
  return BRIM_OK;
}

static void read_bucket(const curve *c, brim_db_rows *r, brim_store_bucket *out) {
  int64_t at = brim_db_get_int(r, 0);
  *out = (brim_store_bucket){.first = at * c->width, .last = at * c->width + c->width - 1};
  if (c->level == 0) {
    double value = brim_db_get_real(r, 1);
    out->n = !isnan(value);
    out->bad = isnan(value);
    out->lo = out->hi = out->mean = value;
    return;
  }
  out->n = brim_db_get_int(r, 1);
  out->bad = brim_db_get_int(r, 2);
  out->lo = brim_db_get_real(r, 3);
  out->hi = brim_db_get_real(r, 4);
  out->mean = brim_db_get_real(r, 5);  // holds the sum until flush_bucket
}

static brim_status read_curve(brim_store *store, void *ctx) {
  static const char values[] =
      "SELECT step,value FROM metric WHERE exp=?1 AND key=?2 AND step>=?3 AND step<=?4"
      " ORDER BY step";
  static const char buckets[] =
      "SELECT bucket,n,bad,lo,hi,sum FROM level WHERE exp=?1 AND key=?2 AND bucket>=?3"
      " AND bucket<=?4 AND level=?5 ORDER BY bucket";
  curve *c = ctx;
  brim_db_rows r;
  bool there = true;
  BRIM_TRY(choose_level(store, c));
  const brim_db_arg args[] = {brim_db_text(c->exp), brim_db_text(c->key),
                              brim_db_int(c->range->first / c->width),
                              brim_db_int(c->range->last / c->width), brim_db_int(c->level)};
  brim_status status =
      brim_db_query(store->db, c->level ? buckets : values, args, c->level ? 5 : 4, &r);
  while (!status && !c->status) {
    status = brim_db_next(&r, &there);
    if (status || !there) break;
    brim_store_bucket b;
    read_bucket(c, &r, &b);
    c->status = add_bucket(c, &b);
  }
  brim_db_done(&r);
  if (!status && !c->status) c->status = flush_bucket(c);
  return status;
}

brim_status brim_store_read_curve(brim_store *store, const char *exp, const char *key,
                                  const brim_store_range *range, brim_store_bucket_fn fn,
                                  void *ctx) {
  BRIM_TRY(brim_store_check_id(exp));
  brim_store_range all = *range;
  if (all.points <= 0 || all.points > BRIM_STORE_POINTS || all.first < 0) {
    return brim_fail(BRIM_EINVAL, "a curve has 1 to %d points, from step 0 on", BRIM_STORE_POINTS);
  }
  if (all.last <= 0) all.last = INT64_MAX / 2;
  curve c = {.exp = exp, .key = key, .range = &all, .fn = fn, .ctx = ctx};
  BRIM_TRY(brim_store_read(store, read_curve, &c));
  return c.status;
}

//---------------------------------- the best value ----------------------------------

// Searches from the coarsest level down to the single value. Each level looks only at the buckets
// inside the best bucket of the level above; of equal buckets the first wins.
typedef struct search {
  const char *exp, *key;
  bool lower;
  brim_store_best_value *out;
} search;

static brim_status find_best(brim_store *store, void *ctx) {
  static const char *const buckets[] = {
      "SELECT bucket FROM level WHERE exp=?1 AND key=?2 AND bucket>=?3 AND bucket<=?4 AND level=?5"
      " AND n>0 ORDER BY hi DESC,bucket LIMIT 1",
      "SELECT bucket FROM level WHERE exp=?1 AND key=?2 AND bucket>=?3 AND bucket<=?4 AND level=?5"
      " AND n>0 ORDER BY lo,bucket LIMIT 1"};
  static const char *const values[] = {
      "SELECT step,value FROM metric WHERE exp=?1 AND key=?2 AND step>=?3 AND step<=?4"
      " AND value IS NOT NULL ORDER BY value DESC,step LIMIT 1",
      "SELECT step,value FROM metric WHERE exp=?1 AND key=?2 AND step>=?3 AND step<=?4"
      " AND value IS NOT NULL ORDER BY value,step LIMIT 1"};
  const search *s = ctx;
  int64_t first = 0, last = INT64_MAX / 2;
  *s->out = (brim_store_best_value){.step = -1, .value = (double)NAN};
  for (int level = BRIM_STORE_LEVELS; level >= 0; level--) {
    const brim_db_arg args[] = {brim_db_text(s->exp), brim_db_text(s->key), brim_db_int(first),
                                brim_db_int(last), brim_db_int(level)};
    brim_db_rows r;
    bool there = false;
    brim_status status = brim_db_query(store->db, level ? buckets[s->lower] : values[s->lower],
                                       args, level ? 5 : 4, &r);
    if (!status) status = brim_db_next(&r, &there);
    if (!status && there) {
      first = brim_db_get_int(&r, 0);
      if (level == 0) {
        *s->out = (brim_store_best_value){.step = first, .value = brim_db_get_real(&r, 1)};
      }
    }
    brim_db_done(&r);
    if (status || !there) return status;
    first *= BRIM_STORE_LEVEL_FACTOR;
    last = first + BRIM_STORE_LEVEL_FACTOR - 1;
  }
  return BRIM_OK;
}

brim_status brim_store_best(brim_store *store, const char *exp, const char *key, bool lower,
                            brim_store_best_value *out) {
  BRIM_TRY(brim_store_check_id(exp));
  search s = {.exp = exp, .key = key, .lower = lower, .out = out};
  return brim_store_read(store, find_best, &s);
}

//-------------------------------- events, workers, grids, tokens --------------------------------

static brim_status event_row(brim_db_rows *rows, const reading *r) {
  brim_store_event e = {brim_db_get_int(rows, 0),  brim_db_get_int(rows, 1),
                        brim_db_get_text(rows, 2), brim_db_get_text(rows, 3),
                        brim_db_get_text(rows, 4), brim_db_get_text(rows, 5)};
  return ((brim_store_event_fn)r->fn)(r->ctx, &e);
}

brim_status brim_store_events(brim_store *store, int64_t seq, int64_t limit, brim_store_event_fn fn,
                              void *ctx) {
  return read_all(
      store, (reading){"SELECT seq,t,exp,kind,text,who FROM event WHERE seq>?1"
                       " ORDER BY seq LIMIT ?2",
                       BRIM_DB_ARGS(brim_db_int(seq), brim_db_int(limit > 0 ? limit : INT64_MAX)),
                       .each = event_row, .fn = FN(fn), .ctx = ctx});
}

static brim_status worker_row(brim_db_rows *rows, const reading *r) {
  brim_store_worker w = {brim_db_get_text(rows, 0), brim_db_get_text(rows, 1),
                         brim_db_get_text(rows, 2), brim_db_get_text(rows, 3),
                         brim_db_get_int(rows, 4),  brim_db_get_int(rows, 5) != 0,
                         brim_db_get_text(rows, 6), false};
  return ((brim_store_worker_fn)r->fn)(r->ctx, &w);
}

brim_status brim_store_workers(brim_store *store, brim_store_worker_fn fn, void *ctx) {
  return read_all(store, (reading){"SELECT id,host,gpus,version,last_seen,drain,status FROM worker"
                                   " ORDER BY id @BYTES",
                                   BRIM_DB_NO_ARGS, .each = worker_row, .fn = FN(fn), .ctx = ctx});
}

static brim_status lack_row(brim_db_rows *rows, const reading *r) {
  brim_store_lack l = {brim_db_get_text(rows, 0), brim_db_get_text(rows, 1),
                       brim_db_get_int(rows, 2) != 0};
  return ((brim_store_lack_fn)r->fn)(r->ctx, &l);
}

brim_status brim_store_lacks(brim_store *store, int64_t since, brim_store_lack_fn fn, void *ctx) {
  return read_all(store, (reading){"SELECT l.worker,l.what,(SELECT COUNT(*) FROM grid g WHERE"
                                   " g.id=l.what) FROM lacks l JOIN worker w ON w.id=l.worker"
                                   " WHERE w.last_seen>=?1 ORDER BY l.worker @BYTES,l.t,l.what",
                                   BRIM_DB_ARGS(brim_db_int(since)), .each = lack_row, .fn = FN(fn),
                                   .ctx = ctx});
}

static brim_status grid_row(brim_db_rows *rows, const reading *r) {
  brim_store_grid_row g = {{brim_db_get_text(rows, 0), brim_db_get_text(rows, 1),
                            brim_db_get_text(rows, 2), brim_db_get_text(rows, 3)},
                           brim_db_get_int(rows, 4),
                           brim_db_get_int(rows, 5)};
  return ((brim_store_grid_fn)r->fn)(r->ctx, &g);
}

brim_status brim_store_grids(brim_store *store, brim_store_grid_fn fn, void *ctx) {
  return read_all(store, (reading){"SELECT g.id,g.name,g.text,g.version,g.created,"
                                   "(SELECT COUNT(*) FROM member m WHERE m.grid=g.id) FROM grid g"
                                   " ORDER BY g.created,g.id @BYTES",
                                   BRIM_DB_NO_ARGS, .each = grid_row, .fn = FN(fn), .ctx = ctx});
}

brim_status brim_store_grids_of(brim_store *store, const char *exp, brim_store_grid_fn fn,
                                void *ctx) {
  return read_all(store, (reading){"SELECT g.id,g.name,'','',g.created,0 FROM member m JOIN grid g"
                                   " ON g.id=m.grid WHERE m.exp=?1 ORDER BY g.created,g.id @BYTES",
                                   BRIM_DB_ARGS(brim_db_text(exp)), .each = grid_row, .fn = FN(fn),
                                   .ctx = ctx});
}

static brim_status token_row(brim_db_rows *rows, const reading *r) {
  const brim_store_token token = {brim_db_get_text(rows, 0), brim_db_get_text(rows, 1),
                                  brim_db_get_text(rows, 2), brim_db_get_int(rows, 3)};
  return ((brim_store_token_fn)r->fn)(r->ctx, &token);
}

brim_status brim_store_tokens(brim_store *store, brim_store_token_fn fn, void *ctx) {
  return read_all(store, (reading){"SELECT id,role,sha256,created FROM token WHERE ended=0"
                                   " ORDER BY id @BYTES",
                                   BRIM_DB_NO_ARGS, .each = token_row, .fn = FN(fn), .ctx = ctx});
}

brim_status brim_store_had_token(brim_store *store, bool *out) {
  int64_t count = 0;
  brim_status status = read_all(store, (reading){"SELECT COUNT(*) FROM token", BRIM_DB_NO_ARGS,
                                                 .each = number_row, .ctx = &count});
  *out = count > 0;
  return status;
}

brim_status brim_store_bytes(brim_store *store, int64_t *out) {
  const bool sqlite = strcmp(brim_store_kind(store), "sqlite") == 0;
  *out = 0;
  return read_all(
      store,
      (reading){sqlite ? "SELECT page_count*page_size FROM pragma_page_count(),pragma_page_size()"
                       : "SELECT pg_database_size(current_database())",
                BRIM_DB_NO_ARGS, .each = number_row, .ctx = out});
}

//-------------------------------------------- pages --------------------------------------------
// Reads for pages that show many experiments. Each call takes at most BRIM_STORE_SOME of them, so that
// a server can answer other requests in between.

typedef struct id_list {
  const char *grid;
  bool queue;  // list only ids that can be claimed now
  char (*ids)[BRIM_EXP_ID];
  size_t count, capacity;
} id_list;

static brim_status add_id(id_list *r, const char *id) {
  if (r->count == r->capacity) {
    size_t capacity = r->capacity ? 2 * r->capacity : 1024;
    void *grown = brim_realloc(r->ids, capacity * sizeof *r->ids);
    if (!grown) return brim_fail(BRIM_ENOMEM, "out of memory while reading experiments");
    r->ids = grown;
    r->capacity = capacity;
  }
  snprintf(r->ids[r->count++], BRIM_EXP_ID, "%s", id);
  return BRIM_OK;
}

// May run again after a lost connection: no callback has seen an id yet.
static brim_status read_ids(brim_store *store, void *ctx) {
  id_list *r = ctx;
  brim_db_rows rows;
  brim_db_arg arg = brim_db_text(r->grid);
  bool there = true;
  int64_t now = 0;
  r->count = 0;
  if (r->queue) BRIM_TRY(brim_store_time(store, &now));
  if (r->queue) arg = brim_db_int(now);
  const char *sql = r->queue  ? "SELECT id FROM exp WHERE state=0 AND not_before<=?1"
                                " ORDER BY priority DESC,created,idx,id"
                    : r->grid ? "SELECT exp FROM member WHERE grid=?1 ORDER BY idx,exp"
                              : "SELECT id FROM exp ORDER BY created,idx,id";
  brim_status status = brim_db_query(store->db, sql, &arg, r->queue || r->grid ? 1 : 0, &rows);
  while (!status) {
    status = brim_db_next(&rows, &there);
    if (status || !there) break;
    status = add_id(r, brim_db_get_text(&rows, 0));
  }
  brim_db_done(&rows);
  return status;
}

static brim_status list_ids(brim_store *store, id_list r, char (**out)[BRIM_EXP_ID],
                            size_t *count) {
  brim_status status = brim_store_read(store, read_ids, &r);
  if (status) brim_free(r.ids);
  *out = status ? NULL : r.ids;
  *count = status ? 0 : r.count;
  return status;
}

brim_status brim_store_queue(brim_store *store, char (**out)[BRIM_EXP_ID], size_t *count) {
  return list_ids(store, (id_list){.queue = true}, out, count);
}

brim_status brim_store_ids(brim_store *store, const char *grid, char (**out)[BRIM_EXP_ID],
                           size_t *count) {
  return list_ids(store, (id_list){.grid = grid}, out, count);
}

// Runs the SQL `before` (?2,?3,...) `after` with the ids of some experiments. ?1 is `key`, if there is
// one.
static brim_status read_some(brim_store *store, const brim_store_some *of, const char *before,
                             const char *key, const char *after, reading r) {
  if (of->count == 0) return BRIM_OK;
  if (of->count > BRIM_STORE_SOME) {
    return brim_fail(BRIM_EINVAL, "at most %d experiments can be read at once", BRIM_STORE_SOME);
  }
  brim_db_arg args[BRIM_STORE_SOME + 1];
  size_t n = 0;
  brim_str sql;
  brim_str_init(&sql);
  brim_str_append(&sql, before);
  if (key) args[n++] = brim_db_text(key);
  for (size_t i = 0; i < of->count; i++) {
    args[n++] = brim_db_text(of->ids[i]);
    brim_str_printf(&sql, "%s?%zu", i ? "," : "(", n);
  }
  brim_str_append(&sql, ")");
  brim_str_append(&sql, after);
  r.sql = sql.data;
  r.args = args;
  r.count = n;
  brim_status status = brim_str_status(&sql);
  if (!status) status = read_all(store, r);
  brim_str_deinit(&sql);
  return status;
}

brim_status brim_store_known(brim_store *store, const brim_store_some *of, int64_t *out) {
  *out = 0;
  return read_some(store, of, "SELECT COUNT(*) FROM exp WHERE id IN ", NULL, "",
                   (reading){.each = number_row, .ctx = out});
}

static brim_status key_row(brim_db_rows *rows, const reading *r) {
  return ((brim_store_key_fn)r->fn)(r->ctx, brim_db_get_text(rows, 0), brim_db_get_int(rows, 1));
}

// Reads the levels, which have one row for 64 steps.
brim_status brim_store_keys(brim_store *store, const brim_store_some *of, brim_store_key_fn fn,
                            void *ctx) {
  return read_some(store, of,
                   "SELECT key,COUNT(*) FROM (SELECT DISTINCT exp,key FROM level WHERE exp IN ",
                   NULL, ") AS k GROUP BY key ORDER BY key @BYTES",
                   (reading){.each = key_row, .fn = FN(fn), .ctx = ctx});
}

static brim_status outcome_row(brim_db_rows *rows, const reading *r) {
  int state;
  BRIM_TRY(brim_db_get_enum(rows, 3, BRIM_EXP_STATE_COUNT, &state));
  const brim_store_outcome row = {.id = brim_db_get_text(rows, 0),
                                  .label = brim_db_get_text(rows, 1),
                                  .head = brim_db_get_text(rows, 2),
                                  .state = (brim_exp_state)state,
                                  .value = brim_db_get_real(rows, 4)};
  return ((brim_store_outcome_fn)r->fn)(r->ctx, &row);
}

brim_status brim_store_outcomes(brim_store *store, const brim_store_some *of, const char *key,
                                brim_store_take take, brim_store_outcome_fn fn, void *ctx) {
  static const char head[] = "SELECT e.id,e.label,SUBSTR(e.config,1,128),e.state,";
  static const char *const values[BRIM_STORE_TAKE_COUNT] = {
      [BRIM_STORE_LAST] =
          "(SELECT m.value FROM metric m WHERE m.exp=e.id AND m.key=?1"
          " ORDER BY m.step DESC LIMIT 1)",
      [BRIM_STORE_LEAST] =
          "(SELECT MIN(l.lo) FROM level l WHERE l.exp=e.id AND l.key=?1"
          " AND l.level=3)",
      [BRIM_STORE_GREATEST] =
          "(SELECT MAX(l.hi) FROM level l WHERE l.exp=e.id AND l.key=?1"
          " AND l.level=3)"};
  char sql[512];
  if ((unsigned)take >= BRIM_STORE_TAKE_COUNT) {
    return brim_fail(BRIM_EINVAL, "a result is the last, the least or the greatest value");
  }
  snprintf(sql, sizeof sql, "%s%s FROM exp e WHERE e.id IN ", head,
           key ? values[take] : "e.metric");
  return read_some(store, of, sql, key, " ORDER BY e.created,e.idx,e.id",
                   (reading){.each = outcome_row, .fn = FN(fn), .ctx = ctx});
}

//-------------------------------------------- export --------------------------------------------
// A store as lines of JSON, one per experiment (record_lab.h), with its attempts and metrics.

static brim_status collect(void *ctx, const brim_store_exp *exp) { return add_id(ctx, exp->id); }

// Parses a config; a text that is no JSON object stays a string.
static json_t *config_of(const char *text) {
  json_t *value = NULL;
  if (*text != '{' || brim_json_parse(text, strlen(text), "config", &value)) {
    return json_string(text);
  }
  return value;
}

static json_t *time_of(int64_t ms) { return ms > 0 ? json_integer(ms) : json_null(); }

static json_t *step_of(int64_t step) { return step < 0 ? json_null() : json_integer(step); }

static brim_status put_exp(json_t *o, const brim_store_exp *e) {
  BRIM_TRY(brim_json_put(o, "schema", json_string(BRIM_LAB_SCHEMA)));
  BRIM_TRY(brim_json_put(o, "id", json_string(e->id)));
  BRIM_TRY(brim_json_put(o, "grid", json_string(e->grid)));
  BRIM_TRY(brim_json_put(o, "index", json_integer(e->idx)));
  BRIM_TRY(brim_json_put(o, "label", json_string(e->label)));
  BRIM_TRY(brim_json_put(o, "config", config_of(e->config)));
  BRIM_TRY(brim_json_put(o, "tags", json_string(e->tags)));
  BRIM_TRY(brim_json_put(o, "state", json_string(brim_exp_state_name(e->state))));
  BRIM_TRY(brim_json_put(o, "priority", json_integer(e->priority)));
  BRIM_TRY(brim_json_put(o, "gpus", json_integer(e->gpus)));
  BRIM_TRY(brim_json_put(o, "step", step_of(e->step)));
  BRIM_TRY(brim_json_put(o, "steps", step_of(e->steps)));
  BRIM_TRY(brim_json_put(o, "epoch", step_of(e->epoch)));
  BRIM_TRY(brim_json_put(o, "epochs", step_of(e->epochs)));
  BRIM_TRY(brim_json_put(o, "metric_key", json_string(e->metric_key)));
  BRIM_TRY(brim_json_put(o, "metric", brim_json_number(e->metric)));
  BRIM_TRY(brim_json_put(o, "failure", json_string(e->failure)));
  BRIM_TRY(brim_json_put(o, "reason", json_string(e->reason)));
  BRIM_TRY(brim_json_put(o, "last_lines", json_string(e->last_lines)));
  BRIM_TRY(brim_json_put(o, "created_ms", time_of(e->created)));
  BRIM_TRY(brim_json_put(o, "started_ms", time_of(e->started)));
  BRIM_TRY(brim_json_put(o, "ended_ms", time_of(e->ended)));
  BRIM_TRY(brim_json_put(o, "ran_ms", json_integer(e->ran_ms)));
  return brim_json_put(o, "since_ms", time_of(e->since));
}

static brim_status put_attempt(void *ctx, const brim_store_attempt *a) {
  json_t *o = json_object();
  if (!o) return brim_fail(BRIM_ENOMEM, "out of memory in the store");
  brim_status status = brim_json_put(o, "n", json_integer(a->n));
  if (!status) status = brim_json_put(o, "worker", json_string(a->worker));
  if (!status) status = brim_json_put(o, "host", json_string(a->host));
  if (!status) status = brim_json_put(o, "devices", json_string(a->devices));
  if (!status) {
    status = brim_json_put(o, "outcome", json_string(brim_attempt_outcome_name(a->outcome)));
  }
  if (!status) status = brim_json_put(o, "failure", json_string(a->failure));
  if (!status) status = brim_json_put(o, "exit_code", json_integer(a->exit_code));
  if (!status) status = brim_json_put(o, "message", json_string(a->message));
  if (!status) status = brim_json_put(o, "from_step", json_integer(a->from_step));
  if (!status) status = brim_json_put(o, "claimed_ms", time_of(a->claimed));
  if (!status) status = brim_json_put(o, "started_ms", time_of(a->started));
  if (!status) status = brim_json_put(o, "ended_ms", time_of(a->ended));
  if (status) {
    json_decref(o);
    return status;
  }
  return brim_json_push(ctx, o);
}

// {"loss": [[step, value], ...]}
static brim_status put_metric(void *ctx, const brim_store_metric *m, int64_t attempt) {
  (void)attempt;
  json_t *rows = json_object_get(ctx, m->key);
  if (!rows) {
    BRIM_TRY(brim_json_put(ctx, m->key, json_array()));
    rows = json_object_get(ctx, m->key);
  }
  json_t *row = json_array();
  if (!row) return brim_fail(BRIM_ENOMEM, "out of memory in the store");
  brim_status status = brim_json_push(row, json_integer(m->step));
  if (!status) status = brim_json_push(row, brim_json_number(m->value));
  if (status) {
    json_decref(row);
    return status;
  }
  return brim_json_push(rows, row);
}

static brim_status build(brim_store *store, const char *id, json_t *line) {
  brim_store_exp *exp = NULL;
  BRIM_TRY(brim_store_get(store, id, &exp));
  brim_status status = put_exp(line, exp);
  brim_store_exp_free(exp);
  if (!status) status = brim_json_put(line, "attempts", json_array());
  if (!status) {
    status = brim_store_attempts(store, id, put_attempt, json_object_get(line, "attempts"));
  }
  if (!status) status = brim_json_put(line, "metrics", json_object());
  if (!status) {
    status = brim_store_read_metrics(store, id, NULL, put_metric, json_object_get(line, "metrics"));
  }
  return status;
}

brim_status brim_store_export_one(brim_store *store, const char *id, brim_store_line_fn fn,
                                  void *ctx) {
  brim_json_setup();
  json_t *line = json_object();
  if (!line) return brim_fail(BRIM_ENOMEM, "out of memory in the store");
  char *text = NULL;
  brim_status status = build(store, id, line);
  if (!status) status = brim_json_dump(line, 0, &text);
  if (!status) status = fn(ctx, text);
  brim_free(text);
  json_decref(line);
  return status;
}

brim_status brim_store_export(brim_store *store, const brim_store_filter *filter,
                              brim_store_line_fn fn, void *ctx) {
  id_list list = {0};
  brim_status status = brim_store_list(store, filter, collect, &list);
  for (size_t i = 0; !status && i < list.count; i++) {
    status = brim_store_export_one(store, list.ids[i], fn, ctx);
  }
  brim_free(list.ids);
  return status;
}
