// Sweeps as plain text: `brim sweep status`, the summary at the end, the dry run, and the comparison of groups of
// experiments. ui_sweep.c has the rows and cells.

#include "ui/sweep/ui_sweep_int.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

//--------------------------------------- lines and status ---------------------------------------

static void add_count(brim_str *out, const brim_term *term, brim_ui_style style, const char *fmt,
                      int64_t count) {
  char number[32], text[96];
  if (count == 0) return;
  brim_format_count((double)count, number);
  snprintf(text, sizeof text, fmt, number);
  brim_str_append(out, "  ");
  brim_ui_styled(out, term, style, text);
}

// "412 of 1,200 done  8 running  12 failed"
static void sweep_counts(const brim_sweep_view *view, const brim_term *term, brim_str *out) {
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
  sweep_counts(view, term, out);
  if (!isnan(view->done_per_h)) {
    brim_format_figure(view->done_per_h, number);
    brim_str_append(out, "  ");
    brim_str_printf(out, brim_tr("%s experiments/h"), number);
  }
  if (!isnan(view->eta_s)) {
    brim_format_duration(view->eta_s < 1 ? 1 : floor(view->eta_s), number);
    brim_str_append(out, "  ");
    brim_str_printf(out, brim_tr("ETA %s"), number);
  }
}

void brim_ui_sweep_message(const brim_sweep_message *message, const brim_term *term,
                           brim_str *out) {
  brim_ui_style style = message->level == BRIM_SWEEP_ERROR  ? BRIM_UI_BAD
                        : message->level == BRIM_SWEEP_WARN ? BRIM_UI_WARN
                                                            : BRIM_UI_PLAIN;
  int room = term->width;
  char clock[16];
  brim_ui_time_of_day(message->when_s, "", clock);
  if (clock[0]) {
    brim_ui_styled(out, term, BRIM_UI_DIM, clock);
    brim_str_append(out, "  ");
    room -= 10;
  }
  brim_ui_put_clipped(out, term, style, message->text, term->redraw && room > 0 ? room : INT_MAX);
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

// True if any row has a text in this column. Empty columns are not shown.
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

// True if the rows are of several grids; a column names the grid then.
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

// All rows of the view: running ones, the best results, failures, the queue, the rest.
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
  // The id comes first: the commands cancel, pause, retry and log take it.
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
    // People run `status` to see why an experiment failed or waits; the live table has a line for that.
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
    brim_format_figure(view->done_per_h, text);
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

// Counts experiments that ended while their files are still on the machines of their workers.
static void put_pending_uploads(const brim_sweep_view *view, const brim_term *term, brim_str *out) {
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
  sweep_counts(view, term, out);
  brim_str_append_char(out, '\n');
  put_rates(view, options && options->pool, out);
  put_pending_uploads(view, term, out);
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

//------------------------------------------- summary -------------------------------------------

enum { BEST_ROWS = 5, GROUP_ROWS = 10 };

//---------------------------------- failures ----------------------------------

// How often a class of failure occurred, and the first such experiment by time.
typedef struct failed_class {
  brim_failure failure;
  int64_t count;
  const brim_sweep_row *first;
} failed_class;

static size_t count_classes(const brim_sweep_view *view, failed_class out[BRIM_FAILURE_COUNT]) {
  size_t classes = 0;
  for (int c = 0; c < BRIM_FAILURE_COUNT; c++) {
    failed_class one = {.failure = (brim_failure)c};
    for (size_t i = 0; i < view->row_count; i++) {
      const brim_sweep_row *row = &view->rows[i];
      if (row->state != BRIM_SWEEP_FAILED || row->failure != one.failure) continue;
      one.count++;
      // An unknown time counts as the latest.
      if (!one.first || row->ended_s < one.first->ended_s ||
          (isnan(one.first->ended_s) && !isnan(row->ended_s))) {
        one.first = row;
      }
    }
    if (one.count > 0) out[classes++] = one;
  }
  return classes;
}

static int more_first(const void *a, const void *b) {
  const failed_class *x = (const failed_class *)a, *y = (const failed_class *)b;
  return x->count != y->count ? (x->count > y->count ? -1 : 1) : (int)x->failure - (int)y->failure;
}

// Experiments of a grid without axes have no label, nor have groups whose only axis is the seed: they get the title.
static const char *name_of(const brim_sweep_view *view, const char *label) {
  return *label ? label : view->title;
}

// "  OOM  3  lr=0.1 batch_size=4096", with the message below.
static void put_class(const brim_sweep_view *view, const brim_term *term, const failed_class *one,
                      brim_str *out) {
  char count[32], text[128];
  brim_str plain;
  brim_format_count((double)one->count, count);
  snprintf(text, sizeof text, "  %s  %s", brim_ui_failure_class(one->failure), count);
  brim_ui_styled(out, term, BRIM_UI_BAD, text);
  brim_str_append(out, "  ");
  brim_str_init(&plain);
  int room = term->width > 0 ? term->width - brim_utf8_width(text) - 16 : 0;
  brim_ui_clip(&plain, term, name_of(view, one->first->label), room < 0 ? 8 : room);
  brim_str_printf(out, "%s  ", plain.data);
  brim_str_printf(out, "%.12s\n", one->first->id);
  if (*one->first->message) {
    brim_str_clear(&plain);
    brim_ui_clip(&plain, term, one->first->message, 0);
    brim_str_append(out, "    ");
    brim_ui_fit(out, term, plain.data, 4);
    brim_str_append_char(out, '\n');
  }
  if (plain.status && !out->status) out->status = plain.status;
  brim_str_deinit(&plain);
}

static void put_failures(const brim_sweep_view *view, const brim_term *term, const char *retry,
                         brim_str *out) {
  failed_class classes[BRIM_FAILURE_COUNT];
  size_t count = count_classes(view, classes);
  if (count == 0) return;
  qsort(classes, count, sizeof *classes, more_first);
  brim_str_append_char(out, '\n');
  brim_ui_styled(out, term, BRIM_UI_BOLD, brim_tr("Failures, with the first of each kind"));
  brim_str_append_char(out, '\n');
  bool again = true;  // running the same thing again may succeed
  for (size_t i = 0; i < count; i++) {
    put_class(view, term, &classes[i], out);
    again = again && brim_failure_retry_of(classes[i].failure) != BRIM_RETRY_NEVER;
  }
  if (retry) {
    brim_str_append(out, "  ");
    brim_str_printf(
        out, again ? brim_tr("retry them: %s\n") : brim_tr("fix the cause, then retry them: %s\n"),
        retry);
  }
}

//---------------------------------- ranking ----------------------------------

// True if a metric ranks its experiments by their best values: all that are done have one. Else it ranks them by their
// last values, since a list must not mix the two.
static bool all_have_best(const brim_sweep_view *view, const char *key) {
  for (size_t i = 0; i < view->row_count; i++) {
    const brim_sweep_row *row = &view->rows[i];
    if (row->state == BRIM_SWEEP_DONE && strcmp(row->metric_key, key) == 0 && isnan(row->best) &&
        !isnan(row->metric)) {
      return false;
    }
  }
  return true;
}

typedef struct ranked {
  const brim_sweep_row *row;
  double value;
  brim_metric_better better;
} ranked;

typedef struct group {
  const brim_sweep_row *row;  // its first experiment in the grid's order
  brim_lab_stats stats;
  size_t seeds;  // experiments, done or not
  brim_metric_better better;
} group;

static bool before(const brim_sweep_row *a, const brim_sweep_row *b) {
  return a->idx != b->idx ? a->idx < b->idx : strcmp(a->id, b->id) < 0;
}

static int best_first(const void *a, const void *b) {
  const ranked *x = (const ranked *)a, *y = (const ranked *)b;
  const brim_lab_rank p = {x->value, 1, 1}, q = {y->value, 1, 1};
  const int order = brim_lab_rank_order(&p, &q, x->better);
  return order ? order : before(x->row, y->row) ? -1 : before(y->row, x->row);
}

// Lists the experiments that are done and have a finite value of the metric, the best first.
static brim_status rank_rows(const brim_sweep_view *view, const brim_sweep_metric *metric,
                             ranked **out, size_t *count) {
  bool best = all_have_best(view, metric->key);
  size_t n = 0;
  *out = (ranked *)brim_calloc(view->row_count + 1, sizeof **out);
  if (!*out) return brim_fail(BRIM_ENOMEM, "out of memory while listing experiments");
  for (size_t i = 0; i < view->row_count; i++) {
    const brim_sweep_row *row = &view->rows[i];
    double value = best ? row->best : row->metric;
    if (row->state != BRIM_SWEEP_DONE || strcmp(row->metric_key, metric->key) != 0) continue;
    if (isfinite(value)) (*out)[n++] = (ranked){row, value, metric->better};
  }
  qsort(*out, n, sizeof **out, best_first);
  *count = n;
  return BRIM_OK;
}

static void put_best(const brim_sweep_view *view, const brim_sweep_metric *metric,
                     const brim_term *term, const ranked *all, size_t count, bool best,
                     brim_str *out) {
  char value[32];
  brim_str_append_char(out, '\n');
  brim_str title;
  brim_str_init(&title);
  brim_str_printf(&title, best ? brim_tr("Best %s of each run") : brim_tr("Last %s of each run"),
                  brim_ui_value_label(metric));
  brim_ui_styled(out, term, BRIM_UI_BOLD, title.data);
  brim_str_deinit(&title);
  brim_str_append_char(out, '\n');
  for (size_t i = 0; i < count && i < BEST_ROWS; i++) {
    brim_ui_value(metric, all[i].value, value);
    brim_str_printf(out, "  %10s  ", value);
    brim_ui_put_clipped(out, term, i == 0 ? BRIM_UI_BEST : BRIM_UI_PLAIN,
                        name_of(view, all[i].row->label),
                        term->width > 40 ? term->width - 30 : INT_MAX);
    brim_str_printf(out, "  %.12s\n", all[i].row->id);
  }
}

//---------------------------------- groups over seeds ----------------------------------

static int by_group(const void *a, const void *b) {
  const ranked *x = (const ranked *)a, *y = (const ranked *)b;
  int order = strcmp(x->row->group, y->row->group);
  return order ? order : before(x->row, y->row) ? -1 : before(y->row, x->row);
}

static int best_group_first(const void *a, const void *b) {
  const group *x = (const group *)a, *y = (const group *)b;
  const brim_lab_rank p = {x->stats.mean, x->stats.n, x->seeds};
  const brim_lab_rank q = {y->stats.mean, y->stats.n, y->seeds};
  const int order = brim_lab_rank_order(&p, &q, x->better);
  return order ? order : before(x->row, y->row) ? -1 : before(y->row, x->row);
}

static int by_group_name(const void *a, const void *b) {
  return strcmp(((const group *)a)->row->group, ((const group *)b)->row->group);
}

// Counts all experiments of each group: those without a value are missing in its mean. `groups` are sorted by name.
static void count_seeds(const brim_sweep_view *view, group *groups, size_t count) {
  for (size_t i = 0; i < view->row_count; i++) {
    const group key = {.row = &view->rows[i]};
    group *g = (group *)bsearch(&key, groups, count, sizeof *groups, by_group_name);
    if (g) g->seeds++;
  }
}

static void put_group(const brim_sweep_view *view, const brim_sweep_metric *metric,
                      const brim_term *term, const group *g, bool first, brim_str *out) {
  char text[80], seeds[64];
  brim_ui_value_spread(metric, g->stats.mean, g->stats.stddev, text);
  char *sign = strstr(text, "\xc2\xb1");
  if (sign && !term->unicode) memcpy(sign, "+-", 2);
  const bool lacks = g->stats.n < g->seeds;
  if (lacks) {
    snprintf(seeds, sizeof seeds, brim_tr("%zu of %zu seeds"), g->stats.n, g->seeds);
  } else {
    snprintf(seeds, sizeof seeds, brim_tr("%zu seeds"), g->stats.n);
  }
  int pad = 20 - brim_utf8_width(text);
  brim_str_printf(out, "  %*s%s  ", pad > 0 ? pad : 0, "", text);
  // No limit where the labels would have no room at all.
  int room = term->width > 50 ? term->width - 26 - brim_utf8_width(seeds) : 0;
  brim_ui_put_clipped(out, term, first ? BRIM_UI_BEST : BRIM_UI_PLAIN, name_of(view, g->row->point),
                      room > 0 ? room : INT_MAX);
  brim_str_append(out, "  ");
  brim_ui_styled(out, term, lacks ? BRIM_UI_WARN : BRIM_UI_DIM, seeds);
  brim_str_append_char(out, '\n');
}

// Makes the groups of `all`, the best first. Reorders `all`.
static brim_status make_groups(const brim_sweep_view *view, const brim_sweep_metric *metric,
                               ranked *all, size_t count, group *out, size_t *group_count) {
  double *values = (double *)brim_calloc(count + 1, sizeof *values);
  size_t groups = 0;
  if (!values) return brim_fail(BRIM_ENOMEM, "out of memory while listing experiments");
  qsort(all, count, sizeof *all, by_group);
  for (size_t i = 0, n; i < count; i += n) {
    for (n = 1; i + n < count && strcmp(all[i].row->group, all[i + n].row->group) == 0;) n++;
    if (!*all[i].row->group) continue;
    for (size_t k = 0; k < n; k++) values[k] = all[i + k].value;
    group *g = &out[groups++];
    *g = (group){.row = all[i].row, .better = metric->better};
    brim_lab_stats_of(values, n, &g->stats);
  }
  brim_free(values);
  count_seeds(view, out, groups);
  if (groups > 0) qsort(out, groups, sizeof *out, best_group_first);
  *group_count = groups;
  return BRIM_OK;
}

static brim_status put_groups(const brim_sweep_view *view, const brim_sweep_metric *metric,
                              const brim_term *term, ranked *all, size_t count, brim_str *out) {
  group *groups = (group *)brim_calloc(count + 1, sizeof *groups);
  if (!groups) return brim_fail(BRIM_ENOMEM, "out of memory while listing experiments");
  size_t n = 0;
  brim_status status = make_groups(view, metric, all, count, groups, &n);
  size_t shown = n < GROUP_ROWS ? n : GROUP_ROWS;
  bool several = false;
  for (size_t i = 0; i < shown; i++) several = several || groups[i].seeds > 1;
  if (several) {
    const bool best = all_have_best(view, metric->key);
    brim_str title;
    brim_str_init(&title);
    brim_str_printf(
        &title,
        best ? brim_tr("Mean %s standard deviation over seeds, of the best %s of each run")
             : brim_tr("Mean %s standard deviation over seeds, of the last %s of each run"),
        term->unicode ? "±" : "+-", brim_ui_value_label(metric));
    brim_str_append_char(out, '\n');
    brim_ui_styled(out, term, BRIM_UI_BOLD, title.data);
    brim_str_append_char(out, '\n');
    brim_str_deinit(&title);
    for (size_t i = 0; i < shown; i++) put_group(view, metric, term, &groups[i], i == 0, out);
  }
  brim_free(groups);
  return status ? status : brim_str_status(out);
}

static brim_status put_metric(const brim_sweep_view *view, const brim_sweep_metric *metric,
                              const brim_term *term, brim_str *out) {
  ranked *all = NULL;
  size_t count = 0;
  BRIM_TRY(rank_rows(view, metric, &all, &count));
  brim_status status = BRIM_OK;
  // Without a direction there is no best.
  if (count > 0 && metric->better != BRIM_BETTER_NEITHER)
    put_best(view, metric, term, all, count, all_have_best(view, metric->key), out);
  if (count > 0) status = put_groups(view, metric, term, all, count, out);
  brim_free(all);
  return status;
}

// Experiments that needed more than one attempt, and GPUs that are out of service.
static void put_trouble(const brim_sweep_view *view, const brim_term *term, brim_str *out) {
  char number[32];
  int64_t again = 0;
  for (size_t i = 0; i < view->row_count; i++) {
    again += view->rows[i].state == BRIM_SWEEP_DONE && view->rows[i].attempt > 1;
  }
  if (again > 0) {
    brim_format_count((double)again, number);
    brim_str_printf(out, brim_tr("%s of the done ones took more than one attempt\n"), number);
  }
  for (size_t i = 0; i < view->gpu_count; i++) {
    const brim_sweep_gpu *gpu = &view->gpus[i];
    if (gpu->state != BRIM_SWEEP_GPU_OUT) continue;
    brim_str line;
    brim_str_init(&line);
    brim_str_printf(&line, brim_tr("%s is out of service: %s"), gpu->name, gpu->why);
    brim_ui_styled(out, term, BRIM_UI_BAD, line.data);
    brim_str_append_char(out, '\n');
    if (line.status && !out->status) out->status = line.status;
    brim_str_deinit(&line);
  }
}

static void put_command(brim_str *out, const char *fmt, const char *command) {
  if (!command) return;
  brim_str_printf(out, fmt, command);
  brim_str_append_char(out, '\n');
}

brim_status brim_ui_sweep_summary(const brim_sweep_view *view, const brim_term *term,
                                  const brim_ui_sweep_summary_options *options, brim_str *out) {
  char clock[32], ended[16], zone[16] = "";
  int64_t left = 0;
  for (int i = 0; i < BRIM_SWEEP_STATE_COUNT; i++) {
    if (!brim_sweep_state_ended((brim_sweep_state)i)) left += view->counts[i];
  }
  brim_ui_styled(out, term, BRIM_UI_TITLE, view->title);
  brim_str_append(out, "  ");
  brim_ui_styled(out, term, BRIM_UI_DIM, view->store);
  brim_ui_sweep_clock(view->now_s - view->started_s, clock);
  if (clock[0]) {
    brim_str_append(out, "  ");
    brim_str_printf(out, brim_tr("in %s"), clock);
  }
  brim_ui_time_of_day(view->now_s, "", ended);
  struct tm local;
  const time_t when = fabs(view->now_s) < 1e11 ? (time_t)view->now_s : 0;
  if (ended[0] && localtime_r(&when, &local)) (void)strftime(zone, sizeof zone, "%Z", &local);
  if (clock[0] && ended[0]) {
    brim_str_append(out, "  ");
    brim_str_printf(out, brim_tr("ended at %s %s"), ended, zone);
  }
  brim_str_append_char(out, '\n');
  sweep_counts(view, term, out);
  brim_str_append_char(out, '\n');
  put_trouble(view, term, out);
  if (view->notice[0]) {
    brim_ui_styled(out, term, BRIM_UI_BAD, view->notice);
    brim_str_append_char(out, '\n');
  }
  put_failures(view, term, options ? options->retry : NULL, out);
  for (size_t i = 0; i < view->metric_count; i++) {
    BRIM_TRY(put_metric(view, &view->metrics[i], term, out));
  }
  brim_str_append_char(out, '\n');
  if (left > 0) put_command(out, brim_tr("continue: %s"), options ? options->resume : NULL);
  put_command(out, brim_tr("report: %s"), options ? options->report : NULL);
  return brim_str_status(out);
}

//------------------------------------------- dry run -------------------------------------------

enum { ID_DIGITS = 12, MESSAGES = 5, FIRST_COLUMNS = 3, LAST_COLUMNS = 3 };

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

static void add_forecast_row(brim_ui_table *table, const brim_forecast *f, size_t i) {
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

static brim_status put_forecast_table(const brim_term *term, const brim_forecast *f,
                                      brim_str *out) {
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
  for (size_t i = 0; i < f->row_count; i++) add_forecast_row(&table, f, i);
  brim_status status = brim_ui_table_render(&table, term, out, NULL);
  brim_ui_table_deinit(&table);
  return status;
}

// A reason why experiments do not run on a device.
typedef struct complaint {
  const brim_forecast_need *need;
  const brim_forecast_row *first;  // the first experiment with it
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
  BRIM_TRY(put_forecast_table(term, forecast, out));
  brim_str_append_char(out, '\n');
  put_complaints(term, forecast, out);
  put_sums(forecast, out);
  brim_str_append(out, brim_tr("nothing was submitted\n"));
  return brim_str_status(out);
}

//------------------------------------------ comparison ------------------------------------------
// Groups of experiments of two sides: mean and deviation of both, the difference with its interval, the verdict.

static const char *verdict_text(brim_lab_verdict verdict, brim_ui_style *style) {
  static const struct {
    const char *text;
    brim_ui_style style;
  } rows[BRIM_LAB_VERDICT_COUNT] = {
      [BRIM_LAB_UNKNOWN] = {BRIM_N_("certainly different"), BRIM_UI_WARN},
      [BRIM_LAB_ONCE] = {BRIM_N_("one result, no interval"), BRIM_UI_WARN},
      [BRIM_LAB_BETTER] = {BRIM_N_("certainly better"), BRIM_UI_GOOD},
      [BRIM_LAB_WORSE] = {BRIM_N_("certainly worse"), BRIM_UI_BAD},
      [BRIM_LAB_OPEN] = {BRIM_N_("cannot be told apart"), BRIM_UI_DIM},
      [BRIM_LAB_A_MISSING] = {BRIM_N_("only B has a result"), BRIM_UI_WARN},
      [BRIM_LAB_B_MISSING] = {BRIM_N_("B has no result"), BRIM_UI_WARN},
      [BRIM_LAB_BOTH_MISSING] = {BRIM_N_("neither has a result"), BRIM_UI_DIM}};
  *style = rows[verdict].style;
  return brim_tr(rows[verdict].text);
}

static bool is_narrow(const brim_term *term) { return term->width > 0 && term->width < 100; }

// "0.912 ± 0.013 (5)": mean, deviation, results.
static void side_text(const brim_term *term, const brim_sweep_metric *display,
                      const brim_lab_stats *stats, char out[112]) {
  char spread[80];
  if (stats->n == 0) {
    snprintf(out, 112, "-");
    return;
  }
  brim_ui_value_spread(display, stats->mean, stats->stddev, spread);
  char *sign = strstr(spread, "\xc2\xb1"), *unit = strstr(spread, " %");
  if (sign && !term->unicode) memcpy(sign, "+-", 2);
  if (unit && is_narrow(term)) *unit = '\0';  // the heading has it
  snprintf(out, 112, "%s (%zu)", spread, stats->n);
}

static void difference_text(const brim_sweep_metric *display, const brim_lab_difference *d,
                            char out[112]) {
  const double bounds[2] = {d->low, d->high};
  brim_ui_value_difference(display, d->mean, bounds, out);
}

enum { MAX_KEYS = 12 };

// A setting of the first experiment of a group.
static const char *value_of(const brim_lab_set *set, const brim_lab_group *g, const char *key) {
  const char *value = brim_lab_value(set, &set->exps[g->list[0]], key);
  return value ? value : "-";
}

// True if a setting differs between matches, or between the two sides of one.
static bool setting_varies(const brim_lab_comparison *c, const brim_ui_lab_sides *sets,
                           const char *key) {
  const char *first = value_of(sets->b, c->matches[0].b, key);
  for (size_t i = 0; i < c->count; i++) {
    const brim_lab_match *m = &c->matches[i];
    if (strcmp(value_of(sets->b, m->b, key), first) != 0) return true;
    if (strcmp(value_of(sets->a, m->a, key), first) != 0) return true;
  }
  return false;
}

// "0.1", or "fp32 -> bf16" where the two sides differ in it.
static void add_setting(brim_ui_table *table, const brim_lab_match *m,
                        const brim_ui_lab_sides *sets, const char *key) {
  const char *a = value_of(sets->a, m->a, key), *b = value_of(sets->b, m->b, key);
  if (strcmp(a, b) == 0) {
    brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", b);
  } else {
    brim_ui_table_add(table, BRIM_UI_PLAIN, "%s -> %s", a, b);
  }
}

static void add_match(brim_ui_table *table, const brim_term *term, const brim_lab_match *m,
                      const brim_ui_lab_sides *sets) {
  char text[112];
  brim_ui_style style;
  const brim_sweep_metric *display = brim_lab_display(sets->b, m->metric_key);
  const char *verdict = verdict_text(m->verdict, &style);
  side_text(term, display, &m->a_stats, text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  side_text(term, display, &m->b_stats, text);
  brim_ui_table_add(table, BRIM_UI_PLAIN, "%s", text);
  difference_text(display, &m->difference, text);
  brim_ui_table_add(table, style, "%s", text);
  brim_ui_table_add(table, style, "%s", verdict);
}

// On a narrow terminal the difference stays longest, then the two means. The verdict goes first: its colour is that of
// the difference, and the lines below count the verdicts.
static brim_status put_matches(const brim_term *term, const brim_lab_comparison *c,
                               const brim_ui_lab_sides *sets, brim_str *out) {
  brim_ui_column columns[MAX_KEYS + 4];
  const char *keys[MAX_KEYS];
  size_t count = 0;
  for (size_t i = 0; i < sets->b->key_count && count < MAX_KEYS && c->count > 0; i++) {
    const brim_lab_key *key = &sets->b->keys[i];
    if (key->over || !setting_varies(c, sets, key->name)) continue;
    columns[count] = (brim_ui_column){
        .header = brim_ui_lab_short(sets->b, i), .align = BRIM_UI_RIGHT, .min_width = 12};
    keys[count++] = key->name;
  }
  const char *key = c->count > 0 ? c->matches[0].metric_key : "";
  const brim_sweep_metric *display = brim_lab_display(sets->b, key);
  const bool unit = display && display->format == BRIM_METRIC_PERCENT && is_narrow(term);
  const brim_ui_column rest[] = {
      {unit ? "A, %" : "A", NULL, BRIM_UI_RIGHT, 2, 0},
      {unit ? "B, %" : "B", NULL, BRIM_UI_RIGHT, 2, 0},
      {brim_tr("B - A [95 %]"), NULL, BRIM_UI_RIGHT, 1, 0},
      {brim_tr("Verdict"), NULL, BRIM_UI_LEFT, 3, 0},
  };
  memcpy(columns + count, rest, sizeof rest);
  brim_ui_table table;
  int left_out = 0;
  brim_ui_table_init(&table, columns, count + sizeof rest / sizeof *rest);
  for (size_t i = 0; i < c->count; i++) {
    for (size_t k = 0; k < count; k++) add_setting(&table, &c->matches[i], sets, keys[k]);
    add_match(&table, term, &c->matches[i], sets);
  }
  brim_status status = brim_ui_table_render(&table, term, out, &left_out);
  brim_ui_table_deinit(&table);
  brim_ui_note_left_out(term, left_out, out);
  return status;
}

static void put_verdict_counts(const brim_term *term, const brim_lab_comparison *c, brim_str *out) {
  const char *separator = "  ";
  for (int v = 0; v < BRIM_LAB_VERDICT_COUNT; v++) {
    size_t n = 0;
    brim_ui_style style;
    for (size_t i = 0; i < c->count; i++) n += c->matches[i].verdict == (brim_lab_verdict)v;
    if (n == 0) continue;
    const char *text = verdict_text((brim_lab_verdict)v, &style);
    brim_str_append(out, separator);
    brim_ui_styled(out, term, style, text);
    brim_str_printf(out, ": %zu", n);
    separator = ",\n  ";
  }
  brim_str_append_char(out, '\n');
}

static const char *overall_text(brim_lab_verdict verdict) {
  switch (verdict) {
    case BRIM_LAB_BETTER:
      return brim_tr("Certain: B is better on average over these settings (%s; settings: %zu)");
    case BRIM_LAB_WORSE:
      return brim_tr("Certain: B is worse on average over these settings (%s; settings: %zu)");
    case BRIM_LAB_UNKNOWN:
      return brim_tr("Certain: B differs on average over these settings (%s; settings: %zu)");
    case BRIM_LAB_OPEN:
      return brim_tr("Provisional: A and B cannot be told apart on average (%s; settings: %zu)");
    case BRIM_LAB_ONCE:
      return brim_tr("Provisional: a single setting has results in both (%s; settings: %zu)");
    default:
      return NULL;
  }
}

static void put_overall(const brim_term *term, const brim_lab_comparison *c,
                        const brim_ui_lab_sides *sets, brim_str *out) {
  char difference[112], line[320];
  const char *text = overall_text(c->verdict);
  const brim_lab_difference d = {c->overall.mean, c->overall.low, c->overall.high};
  const char *key = c->count > 0 ? c->matches[0].metric_key : "";
  difference_text(brim_lab_display(sets->b, key), &d, difference);
  if (text) {
    snprintf(line, sizeof line, text, difference, c->overall.n);
  } else {
    snprintf(line, sizeof line, "%s", brim_tr("Provisional: no setting has results in both"));
  }
  brim_str_append(out, "  ");
  brim_ui_wrap(out, term, line, 2);
  brim_str_append_char(out, '\n');
}

// Warns that among many 95 % intervals some exclude 0 by chance.
static void put_caution(const brim_term *term, const brim_lab_comparison *c, brim_str *out) {
  size_t intervals = 0;
  for (size_t i = 0; i < c->count; i++) intervals += isnan(c->matches[i].difference.low) ? 0u : 1u;
  if (intervals < 20) return;
  char line[160];
  snprintf(line, sizeof line,
           brim_tr("Of %zu intervals of 95 %%, about %zu exclude 0 by chance alone."), intervals,
           (intervals + 10) / 20);
  brim_str_append(out, "  ");
  brim_ui_wrap(out, term, line, 2);
  brim_str_append_char(out, '\n');
}

brim_status brim_ui_lab_compare(const brim_term *term, const brim_lab_comparison *comparison,
                                const brim_ui_lab_sides *sides, brim_str *out) {
  brim_str_printf(out, "A  %s\nB  %s\n\n", sides->a_name, sides->b_name);
  if (sides->differences && sides->differences[0]) {
    brim_str_append(out, sides->differences);  // before the verdicts, which they may explain
    brim_str_append_char(out, '\n');
  }
  brim_str_printf(out, "%s\n\n", sides->metric);
  BRIM_TRY(put_matches(term, comparison, sides, out));
  brim_str_append_char(out, '\n');
  put_verdict_counts(term, comparison, out);
  if (!comparison->several) put_overall(term, comparison, sides, out);
  put_caution(term, comparison, out);
  return brim_str_status(out);
}
