// Monotonic nanoseconds for durations, wall-clock seconds for dates. They are two types, so they cannot be mixed
// up.
#ifndef BRIM_BASE_CLOCK_H_
#define BRIM_BASE_CLOCK_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_time {
  int64_t ns;  // CLOCK_MONOTONIC
} brim_time;

brim_time brim_clock_now(void);
static inline int64_t brim_time_since_ns(brim_time start, brim_time end) {
  return end.ns - start.ns;
}
static inline int64_t brim_clock_ms(void) { return brim_clock_now().ns / 1000000; }
double brim_clock_wall_s(void);     // seconds since 1970
const char *brim_clock_name(void);  // "CLOCK_MONOTONIC", for records
void brim_clock_sleep_ns(int64_t ns);
void brim_clock_iso8601(double wall_s, char out[32]);  // writes "2026-11-15T01:02:03Z"

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_CLOCK_H_
