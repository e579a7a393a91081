// What an attempt writes while it runs: start, beats, metrics, logs, checkpoints and its end; and
// the end of leases. Every call checks the fence in the transaction that writes.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_msg.h"
#include "base/base_status.h"
#include "lab/store/lab_store_int.h"

static brim_status time_and_hold(brim_store *store, const brim_store_ref *ref, int64_t *now,
                                 brim_store_held *held) {
  BRIM_TRY(brim_store_time(store, now));
  return brim_store_hold_live(store, ref, *now, held);
}

typedef struct starting {
  const brim_store_ref *ref;
  int64_t pid, from_step;
} starting;

static brim_status start(brim_store *store, void *ctx) {
  const starting *s = ctx;
  const brim_store_ref *ref = s->ref;
  brim_store_held held;
  int64_t now;
  BRIM_TRY(time_and_hold(store, ref, &now, &held));
  BRIM_TRY(brim_db_exec(
      store->db, "UPDATE exp SET state=2,lease_until=?4 WHERE id=?1 AND state=?2 AND fence=?3",
      BRIM_DB_ARGS(brim_db_text(ref->exp), brim_db_int(held.state), brim_db_int(ref->fence),
                   brim_db_int(now + store->options.lease_ms)),
      NULL));
  if (held.state == BRIM_EXP_LEASED) brim_store_note(store, now, ref->exp, "started", "");
  return brim_db_exec(
      store->db,
      "UPDATE attempt SET pid=?3,from_step=?4,started=CASE WHEN started=0 THEN ?5 ELSE started END"
      " WHERE exp=?1 AND n=?2",
      BRIM_DB_ARGS(brim_db_text(ref->exp), brim_db_int(ref->attempt), brim_db_int(s->pid),
                   brim_db_int(s->from_step >= 0 ? s->from_step : held.from_step),
                   brim_db_int(now)),
      NULL);
}

brim_status brim_store_start(brim_store *store, const brim_store_ref *ref, int64_t pid,
                             int64_t from_step) {
  starting s = {ref, pid, from_step};
  return brim_store_write(store, start, &s);
}

typedef struct beating {
  const brim_store_ref *ref;
  brim_store_progress progress;
  brim_store_beat_reply *reply;
} beating;

static brim_status beat(brim_store *store, void *ctx) {
  const beating *b = ctx;
  const brim_store_ref *ref = b->ref;
  const brim_store_progress *p = &b->progress;
  brim_store_held held;
  int64_t now;
  BRIM_TRY(time_and_hold(store, ref, &now, &held));
  BRIM_TRY(brim_db_exec(
      store->db,
      "UPDATE exp SET lease_until=?3,step=CASE WHEN ?4<0 THEN step ELSE ?4 END,"
      "steps=CASE WHEN ?5<0 THEN steps ELSE ?5 END,epoch=CASE WHEN ?6<0 THEN epoch ELSE ?6 END,"
      "epochs=CASE WHEN ?7<0 THEN epochs ELSE ?7 END WHERE id=?1 AND fence=?2",
      BRIM_DB_ARGS(brim_db_text(ref->exp), brim_db_int(ref->fence),
                   brim_db_int(now + store->options.lease_ms), brim_db_int(p->step),
                   brim_db_int(p->steps), brim_db_int(p->epoch), brim_db_int(p->epochs)),
      NULL));
  *b->reply = (brim_store_beat_reply){store->options.lease_ms, held.want};
  return BRIM_OK;
}

brim_status brim_store_beat(brim_store *store, const brim_store_ref *ref,
                            const brim_store_progress *progress, brim_store_beat_reply *reply) {
  *reply = (brim_store_beat_reply){0, BRIM_WANT_RUN};
  beating b = {ref, {-1, -1, -1, -1}, reply};
  if (progress) b.progress = *progress;
  return brim_store_write(store, beat, &b);
}

// LEVEL_BATCH: names are compared with each other.
enum { METRIC_BATCH = 64, METRIC_COLUMNS = 5, LEVEL_BATCH = 512 };

typedef struct logging {
  const brim_store_ref *ref;
  int64_t seq;
  const brim_store_metric *rows;
  size_t count;
} logging;

// A row that the same batch names again later would be written twice by one statement.
static bool comes_again(const brim_store_metric *rows, size_t i, size_t count) {
  for (size_t k = i + 1; k < count; k++) {
    if (rows[k].step == rows[i].step && strcmp(rows[k].key, rows[i].key) == 0) return true;
  }
  return false;
}

static brim_status put_metrics(brim_store *store, const logging *l, size_t from, size_t count) {
  brim_db_arg args[METRIC_BATCH * METRIC_COLUMNS];
  const brim_store_metric *rows = l->rows + from;
  size_t used = 0;
  for (size_t i = 0; i < count; i++) {
    if (comes_again(rows, i, count)) continue;
    brim_db_arg *a = args + used++ * METRIC_COLUMNS;
    a[0] = brim_db_text(l->ref->exp);
    a[1] = brim_db_text(rows[i].key);
    a[2] = brim_db_int(rows[i].step);
    a[3] = brim_db_real(rows[i].value);
    a[4] = brim_db_int(l->ref->attempt);
  }
  int64_t unused;
  return brim_store_put_rows(store, "metric(exp,key,step,value,attempt)",
                             "ON CONFLICT(exp,key,step) DO UPDATE SET value=excluded.value,"
                             "attempt=excluded.attempt",
                             METRIC_COLUMNS, args, used, &unused);
}

// The row of a key at its latest step; NULL = the batch has none.
static const brim_store_metric *latest_of(const logging *l, const char *key, size_t length) {
  const brim_store_metric *latest = NULL;
  for (size_t i = 0; length > 0 && i < l->count; i++) {
    const char *k = l->rows[i].key;
    if (strlen(k) != length || memcmp(k, key, length) != 0) continue;
    if (!latest || l->rows[i].step >= latest->step) latest = &l->rows[i];
  }
  return latest;
}

// The value shown for the experiment: that of the latest step. A config does not always tell what a run
// measures (the loss follows the data's targets), so an alternative replaces a metric that has no value
// yet, or that has a worse rank.
static brim_status put_shown(brim_store *store, const logging *l, const brim_store_held *held) {
  const char *shown = held->metric_key;
  const size_t length = strcspn(shown, " ");
  const brim_store_metric *row = latest_of(l, shown, length);
  for (const char *p = shown + length; *p;) {
    p += strspn(p, " ");
    const size_t n = strcspn(p, " ");
    const bool same = n == length && memcmp(p, shown, n) == 0;
    if (same && (row || held->metric_step >= 0)) break;
    const brim_store_metric *other = same ? NULL : latest_of(l, p, n);
    if (other) {
      row = other;
      break;
    }
    p += n;
  }
  if (!row) return BRIM_OK;
  char key[sizeof held->metric_key];
  snprintf(key, sizeof key, "%s%s", row->key, shown + length);
  return brim_db_exec(
      store->db, "UPDATE exp SET metric=?3,metric_step=?4,metric_key=?5 WHERE id=?1 AND fence=?2",
      BRIM_DB_ARGS(brim_db_text(l->ref->exp), brim_db_int(l->ref->fence), brim_db_real(row->value),
                   brim_db_int(row->step), brim_db_text(key)),
      NULL);
}

// Once for each name of the rows, over all of its steps among them.
static brim_status put_levels(brim_store *store, const logging *l, size_t from, size_t count) {
  const brim_store_metric *rows = l->rows + from;
  for (size_t at = 0; at < count; at++) {
    int64_t first = rows[at].step, last = first;
    bool earlier = false;
    for (size_t i = 0; i < count && !earlier; i++) {
      if (strcmp(rows[i].key, rows[at].key) != 0) continue;
      earlier = i < at;
      if (rows[i].step < first) first = rows[i].step;
      if (rows[i].step > last) last = rows[i].step;
    }
    if (earlier) continue;
    BRIM_TRY(brim_store_put_levels(store, l->ref->exp, rows[at].key, first, last));
  }
  return BRIM_OK;
}

static brim_status log_metrics(brim_store *store, void *ctx) {
  const logging *l = ctx;
  brim_store_held held;
  int64_t now;
  BRIM_TRY(time_and_hold(store, l->ref, &now, &held));
  if (l->seq <= held.seq) return BRIM_OK;
  for (size_t i = 0; i < l->count; i += METRIC_BATCH) {
    size_t n = l->count - i < METRIC_BATCH ? l->count - i : METRIC_BATCH;
    BRIM_TRY(put_metrics(store, l, i, n));
  }
  for (size_t i = 0; i < l->count; i += LEVEL_BATCH) {
    size_t n = l->count - i < LEVEL_BATCH ? l->count - i : LEVEL_BATCH;
    BRIM_TRY(put_levels(store, l, i, n));
  }
  BRIM_TRY(put_shown(store, l, &held));
  return brim_db_exec(
      store->db, "UPDATE attempt SET seq=?3 WHERE exp=?1 AND n=?2",
      BRIM_DB_ARGS(brim_db_text(l->ref->exp), brim_db_int(l->ref->attempt), brim_db_int(l->seq)),
      NULL);
}

brim_status brim_store_metrics(brim_store *store, const brim_store_ref *ref, int64_t seq,
                               const brim_store_metric *rows, size_t count) {
  if (seq < 1) return brim_fail(BRIM_EINVAL, "batches of metrics count from 1");
  for (size_t i = 0; i < count; i++) {
    size_t n = rows[i].key ? strlen(rows[i].key) : 0;
    if (n == 0 || n > 120 || !brim_utf8_valid(rows[i].key, n)) {
      return brim_fail(BRIM_EINVAL, "the name of a metric must have 1 to 120 characters");
    }
  }
  logging l = {ref, seq, rows, count};
  return brim_store_write(store, log_metrics, &l);
}

typedef struct noting {
  const brim_store_ref *ref;
  const char *stream;
  int64_t value;
} noting;

static brim_status note_log(brim_store *store, void *ctx) {
  const noting *n = ctx;
  brim_store_held held;
  int64_t now;
  BRIM_TRY(time_and_hold(store, n->ref, &now, &held));
  return brim_db_exec(store->db,
                      "INSERT INTO logpos(exp,attempt,stream,size) VALUES (?1,?2,?3,?4)"
                      " ON CONFLICT(exp,attempt,stream) DO UPDATE SET size=excluded.size"
                      " WHERE logpos.size<excluded.size",
                      BRIM_DB_ARGS(brim_db_text(n->ref->exp), brim_db_int(n->ref->attempt),
                                   brim_db_text(n->stream), brim_db_int(n->value)),
                      NULL);
}

brim_status brim_store_log(brim_store *store, const brim_store_ref *ref, const char *stream,
                           int64_t size) {
  if (!brim_store_is_name(stream) || size < 0) {
    return brim_fail(BRIM_EINVAL, "a log needs a name of 1 to 64 characters and a size");
  }
  noting n = {ref, stream, size};
  return brim_store_write(store, note_log, &n);
}

static brim_status note_checkpoint(brim_store *store, void *ctx) {
  const noting *n = ctx;
  brim_store_held held;
  int64_t now;
  BRIM_TRY(time_and_hold(store, n->ref, &now, &held));
  if (n->value <= held.ckpt_step) return BRIM_OK;
  return brim_db_exec(store->db,
                      "UPDATE exp SET ckpt_step=?3,infra_left=?4 WHERE id=?1 AND fence=?2",
                      BRIM_DB_ARGS(brim_db_text(n->ref->exp), brim_db_int(n->ref->fence),
                                   brim_db_int(n->value), brim_db_int(store->options.infra_tries)),
                      NULL);
}

brim_status brim_store_checkpoint(brim_store *store, const brim_store_ref *ref, int64_t step) {
  if (step < 0) return brim_fail(BRIM_EINVAL, "the step of a checkpoint is negative");
  noting n = {ref, NULL, step};
  return brim_store_write(store, note_checkpoint, &n);
}

typedef struct finishing {
  const brim_store_ref *ref;
  const brim_store_result *result;
  brim_exp_state state;
} finishing;

// The reply of the first call was lost: the attempt ended just like this.
static bool is_repeated(const finishing *f, const brim_store_held *held) {
  return held->attempt_fence == f->ref->fence && held->outcome == f->result->outcome &&
         held->exit_code == f->result->exit_code &&
         strcmp(held->failure, brim_failure_name(f->result->failure)) == 0;
}

static brim_status finish(brim_store *store, void *ctx) {
  finishing *f = ctx;
  brim_store_held held;
  int64_t now;
  BRIM_TRY(brim_store_time(store, &now));
  BRIM_TRY(brim_store_hold(store, f->ref->exp, f->ref->attempt, &held));
  if (is_repeated(f, &held)) {
    f->state = held.state;
    return BRIM_OK;
  }
  BRIM_TRY(brim_store_hold_live(store, f->ref, now, &held));
  return brim_store_end(store, &held, f->result, now, &f->state);
}

brim_status brim_store_finish(brim_store *store, const brim_store_ref *ref,
                              const brim_store_result *result, brim_exp_state *state) {
  BRIM_TRY(brim_store_check_id(ref->exp));
  bool error = result->outcome == BRIM_ATTEMPT_ERROR;
  if ((!error && result->outcome != BRIM_ATTEMPT_OK && result->outcome != BRIM_ATTEMPT_STOPPED) ||
      (unsigned)result->failure >= BRIM_FAILURE_COUNT ||
      error == (result->failure == BRIM_FAILURE_NONE)) {
    return brim_fail(BRIM_EINVAL, "an attempt ends ok, stopped, or with a class of failure");
  }
  const char *owed = result->owed ? result->owed : "";
  if (strlen(owed) > 256 || owed[strspn(owed, "abcdefghijklmnopqrstuvwxyz,")]) {
    return brim_fail(BRIM_EINVAL, "the files that a worker owes are names and commas");
  }
  finishing f = {ref, result, BRIM_EXP_QUEUED};
  BRIM_TRY(brim_store_write(store, finish, &f));
  if (state) *state = f.state;
  return BRIM_OK;
}

enum { REAP_BATCH = 64 };

typedef struct reaping {
  char exps[REAP_BATCH][BRIM_EXP_ID];
  int64_t attempts[REAP_BATCH];
  int count;
} reaping;

// Rows that another process has locked are its business: they are being renewed or reaped.
static brim_status find_expired(brim_store *store, int64_t now, reaping *r) {
  brim_db_rows rows;
  bool there = false;
  r->count = 0;
  brim_status status = brim_db_query(store->db,
                                     "SELECT e.id,e.attempt FROM exp e WHERE e.state IN (1,2)"
                                     " AND e.lease_until<=?1 ORDER BY e.lease_until,e.id"
                                     " LIMIT 64 @LOCK_FREE",
                                     BRIM_DB_ARGS(brim_db_int(now)), &rows);
  while (!status && r->count < REAP_BATCH) {
    status = brim_db_next(&rows, &there);
    if (status || !there) break;
    snprintf(r->exps[r->count], BRIM_EXP_ID, "%s", brim_db_get_text(&rows, 0));
    r->attempts[r->count++] = brim_db_get_int(&rows, 1);
  }
  brim_db_done(&rows);
  return status;
}

static brim_status reap(brim_store *store, void *ctx) {
  reaping *r = ctx;
  int64_t now;
  r->count = 0;
  BRIM_TRY(brim_store_time(store, &now));
  if (now < store->grace_until) return BRIM_OK;
  BRIM_TRY(find_expired(store, now, r));
  const brim_store_result lost = {.outcome = BRIM_ATTEMPT_EXPIRED,
                                  .failure = BRIM_FAILURE_INFRASTRUCTURE,
                                  .message = brim_tr("the worker stopped reporting")};
  for (int i = 0; i < r->count; i++) {
    brim_store_held held;
    brim_exp_state state;
    BRIM_TRY(brim_store_hold(store, r->exps[i], r->attempts[i], &held));
    BRIM_TRY(brim_store_end(store, &held, &lost, now, &state));
  }
  return BRIM_OK;
}

brim_status brim_store_reap(brim_store *store, int64_t *expired) {
  reaping r;
  int64_t total = 0;
  do {
    BRIM_TRY(brim_store_write(store, reap, &r));
    total += r.count;
  } while (r.count == REAP_BATCH);
  if (expired) *expired = total;
  return BRIM_OK;
}
