// Clocks. Durations come from CLOCK_MONOTONIC only; dates from CLOCK_REALTIME only.
#include "base/base_clock.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

brim_time brim_clock_now(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (brim_time){.ns = (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec};
}

double brim_clock_wall_s(void) {
  struct timespec ts;
  clock_gettime(CLOCK_REALTIME, &ts);
  return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

const char *brim_clock_name(void) { return "CLOCK_MONOTONIC"; }

void brim_clock_sleep_ns(int64_t ns) {
  if (ns <= 0) return;
  // sleep to an absolute time, so that signals do not prolong it
  int64_t end = brim_clock_now().ns + ns;
  struct timespec ts = {.tv_sec = end / 1000000000, .tv_nsec = end % 1000000000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR) {
  }
}

void brim_clock_iso8601(double wall_s, char out[32]) {
  // the format and the buffer hold years 0 to 9999; NaN fails both comparisons
  bool printable = wall_s >= -62167219200.0 && wall_s < 253402300800.0;
  time_t seconds = printable ? (time_t)floor(wall_s) : 0;
  struct tm tm;
  if (!printable || !gmtime_r(&seconds, &tm)) {
    snprintf(out, 32, "?");
    return;
  }
  strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}
