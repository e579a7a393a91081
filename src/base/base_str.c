// The growing string, prefix tests, and nearest names. Number texts are in base_number.c, UTF-8 in
// base_utf8.c; all three are declared in base_str.h.
#include "base/base_str.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_msg.h"
#include "base/base_status.h"

// What an empty string points at: shared, never written (cap is 0).
static const char empty_text[1] = "";

void brim_str_init(brim_str *s) {
  *s = (brim_str){.data = (char *)(uintptr_t)empty_text, .len = 0, .cap = 0, .status = BRIM_OK};
}

void brim_str_deinit(brim_str *s) {
  if (s->cap) brim_free(s->data);
  brim_str_init(s);
}

void brim_str_clear(brim_str *s) {
  s->len = 0;
  if (s->cap) s->data[0] = '\0';
}

// Room for n more bytes and the NUL.
static bool reserve(brim_str *s, size_t n) {
  if (s->status) return false;
  if (n < s->cap - s->len && s->cap) return true;
  if (n > SIZE_MAX / 4 || s->len > SIZE_MAX / 4) {
    s->status = brim_fail(BRIM_ENOMEM, "out of memory while building a text");
    return false;
  }
  size_t cap = s->cap ? s->cap * 2 : 64;
  while (cap < s->len + n + 1) cap *= 2;
  char *data = brim_realloc(s->cap ? s->data : NULL, cap);
  if (!data) {
    s->status = brim_fail(BRIM_ENOMEM, "out of memory while building a text");
    return false;
  }
  data[s->len] = '\0';
  s->data = data;
  s->cap = cap;
  return true;
}

void brim_str_append_n(brim_str *s, const char *text, size_t n) {
  if (n == 0 || !reserve(s, n)) return;
  memcpy(s->data + s->len, text, n);
  s->len += n;
  s->data[s->len] = '\0';
}

void brim_str_append(brim_str *s, const char *text) { brim_str_append_n(s, text, strlen(text)); }

void brim_str_append_char(brim_str *s, char c) { brim_str_append_n(s, &c, 1); }

void brim_str_repeat(brim_str *s, char c, size_t n) {
  if (n == 0 || !reserve(s, n)) return;
  memset(s->data + s->len, c, n);
  s->len += n;
  s->data[s->len] = '\0';
}

void brim_str_vprintf(brim_str *s, const char *fmt, va_list args) {
  if (!reserve(s, 32)) return;
  va_list again;
  va_copy(again, args);
  size_t from = s->len;
  size_t room = s->cap - s->len;
  int n = vsnprintf(s->data + s->len, room, fmt, args);
  if (n < 0) {
    s->data[s->len] = '\0';
    s->status = brim_fail(BRIM_EINVAL, "a text could not be formatted");
  } else if ((size_t)n < room) {
    s->len += (size_t)n;
  } else {
    s->data[s->len] = '\0';  // undo the cut-off try
    if (reserve(s, (size_t)n)) {
      vsnprintf(s->data + s->len, s->cap - s->len, fmt, again);
      s->len += (size_t)n;
    }
  }
  // only where the message has one: data that is printed stays as it is
  if (s->len > from && brim_msg_has_particle(fmt)) s->len = brim_msg_particles(s->data, from);
  va_end(again);
}

void brim_str_printf(brim_str *s, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  brim_str_vprintf(s, fmt, args);
  va_end(args);
}

brim_status brim_str_status(const brim_str *s) {
  // Said again: the detail of the failed append may have been replaced since.
  if (s->status == BRIM_ENOMEM) {
    return brim_fail(BRIM_ENOMEM, "out of memory while building a text");
  }
  return s->status;
}

char *brim_str_take(brim_str *s) {
  char *data = NULL;
  if (s->status == BRIM_OK) data = s->cap ? s->data : brim_strdup("");
  if (s->cap && data != s->data) brim_free(s->data);
  brim_str_init(s);
  return data;
}

bool brim_str_starts(const char *text, const char *prefix) {
  return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool brim_str_ends(const char *text, const char *suffix) {
  size_t n = strlen(text), m = strlen(suffix);
  return n >= m && memcmp(text + n - m, suffix, m) == 0;
}

enum { EDIT_MAX = 64 };

static int min_int(int a, int b) { return a < b ? a : b; }

// The unrestricted form (Lowrance and Wagner): a transposition counts 1 even with letters between.
int brim_edit_distance(const char *a, const char *b) {
  int n = (int)strnlen(a, EDIT_MAX), m = (int)strnlen(b, EDIT_MAX);
  int d[EDIT_MAX + 2][EDIT_MAX + 2];
  int last_row[256] = {0};
  const int far = n + m;
  d[0][0] = far;
  for (int i = 0; i <= n; i++) {
    d[i + 1][0] = far;
    d[i + 1][1] = i;
  }
  for (int j = 0; j <= m; j++) {
    d[0][j + 1] = far;
    d[1][j + 1] = j;
  }
  for (int i = 1; i <= n; i++) {
    int last_col = 0;
    for (int j = 1; j <= m; j++) {
      int row = last_row[(unsigned char)b[j - 1]], col = last_col;
      int cost = a[i - 1] == b[j - 1] ? 0 : 1;
      if (cost == 0) last_col = j;
      int best = min_int(d[i][j] + cost, min_int(d[i + 1][j], d[i][j + 1]) + 1);
      best = min_int(best, d[row][col] + (i - row - 1) + 1 + (j - col - 1));
      d[i + 1][j + 1] = best;
    }
    last_row[(unsigned char)a[i - 1]] = i;
  }
  return d[n + 1][m + 1];
}

const char *brim_nearest(const char *word, const char *const *names) {
  const char *best = NULL;
  int best_distance = INT_MAX;
  for (; names && *names; names++) {
    int length = (int)strnlen(word, EDIT_MAX), other = (int)strnlen(*names, EDIT_MAX);
    int limit = (length > other ? length : other) / 3;
    if (limit < 1) limit = 1;
    int distance = brim_edit_distance(word, *names);
    if (distance <= limit && distance < length && distance < best_distance) {
      best = *names;
      best_distance = distance;
    }
  }
  return best;
}
