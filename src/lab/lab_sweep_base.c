// What the parts of a sweep share: the list of executors, messages, what changed, a store that cannot
// be reached.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lab/lab_sweep_int.h"

enum {
  TROUBLE_MS = 500,      // before the first new try while the store cannot be reached, then doubled
  TROUBLE_MOST = 30000,  // at most
  TELL_MS = 60000        // between messages about that
};

int64_t brim_lab_now_ms(void) { return brim_clock_ms(); }

void brim_lab_worker_name(const char *id, const char *host, const char *path,
                          char out[BRIM_LAB_WORKER_NAME]) {
  char hex[BRIM_SHA256_HEX];
  if (!host[0]) host = "host";
  brim_sha256_hex(path, strlen(path), hex);
  if (id[0]) {
    snprintf(out, BRIM_LAB_WORKER_NAME, "%.32s.%.17s-%.12s", id, host, hex);
  } else {
    snprintf(out, BRIM_LAB_WORKER_NAME, "%.40s-%.12s", host, hex);
  }
}

brim_status brim_lab_exp_folder(const char *folder, const char *id, brim_str *out) {
  BRIM_TRY(brim_store_check_id(id));
  brim_str_printf(out, "%s/" BRIM_LAB_SWEEP_EXPS "/%.*s", folder, BRIM_LAB_SHORT_ID, id);
  return brim_str_status(out);
}

brim_lab_runner *brim_lab_runner_find(brim_lab_sweep *s, const char *exp) {
  for (size_t i = 0; i < s->count; i++) {
    if (strcmp(s->runners[i]->ref.exp, exp) == 0) return s->runners[i];
  }
  return NULL;
}

void brim_lab_runner_free(brim_lab_runner *r) {
  if (!r) return;
  if (r->child) brim_child_detach(r->child);
  brim_free(r->folder);
  brim_free(r->devices);
  brim_free(r);
}

brim_status brim_lab_runner_add(brim_lab_sweep *s, const brim_store_ref *ref,
                                brim_lab_runner **out) {
  brim_str folder;
  if (s->count == s->cap) {
    size_t cap = s->cap ? s->cap * 2 : 16;
    brim_lab_runner **more = brim_realloc(s->runners, cap * sizeof *more);
    if (!more) return brim_fail(BRIM_ENOMEM, "out of memory while starting an experiment");
    s->runners = more;
    s->cap = cap;
  }
  brim_lab_runner *r = brim_calloc(1, sizeof *r);
  if (!r) return brim_fail(BRIM_ENOMEM, "out of memory while starting an experiment");
  brim_str_init(&folder);
  brim_status status = brim_lab_exp_folder(s->folder, ref->exp, &folder);
  r->folder = status ? NULL : brim_str_take(&folder);
  brim_str_deinit(&folder);
  if (!r->folder) {
    brim_free(r);
    return brim_fail(BRIM_ENOMEM, "out of memory while starting an experiment");
  }
  r->ref = *ref;
  r->step = r->steps = -1;
  s->runners[s->count++] = r;
  *out = r;
  return BRIM_OK;
}

void brim_lab_runner_drop(brim_lab_sweep *s, brim_lab_runner *r) {
  for (size_t i = 0; i < s->count; i++) {
    if (s->runners[i] != r) continue;
    memmove(&s->runners[i], &s->runners[i + 1], (s->count - i - 1) * sizeof *s->runners);
    s->count--;
    break;
  }
  brim_child_close(r->child);
  r->child = NULL;
  brim_lab_runner_free(r);
}

brim_status brim_lab_finish_infra(brim_lab_sweep *s, const brim_store_ref *ref, const char *message,
                                  const char *tail) {
  const brim_store_result result = {.outcome = BRIM_ATTEMPT_ERROR,
                                    .failure = BRIM_FAILURE_INFRASTRUCTURE,
                                    .exit_code = -1,
                                    .message = message,
                                    .last_lines = tail};
  brim_status status = brim_lab_source_finish(&s->source, ref, &result);
  if (status != BRIM_ESTATE && status != BRIM_ENOENT) return status;
  brim_status_clear();  // another attempt has taken over
  return BRIM_OK;
}

void brim_lab_shorten(const char *text, char *out, size_t size) {
  static const char more[] = " ...";
  snprintf(out, size, "%s", text);
  if (strlen(text) < size) return;
  size_t end = size - sizeof more;
  while (end > size / 2 && out[end] != ' ') end--;
  if (out[end] != ' ') end = size - sizeof more;  // no word ends there
  out[end] = '\0';
  brim_utf8_trim(out);
  memcpy(out + strlen(out), more, sizeof more);
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
  s->trouble_wait = s->trouble_wait == 0 ? TROUBLE_MS : 2 * s->trouble_wait;
  if (s->trouble_wait > TROUBLE_MOST) s->trouble_wait = TROUBLE_MOST;
  s->trouble_ms = now + s->trouble_wait;
  s->counted = false;
  brim_status_clear();
  return BRIM_OK;
}
