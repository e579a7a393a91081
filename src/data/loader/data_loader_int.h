// Inside the loader: the order of samples in an epoch, and the resident set.
#ifndef BRIM_DATA_LOADER_INT_H_
#define BRIM_DATA_LOADER_INT_H_

#include "data/data_int.h"
#include "hd/hd_shuffle.h"

enum {
  // Batches that the caller holds, besides those kept ready: one in use, one being copied.
  BRIM_LOADER_HELD = 2,
  BRIM_LOADER_DETAIL = 512,
  // Lists of sample numbers being copied to the device, which limits how far the host runs ahead of it.
  BRIM_LOADER_LISTS = 8,
};

//---------------------------------- resident sets ----------------------------------

// A sample that could not be read; the device holds zeros in its place.
typedef struct brim_resident_broken {
  uint64_t index;
  brim_status status;
  char *detail;
} brim_resident_broken;

struct brim_resident {
  brim_device *device;
  const brim_augment_table *table;
  uint64_t count;
  size_t input_bytes, target_bytes;  // of one sample
  void *memory;                      // device memory, owned
  const void *inputs;                // count x input_bytes; mapped set: device address of row 0
  void *targets;                     // count x target_bytes; NULL = none
  // Mapped set: the inputs stay in the file, whose pages are locked. NULL = the inputs were copied.
  const void *locked;
  uint64_t locked_bytes, stride;  // stride: bytes from a row of the file to the next
  brim_resident_broken *broken;   // sorted by index
  size_t broken_count, broken_room;
};

// Like the public functions, but with a given table, for simulated devices in tests.
uint64_t brim_resident_bytes_with(const brim_augment_table *table, const brim_source *source,
                                  const brim_transforms *transforms);
brim_status brim_resident_create_with(const brim_augment_table *table, brim_device *device,
                                      brim_source *source, uint64_t limit, int threads,
                                      brim_resident **out);
uint64_t brim_mapped_bytes_with(const brim_augment_table *table, const brim_source *source,
                                const brim_transforms *transforms);
brim_status brim_mapped_create_with(const brim_augment_table *table, brim_device *device,
                                    brim_source *source, uint64_t limit, int threads,
                                    brim_resident **out);

// What makes the batches: the device, or worker threads.
typedef struct brim_loader_maker {
  const brim_augment_table *table;  // of the device; NULL = worker threads
  bool mapped;                      // from a mapped set
} brim_loader_maker;

//---------------------------------- the order of an epoch ----------------------------------

// Number of samples within options->limit.
static inline uint64_t brim_loader_usable(const brim_loader_options *o, uint64_t count) {
  return o->limit && o->limit < count ? o->limit : count;
}
// The order of one epoch, common to all ranks.
static inline brim_shuffle brim_loader_shuffle(const brim_loader_options *o, uint64_t count,
                                               int64_t epoch) {
  return brim_shuffle_make(o->seed, (uint64_t)epoch, brim_loader_usable(o, count));
}
// The sample at a position of this rank's epoch: rank r of k takes positions r, r + k, r + 2k, ...
// of the common order.
static inline uint64_t brim_loader_index(const brim_loader_options *o, const brim_shuffle *order,
                                         uint64_t position) {
  uint64_t at = position * (uint64_t)o->world + (uint64_t)o->rank;
  return o->shuffle ? brim_shuffle_at(order, at) : at;
}

#endif  // BRIM_DATA_LOADER_INT_H_
