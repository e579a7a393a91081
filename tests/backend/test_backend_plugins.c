// The plug-ins of this build open. Other tests skip a backend that is absent, and would still pass if a plug-in was
// built but cannot be loaded. Only a missing GPU excuses cuda.
#include <dlfcn.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/base.h"
#include "test.h"

// BRIM_BUILT_CPU and BRIM_BUILT_CUDA are 1 if CMake has the plug-in as a target.
#define FOLDER BRIM_BUILD_DIR "/lib/brim"

static bool gpu_is_here(void) {
  return access("/dev/nvidiactl", R_OK) == 0 || access("/dev/dxg", R_OK) == 0;
}

// Resolves every symbol now, because a missing one would otherwise show only at its first call.
static void assert_links(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) fail_msg("%s", dlerror());
  if (!dlsym(library, "brim_plugin_query")) fail_msg("%s", dlerror());
}

static void assert_opens(const char *path, const char *name) {
  brim_registry *registry = NULL;
  brim_device *device = NULL;
  assert_ok(brim_registry_create(&registry));
  assert_ok(brim_registry_load(registry, path));
  assert_ok(brim_device_open(registry, name, NULL, &device));
  brim_device_close(device);
  brim_registry_destroy(registry);
}

static void test_cpu(void **state) {
  (void)state;
  if (!BRIM_BUILT_CPU) BRIM_SKIP("the cpu plug-in is not built");
  assert_links(FOLDER "/libbrim_cpu.so");
  assert_opens(FOLDER "/libbrim_cpu.so", "cpu");
}

static void test_cuda_links(void **state) {
  (void)state;
  if (!BRIM_BUILT_CUDA) BRIM_SKIP("the cuda plug-in is not built");
  assert_links(FOLDER "/libbrim_cuda.so");
}

static void test_cuda_opens(void **state) {
  (void)state;
  if (!BRIM_BUILT_CUDA) BRIM_SKIP("the cuda plug-in is not built");
  if (!gpu_is_here()) BRIM_SKIP("no NVIDIA GPU on this machine");
  assert_opens(FOLDER "/libbrim_cuda.so", "cuda");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_cpu),
      cmocka_unit_test(test_cuda_links),
      cmocka_unit_test(test_cuda_opens),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
