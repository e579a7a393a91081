// Inside the tune room.
#ifndef BRIM_TUNE_INT_H_
#define BRIM_TUNE_INT_H_

#include <stdlib.h>

#include "tune/tune.h"

// What a result says of itself, as a visit of a race. `at`: where its samples lie; NULL = by its
// interval, as of a result that was read from a record.
brim_race_visit brim_tune_visit(const brim_result *result, const brim_trial_location *at);

// An interval wider than this factor says nothing.
#define BRIM_TUNE_WIDEST 100.0

#endif  // BRIM_TUNE_INT_H_
