// Classes of text labels: names to numbers. Classes are numbered in the order of the bytes of their
// names, as folders of images are. Callers: the sources whose labels can be text.
#include <inttypes.h>
#include <string.h>

#include "base/base_text.h"
#include "data/data_int.h"

// Names are bounded in number and length, so that a column of ids or of free text is refused before it
// fills the memory.
enum { MOST_CLASSES = 1 << 16, FEW = 10 };

static brim_status fail_memory(const char *what) {
  return brim_fail(BRIM_ENOMEM, "%s: out of memory", what);
}

void brim_data_classes_init(brim_data_classes *c, uint64_t rows, int64_t given) {
  *c = (brim_data_classes){.rows = rows, .most = rows / 2 < MOST_CLASSES ? rows / 2 : MOST_CLASSES};
  if (c->most < FEW) c->most = FEW;
  c->given = given > 0;
  if (given > 0) c->most = (uint64_t)given;
}

void brim_data_classes_deinit(brim_data_classes *c) {
  brim_arena_destroy(c->arena);
  brim_free(c->names);
  brim_free(c->numbers);
  *c = (brim_data_classes){0};
}

// The place of a name in the sorted list, or the one where it belongs.
static size_t place_of(const brim_data_classes *c, const char *text, size_t n, bool *found) {
  size_t low = 0, high = c->count;
  *found = false;
  while (low < high) {
    size_t middle = low + (high - low) / 2, own = strlen(c->names[middle]);
    int order = memcmp(c->names[middle], text, own < n ? own : n);
    if (order == 0 && own == n) {
      *found = true;
      return middle;
    }
    if (order < 0 || (order == 0 && own < n)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static brim_status insert(brim_data_classes *c, const char *what, size_t at, const char *text,
                          size_t n) {
  if (c->count == c->most && c->given) {
    return brim_fail(BRIM_EINVAL, "%s holds more than %" PRIu64 " classes, but classes=%" PRIu64,
                     what, c->most, c->most);
  }
  if (c->count == c->most) {
    return brim_fail(BRIM_EINVAL,
                     "%s holds more than %" PRIu64 " different texts in %" PRIu64
                     " rows; brim reads text as names of classes, not as ids or free text; name "
                     "the labels with targets=NAME, or use targets=none",
                     what, c->most, c->rows);
  }
  if (c->count == c->room) {
    size_t room = c->room ? 2 * c->room : 64;
    const char **names = brim_realloc(c->names, room * sizeof *names);
    if (names) c->names = names;
    int32_t *numbers = names ? brim_realloc(c->numbers, room * sizeof *numbers) : NULL;
    if (!numbers) return fail_memory(what);
    c->numbers = numbers;
    c->room = room;
  }
  if (!c->arena) BRIM_TRY(brim_arena_create(0, &c->arena));
  const char *name = brim_arena_strndup(c->arena, text, n);
  if (!name) return fail_memory(what);
  memmove(c->names + at + 1, c->names + at, (c->count - at) * sizeof *c->names);
  memmove(c->numbers + at + 1, c->numbers + at, (c->count - at) * sizeof *c->numbers);
  c->names[at] = name;
  c->numbers[at] = (int32_t)c->count++;
  return BRIM_OK;
}

brim_status brim_data_classes_label(brim_data_classes *c, const char *what, uint64_t row,
                                    const char *text, size_t n, int32_t *out) {
  const char *end = memchr(text, 0, n);
  if (end) n = (size_t)(end - text);
  size_t blank = 0;
  while (blank < n && strchr(" \t\r\n", text[blank])) blank++;
  if (blank == n) {
    return brim_fail(BRIM_EPARSE,
                     "%s[%" PRIu64
                     "] is empty; every sample needs the name of its class; remove the samples "
                     "without one, or use targets=none",
                     what, row);
  }
  if (n > BRIM_DATA_CLASS_BYTES) return brim_data_classes_fail_long(what);
  bool found;
  size_t at = place_of(c, text, n, &found);
  if (!found && c->fixed) {
    char plain[BRIM_DATA_CLASS_BYTES + 1], shown[4 * BRIM_DATA_CLASS_BYTES + 1];
    memcpy(plain, text, n);
    plain[n] = '\0';
    brim_text_plain(plain, shown, sizeof shown);
    return brim_fail(BRIM_EPARSE,
                     "%s[%" PRIu64
                     "] is '%s', a class that the training data does not have; the training data "
                     "defines the class numbers",
                     what, row, shown);
  }
  if (!found) BRIM_TRY(insert(c, what, at, text, n));
  *out = c->numbers[at];
  return BRIM_OK;
}

brim_status brim_data_classes_fail_long(const char *what) {
  return brim_fail(BRIM_EINVAL,
                   "%s holds text of more than %d bytes; brim reads text as names of classes, not "
                   "as free text; name the labels with targets=NAME, or use targets=none",
                   what, BRIM_DATA_CLASS_BYTES);
}

brim_status brim_data_classes_fix(brim_data_classes *c, const char *what, int64_t given,
                                  int32_t *labels) {
  if (given > 0 && (uint64_t)given != c->count) {
    return brim_fail(BRIM_EINVAL, "%s names %zu classes, but classes=%lld", what, c->count,
                     (long long)given);
  }
  c->fixed = true;
  int32_t *place = brim_alloc((c->count + 1) * sizeof *place);
  if (!place) return fail_memory(what);
  for (size_t i = 0; i < c->count; i++) {
    place[c->numbers[i]] = (int32_t)i;
    c->numbers[i] = (int32_t)i;
  }
  for (uint64_t i = 0; labels && i < c->rows; i++) labels[i] = place[labels[i]];
  brim_free(place);
  return BRIM_OK;
}
