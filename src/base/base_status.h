// Setting the thread-local failure detail. The public half is include/brim/status.h.
#ifndef BRIM_BASE_STATUS_H_
#define BRIM_BASE_STATUS_H_

#include <stddef.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// Sets the detail and returns `status`. `fmt` is an English catalogue message (base_msg.h), which this function
// translates, so pass the literal. Never allocates.
brim_status brim_fail(brim_status status, const char *fmt, ...) BRIM_PRINTF(2, 3);

// Like brim_fail, with a place in front, "file:line:col: "; line or col 0 is left out.
brim_status brim_fail_at(brim_status status, const char *file, int line, int col, const char *fmt,
                         ...) BRIM_PRINTF(5, 6);

// Puts "context: " in front of the current detail and returns `status`.
brim_status brim_fail_context(brim_status status, const char *fmt, ...) BRIM_PRINTF(2, 3);

// Sets the detail without translation, for plug-ins.
void brim_status_set_detail(const char *text);

void brim_status_clear(void);

// The status for an errno value (BRIM_EIO if no status is closer), and its text.
brim_status brim_errno_status(int err);
const char *brim_errno_text(int err);

// Returns early with a failure.
#define BRIM_TRY(expr)                             \
  do {                                             \
    brim_status brim_try_status_ = (expr);         \
    if (brim_try_status_) return brim_try_status_; \
  } while (0)

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_STATUS_H_
