// Any bytes as a PNG: an error with a reason, or pixels inside a buffer of exact size. Checksums are corrected first,
// because no mutation would match them; the original bytes are tried as well.
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "data/image/data_image.h"

enum { CAPACITY = 256 * 256 * 3, MAX_SIZE = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t get_be32(const uint8_t *p) {
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void repair(uint8_t *data, size_t size) {
  for (size_t at = 8; at + 12 <= size;) {
    size_t length = get_be32(data + at);
    if (length > size - at - 12) return;
    uint32_t crc = (uint32_t)crc32(0, data + at + 4, (unsigned)length + 4);
    for (int i = 0; i < 4; i++) data[at + 8 + length + (size_t)i] = (uint8_t)(crc >> (24 - 8 * i));
    at += 12 + length;
  }
}

static void decode(const uint8_t *data, size_t size, const brim_image_want *want) {
  brim_image_pixels out = {.data = malloc(CAPACITY), .capacity = CAPACITY};
  if (!out.data) return;
  brim_status status = brim_png_decode(data, size, "fuzz", want, &out);
  if (status && !brim_status_detail()[0]) abort();
  brim_image_head head;
  uint64_t least;
  brim_status probed = brim_png_read_head(data, size, "fuzz", &head, &least);
  if (!status) {
    if (probed || least > size || out.height != head.height || out.width != head.width) abort();
    if (out.height * out.width * want->channels > CAPACITY) abort();
  }
  free(out.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 9 || size > MAX_SIZE || !brim_png_is(data, size)) return 0;
  uint8_t how = data[size - 1];  // the last byte of the last checksum
  brim_image_want want = {.channels = how & 1 ? 1 : 3, .scale = 1, .lenient = (how & 2) != 0};
  decode(data, size, &want);
  uint8_t *fixed = malloc(size);
  if (!fixed) return 0;
  memcpy(fixed, data, size);
  repair(fixed, size);
  decode(fixed, size, &want);
  free(fixed);
  return 0;
}
