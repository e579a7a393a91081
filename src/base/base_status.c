// The failure detail: a fixed thread-local buffer, so that reporting a failure never allocates or fails. Messages are
// formatted into a second buffer and then copied, because arguments may point into the old detail.
#include "base/base_status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/base_msg.h"
#include "base/base_str.h"

enum { DETAIL_SIZE = 4096 };

static _Thread_local char detail_text[DETAIL_SIZE];

const char *brim_status_name(brim_status status) {
  switch (status) {
#define X(name, value, text) \
  case BRIM_##name:          \
    return "BRIM_" #name;
    BRIM_STATUS_MAP(X)
#undef X
  }
  return "BRIM_?";
}

const char *brim_status_text(brim_status status) {
  switch (status) {
#define X(name, value, text) \
  case BRIM_##name:          \
    return brim_tr(text);
    BRIM_STATUS_MAP(X)
#undef X
  }
  return brim_tr("unknown status");
}

const char *brim_status_detail(void) { return detail_text; }

void brim_status_clear(void) { detail_text[0] = '\0'; }

static void store(const char *text) {
  size_t n = strlen(text);
  if (n >= DETAIL_SIZE) n = DETAIL_SIZE - 1;
  memmove(detail_text, text, n);
  detail_text[n] = '\0';
  if (n == DETAIL_SIZE - 1) brim_utf8_trim(detail_text);
  // Choose the Korean particles (base_msg.h) here and not in brim_fail, because details of plug-ins arrive
  // already formatted.
  if (brim_msg_has_particle(detail_text)) brim_msg_particles(detail_text, 0);
}

void brim_status_set_detail(const char *text) { store(text ? text : ""); }

brim_status brim_fail(brim_status status, const char *fmt, ...) {
  char text[DETAIL_SIZE];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, brim_tr(fmt), args);
  va_end(args);
  store(text);
  return status;
}

brim_status brim_fail_at(brim_status status, const char *file, int line, int col, const char *fmt,
                         ...) {
  char text[DETAIL_SIZE];
  int n = 0;
  if (line > 0 && col > 0) {
    n = snprintf(text, sizeof text, "%s:%d:%d: ", file ? file : "?", line, col);
  } else if (line > 0) {
    n = snprintf(text, sizeof text, "%s:%d: ", file ? file : "?", line);
  } else if (file) {
    n = snprintf(text, sizeof text, "%s: ", file);
  }
  size_t used = n < 0 ? 0 : (size_t)n >= sizeof text ? sizeof text - 1 : (size_t)n;
  va_list args;
  va_start(args, fmt);
  vsnprintf(text + used, sizeof text - used, brim_tr(fmt), args);
  va_end(args);
  store(text);
  return status;
}

brim_status brim_fail_context(brim_status status, const char *fmt, ...) {
  char text[2 * DETAIL_SIZE + 8];
  va_list args;
  va_start(args, fmt);
  int n = vsnprintf(text, DETAIL_SIZE, brim_tr(fmt), args);
  va_end(args);
  size_t used = n < 0 ? 0 : n >= DETAIL_SIZE ? DETAIL_SIZE - 1 : (size_t)n;
  if (detail_text[0]) snprintf(text + used, sizeof text - used, ": %s", detail_text);
  store(text);
  return status;
}

brim_status brim_errno_status(int err) {
  switch (err) {
    case 0:
      return BRIM_OK;
    case ENOMEM:
      return BRIM_ENOMEM;
    case EINVAL:
      return BRIM_EINVAL;
    case ENOENT:
    case ENOTDIR:
      return BRIM_ENOENT;
    case EEXIST:
      return BRIM_EEXIST;
    case EINTR:
      return BRIM_EINTERRUPTED;
    default:
      return BRIM_EIO;
  }
}

const char *brim_errno_text(int err) {
  // Repeats texts of the C library only so that tools/messages collects them for the catalogue; all other
  // texts stay English. The array is not used.
  static const char *const usual[] = {
      BRIM_N_("No such file or directory"),
      BRIM_N_("Permission denied"),
      BRIM_N_("No space left on device"),
      BRIM_N_("Read-only file system"),
      BRIM_N_("Is a directory"),
      BRIM_N_("Not a directory"),
      BRIM_N_("File exists"),
      BRIM_N_("Cannot allocate memory"),
      BRIM_N_("Input/output error"),
      BRIM_N_("Too many open files"),
      BRIM_N_("File too large"),
      BRIM_N_("Disk quota exceeded"),
      BRIM_N_("Device or resource busy"),
      BRIM_N_("Broken pipe"),
      BRIM_N_("Invalid argument"),
      BRIM_N_("Operation not permitted"),
      BRIM_N_("Directory not empty"),
      BRIM_N_("File name too long"),
      BRIM_N_("Too many levels of symbolic links"),
      BRIM_N_("Resource temporarily unavailable"),
      BRIM_N_("No such device or address"),
      BRIM_N_("Invalid cross-device link"),
  };
  (void)usual;
  const char *text = strerrordesc_np(err);  // static text; strerror's buffer is shared
  return text ? brim_tr(text) : brim_tr("unknown error");
}
