// What a call must do at least: floating-point operations and bytes moved once between memory and
// the processor. Every elementary function (exp, erf, tanh, sqrt, division) counts as one
// operation. Used for rates and ceilings; never for a decision about correctness. Calls nothing of
// base.
#include "backend/backend.h"

static double count_of(const brim_tensor *t) { return (double)brim_tensor_count(t); }

// 1 when the optional tensor is there.
static double has_input(const brim_op_call *call, int index) {
  return call->in_count > index && call->in[index].rank > 0 ? 1 : 0;
}

// Operations per element of the activation itself and of its derivative times the gradient.
static double act_flops(brim_act act, bool backward) {
  static const double forward_ops[BRIM_ACT_COUNT] = {0, 1, 5, 1};
  static const double backward_ops[BRIM_ACT_COUNT] = {0, 1, 11, 3};
  if ((unsigned)act >= BRIM_ACT_COUNT) return 0;
  return backward ? backward_ops[act] : forward_ops[act];
}

static double linear_flops(const brim_op_call *call) {
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

// A multiply-add for every value of every window; the window and C lie in the weights, which are
// the first output of the gradient of the weights and the second input elsewhere.
static double conv_flops(const brim_op_call *call) {
  const brim_tensor *w = call->op == BRIM_OP_CONV_BWD_WEIGHT ? &call->out[0] : &call->in[1];
  const brim_tensor *y = call->op == BRIM_OP_CONV ? &call->out[0] : &call->in[0];
  return 2 * count_of(y) * count_of(w) / (double)w->dim[0];
}

static double batchnorm_flops(const brim_op_call *call) {
  double x = count_of(&call->in[0]), relu = call->attr.act == BRIM_ACT_RELU ? 1 : 0;
  switch (call->op) {
    case BRIM_OP_BATCHNORM:  // sum, squares, apply
      return (1 + 3 + 4 + has_input(call, 4) + relu) * x;
    case BRIM_OP_BATCHNORM_APPLY:
      return (4 + has_input(call, 5) + relu) * x;
    default:
      return (5 + 7 + has_input(call, 8) + relu) * x;
  }
}

// Two products forward, five backward; five operations a score for the softmax.
static double attention_flops(const brim_op_call *call) {
  bool backward = call->op == BRIM_OP_ATTENTION_BWD;
  const brim_tensor *y = backward ? &call->in[2] : &call->out[0];
  double n = (double)y->dim[0], l = (double)y->dim[1], c = (double)y->dim[2];
  double forward = 4 * n * l * l * c + 5 * n * (double)call->attr.heads * l * l;
  return backward ? 2.5 * forward : forward;
}

static double ntxent_flops(const brim_op_call *call, bool gradient) {
  double n = (double)call->in[0].dim[0], d = (double)call->in[0].dim[1];
  double loss = 3 * n * d + n * n * (2 * d + 4);
  return loss + (gradient ? n * n * (4 * d + 4) + 5 * n * d : 0);
}

static double optimizer_flops(const brim_op_call *call) {
  const brim_op_attr *a = &call->attr;
  double per = 2;  // unscale and clip
  per += a->weight_decay != 0 ? 2 : 0;
  if (a->optimizer == BRIM_OPTIMIZER_SGD) {
    per += 2 + (a->momentum != 0 ? 2 : 0) + (a->nesterov ? 2 : 0);
  } else {
    per += 3 + 4 + 5;  // m, v, update
  }
  if (call->out_count > 4 && call->out[4].rank > 0) per += 3;  // the average
  return per * count_of(&call->out[0]);
}

static double flops_of(const brim_op_call *call) {
  double first = count_of(&call->in[0]);
  bool gradient = call->out_count > 1 && call->out[1].rank > 0;
  switch (call->op) {
    case BRIM_OP_LINEAR:
    case BRIM_OP_LINEAR_BWD_DATA:
    case BRIM_OP_LINEAR_BWD_WEIGHT:
      return linear_flops(call);
    case BRIM_OP_CONV:
    case BRIM_OP_CONV_BWD_DATA:
    case BRIM_OP_CONV_BWD_WEIGHT:
      return conv_flops(call);
    case BRIM_OP_BATCHNORM:
    case BRIM_OP_BATCHNORM_APPLY:
    case BRIM_OP_BATCHNORM_BWD:
      return batchnorm_flops(call);
    case BRIM_OP_MAXPOOL:
      return count_of(&call->out[0]) * (double)call->attr.window * (double)call->attr.window;
    case BRIM_OP_MAXPOOL_BWD:
    case BRIM_OP_MEAN:
    case BRIM_OP_MEAN_BWD:
    case BRIM_OP_POS:
    case BRIM_OP_POS_BWD:
      return first;
    case BRIM_OP_ATTENTION:
    case BRIM_OP_ATTENTION_BWD:
      return attention_flops(call);
    case BRIM_OP_NTXENT:
      return ntxent_flops(call, gradient);
    case BRIM_OP_UNIT:
      return 3 * first;
    case BRIM_OP_KNN:
      return first;
    case BRIM_OP_STEP_END:
      return 8;
    case BRIM_OP_ACT:
      return first * act_flops(call->attr.act, false);
    case BRIM_OP_ACT_BWD:
      return first * act_flops(call->attr.act, true);
    case BRIM_OP_LAYERNORM:
      return 8 * first;
    case BRIM_OP_LAYERNORM_BWD:
      return 15 * first;
    case BRIM_OP_DROPOUT:
    case BRIM_OP_ADD:
      return first;
    case BRIM_OP_INPUT:
      return 2 * first;
    case BRIM_OP_XENT:
      return (4 + (gradient ? 4 : 0)) * first;
    case BRIM_OP_MSE:
      return (3 + (gradient ? 1 : 0)) * first;
    case BRIM_OP_GRAD_NORM:
      return 2 * first;
    case BRIM_OP_OPTIMIZER:
      return optimizer_flops(call);
    case BRIM_OP_AVERAGE:
      return 3 * count_of(&call->out[0]);
    case BRIM_OP_CONCAT:
    case BRIM_OP_CONCAT_BWD:
    case BRIM_OP_CAST:
    case BRIM_OP_COUNT:
      break;
  }
  return 0;
}

// Outputs that are read before they are written.
static bool reads_output(const brim_op_call *call, int index) {
  switch (call->op) {
    case BRIM_OP_LINEAR_BWD_WEIGHT:
    case BRIM_OP_CONV_BWD_WEIGHT:
    case BRIM_OP_POS_BWD:
      return call->attr.accumulate;
    case BRIM_OP_LAYERNORM_BWD:
    case BRIM_OP_BATCHNORM_BWD:
      return call->attr.accumulate && (index == 1 || index == 2);
    case BRIM_OP_BATCHNORM:
      return index > 2;
    case BRIM_OP_OPTIMIZER:
      return index != 3;  // the copy is only written
    case BRIM_OP_AVERAGE:
    case BRIM_OP_XENT:
    case BRIM_OP_MSE:
    case BRIM_OP_NTXENT:
    case BRIM_OP_KNN:
      return index == 0;
    default:
      return false;
  }
}

void brim_op_cost(const brim_op_call *call, double *flops, double *bytes) {
  *flops = flops_of(call);
  *bytes = 0;
  if (call->op == BRIM_OP_STEP_END) {  // one row of the ring, however long it is
    *bytes = (double)brim_tensor_bytes(&call->in[0]) + 2 * (double)BRIM_STATE_COUNT * 8 +
             4 * (double)brim_dtype_size(call->out[1].dtype);
    return;
  }
  for (int i = 0; i < call->in_count; i++) *bytes += (double)brim_tensor_bytes(&call->in[i]);
  for (int i = 0; i < call->out_count; i++) {
    double size = (double)brim_tensor_bytes(&call->out[i]);
    *bytes += reads_output(call, i) ? 2 * size : size;
  }
}
