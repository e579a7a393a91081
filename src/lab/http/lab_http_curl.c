// See lab_http_curl.h.
#include "lab/http/lab_http_curl.h"

#include "base/base_status.h"

brim_status brim_curl_load(brim_curl *out, brim_dl **dl) {
  static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", NULL};
  const brim_dl_symbol symbols[] = {
#define X(name) {"curl_" #name, (void **)(void *)&out->name, true},
      BRIM_CURL_MAP(X)
#undef X
  };
  if (!brim_dl_open(names, symbols, sizeof symbols / sizeof *symbols, true, dl)) return BRIM_OK;
  return brim_fail(BRIM_EUNSUPPORTED,
                   "a server is reached through libcurl (Debian: apt-get install libcurl4): %s",
                   brim_status_detail());
}
