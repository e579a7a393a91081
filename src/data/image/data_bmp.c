// BMP, read here: 1, 4, 8, 16, 24 and 32 bits, palettes, colour masks, rows from either end and 8-bit
// run lengths. BMP has no checksum: sizes, offsets, masks, palette indices and run lengths are checked,
// all before a pixel is written beyond the buffer.
//
//   0 "BM" | 10 offset of the pixels u32 | 14 bytes of the second header u32 | 18 width | 22 height
//   (negative: the first row comes first) | 28 bits u16 | 30 compression u32 | 46 colours u32 | 54 masks
#include <inttypes.h>
#include <string.h>

#include "base/base_msg.h"
#include "base/base_status.h"
#include "data/image/data_image.h"

enum {
  FILE_HEADER = 14,
  CORE_HEADER = 12,  // of OS/2: 16-bit sizes, palette entries of 3 bytes
  INFO_HEADER = 40,
  MASKS_AT = FILE_HEADER + INFO_HEADER,
  RGB = 0,
  RLE8 = 1,
  BITFIELDS = 3,
  ALPHA_BITFIELDS = 6,
  MOST_RUN = 255,
};

typedef struct bmp_channel {
  uint32_t mask;
  int shift;           // to the upper 8 bits of it
  uint8_t value[256];  // of what is left
} bmp_channel;

typedef struct bmp {
  const uint8_t *bytes;
  size_t size;
  const char *name;
  uint64_t pixels;  // offset
  uint64_t header;  // bytes of the second header
  int64_t height, width;
  bool top_down;
  unsigned bits, compression;
  uint64_t row_bytes;  // in the file; runs: none
  uint32_t colours;
  uint8_t palette[256][3];
  bmp_channel channel[3];
} bmp;

static uint32_t le32(const uint8_t *p) {
  return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static unsigned le16(const uint8_t *p) { return p[0] | (unsigned)p[1] << 8; }

bool brim_bmp_is(const uint8_t *bytes, size_t size) {
  if (size < 2 || bytes[0] != 'B' || bytes[1] != 'M') return false;
  if (size < FILE_HEADER + 4) return true;  // cut off
  uint32_t header = le32(bytes + FILE_HEADER);
  return header >= CORE_HEADER && header <= 256;
}

//---------------------------------- the headers ----------------------------------

static brim_status fail_damaged(const bmp *b, int at, const char *what, uint64_t value) {
  return brim_fail(BRIM_EPARSE, "%s: offset %d: damaged BMP header: %s %" PRIu64, b->name, at,
                   brim_tr(what), value);
}

static brim_status check_kind(const bmp *b) {
  static const char *const kinds[] = {NULL,
                                      NULL,
                                      BRIM_N_("4-bit run lengths"),
                                      NULL,
                                      BRIM_N_("an embedded JPEG"),
                                      BRIM_N_("an embedded PNG")};
  unsigned c = b->compression, n = b->bits;
  bool good = (c == RGB && (n == 1 || n == 4 || n == 8 || n == 16 || n == 24 || n == 32)) ||
              (c == RLE8 && n == 8) ||
              ((c == BITFIELDS || c == ALPHA_BITFIELDS) && (n == 16 || n == 32));
  if (good && b->header == 64 && c != RGB && c != RLE8) good = false;  // OS/2's are others
  if (good) return BRIM_OK;
  bool known = c < sizeof kinds / sizeof *kinds && kinds[c] && b->header != 64;
  if (known) {
    return brim_fail(BRIM_EUNSUPPORTED, "%s: a BMP of %s; save it as PNG", b->name,
                     brim_tr(kinds[c]));
  }
  return brim_fail(BRIM_EUNSUPPORTED, "%s: a BMP of %u bits and compression %u; save it as PNG",
                   b->name, n, c);
}

static brim_status read_head(bmp *b, uint64_t *least) {
  const uint8_t *p = b->bytes;
  if (b->size < FILE_HEADER + CORE_HEADER) {
    return brim_fail(BRIM_EPARSE, "%s: offset %zu: the file ends before its image size", b->name,
                     b->size);
  }
  b->pixels = le32(p + 10);
  b->header = le32(p + FILE_HEADER);
  bool core = b->header == CORE_HEADER;
  if (!core && b->header < INFO_HEADER)
    return fail_damaged(b, FILE_HEADER, BRIM_N_("size"), b->header);
  if (!core && b->size < MASKS_AT) {
    return brim_fail(BRIM_EPARSE, "%s: offset %zu: the file ends before its image size", b->name,
                     b->size);
  }
  int64_t height = core ? (int64_t)le16(p + 20) : (int64_t)(int32_t)le32(p + 22);
  b->top_down = height < 0;
  b->height = height < 0 ? -height : height;
  b->width = core ? (int64_t)le16(p + 18) : (int64_t)le32(p + 18);
  b->bits = le16(p + (core ? 24 : 28));
  b->compression = core ? RGB : le32(p + 30);
  b->colours = core ? 0 : le32(p + 46);
  BRIM_TRY(brim_image_check_size(b->name, (uint64_t)b->height, (uint64_t)b->width));
  BRIM_TRY(check_kind(b));
  uint64_t runs = ((uint64_t)b->width + MOST_RUN - 1) / MOST_RUN;
  b->row_bytes = ((uint64_t)b->width * b->bits + 31) / 32 * 4;
  if (b->compression == RLE8 && b->top_down) {
    return fail_damaged(b, 22, BRIM_N_("height"), (uint64_t)b->height);
  }
  if (b->pixels < FILE_HEADER + b->header) return fail_damaged(b, 10, BRIM_N_("offset"), b->pixels);
  *least = b->pixels + (uint64_t)b->height * (b->compression == RLE8 ? 2 * runs : b->row_bytes);
  return BRIM_OK;
}

brim_status brim_bmp_read_head(const uint8_t *bytes, size_t size, const char *name,
                               brim_image_head *out, uint64_t *least_bytes) {
  bmp b = {.bytes = bytes, .size = size, .name = name};
  BRIM_TRY(read_head(&b, least_bytes));
  *out = (brim_image_head){.height = b.height, .width = b.width, .channels = 3};
  return BRIM_OK;
}

// The colours lie between the headers and the pixels.
static brim_status read_palette(bmp *b) {
  uint32_t most = 1u << b->bits, entry = b->header == CORE_HEADER ? 3 : 4;
  if (!b->colours) b->colours = most;
  if (b->colours > most) return fail_damaged(b, 46, BRIM_N_("number of colours"), b->colours);
  uint64_t at = FILE_HEADER + b->header;
  if (at + (uint64_t)b->colours * entry > b->pixels || b->pixels > b->size) {
    return fail_damaged(b, 10, BRIM_N_("offset"), b->pixels);
  }
  for (uint32_t i = 0; i < b->colours; i++) {
    const uint8_t *p = b->bytes + at + (size_t)i * entry;
    b->palette[i][0] = p[2];
    b->palette[i][1] = p[1];
    b->palette[i][2] = p[0];
  }
  return BRIM_OK;
}

// Bits that stand together, of which the upper 8 count.
static brim_status set_channel(bmp *b, int c, uint32_t mask) {
  bmp_channel *out = &b->channel[c];
  int low = mask ? __builtin_ctz(mask) : 0, bits = __builtin_popcount(mask);
  bool whole = mask && (bits == 32 || mask >> low == (1u << bits) - 1);
  if (!whole || (b->bits < 32 && mask >> b->bits)) {
    return fail_damaged(b, MASKS_AT + 4 * c, BRIM_N_("colour mask"), mask);
  }
  int kept = bits < 8 ? bits : 8;
  out->mask = mask;
  out->shift = low + bits - kept;
  uint32_t top = (1u << kept) - 1;
  for (uint32_t v = 0; v <= top; v++) out->value[v] = (uint8_t)((v * 255 + top / 2) / top);
  return BRIM_OK;
}

static brim_status read_masks(bmp *b) {
  static const uint32_t usual[2][3] = {{0x7c00, 0x3e0, 0x1f}, {0xff0000, 0xff00, 0xff}};
  bool given = b->compression != RGB;
  if (given && (b->pixels < MASKS_AT + 12 || b->size < MASKS_AT + 12)) {
    return fail_damaged(b, 10, BRIM_N_("offset"), b->pixels);
  }
  for (int c = 0; c < 3; c++) {
    uint32_t mask = given ? le32(b->bytes + MASKS_AT + 4 * c) : usual[b->bits == 32][c];
    BRIM_TRY(set_channel(b, c, mask));
  }
  return BRIM_OK;
}

//---------------------------------- pixels ----------------------------------

static brim_status fail_cut(const bmp *b) {
  return brim_fail(BRIM_EPARSE, "%s: offset %zu: the file ends too early; it is cut off", b->name,
                   b->size);
}

static uint8_t *put_pixel(uint8_t *out, const uint8_t rgb[3], int channels) {
  if (channels == 3) {
    memcpy(out, rgb, 3);
    return out + 3;
  }
  *out = (uint8_t)((299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2] + 500) / 1000);
  return out + 1;
}

static brim_status put_index(const bmp *b, uint64_t at, uint32_t index, int channels,
                             uint8_t **out) {
  if (index >= b->colours) {
    return brim_fail(BRIM_EPARSE, "%s: offset %" PRIu64 ": colour %u of a palette of %u", b->name,
                     at, index, b->colours);
  }
  *out = put_pixel(*out, b->palette[index], channels);
  return BRIM_OK;
}

static uint8_t *row_of(const bmp *b, const brim_image_pixels *out, int channels, int64_t y) {
  int64_t row = b->top_down ? y : b->height - 1 - y;
  return out->data + (size_t)row * (size_t)b->width * (size_t)channels;
}

static brim_status decode_row(const bmp *b, int64_t y, int channels, uint8_t *out) {
  uint64_t at = b->pixels + (uint64_t)y * b->row_bytes;
  const uint8_t *p = b->bytes + at;
  for (int64_t x = 0; x < b->width; x++) {
    if (b->bits <= 8) {
      uint64_t bit = (uint64_t)x * b->bits;
      uint32_t index = p[bit / 8] >> (8 - b->bits - bit % 8) & ((1u << b->bits) - 1);
      BRIM_TRY(put_index(b, at + bit / 8, index, channels, &out));
    } else {
      uint8_t rgb[3];
      if (b->bits == 24) {
        for (int c = 0; c < 3; c++) rgb[c] = p[2 - c];
      } else {
        uint32_t v = b->bits == 16 ? le16(p) : le32(p);
        for (int c = 0; c < 3; c++) {
          const bmp_channel *k = &b->channel[c];
          rgb[c] = k->value[(v & k->mask) >> k->shift];
        }
      }
      out = put_pixel(out, rgb, channels);
      p += b->bits / 8;
    }
  }
  return BRIM_OK;
}

// Pairs: a count and a colour; 0 and 0: the row ends, 1: the image ends, 3 and more: so many colours as
// they are, padded to two bytes. What leaves pixels out (0 and 2, a row or an image that ends early) is
// not read: a file of a few bytes could ask for any amount of memory.
static brim_status decode_runs(const bmp *b, int channels, const brim_image_pixels *out) {
  uint64_t at = b->pixels;
  int64_t x = 0, y = 0;
  uint8_t *to = row_of(b, out, channels, 0);
  for (;;) {
    if (at + 2 > b->size) return fail_cut(b);
    uint8_t count = b->bytes[at], what = b->bytes[at + 1];
    at += 2;
    bool ends = !count && what < 2;
    if (ends && what == 1 && (y == b->height || (y + 1 == b->height && x == b->width))) {
      return BRIM_OK;
    }
    if (!ends && (count || what > 2) && y < b->height) {
      int64_t n = count ? count : what;
      if (n > b->width - x) {
        return brim_fail(BRIM_EPARSE, "%s: offset %" PRIu64 ": a run goes beyond its row", b->name,
                         at - 2);
      }
      if (!count && (uint64_t)n > b->size - at) return fail_cut(b);
      for (int64_t i = 0; i < n; i++) {
        BRIM_TRY(put_index(b, at - 2, count ? what : b->bytes[at + (uint64_t)i], channels, &to));
      }
      if (!count) at += ((uint64_t)n + 1) / 2 * 2;
      x += n;
      continue;
    }
    if (!ends || what == 1 || x < b->width || y == b->height) {
      return brim_fail(BRIM_EUNSUPPORTED,
                       "%s: offset %" PRIu64
                       ": run lengths that do not fill the image; save it as "
                       "PNG",
                       b->name, at - 2);
    }
    x = 0;
    if (++y < b->height) to = row_of(b, out, channels, y);
  }
}

brim_status brim_bmp_decode(const uint8_t *bytes, size_t size, const char *name,
                            const brim_image_want *want, brim_image_pixels *out) {
  bmp b = {.bytes = bytes, .size = size, .name = name};
  uint64_t least;
  BRIM_TRY(read_head(&b, &least));
  out->height = b.height;
  out->width = b.width;
  BRIM_TRY(brim_image_check_room(name, want, out));
  if (least > size) return fail_cut(&b);
  if (b.bits <= 8) {
    BRIM_TRY(read_palette(&b));
  } else if (b.bits != 24) {
    BRIM_TRY(read_masks(&b));
  }
  if (b.compression == RLE8) return decode_runs(&b, want->channels, out);
  for (int64_t y = 0; y < b.height; y++) {
    BRIM_TRY(decode_row(&b, y, want->channels, row_of(&b, out, want->channels, y)));
  }
  return BRIM_OK;
}
