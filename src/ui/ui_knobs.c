// Knobs in tables and reports: their names for people come from the rows of the workload.
#include <stdio.h>
#include <string.h>

#include "ui/ui_int.h"

static const char *text_of(const char *text, const char *name) {
  return brim_tr(text ? text : name);
}

const char *brim_ui_knob_label(const brim_result *of, const char *name) {
  const brim_knob_row *row = brim_result_knob_row(of, name);
  return text_of(row ? row->heading : NULL, name);
}

const char *brim_ui_knob_short_label(const brim_result *of, const char *name) {
  const brim_knob_row *row = brim_result_knob_row(of, name);
  return text_of(row ? row->narrow : NULL, name);
}

bool brim_ui_knob_is(const brim_result *of, const char *name, brim_knob_role role) {
  const brim_knob_row *row = brim_result_knob_row(of, name);
  return row && row->role == role;
}

bool brim_ui_knob_shown(const brim_result *results, size_t count, const char *name) {
  const brim_knob_row *row = count > 0 ? brim_result_knob_row(&results[0], name) : NULL;
  return (row && row->always) || brim_result_knob_varies(results, count, name);
}

void brim_ui_put_knobs(const brim_term *term, const brim_result *results, size_t count,
                       const brim_result *result, brim_str *out) {
  for (size_t i = 0; i < result->knob_count; i++) {
    const char *name = result->knobs[i].name;
    if (!brim_ui_knob_shown(results, count, name)) continue;
    const brim_knob_row *row = brim_result_knob_row(result, name);
    brim_ui_put_line(term, row && row->label ? brim_tr(row->label) : name, result->knobs[i].value,
                     out);
  }
}

const char *brim_ui_rate_unit(const brim_result *results, size_t count, char out[64]) {
  snprintf(out, 64, "%s/s",
           count > 0 ? brim_tr(brim_result_unit(&results[0])) : brim_tr("samples"));
  return out;
}

const char *brim_ui_rate_heading(const brim_result *results, size_t count, char out[64]) {
  brim_ui_rate_unit(results, count, out);
  if (out[0] >= 'a' && out[0] <= 'z') out[0] = (char)(out[0] - 'a' + 'A');
  return out;
}
