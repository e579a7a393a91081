// The three convolution ops as plain loops over one image at a time. The image, its other side and
// the weights lie in the workspace as doubles; the innermost loop runs over neighbours in memory,
// so the compiler can vectorise it without reordering a sum.
#include "backend/ref/ref_int.h"

// Sizes of a convolution, whichever tensors of it a call has.
typedef struct conv {
  int64_t n, h, w, c;  // image
  int64_t p, q, m;     // its other side
  int64_t r, s;        // window
  int64_t stride, pad;
} conv;

static conv conv_of(const brim_op_call *call) {
  const brim_tensor *x = &call->in[0], *w = &call->in[1], *y = &call->out[0];
  if (call->op == BRIM_OP_CONV_BWD_DATA) {
    x = &call->out[0];
    y = &call->in[0];
  } else if (call->op == BRIM_OP_CONV_BWD_WEIGHT) {
    x = &call->in[1];
    w = &call->out[0];
    y = &call->in[0];
  }
  return (conv){.n = x->dim[0],
                .h = x->dim[1],
                .w = x->dim[2],
                .c = x->dim[3],
                .p = y->dim[1],
                .q = y->dim[2],
                .m = y->dim[3],
                .r = w->dim[1],
                .s = w->dim[2],
                .stride = call->attr.stride,
                .pad = call->attr.pad};
}

typedef struct scratch {
  double *weights;  // (M, R, S, C), or (R, S, C, M) for the forward product
  double *image;    // (H, W, C)
  double *other;    // (P, Q, M)
} scratch;

static scratch scratch_of(const brim_op_call *call, const conv *v) {
  double *base = call->workspace;
  int64_t weights = v->m * v->r * v->s * v->c, image = v->h * v->w * v->c;
  return (scratch){base, base + weights, base + weights + image};
}

size_t brim_ref_conv_workspace(const brim_op_call *call) {
  conv v = conv_of(call);
  int64_t count = v.m * v.r * v.s * v.c + v.h * v.w * v.c + v.p * v.q * v.m;
  return (size_t)count * sizeof(double);
}

// Calls `step` for every pair of a place of the window and a pixel under it that is not padding.
typedef void (*pair_step)(const conv *v, const scratch *s, int64_t window, int64_t pixel,
                          int64_t other);

static void each_pair(const conv *v, const scratch *s, pair_step step) {
  for (int64_t p = 0; p < v->p; p++) {
    for (int64_t q = 0; q < v->q; q++) {
      for (int64_t r = 0; r < v->r; r++) {
        int64_t h = p * v->stride - v->pad + r;
        if (h < 0 || h >= v->h) continue;
        for (int64_t c = 0; c < v->s; c++) {
          int64_t w = q * v->stride - v->pad + c;
          if (w < 0 || w >= v->w) continue;
          step(v, s, r * v->s + c, h * v->w + w, p * v->q + q);
        }
      }
    }
  }
}

static void forward_step(const conv *v, const scratch *s, int64_t window, int64_t pixel,
                         int64_t other) {
  const double *x = s->image + pixel * v->c;
  double *restrict y = s->other + other * v->m;
  for (int64_t c = 0; c < v->c; c++) {
    const double *w = s->weights + (window * v->c + c) * v->m;
    for (int64_t m = 0; m < v->m; m++) y[m] += x[c] * w[m];
  }
}

void brim_ref_conv(const brim_op_call *call) {
  conv v = conv_of(call);
  scratch s = scratch_of(call, &v);
  int64_t image = v.h * v.w * v.c, other = v.p * v.q * v.m, taps = v.r * v.s * v.c;
  double line[REF_CHUNK];
  for (int64_t m = 0; m < v.m; m++) {
    for (int64_t at = 0; at < taps; at += REF_CHUNK) {
      int64_t n = ref_min(REF_CHUNK, taps - at);
      ref_load(&call->in[1], m * taps + at, n, line);
      for (int64_t i = 0; i < n; i++) s.weights[(at + i) * v.m + m] = line[i];
    }
  }
  for (int64_t n = 0; n < v.n; n++) {
    ref_load(&call->in[0], n * image, image, s.image);
    memset(s.other, 0, (size_t)other * sizeof(double));
    each_pair(&v, &s, forward_step);
    ref_store(&call->out[0], n * other, other, s.other);
  }
}

static void data_step(const conv *v, const scratch *s, int64_t window, int64_t pixel,
                      int64_t other) {
  double *restrict dx = s->image + pixel * v->c;
  const double *dy = s->other + other * v->m;
  for (int64_t m = 0; m < v->m; m++) {
    const double *w = s->weights + (m * v->r * v->s + window) * v->c;
    for (int64_t c = 0; c < v->c; c++) dx[c] += dy[m] * w[c];
  }
}

void brim_ref_conv_bwd_data(const brim_op_call *call) {
  conv v = conv_of(call);
  scratch s = scratch_of(call, &v);
  int64_t image = v.h * v.w * v.c, other = v.p * v.q * v.m;
  ref_load(&call->in[1], 0, v.m * v.r * v.s * v.c, s.weights);
  for (int64_t n = 0; n < v.n; n++) {
    ref_load(&call->in[0], n * other, other, s.other);
    memset(s.image, 0, (size_t)image * sizeof(double));
    each_pair(&v, &s, data_step);
    ref_store(&call->out[0], n * image, image, s.image);
  }
}

static void weight_step(const conv *v, const scratch *s, int64_t window, int64_t pixel,
                        int64_t other) {
  const double *x = s->image + pixel * v->c, *dy = s->other + other * v->m;
  for (int64_t m = 0; m < v->m; m++) {
    double *restrict dw = s->weights + (m * v->r * v->s + window) * v->c;
    for (int64_t c = 0; c < v->c; c++) dw[c] += dy[m] * x[c];
  }
}

void brim_ref_conv_bwd_weight(const brim_op_call *call) {
  conv v = conv_of(call);
  scratch s = scratch_of(call, &v);
  int64_t image = v.h * v.w * v.c, other = v.p * v.q * v.m, weights = v.m * v.r * v.s * v.c;
  if (call->attr.accumulate) {
    ref_load(&call->out[0], 0, weights, s.weights);
  } else {
    memset(s.weights, 0, (size_t)weights * sizeof(double));
  }
  for (int64_t n = 0; n < v.n; n++) {
    ref_load(&call->in[0], n * other, other, s.other);
    ref_load(&call->in[1], n * image, image, s.image);
    each_pair(&v, &s, weight_step);
  }
  ref_store(&call->out[0], 0, weights, s.weights);
}
