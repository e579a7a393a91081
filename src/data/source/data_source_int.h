// Inside data: the part of a source's samples that is in use, and their copies in memory. A part
// maps the caller's sample numbers to the table's; a cache goes by the caller's.
#ifndef BRIM_DATA_SOURCE_INT_H_
#define BRIM_DATA_SOURCE_INT_H_

#include "data/data_int.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_source_part brim_source_part;
typedef struct brim_source_cache brim_source_cache;

// The table's number of a sample; NULL = all of them, in their own order.
uint64_t brim_source_part_at(const brim_source_part *part, uint64_t index);
void brim_source_part_free(brim_source_part *part);  // NULL is fine
// Only the samples whose numbers stand in a text file, in its order: one whole number a line, # to
// the end of a line is a comment. A number that is there twice or too large is refused.
brim_status brim_source_part_file(brim_source *source, const char *path);

// Whether the sample is here, and its copy. A sample that is not may be put, by several threads at
// once: one of them does it.
bool brim_source_cache_get(const brim_source *source, uint64_t index, void *input, void *target);
void brim_source_cache_put(const brim_source *source, uint64_t index, const void *input,
                           const void *target);
void brim_source_cache_free(brim_source_cache *cache);  // NULL is fine

// A built-in source `said` failed to open the path: where something of another kind lies there, the
// detail says so, and how to say so. Returns the status to continue with.
brim_status brim_source_guess_other(const char *path, const char *said, brim_status failed);
// Fails where the path is, or is a folder with, a file that brim_source_is_foreign.
brim_status brim_data_refuse_foreign(const char *path);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DATA_SOURCE_INT_H_
