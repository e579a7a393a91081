// A pipeline of transforms, prepared for the samples of one source, and its application by a worker.
// A table has a row for each component; it reads and checks the arguments and makes a stage.
// Components without a stage (normalize, to_tensor, cast, views) change the description of the
// result. Packed pixels move as they are until the first stage that mixes them; from there on they
// are planes of floats, rounded once at the end. Nothing is allocated after preparing. Stages that mix
// pixels work in data_transform_mix.c.
#include "data/transform/data_transform.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/base.h"

//---------------------------------- moving pixels ----------------------------------

// Windows, flips and cutout move or cover pixels and never mix them. They work on bytes, on floats and
// on planes alike, since a pixel is only so many bytes to them.

//---------------------------------- windows ----------------------------------

static void fill_pixels(const brim_transform_packed *shape, uint8_t *out, size_t bytes) {
  bool black = true;
  for (size_t i = 0; i < shape->fill_bytes; i++) black = black && shape->fill[i] == 0;
  if (black) {
    memset(out, 0, bytes);
    return;
  }
  for (size_t at = 0; at < bytes; at += shape->pixel_bytes) {
    for (size_t b = 0; b < shape->pixel_bytes; b++)
      out[at + b] = shape->fill[b % shape->fill_bytes];
  }
}

// Copies a window whose every pixel comes from the image.
static void window_mapped(const brim_image_stage *s, const brim_image_drawn *d,
                          const brim_transform_packed *shape, const uint8_t *in, uint8_t *out) {
  size_t pixel = shape->pixel_bytes, in_row = (size_t)shape->width * pixel;
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
  size_t pixel = shape->pixel_bytes;
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

// The window at (d->y, d->x) of `in`; out is (out_height, out_width).
static void transform_window(const brim_image_stage *s, const brim_image_drawn *d,
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

static void transform_flip(const brim_transform_packed *shape, void *image) {
  size_t pixel = shape->pixel_bytes, row = (size_t)shape->width * pixel;
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

static void transform_flip_vertical(const brim_transform_packed *shape, void *image) {
  size_t row = (size_t)shape->width * shape->pixel_bytes;
  uint8_t *at = (uint8_t *)image;
  for (int32_t a = 0, b = shape->height - 1; a < b; a++, b--) {
    swap_bytes(at + (size_t)a * row, at + (size_t)b * row, row);
  }
}

//---------------------------------- cutout ----------------------------------

// Squares around pixels that are all equally likely (DeVries and Taylor, arXiv 1708.04552): the
// first line from the fill, the others from that one.
static void transform_cutout(const brim_transform_packed *shape, const brim_image_square *square,
                             void *image) {
  size_t row = (size_t)shape->width * shape->pixel_bytes;
  size_t bytes = (size_t)(square->x1 - square->x0) * shape->pixel_bytes;
  uint8_t *first =
      (uint8_t *)image + (size_t)square->y0 * row + (size_t)square->x0 * shape->pixel_bytes;
  fill_pixels(shape, first, bytes);
  for (int32_t y = square->y0 + 1; y < square->y1; y++) {
    memcpy(first + (size_t)(y - square->y0) * row, first, bytes);
  }
}

//---------------------------------- arguments ----------------------------------

typedef struct row {
  const char *name;
  brim_image_op op;
  bool random;  // draws: left out where a sample shall always look the same
  bool sizes;   // makes images of one size out of any
  bool colors;  // needs 1 or 3 channels
  brim_status (*read)(const brim_component *c, brim_transform_build *b, brim_image_stage *s);
  // Changes the description of the result instead of making a stage.
  brim_status (*describe)(const brim_component *c, brim_transform_build *b);
} row;

//---------------------------------- arguments ----------------------------------

// size=32 or size=(height, width). Components made by code have not passed the catalogue's checks.
static brim_status read_size(const brim_component *c, int32_t *height, int32_t *width) {
  const brim_value *v = brim_component_arg(c, "size");
  int64_t h = 0, w = 0;
  if (v && v->kind == BRIM_VALUE_INT) {
    h = w = v->integer;
  } else if (v && v->kind == BRIM_VALUE_LIST && v->count == 2 &&
             v->items[0].kind == BRIM_VALUE_INT && v->items[1].kind == BRIM_VALUE_INT) {
    h = v->items[0].integer;
    w = v->items[1].integer;
  }
  if (h < 1 || w < 1 || h > 65536 || w > 65536) {
    return brim_fail(BRIM_EINVAL,
                     "%s: size must be a whole number from 1 to 65536 or (height, width)", c->name);
  }
  *height = (int32_t)h;
  *width = (int32_t)w;
  return BRIM_OK;
}

static brim_status read_int(const brim_component *c, const char *name, int64_t fallback,
                            int64_t min, int64_t max, int32_t *out) {
  int64_t value = brim_component_int(c, name, fallback);
  if (value < min || value > max) {
    return brim_fail(BRIM_EINVAL, "%s: %s must be a whole number from %" PRId64 " to %" PRId64,
                     c->name, name, min, max);
  }
  *out = (int32_t)value;
  return BRIM_OK;
}

static brim_status read_real(const brim_component *c, const char *name, double fallback, double min,
                             double max, float *out) {
  double value = brim_component_float(c, name, fallback);
  if (!(value >= min && value <= max)) {
    return brim_fail(BRIM_EINVAL, "%s: %s must be a number from %g to %g", c->name, name, min, max);
  }
  *out = (float)value;
  return BRIM_OK;
}

static brim_status read_p(const brim_component *c, double fallback, float *out) {
  return read_real(c, "p", fallback, 0, 1, out);
}

static bool is_number(const brim_value *v) {
  return v->kind == BRIM_VALUE_INT || v->kind == BRIM_VALUE_FLOAT;
}

// (lowest, highest), or one number for both. `out` holds the default.
static brim_status read_range(const brim_component *c, const char *name, double min, double max,
                              float out[2]) {
  const brim_value *v = brim_component_arg(c, name);
  if (!v) return BRIM_OK;
  double low = NAN, high = NAN;
  if (is_number(v)) {
    low = high = v->number;
  } else if (v->kind == BRIM_VALUE_LIST && v->count == 2 && is_number(&v->items[0]) &&
             is_number(&v->items[1])) {
    low = v->items[0].number;
    high = v->items[1].number;
  }
  if (!(low >= min && low <= high && high <= max)) {
    return brim_fail(BRIM_EINVAL, "%s: %s must be (lowest, highest), both from %g to %g", c->name,
                     name, min, max);
  }
  out[0] = (float)low;
  out[1] = (float)high;
  return BRIM_OK;
}

static brim_status read_choice(const brim_component *c, const char *name, const char *const *names,
                               const char *choices, int32_t *out) {
  const char *value = brim_component_string(c, name, names[0]);
  for (int32_t i = 0; names[i]; i++) {
    if (strcmp(value, names[i]) == 0) {
      *out = i;
      return BRIM_OK;
    }
  }
  return brim_fail(BRIM_EINVAL, "%s: %s must be %s", c->name, name, choices);
}

static brim_status read_filter(const brim_component *c, brim_image_stage *s) {
  static const char *const names[] = {"bilinear", "nearest", NULL};
  return read_choice(c, "interpolation", names, "bilinear or nearest", &s->nearest);
}

//---------------------------------- windows ----------------------------------

// If images vary in size, some may be smaller than the window: the outside is padding then.
static brim_status check_window(const brim_component *c, const brim_transform_build *b,
                                const brim_image_stage *s) {
  int64_t height = s->in_height + 2 * (int64_t)s->padding;
  int64_t width = s->in_width + 2 * (int64_t)s->padding;
  bool varies = b->t->varies && b->t->program.stage_count == 0;
  if (varies || (s->out_height <= height && s->out_width <= width)) return BRIM_OK;
  return brim_fail(BRIM_EINVAL,
                   "%s: a window of %dx%d does not fit into %" PRId64 "x%" PRId64
                   " (an image of %dx%d with %d pixels of padding on each side)",
                   c->name, (int)s->out_height, (int)s->out_width, height, width, (int)s->in_height,
                   (int)s->in_width, (int)s->padding);
}

static brim_status read_center_crop(const brim_component *c, brim_transform_build *b,
                                    brim_image_stage *s) {
  BRIM_TRY(read_size(c, &s->out_height, &s->out_width));
  return check_window(c, b, s);
}

static brim_status read_random_crop(const brim_component *c, brim_transform_build *b,
                                    brim_image_stage *s) {
  static const char *const pads[] = {"constant", "edge", "reflect", NULL};
  s->random = 1;
  BRIM_TRY(read_int(c, "padding", 0, 0, 65536, &s->padding));
  BRIM_TRY(read_choice(c, "padding_mode", pads, "constant, edge or reflect", &s->pad));
  int32_t side = s->in_height < s->in_width ? s->in_height : s->in_width;
  if (s->pad == BRIM_IMAGE_PAD_REFLECT && s->padding >= side) {
    return brim_fail(BRIM_EINVAL, "%s: mirroring %d pixels needs a larger image than %dx%d",
                     c->name, (int)s->padding, (int)s->in_height, (int)s->in_width);
  }
  BRIM_TRY(read_size(c, &s->out_height, &s->out_width));
  return check_window(c, b, s);
}

static brim_status read_pad(const brim_component *c, brim_transform_build *b, brim_image_stage *s) {
  BRIM_TRY(read_int(c, "padding", 4, 0, 65536, &s->padding));
  if (s->in_height > INT32_MAX - 2 * s->padding || s->in_width > INT32_MAX - 2 * s->padding) {
    return brim_fail(BRIM_ELIMIT, "%s: the images are too large", c->name);
  }
  s->out_height = s->in_height + 2 * s->padding;
  s->out_width = s->in_width + 2 * s->padding;
  double value = brim_component_float(c, "value", 0);
  bool bytes = b->source->type == BRIM_SAMPLE_U8;
  if (!isfinite(value) || (bytes && !(value >= 0 && value <= 255))) {
    return brim_fail(BRIM_EINVAL, "%s: value must be %s", c->name,
                     bytes ? "from 0 to 255: these samples are bytes" : "a number");
  }
  for (int i = 0; i < BRIM_IMAGE_MAX_CHANNELS; i++) {
    s->fill[i] = bytes ? (float)brim_image_byte((float)value) : (float)value;
  }
  return BRIM_OK;
}

//---------------------------------- resampling ----------------------------------

// size=(height, width), or size=n for n x n. Before a center_crop, n is the shorter side; read_item
// joins the two into one stage.
static brim_status read_resize(const brim_component *c, brim_transform_build *b,
                               brim_image_stage *s) {
  (void)b;
  BRIM_TRY(read_filter(c, s));
  return read_size(c, &s->out_height, &s->out_width);
}

static brim_status read_resized_crop(const brim_component *c, brim_transform_build *b,
                                     brim_image_stage *s) {
  (void)b;
  s->scale[0] = 0.08f;
  s->scale[1] = 1.0f;
  s->ratio[0] = 0.75f;
  s->ratio[1] = 4.0f / 3.0f;
  s->random = 1;
  BRIM_TRY(read_range(c, "scale", 1e-6, 1, s->scale));
  BRIM_TRY(read_range(c, "ratio", 1e-3, 1e3, s->ratio));
  BRIM_TRY(read_filter(c, s));
  return read_size(c, &s->out_height, &s->out_width);
}

// resize(size=256) | center_crop(size=224): the shorter side to 256, then the middle.
static brim_status join_center_crop(const brim_component *c, brim_image_stage *s) {
  s->size = s->out_height;
  BRIM_TRY(read_size(c, &s->out_height, &s->out_width));
  if (s->out_height <= s->size && s->out_width <= s->size) return BRIM_OK;
  return brim_fail(BRIM_EINVAL,
                   "%s: a window of %dx%d does not fit into images whose shorter side was resized "
                   "to %d",
                   c->name, (int)s->out_height, (int)s->out_width, (int)s->size);
}

//---------------------------------- the others ----------------------------------

static brim_status read_flip(const brim_component *c, brim_transform_build *b,
                             brim_image_stage *s) {
  (void)b;
  return read_p(c, 0.5, &s->p);
}

static brim_status read_jitter(const brim_component *c, brim_transform_build *b,
                               brim_image_stage *s) {
  (void)b;
  BRIM_TRY(read_real(c, "brightness", 0.4, 0, 100, &s->brightness));
  BRIM_TRY(read_real(c, "contrast", 0.4, 0, 100, &s->contrast));
  BRIM_TRY(read_real(c, "saturation", 0.4, 0, 100, &s->saturation));
  BRIM_TRY(read_real(c, "hue", 0.1, 0, 0.5, &s->hue));
  return read_p(c, 1.0, &s->p);
}

static brim_status read_grayscale(const brim_component *c, brim_transform_build *b,
                                  brim_image_stage *s) {
  (void)b;
  return read_p(c, 1.0, &s->p);
}

static brim_status read_random_grayscale(const brim_component *c, brim_transform_build *b,
                                         brim_image_stage *s) {
  (void)b;
  return read_p(c, 0.2, &s->p);
}

static brim_status read_blur(const brim_component *c, brim_transform_build *b,
                             brim_image_stage *s) {
  (void)b;
  s->sigma[0] = 0.1f;
  s->sigma[1] = 2.0f;
  BRIM_TRY(read_int(c, "kernel", 9, 1, BRIM_IMAGE_MAX_TAPS, &s->taps));
  if (s->taps % 2 == 0) return brim_fail(BRIM_EINVAL, "%s: kernel must be odd", c->name);
  BRIM_TRY(read_range(c, "sigma", 1e-3, 1e3, s->sigma));
  return read_p(c, 0.5, &s->p);
}

// The value that normalization maps to zero, to the nearest byte; black without normalization.
static void set_fill(const brim_source_info *info, brim_sample_type type, int64_t channels,
                     brim_image_stage *s) {
  int64_t n = info->channels;
  if (n <= 0) return;
  if (channels % n != 0 || (channels > BRIM_IMAGE_MAX_CHANNELS && n == 3)) n = 1;
  for (int64_t i = 0; i < BRIM_IMAGE_MAX_CHANNELS; i++) {
    float mean = info->mean[i % n];
    s->fill[i] = type == BRIM_SAMPLE_U8 ? (float)brim_image_byte(mean * 255.0f) : mean;
  }
}

static brim_status read_cutout(const brim_component *c, brim_transform_build *b,
                               brim_image_stage *s) {
  BRIM_TRY(read_int(c, "size", 8, 1, 65536, &s->size));
  BRIM_TRY(read_int(c, "count", 1, 1, 1024, &s->count));
  set_fill(b->source, b->source->type, b->channels, s);
  return read_p(c, 1.0, &s->p);
}

//---------------------------------- without a stage ----------------------------------

// Number of channels that a single normalization value applies to.
static int32_t normalized_channels(const brim_source_info *info) {
  if (info->channels > 0) return info->channels;
  return info->rank == 3 && info->dim[2] <= BRIM_IMAGE_MAX_CHANNELS ? (int32_t)info->dim[2] : 1;
}

// One number, or one for each channel: *count of them, or 0 for a single number.
static brim_status read_numbers(const brim_component *c, const char *name, double fallback,
                                float out[BRIM_IMAGE_MAX_CHANNELS], int32_t *count) {
  const brim_value *v = brim_component_arg(c, name);
  *count = 0;
  bool list = v && v->kind == BRIM_VALUE_LIST;
  size_t n = list ? v->count : 1;
  if (n < 1 || n > BRIM_IMAGE_MAX_CHANNELS || (v && !list && !is_number(v))) {
    return brim_fail(BRIM_EINVAL, "%s: %s must be a number or a list of up to %d", c->name, name,
                     BRIM_IMAGE_MAX_CHANNELS);
  }
  for (size_t i = 0; i < BRIM_IMAGE_MAX_CHANNELS; i++) {
    const brim_value *item = list ? &v->items[i < n ? i : 0] : v;
    if (item && !is_number(item)) {
      return brim_fail(BRIM_EINVAL, "%s: %s must be numbers", c->name, name);
    }
    out[i] = (float)(item ? item->number : fallback);
  }
  if (list && n > 1) *count = (int32_t)n;
  return BRIM_OK;
}

static brim_status refuse_after(const brim_component *c, const brim_transform_build *b) {
  return brim_fail(BRIM_EINVAL,
                   "%s comes after %s, which must be the last stage; put %s at the end", c->name,
                   b->closed_by, b->closed_by);
}

// (x - mean) / std on 0..1 (bytes) or on the values as they are (floats), left to the network.
static brim_status describe_normalize(const brim_component *c, brim_transform_build *b) {
  if (b->closed_by && strcmp(b->closed_by, "to_tensor") != 0) return refuse_after(c, b);
  brim_source_info *info = &b->t->info;
  float mean[BRIM_IMAGE_MAX_CHANNELS], std[BRIM_IMAGE_MAX_CHANNELS];
  int32_t means, stds;
  BRIM_TRY(read_numbers(c, "mean", 0.5, mean, &means));
  BRIM_TRY(read_numbers(c, "std", 0.5, std, &stds));
  int64_t last =
      info->rank > 1 && !(info->rank == 2 && means + stds == 0) ? info->dim[info->rank - 1] : 1;
  int32_t n = means > stds ? means : stds;
  if ((means && means != n) || (stds && stds != n) || (n && n != last)) {
    return brim_fail(BRIM_EINVAL,
                     "%s: mean and std must be one number each or one for each of the %" PRId64
                     " channels",
                     c->name, last);
  }
  if (n == 0) n = normalized_channels(info);
  for (int32_t i = 0; i < n; i++) {
    if (!isfinite(mean[i]) || !(std[i] > 0) || !isfinite(std[i])) {
      return brim_fail(BRIM_EINVAL, "%s: std must be above 0", c->name);
    }
    info->mean[i] = mean[i];
    info->std[i] = std[i];
  }
  info->channels = n;
  b->closed_by = c->name;
  return BRIM_OK;
}

// to_tensor maps bytes to 0..1: mean 0 and std 1 replace the source's own. A normalize after it may
// set others.
static brim_status describe_to_tensor(const brim_component *c, brim_transform_build *b) {
  if (b->closed_by) return refuse_after(c, b);
  brim_source_info *info = &b->t->info;
  b->closed_by = c->name;
  if (info->type != BRIM_SAMPLE_U8) return BRIM_OK;
  info->channels = normalized_channels(info);
  for (int32_t i = 0; i < info->channels; i++) {
    info->mean[i] = 0.0f;
    info->std[i] = 1.0f;
  }
  return BRIM_OK;
}

// Converts bytes to floats of the same values; the network's result stays the same.
static brim_status describe_cast(const brim_component *c, brim_transform_build *b) {
  brim_source_info *info = &b->t->info;
  const char *type = brim_component_string(c, "dtype", "float32");
  if (strcmp(type, "float16") == 0 || strcmp(type, "bfloat16") == 0) {
    return brim_fail(
        BRIM_EUNSUPPORTED,
        "%s: cannot convert samples to %s; set the compute precision with training.precision",
        c->name, type);
  }
  if (strcmp(type, "uint8") == 0) {
    if (info->type == BRIM_SAMPLE_U8) return BRIM_OK;
    return brim_fail(BRIM_EUNSUPPORTED, "%s: samples of floats cannot become uint8", c->name);
  }
  if (strcmp(type, "float32") != 0) {
    return brim_fail(BRIM_EINVAL, "%s: dtype must be uint8 or float32", c->name);
  }
  if (info->type == BRIM_SAMPLE_F32) return BRIM_OK;
  info->type = BRIM_SAMPLE_F32;
  for (int32_t i = 0; i < info->channels; i++) {
    info->mean[i] *= 255.0f;
    info->std[i] *= 255.0f;
  }
  b->closed_by = c->name;
  return BRIM_OK;
}

// Views differ only by random draws: without draws there is one view.
static brim_status describe_views(const brim_component *c, brim_transform_build *b) {
  int32_t views = 1;
  BRIM_TRY(read_int(c, "views", 2, 1, 16, &views));
  if (b->t->program.views > 1) {
    return brim_fail(BRIM_EINVAL, "%s appears twice; specify it once", c->name);
  }
  if (b->random) b->t->program.views = views;
  return BRIM_OK;
}

static const row rows[] = {
    {"resize", BRIM_IMAGE_RESIZE, .sizes = true, .read = read_resize},
    {"center_crop", BRIM_IMAGE_WINDOW, .sizes = true, .read = read_center_crop},
    {"random_crop", BRIM_IMAGE_WINDOW, .random = true, .sizes = true, .read = read_random_crop},
    {"random_resized_crop", BRIM_IMAGE_RESIZED_WINDOW, .random = true, .sizes = true,
     .read = read_resized_crop},
    {"random_flip", BRIM_IMAGE_FLIP, .random = true, .read = read_flip},
    {"random_vertical_flip", BRIM_IMAGE_FLIP_VERTICAL, .random = true, .read = read_flip},
    {"color_jitter", BRIM_IMAGE_JITTER, .random = true, .colors = true, .read = read_jitter},
    {"grayscale", BRIM_IMAGE_GRAY, .colors = true, .read = read_grayscale},
    {"random_grayscale", BRIM_IMAGE_GRAY, .random = true, .colors = true,
     .read = read_random_grayscale},
    {"gaussian_blur", BRIM_IMAGE_BLUR, .random = true, .read = read_blur},
    {"cutout", BRIM_IMAGE_CUTOUT, .random = true, .read = read_cutout},
    {"pad", BRIM_IMAGE_WINDOW, .read = read_pad},
    {"normalize", BRIM_IMAGE_OP_COUNT, .describe = describe_normalize},
    {"to_tensor", BRIM_IMAGE_OP_COUNT, .describe = describe_to_tensor},
    {"cast", BRIM_IMAGE_OP_COUNT, .describe = describe_cast},
    {"views", BRIM_IMAGE_OP_COUNT, .describe = describe_views},
};

//---------------------------------- the pipeline ----------------------------------

static const row *find_row(const char *name) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (strcmp(rows[i].name, name) == 0) return &rows[i];
  }
  return NULL;
}

// Fails with the list of known names.
static brim_status unknown(const brim_component *c) {
  brim_str names;
  brim_str_init(&names);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    brim_str_printf(&names, "%s%s", i ? ", " : "", rows[i].name);
  }
  brim_status status = brim_str_status(&names);
  if (!status) {
    status = brim_fail(BRIM_EUNSUPPORTED,
                       "transform '%s' is not supported in this version; choose from: %s", c->name,
                       names.data);
  }
  brim_str_deinit(&names);
  return status;
}

static brim_status check_row(const brim_component *c, const row *r, const brim_transform_build *b) {
  const brim_source_info *info = b->source;
  if (b->closed_by) return refuse_after(c, b);
  if (info->rank != 2 && info->rank != 3) {
    return brim_fail(BRIM_EINVAL,
                     info->rank == 1
                         ? BRIM_N_("%s works on images (height, width or height, width, channels); "
                                   "these samples have %d dimension")
                         : BRIM_N_("%s works on images (height, width or height, width, channels); "
                                   "these samples have %d dimensions"),
                     c->name, (int)info->rank);
  }
  if (b->height > INT32_MAX || b->width > INT32_MAX || b->channels > 65536) {
    return brim_fail(BRIM_ELIMIT, "%s: the images are too large", c->name);
  }
  if (r->colors && b->channels != 1 && b->channels != 3) {
    return brim_fail(BRIM_EINVAL, "%s works on images of 1 or 3 channels; these have %" PRId64,
                     c->name, b->channels);
  }
  if (b->t->program.stage_count == 0 && b->t->varies && !r->sizes) {
    return brim_fail(BRIM_EINVAL,
                     "%s: the images differ in size; the first transform must be resize, "
                     "center_crop, random_crop or random_resized_crop",
                     c->name);
  }
  if (b->t->program.stage_count == BRIM_IMAGE_MAX_STAGES) {
    return brim_fail(BRIM_ELIMIT, "%s: a pipeline of more than %d transforms", c->name,
                     BRIM_IMAGE_MAX_STAGES);
  }
  return BRIM_OK;
}

// Reads one item; *joined: the item after it, `next`, became part of the same stage.
static brim_status read_item(const brim_component *c, const brim_component *next,
                             brim_transform_build *b, bool *joined) {
  const row *r = find_row(c->name);
  if (!r) return unknown(c);
  if (r->describe) return r->describe(c, b);
  bool draws = r->random || (r->op == BRIM_IMAGE_GRAY && brim_component_float(c, "p", 1) < 1);
  if (draws && !b->random) return BRIM_OK;
  BRIM_TRY(check_row(c, r, b));
  brim_augment_program *program = &b->t->program;
  brim_image_stage *s = &program->stages[program->stage_count];
  memset(s, 0, sizeof *s);
  s->op = (int32_t)r->op;
  s->number = b->number;
  s->p = 1.0f;
  s->in_height = s->out_height = (int32_t)b->height;
  s->in_width = s->out_width = (int32_t)b->width;
  BRIM_TRY(r->read(c, b, s));
  const brim_value *size = brim_component_arg(c, "size");
  if (r->op == BRIM_IMAGE_RESIZE && size->kind == BRIM_VALUE_INT && next &&
      strcmp(next->name, "center_crop") == 0) {
    *joined = true;
    BRIM_TRY(join_center_crop(next, s));
  }
  b->height = s->out_height;
  b->width = s->out_width;
  b->t->names[program->stage_count++] = r->name;
  return BRIM_OK;
}

// A cast alone still needs a stage to pass the samples through: a window of the whole image.
static brim_status add_cast(brim_transform_build *b) {
  brim_augment_program *program = &b->t->program;
  if (b->t->info.type == b->source->type || program->stage_count > 0) return BRIM_OK;
  if (b->height > INT32_MAX || b->width > INT32_MAX) {
    return brim_fail(BRIM_ELIMIT, "cast: the samples are too large");
  }
  brim_image_stage *s = &program->stages[program->stage_count];
  memset(s, 0, sizeof *s);
  s->op = BRIM_IMAGE_WINDOW;
  s->in_height = s->out_height = (int32_t)b->height;
  s->in_width = s->out_width = (int32_t)b->width;
  b->t->names[program->stage_count++] = "cast";
  return BRIM_OK;
}

// Reads the whole pipeline into t->program.stages, names, views and info.
static brim_status read_pipeline(const brim_pipeline *pipeline, brim_transform_build *b) {
  for (size_t i = 0; i < pipeline->count; i++) {
    const brim_component *c = &pipeline->items[i];
    bool joined = false;
    brim_status status = read_item(c, i + 1 < pipeline->count ? c + 1 : NULL, b, &joined);
    if (status) {
      if (c->file && c->line > 0) brim_fail_context(status, "%s:%d:%d", c->file, c->line, c->col);
      return status;
    }
    if (joined) i++;
    // `views` takes no number: the other items draw the same with and without it.
    b->number += joined ? 2 : strcmp(c->name, "views") != 0;
  }
  if (b->t->varies && b->t->program.stage_count == 0) {
    return brim_fail(BRIM_EINVAL,
                     "the images differ in size; the first transform must be resize, center_crop, "
                     "random_crop or random_resized_crop");
  }
  // If the source gives no mean colour, take that of the pipeline's normalization.
  brim_augment_program *program = &b->t->program;
  for (int32_t i = 0; i < program->stage_count && b->source->channels <= 0; i++) {
    brim_image_stage *s = &program->stages[i];
    if (s->op != BRIM_IMAGE_CUTOUT) continue;
    set_fill(&b->t->info, b->t->info.type, b->channels, s);
  }
  return add_cast(b);
}

//---------------------------------- preparing and applying ----------------------------------

//---------------------------------- preparing ----------------------------------

static size_t sample_type_bytes(int32_t is_float) { return is_float ? sizeof(float) : 1; }

static bool resamples(const brim_image_stage *s) {
  return s->op == BRIM_IMAGE_RESIZE || s->op == BRIM_IMAGE_RESIZED_WINDOW;
}
static bool changes_size(const brim_image_stage *s) {
  return resamples(s) || s->op == BRIM_IMAGE_WINDOW;
}
static bool mixes(const brim_image_stage *s) {
  return resamples(s) || s->op == BRIM_IMAGE_JITTER || s->op == BRIM_IMAGE_GRAY ||
         s->op == BRIM_IMAGE_BLUR;
}

static size_t area(const brim_image_stage *s) {
  return (size_t)s->out_height * (size_t)s->out_width;
}

static void keep_max(size_t *size, size_t n) {
  if (n > *size) *size = n;
}

// Reserves a place behind the others, aligned; 0 bytes take none.
static size_t place(brim_transforms *t, size_t bytes) {
  size_t at = t->scratch_bytes;
  t->scratch_bytes += (bytes + BRIM_ALIGN - 1) / BRIM_ALIGN * BRIM_ALIGN;
  return at;
}

// Reserves buffers of packed pixels for every stage that does not write to the result.
static void place_packed(brim_transforms *t) {
  const brim_augment_program *p = &t->program;
  size_t pixel = (size_t)p->channels * sample_type_bytes(p->in_float), size = 0, writes = 0;
  bool in_source = true;  // the pixels are still the source's, which must not be written
  for (int32_t i = 0; i < p->stage_count && !resamples(&p->stages[i]); i++) {
    const brim_image_stage *s = &p->stages[i];
    bool moves = s->op == BRIM_IMAGE_WINDOW || (in_source && !mixes(s));
    if (!moves) continue;
    in_source = false;
    if (t->resizes[i + 1] == 0 && p->in_float == p->out_float) continue;
    writes++;
    keep_max(&size, area(s) * pixel);
  }
  for (size_t k = 0; k < 2; k++) t->packed_at[k] = place(t, writes > k ? size : 0);
}

static void place_planes(brim_transforms *t) {
  const brim_augment_program *p = &t->program;
  size_t channels = (size_t)p->channels, first = 0, second = 0, resample = 0, blur = 0;
  bool mixed = false;
  for (int32_t i = 0; i < p->stage_count; i++) {
    const brim_image_stage *s = &p->stages[i];
    bool again = mixed && changes_size(s);
    mixed = mixed || mixes(s);
    if (!mixed) continue;
    keep_max(&first, area(s) * channels * sizeof(float));
    if (again) second = SIZE_MAX;
    if (resamples(s)) {
      keep_max(&resample, brim_transform_resample_bytes(s, s->in_height, s->in_width, p->channels));
    }
    if (s->op == BRIM_IMAGE_BLUR) {
      keep_max(&blur, brim_transform_blur_bytes(s, s->out_width));
      keep_max(&second, area(s) * sizeof(float));
    }
  }
  t->plane_at[0] = place(t, first);
  t->plane_at[1] = place(t, second == SIZE_MAX ? first : second);
  t->resample_at = place(t, resample);
  t->blur_at = place(t, blur);
}

// Checks that a sample of these dimensions, with all its scratch, is far from overflow.
static brim_status check_bytes(const brim_augment_program *p) {
  for (int32_t i = 0; i < p->stage_count; i++) {
    const brim_image_stage *s = &p->stages[i];
    size_t bytes = area(s);
    if (__builtin_mul_overflow(bytes, (size_t)p->channels * sizeof(float), &bytes) ||
        bytes > (size_t)1 << 40) {
      return brim_fail(BRIM_ELIMIT, "transforms: images of %dx%d with %d channels are too large",
                       (int)s->out_height, (int)s->out_width, (int)p->channels);
    }
  }
  return BRIM_OK;
}

static brim_status prepare(brim_transforms *t, const brim_pipeline *pipeline,
                           const brim_source *source, bool random) {
  const brim_source_info *info = &source->info;
  bool image = info->rank == 2 || info->rank == 3;
  brim_transform_build b = {.t = t, .source = info, .random = random};
  b.channels = image && info->rank == 3 ? info->dim[2] : 1;
  b.height = image ? info->dim[0] : 1;
  size_t type_bytes = sample_type_bytes(info->type != BRIM_SAMPLE_U8);
  b.width = image ? info->dim[1] : (int64_t)(source->input_bytes / type_bytes);
  t->varies = info->varies != 0;
  t->info = *info;
  brim_augment_program *p = &t->program;
  p->views = 1;
  p->in_height = (int32_t)(b.height <= INT32_MAX ? b.height : 0);
  p->in_width = (int32_t)(b.width <= INT32_MAX ? b.width : 0);
  p->channels = (int32_t)(b.channels <= INT32_MAX ? b.channels : 0);
  BRIM_TRY(read_pipeline(pipeline, &b));
  p->out_height = p->stage_count ? (int32_t)b.height : p->in_height;
  p->out_width = p->stage_count ? (int32_t)b.width : p->in_width;
  p->in_float = info->type != BRIM_SAMPLE_U8;
  p->out_float = t->info.type != BRIM_SAMPLE_U8;
  p->sample_bytes = source->input_bytes;
  p->out_bytes = source->input_bytes;
  BRIM_TRY(check_bytes(p));
  if (p->stage_count) {
    p->out_bytes = (size_t)p->out_height * (size_t)p->out_width * (size_t)p->channels *
                   sample_type_bytes(p->out_float);
  }
  if (p->stage_count && image) {
    t->info.dim[0] = p->out_height;
    t->info.dim[1] = p->out_width;
  }
  t->info.varies = 0;
  for (int32_t i = p->stage_count - 1; i >= 0; i--) {
    t->resizes[i] = t->resizes[i + 1] + changes_size(&p->stages[i]);
  }
  place_packed(t);
  place_planes(t);
  return BRIM_OK;
}

brim_status brim_transforms_create(const brim_pipeline *pipeline, const brim_source *source,
                                   uint64_t seed, bool random, brim_transforms **out) {
  if (pipeline->count > BRIM_AUGMENT_MAX_STAGES) {
    return brim_fail(BRIM_ELIMIT, "a pipeline of %zu transforms, expected at most %d",
                     pipeline->count, BRIM_AUGMENT_MAX_STAGES);
  }
  brim_transforms *t = (brim_transforms *)brim_calloc(1, sizeof *t);
  if (!t) return brim_fail(BRIM_ENOMEM, "transforms: out of memory");
  t->program.key = brim_rng_key(seed, BRIM_RNG_AUGMENT);
  brim_status status = prepare(t, pipeline, source, random);
  if (status) {
    brim_free(t);
    return status;
  }
  *out = t;
  return BRIM_OK;
}

void brim_transforms_destroy(brim_transforms *transforms) { brim_free(transforms); }

size_t brim_transforms_count(const brim_transforms *transforms) {
  return (size_t)transforms->program.stage_count;
}

const char *brim_transforms_name(const brim_transforms *transforms, size_t stage) {
  return transforms->names[stage];
}

int32_t brim_transforms_views(const brim_transforms *transforms) {
  return transforms->program.views;
}

const brim_source_info *brim_transforms_info(const brim_transforms *transforms) {
  return &transforms->info;
}

size_t brim_transforms_output_bytes(const brim_transforms *transforms) {
  return transforms->program.out_bytes;
}

size_t brim_transforms_scratch_bytes(const brim_transforms *transforms) {
  return transforms->scratch_bytes;
}

const brim_augment_program *brim_transforms_program(const brim_transforms *transforms) {
  return transforms->varies ? NULL : &transforms->program;
}

//---------------------------------- decoding smaller ----------------------------------

// True if the region that the first stage resamples has, after decoding, at least as many rows and
// columns as the stage's output.
static bool enough(const brim_image_stage *s, const brim_augment *draw, int32_t height,
                   int32_t width) {
  brim_image_drawn d;
  brim_image_draw(s, draw, height, width, &d);
  return d.height >= d.full_height && d.width >= d.full_width;
}

int brim_transforms_scale(const brim_transforms *transforms, int64_t epoch, uint64_t index,
                          int64_t height, int64_t width) {
  const brim_augment_program *p = &transforms->program;
  if (p->stage_count == 0 || !resamples(&p->stages[0])) return 1;
  if (height < 1 || width < 1 || height > INT32_MAX || width > INT32_MAX) return 1;
  brim_augment draw = {.key = p->key, .epoch = (uint64_t)epoch, .index = index};
  for (int scale = 8; scale > 1; scale /= 2) {
    bool fits = true;
    for (int32_t v = 0; v < p->views && fits; v++) {
      draw.view = (uint32_t)v;
      fits = enough(&p->stages[0], &draw, (int32_t)((height + scale - 1) / scale),
                    (int32_t)((width + scale - 1) / scale));
    }
    if (fits) return scale;
  }
  return 1;
}

//---------------------------------- applying ----------------------------------

// A sample on its way: packed pixels, or planes once a stage has mixed its pixels.
typedef struct walk {
  const brim_transforms *t;
  brim_augment draw;
  const uint8_t *in;
  uint8_t *now;  // packed; NULL = still `in`
  uint8_t *out, *scratch;
  int32_t height, width;
  int next;   // packed buffer to write to
  int plane;  // planes in use; -1 = packed
} walk;

static const uint8_t *packed_now(const walk *w) { return w->now ? w->now : w->in; }

static brim_transform_planes planes_at(const walk *w, int which) {
  const brim_augment_program *p = &w->t->program;
  brim_transform_planes planes = {.data = (float *)(void *)(w->scratch + w->t->plane_at[which]),
                                  .height = w->height,
                                  .width = w->width,
                                  .channels = p->channels,
                                  .white = p->in_float ? 1.0f : 255.0f};
  return planes;
}

// Where stage i writes packed pixels: to the result if nothing behind it changes the size.
static uint8_t *packed_to(walk *w, int32_t i) {
  const brim_augment_program *p = &w->t->program;
  if (w->t->resizes[i + 1] == 0 && p->in_float == p->out_float) return w->out;
  uint8_t *to = w->scratch + w->t->packed_at[w->next];
  w->next ^= 1;
  return to;
}

// The packed pixels, writable. Copies them out of the source first if they are still there.
static uint8_t *writable_pixels(walk *w, int32_t i, size_t pixel) {
  if (!w->now) {
    w->now = packed_to(w, i);
    memcpy(w->now, w->in, (size_t)w->height * (size_t)w->width * pixel);
  }
  return w->now;
}

static void move_packed(walk *w, int32_t i, const brim_image_drawn *d) {
  const brim_augment_program *p = &w->t->program;
  const brim_image_stage *s = &p->stages[i];
  size_t channels = (size_t)p->channels, bytes = sample_type_bytes(p->in_float);
  brim_transform_packed shape = {
      .height = w->height, .width = w->width, .pixel_bytes = channels * bytes};
  size_t fills = channels < BRIM_IMAGE_MAX_CHANNELS ? channels : BRIM_IMAGE_MAX_CHANNELS;
  shape.fill_bytes = fills * bytes;
  for (size_t c = 0; c < fills; c++) {
    if (p->in_float) {
      memcpy(shape.fill + c * bytes, &s->fill[c], bytes);
    } else {
      shape.fill[c] = brim_image_byte(s->fill[c]);
    }
  }
  if (s->op == BRIM_IMAGE_WINDOW) {
    uint8_t *to = packed_to(w, i);
    transform_window(s, d, &shape, packed_now(w), to);
    w->now = to;
  } else if (s->op == BRIM_IMAGE_FLIP) {
    transform_flip(&shape, writable_pixels(w, i, shape.pixel_bytes));
  } else if (s->op == BRIM_IMAGE_FLIP_VERTICAL) {
    transform_flip_vertical(&shape, writable_pixels(w, i, shape.pixel_bytes));
  } else {
    for (int32_t k = 0; k < s->count; k++) {
      brim_image_square q = brim_image_draw_square(s, &w->draw, (uint32_t)k, w->height, w->width);
      transform_cutout(&shape, &q, writable_pixels(w, i, shape.pixel_bytes));
    }
  }
}

// Moves planes: each is an image of one float a pixel.
static void move_planes(walk *w, const brim_image_stage *s, const brim_image_drawn *d) {
  brim_transform_planes planes = planes_at(w, w->plane);
  size_t n = (size_t)w->height * (size_t)w->width;
  float *to = s->op == BRIM_IMAGE_WINDOW ? planes_at(w, w->plane ^ 1).data : NULL;
  for (int32_t c = 0; c < planes.channels; c++) {
    brim_transform_packed shape = {.height = w->height,
                                   .width = w->width,
                                   .pixel_bytes = sizeof(float),
                                   .fill_bytes = sizeof(float)};
    memcpy(shape.fill, &s->fill[c % BRIM_IMAGE_MAX_CHANNELS], sizeof(float));
    float *plane = planes.data + (size_t)c * n;
    if (s->op == BRIM_IMAGE_WINDOW) {
      transform_window(s, d, &shape, plane, to + (size_t)c * area(s));
    } else if (s->op == BRIM_IMAGE_FLIP) {
      transform_flip(&shape, plane);
    } else if (s->op == BRIM_IMAGE_FLIP_VERTICAL) {
      transform_flip_vertical(&shape, plane);
    } else {
      for (int32_t k = 0; k < s->count; k++) {
        brim_image_square q = brim_image_draw_square(s, &w->draw, (uint32_t)k, w->height, w->width);
        transform_cutout(&shape, &q, plane);
      }
    }
  }
  if (to) w->plane ^= 1;
}

static void resample(walk *w, const brim_image_stage *s, const brim_image_drawn *d) {
  const brim_augment_program *p = &w->t->program;
  void *scratch = w->scratch + w->t->resample_at;
  int to = w->plane < 0 ? 0 : w->plane ^ 1;
  float *out = planes_at(w, to).data;
  brim_transform_from from = {.width = w->width, .channels = p->channels};
  if (w->plane < 0) {
    from.data = packed_now(w);
    from.bytes = !p->in_float;
    brim_transform_resample(s, d, &from, out, area(s), scratch);
  } else {
    const float *in = planes_at(w, w->plane).data;
    from.channels = 1;
    for (int32_t c = 0; c < p->channels; c++) {
      from.data = in + (size_t)c * (size_t)w->height * (size_t)w->width;
      brim_transform_resample(s, d, &from, out + (size_t)c * area(s), area(s), scratch);
    }
  }
  w->plane = to;
}

static void run_stage(walk *w, int32_t i) {
  const brim_image_stage *s = &w->t->program.stages[i];
  brim_image_drawn d;
  brim_image_draw(s, &w->draw, w->height, w->width, &d);
  if (!d.on) return;
  if (resamples(s)) {
    resample(w, s, &d);
  } else if (!mixes(s)) {
    if (w->plane < 0) {
      move_packed(w, i, &d);
    } else {
      move_planes(w, s, &d);
    }
  } else {
    if (w->plane < 0) {
      w->plane = 0;
      brim_transform_planes planes = planes_at(w, 0);
      brim_transform_load(packed_now(w), !w->t->program.in_float, &planes);
    }
    brim_transform_planes planes = planes_at(w, w->plane);
    if (s->op == BRIM_IMAGE_JITTER) brim_transform_jitter(&d, &planes);
    if (s->op == BRIM_IMAGE_GRAY) brim_transform_gray(&planes);
    if (s->op == BRIM_IMAGE_BLUR) {
      brim_transform_blur(s, &d, &planes, planes_at(w, w->plane ^ 1).data,
                          w->scratch + w->t->blur_at);
    }
  }
  w->height = s->out_height;
  w->width = s->out_width;
}

static void finish(walk *w) {
  const brim_augment_program *p = &w->t->program;
  if (w->plane >= 0) {
    brim_transform_planes planes = planes_at(w, w->plane);
    brim_transform_store(&planes, w->out, !p->out_float);
  } else if (p->in_float != p->out_float) {
    brim_transform_widen(packed_now(w), (float *)(void *)w->out, p->out_bytes / sizeof(float));
  } else if (w->now != w->out) {
    memcpy(w->out, packed_now(w), p->out_bytes);
  }
}

void brim_transforms_apply(const brim_transforms *transforms, const brim_transforms_view *view,
                           const void *in, void *out, void *scratch, int64_t *stage_ns) {
  const brim_augment_program *p = &transforms->program;
  walk w = {.t = transforms,
            .draw = {.key = p->key,
                     .epoch = (uint64_t)view->epoch,
                     .index = view->index,
                     .view = view->view},
            .in = (const uint8_t *)in,
            .out = (uint8_t *)out,
            .scratch = (uint8_t *)scratch,
            .height = transforms->varies ? (int32_t)view->height : p->in_height,
            .width = transforms->varies ? (int32_t)view->width : p->in_width,
            .plane = -1};
  brim_time start = {0};
  if (stage_ns) start = brim_clock_now();
  for (int32_t i = 0; i < p->stage_count; i++) {
    run_stage(&w, i);
    if (i + 1 == p->stage_count) finish(&w);
    if (stage_ns) {
      brim_time end = brim_clock_now();
      stage_ns[i] += brim_time_since_ns(start, end);
      start = end;
    }
  }
  if (p->stage_count == 0) finish(&w);
}
