// The shape and type rules of BRIM_OP_MAP as one table: a row per op, a slot per tensor. Sizes are
// letters that the first tensor binds and later ones must match, so a message can name both sides.
// Says nothing about what a backend can do: that is its validate.
#include <math.h>
#include <stdio.h>

#include "backend/backend.h"

// What a slot may hold.
typedef enum slot_type {
  SLOT_T,      // the activation type of the call: f32, bf16, f16, f64
  SLOT_P,      // f32, or f64 when T is f64 (or no tensor of type T stands before it)
  SLOT_F64,    // step state
  SLOT_F32,    // targets
  SLOT_I32,    // labels
  SLOT_RAW,    // u8 or f32
  SLOT_FLOAT,  // any float type
  SLOT_HALF    // bf16 or f16
} slot_type;

// shape: letters are sizes; "*" the shape of the first tensor; "+" rows, then anything, the product
// being F; "=n" n values; "0P" P values or none.
typedef struct slot {
  const char *name;
  slot_type type;
  const char *shape;
  bool optional;
} slot;

typedef struct op_rule {
  slot in[BRIM_OP_MAX_IN];
  slot out[BRIM_OP_MAX_OUT];
  brim_status (*attr)(const brim_op_call *call);
} op_rule;

typedef struct binding {
  int64_t size;
  const char *by;  // slot that bound it
} binding;

typedef struct check {
  const brim_op_call *call;
  const char *op;
  brim_dtype type;  // T, or COUNT while unknown
  const char *type_by;
  const brim_tensor *first;  // for "*"
  const char *first_name;
  binding letter[26];
} check;

static void shape_text(const brim_tensor *t, char out[160]) {
  size_t n = (size_t)snprintf(out, 160, "(");
  for (int i = 0; i < t->rank && n < 150; i++) {
    n += (size_t)snprintf(out + n, 160 - n, "%s%lld", i ? ", " : "", (long long)t->dim[i]);
  }
  if (n < 159) snprintf(out + n, 160 - n, ")");
}

static bool is_float(brim_dtype t) {
  return t == BRIM_F32 || t == BRIM_BF16 || t == BRIM_F16 || t == BRIM_F64;
}

static brim_status check_type(check *c, const slot *s, brim_dtype type) {
  const char *name = brim_dtype_name(type);
  switch (s->type) {
    case SLOT_T:
      if (!is_float(type)) {
        return brim_fail(BRIM_EINVAL, "%s: %s is %s, expected f32, bf16, f16 or f64", c->op,
                         s->name, name);
      }
      if (c->type == BRIM_DTYPE_COUNT) {
        c->type = type;
        c->type_by = s->name;
      }
      if (type != c->type) {
        return brim_fail(BRIM_EINVAL, "%s: %s is %s, but %s is %s", c->op, s->name, name,
                         c->type_by, brim_dtype_name(c->type));
      }
      return BRIM_OK;
    case SLOT_P: {
      if (c->type == BRIM_DTYPE_COUNT && (type == BRIM_F32 || type == BRIM_F64)) {
        c->type = type;
        c->type_by = s->name;
      }
      brim_dtype want = c->type == BRIM_F64 ? BRIM_F64 : BRIM_F32;
      if (type == want) return BRIM_OK;
      return brim_fail(BRIM_EINVAL, "%s: %s is %s, expected %s", c->op, s->name, name,
                       brim_dtype_name(want));
    }
    case SLOT_F64:
      if (type == BRIM_F64) return BRIM_OK;
      return brim_fail(BRIM_EINVAL, "%s: %s is %s, expected f64", c->op, s->name, name);
    case SLOT_F32:
      if (type == BRIM_F32) return BRIM_OK;
      return brim_fail(BRIM_EINVAL, "%s: %s is %s, expected f32", c->op, s->name, name);
    case SLOT_I32:
      if (type == BRIM_I32) return BRIM_OK;
      return brim_fail(BRIM_EINVAL, "%s: %s is %s, expected i32", c->op, s->name, name);
    case SLOT_RAW:
      if (type == BRIM_U8 || type == BRIM_F32) return BRIM_OK;
      return brim_fail(BRIM_EINVAL, "%s: %s is %s, expected u8 or f32", c->op, s->name, name);
    case SLOT_FLOAT:
      if (is_float(type)) return BRIM_OK;
      return brim_fail(BRIM_EINVAL, "%s: %s is %s, expected a float type", c->op, s->name, name);
    case SLOT_HALF:
      if (type == BRIM_BF16 || type == BRIM_F16) return BRIM_OK;
      return brim_fail(BRIM_EINVAL, "%s: %s is %s, expected bf16 or f16", c->op, s->name, name);
  }
  return BRIM_OK;
}

static brim_status bind_size(check *c, const slot *s, char letter, int64_t size) {
  binding *b = &c->letter[letter - 'A'];
  if (!b->by) {
    b->by = s->name;
    b->size = size;
  }
  if (b->size == size) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: %s has %c = %lld, but %s gave %c = %lld", c->op, s->name,
                   letter, (long long)size, b->by, letter, (long long)b->size);
}

static brim_status check_dims(check *c, const slot *s, const brim_tensor *t) {
  bool may_be_empty = s->shape[0] == '0';
  int64_t bytes = (int64_t)brim_dtype_size(t->dtype);
  if (t->rank > BRIM_MAX_RANK || t->rank < 0) {
    return brim_fail(BRIM_EINVAL, "%s: %s has rank %d, at most %d is possible", c->op, s->name,
                     (int)t->rank, BRIM_MAX_RANK);
  }
  for (int i = 0; i < t->rank; i++) {
    if (t->dim[i] < (may_be_empty ? 0 : 1)) {
      return brim_fail(BRIM_EINVAL, "%s: %s has size %lld in dimension %d", c->op, s->name,
                       (long long)t->dim[i], i);
    }
    if (__builtin_mul_overflow(bytes, t->dim[i], &bytes)) {
      return brim_fail(BRIM_EINVAL, "%s: %s has more bytes than 64 bits can count", c->op, s->name);
    }
  }
  return BRIM_OK;
}

static brim_status check_same(check *c, const slot *s, const brim_tensor *t) {
  if (!c->first) {
    c->first = t;
    c->first_name = s->name;
    return BRIM_OK;
  }
  bool same = t->rank == c->first->rank;
  for (int i = 0; same && i < t->rank; i++) same = t->dim[i] == c->first->dim[i];
  if (same) return BRIM_OK;
  char a[160], b[160];
  shape_text(t, a);
  shape_text(c->first, b);
  return brim_fail(BRIM_EINVAL, "%s: %s is %s, but %s is %s", c->op, s->name, a, c->first_name, b);
}

static brim_status check_shape(check *c, const slot *s, const brim_tensor *t) {
  const char *shape = s->shape;
  BRIM_TRY(check_dims(c, s, t));
  if (shape[0] == '*') return check_same(c, s, t);
  if (shape[0] == '+') {
    BRIM_TRY(bind_size(c, s, 'N', t->dim[0]));
    return bind_size(c, s, 'F', brim_tensor_count(t) / t->dim[0]);
  }
  char text[160];
  if (shape[0] == '=') {
    int64_t want = 0;
    for (const char *p = shape + 1; *p; p++) want = want * 10 + (*p - '0');
    if (t->rank == 1 && t->dim[0] == want) return BRIM_OK;
    shape_text(t, text);
    return brim_fail(BRIM_EINVAL, "%s: %s is %s, expected (%lld)", c->op, s->name, text,
                     (long long)want);
  }
  if (shape[0] == '0') {
    if (brim_tensor_count(t) == 0) return BRIM_OK;
    shape++;
  }
  int rank = 0;
  while (shape[rank]) rank++;
  if (t->rank != rank) {
    shape_text(t, text);
    return brim_fail(BRIM_EINVAL, "%s: %s is %s, expected rank %d", c->op, s->name, text, rank);
  }
  for (int i = 0; i < rank; i++) BRIM_TRY(bind_size(c, s, shape[i], t->dim[i]));
  return BRIM_OK;
}

static brim_status check_side(check *c, const slot *slots, int max, const brim_tensor *t,
                              int count) {
  int known = 0;
  while (known < max && slots[known].name) known++;
  if (count < 0 || count > known) {
    return brim_fail(BRIM_EINVAL, "%s: %d %s, at most %d are possible", c->op, count,
                     t == c->call->in ? "inputs" : "outputs", known);
  }
  for (int i = 0; i < known; i++) {
    const slot *s = &slots[i];
    if (i >= count || t[i].rank == 0) {
      if (s->optional || s->shape[0] == '0') continue;
      return brim_fail(BRIM_EINVAL, "%s: %s is missing", c->op, s->name);
    }
    BRIM_TRY(check_type(c, s, t[i].dtype));
    BRIM_TRY(check_shape(c, s, &t[i]));
  }
  return BRIM_OK;
}

//---------------------------------- attributes ----------------------------------

static bool has_output(const brim_op_call *call, int index) {
  return call->out_count > index && brim_tensor_count(&call->out[index]) > 0;
}

static brim_status attr_act(const brim_op_call *call) {
  if ((unsigned)call->attr.act < BRIM_ACT_COUNT) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: activation %d is not known", brim_op_name(call->op),
                   (int)call->attr.act);
}

static brim_status attr_act_needed(const brim_op_call *call) {
  if (call->attr.act == BRIM_ACT_NONE) {
    return brim_fail(BRIM_EINVAL, "%s: no activation is given", brim_op_name(call->op));
  }
  return attr_act(call);
}

static brim_status attr_bwd_data(const brim_op_call *call) {
  bool saved = call->in_count > 2 && call->in[2].rank > 0;
  if (call->attr.act != BRIM_ACT_NONE && !saved) {
    return brim_fail(BRIM_EINVAL, "%s: an activation is given, but s is missing",
                     brim_op_name(call->op));
  }
  return attr_act(call);
}

static brim_status attr_eps(const brim_op_call *call) {
  if (isfinite(call->attr.eps) && call->attr.eps > 0) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: eps is %g, expected a number above 0", brim_op_name(call->op),
                   (double)call->attr.eps);
}

static brim_status attr_dropout(const brim_op_call *call) {
  if (!(call->attr.p >= 0 && call->attr.p < 1)) {
    return brim_fail(BRIM_EINVAL, "%s: p is %g, expected 0 <= p < 1", brim_op_name(call->op),
                     (double)call->attr.p);
  }
  if (call->attr.layer >= 65536) {
    return brim_fail(BRIM_EINVAL, "%s: layer is %u, at most 65535 is possible",
                     brim_op_name(call->op), (unsigned)call->attr.layer);
  }
  return BRIM_OK;
}

static brim_status attr_input(const brim_op_call *call) {
  const brim_op_attr *a = &call->attr;
  if (a->channels < 1 || a->channels > 4) {
    return brim_fail(BRIM_EINVAL, "%s: channels is %d, expected 1 to 4", brim_op_name(call->op),
                     (int)a->channels);
  }
  int64_t features = brim_tensor_count(&call->in[0]) / call->in[0].dim[0];
  if (features % a->channels != 0) {
    return brim_fail(BRIM_EINVAL, "%s: %lld values per row are not a multiple of %d channels",
                     brim_op_name(call->op), (long long)features, (int)a->channels);
  }
  for (int i = 0; i < a->channels; i++) {
    if (!isfinite(a->scale[i]) || !isfinite(a->shift[i])) {
      return brim_fail(BRIM_EINVAL, "%s: scale or shift of channel %d is not a finite number",
                       brim_op_name(call->op), i);
    }
  }
  return BRIM_OK;
}

static brim_status attr_xent(const brim_op_call *call) {
  if (call->attr.label_smoothing >= 0 && call->attr.label_smoothing <= 1) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: label smoothing is %g, expected 0 to 1",
                   brim_op_name(call->op), (double)call->attr.label_smoothing);
}

static brim_status attr_sgd(const brim_op_call *call) {
  const brim_op_attr *a = &call->attr;
  if (!(a->momentum >= 0) || !isfinite(a->momentum)) {
    return brim_fail(BRIM_EINVAL, "%s: momentum is %g, expected 0 or more", brim_op_name(call->op),
                     (double)a->momentum);
  }
  if (a->nesterov && a->momentum == 0) {
    return brim_fail(BRIM_EINVAL, "%s: nesterov needs a momentum above 0", brim_op_name(call->op));
  }
  if (a->momentum != 0 && !has_output(call, 1)) {
    return brim_fail(BRIM_EINVAL, "%s: sgd with momentum needs m", brim_op_name(call->op));
  }
  return BRIM_OK;
}

static brim_status attr_adam(const brim_op_call *call) {
  const brim_op_attr *a = &call->attr;
  if (!(a->beta1 >= 0 && a->beta1 < 1 && a->beta2 >= 0 && a->beta2 < 1)) {
    return brim_fail(BRIM_EINVAL, "%s: betas are %g and %g, expected 0 <= beta < 1",
                     brim_op_name(call->op), (double)a->beta1, (double)a->beta2);
  }
  if (!(a->eps >= 0) || !isfinite(a->eps)) {
    return brim_fail(BRIM_EINVAL, "%s: eps is %g, expected 0 or more", brim_op_name(call->op),
                     (double)a->eps);
  }
  if (!has_output(call, 1) || !has_output(call, 2)) {
    return brim_fail(BRIM_EINVAL, "%s: adam and adamw need m and v", brim_op_name(call->op));
  }
  return BRIM_OK;
}

static brim_status attr_optimizer(const brim_op_call *call) {
  const brim_op_attr *a = &call->attr;
  if (!(a->weight_decay >= 0) || !isfinite(a->weight_decay)) {
    return brim_fail(BRIM_EINVAL, "%s: weight decay is %g, expected 0 or more",
                     brim_op_name(call->op), (double)a->weight_decay);
  }
  switch (a->optimizer) {
    case BRIM_OPTIMIZER_SGD:
      return attr_sgd(call);
    case BRIM_OPTIMIZER_ADAM:
    case BRIM_OPTIMIZER_ADAMW:
      return attr_adam(call);
    case BRIM_OPTIMIZER_KIND_COUNT:
      break;
  }
  return brim_fail(BRIM_EINVAL, "%s: optimizer %d is not known", brim_op_name(call->op),
                   (int)a->optimizer);
}

//---------------------------------- rules ----------------------------------

#define STATE \
  { "state", SLOT_F64, "=16", false }
#define METRICS \
  { "metrics", SLOT_P, "=8", false }
_Static_assert(BRIM_STATE_COUNT == 16 && BRIM_METRIC_COUNT == 8, "the shapes above");

static const op_rule rules[BRIM_OP_COUNT] = {
    [BRIM_OP_LINEAR] = {.in = {{"x", SLOT_T, "NK", false},
                               {"w", SLOT_T, "MK", false},
                               {"b", SLOT_T, "M", true}},
                        .out = {{"y", SLOT_T, "NM", false}},
                        .attr = attr_act},
    [BRIM_OP_LINEAR_BWD_DATA] = {.in = {{"dy", SLOT_T, "NM", false},
                                        {"w", SLOT_T, "MK", false},
                                        {"s", SLOT_T, "NK", true}},
                                 .out = {{"dx", SLOT_T, "NK", false}},
                                 .attr = attr_bwd_data},
    [BRIM_OP_LINEAR_BWD_WEIGHT] = {.in = {{"dy", SLOT_T, "NM", false}, {"x", SLOT_T, "NK", false}},
                                   .out = {{"dw", SLOT_P, "MK", false}, {"db", SLOT_P, "M", true}}},
    [BRIM_OP_ACT] = {.in = {{"x", SLOT_T, "*", false}},
                     .out = {{"y", SLOT_T, "*", false}},
                     .attr = attr_act_needed},
    [BRIM_OP_ACT_BWD] = {.in = {{"dy", SLOT_T, "*", false}, {"s", SLOT_T, "*", false}},
                         .out = {{"dx", SLOT_T, "*", false}},
                         .attr = attr_act_needed},
    [BRIM_OP_LAYERNORM] = {.in = {{"x", SLOT_T, "NC", false},
                                  {"g", SLOT_P, "C", false},
                                  {"b", SLOT_P, "C", false}},
                           .out = {{"y", SLOT_T, "NC", false},
                                   {"mean", SLOT_P, "N", false},
                                   {"rstd", SLOT_P, "N", false}},
                           .attr = attr_eps},
    [BRIM_OP_LAYERNORM_BWD] = {.in = {{"dy", SLOT_T, "NC", false},
                                      {"x", SLOT_T, "NC", false},
                                      {"g", SLOT_P, "C", false},
                                      {"mean", SLOT_P, "N", false},
                                      {"rstd", SLOT_P, "N", false}},
                               .out = {{"dx", SLOT_T, "NC", false},
                                       {"dg", SLOT_P, "C", false},
                                       {"db", SLOT_P, "C", false}}},
    [BRIM_OP_DROPOUT] = {.in = {{"x", SLOT_T, "*", false}, STATE},
                         .out = {{"y", SLOT_T, "*", false}},
                         .attr = attr_dropout},
    [BRIM_OP_ADD] = {.in = {{"a", SLOT_T, "*", false}, {"b", SLOT_T, "*", false}},
                     .out = {{"y", SLOT_T, "*", false}}},
    [BRIM_OP_CAST] = {.in = {{"x", SLOT_FLOAT, "*", false}},
                      .out = {{"y", SLOT_FLOAT, "*", false}}},
    [BRIM_OP_INPUT] = {.in = {{"x", SLOT_RAW, "+", false}},
                       .out = {{"y", SLOT_T, "+", false}},
                       .attr = attr_input},
    [BRIM_OP_XENT] = {.in = {{"logits", SLOT_T, "NC", false},
                             {"labels", SLOT_I32, "N", false},
                             STATE},
                      .out = {METRICS, {"dlogits", SLOT_T, "NC", true}},
                      .attr = attr_xent},
    [BRIM_OP_MSE] = {.in = {{"pred", SLOT_T, "NC", false},
                            {"target", SLOT_F32, "NC", false},
                            STATE},
                     .out = {METRICS, {"dpred", SLOT_T, "NC", true}}},
    [BRIM_OP_GRAD_NORM] = {.in = {{"grads", SLOT_P, "P", false}},
                           .out = {{"norm", SLOT_P, "=2", false}}},
    [BRIM_OP_OPTIMIZER] = {.in = {STATE,
                                  {"norm", SLOT_P, "=2", false},
                                  {"grads", SLOT_P, "P", false}},
                           .out = {{"params", SLOT_P, "P", false},
                                   {"m", SLOT_P, "0P", false},
                                   {"v", SLOT_P, "0P", false},
                                   {"copy", SLOT_HALF, "P", true}},
                           .attr = attr_optimizer},
};

brim_status brim_op_check(const brim_op_call *call) {
  if ((unsigned)call->op >= BRIM_OP_COUNT) {
    return brim_fail(BRIM_EINVAL, "op %d is not known", (int)call->op);
  }
  const op_rule *rule = &rules[call->op];
  check c = {.call = call, .op = brim_op_name(call->op), .type = BRIM_DTYPE_COUNT};
  BRIM_TRY(check_side(&c, rule->in, BRIM_OP_MAX_IN, call->in, call->in_count));
  BRIM_TRY(check_side(&c, rule->out, BRIM_OP_MAX_OUT, call->out, call->out_count));
  return rule->attr ? rule->attr(call) : BRIM_OK;
}
