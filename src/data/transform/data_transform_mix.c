// Transforms that mix pixels: resampling, colours, blur. They work on planes of floats, a row or a block
// of pixels at a time, in loops that the compiler vectorises. hd/hd_image.h has the arithmetic of a pixel.
#include <string.h>

#include "base/base.h"
#include "data/transform/data_transform.h"

// Compiles functions also for CPUs with AVX2 (x86 with GCC; CMake asks the compiler). The compiler may
// not contract or reorder sums, so the result does not depend on the CPU.
#if defined(BRIM_DATA_HAVE_CLONES)
#define CLONES __attribute__((target_clones("avx2", "default"), flatten))
#else
#define CLONES __attribute__((flatten))
#endif

typedef float v4 __attribute__((vector_size(16)));

static inline v4 load4(const float *p) {
  v4 v;
  memcpy(&v, p, sizeof v);
  return v;
}
static inline void store4(float *p, v4 v) { memcpy(p, &v, sizeof v); }

//---------------------------------- packed and planes ----------------------------------

// Cloned functions must be static: GCC ignores the visibility flags for the resolver of a clone.
CLONES static void widen(const uint8_t *restrict in, float *restrict out, size_t n) {
  for (size_t i = 0; i < n; i++) out[i] = (float)in[i];
}

void brim_transform_widen(const uint8_t *in, float *out, size_t n) { widen(in, out, n); }

CLONES static void load_rgb(const uint8_t *restrict in, float *restrict r, float *restrict g,
                            float *restrict b, size_t n) {
  for (size_t i = 0; i < n; i++) {
    r[i] = (float)in[3 * i];
    g[i] = (float)in[3 * i + 1];
    b[i] = (float)in[3 * i + 2];
  }
}

void brim_transform_load(const void *packed, bool bytes, const brim_transform_planes *planes) {
  size_t n = (size_t)planes->height * (size_t)planes->width, channels = (size_t)planes->channels;
  float *out = planes->data;
  const uint8_t *u = (const uint8_t *)packed;
  if (bytes && channels == 1) {
    brim_transform_widen(u, out, n);
  } else if (bytes && channels == 3) {
    load_rgb(u, out, out + n, out + 2 * n, n);
  } else {
    const float *f = (const float *)packed;
    for (size_t c = 0; c < channels; c++) {
      for (size_t i = 0; i < n; i++) {
        out[c * n + i] = bytes ? (float)u[i * channels + c] : f[i * channels + c];
      }
    }
  }
}

enum { BLOCK = 512 };  // pixels of a block: three planes of a block fit in the L1 cache

CLONES static void round_bytes(const float *restrict in, uint8_t *restrict out, size_t n) {
  for (size_t i = 0; i < n; i++) out[i] = brim_image_byte(in[i]);
}

static void store_rgb(const float *r, const float *g, const float *b, uint8_t *restrict out,
                      size_t n) {
  uint8_t part[3][BLOCK];
  for (size_t at = 0; at < n; at += BLOCK) {
    size_t m = n - at < BLOCK ? n - at : BLOCK;
    round_bytes(r + at, part[0], m);
    round_bytes(g + at, part[1], m);
    round_bytes(b + at, part[2], m);
    uint8_t *to = out + 3 * at;
    for (size_t i = 0; i < m; i++) {
      to[3 * i] = part[0][i];
      to[3 * i + 1] = part[1][i];
      to[3 * i + 2] = part[2][i];
    }
  }
}

void brim_transform_store(const brim_transform_planes *planes, void *packed, bool bytes) {
  size_t n = (size_t)planes->height * (size_t)planes->width, channels = (size_t)planes->channels;
  const float *in = planes->data;
  uint8_t *u = (uint8_t *)packed;
  if (bytes && channels == 1) {
    round_bytes(in, u, n);
  } else if (bytes && channels == 3) {
    store_rgb(in, in + n, in + 2 * n, u, n);
  } else {
    float *f = (float *)packed;
    for (size_t c = 0; c < channels; c++) {
      for (size_t i = 0; i < n; i++) {
        if (bytes) {
          u[i * channels + c] = brim_image_byte(in[c * n + i]);
        } else {
          f[i * channels + c] = in[c * n + i];
        }
      }
    }
  }
}

//---------------------------------- resampling ----------------------------------

// The source pixels of every result of an axis; their weights sum to 1.
typedef struct taps {
  int32_t *first, *count;
  float *weight;  // (results, most)
  int32_t most;
} taps;

static int32_t most_taps(const brim_image_stage *s, int32_t length, int32_t out) {
  if (s->nearest) return 1;
  brim_image_axis x = brim_image_axis_of(length, s->size > 0 ? s->size : out);
  return brim_image_axis_taps(&x);
}

size_t brim_transform_resample_bytes(const brim_image_stage *s, int32_t height, int32_t width,
                                     int32_t channels) {
  size_t row = (size_t)width * (size_t)channels + 8;
  size_t x = (size_t)s->out_width * (2 + (size_t)most_taps(s, width, s->out_width));
  size_t y = 2 + (size_t)most_taps(s, height, s->out_height);
  return (row + x + y) * sizeof(float);
}

// Sets the taps of result i, without taps of weight 0 at the ends.
static void set_taps(const brim_image_axis *axis, int32_t i, bool nearest, int32_t *first,
                     int32_t *count, float *weight) {
  if (nearest) {
    *first = brim_image_axis_nearest(axis, i);
    *count = 1;
    weight[0] = 1.0f;
    return;
  }
  int32_t n, from = brim_image_axis_first(axis, i, &n);
  float sum = 0.0f;
  while (n > 1 && brim_image_axis_weight(axis, i, from + n - 1) == 0.0f) n--;
  while (n > 1 && brim_image_axis_weight(axis, i, from) == 0.0f) from++, n--;
  for (int32_t k = 0; k < n; k++) {
    weight[k] = brim_image_axis_weight(axis, i, from + k);
    sum = sum + weight[k];
  }
  if (n == 1) {
    weight[0] = sum = 1.0f;
  }
  float inverse = 1.0f / sum;
  for (int32_t k = 0; k < n; k++) weight[k] = weight[k] * inverse;
  *first = from;
  *count = n;
}

// The sum_ functions set out = a wa + b wb; the add_ functions add it to out.
CLONES static void sum_bytes(const uint8_t *restrict a, const uint8_t *restrict b, float wa,
                             float wb, float *restrict out, size_t n) {
  for (size_t i = 0; i < n; i++) out[i] = (float)a[i] * wa + (float)b[i] * wb;
}
CLONES static void add_bytes(const uint8_t *restrict a, const uint8_t *restrict b, float wa,
                             float wb, float *restrict out, size_t n) {
  for (size_t i = 0; i < n; i++) out[i] = out[i] + ((float)a[i] * wa + (float)b[i] * wb);
}
CLONES static void sum_floats(const float *restrict a, const float *restrict b, float wa, float wb,
                              float *restrict out, size_t n) {
  for (size_t i = 0; i < n; i++) out[i] = a[i] * wa + b[i] * wb;
}
CLONES static void add_floats(const float *restrict a, const float *restrict b, float wa, float wb,
                              float *restrict out, size_t n) {
  for (size_t i = 0; i < n; i++) out[i] = out[i] + (a[i] * wa + b[i] * wb);
}

// Sums rows first .. first + count - 1 of the region, weighted, into one row of floats.
static void sum_rows(const brim_transform_from *from, const brim_image_drawn *d, int32_t first,
                     int32_t count, const float *weight, float *row) {
  size_t channels = (size_t)from->channels, stride = (size_t)from->width * channels;
  size_t n = (size_t)d->width * channels;
  size_t at = ((size_t)d->y + (size_t)first) * stride + (size_t)d->x * channels;
  for (int32_t k = 0; k < count; k += 2) {
    bool pair = k + 1 < count;
    size_t next = pair ? at + stride : at;  // a last single row is added to itself with weight 0
    float wa = weight[k], wb = pair ? weight[k + 1] : 0.0f;
    if (from->bytes) {
      const uint8_t *u = (const uint8_t *)from->data;
      if (k == 0) sum_bytes(u + at, u + next, wa, wb, row, n);
      if (k > 0) add_bytes(u + at, u + next, wa, wb, row, n);
    } else {
      const float *f = (const float *)from->data;
      if (k == 0) sum_floats(f + at, f + next, wa, wb, row, n);
      if (k > 0) add_floats(f + at, f + next, wa, wb, row, n);
    }
    at = next + stride;
  }
}

// Resamples a row of packed RGB pixels into a row of each plane. Loads four floats a pixel; the fourth is
// that of the next pixel or padding after the row, and is not used.
static void resample_rgb(const float *row, const taps *x, int32_t width, float *out,
                         size_t out_plane) {
  for (int32_t i = 0; i < width; i++) {
    const float *p = row + 3 * (size_t)x->first[i];
    const float *w = x->weight + (size_t)i * (size_t)x->most;
    int32_t count = x->count[i];
    v4 sum = load4(p) * w[0];
    for (int32_t k = 1; k < count; k++) sum = sum + load4(p + 3 * (size_t)k) * w[k];
    out[i] = sum[0];
    out[out_plane + (size_t)i] = sum[1];
    out[2 * out_plane + (size_t)i] = sum[2];
  }
}

static void resample_any(const float *row, const taps *x, int32_t width, int32_t channels,
                         float *out, size_t out_plane) {
  for (int32_t i = 0; i < width; i++) {
    const float *w = x->weight + (size_t)i * (size_t)x->most;
    for (int32_t c = 0; c < channels; c++) {
      const float *p = row + (size_t)x->first[i] * (size_t)channels + (size_t)c;
      float sum = p[0] * w[0];
      for (int32_t k = 1; k < x->count[i]; k++) sum = sum + p[(size_t)k * (size_t)channels] * w[k];
      out[(size_t)c * out_plane + (size_t)i] = sum;
    }
  }
}

void brim_transform_resample(const brim_image_stage *s, const brim_image_drawn *d,
                             const brim_transform_from *from, float *out, size_t out_plane,
                             void *scratch) {
  brim_image_axis ax = brim_image_axis_of(d->width, d->full_width);
  brim_image_axis ay = brim_image_axis_of(d->height, d->full_height);
  size_t values = (size_t)d->width * (size_t)from->channels;
  float *row = (float *)scratch;
  taps x = {.first = (int32_t *)(row + values + 8),
            .most = s->nearest ? 1 : brim_image_axis_taps(&ax)};
  x.count = x.first + s->out_width;
  x.weight = (float *)(x.count + s->out_width);
  float *weight_y = x.weight + (size_t)s->out_width * (size_t)x.most;
  for (int32_t i = 0; i < s->out_width; i++) {
    set_taps(&ax, d->left + i, s->nearest != 0, &x.first[i], &x.count[i],
             x.weight + (size_t)i * (size_t)x.most);
  }
  memset(row + values, 0, 8 * sizeof *row);
  for (int32_t y = 0; y < s->out_height; y++, out += s->out_width) {
    int32_t first, count;
    set_taps(&ay, d->top + y, s->nearest != 0, &first, &count, weight_y);
    sum_rows(from, d, first, count, weight_y, row);
    if (from->channels == 3) {
      resample_rgb(row, &x, s->out_width, out, out_plane);
    } else {
      resample_any(row, &x, s->out_width, from->channels, out, out_plane);
    }
  }
}

//---------------------------------- colours ----------------------------------

CLONES static void blend_constant(float *v, size_t n, float other, float factor, float white) {
  for (size_t i = 0; i < n; i++) v[i] = brim_image_blend(v[i], other, factor, white);
}

CLONES static void saturate(float *restrict r, float *restrict g, float *restrict b, size_t n,
                            float factor, float white) {
  for (size_t i = 0; i < n; i++) {
    float gray = brim_image_gray(r[i], g[i], b[i]);
    r[i] = brim_image_blend(r[i], gray, factor, white);
    g[i] = brim_image_blend(g[i], gray, factor, white);
    b[i] = brim_image_blend(b[i], gray, factor, white);
  }
}

CLONES static void turn_hue(float *restrict r, float *restrict g, float *restrict b, size_t n,
                            float shift) {
  for (size_t i = 0; i < n; i++) {
    brim_image_rgb p = {r[i], g[i], b[i]};
    p = brim_image_hue(p, shift);
    r[i] = p.r;
    g[i] = p.g;
    b[i] = p.b;
  }
}

// Sums the grays of a block in 16 independent partial sums, which the compiler vectorises.
CLONES static float sum_gray(const float *restrict r, const float *restrict g,
                             const float *restrict b, size_t n) {
  float part[16] = {0};
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (size_t k = 0; k < 16; k++) {
      part[k] = part[k] + brim_image_gray(r[i + k], g[i + k], b[i + k]);
    }
  }
  for (; i < n; i++) part[0] = part[0] + brim_image_gray(r[i], g[i], b[i]);
  float sum = 0.0f;
  for (size_t k = 0; k < 16; k++) sum = sum + part[k];
  return sum;
}

static float sum_values(const float *v, size_t n) {
  float sum = 0.0f;
  for (size_t i = 0; i < n; i++) sum = sum + v[i];
  return sum;
}

// Applies one part of a color_jitter to a block of n pixels; planes are `plane` floats apart.
static void jitter_block(const brim_transform_planes *p, float *v, size_t plane, size_t n,
                         int32_t part, float factor, float mean) {
  bool color = p->channels == 3;
  if (part == BRIM_IMAGE_BRIGHTNESS || part == BRIM_IMAGE_CONTRAST) {
    for (int32_t c = 0; c < p->channels; c++) {
      blend_constant(v + (size_t)c * plane, n, part == BRIM_IMAGE_CONTRAST ? mean : 0.0f, factor,
                     p->white);
    }
  } else if (color && part == BRIM_IMAGE_SATURATION) {
    saturate(v, v + plane, v + 2 * plane, n, factor, p->white);
  } else if (color) {
    turn_hue(v, v + plane, v + 2 * plane, n, factor);
  }
}

// Applies parts from .. to - 1 of the order, a block at a time. Returns the sum of the resulting grays if
// `sum`.
static double jitter_parts(const brim_image_drawn *d, const brim_transform_planes *p, int from,
                           int to, float mean, bool sum) {
  size_t plane = (size_t)p->height * (size_t)p->width;
  double grays = 0;
  for (size_t at = 0; at < plane; at += BLOCK) {
    size_t n = plane - at < BLOCK ? plane - at : BLOCK;
    float *v = p->data + at;
    for (int k = from; k < to; k++) {
      int32_t part = d->order[k];
      if (d->changes[part]) jitter_block(p, v, plane, n, part, d->factor[part], mean);
    }
    if (sum) {
      grays += p->channels == 3 ? sum_gray(v, v + plane, v + 2 * plane, n) : sum_values(v, n);
    }
  }
  return grays;
}

void brim_transform_jitter(const brim_image_drawn *d, const brim_transform_planes *planes) {
  int contrast = 0;
  while (d->order[contrast] != BRIM_IMAGE_CONTRAST) contrast++;
  if (!d->changes[BRIM_IMAGE_CONTRAST]) {
    jitter_parts(d, planes, 0, 4, 0.0f, false);
    return;
  }
  // Contrast needs the mean of the whole image after the parts before it.
  double sum = jitter_parts(d, planes, 0, contrast, 0.0f, true);
  double mean = sum / ((double)planes->height * (double)planes->width);
  jitter_parts(d, planes, contrast, 4, (float)mean, false);
}

CLONES static void gray_rgb(float *restrict r, float *restrict g, float *restrict b, size_t n) {
  for (size_t i = 0; i < n; i++) {
    float gray = brim_image_gray(r[i], g[i], b[i]);
    r[i] = gray;
    g[i] = gray;
    b[i] = gray;
  }
}

void brim_transform_gray(const brim_transform_planes *planes) {
  size_t n = (size_t)planes->height * (size_t)planes->width;
  if (planes->channels != 3) return;
  gray_rgb(planes->data, planes->data + n, planes->data + 2 * n, n);
}

//---------------------------------- blur ----------------------------------

size_t brim_transform_blur_bytes(const brim_image_stage *s, int32_t width) {
  return ((size_t)width + (size_t)s->taps + 16) * sizeof(float);
}

// Computes the weights from the middle outwards. Returns the radius without negligible weights.
static int32_t blur_weights(const brim_image_stage *s, float sigma,
                            float weight[BRIM_IMAGE_MAX_TAPS / 2 + 1]) {
  float sum = 0.0f;
  int32_t radius = s->taps / 2;
  for (int32_t k = 0; k < s->taps; k++) sum = sum + brim_image_blur_weight(k, s->taps, sigma);
  for (int32_t k = 0; k <= radius; k++) {
    weight[k] = brim_image_blur_weight(radius + k, s->taps, sigma) / sum;
  }
  while (radius > 0 && weight[radius] < 1e-7f) radius--;
  return radius;
}

// out[i] = sum over k of weight[|k|] row[i + k]. The row has `radius` extra floats on both sides.
CLONES static void blur_row(const float *restrict row, const float *restrict weight, int32_t radius,
                            float *restrict out, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    v4 a = load4(row + i) * weight[0], b = load4(row + i + 4) * weight[0];
    for (int32_t k = 1; k <= radius; k++) {
      a = a + (load4(row + i - k) + load4(row + i + k)) * weight[k];
      b = b + (load4(row + i + 4 - k) + load4(row + i + 4 + k)) * weight[k];
    }
    store4(out + i, a);
    store4(out + i + 4, b);
  }
  for (; i < n; i++) {
    float a = row[i] * weight[0];
    for (int32_t k = 1; k <= radius; k++) a = a + ((row + i)[-k] + (row + i)[k]) * weight[k];
    out[i] = a;
  }
}

// Computes row y of a plane blurred down its columns.
CLONES static void blur_columns(const brim_transform_planes *p, const float *in, int32_t y,
                                const float *restrict weight, int32_t radius, float *restrict out) {
  const float *up[BRIM_IMAGE_MAX_TAPS / 2 + 1], *down[BRIM_IMAGE_MAX_TAPS / 2 + 1];
  size_t width = (size_t)p->width;
  for (int32_t k = 0; k <= radius; k++) {
    up[k] = in + (size_t)brim_image_inside(y - k, p->height, BRIM_IMAGE_PAD_REFLECT) * width;
    down[k] = in + (size_t)brim_image_inside(y + k, p->height, BRIM_IMAGE_PAD_REFLECT) * width;
  }
  size_t i = 0;
  for (; i + 8 <= width; i += 8) {
    v4 a = load4(up[0] + i) * weight[0], b = load4(up[0] + i + 4) * weight[0];
    for (int32_t k = 1; k <= radius; k++) {
      a = a + (load4(up[k] + i) + load4(down[k] + i)) * weight[k];
      b = b + (load4(up[k] + i + 4) + load4(down[k] + i + 4)) * weight[k];
    }
    store4(out + i, a);
    store4(out + i + 4, b);
  }
  for (; i < width; i++) {
    float a = up[0][i] * weight[0];
    for (int32_t k = 1; k <= radius; k++) a = a + (up[k][i] + down[k][i]) * weight[k];
    out[i] = a;
  }
}

void brim_transform_blur(const brim_image_stage *s, const brim_image_drawn *d,
                         const brim_transform_planes *planes, float *other, void *scratch) {
  float weight[BRIM_IMAGE_MAX_TAPS / 2 + 1];
  int32_t radius = blur_weights(s, d->sigma, weight);
  if (radius == 0) return;
  size_t width = (size_t)planes->width;
  float *row = (float *)scratch + radius;
  for (int32_t c = 0; c < planes->channels; c++) {
    float *plane = planes->data + (size_t)c * (size_t)planes->height * width;
    for (int32_t y = 0; y < planes->height; y++) {
      const float *in = plane + (size_t)y * width;
      memcpy(row, in, width * sizeof *row);
      for (int32_t k = 1; k <= radius; k++) {
        row[-k] = in[brim_image_inside(-k, planes->width, BRIM_IMAGE_PAD_REFLECT)];
        row[planes->width - 1 + k] =
            in[brim_image_inside(planes->width - 1 + k, planes->width, BRIM_IMAGE_PAD_REFLECT)];
      }
      blur_row(row, weight, radius, other + (size_t)y * width, width);
    }
    for (int32_t y = 0; y < planes->height; y++) {
      blur_columns(planes, other, y, weight, radius, plane + (size_t)y * width);
    }
  }
}
