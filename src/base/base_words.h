// Sentences that are stored and translated when they are read: a text field holds the English message and its values, and the
// language is chosen when it is shown. For findings in records. Text that is shown at once uses brim_tr and printf.
//
// The form, in fields and in JSON: U+0001, the message, then for each value U+0002 and the value as text, then U+0003. A value
// may contain such a sentence; sentences may follow each other. Text without these characters stands for itself, as in old
// records and in fields that plug-ins fill. A message is looked up in the catalogue and never used as a format; an unknown one
// is filled in as it is.
#ifndef BRIM_BASE_WORDS_H_
#define BRIM_BASE_WORDS_H_

#include "base/base_msg.h"
#include "base/base_str.h"

// Appends a message and its values to the field `out`, which must be empty or filled by this function. A value of %s may be
// such a field. Cuts off at a character boundary.
void brim_words_add(char *out, size_t size, const char *english, ...) BRIM_PRINTF(3, 4);

// The same for a message without values. Also for a message that is a value of another one.
void brim_words_put(char *out, size_t size, const char *message);
// The same for each message of a list: "power cap, heat".
void brim_words_put_list(char *out, size_t size, const char *list);

// brim_tr in a given language; NULL = English.
const char *brim_tr_in(const brim_msg_catalogue *language, const char *english)
    __attribute__((format_arg(2)));

// Appends the sentences in the reader's language; `_in`: in the given one (NULL = English).
void brim_words_read(const char *words, brim_str *out);
void brim_words_text(const char *words, char *out, size_t size);  // into a buffer
void brim_words_read_in(const brim_msg_catalogue *language, const char *words, brim_str *out);
// True if the text contains a sentence that can be translated.
bool brim_words_are(const char *text);

#endif  // BRIM_BASE_WORDS_H_
