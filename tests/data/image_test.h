// Shared by the tests of images: JPEG and PNG files made in memory from a pattern known by formula.
#ifndef BRIM_TESTS_IMAGE_TEST_H_
#define BRIM_TESTS_IMAGE_TEST_H_

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data_test.h"

#include <jpeglib.h>
#include <png.h>

static inline int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at) {
  (void)st;
  (void)kind;
  (void)at;
  return remove(path);
}

// Enters an empty folder, because files of an earlier run would be found as images.
static inline void go_to_fresh_folder(void) {
  nftw("work", remove_entry, 16, FTW_DEPTH | FTW_PHYS);
  if (mkdir("work", 0700) || chdir("work")) abort();
}

typedef struct jpeg_how {
  int height, width;
  J_COLOR_SPACE color;  // colours of the samples: JCS_GRAYSCALE, JCS_RGB, JCS_CMYK
  bool ycck;            // CMYK stored as YCCK
  bool progressive;
  int quality;                    // 0 = 95
  const jpeg_scan_info *scans;    // a custom order of scans
  int scan_count, restart_every;  // in blocks
} jpeg_how;

// A smooth pattern, so that JPEG keeps it: slopes up and down that differ by channel. `seed` shifts it.
static inline int slope(int v) { return abs(v % 128 - 64); }
static inline uint8_t smooth(int y, int x, int c, int seed) {
  return (uint8_t)(40 + 20 * c + slope(y * (c + 1)) + slope(x * (3 - c % 3)) / 2 + seed % 16);
}

static inline int jpeg_components(J_COLOR_SPACE color) {
  return color == JCS_GRAYSCALE ? 1 : color == JCS_CMYK ? 4 : 3;
}

static inline void make_jpeg(const jpeg_how *how, int seed, bytes *out) {
  struct jpeg_compress_struct j;
  struct jpeg_error_mgr errors;
  unsigned char *data = NULL;
  unsigned long size = 0;
  int components = jpeg_components(how->color);
  j.err = jpeg_std_error(&errors);
  jpeg_create_compress(&j);
  jpeg_mem_dest(&j, &data, &size);
  j.image_height = (JDIMENSION)how->height;
  j.image_width = (JDIMENSION)how->width;
  j.input_components = components;
  j.in_color_space = how->color;
  jpeg_set_defaults(&j);
  if (how->ycck) jpeg_set_colorspace(&j, JCS_YCCK);
  jpeg_set_quality(&j, how->quality ? how->quality : 95, TRUE);
  if (how->progressive) jpeg_simple_progression(&j);
  if (how->scans) {
    j.scan_info = how->scans;
    j.num_scans = how->scan_count;
  }
  j.restart_interval = (unsigned)how->restart_every;
  jpeg_start_compress(&j, TRUE);
  uint8_t *row = malloc((size_t)how->width * (size_t)components);
  assert_non_null(row);
  for (int y = 0; y < how->height; y++) {
    for (int x = 0; x < how->width; x++) {
      for (int c = 0; c < components; c++) row[x * components + c] = smooth(y, x, c, seed);
    }
    JSAMPROW rows[1] = {row};
    jpeg_write_scanlines(&j, rows, 1);
  }
  free(row);
  jpeg_finish_compress(&j);
  jpeg_destroy_compress(&j);
  out->size = 0;
  put(out, data, size);
  free(data);
}

typedef struct png_how {
  int height, width, color, depth;  // PNG_COLOR_TYPE_*, bits
  bool interlaced, transparent;     // transparent: with tRNS
} png_how;

static inline int png_samples(int color) {
  switch (color) {
    case PNG_COLOR_TYPE_GRAY_ALPHA:
      return 2;
    case PNG_COLOR_TYPE_RGB:
      return 3;
    case PNG_COLOR_TYPE_RGBA:
      return 4;
    default:
      return 1;
  }
}

// Sample c at a place, in [0, 2^depth): noise, which does not compress.
static inline unsigned png_value(const png_how *how, int y, int x, int c) {
  unsigned v = (unsigned)(y * 65536 + x * 4 + c) * 2654435761u;
  return (v ^ v >> 15) * 2246822519u >> (32 - how->depth);
}

// Colours of the palette.
static inline png_color png_entry(unsigned i) {
  return (png_color){
      .red = (uint8_t)(i * 3), .green = (uint8_t)(255 - i), .blue = (uint8_t)(i * 7)};
}

static inline void png_put(png_structp png, png_bytep data, size_t n) {
  put(png_get_io_ptr(png), data, n);
}

static inline void png_flush_none(png_structp png) { (void)png; }

static inline void png_set_palette(png_structp png, png_infop info, const png_how *how) {
  if (how->color == PNG_COLOR_TYPE_PALETTE) {
    png_color palette[256];
    for (unsigned i = 0; i < 256; i++) palette[i] = png_entry(i);
    png_set_PLTE(png, info, palette, 1 << how->depth);
  }
  if (!how->transparent) return;
  static png_byte alpha[2] = {0, 128};
  png_color_16 key = {.gray = 1, .red = 1, .green = 1, .blue = 1};
  bool palette = how->color == PNG_COLOR_TYPE_PALETTE;
  png_set_tRNS(png, info, palette ? alpha : NULL, palette ? 2 : 1, &key);
}

// One row of samples, packed as in PNG.
static inline void png_row(const png_how *how, int y, uint8_t *row) {
  int samples = png_samples(how->color);
  memset(row, 0, (size_t)(how->width * samples * how->depth + 7) / 8);
  for (int i = 0; i < how->width * samples; i++) {
    unsigned v = png_value(how, y, i / samples, i % samples);
    if (how->depth == 16) {
      row[2 * i] = (uint8_t)(v >> 8);
      row[2 * i + 1] = (uint8_t)v;
    } else {
      int bit = i * how->depth;
      row[bit / 8] = (uint8_t)(row[bit / 8] | v << (8 - how->depth - bit % 8));
    }
  }
}

static inline void make_png(const png_how *how, bytes *out) {
  out->size = 0;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
  png_infop info = png_create_info_struct(png);
  assert_non_null(info);
  png_set_write_fn(png, out, png_put, png_flush_none);
  png_set_IHDR(png, info, (png_uint_32)how->width, (png_uint_32)how->height, how->depth, how->color,
               how->interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_set_palette(png, info, how);
  png_write_info(png, info);
  uint8_t *row = malloc((size_t)how->width * 8 + 8);
  assert_non_null(row);
  int passes = png_set_interlace_handling(png);
  for (int pass = 0; pass < passes; pass++) {
    for (int y = 0; y < how->height; y++) {
      png_row(how, y, row);
      png_write_row(png, row);
    }
  }
  free(row);
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
}

// The value to which this pixel must decode.
static inline void png_expected(const png_how *how, int y, int x, uint8_t rgb[3]) {
  if (how->color == PNG_COLOR_TYPE_PALETTE) {
    png_color e = png_entry(png_value(how, y, x, 0));
    rgb[0] = e.red;
    rgb[1] = e.green;
    rgb[2] = e.blue;
    return;
  }
  unsigned most = (1u << how->depth) - 1;
  bool colored = (how->color & PNG_COLOR_MASK_COLOR) != 0;
  for (int c = 0; c < 3; c++) {
    unsigned v = png_value(how, y, x, colored ? c : 0);
    rgb[c] = (uint8_t)((v * 255 + most / 2) / most);
  }
}

typedef struct bmp_how {
  int height, width, bits;
  unsigned header, compression;  // bytes of the second header; 0, 1 runs, 3 masks
  bool top_down;
  unsigned colours;  // in the palette; 0 = all
  uint32_t mask[3];  // compression 3
} bmp_how;

static inline void put_le(bytes *b, uint32_t v, int n) {
  for (int i = 0; i < n; i++) {
    uint8_t byte = (uint8_t)(v >> 8 * i);
    put(b, &byte, 1);
  }
}

static inline uint32_t bmp_value(const bmp_how *how, int y, int x) {
  uint32_t v = (uint32_t)(y * 65536 + x * 4) * 2654435761u;
  v = (v ^ v >> 15) * 2246822519u;
  if (how->compression == 1) v = (uint32_t)(y * 3 + x / 4);  // with runs
  if (how->bits <= 8) return v % (how->colours ? how->colours : 1u << how->bits);
  return how->bits == 32 ? v : v >> (32 - how->bits);
}

// Writes runs and literal colours by turns.
static inline void put_runs(const bmp_how *how, int y, bytes *out) {
  for (int x = 0; x < how->width;) {
    int n = how->width - x < 9 ? how->width - x : 9;
    if (y % 2 && n > 2) {
      put_le(out, (uint32_t)n << 8, 2);
      for (int i = 0; i < n; i++) put_le(out, bmp_value(how, y, x + i), 1);
      if (n % 2) put_le(out, 0, 1);
    } else {
      for (n = 1; x + n < how->width && bmp_value(how, y, x + n) == bmp_value(how, y, x);) n++;
      put_le(out, (uint32_t)n | bmp_value(how, y, x) << 8, 2);
    }
    x += n;
  }
  put_le(out, 0, 2);
}

static inline void make_bmp(const bmp_how *how, bytes *out) {
  bool core = how->header == 12;
  unsigned colours = how->bits > 8 ? 0 : how->colours ? how->colours : 1u << how->bits;
  unsigned masks = how->compression == 3 && how->header == 40 ? 12 : 0;
  out->size = 0;
  put(out, "BM", 2);
  put_le(out, 0, 4);  // resolution, which readers ignore
  put_le(out, 0, 4);
  put_le(out, 14 + how->header + masks + colours * (core ? 3 : 4), 4);
  put_le(out, how->header, 4);
  put_le(out, (uint32_t)how->width, core ? 2 : 4);
  put_le(out, (uint32_t)(how->top_down ? -how->height : how->height), core ? 2 : 4);
  put_le(out, 1, 2);
  put_le(out, (uint32_t)how->bits, 2);
  if (!core) {
    put_le(out, how->compression, 4);
    for (int i = 0; i < 3; i++) put_le(out, 0, 4);
    put_le(out, how->colours, 4);
    put_le(out, 0, 4);
    for (unsigned i = 0; i < (how->header + masks - 40) / 4; i++)
      put_le(out, i < 3 ? how->mask[i] : 0, 4);
  }
  for (unsigned i = 0; i < colours; i++) {
    png_color e = png_entry(i);
    put_le(out, (uint32_t)e.blue | (uint32_t)e.green << 8 | (uint32_t)e.red << 16, core ? 3 : 4);
  }
  for (int row = 0; row < how->height; row++) {
    int y = how->top_down ? row : how->height - 1 - row, bits = 0;
    if (how->compression == 1) {
      put_runs(how, y, out);
      continue;
    }
    for (uint32_t x = 0, v = 0; x < (uint32_t)how->width; x++) {
      if (how->bits >= 8) {
        put_le(out, bmp_value(how, y, (int)x), how->bits / 8);
        bits += how->bits;
        continue;
      }
      v = v << how->bits | bmp_value(how, y, (int)x);
      bits += how->bits;
      if (x + 1 == (uint32_t)how->width) {
        while (bits % 8) v <<= 1, bits++;
      }
      if (bits % 8 == 0) put_le(out, v, 1);
    }
    while (bits % 32) put_le(out, 0, 1), bits += 8;
  }
  if (how->compression == 1) put_le(out, 0x100, 2);
}

// The value to which this pixel must decode.
static inline void bmp_expected(const bmp_how *how, int y, int x, uint8_t rgb[3]) {
  uint32_t v = bmp_value(how, y, x);
  static const uint32_t usual[2][3] = {{0x7c00, 0x3e0, 0x1f}, {0xff0000, 0xff00, 0xff}};
  if (how->bits <= 8) {
    png_color e = png_entry(v);
    rgb[0] = e.red;
    rgb[1] = e.green;
    rgb[2] = e.blue;
    return;
  }
  for (int c = 0; c < 3; c++) {
    uint64_t mask = how->compression == 3 ? how->mask[c] : usual[how->bits > 16][c],
             part = v & mask;
    while (!(mask & 1)) mask >>= 1, part >>= 1;
    while (mask > 255) mask >>= 1, part >>= 1;
    rgb[c] = (uint8_t)((part * 255 + mask / 2) / mask);
  }
}

#endif  // BRIM_TESTS_IMAGE_TEST_H_
