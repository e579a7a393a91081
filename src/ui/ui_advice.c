// The last lines of a bench: the learning-rate note and the checklist before training.
#include "ui/ui_int.h"

static void put_check(const brim_term *term, const brim_advice_check *c, brim_str *out) {
  const char *mark = c->done ? (term->unicode ? "✓" : "x") : " ";
  brim_str_append(out, "  [");
  brim_ui_styled(out, term, BRIM_UI_GOOD, mark);
  brim_str_append(out, "] ");
  brim_ui_wrap(out, term, c->text, 6);
  brim_str_append_char(out, '\n');
}

static void put_note(const brim_term *term, const char *text, brim_str *out) {
  if (!text[0]) return;
  brim_ui_wrap(out, term, text, 0);
  brim_str_append_char(out, '\n');
}

void brim_ui_advice(const brim_term *term, const brim_advice *advice, brim_str *out) {
  brim_str_append_char(out, '\n');
  brim_ui_heading(out, term, brim_tr("BEFORE TRAINING"));
  brim_str_append_char(out, '\n');
  for (size_t i = 0; i < advice->check_count; i++) put_check(term, &advice->checks[i], out);
  if (advice->learning_rate[0] || advice->accumulation[0]) brim_str_append_char(out, '\n');
  put_note(term, advice->learning_rate, out);
  put_note(term, advice->accumulation, out);
}
