// The entries of a network's checkpoint in the host's memory, under names that begin with the caller's
// prefix, so that several networks and what belongs to them can share one file. For small networks:
// larger ones are written piece by piece (engine_checkpoint_save.c).
#include <string.h>

#include "engine/engine_checkpoint.h"

typedef brim_checkpoint_item item;

struct brim_net_entries {
  brim_checkpoint_list list;
  brim_safetensors_entry *entries;
  unsigned char *values;
};

static size_t padded(size_t bytes) { return (bytes + 7) & ~(size_t)7; }

static brim_status copy_values(brim_net *net, const item *e, float *inside, void *to) {
  BRIM_TRY(brim_device_copy(net->device, inside, brim_checkpoint_item_place(net, e),
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
    bytes += padded(brim_checkpoint_item_bytes(&out->list.items[i]));
  }
  out->values = brim_alloc(bytes + 8);
  out->entries = brim_calloc(out->list.count + 1, sizeof *out->entries);
  float *inside = brim_calloc(brim_net_largest(net) + 1, sizeof *inside);
  brim_status status = out->values && out->entries && inside
                           ? BRIM_OK
                           : brim_fail(BRIM_ENOMEM, "out of memory for a copy of the weights");
  unsigned char *at = out->values;
  for (size_t i = 0; !status && i < out->list.count; i++) {
    const item *e = &out->list.items[i];
    out->entries[i] = (brim_safetensors_entry){.name = e->name,
                                               .dtype = e->dtype,
                                               .rank = e->rank,
                                               .data = at,
                                               .bytes = brim_checkpoint_item_bytes(e)};
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
  BRIM_TRY(brim_checkpoint_check_master(net));
  brim_net_entries *copy = brim_calloc(1, sizeof *copy);
  if (!copy) return brim_fail(BRIM_ENOMEM, "out of memory for a copy of the weights");
  brim_status status = brim_checkpoint_list_make(net, weights_only, &copy->list);
  if (!status) status = brim_checkpoint_list_inside(&copy->list, prefix);
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
  brim_checkpoint_list_deinit(&copy->list);
  brim_free(copy);
}
