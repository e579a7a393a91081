// The loader: a ring of batch buffers, filled by worker threads (or by the caller, with none) and
// handed out in order. Which sample lies where is a function of (seed, epoch, position) alone, so
// neither the number of workers nor a seek changes the stream. Nothing is allocated after create.
//
// Every batch has a ticket. Workers claim tickets in order, each with any free slot, and fill
// without the lock; the caller gets the slot that holds the next ticket. As claims are in order,
// the next ticket is always claimed or claimable as long as the caller leaves one slot free.
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "data/data_int.h"
#include "hd/hd_shuffle.h"

enum {
  MAX_WORKERS = 1024,
  MAX_PREFETCH = 1024,
  // Batches in the caller's hands besides those kept ready: one in use, one being copied.
  HELD_SLOTS = 2,
  DETAIL_BYTES = 512,
};

typedef enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_READY, SLOT_HELD } slot_state;

typedef struct loader_slot {
  brim_loaded loaded;
  uint64_t *index;
  slot_state state;
  uint64_t ticket;
  brim_status status;  // of filling it
  char detail[DETAIL_BYTES];
} loader_slot;

// Sizes that follow from the options and the source; plan and create agree through it.
typedef struct loader_layout {
  int64_t samples;     // of this rank in an epoch
  size_t input_bytes;  // of one sample in the batch, transformed
  size_t slots;
  size_t target_at, index_at, slot_bytes;  // inputs lie at 0
  size_t ring_bytes;
  size_t scratch_bytes, scratch_all;  // of one thread that fills, of all
} loader_layout;

typedef struct loader_cursor {
  int64_t epoch, position;
} loader_cursor;

// A thread that fills; with none, the caller is one.
typedef struct loader_worker {
  brim_loader *loader;
  brim_thread *thread;
  uint8_t *scratch;  // the transforms'; NULL when they need none
} loader_worker;

struct brim_loader {
  brim_device *device;  // NULL when the ring is not pinned
  brim_source *source;
  brim_loader_options options;
  loader_layout layout;
  uint8_t *ring;
  uint8_t *scratch;
  loader_slot *slots;
  loader_worker *workers;  // one at least
  int thread_count;

  pthread_mutex_t lock;
  pthread_cond_t work;   // workers: a slot came free, seek is over, or stop
  pthread_cond_t ready;  // caller: a batch was filled
  // Under the lock from here on.
  loader_cursor cursor;  // of the next ticket to claim
  uint64_t next_claim, next_deliver;
  size_t filling, held;
  bool paused, stop;
};

//---------------------------------- order ----------------------------------

static uint64_t usable(const brim_loader_options *o, uint64_t count) {
  return o->limit && o->limit < count ? o->limit : count;
}

// Rank r of k takes positions r, r + k, r + 2k, ... of the common order.
static uint64_t global_position(const brim_loader_options *o, uint64_t i) {
  return i * (uint64_t)o->world + (uint64_t)o->rank;
}

uint64_t brim_loader_order(const brim_loader_options *options, uint64_t count, int64_t epoch,
                           uint64_t i) {
  uint64_t position = global_position(options, i);
  if (!options->shuffle) return position;
  brim_shuffle s = brim_shuffle_make(options->seed, (uint64_t)epoch, usable(options, count));
  return brim_shuffle_at(&s, position);
}

// Whether an epoch has a batch at this position, and how many rows it has.
static int64_t rows_at(const brim_loader *l, int64_t position) {
  int64_t left = l->layout.samples - position;
  if (left >= l->options.batch) return l->options.batch;
  return l->options.drop_last ? 0 : left;
}

//---------------------------------- sizes ----------------------------------

static brim_status check_options(const brim_loader_options *o, uint64_t count) {
  if (o->batch < 1) {
    return brim_fail(BRIM_EINVAL, "batch size %lld; it must be at least 1", (long long)o->batch);
  }
  if (o->num_workers < 0 || o->num_workers > MAX_WORKERS) {
    return brim_fail(BRIM_EINVAL, "num_workers %d; it must be 0 to %d", o->num_workers,
                     MAX_WORKERS);
  }
  if (o->num_workers && (o->prefetch_factor < 1 || o->prefetch_factor > MAX_PREFETCH)) {
    return brim_fail(BRIM_EINVAL, "prefetch_factor %d; it must be 1 to %d", o->prefetch_factor,
                     MAX_PREFETCH);
  }
  if (o->world < 1 || o->rank < 0 || o->rank >= o->world) {
    return brim_fail(BRIM_EINVAL, "rank %d of %d ranks", o->rank, o->world);
  }
  uint64_t share = usable(o, count) / (uint64_t)o->world;
  if (share == 0) {
    return brim_fail(BRIM_EINVAL, "%llu samples are too few for %d ranks",
                     (unsigned long long)usable(o, count), o->world);
  }
  if (o->drop_last && share < (uint64_t)o->batch) {
    return brim_fail(BRIM_EINVAL,
                     "drop_last leaves nothing: %llu samples, batch size %lld; make the batch "
                     "smaller or set drop_last: false",
                     (unsigned long long)share, (long long)o->batch);
  }
  return BRIM_OK;
}

// a * b rounded up to whole cache lines.
static bool block_bytes(size_t a, size_t b, size_t *out) {
  if (__builtin_mul_overflow(a, b, out) || *out > PTRDIFF_MAX - BRIM_ALIGN) return false;
  *out = (*out + BRIM_ALIGN - 1) / BRIM_ALIGN * BRIM_ALIGN;
  return true;
}

static size_t worker_count(const brim_loader_options *o) {
  return o->num_workers ? (size_t)o->num_workers : 1;
}

static brim_status make_layout(const brim_source *source, const brim_loader_options *o,
                               loader_layout *out) {
  BRIM_TRY(check_options(o, source->info.count));
  loader_layout l = {0};
  l.samples = (int64_t)(usable(o, source->info.count) / (uint64_t)o->world);
  if (o->drop_last) l.samples -= l.samples % o->batch;
  l.slots = HELD_SLOTS + (size_t)o->num_workers * (o->num_workers ? (size_t)o->prefetch_factor : 0);
  l.input_bytes = o->transforms ? brim_transforms_output_bytes(o->transforms) : source->input_bytes;
  if (o->transforms) l.scratch_bytes = brim_transforms_scratch_bytes(o->transforms);
  size_t batch = (size_t)o->batch, inputs, targets, indices, total;
  if (!block_bytes(l.scratch_bytes, worker_count(o), &l.scratch_all) ||
      !block_bytes(batch, l.input_bytes, &inputs) ||
      !block_bytes(batch, source->target_bytes, &targets) ||
      !block_bytes(batch, sizeof(uint64_t), &indices) ||
      __builtin_add_overflow(inputs, targets, &total) ||
      __builtin_add_overflow(total, indices, &total) ||
      __builtin_mul_overflow(total, l.slots, &l.ring_bytes) || l.ring_bytes > PTRDIFF_MAX) {
    return brim_fail(BRIM_ELIMIT, "a ring of %zu batches of %lld samples does not fit in memory",
                     l.slots, (long long)o->batch);
  }
  l.target_at = inputs;
  l.index_at = inputs + targets;
  l.slot_bytes = total;
  *out = l;
  return BRIM_OK;
}

// Rows of one name and place are one row, so that train and eval loaders add up.
static brim_status plan_add(brim_plan *plan, const char *name, uint64_t bytes) {
  if (bytes == 0) return BRIM_OK;
  size_t i = 0;
  while (i < plan->row_count &&
         (plan->rows[i].place != BRIM_PLACE_HOST || strcmp(plan->rows[i].name, name) != 0)) {
    i++;
  }
  if (i == BRIM_PLAN_MAX_ROWS) return brim_fail(BRIM_ELIMIT, "the plan has no row left");
  if (i == plan->row_count) {
    plan->rows[plan->row_count++] = (brim_plan_row){.name = name, .place = BRIM_PLACE_HOST};
  }
  plan->rows[i].bytes += bytes;
  plan->bytes[BRIM_PLACE_HOST] += bytes;
  return BRIM_OK;
}

brim_status brim_loader_plan(const brim_source *source, const brim_loader_options *options,
                             brim_plan *plan) {
  loader_layout layout;
  BRIM_TRY(make_layout(source, options, &layout));
  BRIM_TRY(plan_add(plan, "loader ring", layout.ring_bytes));
  BRIM_TRY(plan_add(plan, "transform scratch", layout.scratch_all));
  return plan_add(plan, "dataset", source->host_bytes);
}

//---------------------------------- filling ----------------------------------

// Take the next ticket into a free slot; NULL when there is none.
static loader_slot *claim_locked(brim_loader *l) {
  loader_slot *slot = NULL;
  for (size_t i = 0; i < l->layout.slots && !slot; i++) {
    if (l->slots[i].state == SLOT_FREE) slot = &l->slots[i];
  }
  if (!slot) return NULL;
  int64_t rows = rows_at(l, l->cursor.position);
  if (rows == 0) {
    l->cursor = (loader_cursor){.epoch = l->cursor.epoch + 1};
    rows = rows_at(l, 0);
  }
  slot->state = SLOT_FILLING;
  slot->ticket = l->next_claim++;
  slot->loaded.rows = rows;
  slot->loaded.epoch = l->cursor.epoch;
  slot->loaded.first = l->cursor.position;
  l->cursor.position += rows;
  slot->loaded.last = rows_at(l, l->cursor.position) == 0;
  l->filling++;
  return slot;
}

// One sample into its row of the batch, and how long reading and transforming it took: added to the
// batch's. Without transforms nothing is timed here.
static brim_status fill_row(const loader_worker *w, brim_loaded *b, int64_t row, uint64_t index) {
  const brim_source *source = w->loader->source;
  const brim_transforms *transforms = w->loader->options.transforms;
  uint8_t *out = (uint8_t *)b->input + (size_t)row * w->loader->layout.input_bytes;
  uint8_t *target = (uint8_t *)b->target + (size_t)row * source->target_bytes;
  if (!transforms) return source->table->read(source->state, index, out, target);
  void *in = brim_transforms_input(transforms, out, w->scratch);
  BRIM_TRY(source->table->read(source->state, index, in, target));
  brim_time start = brim_clock_now();
  brim_transforms_apply(transforms, b->epoch, index, out, w->scratch);
  b->transform_ns += brim_time_since_ns(start, brim_clock_now());
  return BRIM_OK;
}

// Without the lock: only this thread sees the slot's buffers.
static brim_status fill_rows(const loader_worker *w, loader_slot *slot) {
  const brim_loader_options *o = &w->loader->options;
  brim_loaded *b = &slot->loaded;
  brim_shuffle order =
      brim_shuffle_make(o->seed, (uint64_t)b->epoch, usable(o, w->loader->source->info.count));
  brim_status_clear();
  for (int64_t row = 0; row < b->rows; row++) {
    uint64_t index = global_position(o, (uint64_t)(b->first + row));
    if (o->shuffle) index = brim_shuffle_at(&order, index);
    slot->index[row] = index;
    brim_status status = fill_row(w, b, row, index);
    if (status) {
      if (!brim_status_detail()[0]) brim_status_set_detail(brim_status_text(status));
      return brim_fail_context(status, "sample %llu (epoch %lld)", (unsigned long long)index,
                               (long long)b->epoch);
    }
  }
  return BRIM_OK;
}

static void fill(const loader_worker *w, loader_slot *slot) {
  const brim_loader *l = w->loader;
  brim_loaded *b = &slot->loaded;
  brim_time start = brim_clock_now();
  b->transform_ns = 0;
  slot->status = fill_rows(w, slot);
  b->io_ns = brim_time_since_ns(start, brim_clock_now()) - b->transform_ns;
  size_t rows = (size_t)b->rows, rest = (size_t)l->options.batch - rows;
  if (slot->status) {
    snprintf(slot->detail, sizeof slot->detail, "%s", brim_status_detail());
  } else if (rest) {
    memset((uint8_t *)b->input + rows * l->layout.input_bytes, 0, rest * l->layout.input_bytes);
    memset((uint8_t *)b->target + rows * l->source->target_bytes, 0,
           rest * l->source->target_bytes);
    memset(slot->index + rows, 0, rest * sizeof *slot->index);
  }
}

static void finish_locked(brim_loader *l, loader_slot *slot) {
  slot->state = SLOT_READY;
  l->filling--;
}

static void worker_main(void *ctx) {
  const loader_worker *w = ctx;
  brim_loader *l = w->loader;
  pthread_mutex_lock(&l->lock);
  while (!l->stop) {
    loader_slot *slot = l->paused ? NULL : claim_locked(l);
    if (!slot) {
      pthread_cond_wait(&l->work, &l->lock);
      continue;
    }
    pthread_mutex_unlock(&l->lock);
    fill(w, slot);
    pthread_mutex_lock(&l->lock);
    finish_locked(l, slot);
    pthread_cond_signal(&l->ready);
  }
  pthread_mutex_unlock(&l->lock);
}

//---------------------------------- create, destroy ----------------------------------

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
  for (size_t i = 0; i < l->layout.slots; i++) {
    uint8_t *base = l->ring + i * l->layout.slot_bytes;
    loader_slot *slot = &l->slots[i];
    slot->index = (uint64_t *)(void *)(base + l->layout.index_at);
    slot->loaded.input = base;
    slot->loaded.target = base + l->layout.target_at;
    slot->loaded.index = slot->index;
  }
  return BRIM_OK;
}

static brim_status alloc_scratch(brim_loader *l) {
  for (size_t i = 0; i < worker_count(&l->options); i++) l->workers[i].loader = l;
  if (l->layout.scratch_all == 0) return BRIM_OK;
  l->scratch = brim_alloc_tagged(l->layout.scratch_all, BRIM_MEM_PLANNED);
  if (!l->scratch) {
    return brim_fail(BRIM_ENOMEM, "transform scratch of %zu bytes: out of memory",
                     l->layout.scratch_all);
  }
  for (size_t i = 0; i < worker_count(&l->options); i++) {
    l->workers[i].scratch = l->scratch + i * l->layout.scratch_bytes;
  }
  return BRIM_OK;
}

static void free_ring(brim_loader *l) {
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
  for (int i = 0; i < l->options.num_workers; i++) {
    brim_status status =
        brim_thread_start(worker_main, &l->workers[i], "brim-loader", &l->workers[i].thread);
    if (status) {
      stop_threads(l);
      return brim_fail_context(status, "loader worker %d", i);
    }
    l->thread_count++;
  }
  return BRIM_OK;
}

brim_status brim_loader_create(brim_device *device, brim_source *source,
                               const brim_loader_options *options, brim_loader **out) {
  loader_layout layout;
  BRIM_TRY(make_layout(source, options, &layout));
  brim_status status = BRIM_ENOMEM;
  brim_loader *l = brim_calloc(1, sizeof *l);
  if (!l) return brim_fail(BRIM_ENOMEM, "loader: out of memory");
  l->device = options->pin_memory ? device : NULL;
  l->source = source;
  l->options = *options;
  l->layout = layout;
  l->slots = brim_calloc(layout.slots, sizeof *l->slots);
  l->workers = brim_calloc(worker_count(options), sizeof *l->workers);
  if (!l->slots || !l->workers) {
    brim_fail(BRIM_ENOMEM, "loader: out of memory");
    goto fail_arrays;
  }
  status = alloc_ring(l);
  if (!status) status = alloc_scratch(l);
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

brim_status brim_loader_seek(brim_loader *loader, int64_t epoch, int64_t position) {
  brim_loader *l = loader;
  if (epoch < 0 || position < 0 || position > l->layout.samples) {
    return brim_fail(BRIM_EINVAL, "epoch %lld, sample %lld: an epoch has samples 0 to %lld",
                     (long long)epoch, (long long)position, (long long)l->layout.samples);
  }
  pthread_mutex_lock(&l->lock);
  l->paused = true;
  while (l->filling) pthread_cond_wait(&l->ready, &l->lock);
  for (size_t i = 0; i < l->layout.slots; i++) {
    if (l->slots[i].state == SLOT_READY) l->slots[i].state = SLOT_FREE;
  }
  l->cursor = (loader_cursor){.epoch = epoch, .position = position};
  l->next_deliver = l->next_claim;
  l->paused = false;
  pthread_cond_broadcast(&l->work);
  pthread_mutex_unlock(&l->lock);
  return BRIM_OK;
}

static loader_slot *ready_locked(brim_loader *l) {
  for (size_t i = 0; i < l->layout.slots; i++) {
    loader_slot *slot = &l->slots[i];
    if (slot->state == SLOT_READY && slot->ticket == l->next_deliver) return slot;
  }
  return NULL;
}

// The slot of the next ticket; filled here when there are no workers.
static loader_slot *wait_locked(brim_loader *l) {
  loader_slot *slot = ready_locked(l);
  if (!slot && l->options.num_workers == 0) {
    slot = claim_locked(l);
    fill(&l->workers[0], slot);
    finish_locked(l, slot);
  }
  while (!slot) {
    pthread_cond_wait(&l->ready, &l->lock);
    slot = ready_locked(l);
  }
  return slot;
}

brim_status brim_loader_next(brim_loader *loader, const brim_loaded **out) {
  brim_loader *l = loader;
  brim_status status;
  pthread_mutex_lock(&l->lock);
  if (l->held == l->layout.slots) {
    status = brim_fail(BRIM_ESTATE, "all %zu batches of the loader are taken; release one first",
                       l->layout.slots);
  } else {
    loader_slot *slot = wait_locked(l);
    status = slot->status;
    if (status) {
      // Stays where it is: the same answer until a seek.
      brim_status_set_detail(slot->detail);
    } else {
      slot->state = SLOT_HELD;
      l->held++;
      l->next_deliver++;
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
    loader_slot *slot = &loader->slots[i];
    if (&slot->loaded == batch && slot->state == SLOT_HELD) {
      slot->state = SLOT_FREE;
      loader->held--;
      pthread_cond_signal(&loader->work);
      break;
    }
  }
  pthread_mutex_unlock(&loader->lock);
}
