// Runs a case on a device, with guard bytes behind every buffer.
#include <string.h>

#include "cases/cases.h"

enum { GUARD = 64, GUARD_BYTE = 0xA5 };

static brim_status upload(brim_device *device, const double *values, brim_tensor *t) {
  size_t bytes = brim_tensor_bytes(t);
  BRIM_TRY(brim_device_alloc(device, BRIM_BUFFER_DEVICE, bytes + GUARD, &t->data));
  char *host = brim_alloc(bytes + GUARD);
  if (!host) return brim_fail(BRIM_ENOMEM, "no memory for the values of a case");
  brim_case_encode(t->dtype, values, brim_tensor_count(t), host);
  memset(host + bytes, GUARD_BYTE, GUARD);
  brim_status status = brim_device_copy(device, t->data, host, bytes + GUARD, BRIM_COPY_H2D);
  if (!status) status = brim_device_sync(device);
  brim_free(host);
  return status;
}

// Fetches a buffer and checks the guard behind it; values may be NULL.
static brim_status download(brim_device *device, const brim_tensor *t, double *values) {
  size_t bytes = brim_tensor_bytes(t);
  char *host = brim_alloc(bytes + GUARD);
  if (!host) return brim_fail(BRIM_ENOMEM, "no memory for the values of a case");
  brim_status status = brim_device_copy(device, host, t->data, bytes + GUARD, BRIM_COPY_D2H);
  if (!status) status = brim_device_sync(device);
  for (int i = 0; !status && i < GUARD; i++) {
    if ((unsigned char)host[bytes + (size_t)i] != GUARD_BYTE) {
      status = brim_fail(BRIM_EINTERNAL, "byte %d behind a buffer was written", i);
    }
  }
  if (!status && values) brim_case_decode(t->dtype, host, brim_tensor_count(t), values);
  brim_free(host);
  return status;
}

// The workspace on a host device starts at an odd multiple of 64 bytes, the worst alignment that a caller may give. A
// library that assumes a larger one writes outside of it.
static brim_status give_workspace(brim_case_loaded *out) {
  brim_op_call *call = &out->call;
  size_t bytes = call->workspace_bytes, room = bytes + GUARD + BRIM_ALIGN;
  BRIM_TRY(brim_device_alloc(out->device, BRIM_BUFFER_DEVICE, room, &out->workspace));
  bool shift = out->device->info.host_memory && (uintptr_t)out->workspace % (2 * BRIM_ALIGN) == 0;
  call->workspace = (char *)out->workspace + (shift ? BRIM_ALIGN : 0);
  return brim_device_fill(out->device, call->workspace, GUARD_BYTE, bytes + GUARD);
}

brim_status brim_case_load(brim_device *device, const brim_case *c, const brim_case_data *data,
                           brim_case_loaded *out) {
  *out = (brim_case_loaded){.device = device, .guard = GUARD};
  brim_op_call *call = &out->call;
  brim_case_call(c, call);
  BRIM_TRY(brim_op_prepare(device, call));
  brim_status status = BRIM_OK;
  int dz = c->op == BRIM_OP_BATCHNORM_BWD ? 3 : 1;
  for (int i = 0; !status && i < call->in_count; i++) {
    if (call->in[i].rank > 0) status = upload(device, data->in[i], &call->in[i]);
  }
  for (int i = 0; !status && i < call->out_count; i++) {
    if (c->in_place == 3 && (i == 0 || i == dz)) {
      call->out[i].data = call->in[i == 0 ? 1 : 0].data;
    } else if (c->in_place && i == 0) {
      call->out[0].data = call->in[c->in_place - 1].data;
    } else {
      status = upload(device, data->out[i], &call->out[i]);
    }
  }
  if (!status && call->workspace_bytes > 0) status = give_workspace(out);
  if (status) brim_case_unload(out);
  return status;
}

void brim_case_unload(brim_case_loaded *loaded) {
  brim_device *device = loaded->device;
  brim_op_call *call = &loaded->call;
  if (!device) return;
  brim_op_release(device, call);
  brim_device_free(device, BRIM_BUFFER_DEVICE, loaded->workspace);
  for (int i = 0; i < call->out_count; i++) {
    bool shared = false;
    for (int j = 0; j < call->in_count; j++) shared |= call->out[i].data == call->in[j].data;
    if (!shared) brim_device_free(device, BRIM_BUFFER_DEVICE, call->out[i].data);
  }
  for (int i = 0; i < call->in_count; i++) {
    brim_device_free(device, BRIM_BUFFER_DEVICE, call->in[i].data);
  }
  *loaded = (brim_case_loaded){.device = NULL};
}

static brim_status check_workspace(const brim_case_loaded *loaded) {
  const brim_op_call *call = &loaded->call;
  if (!call->workspace) return BRIM_OK;
  int64_t bytes = (int64_t)call->workspace_bytes;
  brim_tensor t = brim_tensor_make(call->workspace, BRIM_U8, 1, &bytes);
  brim_status status = download(loaded->device, &t, NULL);
  return status ? brim_fail_context(status, "workspace of %zu bytes", call->workspace_bytes)
                : BRIM_OK;
}

brim_status brim_case_run(brim_device *device, const brim_case *c, const brim_case_data *data,
                          brim_case_data *result) {
  brim_case_loaded loaded;
  *result = (brim_case_data){{NULL}, {NULL}};
  BRIM_TRY(brim_case_load(device, c, data, &loaded));
  brim_status status = brim_op_run(device, &loaded.call);
  if (!status) status = brim_device_sync(device);
  for (int i = 0; !status && i < loaded.call.out_count; i++) {
    int64_t count = brim_tensor_count(&loaded.call.out[i]);
    result->out[i] = brim_calloc((size_t)(count > 0 ? count : 1), sizeof(double));
    if (!result->out[i]) {
      status = brim_fail(BRIM_ENOMEM, "no memory for the result of a case");
      break;
    }
    status = download(device, &loaded.call.out[i], result->out[i]);
    if (status) status = brim_fail_context(status, "output %d", i);
  }
  if (!status) status = check_workspace(&loaded);
  brim_case_unload(&loaded);
  if (status) brim_case_data_destroy(result);
  return status;
}
