// The curves of a run from its log.jsonl: values of evaluations by step, beside the baseline's. A log of any length
// gives a bounded number of points; lines that cannot be read are skipped. Callers: `brim render` reads the curves,
// the replay page (src/ui/ui_replay.c) draws them.
#ifndef BRIM_RECORD_CURVES_H_
#define BRIM_RECORD_CURVES_H_

#include "base/base.h"
#include "record/record_metric.h"

// A long curve is divided into BRIM_CURVE_STRETCHES stretches, each with its lowest and its highest value. The
// first point, the last and the marked point stay too.
enum { BRIM_CURVE_STRETCHES = 256, BRIM_CURVE_POINTS = 2 * BRIM_CURVE_STRETCHES + 3 };

typedef struct brim_curve_point {
  int64_t step;
  double value;  // finite
} brim_curve_point;

typedef struct brim_curve {
  const brim_metric *row;    // borrowed
  brim_curve_point *points;  // ordered by step, one point per step; at least one
  size_t count;
  double baseline;  // NaN = the log has none
} brim_curve;

typedef struct brim_curves {
  brim_curve *list;
  size_t count;
  int64_t marked;  // step of the checkpoint that the curves are shown for; -1 = none
  bool training;   // values come from training, since the log has no evaluations
} brim_curves;

// Reads the rows of `set` that lines about an evaluation show. `folder` holds log.jsonl, and log.1.jsonl, ... if
// the log was rotated. A step that comes again, because the run went back to a checkpoint, replaces everything
// logged from it on. Without a log or without such values it returns BRIM_OK and no curves. BRIM_EIO, BRIM_EINVAL:
// a log exists but cannot be read.
brim_status brim_curves_read(const brim_metric_set *set, const char *folder, int64_t marked,
                             brim_curves *out);
void brim_curves_deinit(brim_curves *curves);

#endif  // BRIM_RECORD_CURVES_H_
