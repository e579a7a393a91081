// Settings on several devices at once, on a terminal and in the report: a table for each setting, predicted and
// measured training with exchange of gradients, the devices that did not run, and the limits of the figures.

#include "ui/bench/ui_bench_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/pages/ui_pages.h"

//-------------------------------------------- texts --------------------------------------------

// The columns of time, for the parts of a step.
typedef enum scaling_part { PART_IO, PART_H2D, PART_COMPUTE, PART_OTHER, PART_COUNT } scaling_part;

// The number of items from `first` on that belong to one setting: the number of devices rises within a setting.
static size_t group_size(const brim_scaling *items, size_t count, size_t first) {
  size_t n = 1;
  while (first + n < count && items[first + n].devices > items[first + n - 1].devices) n++;
  return n;
}

static bool exchange_tried(const brim_scaling *s) {
  return s->exchange.by[0] || s->exchange.failure;
}

static bool any_exchange_tried(const brim_scaling *items, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (exchange_tried(&items[i])) return true;
  }
  return false;
}

// "2", or "1 of 2" if some did not run.
static void devices_text(const brim_scaling *s, char out[32]) {
  if (s->ran == s->devices) {
    snprintf(out, 32, "%d", s->devices);
  } else {
    snprintf(out, 32, brim_tr("%d of %d"), s->ran, s->devices);
  }
}

// Says what the figures do not include.
static const char *limits_text(const brim_scaling *items, size_t count) {
  if (any_exchange_tried(items, count)) {
    return brim_tr(
        "Rows with I/O and computing are without exchange of gradients: an upper bound for "
        "data-parallel training. Predictions are from one device, the gradients' size and a "
        "measured all-reduce.");
  }
  return brim_tr(
      "The devices do not exchange gradients; each trains on its own part of the data. The result "
      "is an upper bound for data-parallel training: loading, copies, host time and power.");
}

// True if several devices of the item are the CPU of the host.
static bool shares_host(const brim_scaling *s) {
  int hosts = 0;
  for (int k = 0; k < s->devices; k++) {
    hosts += !brim_str_starts(s->replicas[k].spec, "cuda") && !s->replicas[k].failure;
  }
  return hosts > 1;
}

// Says why the row of one device may differ from the summary of the same setting.
static const char *one_device_text(const brim_scaling *items, size_t count) {
  bool shared = false;
  for (size_t i = 0; i < count; i++) shared = shared || shares_host(&items[i]);
  if (shared) {
    return brim_tr(
        "CPU devices share the cores and the memory bandwidth of the host, so more devices add "
        "nothing. Each device uses only its share of the threads. The row of one device therefore "
        "differs from the summary, which uses all threads.");
  }
  return brim_tr(
      "The row of one device is a new measurement, so it may differ slightly from the summary.");
}

// Milliseconds of a part of a step, the mean over the devices; NaN if nothing ran.
static double part_ms(const brim_scaling *s, scaling_part part) {
  const brim_result *r = &s->result;
  double sum = 0;
  if (!(r->total_ms.mean > 0)) return (double)NAN;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    bool io = p == BRIM_PHASE_IO, h2d = p == BRIM_PHASE_H2D;
    bool compute = p == BRIM_PHASE_FORWARD || p == BRIM_PHASE_BACKWARD ||
                   p == BRIM_PHASE_OPTIMIZER || p == BRIM_PHASE_COMPUTE;
    bool in_part = part == PART_IO        ? io
                   : part == PART_H2D     ? h2d
                   : part == PART_COMPUTE ? compute
                                          : !io && !h2d && !compute;
    if (in_part && r->phase_used[p]) sum += r->phase_ms[p].mean;
  }
  return sum;
}

void brim_ui_scaling_lost(const brim_scaling *s, char out[96]) {
  static const struct {
    const char *key, *text;
  } words[] = {{"io", BRIM_N_("waiting for data")},
               {"transform", BRIM_N_("transforms")},
               {"h2d", BRIM_N_("copies to the GPU")},
               {"compute", BRIM_N_("computing: power, clocks, memory")},
               {"short_batch", BRIM_N_("short last batches")}};
  const char *text = brim_tr("the host between steps");
  char ms[32];
  if (s->result.failure) {
    snprintf(
        out, 96, "%s",
        s->devices > 1 ? brim_tr("fewer than two devices ran") : brim_ui_failure_text(&s->result));
    return;
  }
  if (!s->lost_to[0]) {
    snprintf(out, 96, "%s", s->devices == 1 ? "" : brim_tr("nothing significant"));
    return;
  }
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strcmp(words[i].key, s->lost_to) == 0) text = brim_tr(words[i].text);
  }
  if (strcmp(s->lost_to, "compute") == 0 && shares_host(s)) {
    text = brim_tr("computing: cores and memory bandwidth are shared");
  }
  brim_ui_ms(s->lost_ms, ms);
  snprintf(out, 96, brim_tr("%s, %s ms"), text, ms);
}

// True if an earlier replica reported the same failure (device and message).
static bool reported_before(const brim_scaling *items, size_t item, int replica) {
  const brim_scaling_replica *r = &items[item].replicas[replica];
  for (size_t i = 0; i <= item; i++) {
    for (int k = 0; k < items[i].devices; k++) {
      const brim_scaling_replica *o = &items[i].replicas[k];
      if (i == item && k == replica) return false;
      if (o->failure && strcmp(o->spec, r->spec) == 0 && strcmp(o->message, r->message) == 0) {
        return true;
      }
    }
  }
  return false;
}

// True if the devices have different names.
static bool has_mixed_devices(const brim_scaling *items, size_t count) {
  const char *first = "";
  for (size_t i = 0; i < count; i++) {
    for (int k = 0; k < items[i].devices; k++) {
      const char *name = items[i].replicas[k].device;
      if (!name[0] || strcmp(name, first) == 0) continue;
      if (first[0]) return true;
      first = name;
    }
  }
  return false;
}

//-------------------------------------------- ranks --------------------------------------------
// The table of training with exchange of gradients: first rows with measured and predicted figures, then rows for more
// devices than ran, with predicted figures only.

enum { RANKS_CELLS = 8, RANKS_ROWS = BRIM_SCALING_FURTHER + 8 };

typedef struct ranks_row {
  char cells[RANKS_CELLS][48];
  char note[96];
  bool good, warns;  // good: efficiency of 90 % or more; warns: the exchange failed or was unstable
} ranks_row;

// "12,345, 91.2 %"
static void put_rate(double rate, double efficiency, char out[48]) {
  char number[32];
  brim_format_figure(rate, number);
  if (isnan(rate)) {
    snprintf(out, 48, "-");
  } else if (isnan(efficiency)) {
    snprintf(out, 48, "%s", number);
  } else {
    snprintf(out, 48, "%s, %.1f %%", number, brim_shown(100 * efficiency));
  }
}

static void note_forecast(const brim_scaling_forecast *f, char out[96]) {
  const char *text = "";
  if (f->network) {
    text = brim_tr("network between machines: not measured");
  } else if (isnan(f->waited_ms)) {
    text = brim_tr("share of the backward pass: unknown");
  } else if (f->beyond) {
    text = brim_tr("beyond what was measured");
  }
  snprintf(out, 96, "%s", text);
}

static void put_ms(double ms, char out[48]) {
  char text[32];
  brim_ui_ms(ms, text);
  snprintf(out, 48, "%s", isnan(ms) ? "-" : text);
}

static void measured_row(const brim_scaling *s, ranks_row *out) {
  const brim_scaling_exchange *e = &s->exchange;
  double error = brim_scaling_error(s);
  char devices[32];
  devices_text(s, devices);
  snprintf(out->cells[0], sizeof out->cells[0], "%s", devices);
  put_rate(s->predicted.samples_per_s, s->predicted.efficiency, out->cells[1]);
  put_rate(e->samples_per_s, e->efficiency, out->cells[2]);
  snprintf(out->cells[3], sizeof out->cells[3], "%+.1f %%", brim_shown(100 * error));
  if (isnan(error)) snprintf(out->cells[3], sizeof out->cells[3], "-");
  put_ms(e->step_ms, out->cells[4]);
  put_ms(e->busy_ms, out->cells[5]);
  put_ms(e->waited_ms, out->cells[6]);
  put_ms(s->predicted.waited_ms, out->cells[7]);
  out->good = e->samples_per_s > 0 && e->efficiency >= 0.9;
  out->warns = e->failure || !e->stable;
  if (e->failure) {
    snprintf(out->note, sizeof out->note, "%s", brim_tr("failed"));
  } else {
    note_forecast(&s->predicted, out->note);
    // The time lost without exchange exceeds the error of the predicted wait.
    bool slowed = s->lost_ms > fabs(s->exchange.waited_ms - s->predicted.waited_ms);
    if (!out->note[0] && slowed) {
      snprintf(out->note, sizeof out->note, "%s",
               brim_tr("slower without exchange too (see Lost to)"));
    }
    if (!e->stable) {
      size_t used = strlen(out->note);
      snprintf(out->note + used, sizeof out->note - used, "%s%s", used ? "; " : "",
               brim_tr("unstable"));
    }
  }
}

static void further_row(const brim_scaling_forecast *f, ranks_row *out) {
  snprintf(out->cells[0], sizeof out->cells[0], "%lld", (long long)f->ranks);
  put_rate(f->samples_per_s, f->efficiency, out->cells[1]);
  snprintf(out->cells[2], sizeof out->cells[2], "-");
  snprintf(out->cells[3], sizeof out->cells[3], "-");
  put_ms(f->step_ms, out->cells[4]);
  put_ms(f->exchange_ms, out->cells[5]);
  snprintf(out->cells[6], sizeof out->cells[6], "-");
  put_ms(f->waited_ms, out->cells[7]);
  note_forecast(f, out->note);
}

static size_t make_ranks_rows(const brim_scaling *items, size_t count, ranks_row out[RANKS_ROWS]) {
  size_t n = 0;
  memset(out, 0, RANKS_ROWS * sizeof *out);
  for (size_t i = 0; i < count; i++) {
    if (exchange_tried(&items[i]) && n < RANKS_ROWS) measured_row(&items[i], &out[n++]);
  }
  for (size_t i = 0; i < count; i++) {
    for (int k = 0; k < items[i].further_count && n < RANKS_ROWS; k++) {
      further_row(&items[i].further[k], &out[n++]);
    }
  }
  return n;
}

static void ranks_heads(const char *out[RANKS_CELLS + 1]) {
  out[0] = brim_tr("Devices");
  out[1] = brim_tr("Predicted");
  out[2] = brim_tr("Measured");
  out[3] = brim_tr("Error");
  out[4] = brim_tr("Total(ms)");
  out[5] = brim_tr("Exchange(ms)");
  out[6] = brim_tr("Waited(ms)");
  out[7] = brim_tr("Predicted wait(ms)");
  out[8] = brim_tr("Note");
}

// Writes the line above the table of ranks, about the last item whose exchange was timed.
static void ranks_title(const brim_scaling *items, size_t count, char out[256]) {
  const brim_scaling_exchange *e = NULL;
  for (size_t i = 0; i < count; i++) {
    if (items[i].exchange.bucket_ms > 0) e = &items[i].exchange;
  }
  char bytes[32], bucket[32], ms[32];
  if (!e) {
    snprintf(out, 256, "%s", brim_tr("Training with exchange of gradients:"));
    return;
  }
  brim_format_bytes((uint64_t)e->gradient_bytes, bytes);
  brim_format_bytes((uint64_t)e->bucket_bytes, bucket);
  brim_ui_ms(e->bucket_ms, ms);
  snprintf(out, 256,
           brim_tr("Training with exchange of gradients over %s: %s per step; an all-reduce of %s "
                   "takes %s ms."),
           e->by, bytes, bucket, ms);
}

// Appends why the devices could not exchange gradients; nothing if they could.
static void exchange_failure(const brim_scaling *s, brim_str *out) {
  if (!s->exchange.failure) return;
  brim_str_printf(out, brim_tr("%d devices could not exchange gradients: %s"), s->ran,
                  s->exchange.message);
}

//------------------------------------------- terminal -------------------------------------------

static void add_row(brim_ui_table *table, const brim_scaling *s) {
  char text[96];
  const brim_result *r = &s->result;
  brim_ui_style style = r->failure || !r->stable ? BRIM_UI_WARN : BRIM_UI_PLAIN;
  devices_text(s, text);
  brim_ui_table_add(table, style, "%s", text);
  brim_format_figure(r->samples_per_s, text);
  brim_ui_table_add(table, style, "%s", text);
  brim_format_figure(s->each, text);
  brim_ui_table_add(table, style, "%s", text);
  if (isnan(s->efficiency)) {
    brim_ui_table_add(table, style, "-");
  } else {
    brim_ui_table_add(table, s->efficiency >= 0.9 ? BRIM_UI_GOOD : BRIM_UI_WARN, "%.1f %%",
                      brim_shown(100 * s->efficiency));
  }
  for (int part = 0; part < PART_COUNT; part++) {
    brim_ui_ms(part_ms(s, (scaling_part)part), text);
    brim_ui_table_add(table, style, "%s", text);
  }
  brim_ui_ms(r->total_ms.mean, text);
  brim_ui_table_add(table, style, "%s", text);
  brim_ui_scaling_lost(s, text);
  bool unstable = !r->failure && !r->stable;
  brim_ui_table_add(table, style, "%s%s%s", text, unstable && text[0] ? "; " : "",
                    unstable ? brim_tr("unstable") : "");
}

static brim_status put_table(const brim_term *term, const brim_scaling *items, size_t count,
                             brim_str *out) {
  const brim_ui_column columns[] = {
      {brim_tr("Devices"), NULL, BRIM_UI_LEFT, 0, 0},
      {brim_tr("Samples/s"), NULL, BRIM_UI_RIGHT, 0, 0},
      {brim_tr("Each"), NULL, BRIM_UI_RIGHT, 1, 0},
      {brim_tr("Efficiency"), brim_tr("Eff."), BRIM_UI_RIGHT, 0, 0},
      {brim_tr("I/O(ms)"), NULL, BRIM_UI_RIGHT, 2, 0},
      {brim_tr("H2D(ms)"), NULL, BRIM_UI_RIGHT, 2, 0},
      {brim_tr("Compute(ms)"), brim_tr("Comp(ms)"), BRIM_UI_RIGHT, 3, 0},
      {brim_tr("Other(ms)"), NULL, BRIM_UI_RIGHT, 4, 0},
      {brim_tr("Total(ms)"), NULL, BRIM_UI_RIGHT, 3, 0},
      {brim_tr("Lost to"), NULL, BRIM_UI_LEFT, 0, 12},
  };
  int left_out = 0;
  brim_ui_table table;
  brim_ui_table_init(&table, columns, sizeof columns / sizeof *columns);
  for (size_t i = 0; i < count; i++) add_row(&table, &items[i]);
  brim_status status = brim_ui_table_render(&table, term, out, &left_out);
  brim_ui_table_deinit(&table);
  brim_ui_note_left_out(term, left_out, out);
  return status;
}

static void put_failed(const brim_term *term, const brim_scaling *items, size_t count,
                       brim_str *out) {
  for (size_t i = 0; i < count; i++) {
    for (int k = 0; k < items[i].devices; k++) {
      const brim_scaling_replica *r = &items[i].replicas[k];
      if (!r->failure || reported_before(items, i, k)) continue;
      brim_str line;
      brim_str_init(&line);
      brim_str_printf(&line, brim_tr("%s did not run: %s"), r->spec, r->message);
      brim_ui_wrap(out, term, line.data ? line.data : r->spec, 2);
      brim_str_append_char(out, '\n');
      brim_str_deinit(&line);
    }
  }
}

static void put_note(const brim_term *term, const char *text, brim_str *out) {
  brim_ui_wrap(out, term, text, 0);
  brim_str_append_char(out, '\n');
}

// Puts the table of ranks of one setting; nothing if no exchange was tried.
static brim_status put_ranks(const brim_term *term, const brim_scaling *items, size_t count,
                             brim_str *out) {
  ranks_row rows[RANKS_ROWS];
  const char *heads[RANKS_CELLS + 1];
  brim_ui_column columns[RANKS_CELLS + 1];
  static const int priority[RANKS_CELLS + 1] = {0, 0, 0, 1, 2, 5, 3, 4, 0};
  char title[256];
  int left_out = 0;
  size_t n = make_ranks_rows(items, count, rows);
  if (n == 0) return BRIM_OK;
  ranks_heads(heads);
  ranks_title(items, count, title);
  brim_str_append_char(out, '\n');
  brim_ui_wrap(out, term, title, 2);
  brim_str_append(out, "\n\n");
  for (int i = 0; i <= RANKS_CELLS; i++) {
    bool left = i == 0 || i == RANKS_CELLS;
    columns[i] = (brim_ui_column){heads[i], NULL, left ? BRIM_UI_LEFT : BRIM_UI_RIGHT, priority[i],
                                  i == RANKS_CELLS ? 12 : 0};
  }
  brim_ui_table table;
  brim_ui_table_init(&table, columns, RANKS_CELLS + 1);
  for (size_t i = 0; i < n; i++) {
    brim_ui_style style = rows[i].warns ? BRIM_UI_WARN : BRIM_UI_PLAIN;
    for (int k = 0; k < RANKS_CELLS; k++) {
      brim_ui_style cell = k == 2 && rows[i].good && !rows[i].warns ? BRIM_UI_GOOD : style;
      brim_ui_table_add(&table, cell, "%s", rows[i].cells[k]);
    }
    brim_ui_table_add(&table, style, "%s", rows[i].note);
  }
  brim_status status = brim_ui_table_render(&table, term, out, &left_out);
  brim_ui_table_deinit(&table);
  brim_ui_note_left_out(term, left_out, out);
  return status;
}

brim_status brim_ui_scaling(const brim_term *term, const brim_scaling *items, size_t count,
                            const char *note, brim_str *out) {
  if (count == 0) return BRIM_OK;
  brim_str_append_char(out, '\n');
  brim_ui_heading(out, term, brim_tr("SCALING OVER DEVICES"));
  for (size_t i = 0, n; i < count; i += n) {
    n = group_size(items, count, i);
    brim_str_append_char(out, '\n');
    brim_str name;
    brim_str_init(&name);
    brim_ui_setting(&items[i].result, &name);
    if (name.data) brim_ui_wrap(out, term, name.data, 2);
    brim_str_deinit(&name);
    brim_str_append(out, "\n\n");
    BRIM_TRY(put_table(term, &items[i], n, out));
    BRIM_TRY(put_ranks(term, &items[i], n, out));
  }
  brim_str_append_char(out, '\n');
  put_failed(term, items, count, out);
  for (size_t i = 0; i < count; i++) {
    brim_str line;
    brim_str_init(&line);
    exchange_failure(&items[i], &line);
    if (line.len > 0) {
      brim_ui_wrap(out, term, line.data, 2);
      brim_str_append_char(out, '\n');
    }
    brim_str_deinit(&line);
  }
  if (has_mixed_devices(items, count)) {
    put_note(term, brim_tr("The devices differ; efficiency is relative to the first."), out);
  }
  put_note(term, limits_text(items, count), out);
  put_note(term, one_device_text(items, count), out);
  if (note && note[0]) put_note(term, note, out);
  return brim_str_status(out);
}

//-------------------------------------------- report --------------------------------------------

static void put_number(brim_str *out, double value) {
  char text[32];
  brim_format_figure(value, text);
  brim_ui_put(out, "td", isnan(value) ? BRIM_UI_DASH : text);
}

static void put_page_row(const brim_scaling *s, brim_str *out) {
  char text[96];
  brim_str_append(out, "<tr>");
  devices_text(s, text);
  brim_ui_put(out, "th", text);
  put_number(out, s->result.samples_per_s);
  put_number(out, s->each);
  snprintf(text, sizeof text, "%.1f %%", brim_shown(100 * s->efficiency));
  brim_ui_put(out, "td", isnan(s->efficiency) ? BRIM_UI_DASH : text);
  for (int part = 0; part < PART_COUNT; part++) {
    double ms = part_ms(s, (scaling_part)part);
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

static void put_page_table(const brim_scaling *items, size_t count, brim_str *out) {
  const char *const heads[] = {brim_tr("Devices"),     brim_tr("Samples/s"), brim_tr("Each"),
                               brim_tr("Efficiency"),  brim_tr("I/O(ms)"),   brim_tr("H2D(ms)"),
                               brim_tr("Compute(ms)"), brim_tr("Other(ms)"), brim_tr("Lost to")};
  brim_str_append(out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\"");
  brim_ui_put_attribute(out, "aria-label", brim_tr("Scaling over devices"));
  brim_str_append(out, "><table class=\"scaling\"><thead><tr>");
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) brim_ui_put(out, "th", heads[i]);
  brim_str_append(out, "</tr></thead><tbody>\n");
  for (size_t i = 0; i < count; i++) put_page_row(&items[i], out);
  brim_str_append(out, "</tbody></table></div>\n");
}

static void put_page_ranks(const brim_scaling *items, size_t count, brim_str *out) {
  ranks_row rows[RANKS_ROWS];
  const char *heads[RANKS_CELLS + 1];
  char title[256];
  size_t n = make_ranks_rows(items, count, rows);
  if (n == 0) return;
  ranks_heads(heads);
  ranks_title(items, count, title);
  brim_ui_put(out, "p", title);
  brim_str_append(out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\"");
  brim_ui_put_attribute(out, "aria-label", brim_tr("Training with exchange of gradients"));
  brim_str_append(out, "><table class=\"scaling ranks\"><thead><tr>");
  for (int i = 0; i <= RANKS_CELLS; i++) brim_ui_put(out, "th", heads[i]);
  brim_str_append(out, "</tr></thead><tbody>\n");
  for (size_t i = 0; i < n; i++) {
    brim_str_append(out, "<tr>");
    for (int k = 0; k < RANKS_CELLS; k++) {
      const char *value = strcmp(rows[i].cells[k], "-") == 0 ? BRIM_UI_DASH : rows[i].cells[k];
      brim_ui_put(out, k == 0 ? "th" : "td", value);
    }
    brim_ui_put_class(out, "td", "text", rows[i].note);
    brim_str_append(out, "</tr>\n");
  }
  brim_str_append(out, "</tbody></table></div>\n");
}

static void put_item(const char *text, bool *any, brim_str *out) {
  if (!*any) brim_str_append(out, "<ul class=\"why\">\n");
  *any = true;
  brim_ui_put(out, "li", text);
}

// Puts throughput as bars. A full bar is the throughput of all devices if each were as fast as one device alone.
static void put_bars(const brim_scaling *items, size_t count, brim_str *out) {
  double one_rate = items[0].result.samples_per_s, full_rate = one_rate * items[count - 1].devices;
  if (!(one_rate > 0)) return;
  for (size_t i = 0; i < count; i++) {
    const brim_scaling *s = &items[i];
    if (!(s->result.samples_per_s > 0)) continue;
    char name[64], text[64], number[32];
    snprintf(name, sizeof name, s->ran == 1 ? brim_tr("%d device") : brim_tr("%d devices"), s->ran);
    brim_format_figure(s->result.samples_per_s, number);
    snprintf(text, sizeof text, "%s/s, %.1f %%", number, brim_shown(100 * s->efficiency));
    double share = 100 * s->result.samples_per_s / full_rate;
    brim_str_append(out, "<div class=\"bar now\">");
    brim_ui_put(out, "span", name);
    brim_str_printf(out, "<b><i style=\"--v:%.2f\"></i></b>", share < 100 ? share : 100.0);
    brim_ui_put_class(out, "span", "v", text);
    brim_str_append(out, "</div>\n");
  }
}

static void put_page_failed(const brim_scaling *items, size_t count, brim_str *out) {
  bool any = false;
  for (size_t i = 0; i < count; i++) {
    for (int k = 0; k < items[i].devices; k++) {
      const brim_scaling_replica *r = &items[i].replicas[k];
      if (!r->failure || reported_before(items, i, k)) continue;
      brim_str t;
      brim_str_init(&t);
      brim_str_printf(&t, brim_tr("%s did not run: %s"), r->spec, r->message);
      put_item(t.data ? t.data : r->spec, &any, out);
      brim_str_deinit(&t);
    }
    brim_str t;
    brim_str_init(&t);
    exchange_failure(&items[i], &t);
    if (t.len > 0) put_item(t.data, &any, out);
    brim_str_deinit(&t);
  }
  if (any) brim_str_append(out, "</ul>\n");
}

void brim_ui_report_scaling(const brim_ui_report_options *options, brim_str *out) {
  const brim_scaling *items = options->scaling;
  size_t count = options->scaling_count;
  if (count == 0) return;
  brim_ui_put_section(out, "scaling", brim_tr("Scaling over devices"), limits_text(items, count));
  for (size_t i = 0, n; i < count; i += n) {
    n = group_size(items, count, i);
    brim_str name;
    brim_str_init(&name);
    brim_ui_setting(&items[i].result, &name);
    brim_str_append(out, "<figure class=\"panel\"><figcaption>");
    brim_ui_escape_html(out, name.data ? name.data : "");
    brim_str_append(out, "</figcaption>\n");
    brim_str_deinit(&name);
    put_bars(&items[i], n, out);
    put_page_table(&items[i], n, out);
    put_page_ranks(&items[i], n, out);
    brim_str_append(out, "</figure>\n");
  }
  put_page_failed(items, count, out);
  if (has_mixed_devices(items, count)) {
    brim_ui_put(out, "p", brim_tr("The devices differ; efficiency is relative to the first."));
  }
  brim_ui_put(out, "p", one_device_text(items, count));
  if (options->scaling_note && options->scaling_note[0]) {
    brim_ui_put(out, "p", options->scaling_note);
  }
  brim_str_append(out, "</section>\n");
}
