// Decodes and checks paths and queries. Each is decoded exactly once, before any other code reads it.
#ifndef BRIM_LAB_HTTP_URL_H_
#define BRIM_LAB_HTTP_URL_H_

#include <stdbool.h>
#include <stddef.h>

#include "base/base_str.h"
#include "brim/status.h"

enum { BRIM_HTTP_PATH_MAX = 1024, BRIM_HTTP_PARTS = 8 };

// "/v1/exps/3f%20a" -> "/v1/exps/3f a". Refuses (BRIM_EINVAL) a path that does not start with '/', a
// bad escape ("%2"), a '%' that is left after decoding ("%252e"), control characters, '\\', bytes that
// are not UTF-8, empty parts, and the parts "." and "..". The result has at most size - 1 bytes.
brim_status brim_http_path_decode(const char *raw, char *out, size_t size);

// Splits a decoded path at its slashes, which become NUL, and returns the number of parts. 0: "/". -1:
// more than BRIM_HTTP_PARTS.
int brim_http_path_split(char *path, char *parts[BRIM_HTTP_PARTS]);

// Decodes a value of a query. Refuses control characters other than tab and newline, and bytes that are not
// UTF-8.
brim_status brim_http_value_decode(const char *raw, char *out, size_t size);

// Appends `text` with every byte escaped that RFC 3986 does not call unreserved.
void brim_http_escape(brim_str *out, const char *text);

// True for localhost, 127.x.x.x, ::1 and [::1], with or without a port and a path.
bool brim_http_is_loopback(const char *host);

#endif  // BRIM_LAB_HTTP_URL_H_
