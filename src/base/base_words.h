// Sentences that are kept and read later, perhaps in another language: a text field holds the English
// message beside the values that fill it, and the reader's language is chosen when it is shown. For
// findings in records; what is shown at once is brim_tr and printf.
//
// The form, in a field as in JSON: U+0001, the message, then for each value U+0002 and the value as text,
// then U+0003. A value may hold such a sentence again; sentences may follow one another. A text without
// these characters is itself, so that fields of old records, and those that plug-ins fill, stay as they are.
// The message is looked up in brim's own catalogue and is never a format: one that the catalogue does not
// have is filled in as it stands.
#ifndef BRIM_BASE_WORDS_H_
#define BRIM_BASE_WORDS_H_

#include "base/base_msg.h"
#include "base/base_str.h"

#ifdef __cplusplus
extern "C" {
#endif

// Appends a message and its values to the field `out` (empty, or one that this function filled). A value of
// %s may be such a field. What does not fit is cut off at a character.
void brim_words_add(char *out, size_t size, const char *english, ...) BRIM_PRINTF(3, 4);

// The same for a message without values; where a value of another one is a message too, it goes by a field
// of its own.
void brim_words_put(char *out, size_t size, const char *message);
// Each of a list of such messages: "power cap, heat".
void brim_words_put_list(char *out, size_t size, const char *list);

// brim_tr in a language that need not be the reader's; NULL = English.
const char *brim_tr_in(const brim_msg_catalogue *language, const char *english)
    __attribute__((format_arg(2)));

// Appends the sentences in the reader's language; in the given one (NULL = English).
void brim_words_read(const char *words, brim_str *out);
void brim_words_text(const char *words, char *out, size_t size);  // into a buffer
void brim_words_read_in(const brim_msg_catalogue *language, const char *words, brim_str *out);
// Is there anything in it that depends on the language?
bool brim_words_are(const char *text);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_WORDS_H_
