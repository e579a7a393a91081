// Ops that move values about: maximum and mean over places, positions added to tokens, two rows
// laid side by side; each with its gradient.
#include <math.h>

#include "backend/ref/ref_int.h"

// The window of output (p, q) over one chunk of channels.
static void pool_window(const brim_op_call *call, int64_t image, int64_t p, int64_t q, int64_t at) {
  const brim_tensor *x = &call->in[0], *y = &call->out[0];
  int64_t window = call->attr.window, stride = call->attr.stride, pad = call->attr.pad;
  int64_t c = x->dim[3], n = ref_min(REF_CHUNK, c - at);
  double best[REF_CHUNK], place[REF_CHUNK], v[REF_CHUNK];
  bool first = true;
  for (int64_t r = 0; r < window; r++) {
    int64_t h = p * stride - pad + r;
    if (h < 0 || h >= x->dim[1]) continue;
    for (int64_t s = 0; s < window; s++) {
      int64_t w = q * stride - pad + s;
      if (w < 0 || w >= x->dim[2]) continue;
      ref_load(x, ((image * x->dim[1] + h) * x->dim[2] + w) * c + at, n, v);
      for (int64_t i = 0; i < n; i++) {
        if (!first && !(v[i] > best[i]) && !isnan(v[i])) continue;
        best[i] = v[i];
        place[i] = (double)(r * window + s);
      }
      first = false;
    }
  }
  int64_t to = ((image * y->dim[1] + p) * y->dim[2] + q) * c + at;
  ref_store(y, to, n, best);
  ref_store(&call->out[1], to, n, place);
}

void brim_ref_maxpool(const brim_op_call *call) {
  const brim_tensor *y = &call->out[0];
  for (int64_t image = 0; image < y->dim[0]; image++) {
    for (int64_t p = 0; p < y->dim[1]; p++) {
      for (int64_t q = 0; q < y->dim[2]; q++) {
        for (int64_t at = 0; at < y->dim[3]; at += REF_CHUNK) pool_window(call, image, p, q, at);
      }
    }
  }
}

// The gradient of pixel (h, w): every window that has it at some place (r, s) and took it.
static void pool_pixel(const brim_op_call *call, int64_t image, int64_t h, int64_t w, int64_t at) {
  const brim_tensor *dy = &call->in[0], *dx = &call->out[0];
  int64_t window = call->attr.window, stride = call->attr.stride, pad = call->attr.pad;
  int64_t c = dx->dim[3], n = ref_min(REF_CHUNK, c - at);
  double sum[REF_CHUNK] = {0}, d[REF_CHUNK], place[REF_CHUNK];
  for (int64_t r = 0; r < window; r++) {
    int64_t above = h + pad - r;  // = p * stride
    if (above < 0 || above % stride != 0 || above / stride >= dy->dim[1]) continue;
    for (int64_t s = 0; s < window; s++) {
      int64_t left = w + pad - s;
      if (left < 0 || left % stride != 0 || left / stride >= dy->dim[2]) continue;
      int64_t from = ((image * dy->dim[1] + above / stride) * dy->dim[2] + left / stride) * c + at;
      ref_load(dy, from, n, d);
      ref_load(&call->in[1], from, n, place);
      for (int64_t i = 0; i < n; i++) {
        if (place[i] == (double)(r * window + s)) sum[i] += d[i];
      }
    }
  }
  ref_store(dx, ((image * dx->dim[1] + h) * dx->dim[2] + w) * c + at, n, sum);
}

void brim_ref_maxpool_bwd(const brim_op_call *call) {
  const brim_tensor *dx = &call->out[0];
  for (int64_t image = 0; image < dx->dim[0]; image++) {
    for (int64_t h = 0; h < dx->dim[1]; h++) {
      for (int64_t w = 0; w < dx->dim[2]; w++) {
        for (int64_t at = 0; at < dx->dim[3]; at += REF_CHUNK) pool_pixel(call, image, h, w, at);
      }
    }
  }
}

//---------------------------------- mean, positions ----------------------------------

void brim_ref_mean(const brim_op_call *call) {
  const brim_tensor *x = &call->in[0];
  int64_t rows = x->dim[0], c = ref_columns(x), places = brim_tensor_count(x) / rows / c;
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t at = 0; at < c; at += REF_CHUNK) {
      int64_t n = ref_min(REF_CHUNK, c - at);
      double v[REF_CHUNK], sum[REF_CHUNK] = {0};
      for (int64_t k = 0; k < places; k++) {
        ref_load(x, (row * places + k) * c + at, n, v);
        for (int64_t i = 0; i < n; i++) sum[i] += v[i];
      }
      for (int64_t i = 0; i < n; i++) sum[i] /= (double)places;
      ref_store(&call->out[0], row * c + at, n, sum);
    }
  }
}

void brim_ref_mean_bwd(const brim_op_call *call) {
  const brim_tensor *dx = &call->out[0];
  int64_t rows = dx->dim[0], c = ref_columns(dx), places = brim_tensor_count(dx) / rows / c;
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t at = 0; at < c; at += REF_CHUNK) {
      int64_t n = ref_min(REF_CHUNK, c - at);
      double v[REF_CHUNK];
      ref_load(&call->in[0], row * c + at, n, v);
      for (int64_t i = 0; i < n; i++) v[i] /= (double)places;
      for (int64_t k = 0; k < places; k++) ref_store(dx, (row * places + k) * c + at, n, v);
    }
  }
}

void brim_ref_pos(const brim_op_call *call) {
  const brim_tensor *x = &call->in[0];
  int64_t rows = x->dim[0], one = x->dim[1] * x->dim[2];
  double v[REF_CHUNK], p[REF_CHUNK];
  for (int64_t at = 0; at < one; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, one - at);
    ref_load(&call->in[1], at, n, p);
    for (int64_t row = 0; row < rows; row++) {
      ref_load(x, row * one + at, n, v);
      for (int64_t i = 0; i < n; i++) v[i] += p[i];
      ref_store(&call->out[0], row * one + at, n, v);
    }
  }
}

void brim_ref_pos_bwd(const brim_op_call *call) {
  const brim_tensor *dy = &call->in[0], *dp = &call->out[0];
  int64_t rows = dy->dim[0], one = dy->dim[1] * dy->dim[2];
  for (int64_t at = 0; at < one; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, one - at);
    double v[REF_CHUNK], sum[REF_CHUNK] = {0};
    if (call->attr.accumulate) ref_load(dp, at, n, sum);
    for (int64_t row = 0; row < rows; row++) {
      ref_load(dy, row * one + at, n, v);
      for (int64_t i = 0; i < n; i++) sum[i] += v[i];
    }
    ref_store(dp, at, n, sum);
  }
}

//---------------------------------- side by side ----------------------------------

// A part of `columns` columns, from `from` at column `first` on to the same of `to`.
static void copy_columns(const brim_tensor *from, int64_t first_from, const brim_tensor *to,
                         int64_t first_to, int64_t columns) {
  int64_t rows = to->dim[0];
  double v[REF_CHUNK];
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t at = 0; at < columns; at += REF_CHUNK) {
      int64_t n = ref_min(REF_CHUNK, columns - at);
      ref_load(from, row * from->dim[1] + first_from + at, n, v);
      ref_store(to, row * to->dim[1] + first_to + at, n, v);
    }
  }
}

void brim_ref_concat(const brim_op_call *call) {
  const brim_tensor *a = &call->in[0], *b = &call->in[1], *y = &call->out[0];
  copy_columns(a, 0, y, 0, a->dim[1]);
  copy_columns(b, 0, y, a->dim[1], b->dim[1]);
}

void brim_ref_concat_bwd(const brim_op_call *call) {
  const brim_tensor *dy = &call->in[0], *da = &call->out[0], *db = &call->out[1];
  copy_columns(dy, 0, da, 0, da->dim[1]);
  copy_columns(dy, da->dim[1], db, 0, db->dim[1]);
}
