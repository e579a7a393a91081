// Cuts off connections that take too long over a request. libmicrohttpd's own limit starts again with
// every byte, so a client that sends one now and then would keep its thread for ever. And a thread spins in
// the last second of that limit: 200 of them at once held up all requests for half a second. So this comes
// first, for idle connections and for listeners too.
#include <sys/socket.h>

#include "base/base_clock.h"
#include "base/base_status.h"
#include "base/base_thread.h"
#include "lab/http/lab_http_int.h"

enum { LOOK_NS = 500000000 };

static void cut_off(const brim_http_watch *w) {
  int64_t now = brim_clock_ms();
  for (const brim_http_peer *p = w->peers; p; p = p->next) {
    int64_t most = p->phase == BRIM_HTTP_IDLE     ? w->idle_ms
                   : p->phase == BRIM_HTTP_STREAM ? p->stream_ms
                                                  : w->request_ms;
    if (p->phase == BRIM_HTTP_SERVING || now - p->since_ms < most) continue;
    (void)shutdown(p->fd, SHUT_RDWR);  // its thread reads the end and closes it
  }
}

static void watching(void *arg) {
  brim_http_watch *w = (brim_http_watch *)arg;
  pthread_mutex_lock(&w->mutex);
  while (!w->ends) {
    (void)brim_cond_wait(&w->wake, &w->mutex, brim_clock_now().ns + LOOK_NS);
    if (!w->ends) cut_off(w);
  }
  pthread_mutex_unlock(&w->mutex);
}

brim_status brim_http_watch_start(brim_http_watch *w) {
  pthread_mutex_init(&w->mutex, NULL);
  if (brim_cond_init(&w->wake)) {
    pthread_mutex_destroy(&w->mutex);
    return brim_fail(BRIM_EIO, "cannot start a thread for the server");
  }
  brim_status status = brim_thread_start(watching, w, "brim-watch", &w->thread);
  if (!status) return BRIM_OK;
  pthread_cond_destroy(&w->wake);
  pthread_mutex_destroy(&w->mutex);
  return status;
}

void brim_http_watch_stop(brim_http_watch *w) {
  if (!w->thread) return;
  pthread_mutex_lock(&w->mutex);
  w->ends = true;
  pthread_cond_signal(&w->wake);
  pthread_mutex_unlock(&w->mutex);
  brim_thread_join(w->thread);
  w->thread = NULL;
  pthread_cond_destroy(&w->wake);
  pthread_mutex_destroy(&w->mutex);
}

void brim_http_watch_add(brim_http_watch *w, brim_http_peer *peer, int fd) {
  pthread_mutex_lock(&w->mutex);
  *peer =
      (brim_http_peer){.next = w->peers, .link = &w->peers, .fd = fd, .since_ms = brim_clock_ms()};
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
  peer->since_ms = brim_clock_ms();
  pthread_mutex_unlock(&w->mutex);
}

// Listeners that an outage cut off together are not given up together: they have 0.6 to 1.4 of the time of
// an idle connection.
void brim_http_watch_stream(brim_http_watch *w, brim_http_peer *peer) {
  if (!peer) return;
  pthread_mutex_lock(&w->mutex);
  if (peer->stream_ms == 0) peer->stream_ms = w->idle_ms * (60 + w->streams++ * 37 % 81) / 100;
  peer->phase = BRIM_HTTP_STREAM;
  peer->since_ms = brim_clock_ms();
  pthread_mutex_unlock(&w->mutex);
}
