// Metrics as rows: a workload declares what it measures. Log columns, TensorBoard tags, terminal lines, JSON
// events, checkpoint.best and reports come from the rows. Arrays of values have the order of the rows; NaN =
// unknown.
#ifndef BRIM_RECORD_METRIC_H_
#define BRIM_RECORD_METRIC_H_

#include <stdbool.h>
#include <stddef.h>

#include "base/base_str.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BRIM_METRIC_MAX = 40, BRIM_METRIC_TEXT = 128, BRIM_METRIC_NAME = 64 };

// The origin of a value.
typedef enum brim_metric_stage {
  BRIM_METRIC_STEPS,     // training, in a log interval
  BRIM_METRIC_TRAIN,     // training, in an epoch
  BRIM_METRIC_EVAL,      // an evaluation
  BRIM_METRIC_BASELINE,  // the baseline in the same evaluation
  BRIM_METRIC_PROBE,     // the evaluation of features at the end of a run
  BRIM_METRIC_STAGES
} brim_metric_stage;

// Terminal lines that show values.
typedef enum brim_metric_place {
  BRIM_METRIC_LINE_STEPS,
  BRIM_METRIC_LINE_TRAIN,     // the training part of an epoch's line
  BRIM_METRIC_LINE_EVAL,      // its evaluation part
  BRIM_METRIC_LINE_PROGRESS,  // the line that is redrawn while training
  BRIM_METRIC_LINE_SUMMARY,   // the summary of a run, beside the metric that decides
  BRIM_METRIC_LINE_TABLE,     // columns of `brim eval`, if there is a baseline
  BRIM_METRIC_LINES
} brim_metric_place;

#define BRIM_METRIC_AT(stage_or_place) (1u << (stage_or_place))

typedef enum brim_metric_better {
  BRIM_BETTER_NEITHER,
  BRIM_BETTER_HIGHER,
  BRIM_BETTER_LOWER
} brim_metric_better;

typedef enum brim_metric_format {
  BRIM_METRIC_NUMBER,   // `digits` significant digits (0 = 4)
  BRIM_METRIC_STEADY,   // like NUMBER, with a steady width in the progress line
  BRIM_METRIC_PERCENT,  // 0..1 as a percentage with `digits` decimals (0 = 2)
  BRIM_METRIC_WHOLE,
  BRIM_METRIC_LARGE  // "12,345" / "1.23 M"
} brim_metric_format;

// The way in which a value follows the value before it in a line.
typedef enum brim_metric_join {
  BRIM_METRIC_APART,   // "  acc 91.20 %"
  BRIM_METRIC_COMMA,   // ", falls 12.0 %"
  BRIM_METRIC_SPREAD,  // " +- 40": standard deviation of the row before, without a label
} brim_metric_join;

enum {
  BRIM_METRIC_FINITE =
      1,  // a value that is not finite means divergence: it is logged, and never best
  BRIM_METRIC_OPTIONAL = 2,  // left out of JSON if unknown (others are null)
  BRIM_METRIC_POSITIVE = 4,  // lines show it only above 0
  BRIM_METRIC_NO_CSV = 8,    // only in log.jsonl and TensorBoard
};

// Names in files. NULL = made from the key, by stage. Columns, tags: KEY, train_KEY, eval_KEY, baseline_KEY,
// probe_KEY; events: KEY, KEY, eval_KEY, baseline_KEY, probe_KEY; figures of `brim eval`: KEY, baseline_KEY,
// probe_KEY. "" = left out. A point in the name of an event nests: "return.mean" is {"return": {"mean"}}.
typedef struct brim_metric_names {
  const char *column;  // log.csv and log.jsonl
  const char *tag;     // TensorBoard
  const char *event;   // --json while training
  const char *figure;  // `brim eval`
} brim_metric_names;

typedef struct brim_metric {
  const char *key;
  const char *label;                     // a message: "acc"
  const char *train_label, *eval_label;  // labels in training and evaluation; NULL = label
  const char *table_label;               // label in the table of `brim eval`; NULL = label
  const char *unit;                      // a message after the value; NULL = none
  const char *about;                     // a message that explains it in the summary; NULL = none
  brim_metric_better better;
  brim_metric_format format;
  int digits;
  brim_metric_join join;
  unsigned flags;
  unsigned stages;  // BRIM_METRIC_AT(stage): stages that have a value
  unsigned lines;   // BRIM_METRIC_AT(place): lines that show it
  unsigned beside;  // BRIM_METRIC_AT(place): lines with the baseline's value in brackets
  // order of precedence for checkpoint.best: 1 decides, 2 if the first is unknown, ...; 0 = never
  int rank;
  const char *best;  // name in checkpoints ("brim.best_accuracy"); NULL = key
  brim_metric_names names[BRIM_METRIC_STAGES];
} brim_metric;

// The metrics of a workload.
typedef struct brim_metric_set {
  const brim_metric *rows;
  size_t count;                // at most BRIM_METRIC_MAX
  const char *baseline_label;  // a message: "zero policy"; NULL = no baseline
  const char *baseline_short;  // baseline_label for the progress line
  const char *subject;         // a message: the row above the baseline in the table of `brim eval`
  const char *summary;  // a message after the summary, with %lld evaluated units; NULL = none
} brim_metric_set;

void brim_metric_unknown(double values[BRIM_METRIC_MAX]);  // sets all to NaN
// The index of a row; -1 = none.
int brim_metric_find(const brim_metric_set *set, const char *key);

typedef enum brim_metric_file {
  BRIM_METRIC_COLUMN,
  BRIM_METRIC_TAG,
  BRIM_METRIC_EVENT,
  BRIM_METRIC_FIGURE
} brim_metric_file;
// The name of a row in a file. False if the row has no value in this stage, or no name.
bool brim_metric_name(const brim_metric *row, brim_metric_stage stage, brim_metric_file file,
                      char out[BRIM_METRIC_NAME]);

// "91.20 %", "0.3123", "NaN".
void brim_metric_format_value(const brim_metric *row, double value, char out[32]);
const char *brim_metric_label(const brim_metric *row, brim_metric_place place);  // translated
// Writes the values of a line as parts; spread and baseline join their value's part: "return 812 +- 40 (zero policy
// 301)", ", falls 12.0 %". Each part begins with its separator. `baseline` may be NULL. Returns the number of
// parts.
size_t brim_metric_parts(const brim_metric_set *set, brim_metric_place place, const double *values,
                         const double *baseline, char out[][BRIM_METRIC_TEXT], size_t most);
// Appends all parts of a line.
void brim_metric_line(const brim_metric_set *set, brim_metric_place place, const double *values,
                      const double *baseline, brim_str *out);
// Returns the row by which evaluations (or epochs of training) are compared: the best rank among known `values`; -1
// = none. `any` also allows rows without a value.
int brim_metric_deciding(const brim_metric_set *set, brim_metric_stage stage, const double *values,
                         bool any);
const char *brim_metric_best_name(const brim_metric *row);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_RECORD_METRIC_H_
