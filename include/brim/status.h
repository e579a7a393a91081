// Status codes and failure details. A function that can fail returns a brim_status: 0 is success, negative is
// failure. The detail is thread-local text: what failed, where, and what to do. It is valid until the next failure
// on the thread.
#ifndef BRIM_STATUS_H_
#define BRIM_STATUS_H_

#if defined(__GNUC__)
#define BRIM_API __attribute__((visibility("default")))
#define BRIM_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define BRIM_API
#define BRIM_PRINTF(fmt, first)
#endif

#ifdef __cplusplus
extern "C" {
#endif

// X(name, value, text)
#define BRIM_STATUS_MAP(X)                         \
  X(OK, 0, "ok")                                   \
  X(ENOMEM, -1, "out of host memory")              \
  X(EINVAL, -2, "invalid argument")                \
  X(EPARSE, -3, "malformed input")                 \
  X(EIO, -4, "input/output error")                 \
  X(ENOENT, -5, "not found")                       \
  X(EEXIST, -6, "already exists")                  \
  X(EUNSUPPORTED, -7, "not supported")             \
  X(EDEVICE, -8, "device error")                   \
  X(EOOM, -9, "out of device memory")              \
  X(ESTATE, -10, "not possible in this state")     \
  X(ELIMIT, -11, "limit exceeded")                 \
  X(EABI, -12, "plug-in does not match this brim") \
  X(EINTERRUPTED, -13, "interrupted")              \
  X(EEND, -14, "end of data")                      \
  X(ECHILD, -15, "child process failed")           \
  X(EINTERNAL, -16, "internal error")              \
  X(ERANK, -17, "another rank failed")

typedef enum brim_status {
#define X(name, value, text) BRIM_##name = (value),
  BRIM_STATUS_MAP(X)
#undef X
} brim_status;

// Symbolic name ("BRIM_ENOMEM") and short text ("out of host memory") of a status.
BRIM_API const char *brim_status_name(brim_status status);
BRIM_API const char *brim_status_text(brim_status status);

// Detail of the last failure on this thread; "" when there was none.
BRIM_API const char *brim_status_detail(void);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_STATUS_H_
