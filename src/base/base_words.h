// Sentences that are stored now and translated later: a text field holds the English message and its values, and
// the language is chosen when the text is shown. Findings in records use this. Text that is shown at once uses
// brim_tr and printf.
#ifndef BRIM_BASE_WORDS_H_
#define BRIM_BASE_WORDS_H_

#include "base/base_msg.h"
#include "base/base_str.h"

// Appends a message and its values to the field `out`, which must be empty or filled by this function. A value of
// %s may be such a field. A text that does not fit is cut at a character boundary.
void brim_words_add(char *out, size_t size, const char *english, ...) BRIM_PRINTF(3, 4);

// Adds a message without values; also a message that is a value of another message.
void brim_words_put(char *out, size_t size, const char *message);
// Adds each message of a list: "power cap, heat".
void brim_words_put_list(char *out, size_t size, const char *list);

// brim_tr for a given language; NULL = English.
const char *brim_tr_in(const brim_msg_catalogue *language, const char *english)
    __attribute__((format_arg(2)));

// Appends the sentences in the reader's language; the function with `_in` in the given language (NULL = English).
void brim_words_read(const char *words, brim_str *out);
void brim_words_text(const char *words, char *out, size_t size);  // writes into a buffer
void brim_words_read_in(const brim_msg_catalogue *language, const char *words, brim_str *out);
// True if the text contains a sentence that can be translated.
bool brim_words_are(const char *text);

#endif  // BRIM_BASE_WORDS_H_
