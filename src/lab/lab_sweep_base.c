// What the parts of a sweep share: messages, what changed, a store that cannot be reached.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lab/lab_sweep_int.h"

enum {
  TROUBLE_MS = 1000,  // between tries while the store cannot be reached
  TELL_MS = 30000     // between messages about that
};

int64_t brim_lab_now_ms(void) { return brim_clock_now().ns / 1000000; }

brim_status brim_lab_exp_folder(const char *folder, const char *id, brim_str *out) {
  brim_str_printf(out, "%s/" BRIM_LAB_SWEEP_EXPS "/%.*s", folder, BRIM_LAB_SHORT_ID, id);
  return brim_str_status(out);
}

brim_lab_runner *brim_lab_runner_find(brim_lab_sweep *s, const char *exp) {
  for (size_t i = 0; i < s->count; i++) {
    if (strcmp(s->runners[i]->ref.exp, exp) == 0) return s->runners[i];
  }
  return NULL;
}

void brim_lab_say(brim_lab_sweep *s, brim_sweep_level level, const char *exp, const char *fmt,
                  ...) {
  char text[sizeof s->view.messages[0].text];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  brim_utf8_trim(text);
  brim_sweep_view_say(&s->view, level, brim_clock_wall_s(), exp, text);
}

void brim_lab_sweep_say(brim_lab_sweep *s, brim_sweep_level level, const char *exp,
                        const char *text) {
  brim_lab_say(s, level, exp, "%s", text);
}

void brim_lab_dirty(brim_lab_sweep *s, const char *exp) {
  if (s->all_dirty) return;
  for (size_t i = 0; i < s->dirty_count; i++) {
    if (strcmp(s->dirty[i], exp) == 0) return;
  }
  if (!exp[0] || s->dirty_count == BRIM_LAB_DIRTY) {
    s->all_dirty = true;
    return;
  }
  snprintf(s->dirty[s->dirty_count++], sizeof s->dirty[0], "%s", exp);
}

brim_status brim_lab_tolerate(brim_lab_sweep *s, brim_status status) {
  if (status != BRIM_EIO) return status;
  int64_t now = brim_lab_now_ms();
  if (s->trouble_ms == 0 || now - s->told_ms > TELL_MS) {
    brim_lab_say(s, BRIM_SWEEP_WARN, NULL,
                 brim_tr("cannot use the store; brim tries again: %.300s"), brim_status_detail());
    s->told_ms = now;
  }
  s->trouble_ms = now + TROUBLE_MS;
  s->counted = false;
  brim_status_clear();
  return BRIM_OK;
}
