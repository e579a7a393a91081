// A network to a safetensors file: as it lies on the device, or held in the host's memory first, so
// that it can be written while the network trains on.
#include <string.h>

#include "engine/engine_checkpoint.h"
#include "engine/engine_safetensors.h"

typedef brim_checkpoint_item item;
typedef brim_checkpoint_list item_list;

//---------------------------------- values ----------------------------------

// Values go from the device to the file in pieces, so that a save touches little memory of its own:
// pages of a copy of everything would cost more than the conversion. What is held has that copy.
enum { WINDOW_BYTES = 4 << 20, PIECE_BYTES = 128 << 10 };

struct brim_net_held {
  brim_net *net;
  item_list list;
  brim_safetensors_entry *entries;
  json_t *metadata;
  int64_t batches;
  double kept[BRIM_EXEC_KEPT];
  // Bytes [at, at + n) of the device's memory; not for devices whose memory is the host's.
  unsigned char *window;
  const unsigned char *at;
  size_t n, capacity;
  // Of the blocks that entries lie in; NULL = none is held. Locked ones are the device's to free.
  unsigned char *copies[BRIM_BLOCK_COUNT];
  bool locked[BRIM_BLOCK_COUNT];
  float *piece;  // values in PyTorch's order, on their way to the file
};

typedef brim_net_held saver;

static size_t row_bytes(const brim_param *p) {
  return (size_t)(p->count / p->desc.dim[0]) * sizeof(float);
}

// The bytes an item's block has from `at` on.
static size_t block_rest(const brim_net *net, const item *e, const unsigned char *at) {
  const brim_block *b = &net->blocks[brim_checkpoint_item_block(e)];
  return (size_t)(b->data + b->bytes - at);
}

// n bytes at `at` (not more than the capacity) for the host to read. Parameters lie one after
// another in their block, so one copy brings what the next ones ask for.
static brim_status look_at(saver *s, const item *e, const unsigned char *at, size_t n,
                           const unsigned char **out) {
  const unsigned char *copy = s->copies[brim_checkpoint_item_block(e)];
  *out = copy ? copy + (at - s->net->blocks[brim_checkpoint_item_block(e)].data) : at;
  if (!s->window) return BRIM_OK;
  // nothing is held at first, and nothing is added to NULL
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
  const unsigned char *at = brim_checkpoint_item_place(s->net, e), *values;
  bool same = brim_param_same_layout(e->p);
  size_t left = (size_t)e->p->count * sizeof(float), row = same ? 1 : row_bytes(e->p);
  size_t most = !same ? PIECE_BYTES : s->window ? s->capacity : left;
  size_t step = most > row ? most / row * row : row;
  for (; left; at += step, left -= step) {
    if (step > left) step = left;
    BRIM_TRY(look_at(s, e, at, step, &values));
    if (same) {
      BRIM_TRY(brim_fs_writer_write(w, values, step));
      continue;
    }
    size_t rows = step / row,
           outside = brim_checkpoint_item_bytes(e) / (size_t)e->p->outside.dim[0];
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

// Room for the largest row that is converted, and for a piece of several where they are small.
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

// Linux promises more memory than it has and kills the process that uses it: ask first, leave half.
// *lock: what is this small beside the machine's memory may stay locked until the next checkpoint.
static brim_status check_room(const brim_net *net, size_t bytes, uint64_t *lock) {
  uint64_t left = 0, all = 0;
  brim_machine_free_memory(net->hooks.machine ? net->hooks.machine : "", &left, &all);
  *lock = all / 16;
  if (bytes == 0 || all == 0 || bytes < left / 2) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM, "out of memory for a copy of the weights");
}

// Room for a copy: what the last one left, since fresh pages cost many times the copying, or new.
static brim_status make_copy(saver *s, int block, bool lock) {
  brim_device *device = s->net->device;
  size_t bytes = s->net->blocks[block].bytes;
  void *room = s->net->reusable[block];
  s->net->reusable[block] = NULL;
  if (!room && lock && brim_device_alloc(device, BRIM_BUFFER_HOST, bytes, &room)) {
    brim_status_clear();  // not of this kind; of the other perhaps
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
    if (e->p) wanted[brim_checkpoint_item_block(e)] = true;
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

// What is left as the model is the average: values of the one, names of the other.
static void take_average(item_list *list) {
  for (size_t i = 0; i < list->count; i++) {
    item *e = &list->items[i];
    if (e->kind == BRIM_ITEM_BUFFER) e->kind = BRIM_ITEM_AVERAGE_BUFFER;
    if (e->kind == BRIM_ITEM_PARAM) e->kind = BRIM_ITEM_AVERAGE;
  }
}

// The metadata with room for the checksum, which the writer fills in.
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
    s->entries[i] = (brim_safetensors_entry){.name = e->name,
                                             .dtype = e->dtype,
                                             .rank = e->rank,
                                             .bytes = brim_checkpoint_item_bytes(e)};
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
  BRIM_TRY(brim_checkpoint_check_master(net));
  BRIM_TRY(brim_checkpoint_list_make(net, weights_only, &s->list));
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
  brim_checkpoint_list_deinit(&s->list);
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
    (void)brim_device_sync(net->device);  // copies may be on their way
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
