// The page of a profile: one HTML file that needs no network and no other file. Everything stands in it
// without a script; the script (web/profile/profile.js) sorts and searches the tables and shows what lies
// in memory at the op under the pointer. This file is the frame; ui_profile_parts.c has tables, phases
// and memory.
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_words.h"
#include "ui/ui_profile_int.h"
#include "ui/ui_report_int.h"

//---------------------------------- header ----------------------------------

static void put_span(brim_str *out, const char *text) {
  if (!text[0]) return;
  brim_ui_put(out, "span", text);
  brim_str_append_char(out, ' ');
}

static void put_header(const brim_profile *p, brim_str *out) {
  const brim_result *r = &p->result;
  char when[32], line[64] = "", what[192];
  brim_str_append(out, "<header><p class=\"brand\">brim profile</p>");
  const char *title = brim_ui_description(r->description, what);
  brim_ui_put(out, "h1", title[0] ? title : r->workload);
  brim_str_append(out, "<p class=\"sub\">");
  put_span(out, r->device);
  brim_str setting;
  brim_str_init(&setting);
  brim_ui_setting(r, &setting);
  put_span(out, setting.data);
  brim_str_deinit(&setting);
  if (!isnan(r->when_s)) {
    brim_clock_iso8601(r->when_s, when);  // 2026-11-15T02:20:29Z
    if (strlen(when) >= 19) when[10] = ' ', when[19] = '\0';
    snprintf(line, sizeof line, brim_tr("begun %s UTC"), when);
  }
  put_span(out, line);
  brim_str_append(out, "</p></header>\n");
}

static void put_nav(const brim_str *body, brim_str *out) {
  const char *const links[][2] = {
      {"findings", brim_tr("Findings")}, {"tables", brim_tr("Tables")},
      {"phases", brim_tr("Time")},       {"memory", brim_tr("Memory")},
      {"idle", brim_tr("GPU idle")},     {"machine", brim_tr("Machine")},
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

//---------------------------------- the step ----------------------------------

static void put_stat(brim_str *out, const char *name, const char *value, const char *small) {
  brim_str_append(out, "<div><dt>");
  brim_ui_escape_html(out, name);
  brim_str_append(out, "</dt><dd>");
  brim_ui_escape_html(out, value);
  if (small[0]) {
    brim_str_append(out, " ");
    brim_ui_put(out, "small", small);
  }
  brim_str_append(out, "</dd></div>\n");
}

static void put_ms_stat(brim_str *out, const char *name, double ms, double step) {
  char number[32], text[48], percent[32];
  if (isnan(ms)) return;
  brim_ui_profile_ms(ms, number);
  snprintf(text, sizeof text, "%s ms", number);
  brim_ui_profile_percent(ms / step, percent);
  put_stat(out, name, text, percent);
}

static void put_step(const brim_profile *p, brim_str *out) {
  char number[32], spread[64] = "", text[48], rate[96];
  brim_str_append(out, "<section id=\"step\"><div class=\"hero\">");
  brim_str_append(out, "<dl class=\"stats\">\n");
  brim_ui_profile_ms(p->step_ms, number);
  snprintf(text, sizeof text, "%s ms", number);
  if (!isnan(p->step_mad_ms)) {
    brim_ui_profile_ms(p->step_mad_ms, number);
    snprintf(spread, sizeof spread, brim_tr("± %s (median and MAD)"), number);
  }
  put_stat(out, brim_tr("Step"), text, spread);
  brim_ui_profile_rate(p, rate);
  if (rate[0]) put_stat(out, brim_tr("Throughput"), rate, "");
  const double reach = brim_ui_profile_reach(p);
  if (!isnan(reach)) {
    brim_ui_profile_percent(reach, number);
    put_stat(out, brim_tr("Of this machine's ceiling"), number, "");
  }
  if (p->has_gaps) put_ms_stat(out, brim_tr("GPU idle"), p->gap_ms, p->step_ms);
  if (p->h2d_ms > 0) {
    put_ms_stat(out, brim_tr("Exposed copies to the GPU"), p->h2d_exposed_ms, p->step_ms);
  }
  if (p->ranks > 1 && !isnan(p->exchange_exposed_ms)) {
    put_ms_stat(out, brim_tr("Exposed exchange between ranks"), p->exchange_exposed_ms, p->step_ms);
  }
  brim_str_append(out, "</dl>\n<p class=\"note\">");
  char line[192];
  snprintf(line, sizeof line, brim_tr("Measured by %s."), brim_ui_profile_source(p));
  brim_ui_escape_html(out, line);
  if (p->note[0]) {
    char note[sizeof p->note];
    brim_words_text(p->note, note, sizeof note);
    brim_str_append_char(out, ' ');
    brim_ui_escape_html(out, note);
  }
  brim_str_append(out, "</p></div></section>\n");
}

//---------------------------------- findings ----------------------------------

static void put_finding(const brim_finding *f, double step, brim_str *out) {
  char cost[32], price[64], percent[32];
  brim_str_append(out, "<li><span class=\"price\">");
  if (!isnan(f->cost_ms)) {
    brim_ui_profile_ms(f->cost_ms, cost);
    brim_ui_profile_percent(f->cost_ms / step, percent);
    snprintf(price, sizeof price, brim_tr("%s ms per step"), cost);
    brim_ui_put(out, "b", price);
    if (f->cost_ms < step)
      brim_str_printf(out, " (%s)", percent);  // beyond it: not within the step
    brim_ui_escape_html(out, brim_ui_estimated(f));
  }
  brim_str_append(out, "</span><div>");
  brim_ui_put_finding_text(f, out);
  brim_str_append(out, "</div></li>\n");
}

static void put_findings(const brim_profile *p, brim_str *out) {
  const brim_result *r = &p->result;
  char healthy[256];
  const bool fine = brim_ui_healthy(r, healthy);
  brim_ui_put_section(
      out, "findings", brim_tr("Findings"),
      fine ? NULL : brim_tr("What costs time, how much per step, and what would help."));
  if (fine) {
    brim_str_append(out, "<p class=\"ok\">");
    brim_ui_escape_html(out, healthy);
    brim_str_append(out, "</p>\n");
  }
  brim_str_append(out, "<ul class=\"findings\">\n");
  for (size_t i = 0; i < r->finding_count; i++) put_finding(&r->findings[i], p->step_ms, out);
  brim_str_append(out, "</ul>");
  if (brim_ui_prices_overlap(r)) brim_ui_put(out, "p", brim_tr(BRIM_UI_PRICES_OVERLAP));
  brim_str_append(out, "</section>\n");
}

//---------------------------------- idle ----------------------------------

static void put_cause(const brim_profile *p, int cause, brim_str *out) {
  char ms[32], count[32], text[96];
  brim_ui_profile_ms(p->cause_ms[cause], ms);
  brim_ui_profile_count(p->cause_count[cause], count);
  snprintf(text, sizeof text, p->cause_count[cause] > 0 ? brim_tr("%s ms, %s per step") : "%s ms",
           ms, count);
  brim_str_append(out, "<div class=\"bar wide\"><span>");
  brim_ui_escape_html(out, brim_ui_profile_cause((brim_gap_cause)cause));
  brim_str_printf(out, "</span><b><i style=\"--v:%.4g\"></i></b><span class=\"v\">",
                  fmin(p->cause_ms[cause] / p->gap_ms * 100, 100));
  brim_ui_escape_html(out, text);
  brim_str_append(out, "</span></div>\n");
}

static void put_gap(const brim_profile_gap *gap, brim_str *out) {
  char text[32];
  brim_str_append(out, "<tr>");
  brim_ui_profile_ms(gap->ms, text);
  brim_ui_put(out, "td", text);
  if (gap->step >= 0 && gap->step < INT_MAX) {
    brim_str_printf(out, "<td>%d</td>", gap->step + 1);
  } else {
    brim_str_append(out, "<td>-</td>");
  }
  brim_str_append(out, "<td class=\"text\">");
  brim_ui_escape_html(out, brim_ui_profile_cause(gap->cause));
  brim_str_append(out, "</td><td class=\"text long\">");
  brim_ui_escape_html(out, gap->before[0] ? gap->before : BRIM_UI_DASH);
  brim_str_append(out, "</td><td class=\"text long\">");
  brim_ui_escape_html(out, gap->after[0] ? gap->after : BRIM_UI_DASH);
  brim_str_append(out, "</td></tr>\n");
}

static void put_transfer(const brim_profile *p, brim_str *out) {
  brim_str line;
  brim_str_init(&line);
  brim_ui_profile_transfer(p, &line);
  if (line.len > 0) brim_ui_put(out, "p", line.data);
  if (brim_str_status(&line) && !out->status) out->status = line.status;
  brim_str_deinit(&line);
}

static void put_idle(const brim_profile *p, brim_str *out) {
  char ms[32], percent[32], line[160];
  if (!p->has_gaps) return;
  brim_ui_profile_ms(p->gap_ms, ms);
  brim_ui_profile_percent(p->gap_ms / p->step_ms, percent);
  snprintf(line, sizeof line, brim_tr("The GPU had nothing to do for %s ms of each step (%s)."), ms,
           percent);
  brim_ui_put_section(out, "idle", brim_tr("Why the GPU was idle"), line);
  brim_str_append(out, "<div class=\"panel\">\n");
  for (int i = 0; i < BRIM_GAP_COUNT; i++) {
    if (p->cause_ms[i] > 0) put_cause(p, i, out);
  }
  put_transfer(p, out);
  brim_str_append(out, "</div>\n");
  if (p->gap_count > 0) {
    brim_ui_put(out, "h3", brim_tr("Longest gaps"));
    brim_str_append(out, "<div class=\"scroll\"><table class=\"own gaps\"><thead><tr>");
    brim_ui_put(out, "th", "ms");
    brim_ui_put(out, "th", brim_tr("Step"));
    const char *const heads[] = {brim_tr("Cause"), brim_tr("After"), brim_tr("Before")};
    for (size_t i = 0; i < 3; i++) {
      brim_str_append(out, "<th class=\"text\">");
      brim_ui_escape_html(out, heads[i]);
      brim_str_append(out, "</th>");
    }
    brim_str_append(out, "</tr></thead><tbody>\n");
    for (size_t i = 0; i < p->gap_count; i++) put_gap(&p->gaps[i], out);
    brim_str_append(out, "</tbody></table></div>\n");
  }
  brim_str_append(out, "</section>\n");
}

//---------------------------------- machine ----------------------------------

static void put_machine(const brim_profile *p, const char *command, brim_str *out) {
  const brim_result *r = &p->result;
  char text[64] = "";
  brim_ui_put_section(out, "machine", brim_tr("Machine"), NULL);
  brim_str_append(out, "<dl class=\"facts\">\n");
  brim_ui_put_pair(out, brim_tr("Device"), r->device);
  brim_ui_put_pair(out, brim_tr("Backend"), r->backend);
  brim_ui_put_pair(out, brim_tr("Library"), r->library);
  brim_ui_put_pair(out, brim_tr("CPU"), r->cpu);
  if (r->cores > 0) snprintf(text, sizeof text, brim_tr("%d, %d used"), r->cores, r->threads);
  brim_ui_put_pair(out, brim_tr("Cores"), text);
  brim_ui_put_pair(out, brim_tr("Host"), r->host);
  brim_ui_put_pair(out, brim_tr("System"), r->os);
  brim_ui_put_pair(out, brim_tr("Workload"), r->workload);
  brim_str_append(out, "</dl>\n");
  brim_ui_put_command(out, command);
  brim_str_append(out, "</section>\n");
}

//---------------------------------- page ----------------------------------

static void put_footer(const brim_profile *p, brim_str *out) {
  brim_str cost;
  brim_str_init(&cost);
  brim_ui_profile_cost(p, &cost);
  brim_str_append(out, "<footer>");
  brim_ui_escape_html(out, cost.data);
  brim_str_append(out, "</footer>\n<div id=\"tip\" hidden></div>\n");
  if (brim_str_status(&cost) && !out->status) out->status = cost.status;
  brim_str_deinit(&cost);
}

brim_status brim_ui_profile_page(const brim_profile *profile, const char *command, brim_str *out) {
  static const char *const styles[] = {"report/report.css", "profile/profile.css", NULL};
  brim_str body;
  brim_str_init(&body);
  put_findings(profile, &body);
  brim_status status = brim_ui_profile_put_tables(profile, &body);
  if (!status) {
    brim_ui_profile_put_phases(profile, &body);
    brim_ui_profile_put_memory(profile, &body);
    put_idle(profile, &body);
    put_machine(profile, command, &body);
    status = brim_str_status(&body);
  }
  if (!status) {
    brim_ui_put_head("brim profile", styles, out);
    brim_str_append(out, "<body>\n");
    put_header(profile, out);
    put_nav(&body, out);
    put_step(profile, out);
    brim_str_append_n(out, body.data, body.len);
    put_footer(profile, out);
    brim_ui_put_asset("script", "profile/profile.js", out);
    brim_str_append(out, "</body>\n</html>\n");
    status = brim_str_status(out);
  }
  brim_str_deinit(&body);
  return status;
}
