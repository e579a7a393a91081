// libcurl, loaded when a client is opened.
#ifndef BRIM_LAB_HTTP_CURL_H_
#define BRIM_LAB_HTTP_CURL_H_

#include <curl/curl.h>

#include "base/base_dl.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_CURL_MAP(X) \
  X(easy_init)           \
  X(easy_cleanup)        \
  X(easy_reset)          \
  X(easy_setopt)         \
  X(easy_getinfo)        \
  X(easy_perform)        \
  X(easy_strerror)       \
  X(slist_append)        \
  X(slist_free_all)

typedef struct brim_curl {
#define X(name) __typeof__(&curl_##name) name;
  BRIM_CURL_MAP(X)
#undef X
} brim_curl;

// BRIM_EUNSUPPORTED: it is not installed, and the detail says how to get it.
brim_status brim_curl_load(brim_curl *out, brim_dl **dl);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_HTTP_CURL_H_
