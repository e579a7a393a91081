// Memory: the one allocator, arenas, and copies past the caches.
#include "base/base_alloc.h"

#include <assert.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "base/base_status.h"

// Marks memory that must not be touched, for AddressSanitizer.
#if defined(__SANITIZE_ADDRESS__)
#define BRIM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BRIM_ASAN 1
#endif
#endif

#ifdef BRIM_ASAN
#include <sanitizer/asan_interface.h>
#define BRIM_ASAN_POISON(ptr, size) ASAN_POISON_MEMORY_REGION((ptr), (size))
#define BRIM_ASAN_UNPOISON(ptr, size) ASAN_UNPOISON_MEMORY_REGION((ptr), (size))
#else
#define BRIM_ASAN_POISON(ptr, size) ((void)(ptr), (void)(size))
#define BRIM_ASAN_UNPOISON(ptr, size) ((void)(ptr), (void)(size))
#endif

//---------------------------------- allocator ----------------------------------
// A header precedes each 64-byte aligned block. The block ends where the request ends, so that AddressSanitizer sees an
// overrun by one byte.

enum { BLOCK_MAGIC = 0x4252494d };

typedef struct block_header {
  size_t size;
  brim_mem_tag tag;
  uint32_t magic;
} block_header;

_Static_assert(sizeof(block_header) <= BRIM_ALIGN, "the header must fit in front of a block");
_Static_assert(sizeof(block_header) % 16 == 0, "a small block lies behind its header");

// Process-wide counters, like the heap itself.
static atomic_uint_fast64_t live_bytes[BRIM_MEM_TAG_COUNT];
static atomic_uint_fast64_t live_blocks[BRIM_MEM_TAG_COUNT];
static atomic_uint_fast64_t total_bytes;
static atomic_uint_fast64_t peak_bytes;
static atomic_uint_fast64_t call_count;
static atomic_uint_fast64_t fail_countdown;  // 0 = off, 1 = the next allocation fails
static atomic_int fail_sticky;
static atomic_uint_fast64_t fail_count;

static block_header *header_at(const void *ptr, size_t before) {
  block_header *h = (block_header *)((uintptr_t)ptr - before);
  assert(h->magic == BLOCK_MAGIC);
  return h;
}

static block_header *header_of(const void *ptr) { return header_at(ptr, BRIM_ALIGN); }

// True if a test wants this allocation to fail.
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

//---------------------------------- arena ----------------------------------
// A stack of chunks, newest first. A release pops whole chunks and rewinds the last one.

enum { DEFAULT_CHUNK = 16 * 1024 };

typedef struct chunk {
  struct chunk *prev;
  size_t cap;
  size_t used;
  char pad[BRIM_ALIGN - 3 * sizeof(size_t)];  // data starts 64-byte aligned
} chunk;

struct brim_arena {
  chunk *top;
  size_t chunk_bytes;
};

_Static_assert(sizeof(chunk) == BRIM_ALIGN, "chunk data must start aligned");

static char *chunk_data(chunk *c) { return (char *)(c + 1); }

brim_status brim_arena_create(size_t chunk_bytes, brim_arena **out) {
  *out = NULL;
  brim_arena *arena = brim_alloc(sizeof *arena);
  if (!arena) return brim_fail(BRIM_ENOMEM, "out of memory for an arena");
  arena->top = NULL;
  arena->chunk_bytes = chunk_bytes ? chunk_bytes : DEFAULT_CHUNK;
  *out = arena;
  return BRIM_OK;
}

static void pop_chunk(brim_arena *arena) {
  chunk *c = arena->top;
  arena->top = c->prev;
  BRIM_ASAN_UNPOISON(chunk_data(c), c->cap);
  brim_free(c);
}

void brim_arena_destroy(brim_arena *arena) {
  if (!arena) return;
  while (arena->top) pop_chunk(arena);
  brim_free(arena);
}

static bool push_chunk(brim_arena *arena, size_t at_least) {
  size_t cap = at_least > arena->chunk_bytes ? at_least : arena->chunk_bytes;
  if (cap > SIZE_MAX - sizeof(chunk)) return false;
  chunk *c = brim_alloc(sizeof *c + cap);
  if (!c) return false;
  c->prev = arena->top;
  c->cap = cap;
  c->used = 0;
  arena->top = c;
  BRIM_ASAN_POISON(chunk_data(c), cap);
  return true;
}

// Returns the offset of the next aligned place in c; SIZE_MAX if `size` bytes do not fit.
static size_t fit(chunk *c, size_t size, size_t align) {
  uintptr_t at = (uintptr_t)chunk_data(c) + c->used;
  size_t offset = c->used + (size_t)(-at & (align - 1));
  return offset <= c->cap && size <= c->cap - offset ? offset : SIZE_MAX;
}

void *brim_arena_alloc(brim_arena *arena, size_t size, size_t align) {
  if (align == 0) align = _Alignof(max_align_t);
  assert((align & (align - 1)) == 0);
  size_t offset = arena->top ? fit(arena->top, size, align) : SIZE_MAX;
  if (offset == SIZE_MAX) {
    size_t slack = align > BRIM_ALIGN ? align : 0;
    if (size > SIZE_MAX - slack || !push_chunk(arena, size + slack)) return NULL;
    offset = fit(arena->top, size, align);
    assert(offset != SIZE_MAX);
  }
  char *ptr = chunk_data(arena->top) + offset;
  arena->top->used = offset + size;
  BRIM_ASAN_UNPOISON(ptr, size);
  return ptr;
}

void *brim_arena_calloc(brim_arena *arena, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(size, count, &bytes)) return NULL;
  void *ptr = brim_arena_alloc(arena, bytes, _Alignof(max_align_t));
  if (ptr) memset(ptr, 0, bytes);
  return ptr;
}

char *brim_arena_strndup(brim_arena *arena, const char *text, size_t length) {
  if (!text) return NULL;
  size_t n = strnlen(text, length);
  char *copy = brim_arena_alloc(arena, n + 1, 1);
  if (!copy) return NULL;
  memcpy(copy, text, n);
  copy[n] = '\0';
  return copy;
}

char *brim_arena_strdup(brim_arena *arena, const char *text) {
  return text ? brim_arena_strndup(arena, text, strlen(text)) : NULL;
}

char *brim_arena_printf(brim_arena *arena, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  int n = vsnprintf(NULL, 0, fmt, args);
  va_end(args);
  if (n < 0) return NULL;
  char *text = brim_arena_alloc(arena, (size_t)n + 1, 1);
  if (!text) return NULL;
  va_start(args, fmt);
  vsnprintf(text, (size_t)n + 1, fmt, args);
  va_end(args);
  return text;
}

brim_arena_mark brim_arena_get_mark(const brim_arena *arena) {
  return (brim_arena_mark){.chunk = arena->top, .used = arena->top ? arena->top->used : 0};
}

void brim_arena_release(brim_arena *arena, brim_arena_mark mark) {
  while (arena->top && arena->top != mark.chunk) pop_chunk(arena);
  if (!arena->top) return;
  assert(mark.used <= arena->top->used);
  BRIM_ASAN_POISON(chunk_data(arena->top) + mark.used, arena->top->cap - mark.used);
  arena->top->used = mark.used;
}

//---------------------------------- copies past the caches ----------------------------------
// Non-temporal stores write whole lines without reading them first, which other stores on x86 do. Prefetching stops
// at the end of a page, so the start of the next page is prefetched here. Other CPUs get memcpy, which is as fast:
// a Neoverse V1 notices that lines are written whole, and stnp was no faster.

#if defined(__x86_64__)
enum { LINE = 64, PAGE = 4096, AHEAD = 4 };  // AHEAD: lines prefetched from the next page

// Copies a line; `to` must be at the start of a line.
static inline void copy_line(unsigned char *to, const unsigned char *from) {
  __m128i *out = (__m128i *)(void *)to;
  const __m128i *in = (const __m128i *)(const void *)from;
  __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
  __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
  _mm_stream_si128(out, a);
  _mm_stream_si128(out + 1, b);
  _mm_stream_si128(out + 2, c);
  _mm_stream_si128(out + 3, d);
}

void brim_copy_stream(void *to, const void *from, size_t n) {
  unsigned char *out = to;
  const unsigned char *in = from;
  if (n < PAGE) {
    memcpy(out, in, n);
    return;
  }
  size_t head = (size_t)(-(uintptr_t)out % LINE);
  memcpy(out, in, head);
  out += head;
  in += head;
  n -= head;
  while (n >= LINE) {
    size_t part = n < PAGE ? n / LINE * LINE : PAGE;
    if (n >= PAGE + AHEAD * LINE) {
      for (size_t i = 0; i < AHEAD; i++) __builtin_prefetch(in + PAGE + i * LINE);
    }
    for (size_t i = 0; i < part; i += LINE) copy_line(out + i, in + i);
    out += part;
    in += part;
    n -= part;
  }
  memcpy(out, in, n);
  _mm_sfence();  // without it these stores may become visible only after the release of a lock
}

#else

void brim_copy_stream(void *to, const void *from, size_t n) { memcpy(to, from, n); }

#endif
