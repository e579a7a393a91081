// A network to a safetensors file and back. Loading checks the whole file against the network
// before it changes anything, so a file that does not fit leaves the network as it was.
// Model tensors have PyTorch's names, shapes and order of values, running statistics included.
#include "engine/engine_checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine_safetensors.h"

static const char optimizer_prefix[] = "optimizer.";
static const char running_mean[] = ".running_mean";

typedef brim_checkpoint_item item;
typedef brim_checkpoint_list item_list;

static const char *const prefixes[BRIM_ITEM_KIND_COUNT] = {
    [BRIM_ITEM_PARAM] = "",
    [BRIM_ITEM_M] = "optimizer.m.",
    [BRIM_ITEM_V] = "optimizer.v.",
    [BRIM_ITEM_BUFFER] = "",
    [BRIM_ITEM_AVERAGE] = BRIM_AVERAGE_PREFIX,
    [BRIM_ITEM_AVERAGE_BUFFER] = BRIM_AVERAGE_PREFIX};

//---------------------------------- the list ----------------------------------

void brim_checkpoint_list_deinit(item_list *list) {
  brim_free(list->items);
  brim_arena_destroy(list->names);
  memset(list, 0, sizeof *list);
}

static brim_status list_params(item_list *list, brim_checkpoint_kind kind,
                               const brim_params *params) {
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

brim_status brim_checkpoint_list_make(const brim_net *net, bool weights_only, item_list *list) {
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
    // Without it Adam would start its averages again; others can do without.
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

brim_status brim_checkpoint_list_inside(brim_checkpoint_list *list, const char *prefix) {
  for (size_t i = 0; i < list->count; i++) {
    item *e = &list->items[i];
    e->name = brim_arena_printf(list->names, "%s%s", prefix, e->name);
    if (!e->name) return brim_fail(BRIM_ENOMEM, "out of memory for the names of a checkpoint");
  }
  return BRIM_OK;
}

size_t brim_checkpoint_item_bytes(const item *e) {
  return e->p                           ? (size_t)e->p->outside_count * sizeof(float)
         : e->kind == BRIM_ITEM_TRACKED ? sizeof(int64_t)
                                        : BRIM_CHECKPOINT_STATE * sizeof(double);
}

brim_block_id brim_checkpoint_item_block(const item *e) {
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

unsigned char *brim_checkpoint_item_place(const brim_net *net, const item *e) {
  bool slot = e->kind == BRIM_ITEM_M || e->kind == BRIM_ITEM_V;
  unsigned char *base = slot ? brim_net_slot(net, e->kind == BRIM_ITEM_V)
                             : net->blocks[brim_checkpoint_item_block(e)].data;
  return base + (size_t)e->p->offset * sizeof(float);
}

brim_status brim_checkpoint_check_master(const brim_net *net) {
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

// The same name may be there behind that of something that was put around the network.
static brim_status fail_missing(const char *path, const item *want, const brim_safetensors *file) {
  for (size_t i = 0; i < brim_safetensors_count(file); i++) {
    const char *name = brim_safetensors_at(file, i)->name;
    size_t inside = brim_checkpoint_around(name);
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

// Numbers that no run of brim can have left there.
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

// Averages of the file's that are taken: of weights, of running statistics, and whether there are
// statistics without one: an earlier version averaged weights alone.
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

// A model where a checkpoint is needed: nothing of an optimiser is in it.
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

// Every entry the network needs is there and fits, and no other is but an average it does not keep,
// or, where it lies inside something else, that.
static brim_status check_file(const item_list *list, const char *path, const brim_safetensors *file,
                              const char *inside, bool weights_only) {
  for (size_t i = 0; i < list->count; i++) {
    const item *want = &list->items[i];
    const brim_safetensors_entry *e = brim_checkpoint_entry(file, want, weights_only);
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

static brim_status put(brim_net *net, const item *e, const brim_safetensors_entry *from,
                       float *scratch) {
  if (e->kind == BRIM_ITEM_TRACKED) {
    memcpy(&net->batches, from->data, sizeof net->batches);
    return BRIM_OK;
  }
  if (e->kind == BRIM_ITEM_STATE) {
    double kept[BRIM_EXEC_KEPT] = {0};
    memcpy(kept, from->data, BRIM_CHECKPOINT_STATE * sizeof *kept);
    if (net->precision != BRIM_PRECISION_FP16) {  // the file may be of a run in fp16
      kept[BRIM_STATE_LOSS_SCALE - BRIM_STATE_HOST] = 1;
      kept[BRIM_STATE_GOOD_STEPS - BRIM_STATE_HOST] = 0;
    }
    return brim_exec_set_kept(net, kept);
  }
  size_t half = brim_net_largest(net);
  memcpy(scratch + half, from->data, from->bytes);  // it may lie at any byte
  brim_param_import(e->p, scratch + half, scratch);
  BRIM_TRY(brim_device_copy(net->device, brim_checkpoint_item_place(net, e), scratch,
                            (size_t)e->p->count * sizeof(float), BRIM_COPY_H2D));
  return brim_device_sync(net->device);  // the next one reuses the scratch
}

static brim_status put_all(brim_net *net, const item_list *list, const char *path,
                           const brim_safetensors *file, bool weights_only) {
  size_t half = brim_net_largest(net);
  float *scratch = brim_calloc(2 * (half > 2 ? half : 2), sizeof *scratch);
  if (!scratch) return brim_fail(BRIM_ENOMEM, "out of memory for the weights of a checkpoint");
  brim_status status = BRIM_OK;
  averages have = {0};
  for (size_t i = 0; !status && i < list->count; i++) {
    const brim_safetensors_entry *e = brim_checkpoint_entry(file, &list->items[i], weights_only);
    if (list->items[i].reinit) continue;
    if (e) status = put(net, &list->items[i], e, scratch);
    bool own =
        weights_only || list->items[i].kind != BRIM_ITEM_BUFFER;  // else its average has an item
    if (own) note_average(&have, &list->items[i], e);
  }
  brim_free(scratch);
  net->average_stale = net->averages;
  bool kept = !weights_only && have.weights;
  if (!status && !kept) status = brim_net_start_average(net);
  if (!status && kept && !have.statistics) status = brim_net_start_statistics(net);
  if (!status) warn_missing(path, &have);
  if (!status) status = brim_net_refresh_copy(net);
  net->outputs_valid = false;
  return status ? status : brim_device_sync(net->device);
}

static brim_status load(brim_net *net, const char *path, bool weights_only, brim_net_reinit *reinit,
                        json_t **metadata) {
  if (metadata) *metadata = NULL;
  BRIM_TRY(brim_checkpoint_check_master(net));
  brim_safetensors *file = NULL;
  item_list list = {0};
  json_t *copy = NULL;
  BRIM_TRY(brim_safetensors_open(path, &file));
  brim_status status = brim_safetensors_verify(file);
  if (!status) status = brim_checkpoint_list_make(net, weights_only, &list);
  if (!status && reinit) status = brim_checkpoint_find_start(net, path, file, &list, reinit);
  if (!status) status = check_file(&list, path, file, reinit ? reinit->inside : "", weights_only);
  if (!status && metadata) {
    status = brim_safetensors_copy_metadata(brim_safetensors_metadata(file), &copy);
  }
  if (!status) status = put_all(net, &list, path, file, weights_only);
  brim_checkpoint_list_deinit(&list);
  brim_safetensors_close(file);
  // it is the file's, not what was saved with it
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

// One network of a file with several.
static brim_status list_inside(const brim_net *net, const char *prefix, bool weights_only,
                               item_list *list) {
  BRIM_TRY(brim_checkpoint_check_master(net));
  brim_status status = brim_checkpoint_list_make(net, weights_only, list);
  if (!status) status = brim_checkpoint_list_inside(list, prefix);
  if (status) brim_checkpoint_list_deinit(list);
  return status;
}

brim_status brim_net_entries_check(const brim_net *net, const brim_net_part *part) {
  item_list list;
  BRIM_TRY(list_inside(net, part->prefix, part->weights_only, &list));
  brim_status status = check_file(&list, part->path, part->file, part->prefix, part->weights_only);
  brim_checkpoint_list_deinit(&list);
  return status;
}

brim_status brim_net_entries_take(brim_net *net, const brim_net_part *part) {
  item_list list;
  BRIM_TRY(list_inside(net, part->prefix, part->weights_only, &list));
  brim_status status = check_file(&list, part->path, part->file, part->prefix, part->weights_only);
  if (!status) status = put_all(net, &list, part->path, part->file, part->weights_only);
  brim_checkpoint_list_deinit(&list);
  return status;
}

//---------------------------------- for use ----------------------------------

// The entry of a weight: the averaged one where there is one.
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
  size_t half = brim_net_largest(net);
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
    if (!status && e) status = put(net, &list->items[i], e, scratch);
    if (!status) note_average(&have, &list->items[i], e);
  }
  brim_free(scratch);
  if (!status) warn_missing(path, &have);
  if (!status) status = brim_net_start_average(net);
  if (!status) status = brim_net_refresh_copy(net);
  net->outputs_valid = false;
  return status ? status : brim_device_sync(net->device);
}

brim_status brim_net_load_weights(brim_net *net, const char *path, const char *prefix) {
  BRIM_TRY(brim_checkpoint_check_master(net));
  brim_safetensors *file = NULL;
  item_list list = {0};
  BRIM_TRY(brim_safetensors_open(path, &file));
  brim_status status = brim_safetensors_verify(file);
  if (!status) status = brim_checkpoint_list_make(net, true, &list);
  if (!status) status = load_weights(net, &list, path, file, prefix);
  brim_checkpoint_list_deinit(&list);
  brim_safetensors_close(file);
  return status;
}
