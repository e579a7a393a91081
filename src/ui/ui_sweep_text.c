// A sweep as plain text: a line about the whole, messages, and what `brim sweep status` prints.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "ui/ui_sweep_int.h"

//---------------------------------- lines ----------------------------------

static void add_count(brim_str *out, const brim_term *term, brim_ui_style style, const char *fmt,
                      int64_t count) {
  char number[32], text[96];
  if (count == 0) return;
  brim_format_count((double)count, number);
  snprintf(text, sizeof text, fmt, number);
  brim_str_append(out, "  ");
  brim_ui_styled(out, term, style, text);
}

void brim_ui_sweep_counts(const brim_sweep_view *view, const brim_term *term, brim_str *out) {
  char done[32], total[32];
  const int64_t *counts = view->counts;
  brim_format_count((double)counts[BRIM_SWEEP_DONE], done);
  brim_format_count((double)brim_sweep_view_total(view), total);
  brim_str_printf(out, brim_tr("%s of %s done"), done, total);
  add_count(out, term, BRIM_UI_PLAIN, brim_tr("%s running"),
            counts[BRIM_SWEEP_RUNNING] + counts[BRIM_SWEEP_LEASED]);
  add_count(out, term, BRIM_UI_PLAIN, brim_tr("%s queued"), counts[BRIM_SWEEP_QUEUED]);
  add_count(out, term, BRIM_UI_BAD, brim_tr("%s failed"), counts[BRIM_SWEEP_FAILED]);
  add_count(out, term, BRIM_UI_WARN, brim_tr("%s paused"), counts[BRIM_SWEEP_PAUSED]);
  add_count(out, term, BRIM_UI_DIM, brim_tr("%s cancelled"), counts[BRIM_SWEEP_CANCELLED]);
}

void brim_ui_sweep_line(const brim_sweep_view *view, const brim_term *term, brim_str *out) {
  char number[32];
  brim_ui_sweep_counts(view, term, out);
  if (!isnan(view->done_per_h)) {
    brim_ui_number(view->done_per_h, number);
    brim_str_append(out, "  ");
    brim_str_printf(out, brim_tr("%s experiments/h"), number);
  }
  if (!isnan(view->eta_s)) {
    brim_format_duration(view->eta_s < 1 ? 1 : floor(view->eta_s), number);
    brim_str_append(out, "  ");
    brim_str_printf(out, brim_tr("ETA %s"), number);
  }
}

void brim_ui_sweep_time(double when_s, char out[16]) {
  struct tm local;
  out[0] = '\0';
  if (!(fabs(when_s) < 1e11)) return;
  time_t when = (time_t)when_s;
  if (!localtime_r(&when, &local)) return;
  snprintf(out, 16, "%02d:%02d:%02d", local.tm_hour % 24, local.tm_min % 60, local.tm_sec % 61);
}

void brim_ui_sweep_zone(double when_s, char out[16]) {
  struct tm local;
  out[0] = '\0';
  if (!(fabs(when_s) < 1e11)) return;
  const time_t when = (time_t)when_s;
  if (localtime_r(&when, &local)) (void)strftime(out, 16, "%Z", &local);
}

void brim_ui_sweep_message(const brim_sweep_message *message, const brim_term *term,
                           brim_str *out) {
  brim_ui_style style = message->level == BRIM_SWEEP_ERROR  ? BRIM_UI_BAD
                        : message->level == BRIM_SWEEP_WARN ? BRIM_UI_WARN
                                                            : BRIM_UI_PLAIN;
  int room = term->width;
  char clock[16];
  brim_ui_sweep_time(message->when_s, clock);
  if (clock[0]) {
    brim_ui_styled(out, term, BRIM_UI_DIM, clock);
    brim_str_append(out, "  ");
    room -= 10;
  }
  brim_str text;
  brim_str_init(&text);
  brim_ui_clip(&text, term, message->text, term->redraw && room > 0 ? room : 0);
  brim_ui_styled(out, term, style, text.data);
  if (text.status && !out->status) out->status = text.status;
  brim_str_deinit(&text);
}

//---------------------------------- status ----------------------------------

static brim_status put_gpus(const brim_sweep_view *view, const brim_term *term, brim_str *out) {
  for (size_t i = 0; i < view->gpu_count; i++) {
    brim_str_append(out, "  ");
    int width = term->width > 2 ? term->width - 2 : 0;
    brim_ui_sweep_gpu(&view->gpus[i], term, width, out);
    brim_str_append_char(out, '\n');
  }
  if (view->gpu_count > 0) brim_str_append_char(out, '\n');
  return brim_str_status(out);
}

// Whether a column has a text in any row: an empty one takes room from others.
static bool has_text(const brim_sweep_view *view, const size_t *rows, size_t count,
                     brim_ui_sweep_column column, const brim_ui_sweep_look *look) {
  bool found = false;
  for (size_t i = 0; i < count && !found; i++) {
    brim_str cell;
    brim_str_init(&cell);
    brim_ui_sweep_cell(view, &view->rows[rows[i]], column, look, &cell);
    found = cell.len > 0;
    brim_str_deinit(&cell);
  }
  return found;
}

// Whether they are of several grids: then each says which.
static bool has_grids(const brim_sweep_view *view, const size_t *rows, size_t count) {
  for (size_t i = 1; i < count; i++) {
    if (strcmp(view->rows[rows[i]].grid, view->rows[rows[0]].grid) != 0) return true;
  }
  return false;
}

static void add_row(brim_ui_table *table, const brim_sweep_view *view, const brim_sweep_row *row,
                    const bool *used, const brim_ui_sweep_look *look) {
  brim_ui_table_add(table, BRIM_UI_DIM, "%.12s", row->id);
  if (used[BRIM_UI_SWEEP_COLUMN_COUNT]) brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", row->grid);
  for (int i = 0; i < BRIM_UI_SWEEP_COLUMN_COUNT; i++) {
    brim_str cell;
    if (!used[i]) continue;
    brim_str_init(&cell);
    brim_ui_style style = brim_ui_sweep_cell(view, row, (brim_ui_sweep_column)i, look, &cell);
    if (cell.status && !table->status) table->status = cell.status;
    brim_ui_table_add(table, style, "%s", cell.data);
    brim_str_deinit(&cell);
  }
}

// What runs, the best results, why others failed, the queue, the rest: every row that the view has.
static brim_status choose_rows(const brim_sweep_view *view, size_t *rows, size_t *count) {
  static const brim_ui_sweep_list lists[] = {BRIM_UI_SWEEP_ACTIVE, BRIM_UI_SWEEP_FINISHED,
                                             BRIM_UI_SWEEP_FAILURES, BRIM_UI_SWEEP_WAITING,
                                             BRIM_UI_SWEEP_HELD};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    const bool done = lists[i] == BRIM_UI_SWEEP_FINISHED;
    const brim_ui_sweep_pick pick = {lists[i],
                                     done ? BRIM_UI_SWEEP_BY_METRIC : BRIM_UI_SWEEP_BY_STATE, ""};
    size_t *listed = NULL, n = 0;
    BRIM_TRY(brim_ui_sweep_rows(view, &pick, &listed, &n));
    if (n > 0) memcpy(rows + *count, listed, n * sizeof *rows);
    *count += n;
    brim_free(listed);
  }
  return BRIM_OK;
}

static brim_status put_rows(const brim_sweep_view *view, const brim_term *term, const size_t *rows,
                            size_t count, brim_str *out) {
  // The id comes first: cancel, pause, retry and log take it.
  brim_ui_column columns[2 + BRIM_UI_SWEEP_COLUMN_COUNT] = {
      {"ID", NULL, BRIM_UI_LEFT, 0, 0}, {brim_tr("Grid"), NULL, BRIM_UI_LEFT, 1, 8}};
  bool grids = has_grids(view, rows, count);
  brim_ui_table table;
  brim_ui_sweep_look look = {.term = term};
  bool narrow = term->width > 0 && term->width < 132;
  brim_ui_sweep_columns(view, rows, count, narrow, &look, columns + 2);
  bool used[BRIM_UI_SWEEP_COLUMN_COUNT + 1];  // the last: the grid
  size_t n = grids ? 2 : 1;
  used[BRIM_UI_SWEEP_COLUMN_COUNT] = grids;
  for (int i = 0; i < BRIM_UI_SWEEP_COLUMN_COUNT; i++) {
    used[i] = has_text(view, rows, count, (brim_ui_sweep_column)i, &look);
    if (used[i]) columns[n++] = columns[2 + i];
    // Why one failed or waits is what people ask `status` for, next to its result; the live table has a
    // line for it.
    if (used[i] && i == BRIM_UI_SWEEP_NOTE) columns[n - 1].priority = 2;
  }
  brim_ui_table_init(&table, columns, n);
  for (size_t i = 0; i < count; i++) add_row(&table, view, &view->rows[rows[i]], used, &look);
  brim_status status = count > 0 ? brim_ui_table_render(&table, term, out, NULL) : BRIM_OK;
  brim_ui_table_deinit(&table);
  return status;
}

static brim_status put_table(const brim_sweep_view *view, const brim_term *term, brim_str *out) {
  char number[32];
  size_t count = 0;
  size_t *rows = (size_t *)brim_calloc(view->row_count + 1, sizeof *rows);
  if (!rows) return brim_fail(BRIM_ENOMEM, "out of memory while listing experiments");
  brim_status status = choose_rows(view, rows, &count);
  if (!status) status = put_rows(view, term, rows, count, out);
  brim_free(rows);
  int64_t left_out = brim_sweep_view_total(view) - (int64_t)count;
  if (!status && left_out > 0) {
    brim_format_count((double)left_out, number);
    brim_str_printf(out, brim_tr("%s more; --all lists every experiment\n"), number);
  }
  return status ? status : brim_str_status(out);
}

static void put_rates(const brim_sweep_view *view, bool pool, brim_str *out) {
  char text[32];
  const char *gap = "";
  if (!isnan(view->done_per_h)) {
    brim_ui_number(view->done_per_h, text);
    brim_str_printf(out, brim_tr("%s experiments/h"), text);
    gap = "  ";
  }
  if (!isnan(view->eta_s)) {
    brim_format_duration(view->eta_s < 1 ? 1 : floor(view->eta_s), text);
    brim_str_append(out, gap);
    brim_str_printf(out, brim_tr("ETA %s"), text);
    gap = "  ";
  }
  brim_str_append(out, gap);
  brim_ui_sweep_clock(view->now_s - view->started_s, text);
  if (view->pid > 0 && text[0]) {
    brim_str_printf(out, brim_tr("process %lld, running for %s\n"), (long long)view->pid, text);
  } else if (view->pid > 0) {
    brim_str_printf(out, brim_tr("process %lld\n"), (long long)view->pid);
  } else if (!pool) {
    brim_str_append(out, brim_tr("no sweep is running on this store\n"));
  }
}

// Experiments that ended while their files are still on the machines of their workers.
static void put_owed(const brim_sweep_view *view, const brim_term *term, brim_str *out) {
  long long count = 0;
  for (size_t i = 0; i < view->row_count; i++) {
    const brim_sweep_row *row = &view->rows[i];
    bool over = row->state == BRIM_SWEEP_DONE || row->state == BRIM_SWEEP_FAILED;
    count += over && *row->owed;
  }
  if (count == 0) return;
  char text[160];
  snprintf(text, sizeof text,
           brim_tr("%lld ended experiments have files that their workers still have to send"),
           count);
  brim_ui_styled(out, term, BRIM_UI_WARN, text);
  brim_str_append_char(out, '\n');
}

brim_status brim_ui_sweep_status(const brim_sweep_view *view, const brim_term *term,
                                 const brim_ui_sweep_status_options *options, brim_str *out) {
  brim_ui_styled(out, term, BRIM_UI_TITLE, view->title);
  brim_str_append(out, "  ");
  brim_ui_styled(out, term, BRIM_UI_DIM, view->store);
  brim_str_append_char(out, '\n');
  brim_ui_sweep_counts(view, term, out);
  brim_str_append_char(out, '\n');
  put_rates(view, options && options->pool, out);
  put_owed(view, term, out);
  if (view->stopping) {
    brim_ui_styled(out, term, BRIM_UI_WARN, brim_tr("stopping: running experiments save first"));
    brim_str_append_char(out, '\n');
  }
  if (view->notice[0]) {
    brim_ui_styled(out, term, BRIM_UI_BAD, view->notice);
    brim_str_append_char(out, '\n');
  }
  brim_str_append_char(out, '\n');
  BRIM_TRY(put_gpus(view, term, out));
  return put_table(view, term, out);
}
