// A build without libwebp: files named .webp count as images of a kind that brim cannot read. Decoding a
// WebP file with another name fails with a message that libwebp is missing.
#include <string.h>

#include "base/base_status.h"
#include "data/image/data_image.h"

const bool brim_webp_present = false;

bool brim_webp_is(const uint8_t *bytes, size_t size) {
  return size >= 12 && memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0;
}

brim_status brim_webp_read_head(const uint8_t *bytes, size_t size, const char *name,
                                brim_image_head *out, uint64_t *least_bytes) {
  (void)bytes, (void)size, (void)out, (void)least_bytes;
  return brim_fail(BRIM_EUNSUPPORTED,
                   "%s: a WebP file, but this brim was built without libwebp; save it as PNG",
                   name);
}

brim_status brim_webp_decode(const uint8_t *bytes, size_t size, const char *name,
                             const brim_image_want *want, brim_image_pixels *out) {
  (void)want, (void)out;
  return brim_webp_read_head(bytes, size, name, NULL, NULL);
}
