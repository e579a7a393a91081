// Transforms that move or cover pixels and never mix them: windows, flips, cutout. They work on
// bytes, on floats and on planes alike, since a pixel is only so many bytes to them.
#include <string.h>

#include "data/transform/data_transform.h"

//---------------------------------- windows ----------------------------------

static void fill_pixels(const brim_transform_packed *shape, uint8_t *out, size_t bytes) {
  bool black = true;
  for (size_t i = 0; i < shape->fill_bytes; i++) black = black && shape->fill[i] == 0;
  if (black) {
    memset(out, 0, bytes);
    return;
  }
  for (size_t at = 0; at < bytes; at += shape->pixel) {
    for (size_t b = 0; b < shape->pixel; b++) out[at + b] = shape->fill[b % shape->fill_bytes];
  }
}

// Copies a window whose every pixel comes from the image.
static void window_mapped(const brim_image_stage *s, const brim_image_drawn *d,
                          const brim_transform_packed *shape, const uint8_t *in, uint8_t *out) {
  size_t pixel = shape->pixel, in_row = (size_t)shape->width * pixel;
  for (int32_t row = 0; row < s->out_height; row++) {
    const uint8_t *line =
        in + (size_t)brim_image_inside(d->y + row, shape->height, s->pad) * in_row;
    for (int32_t col = 0; col < s->out_width; col++, out += pixel) {
      memcpy(out, line + (size_t)brim_image_inside(d->x + col, shape->width, s->pad) * pixel,
             pixel);
    }
  }
}

// Pixels outside the image become the fill.
static void window_filled(const brim_image_stage *s, const brim_image_drawn *d,
                          const brim_transform_packed *shape, const uint8_t *in, uint8_t *out) {
  size_t pixel = shape->pixel;
  size_t in_row = (size_t)shape->width * pixel, out_row = (size_t)s->out_width * pixel;
  int32_t left = d->x < 0 ? -d->x : 0;  // columns of the window before the image
  int32_t end = shape->width - d->x;    // and where the image ends in it
  if (end > s->out_width) end = s->out_width;
  for (int32_t row = 0; row < s->out_height; row++, out += out_row) {
    int32_t from = d->y + row;
    if (from < 0 || from >= shape->height || left >= end) {
      fill_pixels(shape, out, out_row);
      continue;
    }
    size_t before = (size_t)left * pixel, until = (size_t)end * pixel;
    fill_pixels(shape, out, before);
    memcpy(out + before, in + (size_t)from * in_row + (size_t)(d->x + left) * pixel,
           until - before);
    fill_pixels(shape, out + until, out_row - until);
  }
}

void brim_transform_window(const brim_image_stage *s, const brim_image_drawn *d,
                           const brim_transform_packed *shape, const void *in, void *out) {
  bool within = d->y >= 0 && d->x >= 0 && d->y + s->out_height <= shape->height &&
                d->x + s->out_width <= shape->width;
  if (s->pad == BRIM_IMAGE_PAD_CONSTANT || within) {
    window_filled(s, d, shape, (const uint8_t *)in, (uint8_t *)out);
  } else {
    window_mapped(s, d, shape, (const uint8_t *)in, (uint8_t *)out);
  }
}

//---------------------------------- flips ----------------------------------

// Inlined for the common sizes, so that a pixel moves in registers.
static inline void mirror_row(uint8_t *row, int32_t width, size_t pixel) {
  uint8_t t[16];
  if (width < 2) return;  // an empty row has no last pixel to point at
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

static void mirror_wide_row(uint8_t *row, int32_t width, size_t pixel) {
  if (width < 2) return;
  for (uint8_t *a = row, *b = row + (size_t)(width - 1) * pixel; a < b; a += pixel, b -= pixel) {
    swap_bytes(a, b, pixel);
  }
}

// Mirrors four floats at a time, reversed in registers.
static void mirror_floats(uint8_t *row, int32_t width) {
  uint8_t *a = row, *b = row + 4 * (size_t)width;
  for (; b - a >= 32; a += 16, b -= 16) {
    uint32_t l[4], r[4], lr[4], rl[4];
    memcpy(l, a, 16);
    memcpy(r, b - 16, 16);
    for (int i = 0; i < 4; i++) {
      lr[i] = l[3 - i];
      rl[i] = r[3 - i];
    }
    memcpy(a, rl, 16);
    memcpy(b - 16, lr, 16);
  }
  mirror_row(a, (int32_t)((b - a) / 4), 4);
}

void brim_transform_flip(const brim_transform_packed *shape, void *image) {
  size_t pixel = shape->pixel, row = (size_t)shape->width * pixel;
  uint8_t *at = (uint8_t *)image, *end = at + (size_t)shape->height * row;
  for (; at < end; at += row) {
    if (pixel == 1) {
      mirror_row(at, shape->width, 1);
    } else if (pixel == 3) {
      mirror_row(at, shape->width, 3);
    } else if (pixel == 4) {
      mirror_floats(at, shape->width);
    } else {
      mirror_wide_row(at, shape->width, pixel);
    }
  }
}

void brim_transform_flip_vertical(const brim_transform_packed *shape, void *image) {
  size_t row = (size_t)shape->width * shape->pixel;
  uint8_t *at = (uint8_t *)image;
  for (int32_t a = 0, b = shape->height - 1; a < b; a++, b--) {
    swap_bytes(at + (size_t)a * row, at + (size_t)b * row, row);
  }
}

//---------------------------------- cutout ----------------------------------

// Squares around pixels that are all equally likely (DeVries and Taylor, arXiv 1708.04552): the
// first line from the fill, the others from that one.
void brim_transform_cover(const brim_transform_packed *shape, const brim_image_square *square,
                          void *image) {
  size_t row = (size_t)shape->width * shape->pixel;
  size_t bytes = (size_t)(square->x1 - square->x0) * shape->pixel;
  uint8_t *first = (uint8_t *)image + (size_t)square->y0 * row + (size_t)square->x0 * shape->pixel;
  fill_pixels(shape, first, bytes);
  for (int32_t y = square->y0 + 1; y < square->y1; y++) {
    memcpy(first + (size_t)(y - square->y0) * row, first, bytes);
  }
}
