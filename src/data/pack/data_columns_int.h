// Inside the tables: what the text and the HDF5 writer share.
#ifndef BRIM_DATA_COLUMNS_INT_H_
#define BRIM_DATA_COLUMNS_INT_H_

#include "base/base_fs.h"
#include "data/pack/data_columns.h"

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
  bool replace, to_stdout;
  int fd;      // -1 = none
  char *temp;  // its name till it is whole; NULL = it has none
  brim_str line;
  struct brim_columns_hdf5 *hdf5;
};

static inline int64_t brim_column_width(const brim_column *c) {
  return c->width > 0 ? c->width : 1;
}

// data_columns_target.c: the file that c->path will be the name of, open in c->fd. take: it is whole and
// gets its name. close: closes it, and removes it where it has none.
brim_status brim_columns_target_open(brim_columns *c);
brim_status brim_columns_target_write(brim_columns *c, const char *data, size_t size);
brim_status brim_columns_target_take(brim_columns *c);
void brim_columns_target_close(brim_columns *c);

// data_columns_hdf5.c
brim_status brim_columns_hdf5_open(brim_columns *c);
brim_status brim_columns_hdf5_put(brim_columns *c, const void *const *data, uint64_t rows);
// good: what libhdf5 keeps is written. Frees c->hdf5.
brim_status brim_columns_hdf5_close(brim_columns *c, bool good);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DATA_COLUMNS_INT_H_
