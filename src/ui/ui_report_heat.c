// The heat map: one metric over two knobs, best (or least) over the others. Drawn here for the two
// knobs that matter most; the page's script draws it again for others, from the table.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_report_int.h"

// Metrics worth a map; of time and memory the least of the others is shown, else the most.
static const struct heat_metric {
  const char *key;
  bool least;
} heat_metrics[] = {
    {"rate", false}, {"total", true},  {"io", true},          {"memory", true},
    {"gpu", false},  {"sm", false},    {"tensor", false},     {"dram", false},
    {"cpu", false},  {"power", false}, {"efficiency", false}, {"energy", true},
};

static size_t swept(const brim_ui_view *view, const char **out) {
  const brim_result *first = &view->results[0];
  size_t n = 0;
  for (size_t k = 0; k < first->knob_count; k++) {
    if (!brim_result_knob_varies(view->results, view->count, first->knobs[k].name)) continue;
    out[n++] = first->knobs[k].name;
  }
  return n;
}

// The knob, x aside, whose values differ most in their best throughput.
static const char *strongest(const brim_ui_view *view, const char *const *knobs, size_t count) {
  const char *best = NULL;
  double most = -1;
  for (size_t k = 0; k < count; k++) {
    const char *values[BRIM_UI_MAX_VALUES];
    double low = INFINITY, high = 0;
    if (view->x && strcmp(knobs[k], view->x) == 0) continue;
    size_t n = brim_ui_knob_values(view, knobs[k], values);
    for (size_t v = 0; v < n; v++) {
      double rate = 0;
      for (size_t i = 0; i < view->count; i++) {
        const brim_result *r = &view->results[i];
        if (brim_result_ran(r) && strcmp(brim_ui_knob_value(r, knobs[k]), values[v]) == 0) {
          rate = fmax(rate, r->samples_per_s);
        }
      }
      low = fmin(low, rate);
      high = fmax(high, rate);
    }
    double gain = high > 0 ? (high - low) / high : 0;
    if (gain > most) {
      most = gain;
      best = knobs[k];
    }
  }
  return best;
}

typedef struct cell {
  double rate;
  bool oom, recommended;  // has the recommended setting
} cell;

static cell cell_of(const brim_ui_view *view, const char *row_knob, const char *row,
                    const char *column_knob, const char *column) {
  cell c = {.rate = NAN};
  for (size_t i = 0; i < view->count; i++) {
    const brim_result *r = &view->results[i];
    if (strcmp(brim_ui_knob_value(r, row_knob), row) != 0 ||
        strcmp(brim_ui_knob_value(r, column_knob), column) != 0) {
      continue;
    }
    c.recommended = c.recommended || (int)i == view->picks.recommended;
    c.oom = c.oom || brim_result_is_oom(r);
    if (brim_result_ran(r)) c.rate = fmax(c.rate, r->samples_per_s);  // fmax passes over NaN
  }
  return c;
}

static void put_cell(cell c, double low, double high, brim_str *out) {
  char text[32];
  if (isnan(c.rate)) {
    brim_str_append(out, "<td class=\"none\">");
    brim_ui_escape_html(out, c.oom ? "OOM" : BRIM_UI_DASH);
    brim_str_append(out, "</td>");
    return;
  }
  double q = high > low ? (c.rate - low) / (high - low) * 100 : 100;
  brim_ui_number(c.rate, text);
  // the colour of the recommendation is the recommended setting's alone
  const char *mark = c.recommended ? " class=\"best\"" : c.rate == high ? " class=\"top\"" : "";
  brim_str_printf(out, "<td%s style=\"--q:%.0f\">%s</td>", mark, q, text);
}

static void put_map(const brim_ui_view *view, const char *row_knob, const char *column_knob,
                    brim_str *out) {
  const char *rows[BRIM_UI_MAX_VALUES], *columns[BRIM_UI_MAX_VALUES];
  size_t nr = brim_ui_knob_values(view, row_knob, rows);
  size_t nc = brim_ui_knob_values(view, column_knob, columns);
  double low = INFINITY, high = 0;
  for (size_t i = 0; i < nr * nc; i++) {
    cell c = cell_of(view, row_knob, rows[i / nc], column_knob, columns[i % nc]);
    low = fmin(low, c.rate);
    high = fmax(high, c.rate);
  }
  brim_str_append(out, "<table class=\"heat\" id=\"heat-map\"><thead><tr><th class=\"corner\">");
  brim_ui_escape_html(out, brim_ui_knob_label(view->shown, row_knob));
  brim_str_append(out, " \\ ");
  brim_ui_escape_html(out, brim_ui_knob_label(view->shown, column_knob));
  brim_str_append(out, "</th>");
  for (size_t k = 0; k < nc; k++) brim_ui_put(out, "th", columns[k]);
  brim_str_append(out, "</tr></thead><tbody>\n");
  for (size_t i = 0; i < nr; i++) {
    brim_str_append(out, "<tr>");
    brim_ui_put(out, "th", rows[i]);
    for (size_t k = 0; k < nc; k++) {
      put_cell(cell_of(view, row_knob, rows[i], column_knob, columns[k]), low, high, out);
    }
    brim_str_append(out, "</tr>\n");
  }
  brim_str_append(out, "</tbody></table>");
}

static void put_choice(const brim_result *of, const char *id, const char *label,
                       const char *const *knobs, size_t count, const char *chosen, brim_str *out) {
  brim_str_append(out, "<label>");
  brim_ui_escape_html(out, label);
  brim_str_printf(out, " <select id=\"%s\">", id);
  for (size_t i = 0; i < count; i++) {
    brim_str_append(out, "<option");
    brim_ui_put_attribute(out, "value", knobs[i]);
    brim_str_append(out, strcmp(knobs[i], chosen) == 0 ? " selected=\"selected\">" : ">");
    brim_ui_escape_html(out, brim_ui_knob_label(of, knobs[i]));
    brim_str_append(out, "</option>");
  }
  brim_str_append(out, "</select></label>");
}

static void put_metric_choice(const brim_ui_view *view, brim_str *out) {
  brim_str_append(out, "<label>");
  brim_ui_escape_html(out, brim_tr("Shown"));
  brim_str_append(out, " <select id=\"heat-metric\">");
  for (size_t i = 0; i < sizeof heat_metrics / sizeof heat_metrics[0]; i++) {
    const brim_ui_metric *metric = brim_ui_metric_find(heat_metrics[i].key);
    if (!brim_ui_metric_known(view, metric)) continue;
    brim_str_printf(out, "<option value=\"%s\"%s>", metric->key,
                    heat_metrics[i].least ? " data-least=\"1\"" : "");
    brim_ui_escape_html(out, brim_tr(metric->label));
    brim_str_append(out, "</option>");
  }
  brim_str_append(out, "</select></label>");
}

void brim_ui_report_heat(const brim_ui_view *view, brim_str *out) {
  const char *knobs[BRIM_RESULT_MAX_KNOBS];
  size_t n = swept(view, knobs);
  if (n < 2 || !brim_ui_any_ran(view)) return;
  const char *column = strongest(view, knobs, n);
  const char *row =
      view->x && brim_result_knob_varies(view->results, view->count, view->x) ? view->x : knobs[0];
  if (strcmp(row, column) == 0) row = knobs[strcmp(knobs[0], column) == 0 ? 1 : 0];
  brim_ui_put_section(out, "map", brim_tr("Two knobs at a time"),
                      n > 2 ? brim_tr("Each cell shows the best value over all other knobs; a "
                                      "stronger colour means a higher value.")
                            : brim_tr("A stronger colour means a higher value."));
  brim_str_append(out, "<p class=\"note still\">");
  char rate[64];
  brim_ui_escape_html(out, brim_ui_rate_unit(view->results, view->count, rate));
  brim_str_append(out, "</p>\n");
  brim_str_append(out, "<div class=\"tools js\">");
  put_choice(view->shown, "heat-row", brim_tr("Rows"), knobs, n, row, out);
  put_choice(view->shown, "heat-column", brim_tr("Columns"), knobs, n, column, out);
  put_metric_choice(view, out);
  brim_str_append(out, "</div>\n<div class=\"scroll\">");
  put_map(view, row, column, out);
  brim_str_append(out, "</div>\n</section>\n");
}
