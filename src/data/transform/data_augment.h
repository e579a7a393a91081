// Transforms for a device: a pipeline as plain values (brim_augment_program), and the extension
// "data.augment" that runs it over a data set lying on the device, a whole batch at once. The same
// program is what a worker runs (data_transform.c); what a stage does to pixels is in hd/hd_image.h,
// once for both. Callers: the loader.
#ifndef BRIM_DATA_AUGMENT_H_
#define BRIM_DATA_AUGMENT_H_

#include "brim/source.h"
#include "hd/hd_image.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_AUGMENT_ABI 2
#define BRIM_AUGMENT_EXTENSION "data.augment"

// One batch out of a resident set. All pointers are device memory.
typedef struct brim_augment_batch {
  const void *inputs;     // count samples of program->in, packed
  const void *targets;    // count x target_bytes; NULL = no target
  const uint64_t *index;  // rows sample numbers
  int64_t rows;           // samples, >= 1
  int64_t capacity;       // >= rows: rows of a view's block in `out`; those past `rows` become zero
  int64_t epoch;
  size_t target_bytes;
  void *out;          // views x capacity x samples of program->out
  void *out_targets;  // capacity x target_bytes
  int32_t in_order;   // the inputs are the batch's own: row r is sample r of them, not index[r]
} brim_augment_batch;

// One batch out of a mapped file, as it lies there. Pointers are device memory but for `from`.
typedef struct brim_augment_fetch {
  const void *from;       // device address of row 0, inside what `lock` page-locked; any alignment
  uint64_t stride;        // bytes from a row to the next
  size_t bytes;           // of a row; rows are copied to `to` one behind the other
  const uint64_t *place;  // rows numbers of rows in the file
  int64_t rows;           // >= 1
  int64_t capacity;       // >= rows: those past `rows` become zero in `to` and `out_targets`
  void *to;
  const void *targets;    // count x target_bytes; NULL = no target
  const uint64_t *index;  // rows sample numbers, for the targets
  size_t target_bytes;
  void *out_targets;  // capacity x target_bytes
} brim_augment_fetch;

typedef struct brim_augment_table {
  uint32_t abi;  // BRIM_AUGMENT_ABI
  // BRIM_OK, or BRIM_EUNSUPPORTED with a detail that names the stage. A program without stages is a
  // gather and always supported, for any sample_bytes.
  brim_status (*supports)(const brim_augment_program *program);
  // Device bytes `run` needs besides, for batches of up to `capacity` rows.
  size_t (*scratch_bytes)(const brim_augment_program *program, int64_t capacity);
  // Enqueues on the stream (brim_device.stream); `scratch` is 256-byte aligned.
  brim_status (*run)(void *stream, const brim_augment_program *program,
                     const brim_augment_batch *batch, void *scratch);
  // (optional, all or none) Page-locks whole pages of memory that is only read, such as a mapped
  // file, and makes them readable by the device at *address. `near` is any memory of that device.
  // BRIM_EUNSUPPORTED with a detail if they cannot be locked.
  brim_status (*lock)(const void *memory, size_t bytes, const void *near, const void **address);
  // Nothing may still be reading the pages.
  void (*unlock)(const void *memory);
  // Enqueues on the stream; what it reads crosses the bus, so it takes few of the device's units and
  // is meant to run beside other work.
  brim_status (*fetch)(void *stream, const brim_augment_fetch *fetch);
} brim_augment_table;

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DATA_AUGMENT_H_
