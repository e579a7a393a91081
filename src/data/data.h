// Data between folders: sources opened from components, and the loader that fills batches.
// Order and augmentation are functions of (seed, epoch, index): the same with any number of
// workers, and resumable to the sample. Who calls: workload.
#ifndef BRIM_DATA_H_
#define BRIM_DATA_H_

#include "backend/backend.h"
#include "brim/plan.h"
#include "brim/source.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_source {
  const brim_source_table *table;
  void *state;
  brim_source_info info;
  size_t input_bytes;  // of one sample
  size_t target_bytes;
  uint64_t host_bytes;  // what the source keeps in memory (planned)
} brim_source;

// component: idx, mnist, cifar10, cifar100, synthetic(...), or plugin:NAME(...) looked up as
// "data.source/NAME".
// path: file or folder; for idx a folder with MNIST-named files (plain or .gz) or an images file,
// for cifar10 and cifar100 the folder of their .bin files or the one above it.
// split: train, val or test; NULL = what the component's argument `split` says, else train.
brim_status brim_source_open(const brim_registry *registry, const brim_component *component,
                             const char *path, const char *split, uint64_t seed, brim_source **out);
void brim_source_close(brim_source *source);

// IDX from memory, for fuzzing and tests: checks the whole header against the size.
typedef struct brim_idx {
  int type;  // IDX type code: 0x08 u8, 0x0D f32, ...
  int rank;
  int64_t dim[4];
  size_t header_bytes;
  size_t element_bytes;
} brim_idx;
brim_status brim_idx_parse(const void *data, size_t size, const char *name, brim_idx *out);

//---------------------------------- transforms ----------------------------------

// What is done to a sample between the source and the batch. Prepared once, then the same for all
// threads: a pure function of (seed, epoch, sample), so neither workers nor a seek change it.
typedef struct brim_transforms brim_transforms;

// `random` false leaves out what draws (for evaluation). A transform that is not there yet is
// BRIM_EUNSUPPORTED and named. A pipeline that keeps nothing is one of no stages. The source is
// read for the call only.
brim_status brim_transforms_create(const brim_pipeline *pipeline, const brim_source *source,
                                   uint64_t seed, bool random, brim_transforms **out);
void brim_transforms_destroy(brim_transforms *transforms);
size_t brim_transforms_count(const brim_transforms *transforms);
// The source's info with the shape of the result, and its bytes.
const brim_source_info *brim_transforms_info(const brim_transforms *transforms);
size_t brim_transforms_output_bytes(const brim_transforms *transforms);
// Bytes of scratch one thread needs, 64-byte aligned; 0 = none (scratch may be NULL).
size_t brim_transforms_scratch_bytes(const brim_transforms *transforms);
// Where the source's bytes of a sample have to be put before brim_transforms_apply: `out` itself or
// the scratch. The result is in `out`.
void *brim_transforms_input(const brim_transforms *transforms, void *out, void *scratch);
void brim_transforms_apply(const brim_transforms *transforms, int64_t epoch, uint64_t index,
                           void *out, void *scratch);

//---------------------------------- loader ----------------------------------

typedef struct brim_loader_options {
  int64_t batch;
  int num_workers;      // 0 = inline
  int prefetch_factor;  // batches per worker kept ready, >= 1 (inline: ignored)
  bool pin_memory;
  bool shuffle;
  bool drop_last;
  uint64_t seed;
  // Rank r of k takes positions r, r + k, r + 2k, ... of the common order: disjoint shares of
  // floor(count / k) samples each; up to k - 1 samples, others in each epoch, are left out.
  int rank, world;  // 0, 1 for one process
  uint64_t limit;   // use only the first `limit` samples; 0 = all
  // Borrowed, outlives the loader; made for this source. NULL = samples as they are.
  const brim_transforms *transforms;
} brim_loader_options;

// One filled batch. `index` are the sample numbers (for tests and augmentation).
typedef struct brim_loaded {
  void *input;
  void *target;
  const uint64_t *index;
  int64_t rows;  // valid rows; the rest of the block is zero
  int64_t epoch;
  int64_t first;         // position in the epoch of row 0 (samples before it)
  bool last;             // last batch of its epoch
  int64_t io_ns;         // the worker's own time reading it
  int64_t transform_ns;  // and transforming it
} brim_loaded;

typedef struct brim_loader brim_loader;

// Add the loader's and the source's rows to a plan, in host memory: "loader ring" (inputs, targets
// and indices of num_workers * prefetch_factor + 2 batches), "transform scratch" (of each worker)
// and "dataset" (what the source keeps in memory: of plain IDX and CIFAR files their classes only,
// of synthetic data nothing). Rows of the same name add up.
brim_status brim_loader_plan(const brim_source *source, const brim_loader_options *options,
                             brim_plan *plan);
brim_status brim_loader_create(brim_device *device, brim_source *source,
                               const brim_loader_options *options, brim_loader **out);
void brim_loader_destroy(brim_loader *loader);
// Samples and batches this rank sees per epoch, without those that drop_last leaves out.
int64_t brim_loader_samples(const brim_loader *loader);
int64_t brim_loader_batches(const brim_loader *loader);
// Go to a sample position of an epoch (0 <= position <= samples, a batch boundary or not: the first
// batch then starts exactly there). Drops what was prefetched.
brim_status brim_loader_seek(brim_loader *loader, int64_t epoch, int64_t position);
// Next batch, into the following epoch after the last; waits when none is ready. The caller gives
// it back with brim_loader_release before taking more than the ring holds (2 may always be kept).
// A failure to read names the sample and stays the answer until a seek.
brim_status brim_loader_next(brim_loader *loader, const brim_loaded **out);
void brim_loader_release(brim_loader *loader, const brim_loaded *batch);

// Sample number at position i of this rank's epoch, out of a source of `count` samples.
uint64_t brim_loader_order(const brim_loader_options *options, uint64_t count, int64_t epoch,
                           uint64_t i);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DATA_H_
