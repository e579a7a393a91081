// Labels that are not stored as whole numbers: floats that are whole, and one-hot rows. Read once, when
// a source is opened whose classes were given.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "data/hdf5/data_hdf5.h"

static const uint64_t KEEP_LIMIT = (uint64_t)64 << 20, CACHE = (uint64_t)16 << 20;

// The one place of a row that is 1 where all others are 0; -1 = the row is something else.
static int64_t hot_place(const float *row, uint64_t count, uint64_t *wrong) {
  int64_t place = -1;
  for (uint64_t i = 0; i < count; i++) {
    bool one = row[i] == 1;
    if ((!one && row[i] != 0) || (one && place >= 0)) {
      *wrong = i;
      return -1;
    }
    if (one) place = (int64_t)i;
  }
  *wrong = 0;
  return place;
}

static brim_status one_label(const brim_hdf5_array *a, uint64_t index, const float *row,
                             int64_t classes, int32_t *out) {
  bool hot = a->row_elements > 1;
  uint64_t wrong = 0;
  if (hot) {
    int64_t place = hot_place(row, a->row_elements, &wrong);
    *out = (int32_t)place;
    if (place >= 0) return BRIM_OK;
    return brim_fail(BRIM_EPARSE,
                     "%s: %s[%" PRIu64 "] is not one-hot (value %g at place %" PRIu64
                     "); with classes=%lld a row must have one 1 and zeros otherwise",
                     a->map->path, a->name, index, (double)row[wrong], wrong, (long long)classes);
  }
  if (isfinite(row[0]) && row[0] >= 0 && (double)row[0] < (double)classes &&
      row[0] == floorf(row[0])) {
    *out = (int32_t)row[0];
    return BRIM_OK;
  }
  return brim_fail(BRIM_EPARSE,
                   "%s: %s[%" PRIu64
                   "] is %g; with classes=%lld labels are whole numbers from 0 "
                   "to %lld",
                   a->map->path, a->name, index, (double)row[0], (long long)classes,
                   (long long)classes - 1);
}

static brim_status read_rows(brim_hdf5_array *a, int64_t classes, int32_t *out) {
  if (a->where == BRIM_HDF5_PACKED) BRIM_TRY(brim_hdf5_cache_create(a, CACHE, &a->cache));
  brim_hdf5_array_pack(a, 0);
  a->bytes = false;
  float *row = brim_calloc(a->row_elements, sizeof *row);
  if (!row) return brim_fail(BRIM_ENOMEM, "%s: %s: out of memory", a->map->path, a->name);
  brim_status status = BRIM_OK;
  for (uint64_t i = 0; i < a->dim[0] && !status; i++) {
    status = brim_hdf5_array_row(a, i, row);
    if (!status) status = one_label(a, i, row, classes, &out[i]);
  }
  brim_free(row);
  return status;
}

brim_status brim_hdf5_file_class_labels(brim_hdf5_file *file, const brim_hdf5_entry *entry,
                                        int64_t classes, int32_t *out) {
  bool single = entry->rank == 1 || (entry->rank == 2 && entry->dim[1] == 1);
  bool hot = entry->rank == 2 && entry->dim[1] == (uint64_t)classes;
  if (!single && !hot) {
    return brim_fail(BRIM_EINVAL,
                     "%s: /%s cannot be labels of %lld classes; labels are one number per row, or "
                     "one-hot rows of %lld",
                     file->path, entry->path, (long long)classes, (long long)classes);
  }
  brim_hdf5_array a;
  BRIM_TRY(brim_hdf5_file_array(file, entry, KEEP_LIMIT, &a));
  brim_status status = read_rows(&a, classes, out);
  brim_hdf5_file_close_array(&a);
  return status;
}

brim_status brim_hdf5_warn_labels(brim_hdf5_file *file, const brim_hdf5_entry *entry) {
  enum { MOST_CLASSES = 1000 };
  uint64_t rows = entry->dim[0];
  bool hot = entry->rank == 2 && entry->dim[1] > 1;
  if (entry->rank > 2 || (hot && entry->dim[1] > BRIM_HDF5_MAX_CLASSES)) return BRIM_OK;
  int64_t classes = hot ? (int64_t)entry->dim[1] : MOST_CLASSES;
  int32_t max = 0, *labels = brim_alloc(rows * sizeof *labels);
  if (!labels) {
    return brim_fail(BRIM_ENOMEM, "%s: /%s: out of memory for %" PRIu64 " labels", file->path,
                     entry->path, rows);
  }
  // the first that is none ends it
  brim_status status = brim_hdf5_file_class_labels(file, entry, classes, labels);
  for (uint64_t i = 0; !status && i < rows; i++) max = labels[i] > max ? labels[i] : max;
  brim_free(labels);
  if (status == BRIM_ENOMEM) return status;
  if (!status && hot && rows > 1) {
    brim_log_warn(
        "data",
        "%s: every row of /%s is one-hot, but brim treats the columns as independent labels; "
        "for one class a row add --dataset 'hdf5(classes=%lld)'",
        file->path, entry->path, (long long)classes);
  } else if (!status && !hot && max > 0 && (uint64_t)max < rows / 2) {
    brim_log_warn("data",
                  "%s: /%s holds whole numbers from 0 to %d stored as floats, so brim treats them "
                  "as regression targets; for labels add --dataset 'hdf5(classes=%d)'",
                  file->path, entry->path, (int)max, (int)max + 1);
  }
  brim_status_clear();
  return BRIM_OK;
}

brim_status brim_hdf5_binary_targets(brim_hdf5_file *file, const brim_hdf5_entry *entry,
                                     bool *out) {
  enum { MOST_LABELS = 1 << 16 };
  *out = false;
  if (entry->rank != 2 || entry->dim[1] < 2 || entry->dim[1] > MOST_LABELS) return BRIM_OK;
  brim_hdf5_array a;
  BRIM_TRY(brim_hdf5_file_array(file, entry, KEEP_LIMIT, &a));
  brim_hdf5_array_pack(&a, 0);
  a.bytes = false;
  brim_status status = BRIM_OK;
  if (a.where == BRIM_HDF5_PACKED) status = brim_hdf5_cache_create(&a, CACHE, &a.cache);
  float *row = brim_calloc(a.row_elements, sizeof *row);
  if (!status && !row) status = brim_fail(BRIM_ENOMEM, "%s: %s: out of memory", file->path, a.name);
  bool binary = !status, zeros = false, ones = false;
  for (uint64_t i = 0; i < a.dim[0] && binary && !status; i++) {
    status = brim_hdf5_array_row(&a, i, row);
    if (status && status != BRIM_ENOMEM) {  // one that cannot be read is named when it is its turn
      status = BRIM_OK;
      continue;
    }
    for (uint64_t k = 0; k < a.row_elements && binary; k++) {
      zeros = zeros || row[k] == 0;
      ones = ones || row[k] == 1;
      binary = row[k] == 0 || row[k] == 1;
    }
  }
  brim_free(row);
  brim_hdf5_file_close_array(&a);
  if (status != BRIM_ENOMEM) brim_status_clear();
  *out = binary && zeros && ones;
  return status;
}
