// Lines of a label and a value, and those that several summaries share.
#include <math.h>
#include <stdio.h>

#include "ui/ui_int.h"

void brim_ui_put_line(const brim_term *term, const char *label, const char *value, brim_str *out) {
  int width = brim_utf8_width(label) + 1;
  brim_str_printf(out, "  %s:", label);
  int gap = width < 18 ? 18 - width : 1;
  brim_str_repeat(out, ' ', (size_t)gap);
  brim_str text;
  brim_str_init(&text);
  brim_ui_fit(&text, term, value, 2 + width + gap);
  brim_ui_styled(out, term, BRIM_UI_BOLD, text.data);
  brim_str_append_char(out, '\n');
  if (brim_str_status(&text) && !out->status) out->status = text.status;
  brim_str_deinit(&text);
}

void brim_ui_put_memory(const brim_term *term, const brim_result *result, brim_str *out) {
  char bytes[32], text[128];
  double memory = brim_result_memory(result);
  brim_format_bytes((uint64_t)memory, bytes);
  double share = memory / result->free_bytes * 100;
  if (isnan(share) || isinf(share)) {
    snprintf(text, sizeof text, "%s", bytes);
  } else if (share < 0.1) {
    snprintf(text, sizeof text, brim_tr("%s (under 0.1 %% of what is free)"), bytes);
  } else {
    snprintf(text, sizeof text, brim_tr("%s (%.1f %% of what is free)"), bytes, brim_shown(share));
  }
  brim_ui_put_line(term, brim_tr("Memory planned"), text, out);
}

void brim_ui_put_rate(const brim_term *term, const brim_result *result, brim_str *out) {
  char rate[32], low[32], high[32], text[128];
  brim_ui_number(result->samples_per_s, rate);
  brim_ui_number(result->samples_per_s_low, low);
  brim_ui_number(result->samples_per_s_high, high);
  if (result->repeats == 1) {
    snprintf(text, sizeof text, brim_tr("%s %s/s (measured once)"), rate,
             brim_tr(brim_result_unit(result)));
  } else if (!brim_ui_interval_tells(result->samples_per_s_low, result->samples_per_s_high)) {
    snprintf(text, sizeof text, "%s %s/s", rate, brim_tr(brim_result_unit(result)));
  } else {
    snprintf(text, sizeof text, brim_tr("%s %s/s (95 %%: %s to %s)"), rate,
             brim_tr(brim_result_unit(result)), low, high);
  }
  brim_ui_put_line(term, brim_tr("Throughput"), text, out);
}
