// Decodes images in memory: recognises the format, reads the size, decodes the pixels. BMP is decoded
// here, JPEG by libjpeg-turbo, PNG by libpng; WebP is in data_webp.c.
#include "data/image/data_image.h"

#include <stdio.h>

#include <jpeglib.h>

#include <jerror.h>

#include <errno.h>
#include <inttypes.h>
#include <png.h>
#include <setjmp.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base_alloc.h"
#include "base/base_msg.h"
#include "base/base_status.h"

//---------------------------------- limits ----------------------------------

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

//---------------------------------- BMP ----------------------------------

enum {
  FILE_HEADER = 14,
  CORE_HEADER = 12,  // OS/2: 16-bit sizes, palette entries of 3 bytes
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
  int shift;           // right shift that leaves the mask's upper 8 bits
  uint8_t value[256];  // 0 to 255 for the shifted bits
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
  uint64_t row_bytes;  // in the file, for uncompressed pixels
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
  if (size < FILE_HEADER + 4) return true;  // a truncated BMP
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
  if (good && b->header == 64 && c != RGB && c != RLE8) good = false;  // OS/2 numbers differ
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

// Reads the palette, which lies between the headers and the pixels.
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

// Sets a channel by its mask, whose bits must be contiguous. Only the upper 8 bits count.
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

// Decodes RLE8, pairs of bytes: a count and a colour; 0 and 0: end of row; 0 and 1: end of image; 0 and
// n >= 3: n literal colours follow, padded to two bytes. Encodings that skip pixels (0 and 2, or a row or
// image that ends early) are refused: a file of a few bytes could claim any amount of memory.
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

//---------------------------------- JPEG ----------------------------------

// A small progressive file of many scans takes much time to decode; real files have about ten scans.
enum { MAX_SCANS = 256, ROWS_AT_ONCE = 16 };
// Enough for the coefficients of a progressive image of BRIM_IMAGE_MAX_PIXELS and three channels.
#define MAX_MEMORY (2000L << 20)

static bool is_jpeg(const uint8_t *bytes, size_t size) {
  return size >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

//---------------------------------- the header ----------------------------------

static unsigned be16(const uint8_t *p) { return (unsigned)p[0] << 8 | p[1]; }

static bool is_frame(unsigned marker) {  // SOF0 to SOF15, without DHT, JPG and DAC among them
  return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

// Reads a frame header. *least_bytes: every 8 x 8 block takes at least one bit, except with arithmetic
// coding (from SOF9 on).
static brim_status read_frame(const uint8_t *segment, unsigned marker, const char *name,
                              brim_image_head *out, uint64_t *least_bytes) {
  uint64_t height = be16(segment + 3), width = be16(segment + 5);
  BRIM_TRY(brim_image_check_size(name, height, width));
  out->height = (int64_t)height;
  out->width = (int64_t)width;
  out->channels = segment[7] == 1 ? 1 : 3;
  *least_bytes = marker < 0xc8 ? (height / 8) * (width / 8) / 8 : 0;
  return BRIM_OK;
}

brim_status brim_jpeg_find_frame(const uint8_t *bytes, size_t size, size_t *at, const char *name,
                                 brim_image_head *out, uint64_t *least_bytes) {
  for (;;) {
    // A segment is fill bytes, a marker and a length that counts its own two bytes.
    if (*at >= size || size - *at < 4) return BRIM_EEND;
    const uint8_t *p = bytes + *at;
    if (p[0] != 0xff) {
      return brim_fail(BRIM_EPARSE, "%s: damaged JPEG header: no marker where one must be", name);
    }
    unsigned marker = p[1];
    if (marker == 0xff) {
      ++*at;
      continue;
    }
    if (marker == 0x01 || (marker >= 0xd0 && marker <= 0xd7)) {  // markers without length
      *at += 2;
      continue;
    }
    if (marker == 0x00 || marker == 0xd8 || marker == 0xd9 || marker == 0xda) {
      return brim_fail(BRIM_EPARSE, "%s: damaged JPEG header: marker %02x before the size", name,
                       marker);
    }
    unsigned length = be16(p + 2);
    if (length < 2) {
      return brim_fail(BRIM_EPARSE, "%s: damaged JPEG header: segment %02x of %u bytes", name,
                       marker, length);
    }
    if (is_frame(marker)) {
      if (length < 8) {
        return brim_fail(BRIM_EPARSE, "%s: damaged JPEG header: segment %02x of %u bytes", name,
                         marker, length);
      }
      if (size - *at < 10) return BRIM_EEND;
      return read_frame(p + 2, marker, name, out, least_bytes);
    }
    *at += 2 + length;
  }
}

//---------------------------------- errors ----------------------------------

typedef struct jpeg_job {
  struct jpeg_decompress_struct jpeg;
  struct jpeg_error_mgr errors;
  struct jpeg_progress_mgr progress;
  jmp_buf jump;
  brim_status status;
  const uint8_t *bytes;
  size_t size;
  const char *name;
  const brim_image_want *want;
  brim_image_pixels *out;
} jpeg_job;

static brim_status status_of(int code) {
  switch (code) {
    case JERR_OUT_OF_MEMORY:
      return BRIM_ENOMEM;
    case JERR_BAD_PRECISION:
    case JERR_SOF_UNSUPPORTED:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_CCIR601_NOTIMPL:
#if JPEG_LIB_VERSION < 70
    case JERR_ARITH_NOTIMPL:
#endif
    case JERR_NOT_COMPILED:
      return BRIM_EUNSUPPORTED;
    case JERR_NO_BACKING_STORE:
    case JERR_IMAGE_TOO_BIG:
    case JERR_WIDTH_OVERFLOW:
      return BRIM_ELIMIT;
    default:
      return BRIM_EPARSE;
  }
}

// Ends decoding with the library's error as the status.
static _Noreturn void fail_decoding(j_common_ptr common) {
  jpeg_job *job = common->client_data;
  char text[JMSG_LENGTH_MAX];
  common->err->format_message(common, text);
  size_t left = job->jpeg.src ? job->jpeg.src->bytes_in_buffer : job->size;
  // Past the end of the input the library reads an end marker of its own, which is not in job->bytes.
  size_t offset = left <= job->size ? job->size - left : job->size;
  int code = common->err->msg_code;
  if (code == JWRN_JPEG_EOF) offset = job->size;
  job->status = code == JWRN_EXTRANEOUS_DATA
                    ? brim_fail(BRIM_EPARSE, "%s: offset %zu: %s; strict=false accepts it",
                                job->name, offset, text)
                    : brim_fail(status_of(code), "%s: offset %zu: %s", job->name, offset, text);
  longjmp(job->jump, 1);
}

// Treats the library's warnings as errors: it fills damaged parts with gray. A few harmless warnings
// pass.
static void on_message(j_common_ptr common, int level) {
  if (level >= 0) return;  // traces
  const jpeg_job *job = common->client_data;
  int code = common->err->msg_code;
  if (code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR) return;
  if (code == JWRN_EXTRANEOUS_DATA && job->want->lenient) return;
  fail_decoding(common);
}

static void ignore_message(j_common_ptr common) { (void)common; }

static void on_progress(j_common_ptr common) {
  jpeg_job *job = common->client_data;
  if (job->jpeg.input_scan_number <= MAX_SCANS) return;
  job->status = brim_fail(BRIM_ELIMIT, "%s: more than %d scans", job->name, MAX_SCANS);
  longjmp(job->jump, 1);
}

//---------------------------------- pixels ----------------------------------

static brim_status choose_colors(jpeg_job *job) {
  struct jpeg_decompress_struct *j = &job->jpeg;
  switch (j->jpeg_color_space) {
    case JCS_GRAYSCALE:
    case JCS_YCbCr:
    case JCS_RGB:
      j->out_color_space = job->want->channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
      return BRIM_OK;
    case JCS_CMYK:
    case JCS_YCCK:
      j->out_color_space = JCS_CMYK;
      return BRIM_OK;
    default:
      return brim_fail(BRIM_EUNSUPPORTED,
                       "%s: a JPEG of %d components; 1 (gray), 3 (YCbCr, RGB) and 4 (CMYK, YCCK) "
                       "can be read",
                       job->name, j->num_components);
  }
}

// Converts a row of CMYK. Adobe's programs, which alone write this marker, store inverted ink.
static void convert_cmyk(const jpeg_job *job, const uint8_t *in, uint8_t *out) {
  unsigned flip = job->jpeg.saw_Adobe_marker ? 0 : 255;
  for (int64_t x = 0; x < job->out->width; x++, in += 4) {
    unsigned k = in[3] ^ flip, rgb[3];
    for (int c = 0; c < 3; c++) rgb[c] = ((in[c] ^ flip) * k + 127) / 255;
    if (job->want->channels == 3) {
      for (int c = 0; c < 3; c++) *out++ = (uint8_t)rgb[c];
    } else {
      *out++ = (uint8_t)((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 32768) >> 16);
    }
  }
}

static void read_rows(jpeg_job *job) {
  struct jpeg_decompress_struct *j = &job->jpeg;
  size_t row_bytes = (size_t)job->out->width * (size_t)job->want->channels;
  JSAMPARRAY ink = NULL;
  if (j->out_color_space == JCS_CMYK) {
    ink = j->mem->alloc_sarray((j_common_ptr)j, JPOOL_IMAGE, j->output_width * 4, 1);
  }
  while (j->output_scanline < j->output_height) {
    uint8_t *at = job->out->data + j->output_scanline * row_bytes;
    if (ink) {
      if (jpeg_read_scanlines(j, ink, 1)) convert_cmyk(job, ink[0], at);
      continue;
    }
    JSAMPROW rows[ROWS_AT_ONCE];
    JDIMENSION n = j->output_height - j->output_scanline;
    if (n > ROWS_AT_ONCE) n = ROWS_AT_ONCE;
    for (JDIMENSION i = 0; i < n; i++) rows[i] = at + i * row_bytes;
    jpeg_read_scanlines(j, rows, n);
  }
}

static brim_status jpeg_decode(jpeg_job *job) {
  struct jpeg_decompress_struct *j = &job->jpeg;
  jpeg_mem_src(j, job->bytes, (unsigned long)job->size);
  jpeg_read_header(j, TRUE);
  BRIM_TRY(brim_image_check_size(job->name, j->image_height, j->image_width));
  BRIM_TRY(choose_colors(job));
  j->scale_num = 1;
  j->scale_denom = (unsigned)job->want->scale;
  jpeg_calc_output_dimensions(j);
  job->out->height = j->output_height;
  job->out->width = j->output_width;
  BRIM_TRY(brim_image_check_room(job->name, job->want, job->out));
  jpeg_start_decompress(j);
  read_rows(job);
  jpeg_finish_decompress(j);  // warns, and so fails, if the end marker is missing
  return BRIM_OK;
}

// Separate from its caller so that only *job lives across the longjmp.
static brim_status jpeg_decode_guarded(jpeg_job *job) {
  if (setjmp(job->jump)) return job->status;
  jpeg_create_decompress(&job->jpeg);
  job->jpeg.mem->max_memory_to_use = MAX_MEMORY;
  memset(&job->progress, 0, sizeof job->progress);
  job->progress.progress_monitor = on_progress;
  job->jpeg.progress = &job->progress;
  return jpeg_decode(job);
}

brim_status brim_jpeg_decode(const uint8_t *bytes, size_t size, const char *name,
                             const brim_image_want *want, brim_image_pixels *out) {
  jpeg_job job;  // large: only necessary members are set
  job.status = BRIM_OK;
  job.bytes = bytes;
  job.size = size;
  job.name = name;
  job.want = want;
  job.out = out;
  job.jpeg.err = jpeg_std_error(&job.errors);
  job.errors.error_exit = fail_decoding;
  job.errors.emit_message = on_message;
  job.errors.output_message = ignore_message;
  job.jpeg.client_data = &job;
  job.jpeg.src = NULL;
  job.jpeg.mem = NULL;  // jpeg_destroy_decompress needs it if creating fails
  brim_status status = jpeg_decode_guarded(&job);
  jpeg_destroy_decompress(&job.jpeg);
  return status;
}

//---------------------------------- PNG ----------------------------------

enum { SIGNATURE = 8, HEAD_BYTES = 33 };  // signature, then the header chunk: 8 + 13 + 4

bool brim_png_is(const uint8_t *bytes, size_t size) {
  static const uint8_t signature[SIGNATURE] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  return size >= SIGNATURE && memcmp(bytes, signature, SIGNATURE) == 0;
}

//---------------------------------- the header ----------------------------------

static uint32_t be32(const uint8_t *p) {
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

brim_status brim_png_read_head(const uint8_t *bytes, size_t size, const char *name,
                               brim_image_head *out, uint64_t *least_bytes) {
  static const uint8_t samples[7] = {1, 0, 3, 1, 2, 0, 4};  // by colour type; 0 = no such type
  if (size < HEAD_BYTES) {
    return brim_fail(BRIM_EPARSE, "%s: offset %zu: the file ends before its image size", name,
                     size);
  }
  if (be32(bytes + 8) != 13 || memcmp(bytes + 12, "IHDR", 4) != 0) {
    return brim_fail(BRIM_EPARSE, "%s: offset 8: damaged PNG header", name);
  }
  unsigned depth = bytes[24], color = bytes[25];
  BRIM_TRY(brim_image_check_size(name, be32(bytes + 20), be32(bytes + 16)));
  if (color > 6 || !samples[color] || depth > 16) {
    return brim_fail(BRIM_EPARSE, "%s: offset 24: damaged PNG header: colour type %u, %u bits",
                     name, color, depth);
  }
  out->width = be32(bytes + 16);
  out->height = be32(bytes + 20);
  out->channels = color & 2 ? 3 : 1;
  // Deflate cannot pack more than 1032 to 1.
  uint64_t row = ((uint64_t)out->width * depth * samples[color] + 7) / 8 + 1;
  *least_bytes = row * (uint64_t)out->height / 1032;
  return BRIM_OK;
}

//---------------------------------- callbacks of libpng ----------------------------------

typedef struct png_job {
  png_structp png;
  png_infop info;
  const uint8_t *bytes;
  size_t size, at;
  const char *name;
  const brim_image_want *want;
  brim_image_pixels *out;
  brim_status status;
} png_job;

static void on_error(png_structp png, png_const_charp text) {
  png_job *job = png_get_error_ptr(png);
  brim_status status = strstr(text, "emory") ? BRIM_ENOMEM : BRIM_EPARSE;
  job->status = brim_fail(status, "%s: offset %zu: %s", job->name, job->at, brim_tr(text));
  png_longjmp(png, 1);
}

static void ignore_warning(png_structp png, png_const_charp text) {
  (void)png;
  (void)text;
}

static void on_read(png_structp png, png_bytep out, size_t n) {
  png_job *job = png_get_io_ptr(png);
  if (n > job->size - job->at) {
    job->at = job->size;
    png_error(png, BRIM_N_("the file ends too early; it is cut off"));
  }
  memcpy(out, job->bytes + job->at, n);
  job->at += n;
}

static png_voidp on_alloc(png_structp png, png_alloc_size_t size) {
  (void)png;
  return brim_alloc(size);
}

static void on_free(png_structp png, png_voidp block) {
  (void)png;
  brim_free(block);
}

//---------------------------------- pixels ----------------------------------

// Has libpng convert everything to 8 bits of gray or RGB.
static void set_transforms(png_job *job) {
  png_structp png = job->png;
  int color = png_get_color_type(png, job->info);
  int depth = png_get_bit_depth(png, job->info);
  if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (color == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(png);
  if (depth == 16) png_set_scale_16(png);
  png_set_strip_alpha(png);
  bool colored = (color & PNG_COLOR_MASK_COLOR) != 0;
  if (job->want->channels == 3 && !colored) png_set_gray_to_rgb(png);
  // JPEG's luma, so that gray means the same in both formats.
  if (job->want->channels == 1 && colored) png_set_rgb_to_gray_fixed(png, 1, 29900, 58700);
}

static brim_status png_decode(png_job *job) {
  png_structp png = job->png;
  png_set_read_fn(png, job, on_read);
  png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
  png_set_benign_errors(png, job->want->lenient);
  png_set_user_limits(png, BRIM_IMAGE_MAX_SIDE, BRIM_IMAGE_MAX_SIDE);
  // Skip chunks that pixels do not need (profiles, texts) without parsing them.
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
  png_read_info(png, job->info);
  job->out->width = png_get_image_width(png, job->info);
  job->out->height = png_get_image_height(png, job->info);
  BRIM_TRY(brim_image_check_size(job->name, (uint64_t)job->out->height, (uint64_t)job->out->width));
  BRIM_TRY(brim_image_check_room(job->name, job->want, job->out));
  set_transforms(job);
  int passes = png_set_interlace_handling(png);
  png_read_update_info(png, job->info);
  size_t row_bytes = (size_t)job->out->width * (size_t)job->want->channels;
  if (png_get_rowbytes(png, job->info) != row_bytes) {
    return brim_fail(BRIM_EINTERNAL, "%s: libpng gives rows of %zu bytes, not %zu", job->name,
                     png_get_rowbytes(png, job->info), row_bytes);
  }
  for (int pass = 0; pass < passes; pass++) {
    for (int64_t y = 0; y < job->out->height; y++) {
      png_read_row(png, job->out->data + (size_t)y * row_bytes, NULL);
    }
  }
  png_read_end(png, NULL);  // checks the last checksums
  return BRIM_OK;
}

// Separate from its caller so that only *job lives across the longjmp.
static brim_status png_decode_guarded(png_job *job) {
  if (setjmp(png_jmpbuf(job->png))) return job->status;
  return png_decode(job);
}

brim_status brim_png_decode(const uint8_t *bytes, size_t size, const char *name,
                            const brim_image_want *want, brim_image_pixels *out) {
  png_job job = {.bytes = bytes, .size = size, .name = name, .want = want, .out = out};
  job.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &job, on_error, ignore_warning, NULL,
                                     on_alloc, on_free);
  if (job.png) job.info = png_create_info_struct(job.png);
  brim_status status =
      job.info ? png_decode_guarded(&job) : brim_fail(BRIM_ENOMEM, "%s: out of memory", name);
  png_destroy_read_struct(&job.png, &job.info, NULL);
  return status;
}

//---------------------------------- all formats ----------------------------------

enum { HEAD_PIECE = 4096 };  // bytes of a file read at once; enough for most headers

bool brim_image_is_name(const char *name) {
  static const char *const ends[] = {".jpg", ".jpeg", ".png", ".bmp"};
  const char *dot = strrchr(name, '.');
  if (dot && brim_webp_present && strcasecmp(dot, ".webp") == 0) return true;
  for (size_t i = 0; dot && i < sizeof ends / sizeof *ends; i++) {
    if (strcasecmp(dot, ends[i]) == 0) return true;
  }
  return false;
}

const char *brim_image_ends(void) {
  return brim_webp_present ? ".jpg, .jpeg, .png, .bmp, .webp" : ".jpg, .jpeg, .png, .bmp";
}

static brim_status fail_unknown(const uint8_t *bytes, size_t size, const char *name) {
  if (!size) return brim_fail(BRIM_EPARSE, "%s: offset 0: the file is empty", name);
  uint8_t first[4] = {0};
  memcpy(first, bytes, size < sizeof first ? size : sizeof first);
  return brim_fail(BRIM_EPARSE,
                   "%s: offset 0: not an image of a kind that brim reads (%s); it begins with %02x "
                   "%02x %02x %02x",
                   name, brim_image_ends(), first[0], first[1], first[2], first[3]);
}

static brim_status check_least(const char *name, const brim_image_head *head, uint64_t least,
                               uint64_t size) {
  if (size >= least) return BRIM_OK;
  return brim_fail(BRIM_EPARSE,
                   "%s: the header announces %" PRId64 " x %" PRId64 " pixels, at least %" PRIu64
                   " bytes; the file has %" PRIu64,
                   name, head->height, head->width, least, size);
}

static brim_status fail_no_frame(const char *name, uint64_t size) {
  return brim_fail(BRIM_EPARSE, "%s: offset %" PRIu64 ": the file ends before its image size", name,
                   size);
}

// Reads up to n bytes, as many as the file has.
static brim_status read_some(int fd, const char *name, uint64_t offset, uint8_t *out, size_t n,
                             size_t *got) {
  *got = 0;
  while (*got < n) {
    ssize_t more = pread(fd, out + *got, n - *got, (off_t)(offset + *got));
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) {
      return brim_fail(brim_errno_status(errno), "%s: offset %" PRIu64 ": %s", name, offset + *got,
                       brim_errno_text(errno));
    }
    if (!more) break;
    *got += (size_t)more;
  }
  return BRIM_OK;
}

brim_status brim_image_probe_file(int fd, const char *name, brim_image_head *out) {
  uint8_t piece[HEAD_PIECE];
  size_t held;
  uint64_t offset = 0, least = 0, size;
  BRIM_TRY(read_some(fd, name, 0, piece, sizeof piece, &held));
  size = held;
  if (held == sizeof piece) {
    struct stat st;
    if (fstat(fd, &st)) {
      return brim_fail(brim_errno_status(errno), "%s: %s", name, brim_errno_text(errno));
    }
    if (!S_ISREG(st.st_mode)) return brim_fail(BRIM_EINVAL, "%s: not a regular file", name);
    size = (uint64_t)st.st_size;
  }
  if (brim_png_is(piece, held)) {
    BRIM_TRY(brim_png_read_head(piece, held, name, out, &least));
    return check_least(name, out, least, size);
  }
  if (brim_bmp_is(piece, held)) {
    BRIM_TRY(brim_bmp_read_head(piece, held, name, out, &least));
    return check_least(name, out, least, size);
  }
  if (brim_webp_is(piece, held)) {
    BRIM_TRY(brim_webp_read_head(piece, held, name, out, &least));
    return check_least(name, out, least, size);
  }
  if (!is_jpeg(piece, held)) return fail_unknown(piece, held, name);
  size_t at = 2;
  for (;;) {
    brim_status status = brim_jpeg_find_frame(piece, held, &at, name, out, &least);
    if (!status) return check_least(name, out, least, size);
    if (status != BRIM_EEND) return status;
    if (!at && held < sizeof piece) return fail_no_frame(name, size);  // ends inside the header
    offset += at;  // may be past `held`: large segments are skipped unread
    at = 0;
    BRIM_TRY(read_some(fd, name, offset, piece, sizeof piece, &held));
    if (held < 4) return fail_no_frame(name, size);
  }
}

brim_status brim_image_decode(const void *bytes, size_t size, const char *name,
                              const brim_image_want *want, brim_image_pixels *out) {
  if ((want->channels != 1 && want->channels != 3) ||
      (want->scale != 1 && want->scale != 2 && want->scale != 4 && want->scale != 8)) {
    return brim_fail(BRIM_EINVAL, "%s: %d channels at 1/%d cannot be decoded", name, want->channels,
                     want->scale);
  }
  if (is_jpeg(bytes, size)) return brim_jpeg_decode(bytes, size, name, want, out);
  if (brim_png_is(bytes, size)) return brim_png_decode(bytes, size, name, want, out);
  if (brim_bmp_is(bytes, size)) return brim_bmp_decode(bytes, size, name, want, out);
  if (brim_webp_is(bytes, size)) return brim_webp_decode(bytes, size, name, want, out);
  return fail_unknown(bytes, size, name);
}
