// Moving a store to another place, of the other kind or of the same. All rows arrive in one
// transaction; then the old store says where they are. Interrupted between the two, the move is
// repeated: the new store has the old one's id, so only the second half is left.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_arena.h"
#include "base/base_status.h"
#include "lab/store/lab_store_int.h"

typedef struct moving {
  brim_store *from, *to;
  char id[BRIM_EXP_ID];  // of the old store
  brim_arena *arena;     // texts of a batch
} moving;

static brim_status script(brim_store *store, const char *sql) {
  return *sql ? store->db->driver->script(store->db, sql) : BRIM_OK;
}

typedef struct batch {
  const brim_store_table *table;
  char head[1024];
  brim_db_arg args[BRIM_DB_MAX_ARGS];
  size_t rows, most;
} batch;

static brim_status flush(moving *m, batch *b) {
  int64_t changed;
  brim_status status =
      brim_store_put_rows(m->to, b->head, "", b->table->count, b->args, b->rows, &changed);
  b->rows = 0;
  return status;
}

// Texts end with their row, so they are copied for the batch.
static brim_status add_row(moving *m, batch *b, brim_db_rows *rows) {
  for (int c = 0; c < b->table->count; c++) {
    brim_db_arg *a = &b->args[b->rows * (size_t)b->table->count + (size_t)c];
    brim_db_kind kind = b->table->columns[c].kind;
    if (brim_db_is_null(rows, c)) {
      *a = brim_db_null(kind);
    } else if (kind == BRIM_DB_INT) {
      *a = brim_db_int(brim_db_get_int(rows, c));
    } else if (kind == BRIM_DB_REAL) {
      *a = brim_db_real(brim_db_get_real(rows, c));
    } else {
      char *text = brim_arena_strdup(m->arena, brim_db_get_text(rows, c));
      if (!text) return brim_fail(BRIM_ENOMEM, "out of memory in the store");
      *a = brim_db_text(text);
    }
  }
  b->rows++;
  return BRIM_OK;
}

static brim_status copy_rows(moving *m, batch *b, const char *select) {
  brim_db_rows rows;
  bool there = false;
  brim_arena_mark mark = brim_arena_get_mark(m->arena);
  brim_status status = brim_db_stream(m->from->db, select, BRIM_DB_NO_ARGS, &rows);
  while (!status) {
    status = brim_db_next(&rows, &there);
    if (status || !there) break;
    status = add_row(m, b, &rows);
    if (!status && b->rows == b->most) {
      status = flush(m, b);
      brim_arena_release(m->arena, mark);
    }
  }
  if (!status) status = flush(m, b);
  brim_arena_release(m->arena, mark);
  brim_db_done(&rows);
  return status;
}

static brim_status copy_table(moving *m, const brim_store_table *table) {
  batch *b = brim_calloc(1, sizeof *b);
  if (!b) return brim_fail(BRIM_ENOMEM, "out of memory in the store");
  b->table = table;
  b->most = BRIM_DB_MAX_ARGS / (size_t)table->count;
  brim_str columns, select;
  brim_str_init(&columns);
  brim_str_init(&select);
  for (int c = 0; c < table->count; c++) {
    brim_str_printf(&columns, "%s%s", c ? "," : "", table->columns[c].name);
  }
  brim_str_printf(&select, "SELECT %s FROM %s ORDER BY %s", columns.data, table->name, table->key);
  snprintf(b->head, sizeof b->head, "%s(%s)", table->name, columns.data);
  brim_status status = brim_str_status(&columns);
  if (!status) status = brim_str_status(&select);
  if (!status) status = copy_rows(m, b, select.data);
  brim_str_deinit(&select);
  brim_str_deinit(&columns);
  brim_free(b);
  return status;
}

static brim_status is_empty(brim_store *store, bool *out) {
  int64_t rows = 0;
  BRIM_TRY(brim_db_get_one(store->db,
                           "SELECT (SELECT COUNT(*) FROM exp)+(SELECT COUNT(*) FROM grid)"
                           "+(SELECT COUNT(*) FROM event)",
                           BRIM_DB_NO_ARGS, &rows));
  *out = rows == 0;
  return BRIM_OK;
}

static brim_status read_id(brim_store *store, char out[BRIM_EXP_ID]) {
  char *id = NULL;
  BRIM_TRY(brim_store_get_meta(store, "id", &id));
  snprintf(out, BRIM_EXP_ID, "%s", id);
  brim_free(id);
  return BRIM_OK;
}

static brim_status copy_all(brim_store *to, void *ctx) {
  moving *m = ctx;
  char id[BRIM_EXP_ID];
  bool empty = false;
  BRIM_TRY(script(to, to->db->driver->long_transaction));
  BRIM_TRY(script(to, to->db->driver->lock_tables));
  BRIM_TRY(read_id(to, id));
  if (strcmp(id, m->id) == 0) return BRIM_OK;  // an interrupted move got this far
  BRIM_TRY(is_empty(to, &empty));
  if (!empty) {
    return brim_fail(BRIM_EEXIST, "cannot move the store to %s: there are experiments already",
                     to->place);
  }
  for (int i = 0; i < BRIM_STORE_TABLES; i++) BRIM_TRY(copy_table(m, &brim_store_tables[i]));
  int64_t now;
  BRIM_TRY(brim_store_time(to, &now));
  // Another clock, so leases get their whole time again.
  BRIM_TRY(brim_db_exec(to->db, "UPDATE exp SET lease_until=?1 WHERE state IN (1,2)",
                        BRIM_DB_ARGS(brim_db_int(now + to->options.lease_ms)), NULL));
  brim_store_note(to, now, "", "moved", m->from->place);
  return brim_store_set_meta(to, "id", m->id);
}

static brim_status check_idle(brim_store *from) {
  int64_t now, live = 0;
  BRIM_TRY(brim_store_time(from, &now));
  BRIM_TRY(brim_db_get_one(from->db,
                           "SELECT COUNT(*) FROM exp WHERE state IN (1,2) AND lease_until>?1",
                           BRIM_DB_ARGS(brim_db_int(now)), &live));
  if (live == 0) return BRIM_OK;
  return brim_fail(BRIM_ESTATE,
                   "cannot move the store %s: %lld of its experiments are running; stop the sweep "
                   "first",
                   from->place, (long long)live);
}

// The new place for people in another folder.
static brim_status set_moved(moving *m) {
  char *full = m->to->path ? realpath(m->to->path, NULL) : NULL;
  char *slash = full ? strrchr(full, '/') : NULL;
  if (slash) *slash = '\0';
  brim_status status = brim_store_set_meta(m->from, "moved_to", full ? full : m->to->place);
  free(full);
  return status;
}

static brim_status move_all(brim_store *from, void *ctx) {
  moving *m = ctx;
  BRIM_TRY(script(from, from->db->driver->long_transaction));
  BRIM_TRY(script(from, from->db->driver->lock_tables));
  BRIM_TRY(brim_store_check_moved(from));
  BRIM_TRY(check_idle(from));
  BRIM_TRY(read_id(from, m->id));
  brim_status status = brim_store_write(m->to, copy_all, m);
  if (status) {
    from->db->again = from->db->lost;
    return status;
  }
  return set_moved(m);
}

brim_status brim_store_move(brim_store *from, brim_store *to) {
  if (from == to) return brim_fail(BRIM_EINVAL, "cannot move a store to itself");
  moving m = {.from = from, .to = to};
  BRIM_TRY(brim_arena_create(256 * 1024, &m.arena));
  brim_status status = brim_store_write(from, move_all, &m);
  brim_arena_destroy(m.arena);
  return status;
}
