// Copies whose target is not read soon.
#ifndef BRIM_BASE_COPY_H_
#define BRIM_BASE_COPY_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// memcpy past the caches, for targets much larger than they are: lines that are written whole need
// not be read first. Other threads see the bytes as they see memcpy's.
void brim_copy_stream(void *to, const void *from, size_t n);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_COPY_H_
