// Attempts: claiming an experiment, writing while it runs, and its end; the end of leases; the files
// that workers send. Every writing call checks the fence in its transaction.

#include "lab/store/lab_store_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_msg.h"
#include "base/base_status.h"

//-------------------------------------------- rules --------------------------------------------
// The next state of an experiment when an attempt ends: plain rules over plain values, without a database.

typedef struct ending {
  brim_attempt_outcome outcome;  // how the attempt ended
  brim_failure failure;
  brim_exp_want want;
  int64_t tries, tries_left, infra_left;
  bool others;  // the worker lacks what the experiment needs, and another worker may have it
} ending;

typedef struct next_state {
  brim_exp_state state;
  int64_t tries_left, infra_left;
  int64_t wait_ms;   // wait before the next claim
  bool poison;       // FAILED because infrastructure failed too often
  const char *kind;  // kind of the event
} next_state;

static int64_t back_off(int64_t first, int64_t used) {
  enum { DOUBLINGS = 6 };
  return first << (used < 0 ? 0 : used < DOUBLINGS ? used : DOUBLINGS);
}

// Queues the experiment again, or pauses it if the user wants that.
static next_state requeue(const ending *c, next_state next, const char *kind) {
  next.state = c->want == BRIM_WANT_PAUSE ? BRIM_EXP_PAUSED : BRIM_EXP_QUEUED;
  next.kind = c->want == BRIM_WANT_PAUSE ? "paused" : kind;
  return next;
}

static next_state after_infra(const ending *c, next_state next, const brim_store_options *o) {
  if (c->infra_left <= 0) {
    next.state = BRIM_EXP_FAILED;
    next.poison = true;
    next.kind = "failed";
    return next;
  }
  // Only a reported failure waits: it may come again at once. An expired lease says nothing about the
  // experiment.
  if (c->outcome == BRIM_ATTEMPT_ERROR) {
    next.wait_ms = back_off(o->backoff_ms, o->infra_tries - c->infra_left);
  }
  next.infra_left = c->infra_left - 1;
  return requeue(c, next, c->outcome == BRIM_ATTEMPT_EXPIRED ? "expired" : "requeued");
}

static next_state next_state_of(const ending *c, const brim_store_options *options) {
  next_state next = {
      .state = BRIM_EXP_FAILED,
      .tries_left = c->tries_left,
      .infra_left = c->infra_left,
      .kind = "failed",
  };
  if (c->outcome == BRIM_ATTEMPT_OK) {
    next.state = BRIM_EXP_DONE;
    next.kind = "done";
    return next;
  }
  if (c->want == BRIM_WANT_CANCEL) {
    next.state = BRIM_EXP_CANCELLED;
    next.kind = "cancelled";
    return next;
  }
  if (c->outcome == BRIM_ATTEMPT_STOPPED) return requeue(c, next, "requeued");
  if (c->outcome == BRIM_ATTEMPT_EXPIRED) return after_infra(c, next, options);
  if (c->others) return requeue(c, next, "requeued");
  brim_failure_retry retry = brim_failure_retry_of(c->failure);
  if (retry == BRIM_RETRY_FREE) return after_infra(c, next, options);
  if (retry == BRIM_RETRY_COUNTED && c->tries_left > 0) {
    next.tries_left = c->tries_left - 1;
    next.wait_ms = back_off(options->backoff_ms, c->tries - c->tries_left);
    return requeue(c, next, "retry");
  }
  return next;
}

//------------------------------------- an attempt, locked -------------------------------------

// An experiment and one of its attempts, locked inside a transaction.
typedef struct held_attempt {
  char exp[BRIM_EXP_ID];
  brim_exp_state state;
  brim_exp_want want;
  int64_t fence, attempt;  // of the experiment
  int64_t tries, tries_left, infra_left, ckpt_step, metric_step;
  char metric_key[512];  // the metric shown and its alternatives (brim_store_point)
  // The members below are those of the attempt, which need not be the experiment's last.
  brim_attempt_outcome outcome;
  int64_t n, attempt_fence, seq, from_step, exit_code;
  char failure[32];
} held_attempt;

//-------------------------------------- what workers lack --------------------------------------
// A worker may lack what an experiment needs: its data, or a feature of the machine. The experiment
// then goes to other workers, as long as there are any.

// After lacks for this many experiments of a grid, a worker gets none of the grid any more.
enum { GRID_AFTER = 3 };

// Selects workers that are alive, take experiments and do not lack experiment e. seen: the oldest
// last_seen, as ?N.
#define HAS_IT(seen)                                              \
  "SELECT 1 FROM worker w WHERE w.drain=0 AND w.last_seen>=" seen \
  " AND NOT EXISTS (SELECT 1 FROM lacks l WHERE l.worker=w.id AND l.what IN (e.id,e.grid))"

// True for failures that are the worker's fault, not the experiment's.
static bool is_lack(brim_failure failure) {
  return failure == BRIM_FAILURE_DATA || failure == BRIM_FAILURE_UNSUPPORTED;
}

// Notes that the worker of the attempt lacks its experiment. *others: another worker is alive that does
// not lack it.
static brim_status put_lack(brim_store *store, const held_attempt *held, int64_t now,
                            bool *others) {
  const brim_db_arg exp = brim_db_text(held->exp), n = brim_db_int(held->n), t = brim_db_int(now);
  BRIM_TRY(brim_db_exec(store->db,
                        "INSERT INTO lacks(worker,what,t) SELECT a.worker,a.exp,?3 FROM attempt a"
                        " WHERE a.exp=?1 AND a.n=?2 ON CONFLICT(worker,what) DO NOTHING",
                        BRIM_DB_ARGS(exp, n, t), NULL));
  BRIM_TRY(brim_db_exec(
      store->db,
      "INSERT INTO lacks(worker,what,t) SELECT a.worker,e.grid,?3 FROM attempt a"
      " JOIN exp e ON e.id=a.exp WHERE a.exp=?1 AND a.n=?2 AND ?4<="
      "(SELECT COUNT(*) FROM lacks l JOIN exp x ON x.id=l.what"
      " WHERE l.worker=a.worker AND x.grid=e.grid) ON CONFLICT(worker,what) DO NOTHING",
      BRIM_DB_ARGS(exp, n, t, brim_db_int(GRID_AFTER)), NULL));
  int64_t count = 0;
  BRIM_TRY(brim_db_get_one(store->db,
                           "SELECT COUNT(*) FROM exp e WHERE e.id=?1 AND EXISTS (" HAS_IT("?2") ")",
                           BRIM_DB_ARGS(exp, brim_db_int(now - BRIM_WORKER_GONE_MS)), &count));
  *others = count > 0;
  return BRIM_OK;
}

// A condition on experiment e, for claims. ?4: the worker; ?5: the oldest last_seen of the other
// workers.
static const char *not_lacking(void) {
  return " AND (NOT EXISTS (SELECT 1 FROM lacks m WHERE m.worker=?4 AND m.what IN (e.id,e.grid))"
         " OR NOT EXISTS (" HAS_IT("?5") "))";
}

//------------------------------------------- claiming -------------------------------------------
// The first queued experiment that fits becomes a new attempt, with a fence of its own.

typedef struct claiming {
  const brim_store_request *request;
  brim_store_claimed *out;
  int64_t from_step;
} claiming;

// Finds the attempt that this claim_id got before. Another attempt may have replaced it since; its
// first write then fails with BRIM_ESTATE.
static brim_status find_earlier(brim_store *store, claiming *c, bool *found) {
  brim_db_rows rows;
  brim_status status = brim_db_query(store->db, "SELECT exp,n,fence FROM attempt WHERE claim_id=?1",
                                     BRIM_DB_ARGS(brim_db_text(c->request->claim_id)), &rows);
  if (!status) status = brim_db_next(&rows, found);
  if (!status && *found) {
    brim_store_ref *ref = &c->out->ref;
    snprintf(ref->exp, sizeof ref->exp, "%s", brim_db_get_text(&rows, 0));
    ref->attempt = brim_db_get_int(&rows, 1);
    ref->fence = brim_db_get_int(&rows, 2);
  }
  brim_db_done(&rows);
  if (status || !*found) return status;
  return brim_store_load(store, c->out->ref.exp, &c->out->exp);
}

static brim_status is_draining(brim_store *store, const char *worker, bool *out) {
  int64_t drain = 0;
  brim_status status = brim_db_get_one(store->db, "SELECT drain FROM worker WHERE id=?1",
                                       BRIM_DB_ARGS(brim_db_text(worker)), &drain);
  *out = drain != 0;
  return status == BRIM_ENOENT ? BRIM_OK : status;
}

// Locks the experiment to claim; ref.exp stays empty if there is none.
static brim_status choose(brim_store *store, claiming *c, int64_t now) {
  const brim_store_request *r = c->request;
  brim_str sql;
  brim_str_init(&sql);
  brim_str_append(&sql,
                  "SELECT e.id,e.fence,e.attempt,e.ckpt_step FROM exp e WHERE e.state=0"
                  " AND e.not_before<=?1 AND e.gpus<=?2 AND (?3<0 OR e.need_bytes<=?3)");
  brim_str_append(&sql, not_lacking());
  brim_db_arg args[7] = {brim_db_int(now), brim_db_int(r->free_gpus), brim_db_int(r->free_bytes),
                         brim_db_text(r->worker), brim_db_int(now - BRIM_WORKER_GONE_MS)};
  size_t count = 5;
  if (r->exp) {
    args[count++] = brim_db_text(r->exp);
    brim_str_printf(&sql, " AND e.id=?%zu", count);
  }
  if (r->grid) {
    args[count++] = brim_db_text(r->grid);
    brim_str_printf(&sql, " AND EXISTS (SELECT 1 FROM member m WHERE m.grid=?%zu AND m.exp=e.id)",
                    count);
  }
  brim_str_append(&sql, " ORDER BY e.priority DESC,e.created,e.idx,e.id LIMIT 1 @LOCK_FREE");
  brim_db_rows rows = {0};
  bool there = false;
  brim_status status = brim_str_status(&sql);
  if (!status) status = brim_db_query(store->db, sql.data, args, count, &rows);
  if (!status) status = brim_db_next(&rows, &there);
  if (!status && there) {
    brim_store_ref *ref = &c->out->ref;
    snprintf(ref->exp, sizeof ref->exp, "%s", brim_db_get_text(&rows, 0));
    ref->fence = brim_db_get_int(&rows, 1) + 1;
    ref->attempt = brim_db_get_int(&rows, 2) + 1;
    c->from_step = brim_db_get_int(&rows, 3);
  }
  brim_db_done(&rows);
  brim_str_deinit(&sql);
  return status;
}

static brim_status take(brim_store *store, claiming *c, int64_t now) {
  const brim_store_request *r = c->request;
  const brim_store_ref *ref = &c->out->ref;
  int64_t changed = 0;
  BRIM_TRY(brim_db_exec(
      store->db,
      "UPDATE exp SET state=1,fence=?3,attempt=?4,lease_until=?5,worker=?6,want=0,"
      "started=CASE WHEN started=0 THEN ?7 ELSE started END"
      " WHERE id=?1 AND state=0 AND fence=?2",
      BRIM_DB_ARGS(brim_db_text(ref->exp), brim_db_int(ref->fence - 1), brim_db_int(ref->fence),
                   brim_db_int(ref->attempt), brim_db_int(now + store->options.lease_ms),
                   brim_db_text(r->worker), brim_db_int(now)),
      &changed));
  if (changed != 1)
    return brim_fail(BRIM_EINTERNAL, "experiment %s changed while locked", ref->exp);
  brim_status status = brim_db_exec(
      store->db,
      "INSERT INTO attempt(exp,n,fence,claim_id,worker,host,devices,from_step,claimed)"
      " VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9)",
      BRIM_DB_ARGS(brim_db_text(ref->exp), brim_db_int(ref->attempt), brim_db_int(ref->fence),
                   brim_db_text(r->claim_id), brim_db_text(r->worker),
                   brim_db_text(r->host ? r->host : ""), brim_db_text(r->devices ? r->devices : ""),
                   brim_db_int(c->from_step), brim_db_int(now)),
      NULL);
  // The same claim arrived twice at once and the other call won: run again, and find_earlier returns
  // its attempt.
  if (status == BRIM_EEXIST) store->db->again = true;
  return status;
}

static brim_status claim(brim_store *store, void *ctx) {
  claiming *c = ctx;
  brim_store_exp_free(c->out->exp);
  *c->out = (brim_store_claimed){.lease_ms = store->options.lease_ms};
  bool found = false, draining = false;
  BRIM_TRY(find_earlier(store, c, &found));
  if (found) return BRIM_OK;
  BRIM_TRY(brim_store_check_moved(store));
  BRIM_TRY(is_draining(store, c->request->worker, &draining));
  if (draining) return BRIM_OK;
  int64_t now;
  BRIM_TRY(brim_store_time(store, &now));
  BRIM_TRY(choose(store, c, now));
  if (!c->out->ref.exp[0]) return BRIM_OK;
  BRIM_TRY(take(store, c, now));
  BRIM_TRY(brim_store_load(store, c->out->ref.exp, &c->out->exp));
  brim_store_note(store, now, c->out->ref.exp, "claimed", c->request->worker);
  return BRIM_OK;
}

brim_status brim_store_claim(brim_store *store, const brim_store_request *request,
                             brim_store_claimed *out) {
  *out = (brim_store_claimed){0};
  BRIM_TRY(brim_store_check_worker(request->worker));
  if (!brim_store_is_name(request->claim_id)) {
    return brim_fail(BRIM_EINVAL, "the id of a claim must have 1 to 64 characters");
  }
  if (request->exp) BRIM_TRY(brim_store_check_id(request->exp));
  claiming c = {.request = request, .out = out};
  brim_status status = brim_store_write(store, claim, &c);
  if (!status) return BRIM_OK;
  brim_store_exp_free(out->exp);
  *out = (brim_store_claimed){0};
  return status;
}

//-------------------------------------------- levels --------------------------------------------
// Metrics in coarser levels. Writing a value rebuilds its buckets from the level below, because the
// value may replace one that was the least or greatest of its bucket.

enum { FEW_BUCKETS = 4 };  // at most this many buckets are rebuilt one by one

#define UPSERT                                                                                     \
  " ON CONFLICT(exp,key,level,bucket) DO UPDATE SET n=excluded.n,bad=excluded.bad,lo=excluded.lo," \
  "hi=excluded.hi,sum=excluded.sum"

#define OF_VALUES "COUNT(value),COUNT(*)-COUNT(value),MIN(value),MAX(value),SUM(value) FROM metric"
#define OF_LEVEL "SUM(n),SUM(bad),MIN(lo),MAX(hi),SUM(sum) FROM level"

// Build buckets from `metric` or from the level below. Parameters: exp, key, the first and the last
// bucket (or step) below, the level. ONE_ builds only the bucket ?6 and sorts nothing: most batches lie
// in one or two buckets.
static const char MANY_OF_VALUES[] =
    "INSERT INTO level SELECT exp,key,?5,step/64," OF_VALUES
    " WHERE exp=?1 AND key=?2 AND step>=?3 AND step<=?4 GROUP BY exp,key,step/64" UPSERT;
static const char ONE_OF_VALUES[] =
    "INSERT INTO level SELECT exp,key,?5,?6," OF_VALUES
    " WHERE exp=?1 AND key=?2 AND step>=?3 AND step<=?4 GROUP BY exp,key" UPSERT;
static const char MANY_OF_LEVEL[] =
    "INSERT INTO level SELECT exp,key,?5,bucket/64," OF_LEVEL
    " WHERE exp=?1 AND key=?2 AND level=?5-1 AND bucket>=?3 AND bucket<=?4"
    " GROUP BY exp,key,bucket/64" UPSERT;
static const char ONE_OF_LEVEL[] =
    "INSERT INTO level SELECT exp,key,?5,?6," OF_LEVEL
    " WHERE exp=?1 AND key=?2 AND level=?5-1 AND bucket>=?3 AND bucket<=?4 GROUP BY exp,key" UPSERT;

// Rebuilds the buckets from `first` to `last` of a level.
static brim_status put_level(brim_store *store, const brim_db_arg names[2], int level,
                             int64_t first, int64_t last) {
  if (last - first >= FEW_BUCKETS) {
    const brim_db_arg args[] = {
        names[0], names[1], brim_db_int(first * BRIM_STORE_LEVEL_FACTOR),
        brim_db_int(last * BRIM_STORE_LEVEL_FACTOR + BRIM_STORE_LEVEL_FACTOR - 1),
        brim_db_int(level)};
    return brim_db_exec(store->db, level == 1 ? MANY_OF_VALUES : MANY_OF_LEVEL, args, 5, NULL);
  }
  for (int64_t bucket = first; bucket <= last; bucket++) {
    const brim_db_arg args[] = {
        names[0],
        names[1],
        brim_db_int(bucket * BRIM_STORE_LEVEL_FACTOR),
        brim_db_int(bucket * BRIM_STORE_LEVEL_FACTOR + BRIM_STORE_LEVEL_FACTOR - 1),
        brim_db_int(level),
        brim_db_int(bucket)};
    BRIM_TRY(brim_db_exec(store->db, level == 1 ? ONE_OF_VALUES : ONE_OF_LEVEL, args, 6, NULL));
  }
  return BRIM_OK;
}

// Updates all levels after values from step `first` to step `last` were written.
static brim_status update_levels(brim_store *store, const char *exp, const char *key, int64_t first,
                                 int64_t last) {
  const brim_db_arg names[2] = {brim_db_text(exp), brim_db_text(key)};
  if (last < 0) return BRIM_OK;  // curves begin at step 0
  if (first < 0) first = 0;
  for (int level = 1; level <= BRIM_STORE_LEVELS; level++) {
    first /= BRIM_STORE_LEVEL_FACTOR;
    last /= BRIM_STORE_LEVEL_FACTOR;
    BRIM_TRY(put_level(store, names, level, first, last));
  }
  return BRIM_OK;
}

// Rebuild the buckets of a level from one bucket on, for all metrics. Parameters: exp, level, the
// bucket.
static const char DROP_BUCKETS[] = "DELETE FROM level WHERE exp=?1 AND level=?2 AND bucket>=?3";
static const char REBUILD_FROM_VALUES[] = "INSERT INTO level SELECT exp,key,?2,step/64," OF_VALUES
                                          " WHERE exp=?1 AND step>=?3*64 GROUP BY exp,key,step/64";
static const char REBUILD_FROM_LEVEL[] =
    "INSERT INTO level SELECT exp,key,?2,bucket/64," OF_LEVEL
    " WHERE exp=?1 AND level=?2-1 AND bucket>=?3*64 GROUP BY exp,key,bucket/64";

// Updates all levels after values of steps beyond `last` were removed.
static brim_status cut_levels(brim_store *store, const char *exp, int64_t last) {
  int64_t bucket = last < 0 ? 0 : last;
  for (int level = 1; level <= BRIM_STORE_LEVELS; level++) {
    bucket /= BRIM_STORE_LEVEL_FACTOR;
    const brim_db_arg args[] = {brim_db_text(exp), brim_db_int(level), brim_db_int(bucket)};
    BRIM_TRY(brim_db_exec(store->db, DROP_BUCKETS, args, 3, NULL));
    BRIM_TRY(brim_db_exec(store->db, level == 1 ? REBUILD_FROM_VALUES : REBUILD_FROM_LEVEL, args, 3,
                          NULL));
  }
  return BRIM_OK;
}

//------------------------------------------ the fence ------------------------------------------
// Checks that an attempt may still write, and ends it.

static void copy_text(char *out, size_t size, const char *text) {
  snprintf(out, size, "%s", text);
  brim_utf8_trim(out);
}

static brim_status read_held(brim_db_rows *rows, held_attempt *out) {
  int state, want, outcome;
  BRIM_TRY(brim_db_get_enum(rows, 0, BRIM_EXP_STATE_COUNT, &state));
  BRIM_TRY(brim_db_get_enum(rows, 1, BRIM_WANT_COUNT, &want));
  out->state = (brim_exp_state)state;
  out->want = (brim_exp_want)want;
  int64_t *numbers[] = {&out->fence,      &out->attempt,   &out->tries,       &out->tries_left,
                        &out->infra_left, &out->ckpt_step, &out->metric_step, &out->attempt_fence,
                        &out->seq,        &out->from_step, &out->exit_code};
  int column = 2;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    *numbers[i] = brim_db_get_int(rows, column++);
  }
  BRIM_TRY(brim_db_get_enum(rows, column++, BRIM_ATTEMPT_COUNT, &outcome));
  out->outcome = (brim_attempt_outcome)outcome;
  copy_text(out->failure, sizeof out->failure, brim_db_get_text(rows, column++));
  copy_text(out->metric_key, sizeof out->metric_key, brim_db_get_text(rows, column++));
  return BRIM_OK;
}

// Locks the experiment and reads it with one of its attempts. BRIM_ENOENT: there is no such attempt.
static brim_status lock_attempt(brim_store *store, const char *exp, int64_t attempt,
                                held_attempt *out) {
  *out = (held_attempt){.n = attempt};
  copy_text(out->exp, sizeof out->exp, exp);
  brim_db_rows rows;
  bool there = false;
  brim_status status = brim_db_query(
      store->db,
      "SELECT e.state,e.want,e.fence,e.attempt,e.tries,e.tries_left,e.infra_left,e.ckpt_step,"
      "e.metric_step,a.fence,a.seq,a.from_step,a.exit_code,a.outcome,a.class,e.metric_key"
      " FROM exp e JOIN attempt a ON a.exp=e.id AND a.n=?2 WHERE e.id=?1 @LOCK",
      BRIM_DB_ARGS(brim_db_text(exp), brim_db_int(attempt)), &rows);
  if (!status) status = brim_db_next(&rows, &there);
  if (!status && there) status = read_held(&rows, out);
  brim_db_done(&rows);
  if (!status && !there) {
    return brim_fail(BRIM_ENOENT, "experiment %s has no attempt %lld", exp, (long long)attempt);
  }
  return status;
}

static brim_status changed_one(const held_attempt *held, brim_status status, int64_t changed) {
  if (status || changed == 1) return status;
  return brim_fail(BRIM_EINTERNAL, "experiment %s changed while locked", held->exp);
}

// Resumes an attempt whose lease expired while its worker could not reach the store: nothing had
// failed.
static brim_status adopt_again(brim_store *store, const brim_store_ref *ref, int64_t now,
                               held_attempt *held) {
  int64_t changed = 0;
  // Gives back the infrastructure failure that the expiry cost, unless a retry by the user has refilled
  // them all.
  if (held->infra_left < store->options.infra_tries) held->infra_left++;
  brim_status status =
      brim_db_exec(store->db,
                   "UPDATE exp SET state=2,infra_left=?5,not_before=0,class='none',reason='',"
                   "worker=(SELECT worker FROM attempt WHERE exp=?1 AND n=?4),lease_until=?3"
                   " WHERE id=?1 AND state=0 AND fence=?2",
                   BRIM_DB_ARGS(brim_db_text(ref->exp), brim_db_int(ref->fence),
                                brim_db_int(now + store->options.lease_ms),
                                brim_db_int(ref->attempt), brim_db_int(held->infra_left)),
                   &changed);
  BRIM_TRY(changed_one(held, status, changed));
  BRIM_TRY(brim_db_exec(store->db,
                        "UPDATE attempt SET outcome=0,ended=0,class='none',message=''"
                        " WHERE exp=?1 AND n=?2",
                        BRIM_DB_ARGS(brim_db_text(ref->exp), brim_db_int(ref->attempt)), NULL));
  held->state = BRIM_EXP_RUNNING;
  held->outcome = BRIM_ATTEMPT_OPEN;
  brim_store_note(store, now, ref->exp, "adopted", "");
  return BRIM_OK;
}

// Locks an attempt that may write: the experiment's last one, and open. If its lease expired and no
// other attempt replaced it, resumes it. Otherwise BRIM_ESTATE.
static brim_status lock_live_attempt(brim_store *store, const brim_store_ref *ref, int64_t now,
                                     held_attempt *out) {
  BRIM_TRY(brim_store_check_id(ref->exp));
  BRIM_TRY(lock_attempt(store, ref->exp, ref->attempt, out));
  bool last = out->attempt == ref->attempt && out->fence == ref->fence;
  bool live = out->state == BRIM_EXP_LEASED || out->state == BRIM_EXP_RUNNING;
  if (last && live && out->outcome == BRIM_ATTEMPT_OPEN) return BRIM_OK;
  if (last && out->state == BRIM_EXP_QUEUED && out->outcome == BRIM_ATTEMPT_EXPIRED) {
    return adopt_again(store, ref, now, out);
  }
  return brim_fail(BRIM_ESTATE, "attempt %lld of experiment %s is stale: the experiment is %s",
                   (long long)ref->attempt, ref->exp, brim_tr(brim_exp_state_name(out->state)));
}

// Drops values of earlier attempts behind the step from which this attempt resumed, so that only its
// own are left there.
static brim_status drop_discarded(brim_store *store, const held_attempt *held) {
  int64_t dropped = 0;
  BRIM_TRY(brim_db_exec(
      store->db, "DELETE FROM metric WHERE exp=?1 AND attempt<?2 AND step>?3",
      BRIM_DB_ARGS(brim_db_text(held->exp), brim_db_int(held->n), brim_db_int(held->from_step)),
      &dropped));
  return dropped ? cut_levels(store, held->exp, held->from_step) : BRIM_OK;
}

// Ends the attempt and gives the experiment its next state (see rules above). *state: the new state.
static brim_status end_attempt(brim_store *store, const held_attempt *held,
                               const brim_store_result *result, int64_t now,
                               brim_exp_state *state) {
  bool others = false;
  if (result->outcome == BRIM_ATTEMPT_ERROR && is_lack(result->failure)) {
    BRIM_TRY(put_lack(store, held, now, &others));
  }
  const ending c = {result->outcome,  result->failure,  held->want, held->tries,
                    held->tries_left, held->infra_left, others};
  next_state next = next_state_of(&c, &store->options);
  bool ended = next.state == BRIM_EXP_DONE || next.state == BRIM_EXP_FAILED ||
               next.state == BRIM_EXP_CANCELLED;
  const char *reason = next.state == BRIM_EXP_DONE ? "" : result->message ? result->message : "";
  brim_str text;
  brim_str_init(&text);
  if (next.poison) {
    brim_str_printf(&text,
                    brim_tr("the machine failed %lld times without a new checkpoint in between; "
                            "last: %s"),
                    (long long)store->options.infra_tries + 1, reason);
    reason = text.data;
  }
  brim_status status = brim_str_status(&text);
  if (!status) {
    status = brim_db_exec(
        store->db,
        "UPDATE attempt SET outcome=?3,class=?4,exit_code=?5,message=?6,ended=?7"
        " WHERE exp=?1 AND n=?2",
        BRIM_DB_ARGS(brim_db_text(held->exp), brim_db_int(held->n), brim_db_int(result->outcome),
                     brim_db_text(brim_failure_name(result->failure)),
                     brim_db_int(result->exit_code),
                     brim_db_text(result->message ? result->message : ""), brim_db_int(now)),
        NULL);
  }
  int64_t changed = 1;
  if (!status) {
    status = brim_db_exec(
        store->db,
        "UPDATE exp SET state=?4,tries_left=?5,infra_left=?6,not_before=?7,class=?8,reason=?9,"
        "last_lines=?10,ended=?11,owed=?12,want=0,worker='',lease_until=0"
        " WHERE id=?1 AND state=?2 AND fence=?3",
        BRIM_DB_ARGS(brim_db_text(held->exp), brim_db_int(held->state), brim_db_int(held->fence),
                     brim_db_int(next.state), brim_db_int(next.tries_left),
                     brim_db_int(next.infra_left),
                     brim_db_int(next.wait_ms > 0 ? now + next.wait_ms : 0),
                     brim_db_text(brim_failure_name(result->failure)), brim_db_text(reason),
                     brim_db_text(result->last_lines ? result->last_lines : ""),
                     brim_db_int(ended ? now : 0), brim_db_text(result->owed ? result->owed : "")),
        &changed);
  }
  status = changed_one(held, status, changed);
  if (!status && next.state == BRIM_EXP_DONE) status = drop_discarded(store, held);
  brim_store_note(store, now, held->exp, next.kind, reason);
  brim_str_deinit(&text);
  *state = next.state;
  return status;
}

//------------------------------------------- attempt -------------------------------------------
// Writes of an attempt while it runs: start, beats, metrics, logs, checkpoints, findings and its end.

static brim_status time_and_lock(brim_store *store, const brim_store_ref *ref, int64_t *now,
                                 held_attempt *held) {
  BRIM_TRY(brim_store_time(store, now));
  return lock_live_attempt(store, ref, *now, held);
}

typedef struct starting {
  const brim_store_ref *ref;
  int64_t pid, from_step;
} starting;

static brim_status start(brim_store *store, void *ctx) {
  const starting *s = ctx;
  const brim_store_ref *ref = s->ref;
  held_attempt held;
  int64_t now;
  BRIM_TRY(time_and_lock(store, ref, &now, &held));
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
  held_attempt held;
  int64_t now;
  BRIM_TRY(time_and_lock(store, ref, &now, &held));
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

enum {
  METRIC_BATCH = 64,  // rows of one INSERT
  METRIC_COLUMNS = 5,
  LEVEL_BATCH = 512  // rows that one call of put_levels takes, since it compares all of their names
};

typedef struct logging {
  const brim_store_ref *ref;
  int64_t seq;
  const brim_store_metric *rows;
  size_t count;
} logging;

// True if a later row of the batch has the same key and step: one INSERT must not write a row twice.
static bool is_written_later(const brim_store_metric *rows, size_t i, size_t count) {
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
    if (is_written_later(rows, i, count)) continue;
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

// Sets the value that the experiment is shown with: the value at the latest step. A config does not
// always tell which metric a run records (the loss depends on the data's targets), so an alternative
// replaces a metric that has no value yet or a worse rank.
static brim_status put_shown(brim_store *store, const logging *l, const held_attempt *held) {
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

// Updates the levels once per key, over all steps of the key in these rows.
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
    BRIM_TRY(update_levels(store, l->ref->exp, rows[at].key, first, last));
  }
  return BRIM_OK;
}

static brim_status log_metrics(brim_store *store, void *ctx) {
  const logging *l = ctx;
  held_attempt held;
  int64_t now;
  BRIM_TRY(time_and_lock(store, l->ref, &now, &held));
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
  held_attempt held;
  int64_t now;
  BRIM_TRY(time_and_lock(store, n->ref, &now, &held));
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
  held_attempt held;
  int64_t now;
  BRIM_TRY(time_and_lock(store, n->ref, &now, &held));
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

// True if the attempt has ended with this result already, because the reply of the first call was lost.
static bool is_repeated(const finishing *f, const held_attempt *held) {
  return held->attempt_fence == f->ref->fence && held->outcome == f->result->outcome &&
         held->exit_code == f->result->exit_code &&
         strcmp(held->failure, brim_failure_name(f->result->failure)) == 0;
}

static brim_status finish(brim_store *store, void *ctx) {
  finishing *f = ctx;
  held_attempt held;
  int64_t now;
  BRIM_TRY(brim_store_time(store, &now));
  BRIM_TRY(lock_attempt(store, f->ref->exp, f->ref->attempt, &held));
  if (is_repeated(f, &held)) {
    f->state = held.state;
    return BRIM_OK;
  }
  BRIM_TRY(lock_live_attempt(store, f->ref, now, &held));
  return end_attempt(store, &held, f->result, now, &f->state);
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

//--------------------------------------- the end of leases ---------------------------------------

enum { REAP_BATCH = 64 };

typedef struct reaping {
  char exps[REAP_BATCH][BRIM_EXP_ID];
  int64_t attempts[REAP_BATCH];
  int count;
} reaping;

// Lists attempts with expired leases. Skips rows that another process has locked, since it renews or
// reaps them.
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
    held_attempt held;
    brim_exp_state state;
    BRIM_TRY(lock_attempt(store, r->exps[i], r->attempts[i], &held));
    BRIM_TRY(end_attempt(store, &held, &lost, now, &state));
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

//---------------------------------------- files and findings ----------------------------------------

static brim_status compare_last(const brim_store_ref *ref, int64_t attempt, int64_t fence) {
  if (attempt == ref->attempt && fence == ref->fence) return BRIM_OK;
  return brim_fail(BRIM_ESTATE, "attempt %lld of experiment %s is stale: attempt %lld replaced it",
                   (long long)ref->attempt, ref->exp, (long long)attempt);
}

static brim_status read_last(brim_store *store, void *ctx) {
  const brim_store_ref *ref = ctx;
  brim_db_rows r;
  bool there = false;
  int64_t attempt = 0, fence = 0;
  brim_status status = brim_db_query(store->db, "SELECT attempt,fence FROM exp WHERE id=?1",
                                     BRIM_DB_ARGS(brim_db_text(ref->exp)), &r);
  if (!status) status = brim_db_next(&r, &there);
  if (!status && there) {
    attempt = brim_db_get_int(&r, 0);
    fence = brim_db_get_int(&r, 1);
  }
  brim_db_done(&r);
  BRIM_TRY(status);
  if (!there) return brim_fail(BRIM_ENOENT, "the store has no experiment %s", ref->exp);
  return compare_last(ref, attempt, fence);
}

brim_status brim_store_check_last(brim_store *store, const brim_store_ref *ref) {
  BRIM_TRY(brim_store_check_id(ref->exp));
  return brim_store_read(store, read_last, (void *)ref);
}

typedef struct putting {
  const brim_store_ref *ref;
  const brim_store_file *file;
  const char *findings;
} putting;

// Removes the name of a file that has arrived from exp.owed.
static brim_status take_off_owed(brim_store *store, const char *exp, const char *name) {
  brim_db_rows r;
  bool there = false;
  brim_str left;
  brim_str_init(&left);
  brim_status status = brim_db_query(store->db, "SELECT owed FROM exp WHERE id=?1",
                                     BRIM_DB_ARGS(brim_db_text(exp)), &r);
  if (!status) status = brim_db_next(&r, &there);
  const char *owed = !status && there ? brim_db_get_text(&r, 0) : "";
  bool changes = false;
  while (*owed) {
    size_t n = strcspn(owed, ",");
    bool same = n == strlen(name) && strncmp(owed, name, n) == 0;
    changes = changes || same;
    if (!same && left.len > 0) brim_str_append_char(&left, ',');
    if (!same) brim_str_append_n(&left, owed, n);
    owed += n + (owed[n] == ',');
  }
  brim_db_done(&r);
  if (!status) status = brim_str_status(&left);
  if (!status && changes) {
    status = brim_db_exec(store->db, "UPDATE exp SET owed=?2 WHERE id=?1",
                          BRIM_DB_ARGS(brim_db_text(exp), brim_db_text(left.data)), NULL);
  }
  brim_str_deinit(&left);
  return status;
}

bool brim_store_is_sha256(const char *text) {
  return text && strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64;
}

static brim_status put_file(brim_store *store, void *ctx) {
  const putting *p = ctx;
  held_attempt held;
  int64_t now;
  BRIM_TRY(brim_store_time(store, &now));
  BRIM_TRY(lock_attempt(store, p->ref->exp, p->ref->attempt, &held));
  BRIM_TRY(compare_last(p->ref, held.attempt, held.fence));
  BRIM_TRY(take_off_owed(store, p->ref->exp, p->file->name));
  return brim_db_exec(
      store->db,
      "INSERT INTO file(exp,name,size,sha256,attempt,step,t) VALUES (?1,?2,?3,?4,?5,?6,?7)"
      " ON CONFLICT(exp,name) DO UPDATE SET size=excluded.size,sha256=excluded.sha256,"
      "attempt=excluded.attempt,step=excluded.step,t=excluded.t"
      " WHERE file.attempt<excluded.attempt OR file.step<=excluded.step",
      BRIM_DB_ARGS(brim_db_text(p->ref->exp), brim_db_text(p->file->name),
                   brim_db_int(p->file->size), brim_db_text(p->file->sha256),
                   brim_db_int(p->ref->attempt), brim_db_int(p->file->step), brim_db_int(now)),
      NULL);
}

brim_status brim_store_put_file(brim_store *store, const brim_store_ref *ref,
                                const brim_store_file *file) {
  BRIM_TRY(brim_store_check_id(ref->exp));
  if (!brim_store_is_name(file->name) || !brim_store_is_sha256(file->sha256) || file->size < 0) {
    return brim_fail(BRIM_EINVAL, "a file needs a name, a size and a hash");
  }
  putting p = {ref, file, NULL};
  return brim_store_write(store, put_file, &p);
}

static brim_status put_findings(brim_store *store, void *ctx) {
  const putting *p = ctx;
  held_attempt held;
  int64_t now;
  BRIM_TRY(brim_store_time(store, &now));
  BRIM_TRY(lock_live_attempt(store, p->ref, now, &held));
  return brim_db_exec(store->db, "UPDATE exp SET findings=?3 WHERE id=?1 AND fence=?2",
                      BRIM_DB_ARGS(brim_db_text(p->ref->exp), brim_db_int(p->ref->fence),
                                   brim_db_text(p->findings)),
                      NULL);
}

brim_status brim_store_findings(brim_store *store, const brim_store_ref *ref, const char *text) {
  BRIM_TRY(brim_store_check_id(ref->exp));
  putting p = {ref, NULL, text};
  return brim_store_write(store, put_findings, &p);
}
