// The parts of the report that are bars: where the time of a step goes, the ladder of utilisation,
// the ceilings, the plan of a setting. Plain HTML whose widths are in the style attributes, so that
// text keeps its size on a phone and on paper.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_report_int.h"

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
