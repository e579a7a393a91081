// Memory. The one allocator counts and tags each block, and can fail the nth call for tests. Counters are exact: they
// hold the bytes that were asked for. Blocks are 64-byte aligned. Thread-safe. The program also sets the failing call
// from BRIM_ALLOC_FAIL=n.
#ifndef BRIM_BASE_ALLOC_H_
#define BRIM_BASE_ALLOC_H_

#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_ALIGN 64

typedef enum brim_mem_tag {
  BRIM_MEM_OVERHEAD,  // bookkeeping: graphs, configs, names; reported as 'overhead'
  BRIM_MEM_PLANNED,   // arenas, workspaces, staging, rings: the rows of a plan
  BRIM_MEM_TAG_COUNT
} brim_mem_tag;

void *brim_alloc(size_t size);                 // NULL when out of memory; size 0 -> unique ptr
void *brim_calloc(size_t count, size_t size);  // overflow-checked, zeroed
void *brim_realloc(void *ptr, size_t size);    // keeps the tag; NULL leaves ptr valid
void *brim_alloc_tagged(size_t size, brim_mem_tag tag);
void brim_free(void *ptr);                // NULL is fine
size_t brim_alloc_size(const void *ptr);  // size asked for
char *brim_strdup(const char *text);      // NULL in, NULL out
char *brim_strndup(const char *text, size_t length);

typedef struct brim_alloc_stats {
  uint64_t live_bytes[BRIM_MEM_TAG_COUNT];
  uint64_t live_blocks[BRIM_MEM_TAG_COUNT];
  uint64_t peak_bytes;  // of both tags together
  uint64_t calls;       // allocations so far (alloc, calloc, growing realloc)
} brim_alloc_stats;

void brim_alloc_get_stats(brim_alloc_stats *out);

// Makes the nth allocation from now on fail (1 = the next); 0 = off. With `sticky` all later ones fail too.
void brim_alloc_fail_nth(uint64_t n, int sticky);
uint64_t brim_alloc_failures(void);  // injected so far

// Small blocks, aligned to 16 bytes instead of 64, for values of JSON. Counted like the others.
// Aligning them to 64 took a quarter of the time of building a long JSON reply.
void *brim_alloc_small(size_t size);  // NULL when out of memory; free with brim_free_small
void brim_free_small(void *ptr);      // NULL is fine

//---------------------------------- arena ----------------------------------
// A growing arena with mark and release, for trees and temporaries that die together. Memory beyond the last allocation
// is poisoned under AddressSanitizer, so that a stale pointer is caught. Not thread-safe.

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

//---------------------------------- copies ----------------------------------

// memcpy past the caches, for targets much larger than the caches. Ends with a store fence, so a
// lock or release after it publishes the bytes as after memcpy.
void brim_copy_stream(void *to, const void *from, size_t n);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_ALLOC_H_
