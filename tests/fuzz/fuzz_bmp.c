// Any bytes as a BMP: an error with a reason, or pixels inside a buffer of exact size, all of them
// written.
#include <stdlib.h>
#include <string.h>

#include "data/image/data_image.h"

enum { CAPACITY = 256 * 256 * 3, MAX_SIZE = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t *decode(const uint8_t *data, size_t size, const brim_image_want *want, int filled,
                       size_t *bytes) {
  brim_image_pixels out = {.data = malloc(CAPACITY), .capacity = CAPACITY};
  *bytes = 0;
  if (!out.data) return NULL;
  memset(out.data, filled, CAPACITY);
  brim_status status = brim_bmp_decode(data, size, "fuzz", want, &out);
  if (status && !brim_status_detail()[0]) abort();
  brim_image_head head;
  uint64_t least;
  brim_status probed = brim_bmp_read_head(data, size < 54 ? size : 54, "fuzz", &head, &least);
  if (!status) {
    if (probed || least > size || out.height != head.height || out.width != head.width) abort();
    if (out.height * out.width * want->channels > CAPACITY) abort();
    *bytes = (size_t)(out.height * out.width * want->channels);
  }
  return out.data;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 1 || size > MAX_SIZE || !brim_bmp_is(data, size)) return 0;
  brim_image_want want = {.channels = data[size - 1] & 1 ? 1 : 3, .scale = 1};
  size_t n, again;
  uint8_t *a = decode(data, size, &want, 0x5a, &n), *b = decode(data, size, &want, 0xa5, &again);
  if (a && b && (n != again || memcmp(a, b, n) != 0)) abort();  // an untouched pixel keeps its fill
  free(a);
  free(b);
  return 0;
}
