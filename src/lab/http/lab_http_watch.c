// Cuts off connections that take too long over a request. libmicrohttpd's own limit starts again with
// every byte, so a client that sends one now and then would keep its thread for ever.
#include <errno.h>
#include <sys/socket.h>
#include <time.h>

#include "base/base_clock.h"
#include "base/base_status.h"
#include "lab/http/lab_http_int.h"

enum { LOOK_MS = 500 };

static int64_t now_ms(void) {
  return brim_time_since_ns((brim_time){0}, brim_clock_now()) / 1000000;
}

static void cut_off(const brim_http_watch *w) {
  int64_t now = now_ms();
  for (const brim_http_peer *p = w->peers; p; p = p->next) {
    int64_t most = p->phase == BRIM_HTTP_IDLE ? w->idle_ms : w->request_ms;
    if (p->phase == BRIM_HTTP_SERVING || now - p->since_ms < most) continue;
    (void)shutdown(p->fd, SHUT_RDWR);  // its thread reads the end and closes it
  }
}

static void *watching(void *arg) {
  brim_http_watch *w = (brim_http_watch *)arg;
  pthread_mutex_lock(&w->mutex);
  while (!w->ends) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)LOOK_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&w->wake, &w->mutex, &until);
    if (!w->ends) cut_off(w);
  }
  pthread_mutex_unlock(&w->mutex);
  return NULL;
}

brim_status brim_http_watch_start(brim_http_watch *w) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_mutex_init(&w->mutex, NULL);
  pthread_cond_init(&w->wake, &attributes);
  pthread_condattr_destroy(&attributes);
  w->runs = pthread_create(&w->thread, NULL, watching, w) == 0;
  if (w->runs) return BRIM_OK;
  pthread_cond_destroy(&w->wake);
  pthread_mutex_destroy(&w->mutex);
  return brim_fail(BRIM_EIO, "cannot start a thread for the server");
}

void brim_http_watch_stop(brim_http_watch *w) {
  if (!w->runs) return;
  pthread_mutex_lock(&w->mutex);
  w->ends = true;
  pthread_cond_signal(&w->wake);
  pthread_mutex_unlock(&w->mutex);
  pthread_join(w->thread, NULL);
  w->runs = false;
  pthread_cond_destroy(&w->wake);
  pthread_mutex_destroy(&w->mutex);
}

void brim_http_watch_add(brim_http_watch *w, brim_http_peer *peer, int fd) {
  pthread_mutex_lock(&w->mutex);
  *peer = (brim_http_peer){.next = w->peers, .link = &w->peers, .fd = fd, .since_ms = now_ms()};
  peer->phase = BRIM_HTTP_READING;  // the first request is due at once
  if (w->peers) w->peers->link = &peer->next;
  w->peers = peer;
  w->count++;
  pthread_mutex_unlock(&w->mutex);
}

void brim_http_watch_remove(brim_http_watch *w, brim_http_peer *peer) {
  pthread_mutex_lock(&w->mutex);
  *peer->link = peer->next;
  if (peer->next) peer->next->link = peer->link;
  w->count--;
  pthread_mutex_unlock(&w->mutex);
}

void brim_http_watch_phase(brim_http_watch *w, brim_http_peer *peer, brim_http_phase phase) {
  if (!peer) return;
  pthread_mutex_lock(&w->mutex);
  peer->phase = phase;
  peer->since_ms = now_ms();
  pthread_mutex_unlock(&w->mutex);
}
