// A proxy on this machine between HTTP clients and a server that spoils some of the requests: the network
// of a chaos test. It knows where messages end, and nothing of what they say.
//
// One request at a time per connection, as clients send them; each connection has a thread. Bodies need a
// Content-Length or chunks. Streams without an end (server-sent events) cannot pass.
#ifndef BRIM_LAB_CHAOS_PROXY_H_
#define BRIM_LAB_CHAOS_PROXY_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"
#include "lab/lab_chaos.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_chaos_proxy brim_chaos_proxy;

typedef struct brim_chaos_proxy_options {
  int port;         // of the server, at 127.0.0.1
  uint64_t seed;    // of what is spoiled
  int percent;      // of the requests
  int64_t late_ms;  // the longest wait of what comes late
  // The one fault there is; < 0: all of them, at random.
  int only;
  const char *match;  // of requests that contain this alone; NULL = of any
  int64_t most;       // so many faults at most; 0 = no limit
} brim_chaos_proxy_options;

brim_status brim_chaos_proxy_open(const brim_chaos_proxy_options *options, brim_chaos_proxy **out);
int brim_chaos_proxy_port(const brim_chaos_proxy *proxy);
// From now on it spoils nothing.
void brim_chaos_proxy_calm(brim_chaos_proxy *proxy);
// What it did so far.
void brim_chaos_proxy_counts(brim_chaos_proxy *proxy, int64_t *requests,
                             int64_t faults[BRIM_CHAOS_FAULT_COUNT]);
void brim_chaos_proxy_close(brim_chaos_proxy *proxy);  // cuts off all connections; NULL is fine

// Whether `data` begins with a whole message of HTTP/1.1; *size: its bytes.
bool brim_chaos_message_whole(const char *data, size_t length, size_t *size);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_CHAOS_PROXY_H_
