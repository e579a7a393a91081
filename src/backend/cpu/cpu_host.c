// What the host lends the cpu plug-in, and failures in its words. Every file of the plug-in calls
// this one; it calls none of them.
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "backend/cpu/cpu_int.h"

// The only file-scope state: device_count and device_info have no object to carry it. Set before
// anything else can be called, never changed after.
static const brim_host_api *host_api;
static unsigned masked;

void brim_cpu_set_host(const brim_host_api *host, unsigned mask) {
  host_api = host;
  masked = mask;
}

unsigned brim_cpu_masked(void) { return masked; }

const brim_host_api *brim_cpu_host(void) { return host_api; }

brim_status brim_cpu_fail(brim_status status, const char *format, ...) {
  char text[768];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, host_api->translate(format), args);
  va_end(args);
  return host_api->fail(status, text);
}

brim_status brim_cpu_check_process(const brim_cpu_device *device) {
  if (device->pid == getpid()) return BRIM_OK;
  return brim_cpu_fail(BRIM_ESTATE,
                       "cpu: the device was opened before a fork, so its threads are in the "
                       "parent; open it in the child");
}
