// Memory before anything runs: one plan row by row, and a sweep of plans.
#include "ui/ui_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void add_bytes(brim_ui_table *table, brim_ui_style style, double bytes) {
  char text[32];
  if (isnan(bytes)) {
    brim_ui_table_add(table, style, "-");
    return;
  }
  brim_format_bytes((uint64_t)bytes, text);
  brim_ui_table_add(table, style, "%s", text);
}

static void add_share(brim_ui_table *table, brim_ui_style style, double part, double whole) {
  if (isnan(part) || !(whole > 0)) {
    brim_ui_table_add(table, style, "-");
  } else {
    brim_ui_table_add(table, style, "%.1f", brim_shown(part / whole * 100));
  }
}

// Sum of the rows of a plan whose name is `name`; NaN when there is none.
static double row_bytes(const brim_plan *plan, const char *name) {
  double sum = 0;
  bool found = false;
  for (size_t i = 0; i < plan->row_count; i++) {
    if (strcmp(plan->rows[i].name, name) != 0) continue;
    sum += (double)plan->rows[i].bytes;
    found = true;
  }
  return found ? sum : NAN;
}

// The plan's own row names become columns, in the order of the first result.
static size_t plan_names(const brim_result *results, size_t count, const char **names, size_t max) {
  size_t n = 0;
  for (size_t r = 0; r < count; r++) {
    const brim_plan *plan = &results[r].plan;
    for (size_t i = 0; i < plan->row_count && n < max; i++) {
      bool known = false;
      for (size_t k = 0; k < n; k++) known = known || strcmp(names[k], plan->rows[i].name) == 0;
      if (!known) names[n++] = plan->rows[i].name;
    }
  }
  return n;
}

enum { MAX_NAMES = 16, MAX_KNOBS = 8 };

// What a table of plans shows: the knobs that vary, and the rows of the plans that do.
typedef struct plan_view {
  const brim_result *results;
  size_t count;
  const char *knobs[MAX_KNOBS];
  size_t knob_count;
  const char *names[MAX_NAMES];
  size_t name_count;
  uint64_t limit;   // 0 = none
  bool recomputed;  // some setting recomputes blocks: a column says how many
} plan_view;

// The first setting that has a plan; the last where none has.
static size_t first_plan(const brim_result *results, size_t count) {
  size_t i = 0;
  while (i + 1 < count && results[i].plan.row_count == 0) i++;
  return i;
}

static bool name_varies(const brim_result *results, size_t count, const char *name) {
  size_t base = first_plan(results, count);
  double first = row_bytes(&results[base].plan, name);
  for (size_t i = base + 1; i < count; i++) {
    if (results[i].plan.row_count == 0) continue;  // no plan: nothing to differ by
    double bytes = row_bytes(&results[i].plan, name);
    if (isnan(first) != isnan(bytes) || (!isnan(first) && first != bytes)) return true;
  }
  return false;
}

// What is the same for every setting is reported once, above the table: "Workers 0, parameters 4
// MiB".
static void put_constant(const char *label, const char *value, brim_str *line) {
  brim_str_printf(line, "%s%s %s", line->len ? ", " : "", label, value);
}

static brim_status make_view(const brim_term *term, plan_view *v, brim_str *out) {
  const char *all[MAX_NAMES];
  bool several = v->count > 1;  // of one setting everything is shown as columns
  brim_str line;
  brim_str_init(&line);
  for (size_t k = 0; k < v->results[0].knob_count; k++) {
    const brim_result_knob *knob = &v->results[0].knobs[k];
    if (!brim_ui_knob_shown(v->results, v->count, knob->name)) continue;
    bool varies = brim_result_knob_varies(v->results, v->count, knob->name);
    if (several && !varies) {
      put_constant(brim_ui_knob_label(v->results, knob->name), knob->value, &line);
    } else if (v->knob_count < MAX_KNOBS) {
      v->knobs[v->knob_count++] = knob->name;
    }
  }
  size_t n = plan_names(v->results, v->count, all, MAX_NAMES);
  for (size_t i = 0; i < n; i++) {
    if (!several || name_varies(v->results, v->count, all[i])) {
      v->names[v->name_count++] = all[i];
      continue;
    }
    char bytes[32];
    const brim_plan *plan = &v->results[first_plan(v->results, v->count)].plan;
    brim_format_bytes((uint64_t)row_bytes(plan, all[i]), bytes);
    put_constant(brim_tr(all[i]), bytes, &line);
  }
  if (line.len) {
    brim_str text;
    brim_str_init(&text);
    brim_str_printf(&text, brim_tr("Same for all: %s"), line.data);
    brim_ui_wrap(out, term, text.data, 2);
    brim_str_append(out, "\n\n");
    if (brim_str_status(&text)) line.status = text.status;
    brim_str_deinit(&text);
  }
  brim_status status = brim_str_status(&line);
  brim_str_deinit(&line);
  return status;
}

// Leaving out begins with the smaller rows; activations, what the batch size is chosen by, stay.
static int name_priority(const plan_view *v, size_t index) {
  if (strcmp(v->names[index], "activations") == 0) return 1;
  return 4 + (int)index;
}

static size_t sweep_columns(const plan_view *v, brim_ui_column *columns) {
  size_t n = 0;
  for (size_t k = 0; k < v->knob_count; k++) {
    columns[n++] =
        (brim_ui_column){.header = brim_ui_knob_label(v->results, v->knobs[k]),
                         .short_header = brim_ui_knob_short_label(v->results, v->knobs[k]),
                         .align = BRIM_UI_RIGHT};
  }
  for (size_t i = 0; i < v->name_count; i++) {
    columns[n++] = (brim_ui_column){
        .header = brim_tr(v->names[i]), .align = BRIM_UI_RIGHT, .priority = name_priority(v, i)};
  }
  if (v->recomputed) {
    columns[n++] =
        (brim_ui_column){.header = brim_tr("Recomputed"), .align = BRIM_UI_RIGHT, .priority = 3};
  }
  columns[n++] =
      (brim_ui_column){.header = brim_tr("Device"), .align = BRIM_UI_RIGHT, .priority = 3};
  columns[n++] = (brim_ui_column){.header = brim_tr("Host"), .align = BRIM_UI_RIGHT, .priority = 3};
  columns[n++] = (brim_ui_column){.header = brim_tr("Total"), .align = BRIM_UI_RIGHT};
  columns[n++] = (brim_ui_column){.header = v->limit ? brim_tr("% of limit") : brim_tr("% of free"),
                                  .short_header = "%",
                                  .align = BRIM_UI_RIGHT,
                                  .priority = 2};
  columns[n++] = (brim_ui_column){.header = brim_tr("Status"), .min_width = 6};
  return n;
}

static void add_plan_row(const plan_view *v, const brim_result *result, brim_ui_table *table) {
  bool fits = result->failure == BRIM_FAILURE_NONE;
  brim_ui_style style = fits ? BRIM_UI_PLAIN : BRIM_UI_DIM;
  bool planned = result->plan.row_count > 0;
  double device = planned ? (double)result->plan.bytes[BRIM_PLACE_DEVICE] : (double)NAN;
  double host = planned ? (double)result->plan.bytes[BRIM_PLACE_HOST] : (double)NAN;
  for (size_t k = 0; k < v->knob_count; k++) {
    const brim_result_knob *knob = brim_result_knob_find(result, v->knobs[k]);
    brim_ui_table_add(table, style, "%s", knob ? knob->value : "-");
  }
  for (size_t i = 0; i < v->name_count; i++) {
    add_bytes(table, style, row_bytes(&result->plan, v->names[i]));
  }
  if (v->recomputed && result->plan.segments > 0) {
    brim_ui_table_add(table, style, brim_tr("%d of %d"), (int)result->plan.recomputed,
                      (int)result->plan.segments);
  } else if (v->recomputed) {
    brim_ui_table_add(table, style, "-");
  }
  double whole = result->free_bytes;
  if (v->limit && (double)v->limit < whole) whole = (double)v->limit;
  add_bytes(table, style, device);
  add_bytes(table, style, host);
  add_bytes(table, style, device + host);
  add_share(table, style, brim_result_memory(result), whole);
  brim_ui_table_add(table, fits ? BRIM_UI_GOOD : BRIM_UI_WARN, "%s",
                    fits ? brim_tr("fits") : brim_ui_failure_text(result));
}

// Failures but of memory, whose figures are in the table.
static void put_plan_reasons(const brim_term *term, const plan_view *v, brim_str *out) {
  for (size_t i = 0; i < v->count; i++) {
    if (v->results[i].failure == BRIM_FAILURE_OOM_PLANNED) continue;
    brim_ui_reason(term, v->results, i, out);
  }
}

brim_status brim_ui_plan_sweep(const brim_term *term, const brim_result *results, size_t count,
                               uint64_t limit, brim_str *out) {
  brim_ui_column columns[BRIM_UI_MAX_COLUMNS];
  plan_view v = {.results = results, .count = count, .limit = limit};
  if (count == 0) return BRIM_OK;
  for (size_t i = 0; i < count; i++) {
    v.recomputed = v.recomputed || results[i].plan.recomputed > 0;
  }
  BRIM_TRY(make_view(term, &v, out));
  size_t n = sweep_columns(&v, columns);
  int left_out = 0;
  brim_ui_table table;
  brim_ui_table_init(&table, columns, n);
  for (size_t r = 0; r < count; r++) add_plan_row(&v, &results[r], &table);
  brim_status status = brim_ui_table_render(&table, term, out, &left_out);
  brim_ui_note_left_out(term, left_out, out);
  brim_ui_table_deinit(&table);
  put_plan_reasons(term, &v, out);
  return status ? status : brim_str_status(out);
}
