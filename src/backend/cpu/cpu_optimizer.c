// GRAD_NORM and OPTIMIZER over the flat parameter arena, in one pass each; AVERAGE of other values;
// STEP_END, which updates the loss scale and its counters. The norm is summed over fixed chunks, so its bits
// do not depend on the thread count.
#include <math.h>

#include "backend/cpu/cpu_int.h"
#include "backend/cpu/cpu_vec.h"

enum { CHUNK = 8192 };

typedef struct norm_sums {
  double squares, bad;
} norm_sums;

typedef struct grad_norm_arg {
  const float *grads;
  int64_t count;
  norm_sums *chunks;
} grad_norm_arg;

static int64_t chunk_count(int64_t count) { return (count + CHUNK - 1) / CHUNK; }

static brim_status grad_norm_prepare(void *impl, brim_op_call *call) {
  (void)impl;
  call->workspace_bytes = (size_t)chunk_count(brim_cpu_elements(&call->in[0])) * sizeof(norm_sums);
  return BRIM_OK;
}

BRIM_CPU_CLONES static void grad_norm_body(void *arg, int rank, int size) {
  const grad_norm_arg *a = arg;
  int64_t lo, hi;
  brim_cpu_split(chunk_count(a->count), 1, rank, size, &lo, &hi);
  for (int64_t chunk = lo; chunk < hi; chunk++) {
    int64_t begin = chunk * CHUNK, end = begin + CHUNK < a->count ? begin + CHUNK : a->count;
    norm_sums sums = {0};
    for (int64_t i = begin; i < end; i += BRIM_CPU_BLOCK) {
      int64_t n = end - i < BRIM_CPU_BLOCK ? end - i : BRIM_CPU_BLOCK;
      const float *g = a->grads + i;
      float squares = 0;
      int32_t bad = 0;
#pragma omp simd reduction(+ : squares, bad)
      for (int64_t j = 0; j < n; j++) {
        bool finite = (brim_cpu_bits(g[j]) & 0x7f800000u) != 0x7f800000u;
        float value = finite ? g[j] : 0.0f;
        squares += value * value;
        bad += !finite;
      }
      sums.squares += (double)squares;
      sums.bad += (double)bad;
    }
    a->chunks[chunk] = sums;
  }
}

static brim_status grad_norm_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  const brim_cpu_device *device = impl;
  brim_status status = brim_cpu_check_process(device);
  if (status != BRIM_OK) return status;
  grad_norm_arg a = {call->in[0].data, brim_cpu_elements(&call->in[0]), call->workspace};
  brim_cpu_team_run(brim_cpu_team_for(device->threads, (double)a.count, BRIM_CPU_TEAM_ELEMENTS),
                    grad_norm_body, &a);
  norm_sums total = {0};
  for (int64_t i = 0; i < chunk_count(a.count); i++) {
    total.squares += a.chunks[i].squares;
    total.bad += a.chunks[i].bad;
  }
  float *norm = call->out[0].data;
  norm[0] = (float)total.squares;
  norm[1] = (float)total.bad;
  return BRIM_OK;
}

//---------------------------------- update ----------------------------------

typedef struct update_arg {
  const float *grads;
  float *params, *m, *v;
  uint16_t *copy;
  float *average;
  int64_t count;
  brim_optimizer_kind kind;
  bool nesterov;
  float scale;  // unscale and clip in one factor
  float lr, momentum, decay;
  float beta1, beta2, eps;
  float step_size, inv_root_bias2;  // Adam: lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t)
  float shrink;                     // AdamW: 1 - lr * decay
  float rate;  // how far the average moves: 1 - decay, or more in the first steps
} update_arg;

BRIM_CPU_INLINE void sgd_block(const update_arg *a, const float *restrict g, float *restrict p,
                               float *restrict m, int64_t n) {
  float scale = a->scale, decay = a->decay, lr = a->lr, mu = a->momentum;
  if (!m) {
    for (int64_t i = 0; i < n; i++) p[i] -= lr * (g[i] * scale + decay * p[i]);
    return;
  }
  float grad_factor = a->nesterov ? 1.0f : 0.0f, m_factor = a->nesterov ? mu : 1.0f;
  for (int64_t i = 0; i < n; i++) {
    float d = g[i] * scale + decay * p[i];
    float b = mu * m[i] + d;  // m starts as 0, so the first step takes d itself
    m[i] = b;
    p[i] -= lr * (grad_factor * d + m_factor * b);
  }
}

BRIM_CPU_INLINE void adam_block(const update_arg *a, const float *restrict g, float *restrict p,
                                float *restrict m, float *restrict v, int64_t n) {
  float scale = a->scale, b1 = a->beta1, b2 = a->beta2, eps = a->eps;
  float decay = a->kind == BRIM_OPTIMIZER_ADAM ? a->decay : 0.0f;
  float shrink = a->shrink, step = a->step_size, root = a->inv_root_bias2;
  for (int64_t i = 0; i < n; i++) {
    float w = p[i] * shrink;
    float d = g[i] * scale + decay * w;
    float mi = b1 * m[i] + (1.0f - b1) * d;
    float vi = b2 * v[i] + (1.0f - b2) * d * d;
    m[i] = mi;
    v[i] = vi;
    p[i] = w - step * mi / (__builtin_sqrtf(vi) * root + eps);
  }
}

BRIM_CPU_INLINE void average_block(float rate, const float *restrict p, float *restrict e,
                                   int64_t n) {
  for (int64_t i = 0; i < n; i++) e[i] += rate * (p[i] - e[i]);
}

BRIM_CPU_CLONES static void update_body(void *arg, int rank, int size) {
  const update_arg *a = arg;
  int64_t lo, hi;
  brim_cpu_split(a->count, BRIM_CPU_BLOCK, rank, size, &lo, &hi);
  for (int64_t i = lo; i < hi; i += BRIM_CPU_BLOCK) {
    int64_t n = hi - i < BRIM_CPU_BLOCK ? hi - i : BRIM_CPU_BLOCK;
    if (a->kind == BRIM_OPTIMIZER_SGD) {
      sgd_block(a, a->grads + i, a->params + i, a->momentum != 0 ? a->m + i : NULL, n);
    } else {
      adam_block(a, a->grads + i, a->params + i, a->m + i, a->v + i, n);
    }
    for (int64_t j = 0; a->copy && j < n; j++) a->copy[i + j] = brim_cpu_to_bf16(a->params[i + j]);
    if (a->average) average_block(a->rate, a->params + i, a->average + i, n);
  }
}

// Factor that unscales the gradient and clips it by its unscaled norm, as PyTorch's clip_grad_norm_ does.
static float gradient_factor(const double *state, const float *norm) {
  double inverse = 1.0 / state[BRIM_STATE_LOSS_SCALE], clip = state[BRIM_STATE_CLIP];
  if (!(clip > 0)) return (float)inverse;
  double length = sqrt((double)norm[0]) * inverse;
  return (float)(length > clip ? inverse * clip / (length + 1e-6) : inverse);
}

static float average_rate(const brim_op_call *call, const double *state) {
  return (float)fmax((double)call->attr.average_rate, 9 / (state[BRIM_STATE_UPDATES] + 10));
}

static brim_status optimizer_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  const brim_cpu_device *device = impl;
  const brim_op_attr *attr = &call->attr;
  brim_status status = brim_cpu_check_process(device);
  if (status != BRIM_OK) return status;
  const double *state = call->in[0].data;
  const float *norm = call->in[1].data;
  // A gradient with an infinity or a NaN makes no step; STEP_END then lowers the loss scale.
  if (norm[1] > 0) return BRIM_OK;
  const brim_tensor *m = brim_cpu_out(call, 1), *v = brim_cpu_out(call, 2);
  const brim_tensor *copy = brim_cpu_out(call, 3), *average = brim_cpu_out(call, 4);
  double step = state[BRIM_STATE_UPDATES] + 1, lr = state[BRIM_STATE_LR];
  update_arg a = {.grads = call->in[2].data,
                  .params = call->out[0].data,
                  .m = m && brim_cpu_elements(m) ? m->data : NULL,
                  .v = v && brim_cpu_elements(v) ? v->data : NULL,
                  .copy = copy && brim_cpu_elements(copy) ? copy->data : NULL,
                  .average = average && brim_cpu_elements(average) ? average->data : NULL,
                  .rate = average_rate(call, state),
                  .count = brim_cpu_elements(&call->in[2]),
                  .kind = attr->optimizer,
                  .nesterov = attr->nesterov,
                  .scale = gradient_factor(state, norm),
                  .lr = (float)lr,
                  .momentum = attr->momentum,
                  .decay = attr->weight_decay,
                  .beta1 = attr->beta1,
                  .beta2 = attr->beta2,
                  .eps = attr->eps,
                  .shrink = 1.0f};
  if (a.kind != BRIM_OPTIMIZER_SGD) {
    a.step_size = (float)(lr / (1.0 - pow((double)attr->beta1, step)));
    a.inv_root_bias2 = (float)(1.0 / sqrt(1.0 - pow((double)attr->beta2, step)));
  }
  if (a.kind == BRIM_OPTIMIZER_ADAMW) a.shrink = (float)(1.0 - lr * (double)attr->weight_decay);
  brim_cpu_team_run(brim_cpu_team_for(device->threads, (double)a.count, BRIM_CPU_TEAM_ELEMENTS),
                    update_body, &a);
  return BRIM_OK;
}

//---------------------------------- averages ----------------------------------

BRIM_CPU_CLONES static void average_body(void *arg, int rank, int size) {
  const update_arg *a = arg;
  int64_t lo, hi;
  brim_cpu_split(a->count, BRIM_CPU_BLOCK, rank, size, &lo, &hi);
  average_block(a->rate, a->params + lo, a->average + lo, hi - lo);
}

static brim_status average_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  const float *norm = call->in[1].data;
  if (norm[1] > 0) return brim_cpu_check_process(impl);
  update_arg a = {.params = call->in[2].data,
                  .average = call->out[0].data,
                  .count = brim_cpu_elements(&call->in[2]),
                  .rate = average_rate(call, call->in[0].data)};
  return brim_cpu_spread(impl, a.count, average_body, &a);
}

//---------------------------------- the end of a step ----------------------------------

// Largest loss scale; PyTorch's scaler hardly exceeds it. The smallest is 1.
static const double MAX_SCALE = 16777216.0;

static void move_scale(double *state, bool good, int32_t interval) {
  double *scale = &state[BRIM_STATE_LOSS_SCALE], *steps = &state[BRIM_STATE_GOOD_STEPS];
  if (!good) {
    *scale = *scale * 0.5 > 1.0 ? *scale * 0.5 : 1.0;
    *steps = 0;
    return;
  }
  *steps += 1;
  if (*steps < (double)interval) return;
  *scale = *scale * 2.0 < MAX_SCALE ? *scale * 2.0 : MAX_SCALE;
  *steps = 0;
}

static brim_status step_end_run(void *impl, void *stream, const brim_op_call *call) {
  (void)stream;
  brim_status status = brim_cpu_check_process(impl);
  if (status != BRIM_OK) return status;
  const float *norm = call->in[0].data;
  double *state = call->out[0].data, scale = state[BRIM_STATE_LOSS_SCALE];
  int64_t step = (int64_t)state[BRIM_STATE_STEP], rows = call->out[1].dim[0];
  float *row = (float *)call->out[1].data + (step > 0 ? (step - 1) % rows : 0) * 4;
  row[0] = (float)((double)norm[0] / (scale * scale));
  row[1] = norm[1];
  row[2] = (float)scale;
  row[3] = 0.0f;
  if (!(norm[1] > 0)) state[BRIM_STATE_UPDATES] += 1;
  if (call->attr.dynamic_scale) move_scale(state, !(norm[1] > 0), call->attr.growth_interval);
  return BRIM_OK;
}

//---------------------------------- rows ----------------------------------

static const brim_op_row rows[] = {
    {BRIM_OP_GRAD_NORM, brim_cpu_validate, grad_norm_prepare, grad_norm_run, NULL},
    {BRIM_OP_OPTIMIZER, brim_cpu_validate, NULL, optimizer_run, NULL},
    {BRIM_OP_AVERAGE, brim_cpu_validate, NULL, average_run, NULL},
    {BRIM_OP_STEP_END, brim_cpu_validate, NULL, step_end_run, NULL},
};

const brim_op_family brim_cpu_optimizer_ops = {rows, sizeof rows / sizeof *rows};
