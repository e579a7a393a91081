// The order of an epoch: a function of (seed, epoch, position) alone.
#include "data/loader/data_loader_int.h"

brim_shuffle brim_loader_shuffle(const brim_loader_options *o, uint64_t count, int64_t epoch) {
  return brim_shuffle_make(o->seed, (uint64_t)epoch, brim_loader_usable(o, count));
}

uint64_t brim_loader_order(const brim_loader_options *options, uint64_t count, int64_t epoch,
                           uint64_t i) {
  brim_shuffle order = brim_loader_shuffle(options, count, epoch);
  return brim_loader_index(options, &order, i);
}
