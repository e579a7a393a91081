// What a pool keeps beside experiments: tokens, files that workers sent, findings.
#include <string.h>

#include "base/base_status.h"
#include "lab/store/lab_store_int.h"

//---------------------------------- tokens ----------------------------------

static bool is_sha256(const char *text) {
  return text && strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64;
}

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
      !is_sha256(token->sha256)) {
    return brim_fail(BRIM_EINVAL, "a token needs a name, a role and a hash");
  }
  return brim_store_write(store, add_token, (void *)token);
}

typedef struct token_change {
  const char *id, *sha256;  // sha256 NULL: it ends
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
  if (!is_sha256(sha256)) return brim_fail(BRIM_EINVAL, "a token needs a hash");
  token_change c = {id, sha256};
  return brim_store_write(store, change_token, &c);
}

brim_status brim_store_token_end(brim_store *store, const char *id) {
  token_change c = {id, NULL};
  return brim_store_write(store, change_token, &c);
}

typedef struct token_reading {
  brim_store_token_fn fn;
  void *ctx;
  brim_status status;
} token_reading;

static brim_status read_tokens(brim_store *store, void *ctx) {
  token_reading *t = ctx;
  brim_db_rows r;
  bool there = true;
  brim_status status = brim_db_query(
      store->db, "SELECT id,role,sha256,created FROM token WHERE ended=0 ORDER BY id @BYTES",
      BRIM_DB_NO_ARGS, &r);
  while (!status && !t->status) {
    status = brim_db_next(&r, &there);
    if (status || !there) break;
    const brim_store_token token = {brim_db_get_text(&r, 0), brim_db_get_text(&r, 1),
                                    brim_db_get_text(&r, 2), brim_db_get_int(&r, 3)};
    t->status = t->fn(t->ctx, &token);
  }
  brim_db_done(&r);
  return status;
}

brim_status brim_store_tokens(brim_store *store, brim_store_token_fn fn, void *ctx) {
  token_reading t = {fn, ctx, BRIM_OK};
  BRIM_TRY(brim_store_read(store, read_tokens, &t));
  return t.status;
}

static brim_status look_for_token(brim_store *store, void *ctx) {
  brim_db_rows r;
  brim_status status =
      brim_db_query(store->db, "SELECT id FROM token LIMIT 1", BRIM_DB_NO_ARGS, &r);
  if (!status) status = brim_db_next(&r, (bool *)ctx);
  brim_db_done(&r);
  return status;
}

brim_status brim_store_had_token(brim_store *store, bool *out) {
  *out = false;
  return brim_store_read(store, look_for_token, out);
}

//---------------------------------- files and findings ----------------------------------

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

// The file is here: one name less in exp.owed.
static brim_status settle_owed(brim_store *store, const char *exp, const char *name) {
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

static brim_status put_file(brim_store *store, void *ctx) {
  const putting *p = ctx;
  brim_store_held held;
  int64_t now;
  BRIM_TRY(brim_store_time(store, &now));
  BRIM_TRY(brim_store_hold(store, p->ref->exp, p->ref->attempt, &held));
  BRIM_TRY(compare_last(p->ref, held.attempt, held.fence));
  BRIM_TRY(settle_owed(store, p->ref->exp, p->file->name));
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
  if (!brim_store_is_name(file->name) || !is_sha256(file->sha256) || file->size < 0) {
    return brim_fail(BRIM_EINVAL, "a file needs a name, a size and a hash");
  }
  putting p = {ref, file, NULL};
  return brim_store_write(store, put_file, &p);
}

typedef struct file_reading {
  const char *exp;
  brim_store_file_fn fn;
  void *ctx;
  brim_status status;
} file_reading;

static brim_status read_files(brim_store *store, void *ctx) {
  file_reading *f = ctx;
  brim_db_rows r;
  bool there = true;
  brim_status status = brim_db_query(store->db,
                                     "SELECT name,sha256,size,attempt,step,t FROM file WHERE exp=?1"
                                     " ORDER BY name @BYTES",
                                     BRIM_DB_ARGS(brim_db_text(f->exp)), &r);
  while (!status && !f->status) {
    status = brim_db_next(&r, &there);
    if (status || !there) break;
    const brim_store_file file = {brim_db_get_text(&r, 0), brim_db_get_text(&r, 1),
                                  brim_db_get_int(&r, 2),  brim_db_get_int(&r, 3),
                                  brim_db_get_int(&r, 4),  brim_db_get_int(&r, 5)};
    f->status = f->fn(f->ctx, &file);
  }
  brim_db_done(&r);
  return status;
}

brim_status brim_store_files(brim_store *store, const char *exp, brim_store_file_fn fn, void *ctx) {
  BRIM_TRY(brim_store_check_id(exp));
  file_reading f = {exp, fn, ctx, BRIM_OK};
  BRIM_TRY(brim_store_read(store, read_files, &f));
  return f.status;
}

typedef struct expiring {
  const char *exp;
  const brim_store_expiry *when;
  brim_store_expired what;
} expiring;

// Locks the experiment. What goes, but for whether it has weights.
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

static brim_status put_findings(brim_store *store, void *ctx) {
  const putting *p = ctx;
  brim_store_held held;
  int64_t now;
  BRIM_TRY(brim_store_time(store, &now));
  BRIM_TRY(brim_store_hold_live(store, p->ref, now, &held));
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
