// The arena: a stack of chunks, newest first. Release pops whole chunks and rewinds the last one.
#include "base/base_arena.h"

#include <assert.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_asan.h"
#include "base/base_status.h"

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

// Offset of the next aligned place in c, or SIZE_MAX when it does not fit.
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
  if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
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
