// Computes scores of a network's outputs from sums over rows.
#include "workload/learn/learn_scores.h"

#include <math.h>
#include <string.h>

typedef struct value_sums {
  double mean, spread;  // mean and sum of squared deviations of the targets so far (Welford)
  double squares, distances;
} value_sums;

struct brim_scores {
  brim_task task;
  int64_t width;
  int64_t rows, bad, correct, among5;
  uint64_t first_bad;
  int64_t *support, *predicted, *hits;  // (width)
  int64_t *matrix;     // (width, width), true class by predicted class; NULL = too many classes
  value_sums *values;  // (width)
};

brim_status brim_scores_create(brim_task task, int64_t width, brim_scores **out) {
  brim_scores *s = brim_calloc(1, sizeof *s);
  *out = NULL;
  if (!s) return brim_fail(BRIM_ENOMEM, "out of memory for the scores");
  s->task = task;
  s->width = width;
  size_t n = (size_t)width;
  bool good = true;
  if (task == BRIM_TASK_CLASSES || task == BRIM_TASK_LABELS) {
    s->support = brim_calloc(n, sizeof *s->support);
    s->predicted = brim_calloc(n, sizeof *s->predicted);
    s->hits = brim_calloc(n, sizeof *s->hits);
    good = s->support && s->predicted && s->hits;
    if (task == BRIM_TASK_CLASSES && width <= BRIM_SCORES_MAX_MATRIX) {
      s->matrix = brim_calloc(n * n, sizeof *s->matrix);
      good = good && s->matrix;
    }
  } else {
    s->values = brim_calloc(n, sizeof *s->values);
    good = s->values;
  }
  if (!good) {
    brim_scores_destroy(s);
    return brim_fail(BRIM_ENOMEM, "out of memory for the scores");
  }
  *out = s;
  return BRIM_OK;
}

void brim_scores_destroy(brim_scores *s) {
  if (!s) return;
  brim_free(s->support);
  brim_free(s->predicted);
  brim_free(s->hits);
  brim_free(s->matrix);
  brim_free(s->values);
  brim_free(s);
}

//---------------------------------- one row ----------------------------------

int32_t brim_scores_argmax(const float *outputs, int64_t width, float *probability) {
  int64_t best = 0;
  bool bad = false;
  if (probability) *probability = NAN;
  for (int64_t i = 0; i < width; i++) {
    bad = bad || isnan(outputs[i]);
    if (outputs[i] > outputs[best]) best = i;
  }
  if (bad) return -1;
  if (!probability) return (int32_t)best;
  double sum = 0;
  for (int64_t i = 0; i < width; i++) sum += exp((double)outputs[i] - (double)outputs[best]);
  *probability = (float)(1 / sum);
  return (int32_t)best;
}

void brim_scores_softmax(const float *outputs, int64_t width, float *out) {
  double most = -INFINITY, sum = 0;
  for (int64_t i = 0; i < width; i++) {
    if ((double)outputs[i] > most) most = (double)outputs[i];
  }
  for (int64_t i = 0; i < width; i++) sum += exp((double)outputs[i] - most);
  for (int64_t i = 0; i < width; i++) out[i] = (float)(exp((double)outputs[i] - most) / sum);
}

// True if fewer than five outputs are larger, or equal with a lower number.
static bool is_among5(const float *outputs, int64_t width, int64_t label) {
  int before = 0;
  for (int64_t i = 0; i < width && before < 5; i++) {
    before += outputs[i] > outputs[label] || (outputs[i] == outputs[label] && i < label);
  }
  return before < 5;
}

static void add_class(brim_scores *s, const float *outputs, int32_t label) {
  if (label < 0 || label >= s->width) return;
  int32_t predicted = brim_scores_argmax(outputs, s->width, NULL);
  s->rows++;
  s->support[label]++;
  if (predicted < 0) {
    s->bad++;
    return;
  }
  s->predicted[predicted]++;
  if (predicted == label) {
    s->hits[label]++;
    s->correct++;
  }
  s->among5 += is_among5(outputs, s->width, label);
  if (s->matrix) s->matrix[(int64_t)label * s->width + predicted]++;
}

// Adds a row of labels. A label is predicted if its probability is above one half.
static void add_labels(brim_scores *s, const float *outputs, const float *target) {
  bool bad = false;
  for (int64_t i = 0; i < s->width; i++) {
    if (isnan(target[i])) return;
    bad = bad || isnan(outputs[i]);
  }
  s->rows++;
  s->bad += bad;
  for (int64_t i = 0; i < s->width; i++) {
    bool there = target[i] > 0.5f, predicted = outputs[i] > 0;
    s->support[i] += there;
    s->predicted[i] += !bad && predicted;
    s->hits[i] += !bad && there && predicted;
    s->correct += !bad && there == predicted;
  }
}

static void add_values(brim_scores *s, const float *outputs, const float *target) {
  bool bad = false;
  for (int64_t i = 0; i < s->width; i++) {
    if (isnan(target[i])) return;
    bad = bad || !isfinite(outputs[i]);
  }
  s->rows++;
  s->bad += bad;
  for (int64_t i = 0; i < s->width; i++) {
    value_sums *v = &s->values[i];
    double y = (double)target[i], gap = (double)outputs[i] - y, from = y - v->mean;
    v->mean += from / (double)s->rows;
    v->spread += from * (y - v->mean);
    v->squares += gap * gap;
    v->distances += fabs(gap);
  }
}

void brim_scores_add(brim_scores *s, const brim_trained_rows *rows) {
  for (int64_t i = 0; i < rows->rows; i++) {
    const float *outputs = rows->outputs + i * s->width;
    const int64_t bad = s->bad;
    if (s->task == BRIM_TASK_CLASSES && rows->label) add_class(s, outputs, rows->label[i]);
    if (s->task == BRIM_TASK_LABELS && rows->target) {
      add_labels(s, outputs, rows->target + i * s->width);
    }
    if (s->task == BRIM_TASK_VALUES && rows->target) {
      add_values(s, outputs, rows->target + i * s->width);
    }
    if (bad == 0 && s->bad > 0 && rows->index) s->first_bad = rows->index[i];
  }
}

//---------------------------------- results ----------------------------------

static double ratio(double a, double b) { return b > 0 ? a / b : (double)NAN; }

void brim_scores_class(const brim_scores *s, int64_t index, brim_class_score *out) {
  out->support = s->support[index];
  out->predicted = s->predicted[index];
  out->hits = s->hits[index];
  out->precision = ratio((double)out->hits, (double)out->predicted);
  out->recall = ratio((double)out->hits, (double)out->support);
  out->f1 = ratio(2 * (double)out->hits, (double)(out->predicted + out->support));
}

void brim_scores_value(const brim_scores *s, int64_t index, brim_value_score *out) {
  const value_sums *v = &s->values[index];
  double rows = (double)s->rows;
  out->mse = ratio(v->squares, rows);
  out->mae = ratio(v->distances, rows);
  out->r2 = v->spread > 0 ? 1 - v->squares / v->spread : (double)NAN;
}

static void get_classes(const brim_scores *s, brim_scores_summary *out) {
  double macro = 0, weighted = 0, known = 0, support = 0;
  for (int64_t i = 0; i < s->width; i++) {
    brim_class_score c;
    brim_scores_class(s, i, &c);
    support += (double)c.support;
    if (isnan(c.f1)) continue;
    macro += c.f1;
    weighted += c.f1 * (double)c.support;
    known++;
  }
  double rows = (double)s->rows;
  bool labels = s->task == BRIM_TASK_LABELS;
  out->accuracy = ratio((double)s->correct, labels ? rows * (double)s->width : rows);
  out->top5 = s->width > 5 && !labels ? ratio((double)s->among5, rows) : (double)NAN;
  out->macro_f1 = ratio(macro, known);
  out->weighted_f1 = ratio(weighted, support);
}

static void get_values(const brim_scores *s, brim_scores_summary *out) {
  double mse = 0, mae = 0, r2 = 0;
  for (int64_t i = 0; i < s->width; i++) {
    brim_value_score v;
    brim_scores_value(s, i, &v);
    mse += v.mse;
    mae += v.mae;
    r2 += v.r2;  // unknown if one target does not vary
  }
  out->mse = mse / (double)s->width;
  out->mae = mae / (double)s->width;
  out->r2 = r2 / (double)s->width;
}

void brim_scores_get(const brim_scores *s, brim_scores_summary *out) {
  out->rows = s->rows;
  out->bad = s->bad;
  out->first_bad = s->first_bad;
  out->accuracy = out->top5 = out->macro_f1 = out->weighted_f1 = (double)NAN;
  out->mse = out->mae = out->r2 = (double)NAN;
  if (s->task == BRIM_TASK_CLASSES || s->task == BRIM_TASK_LABELS) get_classes(s, out);
  if (s->task == BRIM_TASK_VALUES) get_values(s, out);
}

bool brim_scores_has_matrix(const brim_scores *s) { return s->matrix != NULL; }

int64_t brim_scores_matrix(const brim_scores *s, int64_t truth, int64_t predicted) {
  return s->matrix[truth * s->width + predicted];
}

size_t brim_scores_figures(const brim_scores_summary *s, brim_task task, double loss,
                           brim_score_figure out[BRIM_SCORE_FIGURES]) {
  out[0] = (brim_score_figure){"loss", brim_tr("loss"), loss, false, true};
  if (task == BRIM_TASK_CLASSES) {
    out[1] = (brim_score_figure){"accuracy", brim_tr("accuracy"), s->accuracy, true, false};
    out[2] = (brim_score_figure){"top5", brim_tr("top-5"), s->top5, true, true};
    out[3] = (brim_score_figure){"macro_f1", NULL, s->macro_f1, true, false};
    out[4] = (brim_score_figure){"weighted_f1", NULL, s->weighted_f1, true, false};
    return 5;
  }
  if (task == BRIM_TASK_LABELS) {
    out[1] = (brim_score_figure){"accuracy", brim_tr("accuracy"), s->accuracy, true, false};
    out[2] = (brim_score_figure){"macro_f1", NULL, s->macro_f1, true, false};
    out[3] = (brim_score_figure){"weighted_f1", NULL, s->weighted_f1, true, false};
    return 4;
  }
  out[1] = (brim_score_figure){"mse", "MSE", s->mse, false, false};
  out[2] = (brim_score_figure){"mae", "MAE", s->mae, false, false};
  out[3] = (brim_score_figure){"r2", "R2", s->r2, false, false};
  return 4;
}
