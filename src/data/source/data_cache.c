// Samples kept in memory: one planned block with a place for each and a byte that says whether it
// is there. The thread that reads a sample first fills it; no thread waits for another.
#include <stdatomic.h>
#include <string.h>

#include "data/source/data_source_int.h"

enum { EMPTY, FILLING, READY };

struct brim_source_cache {
  uint8_t *block;          // count x (input, target)
  _Atomic uint8_t *state;  // count; behind the samples in the same block
};

static size_t sample_bytes(const brim_source *s) { return s->input_bytes + s->target_bytes; }

// UINT64_MAX where 64 bits cannot hold it.
uint64_t brim_source_cache_bytes(const brim_source *source) {
  uint64_t each = (uint64_t)source->input_bytes + source->target_bytes + 1, all;
  return __builtin_mul_overflow(each, source->info.count, &all) ? UINT64_MAX : all;
}

brim_status brim_source_keep(brim_source *source) {
  if (source->cache) return BRIM_OK;
  if (source->info.varies) {
    return brim_fail(BRIM_EUNSUPPORTED,
                     "images of different sizes cannot be cached; convert them to one size first "
                     "(brim data convert)");
  }
  uint64_t bytes = brim_source_cache_bytes(source);
  if (bytes > PTRDIFF_MAX) {
    return brim_fail(BRIM_ELIMIT, "the samples do not fit in memory");
  }
  brim_source_cache *cache = brim_calloc(1, sizeof *cache);
  uint8_t *block = brim_alloc_tagged((size_t)bytes, BRIM_MEM_PLANNED);
  if (!cache || !block) {
    brim_free(cache);
    brim_free(block);
    return brim_fail(BRIM_ENOMEM, "dataset cache of %llu bytes: out of memory",
                     (unsigned long long)bytes);
  }
  cache->block = block;
  cache->state = (_Atomic uint8_t *)(block + (size_t)source->info.count * sample_bytes(source));
  for (uint64_t i = 0; i < source->info.count; i++) atomic_init(&cache->state[i], EMPTY);
  source->cache = cache;
  return BRIM_OK;
}

void brim_source_cache_free(brim_source_cache *cache) {
  if (!cache) return;
  brim_free(cache->block);
  brim_free(cache);
}

bool brim_source_cache_get(const brim_source *source, uint64_t index, void *input, void *target) {
  const brim_source_cache *c = source->cache;
  if (atomic_load_explicit(&c->state[index], memory_order_acquire) != READY) return false;
  const uint8_t *from = c->block + (size_t)index * sample_bytes(source);
  memcpy(input, from, source->input_bytes);
  if (source->target_bytes) memcpy(target, from + source->input_bytes, source->target_bytes);
  return true;
}

void brim_source_cache_put(const brim_source *source, uint64_t index, const void *input,
                           const void *target) {
  const brim_source_cache *c = source->cache;
  uint8_t empty = EMPTY;
  // Only one of several that read the sample at once writes it; the others have their own copy.
  if (!atomic_compare_exchange_strong_explicit(&c->state[index], &empty, FILLING,
                                               memory_order_relaxed, memory_order_relaxed)) {
    return;
  }
  uint8_t *to = c->block + (size_t)index * sample_bytes(source);
  memcpy(to, input, source->input_bytes);
  if (source->target_bytes) memcpy(to + source->input_bytes, target, source->target_bytes);
  atomic_store_explicit(&c->state[index], READY, memory_order_release);
}
