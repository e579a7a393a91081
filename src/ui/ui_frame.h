// Inside the ui room: a frame of a live view that is being made, line by line.
#ifndef BRIM_UI_FRAME_H_
#define BRIM_UI_FRAME_H_

#include "ui/ui.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_ui_frame {
  brim_str *out;
  const brim_term *term;  // its width is known
  int rows, left;         // lines in all, and how many are still to come
} brim_ui_frame;

// One line; it is cut at the width and cleared. Beyond the last line nothing is added.
void brim_ui_frame_line(brim_ui_frame *frame, brim_str *line);
// Text from outside as a line of one style.
void brim_ui_frame_text(brim_ui_frame *frame, brim_ui_style style, const char *text);

// A question, may be "", and the keys that may be pressed; those that find no room are left out.
typedef struct brim_ui_hint {
  const char *key, *text;  // the text is a message
} brim_ui_hint;
void brim_ui_frame_hints(brim_ui_frame *frame, const char *question, const brim_ui_hint *hints,
                         size_t count);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_UI_FRAME_H_
