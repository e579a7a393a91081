// Weights of convolutions between PyTorch's layout (M,C,R,S) and the one they have in memory,
// (M,R,S,C') with channels of padding. Both sides of one filter stay in the first cache, so what
// counts is that what is written is written in order; every checkpoint goes through here.
#include <string.h>

#include "engine/engine_graph.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

typedef struct filter_shape {
  size_t channels, padded, area;
} filter_shape;

static filter_shape shape_of(const brim_param *p) {
  const int64_t *d = p->outside.dim;
  return (filter_shape){.channels = (size_t)d[1],
                        .padded = (size_t)p->desc.dim[3],
                        .area = (size_t)d[2] * (size_t)d[3]};
}

// n floats that lie `apart`: one channel of a filter. 3 x 3 is written out, since compilers do not
// unroll it on their own.
ALWAYS_INLINE void gather(size_t n, const float *restrict in, size_t apart, float *restrict out) {
  if (n == 9) {
    out[0] = in[0];
    out[1] = in[apart];
    out[2] = in[2 * apart];
    out[3] = in[3 * apart];
    out[4] = in[4 * apart];
    out[5] = in[5 * apart];
    out[6] = in[6 * apart];
    out[7] = in[7 * apart];
    out[8] = in[8 * apart];
  } else {
    for (size_t i = 0; i < n; i++) out[i] = in[i * apart];
  }
}

// Filters of (area, padded) to (channels, area); `area` is s.area, as a constant where it is usual.
ALWAYS_INLINE void export_filters(filter_shape s, size_t area, size_t rows, const float *in,
                                  float *out) {
  for (size_t m = 0; m < rows; m++, in += area * s.padded) {
    for (size_t c = 0; c < s.channels; c++, out += area) gather(area, in + c, s.padded, out);
  }
}

// The other way; channels of padding are zero.
static void import_filters(filter_shape s, size_t rows, const float *in, float *out) {
  for (size_t m = 0; m < rows; m++, in += s.channels * s.area) {
    for (size_t at = 0; at < s.area; at++, out += s.padded) {
      for (size_t c = 0; c < s.channels; c++) out[c] = in[c * s.area + at];
      memset(out + s.channels, 0, (s.padded - s.channels) * sizeof *out);
    }
  }
}

bool brim_param_same_layout(const brim_param *p) {
  if (!p->conv) return true;
  filter_shape s = shape_of(p);
  return s.channels == s.padded && (s.area == 1 || s.channels == 1);
}

void brim_param_export_rows(const brim_param *p, size_t rows, const float *inside, float *outside) {
  filter_shape s = shape_of(p);
  switch (s.area) {
    case 1:
      export_filters(s, 1, rows, inside, outside);
      return;
    case 9:
      export_filters(s, 9, rows, inside, outside);
      return;
    default:
      export_filters(s, s.area, rows, inside, outside);
  }
}

void brim_param_import(const brim_param *p, const float *outside, float *inside) {
  if (brim_param_same_layout(p)) {
    memcpy(inside, outside, (size_t)p->count * sizeof *inside);
  } else {
    import_filters(shape_of(p), (size_t)p->outside.dim[0], outside, inside);
  }
}

void brim_param_export(const brim_param *p, const float *inside, float *outside) {
  if (brim_param_same_layout(p)) {
    memcpy(outside, inside, (size_t)p->count * sizeof *inside);
  } else {
    brim_param_export_rows(p, (size_t)p->outside.dim[0], inside, outside);
  }
}
