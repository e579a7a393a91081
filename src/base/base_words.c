// Sentences with the values that fill them (base_words.h).
#include "base/base_words.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BEGIN = '\x01', VALUE = '\x02', END = '\x03' };
enum { LONGEST = 1024, VALUES = 12, DEPTH = 4, MOST_STEPS = 1 << 14 };

bool brim_words_are(const char *text) { return strchr(text, BEGIN) != NULL; }

// Returns the length of a printf conversion after its '%'.
static size_t conversion_length(const char *p) {
  const size_t flags = strspn(p, "-+ #0'123456789.*$hljztL");
  return p[flags] ? flags + 1 : flags;
}

//---------------------------------- writing ----------------------------------

void brim_words_add(char *out, size_t size, const char *english, ...) {
  char fmt[2 * LONGEST];
  size_t n = 0;
  const size_t used = strlen(out), longest = strlen(english);
  va_list args;
  if (used + 1 >= size) return;
  va_start(args, english);
  if (longest < LONGEST / 2) {
    // the format: the message with every % doubled, then its conversions, which take the arguments in order
    fmt[n++] = BEGIN;
    for (const char *p = english; *p; p++) {
      if (*p == '%') fmt[n++] = '%';
      fmt[n++] = *p;
    }
    for (const char *p = strchr(english, '%'); p; p = strchr(p, '%')) {
      const size_t length = conversion_length(++p);
      if (*p != '%') {
        fmt[n++] = VALUE;
        fmt[n++] = '%';
        memcpy(fmt + n, p, length);
        n += length;
      }
      p += length;
    }
    fmt[n++] = END;
    fmt[n] = '\0';
    vsnprintf(out + used, size - used, fmt, args);
  } else {
    vsnprintf(out + used, size - used, brim_tr(english), args);
  }
  va_end(args);
  brim_utf8_trim(out);
}

void brim_words_put(char *out, size_t size, const char *message) {
  const size_t used = strlen(out);
  if (used + 1 >= size) return;
  snprintf(out + used, size - used, "%c%s%c", BEGIN, message, END);
  brim_utf8_trim(out);
}

void brim_words_put_list(char *out, size_t size, const char *list) {
  static const char between[] = ", ";
  char message[128];
  while (*list) {
    const char *end = strstr(list, between);
    const size_t n = end ? (size_t)(end - list) : strlen(list);
    snprintf(message, sizeof message, "%.*s", (int)n, list);
    brim_words_put(out, size, message);
    list += n;
    if (!end) break;
    const size_t used = strlen(out);
    if (used + sizeof between <= size) memcpy(out + used, between, sizeof between);
    list += strlen(between);
  }
}

//---------------------------------- reading ----------------------------------

static int compare_pair(const void *key, const void *pair) {
  return strcmp((const char *)key, ((const brim_msg_pair *)pair)->english);
}

const char *brim_tr_in(const brim_msg_catalogue *language, const char *english) {
  if (!language) return english;
  const brim_msg_pair *found = (const brim_msg_pair *)bsearch(
      english, language->pairs, (size_t)language->count, sizeof *language->pairs, compare_pair);
  return found && found->translated ? found->translated : english;
}

typedef struct reading {
  const brim_msg_catalogue *language;
  bool own;  // use the reader's language, not `language`
  int depth;
  size_t left;  // limit on steps, since a sentence from a file may repeat nested values
  brim_str *out;
} reading;

typedef struct part {
  const char *text;
  size_t length;
} part;

static void read_all(reading *r, part words);

// Writes the value of a conversion: the next value, or the value with its number ("2$").
static void put_value(reading *r, const char *conversion, const part *values, size_t count,
                      size_t *next) {
  size_t at = (*next)++;
  const size_t digits = strspn(conversion, "0123456789");
  if (digits == 1 && conversion[1] == '$') at = (size_t)(conversion[0] - '1');
  if (at < count) read_all(r, values[at]);
}

// Writes a message. `plain`: it has no values, so % is literal.
static void put_message(reading *r, part message, bool plain, const part *values, size_t count) {
  char english[LONGEST];
  if (message.length >= sizeof english) return;
  memcpy(english, message.text, message.length);
  english[message.length] = '\0';
  const char *fmt = r->own ? brim_tr(english) : brim_tr_in(r->language, english);
  const size_t from = r->out->len;
  size_t next = 0;
  for (const char *p = fmt; *p && r->left > 0; p++) {
    r->left--;
    if (*p == BEGIN || *p == VALUE || *p == END) continue;
    if (*p != '%' || (plain && p[1] != '%')) {
      brim_str_append_char(r->out, *p);
    } else if (p[1] == '%') {
      brim_str_append_char(r->out, *p++);
    } else {
      put_value(r, p + 1, values, count, &next);
      p += conversion_length(p + 1);
    }
  }
  if (r->out->len > from && brim_msg_has_particle(fmt)) {
    r->out->len = brim_msg_particles(r->out->data, from);
  }
}

// Reads a message after BEGIN and returns the text after END. The end of the text ends all open messages.
static part read_message(reading *r, part rest) {
  part parts[1 + VALUES] = {{rest.text, 0}};
  size_t count = 1, i = 0;
  for (int open = 0; i < rest.length && (open > 0 || rest.text[i] != END); i++) {
    const char c = rest.text[i];
    open += c == BEGIN;
    open -= c == END;
    if (c == VALUE && open == 0 && count < 1 + VALUES) {
      parts[count++] = (part){rest.text + i + 1, 0};
    } else {
      parts[count - 1].length++;
    }
  }
  if (r->depth < DEPTH) {
    r->depth++;
    put_message(r, parts[0], count == 1 && i < rest.length, parts + 1, count - 1);
    r->depth--;
  }
  if (i < rest.length) i++;
  return (part){rest.text + i, rest.length - i};
}

static void read_all(reading *r, part words) {
  while (words.length > 0 && r->left > 0) {
    const char c = *words.text++;
    words.length--;
    r->left--;
    if (c == BEGIN) {
      words = read_message(r, words);
    } else if (c != VALUE && c != END) {
      brim_str_append_char(r->out, c);
    }
  }
}

void brim_words_read(const char *words, brim_str *out) {
  reading r = {.own = true, .left = MOST_STEPS, .out = out};
  read_all(&r, (part){words, strlen(words)});
}

void brim_words_text(const char *words, char *out, size_t size) {
  brim_str text;
  brim_str_init(&text);
  brim_words_read(words, &text);
  snprintf(out, size, "%s", text.data);
  brim_utf8_trim(out);
  brim_str_deinit(&text);
}

void brim_words_read_in(const brim_msg_catalogue *language, const char *words, brim_str *out) {
  reading r = {.language = language, .left = MOST_STEPS, .out = out};
  read_all(&r, (part){words, strlen(words)});
}
