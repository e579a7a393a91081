// The table of the reference backend: one device, the host, one thread, everything synchronous.
// Slow and plain on purpose: it is what the others are measured against.
#include <stdio.h>
#include <string.h>

#include "backend/ref/ref_int.h"

static brim_status device_count(int *count) {
  *count = 1;
  return BRIM_OK;
}

static brim_status device_info(int index, brim_device_info *info) {
  if (index != 0) return brim_fail(BRIM_ENOENT, "ref has only device 0, not %d", index);
  *info = (brim_device_info){.kind = BRIM_DEVICE_CPU, .host_memory = true, .threads = 1};
  char cpu[96];
  brim_machine_cpu_name("", cpu, sizeof(cpu));
  snprintf(info->name, sizeof(info->name), "%s, 1 thread", cpu);
  snprintf(info->library, sizeof(info->library), "brim reference loops");
  brim_machine_free_memory("", &info->free_bytes, &info->total_bytes);
  return BRIM_OK;
}

// There is no state: the address only tells an open device from none.
static const char the_device;

static brim_status device_open(int index, const brim_device_options *options, void **impl) {
  (void)options;
  if (index != 0) return brim_fail(BRIM_ENOENT, "ref has only device 0, not %d", index);
  *impl = (void *)(uintptr_t)&the_device;
  return BRIM_OK;
}

static void device_close(void *impl) { (void)impl; }

static brim_status device_memory(void *impl, uint64_t *free_bytes, uint64_t *total_bytes) {
  (void)impl;
  brim_machine_free_memory("", free_bytes, total_bytes);
  return BRIM_OK;
}

static brim_status buffer_alloc(void *impl, brim_buffer_kind kind, size_t bytes, void **ptr) {
  (void)impl;
  *ptr = brim_alloc_tagged(bytes, BRIM_MEM_PLANNED);
  if (*ptr) return BRIM_OK;
  char text[32];
  brim_format_bytes(bytes, text);
  return brim_fail(kind == BRIM_BUFFER_DEVICE ? BRIM_EOOM : BRIM_ENOMEM,
                   "ref: no memory for a buffer of %s", text);
}

static void buffer_free(void *impl, brim_buffer_kind kind, void *ptr) {
  (void)impl;
  (void)kind;
  brim_free(ptr);
}

static brim_status copy(void *impl, void *stream, void *dst, const void *src, size_t bytes,
                        brim_copy direction) {
  (void)impl;
  (void)stream;
  (void)direction;
  memmove(dst, src, bytes);
  return BRIM_OK;
}

static brim_status fill(void *impl, void *stream, void *dst, int byte, size_t bytes) {
  (void)impl;
  (void)stream;
  memset(dst, byte, bytes);
  return BRIM_OK;
}

//---------------------------------- ops ----------------------------------

// What a kernel does; NULL where it needs no workspace.
typedef struct kernel {
  void (*run)(const brim_op_call *call);
  size_t (*workspace)(const brim_op_call *call);
} kernel;

static const kernel kernels[BRIM_OP_COUNT] = {
    [BRIM_OP_LINEAR] = {brim_ref_linear, brim_ref_linear_workspace},
    [BRIM_OP_LINEAR_BWD_DATA] = {brim_ref_linear_bwd_data, brim_ref_linear_workspace},
    [BRIM_OP_LINEAR_BWD_WEIGHT] = {brim_ref_linear_bwd_weight, brim_ref_linear_workspace},
    [BRIM_OP_CONV] = {brim_ref_conv, brim_ref_conv_workspace},
    [BRIM_OP_CONV_BWD_DATA] = {brim_ref_conv_bwd_data, brim_ref_conv_workspace},
    [BRIM_OP_CONV_BWD_WEIGHT] = {brim_ref_conv_bwd_weight, brim_ref_conv_workspace},
    [BRIM_OP_BATCHNORM] = {brim_ref_batchnorm, NULL},
    [BRIM_OP_BATCHNORM_APPLY] = {brim_ref_batchnorm_apply, NULL},
    [BRIM_OP_BATCHNORM_BWD] = {brim_ref_batchnorm_bwd, NULL},
    [BRIM_OP_BATCHNORM_PART] = {brim_ref_batchnorm_part, NULL},
    [BRIM_OP_BATCHNORM_JOIN] = {brim_ref_batchnorm_join, NULL},
    [BRIM_OP_BATCHNORM_BWD_SUMS] = {brim_ref_batchnorm_bwd_sums, NULL},
    [BRIM_OP_BATCHNORM_BWD_JOINED] = {brim_ref_batchnorm_bwd_joined, NULL},
    [BRIM_OP_MAXPOOL] = {brim_ref_maxpool, NULL},
    [BRIM_OP_MAXPOOL_BWD] = {brim_ref_maxpool_bwd, NULL},
    [BRIM_OP_MEAN] = {brim_ref_mean, NULL},
    [BRIM_OP_MEAN_BWD] = {brim_ref_mean_bwd, NULL},
    [BRIM_OP_POS] = {brim_ref_pos, NULL},
    [BRIM_OP_POS_BWD] = {brim_ref_pos_bwd, NULL},
    [BRIM_OP_ATTENTION] = {brim_ref_attention, brim_ref_attention_workspace},
    [BRIM_OP_ATTENTION_BWD] = {brim_ref_attention_bwd, brim_ref_attention_workspace},
    [BRIM_OP_CONCAT] = {brim_ref_concat, NULL},
    [BRIM_OP_CONCAT_BWD] = {brim_ref_concat_bwd, NULL},
    [BRIM_OP_ACT] = {brim_ref_act_fwd, NULL},
    [BRIM_OP_ACT_BWD] = {brim_ref_act_bwd, NULL},
    [BRIM_OP_LAYERNORM] = {brim_ref_layernorm, NULL},
    [BRIM_OP_LAYERNORM_BWD] = {brim_ref_layernorm_bwd, NULL},
    [BRIM_OP_DROPOUT] = {brim_ref_dropout, NULL},
    [BRIM_OP_ADD] = {brim_ref_add, NULL},
    [BRIM_OP_CAST] = {brim_ref_cast, NULL},
    [BRIM_OP_INPUT] = {brim_ref_input, NULL},
    [BRIM_OP_XENT] = {brim_ref_xent, NULL},
    [BRIM_OP_MSE] = {brim_ref_mse, NULL},
    [BRIM_OP_BCE] = {brim_ref_bce, NULL},
    [BRIM_OP_NTXENT] = {brim_ref_ntxent, brim_ref_ntxent_workspace},
    [BRIM_OP_UNIT] = {brim_ref_unit, brim_ref_unit_workspace},
    [BRIM_OP_KNN] = {brim_ref_knn, brim_ref_knn_workspace},
    [BRIM_OP_GRAD_NORM] = {brim_ref_grad_norm, NULL},
    [BRIM_OP_OPTIMIZER] = {brim_ref_optimizer, NULL},
    [BRIM_OP_AVERAGE] = {brim_ref_average, NULL},
    [BRIM_OP_STEP_END] = {brim_ref_step_end, NULL},
};

// What passes brim_op_check, ref can do: it has every float type.
static brim_status validate(void *impl, const brim_op_call *call) {
  (void)impl;
  return brim_op_check(call);
}

static brim_status prepare(void *impl, brim_op_call *call) {
  (void)impl;
  const kernel *k = &kernels[call->op];
  call->workspace_bytes = k->workspace ? k->workspace(call) : 0;
  return BRIM_OK;
}

static brim_status run(void *impl, void *stream, const brim_op_call *call) {
  (void)impl;
  (void)stream;
  const kernel *k = &kernels[call->op];
  if (k->workspace && !call->workspace) {
    return brim_fail(BRIM_ESTATE, "%s: no workspace; prepare the call first",
                     brim_op_name(call->op));
  }
  k->run(call);
  return BRIM_OK;
}

static const brim_op_row rows[] = {
#define X(id, name) {.op = BRIM_OP_##id, .validate = validate, .prepare = prepare, .run = run},
    BRIM_OP_MAP(X)
#undef X
};
_Static_assert(sizeof(rows) / sizeof(rows[0]) == BRIM_OP_BACKEND_COUNT, "ref has every op");

static const brim_backend table = {
    .abi = BRIM_BACKEND_ABI,
    .name = "ref",
    .device_count = device_count,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .device_memory = device_memory,
    .buffer_alloc = buffer_alloc,
    .buffer_free = buffer_free,
    .copy = copy,
    .fill = fill,
    .ops = rows,
    .op_count = sizeof(rows) / sizeof(rows[0]),
};

const brim_backend *brim_backend_ref(void) { return &table; }
