// Inside the HTTP room: the listening socket, and the connections with the watch that cuts off slow ones.
#ifndef BRIM_LAB_HTTP_INT_H_
#define BRIM_LAB_HTTP_INT_H_

#include <pthread.h>
#include <stdatomic.h>

#include "lab/http/lab_http.h"

#ifdef __cplusplus
extern "C" {
#endif

brim_status brim_http_listen(const char *address, int port, int *fd, int *bound);

typedef enum brim_http_phase {
  BRIM_HTTP_IDLE,     // between requests
  BRIM_HTTP_READING,  // a request has begun, and is not complete
  BRIM_HTTP_SERVING,  // its handler runs, or the reply is sent
  BRIM_HTTP_STREAM,   // news are being sent to a listener
} brim_http_phase;

// A connection as the watch sees it.
typedef struct brim_http_peer {
  struct brim_http_peer *next, **link;
  int fd;
  brim_http_phase phase;
  int64_t since_ms;
  int64_t stream_ms;  // a listener that takes nothing is given up after; 0 = it is none yet
} brim_http_peer;

typedef struct brim_http_watch {
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  struct brim_thread *thread;  // NULL: it does not run
  bool ends;
  brim_http_peer *peers;
  int count;
  unsigned streams;  // so far
  int64_t idle_ms, request_ms;
} brim_http_watch;

brim_status brim_http_watch_start(brim_http_watch *watch);
void brim_http_watch_stop(brim_http_watch *watch);
void brim_http_watch_add(brim_http_watch *watch, brim_http_peer *peer, int fd);
void brim_http_watch_remove(brim_http_watch *watch, brim_http_peer *peer);
void brim_http_watch_phase(brim_http_watch *watch, brim_http_peer *peer, brim_http_phase phase);
// News are about to be sent to a listener. NULL is fine.
void brim_http_watch_stream(brim_http_watch *watch, brim_http_peer *peer);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_HTTP_INT_H_
