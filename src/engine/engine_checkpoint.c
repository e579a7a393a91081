// A network to a safetensors file and back. Loading checks the whole file against the network
// before it changes anything, so a file that does not fit leaves the network as it was.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine_int.h"
#include "engine/engine_safetensors.h"

// Parameters, then m, then v, as far as the optimiser has them.
static const char *const prefixes[] = {"", "optimizer.m.", "optimizer.v."};
static const char optimizer_prefix[] = "optimizer.";

static unsigned char *kind_block(const brim_net *net, int kind) {
  return kind == 0 ? net->blocks[BRIM_BLOCK_PARAMS].data : brim_net_slot(net, kind - 1);
}

static brim_status check_master(const brim_net *net) {
  if (net->master == BRIM_F32) return BRIM_OK;
  return brim_fail(BRIM_EUNSUPPORTED, "checkpoints hold f32, this network is %s",
                   brim_dtype_name(net->master));
}

//---------------------------------- saving ----------------------------------

// The flat blocks as the host can read them: in place, or a copy in *staging.
static brim_status host_view(brim_net *net, int kinds, const unsigned char **base,
                             unsigned char **staging) {
  size_t flat = brim_net_flat_bytes(net);
  *staging = NULL;
  BRIM_TRY(brim_device_sync(net->device));
  if (net->device->info.host_memory) {
    for (int k = 0; k < kinds; k++) base[k] = kind_block(net, k);
    return BRIM_OK;
  }
  unsigned char *copy = brim_alloc(flat * (size_t)kinds);
  if (!copy) return brim_fail(BRIM_ENOMEM, "out of memory for a copy of the weights");
  brim_status status = BRIM_OK;
  for (int k = 0; !status && k < kinds; k++) {
    base[k] = copy + flat * (size_t)k;
    status = brim_device_copy(net->device, copy + flat * (size_t)k, kind_block(net, k), flat,
                              BRIM_COPY_D2H);
  }
  if (!status) status = brim_device_sync(net->device);
  if (status) {
    brim_free(copy);
    return status;
  }
  *staging = copy;
  return BRIM_OK;
}

static brim_status fill_entries(const brim_net *net, int kinds, const unsigned char *const *base,
                                brim_arena *names, brim_safetensors_entry *entries) {
  for (int k = 0; k < kinds; k++) {
    for (size_t i = 0; i < net->params.count; i++) {
      const brim_param *p = &net->params.items[i];
      brim_safetensors_entry *e = &entries[(size_t)k * net->params.count + i];
      e->name = brim_arena_printf(names, "%s%s", prefixes[k], p->name);
      if (!e->name) return brim_fail(BRIM_ENOMEM, "out of memory for the names of a checkpoint");
      e->dtype = BRIM_F32;
      e->rank = p->desc.rank;
      memcpy(e->dim, p->desc.dim, sizeof e->dim);
      e->bytes = (size_t)p->count * sizeof(float);
      e->data = base[k] + (size_t)p->offset * sizeof(float);
    }
  }
  return BRIM_OK;
}

brim_status brim_net_save(brim_net *net, const char *path, const json_t *metadata,
                          bool weights_only) {
  BRIM_TRY(check_master(net));
  int kinds = weights_only ? 1 : 1 + net->slots;
  size_t count = (size_t)kinds * net->params.count;
  const unsigned char *base[3] = {0};
  unsigned char *staging = NULL;
  brim_arena *names = NULL;
  brim_safetensors_entry *entries = brim_calloc(count, sizeof *entries);
  brim_status status = BRIM_OK;
  if (!entries) status = brim_fail(BRIM_ENOMEM, "out of memory for the entries of a checkpoint");
  if (!status) status = brim_arena_create(0, &names);
  if (!status) status = host_view(net, kinds, base, &staging);
  if (!status) status = fill_entries(net, kinds, base, names, entries);
  if (!status) status = brim_safetensors_write(path, entries, count, metadata);
  brim_free(staging);
  brim_arena_destroy(names);
  brim_free(entries);
  return status;
}

//---------------------------------- loading ----------------------------------

static void shape_text(int32_t rank, const int64_t *dim, char out[128]) {
  size_t n = (size_t)snprintf(out, 128, "(");
  for (int i = 0; i < rank && n < 100; i++) {
    n += (size_t)snprintf(out + n, 128 - n, "%s%lld", i ? ", " : "", (long long)dim[i]);
  }
  snprintf(out + n, 128 - n, ")");
}

static brim_status check_entry(const char *path, const char *name, const brim_param *p,
                               const brim_safetensors_entry *e) {
  if (!e) {
    return brim_fail(BRIM_EINVAL, "%s: entry '%s' is missing; is it of another model or optimizer?",
                     path, name);
  }
  if (e->dtype != BRIM_F32) {
    return brim_fail(BRIM_EINVAL, "%s: entry '%s' is %s, expected f32", path, name,
                     brim_dtype_name(e->dtype));
  }
  bool same = e->rank == p->desc.rank;
  for (int i = 0; same && i < e->rank; i++) same = e->dim[i] == p->desc.dim[i];
  if (same) return BRIM_OK;
  char have[128], want[128];
  shape_text(e->rank, e->dim, have);
  shape_text(p->desc.rank, p->desc.dim, want);
  return brim_fail(BRIM_EINVAL, "%s: entry '%s' has shape %s, expected %s", path, name, have, want);
}

static brim_status entry_name(const brim_param *p, int kind, char out[320]) {
  int n = snprintf(out, 320, "%s%s", prefixes[kind], p->name);
  if (n > 0 && n < 320) return BRIM_OK;
  return brim_fail(BRIM_ELIMIT, "the parameter name %s is too long", p->name);
}

// Training cannot go on from NaN or infinity, and its figures would look like numbers.
static brim_status check_finite(const char *path, const brim_safetensors_entry *e) {
  for (size_t i = 0; i < e->bytes / sizeof(float); i++) {
    float value;
    memcpy(&value, (const char *)e->data + i * sizeof value, sizeof value);
    if (isfinite(value)) continue;
    return brim_fail(BRIM_EINVAL,
                     "%s: entry '%s' holds %s at element %zu; the run it comes from had diverged, "
                     "take an earlier checkpoint",
                     path, e->name, isnan(value) ? "NaN" : "an infinity", i);
  }
  return BRIM_OK;
}

// Every entry the network wants is there and fits, and no other is.
static brim_status check_file(const brim_net *net, const char *path, const brim_safetensors *file,
                              int kinds, bool weights_only) {
  char name[320];
  size_t matched = 0, ignored = 0;
  for (int k = 0; k < kinds; k++) {
    for (size_t i = 0; i < net->params.count; i++) {
      const brim_param *p = &net->params.items[i];
      BRIM_TRY(entry_name(p, k, name));
      const brim_safetensors_entry *e = brim_safetensors_find(file, name);
      BRIM_TRY(check_entry(path, name, p, e));
      BRIM_TRY(check_finite(path, e));
      matched++;
    }
  }
  size_t count = brim_safetensors_count(file);
  for (size_t i = 0; i < count && matched + ignored < count; i++) {
    const char *entry = brim_safetensors_at(file, i)->name;
    if (weights_only && brim_str_starts(entry, optimizer_prefix)) {
      ignored++;
      continue;
    }
    bool wanted = false;
    for (int k = 0; !wanted && k < kinds; k++) {
      for (size_t j = 0; !wanted && j < net->params.count; j++) {
        BRIM_TRY(entry_name(&net->params.items[j], k, name));
        wanted = strcmp(entry, name) == 0;
      }
    }
    if (!wanted) {
      return brim_fail(BRIM_EINVAL, "%s: entry '%s' does not belong to this network", path, entry);
    }
  }
  return BRIM_OK;
}

static brim_status copy_in(brim_net *net, const brim_safetensors *file, int kinds) {
  char name[320];
  for (int k = 0; k < kinds; k++) {
    for (size_t i = 0; i < net->params.count; i++) {
      const brim_param *p = &net->params.items[i];
      BRIM_TRY(entry_name(p, k, name));
      const brim_safetensors_entry *e = brim_safetensors_find(file, name);
      BRIM_TRY(brim_device_copy(net->device, kind_block(net, k) + (size_t)p->offset * sizeof(float),
                                e->data, e->bytes, BRIM_COPY_H2D));
    }
  }
  BRIM_TRY(brim_net_refresh_copy(net));
  net->outputs_valid = false;
  return brim_device_sync(net->device);
}

brim_status brim_net_load(brim_net *net, const char *path, bool weights_only, json_t **metadata) {
  if (metadata) *metadata = NULL;
  BRIM_TRY(check_master(net));
  brim_safetensors *file = NULL;
  BRIM_TRY(brim_safetensors_open(path, &file));
  int kinds = weights_only ? 1 : 1 + net->slots;
  json_t *copy = NULL;
  brim_status status = check_file(net, path, file, kinds, weights_only);
  if (!status && metadata) {
    status = brim_safetensors_copy_metadata(brim_safetensors_metadata(file), &copy);
  }
  if (!status) status = copy_in(net, file, kinds);
  brim_safetensors_close(file);
  if (status) {
    json_decref(copy);
    return status;
  }
  if (metadata) *metadata = copy;
  return BRIM_OK;
}
