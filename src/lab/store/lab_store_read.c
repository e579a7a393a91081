// Reading: one experiment, lists and counts, attempts, metrics, events, workers and grids. Rows go
// to callbacks one by one, so that a long list needs the memory of a row.
#include <stdio.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "lab/store/lab_store_int.h"

// A query whose rows `each` hands to a callback.
typedef brim_status (*row_fn)(brim_db_rows *rows, void *ctx);

typedef struct reading {
  const char *sql;
  const brim_db_arg *args;
  size_t count;
  row_fn each;
  void *ctx;
  bool called;  // a callback has seen rows: they must not come twice
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
    r->stopped = r->each(&rows, r->ctx);
    if (r->stopped) break;
  }
  brim_db_done(&rows);
  return status;
}

static brim_status read_all(brim_store *store, reading r) {
  brim_status status = brim_store_read(store, read_rows, &r);
  return status ? status : r.stopped;
}

typedef struct finding {
  char (*out)[BRIM_EXP_ID];
  int count;
} finding;

static brim_status take_id(brim_db_rows *rows, void *ctx) {
  finding *f = ctx;
  if (f->count++ == 0) snprintf(*f->out, BRIM_EXP_ID, "%s", brim_db_get_text(rows, 0));
  return BRIM_OK;
}

brim_status brim_store_find(brim_store *store, const char *prefix, char out[BRIM_EXP_ID]) {
  out[0] = '\0';
  size_t n = strlen(prefix);
  if (n == 0 || n >= BRIM_EXP_ID || strspn(prefix, "0123456789abcdef") != n) {
    return brim_fail(BRIM_EINVAL, "'%s' is not the beginning of an experiment's id", prefix);
  }
  // Ids are hex digits: all that start with the prefix lie between it and itself with a 'g'.
  char end[BRIM_EXP_ID + 1], id[BRIM_EXP_ID] = "";
  snprintf(end, sizeof end, "%sg", prefix);
  finding f = {&id, 0};
  BRIM_TRY(
      read_all(store, (reading){"SELECT id FROM exp WHERE id>=?1 AND id<?2 ORDER BY id LIMIT 2",
                                BRIM_DB_ARGS(brim_db_text(prefix), brim_db_text(end)), take_id, &f,
                                false, BRIM_OK}));
  if (f.count == 0) return brim_fail(BRIM_ENOENT, "no experiment's id starts with %s", prefix);
  if (f.count > 1)
    return brim_fail(BRIM_EINVAL, "several ids start with %s; give more digits", prefix);
  memcpy(out, id, BRIM_EXP_ID);
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

typedef struct listing {
  brim_store_exp_fn fn;
  void *ctx;
} listing;

static brim_status list_row(brim_db_rows *rows, void *ctx) {
  listing *l = ctx;
  brim_store_exp exp;
  BRIM_TRY(brim_store_read_exp(rows, &exp));
  return l->fn(l->ctx, &exp);
}

enum { MAX_CONDITIONS = 8 };

// The WHERE of a filter; its arguments point into *f and *tag.
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
  listing l = {fn, ctx};
  brim_status status = brim_str_status(&sql);
  if (!status) status = brim_str_status(&tag);
  if (!status) status = read_all(store, (reading){sql.data, args, n, list_row, &l, false, BRIM_OK});
  brim_str_deinit(&tag);
  brim_str_deinit(&sql);
  return status;
}

static brim_status count_row(brim_db_rows *rows, void *ctx) {
  brim_store_counts *c = ctx;
  int64_t state = brim_db_get_int(rows, 0), count = brim_db_get_int(rows, 1);
  c->total += count;
  if (state >= 0 && state < BRIM_EXP_STATE_COUNT) c->states[state] += count;
  return BRIM_OK;
}

brim_status brim_store_count(brim_store *store, const char *grid, brim_store_counts *out) {
  *out = (brim_store_counts){0};
  if (!grid) {
    return read_all(store, (reading){"SELECT state,COUNT(*) FROM exp GROUP BY state",
                                     BRIM_DB_NO_ARGS, count_row, out, false, BRIM_OK});
  }
  return read_all(store,
                  (reading){"SELECT e.state,COUNT(*) FROM member m JOIN exp e ON e.id=m.exp"
                            " WHERE m.grid=?1 GROUP BY e.state",
                            BRIM_DB_ARGS(brim_db_text(grid)), count_row, out, false, BRIM_OK});
}

typedef struct attempt_reading {
  brim_store_attempt_fn fn;
  void *ctx;
} attempt_reading;

static brim_status attempt_row(brim_db_rows *rows, void *ctx) {
  attempt_reading *r = ctx;
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
  return r->fn(r->ctx, &a);
}

brim_status brim_store_attempts(brim_store *store, const char *exp, brim_store_attempt_fn fn,
                                void *ctx) {
  BRIM_TRY(brim_store_check_id(exp));
  attempt_reading r = {fn, ctx};
  return read_all(store,
                  (reading){"SELECT exp,claim_id,worker,host,devices,class,message,n,fence,pid,"
                            "from_step,exit_code,claimed,started,ended,outcome FROM attempt"
                            " WHERE exp=?1 ORDER BY n",
                            BRIM_DB_ARGS(brim_db_text(exp)), attempt_row, &r, false, BRIM_OK});
}

static brim_status worker_of_row(brim_db_rows *rows, void *ctx) {
  snprintf(ctx, 65, "%s", brim_db_get_text(rows, 0));
  return BRIM_OK;
}

brim_status brim_store_attempt_worker(brim_store *store, const char *exp, int64_t attempt,
                                      char out[65]) {
  out[0] = '\0';
  BRIM_TRY(brim_store_check_id(exp));
  BRIM_TRY(read_all(store, (reading){"SELECT worker FROM attempt WHERE exp=?1 AND n=?2",
                                     BRIM_DB_ARGS(brim_db_text(exp), brim_db_int(attempt)),
                                     worker_of_row, out, false, BRIM_OK}));
  if (out[0]) return BRIM_OK;
  return brim_fail(BRIM_ENOENT, "experiment %s has no attempt %lld", exp, (long long)attempt);
}

typedef struct metric_reading {
  brim_store_metric_fn fn;
  void *ctx;
} metric_reading;

static brim_status metric_row(brim_db_rows *rows, void *ctx) {
  metric_reading *r = ctx;
  brim_store_metric m = {brim_db_get_text(rows, 0), brim_db_get_int(rows, 1),
                         brim_db_get_real(rows, 2)};
  return r->fn(r->ctx, &m, brim_db_get_int(rows, 3));
}

brim_status brim_store_read_metrics(brim_store *store, const char *exp, const char *key,
                                    brim_store_metric_fn fn, void *ctx) {
  BRIM_TRY(brim_store_check_id(exp));
  metric_reading r = {fn, ctx};
  if (key) {
    return read_all(
        store, (reading){"SELECT key,step,value,attempt FROM metric WHERE exp=?1 AND key=?2"
                         " ORDER BY step",
                         BRIM_DB_ARGS(brim_db_text(exp), brim_db_text(key)), metric_row, &r, false,
                         BRIM_OK});
  }
  return read_all(store,
                  (reading){"SELECT key,step,value,attempt FROM metric WHERE exp=?1"
                            " ORDER BY key @BYTES,step",
                            BRIM_DB_ARGS(brim_db_text(exp)), metric_row, &r, false, BRIM_OK});
}

static brim_status number_row(brim_db_rows *rows, void *ctx) {
  *(int64_t *)ctx = brim_db_get_int(rows, 0);
  return BRIM_OK;
}

brim_status brim_store_log_size(brim_store *store, const char *exp, int64_t attempt,
                                const char *stream, int64_t *out) {
  *out = 0;
  BRIM_TRY(brim_store_check_id(exp));
  return read_all(
      store, (reading){"SELECT size FROM logpos WHERE exp=?1 AND attempt=?2 AND stream=?3",
                       BRIM_DB_ARGS(brim_db_text(exp), brim_db_int(attempt), brim_db_text(stream)),
                       number_row, out, false, BRIM_OK});
}

typedef struct event_reading {
  brim_store_event_fn fn;
  void *ctx;
} event_reading;

static brim_status event_row(brim_db_rows *rows, void *ctx) {
  event_reading *r = ctx;
  brim_store_event e = {brim_db_get_int(rows, 0),  brim_db_get_int(rows, 1),
                        brim_db_get_text(rows, 2), brim_db_get_text(rows, 3),
                        brim_db_get_text(rows, 4), brim_db_get_text(rows, 5)};
  return r->fn(r->ctx, &e);
}

brim_status brim_store_events(brim_store *store, int64_t seq, int64_t limit, brim_store_event_fn fn,
                              void *ctx) {
  event_reading r = {fn, ctx};
  return read_all(
      store, (reading){"SELECT seq,t,exp,kind,text,who FROM event WHERE seq>?1"
                       " ORDER BY seq LIMIT ?2",
                       BRIM_DB_ARGS(brim_db_int(seq), brim_db_int(limit > 0 ? limit : INT64_MAX)),
                       event_row, &r, false, BRIM_OK});
}

typedef struct worker_reading {
  brim_store_worker_fn fn;
  void *ctx;
} worker_reading;

static brim_status worker_row(brim_db_rows *rows, void *ctx) {
  worker_reading *r = ctx;
  brim_store_worker w = {brim_db_get_text(rows, 0), brim_db_get_text(rows, 1),
                         brim_db_get_text(rows, 2), brim_db_get_text(rows, 3),
                         brim_db_get_int(rows, 4),  brim_db_get_int(rows, 5) != 0,
                         brim_db_get_text(rows, 6), false};
  return r->fn(r->ctx, &w);
}

brim_status brim_store_workers(brim_store *store, brim_store_worker_fn fn, void *ctx) {
  worker_reading r = {fn, ctx};
  return read_all(store, (reading){"SELECT id,host,gpus,version,last_seen,drain,status FROM worker"
                                   " ORDER BY id @BYTES",
                                   BRIM_DB_NO_ARGS, worker_row, &r, false, BRIM_OK});
}

typedef struct lack_reading {
  brim_store_lack_fn fn;
  void *ctx;
} lack_reading;

static brim_status lack_row(brim_db_rows *rows, void *ctx) {
  lack_reading *r = ctx;
  brim_store_lack l = {brim_db_get_text(rows, 0), brim_db_get_text(rows, 1),
                       brim_db_get_int(rows, 2) != 0};
  return r->fn(r->ctx, &l);
}

brim_status brim_store_lacks(brim_store *store, int64_t since, brim_store_lack_fn fn, void *ctx) {
  lack_reading r = {fn, ctx};
  return read_all(store, (reading){"SELECT l.worker,l.what,(SELECT COUNT(*) FROM grid g WHERE"
                                   " g.id=l.what) FROM lacks l JOIN worker w ON w.id=l.worker"
                                   " WHERE w.last_seen>=?1 ORDER BY l.worker @BYTES,l.t,l.what",
                                   BRIM_DB_ARGS(brim_db_int(since)), lack_row, &r, false, BRIM_OK});
}

typedef struct grid_reading {
  brim_store_grid_fn fn;
  void *ctx;
} grid_reading;

static brim_status grid_row(brim_db_rows *rows, void *ctx) {
  grid_reading *r = ctx;
  brim_store_grid_row g = {{brim_db_get_text(rows, 0), brim_db_get_text(rows, 1),
                            brim_db_get_text(rows, 2), brim_db_get_text(rows, 3)},
                           brim_db_get_int(rows, 4),
                           brim_db_get_int(rows, 5)};
  return r->fn(r->ctx, &g);
}

brim_status brim_store_grids(brim_store *store, brim_store_grid_fn fn, void *ctx) {
  grid_reading r = {fn, ctx};
  return read_all(store, (reading){"SELECT g.id,g.name,g.text,g.version,g.created,"
                                   "(SELECT COUNT(*) FROM member m WHERE m.grid=g.id) FROM grid g"
                                   " ORDER BY g.created,g.id @BYTES",
                                   BRIM_DB_NO_ARGS, grid_row, &r, false, BRIM_OK});
}

brim_status brim_store_grids_of(brim_store *store, const char *exp, brim_store_grid_fn fn,
                                void *ctx) {
  grid_reading r = {fn, ctx};
  return read_all(store, (reading){"SELECT g.id,g.name,'','',g.created,0 FROM member m JOIN grid g"
                                   " ON g.id=m.grid WHERE m.exp=?1 ORDER BY g.created,g.id @BYTES",
                                   BRIM_DB_ARGS(brim_db_text(exp)), grid_row, &r, false, BRIM_OK});
}
