// Experiments as rows and as structs, and the checks of names that enter the store.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_msg.h"
#include "base/base_status.h"
#include "lab/store/lab_store_int.h"

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
  if (got < sizeof bytes) {  // a kernel without it: what no other process has now
    const int64_t now[2] = {brim_clock_now().ns, getpid()};
    memcpy(bytes, now, sizeof bytes);
  }
  for (size_t i = 0; i < sizeof bytes; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

// In the order of BRIM_STORE_EXP_PLAIN.
brim_status brim_store_read_exp(brim_db_rows *rows, brim_store_exp *out) {
  int c = 0, state, want;
  *out = (brim_store_exp){0};
  const char **texts[] = {&out->id,     &out->grid,       &out->label,   &out->tags,
                          &out->worker, &out->metric_key, &out->failure, &out->reason};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) *texts[i] = brim_db_get_text(rows, c++);
  BRIM_TRY(brim_store_check_id(out->id));  // it becomes a path
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
    status = brim_store_read_exp(&rows, &row);
    if (!status) status = brim_store_exp_copy(&row, out);
  }
  brim_db_done(&rows);
  if (!status && !there) return brim_fail(BRIM_ENOENT, "the store has no experiment %s", exp);
  return status;
}
