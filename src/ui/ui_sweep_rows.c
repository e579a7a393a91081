// Which experiments a list shows, and in which order.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "ui/ui_sweep_int.h"

bool brim_ui_sweep_listed(brim_ui_sweep_list list, brim_sweep_state state) {
  switch (list) {
    case BRIM_UI_SWEEP_ACTIVE:
      return state == BRIM_SWEEP_RUNNING || state == BRIM_SWEEP_LEASED;
    case BRIM_UI_SWEEP_WAITING:
      return state == BRIM_SWEEP_QUEUED;
    case BRIM_UI_SWEEP_FINISHED:
      return state == BRIM_SWEEP_DONE;
    case BRIM_UI_SWEEP_FAILURES:
      return state == BRIM_SWEEP_FAILED;
    case BRIM_UI_SWEEP_HELD:
      return state == BRIM_SWEEP_PAUSED || state == BRIM_SWEEP_CANCELLED;
    default:
      return true;
  }
}

int64_t brim_ui_sweep_count(const brim_sweep_view *view, brim_ui_sweep_list list) {
  int64_t count = 0;
  for (int i = 0; i < BRIM_SWEEP_STATE_COUNT; i++) {
    if (brim_ui_sweep_listed(list, (brim_sweep_state)i)) count += view->counts[i];
  }
  return count;
}

// Smaller keys come first; equal ones in the grid's order.
typedef struct sorted {
  double key[2];
  int64_t idx;
  size_t place;
} sorted;

static int compare(const void *a, const void *b) {
  const sorted *x = (const sorted *)a, *y = (const sorted *)b;
  for (int i = 0; i < 2; i++) {
    if (x->key[i] != y->key[i]) return x->key[i] < y->key[i] ? -1 : 1;
  }
  if (x->idx != y->idx) return x->idx < y->idx ? -1 : 1;
  return x->place < y->place ? -1 : x->place > y->place;
}

static double known(double value, double otherwise) { return isnan(value) ? otherwise : value; }

// What runs, then what ended last, then the queue: as the dashboard lists them. Results stand above a
// long queue.
static void state_keys(const brim_sweep_row *row, double key[2]) {
  static const double rank[BRIM_SWEEP_STATE_COUNT] = {
      [BRIM_SWEEP_RUNNING] = 0,   [BRIM_SWEEP_LEASED] = 1, [BRIM_SWEEP_FAILED] = 2,
      [BRIM_SWEEP_DONE] = 2,      [BRIM_SWEEP_QUEUED] = 3, [BRIM_SWEEP_PAUSED] = 4,
      [BRIM_SWEEP_CANCELLED] = 5,
  };
  key[0] = (unsigned)row->state < BRIM_SWEEP_STATE_COUNT ? rank[row->state] : 7;
  if (brim_sweep_state_ended(row->state)) {
    key[1] = -known(row->ended_s, 0);
  } else if (row->state == BRIM_SWEEP_QUEUED) {
    key[1] = -(double)row->priority;
  } else {
    key[1] = known(row->started_s, 0);
  }
}

static void metric_keys(const brim_sweep_view *view, const brim_sweep_row *row, double key[2]) {
  const brim_sweep_metric *metric = brim_sweep_view_metric(view, row->metric_key);
  double value = isnan(row->best) ? row->metric : row->best;
  key[0] = isnan(value);
  key[1] = isnan(value) ? 0 : metric && metric->better == BRIM_BETTER_LOWER ? value : -value;
}

static void set_keys(const brim_sweep_view *view, brim_ui_sweep_order order, size_t place,
                     sorted *out) {
  const brim_sweep_row *row = &view->rows[place];
  *out = (sorted){.idx = row->idx, .place = place};
  if (order == BRIM_UI_SWEEP_BY_STATE) {
    state_keys(row, out->key);
  } else if (order == BRIM_UI_SWEEP_BY_METRIC) {
    metric_keys(view, row, out->key);
  } else if (order == BRIM_UI_SWEEP_BY_TIME) {
    double last = known(row->ended_s, known(row->started_s, known(row->created_s, 0)));
    out->key[0] = -last;
  }
}

// A setting that ends with a digit is a whole number: "lr=0.01" does not find "lr=0.012" or "lr=0.01e-3".
static bool has_word(const char *text, const char *word) {
  const size_t n = strlen(word);
  const bool whole = strchr(word, '=') && word[n - 1] >= '0' && word[n - 1] <= '9';
  for (const char *at = text; (at = strcasestr(at, word)); at++) {
    if (!whole || !at[n] || !strchr("0123456789.eE", at[n])) return true;
  }
  return false;
}

// Whether every word of a search is in the row.
static bool found(const brim_sweep_row *row, const char *search) {
  char word[128];
  while (*search) {
    search += strspn(search, " ");
    const size_t n = strcspn(search, " ");
    if (n == 0) break;
    snprintf(word, sizeof word, "%.*s", (int)n, search);
    brim_utf8_trim(word);
    search += n;
    if (!has_word(row->label, word) && !has_word(row->tags, word) &&
        strncasecmp(row->id, word, strlen(word)) != 0) {
      return false;
    }
  }
  return true;
}

brim_status brim_ui_sweep_rows(const brim_sweep_view *view, const brim_ui_sweep_pick *pick,
                               size_t **out, size_t *count) {
  *count = 0;
  *out = (size_t *)brim_calloc(view->row_count + 1, sizeof **out);
  sorted *all = *out ? (sorted *)brim_calloc(view->row_count + 1, sizeof *all) : NULL;
  if (!all) {
    brim_free(*out);
    *out = NULL;
    return brim_fail(BRIM_ENOMEM, "out of memory while listing experiments");
  }
  size_t n = 0;
  for (size_t i = 0; i < view->row_count; i++) {
    const brim_sweep_row *row = &view->rows[i];
    if (!brim_ui_sweep_listed(pick->list, row->state) || !found(row, pick->search)) continue;
    set_keys(view, pick->order, i, &all[n++]);
  }
  qsort(all, n, sizeof *all, compare);
  for (size_t i = 0; i < n; i++) (*out)[i] = all[i].place;
  brim_free(all);
  *count = n;
  return BRIM_OK;
}
