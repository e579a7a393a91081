// Inside data: what of a data set no split reads, counted and the first ones named.
#ifndef BRIM_DATA_UNUSED_H_
#define BRIM_DATA_UNUSED_H_

#include <stddef.h>
#include <stdint.h>

#include "base/base_str.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BRIM_UNUSED_SOURCES = 8, BRIM_UNUSED_NAMED = 12 };

typedef struct brim_unused {
  brim_str *names;  // "a.txt, b/c.csv"
  size_t count;
  uint64_t files, bytes;  // of files alone
} brim_unused;

static inline void brim_unused_add(brim_unused *unused, const char *name) {
  if (unused->count++ >= BRIM_UNUSED_NAMED) return;
  brim_str_printf(unused->names, "%s%s", unused->count > 1 ? ", " : "", name);
}

// Files below the root of these sources (splits of one folder) that are no sample of any of them.
brim_status brim_folder_unused(void *const *states, size_t count, brim_unused *out);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_DATA_UNUSED_H_
