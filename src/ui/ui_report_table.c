// The table of all settings: every knob that is worth showing, every metric that any setting knows.
// It is also where the page's script takes its numbers from: a cell's data-v where its text is not
// the number itself.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_words.h"
#include "ui/ui_report_int.h"

static const char *status_class(const brim_result *r) {
  if (r->failure == BRIM_FAILURE_NONE) {
    return (r->stable || r->steps == 0) && !r->throttled ? "ok" : "warn";
  }
  return r->failure == BRIM_FAILURE_OOM_PLANNED ? "warn" : "bad";
}

static void put_header(const char *attribute, const char *key, const char *text, const char *hint,
                       brim_str *out) {
  brim_str_append(out, "<th");
  brim_ui_put_attribute(out, attribute, key);
  if (hint) brim_ui_put_attribute(out, "title", hint);
  brim_str_append(out, "><button type=\"button\">");
  brim_ui_escape_html(out, text);
  brim_str_append(out, "</button></th>");
}

typedef struct columns {
  const char *knobs[BRIM_RESULT_MAX_KNOBS];
  size_t knob_count;
  const brim_ui_metric *metrics[64];
  size_t metric_count;
  const brim_result *first;
} columns;

static void choose_columns(const brim_ui_view *view, columns *c) {
  const brim_result *first = &view->results[0];
  size_t n;
  const brim_ui_metric *metrics = brim_ui_metrics(&n);
  *c = (columns){.first = first};
  for (size_t k = 0; k < first->knob_count; k++) {
    const char *name = first->knobs[k].name;
    if (brim_ui_knob_shown(view->results, view->count, name)) c->knobs[c->knob_count++] = name;
  }
  for (size_t i = 0; i < n && c->metric_count < 64; i++) {
    if (brim_ui_metric_known(view, &metrics[i])) c->metrics[c->metric_count++] = &metrics[i];
  }
}

static void put_head(const columns *c, brim_str *out) {
  // the status stands where it is seen without scrolling
  brim_str_printf(out, "<colgroup><col span=\"%zu\" />", c->knob_count + 1);
  for (size_t i = 0; i < c->metric_count; i++) {
    brim_str_append(out, c->metrics[i]->extra ? "<col class=\"x\" />" : "<col />");
  }
  brim_str_append(out, "</colgroup>\n<thead><tr>");
  for (size_t k = 0; k < c->knob_count; k++) {
    put_header("data-knob", c->knobs[k], brim_ui_knob_label(c->first, c->knobs[k]), NULL, out);
  }
  put_header("data-key", "status", brim_tr("Status"), NULL, out);
  for (size_t i = 0; i < c->metric_count; i++) {
    const brim_ui_metric *m = c->metrics[i];
    char rate[64];
    const char *header = brim_tr(m->header);
    if (strcmp(m->key, "rate") == 0) header = brim_ui_rate_heading(c->first, 1, rate);
    put_header("data-key", m->key, header, brim_tr(m->label), out);
  }
  brim_str_append(out, "</tr></thead>\n");
}

static void put_metric(const brim_ui_metric *metric, const brim_result *r, brim_str *out) {
  double value = brim_ui_metric_value(metric, r);
  char text[32];
  brim_ui_metric_text(metric, value, text);
  // "1.5 GiB" and "1.23 M" are not read back by a script; "12,345" and "36.4" are.
  bool plain = strspn(text, "0123456789.,-") == strlen(text);
  if (isnan(value) || plain) {
    brim_str_printf(out, "<td>%s</td>", text);
  } else {
    brim_str_printf(out, "<td data-v=\"%.7g\">%s</td>", value, text);
  }
}

static void put_status(const brim_result *r, bool best, brim_str *out) {
  brim_str_printf(out, "<td class=\"status %s\"", status_class(r));
  if (r->message[0]) {
    brim_ui_put_attribute(out, "title", r->message);
  } else if (r->throttle[0]) {
    char words[160] = "", why[160];
    brim_words_put_list(words, sizeof words, r->throttle);
    brim_words_text(words, why, sizeof why);
    brim_ui_put_attribute(out, "title", why);
  }
  brim_str_append_char(out, '>');
  brim_ui_escape_html(out, brim_ui_failure_text(r));
  if (best) {
    brim_str_append(out, " <strong class=\"tag\">");
    brim_ui_escape_html(out, brim_tr("recommended"));
    brim_str_append(out, "</strong>");
  }
  brim_str_append(out, "</td>");
}

static void put_row(const brim_ui_view *view, const columns *c, size_t index, brim_str *out) {
  const brim_result *r = &view->results[index];
  bool best = (int)index == view->picks.recommended;
  const char *kind = best ? " class=\"best\"" : r->failure ? " class=\"failed\"" : "";
  brim_str_printf(out, "<tr id=\"r%zu\"%s>", index, kind);
  for (size_t k = 0; k < c->knob_count; k++) {
    const char *value = brim_ui_knob_value(r, c->knobs[k]);
    brim_ui_put(out, "td", value[0] ? value : BRIM_UI_DASH);
  }
  put_status(r, best, out);
  for (size_t i = 0; i < c->metric_count; i++) put_metric(c->metrics[i], r, out);
  brim_str_append(out, "</tr>\n");
}

static bool same_failure(const brim_result *a, const brim_result *b) {
  return a->failure == b->failure && strcmp(a->message, b->message) == 0;
}

// "Batch 8192, fp32 and 5 more: OOM (planned) ..."
static void put_reason(const brim_ui_view *view, size_t index, brim_str *out) {
  const brim_result *r = &view->results[index];
  char name[BRIM_UI_GROUP_NAME];
  size_t more = 0;
  for (size_t k = 0; k < index; k++) {
    if (same_failure(&view->results[k], r)) return;  // said already
  }
  for (size_t k = index + 1; k < view->count; k++) more += same_failure(&view->results[k], r);
  brim_ui_setting_name(view, r, name);
  brim_str_append(out, "<li><span>");
  brim_ui_escape_html(out, name);
  if (more) brim_str_printf(out, brim_tr(" and %zu more"), more);
  brim_str_printf(out, "</span> <span class=\"%s\">", status_class(r));
  brim_ui_escape_html(out, brim_ui_failure_text(r));
  brim_str_append(out, "</span> ");
  brim_ui_escape_html(out, r->message);
  brim_str_append(out, "</li>\n");
}

// Why settings have no numbers, each reason once.
static void put_failures(const brim_ui_view *view, brim_str *out) {
  size_t failed = 0;
  for (size_t i = 0; i < view->count; i++) failed += view->results[i].failure != BRIM_FAILURE_NONE;
  if (failed == 0) return;
  brim_str_append(out, "<details open=\"open\"><summary>");
  brim_str_printf(
      out, failed == 1 ? brim_tr("%zu setting did not run") : brim_tr("%zu settings did not run"),
      failed);
  brim_str_append(out, "</summary>\n<ul class=\"why\">\n");
  for (size_t i = 0; i < view->count; i++) {
    if (view->results[i].failure != BRIM_FAILURE_NONE) put_reason(view, i, out);
  }
  brim_str_append(out, "</ul></details>\n");
}

void brim_ui_report_table(const brim_ui_view *view, brim_str *out) {
  columns c;
  choose_columns(view, &c);
  brim_ui_put_section(
      out, "settings", brim_tr("All settings"),
      brim_tr("Times are per step; phases add up to the total. A dash marks an unknown value."));
  brim_str_append(out, "<div class=\"tools js\">");
  brim_ui_escape_html(out, brim_tr("Click a heading to sort."));
  brim_str_append(out, "</div>\n");
  brim_str_append(out, "<div class=\"scroll tall\" tabindex=\"0\" role=\"region\"");
  brim_ui_put_attribute(out, "aria-label", brim_tr("All settings"));
  brim_str_append(out, "><table class=\"all\" id=\"all\">\n");
  put_head(&c, out);
  brim_str_append(out, "<tbody>\n");
  for (size_t i = 0; i < view->count; i++) put_row(view, &c, i, out);
  brim_str_append(out, "</tbody></table></div>\n");
  put_failures(view, out);
  brim_str_append(out, "</section>\n");
}
