// The page of a profile: one HTML file that needs no network and no other file. Everything stands in it without a
// script; the script (web/profile/profile.js) sorts and searches the tables and shows what lies in memory at the op
// under the pointer.

#include "ui/ui_profile_int.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_words.h"
#include "ui/ui_report_int.h"

//-------------------------------------------- parts --------------------------------------------
// Parts of a profile's page: the tables, the phases of a step, and what lies in memory while it runs.

enum { SHOWN_OWNERS = 14, MAX_BLOCKS = 6000, WIDE = 1000, HIGH = 320 };

//---------------------------------- tables ----------------------------------

static void put_head_cell(brim_str *out, const char *key, const char *text) {
  brim_str_printf(out, "<th data-key=\"%s\"><button type=\"button\">", key);
  brim_ui_escape_html(out, text);
  brim_str_append(out, "</button></th>");
}

// The cell's number is in full, for sorting.
static void put_number_cell(brim_str *out, double value, const char *text) {
  if (isnan(value)) {
    brim_str_append(out, "<td>" BRIM_UI_DASH "</td>");
    return;
  }
  brim_str_printf(out, "<td data-v=\"%.9g\">", value);
  brim_ui_escape_html(out, text);
  brim_str_append(out, "</td>");
}

static void put_text_cell(brim_str *out, const char *text) {
  brim_str_append(out, "<td class=\"text\">");
  brim_ui_escape_html(out, text);
  brim_str_append(out, "</td>");
}

static void put_share_cell(brim_str *out, double share) {
  char percent[32];
  if (isnan(share)) {
    brim_str_append(out, "<td>" BRIM_UI_DASH "</td>");
    return;
  }
  brim_ui_profile_percent(share, percent);
  brim_str_printf(out, "<td class=\"share\" data-v=\"%.9g\" style=\"--v:%.4g\">", share,
                  fmin(fmax(share, 0), 1) * 100);
  brim_ui_escape_html(out, percent);
  brim_str_append(out, "</td>");
}

static const char *phase_text(const char *key) {
  const int phase = brim_ui_profile_phase(key);
  return phase < 0 ? key : brim_ui_phase_name(phase);
}

// Rates of what it moves and computes, while it runs.
static void put_rate_cells(const brim_profile_row *row, brim_str *out) {
  char text[32];
  const bool timed = row->total_ms > 0;
  const double gflops = timed && row->flops > 0 ? row->flops / row->total_ms / 1e6 : (double)NAN;
  const double gbytes = timed && row->bytes > 0 ? row->bytes / row->total_ms / 1e6 : (double)NAN;
  brim_ui_number(gflops, text);
  put_number_cell(out, gflops, text);
  brim_ui_number(gbytes, text);
  put_number_cell(out, gbytes, text);
}

// Figures come first: a phone shows the first columns only.
static void put_table_row(const brim_profile_row *row, brim_profile_list list, brim_str *out) {
  char text[32], ceiling[64], name[224];
  const double ms = brim_ui_profile_time(row, list);
  brim_str_append(out, "<tr><td class=\"text long\">");
  brim_ui_escape_html(out, brim_ui_profile_name(row, list, name));
  brim_str_append(out, "</td>");
  brim_ui_profile_ms(ms, text);
  put_number_cell(out, ms, text);
  put_share_cell(out, row->share);
  if (list < BRIM_PROFILE_PHASES) {
    brim_ui_profile_of_ceiling(row, ceiling);
    put_number_cell(out, row->ceiling_share, ceiling);
  }
  brim_ui_profile_count(row->count, text);
  put_number_cell(out, row->count, text);
  if (list == BRIM_PROFILE_KERNELS) put_text_cell(out, row->op);
  if (list < BRIM_PROFILE_LAYERS) put_text_cell(out, row->layer);
  if (list < BRIM_PROFILE_LAYERS) put_text_cell(out, phase_text(row->phase));
  if (list < BRIM_PROFILE_PHASES) put_rate_cells(row, out);
  brim_str_append(out, "</tr>\n");
}

static void put_table_head(brim_profile_list list, brim_str *out) {
  brim_str_append(out, "<thead><tr>");
  put_head_cell(out, "name", brim_ui_profile_column(list));
  put_head_cell(out, "time", brim_tr("ms/step"));
  put_head_cell(out, "share",
                list == BRIM_PROFILE_TRANSFORMS ? brim_tr("Of transforms") : brim_tr("Of step"));
  if (list < BRIM_PROFILE_PHASES) put_head_cell(out, "ceiling", brim_tr("Of ceiling"));
  put_head_cell(out, "count", brim_tr("Calls"));
  if (list == BRIM_PROFILE_KERNELS) put_head_cell(out, "op", brim_tr("Op"));
  if (list < BRIM_PROFILE_LAYERS) put_head_cell(out, "layer", brim_tr("Layer"));
  if (list < BRIM_PROFILE_LAYERS) put_head_cell(out, "phase", brim_tr("Phase"));
  if (list < BRIM_PROFILE_PHASES) {
    put_head_cell(out, "flops", "GFLOP/s");
    put_head_cell(out, "bytes", "GB/s");
  }
  brim_str_append(out, "</tr></thead>\n");
}

static brim_status put_table(const brim_profile *p, brim_profile_list list, brim_str *out) {
  const brim_profile_rows *rows = &p->lists[list];
  size_t *order = brim_ui_profile_order(p, list, BRIM_UI_PROFILE_TIME);
  const double sum = brim_profile_sum_percent(p, list);
  if (!order) return brim_fail(BRIM_ENOMEM, "out of memory while showing a profile");
  brim_str_printf(out, "<div class=\"list\" data-list=\"%s\"><h3>", brim_profile_list_key(list));
  brim_ui_escape_html(out, brim_ui_profile_title(list));
  brim_str_append(out, "</h3><div class=\"scroll tall\" tabindex=\"0\"><table class=\"all\">");
  put_table_head(list, out);
  brim_str_append(out, "<tbody>\n");
  for (size_t i = 0; i < rows->count; i++) put_table_row(&rows->items[order[i]], list, out);
  brim_str_append(out, "</tbody></table></div>");
  if (list == BRIM_PROFILE_TRANSFORMS) {
    brim_str_append(out, "<p class=\"note\">");
    brim_ui_escape_html(out, brim_tr("Transforms run in the loader's workers, beside the step."));
    brim_str_append(out, "</p>");
  } else if (!isnan(sum)) {
    char percent[32], line[128];
    brim_ui_profile_percent(sum / 100, percent);
    snprintf(line, sizeof line, brim_tr("The rows add up to %s of the step."), percent);
    brim_str_append(out, "<p class=\"note\">");
    brim_ui_escape_html(out, line);
    brim_str_append(out, "</p>");
  }
  brim_str_append(out, "</div>\n");
  brim_free(order);
  return BRIM_OK;
}

static brim_status profile_put_tables(const brim_profile *profile, brim_str *out) {
  bool any = false;
  brim_ui_put_section(out, "tables", brim_tr("Where the time goes"), NULL);
  brim_str_append(out, "<div class=\"tools js\"><span class=\"seg\" id=\"lists\">");
  for (int i = 0; i < BRIM_PROFILE_LIST_COUNT; i++) {
    if (profile->lists[i].count == 0) continue;
    brim_str_printf(out, "<button type=\"button\" data-list=\"%s\" aria-pressed=\"%s\">",
                    brim_profile_list_key((brim_profile_list)i), any ? "false" : "true");
    brim_ui_escape_html(out, brim_ui_profile_title((brim_profile_list)i));
    brim_str_append(out, "</button>");
    any = true;
  }
  brim_str_append(out, "</span><input type=\"search\" id=\"search\"");
  brim_ui_put_attribute(out, "placeholder", brim_tr("Search names"));
  brim_ui_put_attribute(out, "aria-label", brim_tr("Search names"));
  brim_str_append(out, " /></div>\n");
  for (int i = 0; i < BRIM_PROFILE_LIST_COUNT; i++) {
    if (profile->lists[i].count > 0) BRIM_TRY(put_table(profile, (brim_profile_list)i, out));
  }
  brim_str_append(out, "</section>\n");
  return BRIM_OK;
}

//---------------------------------- phases ----------------------------------

static int colour_of(const brim_profile_row *row) {
  const int phase = brim_ui_profile_phase(row->name);
  return phase < 0 ? BRIM_PHASE_OTHER : phase;
}

static void put_phase(const brim_profile *p, const brim_profile_row *row, double at,
                      brim_str *out) {
  char ms[32], percent[32], text[80], name[224];
  brim_ui_profile_ms(row->ms, ms);
  brim_ui_profile_part(row->share, percent);
  snprintf(text, sizeof text, "%s ms, %s", ms, percent);
  brim_str_append(out, "<div class=\"bar phase\"><span>");
  brim_ui_escape_html(out, brim_ui_profile_name(row, BRIM_PROFILE_PHASES, name));
  brim_str_printf(out, "</span><b class=\"p%d\"><i style=\"margin-left:%.4g%%;--v:%.4g\"></i></b>",
                  colour_of(row), fmin(at / p->step_ms * 100, 99.5),
                  fmin(row->ms / p->step_ms * 100, 100));
  brim_str_append(out, "<span class=\"v\">");
  brim_ui_escape_html(out, text);
  brim_str_append(out, "</span></div>\n");
}

static void profile_put_phases(const brim_profile *profile, brim_str *out) {
  const brim_profile_rows *rows = &profile->lists[BRIM_PROFILE_PHASES];
  size_t *order = brim_ui_profile_in_step(profile);
  double at = 0;
  if (!order || rows->count == 0 || !(profile->step_ms > 0)) {
    if (!order && !out->status) out->status = BRIM_ENOMEM;
    brim_free(order);
    return;
  }
  brim_ui_put_section(out, "phases", brim_tr("Phases of a step"),
                      brim_tr("In the order of a step. What ran at the same time counts once."));
  brim_str_append(out, "<div class=\"panel\">\n");
  for (size_t i = 0; i < rows->count; i++) {
    const brim_profile_row *row = &rows->items[order[i]];
    if (!(row->ms > 0)) continue;
    put_phase(profile, row, at, out);
    at += row->ms;
  }
  brim_str_append(out, "</div></section>\n");
  brim_free(order);
}

//---------------------------------- memory ----------------------------------

static double x_of(const brim_profile_memory *m, int point) {
  return (double)point / (double)m->point_count * WIDE;
}

// Bytes in use over the ops of a step, as steps.
static void put_area(const brim_profile_memory *m, double most, brim_str *out) {
  brim_str_printf(out, "<path class=\"area\" d=\"M0 %d", HIGH);
  for (size_t i = 0; i < m->point_count; i++) {
    const double y = HIGH - fmin(m->points[i].bytes / most, 1) * HIGH;
    brim_str_printf(out, "L%.2f %.2fH%.2f", x_of(m, (int)i), y, x_of(m, (int)i + 1));
  }
  brim_str_printf(out, "V%dZ\"/>\n", HIGH);
}

static int kind_colour(const char *kind) {
  static const char *const kinds[] = {"activation", "gradient", "statistic", "workspace"};
  for (int i = 0; i < 4; i++) {
    if (strcmp(kind, kinds[i]) == 0) return i;
  }
  return 4;
}

static void put_blocks(const brim_profile_memory *m, double most, brim_str *out) {
  for (size_t i = 0; i < m->block_count && i < MAX_BLOCKS; i++) {
    const brim_profile_block *b = &m->blocks[i];
    if (!(b->offset >= 0) || !(b->bytes >= 0)) continue;
    if (b->first < 0 || b->last < b->first || (size_t)b->last >= m->point_count) continue;
    const double top = HIGH - fmin((b->offset + b->bytes) / most, 1) * HIGH;
    brim_str_printf(out,
                    "<rect class=\"k%d\" data-b=\"%zu\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" "
                    "height=\"%.2f\"/>\n",
                    kind_colour(b->kind), i, x_of(m, b->first), top,
                    x_of(m, b->last + 1) - x_of(m, b->first), b->bytes / most * HIGH);
  }
}

// Phases of the ops along the x axis.
static void put_phase_strip(const brim_profile_memory *m, brim_str *out) {
  brim_str_append(out, "<div class=\"strip\" aria-hidden=\"true\">");
  for (size_t i = 0; i < m->point_count;) {
    size_t end = i + 1;
    while (end < m->point_count && strcmp(m->points[end].phase, m->points[i].phase) == 0) end++;
    const int phase = brim_ui_profile_phase(m->points[i].phase);
    brim_str_printf(out, "<span class=\"p%d\" style=\"flex-grow:%zu\">",
                    phase < 0 ? BRIM_PHASE_OTHER : phase, end - i);
    if ((end - i) * 12 >= m->point_count) brim_ui_escape_html(out, phase_text(m->points[i].phase));
    brim_str_append(out, "</span>");
    i = end;
  }
  brim_str_append(out, "</div>\n");
}

static void put_chart(const brim_profile_memory *m, brim_str *out) {
  char bytes[32], top[64];
  const double most = m->arena_bytes >= m->peak_bytes ? m->arena_bytes : m->peak_bytes;
  brim_ui_profile_bytes(most, bytes);
  snprintf(top, sizeof top, brim_tr("arena: %s"), bytes);
  brim_str_append(out, "<figure class=\"chart\"><div class=\"units\"><span>");
  brim_ui_escape_html(out, top);
  brim_str_append(out, "</span><span>");
  brim_ui_escape_html(out, brim_tr("ops of a step, in order"));
  brim_str_printf(out,
                  "</span></div>\n<svg id=\"memory-chart\" viewBox=\"0 0 %d %d\" "
                  "preserveAspectRatio=\"none\" role=\"img\"",
                  WIDE, HIGH);
  brim_ui_put_attribute(out, "aria-label", brim_tr("Memory during a step"));
  brim_str_append_char(out, '>');
  put_area(m, most, out);
  put_blocks(m, most, out);
  if (m->peak >= 0 && (size_t)m->peak < m->point_count) {
    brim_str_printf(out, "<path class=\"peak\" d=\"M%.2f 0V%d\"/>",
                    x_of(m, m->peak) + .5 * WIDE / (double)m->point_count, HIGH);
  }
  brim_str_append(out, "<path class=\"cursor\" id=\"memory-cursor\" d=\"\"/></svg>\n");
  put_phase_strip(m, out);
  const char *const kinds[] = {brim_tr("activation"), brim_tr("gradient"), brim_tr("statistic"),
                               brim_tr("workspace")};
  brim_str_append(out, "<ul class=\"legend\">");
  for (int i = 0; i < 4; i++) {
    brim_str_printf(out, "<li><span class=\"sw k%d\"></span>", i);
    brim_ui_escape_html(out, kinds[i]);
    brim_str_append(out, "</li>");
  }
  brim_str_append(out, "</ul></figure>\n");
}

static void put_owner_row(const brim_ui_owner *owner, double whole, brim_str *out) {
  char bytes[32];
  brim_ui_profile_bytes(owner->bytes, bytes);
  brim_str_append(out, "<tr><th>");
  brim_ui_escape_html(out, owner->name);
  brim_str_append(out, "</th>");
  brim_ui_put(out, "td", owner->kind);
  brim_ui_put(out, "td", bytes);
  brim_str_printf(out, "<td class=\"part\"><b><i style=\"--v:%.4g\"></i></b></td></tr>\n",
                  fmin(owner->bytes / whole * 100, 100));
}

static void put_owners(const brim_profile *p, brim_str *out) {
  const brim_profile_memory *m = &p->memory;
  brim_ui_owner owners[BRIM_UI_OWNERS];
  double rest = 0;
  const size_t count = brim_ui_profile_owners(p, m->peak, owners, &rest);
  const double fixed = m->fixed_bytes > 0 ? m->fixed_bytes : 0;
  const double whole = m->peak_bytes + fixed;
  brim_str_append(out, "<table class=\"plan owners\"><tbody>\n");
  for (size_t i = 0; i < count; i++) {
    if (i < SHOWN_OWNERS) {
      put_owner_row(&owners[i], whole, out);
    } else {
      rest += owners[i].bytes;
    }
  }
  if (rest > 0) {
    put_owner_row(&(brim_ui_owner){brim_tr("all others"), "", rest, false}, whole, out);
  }
  brim_str_append(out, "</tbody></table>\n");
}

// For the script: [op, layer, bytes] of points and [name, kind, bytes, first, last] of blocks.
static void put_data(const brim_profile_memory *m, brim_str *out) {
  json_t *points = json_array(), *blocks = json_array(), *all = json_object();
  brim_status status = points && blocks && all ? BRIM_OK : BRIM_ENOMEM;
  for (size_t i = 0; i < m->point_count && !status; i++) {
    const brim_profile_point *p = &m->points[i];
    status =
        brim_json_push(points, json_pack("[sso]", p->op, p->layer, brim_json_number(p->bytes)));
  }
  for (size_t i = 0; i < m->block_count && i < MAX_BLOCKS && !status; i++) {
    const brim_profile_block *b = &m->blocks[i];
    status = brim_json_push(blocks, json_pack("[ssoii]", b->name, brim_tr(b->kind),
                                              brim_json_number(b->bytes), b->first, b->last));
  }
  if (!status) status = brim_json_put(all, "points", json_incref(points));
  if (!status) status = brim_json_put(all, "blocks", json_incref(blocks));
  char *text = NULL;
  if (!status) status = brim_json_dump(all, 0, &text);
  brim_str_append(out, "<script type=\"application/json\" id=\"memory-data\">");
  for (const char *c = text; c && *c; c++) {  // no name can end the element
    brim_str_append(out, *c == '<' ? "\\u003c" : (char[]){*c, '\0'});
  }
  brim_str_append(out, "</script>\n");
  brim_free(text);
  json_decref(points);
  json_decref(blocks);
  json_decref(all);
  if (status && !out->status) out->status = status;
}

// Parts of the page (ui_profile_page_*.c).
static void profile_put_memory(const brim_profile *profile, brim_str *out) {
  const brim_profile_memory *m = &profile->memory;
  char peak[32], fixed[32], line[384];
  if (m->point_count == 0 || !(m->peak_bytes > 0)) return;
  brim_ui_profile_bytes(m->peak_bytes, peak);
  brim_ui_profile_bytes(m->fixed_bytes, fixed);
  const bool has_peak = m->peak >= 0 && (size_t)m->peak < m->point_count;
  snprintf(line, sizeof line,
           brim_tr("Peak at %s%s%s: %s of activations and workspace, besides %s that stay for the "
                   "whole run."),
           has_peak ? m->points[m->peak].op : "-",
           has_peak && m->points[m->peak].layer[0] ? " " : "",
           has_peak ? m->points[m->peak].layer : "", peak, fixed);
  brim_ui_put_section(out, "memory", brim_tr("Memory during a step"), line);
  put_chart(m, out);
  brim_str_append(out, "<div class=\"two\"><div>");
  brim_ui_put(out, "h3", brim_tr("Owners at the peak"));
  put_owners(profile, out);
  brim_str_append(out, "</div><div id=\"memory-at\" class=\"js-only\">");
  brim_ui_put(out, "h3", brim_tr("At the op under the pointer"));
  brim_str_append(out, "<p class=\"note\" id=\"memory-op\">");
  brim_ui_escape_html(out, brim_tr("Point at the drawing, or tap it."));
  brim_str_append(out,
                  "</p><table class=\"plan owners\"><tbody id=\"memory-owners\"></tbody></table>"
                  "</div></div>\n");
  put_data(m, out);
  brim_str_append(out, "</section>\n");
}

//--------------------------------------------- page ---------------------------------------------

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
  brim_status status = profile_put_tables(profile, &body);
  if (!status) {
    profile_put_phases(profile, &body);
    profile_put_memory(profile, &body);
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
