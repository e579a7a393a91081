// One optimiser step over all parameters: unscale, clip by the global norm, update, cast. The rules
// are PyTorch's (SGD with momentum and Nesterov, Adam, AdamW). A step whose gradients are not all
// finite changes nothing. AVERAGE does for other values what the step does for the weights. The end of
// a step notes the norm and moves the loss scale.
#include <math.h>

#include "backend/ref/ref_int.h"

typedef struct rule {
  const brim_op_attr *attr;
  double lr, scale;
  double correction1, correction2;  // Adam's 1 - beta^step
  double rate;                      // of the average
} rule;

static void step_sgd(const rule *r, int64_t n, double *p, double *m, const double *grad) {
  double mu = (double)r->attr->momentum, decay = (double)r->attr->weight_decay;
  for (int64_t i = 0; i < n; i++) {
    double g = grad[i] * r->scale + decay * p[i];
    if (mu != 0) {
      m[i] = mu * m[i] + g;  // the first step has m = 0, hence g
      g = r->attr->nesterov ? g + mu * m[i] : m[i];
    }
    p[i] -= r->lr * g;
  }
}

static void step_adam(const rule *r, int64_t n, double *p, double *m, double *v,
                      const double *grad) {
  const brim_op_attr *a = r->attr;
  bool decoupled = a->optimizer == BRIM_OPTIMIZER_ADAMW;
  double b1 = (double)a->beta1, b2 = (double)a->beta2, decay = (double)a->weight_decay;
  for (int64_t i = 0; i < n; i++) {
    double g = grad[i] * r->scale;
    if (decoupled) {
      p[i] -= r->lr * decay * p[i];
    } else {
      g += decay * p[i];
    }
    m[i] = b1 * m[i] + (1 - b1) * g;
    v[i] = b2 * v[i] + (1 - b2) * g * g;
    double denominator = sqrt(v[i] / r->correction2) + (double)a->eps;
    p[i] -= r->lr * (m[i] / r->correction1) / denominator;
  }
}

static double average_rate(const brim_op_call *call, const double *state) {
  return fmax((double)call->attr.average_rate, 9 / (state[BRIM_STATE_UPDATES] + 10));
}

void brim_ref_optimizer(const brim_op_call *call) {
  const double *state = call->in[0].data;
  double norm[2];
  ref_load(&call->in[1], 0, 2, norm);
  if (norm[1] > 0) return;
  double inverse = 1 / state[BRIM_STATE_LOSS_SCALE], clip = state[BRIM_STATE_CLIP];
  double length = sqrt(norm[0]) * inverse;
  rule r = {.attr = &call->attr, .lr = state[BRIM_STATE_LR], .scale = inverse};
  if (clip > 0 && length > clip) r.scale *= clip / (length + 1e-6);
  r.correction1 = 1 - pow((double)call->attr.beta1, state[BRIM_STATE_UPDATES] + 1);
  r.correction2 = 1 - pow((double)call->attr.beta2, state[BRIM_STATE_UPDATES] + 1);
  r.rate = average_rate(call, state);

  const brim_tensor *params = &call->out[0], *copy = ref_out(call, 3);
  const brim_tensor *average = ref_out(call, 4);
  bool sgd = call->attr.optimizer == BRIM_OPTIMIZER_SGD;
  bool with_m = !sgd || call->attr.momentum != 0;
  int64_t count = brim_tensor_count(params);
  double g[REF_CHUNK], p[REF_CHUNK], m[REF_CHUNK] = {0}, v[REF_CHUNK] = {0};
  for (int64_t at = 0; at < count; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, count - at);
    ref_load(&call->in[2], at, n, g);
    ref_load(params, at, n, p);
    if (with_m) ref_load(&call->out[1], at, n, m);
    if (!sgd) ref_load(&call->out[2], at, n, v);
    if (sgd) {
      step_sgd(&r, n, p, m, g);
    } else {
      step_adam(&r, n, p, m, v, g);
    }
    ref_store(params, at, n, p);
    if (with_m) ref_store(&call->out[1], at, n, m);
    if (!sgd) ref_store(&call->out[2], at, n, v);
    if (copy) ref_store(copy, at, n, p);
    if (!average) continue;
    ref_load(average, at, n, g);
    for (int64_t i = 0; i < n; i++) g[i] += r.rate * (p[i] - g[i]);
    ref_store(average, at, n, g);
  }
}

void brim_ref_average(const brim_op_call *call) {
  double norm[2], rate = average_rate(call, call->in[0].data);
  ref_load(&call->in[1], 0, 2, norm);
  if (norm[1] > 0) return;
  int64_t count = brim_tensor_count(&call->in[2]);
  double value[REF_CHUNK], average[REF_CHUNK];
  for (int64_t at = 0; at < count; at += REF_CHUNK) {
    int64_t n = ref_min(REF_CHUNK, count - at);
    ref_load(&call->in[2], at, n, value);
    ref_load(&call->out[0], at, n, average);
    for (int64_t i = 0; i < n; i++) average[i] += rate * (value[i] - average[i]);
    ref_store(&call->out[0], at, n, average);
  }
}

void brim_ref_step_end(const brim_op_call *call) {
  const brim_op_attr *a = &call->attr;
  double *state = call->out[0].data;
  const brim_tensor *ring = &call->out[1];
  double norm[2], scale = state[BRIM_STATE_LOSS_SCALE];
  ref_load(&call->in[0], 0, 2, norm);
  int64_t row = ((int64_t)state[BRIM_STATE_STEP] - 1) % ring->dim[0];
  double note[4] = {norm[0] / (scale * scale), norm[1], scale, 0};
  ref_store(ring, row * 4, 4, note);
  if (!(norm[1] > 0)) state[BRIM_STATE_UPDATES] += 1;
  if (!a->dynamic_scale) return;
  if (norm[1] > 0) {
    state[BRIM_STATE_LOSS_SCALE] = fmax(scale / 2, 1);
    state[BRIM_STATE_GOOD_STEPS] = 0;
  } else {
    state[BRIM_STATE_GOOD_STEPS] += 1;
    if (state[BRIM_STATE_GOOD_STEPS] >= a->growth_interval) {
      state[BRIM_STATE_LOSS_SCALE] = fmin(scale * 2, 16777216);
      state[BRIM_STATE_GOOD_STEPS] = 0;
    }
  }
}
