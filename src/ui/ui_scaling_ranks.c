// A setting as one training of ranks: what was predicted and what was measured side by side, and predictions
// beyond what was measured. Texts are shared by the terminal's table and the report's.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_int.h"

static bool tried(const brim_scaling *s) { return s->exchange.by[0] || s->exchange.failure; }

bool brim_ui_ranks_any(const brim_scaling *all, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (tried(&all[i])) return true;
  }
  return false;
}

// "2", or "1 of 2" where not all of them ran.
void brim_ui_scaling_devices(const brim_scaling *s, char out[32]) {
  if (s->ran == s->devices) {
    snprintf(out, 32, "%d", s->devices);
  } else {
    snprintf(out, 32, brim_tr("%d of %d"), s->ran, s->devices);
  }
}

// "12,345, 91.2 %"
static void put_rate(double rate, double efficiency, char out[48]) {
  char number[32];
  brim_ui_number(rate, number);
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

// Without exchange the devices lost more than the exchange was mistaken by.
static bool slowed(const brim_scaling *s) {
  return s->lost_ms > fabs(s->exchange.waited_ms - s->predicted.waited_ms);
}

static void row_of(const brim_scaling *s, brim_ui_ranks_row *out) {
  const brim_scaling_exchange *e = &s->exchange;
  double error = brim_scaling_error(s);
  char devices[32];
  brim_ui_scaling_devices(s, devices);
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
    if (!out->note[0] && slowed(s)) {
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

static void further_row(const brim_scaling_forecast *f, brim_ui_ranks_row *out) {
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

size_t brim_ui_ranks_rows(const brim_scaling *all, size_t count,
                          brim_ui_ranks_row out[BRIM_UI_RANKS_ROWS]) {
  size_t n = 0;
  memset(out, 0, BRIM_UI_RANKS_ROWS * sizeof *out);
  for (size_t i = 0; i < count; i++) {
    if (tried(&all[i]) && n < BRIM_UI_RANKS_ROWS) row_of(&all[i], &out[n++]);
  }
  for (size_t i = 0; i < count; i++) {
    for (int k = 0; k < all[i].further_count && n < BRIM_UI_RANKS_ROWS; k++) {
      further_row(&all[i].further[k], &out[n++]);
    }
  }
  return n;
}

void brim_ui_ranks_heads(const char *out[BRIM_UI_RANKS_CELLS + 1]) {
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

// Of the last exchange that was timed.
void brim_ui_ranks_title(const brim_scaling *all, size_t count, char out[256]) {
  const brim_scaling_exchange *e = NULL;
  for (size_t i = 0; i < count; i++) {
    if (all[i].exchange.bucket_ms > 0) e = &all[i].exchange;
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

void brim_ui_ranks_failed(const brim_scaling *s, brim_str *out) {
  if (!s->exchange.failure) return;
  brim_str_printf(out, brim_tr("%d devices could not exchange gradients: %s"), s->ran,
                  s->exchange.message);
}

brim_status brim_ui_ranks(const brim_term *term, const brim_scaling *all, size_t count,
                          brim_str *out) {
  brim_ui_ranks_row rows[BRIM_UI_RANKS_ROWS];
  const char *heads[BRIM_UI_RANKS_CELLS + 1];
  brim_ui_column columns[BRIM_UI_RANKS_CELLS + 1];
  // what a narrow terminal leaves out first has the higher number
  static const int order[BRIM_UI_RANKS_CELLS + 1] = {0, 0, 0, 1, 2, 5, 3, 4, 0};
  char title[256];
  int left_out = 0;
  size_t n = brim_ui_ranks_rows(all, count, rows);
  if (n == 0) return BRIM_OK;
  brim_ui_ranks_heads(heads);
  brim_ui_ranks_title(all, count, title);
  brim_str_append_char(out, '\n');
  brim_ui_wrap(out, term, title, 2);
  brim_str_append(out, "\n\n");
  for (int i = 0; i <= BRIM_UI_RANKS_CELLS; i++) {
    bool left = i == 0 || i == BRIM_UI_RANKS_CELLS;
    columns[i] = (brim_ui_column){heads[i], NULL, left ? BRIM_UI_LEFT : BRIM_UI_RIGHT, order[i],
                                  i == BRIM_UI_RANKS_CELLS ? 12 : 0};
  }
  brim_ui_table table;
  brim_ui_table_init(&table, columns, BRIM_UI_RANKS_CELLS + 1);
  for (size_t i = 0; i < n; i++) {
    brim_ui_style style = rows[i].warns ? BRIM_UI_WARN : BRIM_UI_PLAIN;
    for (int k = 0; k < BRIM_UI_RANKS_CELLS; k++) {
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
