// What the host lends the mpi plug-in, and failures in its words.
#include <stdarg.h>
#include <stdio.h>

#include "backend/mpi/mpi_int.h"

// The only file-scope state. Set before anything else can be called, never changed after.
static const brim_host_api *host_api;

void brim_mpi_set_host(const brim_host_api *host) { host_api = host; }

const brim_host_api *brim_mpi_host(void) { return host_api; }

brim_status brim_mpi_fail(brim_status status, const char *format, ...) {
  char text[768];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, host_api->translate(format), args);
  va_end(args);
  return host_api->fail(status, text);
}
