// Lines of a frame: cut at the width, counted, with the keys that may be pressed.
#include "ui/ui_frame.h"

#include <string.h>

// Cuts a styled line at the width. Styles take no columns and end with the line.
static void put_cut(brim_str *out, const brim_term *term, const char *line) {
  int used = 0;
  bool styled = false;
  for (const char *p = line; *p;) {
    size_t n = 1;
    char one[8];
    if (*p == '\033') {
      while (p[n] && (p[n] < '@' || p[n] > '~' || p[n] == '[')) n++;
      n += p[n] != '\0';
      brim_str_append_n(out, p, n);
      styled = true;
      p += n;
      continue;
    }
    while (n < 4 && ((unsigned char)p[n] & 0xC0) == 0x80) n++;
    memcpy(one, p, n);
    one[n] = '\0';
    int wide = brim_utf8_width(one);
    if (used + wide > term->width) break;
    used += wide;
    brim_str_append_n(out, p, n);
    p += n;
  }
  if (styled && term->colour) brim_str_append(out, "\033[0m");
}

void brim_ui_frame_line(brim_ui_frame *frame, brim_str *line) {
  if (line->status && !frame->out->status) frame->out->status = line->status;
  if (frame->left > 0) {
    if (frame->term->width > 0 && brim_utf8_width(line->data) > frame->term->width) {
      put_cut(frame->out, frame->term, line->data);
    } else {
      brim_str_append(frame->out, line->data);
    }
    brim_str_append_char(frame->out, '\n');
    frame->left--;
  }
  brim_str_clear(line);
}

void brim_ui_frame_text(brim_ui_frame *frame, brim_ui_style style, const char *text) {
  brim_str line, clipped;
  brim_str_init(&line);
  brim_str_init(&clipped);
  brim_ui_clip(&clipped, frame->term, text, frame->term->width);
  brim_ui_styled(&line, frame->term, style, clipped.data);
  if (clipped.status) line.status = clipped.status;
  brim_ui_frame_line(frame, &line);
  brim_str_deinit(&clipped);
  brim_str_deinit(&line);
}

void brim_ui_frame_hints(brim_ui_frame *frame, const char *question, const brim_ui_hint *hints,
                         size_t count) {
  const brim_term *term = frame->term;
  brim_str line, text;
  brim_str_init(&line);
  brim_str_init(&text);
  brim_ui_clip(&text, term, question, term->width);
  brim_ui_styled(&line, term, BRIM_UI_SELECTED, text.data);
  for (size_t i = 0; i < count; i++) {
    int used = brim_utf8_width(line.data);
    const char *name = brim_tr(hints[i].text);
    if (used + 3 + brim_utf8_width(hints[i].key) + brim_utf8_width(name) > term->width) break;
    brim_str_append(&line, used ? "  " : "");
    brim_ui_styled(&line, term, BRIM_UI_BOLD, hints[i].key);
    brim_str_append_char(&line, ' ');
    brim_ui_styled(&line, term, BRIM_UI_DIM, name);
  }
  if (text.status) line.status = text.status;
  brim_ui_frame_line(frame, &line);
  brim_str_deinit(&text);
  brim_str_deinit(&line);
}
