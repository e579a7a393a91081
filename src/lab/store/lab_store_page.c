// What a page asks about many experiments at once. Each call takes at most BRIM_STORE_SOME of them, so that
// a server can let other requests in between.
#include <stdio.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "lab/store/lab_store_int.h"

//---------------------------------- ids ----------------------------------

typedef struct id_reading {
  const char *grid;
  char (*ids)[BRIM_EXP_ID];
  size_t count, capacity;
} id_reading;

static brim_status add_id(id_reading *r, const char *id) {
  if (r->count == r->capacity) {
    size_t capacity = r->capacity ? 2 * r->capacity : 1024;
    void *grown = brim_realloc(r->ids, capacity * sizeof *r->ids);
    if (!grown) return brim_fail(BRIM_ENOMEM, "out of memory while reading experiments");
    r->ids = grown;
    r->capacity = capacity;
  }
  snprintf(r->ids[r->count++], BRIM_EXP_ID, "%s", id);
  return BRIM_OK;
}

static brim_status read_ids(brim_store *store, void *ctx) {
  id_reading *r = ctx;
  brim_db_rows rows;
  bool there = true;
  r->count = 0;
  brim_status status =
      r->grid ? brim_db_query(store->db, "SELECT exp FROM member WHERE grid=?1 ORDER BY idx,exp",
                              BRIM_DB_ARGS(brim_db_text(r->grid)), &rows)
              : brim_db_query(store->db, "SELECT id FROM exp ORDER BY created,idx,id",
                              BRIM_DB_NO_ARGS, &rows);
  while (!status) {
    status = brim_db_next(&rows, &there);
    if (status || !there) break;
    status = add_id(r, brim_db_get_text(&rows, 0));
  }
  brim_db_done(&rows);
  return status;
}

static brim_status read_queue(brim_store *store, void *ctx) {
  id_reading *r = ctx;
  brim_db_rows rows;
  bool there = true;
  int64_t now;
  r->count = 0;
  BRIM_TRY(brim_store_time(store, &now));
  brim_status status = brim_db_query(store->db,
                                     "SELECT id FROM exp WHERE state=0 AND not_before<=?1"
                                     " ORDER BY priority DESC,created,idx,id",
                                     BRIM_DB_ARGS(brim_db_int(now)), &rows);
  while (!status) {
    status = brim_db_next(&rows, &there);
    if (status || !there) break;
    status = add_id(r, brim_db_get_text(&rows, 0));
  }
  brim_db_done(&rows);
  return status;
}

brim_status brim_store_queue(brim_store *store, char (**out)[BRIM_EXP_ID], size_t *count) {
  id_reading r = {0};
  brim_status status = brim_store_read(store, read_queue, &r);
  if (status) brim_free(r.ids);
  *out = status ? NULL : r.ids;
  *count = status ? 0 : r.count;
  return status;
}

brim_status brim_store_ids(brim_store *store, const char *grid, char (**out)[BRIM_EXP_ID],
                           size_t *count) {
  id_reading r = {.grid = grid};
  brim_status status = brim_store_read(store, read_ids, &r);
  if (status) brim_free(r.ids);
  *out = status ? NULL : r.ids;
  *count = status ? 0 : r.count;
  return status;
}

//---------------------------------- some of them ----------------------------------

typedef brim_status (*row_fn)(brim_db_rows *rows, void *ctx);

// `before` (?1,...) `after`: a query over some ids; further arguments are ?N+1, ?N+2.
typedef struct some {
  const char *before, *after;
  const brim_store_some *of;
  const char *more[2];
  row_fn each;
  void *ctx;
  bool called;  // a callback has seen rows: they must not come twice
  brim_status stopped;
} some;

static brim_status read_some(brim_store *store, void *ctx) {
  some *s = ctx;
  brim_db_arg args[BRIM_STORE_SOME + 2];
  brim_db_rows rows;
  bool there = true;
  size_t n = 0;
  brim_str sql;
  if (s->called) {
    store->db->again = false;
    return brim_fail(BRIM_EIO, "the connection to the store was lost while reading");
  }
  brim_str_init(&sql);
  // The further ones come first: their numbers do not depend on how many ids there are.
  for (int i = 0; i < 2 && s->more[i]; i++) args[n++] = brim_db_text(s->more[i]);
  brim_str_append(&sql, s->before);
  for (size_t i = 0; i < s->of->count; i++) {
    args[n++] = brim_db_text(s->of->ids[i]);
    brim_str_printf(&sql, "%s?%zu", i ? "," : "(", n);
  }
  brim_str_append(&sql, ")");
  brim_str_append(&sql, s->after);
  brim_status status = brim_str_status(&sql);
  if (!status) status = brim_db_query(store->db, sql.data, args, n, &rows);
  brim_str_deinit(&sql);
  if (status) return status;
  while (!status && !s->stopped) {
    status = brim_db_next(&rows, &there);
    if (status || !there) break;
    s->called = true;
    s->stopped = s->each(&rows, s->ctx);
  }
  brim_db_done(&rows);
  return status;
}

static brim_status read_each(brim_store *store, some s) {
  if (s.of->count == 0) return BRIM_OK;
  if (s.of->count > BRIM_STORE_SOME) {
    return brim_fail(BRIM_EINVAL, "at most %d experiments can be read at once", BRIM_STORE_SOME);
  }
  brim_status status = brim_store_read(store, read_some, &s);
  return status ? status : s.stopped;
}

static brim_status count_row(brim_db_rows *rows, void *ctx) {
  *(int64_t *)ctx = brim_db_get_int(rows, 0);
  return BRIM_OK;
}

brim_status brim_store_known(brim_store *store, const brim_store_some *of, int64_t *out) {
  *out = 0;
  return read_each(store, (some){.before = "SELECT COUNT(*) FROM exp WHERE id IN ",
                                 .after = "",
                                 .of = of,
                                 .each = count_row,
                                 .ctx = out});
}

typedef struct key_reading {
  brim_store_key_fn fn;
  void *ctx;
} key_reading;

static brim_status key_row(brim_db_rows *rows, void *ctx) {
  key_reading *k = ctx;
  return k->fn(k->ctx, brim_db_get_text(rows, 0), brim_db_get_int(rows, 1));
}

// From the levels, which have a row for each 64 values.
brim_status brim_store_keys(brim_store *store, const brim_store_some *of, brim_store_key_fn fn,
                            void *ctx) {
  key_reading k = {fn, ctx};
  return read_each(
      store,
      (some){.before = "SELECT key,COUNT(*) FROM (SELECT DISTINCT exp,key FROM level WHERE exp IN ",
             .after = ") AS k GROUP BY key ORDER BY key @BYTES",
             .of = of,
             .each = key_row,
             .ctx = &k});
}

typedef struct outcome_reading {
  brim_store_outcome_fn fn;
  void *ctx;
} outcome_reading;

static brim_status outcome_row(brim_db_rows *rows, void *ctx) {
  outcome_reading *r = ctx;
  int state;
  BRIM_TRY(brim_db_get_enum(rows, 3, BRIM_EXP_STATE_COUNT, &state));
  const brim_store_outcome row = {.id = brim_db_get_text(rows, 0),
                                  .label = brim_db_get_text(rows, 1),
                                  .head = brim_db_get_text(rows, 2),
                                  .state = (brim_exp_state)state,
                                  .value = brim_db_get_real(rows, 4)};
  return r->fn(r->ctx, &row);
}

brim_status brim_store_outcomes(brim_store *store, const brim_store_some *of, const char *key,
                                brim_store_take take, brim_store_outcome_fn fn, void *ctx) {
  static const char head[] = "SELECT e.id,e.label,SUBSTR(e.config,1,128),e.state,";
  static const char *const values[BRIM_STORE_TAKE_COUNT] = {
      [BRIM_STORE_LAST] =
          "(SELECT m.value FROM metric m WHERE m.exp=e.id AND m.key=?1"
          " ORDER BY m.step DESC LIMIT 1)",
      [BRIM_STORE_LEAST] =
          "(SELECT MIN(l.lo) FROM level l WHERE l.exp=e.id AND l.key=?1"
          " AND l.level=3)",
      [BRIM_STORE_GREATEST] =
          "(SELECT MAX(l.hi) FROM level l WHERE l.exp=e.id AND l.key=?1"
          " AND l.level=3)"};
  outcome_reading r = {fn, ctx};
  char sql[512];
  if ((unsigned)take >= BRIM_STORE_TAKE_COUNT) {
    return brim_fail(BRIM_EINVAL, "a result is the last, the least or the greatest value");
  }
  snprintf(sql, sizeof sql, "%s%s FROM exp e WHERE e.id IN ", head,
           key ? values[take] : "e.metric");
  return read_each(store, (some){.before = sql,
                                 .after = " ORDER BY e.created,e.idx,e.id",
                                 .of = of,
                                 .more = {key},
                                 .each = outcome_row,
                                 .ctx = &r});
}

static brim_status read_bytes(brim_store *store, void *ctx) {
  const bool sqlite = strcmp(brim_store_kind(store), "sqlite") == 0;
  return brim_db_get_one(store->db,
                         sqlite ? "SELECT page_count*page_size FROM pragma_page_count(),"
                                  "pragma_page_size()"
                                : "SELECT pg_database_size(current_database())",
                         BRIM_DB_NO_ARGS, ctx);
}

brim_status brim_store_bytes(brim_store *store, int64_t *out) {
  *out = 0;
  return brim_store_read(store, read_bytes, out);
}
