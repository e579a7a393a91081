// How long files of experiments stay on the server. Once an hour every folder is looked at, some with each
// call, and each experiment under a lock of its own: first the store forgets the files, then the bytes go.
// What a crash leaves in between, the next round finds.
#include "base/base_alloc.h"
#include "base/base_clock.h"
#include "base/base_log.h"
#include "base/base_status.h"
#include "lab/pool/lab_pool_int.h"

enum { MINUTE_MS = 60000, HOUR_MS = 3600000, DAY_MS = 86400000, SOME = 200, SLICE_MS = 200 };

void brim_pool_keep_deinit(brim_pool_keep *keep) {
  brim_free(keep->ids);
  *keep = (brim_pool_keep){0};
}

// Late files of an attempt that ended have an hour to come.
static brim_store_expiry expiry_at(const brim_lab_pool_options *o, int64_t now_ms) {
  return (brim_store_expiry){.before = o->keep_days > 0 ? now_ms - o->keep_days * DAY_MS : 0,
                             .done_before = o->drop_checkpoints ? now_ms - HOUR_MS : 0};
}

static brim_status remove_old(brim_lab_pool *pool, const char *exp, const brim_store_expiry *when) {
  brim_store_expired what = BRIM_STORE_EXPIRED_NONE;
  brim_pool_freed *freed = &pool->keep.freed;
  brim_pool_disk_remove_away(pool->disk, exp, freed);  // of a round that was interrupted
  pthread_mutex_lock(&pool->lock);
  brim_status status = brim_store_expire_files(pool->options.store, exp, when, &what);
  // Under the lock: it may be queued again as soon as that is free, and have new files.
  if (!status && what == BRIM_STORE_EXPIRED_ALL) brim_pool_disk_put_away(pool->disk, exp);
  pthread_mutex_unlock(&pool->lock);
  BRIM_TRY(status);
  if (what == BRIM_STORE_EXPIRED_ALL) brim_pool_disk_remove_away(pool->disk, exp, freed);
  if (what == BRIM_STORE_EXPIRED_CHECKPOINT) {
    brim_pool_disk_remove(pool->disk, exp, brim_lab_file_find("checkpoint"), freed);
  }
  return BRIM_OK;
}

static void begin_round(brim_lab_pool *pool, int64_t now_ms) {
  brim_pool_keep *k = &pool->keep;
  bool first = k->next_ms == 0;
  brim_pool_keep_deinit(k);
  k->next_ms = now_ms + (first ? MINUTE_MS : HOUR_MS);
  if (first || !brim_pool_disk_list(pool->disk, &k->ids, &k->count)) return;
  brim_log_warn("serve", "%s", brim_status_detail());
  brim_status_clear();
}

brim_status brim_pool_keep_tend(brim_lab_pool *pool, int64_t now_ms) {
  const brim_lab_pool_options *o = &pool->options;
  brim_pool_keep *k = &pool->keep;
  if (!pool->disk || (o->keep_days <= 0 && !o->drop_checkpoints)) return BRIM_OK;
  if (k->at == k->count && now_ms >= k->next_ms) begin_round(pool, now_ms);
  if (k->at == k->count) return BRIM_OK;
  const brim_store_expiry when = expiry_at(o, now_ms);
  brim_time begin = brim_clock_now();
  for (int n = 0; n < SOME && k->at < k->count; n++) {
    BRIM_TRY(remove_old(pool, k->ids[k->at++], &when));
    if (brim_time_since_ns(begin, brim_clock_now()) > SLICE_MS * 1000000LL) break;
  }
  if (k->at == k->count && k->freed.files > 0) {
    brim_log_info("serve", "removed %lld old files of experiments, %lld bytes",
                  (long long)k->freed.files, (long long)k->freed.bytes);
  }
  return BRIM_OK;
}
