// A regular file mapped for reading. The bytes are reached only through guarded calls: where
// another process cuts the file short while it is in use, the call fails and names the file and the
// offset, and the process lives on.
#ifndef BRIM_BASE_MAP_H_
#define BRIM_BASE_MAP_H_

#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_map {
  const char *path;     // the caller's, for messages; NULL when nothing is mapped
  const uint8_t *data;  // touch it only inside brim_map_guard
  size_t size;          // when it was opened
  int fd;               // -1: memory of the caller's (brim_map_memory)
} brim_map;

// The whole file. Installs the handler of SIGBUS that the guard needs, where another one stands;
// what stood there before still gets every fault that is not a guarded one.
brim_status brim_map_open(const char *path, brim_map *out);
// Bytes in memory in the same form, for tests and fuzzing; not owned.
void brim_map_memory(const void *data, size_t size, const char *name, brim_map *out);
void brim_map_close(brim_map *map);  // an empty one is fine

// Exactly n bytes from `offset` on, by any thread.
brim_status brim_map_copy(const brim_map *map, uint64_t offset, void *out, size_t n);

// Run fn with the map's bytes readable; its status is returned. A fault leaves fn at the
// instruction that touched the lost page, so fn takes no lock, allocates nothing and owns nothing
// that has to be given back. Not nested.
typedef brim_status (*brim_map_fn)(void *ctx, const uint8_t *data, size_t size);
brim_status brim_map_guard(const brim_map *map, brim_map_fn fn, void *ctx);

// How a range will be read. Advice only: nothing fails.
typedef enum brim_map_use {
  BRIM_MAP_USE_NORMAL,
  BRIM_MAP_USE_RANDOM,  // small pieces in any order: no reading ahead
  BRIM_MAP_USE_SOON,    // all of it: start reading
  BRIM_MAP_USE_COUNT
} brim_map_use;
void brim_map_advise(const brim_map *map, uint64_t offset, uint64_t n, brim_map_use use);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_MAP_H_
