// Addresses that send bad tokens. A token of 256 random bits cannot be guessed; the limit keeps a client with
// an old one from repeating it all day. Good tokens from the same address are accepted: several machines
// may share it.
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/base_log.h"
#include "lab/pool/lab_pool_int.h"

enum { WINDOW_MS = 60000, BAD_MAX = 20 };

void brim_pool_limit_init(brim_pool_limit *limit) {
  *limit = (brim_pool_limit){0};
  pthread_mutex_init(&limit->mutex, NULL);
}

void brim_pool_limit_deinit(brim_pool_limit *limit) { pthread_mutex_destroy(&limit->mutex); }

// An IPv6 customer has 2^64 addresses: they count as one.
static void network_of(const char *peer, char out[BRIM_POOL_ADDRESS]) {
  struct in6_addr a;
  snprintf(out, BRIM_POOL_ADDRESS, "%s", peer);
  if (inet_pton(AF_INET6, peer, &a) != 1 || IN6_IS_ADDR_V4MAPPED(&a)) return;
  memset(&a.s6_addr[8], 0, 8);
  if (!inet_ntop(AF_INET6, &a, out, BRIM_POOL_ADDRESS)) out[0] = '\0';
}

// The row of the address; else the one whose window began longest ago, emptied.
static brim_pool_offender *row_of(brim_pool_limit *limit, const char *network, int64_t now_ms) {
  brim_pool_offender *oldest = &limit->rows[0];
  for (int i = 0; i < BRIM_POOL_OFFENDERS; i++) {
    brim_pool_offender *o = &limit->rows[i];
    bool current = o->count > 0 && now_ms - o->since_ms < WINDOW_MS;
    if (current && strcmp(o->network, network) == 0) return o;
    if (o->since_ms < oldest->since_ms) oldest = o;
  }
  *oldest = (brim_pool_offender){.since_ms = now_ms};
  snprintf(oldest->network, sizeof oldest->network, "%s", network);
  return oldest;
}

int brim_pool_limit_bad(brim_pool_limit *limit, const char *peer, int64_t now_ms) {
  char network[BRIM_POOL_ADDRESS];
  network_of(peer, network);
  pthread_mutex_lock(&limit->mutex);
  brim_pool_offender *o = row_of(limit, network, now_ms);
  if (o->count <= BAD_MAX) o->count++;
  bool over = o->count > BAD_MAX, first = over && !o->told;
  if (over) o->told = true;
  int64_t left = o->since_ms + WINDOW_MS - now_ms;
  pthread_mutex_unlock(&limit->mutex);
  if (first) brim_log_warn("serve", "%s sent %d bad tokens within a minute", network, BAD_MAX + 1);
  return over ? (int)(left / 1000) + 1 : 0;
}
