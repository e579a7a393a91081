// The English form of a text that is kept with its values (base_words.h), for comparisons.
#ifndef BRIM_TESTS_WORDS_H_
#define BRIM_TESTS_WORDS_H_

#include "base/base_words.h"
#include "test.h"

// Valid until the eighth call after this one.
static inline const char *english(const char *words) {
  static char texts[8][2048];
  static int at;
  brim_str text;
  at = (at + 1) % 8;
  brim_str_init(&text);
  brim_words_read_in(NULL, words, &text);
  snprintf(texts[at], sizeof texts[at], "%s", text.data);
  brim_str_deinit(&text);
  return texts[at];
}

#endif  // BRIM_TESTS_WORDS_H_
