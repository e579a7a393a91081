// The HTML report of a bench: one self-contained page, no network, no script; light or dark by the
// reader's preference, and fit for paper. Well-formed as XML too, which is what the test checks.
#include "ui/ui_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char style[] =
    ":root{color-scheme:light dark;--fg:#1a1d21;--dim:#626a73;--bg:#fff;--card:#f5f6f8;"
    "--line:#d9dde2;--good:#137333;--warn:#9a6700;--bad:#b3261e;--best:#e6f4ea}\n"
    "@media (prefers-color-scheme:dark){:root{--fg:#e6e8eb;--dim:#9aa2ab;--bg:#15181c;"
    "--card:#1e2329;--line:#343b43;--good:#7bd88f;--warn:#e3b341;--bad:#ff8a80;--best:#17301f}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;max-width:84rem;padding:1.5rem;background:var(--bg);color:var(--fg);"
    "font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans KR',sans-serif}\n"
    "h1{font-size:1.6rem;margin:0}h2{font-size:1.15rem;margin:2rem 0 .6rem}\n"
    "p.sub{margin:.2rem 0 0;color:var(--dim)}code{font-size:.9em;overflow-wrap:anywhere}\n"
    ".cards{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(15rem,1fr))}\n"
    ".card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.9rem "
    "1rem}.card.best{background:var(--best);border-color:var(--good)}\n"
    ".card h3{margin:0 0 .4rem;font-size:1rem}\n"
    "dl{display:grid;grid-template-columns:auto 1fr;gap:.1rem .9rem;margin:0}\n"
    "dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}\n"
    ".charts{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(28rem,100%),"
    "1fr))}\n"
    "figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:8px;"
    "padding:.7rem}figcaption{font-weight:600;margin-bottom:.3rem}svg{width:100%;height:auto}\n"
    "text{fill:var(--dim);font-size:13px}.grid{stroke:var(--line)}\n"
    // A drawing is 480 units wide: on a phone its letters grow as it shrinks.
    "@media (max-width:600px){body{padding:.8rem}text{font-size:16px}text.y{display:none}"
    "figure{padding:.4rem}}\n"
    "polyline{fill:none;stroke:var(--c);stroke-width:2}circle{fill:var(--c);stroke:var(--c);stroke-"
    "width:2}\n"
    "circle.hollow{fill:var(--card)}.ci{fill:none;stroke:var(--c);opacity:.55}\n"
    ".s0{--c:#2a7de1}.s1{--c:#d9730d}.s2{--c:#2e9e5b}.s3{--c:#b146c2}.s4{--c:#0f8b8d}"
    ".s5{--c:#c0392b}.s6{--c:#8d7b00}.s7{--c:#6c6cff}\n"
    ".legend{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1rem;margin:.3rem 0 0;padding:0;"
    "font-size:.85rem}.legend i{display:inline-block;width:.8rem;height:.8rem;border-radius:2px;"
    "background:var(--c);margin-right:.4rem;vertical-align:-1px}\n"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;"
    "font-variant-numeric:tabular-nums;font-size:.88rem}\n"
    "th,td{padding:.25rem .45rem;text-align:right;border-bottom:1px solid var(--line);"
    "white-space:nowrap}th{color:var(--dim);font-weight:600}th:last-child,td:last-child"
    "{text-align:left}\n"
    "tr.best td{background:var(--best);font-weight:600}tr.failed td{color:var(--dim)}\n"
    ".ok{color:var(--good)}.warn{color:var(--warn)}.bad{color:var(--bad)}\n"
    "footer{margin-top:2rem;color:var(--dim);font-size:.85rem}\n"
    "@media print{:root{--fg:#000;--dim:#444;--bg:#fff;--card:#fff;--line:#bbb;--best:#eee}"
    "body{max-width:none;padding:0;font-size:11px}figure,.card,tr{break-inside:avoid}"
    ".scroll{overflow:visible}}\n"
    "@page{margin:14mm}\n";

void brim_ui_escape_html(brim_str *out, const char *text) {
  for (; *text; text++) {
    switch (*text) {
      case '&':
        brim_str_append(out, "&amp;");
        break;
      case '<':
        brim_str_append(out, "&lt;");
        break;
      case '>':
        brim_str_append(out, "&gt;");
        break;
      case '"':
        brim_str_append(out, "&quot;");
        break;
      case '\'':
        brim_str_append(out, "&#39;");
        break;
      default:
        // Control characters have no place in HTML or XML.
        brim_str_append_char(out, (unsigned char)*text < 0x20 && *text != '\n' ? ' ' : *text);
    }
  }
}

static void put_element(brim_str *out, const char *tag, const char *text) {
  brim_str_printf(out, "<%s>", tag);
  brim_ui_escape_html(out, text);
  brim_str_printf(out, "</%s>", tag);
}

static void put_pair(brim_str *out, const char *name, const char *value) {
  if (!value[0]) return;
  put_element(out, "dt", name);
  put_element(out, "dd", value);
  brim_str_append_char(out, '\n');
}

static void put_machine(const brim_result *r, brim_str *out) {
  char text[64] = "";
  put_element(out, "h2", brim_tr("Machine"));
  brim_str_append(out, "\n<div class=\"card\"><dl>\n");
  put_pair(out, brim_tr("Device"), r->device);
  put_pair(out, brim_tr("Backend"), r->backend);
  put_pair(out, brim_tr("Library"), r->library);
  put_pair(out, brim_tr("Device id"), r->device_id);
  put_pair(out, brim_tr("CPU"), r->cpu);
  if (r->cores > 0) snprintf(text, sizeof text, brim_tr("%d, %d used"), r->cores, r->threads);
  put_pair(out, brim_tr("Cores"), text);
  text[0] = '\0';
  if (r->total_bytes > 0) brim_format_bytes((uint64_t)r->total_bytes, text);
  put_pair(out, brim_tr("Memory"), text);
  text[0] = '\0';
  if (r->free_bytes > 0) brim_format_bytes((uint64_t)r->free_bytes, text);
  put_pair(out, brim_tr("Free at the start"), text);
  put_pair(out, brim_tr("Host"), r->host);
  put_pair(out, brim_tr("System"), r->os);
  put_pair(out, brim_tr("Workload"), r->workload);
  put_pair(out, brim_tr("Task"), r->description);
  brim_str_append(out, "</dl></div>\n");
}

static void put_card(const char *title, const brim_result *results, size_t count, int index,
                     bool best, brim_str *out) {
  if (index < 0 || (size_t)index >= count) return;
  const brim_result *r = &results[index];
  char text[96], number[32];
  brim_str_printf(out, "<div class=\"card%s\">", best ? " best" : "");
  put_element(out, "h3", title);
  brim_str_append(out, "<dl>\n");
  for (size_t i = 0; i < r->knob_count; i++) {
    if (!brim_ui_knob_shown(results, count, r->knobs[i].name)) continue;
    put_pair(out, brim_ui_knob_label(r->knobs[i].name), r->knobs[i].value);
  }
  brim_ui_number(r->samples_per_s, number);
  snprintf(text, sizeof text, brim_tr("%s samples/s"), number);
  put_pair(out, brim_tr("Throughput"), text);
  brim_format_bytes((uint64_t)brim_result_memory(r), text);
  put_pair(out, brim_tr("Memory planned"), text);
  brim_ui_number(r->samples_per_s / (brim_result_memory(r) / 1e9), number);
  snprintf(text, sizeof text, brim_tr("%s samples/s/GB"), number);
  put_pair(out, brim_tr("Efficiency"), text);
  if (!isnan(r->epoch_s)) {
    brim_format_duration(r->epoch_s, text);
    put_pair(out, brim_tr("One epoch"), text);
  }
  brim_str_append(out, "</dl></div>\n");
}

static void put_picks(const brim_result *results, size_t count, brim_ui_picks picks,
                      brim_str *out) {
  put_element(out, "h2", brim_tr("Optimal configuration"));
  if (picks.highest < 0) {
    brim_str_append_char(out, '\n');
    put_element(out, "p", brim_ui_why_nothing(results, count));
    return;
  }
  if (picks.recommended < 0) put_element(out, "p", brim_ui_why_nothing(results, count));
  brim_str_append(out, "\n<div class=\"cards\">\n");
  put_card(brim_tr("Recommended for training"), results, count, picks.recommended, true, out);
  put_card(brim_tr("Highest throughput"), results, count, picks.highest, false, out);
  put_card(brim_tr("Best efficiency"), results, count, picks.efficient, false, out);
  brim_str_append(out, "</div>\n");
}

static const char *status_class(const brim_result *r) {
  if (r->failure == BRIM_FAILURE_NONE) return r->stable || r->steps == 0 ? "ok" : "warn";
  return r->failure == BRIM_FAILURE_OOM_PLANNED ? "warn" : "bad";
}

static void put_table(const brim_result *results, size_t count, brim_ui_picks picks,
                      brim_str *out) {
  brim_ui_bench_column columns[BRIM_UI_MAX_COLUMNS];
  size_t n = brim_ui_bench_columns(results, count, columns);
  put_element(out, "h2", brim_tr("All settings"));
  brim_str_append(out, "\n<div class=\"scroll\"><table>\n<thead><tr>");
  for (size_t i = 0; i < n; i++) put_element(out, "th", columns[i].header);
  brim_str_append(out, "</tr></thead>\n<tbody>\n");
  for (size_t r = 0; r < count; r++) {
    const char *row = (int)r == picks.recommended               ? "best"
                      : results[r].failure == BRIM_FAILURE_NONE ? ""
                                                                : "failed";
    brim_str_printf(out, "<tr class=\"%s\">", row);
    for (size_t i = 0; i < n; i++) {
      char text[64];
      brim_ui_bench_cell(&columns[i], &results[r], &results[0], text);
      if (columns[i].what == BRIM_UI_WHAT_STATUS) {
        brim_str_printf(out, "<td class=\"%s\" title=\"", status_class(&results[r]));
        brim_ui_escape_html(out, results[r].message);
        brim_str_append(out, "\">");
        brim_ui_escape_html(out, text);
        brim_str_append(out, "</td>");
      } else {
        put_element(out, "td", text);
      }
    }
    brim_str_append(out, "</tr>\n");
  }
  brim_str_append(out, "</tbody></table></div>\n");
}

static void put_list(const char *title, const brim_result *r, brim_str *out) {
  put_element(out, "h3", title);
  brim_str_append(out, "\n<ul>\n");
  for (size_t i = 0; i < r->finding_count; i++) {
    const brim_finding *f = &r->findings[i];
    brim_str_append(out, "<li>");
    brim_ui_escape_html(out, f->text);
    if (!isnan(f->cost_ms)) {
      char cost[32];
      brim_ui_ms(f->cost_ms, cost);
      brim_str_printf(out, brim_tr(" (%s ms per step)"), cost);
    }
    if (f->remedy[0]) {
      brim_str_append(out, "<br /><span class=\"ok\">");
      brim_ui_escape_html(out, f->remedy);
      brim_str_append(out, "</span>");
    }
    brim_str_append(out, "</li>\n");
  }
  brim_str_append(out, "</ul>\n");
}

// Of the recommended setting and, where it is another one, of the fastest.
static void put_findings(const brim_result *results, size_t count, brim_ui_picks picks,
                         brim_str *out) {
  char noise[160];
  bool noisy = brim_ui_mostly_unstable(results, count, noise);
  bool recommended = brim_ui_has_findings(results, count, picks.recommended);
  bool highest =
      picks.highest != picks.recommended && brim_ui_has_findings(results, count, picks.highest);
  if (!noisy && !recommended && !highest) return;
  put_element(out, "h2", brim_tr("Findings"));
  if (noisy) put_element(out, "p", noise);
  brim_str_append_char(out, '\n');
  if (recommended) {
    put_list(brim_tr("Recommended for training"), &results[picks.recommended], out);
  }
  if (highest) put_list(brim_tr("Highest throughput"), &results[picks.highest], out);
}

brim_status brim_ui_report(const brim_ui_report_options *options, const brim_result *results,
                           size_t count, brim_str *out) {
  const char *title = options->title ? options->title : "brim bench";
  brim_str_append(out,
                  "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\" />\n"
                  "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\" />\n");
  put_element(out, "title", title);
  brim_str_printf(out, "\n<style>\n%s</style>\n</head>\n<body>\n<header>", style);
  put_element(out, "h1", title);
  if (count > 0 && !isnan(results[0].when_s)) {
    char when[32];
    brim_clock_iso8601(results[0].when_s, when);
    brim_str_append(out, "<p class=\"sub\">");
    brim_str_printf(
        out, count == 1 ? brim_tr("%zu setting, begun %s") : brim_tr("%zu settings, begun %s"),
        count, when);
    brim_str_append(out, "</p>");
  }
  if (options->command) {
    brim_str_append(out, "<p class=\"sub\"><code>");
    brim_ui_escape_html(out, options->command);
    brim_str_append(out, "</code></p>");
  }
  brim_str_append(out, "</header>\n<main>\n");
  put_picks(results, count, options->picks, out);
  put_element(out, "h2", brim_tr("Charts"));
  brim_str_append(out, "\n<div class=\"charts\">\n");
  BRIM_TRY(brim_ui_bench_charts(results, count, out));
  brim_str_append(out, "</div>\n");
  if (count > 0) put_table(results, count, options->picks, out);
  put_findings(results, count, options->picks, out);
  if (count > 0) put_machine(&results[0], out);
  brim_str_printf(out, "</main>\n<footer>brim %s</footer>\n</body>\n</html>\n", BRIM_VERSION);
  return brim_str_status(out);
}
