// Opens shared libraries at run time. If a required symbol is missing, the next name is tried; the detail says why
// each name failed.
#include "base/base_dl.h"

#include <dlfcn.h>

#include "base/base_alloc.h"
#include "base/base_status.h"
#include "base/base_str.h"

struct brim_dl {
  void *handle;
  char *path;
  bool keep;
};

// Returns the name of the first required symbol that is missing, or NULL.
static const char *load_symbols(void *handle, const brim_dl_symbol *symbols, size_t count) {
  for (size_t i = 0; i < count; i++) {
    *symbols[i].address = dlsym(handle, symbols[i].name);
    if (!*symbols[i].address && symbols[i].required) return symbols[i].name;
  }
  return NULL;
}

static void clear_symbols(const brim_dl_symbol *symbols, size_t count) {
  for (size_t i = 0; i < count; i++) *symbols[i].address = NULL;
}

brim_status brim_dl_open(const char *const *names, const brim_dl_symbol *symbols, size_t count,
                         bool keep, brim_dl **out) {
  *out = NULL;
  clear_symbols(symbols, count);
  brim_dl *dl = brim_calloc(1, sizeof *dl);
  if (!dl) return brim_fail(BRIM_ENOMEM, "out of memory while opening a library");
  brim_str reasons;
  brim_str_init(&reasons);
  brim_status status = BRIM_ENOENT;
  for (; *names && status == BRIM_ENOENT; names++) {
    if (reasons.len) brim_str_append(&reasons, "; ");
    void *handle = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      const char *why = dlerror();
      brim_str_append(&reasons, why ? why : *names);
      continue;
    }
    const char *missing = load_symbols(handle, symbols, count);
    dl->path = missing ? NULL : brim_strdup(*names);
    if (dl->path) {
      dl->handle = handle;
      dl->keep = keep;
      status = BRIM_OK;
      break;
    }
    clear_symbols(symbols, count);
    if (!keep) dlclose(handle);
    if (!missing) {
      status = brim_fail(BRIM_ENOMEM, "out of memory while opening a library");
      break;
    }
    brim_str_printf(&reasons, "%s has no symbol %s", *names, missing);
  }
  if (status == BRIM_ENOENT) {
    brim_fail(BRIM_ENOENT, "cannot open a shared library: %s", reasons.data);
  }
  brim_str_deinit(&reasons);
  if (status) {
    brim_free(dl);
    return status;
  }
  *out = dl;
  return BRIM_OK;
}

void brim_dl_close(brim_dl *dl) {
  if (!dl) return;
  if (!dl->keep) dlclose(dl->handle);
  brim_free(dl->path);
  brim_free(dl);
}

void *brim_dl_find(brim_dl *dl, const char *name) { return dlsym(dl->handle, name); }

const char *brim_dl_path(const brim_dl *dl) { return dl->path; }
