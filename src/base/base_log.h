// The logger: levels, a replaceable sink, and two sinks (lines for people, lines of JSON). Without a sink nothing
// is written.
#ifndef BRIM_BASE_LOG_H_
#define BRIM_BASE_LOG_H_

#include <stdbool.h>
#include <stdio.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum brim_log_level {
  BRIM_LOG_ERROR,
  BRIM_LOG_WARN,
  BRIM_LOG_INFO,
  BRIM_LOG_DEBUG,
  BRIM_LOG_LEVEL_COUNT
} brim_log_level;

// `module` is the room ("engine"), `text` one line without a newline.
typedef void (*brim_log_sink)(void *ctx, brim_log_level level, const char *module,
                              const char *text);

// The sink is process-wide, set by main before threads start. NULL sink turns logging off.
void brim_log_set_sink(brim_log_sink sink, void *ctx, brim_log_level max_level);
const char *brim_log_level_name(brim_log_level level);
// While true, this thread logs nothing. Returns the old value. For work that repeats messages already logged.
bool brim_log_hush(bool hush);

// fmt is a catalogue message (base_msg.h) and is translated here.
void brim_log_error(const char *module, const char *fmt, ...) BRIM_PRINTF(2, 3);
void brim_log_warn(const char *module, const char *fmt, ...) BRIM_PRINTF(2, 3);
void brim_log_info(const char *module, const char *fmt, ...) BRIM_PRINTF(2, 3);
void brim_log_debug(const char *module, const char *fmt, ...) BRIM_PRINTF(2, 3);
// Logs formatted text without translation, for plug-ins.
void brim_log_text(brim_log_level level, const char *module, const char *text);

// Two sinks; ctx is a FILE* (owned by the caller). Human: "brim: warning: text". JSON: one object per line with "t"
// (seconds, wall clock), "level", "module", "text".
void brim_log_sink_human(void *ctx, brim_log_level level, const char *module, const char *text);
void brim_log_sink_json(void *ctx, brim_log_level level, const char *module, const char *text);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_LOG_H_
