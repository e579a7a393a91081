// Writing data sets in the formats that sources read: packed HDF5, IDX, CIFAR, STL-10, folders of
// images. All of it goes to a temporary beside the target, which takes the target's name when it is
// whole. Samples come in order, in blocks; what is costly about a block is shared among threads.
// Callers: `brim data make` and `convert`.
//
// HDF5: a group for each split (`train`, `val`, `test`, `unlabeled`; `all` is the root) with `x`
// (samples, shape...) of uint8 or float32 and `y`: int32 (samples) for classes, float32 (samples,
// targets) for numbers, none where there is no target. Attributes of the group and of `x`: `layout`
// ("NHWC" for images, else "N..."), `mean` and `std` where known; of the group and of `y`: `classes`
// and `class_names`.
#ifndef BRIM_DATA_PACK_H_
#define BRIM_DATA_PACK_H_

#include "data/data.h"

typedef enum brim_pack_format {
  BRIM_PACK_HDF5,
  BRIM_PACK_IDX,  // this and those below are folders
  BRIM_PACK_CIFAR10,
  BRIM_PACK_CIFAR100,
  BRIM_PACK_STL10,
  BRIM_PACK_PNG,  // folders of images
  BRIM_PACK_JPG,
  BRIM_PACK_FORMAT_COUNT
} brim_pack_format;

const char *brim_pack_format_name(brim_pack_format format);
// The source that reads it: "hdf5", "idx", ..., "folder".
const char *brim_pack_format_source(brim_pack_format format);

typedef struct brim_pack_options {
  brim_pack_format format;
  // Replace an existing target. A folder is replaced only if it is empty, or carries the mark of a set
  // that brim wrote and holds nothing else; never a mount point, nor a folder that holds the current
  // folder, the home folder, the program or the input.
  bool replace;
  const char *input;  // path of what is read; NULL = none. Borrowed like class_names
  int64_t chunk;      // HDF5: samples in a chunk; 0 = contiguous
  int deflate;        // HDF5: 0 (none) to 9; brim picks the chunk size if chunk is 0
  bool shuffle;  // HDF5: store the first bytes of all values, then the second, ..., before deflate
  int quality;   // JPEG: 1 to 100
  // Names of the classes by label, NULL = their numbers. Borrowed until commit or abort.
  const char *const *class_names;
  size_t class_count;
  brim_pool *pool;  // borrowed
} brim_pack_options;

typedef struct brim_pack brim_pack;

// Checks that the format can hold such samples; BRIM_EINVAL says what it takes. `split`: train,
// val, test, unlabeled or all.
brim_status brim_pack_check(brim_pack_format format, const char *split,
                            const brim_source_info *info);
// BRIM_EEXIST if the target exists and `replace` is false.
brim_status brim_pack_create(const char *path, const brim_pack_options *options, brim_pack **out);
// A split of info->count samples, all of one size (info->varies is not looked at).
brim_status brim_pack_begin(brim_pack *pack, const char *split, const brim_source_info *info);
// Every block but the last of a split holds a multiple of this many samples.
uint64_t brim_pack_granule(const brim_pack *pack);
// The next `count` samples, packed: inputs, then targets (int32 each, or target_dim floats; NULL
// without).
brim_status brim_pack_put(brim_pack *pack, const void *inputs, const void *targets, uint64_t count);
// The split is complete: BRIM_ESTATE when it has fewer samples than it was begun with.
brim_status brim_pack_end(brim_pack *pack);
// Everything is written and closed; *temporary (the pack's) can be opened as a source.
brim_status brim_pack_seal(brim_pack *pack, const char **temporary);
brim_status brim_pack_commit(brim_pack *pack);  // frees it, whatever the result
void brim_pack_abort(brim_pack *pack);          // removes the temporary; NULL is fine
// Bytes in files of the temporary so far.
uint64_t brim_pack_bytes(const brim_pack *pack);

// Bytes of a file, or of all files below a folder.
brim_status brim_data_disk_bytes(const char *path, uint64_t *bytes, uint64_t *files);

//---------------------------------- what an HDF5 file holds ----------------------------------

typedef struct brim_pack_dataset {
  char name[256];  // "/train/x"
  char type[32];   // "uint8", "float32 big-endian", "string"
  int rank;
  int64_t dim[8];
  char storage[96];  // "contiguous", "chunked (64, 32, 32, 3), shuffle, deflate 4"
  uint64_t bytes;    // on disk
} brim_pack_dataset;
// Every dataset, by name, at most 1000; brim_free. `outside`: the user allows links and storage in
// other files.
brim_status brim_pack_list(const char *path, bool outside, brim_pack_dataset **out, size_t *count);
// Reads the names of the classes into the arena: from the attribute class_names of the split's
// group or of its `y`, else from a dataset listed in brim_hdf5_class_lists. *names = NULL if there
// are none or their number is not `classes`.
brim_status brim_pack_class_names(brim_arena *arena, const char *path, const char *split,
                                  int64_t classes, bool outside, const char *const **names);

#endif  // BRIM_DATA_PACK_H_
