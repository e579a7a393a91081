// A run's first weights out of another run's file: as the same network, as one with another number
// of outputs, or out of something that was put around it.
#include <stdio.h>
#include <string.h>

#include "engine/engine_checkpoint.h"

typedef brim_checkpoint_item item;

// What is put around a network: brim's own contrastive training (an encoder, which has no last
// layer), PyTorch's DataParallel and compile, Lightning. Several may stand in front of each other.
static const char encoder[] = "backbone.";
static const char *const around[] = {encoder, "module.", "_orig_mod.", "model."};

size_t brim_checkpoint_around(const char *name) {
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

const brim_safetensors_entry *brim_checkpoint_entry(const brim_safetensors *file, const item *want,
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

// Is this one of the last layer's parameters? `last` is the last of all.
static bool in_head(const item *e, const char *last) {
  return e->kind == BRIM_ITEM_PARAM && same_layer(e->name, last);
}

// What stands in front of the network's names in the file: "" unless its first parameter is there
// only behind something. A network of one layer would take any for its own.
static void find_inside(const brim_net *net, const brim_safetensors *file, brim_net_reinit *out) {
  const char *first = net->params.items[0].name;
  const char *last = net->params.items[net->params.count - 1].name;
  if (same_layer(first, last) || brim_safetensors_find(file, first)) return;
  for (size_t i = 0; i < brim_safetensors_count(file); i++) {
    const char *name = brim_safetensors_at(file, i)->name;
    size_t inside = brim_checkpoint_around(name);
    if (inside == 0 || inside >= sizeof out->inside || strcmp(name + inside, first) != 0) continue;
    snprintf(out->inside, sizeof out->inside, "%.*s", (int)inside, name);
    return;
  }
}

static brim_status use_names(brim_checkpoint_list *list, const char *inside) {
  for (size_t i = 0; inside[0] && i < list->count; i++) {
    item *e = &list->items[i];
    e->name = brim_arena_printf(list->names, "%s%s", inside, e->name);
    if (!e->name) return brim_fail(BRIM_ENOMEM, "out of memory for the names of a checkpoint");
  }
  return BRIM_OK;
}

// The last layer, whose parameters are the last of the list, differs in its first dimension alone,
// or, of an encoder, is not there: its items are marked, and `out` says so.
static brim_status mark_head(const brim_net *net, const char *path, const brim_safetensors *file,
                             const char *last, brim_checkpoint_list *list, brim_net_reinit *out) {
  size_t head = 0, differ = 0;
  bool of_encoder = brim_str_ends(out->inside, encoder);
  for (size_t i = 0; i < list->count; i++) {
    const item *e = &list->items[i];
    if (!in_head(e, last)) continue;
    const brim_safetensors_entry *from = brim_checkpoint_entry(file, e, true);
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

brim_status brim_checkpoint_find_start(const brim_net *net, const char *path,
                                       const brim_safetensors *file, brim_checkpoint_list *list,
                                       brim_net_reinit *out) {
  if (net->params.count == 0) return BRIM_OK;
  find_inside(net, file, out);
  BRIM_TRY(use_names(list, out->inside));
  const char *last = net->params.items[net->params.count - 1].name;
  if (out->inside[0]) last = brim_arena_printf(list->names, "%s%s", out->inside, last);
  if (!last) return brim_fail(BRIM_ENOMEM, "out of memory for the names of a checkpoint");
  return mark_head(net, path, file, last, list, out);
}
