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
    brim_ui_table_add(table, style, "%.1f", part / whole * 100);
  }
}

brim_status brim_ui_plan(const brim_term *term, const brim_plan *plan, double overhead_bytes,
                         brim_str *out) {
  const brim_ui_column columns[] = {
      {.header = brim_tr("What"), .align = BRIM_UI_LEFT, .min_width = 8},
      {.header = brim_tr("Where"), .align = BRIM_UI_LEFT, .priority = 2},
      {.header = brim_tr("Bytes"), .align = BRIM_UI_RIGHT},
      {.header = "%", .align = BRIM_UI_RIGHT, .priority = 1},
  };
  const char *places[BRIM_PLACE_COUNT] = {brim_tr("device"), brim_tr("host")};
  double total = 0;
  for (int i = 0; i < BRIM_PLACE_COUNT; i++) total += (double)plan->bytes[i];
  brim_ui_table table;
  brim_ui_table_init(&table, columns, 4);
  for (size_t i = 0; i < plan->row_count; i++) {
    const brim_plan_row *row = &plan->rows[i];
    brim_ui_table_add(&table, BRIM_UI_PLAIN, "%s", brim_tr(row->name));
    brim_ui_table_add(&table, BRIM_UI_DIM, "%s", places[row->place]);
    add_bytes(&table, BRIM_UI_PLAIN, (double)row->bytes);
    add_share(&table, BRIM_UI_DIM, (double)row->bytes, total);
  }
  for (int i = 0; i < BRIM_PLACE_COUNT; i++) {
    brim_ui_table_add(&table, BRIM_UI_BOLD, "%s", brim_tr("planned"));
    brim_ui_table_add(&table, BRIM_UI_BOLD, "%s", places[i]);
    add_bytes(&table, BRIM_UI_BOLD, (double)plan->bytes[i]);
    add_share(&table, BRIM_UI_BOLD, (double)plan->bytes[i], total);
  }
  brim_ui_table_add(&table, BRIM_UI_DIM, "%s", brim_tr("overhead (measured)"));
  brim_ui_table_add(&table, BRIM_UI_DIM, "%s", "");
  add_bytes(&table, BRIM_UI_DIM, overhead_bytes);
  brim_ui_table_add(&table, BRIM_UI_DIM, "%s", "");
  brim_status status = brim_ui_table_render(&table, term, out, NULL);
  brim_ui_table_deinit(&table);
  return status;
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

static size_t sweep_columns(const brim_result *results, size_t count, const char **names,
                            size_t name_count, size_t *knobs, size_t *knob_count,
                            brim_ui_column *columns) {
  size_t n = 0;
  *knob_count = 0;
  for (size_t k = 0; k < results[0].knob_count && *knob_count < 6; k++) {
    const char *name = results[0].knobs[k].name;
    if (!brim_ui_knob_shown(results, count, name)) continue;
    knobs[(*knob_count)++] = k;
    columns[n++] = (brim_ui_column){.header = brim_ui_knob_label(name),
                                    .align = BRIM_UI_RIGHT,
                                    .priority = strcmp(name, "batch_size") == 0 ? 0 : 1};
  }
  for (size_t i = 0; i < name_count; i++) {
    columns[n++] = (brim_ui_column){
        .header = brim_tr(names[i]), .align = BRIM_UI_RIGHT, .priority = 3 + (int)i};
  }
  columns[n++] = (brim_ui_column){.header = brim_tr("Device"), .align = BRIM_UI_RIGHT};
  columns[n++] = (brim_ui_column){.header = brim_tr("Host"), .align = BRIM_UI_RIGHT, .priority = 1};
  columns[n++] = (brim_ui_column){
      .header = brim_tr("% of free"), .short_header = "%", .align = BRIM_UI_RIGHT, .priority = 2};
  columns[n++] = (brim_ui_column){.header = brim_tr("Status"), .min_width = 4};
  return n;
}

brim_status brim_ui_plan_sweep(const brim_term *term, const brim_result *results, size_t count,
                               brim_str *out) {
  enum { MAX_NAMES = 12 };
  const char *names[MAX_NAMES];
  size_t knobs[8], knob_count = 0;
  brim_ui_column columns[BRIM_UI_MAX_COLUMNS];
  if (count == 0) return BRIM_OK;
  size_t name_count = plan_names(results, count, names, MAX_NAMES);
  size_t n = sweep_columns(results, count, names, name_count, knobs, &knob_count, columns);
  brim_ui_table table;
  brim_ui_table_init(&table, columns, n);
  for (size_t r = 0; r < count; r++) {
    const brim_result *result = &results[r];
    bool fits = result->failure == BRIM_FAILURE_NONE;
    brim_ui_style style = fits ? BRIM_UI_PLAIN : BRIM_UI_DIM;
    for (size_t k = 0; k < knob_count; k++) {
      const brim_result_knob *knob = brim_result_knob_find(result, results[0].knobs[knobs[k]].name);
      brim_ui_table_add(&table, style, "%s", knob ? knob->value : "-");
    }
    for (size_t i = 0; i < name_count; i++) {
      add_bytes(&table, style, row_bytes(&result->plan, names[i]));
    }
    add_bytes(&table, style, (double)result->plan.bytes[BRIM_PLACE_DEVICE]);
    add_bytes(&table, style, (double)result->plan.bytes[BRIM_PLACE_HOST]);
    add_share(&table, style, brim_result_memory(result), result->free_bytes);
    brim_ui_table_add(&table, fits ? BRIM_UI_GOOD : BRIM_UI_WARN, "%s",
                      fits ? brim_tr("fits") : brim_ui_failure_text(result));
  }
  brim_status status = brim_ui_table_render(&table, term, out, NULL);
  brim_ui_table_deinit(&table);
  return status;
}
