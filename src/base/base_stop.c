// The user's wish to stop, where no loop hears it.
#include "base/base_stop.h"

#include <stdatomic.h>
#include <stddef.h>

#include "base/base_clock.h"

static _Atomic(const volatile sig_atomic_t *) watched;

void brim_stop_watch(const volatile sig_atomic_t *flag) { atomic_store(&watched, flag); }

bool brim_stop_wanted(void) {
  const volatile sig_atomic_t *flag = atomic_load(&watched);
  return flag && *flag;
}

bool brim_stop_overdue(brim_stop_wait *wait) {
  if (!brim_stop_wanted()) return false;
  long long now = (long long)brim_clock_now().ns;
  if (wait->since_ns == 0) wait->since_ns = now > 0 ? now : 1;
  return now - wait->since_ns >= BRIM_STOP_PATIENCE_MS * 1000000LL;
}
