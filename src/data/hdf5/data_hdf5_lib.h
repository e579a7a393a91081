// Between the files that call libhdf5. No header of the library
// here: handles are int64_t.
#ifndef BRIM_DATA_HDF5_LIB_H_
#define BRIM_DATA_HDF5_LIB_H_

#include "data/hdf5/data_hdf5.h"

#ifdef __cplusplus
extern "C" {
#endif

// h5py's lzf, as registered with the HDF Group. libhdf5 learns to undo it on the first enter.
enum { BRIM_HDF5_LZF_NUMBER = 32000 };

// A read into `buffer` is not done: the driver only notes where it would have read.
typedef struct brim_hdf5_record {
  const void *buffer;
  uint64_t address, size;
  bool hit;
  bool no_memory;                      // for the driver itself
  struct brim_hdf5_driver_file *open;  // what the library has not closed yet
} brim_hdf5_record;

typedef struct brim_hdf5_number {
  bool numeric, integer;
  bool plain;  // `type` is what it is; else only the library can convert it
  brim_hdf5_type type;
  const char *other;  // what to call it where it is not plain
} brim_hdf5_number;
brim_hdf5_number brim_hdf5_number_of(int64_t type);

// Data in other files (data_hdf5_outside.c), all inside the library's lock. A property list to open
// datasets and links with: external links fail unless `outside`; external storage lies in the folder
// of the file that names it. -1 = none.
int64_t brim_hdf5_access(bool outside);
// Whether the library would wait for what an external link of the file `parent` names: a pipe or a
// device. Such a link fails.
bool brim_hdf5_link_waits(const char *parent, const char *name);
// Whether a virtual dataset of the file `path` has such a source, by its name in `out`. The library opens
// sources as soon as it is asked for the shape of a dataset that may grow: this comes before.
bool brim_hdf5_sources_wait(const char *path, int64_t dataset, char *out, size_t room);
// Whether the dataset takes data from another file; the name of the first one in `out`.
bool brim_hdf5_outside(const brim_hdf5_file *file, int64_t dataset, char *out, size_t room);
// Whether everything it takes data from is there, with what it takes. One that takes them from other
// files is opened by the library's own driver.
brim_status brim_hdf5_outside_check(const char *path, const char *name, int64_t dataset);
// The dataset by the library's own driver, which can open other files; where bytes stand for the
// file, in `mapped`. Its file is open as long as it is. Why not, in why[BRIM_HDF5_REASON].
enum { BRIM_HDF5_REASON = 160 };
int64_t brim_hdf5_library_dataset(const brim_map *map, int64_t mapped, const char *name,
                                  bool outside, char *why);

// The type of a dataset's rows in memory: its own, or floats where only the library can convert it.
int64_t brim_hdf5_memory_type(int64_t type);
// Rows [first, first + count) of a dataset, in memory as `type`; false with why[BRIM_HDF5_REASON].
typedef struct brim_hdf5_rows {
  int64_t dataset, type;
  int rank;
  const uint64_t *dim;
  uint64_t first, count;
  int64_t transfer;  // property list; 0 = the library's defaults
} brim_hdf5_rows;
bool brim_hdf5_library_rows(const brim_hdf5_rows *rows, void *out, char *why);
// Of a dataset that only the library reads, in the helper (map, name, rank, dim, row_bytes and outside
// are given): opened, and one row of it.
brim_status brim_hdf5_library_open(brim_hdf5_array *a);
brim_status brim_hdf5_library_row(const brim_hdf5_array *a, uint64_t index, uint8_t *row);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DATA_HDF5_LIB_H_
