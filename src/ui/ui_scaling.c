// A setting on several devices at once, in the terminal: a table for each setting, which devices did
// not take part, and what the figures leave out. The report's is in ui_report_scaling.c.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/ui_int.h"

const char *brim_ui_scaling_limits(const brim_scaling *all, size_t count) {
  if (brim_ui_ranks_any(all, count)) {
    return brim_tr(
        "Rows with I/O and computing are without exchange of gradients: an upper bound for "
        "data-parallel training. Predictions are from one device, the gradients' size and a "
        "measured all-reduce.");
  }
  return brim_tr(
      "The devices do not exchange gradients; each trains on its own part of the data. The result "
      "is an upper bound for data-parallel training: loading, copies, host time and power.");
}

static bool on_host(const brim_scaling_replica *r) { return !brim_str_starts(r->spec, "cuda"); }

// More than one of these is the host itself.
static bool share_host(const brim_scaling *s) {
  int hosts = 0;
  for (int k = 0; k < s->devices; k++) hosts += on_host(&s->replicas[k]) && !s->replicas[k].failure;
  return hosts > 1;
}

const char *brim_ui_scaling_one(const brim_scaling *all, size_t count) {
  bool shared = false;
  for (size_t i = 0; i < count; i++) shared = shared || share_host(&all[i]);
  if (shared) {
    return brim_tr(
        "CPU devices share the cores and the memory bandwidth of the host, so more devices add "
        "nothing. Each device uses only its share of the threads. The row of one device therefore "
        "differs from the summary, which uses all threads.");
  }
  return brim_tr(
      "The row of one device is a new measurement, so it may differ slightly from the summary.");
}

double brim_ui_scaling_ms(const brim_scaling *s, brim_ui_scaling_part part) {
  const brim_result *r = &s->result;
  double sum = 0;
  if (!(r->total_ms.mean > 0)) return (double)NAN;
  for (int p = 0; p < BRIM_PHASE_COUNT; p++) {
    bool io = p == BRIM_PHASE_IO, h2d = p == BRIM_PHASE_H2D;
    bool compute = p == BRIM_PHASE_FORWARD || p == BRIM_PHASE_BACKWARD ||
                   p == BRIM_PHASE_OPTIMIZER || p == BRIM_PHASE_COMPUTE;
    bool mine = part == BRIM_UI_SCALING_IO        ? io
                : part == BRIM_UI_SCALING_H2D     ? h2d
                : part == BRIM_UI_SCALING_COMPUTE ? compute
                                                  : !io && !h2d && !compute;
    if (mine && r->phase_used[p]) sum += r->phase_ms[p].mean;
  }
  return sum;
}

// "waiting for data, 0.31 ms"
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
  if (strcmp(s->lost_to, "compute") == 0 && share_host(s)) {
    text = brim_tr("computing: cores and memory bandwidth are shared");
  }
  brim_ui_ms(s->lost_ms, ms);
  snprintf(out, 96, brim_tr("%s, %s ms"), text, ms);
}

bool brim_ui_scaling_reported(const brim_scaling *all, size_t item, int replica) {
  const brim_scaling_replica *r = &all[item].replicas[replica];
  for (size_t i = 0; i <= item; i++) {
    for (int k = 0; k < all[i].devices; k++) {
      const brim_scaling_replica *o = &all[i].replicas[k];
      if (i == item && k == replica) return false;
      if (o->failure && strcmp(o->spec, r->spec) == 0 && strcmp(o->message, r->message) == 0) {
        return true;
      }
    }
  }
  return false;
}

bool brim_ui_scaling_mixed(const brim_scaling *all, size_t count) {
  const char *first = "";
  for (size_t i = 0; i < count; i++) {
    for (int k = 0; k < all[i].devices; k++) {
      const char *name = all[i].replicas[k].device;
      if (!name[0] || strcmp(name, first) == 0) continue;
      if (first[0]) return true;
      first = name;
    }
  }
  return false;
}

//---------------------------------- the table ----------------------------------

static void add_row(brim_ui_table *table, const brim_scaling *s) {
  char text[96];
  const brim_result *r = &s->result;
  brim_ui_style style = r->failure || !r->stable ? BRIM_UI_WARN : BRIM_UI_PLAIN;
  brim_ui_scaling_devices(s, text);
  brim_ui_table_add(table, style, "%s", text);
  brim_ui_number(r->samples_per_s, text);
  brim_ui_table_add(table, style, "%s", text);
  brim_ui_number(s->each, text);
  brim_ui_table_add(table, style, "%s", text);
  if (isnan(s->efficiency)) {
    brim_ui_table_add(table, style, "-");
  } else {
    brim_ui_table_add(table, s->efficiency >= 0.9 ? BRIM_UI_GOOD : BRIM_UI_WARN, "%.1f %%",
                      brim_shown(100 * s->efficiency));
  }
  for (int part = 0; part < BRIM_UI_SCALING_COUNT; part++) {
    brim_ui_ms(brim_ui_scaling_ms(s, (brim_ui_scaling_part)part), text);
    brim_ui_table_add(table, style, "%s", text);
  }
  brim_ui_ms(r->total_ms.mean, text);
  brim_ui_table_add(table, style, "%s", text);
  brim_ui_scaling_lost(s, text);
  bool unstable = !r->failure && !r->stable;
  brim_ui_table_add(table, style, "%s%s%s", text, unstable && text[0] ? "; " : "",
                    unstable ? brim_tr("unstable") : "");
}

static brim_status put_table(const brim_term *term, const brim_scaling *all, size_t count,
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
  for (size_t i = 0; i < count; i++) add_row(&table, &all[i]);
  brim_status status = brim_ui_table_render(&table, term, out, &left_out);
  brim_ui_table_deinit(&table);
  brim_ui_note_left_out(term, left_out, out);
  return status;
}

static void put_failed(const brim_term *term, const brim_scaling *all, size_t count,
                       brim_str *out) {
  for (size_t i = 0; i < count; i++) {
    for (int k = 0; k < all[i].devices; k++) {
      const brim_scaling_replica *r = &all[i].replicas[k];
      if (!r->failure || brim_ui_scaling_reported(all, i, k)) continue;
      brim_str line;
      brim_str_init(&line);
      brim_str_printf(&line, brim_tr("%s did not run: %s"), r->spec, r->message);
      brim_ui_wrap(out, term, line.data ? line.data : r->spec, 2);
      brim_str_append_char(out, '\n');
      brim_str_deinit(&line);
    }
  }
}

static void put_unexchanged(const brim_term *term, const brim_scaling *all, size_t count,
                            brim_str *out) {
  for (size_t i = 0; i < count; i++) {
    brim_str line;
    brim_str_init(&line);
    brim_ui_ranks_failed(&all[i], &line);
    if (line.len > 0) {
      brim_ui_wrap(out, term, line.data, 2);
      brim_str_append_char(out, '\n');
    }
    brim_str_deinit(&line);
  }
}

static void put_note(const brim_term *term, const char *text, brim_str *out) {
  brim_ui_wrap(out, term, text, 0);
  brim_str_append_char(out, '\n');
}

static void put_setting(const brim_term *term, const brim_result *r, brim_str *out) {
  brim_str name;
  brim_str_init(&name);
  brim_ui_setting(r, &name);
  if (name.data) brim_ui_wrap(out, term, name.data, 2);
  brim_str_deinit(&name);
  brim_str_append(out, "\n\n");
}

brim_status brim_ui_scaling(const brim_term *term, const brim_scaling *all, size_t count,
                            const char *note, brim_str *out) {
  if (count == 0) return BRIM_OK;
  brim_str_append_char(out, '\n');
  brim_ui_heading(out, term, brim_tr("SCALING OVER DEVICES"));
  for (size_t i = 0, n; i < count; i += n) {
    n = brim_ui_scaling_group(all, count, i);
    brim_str_append_char(out, '\n');
    put_setting(term, &all[i].result, out);
    BRIM_TRY(put_table(term, &all[i], n, out));
    BRIM_TRY(brim_ui_ranks(term, &all[i], n, out));
  }
  brim_str_append_char(out, '\n');
  put_failed(term, all, count, out);
  put_unexchanged(term, all, count, out);
  if (brim_ui_scaling_mixed(all, count)) {
    put_note(term, brim_tr("The devices differ; efficiency is relative to the first."), out);
  }
  put_note(term, brim_ui_scaling_limits(all, count), out);
  put_note(term, brim_ui_scaling_one(all, count), out);
  if (note && note[0]) put_note(term, note, out);
  return brim_str_status(out);
}

size_t brim_ui_scaling_group(const brim_scaling *all, size_t count, size_t first) {
  size_t n = 1;
  while (first + n < count && all[first + n].devices > all[first + n - 1].devices) n++;
  return n;
}
