// Datasets and rows that only libhdf5 can read, all inside its lock. Callers: the files that find a
// layout, and the helper program that reads rows.
#include <hdf5.h>
#include <inttypes.h>

#include "data/hdf5/data_hdf5_lib.h"

enum { REASON = BRIM_HDF5_REASON };

// Not through our driver: its data may lie in other files.
int64_t brim_hdf5_library_dataset(const brim_map *map, int64_t mapped, const char *name,
                                  bool outside, char *why) {
  bool other = map->fd >= 0;
  hid_t access = brim_hdf5_access(outside);
  hid_t file = other ? H5Fopen(map->path, H5F_ACC_RDONLY, H5P_DEFAULT) : mapped;
  hid_t dataset = file >= 0 && access >= 0 ? H5Dopen2(file, name, access) : -1;
  if (dataset < 0) brim_hdf5_reason(why, REASON);
  if (other && file >= 0) (void)H5Fclose(file);
  if (access >= 0) (void)H5Pclose(access);
  return dataset;
}

int64_t brim_hdf5_memory_type(int64_t type) {
  brim_hdf5_number number = brim_hdf5_number_of(type);
  return H5Tcopy(number.plain ? type : H5T_NATIVE_FLOAT);
}

brim_status brim_hdf5_library_open(brim_hdf5_array *a) {
  char why[REASON];
  uint64_t elements = 1;
  a->dataset = brim_hdf5_library_dataset(a->map, -1, a->name, a->outside, why);
  if (a->dataset < 0) return brim_fail(BRIM_EPARSE, "%s: %s: %s", a->map->path, a->name, why);
  hid_t type = H5Dget_type(a->dataset);
  a->memory_type = type >= 0 ? brim_hdf5_memory_type(type) : -1;
  if (type >= 0) (void)H5Tclose(type);
  for (int d = 1; d < a->rank; d++) elements *= a->dim[d];
  if (a->memory_type >= 0 && H5Tget_size(a->memory_type) * elements == a->row_bytes) return BRIM_OK;
  return brim_fail(BRIM_EIO, "%s: the file was removed or replaced", a->map->path);
}

bool brim_hdf5_library_rows(const brim_hdf5_rows *rows, void *out, char *why) {
  hsize_t start[H5S_MAX_RANK] = {rows->first}, size[H5S_MAX_RANK] = {rows->count};
  for (int d = 1; d < rows->rank; d++) size[d] = rows->dim[d];
  hid_t space = H5Dget_space(rows->dataset), memory = H5Screate_simple(rows->rank, size, NULL);
  herr_t status = -1;
  if (space >= 0 && memory >= 0 &&
      H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, size, NULL) >= 0)
    status = H5Dread(rows->dataset, rows->type, memory, space, rows->transfer, out);
  if (status < 0) brim_hdf5_reason(why, REASON);
  if (space >= 0) (void)H5Sclose(space);
  if (memory >= 0) (void)H5Sclose(memory);
  return status >= 0;
}

brim_status brim_hdf5_library_row(const brim_hdf5_array *a, uint64_t index, uint8_t *row) {
  char why[REASON];
  const brim_hdf5_rows rows = {a->dataset, a->memory_type, a->rank, a->dim, index, 1, H5P_DEFAULT};
  if (!brim_hdf5_library_rows(&rows, row, why))
    return brim_fail(BRIM_EIO, "%s: %s[%" PRIu64 "]: %s", a->map->path, a->name, index, why);
  return BRIM_OK;
}
