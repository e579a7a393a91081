// JPEG, PNG, BMP and WebP in memory: every kind decodes to the pixels it was made of. A file that is cut off, damaged
// or has a wrong size is an error, never a crash and never a byte outside the buffer.
#include <fcntl.h>
#include <unistd.h>

#include "data/data_int.h"
#include "data/image/data_image.h"
#include "image_test.h"
#include "memory_file.h"

#ifdef BRIM_TEST_WEBP
#include <webp/encode.h>
#endif

enum { GUARD = 64 };

// A buffer of exact size with guards around it.
typedef struct canvas {
  uint8_t *block;
  brim_image_pixels pixels;
} canvas;

static canvas canvas_make(size_t capacity) {
  canvas c = {.block = malloc(capacity + 2 * GUARD)};
  assert_non_null(c.block);
  memset(c.block, 0xa5, capacity + 2 * GUARD);
  c.pixels.data = c.block + GUARD;
  c.pixels.capacity = capacity;
  return c;
}

static void canvas_check(const canvas *c) {
  for (size_t i = 0; i < GUARD; i++) {
    assert_int_equal(c->block[i], 0xa5);
    assert_int_equal(c->pixels.data[c->pixels.capacity + i], 0xa5);
  }
}

static void canvas_free(canvas *c) {
  canvas_check(c);
  free(c->block);
}

static const brim_image_want rgb = {.channels = 3, .scale = 1};
static const brim_image_want gray = {.channels = 1, .scale = 1};

static brim_status probe(const void *data, size_t size, const char *name, brim_image_head *out) {
  int fd = memory_file(data, size, NULL);
  brim_status status = brim_image_probe_file(fd, name, out);
  close(fd);
  return status;
}

static void check_probe(const bytes *b, int height, int width, int channels) {
  brim_image_head head;
  assert_ok(probe(b->data, b->size, "x", &head));
  assert_int_equal(head.height, height);
  assert_int_equal(head.width, width);
  assert_int_equal(head.channels, channels);
}

static int luma(const uint8_t *p) { return (299 * p[0] + 587 * p[1] + 114 * p[2] + 500) / 1000; }

//---------------------------------- JPEG ----------------------------------

static void check_jpeg(const jpeg_how *how, const bytes *b, int channels, int tolerance) {
  brim_image_want want = {.channels = channels, .scale = 1};
  canvas c = canvas_make((size_t)(how->height * how->width * channels));
  assert_ok(brim_image_decode(b->data, b->size, "x.jpg", &want, &c.pixels));
  assert_int_equal(c.pixels.height, how->height);
  assert_int_equal(c.pixels.width, how->width);
  for (int y = 0; y < how->height; y++) {
    for (int x = 0; x < how->width; x++) {
      uint8_t in[3];
      for (int k = 0; k < 3; k++) in[k] = smooth(y, x, how->color == JCS_GRAYSCALE ? 0 : k, 0);
      for (int k = 0; k < channels; k++) {
        int got = c.pixels.data[(y * how->width + x) * channels + k];
        int expected = channels == 1 ? luma(in) : in[k];
        if (abs(got - expected) > tolerance) {
          fail_msg("%d x %d at (%d, %d, %d): %d, not %d", how->height, how->width, y, x, k, got,
                   expected);
        }
      }
    }
  }
  canvas_free(&c);
}

static void test_jpeg_sizes(void **state) {
  (void)state;
  static const int sizes[][2] = {{1, 1}, {1, 2}, {2, 1}, {7, 9}, {8, 8}, {17, 33}, {64, 48}};
  static bytes b;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    for (int kind = 0; kind < 4; kind++) {
      jpeg_how how = {.height = sizes[i][0],
                      .width = sizes[i][1],
                      .color = kind % 2 ? JCS_RGB : JCS_GRAYSCALE,
                      .restart_every = kind == 3 ? 1 : 0,
                      .progressive = kind == 2};
      make_jpeg(&how, 0, &b);
      check_probe(&b, how.height, how.width, kind % 2 ? 3 : 1);
      check_jpeg(&how, &b, 3, 12);  // chroma is kept at half the size
      check_jpeg(&how, &b, 1, 4);
    }
  }
}

// Progressive files hold the same numbers in another order: the same pixels, bit for bit.
static void test_jpeg_progressive(void **state) {
  (void)state;
  static bytes plain, progressive;
  jpeg_how how = {.height = 37, .width = 41, .color = JCS_RGB, .quality = 80};
  make_jpeg(&how, 3, &plain);
  how.progressive = true;
  make_jpeg(&how, 3, &progressive);
  canvas a = canvas_make(37 * 41 * 3), b = canvas_make(37 * 41 * 3);
  assert_ok(brim_image_decode(plain.data, plain.size, "a", &rgb, &a.pixels));
  assert_ok(brim_image_decode(progressive.data, progressive.size, "b", &rgb, &b.pixels));
  assert_memory_equal(a.pixels.data, b.pixels.data, 37 * 41 * 3);
  check_probe(&progressive, 37, 41, 3);
  canvas_free(&a);
  canvas_free(&b);
}

static void test_jpeg_scaled(void **state) {
  (void)state;
  static bytes b;
  jpeg_how how = {.height = 67, .width = 90, .color = JCS_RGB};
  make_jpeg(&how, 0, &b);
  for (int scale = 1; scale <= 8; scale *= 2) {
    int h = (67 + scale - 1) / scale, w = (90 + scale - 1) / scale;
    brim_image_want want = {.channels = 3, .scale = scale};
    canvas c = canvas_make((size_t)(h * w * 3));
    assert_ok(brim_image_decode(b.data, b.size, "x", &want, &c.pixels));
    assert_int_equal(c.pixels.height, h);
    assert_int_equal(c.pixels.width, w);
    for (int y = 0; y + 1 < h; y++) {
      for (int x = 0; x + 1 < w; x++) {
        int sum = 0;
        for (int k = 0; k < scale * scale; k++) {
          sum += smooth(y * scale + k / scale, x * scale + k % scale, 1, 0);
        }
        int got = c.pixels.data[(y * w + x) * 3 + 1], mean = sum / (scale * scale);
        if (abs(got - mean) > 14) fail_msg("1/%d at (%d, %d): %d, not %d", scale, y, x, got, mean);
      }
    }
    canvas_free(&c);
  }
  brim_image_want want = {.channels = 3, .scale = 3};
  canvas c = canvas_make(67 * 90 * 3);
  assert_status(brim_image_decode(b.data, b.size, "x", &want, &c.pixels), BRIM_EINVAL);
  canvas_free(&c);
}

// The library's writer marks CMYK as Adobe does, with inverted ink: 255 is none.
static void test_jpeg_cmyk(void **state) {
  (void)state;
  static bytes b;
  for (int ycck = 0; ycck < 2; ycck++) {
    jpeg_how how = {.height = 20, .width = 24, .color = JCS_CMYK, .ycck = ycck == 1};
    make_jpeg(&how, 0, &b);
    check_probe(&b, 20, 24, 3);
    canvas c = canvas_make(20 * 24 * 3), g = canvas_make(20 * 24);
    assert_ok(brim_image_decode(b.data, b.size, "x", &rgb, &c.pixels));
    assert_ok(brim_image_decode(b.data, b.size, "x", &gray, &g.pixels));
    for (int y = 0; y < 20; y++) {
      for (int x = 0; x < 24; x++) {
        const uint8_t *p = c.pixels.data + (y * 24 + x) * 3;
        for (int k = 0; k < 3; k++) {
          assert_true(abs(p[k] - smooth(y, x, k, 0) * smooth(y, x, 3, 0) / 255) <= 8);
        }
        assert_true(abs(g.pixels.data[y * 24 + x] - luma(p)) <= 1);
      }
    }
    canvas_free(&c);
    canvas_free(&g);
  }
}

// One scan for each coefficient, then scans that refine it by a bit: legal, but repeated often enough the work has no
// end.
static void test_jpeg_scans(void **state) {
  (void)state;
  static bytes b;
  static jpeg_scan_info scans[600];
  int n = 0;
  scans[n++] = (jpeg_scan_info){.comps_in_scan = 3, .component_index = {0, 1, 2}};
  for (int bit = 1; bit >= 0; bit--) {
    for (int c = 0; c < 3; c++) {
      for (int k = 1; k < 64; k++) {
        scans[n++] = (jpeg_scan_info){.comps_in_scan = 1,
                                      .component_index = {c},
                                      .Ss = k,
                                      .Se = k,
                                      .Ah = bit ? 0 : 1,
                                      .Al = bit};
      }
    }
  }
  jpeg_how how = {.height = 8, .width = 8, .color = JCS_RGB, .scans = scans, .scan_count = n};
  make_jpeg(&how, 0, &b);
  canvas c = canvas_make(8 * 8 * 3);
  assert_status(brim_image_decode(b.data, b.size, "many.jpg", &rgb, &c.pixels), BRIM_ELIMIT);
  assert_detail("many.jpg: more than 256 scans");
  how.scan_count = 1 + 189;
  make_jpeg(&how, 0, &b);
  assert_ok(brim_image_decode(b.data, b.size, "some.jpg", &rgb, &c.pixels));
  canvas_free(&c);
}

static void test_jpeg_stray_bytes(void **state) {
  (void)state;
  static bytes b;
  jpeg_how how = {.height = 16, .width = 16, .color = JCS_RGB};
  make_jpeg(&how, 0, &b);
  b.size -= 2;
  put(&b, "stray\xff\xd9", 7);
  canvas c = canvas_make(16 * 16 * 3);
  assert_status(brim_image_decode(b.data, b.size, "s.jpg", &rgb, &c.pixels), BRIM_EPARSE);
  assert_detail("s.jpg: offset");
  assert_detail("strict=false");
  brim_image_want lenient = rgb;
  lenient.lenient = true;
  assert_ok(brim_image_decode(b.data, b.size, "s.jpg", &lenient, &c.pixels));
  // Bytes after the end marker are fine: previews, padding.
  make_jpeg(&how, 0, &b);
  put(&b, "trailer", 7);
  assert_ok(brim_image_decode(b.data, b.size, "s.jpg", &rgb, &c.pixels));
  // Lenient decoding still fails if pixels are missing.
  assert_status(brim_image_decode(b.data, b.size - 40, "s.jpg", &lenient, &c.pixels), BRIM_EPARSE);
  canvas_free(&c);
}

// Tables of one image must not serve the next: an image without its own is broken, not almost right.
static void test_jpeg_no_tables(void **state) {
  (void)state;
  static bytes b, cut;
  jpeg_how how = {.height = 16, .width = 16, .color = JCS_GRAYSCALE};
  make_jpeg(&how, 0, &b);
  cut.size = 0;
  for (size_t at = 0; at + 4 < b.size;) {
    if (b.data[at] == 0xff && b.data[at + 1] == 0xdb) {  // quantisation
      at += 2u + (size_t)(b.data[at + 2] << 8 | b.data[at + 3]);
      put(&cut, b.data + at, b.size - at);
      break;
    }
    put(&cut, &b.data[at++], 1);
  }
  canvas c = canvas_make(16 * 16);
  assert_ok(brim_image_decode(b.data, b.size, "whole", &gray, &c.pixels));
  assert_status(brim_image_decode(cut.data, cut.size, "cut", &gray, &c.pixels), BRIM_EPARSE);
  assert_detail("cut: offset");
  canvas_free(&c);
}

//---------------------------------- PNG ----------------------------------

static void check_png(const png_how *how) {
  static bytes b;
  make_png(how, &b);
  check_probe(&b, how->height, how->width, how->color & PNG_COLOR_MASK_COLOR ? 3 : 1);
  size_t pixels = (size_t)(how->height * how->width);
  canvas c = canvas_make(pixels * 3), g = canvas_make(pixels);
  assert_ok(brim_image_decode(b.data, b.size, "x.png", &rgb, &c.pixels));
  assert_ok(brim_image_decode(b.data, b.size, "x.png", &gray, &g.pixels));
  assert_int_equal(c.pixels.height, how->height);
  assert_int_equal(g.pixels.width, how->width);
  for (int y = 0; y < how->height; y++) {
    for (int x = 0; x < how->width; x++) {
      uint8_t expected[3];
      png_expected(how, y, x, expected);
      size_t at = (size_t)(y * how->width + x);
      for (size_t k = 0; k < 3; k++) {
        if (c.pixels.data[at * 3 + k] != expected[k]) {
          fail_msg("colour type %d, %d bits, interlaced %d, at (%d, %d, %d): %d, not %d",
                   how->color, how->depth, how->interlaced, y, x, (int)k, c.pixels.data[at * 3 + k],
                   expected[k]);
        }
      }
      assert_true(abs(g.pixels.data[at] - luma(expected)) <= 1);
    }
  }
  canvas_free(&c);
  canvas_free(&g);
}

static void test_png_kinds(void **state) {
  (void)state;
  static const struct {
    int color, depths[6];
  } kinds[] = {{PNG_COLOR_TYPE_GRAY, {1, 2, 4, 8, 16}},
               {PNG_COLOR_TYPE_PALETTE, {1, 2, 4, 8}},
               {PNG_COLOR_TYPE_RGB, {8, 16}},
               {PNG_COLOR_TYPE_GRAY_ALPHA, {8, 16}},
               {PNG_COLOR_TYPE_RGBA, {8, 16}}};
  static const int sizes[][2] = {{1, 1}, {1, 9}, {5, 1}, {13, 22}};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    for (const int *depth = kinds[k].depths; *depth; depth++) {
      for (size_t s = 0; s < 16; s++) {
        png_how how = {.height = sizes[s % 4][0],
                       .width = sizes[s % 4][1],
                       .color = kinds[k].color,
                       .depth = *depth,
                       .interlaced = s / 4 % 2 == 1,
                       .transparent = s / 8 == 1 && !(kinds[k].color & PNG_COLOR_MASK_ALPHA)};
        check_png(&how);
      }
    }
  }
}

static void set_be32(uint8_t *p, uint32_t v) {
  for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (24 - 8 * i));
}

// A header with a correct checksum and a size that the file does not hold.
static void test_png_lies(void **state) {
  (void)state;
  static bytes b;
  png_how how = {.height = 6, .width = 5, .color = PNG_COLOR_TYPE_RGB, .depth = 8};
  static const struct {
    uint32_t height, width;
    brim_status probe;
  } lies[] = {{7, 5, BRIM_OK},
              {6, 4, BRIM_OK},
              {60000, 4000, BRIM_EPARSE},
              {0, 5, BRIM_EPARSE},
              {65536, 1, BRIM_ELIMIT},
              {1u << 31, 1u << 31, BRIM_ELIMIT},
              {65535, 65535, BRIM_ELIMIT}};
  for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
    make_png(&how, &b);
    set_be32(b.data + 16, lies[i].width);
    set_be32(b.data + 20, lies[i].height);
    set_be32(b.data + 29, (uint32_t)crc32(0, b.data + 12, 17));
    brim_image_head head;
    assert_status(probe(b.data, b.size, "liar.png", &head), lies[i].probe);
    if (lies[i].probe) assert_detail("liar.png: ");
    canvas c = canvas_make(7 * 5 * 3);
    assert_true(brim_image_decode(b.data, b.size, "liar.png", &rgb, &c.pixels) != BRIM_OK);
    assert_detail("liar.png: ");
    canvas_free(&c);
  }
}

// A text chunk is skipped, unless its checksum shows damage.
static void test_png_extra_chunk(void **state) {
  (void)state;
  static bytes b, with;
  png_how how = {.height = 6, .width = 5, .color = PNG_COLOR_TYPE_RGB, .depth = 8};
  make_png(&how, &b);
  static const char *const types[] = {"tEXt", "iCCP", "abCd"};
  for (int i = 0; i < 6; i++) {
    uint8_t chunk[20];
    set_be32(chunk, 8);
    memcpy(chunk + 4, types[i / 2], 4);
    memcpy(chunk + 8, "nonsense", 8);
    set_be32(chunk + 16, (uint32_t)crc32(0, chunk + 4, 12) ^ (uint32_t)(i % 2));
    with.size = 0;
    put(&with, b.data, 33);
    put(&with, chunk, sizeof chunk);
    put(&with, b.data + 33, b.size - 33);
    canvas c = canvas_make(6 * 5 * 3);
    assert_status(brim_image_decode(with.data, with.size, "e.png", &rgb, &c.pixels),
                  i % 2 ? BRIM_EPARSE : BRIM_OK);
    canvas_free(&c);
  }
}

//---------------------------------- BMP ----------------------------------

static void check_bmp(const bmp_how *how, const bytes *b) {
  check_probe(b, how->height, how->width, 3);
  for (int channels = 1; channels <= 3; channels += 2) {
    brim_image_want want = {.channels = channels, .scale = 1};
    canvas c = canvas_make((size_t)(how->height * how->width * channels));
    uint8_t *exact = malloc(b->size);  // AddressSanitizer sees a read beyond this block
    assert_non_null(exact);
    memcpy(exact, b->data, b->size);
    assert_ok(brim_image_decode(exact, b->size, "x.bmp", &want, &c.pixels));
    free(exact);
    assert_int_equal(c.pixels.height, how->height);
    assert_int_equal(c.pixels.width, how->width);
    for (int y = 0; y < how->height; y++) {
      for (int x = 0; x < how->width; x++) {
        uint8_t expected[3];
        const uint8_t *p = c.pixels.data + (y * how->width + x) * channels;
        bmp_expected(how, y, x, expected);
        if (channels == 1) assert_int_equal(p[0], luma(expected));
        for (int k = 0; k < channels && channels == 3; k++) assert_int_equal(p[k], expected[k]);
      }
    }
    canvas_free(&c);
  }
}

static void test_bmp_kinds(void **state) {
  (void)state;
  static bytes b;
  static const bmp_how kinds[] = {
      {.bits = 1, .header = 40},
      {.bits = 4, .header = 40},
      {.bits = 4, .header = 40, .colours = 5},
      {.bits = 8, .header = 40},
      {.bits = 8, .header = 124, .colours = 200},
      {.bits = 16, .header = 40},
      {.bits = 24, .header = 40},
      {.bits = 32, .header = 40},
      {.bits = 32, .header = 108},
      {.bits = 1, .header = 12},
      {.bits = 4, .header = 12},
      {.bits = 8, .header = 12},
      {.bits = 24, .header = 12},
      {.bits = 24, .header = 64},
      {.bits = 16, .header = 40, .compression = 3, .mask = {0xf800, 0x7e0, 0x1f}},
      {.bits = 16, .header = 56, .compression = 3, .mask = {0xf, 0xf0, 0xf00}},
      {.bits = 32, .header = 40, .compression = 3, .mask = {0xff, 0xff00, 0xff0000}},
      {.bits = 32, .header = 52, .compression = 3, .mask = {0x3ff00000, 0xffc00, 0x3ff}},
      {.bits = 32, .header = 124, .compression = 3, .mask = {0x80000000, 0xffffffff, 1}},
      {.bits = 8, .header = 40, .compression = 1},
      {.bits = 8, .header = 40, .compression = 1, .colours = 17},
  };
  static const int sizes[][2] = {{1, 1}, {1, 9}, {5, 1}, {13, 22}, {3, 33}};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    for (size_t s = 0; s < 10; s++) {
      bmp_how how = kinds[k];
      how.height = sizes[s / 2][0];
      how.width = sizes[s / 2][1];
      how.top_down = s % 2 && how.header > 12 && how.compression != 1;
      make_bmp(&how, &b);
      check_bmp(&how, &b);
    }
  }
}

// Wrong headers and unsupported kinds: an error with a message, without allocating the size they give.
static void test_bmp_refused(void **state) {
  (void)state;
  static bytes b;
  static const struct {
    unsigned at, value, bytes;
    brim_status probe, decode;
  } lies[] = {
      {18, 14, 4, BRIM_OK, BRIM_ELIMIT},
      {18, 0, 4, BRIM_EPARSE, BRIM_EPARSE},
      {18, 0x80000000, 4, BRIM_ELIMIT, BRIM_ELIMIT},
      {22, 0x80000000, 4, BRIM_ELIMIT, BRIM_ELIMIT},
      {18, 65535, 4, BRIM_EPARSE, BRIM_ELIMIT},
      {22, 65536, 4, BRIM_ELIMIT, BRIM_ELIMIT},
      {10, 0, 4, BRIM_EPARSE, BRIM_EPARSE},
      {10, 0xffffffff, 4, BRIM_EPARSE, BRIM_EPARSE},
      {10, 60, 4, BRIM_OK, BRIM_EPARSE},
      {14, 13, 4, BRIM_EPARSE, BRIM_EPARSE},
      {28, 2, 2, BRIM_EUNSUPPORTED, BRIM_EUNSUPPORTED},
      {28, 64, 2, BRIM_EUNSUPPORTED, BRIM_EUNSUPPORTED},
      {30, 2, 4, BRIM_EUNSUPPORTED, BRIM_EUNSUPPORTED},
      {30, 4, 4, BRIM_EUNSUPPORTED, BRIM_EUNSUPPORTED},
      {30, 5, 4, BRIM_EUNSUPPORTED, BRIM_EUNSUPPORTED},
      {30, 99, 4, BRIM_EUNSUPPORTED, BRIM_EUNSUPPORTED},
      {46, 257, 4, BRIM_OK, BRIM_EPARSE},
      {46, 3, 4, BRIM_OK, BRIM_EPARSE},
  };
  bmp_how how = {.height = 19, .width = 13, .bits = 8, .header = 40};
  for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
    make_bmp(&how, &b);
    for (unsigned k = 0; k < lies[i].bytes; k++) {
      b.data[lies[i].at + k] = (uint8_t)(lies[i].value >> 8 * k);
    }
    brim_image_head head;
    print_message("case %zu\n", i);
    assert_status(probe(b.data, b.size, "liar.bmp", &head), lies[i].probe);
    if (lies[i].probe) assert_detail("liar.bmp: ");
    canvas c = canvas_make(19 * 13 * 3);
    assert_status(brim_image_decode(b.data, b.size, "liar.bmp", &rgb, &c.pixels), lies[i].decode);
    assert_detail("liar.bmp: ");
    canvas_free(&c);
  }
  static const uint32_t masks[][3] = {
      {0, 0xff00, 0xff}, {0xf0f, 0xff00, 0xff}, {0x10000, 0x7e0, 0x1f}};
  for (size_t i = 0; i < 3; i++) {
    bmp_how odd = {.height = 2, .width = 2, .bits = 16, .header = 40, .compression = 3};
    memcpy(odd.mask, masks[i], sizeof odd.mask);
    make_bmp(&odd, &b);
    canvas c = canvas_make(2 * 2 * 3);
    assert_status(brim_image_decode(b.data, b.size, "liar.bmp", &rgb, &c.pixels), BRIM_EPARSE);
    canvas_free(&c);
  }
  // run lengths that leave pixels out, or go beyond a row; two rows of 4
  static const struct {
    const char *runs;
    size_t size;
    brim_status decode;
  } runs[] = {
      {"\4\0\0\0\4\1\0\0\0\1", 10, BRIM_OK},
      {"\4\0\0\0\4\1\0\1\0\1", 10, BRIM_OK},
      {"\4\0\0\0\4\1\0\0\0\0", 10, BRIM_EUNSUPPORTED},
      {"\4\0\0\0\0\1\0\0\0\0", 10, BRIM_EUNSUPPORTED},
      {"\3\0\0\0\4\1\0\0\0\1", 10, BRIM_EUNSUPPORTED},
      {"\4\0\0\2\0\1\0\0\0\1", 10, BRIM_EUNSUPPORTED},
      {"\5\0\0\0\4\1\0\0\0\1", 10, BRIM_EPARSE},
      {"\0\4\0\0\0\0\0\0\0\377", 10, BRIM_EPARSE},
      {"\4\0\0\0\4\1\0\0\4\1\0\1", 12, BRIM_EUNSUPPORTED},
      {"\4\2\0\0\4\1\0\0\0\1", 10, BRIM_EPARSE},
  };
  bmp_how two = {.height = 2, .width = 4, .bits = 8, .header = 40, .compression = 1, .colours = 2};
  for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
    make_bmp(&two, &b);
    b.size = 14 + 40 + 2 * 4;
    put(&b, runs[i].runs, runs[i].size);
    canvas c = canvas_make(2 * 4 * 3);
    print_message("runs %zu\n", i);
    assert_status(brim_image_decode(b.data, b.size, "runs.bmp", &rgb, &c.pixels), runs[i].decode);
    canvas_free(&c);
  }
}

//---------------------------------- WebP ----------------------------------

static void make_webp(int height, int width, bool lossless, bytes *out) {
  out->size = 0;
#ifdef BRIM_TEST_WEBP
  uint8_t *pixels = malloc((size_t)(height * width * 4)), *data = NULL;
  assert_non_null(pixels);
  for (int i = 0; i < height * width; i++) {
    for (int c = 0; c < 3; c++) pixels[4 * i + c] = smooth(i / width, i % width, c, 0);
    pixels[4 * i + 3] = (uint8_t)(255 - i % 3);  // with alpha, which is dropped
  }
  size_t n = lossless ? WebPEncodeLosslessRGBA(pixels, width, height, 4 * width, &data)
                      : WebPEncodeRGBA(pixels, width, height, 4 * width, 95, &data);
  assert_true(n > 0);
  put(out, data, n);
  WebPFree(data);
  free(pixels);
#else
  (void)height, (void)width, (void)lossless;
#endif
}

static void test_webp(void **state) {
  (void)state;
  static bytes b;
  static const int sizes[][2] = {{1, 1}, {1, 9}, {5, 1}, {13, 22}, {70, 33}};
  brim_image_head head;
  assert_int_equal(brim_image_is_name("a.WebP"), brim_webp_present);
  if (!brim_webp_present) {  // named by its bytes even without the library
    assert_status(probe("RIFF\0\0\0\0WEBPVP8 ", 16, "w.png", &head), BRIM_EUNSUPPORTED);
    assert_detail("w.png: ");
    return;
  }
  for (size_t s = 0; s < 10; s++) {
    int height = sizes[s / 2][0], width = sizes[s / 2][1];
    make_webp(height, width, s % 2 == 0, &b);
    check_probe(&b, height, width, 3);
    for (int channels = 1; channels <= 3; channels += 2) {
      brim_image_want want = {.channels = channels, .scale = 1};
      canvas c = canvas_make((size_t)(height * width * channels));
      assert_ok(brim_image_decode(b.data, b.size, "x.webp", &want, &c.pixels));
      assert_int_equal(c.pixels.height, height);
      assert_int_equal(c.pixels.width, width);
      for (int i = 0; i < height * width; i++) {
        uint8_t expected[3];
        for (int k = 0; k < 3; k++) expected[k] = smooth(i / width, i % width, k, 0);
        if (channels == 1) expected[0] = (uint8_t)luma(expected);
        for (int k = 0; k < channels; k++) {
          assert_true(abs(c.pixels.data[i * channels + k] - expected[k]) <= (s % 2 ? 24 : 0));
        }
      }
      canvas_free(&c);
    }
  }
  // metadata before the picture; only the header is read
  static bytes with;
  make_webp(19, 13, true, &b);
  static const uint8_t icc[9000] = "ICCP";
  uint8_t extended[18] = {'V', 'P', '8', 'X', 10, 0, 0, 0, 0x20, 0, 0, 0, 12, 0, 0, 18};
  with.size = 0;
  put(&with, "RIFF", 4);
  put_le(&with, (uint32_t)(4 + sizeof extended + sizeof icc + (b.size - 12)), 4);
  put(&with, "WEBP", 4);
  put(&with, extended, sizeof extended);
  size_t at = with.size + 4;
  put(&with, icc, sizeof icc);
  with.data[at] = (sizeof icc - 8) & 255;
  with.data[at + 1] = (sizeof icc - 8) >> 8;
  put(&with, b.data + 12, b.size - 12);
  check_probe(&with, 19, 13, 3);
  canvas c = canvas_make(19 * 13 * 3);
  assert_ok(brim_image_decode(with.data, with.size, "x.webp", &rgb, &c.pixels));
  // animated, and a header with a size too large for its bytes
  with.data[20] = 2;
  assert_status(probe(with.data, with.size, "anim.webp", &head), BRIM_EUNSUPPORTED);
  assert_status(brim_image_decode(with.data, with.size, "anim.webp", &rgb, &c.pixels),
                BRIM_EUNSUPPORTED);
  assert_detail("anim.webp: ");
  make_webp(19, 13, true, &b);
  for (int i = 21; i < 24; i++) b.data[i] = 0xff;
  b.data[24] = (uint8_t)(b.data[24] | 0x0f);
  assert_status(probe(b.data, b.size, "liar.webp", &head), BRIM_EPARSE);
  assert_status(brim_image_decode(b.data, b.size, "liar.webp", &rgb, &c.pixels), BRIM_ELIMIT);
  canvas_free(&c);
}

//---------------------------------- damage ----------------------------------

#ifdef BRIM_TEST_WEBP
enum { KINDS = 9 };
#else
enum { KINDS = 7 };
#endif

static void make_small(int kind, bytes *b) {
  if (kind > 6) {
    make_webp(19, 13, kind == 7, b);
  } else if (kind > 4) {
    bmp_how how = {.height = 19, .width = 13, .bits = kind == 5 ? 24 : 8, .header = 40};
    how.compression = kind == 6;
    make_bmp(&how, b);
  } else if (kind < 3) {
    jpeg_how how = {.height = 19,
                    .width = 13,
                    .color = kind == 1 ? JCS_GRAYSCALE : JCS_RGB,
                    .progressive = kind == 2};
    make_jpeg(&how, 0, b);
  } else {
    png_how how = {.height = 19,
                   .width = 13,
                   .color = kind == 3 ? PNG_COLOR_TYPE_RGB : PNG_COLOR_TYPE_PALETTE,
                   .depth = kind == 3 ? 8 : 4,
                   .interlaced = kind == 4};
    make_png(&how, b);
  }
}

// A file cut at any byte: an error with its name. The bytes end at the end of a block of their own, so that a checker
// sees a read beyond them.
static void test_truncated(void **state) {
  (void)state;
  static bytes b;
  for (int kind = 0; kind < KINDS; kind++) {
    make_small(kind, &b);
    for (size_t n = 0; n < b.size; n++) {
      uint8_t *cut = malloc(n ? n : 1);
      assert_non_null(cut);
      memcpy(cut, b.data, n);
      canvas c = canvas_make(19 * 13 * 3);
      if (brim_image_decode(cut, n, "cut.img", &rgb, &c.pixels) != BRIM_EPARSE) {
        fail_msg("kind %d cut to %zu of %zu bytes: %s", kind, n, b.size, brim_status_detail());
      }
      assert_detail("cut.img: offset ");
      brim_image_head head;
      if (!probe(cut, n, "cut.img", &head)) {
        assert_int_equal(head.height, 19);
        assert_int_equal(head.width, 13);
      }
      canvas_free(&c);
      free(cut);
    }
  }
}

// Every bit flipped. PNG has a checksum over everything. JPEG has none, so damage that leaves the codes in order
// (mostly in the tables) cannot be detected.
static void test_bit_flips(void **state) {
  (void)state;
  static bytes b;
  for (int kind = 0; kind < KINDS; kind++) {
    make_small(kind, &b);
    size_t found = 0, bits = b.size * 8;
    for (size_t bit = 0; bit < bits; bit++) {
      b.data[bit / 8] = (uint8_t)(b.data[bit / 8] ^ 1u << bit % 8);
      canvas c = canvas_make(19 * 13 * 3);
      if (brim_image_decode(b.data, b.size, "flip", &rgb, &c.pixels)) {
        found++;
        assert_detail("flip: ");
      }
      canvas_free(&c);
      brim_image_head head;
      (void)probe(b.data, b.size, "flip", &head);
      b.data[bit / 8] = (uint8_t)(b.data[bit / 8] ^ 1u << bit % 8);
    }
    print_message("kind %d: %zu of %zu flipped bits found\n", kind, found, bits);
    if (kind > 4) {  // without a checksum any pixel is valid; WebP has none either
      assert_true(found > 0);
    } else if (kind >= 3) {
      assert_int_equal(found, bits);
    } else {
      assert_true(found * 8 > bits);
    }
  }
}

static void test_not_images(void **state) {
  (void)state;
  canvas c = canvas_make(64);
  brim_image_head head;
  static const char *const texts[] = {"",
                                      "x",
                                      "\xff\xd8",
                                      "GIF89a............",
                                      "\x89PNG\r\n\x1a",
                                      "BM is what this text begins with"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    size_t size = strlen(texts[i]);
    assert_status(brim_image_decode(texts[i], size, "n.jpg", &rgb, &c.pixels), BRIM_EPARSE);
    assert_detail(size ? "n.jpg: offset 0: not an image" : "n.jpg: offset 0: the file is");
    assert_status(probe(texts[i], size, "n.jpg", &head), BRIM_EPARSE);
  }
  canvas_free(&c);
}

static void test_capacity(void **state) {
  (void)state;
  static bytes b;
  for (int kind = 0; kind < KINDS; kind++) {
    make_small(kind, &b);
    canvas c = canvas_make(19 * 13 * 3 - 1);
    assert_status(brim_image_decode(b.data, b.size, "big", &rgb, &c.pixels), BRIM_ELIMIT);
    assert_detail("big: 19 x 13 pixels need 741 bytes, but there is room for 740");
    canvas_free(&c);
  }
}

// The frame size of a JPEG, patched: too large for the bytes, or zero.
static void test_jpeg_lies(void **state) {
  (void)state;
  static bytes b;
  static const struct {
    unsigned height, width;
    brim_status probe;
  } lies[] = {{20, 13, BRIM_OK},
              {0, 13, BRIM_EPARSE},
              {19, 0, BRIM_EPARSE},
              {16000, 16000, BRIM_EPARSE},
              {65535, 65535, BRIM_ELIMIT}};
  for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
    make_small(0, &b);
    size_t at = 2;
    while (b.data[at + 1] != 0xc0) at += 2u + (unsigned)(b.data[at + 2] << 8 | b.data[at + 3]);
    b.data[at + 5] = (uint8_t)(lies[i].height >> 8);
    b.data[at + 6] = (uint8_t)lies[i].height;
    b.data[at + 7] = (uint8_t)(lies[i].width >> 8);
    b.data[at + 8] = (uint8_t)lies[i].width;
    brim_image_head head;
    assert_status(probe(b.data, b.size, "liar", &head), lies[i].probe);
    canvas c = canvas_make(32 * 32 * 3);
    brim_status status = brim_image_decode(b.data, b.size, "liar", &rgb, &c.pixels);
    if (i) assert_true(status != BRIM_OK);  // except 20 rows, which lie in the same blocks as 19
    canvas_free(&c);
  }
}

//---------------------------------- files, memory, threads ----------------------------------

// Large segments before the frame: probing finds the header without reading them.
static void test_probe_file(void **state) {
  (void)state;
  static bytes b, with;
  for (int kind = 0; kind < KINDS; kind++) {
    make_small(kind, &b);
    with = b;
    if (kind < 3) {
      static const uint8_t segment[9002] = {0xff, 0xe1, 9000 >> 8, 9000 & 255};
      with.size = 0;
      put(&with, b.data, 2);
      for (int i = 0; i < 3; i++) put(&with, segment, sizeof segment);
      put(&with, "\xff\xff", 2);  // with fill bytes
      put(&with, b.data + 2, b.size - 2);
    }
    write_bytes("probe.img", with.data, with.size);
    int fd = open("probe.img", O_RDONLY);
    assert_true(fd >= 0);
    brim_image_head head;
    assert_ok(brim_image_probe_file(fd, "probe.img", &head));
    assert_int_equal(head.height, 19);
    assert_int_equal(head.width, 13);
    for (size_t n = 0; n < 33; n++) {
      assert_int_equal(truncate("probe.img", (off_t)n), 0);
      assert_status(brim_image_probe_file(fd, "probe.img", &head), BRIM_EPARSE);
      assert_detail("probe.img: ");
      write_bytes("probe.img", with.data, with.size);
    }
    close(fd);
    check_probe(&with, 19, 13, kind == 1 ? 1 : 3);
  }
  // Cut off inside the frame header itself.
  static const uint8_t frame[12] = {0xff, 0xd8, 0xff, 0xc0, 0, 17, 8, 0, 19, 0, 13, 3};
  for (size_t n = 3; n < sizeof frame; n++) {
    brim_image_head head;
    write_bytes("probe.img", frame, n);
    int fd = open("probe.img", O_RDONLY);
    assert_true(fd >= 0);
    assert_status(brim_image_probe_file(fd, "probe.img", &head), BRIM_EPARSE);
    assert_detail("probe.img: ");
    close(fd);
  }
}

static void test_allocation_failures(void **state) {
  (void)state;
  static bytes b;
  make_small(4, &b);
  brim_alloc_stats before, after;
  brim_alloc_get_stats(&before);
  uint64_t n = 1;
  for (;; n++) {
    uint64_t failed = brim_alloc_failures();
    canvas c = canvas_make(19 * 13 * 3);
    brim_alloc_fail_nth(n, 0);
    brim_status status = brim_image_decode(b.data, b.size, "x.png", &rgb, &c.pixels);
    brim_alloc_fail_nth(0, 0);
    canvas_free(&c);
    brim_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks[BRIM_MEM_OVERHEAD], before.live_blocks[BRIM_MEM_OVERHEAD]);
    if (brim_alloc_failures() == failed) break;
    assert_true(status != BRIM_OK);
  }
  assert_true(n > 3);
}

typedef struct shared {
  bytes files[KINDS];
  uint8_t pixels[KINDS][19 * 13 * 3];
  int wrong[8];
} shared;

static void decode_many(void *ctx, int64_t begin, int64_t end, int thread) {
  shared *s = ctx;
  for (int64_t i = begin; i < end; i++) {
    uint8_t out[19 * 13 * 3];
    brim_image_pixels p = {.data = out, .capacity = sizeof out};
    const bytes *b = &s->files[i % KINDS];
    if (brim_image_decode(b->data, b->size, "t", &rgb, &p) ||
        memcmp(out, s->pixels[i % KINDS], sizeof out) != 0 ||
        !brim_image_decode(b->data, b->size / 2, "t", &rgb, &p)) {
      s->wrong[thread]++;
    }
  }
}

static void test_threads(void **state) {
  (void)state;
  static shared s;
  for (int k = 0; k < KINDS; k++) {
    make_small(k, &s.files[k]);
    brim_image_pixels p = {.data = s.pixels[k], .capacity = sizeof s.pixels[k]};
    assert_ok(brim_image_decode(s.files[k].data, s.files[k].size, "t", &rgb, &p));
  }
  brim_pool *pool;
  assert_ok(brim_pool_create(8, &pool));
  brim_pool_run(pool, 2000, decode_many, &s);
  brim_pool_destroy(pool);
  for (int i = 0; i < 8; i++) assert_int_equal(s.wrong[i], 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_jpeg_sizes),      cmocka_unit_test(test_jpeg_progressive),
      cmocka_unit_test(test_jpeg_scaled),     cmocka_unit_test(test_jpeg_cmyk),
      cmocka_unit_test(test_jpeg_scans),      cmocka_unit_test(test_jpeg_stray_bytes),
      cmocka_unit_test(test_jpeg_no_tables),  cmocka_unit_test(test_jpeg_lies),
      cmocka_unit_test(test_png_kinds),       cmocka_unit_test(test_png_lies),
      cmocka_unit_test(test_png_extra_chunk), cmocka_unit_test(test_bmp_kinds),
      cmocka_unit_test(test_bmp_refused),     cmocka_unit_test(test_webp),
      cmocka_unit_test(test_truncated),       cmocka_unit_test(test_bit_flips),
      cmocka_unit_test(test_not_images),      cmocka_unit_test(test_capacity),
      cmocka_unit_test(test_probe_file),      cmocka_unit_test(test_allocation_failures),
      cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
