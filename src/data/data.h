// Data between folders: sources opened from components, and the loader that fills batches.
// Order and augmentation are functions of (seed, epoch, index): the same with any number of
// workers, and resumable to the sample. Callers: workload.
#ifndef BRIM_DATA_H_
#define BRIM_DATA_H_

#include "backend/backend.h"
#include "brim/plan.h"
#include "brim/source.h"
#include "data/transform/data_augment.h"
#include "record/record_component.h"

// Inputs that lie in a mapped file as the samples have them, one behind the other. Not to be touched
// by the host outside a guard (base_map.h): only their place counts here.
typedef struct brim_source_rows {
  const uint8_t *first;  // row 0
  uint64_t stride;       // bytes from a row to the next
  uint64_t count;
} brim_source_rows;

enum { BRIM_SOURCE_FILES = 8 };  // files of a format with fixed file names

typedef struct brim_source {
  const brim_source_table *table;
  void *state;
  brim_source_info info;  // count is that of the part in use
  size_t input_bytes;     // of one sample; of the largest if info.varies
  size_t target_bytes;    // 0 = no target
  uint64_t host_bytes;    // what the source keeps in memory (planned), the cache apart
  bool binary_targets;    // targets are rows of 0 and 1: several labels a sample, each there or not
  bool val_is_test;       // opened as val, and its samples are those of the test split
  // The part of the table's samples in use, and their copies in memory. data_source.c's own.
  struct brim_source_part *part;
  struct brim_source_cache *cache;
  const struct brim_source_builtin *builtin;  // NULL for a plug-in
} brim_source;

// For a program that uses libhdf5 only through brim: call it before anything else. The library then
// stays open when the process ends, because closing crashes on what it keeps of some damaged files.
void brim_data_leave_hdf5_open(void);

// component: idx, mnist, numpy, cifar10, cifar100, stl10, hdf5, folder, synthetic(...), or plugin:NAME(...)
// looked up as "data.source/NAME". Every one takes, besides its own arguments: part=(0, 0.8) (that
// share of a fixed random order by seed) and indices=FILE (whole numbers, one a line).
// path: file or folder. split: train, val, test, unlabeled, all; NULL = what the component's
// argument `split` says, else train.
brim_status brim_source_open(const brim_registry *registry, const brim_component *component,
                             const char *path, const char *split, uint64_t seed, brim_source **out);
void brim_source_close(brim_source *source);
// The component for a path when none was given: hdf5 for a file with HDF5's signature, idx, cifar10,
// cifar100, stl10 or folder by what lies there. BRIM_ENOENT or BRIM_EINVAL says what was looked for.
brim_status brim_source_guess(const char *path, brim_component *out);
// True if the path is a file of another program (CSV, Parquet). brim_source_guess refuses it and
// says how to convert it.
bool brim_source_is_foreign(const char *path);
// True if the path is one existing image (photo.jpg). folder opens it as a set of one sample.
bool brim_source_is_image(const char *path);
// The status of a failed open: BRIM_EIO and BRIM_EUNSUPPORTED become BRIM_EINVAL, since a file that
// cannot be read is bad input and no failure of a run or a device. The detail stays.
brim_status brim_source_open_failed(brim_status status);
// Checks that the training and the evaluation set can serve one network. a and b are their infos,
// or what transforms make of them. BRIM_EINVAL names both sets and what differs: shape, type,
// targets or labels. any_size: height and width of images may differ. `advice` ends the message on
// shapes; "" for none.
brim_status brim_source_match(const brim_source *train, const brim_source_info *a,
                              const brim_source *eval, const brim_source_info *b, bool any_size,
                              const char *advice);
// Only positions [from, to) (shares of 1) of a random order by seed, of what is in use now; the same
// for any caller, so that [0, 0.9) and [0.9, 1) are disjoint and all.
brim_status brim_source_take(brim_source *source, double from, double to, uint64_t seed);
// Keeps `limit` of the samples in use (all, if 0 or more than there are). If classes are known
// without reading, each class keeps its share, at least one sample if the limit allows; otherwise
// samples are chosen by seed over the whole set.
brim_status brim_source_limit(brim_source *source, uint64_t limit, uint64_t seed);
// What lies at the sources' path (splits of one data set) and no source reads: datasets of HDF5
// files, files of image folders. Their number, the first names in `out`, and the bytes of files.
typedef struct brim_source_left {
  size_t count;
  uint64_t files, bytes;  // 0 for datasets
} brim_source_left;
brim_status brim_source_unused(brim_source *const *sources, size_t source_count, brim_str *out,
                               brim_source_left *left);
// The files that the sources (splits of one data set) read, each counted once, and their bytes; false
// where that is not known of one of them.
bool brim_source_files(brim_source *const *sources, size_t source_count, uint64_t *files,
                       uint64_t *bytes);
// One sample. `input` has room for input_bytes; *height and *width (may be NULL where nothing
// varies) are those of what came out, decoded at 1/scale at best. Thread-safe. Failures name the
// file and record.
brim_status brim_source_read(brim_source *source, uint64_t index, int scale, void *input,
                             void *target, int64_t *height, int64_t *width);
// Reads a sample that is not read again soon: a large one is written past the caches if the source
// can, and the memory of sample `next` (any number, only a hint) is prefetched. Not for samples of
// different sizes.
brim_status brim_source_stream(brim_source *source, uint64_t index, uint64_t next, void *input,
                               void *target);
// Where the inputs of all the file's samples lie, whatever part is in use; false if they do not lie
// in one mapping. brim_source_row is the row of a sample, brim_source_target its target alone.
bool brim_source_rows_of(const brim_source *source, brim_source_rows *out);
uint64_t brim_source_row(const brim_source *source, uint64_t index);
brim_status brim_source_target(brim_source *source, uint64_t index, void *target);
// Fails with BRIM_EINVAL if opening found unreadable samples among the first `limit` (0 = all),
// with their number and the first one. Reads nothing again.
brim_status brim_source_check_readable(brim_source *source, uint64_t limit);
// The size of a sample before decoding.
brim_status brim_source_size(brim_source *source, uint64_t index, int64_t *height, int64_t *width);
void brim_source_describe(const brim_source *source, uint64_t index, char *text, size_t size);
// Names of the classes by label, if the set has them (folders of images, text labels, HDF5's
// class_names, CIFAR, STL-10), as UTF-8 with other bytes written as \xNN; NULL in *names if it has
// none. component, path and split are those the source was opened with (component NULL = no
// arguments). The list lives in the arena or is static.
brim_status brim_source_class_names(brim_arena *arena, const brim_source *source,
                                    const brim_component *component, const char *path,
                                    const char *split, const char *const **names);
// Describes where number `value` of the sample's target comes from.
void brim_source_describe_target(const brim_source *source, uint64_t index, int64_t value,
                                 char *text, size_t size);
// Keep every sample in memory once it was read (planned: brim_source_cache_bytes, allocated here).
// Not for sources whose images vary.
uint64_t brim_source_cache_bytes(const brim_source *source);
brim_status brim_source_keep(brim_source *source);

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

// The work done to a sample between the source and the batch. Prepared once and shared by all
// threads: a pure function of (seed, epoch, sample), so neither workers nor a seek change the
// result.
typedef struct brim_transforms brim_transforms;

// `random` false leaves out what draws (for evaluation). A pipeline that keeps nothing is one of no
// stages. The source is read for the call only. Where its images vary, the first stage has to make
// them one size (resize, center_crop, random_crop, random_resized_crop): BRIM_EINVAL says so.
// normalize and to_tensor cost nothing: bytes stay bytes and the network's input does the arithmetic
// (info.mean, info.std); in front of another stage they are refused by name.
brim_status brim_transforms_create(const brim_pipeline *pipeline, const brim_source *source,
                                   uint64_t seed, bool random, brim_transforms **out);
void brim_transforms_destroy(brim_transforms *transforms);
size_t brim_transforms_count(const brim_transforms *transforms);  // stages that do something
const char *brim_transforms_name(const brim_transforms *transforms,
                                 size_t stage);                    // "color_jitter"
int32_t brim_transforms_views(const brim_transforms *transforms);  // >= 1
// The source's info with shape, type and normalisation of the result, and bytes of one view.
const brim_source_info *brim_transforms_info(const brim_transforms *transforms);
size_t brim_transforms_output_bytes(const brim_transforms *transforms);
// Bytes of scratch one thread needs, 64-byte aligned; 0 = none (scratch may be NULL).
size_t brim_transforms_scratch_bytes(const brim_transforms *transforms);
// How much smaller (1, 2, 4, 8) an image of this size may be decoded without loss to any view of
// this sample.
int brim_transforms_scale(const brim_transforms *transforms, int64_t epoch, uint64_t index,
                          int64_t height, int64_t width);
// Which view of which sample, and the sample's size as read.
typedef struct brim_transforms_view {
  int64_t epoch;
  uint64_t index;
  uint32_t view;
  int64_t height, width;
} brim_transforms_view;
// One view: `in` (not written) to `out`. stage_ns (may be NULL): brim_transforms_count entries, each
// stage's time is added.
void brim_transforms_apply(const brim_transforms *transforms, const brim_transforms_view *view,
                           const void *in, void *out, void *scratch, int64_t *stage_ns);
// The pipeline as plain values, for a device. NULL if the source's images vary.
const brim_augment_program *brim_transforms_program(const brim_transforms *transforms);

//---------------------------------- resident sets ----------------------------------

// All samples of a source in device memory, read once by `threads`; loaders share it. The plan's
// row is "resident dataset" on the device. Samples that cannot be read are marked: a loader leaves
// them out as its workers would (skip_broken), or is not made, with what is wrong with the first.
typedef struct brim_resident brim_resident;
// Bytes on the device for this source and these transforms; 0 with the reason in the detail when the
// device cannot (no data.augment, images that vary, a stage it lacks). `transforms` NULL = none.
uint64_t brim_resident_bytes(const brim_registry *registry, const brim_device *device,
                             const brim_source *source, const brim_transforms *transforms);
brim_status brim_resident_create(const brim_registry *registry, brim_device *device,
                                 brim_source *source, uint64_t limit, int threads,
                                 brim_resident **out);
void brim_resident_destroy(brim_resident *resident);

// A mapped set: the samples stay in the source's mapped file (brim_source_rows_of), whose pages are
// locked, and the device reads rows over the bus, a batch ahead of the consumer. Targets are
// copied. The source must outlive the set. A loader's stream is the same as without the set.
// Returns the bytes of the file to lock; 0 with the reason in the detail if it cannot be.
uint64_t brim_mapped_bytes(const brim_registry *registry, const brim_device *device,
                           const brim_source *source, const brim_transforms *transforms);
// Locks one page of this file, to learn at the price of a system call whether device and file
// system allow it. BRIM_EUNSUPPORTED says why not.
brim_status brim_mapped_probe(const brim_registry *registry, brim_device *device,
                              const brim_source *source);
// BRIM_EUNSUPPORTED where the pages cannot be locked: workers can read the file all the same.
brim_status brim_mapped_create(const brim_registry *registry, brim_device *device,
                               brim_source *source, uint64_t limit, int threads,
                               brim_resident **out);
uint64_t brim_resident_locked_bytes(const brim_resident *resident);  // 0: samples were copied

//---------------------------------- loader ----------------------------------

typedef struct brim_loader_options {
  int64_t batch;
  int num_workers;      // 0 = inline
  int prefetch_factor;  // batches per worker kept ready, >= 1 (inline: ignored)
  int most_slots;       // batches of the ring at most, 4 or more; 0 = as many as the two above say
  bool pin_memory;
  bool shuffle;
  bool drop_last;
  bool once;  // an evaluation: what goes wrong names no epoch
  uint64_t seed;
  // Rank r of k takes positions r, r + k, r + 2k, ... of the common order: disjoint shares of
  // floor(count / k) samples each; up to k - 1 samples, others in each epoch, are left out.
  int rank, world;  // 0, 1 for one process
  uint64_t limit;   // use only the first `limit` samples; 0 = all
  // An epoch is a multiple of so many samples, the rest being left out, unless there are fewer; 0 = not
  int64_t multiple;
  // A sample that cannot be read is replaced by the next good one of the epoch's order, counted and
  // reported; false: it ends the run.
  bool skip_broken;
  // Borrowed, outlives the loader; made for this source. NULL = samples as they are.
  const brim_transforms *transforms;
  // Borrowed likewise: batches are made on the device, out of this; workers, prefetch and pinning do
  // not matter then. NULL = by workers.
  brim_resident *resident;
} brim_loader_options;

// One filled batch. `index` are the sample numbers (for tests and augmentation). With several views
// `input` holds views blocks of `batch` samples, one view after the other, and only whole batches
// are given out (drop_last is implied).
typedef struct brim_loaded {
  void *input;   // on_device: device memory, to be read in order on the device's main stream
  void *target;  // NULL = the source has none
  const uint64_t *index;
  bool on_device;
  int64_t rows;  // valid samples; the rest of the block is zero
  int64_t epoch;
  int64_t first;         // position in the epoch of row 0 (samples before it)
  bool last;             // last batch of its epoch
  int64_t io_ns;         // the worker's own time reading it
  int64_t transform_ns;  // and transforming it
} brim_loaded;

typedef struct brim_loader brim_loader;

// Adds the loader's and the source's rows to a plan, in host memory: "loader ring" (inputs, targets
// and indices of num_workers * prefetch_factor + 2 batches; beyond four only what fits in 1 GiB,
// since workers share large batches), "transform scratch" (of each worker, including a sample as
// read), "dataset" (the source's own memory: the classes of plain IDX and CIFAR files, nothing for
// synthetic data; with skip_broken one bit a sample) and "dataset cache" (brim_source_keep). With a
// resident set also "augmented batch" on the device; the set's own row is added by its plan
// function. Rows of the same name add up.
brim_status brim_loader_plan(const brim_source *source, const brim_loader_options *options,
                             brim_plan *plan);
// The same with the row "resident dataset", for a loader over a resident set that need not exist
// yet (options->resident is ignored). BRIM_EUNSUPPORTED if the set is impossible.
brim_status brim_resident_plan(const brim_registry *registry, const brim_device *device,
                               const brim_source *source, const brim_loader_options *options,
                               brim_plan *plan);
// The same for a mapped set: "mapped dataset (page-locked)" on the host, "resident targets" on the
// device.
brim_status brim_mapped_plan(const brim_registry *registry, const brim_device *device,
                             const brim_source *source, const brim_loader_options *options,
                             brim_plan *plan);
brim_status brim_loader_create(brim_device *device, brim_source *source,
                               const brim_loader_options *options, brim_loader **out);
void brim_loader_destroy(brim_loader *loader);
// Samples and batches this rank sees per epoch, without those that drop_last leaves out.
int64_t brim_loader_samples(const brim_loader *loader);
int64_t brim_loader_batches(const brim_loader *loader);
// Go to a sample position of an epoch (0 <= position <= samples, a batch boundary or not: the first
// batch then starts exactly there). Drops what was prefetched, unless that is what comes next there.
brim_status brim_loader_seek(brim_loader *loader, int64_t epoch, int64_t position);
// Next batch, into the following epoch after the last; waits when none is ready. The caller gives
// it back with brim_loader_release before taking more than the ring holds (2 may always be kept).
// A failure to read names the sample and stays the answer until a seek.
brim_status brim_loader_next(brim_loader *loader, const brim_loaded **out);
void brim_loader_release(brim_loader *loader, const brim_loaded *batch);

// Totals over all workers so far, for reports. They cost two clock reads per stage and sample.
#define BRIM_LOADER_MAX_STAGES 16
typedef struct brim_loader_stats {
  uint64_t batches, samples;
  int64_t read_ns;  // reading and decoding
  size_t stage_count;
  const char *stage[BRIM_LOADER_MAX_STAGES];  // the transforms' names
  int64_t stage_ns[BRIM_LOADER_MAX_STAGES];
  uint64_t broken;         // samples left out under skip_broken, however often their turn came
  uint64_t broken_reads;   // and how often it came
  char first_broken[256];  // what was wrong with the first
} brim_loader_stats;
void brim_loader_get_stats(brim_loader *loader, brim_loader_stats *out);
// A bit for each sample of the set that was left out, for the thread that takes batches; NULL without
// skip_broken. Loaders of several ranks have as many bytes.
const uint8_t *brim_loader_left_out(const brim_loader *loader, size_t *bytes);

#endif  // BRIM_DATA_H_
