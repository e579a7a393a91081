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

// Returns a decoded value of the query; NULL: it is missing. Valid as long as the request.
const char *brim_http_query(const brim_http_request *request, const char *name);
// Returns a header; the case of `name` does not matter. NULL: it is missing.
const char *brim_http_header(const brim_http_request *request, const char *name);

enum { BRIM_HTTP_HEADERS = 8 };

// A reply. status 0 means 200; type NULL means application/json.
typedef struct brim_http_reply {
  int status;
  const char *type;  // a constant
  brim_str body;
  struct {
    const char *name;  // a constant
    char value[192];
  } headers[BRIM_HTTP_HEADERS];
  int header_count;
  const void *file;  // bytes that outlive the server, sent in place of `body`; NULL = `body`
  size_t file_size;
  bool has_fd;  // send fd_size bytes of the file `fd` in place of `body`, and close `fd`
  int fd;
  uint64_t fd_from, fd_size;
  // If set, the reply is a stream instead: the server calls `more` until it fails. A call appends bytes
  // to send, or none, and may wait about a second for them.
  brim_status (*more)(void *ctx, brim_str *out);
  void (*end)(void *ctx);  // called once, after the last `more`
  void *ctx;
} brim_http_reply;

void brim_http_reply_header(brim_http_reply *reply, const char *name, const char *value);
// Makes the reply {"error": TEXT} with this status code.
void brim_http_reply_error(brim_http_reply *reply, int status, const char *text);

typedef struct brim_http_server brim_http_server;

// 0 and NULL select the defaults, which stand in parentheses, except for members marked "required".
typedef struct brim_http_options {
  const char *address;            // address to listen at ("127.0.0.1"); a name, or "::" for all
  int port;                       // 0 = any free one
  const char *certificate, *key;  // PEM, both or none
  int connections;                // most connections (1000)
  int per_address;                // most connections from one address (0 = `connections`)
  size_t bodies_max;              // most bytes of all bodies together; a request beyond that gets
                                  // status 503 (128 MiB)
  int64_t idle_ms;                // time until an unused connection is closed (75 s)
  int64_t request_ms;             // time to receive a whole request, from its first byte (30 s)
  // required: called when the headers have come. Admits the request and sets *body_max, the longest
  // body to accept (0: none); or fills in the reply and returns false.
  bool (*admit)(void *ctx, const brim_http_request *request, brim_http_reply *reply,
                size_t *body_max);
  // required: handles a complete request
  void (*serve)(void *ctx, const brim_http_request *request, brim_http_reply *reply);
  void *ctx;
} brim_http_options;

// BRIM_EEXIST: the port is taken. BRIM_EINVAL: the address, the certificate or the key is wrong.
brim_status brim_http_server_open(const brim_http_options *options, brim_http_server **out);
int brim_http_server_port(const brim_http_server *server);
int brim_http_server_connections(brim_http_server *server);  // open now
// Ends all streams: `more` is not called again.
void brim_http_server_stop(brim_http_server *server);
void brim_http_server_close(brim_http_server *server);  // NULL is fine

#endif  // BRIM_LAB_HTTP_H_
