// The report of `brim doctor` as aligned lines, readable without colour.

#include "ui/top/ui_top.h"

#include <string.h>

static const char *const headings[] = {
#define X(id, name, heading) heading,
    BRIM_DOCTOR_GROUP_MAP(X)
#undef X
};
static const char *const states[] = {
#define X(id, name, message) message,
    BRIM_DOCTOR_STATE_MAP(X)
#undef X
};
static const brim_ui_style styles[] = {BRIM_UI_GOOD, BRIM_UI_WARN, BRIM_UI_BAD, BRIM_UI_DIM};

enum { MARGIN = 2, GAP = 2, MAX_LABEL = 34 };

typedef struct layout {
  const brim_term *term;
  int state, label, word;  // widths: of states, of labels, of "why" and "fix"
} layout;

static void pad(brim_str *out, const char *text, int width) {
  int n = brim_utf8_width(text);
  if (n < width) brim_str_repeat(out, ' ', (size_t)(width - n));
}

static void put_label(const brim_doctor_line *line, brim_str *out) {
  const char *label = brim_tr(line->label);
  // Leave out the label if the subject begins with it ("GPU 0", not "GPU, GPU 0"), and for environment variables.
  bool alone = line->group == BRIM_DOCTOR_GROUP_ENV || brim_str_starts(line->subject, label);
  if (line->subject[0] && alone) {
    brim_str_append(out, line->subject);
  } else if (line->subject[0]) {
    brim_str_printf(out, "%s, %s", label, line->subject);
  } else {
    brim_str_append(out, label);
  }
}

// Puts a text that begins at a column. Further lines, wrapped or not, begin at the same column.
static void put_text(const layout *l, const char *text, int column, brim_str *out) {
  for (const char *at = text;;) {
    size_t n = strcspn(at, "\n");
    brim_str part, plain;
    brim_str_init(&part);
    brim_str_init(&plain);
    brim_str_append_n(&part, at, n);
    brim_ui_plain(&plain, l->term, part.data, part.len);
    brim_ui_fit(out, l->term, plain.data, column);
    brim_str_deinit(&part);
    brim_str_deinit(&plain);
    brim_str_append_char(out, '\n');
    if (!at[n]) return;
    at += n + 1;
    brim_str_repeat(out, ' ', (size_t)column);
  }
}

static void put_explanation(const layout *l, const char *word, const char *text, brim_str *out) {
  int column = MARGIN + l->state + GAP;
  if (!text[0]) return;
  brim_str_repeat(out, ' ', (size_t)column);
  brim_ui_styled(out, l->term, BRIM_UI_DIM, word);
  pad(out, word, l->word + GAP);
  put_text(l, text, column + l->word + GAP, out);
}

static void put_line(const layout *l, const brim_doctor_line *line, bool with_why, brim_str *out) {
  brim_str label;
  brim_str_init(&label);
  put_label(line, &label);
  const char *state = brim_tr(states[line->state]);
  brim_str_repeat(out, ' ', MARGIN);
  brim_ui_styled(out, l->term, styles[line->state], state);
  pad(out, state, l->state + GAP);
  brim_ui_styled(out, l->term, BRIM_UI_PLAIN, label.data);
  pad(out, label.data, l->label);
  brim_str_repeat(out, ' ', GAP);
  int width = brim_utf8_width(label.data);
  put_text(l, line->value, MARGIN + l->state + GAP + (width > l->label ? width : l->label) + GAP,
           out);
  brim_str_deinit(&label);
  if (line->state == BRIM_DOCTOR_WARN || line->state == BRIM_DOCTOR_BAD || with_why) {
    put_explanation(l, brim_tr("why"), line->why, out);
  }
  put_explanation(l, brim_tr("fix"), line->fix, out);
}

static layout make_layout(const brim_term *term, const brim_doctor_report *report) {
  layout l = {.term = term};
  for (int s = 0; s < BRIM_DOCTOR_STATE_COUNT; s++) {
    int n = brim_utf8_width(brim_tr(states[s]));
    if (n > l.state) l.state = n;
  }
  const char *const words[] = {brim_tr("why"), brim_tr("fix")};
  for (int i = 0; i < 2; i++) {
    int n = brim_utf8_width(words[i]);
    if (n > l.word) l.word = n;
  }
  for (size_t i = 0; i < report->count; i++) {
    brim_str label;
    brim_str_init(&label);
    put_label(&report->lines[i], &label);
    int n = brim_utf8_width(label.data);
    if (n > l.label && n <= MAX_LABEL) l.label = n;
    brim_str_deinit(&label);
  }
  return l;
}

static void put_counts(const brim_term *term, const brim_doctor_report *report, brim_str *out) {
  brim_str_append_char(out, '\n');
  for (int s = 0; s < BRIM_DOCTOR_STATE_COUNT; s++) {
    if (s > 0) brim_str_append(out, ", ");
    brim_str_printf(out, "%zu ", report->counts[s]);
    brim_ui_styled(out, term, report->counts[s] ? styles[s] : BRIM_UI_PLAIN, brim_tr(states[s]));
  }
  brim_str_append_char(out, '\n');
}

void brim_ui_doctor(const brim_term *term, const brim_doctor_report *report,
                    brim_ui_doctor_lines lines, brim_str *out) {
  layout l = make_layout(term, report);
  bool any = false;
  for (int g = 0; g < BRIM_DOCTOR_GROUP_COUNT; g++) {
    bool begun = false;
    for (size_t i = 0; i < report->count; i++) {
      brim_doctor_state state = report->lines[i].state;
      if ((int)report->lines[i].group != g) continue;
      if (lines == BRIM_UI_DOCTOR_TROUBLE && state != BRIM_DOCTOR_WARN &&
          state != BRIM_DOCTOR_BAD) {
        continue;
      }
      if (!begun) {
        if (any) brim_str_append_char(out, '\n');
        brim_ui_styled(out, term, BRIM_UI_BOLD, brim_tr(headings[g]));
        brim_str_append_char(out, '\n');
      }
      begun = any = true;
      put_line(&l, &report->lines[i], lines == BRIM_UI_DOCTOR_WHY, out);
    }
  }
  if (lines != BRIM_UI_DOCTOR_TROUBLE) put_counts(term, report, out);
}
