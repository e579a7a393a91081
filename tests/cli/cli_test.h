// Driving the built program from tests: a shell line in the test's own folder, its exit code, its
// two outputs.
#ifndef BRIM_TESTS_CLI_TEST_H_
#define BRIM_TESTS_CLI_TEST_H_

#include <stdbool.h>

#include "base/base.h"
#include "test.h"

#define BRIM_BINARY BRIM_BUILD_DIR "/bin/brim"

// Lines of a config: a training of a fraction of a second, on the backend that is always there.
#define CLI_SMALL_TRAINING                                  \
  "backend: ref\n"                                          \
  "device: cpu\n"                                           \
  "threads: 1\n"                                            \
  "dataset: synthetic(shape=(6,), classes=3, samples=96)\n" \
  "model: mlp(depth=1, hidden=8)\n"                         \
  "data: {num_workers: 0}\n"

typedef struct shell_result {
  int code;
  char *out, *err;  // brim_free, or shell_free
} shell_result;

// Runs `fmt` with sh; "brim" in it is the built program (a shell function). Fails the test when the
// shell itself does not start.
shell_result shell(const char *fmt, ...) BRIM_PRINTF(1, 2);
// How long a line may take (180 s).
extern int64_t shell_limit_ms;
void shell_free(shell_result *result);
// The same, asserting on the exit code and that `part` (may be NULL) is in stdout or stderr.
void expect(int code, const char *part, const char *command);
// Fail the test where a text lacks these words, or has them.
void has(const char *text, const char *words);
void has_not(const char *text, const char *words);
void write_file(const char *path, const char *text);
bool has_file(const char *path);
// Every line of a text is one JSON value; returns how many.
size_t json_lines(const char *text);

#endif  // BRIM_TESTS_CLI_TEST_H_
