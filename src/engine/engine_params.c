// Parameters from outside: initial values, reading, writing, and the snapshot of a trial.
#include <inttypes.h>
#include <string.h>

#include "engine/engine_int.h"
#include "hd/hd_philox.h"

// Values cross between float and the master type in pieces of this many.
enum { PIECE = 256 };

//---------------------------------- copying ----------------------------------

static brim_status put_floats(brim_net *net, unsigned char *to, const float *values, size_t n) {
  if (net->master == BRIM_F32) {
    return brim_device_copy(net->device, to, values, n * sizeof(float), BRIM_COPY_H2D);
  }
  double piece[PIECE];
  for (size_t done = 0; done < n; done += PIECE) {
    size_t k = n - done < PIECE ? n - done : PIECE;
    for (size_t i = 0; i < k; i++) piece[i] = (double)values[done + i];
    BRIM_TRY(brim_device_copy(net->device, to + done * sizeof(double), piece, k * sizeof(double),
                              BRIM_COPY_H2D));
    BRIM_TRY(brim_device_sync(net->device));
  }
  return BRIM_OK;
}

static brim_status get_floats(brim_net *net, float *values, const unsigned char *from, size_t n) {
  if (net->master == BRIM_F32) {
    BRIM_TRY(brim_device_copy(net->device, values, from, n * sizeof(float), BRIM_COPY_D2H));
    return brim_device_sync(net->device);
  }
  double piece[PIECE];
  for (size_t done = 0; done < n; done += PIECE) {
    size_t k = n - done < PIECE ? n - done : PIECE;
    BRIM_TRY(brim_device_copy(net->device, piece, from + done * sizeof(double), k * sizeof(double),
                              BRIM_COPY_D2H));
    BRIM_TRY(brim_device_sync(net->device));
    for (size_t i = 0; i < k; i++) values[done + i] = (float)piece[i];
  }
  return BRIM_OK;
}

brim_status brim_net_refresh_copy(brim_net *net) {
  if (net->compute == net->master) return BRIM_OK;
  return brim_op_run(net->device, &net->cast_call);
}

//---------------------------------- initial values ----------------------------------

// Element e of parameter i is a function of (seed, i, e) alone: the same on every backend, and in
// every order.
static void init_values(uint64_t key, uint64_t index, const brim_param *p, float *out) {
  for (int64_t e = 0; e < p->count; e++) {
    switch (p->init) {
      case BRIM_INIT_ZEROS:
        out[e] = 0;
        break;
      case BRIM_INIT_ONES:
        out[e] = 1;
        break;
      case BRIM_INIT_UNIFORM: {
        brim_philox4 r = brim_philox(key, index, (uint64_t)e / 4);
        out[e] = (2 * brim_rng_uniform(r.v[e % 4]) - 1) * (float)p->bound;
        break;
      }
    }
  }
}

brim_status brim_net_init_params(brim_net *net) {
  int64_t most = 0;
  for (size_t i = 0; i < net->params.count; i++) {
    if (net->params.items[i].count > most) most = net->params.items[i].count;
  }
  float *values = brim_calloc((size_t)most, sizeof *values);
  if (!values) return brim_fail(BRIM_ENOMEM, "out of memory for initial weights");
  brim_status status = BRIM_OK;
  uint64_t key = brim_rng_key(net->seed, BRIM_RNG_INIT);
  for (size_t i = 0; !status && i < net->params.count; i++) {
    const brim_param *p = &net->params.items[i];
    init_values(key, i, p, values);
    unsigned char *to =
        net->blocks[BRIM_BLOCK_PARAMS].data + (size_t)p->offset * brim_dtype_size(net->master);
    status = put_floats(net, to, values, (size_t)p->count);
    // The next parameter reuses `values`.
    if (!status) status = brim_device_sync(net->device);
  }
  brim_free(values);
  return status ? status : brim_net_refresh_copy(net);
}

//---------------------------------- access ----------------------------------

size_t brim_net_param_count(const brim_net *net) { return net->params.count; }

const brim_net_param *brim_net_param_at(const brim_net *net, size_t index) {
  return index < net->params.count ? &net->info[index] : NULL;
}

static brim_status param_place(const brim_net *net, size_t index, brim_block_id block,
                               unsigned char **place) {
  if (index >= net->params.count) {
    return brim_fail(BRIM_EINVAL, "parameter %zu asked for, there are %zu", index,
                     net->params.count);
  }
  size_t offset = (size_t)net->params.items[index].offset * brim_dtype_size(net->master);
  *place = net->blocks[block].data + offset;
  return BRIM_OK;
}

brim_status brim_net_param_read(brim_net *net, size_t index, float *out) {
  unsigned char *from = NULL;
  BRIM_TRY(param_place(net, index, BRIM_BLOCK_PARAMS, &from));
  return get_floats(net, out, from, (size_t)net->info[index].count);
}

brim_status brim_net_param_write(brim_net *net, size_t index, const float *values) {
  unsigned char *to = NULL;
  BRIM_TRY(param_place(net, index, BRIM_BLOCK_PARAMS, &to));
  BRIM_TRY(put_floats(net, to, values, (size_t)net->info[index].count));
  BRIM_TRY(brim_net_refresh_copy(net));
  return brim_device_sync(net->device);
}

brim_status brim_net_grad_read(brim_net *net, size_t index, float *out) {
  unsigned char *from = NULL;
  BRIM_TRY(param_place(net, index, BRIM_BLOCK_GRADS, &from));
  return get_floats(net, out, from, (size_t)net->info[index].count);
}

//---------------------------------- snapshot ----------------------------------

brim_status brim_net_snapshot(brim_net *net) {
  size_t params = net->blocks[BRIM_BLOCK_PARAMS].bytes;
  size_t state = net->blocks[BRIM_BLOCK_OPTIMIZER].bytes;
  if (!net->snapshot) net->snapshot = brim_alloc(params + state);
  if (!net->snapshot) return brim_fail(BRIM_ENOMEM, "out of memory for a snapshot");
  brim_net_metrics ignored;
  BRIM_TRY(brim_net_read_metrics(net, false, &ignored));  // brings skipped_steps up to date
  unsigned char *to = net->snapshot;
  BRIM_TRY(brim_device_copy(net->device, to, net->blocks[BRIM_BLOCK_PARAMS].data, params,
                            BRIM_COPY_D2H));
  if (state) {
    BRIM_TRY(brim_device_copy(net->device, to + params, net->blocks[BRIM_BLOCK_OPTIMIZER].data,
                              state, BRIM_COPY_D2H));
  }
  net->snapshot_skipped = net->skipped_steps;
  return brim_device_sync(net->device);
}

brim_status brim_net_restore(brim_net *net) {
  if (!net->snapshot) return brim_fail(BRIM_ESTATE, "there is no snapshot to restore");
  size_t params = net->blocks[BRIM_BLOCK_PARAMS].bytes;
  size_t state = net->blocks[BRIM_BLOCK_OPTIMIZER].bytes;
  const unsigned char *from = net->snapshot;
  BRIM_TRY(brim_device_copy(net->device, net->blocks[BRIM_BLOCK_PARAMS].data, from, params,
                            BRIM_COPY_H2D));
  if (state) {
    BRIM_TRY(brim_device_copy(net->device, net->blocks[BRIM_BLOCK_OPTIMIZER].data, from + params,
                              state, BRIM_COPY_H2D));
  }
  BRIM_TRY(brim_net_refresh_copy(net));
  net->skipped_steps = net->snapshot_skipped;
  net->ring_count = 0;
  net->outputs_valid = false;
  return brim_device_sync(net->device);
}
