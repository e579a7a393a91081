// Claiming: the first queued experiment that fits becomes a new attempt, with a fence of its own.
#include <stdio.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "lab/store/lab_store_int.h"

typedef struct claiming {
  const brim_store_request *request;
  brim_store_claimed *out;
  int64_t from_step;
} claiming;

// The attempt that this claim_id got before. An attempt that is no longer its experiment's last
// has been replaced; the caller learns that by its first write.
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

// Locks the experiment to take; ref.exp stays empty where there is none.
static brim_status choose(brim_store *store, claiming *c, int64_t now) {
  const brim_store_request *r = c->request;
  brim_str sql;
  brim_str_init(&sql);
  brim_str_append(&sql,
                  "SELECT e.id,e.fence,e.attempt,e.ckpt_step FROM exp e WHERE e.state=0"
                  " AND e.not_before<=?1 AND e.gpus<=?2 AND (?3<0 OR e.need_bytes<=?3)");
  brim_str_append(&sql, brim_store_not_lacking());
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
  // The same claim arrived twice at once: the other one won, and the next round finds it.
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
