// The one allocator: a 64-byte header in front of each 64-byte aligned block, exact counters, and
// an injector for tests. The block ends where the request ends, so ASan sees an overrun by one
// byte.
#include "base/base_alloc.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/base_alloc_small.h"
#include "base/base_asan.h"

enum { BLOCK_MAGIC = 0x4252494d };  // a free of a foreign pointer is a programmer's error

typedef struct block_header {
  size_t size;
  brim_mem_tag tag;
  uint32_t magic;
} block_header;

_Static_assert(sizeof(block_header) <= BRIM_ALIGN, "the header must fit in front of a block");
_Static_assert(sizeof(block_header) % 16 == 0, "a small block lies behind its header");

// Process-wide by nature: the counters describe the heap, of which there is one.
static atomic_uint_fast64_t live_bytes[BRIM_MEM_TAG_COUNT];
static atomic_uint_fast64_t live_blocks[BRIM_MEM_TAG_COUNT];
static atomic_uint_fast64_t total_bytes;
static atomic_uint_fast64_t peak_bytes;
static atomic_uint_fast64_t call_count;
static atomic_uint_fast64_t fail_countdown;  // 0 = off, 1 = the next one fails
static atomic_int fail_sticky;
static atomic_uint_fast64_t fail_count;

static block_header *header_at(const void *ptr, size_t before) {
  block_header *h = (block_header *)((uintptr_t)ptr - before);
  assert(h->magic == BLOCK_MAGIC);
  return h;
}

static block_header *header_of(const void *ptr) { return header_at(ptr, BRIM_ALIGN); }

static int injected(void) {
  uint_fast64_t n = atomic_load(&fail_countdown);
  while (n) {
    uint_fast64_t next = n > 1 ? n - 1 : atomic_load(&fail_sticky) ? 1 : 0;
    if (atomic_compare_exchange_weak(&fail_countdown, &n, next)) {
      if (n > 1) return 0;
      atomic_fetch_add(&fail_count, 1);
      return 1;
    }
  }
  return 0;
}

static void count_add(brim_mem_tag tag, size_t size) {
  atomic_fetch_add(&live_bytes[tag], size);
  uint_fast64_t now = atomic_fetch_add(&total_bytes, size) + size;
  uint_fast64_t peak = atomic_load(&peak_bytes);
  while (now > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, now)) {
  }
}

static void count_sub(brim_mem_tag tag, size_t size) {
  atomic_fetch_sub(&live_bytes[tag], size);
  atomic_fetch_sub(&total_bytes, size);
}

static void begin_block(block_header *h, size_t size, brim_mem_tag tag) {
  *h = (block_header){.size = size, .tag = tag, .magic = BLOCK_MAGIC};
  atomic_fetch_add(&live_blocks[tag], 1);
  count_add(tag, size);
}

static void end_block(block_header *h) {
  count_sub(h->tag, h->size);
  atomic_fetch_sub(&live_blocks[h->tag], 1);
  h->magic = 0;
  free(h);
}

void *brim_alloc_tagged(size_t size, brim_mem_tag tag) {
  assert((unsigned)tag < BRIM_MEM_TAG_COUNT);
  atomic_fetch_add(&call_count, 1);
  if (injected() || size > PTRDIFF_MAX - BRIM_ALIGN) return NULL;
  void *raw = NULL;
  if (posix_memalign(&raw, BRIM_ALIGN, BRIM_ALIGN + size) != 0) return NULL;
  begin_block(raw, size, tag);
  return (char *)raw + BRIM_ALIGN;
}

void *brim_alloc_small(size_t size) {
  atomic_fetch_add(&call_count, 1);
  if (injected() || size > PTRDIFF_MAX - BRIM_ALIGN) return NULL;
  block_header *h = malloc(sizeof *h + size);
  if (!h) return NULL;
  begin_block(h, size, BRIM_MEM_OVERHEAD);
  return h + 1;
}

void brim_free_small(void *ptr) {
  if (ptr) end_block(header_at(ptr, sizeof(block_header)));
}

void *brim_alloc(size_t size) { return brim_alloc_tagged(size, BRIM_MEM_OVERHEAD); }

void *brim_calloc(size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
  void *ptr = brim_alloc(bytes);
  if (ptr) memset(ptr, 0, bytes);
  return ptr;
}

void *brim_realloc(void *ptr, size_t size) {
  if (!ptr) return brim_alloc(size);
  block_header *h = header_of(ptr);
  if (size <= h->size) {
    // Shrinking stays in place and cannot fail.
    BRIM_ASAN_POISON((char *)ptr + size, h->size - size);
    count_sub(h->tag, h->size - size);
    h->size = size;
    return ptr;
  }
  void *grown = brim_alloc_tagged(size, h->tag);
  if (!grown) return NULL;
  memcpy(grown, ptr, h->size);
  brim_free(ptr);
  return grown;
}

void brim_free(void *ptr) {
  if (ptr) end_block(header_of(ptr));
}

size_t brim_alloc_size(const void *ptr) { return ptr ? header_of(ptr)->size : 0; }

char *brim_strndup(const char *text, size_t length) {
  if (!text) return NULL;
  size_t n = strnlen(text, length);
  char *copy = brim_alloc(n + 1);
  if (!copy) return NULL;
  memcpy(copy, text, n);
  copy[n] = '\0';
  return copy;
}

char *brim_strdup(const char *text) { return text ? brim_strndup(text, strlen(text)) : NULL; }

void brim_alloc_get_stats(brim_alloc_stats *out) {
  for (int i = 0; i < BRIM_MEM_TAG_COUNT; i++) {
    out->live_bytes[i] = atomic_load(&live_bytes[i]);
    out->live_blocks[i] = atomic_load(&live_blocks[i]);
  }
  out->peak_bytes = atomic_load(&peak_bytes);
  out->calls = atomic_load(&call_count);
}

void brim_alloc_fail_nth(uint64_t n, int sticky) {
  atomic_store(&fail_countdown, 0);
  atomic_store(&fail_sticky, sticky != 0);
  atomic_store(&fail_countdown, n);
}

uint64_t brim_alloc_failures(void) { return atomic_load(&fail_count); }
