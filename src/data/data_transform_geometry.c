// Transforms that move or cover pixels and never mix them: crops, flips, cutout. They work on bytes
// and on floats alike, since a pixel is only so many bytes to them.
#include <inttypes.h>
#include <string.h>

#include "data/data_transform.h"

//---------------------------------- arguments ----------------------------------

// size=32 or size=(height, width). The catalogue has checked a config's; code may ask too.
static brim_status read_size(const brim_component *c, int64_t *height, int64_t *width) {
  const brim_value *v = brim_component_arg(c, "size");
  *height = *width = 0;
  if (v && v->kind == BRIM_VALUE_INT) {
    *height = *width = v->integer;
  } else if (v && v->kind == BRIM_VALUE_LIST && v->count == 2 &&
             v->items[0].kind == BRIM_VALUE_INT && v->items[1].kind == BRIM_VALUE_INT) {
    *height = v->items[0].integer;
    *width = v->items[1].integer;
  }
  if (*height < 1 || *width < 1) {
    return brim_fail(BRIM_EINVAL,
                     "%s: size must be a whole number of at least 1 or (height, width)", c->name);
  }
  return BRIM_OK;
}

static brim_status read_int(const brim_component *c, const char *name, int64_t fallback,
                            int64_t min, int64_t max, int64_t *out) {
  *out = brim_component_int(c, name, fallback);
  if (*out >= min && *out <= max) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: %s must be a whole number from %" PRId64 " to %" PRId64,
                   c->name, name, min, max);
}

static brim_status read_p(const brim_component *c, double fallback, float *out) {
  double p = brim_component_float(c, "p", fallback);
  if (!(p >= 0 && p <= 1)) {
    return brim_fail(BRIM_EINVAL, "%s: p must be a number from 0 to 1", c->name);
  }
  *out = (float)p;
  return BRIM_OK;
}

//---------------------------------- crops ----------------------------------

static brim_status prepare_window(const brim_component *c, brim_transform_stage *s) {
  int64_t height, width;
  BRIM_TRY(read_size(c, &height, &width));
  int64_t full_height = s->in.height + 2 * s->padding, full_width = s->in.width + 2 * s->padding;
  if (height > full_height || width > full_width) {
    return brim_fail(
        BRIM_EINVAL,
        "%s: a window of %" PRId64 "x%" PRId64 " does not fit into %" PRId64 "x%" PRId64
        " (an image of %" PRId64 "x%" PRId64 " with %" PRId64 " pixels of padding on each side)",
        c->name, height, width, full_height, full_width, s->in.height, s->in.width, s->padding);
  }
  s->out.height = height;
  s->out.width = width;
  return BRIM_OK;
}

static brim_status prepare_center_crop(const brim_component *c, brim_transform_stage *s) {
  return prepare_window(c, s);
}

static brim_status read_padding_mode(const brim_component *c, brim_transform_stage *s) {
  static const char *const names[] = {"constant", "edge", "reflect"};
  const char *mode = brim_component_string(c, "padding_mode", names[0]);
  for (int i = 0; i < 3; i++) {
    if (strcmp(mode, names[i]) == 0) {
      s->pad = (brim_transform_pad)i;
      int64_t side = s->in.height < s->in.width ? s->in.height : s->in.width;
      if (s->pad != BRIM_TRANSFORM_PAD_REFLECT || s->padding < side) return BRIM_OK;
      return brim_fail(BRIM_EINVAL,
                       "%s: %" PRId64 " mirrored pixels need an image of more than as many, not of "
                       "%" PRId64 "x%" PRId64,
                       c->name, s->padding, s->in.height, s->in.width);
    }
  }
  return brim_fail(BRIM_EINVAL, "%s: padding_mode must be constant, edge or reflect", c->name);
}

static brim_status prepare_random_crop(const brim_component *c, brim_transform_stage *s) {
  BRIM_TRY(read_int(c, "padding", 0, 0, 65536, &s->padding));
  BRIM_TRY(read_padding_mode(c, s));
  return prepare_window(c, s);
}

// Where index `i` of an image with padding lies in 0 .. n-1; for edge and reflect.
static int64_t inside(int64_t i, int64_t n, brim_transform_pad mode) {
  if (i >= 0 && i < n) return i;
  if (mode == BRIM_TRANSFORM_PAD_EDGE) return i < 0 ? 0 : n - 1;
  return i < 0 ? -i : 2 * (n - 1) - i;
}

// The window at (y, x) with every pixel from somewhere in the image.
static void copy_window_mapped(const brim_transform_stage *s, int64_t y, int64_t x,
                               const uint8_t *in, uint8_t *out) {
  size_t pixel = s->in.pixel_bytes, in_row = (size_t)s->in.width * pixel;
  for (int64_t row = 0; row < s->out.height; row++) {
    const uint8_t *line = in + (size_t)inside(y + row, s->in.height, s->pad) * in_row;
    for (int64_t col = 0; col < s->out.width; col++, out += pixel) {
      memcpy(out, line + (size_t)inside(x + col, s->in.width, s->pad) * pixel, pixel);
    }
  }
}

// The window whose upper left corner is at (y, x) of the image; what lies outside is black, as in
// torchvision.
static void copy_window(const brim_transform_stage *s, int64_t y, int64_t x, const uint8_t *in,
                        uint8_t *out) {
  size_t pixel = s->in.pixel_bytes;
  size_t in_row = (size_t)s->in.width * pixel, out_row = (size_t)s->out.width * pixel;
  int64_t left = x < 0 ? -x : 0;  // columns of the window before the image
  int64_t end = s->in.width - x;  // and where the image ends in it
  if (end > s->out.width) end = s->out.width;
  for (int64_t row = 0; row < s->out.height; row++, out += out_row) {
    int64_t from = y + row;
    if (from < 0 || from >= s->in.height || left >= end) {
      memset(out, 0, out_row);
      continue;
    }
    size_t before = (size_t)left * pixel, until = (size_t)end * pixel;
    memset(out, 0, before);
    memcpy(out + before, in + (size_t)from * in_row + (size_t)(x + left) * pixel, until - before);
    memset(out + until, 0, out_row - until);
  }
}

static void apply_center_crop(const brim_transform_stage *s, const brim_augment *draw,
                              const uint8_t *in, uint8_t *out) {
  (void)draw;
  copy_window(s, (s->in.height - s->out.height) / 2, (s->in.width - s->out.width) / 2, in, out);
}

static void apply_random_crop(const brim_transform_stage *s, const brim_augment *draw,
                              const uint8_t *in, uint8_t *out) {
  int64_t rows = s->in.height + 2 * s->padding - s->out.height + 1;
  int64_t cols = s->in.width + 2 * s->padding - s->out.width + 1;
  brim_augment_point at = brim_augment_place(draw, s->number, 0, rows, cols);
  int64_t y = at.y - s->padding, x = at.x - s->padding;
  bool within = y >= 0 && x >= 0 && y + s->out.height <= s->in.height &&
                x + s->out.width <= s->in.width;
  if (s->pad == BRIM_TRANSFORM_PAD_CONSTANT || within) {
    copy_window(s, y, x, in, out);
  } else {
    copy_window_mapped(s, y, x, in, out);
  }
}

//---------------------------------- flips ----------------------------------

static brim_status prepare_flip(const brim_component *c, brim_transform_stage *s) {
  return read_p(c, 0.5, &s->p);
}

// Inlined for the sizes that occur, so that a pixel moves in registers.
static inline void mirror_row(uint8_t *row, int64_t width, size_t pixel) {
  uint8_t t[BRIM_TRANSFORM_MAX_FILL];
  for (uint8_t *a = row, *b = row + (size_t)(width - 1) * pixel; a < b; a += pixel, b -= pixel) {
    memcpy(t, a, pixel);
    memcpy(a, b, pixel);
    memcpy(b, t, pixel);
  }
}

static void swap_bytes(uint8_t *a, uint8_t *b, size_t n) {
  uint8_t t[256];
  for (size_t at = 0; at < n; at += sizeof t) {
    size_t part = n - at < sizeof t ? n - at : sizeof t;
    memcpy(t, a + at, part);
    memcpy(a + at, b + at, part);
    memcpy(b + at, t, part);
  }
}

static void mirror_wide_row(uint8_t *row, int64_t width, size_t pixel) {
  for (uint8_t *a = row, *b = row + (size_t)(width - 1) * pixel; a < b; a += pixel, b -= pixel) {
    swap_bytes(a, b, pixel);
  }
}

static void apply_flip(const brim_transform_stage *s, const brim_augment *draw, const uint8_t *in,
                       uint8_t *out) {
  (void)in;
  if (!brim_augment_happens(draw, s->number, 0, s->p)) return;
  size_t pixel = s->in.pixel_bytes, row = (size_t)s->in.width * pixel;
  uint8_t *end = out + (size_t)s->in.height * row;
  for (; out < end; out += row) {
    if (pixel == 1) {
      mirror_row(out, s->in.width, 1);
    } else if (pixel == 3) {
      mirror_row(out, s->in.width, 3);
    } else if (pixel == 4) {
      mirror_row(out, s->in.width, 4);
    } else {
      mirror_wide_row(out, s->in.width, pixel);
    }
  }
}

static void apply_vertical_flip(const brim_transform_stage *s, const brim_augment *draw,
                                const uint8_t *in, uint8_t *out) {
  (void)in;
  if (!brim_augment_happens(draw, s->number, 0, s->p)) return;
  size_t row = (size_t)s->in.width * s->in.pixel_bytes;
  for (int64_t a = 0, b = s->in.height - 1; a < b; a++, b--) {
    swap_bytes(out + (size_t)a * row, out + (size_t)b * row, row);
  }
}

//---------------------------------- cutout ----------------------------------

static brim_status prepare_cutout(const brim_component *c, brim_transform_stage *s) {
  BRIM_TRY(read_int(c, "size", 8, 1, 65536, &s->size));
  BRIM_TRY(read_int(c, "count", 1, 1, 1024, &s->count));
  return read_p(c, 1.0, &s->p);
}

static int64_t clamp(int64_t v, int64_t high) { return v < 0 ? 0 : v > high ? high : v; }

// One square around a pixel, cut off at the border: its first line from the fill, the others from
// that one.
static void cover(const brim_transform_stage *s, brim_augment_point center, uint8_t *out) {
  size_t pixel = s->in.pixel_bytes, row = (size_t)s->in.width * pixel;
  int64_t top = center.y - s->size / 2, left = center.x - s->size / 2;
  int64_t y0 = clamp(top, s->in.height), y1 = clamp(top + s->size, s->in.height);
  int64_t x0 = clamp(left, s->in.width), x1 = clamp(left + s->size, s->in.width);
  size_t bytes = (size_t)(x1 - x0) * pixel;
  uint8_t *first = out + (size_t)y0 * row + (size_t)x0 * pixel;
  for (size_t i = 0; i < bytes; i++) first[i] = s->fill[i % s->fill_bytes];
  for (int64_t y = y0 + 1; y < y1; y++) memcpy(first + (size_t)(y - y0) * row, first, bytes);
}

// Squares around pixels that are all equally likely (DeVries and Taylor, arXiv 1708.04552). The
// pixel itself is always in its square, so there is a first line.
static void apply_cutout(const brim_transform_stage *s, const brim_augment *draw, const uint8_t *in,
                         uint8_t *out) {
  (void)in;
  if (!brim_augment_happens(draw, s->number, 0, s->p)) return;
  for (int64_t k = 0; k < s->count; k++) {
    uint32_t n = (uint32_t)k + 1;
    cover(s, brim_augment_place(draw, s->number, n, s->in.height, s->in.width), out);
  }
}

const brim_transform_row brim_transform_geometry[] = {
    {.name = "center_crop", .prepare = prepare_center_crop, .apply = apply_center_crop},
    {.name = "random_crop",
     .random = true,
     .prepare = prepare_random_crop,
     .apply = apply_random_crop},
    {.name = "random_flip",
     .random = true,
     .in_place = true,
     .prepare = prepare_flip,
     .apply = apply_flip},
    {.name = "random_vertical_flip",
     .random = true,
     .in_place = true,
     .prepare = prepare_flip,
     .apply = apply_vertical_flip},
    {.name = "cutout",
     .random = true,
     .in_place = true,
     .prepare = prepare_cutout,
     .apply = apply_cutout},
    {.name = NULL},
};
