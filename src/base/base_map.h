// A regular file mapped for reading. Access is by guarded calls: if another process truncates the file, the call
// fails and names file and offset, and the process survives.
#ifndef BRIM_BASE_MAP_H_
#define BRIM_BASE_MAP_H_

#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_map {
  const char *path;     // borrowed, for messages; NULL = nothing is mapped
  const uint8_t *data;  // read it only inside brim_map_guard
  size_t size;          // size of the file when it was opened
  int fd;               // -1 = the caller's memory (brim_map_memory)
} brim_map;

// Maps the whole file. Installs the guard's SIGBUS handler, which passes every other fault to the previous handler.
brim_status brim_map_open(const char *path, brim_map *out);
// Wraps bytes in memory, for tests and fuzzing; not owned.
void brim_map_memory(const void *data, size_t size, const char *name, brim_map *out);
void brim_map_close(brim_map *map);  // a zeroed map is fine

// Copies exactly n bytes from `offset`. Any thread may call it.
brim_status brim_map_copy(const brim_map *map, uint64_t offset, void *out, size_t n);

// Runs fn on the map's bytes and returns its status. A fault ends fn at any place, so fn must take no lock,
// allocate nothing and own nothing that needs releasing. Calls cannot be nested.
typedef brim_status (*brim_map_fn)(void *ctx, const uint8_t *data, size_t size);
brim_status brim_map_guard(const brim_map *map, brim_map_fn fn, void *ctx);

// Expected use of a range; only advice.
typedef enum brim_map_use {
  BRIM_MAP_USE_NORMAL,
  BRIM_MAP_USE_RANDOM,  // small pieces in any order: the kernel does not read ahead
  BRIM_MAP_USE_SOON,    // all of it soon: the kernel starts reading now
  BRIM_MAP_USE_COUNT
} brim_map_use;
void brim_map_advise(const brim_map *map, uint64_t offset, uint64_t n, brim_map_use use);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_MAP_H_
