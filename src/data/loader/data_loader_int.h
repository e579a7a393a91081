// Inside data: what the files of the loader share. data_loader.c is the caller's side,
// data_loader_layout.c sizes, data_loader_order.c the order, data_loader_fill.c the workers, data_loader_device.c
// batches made on the device. And the resident set, which only the loader looks into.
#ifndef BRIM_DATA_LOADER_INT_H_
#define BRIM_DATA_LOADER_INT_H_

#include <pthread.h>

#include "data/data_int.h"
#include "hd/hd_shuffle.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  // Batches in the caller's hands besides those kept ready: one in use, one being copied.
  BRIM_LOADER_HELD = 2,
  BRIM_LOADER_DETAIL = 512,
  // Lists of sample numbers on their way to the device: so far the host may run ahead of it.
  BRIM_LOADER_LISTS = 8,
};

//---------------------------------- resident sets ----------------------------------

// A sample that could not be read. Its place on the device holds zeros.
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
  void *memory;                      // what is ours on the device
  const void *inputs;                // count x input_bytes, or where the device finds row 0
  void *targets;                     // count x target_bytes; NULL = none
  // A mapped set: the inputs stay in the file, whose pages are locked. NULL = they were copied.
  const void *locked;
  uint64_t locked_bytes, stride;  // stride: from a row of the file to the next
  brim_resident_broken *broken;   // by index
  size_t broken_count, broken_room;
};

// What is wrong with a sample; NULL = nothing.
const brim_resident_broken *brim_resident_broken_at(const brim_resident *resident, uint64_t index);

// The same as the public ones with the table given, for devices of the tests' own.
uint64_t brim_resident_bytes_with(const brim_augment_table *table, const brim_source *source,
                                  const brim_transforms *transforms);
brim_status brim_resident_create_with(const brim_augment_table *table, brim_device *device,
                                      brim_source *source, uint64_t limit, int threads,
                                      brim_resident **out);
// The table of the device; NULL with a detail where it has none.
const brim_augment_table *brim_resident_table(const brim_registry *registry,
                                              const brim_device *device);
// Reads samples, of a mapped set their targets, into the set's memory.
brim_status brim_resident_fill(brim_resident *set, brim_source *source, int threads);
enum { BRIM_RESIDENT_ALIGN = 256 };
uint64_t brim_resident_round(uint64_t bytes);  // up to that
// A mapped set's, in data_mapped.c.
uint64_t brim_mapped_bytes_with(const brim_augment_table *table, const brim_source *source,
                                const brim_transforms *transforms);
brim_status brim_mapped_create_with(const brim_augment_table *table, brim_device *device,
                                    brim_source *source, uint64_t limit, int threads,
                                    brim_resident **out);
// The transforms' program, or the one that only gathers.
brim_status brim_resident_program(const brim_source *source, const brim_transforms *transforms,
                                  brim_augment_program *out);

//---------------------------------- sizes ----------------------------------

// Sizes that follow from the options and the source; plan and create agree through it.
typedef struct brim_loader_layout {
  int64_t share;    // samples of this rank in an epoch
  int64_t samples;  // of these, those that are given out
  bool drop_last;   // asked for, or implied by several views
  int32_t views;
  int64_t piece;        // rows that a worker fills at once
  size_t output_bytes;  // of one view of a sample
  size_t raw_bytes;     // of a sample as read, rounded up; 0 = it is read into its place
  size_t slots;
  size_t target_at, index_at, slot_bytes;  // inputs lie at 0
  size_t ring_bytes;
  size_t worker_bytes, workers_bytes;  // the sample as read and scratch: of one thread, of all
  size_t broken_bytes;                 // skip_broken: a bit for each sample
  // With a resident set the slots lie on the device, without indices; behind them one list of
  // indices and scratch. With a mapped one a slot has its own list, at index_at: samples, then rows
  // of the file; and, where there is something to do to them, the rows as they lie there.
  size_t device_index_at, device_scratch_at, device_bytes;
  bool staged;
  size_t rows_at;
  size_t list_bytes;  // of a list on the host
} brim_loader_layout;

// What makes the batches. No table: workers.
typedef struct brim_loader_maker {
  const brim_augment_table *table;
  bool mapped;
} brim_loader_maker;
brim_loader_maker brim_loader_maker_of(const brim_resident *resident);  // NULL: workers

brim_status brim_loader_layout_make(const brim_source *source, const brim_loader_options *o,
                                    const brim_loader_maker *maker, brim_loader_layout *out);

brim_status brim_loader_plan_with(const brim_source *source, const brim_loader_options *options,
                                  const brim_loader_maker *maker, brim_plan *plan);

// Samples that the options let through.
static inline uint64_t brim_loader_usable(const brim_loader_options *o, uint64_t count) {
  return o->limit && o->limit < count ? o->limit : count;
}
// The order of one epoch; brim_loader_index is the sample at a position of this rank.
brim_shuffle brim_loader_shuffle(const brim_loader_options *o, uint64_t count, int64_t epoch);
static inline uint64_t brim_loader_index(const brim_loader_options *o, const brim_shuffle *order,
                                         uint64_t position) {
  // Rank r of k takes positions r, r + k, r + 2k, ... of the common order.
  uint64_t at = position * (uint64_t)o->world + (uint64_t)o->rank;
  return o->shuffle ? brim_shuffle_at(order, at) : at;
}

//---------------------------------- the loader ----------------------------------

// What filling some rows came to. Of a batch, and of a piece of it before it is added.
typedef struct brim_loader_tally {
  int64_t read_ns, transform_ns;
  int64_t stage_ns[BRIM_LOADER_MAX_STAGES];
  uint64_t broken;
  int64_t broken_row;  // the first; -1 = none
  char broken_text[256];
  brim_status status;
  int64_t failed_row;  // the first that ends the batch
  char detail[BRIM_LOADER_DETAIL];
} brim_loader_tally;

typedef enum brim_loader_state {
  BRIM_LOADER_FREE,
  BRIM_LOADER_FILLING,
  BRIM_LOADER_READY,
  BRIM_LOADER_TAKEN
} brim_loader_state;

typedef struct brim_loader_slot {
  brim_loaded loaded;
  uint64_t *index;
  brim_loader_state state;
  uint64_t ticket;
  int64_t claimed;  // rows that a worker has or had
  int pending;      // pieces in work
  brim_loader_tally tally;
  // Of a mapped set: its rows have come, and the user of the slot is done with it.
  brim_event *fetched, *given_back;
} brim_loader_slot;

// A thread that fills; with none, the caller is one.
typedef struct brim_loader_worker {
  brim_loader *loader;
  brim_thread *thread;
  uint8_t *raw;      // a sample as read
  uint8_t *scratch;  // the transforms'; NULL when they need none
  brim_loader_tally tally;
} brim_loader_worker;

// Sample numbers on the host, until their copy to the device has run.
typedef struct brim_loader_list {
  uint64_t *index;
  brim_event *copied;
  bool used;                     // `copied` was recorded
  const brim_loader_slot *slot;  // that shows them to the caller; NULL = none
} brim_loader_list;

typedef struct brim_loader_cursor {
  int64_t epoch, position;
} brim_loader_cursor;

struct brim_loader {
  brim_device *device;  // NULL when the ring is not pinned and nothing is resident
  brim_source *source;
  brim_loader_options options;
  brim_loader_layout layout;
  uint8_t *ring;
  uint8_t *scratch;
  uint8_t *broken;  // bits of samples that were left out; NULL without skip_broken
  brim_loader_slot *slots;
  brim_loader_worker *workers;  // one at least
  int thread_count;
  // With a resident set.
  uint8_t *device_memory;
  brim_augment_program *program;
  brim_loader_list lists[BRIM_LOADER_LISTS];
  size_t next_list;

  pthread_mutex_t lock;
  pthread_cond_t work;   // workers: a slot came free, seek is over, or stop
  pthread_cond_t ready;  // caller: a batch was filled
  // Under the lock from here on.
  brim_loader_cursor cursor;  // of the next batch to open
  brim_loader_slot *open;     // the batch with rows that no worker has claimed; NULL = none
  uint64_t next_ticket, next_deliver;
  size_t filling;  // pieces in work
  size_t held;
  bool paused, stop;
  brim_loader_stats stats;
};

// Takes the next batch of the cursor into a free slot; NULL when there is none.
brim_loader_slot *brim_loader_open_locked(brim_loader *l);
// All rows of an open slot by the calling thread.
void brim_loader_fill_locked(brim_loader *l, brim_loader_slot *slot);
void brim_loader_worker_main(void *ctx);
// Adds what to do about a broken record to what is reported of it.
void brim_loader_advise(void);

// Buffers and events of a loader over a resident set; and a batch of it.
brim_status brim_loader_device_init(brim_loader *l);
void brim_loader_device_deinit(brim_loader *l);
brim_status brim_loader_device_fill(brim_loader *l, brim_loader_slot *slot);
// The same over a mapped set, in two steps: `fetch` enqueues on the copy stream, a batch ahead of
// the caller; `finish` has the main stream wait for that, and transform. `give_back` marks where
// the main stream is done with a slot.
bool brim_loader_is_mapped(const brim_loader *l);
brim_status brim_loader_device_fetch(brim_loader *l, brim_loader_slot *slot);
brim_status brim_loader_device_finish(brim_loader *l, brim_loader_slot *slot);
void brim_loader_device_give_back(brim_loader *l, brim_loader_slot *slot);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DATA_LOADER_INT_H_
