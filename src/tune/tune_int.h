// Inside the tune room: what a sweep asks of its other files.
#ifndef BRIM_TUNE_INT_H_
#define BRIM_TUNE_INT_H_

#include <stdlib.h>

#include "tune/tune.h"

// Indices of the results that are worth repeating and were not yet, the fastest first, `most` at
// most.
size_t brim_tune_contenders(const brim_result *results, size_t count, size_t *out, size_t most);
// One result of several repeats that all ran; takes them over.
void brim_tune_settle(brim_result *repeats, size_t count, brim_result *out);

#endif  // BRIM_TUNE_INT_H_
