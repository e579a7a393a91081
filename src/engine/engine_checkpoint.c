// The values of a network: layouts, initial values, access, the snapshot of a trial, copies derived from the
// weights, and checkpoints. Weights of convolutions are (M,C,R,S) outside, as in PyTorch, and (M,R,S,C') with
// padded channels in memory. Derived copies are the 16-bit copy of the weights, and the average with its
// statistics and its own 16-bit copy.
//
// A checkpoint is a safetensors file. Loading checks the whole file against the network before
// it changes anything, so a file that does not fit leaves the network as it was. Saving writes from
// the device, or from a copy held in host memory, so that the network can train on meanwhile. Model
// tensors have PyTorch's names, shapes and order of values, running statistics included.
//
// First weights may come from another run's file: the same network, one with another number of
// outputs, or one wrapped in another network (backbone.*). Small networks can also be turned into
// entries in memory, under a prefix, so that several of them share a file.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
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

//---------------------------------- copies to and from the device ----------------------------------

// Number of values that are converted between float and the master type at a time.
enum { PIECE = 256 };

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

//---------------------------------- copies and averages ----------------------------------

// Refreshes the 16-bit copy from the master, if the network has a copy.
static brim_status net_refresh_copy(brim_net *net) {
  if (net->compute == net->master) return BRIM_OK;
  return brim_op_run(net->device, &net->cast_call);
}

// Restarts the average of the running statistics from the statistics. Does nothing without an average.
static brim_status net_start_statistics(brim_net *net) {
  if (!net->statistics_prepared) return BRIM_OK;
  return brim_device_copy(net->device, net->blocks[BRIM_BLOCK_AVERAGE_BUFFERS].data,
                          net->blocks[BRIM_BLOCK_BUFFERS].data,
                          net->blocks[BRIM_BLOCK_BUFFERS].bytes, BRIM_COPY_D2D);
}

// Restarts the average from weights and running statistics. Does nothing without an average.
static brim_status net_start_average(brim_net *net) {
  if (!net->averages) return BRIM_OK;
  net->average_stale = true;
  BRIM_TRY(brim_device_copy(net->device, net->blocks[BRIM_BLOCK_AVERAGE].data,
                            net->blocks[BRIM_BLOCK_PARAMS].data, brim_net_flat_bytes(net),
                            BRIM_COPY_D2D));
  return net_start_statistics(net);
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

// Number of values of the device's state that a checkpoint keeps.
enum { BRIM_CHECKPOINT_STATE = BRIM_STATE_UPDATES - BRIM_STATE_HOST + 1 };

#define BRIM_AVERAGE_PREFIX "ema."  // prefix of the names of averages

// The kinds of entries in a checkpoint.
typedef enum checkpoint_kind {
  BRIM_ITEM_PARAM,
  BRIM_ITEM_M,
  BRIM_ITEM_V,
  BRIM_ITEM_BUFFER,
  BRIM_ITEM_AVERAGE,
  BRIM_ITEM_AVERAGE_BUFFER,
  BRIM_ITEM_TRACKED,  // num_batches_tracked of a batch norm, for PyTorch; not read here
  BRIM_ITEM_STATE,    // loss scale, good steps and updates made
  BRIM_ITEM_KIND_COUNT
} checkpoint_kind;

typedef struct checkpoint_item {
  checkpoint_kind kind;
  const brim_param *p;  // NULL for TRACKED and STATE
  const char *name;
  brim_dtype dtype;
  int32_t rank;
  int64_t dim[BRIM_MAX_RANK];
  bool optional;  // a file may lack it: the network continues with what it has
  bool reinit;    // true: a last layer that is not taken from the file
} checkpoint_item;

typedef struct checkpoint_list {
  checkpoint_item *items;
  size_t count;
  brim_arena *names;
} checkpoint_list;

//---------------------------------- initial values ----------------------------------

static void fill_uniform(uint64_t key, uint64_t index, const brim_param *p, float *out) {
  for (int64_t e = 0; e < p->outside_count; e++) {
    brim_philox4 r = brim_philox(key, index, (uint64_t)e / 4);
    out[e] = (2 * brim_rng_uniform(r.v[e % 4]) - 1) * (float)p->bound;
  }
}

// Fills with normal numbers. Box-Muller turns two uniform numbers into two normal numbers; a draw makes four.
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

// Fills an orthogonal matrix. A matrix that is wider than high is made as its transpose, as in PyTorch.
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

static int64_t params_largest(const brim_params *params) {
  int64_t most = 1;
  for (size_t i = 0; i < params->count; i++) {
    if (params->items[i].count > most) most = params->items[i].count;
  }
  return most;
}

// Floats of the largest parameter or buffer on the device.
static size_t net_largest(const brim_net *net) {
  int64_t params = params_largest(&net->params), buffers = params_largest(&net->buffers);
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
  size_t half = net_largest(net);  // enough for the outside layout, which has no padding
  float *scratch = brim_calloc(2 * half, sizeof *scratch);
  if (!scratch) return brim_fail(BRIM_ENOMEM, "out of memory for initial weights");
  brim_status status = init_list(net, &net->params, BRIM_BLOCK_PARAMS, scratch, half);
  if (!status) status = init_list(net, &net->buffers, BRIM_BLOCK_BUFFERS, scratch, half);
  brim_free(scratch);
  if (!status) status = net_start_average(net);
  return status ? status : net_refresh_copy(net);
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
  if (!status) status = net_refresh_copy(net);
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
  BRIM_TRY(net_refresh_copy(net));
  BRIM_TRY(brim_exec_set_kept(net, net->snapshot_kept));
  net->skipped_steps = net->snapshot_skipped;
  net->batches = net->snapshot_batches;
  net->ring_count = 0;
  net->outputs_valid = false;
  net->exec.begun = false;
  return brim_device_sync(net->device);
}

//---------------------------------- first weights from another run ----------------------------------

typedef checkpoint_item item;

// Prefixes of wrappers: brim's own contrastive training (an encoder, which has no last layer),
// PyTorch's DataParallel and compile, Lightning. Several may follow one another.
static const char encoder[] = "backbone.";
static const char *const around[] = {encoder, "module.", "_orig_mod.", "model."};

// Length of the wrappers' prefix in front of a name: 9 for "backbone.fc.bias".
static size_t around_length(const char *name) {
  size_t n = 0;
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < sizeof around / sizeof *around; i++) {
      if (!brim_str_starts(name + n, around[i])) continue;
      n += strlen(around[i]);
      more = true;
    }
  }
  return n;
}

// The entry of an item. weights_only: the averaged entry if the file has one. NULL = absent.
static const brim_safetensors_entry *find_entry(const brim_safetensors *file, const item *want,
                                                bool weights_only) {
  const brim_safetensors_entry *e = NULL;
  char name[512];
  if (weights_only && (want->kind == BRIM_ITEM_PARAM || want->kind == BRIM_ITEM_BUFFER)) {
    int n = snprintf(name, sizeof name, BRIM_AVERAGE_PREFIX "%s", want->name);
    if (n > 0 && (size_t)n < sizeof name) e = brim_safetensors_find(file, name);
  }
  return e ? e : brim_safetensors_find(file, want->name);
}

// Length of the layer's part of a parameter's name: "fc" of "fc.weight", nothing of "weight".
static size_t layer_length(const char *name) {
  const char *dot = strrchr(name, '.');
  return dot ? (size_t)(dot - name) : 0;
}

static bool same_layer(const char *a, const char *b) {
  size_t length = layer_length(a);
  return layer_length(b) == length && strncmp(a, b, length) == 0;
}

// True for parameters of the last layer. `last` is the name of the last parameter.
static bool in_head(const item *e, const char *last) {
  return e->kind == BRIM_ITEM_PARAM && same_layer(e->name, last);
}

// Finds the prefix in front of the network's names in the file: "" unless its first parameter
// exists only behind a prefix. A network of one layer would match too much.
static void find_inside(const brim_net *net, const brim_safetensors *file, brim_net_reinit *out) {
  const char *first = net->params.items[0].name;
  const char *last = net->params.items[net->params.count - 1].name;
  if (same_layer(first, last) || brim_safetensors_find(file, first)) return;
  for (size_t i = 0; i < brim_safetensors_count(file); i++) {
    const char *name = brim_safetensors_at(file, i)->name;
    size_t inside = around_length(name);
    if (inside == 0 || inside >= sizeof out->inside || strcmp(name + inside, first) != 0) continue;
    snprintf(out->inside, sizeof out->inside, "%.*s", (int)inside, name);
    return;
  }
}

static brim_status use_names(checkpoint_list *list, const char *inside) {
  for (size_t i = 0; inside[0] && i < list->count; i++) {
    item *e = &list->items[i];
    e->name = brim_arena_printf(list->names, "%s%s", inside, e->name);
    if (!e->name) return brim_fail(BRIM_ENOMEM, "out of memory for the names of a checkpoint");
  }
  return BRIM_OK;
}

// Marks the items of the last layer, whose parameters end the list, if that layer differs only in
// its first dimension or, in an encoder, is missing; `out` says so.
static brim_status mark_head(const brim_net *net, const char *path, const brim_safetensors *file,
                             const char *last, checkpoint_list *list, brim_net_reinit *out) {
  size_t head = 0, differ = 0;
  bool of_encoder = brim_str_ends(out->inside, encoder);
  for (size_t i = 0; i < list->count; i++) {
    const item *e = &list->items[i];
    if (!in_head(e, last)) continue;
    const brim_safetensors_entry *from = find_entry(file, e, true);
    head++;
    out->outputs = e->dim[0];
    if (of_encoder && from) {
      return brim_fail(BRIM_EINVAL,
                       "%s: its encoder is deeper than this network, whose last layer would be "
                       "'%s'; use a model with the encoder's depth",
                       path, from->name);
    }
    if (of_encoder) continue;
    if (!from || from->rank != e->rank || e->rank < 1) return BRIM_OK;
    for (int k = 1; k < e->rank; k++) {
      if (from->dim[k] != e->dim[k]) return BRIM_OK;
    }
    differ += from->dim[0] != e->dim[0];
    out->had = from->dim[0];
  }
  // a network of one layer would take nothing from the file
  if (head == 0 || head == net->params.count || (!of_encoder && differ != head)) return BRIM_OK;
  for (size_t i = 0; i < list->count; i++) list->items[i].reinit = in_head(&list->items[i], last);
  out->is = true;
  const char *layer = last + strlen(out->inside);
  snprintf(out->layer, sizeof out->layer, "%.*s", (int)layer_length(layer), layer);
  return BRIM_OK;
}

// Finds a network's first weights in the file of another run, and decides if the last layer is taken from the
// file. The items get the file's names.
static brim_status find_start(const brim_net *net, const char *path, const brim_safetensors *file,
                              checkpoint_list *list, brim_net_reinit *out) {
  if (net->params.count == 0) return BRIM_OK;
  find_inside(net, file, out);
  BRIM_TRY(use_names(list, out->inside));
  const char *last = net->params.items[net->params.count - 1].name;
  if (out->inside[0]) last = brim_arena_printf(list->names, "%s%s", out->inside, last);
  if (!last) return brim_fail(BRIM_ENOMEM, "out of memory for the names of a checkpoint");
  return mark_head(net, path, file, last, list, out);
}

//---------------------------------- the entries ----------------------------------

static const char optimizer_prefix[] = "optimizer.";
static const char running_mean[] = ".running_mean";

typedef checkpoint_item item;
typedef checkpoint_list item_list;

static const char *const prefixes[BRIM_ITEM_KIND_COUNT] = {
    [BRIM_ITEM_PARAM] = "",
    [BRIM_ITEM_M] = "optimizer.m.",
    [BRIM_ITEM_V] = "optimizer.v.",
    [BRIM_ITEM_BUFFER] = "",
    [BRIM_ITEM_AVERAGE] = BRIM_AVERAGE_PREFIX,
    [BRIM_ITEM_AVERAGE_BUFFER] = BRIM_AVERAGE_PREFIX};

//---------------------------------- the list ----------------------------------

static void list_deinit(item_list *list) {
  brim_free(list->items);
  brim_arena_destroy(list->names);
  memset(list, 0, sizeof *list);
}

static brim_status list_params(item_list *list, checkpoint_kind kind, const brim_params *params) {
  for (size_t i = 0; i < params->count; i++) {
    const brim_param *p = &params->items[i];
    item *e = &list->items[list->count++];
    *e = (item){.kind = kind, .p = p, .dtype = BRIM_F32, .rank = p->outside.rank};
    e->optional = kind == BRIM_ITEM_AVERAGE || kind == BRIM_ITEM_AVERAGE_BUFFER;
    memcpy(e->dim, p->outside.dim, sizeof e->dim);
    e->name = brim_arena_printf(list->names, "%s%s", prefixes[kind], p->name);
    if (!e->name) return brim_fail(BRIM_ENOMEM, "out of memory for the names of a checkpoint");
  }
  return BRIM_OK;
}

static brim_status list_tracked(item_list *list, const brim_params *buffers) {
  for (size_t i = 0; i < buffers->count; i++) {
    const char *name = buffers->items[i].name;
    size_t length = strlen(name), tail = sizeof running_mean - 1;
    if (length < tail || strcmp(name + length - tail, running_mean) != 0) continue;
    item *e = &list->items[list->count++];
    *e = (item){.kind = BRIM_ITEM_TRACKED, .dtype = BRIM_I64, .optional = true};
    e->name =
        brim_arena_printf(list->names, "%.*s.num_batches_tracked", (int)(length - tail), name);
    if (!e->name) return brim_fail(BRIM_ENOMEM, "out of memory for the names of a checkpoint");
  }
  return BRIM_OK;
}

// Lists all entries, or with weights_only those of the model. Call list_deinit even after a failure.
static brim_status list_make(const brim_net *net, bool weights_only, item_list *list) {
  memset(list, 0, sizeof *list);
  size_t most = 4 * net->params.count + 3 * net->buffers.count + 1;
  list->items = brim_calloc(most, sizeof *list->items);
  if (!list->items) return brim_fail(BRIM_ENOMEM, "out of memory for the entries of a checkpoint");
  BRIM_TRY(brim_arena_create(0, &list->names));
  // The widest types first, so that every value is aligned in the file, as readers expect.
  BRIM_TRY(list_tracked(list, &net->buffers));
  if (!weights_only) {
    item *e = &list->items[list->count++];
    *e = (item){.kind = BRIM_ITEM_STATE, .name = "optimizer.state", .dtype = BRIM_F64, .rank = 1};
    e->dim[0] = BRIM_CHECKPOINT_STATE;
    // Only Adam needs the step count: without it its averages would restart.
    e->optional = net->slots < 2;
  }
  BRIM_TRY(list_params(list, BRIM_ITEM_PARAM, &net->params));
  BRIM_TRY(list_params(list, BRIM_ITEM_BUFFER, &net->buffers));
  if (weights_only) return BRIM_OK;
  if (net->averages) BRIM_TRY(list_params(list, BRIM_ITEM_AVERAGE, &net->params));
  if (net->averages) BRIM_TRY(list_params(list, BRIM_ITEM_AVERAGE_BUFFER, &net->buffers));
  if (net->slots > 0) BRIM_TRY(list_params(list, BRIM_ITEM_M, &net->params));
  return net->slots > 1 ? list_params(list, BRIM_ITEM_V, &net->params) : BRIM_OK;
}

// Puts `prefix` in front of the items' names.
static brim_status list_prefix(checkpoint_list *list, const char *prefix) {
  for (size_t i = 0; i < list->count; i++) {
    item *e = &list->items[i];
    e->name = brim_arena_printf(list->names, "%s%s", prefix, e->name);
    if (!e->name) return brim_fail(BRIM_ENOMEM, "out of memory for the names of a checkpoint");
  }
  return BRIM_OK;
}

static size_t item_bytes(const item *e) {
  return e->p                           ? (size_t)e->p->outside_count * sizeof(float)
         : e->kind == BRIM_ITEM_TRACKED ? sizeof(int64_t)
                                        : BRIM_CHECKPOINT_STATE * sizeof(double);
}

static brim_block_id item_block(const item *e) {
  switch (e->kind) {
    case BRIM_ITEM_PARAM:
      return BRIM_BLOCK_PARAMS;
    case BRIM_ITEM_BUFFER:
      return BRIM_BLOCK_BUFFERS;
    case BRIM_ITEM_AVERAGE:
      return BRIM_BLOCK_AVERAGE;
    case BRIM_ITEM_AVERAGE_BUFFER:
      return BRIM_BLOCK_AVERAGE_BUFFERS;
    default:
      return BRIM_BLOCK_OPTIMIZER;
  }
}

static unsigned char *item_place(const brim_net *net, const item *e) {
  bool slot = e->kind == BRIM_ITEM_M || e->kind == BRIM_ITEM_V;
  unsigned char *base =
      slot ? brim_net_slot(net, e->kind == BRIM_ITEM_V) : net->blocks[item_block(e)].data;
  return base + (size_t)e->p->offset * sizeof(float);
}

// BRIM_EUNSUPPORTED if the network's own weights are not f32.
static brim_status check_master(const brim_net *net) {
  if (net->master == BRIM_F32) return BRIM_OK;
  return brim_fail(BRIM_EUNSUPPORTED, "checkpoints hold f32, but this network uses %s",
                   brim_dtype_name(net->master));
}

//---------------------------------- loading ----------------------------------

static void shape_text(int32_t rank, const int64_t *dim, char out[128]) {
  size_t n = (size_t)snprintf(out, 128, "(");
  for (int i = 0; i < rank && n < 100; i++) {
    n += (size_t)snprintf(out + n, 128 - n, "%s%lld", i ? ", " : "", (long long)dim[i]);
  }
  snprintf(out + n, 128 - n, ")");
}

// Fails because an entry is missing. If its name exists with the prefix of a wrapper, the message says so.
static brim_status fail_missing(const char *path, const item *want, const brim_safetensors *file) {
  for (size_t i = 0; i < brim_safetensors_count(file); i++) {
    const char *name = brim_safetensors_at(file, i)->name;
    size_t inside = around_length(name);
    if (inside == 0 || strcmp(name + inside, want->name) != 0) continue;
    return brim_fail(BRIM_EINVAL,
                     "%s: entry '%s' is missing, but '%s' exists: this network is part of a larger "
                     "one there; start from it with --weights",
                     path, want->name, name);
  }
  return brim_fail(BRIM_EINVAL,
                   "%s: entry '%s' is missing; does the file belong to another model or optimizer?",
                   path, want->name);
}

static brim_status check_entry(const char *path, const item *want, const brim_safetensors *file,
                               const brim_safetensors_entry *e) {
  if (!e) return fail_missing(path, want, file);
  if (e->dtype != want->dtype) {
    return brim_fail(BRIM_EINVAL, "%s: entry '%s' is %s, expected %s", path, want->name,
                     brim_dtype_name(e->dtype), brim_dtype_name(want->dtype));
  }
  bool same = e->rank == want->rank;
  for (int i = 0; same && i < e->rank; i++) same = e->dim[i] == want->dim[i];
  if (same) return BRIM_OK;
  char have[128], expected[128];
  shape_text(e->rank, e->dim, have);
  shape_text(want->rank, want->dim, expected);
  return brim_fail(BRIM_EINVAL,
                   "%s: entry '%s' has shape %s, expected %s: it comes from another model, sample "
                   "shape or number of classes; compare with the config.yaml of its run",
                   path, want->name, have, expected);
}

static bool is_buffer(const item *e) {
  return e->kind == BRIM_ITEM_BUFFER || e->kind == BRIM_ITEM_AVERAGE_BUFFER;
}

// Refuses numbers that no run of brim can have written.
static brim_status check_range(const char *path, const item *want,
                               const brim_safetensors_entry *e) {
  bool good = true;
  if (want->kind == BRIM_ITEM_TRACKED) {
    int64_t tracked;
    memcpy(&tracked, e->data, sizeof tracked);
    good = tracked >= 0;
  } else if (want->kind == BRIM_ITEM_STATE) {
    double v[BRIM_CHECKPOINT_STATE];
    int exponent;
    memcpy(v, e->data, sizeof v);
    good = v[0] >= 1 && v[0] <= 16777216 && frexp(v[0], &exponent) == 0.5;
    for (int i = 1; good && i < BRIM_CHECKPOINT_STATE; i++) good = v[i] >= 0 && v[i] == floor(v[i]);
  } else if (want->kind == BRIM_ITEM_V || (is_buffer(want) && brim_str_ends(want->name, "_var"))) {
    for (size_t i = 0; good && i < e->bytes / sizeof(float); i++) {
      float value;
      memcpy(&value, (const char *)e->data + i * sizeof value, sizeof value);
      good = value >= 0;
    }
  }
  if (good) return BRIM_OK;
  return brim_fail(BRIM_EINVAL, "%s: entry '%s' holds a value that training cannot produce", path,
                   e->name);
}

static bool is_wanted(const item_list *list, const char *name) {
  for (size_t i = 0; i < list->count; i++) {
    if (strcmp(list->items[i].name, name) == 0) return true;
  }
  return false;
}

// The averages found in the file. weights, statistics: the file has averages of these. missing: running
// statistics without an average, as in files of an earlier version.
typedef struct averages {
  bool weights, statistics, missing;
} averages;

static void note_average(averages *a, const item *want, const brim_safetensors_entry *e) {
  bool averaged = e && brim_str_starts(e->name, BRIM_AVERAGE_PREFIX);
  if (want->kind == BRIM_ITEM_PARAM || want->kind == BRIM_ITEM_AVERAGE) a->weights |= averaged;
  if (!is_buffer(want)) return;
  a->statistics |= averaged;
  a->missing |= !averaged;
}

static void warn_missing(const char *path, const averages *a) {
  if (a->weights && a->missing) brim_engine_warn_statistics(path);
}

static bool of_optimizer_inside(const char *name, const char *inside) {
  return brim_str_starts(name, inside) && brim_str_starts(name + strlen(inside), optimizer_prefix);
}

// Explains that the file is a model, without optimizer state, where a checkpoint is needed.
static brim_status check_optimizer(const item *want, const char *path, const brim_safetensors *file,
                                   const char *inside) {
  bool of_optimizer = of_optimizer_inside(want->name, inside);
  for (size_t i = 0; of_optimizer && i < brim_safetensors_count(file); i++) {
    if (of_optimizer_inside(brim_safetensors_at(file, i)->name, inside)) of_optimizer = false;
  }
  if (!of_optimizer) return BRIM_OK;
  return brim_fail(BRIM_EINVAL,
                   "%s: entry '%s' is missing: the file holds weights only; start from it with "
                   "--weights, or resume from last.safetensors or step-*.safetensors",
                   path, want->name);
}

// Checks that every entry that the network needs exists and fits. Refuses other entries, except averages and the
// entries of a wrapper.
static brim_status check_file(const item_list *list, const char *path, const brim_safetensors *file,
                              const char *inside, bool weights_only) {
  for (size_t i = 0; i < list->count; i++) {
    const item *want = &list->items[i];
    const brim_safetensors_entry *e = find_entry(file, want, weights_only);
    if (want->reinit || (!e && want->optional)) continue;
    if (!e) BRIM_TRY(check_optimizer(want, path, file, inside));
    BRIM_TRY(check_entry(path, want, file, e));
    BRIM_TRY(brim_safetensors_finite(file, e));
    BRIM_TRY(check_range(path, want, e));
  }
  for (size_t i = 0; i < brim_safetensors_count(file); i++) {
    const char *entry = brim_safetensors_at(file, i)->name;
    if (!brim_str_starts(entry, inside)) continue;
    const char *name = entry + strlen(inside);
    if (weights_only && brim_str_starts(name, optimizer_prefix)) continue;
    if (brim_str_starts(name, BRIM_AVERAGE_PREFIX)) continue;
    if (!is_wanted(list, entry)) {
      if (brim_str_starts(name, optimizer_prefix)) {
        return brim_fail(BRIM_EINVAL,
                         "%s: the file holds the state of another optimizer (entry '%s'); train "
                         "with that optimizer, or use only the weights with --weights",
                         path, entry);
      }
      return brim_fail(BRIM_EINVAL, "%s: entry '%s' does not belong to this network", path, entry);
    }
  }
  return BRIM_OK;
}

static brim_status load_item(brim_net *net, const item *e, const brim_safetensors_entry *from,
                             float *scratch) {
  if (e->kind == BRIM_ITEM_TRACKED) {
    memcpy(&net->batches, from->data, sizeof net->batches);
    return BRIM_OK;
  }
  if (e->kind == BRIM_ITEM_STATE) {
    double kept[BRIM_EXEC_KEPT] = {0};
    memcpy(kept, from->data, BRIM_CHECKPOINT_STATE * sizeof *kept);
    if (net->precision != BRIM_PRECISION_FP16) {  // the file's run may have used fp16
      kept[BRIM_STATE_LOSS_SCALE - BRIM_STATE_HOST] = 1;
      kept[BRIM_STATE_GOOD_STEPS - BRIM_STATE_HOST] = 0;
    }
    return brim_exec_set_kept(net, kept);
  }
  size_t half = net_largest(net);
  memcpy(scratch + half, from->data, from->bytes);  // the file's data may be unaligned
  brim_param_import(e->p, scratch + half, scratch);
  BRIM_TRY(brim_device_copy(net->device, item_place(net, e), scratch,
                            (size_t)e->p->count * sizeof(float), BRIM_COPY_H2D));
  return brim_device_sync(net->device);  // the next item reuses the scratch
}

static brim_status load_items(brim_net *net, const item_list *list, const char *path,
                              const brim_safetensors *file, bool weights_only) {
  size_t half = net_largest(net);
  float *scratch = brim_calloc(2 * (half > 2 ? half : 2), sizeof *scratch);
  if (!scratch) return brim_fail(BRIM_ENOMEM, "out of memory for the weights of a checkpoint");
  brim_status status = BRIM_OK;
  averages have = {0};
  for (size_t i = 0; !status && i < list->count; i++) {
    const brim_safetensors_entry *e = find_entry(file, &list->items[i], weights_only);
    if (list->items[i].reinit) continue;
    if (e) status = load_item(net, &list->items[i], e, scratch);
    bool own =
        weights_only || list->items[i].kind != BRIM_ITEM_BUFFER;  // else its average has an item
    if (own) note_average(&have, &list->items[i], e);
  }
  brim_free(scratch);
  net->average_stale = net->averages;
  bool kept = !weights_only && have.weights;
  if (!status && !kept) status = net_start_average(net);
  if (!status && kept && !have.statistics) status = net_start_statistics(net);
  if (!status) warn_missing(path, &have);
  if (!status) status = net_refresh_copy(net);
  net->outputs_valid = false;
  return status ? status : brim_device_sync(net->device);
}

static brim_status load(brim_net *net, const char *path, bool weights_only, brim_net_reinit *reinit,
                        json_t **metadata) {
  if (metadata) *metadata = NULL;
  BRIM_TRY(check_master(net));
  brim_safetensors *file = NULL;
  item_list list = {0};
  json_t *copy = NULL;
  BRIM_TRY(brim_safetensors_open(path, &file));
  brim_status status = brim_safetensors_verify(file);
  if (!status) status = list_make(net, weights_only, &list);
  if (!status && reinit) status = find_start(net, path, file, &list, reinit);
  if (!status) status = check_file(&list, path, file, reinit ? reinit->inside : "", weights_only);
  if (!status && metadata) {
    status = brim_safetensors_copy_metadata(brim_safetensors_metadata(file), &copy);
  }
  if (!status) status = load_items(net, &list, path, file, weights_only);
  list_deinit(&list);
  brim_safetensors_close(file);
  // the checksum belongs to the file, not to the user's metadata
  if (copy) (void)json_object_del(copy, BRIM_SAFETENSORS_SUM);
  if (status) {
    json_decref(copy);
    return status;
  }
  if (metadata) *metadata = copy;
  return BRIM_OK;
}

brim_status brim_net_load(brim_net *net, const char *path, bool weights_only, json_t **metadata) {
  return load(net, path, weights_only, NULL, metadata);
}

brim_status brim_net_start(brim_net *net, const char *path, brim_net_reinit *reinit) {
  memset(reinit, 0, sizeof *reinit);
  return load(net, path, true, reinit, NULL);
}

// Lists one network of a file with several.
static brim_status list_inside(const brim_net *net, const char *prefix, bool weights_only,
                               item_list *list) {
  BRIM_TRY(check_master(net));
  brim_status status = list_make(net, weights_only, list);
  if (!status) status = list_prefix(list, prefix);
  if (status) list_deinit(list);
  return status;
}

brim_status brim_net_entries_check(const brim_net *net, const brim_net_part *part) {
  item_list list;
  BRIM_TRY(list_inside(net, part->prefix, part->weights_only, &list));
  brim_status status = check_file(&list, part->path, part->file, part->prefix, part->weights_only);
  list_deinit(&list);
  return status;
}

brim_status brim_net_entries_take(brim_net *net, const brim_net_part *part) {
  item_list list;
  BRIM_TRY(list_inside(net, part->prefix, part->weights_only, &list));
  brim_status status = check_file(&list, part->path, part->file, part->prefix, part->weights_only);
  if (!status) status = load_items(net, &list, part->path, part->file, part->weights_only);
  list_deinit(&list);
  return status;
}

//---------------------------------- for use ----------------------------------

// The entry of a weight: the averaged one if it exists.
static brim_status find_weight(item_list *list, const brim_safetensors *file, const item *want,
                               const char *prefix, const brim_safetensors_entry **out) {
  *out = NULL;
  if (prefix) {
    const char *name = brim_arena_printf(list->names, "%s%s", prefix, want->name);
    if (!name) return brim_fail(BRIM_ENOMEM, "out of memory for the names of a checkpoint");
    *out = brim_safetensors_find(file, name);
  }
  if (!*out) *out = brim_safetensors_find(file, want->name);
  return BRIM_OK;
}

static brim_status load_weights(brim_net *net, item_list *list, const char *path,
                                const brim_safetensors *file, const char *prefix) {
  size_t half = net_largest(net);
  const brim_safetensors_entry *e;
  for (size_t i = 0; i < list->count; i++) {
    const item *want = &list->items[i];
    BRIM_TRY(find_weight(list, file, want, prefix, &e));
    if (!e && want->optional) continue;
    BRIM_TRY(check_entry(path, want, file, e));
    BRIM_TRY(brim_safetensors_finite(file, e));
    BRIM_TRY(check_range(path, want, e));
  }
  float *scratch = brim_calloc(2 * (half > 2 ? half : 2), sizeof *scratch);
  if (!scratch) return brim_fail(BRIM_ENOMEM, "out of memory for the weights of a checkpoint");
  brim_status status = BRIM_OK;
  averages have = {0};
  for (size_t i = 0; !status && i < list->count; i++) {
    status = find_weight(list, file, &list->items[i], prefix, &e);
    if (!status && e) status = load_item(net, &list->items[i], e, scratch);
    if (!status) note_average(&have, &list->items[i], e);
  }
  brim_free(scratch);
  if (!status) warn_missing(path, &have);
  if (!status) status = net_start_average(net);
  if (!status) status = net_refresh_copy(net);
  net->outputs_valid = false;
  return status ? status : brim_device_sync(net->device);
}

brim_status brim_net_load_weights(brim_net *net, const char *path, const char *prefix) {
  BRIM_TRY(check_master(net));
  brim_safetensors *file = NULL;
  item_list list = {0};
  BRIM_TRY(brim_safetensors_open(path, &file));
  brim_status status = brim_safetensors_verify(file);
  if (!status) status = list_make(net, true, &list);
  if (!status) status = load_weights(net, &list, path, file, prefix);
  list_deinit(&list);
  brim_safetensors_close(file);
  return status;
}

//---------------------------------- saving ----------------------------------

typedef checkpoint_item item;
typedef checkpoint_list item_list;

//---------------------------------- values ----------------------------------

// Values go from the device to the file in pieces, so that a save touches little memory of its own:
// the pages of a full copy would cost more than the conversion. A held checkpoint has that copy.
enum { WINDOW_BYTES = 4 << 20, PIECE_BYTES = 128 << 10 };

struct brim_net_held {
  brim_net *net;
  item_list list;
  brim_safetensors_entry *entries;
  json_t *metadata;
  int64_t batches;
  double kept[BRIM_EXEC_KEPT];
  // A window on bytes [at, at + n) of the device's memory; unused on devices in host memory.
  unsigned char *window;
  const unsigned char *at;
  size_t n, capacity;
  // Copies of the blocks that entries lie in; NULL = not held. The device frees page-locked ones.
  unsigned char *copies[BRIM_BLOCK_COUNT];
  bool locked[BRIM_BLOCK_COUNT];
  float *piece;  // values in PyTorch's order, on their way to the file
};

typedef brim_net_held saver;

static size_t row_bytes(const brim_param *p) {
  return (size_t)(p->count / p->desc.dim[0]) * sizeof(float);
}

// Bytes of an item's block from `at` on.
static size_t block_rest(const brim_net *net, const item *e, const unsigned char *at) {
  const brim_block *b = &net->blocks[item_block(e)];
  return (size_t)(b->data + b->bytes - at);
}

// Returns n bytes at `at` (at most the capacity) for the host to read. Parameters lie one after
// another in their block, so one copy also brings what the next calls ask for.
static brim_status read_window(saver *s, const item *e, const unsigned char *at, size_t n,
                               const unsigned char **out) {
  const unsigned char *copy = s->copies[item_block(e)];
  *out = copy ? copy + (at - s->net->blocks[item_block(e)].data) : at;
  if (!s->window) return BRIM_OK;
  // at first the window is empty, and NULL must not be added to
  bool held = s->n > 0 && at >= s->at && at + n <= s->at + s->n;
  if (!held) {
    size_t rest = block_rest(s->net, e, at);
    s->n = rest < s->capacity ? rest : s->capacity;
    s->at = at;
    BRIM_TRY(brim_device_copy(s->net->device, s->window, at, s->n, BRIM_COPY_D2H));
    BRIM_TRY(brim_device_sync(s->net->device));
  }
  *out = s->window + (at - s->at);
  return BRIM_OK;
}

static brim_status put_values(saver *s, const item *e, brim_fs_writer *w) {
  const unsigned char *at = item_place(s->net, e), *values;
  bool same = brim_param_same_layout(e->p);
  size_t left = (size_t)e->p->count * sizeof(float), row = same ? 1 : row_bytes(e->p);
  size_t most = !same ? PIECE_BYTES : s->window ? s->capacity : left;
  size_t step = most > row ? most / row * row : row;
  for (; left; at += step, left -= step) {
    if (step > left) step = left;
    BRIM_TRY(read_window(s, e, at, step, &values));
    if (same) {
      BRIM_TRY(brim_fs_writer_write(w, values, step));
      continue;
    }
    size_t rows = step / row, outside = item_bytes(e) / (size_t)e->p->outside.dim[0];
    brim_param_export_rows(e->p, rows, (const float *)(const void *)values, s->piece);
    BRIM_TRY(brim_fs_writer_write(w, s->piece, rows * outside));
  }
  return BRIM_OK;
}

static brim_status put_item(void *ctx, size_t i, brim_fs_writer *w) {
  saver *s = ctx;
  const item *e = &s->list.items[i];
  if (e->kind == BRIM_ITEM_TRACKED) return brim_fs_writer_write(w, &s->batches, sizeof s->batches);
  if (e->kind == BRIM_ITEM_STATE) {
    return brim_fs_writer_write(w, s->kept, BRIM_CHECKPOINT_STATE * sizeof *s->kept);
  }
  return put_values(s, e, w);
}

// Allocates room for the largest row to convert, or for several small rows.
static brim_status make_piece(saver *s, size_t *most) {
  *most = PIECE_BYTES;
  for (size_t i = 0; i < s->list.count; i++) {
    const brim_param *p = s->list.items[i].p;
    if (p && !brim_param_same_layout(p) && row_bytes(p) > *most) *most = row_bytes(p);
  }
  s->piece = brim_alloc(*most);
  if (s->piece) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM, "out of memory for a copy of the weights");
}

static brim_status make_window(saver *s, size_t most) {
  brim_device *device = s->net->device;
  if (device->info.host_memory) return BRIM_OK;
  s->capacity = most > WINDOW_BYTES ? most : WINDOW_BYTES;
  void *window;
  BRIM_TRY(brim_device_alloc(device, BRIM_BUFFER_HOST, s->capacity, &window));
  s->window = window;
  return BRIM_OK;
}

// Fails if a copy would take more than half of the free memory: Linux grants more memory than it has and kills
// the process that uses it. *lock: largest size of a copy that may stay page-locked until the next checkpoint.
static brim_status check_room(const brim_net *net, size_t bytes, uint64_t *lock) {
  uint64_t left = 0, all = 0;
  brim_machine_free_memory(net->hooks.machine ? net->hooks.machine : "", &left, &all);
  *lock = all / 16;
  if (bytes == 0 || all == 0 || bytes < left / 2) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM, "out of memory for a copy of the weights");
}

// Copies a block to host memory. Reuses the last checkpoint's copy, since fresh pages cost many times the copying.
static brim_status make_copy(saver *s, int block, bool lock) {
  brim_device *device = s->net->device;
  size_t bytes = s->net->blocks[block].bytes;
  void *room = s->net->reusable[block];
  s->net->reusable[block] = NULL;
  if (!room && lock && brim_device_alloc(device, BRIM_BUFFER_HOST, bytes, &room)) {
    brim_status_clear();  // no page-locked memory: try pageable memory
    room = NULL;
  }
  s->locked[block] = room != NULL;
  if (!room) room = brim_alloc(bytes);
  if (!room) return brim_fail(BRIM_ENOMEM, "out of memory for a copy of the weights");
  s->copies[block] = room;
  return brim_device_copy(device, room, s->net->blocks[block].data, bytes, BRIM_COPY_D2H);
}

static void free_copy(saver *s, int block) {
  if (!s->locked[block]) {
    brim_free(s->copies[block]);
  } else if (!s->net->reusable[block]) {
    s->net->reusable[block] = s->copies[block];
  } else {
    brim_device_free(s->net->device, BRIM_BUFFER_HOST, s->copies[block]);
  }
}

static brim_status make_copies(saver *s) {
  bool wanted[BRIM_BLOCK_COUNT] = {false};
  size_t all = 0, fresh = 0;
  uint64_t lock = 0;
  for (size_t i = 0; i < s->list.count; i++) {
    const item *e = &s->list.items[i];
    if (e->p) wanted[item_block(e)] = true;
  }
  for (int i = 0; i < BRIM_BLOCK_COUNT; i++) {
    if (!wanted[i]) continue;
    all += s->net->blocks[i].bytes;
    fresh += s->net->reusable[i] ? 0 : s->net->blocks[i].bytes;
  }
  BRIM_TRY(check_room(s->net, fresh, &lock));
  bool locked = all <= lock && !s->net->device->info.host_memory;
  for (int i = 0; i < BRIM_BLOCK_COUNT; i++) {
    if (wanted[i]) BRIM_TRY(make_copy(s, i, locked));
  }
  return BRIM_OK;
}

// Makes the average the model: the entries have the average's values under the model's names.
static void take_average(item_list *list) {
  for (size_t i = 0; i < list->count; i++) {
    item *e = &list->items[i];
    if (e->kind == BRIM_ITEM_BUFFER) e->kind = BRIM_ITEM_AVERAGE_BUFFER;
    if (e->kind == BRIM_ITEM_PARAM) e->kind = BRIM_ITEM_AVERAGE;
  }
}

// The metadata, with room for the checksum that the writer fills in.
static brim_status with_sum(const json_t *metadata, json_t **out) {
  brim_json_setup();
  BRIM_TRY(brim_safetensors_copy_metadata(metadata, out));
  brim_status status = brim_json_put(*out, BRIM_SAFETENSORS_SUM, json_string(""));
  if (status) {
    json_decref(*out);
    *out = NULL;
  }
  return status;
}

static brim_status make_entries(saver *s) {
  s->entries = brim_calloc(s->list.count, sizeof *s->entries);
  if (!s->entries) {
    return brim_fail(BRIM_ENOMEM, "out of memory for the entries of a checkpoint");
  }
  for (size_t i = 0; i < s->list.count; i++) {
    const item *e = &s->list.items[i];
    s->entries[i] = (brim_safetensors_entry){
        .name = e->name, .dtype = e->dtype, .rank = e->rank, .bytes = item_bytes(e)};
    memcpy(s->entries[i].dim, e->dim, sizeof e->dim);
  }
  return BRIM_OK;
}

static brim_status saver_init(saver *s, brim_net *net, const json_t *metadata, bool weights_only,
                              bool hold) {
  size_t most = 0;
  memset(s, 0, sizeof *s);
  s->net = net;
  s->batches = net->batches;
  BRIM_TRY(check_master(net));
  BRIM_TRY(list_make(net, weights_only, &s->list));
  BRIM_TRY(with_sum(metadata, &s->metadata));
  if (weights_only && net->averages) take_average(&s->list);
  BRIM_TRY(make_entries(s));
  BRIM_TRY(make_piece(s, &most));
  BRIM_TRY(hold ? make_copies(s) : make_window(s, most));
  BRIM_TRY(brim_device_sync(net->device));
  return weights_only ? BRIM_OK : brim_exec_get_kept(net, s->kept);
}

static void saver_deinit(saver *s) {
  brim_device_free(s->net->device, BRIM_BUFFER_HOST, s->window);
  for (int i = 0; i < BRIM_BLOCK_COUNT; i++) free_copy(s, i);
  json_decref(s->metadata);
  brim_free(s->entries);
  brim_free(s->piece);
  list_deinit(&s->list);
}

static brim_status saver_write(saver *s, const char *path) {
  return brim_safetensors_write_with(path, s->entries, s->list.count, s->metadata, put_item, s);
}

brim_status brim_net_save(brim_net *net, const char *path, const json_t *metadata,
                          bool weights_only) {
  saver s;
  brim_status status = saver_init(&s, net, metadata, weights_only, false);
  if (!status) status = saver_write(&s, path);
  saver_deinit(&s);
  return status;
}

brim_status brim_net_hold(brim_net *net, const json_t *metadata, bool weights_only,
                          brim_net_held **out) {
  *out = NULL;
  saver *s = brim_alloc(sizeof *s);
  if (!s) return brim_fail(BRIM_ENOMEM, "out of memory for a copy of the weights");
  brim_status status = saver_init(s, net, metadata, weights_only, true);
  if (status) {
    (void)brim_device_sync(net->device);  // copies may still run
    brim_net_held_free(s);
    return status;
  }
  *out = s;
  return BRIM_OK;
}

brim_status brim_net_held_write(brim_net_held *held, const char *path) {
  return saver_write(held, path);
}

void brim_net_held_free(brim_net_held *held) {
  if (!held) return;
  saver_deinit(held);
  brim_free(held);
}

//---------------------------------- entries in memory ----------------------------------

typedef checkpoint_item item;

struct brim_net_entries {
  checkpoint_list list;
  brim_safetensors_entry *entries;
  unsigned char *values;
};

static size_t padded(size_t bytes) { return (bytes + 7) & ~(size_t)7; }

static brim_status copy_values(brim_net *net, const item *e, float *inside, void *to) {
  BRIM_TRY(brim_device_copy(net->device, inside, item_place(net, e),
                            (size_t)e->p->count * sizeof(float), BRIM_COPY_D2H));
  BRIM_TRY(brim_device_sync(net->device));
  brim_param_export(e->p, inside, (float *)to);
  return BRIM_OK;
}

static brim_status copy_item(brim_net *net, const item *e, float *inside, void *to) {
  double kept[BRIM_EXEC_KEPT];
  if (e->kind == BRIM_ITEM_TRACKED) {
    memcpy(to, &net->batches, sizeof net->batches);
    return BRIM_OK;
  }
  if (e->kind != BRIM_ITEM_STATE) return copy_values(net, e, inside, to);
  BRIM_TRY(brim_exec_get_kept(net, kept));
  memcpy(to, kept, BRIM_CHECKPOINT_STATE * sizeof *kept);
  return BRIM_OK;
}

static brim_status fill(brim_net *net, brim_net_entries *out) {
  size_t bytes = 0;
  for (size_t i = 0; i < out->list.count; i++) {
    bytes += padded(item_bytes(&out->list.items[i]));
  }
  out->values = brim_alloc(bytes + 8);
  out->entries = brim_calloc(out->list.count + 1, sizeof *out->entries);
  float *inside = brim_calloc(net_largest(net) + 1, sizeof *inside);
  brim_status status = out->values && out->entries && inside
                           ? BRIM_OK
                           : brim_fail(BRIM_ENOMEM, "out of memory for a copy of the weights");
  unsigned char *at = out->values;
  for (size_t i = 0; !status && i < out->list.count; i++) {
    const item *e = &out->list.items[i];
    out->entries[i] = (brim_safetensors_entry){
        .name = e->name, .dtype = e->dtype, .rank = e->rank, .data = at, .bytes = item_bytes(e)};
    memcpy(out->entries[i].dim, e->dim, sizeof e->dim);
    status = copy_item(net, e, inside, at);
    at += padded(out->entries[i].bytes);
  }
  brim_free(inside);
  return status;
}

brim_status brim_net_entries_copy(brim_net *net, const char *prefix, bool weights_only,
                                  brim_net_entries **out) {
  *out = NULL;
  BRIM_TRY(check_master(net));
  brim_net_entries *copy = brim_calloc(1, sizeof *copy);
  if (!copy) return brim_fail(BRIM_ENOMEM, "out of memory for a copy of the weights");
  brim_status status = list_make(net, weights_only, &copy->list);
  if (!status) status = list_prefix(&copy->list, prefix);
  if (!status) status = fill(net, copy);
  if (status) {
    brim_net_entries_free(copy);
    return status;
  }
  *out = copy;
  return BRIM_OK;
}

const brim_safetensors_entry *brim_net_entries_at(const brim_net_entries *copy, size_t index) {
  return index < copy->list.count ? &copy->entries[index] : NULL;
}

void brim_net_entries_free(brim_net_entries *copy) {
  if (!copy) return;
  brim_free(copy->values);
  brim_free(copy->entries);
  list_deinit(&copy->list);
  brim_free(copy);
}
