// Any bytes as a WebP: an error with a reason, or pixels inside a buffer of exact size. Probing gets only the first
// bytes, as from a file.
#include <stdlib.h>

#include "data/image/data_image.h"

enum { CAPACITY = 256 * 256 * 3, MAX_SIZE = 1 << 16, HEAD = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 1 || size > MAX_SIZE || !brim_webp_is(data, size)) return 0;
  brim_image_want want = {.channels = data[size - 1] & 1 ? 1 : 3, .scale = 1};
  brim_image_pixels out = {.data = malloc(CAPACITY), .capacity = CAPACITY};
  if (!out.data) return 0;
  brim_status status = brim_webp_decode(data, size, "fuzz", &want, &out);
  if (status && !brim_status_detail()[0]) abort();
  brim_image_head head;
  uint64_t least;
  brim_status probed = brim_webp_read_head(data, size < HEAD ? size : HEAD, "fuzz", &head, &least);
  if (!status) {
    if (probed || least > size || out.height != head.height || out.width != head.width) abort();
    if (out.height * out.width * want.channels > CAPACITY) abort();
  }
  free(out.data);
  return 0;
}
