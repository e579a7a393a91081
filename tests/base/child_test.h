// Shared by the tests of child processes: this program as a child, and a child with its lines.
#ifndef BRIM_TESTS_BASE_CHILD_TEST_H_
#define BRIM_TESTS_BASE_CHILD_TEST_H_

#include "base/base_child.h"
#include "base/base_str.h"
#include "test.h"

enum { FLOOD_LINES = 40000, FORTY_MS = 40000000 };
#define SELF "/proc/self/exe"

// Runs the child that the arguments select, and exits directly: the leak check of such a short program takes seconds,
// and tests start it ten times.
_Noreturn void as_child(int argc, char **argv);

// Collects lines as text: "o:" or "e:" before each, "+" after a piece, "|" after a line without newline.
typedef struct heard {
  brim_str text;
  int lines[BRIM_CHILD_STREAM_COUNT];
  int fail_at;  // the n-th line is refused
} heard;
brim_status on_line(void *ctx, const brim_child_line *line);

brim_child *start(brim_child_options o, heard *h, const char *const *argv);
brim_child *shell(brim_child_options o, heard *h, const char *script);
// Waits for the end; returns the exit code, and the lines.
void expect(brim_child *c, heard *h, int exit_code, const char *lines);
void until_lines(brim_child *c, const heard *h, int count);
// True if the process is gone, or a zombie that its new parent has not reaped yet.
bool is_gone(long pid);
void until_gone(long pid);
int open_count(void);

#endif  // BRIM_TESTS_BASE_CHILD_TEST_H_
