// A run's first weights out of another run's file: as the same network, as one with another number of
// outputs, or out of something that was put around it.
#include <stdio.h>
#include <string.h>

#include "engine/engine_checkpoint.h"

typedef brim_checkpoint_item item;

// Length of the layer's part of a parameter's name: "fc" of "fc.weight".
static size_t layer_length(const char *name) {
  const char *dot = strrchr(name, '.');
  return dot ? (size_t)(dot - name) : strlen(name);
}

// Is this one of the last layer's parameters? `last` is the last of all.
static bool in_head(const item *e, const char *last) {
  size_t length = layer_length(last);
  return e->kind == BRIM_ITEM_PARAM && layer_length(e->name) == length &&
         strncmp(e->name, last, length) == 0;
}

static bool is_there(const brim_safetensors *file, const item *e, size_t inside,
                     const char *prefix) {
  char name[512];
  item named = *e;
  int n = snprintf(name, sizeof name, "%.*s%s", (int)inside, prefix, e->name);
  named.name = name;
  return n > 0 && (size_t)n < sizeof name && brim_checkpoint_entry(file, &named, true);
}

// All but the last layer is there under these names.
static bool fits_inside(const brim_safetensors *file, const brim_checkpoint_list *list,
                        const char *last, size_t inside, const char *prefix) {
  for (size_t i = 0; i < list->count; i++) {
    const item *e = &list->items[i];
    if (e->optional || in_head(e, last)) continue;
    if (!is_there(file, e, inside, prefix)) return false;
  }
  return true;
}

// What stands in front of the network's names in the file: "" unless its first parameter is there only
// behind something. Where nothing fits, the first that could be meant: who checks the file says what is
// missing of it.
static void find_inside(const brim_net *net, const brim_safetensors *file,
                        const brim_checkpoint_list *list, brim_net_anew *out) {
  const char *first = net->params.items[0].name;
  const char *last = net->params.items[net->params.count - 1].name;
  size_t length = strlen(first);
  if (layer_length(first) == layer_length(last)) {  // one layer alone: nothing would be taken
    if (strncmp(first, last, layer_length(first)) == 0) return;
  }
  if (brim_safetensors_find(file, first)) return;
  for (size_t i = 0; i < brim_safetensors_count(file); i++) {
    const char *name = brim_safetensors_at(file, i)->name;
    size_t n = strlen(name), inside = n > length ? n - length : 0;
    if (inside == 0 || inside >= sizeof out->inside || name[inside - 1] != '.') continue;
    if (strcmp(name + inside, first) != 0 || brim_str_starts(name, BRIM_AVERAGE_PREFIX)) continue;
    bool fits = fits_inside(file, list, last, inside, name);
    if (!fits && out->inside[0]) continue;
    snprintf(out->inside, sizeof out->inside, "%.*s", (int)inside, name);
    if (fits) return;
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

// The last layer, whose parameters are the last of the list, differs in its first dimension alone, or, of
// a network that lies inside another one, is not there: its items are marked, and `out` says so.
static void mark_head(const brim_net *net, const brim_safetensors *file, const char *last,
                      brim_checkpoint_list *list, brim_net_anew *out) {
  size_t head = 0, differ = 0, missing = 0;
  for (size_t i = 0; i < list->count; i++) {
    const item *e = &list->items[i];
    if (!in_head(e, last)) continue;
    const brim_safetensors_entry *from = brim_checkpoint_entry(file, e, true);
    head++;
    out->outputs = e->dim[0];
    if (!from) {
      missing++;
      continue;
    }
    if (from->rank != e->rank || e->rank < 1) return;
    for (int k = 1; k < e->rank; k++) {
      if (from->dim[k] != e->dim[k]) return;
    }
    differ += from->dim[0] != e->dim[0];
    out->had = from->dim[0];
  }
  // a network of one layer would take nothing from the file
  if (head == 0 || head == net->params.count) return;
  bool encoder = out->inside[0] && missing == head;
  if (!encoder && differ != head) return;
  for (size_t i = 0; i < list->count; i++) list->items[i].anew = in_head(&list->items[i], last);
  out->is = true;
  const char *layer = last + strlen(out->inside);
  snprintf(out->layer, sizeof out->layer, "%.*s", (int)layer_length(layer), layer);
}

brim_status brim_checkpoint_find_start(const brim_net *net, const brim_safetensors *file,
                                       brim_checkpoint_list *list, brim_net_anew *out) {
  if (net->params.count == 0) return BRIM_OK;
  find_inside(net, file, list, out);
  BRIM_TRY(use_names(list, out->inside));
  const char *last = net->params.items[net->params.count - 1].name;
  if (out->inside[0]) last = brim_arena_printf(list->names, "%s%s", out->inside, last);
  if (!last) return brim_fail(BRIM_ENOMEM, "out of memory for the names of a checkpoint");
  mark_head(net, file, last, list, out);
  return BRIM_OK;
}
