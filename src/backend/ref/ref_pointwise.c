// Ops that treat every value on its own: activations, dropout, addition, casts, input scaling.
// All of them but the last may write onto their input.
#include <math.h>

#include "backend/ref/ref_int.h"
#include "hd/hd_philox.h"

static const double INV_SQRT2 = 0.70710678118654752440;
static const double INV_SQRT_2PI = 0.39894228040143267794;

double brim_ref_act(brim_act act, double x) {
  switch (act) {
    case BRIM_ACT_RELU:
      return x > 0 || isnan(x) ? x : 0;
    case BRIM_ACT_GELU:
      return 0.5 * x * (1 + erf(x * INV_SQRT2));
    case BRIM_ACT_TANH:
      return tanh(x);
    default:
      return x;
  }
}

double brim_ref_act_slope(brim_act act, double s) {
  switch (act) {
    case BRIM_ACT_RELU:
      return s > 0 ? 1 : 0;
    case BRIM_ACT_GELU:
      return 0.5 * (1 + erf(s * INV_SQRT2)) + s * INV_SQRT_2PI * exp(-0.5 * s * s);
    case BRIM_ACT_TANH:
      return 1 - s * s;
    default:
      return 1;
  }
}

void brim_ref_act_fwd(const brim_op_call *call) {
  int64_t count = brim_tensor_count(&call->in[0]);
  double x[REF_CHUNK];
  for (int64_t at = 0; at < count; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, count - at);
    ref_load(&call->in[0], at, n, x);
    for (int64_t i = 0; i < n; i++) x[i] = brim_ref_act(call->attr.act, x[i]);
    ref_store(&call->out[0], at, n, x);
  }
}

void brim_ref_act_bwd(const brim_op_call *call) {
  int64_t count = brim_tensor_count(&call->in[0]);
  double dy[REF_CHUNK], s[REF_CHUNK];
  for (int64_t at = 0; at < count; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, count - at);
    ref_load(&call->in[0], at, n, dy);
    ref_load(&call->in[1], at, n, s);
    for (int64_t i = 0; i < n; i++) dy[i] *= brim_ref_act_slope(call->attr.act, s[i]);
    ref_store(&call->out[0], at, n, dy);
  }
}

void brim_ref_dropout(const brim_op_call *call) {
  const brim_tensor *x = &call->in[0];
  const double *state = call->in[1].data;
  int64_t count = brim_tensor_count(x), columns = count / x->dim[0];
  uint64_t key = brim_rng_key((uint64_t)state[BRIM_STATE_SEED], BRIM_RNG_DROPOUT);
  uint64_t stream = (uint64_t)state[BRIM_STATE_STEP] << 16 | call->attr.layer;
  uint64_t first = (uint64_t)state[BRIM_STATE_ROW_OFFSET] * (uint64_t)columns;
  double keep = 1 - (double)call->attr.p;
  double v[REF_CHUNK];
  brim_philox4 bits = {{0}};
  uint64_t block = UINT64_MAX;
  for (int64_t at = 0; at < count; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, count - at);
    ref_load(x, at, n, v);
    for (int64_t i = 0; i < n; i++) {
      uint64_t e = first + (uint64_t)(at + i);
      if (e / 4 != block) {
        block = e / 4;
        bits = brim_philox(key, stream, block);
      }
      bool dropped = brim_rng_uniform(bits.v[e % 4]) < call->attr.p;
      v[i] = dropped ? 0 : v[i] / keep;
    }
    ref_store(&call->out[0], at, n, v);
  }
}

void brim_ref_add(const brim_op_call *call) {
  int64_t count = brim_tensor_count(&call->in[0]);
  double a[REF_CHUNK], b[REF_CHUNK];
  for (int64_t at = 0; at < count; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, count - at);
    ref_load(&call->in[0], at, n, a);
    ref_load(&call->in[1], at, n, b);
    for (int64_t i = 0; i < n; i++) a[i] += b[i];
    ref_store(&call->out[0], at, n, a);
  }
}

void brim_ref_cast(const brim_op_call *call) {
  int64_t count = brim_tensor_count(&call->in[0]);
  double x[REF_CHUNK];
  for (int64_t at = 0; at < count; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, count - at);
    ref_load(&call->in[0], at, n, x);
    ref_store(&call->out[0], at, n, x);
  }
}

// Pixels of `channels` values become pixels of `wide` values, the last of which are 0.
static void input_padded(const brim_op_call *call, int64_t wide) {
  const brim_op_attr *a = &call->attr;
  int64_t pixels = brim_tensor_count(&call->out[0]) / wide;
  double x[4];
  static const double zeros[REF_CHUNK];
  for (int64_t i = 0; i < pixels; i++) {
    ref_load(&call->in[0], i * a->channels, a->channels, x);
    for (int c = 0; c < a->channels; c++) {
      x[c] = x[c] * (double)a->scale[c] + (double)a->shift[c];
    }
    ref_store(&call->out[0], i * wide, a->channels, x);
    for (int64_t at = a->channels; at < wide; at += REF_CHUNK) {
      ref_store(&call->out[0], i * wide + at, ref_min(REF_CHUNK, wide - at), zeros);
    }
  }
}

void brim_ref_input(const brim_op_call *call) {
  const brim_op_attr *a = &call->attr;
  int64_t count = brim_tensor_count(&call->in[0]);
  if (count != brim_tensor_count(&call->out[0])) {
    input_padded(call, ref_columns(&call->out[0]));
    return;
  }
  double x[REF_CHUNK];
  for (int64_t at = 0; at < count; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, count - at);
    ref_load(&call->in[0], at, n, x);
    for (int64_t i = 0; i < n; i++) {
      // Rows hold a whole number of pixels, so the channel follows from the flat index.
      int64_t c = (at + i) % a->channels;
      x[i] = x[i] * (double)a->scale[c] + (double)a->shift[c];
    }
    ref_store(&call->out[0], at, n, x);
  }
}
