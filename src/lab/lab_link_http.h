// A link over HTTP, to `brim serve`: each request is a POST of its line.
#ifndef BRIM_LAB_LINK_HTTP_H_
#define BRIM_LAB_LINK_HTTP_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base_str.h"
#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// What a client has to know of a server, where its address does not say it.
#define BRIM_LAB_TOKEN_ENV "BRIM_TOKEN"        // the token
#define BRIM_LAB_CA_ENV "BRIM_CA"              // file of certificates
#define BRIM_LAB_PIN_ENV "BRIM_PIN"            // "sha256//...": the server's public key
#define BRIM_LAB_INSECURE_ENV "BRIM_INSECURE"  // "1": http:// to other machines, too
#define BRIM_LAB_TIMEOUT_ENV "BRIM_TIMEOUT"    // seconds for a request

struct brim_http_client;

bool brim_lab_is_server(const char *place);  // "https://server:8000"
brim_status brim_lab_http_open(const char *url, int64_t timeout_ms, struct brim_http_client **out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_LINK_HTTP_H_
