// A network's memory: one buffer per row of the plan, and the addresses of every call in it.
#include <string.h>

#include "engine/engine_int.h"

static const unsigned char canary_byte = 0xA5, poison_byte = 0xFF;  // NaN in every float type

//---------------------------------- addresses ----------------------------------

static void bind(brim_net *net) {
  brim_program *programs[] = {&net->train, &net->eval, &net->negatives.embed};
  for (int k = 0; k < 3; k++) {
    brim_program_bind(net, programs[k], net->averages && programs[k] == &net->eval);
  }
  if (net->negatives.on) brim_negatives_bind(net);
  brim_ranks_bind(net);
  const brim_block *b = net->blocks;
  brim_op_call *c = &net->optimizer_call;
  net->norm_call.in[0].data = b[BRIM_BLOCK_GRADS].data;
  net->norm_call.out[0].data = brim_net_norm_ptr(net);
  c->in[0].data = brim_net_state_ptr(net);
  c->in[1].data = brim_net_norm_ptr(net);
  c->in[2].data = b[BRIM_BLOCK_GRADS].data;
  c->out[0].data = b[BRIM_BLOCK_PARAMS].data;
  c->out[1].data = brim_net_slot(net, 0);
  c->out[2].data = brim_net_slot(net, 1);
  if (c->out_count > 3) c->out[3].data = b[BRIM_BLOCK_COPY].data;
  if (c->out_count > 4) c->out[4].data = b[BRIM_BLOCK_AVERAGE].data;
  net->statistics_call.in[0].data = brim_net_state_ptr(net);
  net->statistics_call.in[1].data = brim_net_norm_ptr(net);
  net->statistics_call.in[2].data = b[BRIM_BLOCK_BUFFERS].data;
  net->statistics_call.out[0].data = b[BRIM_BLOCK_AVERAGE_BUFFERS].data;
  net->average_cast_call.in[0].data = b[BRIM_BLOCK_AVERAGE].data;
  net->average_cast_call.out[0].data = b[BRIM_BLOCK_AVERAGE_COPY].data;
  net->cast_call.in[0].data = b[BRIM_BLOCK_PARAMS].data;
  net->cast_call.out[0].data = b[BRIM_BLOCK_COPY].data;
  void *workspace = b[BRIM_BLOCK_WORKSPACE].data;
  net->norm_call.workspace = c->workspace = net->cast_call.workspace = workspace;
  net->average_cast_call.workspace = net->statistics_call.workspace = workspace;
  brim_op_call *e = &net->step_end_call;
  e->in[0].data = brim_net_norm_ptr(net);
  e->out[0].data = brim_net_state_ptr(net);
  e->out[1].data = brim_net_ring_ptr(net);
  e->workspace = workspace;
}

//---------------------------------- memory ----------------------------------

static size_t allocated_bytes(const brim_net *net, int block) {
  bool tail = block == BRIM_BLOCK_ARENA && net->hooks.canary;
  return net->blocks[block].bytes + (tail ? BRIM_ALIGN : 0);
}

static unsigned char *canary_place(const brim_net *net) {
  const brim_block *arena = &net->blocks[BRIM_BLOCK_ARENA];
  return arena->data + arena->bytes - net->hooks.canary_early;
}

// Everything that outlives a step starts from zero, padding between parameters included. The arena
// and the workspace are written before they are read.
static brim_status allocate(brim_net *net) {
  for (int i = 0; i < BRIM_BLOCK_COUNT; i++) {
    brim_block *b = &net->blocks[i];
    if (!b->bytes) continue;
    void *data = NULL;
    BRIM_TRY(brim_device_alloc(net->device, BRIM_BUFFER_DEVICE, allocated_bytes(net, i), &data));
    b->data = data;
    bool scratch = i == BRIM_BLOCK_ARENA || i == BRIM_BLOCK_WORKSPACE;
    if (scratch && !net->hooks.poison) continue;
    BRIM_TRY(brim_device_fill(net->device, b->data, scratch ? poison_byte : 0, b->bytes));
  }
  if (net->hooks.canary) {
    BRIM_TRY(brim_device_fill(net->device, canary_place(net), canary_byte, BRIM_ALIGN));
  }
  return BRIM_OK;
}

bool brim_net_canary_intact(const brim_net *net) {
  const unsigned char *place = canary_place(net);
  for (int i = 0; i < BRIM_ALIGN; i++) {
    if (place[i] != canary_byte) return false;
  }
  return true;
}

brim_status brim_net_open(brim_net *net, bool eager) {
  BRIM_TRY(allocate(net));
  bind(net);
  net->grad_norm = net->grad_norm_max = __builtin_nan("");
  BRIM_TRY(brim_exec_init(net, eager));
  return brim_net_init_params(net);
}

brim_status brim_net_create_hooked(brim_device *device, const brim_net_spec *spec,
                                   const brim_net_hooks *hooks, brim_net **out) {
  *out = NULL;
  brim_net *net;
  brim_status status = brim_net_build(device, spec, hooks, false, &net);
  if (!status) status = brim_net_open(net, spec->eager);
  if (status) {
    brim_net_destroy(net);
    return status;
  }
  *out = net;
  return BRIM_OK;
}

brim_status brim_net_create(brim_device *device, const brim_net_spec *spec, brim_net **out) {
  return brim_net_create_hooked(device, spec, NULL, out);
}

void brim_net_destroy(brim_net *net) {
  if (!net) return;
  // The device may still be at work in these buffers; what it says does not matter any more.
  if (net->blocks[BRIM_BLOCK_PARAMS].data) (void)brim_device_sync(net->device);
  brim_exec_deinit(net);
  brim_op_call *flat[] = {&net->norm_call, &net->optimizer_call, &net->step_end_call,
                          &net->cast_call, &net->average_cast_call};
  for (int i = 0; i < net->optimizer_prepared; i++) brim_op_release(net->device, flat[i]);
  if (net->statistics_prepared) brim_op_release(net->device, &net->statistics_call);
  brim_program_release(net, &net->train);
  brim_program_release(net, &net->eval);
  brim_negatives_release(net);
  brim_knn_release(net);
  brim_ranks_release(net);
  for (int i = 0; i < BRIM_BLOCK_COUNT; i++) {
    if (!net->blocks[i].data || !net->blocks[i].bytes) continue;
    brim_device_free(net->device, BRIM_BUFFER_DEVICE, net->blocks[i].data);
  }
  for (int i = 0; i < BRIM_BLOCK_COUNT; i++) {
    brim_device_free(net->device, BRIM_BUFFER_HOST, net->reusable[i]);
  }
  brim_free(net->snapshot);
  brim_free(net->info);
  brim_params_deinit(&net->params);
  brim_params_deinit(&net->buffers);
  brim_free(net);
}

brim_status brim_net_plan(brim_device *device, const brim_net_spec *spec, brim_plan *plan) {
  brim_net *net;
  brim_status status = brim_net_build(device, spec, NULL, true, &net);
  if (!status) brim_net_fill_plan(net, plan);
  brim_net_destroy(net);
  return status;
}
