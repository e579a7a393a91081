// Any bytes as an IDX file, plain or gzip: an error, or an array whose sizes agree with the bytes. The same bytes
// packed into gzip by hand must give the same result, so that the parser also sees inputs for which no mutation finds
// the checksum.
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "../memory_file.h"
#include "data/data_int.h"

enum { MAX_WRAPPED = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_array(const brim_idx_array *a) {
  uint64_t elements = 1;
  for (int i = 0; i < a->header.rank; i++) {
    if (a->header.dim[i] < 1) abort();
    elements *= (uint64_t)a->header.dim[i];
  }
  if (elements * a->header.element_bytes != a->body_bytes) abort();
  volatile uint8_t sink = 0;  // every byte must be readable
  for (size_t i = 0; i < a->body_bytes; i++) sink = sink ^ a->body[i];
}

static brim_status load(const uint8_t *data, size_t size) {
  brim_idx_array array;
  char path[MEMORY_FILE_PATH];
  int fd = memory_file(data, size, path);
  brim_status status = brim_idx_array_open(path, &array);
  if (!status) {
    status = brim_idx_array_keep(&array);
    if (status) brim_idx_array_unload(&array);
  }
  close(fd);
  if (status) {
    if (array.memory || !brim_status_detail()[0]) abort();
    return status;
  }
  check_array(&array);
  brim_idx_array_unload(&array);
  return BRIM_OK;
}

static void put_le32(uint8_t *out, uint32_t v) {
  for (int i = 0; i < 4; i++) out[i] = (uint8_t)(v >> (8 * i));
}

// One gzip member with one stored block.
static size_t wrap(const uint8_t *data, size_t size, uint8_t *out) {
  static const uint8_t head[11] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1};
  memcpy(out, head, sizeof head);
  put_le32(out + 11, (uint32_t)size | (uint32_t)(~size & 0xffff) << 16);
  memcpy(out + 15, data, size);
  put_le32(out + 15 + size, (uint32_t)crc32(0, data, (unsigned)size));
  put_le32(out + 19 + size, (uint32_t)size);
  return size + 23;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  brim_idx idx;
  brim_status parsed = brim_idx_parse(data, size, "fuzz", &idx);
  if (parsed && !brim_status_detail()[0]) abort();
  brim_status loaded = load(data, size);
  if (!brim_data_is_gz(data, size) && loaded != parsed) abort();
  if (size > 0 && size <= MAX_WRAPPED) {
    uint8_t *packed = malloc(size + 23);  // of exact size, so that ASan finds any overrun
    if (!packed) return 0;
    if (!load(packed, wrap(data, size, packed)) != !parsed) abort();
    free(packed);
  }
  return 0;
}
