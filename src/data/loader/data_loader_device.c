// Batches made on the device out of a resident set: the host only says which samples. Everything is
// enqueued on the device's main stream, so a batch's memory may be written again as soon as what
// reads it has been enqueued; only the lists of samples on the host wait for their copy.
//
// Out of a mapped set rows cross the bus, which takes as long as a step or longer: they are fetched
// on the copy stream, a batch ahead. Two events a slot keep the streams in step, and the host never
// waits: the main stream waits until the rows have come, the copy stream until the main stream is
// done with the slot.
#include <stdio.h>
#include <string.h>

#include "data/loader/data_loader_int.h"

brim_status brim_loader_device_init(brim_loader *l) {
  const brim_loader_layout *layout = &l->layout;
  void *memory = NULL;
  l->program = brim_calloc(1, sizeof *l->program);
  if (!l->program) return brim_fail(BRIM_ENOMEM, "loader: out of memory");
  BRIM_TRY(brim_resident_program(l->source, l->options.transforms, l->program));
  brim_status status =
      brim_device_alloc(l->device, BRIM_BUFFER_DEVICE, layout->device_bytes, &memory);
  if (status) {
    return brim_fail_context(status, "augmented batch of %zu bytes", layout->device_bytes);
  }
  l->device_memory = memory;
  for (size_t i = 0; i < BRIM_LOADER_LISTS; i++) {
    l->lists[i].index = (uint64_t *)(void *)(l->ring + i * layout->list_bytes);
    BRIM_TRY(brim_event_create(l->device, &l->lists[i].copied));
  }
  for (size_t i = 0; i < layout->slots; i++) {
    brim_loader_slot *slot = &l->slots[i];
    uint8_t *base = l->device_memory + i * layout->slot_bytes;
    slot->loaded.on_device = true;
    slot->loaded.input = base;
    slot->loaded.target = l->source->target_bytes ? base + layout->target_at : NULL;
    if (!brim_loader_is_mapped(l)) continue;
    BRIM_TRY(brim_event_create(l->device, &slot->fetched));
    BRIM_TRY(brim_event_create(l->device, &slot->given_back));
  }
  return BRIM_OK;
}

void brim_loader_device_deinit(brim_loader *l) {
  if (!l->options.resident) return;
  // Nothing may still read or write what is freed here, nor the pages that may be unlocked next.
  (void)brim_device_sync(l->device);
  for (size_t i = 0; i < l->layout.slots; i++) {
    brim_loader_slot *slot = &l->slots[i];
    if (slot->fetched) (void)brim_event_sync(l->device, slot->fetched);
    brim_event_destroy(l->device, slot->fetched);
    brim_event_destroy(l->device, slot->given_back);
  }
  for (size_t i = 0; i < BRIM_LOADER_LISTS; i++) {
    if (l->lists[i].copied) brim_event_destroy(l->device, l->lists[i].copied);
  }
  if (l->device_memory) brim_device_free(l->device, BRIM_BUFFER_DEVICE, l->device_memory);
  brim_free(l->program);
}

// The next list that no batch in the caller's hands or on its way shows, once its copy has run.
static brim_status next_list(brim_loader *l, brim_loader_slot *slot, brim_loader_list **out) {
  brim_loader_list *list;
  do {  // there are more lists than slots
    list = &l->lists[l->next_list++ % BRIM_LOADER_LISTS];
  } while (list->slot && list->slot != slot && list->slot->state != BRIM_LOADER_FREE &&
           list->slot->index == list->index);
  if (list->used) BRIM_TRY(brim_event_sync(l->device, list->copied));
  list->slot = slot;
  *out = list;
  return BRIM_OK;
}

// The sample of a row or, where that one is broken, the next of the rank's order that is not: the
// same that a worker takes (fill_position in data_loader_fill.c).
static brim_status choose_sample(const brim_loader *l, brim_loader_slot *slot, int64_t row,
                                 const brim_shuffle *order) {
  const brim_resident *set = l->options.resident;
  brim_loader_tally *t = &slot->tally;
  uint64_t share = (uint64_t)l->layout.share, position = (uint64_t)(slot->loaded.first + row);
  for (uint64_t k = 0; k < share; k++) {
    uint64_t index = brim_loader_index(&l->options, order, (position + k) % share);
    const brim_resident_broken *broken = brim_resident_broken_at(set, index);
    slot->index[row] = index;
    if (!broken) return BRIM_OK;
    if (k == 0 && t->broken++ == 0) {
      t->broken_row = row;
      snprintf(t->broken_text, sizeof t->broken_text, "%s", broken->detail);
    }
  }
  return brim_fail(BRIM_EIO, "none of the %llu samples can be read; %s", (unsigned long long)share,
                   t->broken_text);
}

// The samples of a batch, in a list of its own.
static brim_status choose_samples(brim_loader *l, brim_loader_slot *slot, brim_loader_list **out) {
  brim_loaded *b = &slot->loaded;
  brim_loader_list *list;
  BRIM_TRY(next_list(l, slot, &list));
  *out = list;
  slot->index = list->index;
  b->index = list->index;
  brim_shuffle order = brim_loader_shuffle(&l->options, l->source->info.count, b->epoch);
  for (int64_t row = 0; row < b->rows; row++) {
    BRIM_TRY(choose_sample(l, slot, row, &order));
  }
  size_t rest = (size_t)(l->options.batch - b->rows);
  memset(list->index + b->rows, 0, rest * sizeof *list->index);
  return BRIM_OK;
}

brim_status brim_loader_device_fill(brim_loader *l, brim_loader_slot *slot) {
  const brim_resident *set = l->options.resident;
  const brim_loader_layout *layout = &l->layout;
  const brim_loaded *b = &slot->loaded;
  brim_loader_list *list;
  BRIM_TRY(choose_samples(l, slot, &list));
  void *index = l->device_memory + layout->device_index_at;
  BRIM_TRY(brim_device_copy(l->device, index, list->index, (size_t)b->rows * sizeof *list->index,
                            BRIM_COPY_H2D));
  BRIM_TRY(brim_event_record(l->device, list->copied));
  list->used = true;
  const brim_augment_batch batch = {
      .inputs = set->inputs,
      .targets = set->targets,
      .index = index,
      .rows = b->rows,
      .capacity = l->options.batch,
      .epoch = b->epoch,
      .target_bytes = l->source->target_bytes,
      .out = b->input,
      .out_targets = b->target,
  };
  return set->table->run(l->device->stream, l->program, &batch,
                         l->device_memory + layout->device_scratch_at);
}

//---------------------------------- out of a mapped set ----------------------------------

bool brim_loader_is_mapped(const brim_loader *l) {
  return l->options.resident && l->options.resident->locked;
}

brim_status brim_loader_device_fetch(brim_loader *l, brim_loader_slot *slot) {
  const brim_resident *set = l->options.resident;
  const brim_loader_layout *layout = &l->layout;
  const brim_loaded *b = &slot->loaded;
  brim_loader_list *list;
  BRIM_TRY(choose_samples(l, slot, &list));
  size_t half = layout->list_bytes / 2 / sizeof *list->index;  // samples, then their rows
  for (int64_t row = 0; row < b->rows; row++) {
    list->index[half + (size_t)row] = brim_source_row(l->source, list->index[row]);
  }
  uint8_t *base = b->input;
  uint64_t *index = (uint64_t *)(void *)(base + layout->index_at);
  BRIM_TRY(brim_event_wait_copy(l->device, slot->given_back));
  brim_status status = brim_device_upload(l->device, index, list->index, layout->list_bytes);
  if (!status) status = brim_event_record_copy(l->device, list->copied);
  list->used = list->used || !status;
  const brim_augment_fetch fetch = {
      .from = set->inputs,
      .stride = set->stride,
      .bytes = set->input_bytes,
      .place = index + half,
      .rows = b->rows,
      .capacity = l->options.batch,
      .to = layout->staged ? base + layout->rows_at : base,
      .targets = set->targets,
      .index = index,
      .target_bytes = set->target_bytes,
      .out_targets = b->target,
  };
  if (!status) status = set->table->fetch(l->device->copy_stream, &fetch);
  // Also after a failure: something may be on its way into the slot.
  brim_status ended = brim_event_record_copy(l->device, slot->fetched);
  return status ? status : ended;
}

brim_status brim_loader_device_finish(brim_loader *l, brim_loader_slot *slot) {
  const brim_resident *set = l->options.resident;
  const brim_loader_layout *layout = &l->layout;
  const brim_loaded *b = &slot->loaded;
  uint8_t *base = b->input;
  BRIM_TRY(brim_event_wait(l->device, slot->fetched));
  if (!layout->staged) return BRIM_OK;
  const brim_augment_batch batch = {
      .inputs = base + layout->rows_at,
      .index = (const uint64_t *)(const void *)(base + layout->index_at),
      .rows = b->rows,
      .capacity = l->options.batch,
      .epoch = b->epoch,
      .out = base,
      .in_order = 1,
  };
  return set->table->run(l->device->stream, l->program, &batch,
                         l->device_memory + layout->device_scratch_at);
}

void brim_loader_device_give_back(brim_loader *l, brim_loader_slot *slot) {
  if (brim_loader_is_mapped(l)) (void)brim_event_record(l->device, slot->given_back);
}
