// What brim knows of an op on every backend: one row each (backend_ops.c). Inside the backend room.
#ifndef BRIM_BACKEND_OPS_H_
#define BRIM_BACKEND_OPS_H_

#include "backend/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

// What a slot may hold.
typedef enum brim_slot_type {
  SLOT_T,      // the activation type of the call: f32, bf16, f16, f64
  SLOT_P,      // f32, or f64 when T is f64 (or no tensor of type T stands before it)
  SLOT_F64,    // step state
  SLOT_F32,    // targets
  SLOT_I32,    // labels
  SLOT_U8,     // places
  SLOT_RAW,    // u8 or f32
  SLOT_FLOAT,  // any float type
  SLOT_HALF    // bf16 or f16
} brim_slot_type;

// shape: letters are sizes, digits are themselves; "*" the shape of the first tensor; ".K" rows of
// K, the product of all dimensions but the last being N; "N.C" anything between the two; "+" rows,
// then anything, the product being F; "-" rows, then anything; "=n" n values; "0P" P values or
// none.
typedef struct brim_op_slot {
  const char *name;
  brim_slot_type type;
  const char *shape;
  bool optional;
} brim_op_slot;

typedef struct brim_op_rule {
  brim_op_slot in[BRIM_OP_MAX_IN];
  brim_op_slot out[BRIM_OP_MAX_OUT];
  // (optional; default: none is looked at) The attributes, and the sizes that follow from them. The
  // tensors have passed their own rules, so every required one is there.
  brim_status (*attr)(const brim_op_call *call);
  // (optional; default: flops_per_value for each of the first input)
  double (*flops)(const brim_op_call *call);
  double flops_per_value;
  // (optional; default: every input and output once, and twice those of `adds` and `updates`)
  double (*bytes)(const brim_op_call *call);
  uint32_t adds;     // 1 << outputs that are added to when attr.accumulate
  uint32_t updates;  // 1 << outputs that are read before they are written, always
  // 1 << inputs that an output may be written over. Of several outputs the last that is there has
  // it.
  uint32_t over[BRIM_OP_MAX_OUT];
} brim_op_rule;

extern const brim_op_rule brim_op_rules[BRIM_OP_COUNT];

// backend_attr.c
brim_status brim_attr_act(const brim_op_call *call);
brim_status brim_attr_bwd_data(const brim_op_call *call);
brim_status brim_attr_conv(const brim_op_call *call);
brim_status brim_attr_batchnorm(const brim_op_call *call);
brim_status brim_attr_pool(const brim_op_call *call);
brim_status brim_attr_attention(const brim_op_call *call);
brim_status brim_attr_concat(const brim_op_call *call);
brim_status brim_attr_act_needed(const brim_op_call *call);
brim_status brim_attr_eps(const brim_op_call *call);
brim_status brim_attr_dropout(const brim_op_call *call);
brim_status brim_attr_input(const brim_op_call *call);
brim_status brim_attr_xent(const brim_op_call *call);
brim_status brim_attr_ntxent(const brim_op_call *call);
brim_status brim_attr_knn(const brim_op_call *call);
brim_status brim_attr_optimizer(const brim_op_call *call);
brim_status brim_attr_average(const brim_op_call *call);
brim_status brim_attr_step_end(const brim_op_call *call);
brim_status brim_attr_gather(const brim_op_call *call);

// backend_flops.c
double brim_flops_linear(const brim_op_call *call);
double brim_flops_conv(const brim_op_call *call);
double brim_flops_batchnorm(const brim_op_call *call);
double brim_flops_maxpool(const brim_op_call *call);
double brim_flops_attention(const brim_op_call *call);
double brim_flops_act(const brim_op_call *call);
double brim_flops_act_bwd(const brim_op_call *call);
double brim_flops_xent(const brim_op_call *call);
double brim_flops_mse(const brim_op_call *call);
double brim_flops_bce(const brim_op_call *call);
double brim_flops_ntxent(const brim_op_call *call);
double brim_flops_optimizer(const brim_op_call *call);
double brim_flops_average(const brim_op_call *call);
double brim_flops_step_end(const brim_op_call *call);
double brim_bytes_step_end(const brim_op_call *call);
double brim_bytes_none(const brim_op_call *call);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BACKEND_OPS_H_
