// Decoding and checking of paths and queries. Each is decoded once, before anything else looks at it.
#ifndef BRIM_LAB_HTTP_URL_H_
#define BRIM_LAB_HTTP_URL_H_

#include <stdbool.h>
#include <stddef.h>

#include "base/base_str.h"
#include "brim/status.h"

enum { BRIM_HTTP_PATH_MAX = 1024, BRIM_HTTP_PARTS = 8 };

// "/v1/exps/3f%20a" -> "/v1/exps/3f a". Refused (BRIM_EINVAL): what does not start with '/', a bad or
// second escape ("%2", "%252e": no name of ours has a '%'), control characters, '\\', bytes that are not
// UTF-8, empty parts, and the parts "." and "..". At most size - 1 bytes.
brim_status brim_http_path_decode(const char *raw, char *out, size_t size);

// The parts of a decoded path between its slashes, as pointers into it: the slashes become NUL. 0: "/".
// -1: more than BRIM_HTTP_PARTS.
int brim_http_path_split(char *path, char *parts[BRIM_HTTP_PARTS]);

// Decodes a value of a query. Refuses control characters other than tab and newline, and bytes that are not
// UTF-8.
brim_status brim_http_value_decode(const char *raw, char *out, size_t size);

// Appends `text` with everything escaped that is not unreserved (RFC 3986).
void brim_http_escape(brim_str *out, const char *text);

// True for localhost, 127.x.x.x, ::1 and [::1], with or without a port and a path.
bool brim_http_is_loopback(const char *host);

#endif  // BRIM_LAB_HTTP_URL_H_
