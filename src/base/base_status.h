// Setting the thread-local failure detail. The public half is include/brim/status.h.
#ifndef BRIM_BASE_STATUS_H_
#define BRIM_BASE_STATUS_H_

#include <stddef.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// Set the detail and return `status`. `fmt` is an English catalogue message (see base_msg.h): it is
// translated here, so call sites pass the literal itself. Never allocates.
brim_status brim_fail(brim_status status, const char *fmt, ...) BRIM_PRINTF(2, 3);

// The same with a place in front: "file:line:col: ". col or line 0 leaves that part out.
brim_status brim_fail_at(brim_status status, const char *file, int line, int col, const char *fmt,
                         ...) BRIM_PRINTF(5, 6);

// Put "context: " in front of the detail that is already set, and return `status` unchanged.
brim_status brim_fail_context(brim_status status, const char *fmt, ...) BRIM_PRINTF(2, 3);

// Set the detail to literal text (no translation); used across the plug-in door.
void brim_status_set_detail(const char *text);

void brim_status_clear(void);

// The status that stands for an errno value (BRIM_EIO where there is no closer one) and its text.
brim_status brim_errno_status(int err);
const char *brim_errno_text(int err);

// Return early with the same status.
#define BRIM_TRY(expr)                             \
  do {                                             \
    brim_status brim_try_status_ = (expr);         \
    if (brim_try_status_) return brim_try_status_; \
  } while (0)

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_STATUS_H_
