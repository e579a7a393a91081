// Room on the disk of the server: measured when the pool is tended, and noted when a write is refused. The log,
// pages and monitoring learn of it once, and once more when there is room again.
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/base_status.h"
#include "lab/lab_wire.h"
#include "lab/pool/lab_pool_int.h"

// Workers try again within this time, so a disk that is still full refuses something.
enum { REFUSED_MS = 120000 };

void brim_pool_room_init(brim_pool_room *r) {
  *r = (brim_pool_room){.free_bytes = -1, .total_bytes = -1};
  pthread_mutex_init(&r->mutex, NULL);
}

void brim_pool_room_deinit(brim_pool_room *r) { pthread_mutex_destroy(&r->mutex); }

bool brim_pool_room_is_disk(const char *text) {
  return strstr(text, "disk is full") || strstr(text, "disk of the server is full");
}

static bool measure(const brim_lab_pool *pool, const char *folder, int64_t *room, int64_t *total) {
  struct statvfs st;
  if (pool->options.room) return pool->options.room(folder, room, total);
  if (statvfs(folder, &st) != 0) return false;
  *room = (int64_t)((double)st.f_bavail * (double)st.f_frsize);
  *total = (int64_t)((double)st.f_blocks * (double)st.f_frsize);
  return true;
}

// The fuller one of those that the server writes to: of files, and of a store in a folder.
static void measure_all(const brim_lab_pool *pool, int64_t *room, int64_t *total) {
  const brim_store *store = pool->options.store;
  const bool local = strcmp(brim_store_kind(store), "sqlite") == 0;
  const char *folders[] = {pool->options.files, local ? brim_store_place(store) : NULL};
  *room = *total = -1;
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    int64_t here, size;
    if (!folders[i] || !measure(pool, folders[i], &here, &size)) continue;
    if (*room >= 0 && here >= *room) continue;
    *room = here;
    *total = size;
  }
}

static brim_status put_disk(brim_pool_room *r, json_t *out) {
  json_t *disk = json_object();
  pthread_mutex_lock(&r->mutex);
  const bool full = r->full;
  const int64_t room = r->free_bytes, total = r->total_bytes;
  pthread_mutex_unlock(&r->mutex);
  BRIM_TRY(brim_json_put(out, "disk", disk));
  BRIM_TRY(brim_json_put(disk, "full", json_boolean(full)));
  BRIM_TRY(brim_json_put(disk, "free", room < 0 ? json_null() : json_integer(room)));
  return brim_json_put(disk, "total", total < 0 ? json_null() : json_integer(total));
}

brim_status brim_pool_room_put(brim_lab_pool *pool, json_t *out) {
  return put_disk(&pool->room, out);
}

static void tell(brim_lab_pool *pool, bool full, int64_t room) {
  const long long mib = (long long)(room < 0 ? 0 : room >> 20);
  if (full) {
    brim_log_warn("serve",
                  "the disk of the server is full (%lld MiB free); workers keep their files and "
                  "results, and try again",
                  mib);
  } else {
    // a log that has the beginning has the end, too
    brim_log_warn("serve", "the disk of the server has room again (%lld MiB free)", mib);
  }
  json_t *value = json_object();
  if (!value || put_disk(&pool->room, value)) {
    brim_status_clear();
  } else {
    brim_pool_feed_server(&pool->feed, value);
  }
  json_decref(value);
}

// `refused`: a write just failed.
static void update(brim_lab_pool *pool, bool refused) {
  brim_pool_room *r = &pool->room;
  int64_t room, total;
  measure_all(pool, &room, &total);
  pthread_mutex_lock(&r->mutex);
  r->free_bytes = room;
  r->total_bytes = total;
  if (refused) {
    r->refused++;
    r->refused_ms = r->now_ms;
  }
  const bool before = r->full, held = r->refused > 0 && r->now_ms - r->refused_ms < REFUSED_MS;
  r->full = held || (room >= 0 && room < BRIM_POOL_RESERVE);
  const bool full = r->full;
  pthread_mutex_unlock(&r->mutex);
  if (full != before) tell(pool, full, room);
}

void brim_pool_room_refused(brim_lab_pool *pool) { update(pool, true); }

void brim_pool_room_tend(brim_lab_pool *pool, int64_t now_ms) {
  pthread_mutex_lock(&pool->room.mutex);
  pool->room.now_ms = now_ms;
  pthread_mutex_unlock(&pool->room.mutex);
  update(pool, false);
}
