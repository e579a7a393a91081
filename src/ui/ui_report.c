// The HTML report of a bench: one page that needs no network and no other file; light or dark by
// the reader's preference, and fit for paper. Everything is there without a script; the script
// (web/report/report.js) sorts the table, redraws the heat map and shows values under the pointer.
// This file is the frame and the machine; ui_report_*.c and ui_chart*.c are the other parts, ui_html.c
// has the elements.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_report_int.h"

//---------------------------------- charts ----------------------------------

static brim_status put_charts(const brim_ui_view *view, brim_str *out) {
  if (!view->x || !brim_ui_any_ran(view)) return BRIM_OK;
  brim_ui_put_section(out, "charts", brim_tr("Throughput and memory"), NULL);
  BRIM_TRY(brim_ui_report_charts(view, out));
  brim_str_append(out, "</section>\n");
  return BRIM_OK;
}

static brim_status put_utilisation(const brim_ui_view *view, brim_str *out) {
  const brim_ui_rung *rungs[BRIM_UI_MAX_RUNGS];
  const brim_result *r = view->shown;
  bool ceilings = r->data_samples_per_s > 0 || r->compute_samples_per_s > 0;
  if (brim_ui_rungs(view, rungs) == 0 && !ceilings) return BRIM_OK;
  brim_ui_put_section(out, "use", brim_tr("How well the machine is used"), NULL);
  brim_str_append(out, "<div class=\"charts\">\n<div class=\"column\">\n");
  brim_ui_report_ladder(view, out);
  brim_ui_report_ceilings(view, out);
  brim_str_append(out, "</div>\n");
  BRIM_TRY(brim_ui_report_ladder_chart(view, out));
  brim_str_append(out, "</div>\n</section>\n");
  return BRIM_OK;
}

//---------------------------------- machine ----------------------------------

// What the machine can do at best, in the units its makers use: powers of ten.
static void put_best(const brim_machine_ceilings *c, brim_str *out) {
  const struct {
    const char *name;
    double value, unit;
    const char *unit_name;
  } rows[] = {
      {"fp32", c->gemm_fp32_flops, 1e12, "TFLOP/s"},
      {"tf32", c->gemm_tf32_flops, 1e12, "TFLOP/s"},
      {"bf16", c->gemm_bf16_flops, 1e12, "TFLOP/s"},
      {"fp16", c->gemm_fp16_flops, 1e12, "TFLOP/s"},
      {brim_tr("copies in its memory"), c->copy_bytes_per_s, 1e9, "GB/s"},
      {brim_tr("from pinned memory"), c->h2d_pinned_bytes_per_s, 1e9, "GB/s"},
      {brim_tr("from pageable memory"), c->h2d_pageable_bytes_per_s, 1e9, "GB/s"},
  };
  char text[256] = "";
  size_t used = 0;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char number[32];
    if (!(rows[i].value > 0) || used > 180) continue;
    brim_ui_number(rows[i].value / rows[i].unit, number);
    int n = snprintf(text + used, sizeof text - used, "%s%s %s %s", used ? ", " : "", rows[i].name,
                     number, rows[i].unit_name);
    if (n > 0) used += (size_t)n;
  }
  brim_ui_put_pair(out, brim_tr("At best, measured"), text);
}

static void put_machine(const brim_result *r, const char *command, brim_str *out) {
  char text[64] = "";
  brim_ui_put_section(out, "machine", brim_tr("Machine"), NULL);
  brim_str_append(out, "<dl class=\"facts\">\n");
  brim_ui_put_pair(out, brim_tr("Device"), r->device);
  brim_ui_put_pair(out, brim_tr("Backend"), r->backend);
  brim_ui_put_pair(out, brim_tr("Library"), r->library);
  brim_ui_put_pair(out, brim_tr("Device id"), r->device_id);
  brim_ui_put_pair(out, brim_tr("CPU"), r->cpu);
  if (r->cores > 0) snprintf(text, sizeof text, brim_tr("%d, %d used"), r->cores, r->threads);
  brim_ui_put_pair(out, brim_tr("Cores"), text);
  text[0] = '\0';
  if (r->total_bytes > 0) brim_ui_bytes_text(r->total_bytes, text);
  brim_ui_put_pair(out, brim_tr("Memory"), text);
  text[0] = '\0';
  if (r->free_bytes > 0) brim_ui_bytes_text(r->free_bytes, text);
  brim_ui_put_pair(out, brim_tr("Free at the start"), text);
  text[0] = '\0';
  if (r->power_limit_w > 0) snprintf(text, sizeof text, "%.0f W", r->power_limit_w);
  brim_ui_put_pair(out, brim_tr("Power limit"), text);
  text[0] = '\0';
  if (r->clock_max_mhz > 0) snprintf(text, sizeof text, "%.0f MHz", r->clock_max_mhz);
  brim_ui_put_pair(out, brim_tr("Highest clock"), text);
  put_best(&r->ceilings, out);
  brim_ui_put_pair(out, brim_tr("Host"), r->host);
  brim_ui_put_pair(out, brim_tr("System"), r->os);
  brim_ui_put_pair(out, brim_tr("Workload"), r->workload);
  brim_ui_put_pair(out, brim_tr("Task"), r->description);
  brim_str_append(out, "</dl>\n");
  brim_ui_put_command(out, command);
  brim_str_append(out, "</section>\n");
}

//---------------------------------- page ----------------------------------

// Links to the sections that the page has.
static void put_nav(const brim_str *body, brim_str *out) {
  const char *const links[][2] = {
      {"findings", brim_tr("Findings")},     {"before", brim_tr("Before training")},
      {"charts", brim_tr("Charts")},         {"phases", brim_tr("Time")},
      {"use", brim_tr("Utilisation")},       {"scaling", brim_tr("Scaling")},
      {"tables", brim_tr("Tables")},         {"map", brim_tr("Two knobs")},
      {"settings", brim_tr("All settings")}, {"plan", brim_tr("Memory plan")},
      {"machine", brim_tr("Machine")},
  };
  brim_str_append(out, "<nav>");
  for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
    char section[48];
    snprintf(section, sizeof section, "<section id=\"%s\">", links[i][0]);
    if (!strstr(body->data, section)) continue;
    brim_str_printf(out, "<a href=\"#%s\">", links[i][0]);
    brim_ui_escape_html(out, links[i][1]);
    brim_str_append(out, "</a>");
  }
  brim_str_append(out, "</nav>\n");
}

static void put_header(const brim_ui_view *view, const char *title, brim_str *out) {
  brim_str_append(out, "<header>");
  if (view->shown && strcmp(title, "brim bench") != 0) {
    brim_str_append(out, "<p class=\"brand\">brim bench</p>");
  }
  brim_ui_put(out, "h1", title);
  if (view->shown) {
    const brim_result *r = view->shown;
    double begun = view->results[0].when_s;
    brim_str_append(out, "<p class=\"sub\">");
    if (r->device[0]) {
      brim_str_append(out, "<span>");
      brim_ui_escape_html(out, r->device);
      brim_str_append(out, "</span> ");
    }
    brim_str_append(out, "<span>");
    brim_str_printf(out, view->count == 1 ? brim_tr("%zu setting") : brim_tr("%zu settings"),
                    view->count);
    brim_str_append(out, "</span>");
    if (!isnan(begun)) {
      char when[32];
      brim_clock_iso8601(begun, when);  // 2026-11-15T02:20:29Z
      if (strlen(when) >= 19) when[10] = ' ', when[19] = '\0';
      brim_str_append(out, " <span>");
      brim_str_printf(out, brim_tr("begun %s UTC"), when);
      brim_str_append(out, "</span>");
    }
    brim_str_append(out, "</p>");
  }
  brim_str_append(out, "</header>\n");
}

static brim_status put_body(const brim_ui_view *view, const brim_ui_report_options *options,
                            brim_str *out) {
  brim_ui_report_picks(view, options, out);
  if (view->count == 0) return BRIM_OK;
  brim_ui_report_findings(view, options->own, options->decision, out);
  if (options->advice) brim_ui_report_advice(options->advice, out);
  BRIM_TRY(put_charts(view, out));
  BRIM_TRY(brim_ui_report_phases(view, out));
  BRIM_TRY(put_utilisation(view, out));
  brim_ui_report_scaling(options, out);
  brim_ui_report_views(options, out);
  brim_ui_report_heat(view, out);
  brim_ui_report_table(view, out);
  brim_ui_report_plan(view, out);
  put_machine(view->shown, options->command, out);
  return BRIM_OK;
}

brim_status brim_ui_report(const brim_ui_report_options *options, const brim_result *results,
                           size_t count, brim_str *out) {
  brim_ui_view view;
  brim_str body;
  brim_str_init(&body);
  brim_ui_view_init(&view, options->picks, results, count);
  char what[192];
  const char *title = options->title ? options->title
                      : view.shown && view.shown->description[0]
                          ? brim_ui_description(view.shown->description, what)
                          : "brim bench";
  brim_status status = put_body(&view, options, &body);
  if (!status) status = brim_str_status(&body);
  static const char *const styles[] = {"report/report.css", NULL};
  brim_ui_put_head(title, styles, out);
  brim_str_append(out, "<body>\n");
  put_header(&view, title, out);
  if (count > 0) put_nav(&body, out);
  brim_str_append(out, "<main>\n");
  brim_str_append_n(out, body.data, body.len);
  brim_str_printf(out,
                  "</main>\n<footer>brim %s</footer>\n<div id=\"tip\" hidden=\"hidden\"></div>\n",
                  BRIM_VERSION);
  brim_ui_put_asset("script", "report/report.js", out);
  brim_str_append(out, "</body>\n</html>\n");
  brim_str_deinit(&body);
  return status ? status : brim_str_status(out);
}
