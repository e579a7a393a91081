// The order that a loader must follow: number of the sample at position i of this rank's epoch, out of `count` samples.
#ifndef BRIM_TESTS_LOADER_ORDER_H_
#define BRIM_TESTS_LOADER_ORDER_H_

#include "data/loader/data_loader_int.h"

static inline uint64_t loader_order(const brim_loader_options *options, uint64_t count,
                                    int64_t epoch, uint64_t i) {
  brim_shuffle order = brim_loader_shuffle(options, count, epoch);
  return brim_loader_index(options, &order, i);
}

#endif  // BRIM_TESTS_LOADER_ORDER_H_
