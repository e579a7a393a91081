// Curves in coarse steps. A chart of millions of values reads a few thousand rows: each level has the
// least, the greatest and the sum of 64 buckets of the level below, the first of 64 steps.
//
// A level's buckets are made again from the one below whenever a value in them is written: a value may
// replace another one of its step, and what is gone must not stay in a bound.
#include <math.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "lab/store/lab_store_int.h"

enum { FACTOR = 64, LEVELS = 3, DETAIL = 32, FEW = 4 };

#define UPSERT                                                                                     \
  " ON CONFLICT(exp,key,level,bucket) DO UPDATE SET n=excluded.n,bad=excluded.bad,lo=excluded.lo," \
  "hi=excluded.hi,sum=excluded.sum"

#define OF_VALUES "COUNT(value),COUNT(*)-COUNT(value),MIN(value),MAX(value),SUM(value) FROM metric"
#define OF_LEVEL "SUM(n),SUM(bad),MIN(lo),MAX(hi),SUM(sum) FROM level"

// From `metric`, and from the level below. Parameters: exp, key, the first and the last bucket below, the
// level. ONE_ make the bucket ?6 alone, which needs no sorting: most batches lie in one bucket or two.
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

// The buckets from `first` to `last` of a level.
static brim_status put_level(brim_store *store, const brim_db_arg names[2], int level,
                             int64_t first, int64_t last) {
  if (last - first >= FEW) {
    const brim_db_arg args[] = {names[0], names[1], brim_db_int(first * FACTOR),
                                brim_db_int(last * FACTOR + FACTOR - 1), brim_db_int(level)};
    return brim_db_exec(store->db, level == 1 ? MANY_OF_VALUES : MANY_OF_LEVEL, args, 5, NULL);
  }
  for (int64_t bucket = first; bucket <= last; bucket++) {
    const brim_db_arg args[] = {names[0],
                                names[1],
                                brim_db_int(bucket * FACTOR),
                                brim_db_int(bucket * FACTOR + FACTOR - 1),
                                brim_db_int(level),
                                brim_db_int(bucket)};
    BRIM_TRY(brim_db_exec(store->db, level == 1 ? ONE_OF_VALUES : ONE_OF_LEVEL, args, 6, NULL));
  }
  return BRIM_OK;
}

brim_status brim_store_put_levels(brim_store *store, const char *exp, const char *key,
                                  int64_t first, int64_t last) {
  const brim_db_arg names[2] = {brim_db_text(exp), brim_db_text(key)};
  if (last < 0) return BRIM_OK;  // steps before the first are not drawn
  if (first < 0) first = 0;
  for (int level = 1; level <= LEVELS; level++) {
    first /= FACTOR;
    last /= FACTOR;
    BRIM_TRY(put_level(store, names, level, first, last));
  }
  return BRIM_OK;
}

// The buckets of a level from one on are made again, of all metrics. Parameters: exp, level, the bucket.
static const char DROP[] = "DELETE FROM level WHERE exp=?1 AND level=?2 AND bucket>=?3";
static const char AGAIN_FIRST[] = "INSERT INTO level SELECT exp,key,?2,step/64," OF_VALUES
                                  " WHERE exp=?1 AND step>=?3*64 GROUP BY exp,key,step/64";
static const char AGAIN_NEXT[] =
    "INSERT INTO level SELECT exp,key,?2,bucket/64," OF_LEVEL
    " WHERE exp=?1 AND level=?2-1 AND bucket>=?3*64 GROUP BY exp,key,bucket/64";

brim_status brim_store_cut_levels(brim_store *store, const char *exp, int64_t last) {
  int64_t bucket = last < 0 ? 0 : last;
  for (int level = 1; level <= LEVELS; level++) {
    bucket /= FACTOR;
    const brim_db_arg args[] = {brim_db_text(exp), brim_db_int(level), brim_db_int(bucket)};
    BRIM_TRY(brim_db_exec(store->db, DROP, args, 3, NULL));
    BRIM_TRY(brim_db_exec(store->db, level == 1 ? AGAIN_FIRST : AGAIN_NEXT, args, 3, NULL));
  }
  return BRIM_OK;
}

//---------------------------------- reading ----------------------------------

typedef struct curve {
  const char *exp, *key;
  const brim_store_range *range;
  brim_store_bucket_fn fn;
  void *ctx;
  int level;             // 0: the values themselves
  int64_t width;         // steps of a bucket of the level
  int64_t rows, merged;  // of the level; so many become one
  brim_store_bucket open;
  int64_t in_open;
  brim_status status;  // of fn
} curve;

static brim_status flush(curve *c) {
  if (c->in_open == 0) return BRIM_OK;
  if (c->open.n == 0) c->open.mean = c->open.lo = c->open.hi = (double)NAN;
  if (c->open.n > 0) c->open.mean /= (double)c->open.n;  // was the sum
  c->in_open = 0;
  return c->fn(c->ctx, &c->open);
}

static brim_status take(curve *c, const brim_store_bucket *b) {
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
  return ++c->in_open >= c->merged ? flush(c) : BRIM_OK;
}

// The number of rows, and of values in them: of the first level.
static brim_status count(brim_store *store, curve *c, int level, int64_t *rows, int64_t *values) {
  brim_db_rows r;
  bool there = false;
  int64_t width = 1;
  for (int i = 0; i < level; i++) width *= FACTOR;
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

// The finest level that has at most DETAIL rows for each point that is asked for.
static brim_status choose(brim_store *store, curve *c) {
  int64_t rows = 0, values = 0, most = c->range->points * DETAIL;
  for (c->level = 1, c->width = FACTOR;; c->level++, c->width *= FACTOR) {
    BRIM_TRY(count(store, c, c->level, &rows, &values));
    if (c->level == 1 && values <= most) {
      c->level = 0;
      c->width = 1;
      rows = values;
    }
    if (c->level == 0 || rows <= most || c->level == LEVELS) break;
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
  out->mean = brim_db_get_real(r, 5);  // the sum, until it is handed out
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
  BRIM_TRY(choose(store, c));
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
    c->status = take(c, &b);
  }
  brim_db_done(&r);
  if (!status && !c->status) c->status = flush(c);
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

// From the coarsest level down to the value: in each, the bucket that has it among those of the bucket above.
// Of equal ones the first.
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
  for (int level = LEVELS; level >= 0; level--) {
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
    first *= FACTOR;
    last = first + FACTOR - 1;
  }
  return BRIM_OK;
}

brim_status brim_store_best(brim_store *store, const char *exp, const char *key, bool lower,
                            brim_store_best_value *out) {
  BRIM_TRY(brim_store_check_id(exp));
  search s = {.exp = exp, .key = key, .lower = lower, .out = out};
  return brim_store_read(store, find_best, &s);
}
