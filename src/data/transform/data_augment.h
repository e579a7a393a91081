// Transforms for a device: the extension "data.augment" runs a pipeline, given as plain values
// (brim_augment_program), over a data set on the device, a whole batch at once. Workers run the same
// program (data_transform.c); both use hd/hd_image.h for what a stage does to pixels. Callers: the
// loader.
#ifndef BRIM_DATA_AUGMENT_H_
#define BRIM_DATA_AUGMENT_H_

#include "brim/source.h"
#include "hd/hd_image.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_AUGMENT_ABI 2
#define BRIM_AUGMENT_EXTENSION "data.augment"

// One batch from a resident set. All pointers are device memory.
typedef struct brim_augment_batch {
  const void *inputs;     // samples of the set, program->sample_bytes each, packed
  const void *targets;    // (samples of the set, target_bytes); NULL = no target
  const uint64_t *index;  // (rows) sample numbers
  int64_t rows;           // samples, >= 1
  int64_t capacity;       // >= rows: rows of a view's block in `out`; rows past `rows` become zero
  int64_t epoch;
  size_t target_bytes;
  void *out;          // (views, capacity, program->out_bytes)
  void *out_targets;  // (capacity, target_bytes)
  int32_t in_order;   // `inputs` holds only this batch: row r of it is the sample index[r]
} brim_augment_batch;

// One batch of untransformed rows from a mapped file. Pointers are device memory except `from`.
typedef struct brim_augment_fetch {
  const void *from;       // device address of row 0, in memory locked by `lock`; any alignment
  uint64_t stride;        // bytes from a row to the next
  size_t bytes;           // of a row
  const uint64_t *place;  // (rows) row numbers in the file
  int64_t rows;           // >= 1
  int64_t capacity;       // >= rows: rows past `rows` become zero in `to` and `out_targets`
  void *to;               // (capacity, bytes)
  const void *targets;    // (samples of the set, target_bytes); NULL = no target
  const uint64_t *index;  // (rows) sample numbers, for the targets
  size_t target_bytes;
  void *out_targets;  // (capacity, target_bytes)
} brim_augment_fetch;

typedef struct brim_augment_table {
  uint32_t abi;  // BRIM_AUGMENT_ABI
  // BRIM_OK, or BRIM_EUNSUPPORTED with a detail that names the stage. A program without stages is a
  // gather and always supported, for any sample_bytes.
  brim_status (*supports)(const brim_augment_program *program);
  // Bytes of device scratch that `run` needs for batches of up to `capacity` rows.
  size_t (*scratch_bytes)(const brim_augment_program *program, int64_t capacity);
  // Enqueues on the stream (brim_device.stream); `scratch` is 256-byte aligned.
  brim_status (*run)(void *stream, const brim_augment_program *program,
                     const brim_augment_batch *batch, void *scratch);
  // lock, unlock and fetch are optional: a table has all three or none. lock page-locks whole pages of
  // read-only memory, such as a mapped file, and makes them readable by the device at *address. `near`
  // is any memory of that device. BRIM_EUNSUPPORTED with a detail if the pages cannot be locked.
  brim_status (*lock)(const void *memory, size_t bytes, const void *near, const void **address);
  // The device must be done with the pages.
  void (*unlock)(const void *memory);
  // Enqueues on the stream. The rows cross the bus, so it needs only a few multiprocessors and runs
  // beside other work.
  brim_status (*fetch)(void *stream, const brim_augment_fetch *fetch);
} brim_augment_table;

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DATA_AUGMENT_H_
