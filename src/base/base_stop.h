// The user's wish to stop, for waits deep below the loop that hears it: a helper process that sleeps, a
// drive that is gone, a plan of many ops. Callers: cli sets it, data and engine ask.
#ifndef BRIM_BASE_STOP_H_
#define BRIM_BASE_STOP_H_

#include <signal.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

// What the program's signal handler sets; NULL = nothing does. A program has one set of signals, so this is
// process-wide. It has to live as long as it is set.
void brim_stop_watch(const volatile sig_atomic_t *flag);
bool brim_stop_wanted(void);

// A wait asks brim_stop_overdue from time to time. True once the wish is BRIM_STOP_PATIENCE_MS old, by the
// wait's own first look: what ends on its own until then does so.
enum { BRIM_STOP_LOOK_MS = 100, BRIM_STOP_PATIENCE_MS = 1000 };
typedef struct brim_stop_wait {
  long long since_ns;  // when it was seen first; 0 = not yet
} brim_stop_wait;
bool brim_stop_overdue(brim_stop_wait *wait);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_STOP_H_
