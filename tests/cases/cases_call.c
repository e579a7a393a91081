// The call of a case: its tensors in the order of the op, without data.
#include "cases/cases_int.h"

static brim_tensor tensor1(brim_dtype type, int64_t n) {
  return brim_tensor_make(NULL, type, 1, (const int64_t[]){n});
}

static brim_tensor tensor2(brim_dtype type, int64_t n, int64_t m) {
  return brim_tensor_make(NULL, type, 2, (const int64_t[]){n, m});
}

static brim_tensor tensor3(brim_dtype type, int64_t n, int64_t l, int64_t m) {
  return brim_tensor_make(NULL, type, 3, (const int64_t[]){n, l, m});
}

static brim_tensor tensor4(brim_dtype type, int64_t n, int64_t h, int64_t w, int64_t c) {
  return brim_tensor_make(NULL, type, 4, (const int64_t[]){n, h, w, c});
}

// (n, columns), (n, l, columns) or (n, h, w, columns), depending on the case.
static brim_tensor rows(const brim_case *c, brim_dtype type, int64_t columns) {
  if (c->h) return tensor4(type, c->n, c->h, c->w, columns);
  return c->l ? tensor3(type, c->n, c->l, columns) : tensor2(type, c->n, columns);
}

static void put_in(brim_op_call *call, brim_tensor t) { call->in[call->in_count++] = t; }
static void put_out(brim_op_call *call, brim_tensor t) { call->out[call->out_count++] = t; }

static void linear_call(const brim_case *c, brim_op_call *call, brim_dtype t, brim_dtype p) {
  switch (c->op) {
    case BRIM_OP_LINEAR:
      put_in(call, rows(c, t, c->k));
      put_in(call, tensor2(t, c->m, c->k));
      if (c->optional) put_in(call, tensor1(t, c->m));
      put_out(call, rows(c, t, c->m));
      break;
    case BRIM_OP_LINEAR_BWD_DATA:
      put_in(call, rows(c, t, c->m));
      put_in(call, tensor2(t, c->m, c->k));
      if (c->optional) put_in(call, rows(c, t, c->k));
      put_out(call, rows(c, t, c->k));
      break;
    default:
      put_in(call, rows(c, t, c->m));
      put_in(call, rows(c, t, c->k));
      put_out(call, tensor2(p, c->m, c->k));
      if (c->optional) put_out(call, tensor1(p, c->m));
      break;
  }
}

static void norm_call(const brim_case *c, brim_op_call *call, brim_dtype t, brim_dtype p) {
  bool backward = c->op == BRIM_OP_LAYERNORM_BWD;
  if (backward) put_in(call, rows(c, t, c->k));
  put_in(call, rows(c, t, c->k));
  put_in(call, tensor1(p, c->k));
  put_out(call, rows(c, t, c->k));
  if (backward) {
    put_in(call, tensor1(p, brim_case_rows(c)));
    put_in(call, tensor1(p, brim_case_rows(c)));
    put_out(call, tensor1(p, c->k));
    put_out(call, tensor1(p, c->k));
  } else {
    put_in(call, tensor1(p, c->k));
    put_out(call, tensor1(p, brim_case_rows(c)));
    put_out(call, tensor1(p, brim_case_rows(c)));
  }
}

static brim_tensor state_tensor(void) { return tensor1(BRIM_F64, BRIM_STATE_COUNT); }

static void loss_call(const brim_case *c, brim_op_call *call, brim_dtype t, brim_dtype p) {
  put_in(call, tensor2(t, c->n, c->k));
  if (c->op == BRIM_OP_XENT) put_in(call, tensor1(BRIM_I32, c->n));
  if (c->op == BRIM_OP_MSE || c->op == BRIM_OP_BCE) put_in(call, tensor2(BRIM_F32, c->n, c->k));
  put_in(call, state_tensor());
  put_out(call, tensor1(p, BRIM_METRIC_COUNT));
  if (c->optional) put_out(call, tensor2(t, c->n, c->k));
}

// The image, the output's side and the weights, in the order of the op.
static void conv_call(const brim_case *c, brim_op_call *call, brim_dtype t, brim_dtype p) {
  int64_t high = (c->h + 2 * c->attr.pad - c->r) / c->attr.stride + 1;
  int64_t wide = (c->w + 2 * c->attr.pad - c->s) / c->attr.stride + 1;
  brim_tensor x = rows(c, t, c->k), y = tensor4(t, c->n, high, wide, c->m);
  bool gradient = c->op == BRIM_OP_CONV_BWD_WEIGHT;
  brim_tensor w = tensor4(gradient ? p : t, c->m, c->r, c->s, c->k);
  put_in(call, c->op == BRIM_OP_CONV ? x : y);
  put_in(call, gradient ? x : w);
  put_out(call, gradient ? w : c->op == BRIM_OP_CONV ? y : x);
}

static void pool_call(const brim_case *c, brim_op_call *call, brim_dtype t) {
  int64_t high = (c->h + 2 * c->attr.pad - c->r) / c->attr.stride + 1;
  int64_t wide = (c->w + 2 * c->attr.pad - c->r) / c->attr.stride + 1;
  brim_tensor x = rows(c, t, c->k), y = tensor4(t, c->n, high, wide, c->k);
  bool backward = c->op == BRIM_OP_MAXPOOL_BWD;
  brim_tensor place = y;
  place.dtype = BRIM_U8;
  put_in(call, backward ? y : x);
  if (backward) put_in(call, place);
  put_out(call, backward ? x : y);
  if (!backward) put_out(call, place);
}

static void put_in_if(brim_op_call *call, bool there, brim_tensor t) {
  put_in(call, there ? t : (brim_tensor){.rank = 0});
}

static void batchnorm_call(const brim_case *c, brim_op_call *call, brim_dtype t, brim_dtype p) {
  brim_tensor x = rows(c, t, c->k), channel = tensor1(p, c->k);
  bool backward = c->op == BRIM_OP_BATCHNORM_BWD, apply = c->op == BRIM_OP_BATCHNORM_APPLY;
  if (backward) put_in(call, x);
  put_in(call, x);
  put_in(call, channel);
  put_in(call, channel);
  if (backward || apply) {
    put_in(call, channel);
    put_in(call, channel);
  }
  if (!apply) put_in(call, state_tensor());
  put_out(call, x);
  if (backward) {
    if (c->with & (BRIM_WITH_Y | BRIM_WITH_DY2)) put_in_if(call, c->with & BRIM_WITH_Y, x);
    if (c->with & BRIM_WITH_DY2) put_in(call, x);
    put_out(call, channel);
    put_out(call, channel);
    if (c->with & BRIM_WITH_DZ) put_out(call, x);
    return;
  }
  if (c->with & BRIM_WITH_Z) put_in(call, x);
  if (apply) return;
  put_out(call, channel);
  put_out(call, channel);
  for (int i = 0; i < 2 && (c->with & BRIM_WITH_RUNNING); i++) put_out(call, channel);
}

static void batchnorm_parts_call(const brim_case *c, brim_op_call *call, brim_dtype t,
                                 brim_dtype p) {
  brim_tensor x = rows(c, t, c->k), channel = tensor1(p, c->k);
  if (c->op == BRIM_OP_BATCHNORM_PART) {
    put_in(call, x);
    put_in(call, state_tensor());
    put_out(call, tensor2(p, 3, c->k));
    return;
  }
  if (c->op == BRIM_OP_BATCHNORM_JOIN) {
    put_in(call, tensor3(p, c->n, 3, c->k));
    for (int i = 0; i < 2; i++) put_out(call, channel);
    put_out(call, tensor1(p, 1));
    for (int i = 0; i < 2 && (c->with & BRIM_WITH_RUNNING); i++) put_out(call, channel);
    return;
  }
  bool joined = c->op == BRIM_OP_BATCHNORM_BWD_JOINED;
  for (int i = 0; i < 2; i++) put_in(call, x);
  for (int i = 0; i < 4; i++) put_in(call, channel);
  if (joined) put_in(call, tensor2(p, 2, c->k));
  if (joined) put_in(call, tensor1(p, 1));
  put_in(call, state_tensor());
  if (c->with & (BRIM_WITH_Y | BRIM_WITH_DY2)) put_in_if(call, c->with & BRIM_WITH_Y, x);
  if (c->with & BRIM_WITH_DY2) put_in(call, x);
  put_out(call, joined ? x : tensor2(p, 2, c->k));
  if (joined && c->with & BRIM_WITH_DZ) put_out(call, x);
  for (int i = 0; i < 2 && !joined; i++) put_out(call, channel);
}

static void attention_call(const brim_case *c, brim_op_call *call, brim_dtype t, brim_dtype p) {
  brim_tensor y = rows(c, t, c->k), qkv = rows(c, t, 3 * c->k);
  brim_tensor lse = tensor3(p, c->n, c->attr.heads, c->l);
  bool backward = c->op == BRIM_OP_ATTENTION_BWD;
  if (backward) put_in(call, y);
  put_in(call, qkv);
  if (backward) {
    put_in(call, y);
    put_in(call, lse);
    put_out(call, qkv);
  } else {
    put_out(call, y);
    put_out(call, lse);
  }
}

// Ops over tokens, means, and rows that are concatenated.
static void token_call(const brim_case *c, brim_op_call *call, brim_dtype t, brim_dtype p) {
  brim_tensor x = rows(c, t, c->k);
  switch (c->op) {
    case BRIM_OP_MEAN:
      put_in(call, x);
      put_out(call, tensor2(t, c->n, c->k));
      break;
    case BRIM_OP_MEAN_BWD:
      put_in(call, tensor2(t, c->n, c->k));
      put_out(call, x);
      break;
    case BRIM_OP_POS:
      put_in(call, x);
      put_in(call, tensor2(t, c->l, c->k));
      put_out(call, x);
      break;
    case BRIM_OP_POS_BWD:
      put_in(call, x);
      put_out(call, tensor2(p, c->l, c->k));
      break;
    case BRIM_OP_CONCAT:
      put_in(call, x);
      put_in(call, tensor2(t, c->n, c->m));
      put_out(call, tensor2(t, c->n, c->k + c->m));
      break;
    default:  // CONCAT_BWD
      put_in(call, tensor2(t, c->n, c->k + c->m));
      put_out(call, x);
      put_out(call, tensor2(t, c->n, c->m));
      break;
  }
}

static void optimizer_call(const brim_case *c, brim_op_call *call, brim_dtype p) {
  bool sgd = c->attr.optimizer == BRIM_OPTIMIZER_SGD;
  put_in(call, state_tensor());
  put_in(call, tensor1(p, 2));
  put_in(call, tensor1(p, c->n));
  put_out(call, tensor1(p, c->n));
  put_out(call, tensor1(p, sgd && c->attr.momentum == 0 ? 0 : c->n));
  put_out(call, tensor1(p, sgd ? 0 : c->n));
  bool copy = c->type2 != BRIM_DTYPE_COUNT;
  if (copy) put_out(call, tensor1(c->type2, c->n));
  if (!c->optional) return;
  if (!copy) put_out(call, (brim_tensor){0});
  put_out(call, tensor1(p, c->n));  // the average
}

static void flat_call(const brim_case *c, brim_op_call *call, brim_dtype t, brim_dtype t2) {
  brim_tensor x = rows(c, t, c->k);
  bool two = c->op == BRIM_OP_ACT_BWD || c->op == BRIM_OP_ADD;
  put_in(call, x);
  if (two) put_in(call, x);
  if (c->op == BRIM_OP_DROPOUT) put_in(call, state_tensor());
  put_out(call, c->op == BRIM_OP_CAST ? rows(c, t2, c->k) : x);
}

static void input_call(const brim_case *c, brim_op_call *call, brim_dtype t, brim_dtype t2) {
  put_in(call, tensor2(t2, c->n, c->k));
  put_out(call, c->m ? tensor3(t, c->n, c->k / c->attr.channels, c->m) : tensor2(t, c->n, c->k));
}

static void knn_call(const brim_case *c, brim_op_call *call, brim_dtype p) {
  put_in(call, tensor2(p, c->n, c->k));
  put_in(call, tensor1(BRIM_I32, c->k));
  put_in(call, tensor1(BRIM_I32, c->n));
  put_in(call, state_tensor());
  put_out(call, tensor1(p, BRIM_METRIC_COUNT));
  if (c->optional) put_out(call, tensor1(BRIM_I32, c->n));
}

// Ops at the end of a step, and ops over flat lists of numbers. False if it is none of these.
static bool list_call(const brim_case *c, brim_op_call *call, brim_dtype t, brim_dtype p) {
  switch (c->op) {
    case BRIM_OP_UNIT:
      put_in(call, tensor2(t, c->n, c->k));
      put_out(call, tensor2(p, c->n, c->k));
      return true;
    case BRIM_OP_KNN:
      knn_call(c, call, p);
      return true;
    case BRIM_OP_OPTIMIZER:
      optimizer_call(c, call, p);
      return true;
    case BRIM_OP_GRAD_NORM:
      put_in(call, tensor1(p, c->n));
      put_out(call, tensor1(p, 2));
      return true;
    case BRIM_OP_AVERAGE:
      put_in(call, state_tensor());
      put_in(call, tensor1(p, 2));
      put_in(call, tensor1(p, c->n));
      put_out(call, tensor1(p, c->n));
      return true;
    case BRIM_OP_STEP_END:
      put_in(call, tensor1(p, 2));
      put_out(call, state_tensor());
      put_out(call, tensor2(p, c->n, 4));
      return true;
    default:
      return false;
  }
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
    case BRIM_OP_CONV:
    case BRIM_OP_CONV_BWD_DATA:
    case BRIM_OP_CONV_BWD_WEIGHT:
      conv_call(c, call, t, p);
      break;
    case BRIM_OP_BATCHNORM:
    case BRIM_OP_BATCHNORM_APPLY:
    case BRIM_OP_BATCHNORM_BWD:
      batchnorm_call(c, call, t, p);
      break;
    case BRIM_OP_BATCHNORM_PART:
    case BRIM_OP_BATCHNORM_JOIN:
    case BRIM_OP_BATCHNORM_BWD_SUMS:
    case BRIM_OP_BATCHNORM_BWD_JOINED:
      batchnorm_parts_call(c, call, t, p);
      break;
    case BRIM_OP_MAXPOOL:
    case BRIM_OP_MAXPOOL_BWD:
      pool_call(c, call, t);
      break;
    case BRIM_OP_MEAN:
    case BRIM_OP_MEAN_BWD:
    case BRIM_OP_POS:
    case BRIM_OP_POS_BWD:
    case BRIM_OP_CONCAT:
    case BRIM_OP_CONCAT_BWD:
      token_call(c, call, t, p);
      break;
    case BRIM_OP_ATTENTION:
    case BRIM_OP_ATTENTION_BWD:
      attention_call(c, call, t, p);
      break;
    case BRIM_OP_LAYERNORM:
    case BRIM_OP_LAYERNORM_BWD:
      norm_call(c, call, t, p);
      break;
    case BRIM_OP_XENT:
    case BRIM_OP_MSE:
    case BRIM_OP_BCE:
    case BRIM_OP_NTXENT:
      loss_call(c, call, t, p);
      break;
    case BRIM_OP_INPUT:
      input_call(c, call, t, t2);
      break;
    default:  // ACT, ACT_BWD, DROPOUT, ADD, CAST: all tensors of one shape
      if (!list_call(c, call, t, p)) flat_call(c, call, t, t2);
      break;
  }
}
