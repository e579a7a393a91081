// Splits a child's output into lines. Memory is bounded: a line longer than the limit comes in
// pieces.
#include <string.h>

#include "base/base_alloc.h"
#include "base/base_child_int.h"
#include "base/base_status.h"

enum { DEFAULT_LINE = 64 * 1024 };

brim_status brim_child_splitter_init(brim_child_splitter *s, size_t max, bool returns) {
  *s = (brim_child_splitter){.max = max ? max : DEFAULT_LINE, .returns = returns};
  s->data = brim_alloc(s->max + 1);
  return s->data ? BRIM_OK : brim_fail(BRIM_ENOMEM, "out of memory for a child process");
}

void brim_child_splitter_deinit(brim_child_splitter *s) {
  brim_free(s->data);
  s->data = NULL;
}

static brim_status give(brim_child_splitter *s, const brim_child_options *o, brim_child_line line) {
  s->data[s->size] = '\0';
  line.text = s->data;
  line.size = s->size;
  s->size = 0;
  return o->on_line ? o->on_line(o->ctx, &line) : BRIM_OK;
}

static size_t line_length(const brim_child_splitter *s, const char *data, size_t size) {
  const char *end = memchr(data, '\n', size);
  size_t n = end ? (size_t)(end - data) : size;
  const char *back = s->returns ? memchr(data, '\r', n) : NULL;
  return back ? (size_t)(back - data) : n;
}

brim_status brim_child_splitter_add(brim_child_splitter *s, const brim_child_options *o,
                                    brim_child_stream stream, const char *data, size_t size) {
  while (size) {
    if (s->skip_newline) {  // "\r\n" is one end
      s->skip_newline = false;
      if (*data == '\n') {
        data++, size--;
        continue;
      }
    }
    size_t n = line_length(s, data, size), room = s->max - s->size;
    bool fits = n <= room, ends = fits && n < size;
    if (!fits) n = room;
    memcpy(s->data + s->size, data, n);
    s->size += n;
    data += n, size -= n;
    if (!fits) BRIM_TRY(give(s, o, (brim_child_line){.stream = stream, .more = true}));
    if (!ends) continue;
    s->skip_newline = *data == '\r';
    data++, size--;
    BRIM_TRY(give(s, o, (brim_child_line){.stream = stream}));
  }
  return BRIM_OK;
}

brim_status brim_child_splitter_end(brim_child_splitter *s, const brim_child_options *o,
                                    brim_child_stream stream) {
  if (!s->size) return BRIM_OK;
  return give(s, o, (brim_child_line){.stream = stream, .cut = true});
}
