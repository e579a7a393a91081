// Any bytes as a JPEG: an error with a reason, or pixels inside a buffer of exact size, of the size that the header
// states, the same each time.
#include <stdlib.h>
#include <string.h>

#include "../memory_file.h"
#include "data/image/data_image.h"

enum { CAPACITY = 256 * 256 * 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static brim_status decode(const uint8_t *data, size_t size, const brim_image_want *want,
                          brim_image_pixels *out) {
  *out = (brim_image_pixels){.data = malloc(CAPACITY), .capacity = CAPACITY};
  if (!out->data) return BRIM_ENOMEM;
  memset(out->data, 0x5a, CAPACITY);
  brim_status status = brim_jpeg_decode(data, size, "fuzz", want, out);
  if (status && !brim_status_detail()[0]) abort();
  return status;
}

static uint64_t size_at(int64_t side, int scale) {
  return ((uint64_t)side + (uint64_t)scale - 1) / (uint64_t)scale;
}

static void one_way(const uint8_t *data, size_t size, const brim_image_want *want) {
  brim_image_pixels a, b;
  brim_status first = decode(data, size, want, &a);
  brim_status second = decode(data, size, want, &b);
  if (first != second || (!first && memcmp(a.data, b.data, CAPACITY) != 0)) abort();
  brim_image_head head;
  uint64_t least;
  size_t at = 2;
  // If a file decodes strictly, brim finds its header without the library.
  if (!first && !want->lenient) {
    if (brim_jpeg_find_frame(data, size, &at, "fuzz", &head, &least)) abort();
    if ((uint64_t)a.height != size_at(head.height, want->scale) ||
        (uint64_t)a.width != size_at(head.width, want->scale)) {
      abort();
    }
  }
  free(a.data);
  free(b.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 4) return 0;
  // The last byte chooses the mode, so that it does not shift the file.
  uint8_t how = data[size - 1];
  brim_image_want want = {
      .channels = how & 1 ? 1 : 3, .scale = 1 << (how >> 1 & 3), .lenient = (how & 8) != 0};
  one_way(data, size, &want);
  brim_image_head head;
  int fd = memory_file(data, size, NULL);
  if (!brim_image_probe_file(fd, "fuzz", &head)) {
    if (head.height < 1 || head.width < 1) abort();
    if (head.height * head.width > BRIM_IMAGE_MAX_PIXELS) abort();
  }
  close(fd);
  return 0;
}
