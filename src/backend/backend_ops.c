// The ops: one row for each id of BRIM_OP_MAP with its tensors, the rule of its attributes, its cost,
// and which outputs may be written over inputs (backend.h says what each op computes). Calls are
// checked against the row: types and shapes tensor by tensor, then attributes. Sizes are letters that
// the first tensor binds and later tensors must match, so a message can name both tensors. The limits
// of a backend are checked by its validate, not here.
#include <math.h>
#include <stdio.h>

#include "backend/backend.h"

// The types a tensor slot accepts.
typedef enum brim_slot_type {
  SLOT_T,      // the activation type of the call: f32, bf16, f16, f64
  SLOT_P,      // f32, or f64 when T is f64; f32 or f64 if no tensor of type T comes before
  SLOT_F64,    // step state
  SLOT_F32,    // targets
  SLOT_I32,    // labels
  SLOT_U8,     // window positions of MAXPOOL
  SLOT_RAW,    // raw input: u8 or f32
  SLOT_FLOAT,  // any float type
  SLOT_HALF    // bf16 or f16
} brim_slot_type;

// `shape` has a letter (a size) or a digit (itself) for each dimension. Other forms: "*" the shape of the
// first "*" tensor; ".K" any rank, the last dimension being K and the product of the others N; "N.C" any
// rank, the first being N and the last C; "+" the first being N and the product of the others F; "-" the
// first being N; "=n" n values; "0P" P values or none.
typedef struct brim_op_slot {
  const char *name;
  brim_slot_type type;
  const char *shape;
  bool optional;
} brim_op_slot;

typedef struct brim_op_rule {
  brim_op_slot in[BRIM_OP_MAX_IN];
  brim_op_slot out[BRIM_OP_MAX_OUT];
  // (optional; default: none) Checks attributes and the sizes that follow from them. The tensors
  // have passed their own rules, so every required one is present.
  brim_status (*attr)(const brim_op_call *call);
  // (optional; default: flops_per_value times the elements of the first input)
  double (*flops)(const brim_op_call *call);
  double flops_per_value;
  // (optional; default: each input and output once, outputs of `adds` and `updates` twice)
  double (*bytes)(const brim_op_call *call);
  uint32_t adds;     // bits 1 << output: added to when attr.accumulate
  uint32_t updates;  // bits 1 << output: always read before it is written
  // Bits 1 << input that an output may be written over. If several outputs may, only the last one present
  // may.
  uint32_t over[BRIM_OP_MAX_OUT];
} brim_op_rule;

extern const brim_op_rule brim_op_rules[BRIM_OP_COUNT];

//---------------------------------- rules of attributes ----------------------------------

static bool has_output(const brim_op_call *call, int index) {
  return call->out_count > index && brim_tensor_count(&call->out[index]) > 0;
}

static brim_status attr_act(const brim_op_call *call) {
  if ((unsigned)call->attr.act < BRIM_ACT_COUNT) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: unknown activation %d", brim_op_name(call->op),
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
    return brim_fail(BRIM_EINVAL, "%s: layer is %u, expected at most 65535", brim_op_name(call->op),
                     (unsigned)call->attr.layer);
  }
  return BRIM_OK;
}

static brim_status attr_input(const brim_op_call *call) {
  const brim_op_attr *a = &call->attr;
  const char *op = brim_op_name(call->op);
  if (a->channels < 1 || a->channels > 4) {
    return brim_fail(BRIM_EINVAL, "%s: channels is %d, expected 1 to 4", op, (int)a->channels);
  }
  const brim_tensor *x = &call->in[0], *y = &call->out[0];
  int64_t features = brim_tensor_count(x) / x->dim[0], out = brim_tensor_count(y) / y->dim[0];
  if (features % a->channels != 0) {
    return brim_fail(BRIM_EINVAL, "%s: %lld values per row are not a multiple of %d channels", op,
                     (long long)features, (int)a->channels);
  }
  int64_t last = y->dim[y->rank - 1], pixels = features / a->channels;
  bool padded = last > a->channels && out % last == 0 && out / last == pixels;
  if (out != features && !padded) {
    return brim_fail(
        BRIM_EINVAL,
        "%s: y has %lld values per row, expected %lld, or %lld pixels with more than %d channels",
        op, (long long)out, (long long)features, (long long)pixels, (int)a->channels);
  }
  for (int i = 0; i < a->channels; i++) {
    if (!isfinite(a->scale[i]) || !isfinite(a->shift[i])) {
      return brim_fail(BRIM_EINVAL, "%s: scale or shift of channel %d is not a finite number", op,
                       i);
    }
  }
  return BRIM_OK;
}

static brim_status attr_xent(const brim_op_call *call) {
  if (call->attr.label_smoothing >= 0 && call->attr.label_smoothing <= 1) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: label smoothing is %g, expected 0 to 1",
                   brim_op_name(call->op), (double)call->attr.label_smoothing);
}

//---------------------------------- images ----------------------------------

// Checks one axis of a sliding window: `out` places of a window of `window` over `in` values.
static brim_status check_axis(const brim_op_call *call, char letter, int64_t in, int64_t window,
                              int64_t out) {
  const brim_op_attr *a = &call->attr;
  const char *op = brim_op_name(call->op);
  if (a->pad >= window) {
    return brim_fail(BRIM_EINVAL, "%s: pad is %d, expected less than the window of %lld", op,
                     (int)a->pad, (long long)window);
  }
  int64_t room = in + 2 * (int64_t)a->pad - window;
  if (room < 0) {
    return brim_fail(BRIM_EINVAL, "%s: a window of %lld does not fit into %lld values and pad %d",
                     op, (long long)window, (long long)in, (int)a->pad);
  }
  int64_t want = room / a->stride + 1;
  if (out == want) return BRIM_OK;
  return brim_fail(BRIM_EINVAL,
                   "%s: %c is %lld, but %lld values, a window of %lld, stride %d and pad %d give "
                   "%lld",
                   op, letter, (long long)out, (long long)in, (long long)window, (int)a->stride,
                   (int)a->pad, (long long)want);
}

static brim_status check_stride(const brim_op_call *call) {
  const char *op = brim_op_name(call->op);
  if (call->attr.stride < 1) {
    return brim_fail(BRIM_EINVAL, "%s: stride is %d, expected 1 or more", op,
                     (int)call->attr.stride);
  }
  if (call->attr.pad < 0) {
    return brim_fail(BRIM_EINVAL, "%s: pad is %d, expected 0 or more", op, (int)call->attr.pad);
  }
  return BRIM_OK;
}

static brim_status attr_conv(const brim_op_call *call) {
  const brim_tensor *large = &call->in[0], *w = &call->in[1], *small = &call->out[0];
  if (call->op == BRIM_OP_CONV_BWD_DATA) {
    large = &call->out[0];
    small = &call->in[0];
  } else if (call->op == BRIM_OP_CONV_BWD_WEIGHT) {
    large = &call->in[1];
    w = &call->out[0];
    small = &call->in[0];
  }
  BRIM_TRY(check_stride(call));
  BRIM_TRY(check_axis(call, 'P', large->dim[1], w->dim[1], small->dim[1]));
  return check_axis(call, 'Q', large->dim[2], w->dim[2], small->dim[2]);
}

static brim_status attr_pool(const brim_op_call *call) {
  bool backward = call->op == BRIM_OP_MAXPOOL_BWD;
  const brim_tensor *large = backward ? &call->out[0] : &call->in[0];
  const brim_tensor *small = backward ? &call->in[0] : &call->out[0];
  int32_t window = call->attr.window;
  if (window < 1 || window > 15) {  // a place within it is a u8
    return brim_fail(BRIM_EINVAL, "%s: window is %d, expected 1 to 15", brim_op_name(call->op),
                     (int)window);
  }
  BRIM_TRY(check_stride(call));
  BRIM_TRY(check_axis(call, 'P', large->dim[1], window, small->dim[1]));
  return check_axis(call, 'Q', large->dim[2], window, small->dim[2]);
}

static brim_status attr_batchnorm(const brim_op_call *call) {
  const brim_op_attr *a = &call->attr;
  const char *op = brim_op_name(call->op);
  if (a->act != BRIM_ACT_NONE && a->act != BRIM_ACT_RELU) {
    return brim_fail(BRIM_EINVAL, "%s: activation %d, expected none or relu", op, (int)a->act);
  }
  bool statistics = call->op == BRIM_OP_BATCHNORM || call->op == BRIM_OP_BATCHNORM_JOIN;
  if (!statistics && call->op != BRIM_OP_BATCHNORM_APPLY) return BRIM_OK;  // backward
  if (statistics || a->variance) BRIM_TRY(attr_eps(call));
  if (!statistics) return BRIM_OK;
  if (!(a->momentum >= 0 && a->momentum <= 1)) {
    return brim_fail(BRIM_EINVAL, "%s: momentum is %g, expected 0 to 1", op, (double)a->momentum);
  }
  if (has_output(call, 3) != has_output(call, 4)) {
    return brim_fail(BRIM_EINVAL, "%s: give both rmean and rvar, or neither", op);
  }
  return BRIM_OK;
}

//---------------------------------- sequences ----------------------------------

static brim_status attr_attention(const brim_op_call *call) {
  bool backward = call->op == BRIM_OP_ATTENTION_BWD;
  const brim_tensor *y = backward ? &call->in[2] : &call->out[0];
  const brim_tensor *qkv = backward ? &call->in[1] : &call->in[0];
  const brim_tensor *lse = backward ? &call->in[3] : &call->out[1];
  const char *op = brim_op_name(call->op);
  int64_t c = y->dim[2], heads = call->attr.heads;
  if (heads < 1 || c % heads != 0) {
    return brim_fail(BRIM_EINVAL, "%s: %lld channels do not divide into %lld heads", op,
                     (long long)c, (long long)heads);
  }
  if (qkv->dim[2] % 3 != 0 || qkv->dim[2] / 3 != c) {
    return brim_fail(BRIM_EINVAL, "%s: qkv has %lld columns, expected 3 times y's %lld", op,
                     (long long)qkv->dim[2], (long long)c);
  }
  if (lse->dim[1] != heads) {
    return brim_fail(BRIM_EINVAL, "%s: lse has %lld heads, but heads is %lld", op,
                     (long long)lse->dim[1], (long long)heads);
  }
  return BRIM_OK;
}

static brim_status attr_concat(const brim_op_call *call) {
  bool backward = call->op == BRIM_OP_CONCAT_BWD;
  const brim_tensor *a = backward ? call->out : call->in, *b = a + 1;
  const brim_tensor *y = backward ? call->in : call->out;
  if (y->dim[1] - a->dim[1] == b->dim[1]) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: %lld and %lld columns do not make %lld",
                   brim_op_name(call->op), (long long)a->dim[1], (long long)b->dim[1],
                   (long long)y->dim[1]);
}

static brim_status attr_ntxent(const brim_op_call *call) {
  float temperature = call->attr.temperature;
  if (!(temperature > 0) || !isfinite(temperature)) {
    return brim_fail(BRIM_EINVAL, "%s: temperature is %g, expected a number above 0",
                     brim_op_name(call->op), (double)temperature);
  }
  if (call->in[0].dim[0] % 2 == 0) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: z has %lld rows, expected two per sample",
                   brim_op_name(call->op), (long long)call->in[0].dim[0]);
}

static brim_status attr_knn(const brim_op_call *call) {
  const brim_op_attr *a = &call->attr;
  if (!(a->temperature > 0) || !isfinite(a->temperature)) {
    return brim_fail(BRIM_EINVAL, "%s: temperature is %g, expected a number above 0",
                     brim_op_name(call->op), (double)a->temperature);
  }
  // the sum of 2^22 weights of at most 2^40 is below 2^63
  if (a->neighbours < 1 || a->neighbours > 1 << 22) {
    return brim_fail(BRIM_EINVAL, "%s: %d neighbours, expected 1 to 4194304",
                     brim_op_name(call->op), (int)a->neighbours);
  }
  if (a->classes >= 1) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: %d classes, expected 1 or more", brim_op_name(call->op),
                   (int)a->classes);
}

//---------------------------------- optimisers ----------------------------------

static brim_status attr_step_end(const brim_op_call *call) {
  if (!call->attr.dynamic_scale || call->attr.growth_interval >= 1) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: growth interval is %d, expected 1 or more",
                   brim_op_name(call->op), (int)call->attr.growth_interval);
}

static brim_status attr_average(const brim_op_call *call) {
  float rate = call->attr.average_rate;
  if (rate > 0 && rate <= 1) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: the averaging factor is %g, expected above 0 and at most 1",
                   brim_op_name(call->op), (double)rate);
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
  if (has_output(call, 4)) BRIM_TRY(attr_average(call));
  switch (a->optimizer) {
    case BRIM_OPTIMIZER_SGD:
      return attr_sgd(call);
    case BRIM_OPTIMIZER_ADAM:
    case BRIM_OPTIMIZER_ADAMW:
      return attr_adam(call);
    case BRIM_OPTIMIZER_KIND_COUNT:
      break;
  }
  return brim_fail(BRIM_EINVAL, "%s: unknown optimizer %d", brim_op_name(call->op),
                   (int)a->optimizer);
}

//---------------------------------- ranks ----------------------------------

// The larger tensor holds all ranks. Pairs have an even number of rows, as each half is one view.
static brim_status attr_gather(const brim_op_call *call) {
  int64_t in = brim_tensor_count(&call->in[0]), out = brim_tensor_count(&call->out[0]);
  bool pairs = call->op != BRIM_OP_ALL_GATHER;
  int64_t one = call->op == BRIM_OP_OWN_PAIRS ? out : in, all = in + out - one;
  if (all % one == 0 && (!pairs || one / call->in[0].dim[1] % 2 == 0)) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: %lld values of all ranks, %lld of one", brim_op_name(call->op),
                   (long long)all, (long long)one);
}

//---------------------------------- floating-point operations ----------------------------------

static double count_of(const brim_tensor *t) { return (double)brim_tensor_count(t); }

// 1 if the optional input is present, else 0.
static double has_input(const brim_op_call *call, int index) {
  return call->in_count > index && call->in[index].rank > 0 ? 1 : 0;
}

// True if the loss also computes a gradient.
static bool has_gradient(const brim_op_call *call) {
  return call->out_count > 1 && call->out[1].rank > 0;
}

// FLOPs per element: of the activation, or of multiplying the gradient by its derivative.
static double act_flops(brim_act act, bool backward) {
  static const double forward_ops[BRIM_ACT_COUNT] = {0, 1, 5, 1};
  static const double backward_ops[BRIM_ACT_COUNT] = {0, 1, 11, 3};
  if ((unsigned)act >= BRIM_ACT_COUNT) return 0;
  return backward ? backward_ops[act] : forward_ops[act];
}

static double flops_linear(const brim_op_call *call) {
  const brim_tensor *in = call->in;
  double inner = (double)in[0].dim[in[0].rank - 1];
  double other = (double)in[1].dim[in[1].rank - 1];
  double n = count_of(&in[0]) / inner;  // rows
  switch (call->op) {
    case BRIM_OP_LINEAR: {
      double y = n * (double)in[1].dim[0];
      bool bias = call->in_count > 2 && in[2].rank > 0;
      return 2 * y * inner + (bias ? y : 0) + y * act_flops(call->attr.act, false);
    }
    case BRIM_OP_LINEAR_BWD_DATA:
      return 2 * n * inner * other + n * other * act_flops(call->attr.act, true);
    default: {
      bool bias = call->out_count > 1 && call->out[1].rank > 0;
      return 2 * n * inner * other + (bias ? n * inner : 0);
    }
  }
}

// A multiply-add for every weight and output pixel. The weights are the first output of CONV_BWD_WEIGHT
// and the second input of the other ops; y or dy has the output pixels.
static double flops_conv(const brim_op_call *call) {
  const brim_tensor *w = call->op == BRIM_OP_CONV_BWD_WEIGHT ? &call->out[0] : &call->in[1];
  const brim_tensor *y = call->op == BRIM_OP_CONV ? &call->out[0] : &call->in[0];
  return 2 * count_of(y) * count_of(w) / (double)w->dim[0];
}

static double flops_batchnorm(const brim_op_call *call) {
  double x = count_of(&call->in[0]), relu = call->attr.act == BRIM_ACT_RELU ? 1 : 0;
  switch (call->op) {
    case BRIM_OP_BATCHNORM:  // sum, squares, apply
      return (1 + 3 + 4 + has_input(call, 4) + relu) * x;
    case BRIM_OP_BATCHNORM_APPLY:
      return (4 + has_input(call, 5) + relu) * x;
    case BRIM_OP_BATCHNORM_PART:
      return (1 + 3) * x;
    case BRIM_OP_BATCHNORM_BWD_SUMS:
      return (5 + has_input(call, 8) + relu) * x;
    case BRIM_OP_BATCHNORM_BWD_JOINED:
      return (7 + has_input(call, 10) + relu) * x;
    default:
      return (5 + 7 + has_input(call, 8) + relu) * x;
  }
}

// Forward has two matrix products, backward five; the softmax takes five operations a score.
static double flops_attention(const brim_op_call *call) {
  bool backward = call->op == BRIM_OP_ATTENTION_BWD;
  const brim_tensor *y = backward ? &call->in[2] : &call->out[0];
  double n = (double)y->dim[0], l = (double)y->dim[1], c = (double)y->dim[2];
  double forward = 4 * n * l * l * c + 5 * n * (double)call->attr.heads * l * l;
  return backward ? 2.5 * forward : forward;
}

static double flops_ntxent(const brim_op_call *call) {
  double n = (double)call->in[0].dim[0], d = (double)call->in[0].dim[1];
  double loss = 3 * n * d + n * n * (2 * d + 4);
  return loss + (has_gradient(call) ? n * n * (4 * d + 4) + 5 * n * d : 0);
}

static double flops_optimizer(const brim_op_call *call) {
  const brim_op_attr *a = &call->attr;
  double per_value = 2;  // unscale and clip
  per_value += a->weight_decay != 0 ? 2 : 0;
  if (a->optimizer == BRIM_OPTIMIZER_SGD) {
    per_value += 2 + (a->momentum != 0 ? 2 : 0) + (a->nesterov ? 2 : 0);
  } else {
    per_value += 3 + 4 + 5;  // m, v, update
  }
  if (call->out_count > 4 && call->out[4].rank > 0) per_value += 3;  // the average
  return per_value * count_of(&call->out[0]);
}

static double flops_maxpool(const brim_op_call *call) {
  return count_of(&call->out[0]) * (double)call->attr.window * (double)call->attr.window;
}

static double flops_act(const brim_op_call *call) {
  return count_of(&call->in[0]) * act_flops(call->attr.act, false);
}

static double flops_act_bwd(const brim_op_call *call) {
  return count_of(&call->in[0]) * act_flops(call->attr.act, true);
}

static double flops_xent(const brim_op_call *call) {
  return (4 + (has_gradient(call) ? 4 : 0)) * count_of(&call->in[0]);
}

static double flops_mse(const brim_op_call *call) {
  return (3 + (has_gradient(call) ? 1 : 0)) * count_of(&call->in[0]);
}

static double flops_bce(const brim_op_call *call) {
  return (6 + (has_gradient(call) ? 4 : 0)) * count_of(&call->in[0]);
}

static double flops_average(const brim_op_call *call) { return 3 * count_of(&call->out[0]); }

static double flops_step_end(const brim_op_call *call) {
  (void)call;
  return 8;
}

// Counts one row of the ring, whatever its length.
static double bytes_step_end(const brim_op_call *call) {
  return (double)brim_tensor_bytes(&call->in[0]) + 2 * (double)BRIM_STATE_COUNT * 8 +
         4 * (double)brim_dtype_size(call->out[1].dtype);
}

static double bytes_none(const brim_op_call *call) {
  (void)call;
  return 0;
}

#define IN(index) (1u << (index))
#define OUT(index) (1u << (index))
#define STATE \
  { "state", SLOT_F64, "=16", false }
#define METRICS \
  { "metrics", SLOT_P, "=8", false }
_Static_assert(BRIM_STATE_COUNT == 16 && BRIM_METRIC_COUNT == 8, "the shapes above");

const brim_op_rule brim_op_rules[BRIM_OP_COUNT] = {
    [BRIM_OP_LINEAR] = {.in = {{"x", SLOT_T, ".K", false},
                               {"w", SLOT_T, "MK", false},
                               {"b", SLOT_T, "M", true}},
                        .out = {{"y", SLOT_T, ".M", false}},
                        .attr = attr_act,
                        .flops = flops_linear},
    [BRIM_OP_LINEAR_BWD_DATA] = {.in = {{"dy", SLOT_T, ".M", false},
                                        {"w", SLOT_T, "MK", false},
                                        {"s", SLOT_T, ".K", true}},
                                 .out = {{"dx", SLOT_T, ".K", false}},
                                 .attr = attr_bwd_data,
                                 .flops = flops_linear},
    [BRIM_OP_LINEAR_BWD_WEIGHT] = {.in = {{"dy", SLOT_T, ".M", false}, {"x", SLOT_T, ".K", false}},
                                   .out = {{"dw", SLOT_P, "MK", false}, {"db", SLOT_P, "M", true}},
                                   .flops = flops_linear,
                                   .adds = OUT(0) | OUT(1)},
    [BRIM_OP_CONV] = {.in = {{"x", SLOT_T, "NHWC", false}, {"w", SLOT_T, "MRSC", false}},
                      .out = {{"y", SLOT_T, "NPQM", false}},
                      .attr = attr_conv,
                      .flops = flops_conv},
    [BRIM_OP_CONV_BWD_DATA] = {.in = {{"dy", SLOT_T, "NPQM", false}, {"w", SLOT_T, "MRSC", false}},
                               .out = {{"dx", SLOT_T, "NHWC", false}},
                               .attr = attr_conv,
                               .flops = flops_conv},
    [BRIM_OP_CONV_BWD_WEIGHT] = {.in = {{"dy", SLOT_T, "NPQM", false},
                                        {"x", SLOT_T, "NHWC", false}},
                                 .out = {{"dw", SLOT_P, "MRSC", false}},
                                 .attr = attr_conv,
                                 .flops = flops_conv,
                                 .adds = OUT(0)},
    [BRIM_OP_BATCHNORM] = {.in = {{"x", SLOT_T, "NHWC", false},
                                  {"g", SLOT_P, "C", false},
                                  {"b", SLOT_P, "C", false},
                                  STATE,
                                  {"z", SLOT_T, "NHWC", true}},
                           .out = {{"y", SLOT_T, "NHWC", false},
                                   {"mean", SLOT_P, "C", false},
                                   {"rstd", SLOT_P, "C", false},
                                   {"rmean", SLOT_P, "C", true},
                                   {"rvar", SLOT_P, "C", true}},
                           .attr = attr_batchnorm,
                           .flops = flops_batchnorm,
                           .updates = OUT(3) | OUT(4)},
    [BRIM_OP_BATCHNORM_APPLY] = {.in = {{"x", SLOT_T, "NHWC", false},
                                        {"g", SLOT_P, "C", false},
                                        {"b", SLOT_P, "C", false},
                                        {"mean", SLOT_P, "C", false},
                                        {"s", SLOT_P, "C", false},
                                        {"z", SLOT_T, "NHWC", true}},
                                 .out = {{"y", SLOT_T, "NHWC", false}},
                                 .attr = attr_batchnorm,
                                 .flops = flops_batchnorm},
    [BRIM_OP_BATCHNORM_BWD] = {.in = {{"dy", SLOT_T, "NHWC", false},
                                      {"x", SLOT_T, "NHWC", false},
                                      {"g", SLOT_P, "C", false},
                                      {"b", SLOT_P, "C", false},
                                      {"mean", SLOT_P, "C", false},
                                      {"rstd", SLOT_P, "C", false},
                                      STATE,
                                      {"y", SLOT_T, "NHWC", true},
                                      {"dy2", SLOT_T, "NHWC", true}},
                               .out = {{"dx", SLOT_T, "NHWC", false},
                                       {"dg", SLOT_P, "C", false},
                                       {"db", SLOT_P, "C", false},
                                       {"dz", SLOT_T, "NHWC", true}},
                               .attr = attr_batchnorm,
                               .flops = flops_batchnorm,
                               .adds = OUT(1) | OUT(2),
                               .over = {[0] = IN(0) | IN(1), [3] = IN(0)}},
    [BRIM_OP_BATCHNORM_PART] = {.in = {{"x", SLOT_T, "NHWC", false}, STATE},
                                .out = {{"part", SLOT_P, "3C", false}},
                                .flops = flops_batchnorm},
    [BRIM_OP_BATCHNORM_JOIN] = {.in = {{"parts", SLOT_P, "K3C", false}},
                                .out = {{"mean", SLOT_P, "C", false},
                                        {"rstd", SLOT_P, "C", false},
                                        {"total", SLOT_P, "=1", false},
                                        {"rmean", SLOT_P, "C", true},
                                        {"rvar", SLOT_P, "C", true}},
                                .attr = attr_batchnorm,
                                .flops_per_value = 4,
                                .updates = OUT(3) | OUT(4)},
    [BRIM_OP_BATCHNORM_BWD_SUMS] = {.in = {{"dy", SLOT_T, "NHWC", false},
                                           {"x", SLOT_T, "NHWC", false},
                                           {"g", SLOT_P, "C", false},
                                           {"b", SLOT_P, "C", false},
                                           {"mean", SLOT_P, "C", false},
                                           {"rstd", SLOT_P, "C", false},
                                           STATE,
                                           {"y", SLOT_T, "NHWC", true},
                                           {"dy2", SLOT_T, "NHWC", true}},
                                    .out = {{"sums", SLOT_P, "2C", false},
                                            {"dg", SLOT_P, "C", false},
                                            {"db", SLOT_P, "C", false}},
                                    .attr = attr_batchnorm,
                                    .flops = flops_batchnorm,
                                    .adds = OUT(1) | OUT(2)},
    [BRIM_OP_BATCHNORM_BWD_JOINED] = {.in = {{"dy", SLOT_T, "NHWC", false},
                                             {"x", SLOT_T, "NHWC", false},
                                             {"g", SLOT_P, "C", false},
                                             {"b", SLOT_P, "C", false},
                                             {"mean", SLOT_P, "C", false},
                                             {"rstd", SLOT_P, "C", false},
                                             {"sums", SLOT_P, "2C", false},
                                             {"total", SLOT_P, "=1", false},
                                             STATE,
                                             {"y", SLOT_T, "NHWC", true},
                                             {"dy2", SLOT_T, "NHWC", true}},
                                      .out = {{"dx", SLOT_T, "NHWC", false},
                                              {"dz", SLOT_T, "NHWC", true}},
                                      .attr = attr_batchnorm,
                                      .flops = flops_batchnorm,
                                      .over = {[0] = IN(0) | IN(1), [1] = IN(0)}},
    [BRIM_OP_MAXPOOL] = {.in = {{"x", SLOT_T, "NHWC", false}},
                         .out = {{"y", SLOT_T, "NPQC", false}, {"place", SLOT_U8, "NPQC", false}},
                         .attr = attr_pool,
                         .flops = flops_maxpool},
    [BRIM_OP_MAXPOOL_BWD] = {.in = {{"dy", SLOT_T, "NPQC", false},
                                    {"place", SLOT_U8, "NPQC", false}},
                             .out = {{"dx", SLOT_T, "NHWC", false}},
                             .attr = attr_pool,
                             .flops_per_value = 1},
    [BRIM_OP_MEAN] = {.in = {{"x", SLOT_T, "N.C", false}},
                      .out = {{"y", SLOT_T, "NC", false}},
                      .flops_per_value = 1},
    [BRIM_OP_MEAN_BWD] = {.in = {{"dy", SLOT_T, "NC", false}},
                          .out = {{"dx", SLOT_T, "N.C", false}},
                          .flops_per_value = 1},
    [BRIM_OP_POS] = {.in = {{"x", SLOT_T, "NLC", false}, {"p", SLOT_T, "LC", false}},
                     .out = {{"y", SLOT_T, "NLC", false}},
                     .flops_per_value = 1,
                     .over = {IN(0)}},
    [BRIM_OP_POS_BWD] = {.in = {{"dy", SLOT_T, "NLC", false}},
                         .out = {{"dp", SLOT_P, "LC", false}},
                         .flops_per_value = 1,
                         .adds = OUT(0)},
    [BRIM_OP_ATTENTION] = {.in = {{"qkv", SLOT_T, "NLE", false}},
                           .out = {{"y", SLOT_T, "NLC", false}, {"lse", SLOT_P, "NAL", false}},
                           .attr = attr_attention,
                           .flops = flops_attention},
    [BRIM_OP_ATTENTION_BWD] = {.in = {{"dy", SLOT_T, "NLC", false},
                                      {"qkv", SLOT_T, "NLE", false},
                                      {"y", SLOT_T, "NLC", false},
                                      {"lse", SLOT_P, "NAL", false}},
                               .out = {{"dqkv", SLOT_T, "NLE", false}},
                               .attr = attr_attention,
                               .flops = flops_attention},
    [BRIM_OP_CONCAT] = {.in = {{"a", SLOT_T, "NA", false}, {"b", SLOT_T, "NB", false}},
                        .out = {{"y", SLOT_T, "NE", false}},
                        .attr = attr_concat},
    [BRIM_OP_CONCAT_BWD] = {.in = {{"dy", SLOT_T, "NE", false}},
                            .out = {{"da", SLOT_T, "NA", false}, {"db", SLOT_T, "NB", false}},
                            .attr = attr_concat},
    [BRIM_OP_ACT] = {.in = {{"x", SLOT_T, "*", false}},
                     .out = {{"y", SLOT_T, "*", false}},
                     .attr = attr_act_needed,
                     .flops = flops_act,
                     .over = {IN(0)}},
    [BRIM_OP_ACT_BWD] = {.in = {{"dy", SLOT_T, "*", false}, {"s", SLOT_T, "*", false}},
                         .out = {{"dx", SLOT_T, "*", false}},
                         .attr = attr_act_needed,
                         .flops = flops_act_bwd,
                         .over = {IN(0)}},
    [BRIM_OP_LAYERNORM] = {.in = {{"x", SLOT_T, ".C", false},
                                  {"g", SLOT_P, "C", false},
                                  {"b", SLOT_P, "C", false}},
                           .out = {{"y", SLOT_T, ".C", false},
                                   {"mean", SLOT_P, "N", false},
                                   {"rstd", SLOT_P, "N", false}},
                           .attr = attr_eps,
                           .flops_per_value = 8},
    [BRIM_OP_LAYERNORM_BWD] = {.in = {{"dy", SLOT_T, ".C", false},
                                      {"x", SLOT_T, ".C", false},
                                      {"g", SLOT_P, "C", false},
                                      {"mean", SLOT_P, "N", false},
                                      {"rstd", SLOT_P, "N", false}},
                               .out = {{"dx", SLOT_T, ".C", false},
                                       {"dg", SLOT_P, "C", false},
                                       {"db", SLOT_P, "C", false}},
                               .flops_per_value = 15,
                               .adds = OUT(1) | OUT(2)},
    [BRIM_OP_DROPOUT] = {.in = {{"x", SLOT_T, "*", false}, STATE},
                         .out = {{"y", SLOT_T, "*", false}},
                         .attr = attr_dropout,
                         .flops_per_value = 1,
                         .over = {IN(0)}},
    [BRIM_OP_ADD] = {.in = {{"a", SLOT_T, "*", false}, {"b", SLOT_T, "*", false}},
                     .out = {{"y", SLOT_T, "*", false}},
                     .flops_per_value = 1,
                     .over = {IN(0) | IN(1)}},
    [BRIM_OP_CAST] = {.in = {{"x", SLOT_FLOAT, "*", false}},
                      .out = {{"y", SLOT_FLOAT, "*", false}}},
    [BRIM_OP_INPUT] = {.in = {{"x", SLOT_RAW, "+", false}},
                       .out = {{"y", SLOT_T, "-", false}},
                       .attr = attr_input,
                       .flops_per_value = 2},
    [BRIM_OP_XENT] = {.in = {{"logits", SLOT_T, "NC", false},
                             {"labels", SLOT_I32, "N", false},
                             STATE},
                      .out = {METRICS, {"dlogits", SLOT_T, "NC", true}},
                      .attr = attr_xent,
                      .flops = flops_xent,
                      .updates = OUT(0)},
    [BRIM_OP_MSE] = {.in = {{"pred", SLOT_T, "NC", false},
                            {"target", SLOT_F32, "NC", false},
                            STATE},
                     .out = {METRICS, {"dpred", SLOT_T, "NC", true}},
                     .flops = flops_mse,
                     .updates = OUT(0)},
    [BRIM_OP_BCE] = {.in = {{"logits", SLOT_T, "NC", false},
                            {"target", SLOT_F32, "NC", false},
                            STATE},
                     .out = {METRICS, {"dlogits", SLOT_T, "NC", true}},
                     .flops = flops_bce,
                     .updates = OUT(0)},
    [BRIM_OP_NTXENT] = {.in = {{"z", SLOT_T, "ND", false}, STATE},
                        .out = {METRICS, {"dz", SLOT_T, "ND", true}},
                        .attr = attr_ntxent,
                        .flops = flops_ntxent,
                        .updates = OUT(0)},
    [BRIM_OP_UNIT] = {.in = {{"x", SLOT_T, "ND", false}},
                      .out = {{"y", SLOT_P, "ND", false}},
                      .flops_per_value = 3},
    [BRIM_OP_KNN] = {.in = {{"s", SLOT_P, "NM", false},
                            {"labels", SLOT_I32, "M", false},
                            {"truth", SLOT_I32, "N", false},
                            STATE},
                     .out = {METRICS, {"guess", SLOT_I32, "N", true}},
                     .attr = attr_knn,
                     .flops_per_value = 1,
                     .updates = OUT(0)},
    [BRIM_OP_GRAD_NORM] = {.in = {{"grads", SLOT_P, "P", false}},
                           .out = {{"norm", SLOT_P, "=2", false}},
                           .flops_per_value = 2},
    [BRIM_OP_OPTIMIZER] = {.in = {STATE,
                                  {"norm", SLOT_P, "=2", false},
                                  {"grads", SLOT_P, "P", false}},
                           .out = {{"params", SLOT_P, "P", false},
                                   {"m", SLOT_P, "0P", false},
                                   {"v", SLOT_P, "0P", false},
                                   {"copy", SLOT_HALF, "P", true},
                                   {"average", SLOT_P, "P", true}},
                           .attr = attr_optimizer,
                           .flops = flops_optimizer,
                           .updates = OUT(0) | OUT(1) | OUT(2) | OUT(4)},
    [BRIM_OP_AVERAGE] = {.in = {STATE,
                                {"norm", SLOT_P, "=2", false},
                                {"values", SLOT_P, "P", false}},
                         .out = {{"average", SLOT_P, "P", false}},
                         .attr = attr_average,
                         .flops = flops_average,
                         .updates = OUT(0)},
    [BRIM_OP_STEP_END] = {.in = {{"norm", SLOT_P, "=2", false}},
                          .out = {STATE, {"ring", SLOT_P, "K4", false}},
                          .attr = attr_step_end,
                          .flops = flops_step_end,
                          .bytes = bytes_step_end},
    [BRIM_OP_ALL_REDUCE] = {.in = {{"x", SLOT_P, "*", false}},
                            .out = {{"y", SLOT_P, "*", false}},
                            .flops_per_value = 1,
                            .over = {IN(0)}},
    [BRIM_OP_EXCHANGE_WAIT] = {.in = {{"x", SLOT_P, "P", false}},
                               .out = {{"y", SLOT_P, "P", false}},
                               .bytes = bytes_none,
                               .over = {IN(0)}},
    [BRIM_OP_ALL_GATHER] = {.in = {{"x", SLOT_P, "*", false}},
                            .out = {{"y", SLOT_P, "-", false}},
                            .attr = attr_gather},
    [BRIM_OP_GATHER_PAIRS] = {.in = {{"z", SLOT_T, "ND", false}},
                              .out = {{"y", SLOT_T, "MD", false}},
                              .attr = attr_gather},
    [BRIM_OP_OWN_PAIRS] = {.in = {{"y", SLOT_T, "MD", false}},
                           .out = {{"z", SLOT_T, "ND", false}},
                           .attr = attr_gather},
};

bool brim_op_in_place(brim_op op, int out_count, int out, int in) {
  if ((unsigned)op >= BRIM_OP_COUNT) return false;
  const uint32_t *over = brim_op_rules[op].over;
  for (int other = out + 1; other < out_count; other++) {
    if (over[other] >> in & 1) return false;
  }
  return (over[out] >> in & 1) != 0;
}

//---------------------------------- checking a call ----------------------------------

typedef struct binding {
  int64_t size;
  const char *bound_by;  // name of the slot that bound it
} binding;

typedef struct check {
  const brim_op_call *call;
  const char *op;
  brim_dtype type;  // T, or BRIM_DTYPE_COUNT while unknown
  const char *type_by;
  const brim_tensor *first;  // the first tensor of shape "*"
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

static brim_status check_type(check *c, const brim_op_slot *s, brim_dtype type) {
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
    case SLOT_U8:
      if (type == BRIM_U8) return BRIM_OK;
      return brim_fail(BRIM_EINVAL, "%s: %s is %s, expected u8", c->op, s->name, name);
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

static brim_status bind_size(check *c, const brim_op_slot *s, char letter, int64_t size) {
  binding *b = &c->letter[letter - 'A'];
  if (!b->bound_by) {
    b->bound_by = s->name;
    b->size = size;
  }
  if (b->size == size) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: %s has %c = %lld, but %s gave %c = %lld", c->op, s->name,
                   letter, (long long)size, b->bound_by, letter, (long long)b->size);
}

static brim_status check_dims(check *c, const brim_op_slot *s, const brim_tensor *t) {
  bool may_be_empty = s->shape[0] == '0';
  int64_t bytes = (int64_t)brim_dtype_size(t->dtype);
  if (t->rank > BRIM_MAX_RANK || t->rank < 0) {
    return brim_fail(BRIM_EINVAL, "%s: %s has rank %d, expected at most %d", c->op, s->name,
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

static brim_status check_same(check *c, const brim_op_slot *s, const brim_tensor *t) {
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

static brim_status wrong_rank(const check *c, const brim_op_slot *s, const brim_tensor *t,
                              const char *expected) {
  char text[160];
  shape_text(t, text);
  return brim_fail(BRIM_EINVAL, "%s: %s is %s, expected rank %s", c->op, s->name, text, expected);
}

// Checks shapes of open rank: ".K", "N.C", "+" and "-".
static brim_status check_open(check *c, const brim_op_slot *s, const brim_tensor *t) {
  const char *shape = s->shape;
  int64_t count = brim_tensor_count(t), last = t->dim[t->rank - 1];
  if (shape[0] == '.') {
    if (t->rank < 2) return wrong_rank(c, s, t, "2 or more");
    BRIM_TRY(bind_size(c, s, 'N', count / last));
    return bind_size(c, s, shape[1], last);
  }
  BRIM_TRY(bind_size(c, s, 'N', t->dim[0]));
  if (shape[0] == '-') return BRIM_OK;
  if (shape[0] == '+') return bind_size(c, s, 'F', count / t->dim[0]);
  if (t->rank < 3) return wrong_rank(c, s, t, "3 or more");
  return bind_size(c, s, shape[2], last);
}

static brim_status check_values(check *c, const brim_op_slot *s, const brim_tensor *t) {
  int64_t want = 0;
  for (const char *p = s->shape + 1; *p; p++) want = want * 10 + (*p - '0');
  if (t->rank == 1 && t->dim[0] == want) return BRIM_OK;
  char text[160];
  shape_text(t, text);
  return brim_fail(BRIM_EINVAL, "%s: %s is %s, expected (%lld)", c->op, s->name, text,
                   (long long)want);
}

static brim_status check_shape(check *c, const brim_op_slot *s, const brim_tensor *t) {
  const char *shape = s->shape;
  BRIM_TRY(check_dims(c, s, t));
  if (shape[0] == '*') return check_same(c, s, t);
  if (shape[0] == '=') return check_values(c, s, t);
  if (shape[0] == '+' || shape[0] == '-' || shape[0] == '.' || shape[1] == '.') {
    return check_open(c, s, t);
  }
  if (shape[0] == '0') {
    if (brim_tensor_count(t) == 0) return BRIM_OK;
    shape++;
  }
  int rank = 0;
  while (shape[rank]) rank++;
  if (t->rank != rank) return wrong_rank(c, s, t, (const char[]){(char)('0' + rank), '\0'});
  for (int i = 0; i < rank; i++) {
    if (shape[i] >= 'A') {
      BRIM_TRY(bind_size(c, s, shape[i], t->dim[i]));
    } else if (t->dim[i] != shape[i] - '0') {
      return i + 1 == rank ? brim_fail(BRIM_EINVAL, "%s: %s has %lld columns, expected %c", c->op,
                                       s->name, (long long)t->dim[i], shape[i])
                           : brim_fail(BRIM_EINVAL, "%s: %s has %lld rows, expected %c", c->op,
                                       s->name, (long long)t->dim[i], shape[i]);
    }
  }
  return BRIM_OK;
}

static brim_status check_side(check *c, const brim_op_slot *slots, int max, const brim_tensor *t,
                              int count) {
  int known = 0;
  while (known < max && slots[known].name) known++;
  if (count < 0 || count > known) {
    return brim_fail(BRIM_EINVAL, "%s: %d %s, expected at most %d", c->op, count,
                     t == c->call->in ? "inputs" : "outputs", known);
  }
  for (int i = 0; i < known; i++) {
    const brim_op_slot *s = &slots[i];
    if (i >= count || t[i].rank == 0) {
      if (s->optional || s->shape[0] == '0') continue;
      return brim_fail(BRIM_EINVAL, "%s: %s is missing", c->op, s->name);
    }
    BRIM_TRY(check_type(c, s, t[i].dtype));
    BRIM_TRY(check_shape(c, s, &t[i]));
  }
  return BRIM_OK;
}

brim_status brim_op_check(const brim_op_call *call) {
  if ((unsigned)call->op >= BRIM_OP_COUNT) {
    return brim_fail(BRIM_EINVAL, "unknown op %d", (int)call->op);
  }
  const brim_op_rule *rule = &brim_op_rules[call->op];
  check c = {.call = call, .op = brim_op_name(call->op), .type = BRIM_DTYPE_COUNT};
  BRIM_TRY(check_side(&c, rule->in, BRIM_OP_MAX_IN, call->in, call->in_count));
  BRIM_TRY(check_side(&c, rule->out, BRIM_OP_MAX_OUT, call->out, call->out_count));
  return rule->attr ? rule->attr(call) : BRIM_OK;
}

//---------------------------------- the cost of a call ----------------------------------

static double flops_of(const brim_op_rule *rule, const brim_op_call *call) {
  if (rule->flops) return rule->flops(call);
  return rule->flops_per_value * (double)brim_tensor_count(&call->in[0]);
}

// True if the output is read before it is written.
static bool reads_output(const brim_op_rule *rule, const brim_op_call *call, int index) {
  uint32_t read = rule->updates | (call->attr.accumulate ? rule->adds : 0);
  return (read >> index & 1) != 0;
}

void brim_op_cost(const brim_op_call *call, double *flops, double *bytes) {
  *flops = *bytes = 0;
  if ((unsigned)call->op >= BRIM_OP_COUNT) return;
  const brim_op_rule *rule = &brim_op_rules[call->op];
  *flops = flops_of(rule, call);
  *bytes = rule->bytes ? rule->bytes(call) : 0;
  if (rule->bytes) return;
  for (int i = 0; i < call->in_count; i++) *bytes += (double)brim_tensor_bytes(&call->in[i]);
  for (int i = 0; i < call->out_count; i++) {
    double size = (double)brim_tensor_bytes(&call->out[i]);
    *bytes += reads_output(rule, call, i) ? 2 * size : size;
  }
}
