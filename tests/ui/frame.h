// Lines of a frame, and properties of every frame.
#ifndef BRIM_TESTS_UI_FRAME_H_
#define BRIM_TESTS_UI_FRAME_H_

#include <string.h>

#include "base/base.h"
#include "test.h"

enum { FRAME_LINE = 2048 };

// Copies line `n` of a text, from 0, into a buffer.
static inline const char *line_of(const char *text, int n, char out[FRAME_LINE]) {
  for (; n > 0 && *text; n--) {
    text += strcspn(text, "\n");
    text += *text == '\n';
  }
  snprintf(out, FRAME_LINE, "%.*s", (int)strcspn(text, "\n"), text);
  return out;
}

static inline int count_lines(const char *text) {
  int n = 0;
  for (; *text; text++) n += *text == '\n';
  return n;
}

// Asserts that no line is wider than the screen, that there are at most as many lines as it has, and that only styles
// and line ends could move the cursor.
static inline void check_frame(const char *text, int width, int rows) {
  char line[FRAME_LINE];
  int lines = count_lines(text);
  assert_true(lines <= rows);
  if (rows >= 14) assert_int_equal(lines, rows);
  for (int i = 0; i < lines; i++) {
    line_of(text, i, line);
    assert_true(brim_utf8_valid(line, strlen(line)));
    if (brim_utf8_width(line) > width)
      fail_msg("%d columns of %d: %s", brim_utf8_width(line), width, line);
  }
  for (const char *p = text; *p; p++) {
    if (*p == '\033') {
      size_t n = 2 + strspn(p + 2, "0123456789;");
      assert_true(p[1] == '[' && p[n] == 'm');
    } else {
      assert_true(*p == '\n' || (unsigned char)*p >= ' ');
    }
  }
}

#endif  // BRIM_TESTS_UI_FRAME_H_
