// `brim eval CHECKPOINT`: evaluates a trained model. src/workload/learn/learn_scores.c scores the outputs of a network
// on labelled data; a workload without targets evaluates itself.

#include "cli/trained/cli_trained.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_text.h"
#include "workload/learn/learn_scores.h"

typedef struct evaluation {
  brim_cli_trained *c;
  brim_scores *scores;  // NULL = the workload evaluates itself, into `figures`
  brim_scores_summary summary;
  brim_trained_result result;
  json_t *figures;                   // figures by name: numbers, and words such as the precision
  const brim_workload_table *table;  // the workload that evaluated itself
  brim_work_metrics metrics;
  double probe[BRIM_METRIC_MAX];  // values of its probe; NaN = none
} evaluation;

//-------------------------------------------- output --------------------------------------------

enum { MOST_CLASSES = 20, WORST = 10 };  // more classes than MOST_CLASSES: print only the WORST

//---------------------------------- JSON ----------------------------------

// The name of a class, or its number in `text`.
static const char *class_name(const brim_cli_trained *c, int64_t index, char text[32]) {
  if (c->trained->class_names) return c->trained->class_names[index];
  snprintf(text, 32, "%" PRId64, index);
  return text;
}

static size_t figures_of(const evaluation *e, brim_score_figure out[BRIM_SCORE_FIGURES]) {
  return brim_scores_figures(&e->summary, e->c->trained->task, e->result.loss, out);
}

// Does the task have figures per class or label?
static bool has_classes(const evaluation *e) {
  return e->c->trained->task == BRIM_TASK_CLASSES || e->c->trained->task == BRIM_TASK_LABELS;
}

static brim_status class_json(const evaluation *e, int64_t i, json_t *list) {
  brim_class_score s;
  char text[32];
  brim_scores_class(e->scores, i, &s);
  json_t *row = json_object();
  BRIM_TRY(brim_json_push(list, row));
  BRIM_TRY(brim_json_put(row, "label", json_integer(i)));
  json_t *name = e->c->trained->class_names ? json_string(class_name(e->c, i, text)) : json_null();
  BRIM_TRY(brim_json_put(row, "class", name));
  BRIM_TRY(brim_json_put(row, "samples", json_integer(s.support)));
  BRIM_TRY(brim_json_put(row, "said", json_integer(s.predicted)));
  BRIM_TRY(brim_json_put(row, "precision", brim_json_number(s.precision)));
  BRIM_TRY(brim_json_put(row, "recall", brim_json_number(s.recall)));
  return brim_json_put(row, "f1", brim_json_number(s.f1));
}

static brim_status matrix_json(const evaluation *e, json_t *out) {
  int64_t n = e->c->trained->outputs;
  json_t *matrix = json_array();
  BRIM_TRY(brim_json_put(out, "confusion", matrix));
  for (int64_t i = 0; i < n; i++) {
    json_t *row = json_array();
    BRIM_TRY(brim_json_push(matrix, row));
    for (int64_t k = 0; k < n; k++) {
      BRIM_TRY(brim_json_push(row, json_integer(brim_scores_matrix(e->scores, i, k))));
    }
  }
  return BRIM_OK;
}

static brim_status classes_json(const evaluation *e, bool whole, json_t *out) {
  int64_t n = e->c->trained->outputs;
  if (!whole && n > MOST_CLASSES) return BRIM_OK;
  json_t *list = json_array();
  BRIM_TRY(brim_json_put(out, "classes", list));
  for (int64_t i = 0; i < n; i++) BRIM_TRY(class_json(e, i, list));
  return brim_scores_has_matrix(e->scores) ? matrix_json(e, out) : BRIM_OK;
}

static brim_status values_json(const evaluation *e, json_t *out) {
  json_t *list = json_array();
  BRIM_TRY(brim_json_put(out, "targets", list));
  for (int64_t i = 0; i < e->c->trained->outputs; i++) {
    brim_value_score v;
    brim_scores_value(e->scores, i, &v);
    json_t *row = json_object();
    BRIM_TRY(brim_json_push(list, row));
    BRIM_TRY(brim_json_put(row, "mse", brim_json_number(v.mse)));
    BRIM_TRY(brim_json_put(row, "mae", brim_json_number(v.mae)));
    BRIM_TRY(brim_json_put(row, "r2", brim_json_number(v.r2)));
  }
  return BRIM_OK;
}

// whole: list the classes even if there are more than MOST_CLASSES.
static brim_status all_json(const evaluation *e, bool whole, json_t *out) {
  BRIM_TRY(brim_cli_trained_json(e->c, out));
  if (!e->scores) {
    return json_object_update(out, e->figures)
               ? brim_fail(BRIM_ENOMEM, "out of memory while writing JSON")
               : BRIM_OK;
  }
  BRIM_TRY(brim_json_put(out, "rows", json_integer(e->summary.rows)));
  BRIM_TRY(brim_json_put(out, "broken", json_integer(e->result.broken)));
  BRIM_TRY(brim_json_put(out, "bad_rows", json_integer(e->summary.bad)));
  if (e->summary.bad > 0) {
    BRIM_TRY(brim_json_put(out, "first_bad", json_integer((json_int_t)e->summary.first_bad)));
  }
  brim_score_figure figures[BRIM_SCORE_FIGURES];
  size_t n = figures_of(e, figures);
  for (size_t i = 0; i < n; i++) {
    BRIM_TRY(brim_json_put(out, figures[i].key, brim_json_number(figures[i].value)));
  }
  return has_classes(e) ? classes_json(e, whole, out) : values_json(e, out);
}

//---------------------------------- the file ----------------------------------

// Writes a comma, and the number if it is known.
static void csv_number(brim_str *out, double value) {
  char text[32];
  brim_str_append_char(out, ',');
  if (isnan(value)) return;
  brim_format_f64(value, text);
  brim_str_append(out, text);
}

// Writes a row per class: its figures, then how often each class was predicted for its samples.
static void classes_csv(const evaluation *e, brim_str *out) {
  int64_t n = e->c->trained->outputs;
  bool matrix = brim_scores_has_matrix(e->scores);
  char text[32];
  brim_str name;
  brim_str_init(&name);
  brim_str_append(out, "label,class,samples,precision,recall,f1");
  for (int64_t k = 0; matrix && k < n; k++) {
    brim_str_clear(&name);
    brim_str_printf(&name, "said_%s", class_name(e->c, k, text));
    brim_str_append_char(out, ',');
    brim_text_append_csv(out, name.data);
  }
  brim_str_append_char(out, '\n');
  brim_str_deinit(&name);
  for (int64_t i = 0; i < n; i++) {
    brim_class_score s;
    brim_scores_class(e->scores, i, &s);
    brim_str_printf(out, "%" PRId64 ",", i);
    brim_text_append_csv(out, class_name(e->c, i, text));
    csv_number(out, (double)s.support);
    csv_number(out, s.precision);
    csv_number(out, s.recall);
    csv_number(out, s.f1);
    for (int64_t k = 0; matrix && k < n; k++) {
      brim_str_printf(out, ",%" PRId64, brim_scores_matrix(e->scores, i, k));
    }
    brim_str_append_char(out, '\n');
  }
}

static void values_csv(const evaluation *e, brim_str *out) {
  brim_str_append(out, "target,mse,mae,r2\n");
  for (int64_t i = 0; i < e->c->trained->outputs; i++) {
    brim_value_score v;
    brim_scores_value(e->scores, i, &v);
    brim_str_printf(out, "%" PRId64, i);
    csv_number(out, v.mse);
    csv_number(out, v.mae);
    csv_number(out, v.r2);
    brim_str_append_char(out, '\n');
  }
}

static void figures_csv(const evaluation *e, brim_str *out) {
  const char *key;
  json_t *value;
  brim_str_append(out, "figure,value\n");
  json_object_foreach(e->figures, key, value) {
    brim_text_append_csv(out, key);
    if (json_is_string(value)) {
      brim_str_printf(out, ",%s", json_string_value(value));
    } else {
      csv_number(out, json_is_number(value) ? json_number_value(value) : (double)NAN);
    }
    brim_str_append_char(out, '\n');
  }
}

static brim_status write_json(evaluation *e) {
  char *text = NULL;
  json_t *all = json_object();
  brim_status status = all_json(e, true, all);
  if (!status) status = brim_json_dump(all, 1, &text);
  if (!status) status = brim_fs_write(e->c->output, text, strlen(text));
  brim_free(text);
  json_decref(all);
  return status;
}

// Writes --output.
static brim_status eval_write(evaluation *e) {
  if (brim_str_ends(e->c->output, ".json")) return write_json(e);
  brim_str out;
  brim_str_init(&out);
  if (!e->scores) {
    figures_csv(e, &out);
  } else if (has_classes(e)) {
    classes_csv(e, &out);
  } else {
    values_csv(e, &out);
  }
  brim_status status = brim_str_status(&out);
  if (!status) status = brim_fs_write(e->c->output, out.data, out.len);
  brim_str_deinit(&out);
  return status;
}

//---------------------------------- for people ----------------------------------

static void percent(double value, char out[32]) {
  if (isnan(value)) {
    snprintf(out, 32, "-");
  } else {
    snprintf(out, 32, "%.2f %%", brim_shown(value * 100));
  }
}

static void number(double value, char out[32]) {
  if (isnan(value)) {
    snprintf(out, 32, "-");
  } else {
    snprintf(out, 32, "%.4g", value);
  }
}

typedef struct worst_class {
  int64_t index;
  double f1;
} worst_class;

static int by_f1(const void *a, const void *b) {
  const worst_class *x = a, *y = b;
  if (x->f1 != y->f1) return x->f1 < y->f1 ? -1 : 1;
  return x->index < y->index ? -1 : 1;
}

// Writes a table of all classes, or of the WORST by F1 if there are more than MOST_CLASSES.
static brim_status class_table(const evaluation *e, brim_str *out) {
  const brim_ui_column columns[] = {
      {brim_tr("class"), NULL, BRIM_UI_LEFT, 0, 8},
      {brim_tr("precision"), NULL, BRIM_UI_RIGHT, 2, 0},
      {brim_tr("recall"), NULL, BRIM_UI_RIGHT, 1, 0},
      {brim_tr("F1"), NULL, BRIM_UI_RIGHT, 0, 0},
      {brim_tr("samples"), NULL, BRIM_UI_RIGHT, 3, 0},
  };
  int64_t n = e->c->trained->outputs, shown = n <= MOST_CLASSES ? n : WORST, known = 0;
  worst_class *order = brim_calloc((size_t)n, sizeof *order);
  if (!order) return brim_fail(BRIM_ENOMEM, "out of memory for the table");
  for (int64_t i = 0; i < n; i++) {
    brim_class_score s;
    brim_scores_class(e->scores, i, &s);
    if (n > MOST_CLASSES && isnan(s.f1)) continue;
    order[known++] = (worst_class){.index = i, .f1 = s.f1};
  }
  if (n > MOST_CLASSES) qsort(order, (size_t)known, sizeof *order, by_f1);
  brim_ui_table table;
  brim_ui_table_init(&table, columns, sizeof columns / sizeof *columns);
  for (int64_t i = 0; i < known && i < shown; i++) {
    brim_class_score s;
    char text[32], a[32], b[32], c[32];
    brim_scores_class(e->scores, order[i].index, &s);
    percent(s.precision, a);
    percent(s.recall, b);
    percent(s.f1, c);
    brim_ui_table_add(&table, BRIM_UI_PLAIN, "%s", class_name(e->c, order[i].index, text));
    brim_ui_table_add(&table, BRIM_UI_PLAIN, "%s", a);
    brim_ui_table_add(&table, BRIM_UI_PLAIN, "%s", b);
    brim_ui_table_add(&table, BRIM_UI_PLAIN, "%s", c);
    brim_ui_table_add(&table, BRIM_UI_PLAIN, "%" PRId64, s.support);
  }
  brim_str_append_char(out, '\n');
  if (n > MOST_CLASSES) {
    brim_str_printf(out, brim_tr("the %lld classes of %lld with the lowest F1\n"),
                    (long long)(known < shown ? known : shown), (long long)n);
  }
  brim_status status = brim_ui_table_render(&table, &e->c->cli->out, out, NULL);
  brim_ui_table_deinit(&table);
  brim_free(order);
  return status;
}

static int digits_of(int64_t value) {
  int digits = 1;
  for (; value >= 10; value /= 10) digits++;
  return digits;
}

// Writes the confusion matrix: rows are true classes, columns are predicted classes, by their numbers.
static void matrix_text(const evaluation *e, brim_str *out) {
  int64_t n = e->c->trained->outputs, most = n - 1;
  int names = 0;
  char text[32];
  for (int64_t i = 0; i < n; i++) {
    int width = e->c->trained->class_names ? brim_utf8_width(e->c->trained->class_names[i]) : 0;
    if (width > names) names = width;
    for (int64_t k = 0; k < n; k++) {
      int64_t count = brim_scores_matrix(e->scores, i, k);
      if (count > most) most = count;
    }
  }
  if (names > 20) names = 20;
  int cell = digits_of(most) + 1;
  brim_str_append_char(out, '\n');
  brim_str_append(out, brim_tr("confusion matrix (rows: true class, columns: predicted class)"));
  brim_str_append_char(out, '\n');
  brim_str_repeat(out, ' ', (size_t)names + 4);
  for (int64_t k = 0; k < n; k++) brim_str_printf(out, "%*" PRId64, cell, k);
  brim_str_append_char(out, '\n');
  for (int64_t i = 0; i < n; i++) {
    const char *name = class_name(e->c, i, text);
    int width = brim_utf8_width(name);
    brim_str_printf(out, "%2" PRId64 "  ", i);
    if (names > 0) brim_ui_clip(out, &e->c->cli->out, name, names);
    if (width < names) brim_str_repeat(out, ' ', (size_t)(names - width));
    for (int64_t k = 0; k < n; k++) {
      brim_str_printf(out, "%*" PRId64, cell, brim_scores_matrix(e->scores, i, k));
    }
    brim_str_append_char(out, '\n');
  }
}

typedef struct mistake {
  int64_t truth, predicted, count;
} mistake;

// Writes the most frequent confusions of two classes, most frequent first.
static void worst_text(const evaluation *e, brim_str *out) {
  int64_t n = e->c->trained->outputs;
  mistake worst[WORST];
  int kept = 0;
  for (int64_t i = 0; i < n; i++) {
    for (int64_t k = 0; k < n; k++) {
      int64_t count = i == k ? 0 : brim_scores_matrix(e->scores, i, k);
      if (count == 0 || (kept == WORST && count <= worst[WORST - 1].count)) continue;
      int at = kept < WORST ? kept++ : WORST - 1;
      for (; at > 0 && worst[at - 1].count < count; at--) worst[at] = worst[at - 1];
      worst[at] = (mistake){.truth = i, .predicted = k, .count = count};
    }
  }
  if (kept > 0) brim_str_append(out, brim_tr("\nmost frequent mistakes\n"));
  for (int i = 0; i < kept; i++) {
    char a[32], b[32];
    brim_str_printf(out, brim_tr("  %lld x  %s predicted as %s\n"), (long long)worst[i].count,
                    class_name(e->c, worst[i].truth, a), class_name(e->c, worst[i].predicted, b));
  }
}

static brim_status classes_text(const evaluation *e, brim_str *out) {
  const brim_scores_summary *s = &e->summary;
  char a[32], b[32], text[96];
  percent(s->macro_f1, a);
  percent(s->weighted_f1, b);
  snprintf(text, sizeof text, brim_tr("%s macro, %s weighted"), a, b);
  brim_cli_row(&e->c->cli->out, brim_tr("F1"), text, out);
  BRIM_TRY(class_table(e, out));
  if (!brim_scores_has_matrix(e->scores)) return BRIM_OK;
  if (e->c->trained->outputs <= MOST_CLASSES) {
    matrix_text(e, out);
  } else {
    worst_text(e, out);
  }
  return BRIM_OK;
}

static brim_status values_text(const evaluation *e, brim_str *out) {
  const brim_ui_column columns[] = {
      {brim_tr("target"), NULL, BRIM_UI_LEFT, 0, 0},
      {"MSE", NULL, BRIM_UI_RIGHT, 1, 0},
      {"MAE", NULL, BRIM_UI_RIGHT, 1, 0},
      {"R2", NULL, BRIM_UI_RIGHT, 0, 0},
  };
  char a[32], b[32], c[32];
  int64_t n = e->c->trained->outputs;
  if (n == 1) return BRIM_OK;
  brim_ui_table table;
  brim_ui_table_init(&table, columns, sizeof columns / sizeof *columns);
  for (int64_t i = 0; i < n && i < MOST_CLASSES; i++) {
    brim_value_score v;
    brim_scores_value(e->scores, i, &v);
    number(v.mse, a);
    number(v.mae, b);
    number(v.r2, c);
    brim_ui_table_add(&table, BRIM_UI_PLAIN, "%" PRId64, i);
    brim_ui_table_add(&table, BRIM_UI_PLAIN, "%s", a);
    brim_ui_table_add(&table, BRIM_UI_PLAIN, "%s", b);
    brim_ui_table_add(&table, BRIM_UI_PLAIN, "%s", c);
  }
  brim_str_append_char(out, '\n');
  brim_status status = brim_ui_table_render(&table, &e->c->cli->out, out, NULL);
  brim_ui_table_deinit(&table);
  return status;
}

static void cell_text(const brim_metric *row, double value, char out[32]) {
  if (row->format == BRIM_METRIC_PERCENT) {
    percent(value, out);
  } else if (row->format == BRIM_METRIC_WHOLE && !isnan(value)) {
    brim_metric_format_value(row, value, out);
  } else {
    number(value, out);
  }
}

// Makes the columns of the table. A narrow terminal drops columns from the right, spreads only with the second column,
// and never a metric that ranks runs. A metric without a value in both lines has no column, unless it ranks runs.
static size_t table_columns(const brim_work_metrics *m, brim_ui_column columns[BRIM_METRIC_MAX + 1],
                            size_t rows[BRIM_METRIC_MAX]) {
  const brim_metric_set *set = m->set;
  size_t n = 0;
  columns[0] = (brim_ui_column){"", NULL, BRIM_UI_LEFT, 0, 8};
  for (size_t i = 0; i < set->count; i++) {
    const brim_metric *row = &set->rows[i];
    if (!(row->lines & BRIM_METRIC_AT(BRIM_METRIC_LINE_TABLE))) continue;
    if (row->rank == 0 && isnan(m->values[i]) && isnan(m->baseline[i])) continue;
    rows[n++] = i;
    int drop = row->rank > 0 ? 0 : row->join == BRIM_METRIC_SPREAD ? 2 : (int)n;
    columns[n] = (brim_ui_column){brim_metric_label(row, BRIM_METRIC_LINE_TABLE), NULL,
                                  BRIM_UI_RIGHT, drop, 0};
  }
  return n;
}

// Writes a table of the figures; its second line has the baseline's figures from the same evaluation.
static brim_status baseline_table(const evaluation *e, brim_str *out) {
  const brim_metric_set *set = e->metrics.set;
  brim_ui_column columns[BRIM_METRIC_MAX + 1];
  size_t rows[BRIM_METRIC_MAX], n = table_columns(&e->metrics, columns, rows);
  for (size_t i = 0; i < set->count; i++) {  // rows for counts, such as the number of episodes
    const brim_metric *row = &set->rows[i];
    char text[32], name[BRIM_METRIC_NAME];
    bool shown = row->lines == 0 && row->label[0] && row->format == BRIM_METRIC_WHOLE &&
                 brim_metric_name(row, BRIM_METRIC_EVAL, BRIM_METRIC_FIGURE, name);
    if (!shown) continue;
    cell_text(row, e->metrics.values[i], text);
    brim_cli_row(&e->c->cli->out, brim_tr(row->label), text, out);
  }
  brim_ui_table table;
  brim_ui_table_init(&table, columns, n + 1);
  for (size_t line = 0; line < 2; line++) {
    const double *values = line == 0 ? e->metrics.values : e->metrics.baseline;
    const char *label = line == 0 ? set->subject : set->baseline_label;
    brim_ui_table_add(&table, BRIM_UI_PLAIN, "%s", label ? brim_tr(label) : "");
    for (size_t k = 0; k < n; k++) {
      char text[32];
      cell_text(&set->rows[rows[k]], values[rows[k]], text);
      brim_ui_table_add(&table, BRIM_UI_PLAIN, "%s", text);
    }
  }
  brim_str_append_char(out, '\n');
  brim_status status = brim_ui_table_render(&table, &e->c->cli->out, out, NULL);
  brim_ui_table_deinit(&table);
  return status;
}

// Writes rows for words and counts that are no metrics, such as batch size and samples. Leaves out the precision, which
// brim_cli_trained_device_rows prints.
static void other_figures(const evaluation *e, brim_str *out) {
  const char *key;
  json_t *value;
  const brim_work *work = e->c->job.work;
  int knob = brim_work_knob_as(work, BRIM_ROLE_PRECISION);
  json_object_foreach(e->figures, key, value) {
    char text[32], name[BRIM_METRIC_NAME];
    const brim_metric_set *set = e->metrics.set;
    bool is_metric = false;
    for (size_t i = 0; i < set->count; i++) {
      for (int stage = 0; stage < BRIM_METRIC_STAGES; stage++) {
        is_metric = is_metric || (brim_metric_name(&set->rows[i], (brim_metric_stage)stage,
                                                   BRIM_METRIC_FIGURE, name) &&
                                  strcmp(name, key) == 0);
      }
    }
    if (is_metric) continue;
    const char *word = json_string_value(value);
    if (knob >= 0 && strcmp(key, work->knobs[knob].name) == 0) continue;
    if (word) {
      brim_cli_row(&e->c->cli->out, brim_tr(key), word, out);
    } else if (json_is_integer(value)) {
      brim_format_count(json_number_value(value), text);
      brim_cli_row(&e->c->cli->out, brim_tr(key), text, out);
    }
  }
}

// Writes a line per metric.
static void figures_text(const evaluation *e, brim_str *out) {
  const brim_metric_set *set = e->metrics.set;
  other_figures(e, out);
  for (size_t i = 0; i < set->count; i++) {
    const brim_metric *row = &set->rows[i];
    char text[32], name[BRIM_METRIC_NAME];
    bool probe = row->stages & BRIM_METRIC_AT(BRIM_METRIC_PROBE);
    double value = probe ? e->probe[i] : e->metrics.values[i];
    brim_metric_stage stage = probe ? BRIM_METRIC_PROBE : BRIM_METRIC_EVAL;
    if (!row->label[0] || isnan(value)) continue;
    if (!brim_metric_name(row, stage, BRIM_METRIC_FIGURE, name)) continue;
    cell_text(row, value, text);
    brim_cli_row(&e->c->cli->out, brim_metric_label(row, BRIM_METRIC_LINE_TABLE), text, out);
  }
}

// Writes the figures of a workload that evaluates itself.
static brim_status own_text(const evaluation *e, brim_str *out) {
  if (e->metrics.set->baseline_label) {
    BRIM_TRY(baseline_table(e, out));
  } else {
    figures_text(e, out);
  }
  if (e->table->text) e->table->text->eval_notes(&e->metrics, out);
  return BRIM_OK;
}

// Names the first sample with outputs that are not numbers.
static void bad_text(const evaluation *e, brim_str *out) {
  const char *path = brim_config_string(e->c->job.config, "data.path");
  char first[256];
  brim_source_describe(e->c->data.source, e->summary.first_bad, first, sizeof first);
  brim_str_printf(out,
                  e->summary.bad == 1
                      ? brim_tr("\n%lld sample gave outputs that are not numbers: %s; `brim data "
                                "verify %s` finds NaN in the data\n")
                      : brim_tr("\n%lld samples gave outputs that are not numbers, the first: %s; "
                                "`brim data verify %s` finds NaN in the data\n"),
                  (long long)e->summary.bad, first, path && *path ? path : "PATH");
}

// Writes a row per figure.
static void put_figures(const evaluation *e, brim_str *out) {
  brim_score_figure figures[BRIM_SCORE_FIGURES];
  size_t n = figures_of(e, figures);
  for (size_t i = 0; i < n; i++) {
    const brim_score_figure *f = &figures[i];
    char text[32];
    if (!f->label || (f->optional && isnan(f->value))) continue;
    if (f->percent) {
      percent(f->value, text);
    } else {
      number(f->value, text);
    }
    brim_cli_row(&e->c->cli->out, f->label, text, out);
  }
}

static brim_status all_text(const evaluation *e, brim_str *out) {
  brim_str text;
  brim_str_init(&text);
  brim_ui_styled(out, &e->c->cli->out, BRIM_UI_BOLD, e->c->trained->path);
  brim_str_append_char(out, '\n');
  brim_status status = brim_cli_trained_model_text(e->c, &text);
  brim_cli_row(&e->c->cli->out, brim_tr("model"), text.data, out);
  brim_str_clear(&text);
  brim_cli_trained_device_rows(e->c, out);
  if (e->scores) {
    brim_cli_trained_data_text(e->c, &text);
    brim_cli_row(&e->c->cli->out, brim_tr("data"), text.data, out);
    put_figures(e, out);
  }
  brim_str_deinit(&text);
  if (status) return status;
  if (!e->scores) {
    BRIM_TRY(own_text(e, out));
  } else {
    BRIM_TRY(has_classes(e) ? classes_text(e, out) : values_text(e, out));
  }
  if (e->summary.bad > 0) bad_text(e, out);
  if (e->c->output) brim_str_printf(out, brim_tr("\nwritten to %s\n"), e->c->output);
  return brim_str_status(out);
}

static brim_status eval_show(evaluation *e) {
  if (e->c->cli->json) {
    json_t *fields = json_object();
    return brim_cli_finish_event(e->c->cli, "eval", fields, all_json(e, false, fields));
  }
  brim_str out;
  brim_str_init(&out);
  return brim_cli_finish_text(e->c->cli, &out, all_text(e, &out));
}

//------------------------------------------- command -------------------------------------------

static const brim_option options[] = {
    {.name = "output",
     .short_name = 'o',
     .kind = BRIM_OPTION_STRING,
     .metavar = "FILE",
     .help = BRIM_N_("write all results and the confusion matrix: FILE.json or FILE.csv")},
    {.name = "force", .help = BRIM_N_("replace the file if it exists")},
    BRIM_CLI_TRAINED_OPTIONS,
    BRIM_CLI_TRAINED_RUN_OPTIONS,
    {0},
};

static brim_status on_rows(void *ctx, const brim_trained_rows *rows) {
  evaluation *e = ctx;
  brim_scores_add(e->scores, rows);
  brim_cli_trained_tick(e->c, rows->rows);
  return BRIM_OK;
}

static brim_status evaluate_outputs(evaluation *e) {
  brim_cli_trained *c = e->c;
  const brim_trained_want want = {.split = brim_option_string(&c->cli->parse, "split", NULL),
                                  .targets = true};
  BRIM_TRY(brim_cli_trained_data(c, &want));
  BRIM_TRY(brim_cli_trained_device(c));
  brim_cli_trained_notes(c);
  BRIM_TRY(brim_scores_create(c->trained->task, c->trained->outputs, &e->scores));
  BRIM_TRY(brim_cli_trained_run(c, "eval", on_rows, e, &e->result));
  brim_scores_get(e->scores, &e->summary);
  if (e->summary.rows > 0) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "no sample has a target for evaluation");
}

//---------------------------------- other workloads ----------------------------------

static json_t *figure_json(const brim_metric *row, double value) {
  bool whole = row->format == BRIM_METRIC_WHOLE && !isnan(value);
  return whole ? json_integer((json_int_t)value) : brim_json_number(value);
}

// Puts the metrics of a stage into `figures` under their names.
static brim_status eval_put_figures(json_t *figures, const brim_metric_set *set,
                                    brim_metric_stage stage, const double *values) {
  for (size_t i = 0; i < set->count; i++) {
    char name[BRIM_METRIC_NAME];
    const brim_metric *row = &set->rows[i];
    if (!brim_metric_name(row, stage, BRIM_METRIC_FIGURE, name)) continue;
    if ((row->flags & BRIM_METRIC_OPTIONAL) && isnan(values[i])) continue;
    BRIM_TRY(brim_json_put(figures, name, figure_json(row, values[i])));
  }
  return BRIM_OK;
}

static brim_status evaluate_work(evaluation *e, const brim_work *work) {
  const brim_workload_table *table = work->table;
  const brim_metric_set *set = work->metrics;
  brim_status status = brim_work_evaluate(work, &e->metrics);
  if (status == BRIM_ESTATE) {  // there is nothing to evaluate on, so the run has not begun
    e->c->cli->running = false;
    return BRIM_EINVAL;
  }
  BRIM_TRY(status);
  e->table = table;
  // With a baseline, one of the metrics is the number of samples.
  if (!set->baseline_label) {
    BRIM_TRY(brim_json_put(e->figures, "samples", json_integer(e->metrics.samples)));
  }
  BRIM_TRY(eval_put_figures(e->figures, set, BRIM_METRIC_EVAL, e->metrics.values));
  BRIM_TRY(eval_put_figures(e->figures, set, BRIM_METRIC_BASELINE, e->metrics.baseline));
  if (!table->features) return BRIM_OK;
  brim_work_metrics probe;
  status = table->features->probe(work->state, &probe);
  if (status == BRIM_EUNSUPPORTED) {
    brim_status_clear();  // the config asks for no probe
    return BRIM_OK;
  }
  BRIM_TRY(status);
  memcpy(e->probe, probe.values, sizeof e->probe);
  return eval_put_figures(e->figures, set, BRIM_METRIC_PROBE, probe.values);
}

// Turns --precision and --batch-size into overrides; refuses both for workloads without data. Always refuses --split.
static brim_status take_options(evaluation *e) {
  brim_cli_trained *c = e->c;
  const brim_option_parse *p = &c->cli->parse;
  const char *training = c->trained->workload;
  const brim_workload_table *table = brim_workload_find(training);
  bool loads = !table || table->loading;
  if (!table) brim_status_clear();
  if (brim_option_find(p, "split")) {
    return brim_cli_usage(
        c->cli,
        BRIM_N_(
            "--split does not apply to a checkpoint of %s training, which uses its evaluation set"),
        training);
  }
  static const char *const names[] = {"precision", "batch-size"};
  for (size_t i = 0; !loads && i < sizeof names / sizeof *names; i++) {
    if (!brim_option_find(p, names[i])) continue;
    return brim_cli_usage(c->cli, BRIM_N_("--%s does not apply to a checkpoint of %s training"),
                          names[i], training);
  }
  const char *precision = brim_option_string(p, "precision", NULL);
  if (precision) BRIM_TRY(brim_cli_trained_set(c, "training.precision", precision));
  int64_t batch = 0;
  BRIM_TRY(brim_cli_trained_batch(c, &batch));
  return batch > 0 ? brim_cli_trained_set_int(c, "data.eval_batch_size", batch) : BRIM_OK;
}

// Puts the compute precision and the batch size into the figures, if the workload has a choice of precision.
static brim_status put_compute(evaluation *e, const brim_work *work, const brim_setting *setting) {
  brim_work_info info;
  int knob = brim_work_knob_as(work, BRIM_ROLE_PRECISION);
  if (knob < 0) return BRIM_OK;
  work->table->info(work->state, &info);
  const char *word = work->knobs[knob].choices[setting->value[knob]];
  e->c->precision = word;
  BRIM_TRY(brim_json_put(e->figures, work->knobs[knob].name, json_string(word)));
  return brim_json_put(e->figures, "batch_size", json_integer(info.eval_batch));
}

// Lets a workload without targets evaluate itself on its own evaluation set, by `evaluate` and `probe` of its table.
static brim_status evaluate_itself(evaluation *e) {
  brim_cli_trained *c = e->c;
  brim_cli_job *job = &c->job;
  BRIM_TRY(take_options(e));
  job->evaluates = true;
  BRIM_TRY(brim_cli_trained_explain_no_data(c, brim_cli_job_open(c->cli, job)));
  const brim_workload_table *table = job->work->table;
  brim_setting setting = brim_work_setting(job->work);
  // Do not read the weights that the run started from: the file may be gone.
  table->resuming(job->work->state, NULL);
  BRIM_TRY(table->configure(job->work->state, &setting));
  BRIM_TRY(brim_work_use(job->work, c->trained->path, c->ema));
  c->cli->running = true;
  brim_json_setup();
  e->figures = json_object();
  BRIM_TRY(put_compute(e, job->work, &setting));
  table->stops(job->work->state, c->cli->stop);
  brim_status status = evaluate_work(e, job->work);
  table->stops(job->work->state, NULL);
  return status;
}

//---------------------------------- the command ----------------------------------

// Does the workload add an option of this name to the command?
static bool has_option(const brim_workload_table *table, const char *command, const char *name) {
  for (size_t k = 0; k < table->option_count; k++) {
    const brim_work_options *o = &table->options[k];
    if (!o->rows || strcmp(o->command, command) != 0) continue;
    for (const brim_option *row = o->rows; row->name; row++) {
      if (strcmp(row->name, name) == 0) return true;
    }
  }
  return false;
}

// Refuses options of other workloads: the parser accepts the options of all workloads.
static brim_status refuse_foreign_options(const evaluation *e, const brim_workload_table *own) {
  brim_cli *cli = e->c->cli;
  const char *command = cli->command->name;
  const brim_workload_table *table;
  for (size_t i = 0; i < cli->parse.count; i++) {
    const char *name = cli->parse.items[i].option->name;
    bool of_workload = false;
    for (size_t k = 0; (table = brim_workload_at(k)); k++) {
      of_workload = of_workload || has_option(table, command, name);
    }
    char key[64];
    const char *sets = cli->parse.items[i].option->key;
    if (!of_workload || has_option(own, command, name)) continue;
    if (sets && brim_cli_workload_key(sets, own->name, key)) continue;
    return brim_cli_usage(cli, BRIM_N_("--%s does not apply to a checkpoint of %s training"), name,
                          own->name);
  }
  return BRIM_OK;
}

static brim_status evaluate(evaluation *e) {
  const brim_trained *t = e->c->trained;
  const brim_workload_table *table = brim_workload_find(t->workload);
  if (!table) return BRIM_EUNSUPPORTED;
  BRIM_TRY(refuse_foreign_options(e, table));
  if (e->c->output) BRIM_TRY(brim_cli_check_replace(e->c->cli, e->c->output, NULL));
  bool evaluates_itself = !table->has_targets || (t->has_network && t->task == BRIM_TASK_EMBEDDING);
  brim_status status = evaluates_itself ? evaluate_itself(e) : evaluate_outputs(e);
  if (!status && e->c->output) status = eval_write(e);
  return status ? status : eval_show(e);
}

static brim_status run(brim_cli *cli) {
  const char *output = brim_option_string(&cli->parse, "output", NULL);
  if (output && !brim_str_ends(output, ".json") && !brim_str_ends(output, ".csv")) {
    return brim_cli_usage(cli, BRIM_N_("--output must end in .json or .csv, not '%.200s'"), output);
  }
  brim_cli_trained c;
  BRIM_TRY(brim_cli_trained_init(cli, &c));
  evaluation e = {.c = &c};
  e.result.loss = (double)NAN;
  brim_metric_unknown(e.probe);
  brim_status status = evaluate(&e);
  brim_scores_destroy(e.scores);
  json_decref(e.figures);
  brim_cli_trained_deinit(&c);
  return status;
}

const brim_cli_command brim_cli_eval_command = {
    .name = "eval",
    .summary = BRIM_N_("evaluate a checkpoint: accuracy, F1, confusion; MSE, MAE, R2"),
    .usage = "CHECKPOINT [--data-path PATH] [OPTIONS] [key.path=value ...]",
    .about = BRIM_N_(
        "Evaluates a trained network on the set that training evaluated, or on --split. The "
        "checkpoint contains the config; key=value overrides it. Without --data-path brim uses the "
        "data of the run.\nClassification reports accuracy, top-5, the confusion matrix, and "
        "precision, recall and F1 of each class. Regression reports MSE, MAE and R2 of each "
        "target. brim matches labels by class name if both sides have names."),
    .examples = BRIM_N_("on the set that training evaluated\n"
                        "brim eval runs/cifar/best.safetensors\n"
                        "on other data, with the whole confusion matrix\n"
                        "brim eval best.safetensors --data-path test --output confusion.csv\n"
                        "for a script\n"
                        "brim eval best.safetensors --data-path data.h5 --split test --json\n"),
    .options = options,
    .run = run,
    .interrupt = BRIM_CLI_STOPS,
};
