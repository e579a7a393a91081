// Tables as HDF5: the library lays the datasets out, rows are written at their offsets.
#include <errno.h>
#include <hdf5.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "data/hdf5/data_hdf5_out.h"
#include "data/pack/data_columns_int.h"

typedef struct brim_columns_hdf5 {
  brim_hdf5_out out;
  hid_t file;
  uint64_t offset[BRIM_COLUMNS_MAX];
  char *texts;  // room for a block of strings
  size_t texts_bytes;
} brim_columns_hdf5;

static brim_status fail_errno(const brim_columns *c, int err) {
  brim_status status = err == ENOMEM ? BRIM_ENOMEM : brim_errno_status(err);
  return brim_fail(status, "cannot write %s: %s", c->path, brim_errno_text(err));
}

static brim_status fail_hdf5(const brim_columns *c) {
  char text[256];
  if (c->hdf5->out.err) return fail_errno(c, c->hdf5->out.err);
  return brim_fail(BRIM_EIO, "cannot write %s: libhdf5: %s", c->path,
                   brim_hdf5_reason(text, sizeof text));
}

//---------------------------------- the layout ----------------------------------

// Bytes of one value.
static size_t value_bytes(const brim_column *column) {
  switch (column->kind) {
    case BRIM_COLUMN_INDEX:
      return sizeof(uint64_t);
    case BRIM_COLUMN_LABEL:
    case BRIM_COLUMN_REAL:
      return 4;
    case BRIM_COLUMN_TEXT:
    case BRIM_COLUMN_KIND_COUNT:
      break;
  }
  return column->text_bytes ? column->text_bytes : 1;
}

static hid_t string_type(size_t bytes) {
  hid_t type = H5Tcopy(H5T_C_S1);
  if (type >= 0 && (H5Tset_size(type, bytes) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0)) {
    H5Tclose(type);
    return -1;
  }
  return type;
}

static hid_t type_of(const brim_column *column) {
  if (column->kind == BRIM_COLUMN_TEXT) return string_type(value_bytes(column));
  return H5Tcopy(column->kind == BRIM_COLUMN_INDEX   ? H5T_STD_I64LE
                 : column->kind == BRIM_COLUMN_LABEL ? H5T_STD_I32LE
                                                     : H5T_IEEE_F32LE);
}

// Attributes live in an object header of at most 64 KiB; thousands of names are left out.
static brim_status put_names(const brim_columns *c, hid_t dataset, const char *attribute,
                             const char *const *names, size_t count) {
  size_t longest = 1;
  for (size_t i = 0; i < count; i++) {
    size_t n = strlen(names[i]) + 1;
    if (n > longest) longest = n;
  }
  if (count == 0 || count * longest > 60000) return BRIM_OK;
  char *text = brim_calloc(count, longest);
  if (!text) return brim_fail(BRIM_ENOMEM, "out of memory while writing %s", c->path);
  for (size_t i = 0; i < count; i++) snprintf(text + i * longest, longest, "%s", names[i]);
  hsize_t dim = count;
  hid_t type = string_type(longest), space = H5Screate_simple(1, &dim, NULL), at = -1;
  if (type >= 0 && space >= 0) {
    at = H5Acreate2(dataset, attribute, type, space, H5P_DEFAULT, H5P_DEFAULT);
  }
  brim_status status = at >= 0 && H5Awrite(at, type, text) >= 0 ? BRIM_OK : fail_hdf5(c);
  if (at >= 0) H5Aclose(at);
  if (space >= 0) H5Sclose(space);
  if (type >= 0) H5Tclose(type);
  brim_free(text);
  return status;
}

static hid_t make_dataset(const brim_columns *c, const brim_column *column) {
  hsize_t dims[2] = {c->rows, (hsize_t)brim_column_width(column)};
  hid_t space = H5Screate_simple(column->width > 0 ? 2 : 1, dims, NULL);
  hid_t plist = brim_hdf5_out_timeless(H5P_DATASET_CREATE), type = type_of(column), dataset = -1;
  bool good = space >= 0 && plist >= 0 && type >= 0;
  good = good && H5Pset_layout(plist, H5D_CONTIGUOUS) >= 0;
  good =
      good && H5Pset_alloc_time(plist, H5D_ALLOC_TIME_EARLY) >= 0;  // its offset is known at once
  good = good && H5Pset_fill_time(plist, H5D_FILL_TIME_NEVER) >= 0;
  if (good) {
    dataset = H5Dcreate2(c->hdf5->file, column->name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
  }
  if (type >= 0) H5Tclose(type);
  if (plist >= 0) H5Pclose(plist);
  if (space >= 0) H5Sclose(space);
  return dataset;
}

static brim_status lay_out(brim_columns *c) {
  for (size_t i = 0; i < c->count; i++) {
    const brim_column *column = &c->column[i];
    hid_t dataset = make_dataset(c, column);
    if (dataset < 0) return fail_hdf5(c);
    haddr_t at = H5Dget_offset(dataset);
    brim_status status = at == HADDR_UNDEF ? fail_hdf5(c) : BRIM_OK;
    c->hdf5->offset[i] = at;
    if (!status && column->parts) {
      status = put_names(c, dataset, "names", column->parts, (size_t)column->width);
    }
    if (!status && column->labels) {
      status = put_names(c, dataset, "class_names", column->labels, column->label_count);
    }
    H5Dclose(dataset);
    if (status) return status;
  }
  return BRIM_OK;
}

//---------------------------------- the file ----------------------------------

brim_status brim_columns_hdf5_open(brim_columns *c) {
  brim_columns_hdf5 *h = brim_calloc(1, sizeof *h);
  if (!h) return brim_fail(BRIM_ENOMEM, "out of memory while writing %s", c->path);
  c->hdf5 = h;
  h->file = h->out.driver = -1;
  h->out.fd = c->fd;
  brim_hdf5_scope scope;
  brim_hdf5_enter(&scope);
  h->file = brim_hdf5_out_create(&h->out, c->path);
  brim_status status = h->file >= 0 ? lay_out(c) : fail_hdf5(c);
  brim_hdf5_leave(&scope);
  return status;
}

static brim_status pad_texts(brim_columns *c, size_t bytes, const char *const *texts,
                             uint64_t rows) {
  brim_columns_hdf5 *h = c->hdf5;
  size_t need = bytes * (size_t)rows;
  if (need > h->texts_bytes) {
    char *grown = brim_realloc(h->texts, need);
    if (!grown) return brim_fail(BRIM_ENOMEM, "out of memory while writing %s", c->path);
    h->texts = grown;
    h->texts_bytes = need;
  }
  memset(h->texts, 0, need);
  for (uint64_t i = 0; i < rows; i++) {
    snprintf(h->texts + i * bytes, bytes, "%s", texts[i]);
  }
  return BRIM_OK;
}

brim_status brim_columns_hdf5_put(brim_columns *c, const void *const *data, uint64_t rows) {
  brim_columns_hdf5 *h = c->hdf5;
  for (size_t i = 0; i < c->count; i++) {
    const brim_column *column = &c->column[i];
    size_t row = value_bytes(column) * (size_t)brim_column_width(column);
    const void *from = data[i];
    if (column->kind == BRIM_COLUMN_TEXT) {
      BRIM_TRY(pad_texts(c, row, (const char *const *)data[i], rows));
      from = h->texts;
    }
    brim_hdf5_out_write(&h->out, from, row * (size_t)rows, h->offset[i] + row * c->written);
    if (h->out.err) return fail_errno(c, h->out.err);
  }
  return BRIM_OK;
}

brim_status brim_columns_hdf5_close(brim_columns *c, bool good) {
  brim_columns_hdf5 *h = c->hdf5;
  brim_status status = BRIM_OK;
  if (!good && !h->out.err) h->out.err = ECANCELED;  // nothing more need be written
  brim_hdf5_scope scope;
  brim_hdf5_enter(&scope);
  if (h->file >= 0 && H5Fclose(h->file) < 0) status = fail_hdf5(c);
  brim_hdf5_out_close(&h->out);
  brim_hdf5_leave(&scope);
  if (!status && h->out.err && good) status = fail_errno(c, h->out.err);
  brim_free(h->texts);
  brim_free(h);
  c->hdf5 = NULL;
  return status;
}
