// Recommendations for tests: picks alone, and the gain over the config's own setting.
#ifndef BRIM_TESTS_UI_PICKED_H_
#define BRIM_TESTS_UI_PICKED_H_

#include "record/record.h"

static inline brim_recommendation picked(int highest, int efficient, int recommended) {
  brim_recommendation r;
  brim_recommendation_init(&r);
  r.highest = highest;
  r.efficient = efficient;
  r.recommended = recommended;
  return r;
}

#endif  // BRIM_TESTS_UI_PICKED_H_
