// Runs a program to its end, without a shell, and keeps its output.
#ifndef BRIM_TESTS_PROCESS_RUN_H_
#define BRIM_TESTS_PROCESS_RUN_H_

#include "base/base_child.h"
#include "base/base_str.h"
#include "test.h"

typedef struct process_result {
  int exit_code;  // -1 if a signal ended it
  int signal;     // 0 if it exited
  char *output;   // stdout and stderr; free it with brim_free
} process_result;

static inline brim_status process_keep(void *ctx, brim_child_stream stream, const char *data,
                                       size_t size) {
  (void)stream;
  brim_str_append_n((brim_str *)ctx, data, size);
  return brim_str_status((brim_str *)ctx);
}

// env: NULL = inherit. A program that takes longer than the limit fails the test.
static inline process_result process_run(const char *const *argv, const char *const *env,
                                         int64_t timeout_ms) {
  brim_str output;
  brim_str_init(&output);
  brim_child_options how;
  memset(&how, 0, sizeof how);
  how.argv = argv;
  how.env = env;
  how.out = BRIM_CHILD_PIPE;
  how.err = BRIM_CHILD_MERGE;
  how.on_data = process_keep;
  how.ctx = &output;
  brim_child *child = NULL;
  bool ended = false;
  assert_ok(brim_child_start(&how, &child));
  assert_ok(brim_child_wait(child, timeout_ms, &ended));
  if (!ended) {
    brim_child_close(child);
    fail_msg("%s takes longer than %lld ms:\n%s", argv[0], (long long)timeout_ms, output.data);
  }
  const brim_child_result *end = brim_child_get_result(child);
  process_result result = {.exit_code = end->exit_code, .signal = end->signal};
  brim_child_close(child);
  result.output = brim_str_take(&output);
  assert_non_null(result.output);
  return result;
}

#endif  // BRIM_TESTS_PROCESS_RUN_H_
