// The loader: a ring of batch buffers, filled by worker threads (or by the caller, with none; or by
// the device, out of a resident set) and handed out in order. Which sample lies where is a function
// of (seed, epoch, position) alone, so neither the number of workers nor a seek changes the stream.
// Nothing is allocated after create.
//
// Every batch has a ticket. Workers open batches in the order of tickets, each in any free slot,
// and fill without the lock; the caller gets the slot that holds the next ticket. So the next ticket
// is always in work or claimable as long as the caller leaves one slot free.
#include <string.h>

#include "data/loader/data_loader_int.h"

//---------------------------------- create, destroy ----------------------------------

static size_t worker_count(const brim_loader_options *o) {
  return o->num_workers ? (size_t)o->num_workers : 1;
}

static brim_status alloc_ring(brim_loader *l) {
  size_t bytes = l->layout.ring_bytes;
  if (l->device) {
    void *ring = NULL;
    brim_status status = brim_device_alloc(l->device, BRIM_BUFFER_HOST, bytes, &ring);
    if (status) return brim_fail_context(status, "loader ring of %zu bytes", bytes);
    l->ring = ring;
  } else {
    l->ring = brim_alloc_tagged(bytes, BRIM_MEM_PLANNED);
    if (!l->ring) return brim_fail(BRIM_ENOMEM, "loader ring of %zu bytes: out of memory", bytes);
  }
  memset(l->ring, 0, bytes);  // touches every page now rather than in the first steps
  if (l->options.resident) return brim_loader_device_init(l);
  for (size_t i = 0; i < l->layout.slots; i++) {
    uint8_t *base = l->ring + i * l->layout.slot_bytes;
    brim_loader_slot *slot = &l->slots[i];
    slot->index = (uint64_t *)(void *)(base + l->layout.index_at);
    slot->loaded.input = base;
    slot->loaded.target = l->source->target_bytes ? base + l->layout.target_at : NULL;
    slot->loaded.index = slot->index;
  }
  return BRIM_OK;
}

static brim_status alloc_scratch(brim_loader *l) {
  const brim_loader_layout *layout = &l->layout;
  for (size_t i = 0; i < worker_count(&l->options); i++) l->workers[i].loader = l;
  if (layout->workers_bytes == 0) return BRIM_OK;
  l->scratch = brim_alloc_tagged(layout->workers_bytes, BRIM_MEM_PLANNED);
  if (!l->scratch) {
    return brim_fail(BRIM_ENOMEM, "transform scratch of %zu bytes: out of memory",
                     layout->workers_bytes);
  }
  for (size_t i = 0; i < worker_count(&l->options); i++) {
    uint8_t *mine = l->scratch + i * layout->worker_bytes;
    l->workers[i].raw = mine;
    if (layout->worker_bytes > layout->raw_bytes) l->workers[i].scratch = mine + layout->raw_bytes;
  }
  return BRIM_OK;
}

static brim_status alloc_broken(brim_loader *l) {
  size_t bytes = l->layout.broken_bytes;
  if (!bytes) return BRIM_OK;
  l->broken = brim_alloc_tagged(bytes, BRIM_MEM_PLANNED);
  if (!l->broken) return brim_fail(BRIM_ENOMEM, "loader: out of memory");
  memset(l->broken, 0, bytes);
  return BRIM_OK;
}

static void free_ring(brim_loader *l) {
  brim_loader_device_deinit(l);
  brim_free(l->broken);
  brim_free(l->scratch);
  if (l->device && l->ring) {
    brim_device_free(l->device, BRIM_BUFFER_HOST, l->ring);
  } else {
    brim_free(l->ring);
  }
}

static void stop_threads(brim_loader *l) {
  pthread_mutex_lock(&l->lock);
  l->stop = true;
  pthread_cond_broadcast(&l->work);
  pthread_mutex_unlock(&l->lock);
  for (int i = 0; i < l->thread_count; i++) brim_thread_join(l->workers[i].thread);
  l->thread_count = 0;
}

static brim_status start_threads(brim_loader *l) {
  if (l->options.resident) return BRIM_OK;
  for (int i = 0; i < l->options.num_workers; i++) {
    brim_status status = brim_thread_start(brim_loader_worker_main, &l->workers[i], "brim-loader",
                                           &l->workers[i].thread);
    if (status) {
      stop_threads(l);
      return brim_fail_context(status, "loader worker %d", i);
    }
    l->thread_count++;
  }
  return BRIM_OK;
}

static void name_stages(brim_loader *l) {
  const brim_transforms *t = l->options.transforms;
  size_t count = t ? brim_transforms_count(t) : 0;
  if (count > BRIM_LOADER_MAX_STAGES || l->options.resident) return;  // not timed
  l->stats.stage_count = count;
  for (size_t i = 0; i < count; i++) l->stats.stage[i] = brim_transforms_name(t, i);
}

brim_status brim_loader_create(brim_device *device, brim_source *source,
                               const brim_loader_options *options, brim_loader **out) {
  const brim_resident *resident = options->resident;
  const brim_loader_maker maker = brim_loader_maker_of(resident);
  brim_loader_layout layout;
  BRIM_TRY(brim_loader_layout_make(source, options, &maker, &layout));
  brim_status status = BRIM_ENOMEM;
  brim_loader *l = brim_calloc(1, sizeof *l);
  if (!l) return brim_fail(BRIM_ENOMEM, "loader: out of memory");
  l->device = resident ? resident->device : options->pin_memory ? device : NULL;
  l->source = source;
  l->options = *options;
  l->layout = layout;
  l->slots = brim_calloc(layout.slots, sizeof *l->slots);
  l->workers = brim_calloc(worker_count(options), sizeof *l->workers);
  if (!l->slots || !l->workers) {
    brim_fail(BRIM_ENOMEM, "loader: out of memory");
    goto fail_arrays;
  }
  name_stages(l);
  status = alloc_ring(l);
  if (!status) status = alloc_scratch(l);
  if (!status) status = alloc_broken(l);
  if (status) goto fail_ring;
  pthread_mutex_init(&l->lock, NULL);  // default attributes: cannot fail on Linux
  pthread_cond_init(&l->work, NULL);
  pthread_cond_init(&l->ready, NULL);
  status = start_threads(l);
  if (status) goto fail_sync;
  *out = l;
  return BRIM_OK;
fail_sync:
  pthread_cond_destroy(&l->ready);
  pthread_cond_destroy(&l->work);
  pthread_mutex_destroy(&l->lock);
fail_ring:
  free_ring(l);
fail_arrays:
  brim_free(l->workers);
  brim_free(l->slots);
  brim_free(l);
  return status;
}

void brim_loader_destroy(brim_loader *loader) {
  if (!loader) return;
  stop_threads(loader);
  pthread_cond_destroy(&loader->ready);
  pthread_cond_destroy(&loader->work);
  pthread_mutex_destroy(&loader->lock);
  free_ring(loader);
  brim_free(loader->workers);
  brim_free(loader->slots);
  brim_free(loader);
}

int64_t brim_loader_samples(const brim_loader *loader) { return loader->layout.samples; }

int64_t brim_loader_batches(const brim_loader *loader) {
  int64_t batch = loader->options.batch;
  return loader->layout.samples / batch + (loader->layout.samples % batch != 0);
}

//---------------------------------- the caller's side ----------------------------------

// Is the batch that is handed out next the one that begins there?
static bool stands_at_locked(const brim_loader *l, int64_t epoch, int64_t position) {
  if (l->next_deliver == l->next_ticket) {
    return l->cursor.epoch == epoch && l->cursor.position == position;
  }
  for (size_t i = 0; i < l->layout.slots; i++) {
    const brim_loader_slot *slot = &l->slots[i];
    bool ahead = slot->state == BRIM_LOADER_READY || slot->state == BRIM_LOADER_FILLING;
    if (!ahead || slot->ticket != l->next_deliver) continue;
    return slot->loaded.epoch == epoch && slot->loaded.first == position && !slot->tally.status;
  }
  return false;
}

brim_status brim_loader_seek(brim_loader *loader, int64_t epoch, int64_t position) {
  brim_loader *l = loader;
  if (epoch < 0 || position < 0 || position > l->layout.samples) {
    return brim_fail(BRIM_EINVAL, "epoch %lld, sample %lld: an epoch has samples 0 to %lld",
                     (long long)epoch, (long long)position, (long long)l->layout.samples);
  }
  pthread_mutex_lock(&l->lock);
  if (stands_at_locked(l, epoch, position)) {  // what was read ahead is of use
    pthread_mutex_unlock(&l->lock);
    return BRIM_OK;
  }
  l->paused = true;
  while (l->filling) pthread_cond_wait(&l->ready, &l->lock);
  for (size_t i = 0; i < l->layout.slots; i++) {
    if (l->slots[i].state != BRIM_LOADER_TAKEN) l->slots[i].state = BRIM_LOADER_FREE;
  }
  l->open = NULL;
  l->cursor = (brim_loader_cursor){.epoch = epoch, .position = position};
  l->next_deliver = l->next_ticket;
  l->paused = false;
  pthread_cond_broadcast(&l->work);
  pthread_mutex_unlock(&l->lock);
  return BRIM_OK;
}

static brim_loader_slot *ready_locked(brim_loader *l) {
  for (size_t i = 0; i < l->layout.slots; i++) {
    brim_loader_slot *slot = &l->slots[i];
    if (slot->state == BRIM_LOADER_READY && slot->ticket == l->next_deliver) return slot;
  }
  return NULL;
}

// The slot of the next ticket; filled here when there are no workers.
static brim_loader_slot *wait_locked(brim_loader *l) {
  brim_loader_slot *slot = ready_locked(l);
  if (!slot && l->options.num_workers == 0) {
    slot = brim_loader_open_locked(l);
    brim_loader_fill_locked(l, slot);
  }
  while (!slot) {
    pthread_cond_wait(&l->ready, &l->lock);
    slot = ready_locked(l);
  }
  return slot;
}

typedef brim_status (*fill_fn)(brim_loader *l, brim_loader_slot *slot);

// The next batch into a free slot, made on the device; one that fails is tried again by the next
// call. *out NULL: no slot is free.
static brim_status open_on_device_locked(brim_loader *l, fill_fn fill, brim_loader_slot **out) {
  brim_loader_cursor before = l->cursor;
  brim_loader_slot *slot = brim_loader_open_locked(l);
  *out = slot;
  brim_status status = slot ? fill(l, slot) : BRIM_OK;
  if (status) {
    slot->state = BRIM_LOADER_FREE;
    l->cursor = before;
    l->next_ticket--;
  }
  return status;
}

// Out of a mapped set: the batch that is on its way, or one that sets out now.
static brim_status next_mapped_locked(brim_loader *l, brim_loader_slot **out) {
  *out = ready_locked(l);
  if (!*out) {
    BRIM_TRY(open_on_device_locked(l, brim_loader_device_fetch, out));
    (*out)->state = BRIM_LOADER_READY;
  }
  return brim_loader_device_finish(l, *out);
}

static brim_status next_on_device_locked(brim_loader *l, brim_loader_slot **out) {
  if (brim_loader_is_mapped(l)) return next_mapped_locked(l, out);
  return open_on_device_locked(l, brim_loader_device_fill, out);
}

// The batch after the one handed out sets out at once, to come while that one is worked on. Where
// that fails, the caller that asks for the batch gets the error.
static void fetch_ahead_locked(brim_loader *l) {
  brim_loader_slot *slot = NULL;
  if (!brim_loader_is_mapped(l) || ready_locked(l)) return;
  if (open_on_device_locked(l, brim_loader_device_fetch, &slot)) {
    brim_status_clear();
  } else if (slot) {
    slot->state = BRIM_LOADER_READY;
  }
}

static brim_status next_filled_locked(brim_loader *l, brim_loader_slot **out) {
  *out = wait_locked(l);
  // One that failed stays where it is: the same answer until a seek.
  if ((*out)->tally.status) brim_status_set_detail((*out)->tally.detail);
  return (*out)->tally.status;
}

// Samples of a batch whose place another one took are broken; each is counted once.
static void note_broken_locked(brim_loader *l, const brim_loader_slot *slot) {
  const brim_loaded *b = &slot->loaded;
  brim_shuffle order = brim_loader_shuffle(&l->options, l->source->info.count, b->epoch);
  for (int64_t row = 0; row < b->rows; row++) {
    uint64_t index = brim_loader_index(&l->options, &order, (uint64_t)(b->first + row));
    uint8_t bit = (uint8_t)(1u << (index & 7));
    if (index == slot->index[row] || (l->broken[index >> 3] & bit)) continue;
    l->broken[index >> 3] |= bit;
    l->stats.broken++;
  }
}

// Only what was handed out counts, so that the counts do not depend on what workers read ahead.
static void count_locked(brim_loader *l, const brim_loader_slot *slot) {
  brim_loader_stats *s = &l->stats;
  const brim_loader_tally *t = &slot->tally;
  s->batches++;
  s->samples += (uint64_t)slot->loaded.rows;
  s->read_ns += t->read_ns;
  for (size_t i = 0; i < s->stage_count; i++) s->stage_ns[i] += t->stage_ns[i];
  if (!t->broken) return;
  if (!s->broken) memcpy(s->first_broken, t->broken_text, sizeof s->first_broken);
  s->broken_reads += t->broken;
  note_broken_locked(l, slot);
}

brim_status brim_loader_next(brim_loader *loader, const brim_loaded **out) {
  brim_loader *l = loader;
  brim_status status;
  pthread_mutex_lock(&l->lock);
  if (l->held == l->layout.slots) {
    status = brim_fail(BRIM_ESTATE, "all %zu batches of the loader are in use; release one first",
                       l->layout.slots);
  } else {
    brim_loader_slot *slot = NULL;
    status = l->options.resident ? next_on_device_locked(l, &slot) : next_filled_locked(l, &slot);
    if (!status) {
      slot->state = BRIM_LOADER_TAKEN;
      l->held++;
      l->next_deliver++;
      count_locked(l, slot);
      fetch_ahead_locked(l);
      *out = &slot->loaded;
    }
  }
  pthread_mutex_unlock(&l->lock);
  return status;
}

void brim_loader_release(brim_loader *loader, const brim_loaded *batch) {
  if (!batch) return;
  pthread_mutex_lock(&loader->lock);
  for (size_t i = 0; i < loader->layout.slots; i++) {
    brim_loader_slot *slot = &loader->slots[i];
    if (&slot->loaded == batch && slot->state == BRIM_LOADER_TAKEN) {
      brim_loader_device_give_back(loader, slot);
      slot->state = BRIM_LOADER_FREE;
      loader->held--;
      pthread_cond_broadcast(&loader->work);  // they share the batch it makes room for
      break;
    }
  }
  pthread_mutex_unlock(&loader->lock);
}

void brim_loader_get_stats(brim_loader *loader, brim_loader_stats *out) {
  pthread_mutex_lock(&loader->lock);
  *out = loader->stats;
  pthread_mutex_unlock(&loader->lock);
}

const uint8_t *brim_loader_left_out(const brim_loader *loader, size_t *bytes) {
  *bytes = loader->layout.broken_bytes;
  return loader->broken;
}
