// The charts of a bench's report: bars of a step's time, the ladder of utilisation, the heat map, line charts
// against the batch size, several devices.

#include "ui/ui_report_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

//--------------------------------------------- bars ---------------------------------------------
// The parts of the report that are bars: where the time of a step goes, the ladder of utilisation,
// the ceilings, the plan of a setting. Plain HTML whose widths are in the style attributes, so that
// text keeps its size on a phone and on paper.

enum { MAX_STACK_ROWS = 400 };  // more would make the file large; the table has them all

//---------------------------------- phases ----------------------------------

static bool phase_known(const brim_ui_view *view, int phase) {
  size_t n;
  const brim_ui_metric *metrics = brim_ui_metrics(&n);
  for (size_t i = 0; i < n; i++) {
    if (metrics[i].phase == phase) return brim_ui_metric_known(view, &metrics[i]);
  }
  return false;
}

static void put_phase_legend(const brim_ui_view *view, brim_str *out) {
  brim_str_append(out, "<ul class=\"legend\">");
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    if (!phase_known(view, p)) continue;
    brim_str_printf(out, "<li data-p=\"%d\"><i class=\"sw p%d\"></i>", p, p);
    brim_ui_escape_html(out, brim_ui_phase_name(p));
    brim_str_append(out, "</li>");
  }
  brim_str_append(out, "</ul>\n");
}

static void put_stack_row(const brim_ui_view *view, const brim_result *r, const char *label,
                          brim_str *out) {
  bool ran = r->failure == BRIM_FAILURE_NONE && r->total_ms.median > 0;
  char text[32];
  brim_str_printf(out, "<div class=\"sr%s\"", r == view->shown ? " on" : "");
  if (ran) brim_str_printf(out, " style=\"--t:%.4g\"", r->total_ms.median);
  brim_str_append(out, "><span class=\"sx\">");
  brim_ui_escape_html(out, label);
  brim_str_append(out, "</span><span class=\"sb\">");
  if (ran) {
    brim_str_append(out, "<b>");
    for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
      double ms = r->phase_used[p] ? brim_ui_phase_ms(r, p) : NAN;
      // Below a thousandth of the step it is no line on any screen.
      if (!(ms > r->total_ms.median * 0.001)) continue;
      brim_str_printf(out, "<i class=\"p%d\" style=\"--v:%.4g\"></i>", p, ms);
    }
    brim_str_append(out, "</b>");
    brim_ui_ms(r->total_ms.median, text);
  } else {
    brim_str_append(out, "<em>");
    brim_ui_escape_html(out, brim_ui_failure_text(r));
    brim_str_append(out, "</em>");
    snprintf(text, sizeof text, "%s", BRIM_UI_DASH);
  }
  brim_str_printf(out, "</span><span class=\"sv\">%s</span></div>\n", text);
}

typedef struct group_list {
  const brim_ui_view *view;
  char (*names)[BRIM_UI_GROUP_NAME];  // of each result
  bool one;                           // x was not swept: all settings are one group
} group_list;

static bool first_of_group(const group_list *g, size_t index) {
  for (size_t i = 0; i < index; i++) {
    if (strcmp(g->names[i], g->names[index]) == 0) return false;
  }
  return true;
}

static size_t put_group(const group_list *g, size_t first, size_t number, brim_str *out) {
  const brim_ui_view *view = g->view;
  double longest = 0;
  size_t rows = 0;
  for (size_t i = 0; i < view->count; i++) {
    if (strcmp(g->names[i], g->names[first]) != 0) continue;
    longest = fmax(longest, view->results[i].total_ms.median);
    rows++;
  }
  brim_str_printf(out, "<div class=\"sg\" data-g=\"%zu\" style=\"--max:%.4g\"%s>\n", number,
                  longest > 0 ? longest : 1, number ? " hidden=\"hidden\"" : "");
  if (g->names[first][0]) {  // a script has it in its choice
    brim_str_append(out, "<h3 class=\"still\">");
    brim_ui_escape_html(out, g->names[first]);
    brim_str_append(out, "</h3>\n");
  }
  for (size_t i = 0; i < view->count; i++) {
    char label[BRIM_UI_GROUP_NAME];
    if (strcmp(g->names[i], g->names[first]) != 0) continue;
    if (g->one) {
      brim_ui_setting_name(view, &view->results[i], label);
    } else {
      snprintf(label, sizeof label, "%s", brim_ui_knob_value(&view->results[i], view->x));
    }
    put_stack_row(view, &view->results[i], label, out);
  }
  brim_str_append(out, "</div>\n");
  return rows;
}

// Every group, that of the shown setting first, as long as rows are left.
static size_t each_group(const group_list *g, bool names_only, brim_str *out) {
  size_t number = 0, rows = 0, shown = (size_t)(g->view->shown - g->view->results);
  for (size_t pass = 0; pass < 2; pass++) {
    for (size_t i = 0; i < g->view->count; i++) {
      bool of_shown = strcmp(g->names[i], g->names[shown]) == 0;
      if (!first_of_group(g, i) || of_shown != (pass == 0)) continue;
      if (rows >= MAX_STACK_ROWS) continue;
      for (size_t k = 0; names_only && k < g->view->count; k++) {
        rows += strcmp(g->names[k], g->names[i]) == 0;
      }
      if (names_only) {
        brim_str_printf(out, "<option value=\"%zu\">", number);
        brim_ui_escape_html(out, g->names[i]);
        brim_str_append(out, "</option>");
      } else {
        rows += put_group(g, i, number, out);
      }
      number++;
    }
  }
  return number;
}

static void put_stack_tools(const group_list *g, brim_str *out) {
  brim_str names;
  brim_str_init(&names);
  size_t groups = each_group(g, true, &names);
  brim_str_append(out, "<div class=\"tools js\">");
  if (groups > 1) {
    brim_str_append(out, "<label>");
    brim_ui_escape_html(out, brim_tr("Settings"));
    brim_str_append(out, " <select id=\"stack-group\">");
    brim_str_append(out, names.data);
    brim_str_append(out, "</select></label>");
  }
  brim_str_append(out, "<span class=\"seg\" id=\"stack-scale\">");
  brim_str_append(out, "<button type=\"button\" data-v=\"ms\" aria-pressed=\"true\">");
  brim_ui_escape_html(out, brim_tr("ms per step"));
  brim_str_append(out, "</button><button type=\"button\" data-v=\"share\" aria-pressed=\"false\">");
  brim_ui_escape_html(out, brim_tr("share of the step"));
  brim_str_append(out, "</button></span></div>\n");
  if (brim_str_status(&names)) out->status = names.status;
  brim_str_deinit(&names);
}

brim_status brim_ui_report_phases(const brim_ui_view *view, brim_str *out) {
  group_list g = {.view = view};
  bool any = false;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) any = any || phase_known(view, p);
  if (!any) return BRIM_OK;
  g.one = !view->x || !brim_result_knob_varies(view->results, view->count, view->x);
  g.names = brim_calloc(view->count, sizeof *g.names);
  if (!g.names) return brim_fail(BRIM_ENOMEM, "out of memory while drawing the report");
  for (size_t i = 0; !g.one && i < view->count; i++) {
    brim_ui_group_name(view, &view->results[i], g.names[i]);
  }
  brim_ui_put_section(out, "phases", brim_tr("Where a step's time goes"),
                      brim_tr("Milliseconds per step. The step waits for waited I/O and exposed "
                              "H2D; they exclude time that overlaps with computing."));
  put_stack_tools(&g, out);
  put_phase_legend(view, out);
  brim_str_printf(out, "<div class=\"stack%s\" id=\"stack\">\n<div class=\"sr sh\"><span>",
                  g.one ? " wide" : "");
  if (view->x && !g.one) brim_ui_escape_html(out, brim_ui_knob_label(view->shown, view->x));
  brim_str_append(out, "</span><span></span><span class=\"sv\">ms</span></div>\n");
  each_group(&g, false, out);
  brim_str_append(out, "</div>\n</section>\n");
  brim_free(g.names);
  return brim_str_status(out);
}

//---------------------------------- ladder ----------------------------------

// <div class="bar"> with a name, a track filled to `share` percent and a text.
static void put_bar(const char *name, double share, const char *text, const char *kind,
                    const char *attributes, brim_str *out) {
  brim_str_printf(out, "<div class=\"bar %s\"%s><span>", kind, attributes);
  brim_ui_escape_html(out, name);
  brim_str_append(out, "</span><b>");
  if (share > 0) brim_str_printf(out, "<i style=\"--v:%.4g\"></i>", fmin(share, 100));
  brim_str_append(out, "</b><span class=\"v\">");
  brim_ui_escape_html(out, text);
  brim_str_append(out, "</span></div>\n");
}

static void put_rung(const brim_ui_rung *rung, const brim_result *r, brim_str *out) {
  const brim_ui_metric *metric = brim_ui_metric_find(rung->key);
  double value = brim_ui_metric_value(metric, r), limit = rung->limit(r);
  char number[32], unit[48], text[96], attributes[160];
  brim_ui_metric_text(metric, value, number);
  snprintf(unit, sizeof unit, "%s", rung->unit);
  if (unit[0] && isfinite(limit) && limit != 100) {  // " W of 700 W"
    snprintf(unit, sizeof unit, brim_tr("%s of %.0f%s"), rung->unit, limit, rung->unit);
  }
  snprintf(text, sizeof text, "%s%s", number, isnan(value) ? "" : unit);
  snprintf(attributes, sizeof attributes, " data-key=\"%s\" data-unit=\"%s\" data-max=\"%.6g\"",
           rung->key, unit, isfinite(limit) ? limit : 0);
  put_bar(brim_tr(metric->label), brim_ui_rung_share(rung, r), text, "rung", attributes, out);
}

static void put_ladder_choice(const brim_ui_view *view, brim_str *out) {
  char name[BRIM_UI_GROUP_NAME];
  brim_str_append(out, "<div class=\"tools js\"><label>");
  brim_ui_escape_html(out, brim_tr("Setting"));
  brim_str_append(out, " <select id=\"ladder-row\">");
  for (size_t i = 0; i < view->count; i++) {
    const brim_result *r = &view->results[i];
    if (!brim_result_ran(r)) continue;
    brim_ui_setting_name(view, r, name);
    brim_str_printf(out, "<option value=\"%zu\"%s>", i,
                    r == view->shown ? " selected=\"selected\"" : "");
    brim_ui_escape_html(out, name);
    brim_str_append(out, "</option>");
  }
  brim_str_append(out, "</select></label></div>\n");
}

void brim_ui_report_ladder(const brim_ui_view *view, brim_str *out) {
  const brim_ui_rung *rungs[BRIM_UI_MAX_RUNGS];
  char name[BRIM_UI_GROUP_NAME];
  size_t n = brim_ui_rungs(view, rungs);
  if (n == 0) return;
  brim_ui_setting_name(view, view->shown, name);
  brim_str_append(out, "<figure class=\"panel\" id=\"ladder\"><figcaption>");
  brim_ui_escape_html(out, brim_tr("Utilisation ladder"));
  brim_str_append(out, "</figcaption>\n<p class=\"note still\">");
  brim_ui_escape_html(out, name);
  brim_str_append(out, "</p>\n");
  put_ladder_choice(view, out);
  for (size_t i = 0; i < n; i++) put_rung(rungs[i], view->shown, out);
  if (view->gpu) {
    brim_ui_put(out, "p",
                brim_tr("From the top: share of time a kernel ran; share of SMs with work; "
                        "occupied warps per SM; tensor cores; device memory. A large drop from one "
                        "bar to the next shows where the device idles."));
  }
  brim_str_append(out, "</figure>\n");
}

//---------------------------------- ceilings ----------------------------------

static void put_ceiling(const char *name, double rate, double most, const char *kind,
                        brim_str *out) {
  char number[32], text[64];
  if (isnan(rate)) return;
  brim_ui_number(rate, number);
  snprintf(text, sizeof text, "%s", number);
  put_bar(name, rate / most * 100, text, kind, "", out);
}

// A share over 100 % is no share: the stage alone was slower than both together.
static void put_ceiling_share(const brim_result *r, brim_str *out) {
  double data = r->data_samples_per_s, device = r->compute_samples_per_s;
  double lower = fmin(data, device), share = r->samples_per_s / lower * 100;  // of the known
  const char *stage = lower == device ? brim_tr("computing") : brim_tr("loading");
  char text[160];
  if (!isfinite(share)) return;
  if (share > 100) {
    snprintf(text, sizeof text,
             brim_tr("%s alone was slower than both together: other programs used the machine when "
                     "brim measured it."),
             stage);
    brim_str_append(out, "<p class=\"warn\">");
    brim_ui_escape_html(out, text);
    brim_str_append(out, "</p>");
    return;
  }
  snprintf(text, sizeof text,
           isnan(data) || isnan(device) ? brim_tr("%.0f %% of %s alone.")
                                        : brim_tr("%.0f %% of the slower stage (%s)."),
           brim_shown(share), stage);
  brim_ui_put(out, "p", text);
}

void brim_ui_report_ceilings(const brim_ui_view *view, brim_str *out) {
  const brim_result *r = view->shown;
  double data = r->data_samples_per_s, device = r->compute_samples_per_s, now = r->samples_per_s;
  char name[BRIM_UI_GROUP_NAME], rate[64], title[128];
  if (!(data > 0) && !(device > 0)) return;
  double most = fmax(fmax(data, device), now);
  brim_ui_setting_name(view, r, name);
  brim_str_append(out, "<figure class=\"panel\" id=\"ceilings\"><figcaption>");
  snprintf(title, sizeof title, brim_tr("Ceilings of this job, %s"), brim_ui_rate_unit(r, 1, rate));
  brim_ui_escape_html(out, title);
  brim_str_append(out, "</figcaption>\n<p class=\"note\">");
  brim_ui_escape_html(out, name);
  brim_str_append(out, "</p>\n");
  put_ceiling(brim_tr("Data alone"), data, most, "data", out);
  put_ceiling(brim_tr("Device alone"), device, most, "device", out);
  put_ceiling(brim_tr("Together"), now, most, "now", out);
  put_ceiling_share(r, out);
  brim_str_append(out, "</figure>\n");
}

//---------------------------------- plan ----------------------------------

static void put_plan_row(const char *name, const char *place, double bytes, double whole,
                         const char *kind, brim_str *out) {
  char text[32];
  brim_ui_bytes_text(bytes, text);
  brim_str_printf(out, "<tr class=\"%s\">", kind);
  brim_ui_put(out, "th", name);
  brim_ui_put(out, "td", place);
  brim_ui_put(out, "td", text);
  brim_str_append(out, "<td class=\"part\">");
  if (bytes >= 0 && whole > 0) {
    brim_str_printf(out, "<b><i style=\"--v:%.3g\"></i></b>", fmin(bytes / whole * 100, 100));
  }
  brim_str_append(out, "</td></tr>\n");
}

static void put_facts(const brim_result *r, brim_str *out) {
  char text[64], number[32];
  brim_str_append(out, "<dl class=\"facts\">\n");
  if (r->plan.parameter_count) {
    brim_format_count((double)r->plan.parameter_count, number);
    brim_ui_put(out, "dt", brim_tr("Parameters"));
    brim_ui_put(out, "dd", number);
  }
  if (r->plan.flops_per_step > 0) {
    brim_format_count(r->plan.flops_per_step, number);
    snprintf(text, sizeof text, "%s FLOP", number);
    brim_ui_put(out, "dt", brim_tr("Arithmetic per step"));
    brim_ui_put(out, "dd", text);
  }
  if (r->plan.bytes_per_step > 0) {
    brim_ui_bytes_text(r->plan.bytes_per_step, text);
    brim_ui_put(out, "dt", brim_tr("Memory traffic per step, at least"));
    brim_ui_put(out, "dd", text);
  }
  if (r->plan.recomputed > 0) {
    snprintf(text, sizeof text, brim_tr("%d of %d"), r->plan.recomputed, r->plan.segments);
    brim_ui_put(out, "dt", brim_tr("Blocks recomputed"));
    brim_ui_put(out, "dd", text);
  }
  brim_str_append(out, "</dl>\n");
}

void brim_ui_report_plan(const brim_ui_view *view, brim_str *out) {
  const brim_result *r = view->shown;
  const char *places[BRIM_PLACE_COUNT] = {brim_tr("device"), brim_tr("host")};
  char name[BRIM_UI_GROUP_NAME];
  double whole = (double)r->plan.bytes[BRIM_PLACE_DEVICE] + (double)r->plan.bytes[BRIM_PLACE_HOST];
  if (r->plan.row_count == 0) return;
  brim_ui_setting_name(view, r, name);
  brim_ui_put_section(out, "plan", brim_tr("Memory plan"), name);
  brim_str_append(out, "<div class=\"two\"><table class=\"plan\">\n<tbody>\n");
  for (size_t i = 0; i < r->plan.row_count; i++) {
    const brim_plan_row *row = &r->plan.rows[i];
    put_plan_row(brim_tr(row->name), places[row->place], (double)row->bytes, whole, "", out);
  }
  for (int i = 0; i < BRIM_PLACE_COUNT; i++) {
    if (r->plan.bytes[i] == 0) continue;
    put_plan_row(brim_tr("planned"), places[i], (double)r->plan.bytes[i], whole, "sum", out);
  }
  if (brim_result_has_gpu(r)) {
    put_plan_row(brim_tr("overhead (CUDA context, libraries)"), places[BRIM_PLACE_DEVICE],
                 r->overhead_bytes, NAN, "more", out);
    put_plan_row(brim_tr("in all"), places[BRIM_PLACE_DEVICE], r->real_bytes, NAN, "more", out);
  }
  put_plan_row(brim_tr("process at its peak"), places[BRIM_PLACE_HOST], r->peak_rss_bytes, NAN,
               "more", out);
  put_plan_row(brim_tr("free at the start"),
               places[brim_result_has_gpu(r) ? BRIM_PLACE_DEVICE : BRIM_PLACE_HOST], r->free_bytes,
               NAN, "more", out);
  brim_str_append(out, "</tbody></table>\n");
  put_facts(r, out);
  brim_str_append(out, "</div>\n</section>\n");
}

//------------------------------------------- heat map -------------------------------------------
// The heat map: one metric over two knobs, best (or least) over the others. Drawn here for the two
// knobs that matter most; the page's script draws it again for others, from the table.

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

//----------------------------------------- line charts -----------------------------------------
// Which points the report's line charts have: throughput, memory and utilisation against the batch
// size. A line is a worker count and a precision; of settings that differ in other knobs only, the
// fastest is drawn. How they are drawn is in ui_html.c.

enum { NEUTRAL = 4 };  // the grey of the colours

typedef struct lines {
  const brim_ui_view *view;
  const char *colour_values[BRIM_UI_MAX_VALUES], *dash_values[BRIM_UI_MAX_VALUES];
  size_t colours, dashes;  // drawn; 0 = the knob was not swept
  char names[BRIM_UI_COLOURS + BRIM_UI_DASHES][80];
  const char *colour_names[BRIM_UI_COLOURS], *dash_names[BRIM_UI_DASHES];
  brim_ui_point *points;  // one per result at most
  size_t count, left_out;
  char note[320];
} lines;

static size_t name_values(const brim_result *of, const char *knob, const char **values, size_t n,
                          size_t max, char (*names)[80], const char **out) {
  if (n > max) n = max;
  for (size_t i = 0; i < n; i++) {
    brim_ui_knob_text(of, knob, values[i], names[i]);
    out[i] = names[i];
  }
  return n;
}

static int index_of(const char *const *values, size_t count, const char *value) {
  if (count == 0) return 0;
  for (size_t i = 0; i < count; i++) {
    if (strcmp(values[i], value) == 0) return (int)i;
  }
  return -1;
}

// Is `a` to be drawn rather than `b` of the same line and x?
static bool preferred(const brim_ui_view *view, const brim_result *a, const brim_result *b) {
  if (view->picks.recommended >= 0 && (a == view->shown || b == view->shown)) {
    return a == view->shown;
  }
  if (brim_result_ran(a) != brim_result_ran(b)) return brim_result_ran(a);
  return brim_result_ran(a) ? a->samples_per_s > b->samples_per_s
                            : brim_result_memory(a) < brim_result_memory(b);
}

static void insert_by_x(brim_ui_point *points, size_t *n, brim_ui_point p) {
  size_t k = (*n)++;
  for (; k > 0 && points[k - 1].x > p.x; k--) points[k] = points[k - 1];
  points[k] = p;
}

static void collect_one(lines *l, const brim_result *r) {
  const brim_ui_view *view = l->view;
  const brim_result_knob *x = brim_result_knob_find(r, view->x);
  int colour = index_of(l->colour_values, l->colours, brim_ui_knob_value(r, view->colour));
  int dash = index_of(l->dash_values, l->dashes, brim_ui_knob_value(r, view->dash));
  if (!brim_result_ran(r) && !brim_result_is_oom(r)) return;
  if (colour < 0 || dash < 0) {
    l->left_out++;
    return;
  }
  for (size_t i = 0; i < l->count; i++) {
    brim_ui_point *p = &l->points[i];
    if (p->x != x->number || p->colour != colour || p->dash != dash) continue;
    if (preferred(view, r, p->result)) p->result = r;
    return;
  }
  insert_by_x(l->points, &l->count,
              (brim_ui_point){.x = x->number, .colour = colour, .dash = dash, .result = r});
}

// "At each point the fastest of Pinned, Prefetch is drawn."
static void make_note(lines *l) {
  const brim_ui_view *view = l->view;
  const brim_result *first = &view->results[0];
  char knobs[200] = "", left[128] = "";
  size_t used = 0;
  for (size_t k = 0; k < first->knob_count && used < 160; k++) {
    const char *name = first->knobs[k].name;
    if (!brim_result_knob_varies(view->results, view->count, name)) continue;
    if (strcmp(name, view->x) == 0 || (view->colour && strcmp(name, view->colour) == 0) ||
        (view->dash && strcmp(name, view->dash) == 0)) {
      continue;
    }
    int n = snprintf(knobs + used, sizeof knobs - used, "%s%s", used ? ", " : "",
                     brim_ui_knob_label(first, name));
    if (n > 0) used += (size_t)n;
  }
  if (l->left_out) {
    snprintf(left, sizeof left, brim_tr(" %zu settings are in the table only."), l->left_out);
  }
  l->note[0] = '\0';
  if (used) {
    snprintf(l->note, sizeof l->note, brim_tr("At each point: the fastest over %s."), knobs);
  }
  snprintf(l->note + strlen(l->note), sizeof l->note - strlen(l->note), "%s", left);
}

static brim_status lines_init(lines *l, const brim_ui_view *view) {
  *l = (lines){.view = view};
  l->points = brim_calloc(view->count + 1, sizeof *l->points);
  if (!l->points) return brim_fail(BRIM_ENOMEM, "out of memory while drawing the report");
  if (view->colour) {
    l->colours = brim_ui_knob_values(view, view->colour, l->colour_values);
    l->colours = name_values(view->shown, view->colour, l->colour_values, l->colours,
                             BRIM_UI_COLOURS, l->names, l->colour_names);
  }
  if (view->dash) {
    l->dashes = brim_ui_knob_values(view, view->dash, l->dash_values);
    l->dashes = name_values(view->shown, view->dash, l->dash_values, l->dashes, BRIM_UI_DASHES,
                            l->names + BRIM_UI_COLOURS, l->dash_names);
  }
  for (size_t i = 0; i < view->count; i++) collect_one(l, &view->results[i]);
  make_note(l);
  return BRIM_OK;
}

static brim_ui_chart base_chart(const lines *l) {
  return (brim_ui_chart){.view = l->view,
                         .points = l->points,
                         .count = l->count,
                         .colours = l->colours ? l->colour_names : NULL,
                         .colour_count = l->colours,
                         .dashes = l->dashes ? l->dash_names : NULL,
                         .dash_count = l->dashes,
                         .note = l->note[0] ? l->note : NULL};
}

//---------------------------------- throughput ----------------------------------

static void put_rate(lines *l, brim_str *out) {
  for (size_t i = 0; i < l->count; i++) {
    brim_ui_point *p = &l->points[i];
    p->mark = !brim_result_ran(p->result);
    p->y = p->mark ? NAN : p->result->samples_per_s;
    p->low = p->mark ? NAN : p->result->samples_per_s_low;
    p->high = p->mark ? NAN : p->result->samples_per_s_high;
  }
  brim_ui_chart chart = base_chart(l);
  chart.title = brim_tr("Throughput, with 95 % intervals");
  char rate[64];
  chart.y_label = brim_ui_rate_unit(l->count > 0 ? l->points[0].result : NULL, l->count > 0, rate);
  brim_ui_chart_svg(&chart, out);
}

//---------------------------------- memory ----------------------------------

static double free_bytes(const brim_ui_view *view) {
  if (view->shown->free_bytes > 0) return view->shown->free_bytes;
  for (size_t i = 0; i < view->count; i++) {
    if (view->results[i].free_bytes > 0) return view->results[i].free_bytes;
  }
  return NAN;
}

// Workers seldom change the memory of a GPU: lines over each other would hide all but one.
static bool colours_agree(const lines *l) {
  for (size_t i = 0; i < l->count; i++) {
    for (size_t k = 0; k < i; k++) {
      const brim_ui_point *a = &l->points[i], *b = &l->points[k];
      if (a->x != b->x || a->dash != b->dash) continue;
      double x = brim_result_memory(a->result), y = brim_result_memory(b->result);
      if (fabs(x - y) > 0.01 * fmax(x, y)) return false;
    }
  }
  return true;
}

static void merge_colours(lines *l) {
  size_t n = 0;
  for (size_t i = 0; i < l->count; i++) {
    brim_ui_point p = l->points[i];
    size_t k = 0;
    p.colour = NEUTRAL;
    while (k < n && (l->points[k].x != p.x || l->points[k].dash != p.dash)) k++;
    if (k == n) {
      l->points[n++] = p;
    } else if (preferred(l->view, p.result, l->points[k].result)) {
      l->points[k] = p;
    }
  }
  l->count = n;
}

typedef struct rule_texts {
  char free_now[96], limit[64];
} rule_texts;

// The free memory and 80 % of it; in words alone where it is far above all that is drawn, so that the
// lines would flatten the others.
static void put_rules(brim_ui_chart *chart, double free_now, double most, rule_texts *texts) {
  char bytes[32], limit[32];
  brim_format_bytes((uint64_t)free_now, bytes);
  brim_format_bytes((uint64_t)(0.8 * free_now), limit);
  if (free_now > 64 * most) {
    snprintf(texts->free_now, sizeof texts->free_now, brim_tr("far above: free %s, 80 %% of it %s"),
             bytes, limit);
    chart->rules[0] = (brim_ui_rule){free_now, texts->free_now, false, true};
    return;
  }
  snprintf(texts->free_now, sizeof texts->free_now, brim_tr("free: %s"), bytes);
  snprintf(texts->limit, sizeof texts->limit, brim_tr("80 %% of it: %s"), limit);
  chart->rules[0] = (brim_ui_rule){free_now, texts->free_now, false, false};
  chart->rules[1] = (brim_ui_rule){0.8 * free_now, texts->limit, true, false};
}

static void put_memory(lines *l, brim_str *out) {
  double free_now = free_bytes(l->view), most = 0;
  bool cut = false;
  rule_texts texts;
  bool one = l->colours > 1 && colours_agree(l);
  if (one) merge_colours(l);
  for (size_t i = 0; i < l->count; i++) {
    brim_ui_point *p = &l->points[i];
    double memory = brim_result_memory(p->result);
    p->mark = !brim_result_ran(p->result);
    p->low = p->high = NAN;
    p->y = memory > 0 ? memory : NAN;
    // What is far beyond would flatten all the others: its text says how much it is.
    if (p->mark && p->y > 4 * free_now) {
      p->y = 4 * free_now;
      cut = true;
    }
    most = fmax(most, p->y);
  }
  brim_ui_chart chart = base_chart(l);
  chart.title = brim_tr("Memory planned");
  chart.y_label = brim_tr("memory, log scale");
  chart.bytes = true;
  if (one) {
    chart.colours = NULL;
    snprintf(l->note, sizeof l->note, brim_tr("Same for every value of %s."),
             brim_ui_knob_label(l->view->shown, l->view->colour));
    chart.note = l->note;
  }
  if (cut) {
    size_t used = strlen(l->note);
    snprintf(l->note + used, sizeof l->note - used, "%s%s", used ? " " : "",
             brim_tr("Crosses at four times the free memory mean that much or more."));
    chart.note = l->note;
  }
  if (free_now > 0) put_rules(&chart, free_now, most, &texts);
  brim_ui_chart_svg(&chart, out);
}

brim_status brim_ui_report_charts(const brim_ui_view *view, brim_str *out) {
  lines l;
  if (!view->x) return BRIM_OK;
  BRIM_TRY(lines_init(&l, view));
  brim_str_append(out, "<div class=\"charts\">\n");
  put_rate(&l, out);
  put_memory(&l, out);
  brim_str_append(out, "</div>\n");
  brim_free(l.points);
  return brim_str_status(out);
}

//---------------------------------- utilisation ----------------------------------

static double most_share(const brim_ui_view *view, const brim_ui_rung *rung) {
  double most = 0;
  for (size_t i = 0; i < view->count; i++) {
    most = fmax(most, brim_ui_rung_share(rung, &view->results[i]));
  }
  return most;
}

// The rungs of the settings that differ from the shown one in x alone.
brim_status brim_ui_report_ladder_chart(const brim_ui_view *view, brim_str *out) {
  const brim_ui_rung *rungs[BRIM_UI_MAX_RUNGS];
  const char *names[BRIM_UI_MAX_RUNGS];
  char group[BRIM_UI_GROUP_NAME], name[BRIM_UI_GROUP_NAME], title[BRIM_UI_GROUP_NAME + 64];
  if (!view->x || !brim_result_knob_varies(view->results, view->count, view->x)) return BRIM_OK;
  size_t n = brim_ui_rungs(view, rungs), count = 0;
  brim_ui_point *points = brim_calloc(view->count * n + 1, sizeof *points);
  if (!points) return brim_fail(BRIM_ENOMEM, "out of memory while drawing the report");
  brim_ui_group_name(view, view->shown, group);
  for (size_t k = 0; k < n;) {
    if (most_share(view, rungs[k]) >= 1) {
      k++;
    } else {
      rungs[k] = rungs[--n];  // flat on the axis: the table has it
    }
  }
  for (size_t k = 0; k < n; k++) {
    names[k] = brim_tr(brim_ui_metric_find(rungs[k]->key)->label);
    for (size_t i = 0; i < view->count; i++) {
      const brim_result *r = &view->results[i];
      double share = brim_ui_rung_share(rungs[k], r);
      brim_ui_group_name(view, r, name);
      if (isnan(share) || strcmp(name, group) != 0) continue;
      insert_by_x(points, &count,
                  (brim_ui_point){.x = brim_result_knob_find(r, view->x)->number,
                                  .y = share,
                                  .low = NAN,
                                  .high = NAN,
                                  .colour = (int)k,
                                  .dash = (int)(k % BRIM_UI_DASHES),
                                  .result = r});
    }
  }
  snprintf(title, sizeof title, "%s%s%s", brim_tr("Utilisation"), group[0] ? ": " : "", group);
  brim_ui_chart chart = {.view = view,
                         .title = title,
                         .y_label = brim_tr("% of the available"),
                         .percent = true,
                         .points = points,
                         .count = count,
                         .colours = names,
                         .colour_count = n};
  brim_ui_chart_svg(&chart, out);
  brim_free(points);
  return brim_str_status(out);
}

//--------------------------------------- several devices ---------------------------------------
// The report's part on several devices at once: for each setting a bar for each number of devices,
// against what so many times the first would be, and the table.

static void put_number(brim_str *out, double value) {
  char text[32];
  brim_ui_number(value, text);
  brim_ui_put(out, "td", isnan(value) ? BRIM_UI_DASH : text);
}

static void put_row(const brim_scaling *s, brim_str *out) {
  char text[96];
  brim_str_append(out, "<tr>");
  brim_ui_scaling_devices(s, text);
  brim_ui_put(out, "th", text);
  put_number(out, s->result.samples_per_s);
  put_number(out, s->each);
  snprintf(text, sizeof text, "%.1f %%", brim_shown(100 * s->efficiency));
  brim_ui_put(out, "td", isnan(s->efficiency) ? BRIM_UI_DASH : text);
  for (int part = 0; part < BRIM_UI_SCALING_COUNT; part++) {
    double ms = brim_ui_scaling_ms(s, (brim_ui_scaling_part)part);
    brim_ui_ms(ms, text);
    brim_ui_put(out, "td", isnan(ms) ? BRIM_UI_DASH : text);
  }
  brim_ui_scaling_lost(s, text);
  brim_str_append(out, "<td class=\"text\">");
  brim_ui_escape_html(out, text);
  if (!s->result.failure && !s->result.stable) {
    brim_str_printf(out, " <span class=\"warn\">%s</span>", brim_tr("unstable"));
  }
  brim_str_append(out, "</td></tr>\n");
}

static void put_table(const brim_scaling *all, size_t count, brim_str *out) {
  const char *const heads[] = {brim_tr("Devices"),     brim_tr("Samples/s"), brim_tr("Each"),
                               brim_tr("Efficiency"),  brim_tr("I/O(ms)"),   brim_tr("H2D(ms)"),
                               brim_tr("Compute(ms)"), brim_tr("Other(ms)"), brim_tr("Lost to")};
  brim_str_append(out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\"");
  brim_ui_put_attribute(out, "aria-label", brim_tr("Scaling over devices"));
  brim_str_append(out, "><table class=\"scaling\"><thead><tr>");
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) brim_ui_put(out, "th", heads[i]);
  brim_str_append(out, "</tr></thead><tbody>\n");
  for (size_t i = 0; i < count; i++) put_row(&all[i], out);
  brim_str_append(out, "</tbody></table></div>\n");
}

// Gradients exchanged: predicted and measured.
static void put_ranks(const brim_scaling *all, size_t count, brim_str *out) {
  brim_ui_ranks_row rows[BRIM_UI_RANKS_ROWS];
  const char *heads[BRIM_UI_RANKS_CELLS + 1];
  char title[256];
  size_t n = brim_ui_ranks_rows(all, count, rows);
  if (n == 0) return;
  brim_ui_ranks_heads(heads);
  brim_ui_ranks_title(all, count, title);
  brim_ui_put(out, "p", title);
  brim_str_append(out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\"");
  brim_ui_put_attribute(out, "aria-label", brim_tr("Training with exchange of gradients"));
  brim_str_append(out, "><table class=\"scaling ranks\"><thead><tr>");
  for (int i = 0; i <= BRIM_UI_RANKS_CELLS; i++) brim_ui_put(out, "th", heads[i]);
  brim_str_append(out, "</tr></thead><tbody>\n");
  for (size_t i = 0; i < n; i++) {
    brim_str_append(out, "<tr>");
    for (int k = 0; k < BRIM_UI_RANKS_CELLS; k++) {
      const char *value = strcmp(rows[i].cells[k], "-") == 0 ? BRIM_UI_DASH : rows[i].cells[k];
      brim_ui_put(out, k == 0 ? "th" : "td", value);
    }
    brim_str_append(out, "<td class=\"text\">");
    brim_ui_escape_html(out, rows[i].note);
    brim_str_append(out, "</td></tr>\n");
  }
  brim_str_append(out, "</tbody></table></div>\n");
}

static void put_item(const char *text, bool *any, brim_str *out) {
  if (!*any) brim_str_append(out, "<ul class=\"why\">\n");
  *any = true;
  brim_ui_put(out, "li", text);
}

// As far as all devices would reach if each did what the first does alone.
static void put_bars(const brim_scaling *all, size_t count, brim_str *out) {
  double one = all[0].result.samples_per_s, most = one * all[count - 1].devices;
  if (!(one > 0)) return;
  for (size_t i = 0; i < count; i++) {
    const brim_scaling *s = &all[i];
    if (!(s->result.samples_per_s > 0)) continue;
    char name[64], text[64], number[32];
    snprintf(name, sizeof name, s->ran == 1 ? brim_tr("%d device") : brim_tr("%d devices"), s->ran);
    brim_ui_number(s->result.samples_per_s, number);
    snprintf(text, sizeof text, "%s/s, %.1f %%", number, brim_shown(100 * s->efficiency));
    double share = 100 * s->result.samples_per_s / most;
    brim_str_append(out, "<div class=\"bar now\">");
    brim_ui_put(out, "span", name);
    brim_str_printf(out, "<b><i style=\"--v:%.2f\"></i></b>", share < 100 ? share : 100.0);
    brim_str_append(out, "<span class=\"v\">");
    brim_ui_escape_html(out, text);
    brim_str_append(out, "</span></div>\n");
  }
}

static void put_failed(const brim_scaling *all, size_t count, brim_str *out) {
  bool any = false;
  for (size_t i = 0; i < count; i++) {
    for (int k = 0; k < all[i].devices; k++) {
      const brim_scaling_replica *r = &all[i].replicas[k];
      if (!r->failure || brim_ui_scaling_reported(all, i, k)) continue;
      brim_str t;
      brim_str_init(&t);
      brim_str_printf(&t, brim_tr("%s did not run: %s"), r->spec, r->message);
      put_item(t.data ? t.data : r->spec, &any, out);
      brim_str_deinit(&t);
    }
    brim_str t;
    brim_str_init(&t);
    brim_ui_ranks_failed(&all[i], &t);
    if (t.len > 0) put_item(t.data, &any, out);
    brim_str_deinit(&t);
  }
  if (any) brim_str_append(out, "</ul>\n");
}

void brim_ui_report_scaling(const brim_ui_report_options *options, brim_str *out) {
  const brim_scaling *all = options->scaling;
  size_t count = options->scaling_count;
  if (count == 0) return;
  brim_ui_put_section(out, "scaling", brim_tr("Scaling over devices"),
                      brim_ui_scaling_limits(all, count));
  for (size_t i = 0, n; i < count; i += n) {
    n = brim_ui_scaling_group(all, count, i);
    brim_str name;
    brim_str_init(&name);
    brim_ui_setting(&all[i].result, &name);
    brim_str_append(out, "<figure class=\"panel\"><figcaption>");
    brim_ui_escape_html(out, name.data ? name.data : "");
    brim_str_append(out, "</figcaption>\n");
    brim_str_deinit(&name);
    put_bars(&all[i], n, out);
    put_table(&all[i], n, out);
    put_ranks(&all[i], n, out);
    brim_str_append(out, "</figure>\n");
  }
  put_failed(all, count, out);
  if (brim_ui_scaling_mixed(all, count)) {
    brim_ui_put(out, "p", brim_tr("The devices differ; efficiency is relative to the first."));
  }
  brim_ui_put(out, "p", brim_ui_scaling_one(all, count));
  if (options->scaling_note && options->scaling_note[0]) {
    brim_ui_put(out, "p", options->scaling_note);
  }
  brim_str_append(out, "</section>\n");
}
