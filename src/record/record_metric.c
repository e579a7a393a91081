// Names and texts of metrics.
#include "record/record_metric.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base_msg.h"
#include "base/base_text.h"

void brim_metric_unknown(double values[BRIM_METRIC_MAX]) {
  for (size_t i = 0; i < BRIM_METRIC_MAX; i++) values[i] = (double)NAN;
}

int brim_metric_find(const brim_metric_set *set, const char *key) {
  for (size_t i = 0; set && i < set->count; i++) {
    if (strcmp(set->rows[i].key, key) == 0) return (int)i;
  }
  return -1;
}

const char *brim_metric_best_name(const brim_metric *row) {
  return row->best ? row->best : row->key;
}

//---------------------------------- names ----------------------------------

static const char *given(const brim_metric_names *n, brim_metric_file file) {
  switch (file) {
    case BRIM_METRIC_COLUMN:
      return n->column;
    case BRIM_METRIC_TAG:
      return n->tag;
    case BRIM_METRIC_EVENT:
      return n->event;
    case BRIM_METRIC_FIGURE:
      return n->figure;
  }
  return NULL;
}

// The prefix before the key in a row without a name of its own.
static const char *prefix_of(brim_metric_stage stage, brim_metric_file file) {
  static const char *const prefixes[BRIM_METRIC_STAGES] = {[BRIM_METRIC_STEPS] = "",
                                                           [BRIM_METRIC_TRAIN] = "train_",
                                                           [BRIM_METRIC_EVAL] = "eval_",
                                                           [BRIM_METRIC_BASELINE] = "baseline_",
                                                           [BRIM_METRIC_PROBE] = "probe_"};
  if (file == BRIM_METRIC_EVENT && stage == BRIM_METRIC_TRAIN) return "";
  if (file == BRIM_METRIC_FIGURE && stage == BRIM_METRIC_EVAL) return "";
  return prefixes[stage];
}

bool brim_metric_name(const brim_metric *row, brim_metric_stage stage, brim_metric_file file,
                      char out[BRIM_METRIC_NAME]) {
  if (!(row->stages & BRIM_METRIC_AT(stage))) return false;
  const char *name = given(&row->names[stage], file);
  if (name) {
    snprintf(out, BRIM_METRIC_NAME, "%s", name);
  } else {
    snprintf(out, BRIM_METRIC_NAME, "%s%s", prefix_of(stage, file), row->key);
  }
  return out[0] != '\0';
}

//---------------------------------- text ----------------------------------

void brim_metric_format_value(const brim_metric *row, double value, char out[32]) {
  value = brim_shown(value);
  if (isnan(value)) {
    snprintf(out, 32, "NaN");
  } else if (row->format == BRIM_METRIC_PERCENT) {
    snprintf(out, 32, "%.*f %%", row->digits ? row->digits : 2, value * 100);
  } else if (row->format == BRIM_METRIC_WHOLE) {
    snprintf(out, 32, "%.0f", value);
  } else if (row->format == BRIM_METRIC_LARGE) {
    brim_format_count(value, out);
  } else {
    snprintf(out, 32, "%.*g", row->digits ? row->digits : 4, value);
  }
}

// Formats a value for a line. In the progress line a STEADY value keeps its width: four decimals from 0.01 to
// 9.9999, one decimal for percentages.
static void format_at(const brim_metric *row, brim_metric_place place, double value, char out[32]) {
  bool steady = place == BRIM_METRIC_LINE_PROGRESS && !isnan(value);
  if (steady && row->format == BRIM_METRIC_STEADY && value >= 0.01 && value < 1000) {
    snprintf(out, 32, "%.4f", brim_shown(value));
  } else if (steady && row->format == BRIM_METRIC_PERCENT) {
    snprintf(out, 32, "%.1f %%", brim_shown(value * 100));
  } else {
    brim_metric_format_value(row, value, out);
  }
}

const char *brim_metric_label(const brim_metric *row, brim_metric_place place) {
  const char *label = NULL;
  if (place == BRIM_METRIC_LINE_STEPS || place == BRIM_METRIC_LINE_TRAIN ||
      place == BRIM_METRIC_LINE_PROGRESS) {
    label = row->train_label;
  }
  if (place == BRIM_METRIC_LINE_EVAL || place == BRIM_METRIC_LINE_SUMMARY) label = row->eval_label;
  if (place == BRIM_METRIC_LINE_TABLE) label = row->table_label;
  if (!label) label = row->label;
  return label && label[0] ? brim_tr(label) : "";
}

// True if a line shows this value. A line shows an unknown value only if the metric must be finite, and never in
// the progress line.
static bool is_shown(const brim_metric *row, brim_metric_place place, double value) {
  if (!(row->lines & BRIM_METRIC_AT(place))) return false;
  if (row->flags & BRIM_METRIC_POSITIVE) return value > 0;
  if (!isnan(value)) return true;
  return (row->flags & BRIM_METRIC_FINITE) && place != BRIM_METRIC_LINE_PROGRESS;
}

typedef struct part_text {
  char *out;
  size_t used;
} part_text;

static void add(part_text *p, const char *text) {
  int n = snprintf(p->out + p->used, BRIM_METRIC_TEXT - p->used, "%s", text);
  if (n > 0) p->used += (size_t)n;
  if (p->used >= BRIM_METRIC_TEXT) p->used = BRIM_METRIC_TEXT - 1;
}

static void add_row(part_text *p, const brim_metric *row, brim_metric_place place, double value) {
  char number[32];
  const char *label = brim_metric_label(row, place);
  add(p, row->join == BRIM_METRIC_COMMA ? ", " : "  ");
  add(p, label);
  if (label[0]) add(p, " ");
  format_at(row, place, value, number);
  add(p, number);
  if (!row->unit) return;
  add(p, " ");
  add(p, brim_tr(row->unit));
}

// Appends " (zero policy 301)"; only the metric that decides shows the label.
static void add_baseline(part_text *p, const brim_metric_set *set, const brim_metric *row,
                         brim_metric_place place, double value) {
  char number[32];
  if (!(row->beside & BRIM_METRIC_AT(place)) || isnan(value)) return;
  bool progress = place == BRIM_METRIC_LINE_PROGRESS;
  const char *label = progress ? set->baseline_short : set->baseline_label;
  add(p, " (");
  if (row->rank == 1 && label) {
    add(p, brim_tr(label));
    add(p, " ");
  }
  format_at(row, place, value, number);
  add(p, number);
  add(p, ")");
}

size_t brim_metric_parts(const brim_metric_set *set, brim_metric_place place, const double *values,
                         const double *baseline, char out[][BRIM_METRIC_TEXT], size_t most) {
  size_t n = 0;
  for (size_t i = 0; i < set->count && n < most; i++) {
    const brim_metric *row = &set->rows[i];
    if (row->join == BRIM_METRIC_SPREAD || !is_shown(row, place, values[i])) continue;
    part_text p = {out[n++], 0};
    add_row(&p, row, place, values[i]);
    const brim_metric *spread = i + 1 < set->count ? &set->rows[i + 1] : NULL;
    if (spread && spread->join == BRIM_METRIC_SPREAD && is_shown(spread, place, values[i + 1])) {
      char number[32];
      brim_metric_format_value(spread, values[i + 1], number);
      add(&p, " +- ");
      add(&p, number);
    }
    if (baseline) add_baseline(&p, set, row, place, baseline[i]);
  }
  return n;
}

void brim_metric_line(const brim_metric_set *set, brim_metric_place place, const double *values,
                      const double *baseline, brim_str *out) {
  char parts[BRIM_METRIC_MAX][BRIM_METRIC_TEXT];
  size_t n = brim_metric_parts(set, place, values, baseline, parts, BRIM_METRIC_MAX);
  for (size_t i = 0; i < n; i++) brim_str_append(out, parts[i]);
}

int brim_metric_deciding(const brim_metric_set *set, brim_metric_stage stage, const double *values,
                         bool any) {
  int found = -1;
  for (size_t i = 0; set && i < set->count; i++) {
    const brim_metric *row = &set->rows[i];
    if (row->rank == 0 || !(row->stages & BRIM_METRIC_AT(stage))) continue;
    if (!any && isnan(values[i])) continue;
    if (found < 0 || row->rank < set->rows[found].rank) found = (int)i;
  }
  return found;
}
