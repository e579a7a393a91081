// See lab_http_mhd.h.
#include "lab/http/lab_http_mhd.h"

#include "base/base_status.h"

brim_status brim_mhd_load(brim_mhd *out, brim_dl **dl) {
  static const char *const names[] = {"libmicrohttpd.so.12", NULL};
  const brim_dl_symbol symbols[] = {
#define X(name) {"MHD_" #name, (void **)(void *)&out->name, true},
      BRIM_MHD_MAP(X)
#undef X
  };
  // kept: its threads may still be on their way out
  if (!brim_dl_open(names, symbols, sizeof symbols / sizeof *symbols, true, dl)) return BRIM_OK;
  return brim_fail(BRIM_EUNSUPPORTED,
                   "the server needs libmicrohttpd 0.9.75 or later (Debian: apt-get install "
                   "libmicrohttpd12): %s",
                   brim_status_detail());
}
