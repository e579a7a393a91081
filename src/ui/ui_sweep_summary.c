// What a person wants to know after a night of experiments: what is done, what failed and why, which
// experiments are best, and how much seeds differ.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record/record_lab.h"
#include "ui/ui_sweep_int.h"

enum { BEST_ROWS = 5, GROUP_ROWS = 10 };

//---------------------------------- failures ----------------------------------

// The first failure of a class by time, and how many there are.
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
      // An unknown time is later than any.
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

// An experiment of a grid without axes has no label; a group whose only axis is the seed neither.
static const char *name_of(const brim_sweep_view *view, const char *label) {
  return *label ? label : view->title;
}

// "  OOM  3  lr=0.1 batch_size=4096" and below it the message.
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
  bool again = true;  // running the same thing again can help
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

//---------------------------------- values ----------------------------------

// Which value of its experiments a metric is ranked by: the best where all that are done have one,
// so that last and best values never stand in one list.
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
  const brim_sweep_row *row;  // its first in the grid's order
  brim_lab_stats stats;
  size_t seeds;  // done or not
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

// Experiments that are done and have a finite value of the metric, the best first.
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
                  brim_ui_sweep_metric_label(metric));
  brim_ui_styled(out, term, BRIM_UI_BOLD, title.data);
  brim_str_deinit(&title);
  brim_str_append_char(out, '\n');
  for (size_t i = 0; i < count && i < BEST_ROWS; i++) {
    brim_str label;
    brim_str_init(&label);
    brim_ui_clip(&label, term, name_of(view, all[i].row->label),
                 term->width > 40 ? term->width - 30 : 0);
    brim_ui_sweep_value(metric, all[i].value, value);
    brim_str_printf(out, "  %10s  ", value);
    brim_ui_styled(out, term, i == 0 ? BRIM_UI_BEST : BRIM_UI_PLAIN, label.data);
    brim_str_printf(out, "  %.12s\n", all[i].row->id);
    if (label.status && !out->status) out->status = label.status;
    brim_str_deinit(&label);
  }
}

//---------------------------------- seeds ----------------------------------

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

// Those without a value are missing from a mean. `groups` are in the order of their names.
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
  brim_str label;
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
  brim_str_init(&label);
  const char *point = name_of(view, g->row->point);
  int room = term->width > 50 ? term->width - 26 - brim_utf8_width(seeds) : 0;
  brim_ui_clip(&label, term, point, room);
  brim_ui_styled(out, term, first ? BRIM_UI_BEST : BRIM_UI_PLAIN, label.data);
  brim_str_append(out, "  ");
  brim_ui_styled(out, term, lacks ? BRIM_UI_WARN : BRIM_UI_DIM, seeds);
  brim_str_append_char(out, '\n');
  if (label.status && !out->status) out->status = label.status;
  brim_str_deinit(&label);
}

// Groups of `all`, the one that ranks first in front. `all` is put into another order.
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
        term->unicode ? "±" : "+-", brim_ui_sweep_metric_label(metric));
    brim_str_append_char(out, '\n');
    brim_ui_styled(out, term, BRIM_UI_BOLD, title.data);
    brim_str_append_char(out, '\n');
    brim_str_deinit(&title);
    for (size_t i = 0; i < shown; i++) put_group(view, metric, term, &groups[i], i == 0, out);
  }
  brim_free(groups);
  return status ? status : brim_str_status(out);
}

//---------------------------------- all ----------------------------------

static brim_status put_metric(const brim_sweep_view *view, const brim_sweep_metric *metric,
                              const brim_term *term, brim_str *out) {
  ranked *all = NULL;
  size_t count = 0;
  BRIM_TRY(rank_rows(view, metric, &all, &count));
  brim_status status = BRIM_OK;
  // Of a metric without a direction there is no best.
  if (count > 0 && metric->better != BRIM_BETTER_NEITHER)
    put_best(view, metric, term, all, count, all_have_best(view, metric->key), out);
  if (count > 0) status = put_groups(view, metric, term, all, count, out);
  brim_free(all);
  return status;
}

// What went well only at a second try, and what no experiment can use any more.
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
  char clock[32], ended[16], zone[16];
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
  brim_ui_sweep_time(view->now_s, ended);
  brim_ui_sweep_zone(view->now_s, zone);
  if (clock[0] && ended[0]) {
    brim_str_append(out, "  ");
    brim_str_printf(out, brim_tr("ended at %s %s"), ended, zone);
  }
  brim_str_append_char(out, '\n');
  brim_ui_sweep_counts(view, term, out);
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
