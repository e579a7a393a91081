// The report's part on several devices at once: for each setting a bar for each number of devices,
// against what so many times the first would be, and the table.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_report_int.h"

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
      const char *cell = strcmp(rows[i].cells[k], "-") == 0 ? BRIM_UI_DASH : rows[i].cells[k];
      brim_ui_put(out, k == 0 ? "th" : "td", cell);
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
