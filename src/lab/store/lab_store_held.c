// An attempt that writes: is it still the one that may? And how it ends.
#include <stdio.h>
#include <string.h>

#include "base/base_msg.h"
#include "base/base_status.h"
#include "lab/store/lab_store_int.h"

static void copy(char *out, size_t size, const char *text) {
  snprintf(out, size, "%s", text);
  brim_utf8_trim(out);
}

static brim_status read_held(brim_db_rows *rows, brim_store_held *out) {
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
  copy(out->failure, sizeof out->failure, brim_db_get_text(rows, column++));
  copy(out->metric_key, sizeof out->metric_key, brim_db_get_text(rows, column++));
  return BRIM_OK;
}

brim_status brim_store_hold(brim_store *store, const char *exp, int64_t attempt,
                            brim_store_held *out) {
  *out = (brim_store_held){.n = attempt};
  copy(out->exp, sizeof out->exp, exp);
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

static brim_status changed_one(brim_store_held *held, brim_status status, int64_t changed) {
  if (status || changed == 1) return status;
  return brim_fail(BRIM_EINTERNAL, "experiment %s changed while locked", held->exp);
}

// The lease ended while the attempt was out of reach; what was taken for a failure was none.
static brim_status adopt_again(brim_store *store, const brim_store_ref *ref, int64_t now,
                               brim_store_held *held) {
  int64_t changed = 0;
  // A retry by hand in between has given all of them back already.
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

brim_status brim_store_hold_live(brim_store *store, const brim_store_ref *ref, int64_t now,
                                 brim_store_held *out) {
  BRIM_TRY(brim_store_check_id(ref->exp));
  BRIM_TRY(brim_store_hold(store, ref->exp, ref->attempt, out));
  bool last = out->attempt == ref->attempt && out->fence == ref->fence;
  bool live = out->state == BRIM_EXP_LEASED || out->state == BRIM_EXP_RUNNING;
  if (last && live && out->outcome == BRIM_ATTEMPT_OPEN) return BRIM_OK;
  if (last && out->state == BRIM_EXP_QUEUED && out->outcome == BRIM_ATTEMPT_EXPIRED) {
    return adopt_again(store, ref, now, out);
  }
  return brim_fail(BRIM_ESTATE, "attempt %lld of experiment %s is stale: the experiment is %s",
                   (long long)ref->attempt, ref->exp, brim_tr(brim_exp_state_name(out->state)));
}

// Steps that earlier attempts logged and this one did not: it resumed before them and ended early.
static brim_status drop_discarded(brim_store *store, const brim_store_held *held) {
  int64_t dropped = 0;
  BRIM_TRY(brim_db_exec(
      store->db, "DELETE FROM metric WHERE exp=?1 AND attempt<?2 AND step>?3",
      BRIM_DB_ARGS(brim_db_text(held->exp), brim_db_int(held->n), brim_db_int(held->from_step)),
      &dropped));
  return dropped ? brim_store_cut_levels(store, held->exp, held->from_step) : BRIM_OK;
}

static brim_status end_attempt(brim_store *store, const brim_store_held *held,
                               const brim_store_result *r, int64_t now) {
  return brim_db_exec(
      store->db,
      "UPDATE attempt SET outcome=?3,class=?4,exit_code=?5,message=?6,ended=?7"
      " WHERE exp=?1 AND n=?2",
      BRIM_DB_ARGS(brim_db_text(held->exp), brim_db_int(held->n), brim_db_int(r->outcome),
                   brim_db_text(brim_failure_name(r->failure)), brim_db_int(r->exit_code),
                   brim_db_text(r->message ? r->message : ""), brim_db_int(now)),
      NULL);
}

brim_status brim_store_end(brim_store *store, const brim_store_held *held,
                           const brim_store_result *result, int64_t now, brim_exp_state *state) {
  bool others = false;
  if (result->outcome == BRIM_ATTEMPT_ERROR && brim_store_is_lack(result->failure)) {
    BRIM_TRY(brim_store_put_lack(store, held, now, &others));
  }
  const brim_store_case c = {result->outcome,  result->failure,  held->want, held->tries,
                             held->tries_left, held->infra_left, others};
  brim_store_next next = brim_store_after(&c, &store->options);
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
  if (!status) status = end_attempt(store, held, result, now);
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
  if (!status && changed != 1) {
    status = brim_fail(BRIM_EINTERNAL, "experiment %s changed while locked", held->exp);
  }
  if (!status && next.state == BRIM_EXP_DONE) status = drop_discarded(store, held);
  brim_store_note(store, now, held->exp, next.kind, reason);
  brim_str_deinit(&text);
  *state = next.state;
  return status;
}
