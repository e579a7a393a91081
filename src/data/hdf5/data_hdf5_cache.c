// Unpacked chunks in memory that is allocated once. Chunks are dealt out to stripes, each with its
// own lock and its own share of the slots, and a stripe gives up its chunks by the clock. Threads
// unpack without a lock; a thread that needs a chunk that is being unpacked waits for it.
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "data/hdf5/data_hdf5.h"

enum {
  MAX_STRIPES = 32,
  SLOTS_PER_STRIPE = 8,  // at least, where there is more than one stripe
  MIN_SLOTS = 2,
  MAX_DECODERS = 256,
};
static const uint64_t SCRATCH_LIMIT = (uint64_t)256
                                      << 20;  // room of all decoders, if chunks are huge

#define NO_CHUNK UINT64_MAX

typedef struct cache_slot {
  uint64_t chunk;
  uint32_t pins;
  bool ready;  // unpacked; a slot with a chunk that is not is in use
  bool used;   // since the clock's hand came by
} cache_slot;

typedef struct cache_stripe {
  _Alignas(64) pthread_mutex_t lock;
  pthread_cond_t changed;
  uint32_t slots, hand, waiting;
  uint64_t misses;
} cache_stripe;

struct brim_hdf5_cache {
  const brim_hdf5_array *a;
  uint8_t *data;  // slots x stride
  size_t stride;
  cache_slot *slots;  // slot i is stripe i % stripe_count's
  int32_t *slot_of;   // for each chunk; -1: nowhere
  uint32_t slot_count, stripe_count, stripes_ready;
  pthread_mutex_t decoder_lock;
  pthread_cond_t decoder_free;
  brim_hdf5_decoder *decoders[MAX_DECODERS];  // the free ones first
  uint32_t decoder_count, decoders_free;
  uint64_t bytes;
  cache_stripe stripes[MAX_STRIPES];
};

static void *planned(brim_hdf5_cache *c, uint64_t count, uint64_t size) {
  uint64_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes) || bytes > PTRDIFF_MAX) return NULL;
  void *p = brim_alloc_tagged((size_t)bytes, BRIM_MEM_PLANNED);
  if (p) c->bytes += bytes;
  return p;
}

static brim_status create_parts(brim_hdf5_cache *c) {
  const brim_hdf5_array *a = c->a;
  c->data = planned(c, c->slot_count, c->stride);
  c->slots = planned(c, c->slot_count, sizeof *c->slots);
  c->slot_of = planned(c, a->chunk_count, sizeof *c->slot_of);
  if (!c->data || !c->slots || !c->slot_of)
    return brim_fail(BRIM_ENOMEM,
                     "%s: %s: out of memory for %u unpacked chunks of %" PRIu64
                     " bytes; use a smaller chunk_cache= or smaller chunks",
                     a->map->path, a->name, c->slot_count, a->chunk_bytes);
  for (uint32_t i = 0; i < c->slot_count; i++) c->slots[i] = (cache_slot){.chunk = NO_CHUNK};
  for (uint64_t i = 0; i < a->chunk_count; i++) c->slot_of[i] = -1;
  uint64_t scratch = brim_hdf5_decoder_bytes(a);
  uint64_t decoders = (uint64_t)brim_cpu_count();
  if (scratch && decoders > SCRATCH_LIMIT / scratch) decoders = SCRATCH_LIMIT / scratch;
  if (decoders > c->slot_count) decoders = c->slot_count;
  if (decoders > MAX_DECODERS) decoders = MAX_DECODERS;
  if (decoders < 1) decoders = 1;
  for (; c->decoder_count < decoders; c->decoder_count++) {
    BRIM_TRY(brim_hdf5_decoder_create(a, &c->decoders[c->decoder_count]));
    c->bytes += scratch;
  }
  c->decoders_free = c->decoder_count;
  return BRIM_OK;
}

brim_status brim_hdf5_cache_create(const brim_hdf5_array *a, uint64_t budget,
                                   brim_hdf5_cache **out) {
  brim_hdf5_cache *c = brim_calloc(1, sizeof *c);
  *out = NULL;
  if (!c) return brim_fail(BRIM_ENOMEM, "%s: %s: out of memory", a->map->path, a->name);
  c->a = a;
  c->stride = (a->chunk_bytes + BRIM_HDF5_TAIL + BRIM_ALIGN - 1) / BRIM_ALIGN * BRIM_ALIGN;
  uint64_t slots = budget / c->stride;
  if (slots < MIN_SLOTS) slots = MIN_SLOTS;
  if (slots > a->chunk_count) slots = a->chunk_count;
  c->slot_count = (uint32_t)slots;  // chunk_count is far below the limit of uint32_t
  c->stripe_count = c->slot_count / SLOTS_PER_STRIPE;
  if (c->stripe_count > MAX_STRIPES) c->stripe_count = MAX_STRIPES;
  if (c->stripe_count < 1) c->stripe_count = 1;
  pthread_mutex_init(&c->decoder_lock, NULL);
  pthread_cond_init(&c->decoder_free, NULL);
  for (; c->stripes_ready < c->stripe_count; c->stripes_ready++) {
    cache_stripe *s = &c->stripes[c->stripes_ready];
    s->slots = (c->slot_count - c->stripes_ready - 1) / c->stripe_count + 1;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
  }
  brim_status status = create_parts(c);
  if (status) {
    brim_hdf5_cache_destroy(c);
    return status;
  }
  *out = c;
  return BRIM_OK;
}

void brim_hdf5_cache_destroy(brim_hdf5_cache *c) {
  if (!c) return;
  for (uint32_t i = 0; i < c->decoder_count; i++) brim_hdf5_decoder_destroy(c->decoders[i]);
  for (uint32_t i = 0; i < c->stripes_ready; i++) {
    pthread_mutex_destroy(&c->stripes[i].lock);
    pthread_cond_destroy(&c->stripes[i].changed);
  }
  pthread_mutex_destroy(&c->decoder_lock);
  pthread_cond_destroy(&c->decoder_free);
  brim_free(c->data);
  brim_free(c->slots);
  brim_free(c->slot_of);
  brim_free(c);
}

uint64_t brim_hdf5_cache_bytes(const brim_hdf5_cache *cache) { return cache->bytes; }

uint64_t brim_hdf5_cache_misses(brim_hdf5_cache *c) {
  uint64_t n = 0;
  for (uint32_t i = 0; i < c->stripe_count; i++) {
    pthread_mutex_lock(&c->stripes[i].lock);
    n += c->stripes[i].misses;
    pthread_mutex_unlock(&c->stripes[i].lock);
  }
  return n;
}

static brim_hdf5_decoder *take_decoder(brim_hdf5_cache *c) {
  pthread_mutex_lock(&c->decoder_lock);
  while (!c->decoders_free) pthread_cond_wait(&c->decoder_free, &c->decoder_lock);
  brim_hdf5_decoder *d = c->decoders[--c->decoders_free];
  pthread_mutex_unlock(&c->decoder_lock);
  return d;
}

static void give_decoder(brim_hdf5_cache *c, brim_hdf5_decoder *d) {
  pthread_mutex_lock(&c->decoder_lock);
  c->decoders[c->decoders_free++] = d;
  pthread_cond_signal(&c->decoder_free);
  pthread_mutex_unlock(&c->decoder_lock);
}

// The least recently used free slot of the stripe; -1 = all slots are in use.
static int32_t victim_locked(brim_hdf5_cache *c, uint32_t which) {
  cache_stripe *s = &c->stripes[which];
  for (uint32_t i = 0; i < 2 * s->slots; i++) {
    uint32_t at = s->hand * c->stripe_count + which;
    cache_slot *slot = &c->slots[at];
    s->hand = s->hand + 1 == s->slots ? 0 : s->hand + 1;
    if (slot->pins || (slot->chunk != NO_CHUNK && !slot->ready)) continue;
    if (slot->used) {
      slot->used = false;
      continue;
    }
    return (int32_t)at;
  }
  return -1;
}

static void wait_locked(cache_stripe *s) {
  s->waiting++;
  pthread_cond_wait(&s->changed, &s->lock);
  s->waiting--;
}

// Unpacks into slot `at`, releasing the stripe's lock meanwhile.
static brim_status fill_locked(brim_hdf5_cache *c, cache_stripe *s, uint64_t chunk, int32_t at) {
  cache_slot *slot = &c->slots[at];
  if (slot->chunk != NO_CHUNK) c->slot_of[slot->chunk] = -1;
  *slot = (cache_slot){.chunk = chunk, .pins = 1, .used = true};
  c->slot_of[chunk] = at;
  s->misses++;
  pthread_mutex_unlock(&s->lock);
  brim_hdf5_decoder *decoder = take_decoder(c);
  brim_status status = brim_hdf5_decode(c->a, chunk, decoder, c->data + (size_t)at * c->stride);
  give_decoder(c, decoder);
  pthread_mutex_lock(&s->lock);
  if (status) {
    c->slot_of[chunk] = -1;
    *slot = (cache_slot){.chunk = NO_CHUNK};
  } else {
    slot->ready = true;
  }
  if (s->waiting) pthread_cond_broadcast(&s->changed);
  return status;
}

brim_status brim_hdf5_cache_get(brim_hdf5_cache *c, uint64_t chunk, uint32_t *out,
                                const uint8_t **data) {
  uint32_t which = (uint32_t)(chunk % c->stripe_count);
  cache_stripe *s = &c->stripes[which];
  brim_status status = BRIM_OK;
  int32_t at;
  pthread_mutex_lock(&s->lock);
  for (;;) {
    at = c->slot_of[chunk];
    if (at >= 0 && c->slots[at].ready) {
      c->slots[at].pins++;
      c->slots[at].used = true;
      break;
    }
    if (at < 0) at = victim_locked(c, which);
    if (at >= 0 && c->slot_of[chunk] < 0) {
      status = fill_locked(c, s, chunk, at);
      break;
    }
    wait_locked(s);
  }
  pthread_mutex_unlock(&s->lock);
  if (status) return status;
  *out = (uint32_t)at;
  *data = c->data + (size_t)at * c->stride;
  return BRIM_OK;
}

void brim_hdf5_cache_put(brim_hdf5_cache *c, uint64_t chunk, uint32_t slot) {
  cache_stripe *s = &c->stripes[chunk % c->stripe_count];
  pthread_mutex_lock(&s->lock);
  c->slots[slot].pins--;
  if (s->waiting) pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
}
