// An HTTP/1.1 server, over TLS where a certificate is given. It knows no route: it reads requests within
// limits, checks their form, and hands them to its owner.
//
// Each connection has a thread, so a handler may wait: for the store, or for news to send. Handlers run
// in several threads at once.
//
// Refused before the owner sees it, with a JSON body {"error": "..."}: a path or query that is malformed
// (lab_http_url.h), a Transfer-Encoding, a Content-Length, Host or Authorization that is there twice, a
// body that is longer than allowed. The connection is closed then: what follows might be read as another
// request. A connection that has not sent a whole request in time is cut off.
#ifndef BRIM_LAB_HTTP_H_
#define BRIM_LAB_HTTP_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base_str.h"
#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_http_request {
  const char *method;  // "GET"
  const char *path;    // decoded: "/v1/exps"
  const char *peer;    // "10.0.0.7"
  const char *body;    // "" while it has not been read
  size_t body_size;
  void *impl;
} brim_http_request;

// A value of the query by its name, decoded; NULL: not there. Valid as long as the request.
const char *brim_http_query(const brim_http_request *request, const char *name);
// A header by its name in any case; NULL: not there.
const char *brim_http_header(const brim_http_request *request, const char *name);

enum { BRIM_HTTP_HEADERS = 8 };

// What is sent. `status` 0 = 200; `type` NULL = application/json.
typedef struct brim_http_reply {
  int status;
  const char *type;  // a constant
  brim_str body;
  struct {
    const char *name;  // a constant
    char value[192];
  } headers[BRIM_HTTP_HEADERS];
  int header_count;
  const void *file;  // bytes that outlive the server, in place of the body; NULL = the body
  size_t file_size;
  bool has_fd;  // a part of a regular file, in place of the body; `fd` is closed when it is sent
  int fd;
  uint64_t fd_from, fd_size;
  // A body without an end, in place of the above: is called again and again until it fails. It appends
  // what there is to send, and may wait for it for about a second; nothing appended is fine.
  brim_status (*more)(void *ctx, brim_str *out);
  void (*end)(void *ctx);  // once, after the last `more`
  void *ctx;
} brim_http_reply;

void brim_http_reply_header(brim_http_reply *reply, const char *name, const char *value);
// {"error": TEXT} with this status code.
void brim_http_reply_error(brim_http_reply *reply, int status, const char *text);

typedef struct brim_http_server brim_http_server;

// 0 and NULL are the defaults, except where it says "required".
typedef struct brim_http_options {
  const char *address;            // "127.0.0.1"; a name, or "::" for all
  int port;                       // 0 = any free one
  const char *certificate, *key;  // PEM, both or none
  int connections;                // at most this many (1000)
  int per_address;                // of one address (0 = as many)
  size_t bodies_max;              // bytes of all bodies at a time, the next gets 503 (128 MiB)
  int64_t idle_ms;                // an unused connection is closed after (75 s)
  int64_t request_ms;             // for a whole request, from its first byte (30 s)
  // required: may the request be read? Is called when its headers are there. Sets *body_max, the longest
  // body that is taken (0: none); or fills in the reply and returns false.
  bool (*admit)(void *ctx, const brim_http_request *request, brim_http_reply *reply,
                size_t *body_max);
  // required
  void (*serve)(void *ctx, const brim_http_request *request, brim_http_reply *reply);
  void *ctx;
} brim_http_options;

// BRIM_EEXIST: the port is taken. BRIM_EINVAL: the address, the certificate or the key.
brim_status brim_http_server_open(const brim_http_options *options, brim_http_server **out);
int brim_http_server_port(const brim_http_server *server);
int brim_http_server_connections(brim_http_server *server);  // that are open now
// From now on `more` is called for the last time.
void brim_http_server_stop(brim_http_server *server);
void brim_http_server_close(brim_http_server *server);  // NULL is fine

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_HTTP_H_
