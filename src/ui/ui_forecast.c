// The dry run of a sweep (ui_forecast.h).
#include "ui/ui_forecast.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ID_DIGITS = 12, MESSAGES = 5, FIRST_COLUMNS = 3, LAST_COLUMNS = 3 };

//---------------------------------- the table ----------------------------------

static void add_need(brim_ui_table *table, const brim_forecast_need *need) {
  char bytes[32] = "-";
  if (!isnan(need->bytes)) brim_format_bytes((uint64_t)need->bytes, bytes);
  if (need->failure == BRIM_FAILURE_NONE) {
    brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", bytes);
  } else if (need->failure == BRIM_FAILURE_OOM_PLANNED) {
    brim_ui_table_add(table, need->adapts ? BRIM_UI_WARN : BRIM_UI_BAD, "%s %s", bytes,
                      need->adapts ? brim_tr("(adapts)") : brim_tr("(too large)"));
  } else {
    brim_ui_table_add(table, BRIM_UI_BAD, "%s", brim_ui_failure_class(need->failure));
  }
}

static void add_row(brim_ui_table *table, const brim_forecast *f, size_t i) {
  const brim_forecast_row *row = &f->rows[i];
  const brim_forecast_need *best = brim_forecast_best(f, row);
  char steps[32] = "-", time[32] = "-";
  if (!isnan(row->steps)) brim_format_count(row->steps, steps);
  if (best && !isnan(best->run_s)) brim_format_duration(best->run_s, time);
  brim_ui_table_add(table, BRIM_UI_DIM, "%zu", i + 1);
  brim_ui_table_add(table, BRIM_UI_DIM, "%.*s", ID_DIGITS, row->id);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", row->label[0] ? row->label : "-");
  for (size_t d = 0; d < f->device_count; d++) add_need(table, &row->needs[d]);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", steps);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", time);
  brim_ui_table_add(table, BRIM_UI_DIM, "%s", row->state ? brim_tr(row->state) : brim_tr("new"));
}

static brim_status put_table(const brim_term *term, const brim_forecast *f, brim_str *out) {
  brim_ui_column columns[FIRST_COLUMNS + BRIM_FORECAST_DEVICES + LAST_COLUMNS] = {
      {"#", NULL, BRIM_UI_RIGHT, 3, 0},
      {"id", NULL, BRIM_UI_LEFT, 2, 0},
      {brim_tr("experiment"), NULL, BRIM_UI_LEFT, 0, 12}};
  size_t count = FIRST_COLUMNS;
  for (size_t d = 0; d < f->device_count; d++) {
    const char *name = f->devices[d].name[0] ? f->devices[d].name : f->devices[d].spec;
    columns[count++] =
        (brim_ui_column){f->device_count == 1 ? brim_tr("memory") : name,
                         f->device_count == 1 ? NULL : f->devices[d].spec, BRIM_UI_RIGHT, 0, 0};
  }
  columns[count++] = (brim_ui_column){brim_tr("steps"), NULL, BRIM_UI_RIGHT, 2, 0};
  columns[count++] = (brim_ui_column){brim_tr("time"), NULL, BRIM_UI_RIGHT, 1, 0};
  columns[count++] = (brim_ui_column){brim_tr("store"), NULL, BRIM_UI_LEFT, 1, 0};
  brim_ui_table table;
  brim_ui_table_init(&table, columns, count);
  for (size_t i = 0; i < f->row_count; i++) add_row(&table, f, i);
  brim_status status = brim_ui_table_render(&table, term, out, NULL);
  brim_ui_table_deinit(&table);
  return status;
}

//---------------------------------- what does not run ----------------------------------

typedef struct complaint {
  const brim_forecast_need *need;
  const brim_forecast_row *first;
  size_t device, count;
} complaint;

static void put_complaints(const brim_term *term, const brim_forecast *f, brim_str *out) {
  complaint all[MESSAGES];
  size_t count = 0, more = 0;
  for (size_t i = 0; i < f->row_count * f->device_count; i++) {
    const brim_forecast_row *row = &f->rows[i / f->device_count];
    const brim_forecast_need *need = &row->needs[i % f->device_count];
    if (need->failure == BRIM_FAILURE_NONE) continue;
    size_t n = 0;
    while (n < count && (all[n].device != i % f->device_count || all[n].need->message == NULL ||
                         strcmp(all[n].need->message, need->message) != 0)) {
      n++;
    }
    if (n < count) {
      all[n].count++;
    } else if (count < MESSAGES) {
      all[count++] = (complaint){need, row, i % f->device_count, 1};
    } else {
      more++;
    }
  }
  for (size_t i = 0; i < count; i++) {
    brim_str text;
    brim_str_init(&text);
    brim_str_printf(&text, brim_tr("%s on %s (experiments: %zu, first: %.*s): %s"),
                    brim_ui_failure_class(all[i].need->failure),
                    f->devices[all[i].device].name[0] ? f->devices[all[i].device].name
                                                      : f->devices[all[i].device].spec,
                    all[i].count, ID_DIGITS, all[i].first->id, all[i].need->message);
    brim_ui_wrap(out, term, text.data, 2);
    brim_str_append_char(out, '\n');
    brim_str_deinit(&text);
  }
  if (more) brim_str_printf(out, brim_tr("and %zu more that do not run as planned\n"), more);
}

//---------------------------------- sums ----------------------------------

static void put_time(const brim_forecast *f, const brim_forecast_sums *s, brim_str *out) {
  char all[32], wall[32];
  if (s->to_run == 0) return;
  brim_format_duration(s->run_s, all);
  if (s->timeless == 0) {
    brim_format_duration(s->wall_s, wall);
    brim_str_printf(out,
                    f->slots == 1
                        ? brim_tr("time         about %s, one experiment after the other\n")
                        : brim_tr("time         about %s: %s of training, %lld at a time\n"),
                    wall, all, (long long)f->slots);
  } else if (s->timeless == s->to_run) {
    brim_str_append(out, brim_tr("time         unknown: --measure runs a few steps of each\n"));
  } else {
    brim_str_printf(out,
                    brim_tr("time         %s of training; unknown for %zu of %zu experiments\n"),
                    all, s->timeless, s->to_run);
  }
}

static void put_sums(const brim_forecast *f, brim_str *out) {
  brim_forecast_sums s;
  char most[32], total[32];
  brim_forecast_sum(f, &s);
  brim_str_printf(out, brim_tr("experiments  %zu: %zu new, %zu in the store (%zu done)\n"),
                  f->row_count, s.fresh, s.known, s.done);
  for (size_t d = 0; d < f->device_count; d++) {
    const brim_forecast_device *device = &f->devices[d];
    if (isnan(device->total)) continue;
    brim_format_bytes((uint64_t)device->total, total);
    brim_str_printf(out, brim_tr("device       %lld x %s, %s\n"), (long long)device->count,
                    device->name, total);
  }
  if (!isnan(s.most_bytes)) {
    brim_format_bytes((uint64_t)s.most_bytes, most);
    brim_str_printf(out, brim_tr("memory       up to %s for one experiment\n"), most);
  }
  if (s.adapt) {
    brim_str_printf(out, brim_tr("adapts       %zu, with less memory than planned\n"), s.adapt);
  }
  if (s.stuck) brim_str_printf(out, brim_tr("cannot run   %zu\n"), s.stuck);
  put_time(f, &s, out);
}

brim_status brim_ui_forecast(const brim_term *term, const brim_forecast *forecast, brim_str *out) {
  BRIM_TRY(put_table(term, forecast, out));
  brim_str_append_char(out, '\n');
  put_complaints(term, forecast, out);
  put_sums(forecast, out);
  brim_str_append(out, brim_tr("nothing was submitted\n"));
  return brim_str_status(out);
}
