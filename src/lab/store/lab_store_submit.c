// Submitting: a grid's points enter the queue in one transaction; those that are there stay.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "lab/store/lab_store_int.h"

// Rows of one INSERT: few round trips to a server, few parameters for a statement.
enum { BATCH = 25, EXP_COLUMNS = 16, MEMBER_COLUMNS = 3 };

// The other columns have defaults: a new experiment is queued.
static const char EXP_HEAD[] =
    "exp(id,grid,idx,label,config,priority,gpus,need_bytes,tags,tries,tries_left,infra_left,"
    "steps,epochs,metric_key,created)";

typedef struct submission {
  const brim_store_grid *grid;
  const brim_store_point **points;  // by id: grids that overlap lock their rows in one order
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

// Points that are there already learn their memory where it was not known.
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
  return order ? order : (p > q) - (p < q);  // of equal ones the first counts
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
