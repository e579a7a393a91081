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

// Inputs that lie unconverted in a mapped file, at equal distances. The host reads them only inside a
// guard (base_map.h); this struct just says where they lie.
typedef struct brim_source_rows {
  const uint8_t *first;  // row 0
  uint64_t stride;       // bytes from a row to the next
  uint64_t count;
} brim_source_rows;

enum { BRIM_SOURCE_FILES = 8 };  // files of a format with fixed file names

typedef struct brim_source {
  const brim_source_table *table;
  void *state;
  brim_source_info info;  // info.count: samples in use
  size_t input_bytes;     // of one sample; of the largest if info.varies
  size_t target_bytes;    // of one sample; 0 = no target
  uint64_t host_bytes;    // planned memory of the source, without the cache
  bool binary_targets;  // targets are rows of 0 and 1: several labels a sample, each present or not
  bool val_is_test;     // opened as val, and its samples are those of the test split
  // Private to data_source.c: which of the table's samples are in use, and their copies in memory.
  struct brim_source_part *part;
  struct brim_source_cache *cache;
  const struct brim_source_builtin *builtin;  // NULL for a plug-in
} brim_source;

// For a program that uses libhdf5 only through brim: call it before anything else. The library then
// stays open when the process ends, because closing crashes on what it keeps of some damaged files.
void brim_data_leave_hdf5_open(void);

// component: idx, mnist, numpy, cifar10, cifar100, stl10, hdf5, folder, synthetic(...), or plugin:NAME(...)
// looked up as "data.source/NAME". Besides its own arguments every component takes part=(0, 0.8) (this
// share of a random order by seed) and indices=FILE (sample numbers, one a line).
// path: file or folder. split: train, val, test, unlabeled, all; NULL = the component's argument
// `split`, else train.
brim_status brim_source_open(const brim_registry *registry, const brim_component *component,
                             const char *path, const char *split, uint64_t seed, brim_source **out);
void brim_source_close(brim_source *source);
// Guesses the component for a path: hdf5 for a file with HDF5's signature, else idx, numpy, cifar10,
// cifar100, stl10 or folder by the files found. The detail of BRIM_ENOENT or BRIM_EINVAL says what was
// looked for.
brim_status brim_source_guess(const char *path, brim_component *out);
// True if the path is a file of another program (CSV, Parquet). brim_source_guess refuses it and
// says how to convert it.
bool brim_source_is_foreign(const char *path);
// True if the path is one existing image (photo.jpg). folder opens it as a set of one sample.
bool brim_source_is_image(const char *path);
// The status of a failed open: BRIM_EIO and BRIM_EUNSUPPORTED become BRIM_EINVAL, since a file that
// cannot be read is bad input, not a failure of a run or a device. The detail stays.
brim_status brim_source_open_failed(brim_status status);
// Checks that the training and the evaluation set can serve one network. a and b are their infos,
// or what transforms make of them. BRIM_EINVAL names both sets and what differs: shape, type,
// targets or labels. any_size: height and width of images may differ. `advice` ends the message on
// shapes; "" for none.
brim_status brim_source_match(const brim_source *train, const brim_source_info *a,
                              const brim_source *eval, const brim_source_info *b, bool any_size,
                              const char *advice);
// Keeps positions [from, to) (shares of 1) of a random order of the samples in use. The order depends on
// the seed alone: [0, 0.9) and [0.9, 1) are disjoint, and together they are all samples.
brim_status brim_source_take(brim_source *source, double from, double to, uint64_t seed);
// Keeps `limit` of the samples in use (all, if 0 or more than there are). If classes are known
// without reading, each class keeps its share, at least one sample if the limit allows; otherwise
// samples are chosen by seed over the whole set.
brim_status brim_source_limit(brim_source *source, uint64_t limit, uint64_t seed);
// Lists what none of the sources (splits of one data set) reads at their path: datasets of HDF5 files,
// files of image folders. `out` gets the first names, `left` the number and the bytes of files.
typedef struct brim_source_left {
  size_t count;
  uint64_t files, bytes;  // both 0 for datasets of HDF5 files
} brim_source_left;
brim_status brim_source_unused(brim_source *const *sources, size_t source_count, brim_str *out,
                               brim_source_left *left);
// Counts the files that the sources (splits of one data set) read, each once, and their bytes. False if
// one of the sources does not know its files.
bool brim_source_files(brim_source *const *sources, size_t source_count, uint64_t *files,
                       uint64_t *bytes);
// Reads one sample. `input` has room for input_bytes. An image may be decoded down to 1/scale;
// *height and *width are its decoded size (may be NULL unless info.varies). Thread-safe. Failures name
// the file and record.
brim_status brim_source_read(brim_source *source, uint64_t index, int scale, void *input,
                             void *target, int64_t *height, int64_t *width);
// Reads a sample that is not read again soon: a large one is written past the caches if the source
// can, and the memory of sample `next` (any number, only a hint) is prefetched. Not for samples of
// different sizes.
brim_status brim_source_stream(brim_source *source, uint64_t index, uint64_t next, void *input,
                               void *target);
// The inputs of all samples of the file, in use or not; false if they do not lie in one mapping.
// brim_source_row gives the row of a sample, brim_source_target reads its target alone.
bool brim_source_rows_of(const brim_source *source, brim_source_rows *out);
uint64_t brim_source_row(const brim_source *source, uint64_t index);
brim_status brim_source_target(brim_source *source, uint64_t index, void *target);
// Fails with BRIM_EINVAL if opening found unreadable samples among the first `limit` (0 = all); the
// message counts them and names the first. Reads nothing again.
brim_status brim_source_check_readable(brim_source *source, uint64_t limit);
// The size of a sample before decoding.
brim_status brim_source_size(brim_source *source, uint64_t index, int64_t *height, int64_t *width);
void brim_source_describe(const brim_source *source, uint64_t index, char *text, size_t size);
// Class names by label, if the set has names (folders of images, text labels, HDF5's class_names,
// CIFAR, STL-10), as UTF-8 with other bytes written as \xNN; else *names is NULL. Pass the component,
// path and split that the source was opened with (component NULL = no arguments). The list lives in the
// arena or is static.
brim_status brim_source_class_names(brim_arena *arena, const brim_source *source,
                                    const brim_component *component, const char *path,
                                    const char *split, const char *const **names);
// Describes where number `value` of the sample's target comes from.
void brim_source_describe_target(const brim_source *source, uint64_t index, int64_t value,
                                 char *text, size_t size);
// brim_source_keep keeps every sample in memory after its first read. It allocates
// brim_source_cache_bytes, which a plan counts. Not for sources whose images vary in size.
uint64_t brim_source_cache_bytes(const brim_source *source);
brim_status brim_source_keep(brim_source *source);

// Parses the header of an IDX file in memory and checks it against the file's size. `name` is for
// messages.
typedef struct brim_idx {
  int type;  // IDX type code: 0x08 u8, 0x0D f32, ...
  int rank;
  int64_t dim[4];
  size_t header_bytes;
  size_t element_bytes;
} brim_idx;
brim_status brim_idx_parse(const void *data, size_t size, const char *name, brim_idx *out);

//---------------------------------- transforms ----------------------------------

// Everything done to a sample between the source and the batch. Prepared once and shared by all
// threads. The result depends on (seed, epoch, sample) alone, not on workers or a seek.
typedef struct brim_transforms brim_transforms;

// `random` false drops the random stages (for evaluation); no stage may be left. The source is used only
// during the call. If its images vary in size, the first stage must give them one size (resize,
// center_crop, random_crop, random_resized_crop), else BRIM_EINVAL. normalize and to_tensor take no
// time: bytes stay bytes, and the network's input does the arithmetic (info.mean, info.std). Both are
// refused in front of another stage.
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
// The largest factor (1, 2, 4, 8) by which an image of this size may be decoded smaller without loss to
// any view of the sample.
int brim_transforms_scale(const brim_transforms *transforms, int64_t epoch, uint64_t index,
                          int64_t height, int64_t width);
// A view of a sample, and the sample's size as read.
typedef struct brim_transforms_view {
  int64_t epoch;
  uint64_t index;
  uint32_t view;
  int64_t height, width;
} brim_transforms_view;
// Transforms `in` into one view in `out`. Adds the time of each stage to stage_ns
// (brim_transforms_count entries, or NULL).
void brim_transforms_apply(const brim_transforms *transforms, const brim_transforms_view *view,
                           const void *in, void *out, void *scratch, int64_t *stage_ns);
// The pipeline as plain values, for a device. NULL if the source's images vary.
const brim_augment_program *brim_transforms_program(const brim_transforms *transforms);

//---------------------------------- resident sets ----------------------------------

// All samples of a source in device memory, read once by `threads` threads and shared by loaders. Its
// row in the plan is "resident dataset" on the device. Unreadable samples are marked: with skip_broken a
// loader replaces them as its workers would, else brim_loader_create fails with the error of the first.
typedef struct brim_resident brim_resident;
// Bytes on the device for this source and these transforms; 0 with the reason in the detail when the
// device cannot hold the set (no data.augment, images that vary, a stage it lacks). `transforms` may be
// NULL.
uint64_t brim_resident_bytes(const brim_registry *registry, const brim_device *device,
                             const brim_source *source, const brim_transforms *transforms);
brim_status brim_resident_create(const brim_registry *registry, brim_device *device,
                                 brim_source *source, uint64_t limit, int threads,
                                 brim_resident **out);
void brim_resident_destroy(brim_resident *resident);

// A mapped set: the samples stay in the source's mapped file (brim_source_rows_of), whose pages are
// locked, and the device reads rows over the bus, a batch ahead of the consumer. Targets are
// copied. The source must outlive the set. A loader's stream is the same as without the set.
// Returns the bytes of the file to lock; 0 with the reason in the detail if a mapped set is impossible.
uint64_t brim_mapped_bytes(const brim_registry *registry, const brim_device *device,
                           const brim_source *source, const brim_transforms *transforms);
// Locks one page of the file and unlocks it, to learn cheaply whether device and file system allow it.
// BRIM_EUNSUPPORTED says why not.
brim_status brim_mapped_probe(const brim_registry *registry, brim_device *device,
                              const brim_source *source);
// BRIM_EUNSUPPORTED if the pages cannot be locked; workers can still read the file.
brim_status brim_mapped_create(const brim_registry *registry, brim_device *device,
                               brim_source *source, uint64_t limit, int threads,
                               brim_resident **out);
uint64_t brim_resident_locked_bytes(const brim_resident *resident);  // 0: samples were copied

//---------------------------------- loader ----------------------------------

typedef struct brim_loader_options {
  int64_t batch;
  int num_workers;      // 0 = inline
  int prefetch_factor;  // batches per worker kept ready, >= 1 (inline: ignored)
  int most_slots;       // most batches of the ring (4 if less); 0 = as many as fit in 1 GiB
  bool pin_memory;
  bool shuffle;
  bool drop_last;
  bool once;  // an evaluation: errors name no epoch
  uint64_t seed;
  // Rank r of k takes positions r, r + k, r + 2k, ... of the common order: disjoint shares of
  // floor(count / k) samples each. Each epoch leaves out up to k - 1 samples, not always the same.
  int rank, world;  // 0, 1 for one process
  uint64_t limit;   // use only the first `limit` samples; 0 = all
  // Round the rank's samples of an epoch down to a multiple of this, unless it has fewer; 0 = do not.
  int64_t multiple;
  // True: an unreadable sample is replaced by the next readable one of the epoch's order, counted and
  // reported. False: it ends the run.
  bool skip_broken;
  // Made for this source; must outlive the loader. NULL = samples as they are.
  const brim_transforms *transforms;
  // Makes batches on the device from this set, which must outlive the loader; num_workers,
  // prefetch_factor and pin_memory are then ignored. NULL = workers make the batches.
  brim_resident *resident;
} brim_loader_options;

// One filled batch. `index` holds the sample numbers (for tests and augmentation). With several views
// `input` holds one block of `batch` samples a view, and only whole batches are handed out (drop_last
// is implied).
typedef struct brim_loaded {
  void *input;   // on_device: device memory, to be read in order on the device's main stream
  void *target;  // NULL = the source has none
  const uint64_t *index;
  bool on_device;
  int64_t rows;  // valid samples; the rest of the block is zero
  int64_t epoch;
  int64_t first;         // position in the epoch of row 0 (samples before it)
  bool last;             // last batch of its epoch
  int64_t io_ns;         // time workers spent reading it, summed
  int64_t transform_ns;  // time workers spent transforming it, summed
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
// Like brim_loader_plan, plus the row "resident dataset", for a loader over a resident set that need
// not exist yet (options->resident is ignored). BRIM_EUNSUPPORTED if the set is impossible.
brim_status brim_resident_plan(const brim_registry *registry, const brim_device *device,
                               const brim_source *source, const brim_loader_options *options,
                               brim_plan *plan);
// Like brim_resident_plan for a mapped set, whose rows are "mapped dataset (page-locked)" on the host and
// "resident targets" on the device.
brim_status brim_mapped_plan(const brim_registry *registry, const brim_device *device,
                             const brim_source *source, const brim_loader_options *options,
                             brim_plan *plan);
brim_status brim_loader_create(brim_device *device, brim_source *source,
                               const brim_loader_options *options, brim_loader **out);
void brim_loader_destroy(brim_loader *loader);
// Samples and batches this rank sees per epoch, without those that drop_last leaves out.
int64_t brim_loader_samples(const brim_loader *loader);
int64_t brim_loader_batches(const brim_loader *loader);
// Goes to a sample position of an epoch, 0 to brim_loader_samples. The next batch starts exactly there,
// even inside a batch. Drops prefetched batches, unless the next one already starts there.
brim_status brim_loader_seek(brim_loader *loader, int64_t epoch, int64_t position);
// Returns the next batch, waiting until it is ready; the last batch of an epoch is followed by the
// first of the next. The caller gives batches back with brim_loader_release and may always hold 2. A
// failure to read names the sample, and further calls fail alike until a seek.
brim_status brim_loader_next(brim_loader *loader, const brim_loaded **out);
void brim_loader_release(brim_loader *loader, const brim_loaded *batch);

// Totals of the batches handed out so far, for reports. They cost two clock reads per stage and sample.
#define BRIM_LOADER_MAX_STAGES 16
typedef struct brim_loader_stats {
  uint64_t batches, samples;
  int64_t read_ns;  // reading and decoding
  size_t stage_count;
  const char *stage[BRIM_LOADER_MAX_STAGES];  // the transforms' names
  int64_t stage_ns[BRIM_LOADER_MAX_STAGES];
  uint64_t broken;         // samples left out under skip_broken, each counted once
  uint64_t broken_reads;   // the same samples, counted each time their turn came
  char first_broken[256];  // the error of the first
} brim_loader_stats;
void brim_loader_get_stats(brim_loader *loader, brim_loader_stats *out);
// Bit i is set if sample i was left out; NULL without skip_broken. *bytes is the same on all ranks. Call
// it from the thread that takes batches.
const uint8_t *brim_loader_left_out(const brim_loader *loader, size_t *bytes);

#endif  // BRIM_DATA_H_
