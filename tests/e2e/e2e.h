// Running the built brim from tests.
#ifndef BRIM_TESTS_E2E_H_
#define BRIM_TESTS_E2E_H_

#include "base/base.h"
#include "process_run.h"
#include "same_file.h"

#define BRIM_BINARY BRIM_BUILD_DIR "/bin/brim"
#define E2E_MAX_ARGS 40

// Runs brim with these arguments (NULL-terminated); returns its exit code, or -signal. The caller frees *output (may be
// NULL).
static inline int e2e_run(const char *const *args, const char *const *env, char **output) {
  const char *argv[E2E_MAX_ARGS] = {BRIM_BINARY};
  for (int i = 0; args[i] && i < E2E_MAX_ARGS - 2; i++) argv[i + 1] = args[i];
  process_result result = process_run(argv, env, 600000);
  int code = result.signal ? -result.signal : result.exit_code;
  if (output) {
    *output = result.output;
    result.output = NULL;
  }
  brim_free(result.output);
  return code;
}

#endif  // BRIM_TESTS_E2E_H_
