// The message catalogue. The English text is the key, as in gettext, so that the compiler checks formats at the
// call. tools/messages collects every literal given to brim_tr, brim_fail, brim_fail_at, brim_fail_context and
// brim_log_*; a test compares these literals with the translations.
#ifndef BRIM_BASE_MSG_H_
#define BRIM_BASE_MSG_H_

#include <stdbool.h>
#include <stddef.h>

#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// One translation; both strings are printf formats taking the same arguments.
typedef struct brim_msg_pair {
  const char *english;
  const char *translated;
} brim_msg_pair;

// Returns the message in the current language; the argument itself if there is no translation.
const char *brim_tr(const char *english) __attribute__((format_arg(1)));

// A translation writes a Korean particle after a conversion in both forms, such as 이(가). This function chooses the
// form that fits the sound before it: 64가, 'mlp'가, data.val_fraction이. It works in place from offset `from`, never
// lengthens, and returns the new length. After a word of unknown sound both forms stay. brim_fail, the logger,
// brim_str_printf and brim_msg_format call it.
size_t brim_msg_particles(char *text, size_t from);
// snprintf for a translated message, with the particles chosen. Returns the length in `out`.
size_t brim_msg_format(char *out, size_t size, const char *fmt, ...) BRIM_PRINTF(3, 4);
// True if a format has such a particle.
bool brim_msg_has_particle(const char *text);

// Marks a literal in a table for tools/messages. It is translated where it is printed.
#define BRIM_N_(text) text

// Sets the language ("en", "ko"). Returns false and changes nothing if there is no catalogue for it. Call it once,
// from main. base_msg_lang.c has this function and the catalogues.
bool brim_msg_set_language(const char *name);
// Returns the language that the environment asks for: the first variable that is not empty decides, as in POSIX. A
// locale that is not UTF-8 gets English, because the catalogues are UTF-8.
const char *brim_msg_language_of(const char *lc_all, const char *lc_messages, const char *lang);

// A built-in catalogue, sorted by strcmp of english.
typedef struct brim_msg_catalogue {
  const char *language;
  const brim_msg_pair *pairs;
  int count;
} brim_msg_catalogue;
// Returns NULL for English and for languages without a catalogue.
const brim_msg_catalogue *brim_msg_catalogue_of(const char *language);

// Adds translations for parts that the catalogue does not know, such as a registered workload, in any order. Call
// it from main, before threads start. Returns false if there are too many.
bool brim_msg_add(const brim_msg_pair *pairs, size_t count);

// Sets a catalogue, sorted by strcmp of english; NULL = English. Call it once, from main.
void brim_msg_set_catalogue(const brim_msg_pair *pairs, int count);

#ifdef __cplusplus
}
#endif
#endif  // BRIM_BASE_MSG_H_
