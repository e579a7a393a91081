// The peer of the hdf5 source: one thread that calls H5Dread, like programs without a loader. libhdf5 has one lock for
// the whole process, so more threads gain nothing.
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>

#include "bench_loader.h"
#include "hd/hd_shuffle.h"

enum { MAX_RANK = 8, ROWS_PER_STEP = 512 };

struct bench_h5 {
  hid_t file, dataset, space, memory_type;
  bench_h5_how how;
  int rank;
  hsize_t dim[MAX_RANK];
  size_t row_bytes;
  uint64_t chunk_rows;  // rows per call when reading in order
  uint64_t per_call;
  uint8_t *buffer;  // per_call or chunk_rows rows, whichever is more
  uint64_t seed, epoch, position;
  brim_shuffle order;
};

static brim_status read_rows(bench_h5 *h, uint64_t first, uint64_t rows) {
  hsize_t start[MAX_RANK] = {first}, count[MAX_RANK];
  memcpy(count, h->dim, sizeof count);
  count[0] = rows;
  if (H5Sselect_hyperslab(h->space, H5S_SELECT_SET, start, NULL, count, NULL) < 0) goto fail;
  hid_t memory = H5Screate_simple(h->rank, count, NULL);
  if (memory < 0) goto fail;
  herr_t rc = H5Dread(h->dataset, h->memory_type, memory, h->space, H5P_DEFAULT, h->buffer);
  H5Sclose(memory);
  if (rc >= 0) return BRIM_OK;
fail:
  return brim_fail(BRIM_EIO, "H5Dread of %llu rows from row %llu failed", (unsigned long long)rows,
                   (unsigned long long)first);
}

static uint64_t read_chunk_rows(hid_t dataset) {
  hsize_t chunk[MAX_RANK];
  uint64_t rows = ROWS_PER_STEP;
  hid_t plist = H5Dget_create_plist(dataset);
  if (plist < 0) return rows;
  if (H5Pget_layout(plist) == H5D_CHUNKED && H5Pget_chunk(plist, MAX_RANK, chunk) > 0) {
    rows = chunk[0];
  }
  H5Pclose(plist);
  return rows;
}

static brim_status look(bench_h5 *h, const char *path, const char *dataset) {
  h->space = H5Dget_space(h->dataset);
  h->rank = h->space >= 0 ? H5Sget_simple_extent_ndims(h->space) : -1;
  if (h->rank < 1 || h->rank > MAX_RANK || H5Sget_simple_extent_dims(h->space, h->dim, NULL) < 0 ||
      h->dim[0] < 1) {
    return brim_fail(BRIM_EINVAL, "%s: %s has no rows that can be read", path, dataset);
  }
  hid_t stored = H5Dget_type(h->dataset);
  h->memory_type = stored >= 0 ? H5Tget_native_type(stored, H5T_DIR_ASCEND) : -1;
  if (stored >= 0) H5Tclose(stored);
  if (h->memory_type < 0) return brim_fail(BRIM_EINVAL, "%s: type of %s", path, dataset);
  h->row_bytes = H5Tget_size(h->memory_type);
  for (int i = 1; i < h->rank; i++) h->row_bytes *= (size_t)h->dim[i];
  return BRIM_OK;
}

static brim_status open_all(bench_h5 *h, const char *path, const char *dataset) {
  h->file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  if (h->file < 0) return brim_fail(BRIM_EIO, "%s: libhdf5 cannot open it", path);
  h->dataset = H5Dopen2(h->file, dataset, H5P_DEFAULT);
  if (h->dataset < 0) return brim_fail(BRIM_ENOENT, "%s has no dataset %s", path, dataset);
  BRIM_TRY(look(h, path, dataset));
  h->chunk_rows = read_chunk_rows(h->dataset);
  if (h->chunk_rows > h->dim[0]) h->chunk_rows = h->dim[0];
  h->per_call = h->how == BENCH_H5_ROWS     ? 1
                : h->how == BENCH_H5_CHUNKS ? h->chunk_rows
                                            : (uint64_t)h->dim[0];
  uint64_t room = h->per_call > h->chunk_rows ? h->per_call : h->chunk_rows;
  h->buffer = brim_alloc((size_t)room * h->row_bytes);
  if (!h->buffer) return brim_fail(BRIM_ENOMEM, "out of memory for %s", dataset);
  memset(h->buffer, 0, (size_t)room * h->row_bytes);  // touch its pages before the measurement
  h->order = brim_shuffle_make(h->seed, 0, h->dim[0]);
  return BRIM_OK;
}

brim_status bench_h5_open(const char *path, const char *dataset, bench_h5_how how, uint64_t seed,
                          bench_h5 **out) {
  bench_h5 *h = brim_calloc(1, sizeof *h);
  if (!h) return brim_fail(BRIM_ENOMEM, "out of memory");
  h->file = h->dataset = h->space = h->memory_type = -1;
  h->how = how;
  h->seed = seed;
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  brim_status status = open_all(h, path, dataset);
  if (status) {
    bench_h5_close(h);
    return status;
  }
  *out = h;
  return BRIM_OK;
}

void bench_h5_close(bench_h5 *h) {
  if (!h) return;
  if (h->memory_type >= 0) H5Tclose(h->memory_type);
  if (h->space >= 0) H5Sclose(h->space);
  if (h->dataset >= 0) H5Dclose(h->dataset);
  if (h->file >= 0) H5Fclose(h->file);
  brim_free(h->buffer);
  brim_free(h);
}

uint64_t bench_h5_rows(const bench_h5 *h) { return h->dim[0]; }
size_t bench_h5_row_bytes(const bench_h5 *h) { return h->row_bytes; }
uint64_t bench_h5_rows_per_call(const bench_h5 *h) { return h->per_call; }

// Reads about ROWS_PER_STEP rows in as many calls as needed; the end of an epoch ends a step.
brim_status bench_h5_step(void *ctx, uint64_t *samples) {
  bench_h5 *h = ctx;
  *samples = 0;
  while (*samples < ROWS_PER_STEP && h->position < h->dim[0]) {
    uint64_t rows = h->dim[0] - h->position;
    if (rows > h->per_call) rows = h->per_call;
    uint64_t first =
        h->how == BENCH_H5_ROWS ? brim_shuffle_at(&h->order, h->position) : h->position;
    BRIM_TRY(read_rows(h, first, rows));
    h->position += rows;
    *samples += rows;
  }
  if (h->position >= h->dim[0]) {
    h->position = 0;
    h->order = brim_shuffle_make(h->seed, ++h->epoch, h->dim[0]);
  }
  return BRIM_OK;
}

brim_status bench_h5_digest(bench_h5 *h, uint64_t *digest) {
  *digest = 0;
  for (uint64_t first = 0; first < h->dim[0]; first += h->chunk_rows) {
    uint64_t rows = h->dim[0] - first;
    if (rows > h->chunk_rows) rows = h->chunk_rows;
    BRIM_TRY(read_rows(h, first, rows));
    for (uint64_t i = 0; i < rows; i++) {
      *digest += bench_loader_hash(h->buffer + i * h->row_bytes, h->row_bytes);
    }
  }
  return BRIM_OK;
}
