// Which workers lack what an experiment needs: its data, or something that their machine cannot do. Such
// an experiment goes to the others, as long as there are any.
#include "base/base_status.h"
#include "lab/store/lab_store_int.h"

// So many experiments of a grid, and a worker is asked for none of the grid any more.
enum { GRID_AFTER = 3 };

// A worker that is here, takes experiments and may have what experiment e needs. ?N: seen since.
#define HAS_IT(seen)                                              \
  "SELECT 1 FROM worker w WHERE w.drain=0 AND w.last_seen>=" seen \
  " AND NOT EXISTS (SELECT 1 FROM lacks l WHERE l.worker=w.id AND l.what IN (e.id,e.grid))"

bool brim_store_is_lack(brim_failure failure) {
  return failure == BRIM_FAILURE_DATA || failure == BRIM_FAILURE_UNSUPPORTED;
}

brim_status brim_store_put_lack(brim_store *store, const brim_store_held *held, int64_t now,
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

const char *brim_store_not_lacking(void) {
  return " AND (NOT EXISTS (SELECT 1 FROM lacks m WHERE m.worker=?4 AND m.what IN (e.id,e.grid))"
         " OR NOT EXISTS (" HAS_IT("?5") "))";
}

brim_status brim_store_drop_lacks(brim_store *store, const char *exp) {
  return brim_db_exec(store->db,
                      "DELETE FROM lacks WHERE what=?1 OR what=(SELECT grid FROM exp WHERE id=?1)",
                      BRIM_DB_ARGS(brim_db_text(exp)), NULL);
}
