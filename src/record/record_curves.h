// The curves of a run out of its log.jsonl: values of evaluations by step, beside the baseline's. A log
// of any length gives a bounded number of points; lines that cannot be read are skipped. Callers:
// `brim render` reads them, the replay page (src/ui/ui_replay.c) draws them.
#ifndef BRIM_RECORD_CURVES_H_
#define BRIM_RECORD_CURVES_H_

#include "base/base.h"
#include "record/record_metric.h"

// Stretches of a curve that is longer, of which the lowest and the highest value stay; besides these
// the first point, the last and the marked one.
enum { BRIM_CURVE_STRETCHES = 256, BRIM_CURVE_POINTS = 2 * BRIM_CURVE_STRETCHES + 3 };

typedef struct brim_curve_point {
  int64_t step;
  double value;  // finite
} brim_curve_point;

typedef struct brim_curve {
  const brim_metric *row;    // borrowed
  brim_curve_point *points;  // by step, each step once; at least one
  size_t count;
  double baseline;  // NaN = the log has none
} brim_curve;

typedef struct brim_curves {
  brim_curve *list;
  size_t count;
  int64_t marked;  // step of the checkpoint they are shown for; -1 = none
  bool training;   // values of training: the log has no evaluations
} brim_curves;

// The rows of `set` that lines about an evaluation show. `folder` has log.jsonl, and log.1.jsonl, ...
// where it was rotated. A step that comes again (a run that was taken back) replaces what was
// logged from it on. No log, or none of the values: BRIM_OK and no curve. BRIM_EIO, BRIM_EINVAL: there
// is one that cannot be read.
brim_status brim_curves_read(const brim_metric_set *set, const char *folder, int64_t marked,
                             brim_curves *out);
void brim_curves_deinit(brim_curves *curves);

#endif  // BRIM_RECORD_CURVES_H_
