// The one allocator. Counted, tagged, and able to fail the nth call for tests.
// Each block carries a small header (size, tag), so the counters are exact: `bytes` is what was
// asked for. Blocks are 64-byte aligned. Thread-safe. The injector can also be set from the
// environment (BRIM_ALLOC_FAIL=n, read by main only).
#ifndef BRIM_BASE_ALLOC_H_
#define BRIM_BASE_ALLOC_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_ALIGN 64

typedef enum brim_mem_tag {
  BRIM_MEM_OVERHEAD,  // bookkeeping: graphs, configs, names; reported as 'overhead'
  BRIM_MEM_PLANNED,   // arenas, workspaces, staging, rings: what a plan foretells
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
  uint64_t calls;       // allocations ever asked for (alloc, calloc, growing realloc)
} brim_alloc_stats;

void brim_alloc_get_stats(brim_alloc_stats *out);

// Make the nth allocation from now on fail (1 = the next); 0 switches injection off.
// With `sticky`, every allocation from the nth on fails.
void brim_alloc_fail_nth(uint64_t n, int sticky);
uint64_t brim_alloc_failures(void);  // how many were injected so far

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_ALLOC_H_
