// Scores the outputs of a network. Classes: accuracy, top-5, precision, recall, F1, confusion matrix.
// Binary labels: the same without top-5 and matrix. Numbers: MSE, MAE, R2. All come from sums over rows,
// in double. Callers: eval.
#ifndef BRIM_LEARN_SCORES_H_
#define BRIM_LEARN_SCORES_H_

#include "workload/learn/learn_trained.h"

// Up to this many classes the whole matrix is kept; beyond, only the sums of its rows and columns.
enum { BRIM_SCORES_MAX_MATRIX = 4096 };

typedef struct brim_scores brim_scores;

// width: classes, or targets a row.
brim_status brim_scores_create(brim_task task, int64_t width, brim_scores **out);
void brim_scores_destroy(brim_scores *scores);  // NULL is fine
// Rows without a known label or target are skipped.
void brim_scores_add(brim_scores *scores, const brim_trained_rows *rows);

// The predicted class of a row: the largest output, the first of equals; -1 if one is NaN. *probability (may
// be NULL) is its softmax.
int32_t brim_scores_argmax(const float *outputs, int64_t width, float *probability);
void brim_scores_softmax(const float *outputs, int64_t width, float *out);

// NaN if undefined: no rows, no prediction of the class, targets that do not vary.
typedef struct brim_scores_summary {
  int64_t rows;        // evaluated
  int64_t bad;         // rows with a NaN output; they count as wrong
  uint64_t first_bad;  // the sample number of the first, if bad > 0 and rows have numbers
  double accuracy;
  double top5;          // NaN with 5 classes or fewer
  double macro_f1;      // mean over the classes that occur or were predicted
  double weighted_f1;   // mean by how often a class occurs
  double mse, mae, r2;  // means over the targets
} brim_scores_summary;
void brim_scores_get(const brim_scores *scores, brim_scores_summary *out);

// The scores of a task as rows, for `brim eval`; the loss comes before them.
enum { BRIM_SCORE_FIGURES = 5 };
typedef struct brim_score_figure {
  const char *key;    // of JSON
  const char *label;  // translated, for a line; NULL = no line of its own
  double value;
  bool percent;   // 0..1
  bool optional;  // no line if unknown
} brim_score_figure;
size_t brim_scores_figures(const brim_scores_summary *s, brim_task task, double loss,
                           brim_score_figure out[BRIM_SCORE_FIGURES]);

typedef struct brim_class_score {
  int64_t support, predicted, hits;
  double precision, recall, f1;
} brim_class_score;
void brim_scores_class(const brim_scores *scores, int64_t index, brim_class_score *out);
bool brim_scores_has_matrix(const brim_scores *scores);
int64_t brim_scores_matrix(const brim_scores *scores, int64_t truth, int64_t predicted);

typedef struct brim_value_score {
  double mse, mae, r2;
} brim_value_score;
void brim_scores_value(const brim_scores *scores, int64_t index, brim_value_score *out);

#endif  // BRIM_LEARN_SCORES_H_
