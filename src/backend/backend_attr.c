// The rules of attributes, a function per kind of op, and the sizes that follow from attributes:
// output sizes of windows, heads, padded channels. Rows of backend_ops.c name them.
#include <math.h>

#include "backend/backend_ops.h"

static bool has_output(const brim_op_call *call, int index) {
  return call->out_count > index && brim_tensor_count(&call->out[index]) > 0;
}

brim_status brim_attr_act(const brim_op_call *call) {
  if ((unsigned)call->attr.act < BRIM_ACT_COUNT) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: unknown activation %d", brim_op_name(call->op),
                   (int)call->attr.act);
}

brim_status brim_attr_act_needed(const brim_op_call *call) {
  if (call->attr.act == BRIM_ACT_NONE) {
    return brim_fail(BRIM_EINVAL, "%s: no activation is given", brim_op_name(call->op));
  }
  return brim_attr_act(call);
}

brim_status brim_attr_bwd_data(const brim_op_call *call) {
  bool saved = call->in_count > 2 && call->in[2].rank > 0;
  if (call->attr.act != BRIM_ACT_NONE && !saved) {
    return brim_fail(BRIM_EINVAL, "%s: an activation is given, but s is missing",
                     brim_op_name(call->op));
  }
  return brim_attr_act(call);
}

brim_status brim_attr_eps(const brim_op_call *call) {
  if (isfinite(call->attr.eps) && call->attr.eps > 0) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: eps is %g, expected a number above 0", brim_op_name(call->op),
                   (double)call->attr.eps);
}

brim_status brim_attr_dropout(const brim_op_call *call) {
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

brim_status brim_attr_input(const brim_op_call *call) {
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

brim_status brim_attr_xent(const brim_op_call *call) {
  if (call->attr.label_smoothing >= 0 && call->attr.label_smoothing <= 1) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: label smoothing is %g, expected 0 to 1",
                   brim_op_name(call->op), (double)call->attr.label_smoothing);
}

//---------------------------------- images ----------------------------------

// One axis of a sliding window: `out` places of a window of `window` over `in` values.
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

brim_status brim_attr_conv(const brim_op_call *call) {
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

brim_status brim_attr_pool(const brim_op_call *call) {
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

brim_status brim_attr_batchnorm(const brim_op_call *call) {
  const brim_op_attr *a = &call->attr;
  const char *op = brim_op_name(call->op);
  if (a->act != BRIM_ACT_NONE && a->act != BRIM_ACT_RELU) {
    return brim_fail(BRIM_EINVAL, "%s: activation %d, expected none or relu", op, (int)a->act);
  }
  bool statistics = call->op == BRIM_OP_BATCHNORM || call->op == BRIM_OP_BATCHNORM_JOIN;
  if (!statistics && call->op != BRIM_OP_BATCHNORM_APPLY) return BRIM_OK;  // backward
  if (statistics || a->variance) BRIM_TRY(brim_attr_eps(call));
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

brim_status brim_attr_attention(const brim_op_call *call) {
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

brim_status brim_attr_concat(const brim_op_call *call) {
  bool backward = call->op == BRIM_OP_CONCAT_BWD;
  const brim_tensor *a = backward ? call->out : call->in, *b = a + 1;
  const brim_tensor *y = backward ? call->in : call->out;
  if (y->dim[1] - a->dim[1] == b->dim[1]) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: %lld and %lld columns do not make %lld",
                   brim_op_name(call->op), (long long)a->dim[1], (long long)b->dim[1],
                   (long long)y->dim[1]);
}

brim_status brim_attr_ntxent(const brim_op_call *call) {
  float temperature = call->attr.temperature;
  if (!(temperature > 0) || !isfinite(temperature)) {
    return brim_fail(BRIM_EINVAL, "%s: temperature is %g, expected a number above 0",
                     brim_op_name(call->op), (double)temperature);
  }
  if (call->in[0].dim[0] % 2 == 0) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: z has %lld rows, expected two per sample",
                   brim_op_name(call->op), (long long)call->in[0].dim[0]);
}

brim_status brim_attr_knn(const brim_op_call *call) {
  const brim_op_attr *a = &call->attr;
  if (!(a->temperature > 0) || !isfinite(a->temperature)) {
    return brim_fail(BRIM_EINVAL, "%s: temperature is %g, expected a number above 0",
                     brim_op_name(call->op), (double)a->temperature);
  }
  // the sum of so many weights is below 2^63
  if (a->neighbours < 1 || a->neighbours > 1 << 22) {
    return brim_fail(BRIM_EINVAL, "%s: %d neighbours, expected 1 to 4194304",
                     brim_op_name(call->op), (int)a->neighbours);
  }
  if (a->classes >= 1) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: %d classes, expected 1 or more", brim_op_name(call->op),
                   (int)a->classes);
}

//---------------------------------- optimisers ----------------------------------

brim_status brim_attr_step_end(const brim_op_call *call) {
  if (!call->attr.dynamic_scale || call->attr.growth_interval >= 1) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: growth interval is %d, expected 1 or more",
                   brim_op_name(call->op), (int)call->attr.growth_interval);
}

brim_status brim_attr_average(const brim_op_call *call) {
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

brim_status brim_attr_optimizer(const brim_op_call *call) {
  const brim_op_attr *a = &call->attr;
  if (!(a->weight_decay >= 0) || !isfinite(a->weight_decay)) {
    return brim_fail(BRIM_EINVAL, "%s: weight decay is %g, expected 0 or more",
                     brim_op_name(call->op), (double)a->weight_decay);
  }
  if (has_output(call, 4)) BRIM_TRY(brim_attr_average(call));
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

// The larger side is of all ranks; pairs are halves.
brim_status brim_attr_gather(const brim_op_call *call) {
  int64_t in = brim_tensor_count(&call->in[0]), out = brim_tensor_count(&call->out[0]);
  bool pairs = call->op != BRIM_OP_ALL_GATHER;
  int64_t one = call->op == BRIM_OP_OWN_PAIRS ? out : in, all = in + out - one;
  if (all % one == 0 && (!pairs || one / call->in[0].dim[1] % 2 == 0)) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: %lld values of all ranks, %lld of one", brim_op_name(call->op),
                   (long long)all, (long long)one);
}
