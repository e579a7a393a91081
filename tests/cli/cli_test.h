// Runs the built program from tests: a shell line in the test's own folder, its exit code, and its two outputs.
#ifndef BRIM_TESTS_CLI_TEST_H_
#define BRIM_TESTS_CLI_TEST_H_

#include <stdbool.h>

#include "base/base.h"
#include "test.h"

#define BRIM_BINARY BRIM_BUILD_DIR "/bin/brim"

// Config lines for a training of a fraction of a second, on the backend that every build has.
#define CLI_SMALL_TRAINING                                  \
  "backend: ref\n"                                          \
  "device: cpu\n"                                           \
  "threads: 1\n"                                            \
  "dataset: synthetic(shape=(6,), classes=3, samples=96)\n" \
  "model: mlp(depth=1, hidden=8)\n"                         \
  "data: {num_workers: 0}\n"

typedef struct shell_result {
  int code;
  char *out, *err;  // free both with brim_free, or with shell_free
  char *command;    // freed by shell_free
} shell_result;

// Runs `fmt` with sh; "brim" in it is the built program (a shell function). Fails the test if the shell itself does not
// start.
shell_result shell(const char *fmt, ...) BRIM_PRINTF(1, 2);
// Longest run of one shell line. At the start 180 s.
extern int64_t shell_limit_ms;
void shell_free(shell_result *result);
// The same, asserting the exit code and that `part` (may be NULL) is in stdout or stderr.
void expect(int code, const char *part, const char *command);
// Fails the test if the text lacks the words (has), or contains them (has_not).
void has(const char *text, const char *words);
void has_not(const char *text, const char *words);

// The files words/<test>.txt keep the output of commands. A new wording then needs no edit of a test: `make words`
// renews those files, and the diff shows the new words. A block is found by the test function and the command; (2) is
// the second place of the function that runs this command. A place in a loop has a block for each text. Paths,
// versions, sizes and measured times are replaced. Output that depends on the machine in another way (devices, CPU,
// user) does not belong there.
//
// `says` compares the exit code and the whole output. `says_lines` compares only the lines that contain `part`: a key,
// an option or a file, not wording. `says_rows` does the same for rows of reports and also replaces shares, bytes and
// numbers with a decimal point. `said`, `said_lines` and `said_rows` do this for a result.
#define says(code, command) says_at(__FILE__, __LINE__, __func__, code, SHELL_ALL, NULL, command)
#define says_lines(code, part, command) \
  says_at(__FILE__, __LINE__, __func__, code, SHELL_LINES, part, command)
#define says_rows(code, part, command) \
  says_at(__FILE__, __LINE__, __func__, code, SHELL_ROWS, part, command)
#define said(result) said_at(__FILE__, __LINE__, __func__, SHELL_ALL, NULL, result)
#define said_lines(result, part) said_at(__FILE__, __LINE__, __func__, SHELL_LINES, part, result)
#define said_rows(result, part) said_at(__FILE__, __LINE__, __func__, SHELL_ROWS, part, result)
typedef enum shell_words { SHELL_ALL, SHELL_LINES, SHELL_ROWS } shell_words;
void says_at(const char *file, int line, const char *function, int code, shell_words which,
             const char *part, const char *command);
void said_at(const char *file, int line, const char *function, shell_words which, const char *part,
             const shell_result *result);

void write_file(const char *path, const char *text);
bool has_file(const char *path);
// Asserts that every line of a text is one JSON value; returns the number of lines.
size_t json_lines(const char *text);

#endif  // BRIM_TESTS_CLI_TEST_H_
