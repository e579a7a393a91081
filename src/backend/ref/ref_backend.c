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
  if (index != 0) return brim_fail(BRIM_ENOENT, "ref has only the device 0, not %d", index);
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
  if (index != 0) return brim_fail(BRIM_ENOENT, "ref has only the device 0, not %d", index);
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

typedef void (*kernel)(const brim_op_call *call);

static const kernel kernels[BRIM_OP_COUNT] = {
    [BRIM_OP_LINEAR] = brim_ref_linear,
    [BRIM_OP_LINEAR_BWD_DATA] = brim_ref_linear_bwd_data,
    [BRIM_OP_LINEAR_BWD_WEIGHT] = brim_ref_linear_bwd_weight,
    [BRIM_OP_ACT] = brim_ref_act_fwd,
    [BRIM_OP_ACT_BWD] = brim_ref_act_bwd,
    [BRIM_OP_LAYERNORM] = brim_ref_layernorm,
    [BRIM_OP_LAYERNORM_BWD] = brim_ref_layernorm_bwd,
    [BRIM_OP_DROPOUT] = brim_ref_dropout,
    [BRIM_OP_ADD] = brim_ref_add,
    [BRIM_OP_CAST] = brim_ref_cast,
    [BRIM_OP_INPUT] = brim_ref_input,
    [BRIM_OP_XENT] = brim_ref_xent,
    [BRIM_OP_MSE] = brim_ref_mse,
    [BRIM_OP_GRAD_NORM] = brim_ref_grad_norm,
    [BRIM_OP_OPTIMIZER] = brim_ref_optimizer,
};

// What passes brim_op_check, ref can do: it has every float type.
static brim_status validate(void *impl, const brim_op_call *call) {
  (void)impl;
  return brim_op_check(call);
}

static brim_status prepare_linear(void *impl, brim_op_call *call) {
  (void)impl;
  call->workspace_bytes = brim_ref_linear_workspace();
  return BRIM_OK;
}

static brim_status run(void *impl, void *stream, const brim_op_call *call) {
  (void)impl;
  (void)stream;
  kernels[call->op](call);
  return BRIM_OK;
}

static brim_status run_linear(void *impl, void *stream, const brim_op_call *call) {
  if (!call->workspace) {
    return brim_fail(BRIM_ESTATE, "%s: run without its workspace; prepare the call first",
                     brim_op_name(call->op));
  }
  return run(impl, stream, call);
}

static const brim_op_row rows[] = {
    {.op = BRIM_OP_LINEAR, .validate = validate, .prepare = prepare_linear, .run = run_linear},
    {.op = BRIM_OP_LINEAR_BWD_DATA,
     .validate = validate,
     .prepare = prepare_linear,
     .run = run_linear},
    {.op = BRIM_OP_LINEAR_BWD_WEIGHT,
     .validate = validate,
     .prepare = prepare_linear,
     .run = run_linear},
    {.op = BRIM_OP_ACT, .validate = validate, .run = run},
    {.op = BRIM_OP_ACT_BWD, .validate = validate, .run = run},
    {.op = BRIM_OP_LAYERNORM, .validate = validate, .run = run},
    {.op = BRIM_OP_LAYERNORM_BWD, .validate = validate, .run = run},
    {.op = BRIM_OP_DROPOUT, .validate = validate, .run = run},
    {.op = BRIM_OP_ADD, .validate = validate, .run = run},
    {.op = BRIM_OP_CAST, .validate = validate, .run = run},
    {.op = BRIM_OP_INPUT, .validate = validate, .run = run},
    {.op = BRIM_OP_XENT, .validate = validate, .run = run},
    {.op = BRIM_OP_MSE, .validate = validate, .run = run},
    {.op = BRIM_OP_GRAD_NORM, .validate = validate, .run = run},
    {.op = BRIM_OP_OPTIMIZER, .validate = validate, .run = run},
};
_Static_assert(sizeof(rows) / sizeof(rows[0]) == BRIM_OP_COUNT, "ref has every op");

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
