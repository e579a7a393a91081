// What a call must do at least: floating-point operations and bytes moved once between memory and
// the processor. Used for rates and ceilings; never for a decision about correctness.
#include "backend/backend_ops.h"

static double flops_of(const brim_op_rule *rule, const brim_op_call *call) {
  if (rule->flops) return rule->flops(call);
  return rule->flops_per_value * (double)brim_tensor_count(&call->in[0]);
}

// Is the output read before it is written?
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
