// Control: submitting grids, pausing, cancelling and retrying experiments, priorities; workers,
// tokens and the expiry of files.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_msg.h"
#include "base/base_status.h"
#include "lab/store/lab_store_int.h"

//------------------------------------------ submitting ------------------------------------------
// All points of a grid enter the queue in one transaction. A point whose id the store knows stays as it
// is.

// Rows of one INSERT: enough to save round trips to a server, and few enough for the limit on
// parameters.
enum { BATCH = 25, EXP_COLUMNS = 16, MEMBER_COLUMNS = 3 };

// The columns of a new experiment that have no default.
static const char EXP_HEAD[] =
    "exp(id,grid,idx,label,config,priority,gpus,need_bytes,tags,tries,tries_left,infra_left,"
    "steps,epochs,metric_key,created)";

typedef struct submission {
  const brim_store_grid *grid;
  // Sorted by id, so that submissions of overlapping grids lock rows in the same order.
  const brim_store_point **points;
  size_t count;
  brim_store_submitted *out;
} submission;

static brim_status check_grid(const brim_store_grid *g) {
  size_t n = g->id ? strlen(g->id) : 0;
  if (n == 0 || n > 64 || strspn(g->id, "abcdefghijklmnopqrstuvwxyz0123456789-") != n) {
    return brim_fail(BRIM_EINVAL, "'%s' is not the id of a grid (1 to 64 of a-z, 0-9, -)",
                     g->id ? g->id : "");
  }
  return BRIM_OK;
}

static brim_status check_point(const brim_store_point *p) {
  BRIM_TRY(brim_store_check_id(p->id));
  if (!p->config || !brim_utf8_valid(p->config, strlen(p->config))) {
    return brim_fail(BRIM_EINVAL, "the config of experiment %s is not UTF-8 text", p->id);
  }
  if (p->gpus < 0 || p->need_bytes < 0 || p->tries < 0) {
    return brim_fail(BRIM_EINVAL, "experiment %s has a negative number of GPUs, bytes or retries",
                     p->id);
  }
  return BRIM_OK;
}

static brim_status add_batch(brim_store *store, const submission *s, size_t from, size_t count,
                             int64_t now) {
  brim_db_arg exp[BATCH * EXP_COLUMNS], member[BATCH * MEMBER_COLUMNS];
  brim_db_arg *e = exp, *m = member;
  for (size_t i = 0; i < count; i++) {
    const brim_store_point *p = s->points[from + i];
    const brim_db_arg row[EXP_COLUMNS] = {brim_db_text(p->id),
                                          brim_db_text(s->grid->id),
                                          brim_db_int(p->idx),
                                          brim_db_text(p->label ? p->label : ""),
                                          brim_db_text(p->config),
                                          brim_db_int(p->priority),
                                          brim_db_int(p->gpus),
                                          brim_db_int(p->need_bytes),
                                          brim_db_text(p->tags ? p->tags : ""),
                                          brim_db_int(p->tries),
                                          brim_db_int(p->tries),
                                          brim_db_int(store->options.infra_tries),
                                          brim_db_int(p->steps),
                                          brim_db_int(p->epochs),
                                          brim_db_text(p->metric_key ? p->metric_key : ""),
                                          brim_db_int(now)};
    memcpy(e, row, sizeof row);
    e += EXP_COLUMNS;
    *m++ = brim_db_text(s->grid->id);
    *m++ = brim_db_text(p->id);
    *m++ = brim_db_int(p->idx);
  }
  int64_t added = 0, unused;
  BRIM_TRY(brim_store_put_rows(store, EXP_HEAD, "ON CONFLICT(id) DO NOTHING", EXP_COLUMNS, exp,
                               count, &added));
  s->out->added += added;
  return brim_store_put_rows(store, "member(grid,exp,idx)", "ON CONFLICT(grid,exp) DO NOTHING",
                             MEMBER_COLUMNS, member, count, &unused);
}

// Sets need_bytes of the points that the store had before, where it was unknown.
static brim_status add_needs(brim_store *store, const submission *s) {
  for (size_t i = 0; i < s->count; i++) {
    const brim_store_point *p = s->points[i];
    if (p->need_bytes <= 0) continue;
    BRIM_TRY(brim_db_exec(store->db, "UPDATE exp SET need_bytes=?1 WHERE id=?2 AND need_bytes=0",
                          BRIM_DB_ARGS(brim_db_int(p->need_bytes), brim_db_text(p->id)), NULL));
  }
  return BRIM_OK;
}

static brim_status submit(brim_store *store, void *ctx) {
  submission *s = ctx;
  int64_t now;
  *s->out = (brim_store_submitted){0};
  BRIM_TRY(brim_store_check_moved(store));
  BRIM_TRY(brim_store_time(store, &now));
  const brim_store_grid *g = s->grid;
  BRIM_TRY(brim_db_exec(store->db,
                        "INSERT INTO grid(id,name,text,version,created) VALUES (?1,?2,?3,?4,?5)"
                        " ON CONFLICT(id) DO NOTHING",
                        BRIM_DB_ARGS(brim_db_text(g->id), brim_db_text(g->name ? g->name : ""),
                                     brim_db_text(g->text ? g->text : ""),
                                     brim_db_text(g->version ? g->version : ""), brim_db_int(now)),
                        NULL));
  for (size_t i = 0; i < s->count; i += BATCH) {
    size_t n = s->count - i < BATCH ? s->count - i : BATCH;
    BRIM_TRY(add_batch(store, s, i, n, now));
  }
  s->out->existing = (int64_t)s->count - s->out->added;
  if (s->out->existing > 0) BRIM_TRY(add_needs(store, s));
  char text[160];
  snprintf(text, sizeof text, "%s: %lld added, %lld existing", g->id, (long long)s->out->added,
           (long long)s->out->existing);
  brim_store_note(store, now, "", "submitted", text);
  return BRIM_OK;
}

static int by_id(const void *a, const void *b) {
  const brim_store_point *const p = *(const brim_store_point *const *)a;
  const brim_store_point *const q = *(const brim_store_point *const *)b;
  int order = strcmp(p->id, q->id);
  // Of points with one id, the first in the caller's order comes first and is inserted.
  return order ? order : (p > q) - (p < q);
}

brim_status brim_store_submit(brim_store *store, const brim_store_grid *grid,
                              const brim_store_point *points, size_t count,
                              brim_store_submitted *out) {
  *out = (brim_store_submitted){0};
  BRIM_TRY(check_grid(grid));
  for (size_t i = 0; i < count; i++) BRIM_TRY(check_point(&points[i]));
  submission s = {grid, NULL, count, out};
  if (count > 0) s.points = (const brim_store_point **)brim_alloc(count * sizeof *s.points);
  if (count > 0 && !s.points) return brim_fail(BRIM_ENOMEM, "out of memory while reading a grid");
  for (size_t i = 0; i < count; i++) s.points[i] = &points[i];
  if (count > 1) qsort(s.points, count, sizeof *s.points, by_id);
  brim_status status = brim_store_write(store, submit, &s);
  brim_free(s.points);
  if (status) *out = (brim_store_submitted){0};
  return status;
}

//------------------------------------------- control -------------------------------------------
typedef struct order {
  const char *exp;
  brim_exp_want want;
  int64_t value;
} order;

typedef struct state_row {
  brim_exp_state state;
  brim_exp_want want;
} state_row;

static brim_status lock_exp(brim_store *store, const char *exp, state_row *out) {
  brim_db_rows rows;
  bool there = false;
  brim_status status =
      brim_db_query(store->db, "SELECT e.state,e.want FROM exp e WHERE e.id=?1 @LOCK",
                    BRIM_DB_ARGS(brim_db_text(exp)), &rows);
  if (!status) status = brim_db_next(&rows, &there);
  if (!status && there) {
    int state = 0, want = 0;
    status = brim_db_get_enum(&rows, 0, BRIM_EXP_STATE_COUNT, &state);
    if (!status) status = brim_db_get_enum(&rows, 1, BRIM_WANT_COUNT, &want);
    *out = (state_row){(brim_exp_state)state, (brim_exp_want)want};
  }
  brim_db_done(&rows);
  if (!status && !there) return brim_fail(BRIM_ENOENT, "the store has no experiment %s", exp);
  return status;
}

// A waiting experiment that is cancelled gets the end of its last attempt as its end: waiting is no
// running time.
static brim_status move_state(brim_store *store, const char *exp, brim_exp_state from,
                              brim_exp_state to, int64_t now) {
  bool ended = to == BRIM_EXP_CANCELLED;
  return brim_db_exec(store->db,
                      "UPDATE exp SET state=?3,want=0,not_before=0,ended=CASE WHEN ?4=0 THEN 0 ELSE"
                      " COALESCE((SELECT MAX(a.ended) FROM attempt a WHERE a.exp=?1 AND a.ended>0),"
                      "?4) END WHERE id=?1 AND state=?2",
                      BRIM_DB_ARGS(brim_db_text(exp), brim_db_int(from), brim_db_int(to),
                                   brim_db_int(ended ? now : 0)),
                      NULL);
}

static brim_status refuse(const char *exp, brim_exp_state state) {
  return brim_fail(BRIM_ESTATE, "not possible: experiment %s is %s", exp,
                   brim_tr(brim_exp_state_name(state)));
}

static brim_status want_of_live(brim_store *store, const order *o, brim_exp_want now_wanted,
                                int64_t now) {
  static const char *const kinds[] = {"run wanted", "pause wanted", "cancel wanted"};
  if (o->want == now_wanted) return BRIM_OK;
  // A cancelled process may be ending already, so another wish comes too late.
  if (now_wanted == BRIM_WANT_CANCEL) {
    return brim_fail(BRIM_ESTATE, "not possible: experiment %s is being cancelled", o->exp);
  }
  brim_store_note(store, now, o->exp, kinds[o->want], "");
  return brim_db_exec(store->db, "UPDATE exp SET want=?2 WHERE id=?1 AND state IN (1,2)",
                      BRIM_DB_ARGS(brim_db_text(o->exp), brim_db_int(o->want)), NULL);
}

static brim_status set_want(brim_store *store, void *ctx) {
  static const brim_exp_state idle[] = {BRIM_EXP_QUEUED, BRIM_EXP_PAUSED, BRIM_EXP_CANCELLED};
  static const char *const kinds[] = {"queued", "paused", "cancelled"};
  const order *o = ctx;
  state_row row = {0};
  int64_t now;
  BRIM_TRY(brim_store_time(store, &now));
  BRIM_TRY(lock_exp(store, o->exp, &row));
  if (row.state == BRIM_EXP_LEASED || row.state == BRIM_EXP_RUNNING) {
    return want_of_live(store, o, row.want, now);
  }
  brim_exp_state to = idle[o->want];
  if (row.state == to) return BRIM_OK;
  if (row.state != BRIM_EXP_QUEUED && row.state != BRIM_EXP_PAUSED)
    return refuse(o->exp, row.state);
  brim_store_note(store, now, o->exp, kinds[o->want], "");
  return move_state(store, o->exp, row.state, to, now);
}

brim_status brim_store_want(brim_store *store, const char *exp, brim_exp_want want) {
  BRIM_TRY(brim_store_check_id(exp));
  if ((unsigned)want >= BRIM_WANT_COUNT) {
    return brim_fail(BRIM_EINVAL, "an experiment can be run, paused or cancelled");
  }
  order o = {exp, want, 0};
  return brim_store_write(store, set_want, &o);
}

// Forgets which workers lack what the experiment or its grid needs.
static brim_status drop_lacks(brim_store *store, const char *exp) {
  return brim_db_exec(store->db,
                      "DELETE FROM lacks WHERE what=?1 OR what=(SELECT grid FROM exp WHERE id=?1)",
                      BRIM_DB_ARGS(brim_db_text(exp)), NULL);
}

#define QUEUE_AGAIN                                                                         \
  "UPDATE exp SET state=0,want=0,not_before=0,tries_left=tries,infra_left=?1,class='none'," \
  "reason='',last_lines='',ended=0 "

static brim_status retry(brim_store *store, void *ctx) {
  const order *o = ctx;
  state_row row = {0};
  int64_t now;
  BRIM_TRY(brim_store_time(store, &now));
  BRIM_TRY(lock_exp(store, o->exp, &row));
  if (row.state == BRIM_EXP_QUEUED) return drop_lacks(store, o->exp);
  if (row.state != BRIM_EXP_FAILED && row.state != BRIM_EXP_CANCELLED &&
      row.state != BRIM_EXP_PAUSED) {
    return refuse(o->exp, row.state);
  }
  BRIM_TRY(drop_lacks(store, o->exp));
  brim_store_note(store, now, o->exp, "retried", "");
  return brim_db_exec(store->db, QUEUE_AGAIN "WHERE id=?2 AND state=?3",
                      BRIM_DB_ARGS(brim_db_int(store->options.infra_tries), brim_db_text(o->exp),
                                   brim_db_int(row.state)),
                      NULL);
}

brim_status brim_store_retry(brim_store *store, const char *exp) {
  BRIM_TRY(brim_store_check_id(exp));
  order o = {exp, BRIM_WANT_RUN, 0};
  return brim_store_write(store, retry, &o);
}

typedef struct orders {
  const char (*exps)[BRIM_EXP_ID];
  size_t count;
  brim_exp_want want;
  brim_store_fn one;
  int64_t done;
} orders;

static brim_status change_each(brim_store *store, void *ctx) {
  orders *all = ctx;
  all->done = 0;  // the transaction may run again
  for (size_t i = 0; i < all->count; i++) {
    order o = {all->exps[i], all->want, 0};
    brim_status status = all->one(store, &o);
    if (status && status != BRIM_ESTATE) return status;
    all->done += !status;
  }
  return BRIM_OK;
}

static brim_status write_each(brim_store *store, orders *all, int64_t *count) {
  if (count) *count = 0;
  if (all->count > BRIM_STORE_EACH) {
    return brim_fail(BRIM_EINVAL, "at most %d experiments can be changed at once", BRIM_STORE_EACH);
  }
  for (size_t i = 0; i < all->count; i++) BRIM_TRY(brim_store_check_id(all->exps[i]));
  BRIM_TRY(brim_store_write(store, change_each, all));
  if (count) *count = all->done;
  return BRIM_OK;
}

brim_status brim_store_want_each(brim_store *store, const char (*exps)[BRIM_EXP_ID],
                                 size_t exp_count, brim_exp_want want, int64_t *count) {
  if ((unsigned)want >= BRIM_WANT_COUNT) {
    return brim_fail(BRIM_EINVAL, "an experiment can be run, paused or cancelled");
  }
  orders all = {exps, exp_count, want, set_want, 0};
  return write_each(store, &all, count);
}

brim_status brim_store_retry_each(brim_store *store, const char (*exps)[BRIM_EXP_ID],
                                  size_t exp_count, int64_t *count) {
  orders all = {exps, exp_count, BRIM_WANT_RUN, retry, 0};
  return write_each(store, &all, count);
}

static brim_status retry_failed(brim_store *store, void *ctx) {
  order *o = ctx;
  int64_t now;
  BRIM_TRY(brim_store_time(store, &now));
  // Forgets the lacks of other experiments too: each costs its worker one more try.
  BRIM_TRY(brim_db_exec(store->db, "DELETE FROM lacks", BRIM_DB_NO_ARGS, NULL));
  if (o->exp) {
    BRIM_TRY(brim_db_exec(
        store->db, QUEUE_AGAIN "WHERE state=4 AND id IN (SELECT exp FROM member WHERE grid=?2)",
        BRIM_DB_ARGS(brim_db_int(store->options.infra_tries), brim_db_text(o->exp)), &o->value));
  } else {
    BRIM_TRY(brim_db_exec(store->db, QUEUE_AGAIN "WHERE state=4",
                          BRIM_DB_ARGS(brim_db_int(store->options.infra_tries)), &o->value));
  }
  if (o->value == 0) return BRIM_OK;
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)o->value);
  brim_store_note(store, now, "", "retried", text);
  return BRIM_OK;
}

brim_status brim_store_retry_failed(brim_store *store, const char *grid, int64_t *count) {
  order o = {grid, BRIM_WANT_RUN, 0};
  BRIM_TRY(brim_store_write(store, retry_failed, &o));
  if (count) *count = o.value;
  return BRIM_OK;
}

static brim_status set_priority(brim_store *store, void *ctx) {
  const order *o = ctx;
  int64_t now, changed = 0;
  char text[32];
  BRIM_TRY(brim_store_time(store, &now));
  BRIM_TRY(brim_db_exec(store->db, "UPDATE exp SET priority=?2 WHERE id=?1",
                        BRIM_DB_ARGS(brim_db_text(o->exp), brim_db_int(o->value)), &changed));
  if (changed == 0) return brim_fail(BRIM_ENOENT, "the store has no experiment %s", o->exp);
  snprintf(text, sizeof text, "%lld", (long long)o->value);
  brim_store_note(store, now, o->exp, "priority", text);
  return BRIM_OK;
}

brim_status brim_store_set_priority(brim_store *store, const char *exp, int64_t priority) {
  BRIM_TRY(brim_store_check_id(exp));
  order o = {exp, BRIM_WANT_RUN, priority};
  return brim_store_write(store, set_priority, &o);
}

static brim_status see_worker(brim_store *store, void *ctx) {
  const brim_store_worker *w = ctx;
  int64_t now;
  BRIM_TRY(brim_store_time(store, &now));
  BRIM_TRY(brim_db_exec(store->db,
                        "DELETE FROM lacks WHERE worker=?1 AND EXISTS"
                        " (SELECT 1 FROM worker w WHERE w.id=?1 AND w.last_seen<?2)",
                        BRIM_DB_ARGS(brim_db_text(w->id), brim_db_int(now - BRIM_WORKER_GONE_MS)),
                        NULL));
  return brim_db_exec(
      store->db,
      "INSERT INTO worker(id,host,gpus,version,last_seen,drain,status) VALUES"
      " (?1,?2,?3,?4,?5,0,COALESCE(?6,'')) ON CONFLICT(id) DO UPDATE SET host=excluded.host,"
      "gpus=excluded.gpus,version=excluded.version,last_seen=excluded.last_seen,"
      "status=COALESCE(?6,worker.status)",
      BRIM_DB_ARGS(brim_db_text(w->id), brim_db_text(w->host ? w->host : ""),
                   brim_db_text(w->gpus ? w->gpus : ""), brim_db_text(w->version ? w->version : ""),
                   brim_db_int(w->left ? now - BRIM_WORKER_GONE_MS - 1 : now),
                   brim_db_text(w->status)),
      NULL);
}

brim_status brim_store_worker_seen(brim_store *store, const brim_store_worker *worker) {
  BRIM_TRY(brim_store_check_worker(worker->id));
  return brim_store_write(store, see_worker, (void *)worker);
}

static brim_status set_drain(brim_store *store, void *ctx) {
  const order *o = ctx;
  int64_t now, changed = 0;
  BRIM_TRY(brim_store_time(store, &now));
  BRIM_TRY(brim_db_exec(store->db, "UPDATE worker SET drain=?2 WHERE id=?1",
                        BRIM_DB_ARGS(brim_db_text(o->exp), brim_db_int(o->value)), &changed));
  if (changed == 0) return brim_fail(BRIM_ENOENT, "the store knows no worker '%s'", o->exp);
  if (!o->value) {
    BRIM_TRY(brim_db_exec(store->db, "DELETE FROM lacks WHERE worker=?1",
                          BRIM_DB_ARGS(brim_db_text(o->exp)), NULL));
  }
  brim_store_note(store, now, "", o->value ? "drain" : "drain ended", o->exp);
  return BRIM_OK;
}

brim_status brim_store_drain(brim_store *store, const char *worker, bool drain) {
  BRIM_TRY(brim_store_check_worker(worker));
  order o = {worker, BRIM_WANT_RUN, drain};
  return brim_store_write(store, set_drain, &o);
}

//-------------------------------------------- tokens --------------------------------------------

static brim_status add_token(brim_store *store, void *ctx) {
  const brim_store_token *t = ctx;
  int64_t now, added = 0;
  BRIM_TRY(brim_store_time(store, &now));
  BRIM_TRY(brim_db_exec(store->db,
                        "INSERT INTO token(id,role,sha256,created,ended) VALUES (?1,?2,?3,?4,0)"
                        " ON CONFLICT(id) DO UPDATE SET role=excluded.role,sha256=excluded.sha256,"
                        "created=excluded.created,ended=0 WHERE token.ended>0",
                        BRIM_DB_ARGS(brim_db_text(t->id), brim_db_text(t->role),
                                     brim_db_text(t->sha256), brim_db_int(now)),
                        &added));
  if (added == 0) return brim_fail(BRIM_EEXIST, "there is a token %s already", t->id);
  brim_store_note(store, now, "", "token added", t->id);
  return BRIM_OK;
}

brim_status brim_store_token_add(brim_store *store, const brim_store_token *token) {
  if (!brim_store_is_name(token->id) || !brim_store_is_name(token->role) ||
      !brim_store_is_sha256(token->sha256)) {
    return brim_fail(BRIM_EINVAL, "a token needs a name, a role and a hash");
  }
  return brim_store_write(store, add_token, (void *)token);
}

typedef struct token_change {
  const char *id, *sha256;  // sha256 NULL: ends the token
} token_change;

static brim_status change_token(brim_store *store, void *ctx) {
  const token_change *c = ctx;
  int64_t now, changed = 0;
  BRIM_TRY(brim_store_time(store, &now));
  BRIM_TRY(brim_db_exec(
      store->db,
      c->sha256 ? "UPDATE token SET sha256=?2,created=?3 WHERE id=?1 AND ended=0"
                : "UPDATE token SET ended=?3 WHERE id=?1 AND ended=0 AND ?2=''",
      BRIM_DB_ARGS(brim_db_text(c->id), brim_db_text(c->sha256 ? c->sha256 : ""), brim_db_int(now)),
      &changed));
  if (changed == 0) return brim_fail(BRIM_ENOENT, "there is no token %s", c->id);
  brim_store_note(store, now, "", c->sha256 ? "token rotated" : "token ended", c->id);
  return BRIM_OK;
}

brim_status brim_store_token_rotate(brim_store *store, const char *id, const char *sha256) {
  if (!brim_store_is_sha256(sha256)) return brim_fail(BRIM_EINVAL, "a token needs a hash");
  token_change c = {id, sha256};
  return brim_store_write(store, change_token, &c);
}

brim_status brim_store_token_end(brim_store *store, const char *id) {
  token_change c = {id, NULL};
  return brim_store_write(store, change_token, &c);
}

//---------------------------------------- expiry of files ----------------------------------------

typedef struct expiring {
  const char *exp;
  const brim_store_expiry *when;
  brim_store_expired what;
} expiring;

// Locks the experiment and decides by its state and end which files expire. The caller checks for
// weights.
static brim_status read_expired(brim_store *store, expiring *x) {
  brim_db_rows r;
  bool there = false;
  x->what = BRIM_STORE_EXPIRED_NONE;
  brim_status status =
      brim_db_query(store->db, "SELECT e.state,e.ended FROM exp e WHERE e.id=?1 @LOCK",
                    BRIM_DB_ARGS(brim_db_text(x->exp)), &r);
  if (!status) status = brim_db_next(&r, &there);
  int state = 0;
  if (!status && there) status = brim_db_get_enum(&r, 0, BRIM_EXP_STATE_COUNT, &state);
  if (!status && there) {
    int64_t ended = brim_db_get_int(&r, 1);
    bool over = state == BRIM_EXP_DONE || state == BRIM_EXP_FAILED || state == BRIM_EXP_CANCELLED;
    if (over && ended > 0 && ended < x->when->before) {
      x->what = BRIM_STORE_EXPIRED_ALL;
    } else if (state == BRIM_EXP_DONE && ended > 0 && ended < x->when->done_before) {
      x->what = BRIM_STORE_EXPIRED_CHECKPOINT;
    }
  }
  brim_db_done(&r);
  return status;
}

static brim_status expire_files(brim_store *store, void *ctx) {
  expiring *x = ctx;
  int64_t now, weights = 1, removed = 0;
  BRIM_TRY(read_expired(store, x));
  if (x->what == BRIM_STORE_EXPIRED_NONE) return BRIM_OK;
  bool all = x->what == BRIM_STORE_EXPIRED_ALL;
  if (!all) {
    BRIM_TRY(brim_db_get_one(
        store->db, "SELECT COUNT(*) FROM file WHERE exp=?1 AND name IN ('weights','best')",
        BRIM_DB_ARGS(brim_db_text(x->exp)), &weights));
  }
  if (weights == 0) {
    x->what = BRIM_STORE_EXPIRED_NONE;
    return BRIM_OK;
  }
  BRIM_TRY(brim_db_exec(
      store->db,
      all ? "DELETE FROM file WHERE exp=?1" : "DELETE FROM file WHERE exp=?1 AND name='checkpoint'",
      BRIM_DB_ARGS(brim_db_text(x->exp)), &removed));
  if (removed == 0) return BRIM_OK;
  BRIM_TRY(brim_store_time(store, &now));
  brim_store_note(store, now, x->exp, "files removed", all ? "all" : "checkpoint");
  return BRIM_OK;
}

brim_status brim_store_expire_files(brim_store *store, const char *exp,
                                    const brim_store_expiry *when, brim_store_expired *out) {
  expiring x = {exp, when, BRIM_STORE_EXPIRED_NONE};
  *out = BRIM_STORE_EXPIRED_NONE;
  BRIM_TRY(brim_store_check_id(exp));
  BRIM_TRY(brim_store_write(store, expire_files, &x));
  *out = x.what;
  return BRIM_OK;
}
