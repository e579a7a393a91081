// The datasets of one source: opened with libhdf5, by this process and before that by the helper.
// Inside src/data/hdf5.
#ifndef BRIM_DATA_HDF5_SET_H_
#define BRIM_DATA_HDF5_SET_H_

#include "data/hdf5/data_hdf5.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_hdf5_set {
  brim_hdf5_file file;
  brim_hdf5_choice choice;  // of the file's entries
  brim_hdf5_array inputs[BRIM_HDF5_MAX_ARRAYS], targets[BRIM_HDF5_MAX_ARRAYS];
  size_t input_count, target_count;
  int32_t *labels;            // planned
  brim_data_classes classes;  // of text labels; without names otherwise
  uint64_t rows;              // of the file; info.count may be fewer
  brim_source_info info;
  bool binary_targets;
  bool fills;  // inputs that are not finite are read as `nan`
  float nan;
  uint64_t input_values;  // of a sample
  bool val_is_test;       // the test split stands in for a missing val
} brim_hdf5_set;

typedef struct brim_hdf5_set_args {
  const char *path, *split, *layout;
  const json_t *inputs, *targets;
  int64_t limit, classes;  // classes: 0 = regression, -1 = not given
  uint64_t cache;
  bool outside;   // data in other files may be read
  uint64_t keep;  // of what only libhdf5 can read, that much comes into memory
  bool fills;     // nan= was given
  float nan;
  char *at;  // in the helper: the file it is at; else NULL
} brim_hdf5_set_args;

// Inputs, targets and labels of a file; `whole`: the file is the split, so others lie beside it.
brim_status brim_hdf5_set_open(brim_hdf5_set *s, const brim_hdf5_set_args *args, const char *path,
                               bool whole);
// The same in the helper first. Fails when that ends the helper.
brim_status brim_hdf5_set_probe(const brim_hdf5_set_args *args, const char *file, bool whole);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DATA_HDF5_SET_H_
