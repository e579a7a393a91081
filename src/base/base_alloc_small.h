// Blocks for many small values, such as those of JSON: counted like those of base_alloc.h, and aligned to 16
// bytes instead of 64. A quarter of the time of a long reply went into the alignment.
#ifndef BRIM_BASE_ALLOC_SMALL_H_
#define BRIM_BASE_ALLOC_SMALL_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

void *brim_alloc_small(size_t size);  // NULL when out of memory; for brim_free_small alone
void brim_free_small(void *ptr);      // NULL is fine

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_ALLOC_SMALL_H_
