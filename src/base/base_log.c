// The logger. A line is formatted on the stack and written with one call, so that lines of several threads do not mix.
#include "base/base_log.h"

#include <stdarg.h>
#include <string.h>

#include "base/base_clock.h"
#include "base/base_msg.h"
#include "base/base_text.h"

enum { LINE_SIZE = 4096 };

// Written by main before threads start.
static brim_log_sink log_sink;
static void *log_ctx;
static brim_log_level log_max = BRIM_LOG_INFO;

static _Thread_local bool hushed;  // true: this thread logs nothing (brim_log_hush)

void brim_log_set_sink(brim_log_sink sink, void *ctx, brim_log_level max_level) {
  log_sink = sink;
  log_ctx = ctx;
  log_max = max_level;
}

const char *brim_log_level_name(brim_log_level level) {
  static const char *const names[BRIM_LOG_LEVEL_COUNT] = {"error", "warning", "info", "debug"};
  return (unsigned)level < BRIM_LOG_LEVEL_COUNT ? names[level] : "?";
}

bool brim_log_hush(bool hush) {
  bool before = hushed;
  hushed = hush;
  return before;
}

void brim_log_text(brim_log_level level, const char *module, const char *text) {
  if (log_sink && level <= log_max && !hushed) log_sink(log_ctx, level, module ? module : "", text);
}

static void log_line(brim_log_level level, const char *module, const char *fmt, va_list args) {
  if (!log_sink || level > log_max || hushed) return;
  char text[LINE_SIZE];
  vsnprintf(text, sizeof text, fmt, args);
  if (brim_msg_has_particle(text)) brim_msg_particles(text, 0);
  brim_log_text(level, module, text);
}

#define LOG_BODY(level)                        \
  va_list args;                                \
  va_start(args, fmt);                         \
  log_line(level, module, brim_tr(fmt), args); \
  va_end(args)

void brim_log_error(const char *module, const char *fmt, ...) { LOG_BODY(BRIM_LOG_ERROR); }
void brim_log_warn(const char *module, const char *fmt, ...) { LOG_BODY(BRIM_LOG_WARN); }
void brim_log_info(const char *module, const char *fmt, ...) { LOG_BODY(BRIM_LOG_INFO); }
void brim_log_debug(const char *module, const char *fmt, ...) { LOG_BODY(BRIM_LOG_DEBUG); }

void brim_log_sink_human(void *ctx, brim_log_level level, const char *module, const char *text) {
  FILE *file = ctx;
  char plain[LINE_SIZE];
  if (!brim_text_is_plain(text, strlen(text))) {
    brim_text_plain(text, plain, sizeof plain);
    text = plain;
  }
  if (level == BRIM_LOG_DEBUG) {
    fprintf(file, "brim: %s: %s: %s\n", brim_log_level_name(level), module, text);
  } else if (level == BRIM_LOG_INFO) {
    fprintf(file, "brim: %s\n", text);
  } else {
    fprintf(file, "brim: %s: %s\n", level == BRIM_LOG_ERROR ? brim_tr("error") : brim_tr("warning"),
            text);
  }
  fflush(file);
}

// Escapes text for a JSON string; cut off if it does not fit.
static size_t escape_json(const char *text, char *out, size_t size) {
  size_t n = 0;
  for (const unsigned char *p = (const unsigned char *)text; *p && n + 7 < size; p++) {
    if (*p == '"' || *p == '\\') {
      out[n++] = '\\';
      out[n++] = (char)*p;
    } else if (*p == '\n') {
      out[n++] = '\\';
      out[n++] = 'n';
    } else if (*p < 0x20) {
      n += (size_t)snprintf(out + n, size - n, "\\u%04x", *p);
    } else {
      out[n++] = (char)*p;
    }
  }
  out[n] = '\0';
  return n;
}

void brim_log_sink_json(void *ctx, brim_log_level level, const char *module, const char *text) {
  char plain[LINE_SIZE], escaped[2 * LINE_SIZE], body[2 * LINE_SIZE], where[64];
  bool valid = brim_utf8_valid(text, strlen(text));  // JSON must be UTF-8
  if (!valid) brim_text_plain(text, plain, sizeof plain);
  escape_json(valid ? text : plain, escaped, sizeof escaped);
  // replaces characters that a terminal may act on by \uXXXX, which is valid JSON
  brim_text_plain(escaped, body, sizeof body);
  escape_json(module, where, sizeof where);
  // print microseconds as integers, since the decimal point depends on the locale
  long long us = (long long)(brim_clock_wall_s() * 1e6);
  fprintf(ctx, "{\"t\":%lld.%06lld,\"level\":\"%s\",\"module\":\"%s\",\"text\":\"%s\"}\n",
          us / 1000000, us % 1000000, brim_log_level_name(level), where, body);
  fflush(ctx);
}
