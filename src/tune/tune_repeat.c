// Repeats: the settings among which the recommendation is decided are measured again, in turns, when
// all others are done. A machine that was slow for ten seconds then cost every contender one of its
// repeats, not one contender all of them.
#include <math.h>
#include <string.h>

#include "tune/tune_int.h"

// Within this share of the best two settings are told apart by repeating only.
#define NEAR 0.95
// Repeats whose medians differ by more are no measurement.
#define SPREAD 0.05

// Of those that could be recommended, or of all.
static double best_of(const brim_result *results, size_t count, bool trusted) {
  double best = 0;
  for (size_t i = 0; i < count; i++) {
    const brim_result *r = &results[i];
    if (r->failure != BRIM_FAILURE_NONE || (trusted && !brim_result_trusted(r))) continue;
    best = fmax(best, r->samples_per_s);
  }
  return best;
}

// The fastest of all is one even where it cannot be recommended: it is shown by name, and may have
// been unlucky.
size_t brim_tune_contenders(const brim_result *results, size_t count, size_t *out, size_t most) {
  double best = best_of(results, count, true), any = best_of(results, count, false);
  if (!(best > 0)) best = any;
  size_t n = 0;
  for (size_t i = 0; i < count && best > 0; i++) {
    const brim_result *r = &results[i];
    if (r->failure != BRIM_FAILURE_NONE || r->repeats > 1) continue;
    if (fmax(r->samples_per_s, r->samples_per_s_high) < NEAR * best) continue;
    // the fastest first, so that a limit cuts off the slowest
    size_t at = n < most ? n++ : most;
    while (at > 0 && r->samples_per_s > results[out[at - 1]].samples_per_s) {
      if (at < most) out[at] = out[at - 1];
      at--;
    }
    if (at < most) out[at] = i;
  }
  return n;
}

static int slower_first(const void *a, const void *b) {
  double x = ((const brim_result *)a)->samples_per_s, y = ((const brim_result *)b)->samples_per_s;
  return (x > y) - (x < y);
}

// All of `repeats` ran. The middle one stands for them, with an interval that holds all medians.
void brim_tune_settle(brim_result *repeats, size_t count, brim_result *out) {
  qsort(repeats, count, sizeof *repeats, slower_first);
  brim_result *middle = &repeats[(count - 1) / 2];
  double low = repeats[0].samples_per_s, high = repeats[count - 1].samples_per_s;
  // of one sample each, the repeats are what tells
  bool steady = middle->stable || brim_result_one_sample(middle);
  middle->samples_per_s_low = fmin(middle->samples_per_s_low, low);
  middle->samples_per_s_high = fmax(middle->samples_per_s_high, high);
  middle->stable = steady && high - low <= SPREAD * middle->samples_per_s;
  middle->repeats = (int)count;
  for (size_t i = 0; i < count; i++) middle->throttled = middle->throttled || repeats[i].throttled;
  *out = *middle;
  for (size_t i = 0; i < count; i++) {
    if (&repeats[i] != middle) brim_result_deinit(&repeats[i]);
  }
}
