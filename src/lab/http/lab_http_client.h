// An HTTP client on libcurl, for workers and commands that call `brim serve`. It keeps one connection
// between calls, and serves one thread at a time.
#ifndef BRIM_LAB_HTTP_CLIENT_H_
#define BRIM_LAB_HTTP_CLIENT_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base_str.h"
#include "brim/status.h"

typedef struct brim_http_client brim_http_client;

// 0 and NULL select the defaults, which stand in parentheses, except for members marked "required".
typedef struct brim_http_client_options {
  const char *url;    // required: "https://server:8000"
  const char *token;  // NULL = none
  const char *ca;  // PEM file that the server's certificate is checked against; NULL = the system's
  const char *pin;     // "sha256//...": the server's public key, in place of a certificate check
  bool insecure;       // http:// is allowed; a token is then sent in the clear
  int64_t connect_ms;  // (10 s)
  int64_t timeout_ms;  // of a whole call (60 s)
  size_t reply_max;    // bytes of a reply; longer: BRIM_ELIMIT (64 MiB)
} brim_http_client_options;

typedef struct brim_http_call {
  const char *method;  // "GET"
  const char *path;    // "/v1/claim?x=1": escaped already
  const void *body;    // NULL = none
  size_t body_size;
  const char *type;            // of the body; NULL = application/json
  const char *const *headers;  // more headers, "Name: value", NULL-terminated; NULL = none
  int64_t timeout_ms;          // 0 = the client's
} brim_http_call;

typedef struct brim_http_answer {
  int status;
  brim_str body;
  char offset[32];   // value of the header Upload-Offset; "" = missing
  char cookie[192];  // value of Set-Cookie; "" = missing
} brim_http_answer;

void brim_http_answer_init(brim_http_answer *answer);
void brim_http_answer_deinit(brim_http_answer *answer);

// BRIM_EINVAL: the URL is wrong, or begins with http:// without `insecure`. BRIM_EUNSUPPORTED: libcurl
// is not installed.
brim_status brim_http_client_open(const brim_http_client_options *options, brim_http_client **out);
void brim_http_client_close(brim_http_client *client);  // NULL is fine

// A reply of any HTTP status is BRIM_OK. BRIM_EIO: no reply came; the server may have carried out the call.
// Redirects are not followed.
brim_status brim_http_client_call(brim_http_client *client, const brim_http_call *call,
                                  brim_http_answer *out);
// Calls `fn` with every piece of a reply as it comes, until `fn` fails or the reply ends. *status is
// set before.
typedef brim_status (*brim_http_piece_fn)(void *ctx, const char *data, size_t size);
brim_status brim_http_client_stream(brim_http_client *client, const char *path, int *status,
                                    brim_http_piece_fn fn, void *ctx);

#endif  // BRIM_LAB_HTTP_CLIENT_H_
