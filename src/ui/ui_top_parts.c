// Pieces of text of the live view of a machine: figures, bars, sparklines.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "ui/ui_top_int.h"

//---------------------------------- figures ----------------------------------

void brim_ui_top_percent(double percent, char out[16]) {
  percent = brim_shown(percent);
  if (!isfinite(percent) || fabs(percent) > 99999) {
    snprintf(out, 16, "-");
  } else if (percent > 0 && percent < 9.95) {
    snprintf(out, 16, "%.1f %%", percent);
  } else {
    snprintf(out, 16, "%.0f %%", percent);
  }
}

void brim_ui_top_whole(double value, char out[32]) {
  if (!isfinite(value) || fabs(value) > 1e15) {
    snprintf(out, 32, "-");
  } else {
    snprintf(out, 32, "%.0f", brim_shown(value));
  }
}

void brim_ui_top_count(int64_t value, char out[32]) {
  if (value < 0) {
    snprintf(out, 32, "-");
  } else {
    brim_format_count((double)value, out);
  }
}

void brim_ui_top_bytes(double bytes, char out[32]) {
  if (!(bytes >= 0) || bytes > 1e18) {
    snprintf(out, 32, "-");
  } else {
    brim_format_bytes((uint64_t)bytes, out);
  }
}

void brim_ui_top_rate(double bytes_per_s, char out[32]) {
  char text[32];
  brim_ui_top_bytes(bytes_per_s, text);
  snprintf(out, 32, *text == '-' ? "-" : "%.24s/s", text);
}

void brim_ui_top_energy(double joules, char out[32]) {
  if (!(joules >= 0) || joules > 1e18) {
    snprintf(out, 32, "-");
  } else if (joules >= 3.6e6) {
    snprintf(out, 32, "%.1f kWh", brim_shown(joules / 3.6e6));
  } else if (joules >= 36000) {
    snprintf(out, 32, "%.0f Wh", brim_shown(joules / 3600));
  } else {
    snprintf(out, 32, "%.1f Wh", brim_shown(joules / 3600));
  }
}

void brim_ui_top_clock(double when_s, char out[16]) {
  struct tm local;
  snprintf(out, 16, "-");
  if (!(fabs(when_s) < 1e11)) return;
  time_t when = (time_t)when_s;
  if (!localtime_r(&when, &local)) return;
  snprintf(out, 16, "%02d:%02d:%02d", local.tm_hour % 24, local.tm_min % 60, local.tm_sec % 61);
}

const char *brim_ui_top_target(brim_top_flag flag, brim_ui_style *style) {
  *style = flag == BRIM_TOP_YES ? BRIM_UI_GOOD : flag == BRIM_TOP_NO ? BRIM_UI_WARN : BRIM_UI_PLAIN;
  return flag == BRIM_TOP_YES ? brim_tr("met") : flag == BRIM_TOP_NO ? brim_tr("missed") : "";
}

//---------------------------------- pictures ----------------------------------

void brim_ui_top_bar(brim_str *out, const brim_term *term, double percent, int width,
                     brim_ui_style style) {
  double share = isfinite(percent) ? percent / 100 : 0;
  int filled = share <= 0 ? 0 : share >= 1 ? width : (int)(share * width + 0.5);
  if (filled == 0 && share > 0.005) filled = 1;
  brim_str part;
  brim_str_init(&part);
  for (int i = 0; i < filled; i++) brim_str_append(&part, term->unicode ? "█" : "#");
  brim_ui_styled(out, term, style, part.data);
  brim_str_clear(&part);
  for (int i = filled; i < width; i++) brim_str_append(&part, term->unicode ? "░" : ".");
  brim_ui_styled(out, term, BRIM_UI_DIM, part.data);
  if (part.status && !out->status) out->status = part.status;
  brim_str_deinit(&part);
}

void brim_ui_top_spark(brim_str *out, const brim_term *term, const float *ring, size_t count,
                       size_t next, int width) {
  static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static const char *const plain[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
  for (int i = 0; i < width && ring; i++) {
    size_t back = (size_t)(width - i);
    if (back > count) continue;  // it grows from the left
    float value = ring[(next + BRIM_UI_TOP_SAMPLES - back) % BRIM_UI_TOP_SAMPLES];
    if (!isfinite(value)) {
      brim_str_append_char(out, ' ');
      continue;
    }
    int level = value <= 0 ? 0 : value >= 100 ? 7 : (int)(value / 12.5f);
    brim_str_append(out, term->unicode ? blocks[level] : plain[level]);
  }
}

//---------------------------------- lines ----------------------------------

void brim_ui_top_pad(brim_str *line, int column) {
  int used = brim_utf8_width(line->data);
  if (used < column) brim_str_repeat(line, ' ', (size_t)(column - used));
}

void brim_ui_top_put(brim_str *line, const brim_term *term, brim_ui_style style, const char *text,
                     int room) {
  if (room <= 0 || !*text) return;
  brim_str clipped;
  brim_str_init(&clipped);
  brim_ui_clip(&clipped, term, text, room);
  brim_ui_styled(line, term, style, clipped.data);
  if (clipped.status && !line->status) line->status = clipped.status;
  brim_str_deinit(&clipped);
}

void brim_ui_top_drop_rule(const brim_str *from, brim_str *out) {
  const char *header = from->data, *rule = strchr(header, '\n');
  if (!rule) return;
  brim_str_append_n(out, header, (size_t)(rule + 1 - header));
  const char *rows = strchr(rule + 1, '\n');
  if (rows) brim_str_append(out, rows + 1);
}
