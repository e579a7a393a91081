// Running the built brim from tests.
#ifndef BRIM_TESTS_E2E_H_
#define BRIM_TESTS_E2E_H_

#include "base/base.h"
#include "same_file.h"

#define BRIM_BINARY BRIM_BUILD_DIR "/bin/brim"
#define E2E_MAX_ARGS 40

// Run brim with the given arguments (NULL-terminated); returns its exit code, -signal when killed.
// *output (may be NULL) is freed by the caller.
static inline int e2e_run(const char *const *args, const char *const *env, char **output) {
  const char *argv[E2E_MAX_ARGS] = {BRIM_BINARY};
  for (int i = 0; args[i] && i < E2E_MAX_ARGS - 2; i++) argv[i + 1] = args[i];
  brim_process_options options;
  memset(&options, 0, sizeof options);
  options.argv = argv;
  options.env = env;
  options.capture = true;
  options.timeout_ms = 600000;
  brim_process_result result;
  assert_ok(brim_process_run(&options, &result));
  assert_false(result.timed_out);
  int code = result.signal ? -result.signal : result.exit_code;
  if (output) {
    *output = result.output;
    result.output = NULL;
  }
  brim_process_result_deinit(&result);
  return code;
}

#endif  // BRIM_TESTS_E2E_H_
