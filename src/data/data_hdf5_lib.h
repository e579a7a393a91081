// Between the two files that call libhdf5. No header of the library here: handles are int64_t.
#ifndef BRIM_DATA_HDF5_LIB_H_
#define BRIM_DATA_HDF5_LIB_H_

#include "data/data_hdf5.h"

#ifdef __cplusplus
extern "C" {
#endif

// A read into `buffer` is not done: the driver only notes where it would have read.
typedef struct brim_hdf5_record {
  const void *buffer;
  uint64_t address, size;
  bool hit;
  bool no_memory;  // for the driver itself
} brim_hdf5_record;

typedef struct brim_hdf5_number {
  bool numeric, integer;
  bool plain;  // `type` is what it is; else only the library can convert it
  brim_hdf5_type type;
  const char *other;  // what to call it where it is not plain
} brim_hdf5_number;
brim_hdf5_number brim_hdf5_number_of(int64_t type);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DATA_HDF5_LIB_H_
