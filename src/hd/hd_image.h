// Image augmentation for host and device alike: a pipeline as plain values, the draws for one sample, and the
// arithmetic of each stage. From the first stage that mixes pixels to the last, values are floats on the scale of
// the samples (0..255 for bytes). They are rounded once at the end, so worker and kernel differ by less than 1/255.
#ifndef BRIM_HD_IMAGE_H_
#define BRIM_HD_IMAGE_H_

#include "hd/hd_augment.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BRIM_IMAGE_MAX_STAGES = 16, BRIM_IMAGE_MAX_CHANNELS = 4, BRIM_IMAGE_MAX_TAPS = 255 };

typedef enum brim_image_op {
  BRIM_IMAGE_WINDOW,          // center_crop, random_crop, pad: a window of the image with a border
  BRIM_IMAGE_RESIZE,          // resize
  BRIM_IMAGE_RESIZED_WINDOW,  // random_resized_crop
  BRIM_IMAGE_FLIP,            // left and right
  BRIM_IMAGE_FLIP_VERTICAL,
  BRIM_IMAGE_JITTER,  // color_jitter
  BRIM_IMAGE_GRAY,    // grayscale, random_grayscale
  BRIM_IMAGE_BLUR,    // gaussian_blur
  BRIM_IMAGE_CUTOUT,
  BRIM_IMAGE_OP_COUNT
} brim_image_op;

typedef enum brim_image_pad {
  BRIM_IMAGE_PAD_CONSTANT,
  BRIM_IMAGE_PAD_EDGE,
  BRIM_IMAGE_PAD_REFLECT
} brim_image_pad;

// A prepared stage. Each member names the ops that use it.
typedef struct brim_image_stage {
  int32_t op;       // brim_image_op
  uint32_t number;  // place in the pipeline as written, for the draws
  int32_t random;   // WINDOW: random place, else the middle
  int32_t in_height, in_width, out_height, out_width;
  int32_t padding, pad;  // WINDOW; pad: brim_image_pad
  int32_t size, count;   // CUTOUT; RESIZE: size > 0 = new shorter side, cut to the middle
  int32_t taps;          // BLUR, odd
  int32_t nearest;       // RESIZE, RESIZED_WINDOW: 0 = bilinear (antialiased when it shrinks)
  float p;               // probability that the stage applies
  float fill[BRIM_IMAGE_MAX_CHANNELS];          // CUTOUT and constant padding
  float scale[2], ratio[2];                     // RESIZED_WINDOW
  float sigma[2];                               // BLUR
  float brightness, contrast, saturation, hue;  // JITTER
} brim_image_stage;

// A pipeline over the samples of one source. Members in[] and out[]: height, width, channels of packed images.
// Without stages it copies sample_bytes.
typedef struct brim_augment_program {
  uint64_t key;  // brim_rng_key(seed, BRIM_RNG_AUGMENT)
  int32_t in_height, in_width, out_height, out_width, channels;
  int32_t in_float, out_float;  // samples are f32, not bytes
  int32_t views;                // >= 1: outputs per sample, each with its own draws
  int32_t stage_count;
  uint64_t sample_bytes, out_bytes;  // bytes of a sample, and of a view
  brim_image_stage stages[BRIM_IMAGE_MAX_STAGES];
} brim_augment_program;

// The drawn parameters of a stage for one view of a sample, whose image is height x width at this stage. WINDOW,
// RESIZE and RESIZED_WINDOW use the region (y, x, height, width) of the image; a WINDOW's may lie partly outside.
// RESIZE and RESIZED_WINDOW resample the region to full_height x full_width and cut the window of the output size
// at (top, left). Stages with a probability also draw whether they apply.
typedef struct brim_image_drawn {
  int32_t on;
  int32_t y, x, height, width;
  int32_t full_height, full_width, top, left;
  float sigma;         // BLUR
  int32_t order[4];    // JITTER: values of brim_image_jitter, in order of application
  float factor[4];     // indexed by brim_image_jitter; hue: shift in turns
  int32_t changes[4];  // indexed by brim_image_jitter: 0 if its strength is 0
} brim_image_drawn;

typedef enum brim_image_jitter {
  BRIM_IMAGE_BRIGHTNESS,
  BRIM_IMAGE_CONTRAST,
  BRIM_IMAGE_SATURATION,
  BRIM_IMAGE_HUE,
  BRIM_IMAGE_JITTER_COUNT
} brim_image_jitter;

//---------------------------------- arithmetic ----------------------------------

// exp and log with the same bits on host and device: a region that is one pixel off would be another image. Errors
// are below 2e-7 (relative for exp, absolute for log).

BRIM_HD float brim_image_exp(float x) {
  if (x < -80.0f) return 0.0f;
  if (x > 80.0f) x = 80.0f;
  float k = floorf(x * 1.44269504f + 0.5f);
  float r = x - k * 0.693359375f;  // ln 2 in two parts: k times the first is exact
  r = r - k * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  for (; k > 0.0f; k -= 1.0f) p = p * 2.0f;
  for (; k < 0.0f; k += 1.0f) p = p * 0.5f;
  return p;
}

// Natural logarithm of x in 1e-6 .. 1e6.
BRIM_HD float brim_image_log(float x) {
  float k = 0.0f;
  for (; x > 1.41421356f; k += 1.0f) x = x * 0.5f;
  for (; x < 0.70710678f; k -= 1.0f) x = x * 2.0f;
  float s = (x - 1.0f) / (x + 1.0f), z = s * s;  // log x = 2 atanh s
  float p = 2.0f / 9.0f;
  p = p * z + 2.0f / 7.0f;
  p = p * z + 2.0f / 5.0f;
  p = p * z + 2.0f / 3.0f;
  p = p * z + 2.0f;
  return k * 0.69314718f + s * p;
}

BRIM_HD float brim_image_between(float low, float high, uint32_t bits) {
  return low + brim_rng_uniform(bits) * (high - low);
}

BRIM_HD int32_t brim_image_nearest_int(float v) { return (int32_t)floorf(v + 0.5f); }

//---------------------------------- draws ----------------------------------

// The corner of a centred window of `out` in an image of `in` with `padding` on both sides.
BRIM_HD int32_t brim_image_middle(int32_t in, int32_t out) {
  return in >= out ? (in - out) / 2 : -((out - in) / 2);
}

BRIM_HD void brim_image_draw_window(const brim_image_stage *s, const brim_augment *a,
                                    int32_t height, int32_t width, brim_image_drawn *d) {
  d->y = brim_image_middle(height, s->out_height);
  d->x = brim_image_middle(width, s->out_width);
  d->height = s->out_height;
  d->width = s->out_width;
  if (!s->random) return;
  int64_t rows = (int64_t)height + 2 * (int64_t)s->padding - s->out_height + 1;
  int64_t cols = (int64_t)width + 2 * (int64_t)s->padding - s->out_width + 1;
  brim_augment_point at =
      brim_augment_place(a, s->number, 0, rows > 1 ? rows : 1, cols > 1 ? cols : 1);
  if (rows >= 1) d->y = (int32_t)(at.y - s->padding);
  if (cols >= 1) d->x = (int32_t)(at.x - s->padding);
}

// Resizes the whole image. With `size` > 0 it resizes the shorter side to `size` and keeps the middle, as
// resize(256) | center_crop(224) does.
BRIM_HD void brim_image_draw_resize(const brim_image_stage *s, int32_t height, int32_t width,
                                    brim_image_drawn *d) {
  d->y = d->x = 0;
  d->height = height;
  d->width = width;
  d->full_height = s->out_height;
  d->full_width = s->out_width;
  d->top = d->left = 0;
  if (s->size <= 0) return;
  int32_t shorter = height < width ? height : width;
  d->full_height = (int32_t)((int64_t)s->size * height / shorter);
  d->full_width = (int32_t)((int64_t)s->size * width / shorter);
  d->top = (d->full_height - s->out_height) / 2;
  d->left = (d->full_width - s->out_width) / 2;
}

// Draws a share of the area and an aspect ratio, at most ten times, as torchvision does. If no draw fits, takes the
// largest central part with an allowed ratio.
BRIM_HD void brim_image_draw_resized(const brim_image_stage *s, const brim_augment *a,
                                     int32_t height, int32_t width, brim_image_drawn *d) {
  float area = (float)height * (float)width;
  float low = brim_image_log(s->ratio[0]), high = brim_image_log(s->ratio[1]);
  d->full_height = s->out_height;
  d->full_width = s->out_width;
  d->top = d->left = 0;
  for (uint32_t k = 0; k < 10; k++) {
    brim_philox4 r = brim_augment_draw(a, s->number, 2 * k);
    float target = area * brim_image_between(s->scale[0], s->scale[1], r.v[0]);
    float ratio = brim_image_exp(brim_image_between(low, high, r.v[1]));
    float w = floorf(sqrtf(target * ratio) + 0.5f), h = floorf(sqrtf(target / ratio) + 0.5f);
    if (!(w >= 1.0f && w <= (float)width && h >= 1.0f && h <= (float)height)) continue;
    d->height = (int32_t)h < height ? (int32_t)h : height;
    d->width = (int32_t)w < width ? (int32_t)w : width;
    brim_augment_point at = brim_augment_place(
        a, s->number, 2 * k + 1, (int64_t)height - d->height + 1, (int64_t)width - d->width + 1);
    d->y = (int32_t)at.y;
    d->x = (int32_t)at.x;
    return;
  }
  float shape = (float)width / (float)height;
  d->height = height;
  d->width = width;
  if (shape < s->ratio[0]) d->height = brim_image_nearest_int((float)width / s->ratio[0]);
  if (shape > s->ratio[1]) d->width = brim_image_nearest_int((float)height * s->ratio[1]);
  if (d->height < 1) d->height = 1;
  if (d->width < 1) d->width = 1;
  if (d->height > height) d->height = height;
  if (d->width > width) d->width = width;
  d->y = (height - d->height) / 2;
  d->x = (width - d->width) / 2;
}

// Draw 0 decides whether the stage applies, draw 1 has the four factors, draw 2 the order (one of 24).
BRIM_HD void brim_image_draw_jitter(const brim_image_stage *s, const brim_augment *a,
                                    brim_image_drawn *d) {
  brim_philox4 r = brim_augment_draw(a, s->number, 1);
  float strength[4];
  strength[0] = s->brightness;
  strength[1] = s->contrast;
  strength[2] = s->saturation;
  strength[3] = s->hue;
  for (int i = 0; i < 4; i++) {
    float low = i == BRIM_IMAGE_HUE ? -strength[i] : 1.0f - strength[i];
    float high = i == BRIM_IMAGE_HUE ? strength[i] : 1.0f + strength[i];
    if (i != BRIM_IMAGE_HUE && low < 0.0f) low = 0.0f;
    d->factor[i] = brim_image_between(low, high, r.v[i]);
    d->changes[i] = strength[i] > 0.0f;
    d->order[i] = i;
  }
  r = brim_augment_draw(a, s->number, 2);
  uint32_t which = (uint32_t)brim_rng_below(r.v[0], r.v[1], 24);
  for (uint32_t i = 0; i < 3; i++) {
    uint32_t left = 4 - i, j = i + which % left;
    int32_t t = d->order[i];
    d->order[i] = d->order[j];
    d->order[j] = t;
    which /= left;
  }
}

// Makes all draws of a stage, for an input image of height x width.
BRIM_HD void brim_image_draw(const brim_image_stage *s, const brim_augment *a, int32_t height,
                             int32_t width, brim_image_drawn *d) {
  d->on = 1;
  d->y = d->x = d->top = d->left = 0;
  d->height = d->full_height = height;
  d->width = d->full_width = width;
  d->sigma = 0.0f;
  switch (s->op) {
    case BRIM_IMAGE_WINDOW:
      brim_image_draw_window(s, a, height, width, d);
      return;
    case BRIM_IMAGE_RESIZE:
      brim_image_draw_resize(s, height, width, d);
      return;
    case BRIM_IMAGE_RESIZED_WINDOW:
      brim_image_draw_resized(s, a, height, width, d);
      return;
    default:
      break;
  }
  brim_philox4 r = brim_augment_draw(a, s->number, 0);
  d->on = brim_rng_uniform(r.v[0]) < s->p;
  if (s->op == BRIM_IMAGE_JITTER) brim_image_draw_jitter(s, a, d);
  if (s->op == BRIM_IMAGE_BLUR) d->sigma = brim_image_between(s->sigma[0], s->sigma[1], r.v[1]);
}

// Square k (below `count`) of a cutout, clipped at the border: rows y0 .. y1 - 1, columns x0 .. x1 - 1, never empty.
typedef struct brim_image_square {
  int32_t y0, y1, x0, x1;
} brim_image_square;

BRIM_HD brim_image_square brim_image_draw_square(const brim_image_stage *s, const brim_augment *a,
                                                 uint32_t k, int32_t height, int32_t width) {
  brim_augment_point at = brim_augment_place(a, s->number, k + 1, height, width);
  int64_t top = at.y - s->size / 2, left = at.x - s->size / 2;
  int64_t bottom = top + s->size, right = left + s->size;
  brim_image_square q;
  q.y0 = top > 0 ? (int32_t)top : 0;
  q.x0 = left > 0 ? (int32_t)left : 0;
  q.y1 = bottom < height ? (int32_t)bottom : height;
  q.x1 = right < width ? (int32_t)right : width;
  return q;
}

//---------------------------------- where pixels come from ----------------------------------

// Maps any index i into 0 .. n - 1 for a line that repeats its border pixel or is mirrored (d c b | a b c d | c b
// a). Not for BRIM_IMAGE_PAD_CONSTANT.
BRIM_HD int32_t brim_image_inside(int32_t i, int32_t n, int32_t pad) {
  if (i >= 0 && i < n) return i;
  if (pad == BRIM_IMAGE_PAD_EDGE || n == 1) return i < 0 ? 0 : n - 1;
  int32_t period = 2 * (n - 1);
  i = (i < 0 ? -i : i) % period;
  return i < n ? i : period - i;
}

// Resampling along one axis, from `length` pixels of the region to `full` pixels of the result. The bilinear filter
// is a triangle: as wide as the step when shrinking (antialiased, as in PIL and torchvision), else of width 1.
typedef struct brim_image_axis {
  int32_t length, full;
  float step;           // length / full
  float reach, narrow;  // half the triangle's base, and 1 / reach
} brim_image_axis;

BRIM_HD brim_image_axis brim_image_axis_of(int32_t length, int32_t full) {
  brim_image_axis x;
  x.length = length;
  x.full = full;
  x.step = (float)length / (float)full;
  x.reach = x.step > 1.0f ? x.step : 1.0f;
  x.narrow = 1.0f / x.reach;
  return x;
}

// The most input pixels that one result uses.
BRIM_HD int32_t brim_image_axis_taps(const brim_image_axis *x) {
  int32_t taps = 2 * (int32_t)x->reach + 3;
  return taps < x->length ? taps : x->length;
}

// Returns the first pixel of the region that result i (0 .. full - 1) uses; *count (>= 1) pixels follow from there.
BRIM_HD int32_t brim_image_axis_first(const brim_image_axis *x, int32_t i, int32_t *count) {
  float center = x->step * ((float)i + 0.5f);
  int32_t first = (int32_t)(center - x->reach + 0.5f), end = (int32_t)(center + x->reach + 0.5f);
  if (first < 0) first = 0;
  if (first > x->length - 1) first = x->length - 1;
  if (end > x->length) end = x->length;
  *count = end > first ? end - first : 1;
  return first;
}

// The weight of pixel j (from brim_image_axis_first on) in result i; divide by the sum of weights.
BRIM_HD float brim_image_axis_weight(const brim_image_axis *x, int32_t i, int32_t j) {
  float center = x->step * ((float)i + 0.5f);
  float at = ((float)j - center + 0.5f) * x->narrow;
  if (at < 0.0f) at = -at;
  return at < 1.0f ? 1.0f - at : 0.0f;
}

// The pixel nearest to result i.
BRIM_HD int32_t brim_image_axis_nearest(const brim_image_axis *x, int32_t i) {
  return (int32_t)((2 * (int64_t)i + 1) * x->length / (2 * (int64_t)x->full));
}

// The weight of tap k (0 .. taps - 1) of a blur; divide by the sum of weights. Pixels outside the image are
// mirrored by brim_image_inside(..., BRIM_IMAGE_PAD_REFLECT).
BRIM_HD float brim_image_blur_weight(int32_t k, int32_t taps, float sigma) {
  float x = (float)(k - taps / 2) / sigma;
  return brim_image_exp(-0.5f * x * x);
}

//---------------------------------- pixels ----------------------------------

typedef struct brim_image_rgb {
  float r, g, b;
} brim_image_rgb;

BRIM_HD float brim_image_clamp(float v, float high) {
  v = v > 0.0f ? v : 0.0f;
  return v < high ? v : high;
}

BRIM_HD float brim_image_gray(float r, float g, float b) {
  return 0.2989f * r + 0.587f * g + 0.114f * b;
}

// Blends: factor * v + (1 - factor) * other, clamped to 0 .. high (255 for bytes, 1 for floats). `other` is 0 for
// brightness, the mean gray of the image at this point for contrast, and the pixel's own gray for saturation.
BRIM_HD float brim_image_blend(float v, float other, float factor, float high) {
  return brim_image_clamp(factor * v + (1.0f - factor) * other, high);
}

// Rotates the hue by `shift` turns (-0.5 .. 0.5) and keeps value and chroma of HSV. Works on any scale, since
// results lie between the smallest and the largest channel.
BRIM_HD float brim_image_hue_part(float turned, float n, float most, float chroma) {
  float k = turned + n;
  k = k >= 6.0f ? k - 6.0f : k;
  float down = 4.0f - k;
  k = k < down ? k : down;
  return most - chroma * brim_image_clamp(k, 1.0f);
}

BRIM_HD brim_image_rgb brim_image_hue(brim_image_rgb p, float shift) {
  float most = p.r > p.g ? p.r : p.g, least = p.r > p.g ? p.g : p.r;
  most = most > p.b ? most : p.b;
  least = least > p.b ? p.b : least;
  float chroma = most - least;
  float inverse = chroma > 1e-30f ? 1.0f / (chroma > 1e-30f ? chroma : 1.0f) : 0.0f;
  float red = (p.g - p.b) * inverse;
  float green = 2.0f + (p.b - p.r) * inverse;
  float blue = 4.0f + (p.r - p.g) * inverse;
  float h = most == p.g ? green : blue;  // in sixths of a turn, -1 .. 5
  h = most == p.r ? red : h;
  h = h + 6.0f * shift;
  h = h < 0.0f ? h + 6.0f : h;
  h = h >= 6.0f ? h - 6.0f : h;
  brim_image_rgb out;
  out.r = brim_image_hue_part(h, 5.0f, most, chroma);
  out.g = brim_image_hue_part(h, 3.0f, most, chroma);
  out.b = brim_image_hue_part(h, 1.0f, most, chroma);
  return out;
}

// Applies one part of color_jitter to a pixel. `mean` matters for BRIM_IMAGE_CONTRAST: the mean gray of the image
// at this point of the pipeline, which the caller computes. For one channel it is the mean of that channel.
BRIM_HD brim_image_rgb brim_image_jitter_rgb(brim_image_rgb p, int32_t part, float factor,
                                             float mean, float high) {
  if (part == BRIM_IMAGE_HUE) return brim_image_hue(p, factor);
  float other = part == BRIM_IMAGE_CONTRAST     ? mean
                : part == BRIM_IMAGE_SATURATION ? brim_image_gray(p.r, p.g, p.b)
                                                : 0.0f;
  p.r = brim_image_blend(p.r, other, factor, high);
  p.g = brim_image_blend(p.g, other, factor, high);
  p.b = brim_image_blend(p.b, other, factor, high);
  return p;
}

// brim_image_jitter_rgb for images of one channel, where saturation and hue change nothing.
BRIM_HD float brim_image_jitter_one(float v, int32_t part, float factor, float mean, float high) {
  if (part == BRIM_IMAGE_BRIGHTNESS) return brim_image_blend(v, 0.0f, factor, high);
  if (part == BRIM_IMAGE_CONTRAST) return brim_image_blend(v, mean, factor, high);
  return v;
}

// Rounds to a byte; the last step of a pipeline over bytes.
BRIM_HD uint8_t brim_image_byte(float v) {
  return (uint8_t)(int32_t)(brim_image_clamp(v, 255.0f) + 0.5f);
}

#ifdef __cplusplus
}
#endif
#endif  // BRIM_HD_IMAGE_H_
