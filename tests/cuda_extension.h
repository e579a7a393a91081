// A GPU and one of the plug-in's extension tables, for tests of kernels.
#ifndef BRIM_TESTS_CUDA_EXTENSION_H_
#define BRIM_TESTS_CUDA_EXTENSION_H_

#include "backend/backend.h"
#include "test.h"

typedef struct cuda_extension {
  brim_registry *registry;
  brim_device *device;
  const void *table;  // begins with its ABI version
} cuda_extension;

// False if there is no GPU.
static inline bool cuda_extension_open(cuda_extension *e, const char *name, uint32_t abi) {
  assert_ok(brim_registry_create(&e->registry));
  assert_ok(brim_registry_load_folder(e->registry, BRIM_BUILD_DIR "/lib/brim"));
  if (brim_device_open(e->registry, "cuda", NULL, &e->device)) {
    brim_registry_destroy(e->registry);
    return false;
  }
  e->table = brim_registry_extension(e->registry, name);
  assert_non_null(e->table);
  assert_int_equal(*(const uint32_t *)e->table, abi);
  return true;
}

static inline void cuda_extension_close(cuda_extension *e) {
  brim_device_close(e->device);
  brim_registry_destroy(e->registry);
}

#endif  // BRIM_TESTS_CUDA_EXTENSION_H_
