// Requests that write, several in one transaction. The disk takes milliseconds for each commit, and a
// commit of ten requests takes no longer than that of one. The thread that comes first carries out its own
// request; those that come meanwhile form the next group, which the first of them carries out. None
// is answered before its group is on the disk.
#include "base/base_status.h"
#include "lab/pool/lab_pool_int.h"

enum { GROUP_MAX = 64 };  // a group of slow requests keeps readers of the store waiting

brim_status brim_pool_commits_init(brim_pool_commits *g) {
  *g = (brim_pool_commits){.last = &g->first};
  pthread_mutex_init(&g->mutex, NULL);
  if (!pthread_cond_init(&g->wake, NULL)) return BRIM_OK;
  pthread_mutex_destroy(&g->mutex);
  return brim_fail(BRIM_ENOMEM, "out of memory for the server");
}

void brim_pool_commits_deinit(brim_pool_commits *g) {
  pthread_cond_destroy(&g->wake);
  pthread_mutex_destroy(&g->mutex);
}

// The first of those that wait, without the rest.
static brim_pool_call *take_locked(brim_pool_commits *g) {
  brim_pool_call *first = g->first, **end = &g->first;
  for (int n = 0; *end && n < GROUP_MAX; n++) end = &(*end)->next;
  g->first = *end;
  *end = NULL;
  if (!g->first) g->last = &g->first;
  return first;
}

static void carry_out(brim_lab_pool *pool, brim_pool_call *first) {
  brim_store *store = pool->options.store;
  pthread_mutex_lock(&pool->lock);
  brim_status status = brim_store_group_begin(store);
  for (brim_pool_call *c = first; c && !status; c = c->next) c->run(c);
  if (!status) status = brim_store_group_end(store);
  for (brim_pool_call *c = first; c && status; c = c->next) c->fail(c, status);
  // What this cannot read now comes with the next request, or when the pool is tended.
  if (!status && brim_pool_feed_read(&pool->feed, store)) brim_status_clear();
  pthread_mutex_unlock(&pool->lock);
}

void brim_pool_commit_run(brim_lab_pool *pool, brim_pool_call *call) {
  brim_pool_commits *g = &pool->commits;
  pthread_mutex_lock(&g->mutex);
  call->next = NULL;
  call->ended = false;
  *g->last = call;
  g->last = &call->next;
  while (!call->ended) {
    if (g->busy) {
      pthread_cond_wait(&g->wake, &g->mutex);
      continue;
    }
    brim_pool_call *first = take_locked(g);
    g->busy = true;
    pthread_mutex_unlock(&g->mutex);
    carry_out(pool, first);
    pthread_mutex_lock(&g->mutex);
    g->busy = false;
    for (brim_pool_call *c = first, *next; c; c = next) {
      next = c->next;  // the call is gone once its thread sees that it has ended
      c->ended = true;
    }
    pthread_cond_broadcast(&g->wake);
  }
  pthread_mutex_unlock(&g->mutex);
}
