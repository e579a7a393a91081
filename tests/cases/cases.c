// The list itself: per op its shapes and its variants; a case is one of each.
#include "cases/cases.h"

#include <stdio.h>
#include <string.h>

#include "hd/hd_philox.h"

typedef struct shape {
  int64_t n, k, m;
} shape;

// What differs between cases of one op besides the shape.
typedef struct variant {
  const char *text;
  brim_op_attr attr;
  brim_dtype type2;  // 0 means none here; BRIM_F32 itself is written as F32_TYPE2
  bool optional, padding, bad_labels, nonfinite;
  int in_place;
  double step, grad_scale, inv_scale, clip, row_offset;  // 0 = default
} variant;

typedef struct group {
  brim_op op;
  const shape *shapes;
  size_t shape_count;
  const shape *speed;
  size_t speed_count;
  const variant *variants;
  size_t variant_count;
} group;

#define F32_TYPE2 BRIM_DTYPE_COUNT

// 1, primes, just beside and just above vector widths and blocks, and MNIST's own.
static const shape linear_shapes[] = {
    {1, 1, 1},   {1, 7, 3},    {5, 1, 9},     {3, 17, 31},   {2, 16, 16},     {13, 64, 10},
    {33, 65, 5}, {64, 31, 67}, {127, 10, 16}, {32, 784, 96}, {257, 101, 129}, {6, 1031, 2},
};
static const shape linear_speed[] = {{512, 784, 512}, {512, 512, 512}, {512, 512, 10}};
static const shape flat_shapes[] = {
    {1, 1, 0}, {1, 13, 0}, {7, 1, 0}, {3, 17, 0}, {64, 64, 0}, {129, 257, 0},
};
static const shape flat_speed[] = {{512, 512, 0}, {512, 784, 0}};
static const shape row_shapes[] = {
    {1, 2, 0}, {2, 10, 0}, {5, 3, 0}, {17, 31, 0}, {64, 10, 0}, {33, 1000, 0}, {128, 257, 0},
};
// Two columns leave the gradient of a layer norm nothing but rounding: three at least.
static const shape norm_shapes[] = {
    {1, 3, 0}, {2, 10, 0}, {5, 4, 0}, {17, 31, 0}, {64, 16, 0}, {33, 1000, 0}, {128, 257, 0},
};
static const shape norm_speed[] = {{512, 512, 0}};
static const shape row_speed[] = {{512, 10, 0}, {512, 512, 0}};
static const shape input_shapes[] = {{1, 12, 0}, {3, 24, 0}, {32, 3072, 0}, {17, 588, 0}};
static const shape input_speed[] = {{512, 3072, 0}};
static const shape param_shapes[] = {
    {1, 0, 0}, {13, 0, 0}, {64, 0, 0}, {1023, 0, 0}, {66661, 0, 0}};
static const shape param_speed[] = {{1197066, 0, 0}};

static const variant linear_variants[] = {
    {.text = "plain"},
    {.text = "bias", .optional = true},
    {.text = "bias relu", .optional = true, .attr = {.act = BRIM_ACT_RELU}},
    {.text = "bias gelu", .optional = true, .attr = {.act = BRIM_ACT_GELU}},
    {.text = "bias tanh", .optional = true, .attr = {.act = BRIM_ACT_TANH}},
    {.text = "relu", .attr = {.act = BRIM_ACT_RELU}},
};
static const variant bwd_data_variants[] = {
    {.text = "plain"},
    {.text = "relu", .optional = true, .attr = {.act = BRIM_ACT_RELU}},
    {.text = "gelu", .optional = true, .attr = {.act = BRIM_ACT_GELU}},
    {.text = "tanh", .optional = true, .attr = {.act = BRIM_ACT_TANH}},
};
static const variant bwd_weight_variants[] = {
    {.text = "plain"},
    {.text = "db", .optional = true},
    {.text = "accumulate", .attr = {.accumulate = true}},
    {.text = "db accumulate", .optional = true, .attr = {.accumulate = true}},
};
static const variant act_variants[] = {
    {.text = "relu", .attr = {.act = BRIM_ACT_RELU}},
    {.text = "gelu", .attr = {.act = BRIM_ACT_GELU}},
    {.text = "tanh", .attr = {.act = BRIM_ACT_TANH}},
};
static const variant layernorm_variants[] = {
    {.text = "eps=1e-5", .attr = {.eps = 1e-5f}},
    {.text = "eps=0.1", .attr = {.eps = 0.1f}},
};
static const variant layernorm_bwd_variants[] = {
    {.text = "plain", .attr = {.eps = 1e-5f}},
    {.text = "accumulate", .attr = {.eps = 1e-5f, .accumulate = true}},
};
static const variant dropout_variants[] = {
    {.text = "p=0.5", .attr = {.p = 0.5f, .layer = 1}},
    {.text = "p=0", .attr = {.p = 0.0f, .layer = 2}},
    {.text = "p=0.1 offset", .attr = {.p = 0.1f, .layer = 3}, .row_offset = 37},
    {.text = "p=0.9 late", .attr = {.p = 0.9f, .layer = 65535}, .step = 123456789},
};
static const variant add_variants[] = {
    {.text = "apart"},
    {.text = "onto a", .in_place = 1},
    {.text = "onto b", .in_place = 2},
};
static const variant cast_variants[] = {
    {.text = "to f32", .type2 = F32_TYPE2},
    {.text = "to bf16", .type2 = BRIM_BF16},
    {.text = "to f16", .type2 = BRIM_F16},
    {.text = "to f64", .type2 = BRIM_F64},
};
#define SCALES .scale = {0.017f, 0.0175f, 0.0174f, 0.02f}, .shift = {-2.1f, -2.0f, 1.8f, 0.5f}
static const variant input_variants[] = {
    {.text = "u8 grey", .type2 = BRIM_U8, .attr = {.channels = 1, SCALES}},
    {.text = "u8 rgb", .type2 = BRIM_U8, .attr = {.channels = 3, SCALES}},
    {.text = "u8 4 channels", .type2 = BRIM_U8, .attr = {.channels = 4, SCALES}},
    {.text = "f32 rgb", .type2 = F32_TYPE2, .attr = {.channels = 3, SCALES}},
};
static const variant xent_variants[] = {
    {.text = "loss"},
    {.text = "gradient", .optional = true},
    {.text = "gradient smoothing", .optional = true, .attr = {.label_smoothing = 0.1f}},
    {.text = "gradient padding", .optional = true, .padding = true},
    {.text = "gradient scaled bad labels",
     .optional = true,
     .bad_labels = true,
     .grad_scale = 1024,
     .attr = {.label_smoothing = 0.3f}},
    {.text = "nonfinite", .nonfinite = true},
};
static const variant mse_variants[] = {
    {.text = "loss"},
    {.text = "gradient", .optional = true},
    {.text = "gradient padding scaled", .optional = true, .padding = true, .grad_scale = 512},
    {.text = "nonfinite", .nonfinite = true},
};
static const variant norm_variants[] = {{.text = "plain"},
                                        {.text = "nonfinite", .nonfinite = true}};
#define ADAM .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f
static const variant optimizer_variants[] = {
    {.text = "sgd"},
    {.text = "sgd decay clip", .attr = {.weight_decay = 0.01f}, .clip = 0.5},
    {.text = "sgd momentum first", .step = 1, .attr = {.momentum = 0.9f}},
    {.text = "sgd momentum decay", .attr = {.momentum = 0.9f, .weight_decay = 1e-3f}},
    {.text = "sgd nesterov scaled",
     .inv_scale = 0.125,
     .attr = {.momentum = 0.8f, .nesterov = true, .weight_decay = 1e-3f}},
    {.text = "adam first", .step = 1, .attr = {.optimizer = BRIM_OPTIMIZER_ADAM, ADAM}},
    {.text = "adam decay clip",
     .clip = 0.25,
     .attr = {.optimizer = BRIM_OPTIMIZER_ADAM, ADAM, .weight_decay = 0.1f}},
    {.text = "adamw decay",
     .step = 1000,
     .attr = {.optimizer = BRIM_OPTIMIZER_ADAMW, ADAM, .weight_decay = 0.1f}},
    {.text = "adamw bf16 scaled clip",
     .type2 = BRIM_BF16,
     .clip = 1,
     .inv_scale = 0.5,
     .attr = {.optimizer = BRIM_OPTIMIZER_ADAMW, ADAM, .weight_decay = 0.01f}},
    {.text = "adam f16", .type2 = BRIM_F16, .attr = {.optimizer = BRIM_OPTIMIZER_ADAM, ADAM}},
    {.text = "adamw skipped",
     .nonfinite = true,
     .attr = {.optimizer = BRIM_OPTIMIZER_ADAMW, ADAM, .weight_decay = 0.1f}},
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define GROUP(op, shapes, variants)                                                               \
  {                                                                                               \
    BRIM_OP_##op, shapes##_shapes, COUNT(shapes##_shapes), shapes##_speed, COUNT(shapes##_speed), \
        variants##_variants, COUNT(variants##_variants)                                           \
  }
static const group groups[] = {
    GROUP(LINEAR, linear, linear),
    GROUP(LINEAR_BWD_DATA, linear, bwd_data),
    GROUP(LINEAR_BWD_WEIGHT, linear, bwd_weight),
    GROUP(ACT, flat, act),
    GROUP(ACT_BWD, flat, act),
    GROUP(LAYERNORM, row, layernorm),
    GROUP(LAYERNORM_BWD, norm, layernorm_bwd),
    GROUP(DROPOUT, flat, dropout),
    GROUP(ADD, flat, add),
    GROUP(CAST, flat, cast),
    GROUP(INPUT, input, input),
    GROUP(XENT, row, xent),
    GROUP(MSE, row, mse),
    GROUP(GRAD_NORM, param, norm),
    GROUP(OPTIMIZER, param, optimizer),
};
_Static_assert(COUNT(groups) == BRIM_OP_COUNT, "every op has cases");

static void make_case(const group *g, const shape *s, const variant *v, brim_case *out) {
  *out = (brim_case){.op = g->op, .n = s->n, .k = s->k, .m = s->m, .attr = v->attr};
  out->type = BRIM_F32;
  out->type2 = v->type2 == F32_TYPE2 ? BRIM_F32 : v->type2 ? v->type2 : BRIM_DTYPE_COUNT;
  out->optional = v->optional;
  out->padding = v->padding;
  out->bad_labels = v->bad_labels;
  out->nonfinite = v->nonfinite;
  out->in_place = v->in_place;
  out->seed = 1;
  double rows = (double)(v->padding ? s->n - s->n / 3 : s->n);
  out->state[BRIM_STATE_STEP] = v->step > 0 ? v->step : 3;
  out->state[BRIM_STATE_LR] = 0.01;
  out->state[BRIM_STATE_ROWS] = rows;
  out->state[BRIM_STATE_GRAD_SCALE] = (v->grad_scale > 0 ? v->grad_scale : 1) / rows;
  out->state[BRIM_STATE_INV_SCALE] = v->inv_scale > 0 ? v->inv_scale : 1;
  out->state[BRIM_STATE_CLIP] = v->clip;
  out->state[BRIM_STATE_SEED] = 9007199254740881;  // close to 2^53, still exact
  out->state[BRIM_STATE_ROW_OFFSET] = v->row_offset;
  char shape_text[64];
  if (s->m) {
    snprintf(shape_text, sizeof(shape_text), "n=%lld k=%lld m=%lld", (long long)s->n,
             (long long)s->k, (long long)s->m);
  } else if (s->k) {
    snprintf(shape_text, sizeof(shape_text), "n=%lld c=%lld", (long long)s->n, (long long)s->k);
  } else {
    snprintf(shape_text, sizeof(shape_text), "p=%lld", (long long)s->n);
  }
  snprintf(out->name, sizeof(out->name), "%s %s %s", brim_op_name(g->op), shape_text, v->text);
}

size_t brim_case_count(void) {
  size_t count = 0;
  for (size_t i = 0; i < COUNT(groups); i++) {
    count += groups[i].shape_count * groups[i].variant_count;
  }
  return count;
}

void brim_case_get(size_t index, brim_case *out) {
  const group *g = groups;
  while (index >= g->shape_count * g->variant_count) {
    index -= g->shape_count * g->variant_count;
    g++;
  }
  make_case(g, &g->shapes[index / g->variant_count], &g->variants[index % g->variant_count], out);
}

size_t brim_case_speed_count(void) {
  size_t count = 0;
  for (size_t i = 0; i < COUNT(groups); i++) {
    count += groups[i].speed_count * groups[i].variant_count;
  }
  return count;
}

void brim_case_speed_get(size_t index, brim_case *out) {
  const group *g = groups;
  while (index >= g->speed_count * g->variant_count) {
    index -= g->speed_count * g->variant_count;
    g++;
  }
  make_case(g, &g->speed[index / g->variant_count], &g->variants[index % g->variant_count], out);
}

// 1 .. limit, small ones more often.
static int64_t draw_size(uint32_t bits, int64_t limit) {
  double u = (double)brim_rng_uniform(bits);
  return 1 + (int64_t)(u * u * (double)limit);
}

void brim_case_fuzz(uint64_t seed, uint64_t index, brim_case *out) {
  uint64_t key = brim_rng_key(seed, BRIM_RNG_TEST);
  brim_philox4 r = brim_philox(key, 1, index), q = brim_philox(key, 2, index);
  const group *g = &groups[brim_rng_below(r.v[0], q.v[0], COUNT(groups))];
  const variant *v = &g->variants[brim_rng_below(r.v[1], q.v[1], g->variant_count)];
  shape s = {draw_size(r.v[2], 70), draw_size(r.v[3], 300), draw_size(q.v[2], 70)};
  if (g->shapes[0].m == 0) s.m = 0;
  if (g->shapes[0].k == 0) {
    s.n = draw_size(r.v[2], 3000);
    s.k = 0;
  }
  if (g->op == BRIM_OP_INPUT) s.k = 12 * (1 + s.k / 12);
  if (g->op == BRIM_OP_LAYERNORM || g->op == BRIM_OP_LAYERNORM_BWD) s.k += 2;
  make_case(g, &s, v, out);
  out->seed = index + 2;
}

void brim_case_set_type(brim_case *c, brim_dtype type) {
  c->type = type;
  size_t used = strlen(c->name);
  snprintf(c->name + used, sizeof(c->name) - used, " %s", brim_dtype_name(type));
}

void brim_case_set_oracle(brim_case *c) {
  c->type = BRIM_F64;
  if (c->op == BRIM_OP_CAST) c->type2 = BRIM_F64;
}

//---------------------------------- calls ----------------------------------

static brim_tensor tensor1(brim_dtype type, int64_t n) {
  return brim_tensor_make(NULL, type, 1, (const int64_t[]){n});
}

static brim_tensor tensor2(brim_dtype type, int64_t n, int64_t m) {
  return brim_tensor_make(NULL, type, 2, (const int64_t[]){n, m});
}

static void put_in(brim_op_call *call, brim_tensor t) { call->in[call->in_count++] = t; }
static void put_out(brim_op_call *call, brim_tensor t) { call->out[call->out_count++] = t; }

static void linear_call(const brim_case *c, brim_op_call *call, brim_dtype t, brim_dtype p) {
  switch (c->op) {
    case BRIM_OP_LINEAR:
      put_in(call, tensor2(t, c->n, c->k));
      put_in(call, tensor2(t, c->m, c->k));
      if (c->optional) put_in(call, tensor1(t, c->m));
      put_out(call, tensor2(t, c->n, c->m));
      break;
    case BRIM_OP_LINEAR_BWD_DATA:
      put_in(call, tensor2(t, c->n, c->m));
      put_in(call, tensor2(t, c->m, c->k));
      if (c->optional) put_in(call, tensor2(t, c->n, c->k));
      put_out(call, tensor2(t, c->n, c->k));
      break;
    default:
      put_in(call, tensor2(t, c->n, c->m));
      put_in(call, tensor2(t, c->n, c->k));
      put_out(call, tensor2(p, c->m, c->k));
      if (c->optional) put_out(call, tensor1(p, c->m));
      break;
  }
}

static void norm_call(const brim_case *c, brim_op_call *call, brim_dtype t, brim_dtype p) {
  bool backward = c->op == BRIM_OP_LAYERNORM_BWD;
  if (backward) put_in(call, tensor2(t, c->n, c->k));
  put_in(call, tensor2(t, c->n, c->k));
  put_in(call, tensor1(p, c->k));
  put_out(call, tensor2(t, c->n, c->k));
  if (backward) {
    put_in(call, tensor1(p, c->n));
    put_in(call, tensor1(p, c->n));
    put_out(call, tensor1(p, c->k));
    put_out(call, tensor1(p, c->k));
  } else {
    put_in(call, tensor1(p, c->k));
    put_out(call, tensor1(p, c->n));
    put_out(call, tensor1(p, c->n));
  }
}

static void loss_call(const brim_case *c, brim_op_call *call, brim_dtype t, brim_dtype p) {
  put_in(call, tensor2(t, c->n, c->k));
  put_in(call, c->op == BRIM_OP_XENT ? tensor1(BRIM_I32, c->n) : tensor2(BRIM_F32, c->n, c->k));
  put_in(call, tensor1(BRIM_F64, BRIM_STATE_COUNT));
  put_out(call, tensor1(p, BRIM_METRIC_COUNT));
  if (c->optional) put_out(call, tensor2(t, c->n, c->k));
}

static void optimizer_call(const brim_case *c, brim_op_call *call, brim_dtype p) {
  bool sgd = c->attr.optimizer == BRIM_OPTIMIZER_SGD;
  put_in(call, tensor1(BRIM_F64, BRIM_STATE_COUNT));
  put_in(call, tensor1(p, 2));
  put_in(call, tensor1(p, c->n));
  put_out(call, tensor1(p, c->n));
  put_out(call, tensor1(p, sgd && c->attr.momentum == 0 ? 0 : c->n));
  put_out(call, tensor1(p, sgd ? 0 : c->n));
  if (c->type2 != BRIM_DTYPE_COUNT) put_out(call, tensor1(c->type2, c->n));
}

void brim_case_call(const brim_case *c, brim_op_call *call) {
  *call = (brim_op_call){.op = c->op, .attr = c->attr};
  brim_dtype t = c->type, p = t == BRIM_F64 ? BRIM_F64 : BRIM_F32;
  brim_dtype t2 = c->type2 == BRIM_DTYPE_COUNT ? t : c->type2;
  switch (c->op) {
    case BRIM_OP_LINEAR:
    case BRIM_OP_LINEAR_BWD_DATA:
    case BRIM_OP_LINEAR_BWD_WEIGHT:
      linear_call(c, call, t, p);
      break;
    case BRIM_OP_LAYERNORM:
    case BRIM_OP_LAYERNORM_BWD:
      norm_call(c, call, t, p);
      break;
    case BRIM_OP_XENT:
    case BRIM_OP_MSE:
      loss_call(c, call, t, p);
      break;
    case BRIM_OP_OPTIMIZER:
      optimizer_call(c, call, p);
      break;
    case BRIM_OP_GRAD_NORM:
      put_in(call, tensor1(p, c->n));
      put_out(call, tensor1(p, 2));
      break;
    case BRIM_OP_INPUT:
      put_in(call, tensor2(t2, c->n, c->k));
      put_out(call, tensor2(t, c->n, c->k));
      break;
    case BRIM_OP_CAST:
      put_in(call, tensor2(t, c->n, c->k));
      put_out(call, tensor2(t2, c->n, c->k));
      break;
    default:  // ACT, ACT_BWD, DROPOUT, ADD: all of one shape
      put_in(call, tensor2(t, c->n, c->k));
      if (c->op == BRIM_OP_ACT_BWD || c->op == BRIM_OP_ADD) put_in(call, tensor2(t, c->n, c->k));
      if (c->op == BRIM_OP_DROPOUT) put_in(call, tensor1(BRIM_F64, BRIM_STATE_COUNT));
      put_out(call, tensor2(t, c->n, c->k));
      break;
  }
}
