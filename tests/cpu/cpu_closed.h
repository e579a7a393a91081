// Called if the cpu plug-in did not open. These programs exist only if the plug-in was built, so that is a failure,
// unless the build left out the requested provider.
#ifndef BRIM_TESTS_CPU_CLOSED_H_
#define BRIM_TESTS_CPU_CLOSED_H_

#include "base/base.h"
#include "test.h"

#ifndef BRIM_TEST_ONEDNN
#define BRIM_TEST_ONEDNN 1  // CMake defines 0 if the plug-in is built without oneDNN
#endif

static inline int cpu_closed(void) {
  const char *provider = getenv("BRIM_CPU_GEMM");
  if (!BRIM_TEST_ONEDNN && provider && strcmp(provider, "onednn") == 0) {
    BRIM_SKIP_ALL("the cpu plug-in is built without oneDNN");
  }
  printf("the cpu plug-in does not open: %s\n", brim_status_detail());
  return 1;
}

#endif  // BRIM_TESTS_CPU_CLOSED_H_
