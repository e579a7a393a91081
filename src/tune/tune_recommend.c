// Which setting to take. The rules stand in tune.h; ties go to the earlier trial.
#include <math.h>
#include <string.h>

#include "tune/tune.h"

static bool safe(const brim_result *r) {
  return isnan(r->free_bytes) || brim_result_memory(r) < 0.8 * r->free_bytes;
}

static int best_throughput(const brim_result *results, size_t count, bool only_trusted) {
  int best = -1;
  for (size_t i = 0; i < count; i++) {
    if (!brim_result_ran(&results[i])) continue;
    if (only_trusted && (!brim_result_trusted(&results[i]) || !safe(&results[i]))) continue;
    if (best < 0 || results[i].samples_per_s > results[best].samples_per_s) best = (int)i;
  }
  return best;
}

static int most_efficient(const brim_result *results, size_t count, double floor) {
  int best = -1;
  double best_value = 0;
  for (size_t i = 0; i < count; i++) {
    if (!brim_result_ran(&results[i]) || results[i].samples_per_s < floor) continue;
    double value = results[i].samples_per_s / fmax(brim_result_memory(&results[i]), 1);
    if (best < 0 || value > best_value) {
      best = (int)i;
      best_value = value;
    }
  }
  return best;
}

static int smallest_near(const brim_result *results, size_t count, double floor) {
  int best = -1;
  for (size_t i = 0; i < count; i++) {
    const brim_result *r = &results[i];
    if (!brim_result_ran(r) || !brim_result_trusted(r) || !safe(r) || r->samples_per_s < floor)
      continue;
    if (best < 0) {
      best = (int)i;
      continue;
    }
    double a = brim_result_memory(r), b = brim_result_memory(&results[best]);
    if (a < b || (a == b && brim_result_knob_number(r, "num_workers", 0) <
                                brim_result_knob_number(&results[best], "num_workers", 0)))
      best = (int)i;
  }
  return best;
}

void brim_recommend(const brim_result *results, size_t count, brim_recommendation *out) {
  out->highest = best_throughput(results, count, false);
  out->efficient = out->recommended = -1;
  if (out->highest < 0) return;
  out->efficient = most_efficient(results, count, 0.90 * results[out->highest].samples_per_s);
  int best = best_throughput(results, count, true);
  if (best < 0) return;
  out->recommended = smallest_near(results, count, 0.97 * results[best].samples_per_s);
}
