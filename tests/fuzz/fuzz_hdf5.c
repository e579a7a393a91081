// Any bytes as the layout of an HDF5 dataset over a small file: an error, or rows whose every byte comes from the file
// or the fill value. Not complete files, because libhdf5 parses those.
#include <stdlib.h>
#include <string.h>

#include "data/hdf5/data_hdf5.h"

enum { MAX_ROW = 1 << 16, MAX_CHUNK = 1 << 16, MAX_CHUNKS = 256, MAX_READ = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
  const uint8_t *data;
  size_t size;
} input;

static uint32_t take(input *in, int bytes) {
  uint32_t v = 0;
  for (; bytes > 0; bytes--) {
    v = v << 8 | (in->size ? *in->data : 0);
    if (in->size) in->data++, in->size--;
  }
  return v;
}

static void take_layout(input *in, brim_hdf5_array *a) {
  static const brim_hdf5_where places[] = {BRIM_HDF5_FILL, BRIM_HDF5_MAPPED, BRIM_HDF5_CHUNKS,
                                           BRIM_HDF5_PACKED};
  a->where = places[take(in, 1) % 4];
  uint32_t type = take(in, 1);
  a->type = (brim_hdf5_type){(brim_hdf5_kind)(type % 13), (type & 0x80) != 0};
  a->bytes = a->type.kind == BRIM_HDF5_U8 && (type & 0x40);
  a->rank = (int)(take(in, 1) % 6);
  bool wide = take(in, 1) & 1;
  for (int d = 0; d < a->rank; d++) {
    a->dim[d] = take(in, wide ? 4 : 1);
    a->chunk[d] = take(in, wide ? 4 : 1);
  }
  a->filter_count = (int)(take(in, 1) % (BRIM_HDF5_MAX_FILTERS + 1));
  for (int i = 0; i < a->filter_count; i++) {
    a->filters[i].id = (brim_hdf5_filter_id)(take(in, 1) % (BRIM_HDF5_FILTER_COUNT + 1));
    a->filters[i].element = take(in, 1);
  }
  a->offset = take(in, 2);
  memset(a->fill, (int)take(in, 1), sizeof a->fill);
}

static void read_rows(brim_hdf5_array *a) {
  size_t bytes = (size_t)a->row_elements * (a->bytes ? 1 : sizeof(float));
  uint8_t *row = malloc(bytes);  // of exact size, so that ASan finds any overrun
  for (uint64_t i = 0; row && i < a->dim[0] + 1 && i < MAX_READ; i++) {
    brim_status_clear();
    brim_status status = brim_hdf5_array_row(a, i, row);
    if (status && !brim_status_detail()[0]) abort();
    if (!status && i >= a->dim[0]) abort();
    if (status && i < a->dim[0] && a->where != BRIM_HDF5_PACKED) abort();  // the layout was checked
    volatile uint8_t sink = 0;
    for (size_t k = 0; k < bytes && !status; k++) sink = sink ^ row[k];
  }
  free(row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  input in = {data, size};
  brim_hdf5_array a = {.dataset = -1, .memory_type = -1};
  brim_map map = {.path = "fuzz", .fd = -1};
  a.map = &map;
  a.name = brim_strdup("/x");
  if (!a.name) return 0;
  take_layout(&in, &a);
  bool chunked = a.where == BRIM_HDF5_CHUNKS || a.where == BRIM_HDF5_PACKED;
  brim_status status = brim_hdf5_array_shape(&a);
  uint8_t *file = NULL;
  if (!status && a.row_bytes <= MAX_ROW && a.chunk_bytes <= MAX_CHUNK &&
      a.chunk_count <= MAX_CHUNKS) {
    if (chunked) a.chunks = brim_calloc(a.chunk_count, sizeof *a.chunks);
    for (uint64_t i = 0; a.chunks && i < a.chunk_count; i++) {
      uint32_t address = take(&in, 2);
      // Some offsets are far beyond any file, some overflow when the size is added.
      a.chunks[i].address = address >> 12 == 15 ? UINT64_MAX - (address & 0xfff) : address;
      a.chunks[i].bytes = take(&in, 2);
      a.chunks[i].mask = take(&in, 1);
    }
    file = malloc(in.size ? in.size : 1);
    if (file) {
      memcpy(file, in.data, in.size);
      brim_map_memory(file, in.size, "fuzz", &map);
    }
    if (file && (!chunked || a.chunks) && !brim_hdf5_array_check(&a)) {
      brim_hdf5_array_pack(&a, 0);
      if (a.where == BRIM_HDF5_PACKED) status = brim_hdf5_cache_create(&a, 4096, &a.cache);
      if (!status) read_rows(&a);
    }
  } else if (status && !brim_status_detail()[0]) {
    abort();
  }
  brim_hdf5_array_deinit(&a);
  free(file);
  return 0;
}
