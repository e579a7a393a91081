// Decodes WebP with libwebp, from memory into the caller's buffer. The library decides what is damaged,
// and allocates with malloc. A build without the library has data_webp_absent.c.
#include <string.h>

#include <webp/decode.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "data/image/data_image.h"

enum { RIFF_HEADER = 12 };  // "RIFF", size of the rest as u32, "WEBP"
// A plain area takes almost no bytes. A file that announces more pixels for its size is refused.
enum { MOST_PIXELS_A_BYTE = 1 << 16 };

const bool brim_webp_present = true;

bool brim_webp_is(const uint8_t *bytes, size_t size) {
  return size >= RIFF_HEADER && memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0;
}

static brim_status fail_decoder(VP8StatusCode code, const char *name, size_t size) {
  switch (code) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return brim_fail(BRIM_ENOMEM, "%s: out of memory", name);
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA:
      return brim_fail(BRIM_EPARSE, "%s: offset %zu: the file ends too early; it is cut off", name,
                       size);
    case VP8_STATUS_OK:
    case VP8_STATUS_INVALID_PARAM:
    case VP8_STATUS_BITSTREAM_ERROR:
    case VP8_STATUS_UNSUPPORTED_FEATURE:
    case VP8_STATUS_USER_ABORT:
      break;
  }
  return brim_fail(BRIM_EPARSE, "%s: a damaged WebP file", name);
}

brim_status brim_webp_read_head(const uint8_t *bytes, size_t size, const char *name,
                                brim_image_head *out, uint64_t *least_bytes) {
  WebPBitstreamFeatures f;
  VP8StatusCode code = WebPGetFeatures(bytes, size, &f);
  if (code != VP8_STATUS_OK) return fail_decoder(code, name, size);
  if (f.has_animation) {
    return brim_fail(BRIM_EUNSUPPORTED, "%s: an animated WebP; save one picture of it as PNG",
                     name);
  }
  if (f.width < 0 || f.height < 0) return fail_decoder(VP8_STATUS_BITSTREAM_ERROR, name, size);
  BRIM_TRY(brim_image_check_size(name, (uint64_t)f.height, (uint64_t)f.width));
  *out = (brim_image_head){.height = f.height, .width = f.width, .channels = 3};
  uint64_t stated = 8 + ((uint64_t)bytes[4] | (uint64_t)bytes[5] << 8 | (uint64_t)bytes[6] << 16 |
                         (uint64_t)bytes[7] << 24);
  uint64_t pixels = (uint64_t)f.height * (uint64_t)f.width;
  *least_bytes = stated > pixels / MOST_PIXELS_A_BYTE ? stated : pixels / MOST_PIXELS_A_BYTE;
  return BRIM_OK;
}

static brim_status decode_rgb(const uint8_t *bytes, size_t size, const char *name,
                              const brim_image_pixels *image, uint8_t *rgb) {
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) {
    return brim_fail(BRIM_EABI, "%s: libwebp has another version than this brim was built for",
                     name);
  }
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = rgb;
  config.output.u.RGBA.stride = (int)(3 * image->width);
  config.output.u.RGBA.size = 3 * (size_t)image->width * (size_t)image->height;
  VP8StatusCode code = WebPDecode(bytes, size, &config);
  WebPFreeDecBuffer(&config.output);
  return code == VP8_STATUS_OK ? BRIM_OK : fail_decoder(code, name, size);
}

brim_status brim_webp_decode(const uint8_t *bytes, size_t size, const char *name,
                             const brim_image_want *want, brim_image_pixels *out) {
  brim_image_head head;
  uint64_t least;
  BRIM_TRY(brim_webp_read_head(bytes, size, name, &head, &least));
  out->height = head.height;
  out->width = head.width;
  BRIM_TRY(brim_image_check_room(name, want, out));
  if (least > size) return fail_decoder(VP8_STATUS_NOT_ENOUGH_DATA, name, size);
  if (want->channels == 3) return decode_rgb(bytes, size, name, out, out->data);
  size_t pixels = (size_t)head.height * (size_t)head.width;
  uint8_t *rgb = brim_alloc(3 * pixels);
  if (!rgb) return brim_fail(BRIM_ENOMEM, "%s: out of memory", name);
  brim_status status = decode_rgb(bytes, size, name, out, rgb);
  for (size_t i = 0; i < pixels && !status; i++) {
    const uint8_t *p = rgb + 3 * i;
    out->data[i] = (uint8_t)((299 * p[0] + 587 * p[1] + 114 * p[2] + 500) / 1000);
  }
  brim_free(rgb);
  return status;
}
