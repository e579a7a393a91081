// An HTTP/1.1 server, over TLS if a certificate is given. It knows no routes: it reads requests within
// limits, checks their form, and hands them to its owner.
//
// Each connection has a thread, so a handler may wait for the store or for news to send. Handlers run in
// several threads at once.
//
// The server refuses some requests itself, with a JSON body {"error": "..."}: a malformed path or query
// (lab_http_url.h), a Transfer-Encoding, a repeated Content-Length, Host or Authorization, a body that is
// longer than allowed. It then closes the connection, because the bytes that follow might be read as
// another request. A connection that does not send a whole request in time is cut off.
#ifndef BRIM_LAB_HTTP_H_
#define BRIM_LAB_HTTP_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base_str.h"
#include "brim/status.h"

typedef struct brim_http_request {
  const char *method;  // "GET"
  const char *path;    // decoded: "/v1/exps"
  const char *peer;    // "10.0.0.7"
  const char *body;    // "" while it has not been read
  size_t body_size;
  void *impl;
} brim_http_request;

// A value of the query, decoded; NULL: it is missing. Valid as long as the request.
const char *brim_http_query(const brim_http_request *request, const char *name);
// A header; upper and lower case are the same. NULL: it is missing.
const char *brim_http_header(const brim_http_request *request, const char *name);

enum { BRIM_HTTP_HEADERS = 8 };

// A reply. `status` 0 = 200; `type` NULL = application/json.
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
  bool has_fd;  // a part of a regular file in place of the body; the server closes `fd`
  int fd;
  uint64_t fd_from, fd_size;
  // A stream in place of the above. The server calls `more` until it fails. A call appends bytes to send,
  // or none, and may wait about a second for them.
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
  size_t bodies_max;              // bytes of all bodies at a time; more get status 503 (128 MiB)
  int64_t idle_ms;                // an unused connection is closed after (75 s)
  int64_t request_ms;             // for a whole request, from its first byte (30 s)
  // required: decides if the body may be read, when the headers have come. Sets *body_max, the longest
  // body to accept (0: none); or fills in the reply and returns false.
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
// Ends streams: no `more` is called again after the running ones return.
void brim_http_server_stop(brim_http_server *server);
void brim_http_server_close(brim_http_server *server);  // NULL is fine

#endif  // BRIM_LAB_HTTP_H_
