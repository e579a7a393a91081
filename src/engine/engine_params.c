// Parameters: weights of convolutions between PyTorch's layout (M,C,R,S) and the one in memory,
// (M,R,S,C') with padded channels; initial values, reading, writing, the snapshot of a trial; and the
// copies derived from the weights: the 16-bit copy, and the average with its statistics and its copy.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "engine/engine_graph.h"
#include "engine/engine_int.h"
#include "hd/hd_philox.h"

//---------------------------------- layouts ----------------------------------

#define ALWAYS_INLINE static inline __attribute__((always_inline))

typedef struct filter_shape {
  size_t channels, padded, area;
} filter_shape;

static filter_shape shape_of(const brim_param *p) {
  const int64_t *d = p->outside.dim;
  return (filter_shape){.channels = (size_t)d[1],
                        .padded = (size_t)p->desc.dim[3],
                        .area = (size_t)d[2] * (size_t)d[3]};
}

// Gathers n floats that lie `apart`: one channel of a filter. 3 x 3 is written out, since compilers
// do not unroll it on their own.
ALWAYS_INLINE void gather(size_t n, const float *restrict in, size_t apart, float *restrict out) {
  if (n == 9) {
    out[0] = in[0];
    out[1] = in[apart];
    out[2] = in[2 * apart];
    out[3] = in[3 * apart];
    out[4] = in[4 * apart];
    out[5] = in[5 * apart];
    out[6] = in[6 * apart];
    out[7] = in[7 * apart];
    out[8] = in[8 * apart];
  } else {
    for (size_t i = 0; i < n; i++) out[i] = in[i * apart];
  }
}

// Converts filters of (area, padded) to (channels, area). `area` is s.area, passed as a constant
// for common sizes.
ALWAYS_INLINE void export_filters(filter_shape s, size_t area, size_t rows, const float *in,
                                  float *out) {
  for (size_t m = 0; m < rows; m++, in += area * s.padded) {
    for (size_t c = 0; c < s.channels; c++, out += area) gather(area, in + c, s.padded, out);
  }
}

// Converts back; padding channels become zero.
static void import_filters(filter_shape s, size_t rows, const float *in, float *out) {
  for (size_t m = 0; m < rows; m++, in += s.channels * s.area) {
    for (size_t at = 0; at < s.area; at++, out += s.padded) {
      for (size_t c = 0; c < s.channels; c++) out[c] = in[c * s.area + at];
      memset(out + s.channels, 0, (s.padded - s.channels) * sizeof *out);
    }
  }
}

bool brim_param_same_layout(const brim_param *p) {
  if (!p->conv) return true;
  filter_shape s = shape_of(p);
  return s.channels == s.padded && (s.area == 1 || s.channels == 1);
}

void brim_param_export_rows(const brim_param *p, size_t rows, const float *inside, float *outside) {
  filter_shape s = shape_of(p);
  switch (s.area) {
    case 1:
      export_filters(s, 1, rows, inside, outside);
      return;
    case 9:
      export_filters(s, 9, rows, inside, outside);
      return;
    default:
      export_filters(s, s.area, rows, inside, outside);
  }
}

void brim_param_import(const brim_param *p, const float *outside, float *inside) {
  if (brim_param_same_layout(p)) {
    memcpy(inside, outside, (size_t)p->count * sizeof *inside);
  } else {
    import_filters(shape_of(p), (size_t)p->outside.dim[0], outside, inside);
  }
}

void brim_param_export(const brim_param *p, const float *inside, float *outside) {
  if (brim_param_same_layout(p)) {
    memcpy(outside, inside, (size_t)p->count * sizeof *inside);
  } else {
    brim_param_export_rows(p, (size_t)p->outside.dim[0], inside, outside);
  }
}

//---------------------------------- values ----------------------------------

// Values cross between float and the master type in pieces of so many.
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

//---------------------------------- initial values ----------------------------------

static void fill_uniform(uint64_t key, uint64_t index, const brim_param *p, float *out) {
  for (int64_t e = 0; e < p->outside_count; e++) {
    brim_philox4 r = brim_philox(key, index, (uint64_t)e / 4);
    out[e] = (2 * brim_rng_uniform(r.v[e % 4]) - 1) * (float)p->bound;
  }
}

// Box and Muller: two uniform numbers make two normal ones, so a draw makes four.
static void fill_normal(uint64_t key, uint64_t index, const brim_param *p, float *out) {
  for (int64_t e = 0; e < p->outside_count; e += 2) {
    brim_philox4 r = brim_philox(key, index, (uint64_t)e / 4);
    double u = 1.0 - (double)brim_rng_uniform(r.v[e % 4]);  // never 0
    double angle = 6.283185307179586 * (double)brim_rng_uniform(r.v[e % 4 + 1]);
    double radius = p->bound * sqrt(-2.0 * log(u));
    out[e] = (float)(radius * cos(angle));
    if (e + 1 < p->outside_count) out[e + 1] = (float)(radius * sin(angle));
  }
}

// Makes each v[j] of `length` values orthogonal to those before it and of length 1: modified
// Gram-Schmidt, twice, is as exact as Householder. R's diagonal comes out positive.
static void make_orthonormal(double *v, int64_t count, int64_t length) {
  for (int64_t j = 0; j < count; j++) {
    double *own = v + j * length;
    for (int64_t k = 0; k < 2 * j; k++) {
      const double *other = v + k % j * length;
      double dot = 0;
      for (int64_t i = 0; i < length; i++) dot += own[i] * other[i];
      for (int64_t i = 0; i < length; i++) own[i] -= dot * other[i];
    }
    double squares = 0;
    for (int64_t i = 0; i < length; i++) squares += own[i] * own[i];
    for (int64_t i = 0; i < length; i++) own[i] /= sqrt(squares);
  }
}

// A matrix that is wider than high is made as its transpose, as in PyTorch.
static brim_status fill_orthogonal(uint64_t key, uint64_t index, const brim_param *p, float *out) {
  int64_t rows = p->outside.dim[0], columns = p->outside_count / rows;
  bool wide = rows < columns;
  int64_t length = wide ? columns : rows, count = wide ? rows : columns;
  double *v = brim_calloc((size_t)p->outside_count, sizeof *v);
  if (!v) return brim_fail(BRIM_ENOMEM, "out of memory for initial weights");
  brim_param normal = *p;
  normal.bound = 1;
  fill_normal(key, index, &normal, out);
  for (int64_t j = 0; j < count; j++) {
    for (int64_t i = 0; i < length; i++) {
      v[j * length + i] = (double)out[wide ? j * columns + i : i * columns + j];
    }
  }
  make_orthonormal(v, count, length);
  for (int64_t j = 0; j < count; j++) {
    for (int64_t i = 0; i < length; i++) {
      out[wide ? j * columns + i : i * columns + j] = (float)(p->bound * v[j * length + i]);
    }
  }
  brim_free(v);
  return BRIM_OK;
}

// Element e of parameter i depends on (seed, i, e) alone, with e counted as PyTorch does: the same
// values on every backend, with any padding, in every order. Orthogonal matrices depend on all e.
static brim_status init_values(uint64_t key, uint64_t index, const brim_param *p, float *out) {
  switch (p->init) {
    case BRIM_INIT_ZEROS:
    case BRIM_INIT_ONES:
      for (int64_t e = 0; e < p->outside_count; e++) out[e] = p->init == BRIM_INIT_ONES ? 1 : 0;
      break;
    case BRIM_INIT_UNIFORM:
      fill_uniform(key, index, p, out);
      break;
    case BRIM_INIT_NORMAL:
      fill_normal(key, index, p, out);
      break;
    case BRIM_INIT_ORTHOGONAL:
      return fill_orthogonal(key, index, p, out);
  }
  return BRIM_OK;
}

size_t brim_net_largest(const brim_net *net) {
  int64_t params = brim_params_largest(&net->params), buffers = brim_params_largest(&net->buffers);
  return (size_t)(params > buffers ? params : buffers);
}

static unsigned char *place_of(const brim_net *net, brim_block_id block, const brim_param *p) {
  return net->blocks[block].data + (size_t)p->offset * brim_dtype_size(net->master);
}

static brim_status init_list(brim_net *net, const brim_params *list, brim_block_id block,
                             float *scratch, size_t half) {
  uint64_t key = brim_rng_key(net->seed, BRIM_RNG_INIT);
  for (size_t i = 0; i < list->count; i++) {
    const brim_param *p = &list->items[i];
    BRIM_TRY(init_values(key, i, p, scratch + half));
    brim_param_import(p, scratch + half, scratch);
    BRIM_TRY(put_floats(net, place_of(net, block, p), scratch, (size_t)p->count));
    BRIM_TRY(brim_device_sync(net->device));  // the next parameter reuses the scratch
  }
  return BRIM_OK;
}

brim_status brim_net_init_params(brim_net *net) {
  size_t half = brim_net_largest(net);  // padding only adds: enough for the outside too
  float *scratch = brim_calloc(2 * half, sizeof *scratch);
  if (!scratch) return brim_fail(BRIM_ENOMEM, "out of memory for initial weights");
  brim_status status = init_list(net, &net->params, BRIM_BLOCK_PARAMS, scratch, half);
  if (!status) status = init_list(net, &net->buffers, BRIM_BLOCK_BUFFERS, scratch, half);
  brim_free(scratch);
  if (!status) status = brim_net_start_average(net);
  return status ? status : brim_net_refresh_copy(net);
}

//---------------------------------- access ----------------------------------

size_t brim_net_param_count(const brim_net *net) { return net->params.count; }

const brim_net_param *brim_net_param_at(const brim_net *net, size_t index) {
  return index < net->params.count ? &net->info[index] : NULL;
}

static brim_status find_param(const brim_net *net, size_t index, const brim_param **out) {
  if (index >= net->params.count) {
    return brim_fail(BRIM_EINVAL, "requested parameter %zu, but there are %zu", index,
                     net->params.count);
  }
  *out = &net->params.items[index];
  return BRIM_OK;
}

static brim_status read_block(brim_net *net, size_t index, brim_block_id block, float *out) {
  const brim_param *p = NULL;
  BRIM_TRY(find_param(net, index, &p));
  if (!p->conv) return get_floats(net, out, place_of(net, block, p), (size_t)p->count);
  float *inside = brim_calloc((size_t)p->count, sizeof *inside);
  if (!inside) return brim_fail(BRIM_ENOMEM, "out of memory for the parameter %s", p->name);
  brim_status status = get_floats(net, inside, place_of(net, block, p), (size_t)p->count);
  if (!status) brim_param_export(p, inside, out);
  brim_free(inside);
  return status;
}

brim_status brim_net_param_read(brim_net *net, size_t index, float *out) {
  return read_block(net, index, BRIM_BLOCK_PARAMS, out);
}

brim_status brim_net_grad_read(brim_net *net, size_t index, float *out) {
  return read_block(net, index, BRIM_BLOCK_GRADS, out);
}

brim_status brim_net_param_write(brim_net *net, size_t index, const float *values) {
  const brim_param *p = NULL;
  BRIM_TRY(find_param(net, index, &p));
  float *inside = brim_calloc((size_t)p->count, sizeof *inside);
  if (!inside) return brim_fail(BRIM_ENOMEM, "out of memory for the parameter %s", p->name);
  brim_param_import(p, values, inside);
  brim_status status =
      put_floats(net, place_of(net, BRIM_BLOCK_PARAMS, p), inside, (size_t)p->count);
  if (!status && net->averages) {
    net->average_stale = true;
    status = put_floats(net, place_of(net, BRIM_BLOCK_AVERAGE, p), inside, (size_t)p->count);
  }
  if (!status) status = brim_net_refresh_copy(net);
  if (!status) status = brim_device_sync(net->device);
  brim_free(inside);
  return status;
}

//---------------------------------- snapshot ----------------------------------

// The blocks that a trial changes and must restore.
static const brim_block_id kept_blocks[] = {BRIM_BLOCK_PARAMS, BRIM_BLOCK_BUFFERS,
                                            BRIM_BLOCK_OPTIMIZER, BRIM_BLOCK_AVERAGE,
                                            BRIM_BLOCK_AVERAGE_BUFFERS};
enum { KEPT_BLOCKS = sizeof kept_blocks / sizeof *kept_blocks };

static brim_status copy_kept(brim_net *net, brim_copy direction) {
  unsigned char *at = net->snapshot;
  for (int i = 0; i < KEPT_BLOCKS; i++) {
    const brim_block *b = &net->blocks[kept_blocks[i]];
    bool out = direction == BRIM_COPY_D2H;
    if (b->bytes) {
      BRIM_TRY(brim_device_copy(net->device, out ? at : b->data, out ? b->data : at, b->bytes,
                                direction));
    }
    at += b->bytes;
  }
  return BRIM_OK;
}

brim_status brim_net_snapshot(brim_net *net) {
  size_t bytes = 0;
  for (int i = 0; i < KEPT_BLOCKS; i++) bytes += net->blocks[kept_blocks[i]].bytes;
  if (!net->snapshot) net->snapshot = brim_alloc(bytes);
  if (!net->snapshot) return brim_fail(BRIM_ENOMEM, "out of memory for a snapshot");
  brim_net_metrics ignored;
  BRIM_TRY(brim_net_read_metrics(net, false, &ignored));  // brings skipped_steps up to date
  BRIM_TRY(copy_kept(net, BRIM_COPY_D2H));
  BRIM_TRY(brim_exec_get_kept(net, net->snapshot_kept));
  net->snapshot_skipped = net->skipped_steps;
  net->snapshot_batches = net->batches;
  return brim_device_sync(net->device);
}

brim_status brim_net_restore(brim_net *net) {
  if (!net->snapshot) return brim_fail(BRIM_ESTATE, "there is no snapshot to restore");
  BRIM_TRY(copy_kept(net, BRIM_COPY_H2D));
  net->average_stale = net->averages;
  BRIM_TRY(brim_net_refresh_copy(net));
  BRIM_TRY(brim_exec_set_kept(net, net->snapshot_kept));
  net->skipped_steps = net->snapshot_skipped;
  net->batches = net->snapshot_batches;
  net->ring_count = 0;
  net->outputs_valid = false;
  net->exec.begun = false;
  return brim_device_sync(net->device);
}

//---------------------------------- copies and averages ----------------------------------

brim_status brim_net_refresh_copy(brim_net *net) {
  if (net->compute == net->master) return BRIM_OK;
  return brim_op_run(net->device, &net->cast_call);
}

brim_status brim_net_start_average(brim_net *net) {
  if (!net->averages) return BRIM_OK;
  net->average_stale = true;
  BRIM_TRY(brim_device_copy(net->device, net->blocks[BRIM_BLOCK_AVERAGE].data,
                            net->blocks[BRIM_BLOCK_PARAMS].data, brim_net_flat_bytes(net),
                            BRIM_COPY_D2D));
  return brim_net_start_statistics(net);
}

brim_status brim_net_start_statistics(brim_net *net) {
  if (!net->statistics_prepared) return BRIM_OK;
  return brim_device_copy(net->device, net->blocks[BRIM_BLOCK_AVERAGE_BUFFERS].data,
                          net->blocks[BRIM_BLOCK_BUFFERS].data,
                          net->blocks[BRIM_BLOCK_BUFFERS].bytes, BRIM_COPY_D2D);
}

void brim_engine_warn_statistics(const char *of) {
  brim_log_warn("engine",
                "%s: the averaged weights have no running statistics (written by an earlier "
                "version); brim uses those of the plain weights",
                of);
}

brim_status brim_net_refresh_average(brim_net *net) {
  if (!net->average_stale || net->compute == net->master) return BRIM_OK;
  BRIM_TRY(brim_op_run(net->device, &net->average_cast_call));
  net->average_stale = false;
  return BRIM_OK;
}
