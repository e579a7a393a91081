// Floating-point operations of a call, a function per kind of op. Every elementary function (exp,
// erf, tanh, sqrt, division) counts as one operation. Rows of backend_ops.c name them.
#include "backend/backend_ops.h"

static double count_of(const brim_tensor *t) { return (double)brim_tensor_count(t); }

// 1 when the optional tensor is there.
static double has_input(const brim_op_call *call, int index) {
  return call->in_count > index && call->in[index].rank > 0 ? 1 : 0;
}

// Of a loss.
static bool has_gradient(const brim_op_call *call) {
  return call->out_count > 1 && call->out[1].rank > 0;
}

// Operations per element of the activation itself and of its derivative times the gradient.
static double act_flops(brim_act act, bool backward) {
  static const double forward_ops[BRIM_ACT_COUNT] = {0, 1, 5, 1};
  static const double backward_ops[BRIM_ACT_COUNT] = {0, 1, 11, 3};
  if ((unsigned)act >= BRIM_ACT_COUNT) return 0;
  return backward ? backward_ops[act] : forward_ops[act];
}

double brim_flops_linear(const brim_op_call *call) {
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
double brim_flops_conv(const brim_op_call *call) {
  const brim_tensor *w = call->op == BRIM_OP_CONV_BWD_WEIGHT ? &call->out[0] : &call->in[1];
  const brim_tensor *y = call->op == BRIM_OP_CONV ? &call->out[0] : &call->in[0];
  return 2 * count_of(y) * count_of(w) / (double)w->dim[0];
}

double brim_flops_batchnorm(const brim_op_call *call) {
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

// Two products forward, five backward; five operations a score for the softmax.
double brim_flops_attention(const brim_op_call *call) {
  bool backward = call->op == BRIM_OP_ATTENTION_BWD;
  const brim_tensor *y = backward ? &call->in[2] : &call->out[0];
  double n = (double)y->dim[0], l = (double)y->dim[1], c = (double)y->dim[2];
  double forward = 4 * n * l * l * c + 5 * n * (double)call->attr.heads * l * l;
  return backward ? 2.5 * forward : forward;
}

double brim_flops_ntxent(const brim_op_call *call) {
  double n = (double)call->in[0].dim[0], d = (double)call->in[0].dim[1];
  double loss = 3 * n * d + n * n * (2 * d + 4);
  return loss + (has_gradient(call) ? n * n * (4 * d + 4) + 5 * n * d : 0);
}

double brim_flops_optimizer(const brim_op_call *call) {
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

double brim_flops_maxpool(const brim_op_call *call) {
  return count_of(&call->out[0]) * (double)call->attr.window * (double)call->attr.window;
}

double brim_flops_act(const brim_op_call *call) {
  return count_of(&call->in[0]) * act_flops(call->attr.act, false);
}

double brim_flops_act_bwd(const brim_op_call *call) {
  return count_of(&call->in[0]) * act_flops(call->attr.act, true);
}

double brim_flops_xent(const brim_op_call *call) {
  return (4 + (has_gradient(call) ? 4 : 0)) * count_of(&call->in[0]);
}

double brim_flops_mse(const brim_op_call *call) {
  return (3 + (has_gradient(call) ? 1 : 0)) * count_of(&call->in[0]);
}

double brim_flops_bce(const brim_op_call *call) {
  return (6 + (has_gradient(call) ? 4 : 0)) * count_of(&call->in[0]);
}

double brim_flops_average(const brim_op_call *call) { return 3 * count_of(&call->out[0]); }

double brim_flops_step_end(const brim_op_call *call) {
  (void)call;
  return 8;
}

// One row of the ring, however long it is.
double brim_bytes_step_end(const brim_op_call *call) {
  return (double)brim_tensor_bytes(&call->in[0]) + 2 * (double)BRIM_STATE_COUNT * 8 +
         4 * (double)brim_dtype_size(call->out[1].dtype);
}

double brim_bytes_none(const brim_op_call *call) {
  (void)call;
  return 0;
}
