// The order of an epoch: a function of (seed, epoch, position) alone.
#include "data/loader/data_loader_int.h"

brim_shuffle brim_loader_shuffle(const brim_loader_options *o, uint64_t count, int64_t epoch) {
  return brim_shuffle_make(o->seed, (uint64_t)epoch, brim_loader_usable(o, count));
}
