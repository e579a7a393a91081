// Inside the ref room. Every kernel is written once for all types: it loads a chunk into doubles,
// computes in double, and stores the chunk rounded to its type. So sums are exact to double, an f64
// call is the oracle of the gradients, and no type has code of its own but load and store.
#ifndef BRIM_REF_INT_H_
#define BRIM_REF_INT_H_

#include <string.h>

#include "backend/backend.h"

#define REF_CHUNK 256  // values per chunk: 2 KiB of stack

typedef struct ref_type {
  // count values from index `at` of a tensor of this type
  void (*load)(const void *data, int64_t at, int64_t count, double *out);
  void (*store)(void *data, int64_t at, int64_t count, const double *in);
} ref_type;

// Float types and u8; NULL members for the rest.
const ref_type *brim_ref_type(brim_dtype dtype);

static inline void ref_load(const brim_tensor *t, int64_t at, int64_t count, double *out) {
  brim_ref_type(t->dtype)->load(t->data, at, count, out);
}
static inline void ref_store(const brim_tensor *t, int64_t at, int64_t count, const double *in) {
  brim_ref_type(t->dtype)->store(t->data, at, count, in);
}
static inline int64_t ref_min(int64_t a, int64_t b) { return a < b ? a : b; }
// Optional tensors that were left out read as NULL.
static inline const brim_tensor *ref_in(const brim_op_call *call, int i) {
  return i < call->in_count && brim_tensor_count(&call->in[i]) > 0 ? &call->in[i] : NULL;
}
static inline const brim_tensor *ref_out(const brim_op_call *call, int i) {
  return i < call->out_count && brim_tensor_count(&call->out[i]) > 0 ? &call->out[i] : NULL;
}
// A count of the state (BRIM_STATE_ROWS, BRIM_STATE_SAMPLES), within 0 to n.
static inline int64_t ref_valid(const brim_tensor *state, int which, int64_t n) {
  double count = ((const double *)state->data)[which];
  return count < 0 ? 0 : count < (double)n ? (int64_t)count : n;
}
// Rows of a batch that are not padding.
static inline int64_t ref_valid_rows(const brim_tensor *state, int64_t n) {
  return ref_valid(state, BRIM_STATE_ROWS, n);
}

// (..,C): rows and columns.
static inline int64_t ref_columns(const brim_tensor *t) { return t->dim[t->rank - 1]; }
static inline int64_t ref_rows(const brim_tensor *t) {
  return brim_tensor_count(t) / ref_columns(t);
}
// The factor on gradients of losses.
static inline double ref_loss_scale(const brim_tensor *state) {
  const double *s = (const double *)state->data;
  return s[BRIM_STATE_GRAD_SCALE] * s[BRIM_STATE_LOSS_SCALE];
}

double brim_ref_act(brim_act act, double x);
double brim_ref_act_slope(brim_act act, double s);  // s = y for relu and tanh, x for gelu

// One per op. Shapes were checked by brim_op_check.
void brim_ref_linear(const brim_op_call *call);
void brim_ref_linear_bwd_data(const brim_op_call *call);
void brim_ref_linear_bwd_weight(const brim_op_call *call);
void brim_ref_conv(const brim_op_call *call);
void brim_ref_conv_bwd_data(const brim_op_call *call);
void brim_ref_conv_bwd_weight(const brim_op_call *call);

// Bytes of workspace of the ops that have one.
size_t brim_ref_linear_workspace(const brim_op_call *call);
size_t brim_ref_conv_workspace(const brim_op_call *call);

#endif  // BRIM_REF_INT_H_
