// A growing arena with mark/release: for trees and temporaries that die together.
// Memory beyond the last allocation is poisoned under ASan, so a stale pointer is caught.
// Not thread-safe. Blocks come from base_alloc.
#ifndef BRIM_BASE_ARENA_H_
#define BRIM_BASE_ARENA_H_

#include <stddef.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_arena brim_arena;
typedef struct brim_arena_mark {
  void *chunk;
  size_t used;
} brim_arena_mark;

brim_status brim_arena_create(size_t chunk_bytes, brim_arena **out);   // 0 = 16 KiB chunks
void brim_arena_destroy(brim_arena *arena);                            // NULL is fine
void *brim_arena_alloc(brim_arena *arena, size_t size, size_t align);  // NULL when out of memory
void *brim_arena_calloc(brim_arena *arena, size_t count, size_t size);
char *brim_arena_strdup(brim_arena *arena, const char *text);
char *brim_arena_strndup(brim_arena *arena, const char *text, size_t length);
char *brim_arena_printf(brim_arena *arena, const char *fmt, ...) BRIM_PRINTF(2, 3);
brim_arena_mark brim_arena_get_mark(const brim_arena *arena);
void brim_arena_release(brim_arena *arena, brim_arena_mark mark);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_ARENA_H_
