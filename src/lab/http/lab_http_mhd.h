// libmicrohttpd, loaded when a server is opened: no other command waits for it and for what it needs.
#ifndef BRIM_LAB_HTTP_MHD_H_
#define BRIM_LAB_HTTP_MHD_H_

#include <microhttpd.h>

#include "base/base_dl.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_MHD_MAP(X)                             \
  X(start_daemon)                                   \
  X(stop_daemon)                                    \
  X(lookup_connection_value)                        \
  X(get_connection_values)                          \
  X(get_connection_info)                            \
  X(create_response_from_callback)                  \
  X(create_response_from_buffer)                    \
  X(create_response_from_buffer_with_free_callback) \
  X(create_response_from_fd_at_offset64)            \
  X(add_response_header)                            \
  X(queue_response)                                 \
  X(destroy_response)

typedef struct brim_mhd {
#define X(name) __typeof__(&MHD_##name) name;
  BRIM_MHD_MAP(X)
#undef X
} brim_mhd;

// BRIM_EUNSUPPORTED: it is not installed, and the detail says how to get it.
brim_status brim_mhd_load(brim_mhd *out, brim_dl **dl);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_LAB_HTTP_MHD_H_
