// Shared libraries opened at run time through one table of symbols, required or optional per row.
#ifndef BRIM_BASE_DL_H_
#define BRIM_BASE_DL_H_

#include <stdbool.h>
#include <stddef.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_dl brim_dl;
typedef struct brim_dl_symbol {
  const char *name;
  void **address;  // set to NULL when optional and missing
  bool required;
} brim_dl_symbol;

// Tries each name of a NULL-terminated list in order. BRIM_ENOENT if none works, with every reason in the detail.
// `keep`: brim_dl_close does not unload the library, as GPU libraries require.
brim_status brim_dl_open(const char *const *names, const brim_dl_symbol *symbols, size_t count,
                         bool keep, brim_dl **out);
void brim_dl_close(brim_dl *dl);
void *brim_dl_find(brim_dl *dl, const char *name);  // NULL when missing
const char *brim_dl_path(const brim_dl *dl);        // the name that opened

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_DL_H_
