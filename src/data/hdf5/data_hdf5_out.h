// How libhdf5 writes here: through a driver of our own, which keeps the reason when the system
// refuses. Only for the files that call the library; handles are int64_t, as everywhere.
#ifndef BRIM_DATA_HDF5_OUT_H_
#define BRIM_DATA_HDF5_OUT_H_

#include "data/hdf5/data_hdf5.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_hdf5_out {
  int fd;   // for reading too: the library looks at what it wrote
  int err;  // errno of the first write that failed
  int64_t driver;
} brim_hdf5_out;

// Under the library's lock: a new file at `path`, whose descriptor out->fd is; the file's handle, < 0
// where it failed (out->err, or what the library says).
int64_t brim_hdf5_out_create(brim_hdf5_out *out, const char *path);
// After H5Fclose, likewise.
void brim_hdf5_out_close(brim_hdf5_out *out);
// Without it: until nothing is left or the system refuses.
void brim_hdf5_out_write(brim_hdf5_out *out, const void *data, size_t size, uint64_t offset);
// Under the lock: properties of objects without a time in them, so that the same is the same bytes.
int64_t brim_hdf5_out_timeless(int64_t plist_class);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DATA_HDF5_OUT_H_
