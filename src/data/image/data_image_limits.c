// Limits common to all image formats: sizes that brim accepts, and room for the pixels.
#include <inttypes.h>

#include "base/base_status.h"
#include "data/image/data_image.h"

brim_status brim_image_check_size(const char *name, uint64_t height, uint64_t width) {
  if (!height || !width) {
    return brim_fail(BRIM_EPARSE, "%s: the header says %" PRIu64 " x %" PRIu64 " pixels", name,
                     height, width);
  }
  if (height > BRIM_IMAGE_MAX_SIDE || width > BRIM_IMAGE_MAX_SIDE ||
      height * width > (uint64_t)BRIM_IMAGE_MAX_PIXELS) {
    return brim_fail(BRIM_ELIMIT,
                     "%s: %" PRIu64 " x %" PRIu64 " pixels; at most %d per side and %" PRId64
                     " in total",
                     name, height, width, BRIM_IMAGE_MAX_SIDE, (int64_t)BRIM_IMAGE_MAX_PIXELS);
  }
  return BRIM_OK;
}

brim_status brim_image_check_room(const char *name, const brim_image_want *want,
                                  const brim_image_pixels *out) {
  uint64_t bytes = (uint64_t)out->height * (uint64_t)out->width * (uint64_t)want->channels;
  if (bytes <= out->capacity) return BRIM_OK;
  return brim_fail(BRIM_ELIMIT,
                   "%s: %" PRId64 " x %" PRId64 " pixels need %" PRIu64
                   " bytes, but there is room for %zu",
                   name, out->height, out->width, bytes, out->capacity);
}
