// Inside the tables: what the text and the HDF5 writer share.
#ifndef BRIM_DATA_COLUMNS_INT_H_
#define BRIM_DATA_COLUMNS_INT_H_

#include "base/base_fs.h"
#include "data/data_columns.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BRIM_COLUMNS_MAX = 16 };

struct brim_columns {
  char *path;
  brim_columns_format format;
  brim_column column[BRIM_COLUMNS_MAX];
  size_t count;
  uint64_t rows, written;
  brim_fs_writer *text;  // CSV and JSON lines
  brim_str line;
  struct brim_columns_hdf5 *hdf5;
};

static inline int64_t brim_column_width(const brim_column *c) {
  return c->width > 0 ? c->width : 1;
}

// data_columns_hdf5.c
brim_status brim_columns_hdf5_open(brim_columns *c);
brim_status brim_columns_hdf5_put(brim_columns *c, const void *const *data, uint64_t rows);
// good: the file takes its name; else it is removed. Frees c->hdf5.
brim_status brim_columns_hdf5_close(brim_columns *c, bool good);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DATA_COLUMNS_INT_H_
